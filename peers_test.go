package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"image/png"
	"io"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

// These tests talk to servers that were not written here: the protocol's reference servers, a server on FastMCP, one
// small server on both SDKs that speak the stateless revision, and one on an SDK of the first days.
// testdata/peers/install.sh installs them. What each answers is in a script beside it; see peerSession.script.

const peerDir = "testdata/peers"

// requirePeer skips a test that needs what is not installed. Where the environment says PEERS=required, it fails the
// test.
func requirePeer(t testing.TB, installed bool, reason string) {
	t.Helper()
	switch {
	case installed:
	case os.Getenv("PEERS") == "required":
		t.Fatal(reason)
	default:
		t.Skip(reason)
	}
}

// requirePeers requires the servers in a folder, such as node_modules or venv.
func requirePeers(t testing.TB, folder string) {
	t.Helper()
	stamp := filepath.Join(peerDir, folder, ".made-from") // written last
	_, err := os.Stat(stamp)
	requirePeer(t, err == nil, fmt.Sprintf("%s is missing: run %s/install.sh", stamp, peerDir))
}

// requireNginx returns the path of nginx.
func requireNginx(t testing.TB) string {
	t.Helper()
	path, err := exec.LookPath("nginx")
	if err != nil {
		path, err = exec.LookPath("/usr/sbin/nginx") // where Debian has it, and not every user's PATH
	}
	requirePeer(t, err == nil, "nginx is not installed (Debian: apt-get install nginx-light)")
	return path
}

func TestRequirePeers(t *testing.T) {
	for peers, want := range map[string]string{"": "skip: ", "required": "fatal: "} {
		t.Setenv("PEERS", peers)
		var v peerVerdict
		func() {
			defer func() { _ = recover() }()
			requirePeers(&v, "nowhere")
		}()
		assert.Equal(t, v.verdict, want+"testdata/peers/nowhere/.made-from is missing: run testdata/peers/install.sh")
	}
}

// peerVerdict is a test that keeps its outcome.
type peerVerdict struct {
	testing.TB
	verdict string
}

func (v *peerVerdict) Helper()           {}
func (v *peerVerdict) Skip(args ...any)  { v.end("skip: ", args) }
func (v *peerVerdict) Fatal(args ...any) { v.end("fatal: ", args) }

func (v *peerVerdict) end(how string, args []any) {
	v.verdict = how + fmt.Sprint(args...)
	panic(v) // it must not return
}

// The commands of the servers.

// peerFile is the absolute path of a file of testdata/peers.
func peerFile(t testing.TB, elements ...string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join(append([]string{peerDir}, elements...)...))
	assert.NilError(t, err)
	return path
}

// peerNode is the command of a reference server, which over HTTP listens on 127.0.0.1 only and reports where.
func peerNode(t testing.TB, name string, args ...string) Command {
	t.Helper()
	requirePeers(t, "node_modules")
	path := peerFile(t, "node_modules/@modelcontextprotocol", name, "dist/index.js")
	return Command{Path: "node", Args: append([]string{"--require", peerFile(t, "loopback.cjs"), path}, args...)}
}

// peerNpx is server-everything as people start it: npx starts a shell, which starts node.
func peerNpx(t testing.TB) Command {
	t.Helper()
	requirePeers(t, "node_modules")
	return Command{Path: "npx", Args: []string{"--prefix", peerFile(t), "--no-install", "mcp-server-everything"}}
}

// peerScript is the command of a server of testdata/peers.
func peerScript(t testing.TB, file string, args ...string) Command {
	t.Helper()
	program, folder := "node", map[string]string{"library_rag.py": "venv", "modern_server.py": "venv-modern",
		"fastmcp_server.py": "venv-old", "protected_server.py": "venv-modern", "tasks_server.py": "venv-fastmcp",
		"authorization/sdk1_server.py": "venv", "authorization/sdk2_server.py": "venv-modern",
		"authorization/fastmcp_server.py": "venv-fastmcp", "authorization/authlib_server.py": "venv-authlib"}[file]
	requirePeers(t, cmp.Or(folder, "node_modules"))
	if folder != "" {
		program = peerFile(t, folder, "bin/python")
	}
	return Command{Path: program, Args: append([]string{peerFile(t, file)}, args...)}
}

// peerPython is library_rag.py, whose parse_pdf takes so many seconds.
func peerPython(t testing.TB, seconds string, args ...string) Command {
	t.Helper()
	command := peerScript(t, "library_rag.py", args...)
	command.Env = []string{"LIBRARY_RAG_SECONDS=" + seconds}
	return command
}

// The table of servers.

// peerServer is a server with the script that it follows.
type peerServer struct {
	name      string // its words are conditions of the script; it is on stdio where none is http or sse
	command   func(t testing.TB, dir string) Command
	script    string // in testdata/peers
	sections  string // of the script, if not all
	revisions []string
	gone      int    // over HTTP: the status for a session that has ended; 0 for a server without sessions
	call      string // that the whole program makes, with what is in the answer
}

func peerServers() []peerServer {
	type start = func(t testing.TB, dir string) Command
	script := func(file string, args ...string) start {
		return func(t testing.TB, _ string) Command { return peerScript(t, file, args...) }
	}
	everything := func(args ...string) start {
		return func(t testing.TB, _ string) Command { return peerNode(t, "server-everything", args...) }
	}
	python := func(args ...string) start {
		return func(t testing.TB, _ string) Command { return peerPython(t, "0.1", args...) }
	}
	filesystem := func(t testing.TB, dir string) Command { return peerNode(t, "server-filesystem", dir) }
	memory := func(t testing.TB, dir string) Command {
		command := peerNode(t, "server-memory")
		command.Env = []string{"MEMORY_FILE_PATH=" + filepath.Join(dir, "memory.json")}
		return command
	}
	const (
		mjs, py, old = "modern_server.mjs", "modern_server.py", "old_server.mjs"
		modern       = "server tools wait log resources prompts questions changes"
		none         = "server tools"
		sum          = `get-sum {"a":2,"b":3} => The sum of 2 and 3 is 5.`
		entity       = `create_entities {"entities":[{"name":"A","entityType":"a","observations":[]}]} => "name": "A"`
		search       = `search_chunks {"query":"common name","author_filter":"Pierre Abélard"} => "total_count": 1`
		write        = `write_file {"path":"b.txt","content":"b"} => Successfully wrote to`
		echo         = `echo {"message":"on"} => on`
	)
	first, all := []string{"", "2024-11-05"}, append([]string{""}, Revisions()...)
	found, old4 := first[:1], Revisions()[1:]
	old5 := append([]string{""}, old4...)
	return []peerServer{
		{"everything", everything(), "everything", "", old5, 0, sum},
		// For a session that has ended, the protocol wants 404.
		{"everything http", everything("streamableHttp"), "everything", "", old5, 400, sum},
		{"everything sse", everything("sse"), "everything", "", first, 0, sum},
		{"filesystem", filesystem, "filesystem", "", old5, 0, write},
		{"memory", memory, "memory", "", old5, 0, entity},
		{"library_rag", python(), "library_rag", "", old5, 0, search},
		{"library_rag http", python("http"), "library_rag", "", found, 404, search},
		{"library_rag http json", python("http", "json"), "library_rag", "", found, 404, ""},
		{"library_rag http stateless", python("http", "stateless"), "library_rag", "", found, 0, ""},
		{"old", script(old), "old", "", old5, 0, ""},
		{"old sse", script(old, "sse"), "old", "", found, 0, ""},
		{"typescript", script(mjs), "modern", modern, all, 0, echo},
		{"python", script(py), "modern", modern, all, 0, ""},
		{"typescript http", script(mjs, "http"), "modern", modern, all, 404, echo},
		{"python http", script(py, "http"), "modern", modern, all, 404, ""},
		// A server of the handshake era may keep no sessions, and then sends nothing but answers.
		{"typescript http sessionless", script(mjs, "http", "sessionless"), "modern", "tools prompts", old4, 0, ""},
		// A server may have left the handshake behind.
		{"typescript stateless", script(mjs, "reject"), "modern", none, found, 0, ""},
		{"typescript http stateless", script(mjs, "http", "reject"), "modern", none, found, 0, ""},
	}
}

// eachPeer runs a test with each of the named servers, or with all.
func eachPeer(t *testing.T, test func(t *testing.T, server peerServer), names ...string) {
	t.Helper()
	tested := 0
	for _, server := range peerServers() {
		if names == nil || slices.Contains(names, server.name) {
			tested++
			t.Run(server.name, func(t *testing.T) {
				checkLeaks(t)
				test(t, server)
			})
		}
	}
	assert.Assert(t, names == nil || tested == len(names), names)
}

// Sessions.

// peerSession is a connection to a server. It keeps all messages, and its client answers what the server asks. Its ctx
// is only a guard against a hang.
type peerSession struct {
	*Client
	t      *testing.T
	ctx    context.Context
	start  func(context.Context) (Transport, error)
	dir    string // of the test, with the file treatise.pdf
	stdio  *Stdio // nil over HTTP, and the next two over stdio
	http   *peerHTTP
	log    *peerExchanges
	wire   peerLog         // all messages
	stderr *peerLog        // of the server
	is     map[string]bool // the conditions of the script that hold

	mu      sync.Mutex // guards the following
	action  string     // of the user: accept, decline, cancel; refuse is the client's own; nobody has no roots
	elicits []*ElicitRequest
	samples []*SampleRequest
	logs    []string
	listens map[string]*peerListen
}

// peerFolder is a folder with a file for parse_pdf.
func peerFolder(t testing.TB) string {
	t.Helper()
	temporary, err := filepath.EvalSymlinks(t.TempDir())
	assert.NilError(t, err)
	dir := filepath.Join(temporary, "two words")
	assert.NilError(t, os.Mkdir(dir, 0o700))
	assert.NilError(t, os.WriteFile(filepath.Join(dir, "treatise.pdf"), nil, 0o600))
	return dir
}

func (p peerServer) overHTTP() bool {
	return strings.Contains(p.name, "http") || strings.Contains(p.name, "sse")
}

// open starts the server, unless it is one on stdio, which is started by connecting.
func (p peerServer) open(t *testing.T) *peerSession {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	s := &peerSession{t: t, ctx: ctx, dir: peerFolder(t), action: "accept",
		is: make(map[string]bool), listens: make(map[string]*peerListen), stderr: new(peerLog)}
	for _, condition := range strings.Fields(p.name) {
		s.is[condition] = true
	}
	command := p.command(t, s.dir)
	if p.overHTTP() {
		s.useHTTP(startPeerHTTP(t, command))
		return s
	}
	if command.Stderr == nil {
		command.Stderr = s.stderr
	}
	s.start = func(context.Context) (Transport, error) {
		var err error
		s.stdio, err = startStdio(command)
		return s.stdio, err
	}
	return s
}

// openPeer is open for a command that is not in the table.
func openPeer(t *testing.T, command Command) *peerSession {
	t.Helper()
	return peerServer{command: func(testing.TB, string) Command { return command }}.open(t)
}

// connect connects, until the end of the test.
func (s *peerSession) connect(o *ClientOptions) error {
	if o.Skipped == nil {
		o.Skipped = func(message []byte, reason error) { s.t.Errorf("stray message %s: %v", message, reason) }
	}
	o.Trace = s.keep
	var err error
	if s.Client, err = Connect(s.ctx, s.start, o); err != nil {
		return err
	}
	s.t.Cleanup(func() { s.Close() })
	revision := s.Server.ProtocolVersion
	s.is["stdio"], s.is["auto"] = s.stdio != nil, o.Protocol == ""
	s.is["stateless"], s.is["handshake"] = revision == statelessRevision, revision != statelessRevision
	for _, r := range Revisions() {
		s.is[r] = r <= revision
	}
	return nil
}

// options are those of a client that can do everything.
func (s *peerSession) options(revision string) *ClientOptions {
	return &ClientOptions{Protocol: revision, Log: s.logged, Answers: map[string]Responder{
		"roots/list":             RootsAnswer(s.roots),
		"elicitation/create":     ElicitAnswer(s.elicit),
		"sampling/createMessage": SampleAnswer(s.sample),
	}}
}

// able connects as a client that can do everything, bare as one that can do nothing.
func (s *peerSession) able(revision string) *peerSession {
	s.t.Helper()
	assert.NilError(s.t, s.connect(s.options(revision)))
	return s
}

func (s *peerSession) bare(revision string) *peerSession {
	s.t.Helper()
	assert.NilError(s.t, s.connect(&ClientOptions{Protocol: revision}))
	return s
}

func (s *peerSession) keep(sent bool, text []byte) {
	s.wire.add(map[bool]string{true: "> ", false: "< "}[sent] + string(text))
}

// peerLog keeps lines: all messages of a session, "> " before those of the client and "< " before those of the server;
// or what a process writes.
type peerLog struct {
	rest string // of Write: the line that has not ended

	mu     sync.Mutex // guards the following
	lines  []string
	marked int           // lines before the mark
	more   chan struct{} // closed with the next line
}

func (l *peerLog) add(lines ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, lines...)
	if l.more != nil {
		close(l.more)
		l.more = nil
	}
}

func (l *peerLog) Write(text []byte) (int, error) {
	lines := strings.Split(l.rest+string(text), "\n")
	l.rest = lines[len(lines)-1]
	l.add(lines[:len(lines)-1]...)
	return len(text), nil
}

func (l *peerLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.lines, "\n") + "\n"
}

func (l *peerLog) mark() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.marked = len(l.lines)
}

