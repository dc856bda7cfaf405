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
	trace := modelTrace{func(line string) { lines = append(lines, line) }}
	image := `{"url":"data:image/png;base64,` + strings.Repeat("iVBORw0KGgoAAAANSUhE", 1000) + `=="}`
	trace.line("-> [%s,%s]", image, `"base64, a word"`)
	short := `{"url":"data:image/png;base64,iVBORw0KGgoAAAANSUhE…"}`
	assert.DeepEqual(t, lines, []string{"model -> [" + short + `,"base64, a word"]`})
}

// Each line of an answer is traced once, however it is read, and the last one, too, if it has no end.
func TestTracedBody(t *testing.T) {
	for _, wrap := range []func(io.Reader) io.Reader{iotest.OneByteReader, iotest.DataErrReader} {
		var lines []string
		trace := modelTrace{func(line string) { lines = append(lines, line) }}
		body := trace.body(io.NopCloser(wrap(strings.NewReader("data: 1\r\n\ndata: 2\n{3}"))))
		text, err := io.ReadAll(body)
		assert.NilError(t, err)
		assert.Equal(t, string(text), "data: 1\r\n\ndata: 2\n{3}")
		assert.DeepEqual(t, lines, []string{"model <- data: 1", "model <- data: 2", "model <- {3}"})
	}
}
