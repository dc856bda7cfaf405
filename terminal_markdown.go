// terminal_markdown.go - the markdown that models write, laid out while it comes.
// SPDX-License-Identifier: 0BSD

package main

import (
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// markdown lays out a text for a terminal, to which it only appends. It holds back what it cannot decide yet: a word,
// a marker of emphasis or code until its other half comes, and a table until it ends. A marker without its other half
// in the line and within maxSpan is text, and without styles all of them are. Control characters have been taken out.
type markdown struct {
	folder
	window int // its columns; all but code and tables is folded at maxAnswerWidth

	rest   string   // not decided yet
	inLine bool     // the marks at the beginning of the line have been read
	style  Style    // of the line
	fence  string   // ends the code that the lines are part of; "" if they are not
	quoted bool     // which is in a quote
	rows   []string // of a table that has not ended
	size   int      // of them, in bytes
}

// What is held back, in bytes.
const (
	maxSpan  = 400
	maxTable = 64 << 10
)

var (
	// The beginning of a line, if more must be seen to decide what the line is.
	undecided = regexp.MustCompile("^ *(?:[-+*_>#~` ]*|\\d{1,9}[.)]? *|(?:```|~~~)[^`]*)$")
	quote     = regexp.MustCompile(`^> ?`)
	heading   = regexp.MustCompile(`^#{1,6}( +|$)`)
	item      = regexp.MustCompile(`^([-+*]|\d{1,9}[.)])( +|$)`)
	ruler     = regexp.MustCompile(`^((- *){3,}|(\* *){3,}|(_ *){3,})$`)
	fences    = regexp.MustCompile("^(`{3,}|~{3,})[^`]*$")
	delimiter = regexp.MustCompile(`^ *\|( *:?-+:? *\|)* *(:?-+:? *)?$`)

	// What two markers have between them, with the character after it where that matters.
	exact    = regexp.MustCompile("^(?:`[^`]+`|``.+?``|\\$[^\\s\\d$][^$]*\\$|" + `\\\(.+?\\\)|\\\[.+?\\\]|\\[^(\[])`)
	emphasis = regexp.MustCompile(`^(?:` + between(`\*{3}`, `*`, `\*`, ``, ``) + `|` +
		between(`\*{2}`, `*`, `\*`, ``, ``) + `|` + between(`\*`, `*`, `\*\*`, `.`, letters) + `|` +
		between(`_`, `_`, `_`, `.`, letters) + `)`)

	// The text so far, if the second marker may come.
	begun = regexp.MustCompile("^(?:`|[*_]+(?:$|\\S)|\\$(?:$|[^\\s\\d])|\\\\(?:$|[(\\[]))")
)

// between is a regexp for what such markers have between them: code and escapes have none, others are within. Names,
// powers and patterns of files have the characters that mark emphasis, too: snake_case, __init__, 2*3*4, *.go. In
// scripts with wide characters, which put no blanks between words, emphasis may begin and end anywhere.
func between(marker, char, others, notFirst, notAfter string) string {
	exact, within := "|\\\\.|`[^`]+`", "[^\\s`\\\\"+char
	return "(" + marker + ")((?:" + within + `,;:!?/)\]}` + notFirst + "]" + exact + ")" +
		`(?:\s*(?:` + within + "]" + exact + "|" + others + "))*?)" + marker + "[^" + char + notAfter + "]"
}

const letters = `0-9A-Za-z\p{Latin}\p{Greek}\p{Cyrillic}`

func newMarkdown(columns int, styled bool) *markdown {
	return &markdown{window: columns, folder: folder{styled: styled}}
}

// write returns what can be shown after the next piece of the text.
func (m *markdown) write(text string) string {
	m.rest += strings.ReplaceAll(text, "\t", "    ")
	m.lines(true)
	return m.take()
}

// end returns what was held back.
func (m *markdown) end() string {
	m.lines(false)
	m.table()
	m.place()
	return strings.TrimSuffix(m.take(), "\n") // of a table
}

// lines lays out what can be decided. more says that the text may go on.
func (m *markdown) lines(more bool) {
	for m.rest != "" {
		if m.columns = m.window; m.fence == "" {
			m.columns = min(m.window, maxAnswerWidth)
		}
		if !m.inLine {
			if !m.begin(more) {
				return
			}
			continue
		}
		line, rest, ended := strings.Cut(m.rest, "\n")
		n := len(line)
		if m.fence != "" {
			m.put(line, m.style)
		} else {
			n = m.inline(line, m.style, more && !ended)
		}
		if !ended {
			m.rest = m.rest[n:]
			return
		}
		m.rest = rest
		m.endLine()
	}
}

func (m *markdown) endLine() {
	m.newline()
	m.inLine, m.style = false, ""
}

// begin reads a mark at the beginning of a line. It reports whether it could decide what that is.
func (m *markdown) begin(more bool) bool {
	row, limit := m.fence == "" && m.column == 0 && strings.HasPrefix(strings.TrimLeft(m.rest, " "), "|"), maxSpan
	if row {
		limit = maxTable - m.size
	}
	line, _, ended := strings.Cut(m.rest[:min(len(m.rest), limit)], "\n")
	if whole := ended || !more || len(line) == limit; !whole && (row || undecided.MatchString(line)) {
		return false
	}
	if row && len(line) < limit {
		m.rows, m.size = append(m.rows, line), m.size+len(line)
		m.rest = strings.TrimPrefix(m.rest[len(line):], "\n")
		if len(m.rows) == 2 && !delimiter.MatchString(line) {
			m.table()
		}
		return true
	}
	m.table()
	text := strings.TrimLeft(line, " ")
	indent := len(line) - len(text)
	if m.rest, m.inLine = m.rest[indent:], true; text != "" {
		m.lead(line[:min(indent, m.columns/2)], false)
	}
	mark, end := "", strings.TrimSpace(text)
	is := func(begin *regexp.Regexp) bool { mark = begin.FindString(text); return mark != "" }
	switch fence := fences.FindStringSubmatch(text); {
	case (m.fence == "" || m.quoted && m.column == 0) && is(quote):
		m.inLine = false
		m.lead("│ ", true)
	case m.fence != "" && strings.HasPrefix(end, m.fence) && strings.Trim(end, m.fence[:1]) == "":
		m.style, m.fence = Faint, ""
	case m.fence != "":
		m.style = Cyan
		m.hang, m.hung = m.hang+"  ", m.hung+2
	case fence != nil:
		m.style, m.quoted, m.fence = Faint, m.hung > 0, fence[1]
	case is(ruler):
		m.put(strings.Repeat("─", max(m.columns-m.column, 1)), "")
	case is(heading):
		if m.style = Bold; !m.styled {
			mark = ""
		}
	case is(item):
		m.inLine = false
		m.lead(strings.Trim(bullet.ReplaceAllString(mark, "•"), " ")+" ", false)
	}
	m.rest = m.rest[len(mark):]
	return true
}

// inline lays out text within a line, as far as that can be decided, and returns how much that was.
func (m *markdown) inline(text string, style Style, more bool) int {
	rest := text
	for marker := 0; m.styled && marker >= 0; {
		if marker = strings.IndexAny(rest, "`$\\*_"); marker >= 0 {
			m.put(rest[:marker], style)
			rest = rest[marker:]
			size := m.span(rest[:min(len(rest), maxSpan)], style, more && len(rest) < maxSpan)
			if size == 0 {
				return len(text) - len(rest)
			}
			rest = rest[size:]
		}
	}
	m.put(rest, style)
	return len(text)
}

// span lays out the marker at the beginning of a text, or two and what they have between them. It returns their
// length, or 0 if that cannot be decided.
func (m *markdown) span(text string, style Style, more bool) int {
	switch mark := text[0]; {
	case mark != '*' && mark != '_':
		if found := exact.FindString(text); found != "" {
			inner := found
			if mark == '`' {
				inner, style = strings.TrimSpace(strings.Trim(found, "`")), style+Cyan
			} else if mark == '\\' && strings.Contains("*_#`|~><-+.!$", found[1:]) {
				inner = found[1:]
			}
			m.put(inner, style)
			return len(found)
		}
	case unicode.In(m.last, unicode.L, unicode.N) && runeWidth(m.last) == 1, m.last == rune(mark),
		mark == '_' && !strings.ContainsRune("\x00 ([{\"'“‘*", m.last): // within a name or an address
		more = false
	default:
		after := text
		if !more {
			after += "\n"
		}
		isNone := func(s string) bool { return s == "" }
		if found := slices.DeleteFunc(emphasis.FindStringSubmatch(after), isNone); found != nil {
			m.inline(found[2], style+[...]Style{Italic, Bold, Bold + Italic}[len(found[1])-1], false)
			return 2*len(found[1]) + len(found[2])
		}
	}
	if more && begun.MatchString(text) {
		return 0
	}
	m.put(text[:1], style)
	return 1
}

// table lays out the table that has ended: in columns if each has room for its words, else as a list.
func (m *markdown) table() {
	rows := m.rows
	m.rows, m.size = nil, 0
	if len(rows) < 2 || !delimiter.MatchString(rows[1]) {
		for _, row := range rows {
			m.inline(row, "", false)
			m.endLine()
		}
		return
	}
	var grid [][]string
	var whole, least []int // how wide each column would be, and its longest word
	for i, row := range slices.Delete(rows, 1, 2) {
		row = strings.TrimPrefix(strings.TrimSpace(strings.ReplaceAll(row, `\|`, "\x00")), "|")
		grid = append(grid, strings.Split(strings.TrimSuffix(row, "|"), "|"))
		for j, cell := range grid[i] {
			cell = strings.TrimSpace(strings.ReplaceAll(cell, "\x00", "|"))
			if grid[i][j] = cell; j == len(whole) {
				whole, least = append(whole, 1), append(least, 1)
			}
			for _, word := range m.cell(cell, 1, i) {
				least[j] = max(least[j], plainWidth(word))
			}
			whole[j] = max(whole[j], least[j], plainWidth(m.cell(cell, 1<<20, i)[0]))
		}
	}
	columns, used := slices.Clone(least), 3*(len(least)-1)
	for _, n := range least {
		used += n
	}
	if used > m.window {
		m.list(grid)
		return
	}
	for grown := -1; grown < used; {
		grown = used
		for j := len(columns) - 1; j >= 0; j-- { // the last one often has the most text
			if columns[j] < whole[j] && used < m.window {
				columns[j]++
				used++
			}
		}
	}
	var rule []string
	for _, n := range columns {
		rule = append(rule, strings.Repeat("─", n))
	}
	for i, row := range grid {
		cells, height := make([][]string, len(columns)), 1
		for j, cell := range row {
			cells[j] = m.cell(cell, columns[j], i)
			height = max(height, len(cells[j]))
		}
		for line := range height {
			texts := make([]string, len(columns))
			for j, n := range columns {
				if line < len(cells[j]) {
					texts[j] = cells[j][line]
				}
				texts[j] += strings.Repeat(" ", n-plainWidth(texts[j]))
			}
			m.out.WriteString(strings.TrimRight(strings.Join(texts, " │ "), " ") + "\n")
		}
		if i == 0 {
			m.out.WriteString(strings.Join(rule, "─┼─") + "\n")
		}
	}
}

// list lays out a table whose columns have no room: each cell after its column's head.
func (m *markdown) list(grid [][]string) {
	for i, row := range grid[1:] {
		if i > 0 {
			m.endLine()
		}
		for j, cell := range row {
			if m.hang, m.hung = "  ", 2; j < len(grid[0]) {
				m.inline(grid[0][j]+": ", Bold, false)
			}
			m.inline(cell, "", false)
			m.endLine()
		}
	}
}

// cell returns the rows of a cell of the i-th row of a table.
func (m *markdown) cell(text string, columns, i int) []string {
	c, style := markdown{folder: folder{columns: columns, styled: m.styled}}, Style("")
	if i == 0 {
		style = Bold
	}
	c.inline(text, style, false)
	c.place()
	return strings.Split(c.take(), "\n")
}