// with returns the lines since the mark that begin with a prefix and contain a text.
func (l *peerLog) with(prefix, text string) (lines []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.lines[l.marked:] {
		if strings.HasPrefix(line, prefix) && strings.Contains(line, text) {
			lines = append(lines, line)
		}
	}
	return lines
}

// await returns when there are so many of such lines, or when an error comes, with it.
func (l *peerLog) await(ctx context.Context, count int, prefix, text string, failed <-chan error) error {
	for {
		l.mu.Lock()
		if l.more == nil {
			l.more = make(chan struct{})
		}
		more := l.more
		l.mu.Unlock()
		if len(l.with(prefix, text)) >= count {
			return nil
		}
		select {
		case <-more:
		case err := <-failed:
			return err
		case <-ctx.Done():
			return fmt.Errorf("no %s%s: %w", prefix, text, ctx.Err())
		}
	}
}

// pass returns when there are so many lines with a text, and puts the mark behind them.
func (l *peerLog) pass(ctx context.Context, count int, text string) error {
	err := l.await(ctx, count, "", text, nil)
	l.mu.Lock()
	defer l.mu.Unlock()
	for ; err == nil && count > 0; l.marked++ {
		if strings.Contains(l.lines[l.marked], text) {
			count--
		}
	}
	return err
}

// peerReceive takes the next value from a channel, in the time there is.
func peerReceive[T any](s *peerSession, from <-chan T) (value T) {
	s.t.Helper()
	select {
	case value = <-from:
	case <-s.ctx.Done():
		s.t.Fatal(s.ctx.Err())
	}
	return value
}

// What the client answers.

var errPeerRefused = errors.New("not today")

// user returns what the user does.
func (s *peerSession) user() (action string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.action == "refuse" {
		err = errPeerRefused
	}
	return s.action, err
}

func (s *peerSession) roots(context.Context) ([]Root, error) {
	action, err := s.user()
	if err != nil || action == "nobody" {
		return nil, err
	}
	return []Root{{URI: "file:///here", Name: "Here"}, {URI: "file:///there"}}, nil
}

// elicit fills in the members of a form that it knows.
func (s *peerSession) elicit(_ context.Context, r *ElicitRequest) (*ElicitResult, error) {
	action, err := s.user()
	s.mu.Lock()
	s.elicits = append(s.elicits, r)
	s.mu.Unlock()
	if err != nil || action != "accept" || r.Mode == "url" {
		return &ElicitResult{Action: action}, err
	}
	var form struct{ Properties map[string]any }
	if err := json.Unmarshal(r.RequestedSchema, &form); err != nil {
		return nil, err
	}
	content := map[string]any{"name": "Ann", "age": 42, "color": "blue", "member": false, "confirmed": true,
		"signature": "Ann", "check": true, "confirm": true, "integer": 7, "number": 2.5, "email": "ann@example.com",
		"interpretation":             "programming",
		"untitledMultipleSelectEnum": []string{"Piano", "Drums"}, "score": 2.5, "picks": []string{"x", "y"}}
	maps.DeleteFunc(content, func(name string, _ any) bool { return form.Properties[name] == nil })
	return &ElicitResult{Action: action, Content: content}, nil
}

func (s *peerSession) sample(_ context.Context, r *SampleRequest) (*SampleResult, error) {
	s.mu.Lock()
	s.samples = append(s.samples, r)
	s.mu.Unlock()
	result := &SampleResult{Role: "assistant", Model: "model-1", StopReason: "endTurn",
		Content: SampleContent{{Type: "text", Text: "Paris"}}}
	switch {
	case len(r.Tools) > 0:
		use := json.RawMessage(`{"type":"tool_use","id":"1","name":"a","input":{}}`)
		result.Content, result.StopReason = append(result.Content, ContentBlock{Type: "tool_use", Raw: use}), "toolUse"
	case r.SystemPrompt == "Draw.":
		result.Content, result.StopReason = SampleContent{{Type: "image", Data: []byte{1, 2}, MIMEType: "image/png"}}, ""
	}
	_, err := s.user()
	return result, err
}

func (s *peerSession) logged(message LogMessage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	line := message.Level + " " + message.Logger + " " + string(message.Data)
	s.logs = append(s.logs, strings.ReplaceAll(line, "  ", " "))
}

// Scripts.

// script follows the sections of a script, or all. A line is a request and what comes of it,
//
//	call echo {"message":"é"} => é
//
// where a * stands for any text; see do for the requests. "[typescript 2025-06-18 !http] " before a request says when
// it is made: to the TypeScript server, in 2025-06-18 or a later revision, not over HTTP. "end" ends a section.
func (s *peerSession) script(name, sections string) {
	s.t.Helper()
	text, err := os.ReadFile(peerFile(s.t, name+".txt"))
	assert.NilError(s.t, err)
	wanted := true
	for i, line := range strings.Split(string(text), "\n") {
		if section, ok := strings.CutPrefix(line, "-- "); ok {
			wanted = sections == "" || slices.Contains(strings.Fields(sections), strings.TrimSuffix(section, " --"))
		} else if wanted {
			wanted = s.line(fmt.Sprintf("%s.txt:%d", name, i+1), line)
		}
	}
}

// run follows the lines of a script.
func (s *peerSession) run(lines ...string) {
	s.t.Helper()
	for _, line := range lines {
		s.line("script", line)
	}
}

// line follows one line, and reports whether the section goes on.
func (s *peerSession) line(where, line string) bool {
	s.t.Helper()
	if conditions, rest, ok := strings.Cut(line, "] "); ok && strings.HasPrefix(line, "[") {
		for _, condition := range strings.Fields(conditions[1:]) {
			name, not := strings.CutPrefix(condition, "!")
			if s.is[name] == not {
				return true
			}
		}
		line = rest
	}
	if line == "" || strings.HasPrefix(line, "#") || line == "end" {
		return line != "end"
	}
	sdk := strings.TrimPrefix(s.Server.Implementation.Name, "modern-")
	line = strings.NewReplacer("$DIR", s.dir, "$REVISION", s.Server.ProtocolVersion, "$SDK", sdk).Replace(line)
	request, want, _ := strings.Cut(line, " =>")
	if got := s.do(request); !peerLike(strings.TrimPrefix(want, " "), got) {
		s.t.Fatalf("%s: %s\n got: %.4000s", where, line, got)
	}
	return true
}

// peerLike reports whether a line fits a pattern, in which a * stands for any text.
func peerLike(pattern, line string) bool {
	pattern = strings.ReplaceAll(regexp.QuoteMeta(pattern), `\*`, ".*")
	return regexp.MustCompile("^" + pattern + "$").MatchString(line)
}

// do makes a request and returns what came of it, on one line.
func (s *peerSession) do(request string) string {
	s.t.Helper()
	verb, rest, _ := strings.Cut(request, " ")
	words := append(strings.Fields(rest), "", "", "")
	count, _ := strconv.Atoi(words[1])
	directions := map[string]string{"sent": "> ", "got": "< "}
	switch name, arguments, _ := strings.Cut(rest, " "); verb {
	case "server": // what it says of itself
		capabilities := strings.Join(slices.Sorted(maps.Keys(s.Server.Capabilities)), " ")
		i := s.Server
		return peerLine("%s %v: %s %s", i.ProtocolVersion, i.Implementation, i.Instructions, capabilities)
	case "ping":
		return peerLine("%s", cmp.Or(peerError(s.Ping(s.ctx)), "ok"))
	case "request": // of a method that is not known
		return peerError(s.anyRequest(name))
	case "tools", "taskonly", "tool": // names of all, of those that run only as tasks; all of one
		return s.tools(verb, name)
	case "call", "data", "progress": // the content, the structured content, or the content after all progress
		return s.call(verb, name, arguments)
	case "cancel": // at the first progress
		ctx, cancel := context.WithCancel(s.ctx)
		var reports string
		returned := make(chan struct{})
		_, err := s.CallTool(ctx, name, peerArguments(arguments), func(p Progress) {
			select {
			case <-returned:
				s.t.Errorf("progress after %s had returned: %v", name, p)
			default:
				reports += fmt.Sprint(p) + " "
				cancel()
			}
		})
		close(returned)
		return reports + peerError(err)
	case "resources":
		list, err := s.ListResources(s.ctx)
		return peerList(list, err)
	case "templates":
		list, err := s.ListResourceTemplates(s.ctx)
		return peerList(list, err)
	case "prompts":
		list, err := s.ListPrompts(s.ctx)
		return peerList(list, err)
	case "read":
		contents, err := s.ReadResource(s.ctx, name)
		if err == nil && len(contents) != 1 {
			return fmt.Sprintf("%d contents", len(contents))
		}
		return peerSays(err, func() string { return peerContents(&contents[0]) })
	case "prompt":
		prompt, err := s.GetPrompt(s.ctx, name, peerPairs(words[1:]))
		return peerSays(err, func() string {
			var messages []string
			for _, m := range prompt.Messages {
				messages = append(messages, m.Role+": "+peerBlock(m.Content))
			}
			return strings.Join(messages, " | ")
		})
	case "complete":
		reference := Reference{Type: "ref/prompt", Name: name}
		if strings.Contains(name, "://") {
			reference = Reference{Type: "ref/resource", URI: name}
		}
		value := strings.TrimPrefix(words[2], "-") // which may be empty
		completion, err := s.Complete(s.ctx, reference, words[1], value, peerPairs(words[3:]))
		return peerSays(err, func() string { return peerJSON(completion) })
	case "user": // what the user does from now on
		s.mu.Lock()
		defer s.mu.Unlock()
		s.action = name
	case "elicited": // since the last time
		s.mu.Lock()
		defer s.mu.Unlock()
		elicits := s.elicits
		s.elicits = nil
		return peerList(elicits, nil)
	case "sampled": // at last
		s.mu.Lock()
		defer s.mu.Unlock()
		return peerJSON(s.samples[len(s.samples)-1])
	case "logged":
		s.mu.Lock()
		defer s.mu.Unlock()
		return strings.Join(s.logs, "; ")
	case "mark": // from here on messages are counted
		s.wire.mark()
	case "sent", "got":
		return strconv.Itoa(len(s.wire.with(directions[verb], rest)))
	case "await": // how often, sent or got, a text
		count, err := strconv.Atoi(name)
		assert.NilError(s.t, err)
		direction, text, _ := strings.Cut(arguments, " ")
		assert.NilError(s.t, s.wire.await(s.ctx, count, directions[direction], text, nil))
	case "stderr": // waits until the server writes it there once more
		assert.NilError(s.t, s.stderr.pass(s.ctx, 1, rest))
	case "reconnect":
		assert.NilError(s.t, s.Close())
		s.able(s.Server.ProtocolVersion)
	case "restart": // the server
		s.http.restart()
		s.stderr = s.http.stderr
	case "file":
		text, err := os.ReadFile(filepath.Join(s.dir, name))
		assert.NilError(s.t, err)
		return peerLine("%s", text)
	case "listen": // under a name, to lists and URIs
		return s.listen(name, strings.Fields(arguments))
	case "changes": // so many; none may be left if it is 0
		return s.listens[name].take(s, count)
	case "stop": // ends a listen
		s.listens[name].cancel()
		return peerError(peerReceive(s, s.listens[name].ended))
	default:
		s.t.Fatalf("unknown: %s", request)
	}
	return ""
}

// peerArguments are the arguments of a tool, which may be "".
func peerArguments(text string) json.RawMessage {
	if text == "" {
		return nil
	}
	return json.RawMessage(text)
}

// peerPairs are name=value arguments, nil if there are none.
func peerPairs(words []string) (pairs map[string]string) {
	for _, word := range words {
		if name, value, ok := strings.Cut(word, "="); ok {
			if pairs == nil {
				pairs = make(map[string]string)
			}
			pairs[name] = value
		}
	}
	return pairs
}

// peerLine puts a text on one line.
func peerLine(format string, args ...any) string {
	quoted := strconv.Quote(fmt.Sprintf(format, args...))
	return strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
}

func peerJSON(value any) string {
	var text strings.Builder
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(value)
	return strings.TrimSuffix(text.String(), "\n")
}

// peerError returns "" for nil.
func peerError(err error) string {
	var refusal *Error
	var protocol *ProtocolError
	switch {
	case err == nil:
		return ""
	case errors.As(err, &refusal):
		return peerLine("error %d: %v", refusal.Code, err)
	case errors.As(err, &protocol):
		return peerLine("protocol error: %v", err)
	}
	return peerLine("failed: %v", err)
}

func peerSays(err error, text func() string) string {
	if err != nil {
		return peerError(err)
	}
	return text()
}

func peerList[T any](list []T, err error) string {
	return peerSays(err, func() string { return fmt.Sprintf("%d %s", len(list), peerJSON(list)) })
}

func peerContents(c *ResourceContents) string {
	if c.Blob != nil {
		return peerLine("%s %s: %d bytes %s%s", c.URI, c.MIMEType, len(c.Blob), c.Blob, c.Text)
	}
	return peerLine("%s %s: %s", c.URI, c.MIMEType, c.Text)
}

func peerBlock(block ContentBlock) string {
	switch block.Type {
	case "text":
		text := peerLine("%s", block.Text)
		if block.Annotations != nil {
			text += " " + string(block.Annotations)
		}
		return text
	case "resource":
		return "resource " + peerContents(block.Resource)
	case "image":
		// The color profile of server-everything's image has a wrong checksum, so Decode would not take it.
		_, err := png.DecodeConfig(bytes.NewReader(block.Data))
		if err == nil && bytes.HasSuffix(block.Data, []byte("IEND\xaeB`\x82")) {
			return block.MIMEType + ", whole"
		}
	}
	return peerJSON(block)
}

