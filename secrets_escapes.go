// secrets_escapes.go - a text without the escapes of JSON, URLs, HTML and terminals.
// SPDX-License-Identifier: 0BSD

package main

import (
	"html"
	"strconv"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// char is a byte, and the part of the text that stands for this byte: one byte, or an escape.
type char struct {
	b          byte
	start, end int
}

// unescaper decodes a text that was encoded once: as a string of JSON or of a program, as a part of
// a URL, or as HTML. Characters that no terminal shows, and the sequences that set its colours, are
// left out, as they can stand in the middle of a word.
type unescaper struct {
	pending []char // the beginning of an escape
	text    []byte // of pending
	decoded []char // the outcome of readChar, for the next one to use again
}

// The bounds of escapes whose end has to be looked for, in bytes.
const (
	maxEntity   = 12 // &#x0000002b
	maxSequence = 32 // ESC [ 38;2;255;255;255 m
)

// beginsEscape reports whether an escape or an invisible character can begin with a byte.
func beginsEscape(b byte) bool {
	switch b {
	case '\\', '%', '&', 0x1b, 0xc2, 0xcd, 0xd8, 0xe1, 0xe2, 0xef, 0xf3:
		return true
	}
	return false
}

// readChar goes on with one character, and returns those that are now decoded, until the next call.
// isChanged reports whether one of them, or one that was left out, did not stand for itself.
func (u *unescaper) readChar(c char) (decoded []char, isChanged bool) {
	u.decoded = u.decoded[:0]
	if len(u.pending) == 0 && !beginsEscape(c.b) {
		u.decoded = append(u.decoded, c)
		return u.decoded, false
	}
	u.pending = append(u.pending, c)
	u.text = append(u.text, c.b)
	for len(u.text) > 0 {
		text, size := unescape(u.text)
		if size == 0 {
			break
		}
		if size == 1 {
			u.decoded = append(u.decoded, u.pending[0])
		} else {
			isChanged = true
			start, end := u.pending[0].start, u.pending[size-1].end
			for i := range len(text) {
				u.decoded = append(u.decoded, char{text[i], start, end})
			}
		}
		u.pending = append(u.pending[:0], u.pending[size:]...)
		u.text = append(u.text[:0], u.text[size:]...)
	}
	return u.decoded, isChanged
}

// end returns the characters that began an escape, at the end of a text: they stand for themselves.
func (u *unescaper) end() []char {
	rest := u.pending
	u.pending, u.text = nil, nil
	return rest
}

// withoutEscapes returns a text as an unescaper reads it.
func withoutEscapes(text string) string {
	var out []byte
	var u unescaper
	for i := range len(text) {
		decoded, _ := u.readChar(char{text[i], i, i + 1})
		for _, c := range decoded {
			out = append(out, c.b)
		}
	}
	return string(append(out, u.text...))
}

// unescape decodes the character at the beginning of a text, and returns the size of its escape: 1
// if there is no escape, and the character stands for itself. The size is 0 if the escape may go on
// after the end of the text.
func unescape(text []byte) (decoded string, size int) {
	switch {
	case text[0] == '%':
		code, size := hexCode(text, 1, 2)
		return string([]byte{byte(code)}), size
	case text[0] == '\\':
		return unescapeBackslash(text)
	case text[0] == '&':
		return unescapeEntity(text)
	case text[0] == 0x1b:
		return "", sequenceSize(text)
	case beginsEscape(text[0]):
		return visible(text)
	}
	return "", 1
}

// unescapeBackslash decodes an escape of JSON, or of a program.
func unescapeBackslash(text []byte) (decoded string, size int) {
	if len(text) == 1 {
		return "", 0
	}
	switch next := text[1]; {
	case next == 'u':
		return unescapeUTF16(text)
	case next == 'x':
		code, size := hexCode(text, 2, 2)
		return string([]byte{byte(code)}), size
	case next == 't':
		return "\t", 2
	case next != '\\' && beginsEscape(next):
		// It is the next level that sees what this backslash stands before.
		return "", 1
	}
	// A secret has no ends of lines, so \n needs no decoding.
	return string(text[1:2]), 2
}

// unescapeUTF16 decodes \u and four digits, and twice that where a character has two codes.
func unescapeUTF16(text []byte) (decoded string, size int) {
	const one = len(`\u0000`)
	code, size := hexCode(text, 2, 4)
	isHigh := size == one && 0xd800 <= code && code <= 0xdbff
	if !isHigh {
		return string(code), size
	}
	for i, b := range []byte(`\u`) {
		if len(text) == one+i {
			return "", 0
		}
		if text[one+i] != b {
			return string(utf8.RuneError), one
		}
	}
	low, size := hexCode(text[one:], 2, 4)
	switch size {
	case 0:
		return "", 0
	case one:
		return string(utf16.DecodeRune(code, low)), 2 * one
	}
	return string(utf8.RuneError), one
}

// hexCode reads a number of so many hexadecimal digits, which begin at first. The size is 0 if some
// are still to come, and 1 if there are other characters.
func hexCode(text []byte, first, digits int) (code rune, size int) {
	hex := text[first:min(first+digits, len(text))]
	if len(hex) == 0 {
		return 0, 0
	}
	number, err := strconv.ParseUint(string(hex), 16, 16)
	switch {
	case err != nil:
		return 0, 1
	case len(hex) < digits:
		return 0, 0
	}
	return rune(number), first + digits
}

// unescapeEntity decodes a character reference of HTML.
func unescapeEntity(text []byte) (decoded string, size int) {
	end := 1
	for end < len(text) && end < maxEntity && isEntityByte(text[end]) {
		end++
	}
	switch {
	case end == maxEntity:
		return "", 1
	case end == len(text):
		return "", 0
	case text[end] != ';':
		return "", 1
	}
	entity := string(text[:end+1])
	decoded = html.UnescapeString(entity)
	if decoded == entity {
		return "", 1
	}
	return decoded, len(entity)
}

// isEntityByte reports whether a byte can stand between & and ; of a character reference.
func isEntityByte(b byte) bool {
	b = foldByte(b)
	return 'a' <= b && b <= 'z' || '0' <= b && b <= '9' || b == '#'
}

// sequenceSize returns the size of a control sequence of a terminal, such as ESC [ 3 1 m (ECMA-48,
// 5.4), as unescape does.
func sequenceSize(text []byte) int {
	end := 2
	for end < len(text) && end < maxSequence && 0x20 <= text[end] && text[end] <= 0x3f {
		end++
	}
	switch {
	case len(text) > 1 && text[1] != '[':
		return 1
	case end >= len(text):
		return 0
	case 0x40 <= text[end] && text[end] <= 0x7e:
		return end + 1
	}
	return 1
}

// visible returns a character as it is, or nothing for one that is not shown, such as U+200B.
func visible(text []byte) (decoded string, size int) {
	if !utf8.FullRune(text) {
		return "", 0
	}
	r, size := utf8.DecodeRune(text)
	isHidden := unicode.In(r, unicode.Cf, unicode.Variation_Selector,
		unicode.Other_Default_Ignorable_Code_Point)
	if isHidden {
		return "", size
	}
	return string(text[:size]), size
}
