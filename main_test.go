package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

// TestMain makes the test binary several programs: the tests; mcpagent itself, where MCPAGENT_CHILD is main or the
// program started itself as its built-in server; and a server for tests, in the mode that MCPAGENT_CHILD names.
func TestMain(m *testing.M) {
	mode := os.Getenv("MCPAGENT_CHILD")
	serves := mode == "" && len(os.Args) > 1 && os.Args[1] == "serve"
	countStatements(mode != "" || serves)
	if mode == "main" || serves {
		status := run()
		if path := os.Getenv("MCPAGENT_PEAK"); path != "" { // what the program took of the machine, as Linux tells it
			memory, _ := os.ReadFile("/proc/self/status")
			_ = os.WriteFile(path, memory, 0o600)
		}
		os.Exit(status)
	}
	if status, ok := runPeer(mode); ok {
		os.Exit(status)
	}
	if mode != "" {
		os.Exit(runChild(mode))
	}
	if r, w, err := os.Pipe(); err == nil { // the runtime's own descriptors come with the first pipe
		r.Close()
		w.Close()
	}
	before := resources()
	code := m.Run()
	if flag.Lookup("test.fuzz").Value.String() != "" {
		os.Exit(code) // fuzzing leaves a goroutine of its own
	}
	if left := leftOver(before); left != "" && code == 0 {
		fmt.Fprintln(os.Stderr, "left over after all tests:", left)
		code = 1
	}
	os.Exit(code)
}

// countStatements makes `go test -cover` count the statements that child processes execute as well: all of them write
// their counters to the folder from which the tests' process makes the profile. A child finds that folder beside the
// test binary, as most children are started with an environment of their own.
func countStatements(child bool) {
	self, err := os.Executable()
	if err != nil || testing.CoverMode() == "" {
		return
	}
	folder := filepath.Join(filepath.Dir(self), "gocoverdir") // where the go command puts it
	if child {
		_ = os.Setenv("GOCOVERDIR", folder)
		return
	}
	flag.Parse()
	if flag.Lookup("test.gocoverdir").Value.String() == "" { // a test binary that the go command has not started
		_ = os.MkdirAll(folder, 0o700)
		_ = flag.Set("test.gocoverdir", folder)
	}
}

// raceEnabled reports whether the race detector is part of this binary.
var raceEnabled = func() bool {
	info, _ := debug.ReadBuildInfo()
	return info != nil && strings.Contains(info.String(), "-race=true")
}()

// count is what a test may leave no more of than there was.
type count struct {
	goroutines, files, children int
}

// openFiles returns what this process has open, by name, on Linux. (Wine has a /proc, too: that of its own process.)
func openFiles() (names []string) {
	if runtime.GOOS != "linux" {
		return nil
	}
	descriptors, _ := os.ReadDir("/proc/self/fd")
	for _, d := range descriptors {
		name, _ := os.Readlink("/proc/self/fd/" + d.Name())
		names = append(names, d.Name()+" "+name)
	}
	return names
}

func resources() (c count) {
	c.goroutines = runtime.NumGoroutine()
	c.files = len(openFiles())
	tasks, _ := filepath.Glob("/proc/self/task/*/children")
	for _, task := range tasks {
		children, _ := os.ReadFile(task)
		c.children += len(strings.Fields(string(children)))
	}
	return c
}

// leftOver describes what there is more of than before, after giving it some time to end: a goroutine that
// was waited for may still be executing its last instructions.
func leftOver(before count) string {
	deadline := time.Now().Add(5 * time.Second)
	for {
		now := resources()
		if now.goroutines <= before.goroutines && now.files <= before.files && now.children <= before.children {
			return ""
		}
		if time.Now().After(deadline) {
			stacks := make([]byte, 1<<20)
			return fmt.Sprintf("%+v, before %+v\nopen: %q\n%s", now, before, openFiles(),
				stacks[:runtime.Stack(stacks, true)])
		}
		time.Sleep(time.Millisecond)
	}
}

// checkLeaks makes the test fail if it leaves a goroutine, a file descriptor or a process behind. It
// goes first in a test, so that its check is the last. (Descriptors and processes are counted on Linux.)
func checkLeaks(t testing.TB) {
	t.Helper()
	before := resources()
	t.Cleanup(func() {
		if left := leftOver(before); left != "" {
			t.Errorf("left over: %s", left)
		}
	})
}

