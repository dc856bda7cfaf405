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
	hint := "(" + Plural(len(fields), "question") +
		"; an empty line takes what is in brackets; !no declines, !stop breaks off)"
	about = append(about, Paragraph{Text: hint})
	// What was entered is the default of its field when the form is changed.
	for {
		for i := range fields {
			f := &fields[i]
			f.Default, err = t.askField(ctx, about, f, false)
			if err != nil {
				return nil, err
			}
			if f.Default != nil {
				content[f.Name] = f.Default
			}
			about = nil
		}
		line, err := t.Ask(ctx, Question{Text: "send it (y) or change it (n)?"})
		if err != nil {
			return nil, err
		}
		if isYes(line) {
			return content, nil
		}
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

// askField asks for one field until the value is valid; nil is none. about stands above it, at the
// first try. The error is that of Prompter.Ask.
func (t *Terminal) askField(
	ctx context.Context, about []Paragraph, f *Field, hidden bool,
) (any, error) {
	for {
		about = append(about, Paragraph{Look{Frame: LineMark}, label(f)})
		line, err := t.Ask(ctx, Question{About: about, Hidden: hidden})
		if err != nil {
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
