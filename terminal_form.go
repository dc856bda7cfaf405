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

// Elicit asks the user what a server wants to know, field by field. A URL is shown, never opened. who
// is the server, as in "the server asks".
func (t *Terminal) Elicit(ctx context.Context, who string, r *ElicitRequest) (*ElicitResult, error) {
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

// fill has the user fill in a form, and change it until it can be sent (MCP 2026-07-28, client,
// elicitation). A form without fields is a question of yes or no.
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
	for {
		for i := range fields {
			f := &fields[i]
			if f.Default, err = t.askField(ctx, about, f, false); err != nil {
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
	u, _ := url.Parse(text) // it is valid
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

// askField asks for one field until the value is valid; nil is none. about stands above it.
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
		t.screen.Tell(Look{}, "it "+bad.Reason) // the user knows the field by its title
		about = nil
	}
}

// label is the question for a field. Its default is shown as the user would type it.
func label(f *Field) string {
	text := cmp.Or(f.Title, f.Name)
	if f.Description != "" {
		text += " (" + f.Description + ")"
	}
	typed := make(map[string]string) // for a value
	for i, option := range f.Options {
		typed[option.Value] = cmp.Or(option.Title, option.Value)
		text += fmt.Sprintf("\n  %d %s", i+1, typed[option.Value])
	}
	switch {
	case f.Many:
		text += "\nany of these, with commas"
	case len(f.Options) > 0:
		text += "\none of these"
	case f.Type == "boolean":
		text += ", y/n"
		typed["true"], typed["false"] = "y", "n"
	}
	if f.Default == nil && f.Required {
		return text + ":"
	}
	values, many := f.Default.([]string)
	if !many && f.Default != nil {
		values = []string{fmt.Sprint(f.Default)}
	}
	var preset []string
	for _, value := range values {
		preset = append(preset, cmp.Or(typed[value], value))
	}
	return text + " [" + cmp.Or(strings.Join(preset, ", "), "none") + "]:"
}
