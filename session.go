// session.go - a conversation in a file.
// SPDX-License-Identifier: 0BSD

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// sessionVersion is the version of the files that are written. A later version may add members; what cannot be read
// without knowing more gets a new number.
const sessionVersion = 1

const sessionPoll = 50 * time.Millisecond // between two tries to lock one

// ErrSessionBusy reports that another process has locked a session.
var ErrSessionBusy = errors.New("another mcpagent has it open")

// Session is a conversation that can be continued another time. It holds what was said, as it was said, and nothing
// of how a model or a server was reached.
type Session struct {
	Version int           `json:"version"` // set by SaveSession
	Model   string        `json:"model,omitempty"`
	Saved   time.Time     `json:"saved"` // set by SaveSession
	Usage   Usage         `json:"usage"` // of all questions
	History []ChatMessage `json:"history"`
}

// LockSession locks a session for this process, until release. It waits for another process that has locked it, until
// ctx ends: then the error wraps ErrSessionBusy. The lock is a file beside the session, also where path is a link.
func LockSession(ctx context.Context, path string) (release func(), err error) {
	folder, name := filepath.Split(target(path))
	for {
		if err = isFile(path); err == nil || errors.Is(err, fs.ErrNotExist) {
			release, err = lockFile(filepath.Join(folder, "."+name+".lock"))
		}
		if err == nil {
			return release, nil
		}
		if errors.Is(err, ErrSessionBusy) {
			select {
			case <-time.After(sessionPoll):
				continue
			case <-ctx.Done():
			}
		}
		return nil, fmt.Errorf("session %s: %w", path, err)
	}
}

// target returns the file that a link leads to: what is written there must not replace the link.
func target(path string) string {
	if file, err := filepath.EvalSymlinks(path); err == nil {
		return file
	}
	return path
}

// isFile returns an error if a path leads to a pipe, a device or a folder: reading one might never end.
func isFile(path string) error {
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", path)
	}
	return err
}

// SaveSession writes a session to a file that only its owner can read. If it fails, the file is as it was before. It
// replaces nothing but a session.
func SaveSession(path string, s *Session) error {
	if _, err := LoadSession(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("save session: it would replace what is no session: %w", err)
	}
	out := *s
	out.Version, out.Saved = sessionVersion, time.Now().UTC().Truncate(time.Second)
	out.History = append([]ChatMessage{}, s.History...) // never null
	text, err := PlainJSON(out)
	if err == nil {
		err = ReplaceFile(path, append(text, '\n'))
	}
	if err != nil {
		return fmt.Errorf("save session: %w", err)
	}
	return nil
}

// ReplaceFile writes a file that only its owner can read. If it fails, the file is as it was before.
func ReplaceFile(path string, text []byte) error {
	path = target(path)
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*") // of mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // which it has no more once it has the other one
	_, err = f.Write(text)
	if err == nil {
		err = f.Sync() // before the name points to it, or a crash could leave an empty file
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	return err
}

// LoadSession reads a session that SaveSession wrote: its history is taken as it is. The error wraps one of the file
// system (fs.ErrNotExist), or describes what is wrong with the text.
func LoadSession(path string) (*Session, error) {
	s := new(Session)
	var text []byte
	err := isFile(path)
	if err == nil {
		text, err = os.ReadFile(path)
	}
	if err == nil {
		err = json.Unmarshal(text, s)
	}
	switch {
	case s.Version > sessionVersion: // which may have another history
		err = fmt.Errorf("the session has version %d, and this program reads version %d: use the program that wrote it",
			s.Version, sessionVersion)
	case err == nil && (s.Version < 1 || s.History == nil):
		err = errors.New("not a session: it needs a version from 1 on and a history")
	}
	if err != nil {
		return nil, fmt.Errorf("load session %s: %w", path, err)
	}
	return s, nil
}
