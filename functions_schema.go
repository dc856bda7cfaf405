// functions_schema.go - the schema of a tool's arguments, as the API takes it.
// Needs: Go 1.25, json, rpc, mcp, mistral.
// SPDX-License-Identifier: 0BSD

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// The API refuses a whole request, with all its tools, for one schema that is not valid in draft 7.
// MCP allows any draft, and servers write schemas that are of none. So each schema is read and
// written again here: what draft 7 has stays as it is, and the rest is renamed or left out. What
// the API takes is what its vendor's mistral-common takes, whose judge is the package jsonschema of
// Python.

// maxSchemaDepth bounds objects and arrays in each other: the checkers of APIs end at about 200
// levels, with all that is around a schema.
const maxSchemaDepth = 64

// functionParameters returns a tool's inputSchema as the API takes it: an object's JSON Schema of
// draft 7, with type and properties, and without $schema and $id. Members that are null go, too. An
// empty list stands for an empty object, as PHP writes it. A keyword with a value that draft 7 does
// not allow is renamed, for example to x-exclusiveMinimum: there the model can still read it. The
// error says why the schema is not one of an object.
func functionParameters(schema json.RawMessage) (json.RawMessage, error) {
	text := bytes.TrimSpace(schema)
	s := scanner{text: text, depth: maxDepth - maxSchemaDepth}
	if isEmptySchema(text) {
		s.text = []byte("{}")
	} else if text[0] != '{' {
		return nil, fmt.Errorf("its inputSchema is not an object: %.100s", text)
	}
	// The members are written as they come. Only type, and properties that are missing or are no
	// object, wait for the end.
	b := []byte{'{'}
	hasProperties := false
	kind := ""
	s.object(func(key []byte) {
		name := string(key)
		isProperties := name == "properties" && s.peek() == '{'
		switch {
		case name == "type":
			kind = string(s.value())
		case name == "$schema", name == "$id", name == "properties" && !isProperties:
			s.value()
		default:
			b = appendKeyword(b, name, &s)
			hasProperties = hasProperties || isProperties
		}
	})
	switch {
	case s.end():
	case validJSON(text):
		return nil, fmt.Errorf("its inputSchema is nested deeper than %d levels", maxSchemaDepth)
	default:
		return nil, errors.New("its inputSchema is not valid JSON")
	}
	hasKind := kind != "" && kind != "null"
	// Some servers write another type beside properties. Those show what is meant.
	if hasKind && !hasProperties && !strings.Contains(kind, `"object"`) {
		return nil, fmt.Errorf("its inputSchema has the type %.100s, and not object", kind)
	}
	if !hasProperties {
		b = appendKey(b, "properties")
		b = append(b, "{}"...)
	}
	b = appendKey(b, "type")
	return append(b, `"object"}`...), nil
}

// isEmptySchema reports whether a schema says nothing, in one of the ways that servers have for it.
func isEmptySchema(text []byte) bool {
	switch string(text) {
	case "", "null", "true":
		return true
	}
	return isEmptyList(scanner{text: text})
}

// isEmptyList reports whether [] is next. It reads a copy of the scanner.
func isEmptyList(s scanner) bool {
	isEmpty := true
	s.array(func() {
		s.value()
		isEmpty = false
	})
	return isEmpty && s.ok()
}

// appendSchema reads a schema and appends it as draft 7 has it. What is not a schema allows
// everything.
func appendSchema(b []byte, s *scanner) []byte {
	switch s.peek() {
	case '{':
		b = append(b, '{')
		s.object(func(key []byte) { b = appendKeyword(b, string(key), s) })
		return append(b, '}')
	case 't', 'f':
		return append(b, s.value()...)
	}
	s.value()
	return append(b, "{}"...)
}

// appendKeyword reads the value of a schema's member and appends the member as draft 7 has it:
// see the table draft7 first.
func appendKeyword(b []byte, name string, s *scanner) []byte {
	first, holdsSchemas := draft7(name)
	// A keyword that draft 7 does not have may have any value: there it is an annotation.
	fits := first == "" || strings.IndexByte(first, s.peek()) >= 0
	// PHP writes [] for an empty object of schemas.
	if holdsSchemas && (fits || isEmptyList(*s)) {
		return appendSchemas(b, name, first, s)
	}
	raw := s.value()
	switch {
	case fits && isFit(name, raw):
		return append(appendKey(b, name), raw...)
	case string(raw) == "null":
		// Many libraries write null for a member that is not there.
		return b
	}
	return append(appendKey(b, "x-"+name), raw...)
}

