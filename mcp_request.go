// mcp_request.go - how a request is sent, sent again with more input, and repaired when it fails.
// Needs: Go 1.25, json, rpc.
// SPDX-License-Identifier: 0BSD

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"
)

// maxRounds bounds how often a request is sent again with the input that the server asked for.
// ClientOptions.MaxQuestions bounds the questions of all these rounds together.
const maxRounds = 10

// request is one request of the client, however often it is sent.
type request struct {
	method  string
	subject string // the name of a tool, prompt or argument, or the URI of a resource; may be empty
	params  []byte // the members of params, without _meta; empty if there are none

	arguments json.RawMessage // of a tool call, as they also stand in params; else nil
	report    func(Progress)  // of a tool call; may be nil
	listener  *listener       // of a subscriptions/listen, which never expires; else nil

	asTask    bool                    // of a tool call of 2025-11-25: it asks for a task
	isTask    bool                    // of a tool call: its result is a task
	isUntimed bool                    // of a tasks/result: it is a part of the wait for the task
	expire    context.CancelCauseFunc // ends the wait for a task in time; else nil

	result ResultReader // reads the result, or the last of them if there are several; may be nil

	mayAsk    bool   // the server may ask for input before it answers
	questions int    // the number of the server's questions, in all rounds
	input     []byte // more members of params: the answers to the questions of the last round

	// The following belong to one attempt. A request is sent again only when the attempt before has
	// ended: with an error that could be repaired, or with a result that asks for input.
	id       int64
	session  int64     // sessions.current
	meta     []byte    // Client.meta in the stateless era, else nil
	deadline time.Time // later with each progress; inFlight.mu guards it
	limit    time.Time // no progress helps beyond it; inFlight.mu guards it
	progress *Progress // the furthest that was reported, or nil; inFlight.mu guards it

	// reporting is held while report runs, so that a call that has returned reports no more. It is
	// taken after inFlight.mu.
	reporting sync.Mutex
}

// isNews reports whether a progress is to be reported, and remembers it. A server that resumes a
// stream may repeat what it has sent. Progress has to increase with each notification (MCP
// 2025-11-25, basic, utilities, progress), so what is behind the last one has been seen before.
// Some servers count nothing and only change the message: that is news.
func (r *request) isNews(progress *Progress) bool {
	last := r.progress
	if last != nil && (progress.Progress < last.Progress || *progress == *last) {
		return false
	}
	r.progress = progress
	return true
}

// isToolCall reports whether a request runs a tool. Only these have arguments and a progress token.
func (r *request) isToolCall() bool { return r.arguments != nil }

// do sends a request and returns its complete result. A server of the stateless era may ask for
// input first (MCP 2026-07-28, patterns, multi round-trip requests). Then the request is sent again
// with the answers to its questions, until the result is complete.
func (c *Client) do(ctx context.Context, r *request) (json.RawMessage, error) {
	missing := c.Server.missing(r.method)
	if missing != "" {
		return nil, r.wrap(&NotDeclaredError{missing})
	}
	for round := 1; ; round++ {
		raw, err := c.sendWithURLs(ctx, r)
		if err != nil {
			if r.mayAsk && errors.As(err, new(*Error)) {
				// The tool, prompt or resource may be gone, and the list that named it outdated.
				c.ForgetLists("")
			}
			return nil, r.wrap(err)
		}
		complete, err := c.isComplete(r, raw)
		if err != nil {
			return nil, r.wrap(err)
		}
		if complete {
			return raw, nil
		}
		if round > maxRounds {
			// The user is not asked for an answer that will not be sent.
			reason := fmt.Sprintf("the server asked for input %d times", round)
			return nil, r.wrap(&ProtocolError{reason})
		}
		r.input, err = c.answerQuestions(ctx, r, raw)
		if err != nil {
			return nil, r.wrap(err)
		}
	}
}

