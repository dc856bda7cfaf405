package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

// chatOf is a chat in a window, with a model that has these replies, and a session in a file.
func chatOf(t *testing.T, replies ...modelReply) (*chat, *modelServer, *viewBuffer) {
	model := newModelServer(t, replies...)
	model.Models = `{"data":[{"id":"mistral-test"}]}`
	s, out := viewScreen(80, true)
	p := assemble()
	p.settings.model = modelSettings{baseURL: model.URL, name: "mistral-test"}
	p.output.screen = s
	p.servers.host = NewHost(nil, nil)
	kept := &keptSession{session: new(Session), isNamed: true, unlock: func() {},
		path: filepath.Join(t.TempDir(), "session.json")}
	return p.conversation.newChat(t.Context(), kept), model, out
}

// exchangesOf is a history of exchanges: a question, and an answer of so many bytes, from a tool if its number is odd.
func exchangesOf(sizes ...int) (history []ChatMessage) {
	for i, size := range sizes {
		text := strings.Repeat("herons ", size/7)
		history = append(history, ChatMessage{Role: "user", Content: TextContent(strings.Repeat("?", i+1))})
		if i%2 == 1 {
			call := modelCall("call00001", "find", `{"a":1}`)
			history = append(history,
				ChatMessage{Role: "assistant", Content: TextContent(""), ToolCalls: []ToolCall{call}},
				ChatMessage{Role: "tool", ToolCallID: "call00001", Name: "find", Content: TextContent(text)})
			text = "That."
		}
		history = append(history, ChatMessage{Role: "assistant", Content: TextContent(text)})
	}
	return history
}

// The model's summary takes the place of the oldest turns. What is left can be sent on, and is kept; a second summary
// has the first one in it.
func TestCompact(t *testing.T) {
	for _, test := range []struct {
		sizes []int
		kept  int // messages
	}{
		{[]int{2000, 100, 100}, 6},
		{[]int{2000, 2000, 2000, 2000, 2000}, 6},
		{[]int{2000, 2000, 2000}, 2}, // two of them are more than half
		{[]int{100, 2000}, 0},        // there is only one that is worth it
		{[]int{2000}, 0},
	} {
		c, model, out := chatOf(t,
			modelText("\nHerons, all of them.\n"), modelText("Yes."), modelText("Cranes. "), modelText("No."))
		before := exchangesOf(test.sizes...)
		c.agent.History = slices.Clone(before)
		assert.NilError(t, c.compact(t.Context(), ""))
		after := c.agent.History
		assert.Equal(t, len(after), 2+test.kept, "%v", test.sizes)
		assert.Equal(t, after[1].Content.Text(), "Herons, all of them.")
		assert.DeepEqual(t, after[2:], before[len(before)-test.kept:])
		assert.Check(t, is.Contains(out.takes(), "Herons, all of them.\n(a summary of about 5 tokens replaces "))
		saved, err := LoadSession(c.kept.path)
		assert.NilError(t, err)
		assert.DeepEqual(t, saved.History, after)
		assert.Equal(t, saved.Usage.TotalTokens, 15)
		asked := model.Requests()[0]
		assert.Equal(t, len(asked.Messages), 2)
		assert.Equal(t, len(asked.Tools), 0)
		assert.Check(t, strings.HasPrefix(asked.Last(), "[user] ?\n[assistant] "))

		answer, err := c.agent.Chat(t.Context(), "Are you sure?")
		assert.NilError(t, err)
		assert.Equal(t, answer, "Yes.")
		c.agent.History = append(c.agent.History, exchangesOf(2000, 100)...)
		assert.NilError(t, c.compact(t.Context(), ""))
		assert.Check(t, is.Contains(model.Requests()[2].Last(), "Herons, all of them."))
		assert.Equal(t, c.agent.History[1].Content.Text(), "Cranes.")
		_, err = c.agent.Chat(t.Context(), "Are you sure?")
		assert.NilError(t, err)
	}
}

