package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

// An article about hosts shows one with a ~/.mcp.json and mistral-small on Ollama, and says what it does:
//
//  1. The question goes to the model with the list of tools.
//  2. If the model answers, that is the end.
//  3. If it asks for a tool, the host calls the MCP server.
//  4. The result is added to the history, and it goes on at 1.
//
// That host is no longer developed. These tests do with this one what the article does, its servers as they are there; the
// model is one that has its words from the test.

// successorConfig is the article's file, but for the folder that it gives to the second server. There is no uvx here: the
// first server is one that cannot be started.
const successorConfig = `{
  "mcpServers": {
    "sqlite": {
      "command": "uvx",
      "args": [
        "mcp-server-sqlite",
        "--db-path",
        "/tmp/foo.db"
      ]
    },
    "filesystem": {
      "command": "npx",
      "args": [
        "-y",
        "@modelcontextprotocol/server-filesystem",
        "FOLDER"
      ]
    }
  }
}`

// successorConfigLater is the same in the form that later versions of the article's host have.
const successorConfigLater = `{
  "mcpServers": {
    "sqlite": {
      "type": "local",
      "command": ["uvx", "mcp-server-sqlite", "--db-path", "/tmp/foo.db"]
    },
    "filesystem": {
      "type": "local",
      "command": ["npx", "-y", "@modelcontextprotocol/server-filesystem", "${env://NOTES_DIR}"],
      "environment": {
        "npm_config_cache": "${env://NPM_CACHE:-/tmp}"
      },
      "allowedTools": ["list_directory", "read_text_file", "write_file"]
    }
  }
}`

// successorScript is a question that takes three calls: each turn says something that only the result before it can tell.
var successorScript = []successorTurn{
	{tool: "filesystem__list_directory", arguments: `{"path":"FOLDER"}`},
	{tool: "filesystem__write_file", arguments: `{"content":"RESULT","path":"FOLDER/list.txt"}`},
	{tool: "filesystem__read_text_file", arguments: `{"path":"FOLDER/shopping.txt"}`},
	{text: "Buy RESULT!"},
}

// What the model server sees of it, by the article's steps, and what the user sees.
const (
	successorSteps = `1 user: What am I to buy?
3 filesystem__list_directory {"path":"FOLDER"}
4 [FILE] shopping.txt
3 filesystem__write_file {"content":"[FILE] shopping.txt","path":"FOLDER/list.txt"}
4 Successfully wrote to FOLDER/list.txt
3 filesystem__read_text_file {"path":"FOLDER/shopping.txt"}
4 milk and bread
2 Buy milk and bread!
`
	successorBroken = `server sqlite: start server uvx mcp-server-sqlite --db-path /tmp/foo.db: exec: "uvx": executable file not found in $PATH
`
	successorCalls = `> filesystem__list_directory {"path":"FOLDER"}
< filesystem__list_directory TIME, SIZE
> filesystem__write_file {"content":"[FILE] shopping.txt","path":"FOLDER/list.txt"}
< filesystem__write_file TIME, SIZE
> filesystem__read_text_file {"path":"FOLDER/shopping.txt"}
< filesystem__read_text_file TIME, SIZE
`
)

func TestSuccessor(t *testing.T) {
	for _, test := range []struct{ what, config string }{{"article", successorConfig}, {"later", successorConfigLater}} {
		t.Run(test.what, func(t *testing.T) {
			checkLeaks(t)
			s := newSuccessor(t, test.config, successorScript...)
			stdout, stderr := s.run("What am I to buy?")
			assert.Equal(t, s.model.transcript(), successorSteps)
			assert.Equal(t, stdout, "Buy milk and bread!\n")
			assert.Equal(t, stderr, successorBroken+successorCalls+"mistral-small: 4 turns, 3 calls, 440 tokens (400 in, 40 out)\n")
			assert.Equal(t, programRead(t, filepath.Join(s.folder, "list.txt")), "[FILE] shopping.txt")

			allowed := []string{"filesystem__list_directory", "filesystem__read_text_file", "filesystem__write_file"}
			if test.config == successorConfigLater {
				assert.DeepEqual(t, s.model.tools, allowed)
				logs, err := os.ReadDir(filepath.Join(s.cache, "_logs")) // of npx
				assert.NilError(t, err)
				assert.Check(t, len(logs) > 0)
				return
			}
			assert.Check(t, len(s.model.tools) > len(allowed))
			for _, name := range allowed {
				assert.Check(t, is.Contains(s.model.tools, name))
			}
			for _, name := range s.model.tools {
				assert.Check(t, strings.HasPrefix(name, "filesystem__"), name)
			}
		})
	}
}

