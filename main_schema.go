// main_schema.go - what a tool takes: its schema for people, and the words of a command line by its types.
// SPDX-License-Identifier: 0BSD

package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// schema is what the program reads of a JSON Schema. A member of another form counts as absent.
type schema struct {
	Type        any // a text, or a list of them
	Description string
	Default     json.RawMessage
	Enum        []any
	Const       any
	Properties  map[string]json.RawMessage
	Required    []string
	Additional  json.RawMessage `json:"additionalProperties"`
	Items       json.RawMessage
	AnyOf       []json.RawMessage
	OneOf       []json.RawMessage

	root json.RawMessage // what its references are about
	left *int            // how many more may be read of root, which may refer to itself
}

const (
	maxSchemas     = 2000 // that are read of one tool
	maxSchemaDepth = 4    // that is described
)

// toolSchema reads the schema of a tool's arguments.
func toolSchema(t *Tool) *schema {
	left := maxSchemas
	return (&schema{root: t.InputSchema, left: &left}).sub(t.InputSchema)
}

// sub reads a schema within s.
func (s *schema) sub(text json.RawMessage) *schema {
	sub := &schema{root: s.root, left: s.left}
	sub.add(text)
	return sub
}

// add reads the members of a schema, after those of what it refers to: with $ref, or as the first of allOf.
func (s *schema) add(text json.RawMessage) {
	if *s.left--; *s.left < 0 {
		return
	}
	var refers struct {
		Ref   string `json:"$ref"`
		AllOf []json.RawMessage
	}
	_ = json.Unmarshal(text, &refers)
	if path, ok := strings.CutPrefix(refers.Ref, "#/"); ok {
		target := s.root
		for name := range strings.SplitSeq(path, "/") {
			var members map[string]json.RawMessage
			_ = json.Unmarshal(target, &members)
			target = members[name]
		}
		s.add(target)
	} else if len(refers.AllOf) > 0 {
		s.add(refers.AllOf[0])
	}
	_ = json.Unmarshal(text, s)
	if s.Const != nil {
		s.Enum = []any{s.Const}
	}
}

// either returns the schemas of which a value needs to fit one, if there are several.
func (s *schema) either() (all []*schema) {
	types, _ := s.Type.([]any)
	for _, name := range types {
		one := *s
		one.Type = name
		all = append(all, &one)
	}
	for _, text := range slices.Concat(s.AnyOf, s.OneOf) {
		if s.Type == nil { // else they only narrow it
			all = append(all, s.sub(text))
		}
	}
	return all
}

// kind describes the type in a few words.
func (s *schema) kind() string {
	var kinds []string
	for _, value := range s.Enum {
		text, _ := PlainJSON(value)
		kinds = append(kinds, string(text))
	}
	for _, one := range s.either() {
		if s.Enum == nil {
			kinds = append(kinds, one.kind())
		}
	}
	name, _ := s.Type.(string)
	if of := s.sub(s.Items); len(kinds) == 0 && name == "array" && s.Items != nil {
		return "array of " + of.kind()
	}
	return cmp.Or(strings.Join(kinds, " or "), name, "any JSON")
}

// names returns the names of the properties, those that are required first.
func (s *schema) names() []string {
	names := slices.Clone(s.Required)
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		if !slices.Contains(s.Required, name) {
			names = append(names, name)
		}
	}
	return names
}

// about describes a property in a line.
func (s *schema) about(name string) string {
	p := s.sub(s.Properties[name])
	text := name + ": " + p.kind() + ", optional"
	if slices.Contains(s.Required, name) {
		text = name + ": " + p.kind() + ", required"
	}
	if p.Default != nil {
		text += ", default " + string(p.Default)
	}
	return text
}

// describe returns lines about the properties, and about those within them.
func (s *schema) describe(indent string) (text string) {
	parts := s.either()
	if s.Items != nil {
		parts = append(parts, s.sub(s.Items))
	}
	for _, part := range parts {
		text += part.describe(indent)
	}
	for _, name := range s.names() {
		p := s.sub(s.Properties[name])
		text += indent + s.about(name) + "\n" + indented(p.Description, indent+"    ")
		if len(indent) < 2*maxSchemaDepth {
			text += p.describe(indent + "  ")
		}
	}
	return text
}

// object makes an object of KEY=VALUE words. The error names what is wrong, and what the object can have.
func (s *schema) object(given map[string][]string) (json.RawMessage, error) {
	object, wrong := make(map[string]json.RawMessage), ""
	for _, name := range slices.Sorted(maps.Keys(given)) {
		text, known := s.Properties[name]
		if !known {
			text = s.Additional
		}
		p := s.sub(text)
		switch object[name] = p.value(given[name]...); {
		case !known && !slices.Contains(s.Required, name) && (text == nil || string(text) == "false"):
			wrong = fmt.Sprintf("it takes no %q", name)
		case object[name] == nil:
			wrong = fmt.Sprintf("%s has the type %s, which %.200q does not fit", name, p.kind(), strings.Join(given[name], " "))
		}
	}
	about := s.names()
	for i, name := range about {
		if about[i] = s.about(name); given[name] == nil && i < len(s.Required) && wrong == "" {
			wrong = name + " is missing"
		}
	}
	if wrong != "" {
		return nil, fmt.Errorf("%s; it takes %s", wrong, cmp.Or(strings.Join(about, "; "), "no arguments"))
	}
	return PlainJSON(object)
}

// indented returns the lines of a text, each with blanks before it; "" for a text without any.
func indented(text, blanks string) string {
	if text = strings.TrimSpace(text); text == "" {
		return ""
	}
	return blanks + strings.ReplaceAll(text, "\n", "\n"+blanks) + "\n"
}

// value returns words as JSON, by the first of the types that they fit; nil if they fit none. Several words, or one
// that does not begin with a bracket, are the elements of an array.
func (s *schema) value(words ...string) json.RawMessage {
	if all := s.either(); len(all) > 0 {
		for _, one := range all {
			if value := one.value(words...); value != nil {
				return value
			}
		}
		return nil
	}
	raw, name := json.RawMessage(strings.TrimSpace(words[0])), s.Type
	text, _ := PlainJSON(words[0])
	switch isJSON := json.Valid(raw); {
	case name == "array" && (len(words) > 1 || !bytes.HasPrefix(raw, []byte("["))):
		elements := make([]json.RawMessage, len(words))
		for i, word := range words {
			if elements[i] = s.sub(s.Items).value(word); elements[i] == nil {
				return nil
			}
		}
		raw, _ = PlainJSON(elements)
	case len(words) > 1:
		return nil
	case name == "string", name == nil && (!isJSON || s.isOne(text)):
		raw = text
	case name == nil:
	default:
		kind, _ := name.(string)
		first := map[string]string{"integer": "-0123456789", "number": "-0123456789", "boolean": "tf", "null": "n",
			"array": "[", "object": "{"}[kind]
		if !isJSON || strings.IndexByte(first, raw[0]) < 0 || kind == "integer" && bytes.ContainsAny(raw, ".eE") {
			return nil
		}
	}
	if s.Enum != nil && !s.isOne(raw) {
		return nil
	}
	return raw
}

// isOne reports whether a value is one of Enum.
func (s *schema) isOne(raw json.RawMessage) bool {
	var value any
	_ = json.Unmarshal(raw, &value)
	return slices.ContainsFunc(s.Enum, func(one any) bool { return reflect.DeepEqual(one, value) })
}
