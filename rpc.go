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
	"sync"
	"sync/atomic"
	"time"
)

// ErrClosed is wrapped by every error of a connection that has ended, with the reason if it was
// not our own Close.
var ErrClosed = errors.New("connection closed")

// ErrAnswered is the cause with which the ctx of a Transport.Write ends when the call has its
// outcome.
var ErrAnswered = errors.New("the call has ended")

// errPeerDone means that Read has returned io.EOF: the peer has closed its side in good order. For
// a call that still waits this is an io.ErrUnexpectedEOF, which it wraps. It is a value of its own,
// so that Wait can tell it from a Read that failed with io.ErrUnexpectedEOF and has lost messages.
var errPeerDone = fmt.Errorf("%w", io.ErrUnexpectedEOF)

// The error codes that JSON-RPC 2.0, 5.1 reserves.
const (
	CodeParseError     = -32700
	CodeInvalidRequest = -32600
	CodeMethodNotFound = -32601
	CodeInvalidParams  = -32602
	CodeInternalError  = -32603
)

const (
	noticeTime  = 10 * time.Second       // time limit of Handler.Abandoned
	noticeGrace = 500 * time.Millisecond // time that Close waits for it
)

// Error is the peer's answer to a request that failed (JSON-RPC 2.0, 5.1). If a Handler.Request
// returns one, it is sent as it is.
type Error struct {
	Code    int64           `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data,omitempty"` // any JSON value; nil if the peer sent none
}

func (e *Error) Error() string { return fmt.Sprintf("%s (error %d)", e.Message, e.Code) }

// MessageTooLongError is the error of a transport whose peer sent a message over the limit. It
// ends the connection: what follows the message could be read, but the call that it answers
// would wait for ever.
type MessageTooLongError struct{ Limit int } // bytes

func (e *MessageTooLongError) Error() string {
	return fmt.Sprintf("a message is longer than the limit of %d bytes", e.Limit)
}

// Outgoing is a message to send, with what its sender knows of it, so that no transport has to
// parse the text.
type Outgoing struct {
	// Text is one JSON value on one line. Nobody changes it any more, even when ctx has ended a
	// Write early.
	Text []byte

	ID     int64  // of a request; 0 for a notification or a response
	Method string // of a request or a notification; empty for a response

	// Source makes the text of a request whose Text is nil, in the buffer of a transport that has
	// WriteNow. Before a message goes to any other transport, Conn sets Text to what Source makes.
	Source encoding.TextAppender

	// MoreMayFollow tells that other calls are in flight. Their callers are likely to send at
	// once, so a transport may wait a moment to send several messages together. Conn sets it.
	MoreMayFollow bool

	// Result reads the result of a request's answer; nil leaves it unread. See ResultReader.
	Result ResultReader

	// The following are words of MCP, for a transport that repeats them beside the text, as HTTP
	// does in headers. Nothing in this family reads them. They are here because mcp and its
	// transports do not know each other, and this is the one type that both know. Why not one map
	// of headers? mcp would have to know how HTTP writes them, or a call over a pipe would pay for
	// a map that the pipe never reads.

	// Revision is the stateless revision that the message says it is of; empty in the handshake
	// era.
	Revision string
	// Name is the name of the tool or prompt, or the URI of the resource, that a request is about.
	Name string
	// Headers are made of parameters of a tool call: complete names and encoded values.
	Headers map[string]string
}

// ResultReader reads the result of an answer in the same pass that takes the message apart: a list
// of tools has megabytes, which are then read once and not twice.
type ResultReader interface {
	// ReadResult reads one value from s, or fails s if the value is not what it expects. The reader
	// of the connection calls it, before Do returns, so it must not wait. It may be called again
	// with the same value, and then begins anew.
	ReadResult(s *scanner)
}

// Transport carries whole messages, each the text of one JSON value.
type Transport interface {
	// Read returns the next message, which is the caller's to keep. It ends with an error that
	// wraps io.EOF when the peer is gone. io.EOF itself means that the peer sends no more but
	// may still read. Only one goroutine calls Read.
	Read() ([]byte, error)
	// Write sends one message, whole. An error means that this message may be lost, and no
	// other. It may be called concurrently. It returns soon after ctx has ended. What it has begun
	// to write by then is still written to its end, before the next message: half a message would
	// spoil that one. ctx also ends when the call has its outcome before Write returns.
	Write(ctx context.Context, m Outgoing) error
	// Close is called once. It unblocks Read and Write and returns when nothing is left.
	Close() error
}

