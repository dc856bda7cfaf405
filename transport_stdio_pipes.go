// transport_stdio_pipes.go - the pipes to a child process.
// Needs: Go 1.25, json, rpc, lines.
// SPDX-License-Identifier: 0BSD

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// maxPipe is the most that a pipe can hold on Linux, if the server makes it larger.
const maxPipe = 1 << 20

// childPipes are the pipes to the stdin, stdout and stderr of a process, in this order. Why not
// those of os/exec? Its Wait would close them while they are read, or wait for a grandchild that
// holds them.
type childPipes struct {
	ours, theirs [3]*os.File
}

func openPipes() (*childPipes, error) {
	p := new(childPipes)
	for i := range p.ours {
		reader, writer, err := os.Pipe()
		if err != nil {
			closeAll(p.ours[:])
			closeAll(p.theirs[:])
			return nil, err
		}
		p.ours[i] = reader
		p.theirs[i] = writer
	}
	// The process reads its stdin, and we write to it.
	p.ours[0], p.theirs[0] = p.theirs[0], p.ours[0]
	return p, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// childPipe is our end of the stdout or stderr of a process. EOF alone does not tell its end:
// the process may have started another one that holds the pipe open and lives on. So Stdio.run
// calls end when the process has ended. From then on Read returns what the pipe still holds, and
// then io.EOF.
type childPipe struct {
	*os.File
	mayRead int // bytes that may still be read after the end; only Read uses it

	// The following is for Windows, whose pipes have no deadlines.
	mu        sync.Mutex // guards the following; never held across I/O
	lateAfter time.Time  // when nothing more is waited for; zero before the end
	isWaiting bool       // a Read that began before the end has not returned
}

func newChildPipe(f *os.File) *childPipe { return &childPipe{File: f, mayRead: maxPipe} }

// end makes Read return io.EOF when the pipe is empty. A Read that waits gets a moment for what
// comes late.
func (c *childPipe) end() {
	err := c.SetReadDeadline(time.Now().Add(drain))
	if err != nil {
		c.endWithoutDeadline()
	}
}

// endWithoutDeadline is end on Windows. A Read that begins from now on does not wait in the system;
// see readHeld. One that began before, and still waits when the moment is over, has found the pipe
// empty: only closing the pipe ends it. A pipe that nobody reads just then is not closed: a reader
// that is held up would lose the end of what the process wrote (TestLateReaderWithoutDeadline).
func (c *childPipe) endWithoutDeadline() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lateAfter = time.Now().Add(drain)
	time.AfterFunc(drain, func() {
		c.mu.Lock()
		isWaiting := c.isWaiting
		c.mu.Unlock()
		if isWaiting {
			c.Close()
		}
	})
}

// Read reads on after the deadline that end has set, until the pipe is empty: however late the
// reader comes, nothing is lost. But a grandchild may write for ever, so no more is read than the
// pipe can have held at the end.
func (c *childPipe) Read(p []byte) (int, error) {
	c.mu.Lock()
	lateAfter := c.lateAfter
	c.isWaiting = lateAfter.IsZero()
	c.mu.Unlock()
	if !lateAfter.IsZero() {
		return c.readHeld(p, lateAfter)
	}
	n, err := c.File.Read(p)
	if errors.Is(err, os.ErrDeadlineExceeded) && c.mayRead > 0 {
		n, err = c.readAfterEnd(p)
	}
	c.mu.Lock()
	c.isWaiting = false
	c.mu.Unlock()
	return n, pipeError(err)
}

// pipeError returns io.EOF for the end of a pipe: Stdio.Read says how the process ended.
func pipeError(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, os.ErrClosed) {
		return io.EOF
	}
	return err
}

// readHeld is Read on Windows after the end. It asks how much the pipe holds, so that its read does
// not wait. As the system does not tell when something comes, it polls until lateAfter.
func (c *childPipe) readHeld(p []byte, lateAfter time.Time) (int, error) {
	for c.mayRead > 0 {
		isLate := time.Now().After(lateAfter)
		held, err := bytesHeld(c.File)
		if held > 0 || err != nil {
			// If the other end is closed, the read returns the error for it.
			n, err := c.File.Read(p)
			c.mayRead -= n
			if isLate && n >= held {
				// The pipe is empty now.
				c.mayRead = 0
			}
			return n, pipeError(err)
		}
		if isLate {
			break
		}
		<-time.After(10 * time.Millisecond)
	}
	return 0, io.EOF
}

// readAfterEnd reads what the pipe still holds, with another deadline: the last one has passed.
func (c *childPipe) readAfterEnd(p []byte) (int, error) {
	_ = c.SetReadDeadline(time.Now().Add(drain))
	n, err := c.File.Read(p)
	c.mayRead -= n
	if n < len(p) {
		// The pipe is empty now.
		c.mayRead = 0
	}
	return n, err
}

// holdsBytes reports whether a pipe that nobody reads any more holds something. For that its other
// end must be opened, which only Linux allows, under the name that /proc has for it.
func holdsBytes(stdin *os.File) bool {
	raw, err := stdin.SyscallConn()
	if err != nil {
		return false
	}
	var otherEnd *os.File
	openOtherEnd := func(fd uintptr) {
		otherEnd, err = os.Open(fmt.Sprintf("/proc/self/fd/%d", fd))
	}
	if raw.Control(openOtherEnd) != nil || err != nil {
		return false
	}
	defer otherEnd.Close()
	if otherEnd.SetReadDeadline(time.Now().Add(time.Millisecond)) != nil {
		return false
	}
	n, _ := otherEnd.Read(make([]byte, 1))
	return n > 0
}
