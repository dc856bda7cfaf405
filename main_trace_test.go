package main

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"gotest.tools/v3/assert"
)

// A message of the model is traced without the length of an image.
func TestTraceIsShort(t *testing.T) {
	var lines []string
	trace := modelTrace{func(line string) { lines = append(lines, line) }, http.DefaultTransport}
	image := `{"url":"data:image/png;base64,` + strings.Repeat("iVBORw0KGgoAAAANSUhE", 1000) + `=="}`
	trace.line("-> [%s,%s]", image, `"base64, a word"`)
	short := `{"url":"data:image/png;base64,iVBORw0KGgoAAAANSUhE…"}`
	assert.DeepEqual(t, lines, []string{"model -> [" + short + `,"base64, a word"]`})
}

// Each line of an answer is traced once, however it is read, and the last one, too, if it has no end.
func TestTracedBody(t *testing.T) {
	for _, wrap := range []func(io.Reader) io.Reader{iotest.OneByteReader, iotest.DataErrReader} {
		var lines []string
		trace := modelTrace{func(line string) { lines = append(lines, line) }, http.DefaultTransport}
		body := trace.body(io.NopCloser(wrap(strings.NewReader("data: 1\r\n\ndata: 2\n{3}"))))
		text, err := io.ReadAll(body)
		assert.NilError(t, err)
		assert.Equal(t, string(text), "data: 1\r\n\ndata: 2\n{3}")
		assert.DeepEqual(t, lines, []string{"model <- data: 1", "model <- data: 2", "model <- {3}"})
	}
}

// What a server writes to stderr is traced by its lines, however it comes, with each secret taken out once. A line
// without an end is traced when the server is closed.
func TestTracedStderr(t *testing.T) {
	path := filepath.Join(t.TempDir(), "trace")
	screen, _ := viewScreen(80, false)
	screen.Secrets.Add("[secret]", "planted-secret")
	trace := &trace{output: &output{screen: screen}}
	assert.NilError(t, trace.open(t.Context(), path, true))
	stderr := trace.stderrOf(&Server{Name: "web"})
	for _, piece := range []string{"it is planted-", "secret\r\nand", " more\nplanted-secret"} {
		n, err := io.WriteString(stderr, piece)
		assert.NilError(t, err)
		assert.Equal(t, n, len(piece))
	}
	assert.NilError(t, stderr.Close())
	trace.close()
	text, err := os.ReadFile(path)
	assert.NilError(t, err)
	var lines []string
	for line := range strings.Lines(string(text)) {
		_, line, _ = strings.Cut(line, " ") // the time
		lines = append(lines, strings.TrimSuffix(line, "\n"))
	}
	assert.DeepEqual(t, lines, []string{
		"web !! stderr: it is [secret]",
		"web !! stderr: and more",
		"web !! stderr: [secret]",
	})
}