// directTransport is a Transport that may be able to send without waiting for the peer. Then a
// call needs no ctx that ends its Write.
type directTransport interface {
	// WriteNow sends a message, or reports false and has sent nothing.
	WriteNow(m Outgoing) (sent bool, err error)
}

// Handler handles the messages that no call waits for. Every field may be nil.
type Handler struct {
	// Request answers a request of the peer. At most 32 goroutines call it at the same time for
	// requests that Immediate names, and 32 for all others. ctx ends when the peer cancels the
	// request (CancelRequest), when Read fails, or when Close is called. After io.EOF itself it
	// goes on, as the peer may wait for the answer: where the peer is gone then, Close when Done is
	// closed, as ExampleNewLines does. An error other than an *Error is sent as CodeInternalError.
	// Without Request, every request is CodeMethodNotFound. A panic ends the program.
	Request func(ctx context.Context, c *Conn, method string, params json.RawMessage) (any, error)

	// Immediate reports whether Request answers that method without waiting for anything. Such a
	// request does not queue behind others, whose handlers may all wait.
	Immediate func(method string) bool

	// Notification takes a notification of the peer. It runs on the reader, in the order of the
	// wire, so it must not block or Call.
	Notification func(c *Conn, method string, params json.RawMessage)

	// Skipped receives each message that is not JSON-RPC, or that answers no request of ours, and
	// the reason. The connection goes on without the message. It also receives what comes after the
	// end of the connection, with ErrClosed. It is called concurrently.
	Skipped func(message []byte, reason error)

	// Trace receives every message before it is sent and after it was read. It is called
	// concurrently, and must not keep the text.
	Trace func(sent bool, text []byte)

	// Abandoned runs, on a goroutine of its own, after ctx or Cancel ended a call that may have
	// reached the peer. Its own ctx ends after ten seconds, or with the connection.
	Abandoned func(ctx context.Context, c *Conn, id int64, method string, cause error)
}

// Conn is a JSON-RPC 2.0 connection: it sends requests and matches the answers, and answers the
// peer's own requests. All methods may be called from any goroutine.
//
// One goroutine, in readLoop, reads all that the peer sends. It never writes and never waits for
// a handler or a caller: two peers whose pipes are full would wait for each other. A call puts a
// waiter into pending under its id, sends its request on the goroutine of its caller, and waits.
// Whoever removes the waiter from pending decides the outcome of the call; see takeWaiter. The
// peer's own requests are in rpc_serve.go.
//
// The connection ends once, in finish, for the first of these causes: Read has failed, the peer
// sends more than can be kept, or Close is called. Then every call has an outcome, and no other
// one begins. Close returns when all goroutines of the connection have ended.
type Conn struct {
	transport Transport
	direct    directTransport // the transport, if it is one; else nil
	handler   Handler

	life context.Context         // ends with the connection; its cause wraps ErrClosed
	end  context.CancelCauseFunc // the first cause wins

	serve     context.Context    // parent of the ctx of every request being served
	stopServe context.CancelFunc // by Close, or when the peer is gone

	lastID  atomic.Int64   // ids count from 1: some peers take 0 for none
	work    sync.WaitGroup // readLoop and all it started
	notices sync.WaitGroup // Handler.Abandoned at work
	waiters sync.Pool      // of *waiter, for the next calls
	close   func() error   // once

	mu       sync.Mutex        // guards the following; never held across I/O or a callback
	pending  map[int64]*waiter // calls that wait, by id
	requests requestQueues     // the peer's requests that have no answer yet
	closed   bool              // no goroutine may be added to notices
}

// waiter is a call that waits for its outcome.
type waiter struct {
	outcome chan outcome            // one slot, filled by whoever took the waiter out of pending
	result  ResultReader            // Outgoing.Result of the request
	stop    context.CancelCauseFunc // ends a Write that waits for the peer; nil if none does
}

