// json.go - reading JSON without decoding it.
// Needs: Go 1.25.
// SPDX-License-Identifier: 0BSD

package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// scanner reads JSON without decoding it, several times as fast as encoding/json: each value is
// passed over once, and what is of interest is returned as it stands in the text. Whatever it
// passes over is valid JSON, by the measure of encoding/json (FuzzScanner). After the first
// mistake ok and end return false, and values are empty.
type scanner struct {
	text  []byte
	at    int // next byte; len(text)+1 after a mistake
	depth int // of the value being read

	// loose also accepts NaN, any other word, bad escapes and control characters. The last value
	// may be cut off.
	loose bool
}

// withoutBOM returns a text without the byte order mark that it may begin with. JSON has none, but
// a reader may skip one (RFC 8259, 8.1), and what is written on Windows often has one: by
// PowerShell, .NET and Notepad.
func withoutBOM(text []byte) []byte { return bytes.TrimPrefix(text, []byte("\ufeff")) }

// oneLine returns the beginning of a text of the peer, for an error. It ends between words:
// half of a secret would not be recognised, and taken out, where the error is shown.
func oneLine(text []byte) string {
	line := ""
	for word := range bytes.FieldsSeq(text) {
		if len(line)+len(word) > 300 {
			return line + "…"
		}
		line += strings.ToValidUTF8(string(word), "") + " "
	}
	return strings.TrimSuffix(line, " ")
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
	at, c := skipSpace(s.text, s.at)
	s.at = at
	return c
}

// skipSpace returns the first byte from i on that is not white space, 0 at the end, and its index.
func skipSpace(b []byte, i int) (int, byte) {
	for ; i < len(b); i++ {
		c := b[i]
		// Nearly every byte is above the space, so this comparison comes first.
		if c > ' ' || c != ' ' && c != '\n' && c != '\t' && c != '\r' {
			return i, c
		}
	}
	return i, 0
}

// object reads an object. For each member it calls member, which must read the value.
func (s *scanner) object(member func(key []byte)) { s.list('{', member) }

// array reads an array. For each element it calls element, which must read it.
func (s *scanner) array(element func()) { s.list('[', func([]byte) { element() }) }

const maxDepth = 10_000 // of objects and arrays in each other: the limit of encoding/json

// list reads an object or an array, from its opening bracket to the closing one. It calls item
// for each value, with the decoded name of a member. Without item it passes over the values.
// Most of the time of the scanner is spent here, so the place in the text is a local variable.
//
// At the head of the loop, i is where a value or a member must begin, and c is the byte there.
// After a comma a closing bracket is no value, so a comma before it is a mistake.
func (s *scanner) list(opening byte, item func(key []byte)) {
	b := s.text
	closing := byte(']')
	if opening == '{' {
		closing = '}'
	}
	i, c := skipSpace(b, s.at)
	s.depth++
	if c != opening || s.depth > maxDepth {
		s.fail()
		return
	}
	i, c = skipSpace(b, i+1)
	if c == closing {
		s.at = i + 1
		s.depth--
		return
	}
	for {
		var key []byte
		if opening == '{' {
			end := 0
			key, end = s.key(i, c, item != nil)
			if end > len(b) {
				s.fail()
				return
			}
			i, c = skipSpace(b, end)
		}
		if item == nil {
			i = s.valueEnd(i, c)
		} else {
			s.at = i
			item(key)
			i = s.at
		}
		i, c = skipSpace(b, i)
		if c != ',' {
			break
		}
		i, c = skipSpace(b, i+1)
	}
	if c != closing {
		s.fail()
		return
	}
	s.at = i + 1
	s.depth--
}

