// rpc.go - JSON-RPC 2.0 over any message transport.
// Needs: Go 1.25, json.
// SPDX-License-Identifier: 0BSD

package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// ErrClosed is wrapped by every error of a connection that has ended, with the reason if it was not our own Close.
var ErrClosed = errors.New("connection closed")

// ErrAnswered is the cause of the end of a ctx of Transport.Write: the call has its outcome.
var ErrAnswered = errors.New("the call has ended")

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
	maxServing  = 32                     // the peer's requests of one requestQueue that run at once; more of them wait
	maxWaiting  = 16 << 20               // bytes of those that wait; a peer that sends more is cut off
	maxID       = 1 << 10                // bytes of the id of a request
	noticeTime  = 10 * time.Second       // time limit of Handler.Abandoned
	noticeGrace = 500 * time.Millisecond // time that Close waits for it
)

// Error is the peer's answer to a request that failed (JSON-RPC 2.0, 5.1). One from Handler.Request is sent as it is.
type Error struct {
	Code    int64           `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data,omitempty"` // any JSON value; nil if the peer sent none
}

func (e *Error) Error() string { return fmt.Sprintf("%s (error %d)", e.Message, e.Code) }

// MessageTooLongError is the error of a transport whose peer sent a message over the limit. The rest of the message is
// not read: framing could go on after it, but the call that it answers could not.
type MessageTooLongError struct{ Limit int } // bytes

func (e *MessageTooLongError) Error() string {
	return fmt.Sprintf("a message is longer than the limit of %d bytes", e.Limit)
}

// Outgoing is a message to send, with what its sender knows of it, so that no transport has to parse the text.
type Outgoing struct {
	Text   []byte // one JSON value on one line; not changed any more, even when ctx ended a Write early
	ID     int64  // of a request; 0 for a notification or a response
	Method string // of a request or a notification; empty for a response

	Source encoding.TextAppender // makes the text of a request whose Text is nil, for a directTransport alone

	// MoreMayFollow tells that other calls are in flight. Their callers are likely to send at once,
	// so a transport may wait a moment to send several messages together. Conn sets it.
	MoreMayFollow bool

	// These are MCP's, for a transport that repeats them beside the text, as HTTP does in headers.
	Revision string            // the stateless revision that the message says it is of; empty in the handshake era
	Name     string            // of the tool or prompt, or the URI of the resource, that a request is about
	Headers  map[string]string // made of parameters of a tool call: complete names and encoded values
}

// Transport carries whole messages, each the text of one JSON value.
type Transport interface {
	// Read returns the next message, which is the caller's to keep. It ends with an error that wraps io.EOF when the peer
	// is gone; io.EOF itself means that the peer sends no more but may still read. Only one goroutine calls Read.
	Read() ([]byte, error)
	// Write sends one message, whole. An error means that this message may be lost, and no other. It may be called
	// concurrently. ctx also ends when the call has its outcome before Write returns.
	Write(ctx context.Context, m Outgoing) error
	// Close is called once. It unblocks Read and Write and returns when nothing is left.
	Close() error
}

// directTransport is a Transport that may be able to send without waiting for the peer.
type directTransport interface {
	// WriteNow sends a message, or reports false and has sent nothing. A text that it makes goes straight to its buffer.
	WriteNow(m Outgoing) (sent bool, err error)
}

// Handler handles the messages that no call waits for. Every field may be nil.
type Handler struct {
	// Request answers a request of the peer, on one of at most 32 goroutines. ctx ends when the peer cancels the request
	// (CancelRequest), is gone, or Close is called. An error other than an *Error is sent as CodeInternalError. Without
	// Request, every request is CodeMethodNotFound.
	Request func(ctx context.Context, c *Conn, method string, params json.RawMessage) (any, error)

	// Immediate reports whether Request answers that method without waiting for anything. Such a
	// request does not queue behind others, whose handlers may all wait.
	Immediate func(method string) bool

	// Notification takes a notification of the peer, on the reader and in wire order: it must not block or Call.
	Notification func(c *Conn, method string, params json.RawMessage)

	// Skipped receives each message that is not JSON-RPC, or that answers no request of ours, and
	// the reason. It is called concurrently.
	Skipped func(message []byte, reason error)

	// Trace receives every message, concurrently, before it is sent and after it was read. It must not keep the text.
	Trace func(sent bool, text []byte)

	// Abandoned runs, on a goroutine of its own, after ctx or Cancel ended a call that may have reached the peer. Its own
	// ctx ends after ten seconds, or with the connection.
	Abandoned func(ctx context.Context, c *Conn, id int64, method string, cause error)
}