// A summary that fails, or is not whole, changes nothing; nor is there one of next to nothing.
func TestCompactFails(t *testing.T) {
	interrupted, interrupt := context.WithCancelCause(t.Context())
	hangUp := func(*modelRequest) modelReply { interrupt(ErrCancelled); return modelHangUp{} }
	for _, test := range []struct {
		ctx   context.Context
		reply modelReply
		want  string
	}{
		{t.Context(), modelUnauthorized(), "the conversation stays as it was: .*401 .*check the API key"},
		{t.Context(), modelAnswer{Content: "Her", Finish: "length"}, "cut off"},
		{t.Context(), modelText(" "), "no answer"},
		{interrupted, modelFunc(hangUp), "cancelled"},
	} {
		c, _, _ := chatOf(t, test.reply, modelText(" "))
		before := exchangesOf(2000, 2000)
		c.agent.History = slices.Clone(before)
		assert.Check(t, is.Regexp("(?s)"+test.want, c.compact(test.ctx, "").Error()))
		assert.DeepEqual(t, c.agent.History, before)
		_, err := LoadSession(c.kept.path)
		assert.ErrorContains(t, err, "no such file")
	}
	c, _, _ := chatOf(t)
	c.agent.History = exchangesOf(100)
	assert.ErrorContains(t, c.compact(t.Context(), ""), "too short to compact: the older half has about 25 tokens")
	c.model.settings.baseURL = "" // the stand-in
	assert.ErrorContains(t, c.compact(t.Context(), ""), "cannot write a summary")
}

// What does not fit the model is asked about in part: less of each message, and of all, until the API takes it.
func TestCompactTooLong(t *testing.T) {
	var sizes []int
	takes := func(limit int) modelReply {
		return modelFunc(func(r *modelRequest) modelReply {
			sizes = append(sizes, len(r.Last()))
			if len(r.Last()) > limit {
				return modelContextTooLong()
			}
			return modelText("Herons.")
		})
	}
	c, model, _ := chatOf(t)
	model.Rest = takes(100_000)
	c.agent.History = exchangesOf(300_000, 300_000, 500_000, 100)
	assert.NilError(t, c.compact(t.Context(), ""))
	assert.Equal(t, len(sizes), 2, "%v", sizes)
	last := model.Requests()[1].Last()
	assert.Check(t, is.Contains(last, "bytes left out"))
	assert.Check(t, strings.Contains(last, "[user] ?\n") && strings.Contains(last, "[call of find] {\"a\":1}\n"))

	sizes, model.Rest = nil, takes(0)
	c.agent.History = exchangesOf(300_000)
	assert.ErrorContains(t, c.compact(t.Context(), ""), "maximum context length")
	assert.Check(t, len(sizes) < 10 && sizes[len(sizes)-1] <= minTranscript+100, "%v", sizes)
}

// A conversation that nearly fills the model's context is told of. The summary is asked for with what fits.
func TestCompactOffered(t *testing.T) {
	answer := modelText("Yes.")
	answer.NoUsage = true
	c, model, out := chatOf(t, answer)
	model.Models = `{"data":[{"id":"mistral-test","meta":{"n_ctx":8000}}]}`
	c.servers.host = hostOf(t, newHostPeer("web", "a"))
	c.agent.History = exchangesOf(28_000)
	assert.NilError(t, c.send(t.Context(), "Sure?", nil))
	assert.Check(t, is.Contains(out.takes(), "(the conversation takes about 7002 of the model's 8000 tokens: /compact "))
	assert.NilError(t, c.showUsage(t.Context(), ""))
	assert.Check(t, is.Contains(out.takes(), "last question: tokens not reported\n"))
	answer.NoUsage = false
	for used, offered := range map[int]bool{7000: true, 6000: false} {
		answer.Usage.TotalTokens = used
		c, model, out := chatOf(t, answer, modelText("Herons."))
		model.Models = `{"data":[{"id":"mistral-test","max_context_length":8000}]}`
		c.servers.host = hostOf(t, newHostPeer("web", "a"))
		assert.NilError(t, c.send(t.Context(), "Sure?", nil))
		offer := strings.Contains(out.takes(), "(the conversation takes about 7000 of the model's 8000 tokens: /compact ")
		assert.Check(t, is.Equal(offer, offered))
		c.agent.History = exchangesOf(100_000)
		assert.NilError(t, c.compact(t.Context(), ""))
		size := len(model.Requests()[1].Last())
		assert.Check(t, 3000 < size && size < 16000, "%d bytes", size)
	}
}

