// screen_markdown.go - the markdown that models write, laid out while it comes.
// SPDX-License-Identifier: 0BSD

package main

import (
	"regexp"
	"strings"
)

// markdown lays out a text for a terminal, to which it only appends: what was shown stays. So it
// holds back what it cannot decide yet: a word, a marker of emphasis or code until its other half
// comes, and a table until it ends. A marker without its other half in the line and within maxSpan
// is text, and without styles all of them are. Control characters have been taken out.
type markdown struct {
	folder
	raw    bool   // nothing is laid out
	rest   string // not decided yet
	inLine bool   // the marks at the beginning of the line have been read
	style  Style  // of the line
	fence  string // ends the code that the lines are part of; "" if they are not
	quoted bool   // the code is in a quote
	rows   string // of a table that has not ended
}

// What is held back, in bytes.
const (
	maxSpan  = 400
	maxTable = 64 << 10
)

var (
	// The beginning of a line, if more must be seen to decide what the line is.
	undecided = regexp.MustCompile("^ *(?:[-+*_>#~` ]*|\\d{1,9}[.)]? *|(?:`{3,}|~{3,})[^`]*)$")

	quote   = regexp.MustCompile(`^> ?`)
	heading = regexp.MustCompile(`^#{1,6}( +|$)`)
	item    = regexp.MustCompile(`^([-+*]|\d{1,9}[.)])( +|$)`)
	ruler   = regexp.MustCompile(`^((- *){3,}|(\* *){3,}|(_ *){3,})$`)
	fences  = regexp.MustCompile("^(`{3,}|~{3,})[^`]*$")
)

func newMarkdown(columns int, styled bool) *markdown {
	return &markdown{folder: folder{columns: columns, styled: styled}}
}

// write returns what can be shown after the next piece of the text; all of it if that is the end.
func (m *markdown) write(text string, end bool) string {
	if m.raw {
		return text
	}
	m.rest += strings.ReplaceAll(text, "\t", "    ")
	for m.rest != "" {
		decided := m.readMarks(!end)
		if !decided || !m.readLine(!end) {
			break
		}
	}
	if end {
		m.layOutTable()
		m.place()
	}
	out := m.out.String()
	m.out.Reset()
	if end {
		// A table has ended its last line.
		out = strings.TrimSuffix(out, "\n")
	}
	return out
}

// readMarks reads the marks at the beginning of a line: one may follow another, as of a list in a
// quote. It reports whether it could decide what they are; more says that the text may go on.
func (m *markdown) readMarks(more bool) bool {
	for !m.inLine && m.rest != "" {
		if !m.readMark(more) {
			return false
		}
	}
	return true
}

// readLine lays out text within a line, as far as that can be decided. It reports whether it has
// come to the end of the line.
func (m *markdown) readLine(more bool) bool {
	if !m.inLine {
		return false
	}
	line, _, ended := strings.Cut(m.rest, "\n")
	m.rest = m.rest[m.inline(line, m.style, more && !ended):]
	if !ended {
		return false
	}
	m.newline()
	m.rest = m.rest[len("\n"):]
	m.inLine = false
	m.style = ""
	return true
}

// readMark reads one mark, or finds that the text of the line begins, or reads a row of a table. It
// reports whether it could decide which.
func (m *markdown) readMark(more bool) bool {
	isRow := m.fence == "" && m.column == 0 &&
		strings.HasPrefix(strings.TrimLeft(m.rest, " "), "|")
	limit := maxSpan
	if isRow {
		limit = maxTable - len(m.rows)
	}
	line, _, ended := strings.Cut(m.rest[:min(len(m.rest), limit)], "\n")
	isWhole := ended || !more || len(line) == limit
	if !isWhole && (isRow || undecided.MatchString(line)) {
		return false
	}
	if isRow && len(line) < limit {
		m.rows += line + "\n"
		m.rest = strings.TrimPrefix(m.rest[len(line):], "\n")
		return true
	}
	m.layOutTable()
	text := strings.TrimLeft(line, " ")
	indent := len(line) - len(text)
	m.rest = m.rest[indent:]
	m.inLine = true
	if text != "" {
		m.lead(line[:min(indent, m.columns/2)], false)
	}
	m.rest = m.rest[m.obeyMark(text):]
	return true
}

// obeyMark shows the mark that a text begins with in its own way, and returns its size: 0 if there
// is none, or if the mark is shown as it was written. After a quote's mark and an item's, another
// mark may follow. They need room: what is nested deeper than half of the window is text.
func (m *markdown) obeyMark(text string) int {
	hasRoom := m.column < m.columns/2
	mayBeQuote := m.fence == "" || m.quoted && m.column == 0
	if mark := quote.FindString(text); mark != "" && mayBeQuote && hasRoom {
		m.inLine = false
		m.lead("│ ", true)
		return len(mark)
	}
	if m.fence != "" {
		m.codeLine(strings.TrimSpace(text))
		return 0
	}
	if fence := fences.FindStringSubmatch(text); fence != nil {
		m.style = Faint
		m.quoted = m.hung > 0
		m.fence = fence[1]
		return 0
	}
	if mark := ruler.FindString(text); mark != "" {
		m.put(strings.Repeat("─", max(m.columns-m.column, 1)), "")
		return len(mark)
	}
	if mark := heading.FindString(text); mark != "" {
		m.style = Bold
		// Without styles, only its mark shows that it is a heading.
		if !m.styled {
			return 0
		}
		return len(mark)
	}
	if mark := item.FindString(text); mark != "" && hasRoom {
		m.inLine = false
		bullets := strings.NewReplacer("-", "•", "+", "•", "*", "•")
		m.lead(bullets.Replace(strings.TrimSpace(mark))+" ", false)
		return len(mark)
	}
	return 0
}

// codeLine begins a line of code, or the line of the fence that ends it. The rows that follow are
// two blanks further in: so they look like no lines of their own.
func (m *markdown) codeLine(text string) {
	isEnd := strings.HasPrefix(text, m.fence) && strings.Trim(text, m.fence[:1]) == ""
	if isEnd {
		m.style = Faint
		m.fence = ""
		return
	}
	m.style = Cyan
	m.hang += "  "
	m.hung += 2
}