// Conn is a JSON-RPC 2.0 connection: it sends requests and matches the answers, and answers the peer's own requests.
// All methods may be called from any goroutine.
type Conn struct {
	transport Transport
	direct    directTransport // the transport, if it is one; else nil
	handler   Handler

	life context.Context         // ends with the connection; its cause wraps ErrClosed
	end  context.CancelCauseFunc // the first cause wins

	serve     context.Context    // parent of the ctx of every request being served; outlives life at a half-close
	stopServe context.CancelFunc // by Close, or with the connection

	lastID  atomic.Int64   // ids count from 1: some peers take 0 for none
	work    sync.WaitGroup // readLoop and all it started
	notices sync.WaitGroup // Handler.Abandoned at work
	waiters sync.Pool      // of *waiter, for the next calls
	close   func() error   // once

	mu        sync.Mutex         // guards the following; never held across I/O or a callback
	pending   map[int64]*waiter  // calls that wait; see take
	serving   map[string]*served // the peer's requests that have no answer yet, by id as it was written
	ordinary  requestQueue       // the peer's requests that Handler.Immediate does not name
	immediate requestQueue       // those that it names
	queued    int                // bytes of the requests that wait in either lane, with 512 for what is made of each
	closed    bool               // no goroutine may be added to notices
}

// waiter is a call that waits for its outcome.
type waiter struct {
	outcome chan outcome            // one slot, filled by whoever took the waiter out of the pending map
	stop    context.CancelCauseFunc // ends a Write that waits for the peer; nil if none does
}

func (w *waiter) deliver(o outcome) {
	stop := w.stop // the next line may give the waiter to another call
	w.outcome <- o
	if stop != nil {
		stop(ErrAnswered)
	}
}

// outcome is the peer's answer, or the reason why none is waited for.
type outcome struct {
	result    json.RawMessage // of the answer: valid JSON
	err       error           // *Error, the reason why the answer is invalid, or the end of the connection
	cancelled bool            // by Conn.Cancel, whose cause is err
}

// requestQueue is a queue of requests of the peer, and the goroutines that answer them. Conn.mu guards it.
type requestQueue struct {
	waiting []*served // no goroutine works on them yet; in wire order
	workers int       // goroutines in serveRequests
}

// served is one request of the peer.
type served struct {
	Incoming
	ctx    context.Context // ends with cancel
	cancel context.CancelFunc
}

// NewConn starts a connection on a transport that it owns from now on. The caller must Close it.
func NewConn(t Transport, h Handler) *Conn {
	c := &Conn{
		transport: t,
		handler:   h,
		pending:   make(map[int64]*waiter),
		serving:   make(map[string]*served),
	}
	c.direct, _ = t.(directTransport)
	c.waiters.New = func() any { return &waiter{outcome: make(chan outcome, 1)} }
	c.life, c.end = context.WithCancelCause(context.Background())
	c.serve, c.stopServe = context.WithCancel(context.Background())
	c.close = sync.OnceValue(c.closeOnce)
	c.work.Go(c.readLoop)
	return c
}

