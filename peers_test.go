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
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

// These tests talk to servers that were not written here: three of the protocol's reference servers, on the
// TypeScript SDK, and one on the Python SDK. testdata/peers/install.sh installs them.

// peerDir is where the servers are.
const peerDir = "testdata/peers"

// requirePeers skips a test whose servers, those in node_modules or in venv, are not installed. Where the environment
// says PEERS=required, it fails the test instead.
func requirePeers(t testing.TB, folder string) {
	t.Helper()
	stamp := filepath.Join(peerDir, folder, ".made-from") // written last
	if _, err := os.Stat(stamp); err == nil {
		return
	}
	reason := fmt.Sprintf("%s is missing: run %s/install.sh", stamp, peerDir)
	if os.Getenv("PEERS") == "required" {
		t.Fatal(reason)
	}
	t.Skip(reason)
}

func TestRequirePeers(t *testing.T) {
	const reason = "testdata/peers/nowhere/.made-from is missing: run testdata/peers/install.sh"
	for _, test := range []struct{ peers, want string }{
		{"", "skip: " + reason},
		{"required", "fatal: " + reason},
	} {
		t.Setenv("PEERS", test.peers)
		var v peerVerdict
		func() {
			defer func() { _ = recover() }()
			requirePeers(&v, "nowhere")
		}()
		assert.Equal(t, v.verdict, test.want)
	}
}

// peerVerdict is a test that keeps what became of it.
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

// peerNode is the command of a server in node_modules.
func peerNode(t *testing.T, name string, args ...string) Command {
	t.Helper()
	requirePeers(t, "node_modules")
	path, err := filepath.Abs(filepath.Join(peerDir, "node_modules/@modelcontextprotocol", name, "dist/index.js"))
	assert.NilError(t, err)
	return Command{Path: "node", Args: append([]string{path}, args...)}
}

// peerMemory is server-memory with its file.
func peerMemory(t *testing.T, file string) Command {
	t.Helper()
	command := peerNode(t, "server-memory")
	command.Env = []string{"MEMORY_FILE_PATH=" + file}
	return command
}

// peerNpx is server-everything as people start it: npx starts a shell, which starts node.
func peerNpx(t *testing.T) Command {
	t.Helper()
	requirePeers(t, "node_modules")
	dir, err := filepath.Abs(peerDir)
	assert.NilError(t, err)
	return Command{Path: "npx", Args: []string{"--prefix", dir, "--no-install", "mcp-server-everything"}}
}

// peerPython is library_rag.py, whose parse_pdf takes so many seconds.
func peerPython(t *testing.T, seconds string) Command {
	t.Helper()
	requirePeers(t, "venv")
	dir, err := filepath.Abs(peerDir)
	assert.NilError(t, err)
	return Command{
		Path: filepath.Join(dir, "venv/bin/python"),
		Args: []string{filepath.Join(dir, "library_rag.py")},
		Env:  []string{"LIBRARY_RAG_SECONDS=" + seconds},
	}
}

// peerSession is a connection to a server. ctx is only a guard against a hang, as are the client's own times.
type peerSession struct {
	*Client
	t      *testing.T
	ctx    context.Context
	server *Stdio
	tap    func(message []byte) // gets each message of the server before the client does; set before connect, or nil
}

// connectPeer connects to a server, until the end of the test.
func connectPeer(t *testing.T, command Command, o *ClientOptions) *peerSession {
	t.Helper()
	return startPeer(t, command).connect(o)
}

func startPeer(t *testing.T, command Command) *peerSession {
	t.Helper()
	server, err := StartStdio(command)
	assert.NilError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return &peerSession{t: t, ctx: ctx, server: server}
}

func (p *peerSession) connect(o *ClientOptions) *peerSession {
	p.t.Helper()
	var err error
	p.Client, err = Connect(p.ctx, peerTap{p.server, p.tap}, o)
	assert.NilError(p.t, err)
	p.t.Cleanup(func() { p.Close() })
	return p
}

type peerTap struct {
	*Stdio
	tap func(message []byte)
}

func (t peerTap) Read() ([]byte, error) {
	message, err := t.Stdio.Read()
	if err == nil && t.tap != nil {
		t.tap(message)
	}
	return message, err
}

// call runs a tool and returns its result, be it an error of the tool. The arguments may be "".
func (p *peerSession) call(tool, arguments string) *ToolResult {
	p.t.Helper()
	var object json.RawMessage
	if arguments != "" {
		object = json.RawMessage(arguments)
	}
	result, err := p.CallTool(p.ctx, tool, object, nil)
	assert.NilError(p.t, err)
	assert.Assert(p.t, len(result.Content) > 0)
	return result
}

// text runs a tool that must succeed and returns the first text of its result.
func (p *peerSession) text(tool, arguments string) string {
	p.t.Helper()
	result := p.call(tool, arguments)
	assert.Assert(p.t, !result.IsError, result.Content[0].Text)
	return result.Content[0].Text
}

// failure runs a tool that must fail, as the tool's error and not as the client's, and returns what it says.
func (p *peerSession) failure(tool, arguments string) string {
	p.t.Helper()
	result := p.call(tool, arguments)
	assert.Assert(p.t, result.IsError, result.Content[0].Text)
	return result.Content[0].Text
}

// begin starts a tool that reports progress, and returns when it has reported for the first time. The outcome comes
// later.
func (p *peerSession) begin(tool, arguments string) (outcome <-chan error) {
	p.t.Helper()
	begun, done := make(chan struct{}), make(chan error, 1)
	once := sync.OnceFunc(func() { close(begun) })
	go func() {
		_, err := p.CallTool(p.ctx, tool, json.RawMessage(arguments), func(Progress) { once() })
		done <- err
	}()
	select {
	case <-begun:
	case err := <-done:
		p.t.Fatalf("%s ended without progress: %v", tool, err)
	}
	return done
}

