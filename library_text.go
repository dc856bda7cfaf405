// library_text.go - which files are text, and in which encoding.
// SPDX-License-Identifier: 0BSD

package main

import (
	"bytes"
	"encoding/binary"
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// isText decides by the name, because files without a known extension are often keys, data or
// dumps.
func isText(name string) bool {
	const code = `.bash .bat .c .cc .cfg .conf .cpp .cs .css .csv .dart .el .ex .go .h .hpp .hs .htm
		.html .ini .java .jl .js .json .jsonl .jsx .kt .lua .mjs .ml .php .pl .proto .ps1 .py .r .rb
		.rs .scala .sh .sql .svelte .swift .tf .toml .ts .tsv .tsx .vue .xml .yaml .yml .zig`
	return isProse(name) || hasExtension(name, code)
}

func isProse(name string) bool {
	return hasExtension(name, ".adoc .markdown .md .mdx .org .rst .tex .text .txt")
}

func hasExtension(name, extensions string) bool {
	return slices.Contains(strings.Fields(extensions), strings.ToLower(path.Ext(name)))
}

// notText is the reason to leave out a file that is found by reading it.
const notText = "not text"

// decodeText returns the text of a file in UTF-8, Windows-1252 or, after its byte order mark,
// UTF-16, or the reason to leave it out. What is valid UTF-8 is hardly ever anything but text, so
// only a zero byte is refused there. In the other encodings any bytes decode to something, so a
// control character shows that the guess was wrong.
func decodeText(b []byte) (text, reason string) {
	b = withoutBOM(b)
	isText := false
	if order := byteOrder(b); order != nil && len(b)%2 == 0 {
		text = decodeUTF16(b[2:], order)
		isText = !hasBinary(text) && !strings.ContainsRune(text, utf8.RuneError)
	} else if utf8.Valid(b) {
		text = string(b)
		isText = !strings.Contains(text, "\x00")
	} else {
		text = decodeInvalidUTF8(b)
		isText = !hasBinary(text)
	}
	if !isText {
		return "", notText
	}
	return text, ""
}

// hasBinary reports whether a text has a control character that only binary files have. Escape is
// one that they have: it begins a colour.
func hasBinary(text string) bool {
	return strings.ContainsFunc(text, func(r rune) bool {
		return unicode.IsControl(r) && !strings.ContainsRune("\t\n\v\f\r\x1b", r)
	})
}

// byteOrder returns the order that the byte order mark of UTF-16 tells, nil without a mark.
func byteOrder(b []byte) binary.ByteOrder {
	switch {
	case bytes.HasPrefix(b, []byte("\xff\xfe")):
		return binary.LittleEndian
	case bytes.HasPrefix(b, []byte("\xfe\xff")):
		return binary.BigEndian
	}
	return nil
}

// decodeUTF16 decodes an even number of bytes.
func decodeUTF16(b []byte, order binary.ByteOrder) string {
	var units []uint16
	for unit := range slices.Chunk(b, 2) {
		units = append(units, order.Uint16(unit))
	}
	return string(utf16.Decode(units))
}

// decodeInvalidUTF8 decodes a text that is nearly UTF-8, or else Windows-1252. A UTF-8 text with a
// broken character here and there keeps all others, so it is taken for Windows-1252 only if it has
// at least as much invalid as valid UTF-8. What is counted is bytes beyond one a character: a
// replacement character itself has two of them.
func decodeInvalidUTF8(b []byte) string {
	text := strings.ToValidUTF8(string(b), "\ufffd")
	extraBytes := len(text) - utf8.RuneCountInString(text)
	replaced := strings.Count(text, "\ufffd")
	if extraBytes <= 3*replaced {
		return decodeWindows1252(b)
	}
	return text
}

// windows1252 has the characters of the bytes from 0x80 to 0x9F in Windows-1252. Every other byte
// is the character of the same number, as in Latin-1. A byte without a character has its control
// character.
const windows1252 = "€\u0081‚ƒ„…†‡ˆ‰Š‹Œ\u008dŽ\u008f" +
	"\u0090‘’“”•–—˜™š›œ\u009džŸ"

func decodeWindows1252(b []byte) string {
	table := []rune(windows1252)
	decoded := make([]rune, len(b))
	for i, c := range b {
		if 0x80 <= c && c < 0xA0 {
			decoded[i] = table[c-0x80]
		} else {
			decoded[i] = rune(c)
		}
	}
	return string(decoded)
}
