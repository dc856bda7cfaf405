// screen_text.go - what may be seen of a text, and the widths of texts and characters.
// SPDX-License-Identifier: 0BSD

package main

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf16"
)

// Visible returns a text that a terminal may get: U+FFFD stands for each character that a terminal
// obeys instead of showing it (control characters, separators of lines, marks that reorder text),
// except line breaks and tabs. What cannot be seen and does no harm stays: emoji and several
// scripts consist of it. The user decides on no such text: see frame.
func Visible(text string) string {
	return strings.Map(func(r rune) rune {
		if steers(r) {
			return '\uFFFD'
		}
		return r
	}, strings.ReplaceAll(text, "\r\n", "\n"))
}

// steers reports whether a terminal may obey a character instead of showing it.
func steers(r rune) bool {
	return r != '\n' && r != '\t' &&
		unicode.In(r, unicode.Cc, unicode.Zl, unicode.Zp, unicode.Bidi_Control)
}

// unseen reports whether a character leaves nothing on the screen, or a blank that is not the
// blank: control and format characters, white space, selectors, fillers, and what is not assigned
// or private. Two printed characters have no ink either: a braille pattern and a musical note.
func unseen(r rune) bool {
	return !unicode.IsPrint(r) || r == '\u2800' || r == '\U0001D159' ||
		unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}

// escape returns a text with an escape, as in JSON, for each character that hide reports.
func escape(text string, hide func(r rune) bool) string {
	var b strings.Builder
	for _, r := range text {
		if !hide(r) {
			b.WriteRune(r)
			continue
		}
		for _, unit := range utf16.Encode([]rune{r}) {
			fmt.Fprintf(&b, `\u%04x`, unit)
		}
	}
	return b.String()
}

// EscapeUnseen returns a text with an escape, as in JSON, for each character that cannot be seen.
func EscapeUnseen(text string) string { return escape(text, unseen) }

// OneName returns a peer's name as it stands if it is plain, and else as a JSON string with
// escapes. So a list shows one name on one line, and nothing that the name has can look like the
// text around it. A plain name has only characters that can be seen, and none of the signs that
// stand around names: no blank, comma, bracket or quote.
func OneName(name string) string {
	isPlain := name != "" && !strings.ContainsAny(name, ` ,()"\`) && exactly(name) == name
	if isPlain {
		return name
	}
	quoted, _ := plainJSON(name)
	return exactly(string(quoted))
}

// OneNames returns names for a sentence, with commas between them.
func OneNames(names []string) string {
	var quoted []string
	for _, name := range names {
		quoted = append(quoted, OneName(name))
	}
	return strings.Join(quoted, ", ")
}

// blankRun matches blanks that are easily overlooked: at the two ends of a line, and many in a row.
var blankRun = regexp.MustCompile(`^ +| {4,}| +$`)

// maxMarks is how many marks (accents, vowel signs) a letter may have. More of them cover each
// other and the rows around.
const maxMarks = 4

// exactly returns a line with nothing hidden in it: blanks that are easily overlooked are counted,
// and what cannot be seen is escaped, as are marks beyond maxMarks and those without a letter
// before them.
func exactly(line string) string {
	line = blankRun.ReplaceAllStringFunc(line, func(run string) string {
		return "[" + Plural(len(run), "blank") + "]"
	})
	// The beginning is no letter: a mark there is one too many.
	marks := maxMarks
	return escape(line, func(r rune) bool {
		marks++
		isLetter := runeWidth(r) > 0 && !unicode.Is(unicode.M, r)
		if isLetter {
			marks = 0
		}
		return marks > maxMarks || unseen(r)
	})
}

// split returns as much of a text as so many columns have room for, and the rest.
func split(text string, columns int) (begin, rest string) {
	end := strings.IndexFunc(text, func(r rune) bool {
		columns -= runeWidth(r)
		return columns < 0
	})
	if end < 0 {
		return text, ""
	}
	return text[:end], text[end:]
}

// fit is the one cutter by columns: a text on one line, cut to so many of them. Blanks at its
// beginning stay.
func fit(text string, columns int) string {
	indent := text[:len(text)-len(strings.TrimLeft(text, " "))]
	text = indent + strings.Join(strings.Fields(text), " ")
	if Width(text) > columns {
		begin, _ := split(text, columns-1)
		return begin + "…"
	}
	return text
}

// Width is how many columns a text takes.
func Width(text string) (columns int) {
	for _, r := range text {
		columns += runeWidth(r)
	}
	return columns
}

// plainWidth is the width of a text with styles.
func plainWidth(text string) int { return Width(styles.ReplaceAllString(text, "")) }

var styles = regexp.MustCompile("\x1b\\[\\d+m")

// runeWidth is how many columns a terminal uses for a character, or more: U+FE0F, the selector of
// the form of an emoji, makes some narrow characters wide.
func runeWidth(r rune) int {
	switch {
	case r < 0x300, r == '\uFE0F', unicode.Is(unicode.Prepended_Concatenation_Mark, r):
		return 1
	case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf):
		return 0
	case 0x1160 <= r && r <= 0x11FF:
		// These parts of Korean syllables join the part before.
		return 0
	case isWide(r):
		return 2
	}
	return 1
}

// isWide reports whether a character takes two columns (Unicode 16, UAX 11: East Asian Width W and
// F, which includes most emoji). The table has the first and the last character of each range.
// Ranges are joined over what is rare.
func isWide(r rune) bool {
	wide := [...][2]rune{
		{0x1100, 0x115F}, {0x231A, 0x231B}, {0x2329, 0x232A}, {0x23E9, 0x23F3}, {0x25FD, 0x25FE},
		{0x2614, 0x2615}, {0x2630, 0x2637}, {0x2648, 0x2653}, {0x267F, 0x267F}, {0x268A, 0x268F},
		{0x2693, 0x2693}, {0x26A1, 0x26A1}, {0x26AA, 0x26AB}, {0x26BD, 0x26FD}, {0x2705, 0x2705},
		{0x270A, 0x270B}, {0x2728, 0x2728}, {0x274C, 0x274E}, {0x2753, 0x2757}, {0x2795, 0x2797},
		{0x27B0, 0x27BF}, {0x2B1B, 0x2B1C}, {0x2B50, 0x2B55}, {0x2E80, 0xA4C6}, {0xA960, 0xA97C},
		{0xAC00, 0xD7A3}, {0xF900, 0xFAFF}, {0xFE10, 0xFE6B}, {0xFF01, 0xFF60}, {0xFFE0, 0xFFE6},
		{0x16FE0, 0x1B2FB}, {0x1D300, 0x1D376}, {0x1F004, 0x1F004}, {0x1F0CF, 0x1F0CF},
		{0x1F18E, 0x1FAFF}, {0x20000, 0x3FFFD},
	}
	end := func(pair [2]rune, r rune) int { return cmp.Compare(pair[1], r) }
	i, _ := slices.BinarySearchFunc(wide[:], r, end)
	return i < len(wide) && wide[i][0] <= r
}
