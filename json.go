// json.go - reading JSON without decoding it.
// Needs: Go 1.25.
// SPDX-License-Identifier: 0BSD

package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// scanner reads JSON without decoding it, several times as fast as encoding/json: each value is passed over once, and
// what is of interest is returned as it stands in the text. Whatever it passes over is valid JSON, by the measure of
// encoding/json (FuzzScanner). After the first mistake ok and end return false, and values are empty.
type scanner struct {
	text  []byte
	at    int // next byte; len(text)+1 after a mistake
	depth int // of the value being read; encoding/json allows 10,000

	// loose also accepts NaN, any other word, bad escapes and control characters. The last value may be cut off.
	loose bool
}

func validJSON(text []byte) bool {
	s := scanner{text: text}
	s.value()
	return s.end()
}

// end reports whether all of the text was read without a mistake.
func (s *scanner) end() bool {
	s.peek()
	return s.at == len(s.text)
}

// ok reports whether there was no mistake so far.
func (s *scanner) ok() bool { return s.at <= len(s.text) }

// fail marks the text as not valid, or not what was asked for.
func (s *scanner) fail() { s.at = len(s.text) + 1 }

// peek skips white space and returns the next byte, 0 at the end.
func (s *scanner) peek() byte {
	for s.at < len(s.text) {
		switch c := s.text[s.at]; c {
		case ' ', '\t', '\r', '\n':
			s.at++
		default:
			return c
		}
	}
	return 0
}

// take consumes the next byte after white space if it is c.
func (s *scanner) take(c byte) bool {
	if s.peek() != c {
		return false
	}
	s.at++
	return true
}

// object reads an object. For each member it calls member, which must read the value.
func (s *scanner) object(member func(key []byte)) { s.list('{', '}', member) }

// array reads an array. For each element it calls element, which must read it.
func (s *scanner) array(element func()) { s.list('[', ']', func([]byte) { element() }) }

func (s *scanner) list(opening, closing byte, item func(key []byte)) {
	if s.depth++; s.depth > 10000 || !s.take(opening) {
		s.fail()
		return
	}
	for first := true; !s.take(closing); first = false {
		if !first && !s.take(',') {
			s.fail()
			return
		}
		var key []byte
		if opening == '{' {
			if key = s.key(); !s.take(':') {
				s.fail()
				return
			}
		}
		item(key)
		if !s.ok() {
			return
		}
	}
	s.depth--
}

// key reads a member's name, decoded if it has escapes.
func (s *scanner) key() []byte {
	raw, kind := s.quoted()
	if kind == plainText {
		return raw
	}
	return []byte(unquote(raw, kind))
}

// string reads a string and decodes it, exactly as encoding/json does (FuzzScanner).
func (s *scanner) string() string { return unquote(s.quoted()) }

// value passes over one value of any kind and returns its text.
func (s *scanner) value() []byte {
	c := s.peek()
	start := min(s.at, len(s.text))
	switch {
	case c == '{':
		s.object(func([]byte) { s.value() })
	case c == '[':
		s.array(func() { s.value() })
	case c == '"':
		s.quoted()
	case s.loose:
		s.word()
	case c == 't':
		s.literal("true")
	case c == 'f':
		s.literal("false")
	case c == 'n':
		s.literal("null")
	default:
		s.number()
	}
	if !s.ok() && !s.loose {
		return nil
	}
	end := min(s.at, len(s.text))
	return s.text[start:end:end]
}

func (s *scanner) literal(word string) {
	if !bytes.HasPrefix(s.text[s.at:], []byte(word)) {
		s.fail()
		return
	}
	s.at += len(word)
}

// word passes over a literal or a number, valid or not.
func (s *scanner) word() {
	start := s.at
	for s.at < len(s.text) && strings.IndexByte(",]} \t\r\n", s.text[s.at]) < 0 {
		s.at++
	}
	if s.at == start {
		s.fail()
	}
}

// number passes over a number (RFC 8259, 6). Most are whole numbers; json.Valid, which is slower, judges the others.
func (s *scanner) number() {
	start := s.at
	for s.at < len(s.text) && '0' <= s.text[s.at] && s.text[s.at] <= '9' {
		s.at++
	}
	whole := s.at > start && (s.text[start] != '0' || s.at == start+1)
	for s.at < len(s.text) && strings.IndexByte("+-.0123456789eE", s.text[s.at]) >= 0 {
		s.at, whole = s.at+1, false
	}
	if !whole && (!s.ok() || !json.Valid(s.text[start:s.at])) {
		s.fail()
	}
}

// What stands between a string's quotes.
const (
	plainText   = iota // the string itself, but for invalid UTF-8
	escapedText        // escapes of two characters
	unicodeText        // \u escapes, too
)

