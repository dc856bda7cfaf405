// elicitation_field.go - one field of a form: its schema, and the values that fit it.
// Needs: Go 1.25, json, rpc, mcp.
// SPDX-License-Identifier: 0BSD

package main

import (
	"cmp"
	"encoding/json"
	"math"
	"net/mail"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Field is one field of a form (schema: PrimitiveSchemaDefinition). Its value is a string, a number
// (int64 or float64) or a bool. With Many, its value is a []string.
type Field struct {
	Name        string // of the value in ElicitResult.Content
	Type        string // string, number, integer or boolean
	Title       string // like Description for the user, and may be empty
	Description string
	Format      string // of a string: email, uri, date and date-time are checked
	Required    bool
	Default     any // nil if there is none; the server's default need not fit

	// Min and Max are the bounds of a number, of the characters of a string, or of the count of
	// options that are chosen. Nil is no bound.
	Min, Max *float64

	Options []Option // (enum) a string has to be one of them; nil if any will do
	Many    bool     // any number of the options is chosen
}

// A value comes from a user or from a program. A user types a text, and Parse makes a value of it.
// A program fills in a value of any Go type, and Check judges it by its JSON, as the server will
// see it. Both call fit.

// Option is one of the values to choose from.
type Option struct {
	Value string
	Title string // for the user; the value if the server gives no title
}

// Parse makes a value of the text that a user has typed, and returns an error if the value does not
// fit. An empty text means the default. Without a default, a field that is not required has no
// value: Parse returns nil, and the field is to be left out of the content. An option is chosen by
// its value, its title or its number, counted from 1; several options are separated by commas.
func (f *Field) Parse(text string) (any, error) {
	text = strings.TrimSpace(text)
	if text == "" && f.Default != nil {
		return f.fit(f.Default)
	}
	if text == "" && !f.Required {
		return nil, nil
	}
	// With Many, an empty text is a list without options, which may be enough: fit decides.
	if text == "" && !f.Many {
		return nil, &FormError{f.Name, "is required"}
	}
	switch {
	case f.Many:
		return f.fit(f.parseOptions(text))
	case f.Type == "string":
		return f.fit(f.option(text))
	case f.Type == "boolean":
		switch strings.ToLower(text) {
		case "y", "yes":
			return f.fit(true)
		case "n", "no":
			return f.fit(false)
		}
	}
	// A number, true or false is typed as it stands in JSON, but for capital letters.
	return f.fit(json.RawMessage(strings.ToLower(text)))
}

// parseOptions returns the values of options that are separated by commas, each once.
func (f *Field) parseOptions(text string) []string {
	values := []string{}
	isComma := func(r rune) bool { return r == ',' }
	for _, part := range strings.FieldsFunc(text, isComma) {
		value := f.option(strings.TrimSpace(part))
		if !slices.Contains(values, value) {
			values = append(values, value)
		}
	}
	return values
}

// option returns the value of the option that a user has chosen, or the text if it is no option.
// The value of an option can be a number, so the text is compared with the values first.
func (f *Field) option(text string) string {
	for _, o := range f.Options {
		if o.Value == text || strings.EqualFold(o.Title, text) {
			return o.Value
		}
	}
	n, err := strconv.Atoi(text)
	if err == nil && 1 <= n && n <= len(f.Options) {
		return f.Options[n-1].Value
	}
	return text
}

// Check returns nil if a value fits the field. A value is judged by its JSON. The error is a
// *FormError.
func (f *Field) Check(v any) error {
	_, err := f.fit(v)
	return err
}

// fit returns a value in the type of the field's values, or a *FormError if it does not fit.
func (f *Field) fit(v any) (any, error) {
	// A value without a JSON text, such as NaN, is of no type.
	raw, _ := json.Marshal(v)
	v, err := f.decode(raw)
	if err != nil {
		return nil, err
	}
	reason := f.misfit(v)
	if reason != "" {
		return nil, &FormError{f.Name, reason}
	}
	return v, nil
}

// misfit returns the reason why a value of the field's type does not fit, "" if the value fits.
func (f *Field) misfit(v any) string {
	switch v := v.(type) {
	case []string:
		if slices.ContainsFunc(v, f.lacks) {
			return "must be a list of options"
		}
		return f.outside(float64(len(v)), " options")
	case string:
		if f.Options != nil && f.lacks(v) {
			return "must be one of the options"
		}
		if !hasFormat(v, f.Format) {
			return "must be of the form " + f.Format
		}
		return f.outside(float64(utf8.RuneCountInString(v)), " characters")
	case int64:
		return f.outside(float64(v), "")
	case float64:
		if f.Type == "integer" && v != math.Trunc(v) {
			return "must be a whole number"
		}
		return f.outside(v, "")
	}
	return ""
}

// lacks reports whether a value is none of the options.
func (f *Field) lacks(value string) bool {
	return !slices.ContainsFunc(f.Options, func(o Option) bool { return o.Value == value })
}

// outside returns a sentence about the bound that a number is beyond, "" if it is within bounds.
func (f *Field) outside(n float64, unit string) string {
	switch {
	case f.Min != nil && n < *f.Min:
		return "must be at least " + strconv.FormatFloat(*f.Min, 'f', -1, 64) + unit
	case f.Max != nil && n > *f.Max:
		return "must be at most " + strconv.FormatFloat(*f.Max, 'f', -1, 64) + unit
	}
	return ""
}

// hasFormat checks the formats that the protocol has. A format that is not known fits any text, as
// JSON Schema has it. An email address stands alone, without the name that may precede it.
func hasFormat(text, format string) bool {
	var err error
	switch format {
	case "email":
		address, err := mail.ParseAddress(text)
		return err == nil && address.Address == text
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

// decode reads a value of the field's type from JSON. A whole number stays exact where 64 bits hold
// it: a float64 would round the last digits of a long id.
func (f *Field) decode(raw []byte) (any, error) {
	switch {
	case f.Many:
		return decodeAs[[]string](f, raw, "must be a list of options")
	case f.Type == "string":
		return decodeAs[string](f, raw, "must be a text")
	case f.Type == "boolean":
		return decodeAs[bool](f, raw, "must be yes or no")
	}
	n, err := decodeAs[int64](f, raw, "")
	if err == nil {
		return n, nil
	}
	return decodeAs[float64](f, raw, "must be a number")
}

// decodeAs reads a value of a type. Its pointer is nil after null, which is no value, and not nil
// after a zero.
func decodeAs[T any](f *Field, raw []byte, reason string) (any, error) {
	var v *T
	err := json.Unmarshal(raw, &v)
	if err != nil || v == nil {
		return nil, &FormError{f.Name, reason}
	}
	return *v, nil
}

// fieldSchema is all that the schema of a field can hold, of any type and revision. A choice of
// strings has three forms: enum with enumNames (2025-06-18), oneOf with const and title
// (2025-11-25), and, for several of them, an array whose items have enum or anyOf.
type fieldSchema struct {
	Type, Title, Description, Format string
	MinLength, MaxLength             *float64
	MinItems, MaxItems               *float64
	Minimum, Maximum                 *float64
	Default                          json.RawMessage
	Enum, EnumNames                  []string
	Const                            *string       // of an option
	OneOf, AnyOf                     []fieldSchema // the options, or a type that may be null
	Items                            *fieldSchema
}

// newField reads the schema of a field. It refuses a field that no user could fill in, so that
// nobody is asked in vain. A default need not fit the schema, but must be of the field's type.
func newField(name string, raw json.RawMessage) (Field, error) {
	var s fieldSchema
	err := decodeJSON("", raw, &s)
	if err != nil {
		reason := "has a schema that no field of a form has: " + err.Error()
		return Field{}, &FormError{name, reason}
	}
	s = s.withoutNull()
	f := Field{
		Name:        name,
		Type:        s.Type,
		Title:       s.Title,
		Description: s.Description,
		Format:      s.Format,
	}
	if !f.setType(&s) {
		reason := "is not a string, a number, a boolean or a choice of strings"
		return Field{}, &FormError{name, reason}
	}
	if len(s.Default) > 0 && string(s.Default) != "null" {
		f.Default, err = f.decode(s.Default)
		if err != nil {
			return Field{}, &FormError{name, "has a default of another type"}
		}
	}
	return f, nil
}

// withoutNull returns the schema of T for one of "T or null". Older Python servers have no other
// way to say that a field is optional. The outer schema has the default, and the better title.
func (s fieldSchema) withoutNull() fieldSchema {
	if len(s.AnyOf) != 2 {
		return s
	}
	null := slices.IndexFunc(s.AnyOf, func(o fieldSchema) bool { return o.Type == "null" })
	if null < 0 {
		return s
	}
	inner := s.AnyOf[1-null]
	inner.Title = cmp.Or(s.Title, inner.Title)
	inner.Description = cmp.Or(s.Description, inner.Description)
	inner.Default = s.Default
	return inner
}

// setType sets the bounds and the options of a field, which depend on its type. It reports whether
// a form can have a field of this type.
func (f *Field) setType(s *fieldSchema) bool {
	ok := true
	switch {
	case s.Type == "boolean":
	case s.Type == "string":
		f.Min, f.Max = s.MinLength, s.MaxLength
		f.Options, ok = s.options()
	case s.Type == "number" || s.Type == "integer":
		f.Min, f.Max = s.Minimum, s.Maximum
	case s.Type == "array" && s.Items != nil:
		f.Type, f.Many = "string", true
		f.Min, f.Max = s.MinItems, s.MaxItems
		f.Options, ok = s.Items.options()
		ok = ok && f.Options != nil
	default:
		return false
	}
	return ok
}

// options returns the options of a string, from any of the forms that the revisions have for them.
// It returns nil for a string without options. ok is false if the schema has a choice of another
// form.
func (s *fieldSchema) options() (options []Option, ok bool) {
	for i, value := range s.Enum {
		title := value
		// Revision 2025-06-18 has the titles in a list of their own.
		if i < len(s.EnumNames) {
			title = cmp.Or(s.EnumNames[i], value)
		}
		options = append(options, Option{value, title})
	}
	for _, o := range slices.Concat(s.OneOf, s.AnyOf) {
		if o.Const == nil {
			return nil, false
		}
		options = append(options, Option{*o.Const, cmp.Or(o.Title, *o.Const)})
	}
	return options, true
}
