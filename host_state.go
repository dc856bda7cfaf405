// host_state.go - the states of a server, and for which of them callers wait.
// Needs: Go 1.25, json, rpc, lines, transport_stdio, transport_http, mcp, mistral, functions.
// SPDX-License-Identifier: 0BSD

package main

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"time"
)

// ErrStarting is the state of a server whose first start is under way, and ErrListing that of one
// that has not yet answered tools/list.
var (
	ErrStarting = errors.New("it is still starting")
	ErrListing  = errors.New("it is running, and has not yet listed its tools")
)

// hostedState is the state of a server. The state follows from what is under way and how the last
// attempts ended; hosted.state works it out. Callers move it along: the first who needs a server
// begins its start, and one who needs its tools has them listed after that.
//
//	notStarted ──> starting ──> listing ──> ready <──> busy
//	                  │  ^         │  ^       │
//	                  v  │         v  │       │ the process ends
//	                failed ──> startingAgain  │
//	                  ^                       │
//	                  └───────────────────────┘
//
// A server that fails goes to failed from everywhere. It leaves failed when somebody needs it:
// to starting if it was well before, to startingAgain if its last start had failed, too.
// A server whose list has no answer in time runs on, but its next list is listingAgain.
type hostedState int

const (
	stateNotStarted    hostedState = iota // nobody has needed it yet
	stateStarting                         // a start is under way; there is no failed one before it
	stateStartingAgain                    // the same, or its pause, after a failed start
	stateListing                          // it runs, and is being asked for its tools
	stateListingAgain                     // the same, after a list without an answer
	stateReady                            // it runs, and nothing is under way
	stateBusy                             // it works on a call, or may still do so
	stateFailed                           // it ended or did not start; nobody has needed it since
	stateClosed                           // the Host is closed
)

// isAwaited reports whether callers wait for what a server in this state has under way. They do if
// it is likely to succeed soon. A server that failed at the same the last time is tried again
// beside what the callers do.
func (state hostedState) isAwaited() bool {
	return state == stateStarting || state == stateListing
}

const (
	patience = 10 * time.Second // with a server that is slow while others are ready
	noEnd    = time.Duration(math.MaxInt64)
	busyTime = 5 * time.Minute // for which a server may work on a call that was given up
)

// state works out the state of the server. The caller holds s.mu.
func (s *hosted) state() hostedState {
	running := s.isRunning()
	switch {
	case s.closed:
		return stateClosed
	case s.isStarting() && s.tries > 1:
		return stateStartingAgain
	case s.isStarting():
		return stateStarting
	case s.start == nil:
		return stateNotStarted
	case s.listing != nil && s.listTimedOut:
		return stateListingAgain
	case s.listing != nil:
		return stateListing
	case !running:
		return stateFailed
	case s.tools != nil && s.mayWork():
		return stateBusy
	}
	return stateReady
}

// mayWork reports whether the server works on a call, or may still work on one that its caller has
// given up: not every server stops when it is told that a call is cancelled.
//
// The caller holds s.mu.
func (s *hosted) mayWork() bool {
	return s.calls > 0 || time.Since(s.abandoned) < busyTime
}

// await begins a task of each server, and waits for the tasks by the one rule that there is:
//
//   - What a server does that is not awaited (hostedState.isAwaited) is not waited for.
//   - Each of the others is waited for until `patience` after its task began. So a caller who comes
//     later waits less.
//   - If then no server is ready, the first that becomes ready is enough. If none does, the wait is
//     over when all that are awaited have ended.
//
// begin returns no task if there is nothing to wait for. The error is the cause of ctx.
func await(
	ctx context.Context,
	servers []*hosted,
	patience time.Duration,
	begin func(*hosted) (task *hostTask, isAwaited bool),
) error {
	var tasks, awaited []*hostTask
	for _, s := range servers {
		task, isAwaited := begin(s)
		if task == nil {
			continue
		}
		tasks = append(tasks, task)
		if isAwaited {
			awaited = append(awaited, task)
		}
	}
	for _, task := range awaited {
		inTime, stop := context.WithDeadline(ctx, task.begins.Add(patience))
		_, _ = task.wait(inTime)
		stop()
	}
	awaitFirst(ctx, servers, tasks, awaited)
	return context.Cause(ctx)
}

// awaitFirst returns when one of the servers is ready, or when all awaited tasks, or ctx, have
// ended. Any of the tasks may make its server ready, also one that is not awaited. The goroutines
// that wait for them end before awaitFirst does.
func awaitFirst(ctx context.Context, servers []*hosted, tasks, awaited []*hostTask) {
	var goroutines sync.WaitGroup
	defer goroutines.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan *hostTask, len(tasks))
	for _, task := range tasks {
		goroutines.Go(func() {
			_, _ = task.wait(ctx)
			ended <- task
		})
	}
	isReady := func(s *hosted) bool { return s.status().Err == nil }
	awaitedLeft := len(awaited)
	for awaitedLeft > 0 && !slices.ContainsFunc(servers, isReady) {
		// Every task comes here once: when it ends, when ctx does, or at once if it is over. Any of
		// them is a reason to look again; only the awaited ones are counted.
		task := <-ended
		if slices.Contains(awaited, task) {
			awaitedLeft--
		}
	}
}
