// rpc.go - JSON-RPC 2.0 over any message transport.
// Needs: Go 1.25, json.go.
// SPDX-License-Identifier: 0BSD

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"
)

// ErrClosed is wrapped by the error of every call on a connection that has ended, together with
// the reason if the end was not our own Close.
var ErrClosed = errors.New("connection closed")

// The error codes that JSON-RPC 2.0, 5.1 reserves.
const (
	CodeParseError     = -32700
	CodeInvalidRequest = -32600
	CodeMethodNotFound = -32601
	CodeInvalidParams  = -32602
	CodeInternalError  = -32603
)

// Bounds on what a peer can make this side hold at once.
const (
	maxServing  = 32                     // the peer's requests at work; one more is answered with an error
	maxRefusing = 1024                   // such answers that wait for a peer that does not read
	maxID       = 1 << 10                // bytes of the id of a request
	noticeTime  = 10 * time.Second       // what Handler.Abandoned has to tell the peer
	noticeGrace = 500 * time.Millisecond // what Close leaves it of that
)

// Error is the peer's answer to a request that failed (JSON-RPC 2.0, 5.1). A Handler.Request that
// returns one has it sent as it is.
type Error struct {
	Code    int64           `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data,omitempty"` // any JSON value; nil if the peer sent none
}

func (e *Error) Error() string { return fmt.Sprintf("%s (error %d)", e.Message, e.Code) }

// Transport carries whole messages, each the text of one JSON value.
type Transport interface {
	// Read returns the next message, which is the caller's to keep. It ends with an error that
	// wraps io.EOF when the peer is gone; io.EOF itself says that the peer sends no more but may
	// still read. Only one goroutine calls Read.
	Read() ([]byte, error)
	// Write sends one message, whole, or returns an error: that message may be lost, the
	// transport need not be; an error that wraps io.EOF says that the peer is gone. Any goroutine
	// may call it, concurrently. The message has no newline in it and must not be changed
	// afterwards, even when ctx ended Write early.
	Write(ctx context.Context, message []byte) error
	// Close is called once. It unblocks Read and Write and returns when nothing is left.
	Close() error
}

// Handler is what a connection does with messages nobody waits for. Every field may be nil.
type Handler struct {
	// Request answers a request of the peer, on a goroutine of its own. ctx ends when the peer
	// cancels the request (CancelRequest) or the connection is over. An error that is no *Error
	// is sent as CodeInternalError. Without Request, every request is CodeMethodNotFound.
	Request func(ctx context.Context, c *Conn, method string, params json.RawMessage) (any, error)

	// Notification takes a notification of the peer. It runs on the reader, in wire order and
	// before any response that came later, so it must not block and must not Call.
	Notification func(c *Conn, method string, params json.RawMessage)

	// Stray is told of each message that was skipped, and why: it is no JSON-RPC, or it answers
	// nothing that was asked. It runs on the reader.
	Stray func(message []byte, reason error)

	// Abandoned runs, on a goroutine of its own, after ctx ended a call that may have reached the
	// peer. Its own ctx ends after ten seconds, or with the connection.
	Abandoned func(ctx context.Context, c *Conn, id int64, method string, cause error)
}

// Conn is a JSON-RPC 2.0 connection: it sends requests and matches the answers, and answers the
// peer's own requests. All methods may be called from any goroutine.
type Conn struct {
	transport Transport
	handler   Handler

	life context.Context         // ends with the connection; its cause wraps ErrClosed
	end  context.CancelCauseFunc // the first cause wins

	serve     context.Context    // parent of the ctx of every request being served; outlives life at a half-close
	stopServe context.CancelFunc // by Close, or with the connection

	work    sync.WaitGroup // readLoop and all it started
	notices sync.WaitGroup // Handler.Abandoned at work
	close   func() error   // once

	mu       sync.Mutex         // guards the following; never held across I/O or a callback
	lastID   int64              // ids count from 1: some peers take 0 for none
	pending  map[int64]waiter   // calls that wait; see take
	serving  map[string]*served // the peer's requests at work, by id as it was written
	working  int                // goroutines in serveRequest, with those that have left serving and wait to write
	refusing []json.RawMessage  // ids of the requests beyond maxServing, not yet answered
	closed   bool               // no goroutine may be added to notices
}

