// terminal_form.go - a server's form, filled in field by field.
// SPDX-License-Identifier: 0BSD

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// Elicit asks the user what a server wants to know, field by field. A URL is shown, never opened.
// who is the server, as in "the server asks".
func (t *Terminal) Elicit(
	ctx context.Context, who string, r *ElicitRequest,
) (*ElicitResult, error) {
	ctx, release := t.Take(ctx)
	defer release()
	content, err := t.fill(ctx, who, r)
	switch err {
	case nil:
		return &ElicitResult{Action: "accept", Content: content}, nil
	case ErrDeclined:
		return &ElicitResult{Action: "decline"}, nil
	case io.EOF, ErrCancelled:
		return &ElicitResult{Action: "cancel"}, nil
	}
	return nil, err
}

// fill asks a server's question, of whatever form, and returns what goes back. It has the user fill
// in a form, and change it until it can be sent (MCP 2026-07-28, client, elicitation). A form
// without fields is a question of yes or no.
func (t *Terminal) fill(
	ctx context.Context, who string, r *ElicitRequest,
) (content map[string]any, err error) {
	t.separate(ctx)
	head := t.screen.Name(who, t.screen.Columns()-20) + " asks:"
	about := []Paragraph{{Look{Style: Bold}, head}, {Look{Frame: LineMark}, r.Message}}
	if r.Mode == "url" {
		return nil, t.confirm(ctx, append(about, address(r.URL)...), "will you open it?")
	}
	fields, err := r.Form()
	if err != nil {
		return nil, err
	}
	content = make(map[string]any)
	if len(fields) == 0 {
		return content, t.confirm(ctx, about, "yes?")
	}
	hint := "(" + Plural(len(fields), "question") + "; an empty line takes what is in brackets"
	if slices.ContainsFunc(fields, canBeEmptied) {
		hint += ", " + noValue + " leaves out what is optional"
	}
	about = append(about, Paragraph{Text: hint + "; !no declines, !stop breaks off)"})
	for i := range fields {
		err = t.askNumbered(ctx, about, fields, i)
		if err != nil {
			return nil, err
		}
		about = nil
	}
	err = t.review(ctx, fields)
	if err != nil {
		return nil, err
	}
	for _, f := range fields {
		if f.Default != nil {
			content[f.Name] = f.Default
		}
	}
	return content, nil
}

// noValue is what the user types where an empty line would take the value that is there, and a
// field need not have one.
const noValue = "!none"

// canBeEmptied reports whether a field has a value that it need not have.
func canBeEmptied(f Field) bool { return f.Default != nil && !f.Required }

// askNumbered asks for one field of a form, which says how many there are. What is entered becomes
// the field's default: it is in brackets when the field is changed.
func (t *Terminal) askNumbered(
	ctx context.Context, about []Paragraph, fields []Field, i int,
) (err error) {
	f := &fields[i]
	text := label(f)
	if len(fields) > 1 {
		text = fmt.Sprintf("(%d of %d) %s", i+1, len(fields), text)
	}
	f.Default, err = t.askField(ctx, about, text, f, false)
	return err
}

// review shows what a form sends, and has the user change fields until it may be sent. The error is
// that of Prompter.Ask.
//
// The names and the defaults are the server's. Each field is on a line of its own, with escapes for
// what would break the line, so that none can look like another field or its value.
func (t *Terminal) review(ctx context.Context, fields []Field) error {
	keys := fmt.Sprintf("Enter sends this, a number from 1 to %d changes it:", len(fields))
	if len(fields) == 1 {
		keys = "Enter sends this, 1 changes it:"
	}
	for {
		about := []Paragraph{{Look{Style: Bold}, "What is sent:"}}
		for i := range fields {
			f := &fields[i]
			value := cmp.Or(strings.Join(typedDefault(f), ", "), "(nothing)")
			line := fmt.Sprintf("%d  %s: %s", i+1, cmp.Or(f.Title, f.Name), value)
			about = append(about, Paragraph{Look{Frame: LineMark}, EscapeUnseen(line)})
		}
		changed, err := t.chooseField(ctx, about, keys, len(fields))
		if err != nil || changed == 0 {
			return err
		}
		about = nil
		if canBeEmptied(fields[changed-1]) {
			about = []Paragraph{{Text: "(an empty line keeps it, " + noValue + " empties it)"}}
		}
		err = t.askNumbered(ctx, about, fields, changed-1)
		if err != nil {
			return err
		}
	}
}

