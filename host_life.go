// host_life.go - a server through all its starts, until it is closed.
// Needs: Go 1.25, json, rpc, lines, transport_stdio, transport_http, mcp, mistral, functions.
// SPDX-License-Identifier: 0BSD

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

var errRestart = errors.New("it is being started again")

const maxPause = time.Minute // before a start

// hosted is one server through all its starts. Nothing watches it: that it has ended is noticed by
// the next caller who needs it and has it started again. All who need it meanwhile wait for that
// one start.
//
// A start and a list each run on a goroutine of their own, which belongs to the Host: Close waits
// for it. Callers wait on the hostTask, and can leave at any time. There is one start at a time. A
// new one stops the one before it, and waits for its end before it connects, so that never two
// processes of a server run. There is one list at a time, too.
type hosted struct {
	Server
	options ClientOptions
	prefix  string          // of the names of its functions
	life    context.Context // the Host's
	work    *sync.WaitGroup // the Host's: counts all goroutines

	mu           sync.Mutex // guards the following; never held across I/O or a callback
	start        *hostTask  // the last one; nil before the first
	client       *Client    // of the start, once it was successful; else nil
	err          error      // why it is not running, or why its tools could not be listed
	listing      *hostTask  // nil if the tools are not being listed
	closed       bool       // no start may begin
	lastStart    time.Time  // when the last start was over, successful or not
	tries        int        // starts since a call that it survived, or since its first start
	starts       int        // all successful ones
	info         ServerInfo // of the last successful start
	tools        []HostTool // of the last list that could be read; replaced, never changed
	listTimedOut bool       // the last list had no answer in time
	calls        int        // calls under way
	abandoned    time.Time  // when the last call ended without an answer; zero if it was answered

	warnedOfUnfit string // the last warning about tools that cannot be offered
	warnedOfNames string // the last warning about tools that there are not
}

// hostTask is one start, or one list of the tools, for all who wait for it.
type hostTask struct {
	begins time.Time               // later than now while there is a pause before a start
	stop   context.CancelCauseFunc // ends a start; nil for a list
	done   chan struct{}           // closed when the following are set
	client *Client                 // of a start that was successful
	err    error                   // of a start that was not
}

