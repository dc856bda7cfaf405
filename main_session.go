// main_session.go - the conversation of a run, and the file that keeps it.
// SPDX-License-Identifier: 0BSD

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

const sessionWait = 5 * time.Minute // for a file that another process has locked

// answerCutOff stands in a history for the answer to a question that is still being answered. An
// agent ends an answer that is not whole with the same words.
const answerCutOff = "[The answer was cut off here.]"

// keptSession is the conversation of a run, and the file that keeps it. The file is one that the
// user has named with -session, or one of the kept chats (see main_chats.go). It is locked from
// when it is known until close.
type keptSession struct {
	output  *output
	session *Session
	path    string // the file; "" if there is none, or none yet
	unlock  func()
	isNamed bool // by -session: the file has no other conversation
	isChat  bool // it becomes one of the kept chats as soon as there is something to keep
	isNew   bool // this run has made the file, or will make it

	mu      sync.Mutex    // guards the following
	asked   []ChatMessage // the history of the question that is being answered, as it is now
	written []ChatMessage // the history in the file
}

// openSession finds, locks and loads the conversation that a run goes on with: that of -session, or
// with -c the last chat of this folder. Otherwise the conversation is empty. If another run has
// locked the file, openSession waits for it: two runs that wrote the file would lose each other's
// answers.
func openSession(
	ctx context.Context, settings *askingSettings, isChat bool, out *output,
) (*keptSession, error) {
	k := &keptSession{
		output:  out,
		session: new(Session),
		path:    settings.session,
		unlock:  func() {},
		isNamed: settings.session != "",
		isChat:  isChat && !settings.noHistory && settings.session == "" || settings.goOn,
	}
	var err error
	if settings.goOn {
		k.path, err = lastChat()
	}
	if err == nil && k.path != "" {
		err = k.open(ctx)
	}
	if err == nil {
		k.describe()
		return k, nil
	}
	if ctx.Err() != nil {
		return nil, err
	}
	flag := "-session"
	if settings.goOn {
		flag = "-c"
	}
	return nil, fmt.Errorf("%s: %w", flag, err)
}

// open locks and loads the file, of which there may be none yet.
func (k *keptSession) open(ctx context.Context) error {
	note := time.AfterFunc(moment, func() {
		k.output.note("waiting for another mcpagent, which has the session %s open", k.path)
	})
	defer note.Stop()
	waiting, cancel := context.WithTimeout(ctx, sessionWait)
	defer cancel()
	unlock, err := LockSession(waiting, k.path)
	if ctx.Err() != nil && err != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return err
	}
	session, err := LoadSession(k.path)
	if errors.Is(err, fs.ErrNotExist) {
		session, err = k.session, nil
		k.isNew = true
	}
	if err != nil {
		unlock()
		return err
	}
	k.session, k.unlock, k.written = session, unlock, session.History
	return nil
}

func (k *keptSession) close() { k.unlock() }

// describe tells the user what the run goes on with.
func (k *keptSession) describe() {
	if k.path == "" {
		return
	}
	var last string
	count := 0
	for _, m := range k.session.History {
		if m.Role == "user" {
			count++
			last = m.Content.Text()
		}
	}
	if count == 0 {
		k.output.note("%s is new: the conversation is kept there", k.path)
		return
	}
	what := k.path
	if !k.isNamed {
		what = "the last chat of this folder"
	}
	when := k.session.Saved.Local().Format("2006-01-02 15:04")
	end := k.session.History[len(k.session.History)-1].Content.Text()
	unanswered := ""
	if strings.HasSuffix(end, answerCutOff) {
		unanswered = ", unanswered or cut off"
	}
	last = k.output.screen.Name(strings.Join(strings.Fields(last), " "), 70)
	k.output.note("continuing %s: %s, saved %s; the last one%s: %s",
		what, Plural(count, "question"), when, unanswered, last)
	if k.output.inChat {
		k.recall()
	}
}

// recall shows how the last answer begins, for a user who goes on in a chat.
func (k *keptSession) recall() {
	history := k.session.History
	if len(history) == 0 || k.output.settings.quiet {
		return
	}
	answer := history[len(history)-1].Content.Text()
	answer = strings.TrimSuffix(answer, answerCutOff)
	k.output.screen.Preview(Look{Style: Faint}, "the last answer", answer)
}

// begin takes another conversation in place of this one, which stays in its file. With -session
// there is one file for all of them.
func (k *keptSession) begin(session *Session) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.session = session
	if !k.isNamed {
		k.leaveFile()
	}
}

// leaveFile leaves the file as it is. It needs the lock.
func (k *keptSession) leaveFile() {
	k.unlock()
	k.path, k.unlock, k.written = "", func() {}, nil
}

// isKept reports whether the file has something of the conversation.
func (k *keptSession) isKept() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.written) > 0
}

// file returns the absolute path of the file, "" if there is none.
func (k *keptSession) file() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.path == "" {
		return ""
	}
	path, err := filepath.Abs(k.path)
	if err != nil {
		return ""
	}
	return path
}

// keep copies the agent's conversation into the session. If the file has another one, keep saves
// the session in it. A message that is added or replaced has other content, so contents alone are
// compared.
func (k *keptSession) keep(agent *Agent, model string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.asked = nil
	k.session.Model, k.session.History = model, agent.History
	k.session.Usage.Add(agent.Usage)
	isSame := func(a, b ChatMessage) bool { return string(a.Content) == string(b.Content) }
	if slices.EqualFunc(k.written, agent.History, isSame) {
		return nil
	}
	return k.write(agent.History)
}

// note takes the history of the question that is being answered. A task begins on another goroutine
// than the agent's, and saves what was noted last.
func (k *keptSession) note(history []ChatMessage) {
	end := ChatMessage{Role: "assistant", Content: TextContent(answerCutOff)}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.asked = append(slices.Clone(history), end)
}

// saveAsked saves the session with the question that is being answered: if the program is killed,
// the file has the question and all calls that were made for it.
func (k *keptSession) saveAsked() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.asked == nil {
		return nil
	}
	return k.write(k.asked)
}

// write saves the session with a history, if it has a file. A file that was made for a question of
// which nothing came is removed. A chat that cannot be kept goes on: the user is told so once. It
// needs the lock.
func (k *keptSession) write(history []ChatMessage) error {
	if k.path == "" && !k.isChat {
		return nil
	}
	var err error
	if k.path == "" {
		k.path, k.unlock, err = newChat()
		k.isNew = true
	}
	switch {
	case err != nil:
	case len(history) == 0 && k.isNew:
		err = os.Remove(k.path)
	default:
		saved := *k.session
		saved.History = history
		err = SaveSession(k.path, &saved)
	}
	if err != nil && !k.isNamed {
		k.output.warn("this chat is not kept: %v", err)
		k.leaveFile()
		k.isChat = false
		return nil
	}
	if err != nil {
		return fmt.Errorf("-session: %w", err)
	}
	k.written = history
	return nil
}

// savingModel is the model of an agent whose conversation is kept. It saves the conversation before
// each request to the model.
type savingModel struct {
	*modelChoice
	save func() error
}

// Complete is modelChoice.Complete, after the conversation was saved.
func (m *savingModel) Complete(
	ctx context.Context, r *ChatRequest, onText func(string),
) (*ChatResponse, error) {
	err := m.save()
	if err != nil {
		return nil, err
	}
	return m.modelChoice.Complete(ctx, r, onText)
}
