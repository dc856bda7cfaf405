// config_syntax.go - the JSON of a .mcp.json: its comments, and where it is wrong.
// SPDX-License-Identifier: 0BSD

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"
)

// These match strings, too, so that what looks like a comment within one is left alone. Only what
// is to be replaced is in the group.
var (
	jsonComment   = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|(//[^\n]*|/\*(?s:.*?)\*/)`)
	trailingComma = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|(,)\s*[}\]]`)
)

// withoutComments puts spaces in the place of comments and of commas after the last element, so
// that all else stays at its line and column.
func withoutComments(text []byte) []byte {
	text = bytes.Clone(text)
	for _, pattern := range []*regexp.Regexp{jsonComment, trailingComma} {
		for _, match := range pattern.FindAllSubmatchIndex(text, -1) {
			start, end := match[2], match[3]
			if start < 0 {
				// It is a string, without the group.
				continue
			}
			for i := start; i < end; i++ {
				if text[i] != '\n' {
					text[i] = ' '
				}
			}
		}
	}
	return text
}

// otherText matches YAML, and TOML, of which the group is the last table. JSON begins otherwise.
var otherText = regexp.MustCompile(
	`(?ms)\A(?:[^{].*)?^(?:(\s*\[+[\w."'-]+\]+\s*$)|["']?[\w-]+["']?:(?:\s|\z))`)

// configSyntaxError adds the position to an error of encoding/json, unless the text has another
// format. Lines, and columns in characters, count from 1.
func configSyntaxError(text []byte, err error) error {
	other := otherText.FindSubmatch(bytes.TrimSpace(withoutComments(text)))
	if other != nil {
		format := "YAML (goose's cmd is command, its envs are env, its uri is url)"
		isTOML := other[1] != nil
		if isTOML {
			format = "TOML"
		}
		return fmt.Errorf("it is %s, and not JSON: write each server into an object, as in "+
			`{"mcpServers": {"NAME": {"command": "npx", "args": ["-y", "PACKAGE"], `+
			`"env": {"KEY": "VALUE"}}}}`, format)
	}
	// Decoding a json.RawMessage has no other errors. Their Offset counts the byte that is wrong,
	// too.
	syntax := new(json.SyntaxError)
	_ = errors.As(err, &syntax)
	at := max(0, int(syntax.Offset)-1)
	for at > 0 && !utf8.RuneStart(text[min(at, len(text)-1)]) {
		at--
	}
	line := bytes.Count(text[:at], []byte{'\n'})
	column := utf8.RuneCount(text[bytes.LastIndexByte(text[:at], '\n')+1 : at])
	reason := err.Error()
	found, size := utf8.DecodeRune(text[at:])
	if size > 1 {
		// Of a curly quote, say, encoding/json shows the first byte as if it were the character.
		firstByte, character := fmt.Sprintf("%q", rune(text[at])), fmt.Sprintf("%q", found)
		reason = strings.Replace(reason, firstByte, character, 1)
	}
	return fmt.Errorf("line %d, column %d: %s", line+1, column+1, reason)
}
