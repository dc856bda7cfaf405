// screen_history.go - what the user has said, in a file.
// SPDX-License-Identifier: 0BSD

package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"os"
	"path/filepath"
)

// history is what the user has said, the latest last. It is kept in a file that is moved to a second one when it has
// grown: so programs add to it at once, and none has to lock it.
type history struct {
	path    string
	entries []string
}

// The bounds of the history: entries, and bytes of an entry in the file and of each file.
const maxEntries, maxEntry, maxHistory = 1000, 64 << 10, 512 << 10

// openHistory reads the history of the user's programs. One that cannot be read is empty.
func openHistory() *history {
	h, folder := new(history), os.Getenv("XDG_STATE_HOME")
	if home, err := os.UserHomeDir(); err == nil {
		folder = cmp.Or(folder, filepath.Join(home, ".local", "state"))
	}
	if !filepath.IsAbs(folder) {
		return h // which is not kept
	}
	h.path = filepath.Join(folder, "mcpagent", "history")
	for _, file := range []string{h.path + ".old", h.path} {
		text, _ := os.ReadFile(file)
		for line := range bytes.Lines(text) {
			var entry string
			if json.Unmarshal(line, &entry) == nil {
				h.entries = append(h.entries, entry)
			}
		}
	}
	h.entries = h.entries[max(len(h.entries)-maxEntries, 0):]
	return h
}

// add keeps a text that has no secrets. That it cannot be written is no error.
func (h *history) add(text string) {
	if n := len(h.entries); n > 0 && h.entries[n-1] == text {
		return
	}
	h.entries = append(h.entries, text)[max(len(h.entries)+1-maxEntries, 0):]
	line, err := PlainJSON(text)
	if err != nil || len(line) >= maxEntry || os.MkdirAll(filepath.Dir(h.path), 0o700) != nil {
		return
	}
	f, err := os.OpenFile(h.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return
	}
	_, _ = f.Write(append(line, '\n')) // at once, so that no entry of another program comes between
	f.Close()
	if file, err := os.Stat(h.path); err == nil && file.Size() > maxHistory {
		_ = os.Rename(h.path, h.path+".old")
	}
}