// deliver hands the outcome over, and frees the caller from a Write that waits for the peer.
func (w *waiter) deliver(o outcome) {
	// It is read first, as the caller may put the waiter back for another call at once.
	stop := w.stop
	w.outcome <- o
	if stop != nil {
		stop(ErrAnswered)
	}
}

// outcome is the peer's answer, or the reason why none is waited for.
type outcome struct {
	result    json.RawMessage // of the answer: valid JSON
	err       error           // *Error, why the answer is invalid, or the connection's end
	cancelled bool            // by ctx or by Conn.Cancel, whose cause is err
}

// NewConn starts a connection on a transport that it owns from now on. The caller must Close it.
func NewConn(t Transport, h Handler) *Conn {
	c := &Conn{
		transport: t,
		handler:   h,
		pending:   make(map[int64]*waiter),
		requests:  requestQueues{unanswered: make(map[string]*served)},
	}
	c.direct, _ = t.(directTransport)
	c.waiters.New = func() any { return &waiter{outcome: make(chan outcome, 1)} }
	c.life, c.end = context.WithCancelCause(context.Background())
	c.serve, c.stopServe = context.WithCancel(context.Background())
	c.close = sync.OnceValue(c.closeOnce)
	c.work.Go(c.readLoop)
	return c
}

// Call sends a request and decodes the result of its answer into result, as json.Unmarshal does,
// unless that is nil. Params that encode to null are left out (JSON-RPC 2.0, 4.2 wants an object
// or an array).
//
// The error names the method and wraps the peer's *Error; or the cause of ctx; or ErrClosed and
// the reason; or the error of Write. After an error other than *Error the peer may have acted
// all the same.
func (c *Conn) Call(ctx context.Context, method string, params, result any) error {
	id := c.NextID()
	text, err := EncodeRequest(id, method, params)
	if err != nil {
		return err
	}
	raw, err := c.Do(ctx, Outgoing{Text: text, ID: id, Method: method})
	if err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	if result == nil {
		return nil
	}
	err = decodeJSON("result", raw, result)
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
	switch {
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case c.Err() != nil:
		err = c.Err()
	default:
		err = c.send(ctx, Outgoing{Text: text, Method: method})
	}
	if err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	return nil
}

// NextID returns the id for a request that is sent with Do: each is returned once.
func (c *Conn) NextID() int64 { return c.lastID.Add(1) }

