package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

// The whole program, run as its users run it: the test binary is the program where MCPAGENT_CHILD=main, and the
// servers that the program is given are the test binary again, in the modes of runProgramChild.

const (
	programKey  = "planted-key-0123456789abcdef"
	programRace = "GORACE=atexit_sleep_ms=0" // a program with the race detector ends a second late otherwise
)

// programServer is an MCP_SERVER: the mode, with more words for its environment.
func programServer(t *testing.T, mode string, variables ...string) string {
	t.Helper()
	path, err := os.Executable()
	assert.NilError(t, err)
	return "MCP_SERVER=" + programRace + " MCPAGENT_CHILD=" + mode + " " + strings.Join(variables, " ") + ` "` + path + `"`
}

// programRun is a run of the program.
type programRun struct {
	t       *testing.T
	command *exec.Cmd
	stdout  bytes.Buffer
	stderr  programLog
	seen    int    // of stderr, by saw
	home    string // what tells the processes of this run from all others
}

// programLog is the program's stderr as it grows.
type programLog struct {
	mu    sync.Mutex
	text  bytes.Buffer
	grown chan struct{} // has something in it since text was looked at
}

func (l *programLog) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.Write(text)
	select {
	case l.grown <- struct{}{}:
	default:
	}
	return len(text), nil
}