// tools lists the tools, of which each must have a schema and a description.
func (s *peerSession) tools(verb, name string) string {
	s.t.Helper()
	list, err := s.ListTools(s.ctx)
	if err != nil {
		return peerError(err)
	}
	var names []string
	for _, tool := range list {
		var schema struct{ Type string }
		assert.NilError(s.t, json.Unmarshal(tool.InputSchema, &schema), tool.Name)
		assert.Equal(s.t, schema.Type, "object", tool.Name)
		assert.Assert(s.t, tool.Description != "", tool.Name)
		switch {
		case verb == "tool" && tool.Name == name:
			return peerJSON(tool)
		case verb == "tools" || verb == "taskonly" && tool.TaskSupport() == "required":
			assert.Assert(s.t, !slices.Contains(names, tool.Name), tool.Name)
			names = append(names, tool.Name)
		}
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// call runs a tool. If its first text is JSON, so is its structured content, if it has any: the same.
func (s *peerSession) call(verb, tool, arguments string) string {
	s.t.Helper()
	var report func(Progress)
	var blocks []string
	if verb == "progress" {
		report = func(p Progress) { blocks = append(blocks, fmt.Sprint(p)) }
	}
	result, err := s.CallTool(s.ctx, tool, peerArguments(arguments), report)
	if err != nil {
		return peerError(err)
	}
	var text, structured any
	if verb == "data" {
		assert.Assert(s.t, !result.IsError)
		assert.NilError(s.t, json.Unmarshal(result.StructuredContent, &structured))
		assert.NilError(s.t, json.Unmarshal([]byte(result.Content[0].Text), &text))
		assert.DeepEqual(s.t, text, structured)
		var compact bytes.Buffer
		assert.NilError(s.t, json.Compact(&compact, result.StructuredContent))
		return compact.String()
	}
	prefix := strings.Join(append(blocks, ""), " ")
	blocks = nil
	for _, block := range result.Content {
		blocks = append(blocks, peerBlock(block))
	}
	if result.IsError {
		prefix += "tool error: "
	}
	return prefix + strings.Join(blocks, " | ")
}

// peerListen is one Listen.
type peerListen struct {
	changes chan string
	cancel  func()
	ended   chan error // gets how it ended
}

// take returns so many changes, sorted. If it is 0, none may be left.
func (l *peerListen) take(s *peerSession, count int) string {
	s.t.Helper()
	if count == 0 && len(l.changes) == 0 {
		return "none"
	}
	var taken []string
	for range max(count, 1) {
		taken = append(taken, peerReceive(s, l.changes))
	}
	slices.Sort(taken)
	return strings.Join(taken, " ")
}

// listen begins to listen, until the end of the test at most, and returns when the server has confirmed it, or how it
// failed.
func (s *peerSession) listen(name string, to []string) string {
	s.t.Helper()
	var subscription Subscription
	for _, word := range to {
		switch word {
		case "tools":
			subscription.Tools = true
		case "prompts":
			subscription.Prompts = true
		case "resources":
			subscription.Resources = true
		default:
			subscription.URIs = append(subscription.URIs, word)
		}
	}
	notice, notices := `"notifications/subscriptions/acknowledged"`, 1
	if s.is["handshake"] { // the answers to resources/subscribe
		notice, notices = `"result":{}`, len(subscription.URIs)
	}
	notices += len(s.wire.with("< ", notice))
	ctx, cancel := context.WithCancel(s.ctx)
	s.t.Cleanup(cancel)
	l := &peerListen{changes: make(chan string, 100), cancel: cancel, ended: make(chan error, 1)}
	go func() {
		l.ended <- s.Listen(ctx, subscription, func(change Change) { l.changes <- change.List + change.URI })
	}()
	s.listens[name] = l
	return peerError(s.wire.await(s.ctx, notices, "< ", notice, l.ended))
}

// The tests.

// TestPeers has every server follow its script in every revision that it knows, and the SDKs' own types judge every
// message that the client sends. The probe costs the servers of the handshake era one answer, not the time that is
// granted to silent ones.
func TestPeers(t *testing.T) {
	var said []peerMessage
	eachPeer(t, func(t *testing.T, server peerServer) {
		for _, revision := range server.revisions {
			t.Run(cmp.Or(revision, "auto"), func(t *testing.T) {
				checkLeaks(t)
				s := server.open(t).able(revision)
				if revision != "" && server.script != "old" {
					assert.Equal(t, s.Server.ProtocolVersion, revision)
				}
				if revision == "" && server.script != "modern" {
					s.testProbe()
				}
				s.script(server.script, server.sections)
				s.testEnd(server.gone)
				recorded := s.said()
				if server.name == "typescript" && revision != "" {
					bare := server.open(t).bare(revision)
					bare.script("modern", "bare")
					recorded = append(recorded, bare.said()...)
					testComplete(t, revision, recorded)
				}
				if server.script != "everything" || s.is["2025-06-18"] { // it asks for elicitation in each
					said = append(said, recorded...)
				}
			})
		}
	})
	t.Run("judges", func(t *testing.T) {
		verdicts := peerJudges(t, said)
		for i, message := range said {
			for judge, verdict := range verdicts {
				if message.Sender == "client" && verdict[i] != "valid" {
					t.Errorf("%s: %s: %s: %.1000s", judge, message.Revision, verdict[i], message.Message)
				}
			}
		}
	})
}

// TestPeersUpsetByProbe: a server that server/discover upsets is started once more without it, and where that is
// remembered it is not asked again.
func TestPeersUpsetByProbe(t *testing.T) {
	for name, command := range map[string]func(t *testing.T) Command{
		"fastmcp": func(t *testing.T) Command { return peerScript(t, "fastmcp_server.py") },
		"supergateway": func(t *testing.T) Command { // it begins a session of its own for any request
			gateway := peerFile(t, "node_modules/supergateway/dist/index.js")
			_, err := os.Stat(gateway)
			requirePeer(t, err == nil, gateway+" is missing: run "+peerDir+"/install.sh")
			server := startPeerHTTP(t, peerNode(t, "server-everything", "streamableHttp"))
			return Command{Path: "node", Args: []string{gateway, "--streamableHttp", server.url, "--logLevel", "none"}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			checkLeaks(t)
			command := command(t)
			protocol := ""
			for _, asked := range []int{1, 0} {
				s := openPeer(t, command)
				assert.NilError(t, s.connect(&ClientOptions{
					Protocol: protocol,
					Skipped:  func([]byte, error) {}, // the gateway repeats our own notifications
				}))
				s.script("upset", name)
				assert.Equal(t, len(s.wire.with("> ", `"server/discover"`)), asked)
				assert.Equal(t, s.SkipProbe, asked == 1)
				protocol = s.Server.ProtocolVersion
				assert.NilError(t, s.Close())
			}
		})
	}
}

// testProbe checks that the connection began with one request that was refused, and then the handshake.
func (s *peerSession) testProbe() {
	s.t.Helper()
	lines := s.wire.with("", "")
	for i, want := range []string{`> *"server/discover"`, `< *"error":`, `> *"initialize"`} {
		assert.Assert(s.t, peerLike(want+"*", lines[i]), lines[i])
	}
}

// Servers refuse a revision that is not theirs.
func TestPeersRefuse(t *testing.T) {
	eachPeer(t, func(t *testing.T, server peerServer) {
		revision, want := statelessRevision, "the server does not speak 2026-07-28: server/discover: "
		if server.script == "modern" {
			revision, want = "2025-11-25", "initialize: "
		}
		err := server.open(t).connect(&ClientOptions{Protocol: revision})
		assert.ErrorContains(t, err, want)
		var refusal *Error
		assert.Assert(t, errors.As(err, &refusal), "%v", err)
		assert.Assert(t, server.script != "modern" || refusal.Code == CodeUnsupportedVersion)
	}, "everything", "everything http", "filesystem", "memory", "library_rag", "old", "typescript stateless",
		"typescript http stateless")
}

// peerExit is how the server ended that a call failed for.
func peerExit(t *testing.T, err error) *ServerExitError {
	t.Helper()
	var exit *ServerExitError
	assert.Assert(t, errors.As(err, &exit), "%v", err)
	return exit
}

// What a client does not offer, a server cannot have; and subscriptions do not mix.
func TestPeersModern(t *testing.T) {
	eachPeer(t, func(t *testing.T, server peerServer) {
		server.open(t).bare(statelessRevision).script("modern", "bare")
		server.open(t).bare("2025-11-25").script("modern", "bare")
		server.open(t).able(statelessRevision).script("modern", "apart")
	}, "typescript", "python", "typescript http", "python http")
}

// With roots, this server works in them and not in the folder of its command line.
func TestPeerFilesystemRoots(t *testing.T) {
	checkLeaks(t)
	s := openPeer(t, peerNode(t, "server-filesystem", t.TempDir()))
	o := s.options("")
	o.Answers["roots/list"] = RootsAnswer(func(context.Context) ([]Root, error) {
		return []Root{{URI: (&url.URL{Scheme: "file", Path: filepath.ToSlash(s.dir)}).String()}}, nil
	})
	assert.NilError(t, s.connect(o))
	s.run(
		`stderr Updated allowed directories from MCP roots`,
		`call list_allowed_directories => Allowed directories:\n$DIR`,
		`call list_directory {"path":"$DIR/.."} => tool error: *Access denied*`,
	)
}

// This server answers a call that was cancelled, with an error that nobody waits for any more.
func TestPeerAnswersCancelled(t *testing.T) {
	checkLeaks(t)
	stray := make(chan string, 100)
	s := openPeer(t, peerPython(t, "60"))
	assert.NilError(t, s.connect(&ClientOptions{Skipped: func(message []byte, _ error) { stray <- string(message) }}))
	s.run(`cancel parse_pdf {"pdf_path":"$DIR/treatise.pdf"} => {0 5 OCR} failed: *context canceled`)
	assert.Assert(t, is.Contains(peerReceive(s, stray), "Request cancelled"))
	s.run(`data search_chunks {"query":"zebra"} => *"total_count":0*`)
}

// A message just over 10 MiB is too long for the TypeScript SDK, which says nothing, then or later. A longer one makes
// it exit while the message is still being written.
func TestPeerMessageTooLong(t *testing.T) {
	checkLeaks(t)
	echo := func(size int, timeout time.Duration) error {
		s := openPeer(t, peerNode(t, "server-everything")).bare("")
		ctx, cancel := context.WithTimeout(s.ctx, timeout)
		defer cancel()
		_, err := s.CallTool(ctx, "echo", json.RawMessage(`{"message":"`+strings.Repeat("x", size)+`"}`), nil)
		return err
	}
	assert.ErrorIs(t, echo(10<<20, time.Second), context.DeadlineExceeded)
	err := echo(12<<20, time.Minute)
	peerExit(t, err)
	assert.ErrorIs(t, err, ErrClosed)
}

// begin starts a tool that reports progress, and returns when it has reported for the first time. The outcome comes
// later.
func (s *peerSession) begin(tool, arguments string) (outcome <-chan error) {
	s.t.Helper()
	begun, done := make(chan struct{}), make(chan error, 1)
	once := sync.OnceFunc(func() { close(begun) })
	go func() {
		_, err := s.CallTool(s.ctx, tool, peerArguments(arguments), func(Progress) { once() })
		done <- err
	}()
	select {
	case <-begun:
	case err := <-done:
		s.t.Fatalf("%s ended without progress: %v", tool, err)
	}
	return done
}

// pdf are the arguments of parse_pdf.
func (s *peerSession) pdf() string {
	return fmt.Sprintf(`{"pdf_path":%q}`, filepath.Join(s.dir, "treatise.pdf"))
}

// group is the server's process group.
func (s *peerSession) group() []peerProcess {
	s.t.Helper()
	group := s.stdio.process.Process.Pid
	return peerProcesses(s.t, func(p peerProcess) bool { return p.group == group })
}

type peerProcess struct {
	pid, group int
	name       string
}

// peerProcesses are the processes of the machine that fit, without the zombies, which have ended, and wait for the
// process that inherited them.
func peerProcesses(t *testing.T, fit func(peerProcess) bool) (fitting []peerProcess) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("processes are looked up in /proc")
	}
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	assert.NilError(t, err)
	for _, file := range files {
		stat, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended meanwhile
		}
		// "pid (name) state parent group …", where the name can be anything.
		opening, closing := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
		fields := strings.Fields(string(stat[closing+1:]))
		p := peerProcess{name: string(stat[opening+1 : closing])}
		p.pid, _ = strconv.Atoi(strings.TrimSpace(string(stat[:opening])))
		p.group, _ = strconv.Atoi(fields[2])
		if fields[0] != "Z" && fit(p) {
			fitting = append(fitting, p)
		}
	}
	return fitting
}

// peerMarked are the processes whose environment has the variable. (npx is none of them: the title that it gives
// itself is written over its environment.)
func peerMarked(t *testing.T, variable string) []peerProcess {
	t.Helper()
	return peerProcesses(t, func(p peerProcess) bool {
		environ, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", p.pid)) // not if it has ended, or is another user's
		return slices.Contains(strings.Split(string(environ), "\x00"), variable)
	})
}

