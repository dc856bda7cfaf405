// terminal.go - what MCP and the agent ask a person.
// SPDX-License-Identifier: 0BSD

package main

import (
	"context"
	"os"
	"slices"
	"strings"
)

// Terminal asks the user what servers and the model want of them: whether a call may run, a form,
// yes or no. It asks with its Prompter, one question at a time. Make one with NewTerminal. All
// methods may be called from any goroutine.
type Terminal struct {
	*Prompter
	screen *Screen

	// always has the tools that the user has allowed for this run, with the version that they
	// allowed. Whoever has the turn may use it (see Prompter.Take).
	always map[ServerTool]string
}

// NewTerminal asks on the screen and reads the answers from in.
func NewTerminal(in *os.File, screen *Screen) *Terminal {
	return &Terminal{
		Prompter: NewPrompter(in, screen),
		screen:   screen,
		always:   make(map[ServerTool]string),
	}
}

// Input asks for a field, as Elicit does. Where the keys are read, what is typed is not shown if
// hidden.
func (t *Terminal) Input(ctx context.Context, f *Field, hidden bool) (any, error) {
	ctx, release := t.Take(ctx)
	defer release()
	return t.askField(ctx, nil, label(f), f, hidden)
}

// Confirm asks a question that only a clear yes allows, about a text. what, if not "", says who
// wants what, as in "the server asks the model".
func (t *Terminal) Confirm(ctx context.Context, what, text, question string) bool {
	about := []Paragraph{{Look{Frame: LineMark}, text}}
	if what != "" {
		head := t.screen.Name(what, t.screen.Columns()-1) + ":"
		about = slices.Insert(about, 0, Paragraph{Look{Style: Bold}, head})
	}
	ctx, release := t.Take(ctx)
	defer release()
	t.separate(ctx)
	return t.confirm(ctx, about, question) == nil
}

// separate begins a paragraph for a question, if somebody waits for the answer.
func (t *Terminal) separate(ctx context.Context) {
	if ctx.Err() == nil {
		t.screen.Separate("question")
	}
}

// confirm asks a question that only a clear yes allows, below all that it is about: else the error
// is ErrDeclined, or that of Prompter.Ask.
func (t *Terminal) confirm(ctx context.Context, about []Paragraph, question string) error {
	isNo := func(answer string) bool { return !isYes(answer) }
	line, err := t.Ask(ctx, Question{About: about, Text: question + " [y/n]", Early: isNo})
	if err == nil && !isYes(line) {
		return ErrDeclined
	}
	return err
}

func isYes(line string) bool {
	return strings.EqualFold(line, "y") || strings.EqualFold(line, "yes")
}
