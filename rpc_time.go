// rpc_time.go - time limits that leave an answer that is here its turn.
// Needs: Go 1.25, json.
// SPDX-License-Identifier: 0BSD

package main

import (
	"context"
	"time"
)

// A process can be stopped for longer than a time limit: by SIGSTOP, by Ctrl-Z, by a debugger, by a
// machine that has no processor for it. Its clock runs on. Only while a laptop sleeps do the clocks
// of Linux and macOS stop, too; that of Windows runs on. When the process goes on, all its timers
// ring at once, before anybody has read what came meanwhile. An answer that waits in the pipe would
// be lost to a limit that was over only because nobody could read.
//
// So a limit that rings later than planned gives those who read a moment before it counts.

const (
	lateRing   = time.Millisecond       // a timer that rings so late may follow a stop
	lastChance = 250 * time.Millisecond // to read what is here
)

// AfterLimit is time.AfterFunc for a time limit: f runs when d has passed, and if the process was
// stopped meanwhile, a moment later. In that moment Stop comes too late, so f must do no harm when
// what it limits has ended.
func AfterLimit(d time.Duration, f func()) *time.Timer {
	planned := time.Now().Add(d)
	return time.AfterFunc(d, func() {
		isLate := time.Since(planned) > lateRing
		for isLate {
			// The process may be stopped again in this moment, which then takes much longer.
			begun := time.Now()
			time.Sleep(lastChance)
			isLate = time.Since(begun) > 2*lastChance
		}
		f()
	})
}

// WithLimit is context.WithTimeoutCause with AfterLimit. The ctx's Err is context.Canceled in any
// case: the cause tells that the time was over.
func WithLimit(
	ctx context.Context, d time.Duration, cause error,
) (context.Context, context.CancelFunc) {
	ctx, end := context.WithCancelCause(ctx)
	timer := AfterLimit(d, func() { end(cause) })
	return ctx, func() {
		timer.Stop()
		end(context.Canceled)
	}
}