// waiter is a call that waits for its answer, or for the end of its ctx.
type waiter struct {
	done   chan response // has room for one
	cancel context.CancelCauseFunc
}

// response is what the peer answered.
type response struct {
	result json.RawMessage // valid JSON
	err    error           // *Error, or that it is not valid
}

// served is the work on one request of the peer. Conn.mu guards cancelled.
type served struct {
	id        json.RawMessage
	cancel    context.CancelFunc
	cancelled bool // by the peer: the answer is not sent
}

// requestID is the key of what RequestID finds.
type requestID struct{}

// RequestID returns the id of the peer's request whose ctx, or a child of it, this is: JSON as the peer wrote it, nil for any
// other ctx. It is for what outlives the exchange of request and answer, as a subscription does.
func RequestID(ctx context.Context) json.RawMessage {
	id, _ := ctx.Value(requestID{}).(json.RawMessage)
	return id
}

// NewConn starts a connection on a transport that it owns from now on. The caller must Close it.
func NewConn(t Transport, h Handler) *Conn {
	c := &Conn{
		transport: t,
		handler:   h,
		pending:   make(map[int64]waiter),
		serving:   make(map[string]*served),
	}
	c.life, c.end = context.WithCancelCause(context.Background())
	c.serve, c.stopServe = context.WithCancel(context.Background())
	c.close = sync.OnceValue(c.closeOnce)
	c.work.Go(c.readLoop)
	return c
}

// Call sends a request and decodes the result of its answer into result, as json.Unmarshal does;
// a nil result is dropped, and a *json.RawMessage gets the text as it came, known to be valid.
// Params that encode to null are left out (JSON-RPC 2.0, 4.2 wants an object or an array).
//
// The error names the method and wraps the peer's *Error; or the cause of ctx; or ErrClosed and the
// reason; or what Write said. After an error other than *Error the peer may have acted all the same.
func (c *Conn) Call(ctx context.Context, method string, params, result any) error {
	raw, err := c.call(ctx, method, func(b []byte, _ int64) ([]byte, error) { return appendJSON(b, params) })
	if err == nil && result != nil {
		if into, ok := result.(*json.RawMessage); ok {
			*into = raw
		} else if err = json.Unmarshal(raw, result); err != nil {
			err = fmt.Errorf("result: %w", err)
		}
	}
	if err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	return nil
}

// Notify sends a notification. A nil error means that the transport took it.
func (c *Conn) Notify(ctx context.Context, method string, params any) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(c.life, func() { cancel(context.Cause(c.life)) })()
	message, err := appendRequest(0, method, func(b []byte, _ int64) ([]byte, error) { return appendJSON(b, params) })
	if err == nil {
		err = c.write(ctx, message)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	return nil
}

// CancelRequest ends the ctx of the peer's request with that id, if it is still at work, and keeps
// its answer from being sent. The id is JSON as the peer wrote it.
func (c *Conn) CancelRequest(id json.RawMessage) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.serving[string(id)]; s != nil {
		s.cancelled = true
		s.cancel()
	}
}

// Wait returns when the peer has sent its last message and each of its requests was answered: the
// end of a server. The error is nil if the end was orderly, io.EOF or our own Close.
func (c *Conn) Wait() error {
	c.work.Wait()
	if err := context.Cause(c.life); err != ErrClosed && !errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	return nil
}

// Close ends the connection and every wait on it, and returns when none of its goroutines is left.
// It must not be called from a Handler. Later calls return what the first one did.
func (c *Conn) Close() error { return c.close() }

func (c *Conn) closeOnce() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	// A cancelled call is worth a word to the peer, but not a hang on one that does not read.
	grace := time.AfterFunc(noticeGrace, func() { c.finish(ErrClosed) })
	c.notices.Wait()
	grace.Stop()
	c.finish(ErrClosed)
	c.stopServe()
	err := c.transport.Close()
	c.work.Wait()
	return err
}

// finish ends the connection's life and every call's wait.
func (c *Conn) finish(cause error) {
	c.end(cause)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.pending {
		p.cancel(context.Cause(c.life))
	}
}

