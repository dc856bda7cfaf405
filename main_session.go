// main_session.go - the conversation of a run, and the file of -session that keeps it.
// SPDX-License-Identifier: 0BSD

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"
)

const sessionWait = 5 * time.Minute // for a file that another process has locked

// keptSession is the conversation of a run. With -session it is saved in a file, which is locked
// until close.
type keptSession struct {
	session *Session
	path    string // the file that -session names; "" if nothing is kept
	unlock  func()
}

// openSession locks and loads the saved conversation in a file. The conversation is empty if there
// is no such file yet, or no path. If another run has locked the file, openSession waits for it:
// two runs that wrote the file would lose each other's answers.
func openSession(ctx context.Context, path string, out *output) (*keptSession, error) {
	if path == "" {
		return &keptSession{new(Session), "", func() {}}, nil
	}
	note := time.AfterFunc(moment, func() {
		out.note("waiting for another mcpagent, which has the session %s open", path)
	})
	defer note.Stop()
	waiting, cancel := context.WithTimeout(ctx, sessionWait)
	defer cancel()
	unlock, err := LockSession(waiting, path)
	if ctx.Err() != nil && err != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("-session: %w", err)
	}
	session, err := LoadSession(path)
	if errors.Is(err, fs.ErrNotExist) {
		return &keptSession{new(Session), path, unlock}, nil
	}
	if err != nil {
		unlock()
		return nil, fmt.Errorf("-session: %w", err)
	}
	return &keptSession{session, path, unlock}, nil
}

func (k *keptSession) close() { k.unlock() }

// keep copies the agent's conversation into the session. If the conversation has changed, keep
// saves the session in its file. A message that is added or replaced has other content, so contents
// alone are compared.
func (k *keptSession) keep(agent *Agent, model string) error {
	isSame := func(a, b ChatMessage) bool { return string(a.Content) == string(b.Content) }
	isUnchanged := slices.EqualFunc(k.session.History, agent.History, isSame)
	k.session.Model, k.session.History = model, agent.History
	k.session.Usage.Add(agent.Usage)
	if k.path == "" || isUnchanged {
		return nil
	}
	if err := SaveSession(k.path, k.session); err != nil {
		return fmt.Errorf("-session: %w", err)
	}
	return nil
}