// Every variable that main_settings.go reads is in the help, which fits a window, and every command has an example.
func TestHelp(t *testing.T) {
	for _, columns := range []int{40, 64, helpColumns} {
		for line := range strings.Lines(usage(columns)) {
			assert.Check(t, Width(strings.TrimSuffix(line, "\n")) <= columns, "%d: %s", columns, line)
		}
	}
	source, err := os.ReadFile("main_settings.go")
	assert.NilError(t, err)
	names := regexp.MustCompile(`os\.Getenv\("(\w+)"\)|"(M[A-Z]+_\w+) `).FindAllStringSubmatch(string(source), -1)
	assert.Check(t, len(names) > 10)
	for _, name := range names {
		assert.Check(t, is.Contains(usage(helpColumns), cmp.Or(name[1], name[2])), "a variable that help does not name")
	}
	for _, c := range new(program).commands() {
		assert.Check(t, c.args == "" || strings.Contains(c.more, "  mcpagent "+c.name+" "), "%s has no example", c.name)
	}
}

// A log has a bound, a secret in two pieces does not get into it, and it keeps what other runs wrote, also while they
// go on.
func TestServerLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "logs", "a.log")
	open := func() (server *Server, written func() int64) {
		secrets := new(Secrets)
		secrets.Add("[secret]", "planted-secret")
		log, err := openServerLog(path)
		assert.NilError(t, err)
		t.Cleanup(func() { _ = log.file.Close() })
		server = &Server{Name: "a", Command: Command{Stderr: secrets.Writer(log)}}
		return server, log.written.Load
	}
	logged := func() string {
		text, err := os.ReadFile(path)
		assert.NilError(t, err)
		return regexp.MustCompile(`(?m)^--- \d{4}-\S+, process \d+$`).ReplaceAllString(string(text), "---")
	}
	write := func(server *Server, text string) {
		n, err := io.WriteString(server.Command.Stderr, text)
		assert.NilError(t, err)
		assert.Equal(t, n, len(text))
	}
	first, _ := open()
	second, _ := open()
	write(first, "it is planted-")
	assert.Equal(t, logged(), "---\nit is ")
	write(first, "secret\n")
	write(second, "another run\n")
	write(first, "goes on\n")
	assert.Equal(t, logged(), "---\nit is [secret]\n---\nanother run\ngoes on\n")

	third, written := open()
	assert.Equal(t, written(), int64(0))
	write(third, strings.Repeat("x", maxLog)+"\n")
	write(third, "the newest\nand pla")
	assert.Equal(t, logged(), "the newest\nand ")
	write(first, "goes on\n")
	assert.NilError(t, third.Command.Stderr.(*MaskWriter).Close())
	assert.Equal(t, logged(), "the newest\nand goes on\npla")
}

// An error of a server's start says what to do about it.
func TestExplain(t *testing.T) {
	status := func(code int) error { return &HTTPError{Status: code, Err: io.EOF} }
	for _, test := range []struct {
		err  error
		want string
	}{
		{&StartTimeoutError{After: time.Second}, "; MCP_START_TIMEOUT, or \"startTimeout\" in the " +
			"configuration, sets how long to wait"},
		{&Error{Message: "no"}, ""},
		{&Error{Code: -32600, Message: "Cannot send 'elicitation/create': there is no back-channel"},
			"; the server sends requests as before revision 2026-07-28: set \"protocol\": " +
				"\"2025-11-25\" in its configuration, or give -protocol 2025-11-25"},
		{&Error{Message: "Client does not support sampling (required for sampling/createMessage)"}, ""},
		{status(500), ""},
		{status(401), `; MCP_HEADERS, or "headers" in the configuration, sets headers`},
		{status(404), "; check the path of the URL: many servers use /mcp"},
		{&HTTPError{Err: http.ErrSchemeMismatch}, "; it speaks plain http: begin its URL with http://"},
		{&HTTPError{Err: &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}},
			"; nothing listens there: start the server, or check its URL"},
		{&HTTPError{Err: &net.OpError{Op: "dial", Err: os.NewSyscallError("connectex", syscall.Errno(10061))}},
			"; nothing listens there: start the server, or check its URL"},
	} {
		status := HostStatus{Name: "a", Err: test.err}
		servers := assemble().servers
		servers.config.servers = []Server{{Name: "a"}}
		assert.Check(t, is.Equal(servers.reason(status), test.err.Error()+test.want))
	}
}

