// screen.go - the screen: all that a person sees goes through it.
// SPDX-License-Identifier: 0BSD

package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf16"
)

// Screen owns the terminal: whatever the program writes to stderr and stdout goes through it. It keeps texts apart
// from what can stand on the last line: a status, which is drawn again and again, or an open question.
//
// A text removes the status, which is drawn again below it. What is written while a question is open waits for the
// answer, or goes above one that is being edited. All methods may be called from any goroutine.
type Screen struct {
	Secrets *Secrets   // taken out of all that is written
	Live    bool       // stderr is a terminal whose lines can be drawn again
	Color   bool       // and which shows colors
	Answers bool       // stdout is a terminal
	Columns func() int // of the window, as it is now
	Rows    func() int
	Keep    bool // what Preview cuts, for Kept

	stderr, stdout io.Writer
	user           io.Writer // gets the questions: stderr, or else the terminal; see openUser
	window         *os.File  // the terminal that has the window

	mu       sync.Mutex         // guards the following; held during a write
	drawn    drawing            // below all texts: the status, or the answer that is being edited
	open     bool               // the last text, written or held, did not end its line
	asking   bool               // a question is open
	above    bool               // lines that are written meanwhile go above its answer
	held     []func()           // write what came while the question was open
	heldSize int                // in bytes
	last     string             // the kind of the last paragraph; see Separate
	cut      int                // how many texts Preview has cut
	kept     [maxKept][2]string // the last of them, each with what it is of before it
}

// rendered is a text that may be written: it comes from Screen.render, or is a constant.
type rendered string

// Style is how the letters of a text look.
type Style string

// The styles, all of them: nothing else has a color.
const (
	Bold   Style = "\x1b[1m"
	Faint  Style = "\x1b[2m"
	Italic Style = "\x1b[3m"
	Red    Style = "\x1b[31m" // errors, and calls that failed
	Green  Style = "\x1b[32m" // calls that succeeded
	Cyan   Style = "\x1b[36m" // code
	plain  Style = "\x1b[0m"  // ends all styles
)

// Look is how a text is shown.
type Look struct {
	Style Style // "" is plain
	Max   int   // if not 0, the text is put onto one line and cut to so many columns
	Exact bool  // lines are not folded, so that no white space is lost

	// Frame, if not "", is the label of a peer's text that the user decides on. The text is shown whole, with nothing
	// hidden in it, or with Exact as it is; see frame.
	Frame string
}

// Paragraph is a part of what the user decides on: this program's words, or a peer's, with a Frame.
type Paragraph struct {
	Look
	Text string
}

const (
	maxWord    = 1 << 10 // bytes of a word that are kept together
	maxHeld    = 1 << 20 // bytes that wait for a question to be answered; what comes then interrupts it
	maxPreview = 4       // lines of a text of which only the beginning is shown
	maxIndent  = 24      // blanks at the beginning of a peer's line that are shown as they are
	maxNote    = 400     // columns of a line of the screen's own about a text
	maxMarks   = 4       // on a letter (accents, vowel signs): more of them cover each other and the rows around

	maxKept     = 20      // texts that Preview has cut
	maxKeptText = 4 << 20 // bytes of each
)

// NewScreen returns the screen of a program. What its terminal can do is taken from the environment: NO_COLOR
// (no-color.org), TERM and COLUMNS.
func NewScreen(stderr, stdout *os.File) *Screen {
	s := &Screen{Secrets: new(Secrets), Answers: IsTerminal(stdout)}
	s.stderr, s.stdout, s.user, s.window = stderr, stdout, stderr, stderr
	s.Columns = func() int {
		columns, _ := strconv.Atoi(os.Getenv("COLUMNS"))
		width, _ := windowSize(s.window)
		return cmp.Or(max(columns, 0), width, 80)
	}
	s.Rows = func() int {
		_, height := windowSize(s.window)
		return cmp.Or(height, 24)
	}
	// WT_SESSION is set by Windows' new terminal; its old one sets neither.
	term := cmp.Or(os.Getenv("TERM"), os.Getenv("WT_SESSION"), "dumb")
	s.Live = IsTerminal(stderr) && term != "dumb"
	s.Color = s.Live && os.Getenv("NO_COLOR") == ""
	return s
}

// openUser has questions asked on the terminal itself where stderr is something else: nobody answers a question in a
// file. It reports whether there is a terminal. It goes before all other methods.
func (s *Screen) openUser() bool {
	if IsTerminal(s.window) {
		return true
	}
	path := "/dev/tty"
	if runtime.GOOS == "windows" {
		path = "CONOUT$"
	}
	terminal, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return false
	}
	s.user, s.window = terminal, terminal // until the program ends
	return true
}

