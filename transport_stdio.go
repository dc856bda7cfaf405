// transport_stdio.go - newline framing, and a server as a child process.
// Needs: Go 1.25, json, rpc.
// SPDX-License-Identifier: 0BSD

package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

// ServerExitError describes how a server ended, or that it has closed its stdin or stdout. It wraps io.EOF.
type ServerExitError struct {
	Command string           // without arguments, which may hold secrets
	State   *os.ProcessState // nil if it still runs
	Closed  string           // if it still runs, what it has closed: stdin or stdout
	Stderr  string           // the last 8 KiB
	Excerpt string           // of Stderr, made by Command.Excerpt
	unread  bool
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

// Unread reports that the server ended before it read anything. If it was sent something, only Linux can tell.
func (e *ServerExitError) Unread() bool { return e.unread }

// Lines carries messages over a reader and a writer, one a line (MCP 2025-11-25, transports, stdio). Blank lines are
// skipped, CRLF is a line's end too, and a last line needs none.
type Lines struct {
	// MaxMessage bounds a line that is read, in bytes: 64 MiB if 0. Set before the first Read.
	MaxMessage int

	r     io.Reader
	buf   []byte   // read from r; only Read uses it, like the next four
	start int      // of what Read has not returned yet
	long  [][]byte // full buffers with the beginning of a long line; the rest is in buf
	free  [][]byte // buffers that are not in use
	err   error    // of r, returned when buf is used up

	w    io.Writer
	now  func(p []byte) (int, error) // writes as much as w takes at once; nil if only w.Write can be used
	lost func()                      // called when a write has failed, on a goroutine of its own: it must end Read
	room chan struct{}               // one slot: a Write that waits may try again
	work sync.WaitGroup              // writeRest, lost

	mu      sync.Mutex    // guards the following; never held across a write
	out     []byte        // whole lines that are to be written
	spare   []byte        // the next out, empty
	writing bool          // someone writes, and will write what is added to out meanwhile
	wrote   bool          // w has taken something
	failed  bool          // w has failed
	closed  bool          // by closeWriter
	idle    chan struct{} // closed when nothing is left to write; nil until closeWriter waits for it
}

// NewLines returns a transport over r and w. Close closes both if they are io.Closers, which must unblock them.
func NewLines(r io.Reader, w io.Writer) *Lines {
	l := &Lines{r: r, w: w, room: make(chan struct{}, 1)}
	l.lost = l.closeReader
	return l
}

// Read returns the next line without its end. The error is r's, io.EOF after the last line, or a *MessageTooLongError.
func (l *Lines) Read() ([]byte, error) {
	limit := cmp.Or(l.MaxMessage, 64<<20)
	for size := 0; ; { // of the part of the line that has no newline
		line, _, whole := bytes.Cut(l.buf[l.start:], []byte("\n"))
		switch {
		case size+len(line) > limit:
			return nil, &MessageTooLongError{limit}
		case !whole && l.err == nil:
			size += l.fill()
			continue
		case !whole && size+len(line) == 0:
			return nil, l.err
		}
		l.start = min(l.start+len(line)+1, len(l.buf))
		if size == 0 {
			line = bytes.Clone(bytes.TrimSpace(line))
		} else {
			line, size = bytes.TrimSpace(bytes.Join(append(l.long, line), nil)), 0
			l.free = append(l.free, l.long...)
			l.free, l.long = slices.Clone(l.free[:min(len(l.free), keepSize/readSize)]), nil
		}
		if len(line) > 0 {
			return line, nil
		}
	}
}

const (
	readSize = 64 << 10               // what a pipe holds on Linux
	keepSize = 32 * readSize          // of the buffers that stay; larger ones are for one message only
	maxOut   = keepSize               // bytes that wait to be written; a Write that finds more waits, too
	maxTurns = 8                      // in which a caller writes what others add
	lastTime = 500 * time.Millisecond // that Close gives to what waits
)

// fill drops what Read has returned, and reads once from r to the end of buf. A full buf is moved to long first, and
// its size is returned. Why not one buffer that grows? With 10 MiB, it would mostly be cleared and copied.
func (l *Lines) fill() (full int) {
	l.buf = l.buf[:copy(l.buf, l.buf[l.start:])]
	l.start = 0
	if cap(l.buf)-len(l.buf) < readSize/4 {
		if full = len(l.buf); full > 0 {
			l.long = append(l.long, l.buf)
		}
		if last := len(l.free) - 1; last >= 0 {
			l.buf, l.free = l.free[last][:0], l.free[:last]
		} else {
			l.buf = make([]byte, 0, readSize)
		}
	}
	var n int
	n, l.err = l.r.Read(l.buf[len(l.buf):cap(l.buf)])
	l.buf = l.buf[:len(l.buf)+n]
	return full
}

// Write is WriteNow that waits for room. When ctx ends first, it returns the cause and has sent nothing.
func (l *Lines) Write(ctx context.Context, m Outgoing) error {
	for {
		if sent, err := l.WriteNow(m); sent || err != nil {
			l.wake() // the next one that waits
			return err
		}
		select {
		case <-l.room:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// WriteNow sends one line, or reports false where too much waits to be written. It does not wait for the peer: what
// the pipe does not take at once is written in the background. So the framing survives whatever ends a call. If that
// fails, it is Read that ends, for all whose lines may be lost.
//
// The caller writes the line itself. Why not a goroutine that writes all lines? It would be woken for each, and the
// caller would sleep meanwhile: as expensive as the rest of a call. Lines that come while another caller writes are
// left to that one.
func (l *Lines) WriteNow(m Outgoing) (sent bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return false, os.ErrClosed
	case l.failed, len(l.out) >= maxOut:
		return l.failed, nil
	}
	out := append(l.out, m.Text...)
	if m.Text == nil {
		out, err = m.Source.AppendText(out)
	}
	if err == nil && bytes.IndexByte(out[len(l.out):], '\n') >= 0 {
		err = errors.New("a message with a newline cannot be framed")
	}
	if err != nil {
		return false, err
	}
	if l.out = append(out, '\n'); l.writing {
		return true, nil
	}
	l.writing = true
	if m.MoreMayFollow {
		// Callers that are about to send get their turn: 64 calls in flight make few writes, of dozens of lines.
		l.mu.Unlock()
		runtime.Gosched()
		l.mu.Lock()
	}
	l.write(nil, l.now, maxTurns)
	return true, nil
}

// write writes a text, then what is in out, and what is added meanwhile. After so many turns, or without a how, it
// leaves that to writeRest: other calls cannot keep one from its own answer. Its caller has set writing, and holds mu.
func (l *Lines) write(text []byte, how func([]byte) (int, error), turns int) {
	for ; len(text)+len(l.out) > 0 && !l.failed; turns-- {
		if turns == 0 || how == nil {
			l.work.Go(func() { l.writeRest(nil) })
			return
		}
		if len(text) == 0 {
			text, l.out, l.spare = l.out, l.spare, nil
		}
		l.mu.Unlock()
		n, err := how(text)
		l.mu.Lock()
		l.wrote = l.wrote || n > 0
		switch {
		case err != nil:
			if l.failed = true; !l.closed {
				l.work.Go(l.lost)
			}
		case n < len(text): // the pipe is full
			rest := text[n:]
			l.work.Go(func() { l.writeRest(rest) })
			return
		case cap(text) <= keepSize:
			l.spare = text[:0]
		}
		text = nil
		l.wake()
	}
	if l.writing = false; l.idle != nil {
		close(l.idle)
	}
}

// writeRest is write that waits for the peer. It ends when nothing is left to write, or with w.
func (l *Lines) writeRest(text []byte) {
	if l.now == nil {
		runtime.Gosched() // as in WriteNow
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.write(text, l.w.Write, -1)
}

// wake lets one Write that waits try again. When it has sent its line, it wakes the next.
func (l *Lines) wake() {
	select {
	case l.room <- struct{}{}:
	default:
	}
}

// Close closes the reader and the writer and returns when nothing is written any more.
func (l *Lines) Close() error {
	err := l.closeWriter()
	l.closeReader() // a socket has just been closed as the writer
	return err
}

func (l *Lines) closeReader() {
	if r, ok := l.r.(io.Closer); ok {
		_ = r.Close()
	}
}

// closeWriter gives what waits a moment to be written.
func (l *Lines) closeWriter() (err error) {
	idle := make(chan struct{})
	l.mu.Lock()
	l.closed = true
	if l.idle = idle; !l.writing {
		close(idle)
	}
	l.mu.Unlock()
	l.wake()
	within(lastTime, idle)
	if w, ok := l.w.(io.Closer); ok {
		err = w.Close()
	}
	<-idle
	l.work.Wait()
	return err
}

// Command says how to start a server as a child process.
type Command struct {
	Path string   // looked up in PATH if it has no slash
	Args []string // without the command itself
	Dir  string   // working directory; ours if empty
	Env  []string // NAME=VALUE, beside the short safe list; never the rest of our environment

	// Stderr gets what the server writes to stderr, in whole lines; a line over 8 KiB comes in pieces. It is called from
	// one goroutine and must not block for long: a server whose stderr is not read stops.
	Stderr io.Writer

	// Excerpt chooses what an error shows of the last 8 KiB of stderr, in one line; the last line if nil.
	Excerpt func(stderr string) string

	MaxMessage int           // bytes of one message from the server; 64 MiB if 0
	Grace      time.Duration // what Close gives the server for each of its two chances to end by itself; 2 s if 0
}

const (
	drain   = 100 * time.Millisecond // wait for EOF on the pipes of an ended process; a grandchild may hold them open
	maxPipe = 1 << 20                // the most that a pipe can hold on Linux, if the server makes it larger
	maxTail = 8 << 10                // bytes of stderr that are kept for the error message
)

// Stdio is a server that runs as a child process and is spoken to over its stdin and stdout. The process is the leader
// of a process group of its own, so that Close reaches what it started: npx starts a shell that starts node.
type Stdio struct {
	*Lines
	command Command
	process *exec.Cmd
	group   processGroup // the process and what it starts
	stdin   *os.File
	stdout  *childPipe
	stderr  *childPipe

	exited chan struct{} // closed when the process has been reaped
	unread bool          // it left something in its stdin; set just before exited is closed
	gone   chan struct{} // closed when the rest of its group has ended, too
	heard  chan struct{} // closed when stderr has been read to its end

	work sync.WaitGroup // readStderr, run

	ending  sync.Once        // see exitError
	exitErr *ServerExitError // set in it

	tailMu  sync.Mutex // guards the following
	tail    []byte     // the last of stderr
	heardAt time.Time  // when the last of it came
}

// Start starts the server as a child process: a *Stdio. The caller must Close it, also after the server has ended.
func (c Command) Start(context.Context) (Transport, error) {
	c.Grace = cmp.Or(c.Grace, 2*time.Second)
	if c.Excerpt == nil {
		c.Excerpt = lastLine
	}
	s := &Stdio{
		command: c,
		process: exec.Command(c.Path, c.Args...),
		exited:  make(chan struct{}),
		gone:    make(chan struct{}),
		heard:   make(chan struct{}),
	}
	s.process.Dir = c.Dir
	s.process.Env = append(safeEnvironment(os.Environ()), c.Env...)
	s.group.prepare(s.process)

	// The pipes are our own: exec's Wait would close them under the reader, or wait for a grandchild that holds them.
	var ours, theirs [3]*os.File
	var err error
	for i := 0; i < len(ours) && err == nil; i++ {
		ours[i], theirs[i], err = os.Pipe()
	}
	ours[0], theirs[0] = theirs[0], ours[0] // a pipe is its reader and its writer
	s.process.Stdin, s.process.Stdout, s.process.Stderr = theirs[0], theirs[1], theirs[2]
	s.stdin, s.stdout, s.stderr = ours[0], &childPipe{ours[1], maxPipe}, &childPipe{ours[2], maxPipe}
	if err == nil {
		started := make(chan error)
		s.work.Go(func() { s.run(started) })
		err = <-started
	}
	closeAll(theirs[:])
	if err != nil {
		closeAll(ours[:])
		// What follows the first word of the command may hold secrets, and the outer errors repeat it.
		for inner := err; inner != nil; inner = errors.Unwrap(inner) {
			err = inner
		}
		name, _, _ := strings.Cut(c.Path, " ")
		return nil, fmt.Errorf("start server %s: %w", name, err)
	}
	s.Lines = NewLines(s.stdout, s.stdin)
	s.Lines.now = writeAtOnce(s.stdin)
	s.Lines.lost = func() { s.exitError("stdin") }
	s.Lines.MaxMessage = c.MaxMessage
	s.work.Go(s.readStderr)
	return s, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// Read returns the server's next message, and after the last one, when the server has ended, a *ServerExitError.
func (s *Stdio) Read() ([]byte, error) {
	message, err := s.Lines.Read()
	if errors.Is(err, io.EOF) {
		err = s.exitError("stdout")
	}
	return message, err
}

// Stderr returns an excerpt of what the server wrote there last, and the time of the last write.
func (s *Stdio) Stderr() (excerpt string, last time.Time) {
	s.tailMu.Lock()
	defer s.tailMu.Unlock()
	return s.command.Excerpt(string(s.tail)), s.heardAt
}

// Kill sends SIGKILL to the server and all of its group. It waits for nothing, and Close is still to be called.
func (s *Stdio) Kill() {
	select {
	case <-s.gone: // its number may belong to another group by now
	default:
		s.group.kill()
	}
}

// Close ends the server as the specification orders (MCP 2025-11-25, lifecycle, shutdown): it closes its stdin and
// waits; sends SIGTERM to its process group and waits; sends SIGKILL. It returns when all of the group has ended. Read
// should be called meanwhile: a server whose stdout is full does not end by itself.
func (s *Stdio) Close() error {
	_ = s.Lines.closeWriter() // a broken pipe is no news here
	if !within(s.command.Grace, s.exited) {
		s.group.terminate()
		if !within(s.command.Grace, s.gone) {
			s.Kill()
		}
	}
	<-s.gone
	s.stdout.Close()
	s.work.Wait()
	s.stderr.Close()
	s.group.close()
	return nil
}

// within reports whether the event came in time.
func within(d time.Duration, event <-chan struct{}) bool {
	select {
	case <-event:
		return true
	case <-time.After(d):
		return false
	}
}

// run starts the process and waits for its end, so that no zombie waits for Close. Then it ends the rest of the group:
// what the server started goes with it. It signals only a group that it has just seen alive, as another group may get
// the number later. It returns within Grace of the end of the process. Close waits for it.
func (s *Stdio) run(started chan<- error) {
	runtime.LockOSThread() // this thread must not end before the process: see processGroup.prepare
	defer runtime.UnlockOSThread()
	err := s.process.Start()
	if err == nil {
		s.group.add(s.process.Process)
	}
	if started <- err; err != nil {
		return
	}
	defer close(s.gone)
	_ = s.process.Wait() // its ProcessState says it all
	s.unread = leftUnread(s.stdin)
	close(s.exited)
	// A write that is stuck, because a grandchild holds the pipe and does not read, ends now.
	_ = s.stdin.Close()
	s.stdout.end()
	s.stderr.end()
	if !s.group.alive() {
		return
	}
	s.group.terminate()
	if !s.groupEnds(s.command.Grace) {
		s.group.kill()
		s.groupEnds(drain) // SIGKILL works fast, but not at once
	}
}

// leftUnread reports whether a pipe that nobody reads any more holds something. Only Linux lets us open its other end.
func leftUnread(stdin *os.File) bool {
	var other *os.File
	if raw, err := stdin.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { other, _ = os.Open(fmt.Sprintf("/proc/self/fd/%d", fd)) })
	}
	defer other.Close()
	if other.SetReadDeadline(time.Now().Add(time.Millisecond)) != nil {
		return false // also of nil
	}
	n, _ := other.Read(make([]byte, 1))
	return n > 0
}

// groupEnds reports whether the group ended in time. It polls: the end of a grandchild is not reported to us.
func (s *Stdio) groupEnds(d time.Duration) bool {
	for deadline := time.After(d); s.group.alive(); {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-deadline:
			return false
		}
	}
	return true
}

// childPipe is our end of the stdout or stderr of a process. After the end of the process the pipe may still hold
// what it wrote, but a grandchild can keep EOF from coming.
type childPipe struct {
	*os.File
	left int // bytes that may be read after the end; only Read uses it
}

// end makes Read return what is there, and then io.EOF. Pipes on Windows have no deadlines: they are closed soon.
func (c *childPipe) end() {
	if c.SetReadDeadline(time.Now().Add(drain)) != nil {
		time.AfterFunc(drain, func() { c.Close() })
	}
}

// Read reads on after the deadline of end, until the pipe is empty: however late the reader comes, nothing is lost.
func (c *childPipe) Read(p []byte) (int, error) {
	n, err := c.File.Read(p)
	if errors.Is(err, os.ErrDeadlineExceeded) && c.left > 0 {
		c.SetReadDeadline(time.Now().Add(drain))
		n, err = c.File.Read(p)
		if c.left -= n; n < len(p) {
			c.left = 0
		}
	}
	if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, os.ErrClosed) {
		err = io.EOF // Stdio.Read says how the process ended
	}
	return n, err
}

// readStderr reads stderr to its end: a server whose stderr is full stops. It ends with the process.
func (s *Stdio) readStderr() {
	defer close(s.heard)
	var line []byte
	chunk := make([]byte, 4<<10)
	for {
		n, err := s.stderr.Read(chunk)
		s.tailMu.Lock()
		s.tail = append(s.tail, chunk[:n]...)
		s.tail = s.tail[max(0, len(s.tail)-maxTail):]
		if n > 0 {
			s.heardAt = time.Now()
		}
		s.tailMu.Unlock()
		if s.command.Stderr != nil {
			line = append(line, chunk[:n]...)
			whole := bytes.LastIndexByte(line, '\n') + 1
			if whole == 0 && len(line) > maxTail || err != nil {
				whole = len(line)
			}
			if whole > 0 {
				_, _ = s.command.Stderr.Write(line[:whole])
				line = append(line[:0], line[whole:]...)
			}
		}
		if err != nil {
			return
		}
	}
}

// exitError returns the error of a server that has ended, or that has closed its stdin or stdout and is lost all the
// same: then it ends Read. It waits a moment for the end: the pipe is closed before the process ends.
func (s *Stdio) exitError(closed string) error {
	s.ending.Do(func() {
		e := &ServerExitError{Command: s.command.Path, Closed: closed}
		if within(4*drain, s.exited) {
			s.Lines.mu.Lock()
			e.State, e.unread = s.process.ProcessState, s.unread || !s.Lines.wrote
			s.Lines.mu.Unlock()
			within(4*drain, s.heard)
		} else {
			s.stdout.end()
		}
		s.tailMu.Lock()
		e.Stderr = string(s.tail)
		s.tailMu.Unlock()
		e.Excerpt = s.command.Excerpt(e.Stderr)
		s.exitErr = e
	})
	return s.exitErr
}

func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return strings.TrimSpace(text[strings.LastIndexByte(text, '\n')+1:])
}

// safeEnvironment picks the variables that a program needs to run at all, and that carry no secrets. A value that
// begins with () is a shell function, which a shell would run.
func safeEnvironment(environ []string) []string {
	return slices.DeleteFunc(environ, func(variable string) bool {
		name, value, _ := strings.Cut(variable, "=")
		return !isSafeVariable(name) || strings.HasPrefix(value, "()")
	})
}
