package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

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
	if runtime.GOOS == "windows" {
		assert.ErrorIs(t, err, syscall.Errno(267)) // ERROR_DIRECTORY
	} else {
		assert.ErrorIs(t, err, os.ErrNotExist)
	}
	assert.Assert(t, client == nil)
	assert.Equal(t, resources().files, before.files) // now, not when the garbage is collected
}

// TestProgramInFolder: a name alone is looked up in PATH. If the program is in the working folder instead, as after go
// build, the error says how to name it.
func TestProgramInFolder(t *testing.T) {
	t.Chdir(t.TempDir())
	name := "server-in-folder"
	if runtime.GOOS == "windows" {
		name += ".exe"
	}
	assert.NilError(t, os.Mkdir("sub", 0o700))
	assert.NilError(t, os.WriteFile(filepath.Join("sub", name), nil, 0o700))
	path := "." + string(os.PathSeparator) + name
	hint := "; to start the one in the working folder, write " + path

	for _, folders := range []string{"", "."} { // a PATH with this folder does not make Go run it
		t.Setenv("PATH", folders)
		_, err := startStdio(Command{Path: name, Dir: "sub"})
		assert.Check(t, is.ErrorContains(err, hint))
		_, err = startStdio(Command{Path: name})
		assert.Check(t, !strings.Contains(err.Error(), "write "), "%v", err)

		assert.NilError(t, os.WriteFile(name, nil, 0o700))
		_, err = startStdio(Command{Path: name})
		assert.Check(t, is.ErrorContains(err, hint))
		assert.NilError(t, os.Remove(name))
	}
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

// TestSilentServer: ctx ends the wait for a server that starts and says nothing, and the server
// with it.
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

// TestLargeResult: a result over the limit fails the call at once, though the server is still
// writing it.
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
		"LANG": "C.UTF-8", "LC_TIME": "C", "LC_secret": "() { secret; }", "AWS_SECRET": "secret",
		"SSL_CERT_FILE": "/ca.pem", "NO_PROXY": "h", "HTTPS_PROXY": "http://p:1"} {
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
	for _, variable := range []string{"SSL_CERT_FILE=/ca.pem", "NO_PROXY=h", "HTTPS_PROXY=http://p:1"} {
		assert.Check(t, is.Contains(got, variable))
	}
	if runtime.GOOS != "windows" {
		assert.Check(t, is.Contains(got, "LANG=C.UTF-8"))
		assert.Check(t, is.Contains(got, "LC_TIME=C"))
		assert.Check(t, is.Contains(got, "HOME="+os.Getenv("HOME")))
	}
	assert.Check(t, is.Equal(strings.Count("\n"+text, "\nPATH="), 1))
}

// TestSafeVariables: each system has a list of its own, and only Windows knows no case.
func TestSafeVariables(t *testing.T) {
	for _, test := range []struct {
		system, name string
		want         bool
	}{
		{"linux", "TERM", true}, {"linux", "Path", false}, {"linux", "LC_ALL", true}, {"darwin", "TMPDIR", true},
		{"windows", "Path", true}, {"windows", "WINDIR", true}, {"windows", "TERM", false}, {"windows", "LC_ALL", false},
		{"linux", "SSL_CERT_DIR", true}, {"windows", "Node_Extra_CA_Certs", true}, {"darwin", "REQUESTS_CA_BUNDLE", true},
		{"linux", "http_proxy", true}, {"linux", "ALL_PROXY", true}, {"linux", "Http_Proxy", false},
		{"linux", "X_PROXY", false},
		{"windows", "Http_Proxy", true}, {"linux", "https_proxy", true}, {"linux", "all_proxy", true},
		{"linux", "no_proxy", true},
	} {
		assert.Check(t, isSafeVariable(test.system, test.name) == test.want, "%s on %s", test.name, test.system)
	}
}