// peerReceive takes the next value from a channel, in the time there is.
func peerReceive[T any](p *peerSession, from <-chan T) (value T) {
	p.t.Helper()
	select {
	case value = <-from:
	case <-p.ctx.Done():
		p.t.Fatal(p.ctx.Err())
	}
	return value
}

// tools returns all tools by name.
func (p *peerSession) tools() map[string]Tool {
	p.t.Helper()
	list, err := p.ListTools(p.ctx)
	assert.NilError(p.t, err)
	tools := make(map[string]Tool)
	for _, tool := range list {
		var schema struct{ Type string }
		assert.NilError(p.t, json.Unmarshal(tool.InputSchema, &schema), tool.Name)
		assert.Equal(p.t, schema.Type, "object", tool.Name)
		assert.Assert(p.t, tool.Description != "", tool.Name)
		tools[tool.Name] = tool
	}
	assert.Equal(p.t, len(tools), len(list), "each name once")
	return tools
}

// group returns the processes in the server's group.
func (p *peerSession) group() []peerProcess {
	p.t.Helper()
	return peerGroup(p.t, p.server.process.Process.Pid)
}

func peerGroup(t *testing.T, group int) []peerProcess {
	t.Helper()
	return slices.DeleteFunc(peerProcesses(t), func(p peerProcess) bool { return p.group != group })
}

type peerProcess struct {
	pid, group int
	name       string
}

func (p peerProcess) String() string { return p.name }

// peerProcesses are all processes of the machine but the zombies, which have ended, and wait for the process that
// inherited them.
func peerProcesses(t *testing.T) (all []peerProcess) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("processes are looked up in /proc")
	}
	entries, err := os.ReadDir("/proc")
	assert.NilError(t, err)
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile(filepath.Join("/proc", entry.Name(), "stat"))
		if err != nil {
			continue // it has ended meanwhile
		}
		// "pid (name) state parent group …", where the name can be anything.
		opening, closing := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
		fields := strings.Fields(string(stat[closing+1:]))
		group, err := strconv.Atoi(fields[2])
		assert.NilError(t, err)
		if fields[0] != "Z" {
			all = append(all, peerProcess{pid, group, string(stat[opening+1 : closing])})
		}
	}
	return all
}

// peer is one server with a call that it answers.
type peer struct {
	name            string
	command         func(t *testing.T) Command
	tool, arguments string
	want            string // in the text of the result
}

func allPeers() []peer {
	return []peer{
		{"server-everything", func(t *testing.T) Command { return peerNode(t, "server-everything") },
			"get-sum", `{"a":2,"b":3}`, "The sum of 2 and 3 is 5."},
		{"server-filesystem", func(t *testing.T) Command {
			dir := filepath.Join(t.TempDir(), "two words")
			assert.NilError(t, os.Mkdir(dir, 0o700))
			return peerNode(t, "server-filesystem", dir)
		}, "write_file", `{"path":"a.txt","content":"a"}`, "Successfully wrote to"},
		{"server-memory", func(t *testing.T) Command { return peerMemory(t, filepath.Join(t.TempDir(), "memory.json")) },
			"create_entities", `{"entities":[{"name":"Peirce","entityType":"philosopher","observations":[]}]}`, `"name": "Peirce"`},
		{"library_rag", func(t *testing.T) Command { return peerPython(t, "0") },
			"search_chunks", `{"query":"common name","author_filter":"Pierre Abélard"}`, `"total_count": 1`},
	}
}

func TestPeersHandshake(t *testing.T) {
	for _, peer := range allPeers() {
		for _, revision := range handshakeRevisions() {
			t.Run(peer.name+"/"+revision, func(t *testing.T) {
				checkLeaks(t)
				p := connectPeer(t, peer.command(t), &ClientOptions{Protocol: revision})
				assert.Equal(t, p.Server.ProtocolVersion, revision)
				assert.Assert(t, p.Server.Implementation.Name != "")
				assert.NilError(t, p.Ping(p.ctx))
				assert.Assert(t, is.Contains(p.tools(), peer.tool))
				assert.Assert(t, is.Contains(p.text(peer.tool, peer.arguments), peer.want))
			})
		}
	}
}

