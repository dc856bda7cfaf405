package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

// These tests take the whole protocol to servers of both eras: one server on the two SDKs that speak the stateless
// revision, and all others; one on an SDK of the first days; and the reference servers.

// eraModern are the servers of the stateless era.
func eraModern() []peer {
	return []peer{
		{name: "typescript", command: func(t *testing.T) Command { return eraNode(t, "modern_server.mjs") }},
		{name: "python", command: func(t *testing.T) Command {
			t.Helper()
			requirePeers(t, "venv-modern")
			dir, err := filepath.Abs(peerDir)
			assert.NilError(t, err)
			return Command{Path: filepath.Join(dir, "venv-modern/bin/python"), Args: []string{filepath.Join(dir, "modern_server.py")}}
		}},
	}
}

// eraNode is the command of a server beside node_modules.
func eraNode(t *testing.T, file string) Command {
	t.Helper()
	requirePeers(t, "node_modules")
	path, err := filepath.Abs(filepath.Join(peerDir, file))
	assert.NilError(t, err)
	return Command{Path: "node", Args: []string{path}}
}

// eraSession is a session whose messages are kept, and whose client answers what the server asks.
type eraSession struct {
	*peerSession
	wire *eraWire

	mu      sync.Mutex // guards the following
	action  string     // of the user, on the next elicitations: accept if empty
	elicits []*ElicitRequest
	samples []*SampleRequest
	logs    []LogMessage
}

// startEra connects to a server, in a revision or in the one that is found out, as a client that can do everything.
func startEra(t *testing.T, command Command, revision string) *eraSession {
	t.Helper()
	s := new(eraSession)
	s.connect(t, command, s.options(revision))
	return s
}

// options are those of a client that can do everything.
func (s *eraSession) options(revision string) *ClientOptions {
	return &ClientOptions{
		Protocol: revision,
		Roots: func(context.Context) ([]Root, error) {
			return []Root{{URI: "file:///here", Name: "Here"}, {URI: "file:///there"}}, nil
		},
		Elicit: s.elicit,
		Sample: s.sample,
		Log: func(message LogMessage) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.logs = append(s.logs, message)
		},
	}
}

func (s *eraSession) connect(t *testing.T, command Command, o *ClientOptions) {
	t.Helper()
	s.peerSession = startPeer(t, command)
	s.connectOn(s.server, o)
}

// connectOn connects on a transport.
func (s *eraSession) connectOn(transport Transport, o *ClientOptions) {
	t := s.t
	t.Helper()
	s.wire = &eraWire{Transport: transport, more: make(chan struct{})}
	o.Stray = func(message []byte, reason error) { t.Errorf("stray message %s: %v", message, reason) }
	var err error
	s.Client, err = Connect(s.ctx, s.wire, o)
	assert.NilError(t, err)
	t.Cleanup(func() { s.Close() })
}

// elicit fills in the forms of these servers.
func (s *eraSession) elicit(_ context.Context, r *ElicitRequest) (*ElicitResult, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.elicits = append(s.elicits, r)
	result := &ElicitResult{Action: s.action}
	if s.action == "" {
		result.Action = "accept"
		switch {
		case r.Message == "Who are you?":
			result.Content = map[string]any{"name": "Ann", "age": 42, "color": "blue", "member": false}
		case r.Message == "Are you sure, Ann?":
			result.Content = map[string]any{"confirmed": true}
		case r.Message == "Sign?":
			result.Content = map[string]any{"signature": "Ann"}
		case strings.HasPrefix(r.Message, "Please provide inputs"):
			result.Content = map[string]any{"name": "Ann", "check": true, "integer": 7, "number": 2.5, "email": "ann@example.com",
				"untitledMultipleSelectEnum": []string{"Piano", "Drums"}}
		case r.Mode != "url":
			result.Content = map[string]any{}
		}
	}
	return result, nil
}

func (s *eraSession) sample(_ context.Context, r *SampleRequest) (*SampleResult, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.samples = append(s.samples, r)
	return &SampleResult{
		Role:       "assistant",
		Content:    SampleContent{{Type: "text", Text: "Paris"}},
		Model:      "model-1",
		StopReason: "endTurn",
	}, nil
}

// asUser sets what the user does, and takes what was elicited until now.
func (s *eraSession) asUser(action string) (elicits []*ElicitRequest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	elicits, s.elicits, s.action = s.elicits, nil, action
	return elicits
}

// canElicit says whether the revision that is spoken has elicitation.
func (s *eraSession) canElicit() bool { return s.Server.ProtocolVersion >= "2025-06-18" }

// eraWire keeps all messages of a connection, "> " before those of the client and "< " before those of the server.
type eraWire struct {
	Transport

	mu    sync.Mutex // guards the following
	lines []string
	more  chan struct{} // closed, and made anew, with each line
}

func (w *eraWire) Read() ([]byte, error) {
	message, err := w.Transport.Read()
	if err == nil {
		w.keep("< ", message)
	}
	return message, err
}

func (w *eraWire) Write(ctx context.Context, message []byte) error {
	w.keep("> ", message)
	return w.Transport.Write(ctx, message)
}

func (w *eraWire) keep(direction string, message []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lines = append(w.lines, direction+string(message))
	close(w.more)
	w.more = make(chan struct{})
}

// with returns the lines in one direction that contain a text.
func (w *eraWire) with(direction, text string) (lines []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, line := range w.lines {
		if strings.HasPrefix(line, direction) && strings.Contains(line, text) {
			lines = append(lines, line)
		}
	}
	return lines
}