// However a server ends, in the middle of a call too, no process of its group stays.
func TestPeerEnds(t *testing.T) {
	const wait = `{"duration":60,"steps":600}`
	python := func(t testing.TB) Command { return peerPython(t, "60") }
	for _, test := range []struct {
		name    string
		command func(t testing.TB) Command
		grace   time.Duration
		tool    string // that is at work; none if empty
		group   int    // processes
		kill    bool
	}{
		// The end of stdin is enough, however busy the machine.
		{"npx, closed while idle", peerNpx, 30 * time.Second, "", 3, false},
		// In the middle of an operation, the server does not react to the end of stdin.
		{"npx, closed while busy", peerNpx, time.Second, "trigger-long-running-operation", 3, false},
		// When npx alone is killed, sh and node live on, and hold its stdout open, until they are ended too.
		{"npx, killed", peerNpx, time.Second, "trigger-long-running-operation", 3, true},
		{"python, killed", python, 0, "parse_pdf", 1, true},
		// What a server leaves behind may hold its stdout and ignore SIGTERM: no EOF comes, and the call fails anyway.
		{"sh, killed without EOF", func(t testing.TB) Command {
			command := python(t)
			command.Args = slices.Concat([]string{"-c", `trap "" TERM; sleep 60 & "$0" "$@"; true`, command.Path},
				command.Args)
			command.Path = "sh"
			return command
		}, 3 * time.Second, "parse_pdf", 3, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			checkLeaks(t)
			command := test.command(t)
			command.Grace = test.grace
			s := openPeer(t, command).bare("") // one with roots would be asked for them, which takes time
			arguments := wait
			if test.tool == "parse_pdf" {
				arguments = s.pdf()
			}
			var outcome <-chan error
			if test.tool != "" {
				outcome = s.begin(test.tool, arguments)
			}
			assert.Assert(t, is.Len(s.group(), test.group))
			if test.kill {
				stdouts := make(map[string]bool)
				for _, process := range s.group() {
					stdout, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/1", process.pid))
					assert.NilError(t, err)
					stdouts[stdout] = true
				}
				assert.Assert(t, is.Len(stdouts, 1), "they have one stdout: %v", stdouts)
				assert.NilError(t, s.stdio.process.Process.Kill())
				err := peerReceive(s, outcome)
				exit := peerExit(t, err)
				assert.Equal(t, exit.State.String(), "signal: killed")
				assert.ErrorContains(t, err, "signal: killed")
				assert.ErrorIs(t, err, ErrClosed)
				assert.ErrorIs(t, s.Ping(s.ctx), ErrClosed)
				if test.tool == "parse_pdf" {
					assert.Assert(t, is.Contains(exit.Stderr, "parse_pdf started: treatise.pdf"))
				}
				if command.Path == "sh" {
					outlives := func(p peerProcess) bool { return p.name == "sleep" }
					assert.Assert(t, slices.ContainsFunc(s.group(), outlives), "the call")
				}
			}
			assert.NilError(t, s.Close())
			assert.Assert(t, is.Len(s.group(), 0))
			if !test.kill && test.tool != "" {
				assert.ErrorIs(t, peerReceive(s, outcome), ErrClosed)
			}
			// A busy server that ended by itself would prove nothing.
			assert.Equal(t, s.stdio.process.ProcessState.Success(), test.tool == "")
		})
	}
}

// Results of 10 MiB and more arrive whole.
func TestPeersLargeResult(t *testing.T) {
	eachPeer(t, func(t *testing.T, server peerServer) {
		s := server.open(t).bare("")
		member, size := "content", 10<<20
		if server.overHTTP() {
			size = 2 << 20 // and 12 MiB sent
		}
		content := strings.Repeat("é \"of\" 16 bytes\n", size/16+1)
		tool, arguments := "read_text_file", `{"path":"large.txt"}`
		assert.NilError(t, os.WriteFile(filepath.Join(s.dir, "large.txt"), []byte(content), 0o600))
		if server.script == "library_rag" {
			member, tool, arguments = "query", "search_chunks", peerJSON(map[string]string{"query": content})
		}
		result, err := s.CallTool(s.ctx, tool, json.RawMessage(arguments), nil)
		assert.NilError(t, err)
		got := make(map[string]any)
		assert.NilError(t, json.Unmarshal(result.StructuredContent, &got))
		assert.Assert(t, got[member] == any(content))
		assert.Assert(t, len(result.Content[0].Text) >= len(content))
		assert.Assert(t, member == "query" || result.Content[0].Text == content)
	}, "filesystem", "library_rag", "library_rag http", "library_rag http json")
}

// The judges.

// peerMessage is one message of a conversation, as the judges read it.
type peerMessage struct {
	Revision string          `json:"revision"`
	Sender   string          `json:"sender"` // client or server
	Message  json.RawMessage `json:"message"`
}

// said returns the conversation, without what is not of its revision: the probe of a server that speaks another, and
// the request of no known method.
func (s *peerSession) said() (messages []peerMessage) {
	s.wire.mu.Lock()
	defer s.wire.mu.Unlock()
	for _, line := range s.wire.lines {
		sender := map[byte]string{'>': "client", '<': "server"}[line[0]]
		if s.is["handshake"] && strings.Contains(line, `"server/discover"`) || strings.Contains(line, `"no/such"`) {
			continue
		}
		messages = append(messages, peerMessage{s.Server.ProtocolVersion, sender, json.RawMessage(line[2:])})
	}
	return messages
}

// peerJudges are the verdicts on each message of the types of the official SDKs, by judge: valid, or why not.
func peerJudges(t *testing.T, messages []peerMessage) map[string][]string {
	t.Helper()
	requirePeers(t, "node_modules")
	requirePeers(t, "venv-modern")
	var text strings.Builder
	for _, message := range messages {
		text.WriteString(peerJSON(message) + "\n")
	}
	verdicts := make(map[string][]string)
	python := peerFile(t, "venv-modern/bin/python")
	for judge, program := range map[string]string{"judge.py": python, "judge.mjs": "node"} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		command := exec.CommandContext(ctx, program, peerFile(t, judge))
		command.Stdin = strings.NewReader(text.String())
		var stderr strings.Builder
		command.Stderr = &stderr
		output, err := command.Output()
		assert.NilError(t, err, stderr.String())
		verdicts[judge] = strings.Split(strings.TrimSuffix(string(output), "\n"), "\n")
		assert.Assert(t, len(messages) == 0 || len(verdicts[judge]) == len(messages))
	}
	return verdicts
}

// testComplete checks that every kind of message that a client has is among those that it sent.
func testComplete(t *testing.T, revision string, messages []peerMessage) {
	t.Helper()
	want := "completion/complete notifications/cancelled prompts/get prompts/list resources/list resources/read " +
		"resources/templates/list tools/call tools/list "
	if revision == statelessRevision {
		want += "server/discover subscriptions/listen"
	} else {
		want += "error initialize logging/setLevel notifications/initialized ping resources/subscribe " +
			"resources/unsubscribe result"
	}
	kinds := make(map[string]bool)
	kind := regexp.MustCompile(`"method":"([^"]+)"|"(result|error)":`) // the first is the message's own
	for _, message := range messages {
		if match := kind.FindSubmatch(message.Message); message.Sender == "client" {
			kinds[string(match[1])+string(match[2])] = true
		}
	}
	assert.DeepEqual(t, slices.Sorted(maps.Keys(kinds)), slices.Sorted(slices.Values(strings.Fields(want))))
}

// The judges do not accept everything: judges.txt has messages with the verdict, or a part of it, of each. Of two
// messages in a line, the second answers the first.
func TestJudgesRefuse(t *testing.T) {
	var said []peerMessage
	var want [][2]string
	meta := strings.NewReplacer("$META", `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",`+
		`"io.modelcontextprotocol/clientCapabilities":{}}`)
	lines := regexp.MustCompile(`(?m)^(\S+) (?:(\{.*\}) )?(\{.*\}) => py: (.*); mjs: (.*)$`)
	text, err := os.ReadFile(peerFile(t, "judges.txt"))
	assert.NilError(t, err)
	for _, match := range lines.FindAllStringSubmatch(meta.Replace(string(text)), -1) {
		if match[2] != "" {
			said = append(said, peerMessage{match[1], "server", json.RawMessage(match[2])})
			want = append(want, [2]string{"valid", "valid"})
		}
		said = append(said, peerMessage{match[1], "client", json.RawMessage(match[3])})
		want = append(want, [2]string{match[4], match[5]})
	}
	assert.Equal(t, len(said), 38)
	for judge, verdicts := range peerJudges(t, said) {
		for i, verdict := range verdicts {
			expected := want[i][map[string]int{"judge.py": 0, "judge.mjs": 1}[judge]]
			if !strings.Contains(verdict, expected) || (verdict == "valid") != (expected == "valid") {
				t.Errorf("%s: %s\n%s, expected %s", judge, said[i].Message, verdict, expected)
			}
		}
	}
}

// The whole program.

// peerProgram is one run of the whole program, in a process of its own.
type peerProgram struct {
	t      *testing.T
	server string // MCP_SERVER
	env    []string
	during func(program *os.Process) // runs at the first progress that a tool reports; may be nil

	// Set by run.
	stdout string
	stderr peerLog
	status int
}

func (p *peerProgram) run(args ...string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, os.Args[0], args...)
	command.WaitDelay = 5 * time.Second
	command.Env = slices.Concat(safeEnvironment(os.Environ()), p.env, []string{"MCPAGENT_CHILD=main",
		"MCP_SERVER=" + p.server, "GOCOVERDIR=" + cmp.Or(os.Getenv("GOCOVERDIR"), p.t.TempDir())})
	var stdout bytes.Buffer
	p.stderr = peerLog{}
	command.Stdout, command.Stderr = &stdout, &p.stderr
	assert.NilError(p.t, command.Start())
	if p.during != nil && assert.Check(p.t, p.stderr.await(ctx, 1, "  ", "", nil)) { // progress is indented
		p.during(command.Process)
	}
	err := command.Wait()
	assert.NilError(p.t, ctx.Err())
	p.stdout, p.status = stdout.String(), command.ProcessState.ExitCode()
	p.t.Logf("%v: %v\n%.1000s\nstderr:\n%.2000s", args, err, p.stdout, p.stderr.String())
}

// peerSetting makes a command a value of MCP_SERVER. Its words have no single quotes.
func peerSetting(c Command) string {
	return "'" + strings.Join(slices.Concat(c.Env, []string{c.Path}, c.Args), "' '") + "'"
}

const peerKey = "key-0123456789"

// ask has the program ask the model a question, to which it answers in the end, and returns what the model was sent.
func (p *peerProgram) ask(script ...modelReply) []*modelRequest {
	p.t.Helper()
	model := newModelServer(p.t, append(script, modelText("The answer."))...)
	p.env = []string{"MISTRAL_BASE_URL=" + model.URL, "MISTRAL_API_KEY=" + peerKey, "MCP_APPROVE=always"}
	p.run("A question?")
	assert.Equal(p.t, p.status, 0)
	assert.Equal(p.t, p.stdout, "The answer.\n")
	assert.Assert(p.t, !strings.Contains(p.stderr.String(), peerKey))
	requests := model.Requests()
	assert.Assert(p.t, is.Len(requests, len(script)+1))
	return requests
}

func TestProgramOnPeers(t *testing.T) {
	eachPeer(t, func(t *testing.T, server peerServer) {
		tool, rest, _ := strings.Cut(server.call, " ")
		arguments, want, _ := strings.Cut(rest, " => ")
		p := peerProgram{t: t}
		if !server.overHTTP() {
			p.server = peerSetting(server.command(t, peerFolder(t)))
		} else {
			p.server = startPeerHTTP(t, server.command(t, "")).url
		}
		requests := p.ask(modelCalls(modelCall("aaaaaaaa1", tool, arguments)))
		assert.Equal(t, len(p.stderr.with("> "+tool+" ", "")), 1)
		assert.Equal(t, len(p.stderr.with("< "+tool+" ", "")), 1)
		assert.Equal(t, requests[0].Header.Get("Authorization"), "Bearer "+peerKey)
		assert.Equal(t, requests[0].Last(), "A question?")
		assert.Assert(t, slices.ContainsFunc(requests[0].Tools, func(f Function) bool { return f.Name == tool }))
		assert.Assert(t, is.Contains(requests[1].Last(), want))

		p.run("call", tool, strings.ReplaceAll(arguments, `"A"`, `"B"`))
		assert.Equal(t, p.status, 0)
		assert.Assert(t, is.Contains(p.stdout, strings.ReplaceAll(want, `"A"`, `"B"`)))
	}, "everything", "filesystem", "memory", "library_rag", "everything http", "everything sse", "library_rag http",
		"typescript http")
}

func TestProgramInterruptedOnPeer(t *testing.T) {
	checkLeaks(t)
	mark := "PEER_MARK=" + rand.Text()
	server := peerNpx(t)
	server.Env = []string{mark}
	var group []peerProcess
	processes := func() []peerProcess {
		return peerProcesses(t, func(p peerProcess) bool { return p.group == group[0].group })
	}
	p := peerProgram{t: t, server: peerSetting(server), during: func(program *os.Process) {
		group = peerMarked(t, mark)
		assert.Assert(t, is.Len(processes(), 3), "npx, sh and node")
		assert.NilError(t, program.Signal(os.Interrupt))
	}}
	p.run("call", "trigger-long-running-operation", `{"duration":60,"steps":600}`)
	assert.Equal(t, p.status, 130)
	assert.Equal(t, p.stdout, "")
	assert.Assert(t, is.Len(processes(), 0))
}

