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

// interrupts says what a Ctrl-C, a SIGTERM or the end of the terminal ends.
//
// In a chat, a Ctrl-C ends the line that is being typed or carried out, and the chat goes on. Two
// in a row end the program: the second one comes while the line is still ending, or before the user
// has typed another line. Between them, a line that is not empty makes the next Ctrl-C a first one
// again: after Ctrl-C, a new question, Ctrl-C, only that question has ended. A Ctrl-C that gives a
// login up is not counted.
//
// Elsewhere the first Ctrl-C ends the program, as SIGTERM and SIGHUP do everywhere.
//
// The program ends in order: what is running is cancelled, and the servers are asked to end. One
// more signal meanwhile kills the servers, and ends the program at once.
type interrupts struct {
	processes *processes
	terminal  *Terminal

	// cancelLine ends the line of a chat. It is nil where the next Ctrl-C ends the program: outside
	// of a chat, and after a Ctrl-C. The chat sets it for each line (see chat.interruptible).
	cancelLine atomic.Pointer[context.CancelCauseFunc]
}

// watch begins to take signals. Its goroutine never waits for what it ends, so the next signal is
// taken at once; it goes on until the program ends. An interrupt that ends the program calls
// cancel, which ends ctx.
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
			cancelLine := i.cancelLine.Swap(nil)
			switch {
			case ctx.Err() != nil:
				i.processes.kill()
				i.terminal.Close()
				os.Exit(exitInterrupted)
			case cancelLine != nil && s == os.Interrupt:
				(*cancelLine)(ErrCancelled)
			default:
				cancel()
			}
		}
	}()
}

// processes are the processes of all servers that were started, for an interrupt that does not wait
// until they end by themselves. A process stays in the list when it has ended. Any goroutine may
// add one.
type processes struct{ started sync.Map } // from *Stdio to nil

func (p *processes) add(process *Stdio) { p.started.Store(process, nil) }

// kill kills all processes. It does nothing to a process that has ended.
func (p *processes) kill() {
	p.started.Range(func(process, _ any) bool {
		process.(*Stdio).Kill()
		return true
	})
}