// A conversation is continued by another run of the program: the model has all that was said, and what the tools gave.
func TestSuccessorSession(t *testing.T) {
	checkLeaks(t)
	s := newSuccessor(t, successorConfig, append(slices.Clip(successorScript), successorTurn{text: "Two things."})...)
	session := filepath.Join(t.TempDir(), "session.json")
	stdout, _ := s.run("-session", session, "What am I to buy?")
	assert.Equal(t, stdout, "Buy milk and bread!\n")
	stdout, stderr := s.run("-session", session, "How many things is that?")
	assert.Equal(t, s.model.transcript(), successorSteps+"1 user: How many things is that?\n2 Two things.\n")
	assert.Equal(t, stdout, "Two things.\n")
	assert.Equal(t, stderr, successorBroken+"mistral-small: 1 turn, 0 calls, 110 tokens (100 in, 10 out)\n")
}

// successor is the article's user.
type successor struct {
	t      *testing.T
	config string
	folder string // of the filesystem server
	cache  string // of npm, where the configuration says so
	path   string // without uvx
	model  *successorModel
}

func newSuccessor(t *testing.T, config string, script ...successorTurn) *successor {
	t.Helper()
	requirePeers(t, "node_modules")
	folder, err := filepath.EvalSymlinks(t.TempDir()) // as the server names it
	assert.NilError(t, err)
	programWrite(t, filepath.Join(folder, "shopping.txt"), "milk and bread")
	return &successor{
		t: t, config: strings.ReplaceAll(config, "FOLDER", folder), folder: folder, cache: t.TempDir(), path: successorPath(t),
		model: newSuccessorModel(t, folder, script),
	}
}

// variables are the environment: the model is on another port than Ollama's own, and the key is not for it.
func (s *successor) variables() []string {
	return []string{
		"MISTRAL_BASE_URL=" + s.model.url, "MISTRAL_API_KEY=" + programKey, "MCP_APPROVE=always",
		"PATH=" + s.path, "NOTES_DIR=" + s.folder, "NPM_CACHE=" + s.cache,
	}
}

// settle gives the program the article's file in its home, and the folder in which npx finds the server installed. That npm
// is offline makes npx fail where it would download.
func (s *successor) settle(p *programRun) {
	s.t.Helper()
	var err error
	p.command.Dir, err = filepath.Abs(peerDir)
	assert.NilError(s.t, err)
	programWrite(s.t, filepath.Join(p.home, ".mcp.json"), s.config)
	programWrite(s.t, filepath.Join(p.home, ".npmrc"), "offline=true\nupdate-notifier=false\n")
}

// run runs the program to its end, which must be a good one.
func (s *successor) run(args ...string) (stdout, stderr string) {
	s.t.Helper()
	p := newProgram(s.t, s.variables(), append([]string{"-m", "ollama:mistral-small"}, args...)...)
	s.settle(p)
	p.start()
	status := p.end()
	assert.Equal(s.t, status, 0, p.stderr.String())
	return s.steady(p.stdout.String()), s.steady(p.stderr.String())
}

func (s *successor) steady(text string) string {
	text = programSteady(strings.ReplaceAll(text, s.folder, "FOLDER"))
	return regexp.MustCompile(`\b\d+ bytes`).ReplaceAllString(text, "SIZE")
}

// successorPath is a PATH on which there are node, npx and sh, but not uvx.
func successorPath(t *testing.T) string {
	t.Helper()
	bin := t.TempDir()
	for _, name := range []string{"node", "npx", "sh"} { // one of them may be where uvx is
		path, err := exec.LookPath(name)
		assert.NilError(t, err)
		assert.NilError(t, os.Symlink(path, filepath.Join(bin, name)))
	}
	folders := slices.DeleteFunc(filepath.SplitList(os.Getenv("PATH")), func(folder string) bool {
		_, err := os.Stat(filepath.Join(folder, "uvx"))
		return err == nil
	})
	return strings.Join(append([]string{bin}, folders...), string(filepath.ListSeparator))
}