func (l *programLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// newProgram is the program, ready to start, with an environment of nothing but these variables and what a process
// needs to run at all. It ends within a minute, whatever it does.
func newProgram(t *testing.T, variables []string, args ...string) *programRun {
	t.Helper()
	path, err := os.Executable()
	assert.NilError(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	p := &programRun{t: t, command: exec.CommandContext(ctx, path, args...), home: t.TempDir()}
	p.stderr.grown = make(chan struct{}, 1)
	p.command.Env = append([]string{
		"MCPAGENT_CHILD=main", "PATH=" + os.Getenv("PATH"), "HOME=" + p.home, "USERPROFILE=" + p.home, "TMPDIR=" + os.TempDir(),
		"SYSTEMROOT=" + os.Getenv("SYSTEMROOT"), programRace,
	}, variables...)
	p.command.Dir = p.home
	p.command.Stdout, p.command.Stderr = &p.stdout, &p.stderr
	p.command.WaitDelay = 10 * time.Second
	return p
}

// start starts the program. A test that fails leaves nothing of it, either.
func (p *programRun) start() {
	p.t.Helper()
	assert.NilError(p.t, p.command.Start())
	p.t.Cleanup(func() {
		if p.command.ProcessState == nil { // the test did not get as far as end
			_ = p.command.Process.Kill()
			_ = p.command.Wait()
		}
		for pid := range p.processes() {
			if process, err := os.FindProcess(pid); err == nil {
				_ = process.Kill()
				_ = process.Release()
			}
		}
	})
}

// saw waits until stderr has the text, after the one that it saw last, and returns what is between the two.
func (p *programRun) saw(text string) (before string) {
	p.t.Helper()
	late := time.After(30 * time.Second)
	for {
		all := strings.ReplaceAll(p.stderr.String(), "\r\n", "\n") // as terminals have it
		before, _, found := strings.Cut(all[p.seen:], text)
		if found {
			p.seen += len(before) + len(text)
			return before
		}
		select {
		case <-p.stderr.grown:
		case <-late:
			p.t.Fatalf("stderr never had %q:\n%s", text, all)
		}
	}
}

// end waits for the program, and returns its exit status, -1 if a signal ended it. None of its processes may be left.
func (p *programRun) end() int {
	p.t.Helper()
	err := p.command.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		p.t.Fatalf("the program did not end as it should: %v\nstderr: %s", err, p.stderr.String())
	}
	late := time.Now().Add(10 * time.Second)
	for processes := p.processes(); len(processes) > 0; processes = p.processes() {
		if time.Now().After(late) {
			p.t.Fatalf("left over: %v", processes)
		}
		time.Sleep(time.Millisecond)
	}
	return p.command.ProcessState.ExitCode()
}

// processes are the command lines, by process id, of those that have the run's HOME, which all inherit and no other
// process has. (On Linux.)
func (p *programRun) processes() map[int]string {
	all := make(map[int]string)
	environments, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, file := range environments {
		environment, _ := os.ReadFile(file) // of a process that has ended there is none
		if bytes.Contains(append(environment, 0), []byte("HOME="+p.home+"\x00")) {
			line, _ := os.ReadFile(filepath.Join(filepath.Dir(file), "cmdline"))
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			all[pid] = string(bytes.ReplaceAll(line, []byte{0}, []byte{' '}))
		}
	}
	return all
}

// programOutcome is what a user sees of a run.
type programOutcome struct {
	stdout, stderr string
	status         int
}

// runProgram runs the program to its end.
func runProgram(t *testing.T, stdin string, variables []string, args ...string) programOutcome {
	t.Helper()
	p := newProgram(t, variables, args...)
	if stdin != "" {
		p.command.Stdin = strings.NewReader(stdin)
	}
	p.start()
	status := p.end()
	return programOutcome{p.stdout.String(), p.stderr.String(), status}
}

// fails checks that all a run said was one line on stderr: "mcpagent: " and the text, in which a * stands for anything.
func (o programOutcome) fails(t *testing.T, status int, text string) {
	t.Helper()
	pattern := "^mcpagent: " + strings.ReplaceAll(regexp.QuoteMeta(text), `\*`, ".*") + "\n$"
	assert.Check(t, is.Regexp(pattern, o.stderr))
	assert.Check(t, is.Equal(o.stdout, ""))
	assert.Check(t, is.Equal(o.status, status))
}

// programModel is the environment for a model server.
func programModel(s *modelServer, more ...string) []string {
	return append([]string{"MISTRAL_BASE_URL=" + s.URL, "MISTRAL_API_KEY=" + programKey}, more...)
}

// programAlways is a model server whose script ends with a reply for all that is asked later. (The lock is for the race
// detector, which does not see that another process asks.)
func programAlways(t *testing.T, rest modelReply, script ...modelReply) *modelServer {
	t.Helper()
	s := newModelServer(t, script...)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Rest = rest
	return s
}

// programSteady is text without the durations in it.
func programSteady(text string) string {
	return regexp.MustCompile(`\b[0-9.]+(ms|µs|s)\b`).ReplaceAllString(text, "TIME")
}

// runProgramChild is the servers of these tests.
func runProgramChild(mode string) (status int, ok bool) {
	switch mode {
	case "prog-exits":
		fmt.Fprint(os.Stderr, "loading\n\nno such file: library.db\n")
		return 7, true
	case "prog-key-exits": // in one line, of which an error has the end
		fmt.Fprintln(os.Stderr, strings.Repeat("the key is "+os.Getenv("PROGRAM_KEY")+" ", 100))
		return 7, true
	case "prog-loud":
		for i := range 10 {
			fmt.Fprintln(os.Stderr, "line", i)
		}
		return 7, true
	case "prog-silent":
		io.Copy(io.Discard, os.Stdin)
		return 0, true
	case "prog-key": // whatever is asked, the key is in it
		key := os.Getenv("PROGRAM_KEY")
		fmt.Fprintln(os.Stderr, "the key is", key)
		fmt.Println("the key is", key)
		before := map[string]string{"refuse": strings.Repeat("x", 374), "slow": strings.Repeat("x", 131)} // to where a line is cut
		return programServe(func(name string) string { return before[name] + "the key is " + key + ", says " + name }), true
	case "prog-banner":
		fmt.Print("Welcome to the server!\n\n42\n{\"jsonrpc\":\"2.0\",\n[]\n")
	case "prog-immortal": // also when the program is gone
		signal.Ignore(os.Interrupt, syscall.SIGTERM)
		programServe(nil)
		time.Sleep(time.Minute)
		return 0, true
	case "prog-stubborn":
		signal.Ignore(os.Interrupt, syscall.SIGTERM)
		parent := os.Getppid()
		programServe(nil)
		for os.Getppid() == parent { // ends with the program, so that the tests leave nothing
			time.Sleep(time.Millisecond)
		}
		return 0, true
	case "prog-tools", "prog-sick", "prog-many", "prog-none", "prog-bare", "prog-tasks", "prog-modern", "prog-mute", "prog-mortal", "prog-nosy":
	default:
		return 0, false
	}
	return programServe(nil), true
}

// programTools is what programServe offers, by name: the schema's properties, and what is required.
var programTools = []struct{ name, description, properties, required string }{
	{"echo", "Repeats a text.\nWord for word.", `"text":{"type":"string"}`, `"text"`},
	{"notes.read", "Reads a note.", `"zone":{"type":"string"},"name":{"type":"string"},"line":{"type":"integer"}`, `"name"`},
	{"fail", "", "", ""},
	{"refuse", "Answers with an error of the protocol.", "", ""},
	{"structured", "Structured content alone.", "", ""},
	{"image", "An image.", "", ""},
	{"empty", "Nothing at all.", "", ""},
	{"slow", "Tells of its progress.", "", ""},
	{"hang", "Waits to be cancelled.", "", ""},
	{"die", "Ends the server.", "", ""},
	{"ask", "Asks the client.", `"requests":{"type":"object"}`, `"requests"`},
}

// programChild is a server on stdin and stdout.
type programChild struct {
	mode string
	key  func(name string) string // if set, all that the server says is key of something
	name string                   // if set, the server has something that no other has
}

// say is a text of the server, about what has the name.
func (p *programChild) say(name, text string) string {
	if p.key != nil {
		return p.key(name)
	}
	return text
}

func programServe(key func(name string) string) int {
	p := &programChild{os.Getenv("MCPAGENT_CHILD"), key, os.Getenv("PROGRAM_NAME")}
	if delay, err := time.ParseDuration(os.Getenv("PROGRAM_DELAY")); err == nil {
		time.Sleep(delay) // as a slow server does, before it is there
	}
	tells := os.Getenv("PROGRAM_TELLS") != "" // what it is asked, on stderr
	if tells {
		fmt.Fprintln(os.Stderr, "started")
	}
	c := NewConn(NewLines(os.Stdin, os.Stdout), Handler{
		Request: func(ctx context.Context, c *Conn, method string, params json.RawMessage) (any, error) {
			if tells {
				fmt.Fprintln(os.Stderr, "asked", method)
			}
			if p.mode == "prog-modern" {
				return p.modern(ctx, c, method, params)
			}
			return p.handshake(ctx, c, method, params)
		},
		Notification: func(c *Conn, method string, params json.RawMessage) {
			switch {
			case method == "notifications/cancelled":
				fmt.Fprintln(os.Stderr, "cancelled")
				var p struct{ RequestID json.RawMessage }
				if json.Unmarshal(params, &p) == nil {
					c.CancelRequest(p.RequestID)
				}
			case method == "notifications/initialized" && p.mode == "prog-nosy": // asks at once
				go c.Call(context.Background(), "elicitation/create", json.RawMessage(programForm), nil)
			}
		},
	})
	err := c.Wait()
	fmt.Fprintln(os.Stderr, "end of stdin", err)
	c.Close()
	return 0
}

const programCapabilities = `"capabilities":{"tools":{},"resources":{},"prompts":{}}`

// modern is the server in the stateless era.
func (p *programChild) modern(ctx context.Context, c *Conn, method string, params json.RawMessage) (any, error) {
	var asker struct {
		Meta struct {
			Revision string `json:"io.modelcontextprotocol/protocolVersion"`
		} `json:"_meta"`
	}
	if json.Unmarshal(params, &asker) != nil || asker.Meta.Revision != "2026-07-28" {
		return nil, &Error{Code: CodeInvalidParams, Message: "no revision"}
	}
	if method == "server/discover" {
		return json.RawMessage(`{"resultType":"complete","supportedVersions":["2026-07-28"],` + programCapabilities +
			`,"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"prog","version":"1"}}}`), nil
	}
	result, err := p.answer(ctx, c, method, params)
	if object, ok := result.(map[string]any); ok && object["resultType"] == nil {
		object["resultType"] = "complete"
	}
	return result, err
}

// handshake is the server before it.
func (p *programChild) handshake(ctx context.Context, c *Conn, method string, params json.RawMessage) (any, error) {
	switch {
	case method == "initialize":
		var offer struct{ ProtocolVersion string }
		if err := json.Unmarshal(params, &offer); err != nil {
			return nil, err
		}
		return json.RawMessage(`{"protocolVersion":"` + offer.ProtocolVersion + `",` + programCapabilities +
			`,"serverInfo":{"name":"prog","version":"1"},"instructions":"Be kind to it."}`), nil
	case method == "server/discover" && p.mode == "prog-mortal":
		os.Exit(1)
	case method == "server/discover" && p.mode == "prog-mute":
		<-ctx.Done()
	}
	return p.answer(ctx, c, method, params)
}

func (p *programChild) answer(ctx context.Context, c *Conn, method string, params json.RawMessage) (any, error) {
	var asked struct {
		URI, Name string
		Arguments map[string]string
	}
	if method == "tools/call" {
		return p.call(ctx, c, params)
	}
	if err := json.Unmarshal(params, &asked); len(params) > 0 && err != nil {
		return nil, &Error{Code: CodeInvalidParams, Message: err.Error()}
	}
	switch {
	case p.mode == "prog-bare":
	case p.mode == "prog-sick" && method != "tools/list":
		return nil, &Error{Code: CodeInternalError, Message: "not today"}
	case p.mode == "prog-none":
		return map[string]any{"tools": []any{}, "resources": []any{}, "resourceTemplates": []any{}, "prompts": []any{}}, nil
	case method == "tools/list":
		return map[string]any{"tools": p.tools()}, nil
	case method == "resources/list":
		resources := []Resource{
			{URI: "note:///hello", Name: "hello", Description: p.say("hello", "A greeting.\nA short one."), MIMEType: "text/plain", Size: 5},
			{URI: "note:///bytes", Name: "bytes", Title: "Some bytes"},
		}
		if p.name != "" {
			resources = append(resources, Resource{URI: "only:///" + p.name, Name: p.name})
		}
		return map[string]any{"resources": resources}, nil
	case method == "resources/templates/list":
		templates := []ResourceTemplate{{URITemplate: "note:///{name}", Name: p.say("any", "any note"), MIMEType: "text/plain"}}
		if p.name != "" {
			templates = append(templates, ResourceTemplate{URITemplate: p.name + ":///{name}", Name: "its own"})
		}
		return map[string]any{"resourceTemplates": templates}, nil
	case method == "resources/read":
		contents := map[string][]ResourceContents{
			"note:///hello": {{URI: asked.URI, Text: p.say("hello", "hello")}},
			"note:///red":   {{URI: asked.URI, Text: "a\x1b[31m\r\n"}},
			"note:///bytes": {{URI: asked.URI, MIMEType: "application/x-bytes", Blob: []byte(p.say("bytes", "\x00\xff\x1b\n"))}},
			"note:///all":   {{URI: "note:///hello", Text: "hello\n"}, {URI: "note:///bytes", Blob: []byte("\x00\xff\n")}},
			"note:///none":  {},
		}[asked.URI]
		if p.name != "" && strings.Contains(asked.URI, p.name) {
			contents = []ResourceContents{{URI: asked.URI, Text: p.name + " has it\n"}}
		}
		if contents == nil {
			return nil, &Error{Code: CodeResourceNotFound, Message: "there is no " + p.say("note", asked.URI)}
		}
		if len(contents) == 0 { // as some servers say it
			return map[string]any{}, nil
		}
		return map[string]any{"contents": contents}, nil
	case method == "prompts/list":
		prompts := []Prompt{
			{Name: "greet", Description: p.say("greet", "Greets somebody.\nOr something."),
				Arguments: []PromptArgument{{Name: "who", Required: true}, {Name: "how"}}},
			{Name: "plain", Title: "Nothing to fill in"},
		}
		if p.name != "" {
			prompts = append(prompts, Prompt{Name: "only-" + p.name})
		}
		return map[string]any{"prompts": prompts}, nil
	case method == "prompts/get":
		text := p.say("prompt", fmt.Sprintf("Greet %q %q.", asked.Arguments["who"], asked.Arguments["how"])+p.name)
		return map[string]any{"messages": []PromptMessage{
			{Role: "user", Content: ContentBlock{Type: "text", Text: text}},
			{Role: "assistant", Content: ContentBlock{Type: "image", MIMEType: "image/png", Data: []byte{0, 1, 2}}},
		}}, nil
	}
	return nil, &Error{Code: CodeMethodNotFound, Message: "unheard of: " + method}
}

func (p *programChild) tools() []Tool {
	tools := []Tool{}
	for _, tool := range programTools {
		schema := fmt.Sprintf(`{"type":"object","properties":{%s},"required":[%s]}`, tool.properties, tool.required)
		tools = append(tools, Tool{Name: tool.name, Description: p.say(tool.name, tool.description), InputSchema: json.RawMessage(schema)})
	}
	if p.name != "" {
		tools = append(tools, Tool{Name: "only_" + p.name, InputSchema: json.RawMessage(`{"type":"object"}`)})
	}
	for i := range 130 - len(tools) {
		if p.mode == "prog-many" {
			tools = append(tools, Tool{Name: fmt.Sprint("tool", i), InputSchema: json.RawMessage(`{"type":"object"}`)})
		}
	}
	if p.mode == "prog-tasks" {
		for i := range tools[:2] {
			tools[i].Execution = json.RawMessage(`{"taskSupport":"required"}`)
		}
	}
	return tools
}

func (p *programChild) call(ctx context.Context, c *Conn, params json.RawMessage) (any, error) {
	var call struct {
		Name      string
		Arguments struct {
			Text, Name string
			Requests   map[string]struct {
				Method string          `json:"method"`
				Params json.RawMessage `json:"params"`
			}
		}
		InputResponses json.RawMessage
		Meta           struct{ ProgressToken json.RawMessage } `json:"_meta"`
	}
	if err := json.Unmarshal(params, &call); err != nil {
		return nil, err
	}
	progress := func(n int, message string) {
		time.Sleep(300 * time.Millisecond) // as a slow tool does; what comes faster is not shown
		c.Notify(ctx, "notifications/progress", map[string]any{
			"progressToken": call.Meta.ProgressToken, "progress": n, "total": 2, "message": message,
		})
	}
	text := func(text string) (any, error) {
		block := map[string]any{"type": "text", "text": p.say(call.Name, text)}
		return map[string]any{"content": []any{block}, "isError": call.Name == "fail"}, nil
	}
	switch call.Name {
	case "echo":
		return text(p.name + call.Arguments.Text)
	case "only_" + p.name:
		return text(p.name + " alone")
	case "notes.read":
		return text("the note " + call.Arguments.Name)
	case "fail":
		return text("the disk is full")
	case "structured":
		return json.RawMessage(`{"content":[],"structuredContent":{"sum":3}}`), nil
	case "image":
		return json.RawMessage(`{"content":[{"type":"text","text":"Here:"},{"type":"image","data":"AAEC","mimeType":"image/png"}]}`), nil
	case "empty":
		return json.RawMessage(`{}`), nil
	case "slow":
		progress(1, p.say("slow", "half\nway"))
		if p.key == nil {
			progress(2, "")
		}
		return text("slow but sure")
	case "hang":
		fmt.Fprintln(os.Stderr, "hanging")
		<-ctx.Done()
		return nil, ctx.Err()
	case "die":
		fmt.Fprintln(os.Stderr, "out of memory")
		os.Exit(9)
	case "ask": // the answers, as they came
		if p.mode == "prog-modern" {
			if call.InputResponses == nil {
				return map[string]any{"resultType": "input_required", "inputRequests": call.Arguments.Requests}, nil
			}
			return text(string(call.InputResponses))
		}
		var asking sync.WaitGroup
		var mu sync.Mutex // guards answers
		answers := make(map[string]any)
		for name, request := range call.Arguments.Requests {
			asking.Go(func() {
				var answer json.RawMessage
				err := c.Call(ctx, request.Method, request.Params, &answer)
				mu.Lock()
				defer mu.Unlock()
				if answers[name] = answer; err != nil {
					answers[name] = err.Error()
				}
			})
		}
		asking.Wait()
		all, err := json.Marshal(answers)
		if err != nil {
			return nil, err
		}
		return text(string(all))
	}
	return nil, &Error{Code: CodeInternalError, Message: p.say(call.Name, "first line\nsecond line")}
}

// With no environment at all, the program answers from its own source, offline.
func TestProgramOffline(t *testing.T) {
	checkLeaks(t)
	for _, test := range []struct {
		what, stdin string
		args        []string
	}{
		{"one argument", "", []string{"How does a call find its answer?"}},
		{"several words", "", strings.Fields("How does a call find its answer?")},
		{"stdin", "How does a call\nfind its answer?\n", nil},
	} {
		t.Run(test.what, func(t *testing.T) {
			o := runProgram(t, test.stdin, nil, test.args...)
			assert.Equal(t, o.status, 0, o.stderr)
			assert.Check(t, is.Regexp(`(?m)^\w+\.go:\d+$`, o.stdout), "a source")
			assert.Check(t, is.Contains(o.stdout, "This is no language model"))
			assert.Check(t, is.Regexp(`^no MISTRAL_API_KEY: the built-in stand-in answers, which is no language model
> search_chunks {"query":"How does a call\S* ?find its answer\?"}
(  search_chunks .*\n)*< search_chunks TIME, \d+ bytes
offline: 2 turns, 1 call
$`, programSteady(strings.ReplaceAll(o.stderr, `\n`, " "))))
		})
	}
	o := runProgram(t, "", nil, "-q", "How does a call find its answer?")
	assert.Equal(t, o.status, 0)
	assert.Equal(t, o.stderr, "")
	assert.Check(t, is.Contains(o.stdout, "This is no language model"))
}

// The answer is on stdout alone; everything else on stderr, one line each.
func TestProgramAsk(t *testing.T) {
	checkLeaks(t)
	model := newModelServer(t,
		modelCalls(modelCall("aaaaaaaa1", "echo", `{"text": "hi"}`), modelCall("aaaaaaaa2", "notes_read", `{"name":"n1"}`)),
		modelCalls(modelCall("aaaaaaaa3", "slow", `{}`)),
		modelCalls(modelCall("aaaaaaaa4", "fail", ``), modelCall("aaaaaaaa5", "refuse", `{}`), modelCall("aaaaaaaa6", "ecko", `{}`)),
		modelText("All done.\nReally."))
	o := runProgram(t, "", programModel(model, programServer(t, "prog-tools"), "MCP_APPROVE=always", "MCP_SYSTEM=Be brief.", "MISTRAL_MODEL=small"),
		"do", "it", "all")
	assert.Equal(t, o.stdout, "All done.\nReally.\n")
	assert.Equal(t, o.status, 0)
	lines := strings.Split(programSteady(o.stderr), "\n")
	for _, want := range []string{
		`> echo {"text": "hi"}`, `< echo TIME, 2 bytes`,
		`> notes_read {"name":"n1"}`, `< notes_read TIME, 11 bytes`,
		`> slow {}`, `  slow 1/2 half way`, `  slow 2/2`, `< slow TIME, 13 bytes`,
		`> fail {}`, `< fail failed after TIME: the disk is full`,
		`> refuse {}`, `< refuse failed after TIME: first line second line (error -32603)`,
		`< ecko {}: there is no tool "ecko"; the nearest are: echo`,
		`small: 4 turns, 6 calls, 60 tokens (40 in, 20 out)`,
	} {
		assert.Check(t, is.Contains(lines, want))
	}
	assert.Check(t, is.Len(lines, 15), o.stderr)

	requests := model.Requests()
	first := requests[0]
	assert.Equal(t, first.Header.Get("Authorization"), "Bearer "+programKey)
	assert.Equal(t, first.Messages[0].Content.Text(), "Be brief.\n\nThe server says of its tools:\nBe kind to it.")
	assert.Equal(t, first.Last(), "do it all")
	assert.Equal(t, len(first.Tools), len(programTools))
	assert.Equal(t, requests[1].Last(), "the note n1")
	assert.Equal(t, requests[3].Last(), `Error: there is no tool "ecko"; the nearest are: echo`)

	// What follows -- is the question, whatever it looks like.
	model = newModelServer(t, modelText("It is quiet."))
	o = runProgram(t, "", programModel(model, programServer(t, "prog-tools")), "-q", "--", "what", "does", "-q", "do?")
	assert.Equal(t, o, programOutcome{"It is quiet.\n", "", 0})
	assert.Equal(t, model.Requests()[0].Last(), "what does -q do?")
}

func TestProgramAskJSON(t *testing.T) {
	checkLeaks(t)
	model := newModelServer(t,
		modelCalls(modelCall("aaaaaaaa1", "echo", `{"text": "a<b"}`), modelCall("aaaaaaaa2", "fail", `{broken`)), modelText("<done>"))
	o := runProgram(t, "the question", programModel(model, programServer(t, "prog-tools"), "MCP_APPROVE=always"), "-json", "-q")
	assert.Equal(t, o.status, 0, o.stderr)
	assert.Equal(t, o.stderr, "")
	d := json.NewDecoder(strings.NewReader(o.stdout))
	d.DisallowUnknownFields()
	var got report
	assert.NilError(t, d.Decode(&got))
	assert.Equal(t, got.Answer, "<done>")
	assert.Check(t, is.Contains(o.stdout, "<done>"), "no escapes that nobody needs")
	assert.Equal(t, got.Turns, 2)
	assert.Equal(t, got.Model, "mistral-large-latest")
	assert.DeepEqual(t, got.Usage, Usage{PromptTokens: 20, CompletionTokens: 10, TotalTokens: 30})
	assert.Equal(t, len(got.Calls), 2)
	broken, well := got.Calls[0], got.Calls[1] // as they ended
	assert.Equal(t, well.Name, "echo")
	var arguments bytes.Buffer
	assert.NilError(t, json.Compact(&arguments, well.Arguments))
	assert.Equal(t, arguments.String(), `{"text":"a<b"}`)
	assert.Equal(t, well.Bytes, 3)
	assert.Assert(t, well.Seconds > 0)
	assert.Equal(t, well.Error, "")
	assert.Equal(t, string(broken.Arguments), "{}")
	assert.Check(t, is.Regexp("^the arguments are not valid JSON .*{broken$", broken.Error))

	// Without calls, the list is empty and not null.
	o = runProgram(t, "", programModel(newModelServer(t, modelText("hi"))), "-json", "hello")
	assert.Check(t, is.Contains(o.stdout, `"calls": []`))
}

// With -json, an error is JSON, too, and once.
func TestProgramErrorJSON(t *testing.T) {
	checkLeaks(t)
	for _, test := range []struct {
		args   []string
		want   string
		status int
	}{
		{[]string{"-json", "-approve", "maybe", "hi"}, `{"error": "MCP_APPROVE: \"maybe\" is none of ask, always, never (see: mcpagent help)"}`, 2},
		{[]string{"-json", "-server", "no-such-command", "hi"}, `{"error": "start server no-such-command: exec: \"no-such-command\": executable file not found in `, 1},
		{[]string{"-json", "call", "echoo"}, `{"error": "the server has no tool \"echoo\"; the nearest are: echo (see: mcpagent tools)"}`, 2},
		{[]string{"-json", "call", "refuse"}, `{"error": "tools/call refuse: first line second line (error -32603)"}`, 3},
		{[]string{"-json", "call", "fail"}, `{"content": [{"type": "text", "text": "the disk is full"}], "isError": true}`, 3},
		{[]string{"-json", "call", "empty"}, `{"content": []}`, 0},
	} {
		o := runProgram(t, "", []string{programServer(t, "prog-tools")}, test.args...)
		assert.Check(t, is.Equal(o.status, test.status))
		text := regexp.MustCompile(`\n *`).ReplaceAllString(strings.TrimSpace(o.stdout), "")
		text = strings.ReplaceAll(text, `,"`, `, "`)
		assert.Check(t, strings.HasPrefix(text, test.want), "%v: %s", test.args, text)
		assert.Check(t, json.Valid([]byte(o.stdout)), o.stdout)
	}
}

func TestProgramTools(t *testing.T) {
	checkLeaks(t)
	server := programServer(t, "prog-tools")
	for range 3 { // in the same order, every time
		o := runProgram(t, "", []string{server}, "tools")
		assert.Equal(t, o.status, 0, o.stderr)
		assert.Equal(t, o.stderr, "")
		assert.Assert(t, strings.HasPrefix(o.stdout, `echo(text)
    Repeats a text.
notes.read(name, line?, zone?)
    Reads a note.
fail()
`), o.stdout)
	}
	o := runProgram(t, "", []string{server}, "tools", "-json")
	var tools []Tool
	assert.NilError(t, json.Unmarshal([]byte(o.stdout), &tools))
	assert.Equal(t, len(tools), len(programTools))
	assert.Equal(t, tools[1].Name, "notes.read")

	o = runProgram(t, "", []string{programServer(t, "prog-none")}, "tools")
	assert.Equal(t, o, programOutcome{"", "the server has no tools\n", 0})
	o = runProgram(t, "", []string{programServer(t, "prog-none")}, "-json", "tools")
	assert.Equal(t, o, programOutcome{"[]\n", "", 0})
}

func TestProgramCall(t *testing.T) {
	checkLeaks(t)
	server := programServer(t, "prog-tools")
	for _, test := range []struct {
		args []string
		want programOutcome
	}{
		{[]string{"call", "echo", `{"text":"é\n\u0007"}`}, programOutcome{"é\n\a\n", "", 0}}, // as it is: this is no terminal
		{[]string{"call", "notes_read", `{"name":"x"}`}, programOutcome{"the note x\n", "", 0}},
		{[]string{"call", "notes.read", `{"name":"x"}`}, programOutcome{"the note x\n", "", 0}},
		{[]string{"call", "structured"}, programOutcome{"{\"sum\":3}\n", "", 0}},
		{[]string{"call", "image", "{}"}, programOutcome{"Here:\n[image: image/png, 3 bytes]\n", "", 0}},
		{[]string{"call", "empty"}, programOutcome{"", "", 0}},
		{[]string{"call", "slow"}, programOutcome{"slow but sure\n", "  slow 1/2 half way\n  slow 2/2\n", 0}},
		{[]string{"call", "-q", "slow"}, programOutcome{"slow but sure\n", "", 0}},
		{[]string{"call", "fail"}, programOutcome{"the disk is full\n", "mcpagent: fail reported an error\n", 3}},
		{[]string{"call", "refuse"}, programOutcome{"", "mcpagent: tools/call refuse: first line second line (error -32603)\n", 3}},
		// Its own word is enough: call asks nobody.
		{[]string{"-approve", "never", "call", "echo", `{"text":"a"}`}, programOutcome{"a\n", "", 0}},
		// Flags stand anywhere; what follows -- is none.
		{[]string{"call", "echo", "-q", `{"text":"a"}`, "-approve=ask"}, programOutcome{"a\n", "", 0}},
		{[]string{"-q", "call", "echo", "--", `{"text":"a"}`}, programOutcome{"a\n", "", 0}},
	} {
		assert.Equal(t, runProgram(t, "", []string{server}, test.args...), test.want)
	}
	o := runProgram(t, "", []string{server}, "call", "image", "-json")
	var result ToolResult
	assert.NilError(t, json.Unmarshal([]byte(o.stdout), &result))
	assert.Equal(t, string(result.Content[1].Data), "\x00\x01\x02")
}

// What runs only as a task is left out, and the user is told so.
func TestProgramTasks(t *testing.T) {
	checkLeaks(t)
	server := []string{programServer(t, "prog-tasks")}
	const note = "left out, as they run only as tasks, which this client does not speak: echo, notes.read\n"
	o := runProgram(t, "", server, "tools")
	assert.Equal(t, o.status, 0)
	assert.Equal(t, o.stderr, note)
	assert.Check(t, strings.HasPrefix(o.stdout, "fail()\n"), o.stdout)

	o = runProgram(t, "", server, "tools", "-json")
	assert.Equal(t, o.stderr, note)
	var tools []Tool
	assert.NilError(t, json.Unmarshal([]byte(o.stdout), &tools))
	assert.Equal(t, len(tools), len(programTools)-2)

	for _, name := range []string{"notes.read", "notes_read"} {
		runProgram(t, "", server, "call", name).fails(t, 2, "the tool "+name+" runs only as a task, which this client does not speak")
	}

	model := newModelServer(t, modelText("hi"))
	o = runProgram(t, "", programModel(model, server...), "-q", "hello")
	assert.Equal(t, o.status, 0)
	assert.Equal(t, len(model.Requests()[0].Tools), len(programTools)-2)
}

// Resources and prompts, in either era.
func TestProgramResourcesAndPrompts(t *testing.T) {
	checkLeaks(t)
	for _, mode := range []string{"prog-tools", "prog-modern"} {
		server := []string{programServer(t, mode), "MISTRAL_API_KEY=" + programKey}
		for _, test := range []struct {
			args   []string
			stdout string
		}{
			{[]string{"resources"}, "note:///hello (text/plain, 5 bytes)\n    A greeting.\nnote:///bytes\n    Some bytes\nnote:///{name} (text/plain)\n    any note\n"},
			{[]string{"read", "note:///hello"}, "hello"}, // as it is: nobody looks
			{[]string{"read", "note:///red"}, "a\x1b[31m\r\n"},
			{[]string{"read", "note:///bytes"}, "\x00\xff\x1b\n"},
			{[]string{"read", "note:///all"}, "hello\n\x00\xff\n"},
			{[]string{"read", "note:///none"}, ""},
			{[]string{"prompts"}, "greet (who, how?)\n    Greets somebody.\nplain\n    Nothing to fill in\n"},
			{[]string{"prompt", "plain"}, "user: Greet \"\" \"\".\nassistant: [image: image/png, 3 bytes]\n"},
			{[]string{"prompt", "greet", "who=Ann Lee", "how="}, "user: Greet \"Ann Lee\" \"\".\nassistant: [image: image/png, 3 bytes]\n"},
			{[]string{"prompt", "greet", "how=a=b", "-q", "--", "who=-q"}, "user: Greet \"-q\" \"a=b\".\nassistant: [image: image/png, 3 bytes]\n"},
		} {
			t.Run(mode+" "+strings.Join(test.args, " "), func(t *testing.T) {
				assert.Equal(t, runProgram(t, "", server, test.args...), programOutcome{test.stdout, "", 0})
			})
		}
		runProgram(t, "", server, "read", "note:///nothing").fails(t, 3, "resources/read note:///nothing: there is no note:///nothing (error -32002)")
	}
}

func TestProgramResourcesAndPromptsJSON(t *testing.T) {
	checkLeaks(t)
	decode := func(into any, args ...string) {
		t.Helper()
		o := runProgram(t, "", []string{programServer(t, "prog-tools")}, append(args, "-json")...)
		assert.Equal(t, o.status, 0, o.stderr)
		assert.Equal(t, o.stderr, "")
		d := json.NewDecoder(strings.NewReader(o.stdout))
		d.DisallowUnknownFields()
		assert.NilError(t, d.Decode(into), o.stdout)
	}
	var lists struct {
		Resources []struct {
			Server string
			Resource
		}
		ResourceTemplates []struct {
			Server string
			ResourceTemplate
		}
	}
	decode(&lists, "resources")
	assert.Equal(t, lists.Resources[0].URI+lists.ResourceTemplates[0].URITemplate, "note:///hellonote:///{name}")
	assert.Check(t, lists.Resources[0].Server != "" && lists.ResourceTemplates[0].Server != "")
	var contents []ResourceContents
	decode(&contents, "read", "note:///all")
	assert.DeepEqual(t, contents, []ResourceContents{{URI: "note:///hello", Text: "hello\n"}, {URI: "note:///bytes", Blob: []byte("\x00\xff\n")}})
	decode(&contents, "read", "note:///none")
	assert.DeepEqual(t, contents, []ResourceContents{})
	var prompts []struct {
		Server string
		Prompt
	}
	decode(&prompts, "prompts")
	assert.DeepEqual(t, prompts[0].Arguments, []PromptArgument{{Name: "who", Required: true}, {Name: "how"}})
	var prompt PromptResult
	decode(&prompt, "prompt", "greet", "who=Ann")
	assert.Equal(t, prompt.Messages[0].Content.Text, `Greet "Ann" "".`)

	runProgram(t, "", []string{programServer(t, "prog-tools")}, "read", "note:///nothing").fails(t, 3, "resources/read note:///nothing: *")
}

// A server need not have anything, nor even know that it could.
func TestProgramEmptyServer(t *testing.T) {
	checkLeaks(t)
	for _, mode := range []string{"prog-none", "prog-bare"} {
		server := []string{programServer(t, mode)}
		for command, none := range map[string]string{"tools": "[]\n", "prompts": "[]\n", "resources": "{\n  \"resourceTemplates\": [],\n  \"resources\": []\n}\n"} {
			assert.Equal(t, runProgram(t, "", server, command), programOutcome{"", "the server has no " + command + "\n", 0})
			assert.Equal(t, runProgram(t, "", server, command, "-json"), programOutcome{none, "", 0})
		}
		runProgram(t, "", server, "call", "echo").fails(t, 2, `the server has no tool "echo", nor any other`)
		runProgram(t, "", server, "prompt", "greet").fails(t, 2, `the server has no prompt "greet", nor any other`)
	}
	runProgram(t, "", []string{programServer(t, "prog-bare")}, "read", "note:///hello").fails(t, 3,
		"resources/read note:///hello: unheard of: resources/read (error -32601)")
}

// How a server begins: each line is a start of it, or what it was asked.
func TestProgramEras(t *testing.T) {
	checkLeaks(t)
	for _, test := range []struct{ what, mode, protocol, want string }{
		{"handshake era", "prog-tools", "auto", "started, asked server/discover, asked initialize, asked tools/list, asked tools/call"},
		{"stateless era", "prog-modern", "auto", "started, asked server/discover, asked tools/list, asked tools/call"},
		{"dies of the probe", "prog-mortal", "auto", "started, asked server/discover, started, asked initialize, asked tools/list, asked tools/call"},
		{"silent", "prog-mute", "auto", "started, asked server/discover, asked initialize, asked tools/list, asked tools/call"},
		{"2026-07-28", "prog-modern", "2026-07-28", "started, asked server/discover, asked tools/list, asked tools/call"},
		{"2025-11-25", "prog-mortal", "2025-11-25", "started, asked initialize, asked tools/list, asked tools/call"},
		{"2025-06-18", "prog-mortal", "2025-06-18", "started, asked initialize, asked tools/list, asked tools/call"},
		{"2025-03-26", "prog-mortal", "2025-03-26", "started, asked initialize, asked tools/list, asked tools/call"},
		{"2024-11-05", "prog-mortal", "2024-11-05", "started, asked initialize, asked tools/list, asked tools/call"},
	} {
		t.Run(test.what, func(t *testing.T) {
			o := runProgram(t, "", []string{programServer(t, test.mode, "PROGRAM_TELLS=1"), "MCP_TRACE=1", "MCP_PROTOCOL=" + test.protocol},
				"call", "echo", `{"text":"hi"}`)
			assert.Equal(t, o.stdout, "hi\n", o.stderr)
			assert.Equal(t, o.status, 0)
			var story []string
			for _, line := range regexp.MustCompile(`(?m)^!! stderr: ((?:started|asked).*)$`).FindAllStringSubmatch(o.stderr, -1) {
				story = append(story, line[1])
			}
			assert.Equal(t, strings.Join(story, ", "), test.want)
			if test.protocol != "auto" {
				assert.Check(t, is.Contains(o.stderr, `rotocolVersion":"`+test.protocol+`"`))
			}
		})
	}

	// A revision that the server does not speak: one line, exit status 1.
	runProgram(t, "", []string{programServer(t, "prog-tools"), "MCP_PROTOCOL=2026-07-28"}, "tools").fails(t, 1,
		"the server does not speak 2026-07-28: server/discover: unheard of: server/discover (error -32601)")
	runProgram(t, "", []string{programServer(t, "prog-modern"), "MCP_PROTOCOL=2025-11-25"}, "tools").fails(t, 1,
		"initialize: no revision (error -32602)")
}

// programAsks is arguments that make the tool ask put questions to the client: method and params, by name.
func programAsks(requests ...string) string {
	var members []string
	for i := 0; i < len(requests); i += 3 {
		members = append(members, fmt.Sprintf(`%q:{"method":%q,"params":%s}`, requests[i], requests[i+1], requests[i+2]))
	}
	return `{"requests":{` + strings.Join(members, ",") + `}}`
}

const (
	programSample = `{"messages":[{"role":"user","content":{"type":"text","text":"Which bird?"}}],"systemPrompt":"Be brief.","maxTokens":9}`
	programForm   = `{"message":"Who are\nyou?","requestedSchema":{"type":"object","properties":{"name":{"type":"string"}}}}`
)

// Without a terminal, a question to the user is declined, and the user is told of it.
func TestProgramElicitsNobody(t *testing.T) {
	checkLeaks(t)
	for _, mode := range []string{"prog-tools", "prog-modern"} {
		server := []string{programServer(t, mode), "MCP_APPROVE=always"}
		ask := programAsks("q", "elicitation/create", programForm)
		want := programOutcome{"{\"q\":{\"action\":\"decline\"}}\n", "the server asks \"Who are you?\": declined, as nobody can be asked without a terminal\n", 0}
		assert.Equal(t, runProgram(t, "", server, "call", "ask", ask), want)
		want.stderr = ""
		assert.Equal(t, runProgram(t, "", server, "-q", "call", "ask", ask), want)
	}
}

// A server may use the model only if it was said beforehand, or somebody says so; then it is the agent's own.
func TestProgramSampling(t *testing.T) {
	checkLeaks(t)
	ask := programAsks("q", "sampling/createMessage", programSample)
	for _, mode := range []string{"prog-tools", "prog-modern"} {
		model := newModelServer(t, modelText("A heron."))
		o := runProgram(t, "", programModel(model, programServer(t, mode), "MCP_APPROVE=always"), "call", "ask", ask)
		assert.Equal(t, o, programOutcome{`{"q":{"role":"assistant","content":{"type":"text","text":"A heron."},"model":"mistral-large-latest","stopReason":"endTurn"}}` + "\n",
			"the server asks the model\n", 0})
		request := model.Requests()[0]
		assert.Equal(t, request.Header.Get("Authorization"), "Bearer "+programKey)
		assert.Equal(t, request.Messages[0].Content.Text(), "Be brief.")
		assert.Equal(t, request.Last(), "Which bird?")

		for _, approve := range []string{"", "ask", "never"} {
			model := newModelServer(t)
			o := runProgram(t, "", programModel(model, programServer(t, mode), "MCP_APPROVE="+approve, "MCP_TRACE=1"), "call", "ask", ask)
			assert.Check(t, is.Contains(o.stdout+o.stderr, "this client does not offer sampling/createMessage"))
			assert.Check(t, !strings.Contains(o.stderr, `"sampling"`), "a capability that nobody can make good: %s", o.stderr)
			assert.Equal(t, len(model.Requests()), 0)
		}
	}

	// A model that fails: the server is told, without the key.
	model := newModelServer(t, modelError(401, "auth", "", "bad key "+programKey))
	o := runProgram(t, "", programModel(model, programServer(t, "prog-tools"), "MCP_APPROVE=always"), "call", "ask", ask)
	assert.Equal(t, o.status, 0)
	assert.Check(t, is.Regexp(`^{"q":"sampling/createMessage: .*401 Unauthorized: bad key \[key\].*"}\n$`, o.stdout))

	// Without a key it is the stand-in.
	o = runProgram(t, "", []string{programServer(t, "prog-tools"), "MCP_APPROVE=always"}, "call", "ask", ask)
	assert.Equal(t, o.status, 0)
	assert.Check(t, is.Contains(o.stdout, `"model":"offline"`))
}

func TestProgramHelpAndVersion(t *testing.T) {
	checkLeaks(t)
	for _, args := range [][]string{{"help"}, {"-h"}, {"--help"}, {"tools", "-help"}} {
		assert.Equal(t, runProgram(t, "", nil, args...), programOutcome{usage, "", 0})
	}
	o := runProgram(t, "", nil, "version")
	assert.Equal(t, o, programOutcome{"mcpagent " + version + ", MCP 2026-07-28 2025-11-25 2025-06-18 2025-03-26 2024-11-05, " + runtime.Version() + "\n", "", 0})
	for line := range strings.Lines(usage) {
		assert.Check(t, len([]rune(line)) <= 121, "%d: %s", len(line), line)
	}
	for _, name := range regexp.MustCompile(`os\.Getenv\("(\w+)"\)|, "(M\w+)", `).FindAllStringSubmatch(programSource(t), -1) {
		assert.Check(t, is.Contains(usage, cmp.Or(name[1], name[2])), "a variable that help does not name")
	}
}

// programSource is main.go.
func programSource(t *testing.T) string {
	source, err := os.ReadFile("main.go")
	assert.NilError(t, err)
	return string(source)
}

// A wrong option ends the program before it has done anything, with one line that says which and what to write.
func TestProgramBadOptions(t *testing.T) {
	checkLeaks(t)
	const see = " (see: mcpagent help)"
	prog := programServer(t, "prog-tools")
	for _, test := range []struct {
		variable string // or "" for args alone
		args     []string
		want     string
		status   int
	}{
		{"", []string{"-nonsense", "hi"}, "flag provided but not defined: -nonsense" + see, 2},
		{"", []string{"hi", "-model"}, "flag needs an argument: -model" + see, 2},
		{"", []string{"-json=perhaps", "hi"}, `invalid boolean value "perhaps" for -json: parse error` + see, 2},
		{"MCP_MAX_TURNS=0", []string{"hi"}, `MCP_MAX_TURNS: "0" is not a number of turns` + see, 2},
		{"", []string{"-max-turns", "many", "hi"}, `MCP_MAX_TURNS: "many" is not a number of turns` + see, 2},
		{"MCP_TIMEOUT=soon", []string{"hi"}, `MCP_TIMEOUT: "soon" is not a duration such as 90s or 5m` + see, 2},
		{"MCP_START_TIMEOUT=-1s", []string{"hi"}, `MCP_START_TIMEOUT: "-1s" is not a duration such as 90s or 5m` + see, 2},
		{"MCP_PROTOCOL=2023-01-01", []string{"hi"}, `MCP_PROTOCOL: "2023-01-01" is not a revision known here: auto, 2026-07-28, *` + see, 2},
		{"MCP_APPROVE=sometimes", []string{"hi"}, `MCP_APPROVE: "sometimes" is none of ask, always, never` + see, 2},
		{"MCP_SYSTEM=@missing.txt", []string{"hi"}, "MCP_SYSTEM: open missing.txt: *", 1},
		{"MCP_TRACE=missing/trace", []string{"hi"}, "MCP_TRACE: open missing/trace: *", 1},
		{"MCP_SERVER=server 'a", []string{"hi"}, "MCP_SERVER: the command line ends inside quotes or after a backslash" + see, 2},
		{"MCP_SERVER=A=B", []string{"hi"}, "MCP_SERVER: the command line has no command" + see, 2},
		{"MISTRAL_BASE_URL=localhost:11434", []string{"hi"}, "MISTRAL_BASE_URL*the base URL must begin with http:// or https:// and name a host" + see, 2},
		{"MISTRAL_API_KEY=two words", []string{"hi"}, "*MISTRAL_API_KEY: the key holds a space*" + see, 2},
		{"", nil, "the question on stdin is empty" + see, 2},
		{"", []string{"tools", "all"}, "tools takes no arguments" + see, 2},
		{"", []string{"resources", "all"}, "resources takes no arguments" + see, 2},
		{"", []string{"prompts", "all"}, "prompts takes no arguments" + see, 2},
		{"", []string{"read"}, "read takes the URI of a resource" + see, 2},
		{"", []string{"read", ""}, "read takes the URI of a resource" + see, 2},
		{"", []string{"read", "a:b", "c:d"}, "read takes the URI of a resource" + see, 2},
		{"", []string{"prompt"}, "prompt takes a name and, if it has arguments, KEY=VALUE words" + see, 2},
		{"", []string{"prompt", "greet", "Ann"}, `"Ann" is not of the form KEY=VALUE` + see, 2},
		{"", []string{"prompt", "greet", "=Ann"}, `"=Ann" is not of the form KEY=VALUE` + see, 2},
		{"", []string{"prompt", "greet", "who=Ann", "who=Bob"}, `who is given twice` + see, 2},
		{prog, []string{"prompt", "great"}, `the server has no prompt "great"; the nearest are: greet (see: mcpagent prompts)`, 2},
		{prog, []string{"prompt", "weather"}, `the server has no prompt "weather"; it has: greet, plain (see: mcpagent prompts)`, 2},
		{prog, []string{"prompt", "greet", "how=x"}, `the prompt greet needs who=… (see: mcpagent prompts)`, 2},
		{prog, []string{"prompt", "greet", "who=x", "Who=y"}, `the prompt greet has no argument "Who" (see: mcpagent prompts)`, 2},
		{"MCP_SERVER=https://", []string{"tools"}, "MCP_SERVER is no URL that can be used: it needs a host, and no spaces" + see, 2},
		{"MCP_HEADERS=Authorization Bearer x", []string{"tools"}, `MCP_HEADERS: a line is not of the form "Name: value"` + see, 2},
		{"", []string{"serve", "a", "b"}, "serve takes one folder" + see, 2},
		{"", []string{"call"}, "call takes a tool and, if it has arguments, a JSON object" + see, 2},
		{"", []string{"call", "a", "{}", "{}"}, "call takes a tool and, if it has arguments, a JSON object" + see, 2},
		{"", []string{"call", "a", "{"}, `the arguments must be one JSON object, such as '{"query": "text"}': {` + see, 2},
		{"", []string{"call", "a", "[1]"}, `the arguments must be one JSON object, such as '{"query": "text"}': [1]` + see, 2},
		{"", []string{"call", "a", "null"}, `the arguments must be one JSON object, such as '{"query": "text"}': null` + see, 2},
		{"", []string{"call", "a", "{} {}"}, `the arguments must be one JSON object, such as '{"query": "text"}': {} {}` + see, 2},
		{"", []string{"call", "search"}, `the server has no tool "search"; the nearest are: search_chunks (see: mcpagent tools)`, 2},
		{"", []string{"call", "weather"}, `the server has no tool "weather"; it has: search_chunks, list_documents, get_document (see: mcpagent tools)`, 2},
	} {
		t.Run(strings.TrimPrefix(test.variable, prog)+strings.Join(test.args, " "), func(t *testing.T) {
			runProgram(t, "", []string{cmp.Or(test.variable, "NONE=")}, test.args...).fails(t, test.status, test.want)
		})
	}
}

// A server that cannot be started, or does not stay: one line, exit status 1.
func TestProgramServerFails(t *testing.T) {
	checkLeaks(t)
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain.txt")
	assert.NilError(t, os.WriteFile(plain, []byte("no program"), 0o600))
	for _, test := range []struct{ what, server, want string }{
		{"not found", "MCP_SERVER=no-such-command --x", `start server no-such-command --x: exec: "no-such-command": executable file not found in *`},
		{"no such file", "MCP_SERVER='" + dir + "/nothing'", "start server " + dir + "/nothing: *no such file*"},
		{"not executable", "MCP_SERVER='" + plain + "'", "start server " + plain + ": *permission denied*"},
		{"exits at once", programServer(t, "prog-exits"), "initialize: *ended (exit status 7), stderr: loading | no such file: library.db"},
		{"silent", programServer(t, "prog-silent"), "server/discover: the server was not there within 300ms (MCP_START_TIMEOUT)"},
	} {
		t.Run(test.what, func(t *testing.T) {
			if runtime.GOOS == "windows" && !strings.Contains(test.server, "MCPAGENT_CHILD") {
				t.Skip("the system's words differ")
			}
			start := "MCP_START_TIMEOUT=10s"
			if test.what == "silent" {
				start = "MCP_START_TIMEOUT=0.3"
			}
			for _, args := range [][]string{{"hi"}, {"tools"}, {"call", "echo"}} {
				o := runProgram(t, "", []string{test.server, start, "MISTRAL_BASE_URL=http://127.0.0.1:1/v1"}, args...)
				o.fails(t, 1, test.want)
			}
		})
	}
}

// What a server prints on stdout that is no message is skipped, and the trace says so.
func TestProgramBanner(t *testing.T) {
	checkLeaks(t)
	o := runProgram(t, "", []string{programServer(t, "prog-banner"), "MCP_TRACE=1"}, "call", "echo", `{"text":"still here"}`)
	assert.Equal(t, o.stdout, "still here\n")
	assert.Equal(t, o.status, 0)
	lines := strings.Split(o.stderr, "\n")
	for _, want := range []string{
		"<- Welcome to the server!", "!! skipped: not a JSON-RPC object",
		"<- 42", `<- {"jsonrpc":"2.0",`,
		`-> {"jsonrpc":"2.0","method":"notifications/initialized"}`,
		"!! stderr: end of stdin <nil>",
	} {
		assert.Check(t, is.Contains(lines, want), o.stderr)
	}
	assert.Equal(t, strings.Count(o.stderr, "!! skipped: not a JSON-RPC object\n"), 4)

	o = runProgram(t, "", []string{programServer(t, "prog-banner")}, "call", "echo", `{"text":"still here"}`)
	assert.Equal(t, o, programOutcome{"still here\n", "", 0})
}

// A server that dies of a call: the model is told how, and finds it there again. The call of a user has no answer.
func TestProgramServerDies(t *testing.T) {
	checkLeaks(t)
	model := newModelServer(t,
		modelCalls(modelCall("aaaaaaaa1", "die", "{}")),
		modelCalls(modelCall("aaaaaaaa2", "echo", `{"text":"x"}`)),
		modelText("The server is back."))
	o := runProgram(t, "", programModel(model, programServer(t, "prog-tools"), "MCP_APPROVE=always"), "hi")
	assert.Equal(t, o.stdout, "The server is back.\n")
	assert.Equal(t, o.status, 0)
	assert.Check(t, is.Regexp(`^Error: tools/call die: .*ended \(exit status 9\), stderr: out of memory$`, model.Requests()[1].Last()))
	assert.Check(t, is.Equal(model.Requests()[2].Last(), "x"))
	assert.Check(t, is.Regexp(`(?m)^< die failed after TIME: connection closed: .*exit status 9.*out of memory$`, programSteady(o.stderr)))

	o = runProgram(t, "", []string{programServer(t, "prog-tools")}, "call", "die")
	o.fails(t, 3, "tools/call die: connection closed: *ended (exit status 9), stderr: out of memory")
}

// A model that refuses: one line that says what to do, exit status 4.
func TestProgramModelFails(t *testing.T) {
	checkLeaks(t)
	for _, test := range []struct {
		what, key string
		reply     modelReply
		want      string
	}{
		{"no key", "", modelUnauthorized(), "*401 Unauthorized*set MISTRAL_API_KEY"},
		{"wrong key", programKey, modelUnauthorized(), "*401 Unauthorized*check the API key"},
		{"wrong key, repeated", programKey, modelError(401, "auth", "", "bad key "+programKey), "*401 Unauthorized: bad key [key]*check the API key"},
		{"unknown model", programKey, modelUnknown("mistral-large-latest"), "*400 Bad Request: Invalid model: mistral-large-latest*check the model's name"},
		{"context too long", programKey, modelContextTooLong(), "*400 Bad Request: Prompt contains 160907 tokens*the conversation is too long for this model*"},
		{"not understood", programKey, modelError(422, "invalid_request_error", "", map[string]any{"detail": []any{map[string]any{"msg": "Field required", "loc": []any{"body", "x"}}}}),
			"*422 Unprocessable Entity: body.x: Field required*; the server does not take*"},
		{"a proxy's page", programKey, modelPage(403), "*403 Forbidden: a web page*check the base URL, and any proxy on the way"},
		{"a page that is no error", programKey, modelPage(200), "*200 OK: a web page*check the base URL, and any proxy on the way"},
		{"nothing", programKey, modelText(""), "the model gave no answer: *"},
	} {
		t.Run(test.what, func(t *testing.T) {
			model := programAlways(t, test.reply)
			o := runProgram(t, "", []string{"MISTRAL_BASE_URL=" + model.URL, "MISTRAL_API_KEY=" + test.key, programServer(t, "prog-tools")}, "-q", "hi")
			o.fails(t, 4, test.want)
			assert.Check(t, !strings.Contains(o.stderr, programKey))
		})
	}
}

// A refusal that may pass is waited out, and the user is told.
func TestProgramWaits(t *testing.T) {
	checkLeaks(t)
	model := newModelServer(t, modelRateLimited("1"), modelText("at last"))
	o := runProgram(t, "", programModel(model), "hi")
	assert.Equal(t, o.stdout, "at last\n")
	assert.Check(t, is.Regexp(`^429 Too Many Requests: Rate limit exceeded .*; trying again in TIME\nmistral-large-latest: 1 turn, 0 calls, .*\n$`, programSteady(o.stderr)))
}

// Too many tools is no failure of the model.
func TestProgramTooManyTools(t *testing.T) {
	checkLeaks(t)
	o := runProgram(t, "", programModel(newModelServer(t), programServer(t, "prog-many")), "hi")
	o.fails(t, 1, "list tools: there are 130 tools, and a model can be offered 128: choose with allowedTools or excludedTools in the configuration")
	o = runProgram(t, "", []string{programServer(t, "prog-many")}, "call", "tool118")
	o.fails(t, 3, "tools/call tool118: *")
}

// The key is nowhere to be seen, even if everybody repeats it.
func TestProgramHidesTheKey(t *testing.T) {
	checkLeaks(t)
	trace := filepath.Join(t.TempDir(), "trace")
	for _, variable := range []string{"MCP_TRACE=", "MCP_TRACE=" + trace} {
		for _, args := range [][]string{
			{"ask"}, {"ask", "-json"}, {"tools"}, {"tools", "-json"}, {"call", "echo"}, {"call", "echo", "-json"}, {"call", "slow"},
			{"call", "fail"}, {"call", "refuse"}, {"call", "refuse", "-json"}, {programKey}, {"call", programKey},
			{"resources"}, {"resources", "-json"}, {"read", "note:///hello"}, {"read", "note:///bytes"}, {"read", "note:///nothing"}, {"read", programKey},
			{"prompts"}, {"prompts", "-json"}, {"prompt", "plain"}, {"prompt", "plain", "-json"}, {"prompt", programKey}, {"prompt", "plain", programKey},
			{"call", "ask", programAsks("q", "elicitation/create", strings.Replace(programForm, "Who", programKey, 1))},
			{"call", "echo", programKey}, {"-approve", programKey, "hi"}, {"-server", programKey, "hi"}, {"-" + programKey}, {"-trace", programKey + "/x", "hi"},
		} {
			model := programAlways(t, modelText("The key is "+programKey), modelCalls(
				modelCall("aaaaaaaa1", "echo", `{"text":"`+programKey+`"}`),
				modelCall("aaaaaaaa2", "slow", `{}`),
				modelCall("aaaaaaaa3", "refuse", `{}`),
				modelCall("aaaaaaaa4", "fail", `{"x":"`+strings.Repeat("x", 140)+programKey+`"}`),
				modelCall("aaaaaaaa5", programKey, `{}`),
			))
			server := programServer(t, "prog-key", "PROGRAM_KEY="+programKey)
			o := runProgram(t, "", programModel(model, server, "MCP_APPROVE=always", variable), args...)
			written, _ := os.ReadFile(trace)
			all := o.stdout + o.stderr + string(written)
			at := strings.Index(all, programKey[:12]) // also not the half of it
			assert.Check(t, at < 0, "%s %q: …%s", variable, args, all[max(0, at-200):min(len(all), max(0, at+50))])
			assert.Check(t, is.Contains(all, "[key]"), "%s %q: the test shows nothing", variable, args)
			if strings.Contains(strings.Join(args, " "), "-json") {
				assert.Check(t, json.Valid([]byte(o.stdout)), o.stdout)
			}
		}
	}
	info, err := os.Stat(trace)
	assert.NilError(t, err)
	assert.Assert(t, runtime.GOOS == "windows" || info.Mode().Perm() == 0o600, "a trace holds what was talked about")

	// What a local server is given for a key is no secret, and its letters are not taken out of words.
	model := newModelServer(t, modelText("example text"))
	o := runProgram(t, "", []string{"MISTRAL_BASE_URL=" + model.URL, "MISTRAL_API_KEY=x"}, "-q", "hi")
	assert.Equal(t, o, programOutcome{"example text\n", "", 0})
}

// The server gets none of the program's environment but what any program needs.
func TestProgramServerEnvironment(t *testing.T) {
	checkLeaks(t)
	for _, tool := range []string{"sh", "env"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("needs %s, which is not on PATH", tool)
		}
	}
	o := runProgram(t, "", []string{"MCP_SERVER=GIVEN=1 sh -c 'env >&2; exit 1'", "MISTRAL_API_KEY=" + programKey, "MCP_TRACE=1", "SECRET=2"}, "tools")
	assert.Equal(t, o.status, 1)
	var names []string
	for _, name := range regexp.MustCompile(`(?m)^!! stderr: (\w+)=`).FindAllStringSubmatch(o.stderr, -1) {
		if name[1] != "_" && name[1] != "PWD" && name[1] != "SHLVL" && name[1] != "OLDPWD" { // the shell's own
			names = append(names, name[1])
		}
	}
	assert.Check(t, is.Contains(names, "GIVEN"))
	for _, name := range names {
		assert.Check(t, is.Contains([]string{"GIVEN", "HOME", "PATH", "TMPDIR"}, name))
	}
}

