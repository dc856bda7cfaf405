// terminal_markdown.go - the markdown that models write, laid out while it comes.
// SPDX-License-Identifier: 0BSD

package main

import (
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// markdown lays out a text for a terminal, to which it only appends. It holds back what it cannot decide yet: a word,
// a marker of emphasis, code or a link until its other half comes, and a table until it ends. A marker without its
// other half in the line and within maxSpan is text. Without styles, markers that carry meaning stay. Control
// characters have been taken out of the text.
type markdown struct {
	folder
	window int // its columns; all but code and tables is folded at maxAnswerWidth
	styled bool

	rest   string   // not decided yet
	inLine bool     // the marks at the beginning of the line have been read
	style  Style    // of the line
	asIs   bool     // the line has no markers
	fence  string   // ends the code or the formula that the lines are part of; "" if they are not
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
	undecided = regexp.MustCompile("^[ \t]*(>|#{1,6}[ \t]*|\\d{1,9}([.)][ \t]*)?|[-+*_][-*_ \t]*|`{1,2}|`{3,}[^`]*|" +
		"~{1,2}|~{3,}.*|(\\$\\$?|\\\\\\[?)[ \t]*)?$")
	quote     = regexp.MustCompile(`^> ?`)
	heading   = regexp.MustCompile(`^#{1,6}([ \t]+|$)`)
	item      = regexp.MustCompile(`^([-+*]|\d{1,9}[.)])([ \t]+|$)`)
	ruler     = regexp.MustCompile(`^((- *){3,}|(\* *){3,}|(_ *){3,})$`)
	fences    = regexp.MustCompile("^(?:(`{3,}|~{3,})[^`]*|(\\$\\$|\\\\\\[)[ \t]*)$")
	tableRow  = regexp.MustCompile(`^ *\|`)
	delimiter = regexp.MustCompile(`^ *\|( *:?-+:? *\|)* *(:?-+:? *)?$`)

	sequences = regexp.MustCompile("\x1b\\[\\d+m")

	// What two markers have between them, with the character after it where that matters.
	link  = regexp.MustCompile(`^!?\[([^\[\]]+)\]\(<?([^\s()<>]*(?:\([^\s()]*\)[^\s()<>]*)*)>?(?:\s+"[^"]*")?\)`)
	exact = regexp.MustCompile("^(?:`[^`]+`|``.+?``|\\$[^\\s\\d$][^$]*\\$|\\$\\$[^$]+\\$\\$|" +
		`\\\(.+?\\\)|\\\[.+?\\\]|\\[^(\[])`)
	emphasis = regexp.MustCompile(`^(?:` + between(`\*{3}`, `*`, `\*`, ``, ``) + `|` +
		between(`\*{2}`, `*`, `\*`, ``, ``) + `|` + between(`\*`, `*`, `\*\*`, `.`, letters) + `|` +
		between(`_`, `_`, `_`, `.`, letters) + `)`)

	// The text so far, if the second marker may come.
	begun = regexp.MustCompile("^(?:`|\\*{2,3}(?:$|[^\\s*" + noFirst + "])|\\*(?:$|[^\\s*." + noFirst + "])|" +
		"_(?:$|[^\\s_." + noFirst + "])|\\$(?:$|\\$|[^\\s\\d])|\\\\(?:$|[(\\[])|" +
		`!?(?:\[[^\[\]]*(?:\](?:\([^)]*(?:\)[^)]*)?)?)?)?$)`)
)

// Names, powers and patterns of files have the characters that mark emphasis, too: snake_case, __init__, 2*3*4, *.go.
// In scripts with wide characters, which put no blanks between words, emphasis may begin and end anywhere.
const (
	letters = `0-9A-Za-z\p{Latin}\p{Greek}\p{Cyrillic}`
	noFirst = `,;:!?/)\]}`
)

// between is a regexp for what such markers have between them: code and escapes have none, others are within.
func between(marker, char, others, notFirst, notAfter string) string {
	exact := "|\\\\.|`[^`]+`"
	return "(" + marker + ")((?:[^\\s`\\\\" + char + noFirst + notFirst + "]" + exact + ")" +
		"(?:\\s*(?:[^\\s`\\\\" + char + "]" + exact + "|" + others + "))*?)" + marker + "[^" + char + notAfter + "]"
}

func newMarkdown(columns int, styled bool) *markdown {
	return &markdown{window: columns, styled: styled}
}

// write returns what can be shown after the next piece of the text.
func (m *markdown) write(text string) string {
	m.rest += text
	m.lines(true)
	return m.take()
}

// end returns what was held back.
func (m *markdown) end() string {
	m.lines(false)
	m.table()
	m.place()
	return m.take()
}

// lines lays out what can be decided. more says that the text may go on.
func (m *markdown) lines(more bool) {
	for m.rest != "" {
		if m.columns = m.window; m.fence == "" && !m.asIs {
			m.columns = min(m.window, maxAnswerWidth)
		}
		if !m.inLine {
			if !m.begin(more) {
				return
			}
			continue
		}
		line, rest, ended := strings.Cut(m.rest, "\n")
		if ended && !m.asIs && (len(line)-len(strings.TrimRight(line, `\`)))%2 == 1 {
			line = line[:len(line)-1] // a hard break; but all breaks are kept
		}
		n := len(line)
		if m.asIs {
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
	m.inLine, m.style, m.asIs = false, "", false
}

// begin reads a mark at the beginning of a line. It reports whether it could decide what that is.
func (m *markdown) begin(more bool) bool {
	formula := m.fence == "$$" || m.fence == `\]`
	row, limit := m.fence == "" && m.column == 0 && tableRow.MatchString(m.rest), maxSpan
	if row {
		limit = maxTable - m.size
	}
	line, _, ended := strings.Cut(m.rest[:min(len(m.rest), limit)], "\n")
	if whole := ended || !more || len(line) == limit; !whole && (row || formula || undecided.MatchString(line)) {
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
	text := strings.TrimLeft(line, " \t")
	m.rest, m.inLine = m.rest[len(line)-len(text):], true
	if indent := strings.ReplaceAll(line[:len(line)-len(text)], "\t", "    "); text != "" && indent != "" {
		m.lead(indent[:min(len(indent), m.columns/2)], false)
	}
	mark, end := "", strings.TrimSpace(text)
	is := func(begin *regexp.Regexp) bool { mark = begin.FindString(text); return mark != "" }
	switch fence := fences.FindStringSubmatch(text); {
	case (m.fence == "" || m.quoted && m.column == 0) && is(quote):
		m.inLine = false
		m.lead("│ ", true)
	case formula:
		if m.asIs = true; end == "" || strings.HasSuffix(end, m.fence) {
			m.fence = ""
		}
	case m.fence != "" && strings.HasPrefix(end, m.fence) && strings.Trim(end, m.fence[:1]) == "":
		m.asIs, m.style, m.fence = true, m.look(Faint), ""
	case m.fence != "":
		m.asIs, m.style = true, m.look(Cyan)
		m.hang, m.hung = m.hang+"  ", m.hung+2
	case fence != nil:
		m.asIs, m.style, m.quoted = true, m.look(Faint), m.hung > 0
		m.fence = strings.Replace(fence[1]+fence[2], "[", "]", 1)
	case is(ruler):
		m.put(strings.Repeat("─", max(m.columns-m.column, 1)), "")
	case is(heading):
		if m.style = m.look(Bold); !m.styled {
			m.put(mark, "")
		}
	case is(item):
		m.inLine = false
		m.lead(strings.Trim(bullet.ReplaceAllString(mark, "•"), " \t")+" ", false)
	}
	m.rest = m.rest[len(mark):]
	return true
}

func (m *markdown) look(style Style) Style {
	if m.styled {
		return style
	}
	return ""
}

// inline lays out text within a line, as far as that can be decided, and returns how much that was.
func (m *markdown) inline(text string, style Style, more bool) (n int) {
	for n < len(text) {
		part := text[n:min(len(text), n+maxSpan)]
		size := m.span(part, style, more && len(part) < maxSpan)
		if size == 0 {
			break
		}
		n += size
	}
	return n
}

// span lays out the first character of a text, or the markers that it begins with and what they have between them. It
// returns its length, or 0 if that cannot be decided.
func (m *markdown) span(text string, style Style, more bool) int {
	r, size := utf8.DecodeRuneInString(text)
	switch r {
	case '[', '!':
		if found := link.FindStringSubmatch(text); found != nil {
			m.inline(found[1], style, false)
			if found[2] != found[1] {
				m.put(" ("+found[2]+")", style+m.look(Faint))
			}
			return len(found[0])
		}
	case '`', '$', '\\':
		if found := exact.FindString(text); found != "" {
			inner := found
			if r == '`' && m.styled {
				inner, style = strings.Trim(found, "`"), style+Cyan
				if short := strings.TrimPrefix(strings.TrimSuffix(inner, " "), " "); len(short) == len(inner)-2 {
					inner = short
				}
			} else if r == '\\' && strings.Contains("*_#`|~><-+.!$", found[1:]) {
				inner = found[1:]
			}
			m.put(inner, style)
			return len(found)
		}
	case '*', '_':
		if unicode.In(m.last, unicode.L, unicode.N) && runeWidth(m.last) == 1 || m.last == r || r == '_' && m.address {
			m.put(text[:1], style)
			return 1
		}
		if !more {
			text += "\n"
		}
		isNone := func(s string) bool { return s == "" }
		if found := slices.DeleteFunc(emphasis.FindStringSubmatch(text), isNone); found != nil {
			mark, look := found[1], [...]Style{Italic, Bold, Bold + Italic}[len(found[1])-1]
			if m.styled {
				mark = ""
			}
			m.put(mark, style)
			m.inline(found[2], style+m.look(look), false)
			m.put(mark, style)
			return 2*len(found[1]) + len(found[2])
		}
	}
	if more && strings.Contains("[!`$\\*_", text[:1]) && begun.MatchString(text) {
		return 0
	}
	m.put(text[:size], style)
	return size
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
	var columns, least []int // how wide each column is to be, and its longest word
	for i, row := range slices.Delete(rows, 1, 2) {
		row = strings.TrimPrefix(strings.TrimSpace(strings.ReplaceAll(row, `\|`, "\x00")), "|")
		grid = append(grid, strings.Split(strings.TrimSuffix(row, "|"), "|"))
		for j, cell := range grid[i] {
			grid[i][j] = strings.TrimSpace(strings.ReplaceAll(cell, "\x00", "|"))
			if j == len(columns) {
				columns, least = append(columns, 1), append(least, 1)
			}
			whole := shown(m.cell(grid[i][j], 1<<20, i)[0])
			least[j] = max(least[j], min(whole, 8))
			for _, word := range m.cell(grid[i][j], 1, i) {
				least[j] = max(least[j], shown(word))
			}
			columns[j] = max(columns[j], min(whole, m.window), least[j])
		}
	}
	used := 3 * (len(columns) - 1)
	for _, n := range columns {
		used += n
	}
	for ; used > m.window; used-- {
		widest := 0
		for j := range columns {
			if columns[j]-least[j] > columns[widest]-least[widest] {
				widest = j
			}
		}
		if columns[widest] == least[widest] {
			m.list(grid)
			return
		}
		columns[widest]--
	}
	for i, row := range grid {
		cells := make([][]string, len(columns))
		for j := range row {
			cells[j] = m.cell(row[j], columns[j], i)
		}
		for more := true; more; {
			line := ""
			more = false
			for j, n := range columns {
				text := ""
				if len(cells[j]) > 0 {
					text, cells[j] = cells[j][0], cells[j][1:]
				}
				more = more || len(cells[j]) > 0
				line += " │ " + text + strings.Repeat(" ", n-shown(text))
			}
			m.lead(strings.TrimRight(strings.TrimPrefix(line, " │ "), " "), false)
			m.endLine()
		}
		if i > 0 {
			continue
		}
		rule := ""
		for _, n := range columns {
			rule += "─┼─" + strings.Repeat("─", n)
		}
		m.lead(strings.TrimPrefix(rule, "─┼─"), false)
		m.endLine()
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
				m.inline(grid[0][j]+": ", m.look(Bold), false)
			}
			m.inline(cell, "", false)
			m.endLine()
		}
	}
}

// cell returns the rows of a cell of the i-th row of a table.
func (m *markdown) cell(text string, columns, i int) []string {
	c := markdown{folder: folder{columns: columns}, styled: m.styled}
	style := Style("")
	if i == 0 {
		style = m.look(Bold)
	}
	c.inline(text, style, false)
	c.place()
	return strings.Split(c.take(), "\n")
}

// shown is the width of a text with styles.
func shown(text string) int { return width(sequences.ReplaceAllString(text, "")) }