// The line below an answer says what is known, and is shorter in a narrow window.
func TestSummary(t *testing.T) {
	calls := make([]callReport, 2)
	usage := &Usage{TotalTokens: 1285}
	for _, test := range []struct {
		report      report
		window      int
		wide, small string
	}{
		{report{Usage: usage, context: 1285, Calls: calls, took: 3249 * time.Millisecond}, 32000,
			"1285 tokens · 4% of the context · 2 tool calls · 3.2s", "1285 tokens · 4% full · 2 calls · 3.2s"},
		{report{Usage: usage, context: 1285, Calls: calls[:1], took: 62*time.Second + 34*time.Millisecond}, 0,
			"1285 tokens · 1 tool call · 1m2s", "1285 tokens · 1 tool call · 1m2s"},
		{report{Usage: usage, context: 1285, took: 34 * time.Millisecond}, 256_000,
			"1285 tokens · <1% of the context · 34ms", "1285 tokens · <1% of the context · 34ms"},
		{report{Calls: calls, took: time.Second}, 32000, "2 tool calls · 1s", "2 tool calls · 1s"},
		{report{took: 34499 * time.Microsecond}, 0, "34ms", "34ms"},
		{report{Usage: &Usage{TotalTokens: 1_234_567}, context: 200_000, Calls: slices.Repeat(calls, 10), took: time.Hour},
			200_000, "1234567 tokens · 100% of the context · 20 tool calls · 1h0m0s",
			"1234567 tokens · 100% full · 20 calls · 1h0m0s"},
	} {
		assert.Check(t, is.Equal(test.report.summary(80, test.window), test.wide))
		assert.Check(t, is.Equal(test.report.summary(40, test.window), test.small))
	}
}

// modelAfter is a model that takes a while for each answer.
type modelAfter struct {
	wait    time.Duration
	answers []ChatResponse
}

func (m *modelAfter) Complete(context.Context, *ChatRequest, func(string)) (*ChatResponse, error) {
	time.Sleep(m.wait)
	answer := m.answers[0]
	m.answers = m.answers[1:]
	return &answer, nil
}

