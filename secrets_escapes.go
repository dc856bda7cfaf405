// secrets_escapes.go - a text without the escapes of JSON and URLs.
// SPDX-License-Identifier: 0BSD

package main

import (
	"bytes"
	"strconv"
)

// char is a byte, and the part of the text that stands for this byte: one byte, or an escape.
type char struct {
	b          byte
	start, end int
}

// unescaper decodes the escapes of JSON and URLs in a text, however often it was escaped: \" and
// \\" are read as ", \u002B and %2b as +. A space is read as +, too, as a query has + for a space.
type unescaper struct {
	pending []byte // the beginning of an escape
}

// readChar goes on with one character, and calls unescaped for each character that is now decoded.
func (u *unescaper) readChar(c char, unescaped func(char)) {
	isPlain := c.b != '\\' && c.b != '%' && c.b != ' '
	if len(u.pending) == 0 && isPlain {
		unescaped(c)
		return
	}
	text := append(u.pending, c.b)
	for len(text) > 0 {
		decoded, size := unescape(text)
		if size == 0 {
			break
		}
		start := c.end - len(text)
		for i := range len(decoded) {
			unescaped(char{decoded[i], start, start + size})
		}
		text = text[size:]
	}
	u.pending = append(u.pending[:0], text...)
}

// withoutEscapes returns a text as an unescaper reads it.
func withoutEscapes(text string) string {
	var out []byte
	var u unescaper
	for i := range len(text) {
		u.readChar(char{text[i], i, i + 1}, func(c char) { out = append(out, c.b) })
	}
	return string(append(out, u.pending...))
}

// maxBackslashes bounds how many backslashes are taken for one: a quote that was put into JSON
// three times has seven.
const maxBackslashes = 8

// unescape decodes the character at the beginning of a text, and returns the size of its escape.
// The size is 0 if the escape may go on after the end of the text.
func unescape(text []byte) (decoded string, size int) {
	switch text[0] {
	case ' ':
		return "+", 1
	case '%':
		return unescapeHex(text, 1, 2)
	}
	backslashes := len(text) - len(bytes.TrimLeft(text, `\`))
	backslashes = min(maxBackslashes, backslashes)
	switch {
	case backslashes == len(text):
		return "", 0
	case backslashes > 0 && text[backslashes] == 'u':
		return unescapeHex(text, backslashes+1, 4)
	}
	return string(text[backslashes : backslashes+1]), backslashes + 1
}

// unescapeHex decodes an escape whose hexadecimal digits begin at first: two of a byte in a URL, or
// four of a character in JSON. Where other characters than digits follow, there is no escape, and
// the character before first stands for itself.
func unescapeHex(text []byte, first, digits int) (decoded string, size int) {
	hex := text[first:min(first+digits, len(text))]
	code, err := strconv.ParseUint(string(hex), 16, 16)
	switch {
	case len(hex) > 0 && err != nil:
		return string(text[first-1 : first]), first
	case len(hex) < digits:
		return "", 0
	case digits == 2:
		return string([]byte{byte(code)}), first + digits
	}
	return string(rune(code)), first + digits
}