// isComplete reports whether a result is complete. It is not complete if the server asks for input.
func (c *Client) isComplete(r *request, result json.RawMessage) (bool, error) {
	if !c.stateless.Load() {
		r.isTask = r.asTask
		return true, nil
	}
	kind := resultType(result)
	switch {
	case kind == "complete":
		return true, nil
	case kind == "task" && (r.isToolCall() || r.method == "tasks/get"):
		// The examples of the extension give this type to the answer to tasks/get, too.
		r.isTask = true
		return true, nil
	case kind == "task":
		return false, &ProtocolError{
			"the server's result is a task where the protocol does not allow it"}
	case kind != "input_required":
		return false, &ProtocolError{fmt.Sprintf("the result is of the unknown type %q", kind)}
	case !r.mayAsk:
		return false, &ProtocolError{
			"the server's result is input_required where the protocol does not allow it"}
	}
	return false, nil
}

// resultType returns the member resultType of a result. Older servers send none, which means
// complete. Most servers write it as the last member, and then the megabytes before it are not read
// again: in valid JSON no string can end with this text, as its quotes would be escaped.
func resultType(raw json.RawMessage) string {
	if bytes.HasSuffix(raw, []byte(`,"resultType":"complete"}`)) {
		return "complete"
	}
	kind := "complete"
	s := scanner{text: raw}
	s.object(func(key []byte) {
		value := s.value()
		if string(key) != "resultType" {
			return
		}
		if json.Unmarshal(value, &kind) != nil {
			kind = string(value)
		}
		// To fail ends the scan here: whoever decodes the result reads the rest.
		s.fail()
	})
	return kind
}

// send sends a request and returns its result. If it fails for a cause that can be removed, it is
// sent a second time.
func (c *Client) send(ctx context.Context, r *request) (json.RawMessage, error) {
	raw, err := c.attempt(ctx, r)
	if err == nil {
		return raw, nil
	}
	err = c.repair(ctx, r, err)
	if err != nil {
		return nil, err
	}
	return c.attempt(ctx, r)
}

// attempt sends a request once, under a new id, and returns its result.
func (c *Client) attempt(ctx context.Context, r *request) (json.RawMessage, error) {
	r.id = c.conn.NextID()
	r.session = c.sessions.current.Load()
	m := Outgoing{ID: r.id, Method: r.method, Source: r, Result: r.result}
	// The probe is a request of the stateless era, before the era of the server is known.
	if c.stateless.Load() || r.method == "server/discover" {
		r.meta = c.meta
		m.Revision = statelessRevision
		if r.mayAsk || strings.HasPrefix(r.method, "tasks/") {
			// The subject of these methods has a name, which HTTP repeats as Mcp-Name.
			m.Name = r.subject
		}
	}
	var err error
	m.Headers, err = c.paramHeaders(r)
	if err != nil {
		return nil, err
	}
	switch {
	case r.listener != nil:
		// A subscription has no deadline: it lasts until one side ends it.
		c.listeners.setRequest(r.listener, r.id)
	case !r.isUntimed:
		c.inFlight.addRequest(r)
		defer c.inFlight.removeRequest(r)
	}
	return c.conn.Do(ctx, m)
}

// paramHeaders returns the headers that repeat parameters of a tool call over HTTP, which the
// schema of the tool marks (MCP 2026-07-28, transports, streamable HTTP, custom headers).
func (c *Client) paramHeaders(r *request) (map[string]string, error) {
	if c.http == nil || !r.isToolCall() {
		return nil, nil
	}
	schema := c.lists.markedSchema(r.subject)
	if schema == nil {
		return nil, nil
	}
	return c.http.ParamHeaders(schema, r.arguments)
}

// AppendText appends the text of the request, so that a transport can write it straight to its
// buffer; see Outgoing.Source.
func (r *request) AppendText(b []byte) ([]byte, error) {
	b = AppendRequest(b, r.id, r.method)
	if len(r.params) > 0 || r.meta != nil {
		b = append(appendKey(b, "params"), '{')
		b = joinMembers(b, r.params)
		b = joinMembers(b, r.input)
		b = r.appendMeta(b)
		b = append(b, '}')
	}
	return append(b, '}'), nil
}

