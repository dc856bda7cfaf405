// mcp_time.go - how long a request may take.
// Needs: Go 1.25, json, rpc.
// SPDX-License-Identifier: 0BSD

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"
)

// minRing is the least time between two rings of the timer. With a Timeout of a nanosecond the
// timer would otherwise keep a processor busy.
const minRing = time.Millisecond

// TimeoutError reports that a request had no answer in time. It wraps context.DeadlineExceeded.
type TimeoutError struct {
	After time.Duration // since the request, or its last progress
	Total bool          // ClientOptions.MaxTimeout was reached, progress or not
}

func (e *TimeoutError) Error() string {
	if e.Total {
		return fmt.Sprintf("not done after %s in all", e.After)
	}
	return fmt.Sprintf("no answer and no progress for %s", e.After)
}

func (e *TimeoutError) Unwrap() error { return context.DeadlineExceeded }

// inFlight holds the requests that wait for their answers, and ends those whose time is up.
//
// A request may take Timeout without a sign of life, and MaxTimeout in all. Each progress
// notification starts Timeout anew (MCP 2025-11-25, basic, lifecycle, timeouts). While the server
// waits for the answer to a question of its own, no request expires by Timeout: the server cannot
// go on before it has our reply.
//
// One timer serves all requests, as a timer for each request would cost more than the rest of a
// call. The timer rings at the earliest deadline that is known when it is set, and at the latest
// after Timeout. A request that is sent in between cannot expire earlier, so the timer never rings
// too late. If this process was stopped, an answer that came meanwhile is read before the timer
// counts; see AfterLimit.
type inFlight struct {
	conn       *Conn
	timeout    time.Duration
	maxTimeout time.Duration

	// mu guards the following, and the deadlines of the requests. It is never held across I/O or
	// while a report runs. It is taken before Conn's.
	mu        sync.Mutex
	requests  map[int64]*request // by id, which is also the progress token
	questions int                // the number of the server's questions that are being answered
	begun     int                // requests since none was in flight
	asked     int                // requests of the server that were answered since then
	timer     *time.Timer
	stopped   bool
}

// start starts the timer, which runs until stop.
func (f *inFlight) start(conn *Conn, options ClientOptions) {
	// A timer with a very short time rings before AfterFunc has returned. With mu held, it waits
	// until f.timer is set (TestShortestTimeout).
	f.mu.Lock()
	defer f.mu.Unlock()
	f.conn = conn
	f.timeout, f.maxTimeout = options.Timeout, options.MaxTimeout
	f.requests = make(map[int64]*request)
	f.timer = AfterLimit(f.timeout, f.ring)
}

func (f *inFlight) stop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stopped = true
	f.timer.Stop()
}

// addRequest starts the time of a request that is about to be sent.
func (f *inFlight) addRequest(r *request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.requests) == 0 {
		f.begun, f.asked = 0, 0
	}
	if r.method != "tasks/get" {
		// The polls of a task belong to its call.
		f.begun++
	}
	now := time.Now()
	r.deadline = now.Add(f.timeout)
	r.limit = now.Add(f.maxTimeout)
	r.progress = nil
	f.requests[r.id] = r
}

// mayAsk counts a request of the server, and reports whether it may be answered. Each of our
// requests allows so many. In the handshake era nothing says for which of them the server asks, so
// those that are in flight together share what they allow.
func (f *inFlight) mayAsk(most int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.asked >= most*max(f.begun, 1) {
		return false
	}
	f.asked++
	return true
}

// removeRequest ends the time of a request, and returns when no report about it is under way.
func (f *inFlight) removeRequest(r *request) {
	f.mu.Lock()
	delete(f.requests, r.id)
	f.mu.Unlock()
	// A report that found the request before it was deleted holds this lock until it is done.
	r.reporting.Lock()
	r.reporting.Unlock()
}

// ring ends the requests whose time is up, and sets the timer to the next deadline. The timer calls
// it, on a goroutine that nobody waits for: it must not block.
func (f *inFlight) ring() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stopped {
		return
	}
	serverWaits := f.questions > 0
	now := time.Now()
	next := now.Add(f.timeout)
	for id, r := range f.requests {
		if serverWaits && !r.deadline.After(now) {
			r.deadline = now.Add(f.timeout)
		}
		expires := earlier(r.deadline, r.limit)
		switch {
		case expires.After(now):
			next = earlier(next, expires)
		case expires.Equal(r.limit):
			f.expire(r, id, &TimeoutError{After: f.maxTimeout, Total: true})
		default:
			f.expire(r, id, &TimeoutError{After: f.timeout})
		}
	}
	f.timer = AfterLimit(max(next.Sub(now), minRing), f.ring)
}

// expire ends a request whose time is up. The wait for a task is no request that has an answer, and
// ends in its own way.
func (f *inFlight) expire(r *request, id int64, err *TimeoutError) {
	if r.expire != nil {
		r.expire(err)
		return
	}
	f.conn.Cancel(id, err)
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// reportProgress takes a notification of progress, on the reader. It gives the request more time
// and reports the progress, unless the request has returned meanwhile.
func (f *inFlight) reportProgress(token json.RawMessage, progress Progress) {
	// The token is the id of our request. Some servers send the id 1 back as "1" or 1.0: IDNumber
	// reads all three.
	id, _ := IDNumber(token)
	f.mu.Lock()
	r := f.requests[id]
	isNews := r != nil && r.isNews(&progress)
	f.mu.Unlock()
	switch {
	case isNews:
		f.signOfLife(r, &progress)
	case r != nil:
		f.signOfLife(r, nil)
	}
}

// signOfLife gives a request more time, and reports the progress, which may be nil.
func (f *inFlight) signOfLife(r *request, progress *Progress) {
	f.mu.Lock()
	if f.requests[r.id] != r {
		f.mu.Unlock()
		return
	}
	r.deadline = time.Now().Add(f.timeout)
	// The lock of the request is taken before mu is released, so that removeRequest cannot pass in
	// between.
	r.reporting.Lock()
	defer r.reporting.Unlock()
	f.mu.Unlock()
	if r.report != nil && progress != nil {
		r.report(*progress)
	}
}

// questionBegins stops the time of all requests: any of them may be the one for which the server
// needs our reply.
func (f *inFlight) questionBegins() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.questions++
}

// questionEnds gives all requests their full time, as the server goes on only now.
func (f *inFlight) questionEnds() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.questions--
	for _, r := range f.requests {
		r.deadline = time.Now().Add(f.timeout)
	}
}