// call is Call without the decoding. params appends the request's params, and may use its id.
//
// It waits for the answer and for its ctx, which ends with the caller's, with giveUp or with the connection.
func (c *Conn) call(ctx context.Context, method string, params paramsFunc) (json.RawMessage, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx) // nothing to tell the peer either
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	done := make(chan response, 1)
	// Registered before it is written: the answer may be here before Write returns.
	id, err := c.register(waiter{done, cancel})
	if err != nil {
		return nil, err
	}
	message, err := appendRequest(id, method, params)
	if err != nil {
		c.take(id)
		return nil, err
	}
	if err = c.write(ctx, message); err == nil {
		select {
		case a := <-done:
			return a.result, a.err
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	if _, ok := c.take(id); !ok {
		// The answer was here first. A plain select on answer and life would lose about half of the
		// answers of a peer that answers and exits (TestAnswerThenExit).
		a := <-done
		return a.result, a.err
	}
	if ctx.Err() != nil {
		c.abandon(id, method, err)
	}
	return nil, err
}

// register makes a call known to the reader, unless the connection is over.
func (c *Conn) register(w waiter) (id int64, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.life.Err() != nil {
		return 0, context.Cause(c.life)
	}
	c.lastID++
	c.pending[c.lastID] = w
	return c.lastID, nil
}

// take is how a call finds its answer: it takes the call out of the pending map, and says whether it was in it.
// Whoever takes it out decides the outcome: the reader delivers the response, a caller that gives up returns its
// own error. So each call has one outcome, and an answer that came is never lost.
func (c *Conn) take(id int64) (waiter, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p, ok := c.pending[id]
	delete(c.pending, id)
	return p, ok
}

// giveUp ends a call's ctx.
func (c *Conn) giveUp(id int64, cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p, ok := c.pending[id]; ok {
		p.cancel(cause)
	}
}

// abandon lets the handler tell the peer that nobody waits any more, without keeping the caller.
func (c *Conn) abandon(id int64, method string, cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.handler.Abandoned == nil || c.closed || c.life.Err() != nil {
		return
	}
	c.notices.Go(func() {
		ctx, cancel := context.WithTimeout(c.life, noticeTime) // a peer that does not read is told nothing
		defer cancel()
		c.handler.Abandoned(ctx, c, id, method, cause)
	})
}

// write sends a message. Where the connection is over, that is the better error.
func (c *Conn) write(ctx context.Context, message []byte) error {
	err := context.Cause(ctx)
	if err == nil {
		err = c.transport.Write(ctx, message)
	}
	switch {
	case err != nil && c.life.Err() != nil:
		return context.Cause(c.life)
	case errors.Is(err, io.EOF): // the writer has noticed before the reader
		return fmt.Errorf("%w: %w", ErrClosed, err)
	}
	return err
}

// readLoop is the only caller of transport.Read. It ends with the transport and then ends the
// connection. It waits for nothing else: it never writes, so that two peers with full pipes cannot
// wait for each other, and delivers into channels that have room.
func (c *Conn) readLoop() {
	for {
		message, err := c.transport.Read()
		if err == nil {
			if c.life.Err() == nil { // else it reads on only so that the peer can come to its end
				c.dispatch(message)
			}
			continue
		}
		if err == io.EOF {
			// The peer may have closed only its own side (printf … | server): it gets its answers.
			err = io.ErrUnexpectedEOF
		} else {
			c.stopServe()
		}
		c.finish(fmt.Errorf("%w: %w", ErrClosed, err))
		return
	}
}

// dispatch takes one message, or each of a batch (MCP 2025-03-26, JSON-RPC 2.0, 6), to its place.
func (c *Conn) dispatch(message []byte) {
	var in incoming
	err := in.parse(message)
	if batch := bytes.TrimLeft(message, " \t\r\n"); err != nil && len(batch) > 0 && batch[0] == '[' {
		var each []json.RawMessage
		if json.Unmarshal(batch, &each) == nil && len(each) > 0 {
			for _, m := range each {
				if err = in.parse(m); err == nil {
					err = c.route(&in)
				}
				c.stray(m, err)
			}
			return
		}
	}
	if err == nil {
		err = c.route(&in)
	} else if id, ok := responseID(in.id); ok && in.method == "" && bytes.HasSuffix(bytes.TrimSpace(message), []byte("}")) {
		// A whole answer, but not in JSON: servers in Python write NaN. Nothing else is going to end its call.
		if p, ok := c.take(id); ok {
			p.done <- response{err: fmt.Errorf("the answer is not valid: %w", err)}
		}
	}
	c.stray(message, err)
}

func (c *Conn) stray(message []byte, reason error) {
	if reason != nil && c.handler.Stray != nil {
		c.handler.Stray(message, reason)
	}
}

// route delivers a well-formed message; the error says why it has no receiver.
func (c *Conn) route(in *incoming) error {
	switch {
	case in.method != "" && in.id == nil:
		if c.handler.Notification != nil {
			c.handler.Notification(c, in.method, in.params)
		}
		return nil
	case in.method != "":
		if !c.accept(in.id, in.method, in.params) {
			// A peer that asks on and on and never reads: nothing can be told to it.
			c.stopServe()
			c.finish(fmt.Errorf("%w: the peer sends requests and does not read the answers", ErrClosed))
		}
		return nil
	}
	id, ok := responseID(in.id)
	if !ok {
		if in.id == nil {
			return errors.New("a response without an id")
		}
		return fmt.Errorf("a response with the id %s, which no request had", in.id)
	}
	p, ok := c.take(id)
	if !ok {
		return fmt.Errorf("nobody waits for a response with the id %d", id)
	}
	if in.err == nil {
		p.done <- response{result: in.result}
		return nil
	}
	var e Error
	if err := json.Unmarshal(in.err, &e); err != nil {
		e = Error{Code: CodeInternalError, Message: "an error that is none: " + string(in.err)}
	}
	p.done <- response{err: &e}
	return nil
}

// accept starts the work on a request of the peer, or has it refused when there is too much. It returns false
// when there is too much even to refuse.
func (c *Conn) accept(id json.RawMessage, method string, params json.RawMessage) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	// An answer that waits to be written has made room for a request, but not for ever.
	if c.serving[string(id)] == nil && len(c.serving) < maxServing && c.working < 2*maxServing {
		c.working++
		ctx, cancel := context.WithCancel(context.WithValue(c.serve, requestID{}, id))
		s := &served{id: id, cancel: cancel}
		c.serving[string(id)] = s
		c.work.Go(func() { c.serveRequest(ctx, s, method, params) })
		return true
	}
	if len(c.refusing) == maxRefusing {
		return false
	}
	c.refusing = append(c.refusing, id)
	if len(c.refusing) == 1 {
		c.work.Go(c.refuse)
	}
	return true
}

