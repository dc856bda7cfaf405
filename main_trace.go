// main_trace.go - the trace: the messages to servers and to the model, and their answers.
// SPDX-License-Identifier: 0BSD

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"sync/atomic"
	"time"
)

// trace writes a line for each message, with the time. Secrets are taken out in one place, where
// the line is written: by the Screen, or for a file in write. After open, any goroutine may write.
type trace struct {
	output    *output
	file      *os.File // nil for stderr
	isOn      bool
	withNames bool        // a line about a server begins with its name
	isLost    atomic.Bool // the file took no more, and the user knows

	stopWaiting func() bool // ends the wait for ctx
}

// traceGrace is how long the trace of a run that was interrupted waits for the reader of a pipe.
const traceGrace = 2 * time.Second

// open opens what MCP_TRACE names: 1 for stderr, or a file; "" and 0 are for no trace. The file may
// be a pipe: the wait for its reader ends with ctx.
func (t *trace) open(ctx context.Context, name string, withNames bool) error {
	if name == "" || name == "0" {
		return nil
	}
	if name != "1" {
		var file *os.File
		err := WhileBlocked(ctx, func() (err error) {
			file, err = createTrace(name)
			return err
		})
		if err != nil {
			return fmt.Errorf("MCP_TRACE: %w", err)
		}
		t.file = file
		t.stopWaiting = context.AfterFunc(ctx, func() {
			_ = file.SetWriteDeadline(time.Now().Add(traceGrace))
		})
	}
	t.withNames, t.isOn = withNames, true
	return nil
}

// createTrace creates a file that only its owner can read. If an earlier file of that name can be
// read by others, its mode is changed. The mode of a device, such as /dev/stderr, stays as it is.
func createTrace(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && info.Mode().IsRegular() {
		if err := file.Chmod(0o600); err != nil {
			return nil, err
		}
	}
	return file, nil
}

// isOpen reports whether there is a trace, also where t is nil.
func (t *trace) isOpen() bool { return t != nil && t.isOn }

func (t *trace) close() {
	if t.file != nil {
		t.stopWaiting()
		t.lose(t.file.Close())
	}
}

// message writes a message to or from a server.
func (t *trace) message(s *Server, sent bool, text []byte) {
	arrow := "<- "
	if sent {
		arrow = "-> "
	}
	t.server(s, arrow+string(text))
}

// server writes a line about a server.
func (t *trace) server(s *Server, line string) {
	if t.withNames {
		line = OneName(s.Name) + " " + line
	}
	t.write(line)
}

func (t *trace) write(line string) {
	line = time.Now().Format("15:04:05.000 ") + line
	if t.file == nil {
		t.output.screen.Show(Look{Exact: true}, line)
		return
	}
	if t.isLost.Load() {
		return
	}
	line = Visible(t.output.screen.Secrets.Mask(line))
	_, err := t.file.WriteString(line + "\n")
	t.lose(err)
}

// lose tells the user the first time that a line cannot be written, as on a full disk. The trace
// ends there, so that no line is missing within it. A reader of a pipe that has seen enough is no
// failure.
func (t *trace) lose(err error) {
	if err == nil || isClosedPipe(err) || t.isLost.Swap(true) {
		return
	}
	t.output.lose(fmt.Errorf("the trace is incomplete: %w", err))
}

// stderrOf returns a writer that traces what a server writes to stderr.
func (t *trace) stderrOf(s *Server) io.WriteCloser {
	return &lineWriter{line: func(text []byte) {
		t.server(s, "!! stderr: "+string(bytes.TrimRight(text, "\r")))
	}}
}

// maxTraceLine bounds in bytes a line without an end, of which the trace has the parts.
const maxTraceLine = 1 << 20

// lineWriter hands over each line that is written to it, without its end. A secret that comes in
// two pieces is whole in its line, where it is taken out. It is for one goroutine.
type lineWriter struct {
	line    func(text []byte)
	pending []byte // the line that has not ended
}

func (w *lineWriter) Write(text []byte) (int, error) {
	for part := range bytes.Lines(text) {
		w.pending = append(w.pending, part...)
		if bytes.HasSuffix(part, []byte("\n")) || len(w.pending) > maxTraceLine {
			_ = w.Close()
		}
	}
	return len(text), nil
}

// Close hands over the line that has not ended. What is written after it is another line.
func (w *lineWriter) Close() error {
	if len(w.pending) > 0 {
		w.line(bytes.TrimSuffix(w.pending, []byte("\n")))
	}
	w.pending = nil
	return nil
}

// modelTrace is a transport that traces the requests to a model, and its answers. The key is in a
// header, which is not traced.
type modelTrace struct {
	write func(line string)
	base  http.RoundTripper
}

func (t modelTrace) RoundTrip(r *http.Request) (*http.Response, error) {
	var sent []byte
	if r.GetBody != nil {
		// All bodies here are texts in memory, so GetBody never fails.
		body, _ := r.GetBody()
		sent, _ = io.ReadAll(body)
	}
	t.line("-> %s %s %s", r.Method, r.URL.Redacted(), sent)
	answer, err := t.base.RoundTrip(r)
	if err != nil {
		t.line("!! %v", err)
		return nil, err
	}
	t.line("<- %s", answer.Status)
	answer.Body = t.body(answer.Body)
	return answer, nil
}

// body returns a body that is traced when it is read. In a stream, each line is part of an event.
// Another body is traced line by line, too, and mostly is one line.
func (t modelTrace) body(body io.ReadCloser) io.ReadCloser {
	return &tracedBody{body, &lineWriter{line: func(text []byte) {
		text = bytes.TrimSpace(text)
		if len(text) > 0 {
			t.line("<- %s", text)
		}
	}}}
}

var longData = regexp.MustCompile(`(base64,[\w+/=]{20})[\w+/=]{40,}`)

// line writes a line about the model, with the beginning of each image.
func (t modelTrace) line(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	t.write("model " + longData.ReplaceAllString(text, "$1…"))
}

// tracedBody traces the lines that are read of an answer.
type tracedBody struct {
	io.ReadCloser
	lines *lineWriter
}

func (b *tracedBody) Read(into []byte) (int, error) {
	n, err := b.ReadCloser.Read(into)
	_, _ = b.lines.Write(into[:n])
	if err != nil {
		_ = b.lines.Close()
	}
	return n, err
}
