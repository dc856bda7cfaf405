//go:build unix

package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

// lifeline tells the end of processes that are not our children: each holds a named pipe open,
// and when the last is gone, so is the last writer.
type lifeline struct{ *os.File }

// newLifeline has every process of a server hold a lifeline.
func newLifeline(t *testing.T, c *Command) lifeline {
	t.Helper()
	path := filepath.Join(t.TempDir(), "lifeline")
	assert.NilError(t, syscall.Mkfifo(path, 0o600))
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	assert.NilError(t, err)
	t.Cleanup(func() { f.Close() })
	c.Env = append(c.Env, "MCPAGENT_LIFELINE="+path)
	return lifeline{f}
}

// wantAllGone fails the test if a process is still there: one that was sent SIGKILL may take a
// moment. It returns what they said at their end.
func (l lifeline) wantAllGone(t *testing.T) string {
	t.Helper()
	assert.NilError(t, l.SetReadDeadline(time.Now().Add(10*time.Second)))
	said, err := io.ReadAll(l)
	assert.NilError(t, err)
	return string(said)
}

// spawned has the server start a process that holds its stdout, and returns its id.
func (c *Client) spawned(t *testing.T, kind string) int {
	t.Helper()
	text, err := c.run(t.Context(), "spawn", kind)
	assert.NilError(t, err)
	pid, err := strconv.Atoi(text)
	assert.NilError(t, err)
	assert.NilError(t, syscall.Kill(pid, 0))
	return pid
}

// TestGrandchildHoldsStdout: a server that ends is gone, though a process it started keeps its
// stdout open and no EOF comes; what the pipe still holds is read first.
func TestGrandchildHoldsStdout(t *testing.T) {
	for _, kind := range []string{"polite", "stubborn", "detached"} {
		t.Run(kind, func(t *testing.T) {
			checkLeaks(t)
			command := childCommand("puppet")
			if kind == "stubborn" {
				command.Grace = 300 * time.Millisecond
			}
			alive := newLifeline(t, &command)
			c, s := connectChild(t, command, nil)
			pid := c.spawned(t, kind)
			waiting := c.wait(t)
			text, err := c.run(t.Context(), "leave", "")
			assert.NilError(t, err)
			assert.Equal(t, text, "bye")
			err = <-waiting
			var exit *ServerExitError
			assert.Assert(t, errors.As(err, &exit), "%v", err)
			assert.ErrorIs(t, err, ErrClosed)
			assert.Equal(t, exit.State.ExitCode(), 7)
			assert.ErrorContains(t, err, "tools/call wait: connection closed: server "+command.Path+
				" ended (exit status 7), stderr: leaving")
			// The server has been waited for, before any Close.
			assert.ErrorIs(t, syscall.Kill(s.process.Process.Pid, 0), syscall.ESRCH)
			if kind == "detached" {
				assert.NilError(t, syscall.Kill(pid, 0)) // it is there, and nobody waited for it
				c.Close()
				assert.NilError(t, syscall.Kill(pid, syscall.SIGKILL))
			}
			c.Close()
			assert.Equal(t, alive.wantAllGone(t), map[string]string{"polite": "asked"}[kind])
		})
	}
}

// TestLateReader: what a dead server wrote is read to its end, in pieces of any size and however
// late the reader comes for each.
func TestLateReader(t *testing.T) {
	checkLeaks(t)
	command := childCommand("puppet")
	alive := newLifeline(t, &command)
	s, err := startStdio(command)
	assert.NilError(t, err)
	send := func(tool, arg string) {
		t.Helper()
		call := `{"id":1,"method":"tools/call","params":{"name":"` + tool + `","arguments":{"arg":"` + arg + `"}}}`
		assert.NilError(t, s.Write(t.Context(), outgoing(call)))
	}
	send("spawn", "detached")
	line, err := s.Read()
	assert.NilError(t, err)
	_, digits, _ := strings.Cut(string(line), `"text":"`)
	pid, err := strconv.Atoi(digits[:strings.IndexByte(digits, '"')])
	assert.NilError(t, err)
	for range 60 { // of 1,000 bytes: not more than a pipe holds
		send("big", "950")
	}
	send("leave", "")
	<-s.exited
	var got []byte
	for piece := make([]byte, 999); err == nil; {
		s.stdout.SetReadDeadline(time.Unix(1, 0)) // as if the time that run grants were over
		var n int
		n, err = s.stdout.Read(piece)
		got = append(got, piece[:n]...)
	}
	assert.Equal(t, err, io.EOF)
	assert.Equal(t, strings.Count(string(got), "\n"), 61)
	assert.Assert(t, strings.HasSuffix(string(got), `"text":"bye"}]}}`+"\n"))
	assert.NilError(t, syscall.Kill(pid, syscall.SIGKILL))
	s.Close()
	alive.wantAllGone(t)
}

// TestLateStderr: what a server wrote to stderr before its end reaches the writer, however late
// that takes it.
func TestLateStderr(t *testing.T) {
	checkLeaks(t)
	busy := make(chan struct{})
	stderr := &collector{told: func() { <-busy }}
	command := childCommand("puppet")
	command.Stderr = stderr
	c, s := connectChild(t, command, nil)
	var want strings.Builder
	for i := range 20 {
		line := strings.Repeat(string(rune('a'+i)), 999) + "\n"
		want.WriteString(line)
		_, err := c.run(t.Context(), "stderr", line)
		assert.NilError(t, err)
	}
	_, err := c.run(t.Context(), "leave", "")
	assert.NilError(t, err)
	<-s.exited
	s.stderr.SetReadDeadline(time.Unix(1, 0)) // as if the time that run grants were over
	close(busy)
	assert.NilError(t, c.Close())
	assert.Equal(t, strings.Join(stderr.all(), ""), want.String()+"leaving\n")
}

