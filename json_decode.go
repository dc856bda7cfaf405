// json_decode.go - decoding JSON, with errors in the terms of JSON.
// Needs: Go 1.25.
// SPDX-License-Identifier: 0BSD

package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"
)

// decodeJSON decodes a text as json.Unmarshal does. What encoding/json says about a mistake is for
// who writes Go: "cannot unmarshal number into Go struct field .Method of type string". The author
// of a server, a model, and whoever runs the program get the path of the value in the text and
// what it must be: "params.method must be a string, not a number". name is that of the text, with
// which each path begins; if it is empty, a path begins with a member, and the text is called it.
func decodeJSON(name string, text []byte, into any) error {
	err := json.Unmarshal(text, into)
	if err == nil {
		return nil
	}
	return jsonMistake(name, text, err, func(text []byte) error {
		return json.Unmarshal(text, reflect.New(reflect.TypeOf(into).Elem()).Interface())
	})
}

// misfit is the error of a value that is not of the expected type. A method UnmarshalJSON that
// looks at several members at once returns it with its part of the path: a block of content has
// other members for each value of its member type.
type misfit struct {
	path   string // such as params.messages[0].role
	reason string
}

func (m *misfit) Error() string {
	return cmp.Or(strings.TrimPrefix(m.path, "."), "it") + " " + m.reason
}

// jsonMistake returns the error of decoding a text, in the terms of JSON. decode decodes a text
// into a new value of the same type. An error that is not about syntax or types is returned as it
// is.
func jsonMistake(name string, text []byte, err error, decode func([]byte) error) error {
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		return &misfit{name, syntaxReason(text, syntax)}
	}
	if !errors.As(err, new(*json.UnmarshalTypeError)) && !errors.As(err, new(*misfit)) {
		return err
	}
	search := misfitSearch{decode: decode, budget: 1<<16 + 16*len(text)}
	place := misfitPlace{path: name, value: text}
	for len(place.path) < maxMisfitPath {
		inner, isFound := search.inner(place)
		if !isFound {
			break
		}
		place = inner
	}
	return search.describe(place)
}

// syntaxReason says where a text is not JSON. The offset of encoding/json counts the byte that is
// wrong, too.
func syntaxReason(text []byte, err *json.SyntaxError) string {
	at := int(err.Offset) - 1
	switch {
	case len(bytes.TrimSpace(text)) == 0:
		return "is missing or empty"
	case at < 0 || at >= len(text) || strings.HasPrefix(err.Error(), "unexpected end"):
		return "is not valid JSON: the text ends too early"
	}
	found, _ := utf8.DecodeRune(text[at:])
	return fmt.Sprintf("is not valid JSON: unexpected %q at byte %d", found, at+1)
}

// maxMisfitPath is the length from which on a path does not become longer: it would help nobody.
const maxMisfitPath = 300

// misfitSearch looks for the value that is not of the expected type. A text with one member or one
// element alone shows whether the mistake is in there; then the search goes on inside. Why not by
// what encoding/json reports? Its fields have no indexes and have the spelling of Go, and where a
// type has a method UnmarshalJSON, its offset is that in a part of the text.
type misfitSearch struct {
	decode func([]byte) error
	budget int // bytes that may still be decoded: a list of millions costs no more
}

// misfitPlace is a value in the text.
type misfitPlace struct {
	path          string
	value         []byte
	before, after []byte // make of the value a text in which it stands alone
}

// try decodes a text that has a value alone at a place.
func (m *misfitSearch) try(p misfitPlace, value []byte) error {
	text := slices.Concat(p.before, value, p.after)
	m.budget -= len(text)
	if m.budget < 0 {
		return nil
	}
	return m.decode(text)
}

// inner returns the first member or element of a value that cannot be decoded. Where not even an
// empty object or array is right, nothing in it is to blame.
func (m *misfitSearch) inner(p misfitPlace) (found misfitPlace, isFound bool) {
	s := scanner{text: p.value}
	try := func(step string, opening, closing []byte) {
		part := misfitPlace{
			path:   p.path + step,
			value:  s.value(),
			before: slices.Concat(p.before, opening),
			after:  slices.Concat(closing, p.after),
		}
		if !isFound && m.try(part, part.value) != nil {
			found, isFound = part, true
		}
	}
	index := 0
	switch opening := s.peek(); {
	case opening == '{' && m.try(p, []byte("{}")) == nil:
		s.object(func(key []byte) {
			try(memberStep(string(key)), appendKey([]byte("{"), string(key)), []byte("}"))
		})
	case opening == '[' && m.try(p, []byte("[]")) == nil:
		s.array(func() {
			try(fmt.Sprintf("[%d]", index), []byte("["), []byte("]"))
			index++
		})
	}
	return found, isFound
}

// memberStep returns the step of a path to a member: .name, or ["a name"].
func memberStep(name string) string {
	const plain = "-_$/abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	if name != "" && len(name) <= 80 && strings.Trim(name, plain) == "" {
		return "." + name
	}
	return fmt.Sprintf("[%.80q]", name)
}

// describe says what is wrong with a value: what is wrong inside, if its type knows, or else what
// it is and what it must be, which is the first that can be decoded in its place.
func (m *misfitSearch) describe(p misfitPlace) error {
	m.budget = max(m.budget, 16*(len(p.before)+len(p.value)+len(p.after)+len("false")))
	var inside *misfit
	if errors.As(m.try(p, p.value), &inside) {
		return &misfit{p.path + inside.path, inside.reason}
	}
	s := scanner{text: p.value}
	kind := kindOf(s.peek())
	reason := "has a value of a wrong type"
	takes := func(example string) bool { return m.try(p, []byte(example)) == nil }
	switch {
	case kind == "a number" && takes("0.5"):
		reason = fmt.Sprintf("must be a number of 64 bits, not %.80s", p.value)
	case kind == "a number" && takes("0"):
		reason = fmt.Sprintf("must be a whole number of 64 bits, not %.80s", p.value)
	default:
		for _, example := range []string{`""`, `0`, `true`, `{}`, `[]`} {
			expected := kindOf(example[0])
			if takes(example) && expected != kind {
				reason = fmt.Sprintf("must be %s, not %s", expected, kind)
				break
			}
		}
	}
	return &misfit{p.path, reason}
}

// kindOf returns what a value is, by its first byte.
func kindOf(first byte) string {
	switch first {
	case '"':
		return "a string"
	case '{':
		return "an object"
	case '[':
		return "an array"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	}
	return "a number"
}
