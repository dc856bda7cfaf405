// terminal.go - what is asked of the user.
// Needs: Go 1.25, json.go, mcp_types.go, elicitation.go, mistral.go, agent.go.
// SPDX-License-Identifier: 0BSD

package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
)

// Terminal asks the user, one question at a time. Make one with NewTerminal.
type Terminal struct {
	in    *os.File
	out   io.Writer
	start sync.Once
	turn  chan struct{} // one slot, taken while a question is asked
	lines chan string   // what the user enters; closed at the end of in
}

// NewTerminal asks on out and reads the answers from in.
func NewTerminal(in *os.File, out io.Writer) *Terminal {
	return &Terminal{in: in, out: out, turn: make(chan struct{}, 1), lines: make(chan string)}
}

// Interactive says whether somebody is there to be asked.
func (t *Terminal) Interactive() bool { return isTerminal(t.in) }

// ask writes a question and returns the line that answers it.
func (t *Terminal) ask(ctx context.Context, question string) (string, error) {
	t.start.Do(func() { go t.read() }) // until the end of in: a blocked read of a terminal cannot be interrupted
	fmt.Fprint(t.out, visible(question))
	select {
	case line, ok := <-t.lines:
		if !ok {
			fmt.Fprintln(t.out)
			return "", io.EOF
		}
		return line, nil
	case <-ctx.Done():
		fmt.Fprintln(t.out)
		return "", context.Cause(ctx)
	}
}

func (t *Terminal) read() {
	defer close(t.lines)
	in := bufio.NewScanner(t.in)
	for in.Scan() {
		t.lines <- in.Text()
	}
}

// Busy says whether the user is being asked something.
func (t *Terminal) Busy() bool { return len(t.turn) > 0 }

// Approve asks whether a call may run.
func (t *Terminal) Approve(ctx context.Context, call ToolCall) Decision {
	if t.approve(ctx, fmt.Sprintf("call %s %s\nrun it?", call.Name, call.Arguments)) {
		return Decision{}
	}
	return Decision{Refuse, "the user said no"}
}

// ApproveSample asks whether a server may use the model, and shows what for.
func (t *Terminal) ApproveSample(ctx context.Context, r *SampleRequest) bool {
	text := "the server asks the model:"
	if r.SystemPrompt != "" {
		text += "\n  system: " + indent(r.SystemPrompt)
	}
	for _, m := range r.Messages {
		for _, block := range m.Content {
			text += "\n  " + indent(m.Role+": "+cmp.Or(block.Text, "["+block.Type+"]"))
		}
	}
	return t.approve(ctx, text+"\nlet it?")
}

// approve asks a question that only a clear yes allows.
func (t *Terminal) approve(ctx context.Context, question string) bool {
	unlock, err := t.lock(ctx)
	if err != nil {
		return false
	}
	defer unlock()
	line, err := t.ask(ctx, question+" [y/n] ")
	return err == nil && isYes(line)
}

// Elicit asks the user what a server wants to know, field by field. A URL is shown, never opened.
func (t *Terminal) Elicit(ctx context.Context, r *ElicitRequest) (*ElicitResult, error) {
	unlock, err := t.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	content, err := t.fill(ctx, r)
	var none noAnswer
	switch {
	case errors.As(err, &none):
		return &ElicitResult{Action: string(none)}, nil
	case err != nil:
		return nil, err
	}
	return &ElicitResult{Action: "accept", Content: content}, nil
}

// fill has the user fill in a form, and change it until it can be sent (MCP 2026-07-28, client, elicitation: they must be
// able to). What needs no filling in is a question of yes or no.
func (t *Terminal) fill(ctx context.Context, r *ElicitRequest) (content map[string]any, err error) {
	question := "the server asks: " + indent(r.Message)
	if r.Mode == "url" {
		// In ASCII, so that no letter of another script passes for one of the domain.
		return nil, t.confirm(ctx, fmt.Sprintf("%s\nopen this in a browser, if you trust it: %+q\nwill you?", question, r.URL))
	}
	fields, err := r.Form()
	if err != nil {
		return nil, err
	}
	content = make(map[string]any)
	if len(fields) == 0 {
		return content, t.confirm(ctx, question+"\nyes?")
	}
	fmt.Fprintln(t.out, visible(question)+"\n(an empty line takes what is in brackets; !no declines, !stop breaks off)")
	for {
		for i := range fields {
			f := &fields[i]
			if f.Default, err = t.field(ctx, f); err != nil {
				return nil, err
			}
			if f.Default != nil {
				content[f.Name] = f.Default
			}
		}
		line, err := t.answer(ctx, "send it (y) or change it (n)? ")
		if err != nil || isYes(line) {
			return content, err
		}
	}
}