// successorTurn is what the model says: it asks for a tool, or answers. In both FOLDER stands for the folder, and RESULT for
// what the last tool gave.
type successorTurn struct{ tool, arguments, text string }

// successorModel is a model server that speaks Ollama's dialect (its openai package and middleware), and watches over the
// article's four steps.
type successorModel struct {
	t      testing.TB
	url    string
	folder string

	mu      sync.Mutex // guards the following
	script  []successorTurn
	history []string // what the next request begins with
	id      string   // of the call that it answers; "" for none
	tools   []string // names, in order; the same in every request
	steps   strings.Builder
}

// successorRequest is what of a request Ollama understands. Content may be a list too, but then Ollama loses the
// tool_call_id beside it.
type successorRequest struct {
	Model    string
	Messages []successorMessage
	Tools    []struct {
		Type     string
		Function struct {
			Name       string
			Parameters struct{ Type string }
		}
	}
	Stream        bool
	StreamOptions struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
}

type successorMessage struct {
	Role       string          `json:"role"`
	Content    string          `json:"content"`
	ToolCalls  []successorCall `json:"tool_calls,omitempty"`
	ToolCallID string          `json:"tool_call_id,omitempty"`
}

type successorCall struct {
	ID       string `json:"id"`
	Index    int    `json:"index"`
	Type     string `json:"type"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

func newSuccessorModel(t testing.TB, folder string, script []successorTurn) *successorModel {
	m := &successorModel{t: t, folder: folder, script: script}
	server := httptest.NewServer(m)
	t.Cleanup(server.Close)
	m.url = server.URL + "/v1"
	return m
}

// transcript is what happened, each line with the number of its step. All of the script must have been said.
func (m *successorModel) transcript() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	assert.Check(m.t, is.Len(m.script, 0))
	return strings.ReplaceAll(m.steps.String(), m.folder, "FOLDER")
}

func (m *successorModel) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var request successorRequest
	answer, err := successorMessage{}, json.NewDecoder(r.Body).Decode(&request)
	switch {
	case err != nil:
	case r.Method != http.MethodPost || r.URL.Path != "/v1/chat/completions":
		err = fmt.Errorf("404 page not found: %s %s", r.Method, r.URL.Path)
	case r.Header.Get("Authorization") != "":
		err = fmt.Errorf("a key, and there is none")
	case request.Model != "mistral-small":
		err = fmt.Errorf("model %q not found, try pulling it first", request.Model)
	default:
		answer, err = m.step(&request)
	}
	if err != nil {
		m.t.Errorf("model server: %v", err)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprintf(w, `{"error":{"message":%s,"type":"invalid_request_error","param":null,"code":null}}`+"\n", modelJSON(err.Error()))
		return
	}
	if request.Stream {
		successorStream(w, answer, request.StreamOptions.IncludeUsage)
	} else {
		successorWhole(w, answer)
	}
}

// step checks a request against the article's step 1 or 4, and takes step 2 or 3. It needs the lock.
func (m *successorModel) step(r *successorRequest) (answer successorMessage, err error) {
	var tools []string
	for _, tool := range r.Tools {
		if tool.Type != "function" || tool.Function.Parameters.Type != "object" {
			return answer, fmt.Errorf("a tool is no function of an object: %+v", tool)
		}
		tools = append(tools, tool.Function.Name)
	}
	slices.Sort(tools)
	if m.tools == nil {
		m.tools = tools
	}
	if len(tools) == 0 || !slices.Equal(tools, m.tools) {
		return answer, fmt.Errorf("the tools are %q, and were %q", tools, m.tools)
	}
	if len(r.Messages) < 2 || r.Messages[0].Role != "system" {
		return answer, fmt.Errorf("no system prompt, or nothing but that: %+v", r.Messages)
	}
	history := successorHistory(r.Messages[1:])
	if len(history) != len(m.history)+1 || !slices.Equal(history[:len(m.history)], m.history) {
		return answer, fmt.Errorf("the history is\n%s\nand not one message more than\n%s", strings.Join(history, "\n"), strings.Join(m.history, "\n"))
	}
	last := r.Messages[len(r.Messages)-1]
	switch {
	case last.Role == "user" && m.id == "":
		fmt.Fprintf(&m.steps, "1 user: %s\n", last.Content)
	case last.Role == "tool" && m.id != "" && last.ToolCallID == m.id:
		fmt.Fprintf(&m.steps, "4 %s\n", last.Content)
	default:
		return answer, fmt.Errorf("after call %q comes %+v", m.id, last)
	}
	if len(m.script) == 0 {
		return answer, fmt.Errorf("the script has no reply to %+v", last)
	}
	turn := m.script[0]
	m.script = m.script[1:]
	fill := strings.NewReplacer("FOLDER", m.folder, "RESULT", last.Content).Replace
	answer = successorMessage{Role: "assistant", Content: fill(turn.text)}
	if m.id = ""; turn.tool == "" {
		fmt.Fprintf(&m.steps, "2 %s\n", answer.Content)
	} else {
		m.id = fmt.Sprintf("call_%08d", len(m.history))
		call := successorCall{ID: m.id, Type: "function"}
		call.Function.Name, call.Function.Arguments = turn.tool, fill(turn.arguments)
		answer.ToolCalls = []successorCall{call}
		fmt.Fprintf(&m.steps, "3 %s %s\n", call.Function.Name, call.Function.Arguments)
	}
	m.history = successorHistory(append(r.Messages[1:], answer))
	return answer, nil
}

// successorHistory is the messages in a form that can be compared: calls have numbers in the place of their ids, which a
// session that is read again may have changed.
func successorHistory(messages []successorMessage) (history []string) {
	ids := []string{""}
	for _, m := range messages {
		text := fmt.Sprintf("%s: %s", m.Role, m.Content)
		for _, call := range m.ToolCalls {
			ids = append(ids, call.ID)
			text += fmt.Sprintf("call %d: %s %s", len(ids)-1, call.Function.Name, call.Function.Arguments)
		}
		if m.Role == "tool" {
			text += fmt.Sprintf(" (of call %d)", slices.Index(ids, m.ToolCallID))
		}
		history = append(history, text)
	}
	return history
}

// successorEnvelope is what all objects of an answer have.
func successorEnvelope(object string, choices ...any) map[string]any {
	return map[string]any{
		"id": "chatcmpl-531", "object": object, "created": 1747805667, "model": "mistral-small", "system_fingerprint": "fp_ollama",
		"choices": append([]any{}, choices...),
	}
}

// successorUsage is that of every request.
func successorUsage() Usage { return Usage{PromptTokens: 100, CompletionTokens: 10, TotalTokens: 110} }

func successorFinish(m successorMessage) string {
	if len(m.ToolCalls) > 0 {
		return "tool_calls"
	}
	return "stop"
}

func successorWhole(w http.ResponseWriter, m successorMessage) {
	whole := successorEnvelope("chat.completion", map[string]any{"index": 0, "message": m, "finish_reason": successorFinish(m)})
	whole["usage"] = successorUsage()
	w.Header().Set("Content-Type", "application/json")
	w.Write(append(modelJSON(whole), '\n'))
}

// successorStream streams a text word by word, and a call in one piece. The reason for the end has a chunk of its own, and
// so has the usage, which is sent only where it was asked for.
func successorStream(w http.ResponseWriter, m successorMessage, usage bool) {
	w.Header().Set("Content-Type", "text/event-stream")
	event := func(data []byte) {
		fmt.Fprintf(w, "data: %s\n\n", data)
		http.NewResponseController(w).Flush()
	}
	chunk := func(delta successorMessage, finish any) {
		event(modelJSON(successorEnvelope("chat.completion.chunk", map[string]any{"index": 0, "delta": delta, "finish_reason": finish})))
	}
	if len(m.ToolCalls) > 0 {
		chunk(m, nil)
	}
	for word := range strings.SplitAfterSeq(m.Content, " ") {
		if word != "" {
			chunk(successorMessage{Role: "assistant", Content: word}, nil)
		}
	}
	chunk(successorMessage{Role: "assistant"}, successorFinish(m))
	if usage {
		last := successorEnvelope("chat.completion.chunk")
		last["usage"] = successorUsage()
		event(modelJSON(last))
	}
	event([]byte("[DONE]"))
}
