// screen_edit.go - the line editor: from keys to a text with a cursor, and to the rows that show it.
// SPDX-License-Identifier: 0BSD

package main

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// keys takes apart what a terminal sends.
type keys struct {
	unread  []byte
	pasting bool // it is being pasted
	lost    bool // of which that is only the end: it is longer than maxPaste
}

const maxPaste = 4 << 20 // bytes of what is pasted at once

// Keys that are no characters have the number of the control character that does the same. With Alt it is negative.
const (
	keyStart, keyLeft, keyEnd, keyRight, keyDown, keyUp = 1, 2, 5, 6, 14, 16 // Ctrl-A, B, E, F, N, P
	keyDelete, keyWordLeft, keyWordRight                = -4, -'b', -'f'
	keyErase, keyEraseWord, keyEraseLine, keyEraseEnd   = 0x7F, 23, 21, 11 // Backspace, Ctrl-W, U, K
	keyClose, keyStop                                   = 4, 26            // Ctrl-D, Z
	keyPaste, keyLostPaste                              = utf8.MaxRune + 1, utf8.MaxRune + 2
)

// sequenceKey returns the key with such an end of its escape sequence; 0 if there is none.
func sequenceKey(end string) rune {
	return map[string]rune{
		"A": keyUp, "B": keyDown, "C": keyRight, "D": keyLeft, "H": keyStart, "F": keyEnd,
		"1~": keyStart, "7~": keyStart, "4~": keyEnd, "8~": keyEnd, "3~": keyDelete, "200~": keyPaste,
		"1;5C": keyWordRight, "1;3C": keyWordRight, "5C": keyWordRight, "c": keyWordRight,
		"1;5D": keyWordLeft, "1;3D": keyWordLeft, "5D": keyWordLeft, "d": keyWordLeft, "13;2u": -'\r', // Shift-Enter
	}[end]
}

// sequence is an escape sequence, or the beginning of one. Whatever breaks it is a key of its own.
var sequence = regexp.MustCompile(`^\x1b[\[O](\[?[ -?]{0,64}([@-~]?))`)

// next takes the first key out of what is unread, and what was pasted with a second keyPaste. ok is false if none is
// whole.
func (k *keys) next() (key rune, pasted string, ok bool) {
	if !k.pasting {
		size, key := firstKey(k.unread)
		k.unread, k.pasting = k.unread[size:], key == keyPaste
		return key, "", size > 0
	}
	const mark = "\x1b[201~"
	text, rest, ended := bytes.Cut(k.unread, []byte(mark))
	if len(text) > maxPaste {
		text, k.lost = slices.Clone(text[len(text)-len(mark):]), true // the mark may have begun
	}
	if !ended {
		k.unread = text
		return 0, "", false
	}
	if key = keyPaste; k.lost {
		key = keyLostPaste
	}
	*k = keys{unread: slices.Clone(rest)}
	return key, strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(string(text)), true
}

// firstKey returns the first key and its size: 0 if it may go on. The key is 0 if it has no meaning.
func firstKey(in []byte) (size int, key rune) {
	if m := sequence.FindSubmatch(in); m != nil && (len(m[2]) > 0 || len(m[0]) < len(in)) {
		return len(m[0]), sequenceKey(string(m[1]))
	} else if m != nil || !utf8.FullRune(in) || string(in) == "\x1b" {
		return 0, 0
	}
	if key, size = utf8.DecodeRune(in); key == utf8.RuneError || key == '\x1b' && in[1] == '\x1b' {
		return size, 0
	} else if key == '\x1b' { // Alt
		size, key = firstKey(in[1:])
		return size + min(size, 1), -key
	}
	return size, key
}

// editor is a text that is being edited. It knows no terminal: Terminal gives it the keys, and Screen draws its rows.
type editor struct {
	prompt  string   // before the text
	hidden  bool     // the text is not shown
	history *history // of what was said; nil of an answer, whose lines no backslash continues

	cells         []string // what the cursor moves over: a character with its marks, or all of a long text
	at            int      // the cursor is before this cell
	back          int      // the entry of the history that is shown, counted from its end; 0 is none
	draft         []string // what was typed before it
	columns, size int      // of the window for which it was drawn last
	top           int      // the row that was the first one there
}

// What is one cell if it comes at once: so many lines, or more bytes.
const maxLines, maxText = 6, 1000

// character is a character with its marks, of which a few are enough: accents, parts of Korean syllables, tones of
// skin, and what is joined to it. A flag consists of two.
var character = regexp.MustCompile(`[\x{1F1E6}-\x{1F1FF}]{2}|\n|\t|` +
	`[^\n\t](?:\x{200D}[^\n\t]|[\p{Mn}\p{Me}\p{Cf}\x{1160}-\x{11FF}\x{1F3FB}-\x{1F3FF}]){0,12}`)

const maxCharacter = 100 // its bytes

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

// shown is what is seen of a cell, on one line.
func (e *editor) shown(cell string) string {
	switch {
	case e.hidden || cell == "\n":
		return ""
	case cell == "\t":
		return "    "
	case isLong(cell):
		lines := strings.Count(strings.TrimSuffix(cell, "\n"), "\n") + 1
		return "[pasted " + Plural(lines, "line") + "]"
	}
	return cell
}

// text is what stands before a cell.
func (e *editor) text(end int) string { return strings.Join(e.cells[:end], "") }

// set takes another text in place of what is there, and has the cursor at its end.
func (e *editor) set(cells []string, back int) { e.cells, e.at, e.back = cells, len(cells), back }