// quoted passes over a string and returns what is between the quotes, and of what kind it is.
func (s *scanner) quoted() (raw []byte, kind int) {
	if !s.take('"') {
		s.fail()
		return nil, plainText
	}
	for b, i := s.text, s.at; ; i++ {
		i = special(b, i)
		switch {
		case i < len(b) && b[i] < ' ' && s.loose:
			continue
		case i == len(b) || b[i] < ' ':
			s.fail()
			return nil, plainText
		case b[i] == '"':
			raw, s.at = b[s.at:i], i+1
			return raw, kind
		}
		i++ // a backslash
		switch {
		case i < len(b) && unescaped(b[i]) != 0:
			kind = max(kind, escapedText)
		case len(b)-i > 4 && b[i] == 'u' && isHex(b[i+1:i+5]):
			kind = unicodeText
			i += 4
		case !s.loose || i == len(b):
			s.fail()
			return nil, plainText
		}
	}
}

// special returns the index, from i on, of the next quote, backslash or control character, or len(b). It looks at
// eight bytes at a time: in a byte smaller than what is subtracted, the subtraction borrows into the high bit.
func special(b []byte, i int) int {
	const each = 0x0101010101010101
	for ; i+8 <= len(b); i += 8 {
		w := binary.LittleEndian.Uint64(b[i:])
		quote, backslash := w^each*'"', w^each*'\\'
		found := ((quote-each)&^quote | (backslash-each)&^backslash | (w-each*' ')&^w) & (each * 0x80)
		if found != 0 { // the lowest bit is right; a borrow can spoil only higher ones
			return i + bits.TrailingZeros64(found)/8
		}
	}
	for i < len(b) && b[i] != '"' && b[i] != '\\' && b[i] >= ' ' {
		i++
	}
	return i
}

// unquote decodes what is between a string's quotes. Surrogates and invalid UTF-8 are left to encoding/json.
func unquote(raw []byte, kind int) string {
	if kind == unicodeText || !utf8.Valid(raw) {
		var decoded string
		_ = json.Unmarshal(slices.Concat([]byte{'"'}, raw, []byte{'"'}), &decoded)
		return decoded
	}
	if kind == plainText {
		return string(raw)
	}
	var b strings.Builder
	b.Grow(len(raw))
	for {
		i := bytes.IndexByte(raw, '\\')
		if i < 0 {
			b.Write(raw)
			return b.String()
		}
		b.Write(raw[:i])
		b.WriteByte(unescaped(raw[i+1]))
		raw = raw[i+2:]
	}
}

// unescaped returns what a backslash and c stand for, 0 if nothing.
func unescaped(c byte) byte {
	switch c {
	case '"', '\\', '/':
		return c
	case 'b':
		return '\b'
	case 'f':
		return '\f'
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	}
	return 0
}

func isHex(digits []byte) bool {
	for _, c := range digits {
		if !('0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'f') {
			return false
		}
	}
	return true
}

// appendJSON appends a value's JSON on one line. Raw JSON stays as it is, but must be valid.
func appendJSON(b []byte, v any) ([]byte, error) {
	var text []byte
	var err error
	if raw, ok := v.(json.RawMessage); ok {
		text, err = onOneLine(raw)
	} else {
		text, err = json.Marshal(v)
	}
	return append(b, text...), err
}

// onOneLine returns JSON as it is, or compacted if it has line breaks. The error says why it is invalid; nil is null.
func onOneLine(raw json.RawMessage) (json.RawMessage, error) {
	if !utf8.Valid(raw) {
		raw = bytes.ToValidUTF8(raw, []byte("\uFFFD")) // as encoding/json does with a string
	}
	if bytes.IndexByte(raw, '\n') < 0 && validJSON(raw) {
		return raw, nil
	}
	return json.Marshal(raw)
}

// joinMembers appends members to an object that is still open.
func joinMembers(b, members []byte) []byte {
	if len(members) > 0 && b[len(b)-1] != '{' { // no JSON value ends with {
		b = append(b, ',')
	}
	return append(b, members...)
}

// appendKey appends the name of the next member: to an object that is still open, or to members that stand alone.
func appendKey(b []byte, name string) []byte {
	if len(b) > 0 && b[len(b)-1] != '{' {
		b = append(b, ',')
	}
	return append(appendString(b, name), ':')
}

// idNumber returns the whole number that a JSON-RPC id or a progress token holds. Peers whose language has one type
// for all numbers, or that keep ids as text, send a 1 back as 1.0 or "1".
func idNumber(raw []byte) (id int64, ok bool) {
	whole, fraction, _ := strings.Cut(string(bytes.Trim(raw, `"`)), ".")
	n, err := strconv.ParseUint(whole, 10, 63)
	return int64(n), err == nil && strings.Trim(fraction, "0") == ""
}

// isID reports whether JSON can be the id of a request: a string or a whole number (MCP 2025-11-25, basic, requests).
func isID(raw []byte) bool {
	f, err := strconv.ParseFloat(string(raw), 64)
	return len(raw) > 0 && raw[0] == '"' || err == nil && f == math.Trunc(f)
}

// appendString appends a string as JSON.
func appendString(b []byte, s string) []byte {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' || s[i] == '"' || s[i] == '\\' {
			text, _ := json.Marshal(s) // a string always encodes
			return append(b, text...)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}
