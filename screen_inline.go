// screen_inline.go - the markup within a paragraph: emphasis, code, links, escapes and entities.
// SPDX-License-Identifier: 0BSD

package main

import (
	"html"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

var (
	// What two markers have between them, with the character after it where that matters: code and
	// formulas, and escapes. Nothing within them is emphasis.
	verbatim = regexp.MustCompile("(?s)^(?:`[^`]+`|``.+?``|\\$[^\\s\\d$][^$]*\\$|" +
		`\\\(.+?\\\)|\\\[.+?\\\]|\\[^(\[])`)
	emphasis = regexp.MustCompile(`^(?:` +
		between(`\*{3}`, `*`, `\*`, ``, ``) + `|` +
		between(`\*{2}`, `*`, `\*`, ``, ``) + `|` +
		between(`\*`, `*`, `\*\*`, `.`, letters) + `|` +
		between(`_`, `_`, `_`, `.`, letters) + `|` +
		between(`~~`, `~`, `~`, ``, ``) + `)`)

	// A link or a picture: its text, and its address in one of two forms. A title may follow.
	link = regexp.MustCompile(`(?s)^!?\[((?:\\.|[^\[\]\\]|\[[^\[\]]*\])*)\]\(\s*` +
		`(?:<((?:[^<>()\s\\]|\([^()\s\\]*\))+)>|((?:\\.|[^\s()\\<]|\([^\s()]*\))+))` +
		`(?:\s+(?:"[^"()]*"|'[^'()]*'|\([^()]*\)))?\s*\)`)
	autolink  = regexp.MustCompile(`^<((?:https?://|ftp://|mailto:)[^\s<>]+|[\w.+-]+@[\w.-]+)>`)
	entities  = regexp.MustCompile(`&(?:#\d{1,7}|#[xX][0-9A-Fa-f]{1,6}|[A-Za-z]\w{1,31});`)
	entity    = regexp.MustCompile("^" + entities.String())
	backslash = regexp.MustCompile("\\\\([!-/:-@\\[-`{-~])")

	// The text so far, if the second marker may come.
	begun = regexp.MustCompile("(?s)^(?:`|[*_]+(?:$|\\S)|~(?:$|~(?:$|\\S))|" +
		`\$(?:$|[^\s\d])|\\(?:$|[(\[])|!$|<[^\s<>]*$|&(?:#?\w{0,32})$|` +
		`!?\[(?:\\.|[^\[\]\\]|\[[^\[\]]*\]?)*` +
		`(?:\\|\](?:\((?:\\.|[^()\\]|\([^()]*\)?)*\\?)?)?$)`)
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

// Where markup may begin. Without styles, emphasis is shown as it was written.
const (
	markers      = "`$\\&<![*_~"
	plainMarkers = "`$\\&<!["
)

// inline lays out text within a line, as far as that can be decided, and returns how much that was.
// more says that the text may go on.
func (m *markdown) inline(text string, style Style, more bool) int {
	rest := text
	chars := markers
	if !m.styled {
		chars = plainMarkers
	}
	for {
		marker := strings.IndexAny(rest, chars)
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
	switch text[0] {
	case '*', '_', '~':
		if m.isWithinName(rune(text[0])) {
			more = false
			break
		}
		size = m.emphasize(text, style, more)
	case '[', '!':
		size = m.layOutLink(text, style)
	case '<':
		size = m.layOutAddress(text, style)
	case '&':
		found := entity.FindString(text)
		m.put(decodeEntities(found), style)
		size = len(found)
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
	mayBegin := mark != '_' || strings.ContainsRune("\x00 ([{\"'“‘*", m.last)
	return isNarrowLetter(m.last) || m.last == mark || !mayBegin
}

// isNarrowLetter reports whether a character is a letter or a digit of a script that puts blanks
// between words.
func isNarrowLetter(r rune) bool {
	return unicode.In(r, unicode.L, unicode.N) && runeWidth(r) == 1
}

// layOutVerbatim lays out code, a formula or an escape, and returns its length: 0 if there is none.
// A formula is shown as it was written, and without styles all of them.
func (m *markdown) layOutVerbatim(text string, style Style) int {
	found := verbatim.FindString(text)
	if found == "" {
		return 0
	}
	isEscape := found[0] == '\\' && strings.Contains("*_#`|~><-+.!$&", found[1:])
	switch {
	case !m.styled:
		m.put(found, style)
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
	switch {
	case marker == "~~":
		// The marks stay: where a terminal strikes nothing through, and in what is copied, the text
		// would say the contrary.
		m.put(marker, style+Faint)
		m.inline(inner, style+Faint+Struck, false)
		m.put(marker, style+Faint)
		return 2*len(marker) + len(inner)
	case len(marker) == 1:
		style += Italic
	case len(marker) == 2:
		style += Bold
	default:
		style += Bold + Italic
	}
	m.inline(inner, style, false)
	return 2*len(marker) + len(inner)
}

// layOutLink lays out a link or a picture with its address, and returns its length: 0 if there is
// none. Behind a letter there is none: what stands there is an index in a program.
func (m *markdown) layOutLink(text string, style Style) int {
	found := link.FindStringSubmatch(text)
	isIndex := text[0] == '[' && isNarrowLetter(m.last)
	if found == nil || isIndex {
		return 0
	}
	inner := strings.TrimSpace(found[1])
	address := decodeEntities(backslash.ReplaceAllString(found[2]+found[3], "$1"))
	switch {
	case inner == "":
		m.put(address, style)
	case inner == address || "mailto:"+inner == address:
		m.put(inner, style)
	default:
		m.inline(inner, style, false)
		m.put(" ", "")
		m.put("("+address+")", Faint)
	}
	return len(found[0])
}

// layOutAddress lays out an address in angle brackets, and returns its length: 0 if there is none.
func (m *markdown) layOutAddress(text string, style Style) int {
	found := autolink.FindStringSubmatch(text)
	if found == nil {
		return 0
	}
	m.put(found[1], style)
	return len(found[0])
}

// decodeEntities returns a text, on one line, with the characters that its entities stand for, as
// far as a terminal may get them.
func decodeEntities(text string) string {
	text = Visible(entities.ReplaceAllStringFunc(text, html.UnescapeString))
	return strings.NewReplacer("\n", " ", "\t", " ").Replace(text)
}
