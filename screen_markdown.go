// screen_markdown.go - the markdown that models write, laid out while it comes.
// SPDX-License-Identifier: 0BSD

package main

import (
	"regexp"
	"strings"
)

// markdown lays out a text for a terminal, to which it only appends: what was shown stays. So it
// holds back what it cannot decide yet: a word, a marker of emphasis, code or a link until its
// other half comes, the beginning of a line until it is clear what the line is, a line of code, and
// a table until it ends. A marker without its other half in the paragraph and within maxSpan is
// text. Control characters have been taken out.
//
// It knows what models write of CommonMark and of GitHub's additions: paragraphs, whose lines are
// joined; hard breaks; headings after #, and the underline of one as a ruler; rulers; quotes; lists
// with tasks; code in fences, or indented by four blanks outside of lists; tables whose rows begin
// with a bar; emphasis, strikethrough, code, escapes and entities; links, pictures and addresses in
// angle brackets. All else is text: HTML, footnotes, links by reference. Two things differ. A line
// of a paragraph that begins with a number such as "4." begins a list, as models mean it so; one
// with a year does not. And a formula within a line stays as it was written.
//
// The address of a link is shown behind its text, unless that is the address: what a model writes
// is not trusted, and the user sees and copies where a link leads. Without styles, markers that
// have a meaning are shown.
type markdown struct {
	folder
	raw    bool   // nothing is laid out
	rest   string // not decided yet
	inLine bool   // the marks at the beginning of the line have been read
	begun  bool   // a line is shown that has not been ended
	block  block  // what the line is
	text   string // of the block, not decided yet
	inList bool   // since the last item, no text has begun in the first column
	fence  codeFence
	rows   string // of a table that has not ended
}

// block is what a line is.
type block struct {
	kind  blockKind
	marks []mark // before it: one may follow another, as of a list in a quote
	inner int    // bytes of the marks up to that of the innermost quote
	blank int    // blanks between the marks and the text
	size  int    // bytes before the text
	style Style  // of the text

	endsFence bool // it is outside of the quote that the code was in
}

// mark is the mark of a quote or of an item, as it is shown.
type mark struct {
	indent  int // blanks before it
	text    string
	isQuote bool
}

type blockKind int

const (
	blankLine blockKind = iota
	paragraphLine
	wholeLine // not joined with the next
	headingLine
	rulerLine
	fenceLine // begins or ends code
	codeLine
)

// codeFence describes the code that the lines are part of.
type codeFence struct {
	mark   string // ends the code; "" if there is none
	quotes int    // how many quotes it is in
	indent int    // blanks before each of its lines that are not part of the code
	lexer  lexer
}

// What is held back, in bytes.
const (
	maxSpan  = 400
	maxTable = 64 << 10
)

var (
	// The beginning of a line, if more must be seen to decide what the line is.
	undecided = regexp.MustCompile("^ *(?:[-+*_>#~`= ]*|\\d{1,9}[.)]? *|(?:`{3,}|~{3,})[^`]*|" +
		`\$|\\[a-z]{0,4})$`)

	quote   = regexp.MustCompile(`^> ?`)
	heading = regexp.MustCompile(`^#{1,6}( +|$)`)
	item    = regexp.MustCompile(`^([-+*]|\d{1,9}[.)])( +|$)`)
	ruler   = regexp.MustCompile(`^((- *){3,}|(\* *){3,}|(_ *){3,}|={3,} *)$`)
	fences  = regexp.MustCompile("^(`{3,}|~{3,}) *([^`\\s]*)[^`]*$")

	// A line of a formula that stands by itself, or a row of a table that was too long.
	alone = regexp.MustCompile(`^(?:\$\$|\\[\[\]]|\\begin|\\end|\|)`)

	// At the end of a line, they may break it.
	breaks = regexp.MustCompile(`\\{1,2}$`)
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
		decided := m.inLine || m.readMarks(!end)
		if !decided || m.inLine && !m.readLine(!end) {
			break
		}
	}
	if end {
		m.layOutTable()
		m.endText()
	}
	out := m.out.String()
	m.out.Reset()
	return out
}

