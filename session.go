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

// sessionVersion is the version of the files that are written. A later program may add members
// under the same number. A file that cannot be read without knowing more gets a new number.
const sessionVersion = 1

// maxSession bounds a saved conversation, in bytes. It may have many images.
const maxSession = 1 << 30

const sessionPoll = 50 * time.Millisecond // between two tries to lock a file

// ErrSessionBusy reports that another process has locked a saved conversation.
var ErrSessionBusy = errors.New("another mcpagent has it open")

// Session is a saved conversation, which can be continued another time. (The sessions of MCP over
// HTTP are something else.) It holds the messages as they were, and nothing about how a model or a
// server was reached.
type Session struct {
	Version int           `json:"version"` // set by SaveSession
	Model   string        `json:"model,omitempty"`
	Saved   time.Time     `json:"saved"` // set by SaveSession
	Usage   Usage         `json:"usage"` // of all questions
	History []ChatMessage `json:"history"`
}

// LockSession locks a session for this process, until release. While another process has locked it,
// LockSession tries again and again, until ctx ends: then the error wraps ErrSessionBusy.
//
// The lock is a hidden file beside the session. Where path is a link, that is beside the file that
// it leads to, so that two names of one session have one lock.
func LockSession(ctx context.Context, path string) (release func(), err error) {
	folder, name := filepath.Split(LinkTarget(path))
	lock := filepath.Join(folder, "."+name+".lock")
	for {
		err = checkRegular(path)
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			release, err = lockFile(lock)
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

// checkRegular returns an error if a path leads to a pipe, a device or a folder: reading one might
// never end.
func checkRegular(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file", path)
	}
	return nil
}

// SaveSession writes a session to a file that only its owner can read. If it fails, the file is as
// it was before. It replaces nothing but a session: a mistyped name must not cost another file.
func SaveSession(path string, s *Session) error {
	_, err := LoadSession(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("save session: the existing file is not a session: %w", err)
	}
	out := *s
	out.Version = sessionVersion
	out.Saved = time.Now().UTC().Truncate(time.Second)
	// An empty history is written as [], not null: a file whose history is null is refused by
	// LoadSession as no session.
	out.History = append([]ChatMessage{}, s.History...)
	text, err := plainJSON(out)
	if err == nil {
		err = ReplaceFile(path, append(text, '\n'))
	}
	if err != nil {
		return fmt.Errorf("save session: %w", err)
	}
	return nil
}

// LoadSession reads a session that SaveSession wrote: its history is taken as it is. The error
// wraps one of the file system (fs.ErrNotExist), or describes what is wrong with the text.
func LoadSession(path string) (*Session, error) {
	s := new(Session)
	text, err := ReadRegular(path, maxSession)
	if err == nil {
		err = decodeJSON("", text, s)
	}
	// That of mcphost is a text.
	var other struct{ Version string }
	isOther := err != nil && json.Unmarshal(text, &other) == nil && other.Version != ""
	switch {
	case isOther:
		err = errors.New("it is a session of another program, and not read: " +
			"a name that is not taken begins one")
	case s.Version > sessionVersion:
		// This comes before a mistake in the text: a later version may well write another history.
		err = fmt.Errorf("the session has version %d, and this program reads version %d: "+
			"use the program that wrote it", s.Version, sessionVersion)
	case err == nil && (s.Version < 1 || s.History == nil):
		err = errors.New("not a session: it needs a version from 1 on and a history")
	}
	if err != nil {
		return nil, fmt.Errorf("load session %s: %w", path, err)
	}
	return s, nil
}