// await returns when there are so many of such lines.
func (s *eraSession) await(count int, direction, text string) {
	s.t.Helper()
	for {
		s.wire.mu.Lock()
		more := s.wire.more
		s.wire.mu.Unlock()
		if len(s.wire.with(direction, text)) >= count {
			return
		}
		select {
		case <-more:
		case <-s.ctx.Done():
			s.t.Fatalf("no %s%s: %v", direction, text, s.ctx.Err())
		}
	}
}

// eraListen is one Listen at work.
type eraListen struct {
	changes chan Change
	cancel  func()
	wait    func() error // for its end
}

// stop ends it.
func (l *eraListen) stop() error {
	l.cancel()
	return l.wait()
}

// listen begins to listen, until the end of the test at most, and returns when the server has taken notice.
func (s *eraSession) listen(subscription Subscription) *eraListen {
	s.t.Helper()
	notice, notices := `"notifications/subscriptions/acknowledged"`, 1
	if !s.stateless() { // the answers to resources/subscribe
		notice, notices = `"result":{}`, len(subscription.URIs)
	}
	notices += len(s.wire.with("< ", notice))
	ctx, cancel := context.WithCancel(s.ctx)
	ended := make(chan error, 1)
	l := &eraListen{
		changes: make(chan Change, 100),
		cancel:  cancel,
		wait:    sync.OnceValue(func() error { return <-ended }),
	}
	go func() { ended <- s.Listen(ctx, subscription, func(change Change) { l.changes <- change }) }()
	s.t.Cleanup(func() { l.stop() })
	s.await(notices, "< ", notice)
	return l
}

// take collects so many changes.
func (s *eraSession) take(l *eraListen, count int) map[Change]int {
	s.t.Helper()
	taken := make(map[Change]int)
	for range count {
		taken[peerReceive(s.peerSession, l.changes)]++
	}
	return taken
}

// refused says with which code the server refuses.
func refused(t *testing.T, err error) int64 {
	t.Helper()
	var refusal *Error
	assert.Assert(t, errors.As(err, &refusal), "%v", err)
	return refusal.Code
}

// eraRevisions are those that servers of both eras are tried in: found out, and each forced.
func eraRevisions() []string { return append([]string{""}, Revisions()...) }

func TestEraModern(t *testing.T) {
	for _, peer := range eraModern() {
		for _, revision := range eraRevisions() {
			t.Run(peer.name+"/"+revision, func(t *testing.T) {
				checkLeaks(t)
				var stderr eraStderr
				command := peer.command(t)
				command.Stderr = &stderr
				startEra(t, command, revision).testModern(peer.name, revision, &stderr)
			})
		}
	}
}

// testModern is about all that the servers of the stateless era have, in any revision.
func (s *eraSession) testModern(name, revision string, stderr *eraStderr) {
	t := s.t
	t.Helper()
	if revision == "" {
		revision = statelessRevision
	}
	assert.Equal(t, s.Server.ProtocolVersion, revision)
	assert.Equal(t, s.Server.Implementation, Implementation{Name: "modern-" + name, Title: "Modern", Version: "1.2.3"})
	assert.Equal(t, s.Server.Instructions, "Ask for anything.")
	for _, capability := range []string{"tools", "resources", "prompts", "completions"} {
		assert.Assert(t, is.Contains(s.Server.Capabilities, capability))
	}
	s.testTools()
	s.testWait(stderr)
	s.testLog(name)
	s.testResources(name)
	s.testPrompts()
	s.testQuestions(name)
	s.testChanges(name)
	if s.stateless() {
		for _, line := range s.wire.with("> ", `"id":`) {
			assert.Assert(t, is.Contains(line, `"io.modelcontextprotocol/protocolVersion":"`+statelessRevision+`"`))
		}
	} else {
		assert.Assert(t, is.Len(s.wire.with("> ", "io.modelcontextprotocol/"), 0))
	}
}

func (s *eraSession) testTools() {
	t := s.t
	tools := s.tools()
	for _, name := range []string{"echo", "add", "count", "wait", "log", "fail", "ask", "sample", "roots", "interview", "grow", "touch"} {
		assert.Assert(t, is.Contains(tools, name))
	}
	assert.Equal(t, tools["echo"].Title, "Echo")
	assert.Equal(t, tools["echo"].Description, "Says what it is told.")
	assert.Equal(t, string(tools["echo"].Annotations), `{"readOnlyHint":true}`)
	assert.Assert(t, tools["add"].OutputSchema != nil)

	assert.Equal(t, s.text("echo", `{"message":"é \ud83d\ude00 \"\\\n\u0000"}`), "é 😀 \"\\\n\x00")
	var sum struct{ Sum float64 }
	assert.NilError(t, json.Unmarshal(s.call("add", `{"a":2,"b":3.5}`).StructuredContent, &sum))
	assert.Equal(t, sum.Sum, 5.5)
	assert.Assert(t, is.Contains(s.failure("fail", ""), "this tool always fails"))
	s.failure("add", `{"a":"x"}`)
	result, err := s.CallTool(s.ctx, "nonesuch", nil, nil)
	if err != nil {
		assert.Equal(t, refused(t, err), int64(CodeInvalidParams))
		assert.ErrorContains(t, err, "tools/call nonesuch: ")
	} else {
		assert.Assert(t, result.IsError)
	}

	var got []Progress
	_, err = s.CallTool(s.ctx, "count", json.RawMessage(`{"steps":3}`), func(p Progress) { got = append(got, p) })
	assert.NilError(t, err)
	assert.DeepEqual(t, got, []Progress{{1, 3, "step 1"}, {2, 3, "step 2"}, {3, 3, "step 3"}})
}

