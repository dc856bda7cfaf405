// screen_edit.go - the line editor: what a key does to a text with a cursor.
// SPDX-License-Identifier: 0BSD

package main

import (
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// editor is a text that is being edited. It knows no terminal: Prompter gives it the keys, and
// Screen draws its rows. It is used under the lock of its Prompter.
type editor struct {
	prompt  string   // before the text
	hidden  bool     // the text is not shown
	history *history // of what was said; nil of an answer, whose lines no backslash continues

	cells []string // what the cursor moves over: a character with its marks, or all of a long text
	at    int      // the cursor is before this cell
	back  int      // the entry of the history that is shown, counted from its end; 0 is none
	draft []string // what was typed before an entry of the history was shown

	search *historySearch // nil while nothing is searched for

	columns, size int // of the window for which it was drawn last
	top           int // the row that was the first one there
}

// A text that comes at once is one cell if it has so many lines, or more bytes.
const (
	maxLines = 6
	maxText  = 1000
)

// character is a character with its marks, of which a few are enough: accents, parts of Korean
// syllables, tones of skin, and what is joined to it. A flag consists of two characters.
var character = regexp.MustCompile(`[\x{1F1E6}-\x{1F1FF}]{2}|\n|\t|` +
	`[^\n\t](?:\x{200D}[^\n\t]|[\p{Mn}\p{Me}\p{Cf}\x{1160}-\x{11FF}\x{1F3FB}-\x{1F3FF}]){0,12}`)

// maxCharacter is how many bytes a cell may have that is a character.
const maxCharacter = 100

// cellsOf takes a text apart, without what Visible shows a sign for.
func cellsOf(text string) []string {
	text = strings.ReplaceAll(Visible(text), "\uFFFD", "")
	if len(text) > maxText || strings.Count(text, "\n") >= maxLines-1 {
		return []string{text}
	}
	return character.FindAllString(text, -1)
}

// isLong reports whether a cell is a text, and no character.
func isLong(cell string) bool {
	return len(cell) > maxCharacter || len(cell) > 1 && strings.Contains(cell, "\n")
}

// textBefore is what stands before a cell.
func (e *editor) textBefore(end int) string { return strings.Join(e.cells[:end], "") }

// set takes another text in place of what is there, and has the cursor at its end.
func (e *editor) set(cells []string, back int) {
	e.cells = cells
	e.at = len(cells)
	e.back = back
	e.search = nil
}

// insert puts a text before the cursor. A short one may be a mark of the character before it, with
// which it makes one cell.
func (e *editor) insert(text string) {
	begin := e.at
	if len(text) <= utf8.UTFMax && e.at > 0 && !isLong(e.cells[e.at-1]) {
		begin--
		text = e.cells[begin] + text
	}
	cells := cellsOf(text)
	e.cells = slices.Replace(e.cells, begin, e.at, cells...)
	e.at = begin + len(cells)
}

// erase takes out the cells between the cursor and another place.
func (e *editor) erase(to int) {
	begin, end := min(e.at, to), max(e.at, to)
	e.cells = slices.Delete(e.cells, begin, end)
	e.at = begin
}

// press obeys a key. It returns one that the caller has to obey: Enter, Ctrl-D for the end of the
// input, Tab, Ctrl-Z or a paste that is lost; else 0.
func (e *editor) press(key rune, pasted string) rune {
	if e.pressInSearch(key) {
		return 0
	}
	switch key {
	case keyEnter, keyEnterAhead:
		return e.enter()
	case keyNewLine:
		e.insert("\n")
	case keyLeft, keyRight, keyStart, keyEnd, keyWordLeft, keyWordRight:
		e.at = e.target(key)
	case keyErase, keyEraseLeft, keyDelete, keyEraseLine, keyEraseEnd, keyEraseWord,
		keyEraseWordEnd, alt * keyErase, alt * keyEraseLeft:
		e.erase(e.target(key))
	case keyClose:
		// In a text, Ctrl-D deletes.
		if len(e.cells) == 0 {
			return key
		}
		e.erase(e.target(key))
	case keyUp:
		e.vertical(-1)
	case keyDown:
		e.vertical(1)
	case keyTab, keyStop, keyLostPaste:
		return key
	case keyPaste:
		e.insert(pasted)
	default:
		if key >= ' ' {
			e.insert(string(key))
		}
	}
	return 0
}

// enter ends the text. After a backslash, what the user says goes on in another line instead.
func (e *editor) enter() rune {
	isAtEnd := e.at > 0 && e.at == len(e.cells)
	if e.history == nil || !isAtEnd || e.cells[e.at-1] != `\` {
		return keyEnter
	}
	e.erase(e.at - 1)
	e.insert("\n")
	return 0
}

// target returns where a key moves to, or erases to.
func (e *editor) target(key rune) int {
	switch key {
	case keyLeft, keyErase, keyEraseLeft:
		return max(e.at-1, 0)
	case keyStart, keyEraseLine:
		return e.skipLeft(e.at, isInLine)
	case keyEnd, keyEraseEnd:
		return e.skipRight(e.at, isInLine)
	case keyEraseWord:
		return e.skipLeft(e.skipLeft(e.at, isBlank), isNoBlank)
	case keyWordLeft, alt * keyErase, alt * keyEraseLeft:
		return e.skipLeft(e.skipLeft(e.at, isNoWord), isWord)
	case keyWordRight, keyEraseWordEnd:
		return e.skipRight(e.skipRight(e.at, isNoWord), isWord)
	}
	// Right, Delete and Ctrl-D are left.
	return min(e.at+1, len(e.cells))
}

func isInLine(cell string) bool { return cell != "\n" }

func isBlank(cell string) bool { return strings.TrimSpace(cell) == "" }

func isNoBlank(cell string) bool { return !isBlank(cell) }

func isWord(cell string) bool {
	return strings.ContainsFunc(cell, func(r rune) bool {
		return unicode.IsLetter(r) || unicode.IsDigit(r)
	})
}

func isNoWord(cell string) bool { return !isWord(cell) }

// skipLeft returns where such cells begin that end before a place.
func (e *editor) skipLeft(at int, is func(cell string) bool) int {
	for at > 0 && is(e.cells[at-1]) {
		at--
	}
	return at
}

// skipRight returns where such cells end that begin at a place.
func (e *editor) skipRight(at int, is func(cell string) bool) int {
	for at < len(e.cells) && is(e.cells[at]) {
		at++
	}
	return at
}

// vertical moves by a row, up (-1) or down (1): within the text, else through the history.
func (e *editor) vertical(step int) {
	begin, row := e.fold()
	to := row + step
	if to < 0 || to >= len(begin)-1 {
		e.recall(e.back - step)
		return
	}
	// The cursor stays in its column, or before the wide character that is there.
	column := plainWidth(e.row(begin, row, e.at))
	e.at = begin[to]
	for e.at < begin[to+1]-1 && plainWidth(e.row(begin, to, e.at+1)) <= column {
		e.at++
	}
}

// recall shows an entry of the history, counted from its end; 0 is what was typed before.
func (e *editor) recall(back int) {
	if e.history == nil || back < 0 || back > len(e.history.entries) {
		return
	}
	if e.back == 0 {
		e.draft = e.cells
	}
	cells := e.draft
	if back > 0 {
		cells = cellsOf(e.history.entries[len(e.history.entries)-back])
	}
	e.set(cells, back)
}

// expand completes the word before the cursor as far as all candidates agree. It reports whether
// that is further, or there are none. A candidate may begin with something else than the word: it
// takes the word's place where it is the only one. One that ends with / or = goes on.
func (e *editor) expand(candidates []string) bool {
	if len(candidates) == 0 {
		return true
	}
	common := candidates[0]
	if !strings.HasSuffix(common, "/") && !strings.HasSuffix(common, "=") {
		common += " "
	}
	for _, word := range candidates[1:] {
		for !strings.HasPrefix(word, common) {
			_, size := utf8.DecodeLastRuneInString(common)
			common = common[:len(common)-size]
		}
	}
	begin := e.skipLeft(e.at, isNoBlank)
	word := strings.Join(e.cells[begin:e.at], "")
	isOther := len(candidates) > 1 && !strings.HasPrefix(common, word)
	if isOther || common == word || strings.HasPrefix(word, common) {
		return false
	}
	e.erase(begin)
	e.insert(common)
	return true
}
