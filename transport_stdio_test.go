package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

// linesOf reads all messages of a stream.
func linesOf(t *testing.T, r io.Reader, limit int) (messages []string, err error) {
	t.Helper()
	l := NewLines(r, io.Discard)
	l.MaxMessage = limit
	defer l.Close()
	var kept [][]byte
	for {
		message, err := l.Read()
		if err != nil {
			// Converted only now: a message stays what it was while others are read.
			for _, m := range kept {
				messages = append(messages, string(m))
			}
			return messages, err
		}
		kept = append(kept, message)
	}
}

// checkLines reads a stream, however its reader cuts it: its messages are its lines, and then comes the reader's
// error.
func checkLines(t *testing.T, stream []byte, reader io.Reader, limit int, end error) {
	t.Helper()
	var want []string
	for line := range bytes.SplitSeq(stream, []byte{'\n'}) {
		if limit > 0 && len(line) > limit {
			end = &MessageTooLongError{limit}
			break
		}
		if line = bytes.TrimSpace(line); len(line) > 0 {
			want = append(want, string(line))
		}
	}
	got, err := linesOf(t, reader, limit)
	assert.Equal(t, fmt.Sprint(err), fmt.Sprint(end))
	assert.Assert(t, slices.Equal(got, want), "%.1000q: %.1000q, want %.1000q", stream, got, want)
}