// testWait cancels a call. The server says so on stderr; its answer, should there be one, is not waited for.
func (s *eraSession) testWait(stderr *eraStderr) {
	ctx, cancel := context.WithCancel(s.ctx)
	reports := 0
	_, err := s.CallTool(ctx, "wait", nil, func(Progress) { reports++; cancel() })
	assert.ErrorIs(s.t, err, context.Canceled)
	assert.Equal(s.t, reports, 1)
	assert.NilError(s.t, stderr.await(s.ctx, "wait was cancelled\n"))
	assert.Equal(s.t, s.text("echo", `{"message":"on"}`), "on")
}

func (s *eraSession) testLog(name string) {
	assert.Equal(s.t, s.text("log", ""), "logged")
	s.mu.Lock()
	defer s.mu.Unlock()
	if name == "python" && !s.stateless() {
		// This SDK has no logging/setLevel, so it sends all, and does not say that it logs.
		assert.Assert(s.t, is.Len(s.logs, 3))
		s.logs = s.logs[1:]
	}
	assert.Assert(s.t, is.Len(s.logs, 2), "%v", s.logs)
	assert.Equal(s.t, s.logs[0].Level, "info")
	assert.Equal(s.t, s.logs[0].Logger, "modern")
	assert.Equal(s.t, string(s.logs[0].Data), `{"of":["some","interest"]}`)
	assert.Equal(s.t, s.logs[1].Level, "error")
	assert.Equal(s.t, string(s.logs[1].Data), `"of much interest"`)
}

func (s *eraSession) testResources(name string) {
	t := s.t
	resources, err := s.ListResources(s.ctx)
	assert.NilError(t, err)
	if name == "typescript" { // two on a page
		assert.Assert(t, is.Len(resources, 5))
		assert.Equal(t, resources[4].URI, "note://numbered/3")
		assert.Equal(t, resources[4].Size, int64(13))
		assert.Assert(t, is.Len(s.wire.with("> ", `"resources/list"`), 3))
	}
	assert.Equal(t, resources[0].URI, "note://text")
	assert.Equal(t, resources[0].Name, "text_note")
	assert.Equal(t, resources[0].Title, "A note")
	assert.Equal(t, resources[0].MIMEType, "text/plain")
	assert.Equal(t, resources[1].URI, "note://blob")

	templates, err := s.ListResourceTemplates(s.ctx)
	assert.NilError(t, err)
	assert.Assert(t, is.Len(templates, 2))
	assert.Equal(t, templates[0].URITemplate, "note://numbered/{number}")
	assert.Equal(t, templates[1].Description, "A note that the user has to sign first.")

	read := func(uri string) ResourceContents {
		t.Helper()
		contents, err := s.ReadResource(s.ctx, uri)
		assert.NilError(t, err)
		assert.Assert(t, is.Len(contents, 1))
		assert.Equal(t, contents[0].URI, uri)
		return contents[0]
	}
	note := read("note://text")
	assert.Equal(t, note.Text, "a note, é")
	assert.Equal(t, note.MIMEType, "text/plain")
	assert.Assert(t, note.Blob == nil)
	note = read("note://blob")
	assert.Equal(t, len(note.Blob), 256)
	assert.Equal(t, note.Blob[255], byte(255))
	assert.Equal(t, note.Text, "")
	assert.Equal(t, read("note://numbered/7").Text, "note number 7")

	_, err = s.ReadResource(s.ctx, "note://absent")
	assert.ErrorContains(t, err, "resources/read note://absent: ")
	if s.stateless() {
		assert.Equal(t, refused(t, err), int64(CodeInvalidParams))
	} else {
		code := refused(t, err)
		assert.Assert(t, code == CodeInvalidParams || code == CodeResourceNotFound, code)
	}
	if s.stateless() || name == "typescript" && s.canElicit() {
		assert.Equal(t, read("note://signed/treaty").Text, "treaty, signed by Ann, was unsigned")
	}
}

func (s *eraSession) testPrompts() {
	t := s.t
	prompts, err := s.ListPrompts(s.ctx)
	assert.NilError(t, err)
	assert.Assert(t, is.Len(prompts, 2))
	assert.Equal(t, prompts[0].Name, "greet")
	assert.Equal(t, prompts[0].Title, "Greeting")
	assert.Equal(t, prompts[0].Description, "Asks for a greeting.")
	assert.DeepEqual(t, prompts[0].Arguments, []PromptArgument{{Name: "name", Required: true}, {Name: "style"}})
	assert.Equal(t, len(prompts[1].Arguments), 0)

	get := func(name string, arguments map[string]string) string {
		t.Helper()
		prompt, err := s.GetPrompt(s.ctx, name, arguments)
		assert.NilError(t, err)
		assert.Assert(t, is.Len(prompt.Messages, 1))
		assert.Equal(t, prompt.Messages[0].Role, "user")
		return prompt.Messages[0].Content.Text
	}
	assert.Equal(t, get("greet", map[string]string{"name": "Ann"}), "Greet Ann in a plain style.")
	assert.Equal(t, get("greet", map[string]string{"name": "Ann", "style": "é"}), "Greet Ann in a é style.")
	assert.Equal(t, get("hello", nil), "Hello!")
	_, err = s.GetPrompt(s.ctx, "nonesuch", nil)
	assert.ErrorContains(t, err, "prompts/get nonesuch: ")
	refused(t, err)
	_, err = s.GetPrompt(s.ctx, "greet", nil)
	refused(t, err)

	completion, err := s.CompletePrompt(s.ctx, "greet", "style", "p", map[string]string{"name": "Ann"})
	assert.NilError(t, err)
	assert.DeepEqual(t, completion.Values, []string{"plain Ann", "pirate Ann"})
	completion, err = s.CompletePrompt(s.ctx, "greet", "style", "f", nil)
	assert.NilError(t, err)
	assert.DeepEqual(t, completion.Values, []string{"formal"})
	completion, err = s.CompleteResource(s.ctx, "note://numbered/{number}", "number", "", nil)
	assert.NilError(t, err)
	assert.DeepEqual(t, completion.Values, []string{"1", "2", "3"})
}