// Of several servers that failed, each has its own advice, which follows its error.
func TestExplainSeveral(t *testing.T) {
	servers := assemble().servers
	away := fmt.Errorf("server away: tools/list: %w", &HTTPError{Err: syscall.ECONNREFUSED})
	late := fmt.Errorf("server late: %w", &StartTimeoutError{After: time.Second})
	assert.Check(t, is.Error(servers.explain(&ServersError{[]error{away, late}}), away.Error()+
		"; nothing listens there: start the server, or check its URL; "+late.Error()+
		"; MCP_START_TIMEOUT, or \"startTimeout\" in the configuration, sets how long to wait"))
}

// Headers may be indented, as in a script.
func TestReadHeaders(t *testing.T) {
	s := new(serverSettings)
	assert.NilError(t, s.readHeaders("\n  A: b\r\n\n  C: d:e\n  ", new(Secrets)))
	assert.DeepEqual(t, s.headers, http.Header{"A": {"b"}, "C": {"d:e"}})
}

// What is read has a bound, and ends with its context.
func TestReadAll(t *testing.T) {
	in := &textInput{settings: &serverSettings{timeout: time.Minute}}
	text, err := in.all(t.Context(), strings.NewReader(strings.Repeat("x", maxInput)))
	assert.NilError(t, err)
	assert.Equal(t, len(text), maxInput)
	_, err = in.all(t.Context(), strings.NewReader(strings.Repeat("x", maxInput+1)))
	assert.Error(t, err, "stdin has more than 4 MiB: pass less text")

	// What is written on Windows may begin with a byte order mark.
	text, err = in.all(t.Context(), strings.NewReader("\ufeff{}"))
	assert.NilError(t, err)
	assert.Equal(t, text, "{}")
	file := filepath.Join(t.TempDir(), "arguments")
	assert.NilError(t, os.WriteFile(file, []byte("\ufeff{}"), 0o600))
	text, err = in.argument(t.Context(), "@"+file)
	assert.NilError(t, err)
	assert.Equal(t, text, "{}")

	open, end := io.Pipe()
	defer end.Close()
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(io.ErrNoProgress)
	_, err = in.all(ctx, open)
	assert.ErrorIs(t, err, io.ErrNoProgress)
}

// A stdin that another process holds open is waited for, and the user is told; MCP_TIMEOUT ends the wait.
func TestSilentStdin(t *testing.T) {
	checkLeaks(t)
	home := t.TempDir()
	p := newProgram(t, home, append(programEnvironment(home), "MCP_TIMEOUT=4s"), "Why?")
	stdin, err := p.command.StdinPipe()
	assert.NilError(t, err)
	defer stdin.Close()
	assert.NilError(t, p.start())
	_, err = p.expect(regexp.MustCompile(`^still reading stdin, until its end; add </dev/null`))
	assert.NilError(t, err)
	assert.Equal(t, p.end(), exitUsage)
	assert.Check(t, is.Contains(p.log.String(), "mcpagent: stdin did not end within 4s"))
}

// What reads stdout may have enough of it, as head does: that is no failure, and needs no words.
func TestClosedStdout(t *testing.T) {
	checkLeaks(t)
	home := t.TempDir()
	p := newProgram(t, home, programEnvironment(home), "help")
	r, w, err := os.Pipe()
	assert.NilError(t, err)
	assert.NilError(t, r.Close())
	p.command.Stdout = w
	assert.NilError(t, p.start())
	w.Close()
	assert.Equal(t, p.end(), 0)
	assert.Equal(t, p.log.String(), "")
}

// A closed stdout does not hide that something else has failed: the file of -o, or the model.
func TestClosedStdoutHidesNothing(t *testing.T) {
	checkLeaks(t)
	tests := []struct {
		name   string
		answer modelAnswer
		args   []string
		status int
		log    string
	}{
		{"nothing for -o", modelAnswer{Content: "hi"}, []string{"-o", "image.png"}, exitTool, "no result has an image"},
		{"half an answer", modelAnswer{Content: "hi", Finish: "length"}, nil, exitModel, "mcpagent: "},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			home := t.TempDir()
			model := newModelServer(t, test.answer)
			variables := append(programEnvironment(home), "MISTRAL_BASE_URL="+model.URL, "MISTRAL_API_KEY="+peerKey)
			p := newProgram(t, home, variables, append(test.args, "-q", "Hello?")...)
			r, w, err := os.Pipe()
			assert.NilError(t, err)
			assert.NilError(t, r.Close())
			p.command.Stdout = w
			assert.NilError(t, p.start())
			w.Close()
			assert.Equal(t, p.end(), test.status)
			assert.Check(t, is.Contains(p.log.String(), test.log))
		})
	}
}