// Call sends a request and decodes the result of its answer into result, as json.Unmarshal does, unless that is nil.
// Params that encode to null are left out (JSON-RPC 2.0, 4.2 wants an object or an array).
//
// The error names the method and wraps the peer's *Error; or the cause of ctx; or ErrClosed and the reason; or the
// error of Write. After an error other than *Error the peer may have acted all the same.
func (c *Conn) Call(ctx context.Context, method string, params, result any) error {
	id := c.NextID()
	text, err := EncodeRequest(id, method, params)
	if err != nil {
		return err
	}
	raw, err := c.Do(ctx, Outgoing{Text: text, ID: id, Method: method})
	if err == nil && result != nil {
		if err = json.Unmarshal(raw, result); err != nil {
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
	text, err := EncodeRequest(0, method, params)
	if err != nil {
		return err
	}
	if err = cmp.Or(context.Cause(ctx), c.Err()); err == nil {
		err = c.send(ctx, Outgoing{Text: text, Method: method})
	}
	if err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	return nil
}

// NextID returns the id for a request that is sent with Do: each is returned once.
func (c *Conn) NextID() int64 { return c.lastID.Add(1) }

// Do sends a request, whose ID is from NextID and whose text begins with AppendRequest's, and returns the result of
// its answer, known to be valid JSON. The error is that of Call, without the method.
//
// It waits once: for its outcome, which is the answer or what Cancel or the end of the connection leave there, or for
// ctx. Why not with a ctx of its own, that all of them end? That would cost more than the rest of a call.
func (c *Conn) Do(ctx context.Context, request Outgoing) (json.RawMessage, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx) // nothing was sent: there is nothing to cancel
	}
	// Registered before it is written: the answer may arrive before Write returns.
	w, err := c.register(&request)
	if err != nil {
		return nil, err
	}
	if err = c.send(ctx, request); err == nil {
		select {
		case o := <-w.outcome:
			return c.conclude(w, request, o)
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	if c.take(request.ID) == nil {
		// The answer came first. A plain select would lose half the answers of a peer that exits (TestAnswerThenExit).
		return c.conclude(w, request, <-w.outcome)
	}
	return c.conclude(w, request, outcome{err: err, cancelled: ctx.Err() != nil})
}

// send sends a message. Where that waits for the peer, it ends with ctx or with the outcome of the call.
func (c *Conn) send(ctx context.Context, m Outgoing) (err error) {
	if m.Text == nil && (c.direct == nil || c.handler.Trace != nil) {
		m.Text, _ = m.Source.AppendText(make([]byte, 0, 512))
	}
	c.trace(true, m.Text)
	if c.direct != nil {
		if sent, err := c.direct.WriteNow(m); sent || err != nil {
			return c.lost(err)
		}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	c.mu.Lock()
	w := c.pending[m.ID]
	if w != nil {
		w.stop = cancel
	}
	c.mu.Unlock()
	if w == nil && m.ID != 0 {
		return ErrAnswered
	}
	return c.lost(c.transport.Write(ctx, m))
}

// conclude returns the outcome of a call, whose waiter nobody else knows any more.
func (c *Conn) conclude(w *waiter, request Outgoing, o outcome) (json.RawMessage, error) {
	w.stop = nil
	c.waiters.Put(w)
	if o.cancelled {
		c.abandon(request.ID, request.Method, o.err)
	}
	return o.result, o.err
}

// Cancel ends the wait for the answer to one of our requests, whose Do returns the cause.
func (c *Conn) Cancel(id int64, cause error) {
	if w := c.take(id); w != nil {
		w.deliver(outcome{err: cause, cancelled: true})
	}
}

// CancelRequest ends the ctx of the peer's request with that id, if it is still at work, and keeps its answer from
// being sent. The id is JSON as the peer wrote it.
func (c *Conn) CancelRequest(id json.RawMessage) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.serving[string(id)]; s != nil {
		s.cancel()
	}
}

// Done returns a channel that is closed when the connection has ended.
func (c *Conn) Done() <-chan struct{} { return c.life.Done() }

// Err returns nil before the connection has ended, then ErrClosed wrapped with the reason.
func (c *Conn) Err() error { return context.Cause(c.life) }

// Wait returns when the peer has sent its last message and each of its requests was answered: the end of a server. The
// error is nil if the end was orderly, io.EOF or our own Close.
func (c *Conn) Wait() error {
	c.work.Wait()
	if err := context.Cause(c.life); err != ErrClosed && !errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	return nil
}

// Close ends the connection and every wait on it, and returns when none of its goroutines is left. It must not be
// called from a Handler. Later calls return what the first one did.
func (c *Conn) Close() error { return c.close() }

func (c *Conn) closeOnce() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	// Handler.Abandoned may still tell the peer of cancelled calls. A peer that does not read must not delay the end.
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
	pending := c.pending
	c.pending = nil // register adds no more
	c.mu.Unlock()
	for _, w := range pending {
		w.deliver(outcome{err: context.Cause(c.life)})
	}
}

// register makes a call known to the reader, unless the connection has ended.
func (c *Conn) register(request *Outgoing) (*waiter, error) {
	w := c.waiters.Get().(*waiter)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.life.Err() != nil {
		return nil, context.Cause(c.life)
	}
	request.MoreMayFollow = len(c.pending) > 0
	c.pending[request.ID] = w
	return w, nil
}

// take is how a call finds its answer: it removes the call from the pending map and returns it, nil if it was not
// there. Whoever removes it decides the outcome: the reader delivers the response, a caller that gives up returns its
// own error. So each call has one outcome, and an answer that came is never lost.
func (c *Conn) take(id int64) *waiter {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.pending[id]
	delete(c.pending, id)
	return w
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

// lost returns the error of a Write. After the end of the connection that is its cause.
func (c *Conn) lost(err error) error {
	if err != nil && c.life.Err() != nil {
		return context.Cause(c.life)
	}
	return err
}

func (c *Conn) trace(sent bool, text []byte) {
	if c.handler.Trace != nil {
		c.handler.Trace(sent, text)
	}
}

// readLoop is the only caller of transport.Read, and ends with it. It waits for nothing else: it never writes, so that
// two peers with full pipes cannot wait for each other, and delivers into channels that have room.
func (c *Conn) readLoop() {
	message, err := c.transport.Read()
	for ; err == nil; message, err = c.transport.Read() {
		if c.trace(false, message); c.life.Err() == nil { // else it reads on only so that the peer can come to its end
			c.dispatch(message)
		}
	}
	if err == io.EOF {
		// The peer may have closed only its own side (printf … | server): it gets its answers.
		err = io.ErrUnexpectedEOF
	} else {
		c.stopServe()
	}
	c.finish(fmt.Errorf("%w: %w", ErrClosed, err))
}

// dispatch takes one message, or each of a batch (MCP 2025-03-26, JSON-RPC 2.0, 6), to its place.
func (c *Conn) dispatch(message []byte) {
	if message = bytes.TrimSpace(message); !bytes.HasPrefix(message, []byte("[")) {
		c.dispatchOne(message)
		return
	}
	var batch [][]byte
	s := scanner{text: message, loose: true} // one invalid message must not cost the others
	if s.array(func() { batch = append(batch, s.value()) }); !s.end() || len(batch) == 0 {
		batch = [][]byte{message}
	}
	for _, m := range batch {
		c.dispatchOne(m)
	}
}

func (c *Conn) dispatchOne(message []byte) {
	var in Incoming
	err := in.Parse(message)
	switch {
	case in.Method == "" && (in.Result != nil || in.Error != nil):
		var w *waiter
		if id, ok := idNumber(in.ID); ok {
			w = c.take(id)
		}
		if w != nil { // also by an invalid answer: no other message will end the call
			w.deliver(in.outcome(err))
		} else if err == nil {
			err = fmt.Errorf("no request waits for a response with the id %s", cmp.Or(string(in.ID), "null"))
		}
	case err != nil:
	case in.ID != nil:
		if !c.accept(&in) {
			// No error is sent: the peer most likely does not read.
			c.stopServe()
			c.finish(fmt.Errorf("%w: more than %d MiB of the peer's requests wait: it sends too many, "+
				"or does not read the answers", ErrClosed, maxWaiting>>20))
		}
	case c.handler.Notification != nil:
		c.handler.Notification(c, in.Method, in.Params)
	}
	c.reportSkipped(message, err)
}

// reportSkipped reports a message that is invalid, or has no receiver, unless the reason is nil.
func (c *Conn) reportSkipped(message []byte, reason error) {
	if reason != nil && c.handler.Skipped != nil {
		c.handler.Skipped(message, reason)
	}
}

// outcome returns what an answer means for its call. The error says why the answer is invalid.
func (in *Incoming) outcome(invalid error) outcome {
	switch {
	case invalid != nil:
		return outcome{err: fmt.Errorf("the answer is invalid: %w", invalid)}
	case in.Error == nil:
		return outcome{result: in.Result}
	}
	var e Error
	if err := json.Unmarshal(in.Error, &e); err != nil {
		e = Error{Code: CodeInternalError, Message: "a malformed error: " + string(in.Error)}
	}
	return outcome{err: &e}
}

// accept takes a request of the peer. It returns false when too many of them wait.
func (c *Conn) accept(in *Incoming) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	ctx, cancel := context.WithCancel(c.serve)
	s := &served{*in, ctx, cancel}
	c.serving[string(in.ID)] = s // a peer that uses an id twice can cancel the later one
	l := &c.ordinary
	if c.handler.Immediate != nil && c.handler.Immediate(in.Method) {
		l = &c.immediate
	}
	l.waiting = append(l.waiting, s)
	c.queued += len(s.text) + 512
	if l.workers < maxServing {
		l.workers++
		c.work.Go(func() { c.serveRequests(l) })
	}
	return c.queued <= maxWaiting
}

// serveRequests answers requests of a lane, one after the other. It ends when none waits. It waits for handlers and
// for writes, so that a peer that does not read holds up its own requests alone.
func (c *Conn) serveRequests(l *requestQueue) {
	for s := c.nextRequest(l); s != nil; s = c.nextRequest(l) {
		var result any
		var err error = &Error{Code: CodeMethodNotFound, Message: "method not found: " + s.Method}
		if !isID(s.ID) {
			err = &Error{Code: CodeInvalidRequest, Message: "the id of a request must be a string or an integer"}
		} else if c.handler.Request != nil && s.ctx.Err() == nil {
			result, err = c.handler.Request(s.ctx, c, s.Method, s.Params)
		}
		c.respond(s, result, err)
		s.cancel()
	}
}

// nextRequest returns the request that has waited longest. Where none waits it returns nil, and its caller must end.
func (c *Conn) nextRequest(l *requestQueue) *served {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(l.waiting) == 0 {
		l.workers--
		return nil
	}
	s := l.waiting[0]
	l.waiting[0], l.waiting = nil, l.waiting[1:]
	c.queued -= len(s.text) + 512
	return s
}

// respond sends an answer, unless the request was cancelled. A failed write is not reported: nobody waits for it.
func (c *Conn) respond(s *served, result any, err error) {
	c.mu.Lock()
	if c.serving[string(s.ID)] == s {
		delete(c.serving, string(s.ID)) // from now on it cannot be cancelled
	}
	c.mu.Unlock()
	if s.ctx.Err() != nil {
		return
	}
	message, encoding := EncodeResponse(s.ID, result, err)
	if encoding != nil {
		message, _ = EncodeResponse(s.ID, nil, fmt.Errorf("the result cannot be encoded: %w", encoding))
	}
	_ = c.send(c.serve, Outgoing{Text: message})
}

// AppendRequest begins the text of a request, or of a notification if id is 0, as an object that is still open: the
// caller appends the params, if there are any, and the brace that closes it.
func AppendRequest(b []byte, id int64, method string) []byte {
	b = append(b, `{"jsonrpc":"2.0"`...)
	if id != 0 {
		b = strconv.AppendInt(append(b, `,"id":`...), id, 10)
	}
	return appendString(append(b, `,"method":`...), method)
}

// EncodeRequest returns the text of a request or a notification. Params that encode to null are left out.
func EncodeRequest(id int64, method string, params any) ([]byte, error) {
	raw, err := appendJSON(nil, params)
	if err != nil {
		return nil, fmt.Errorf("%s: params: %w", method, err)
	}
	b := AppendRequest(make([]byte, 0, 64+len(method)+len(raw)), id, method)
	if string(raw) != "null" {
		b = append(appendKey(b, "params"), raw...)
	}
	return append(b, '}'), nil
}

// EncodeResponse makes the answer to a request: err if there is one, else result.
func EncodeResponse(id json.RawMessage, result any, err error) ([]byte, error) {
	member := "result"
	if err != nil {
		var e *Error
		if !errors.As(err, &e) {
			e = &Error{Code: CodeInternalError, Message: err.Error()}
		}
		member, result = "error", e
	}
	b := append([]byte(`{"jsonrpc":"2.0","id":`), id...)
	b, err = appendJSON(appendKey(b, member), result)
	return append(b, '}'), err
}

// Incoming is a message taken apart: its members as they stand in the text, nil where absent.
type Incoming struct {
	Method                    string
	ID, Params, Result, Error json.RawMessage
	text                      []byte // the message
}

// Parse takes a message apart, in one pass that also proves the whole of it to be valid JSON. The error says why it is
// not a request, a notification or a response (JSON-RPC 2.0, 4 and 5); the members then hold what could be read.
func (in *Incoming) Parse(message []byte) error {
	s := scanner{text: message}
	version := in.read(&s)
	switch {
	case !s.end():
		if in.read(&scanner{text: message, loose: true}); !bytes.HasSuffix(bytes.TrimSpace(message), []byte("}")) {
			*in = Incoming{} // a part of a message
		}
		return errors.New("not a JSON-RPC object")
	case !version:
		return errors.New(`no "jsonrpc":"2.0"`)
	case in.Method != "" && len(in.ID) > maxID:
		return fmt.Errorf("a request with an id of %d bytes", len(in.ID))
	case in.Method != "" && in.ID != nil && strings.IndexByte(`"-0123456789`, in.ID[0]) < 0:
		return fmt.Errorf("a request with the id %s", in.ID)
	case in.Method == "" && in.Result == nil && in.Error == nil:
		return errors.New("neither a method nor a result nor an error")
	}
	if kind := string(in.Error); (kind == "null" || kind == "false") && in.Result != nil {
		in.Error = nil // some peers write both members always
	}
	return nil
}

// read sets the members, and reports whether the message is of JSON-RPC 2.0.
func (in *Incoming) read(s *scanner) (version bool) {
	*in = Incoming{text: s.text}
	s.object(func(key []byte) {
		switch string(key) {
		case "jsonrpc":
			version = string(s.value()) == `"2.0"`
		case "id":
			in.ID = s.value()
		case "method":
			in.Method = s.string()
		case "params":
			in.Params = s.value()
		case "result":
			in.Result = s.value()
		case "error":
			in.Error = s.value()
		default:
			s.value()
		}
	})
	return version
}
