// screen_inline.go - the markup within a line: emphasis, code and escapes.
// SPDX-License-Identifier: 0BSD

package main

import (
	"regexp"
	"slices"
	"strings"
	"unicode"
)

var (
	// What two markers have between them, with the character after it where that matters: code and
	// formulas, and escapes. Nothing within them is emphasis.
	verbatim = regexp.MustCompile("^(?:`[^`]+`|``.+?``|\\$[^\\s\\d$][^$]*\\$|" +
		`\\\(.+?\\\)|\\\[.+?\\\]|\\[^(\[])`)
	emphasis = regexp.MustCompile(`^(?:` +
		between(`\*{3}`, `*`, `\*`, ``, ``) + `|` +
		between(`\*{2}`, `*`, `\*`, ``, ``) + `|` +
		between(`\*`, `*`, `\*\*`, `.`, letters) + `|` +
		between(`_`, `_`, `_`, `.`, letters) + `)`)

	// The text so far, if the second marker may come.
	begun = regexp.MustCompile("^(?:`|[*_]+(?:$|\\S)|\\$(?:$|[^\\s\\d])|\\\\(?:$|[(\\[]))")
)

const letters = `0-9A-Za-z\p{Latin}\p{Greek}\p{Cyrillic}`

// between is a regexp for what such markers have between them: code and escapes as a whole, and
// other characters. Names, powers and patterns of files have the characters that mark emphasis,
// too: snake_case, __init__, 2*3*4, *.go. In scripts with wide characters, which put no blanks
// between words, emphasis may begin and end anywhere.
//
// marker is the marker, and char the character that it consists of. others is how the text may have
// more of that. notFirst may not begin the text, and notAfter not follow the second marker.
func between(marker, char, others, notFirst, notAfter string) string {
	whole := "|\\\\.|`[^`]+`"
	within := "[^\\s`\\\\" + char
	first := within + `,;:!?/)\]}` + notFirst + "]" + whole
	next := `\s*(?:` + within + "]" + whole + "|" + others + ")"
	return "(" + marker + ")((?:" + first + ")(?:" + next + ")*?)" + marker +
		"[^" + char + notAfter + "]"
}

// inline lays out text within a line, as far as that can be decided, and returns how much that was.
// more says that the text may go on.
func (m *markdown) inline(text string, style Style, more bool) int {
	rest := text
	hasMarkup := m.styled && m.fence == ""
	for hasMarkup {
		marker := strings.IndexAny(rest, "`$\\*_")
		if marker < 0 {
			break
		}
		m.put(rest[:marker], style)
		rest = rest[marker:]
		size := m.span(rest[:min(len(rest), maxSpan)], style, more && len(rest) < maxSpan)
		if size == 0 {
			return len(text) - len(rest)
		}
		rest = rest[size:]
	}
	m.put(rest, style)
	return len(text)
}

// span lays out the marker at the beginning of a text, or two and what they have between them. It
// returns their length, or 0 if that cannot be decided.
func (m *markdown) span(text string, style Style, more bool) int {
	size := 0
	marksEmphasis := text[0] == '*' || text[0] == '_'
	switch {
	case marksEmphasis && m.isWithinName(rune(text[0])):
		more = false
	case marksEmphasis:
		size = m.emphasize(text, style, more)
	default:
		size = m.layOutVerbatim(text, style)
	}
	if size > 0 {
		return size
	}
	if more && begun.MatchString(text) {
		return 0
	}
	m.put(text[:1], style)
	return 1
}

// isWithinName reports whether a character stands where it marks no emphasis: within a name or an
// address, or after another one that was text.
func (m *markdown) isWithinName(mark rune) bool {
	isNarrowLetter := unicode.In(m.last, unicode.L, unicode.N) && runeWidth(m.last) == 1
	mayBegin := mark == '*' || strings.ContainsRune("\x00 ([{\"'“‘*", m.last)
	return isNarrowLetter || m.last == mark || !mayBegin
}

// layOutVerbatim lays out code, a formula or an escape, and returns its length: 0 if there is none.
// A formula is shown as it was written.
func (m *markdown) layOutVerbatim(text string, style Style) int {
	found := verbatim.FindString(text)
	if found == "" {
		return 0
	}
	isEscape := found[0] == '\\' && strings.Contains("*_#`|~><-+.!$", found[1:])
	switch {
	case found[0] == '`':
		m.put(strings.TrimSpace(strings.Trim(found, "`")), style+Cyan)
	case isEscape:
		m.put(found[1:], style)
	default:
		m.put(found, style)
	}
	return len(found)
}

// emphasize lays out emphasis, and returns its length: 0 if there is none. Where no more comes, the
// end of the line stands behind the second marker.
func (m *markdown) emphasize(text string, style Style, more bool) int {
	if !more {
		text += "\n"
	}
	isNone := func(s string) bool { return s == "" }
	found := slices.DeleteFunc(emphasis.FindStringSubmatch(text), isNone)
	if found == nil {
		return 0
	}
	marker, inner := found[1], found[2]
	switch len(marker) {
	case 1:
		style += Italic
	case 2:
		style += Bold
	default:
		style += Bold + Italic
	}
	m.inline(inner, style, false)
	return 2*len(marker) + len(inner)
}
