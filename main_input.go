// main_input.go - what a run reads beside its arguments: stdin, and files that arguments name.
// SPDX-License-Identifier: 0BSD

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

const (
	maxInput    = 4 << 20         // bytes of stdin: more than a model reads
	quietPeriod = 3 * time.Second // before the user is told that stdin is read
)

// isPiped reports whether stdin is a pipe or a file, which may have text: not a terminal, not a device such as
// /dev/null, and not closed.
func isPiped() bool {
	info, err := os.Stdin.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice == 0
}

// readStdin reads stdin to its end, which another process may hold open: the user is told after a while, and ctx and
// MCP_TIMEOUT end the wait.
func (p *program) readStdin(ctx context.Context) (string, error) {
	note := time.AfterFunc(quietPeriod, func() {
		if !p.terminal.Interactive() {
			p.note("waiting for the end of stdin, whose text is read; </dev/null gives none")
		}
	})
	defer note.Stop()
	ctx, cancel := context.WithTimeoutCause(ctx, p.timeout, usageError("stdin did not end within %s", p.timeout))
	defer cancel()
	return readAll(ctx, os.Stdin)
}

// readArgument returns the text of an argument that may be - or @- for stdin, or @FILE.
func (p *program) readArgument(ctx context.Context, argument string) (string, error) {
	path, isFile := strings.CutPrefix(argument, "@")
	switch {
	case path == "-":
		return p.readStdin(ctx)
	case !isFile:
		return argument, nil
	}
	text, err := os.ReadFile(path)
	return string(text), err
}

// readAll reads to the end, or gives up with ctx.
func readAll(ctx context.Context, r io.Reader) (string, error) {
	var all []byte
	err := whileReading(ctx, func() (err error) {
		all, err = io.ReadAll(io.LimitReader(r, maxInput+1))
		return err
	})
	switch {
	case err != nil:
		return "", err // the read may go on
	case len(all) > maxInput:
		return "", fmt.Errorf("stdin has more than %d MiB: give a part of it", maxInput>>20)
	}
	return string(all), nil
}

// whileReading does what reads, or gives up with ctx: a blocked read stays behind, as the program is about to end.
func whileReading(ctx context.Context, do func() error) error {
	done := make(chan error, 1)
	go func() { done <- do() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
