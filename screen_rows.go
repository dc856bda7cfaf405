// screen_rows.go - the rows of the window that show a text that is being edited.
// SPDX-License-Identifier: 0BSD

package main

import "strings"

// draw returns what a window shows. Of a text that is too tall those rows are left out that are far
// from the cursor.
func (e *editor) draw(columns, size int) (d drawing) {
	e.columns = columns
	e.size = size
	begin, row := e.fold()
	rows := len(begin) - 1
	shown := min(max(size-1, 1), rows)
	e.top = min(max(e.top, row-shown+1), row, rows-shown)
	for i := e.top; i < e.top+shown; i++ {
		d.rows = append(d.rows, e.row(begin, i, min(begin[i+1], len(e.cells))))
	}
	d.row = row - e.top
	d.before = e.row(begin, row, e.at)
	return d
}

// shown is what is seen of a cell, on one line.
func (e *editor) shown(cell string) string {
	switch {
	case e.hidden || cell == "\n":
		return ""
	case cell == "\t":
		return "    "
	case isLong(cell):
		lines := strings.Count(strings.TrimSuffix(cell, "\n"), "\n") + 1
		return "[pasted " + Plural(lines, "line") + "]"
	}
	return cell
}

// lead is what a row begins with: the prompt, what is searched for, or the two blanks below "> ".
func (e *editor) lead(row int) string {
	switch {
	case row == 0 && e.search != nil:
		return e.search.prompt(e.columns)
	case row == 0:
		return e.prompt
	}
	return strings.Repeat(" ", min(plainWidth(e.prompt), 2))
}

// fold returns the first cell of each row, and of one behind the end; and the row of the cursor. A
// row leaves the last column of the window free, for the cursor behind its end.
func (e *editor) fold() (begin []int, row int) {
	begin = []int{0}
	used, indent := plainWidth(e.lead(0)), plainWidth(e.lead(1))
	for i, cell := range e.cells {
		columns := Width(e.shown(cell))
		if used+columns >= e.columns && used > indent {
			begin = append(begin, i)
			used = indent
		}
		used += columns
		if cell == "\n" {
			begin = append(begin, i+1)
			used = indent
		}
	}
	begin = append(begin, len(e.cells)+1)
	for begin[row+1] <= e.at {
		row++
	}
	return begin, row
}

// row returns what stands in a row before a cell.
func (e *editor) row(begin []int, row, end int) string {
	text := e.lead(row)
	for _, cell := range e.cells[begin[row]:end] {
		text += e.shown(cell)
	}
	return text
}
