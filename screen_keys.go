// screen_keys.go - the keys in what a terminal sends.
// SPDX-License-Identifier: 0BSD

package main

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// keys takes apart what a terminal sends: characters, escape sequences, and what is pasted between
// two marks. Any of these may come in several pieces.
type keys struct {
	unread   []byte
	pasting  bool // what is unread is being pasted
	overlong bool // more than maxPaste was pasted, and its beginning is dropped
}

// maxPaste is how many bytes may be pasted at once.
const maxPaste = 4 << 20

// endOfPaste is what a terminal sends after what was pasted.
const endOfPaste = "\x1b[201~"

// alt is what a key is multiplied with if Alt is held down. A terminal sends ESC before such a key.
const alt = -1

// Keys that are no characters have the number of the control character that does the same, such as
// Ctrl-A for the beginning of the line.
const (
	keyStart     = 1  // Ctrl-A
	keyLeft      = 2  // Ctrl-B
	keyEnd       = 5  // Ctrl-E
	keyRight     = 6  // Ctrl-F
	keyDown      = 14 // Ctrl-N
	keyUp        = 16 // Ctrl-P
	keyWordLeft  = alt * 'b'
	keyWordRight = alt * 'f'

	keyErase        = 0x7F // Backspace
	keyEraseLeft    = '\b' // Backspace on some terminals, Ctrl-H
	keyEraseLine    = 21   // Ctrl-U
	keyEraseEnd     = 11   // Ctrl-K
	keyEraseWord    = 23   // Ctrl-W
	keyEraseWordEnd = alt * 'd'
	keyDelete       = alt * 4

	keyEnter      = '\r'
	keyEnterAhead = '\n' // Enter, typed before the terminal gives the keys
	keyNewLine    = alt * '\r'
	keyTab        = '\t'
	keyClose      = 4  // Ctrl-D
	keyStop       = 26 // Ctrl-Z
	keySearch     = 18 // Ctrl-R
	keyEndSearch  = 7  // Ctrl-G

	// A text was pasted, or one that is too long.
	keyPaste     = utf8.MaxRune + 1
	keyLostPaste = utf8.MaxRune + 2
)

// sequence is an escape sequence, or the beginning of one. Whatever breaks it is a key of its own.
var sequence = regexp.MustCompile(`^\x1b[\[O](\[?[ -?]{0,64}([@-~]?))`)

// sequenceKey returns the key with such an end of its escape sequence; 0 if it has no meaning here.
// Terminals differ in what they send for a key. "13;2u" is Shift-Enter.
func sequenceKey(end string) rune {
	switch end {
	case "A":
		return keyUp
	case "B":
		return keyDown
	case "C":
		return keyRight
	case "D":
		return keyLeft
	case "H", "1~", "7~":
		return keyStart
	case "F", "4~", "8~":
		return keyEnd
	case "3~":
		return keyDelete
	case "1;5C", "1;3C", "5C", "c":
		return keyWordRight
	case "1;5D", "1;3D", "5D", "d":
		return keyWordLeft
	case "13;2u":
		return keyNewLine
	case "200~":
		return keyPaste
	}
	return 0
}

// next takes the first key out of what is unread. A paste is two keys of keyPaste: its beginning,
// and its end with what was pasted. ok is false if no key is whole.
func (k *keys) next() (key rune, pasted string, ok bool) {
	if k.pasting {
		return k.nextPaste()
	}
	size, key := firstKey(k.unread)
	k.unread = k.unread[size:]
	k.pasting = key == keyPaste
	return key, "", size > 0
}

// nextPaste takes out what was pasted, when all of it is here. Of what is too long only so much is
// kept as may be the beginning of its end.
func (k *keys) nextPaste() (key rune, pasted string, ok bool) {
	text, rest, ended := bytes.Cut(k.unread, []byte(endOfPaste))
	if len(text) > maxPaste {
		text = slices.Clone(text[len(text)-len(endOfPaste):])
		k.overlong = true
	}
	if !ended {
		k.unread = text
		return 0, "", false
	}
	key = keyPaste
	if k.overlong {
		key = keyLostPaste
	}
	*k = keys{unread: slices.Clone(rest)}
	return key, strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(string(text)), true
}

// firstKey returns the first key and its size: 0 if it may go on. The key is 0 if it has no
// meaning.
func firstKey(in []byte) (size int, key rune) {
	if m := sequence.FindSubmatch(in); m != nil {
		hasEnd := len(m[2]) > 0
		isBroken := len(m[0]) < len(in)
		if hasEnd || isBroken {
			return len(m[0]), sequenceKey(string(m[1]))
		}
		return 0, 0
	}
	if !utf8.FullRune(in) || string(in) == "\x1b" {
		return 0, 0
	}
	key, size = utf8.DecodeRune(in)
	switch {
	case key == utf8.RuneError:
		return size, 0
	case key != '\x1b':
		return size, key
	case in[1] == '\x1b':
		// The second one begins a key.
		return size, 0
	}
	size, key = firstKey(in[1:])
	if size == 0 {
		return 0, 0
	}
	return size + 1, alt * key
}
