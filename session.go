// session.go - a conversation in a file.
// Needs: Go 1.25, mistral.go, agent.go.
// SPDX-License-Identifier: 0BSD

package main

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// sessionVersion is the form of the files that are written. A later one adds to it; what cannot be read without knowing more
// gets a new number.
const sessionVersion = 1

// NewerSessionError says that a file was written by a program that knows more than this one.
type NewerSessionError struct{ Version int }

func (e *NewerSessionError) Error() string {
	return fmt.Sprintf("the session is of version %d; this program reads version %d: use the one that wrote it", e.Version, sessionVersion)
}

// Session is a conversation that can be continued another time. It holds what was said, by whom, and nothing of how a model
// or a server was reached.
type Session struct {
	Version int       `json:"version"` // set by SaveSession
	Model   string    `json:"model,omitempty"`
	Saved   time.Time `json:"saved"` // set by SaveSession
	Usage   Usage     `json:"usage"` // of all questions
	History []Message `json:"history"`

	// Redact takes secrets out of a text before it is written; nil leaves it as it is.
	Redact func(text string) string `json:"-"`
}

// SaveSession writes a session to a file that only its owner can read. Whatever goes wrong, the file is the old one or the
// new one, and never half of it.
func SaveSession(path string, s *Session) (err error) {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target // rather than to put a file in the place of the link
	}
	out := *s
	out.Version, out.Saved = sessionVersion, time.Now().UTC().Truncate(time.Second)
	out.History = slices.Clone(s.History)
	for i := range out.History {
		out.History[i] = redactMessage(out.History[i], s.Redact)
	}
	out.History = append([]Message{}, out.History...) // never null
	text, err := chatJSON(out)
	if err != nil {
		return fmt.Errorf("save session: %w", err)
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*") // of mode 0600
	if err != nil {
		return fmt.Errorf("save session: %w", err)
	}
	_, err = f.Write(append(text, '\n'))
	if err == nil {
		err = f.Sync() // before the name points to it, or a crash could leave an empty file
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return fmt.Errorf("save session: %w", err)
	}
	return nil
}

func redactMessage(m Message, redact func(string) string) Message {
	if redact == nil {
		return m
	}
	var text string
	if json.Unmarshal(m.Content, &text) == nil {
		m.Content = Text(redact(text))
	} else if clean := redact(string(m.Content)); json.Valid([]byte(clean)) {
		m.Content = Content(clean)
	} else {
		m.Content = Text(redact(m.Content.Text()))
	}
	m.Name = redact(m.Name)
	m.ToolCalls = slices.Clone(m.ToolCalls)
	for i := range m.ToolCalls {
		call := &m.ToolCalls[i]
		if call.Arguments = redact(call.Arguments); !json.Valid([]byte(call.Arguments)) {
			call.Arguments = "{}"
		}
		call.Name = redact(call.Name)
	}
	return m
}

// LoadSession reads a session. Its history is one that the API takes: what a file from elsewhere, or one that was edited,
// has wrong is put right, and what makes no sense is left out. The error wraps a *NewerSessionError, those of the file
// system (fs.ErrNotExist), or says what is wrong with the text.
func LoadSession(path string) (*Session, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("load session: %w", err)
	}
	s := new(Session)
	if err := decodeSession(text, s); err != nil {
		return nil, fmt.Errorf("load session %s: %w", path, err)
	}
	s.History = repairHistory(s.History)
	return s, nil
}

func decodeSession(text []byte, s *Session) error {
	var head struct {
		Version *int
		History json.RawMessage
	}
	if err := json.Unmarshal(text, &head); err != nil {
		return fmt.Errorf("it is no JSON object of a session: %w", err)
	}
	switch {
	case head.Version == nil || *head.Version < 1 || absent(head.History):
		return errors.New("it is no session: that has a version, which is 1 or more, and a history")
	case *head.Version > sessionVersion:
		return &NewerSessionError{*head.Version}
	}
	if err := json.Unmarshal(text, s); err != nil {
		return fmt.Errorf("it is no session: %w", err)
	}
	return nil
}

// repairHistory returns a history that the API takes, whatever question comes next (see Agent.History), with all of the
// given one that can be kept.
func repairHistory(history []Message) []Message {
	var out []Message
	last := func() string {
		if len(out) == 0 {
			return ""
		}
		return out[len(out)-1].Role
	}
	cut := func() { // an answer where there is none
		out = append(out, Message{Role: "assistant", Content: Text(cutOff)})
	}
	for i := 0; i < len(history); i++ {
		m := history[i]
		empty := strings.TrimSpace(m.Content.Text()) == "" && !strings.HasPrefix(string(m.Content), "[{")
		switch m.Role {
		case "user":
			if empty {
				continue
			}
			if last() == "tool" {
				cut()
			}
			out = append(out, Message{Role: "user", Content: m.Content})
		case "assistant":
			answers := history[i+1:]
			for n := range answers {
				if answers[n].Role != "tool" {
					answers = answers[:n]
					break
				}
			}
			i += len(answers)
			switch {
			case last() == "": // nothing that it could answer
			case len(m.ToolCalls) > 0:
				out = append(out, repairCalls(m, answers)...)
			case !empty:
				out = append(out, Message{Role: "assistant", Content: m.Content})
			}
		}
		// A system prompt is the program's, and a result without its call nobody's.
	}
	if last() != "" && last() != "assistant" {
		cut()
	}
	return out
}

var apiID = regexp.MustCompile(`^[a-zA-Z0-9]{9}$`)

// repairCalls is a message with calls and one answer to each, in their order.
func repairCalls(m Message, answers []Message) []Message {
	m = Message{Role: "assistant", Content: m.Content, ToolCalls: slices.Clone(m.ToolCalls)}
	out := []Message{m}
	taken := make(map[string]bool)
	for i := range m.ToolCalls {
		call := &m.ToolCalls[i]
		answer := Text(failure(errInterrupted))
		if n := slices.IndexFunc(answers, func(a Message) bool { return a.ToolCallID == call.ID }); n >= 0 {
			answer = Text(cmp.Or(answers[n].Content.Text(), "(The tool returned no text.)"))
			answers = slices.Delete(slices.Clone(answers), n, n+1) // of two calls with one id, each has its own
		}
		for !apiID.MatchString(call.ID) || taken[call.ID] { // as other servers make them, which this one does not take
			call.ID = rand.Text()[:9]
		}
		taken[call.ID] = true
		name := functionName(call.Name)
		call.Name = cmp.Or(name[:min(len(name), maxFunctionName)], "unknown")
		call.Arguments, _, _ = parseArguments(call.Arguments)
		out = append(out, Message{Role: "tool", ToolCallID: call.ID, Name: call.Name, Content: answer})
	}
	return out
}