// testQuestions is about what the server asks of the client, in the way of either era.
func (s *eraSession) testQuestions(name string) {
	t := s.t
	s.asUser("")
	assert.Equal(t, s.text("sample", ""), "model-1 as assistant says Paris (endTurn)")
	r := s.samples[0]
	assert.Equal(t, r.SystemPrompt, "Answer in one word.")
	assert.Equal(t, r.MaxTokens, 100)
	assert.Equal(t, *r.Temperature, 0.5)
	assert.DeepEqual(t, r.StopSequences, []string{"."})
	assert.Equal(t, r.Messages[0].Role, "user")
	assert.Equal(t, r.Messages[0].Content[0].Text, "What is the capital of France?")

	roots := s.text("roots", "")
	assert.Assert(t, is.Contains(roots, "file:///here (Here) file:///there ("))

	if !s.canElicit() {
		return
	}
	assert.Equal(t, s.text("ask", ""), "Ann, 42, blue, "+map[string]string{"typescript": "false", "python": "False"}[name])
	elicits := s.asUser("decline")
	assert.Assert(t, is.Len(elicits, 1))
	assert.Equal(t, elicits[0].Message, "Who are you?")
	var schema struct {
		Type       string
		Properties map[string]struct {
			Type, Title, Description string
			Default                  any
			Enum                     []string
		}
		Required []string
	}
	assert.NilError(t, json.Unmarshal(elicits[0].RequestedSchema, &schema))
	assert.Equal(t, schema.Properties["name"].Description, "What to call you")
	assert.Equal(t, schema.Properties["age"].Default, 30.0)
	assert.DeepEqual(t, schema.Properties["color"].Enum, []string{"red", "green", "blue"})
	assert.DeepEqual(t, schema.Required, []string{"name"})
	assert.Equal(t, s.text("ask", ""), "the user answered decline")
	s.asUser("cancel")
	assert.Equal(t, s.text("ask", ""), "the user answered cancel")
	s.asUser("")

	if name == "typescript" && s.Server.ProtocolVersion >= "2025-11-25" {
		assert.Equal(t, s.text("visit", ""), "the user answered accept")
		elicits = s.asUser("")
		assert.Equal(t, elicits[0].Mode, "url")
		assert.Equal(t, elicits[0].URL, "https://example.com/sign-in")
	}

	assert.Equal(t, s.text("interview", ""), "Ann, Paris, 2, True")
	assert.Equal(t, len(s.asUser("")), 2, "a question that was answered is not asked again")
	if s.stateless() {
		_, err := s.CallTool(s.ctx, "pester", nil, nil)
		var protocol *ProtocolError
		assert.Assert(t, errors.As(err, &protocol), "%v", err)
		assert.Equal(t, len(s.asUser("")), maxRounds)
	}
}

func (s *eraSession) testChanges(name string) {
	t := s.t
	const uri = "note://text"
	lists := func() (counts string) {
		for _, method := range []string{"tools/list", "prompts/list", "resources/list"} {
			counts += fmt.Sprint(" ", len(s.wire.with("> ", `"`+method+`"`)))
		}
		return counts
	}
	if name == "python" && !s.stateless() {
		// This SDK has no resources/subscribe.
		err := s.Listen(s.ctx, Subscription{URIs: []string{uri}}, func(Change) {})
		assert.Equal(t, refused(t, err), int64(CodeMethodNotFound))
		assert.Assert(t, is.Len(s.wire.with("> ", `"resources/unsubscribe"`), 0))
		return
	}
	l := s.listen(Subscription{Tools: true, Resources: true, URIs: []string{uri}})
	s.tools()
	before := lists()
	s.tools() // is known: the server says for how long, or tells of changes
	assert.Equal(t, lists(), before)

	s.text("grow", "")
	got := s.take(l, 2)
	assert.DeepEqual(t, got, map[Change]int{{List: "tools"}: 1, {List: "resources"}: 1})
	assert.Assert(t, is.Contains(s.tools(), "grown"))
	assert.Assert(t, lists() != before)
	contents, err := s.ReadResource(s.ctx, "note://grown")
	assert.NilError(t, err)
	assert.Equal(t, contents[0].Text, "grown")
	prompts, err := s.ListPrompts(s.ctx)
	assert.NilError(t, err)
	assert.Assert(t, is.Len(prompts, 3))

	s.text("touch", `{"uri":"note://blob"}`)
	s.text("touch", `{"uri":"note://text"}`)
	want := map[Change]int{{URI: uri}: 1}
	if !s.stateless() { // this server tells of all, whoever is subscribed
		want[Change{URI: "note://blob"}] = 1
	}
	assert.DeepEqual(t, s.take(l, len(want)), want)

	assert.ErrorIs(t, l.stop(), context.Canceled)
	if s.stateless() {
		s.await(2, "> ", `"notifications/cancelled"`) // the first was testWait's
	} else {
		s.await(1, "> ", `"resources/unsubscribe"`)
	}
	assert.Equal(t, s.text("echo", `{"message":"on"}`), "on")
	assert.Assert(t, is.Len(l.changes, 0))
}

// Two subscriptions on one connection do not mix.
func TestEraListensApart(t *testing.T) {
	for _, peer := range eraModern() {
		t.Run(peer.name, func(t *testing.T) {
			checkLeaks(t)
			startEra(t, peer.command(t), "").testListensApart()
		})
	}
}

