// transport_http_events.go - streams of server-sent events: how they are read, followed and resumed.
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
	"net/http"
	"strconv"
	"time"
)

const (
	retryTime   = time.Second  // before a stream is resumed, if the server does not say; doubled with each failure
	maxRetry    = time.Minute  // where the doubling ends
	steadyTime  = maxRetry / 2 // after which the end of a stream is not a failure
	maxFailures = 3            // in a row, of a stream that has the answer to a request
)

// follow reads the stream that has the answer to p, or where p is nil the GET stream until ctx ends. In the handshake
// era a stream that ends early is resumed, not before the time that the server asked for (MCP 2025-11-25, transports,
// resumability).
func (t *StreamableHTTP) follow(ctx context.Context, p *httpPost, s *httpSession, response *http.Response, err error,
) error {
	events := t.readers.Get().(*eventReader)
	*events = eventReader{limit: t.server.MaxMessage, buf: events.buf}
	defer t.readers.Put(events)
	for failures := 0; ; failures++ {
		if err == nil {
			lastID, opened := events.lastID, time.Now()
			var over bool
			if over, err = t.readStream(ctx, p, events, response); over {
				return err
			}
			if p == nil {
				t.setStream(s, false)
			}
			if events.lastID != lastID || time.Since(opened) > steadyTime {
				failures = 0
			}
		}
		resumable := p == nil || s != nil && events.lastID != "" && failures < maxFailures
		switch {
		case p != nil && refusesToResume(err):
			return t.server.connectionError(fmt.Errorf("the answer broke off, and the server does not resume it: %w",
				errors.Unwrap(err)))
		case refusesToResume(err) || !resumable || errors.As(err, new(*MessageTooLongError)):
			return t.server.connectionError(err)
		}
		pause := min(cmp.Or(events.retry, retryTime)<<min(failures, 10), maxRetry)
		select {
		case <-time.After(max(pause, events.retry)):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if response, err = t.server.openStream(ctx, s, events.lastID); p == nil {
			t.setStream(s, err == nil)
		}
	}
}

// refusesToResume reports whether the server will not send the rest of a stream. The status 409 means that it is too
// soon.
func refusesToResume(err error) bool {
	refusal := new(HTTPError)
	return errors.As(err, &refusal) && refusal.Status/100 == 4 && refusal.Status != http.StatusConflict
}

// readStream passes on the messages of one connection. It reports whether nothing more is awaited: the answer to p
// came, or was invalid, or nobody waits. Otherwise the error is why the connection had no answer.
func (t *StreamableHTTP) readStream(ctx context.Context, p *httpPost, events *eventReader, response *http.Response) (
	over bool, err error) {
	defer response.Body.Close()
	events.resume(response.Body)
	for {
		name, data, err := events.next()
		if err != nil {
			return false, err
		}
		if name != "" && name != "message" || len(data) == 0 { // of another protocol, or there for its id alone
			continue
		}
		if p == nil {
			err = t.give(ctx, data)
		} else if over, err = t.pass(ctx, p, response, data); over {
			readTail(response, p.cancel)
		}
		if over || err != nil {
			return true, err
		}
	}
}

// eventReader reads server-sent events (WHATWG HTML, 9.2.6) over the connections that a stream takes.
type eventReader struct {
	limit  int           // bytes of an event
	lastID string        // of the last event, or of the last before it that had one
	retry  time.Duration // that the server asked for; 0 if it did not

	connection io.Reader
	buf        []byte // read from the connection
	start      int    // of what line has not returned yet
	first      bool   // no line of this connection was read
	cr         bool   // the last line ended with CR: a LF that comes next belongs to it
}

// resume goes on with another connection.
func (e *eventReader) resume(r io.Reader) {
	e.connection, e.buf, e.start, e.first, e.cr = r, e.buf[:0], 0, true, false
}

// line returns the next line without its end, which is LF, CR or CRLF. It holds until the next call.
func (e *eventReader) line() ([]byte, error) {
	for searched := 0; ; { // bytes of unread that hold no end
		unread := e.buf[e.start:]
		if e.cr && len(unread) > 0 {
			if e.cr = false; unread[0] == '\n' {
				e.start++
				continue
			}
		}
		rest, _, ended := bytes.Cut(unread[searched:], []byte("\n"))
		if end := bytes.IndexByte(rest, '\r'); end >= 0 {
			rest, ended, e.cr = rest[:end], true, true
		}
		switch searched += len(rest); {
		case searched > e.limit+64: // with the name of a field
			return nil, &MessageTooLongError{e.limit}
		case ended:
			e.start += searched + 1
			return unread[:searched], nil
		}
		if err := e.fill(); err != nil {
			return nil, err
		}
	}
}

// fill reads once, behind what line has not returned.
func (e *eventReader) fill() error {
	e.buf, e.start = e.buf[:copy(e.buf, e.buf[e.start:])], 0
	if len(e.buf) == cap(e.buf) {
		e.buf = append(make([]byte, 0, max(2*cap(e.buf), 4<<10)), e.buf...)
	}
	n, err := e.connection.Read(e.buf[len(e.buf):cap(e.buf)])
	if e.buf = e.buf[:len(e.buf)+n]; n > 0 {
		return nil // an error comes again
	}
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// next returns the next event that has data, which is the caller's to keep. An event that breaks off is dropped.
func (e *eventReader) next() (name string, data []byte, err error) {
	id := e.lastID
	for {
		line, err := e.line()
		if err != nil {
			return "", nil, err
		}
		if e.first {
			line = bytes.TrimPrefix(line, []byte("\ufeff"))
			e.first = false
		}
		if len(line) == 0 { // the end of the event
			e.lastID = id
			if data != nil {
				return name, data, nil
			}
			name = ""
			continue
		}
		field, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(field) { // empty: a comment
		case "event":
			name = string(value)
		case "data":
			if data == nil {
				data = []byte{} // most events have one line: append makes room for exactly that
			} else {
				data = append(data, '\n')
			}
			if len(data)+len(value) > e.limit {
				return "", nil, &MessageTooLongError{e.limit}
			}
			data = append(data, value...)
		case "id":
			if bytes.IndexByte(value, 0) < 0 {
				id = string(value)
			}
		case "retry":
			if ms, err := strconv.ParseUint(string(value), 10, 31); err == nil {
				e.retry = time.Duration(ms) * time.Millisecond
			}
		}
	}
}