// field asks for one field until the value fits; nil is none.
func (t *Terminal) field(ctx context.Context, f *Field) (any, error) {
	for {
		line, err := t.answer(ctx, label(f))
		if err != nil {
			return nil, err
		}
		value, err := f.Parse(line)
		var bad *FormError
		if !errors.As(err, &bad) {
			return value, err
		}
		fmt.Fprintln(t.out, "it "+visible(bad.Reason)) // the user knows the field by its title
	}
}

func (t *Terminal) confirm(ctx context.Context, question string) error {
	line, err := t.answer(ctx, question+" [y/n] ")
	if err == nil && !isYes(line) {
		err = noAnswer("decline")
	}
	return err
}

// noAnswer is the action of an ElicitResult without an answer.
type noAnswer string

func (n noAnswer) Error() string { return string(n) }

// answer is ask for a server, which the user need not answer.
func (t *Terminal) answer(ctx context.Context, question string) (string, error) {
	line, err := t.ask(ctx, question)
	switch line = strings.TrimSpace(line); {
	case err == io.EOF || line == "!stop":
		err = noAnswer("cancel")
	case line == "!no":
		err = noAnswer("decline")
	}
	return line, err
}

// label is a field as it is asked for.
func label(f *Field) string {
	text := indent(cmp.Or(f.Title, f.Name))
	if f.Description != "" {
		text += " (" + indent(f.Description) + ")"
	}
	for i, option := range f.Options {
		text += fmt.Sprintf("\n  %d %s", i+1, indent(cmp.Or(option.Title, option.Value)))
	}
	switch {
	case f.Many:
		text += "\nany of these, with commas"
	case len(f.Options) > 0:
		text += "\none of these"
	case f.Type == "boolean":
		text += ", y/n"
	}
	if f.Default != nil {
		text += " [" + indent(shown(f, f.Default)) + "]"
	} else if !f.Required {
		text += " [none]"
	}
	return text + ": "
}

// shown is a value of a field as the user would enter it.
func shown(f *Field, value any) string {
	switch value := value.(type) {
	case bool:
		if value {
			return "y"
		}
		return "n"
	case string:
		for _, option := range f.Options {
			if option.Value == value {
				return cmp.Or(option.Title, value)
			}
		}
	case []string:
		var texts []string
		for _, v := range value {
			texts = append(texts, shown(f, v))
		}
		return cmp.Or(strings.Join(texts, ", "), "none")
	}
	return fmt.Sprint(value)
}

func isYes(line string) bool {
	line = strings.ToLower(strings.TrimSpace(line))
	return line == "y" || line == "yes"
}

// indent keeps what a server says from looking like a question of this program.
func indent(text string) string { return strings.ReplaceAll(text, "\n", "\n    ") }

// lock waits for the user to be free, and returns what frees them.
func (t *Terminal) lock(ctx context.Context) (unlock func(), err error) {
	select {
	case t.turn <- struct{}{}:
		return func() { <-t.turn }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// visible is text as a terminal may show it: with U+FFFD for each character that would steer it, but for line breaks and
// tabs.
func visible(text string) string {
	return strings.Map(func(r rune) rune {
		if steers(r) && r != '\n' && r != '\t' {
			return '\uFFFD'
		}
		return r
	}, strings.ReplaceAll(text, "\r\n", "\n"))
}

// isTerminal says whether somebody sits at the file. The null device is a character device too.
func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	null, err := os.Stat(os.DevNull)
	return err != nil || !os.SameFile(info, null)
}