func (s *eraSession) testListensApart() {
	t := s.t
	t.Helper()
	lists := s.listen(Subscription{Tools: true, Prompts: true})
	text := s.listen(Subscription{URIs: []string{"note://text", "note://blob"}})
	blob := s.listen(Subscription{URIs: []string{"note://blob"}})
	s.text("touch", `{"uri":"note://text"}`)
	assert.Equal(t, peerReceive(s.peerSession, text.changes), Change{URI: "note://text"})
	assert.ErrorIs(t, text.stop(), context.Canceled)
	s.text("touch", `{"uri":"note://blob"}`)
	assert.Equal(t, peerReceive(s.peerSession, blob.changes), Change{URI: "note://blob"})
	s.text("grow", "")
	assert.DeepEqual(t, s.take(lists, 2), map[Change]int{{List: "tools"}: 1, {List: "prompts"}: 1})
	s.text("echo", `{"message":"on"}`) // nothing of before it can still be under way
	assert.Assert(t, is.Len(lists.changes, 0))
	assert.Assert(t, is.Len(text.changes, 0))
	assert.Assert(t, is.Len(blob.changes, 0))
}

// A Listen ends with its server.
func TestEraListenToKilled(t *testing.T) {
	for _, revision := range []string{statelessRevision, "2025-11-25"} {
		t.Run(revision, func(t *testing.T) {
			checkLeaks(t)
			s := startEra(t, eraNode(t, "modern_server.mjs"), revision)
			l := s.listen(Subscription{URIs: []string{"note://text"}})
			assert.NilError(t, s.server.process.Process.Kill())
			err := l.wait()
			assert.ErrorIs(t, err, ErrClosed)
			assert.ErrorContains(t, err, "signal: killed")
		})
	}
}

// What a client does not offer, a server cannot have; and a refusal of the client is told.
func TestEraUnanswered(t *testing.T) {
	questions := []struct{ tool, method string }{
		{"ask", "elicitation/create"}, {"sample", "sampling/createMessage"}, {"roots", "roots/list"},
	}
	// outcome is what a call failed with, as an error or as the tool's own.
	outcome := func(s *eraSession, tool string) string {
		s.t.Helper()
		result, err := s.CallTool(s.ctx, tool, nil, nil)
		if err == nil {
			assert.Assert(s.t, result.IsError, "%v", result.Content)
			return result.Content[0].Text
		}
		return err.Error()
	}
	for _, peer := range eraModern() {
		for _, revision := range []string{statelessRevision, "2025-11-25"} {
			t.Run(peer.name+"/"+revision, func(t *testing.T) {
				checkLeaks(t)
				s := new(eraSession)
				s.connect(t, peer.command(t), &ClientOptions{Protocol: revision})
				assert.Assert(t, is.Len(s.wire.with("> ", "elicitation"), 0))
				for _, question := range questions {
					t.Log(question.tool, ": ", outcome(s, question.tool))
				}
				for _, question := range questions {
					assert.Assert(t, is.Len(s.wire.with("< ", `"`+question.method+`"`), 0), "it asked all the same")
				}
				assert.Equal(t, s.text("echo", `{"message":"on"}`), "on")

				refusal := errors.New("not today")
				s = new(eraSession)
				s.connect(t, peer.command(t), &ClientOptions{
					Protocol: revision,
					Roots:    func(context.Context) ([]Root, error) { return nil, refusal },
					Elicit:   func(context.Context, *ElicitRequest) (*ElicitResult, error) { return nil, refusal },
					Sample:   func(context.Context, *SampleRequest) (*SampleResult, error) { return nil, refusal },
				})
				for _, question := range questions {
					text := outcome(s, question.tool)
					if s.stateless() {
						assert.Equal(t, text, "tools/call "+question.tool+": the server asks for "+question.method+": not today")
					}
				}
				if !s.stateless() {
					assert.Assert(t, is.Len(s.wire.with("> ", `"error":{"code":-32603,"message":"not today"}`), len(questions)))
				}
				assert.Equal(t, s.text("echo", `{"message":"on"}`), "on")
			})
		}
	}
}

// A server may have left the handshake behind.
func TestEraStatelessOnly(t *testing.T) {
	checkLeaks(t)
	command := eraNode(t, "modern_server.mjs")
	command.Args = append(command.Args, "reject")
	s := startEra(t, command, "")
	assert.Equal(t, s.Server.ProtocolVersion, statelessRevision)
	assert.Equal(t, s.text("echo", `{"message":"on"}`), "on")

	old := startPeer(t, command)
	_, err := Connect(old.ctx, old.server, &ClientOptions{Protocol: "2025-11-25"})
	assert.Equal(t, refused(t, err), int64(CodeUnsupportedVersion))
	assert.ErrorContains(t, err, "initialize: ")
}

// eraOld are the servers that know only handshakes.
func eraOld() []peer {
	return append(allPeers(), peer{"old", func(t *testing.T) Command { return eraNode(t, "old_server.mjs") },
		"echo", `{"message":"é"}`, "é"})
}

// The probe costs these servers one answer, not the time that is granted to silent ones.
func TestEraProbeOfOld(t *testing.T) {
	for _, peer := range eraOld() {
		t.Run(peer.name, func(t *testing.T) {
			checkLeaks(t)
			s := startEra(t, peer.command(t), "")
			want := "2025-11-25"
			if peer.name == "old" {
				want = "2024-11-05"
			}
			assert.Equal(t, s.Server.ProtocolVersion, want)
			var begin []string
			for _, line := range s.wire.with("", "")[:3] {
				var message struct {
					Method string
					Error  *Error
				}
				assert.NilError(t, json.Unmarshal([]byte(line[2:]), &message))
				if message.Error != nil {
					message.Method = "an error"
				}
				begin = append(begin, line[:2]+message.Method)
			}
			assert.DeepEqual(t, begin, []string{"> server/discover", "< an error", "> initialize"})
			assert.Assert(t, is.Contains(s.tools(), peer.tool))
			assert.Assert(t, is.Contains(s.text(peer.tool, peer.arguments), peer.want))
			assert.NilError(t, s.Ping(s.ctx))
		})
		t.Run(peer.name+"/forced", func(t *testing.T) {
			checkLeaks(t)
			p := startPeer(t, peer.command(t))
			_, err := Connect(p.ctx, p.server, &ClientOptions{Protocol: statelessRevision})
			assert.ErrorContains(t, err, "the server does not speak 2026-07-28: server/discover: ")
			refused(t, err)
		})
	}
}