// appendMeta appends the member _meta, if it has members. A tool call always asks
// for progress, even where nobody wants a report, as progress keeps it from expiring (MCP
// 2025-11-25, basic, utilities, progress). The id of the request is its progress token.
func (r *request) appendMeta(b []byte) []byte {
	if !r.isToolCall() && r.meta == nil {
		return b
	}
	b = append(appendKey(b, "_meta"), '{')
	if r.isToolCall() {
		b = strconv.AppendInt(appendKey(b, "progressToken"), r.id, 10)
	}
	b = joinMembers(b, r.meta)
	return append(b, '}')
}

// repeatableKey is the key of the mark that Repeatable sets.
type repeatableKey struct{}

// Repeatable marks calls with that ctx as safe to repeat. In the stateless era, where streams
// cannot be resumed, such a call is sent once more if its answer is lost. Requests that only read
// or list need no mark.
func Repeatable(ctx context.Context) context.Context {
	return context.WithValue(ctx, repeatableKey{}, true)
}

// repair removes the cause of the failure of a request. If it returns nil, the request can be sent
// again. Otherwise the request ends with the error of repair. A transport such as HTTP can lose a
// message and go on; the methods of its errors say so.
func (c *Client) repair(ctx context.Context, r *request, err error) error {
	if ctx.Err() != nil {
		return err
	}
	if isSessionExpired(err) {
		// The server does not know the session, and so has not acted.
		return c.renew(ctx, r.session)
	}
	if isLost(err) && r.canRepeat(ctx) {
		return nil
	}
	var refusal *Error
	if errors.As(err, &refusal) && refusal.Code == CodeHeaderMismatch && r.method == "tools/call" {
		// The headers were made from an outdated schema, so the list is read anew (MCP 2026-07-28,
		// transports, streamable HTTP, client behavior).
		c.ForgetLists("tools")
		_, listErr := c.ListTools(ctx)
		if listErr == nil {
			return nil
		}
	}
	return err
}

// isSessionExpired reports whether an error of a transport says that the session has expired.
func isSessionExpired(err error) bool {
	var expired interface{ SessionExpired() bool }
	return errors.As(err, &expired) && expired.SessionExpired()
}

// canRepeat reports whether a request may be sent again when nobody knows whether the server has
// acted. In the handshake era a broken stream is resumed, so a request that fails there has failed
// for another reason. A tool may act twice, unless the call is marked as Repeatable. A subscription
// that begins again has missed the changes in between: its caller must know. All other requests
// only read, or change nothing more the second time, as tasks/update.
func (r *request) canRepeat(ctx context.Context) bool {
	switch {
	case r.meta == nil:
		return false
	case r.isToolCall():
		return ctx.Value(repeatableKey{}) != nil
	}
	return r.listener == nil
}

// sendCancelled tells the server that nobody waits for the answer to a request any more, because
// the caller's ctx or the request's time has ended. It is Handler.Abandoned, and sends
// notifications/cancelled (MCP 2025-11-25 and 2026-07-28, cancellation). Over HTTP in the stateless
// era the transport sends nothing: there the end of the request's own stream is the cancellation.
//
// The protocol forbids the notification for initialize. The probe is not cancelled, as a
// server of the handshake era may end on a notification before its handshake. A subscription that
// the server has ended itself needs no cancellation. A task is ended by tasks/cancel alone.
func sendCancelled(ctx context.Context, c *Conn, id int64, method string, cause error) {
	isKept := method == "initialize" || method == "server/discover" ||
		strings.HasPrefix(method, "tasks/")
	if isKept || cause == errUnsubscribed {
		return
	}
	_ = c.Notify(ctx, "notifications/cancelled",
		map[string]any{"requestId": id, "reason": cause.Error()})
}