// Whatever a model does, the question has an answer.
func TestProgramOddModels(t *testing.T) {
	checkLeaks(t)
	many := make([]ToolCall, 200)
	for i := range many {
		many[i] = modelCall(fmt.Sprintf("many%05d", i), "echo", fmt.Sprintf(`{"text":"%d"}`, i))
	}
	again := 0
	forever := modelFunc(func(r *modelRequest) modelReply {
		if r.ToolChoice == "none" {
			return modelText("enough")
		}
		again++
		return modelCalls(modelCall(fmt.Sprintf("again%04d", again), "echo", `{"text":"again"}`))
	})
	for _, test := range []struct {
		what   string
		script []modelReply
		rest   modelReply
		turns  int
		want   string // on stderr
	}{
		{"unknown tools", []modelReply{modelCalls(modelCall("aaaaaaaa1", "eco", `{}`), modelCall("aaaaaaaa2", "no such/tool", `{}`)), modelText("enough")}, nil,
			2, "there is no tool \"eco\"; the nearest are: echo"},
		{"broken arguments", []modelReply{modelCalls(modelCall("aaaaaaaa1", "echo", `{"text":`)), modelText("enough")}, nil,
			2, "< echo {}: the arguments are not valid JSON"},
		{"no object", []modelReply{modelCalls(modelCall("aaaaaaaa1", "echo", `[]`)), modelText("enough")}, nil,
			2, "< echo {}: the arguments must be a JSON object"},
		{"the same for ever", nil, forever, 6, "limit of 5 model turns per question reached: asking for an answer without tools"},
		{"200 at once", []modelReply{modelCalls(many...), modelText("enough")}, nil, 2, "limit of 100 calls per question reached: asking for an answer without tools"},
		{"cut off", []modelReply{modelAnswer{Content: "enough", Finish: "model_length"}}, nil, 1, "the model's message was cut off at its length limit"},
	} {
		t.Run(test.what, func(t *testing.T) {
			model := programAlways(t, test.rest, test.script...)
			o := runProgram(t, "", programModel(model, programServer(t, "prog-tools"), "MCP_APPROVE=always", "MCP_MAX_TURNS=5"), "hi")
			assert.Equal(t, o.stdout, "enough\n", o.stderr)
			assert.Equal(t, o.status, 0)
			assert.Check(t, is.Contains(o.stderr, test.want))
			assert.Equal(t, len(model.Requests()), test.turns)
		})
	}
	assert.Equal(t, again, 5)
}