// This server knows 2024-11-05 only, whatever it is offered.
func TestEraOld(t *testing.T) {
	for _, revision := range append([]string{""}, handshakeRevisions()...) {
		t.Run(revision, func(t *testing.T) {
			checkLeaks(t)
			startEra(t, eraNode(t, "old_server.mjs"), revision).testOld()
		})
	}
}

func (s *eraSession) testOld() {
	t := s.t
	t.Helper()
	assert.Equal(t, s.Server.ProtocolVersion, "2024-11-05")
	assert.Equal(t, s.Server.Implementation, Implementation{Name: "old", Version: "0.1.0"})
	assert.Equal(t, s.text("echo", `{"message":"é"}`), "é")
	assert.Equal(t, s.text("level", ""), "info")
	_, err := s.CallTool(s.ctx, "nonesuch", nil, nil)
	assert.Equal(t, refused(t, err), int64(CodeInternalError))
	var got []Progress
	_, err = s.CallTool(s.ctx, "count", json.RawMessage(`{"steps":2}`), func(p Progress) { got = append(got, p) })
	assert.NilError(t, err)
	assert.DeepEqual(t, got, []Progress{{1, 2, ""}, {2, 2, ""}})
	assert.Equal(t, s.text("log", ""), "logged")
	s.mu.Lock()
	assert.DeepEqual(t, s.logs, []LogMessage{{Level: "error", Logger: "old", Data: json.RawMessage(`"of much interest"`)}})
	s.mu.Unlock()

	resources, err := s.ListResources(s.ctx)
	assert.NilError(t, err)
	assert.Assert(t, is.Len(resources, 2), "on two pages")
	templates, err := s.ListResourceTemplates(s.ctx)
	assert.NilError(t, err)
	assert.Equal(t, templates[0].URITemplate, "note://{name}")
	contents, err := s.ReadResource(s.ctx, "note://text")
	assert.NilError(t, err)
	assert.Equal(t, contents[0].Text, "a note, é")
	contents, err = s.ReadResource(s.ctx, "note://blob")
	assert.NilError(t, err)
	assert.DeepEqual(t, contents[0].Blob, []byte{0, 1, 2, 255})
	_, err = s.ReadResource(s.ctx, "note://absent")
	assert.Equal(t, refused(t, err), int64(CodeResourceNotFound))

	prompts, err := s.ListPrompts(s.ctx)
	assert.NilError(t, err)
	assert.DeepEqual(t, prompts[0].Arguments, []PromptArgument{{Name: "name", Required: true}})
	prompt, err := s.GetPrompt(s.ctx, "greet", map[string]string{"name": "Ann"})
	assert.NilError(t, err)
	assert.Equal(t, prompt.Messages[0].Content.Text, "Greet Ann.")
	prompt, err = s.GetPrompt(s.ctx, "hello", nil)
	assert.NilError(t, err)
	assert.Equal(t, prompt.Messages[0].Content.Text, "Hello!")
	completion, err := s.CompletePrompt(s.ctx, "greet", "name", "A", map[string]string{"of": "a later revision"})
	assert.NilError(t, err)
	assert.DeepEqual(t, completion.Values, []string{"Ann"})

	assert.Equal(t, s.text("sample", ""), "model-1 as assistant says Paris (endTurn)")
	assert.Equal(t, s.text("roots", ""), "file:///here (Here) file:///there (undefined)")
	assert.Equal(t, s.text("ping", ""), "pong")

	l := s.listen(Subscription{Tools: true, URIs: []string{"note://text", "note://blob"}})
	s.tools()
	s.tools()
	assert.Assert(t, is.Len(s.wire.with("> ", `"tools/list"`), 1))
	s.text("grow", "")
	assert.Assert(t, is.Contains(s.tools(), "grown"))
	assert.Equal(t, s.text("touch", `{"uri":"note://absent"}`), "note://text note://blob")
	s.text("touch", `{"uri":"note://blob"}`)
	assert.DeepEqual(t, s.take(l, 2), map[Change]int{{List: "tools"}: 1, {URI: "note://blob"}: 1})
	assert.ErrorIs(t, l.stop(), context.Canceled)
	assert.Equal(t, s.text("touch", `{"uri":"note://blob"}`), "", "nobody is subscribed any more")
	assert.Assert(t, is.Len(l.changes, 0))
}

// What TestPeerEverything leaves out.
func TestEraEverything(t *testing.T) {
	for _, revision := range append([]string{""}, handshakeRevisions()...) {
		t.Run(revision, func(t *testing.T) {
			checkLeaks(t)
			startEra(t, peerNode(t, "server-everything"), revision).testEverything(revision)
		})
	}
}

