// rpc_serve.go - answering the requests of the peer.
// Needs: Go 1.25, json.
// SPDX-License-Identifier: 0BSD

package main

import (
	"context"
	"encoding/json"
	"fmt"
)

// Bounds on what a peer can make this side hold at once.
const (
	maxServing = 32       // goroutines that answer the requests of one queue
	maxWaiting = 32 << 20 // bytes of the requests that wait; a peer that sends more is cut off

	// servedSize is what a request that waits takes beside its text, in bytes: about what its
	// ctx, its place in a queue and in a map take. A peer can send many that are short.
	servedSize = 512
)

// requestQueues are the requests of the peer that have no answer yet. Conn.mu guards them.
//
// A request waits in one of two queues, in the order of the wire, until a worker takes it. Each
// queue has workers of its own, so that a ping is answered while all handlers of the others
// wait, perhaps for a person. A worker is a goroutine in serveRequests. One is started for a
// request when fewer than maxServing are at work, and it ends when its queue is empty.
//
// The reader must not wait for the workers, so what waits is bounded in another way: a peer whose
// requests take more than maxWaiting bytes is cut off. Such a peer does not read its answers, so
// that no worker gets free, or it sends faster than the workers can answer.
type requestQueues struct {
	unanswered   map[string]*served // those that wait and those at work, by id as it was written
	ordinary     requestQueue       // those that Handler.Immediate does not name
	immediate    requestQueue       // those that it names
	waitingBytes int                // of the requests that wait in either queue; see served.size
}

// requestQueue is a queue of requests, and the number of its workers.
type requestQueue struct {
	waiting []*served // no worker has taken them yet
	workers int       // goroutines in serveRequests
}

// served is one request of the peer.
type served struct {
	Incoming
	ctx    context.Context // ends with cancel
	cancel context.CancelFunc
}

func (s *served) size() int { return len(s.text) + servedSize }

// addRequest puts a request into a queue. It returns false if those before it, which wait, already
// take more than they may. How long the request itself is does not count: the transport bounds it.
func (r *requestQueues) addRequest(q *requestQueue, s *served) bool {
	if r.waitingBytes > maxWaiting {
		return false
	}
	// A peer that uses an id twice can cancel only the later of the two requests.
	r.unanswered[string(s.ID)] = s
	q.waiting = append(q.waiting, s)
	r.waitingBytes += s.size()
	return true
}

// takeRequest returns the request that has waited longest, nil if none waits.
func (r *requestQueues) takeRequest(q *requestQueue) *served {
	if len(q.waiting) == 0 {
		return nil
	}
	s := q.waiting[0]
	// The array of the slice must not keep the request from the garbage collector.
	q.waiting[0] = nil
	q.waiting = q.waiting[1:]
	r.waitingBytes -= s.size()
	return s
}

// removeRequest forgets a request that is about to be answered. Its id may stand for a later
// request by now, which stays.
func (r *requestQueues) removeRequest(s *served) {
	if r.unanswered[string(s.ID)] == s {
		delete(r.unanswered, string(s.ID))
	}
}

// acceptRequest takes a request of the peer, or ends the connection if too many of them wait. No
// error is sent then, as the peer most likely does not read.
func (c *Conn) acceptRequest(in *Incoming) {
	if !c.queueRequest(in) {
		c.stopServe()
		c.finish(fmt.Errorf("%w: more than %d MiB of the peer's requests wait: it sends too many, "+
			"or does not read the answers", ErrClosed, maxWaiting>>20))
	}
}

// queueRequest puts a request into its queue, and starts another worker for it if there may be
// one. It returns false when too many requests wait.
func (c *Conn) queueRequest(in *Incoming) bool {
	isImmediate := c.handler.Immediate != nil && c.handler.Immediate(in.Method)
	ctx, cancel := context.WithCancel(c.serve)
	s := &served{Incoming: *in, ctx: ctx, cancel: cancel}
	c.mu.Lock()
	defer c.mu.Unlock()
	q := &c.requests.ordinary
	if isImmediate {
		q = &c.requests.immediate
	}
	if !c.requests.addRequest(q, s) {
		cancel()
		return false
	}
	if q.workers < maxServing {
		q.workers++
		c.work.Go(func() { c.serveRequests(q) })
	}
	return true
}

// serveRequests answers requests of a queue, one after the other. It ends when none waits, and
// Close waits for it. It waits for handlers and for writes, so that a peer that does not read
// holds up its own requests alone.
func (c *Conn) serveRequests(q *requestQueue) {
	for {
		s := c.nextRequest(q)
		if s == nil {
			return
		}
		result, err := c.handleRequest(s)
		c.respond(s, result, err)
		s.cancel()
	}
}

// nextRequest returns the next request for a worker. Where none waits it returns nil: the worker
// does not count any more, and must end.
func (c *Conn) nextRequest(q *requestQueue) *served {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.requests.takeRequest(q)
	if s == nil {
		q.workers--
	}
	return s
}

// handleRequest returns the answer to a request. One that was cancelled while it waited is not
// begun; respond sends nothing for it.
func (c *Conn) handleRequest(s *served) (any, error) {
	if err := s.CheckID(); err != nil {
		return nil, err
	}
	switch {
	case c.handler.Request == nil:
		return nil, &Error{Code: CodeMethodNotFound, Message: "method not found: " + s.Method}
	case s.ctx.Err() != nil:
		return nil, context.Cause(s.ctx)
	}
	return c.handler.Request(s.ctx, c, s.Method, s.Params)
}

// respond sends an answer, unless the request was cancelled. A failed write is not reported:
// nobody waits for it.
func (c *Conn) respond(s *served, result any, err error) {
	// From now on the request cannot be cancelled.
	c.mu.Lock()
	c.requests.removeRequest(s)
	c.mu.Unlock()
	if s.ctx.Err() != nil {
		return
	}
	message, invalid := EncodeResponse(s.ID, result, err)
	if invalid != nil {
		err = fmt.Errorf("the result cannot be encoded: %w", invalid)
		message, _ = EncodeResponse(s.ID, nil, err)
	}
	_ = c.send(c.serve, Outgoing{Text: message})
}

// CancelRequest ends the ctx of the peer's request with that id, if it has no answer yet, and
// keeps one from being sent. The id is JSON as the peer wrote it.
func (c *Conn) CancelRequest(id json.RawMessage) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.requests.unanswered[string(id)]
	if s != nil {
		s.cancel()
	}
}
