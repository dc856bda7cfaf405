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

// openTrace opens what MCP_TRACE names. trace writes a line about a server, or about the model for no server: with the
// time, visible, and without secrets. It is nil for none.
func (p *program) openTrace() (trace func(s *Server, line string), file *os.File, err error) {
	switch p.trace {
	case "", "0":
		return nil, nil, nil
	case "1":
	default:
		if file, err = os.OpenFile(p.trace, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600); err == nil {
			err = onlyForOwner(file)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("MCP_TRACE: %w", err)
		}
	}
	return func(s *Server, line string) {
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
	}, file, nil
}

// traceStderr returns a writer that traces what a server writes to stderr.
func (p *program) traceStderr(s *Server, trace func(s *Server, line string)) io.Writer {
	return p.secrets.Writer(writeFunc(func(lines []byte) (int, error) {
		for line := range bytes.Lines(lines) {
			trace(s, "!! stderr: "+string(bytes.TrimRight(line, "\r\n")))
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
	begun := time.Now()
	answer, err := http.DefaultTransport.RoundTrip(r)
	took := time.Since(begun).Round(time.Millisecond)
	if err != nil {
		trace.line("!! %v, after %s", err, took)
		return nil, err
	}
	trace.line("<- %s, after %s", answer.Status, took)
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
	b.text = append(b.text, into[:n]...)
	for line := range bytes.Lines(b.text) {
		if err == nil && !bytes.HasSuffix(line, []byte("\n")) {
			break // its rest comes
		}
		b.text = b.text[len(line):]
		if line = bytes.TrimSpace(line); len(line) > 0 {
			b.trace.line("<- %s", line)
		}
	}
	return n, err
}