// Without a terminal there is nobody to ask.
func TestProgramApproval(t *testing.T) {
	checkLeaks(t)
	const nobody = "calls are refused, as nobody can be asked without a terminal; MCP_APPROVE=always allows them\n"
	for _, test := range []struct{ approve, told, said string }{
		{"", "Error: the call was refused: nobody is there to allow it", nobody},
		{"ask", "Error: the call was refused: nobody is there to allow it", nobody},
		{"never", "Error: the call was refused: the user allows no calls", ""},
		{"always", "a", ""},
	} {
		t.Run("approve "+test.approve, func(t *testing.T) {
			call := modelCalls(modelCall("aaaaaaaa1", "echo", `{"text":"a"}`), modelCall("aaaaaaaa2", "echo", `{"text": "a"}`))
			model := newModelServer(t, call, call, modelText("done"))
			o := runProgram(t, "", programModel(model, programServer(t, "prog-tools"), "MCP_APPROVE="+test.approve), "hi")
			assert.Equal(t, o.stdout, "done\n")
			assert.Equal(t, o.status, 0)
			assert.Equal(t, model.Requests()[1].Last(), test.told)
			assert.Equal(t, strings.Count(o.stderr, "MCP_APPROVE"), strings.Count(test.said, "MCP_APPROVE"), "once: %s", o.stderr)
			assert.Check(t, is.Contains(o.stderr, test.said))
		})
	}
}