func TestPeerEverything(t *testing.T) {
	checkLeaks(t)
	changed := make(chan struct{}, 100)
	p := startPeer(t, peerNode(t, "server-everything"))
	p.tap = func(message []byte) {
		if bytes.Contains(message, []byte(`"notifications/tools/list_changed"`)) {
			changed <- struct{}{}
		}
	}
	p.connect(&ClientOptions{Stray: func(message []byte, reason error) { t.Errorf("stray message %s: %v", message, reason) }})
	assert.Equal(t, p.Server.ProtocolVersion, "2025-11-25")
	assert.Equal(t, p.Server.Implementation.Name, "mcp-servers/everything")
	assert.Assert(t, is.Contains(p.Server.Capabilities, "tools"))
	assert.Assert(t, p.Server.Instructions != "")

	peerReceive(p, changed) // one tool comes only after the handshake
	tools := p.tools()
	for _, name := range []string{"echo", "get-sum", "get-structured-content", "get-tiny-image", "get-resource-links",
		"get-resource-reference", "get-annotated-message", "get-env", "trigger-long-running-operation", "simulate-research-query"} {
		assert.Assert(t, is.Contains(tools, name))
	}
	assert.Assert(t, tools["echo"].Title != "" && tools["echo"].Annotations != nil && tools["echo"].Execution != nil)
	assert.Assert(t, tools["get-structured-content"].OutputSchema != nil)

	assert.Equal(t, p.text("echo", `{"message":"é \ud83d\ude00 \"\\\n\u0000"}`), "Echo: é 😀 \"\\\n\x00")
	assert.Equal(t, p.text("get-sum", `{"a":2,"b":3}`), "The sum of 2 and 3 is 5.")

	result := p.call("get-structured-content", `{"location":"Chicago"}`)
	weather := map[string]any{"temperature": 36.0, "conditions": "Light rain / drizzle", "humidity": 82.0}
	for _, text := range []string{string(result.StructuredContent), result.Content[0].Text} {
		var got map[string]any
		assert.NilError(t, json.Unmarshal([]byte(text), &got))
		assert.DeepEqual(t, got, weather)
	}

	result = p.call("get-tiny-image", "")
	assert.DeepEqual(t, peerTypes(result), []string{"text", "image", "text"})
	assert.Equal(t, result.Content[1].MIMEType, "image/png")
	image := result.Content[1].Data
	_, err := png.DecodeConfig(bytes.NewReader(image)) // its color profile has a wrong checksum, so Decode would not take it
	assert.NilError(t, err)
	assert.Assert(t, bytes.HasSuffix(image, []byte("IEND\xaeB`\x82")), "cut off")

	result = p.call("get-resource-links", `{"count":3}`)
	assert.DeepEqual(t, peerTypes(result), []string{"text", "resource_link", "resource_link", "resource_link"})
	assert.Equal(t, result.Content[1].URI, "demo://resource/dynamic/blob/1")
	assert.Equal(t, result.Content[2].URI, "demo://resource/dynamic/text/2")
	assert.Equal(t, result.Content[2].Name, "Text Resource 2")
	assert.Equal(t, result.Content[2].MIMEType, "text/plain")

	result = p.call("get-resource-reference", `{"resourceType":"Text","resourceId":1}`)
	assert.DeepEqual(t, peerTypes(result), []string{"text", "resource", "text"})
	resource := result.Content[1].Resource
	assert.Equal(t, resource.URI, "demo://resource/dynamic/text/1")
	assert.Assert(t, resource.Text != "" && resource.Blob == nil)
	resource = p.call("get-resource-reference", `{"resourceType":"Blob","resourceId":1}`).Content[1].Resource
	assert.Equal(t, resource.URI, "demo://resource/dynamic/blob/1")
	assert.Assert(t, is.Contains(string(resource.Blob), "Resource 1"))
	assert.Equal(t, resource.Text, "")

	result = p.call("get-annotated-message", `{"messageType":"error"}`)
	assert.Equal(t, result.Content[0].Text, "Error: Operation failed")
	assert.Assert(t, result.Content[0].Annotations != nil && !result.IsError)

	assert.Assert(t, is.Contains(p.failure("echo", "{}"), "Invalid arguments for tool echo"))
	assert.Assert(t, is.Contains(p.failure("nonesuch", "{}"), "Tool nonesuch not found"))
	var refusal *Error
	assert.Assert(t, errors.As(p.conn.Call(p.ctx, "no/such", nil, nil), &refusal))
	assert.Equal(t, refusal.Code, int64(CodeMethodNotFound))
}

func peerTypes(result *ToolResult) (types []string) {
	for _, block := range result.Content {
		types = append(types, block.Type)
	}
	return types
}

func TestPeerProgress(t *testing.T) {
	checkLeaks(t)
	p := connectPeer(t, peerNode(t, "server-everything"), nil)
	var got []Progress
	result, err := p.CallTool(p.ctx, "trigger-long-running-operation", json.RawMessage(`{"duration":0.4,"steps":4}`),
		func(progress Progress) { got = append(got, progress) })
	assert.NilError(t, err)
	assert.Assert(t, is.Contains(result.Content[0].Text, "Long running operation completed"))
	assert.DeepEqual(t, got, []Progress{{1, 4, ""}, {2, 4, ""}, {3, 4, ""}, {4, 4, ""}})
}

// This server does not answer a call that was cancelled, but goes on with it, and tells how it comes on.
func TestPeerCancellation(t *testing.T) {
	checkLeaks(t)
	const steps = 200
	command := peerNode(t, "server-everything")
	command.Grace = 200 * time.Millisecond // the operation outlasts it
	p := startPeer(t, command)
	progress := make(chan struct{}, steps)
	p.tap = func(message []byte) {
		if bytes.Contains(message, []byte(`"notifications/progress"`)) {
			progress <- struct{}{}
		}
	}
	p.connect(&ClientOptions{Stray: func(message []byte, reason error) { t.Errorf("stray message %s: %v", message, reason) }})

	ctx, cancel := context.WithCancel(p.ctx)
	reports := 0
	_, err := p.CallTool(ctx, "trigger-long-running-operation", json.RawMessage(fmt.Sprintf(`{"duration":10,"steps":%d}`, steps)),
		func(Progress) { reports++; cancel() })
	assert.ErrorIs(t, err, context.Canceled)
	before := reports

	assert.Equal(t, p.text("echo", `{"message":"on"}`), "Echo: on")
	for range len(progress) + 2 { // when the second late one is there, the client is through with the first
		peerReceive(p, progress)
	}
	assert.Equal(t, reports, before, "progress was reported after the call had returned")
	assert.Equal(t, p.text("echo", `{"message":"and on"}`), "Echo: and on")
}