// TestServerKilled: the end of a server fails the call at once, with how it ended and its last
// words, and leaves no zombie.
func TestServerKilled(t *testing.T) {
	checkLeaks(t)
	command := childCommand("puppet")
	alive := newLifeline(t, &command)
	c, s := connectChild(t, command, nil)
	waiting := c.wait(t)
	_, crashed := c.run(t.Context(), "crash", "")
	for tool, err := range map[string]error{"wait": <-waiting, "crash": crashed} {
		var exit *ServerExitError
		assert.Assert(t, errors.As(err, &exit), "%v", err)
		assert.Equal(t, exit.Stderr, "out of memory\n")
		assert.Error(t, err, "tools/call "+tool+": connection closed: server "+command.Path+
			" ended (signal: killed), stderr: out of memory")
	}
	assert.ErrorIs(t, syscall.Kill(s.process.Process.Pid, 0), syscall.ESRCH)
	_, err := c.run(t.Context(), "pid", "")
	assert.ErrorIs(t, err, ErrClosed)
	s.Kill() // nobody
	assert.NilError(t, c.Close())
	alive.wantAllGone(t)
}

// TestServerClosesPipe: a server that lives on without its stdin or its stdout is lost: the call
// that finds out fails with the right words, and so does the connection, so that its user can
// start it again.
func TestServerClosesPipe(t *testing.T) {
	for _, name := range []string{"stdin", "stdout"} {
		t.Run(name, func(t *testing.T) {
			checkLeaks(t)
			command := childCommand("puppet")
			command.Args = []string{"--token", "secret"}
			command.Grace = 50 * time.Millisecond // it does not see the end of a stdin that it has closed
			alive := newLifeline(t, &command)
			c, _ := connectChild(t, command, nil)
			waiting := c.wait(t)
			_, err := c.run(t.Context(), "close", name)
			if name == "stdin" { // it answers, and the next call finds out
				assert.NilError(t, err)
				_, err = c.run(t.Context(), "pid", "")
			}
			want := "connection closed: server " + command.Path + " closed its " + name + ", but still runs, stderr: closing"
			assert.ErrorContains(t, err, want)
			assert.ErrorContains(t, <-waiting, want)
			<-c.Done()
			assert.ErrorContains(t, c.Err(), want)
			assert.NilError(t, c.Close())
			alive.wantAllGone(t)
		})
	}
}

// TestServerStopsReading: a call that fills the pipe is freed by its ctx, and Close does not
// wait for the pipe.
func TestServerStopsReading(t *testing.T) {
	checkLeaks(t)
	reason := errors.New("no longer wanted")
	ctx, cancel := context.WithCancelCause(t.Context())
	command := childCommand("puppet")
	command.Grace = 50 * time.Millisecond
	alive := newLifeline(t, &command)
	c, s := connectChild(t, command, &ClientOptions{
		Log: func(LogMessage) { cancel(reason) }, // the server has begun to read the call
	})
	_, err := c.run(ctx, "deaf", "")
	assert.NilError(t, err)
	_, err = c.run(ctx, "pid", strings.Repeat("x", 1<<20))
	assert.ErrorIs(t, err, reason)
	queued := make(chan error, 1)
	go func() {
		_, err := c.run(t.Context(), "pid", "")
		queued <- err
	}()
	assert.NilError(t, c.Close())
	assert.ErrorIs(t, <-queued, ErrClosed)
	assert.Equal(t, s.process.ProcessState.String(), "signal: terminated")
	alive.wantAllGone(t)
}

// TestCloseInOrder: the end of stdin comes first, then SIGTERM, then SIGKILL, and none that is
// not needed.
func TestCloseInOrder(t *testing.T) {
	for _, kind := range []struct{ mode, end, heard string }{
		{"puppet", "exit status 0", ""},
		{"stays", "signal: terminated", "end of input\n"},
		{"stubborn", "signal: killed", "end of input\nSIGTERM\n"},
	} {
		t.Run(kind.mode, func(t *testing.T) {
			checkLeaks(t)
			stderr := new(collector)
			command := childCommand(kind.mode)
			command.Stderr = stderr
			alive := newLifeline(t, &command)
			if kind.mode != "puppet" {
				command.Grace = time.Second // time to say what it got
			}
			c, s := connectChild(t, command, nil)
			assert.NilError(t, c.Close())
			assert.Equal(t, s.process.ProcessState.String(), kind.end)
			assert.Equal(t, strings.Join(stderr.all(), ""), kind.heard)
			alive.wantAllGone(t)
		})
	}
}

// TestCloseEndsTheWholeGroup: whatever a server has started goes with it, even if none of them
// listens.
func TestCloseEndsTheWholeGroup(t *testing.T) {
	for _, mode := range []string{"puppet", "stays", "stubborn"} {
		for _, kind := range []string{"polite", "stubborn"} {
			t.Run(mode+" with "+kind, func(t *testing.T) {
				checkLeaks(t)
				command := childCommand(mode)
				if mode != "puppet" || kind != "polite" {
					command.Grace = 50 * time.Millisecond
				}
				alive := newLifeline(t, &command)
				c, _ := connectChild(t, command, nil)
				c.spawned(t, kind)
				c.spawned(t, kind)
				assert.NilError(t, c.Close())
				if said := alive.wantAllGone(t); mode == "puppet" && kind == "polite" {
					assert.Equal(t, said, "askedasked")
				}
			})
		}
	}
}
