// screen_history.go - what the user has said, in a file.
// SPDX-License-Identifier: 0BSD

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
)

// history is what the user has said, the latest last. It is kept in a file that is moved to a
// second one when it has grown: so several programs add to it at the same time, and none has to
// lock it. It is used under the lock of its Prompter.
type history struct {
	path    string // "" if it is not kept
	entries []string
}

// The bounds of the history.
const (
	maxEntries = 1000
	maxEntry   = 64 << 10  // bytes of an entry in the file
	maxHistory = 512 << 10 // bytes of a file, before it is moved
)

// openHistory reads the history of the user's programs. One that cannot be read is empty.
func openHistory() *history {
	h := new(history)
	folder := StateFolder()
	if !filepath.IsAbs(folder) {
		return h
	}
	h.path = filepath.Join(folder, "mcpagent", "history")
	for _, file := range []string{h.path + ".old", h.path} {
		text, _ := ReadRegular(file, 4*maxHistory)
		for line := range bytes.Lines(text) {
			var entry string
			if json.Unmarshal(line, &entry) == nil {
				h.entries = append(h.entries, entry)
			}
		}
	}
	h.trim()
	return h
}

// StateFolder is where the user's programs keep what they know from one run to the next
// (XDG base directories). It is "" if the user has no home.
func StateFolder() string {
	if folder := os.Getenv("XDG_STATE_HOME"); folder != "" {
		return folder
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	return filepath.Join(home, ".local", "state")
}

// trim drops the oldest entries of too many.
func (h *history) trim() { h.entries = h.entries[max(len(h.entries)-maxEntries, 0):] }

// add keeps a text that has no secrets, in the file if inFile. The error is why it is not there,
// the first time that it cannot be written: from then on this program writes no more.
func (h *history) add(text string, inFile bool) error {
	n := len(h.entries)
	if n > 0 && h.entries[n-1] == text {
		return nil
	}
	h.entries = append(h.entries, text)
	h.trim()
	if h.path == "" || !inFile {
		return nil
	}
	line, err := plainJSON(text)
	if err != nil || len(line) >= maxEntry {
		return nil
	}
	err = h.write(append(line, '\n'))
	if err != nil {
		h.path = ""
	}
	return err
}

// write adds a line to the file. It is one write, so that no entry of another program comes into
// the middle of it.
func (h *history) write(line []byte) error {
	f, err := OpenKept(h.path)
	if err != nil {
		return err
	}
	_, err = f.Write(line)
	err = errors.Join(err, f.Close())
	if err != nil {
		return err
	}
	file, err := os.Stat(h.path)
	if err == nil && file.Size() > maxHistory {
		_ = os.Rename(h.path, h.path+".old")
	}
	return nil
}
