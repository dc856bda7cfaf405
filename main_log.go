// main_log.go - what is written down of the servers of a run: a log of each, or a trace of all.
// Needs: Go 1.25, json.go, rpc.go, transport_stdio.go, transport_stdio_unix.go, transport_stdio_windows.go, transport_http_events.go, transport_http.go, transport_http_params.go, transport_sse.go, mcp_types.go, elicitation.go, mcp.go, mcp_input.go, mcp_lists.go, mcp_handshake.go, mcp_repair.go, mistral.go, mcp_model.go, sampling.go, agent.go, connect.go, host_server.go, host.go, config.go, mask.go, search.go, corpus.go, library_tools.go, library.go, library_http_answer.go, library_http.go, offline.go, terminal_unix.go, terminal_other.go, terminal_screen.go, terminal.go, terminal_view.go, session.go, main.go, main_host.go, main_ask.go, main_chat.go, main_commands.go, main_server.go.
// SPDX-License-Identifier: 0BSD

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"sync"
)

// maxLog bounds a server's log, in bytes.
const maxLog = 10 << 20

// serverLog is the file with what a server writes to stderr, in this run of the program. When it is full it begins anew.
type serverLog struct {
	path string

	mu    sync.Mutex // guards the following; held during a write
	file  *os.File
	mask  *MaskWriter // over fill
	size  int         // of the file
	lines int         // with something in them, that were written
	bytes int
}

// openLog makes the log of a server. It is nil where that cannot be done, as on a machine without a home.
func (p *program) openLog(name string) *serverLog {
	folder, err := os.UserCacheDir()
	if err != nil {
		return nil
	}
	l := &serverLog{path: filepath.Join(folder, "mcpagent", name+".log")}
	l.mask = p.mask.Writer(writeFunc(l.fill))
	if err := os.MkdirAll(filepath.Dir(l.path), 0o700); err != nil {
		return nil
	}
	if l.file, err = os.OpenFile(l.path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY|os.O_APPEND, 0o600); err != nil {
		return nil
	}
	return l
}

var notInLogName = regexp.MustCompile(`^\.|[^A-Za-z0-9._-]`)

// logNames returns for each server a name that every file system takes.
func logNames(servers []ServerConfig) []string {
	names := make([]string, len(servers))
	for i, s := range servers {
		names[i] = s.Name
	}
	return uniqueNames(names, func(name string) string { return notInLogName.ReplaceAllString(name, "_") }, 64)
}

type writeFunc func([]byte) (int, error)

func (f writeFunc) Write(text []byte) (int, error) { return f(text) }

func (l *serverLog) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range bytes.Lines(text) {
		if len(bytes.TrimSpace(line)) > 0 {
			l.lines++
		}
	}
	l.bytes += len(text)
	return l.mask.Write(text)
}

// fill writes to the file.
func (l *serverLog) fill(text []byte) (int, error) {
	if l.size+len(text) > maxLog {
		if err := l.file.Truncate(0); err != nil { // as on Windows
			return 0, err
		}
		l.size = 0
	}
	n, err := l.file.Write(text)
	l.size += n
	return n, err
}

// hasMore says whether the log has what an error does not show: the end of a process comes with its last words.
func (l *serverLog) hasMore(exited bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lines > 4 || l.bytes > 600 || l.lines > 0 && !exited
}

func (l *serverLog) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return errors.Join(l.mask.Close(), l.file.Close())
}

// openTrace opens what MCP_TRACE says; nil for nothing.
func (p *program) openTrace() (trace io.Writer, closeTrace func() error, err error) {
	switch p.trace {
	case "", "0":
		return nil, func() error { return nil }, nil
	case "1":
		return p.stderr, func() error { return nil }, nil
	}
	file, err := os.OpenFile(p.trace, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, nil, fmt.Errorf("MCP_TRACE: %w", err)
	}
	return &lineWriter{w: file}, file.Close, nil
}

// traced writes every message of a transport down.
type traced struct {
	Transport
	out, in tracer
}

func (t traced) Read() ([]byte, error) {
	message, err := t.Transport.Read()
	if err == nil {
		t.in.line(string(message))
	}
	return message, err
}

func (t traced) Write(ctx context.Context, message []byte) error {
	t.out.line(string(message))
	return t.Transport.Write(ctx, message)
}

// tracer writes lines with a mark before each, and without secrets.
type tracer struct {
	p    *program
	w    io.Writer
	mark string
}

func (t tracer) line(text string) { fmt.Fprintln(t.w, visible(t.mark)+t.p.redact(visible(text))) }

func (t tracer) Write(lines []byte) (int, error) {
	for line := range bytes.Lines(lines) {
		t.line(string(bytes.TrimRight(line, "\r\n")))
	}
	return len(lines), nil
}