// A message just over 10 MiB is too long for the TypeScript SDK, which says nothing, then or later.
func TestPeerFallsSilent(t *testing.T) {
	checkLeaks(t)
	p := connectPeer(t, peerNode(t, "server-everything"), nil)
	ctx, cancel := context.WithTimeout(p.ctx, time.Second)
	defer cancel()
	_, err := p.CallTool(ctx, "echo", peerMessage(10<<20), nil)
	assert.ErrorIs(t, err, context.DeadlineExceeded)
}

// A longer one makes it exit while the message is still being written.
func TestPeerExitsWhileWrittenTo(t *testing.T) {
	checkLeaks(t)
	p := connectPeer(t, peerNode(t, "server-everything"), nil)
	_, err := p.CallTool(p.ctx, "echo", peerMessage(12<<20), nil)
	var exit *ServerExitError
	assert.Assert(t, errors.As(err, &exit), "%v", err)
	assert.ErrorIs(t, err, ErrClosed)
}

// peerMessage makes the arguments of an echo of so many bytes.
func peerMessage(size int) json.RawMessage {
	return json.RawMessage(`{"message":"` + strings.Repeat("x", size) + `"}`)
}

func TestPeerNpxClosedWhileIdle(t *testing.T) {
	checkLeaks(t)
	command := peerNpx(t)
	command.Grace = 30 * time.Second // the end of stdin is enough, however busy the machine
	p := connectPeer(t, command, nil)
	assert.Equal(t, p.text("echo", `{"message":"npx"}`), "Echo: npx")
	assert.Assert(t, is.Len(p.group(), 3), "npx, sh and node")
	assert.NilError(t, p.Close())
	assert.Assert(t, is.Len(p.group(), 0))
	assert.Equal(t, p.server.state.String(), "exit status 0")
}

// In the middle of an operation, the server does not care for the end of stdin.
func TestPeerNpxClosedWhileBusy(t *testing.T) {
	checkLeaks(t)
	command := peerNpx(t)
	command.Grace = time.Second
	p := connectPeer(t, command, nil)
	outcome := p.begin("trigger-long-running-operation", `{"duration":60,"steps":600}`)
	assert.Assert(t, is.Len(p.group(), 3), "npx, sh and node")
	assert.NilError(t, p.Close())
	assert.Assert(t, is.Len(p.group(), 0))
	assert.Assert(t, !p.server.state.Success(), "the server ended by itself: this test proves nothing")
	assert.ErrorIs(t, peerReceive(p, outcome), ErrClosed)
}

// When npx alone is killed, sh and node live on, and hold its stdout open, until they are ended too.
func TestPeerNpxKilled(t *testing.T) {
	checkLeaks(t)
	command := peerNpx(t)
	command.Grace = time.Second
	p := connectPeer(t, command, nil)
	outcome := p.begin("trigger-long-running-operation", `{"duration":60,"steps":600}`)
	stdouts := make(map[string]int)
	for _, process := range p.group() {
		stdout, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/1", process.pid))
		assert.NilError(t, err)
		stdouts[stdout]++
	}
	assert.Assert(t, is.Len(stdouts, 1), "npx, sh and node have one stdout: %v", stdouts)
	assert.NilError(t, p.server.process.Process.Kill())
	err := peerReceive(p, outcome)
	var exit *ServerExitError
	assert.Assert(t, errors.As(err, &exit), "%v", err)
	assert.Equal(t, exit.State.String(), "signal: killed")
	assert.ErrorIs(t, err, ErrClosed)
	assert.ErrorIs(t, p.Ping(p.ctx), ErrClosed)
	assert.NilError(t, p.Close())
	assert.Assert(t, is.Len(p.group(), 0))
}

// What a server leaves behind may hold its stdout and mind nothing: then no EOF comes, and the call fails all the same.
func TestPeerKilledWithoutEOF(t *testing.T) {
	checkLeaks(t)
	command := peerPython(t, "60")
	command.Args = append([]string{"-c", `trap "" TERM; sleep 60 & "$0" "$@"; true`, command.Path}, command.Args...)
	command.Path = "sh"
	command.Grace = 3 * time.Second
	p := connectPeer(t, command, nil)
	outcome := p.begin("parse_pdf", p.pdf())
	assert.Assert(t, is.Len(p.group(), 3), "sh, sleep and python")
	assert.NilError(t, p.server.process.Process.Kill())
	err := peerReceive(p, outcome)
	assert.Assert(t, is.Contains(fmt.Sprint(p.group()), "sleep"), "is to outlive the call")
	var exit *ServerExitError
	assert.Assert(t, errors.As(err, &exit), "%v", err)
	assert.Equal(t, exit.State.String(), "signal: killed")
	assert.NilError(t, p.Close())
	assert.Assert(t, is.Len(p.group(), 0))
}

func TestPeerFilesystem(t *testing.T) {
	checkLeaks(t)
	dir, err := filepath.EvalSymlinks(t.TempDir())
	assert.NilError(t, err)
	p := connectPeer(t, peerNode(t, "server-filesystem", dir), nil)
	path := func(names ...string) string {
		return fmt.Sprintf(`{"path":%s}`, appendString(nil, filepath.Join(append([]string{dir}, names...)...)))
	}
	const content = "é \"quoted\"\r\n\ttext\n"
	assert.Assert(t, is.Contains(p.text("write_file", `{"path":"a.txt","content":`+string(appendString(nil, content))+`}`), "Successfully wrote to"))
	written, err := os.ReadFile(filepath.Join(dir, "a.txt"))
	assert.NilError(t, err)
	assert.Equal(t, string(written), content)
	assert.Equal(t, p.text("read_text_file", path("a.txt")), content)
	p.text("create_directory", path("sub"))
	listed := strings.Split(p.text("list_directory", path()), "\n")
	slices.Sort(listed)
	assert.DeepEqual(t, listed, []string{"[DIR] sub", "[FILE] a.txt"})

	assert.Assert(t, is.Contains(p.failure("read_text_file", path("..", "secret.txt")), "Access denied - path outside allowed directories"))
	assert.Assert(t, is.Contains(p.failure("read_text_file", path("absent.txt")), "ENOENT"))
	assert.Equal(t, p.text("read_text_file", path("a.txt")), content)
}

