// host_start.go - how long the start of a server may take.
// Needs: Go 1.25, json, rpc, lines, transport_stdio, transport_http, mcp, mistral, functions.
// SPDX-License-Identifier: 0BSD

package main

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"sync/atomic"
	"time"
)

// StartTimeoutError reports that a server did not start in time. It wraps context.DeadlineExceeded.
type StartTimeoutError struct {
	After  time.Duration
	Stderr string // an excerpt; see Stdio.Stderr
}

func (e *StartTimeoutError) Error() string {
	text := fmt.Sprintf("the server did not start within %s", e.After)
	if e.Stderr != "" {
		text += ", stderr: " + e.Stderr
	}
	return text
}

func (e *StartTimeoutError) Unwrap() error { return context.DeadlineExceeded }

const (
	startTime = 30 * time.Second // Server.StartTimeout if 0
	slowStart = 5 * time.Minute  // the same, for a server that may still be downloaded
)

// stderrOf is what tells of the stderr of a process. Stdio does.
type stderrOf interface {
	Stderr() (excerpt string, lastWrite time.Time)
}

// connect starts the server, in the time that it has for it. s.limitStart measures that time beside
// the start, and ends the start's ctx when it is over. How long it is depends on what the process
// writes to stderr, so the process is handed over as soon as it runs.
func (s *hosted) connect(ctx context.Context) (*Client, error) {
	inTime, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	server := s.Server
	start := server.Start
	if start == nil && server.URL == "" {
		start = server.Command.Start
	}
	var process atomic.Pointer[stderrOf] // nil until it runs, and for what has no stderr
	if start != nil {
		server.Start = func(ctx context.Context) (Transport, error) {
			transport, err := start(ctx)
			if child, ok := transport.(stderrOf); ok {
				process.Store(&child)
			}
			return transport, err
		}
	}
	s.work.Go(func() { s.limitStart(inTime, cancel, &process) })
	return server.Connect(inTime, s.options)
}

// packageRunner matches the commands that may have to download the server first.
var packageRunner = regexp.MustCompile(
	`(^|[/\\])(bunx?|docker|npm|npx|pipx|pnpm|pnpx|podman|uvx?|yarn)(\.\w+)?$`)

// limitStart ends a start that takes too long. A start that has had its time gets more of it where
// it is likely to succeed; see extendedLimit. limitStart returns when inTime has ended.
func (s *hosted) limitStart(
	inTime context.Context,
	cancel context.CancelCauseFunc,
	process *atomic.Pointer[stderrOf],
) {
	begun := time.Now()
	limit := cmp.Or(s.StartTimeout, startTime)
	toldOfSlowStart := false
	isOver := make(chan struct{}, 1)
	for {
		timer := AfterLimit(time.Until(begun.Add(limit)), func() { isOver <- struct{}{} })
		select {
		case <-isOver:
		case <-inTime.Done():
			timer.Stop()
			return
		}
		var excerpt string
		var lastWrite time.Time
		if child := process.Load(); child != nil {
			excerpt, lastWrite = (*child).Stderr()
		}
		extended := s.extendedLimit(lastWrite.Sub(begun))
		if extended <= limit {
			cancel(&StartTimeoutError{limit, excerpt})
			return
		}
		limit = extended
		if s.OnSlowStart != nil && !toldOfSlowStart {
			s.OnSlowStart(slowStart)
			toldOfSlowStart = true
		}
	}
}

// extendedLimit returns how long a start may take in all, once it has had its first time. A package
// runner may be downloading the server, in silence. A server that writes to stderr may be loading
// something: it has startTime after its last write, and slowStart at most. lastWrite is measured
// from the beginning of the start. This limit is rounded down to 5 s, so that the line which nearly
// every server writes at once (say after 0.2 s) does not make it 30.2 s, which would count as an
// extension. A time that the user has set is not extended.
func (s *hosted) extendedLimit(lastWrite time.Duration) time.Duration {
	switch {
	case s.StartTimeout != 0:
		return s.StartTimeout
	case packageRunner.MatchString(s.Command.Path):
		return slowStart
	}
	return min(lastWrite+startTime, slowStart).Truncate(5 * time.Second)
}