// The model asks for several things at once, of which some fail, gets the outcome of each, and goes on though the
// server was killed.
func TestProgramAnswersThoughPeersFail(t *testing.T) {
	checkLeaks(t)
	pdf := filepath.ToSlash(filepath.Join(peerFolder(t), "treatise.pdf"))
	mark := "PEER_MARK=" + rand.Text()
	server := peerPython(t, "5") // the program shows progress only of calls that take long
	server.Env = append(server.Env, mark)
	p := peerProgram{t: t, server: peerSetting(server), during: func(*os.Process) {
		marked := peerMarked(t, mark)
		assert.Assert(t, is.Len(marked, 1))
		process, err := os.FindProcess(marked[0].pid)
		assert.NilError(t, err)
		assert.NilError(t, process.Kill())
	}}
	requests := p.ask(modelCalls(
		modelCall("aaaaaaaa1", "search_chunks", `{"query":"zebra","limit":0}`),
		modelCall("aaaaaaaa2", "parse_pdf", `{"pdf_path":"absent.pdf"}`),
		modelCall("aaaaaaaa3", "search_chunk", `{}`),
		modelCall("aaaaaaaa4", "environment", ``),
		modelCall("aaaaaaaa5", "parse_pdf", `{"pdf_path":"`+pdf+`"}`),
	), modelCalls(modelCall("aaaaaaaa6", "environment", `{}`)))
	assert.Equal(t, len(p.stderr.with("< ", "")), 6)
	assert.Assert(t, len(p.stderr.with("  parse_pdf ", "")) > 0, "no progress")
	for i, want := range []string{"*limit must be from 1 to 500, not 0*", "*file not found: absent.pdf*",
		"*search_chunks*", "*PEER_MARK*", "*signal: killed*stderr: *"} {
		answer := requests[1].Messages[len(requests[1].Messages)-5+i].Content.Text()
		assert.Assert(t, peerLike(want, peerLine("%s", answer)), answer)
		assert.Assert(t, !strings.Contains(answer, "MISTRAL"), "the server sees the program's variables")
	}
	assert.Assert(t, is.Contains(requests[2].Last(), "PEER_MARK"), "it was started again")
}

// These tests are about what HTTP alone has: sessions, streams that break, servers that start anew, and a real nginx
// between client and server.

// peerHTTP is a server that listens on a port of 127.0.0.1, which stays its own when it is started again.
type peerHTTP struct {
	t       testing.TB
	command Command

	// Set by start.
	url, port string
	stderr    *peerLog
	stdin     io.Writer
	process   *exec.Cmd
	group     processGroup
	ended     chan struct{} // closed when the process has
}

// startPeerHTTP runs a server until the end of the test. It reports on stderr where it listens.
func startPeerHTTP(t testing.TB, command Command) *peerHTTP {
	t.Helper()
	p := &peerHTTP{t: t, command: command}
	p.start("0")
	t.Cleanup(p.kill)
	return p
}

var peerAddress = regexp.MustCompile(`http://127\.0\.0\.1:(\d+)[/\w]*`)

func (p *peerHTTP) start(port string) {
	p.t.Helper()
	p.stderr = new(peerLog)
	p.process = exec.Command(p.command.Path, p.command.Args...)
	p.process.Env = slices.Concat(safeEnvironment(os.Environ()), p.command.Env, []string{"PORT=" + port})
	p.process.Stderr = p.stderr
	var err error
	p.stdin, err = p.process.StdinPipe()
	assert.NilError(p.t, err)
	p.group.prepare(p.process)
	assert.NilError(p.t, p.process.Start())
	p.group.add(p.process.Process)
	ctx, cancel := context.WithTimeout(p.t.Context(), time.Minute)
	defer cancel()
	p.ended = make(chan struct{})
	go func() {
		_ = p.process.Wait() // reports that it was killed
		close(p.ended)
		cancel()
	}()
	if err := p.stderr.await(ctx, 1, "", " http://127.0.0.1:", nil); err != nil {
		p.kill()
		p.t.Fatalf("%v does not listen: %v\n%s", p.process, err, p.stderr.String())
	}
	found := peerAddress.FindStringSubmatch(p.stderr.String())
	p.url, p.port = found[0], found[1]
}

// kill ends it at once, unless it has ended.
func (p *peerHTTP) kill() {
	select {
	case <-p.ended:
	default:
		p.group.kill()
		<-p.ended
	}
}

// restart ends it at once and starts it on the same port.
func (p *peerHTTP) restart() {
	p.t.Helper()
	p.kill()
	p.start(p.port)
}

// useHTTP makes the session one with a server over HTTP. Its HTTP requests are kept.
func (s *peerSession) useHTTP(p *peerHTTP) {
	connections := &http.Transport{MaxIdleConnsPerHost: 100}
	s.t.Cleanup(connections.CloseIdleConnections)
	s.http, s.stderr, s.log = p, p.stderr, &peerExchanges{next: connections}
	connections.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		s.log.mu.Lock()
		s.log.dials++
		s.log.mu.Unlock()
		return new(net.Dialer).DialContext(ctx, network, address)
	}
	s.start = func(ctx context.Context) (Transport, error) {
		h := &HTTP{URL: p.url, Client: s.log.client()}
		if s.is["sse"] {
			return h.StartSSE(ctx)
		}
		return h.Start(ctx)
	}
}

// peerExchanges keeps what a client sends, and can break streams off.
type peerExchanges struct {
	next http.RoundTripper

	mu     sync.Mutex // guards the following
	dials  int
	all    []peerExchange
	breaks func(x peerExchange) string // if not "", the answer breaks off behind the event with this text; may be nil
}

// peerExchange is a request and how it was answered.
type peerExchange struct {
	Method string // of HTTP
	Header http.Header
	RPC    string // the method of JSON-RPC, or "" of an answer
	Status int    // 0 if none came
	Answer http.Header
}

func (l *peerExchanges) client() *http.Client { return &http.Client{Transport: l} }

// peerCallKey is the key of a call's number in a ctx, which becomes a header, and so can be found in a server's log.
type peerCallKey struct{}

func (l *peerExchanges) RoundTrip(r *http.Request) (*http.Response, error) {
	if number, ok := r.Context().Value(peerCallKey{}).(int); ok {
		r = r.Clone(r.Context())
		r.Header.Set("X-Call", strconv.Itoa(number))
	}
	x := peerExchange{Method: r.Method, Header: r.Header.Clone()}
	if r.GetBody != nil {
		body, err := r.GetBody()
		if err != nil {
			return nil, err
		}
		var message struct{ Method string }
		_ = json.NewDecoder(body).Decode(&message)
		x.RPC = message.Method
	}
	l.mu.Lock()
	at := len(l.all)
	l.all = append(l.all, x)
	breaks := l.breaks
	l.mu.Unlock()
	answer, err := l.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	l.all[at].Status, l.all[at].Answer = answer.StatusCode, answer.Header
	l.mu.Unlock()
	if breaks != nil {
		if after := breaks(x); after != "" {
			answer.Body = &peerBreak{ReadCloser: answer.Body, after: []byte(after)}
		}
	}
	return answer, nil
}

// that returns the exchanges that fit.
func (l *peerExchanges) that(fit func(x peerExchange) bool) (fitting []peerExchange) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, x := range l.all {
		if fit(x) {
			fitting = append(fitting, x)
		}
	}
	return fitting
}

// of returns the exchanges of a method, be it of JSON-RPC or of HTTP.
func (l *peerExchanges) of(method string) []peerExchange {
	return l.that(func(x peerExchange) bool { return x.RPC == method || x.Method == method })
}

// peerBreak is a body that breaks off behind the first event with a text.
type peerBreak struct {
	io.ReadCloser
	after []byte
	read  []byte
}

func (b *peerBreak) Read(p []byte) (int, error) {
	at := bytes.Index(b.read, b.after)
	if at >= 0 && bytes.Contains(bytes.ReplaceAll(b.read[at:], []byte("\r"), nil), []byte("\n\n")) {
		b.ReadCloser.Close()
		return 0, io.ErrUnexpectedEOF
	}
	n, err := b.ReadCloser.Read(p[:1])
	b.read = append(b.read, p[:n]...)
	return n, err
}

// raw sends a ping, or a DELETE, beside the client, in its session, and returns the status of its answer.
func (s *peerSession) raw(method string) int {
	s.t.Helper()
	body := map[string]string{"POST": `{"jsonrpc":"2.0","id":1,"method":"ping"}`}[method]
	r, err := http.NewRequestWithContext(s.ctx, method, s.http.url, strings.NewReader(body))
	assert.NilError(s.t, err)
	ids := s.sessions()
	r.Header = http.Header{"Mcp-Session-Id": ids[len(ids)-1:], "Mcp-Protocol-Version": {s.Server.ProtocolVersion},
		"Accept": {"application/json, text/event-stream"}, "Content-Type": {"application/json"}}
	answer, err := s.log.next.RoundTrip(r)
	assert.NilError(s.t, err)
	_, _ = io.Copy(io.Discard, answer.Body)
	answer.Body.Close()
	return answer.StatusCode
}

// sessions returns the ids of the sessions that the server gave.
func (s *peerSession) sessions() (ids []string) {
	for _, x := range s.log.of("initialize") {
		if id := x.Answer.Get("Mcp-Session-Id"); id != "" && x.Status == http.StatusOK {
			ids = append(ids, id)
		}
	}
	return ids
}

// testEnd closes the session and, over HTTP, checks how it was kept and ended. gone is the status for one that goes on
// with it; 0 if the server keeps no sessions.
func (s *peerSession) testEnd(gone int) {
	t := s.t
	t.Helper()
	if !s.is["http"] || s.is["stateless"] || gone == 0 {
		assert.NilError(t, s.Close())
	}
	switch {
	case !s.is["http"]:
	case s.is["stateless"]:
		for _, x := range s.log.that(func(peerExchange) bool { return true }) {
			assert.Equal(t, x.Method, "POST")
			assert.Equal(t, x.Header.Get("MCP-Protocol-Version"), statelessRevision)
			assert.Equal(t, x.Header.Get("Mcp-Method"), x.RPC)
			assert.Equal(t, x.Header.Get("Mcp-Session-Id"), "")
			assert.Assert(t, x.RPC != "notifications/cancelled")
		}
	case gone == 0:
		assert.Assert(t, is.Len(s.sessions(), 0))
		assert.Assert(t, is.Len(s.log.of("DELETE"), 0))
		get := s.log.of("GET")
		assert.Assert(t, is.Len(get, 1))
		assert.Assert(t, !s.is["sessionless"] || get[0].Status == http.StatusMethodNotAllowed)
	default:
		ids := s.sessions()
		assert.Assert(t, is.Len(ids, 1))
		begun := false
		for _, x := range s.log.that(func(x peerExchange) bool { return x.RPC != "server/discover" }) {
			id, revision := x.Header.Get("Mcp-Session-Id"), x.Header.Get("MCP-Protocol-Version")
			if x.RPC == "initialize" {
				assert.Assert(t, !begun && id == "" && revision == "", "%v", x)
				begun = true
				continue
			}
			assert.Equal(t, id, ids[0], "%v", x)
			assert.Equal(t, revision, s.Server.ProtocolVersion, "%v", x)
			assert.Equal(t, x.Header.Get("Mcp-Method"), "", "%v", x)
		}
		assert.Assert(t, is.Len(s.log.of("GET"), 1))
		assert.Equal(t, s.raw("POST"), http.StatusOK)
		assert.NilError(t, s.Close())
		ends := s.log.of("DELETE")
		assert.Assert(t, is.Len(ends, 1))
		assert.Equal(t, ends[0].Status, http.StatusOK)
		assert.Equal(t, ends[0].Header.Get("Mcp-Session-Id"), ids[0])
		assert.Equal(t, s.raw("POST"), gone)
	}
}

// anyRequest sends a request of any method.
func (s *peerSession) anyRequest(method string) error {
	_, err := s.Client.do(s.ctx, &request{method: method})
	return err
}

// peerLost reports whether it is not known what came of a request, on a connection that lives on.
func peerLost(err error) bool {
	var lost *HTTPError
	return errors.As(err, &lost) && lost.Lost() && !errors.Is(err, ErrClosed) && !errors.Is(err, io.EOF)
}

// What the stateless era alone has.
func TestPeersStateless(t *testing.T) {
	eachPeer(t, func(t *testing.T, server peerServer) {
		server.open(t).testErrors()
		server.open(t).able("").testParamHeaders()
		server.open(t).testBrokenOff()
		server.open(t).able("").testListenRestarted()
	}, "typescript http", "python http")
}

// Some errors have statuses. They are the server's answers all the same.
func (s *peerSession) testErrors() {
	s.bare("").run(
		`request no/such => error -32601: *`,
		`call ask => error -32021: *`, // a capability that is missing
		`call echo {"message":"on"} => on`,
	)
	assert.Equal(s.t, s.log.of("no/such")[0].Status, http.StatusNotFound)
	assert.Equal(s.t, s.log.of("tools/call")[0].Status, http.StatusBadRequest)
}