// appendSchemas does what appendKeyword does, for a keyword whose value is a schema, a list of
// schemas, or an object of them by name. first is that of draft7.
func appendSchemas(b []byte, name, first string, s *scanner) []byte {
	if isEmptyList(*s) {
		s.value()
		if first == "[" {
			// Draft 7 wants at least one schema in such a list.
			return b
		}
		return append(appendKey(b, name), "{}"...)
	}
	if name == "patternProperties" && !hasPatterns(*s) {
		name = "x-" + name
	}
	b = appendKey(b, name)
	switch {
	case s.peek() == '[':
		b = append(b, '[')
		s.array(func() {
			if b[len(b)-1] != '[' {
				b = append(b, ',')
			}
			b = appendSchema(b, s)
		})
		return append(b, ']')
	case first == "{":
		b = append(b, '{')
		s.object(func(key []byte) {
			b = appendKey(b, string(key))
			if name == "dependencies" && s.peek() == '[' {
				b = appendNames(b, s)
			} else {
				b = appendSchema(b, s)
			}
		})
		return append(b, '}')
	}
	return appendSchema(b, s)
}

// appendNames appends what a property depends on: a list of names, or else a schema that allows
// everything.
func appendNames(b []byte, s *scanner) []byte {
	raw := s.value()
	if !areDistinct(raw) {
		return append(b, "{}"...)
	}
	return append(b, raw...)
}

// hasPatterns reports whether the names in an object are patterns. It reads a copy of the scanner.
func hasPatterns(s scanner) bool {
	all := true
	s.object(func(key []byte) {
		s.value()
		all = all && isPattern(string(key))
	})
	return all
}

// draft7 is the table of the keywords of draft 7. It returns the bytes with which a keyword's value
// can begin, "" for any, and whether the value holds schemas.
func draft7(keyword string) (first string, holdsSchemas bool) {
	switch keyword {
	case "additionalItems", "additionalProperties", "contains", "else", "if", "not",
		"propertyNames", "then":
		return "{tf", true
	case "items":
		return "{[tf", true
	case "allOf", "anyOf", "oneOf":
		return "[", true
	case "$defs", "definitions", "dependencies", "patternProperties", "properties":
		return "{", true
	case "exclusiveMaximum", "exclusiveMinimum", "maximum", "minimum":
		return "-0123456789", false
	case "maxItems", "maxLength", "maxProperties", "minItems", "minLength", "minProperties",
		"multipleOf":
		return "0123456789", false
	case "$comment", "$id", "$ref", "$schema", "contentEncoding", "contentMediaType",
		"description", "format", "pattern", "title":
		return `"`, false
	case "readOnly", "uniqueItems", "writeOnly":
		return "tf", false
	case "enum", "examples", "required":
		return "[", false
	case "type":
		return `"[`, false
	}
	return "", false
}

// isFit reports whether draft 7 allows the value of a keyword, whose first byte it allows.
func isFit(keyword string, raw []byte) bool {
	switch keyword {
	case "type":
		return areTypes(raw)
	case "required":
		return areDistinct(raw)
	case "pattern":
		var pattern string
		return json.Unmarshal(raw, &pattern) == nil && isPattern(pattern)
	case "multipleOf":
		return numberValue(raw) > 0
	case "maxItems", "maxLength", "maxProperties", "minItems", "minLength", "minProperties":
		return numberValue(raw) == math.Trunc(numberValue(raw))
	}
	return true
}

// numberValue returns the value of a number, and NaN, which is equal to nothing, for one that is
// too large.
func numberValue(raw []byte) float64 {
	value, err := strconv.ParseFloat(string(raw), 64)
	if err != nil {
		return math.NaN()
	}
	return value
}

// areTypes reports whether the value of type, a string or a list of strings, names types that draft
// 7 has.
func areTypes(raw []byte) bool {
	if bytes.HasPrefix(raw, []byte{'"'}) {
		raw = slices.Concat([]byte{'['}, raw, []byte{']'})
	}
	var types []string
	err := json.Unmarshal(raw, &types)
	known := []string{"array", "boolean", "integer", "null", "number", "object", "string"}
	unknown := func(t string) bool { return !slices.Contains(known, t) }
	return err == nil && len(types) > 0 && areDistinct(raw) && !slices.ContainsFunc(types, unknown)
}

// areDistinct reports whether a list is of strings, none of which comes twice.
func areDistinct(raw []byte) bool {
	var names []*string
	if json.Unmarshal(raw, &names) != nil {
		return false
	}
	seen := make(map[string]bool)
	for _, name := range names {
		if name == nil || seen[*name] {
			return false
		}
		seen[*name] = true
	}
	return true
}

// isPattern reports whether a text is a regular expression not only for JavaScript, whose draft 7
// means, but for Python too, in which the API is written. Go judges what the two have in common.
// A pattern that it does not know counts as none, even if Python knows it.
func isPattern(text string) bool {
	// Python and JavaScript look ahead, which Go does not.
	text = strings.NewReplacer("(?=", "(?:", "(?!", "(?:").Replace(text)
	_, err := regexp.Compile(text)
	return err == nil && !notPython.MatchString(text)
}

// notPython matches what Go takes and Python refuses: escapes such as \p{L} and \z, octal numbers,
// groups with names or flags, a repetition without a beginning or of a place such as $, a class
// within a class, and a range that begins with a class, as in [\w-.].
var notPython = regexp.MustCompile(`\\[pPzCQE1-9]|\\x\{|\(\?[^:]|\{,|([$^]|\\[bBA])[*+?{]|\[:|` +
	`\[[^\]]*\\[dDsSwW]-[^\]]`)
