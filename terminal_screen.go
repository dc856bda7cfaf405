// terminal_screen.go - a terminal that several write to, with a line at its end that changes.
// Needs: Go 1.25, mistral.go, terminal_unix.go, terminal_other.go.
// SPDX-License-Identifier: 0BSD

package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
)

// Screen is what everybody writes to who has something to tell the user. Texts are kept apart from the two things that can stand
// on the last line: a status, which is drawn again and again, and a question that waits for its answer.
//
// A text takes the status away, and it comes back below. What is written while a question is open waits until it is answered.
type Screen struct {
	Redact  func(string) string // takes secrets out of all that is written; nil leaves it as it is
	Live    bool                // lines can be drawn again: it is a terminal that knows how
	Color   bool                // and it may be told to use colors
	Columns func() int          // of the window, as it is now

	w io.Writer

	mu       sync.Mutex // guards the following; held during a write
	status   string     // on the last line; empty if there is none
	open     bool       // the last text did not end its line
	asking   bool       // a question is open
	held     []piece    // written meanwhile
	heldSize int        // of them, in bytes
	last     paragraph
}

// piece is a text on its way to a file.
type piece struct {
	w    io.Writer
	text string
}

// paragraph is a kind of text. Those of another kind, and each question, stand apart.
type paragraph int

const (
	noParagraph paragraph = iota // what comes next is the first
	aText                        // of the model
	aCall
	aQuestion
)

// maxHeld bounds in bytes what waits for a question to be answered. What comes then interrupts it.
const maxHeld = 1 << 20

// NewScreen writes to a file. What it can do is taken from the environment: NO_COLOR (no-color.org), TERM and COLUMNS.
func NewScreen(f *os.File) *Screen {
	s := &Screen{w: f, Columns: func() int {
		width, _ := strconv.Atoi(os.Getenv("COLUMNS"))
		return cmp.Or(max(width, 0), windowWidth(f), 80)
	}}
	term := cmp.Or(os.Getenv("TERM"), os.Getenv("WT_SESSION"), "dumb") // the second is Windows' new terminal; its old one has neither
	s.Live = isTerminal(f) && term != "dumb"
	s.Color = s.Live && os.Getenv("NO_COLOR") == ""
	return s
}

// Write writes whole lines. It fails as the writer below does.
func (s *Screen) Write(lines []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open && !s.asking {
		_ = s.write(s.w, "\n")
	}
	return len(lines), s.hold(piece{s.w, string(lines)})
}

// Over is the screen for a text that belongs to another file, as the answer does to stdout: it may be the same terminal. It may
// come in pieces.
func (s *Screen) Over(f io.Writer) io.Writer { return over{s, f} }

type over struct {
	s *Screen
	w io.Writer
}

func (o over) Write(text []byte) (int, error) {
	o.s.mu.Lock()
	defer o.s.mu.Unlock()
	return len(text), o.s.hold(piece{o.w, string(text)})
}

// hold writes a piece, or keeps it for when the open question is answered. It needs the lock, as does write.
func (s *Screen) hold(p piece) error {
	if s.asking && s.heldSize+len(p.text) <= maxHeld {
		s.held, s.heldSize = append(s.held, p), s.heldSize+len(p.text)
		return nil
	}
	return s.write(p.w, p.text)
}

func (s *Screen) write(w io.Writer, text string) error {
	if text == "" {
		return nil
	}
	if s.Redact != nil {
		text = s.Redact(text)
	}
	status := s.status
	if status != "" {
		if _, err := io.WriteString(s.w, "\r\x1b[K"); err != nil {
			return err
		}
		s.status = ""
	}
	_, err := io.WriteString(w, text)
	s.open = !strings.HasSuffix(text, "\n")
	if status != "" && !s.open {
		s.draw(status)
	}
	return err
}

// Status draws the last line anew; an empty one takes it away. The text must fit the window, as longer ones would stay behind.
// Where somebody else is on the last line, or lines cannot be drawn again, nothing happens.
func (s *Screen) Status(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.Live || s.open || s.asking || text == "" && s.status == "" {
		return
	}
	s.draw(text)
}

func (s *Screen) draw(text string) {
	if s.Redact != nil {
		text = s.Redact(text)
	}
	_, _ = io.WriteString(s.w, "\r"+text+"\x1b[K") // a status that is not seen is no loss
	s.status = text
}

// begin puts an empty line before a paragraph that is to stand apart from the one before, where somebody looks at it.
func (s *Screen) begin(next paragraph) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Live && !s.asking && next != noParagraph && s.last != noParagraph && (next != s.last || next == aQuestion) {
		_ = s.write(s.w, "\n")
	}
	s.last = next
}

// ask opens a question, at whose end the cursor stays.
func (s *Screen) ask(question string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open { // of an answer that is still being streamed
		question = "\n" + question
	}
	_ = s.write(s.w, question)
	s.status, s.asking = "", true
}

// Asking says whether a question is open.
func (s *Screen) Asking() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asking
}

// answered closes it. If somebody has answered, their own Enter has ended the line.
func (s *Screen) answered(entered bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asking = false
	if !entered {
		_ = s.write(s.w, "\n")
	}
	s.open = false
	for _, p := range s.held {
		_ = s.write(p.w, p.text)
	}
	s.held, s.heldSize = nil, 0
}

