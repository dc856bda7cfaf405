package main

import (
	"bufio"
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

// The program as it is on Windows, in wine: a Windows of others' making, which runs on Linux. Wine's / is Z:\ there.

// Where Debian has wine; its package wine64 alone puts nothing on the PATH.
const (
	wineLoader = "/usr/lib/wine/wine64"
	wineServer = "/usr/lib/wine/wineserver"
)

// wineTests are the files whose tests run there: those of the protocol, and of what has to do with files and processes.
var wineTests = strings.Fields("json rpc lines transport_stdio transport_stdio_windows transport_http mcp peer " +
	"host config session library main")

// wineCannot is what of Windows does not run in wine 8, the one of Debian 12, with the tests of wineTests that need it.
var wineCannot = []struct{ tests, why string }{
	{"", "a console, with the line editor and the questions that are asked on it"},
	{"TestInterruptedReading", "Ctrl-C, which no process can send to another"},
	{"TestServeHTTP", "the end of serve -http, which is a signal; serveHTTP below has the rest"},
	{"", "the end of a read or write that waits, when its pipe is closed: CancelIoEx has it wait on"},
	{"TestLibraryKeepsToTheFolder", "a symbolic link: wine says that it has made one, and has not"},
	{"", "the rights of other users to files, and the names of files that are one but for upper and lower case"},
	{"TestHTTPTLS", "Windows' own certificates; and of two faults of one, Windows names another than Linux"},
	{"TestLibraryIndexesSegments", "what takes ten seconds and needs no system, as do most of the tests of logins"},
	{"", "the browser, and servers of others: those on node and Python, and batch files such as npx.cmd"},
	{"", "testdata/scripts, which need a shell"},
}

// notRemoved is what wine makes of os.RemoveAll, which asks for FileDispositionInformationEx: a test that has put a
// file into its t.TempDir cannot remove it. This alone is no failure.
var notRemoved = regexp.MustCompile(`^\s+testing\.go:\d+: TempDir RemoveAll cleanup: .*: Invalid function\.$`)

// wine runs programs for Windows, in a Windows of its own.
type wine struct {
	t      *testing.T
	folder string // the working folder, with what was built
	env    []string
}

// startWine makes a new Windows. It takes 700 MB, and goes with the test.
func startWine(t *testing.T) *wine {
	t.Helper()
	for _, path := range []string{wineLoader, wineServer} {
		_, err := os.Stat(path)
		requirePeer(t, err == nil, path+" is missing (Debian: apt-get install wine64)")
	}
	const linker = "x86_64-w64-mingw32-ld"
	_, err := exec.LookPath(linker)
	requirePeer(t, err == nil, linker+" is missing (Debian: apt-get install binutils-mingw-w64-x86-64)")

	prefix := t.TempDir()
	w := &wine{t: t, folder: t.TempDir(), env: []string{"PATH=" + os.Getenv("PATH"), "HOME=" + prefix,
		"WINEPREFIX=" + prefix, "WINEDEBUG=-all", "WINEDLLOVERRIDES=mscoree=;mshtml=;winemenubuilder.exe="}}
	t.Cleanup(func() { // what wine has started lives on by itself
		for _, flag := range []string{"-k", "-w"} {
			out, err := w.tool(wineServer, flag)
			assert.Check(t, err == nil || flag == "-k", "wineserver %s: %v\n%s", flag, err, out)
		}
	})
	out, err := w.tool(wineLoader, "wineboot", "-i")
	assert.NilError(t, err, "%s", out)
	dll := filepath.Join(prefix, "drive_c/windows/system32/bcryptprimitives.dll")
	out, err = w.tool(linker, "-shared", "-e", "0", "-o", dll, peerFile(t, "bcryptprimitives.def"))
	assert.NilError(t, err, "%s", out)
	return w
}

// tool runs a program of Linux and returns its output. That goes through a file: with a pipe, what the program leaves
// running would be waited for.
func (w *wine) tool(path string, args ...string) (output string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	file, err := os.CreateTemp(w.folder, "output")
	if err != nil {
		return "", err
	}
	defer file.Close()
	command := exec.CommandContext(ctx, path, args...)
	command.Env, command.Dir = w.env, w.folder
	command.Stdout, command.Stderr = file, file
	err = command.Run()
	text, _ := os.ReadFile(file.Name())
	return string(text), err
}

// build has the go command make a program for Windows.
func (w *wine) build(name string, args ...string) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 10*time.Minute)
	defer cancel()
	args = append(args, "-o", filepath.Join(w.folder, name), ".")
	command := exec.CommandContext(ctx, "go", args...)
	command.Env = append(os.Environ(), "GOOS=windows", "GOARCH=amd64", "CGO_ENABLED=0")
	out, err := command.CombinedOutput()
	assert.NilError(w.t, err, "%s", out)
}

