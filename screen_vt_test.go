package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

// vt is a terminal in memory: what xterm would show of what is written to it, for tests that compare screens. It does
// what the program uses and panics at all else. A line feed begins a row at its first column, as the terminal driver
// has it do.
type vt struct {
	mu            sync.Mutex // guards the following
	columns, rows int
	above         [][]cell // what has been scrolled off
	screen        [][]cell
	row, column   int
	wrap          bool // the last column has been written: the next character begins a row
	wraps         int  // how often one has
	style         []int
	hidden        bool   // the cursor
	paste         bool   // bracketed paste is on
	unread        []byte // the beginning of a character or of an escape sequence
}

// cell is what stands in a column. A wide character has two, of which the second has no text.
type cell struct {
	text  string // a character with its marks
	style string // as in an escape sequence, sorted: "1;31"
}

var blank = cell{text: " "}

func newVT(columns, rows int) *vt {
	v := &vt{columns: columns, rows: rows}
	for range rows {
		v.screen = append(v.screen, slices.Repeat([]cell{blank}, columns))
	}
	return v
}

// Rows returns what is seen, without the blanks at the ends of the rows.
func (v *vt) Rows() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return texts(v.screen)
}

// Text returns all rows, those that have been scrolled off first, without the empty ones at the end.
func (v *vt) Text() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return strings.TrimRight(strings.Join(texts(slices.Concat(v.above, v.screen)), "\n"), "\n")
}

// Cursor returns where the cursor is, counted from 0.
func (v *vt) Cursor() (row, column int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.row, v.column
}

// Style returns how the cell of a row of the screen looks: the numbers of its escape sequence, sorted, as "1;31".
func (v *vt) Style(row, column int) string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.screen[row][column].style
}

// Styled returns all rows, as Text does, with ⟨1;31⟩ where a style begins and ⟨⟩ where it ends. The
// blanks between two words of the same style are part of it.
func (v *vt) Styled() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	var b strings.Builder
	for _, row := range slices.Concat(v.above, v.screen) {
		style, gap := "", ""
		for _, c := range append(slices.Clip(row), cell{}) {
			if c == blank {
				gap += " "
				continue
			}
			if c.style != style && style != "" {
				b.WriteString("⟨⟩")
			}
			if c != (cell{}) {
				b.WriteString(gap)
			}
			if c.style != style && c.style != "" {
				b.WriteString("⟨" + c.style + "⟩")
			}
			style, gap = c.style, ""
			b.WriteString(c.text)
		}
		b.WriteByte('\n')
	}
	return strings.TrimRight(b.String(), "\n")
}

// Resize changes the window. Rows are cut or made longer, as xterm does; none is folded anew.
func (v *vt) Resize(columns, rows int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for i, row := range v.screen {
		if columns < len(row) {
			v.erase(i, columns, len(row)) // half a character may be left
			row = row[:columns]
		}
		v.screen[i] = append(row, slices.Repeat([]cell{blank}, columns-len(row))...)
	}
	v.columns, v.rows = columns, rows
	v.screen = v.screen[:max(v.row+1, min(rows, len(v.screen)))]
	for len(v.screen) < rows {
		v.screen = append(v.screen, slices.Repeat([]cell{blank}, columns))
	}
	for len(v.screen) > rows {
		v.above, v.screen, v.row = append(v.above, v.screen[0]), v.screen[1:], v.row-1
	}
	v.column, v.wrap = min(v.column, columns-1), false
}

// Write shows a text, of which a character or an escape sequence may come in several pieces.
func (v *vt) Write(text []byte) (int, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	rest := append(v.unread, text...)
	for len(rest) > 0 {
		n := v.next(rest)
		if n == 0 {
			break
		}
		rest = rest[n:]
	}
	v.unread = slices.Clone(rest)
	return len(text), nil
}

// next obeys the first character or sequence and returns its length, or 0 if it has not come whole.
func (v *vt) next(text []byte) int {
	if text[0] == '\x1b' {
		return v.sequence(text)
	}
	if !utf8.FullRune(text) {
		return 0
	}
	r, size := utf8.DecodeRune(text)
	switch {
	case r == '\n':
		v.column, v.wrap = 0, false
		v.down()
	case r == '\r':
		v.column, v.wrap = 0, false
	case r == '\b':
		v.column, v.wrap = max(v.column-1, 0), false
	case r == '\t':
		v.column = min(v.column/8*8+8, v.columns-1) // what waits for a new row goes on to wait
	case r == '\a':
	case r < ' ' || 0x7F <= r && r < 0xA0 || r == utf8.RuneError && size == 1:
		panic(fmt.Sprintf("the terminal got %q", text[:size]))
	default:
		v.put(r)
	}
	return size
}