// A parameter that the server wants in a header is sent there too, and the server compares the two.
func (s *peerSession) testParamHeaders() {
	t := s.t
	for _, region := range []string{"Bern", "Zürich", " =?base64?x?=", "a\tb\n", ""} {
		got := s.do("call route " + peerJSON(map[string]any{"region": region, "urgent": true}))
		assert.Equal(t, strings.ToLower(got), strings.ToLower(peerLine("%s, true", region)))
	}
	calls := s.log.of("tools/call")
	assert.Assert(t, is.Len(calls, 6))
	assert.Equal(t, calls[0].Status, http.StatusBadRequest) // the client did not know yet of such parameters
	for i, want := range []string{"", "Bern", "=?base64?WsO8cmljaA==?="} {
		assert.Equal(t, calls[i].Header.Get("Mcp-Param-Region"), want)
	}
	assert.Equal(t, calls[2].Header.Get("Mcp-Param-Urgent"), "true")
	// The other one cannot declare this without $ref.
	s.run(`[typescript] call route {"region":"Bern","address":{"floor":-7}} => Bern, none, -7`)
}

// Nothing is resumed: the call is lost, and cancelled with its stream.
func (s *peerSession) testBrokenOff() {
	s.log.breaks = func(peerExchange) string { return `"waiting"` }
	_, err := s.able("").CallTool(s.ctx, "wait", nil, nil)
	assert.Assert(s.t, peerLost(err), "%v", err)
	s.run(`stderr wait was cancelled`)
	assert.Assert(s.t, is.Len(s.log.of("tools/call"), 1))
	s.run(`call echo {"message":"on"} => on`)
}

// What is listened to is lost with the server, as every request is.
func (s *peerSession) testListenRestarted() {
	s.run(`listen l tools`, `restart`)
	err := peerReceive(s, s.listens["l"].ended)
	assert.Assert(s.t, peerLost(err), "%v", err)
	s.run(`listen l tools`, `call grow => grown`, `changes l 1 => tools`)
}

// peerWaiting is a tool that reports progress once and then waits.
type peerWaiting struct {
	tool, arguments string
	echo            string // a tool that answers
	cancelled       string // what the server writes to stderr when a call is cancelled; empty if it does not
}

// eachWaiting runs a test on each server that has such a tool.
func eachWaiting(t *testing.T, test func(w peerWaiting, s *peerSession)) {
	eachPeer(t, func(t *testing.T, server peerServer) {
		w := peerWaiting{"wait", "", "echo", "wait was cancelled"}
		switch server.script {
		case "everything":
			w = peerWaiting{"trigger-long-running-operation", `{"duration":50,"steps":1000}`, "echo", ""}
		case "library_rag":
			w = peerWaiting{"parse_pdf", "", "environment", "parse_pdf cancelled"}
			server.command = func(t testing.TB, _ string) Command { return peerPython(t, "60", "http") }
		default:
			test(w, server.open(t).able(statelessRevision))
		}
		s := server.open(t).able("2025-11-25")
		if w.tool == "parse_pdf" {
			w.arguments = s.pdf()
		}
		test(w, s)
	}, "typescript http", "python http", "everything http", "library_rag http")
}

// alive has the server answer a call.
func (s *peerSession) alive(w peerWaiting) {
	s.t.Helper()
	result, err := s.CallTool(s.ctx, w.echo, json.RawMessage(`{"message":"on"}`), nil)
	assert.NilError(s.t, err)
	assert.Assert(s.t, !result.IsError, result.Content[0].Text)
}

func TestPeersCalls(t *testing.T) {
	eachWaiting(t, func(w peerWaiting, s *peerSession) {
		s.testConnections(w)
		s.testInFlight(w)
		s.testClosedWhileBusy(w)
	})
}

// testConnections: calls one after the other take one connection, beside that of the stream for what the server sends
// on its own; but the end of an answer is not waited for long.
func (s *peerSession) testConnections(w peerWaiting) {
	for range 20 {
		s.alive(w)
	}
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	assert.Assert(s.t, s.log.dials <= 5, s.log.dials)
}

func (s *peerSession) testInFlight(w peerWaiting) {
	t := s.t
	const calls = 64
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	begun, ended := make(chan struct{}, calls), make(chan error, calls)
	for range calls {
		go func() {
			once := sync.OnceFunc(func() { begun <- struct{}{} })
			_, err := s.CallTool(ctx, w.tool, peerArguments(w.arguments), func(Progress) { once() })
			ended <- err
		}()
	}
	for range calls {
		peerReceive(s, begun)
	}
	var others sync.WaitGroup // while all of them are at work
	for i := range calls {
		others.Go(func() {
			text := fmt.Sprintf("message %d.", i)
			result, err := s.CallTool(s.ctx, w.echo, json.RawMessage(fmt.Sprintf(`{"message":%q}`, text)), nil)
			assert.Check(t, err)
			if w.echo == "echo" && err == nil {
				assert.Check(t, is.Contains(result.Content[0].Text, text))
			}
		})
	}
	others.Wait()
	cancel()
	for range calls {
		assert.ErrorIs(t, peerReceive(s, ended), context.Canceled)
	}
	if w.cancelled != "" {
		assert.NilError(t, s.stderr.pass(s.ctx, calls, w.cancelled))
	}
	s.alive(w)
}

// testClosedWhileBusy: what is at work when the client closes is over on both sides.
func (s *peerSession) testClosedWhileBusy(w peerWaiting) {
	t := s.t
	outcome := s.begin(w.tool, w.arguments)
	assert.NilError(t, s.Close())
	assert.ErrorIs(t, peerReceive(s, outcome), ErrClosed)
	if w.cancelled != "" && w.echo == "echo" { // library_rag does not notice
		assert.NilError(t, s.stderr.pass(s.ctx, 1, w.cancelled))
	}
	if s.is["stateless"] {
		assert.Assert(t, is.Len(s.log.of("notifications/cancelled"), 0))
		return
	}
	assert.Assert(t, len(s.log.of("notifications/cancelled")) >= 64)
	assert.Equal(t, s.raw("POST")/100, 4)
}

// A client outlives its server: the next one at that address goes on.
func TestPeersRestarted(t *testing.T) {
	eachWaiting(t, func(w peerWaiting, s *peerSession) {
		t := s.t
		sessions := 0
		renewed := func() { // by now there is one session more, in the handshake era
			if s.is["handshake"] {
				sessions++
			}
			assert.Assert(t, is.Len(s.sessions(), sessions))
		}
		renewed()
		if s.is["handshake"] {
			assert.Equal(t, s.raw("DELETE"), http.StatusOK) // by somebody else
			s.alive(w)
			s.alive(w)
			renewed()
		}

		s.http.restart()
		var calls sync.WaitGroup // of which many find at once that there is no session
		for range 32 {
			calls.Go(func() {
				_, err := s.CallTool(s.ctx, w.echo, json.RawMessage(`{"message":"on"}`), nil)
				assert.Check(t, err)
			})
		}
		calls.Wait()
		renewed()

		before := len(s.log.of("tools/call"))
		outcome := s.begin(w.tool, w.arguments)
		s.http.kill()
		resumes := w.cancelled == "" // it is asked in a second for what is left of the stream
		if resumes {
			s.http.restart()
		}
		err := peerReceive(s, outcome)
		assert.Assert(t, peerLost(err), "%v", err)
		assert.Equal(t, len(s.log.of("tools/call")), before+1, "a call that may have been made is not made again")
		if !resumes {
			_, err = s.CallTool(s.ctx, w.echo, json.RawMessage(`{"message":"on"}`), nil)
			assert.Assert(t, peerLost(err), "%v", err) // no server is running
			s.http.restart()
		}
		s.alive(w)
		renewed()
		if sessions > 0 {
			x := s.log.of("tools/call")
			assert.Equal(t, x[len(x)-1].Header.Get("Mcp-Session-Id"), s.sessions()[sessions-1])
		}
		assert.Assert(t, is.Len(s.log.of("notifications/initialized"), sessions))
		assert.Assert(t, is.Len(s.log.of("initialize"), sessions))
	})
}

// Changes are reported by the server that is running now.
func TestPeersListenRestarted(t *testing.T) {
	eachPeer(t, func(t *testing.T, server peerServer) {
		s := server.open(t).able("2025-11-25")
		if server.script == "everything" {
			s.run(`listen l demo://resource/dynamic/text/1`, `restart`, `call toggle-subscriber-updates => *`,
				`changes l 1 => demo://resource/dynamic/text/1`)
		} else {
			s.run(`listen l tools`, `tools => *`, `restart`, `call grow => grown`, `changes l 1 => tools`,
				`tools => * grown *`)
		}
		s.run(`stop l => failed: *context canceled`)
	}, "typescript http", "everything http")
}

// A stream that breaks off is resumed where it broke off, if the server has the means for it.
func TestPeersResumed(t *testing.T) {
	eachPeer(t, func(t *testing.T, server peerServer) {
		s := server.open(t)
		s.log.breaks = func(x peerExchange) string {
			switch {
			case x.RPC == "tools/call" && server.script == "everything":
				return "data: " // of the event that is there for its id alone
			case x.RPC == "tools/call":
				return `"progress":1`
			case x.Method == "GET" && x.Header.Get("Last-Event-ID") == "":
				return "note://text"
			}
			return ""
		}
		s.able("2025-11-25")
		if server.script == "everything" { // it replays more than what was missed
			s.run(`call echo {"message":"on"} => Echo: on`, `sent "tools/call" => 1`)
		} else {
			const touch = `call touch {"uri":"note://text"} => touched`
			s.run(`progress count {"steps":3} => {1 3 step 1} {2 3 step 2} {3 3 step 3} counted to 3`,
				`sent "tools/call" => 1`, `listen l note://text`, touch, touch, touch,
				`changes l 3 => note://text note://text note://text`,
				`call echo {"message":"on"} => on`, `changes l 0 => none`)
		}
		resumed := s.log.that(func(x peerExchange) bool { return x.Header.Get("Last-Event-ID") != "" })
		assert.Assert(t, len(resumed) > 0)
	}, "typescript http", "everything http")
}

// When a server is killed in mid-call, an answer that is JSON has not even begun, and the call is lost; with the one
// stream of HTTP+SSE, everything is over.
func TestPeersKilled(t *testing.T) {
	eachPeer(t, func(t *testing.T, server peerServer) {
		if server.script == "library_rag" {
			server.command = func(t testing.TB, _ string) Command { return peerPython(t, "60", "http", "json") }
		}
		s, outcome := server.open(t).bare(""), make(chan error, 1)
		tool, arguments := "trigger-long-running-operation", `{"duration":50,"steps":1000}`
		if s.is["json"] {
			tool, arguments = "parse_pdf", s.pdf()
		}
		go func() {
			_, err := s.CallTool(s.ctx, tool, json.RawMessage(arguments), func(Progress) {})
			outcome <- err
		}()
		s.run(`[json] stderr parse_pdf started`, `[sse] await 1 got "notifications/progress"`)
		s.http.kill()
		err := peerReceive(s, outcome)
		if s.is["json"] {
			assert.Assert(t, peerLost(err), "%v", err)
			return
		}
		assert.ErrorIs(t, err, ErrClosed)
		assert.ErrorContains(t, err, s.http.url)
		assert.ErrorIs(t, s.Ping(s.ctx), ErrClosed)
	}, "library_rag http json", "everything sse")
}

// Which of the two transports a server speaks is found out.
func TestPeersSSEFound(t *testing.T) {
	eachPeer(t, func(t *testing.T, row peerServer) {
		s := row.open(t)
		server := &Server{URL: s.http.url}
		var err error
		s.Client, err = server.Connect(s.ctx, ClientOptions{})
		assert.NilError(t, err)
		s.run(`call echo {"message":"on"} => *on`)
		assert.NilError(t, s.Close())

		server.URL += "/nowhere"
		_, err = server.Connect(s.ctx, ClientOptions{})
		assert.ErrorContains(t, err, "404")
		assert.ErrorContains(t, err, "nor is it HTTP+SSE")
	}, "everything sse", "old sse")
}

// A real nginx between client and server, as it is when nobody has tuned it: it buffers what servers answer, speaks
// HTTP/1.0 to them, and balances in turn.

// dialNginx starts an nginx in front of servers, "127.0.0.1:port" each, with one more directive, and connects through
// it.
func dialNginx(t *testing.T, revision, directive string, servers ...string) *peerSession {
	t.Helper()
	s := openPeer(t, Command{})
	address := startNginx(s, "", directive, servers...)
	s.useHTTP(&peerHTTP{url: "http://" + address + "/mcp", stderr: s.stderr})
	return s.bare(revision)
}