// wait waits for a task, which goes on for others when ctx ends.
func (t *hostTask) wait(ctx context.Context) (*Client, error) {
	select {
	case <-t.done:
		return t.client, t.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// runningClient returns a client of the server, which it starts if it is not running.
func (s *hosted) runningClient(ctx context.Context) (*Client, error) {
	start, _ := s.beginStarting()
	return start.wait(ctx)
}

// beginStarting starts the server if it is not running, and returns the start, which may be over.
func (s *hosted) beginStarting() (start *hostTask, isAwaited bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	start = s.currentStart()
	return start, s.state().isAwaited()
}

// currentStart returns the start of a server that is running or starting, or else begins one. A
// server that keeps failing is tried again without end, after a pause that grows.
//
// The caller holds s.mu.
func (s *hosted) currentStart() *hostTask {
	if !s.isRunning() && !s.isStarting() {
		at := s.lastStart.Add(pauseAfter(s.tries))
		s.tries++
		s.beginStart(at)
	}
	return s.start
}

// pauseAfter returns the pause after so many tries: 0, 1, 2, 4, … seconds, and at most a minute,
// which is maxPause.
func pauseAfter(tries int) time.Duration {
	if tries == 0 {
		return 0
	}
	doublings := min(tries-1, 10)
	return min(time.Second<<doublings, maxPause)
}

// isStarting reports whether a start is under way. The caller holds s.mu.
func (s *hosted) isStarting() bool {
	if s.start == nil {
		return false
	}
	select {
	case <-s.start.done:
		return false
	default:
		return true
	}
}

// isRunning reports whether the server is running. If it has ended by itself, this is where that is
// noticed, and the reason is kept.
//
// The caller holds s.mu.
func (s *hosted) isRunning() bool {
	if s.client == nil {
		return false
	}
	if end := s.client.Err(); end != nil {
		s.err = end
		return false
	}
	return true
}

// restart begins a start without a pause, which ends the server if it is running.
func (s *hosted) restart() *hostTask {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tries = 1
	s.beginStart(time.Time{})
	return s.start
}

// beginStart begins a start, though not before the given time. It ends the start before it, and the
// server that this one started. After Close it fails at once.
//
// The caller holds s.mu.
func (s *hosted) beginStart(at time.Time) {
	if now := time.Now(); at.Before(now) {
		at = now
	}
	ctx, stop := context.WithCancelCause(s.life)
	start := &hostTask{begins: at, stop: stop, done: make(chan struct{})}
	previous := s.start
	s.start = start
	s.client = nil
	s.listTimedOut = false
	if s.closed {
		start.err = ErrClosed
		close(start.done)
		stop(nil)
		return
	}
	s.work.Go(func() {
		defer stop(nil)
		// The end of the server before can take some seconds. Who waits for the new start waits for
		// that, too: two processes would, for example, write the same file.
		if previous != nil {
			previous.end()
		}
		select {
		case <-time.After(time.Until(at)):
			start.client, start.err = s.connect(ctx)
		case <-ctx.Done():
			start.err = context.Cause(ctx)
		}
		ended := s.finishStart(start)
		if ended != nil && s.options.Warn != nil {
			s.options.Warn(fmt.Sprintf("it was started again, as it had ended: %v", ended))
		}
	})
}

// end ends a start, and the server that it started. Also a server that has ended by itself is
// closed: what is left of it, such as a grandchild, may be in the way of the next one.
func (t *hostTask) end() {
	t.stop(errRestart)
	client, _ := t.wait(context.Background())
	if client != nil {
		_ = client.Close()
	}
}

// finishStart keeps the outcome of a start. If the server runs again, it returns why it had ended.
//
// Where another start has begun since, the outcome belongs to the past: the newer start, which
// waits for the end of this one, closes the client, and its outcome will be that of the server.
func (s *hosted) finishStart(start *hostTask) (ended error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer close(start.done)
	if s.start != start {
		return nil
	}
	s.lastStart = time.Now()
	s.client = start.client
	endOfLast := s.err
	s.err = start.err
	if start.err != nil {
		return nil
	}
	s.info = s.client.Server
	s.abandoned = time.Time{}
	s.starts++
	// Only the first start proves that the server is well. A server that starts well and ends with
	// the first call, again and again, is to have pauses that grow.
	if s.starts == 1 {
		s.tries = 0
		endOfLast = nil
	}
	if s.info.Stateless() && s.info.ListChanged("tools") {
		s.work.Go(func() { s.listenForTools(start.client) })
	}
	return endOfLast
}

// status describes the server for Host.Status.
func (s *hosted) status() HostStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.state()
	status := HostStatus{
		Name:     s.Name,
		Prefix:   s.prefix,
		Running:  s.isRunning(),
		Starting: s.isStarting(),
		Retry:    s.lastStart.Add(pauseAfter(s.tries)),
		Info:     s.info,
		Tools:    len(s.tools),
		Restarts: max(0, s.starts-1),
		tools:    s.tools,
	}
	if s.isStarting() {
		status.Retry = s.start.begins
	} else if s.start != nil {
		status.Took = s.lastStart.Sub(s.start.begins)
	}
	// Why a server failed says more than that it is being started again.
	switch {
	case s.err != nil:
		status.Err = s.err
	case state == stateClosed:
		status.Err = ErrClosed
	case s.isStarting():
		status.Err = ErrStarting
	case state == stateListing && s.tools == nil:
		status.Err = ErrListing
	}
	return status
}

// close ends the server, and returns when its process is gone. The Host's life has ended before,
// and with it a start under way, whose outcome comes soon. It may be a client all the same.
func (s *hosted) close() error {
	s.mu.Lock()
	s.closed = true
	start := s.start
	s.mu.Unlock()
	if start == nil {
		return nil
	}
	client, _ := start.wait(context.Background())
	if client == nil {
		return nil
	}
	return client.Close()
}