// put shows a character where the cursor is.
func (v *vt) put(r rune) {
	columns := runeWidth(r)
	if r == '\uFE0F' { // the program allows for terminals that make the character before it wide; xterm does not
		columns = 0
	}
	if columns == 0 {
		at := v.column
		if !v.wrap {
			at--
		}
		if at > 0 && v.screen[v.row][at].text == "" {
			at--
		}
		if at >= 0 {
			v.screen[v.row][at].text += string(r)
		}
		return
	}
	if v.wrap || v.column+columns > v.columns {
		v.column, v.wrap = 0, false
		v.wraps++
		v.down()
	}
	v.erase(v.row, v.column, v.column+columns)
	var style []string
	for _, n := range v.style {
		style = append(style, strconv.Itoa(n))
	}
	v.screen[v.row][v.column] = cell{string(r), strings.Join(style, ";")}
	if columns == 2 {
		v.screen[v.row][v.column+1] = cell{"", strings.Join(style, ";")}
	}
	v.column += columns
	if v.column == v.columns {
		v.column, v.wrap = v.columns-1, true
	}
}

// down moves to the next row, for which the screen scrolls where it ends.
func (v *vt) down() {
	if v.row++; v.row == v.rows {
		v.row--
		v.above = append(v.above, v.screen[0])
		v.screen = append(v.screen[1:], slices.Repeat([]cell{blank}, v.columns))
	}
}

// erase blanks the columns from begin to end, and the other halves of characters that are cut in two.
func (v *vt) erase(row, begin, end int) {
	cells := v.screen[row]
	if begin > 0 && begin < len(cells) && cells[begin].text == "" {
		begin--
	}
	if end < len(cells) && cells[end].text == "" {
		end++
	}
	for i := begin; i < end; i++ {
		cells[i] = blank
	}
}

// sequence obeys an escape sequence and returns its length, or 0 if it has not come whole.
func (v *vt) sequence(text []byte) int {
	size := 2
	unknown := func() { panic(fmt.Sprintf("the terminal does not know %q", text[:size])) }
	if len(text) > 1 && text[1] != '[' {
		unknown()
	}
	for size++; size <= len(text) && text[size-1] < '@'; size++ {
	}
	if size > len(text) {
		return 0
	}
	given, final := string(text[2:size-1]), text[size-1]
	var numbers []int
	for part := range strings.SplitSeq(strings.TrimPrefix(given, "?"), ";") {
		n, err := strconv.Atoi(part)
		if err != nil && part != "" {
			unknown()
		}
		numbers = append(numbers, n)
	}
	first := numbers[0]
	if final != 'm' && !(final == 'h' || final == 'l') {
		if strings.HasPrefix(given, "?") || len(numbers) > 1 && final != 'H' {
			unknown()
		}
	}
	move := func(row, column int) {
		v.row, v.column = min(max(row, 0), v.rows-1), min(max(column, 0), v.columns-1)
	}
	wrap := v.wrap && (final == 'm' || final == 'h' || final == 'l') // all others move the cursor, or clear it
	switch final {
	case 'A':
		move(v.row-max(first, 1), v.column)
	case 'B':
		move(v.row+max(first, 1), v.column)
	case 'C':
		move(v.row, v.column+max(first, 1))
	case 'D':
		move(v.row, v.column-max(first, 1))
	case 'G':
		move(v.row, first-1)
	case 'H':
		move(first-1, append(numbers, 1)[1]-1)
	case 'J', 'K':
		if first > 2 {
			unknown()
		}
		begin, end := v.column, v.columns
		if first > 0 {
			begin = 0
		}
		if first == 1 {
			end = v.column + 1
		}
		v.erase(v.row, begin, end)
		for row := range v.rows {
			if final == 'J' && (row < v.row && first > 0 || row > v.row && first != 1) {
				v.erase(row, 0, v.columns)
			}
		}
	case 'h', 'l':
		switch given {
		case "?25":
			v.hidden = final == 'l'
		case "?2004":
			v.paste = final == 'h'
		default:
			unknown()
		}
	case 'm':
		for _, n := range numbers {
			if !v.look(n) {
				unknown()
			}
		}
	default:
		unknown()
	}
	v.wrap = wrap
	return size
}

