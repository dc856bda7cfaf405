// screen_fold.go - lines that are broken between words, to fit the window.
// SPDX-License-Identifier: 0BSD

package main

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
)

// folder breaks lines between words, and begins the rows that follow below the beginning of the
// text. It holds back the last word, until it knows whether this row has room for it. The width of
// a character is measured in screen_text.go: runeWidth.
type folder struct {
	columns int
	styled  bool
	breaks  bool // words that have no room in a row
	out     strings.Builder

	column int      // where the gap begins
	cut    bool     // another text has ended the row
	gap    int      // blanks between what is out and the word
	word   heldWord // not put onto a row yet
	isLong bool     // the word has no room in a row, and its beginning is out
	last   rune     // the last character
	joins  rune     // the character before a soft break, until the next comes
	hang   string   // what the rows that follow begin with
	hung   int      // its columns
}

// heldWord is a text without blanks, with its styles.
type heldWord struct {
	text    strings.Builder
	columns int
	style   Style // of its last character
}

// maxWord is how many bytes of a word are kept together.
const maxWord = 1 << 10

// What ends a line of a text for put. At a soft break its next line goes on behind a blank, at a
// hard one in a new row.
const (
	softBreak = "\n"
	hardBreak = "\f"
)

// put adds text, without tabs, to a line.
func (f *folder) put(text string, style Style) {
	for _, r := range text {
		isBreak := r == '\n' || r == '\f'
		if isBreak {
			f.putBreak(r == '\f')
			continue
		}
		if f.joins != 0 && isUnspaced(f.joins) && isUnspaced(r) {
			f.gap = 0
		}
		f.joins = 0
		isEnd := r == ' ' || f.mayBreakBefore(r)
		f.last = r
		if isEnd {
			f.place()
			f.isLong = false
		}
		if r == ' ' {
			f.gap++
			continue
		}
		f.addToWord(r, style)
	}
}

// putBreak adds a soft break or a hard one.
func (f *folder) putBreak(isHard bool) {
	f.place()
	f.isLong = false
	f.gap = 0
	if isHard {
		f.beginRow()
		f.last = 0
		return
	}
	f.gap = 1
	f.joins = f.last
	f.last = ' '
}

// isUnspaced reports whether a character is of a script that puts no blanks between words, so that
// none stands for a soft break.
func isUnspaced(r rune) bool {
	isPunctuation := 0x3000 <= r && r <= 0x303F || 0xFF01 <= r && r <= 0xFF60
	return isPunctuation || unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana)
}

// mayBreakBefore reports whether a row may end before a character: Chinese and Japanese have no
// blanks between words. An opening bracket stays with what it opens.
func (f *folder) mayBreakBefore(r rune) bool {
	return unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana) &&
		!unicode.In(f.last, unicode.Ps, unicode.Pi)
}

// addToWord adds a character to the word. When that is too long for any row, its beginning goes
// out.
func (f *folder) addToWord(r rune, style Style) {
	w := &f.word
	if f.styled && style != w.style {
		w.text.WriteString(string(plain + style))
		w.style = style
	}
	w.text.WriteRune(r)
	w.columns += runeWidth(r)
	if f.hung+w.columns > f.columns || w.text.Len() > maxWord {
		f.place()
		f.isLong = !f.breaks
	}
}

// place puts the word onto this row or the next.
func (f *folder) place() {
	w := &f.word
	if w.text.Len() == 0 {
		return
	}
	hasRoom := f.column+f.gap+w.columns <= f.columns
	if !hasRoom && !f.isLong {
		f.gap = 0
		if f.column > f.hung {
			f.beginRow()
		}
	}
	f.goOn()
	if w.style != "" {
		w.text.WriteString(string(plain))
	}
	fmt.Fprintf(&f.out, "%*s%s", f.gap, "", w.text.String())
	f.column += f.gap + w.columns
	f.gap = 0
	f.word = heldWord{}
}

// lead adds a mark at the beginning of a line. The rows that follow begin with blanks below it or,
// if it is repeated, with the mark. A mark that would leave them less than half of the window does
// not count.
func (f *folder) lead(mark string, repeated bool) {
	f.goOn()
	f.out.WriteString(mark)
	columns := Width(mark)
	f.column += columns
	if f.hung+columns > f.columns/2 {
		return
	}
	if !repeated {
		mark = strings.Repeat(" ", columns)
	}
	f.hang += mark
	f.hung += columns
}

// newline ends a line.
func (f *folder) newline() {
	f.place()
	if !f.cut {
		f.out.WriteString("\n")
	}
	f.cut = false
	f.column = 0
	f.gap = 0
	f.isLong = false
	f.last = 0
	f.joins = 0
	f.hang = ""
	f.hung = 0
}

// beginRow ends the row, and begins the next one of the line.
func (f *folder) beginRow() {
	if !f.cut {
		f.out.WriteString("\n")
	}
	f.cut = true
	f.goOn()
}

// resume says that another text has ended the row. What comes next begins a new one.
func (f *folder) resume() { f.cut = f.column > 0 }

// goOn begins a row, if the one before has been ended.
func (f *folder) goOn() {
	if f.cut {
		f.cut = false
		f.out.WriteString(f.hang)
		f.column = f.hung
		f.gap = 0
	}
}

// listed matches the mark of an item of a list with the blanks around it, or what stands before a
// tab.
var listed = regexp.MustCompile(`^[ \t]*(?:(?:[-+*•–]|\d+\.)[ \t]+|[^\t]+\t)?`)

// Fold returns a text of lines that are no wider than a window, if their words are not. The rows
// that follow begin below the text behind the mark of a list, or behind the first tab of the line.
func Fold(text string, columns int) string {
	f := folder{columns: columns}
	for i, line := range strings.Split(text, "\n") {
		if i > 0 {
			f.newline()
		}
		mark := listed.FindString(line)
		f.lead(strings.ReplaceAll(mark, "\t", "    "), false)
		f.put(strings.ReplaceAll(line[len(mark):], "\t", "    "), "")
	}
	f.place()
	return f.out.String()
}
