package main

import (
	"strings"
	"testing"

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
