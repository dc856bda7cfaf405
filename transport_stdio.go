// transport_stdio.go - a server as a child process.
// Needs: Go 1.25, json, rpc, lines.
// SPDX-License-Identifier: 0BSD

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"time"
)

// Command says how to start a server as a child process.
type Command struct {
	Path string   // looked up in PATH if it has no slash
	Args []string // without the command itself
	Dir  string   // working directory; ours if empty

	// Env holds variables for the server, as NAME=VALUE. Of our own environment the server gets
	// only what it needs to run and to reach the network: see transport_stdio_environment.go.
	Env []string

	// Stderr gets what the server writes to stderr, in whole lines; a line over 8 KiB comes in
	// pieces. It is called from one goroutine and must not block for long: a server whose stderr
	// is not read stops.
	Stderr io.Writer

	// Excerpt chooses what an error shows of the last 8 KiB of stderr, in one line. If it is
	// nil, that is the last line.
	Excerpt func(stderr string) string

	MaxMessage int // bytes of one message from the server; 64 MiB if 0

	// Grace is what Close gives the server for each of its two chances to end by itself: 2 s if 0.
	Grace time.Duration
}

// drain bounds the wait for events that usually come at once but may never come: EOF on the pipes
// of an ended process, which a grandchild may hold open, and the end of a group after SIGKILL.
// exitError waits up to 4*drain for the process to end, and then as long for the end of stderr.
const drain = 100 * time.Millisecond

// Stdio is a server that runs as a child process and is spoken to over its stdin and stdout.
//
// What is started is often not the server itself: npx starts a shell that starts node. A signal
// to npx reaches neither of them. So the process is made the leader of a process group of its
// own, and Close ends the group, with what has left the group; see processGroup.
//
// Two goroutines belong to it. One, in run, starts the process, waits for its end, and then ends
// the rest of the group. The other, in readStderr, reads stderr to its end. Close waits for
// both. The caller's own goroutine in Read ends when stdout does, soon after the end of the
// process.
type Stdio struct {
	*Lines
	command Command
	process *exec.Cmd
	group   processGroup // the process and what it starts
	stdin   *os.File
	stdout  *childPipe
	stderr  *childPipe

	exited      chan struct{} // closed when the process has ended and has been waited for
	leftUnread  bool          // something was left in its stdin; set just before exited is closed
	groupEnded  chan struct{} // closed when the rest of its group has ended, too
	stderrEnded chan struct{} // closed when stderr has been read to its end

	work sync.WaitGroup // run and readStderr
	tail stderrTail     // the last of stderr

	describing sync.Once        // sets exitErr; see exitError
	exitErr    *ServerExitError // why Read has ended
}

// Start starts the server as a child process: a *Stdio. The caller must Close it, also after the
// server has ended.
func (c Command) Start(context.Context) (Transport, error) {
	c.Grace = cmp.Or(c.Grace, 2*time.Second)
	if c.Excerpt == nil {
		c.Excerpt = lastLine
	}
	pipes, err := openPipes()
	if err != nil {
		return nil, c.startError(err)
	}
	s := &Stdio{
		command:     c,
		process:     exec.Command(c.Path, c.Args...),
		stdin:       pipes.ours[0],
		stdout:      newChildPipe(pipes.ours[1]),
		stderr:      newChildPipe(pipes.ours[2]),
		exited:      make(chan struct{}),
		groupEnded:  make(chan struct{}),
		stderrEnded: make(chan struct{}),
	}
	s.process.Dir = c.Dir
	s.process.Env = c.Environment()
	s.process.Stdin = pipes.theirs[0]
	s.process.Stdout = pipes.theirs[1]
	s.process.Stderr = pipes.theirs[2]
	s.group.prepare(s.process)

	started := make(chan error)
	s.work.Go(func() { s.run(started) })
	err = <-started
	closeAll(pipes.theirs[:])
	if err != nil {
		closeAll(pipes.ours[:])
		return nil, c.startError(err)
	}
	s.Lines = NewLines(s.stdout, s.stdin)
	s.Lines.MaxMessage = c.MaxMessage
	s.Lines.WriteAtOnce = writeAtOnce(s.stdin)
	// A server that has closed its stdin may keep its stdout open. exitError then calls stdout.end,
	// so that Read returns. The error itself is for Read, not needed here.
	s.Lines.OnWriteError = func() { _ = s.exitError("stdin") }
	s.work.Go(s.readStderr)
	return s, nil
}