// chooseField returns the number of the field that is to be changed, from 1; 0 sends the form. An
// answer that is neither shows the keys again.
func (t *Terminal) chooseField(
	ctx context.Context, about []Paragraph, keys string, fields int,
) (int, error) {
	for {
		line, err := t.Ask(ctx, Question{About: about, Text: keys})
		if err != nil || line == "" || isYes(line) {
			return 0, err
		}
		number, err := strconv.Atoi(line)
		if err == nil && number >= 1 && number <= fields {
			return number, nil
		}
		about = nil
	}
}

// address shows a URL that is to be opened, its host apart and all in ASCII, so that no letter of
// another script passes for one of the domain.
func address(text string) []Paragraph {
	ascii := func(text string) string { return strings.Trim(strconv.QuoteToASCII(text), `"`) }
	// What is no URL was refused when the request was read.
	u, _ := url.Parse(text)
	host, about := ascii(u.Hostname()), "to be opened in a browser, if you trust it:"
	if host != u.Hostname() || strings.Contains("."+strings.ToLower(host), ".xn--") {
		about = "to be opened in a browser, where the host has letters other than a to z " +
			"and may look like another:"
	}
	return []Paragraph{
		{Text: about},
		{Look{Frame: "  host  "}, host},
		{Look{Frame: "  URL   "}, ascii(text)},
	}
}

// askField asks for one field, by a text, until the value is valid; nil is none. about stands above
// it, at the first try. The error is that of Prompter.Ask.
func (t *Terminal) askField(
	ctx context.Context, about []Paragraph, text string, f *Field, hidden bool,
) (any, error) {
	for {
		about = append(about, Paragraph{Look{Frame: LineMark}, text})
		line, err := t.Ask(ctx, Question{About: about, Hidden: hidden})
		if err != nil || line == noValue && !f.Required {
			return nil, err
		}
		value, err := f.Parse(line)
		var bad *FormError
		if !errors.As(err, &bad) {
			return value, err
		}
		// The user knows the field by its title, so the reason alone is shown.
		t.screen.Tell(Look{}, "it "+bad.Reason)
		about = nil
	}
}

// label is the question for a field. Its default is shown as the user would type it.
func label(f *Field) string {
	text := cmp.Or(f.Title, f.Name)
	if f.Description != "" {
		text += " (" + f.Description + ")"
	}
	for i, option := range f.Options {
		text += fmt.Sprintf("\n  %d %s", i+1, EscapeUnseen(cmp.Or(option.Title, option.Value)))
	}
	switch {
	case f.Many:
		text += "\nany of these, with commas"
	case len(f.Options) > 0:
		text += "\none of these"
	case f.Type == "boolean":
		text += ", y/n"
	}
	if f.Default == nil && f.Required {
		return text + ":"
	}
	return text + " [" + cmp.Or(strings.Join(typedDefault(f), ", "), "none") + "]:"
}

// typedDefault returns the values of a field's default, each as the user would type it: a choice by
// its title, and yes and no by their letters.
func typedDefault(f *Field) (typed []string) {
	values, isMany := f.Default.([]string)
	if !isMany && f.Default != nil {
		values = []string{fmt.Sprint(f.Default)}
	}
	names := make(map[string]string)
	for _, option := range f.Options {
		names[option.Value] = option.Title
	}
	if f.Type == "boolean" {
		names["true"], names["false"] = "y", "n"
	}
	for _, value := range values {
		typed = append(typed, cmp.Or(names[value], value))
	}
	return typed
}
