package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

// These tests have every kind of message that a Client sends, in every revision, judged by the types of the official
// SDKs. testdata/peers/install.sh installs the judges.

// judgeLine is one message of a conversation, as the judges read it.
type judgeLine struct {
	Revision string          `json:"revision"`
	Sender   string          `json:"sender"` // client or server
	Message  json.RawMessage `json:"message"`
}

// judges have the verdict on each line: valid, or why not.
func judges(t *testing.T, lines []judgeLine) map[string][]string {
	t.Helper()
	requirePeers(t, "node_modules")
	requirePeers(t, "venv-modern")
	var text bytes.Buffer
	for _, line := range lines {
		encoded, err := json.Marshal(line)
		assert.NilError(t, err)
		text.Write(append(encoded, '\n'))
	}
	verdicts := make(map[string][]string)
	for _, judge := range [][]string{{"venv-modern/bin/python", "judge.py"}, {"node", "judge.mjs"}} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		dir, err := filepath.Abs(peerDir)
		assert.NilError(t, err)
		program := judge[0]
		if strings.Contains(program, "/") {
			program = filepath.Join(dir, program)
		}
		command := exec.CommandContext(ctx, program, filepath.Join(dir, judge[1]))
		command.Stdin = bytes.NewReader(text.Bytes())
		var stderr strings.Builder
		command.Stderr = &stderr
		output, err := command.Output()
		assert.NilError(t, err, stderr.String())
		verdicts[judge[1]] = strings.Split(strings.TrimSuffix(string(output), "\n"), "\n")
		assert.Assert(t, is.Len(verdicts[judge[1]], len(lines)))
	}
	return verdicts
}

func TestJudges(t *testing.T) {
	checkLeaks(t)
	var lines []judgeLine
	for _, revision := range Revisions() {
		recorded := judgeRecord(t, revision)
		judgeComplete(t, revision, recorded)
		lines = append(lines, recorded...)
	}
	for judge, verdicts := range judges(t, lines) {
		for i, verdict := range verdicts {
			if verdict != "valid" {
				t.Errorf("%s: %s, %s: %s\n%s", judge, lines[i].Revision, lines[i].Sender, lines[i].Message, verdict)
			}
		}
	}
}

// judgeComplete checks that every kind of message is among those recorded.
func judgeComplete(t *testing.T, revision string, lines []judgeLine) {
	t.Helper()
	want := []string{"completion/complete", "notifications/cancelled", "prompts/get", "prompts/list", "resources/list",
		"resources/read", "resources/templates/list", "tools/call", "tools/list"}
	if revision == statelessRevision {
		want = append(want, "server/discover", "subscriptions/listen")
	} else {
		want = append(want, "initialize", "logging/setLevel", "notifications/initialized", "ping", "resources/subscribe",
			"resources/unsubscribe", "result", "error")
	}
	slices.Sort(want)
	got := make(map[string]bool)
	for _, line := range lines {
		if line.Sender != "client" {
			continue
		}
		var message map[string]json.RawMessage
		assert.NilError(t, json.Unmarshal(line.Message, &message))
		for _, kind := range []string{"result", "error"} {
			if message[kind] != nil {
				got[kind] = true
			}
		}
		if method := message["method"]; method != nil {
			got[strings.Trim(string(method), `"`)] = true
		}
	}
	var kinds []string
	for kind := range got {
		kinds = append(kinds, kind)
	}
	slices.Sort(kinds)
	assert.DeepEqual(t, kinds, want)
}

