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
func (s *scanner) peek() (c byte) {
	s.at, c = next(s.text, s.at)
	return c
}

// next returns the first byte from i on that is not white space, 0 at the end, and its index.
func next(b []byte, i int) (int, byte) {
	for ; i < len(b); i++ {
		if c := b[i]; c > ' ' || c != ' ' && c != '\n' && c != '\t' && c != '\r' {
			return i, c
		}
	}
	return i, 0
}

// object reads an object. For each member it calls member, which must read the value.
func (s *scanner) object(member func(key []byte)) { s.list('{', member) }

// array reads an array. For each element it calls element, which must read it.
func (s *scanner) array(element func()) { s.list('[', func([]byte) { element() }) }

// list reads an object or an array. It calls item for each value, with the decoded name of a member; without item it
// passes over the values. Here most of the time is spent, so the place in the text is a local variable.
func (s *scanner) list(opening byte, item func(key []byte)) {
	b, closing := s.text, opening+2 // of [] as of {}
	i, c := next(b, s.at)
	if s.depth++; c != opening || s.depth > 10000 {
		s.fail()
		return
	}
	i, c = next(b, i+1)
	for more := c != closing; more; {
		var key []byte
		if opening == '{' {
			start, first := i+1, c
			end, escaped := s.stringEnd(start)
			if i, c = next(b, end); first != '"' || c != ':' {
				s.fail()
				return
			}
			if key = b[start : end-1]; escaped && item != nil {
				name, _ := unquote(key)
				key = []byte(name)
			}
			i, c = next(b, i+1)
		}
		if item == nil {
			i = s.valueEnd(i, c)
		} else {
			s.at = i
			item(key)
			i = s.at
		}
		i, c = next(b, i)
		if more = c == ','; more {
			i, c = next(b, i+1) // of a value: a closing bracket is none
		}
	}
	if c != closing {
		s.fail()
		return
	}
	s.at = i + 1
	s.depth--
}

// valueEnd returns the end of the value at i, which begins with c.
func (s *scanner) valueEnd(i int, c byte) int {
	switch c {
	case '"':
		end, _ := s.stringEnd(i + 1)
		return end
	case '{', '[':
		s.at = i
		s.list(c, nil)
		return s.at
	}
	return s.wordEnd(i)
}

// wordEnd returns the end of a literal or a number. json.Valid, which is slower, judges those that are less common.
func (s *scanner) wordEnd(i int) int {
	b, end := s.text, i
	for end < len(b) && '0' <= b[end] && b[end] <= '9' {
		end++
	}
	digits := end
	for end < len(b) && b[end] > ' ' && b[end] != ',' && b[end] != ']' && b[end] != '}' {
		end++
	}
	if end == i {
		return len(b) + 1
	}
	word := b[i:end]
	known := string(word) == "true" || string(word) == "false" || string(word) == "null"
	if s.loose || known || digits == end && (word[0] != '0' || len(word) == 1) || json.Valid(word) {
		return end
	}
	return len(b) + 1
}

// value passes over one value of any kind and returns its text.
func (s *scanner) value() []byte {
	c := s.peek()
	start := min(s.at, len(s.text))
	s.at = s.valueEnd(s.at, c)
	if !s.ok() && !s.loose {
		return nil
	}
	end := min(s.at, len(s.text))
	return s.text[start:end:end]
}

// string reads a string and decodes it, exactly as encoding/json does (FuzzScanner). Why not by stringEnd? It judges
// each escape, which unquote has to do again. To look for one kind of byte at a time is faster.
func (s *scanner) string() string {
	valid := s.peek() == '"'
	for end := s.at; valid; {
		n := bytes.IndexByte(s.text[end+1:], '"')
		if end += 1 + n; n < 0 {
			break
		}
		before := end
		for s.text[before-1] == '\\' {
			before--
		}
		if (end-before)%2 == 0 { // else the last backslash escapes the quote
			var decoded string
			if decoded, valid = unquote(s.text[s.at+1 : end]); valid || s.loose {
				s.at = end + 1
				return decoded
			}
		}
	}
	s.fail()
	return ""
}

const each = 0x0101010101010101 // a word whose eight bytes are 1