// The few styles there are.
const (
	bold  = "\x1b[1m"
	faint = "\x1b[2m"
	red   = "\x1b[31m"
	green = "\x1b[32m"
)

// style is a text in a style, if there are any.
func (s *Screen) style(style, text string) string {
	if !s.Color || text == "" {
		return text
	}
	return style + text + "\x1b[0m"
}

// Fold breaks a text's lines between words where the window ends, if it is one.
func (s *Screen) Fold(text string) string {
	if !s.Live {
		return text
	}
	w, line := wrapper{columns: s.Columns()}, strings.TrimRight(text, " ")
	return w.wrap(line) + w.end() + text[len(line):]
}

// visible is text as a terminal may show it: with U+FFFD for each character that would steer it, but for line breaks and
// tabs.
func visible(text string) string {
	return strings.Map(func(r rune) rune {
		if steers(r) && r != '\n' && r != '\t' {
			return '\uFFFD'
		}
		return r
	}, strings.ReplaceAll(text, "\r\n", "\n"))
}

// fit is text on one line, without what would steer a terminal, cut to so many columns.
func fit(text string, columns int) string {
	text = visible(strings.Join(strings.Fields(text), " "))
	if width(text) <= columns {
		return text
	}
	used := 0
	for i, r := range text {
		if used += runeWidth(r); used > columns-1 {
			return text[:i] + "…"
		}
	}
	return text
}

// width is how many columns a text takes.
func width(text string) (columns int) {
	for _, r := range text {
		columns += runeWidth(r)
	}
	return columns
}

// wide are the blocks whose characters take two columns (Unicode Standard Annex 11, less what few terminals agree on).
var wide = [...][2]rune{
	{0x1100, 0x115F}, {0x2E80, 0x303E}, {0x3041, 0x4DBF}, {0x4E00, 0xA4CF}, {0xA960, 0xA97C}, {0xAC00, 0xD7A3}, {0xF900, 0xFAFF},
	{0xFE30, 0xFE6F}, {0xFF00, 0xFF60}, {0xFFE0, 0xFFE6}, {0x1F300, 0x1F64F}, {0x1F680, 0x1F6FF}, {0x1F900, 0x1FAFF}, {0x20000, 0x3FFFD},
}

func runeWidth(r rune) int {
	if r < 0x300 {
		return 1
	}
	if unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf) {
		return 0
	}
	for _, block := range wide {
		if block[0] <= r && r <= block[1] {
			return 2
		}
	}
	return 1
}

// wrapper breaks lines between words, and what follows stands below the beginning. What is laid out already stays as it is: code
// between fences, tables, and lines that begin with a tab.
type wrapper struct {
	columns int
	out     strings.Builder
	word    strings.Builder
	gap     string // the white space before it
	column  int    // where the gap begins
	indent  int    // of the lines that follow, so that those of a list stand below each other
	begun   bool   // the line has a word
	fenced  bool   // between two fences
	asIs    bool   // the line, for it is laid out
}

// wrap returns what can be shown of the text so far: all but its last word, which may go on.
func (w *wrapper) wrap(text string) string {
	w.out.Reset()
	for _, r := range text {
		switch r {
		case '\n':
			w.place()
			w.out.WriteByte('\n')
			w.gap, w.column, w.indent, w.begun, w.asIs = "", 0, 0, false, w.fenced
		case ' ', '\t':
			w.place()
			w.gap += string(r)
		default:
			w.word.WriteRune(r)
		}
	}
	return w.out.String()
}

// end returns the last word.
func (w *wrapper) end() string {
	w.out.Reset()
	w.place()
	return w.out.String()
}

// place puts the word onto this line or the next.
func (w *wrapper) place() {
	word := w.word.String()
	w.word.Reset()
	if word == "" {
		return
	}
	if !w.begun {
		w.begun = true
		w.indent = len(w.gap)
		switch {
		case strings.HasPrefix(word, "```"):
			w.fenced, w.asIs = !w.fenced, true
		case isBullet(word):
			w.indent += width(word) + 1
		case strings.HasPrefix(word, "|") || strings.Contains(w.gap, "\t"):
			w.asIs = true
		}
	}
	columns := width(word)
	if w.column > w.indent && w.column+len(w.gap)+columns > w.columns && !w.asIs {
		fmt.Fprintf(&w.out, "\n%*s", w.indent, "")
		w.gap, w.column = "", w.indent
	}
	w.out.WriteString(w.gap + word)
	w.column += len(w.gap) + columns
	w.gap = ""
}

// isBullet tells what an item of a list begins with.
func isBullet(word string) bool {
	switch word {
	case "-", "*", "•", "–":
		return true
	}
	number, ok := strings.CutSuffix(word, ".")
	_, err := strconv.Atoi(number)
	return ok && err == nil
}

// isTerminal says whether somebody sits at the file. The null device is a character device too.
func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	null, err := os.Stat(os.DevNull)
	return err != nil || !os.SameFile(info, null)
}

// cut shortens a text to n runes, on one line.
func cut(text string, n int) string {
	runes := []rune(strings.Join(strings.Fields(text), " "))
	if len(runes) <= n {
		return string(runes)
	}
	return string(runes[:n-1]) + "…"
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func round(d time.Duration) time.Duration {
	if d < time.Second {
		return d.Round(time.Millisecond)
	}
	return d.Round(100 * time.Millisecond)
}
