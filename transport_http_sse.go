// transport_http_sse.go - server-sent events, read from a response.
// Needs: Go 1.25, json, rpc.
// SPDX-License-Identifier: 0BSD

package main

import (
	"bytes"
	"io"
	"strconv"
	"time"
)

// eventReader reads server-sent events (WHATWG HTML, 9.2.6), over all connections that a stream
// takes. An event is a few lines and a blank line:
//
//	id: 7
//	data: {"jsonrpc":"2.0","method":"notifications/progress", ...}
//
// The id and the time to wait stay from one connection to the next, and are what the next one asks
// for. Only the goroutine that reads the stream uses it.
type eventReader struct {
	limit  int           // bytes of an event
	lastID string        // of the last event, or of the last before it that had one
	retry  time.Duration // the pause that the server asked for; 0 if it did not

	connection  io.Reader
	buf         []byte // read from the connection
	start       int    // of what nextLine has not returned yet
	isFirstLine bool   // no line of this connection was read
	endedWithCR bool   // the last line did: an LF that comes next belongs to its end
}

// maxField is the room for the name of a field, beside the bytes of an event.
const maxField = 64

// resume goes on with another connection.
func (e *eventReader) resume(connection io.Reader) {
	e.connection = connection
	e.buf, e.start = e.buf[:0], 0
	e.isFirstLine, e.endedWithCR = true, false
}

// next returns the next event that has data, which is the caller's to keep. An event that breaks
// off is dropped, and so is its id: the server will send it again. A stream may begin with a byte
// order mark. Data may not, but some servers make each message with a writer that prints one.
func (e *eventReader) next() (name string, data []byte, err error) {
	id := e.lastID
	for {
		line, err := e.nextLine()
		if err != nil {
			return "", nil, err
		}
		if len(line) == 0 {
			// A blank line ends the event.
			e.lastID = id
			if data != nil {
				return name, withoutBOM(data), nil
			}
			name = ""
			continue
		}
		// A line that begins with a colon is a comment, with a field that has no name.
		field, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(field) {
		case "event":
			name = string(value)
		case "data":
			data = appendDataLine(data, value)
			if len(data) > e.limit {
				return "", nil, &MessageTooLongError{e.limit}
			}
		case "id":
			hasNUL := bytes.IndexByte(value, 0) >= 0
			if !hasNUL {
				id = string(value)
			}
		case "retry":
			milliseconds, err := strconv.ParseUint(string(value), 10, 31)
			if err == nil {
				e.retry = time.Duration(milliseconds) * time.Millisecond
			}
		}
	}
}

// appendDataLine adds a line to the data of an event, which is nil before the first one and never
// nil after it. Most events have one line, for which append makes room exactly.
func appendDataLine(data, line []byte) []byte {
	if data == nil {
		return append([]byte{}, line...)
	}
	data = append(data, '\n')
	return append(data, line...)
}

// nextLine returns the next line without its end, which is LF, CR or CRLF. It holds until the next
// call. A CR ends the line at once: the LF that may belong to it may come only with the next event.
//
// What is in buf may be a part of the line. The bytes that were searched for its end are not
// searched again when more has come, so that a line of megabytes takes time in proportion to its
// length.
func (e *eventReader) nextLine() ([]byte, error) {
	searched := 0
	for {
		if e.endedWithCR && e.start < len(e.buf) {
			e.endedWithCR = false
			if e.buf[e.start] == '\n' {
				e.start++
			}
		}
		unread := e.buf[e.start:]
		length := searched + lineLength(unread[searched:])
		if length > e.limit+maxField {
			return nil, &MessageTooLongError{e.limit}
		}
		if length < len(unread) {
			e.start += length + 1
			e.endedWithCR = unread[length] == '\r'
			line := unread[:length]
			if e.isFirstLine {
				e.isFirstLine = false
				line = withoutBOM(line)
			}
			return line, nil
		}
		searched = length
		err := e.fill()
		if err != nil {
			return nil, err
		}
	}
}

// lineLength returns how many bytes stand before the first end of a line, all if there is none. Two
// searches for one byte each are faster than one for both.
func lineLength(text []byte) int {
	if end := bytes.IndexByte(text, '\n'); end >= 0 {
		text = text[:end]
	}
	if end := bytes.IndexByte(text, '\r'); end >= 0 {
		text = text[:end]
	}
	return len(text)
}

// fill reads once from the connection. What nextLine has not returned moves to the front of buf.
func (e *eventReader) fill() error {
	rest := copy(e.buf, e.buf[e.start:])
	e.buf, e.start = e.buf[:rest], 0
	if len(e.buf) == cap(e.buf) {
		larger := make([]byte, 0, max(2*cap(e.buf), 4<<10))
		e.buf = append(larger, e.buf...)
	}
	n, err := e.connection.Read(e.buf[len(e.buf):cap(e.buf)])
	e.buf = e.buf[:len(e.buf)+n]
	if n > 0 {
		// An error beside what was read is returned again by the next Read.
		return nil
	}
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
