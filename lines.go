// lines.go - messages as lines of text, over any reader and writer.
// Needs: Go 1.25, json, rpc.
// SPDX-License-Identifier: 0BSD

package main

import (
	"bytes"
	"cmp"
	"io"
	"sync"
	"sync/atomic"
)

const (
	// readSize is the size of a buffer that is read into: what a pipe holds on Linux.
	readSize = 64 << 10

	// maxFree is the number of buffers that are kept for the next long line. Messages of more than
	// 2 MiB are rare, so the buffers of one go back to the garbage collector.
	maxFree = 32

	// defaultMaxMessage is the limit for a line where MaxMessage is 0, in bytes.
	defaultMaxMessage = 64 << 20
)

// Lines is a Transport that sends each message as one line (MCP 2025-11-25, transports, stdio).
// Of what it reads, blank lines are skipped, CRLF ends a line as LF does, the last line may have no
// end, and a byte order mark at the beginning of a line is left out.
//
// Reading and writing share nothing but the struct. The fields of reading belong to the one
// goroutine that calls Read. Those of writing are guarded by mu, and any number of goroutines may
// call Write and WriteNow; see lines_write.go for who writes when.
type Lines struct {
	// MaxMessage bounds a line that is read, in bytes: 64 MiB if 0. A longer one ends the
	// connection, see MessageTooLongError. It is set before the first Read.
	MaxMessage int

	// WriteAtOnce writes as much of p as the writer takes without waiting for the peer, and
	// returns how much that was. It is never called concurrently. Where it is nil, all lines are
	// written in the background. It is set before the first Write.
	WriteAtOnce func(p []byte) (int, error)

	// OnWriteError is called once, on a goroutine of its own, when a write has failed. It must
	// make Read return an error, as nobody else is told that lines may be lost. NewLines sets it
	// to close the reader. Another one is set before the first Write.
	OnWriteError func()

	// These are for reading.
	reader   io.Reader
	buf      []byte   // read from reader
	start    int      // of what Read has not returned yet, in buf
	long     [][]byte // full buffers with the beginning of a line that goes on in buf
	longSize int      // bytes in long
	free     [][]byte // buffers that are not in use
	err      error    // of reader; it is returned when buf is used up

	// These are for writing.
	writer    io.Writer
	room      chan struct{}  // one slot: a Write that waits for room may try again
	idle      chan struct{}  // closed when, after CloseWriter, nothing is left to write
	work      sync.WaitGroup // writeInBackground and OnWriteError
	delivered atomic.Bool    // writer has taken something

	mu      sync.Mutex // guards the following; never held across a write
	state   writeState // who writes
	waiting []byte     // whole lines that are to be written
	spare   []byte     // an empty buffer, which becomes the next waiting
	failed  bool       // writer has failed
	closed  bool       // by CloseWriter
}

// NewLines returns a transport over a reader and a writer. Close closes both if they are
// io.Closers, and that must unblock them.
//
// Read returns the io.EOF of the reader as it is, which Conn takes for a peer that has closed its
// side alone and still reads, as in printf … | server. Over a socket it is mostly a caller that
// is gone: then Close the Conn when its Done is closed, as ExampleNewLines does.
func NewLines(r io.Reader, w io.Writer) *Lines {
	l := &Lines{
		reader: r,
		writer: w,
		room:   make(chan struct{}, 1),
		idle:   make(chan struct{}),
	}
	l.OnWriteError = l.closeReader
	return l
}

// Read returns the next line that is not blank, without its end. The error is a
// *MessageTooLongError, or that of the reader: io.EOF after the last line.
func (l *Lines) Read() ([]byte, error) {
	for {
		line, err := l.readLine()
		if err != nil {
			return nil, err
		}
		if len(line) > 0 {
			return line, nil
		}
	}
}

// Close closes the writer and the reader, and returns when nothing is written any more.
func (l *Lines) Close() error {
	err := l.CloseWriter()
	// A socket is both the reader and the writer, and CloseWriter has just closed it. To close it a
	// second time fails, and that error means nothing.
	l.closeReader()
	return err
}

func (l *Lines) closeReader() {
	if r, ok := l.reader.(io.Closer); ok {
		_ = r.Close()
	}
}

// readLine returns a copy of the next line, without the white space around it and without a byte
// order mark: some servers on Windows print one before their first message. A line that is longer
// than the limit ends the connection, see MessageTooLongError: every call gets ErrClosed with it.
func (l *Lines) readLine() ([]byte, error) {
	limit := cmp.Or(l.MaxMessage, defaultMaxMessage)
	for {
		part, _, ended := bytes.Cut(l.buf[l.start:], []byte("\n"))
		size := l.longSize + len(part)
		switch {
		case size > limit:
			return nil, &MessageTooLongError{limit}
		case ended:
			l.start += len(part) + 1
			return l.endLine(part), nil
		case l.err == nil:
			l.fill()
		case size > 0:
			// The last line has no newline.
			l.start = len(l.buf)
			return l.endLine(part), nil
		default:
			return nil, l.err
		}
	}
}

// endLine returns the line whose last part is in buf, and whose beginning, if it is a long one, is
// in the buffers of long.
func (l *Lines) endLine(part []byte) []byte {
	if len(l.long) == 0 {
		return bytes.Clone(withoutBOM(bytes.TrimSpace(part)))
	}
	line := bytes.Join(append(l.long, part), nil)
	for _, buffer := range l.long {
		if len(l.free) < maxFree {
			l.free = append(l.free, buffer)
		}
	}
	l.long = nil
	l.longSize = 0
	return withoutBOM(bytes.TrimSpace(line))
}

// fill reads once from the reader, to the end of buf. It first drops from buf what Read has
// returned. If buf is full all the same, a long line fills it: then buf goes to long, and another
// buffer takes its place.
//
// Why not one buffer that grows? For a line of 10 MiB, the growing would clear and copy more bytes
// than are read.
func (l *Lines) fill() {
	kept := copy(l.buf, l.buf[l.start:])
	l.buf = l.buf[:kept]
	l.start = 0
	if cap(l.buf)-len(l.buf) < readSize/4 {
		if len(l.buf) > 0 {
			l.long = append(l.long, l.buf)
			l.longSize += len(l.buf)
		}
		l.buf = l.emptyBuffer()
	}
	n, err := l.reader.Read(l.buf[len(l.buf):cap(l.buf)])
	l.buf = l.buf[:len(l.buf)+n]
	l.err = err
}

// emptyBuffer returns a buffer that is in use nowhere.
func (l *Lines) emptyBuffer() []byte {
	last := len(l.free) - 1
	if last < 0 {
		return make([]byte, 0, readSize)
	}
	buffer := l.free[last]
	l.free = l.free[:last]
	return buffer[:0]
}