// Do sends a request, whose ID is from NextID and whose text begins with AppendRequest's, and
// returns the result of its answer, which is valid JSON. The error is that of Call, without the
// method.
//
// It waits once, for the outcome of the call or for ctx. The outcome is the answer, or what
// Cancel or the end of the connection put in its place. Why does it not wait for a ctx of its
// own, which all of them could end? To make one costs more than the rest of a call.
func (c *Conn) Do(ctx context.Context, request Outgoing) (json.RawMessage, error) {
	if ctx.Err() != nil {
		// Nothing was sent, so there is nothing to cancel.
		return nil, context.Cause(ctx)
	}
	// Registered before it is written: the answer may arrive before Write returns.
	w, err := c.register(&request)
	if err != nil {
		return nil, err
	}
	err = c.send(ctx, request)
	if err == nil {
		select {
		case o := <-w.outcome:
			return c.conclude(w, request, o)
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	if c.takeWaiter(request.ID) == nil {
		// The answer came first, and must not be lost: a peer may answer and exit. A select
		// alone would lose half of such answers (TestAnswerThenExit).
		return c.conclude(w, request, <-w.outcome)
	}
	return c.conclude(w, request, outcome{err: err, cancelled: ctx.Err() != nil})
}

// register makes a call known to the reader, unless the connection has ended.
func (c *Conn) register(request *Outgoing) (*waiter, error) {
	w := c.waiters.Get().(*waiter)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.life.Err() != nil {
		return nil, context.Cause(c.life)
	}
	w.result = request.Result
	request.MoreMayFollow = len(c.pending) > 0
	c.pending[request.ID] = w
	return w, nil
}

// takeWaiter removes a call from the pending map and returns its waiter, nil if it was not there.
// An answer finds its call here, by its id; IDNumber knows the forms that peers give to an id.
// Whoever removes the call decides the outcome: the reader delivers the response, a caller that
// gives up returns its own error. So each call has one outcome, and an answer that came is never
// lost.
func (c *Conn) takeWaiter(id int64) *waiter {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.pending[id]
	delete(c.pending, id)
	return w
}

// send sends a message. Where that waits for the peer, it ends with ctx or with the outcome of the
// call.
func (c *Conn) send(ctx context.Context, m Outgoing) error {
	if m.Text == nil && (c.direct == nil || c.handler.Trace != nil) {
		text, err := m.Source.AppendText(make([]byte, 0, 512))
		if err != nil {
			return err
		}
		m.Text = text
	}
	c.trace(true, m.Text)
	if c.direct != nil {
		sent, err := c.direct.WriteNow(m)
		if sent || err != nil {
			return c.writeError(err)
		}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if m.ID != 0 && !c.stopWith(m.ID, cancel) {
		return ErrAnswered
	}
	return c.writeError(c.transport.Write(ctx, m))
}

// stopWith registers cancel: whoever delivers the outcome of the call calls it, which ends a Write
// that is stuck. It returns false if the outcome was delivered before.
func (c *Conn) stopWith(id int64, cancel context.CancelCauseFunc) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.pending[id]
	if w == nil {
		return false
	}
	w.stop = cancel
	return true
}

// writeError returns the error of a Write. After the end of the connection that is its cause.
func (c *Conn) writeError(err error) error {
	if err != nil && c.life.Err() != nil {
		return context.Cause(c.life)
	}
	return err
}

// conclude returns the outcome of a call. Nobody else knows the waiter any more, so another call
// may have it.
func (c *Conn) conclude(w *waiter, request Outgoing, o outcome) (json.RawMessage, error) {
	w.stop, w.result = nil, nil
	c.waiters.Put(w)
	if o.cancelled {
		c.abandon(request.ID, request.Method, o.err)
	}
	return o.result, o.err
}

// abandon lets the handler tell the peer that nobody waits any more, without keeping the caller. A
// peer that does not read is told nothing after ten seconds.
func (c *Conn) abandon(id int64, method string, cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.handler.Abandoned == nil || c.closed || c.life.Err() != nil {
		return
	}
	c.notices.Go(func() {
		ctx, cancel := context.WithTimeout(c.life, noticeTime)
		defer cancel()
		c.handler.Abandoned(ctx, c, id, method, cause)
	})
}

// Cancel ends the wait for the answer to one of our requests, whose Do returns the cause.
func (c *Conn) Cancel(id int64, cause error) {
	w := c.takeWaiter(id)
	if w != nil {
		w.deliver(outcome{err: cause, cancelled: true})
	}
}

// Done returns a channel that is closed when the connection has ended.
func (c *Conn) Done() <-chan struct{} { return c.life.Done() }

// Err returns nil before the connection has ended, then ErrClosed wrapped with the reason.
func (c *Conn) Err() error { return context.Cause(c.life) }

// Wait returns when the peer has sent its last message and each of its requests was answered:
// the end of a server. The error is nil if the end was orderly: io.EOF from Read, or our own Close.
func (c *Conn) Wait() error {
	c.work.Wait()
	err := c.Err()
	if err == ErrClosed || errors.Is(err, errPeerDone) {
		return nil
	}
	return err
}

// Close ends the connection and every wait on it, and returns when none of its goroutines is
// left. It must not be called from a Handler. Later calls return what the first one did.
func (c *Conn) Close() error { return c.close() }

func (c *Conn) closeOnce() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	// Handler.Abandoned may still tell the peer of cancelled calls. A peer that does not read
	// must not delay the end.
	grace := time.AfterFunc(noticeGrace, func() { c.finish(ErrClosed) })
	c.notices.Wait()
	grace.Stop()
	c.finish(ErrClosed)
	c.stopServe()
	err := c.transport.Close()
	c.work.Wait()
	return err
}

// finish ends the connection's life and every call's wait. As pending is nil from then on,
// register adds no other call: it looks at life while it holds mu.
func (c *Conn) finish(cause error) {
	c.end(cause)
	c.mu.Lock()
	pending := c.pending
	c.pending = nil
	c.mu.Unlock()
	for _, w := range pending {
		w.deliver(outcome{err: c.Err()})
	}
}

// readLoop is the only caller of transport.Read, and ends with it. It waits for nothing else: it
// never writes, and it delivers into channels that have room.
func (c *Conn) readLoop() {
	err := c.readMessages()
	if err == io.EOF {
		// The peer may have closed only its own side, as in printf … | server. It gets its
		// answers.
		err = errPeerDone
	} else {
		c.stopServe()
	}
	c.finish(fmt.Errorf("%w: %w", ErrClosed, err))
}

// readMessages reads until the transport fails, and returns its error. After the end of the
// connection it goes on reading, though nobody wants the messages: a peer that is stuck in a write
// would not come to its own end.
func (c *Conn) readMessages() error {
	for {
		message, err := c.transport.Read()
		if err != nil {
			return err
		}
		c.trace(false, message)
		if c.Err() == nil {
			c.dispatch(message)
		} else {
			c.skip(message, ErrClosed)
		}
	}
}

// dispatch takes one message, or each of a batch (MCP 2025-03-26, JSON-RPC 2.0, 6), to its place.
func (c *Conn) dispatch(message []byte) {
	message = bytes.TrimSpace(message)
	if !bytes.HasPrefix(message, []byte("[")) {
		c.dispatchOne(message)
		return
	}
	for _, m := range splitBatch(message) {
		c.dispatchOne(m)
	}
}

// dispatchOne takes one message to its place: an answer to the call that waits for it, a request
// to those that wait for a handler, a notification to its handler. What has no place is
// reported.
//
// When the scan of a message comes to a result, after the id of a call that waits, it takes that
// call's waiter: from then on this message is the answer, and the call's ResultReader may write
// what the caller will read.
func (c *Conn) dispatchOne(message []byte) {
	var in Incoming
	var w *waiter
	err := in.parse(message, func(id json.RawMessage) ResultReader {
		if w == nil {
			w = c.waiterOf(id)
		}
		if w == nil {
			return nil
		}
		return w.result
	})
	if w == nil && in.hasOutcome() {
		w = c.takeAnswered(&in, err)
	}
	switch {
	case w != nil:
		err = c.answer(w, &in, err)
	case in.IsResponse() && err == nil:
		shown := cmp.Or(string(in.ID), "null")
		err = fmt.Errorf("no request waits for a response with the id %s", shown)
	case err != nil:
		// It is reported below.
	case in.ID != nil:
		c.acceptRequest(&in)
	case c.handler.Notification != nil:
		c.handler.Notification(c, in.Method, in.Params)
	}
	if in.otherID != nil && in.hasOutcome() {
		c.endBoth(&in, err)
	}
	if err != nil {
		c.skip(message, err)
	}
}

func (c *Conn) skip(message []byte, reason error) {
	if c.handler.Skipped != nil {
		c.handler.Skipped(message, reason)
	}
}

// takeAnswered takes the waiter of the call that a message answers, nil if none waits. It reads the
// result for it: the id stood behind the result, so that nobody has read the result yet.
func (c *Conn) takeAnswered(in *Incoming, invalid error) *waiter {
	w := c.waiterOf(in.ID)
	if w != nil && invalid == nil && in.Error == nil && w.result != nil {
		w.result.ReadResult(&scanner{text: in.Result})
	}
	return w
}

// endBoth ends the calls of both ids of an answer: nobody can say which of them it answers, and no
// other message may end them.
func (c *Conn) endBoth(in *Incoming, invalid error) {
	for _, id := range []json.RawMessage{in.ID, in.otherID} {
		w := c.waiterOf(id)
		if w != nil {
			w.deliver(in.outcome(invalid))
		}
	}
}

// answer delivers an answer to its call, even if it is invalid: no other message will end the call.
// It returns the error that says why it is invalid.
func (c *Conn) answer(w *waiter, in *Incoming, invalid error) error {
	if invalid == nil && in.Method != "" {
		invalid = errors.New("it has a method")
	}
	w.deliver(in.outcome(invalid))
	return invalid
}

// waiterOf takes the waiter of the call that a response with this id answers, nil if none waits.
func (c *Conn) waiterOf(id json.RawMessage) *waiter {
	number, ok := IDNumber(id)
	if !ok {
		return nil
	}
	return c.takeWaiter(number)
}

func (c *Conn) trace(sent bool, text []byte) {
	if c.handler.Trace != nil {
		c.handler.Trace(sent, text)
	}
}