// TestLinesRead: small streams, and lines of every size around the buffer's, one after the other.
func TestLinesRead(t *testing.T) {
	checkLeaks(t)
	streams := []string{"", "\n", "a\nb\n", "a\r\nb\r\n", "\n\r\n \t\na\n\n\nb", "last", "last\r", " {\"a\": 1} \n"}
	sizes := []int{1 << 20, 5, 3 << 20, 1}
	for _, around := range []int{1, readSize / 2, readSize, 2 * readSize, 4 * readSize} {
		for d := -3; d <= 3; d++ {
			sizes = append(sizes, max(1, around+d))
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 2 {
		random.Shuffle(len(sizes), func(i, j int) { sizes[i], sizes[j] = sizes[j], sizes[i] })
		var stream strings.Builder
		for i, size := range sizes {
			stream.WriteString(strings.Repeat(string(rune('a'+i%26)), size) + []string{"\n", "\r\n", "\n\n"}[random.IntN(3)])
		}
		streams = append(streams, stream.String())
	}
	for _, stream := range streams {
		cuts := []func(io.Reader) io.Reader{iotest.HalfReader, iotest.DataErrReader,
			func(r io.Reader) io.Reader { return r },
			func(io.Reader) io.Reader { return &shredder{text: []byte(stream), sizes: []byte{255, 0, 130, 7}} }}
		if len(stream) < 1000 {
			cuts = append(cuts, iotest.OneByteReader)
		}
		for _, cut := range cuts {
			checkLines(t, []byte(stream), cut(strings.NewReader(stream)), 0, io.EOF)
			broken := io.MultiReader(cut(strings.NewReader(stream)), iotest.ErrReader(io.ErrNoProgress))
			checkLines(t, []byte(stream), broken, 0, io.ErrNoProgress)
		}
	}
}

func TestLinesLimit(t *testing.T) {
	checkLeaks(t)
	const limit = 100_000
	fits := strings.Repeat("x", limit)
	got, err := linesOf(t, strings.NewReader(fits+"\n"+fits), limit)
	assert.Equal(t, err, io.EOF)
	assert.DeepEqual(t, got, []string{fits, fits})

	// A line that goes on for ever is given up when it is over the limit, not when it ends.
	for _, long := range []io.Reader{
		strings.NewReader(fits + "x\nnext\n"),
		strings.NewReader(fits + "x"),
		&shredder{text: []byte("x"), sizes: []byte{200}, repeat: true},
		&shredder{text: []byte(" "), sizes: []byte{200}, repeat: true},
	} {
		got, err = linesOf(t, io.MultiReader(strings.NewReader("first\n"), long), limit)
		var tooLong *MessageTooLongError
		assert.Assert(t, errors.As(err, &tooLong), "%v", err)
		assert.Equal(t, tooLong.Limit, limit)
		assert.Error(t, err, "a message is longer than the limit of 100000 bytes")
		assert.DeepEqual(t, got, []string{"first"})
	}
}

// shredder reads a text in pieces: of 7 times each size in turn, one of size 0 included.
type shredder struct {
	text   []byte
	sizes  []byte
	at     int
	repeat bool // the first byte of the text, for ever
}

func (s *shredder) Read(p []byte) (int, error) {
	n := len(p)
	if len(s.sizes) > 0 {
		n = min(n, 7*int(s.sizes[s.at%len(s.sizes)]))
		s.at++
	}
	if s.repeat {
		return copy(p, bytes.Repeat(s.text[:1], n)), nil
	}
	n = copy(p[:n], s.text)
	if s.text = s.text[n:]; len(s.text) == 0 {
		return n, io.EOF
	}
	return n, nil
}

// FuzzLines: however a stream is cut, its messages are its lines.
func FuzzLines(f *testing.F) {
	f.Add([]byte("a\nb\r\n\n\n c"), []byte{0, 1}, 0)
	f.Add([]byte("\n\n\n"), []byte{}, 1)
	f.Add([]byte(strings.Repeat("0123456789", 20)+"\nnext\n"), []byte{1, 2, 3}, 150)
	f.Add([]byte(strings.Repeat("x", readSize)+"\n"+strings.Repeat("y", readSize-1)+"\n"), []byte{255}, 0)
	f.Fuzz(func(t *testing.T, stream, sizes []byte, limit int) {
		if len(sizes) > 0 && bytes.Count(sizes, []byte{0}) == len(sizes) {
			return // a reader that never gives anything
		}
		checkLines(t, stream, &shredder{text: stream, sizes: sizes}, max(0, limit), io.EOF)
	})
}

func TestLinesRefuseNewline(t *testing.T) {
	checkLeaks(t)
	var out bytes.Buffer
	l := NewLines(strings.NewReader(""), &out)
	assert.Error(t, l.Write(t.Context(), outgoing("a\nb")), "a message with a newline cannot be framed")
	assert.NilError(t, l.Write(t.Context(), outgoing("c")))
	assert.NilError(t, l.Close())
	assert.Equal(t, out.String(), "c\n")
	assert.ErrorIs(t, l.Write(t.Context(), outgoing("d")), os.ErrClosed)
}

// TestLinesWriteIsWhole: a Write does not wait for the peer, until too much waits to be written; one that waits then
// has sent nothing if its ctx ends. What is sent goes out whole and in order.
func TestLinesWriteIsWhole(t *testing.T) {
	checkLeaks(t)
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe() // holds nothing, as a pipe that is full
		l := NewLines(r, w)
		write := func(ctx context.Context, message string) <-chan error {
			done := make(chan error, 1)
			go func() { done <- l.Write(ctx, outgoing(message)) }()
			synctest.Wait()
			return done
		}
		reason := errors.New("no longer wanted")
		ctx, cancel := context.WithCancelCause(t.Context())
		assert.NilError(t, <-write(ctx, "begun"))
		half := make([]byte, 3)
		_, err := io.ReadFull(r, half)
		assert.NilError(t, err)
		full := strings.Repeat("x", maxOut)
		assert.NilError(t, <-write(ctx, full))
		withdrawn := write(ctx, "withdrawn")
		var last []<-chan error
		for range 3 {
			last = append(last, write(t.Context(), "last"))
		}
		assert.Equal(t, len(withdrawn)+len(last[0])+len(last[1])+len(last[2]), 0)
		cancel(reason)
		assert.Equal(t, <-withdrawn, reason)
		want := "begun\n" + full + "\nlast\nlast\nlast\n"
		rest := make([]byte, len(want)-len(half))
		_, err = io.ReadFull(r, rest)
		assert.NilError(t, err)
		assert.Assert(t, string(half)+string(rest) == want)
		for _, done := range last {
			assert.NilError(t, <-done)
		}

		// Close frees whoever waits to write.
		assert.NilError(t, <-write(t.Context(), full))
		assert.NilError(t, <-write(t.Context(), full))
		first, second := write(t.Context(), "first"), write(t.Context(), "second")
		assert.NilError(t, l.Close())
		assert.ErrorIs(t, <-first, os.ErrClosed)
		assert.ErrorIs(t, <-second, os.ErrClosed)
	})
}