// serveRequest answers one request of the peer. It ends when the handler and the write have.
func (c *Conn) serveRequest(ctx context.Context, s *served, method string, params json.RawMessage) {
	defer s.cancel()
	var result any
	var err error = &Error{Code: CodeMethodNotFound, Message: "method not found: " + method}
	if c.handler.Request != nil {
		result, err = c.handler.Request(ctx, c, method, params)
	}
	c.mu.Lock()
	delete(c.serving, string(s.id))
	cancelled := s.cancelled
	c.mu.Unlock()
	if !cancelled {
		c.respond(s.id, result, err)
	}
	c.mu.Lock()
	c.working--
	c.mu.Unlock()
}

// refuse answers the requests beyond maxServing. One goroutine does it, started with the first and
// gone after the last, so that a flood of requests is not a flood of goroutines.
func (c *Conn) refuse() {
	err := &Error{Code: CodeInvalidRequest, Message: fmt.Sprintf("more than %d requests at once, or one with an id in use", maxServing)}
	for id := c.nextRefusal(0); id != nil; id = c.nextRefusal(1) {
		c.respond(id, nil, err)
	}
}

// nextRefusal drops the first n refusals, which are done, and returns the next, or nil.
func (c *Conn) nextRefusal(n int) json.RawMessage {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refusing = c.refusing[n:]; len(c.refusing) == 0 {
		return nil
	}
	return c.refusing[0]
}