// stringEnd returns the index after the quote of a string whose text begins at i, and whether it has escapes. It looks
// for a quote, a backslash or a control character in eight bytes at a time: in a byte smaller than what is subtracted,
// the subtraction borrows into the high bit. Where it finds none for some lines of text, isPlain goes on, which would
// search in vain if there were a newline in each line.
func (s *scanner) stringEnd(i int) (end int, escaped bool) {
	const piece = 256
	for b, far := s.text, i+piece; ; far = i + piece {
		for i+8 <= len(b) {
			if i >= far {
				if far = i + piece; far <= len(b) && isPlain(b[i:far]) {
					i = far
					continue
				}
			}
			w := binary.LittleEndian.Uint64(b[i:])
			quote, backslash := w^each*'"', w^each*'\\'
			found := ((quote - each) | (backslash - each) | (w - each*' ')) &^ w & (each * 0x80)
			if found != 0 { // the lowest bit is right; a borrow can spoil only higher ones
				i += bits.TrailingZeros64(found) / 8
				break
			}
			i += 8
		}
		for i < len(b) && b[i] != '"' && b[i] != '\\' && b[i] >= ' ' {
			i++
		}
		switch left := len(b) - i; {
		case left > 0 && b[i] == '"':
			return i + 1, escaped
		case left > 1 && b[i] == '\\' && unescaped(b[i+1]) != 0:
			i += 2
		case left > 5 && b[i] == '\\' && b[i+1] == 'u' && isHex(b[i+2:i+6]):
			i += 6
		case left > 0 && s.loose:
			i++
		default:
			return len(b) + 1, false
		}
		escaped = true
	}
}

// isPlain reports whether there is no quote, backslash or control character. In long texts this is three times as fast
// as looking for all of them at once: bytes.IndexByte takes 32 bytes at a time.
func isPlain(b []byte) bool {
	return bytes.IndexByte(b, '"') < 0 && bytes.IndexByte(b, '\\') < 0 && !hasControl(b)
}

// hasControl reports whether there is a control character; see stringEnd.
func hasControl(b []byte) bool {
	var found uint64
	for ; len(b) >= 32; b = b[32:] {
		v, w := binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])
		x, y := binary.LittleEndian.Uint64(b[16:]), binary.LittleEndian.Uint64(b[24:])
		found |= (v-each*' ')&^v | (w-each*' ')&^w | (x-each*' ')&^x | (y-each*' ')&^y
	}
	for _, c := range b {
		found |= (uint64(c) - ' ') &^ uint64(c)
	}
	return found&(each*0x80) != 0
}

// unquote decodes what is between a string's quotes, and reports whether it is valid. What is rare is left to
// encoding/json: \u escapes, invalid UTF-8, mistakes.
func unquote(raw []byte) (text string, valid bool) {
	simple := !hasControl(raw) && utf8.Valid(raw)
	if simple && bytes.IndexByte(raw, '\\') < 0 {
		return string(raw), true
	}
	var b strings.Builder
	b.Grow(len(raw))
	for left := raw; simple; {
		i := bytes.IndexByte(left, '\\')
		if i < 0 {
			b.Write(left)
			return b.String(), true
		}
		c := unescaped(left[i+1])
		b.Write(left[:i])
		b.WriteByte(c)
		left, simple = left[i+2:], c != 0
	}
	var rare string // not the result, which would then be on the heap in each case
	err := json.Unmarshal(slices.Concat([]byte{'"'}, raw, []byte{'"'}), &rare)
	return rare, err == nil
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
	_, err := strconv.ParseUint(string(digits), 16, 16)
	return err == nil
}

// appendJSON appends a value's JSON on one line. Raw JSON stays as it is, but must be valid.
func appendJSON(b []byte, v any) ([]byte, error) {
	if raw, ok := v.(json.RawMessage); ok {
		text, err := onOneLine(raw)
		return append(b, text...), err
	}
	text, err := json.Marshal(v)
	return append(b, text...), err
}

// PlainJSON is json.Marshal without the escapes for <, > and &. In a text that a model reads they
// would cost tokens.
func PlainJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
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