// A judge that lets everything pass is none.
func TestJudgesRefuse(t *testing.T) {
	const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`
	call := func(params string) string {
		return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{` + params + `}}`
	}
	tests := []struct {
		revision, message string
		py, mjs           string // part of the verdict
	}{
		{"2025-11-25", call(`"name":"a","arguments":{"b":null}`), "valid", "valid"},
		{"2025-11-25", call(`"name":"a"`), "valid", "valid"},
		{"2025-11-25", call(`"name":"a","arguments":null`), "message.params.arguments", "expected record, received null"},
		{"2024-11-05", call(`"name":"a","arguments":null`), "message.params.arguments", "Expected object, received null"},
		{"2026-07-28", call(meta + `,"name":"a","arguments":null`), "message.params.arguments", "expected record, received null"},
		{"2025-11-25", call(`"arguments":{}`), "params.name: Field required", "params.name"},
		{"2025-11-25", call(`"name":"a","argument":{}`), "message.params.argument", "valid"},
		{"2025-11-25", call(`"name":"a","_meta":{"progressToken":{}}`), "params._meta.progressToken", "Invalid input"},
		{"2025-11-25", `{"jsonrpc":"2.0","id":null,"method":"ping"}`, "id.", `Unrecognized key: "id"`},
		{"2025-11-25", `{"id":1,"method":"ping"}`, "jsonrpc: Field required", "Invalid input"},
		{"2025-11-25", `{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{"uri":1}}`, "params.uri", "params.uri"},
		{"2025-11-25", `{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"loud"}}`, "params.level", "params.level"},
		{"2025-11-25", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{}}}`,
			"params.clientInfo: Field required", "params.clientInfo"},
		{"2025-11-25", `{"jsonrpc":"2.0","id":1,"method":"server/discover"}`, "a client of 2025-11-25 sends no server/discover", "no ClientRequest"},
		{"2025-11-25", `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":{}}}`, "params.requestId", "params.requestId"},
		{"2025-11-25", `{"jsonrpc":"2.0","id":77,"result":{}}`, "answers no request", "answers no request"},
		{"2026-07-28", call(meta + `,"name":"a"`), "valid", "valid"},
		{"2026-07-28", call(`"name":"a"`), "params._meta: Field required", "valid"},
		{"2026-07-28", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, "params: Field required", "valid"},
		{"2026-07-28", call(strings.Replace(meta, `Capabilities":{}`, `Capabilities":[]`, 1) + `,"name":"a"`), "clientCapabilities", "valid"},
		{"2026-07-28", call(meta + `,"name":"a","requestState":1`), "params.requestState", "valid"},
		{"2026-07-28", call(meta + `,"name":"a","inputResponses":{"a":{"action":"perhaps"}}`), "params.inputResponses", "valid"},
		{"2026-07-28", call(meta + `,"name":"a","inputResponses":{"a":{"action":"accept","content":{"b":{}}}}`), "params.inputResponses", "valid"},
		{"2026-07-28", `{"jsonrpc":"2.0","id":1,"method":"ping","params":{` + meta + `}}`, "a client of 2026-07-28 sends no ping", "valid"},
		{"2026-07-28", `{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{` + meta + `}}`,
			"params.notifications: Field required", "params.notifications"},
	}
	var lines []judgeLine
	for _, test := range tests {
		lines = append(lines, judgeLine{test.revision, "client", json.RawMessage(test.message)})
	}
	// The result of a request is judged by what was asked.
	for i, answer := range []struct{ method, params, result, py, mjs string }{
		{"roots/list", "{}", `{"roots":[]}`, "valid", "valid"},
		{"roots/list", "{}", `{"roots":null}`, "roots: ", "roots: "},
		{"sampling/createMessage", `{"messages":[],"maxTokens":1}`, `{"role":"assistant","content":{"type":"text","text":"a"}}`, "model: ", "model: "},
		{"sampling/createMessage", `{"messages":[],"maxTokens":1}`, `{"role":"assistant","model":"a","content":{"type":"text"}}`, "content.", "content"},
		{"elicitation/create", `{"message":"a","requestedSchema":{"type":"object","properties":{}}}`, `{"action":"accept","content":{"a":{}}}`, "content.a", "content.a"},
	} {
		lines = append(lines,
			judgeLine{"2025-11-25", "server", fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`, i, answer.method, answer.params)},
			judgeLine{"2025-11-25", "client", fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"result":%s}`, i, answer.result)})
		tests = append(tests, struct{ revision, message, py, mjs string }{py: "valid", mjs: "valid"},
			struct{ revision, message, py, mjs string }{py: answer.py, mjs: answer.mjs})
	}
	verdicts := judges(t, lines)
	for i, test := range tests {
		for judge, want := range map[string]string{"judge.py": test.py, "judge.mjs": test.mjs} {
			verdict := verdicts[judge][i]
			if !strings.Contains(verdict, want) || (verdict == "valid") != (want == "valid") {
				t.Errorf("%s: %s, %s\n%s, and not because of %s", judge, lines[i].Revision, lines[i].Message, verdict, want)
			}
		}
	}
}

