// main_output.go - the output of a run: results on stdout or in files, and notes on stderr.
// SPDX-License-Identifier: 0BSD

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
)

// The exit statuses, but for 0: all is done. The function that finds a failure gives its error one
// of them by exitWith; output.end takes exitStart for any other error.
const (
	exitStart       = 1   // a server, or the program itself, could not be started or configured
	exitUsage       = 2   // the command line is not understood
	exitTool        = 3   // a call, read or prompt failed, or -o had nothing to save
	exitModel       = 4   // the model failed, or its answer is not whole
	exitInterrupted = 130 // the user ended the program
)

// exitError is an error with the status that the program ends with.
type exitError struct {
	status int
	error
}

func (e *exitError) Unwrap() error { return e.error }

func exitWith(status int, format string, args ...any) error {
	return &exitError{status, fmt.Errorf(format, args...)}
}

func usageError(format string, args ...any) error {
	return exitWith(exitUsage, format+" (see: mcpagent help)", args...)
}

// maxShown bounds an error or a note of the program, in columns: it may hold the text of a server.
const maxShown = 2000

// output takes the results and the messages of a run. The Screen masks the secrets in all that is
// shown or printed. A result in a file of -o is as the server gave it, with its secrets.
type output struct {
	settings    *outputSettings
	screen      *Screen
	inChat      bool // a chat goes on while a server starts, or waits for a login
	files       resultFiles
	temporary   TempFiles
	printedJSON bool    // there is JSON on stdout, so an error needs none
	report      *report // of the question, which -json prints with an error; nil if there was none

	isIncomplete atomic.Bool // something was lost that does not end the run; see lose
}

// note tells the user something in passing.
func (o *output) note(format string, args ...any) {
	if !o.settings.quiet {
		o.warn(format, args...)
	}
}

// warn tells the user something that they need to know also with -q.
func (o *output) warn(format string, args ...any) {
	o.screen.Show(Look{Max: maxShown}, fmt.Sprintf(format, args...))
}

// lose tells the user that something could not be written, without which the run goes on. Its exit
// status will say so, too.
func (o *output) lose(err error) {
	o.warn("%v", err)
	o.isIncomplete.Store(true)
}

// say shows what the program itself says in a chat, such as the answer to a command.
func (o *output) say(format string, args ...any) {
	o.screen.Show(Look{Style: Faint}, fmt.Sprintf(format, args...))
}

// print writes a text to stdout as it is.
func (o *output) print(text string) error { return o.screen.Print(Look{Exact: true}, text) }

// printJSON writes a value to stdout.
func (o *output) printJSON(v any) error {
	o.printedJSON = true
	text, err := plainJSON(v)
	if err != nil {
		return err
	}
	var lines bytes.Buffer
	_ = json.Indent(&lines, text, "", "  ")
	return o.screen.PrintJSON(lines.String() + "\n")
}

// withLineEnd returns a text whose last line has an end, and one alone.
func withLineEnd(text string) string {
	if text == "" || strings.HasSuffix(text, "\n") {
		return text
	}
	return text + "\n"
}

// give prints the result of a command: a text, or with -json the value. With -o, the images and
// other bytes of r go to files. If r has no bytes, its text goes to the file, byte for byte. r is
// nil for commands without -o.
func (o *output) give(
	ctx context.Context, r *ToolResult, text, printed string, value any,
) error {
	if o.settings.file != "" && !r.IsError {
		save := o.saver(ctx)
		lines := ResultFiles(r, 0, save)
		for _, line := range lines {
			o.note("%s", line)
		}
		// The error of a file is in output.files, and in its line.
		hasFiles := len(lines) > 0
		if !hasFiles {
			_, _ = save([]byte(text), "")
		}
		if o.files.failed != nil {
			return o.files.failed
		}
		if !hasFiles || o.settings.file == "-" {
			printed = ""
		}
	}
	if o.settings.json {
		return o.printJSON(value)
	}
	return o.print(printed)
}

// resultFiles counts the files of -o.
type resultFiles struct {
	count  int   // with those that could not be written
	failed error // why the first of those could not be written
}

// saver returns saveFile for what is saved while ctx lasts.
func (o *output) saver(ctx context.Context) func(data []byte, kind string) (string, error) {
	return func(data []byte, _ string) (string, error) { return o.saveFile(ctx, data) }
}

// saveFile writes the first data of a run to the file of -o, and later data to numbered files
// beside it: after FILE comes FILE-2, and after image.png comes image-2.png. Without -o,
// TempFiles chooses the names. saveFile returns the name of the file.
func (o *output) saveFile(ctx context.Context, data []byte) (path string, err error) {
	o.files.count++
	path = o.settings.file
	if path == "-" {
		path = "stdout"
		err = o.print(string(data))
	} else {
		if o.files.count > 1 {
			ending := filepath.Ext(path)
			path = fmt.Sprintf("%s-%d%s", strings.TrimSuffix(path, ending), o.files.count, ending)
		}
		err = WriteNamed(ctx, path, data)
	}
	if o.files.failed == nil {
		o.files.failed = err
	}
	return path, err
}

// newView returns a view that shows an agent, or one call, at work with the tools of the host.
func (o *output) newView(ctx context.Context, host *Host, maxResult int) *View {
	v := &View{
		Screen:    o.screen,
		Quiet:     o.settings.quiet,
		Raw:       o.settings.raw,
		Save:      o.temporary.Save,
		MaxFiles:  MaxResultFiles,
		MaxResult: maxResult,
	}
	switch {
	case o.settings.file != "":
		v.Save = o.saver(ctx)
		v.MaxFiles = 0
	case o.settings.json || o.settings.quiet:
		// Nothing shows the name of a file, so nobody would find it.
		v.Save = nil
	}
	v.Name = func(function string) string {
		t, err := host.Tool(function)
		if err != nil {
			return function
		}
		return OneName(t.Server) + ":" + OneName(t.Tool.Name)
	}
	return v
}

// failure is the JSON of an error, with the report of the question if there was one.
type failure struct {
	Error string `json:"error"`
	*report
}

// end shows the error that a run has ended with, and returns the exit status. A program that reads
// the JSON on stdout gets the error there, too, unless it has got a result already.
func (o *output) end(err error, interrupted bool) (status int) {
	if err == nil && o.isIncomplete.Load() {
		return exitStart
	}
	if err == nil {
		return 0
	}
	status = exitStart
	var e *exitError
	if errors.As(err, &e) {
		status = e.status
	}
	// What fails after an interrupt fails because of it.
	if interrupted {
		status, err = exitInterrupted, errors.New("interrupted")
	}
	if isClosedStdout(err) {
		return 0
	}
	if o.settings.json && !o.printedJSON {
		_ = o.printJSON(failure{err.Error(), o.report})
	}
	o.warn("mcpagent: %s", err)
	return status
}

// isClosedStdout reports whether the reader of stdout has closed it, as head does when it has seen
// enough. That is no failure.
func isClosedStdout(err error) bool {
	var file *fs.PathError
	return isClosedPipe(err) && errors.As(err, &file) && file.Path == os.Stdout.Name()
}

// isClosedPipe reports whether the reader of a pipe has closed it.
func isClosedPipe(err error) bool {
	// Windows has two errors of its own for a pipe that nobody reads, which are no EPIPE.
	const brokenPipe, noData = syscall.Errno(109), syscall.Errno(232)
	if runtime.GOOS == "windows" {
		return errors.Is(err, brokenPipe) || errors.Is(err, noData)
	}
	return errors.Is(err, syscall.EPIPE)
}