func TestPeerFilesystemExitsAtOnce(t *testing.T) {
	checkLeaks(t)
	p := startPeer(t, peerNode(t, "server-filesystem", filepath.Join(t.TempDir(), "absent")))
	_, err := Connect(p.ctx, p.server, nil)
	var exit *ServerExitError
	assert.Assert(t, errors.As(err, &exit), "%v", err)
	assert.Equal(t, exit.State.String(), "exit status 1")
	assert.ErrorContains(t, err, "None of the specified directories are accessible")
}

func TestPeerMemory(t *testing.T) {
	checkLeaks(t)
	file := filepath.Join(t.TempDir(), "memory.json")
	p := connectPeer(t, peerMemory(t, file), nil)
	p.text("create_entities", `{"entities":[{"name":"Peirce","entityType":"philosopher","observations":["wrote on signs"]},
		{"name":"Ockham","entityType":"philosopher","observations":[]}]}`)
	p.text("create_relations", `{"relations":[{"from":"Peirce","to":"Ockham","relationType":"argues against"}]}`)
	assert.Equal(t, p.failure("add_observations", `{"observations":[{"entityName":"nobody","contents":["x"]}]}`), "Entity with name nobody not found")
	assert.NilError(t, p.Close())

	p = connectPeer(t, peerMemory(t, file), nil)
	result := p.call("read_graph", "")
	for _, text := range []string{string(result.StructuredContent), result.Content[0].Text} {
		var graph struct {
			Entities []struct {
				Name         string
				Observations []string
			}
			Relations []struct{ From, To string }
		}
		assert.NilError(t, json.Unmarshal([]byte(text), &graph))
		assert.Assert(t, is.Len(graph.Entities, 2))
		assert.Equal(t, graph.Entities[0].Name, "Peirce")
		assert.DeepEqual(t, graph.Entities[0].Observations, []string{"wrote on signs"})
		assert.Assert(t, is.Len(graph.Relations, 1))
		assert.Equal(t, graph.Relations[0].To, "Ockham")
	}
}

// peerChunks is what search_chunks gives.
type peerChunks struct {
	Results []struct {
		Text, Author, Work string
		Similarity         float64
	}
	TotalCount int `json:"total_count"`
	Query      string
}

func (p *peerSession) search(arguments string) (chunks peerChunks) {
	p.t.Helper()
	result := p.call("search_chunks", arguments)
	assert.Assert(p.t, !result.IsError, result.Content[0].Text)
	var text peerChunks
	assert.NilError(p.t, json.Unmarshal([]byte(result.Content[0].Text), &text))
	assert.NilError(p.t, json.Unmarshal(result.StructuredContent, &chunks))
	assert.DeepEqual(p.t, text, chunks)
	return chunks
}

func TestPeerLibraryRAG(t *testing.T) {
	checkLeaks(t)
	p := connectPeer(t, peerPython(t, "0"), nil)
	tools := p.tools()
	var schema struct {
		Properties map[string]struct {
			AnyOf   []map[string]string
			Default json.RawMessage
		}
		Required []string
	}
	assert.NilError(t, json.Unmarshal(tools["search_chunks"].InputSchema, &schema))
	assert.DeepEqual(t, schema.Required, []string{"query"})
	assert.DeepEqual(t, schema.Properties["author_filter"].AnyOf, []map[string]string{{"type": "string"}, {"type": "null"}})

	question := `"query":"What did Peirce say about nominalism versus realism?"`
	absent := p.search(`{` + question + `}`)
	assert.Equal(t, absent.TotalCount, 7)
	assert.Assert(t, is.Len(absent.Results, 7))
	assert.Equal(t, absent.Results[0].Author, "Charles Sanders Peirce")
	assert.Equal(t, absent.Results[0].Similarity, 0.8)
	assert.DeepEqual(t, p.search(`{`+question+`,"limit":10,"author_filter":null,"work_filter":null}`), absent)
	scotus := p.search(`{` + question + `,"author_filter":"John Duns Scotus"}`)
	assert.Equal(t, scotus.TotalCount, 1)
	assert.Equal(t, scotus.Results[0].Work, "Ordinatio")
	assert.Equal(t, p.search(`{"query":"common name","author_filter":"Pierre Abélard"}`).TotalCount, 1)
	assert.Equal(t, p.search(`{"query":"zebra"}`).TotalCount, 0)

	assert.Assert(t, is.Contains(p.failure("search_chunks", `{"query":"x","limit":0}`), "limit must be from 1 to 500, not 0"))
	assert.Assert(t, is.Contains(p.failure("search_chunks", `{"query":1}`), "valid string"))
	assert.Assert(t, is.Contains(p.failure("nonesuch", "{}"), "Unknown tool: nonesuch"))
	assert.Equal(t, p.search(`{"query":"zebra"}`).TotalCount, 0)
}