// judgeRecord has a client do all it can, in one revision, and returns what was said.
func judgeRecord(t *testing.T, revision string) []judgeLine {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()

	// First, a client that offers nothing.
	first := newJudgeServer(t, revision)
	c, err := Connect(ctx, first, &ClientOptions{Protocol: revision})
	assert.NilError(t, err)
	_, err = c.CallTool(ctx, "plain", nil, nil)
	assert.NilError(t, err)
	if revision != statelessRevision {
		_, err = c.CallTool(ctx, "ask", nil, nil) // what it does not offer, it refuses
		assert.NilError(t, err)
	}
	assert.NilError(t, c.Close())

	server := newJudgeServer(t, revision)
	c, err = Connect(ctx, server, &ClientOptions{
		Info:     Implementation{Name: "client", Title: "A client", Version: "1"},
		Protocol: revision,
		Roots: func(context.Context) ([]Root, error) {
			if server.asked("empty") {
				return nil, nil
			}
			return []Root{{URI: "file:///a", Name: "A"}, {URI: "file:///b"}}, nil
		},
		Elicit: func(_ context.Context, r *ElicitRequest) (*ElicitResult, error) {
			switch {
			case server.asked("decline"):
				return &ElicitResult{Action: "decline"}, nil
			case server.asked("empty"):
				return &ElicitResult{Action: "cancel"}, nil
			case r.Mode == "url":
				return &ElicitResult{Action: "accept"}, nil
			}
			return &ElicitResult{Action: "accept", Content: map[string]any{"s": "é", "n": 1.5, "i": 3, "b": true, "m": []string{"x", "y"}}}, nil
		},
		Sample: func(_ context.Context, r *SampleRequest) (*SampleResult, error) {
			switch {
			case server.asked("decline"):
				return nil, errors.New("not today")
			case len(r.Tools) > 0:
				return &SampleResult{Role: "assistant", Model: "m", StopReason: "toolUse", Content: SampleContent{
					{Type: "text", Text: "I ask."},
					{Type: "tool_use", Raw: json.RawMessage(`{"type":"tool_use","id":"1","name":"a","input":{}}`)},
				}}, nil
			case server.asked("empty"):
				return &SampleResult{Role: "assistant", Model: "m", Content: SampleContent{{Type: "text"}}}, nil
			}
			return &SampleResult{Role: "assistant", Model: "m", StopReason: "endTurn",
				Content: SampleContent{{Type: "image", Data: []byte{1, 2}, MIMEType: "image/png"}}}, nil
		},
		Log: func(LogMessage) {},
	})
	assert.NilError(t, err)

	tools, err := c.ListTools(ctx)
	assert.NilError(t, err)
	assert.Assert(t, is.Len(tools, 2), "on two pages")
	resources, err := c.ListResources(ctx)
	assert.NilError(t, err)
	assert.Assert(t, is.Len(resources, 2))
	_, err = c.ListResourceTemplates(ctx)
	assert.NilError(t, err)
	_, err = c.ListPrompts(ctx)
	assert.NilError(t, err)
	_, err = c.ReadResource(ctx, "a://b/é")
	assert.NilError(t, err)
	_, err = c.GetPrompt(ctx, "a", nil)
	assert.NilError(t, err)
	_, err = c.GetPrompt(ctx, "a", map[string]string{"b": "c"})
	assert.NilError(t, err)
	_, err = c.CompletePrompt(ctx, "a", "b", "", nil)
	assert.NilError(t, err)
	var others map[string]string
	if revision >= "2025-06-18" {
		others = map[string]string{"d": "e"}
	}
	_, err = c.CompleteResource(ctx, "a://{b}", "b", "c", others)
	assert.NilError(t, err)

	for _, arguments := range []json.RawMessage{nil, json.RawMessage(`{"a":null,"b":[1,{}]}`)} {
		_, err = c.CallTool(ctx, "plain", arguments, nil)
		assert.NilError(t, err)
	}
	for _, tool := range []string{"ask", "decline", "empty"} {
		_, err = c.CallTool(ctx, tool, nil, nil)
		if tool == "decline" && revision == statelessRevision {
			assert.ErrorContains(t, err, "not today")
		} else {
			assert.NilError(t, err)
		}
	}
	hung, hang := context.WithCancel(ctx)
	_, err = c.CallTool(hung, "hang", nil, func(Progress) { hang() })
	assert.ErrorIs(t, err, context.Canceled)

	listening, end := context.WithCancel(ctx)
	err = c.Listen(listening, Subscription{Tools: true, Prompts: true, Resources: true, URIs: []string{"a://b", "a://c"}}, func(change Change) {
		if change.URI == "a://c" {
			end()
		}
	})
	assert.ErrorIs(t, err, context.Canceled)
	if revision != statelessRevision {
		assert.NilError(t, c.Ping(ctx))
	}
	assert.NilError(t, c.Close())
	return append(first.lines, server.lines...)
}

