// transport_http_post.go - one message as a POST, and its answer in the response.
// Needs: Go 1.25, json, rpc.
// SPDX-License-Identifier: 0BSD

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"sync/atomic"
)

// httpPost is a message on its way. Only the goroutine that sends it uses the fields, but for
// cancel and answered.
type httpPost struct {
	Outgoing
	session  *httpSession       // nil in the stateless era, and before the first handshake
	header   http.Header        // of the HTTP request, which may change it
	values   [3]string          // the values of three headers, for which no slices need be made
	cancel   context.CancelFunc // ends the HTTP request
	answered atomic.Bool        // the answer has come with the response to this message
	hasTail  bool               // leaveTail reads the rest of the response, and then calls cancel
}

// prepare chooses the headers of a message, and the session that it belongs to.
func (t *StreamableHTTP) prepare(m Outgoing) *httpPost {
	p := &httpPost{Outgoing: m, header: maps.Clone(t.header)}
	if m.Revision != "" {
		p.setMetadata()
		return p
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch m.Method {
	case "initialize":
		// It begins a session, and belongs to none.
	case "notifications/initialized", "":
		// A response (which has no method) may be to a request on the new GET stream, which is open
		// before the handshake ends.
		p.session = t.next
	default:
		p.session = t.session
	}
	return p
}

// setMetadata repeats what the message says in headers, for those between here and the server,
// which do not read messages (MCP 2026-07-28, transports, streamable HTTP, request metadata).
func (p *httpPost) setMetadata() {
	p.values = [...]string{p.Revision, p.Method, headerValue(p.Name)}
	p.header["Mcp-Protocol-Version"] = p.values[:1:1]
	p.header["Mcp-Method"] = p.values[1:2:2]
	if p.Name != "" {
		p.header["Mcp-Name"] = p.values[2:]
	}
	for name, value := range p.Headers {
		p.header.Set(name, value)
	}
}

// post sends a message and passes on what comes in the response.
func (t *StreamableHTTP) post(ctx context.Context, p *httpPost) error {
	if p.ID == 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, acceptTime)
		defer cancel()
	}
	response, err := t.server.do(ctx, http.MethodPost, p.session, p.header, p.Text)
	if err != nil {
		return err
	}
	isAccepted := response.StatusCode/100 == 2
	kind := contentType(response)
	if isAccepted && p.ID != 0 && kind == "text/event-stream" {
		return t.follow(ctx, p, p.session, response, nil)
	}
	defer response.Body.Close()
	if isAccepted && p.ID == 0 {
		// Nothing answers a notification or a response, so whatever the body says is left out.
		readTail(response, p.cancel)
		return nil
	}
	body, err := readBody(response, t.server.MaxMessage)
	if err != nil {
		return t.server.connectionError(err)
	}
	if !isAccepted {
		return t.passRefusal(ctx, p, response, body)
	}
	if kind == "application/json" {
		answered, err := t.pass(ctx, p, response, body)
		if answered || err != nil {
			return err
		}
	}
	return t.server.statusError(response, body)
}

// passRefusal passes on the JSON-RPC response in an HTTP response with a status other than 2xx. The
// error says that there is none, or that the refusal is about more than this one request.
func (t *StreamableHTTP) passRefusal(
	ctx context.Context, p *httpPost, response *http.Response, body []byte,
) error {
	refusal, m := t.server.refusal(p.session, response, body)
	status := response.StatusCode

	// These are about the client: it must log in, may not be here, or must begin another session.
	// The caller sees that from the status, and the JSON-RPC error from what the refusal wraps.
	isAboutClient := status == http.StatusUnauthorized || status == http.StatusForbidden ||
		refusal.expired
	if isAboutClient || p.ID == 0 || !m.IsResponse() {
		return refusal
	}
	if p.Method == "initialize" && m.Error != nil && status/100 == 4 {
		// A server of HTTP+SSE is recognised by this status (MCP 2025-11-25, transports, backwards
		// compatibility).
		return refusal
	}
	if !isResponseTo(&m, p.ID) {
		if m.Error == nil {
			return refusal
		}
		// An error answers the request that it came with, whatever its id is.
		body = answerWithID(p.ID, m.Error)
	}
	return t.giveAnswer(ctx, p, body)
}