// pdf makes a file that parse_pdf takes, and returns its arguments.
func (p *peerSession) pdf() (arguments string) {
	p.t.Helper()
	path := filepath.Join(p.t.TempDir(), "treatise.pdf")
	assert.NilError(p.t, os.WriteFile(path, nil, 0o600))
	return fmt.Sprintf(`{"pdf_path":%s}`, appendString(nil, path))
}

func TestPeerParsePDF(t *testing.T) {
	checkLeaks(t)
	p := connectPeer(t, peerPython(t, "0.2"), nil)
	var got []Progress
	result, err := p.CallTool(p.ctx, "parse_pdf", json.RawMessage(p.pdf()), func(progress Progress) { got = append(got, progress) })
	assert.NilError(t, err)
	assert.DeepEqual(t, got, []Progress{{0, 5, "OCR"}, {1, 5, "metadata"}, {2, 5, "table of contents"}, {3, 5, "chunks"},
		{4, 5, "ingestion"}, {5, 5, "done"}})
	assert.Equal(t, peerCompact(t, result.StructuredContent), `{"success":true,"document_name":"treatise","steps":5,"error":null}`)

	result = p.call("parse_pdf", `{"pdf_path":"absent.pdf"}`)
	assert.Assert(t, !result.IsError, "for this server, a failure is a result like another")
	assert.Equal(t, peerCompact(t, result.StructuredContent), `{"success":false,"error":"file not found: absent.pdf"}`)
}

func peerCompact(t *testing.T, raw json.RawMessage) string {
	t.Helper()
	var b bytes.Buffer
	assert.NilError(t, json.Compact(&b, raw))
	return b.String()
}

// This server answers a call that was cancelled, with an error that nobody waits for any more.
func TestPeerParsePDFCancelled(t *testing.T) {
	checkLeaks(t)
	stray := make(chan string, 100)
	p := connectPeer(t, peerPython(t, "60"), &ClientOptions{Stray: func(message []byte, _ error) { stray <- string(message) }})
	ctx, cancel := context.WithCancel(p.ctx)
	reports := 0
	_, err := p.CallTool(ctx, "parse_pdf", json.RawMessage(p.pdf()), func(Progress) { reports++; cancel() })
	assert.ErrorIs(t, err, context.Canceled)
	assert.Equal(t, reports, 1)
	assert.Assert(t, is.Contains(peerReceive(p, stray), "Request cancelled"))
	assert.Equal(t, p.search(`{"query":"zebra"}`).TotalCount, 0)
}

func TestPeerKilled(t *testing.T) {
	checkLeaks(t)
	p := connectPeer(t, peerPython(t, "60"), nil)
	outcome := p.begin("parse_pdf", p.pdf())
	assert.NilError(t, p.server.process.Process.Kill())
	err := peerReceive(p, outcome)
	var exit *ServerExitError
	assert.Assert(t, errors.As(err, &exit), "%v", err)
	assert.Equal(t, exit.State.String(), "signal: killed")
	assert.Assert(t, is.Contains(exit.Stderr, "parse_pdf started: treatise.pdf"))
	assert.ErrorContains(t, err, "signal: killed")
	assert.ErrorIs(t, err, ErrClosed)
	assert.ErrorIs(t, p.Ping(p.ctx), ErrClosed)
}

// peerLog keeps what it is given, write by write.
type peerLog struct{ writes []string }

func (l *peerLog) Write(text []byte) (int, error) {
	l.writes = append(l.writes, string(text))
	return len(text), nil
}

func TestPeerStderr(t *testing.T) {
	checkLeaks(t)
	var log peerLog
	command := peerPython(t, "0")
	command.Stderr = &log
	p := connectPeer(t, command, nil)
	p.text("parse_pdf", p.pdf())
	var refusal *Error
	assert.Assert(t, errors.As(p.conn.Call(p.ctx, "no/such", nil, nil), &refusal)) // of which the server logs 6 KB on one line
	assert.NilError(t, p.Close())

	var messages []string
	longest := 0
	for _, write := range log.writes {
		assert.Assert(t, strings.HasSuffix(write, "\n"), "half a line: %q", write)
		for line := range strings.Lines(write) {
			var entry struct{ Timestamp, Level, Logger, Message string }
			assert.NilError(t, json.Unmarshal([]byte(line), &entry), line)
			messages = append(messages, entry.Message)
			longest = max(longest, len(line))
		}
	}
	assert.Assert(t, is.Contains(messages, "parse_pdf started: treatise.pdf"))
	assert.Assert(t, is.Contains(messages, "parse_pdf finished: treatise.pdf"))
	assert.Assert(t, longest > 4<<10, "no line was longer than one read: %d", longest)
}

func TestPeersSeeNoSecrets(t *testing.T) {
	checkLeaks(t)
	const secret = "planted-0123456789"
	names := []string{"MISTRAL_API_KEY", "AWS_SECRET_ACCESS_KEY", "PEERS_PLANTED"}
	for _, name := range names {
		t.Setenv(name, secret)
	}
	t.Run("names", func(t *testing.T) {
		p := connectPeer(t, peerPython(t, "0"), nil)
		var got struct{ Names []string }
		assert.NilError(t, json.Unmarshal(p.call("environment", "").StructuredContent, &got))
		assert.Assert(t, is.Contains(got.Names, "PATH"))
		assert.Assert(t, is.Contains(got.Names, "LIBRARY_RAG_SECONDS"))
		for _, name := range names {
			assert.Assert(t, !slices.Contains(got.Names, name), name)
		}
	})
	t.Run("values", func(t *testing.T) {
		p := connectPeer(t, peerNode(t, "server-everything"), nil)
		text := p.text("get-env", "")
		assert.Assert(t, is.Contains(text, `"PATH"`))
		assert.Assert(t, !strings.Contains(text, secret))
	})
}

