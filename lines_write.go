// lines_write.go - writing lines without waiting for the peer.
// Needs: Go 1.25, json, rpc.
// SPDX-License-Identifier: 0BSD

package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"runtime"
	"time"
)

// A call must end when its ctx ends, also while the pipe to the peer is full. But half a line must
// not stay behind in the pipe: whatever is written next would be read as its rest. So a call only
// adds its line to those that wait, and one writer at a time writes all that waits, in order. The
// writer is one of two:
//
//   - The caller that found nobody writing writes its line itself, as long as that needs no waiting
//     for the peer. Why not a goroutine that writes all lines? It would be woken for each line
//     while the caller falls asleep: that takes as long as the rest of a call.
//   - A goroutine in the background takes over when the pipe is full, and for writers that cannot
//     write without waiting.
//
// Lines that are added while somebody writes are left to that one.

// writeState says who writes the lines that wait.
type writeState int

const (
	nobodyWrites     writeState = iota // and nothing waits; the next caller of WriteNow writes
	callerWrites                       // a caller of WriteNow is in writeAtOnce
	backgroundWrites                   // a goroutine is in writeInBackground
)

const (
	// maxUnwritten is the number of bytes that may wait to be written. A Write that finds more
	// waits. A buffer that has grown larger is not used again: it was for one message only.
	maxUnwritten = 2 << 20

	// maxWrites is how often a caller writes before it leaves the lines that others add to the
	// background: it must get back to its own call.
	maxWrites = 8

	// lastTime is what CloseWriter gives to the lines that wait.
	lastTime = 500 * time.Millisecond
)

// errNoRoom reports that too much waits to be written.
var errNoRoom = errors.New("too much waits to be written")

// Write adds a line to those that wait, as WriteNow does. While too much waits already, it waits
// for room. If ctx ends before there is room, Write returns the cause, and nothing of the line is
// ever sent. A line that was added is written, even if ctx ends later.
func (l *Lines) Write(ctx context.Context, m Outgoing) error {
	for {
		sent, err := l.WriteNow(m)
		if sent || err != nil {
			// There may be room for the next Write that waits, too.
			l.signalRoom()
			return err
		}
		select {
		case <-l.room:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// WriteNow sends one line, or reports false where too much waits to be written. It does not wait
// for the peer: what the pipe does not take at once is written in the background. No failure of a
// write is returned here, as lines of other callers may be lost with this one: it makes Read fail,
// which all callers notice.
func (l *Lines) WriteNow(m Outgoing) (sent bool, err error) {
	becameWriter, err := l.addLine(m)
	if err == errNoRoom {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if becameWriter {
		if m.MoreMayFollow {
			// Callers that are about to send run first and add their lines. So 64 calls in flight
			// make few writes, of dozens of lines each.
			runtime.Gosched()
		}
		l.writeAtOnce()
	}
	return true, nil
}

// addLine adds a message to what waits. It reports whether nobody writes, so that its caller must.
func (l *Lines) addLine(m Outgoing) (becameWriter bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return false, os.ErrClosed
	case l.failed:
		// The line is lost as those before it were. Its sender learns it as theirs do, from Read.
		return false, nil
	case len(l.waiting) >= maxUnwritten:
		return false, errNoRoom
	}
	text, err := appendLine(l.waiting, m)
	if err != nil {
		return false, err
	}
	l.waiting = text
	becameWriter = l.state == nobodyWrites
	if becameWriter {
		l.state = callerWrites
	}
	return becameWriter, nil
}

// appendLine appends the text of a message and a newline.
func appendLine(lines []byte, m Outgoing) ([]byte, error) {
	before := len(lines)
	if m.Text != nil {
		lines = append(lines, m.Text...)
	} else {
		var err error
		lines, err = m.Source.AppendText(lines)
		if err != nil {
			return nil, err
		}
	}
	if bytes.IndexByte(lines[before:], '\n') >= 0 {
		return nil, errors.New("a message with a newline cannot be framed")
	}
	return append(lines, '\n'), nil
}

// writeAtOnce writes what waits, on the goroutine of a call. It returns when nothing is left, or
// hands the rest to the background.
func (l *Lines) writeAtOnce() {
	if l.WriteAtOnce == nil {
		l.goToBackground(nil)
		return
	}
	for range maxWrites {
		text := l.takeWaiting()
		if text == nil {
			return
		}
		n, err := l.WriteAtOnce(text)
		if err == nil && n < len(text) {
			// The pipe is full.
			l.noteDelivery(n)
			l.goToBackground(text[n:])
			return
		}
		l.finishWrite(text, n, err)
	}
	l.goToBackground(nil)
}

// goToBackground starts the goroutine that writes the rest of a text, and then what waits.
func (l *Lines) goToBackground(rest []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state = backgroundWrites
	l.work.Go(func() { l.writeInBackground(rest) })
}

// writeInBackground writes a text and then all that waits, and waits for the peer meanwhile. It
// ends when nothing is left to write, or with the writer. CloseWriter waits for it.
func (l *Lines) writeInBackground(text []byte) {
	if l.WriteAtOnce == nil {
		// Callers that are about to send add their lines, as in WriteNow.
		runtime.Gosched()
	}
	if len(text) == 0 {
		text = l.takeWaiting()
	}
	for text != nil {
		n, err := l.writer.Write(text)
		if err == nil && n < len(text) {
			err = io.ErrShortWrite
		}
		l.finishWrite(text, n, err)
		text = l.takeWaiting()
	}
}

// takeWaiting returns the lines that wait, for the writer to write. If there are none, or the
// writer has failed, it returns nil, and its caller must not write any more.
func (l *Lines) takeWaiting() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) == 0 || l.failed {
		l.state = nobodyWrites
		if l.closed {
			close(l.idle)
		}
		return nil
	}
	text := l.waiting
	l.waiting = l.spare
	l.spare = nil
	return text
}

// finishWrite takes the outcome of writing a whole text.
func (l *Lines) finishWrite(text []byte, n int, err error) {
	l.noteDelivery(n)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.failed = true
		// After CloseWriter a failure is nothing to tell: it has closed the writer itself.
		if !l.closed {
			l.work.Go(l.OnWriteError)
		}
	} else if cap(text) <= maxUnwritten {
		l.spare = text[:0]
	}
	l.signalRoom()
}

func (l *Lines) noteDelivery(n int) {
	if n > 0 {
		l.delivered.Store(true)
	}
}

// Delivered reports whether the writer has taken anything. What the peer did with it is not known.
func (l *Lines) Delivered() bool { return l.delivered.Load() }

// signalRoom lets one Write that waits try again. When it has sent its line, it signals to the
// next.
func (l *Lines) signalRoom() {
	select {
	case l.room <- struct{}{}:
	default:
	}
}

// CloseWriter takes no more lines, gives those that wait a moment to be written, and closes the
// writer. It returns when nothing is written any more. Close calls it. A transport that must go on
// reading meanwhile calls it first.
func (l *Lines) CloseWriter() error {
	l.refuseLines()
	// Every Write that waits for room returns: the first is woken here, and wakes the next.
	l.signalRoom()
	select {
	case <-l.idle:
	case <-time.After(lastTime):
	}
	var err error
	if w, ok := l.writer.(io.Closer); ok {
		err = w.Close()
	}
	<-l.idle
	l.work.Wait()
	return err
}

// refuseLines makes WriteNow refuse each line from now on.
func (l *Lines) refuseLines() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	l.closed = true
	if l.state == nobodyWrites {
		close(l.idle)
	}
}