// TestLinesWriteReturns: a caller does not write for the others for ever.
func TestLinesWriteReturns(t *testing.T) {
	checkLeaks(t)
	var out bytes.Buffer
	l, turns := NewLines(strings.NewReader(""), &out), 0
	l.now = func(p []byte) (int, error) {
		if turns++; turns < 1000 {
			assert.NilError(t, l.Write(t.Context(), outgoing("another"))) // as another goroutine would
		}
		return out.Write(p)
	}
	assert.NilError(t, l.Write(t.Context(), outgoing("first")))
	assert.Equal(t, turns, maxTurns)
	assert.NilError(t, l.Close())
	assert.Equal(t, out.String(), "first\n"+strings.Repeat("another\n", maxTurns))
}

// TestLinesCloseInOrder: what was sent before Close reaches a peer that reads, and Close waits only a moment for one
// that does not.
func TestLinesCloseInOrder(t *testing.T) {
	checkLeaks(t)
	for _, reads := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			r, w := io.Pipe()
			l := NewLines(strings.NewReader(""), w)
			assert.NilError(t, l.Write(t.Context(), outgoing("first")))
			assert.NilError(t, l.Write(t.Context(), outgoing("second")))
			var got []byte
			var peer sync.WaitGroup
			if reads {
				peer.Go(func() {
					time.Sleep(lastTime / 2)
					got, _ = io.ReadAll(r)
				})
			}
			begin := time.Now()
			assert.NilError(t, l.Close())
			peer.Wait()
			if reads {
				assert.Equal(t, string(got), "first\nsecond\n")
				assert.Equal(t, time.Since(begin), lastTime/2)
			} else {
				assert.Equal(t, time.Since(begin), lastTime)
			}
		})
	}
}

// failingWriter takes the time of a slow writer to fail.
type failingWriter struct{ fail <-chan error }

func (w failingWriter) Write([]byte) (int, error) { return 0, <-w.fail }

// TestLinesWriteError: a write that fails may have written half a line, and those that waited with it. Nothing is sent
// after it, and Read ends.
func TestLinesWriteError(t *testing.T) {
	checkLeaks(t)
	synctest.Test(t, func(t *testing.T) {
		fail := make(chan error)
		r, peer := io.Pipe()
		l := NewLines(r, failingWriter{fail})
		full := errors.New("no space left")
		for range 10 {
			assert.NilError(t, l.Write(t.Context(), outgoing("m")))
		}
		fail <- full
		_, err := l.Read()
		assert.Equal(t, err, io.ErrClosedPipe)
		assert.NilError(t, l.Write(t.Context(), outgoing("m"))) // it is lost like those before
		l.Close()
		peer.Close()
	})
}

// childCommand is this program as a server of that kind; see runChild.
func childCommand(mode string) Command {
	return Command{
		Path:  os.Args[0],
		Env:   []string{"MCPAGENT_CHILD=" + mode, "GORACE=atexit_sleep_ms=0"}, // a second in each child otherwise
		Grace: 10 * time.Second,
	}
}

// connectChild starts a server and begins a session with it.
func connectChild(t *testing.T, command Command, o *ClientOptions) (*Client, *Stdio) {
	t.Helper()
	s, err := startStdio(command)
	assert.NilError(t, err)
	c, err := connectOver(t.Context(), s, o)
	assert.NilError(t, err)
	t.Cleanup(func() { c.Close() })
	return c, s
}

// do has a puppet do something and returns the text it answers.
func (c *Client) run(ctx context.Context, tool, arg string) (string, error) {
	arguments, _ := json.Marshal(map[string]string{"arg": arg})
	r, err := c.CallTool(ctx, tool, arguments, nil)
	if err != nil {
		return "", err
	}
	return r.Content[0].Text, nil
}

// wait makes a call that is never answered, and returns when the server has it.
func (c *Client) wait(t *testing.T) <-chan error {
	t.Helper()
	started := make(chan struct{})
	done := make(chan error, 1)
	go func() {
		_, err := c.CallTool(t.Context(), "wait", nil, func(Progress) { close(started) })
		done <- err
	}()
	select {
	case <-started:
	case err := <-done:
		t.Fatal(err)
	}
	return done
}

