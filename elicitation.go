// elicitation.go - the form of a server's question to the user.
// Needs: Go 1.25, json, rpc, mcp.
// SPDX-License-Identifier: 0BSD

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"net/mail"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// The bounds of a form: nobody fills in a longer one.
const (
	maxFields = 100
	maxForm   = 64 << 10 // bytes of its schema, with all titles and options
)

// FormError says what is wrong with a form, or with what was filled in.
type FormError struct {
	Field  string // its name; empty if it is the form as a whole
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
	RequestedSchema json.RawMessage `json:"requestedSchema,omitempty"` // of a form: a flat object; see Form
	URL             string          `json:"url,omitempty"`             // opened by the user, never by the program itself
	ElicitationID   string          `json:"elicitationId,omitempty"`   // of a URL, in 2025-11-25
}

// ElicitResult is the user's answer.
type ElicitResult struct {
	Action  string         `json:"action"`           // accept, decline or cancel
	Content map[string]any `json:"content,omitzero"` // of an accepted form: strings, numbers, booleans, []string
}

// ElicitAnswer returns the answer to elicitation/create, for ClientOptions.Answers: ask puts the question to the user.
// It is not asked what cannot be answered, and an accepted answer that does not fit the form is an error
// (ElicitRequest.Check).
func ElicitAnswer(ask func(ctx context.Context, r *ElicitRequest) (*ElicitResult, error)) Responder {
	return Responder{
		Capability: "elicitation",
		Declare:    map[string]any{"form": struct{}{}, "url": struct{}{}},
		Reply: func(ctx context.Context, params json.RawMessage) (any, error) {
			r := new(ElicitRequest)
			err := json.Unmarshal(params, r)
			if err == nil {
				err = r.Valid()
			}
			if err != nil {
				return nil, &Error{Code: CodeInvalidParams, Message: err.Error()}
			}
			answer, err := ask(ctx, r)
			if err == nil && answer != nil && answer.Action == "accept" {
				err = r.Check(answer.Content)
			}
			return answer, err
		},
	}
}

// Field is one field of a form (schema: PrimitiveSchemaDefinition). Its value is a string, a number (int64 or
// float64), a bool, or, of one with Many, a []string.
type Field struct {
	Name        string // of the value in ElicitResult.Content
	Type        string // string, number, integer or boolean
	Title       string // like Description for the user, and may be empty
	Description string
	Format      string // of a string: email, uri, date or date-time, which are checked; or anything else
	Required    bool
	Default     any      // nil if there is none. Need not fit: it is the server's
	Min, Max    *float64 // of a number, a string's length in characters, or the count of options; nil: no bound
	Options     []Option // what a string has to be one of; nil if any will do
	Many        bool     // any number of the options is chosen
}

// Option is one of the values to choose from.
type Option struct {
	Value string
	Title string // for the user; the value if the server gives no other
}

// fieldSchema is all that the schema of a field can hold, of any type and revision.
type fieldSchema struct {
	Type, Title, Description, Format string
	MinLength, MaxLength             *float64
	MinItems, MaxItems               *float64
	Minimum, Maximum                 *float64
	Default                          json.RawMessage
	Enum, EnumNames                  []string
	Const                            *string       // of an option
	OneOf, AnyOf                     []fieldSchema // the options; but see newField
	Items                            *fieldSchema
}

// Valid says whether the request can be put to a user: with a form that Form takes, or with a URL that is safe to
// open: https, or http to this machine, and without a user's name, which can look like a host.
func (r *ElicitRequest) Valid() error {
	if r.Mode != "url" {
		_, err := r.Form()
		return err
	}
	u, err := url.Parse(r.URL)
	switch {
	case err != nil || !u.IsAbs():
		return &FormError{Reason: "has no valid URL"}
	case u.Scheme != "https" && (u.Scheme != "http" || !thisMachine(u.Hostname())), u.Hostname() == "":
		return &FormError{Reason: "has a URL that is not https, or http to this machine"}
	case u.User != nil:
		return &FormError{Reason: "has a URL with a user name or a password before its host"}
	}
	return nil
}

// thisMachine reports whether a host is this machine by its name alone. RFC 6761 keeps localhost for that.
func thisMachine(host string) bool {
	return strings.EqualFold(host, "localhost") || net.ParseIP(host).IsLoopback()
}

