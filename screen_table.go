// screen_table.go - tables in markdown, in columns that the window has room for.
// SPDX-License-Identifier: 0BSD

package main

import (
	"regexp"
	"slices"
	"sort"
	"strings"
)

// delimiter matches the row below the head of a table.
var delimiter = regexp.MustCompile(`^ *\|( *:?-+:? *\|)* *(:?-+:? *)?$`)

// layOutTable lays out the table that has ended, in columns that are as wide as the window has room
// for. Words are broken only where there is no room without. A table of too many columns, and what
// is none, stays as it was written.
func (m *markdown) layOutTable() {
	if m.rows == "" {
		return
	}
	rows := strings.Split(m.rows, "\n")
	// Each row ends its line, so the last part is empty.
	rows = rows[:len(rows)-1]
	m.rows = ""
	isTable := len(rows) >= 2 && delimiter.MatchString(rows[1])
	if isTable {
		lines := m.widestGrid(rows, false)
		if lines == nil {
			lines = m.widestGrid(rows, true)
		}
		if lines != nil {
			m.endLine()
			m.out.WriteString(strings.Join(lines, "\n"))
			// The last line is not empty.
			m.column = 1
			m.begun = true
			return
		}
	}
	for _, row := range rows {
		m.endLine()
		m.inline(row, "", false)
		m.begun = true
	}
}

// widestGrid returns the lines of a table in the widest columns for which the window has room, or
// nil if it has none for columns of one character. One bound holds for all columns, and this finds
// the largest. With breaks, words that are longer than the bound are broken.
func (m *markdown) widestGrid(rows []string, breaks bool) []string {
	widest := sort.Search(m.columns, func(n int) bool { return m.grid(rows, n+1, breaks) == nil })
	if widest == 0 {
		return nil
	}
	return m.grid(rows, widest, breaks)
}

// gridRow is a row of a table: the lines of each of its cells.
type gridRow [][]string

// grid lays out the rows of a table. widest is one bound for all columns: each is as wide as its
// longest line, and no line is longer than widest, unless a word is. Where breaks is false, such a
// word stays whole, and its column is as wide as the word. Where it is true, the word is broken
// into pieces, each of them one character longer than widest: see folder.addToWord. grid returns
// nil if the window has no room for the table.
func (m *markdown) grid(rows []string, widest int, breaks bool) (lines []string) {
	var cells []gridRow
	var widths []int
	// The first row is the head.
	style := Bold
	for _, row := range slices.Concat(rows[:1], rows[2:]) {
		var laidOut gridRow
		for j, text := range cellTexts(row) {
			cell := markdown{folder: folder{columns: widest, breaks: breaks, styled: m.styled}}
			cell.inline(text, style, false)
			cell.place()
			laidOut = append(laidOut, strings.Split(cell.out.String(), "\n"))
			if j == len(widths) {
				widths = append(widths, 1)
			}
			for _, line := range laidOut[j] {
				widths[j] = max(widths[j], plainWidth(line))
			}
		}
		cells = append(cells, laidOut)
		style = ""
	}
	below := rule(widths)
	if Width(below) > m.columns {
		return nil
	}
	sides := alignments(rows[1], len(widths))
	for i, row := range cells {
		lines = append(lines, row.lines(widths, sides)...)
		if i == 0 {
			lines = append(lines, below)
		}
	}
	return lines
}

// tagged matches the tag that breaks the line in a cell, which has no other way to.
var tagged = regexp.MustCompile(`\s*<br ?/?>\s*`)

// cellTexts returns the texts of a row's cells. An escaped bar ends none.
func cellTexts(row string) (texts []string) {
	const bar = "\x00" // It stands for an escaped bar. Control characters have been taken out.
	row = strings.TrimSpace(strings.ReplaceAll(row, `\|`, bar))
	row = strings.TrimSuffix(strings.TrimPrefix(row, "|"), "|")
	for text := range strings.SplitSeq(row, "|") {
		text = strings.TrimSpace(strings.ReplaceAll(text, bar, "|"))
		texts = append(texts, tagged.ReplaceAllString(text, hardBreak))
	}
	return texts
}

// rule is the line below the head of a table.
func rule(widths []int) string {
	var parts []string
	for _, n := range widths {
		parts = append(parts, strings.Repeat("─", n))
	}
	return strings.Join(parts, "─┼─")
}

// alignment is how the cells of a column stand in it.
type alignment int

const (
	left alignment = iota
	center
	right
)

// alignments reads the row below the head of a table.
func alignments(row string, columns int) []alignment {
	sides := make([]alignment, columns)
	for i, text := range cellTexts(row) {
		isRight := strings.HasSuffix(text, ":")
		switch {
		case i >= columns || !isRight:
		case strings.HasPrefix(text, ":"):
			sides[i] = center
		default:
			sides[i] = right
		}
	}
	return sides
}

// lines returns the lines of a row, each cell as wide as its column. A row may have fewer cells
// than there are columns, and it has one line at least.
func (r gridRow) lines(widths []int, sides []alignment) (lines []string) {
	height := 1
	for _, cell := range r {
		height = max(height, len(cell))
	}
	for at := range height {
		texts := make([]string, len(widths))
		for j, n := range widths {
			if j < len(r) && at < len(r[j]) {
				texts[j] = r[j][at]
			}
			room := n - plainWidth(texts[j])
			before := 0
			switch sides[j] {
			case center:
				before = room / 2
			case right:
				before = room
			}
			blanks := strings.Repeat(" ", room)
			texts[j] = blanks[:before] + texts[j] + blanks[before:]
		}
		lines = append(lines, strings.TrimRight(strings.Join(texts, " │ "), " "))
	}
	return lines
}