// startError says which server did not start, without secrets. What follows the first word of a
// command may be one, and the outer errors repeat all of it, so only the innermost error is shown.
func (c Command) startError(err error) error {
	for inner := err; inner != nil; inner = errors.Unwrap(inner) {
		err = inner
	}
	name, _, _ := strings.Cut(c.Path, " ")
	hint := ""
	if err == exec.ErrNotFound || err == exec.ErrDot {
		// A name without a slash is looked up in PATH alone; cmd.exe looks into the working folder
		// first, so its users expect that here.
		const slash = string(os.PathSeparator)
		_, notThere := exec.LookPath(cmp.Or(c.Dir, ".") + slash + c.Path)
		if notThere == nil {
			hint = "; to start the one in the working folder, write ." + slash + name
		}
	}
	return fmt.Errorf("start server %s: %w%s", name, err, hint)
}

// Read returns the server's next line, and after the last one, when the server has ended, a
// *ServerExitError. Many servers print a banner or a log on their stdout. A line that is not
// JSON-RPC is returned like any other: Conn hands it to Handler.Skipped, and the connection goes
// on.
func (s *Stdio) Read() ([]byte, error) {
	message, err := s.Lines.Read()
	if errors.Is(err, io.EOF) {
		err = s.exitError("stdout")
	}
	return message, err
}

// Kill sends SIGKILL to the server and all of its group. It waits for nothing, and Close is
// still to be called.
func (s *Stdio) Kill() {
	select {
	case <-s.groupEnded:
		// The number of the group may belong to another one by now.
	default:
		s.group.kill()
	}
}

// Close ends the server as the specification orders (MCP 2025-11-25, lifecycle, shutdown): it
// closes its stdin and waits; sends SIGTERM to its process group and waits; sends SIGKILL. If the
// process ends when its stdin is closed, it may leave children behind: run ends those, with SIGTERM
// and then SIGKILL. Close returns when all of the group has ended. Read should be called meanwhile:
// a server whose stdout is full does not end by itself.
//
// What the server has put into another group or session goes with it, as far as /proc tells of it.
// These stay: what is in another session without a pipe of the server, such as a browser that it
// has opened; a daemon, whose parent ended before Close; what another program runs for the server,
// such as a container; and without /proc, as on macOS, whatever has left the group.
func (s *Stdio) Close() error {
	// A broken pipe is no failure of Close: the server may have ended before.
	_ = s.CloseWriter()
	if !within(s.command.Grace, s.exited) {
		s.group.terminate()
		if !within(s.command.Grace, s.groupEnded) {
			s.Kill()
		}
	}
	<-s.groupEnded
	s.stdout.Close()
	s.work.Wait()
	s.stderr.Close()
	s.group.close()
	return nil
}

// run starts the process and waits for its end, so that a process that ends before Close is no
// zombie until then. When the process has ended, the processes that it started must end, too: run
// sends SIGTERM to the rest of the group, and then SIGKILL. A group is signalled only when it has
// just been seen alive, as the system may give its number to another one later. After the end of
// the process, run takes at most Grace, for the end by SIGTERM, and drain, for that by SIGKILL.
func (s *Stdio) run(started chan<- error) {
	// The thread that starts the process must not end before it: see processGroup.prepare.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := s.process.Start()
	if err == nil {
		s.group.add(s.process.Process)
	}
	started <- err
	if err != nil {
		return
	}
	defer close(s.groupEnded)

	// Its error is not needed: the ProcessState says how the process ended.
	_ = s.process.Wait()
	s.leftUnread = holdsBytes(s.stdin)
	close(s.exited)
	// A grandchild may hold the other ends of the pipes. If it does not read, a write may be
	// stuck: it ends now. If it does not write, EOF does not come: Read returns what is there,
	// and ends.
	_ = s.stdin.Close()
	s.stdout.end()
	s.stderr.end()
	if !s.group.alive() {
		return
	}
	s.group.terminate()
	if !s.waitForGroup(s.command.Grace) {
		s.group.kill()
		// The end that SIGKILL brings is soon, but not at once.
		s.waitForGroup(drain)
	}
}

// waitForGroup reports whether the group ended in time. It polls, as the system does not tell of
// the end of a grandchild.
func (s *Stdio) waitForGroup(d time.Duration) bool {
	deadline := time.After(d)
	for s.group.alive() {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-deadline:
			return false
		}
	}
	return true
}

// within reports whether the event came in time.
func within(d time.Duration, event <-chan struct{}) bool {
	select {
	case <-event:
		return true
	case <-time.After(d):
		return false
	}
}