// Form returns the fields to be filled in, in the server's order (MCP 2026-07-28, client, elicitation, requested
// schema). A schema that is not a flat object of strings, numbers, booleans and choices is a *FormError. What else a
// schema says, a pattern for one, the protocol leaves to the server.
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

// fieldList has the fields of a form in the order of its properties, which a map would forget.
type fieldList []Field

func (l *fieldList) UnmarshalJSON(properties []byte) (err error) {
	s := scanner{text: properties}
	s.object(func(key []byte) {
		name, schema := string([]rune(string(key))), s.value() // with invalid UTF-8 mended, as in every other string
		if err == nil && len(*l) == maxFields {
			err = &FormError{Reason: fmt.Sprintf("has more than %d fields", maxFields)}
		}
		if err == nil {
			var f Field
			f, err = newField(name, schema)
			*l = append(*l, f)
		}
	})
	if err == nil && !s.end() {
		err = errors.New("not an object")
	}
	return err
}

// Check says whether content can be sent as that of an accepted request: with every required field, with none that the
// server did not ask for, and with values that fit. Where a URL was to be opened there is none; of a form there is
// always one, if only {}: there are servers to which none is a failure. The error, a *FormError, quotes no value.
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
		v, ok := content[f.Name]
		switch {
		case ok:
			if err := f.Check(v); err != nil {
				return err
			}
		case f.Required:
			return &FormError{f.Name, "is required"}
		}
	}
	for name := range content {
		if fieldNamed(fields, name) == nil {
			return &FormError{name, "was not asked for"}
		}
	}
	return nil
}

// Parse makes a value that fits of what a user has typed. Nothing typed means the default; without one, a field that
// is not required has no value: nil, which is to be left out of the content. An option is chosen by its value, its
// title or its number, counted from 1; several with commas between them.
func (f *Field) Parse(text string) (any, error) {
	text = strings.TrimSpace(text)
	var v any = json.RawMessage(strings.ToLower(text)) // a number, or true or false
	switch {
	case text == "" && f.Default != nil:
		v = f.Default
	case text == "" && !f.Required:
		return nil, nil
	case text == "" && !f.Many: // no option may be enough: Check says so
		return nil, &FormError{f.Name, "is required"}
	case f.Many:
		list := []string{}
		for _, part := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' }) {
			if value := f.option(strings.TrimSpace(part)); !slices.Contains(list, value) {
				list = append(list, value)
			}
		}
		v = list
	case f.Type == "string":
		v = f.option(text)
	case f.Type == "boolean":
		if i := slices.Index([]string{"n", "y", "no", "yes"}, strings.ToLower(text)); i >= 0 {
			v = i%2 == 1
		}
	}
	return f.fit(v)
}

// option returns the value of the option that a user means, or else the text. Options can be numbers themselves, so a
// value goes before a number.
func (f *Field) option(text string) string {
	for _, o := range f.Options {
		if o.Value == text || strings.EqualFold(o.Title, text) {
			return o.Value
		}
	}
	if n, err := strconv.Atoi(text); err == nil && 1 <= n && n <= len(f.Options) {
		return f.Options[n-1].Value
	}
	return text
}

// Check says whether a value fits: it is judged by its JSON. The error is a *FormError.
func (f *Field) Check(v any) error {
	_, err := f.fit(v)
	return err
}

// fit returns a value in the type of the field's values, or why it does not fit.
func (f *Field) fit(v any) (any, error) {
	raw, _ := json.Marshal(v) // without a text, as of NaN, it is of no type
	v, err := f.decode(raw)
	if err != nil {
		return nil, err
	}
	reason := ""
	switch v := v.(type) {
	case []string:
		if slices.ContainsFunc(v, f.lacks) {
			reason = "must be a list of options"
		} else {
			reason = f.outside(float64(len(v)), " options")
		}
	case string:
		switch {
		case f.Options != nil && f.lacks(v):
			reason = "must be one of the options"
		case !hasFormat(v, f.Format):
			reason = "must be of the form " + f.Format
		default:
			reason = f.outside(float64(utf8.RuneCountInString(v)), " characters")
		}
	case int64:
		reason = f.outside(float64(v), "")
	case float64:
		if reason = f.outside(v, ""); f.Type == "integer" && v != math.Trunc(v) {
			reason = "must be a whole number"
		}
	}
	if reason != "" {
		return nil, &FormError{f.Name, reason}
	}
	return v, nil
}