// look changes the style by one number of an escape sequence. It reports whether it knows the number.
func (v *vt) look(n int) bool {
	without := func(begin, end int) {
		v.style = slices.DeleteFunc(v.style, func(n int) bool { return begin <= n && n <= end })
	}
	switch {
	case n == 0:
		v.style = nil
	case n == 22:
		without(1, 2)
	case n == 23, n == 24, n == 27, n == 29:
		without(n-20, n-20)
	case n == 39:
		without(30, 37)
	case n == 1, n == 2, n == 3, n == 4, n == 7, n == 9, 30 <= n && n <= 37:
		if n >= 30 {
			without(30, 37)
		}
		if !slices.Contains(v.style, n) {
			v.style = append(v.style, n)
			slices.Sort(v.style)
		}
	default:
		return false
	}
	return true
}

func texts(rows [][]cell) (texts []string) {
	for _, row := range rows {
		var b strings.Builder
		for _, c := range row {
			b.WriteString(c.text)
		}
		texts = append(texts, strings.TrimRight(b.String(), " "))
	}
	return texts
}

// The terminal of the tests does what xterm does, in whatever pieces it gets its text.
func TestVT(t *testing.T) {
	for _, test := range []struct {
		text        string
		want        string // the rows of a window of 8 columns and 3 rows, and what has been scrolled off
		row, column int
	}{
		{"heron", "heron", 0, 5},
		{"12345678", "12345678", 0, 7},
		{"12345678\r\n9", "12345678\n9", 1, 1},
		{"123456789", "12345678\n9", 1, 1},
		{"12345678\b9", "12345698", 0, 7},
		{"12345678\t9", "12345678\n9", 1, 1},
		{"12345678\x1b[K", "1234567", 0, 7},
		{"12345678\x1b[m\x1b[?25l9", "12345678\n9", 1, 1},
		{"12345678\x1b[D9", "12345698", 0, 7},
		{"1234567日", "1234567\n日", 1, 2},
		{"123456日8", "123456日\n8", 1, 1},
		{"日本\x1b[2Gx", " x本", 0, 2},
		{"日本\x1b[3Gx", "日x", 0, 3},
		{"日本\x1b[4G\x1b[1K-", "   -", 0, 4},
		{"日本\x1b[2G\x1b[K-", " -", 0, 2},
		{"e\u0301日\u0301\u0301x", "e\u0301日\u0301\u0301x", 0, 4},
		{"1234567e\u03018", "1234567e\u0301\n8", 1, 1},
		{"\u0301x", "x", 0, 1},
		{"\u2764\uFE0Fx", "\u2764\uFE0Fx", 0, 2},
		{"a\tb", "a      b", 0, 7},
		{"1\n2\n3\n4\n5", "1\n2\n3\n4\n5", 2, 1},
		{"1\n2\n3\x1b[A\x1b[Dx\x1b[5Ay\x1b[9B\x1b[9Cz", "1y\nx\n3      z", 2, 7},
		{"1\n2\n3\x1b[2;2Hx\x1b[Hy", "y\n2x\n3", 0, 1},
		{"11\n22\n33\x1b[2;2H\x1b[J", "11\n2", 1, 1},
		{"11\n22\n33\x1b[2;2H\x1b[1J", "\n\n33", 1, 1},
		{"11\n22\n33\x1b[2J", "", 2, 2},
	} {
		for _, size := range []int{len(test.text), 1} {
			v := newVT(8, 3)
			for piece := range slices.Chunk([]byte(test.text), size) {
				_, _ = v.Write(piece)
			}
			row, column := v.Cursor()
			assert.Check(t, is.Equal(v.Text(), test.want), "%q", test.text)
			assert.Check(t, row == test.row && column == test.column, "%q: %d, %d", test.text, row, column)
		}
	}

	v := newVT(8, 3)
	_, _ = v.Write([]byte("1\n2\x1b[31;1m3\x1b[22m4\x1b[39m5\n日本語x\n\x1b[?2004h"))
	assert.DeepEqual(t, v.Rows(), []string{"2345", "日本語x", ""})
	assert.Equal(t, v.Style(0, 1)+" "+v.Style(0, 2)+" "+v.Style(0, 3), "1;31 31 ")
	assert.Equal(t, v.Styled(), "1\n2⟨1;31⟩3⟨⟩⟨31⟩4⟨⟩5\n日本語x")
	assert.Assert(t, v.paste && !v.hidden)
	v.Resize(5, 2)
	assert.Equal(t, v.Text(), "1\n2345\n日本")
	v.Resize(6, 4)
	_, _ = v.Write([]byte("end"))
	assert.DeepEqual(t, v.Rows(), []string{"日本", "end", "", ""})

	for _, bad := range strings.Fields("\x1b[5n \x1b]0;title\a \x1bc \x1b[?1049h \x1b[38;5;1m \x00 \xff \u009b") {
		func() {
			defer func() { assert.Check(t, recover() != nil, "%q", bad) }()
			_, _ = newVT(8, 3).Write([]byte(bad))
		}()
	}
}
