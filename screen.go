// screen.go - what a person sees and types: text, markdown, a line editor.
// SPDX-License-Identifier: 0BSD

package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
)

// Screen owns the terminal: whatever the program writes to stderr and stdout goes through it. It
// keeps texts apart from what can stand on the last line: a status, which is drawn again and again,
// or an open question.
//
// A text removes the status, which is drawn again below it. What is written while a question is
// open waits for the answer, or goes above one that is being edited. All methods may be called from
// any goroutine: one lock is held for each write, so that no text comes into the middle of another.
type Screen struct {
	Secrets *Secrets   // taken out of all that is written
	Live    bool       // stderr is a terminal whose lines can be drawn again
	Color   bool       // stderr shows colors
	Answers bool       // stdout is a terminal
	Columns func() int // of the window, as it is now
	Rows    func() int
	Keep    bool // what Preview cuts is kept, for PageKept

	streams
	kept keptTexts

	mu       sync.Mutex   // guards the following; held during a write
	drawn    drawing      // below all texts: the status, or the answer that is being edited
	open     bool         // the last text, written or held, did not end its line
	last     string       // the kind of the last paragraph; see Separate
	question openQuestion // zero if none is open
}

// streams are where a screen writes to.
type streams struct {
	stderr, stdout io.Writer
	user           io.Writer // gets the questions: stderr, or else the terminal; see openUser
	window         *os.File  // the terminal that has the window
}

// rendered is a text that may be written: it comes from Screen.render, or is a constant.
type rendered string

// Style is how the letters of a text look.
type Style string

// The styles, all of them: nothing else has a color.
const (
	Bold       Style = "\x1b[1m"
	Faint      Style = "\x1b[2m"
	Italic     Style = "\x1b[3m"
	Underlined Style = "\x1b[4m"
	Struck     Style = "\x1b[9m"
	Red        Style = "\x1b[31m" // errors, and calls that failed
	Green      Style = "\x1b[32m" // calls that succeeded
	Purple     Style = "\x1b[35m" // strings and numbers in code
	Cyan       Style = "\x1b[36m" // code
	plain      Style = "\x1b[0m"  // ends all styles
)

// Look is how a text is shown.
type Look struct {
	Style Style // "" is plain
	Max   int   // if not 0, the text is put onto one line and cut to so many columns
	Exact bool  // lines are not folded, so that no white space is lost

	// Frame, if not "", is the label of a peer's text that the user decides on. The text is shown
	// whole, with nothing hidden in it, or with Exact as it is; see frame.
	Frame string
}

// Paragraph is a part of what the user decides on: this program's words, or a peer's, with a Frame.
type Paragraph struct {
	Look
	Text string
}

// maxNote is how many columns a line of the screen's own may have about a text.
const maxNote = 400

// NewScreen returns the screen of a program. What its terminal can do is taken from the
// environment: NO_COLOR (no-color.org), TERM and COLUMNS.
func NewScreen(stderr, stdout *os.File) *Screen {
	s := &Screen{Secrets: new(Secrets), Answers: IsTerminal(stdout)}
	s.streams = streams{stderr: stderr, stdout: stdout, user: stderr, window: stderr}
	s.Columns = func() int {
		columns, _ := strconv.Atoi(os.Getenv("COLUMNS"))
		width, _ := windowSize(s.window)
		return cmp.Or(max(columns, 0), width, 80)
	}
	s.Rows = func() int {
		_, height := windowSize(s.window)
		return cmp.Or(height, 24)
	}
	// Windows' new terminal sets WT_SESSION and no TERM; its old one sets neither.
	term := os.Getenv("TERM")
	isKnown := term != "" || os.Getenv("WT_SESSION") != ""
	s.Live = IsTerminal(stderr) && isKnown && term != "dumb"
	s.Color = s.Live && os.Getenv("NO_COLOR") == ""
	return s
}

// openUser has questions asked on the terminal itself where stderr is something else: nobody
// answers a question in a file. It reports whether there is a terminal. It is called before all
// other methods, and what it opens stays open until the program ends.
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
	s.user = terminal
	s.window = terminal
	return true
}

// render is the one way from a text to what is shown of it. Secrets are taken out first, while they
// are whole. Control characters become visible, then the text is cut, then folded: so what is
// counted is what is seen.
func (s *Screen) render(look Look, text string) rendered {
	return s.layOut(look, s.Secrets.Mask(text))
}

// layOut does the rest, for a text that Mask has been over. A text of several lines is masked
// whole, as a secret may have several, and then laid out line by line.
func (s *Screen) layOut(look Look, text string) rendered {
	if look.Frame != "" {
		return rendered(frame(look, text, s.Columns()))
	}
	text = Visible(text)
	if look.Max > 0 {
		text = fit(text, look.Max)
	}
	if s.Live && !look.Exact {
		text = Fold(text, s.Columns())
	}
	if s.Color && look.Style != "" && text != "" {
		text = string(look.Style) + text + string(plain)
	}
	return rendered(text)
}

// rows returns paragraphs in rows of the window.
func (s *Screen) rows(paragraphs []Paragraph) (rows []string) {
	for _, p := range paragraphs {
		rows = append(rows, strings.Split(string(s.render(p.Look, p.Text)), "\n")...)
	}
	return rows
}

// Name returns a peer's name for a sentence of the program: cut, and with nothing hidden in it. As
// it is cut here, its secrets are taken out here.
func (s *Screen) Name(text string, columns int) string {
	return fit(exactly(s.Secrets.Mask(text)), max(columns, 8))
}

// Show shows a text, with the end of its line, on stderr.
func (s *Screen) Show(look Look, text string) { s.showLines(s.stderr, s.render(look, text)+"\n") }

// Tell shows a text that belongs to a question, where that is asked.
func (s *Screen) Tell(look Look, text string) { s.showLines(s.user, s.render(look, text)+"\n") }

// Print writes a text to stdout. Where that is no terminal, only its secrets are taken out.
func (s *Screen) Print(look Look, text string) error {
	text = s.Secrets.Mask(text)
	out := rendered(text)
	if s.Answers {
		out = s.layOut(look, text)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.write(s.stdout, out)
}

// PrintJSON prints JSON, with escapes for what steers a terminal: so it stays the same JSON.
func (s *Screen) PrintJSON(text string) error {
	return s.Print(Look{Exact: true}, escape(text, steers))
}

// Separate puts an empty line before a paragraph of such a kind ("text", "call" or "question"),
// unless it is the first after Separate(""), or a call after a call.
func (s *Screen) Separate(kind string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	isFirst := s.last == "" || kind == ""
	isNextCall := kind == "call" && s.last == kind
	if s.Live && !s.question.open && !isFirst && !isNextCall {
		_ = s.write(s.stderr, "\n")
	}
	s.last = kind
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