// key reads the name of a member, which begins at i with c, and its colon. It returns the name,
// which is decoded only if that is wanted, and the index after the colon, or len(text)+1 after a
// mistake.
func (s *scanner) key(i int, c byte, decode bool) (key []byte, end int) {
	mistake := len(s.text) + 1
	if c != '"' {
		return nil, mistake
	}
	end, escaped := s.stringEnd(i + 1)
	colon, next := skipSpace(s.text, end)
	if next != ':' {
		return nil, mistake
	}
	key = s.text[i+1 : end-1]
	if escaped && decode {
		name, _ := unquote(key)
		key = []byte(name)
	}
	return key, colon + 1
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

// wordEnd returns the end of a literal or a number. It judges the usual ones itself. The others
// are for json.Valid, which is slower.
func (s *scanner) wordEnd(i int) int {
	b := s.text
	mistake := len(b) + 1
	end := i
	for end < len(b) && '0' <= b[end] && b[end] <= '9' {
		end++
	}
	digitsEnd := end
	for end < len(b) && isWordByte(b[end]) {
		end++
	}
	if end == i {
		return mistake
	}
	word := b[i:end]
	isWhole := digitsEnd == end && (word[0] != '0' || len(word) == 1)
	if s.loose || isWhole {
		return end
	}
	switch string(word) {
	case "true", "false", "null":
		return end
	}
	if json.Valid(word) {
		return end
	}
	return mistake
}

// isWordByte reports whether a byte can be of a literal or a number, and not what follows one.
func isWordByte(c byte) bool {
	return c > ' ' && c != ',' && c != ']' && c != '}'
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

// string reads a string and decodes it, exactly as encoding/json does (FuzzScanner). Why not by
// stringEnd? It judges each escape, which unquote has to do again. To look for the quotes alone is
// faster.
func (s *scanner) string() string {
	if s.peek() != '"' {
		s.fail()
		return ""
	}
	quote := s.at
	for {
		n := bytes.IndexByte(s.text[quote+1:], '"')
		if n < 0 {
			s.fail()
			return ""
		}
		quote += 1 + n
		backslashes := 0
		for s.text[quote-1-backslashes] == '\\' {
			backslashes++
		}
		if backslashes%2 == 1 {
			// The last backslash escapes the quote.
			continue
		}
		decoded, valid := unquote(s.text[s.at+1 : quote])
		if valid || s.loose {
			s.at = quote + 1
			return decoded
		}
		s.fail()
		return ""
	}
}

const each = 0x0101010101010101 // a word whose eight bytes are 1

// stringEnd returns the index after the quote that ends a string, whose text begins at i, and
// whether it has escapes. After a mistake that index is len(text)+1.
func (s *scanner) stringEnd(i int) (end int, escaped bool) {
	b := s.text
	for {
		i = plainEnd(b, i)
		if i < len(b) && b[i] == '"' {
			return i + 1, escaped
		}
		size := escapeSize(b[min(i, len(b)):])
		if size == 0 && s.loose && i < len(b) {
			// A bad escape or a control character.
			size = 1
		}
		if size == 0 {
			return len(b) + 1, false
		}
		i += size
		escaped = true
	}
}

// plainEnd returns the index of the first quote, backslash or control character from i on,
// len(b) if there is none.
//
// It looks at eight bytes at a time. To subtract n from a byte that is smaller than n sets its high
// bit: n is the space for the control characters, and 1 for the bytes of quote and backslash, which
// are 0 where the text has that character. The high bits of bytes above 127, which are set before,
// do not count. A subtraction also borrows from the next higher byte, so a bit above the lowest
// one may be wrong, and only the lowest is used.
//
// After 256 bytes without a hit, isPlain checks the next 256 at once. A text with a newline in each
// line has the escape \n there, and so seldom gets that far: it does not pay for isPlain.
func plainEnd(b []byte, i int) int {
	const piece = 256
	far := i + piece
	for i+8 <= len(b) {
		if i >= far {
			far = i + piece
			if far <= len(b) && isPlain(b[i:far]) {
				i = far
				continue
			}
		}
		w := binary.LittleEndian.Uint64(b[i:])
		quote := w ^ each*'"'
		backslash := w ^ each*'\\'
		borrows := (quote - each) | (backslash - each) | (w - each*' ')
		found := borrows &^ w & (each * 0x80)
		if found != 0 {
			i += bits.TrailingZeros64(found) / 8
			break
		}
		i += 8
	}
	for i < len(b) && b[i] != '"' && b[i] != '\\' && b[i] >= ' ' {
		i++
	}
	return i
}

// escapeSize returns the number of bytes of the escape that a text begins with, 0 if it is none.
func escapeSize(b []byte) int {
	switch {
	case len(b) < 2 || b[0] != '\\':
		return 0
	case unescaped(b[1]) != 0:
		return 2
	case len(b) >= 6 && b[1] == 'u' && isHex(b[2:6]):
		return 6
	}
	return 0
}

// isPlain reports whether there is no quote, backslash or control character. In long texts this
// is three times as fast as looking for all of them at once: bytes.IndexByte takes 32 bytes at a
// time.
func isPlain(b []byte) bool {
	return bytes.IndexByte(b, '"') < 0 && bytes.IndexByte(b, '\\') < 0 && !hasControl(b)
}

// hasControl reports whether there is a control character, by the borrows that plainEnd looks for.
func hasControl(b []byte) bool {
	var found uint64
	for ; len(b) >= 32; b = b[32:] {
		v := binary.LittleEndian.Uint64(b)
		w := binary.LittleEndian.Uint64(b[8:])
		x := binary.LittleEndian.Uint64(b[16:])
		y := binary.LittleEndian.Uint64(b[24:])
		found |= (v-each*' ')&^v | (w-each*' ')&^w | (x-each*' ')&^x | (y-each*' ')&^y
	}
	for _, c := range b {
		found |= (uint64(c) - ' ') &^ uint64(c)
	}
	return found&(each*0x80) != 0
}

// unquote decodes what is between a string's quotes, and reports whether it is valid. What is
// rare is left to encoding/json: \u escapes, invalid UTF-8, mistakes.
func unquote(raw []byte) (text string, valid bool) {
	if hasControl(raw) || !utf8.Valid(raw) {
		return unquoteRare(raw)
	}
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw), true
	}
	var b strings.Builder
	b.Grow(len(raw))
	left := raw
	for {
		i := bytes.IndexByte(left, '\\')
		if i < 0 {
			b.Write(left)
			return b.String(), true
		}
		c := unescaped(left[i+1])
		if c == 0 {
			return unquoteRare(raw)
		}
		b.Write(left[:i])
		b.WriteByte(c)
		left = left[i+2:]
	}
}

func unquoteRare(raw []byte) (text string, valid bool) {
	quoted := slices.Concat([]byte{'"'}, raw, []byte{'"'})
	err := json.Unmarshal(quoted, &text)
	return text, err == nil
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