// The line below an answer is about this question alone: the tokens of its requests, the share of its last one, its
// calls, and the time without what the user was asked. There is none with -q. A question that failed has a cost, too.
func TestChatSummary(t *testing.T) {
	usage := func(in, out int) Usage { return Usage{in, out, in + out} }
	answer := ChatResponse{FinishReason: "stop", Usage: usage(60, 5),
		Message: ChatMessage{Role: "assistant", Content: TextContent("Yes.")}}
	calls := ChatResponse{FinishReason: "tool_calls", Usage: usage(30, 5),
		Message: ChatMessage{Role: "assistant", ToolCalls: []ToolCall{modelCall("call00001", "a", `{}`)}}}
	cutOff := answer
	cutOff.FinishReason = "length"
	c, _, _ := chatOf(t)
	c.model.lists.Store(c.model.settings.baseURL, []ModelInfo{{ID: "mistral-test", Context: 1000}})
	synctest.Test(t, func(t *testing.T) {
		s, out := viewScreen(80, false)
		terminal := NewTerminal(nil, s)
		terminal.hasUser = true
		terminal.start.Do(func() {}) // nothing is read
		isAsked := 0
		out.asked = func(text string) {
			if strings.Contains(text, `Call "a"`) {
				isAsked++
				time.AfterFunc(time.Minute, func() { terminal.typed <- []string{"y"} })
			}
		}
		c.output.screen, c.agents.output.screen, c.view.Screen = s, s, s
		c.terminal, c.agents.approver.terminal = terminal, terminal
		c.servers.host = hostOf(t, newHostPeer("web", "a"))
		defer c.servers.host.Close()
		c.agent, c.report = c.agents.newAgent(c.view, c.kept)
		c.agent.Model = &modelAfter{2 * time.Second, []ChatResponse{calls, calls, answer, answer, answer, cutOff, answer}}
		shown := func() string {
			t.Helper()
			assert.NilError(t, c.send(t.Context(), "Sure?", nil))
			lines := strings.Split(strings.TrimSpace(out.takes()), "\n")
			return lines[len(lines)-1]
		}
		assert.Equal(t, shown(), "135 tokens · 6% of the context · 2 tool calls · 6s")
		assert.Equal(t, isAsked, 2)
		assert.Equal(t, shown(), "65 tokens · 6% of the context · 2s")
		c.output.settings.quiet = true
		assert.Check(t, !strings.Contains(shown(), "tokens"))
		c.output.settings.quiet = false
		assert.ErrorIs(t, c.send(t.Context(), "Sure?", nil), ErrCutOff)
		assert.Check(t, strings.Contains(out.takes(), "65 tokens"))
		c.model.choose("another")
		c.model.lists.Clear()
		assert.Equal(t, shown(), "65 tokens · 2s")
	})
}

// What is allowed for later runs is a tool of one server: by its URL, or its command in a folder, and for a stranger's
// file in that file's folder.
func TestAllowedSource(t *testing.T) {
	home, work := t.TempDir(), filepath.Join(t.TempDir(), "a[1]")
	for name, value := range map[string]string{"HOME": home, "XDG_CONFIG_HOME": home + "/c[1]", "USERPROFILE": home,
		"AppData": home + "/c[1]"} {
		t.Setenv(name, value)
	}
	assert.NilError(t, os.Mkdir(work, 0o700))
	t.Chdir(work)
	own := &configuration{settings: &serverSettings{config: "named.json"}, file: "named.json"}
	stranger := &configuration{settings: new(serverSettings), file: ".mcp.json"}
	typed := &configuration{settings: new(serverSettings), file: ".mcp.json", only: "https://example.com/mcp"}
	url := &Server{Name: "a", URL: "https://example.com/mcp"}
	allowed := func(c *configuration, s *Server, tool string) string { return allowedVersion(c.allowedSource(s), tool) }
	assert.NilError(t, keepAllowed(own.allowedSource(url), "a", "push", "1"))
	assert.Equal(t, len(allAllowed()), 1)
	assert.Equal(t, allowed(own, url, "push"), "1")
	renamed := &Server{Name: "b", URL: url.URL}
	assert.Check(t, allowed(own, renamed, "push") == "1" && allowed(typed, url, "push") == "1")
	for _, s := range []*Server{
		{Name: "a", URL: "https://example.com/mcp2"},
		{Name: "a", Command: Command{Path: url.URL}},
		{Name: "a", Command: Command{Path: "a"}},
	} {
		assert.Check(t, allowed(own, s, "push") == "", "%+v", s)
	}
	assert.Check(t, allowed(own, url, "pull") == "")
	assert.Check(t, allowed(stranger, url, "push") == "", "a stranger's token may go with the URL")
	assert.NilError(t, keepAllowed(stranger.allowedSource(url), "a", "push", "2"))
	assert.Check(t, allowed(stranger, url, "push") == "2" && allowed(own, url, "push") == "1")
	other := t.TempDir()
	t.Chdir(other)
	assert.Check(t, allowed(stranger, url, "push") == "" && allowed(own, url, "push") == "1")

	command := &Server{Name: "a", Command: Command{Path: "a", Args: []string{"b"}}}
	assert.NilError(t, keepAllowed(own.allowedSource(command), "a", "push", "3"))
	assert.Equal(t, allowed(own, command, "push"), "3")
	assert.Check(t, allowed(own, &Server{Name: "a", Command: Command{Path: "a", Args: []string{"c"}}}, "push") == "")
	t.Chdir(work)
	assert.Check(t, allowed(own, command, "push") == "")

	// A file under the name of another allows nothing.
	assert.Equal(t, len(allowedRecords.paths()), 3)
	file := allowedRecords.path(own.allowedSource(url), "push")
	for _, other := range []struct {
		server *Server
		tool   string
	}{{url, "pull"}, {&Server{URL: "https://example.com/mcp2"}, "push"}} {
		path := allowedRecords.path(own.allowedSource(other.server), other.tool)
		assert.NilError(t, os.Rename(file, path))
		assert.Check(t, allowed(own, other.server, other.tool) == "", "%+v", other)
		file = path
	}
}

