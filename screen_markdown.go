// screen_markdown.go - the markdown that models write, laid out while it comes.
// SPDX-License-Identifier: 0BSD

package main

import (
	"regexp"
	"slices"
	"sort"
	"strings"
	"unicode"
)

// markdown lays out a text for a terminal, to which it only appends. It holds back what it cannot decide yet: a word,
// a marker of emphasis or code until its other half comes, and a table until it ends. A marker without its other half
// in the line and within maxSpan is text, and without styles all of them are. Control characters have been taken out.
type markdown struct {
	folder
	raw    bool   // nothing is laid out
	rest   string // not decided yet
	inLine bool   // the marks at the beginning of the line have been read
	style  Style  // of the line
	fence  string // ends the code that the lines are part of; "" if they are not
	quoted bool   // which is in a quote
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
	return &markdown{folder: folder{columns: columns, styled: styled}}
}

// write returns what can be shown after the next piece of the text; all of it if that is the end.
func (m *markdown) write(text string, end bool) string {
	if m.raw {
		return text
	}
	m.rest += strings.ReplaceAll(text, "\t", "    ")
	for m.rest != "" && (m.inLine || m.begin(!end)) {
		if !m.inLine {
			continue
		}
		line, _, ended := strings.Cut(m.rest, "\n")
		m.rest = m.rest[m.inline(line, m.style, !end && !ended):]
		if !ended {
			break
		}
		m.newline()
		m.rest, m.inLine, m.style = m.rest[1:], false, ""
	}
	if end {
		m.table()
		m.place()
	}
	out := m.out.String()
	if m.out.Reset(); end {
		out = strings.TrimSuffix(out, "\n") // of a table
	}
	return out
}

// begin reads a mark at the beginning of a line. It reports whether it could decide what that is; more says that the
// text may go on.
func (m *markdown) begin(more bool) bool {
	row, limit := m.fence == "" && m.column == 0 && strings.HasPrefix(strings.TrimLeft(m.rest, " "), "|"), maxSpan
	if row {
		limit = maxTable - len(m.rows)
	}
	line, _, ended := strings.Cut(m.rest[:min(len(m.rest), limit)], "\n")
	if whole := ended || !more || len(line) == limit; !whole && (row || undecided.MatchString(line)) {
		return false
	}
	if row && len(line) < limit {
		m.rows += line + "\n"
		m.rest = strings.TrimPrefix(m.rest[len(line):], "\n")
		return true
	}
	m.table()
	text := strings.TrimLeft(line, " ")
	indent := len(line) - len(text)
	if m.rest, m.inLine = m.rest[indent:], true; text != "" {
		m.lead(line[:min(indent, m.columns/2)], false)
	}
	mark, end, room := "", strings.TrimSpace(text), m.column < m.columns/2
	is := func(begin *regexp.Regexp) bool { mark = begin.FindString(text); return mark != "" }
	switch fence := fences.FindStringSubmatch(text); {
	case room && (m.fence == "" || m.quoted && m.column == 0) && is(quote):
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
	case room && is(item):
		m.inLine = false
		m.lead(strings.NewReplacer("-", "•", "+", "•", "*", "•").Replace(strings.TrimSpace(mark))+" ", false)
	}
	m.rest = m.rest[len(mark):]
	return true
}

// inline lays out text within a line, as far as that can be decided, and returns how much that was.
func (m *markdown) inline(text string, style Style, more bool) int {
	rest := text
	for marker := 0; m.styled && m.fence == "" && marker >= 0; {
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

// table lays out the table that has ended, in columns that are as wide as the window has room for. Words are broken
// only where there is no room without. A table of too many columns, and what is none, stays as it was written.
func (m *markdown) table() {
	rows := strings.Split(m.rows, "\n")
	rows, m.rows = rows[:len(rows)-1], ""
	for _, breaks := range []bool{false, true} {
		if len(rows) < 2 || !delimiter.MatchString(rows[1]) {
			break
		}
		widest := sort.Search(m.columns, func(n int) bool { return m.grid(rows, n+1, breaks) == nil })
		if widest > 0 {
			m.out.WriteString(strings.Join(m.grid(rows, widest, breaks), "\n") + "\n")
			return
		}
	}
	for _, row := range rows {
		m.inline(row, "", false)
		m.newline()
	}
}

// grid lays out the rows of a table in columns that are no wider than that, unless words are: it does not break them,
// or one character later. It returns nil if the window has no room for that.
func (m *markdown) grid(rows []string, widest int, breaks bool) (lines []string) {
	var cells [][][]string // the lines of each, by row and column
	var widths []int
	style := Bold
	for _, row := range slices.Concat(rows[:1], rows[2:]) {
		row = strings.TrimPrefix(strings.TrimSpace(strings.ReplaceAll(row, `\|`, "\x00")), "|")
		var split [][]string
		for j, text := range strings.Split(strings.TrimSuffix(row, "|"), "|") {
			cell := markdown{folder: folder{columns: widest, breaks: breaks, styled: m.styled}}
			cell.inline(strings.TrimSpace(strings.ReplaceAll(text, "\x00", "|")), style, false)
			cell.place()
			split = append(split, strings.Split(cell.out.String(), "\n"))
			if j == len(widths) {
				widths = append(widths, 1)
			}
			for _, line := range split[j] {
				widths[j] = max(widths[j], plainWidth(line))
			}
		}
		cells, style = append(cells, split), ""
	}
	var rule []string
	for _, n := range widths {
		rule = append(rule, strings.Repeat("─", n))
	}
	below := strings.Join(rule, "─┼─")
	if Width(below) > m.columns {
		return nil
	}
	for i, row := range cells {
		for more, at := true, 0; more; at++ {
			more = false
			texts := make([]string, len(widths))
			for j, n := range widths {
				if j < len(row) && at < len(row[j]) {
					texts[j] = row[j][at]
					more = more || at+1 < len(row[j])
				}
				texts[j] += strings.Repeat(" ", n-plainWidth(texts[j]))
			}
			lines = append(lines, strings.TrimRight(strings.Join(texts, " │ "), " "))
		}
		if i == 0 {
			lines = append(lines, below)
		}
	}
	return lines
}