// judgeServer is a transport to a server that has an answer to everything, and keeps all that is said.
type judgeServer struct {
	t        *testing.T
	revision string
	out      chan []byte // what the client is to read; closed by Close

	mu     sync.Mutex // guards the following
	lines  []judgeLine
	closed bool
	tool   string          // that is being called
	id     json.RawMessage // of that call
	wanted int             // answers of the client that the call waits for
}

func newJudgeServer(t *testing.T, revision string) *judgeServer {
	return &judgeServer{t: t, revision: revision, out: make(chan []byte, 100)}
}

// asked says whether it is a tool of that name that asks.
func (s *judgeServer) asked(tool string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tool == tool
}

func (s *judgeServer) Read() ([]byte, error) {
	message, ok := <-s.out
	if !ok {
		return nil, fmt.Errorf("closed: %w", io.EOF)
	}
	return message, nil
}

func (s *judgeServer) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	close(s.out)
	return nil
}

func (s *judgeServer) Write(_ context.Context, message []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, judgeLine{s.revision, "client", message})
	var m struct {
		ID     json.RawMessage
		Method string
		Params struct {
			Name           string
			Cursor         string
			InputResponses json.RawMessage
			Meta           struct{ ProgressToken json.RawMessage } `json:"_meta"`
		}
	}
	if err := json.Unmarshal(message, &m); err != nil {
		return err
	}
	fresh := ""
	if s.revision == statelessRevision && judgeFresh[m.Method] {
		fresh = `,"ttlMs":0,"cacheScope":"private"`
	}
	switch {
	case m.Method == "":
		if s.wanted--; s.wanted == 0 {
			s.result(s.id, judgeResults["tools/call"])
		}
	case m.ID == nil:
	case m.Method == "initialize":
		s.result(m.ID, fmt.Sprintf(`"protocolVersion":%q,"capabilities":{"tools":{"listChanged":false},"logging":{},"resources":{"subscribe":true}},
			"serverInfo":{"name":"server","version":"1"}`, s.revision))
	case m.Method == "tools/call" && m.Params.InputResponses != nil:
		s.result(m.ID, judgeResults[m.Method])
	case m.Method == "tools/call":
		s.id, s.tool = m.ID, m.Params.Name
		s.call(m.Params.Meta.ProgressToken)
	case m.Method == "subscriptions/listen":
		meta := fmt.Sprintf(`"_meta":{"io.modelcontextprotocol/subscriptionId":%s}`, m.ID)
		s.notify("notifications/subscriptions/acknowledged", `"notifications":{"toolsListChanged":true},`+meta)
		s.notify("notifications/tools/list_changed", meta)
		s.notify("notifications/resources/updated", `"uri":"a://c",`+meta)
	case m.Method == "resources/subscribe":
		s.result(m.ID, "")
		if strings.Contains(string(message), "a://c") {
			s.notify("notifications/resources/updated", `"uri":"a://c"`)
		}
	case m.Params.Cursor == "" && (m.Method == "tools/list" || m.Method == "resources/list"):
		s.result(m.ID, judgeResults[m.Method]+`,"nextCursor":"2"`+fresh)
	default:
		result, ok := judgeResults[m.Method]
		assert.Check(s.t, ok, m.Method)
		s.result(m.ID, result+fresh)
	}
	return nil
}