// A Ctrl-C ends the program while it reads the question from stdin.
func TestInterruptedReading(t *testing.T) {
	checkLeaks(t)
	if runtime.GOOS == "windows" {
		t.Skip("no signals can be sent to another process")
	}
	home := t.TempDir()
	p := newProgram(t, home, programEnvironment(home))
	stdin, err := p.command.StdinPipe()
	assert.NilError(t, err)
	defer stdin.Close()
	assert.NilError(t, p.start())
	_, err = stdin.Write(make([]byte, 1<<20)) // more than a pipe holds: when it is written, the program reads
	assert.NilError(t, err)
	assert.NilError(t, p.command.Process.Signal(os.Interrupt))
	assert.Equal(t, p.end(), exitInterrupted)
}

// What net/http logs is shown as all else is: on one line, without secrets.
func TestNetHTTPLog(t *testing.T) {
	checkLeaks(t)
	logged := make(chan struct{})
	handler := http.NewServeMux()
	handler.HandleFunc("/mcp", func(w http.ResponseWriter, r *http.Request) {
		message, err := io.ReadAll(r.Body)
		if err == nil && strings.Contains(string(message), `"tools/call"`) { // nothing uses the model's connection now
			select {
			case <-logged:
			case <-r.Context().Done():
			}
		}
		r.Body = io.NopCloser(bytes.NewReader(message))
		(&scriptPeer{}).ServeHTTP(w, r)
	})
	handler.HandleFunc("/v1/chat/completions", func(w http.ResponseWriter, r *http.Request) {
		if request, err := io.ReadAll(r.Body); err != nil || strings.Contains(string(request), `"role":"tool"`) {
			http.Error(w, "enough", http.StatusTeapot)
			return
		}
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		answer := `{"choices":[{"finish_reason":"tool_calls","message":{"role":"assistant","content":"","tool_calls":` +
			`[{"id":"a1b2c3d4e","function":{"name":"empty","arguments":"{}"}}]}}]}`
		fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s%s", len(answer),
			answer, "planted-password, unsolicited")
		_, _ = io.Copy(io.Discard, conn) // the client closes the connection when it has logged what else is there
		close(logged)
	})
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	home := t.TempDir()
	p := newProgram(t, home, append(programEnvironment(home), "MCP_SERVER="+server.URL+"/mcp",
		"MISTRAL_BASE_URL="+server.URL+"/v1", "MISTRAL_API_KEY=planted-password"), "-approve", "always", "Go on.")
	assert.NilError(t, p.start())
	assert.Equal(t, p.end(), exitModel, p.shown())
	assert.Check(t, is.Regexp(`(?m)^Unsolicited response .*"\[key\], unsolicited"`, p.shown()))
	assert.Check(t, !strings.Contains(p.shown(), "planted"), p.shown())
}

// A page in a browser cannot reach serve -http, whatever name it makes lead to this machine. A Ctrl-C ends the server.
func TestServeHTTP(t *testing.T) {
	checkLeaks(t)
	if runtime.GOOS == "windows" {
		t.Skip("no signals can be sent to another process")
	}
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	addresses := []string{":0"}
	hostname, err := os.Hostname()
	if _, lookup := net.LookupHost(hostname); err == nil && lookup == nil {
		addresses = append(addresses, hostname+":0")
	}
	for _, address := range addresses {
		home := t.TempDir()
		p := newProgram(t, home, programEnvironment(home), "serve", "-http", address)
		assert.NilError(t, p.start())
		match, err := p.expect(regexp.MustCompile(`MCP server at (\S+);.*\n`))
		assert.NilError(t, err)
		url := match[1]
		post := func(host, origin string, status int) {
			body := strings.NewReader(libStateless("1", "tools/list", ""))
			r, err := http.NewRequestWithContext(t.Context(), "POST", url, body)
			assert.NilError(t, err)
			r.Header, r.Host = lhttpModern("tools/list", "", "Origin: "+origin), host
			answer, err := client.Do(r)
			assert.NilError(t, err)
			answer.Body.Close()
			assert.Check(t, is.Equal(answer.StatusCode, status), "%s: host %q, origin %q", address, host, origin)
		}
		port := regexp.MustCompile(`:\d+`).FindString(url)
		post("localhost"+port, "http://localhost:3000", 200)
		post("", "https://evil.example", 403)
		post("evil.example"+port, "http://evil.example"+port, 403)
		answer, err := client.Get(strings.TrimSuffix(url, "/mcp"))
		assert.NilError(t, err)
		body, err := io.ReadAll(answer.Body)
		assert.NilError(t, err)
		answer.Body.Close()
		assert.Equal(t, fmt.Sprint(answer.StatusCode, " ", string(body)), "404 the endpoint is /mcp\n")
		assert.NilError(t, p.command.Process.Signal(os.Interrupt))
		assert.Equal(t, p.end(), exitInterrupted)
		assert.Check(t, is.Regexp(`\nmcpagent: interrupted\n$`, p.log.String()))
		_, err = client.Get(url)
		assert.ErrorContains(t, err, "refused")
	}
}