func (s *eraSession) testEverything(revision string) {
	t := s.t
	t.Helper()
	if revision != "" {
		assert.Equal(t, s.Server.ProtocolVersion, revision)
	}
	s.await(5, "< ", `"notifications/tools/list_changed"`) // of the tools that depend on what the client can
	tools := s.tools()
	assert.Assert(t, is.Len(tools, 17))
	for name, tool := range tools {
		assert.Equal(t, tool.TaskOnly(), name == "simulate-research-query", name)
	}
	assert.Assert(t, is.Contains(s.failure("simulate-research-query", `{"topic":"x"}`), "requires task augmentation"))
	s.testEverythingResources()
	s.testEverythingPrompts()
	s.testEverythingQuestions()
	s.testEverythingNotices()
}

func (s *eraSession) testEverythingResources() {
	t := s.t
	resources, err := s.ListResources(s.ctx)
	assert.NilError(t, err)
	assert.Assert(t, is.Len(resources, 7))
	for _, resource := range resources {
		assert.Equal(t, resource.URI, "demo://resource/static/document/"+resource.Name)
		assert.Equal(t, resource.MIMEType, "text/markdown")
		contents, err := s.ReadResource(s.ctx, resource.URI)
		assert.NilError(t, err)
		assert.Assert(t, contents[0].Text != "", resource.URI)
	}
	templates, err := s.ListResourceTemplates(s.ctx)
	assert.NilError(t, err)
	assert.Assert(t, is.Len(templates, 2))
	assert.Equal(t, templates[0].URITemplate, "demo://resource/dynamic/text/{resourceId}")
	assert.Equal(t, templates[1].Name, "Dynamic Blob Resource")

	contents, err := s.ReadResource(s.ctx, "demo://resource/dynamic/text/3")
	assert.NilError(t, err)
	assert.Assert(t, is.Contains(contents[0].Text, "Resource 3: This is a plaintext resource"))
	contents, err = s.ReadResource(s.ctx, "demo://resource/dynamic/blob/3")
	assert.NilError(t, err)
	assert.Assert(t, is.Contains(string(contents[0].Blob), "Resource 3: This is a base64 blob"))
	_, err = s.ReadResource(s.ctx, "demo://absent")
	assert.Equal(t, refused(t, err), int64(CodeInvalidParams))
	_, err = s.ReadResource(s.ctx, "demo://resource/dynamic/text/x")
	assert.Equal(t, refused(t, err), int64(CodeInternalError))

	// A tool may make a resource, of which the list then tells.
	const data = `"name":"a.gz","data":"data:text/plain,hello"`
	link := s.call("gzip-file-as-resource", `{`+data+`}`).Content[0]
	assert.Equal(t, link.Type, "resource_link")
	assert.Equal(t, link.URI, "demo://resource/session/a.gz")
	resources, err = s.ListResources(s.ctx)
	assert.NilError(t, err)
	assert.Assert(t, is.Len(resources, 8))
	contents, err = s.ReadResource(s.ctx, link.URI)
	assert.NilError(t, err)
	assert.Assert(t, bytes.HasPrefix(contents[0].Blob, []byte{0x1f, 0x8b}))
	resource := s.call("gzip-file-as-resource", `{`+data+`,"outputType":"resource"}`).Content[0].Resource
	assert.DeepEqual(t, resource.Blob, contents[0].Blob)
}

func (s *eraSession) testEverythingPrompts() {
	t := s.t
	prompts, err := s.ListPrompts(s.ctx)
	assert.NilError(t, err)
	var names []string
	for _, prompt := range prompts {
		names = append(names, prompt.Name)
	}
	assert.DeepEqual(t, names, []string{"simple-prompt", "args-prompt", "completable-prompt", "resource-prompt"})
	get := func(name string, arguments map[string]string) []PromptMessage {
		t.Helper()
		prompt, err := s.GetPrompt(s.ctx, name, arguments)
		assert.NilError(t, err)
		return prompt.Messages
	}
	assert.Equal(t, get("simple-prompt", nil)[0].Content.Text, "This is a simple prompt without arguments.")
	assert.Equal(t, get("args-prompt", map[string]string{"city": "Bern"})[0].Content.Text, "What's weather in Bern?")
	assert.Equal(t, get("args-prompt", map[string]string{"city": "Bern", "state": "BE"})[0].Content.Text, "What's weather in Bern, BE?")
	messages := get("resource-prompt", map[string]string{"resourceType": "Blob", "resourceId": "4"})
	assert.Assert(t, is.Len(messages, 2))
	assert.Equal(t, messages[1].Content.Type, "resource")
	assert.Assert(t, is.Contains(string(messages[1].Content.Resource.Blob), "Resource 4"))
	_, err = s.GetPrompt(s.ctx, "args-prompt", nil)
	assert.Equal(t, refused(t, err), int64(CodeInvalidParams))
	_, err = s.GetPrompt(s.ctx, "nonesuch", nil)
	assert.Equal(t, refused(t, err), int64(CodeInvalidParams))

	completion, err := s.CompletePrompt(s.ctx, "completable-prompt", "department", "S", nil)
	assert.NilError(t, err)
	assert.DeepEqual(t, completion, &Completion{Values: []string{"Sales", "Support"}, Total: 2})
	completion, err = s.CompletePrompt(s.ctx, "completable-prompt", "name", "", map[string]string{"department": "Sales"})
	assert.NilError(t, err)
	assert.DeepEqual(t, completion.Values, []string{"David", "Eve", "Frank"})
	completion, err = s.CompleteResource(s.ctx, "demo://resource/dynamic/text/{resourceId}", "resourceId", "12", nil)
	assert.NilError(t, err)
	assert.DeepEqual(t, completion.Values, []string{"12"})
	_, err = s.CompletePrompt(s.ctx, "nonesuch", "x", "", nil)
	assert.Equal(t, refused(t, err), int64(CodeInvalidParams))
}

