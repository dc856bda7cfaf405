// main_trace.go - the trace: what goes to servers and to the model, and what comes back.
// SPDX-License-Identifier: 0BSD

package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"time"
)

// openTrace opens what MCP_TRACE names, and sets tracer: it writes a line about a server, or about the model for no
// server, with the time, visible, and without secrets.
func (p *program) openTrace() (file *os.File, err error) {
	if p.trace == "" || p.trace == "0" {
		return nil, nil
	}
	if p.trace != "1" {
		file, err = os.OpenFile(p.trace, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
		if err == nil { // an earlier one may be open to others; a device is not ours
			if info, failed := file.Stat(); failed == nil && info.Mode().IsRegular() {
				err = file.Chmod(0o600)
			}
		}
		if err != nil {
			return nil, fmt.Errorf("MCP_TRACE: %w", err)
		}
	}
	p.tracer = func(s *Server, line string) {
		if s == nil {
			line = "model " + line
		} else if len(p.servers) > 1 {
			line = s.Name + " " + line
		}
		line = time.Now().Format("15:04:05.000 ") + line
		if file == nil {
			p.screen.Show(Look{Exact: true}, line)
			return
		}
		fmt.Fprintln(file, Visible(p.secrets.Mask(line)))
	}
	return file, nil
}

type writeFunc func([]byte) (int, error)

func (f writeFunc) Write(text []byte) (int, error) { return f(text) }

// traceStderr returns a writer that traces what a server writes to stderr.
func (p *program) traceStderr(s *Server) io.Writer {
	return p.secrets.Writer(writeFunc(func(lines []byte) (int, error) {
		for line := range bytes.Lines(lines) {
			p.tracer(s, "!! stderr: "+string(bytes.TrimRight(line, "\r\n")))
		}
		return len(lines), nil
	}))
}

// modelTrace is a transport that traces the requests to a model, and its answers. The key, in a header, is not shown.
type modelTrace func(s *Server, line string)

func (trace modelTrace) RoundTrip(r *http.Request) (*http.Response, error) {
	var sent []byte
	if r.GetBody != nil {
		body, _ := r.GetBody() // of a text in memory, as is every one here
		sent, _ = io.ReadAll(body)
	}
	trace.line("-> %s %s %s", r.Method, r.URL.Redacted(), sent)
	answer, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		trace.line("!! %v", err)
		return nil, err
	}
	trace.line("<- %s", answer.Status)
	answer.Body = &tracedBody{ReadCloser: answer.Body, trace: trace}
	return answer, nil
}

var longData = regexp.MustCompile(`(base64,[\w+/=]{20})[\w+/=]{40,}`)

func (trace modelTrace) line(format string, args ...any) {
	trace(nil, longData.ReplaceAllString(fmt.Sprintf(format, args...), "$1…"))
}

// tracedBody traces each line that is read of an answer: an event of a stream, or else all of it.
type tracedBody struct {
	io.ReadCloser
	trace modelTrace
	text  []byte // that is not yet traced
}

func (b *tracedBody) Read(into []byte) (int, error) {
	n, err := b.ReadCloser.Read(into)
	for part := range bytes.Lines(into[:n]) {
		if b.text = append(b.text, part...); bytes.HasSuffix(part, []byte("\n")) {
			b.flush()
		}
	}
	if err != nil {
		b.flush()
	}
	return n, err
}

func (b *tracedBody) flush() {
	if line := bytes.TrimSpace(b.text); len(line) > 0 {
		b.trace.line("<- %s", line)
	}
	b.text = nil
}