// A hash tells any two descriptions apart, also where one text moves from a field to the next.
func TestToolVersion(t *testing.T) {
	seen := make(map[string]bool)
	for _, tool := range []Tool{
		{},
		{Name: "read", Description: "ab"},
		{Description: "a", Title: "b"},
		{Title: "ab"},
		{InputSchema: json.RawMessage(`{}`)},
		{InputSchema: json.RawMessage(`{ }`)},
		{Annotations: json.RawMessage(`{}`)},
		{InputSchema: json.RawMessage(`{"description":"x","description":""}`)},
		{InputSchema: json.RawMessage(`{"description":""}`)},
	} {
		version := toolVersion(&tool)
		assert.Check(t, !seen[version], "%+v", tool)
		seen[version] = true
	}
	withMeta := Tool{Description: "a", Meta: json.RawMessage(`{}`)}
	assert.Equal(t, toolVersion(&Tool{Description: "a"}), toolVersion(&withMeta))
}

// A list of models that hangs delays no question, and ends with the chat.
func TestChatReadsList(t *testing.T) {
	asked, given := make(chan bool), make(chan bool)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(asked)
		<-r.Context().Done()
		close(given)
	}))
	defer server.Close()
	c, _, _ := chatOf(t)
	c.model.settings.baseURL = server.URL
	stop := c.model.readList(t.Context())
	<-asked
	assert.Equal(t, c.model.listed().Context, 0)
	stop()
	<-given
}

// A server that refuses to be asked for tokens is asked once in a chat.
func TestChatAsksForTokensOnce(t *testing.T) {
	c, model, _ := chatOf(t, modelText("One."), modelText("Two."))
	model.Strict = true
	c.servers.host = hostOf(t, newHostPeer("web", "a"))
	for _, question := range []string{"One?", "Two?"} {
		assert.NilError(t, c.send(t.Context(), question, nil))
	}
	var refused []bool
	for _, request := range model.Requests() {
		refused = append(refused, request.Refusal != "")
	}
	assert.DeepEqual(t, refused, []bool{true, false, false})
}

// Tab completes commands, what they take, and the resources and files that a question can name.
func TestChatCompletes(t *testing.T) {
	c, _, _ := chatOf(t)
	t.Chdir(t.TempDir())
	assert.NilError(t, os.MkdirAll("wading/.git", 0o700))
	assert.NilError(t, os.WriteFile("waders.txt", []byte("Herons.\n"), 0o600))
	c.servers.config.servers = []Server{{Name: "notes"}}
	assert.DeepEqual(t, c.complete(t.Context(), "/model mis"), []string{"mistral-test"})
	library := NewLibrary(fstest.MapFS{"herons.md": {Data: []byte("wade")}, "a@b.md": {Data: []byte("mail")}})
	synctest.Test(t, func(t *testing.T) {
		c.servers.host = NewHost([]Server{{Name: "notes", Start: func(context.Context) (Transport, error) {
			here, there := memoryPair()
			go func() { _ = library.Serve(t.Context(), there) }()
			return here, nil
		}}}, nil)
		defer c.servers.host.Close()
		c.servers.host.Start(t.Context())
		for text, words := range map[string]string{
			"what of @n":                    "@notes:library:///herons.md",
			"what of @heron":                "@notes:library:///herons.md",
			"what of @a@b":                  "",
			"and @wad":                      "@./waders.txt @./wading/",
			"and @./wading/":                "",
			"and @./wading/.":               "@./wading/.git/",
			"and @../nothing":               "",
			"/re":                           "/reconnect /resource",
			"see /re":                       "",
			"/tools s":                      "search_chunks",
			"/servers ":                     "notes",
			"/reconnect n":                  "notes",
			"/resource ":                    "library:///a@b.md library:///herons.md",
			"/prompt answer_f":              "answer_from_library",
			"/prompt answer_from_library q": "question=",
			"/load wad":                     "waders.txt wading/",
			"/quit ":                        "",
			" /tools s":                     "",
		} {
			assert.Check(t, is.Equal(strings.Join(c.complete(t.Context(), text), " "), words), "%q", text)
		}
	})
}

