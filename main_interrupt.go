// main_interrupt.go - what ends when the user, or the system, asks for it.
// SPDX-License-Identifier: 0BSD

package main

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
)

// interrupts says what a Ctrl-C, a SIGTERM or the end of the terminal ends. The first Ctrl-C in a
// chat ends its turn. The next one, or the first one elsewhere, ends the program in order: what is
// running is cancelled, and the servers are asked to end. One more ends all at once.
type interrupts struct {
	processes *processes
	terminal  *Terminal

	// turn ends the turn of a chat. It is nil when there is none, or it was interrupted.
	turn atomic.Pointer[context.CancelCauseFunc]
}

// watch begins to take signals: its goroutine never waits for what it ends, so that the next
// signal is taken at once. It goes on until the program ends. An interrupt ends ctx by cancel.
func (i *interrupts) watch(ctx context.Context, cancel context.CancelFunc) {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) {
		// Under nohup the program goes on when its terminal is closed.
		signal.Notify(signals, syscall.SIGHUP)
	}
	// A closed stdout (… | head) fails the write; it must not end the program before its servers.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	go func() {
		for s := range signals {
			turn := i.turn.Swap(nil)
			switch {
			case ctx.Err() != nil:
				i.processes.kill()
				i.terminal.Close()
				os.Exit(exitInterrupted)
			case turn != nil && s == os.Interrupt:
				(*turn)(ErrCancelled)
			default:
				cancel()
			}
		}
	}()
}

// processes are those of the servers, with those that have ended, for an interrupt that does not
// wait for them to end by themselves. They are added by any goroutine.
type processes struct{ started sync.Map } // from *Stdio to nil

func (p *processes) add(process *Stdio) { p.started.Store(process, nil) }

// kill ends all at once. It does nothing to a process that has ended.
func (p *processes) kill() {
	p.started.Range(func(process, _ any) bool {
		process.(*Stdio).Kill()
		return true
	})
}
