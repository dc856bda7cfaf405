// transport_stdio_exit.go - how a child process ended, and what it said on stderr before.
// Needs: Go 1.25, json, rpc, lines.
// SPDX-License-Identifier: 0BSD

package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

// ServerExitError describes how a server ended, or that it has closed its stdin or stdout. It
// wraps io.EOF.
type ServerExitError struct {
	Command string           // without arguments, which may hold secrets
	State   *os.ProcessState // nil if it still runs
	Closed  string           // if it still runs, what it has closed: stdin or stdout
	Stderr  string           // the last 8 KiB
	Excerpt string           // of Stderr, made by Command.Excerpt
	unread  bool             // see Unread
}

// Error is one line: the command, the exit status and the excerpt of stderr.
func (e *ServerExitError) Error() string {
	text := fmt.Sprintf("server %s closed its %s, but still runs", e.Command, e.Closed)
	if e.State != nil {
		text = fmt.Sprintf("server %s ended (%s)", e.Command, e.State)
	}
	if e.Excerpt == "" {
		return text + ", nothing on stderr"
	}
	return text + ", stderr: " + e.Excerpt
}

func (e *ServerExitError) Unwrap() error { return io.EOF }

// Unread reports that the server ended and left something unread in its stdin, or ended before
// anything was written. What is left in a pipe only Linux can tell.
func (e *ServerExitError) Unread() bool { return e.unread }

// exitError returns the error of a server that is lost: it has ended, or has closed its stdin or
// its stdout. What is seen first is that the pipe is closed, so exitError waits a moment for the
// end of the process. A server that lives on is lost all the same, and exitError ends Read. All
// callers get the same error, the one that the first of them made.
func (s *Stdio) exitError(closed string) error {
	s.describing.Do(func() { s.exitErr = s.describeExit(closed) })
	return s.exitErr
}

func (s *Stdio) describeExit(closed string) *ServerExitError {
	e := &ServerExitError{Command: s.command.Path, Closed: closed}
	if within(4*drain, s.exited) {
		e.State = s.process.ProcessState
		e.unread = s.leftUnread || !s.Delivered()
		within(4*drain, s.stderrEnded)
	} else {
		s.stdout.end()
	}
	e.Stderr, _ = s.tail.read()
	e.Excerpt = s.command.Excerpt(e.Stderr)
	return e
}

// maxTail is how much of stderr is kept for the error message, in bytes. A line that is longer is
// handed on in pieces.
const maxTail = 8 << 10

// stderrTail is the last that a server wrote to stderr.
type stderrTail struct {
	mu     sync.Mutex // guards the following
	text   []byte     // at most maxTail bytes
	lastAt time.Time  // when the last of it came
}

func (t *stderrTail) add(text []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, text...)
	t.text = t.text[max(0, len(t.text)-maxTail):]
	t.lastAt = time.Now()
}

func (t *stderrTail) read() (text string, lastAt time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.text), t.lastAt
}

// Stderr returns an excerpt of what the server wrote there last, and the time of the last write.
func (s *Stdio) Stderr() (excerpt string, last time.Time) {
	text, last := s.tail.read()
	return s.command.Excerpt(text), last
}

// readStderr reads stderr to its end, whether anybody wants it or not: a server whose stderr is
// full stops. It ends soon after the process, which childPipe.end sees to, and waits for
// Command.Stderr alone.
func (s *Stdio) readStderr() {
	defer close(s.stderrEnded)
	var unsent []byte // what Command.Stderr has not received: the beginning of a line
	chunk := make([]byte, 4<<10)
	for {
		n, err := s.stderr.Read(chunk)
		if n > 0 {
			s.tail.add(chunk[:n])
		}
		if s.command.Stderr != nil {
			unsent = append(unsent, chunk[:n]...)
			size := bytes.LastIndexByte(unsent, '\n') + 1
			tooLong := size == 0 && len(unsent) > maxTail
			if tooLong || err != nil {
				size = len(unsent)
			}
			if size > 0 {
				_, _ = s.command.Stderr.Write(unsent[:size])
				unsent = append(unsent[:0], unsent[size:]...)
			}
		}
		if err != nil {
			return
		}
	}
}

// lastLine is the Excerpt of a Command that has none.
func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return strings.TrimSpace(text[strings.LastIndexByte(text, '\n')+1:])
}