// pass gives a text that came with status 2xx to Read. It reports whether that was the answer to p.
// The error says that the text should have been the answer, and is not valid. Any other text that
// is not a message goes to Read as it is, which reports it; the answer may follow in the stream.
func (t *StreamableHTTP) pass(
	ctx context.Context, p *httpPost, response *http.Response, text []byte,
) (answered bool, err error) {
	if p.Method != "initialize" && beginsAnswer(text, p.ID) {
		return true, t.giveAnswer(ctx, p, text)
	}
	var m Incoming
	invalid := m.Parse(text)
	switch {
	case invalid != nil && batchAnswers(text, p.ID):
		// Parse takes no batch, which the revision 2025-03-26 allows.
		return true, t.giveAnswer(ctx, p, text)
	case invalid != nil && (contentType(response) == "application/json" || isResponseTo(&m, p.ID)):
		// No other message will be the answer.
		err = fmt.Errorf("the answer is cut off or invalid: %w: %q", invalid, oneLine(text))
		return false, t.server.connectionError(err)
	case invalid != nil:
		// It may be a line of a log. Conn reports it, and the answer may follow.
		return false, t.give(ctx, text)
	case isErrorWithoutID(&m):
		text = answerWithID(p.ID, m.Error)
	case !isResponseTo(&m, p.ID):
		// A notification, a request, or the answer to another request.
		return false, t.give(ctx, text)
	}
	if p.Method == "initialize" && m.Result != nil && m.Error == nil {
		t.beginHandshake(response.Header.Get("Mcp-Session-Id"), m.Result)
	}
	return true, t.giveAnswer(ctx, p, text)
}

// giveAnswer gives the answer to p to Read. With that the call ends, and so does its sender's ctx:
// answered is set before, so that the end of that ctx leaves the rest of the response alone.
func (t *StreamableHTTP) giveAnswer(ctx context.Context, p *httpPost, answer []byte) error {
	p.answered.Store(true)
	return t.give(ctx, answer)
}

// beginsAnswer reports whether a text begins as most responses to the request with that id do, and
// ends as an object. It is then the answer, and need not be read here: Conn will read it, and end
// the call with an error if its megabytes are not valid JSON (servers in Python write NaN).
func beginsAnswer(text []byte, id int64) bool {
	// A failed scanner reads no more.
	s := scanner{text: text}
	hasID, begins := false, false
	s.object(func(key []byte) {
		switch string(key) {
		case "jsonrpc":
			s.value()
		case "id":
			n, ok := IDNumber(s.value())
			hasID = ok && n == id
		case "result", "error":
			begins = hasID
			s.fail()
		default:
			s.fail()
		}
	})
	isWhole := bytes.HasSuffix(bytes.TrimSpace(text), []byte("}"))
	return begins && isWhole
}

// isResponseTo reports whether a message is the response to the request with that id. It may be an
// invalid response, of which m is what could be read.
func isResponseTo(m *Incoming, id int64) bool {
	n, ok := IDNumber(m.ID)
	return ok && n == id && m.IsResponse()
}

// isErrorWithoutID reports whether a message is an error without an id. What was wrong may have
// kept the server from reading the id (JSON-RPC 2.0, 5), but the error answers the request that it
// comes with.
func isErrorWithoutID(m *Incoming) bool {
	return m.Method == "" && m.Error != nil && (m.ID == nil || string(m.ID) == "null")
}

// answerWithID makes the answer to a request of an error that came without the id of the request.
func answerWithID(id int64, failure json.RawMessage) []byte {
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"error":%s}`, id, failure)
}

// batchAnswers reports whether a text is a batch (MCP 2025-03-26, JSON-RPC 2.0, 6) with the answer
// to a request in it.
func batchAnswers(text []byte, id int64) bool {
	var batch []json.RawMessage
	_ = json.Unmarshal(text, &batch)
	for _, message := range batch {
		var m Incoming
		invalid := m.Parse(message)
		if invalid == nil && isResponseTo(&m, id) {
			return true
		}
	}
	return false
}