func (s *eraSession) testEverythingQuestions() {
	t := s.t
	roots := s.text("get-roots-list", "")
	assert.Assert(t, is.Contains(roots, "Current MCP Roots (2 total)"))
	assert.Assert(t, is.Contains(roots, "1. Here\n   URI: file:///here"))

	sampled := s.text("trigger-sampling-request", `{"prompt":"a question","maxTokens":7}`)
	assert.Assert(t, is.Contains(sampled, `"text": "Paris"`))
	s.mu.Lock()
	r := s.samples[0]
	s.mu.Unlock()
	assert.Equal(t, r.Messages[0].Content[0].Text, "Resource trigger-sampling-request context: a question")
	assert.Equal(t, r.SystemPrompt, "You are a helpful test server.")
	assert.Equal(t, r.MaxTokens, 7)

	const tool = "trigger-elicitation-request"
	s.asUser("")
	result := s.call(tool, "")
	assert.Assert(t, is.Len(result.Content, 3))
	assert.Assert(t, is.Contains(result.Content[1].Text, "- Name: Ann\n- Agreed to terms: true\n- Email: ann@example.com\n- Favorite Integer: 7\n"))
	elicits := s.asUser("decline")
	assert.Assert(t, is.Contains(string(elicits[0].RequestedSchema), `"legacyTitledEnum"`))
	assert.Assert(t, is.Contains(s.text(tool, ""), "User declined"))
	s.asUser("cancel")
	assert.Assert(t, is.Contains(s.text(tool, ""), "User cancelled"))

	const url = `{"url":"https://example.com/sign-in","elicitationId":"e-1"`
	s.asUser("")
	assert.Assert(t, is.Contains(s.text("trigger-url-elicitation", url+`}`), "User completed the URL elicitation flow"))
	elicits = s.asUser("")
	assert.DeepEqual(t, elicits[0], &ElicitRequest{Mode: "url", Message: "Please open the link to complete this action.",
		URL: "https://example.com/sign-in", ElicitationID: "e-1"})
	_, err := s.CallTool(s.ctx, "trigger-url-elicitation", json.RawMessage(url+`,"errorPath":true}`), nil)
	assert.Equal(t, refused(t, err), int64(-32042))
	assert.Assert(t, is.Contains(s.text("trigger-url-elicitation", url+`,"errorPath":true}`), "User completed"))
}

func (s *eraSession) testEverythingNotices() {
	t := s.t
	uris := []string{"demo://resource/dynamic/text/1", "demo://resource/static/document/features.md"}
	l := s.listen(Subscription{URIs: uris})
	s.text("toggle-subscriber-updates", "")
	assert.DeepEqual(t, s.take(l, 2), map[Change]int{{URI: uris[0]}: 1, {URI: uris[1]}: 1})
	s.text("toggle-subscriber-updates", "")
	assert.ErrorIs(t, l.stop(), context.Canceled)
	// Its log speaks of them. What it logs of itself is of random levels, so it may not come.
	assert.Assert(t, is.Contains(s.text("toggle-simulated-logging", ""), "Started"))
	assert.Assert(t, is.Contains(s.text("toggle-simulated-logging", ""), "Stopped"))
	s.mu.Lock()
	defer s.mu.Unlock()
	logged := make(map[string]int)
	for _, message := range s.logs {
		var text string
		assert.NilError(t, json.Unmarshal(message.Data, &text))
		assert.Assert(t, message.Level != "debug", text)
		text, _, _ = strings.Cut(text, " from session ") // over HTTP
		logged[strings.TrimSpace(text)]++
	}
	for _, uri := range uris {
		assert.Equal(t, logged["Received Subscribe Resource request for URI: "+uri], 1, "%v", logged)
		assert.Equal(t, logged["Received Unsubscribe Resource request: "+uri], 1, "%v", logged)
	}
}

// With roots, this server works in them and not in the folder of its command line.
func TestEraFilesystemRoots(t *testing.T) {
	checkLeaks(t)
	dir, err := filepath.EvalSymlinks(t.TempDir())
	assert.NilError(t, err)
	root := filepath.Join(dir, "a root")
	assert.NilError(t, os.Mkdir(root, 0o700))
	var stderr eraStderr
	command := peerNode(t, "server-filesystem", dir)
	command.Stderr = &stderr
	s := new(eraSession)
	s.connect(t, command, &ClientOptions{Roots: func(context.Context) ([]Root, error) {
		return []Root{{URI: (&url.URL{Scheme: "file", Path: filepath.ToSlash(root)}).String()}}, nil
	}})
	assert.NilError(t, stderr.await(s.ctx, "Updated allowed directories from MCP roots"))
	assert.Equal(t, s.text("list_allowed_directories", ""), "Allowed directories:\n"+root)
	assert.Assert(t, is.Contains(s.failure("list_directory", fmt.Sprintf(`{"path":%q}`, dir)), "Access denied"))
}

// eraStderr is what a server says there.
type eraStderr struct {
	mu    sync.Mutex // guards the following
	text  bytes.Buffer
	wants string
	count int // of times that it is there
	there chan struct{}
}

func (w *eraStderr) Write(text []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text.Write(text)
	w.look()
	return len(text), nil
}

func (w *eraStderr) look() {
	if w.there != nil && bytes.Count(w.text.Bytes(), []byte(w.wants)) >= w.count {
		close(w.there)
		w.there = nil
	}
}

// await returns when a text is there.
func (w *eraStderr) await(ctx context.Context, text string) error { return w.awaitCount(ctx, text, 1) }

// awaitCount returns when it is there so many times.
func (w *eraStderr) awaitCount(ctx context.Context, text string, count int) error {
	there := make(chan struct{})
	w.mu.Lock()
	w.wants, w.count, w.there = text, count, there
	w.look()
	w.mu.Unlock()
	select {
	case <-there:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (w *eraStderr) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}