// render is the one way from a text to what is shown of it. Secrets are taken out first, while they are whole.
// Control characters become visible, then the text is cut, then folded: what is counted is what is seen.
func (s *Screen) render(look Look, text string) rendered {
	text = s.Secrets.Mask(text)
	if look.Frame != "" {
		return rendered(frame(look, text, s.Columns()))
	}
	text = Visible(text)
	if look.Max > 0 {
		text = fit(text, look.Max)
	}
	if s.Live && !look.Exact {
		text = fold(text, s.Columns())
	}
	if s.Color && look.Style != "" && text != "" {
		text = string(look.Style) + text + string(plain)
	}
	return rendered(text)
}

// Name is a peer's name within a sentence of the program: cut, and with nothing hidden in it.
func (s *Screen) Name(text string, columns int) string {
	return fit(exactly(s.Secrets.Mask(text)), max(columns, 8))
}

// Show shows a text, with the end of its line, on stderr.
func (s *Screen) Show(look Look, text string) { s.showLines(s.stderr, s.render(look, text)+"\n") }

// Tell shows a text that belongs to a question, where that is asked.
func (s *Screen) Tell(look Look, text string) { s.showLines(s.user, s.render(look, text)+"\n") }

// Preview shows the first lines of a text, each cut to look.Max or, if that is 0, to the window. With Keep, a text of
// which that is not all gets a number, for Kept.
func (s *Screen) Preview(look Look, about, text string) {
	look.Max = cmp.Or(look.Max, s.Columns())
	text = strings.TrimSpace(s.Secrets.Mask(text)) // some secrets have several lines
	lines := strings.Split(text, "\n")
	if more := len(lines) - maxPreview; more > 1 { // a line that says "1 more line" would be no gain
		lines = append(slices.Clone(lines[:maxPreview]), fmt.Sprintf("… %d more lines", more)+s.KeepText(about, text))
	} else if s.Keep && slices.ContainsFunc(lines, func(line string) bool { return Width(line) > look.Max-4 }) {
		lines = append(lines, "… more"+s.KeepText(about, text))
	}
	for _, line := range lines {
		if text != "" {
			s.Show(look, "    "+line)
		}
	}
}

// KeepText keeps a text for Kept, and returns how the user asks for it.
func (s *Screen) KeepText(about, text string) string {
	if !s.Keep {
		return ""
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cut++
	s.kept[s.cut%maxKept] = [2]string{about, Clip(text, maxKeptText)}
	return fmt.Sprintf(": /show %d", s.cut)
}

// Kept returns a text that was cut, by its number or, if that is "", the last one; and what it is of.
func (s *Screen) Kept(number string) (about, text string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, err := strconv.Atoi(cmp.Or(number, strconv.Itoa(s.cut)))
	if err != nil || n < 1 || n > s.cut || n <= s.cut-maxKept {
		return "", "", fmt.Errorf("there is no such text: the last number is %d, and up to %d are kept", s.cut, maxKept)
	}
	return s.kept[n%maxKept][0], s.kept[n%maxKept][1], nil
}

func (s *Screen) showLines(w io.Writer, lines rendered) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open {
		s.hold(w, "\n")
	}
	s.hold(w, lines)
}