// readMarks reads the marks at the beginning of a line, or the whole line if it is a row of a table
// or begins or ends code. It reports whether it could decide what they are; more says that the text
// may go on.
func (m *markdown) readMarks(more bool) bool {
	isRow := m.fence.mark == "" && strings.HasPrefix(strings.TrimLeft(m.rest, " "), "|")
	if isRow {
		return m.readRow(more)
	}
	line, _, ended := strings.Cut(m.rest[:min(len(m.rest), maxSpan)], "\n")
	isWhole := ended || !more || len(line) == maxSpan
	next := m.parse(line)
	if !isWhole && undecided.MatchString(line[next.size:]) {
		return false
	}
	if next.endsFence {
		m.fence = codeFence{}
	}
	m.layOutTable()
	m.rest = m.rest[next.size:]
	switch {
	case m.continues(next):
		m.join()
		m.inLine = true
	case next.kind == fenceLine:
		m.rest = strings.TrimPrefix(m.rest[len(line)-next.size:], "\n")
		m.obeyFence(line[next.size:], next)
	default:
		m.beginLine(next)
		m.inLine = true
	}
	return true
}

// readRow reads a row of a table. One that is too long for a table is text.
func (m *markdown) readRow(more bool) bool {
	m.endText()
	m.block.kind = wholeLine
	limit := maxTable - len(m.rows)
	line, _, ended := strings.Cut(m.rest[:min(len(m.rest), limit)], "\n")
	switch {
	case len(line) == limit:
		m.layOutTable()
		m.beginLine(block{kind: wholeLine})
		m.inLine = true
	case ended || !more:
		m.rows += line + "\n"
		m.rest = strings.TrimPrefix(m.rest[len(line):], "\n")
	default:
		return false
	}
	return true
}

// parse finds what a line is by its beginning. Marks need room: what is nested deeper than half of
// the window is text.
func (m *markdown) parse(line string) (b block) {
	if m.fence.mark != "" {
		b = m.parseCode(line)
		isOutside := len(b.marks) < m.fence.quotes
		if !isOutside {
			return b
		}
		b = block{endsFence: true}
	}
	column := 0
	for {
		text := strings.TrimLeft(line[b.size:], " ")
		indent := len(line) - b.size - len(text)
		size, shown := m.parseMark(text)
		if size == 0 || column+indent >= m.columns/2 {
			b.blank = indent
			b.size += indent
			break
		}
		isQuote := text[0] == '>'
		b.marks = append(b.marks, mark{indent, shown, isQuote})
		b.size += indent + size
		column += indent + Width(shown)
		if isQuote {
			b.inner = b.size
		}
	}
	b.parseText(line[b.size:], m.styled)
	isIndented := b.kind == paragraphLine && b.blank >= 4 && len(b.marks) == 0
	if isIndented && !m.inList && m.block.kind != paragraphLine {
		b.kind = codeLine
		b.size -= b.blank - 4
	}
	return b
}

// parseMark returns the size of the mark of a quote or an item that a text begins with, and how it
// is shown. The size is 0 if there is none.
func (m *markdown) parseMark(text string) (size int, shown string) {
	found := quote.FindString(text)
	if found != "" {
		return len(found), "│ "
	}
	found = item.FindString(text)
	isYear := len(strings.TrimSpace(found)) > len("999.")
	isInText := m.block.kind == paragraphLine && !m.block.isItem()
	if found == "" || isYear && isInText || ruler.MatchString(text) {
		return 0, ""
	}
	bullets := strings.NewReplacer("-", "•", "+", "•", "*", "•")
	return len(found), bullets.Replace(strings.TrimSpace(found)) + " "
}

// parseText finds what stands behind the marks of a line. Without styles, only its mark shows that
// a line is a heading.
func (b *block) parseText(text string, styled bool) {
	mark := heading.FindString(text)
	switch {
	case text == "":
		b.kind = blankLine
	case fences.MatchString(text):
		b.kind = fenceLine
	case ruler.MatchString(text):
		b.kind = rulerLine
	case mark != "":
		b.kind = headingLine
		b.style = Bold
		isFirst := len(strings.TrimSpace(mark)) == 1
		if isFirst {
			b.style += Underlined
		}
		if styled {
			b.size += len(mark)
		}
	case alone.MatchString(text):
		b.kind = wholeLine
	default:
		b.kind = paragraphLine
	}
}

// parseCode finds the marks before a line of code, and whether the line ends the code.
func (m *markdown) parseCode(line string) (b block) {
	b.kind = codeLine
	for len(b.marks) < m.fence.quotes {
		text := strings.TrimLeft(line[b.size:], " ")
		found := quote.FindString(text)
		if found == "" {
			break
		}
		b.marks = append(b.marks, mark{0, "│ ", true})
		b.size += len(line) - b.size - len(text) + len(found)
	}
	text := line[b.size:]
	end := strings.TrimSpace(text)
	if strings.HasPrefix(end, m.fence.mark) && strings.Trim(end, m.fence.mark[:1]) == "" {
		b.kind = fenceLine
	}
	indent := len(text) - len(strings.TrimLeft(text, " "))
	b.size += min(indent, m.fence.indent)
	return b
}

