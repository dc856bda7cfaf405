// secrets_mask.go - texts without the secrets in them.
// SPDX-License-Identifier: 0BSD

package main

import (
	"io"
	"slices"
	"strings"
)

// Mask returns a text with marks in the place of the secrets. It works in pieces, so that only a
// small part of a long text is held twice.
func (s *Secrets) Mask(text string) string {
	if s.currentTable() == nil {
		return text
	}
	var out strings.Builder
	w := s.Writer(&out)
	for piece := range slices.Chunk([]byte(text), 64<<10) {
		// A Builder never fails, and so neither does its writer.
		_, _ = w.Write(piece)
	}
	_ = w.Close()
	return out.String()
}

// Writer returns a writer that passes texts on to w, masked as by Mask. The pieces in which a text
// is written make no difference. The writer keeps back bytes that may be the beginning of a secret,
// until more is written, or until Close. Close does not close w.
func (s *Secrets) Writer(w io.Writer) *MaskWriter {
	return &MaskWriter{secrets: s, w: w}
}

// MaskWriter is a writer that masks secrets; see Secrets.Writer. One goroutine may use it. A secret
// that is added while a text is being written is looked for only from the next place on at which no
// known secret can have begun.
//
// A log may show a secret as it is, or as JSON or a URL has it: "a+b" as "a\u002bb" or "a%2Bb". So
// the text is searched twice at the same time, as it is and without its escapes. Each finding is a
// stretch of the text as it is. Secrets that overlap become one stretch, so that no end of a secret
// is left. The stretch gets the mark of the secret that begins first.
type MaskWriter struct {
	secrets *Secrets
	table   *secretTable // nil if there are no secrets
	w       io.Writer
	read    int       // bytes so far
	kept    []byte    // the last bytes that were read: they are not written yet
	found   []stretch // in order; no two overlap. The first may have begun before kept

	asIs      secretSearch // of the text as it is
	unescaped secretSearch // of the text without its escapes
	escapes   unescaper    // makes the text for unescaped
}

// stretch is a part of the text in which secrets were found.
type stretch struct {
	start, end int    // counted from the beginning of the text
	mark       string // "" when it has been written
}

// Write passes a piece on, except for bytes at its end that may be the beginning of a secret.
func (m *MaskWriter) Write(piece []byte) (int, error) {
	table := m.secrets.currentTable()
	if table != m.table && len(m.kept) == 0 {
		*m = MaskWriter{secrets: m.secrets, table: table, w: m.w}
	}
	if m.table == nil {
		return m.w.Write(piece)
	}
	m.kept = append(m.kept, piece...)
	searchUnescaped := func(c char) { m.unescaped.readChar(m, c) }
	for _, b := range piece {
		c := char{b, m.read, m.read + 1}
		m.read++
		m.asIs.readChar(m, c)
		m.escapes.readChar(c, searchUnescaped)
	}
	beginOfEscape := m.read - len(m.escapes.pending)
	end := min(m.asIs.openStart(m), m.unescaped.openStart(m), beginOfEscape)
	return len(piece), m.flush(end)
}

// Close writes the bytes that were kept back. A Write after Close begins another text.
func (m *MaskWriter) Close() error {
	err := m.flush(m.read)
	*m = MaskWriter{secrets: m.secrets, w: m.w}
	return err
}

// addFinding adds the stretch of a secret, and joins it with the stretches before that it overlaps.
func (m *MaskWriter) addFinding(s stretch) {
	for len(m.found) > 0 {
		last := m.found[len(m.found)-1]
		if last.end <= s.start {
			break
		}
		s.end = max(s.end, last.end)
		if last.start < s.start {
			s.start, s.mark = last.start, last.mark
		}
		m.found = m.found[:len(m.found)-1]
	}
	m.found = append(m.found, s)
}

// flush writes the text before end, in which all secrets have been found. A stretch that goes
// beyond end is written as its mark now, and the rest of the stretch stays: another secret may
// begin in this rest, and make the stretch longer.
func (m *MaskWriter) flush(end int) error {
	var out []byte
	first := m.read - len(m.kept)
	at := first
	for len(m.found) > 0 && m.found[0].start < end {
		s := &m.found[0]
		before := max(at, s.start)
		out = append(out, m.kept[at-first:before-first]...)
		out = append(out, s.mark...)
		s.mark = ""
		at = min(s.end, end)
		if s.end > end {
			break
		}
		m.found = m.found[1:]
	}
	out = append(out, m.kept[at-first:end-first]...)
	m.kept = m.kept[end-first:]
	if len(out) == 0 {
		return nil
	}
	_, err := m.w.Write(out)
	return err
}

// secretSearch looks for secrets in a text that comes one character after the other.
type secretSearch struct {
	node   int   // of the table: the longest end of the text that begins a secret
	starts []int // where in the written text its bytes begin
}

// readChar goes on with one character, and tells the writer of the secret that ends with it.
func (r *secretSearch) readChar(m *MaskWriter, c char) {
	if r.node == 0 && !m.table.first[c.b] {
		return
	}
	r.node = m.table.step(r.node, c.b)
	n := &m.table.nodes[r.node]
	r.starts = append(r.starts, c.start)
	r.starts = r.starts[len(r.starts)-n.depth:]
	if n.secret > 0 {
		m.addFinding(stretch{r.starts[n.depth-n.secret], c.end, n.mark})
	}
}

// openStart returns the first place at which a secret may have begun that has not ended yet. If
// there is none, it returns the end of the text.
func (r *secretSearch) openStart(m *MaskWriter) int {
	for node := r.node; node != 0; node = m.table.nodes[node].fallback {
		n := &m.table.nodes[node]
		if n.isOpen {
			return r.starts[len(r.starts)-n.depth]
		}
	}
	return m.read
}