// respond sends an answer. A failure has nobody to be told: the peer that asked cannot be reached.
func (c *Conn) respond(id json.RawMessage, result any, err error) {
	message, encoding := appendResponse(id, result, err)
	if encoding != nil {
		message, _ = appendResponse(id, nil, fmt.Errorf("the result cannot be encoded: %w", encoding))
	}
	_ = c.transport.Write(c.serve, message)
}

// paramsFunc appends the params of the request with that id, or null for none.
type paramsFunc func(b []byte, id int64) ([]byte, error)

// appendRequest makes a request, or a notification if id is 0.
func appendRequest(id int64, method string, params paramsFunc) ([]byte, error) {
	b := make([]byte, 0, 256)
	b = append(b, `{"jsonrpc":"2.0",`...)
	if id != 0 {
		b = append(b, `"id":`...)
		b = strconv.AppendInt(b, id, 10)
		b = append(b, ',')
	}
	b = append(b, `"method":`...)
	b = appendString(b, method)
	bare := len(b)
	b = append(b, `,"params":`...)
	value := len(b)
	b, err := params(b, id)
	if err != nil {
		return nil, fmt.Errorf("params: %w", err)
	}
	if string(b[value:]) == "null" { // also what a nil map or pointer encodes to
		b = b[:bare]
	}
	return append(b, '}'), nil
}

// appendResponse makes the answer to a request: err if there is one, else result.
func appendResponse(id json.RawMessage, result any, err error) ([]byte, error) {
	b := append([]byte(nil), `{"jsonrpc":"2.0","id":`...)
	b = append(b, id...)
	if err == nil {
		b = append(b, `,"result":`...)
	} else {
		var e *Error
		if !errors.As(err, &e) {
			e = &Error{Code: CodeInternalError, Message: err.Error()}
		}
		b = append(b, `,"error":`...)
		result = e
	}
	b, err = appendJSON(b, result)
	return append(b, '}'), err
}

// incoming is a message taken apart: its members as they stand in the text, nil where absent.
type incoming struct {
	method                  string
	id, params, result, err json.RawMessage
}

// parse takes a message apart, in one pass that also proves the whole of it to be valid JSON. The
// error says why it is none of the three kinds of JSON-RPC 2.0, 4 and 5.
func (in *incoming) parse(message []byte) error {
	*in = incoming{}
	version := false
	s := scanner{text: message}
	s.object(func(key []byte) {
		switch string(key) {
		case "jsonrpc":
			version = string(s.value()) == `"2.0"`
		case "id":
			in.id = s.value()
		case "method":
			in.method = s.string()
		case "params":
			in.params = s.value()
		case "result":
			in.result = s.value()
		case "error":
			in.err = s.value()
		default:
			s.value()
		}
	})
	switch isNull := string(in.id) == "null"; {
	case !s.end():
		return errors.New("not a JSON-RPC object")
	case !version:
		return errors.New(`no "jsonrpc":"2.0"`)
	case in.method != "":
		if len(in.id) > maxID {
			return fmt.Errorf("a request with an id of %d bytes", len(in.id))
		}
		if in.id != nil && (isNull || in.id[0] != '"' && in.id[0] != '-' && (in.id[0] < '0' || in.id[0] > '9')) {
			return fmt.Errorf("a request with the id %s", in.id)
		}
		return nil
	}
	if string(in.err) == "null" && in.result != nil {
		in.err = nil // some peers write both members always
	}
	if in.result == nil && in.err == nil {
		return errors.New("neither a method nor a result nor an error")
	}
	return nil
}

// responseID reads the id of an answer. The ids sent are whole numbers; peers whose language has one
// type for all numbers, or keeps ids as text, send them back as 1.0 or "1".
func responseID(raw json.RawMessage) (id int64, ok bool) {
	text := string(bytes.Trim(raw, `"`))
	if strings.Trim(text, "0123456789.") != "" {
		return 0, false
	}
	id, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		f, err := strconv.ParseFloat(text, 64)
		id = int64(f)
		return id, err == nil && float64(id) == f
	}
	return id, true
}
