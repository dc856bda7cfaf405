// terminal_json.go - JSON as a person reads it.
// SPDX-License-Identifier: 0BSD

package main

import (
	"bytes"
	"encoding/json"
	"strings"
)

// isJSON reports whether a text is a JSON object or array, as many tools return it.
func isJSON(text string) bool {
	text = strings.TrimSpace(text)
	return text != "" && strings.Contains("{[", text[:1]) && json.Valid([]byte(text))
}

// jsonLine returns a text that is JSON on one line, and any other as it is.
func jsonLine(text string) string {
	if !isJSON(text) {
		return text
	}
	return readableJSON(text, false)
}

// maxLaidOut is how deep LayOutJSON goes: what is within that stays on one line.
const maxLaidOut = 12

// LayOutJSON returns a text that is JSON in lines, and any other as it is. An object or an array
// stands on one line where so many columns have room for it, and else each of its values begins a
// line.
func LayOutJSON(text string, columns int) string {
	if !isJSON(text) {
		return text
	}
	return layOutValue([]byte(text), columns, "", 0)
}

// layOutValue lays out a value of a line that begins with an indent and so many other columns.
func layOutValue(text []byte, columns int, indent string, before int) string {
	line := readableJSON(string(text), false)
	isContainer := line[0] == '{' || line[0] == '['
	hasRoom := Width(line)+len(indent)+before <= columns
	if !isContainer || hasRoom || len(indent) >= 2*maxLaidOut {
		return line
	}
	within := indent + "  "
	in := json.NewDecoder(bytes.NewReader(text))
	_, _ = in.Token()
	var lines []string
	for in.More() {
		name := ""
		if line[0] == '{' {
			key, _ := in.Token()
			quoted, _ := plainJSON(key)
			name = readableJSON(string(quoted), false) + ": "
		}
		var value json.RawMessage
		_ = in.Decode(&value)
		lines = append(lines, within+name+layOutValue(value, columns, within, Width(name)+1))
	}
	last := line[len(line)-1:]
	return line[:1] + "\n" + strings.Join(lines, ",\n") + "\n" + indent + last
}