// The first Ctrl-C, or SIGTERM, cancels what runs and ends the server politely.
func TestProgramInterrupted(t *testing.T) {
	checkLeaks(t)
	if runtime.GOOS == "windows" {
		t.Skip("no signals can be sent to another process")
	}
	for _, test := range []struct {
		signal os.Signal
		mode   string
	}{{os.Interrupt, "prog-tools"}, {syscall.SIGTERM, "prog-tools"}, {os.Interrupt, "prog-stubborn"}} {
		t.Run(fmt.Sprintf("%v %s", test.signal, test.mode), func(t *testing.T) {
			interrupt := func(seen string, variables []string, args ...string) string {
				t.Helper()
				p := newProgram(t, append(variables, programServer(t, test.mode), "MCP_APPROVE=always", "MCP_TRACE=1"), args...)
				p.start()
				p.saw(seen)
				assert.NilError(t, p.command.Process.Signal(test.signal))
				assert.Equal(t, p.end(), exitInterrupted, p.stderr.String())
				assert.Equal(t, p.stdout.String(), "")
				text := p.stderr.String()
				assert.Check(t, strings.HasSuffix(text, "\nmcpagent: interrupted\n"), text)
				return text
			}
			politely := func(text string) {
				t.Helper()
				cancelled, end := strings.Index(text, "!! stderr: cancelled\n"), strings.Index(text, "!! stderr: end of stdin")
				assert.Check(t, 0 < cancelled && cancelled < end, text)
			}
			politely(interrupt("!! stderr: hanging\n", nil, "call", "hang"))
			if test.mode == "prog-stubborn" { // once is enough: it takes both of Close's graces
				return
			}

			model := newModelServer(t, modelCalls(modelCall("aaaaaaaa1", "hang", `{}`)))
			politely(interrupt("!! stderr: hanging\n", programModel(model), "hi"))

			asked, release := make(chan struct{}), make(chan struct{})
			model = newModelServer(t, modelFunc(func(*modelRequest) modelReply {
				close(asked)
				<-release
				return modelText("too late")
			}))
			t.Cleanup(func() { close(release) })
			p := newProgram(t, programModel(model, programServer(t, test.mode)), "hi")
			p.start()
			<-asked
			assert.NilError(t, p.command.Process.Signal(test.signal))
			assert.Equal(t, p.end(), exitInterrupted)
			assert.Equal(t, p.stdout.String()+p.stderr.String(), "mcpagent: interrupted\n")
		})
	}
	t.Run("while the server starts", func(t *testing.T) {
		p := newProgram(t, []string{programServer(t, "prog-silent"), "MCP_TRACE=1"}, "tools")
		p.start()
		p.saw("server/discover")
		assert.NilError(t, p.command.Process.Signal(os.Interrupt))
		assert.Equal(t, p.end(), exitInterrupted)
	})
	t.Run("while it waits for the question", func(t *testing.T) {
		p := newProgram(t, nil)
		stdin, err := p.command.StdinPipe()
		assert.NilError(t, err)
		defer stdin.Close()
		p.start()
		_, err = stdin.Write(make([]byte, 1<<20)) // more than a pipe holds: when it is written, the program reads
		assert.NilError(t, err)
		assert.NilError(t, p.command.Process.Signal(os.Interrupt))
		assert.Equal(t, p.end(), exitInterrupted)
	})
}