// collector keeps each Write to it.
type collector struct {
	told   func() // of each Write; may be nil
	mu     sync.Mutex
	writes []string
}

func (c *collector) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.writes = append(c.writes, string(p)); c.told != nil {
		c.told()
	}
	return len(p), nil
}

func (c *collector) all() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.writes)
}

func TestCannotStart(t *testing.T) {
	checkLeaks(t)
	noProgram := filepath.Join(t.TempDir(), "notes.txt")
	assert.NilError(t, os.WriteFile(noProgram, []byte("no program"), 0o600))
	for _, c := range []struct{ command, dir, want string }{
		{"no-such-server", "", "start server no-such-server: executable file not found in "},
		{noProgram, "", "start server " + noProgram + ": "},
		{"npx -y server --token secret", "", "start server npx: executable file not found in $PATH"},
		{"./npx -y secret", "", "start server ./npx: no such file or directory"},
		{os.Args[0], noProgram + "s", "start server " + os.Args[0] + ": no such file or directory"},
		{os.Args[0], noProgram, "start server " + os.Args[0] + ": not a directory"},
	} {
		_, err := startStdio(Command{Path: c.command, Args: []string{"--key", "secret"}, Dir: c.dir})
		if runtime.GOOS != "windows" {
			assert.ErrorContains(t, err, c.want)
		}
		assert.Check(t, !strings.Contains(err.Error(), "\n"))
		assert.Check(t, !strings.Contains(err.Error(), "secret"), "%v", err)
	}
	before := resources()
	command := childCommand("puppet")
	command.Dir = filepath.Join(t.TempDir(), "nowhere")
	client, err := Connect(t.Context(), command.Start, nil)
	assert.ErrorIs(t, err, os.ErrNotExist)
	assert.Assert(t, client == nil)
	assert.Equal(t, resources().files, before.files) // now, not when the garbage is collected
}

func TestServerExitsAtOnce(t *testing.T) {
	checkLeaks(t)
	_, err := Connect(t.Context(), childCommand("exits").Start, nil)
	var exit *ServerExitError
	assert.Assert(t, errors.As(err, &exit), "%v", err)
	assert.Equal(t, exit.State.ExitCode(), 3)
	assert.ErrorContains(t, err, "server "+os.Args[0]+" ended (exit status 3), stderr: cannot open the library")
	assert.Check(t, !strings.Contains(err.Error(), "\n"))
}

func TestExitErrorText(t *testing.T) {
	running := &ServerExitError{Command: "python", Closed: "stdout"}
	assert.Error(t, running, "server python closed its stdout, but still runs, nothing on stderr")
	running.Excerpt = "leaving"
	assert.Error(t, running, "server python closed its stdout, but still runs, stderr: leaving")
	assert.ErrorIs(t, running, io.EOF)
	assert.Equal(t, lastLine("first\n\n last \r\n\n"), "last")
	assert.Equal(t, lastLine(" \n"), "")
}

// TestSilentServer: ctx ends the wait for a server that starts and says nothing, and the server with it.
func TestSilentServer(t *testing.T) {
	checkLeaks(t)
	reason := errors.New("too slow to start")
	ctx, cancel := context.WithCancelCause(t.Context())
	command := childCommand("silent")
	command.Stderr = &collector{told: func() { cancel(reason) }}
	s, err := startStdio(command)
	assert.NilError(t, err)
	_, err = connectOver(ctx, s, nil)
	assert.Error(t, err, "server/discover: too slow to start")
	assert.ErrorIs(t, err, reason)
	assert.Equal(t, s.process.ProcessState.ExitCode(), 0) // Connect has closed it, and the end of stdin was enough
}