// path is the name that a file of Linux has in wine.
func (w *wine) path(elements ...string) string {
	return "Z:" + strings.ReplaceAll(filepath.Join(elements...), "/", `\`)
}

// command is a program for Windows, ready to start.
func (w *wine) command(ctx context.Context, env []string, name string, args ...string) *exec.Cmd {
	args = append([]string{filepath.Join(w.folder, name)}, args...)
	command := exec.CommandContext(ctx, wineLoader, args...)
	command.Env, command.Dir = slices.Concat(w.env, env), w.folder
	command.WaitDelay = 10 * time.Second
	return command
}

// run runs mcpagent.exe and returns what it wrote.
func (w *wine) run(env []string, args ...string) (stdout, stderr string, status int) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 3*time.Minute)
	defer cancel()
	var out, log bytes.Buffer
	command := w.command(ctx, env, "mcpagent.exe", args...)
	command.Stdout, command.Stderr = &out, &log
	err := command.Run()
	assert.Assert(w.t, command.ProcessState != nil, "%v", err)
	assert.NilError(w.t, ctx.Err())
	w.t.Logf("%q: %v\n%.1000s\nstderr:\n%.2000s", args, err, &out, &log)
	return out.String(), log.String(), command.ProcessState.ExitCode()
}

func TestOnWine(t *testing.T) {
	w := startWine(t)
	w.build("mcpagent.exe", "build")
	w.build("tests.exe", "test", "-c", "-vet=off")
	notes := filepath.Join(w.folder, "my notes")
	assert.NilError(t, os.MkdirAll(filepath.Join(notes, "sub"), 0o700))
	birds := filepath.Join(notes, "sub/birds.md")
	assert.NilError(t, os.WriteFile(birds, []byte("The heron stands in the mill pond.\r\n"), 0o600))
	serve := `MCP_SERVER="` + w.path(w.folder, "mcpagent.exe") + `" serve "` + w.path(notes) + `"`

	inWine := func(name string, play func(w *wine)) {
		t.Run(name, func(t *testing.T) { play(&wine{t: t, folder: w.folder, env: w.env}) })
	}
	inWine("with nothing set", func(w *wine) {
		stdout, _, status := w.run(nil, "How does a call find its answer?")
		assert.Check(w.t, is.Equal(status, 0))
		assert.Check(w.t, is.Contains(stdout, "rpc.go:"))
	})
	inWine("tools", func(w *wine) {
		stdout, _, status := w.run(nil, "tools")
		assert.Check(w.t, is.Equal(status, 0))
		assert.Check(w.t, is.Contains(stdout, "search_chunks(query"))
	})
	inWine("itself as a server", func(w *wine) {
		stdout, _, status := w.run([]string{serve}, "call", "search_chunks", "query=heron")
		assert.Check(w.t, is.Equal(status, 0))
		assert.Check(w.t, is.Contains(stdout, `"source":"sub/birds.md"`))
	})
	inWine("a batch file as a server, as npx is", func(w *wine) {
		batch := "@\"%~dp0mcpagent.exe\" serve %1\r\n"
		assert.NilError(w.t, os.WriteFile(filepath.Join(w.folder, "server.cmd"), []byte(batch), 0o700))
		server := `MCP_SERVER=.\server "` + w.path(notes) + `"`
		stdout, _, status := w.run([]string{server}, "call", "search_chunks", "query=heron")
		assert.Check(w.t, is.Equal(status, 0))
		assert.Check(w.t, is.Contains(stdout, `"source":"sub/birds.md"`))
	})
	inWine("a server in the working folder", func(w *wine) {
		_, stderr, status := w.run([]string{"MCP_SERVER=mcpagent.exe serve"}, "tools")
		assert.Check(w.t, is.Equal(status, exitStart))
		assert.Check(w.t, is.Contains(stderr, `write .\mcpagent.exe`))
		_, _, status = w.run([]string{`MCP_SERVER=.\mcpagent.exe serve`}, "tools")
		assert.Check(w.t, is.Equal(status, 0))
	})
	inWine("a session", func(w *wine) {
		file := filepath.Join(w.folder, "session.json")
		for _, question := range []string{"Where does the heron stand?", "And the mill?"} {
			stdout, _, status := w.run([]string{serve, "MCP_APPROVE=always"}, "-session", w.path(file), question)
			assert.Check(w.t, is.Equal(status, 0))
			assert.Check(w.t, is.Contains(stdout, "mill pond"))
		}
		saved, err := LoadSession(file)
		assert.NilError(w.t, err)
		questions := slices.DeleteFunc(saved.History, func(m ChatMessage) bool { return m.Role != "user" })
		assert.Equal(w.t, len(questions), 2)
		_, err = os.Stat(filepath.Join(w.folder, ".session.json.lock"))
		assert.ErrorIs(w.t, err, os.ErrNotExist)
	})
	inWine("serve -http", func(w *wine) { w.serveHTTP(notes) })
	inWine("tests", (*wine).runTests)
}

// serveHTTP has a server in wine serve a folder to a client in wine and to one outside.
func (w *wine) serveHTTP(folder string) {
	ctx, cancel := context.WithTimeout(w.t.Context(), 3*time.Minute)
	defer cancel()
	server := w.command(ctx, nil, "mcpagent.exe", "serve", "-http", "127.0.0.1:0", w.path(folder))
	stderr, err := server.StderrPipe()
	assert.NilError(w.t, err)
	assert.NilError(w.t, server.Start())
	defer func() {
		_ = server.Process.Kill() // no Ctrl-C can be sent to it
		_ = server.Wait()
	}()
	line, err := bufio.NewReader(stderr).ReadString('\n')
	assert.NilError(w.t, err, "%s", line)
	url := regexp.MustCompile(`http://\S+/mcp`).FindString(line)
	assert.Assert(w.t, url != "", "%s", line)

	stdout, _, status := w.run(nil, "-server", url, "call", "search_chunks", "query=heron")
	assert.Check(w.t, is.Equal(status, 0))
	assert.Check(w.t, is.Contains(stdout, `"source":"sub/birds.md"`))
	client, err := Connect(ctx, HTTP{URL: url}.Start, nil)
	assert.NilError(w.t, err)
	defer client.Close()
	result, err := client.CallTool(ctx, "search_chunks", []byte(`{"query":"heron"}`), nil)
	assert.NilError(w.t, err)
	assert.Check(w.t, is.Contains(result.Content[0].Text, "mill pond"))
}

// runTests runs the tests of wineTests, each of which has to pass but for those of wineCannot.
func (w *wine) runTests() {
	names := testsOf(w.t, wineTests)
	for _, c := range wineCannot {
		w.t.Logf("not run in wine: %s %s", c.why, c.tests)
		for _, test := range strings.Fields(c.tests) {
			assert.Check(w.t, slices.Contains(names, test), "there is no %s", test)
			names = slices.DeleteFunc(names, func(name string) bool { return name == test })
		}
	}
	ctx, cancel := context.WithTimeout(w.t.Context(), 10*time.Minute)
	defer cancel()
	tests := w.command(ctx, nil, "tests.exe", "-test.v", "-test.timeout", "9m",
		"-test.run", "^("+strings.Join(names, "|")+")$")
	tests.Dir = "." // testdata is here
	var out bytes.Buffer
	tests.Stdout, tests.Stderr = &out, &out
	err := tests.Run()
	passed := testsPassed(out.String())
	for _, name := range names {
		assert.Check(w.t, passed[name], "%s did not pass", name)
	}
	if w.t.Failed() {
		w.t.Logf("%v\n%s", err, out.String())
	}
}

// testsOf returns the names of the tests of some files.
func testsOf(t *testing.T, files []string) (names []string) {
	t.Helper()
	for _, file := range files {
		text, err := os.ReadFile(file + "_test.go")
		assert.NilError(t, err)
		for _, test := range regexp.MustCompile(`(?m)^func (Test\w+)\(t `).FindAllSubmatch(text, -1) {
			names = append(names, string(test[1]))
		}
	}
	return names
}

// testsPassed reads what go test -v wrote, and returns the tests that have passed, with those that failed for nothing
// but notRemoved.
func testsPassed(output string) (passed map[string]bool) {
	begins := regexp.MustCompile(`^=== (?:RUN|CONT|NAME) +([^/]+)`)
	ends := regexp.MustCompile(`^--- (PASS|FAIL|SKIP): (\w+) `)
	message := regexp.MustCompile(`^\s+\w+\.go:\d+: `)
	failures := make(map[string]int) // messages of each test but notRemoved
	removals := make(map[string]int) // those
	passed = make(map[string]bool)
	running := ""
	for line := range strings.Lines(output) {
		line = strings.TrimRight(line, "\r\n")
		if begin := begins.FindStringSubmatch(line); begin != nil {
			running = begin[1]
		}
		switch {
		case notRemoved.MatchString(line):
			removals[running]++
		case message.MatchString(line):
			failures[running]++
		}
		if end := ends.FindStringSubmatch(line); end != nil {
			status, name := end[1], end[2]
			passed[name] = status == "PASS" || status == "FAIL" && removals[name] > 0 && failures[name] == 0
		}
	}
	return passed
}

func TestTestsPassed(t *testing.T) {
	const removal = "    testing.go:1: TempDir RemoveAll cleanup: unlinkat C:\\a: Invalid function.\r\n"
	for output, want := range map[string]bool{
		"--- PASS: TestA (0.00s)\n":                                     true,
		"--- SKIP: TestA (0.00s)\n":                                     false,
		"--- FAIL: TestA (0.00s)\n":                                     false,
		removal + "--- FAIL: TestA (0.00s)\r\n":                         true,
		"    a_test.go:1: no\n" + removal + "--- FAIL: TestA (0.00s)\n": false,
		"=== RUN   TestA/b\n    a_test.go:1: no\n=== NAME  TestA\n" + removal + "--- FAIL: TestA (0.00s)\n": false,
		"=== RUN   TestB\n" + removal + "=== RUN   TestA\n--- FAIL: TestA (0.00s)\n":                        false,
		removal: false,
	} {
		assert.Check(t, is.Equal(testsPassed("=== RUN   TestA\n" + output)["TestA"], want), "%s", output)
	}
}