// The oldest of too many kept chats make room for a new one, with the locks that were left beside them; what is no chat
// stays. A chat of which nothing can be kept is an error, and makes no folder.
func TestKeptChats(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("USERPROFILE", home)
	t.Setenv("XDG_STATE_HOME", "")
	folder := filepath.Join(home, ".local", "state", "mcpagent", "chats")
	assert.NilError(t, os.MkdirAll(folder, 0o700))
	name := func(i int) string {
		return filepath.Join(folder, fmt.Sprintf("%032x-20260102-%06d-ABCDEF.json", i, i))
	}
	for i := range maxChats + 5 {
		assert.NilError(t, os.WriteFile(name(i), []byte("{}"), 0o600))
		old := time.Now().Add(time.Duration(i-1000) * time.Hour)
		assert.NilError(t, os.Chtimes(name(i), old, old))
	}
	lock := filepath.Join(folder, "."+filepath.Base(name(0))+".lock")
	other := filepath.Join(folder, "my own.json")
	assert.NilError(t, os.WriteFile(lock, nil, 0o600))
	assert.NilError(t, os.WriteFile(other, nil, 0o600))
	assert.NilError(t, os.Chtimes(other, time.Time{}, time.Unix(1, 0)))

	path, unlock, err := newChat()
	assert.NilError(t, err)
	defer unlock()
	assert.Equal(t, len(chatFiles(folder, "")), maxChats-1)
	for _, gone := range []string{name(0), name(5), lock} {
		_, err = os.Stat(gone)
		assert.ErrorIs(t, err, os.ErrNotExist)
	}
	for _, kept := range []string{name(6), name(maxChats + 4), other} {
		_, err = os.Stat(kept)
		assert.NilError(t, err)
	}
	_, err = lastChat()
	assert.ErrorContains(t, err, "no chat of this folder is kept")
	assert.NilError(t, SaveSession(path, new(Session)))
	last, err := lastChat()
	assert.NilError(t, err)
	assert.Equal(t, last, path)

	t.Setenv("HOME", filepath.Join(home, "nobody"))
	t.Setenv("USERPROFILE", filepath.Join(home, "nobody"))
	_, _, err = newChat()
	assert.ErrorContains(t, err, "does not exist")
}

// Where a name is unknown, the names are told that are most like it, and not all.
func TestNearest(t *testing.T) {
	c := &catalog{config: new(configuration)}
	var tools []entry
	for _, line := range []string{"read_file Reads a file", "list_folder Lists a folder", "get_weather The weather",
		"draw_chart Draws a picture"} {
		name, about, _ := strings.Cut(line, " ")
		tools = append(tools, entry{name: name, about: about,
			value: listedTool{Function: name, Tool: Tool{Name: name, Description: about}}})
	}
	for name, want := range map[string]string{
		"get_wether":  "there are 4 tools, of which the nearest are: get_weather",
		"folder":      "there are 4 tools, of which the nearest are: list_folder",
		"picture":     "there are 4 tools, of which the nearest are: draw_chart",
		"folder_read": "there are 4 tools, of which the nearest are: read_file, list_folder, get_weather",
		"xyz":         "there are 4 tools, such as: read_file, list_folder, get_weather",
		"":            "there are 4 tools, such as: read_file, list_folder, get_weather",
	} {
		assert.Equal(t, c.nearest("tool", name, tools), want)
	}
	assert.Equal(t, c.nearest("tool", "x", tools[:2]), "there are: read_file, list_folder")
}

