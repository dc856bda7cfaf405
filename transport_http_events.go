// transport_http_events.go - what an answer over HTTP is made of: server-sent events, and messages.
// Needs: Go 1.25.
// SPDX-License-Identifier: 0BSD

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// BodyTooLongError says that a server sent more than the limit for one message.
type BodyTooLongError struct{ Limit int } // bytes

func (e *BodyTooLongError) Error() string {
	return fmt.Sprintf("a message is longer than the limit of %d bytes", e.Limit)
}

// eventReader reads server-sent events (WHATWG HTML, 9.2.6) over the connections that a stream takes.
type eventReader struct {
	limit  int           // bytes of an event
	lastID string        // of the last event, or of the last before it that had one
	retry  time.Duration // that the server asked for; 0 if it did not

	connection io.Reader
	buf        []byte // read from the connection
	start      int    // of what line has not returned yet
	first      bool   // no line was read of this connection
	cr         bool   // the last line ended with CR: a LF that comes next belongs to it
}

// begin goes on with another connection.
func (e *eventReader) begin(r io.Reader) {
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
			return nil, &BodyTooLongError{e.limit}
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

// next returns the next event that has data, which is the caller's to keep. An event that breaks off is none.
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
		if len(line) == 0 {
			e.lastID = id
			if data != nil {
				return name, data[1:], nil
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
			if len(data)+len(value) > e.limit {
				return "", nil, &BodyTooLongError{e.limit}
			}
			data = append(append(slices.Grow(data, 1+len(value)), '\n'), value...)
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

// member is one of a JSON object, as it stands in the text.
type member struct{ key, value []byte }

// outlined are the members of an object.
type outlined []member

// get returns a member's value, nil if there is none.
func (m outlined) get(key string) []byte {
	for i := range m {
		if string(m[i].key) == key {
			return m[i].value
		}
	}
	return nil
}

// maxMembers are more than any message has.
const maxMembers = 1000

// outline returns the members of a JSON object, and passes over what is in them, as a message may be of megabytes. It is nil for a
// text that breaks off or goes on, and empty for an array. The values are parts of text, and not clipped.
func outline(text []byte) outlined {
	var room [8]member // on the stack of the caller: this function is inlined
	return appendMembers(room[:0], text)
}

func appendMembers(members outlined, text []byte) outlined {
	var key []byte
	depth, start := 0, 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			for slashes := 1; slashes%2 == 1; { // else the quote is not escaped
				n := bytes.IndexByte(text[i+1:], '"')
				if n < 0 {
					return nil
				}
				i += n + 1
				slashes = i - len(bytes.TrimRight(text[:i], `\`))
			}
		case '{', '[':
			if depth++; depth == 1 {
				start = i + 1
			}
		case ':':
			if depth == 1 {
				key, start = bytes.Trim(text[start:i], "\" \t\r\n"), i+1
			}
		case ',', '}', ']':
			if depth == 1 && len(key) > 0 {
				members = append(members, member{key, bytes.TrimSpace(text[start:i])})
				key, start = nil, i+1
			}
			if text[i] != ',' {
				depth--
			}
			switch {
			case depth == 0 && len(bytes.TrimSpace(text[i+1:])) > 0, len(members) > maxMembers:
				return nil
			case depth == 0:
				return members
			}
		}
	}
	return nil
}

// jsonText decodes a JSON string. It is empty for anything else.
func jsonText(raw []byte) (s string) {
	if len(raw) > 1 && raw[0] == '"' && bytes.IndexByte(raw, '\\') < 0 {
		return string(raw[1 : len(raw)-1])
	}
	_ = json.Unmarshal(raw, &s)
	return s
}

// plainID makes ids equal that are meant to be: some servers send 1 back as "1", or as 1.0.
func plainID(id []byte) string { return strings.TrimSuffix(strings.Trim(string(id), `"`), ".0") }

func contentType(response *http.Response) string {
	kind, _, _ := strings.Cut(response.Header.Get("Content-Type"), ";")
	return strings.ToLower(strings.TrimSpace(kind))
}

// readBody reads an answer that is no stream.
func readBody(response *http.Response, limit int) ([]byte, error) {
	var body bytes.Buffer
	body.Grow(bytes.MinRead + int(max(0, min(response.ContentLength, 1<<20))))
	if _, err := body.ReadFrom(io.LimitReader(response.Body, int64(limit)+1)); err != nil {
		return nil, err
	}
	if body.Len() > limit {
		return nil, &BodyTooLongError{limit}
	}
	return body.Bytes(), nil
}

// oneLine is the beginning of a text that a server sent, for an error: whole words, as whoever takes a secret out of a text does
// not find the half of it.
func oneLine(text []byte) string {
	line := ""
	for word := range bytes.FieldsSeq(text) {
		if len(line)+len(word) > 300 {
			return line + "…"
		}
		line += strings.ToValidUTF8(string(word), "") + " "
	}
	return strings.TrimSuffix(line, " ")
}

// cancelBody is the body of an answer whose Close ends the request first.
type cancelBody struct {
	io.ReadCloser
	cancel context.CancelFunc
}

func (b cancelBody) Close() error {
	b.cancel()
	return b.ReadCloser.Close()
}

// tailTime is for the end of a stream behind the answer, after which its connection is used again.
const tailTime = 50 * time.Millisecond

// readTail reads an answer to its end if that is near, so that its connection can be used again.
func readTail(response *http.Response) {
	late := time.AfterFunc(tailTime, func() { response.Body.Close() })
	defer late.Stop()
	_, _ = io.Copy(io.Discard, response.Body)
}