// judgeResults are the members of a result, by method.
var judgeResults = map[string]string{
	"server/discover":          `"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}`,
	"tools/list":               `"tools":[{"name":"a","inputSchema":{"type":"object"}}]`,
	"tools/call":               `"content":[]`,
	"resources/list":           `"resources":[{"uri":"a://b","name":"b"}]`,
	"resources/templates/list": `"resourceTemplates":[]`,
	"resources/read":           `"contents":[{"uri":"a://b","text":"c"}]`,
	"resources/unsubscribe":    ``,
	"prompts/list":             `"prompts":[]`,
	"prompts/get":              `"messages":[]`,
	"completion/complete":      `"completion":{"values":[]}`,
	"logging/setLevel":         ``,
	"ping":                     ``,
}

// judgeFresh are the methods whose results say how long they hold, in the stateless era.
var judgeFresh = map[string]bool{"server/discover": true, "tools/list": true, "resources/list": true, "resources/templates/list": true,
	"resources/read": true, "prompts/list": true}

// call begins a tool. The caller holds s.mu, as do those of the next three.
func (s *judgeServer) call(token json.RawMessage) {
	questions := []string{
		`"method":"roots/list"`,
		`"method":"sampling/createMessage","params":{"messages":[{"role":"user","content":{"type":"text","text":"q"}}],"maxTokens":9}`,
	}
	if s.revision >= "2025-06-18" {
		questions = append(questions, `"method":"elicitation/create","params":{"message":"q","requestedSchema":{"type":"object","properties":{"s":{"type":"string"},"n":{"type":"number"},"i":{"type":"integer"},"b":{"type":"boolean"},"m":{"type":"array","items":{"type":"string","enum":["x","y"]}}}}}`)
	}
	if s.revision >= "2025-11-25" {
		id := ""
		if s.revision != statelessRevision {
			id = `,"elicitationId":"1"`
		}
		questions = append(questions,
			`"method":"elicitation/create","params":{"mode":"url","message":"q","url":"https://example.com"`+id+`}`,
			`"method":"sampling/createMessage","params":{"messages":[],"maxTokens":9,"tools":[{"name":"a","inputSchema":{"type":"object"}}]}`)
	}
	if s.tool == "empty" {
		questions = questions[:min(3, len(questions))]
	}
	switch {
	case s.tool == "plain":
		s.result(s.id, judgeResults["tools/call"])
	case s.tool == "hang":
		s.notify("notifications/progress", fmt.Sprintf(`"progressToken":%s,"progress":1`, token))
	case s.revision == statelessRevision:
		var requests []string
		for i, question := range questions {
			requests = append(requests, fmt.Sprintf(`"q%d":{%s}`, i, question))
		}
		s.say(fmt.Sprintf(`"id":%s,"result":{"resultType":"input_required","requestState":"\u00e9","inputRequests":{%s}}`, s.id, strings.Join(requests, ",")))
	default:
		s.wanted = len(questions) + 1
		s.say(`"id":"a ping","method":"ping"`)
		for i, question := range questions {
			s.say(fmt.Sprintf(`"id":%d,%s`, i, question))
		}
	}
}

func (s *judgeServer) result(id json.RawMessage, members string) {
	if s.revision == statelessRevision {
		members += `,"resultType":"complete"`
	}
	s.say(fmt.Sprintf(`"id":%s,"result":{%s}`, id, strings.TrimPrefix(members, ",")))
}

func (s *judgeServer) notify(method, params string) {
	s.say(fmt.Sprintf(`"method":%q,"params":{%s}`, method, params))
}

func (s *judgeServer) say(members string) {
	message := []byte(`{"jsonrpc":"2.0",` + members + `}`)
	s.lines = append(s.lines, judgeLine{s.revision, "server", message})
	if !s.closed {
		s.out <- message
	}
}
