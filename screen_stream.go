// screen_stream.go - a text that comes in pieces, on stdout.
// SPDX-License-Identifier: 0BSD

package main

import (
	"bytes"
	"io"
	"strings"
	"unicode/utf8"
)

// Stream shows a text while it comes: without secrets and control characters, and laid out as markdown
// where stdout is a terminal. Make one with Screen.NewStream. It is for one goroutine at a time.
type Stream struct {
	screen *Screen
	raw    bool        // nothing is laid out
	masked *MaskWriter // takes the secrets out of what is written, before layOut gets it
	kept   []byte      // the end so far: white space, not shown if nothing follows, or half a character
	layout *markdown   // nil until the text begins
}

// NewStream returns a text that is empty so far. With raw it goes out as it comes.
func (s *Screen) NewStream(raw bool) *Stream {
	t := &Stream{screen: s, raw: raw || !s.Answers}
	t.masked = s.Secrets.Writer(streamLayout{t})
	return t
}

// Begun reports whether something of the text is shown.
func (t *Stream) Begun() bool { return t.layout != nil }

// Add adds a piece. What may be the beginning of a secret is kept back.
func (t *Stream) Add(piece string) { _, _ = io.WriteString(t.masked, piece) }

// Close shows the rest, and ends the line.
func (t *Stream) Close() {
	_ = t.masked.Close() // which may begin the text
	if t.layout != nil {
		t.show(string(bytes.TrimSpace(t.kept)), true)
	}
}

// streamLayout gets the text without its secrets.
type streamLayout struct{ *Stream }

func (t streamLayout) Write(piece []byte) (int, error) {
	t.kept = append(t.kept, piece...)
	if len(bytes.TrimRight(piece, " \r\n\t")) == 0 {
		return len(piece), nil
	}
	end := len(bytes.TrimRight(t.kept, " \r\n\t"))
	for i := end - 1; i >= max(end-utf8.UTFMax, 0); i-- {
		if utf8.RuneStart(t.kept[i]) && !utf8.FullRune(t.kept[i:end]) {
			end = i // the character has not come whole
		}
	}
	text := string(t.kept[:end])
	t.kept = bytes.Clone(t.kept[end:])
	if t.layout == nil && text != "" {
		t.layout = newMarkdown(t.screen.Columns(), t.screen.Color)
		t.layout.raw = t.raw
		t.screen.Status("")
		t.screen.Separate("text")
		text = strings.TrimLeft(text, "\r\n")
	}
	if text != "" {
		t.show(text, false)
	}
	return len(piece), nil
}

// show writes a piece of the text, without its secrets; end is for the last.
func (t *Stream) show(text string, end bool) { t.screen.stream(t.layout, text, end) }
