// screen_draw.go - what is written, and in which order: texts, the last line, an open question.
// SPDX-License-Identifier: 0BSD

package main

import (
	"io"
	"slices"
	"strings"
)

// openQuestion is the question that waits for its answer, and what was written meanwhile.
type openQuestion struct {
	open     bool
	above    bool     // lines that are written meanwhile go above its answer
	held     []func() // each writes a text that came while the question was open
	heldSize int      // in bytes
}

// maxHeld is how many bytes wait for a question to be answered. What comes then interrupts it.
const maxHeld = 1 << 20

// drawing is what is drawn below all texts, again and again: a status, or a text that is edited.
// Its rows leave a column of the window for the cursor.
type drawing struct {
	rows   []string
	row    int    // the row of the cursor
	before string // what stands before the cursor there
}

// showLines writes whole lines, after the end of a text that has not ended its own.
func (s *Screen) showLines(w io.Writer, lines rendered) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open {
		s.hold(w, "\n")
	}
	s.hold(w, lines)
}

// hold writes a text, or keeps it until the open question is answered. It needs the lock, as does
// write.
//
// A line may go above an answer that is being edited, if no text before it waits: they stay in
// order.
func (s *Screen) hold(w io.Writer, text rendered) {
	q := &s.question
	endsLine := strings.HasSuffix(string(text), "\n")
	goesAbove := q.above && q.held == nil && endsLine
	isFull := q.heldSize+len(text) > maxHeld
	if !q.open || goesAbove || isFull {
		_ = s.write(w, text)
		return
	}
	if text != "" {
		q.held = append(q.held, func() { _ = s.write(w, text) })
		q.heldSize += len(text)
		s.open = !endsLine
	}
}

// write writes a text in place of what is drawn, which comes back below it. While the text has not
// ended its line, no status stands behind it.
func (s *Screen) write(w io.Writer, text rendered) error {
	if text == "" {
		return nil
	}
	drawn := s.drawn
	s.draw(drawing{})
	_, err := io.WriteString(w, string(text))
	s.open = !strings.HasSuffix(string(text), "\n")
	if !s.open || s.question.open {
		s.draw(drawn)
	}
	return err
}

// Status draws the last line anew, cut to the window; "" removes it. Nothing happens while another
// text is on the last line, or where lines cannot be drawn again. The last column stays free, as
// some terminals begin a new line when it is written.
func (s *Screen) Status(text string) {
	var d drawing
	status := string(s.render(Look{Max: s.Columns() - 1}, text))
	if status != "" {
		d = drawing{rows: []string{status}, before: status}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Live && !s.open && !s.question.open {
		s.draw(d)
	}
}

// draw draws what stands below all texts over what is drawn there: nothing disappears that comes
// back, which would flicker. It needs the lock.
func (s *Screen) draw(d drawing) {
	old := s.drawn
	s.drawn = d
	out := s.placed(old, d)
	if out != "" {
		_, _ = io.WriteString(s.user, out)
	}
}

// placed returns what is written to have d in the place of old, with the cursor where d has it.
func (s *Screen) placed(old, d drawing) string {
	// What was typed at the end of a row is all that is new.
	added, isMore := strings.CutPrefix(d.before, old.before)
	if isMore && old.isRowToCursor() && d.isRowToCursor() {
		return added
	}
	out := strings.Join(d.rows, "\x1b[K\n")
	if old.rows != nil {
		// The cursor goes up to where old begins. Its rows are counted anew: if the window is
		// narrower than it was, the terminal has folded them.
		up := s.height(old.before) - 1
		for _, row := range old.rows[:old.row] {
			up += s.height(row)
		}
		out = "\r" + strings.Repeat("\x1b[A", up) + out + "\x1b[J"
	}
	last := len(d.rows) - 1
	if last < 0 {
		return out
	}
	out += strings.Repeat("\x1b[A", last-d.row)
	if d.row < last || d.before != d.rows[last] {
		// The terminal knows best how wide a text is, so what stands before the cursor is written
		// once more, instead of counting columns.
		out += "\r" + d.before
	}
	return out
}

// isRowToCursor reports whether there is one row, and nothing of it behind the cursor.
func (d drawing) isRowToCursor() bool { return slices.Equal(d.rows, []string{d.before}) }

// height is how many rows of the window a line takes.
func (s *Screen) height(line string) int { return max(plainWidth(line)-1, 0)/s.Columns() + 1 }

// pageSize is how many rows the window has for what stands above a question, with one left for a
// row below that.
func (s *Screen) pageSize(question rendered) int {
	size := s.Rows() - 1
	for line := range strings.SplitSeq(string(question), "\n") {
		size -= s.height(line)
	}
	return max(size, 1)
}

// ask opens a question, at whose end the cursor stays, after a blank if the row has room for it.
// above has lines go above its answer meanwhile.
func (s *Screen) ask(text rendered, above bool) {
	last := text[strings.LastIndexByte(string(text), '\n')+1:]
	if Width(string(last))%s.Columns() != 0 {
		text += " "
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.draw(drawing{})
	// An answer that is still being streamed has not ended its line.
	if s.open {
		text = "\n" + text
	}
	_ = s.write(s.user, text)
	s.question.open = true
	s.question.above = above
	// Where the answer is drawn again, or its Enter ends the line, the next text begins a line.
	s.open = above && !s.Live
}

// edit draws what is edited of the open question, in place of what is drawn there.
func (s *Screen) edit(d drawing) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.question.open {
		s.draw(d)
	}
}

// answered closes the question, and writes what waited for that. If the user has answered, and
// nothing is edited, their own Enter has ended the line.
func (s *Screen) answered(entered bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.question.open = false
	drawn := s.drawn
	if drawn.rows != nil || !entered {
		// What is drawn stays to be seen, and the next text begins below it.
		s.drawn = drawing{}
		below := strings.Repeat("\x1b[B", max(len(drawn.rows)-1-drawn.row, 0))
		_ = s.write(s.user, rendered(below+"\n"))
	}
	s.open = false
	for _, write := range s.question.held {
		write()
	}
	s.question = openQuestion{}
}
