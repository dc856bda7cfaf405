// screen_stream.go - a text that comes in pieces, on stdout.
// SPDX-License-Identifier: 0BSD

package main

import (
	"bytes"
	"io"
	"strings"
	"unicode/utf8"
)

// Stream shows a text while it comes: without secrets and control characters, and laid out as
// markdown where stdout is a terminal. Make one with Screen.NewStream. It is for one goroutine at a
// time.
type Stream struct {
	screen *Screen
	raw    bool        // nothing is laid out
	masked *MaskWriter // takes the secrets out of what is added, before maskedText gets it
	kept   []byte      // the end so far: white space, or half a character
	layout *markdown   // nil until the text begins
}

// NewStream returns a text that is empty so far. With raw it goes out as it comes.
func (s *Screen) NewStream(raw bool) *Stream {
	t := &Stream{screen: s, raw: raw || !s.Answers}
	t.masked = s.Secrets.Writer(maskedText{t})
	return t
}

// Begun reports whether something of the text is shown.
func (t *Stream) Begun() bool { return t.layout != nil }

// Add adds a piece. What may be the beginning of a secret is kept back.
func (t *Stream) Add(piece string) { _, _ = io.WriteString(t.masked, piece) }

// Close shows the rest, and ends the line. What was kept back may be all of the text.
func (t *Stream) Close() {
	_ = t.masked.Close()
	if t.layout != nil {
		t.screen.stream(t.layout, string(bytes.TrimSpace(t.kept)), true)
	}
}

// maskedText is what a stream's MaskWriter writes to.
type maskedText struct{ *Stream }

// Write shows a piece up to the white space at its end, and as far as its characters are whole.
//
// Of white space alone nothing is looked at again, so that much of it takes no more time than other
// text (TestViewSmallPieces).
func (t maskedText) Write(piece []byte) (int, error) {
	const white = " \r\n\t"
	t.kept = append(t.kept, piece...)
	if len(bytes.TrimRight(piece, white)) == 0 {
		return len(piece), nil
	}
	end := wholeCharacters(bytes.TrimRight(t.kept, white))
	text := string(t.kept[:end])
	t.kept = bytes.Clone(t.kept[end:])
	if t.layout == nil && text != "" {
		t.begin()
		text = strings.TrimLeft(text, "\r\n")
	}
	if text != "" {
		t.screen.stream(t.layout, text, false)
	}
	return len(piece), nil
}

// begin begins the paragraph in which the text is shown.
func (t *Stream) begin() {
	t.layout = newMarkdown(t.screen.Columns(), t.screen.Color)
	t.layout.raw = t.raw
	t.screen.Status("")
	t.screen.Separate("text")
}

// wholeCharacters returns the size of a text without the character at its end that is not whole.
func wholeCharacters(text []byte) int {
	for i := len(text) - 1; i >= max(len(text)-utf8.UTFMax, 0); i-- {
		if utf8.RuneStart(text[i]) && !utf8.FullRune(text[i:]) {
			return i
		}
	}
	return len(text)
}

// stream writes a piece of a text without secrets to stdout, laid out by m; end is for the last.
func (s *Screen) stream(m *markdown, text string, end bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Answers {
		text = Visible(text)
	}
	m.columns = s.Columns()
	if !s.open {
		m.resume()
	}
	text = m.write(text, end)
	if end {
		text += "\n"
	}
	s.hold(s.stdout, rendered(text))
}
