// elicitation.go - the form of a server's question to the user.
// Needs: Go 1.25, json.go, mcp_types.go.
// SPDX-License-Identifier: 0BSD

package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/mail"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// maxFields bounds a form: nobody fills in a longer one.
const maxFields = 100

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

// Field is one field of a form (schema: PrimitiveSchemaDefinition). Its value is a string, a number (int64 or float64), a bool,
// or, of one with Many, a []string.
type Field struct {
	Name        string // of the value in ElicitResult.Content
	Type        string // string, number, integer or boolean
	Title       string // like Description for the user, and may be empty
	Description string
	Format      string // of a string: email, uri, date or date-time, which are checked; or anything else
	Required    bool
	Default     any      // nil if there is none. Need not fit: it is the server's
	Min, Max    *float64 // of a number, of a string's length in characters, or of how many options are chosen; nil: no bound
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

// Valid says whether the request can be put to a user: with a form that Form takes, or with a URL.
func (r *ElicitRequest) Valid() error {
	if r.Mode != "url" {
		_, err := r.Form()
		return err
	}
	if !hasFormat(r.URL, "uri") {
		return &FormError{Reason: "has no valid URL"}
	}
	return nil
}

// Form returns the fields to be filled in, in the server's order (MCP 2026-07-28, client, elicitation, requested schema).
// A schema that is not a flat object of strings, numbers, booleans and choices is a *FormError. What else a schema
// says, a pattern for one, the protocol leaves to the server.
func (r *ElicitRequest) Form() ([]Field, error) {
	if r.Mode != "" && r.Mode != "form" {
		return nil, &FormError{Reason: fmt.Sprintf("is none: the mode is %q", r.Mode)}
	}
	var kind string
	var fields []Field
	var required []string
	var bad error // the first
	s := scanner{text: r.RequestedSchema}
	s.object(func(key []byte) {
		switch string(key) {
		case "type":
			kind = s.string()
		case "required":
			s.array(func() { required = append(required, s.string()) })
		case "properties":
			s.object(func(key []byte) { // a map would forget the order
				name, raw := unquote(key, plainText), s.value() // with invalid UTF-8 mended, as in every other string
				if bad != nil || !s.ok() {
					return
				}
				var f Field
				if f, bad = newField(name, raw); fieldNamed(fields, name) != nil {
					bad = &FormError{name, "is there twice"}
				}
				if fields = append(fields, f); len(fields) > maxFields {
					bad = &FormError{Reason: fmt.Sprintf("has more than %d fields", maxFields)}
				}
			})
		default:
			s.value()
		}
	})
	if bad == nil && (!s.end() || kind != "object") {
		bad = &FormError{Reason: "has a schema that is not one of an object"}
	}
	for _, name := range required {
		if f := fieldNamed(fields, name); f != nil {
			f.Required = true
		} else if bad == nil {
			bad = &FormError{name, "is required, but is not there"}
		}
	}
	if bad != nil {
		return nil, bad
	}
	return fields, nil
}

// Defaults is the content of a form that the user has left as it was: never nil, and empty if it is no valid form.
func (r *ElicitRequest) Defaults() map[string]any {
	content := make(map[string]any)
	fields, _ := r.Form()
	for _, f := range fields {
		if f.Default != nil {
			content[f.Name] = f.Default
		}
	}
	return content
}

// Check says whether content can be sent as that of an accepted request: with every required field, with none that
// the server did not ask for, and with values that fit. Where a URL was to be opened there is none; of a form there is always
// one, if only {}: there are servers to which none is a failure. The error, a *FormError, quotes no value.
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
	for _, name := range slices.Sorted(maps.Keys(content)) {
		if fieldNamed(fields, name) == nil {
			return &FormError{name, "was not asked for"}
		}
	}
	return nil
}

// Parse makes a value that fits of what a user has typed. Nothing typed means the default; without one, a field
// that is not required has no value: nil, which is to be left out of the content. An option is chosen by its value, its title or its
// number, counted from 1; several with commas between them.
func (f *Field) Parse(text string) (v any, err error) {
	text = strings.TrimSpace(text)
	switch {
	case text != "":
		v, err = f.read(text)
	case f.Default != nil:
		v = f.Default
	case !f.Required:
		return nil, nil
	case f.Many:
		v = []string{} // whether that is enough is for Check to say
	default:
		err = &FormError{f.Name, "is required"}
	}
	if err == nil {
		err = f.Check(v)
	}
	if err != nil {
		return nil, err
	}
	return v, nil
}