// The second Ctrl-C ends the program at once, even with a server that has to be killed.
func TestProgramInterruptedTwice(t *testing.T) {
	checkLeaks(t)
	if runtime.GOOS == "windows" {
		t.Skip("no signals can be sent to another process")
	}
	p := newProgram(t, []string{programServer(t, "prog-stubborn"), "MCP_TRACE=1"}, "call", "hang")
	p.start()
	p.saw("!! stderr: hanging\n")
	assert.NilError(t, p.command.Process.Signal(os.Interrupt))
	p.saw("!! stderr: end of stdin")
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for p.command.Process.Signal(os.Interrupt) == nil { // not once: the first one may be a moment in coming through
			time.Sleep(time.Millisecond)
		}
	}()
	status := p.end()
	<-ended
	assert.Equal(t, status, exitInterrupted, p.stderr.String())
}

// serve answers what is piped into it, all of it, and ends.
func TestProgramServe(t *testing.T) {
	checkLeaks(t)
	const begin = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
`
	o := runProgram(t, begin+`{"jsonrpc":"2.0","id":"two","method":"tools/list"}
{"jsonrpc":"2.0","id":3,"method":"ping"}
{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"search_chunks","arguments":{"query":"pending map of calls","limit":1}}}`, nil, "serve")
	assert.Equal(t, o.status, 0, o.stderr)
	answers := map[string]string{}
	for line := range strings.Lines(o.stdout) {
		var m struct{ ID, Result json.RawMessage }
		assert.NilError(t, json.Unmarshal([]byte(line), &m), line)
		answers[string(m.ID)] = string(m.Result)
	}
	assert.Equal(t, len(answers), 4, o.stdout)
	assert.Check(t, is.Contains(answers["1"], `"version":"`+version+`"`))
	assert.Check(t, is.Contains(answers[`"two"`], "search_chunks"))
	assert.Equal(t, answers["3"], "{}")
	assert.Check(t, is.Contains(answers["4"], "rpc.go"))
	assert.Check(t, is.Regexp(`^\d+ documents.*\n$`, o.stderr))

	dir := t.TempDir()
	assert.NilError(t, os.WriteFile(filepath.Join(dir, "birds.txt"), []byte("The heron waits in shallow water.\n"), 0o600))
	const search = `{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"search_chunks","arguments":{"query":"heron"}}}`
	o = runProgram(t, begin+search, nil, "serve", dir)
	assert.Equal(t, o.status, 0)
	assert.Check(t, is.Contains(o.stdout, "birds.txt"))
	assert.Equal(t, o.stderr, "1 documents\n")

	o = runProgram(t, begin, nil, "serve", filepath.Join(dir, "missing"))
	o.fails(t, 1, "open library: *missing: *")

	// As a server of the program itself.
	path, err := os.Executable()
	assert.NilError(t, err)
	o = runProgram(t, "", []string{`MCP_SERVER="` + path + `" serve "` + dir + `"`, "MCP_APPROVE=always"}, "-q", "Where does the heron wait?")
	assert.Equal(t, o.status, 0, o.stderr)
	assert.Check(t, is.Contains(o.stdout, "birds.txt:1\n    The heron waits in shallow water."))
}
