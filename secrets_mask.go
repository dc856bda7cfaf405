// secrets_mask.go - texts without the secrets in them.
// SPDX-License-Identifier: 0BSD

package main

import (
	"io"
	"strings"
)

// Mask returns a text with marks in the place of the secrets. A text without secrets is returned
// itself, so that a long one is not held twice.
func (s *Secrets) Mask(text string) string {
	table := s.currentTable()
	if table == nil {
		return text
	}
	search := newSecretSearch(table)
	searchText(search, text)
	search.end()
	if len(search.found) == 0 {
		return text
	}
	size := len(text)
	for _, f := range search.found {
		size += len(f.mark) - (f.end - f.start)
	}
	var out strings.Builder
	out.Grow(size)
	at := 0
	for _, f := range search.found {
		out.WriteString(text[at:f.start])
		out.WriteString(f.mark)
		at = f.end
	}
	out.WriteString(text[at:])
	return out.String()
}

// Writer returns a writer that passes texts on to w, masked as by Mask. The pieces in which a text
// is written make no difference. The writer keeps back bytes that may be the beginning of a secret,
// until more is written, or until Close. Close does not close w.
func (s *Secrets) Writer(w io.Writer) *MaskWriter {
	return &MaskWriter{secrets: s, w: w}
}

// MaskWriter is a writer that masks secrets; see Secrets.Writer. One goroutine may use it. A secret
// that is added while a text is being written is looked for in what is not yet passed on.
type MaskWriter struct {
	secrets *Secrets
	w       io.Writer
	search  *secretSearch // nil if there are no secrets
	kept    []byte        // the last bytes that were read: they are not written yet
}

// Write passes a piece on, except for bytes at its end that may be the beginning of a secret.
func (m *MaskWriter) Write(piece []byte) (int, error) {
	m.renewSearch()
	if m.search == nil {
		return m.w.Write(piece)
	}
	searchText(m.search, piece)
	text := piece
	if len(m.kept) > 0 {
		m.kept = append(m.kept, piece...)
		text = m.kept
	}
	return len(piece), m.flush(text, m.search.settled())
}

// renewSearch begins a search for all secrets that are known now, if these have become more. What
// is kept back is searched again.
func (m *MaskWriter) renewSearch() {
	table := m.secrets.currentTable()
	before := m.search
	if table == nil || before != nil && before.table == table {
		return
	}
	m.search = newSecretSearch(table)
	if before != nil {
		m.search.read = before.read - len(m.kept)
		m.search.found = before.found
	}
	searchText(m.search, m.kept)
}

// Close writes the bytes that were kept back. A Write after Close begins another text.
func (m *MaskWriter) Close() error {
	var err error
	if m.search != nil {
		m.search.end()
		err = m.flush(m.kept, m.search.read)
	}
	*m = MaskWriter{secrets: m.secrets, w: m.w}
	return err
}

// flush writes the part of a text before end, in which all secrets have been found, and keeps the
// rest. The text is all that was read and is not written yet.
func (m *MaskWriter) flush(text []byte, end int) error {
	size := len(text) - (m.search.read - end)
	var err error
	out := m.search.masked(text, end)
	if len(out) > 0 {
		_, err = m.w.Write(out)
	}
	m.kept = append(m.kept[:0], text[size:]...)
	return err
}
