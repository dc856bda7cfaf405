// schema.go - what a tool takes: its schema for people, and the words of a call made JSON by it.
// SPDX-License-Identifier: 0BSD

package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Schema is what the program reads of a JSON Schema. A member of another form counts as absent:
// the server checks the arguments itself, and what is not understood here must not keep a user
// from a call.
type Schema struct {
	Type        any // a name, or a list of names
	Description string
	Default     json.RawMessage
	Enum        []any
	Properties  map[string]json.RawMessage
	Required    []string
	Additional  json.RawMessage `json:"additionalProperties"`
	Items       json.RawMessage
	AnyOf       []json.RawMessage
	OneOf       []json.RawMessage
	AllOf       []json.RawMessage // has mostly one element, as Pydantic wraps a reference in it
	Ref         string            `json:"$ref"`

	root      json.RawMessage // what the references point into
	remaining *int            // how many schemas of root may still be read; see maxSchemas
}

// maxSchemas bounds how many schemas are read of one tool: a schema may refer to itself, and five
// references to itself in each schema would be a tree without end.
const maxSchemas = 2000

// ToolSchema reads the schema of a tool's arguments.
func ToolSchema(t *Tool) *Schema {
	remaining := maxSchemas
	root := &Schema{root: t.InputSchema, remaining: &remaining}
	return root.readWithin(t.InputSchema)
}

// readWithin reads a schema within s: its members, and those of the schema that it refers to. Its
// own members replace those of the other one.
func (s *Schema) readWithin(text json.RawMessage) *Schema {
	inner := &Schema{root: s.root, remaining: s.remaining}
	*s.remaining--
	if *s.remaining < 0 {
		return inner
	}
	_ = json.Unmarshal(text, inner)
	path, isReference := strings.CutPrefix(inner.Ref, "#/")
	if !isReference {
		return inner
	}
	target := s.root
	for name := range strings.SplitSeq(path, "/") {
		var members map[string]json.RawMessage
		_ = json.Unmarshal(target, &members)
		target = members[name]
	}
	inner = s.readWithin(target)
	_ = json.Unmarshal(text, inner)
	return inner
}

// alternatives returns the schemas of which a value needs to fit one: s alone, if it does not name
// several. Each value of an enumeration is an alternative, whose type is the JSON of the value.
// Where s has a type, its anyOf and its like only narrow it, and are not read.
func (s *Schema) alternatives() []*Schema {
	var all []*Schema
	types, _ := s.Type.([]any)
	switch {
	case s.Enum != nil:
		for _, value := range s.Enum {
			text, _ := plainJSON(value)
			all = append(all, &Schema{Type: string(text)})
		}
	case types != nil:
		for _, name := range types {
			alternative := *s
			alternative.Type = name
			all = append(all, &alternative)
		}
	case s.Type == nil:
		for _, text := range slices.Concat(s.AnyOf, s.OneOf, s.AllOf) {
			all = append(all, s.readWithin(text).alternatives()...)
		}
	}
	if all == nil {
		return []*Schema{s}
	}
	return all
}

// kind describes the type in a few words, such as "array of string or null".
func (s *Schema) kind() string {
	var kinds []string
	for _, alternative := range s.alternatives() {
		kind, _ := alternative.Type.(string)
		if !json.Valid([]byte(kind)) {
			// Any other text than a known name would look like the text around it.
			kind = strings.TrimPrefix(OneName(kind), `""`)
		}
		if kind == "array" && alternative.Items != nil {
			kind = "array of " + s.readWithin(alternative.Items).kind()
		}
		kinds = append(kinds, cmp.Or(EscapeUnseen(kind), "any JSON"))
	}
	return strings.Join(kinds, " or ")
}

// maxKind is how many bytes a list of tools has for the type of a property.
const maxKind = 40

// Kind describes the type of a property for a list of tools. Of a long enumeration it is how many
// values there are: Describe has them.
func (s *Schema) Kind(property string) string {
	inner := s.readWithin(s.Properties[property])
	kind := inner.kind()
	if len(kind) <= maxKind {
		return kind
	}
	several := inner.alternatives()
	if len(several) == 1 {
		return "array"
	}
	return fmt.Sprintf("one of %d", len(several))
}

// Words returns what a property may be typed as: the values of an enumeration, true and false, or
// "" for any other.
func (s *Schema) Words(property string) []string {
	var words []string
	for _, alternative := range s.readWithin(s.Properties[property]).alternatives() {
		kind, _ := alternative.Type.(string)
		var text string
		switch {
		case kind == "boolean":
			words = append(words, "true", "false")
		case json.Unmarshal([]byte(kind), &text) == nil:
			words = append(words, text)
		case json.Valid([]byte(kind)):
			words = append(words, kind)
		case kind != "null":
			return []string{""}
		}
	}
	return words
}