// Print writes a text to stdout. Where that is no terminal, only its secrets are taken out.
func (s *Screen) Print(look Look, text string) error {
	out := rendered(s.Secrets.Mask(text))
	if s.Answers {
		out = s.render(look, text)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.write(s.stdout, out)
}

// PrintJSON prints JSON, with escapes for what steers a terminal: so it stays the same JSON.
func (s *Screen) PrintJSON(text string) error {
	return s.Print(Look{Exact: true}, escape(text, steers))
}

// stream writes a piece of a text, of which another writer has taken out the secrets, to stdout; m lays it out. end is
// for the last.
func (s *Screen) stream(m *markdown, text string, end bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Answers {
		text = Visible(text)
	}
	if m.columns = s.Columns(); !s.open {
		m.resume()
	}
	if text = m.write(text, end); end {
		text += "\n"
	}
	s.hold(s.stdout, rendered(text))
}

// hold writes a text, or keeps it until the open question is answered. It needs the lock, as does write.
func (s *Screen) hold(w io.Writer, text rendered) {
	ended := strings.HasSuffix(string(text), "\n")
	if !s.asking || s.above && s.held == nil && ended || s.heldSize+len(text) > maxHeld {
		_ = s.write(w, text)
	} else if text != "" {
		s.held, s.heldSize, s.open = append(s.held, func() { _ = s.write(w, text) }), s.heldSize+len(text), !ended
	}
}

func (s *Screen) write(w io.Writer, text rendered) error {
	if text == "" {
		return nil
	}
	drawn := s.drawn
	s.draw(drawing{})
	_, err := io.WriteString(w, string(text))
	if s.open = !strings.HasSuffix(string(text), "\n"); !s.open || s.asking {
		s.draw(drawn)
	}
	return err
}

// Status draws the last line anew, cut to the window; "" removes it. Nothing happens while another text is on the
// last line, or where lines cannot be drawn again.
func (s *Screen) Status(text string) {
	d, status := drawing{}, string(s.render(Look{Max: s.Columns() - 1}, text)) // the last column may begin a new line
	if status != "" {
		d = drawing{[]string{status}, 0, status}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Live && !s.open && !s.asking {
		s.draw(d)
	}
}

// draw draws what stands below all texts over what is drawn there: nothing disappears that comes back, which would
// flicker. It needs the lock.
func (s *Screen) draw(d drawing) {
	old, out := s.drawn, strings.Join(d.rows, "\x1b[K\n")
	if old.rows != nil {
		up := s.height(old.before) - 1 // the window may be narrower now
		for _, row := range old.rows[:old.row] {
			up += s.height(row)
		}
		out = "\r" + strings.Repeat("\x1b[A", up) + out + "\x1b[J"
	}
	if last := len(d.rows) - 1; last >= 0 {
		out += strings.Repeat("\x1b[A", last-d.row)
		if d.row < last || d.before != d.rows[last] {
			out += "\r" + d.before // whose width the terminal knows best
		}
	}
	typed, more := strings.CutPrefix(d.before, old.before)
	if more && slices.Equal(old.rows, []string{old.before}) && slices.Equal(d.rows, []string{d.before}) {
		out = typed // at the end
	}
	if s.drawn = d; out != "" {
		_, _ = io.WriteString(s.user, out)
	}
}

// height is how many rows of the window a line takes.
func (s *Screen) height(line string) int { return max(plainWidth(line)-1, 0)/s.Columns() + 1 }

// Separate puts an empty line before a paragraph of such a kind ("text", "call" or "question"), unless it is the first
// after Separate(""), or a call after a call.
func (s *Screen) Separate(kind string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Live && !s.asking && kind != "" && s.last != "" && (kind != "call" || s.last != kind) {
		_ = s.write(s.stderr, "\n")
	}
	s.last = kind
}

// rows returns paragraphs in rows of the window.
func (s *Screen) rows(paragraphs []Paragraph) (rows []string) {
	for _, p := range paragraphs {
		rows = append(rows, strings.Split(string(s.render(p.Look, p.Text)), "\n")...)
	}
	return rows
}

// pageSize is how many rows the window has for what stands above a question, with one left for a row below that.
func (s *Screen) pageSize(question rendered) int {
	size := s.Rows() - 1
	for line := range strings.SplitSeq(string(question), "\n") {
		size -= s.height(line)
	}
	return max(size, 1)
}

// ask opens a question, at whose end the cursor stays, after a blank if the row has room for it. above has lines go
// above its answer meanwhile.
func (s *Screen) ask(text rendered, above bool) {
	if last := text[strings.LastIndexByte(string(text), '\n')+1:]; Width(string(last))%s.Columns() != 0 {
		text += " "
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.draw(drawing{})
	if s.open { // of an answer that is still being streamed
		text = "\n" + text
	}
	_ = s.write(s.user, text)
	s.asking, s.above, s.open = true, above, above && !s.Live // else the answer ends the line, or is drawn again
}

// edit draws what is edited of the open question, in place of what is drawn there.
func (s *Screen) edit(d drawing) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.asking {
		s.draw(d)
	}
}

// answered closes the question. If the user has answered, and nothing is edited, their own Enter has ended the line.
func (s *Screen) answered(entered bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asking = false
	if drawn := s.drawn; drawn.rows != nil || !entered {
		s.drawn = drawing{}
		below := strings.Repeat("\x1b[B", max(len(drawn.rows)-1-drawn.row, 0))
		_ = s.write(s.user, rendered(below+"\n"))
	}
	s.open = false
	for _, write := range s.held {
		write()
	}
	s.held, s.heldSize = nil, 0
}

// Visible returns a text that a terminal may get: U+FFFD stands for each character that a terminal obeys instead of
// showing it (control characters, separators of lines, marks that reorder text), except line breaks and tabs. What
// cannot be seen and does no harm stays: emoji and several scripts consist of it. The user decides on no such text:
// see frame.
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
	return r != '\n' && r != '\t' && unicode.In(r, unicode.Cc, unicode.Zl, unicode.Zp, unicode.Bidi_Control)
}

// unseen reports whether a character leaves nothing on the screen, or a blank that is not the blank: control and
// format characters, white space, selectors, fillers, and what is not assigned or private.
func unseen(r rune) bool {
	return !unicode.IsPrint(r) || r == '\u2800' || r == '\U0001D159' || // a braille pattern and a note without ink
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

var blankRun = regexp.MustCompile(`^ +| {4,}| +$`)

// exactly returns a line with nothing hidden in it: blanks that are easily overlooked are counted, and what cannot be
// seen is escaped.
func exactly(line string) string {
	line = blankRun.ReplaceAllStringFunc(line, func(run string) string { return "[" + Plural(len(run), "blank") + "]" })
	marks := maxMarks // the beginning is no letter
	return escape(line, func(r rune) bool {
		if marks++; runeWidth(r) > 0 && !unicode.Is(unicode.M, r) {
			marks = 0
		}
		return marks > maxMarks || unseen(r)
	})
}

// What a row of a peer's text begins with, if not with its label. No row of the program begins so.
const (
	LineMark = "  │ "
	foldMark = "  … " // the row goes on with the line before
)

// frame returns a peer's text in rows that fit a window. The label and the marks show which rows are the peer's,
// whatever it has written.
func frame(look Look, text string, columns int) string {
	var rows []string
	for line := range strings.SplitSeq(strings.ReplaceAll(text, "\r\n", "\n"), "\n") {
		mark, indent := look.Frame, 0
		if rows != nil {
			mark, indent = LineMark, min(len(line)-len(strings.TrimLeft(line, " ")), maxIndent)
		}
		if look.Exact {
			line = strings.ReplaceAll(Visible(line), "\t", "    ")
		} else {
			line = line[:indent] + exactly(line[indent:])
		}
		for more := true; more; more = line != "" {
			row, rest := split(line, max(columns-Width(mark), 2)) // one character at least
			if blank := strings.LastIndexByte(row, ' ') + 1; rest != "" && blank > len(row)/2 {
				row = row[:blank]
			}
			rows = append(rows, mark+row)
			line, mark = line[len(row):], foldMark
		}
	}
	return strings.Join(rows, "\n")
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

// fit is the one cutter by columns: a text on one line, cut to so many of them. Blanks at its beginning stay.
func fit(text string, columns int) string {
	text = text[:len(text)-len(strings.TrimLeft(text, " "))] + strings.Join(strings.Fields(text), " ")
	if Width(text) > columns {
		text, _ = split(text, columns-1)
		text += "…"
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

// runeWidth is how many columns a terminal uses for a character, or more: the selector of the form of an emoji makes
// some narrow characters wide.
func runeWidth(r rune) int {
	switch {
	case r < 0x300, r == '\uFE0F', unicode.Is(unicode.Prepended_Concatenation_Mark, r):
		return 1
	case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf), 0x1160 <= r && r <= 0x11FF:
		return 0 // the last are parts of Korean syllables, which join the part before
	}
	// The first and the last character of each range of two columns (Unicode 16, UAX 11: East Asian Width W and F, which
	// includes most emoji). Ranges are joined over what is rare.
	wide := [...][2]rune{
		{0x1100, 0x115F}, {0x231A, 0x231B}, {0x2329, 0x232A}, {0x23E9, 0x23F3}, {0x25FD, 0x25FE},
		{0x2614, 0x2615}, {0x2630, 0x2637}, {0x2648, 0x2653}, {0x267F, 0x267F}, {0x268A, 0x268F},
		{0x2693, 0x2693}, {0x26A1, 0x26A1}, {0x26AA, 0x26AB}, {0x26BD, 0x26FD}, {0x2705, 0x2705},
		{0x270A, 0x270B}, {0x2728, 0x2728}, {0x274C, 0x274E}, {0x2753, 0x2757}, {0x2795, 0x2797},
		{0x27B0, 0x27BF}, {0x2B1B, 0x2B1C}, {0x2B50, 0x2B55}, {0x2E80, 0xA4C6}, {0xA960, 0xA97C},
		{0xAC00, 0xD7A3}, {0xF900, 0xFAFF}, {0xFE10, 0xFE6B}, {0xFF01, 0xFF60}, {0xFFE0, 0xFFE6},
		{0x16FE0, 0x1B2FB}, {0x1D300, 0x1D376}, {0x1F004, 0x1F004}, {0x1F0CF, 0x1F0CF}, {0x1F18E, 0x1FAFF},
		{0x20000, 0x3FFFD},
	}
	end := func(pair [2]rune, r rune) int { return cmp.Compare(pair[1], r) }
	if i, _ := slices.BinarySearchFunc(wide[:], r, end); i < len(wide) && wide[i][0] <= r {
		return 2
	}
	return 1
}

// folder breaks lines between words, and begins the rows that follow below the beginning of the text. It holds back a
// word.
type folder struct {
	columns int
	styled  bool
	breaks  bool // words that have no room in a row
	out     strings.Builder
	word    strings.Builder
	wide    int   // the columns of the word
	style   Style // of its last character
	gap     int   // blanks before it
	column  int   // where the gap begins
	hang    string
	hung    int  // the columns of hang, which the rows that follow begin with
	long    bool // the word has no room in a row, and has begun
	last    rune
}

// put adds text, without tabs, to a line.
func (f *folder) put(text string, style Style) {
	for _, r := range text {
		// Chinese and Japanese have no blanks between words.
		wide := unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana) && !unicode.In(f.last, unicode.Ps, unicode.Pi)
		if f.last = r; r == ' ' || wide {
			f.place()
			f.long = false
		}
		if r == ' ' {
			f.gap++
			continue
		}
		if f.styled && style != f.style {
			f.word.WriteString(string(plain + style))
			f.style = style
		}
		f.word.WriteRune(r)
		if f.wide += runeWidth(r); f.hung+f.wide > f.columns || f.word.Len() > maxWord {
			f.place()
			f.long = !f.breaks
		}
	}
}

// place puts the word onto this row or the next.
func (f *folder) place() {
	if f.word.Len() == 0 {
		return
	}
	if f.column+f.gap+f.wide > f.columns && !f.long {
		if f.gap = 0; f.column > f.hung {
			f.out.WriteString("\n")
			f.resume()
		}
	}
	if f.style != "" {
		f.word.WriteString(string(plain))
	}
	fmt.Fprintf(&f.out, "%*s%s", f.gap, "", f.word.String())
	f.column, f.gap, f.wide, f.style = f.column+f.gap+f.wide, 0, 0, ""
	f.word.Reset()
}

// lead adds a mark at the beginning of a line. The rows that follow begin with it, too, or with blanks.
func (f *folder) lead(mark string, again bool) {
	f.out.WriteString(mark)
	columns := Width(mark)
	f.column += columns
	if f.hung+columns > f.columns/2 {
		return
	}
	if !again {
		mark = strings.Repeat(" ", columns)
	}
	f.hang, f.hung = f.hang+mark, f.hung+columns
}

// newline ends a line.
func (f *folder) newline() {
	f.place()
	f.out.WriteString("\n")
	f.gap, f.column, f.hang, f.hung, f.long, f.last = 0, 0, "", 0, false, 0
}

// resume goes on after another text has ended the row.
func (f *folder) resume() {
	if f.column > 0 {
		f.out.WriteString(f.hang)
		f.column, f.gap = f.hung, 0
	}
}

// listed matches the mark of an item of a list with the blanks around it, or what stands before a tab.
var listed = regexp.MustCompile(`^[ \t]*(?:(?:[-+*•–]|\d+\.)[ \t]+|[^\t]+\t)?`)

// fold returns a text of lines that are no wider than a window, if their words are not.
func fold(text string, columns int) string {
	f := folder{columns: columns}
	for i, line := range strings.Split(text, "\n") {
		if i > 0 {
			f.newline()
		}
		mark := listed.FindString(line)
		f.lead(strings.ReplaceAll(mark, "\t", "    "), false)
		f.put(strings.ReplaceAll(line[len(mark):], "\t", "    "), "")
	}
	f.place()
	return f.out.String()
}

// IsTerminal reports whether a file is a terminal. The null device is a character device, too.
func IsTerminal(f *os.File) bool {
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	null, err := os.Stat(os.DevNull)
	return err != nil || !os.SameFile(info, null)
}

// Plural is a number of things.
func Plural(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