// TestNoisyServer: a server that fills stderr before it answers is not stopped by it.
func TestNoisyServer(t *testing.T) {
	checkLeaks(t)
	stderr := new(collector)
	command := childCommand("noisy")
	command.Stderr = stderr
	c, _ := connectChild(t, command, nil)
	_, err := c.run(t.Context(), "pid", "")
	assert.NilError(t, err)
	c.Close()
	assert.Equal(t, len(strings.Join(stderr.all(), "")), 1<<20)

	// The error has the last of it, exactly.
	c, _ = connectChild(t, childCommand("noisy"), nil)
	done := c.wait(t)
	_, err = c.run(t.Context(), "leave", "")
	assert.NilError(t, err)
	var exit *ServerExitError
	assert.Assert(t, errors.As(<-done, &exit))
	assert.Equal(t, len(exit.Stderr), maxTail)
	assert.Assert(t, strings.HasSuffix(exit.Stderr, fmt.Sprintf("%063d\nleaving\n", 1<<14-1)))
}

// TestStderrLines: the writer gets whole lines, however the server writes them.
func TestStderrLines(t *testing.T) {
	checkLeaks(t)
	stderr := new(collector)
	command := childCommand("puppet")
	command.Stderr = stderr
	c, _ := connectChild(t, command, nil)
	var want []string
	for size := 1; size < maxTail; size += 997 {
		want = append(want, strings.Repeat(string(rune('a'+len(want))), size))
	}
	text := strings.Join(want, "\n") + "\nthe last, without an end"
	for len(text) > 0 {
		piece := text[:min(len(text), 1500)]
		text = text[len(piece):]
		_, err := c.run(t.Context(), "stderr", piece)
		assert.NilError(t, err)
	}
	c.Close()
	writes := stderr.all()
	var got []string
	for i, w := range writes {
		if i < len(writes)-1 {
			assert.Assert(t, strings.HasSuffix(w, "\n"), "%q", w)
		}
		got = append(got, strings.Split(strings.TrimSuffix(w, "\n"), "\n")...)
	}
	assert.DeepEqual(t, got, append(want, "the last, without an end"))
}

// TestLargeResult: a result over the limit fails the call at once, though the server is still writing it.
func TestLargeResult(t *testing.T) {
	checkLeaks(t)
	c, _ := connectChild(t, childCommand("puppet"), nil)
	text, err := c.run(t.Context(), "big", "10485760")
	assert.NilError(t, err)
	assert.Assert(t, text == strings.Repeat("x", 10<<20))
	_, err = c.run(t.Context(), "pid", text) // back through the pipe
	assert.NilError(t, err)

	command := childCommand("puppet")
	command.MaxMessage = 1 << 20
	command.Grace = 50 * time.Millisecond // it is stuck in its write and does not see the end of stdin
	c, _ = connectChild(t, command, nil)
	_, err = c.run(t.Context(), "big", "1000000")
	assert.NilError(t, err)
	_, err = c.run(t.Context(), "big", "4000000")
	var tooLong *MessageTooLongError
	assert.Assert(t, errors.As(err, &tooLong), "%v", err)
	assert.Equal(t, tooLong.Limit, 1<<20)
	assert.ErrorIs(t, err, ErrClosed)
	assert.Error(t, err, "tools/call big: connection closed: a message is longer than the limit of 1048576 bytes")
}

// TestEnvironment: of our environment the server gets only what it needs to run.
func TestEnvironment(t *testing.T) {
	checkLeaks(t)
	for name, value := range map[string]string{"MISTRAL_API_KEY": "secret", "LD_PRELOAD_": "secret", "PATHS": "secret",
		"LANG": "C.UTF-8", "LC_TIME": "C", "LC_secret": "() { secret; }"} {
		t.Setenv(name, value)
	}
	command := childCommand("puppet")
	command.Env = append(command.Env, "ADDED=a=b", "PATH=ours")
	c, _ := connectChild(t, command, nil)
	text, err := c.run(t.Context(), "environment", "")
	assert.NilError(t, err)
	assert.Assert(t, !strings.Contains(text, "secret"), text)
	got := strings.Split(text, "\n")
	assert.Check(t, is.Contains(got, "ADDED=a=b"))
	assert.Check(t, is.Contains(got, "PATH=ours")) // what is added wins
	if runtime.GOOS != "windows" {
		assert.Check(t, is.Contains(got, "LANG=C.UTF-8"))
		assert.Check(t, is.Contains(got, "LC_TIME=C"))
		assert.Check(t, is.Contains(got, "HOME="+os.Getenv("HOME")))
	}
	assert.Check(t, is.Equal(strings.Count("\n"+text, "\nPATH="), 1))
}
