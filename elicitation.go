// elicitation.go - a server's question to the user: a form to fill in, or a URL to open.
// Needs: Go 1.25, json, rpc, mcp.
// SPDX-License-Identifier: 0BSD

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
)

// In the midst of a call a server may lack something that only the user can say (MCP 2025-11-25,
// client, elicitation). In the mode form it sends a JSON Schema. The protocol allows only a flat
// object of simple values, so that every client can show it, a terminal as well as a window. In
// the mode url the user opens a page in a browser, so that a password does not pass through the
// client. Either way the user may accept, decline, or cancel.

// The bounds of a form: nobody fills in a longer one.
const (
	maxFields = 100
	maxForm   = 64 << 10 // bytes of its schema, with all titles and options
)

// FormError reports a mistake of a form, or of the values that were filled in.
type FormError struct {
	Field  string // the name of the field; empty if the form as a whole is wrong
	Reason string
}

func (e *FormError) Error() string {
	if e.Field == "" {
		return "the form " + e.Reason
	}
	return fmt.Sprintf("the field %q %s", e.Field, e.Reason)
}

// ElicitRequest is a server's question to the user.
type ElicitRequest struct {
	Mode            string          `json:"mode,omitempty"` // form (or empty), or url
	Message         string          `json:"message"`
	RequestedSchema json.RawMessage `json:"requestedSchema,omitempty"` // of a form; see Form
	URL             string          `json:"url,omitempty"`             // only the user opens it
	ElicitationID   string          `json:"elicitationId,omitempty"`   // of a URL, in 2025-11-25
}

// ElicitResult is the user's answer.
type ElicitResult struct {
	Action string `json:"action"` // accept, decline or cancel

	// Content has the values of an accepted form: strings, numbers, booleans, []string.
	Content map[string]any `json:"content,omitzero"`
}

// ElicitAnswer returns the Responder to elicitation/create, for ClientOptions.Answers. ask puts the
// question to the user. A question that nobody can answer is refused without ask. If the user
// accepts, and the content does not fit the form, the reply is an error (ElicitRequest.Check).
func ElicitAnswer(
	ask func(ctx context.Context, r *ElicitRequest) (*ElicitResult, error),
) Responder {
	reply := func(ctx context.Context, params json.RawMessage) (any, error) {
		r := new(ElicitRequest)
		err := decodeJSON("params", params, r)
		if err == nil {
			err = r.Valid()
		}
		if err != nil {
			return nil, &Error{Code: CodeInvalidParams, Message: err.Error()}
		}
		result, err := ask(ctx, r)
		if err == nil && result != nil && result.Action == "accept" {
			err = r.Check(result.Content)
		}
		if err != nil {
			return nil, err
		}
		return result, nil
	}
	return Responder{
		Capability: "elicitation",
		Declare:    map[string]any{"form": struct{}{}, "url": struct{}{}},
		Reply:      reply,
	}
}

// Valid returns nil if the request can be put to a user: with a form that Form takes, or with a URL
// that is safe to open. A safe URL is https, or http to this machine. It has no user name, which
// can look like a host: https://bank.example@evil.example.
func (r *ElicitRequest) Valid() error {
	if r.Mode != "url" {
		_, err := r.Form()
		return err
	}
	u, err := url.Parse(r.URL)
	if err != nil || !u.IsAbs() {
		return &FormError{Reason: "has no valid URL"}
	}
	safe := u.Scheme == "https" || u.Scheme == "http" && isThisMachine(u.Hostname())
	switch {
	case !safe || u.Hostname() == "":
		return &FormError{Reason: "has a URL that is not https, or http to this machine"}
	case u.User != nil:
		return &FormError{Reason: "has a URL with a user name or a password before its host"}
	}
	return nil
}

// isThisMachine reports whether the name of a host alone says that it is this machine. RFC 6761
// keeps the name localhost for this. Host names are the same in capital letters.
func isThisMachine(host string) bool {
	return strings.EqualFold(host, "localhost") || net.ParseIP(host).IsLoopback()
}

// Form returns the fields to be filled in, in the server's order (MCP 2026-07-28, client,
// elicitation, requested schema). A schema that is not a flat object of strings, numbers, booleans
// and choices is a *FormError. The protocol lets the server check all other rules of a schema, such
// as a pattern.
func (r *ElicitRequest) Form() ([]Field, error) {
	if r.Mode != "" && r.Mode != "form" {
		return nil, &FormError{Reason: fmt.Sprintf("cannot be shown: the mode is %q", r.Mode)}
	}
	if len(r.RequestedSchema) > maxForm {
		return nil, &FormError{Reason: fmt.Sprintf("is longer than %d KiB", maxForm>>10)}
	}
	var schema struct {
		Type       string
		Properties fieldList
		Required   []string
	}
	err := json.Unmarshal(r.RequestedSchema, &schema)
	if errors.As(err, new(*FormError)) {
		return nil, err
	}
	if err != nil || schema.Type != "object" {
		return nil, &FormError{Reason: "has a schema that is not one of an object"}
	}
	for _, name := range schema.Required {
		f := fieldNamed(schema.Properties, name)
		if f == nil {
			return nil, &FormError{name, "is required, but is not there"}
		}
		f.Required = true
	}
	return schema.Properties, nil
}

// fieldList has the fields of a form in the order of the schema's properties. A map would forget
// this order.
type fieldList []Field

func (l *fieldList) UnmarshalJSON(properties []byte) error {
	var mistake error
	s := scanner{text: properties}
	s.object(func(key []byte) {
		schema := s.value()
		if mistake != nil {
			return
		}
		if len(*l) == maxFields {
			mistake = &FormError{Reason: fmt.Sprintf("has more than %d fields", maxFields)}
			return
		}
		// The runes mend invalid UTF-8, as encoding/json does in every other string.
		f, err := newField(string([]rune(string(key))), schema)
		if err != nil {
			mistake = err
			return
		}
		*l = append(*l, f)
	})
	if mistake == nil && !s.end() {
		return errors.New("not an object")
	}
	return mistake
}

// Check returns nil if content can be sent as the content of an accepted request: it has every
// required field, only fields that the server asked for, and only values that fit. The reply to a
// URL has no content. The reply to a form always has content, if only {}, as some servers take a
// reply without content for a failure. The error, a *FormError, quotes no value.
func (r *ElicitRequest) Check(content map[string]any) error {
	if r.Mode == "url" {
		if content != nil {
			return &FormError{Reason: "takes no content: it is a URL"}
		}
		return nil
	}
	fields, err := r.Form()
	if err != nil {
		return err
	}
	if content == nil {
		return &FormError{Reason: "has no content"}
	}
	for _, f := range fields {
		value, ok := content[f.Name]
		if !ok && f.Required {
			return &FormError{f.Name, "is required"}
		}
		if ok {
			err = f.Check(value)
		}
		if err != nil {
			return err
		}
	}
	for name := range content {
		if fieldNamed(fields, name) == nil {
			return &FormError{name, "was not asked for"}
		}
	}
	return nil
}

// fieldNamed returns the field with that name, nil if there is none.
func fieldNamed(fields []Field, name string) *Field {
	i := slices.IndexFunc(fields, func(f Field) bool { return f.Name == name })
	if i < 0 {
		return nil
	}
	return &fields[i]
}
