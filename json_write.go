// json_write.go - writing JSON, by appending to a text.
// Needs: Go 1.25.
// SPDX-License-Identifier: 0BSD

package main

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"
)

// appendJSON appends a value's JSON on one line. Raw JSON stays as it is, but must be valid.
func appendJSON(b []byte, v any) ([]byte, error) {
	if raw, ok := v.(json.RawMessage); ok {
		text, err := onOneLine(raw)
		return append(b, text...), err
	}
	text, err := json.Marshal(v)
	return append(b, text...), err
}

// plainJSON is json.Marshal without the escapes for <, > and &. In a text that a model reads they
// would cost tokens.
func plainJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// onOneLine returns JSON as it is, or compacted if it has line breaks. The error says why it is
// invalid; nil is null.
func onOneLine(raw json.RawMessage) (json.RawMessage, error) {
	// This is what encoding/json does with a string.
	if !utf8.Valid(raw) {
		raw = bytes.ToValidUTF8(raw, []byte("\uFFFD"))
	}
	if bytes.IndexByte(raw, '\n') < 0 && validJSON(raw) {
		return raw, nil
	}
	text, err := json.Marshal(raw)
	if err != nil {
		return nil, decodeJSON("", raw, new(json.RawMessage))
	}
	return text, nil
}

// joinMembers appends members to an object that is still open.
func joinMembers(b, members []byte) []byte {
	// No JSON value ends with {, so a { means that there is no member yet.
	if len(members) > 0 && b[len(b)-1] != '{' {
		b = append(b, ',')
	}
	return append(b, members...)
}

// appendKey appends the name of the next member: to an object that is still open, or to members
// that stand alone.
func appendKey(b []byte, name string) []byte {
	if len(b) > 0 && b[len(b)-1] != '{' {
		b = append(b, ',')
	}
	return append(appendString(b, name), ':')
}

// appendString appends a string as JSON.
func appendString(b []byte, s string) []byte {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' || s[i] == '"' || s[i] == '\\' {
			// A string always encodes.
			text, _ := json.Marshal(s)
			return append(b, text...)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}