// isItem reports whether a block is part of a list's item.
func (b block) isItem() bool {
	return len(b.marks) > 0 && !b.marks[len(b.marks)-1].isQuote
}

// quotes is how many quotes a block is in.
func (b block) quotes() (n int) {
	for _, mark := range b.marks {
		if mark.isQuote {
			n++
		}
	}
	return n
}

// continues reports whether a line goes on with the paragraph before. The marks of the quote that
// the paragraph is in may stand before it.
func (m *markdown) continues(next block) bool {
	return m.block.kind == paragraphLine && next.kind == paragraphLine &&
		next.quotes() == len(next.marks) && len(next.marks) <= m.block.quotes()
}

// join joins the lines of a paragraph, or ends the row where the first one says so. Two backslashes
// are the end of a row in a formula, and are shown.
func (m *markdown) join() {
	isHard := strings.HasSuffix(m.text, "  ") || m.text == "" && m.last == ' ' && m.gap > 1
	if strings.HasSuffix(m.text, `\`) {
		isHard = true
		if !strings.HasSuffix(m.text, `\\`) {
			m.text = strings.TrimSuffix(m.text, `\`)
		}
	}
	m.text = strings.TrimRight(m.text, " ")
	if isHard {
		m.text += hardBreak
	} else {
		m.text += softBreak
	}
}

// beginLine ends the line before, and shows the marks of the next.
func (m *markdown) beginLine(next block) {
	m.endLine()
	m.block = next
	m.begun = true
	for _, mark := range next.marks {
		m.lead(strings.Repeat(" ", min(mark.indent, m.columns/2)), false)
		m.lead(mark.text, mark.isQuote)
	}
	switch {
	case next.isItem():
		m.inList = true
	case next.kind != blankLine && next.kind != codeLine && next.blank == 0:
		m.inList = false
	}
	switch next.kind {
	case rulerLine:
		m.put(strings.Repeat("─", max(m.columns-m.column, 1)), "")
	case paragraphLine, wholeLine:
		m.lead(strings.Repeat(" ", min(next.blank, m.columns/2)), false)
	}
}

// endLine ends the line that is shown, if there is one.
func (m *markdown) endLine() {
	m.endText()
	if m.begun {
		m.newline()
	}
	m.begun = false
}

// endText shows the rest of the text.
func (m *markdown) endText() {
	m.layOutText(false)
	m.place()
}

// obeyFence begins or ends code. The line itself is not shown, but for the mark of an item.
func (m *markdown) obeyFence(text string, b block) {
	if m.fence.mark != "" {
		m.fence = codeFence{}
		m.block.kind = fenceLine
		return
	}
	if b.isItem() {
		m.beginLine(b)
	}
	m.endText()
	found := fences.FindStringSubmatch(text)
	m.fence = codeFence{found[1], b.quotes(), b.size - b.inner, newLexer(found[2])}
	m.block.kind = fenceLine
}

// readLine lays out text within a line, as far as that can be decided. It reports whether it has
// come to the end of the line.
func (m *markdown) readLine(more bool) bool {
	if m.block.kind == codeLine && !m.readCode(more) {
		return false
	}
	line, _, ended := strings.Cut(m.rest, "\n")
	switch m.block.kind {
	case codeLine:
		// It has been read as far as a piece goes.
		if line != "" {
			return true
		}
	case rulerLine:
		m.rest = m.rest[len(line):]
	default:
		m.text += line
		m.rest = m.rest[len(line):]
		isOpen := more && !ended
		if m.block.kind == paragraphLine {
			isOpen = more || ended
		}
		m.layOutText(isOpen)
	}
	if !ended {
		return false
	}
	m.rest = m.rest[len("\n"):]
	m.inLine = false
	return true
}

// layOutText lays out the text of a block, as far as that can be decided. What may break the line
// is not.
func (m *markdown) layOutText(more bool) {
	text := m.text
	if more {
		text = text[:len(text)-len(breaks.FindString(text[max(len(text)-2, 0):]))]
	}
	m.text = m.text[m.inline(text, m.block.style, more):]
}
