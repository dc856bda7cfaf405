// screen_frame.go - a peer's text that the user decides on, marked, with nothing hidden in it.
// SPDX-License-Identifier: 0BSD

package main

import "strings"

// What a row of a peer's text begins with, if not with its label. No row of the program begins so.
const (
	LineMark = "  │ "
	foldMark = "  … " // the row goes on with the line before
)

// maxIndent is how many blanks at the beginning of a peer's line are shown as they are.
const maxIndent = 24

// frame returns a peer's text in rows that fit a window. The label and the marks show which rows
// are the peer's, whatever it has written.
func frame(look Look, text string, columns int) string {
	var rows []string
	lines := strings.Split(strings.ReplaceAll(text, "\r\n", "\n"), "\n")
	for i, line := range lines {
		mark := LineMark
		if i == 0 {
			mark = look.Frame
		}
		switch {
		case look.Exact:
			line = strings.ReplaceAll(Visible(line), "\t", "    ")
		case i == 0:
			line = exactly(line)
		default:
			indent := min(len(line)-len(strings.TrimLeft(line, " ")), maxIndent)
			line = line[:indent] + exactly(line[indent:])
		}
		rows = append(rows, framedRows(mark, line, columns)...)
	}
	return strings.Join(rows, "\n")
}

// framedRows returns a line in rows: the first begins with the mark, and the others show that they
// go on. A row ends behind a blank, unless the word before that would leave half of it empty.
// However narrow the window is, a row has one character.
func framedRows(mark, line string, columns int) (rows []string) {
	for {
		row, rest := split(line, max(columns-Width(mark), 2))
		afterBlank := strings.LastIndexByte(row, ' ') + 1
		if rest != "" && afterBlank > len(row)/2 {
			row = row[:afterBlank]
		}
		rows = append(rows, mark+row)
		line = line[len(row):]
		if line == "" {
			return rows
		}
		mark = foldMark
	}
}