// startNginx starts an nginx in front of servers, in the dir of the session, and returns its address. listen follows
// the address in its configuration. It is one process, so that it balances strictly in turn. A server that is given as
// "name=127.0.0.1:port" gets what is about its tasks, whose ids begin with its name and a dot.
func startNginx(s *peerSession, listen, directive string, servers ...string) (address string) {
	t := s.t
	t.Helper()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	assert.NilError(t, err)
	address = free.Addr().String()
	free.Close()
	configuration, err := os.ReadFile(peerFile(t, "nginx.conf"))
	assert.NilError(t, err)
	routes, servers := "", slices.Clone(servers)
	for i, server := range servers {
		name, address, isNamed := strings.Cut(server, "=")
		if isNamed {
			servers[i] = address
			routes += "~^" + name + `\. ` + address + "; "
		}
	}
	text := strings.NewReplacer("$ADDRESS", address+listen, "$SERVERS", strings.Join(servers, "; server "),
		"$ROUTES", routes, "$DIRECTIVE", directive).Replace(string(configuration))
	assert.NilError(t, os.WriteFile(filepath.Join(s.dir, "nginx.conf"), []byte(text), 0o600))
	// The shell ends nginx at the end of its stdin: also where the tests break off and clean nothing up. It does so with
	// SIGKILL: without its master, nginx may take a SIGTERM just before it waits, and see it at the next connection.
	command := exec.Command("sh", "-c", `"$@" & read -r _; kill -9 $!; wait`, "sh", requireNginx(t), "-p", s.dir,
		"-c", "nginx.conf")
	command.Stderr = s.stderr
	end, err := command.StdinPipe()
	assert.NilError(t, err)
	assert.NilError(t, command.Start())
	t.Cleanup(func() {
		_ = end.Close()
		_ = command.Wait()
	})
	peerAwait(s, func() bool {
		c, err := net.Dial("tcp", address)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	return address
}

// peerAwait waits for what another goroutine or process does.
func peerAwait(s *peerSession, done func() bool) {
	s.t.Helper()
	for ; !done(); time.Sleep(time.Millisecond) {
		if s.ctx.Err() != nil {
			s.t.Fatalf("%v: %s", s.ctx.Err(), s.stderr)
		}
	}
}

// peerGate is a folder whose second file can be opened only after release.
type peerGate struct {
	fs.FS
	release chan struct{}
}

func (g peerGate) Open(name string) (fs.File, error) {
	if name == "1.txt" {
		<-g.release
	}
	return g.FS.Open(name)
}

// gatedLibrary is a library behind an nginx, whose list_documents cannot be answered before release. Where a call asks
// for progress it is one that streams: an event with progress, and then the answer.
func gatedLibrary(t *testing.T, directive, revision string) (s *peerSession, calls *atomic.Int64, release func()) {
	t.Helper()
	files := fstest.MapFS{"0.md": {Data: []byte("x")}, "1.txt": {Data: []byte("y")}}
	gate := peerGate{files, make(chan struct{})}
	library := NewLibraryHTTP(NewLibrary(gate))
	calls = new(atomic.Int64)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == "POST" {
			calls.Add(1)
			defer calls.Add(-1)
		}
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		token := regexp.MustCompile(`"progressToken":\d+`).Find(body)
		if token == nil {
			library.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("X-Accel-Buffering", "no") // otherwise nginx buffers the events
		const progress = `{"jsonrpc":"2.0","method":"notifications/progress","params":{%s,"progress":1,"message":"reading"}}`
		fmt.Fprintf(w, "data: "+progress+"\n\n", token)
		_ = http.NewResponseController(w).Flush()
		answer := httptest.NewRecorder()
		library.ServeHTTP(answer, r)
		fmt.Fprintf(w, "data: %s\n\n", answer.Body)
	}))
	t.Cleanup(server.Close)
	release = sync.OnceFunc(func() { close(gate.release) })
	t.Cleanup(release)
	return dialNginx(t, revision, directive, server.Listener.Addr().String()), calls, release
}

// Progress comes through nginx while the call runs: the library cannot read its second file, and so not answer, before
// the client has seen the progress. That is what the header X-Accel-Buffering does: an nginx that ignores it keeps
// events back.
func TestNginxPassesProgress(t *testing.T) {
	checkLeaks(t)
	requireNginx(t)
	for _, test := range []struct {
		directive, revision string
		wait                time.Duration
		late                bool
	}{
		{"", statelessRevision, 30 * time.Second, false},
		{"", "2025-11-25", 30 * time.Second, false},
		{"proxy_ignore_headers X-Accel-Buffering;", statelessRevision, 200 * time.Millisecond, true},
	} {
		s, _, release := gatedLibrary(t, test.directive, test.revision)
		var late atomic.Bool
		timer := time.AfterFunc(test.wait, func() { late.Store(true); release() })
		var seen []string
		result, err := s.CallTool(s.ctx, "list_documents", nil, func(p Progress) {
			seen = append(seen, p.Message)
			timer.Stop()
			release()
		})
		assert.NilError(t, err)
		assert.Assert(t, !result.IsError)
		assert.DeepEqual(t, seen, []string{"reading"})
		assert.Equal(t, late.Load(), test.late)
	}
}

// A cancelled call ends at the server, too: nginx passes on that the client has gone, or what it says.
func TestNginxPassesCancellation(t *testing.T) {
	checkLeaks(t)
	requireNginx(t)
	for _, revision := range []string{statelessRevision, "2025-11-25"} {
		s, calls, release := gatedLibrary(t, "", revision)
		first := s.begin("list_documents", "") // it cannot be answered yet, nor can the next
		ctx, cancel := context.WithCancelCause(s.ctx)
		enough := errors.New("enough")
		second := make(chan error)
		go func() {
			_, err := s.CallTool(ctx, "list_documents", nil, nil)
			second <- err
		}()
		peerAwait(s, func() bool { return calls.Load() == 2 })
		cancel(enough)
		assert.ErrorIs(t, <-second, enough)
		peerAwait(s, func() bool { return calls.Load() == 1 })
		release()
		assert.NilError(t, <-first)
	}
}

// peerCall is one call of the load, and its outcome.
type peerCall struct {
	repeatable, afterwards bool // afterwards: begun when the replica was dead
	err                    error
	replica                string // that had it last, as nginx logs
	tries                  int
}

// Three replicas of serve -http behind nginx, and a client that calls and calls. One replica hangs, with calls in
// flight, and is then killed. Those calls are lost, but for the repeatable ones, which are made again; no other call is
// affected.
func TestNginxReplicaKilled(t *testing.T) {
	checkLeaks(t)
	requireNginx(t)
	dir := t.TempDir()
	text := []byte("The heron waits in shallow water.\n")
	assert.NilError(t, os.WriteFile(filepath.Join(dir, "birds.txt"), text, 0o600))
	serve := Command{Path: os.Args[0], Args: []string{"serve", "-http", "127.0.0.1:0", dir},
		Env: []string{"MCPAGENT_CHILD=main", "GOCOVERDIR=" + t.TempDir()}}
	var replicas []*peerHTTP
	var addresses []string
	for range 3 {
		replica := startPeerHTTP(t, serve)
		replicas = append(replicas, replica)
		addresses = append(addresses, "127.0.0.1:"+replica.port)
	}
	s := dialNginx(t, statelessRevision, "", addresses...)

	const workers, before, each = 12, 40, 60
	calls := make([]peerCall, workers*each)
	var begun atomic.Int64
	var work sync.WaitGroup
	dead := make(chan struct{})
	for worker := range workers {
		work.Go(func() {
			for i := range each {
				if i == before {
					<-dead
				}
				number := worker*each + i
				call := &calls[number]
				call.repeatable = number%2 == 0
				ctx := context.WithValue(s.ctx, peerCallKey{}, number)
				if call.repeatable {
					ctx = Repeatable(ctx)
				}
				select {
				case <-dead:
					call.afterwards = true
				default:
				}
				begun.Add(1)
				var result *ToolResult
				result, call.err = s.CallTool(ctx, "search_chunks", json.RawMessage(`{"query":"heron"}`), nil)
				if call.err == nil && !bytes.Contains(result.StructuredContent, []byte("birds.txt")) {
					call.err = fmt.Errorf("another answer: %s", result.StructuredContent)
				}
			}
		})
	}
	peerAwait(s, func() bool { return begun.Load() > workers*before/4 })
	pid := strconv.Itoa(replicas[1].process.Process.Pid)
	assert.NilError(t, exec.Command("kill", "-STOP", pid).Run())
	// Of the calls from now on each third stays with it, until every worker waits for one, or for its death.
	last, quiet := begun.Load(), 0
	peerAwait(s, func() bool {
		quiet++
		if now := begun.Load(); now != last {
			last, quiet = now, 0
		}
		return quiet == 100
	})
	replicas[1].kill()
	close(dead)
	work.Wait()
	assert.NilError(t, s.Close())

	var log [][]string
	peerAwait(s, func() bool { // nginx is done with a request only after the client is
		text, err := os.ReadFile(filepath.Join(s.dir, "calls.log"))
		assert.NilError(t, err)
		log = regexp.MustCompile(`(?m)^(\d+) (\d+) (?:.*, )?(\S+)$`).FindAllStringSubmatch(string(text), -1)
		logged := make(map[string]bool)
		for _, line := range log {
			logged[line[1]] = true
		}
		return len(logged) == len(calls)
	})
	used := make(map[string]int)
	for _, line := range log {
		number, _ := strconv.Atoi(line[1])
		calls[number].replica = line[3]
		calls[number].tries++
		if line[2] == "200" {
			used[line[3]]++
		}
	}
	lost, again := 0, 0
	for number, call := range calls {
		switch {
		case call.tries == 2 && call.repeatable && call.err == nil:
			again++
		case call.tries > 1:
			t.Errorf("call %d was made %d times", number, call.tries)
		case call.err != nil && call.replica == addresses[1] && !call.afterwards && !call.repeatable:
			lost++
			assert.Check(t, peerLost(call.err), "call %d: %v", number, call.err)
		case call.err != nil:
			t.Errorf("call %d on %s: %v", number, call.replica, call.err)
		}
	}
	t.Logf("answered by each: %v; of %d calls %d were lost, %d were made again", used, len(calls), lost, again)
	assert.Check(t, lost+again > 0, "no call was in flight on the replica")
	assert.Check(t, lost+again <= workers)
	for i, replica := range replicas {
		assert.Check(t, used[addresses[i]] > 0, "%s answered nothing", addresses[i])
		if i != 1 {
			assert.Check(t, is.Contains(replica.stderr.String(), "1 document\n"))
		}
	}
}

// The official conformance suite tests clients: for each scenario it starts a server that is made for it, runs the
// client, which is this test binary, and judges what it saw. It also tests servers. testdata/peers/install.sh installs
// the suite.

// conformanceScenario is one that is run in one revision. Its checks are as many as this client or the library can
// pass: those for what is not done are skipped by the suite, and who fails to do something must not pass for that.
type conformanceScenario struct {
	revision, name string
	checks         int
	refusal        string // in the error that the client has to end with; empty: it must not
}

func (c conformanceScenario) String() string { return c.revision + "/" + c.name }

// conformanceClient returns the scenarios for clients, with their checks in each of two revisions; 0 if a revision does
// not have the scenario.
func conformanceClient() (scenarios []conformanceScenario) {
	for _, row := range []struct {
		name         string
		first, later int
		refusal      string
	}{
		{"initialize", 1, 0, ""},
		{"tools_call", 2, 2, ""},
		{"elicitation-sep1034-client-defaults", 5, 0, ""},
		{"sse-retry", 3, 0, ""},
		{"request-metadata", 0, 8, ""},
		{"sep-2322-client-request-state", 0, 5, ""},
		{"http-standard-headers", 0, 9, ""},
		{"http-custom-headers", 0, 18, ""},
		{"http-invalid-tool-headers", 0, 12, ""},
		{"json-schema-ref-no-deref", 0, 1, ""},
		{"json-schema-2020-12-preservation", 9, 9, ""},
		{"auth/metadata-default", 19, 18, ""},
		{"auth/metadata-var1", 19, 18, ""},
		{"auth/metadata-var2", 19, 18, ""},
		{"auth/metadata-var3", 19, 18, ""},
		{"auth/basic-cimd", 14, 12, ""},
		{"auth/scope-from-www-authenticate", 15, 14, ""},
		{"auth/scope-from-scopes-supported", 15, 14, ""},
		{"auth/scope-omitted-when-undefined", 15, 14, ""},
		{"auth/scope-step-up", 24, 27, ""},
		{"auth/scope-retry-limit", 10, 11, "mcp:admin"},
		{"auth/token-endpoint-auth-basic", 20, 19, ""},
		{"auth/token-endpoint-auth-post", 20, 19, ""},
		{"auth/token-endpoint-auth-none", 20, 19, ""},
		{"auth/pre-registration", 14, 12, ""},
		{"auth/client-credentials-basic", 10, 8, ""},
		{"auth/client-credentials-jwt", 10, 8, ""},
		{"auth/enterprise-managed-authorization", 11, 9, ""},
		{"auth/wif-jwt-bearer", 10, 8, ""},
		{"auth/dpop", 12, 13, ""},
		{"auth/dpop-nonce", 14, 15, ""},
		{"auth/authorization-server-migration", 0, 27, ""},
		{"auth/offline-access-scope", 0, 12, ""},
		{"auth/offline-access-not-supported", 0, 14, ""},
		{"auth/resource-mismatch", 0, 2, "evil.example.com"},
		{"auth/metadata-issuer-mismatch", 0, 3, "attacker.example.com"},
		{"auth/iss-supported", 0, 14, ""},
		{"auth/iss-not-advertised", 0, 14, ""},
		{"auth/iss-supported-missing", 0, 8, "iss"},
		{"auth/iss-wrong-issuer", 0, 8, "issuer"},
		{"auth/iss-unexpected", 0, 8, "issuer"},
		{"auth/iss-normalized", 0, 8, "issuer"},
	} {
		for revision, checks := range map[string]int{"2025-11-25": row.first, "2026-07-28": row.later} {
			if checks > 0 {
				scenarios = append(scenarios, conformanceScenario{revision, row.name, checks, row.refusal})
			}
		}
	}
	return scenarios
}

// conformanceLegacy returns the scenarios for servers of 2025-03-26 that name no authorization server, which later
// revisions do not have.
func conformanceLegacy() []conformanceScenario {
	return []conformanceScenario{
		{"2025-03-26", "auth/2025-03-26-oauth-metadata-backcompat", 13, ""},
		{"2025-03-26", "auth/2025-03-26-oauth-endpoint-fallback", 8, ""},
	}
}

