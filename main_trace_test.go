package main

import (
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"gotest.tools/v3/assert"
)

// A message of the model is traced without the length of an image.
func TestTraceIsShort(t *testing.T) {
	var lines []string
	trace := modelTrace(func(s *Server, line string) {
		assert.Check(t, s == nil)
		lines = append(lines, line)
	})
	image := `{"url":"data:image/png;base64,` + strings.Repeat("iVBORw0KGgoAAAANSUhE", 1000) + `=="}`
	trace.line("-> [%s,%s]", image, `"base64, a word"`)
	short := `{"url":"data:image/png;base64,iVBORw0KGgoAAAANSUhE…"}`
	assert.DeepEqual(t, lines, []string{"-> [" + short + `,"base64, a word"]`})
}

// Each line of an answer is traced once, however it is read, and the last one, too, if it has no end.
func TestTracedBody(t *testing.T) {
	for _, wrap := range []func(io.Reader) io.Reader{iotest.OneByteReader, iotest.DataErrReader} {
		var lines []string
		trace := modelTrace(func(_ *Server, line string) { lines = append(lines, line) })
		body := &tracedBody{ReadCloser: io.NopCloser(wrap(strings.NewReader("data: 1\r\n\ndata: 2\n{3}"))), trace: trace}
		text, err := io.ReadAll(body)
		assert.NilError(t, err)
		assert.Equal(t, string(text), "data: 1\r\n\ndata: 2\n{3}")
		assert.DeepEqual(t, lines, []string{"<- data: 1", "<- data: 2", "<- {3}"})
	}
}