// decode reads a value of the field's type from JSON. A whole number stays exact where 64 bits hold it.
func (f *Field) decode(raw []byte) (any, error) {
	switch {
	case f.Many:
		return decodeAs[[]string](f, raw, "must be a list of options")
	case f.Type == "string":
		return decodeAs[string](f, raw, "must be a text")
	case f.Type == "boolean":
		return decodeAs[bool](f, raw, "must be yes or no")
	}
	if n, err := decodeAs[int64](f, raw, ""); err == nil {
		return n, nil
	}
	return decodeAs[float64](f, raw, "must be a number")
}

func decodeAs[T any](f *Field, raw []byte, reason string) (any, error) {
	var v *T
	if err := json.Unmarshal(raw, &v); err != nil || v == nil {
		return nil, &FormError{f.Name, reason}
	}
	return *v, nil
}

// newField reads the schema of a field.
func newField(name string, raw json.RawMessage) (Field, error) {
	var s fieldSchema
	if err := json.Unmarshal(raw, &s); err != nil {
		return Field{}, &FormError{name, "has a schema that no field of a form has: " + err.Error()}
	}
	for i := range s.AnyOf { // T or null, of older Python servers: no other way to say that T is optional
		if len(s.AnyOf) == 2 && s.AnyOf[i].Type == "null" {
			outer := s
			s = outer.AnyOf[1-i]
			s.Title, s.Description = cmp.Or(outer.Title, s.Title), cmp.Or(outer.Description, s.Description)
			s.Default = outer.Default
			break
		}
	}
	f := Field{Name: name, Type: s.Type, Title: s.Title, Description: s.Description, Format: s.Format}
	ok := true
	switch {
	case s.Type == "string":
		f.Min, f.Max = s.MinLength, s.MaxLength
		f.Options, ok = s.options()
	case s.Type == "number" || s.Type == "integer":
		f.Min, f.Max = s.Minimum, s.Maximum
	case s.Type == "array" && s.Items != nil:
		f.Type, f.Many, f.Min, f.Max = "string", true, s.MinItems, s.MaxItems
		f.Options, ok = s.Items.options()
		ok = ok && f.Options != nil
	default:
		ok = s.Type == "boolean"
	}
	if !ok {
		return Field{}, &FormError{name, "is not a string, a number, a boolean or a choice of strings"}
	}
	if len(s.Default) > 0 && string(s.Default) != "null" {
		var err error
		if f.Default, err = f.decode(s.Default); err != nil {
			return Field{}, &FormError{name, "has a default of another type"}
		}
	}
	return f, nil
}

// options are what a string has to be one of, in each of the forms that the revisions have for it; nil if there are
// none. ok is false if they are of yet another form.
func (s *fieldSchema) options() (options []Option, ok bool) {
	for i, value := range s.Enum {
		options = append(options, Option{value, value})
		if i < len(s.EnumNames) { // 2025-06-18
			options[i].Title = cmp.Or(s.EnumNames[i], value)
		}
	}
	for _, o := range slices.Concat(s.OneOf, s.AnyOf) {
		if o.Const == nil {
			return nil, false
		}
		options = append(options, Option{*o.Const, cmp.Or(o.Title, *o.Const)})
	}
	return options, true
}

func (f *Field) lacks(value string) bool {
	return !slices.ContainsFunc(f.Options, func(o Option) bool { return o.Value == value })
}

func (f *Field) outside(n float64, unit string) string {
	switch {
	case f.Min != nil && n < *f.Min:
		return "must be at least " + strconv.FormatFloat(*f.Min, 'f', -1, 64) + unit
	case f.Max != nil && n > *f.Max:
		return "must be at most " + strconv.FormatFloat(*f.Max, 'f', -1, 64) + unit
	}
	return ""
}

// hasFormat checks the formats that the protocol has; JSON Schema lets one that is not known pass.
func hasFormat(text, format string) bool {
	var err error
	switch format {
	case "email":
		address, err := mail.ParseAddress(text)
		return err == nil && address.Address == text // without the name that may stand before it
	case "uri":
		u, err := url.Parse(text)
		return err == nil && u.IsAbs()
	case "date":
		_, err = time.Parse(time.DateOnly, text)
	case "date-time":
		_, err = time.Parse(time.RFC3339, text)
	}
	return err == nil
}

func fieldNamed(fields []Field, name string) *Field {
	if i := slices.IndexFunc(fields, func(f Field) bool { return f.Name == name }); i >= 0 {
		return &fields[i]
	}
	return nil
}