// TestConformanceList: every scenario that the suite has for clients is run here.
func TestConformanceList(t *testing.T) {
	checkLeaks(t)
	requirePeers(t, conformanceFolder)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	output, err := conformanceCommand(ctx, "list", "--requirements", "2025-11-25,2026-07-28").Output()
	assert.NilError(t, err)
	listed, run := conformanceList(string(output)), make(map[string][]string)
	for _, scenario := range conformanceClient() {
		run[scenario.revision] = append(run[scenario.revision], scenario.name)
	}
	for revision := range listed {
		slices.Sort(listed[revision])
		slices.Sort(run[revision])
	}
	assert.DeepEqual(t, listed, run)
	count := func(revision string) int { return len(run[revision]) }
	assert.DeepEqual(t, []int{count("2025-11-25"), count("2026-07-28")}, []int{18 + 7, 32 + 7})
}

// conformanceList reads the scenarios for clients, by revision, from the suite's list.
func conformanceList(text string) map[string][]string {
	scenarios := make(map[string][]string)
	revision, all := "", false
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		item, isItem := strings.CutPrefix(strings.TrimLeft(line, " "), "- ")
		name, isClient := strings.CutSuffix(item, " [client]") // what is not counted, of both kinds
		switch {
		case strings.HasPrefix(line, "Required for "):
			revision = strings.Fields(line)[2]
		case isItem && (all || isClient):
			scenarios[revision] = append(scenarios[revision], name)
		case !isItem && line != "":
			all = strings.HasPrefix(line, "Client scenarios")
		}
	}
	return scenarios
}

// TestConformance: the client passes, told nothing but the server's address. What it speaks it finds out itself. One
// that does nothing, and says it is done, passes nothing, though in some scenarios the suite itself would let it pass.
func TestConformance(t *testing.T) {
	checkLeaks(t)
	requirePeers(t, conformanceFolder)
	self, err := os.Executable()
	assert.NilError(t, err)
	for _, scenario := range append(conformanceClient(), conformanceLegacy()...) {
		t.Run(scenario.String(), func(t *testing.T) {
			t.Parallel()
			// A shell runs this, with the URL after it, in its own place: who ends the shell ends the client.
			assert.NilError(t, scenario.client(t, "exec '"+self+"'"))
			err := scenario.client(t, "echo "+conformanceDone+" #")
			assert.ErrorContains(t, err, "Test Results:") // it was judged
		})
	}
}

// TestLibraryConformance: the suite, which is a client here, finds no fault with the library over HTTP. Most of its
// scenarios need a server that is made for them; these are the others. Of one that asks for more than any server has
// to have, the checks that the suite itself calls not testable are left out. The library has no sessions and nothing to
// subscribe to, which the suite notes as INFO and SKIPPED.
func TestLibraryConformance(t *testing.T) {
	checkLeaks(t)
	requirePeers(t, conformanceFolder)
	for _, scenario := range []conformanceScenario{
		{"2025-11-25", "server-initialize", 2, ""},
		{"2025-11-25", "server-session-lifecycle", 0, ""},
		{"2025-11-25", "ping", 2, ""},
		{"2025-11-25", "tools-list", 3, ""},
		{"2025-11-25", "resources-list", 2, ""},
		{"2025-11-25", "prompts-list", 2, ""},
		{"2025-11-25", "dns-rebinding-protection", 2, ""},
		{"2026-07-28", "server-stateless", 21, ""},
		{"2026-07-28", "http-header-validation", 14, ""},
		{"2026-07-28", "caching", 8, ""},
		{"2026-07-28", "sep-2164-resource-not-found", 4, ""},
		{"2026-07-28", "tools-list", 4, ""},
		{"2026-07-28", "resources-list", 2, ""},
		{"2026-07-28", "prompts-list", 2, ""},
		{"2026-07-28", "dns-rebinding-protection", 2, ""},
	} {
		t.Run(scenario.String(), func(t *testing.T) {
			t.Parallel()
			library := NewLibrary(fstest.MapFS{"a.md": {Data: []byte("# A\n\nApples.\n")}, "b.txt": {Data: []byte("Pears.")}})
			server := httptest.NewServer(NewLibraryHTTP(library))
			defer server.Close()
			// The exit status says nothing more than the checks.
			checks, _, err := scenario.run(t, "server", "--url", server.URL)
			assert.NilError(t, err)
			for _, check := range checks {
				const untestable = "Not testable: server does not list the diagnostic tool "
				assert.Check(t, slices.Contains([]string{"SUCCESS", "SKIPPED", "INFO"}, check.Status) ||
					strings.HasPrefix(check.ErrorMessage, untestable), "%+v", check)
			}
			assert.Equal(t, successes(checks), scenario.checks)
		})
	}
}

type conformanceCheck struct{ ID, Status, ErrorMessage string }

func successes(checks []conformanceCheck) (count int) {
	for _, check := range checks {
		if check.Status == "SUCCESS" {
			count++
		}
	}
	return count
}

// run runs a scenario, alone, which is how the suite is strictest: a warning fails it, as do an error of the client
// and too long a time. It returns the checks, what the suite leaves, by the name of the file, and an error if there are
// no checks; "output" is its own output, "exit" its error.
func (c conformanceScenario) run(t *testing.T, args ...string) ([]conformanceCheck, map[string]string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	dir := t.TempDir()
	// Without --force it leaves extensions out.
	args = append(args, "--force", "--scenario", c.name, "--spec-version", c.revision, "--output-dir", dir)
	output, exit := conformanceCommand(ctx, args...).CombinedOutput()
	files := map[string]string{"output": string(output)}
	if exit != nil {
		files["exit"] = exit.Error()
	}
	err := fs.WalkDir(os.DirFS(dir), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(filepath.Join(dir, path))
		files[filepath.Base(path)] = string(text)
		return err
	})
	assert.NilError(t, err)
	var checks []conformanceCheck
	err = json.Unmarshal([]byte(files["checks.json"]), &checks)
	return checks, files, err
}

// client runs a scenario with a client. Besides being content, the suite must have seen all there is to be seen, since
// it fails nobody who never came; and the client must have made all its calls, which some scenarios do not ask of it.
func (c conformanceScenario) client(t *testing.T, command string) error {
	t.Helper()
	checks, files, err := c.run(t, "client", "--command", command)
	switch {
	case err != nil || files["exit"] != "":
		return fmt.Errorf("%s: %v\n%s", files["exit"], err, files["output"])
	case successes(checks) != c.checks:
		return fmt.Errorf("%d checks, not %d\n%s", successes(checks), c.checks, files["output"])
	case c.refusal == "" && files["stdout.txt"] != conformanceDone+"\n":
		return fmt.Errorf("the client was not done: %s", files["stderr.txt"])
	case c.refusal != "" && !strings.Contains(files["stderr.txt"], c.refusal):
		return fmt.Errorf("the client does not say %q: %s%s", c.refusal, files["stdout.txt"], files["stderr.txt"])
	}
	return nil
}

const conformanceFolder = "conformance/node_modules"

// conformanceCommand is a command of the suite. The client that it runs is this test binary in the mode of that name.
func conformanceCommand(ctx context.Context, args ...string) *exec.Cmd {
	bin := filepath.Join(peerDir, conformanceFolder, ".bin")
	args = append([]string{filepath.Join(bin, "conformance")}, args...)
	command := exec.CommandContext(ctx, filepath.Join(bin, "node"), args...)
	command.Env = append(safeEnvironment(os.Environ()), "MCPAGENT_CHILD=conformance")
	command.WaitDelay = 5 * time.Second
	return command
}

// conformanceDone is what the client prints at the end.
const conformanceDone = "done"

// conformanceChild is the client, connected as the program connects. Which scenario it is decides only what is called.
func conformanceChild() int {
	// The suite's own is 30, and it waits for the client to end.
	ctx, cancel := context.WithTimeout(context.Background(), 25*time.Second)
	defer cancel()
	scenario := os.Getenv("MCP_CONFORMANCE_SCENARIO")
	login, err := conformanceLogin(os.Args[len(os.Args)-1], scenario, os.Getenv("MCP_CONFORMANCE_CONTEXT"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	options := ClientOptions{Answers: map[string]Responder{
		"roots/list": RootsAnswer(func(context.Context) ([]Root, error) { return nil, nil }),
		"sampling/createMessage": SampleAnswer(func(context.Context, *SampleRequest) (*SampleResult, error) {
			return nil, errors.New("there is no model")
		}),
		"elicitation/create": ElicitAnswer(func(_ context.Context, r *ElicitRequest) (*ElicitResult, error) {
			return &ElicitResult{Action: "accept", Content: elicitDefaults(r)}, nil
		}),
	}}
	client, err := login.server.Connect(ctx, options)
	if err == nil {
		err = errors.Join(conformanceSession(ctx, client, scenario), client.Close())
	}
	if err = errors.Join(err, login.oauth.Close()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println(conformanceDone)
	return 0
}

// conformanceLogin is the way to a server through the program's configuration, which has what the scenario gives. A
// person logs in without being seen, unless the scenario is about a client without one. Nothing is kept.
func conformanceLogin(resource, scenario, given string) (*login, error) {
	var values map[string]any
	if err := json.Unmarshal([]byte(cmp.Or(given, "{}")), &values); err != nil {
		return nil, err
	}
	grant := map[string]string{
		"auth/client-credentials-basic":         "client_credentials",
		"auth/client-credentials-jwt":           "client_credentials",
		"auth/enterprise-managed-authorization": "token_exchange",
		"auth/wif-jwt-bearer":                   "jwt_bearer",
	}[scenario]
	oauth := map[string]any{"grant": grant, "dpop": strings.HasPrefix(scenario, "auth/dpop"),
		"clientMetadataUrl": "https://conformance-test.local/client-metadata.json"}
	for name, field := range map[string]string{
		"client_id": "clientId", "client_secret": "clientSecret", "issuer": "issuer", "private_key_pem": "privateKey",
		"valid_jwt": "assertion", "idp_id_token": "idToken", "idp_token_endpoint": "idpTokenEndpoint",
		"idp_client_id": "idpClientId",
	} {
		oauth[field] = values[name] // null has no effect
	}
	if grant != "" && oauth["issuer"] == nil {
		var err error
		if oauth["issuer"], err = conformanceIssuer(resource); err != nil {
			return nil, err
		}
	}
	server := map[string]any{"suite": map[string]any{"url": resource, "oauth": oauth}}
	text, err := json.Marshal(map[string]any{"mcpServers": server})
	if err != nil {
		return nil, err
	}
	p := assemble()
	p.settings.output.quiet = true
	lookup := func(string) (string, bool) { return "", false }
	config, err := ParseConfig(text, lookup, ReadRegular, p.output.screen.Secrets)
	if err != nil {
		return nil, err
	}
	p.logins.config.servers, p.logins.config.oauth = config.Servers, config.OAuth
	p.logins.add()
	l := p.logins.all["suite"]
	if l == nil {
		return nil, config.Servers[0].Err
	}
	if l.oauth.Store = nil; grant == "" {
		l.oauth.Listen = listenOAuth(http.DefaultTransport)
	}
	return l, nil
}

// conformanceIssuer is what a user would configure who trusts the server: without an issuer no secret is sent where
// nobody is asked, and the suite names none.
func conformanceIssuer(resource string) (string, error) {
	u, err := url.Parse(resource)
	if err != nil {
		return "", err
	}
	u.Path = protectedPath + u.Path
	response, err := http.Get(u.String())
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	var document struct {
		Issuers []string `json:"authorization_servers"`
	}
	err = json.NewDecoder(response.Body).Decode(&document)
	if err != nil || len(document.Issuers) == 0 {
		return "", fmt.Errorf("the issuer of %s is not known: %w", resource, err)
	}
	return document.Issuers[0], nil
}

// conformanceSession makes the calls that a scenario waits for: of every tool, unless it says which.
func conformanceSession(ctx context.Context, client *Client, scenario string) error {
	tools, err := client.ListTools(ctx)
	if err != nil {
		return err
	}
	type call struct {
		Name      string
		Arguments json.RawMessage
	}
	var given struct{ ToolCalls []call }
	for _, tool := range tools {
		if scenario == "json-schema-ref-no-deref" {
			return nil // it wants nothing but the list
		}
		arguments := map[string]string{"tools_call": `{"a":5,"b":3}`, "http-invalid-tool-headers": `{"region":"north"}`}
		given.ToolCalls = append(given.ToolCalls, call{tool.Name, peerArguments(arguments[scenario])})
		if tool.Name == "json_schema_2020_12_tool" { // its schema is to be given to another
			schema := slices.Concat([]byte(`{"schema":`), tool.InputSchema, []byte(`}`))
			given.ToolCalls = []call{{"json_schema_echo", schema}}
			break
		}
	}
	if scenario == "http-custom-headers" {
		err = json.Unmarshal([]byte(os.Getenv("MCP_CONFORMANCE_CONTEXT")), &given)
	}
	for i := 0; err == nil && i < len(given.ToolCalls); i++ {
		_, err = client.CallTool(ctx, given.ToolCalls[i].Name, given.ToolCalls[i].Arguments, nil)
	}
	if err != nil || scenario != "http-standard-headers" {
		return err
	}
	resources, err := client.ListResources(ctx)
	for i := 0; err == nil && i < len(resources); i++ {
		_, err = client.ReadResource(ctx, resources[i].URI)
	}
	if err != nil {
		return err
	}
	prompts, err := client.ListPrompts(ctx)
	for i := 0; err == nil && i < len(prompts); i++ {
		_, err = client.GetPrompt(ctx, prompts[i].Name, nil)
	}
	return err
}