func TestSessionErrors(t *testing.T) {
	dir := t.TempDir()
	_, err := LoadSession(filepath.Join(dir, "none.json"))
	assert.ErrorIs(t, err, fs.ErrNotExist)
	const noSession = "not a session: it needs a version from 1 on and a history"
	for text, want := range map[string]string{
		``:                             "it is missing or empty",
		`[]`:                           "it must be an object, not an array",
		`{}`:                           noSession,
		`{"version":0,"history":[]}`:   noSession,
		`{"version":1}`:                noSession,
		`{"version":1,"history":null}`: noSession,
		`{"version":1,"history":{}}`:   "history must be an array, not an object",
		`{"version":2,"history":{"compressed":""}}`: "the session has version 2, and this program reads version 1: " +
			"use the program that wrote it",
	} {
		path := filepath.Join(dir, "bad.json")
		assert.NilError(t, os.WriteFile(path, []byte(text), 0o600))
		_, err := LoadSession(path)
		assert.Check(t, is.ErrorContains(err, "load session "+path+": "+want), "%s", text)
	}
}

// TestStderrExcerpt plays testdata/stderr.txt.
func TestStderrExcerpt(t *testing.T) {
	control := strings.NewReplacer("␛", "\x1b", "␍", "\r", "␇", "\a")
	count := 0
	playCases(t, "testdata/stderr.txt", func(t *testing.T, _ string, given []string) [][]string {
		count++
		stderr := ""
		for _, line := range given {
			stderr += control.Replace(strings.TrimPrefix(line, "<- ")) + "\n"
		}
		outcomes := make([][]string, len(given))
		if excerpt := StderrExcerpt(stderr); excerpt != "" {
			outcomes[len(given)-1] = []string{"= " + excerpt}
		}
		return outcomes
	})
	assert.Check(t, count > 20)
}

// Servers of MCP_SERVER that begin with the same program do not share what is kept of them.
func TestCommandHash(t *testing.T) {
	seen := make(map[string]bool)
	for _, c := range []Command{
		{Path: "python", Args: []string{"a.py"}}, {Path: "python", Args: []string{"b.py"}}, {Path: "python a.py"},
		{Path: "python", Args: []string{"a.py"}, Dir: "/srv"}, {Path: "python", Args: []string{"a.py", ""}},
	} {
		assert.Check(t, !seen[commandHash(&c)], "%+v", c)
		seen[commandHash(&c)] = true
	}
	assert.Check(t, seen[commandHash(&Command{Path: "python", Args: []string{"a.py"}, Dir: "."})])
}

// Tasks are kept in files that only their owner can read, so many and not more, and a file that is none is passed over.
func TestKeptTasks(t *testing.T) {
	for _, name := range []string{"XDG_CONFIG_HOME", "HOME", "AppData"} {
		t.Setenv(name, t.TempDir())
	}
	k := new(keptTasks)
	server := &Server{Name: "printer", URL: "http://printer/mcp"}
	event := func(id int) TaskEvent {
		task := Task{ID: fmt.Sprintf("%04d", id), TTL: time.Minute}
		return TaskEvent{Task: task, Tool: "print", Arguments: json.RawMessage(`{"key":"planted"}`)}
	}
	for id := range maxKeptTasks + 5 {
		k.onTask(t.Context(), server, event(id))
	}
	tasks := k.load()
	assert.Equal(t, len(tasks), maxKeptTasks)
	assert.Equal(t, tasks[len(tasks)-1].ID, fmt.Sprintf("%04d", maxKeptTasks+4))
	for _, task := range tasks {
		info, err := os.Stat(task.path)
		assert.NilError(t, err)
		assert.Check(t, runtime.GOOS == "windows" || info.Mode() == 0o600)
		text, err := os.ReadFile(task.path)
		assert.NilError(t, err)
		assert.Check(t, !strings.Contains(string(text), "planted"))
	}
	assert.Equal(t, tasks[0].TTL, time.Minute.Milliseconds())
	ended := event(maxKeptTasks + 4)
	ended.Ended = true
	k.onTask(t.Context(), server, ended)
	assert.Equal(t, len(k.load()), maxKeptTasks-1)
	for name, text := range map[string]string{"a": "{", "b": `{"id":7}`, "c": "{}", "d": ""} {
		assert.NilError(t, os.WriteFile(filepath.Join(taskRecords.folder(), name+".json"), []byte(text), 0o600))
	}
	assert.Equal(t, len(k.load()), maxKeptTasks-1)
}