// Names returns the names of the properties, those that are required first. These are in the order
// of the schema, which is the order in which a person would give them; the others are sorted, as a
// JSON object has no order.
func (s *Schema) Names() []string {
	isRequired := func(name string) bool { return slices.Contains(s.Required, name) }
	others := slices.DeleteFunc(slices.Sorted(maps.Keys(s.Properties)), isRequired)
	return append(slices.Clone(s.Required), others...)
}

// maxSchemaIndent bounds in blanks how deep Describe goes: properties may have themselves within
// them.
const maxSchemaIndent = 8

// Describe returns lines about the properties, and about those within them.
func (s *Schema) Describe(indent string) string {
	text := ""
	for _, alternative := range s.alternatives() {
		if alternative.Items != nil {
			text += s.readWithin(alternative.Items).Describe(indent)
		}
		for i, name := range alternative.Names() {
			property := s.readWithin(alternative.Properties[name])
			need := "optional"
			if i < len(alternative.Required) {
				need = "required"
			}
			if property.Default != nil {
				var line bytes.Buffer
				_ = json.Compact(&line, property.Default)
				need += ", default " + EscapeUnseen(line.String())
			}
			text += fmt.Sprintf("%s%s: %s, %s\n", indent, OneName(name), property.kind(), need)
			text += Indent(property.Description, indent+"    ")
			if len(indent) < maxSchemaIndent {
				text += property.Describe(indent + "  ")
			}
		}
	}
	return text
}

// Indent returns the lines of a text, each with blanks before it, and "" for a text without any.
func Indent(text, blanks string) string {
	text = strings.TrimSpace(text)
	if text == "" {
		return ""
	}
	return blanks + strings.ReplaceAll(text, "\n", "\n"+blanks) + "\n"
}

// Object makes a JSON object of KEY=VALUE words, whose types are those of the schema. It is an
// error if a word fits no type, if the tool takes no argument of its name, or if one that is
// required is missing: the user gets a better message here than from most servers.
func (s *Schema) Object(words map[string]string) (json.RawMessage, error) {
	object := make(map[string]json.RawMessage)
	for _, name := range slices.Sorted(maps.Keys(words)) {
		text, isKnown := s.Properties[name]
		if !isKnown {
			text = s.Additional
		}
		if text == nil || string(text) == "false" {
			return nil, fmt.Errorf("it takes no %q", name)
		}
		property := s.readWithin(text)
		object[name] = property.value(words[name])
		if object[name] == nil {
			// The user sees an array as it is typed to a shell.
			kind := strings.Replace(property.kind(), "array", `array ('["a", "b"]')`, 1)
			return nil, fmt.Errorf("%s has the type %s, which %.200q does not fit",
				OneName(name), kind, words[name])
		}
	}
	for _, name := range s.Required {
		if object[name] == nil {
			return nil, fmt.Errorf("%s is missing", OneName(name))
		}
	}
	return plainJSON(object)
}

// value returns a word as JSON, by the first of the types that it fits, or nil if it fits none. A
// property of any type takes the word as JSON if it is JSON, and else as a text.
func (s *Schema) value(word string) json.RawMessage {
	text, _ := plainJSON(word)
	raw := json.RawMessage(strings.TrimSpace(word))
	isJSON := json.Valid(raw)
	for _, alternative := range s.alternatives() {
		kind, _ := alternative.Type.(string)
		isEnumeratedText := kind == string(text)
		if kind == "string" || isEnumeratedText || kind == "" && !isJSON {
			return text
		}
		if isJSON && fitsKind(raw, kind) {
			return raw
		}
	}
	return nil
}

// fitsKind reports whether raw, which is valid JSON, is of a kind: a name of JSON Schema, "" for
// any, or the JSON of an enumerated value. The first byte of raw tells its kind. Only for an
// integer is the rest looked at, too.
func fitsKind(raw json.RawMessage, kind string) bool {
	switch kind {
	case "", string(raw):
		return true
	case "integer":
		return beginsNumber(raw) && !bytes.ContainsAny(raw, ".eE")
	case "number":
		return beginsNumber(raw)
	case "boolean":
		return raw[0] == 't' || raw[0] == 'f'
	case "null":
		return raw[0] == 'n'
	case "array":
		return raw[0] == '['
	case "object":
		return raw[0] == '{'
	}
	return false
}

func beginsNumber(raw json.RawMessage) bool {
	return strings.IndexByte("-0123456789", raw[0]) >= 0
}
