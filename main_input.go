// main_input.go - the texts that a run reads from stdin, and from the files that arguments name.
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

// A text that was written on Windows may begin with a byte order mark, which is left out.

const maxInput = 4 << 20 // bytes of stdin: more than a model reads

// textInput reads stdin, where that is not the terminal, and the files of arguments.
type textInput struct {
	settings *serverSettings // has the time that stdin may take: MCP_TIMEOUT
	output   *output
	terminal *Terminal
}

// isPiped reports whether stdin is a pipe or a file, which may have text. It is false for a
// terminal, for a device such as /dev/null, and where stdin is closed.
func isPiped() bool {
	info, err := os.Stdin.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice == 0
}

// all reads stdin to its end. Another process may hold it open: a script that is run by cron or ssh
// often inherits a pipe that nobody writes to. So the user is told after a while, and ctx and
// MCP_TIMEOUT end the wait.
func (in *textInput) all(ctx context.Context, stdin io.Reader) (string, error) {
	note := time.AfterFunc(3*time.Second, func() {
		if !in.terminal.Interactive() {
			in.output.note("still reading stdin, until its end; add </dev/null " +
				"if it is not meant as input")
		}
	})
	defer note.Stop()
	limit := in.settings.timeout
	late := usageError("stdin did not end within %s", limit)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, late)
	defer cancel()
	var text []byte
	err := WhileBlocked(ctx, func() (err error) {
		text, err = io.ReadAll(io.LimitReader(stdin, maxInput+1))
		return err
	})
	if err != nil {
		// The read may go on, so text is not touched.
		return "", err
	}
	if len(text) > maxInput {
		return "", fmt.Errorf("stdin has more than %d MiB: pass less text", maxInput>>20)
	}
	return string(withoutBOM(text)), nil
}

// argument returns the text of an argument that may be - or @- for stdin, or @FILE.
func (in *textInput) argument(ctx context.Context, text string) (string, error) {
	path, isFile := strings.CutPrefix(text, "@")
	if path == "-" {
		return in.all(ctx, os.Stdin)
	}
	if !isFile {
		return text, nil
	}
	content, err := ReadNamed(ctx, path)
	return string(content), err
}