// insert puts a text before the cursor.
func (e *editor) insert(text string) {
	begin := e.at
	if e.at > 0 && !isLong(e.cells[e.at-1]) && len(text) <= utf8.UTFMax { // it may be a mark of the character before
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
	e.cells, e.at = slices.Delete(e.cells, begin, end), begin
}

// press obeys a key. It returns one that the caller has to obey: Enter, Ctrl-D for the end of the input, Tab, Ctrl-Z
// or a paste that is lost; else 0.
func (e *editor) press(key rune, pasted string) rune {
	switch key {
	case '\r', '\n', -'\r': // Enter, also as it was typed before the terminal gave the keys, and Alt-Enter
		continued := e.history != nil && e.at > 0 && e.at == len(e.cells) && e.cells[e.at-1] == `\`
		if key > 0 && !continued {
			return '\r'
		} else if key > 0 {
			e.erase(e.at - 1)
		}
		e.insert("\n")
	case keyLeft, keyRight, keyStart, keyEnd, keyWordLeft, keyWordRight:
		e.at = e.target(key)
	case keyClose, keyDelete, keyErase, '\b', keyEraseLine, keyEraseEnd, keyEraseWord, -keyErase, -'\b', -'d':
		if key == keyClose && len(e.cells) == 0 {
			return key
		}
		e.erase(e.target(key))
	case keyUp:
		e.vertical(-1)
	case keyDown:
		e.vertical(1)
	case '\t', keyStop, keyLostPaste:
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

// target returns where a key moves to, or erases to.
func (e *editor) target(key rune) int {
	isWord := func(cell string) bool {
		return strings.ContainsFunc(cell, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) })
	}
	switch key {
	case keyLeft, keyErase, '\b':
		return max(e.at-1, 0)
	case keyStart, keyEraseLine:
		return e.run(e.at, -1, func(cell string) bool { return cell != "\n" })
	case keyEnd, keyEraseEnd:
		return e.run(e.at, 1, func(cell string) bool { return cell != "\n" })
	case keyEraseWord:
		return e.run(e.run(e.at, -1, isBlank), -1, func(cell string) bool { return !isBlank(cell) })
	case keyWordLeft, -keyErase, -'\b':
		return e.run(e.run(e.at, -1, func(cell string) bool { return !isWord(cell) }), -1, isWord)
	case keyWordRight, -'d':
		return e.run(e.run(e.at, 1, func(cell string) bool { return !isWord(cell) }), 1, isWord)
	}
	return min(e.at+1, len(e.cells))
}

func isBlank(cell string) bool { return strings.TrimSpace(cell) == "" }

// run returns where a run of such cells ends.
func (e *editor) run(at, step int, is func(cell string) bool) int {
	for next := at + min(step, 0); next >= 0 && next < len(e.cells) && is(e.cells[next]); next += step {
		at += step
	}
	return at
}

// vertical moves by a row: within the text, else through the history.
func (e *editor) vertical(step int) {
	begin, row := e.fold()
	if to := row + step; to >= 0 && to < len(begin)-1 {
		column := plainWidth(e.row(begin, row, e.at))
		for e.at = begin[to]; e.at < begin[to+1]-1 && plainWidth(e.row(begin, to, e.at+1)) <= column; e.at++ {
		}
		return
	}
	back := e.back - step
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

// expand completes the word before the cursor as far as all candidates agree. It reports whether that is further, or
// there are none.
func (e *editor) expand(words []string) bool {
	if len(words) == 0 {
		return true
	}
	common := words[0] + " "
	for _, word := range words[1:] {
		for !strings.HasPrefix(word, common) {
			_, size := utf8.DecodeLastRuneInString(common)
			common = common[:len(common)-size]
		}
	}
	begin := e.run(e.at, -1, func(cell string) bool { return !isBlank(cell) })
	if len(common) <= len(strings.Join(e.cells[begin:e.at], "")) {
		return false
	}
	e.erase(begin)
	e.insert(common)
	return true
}

// draw returns what a window shows. Of a text that is too tall those rows are left out that are far from the cursor.
func (e *editor) draw(columns, size int) (d drawing) {
	e.columns, e.size = columns, size
	begin, row := e.fold()
	size = min(max(size-1, 1), len(begin)-1)
	e.top = min(max(e.top, row-size+1), row, len(begin)-1-size)
	for i := e.top; i < e.top+size; i++ {
		d.rows = append(d.rows, e.row(begin, i, min(begin[i+1], len(e.cells))))
	}
	d.row, d.before = row-e.top, e.row(begin, row, e.at)
	return d
}

// lead is what a row begins with: the prompt, or the two blanks below "> ".
func (e *editor) lead(row int) string {
	if row == 0 {
		return e.prompt
	}
	return strings.Repeat(" ", min(plainWidth(e.prompt), 2))
}

// fold returns the first cell of each row, and of one behind the end; and the row of the cursor.
func (e *editor) fold() (begin []int, row int) {
	begin = []int{0}
	used, indent := plainWidth(e.lead(0)), plainWidth(e.lead(1))
	for i, cell := range e.cells {
		columns := Width(e.shown(cell))
		if used+columns >= e.columns && used > indent {
			begin, used = append(begin, i), indent
		}
		if used += columns; cell == "\n" {
			begin, used = append(begin, i+1), indent
		}
	}
	begin = append(begin, len(e.cells)+1)
	for begin[row+1] <= e.at {
		row++
	}
	return begin, row
}

// row returns what stands in a row before a cell.
func (e *editor) row(begin []int, row, end int) string {
	text := e.lead(row)
	for _, cell := range e.cells[begin[row]:end] {
		text += e.shown(cell)
	}
	return text
}