func TestPeersLargeResult(t *testing.T) {
	const size = 10 << 20
	t.Run("server-filesystem", func(t *testing.T) {
		checkLeaks(t)
		dir := t.TempDir()
		const line = "A \"line\" of 32 bytes\twith an é.\n"
		content := strings.Repeat(line, size/len(line)+1)[:size]
		assert.NilError(t, os.WriteFile(filepath.Join(dir, "large.txt"), []byte(content), 0o600))
		p := connectPeer(t, peerNode(t, "server-filesystem", dir), nil)
		result := p.call("read_text_file", `{"path":"large.txt"}`)
		assert.Assert(t, result.Content[0].Text == content, "%d bytes of %d", len(result.Content[0].Text), size)
		assert.Assert(t, len(result.StructuredContent) > size)
	})
	t.Run("library_rag", func(t *testing.T) {
		checkLeaks(t)
		p := connectPeer(t, peerPython(t, "0"), nil)
		query := strings.Repeat("é", size/2)
		chunks := p.search(`{"query":"` + query + `"}`)
		assert.Assert(t, chunks.Query == query, "%d bytes of %d", len(chunks.Query), size)
	})
}

// peerProgram is one run of the whole program, in a process of its own.
type peerProgram struct {
	t      *testing.T
	server Command
	url    string // of the server, if it is not a command
	env    []string
	during func(program *os.Process) // runs at the first progress that a tool reports; may be nil

	// Set by run.
	stdout, stderr string
	status         int
}

func (p *peerProgram) run(args ...string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, os.Args[0], args...)
	command.WaitDelay = 5 * time.Second
	command.Env = slices.Concat(safeEnvironment(os.Environ()), p.env, []string{"MCPAGENT_CHILD=main", "MCP_SERVER=" + cmp.Or(p.url, peerLine(p.server))})
	var stdout bytes.Buffer
	progress := make(chan struct{})
	stderr := &peerStderr{progress: sync.OnceFunc(func() { close(progress) })}
	command.Stdout, command.Stderr = &stdout, stderr
	assert.NilError(p.t, command.Start())
	if p.during != nil {
		select {
		case <-progress:
			p.during(command.Process)
		case <-ctx.Done():
			p.t.Error("no tool reports progress")
		}
	}
	err := command.Wait()
	assert.NilError(p.t, ctx.Err())
	p.stdout, p.stderr, p.status = stdout.String(), stderr.text.String(), command.ProcessState.ExitCode()
	p.t.Logf("%v: %v\n%.1000s\nstderr:\n%.2000s", args, err, p.stdout, p.stderr)
}

// peerLine makes a command a value of MCP_SERVER. Its words have no single quotes.
func peerLine(c Command) string {
	words := slices.Concat(c.Env, []string{c.Path}, c.Args)
	for i, word := range words {
		words[i] = "'" + word + "'"
	}
	return strings.Join(words, " ")
}

// peerStderr keeps what the program says, and calls progress when a line of that is there: they are indented.
type peerStderr struct {
	text     strings.Builder
	progress func()
}

func (s *peerStderr) Write(text []byte) (int, error) {
	s.text.Write(text)
	if strings.Contains("\n"+s.text.String(), "\n  ") {
		s.progress()
	}
	return len(text), nil
}

// lines returns the lines on stderr that begin so.
func (p *peerProgram) lines(prefix string) (lines []string) {
	for line := range strings.Lines(p.stderr) {
		if strings.HasPrefix(line, prefix) {
			lines = append(lines, line)
		}
	}
	return lines
}

func TestProgramOnPeers(t *testing.T) {
	for _, peer := range allPeers() {
		t.Run(peer.name+"/call", func(t *testing.T) {
			checkLeaks(t)
			p := peerProgram{t: t, server: peer.command(t)}
			p.run("call", peer.tool, peer.arguments)
			assert.Equal(t, p.status, 0)
			assert.Assert(t, is.Contains(p.stdout, peer.want))
		})
		t.Run(peer.name+"/question", func(t *testing.T) {
			checkLeaks(t)
			model := newModelServer(t, modelCalls(modelCall("aaaaaaaa1", peer.tool, peer.arguments)), modelText("The answer."))
			p := peerProgram{t: t, server: peer.command(t), env: peerModel(model)}
			p.run("A question?")
			assert.Equal(t, p.status, 0)
			assert.Equal(t, p.stdout, "The answer.\n")
			assert.Assert(t, is.Len(p.lines("> "+peer.tool+" "), 1))
			assert.Assert(t, is.Len(p.lines("< "+peer.tool+" "), 1))
			assert.Assert(t, !strings.Contains(p.stderr, peerKey))

			requests := model.Requests()
			assert.Assert(t, is.Len(requests, 2))
			assert.Equal(t, requests[0].Header.Get("Authorization"), "Bearer "+peerKey)
			assert.Equal(t, requests[0].Last(), "A question?")
			assert.Assert(t, slices.ContainsFunc(requests[0].Tools, func(f Function) bool { return f.Name == peer.tool }))
			assert.Assert(t, is.Contains(requests[1].Last(), peer.want))
		})
	}
}

const peerKey = "key-0123456789"

func peerModel(model *modelServer) (env []string) {
	return []string{"MISTRAL_BASE_URL=" + model.URL, "MISTRAL_API_KEY=" + peerKey, "MCP_APPROVE=always"}
}