// Check says whether a value fits. It also takes what encoding/json makes of one. The error is a *FormError.
func (f *Field) Check(v any) error {
	if reason := f.mismatch(v); reason != "" {
		return &FormError{f.Name, reason}
	}
	return nil
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

// options are what a string has to be one of, in each of the forms that the revisions have for it; nil if there are none.
// ok is false if they are of yet another form.
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

// decode reads a value from JSON.
func (f *Field) decode(raw json.RawMessage) (any, error) {
	switch {
	case f.Many:
		return decodeAs[[]string](raw)
	case f.Type == "string":
		return decodeAs[string](raw)
	case f.Type == "boolean":
		return decodeAs[bool](raw)
	}
	return parseNumber(string(raw))
}

func decodeAs[T any](raw json.RawMessage) (any, error) {
	var v T
	err := json.Unmarshal(raw, &v)
	return v, err
}

// read makes a value of a text that is not empty.
func (f *Field) read(text string) (any, error) {
	switch {
	case f.Many:
		list := []string{}
		parts := strings.Split(text, ",")
		if _, ok := f.option(text); ok { // a title with a comma in it
			parts = []string{text}
		}
		for _, part := range parts {
			part = strings.TrimSpace(part)
			value, ok := f.option(part)
			if !ok && part != "" {
				return nil, &FormError{f.Name, fmt.Sprintf("has no option %q", part)}
			}
			if ok && !slices.Contains(list, value) {
				list = append(list, value)
			}
		}
		return list, nil
	case f.Options != nil:
		if value, ok := f.option(text); ok {
			return value, nil
		}
	case f.Type == "boolean":
		switch strings.ToLower(text) {
		case "true", "t", "yes", "y", "on", "1", "ja", "j":
			return true, nil
		case "false", "f", "no", "n", "off", "0", "nein":
			return false, nil
		}
	case f.Type != "string":
		if n, err := parseNumber(text); err == nil {
			return n, nil
		}
	}
	return text, nil // if it is not one, Check says what is wanted
}

// option finds the option that a user means. A value or a title goes before its number: options can be numbers themselves.
func (f *Field) option(text string) (value string, ok bool) {
	for _, means := range []func(Option) bool{
		func(o Option) bool { return o.Value == text },
		func(o Option) bool { return strings.EqualFold(o.Value, text) || strings.EqualFold(o.Title, text) },
	} {
		if i := slices.IndexFunc(f.Options, means); i >= 0 {
			return f.Options[i].Value, true
		}
	}
	if n, err := strconv.Atoi(text); err == nil && 1 <= n && n <= len(f.Options) {
		return f.Options[n-1].Value, true
	}
	return "", false
}

// mismatch says why a value does not fit; empty if it does.
func (f *Field) mismatch(v any) string {
	switch {
	case f.Many:
		list, ok := v.([]any)
		if texts, are := v.([]string); are {
			ok = true
			for _, text := range texts {
				list = append(list, text)
			}
		}
		if !ok || slices.ContainsFunc(list, func(v any) bool { return !f.offers(v) }) {
			return "must be a list of options"
		}
		return f.outside(float64(len(list)), " options")
	case f.Options != nil:
		if !f.offers(v) {
			return "must be one of the options"
		}
		return ""
	case f.Type == "string":
		text, ok := v.(string)
		if !ok {
			return "must be a text"
		}
		if !hasFormat(text, f.Format) {
			return "must be of the form " + f.Format
		}
		return f.outside(float64(utf8.RuneCountInString(text)), " characters")
	case f.Type == "boolean":
		if _, ok := v.(bool); !ok {
			return "must be yes or no"
		}
		return ""
	}
	n := math.NaN()
	switch v := v.(type) {
	case int:
		n = float64(v)
	case int64:
		n = float64(v)
	case float64:
		n = v
	}
	switch {
	case math.IsNaN(n) || math.IsInf(n, 0): // JSON has neither
		return "must be a number"
	case f.Type == "integer" && n != math.Trunc(n):
		return "must be a whole number"
	}
	return f.outside(n, "")
}

func (f *Field) offers(v any) bool {
	return slices.ContainsFunc(f.Options, func(o Option) bool { return v == o.Value })
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

// parseNumber keeps a whole number exact where 64 bits hold it.
func parseNumber(text string) (any, error) {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n, nil
	}
	return strconv.ParseFloat(text, 64)
}

func fieldNamed(fields []Field, name string) *Field {
	if i := slices.IndexFunc(fields, func(f Field) bool { return f.Name == name }); i >= 0 {
		return &fields[i]
	}
	return nil
}