// In a chat with one server, which could not list its tools, each question asks the server anew, on stdio as over HTTP.
func TestChatAsksFailedServerAgain(t *testing.T) {
	checkLeaks(t)
	var isDown atomic.Bool
	peer := newHostPeer("web", "a")
	peer.answer = func(_ context.Context, method string) any {
		if isDown.Load() && method == "tools/list" {
			return &Error{Code: CodeInternalError, Message: "not now"}
		}
		return nil
	}
	overHTTP := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isDown.Load() {
			http.Error(w, "not now", http.StatusServiceUnavailable)
			return
		}
		(&scriptPeer{}).ServeHTTP(w, r)
	}))
	defer overHTTP.Close()
	for _, server := range []Server{peer.Server, {Name: "web", URL: overHTTP.URL}} {
		c, model, out := chatOf(t)
		model.Rest = modelText("Yes.")
		c.output.inChat = true
		c.servers.config.servers = []Server{server}
		c.servers.host = NewHost([]Server{server}, nil)
		defer c.servers.host.Close()
		c.agent, c.report = c.agents.newAgent(c.view, c.kept)
		assert.NilError(t, c.send(t.Context(), "One?", nil))
		client, err := c.servers.host.Client(t.Context(), "")
		assert.NilError(t, err)
		client.ForgetLists("tools")
		isDown.Store(true)
		for range 2 {
			err := c.send(t.Context(), "Two?", nil)
			assert.ErrorContains(t, err, "not now")
			assert.ErrorContains(t, err, "; it is tried again with each question, or now with /reconnect")
		}
		assert.Check(t, !strings.Contains(out.takes(), "not now"), "the error of the question has told it")
		isDown.Store(false)
		assert.NilError(t, c.send(t.Context(), "Three?", nil))
		assert.Check(t, is.Contains(out.takes(), "server web is ready: "))
	}
}

// A tool that reports an error may have written the reason to stderr: the log is named, in a conversation once.
func TestFailedCallNamesLog(t *testing.T) {
	c, _, out := chatOf(t)
	log, err := openServerLog(filepath.Join(t.TempDir(), "web.log"))
	assert.NilError(t, err)
	defer log.file.Close()
	peer, text := newHostPeer("web", "a"), "Traceback\n"
	peer.answer = func(_ context.Context, method string) any {
		if method != "tools/call" {
			return nil
		}
		_, _ = log.Write([]byte(text))
		return json.RawMessage(`{"content":[{"type":"text","text":"Error executing tool a"}],"isError":true}`)
	}
	c.servers.config.servers = []Server{peer.Server}
	c.servers.host = hostOf(t, peer)
	c.servers.logs = map[string]*serverLog{"web": log}
	tools := &toolbox{c.servers, c.output.screen.Secrets}
	_, err = tools.Functions(t.Context())
	assert.NilError(t, err)
	const wrote = "what the server wrote meanwhile is in "
	for range 2 {
		_, err = tools.Call(t.Context(), ToolCall{Name: "a", Arguments: `{}`})
		assert.NilError(t, err)
	}
	shown := out.takes()
	assert.Equal(t, strings.Count(shown, "web:a reported an error; "), 1)
	assert.Check(t, is.Contains(strings.ReplaceAll(shown, "\n", ""), "web.log"))

	commands := &serverCommands{c.agents.settings, c.output, nil, c.servers, c.catalog}
	assert.Error(t, commands.call(t.Context(), "a"), "a reported an error; "+wrote+log.file.Name())
	text = ""
	assert.Error(t, commands.call(t.Context(), "a"), "a reported an error")
}