// The conversation is saved with the question that is being answered before a task of it is waited for. The task is
// kept also where the conversation cannot be saved.
func TestKeptTaskOfSession(t *testing.T) {
	for _, name := range []string{"XDG_CONFIG_HOME", "HOME", "AppData"} {
		t.Setenv(name, t.TempDir())
	}
	warned := new(bytes.Buffer)
	k := &keptTasks{output: &output{screen: &Screen{Secrets: new(Secrets), streams: streams{stderr: warned}}}}
	path := filepath.Join(t.TempDir(), "s.json")
	kept := &keptSession{session: new(Session), path: path, isNamed: true}
	k.useSession(kept)
	begin := func(ctx context.Context, id string) {
		k.onTask(ctx, &Server{Name: "printer", URL: "http://printer/mcp"}, TaskEvent{Task: Task{ID: id}, Tool: "print"})
	}
	begin(t.Context(), "of a person")
	_, err := os.Stat(path)
	assert.ErrorIs(t, err, fs.ErrNotExist)
	kept.note([]ChatMessage{{Role: "user", Content: TextContent("Print it.")}})
	begin(context.WithValue(t.Context(), callKey{}, "call1"), "of the model")
	saved, err := LoadSession(path)
	assert.NilError(t, err)
	assert.Equal(t, len(saved.History), 2)
	assert.Equal(t, warned.String(), "")
	assert.NilError(t, os.WriteFile(path, []byte("no session"), 0o600))
	begin(context.WithValue(t.Context(), callKey{}, "call2"), "unsaved")
	assert.Check(t, is.Contains(warned.String(), "the existing file is not a session"))
	calls := make(map[string]string)
	for _, task := range k.load() {
		calls[task.ID] = task.Call + task.Session
	}
	assert.DeepEqual(t, calls,
		map[string]string{"of a person": "", "of the model": "call1" + path, "unsaved": "call2" + path})
}

// TestWithoutEffectNamesAddress: a key of OpenAI that is given in the place of the one in a file of mcphost would go to
// Mistral. So the address is named until it is given, or until the key goes nowhere.
func TestWithoutEffectNamesAddress(t *testing.T) {
	const note = "these settings have no effect here: the provider openai (give MISTRAL_BASE_URL: docs/start.md has the " +
		"addresses)"
	for _, c := range []struct {
		inFile, model, baseURL string
		others                 []Setting
		want                   string
	}{
		{inFile: "openai/gpt-4o", model: "gpt-4o", want: note},
		{inFile: "openai:gpt-4o", model: "gpt-4o", want: note},
		{inFile: "openai/gpt-4o", model: "gpt-4o", baseURL: "https://api.openai.com/v1"},
		{inFile: "openai/gpt-4o", model: "ollama:mistral"},
		{inFile: "ollama/mistral", model: "mistral"},
		{inFile: "mistral-small", model: "mistral-small"},
		{inFile: "openai/gpt-4o", model: "gpt-4o", others: []Setting{{Name: "provider-url", Text: "http://x"}},
			want: "these settings have no effect here: provider-url (give MISTRAL_BASE_URL)"},
	} {
		t.Setenv("MISTRAL_BASE_URL", c.baseURL)
		run := &settings{given: map[string]bool{"m": true, "model": true}}
		run.model.name, run.model.baseURL = c.model, c.baseURL
		got := withoutEffect(append([]Setting{{Name: "model", Text: c.inFile}}, c.others...), run)
		assert.Check(t, is.Equal(got, c.want), "%+v", c)
	}
}