func TestProgramReportsPeersFailures(t *testing.T) {
	checkLeaks(t)
	p := peerProgram{t: t, server: peerNode(t, "server-everything")}
	p.run("call", "echo", "{}")
	assert.Equal(t, p.status, 3)
	assert.Assert(t, is.Contains(p.stdout, "Invalid arguments for tool echo"))
	p.run("call", "get-summ", "{}")
	assert.Equal(t, p.status, 2)
	assert.Equal(t, p.stdout, "")
	assert.Assert(t, is.Contains(p.stderr, "get-sum"))

	p.server = peerNode(t, "server-filesystem", filepath.Join(t.TempDir(), "absent"))
	p.run("tools")
	assert.Equal(t, p.status, 1)
	assert.Equal(t, strings.Count(p.stderr, "\n"), 1)
	assert.Assert(t, is.Contains(p.stderr, "exit status 1"))
	assert.Assert(t, is.Contains(p.stderr, "None of the specified directories are accessible"))
}

// The model asks for several things at once, of which some fail, and is told of each.
func TestProgramTellsTheModelOfPeersFailures(t *testing.T) {
	checkLeaks(t)
	pdf := filepath.Join(t.TempDir(), "treatise.pdf")
	assert.NilError(t, os.WriteFile(pdf, nil, 0o600))
	model := newModelServer(t,
		modelCalls(
			modelCall("aaaaaaaa1", "search_chunks", `{"query":"zebra","limit":0}`),
			modelCall("aaaaaaaa2", "parse_pdf", `{"pdf_path":"absent.pdf"}`),
			modelCall("aaaaaaaa3", "parse_pdf", `{"pdf_path":"`+filepath.ToSlash(pdf)+`"}`),
			modelCall("aaaaaaaa4", "search_chunk", `{}`),
			modelCall("aaaaaaaa5", "environment", ``),
		),
		modelText("The answer."))
	p := peerProgram{t: t, server: peerPython(t, "0.5"), env: peerModel(model)}
	p.run("A question?")
	assert.Equal(t, p.status, 0)
	assert.Equal(t, p.stdout, "The answer.\n")
	assert.Assert(t, is.Len(p.lines("< "), 5))
	assert.Assert(t, len(p.lines("  parse_pdf ")) > 0, "no progress")

	requests := model.Requests()
	assert.Assert(t, is.Len(requests, 2))
	answers := requests[1].Messages[len(requests[1].Messages)-5:]
	for i, want := range []string{"limit must be from 1 to 500, not 0", "file not found: absent.pdf", `"success": true`,
		"search_chunks", "LIBRARY_RAG_SECONDS"} {
		assert.Assert(t, is.Contains(answers[i].Content.Text(), want))
	}
	assert.Assert(t, !strings.Contains(answers[4].Content.Text(), "MISTRAL"), "the server sees the program's variables")
}

func TestProgramInterruptedOnPeer(t *testing.T) {
	checkLeaks(t)
	mark := "PEER_MARK=" + rand.Text()
	server := peerNpx(t)
	server.Env = []string{mark}
	group := 0
	p := peerProgram{t: t, server: server, during: func(program *os.Process) {
		marked := peerMarked(t, mark)
		assert.Assert(t, len(marked) > 0)
		group = marked[0].group
		assert.Assert(t, is.Len(peerGroup(t, group), 3), "npx, sh and node")
		assert.NilError(t, program.Signal(os.Interrupt))
	}}
	p.run("call", "trigger-long-running-operation", `{"duration":60,"steps":600}`)
	assert.Equal(t, p.status, 130)
	assert.Equal(t, p.stdout, "")
	assert.Assert(t, is.Len(peerGroup(t, group), 0))
}

func TestProgramAnswersThoughPeerIsKilled(t *testing.T) {
	checkLeaks(t)
	pdf := filepath.Join(t.TempDir(), "treatise.pdf")
	assert.NilError(t, os.WriteFile(pdf, nil, 0o600))
	model := newModelServer(t,
		modelCalls(modelCall("aaaaaaaa1", "parse_pdf", `{"pdf_path":"`+pdf+`"}`)),
		modelCalls(modelCall("aaaaaaaa2", "environment", `{}`)),
		modelText("The answer."))
	mark := "PEER_MARK=" + rand.Text()
	server := peerPython(t, "5") // the program shows only progress that takes its time
	server.Env = append(server.Env, mark)
	p := peerProgram{t: t, server: server, env: peerModel(model), during: func(*os.Process) {
		marked := peerMarked(t, mark)
		assert.Assert(t, is.Len(marked, 1))
		process, err := os.FindProcess(marked[0].pid)
		assert.NilError(t, err)
		assert.NilError(t, process.Kill())
	}}
	p.run("A question?")
	assert.Equal(t, p.status, 0)
	assert.Equal(t, p.stdout, "The answer.\n")
	requests := model.Requests()
	assert.Assert(t, is.Len(requests, 3))
	assert.Assert(t, is.Contains(requests[1].Last(), "signal: killed"))
	assert.Assert(t, is.Contains(requests[1].Last(), "parse_pdf started: treatise.pdf"), "the tail of stderr")
	assert.Assert(t, is.Contains(requests[2].Last(), "PEER_MARK"), "it was started again")
}

// peerMarked returns the processes whose environment has the variable. (npx is none of them: the title that it gives
// itself is written over its environment.)
func peerMarked(t *testing.T, variable string) []peerProcess {
	t.Helper()
	return slices.DeleteFunc(peerProcesses(t), func(p peerProcess) bool {
		environ, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", p.pid)) // not if it has ended, or is somebody else's
		return !slices.Contains(strings.Split(string(environ), "\x00"), variable)
	})
}
