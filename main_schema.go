// main_schema.go - what a tool takes: its schema for people, and the words of a command line by its types.
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

// schema is what the program reads of a JSON Schema. A member of another form counts as absent.
type schema struct {
	Type        any // a name, or a list of them
	Description string
	Default     json.RawMessage
	Enum        []any
	Properties  map[string]json.RawMessage
	Required    []string
	Additional  json.RawMessage `json:"additionalProperties"`
	Items       json.RawMessage
	AnyOf       []json.RawMessage
	OneOf       []json.RawMessage
	AllOf       []json.RawMessage // mostly one, as Pydantic wraps a reference
	Ref         string            `json:"$ref"`

	root json.RawMessage // what its references are about
	left *int            // how many more may be read of root, which may refer to itself
}

// maxSchemas bounds how many are read of one tool.
const maxSchemas = 2000

// toolSchema reads the schema of a tool's arguments.
func toolSchema(t *Tool) *schema {
	left := maxSchemas
	return (&schema{root: t.InputSchema, left: &left}).sub(t.InputSchema)
}

// sub reads a schema within s: its members, and those of what it refers to.
func (s *schema) sub(text json.RawMessage) *schema {
	sub := &schema{root: s.root, left: s.left}
	if *s.left--; *s.left < 0 {
		return sub
	}
	_ = json.Unmarshal(text, sub)
	if path, ok := strings.CutPrefix(sub.Ref, "#/"); ok {
		target := s.root
		for name := range strings.SplitSeq(path, "/") {
			var members map[string]json.RawMessage
			_ = json.Unmarshal(target, &members)
			target = members[name]
		}
		sub = s.sub(target)
		_ = json.Unmarshal(text, sub) // its own members go before the others
	}
	return sub
}

// either returns the schemas of which a value needs to fit one: s alone, if it does not name several. Each value of an
// enumeration is one, whose type is its JSON.
func (s *schema) either() (all []*schema) {
	switch types, _ := s.Type.([]any); {
	case s.Enum != nil:
		for _, value := range s.Enum {
			text, _ := PlainJSON(value)
			all = append(all, &schema{Type: string(text)})
		}
	case types != nil:
		for _, name := range types {
			one := *s
			one.Type = name
			all = append(all, &one)
		}
	case s.Type == nil: // else they only narrow it
		for _, text := range slices.Concat(s.AnyOf, s.OneOf, s.AllOf) {
			all = append(all, s.sub(text).either()...)
		}
	}
	if all == nil {
		return []*schema{s}
	}
	return all
}

// kind describes the type in a few words.
func (s *schema) kind() string {
	var kinds []string
	for _, one := range s.either() {
		kind, _ := one.Type.(string)
		if kind == "array" && one.Items != nil {
			kind = "array of " + s.sub(one.Items).kind()
		}
		kinds = append(kinds, cmp.Or(kind, "any JSON"))
	}
	return strings.Join(kinds, " or ")
}

// names returns the names of the properties, those that are required first.
func (s *schema) names() []string {
	isRequired := func(name string) bool { return slices.Contains(s.Required, name) }
	return append(slices.Clone(s.Required), slices.DeleteFunc(slices.Sorted(maps.Keys(s.Properties)), isRequired)...)
}

// describe returns lines about the properties, and about those within them.
func (s *schema) describe(indent string) (text string) {
	for _, one := range s.either() {
		if one.Items != nil {
			text += s.sub(one.Items).describe(indent)
		}
		for i, name := range one.names() {
			p := s.sub(one.Properties[name])
			need := map[bool]string{true: "required", false: "optional"}[i < len(one.Required)]
			if p.Default != nil {
				need += ", default " + string(p.Default)
			}
			text += fmt.Sprintf("%s%s: %s, %s\n", indent, name, p.kind(), need) + indented(p.Description, indent+"    ")
			if len(indent) < 8 { // they may have themselves within them
				text += p.describe(indent + "  ")
			}
		}
	}
	return text
}

// object makes an object of KEY=VALUE words.
func (s *schema) object(given map[string]string) (json.RawMessage, error) {
	object := make(map[string]json.RawMessage)
	for _, name := range slices.Sorted(maps.Keys(given)) {
		text, known := s.Properties[name]
		if !known {
			text = s.Additional
		}
		if text == nil || string(text) == "false" {
			return nil, fmt.Errorf("it takes no %q", name)
		}
		p := s.sub(text)
		if object[name] = p.value(given[name]); object[name] == nil {
			kind := strings.Replace(p.kind(), "array", `array ('["a", "b"]')`, 1) // as it is typed to a shell
			return nil, fmt.Errorf("%s has the type %s, which %.200q does not fit", name, kind, given[name])
		}
	}
	for _, name := range s.Required {
		if object[name] == nil {
			return nil, fmt.Errorf("%s is missing", name)
		}
	}
	return PlainJSON(object)
}

// value returns a word as JSON, by the first of the types that it fits; nil if it fits none. What can be anything is a
// text, unless it is JSON.
func (s *schema) value(word string) json.RawMessage {
	text, _ := PlainJSON(word)
	raw := json.RawMessage(strings.TrimSpace(word))
	isJSON := json.Valid(raw)
	begins := map[string]string{"integer": "-0123456789", "number": "-0123456789", "boolean": "tf", "null": "n",
		"array": "[", "object": "{"}
	for _, one := range s.either() {
		name, _ := one.Type.(string)
		switch {
		case name == "string", name == string(text), name == "" && !isJSON:
			return text
		case !isJSON, name == "integer" && bytes.ContainsAny(raw, ".eE"):
		case name == "", name == string(raw), strings.IndexByte(begins[name], raw[0]) >= 0:
			return raw
		}
	}
	return nil
}
