package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

// offlineAsk sends one request, whole and as a stream, which must be answered alike.
func offlineAsk(t *testing.T, r *ChatRequest) ChatMessage {
	t.Helper()
	m := Mistral{BaseURL: "http://offline.invalid/v1", Model: "offline", Client: &http.Client{Transport: Offline{}}}
	response, err := m.Complete(t.Context(), r, nil)
	assert.NilError(t, err)
	var streamed strings.Builder
	stream, err := m.Complete(t.Context(), r, func(s string) { streamed.WriteString(s) })
	assert.NilError(t, err)
	assert.Equal(t, stream.Message.Content.Text(), response.Message.Content.Text())
	assert.Equal(t, streamed.String(), response.Message.Content.Text())
	assert.DeepEqual(t, stream.Message.ToolCalls, response.Message.ToolCalls)
	assert.Equal(t, stream.FinishReason, response.FinishReason)
	assert.Equal(t, response.FinishReason == "tool_calls", len(response.Message.ToolCalls) > 0)
	return response.Message
}

// offlineTalk asks a question and answers the call, if there is one, with result.
func offlineTalk(t *testing.T, history []ChatMessage, question, result string) []ChatMessage {
	t.Helper()
	tools := []Function{{Name: "delete_all"},
		{Name: "search_files", Parameters: json.RawMessage(`{"required":["a","b"]}`)},
		{Name: "search", Parameters: json.RawMessage(`{"required":"query"}`)},
		{Name: "lib__Search_chunks", Parameters: json.RawMessage(`{"required":["query"]}`)}}
	history = append(history, ChatMessage{Role: "user", Content: TextContent(question)})
	call := offlineAsk(t, &ChatRequest{Messages: history, Tools: tools})
	assert.Equal(t, len(call.ToolCalls), 1)
	assert.Equal(t, call.ToolCalls[0].Name, "lib__Search_chunks")
	assert.Equal(t, len(call.ToolCalls[0].ID), 9)
	query, err := PlainJSON(map[string]string{"query": question})
	assert.NilError(t, err)
	assert.Equal(t, call.ToolCalls[0].Arguments, string(query))
	id := call.ToolCalls[0].ID
	found := ChatMessage{Role: "tool", ToolCallID: id, Name: "search", Content: TextContent(result)}
	history = append(history, call, found)
	answer := offlineAsk(t, &ChatRequest{Messages: history, Tools: tools})
	assert.Equal(t, len(answer.ToolCalls), 0)
	return append(history, answer)
}

func TestOfflineQuotes(t *testing.T) {
	long := `{"results":[{"text":"` + strings.Repeat(`a line\n`, 20) + `","source":"a.txt"}]}`
	head := strings.TrimSuffix(strings.Repeat("    a line\n", 16), "\n") + " […]\n\n"
	const nothing = "The search found nothing. Try other words.\n"
	for _, test := range []struct{ what, result, want string }{
		{"nothing", `{"results":[],"total_count":0,"query":"x"}`, nothing},
		{"no results", `{"results":null,"total_count":0,"query":"x"}`, nothing},
		{"no text", " \n", nothing},
		{"an error", "Error: the tool failed", "search\n    Error: the tool failed\n\n"},
		{"another object", `{"temperature":20}`, "search\n    {\"temperature\":20}\n\n"},
		{"text", "Tea is a\ndrink.\n", "search\n    Tea is a\n    drink.\n\n"},
		{"many lines", long, "a.txt\n" + head},
		{"a long line", strings.Repeat("é", 1000), "search\n    " + strings.Repeat("é", 600) + " […]\n\n"},
		{"without sources", `{"results":[{"text":"1"},{"text":"2"},{"text":""},{"text":"3"},{"text":"4"}]}`,
			"search\n    1\n\nsearch\n    2\n\nsearch\n    3\n\n"},
		{"prose first", `{"results":[{"text":"func F() {}","source":"a.go","start_line":2,"similarity":0.6},` +
			`{"text":"// G does it.","source":"b.go","start_line":3,"similarity":0.5},` +
			`{"text":"It is done.","source":"docs/c.md","start_line":4,"similarity":0.4},` +
			`{"text":"Far off.","source":"d.md","similarity":0.1}]}`,
			"docs/c.md:4\n    It is done.\n\nb.go:3\n    // G does it.\n\na.go:2\n    func F() {}\n\n"},
		{"not the question itself", `{"results":[{"text":"$ go run . \"What is tea?\"","source":"README.md"},` +
			`{"text":"Tea is a drink.","source":"tea.md"}]}`, "tea.md\n    Tea is a drink.\n\n"},
	} {
		t.Run(test.what, func(t *testing.T) {
			history := offlineTalk(t, nil, "What is tea?", test.result)
			assert.Equal(t, history[3].Content.Text(), test.want)
		})
	}
}

// A second question gets a second search, with an id of its own.
func TestOfflineAnswersTheLastQuestion(t *testing.T) {
	history := []ChatMessage{{Role: "system", Content: TextContent("Be brief.")}}
	history = offlineTalk(t, history, "What is tea?", "A drink.")
	history = offlineTalk(t, history, "What is <coffee>?", "Another.")
	assert.Assert(t, history[2].ToolCalls[0].ID != history[6].ToolCalls[0].ID)
	assert.Equal(t, history[8].Content.Text(), "search\n    Another.\n\n")
}

func TestOfflineWithoutASearch(t *testing.T) {
	search := Function{Name: "search", Parameters: json.RawMessage(`{"required":["query"]}`)}
	none := &ChatRequest{Tools: []Function{search}, ToolChoice: "none"}
	for _, r := range []*ChatRequest{{}, {Tools: []Function{{Name: "ask"}}}, none} {
		r.Messages = []ChatMessage{{Role: "user", Content: TextContent(" ")}}
		assert.Equal(t, offlineAsk(t, r).Content.Text(), "No tool here is a search with one required argument.\n")
	}
}

func TestOfflineErrors(t *testing.T) {
	const path = "http://offline.invalid/v1/chat/completions"
	const noUser = "messages: a user message is required, and the last must be the user's or a tool's"
	for _, test := range []struct {
		method, url, body string
		status            int
		message           string
	}{
		{"POST", path, `{`, 400, "invalid request: unexpected end of JSON input"},
		{"POST", path, `{"messages":7}`, 400, "invalid request: json: cannot unmarshal"},
		{"POST", path, `{}`, 400, noUser},
		{"POST", path, `{"messages":[{"role":"system","content":"x"}]}`, 400, noUser},
		{"POST", path, `{"messages":[{"role":"user","content":"x"},{"role":"assistant","content":"y"}]}`, 400, noUser},
		{"POST", path, `{"messages":[{"role":"tool","content":"x"}]}`, 400, noUser},
		{"GET", path, ``, 405, "the method must be POST"},
		{"GET", "http://offline.invalid/v1/models", ``, 404, "/v1/models not found: use /chat/completions"},
	} {
		r, err := http.NewRequest(test.method, test.url, strings.NewReader(test.body))
		assert.NilError(t, err)
		response, err := Offline{}.RoundTrip(r)
		assert.NilError(t, err)
		body, err := io.ReadAll(response.Body)
		assert.NilError(t, err)
		assert.Equal(t, response.StatusCode, test.status, test.body)
		assert.Equal(t, response.ContentLength, int64(len(body)))
		var e struct{ Object, Message, Type string }
		assert.NilError(t, json.Unmarshal(body, &e))
		assert.Equal(t, e.Object+" "+e.Type, "error invalid_request_error")
		assert.Assert(t, is.Contains(e.Message, test.message), test.body)
	}
	ctx, cancel := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, "POST", path, iotest.ErrReader(io.ErrUnexpectedEOF))
	assert.NilError(t, err)
	_, err = Offline{}.RoundTrip(r)
	assert.ErrorIs(t, err, io.ErrUnexpectedEOF)
	cancel()
	r.Body = nil
	_, err = Offline{}.RoundTrip(r)
	assert.Assert(t, errors.Is(err, context.Canceled))
}

// Every result has an answer.
func FuzzOffline(f *testing.F) {
	f.Add("What is \"tea\"?", `{"results":[{"text":"x","start_line":1e99},7]}`)
	f.Add("'", `{"results":[{"text":"x","similarity":-1},{"text":"y"}]}`)
	f.Fuzz(func(t *testing.T, question, result string) {
		text := offlineQuote(ChatMessage{Role: "tool", Name: "search", Content: TextContent(result)}, question)
		assert.Assert(t, strings.HasSuffix(text, "\n"))
	})
}

// The README's question, with no key and no network.
func TestOfflineOverTheOwnSource(t *testing.T) {
	const question = "How does a call find its answer?"
	found := libCall(t, SourceLibrary(), "search_chunks", `{"query":"`+question+`"}`)
	history := offlineTalk(t, nil, question, found.Content[0].Text)
	assert.Assert(t, is.Regexp(`(?m)^\S+\.(go|md):\d+$`, history[3].Content.Text()))
	assert.Assert(t, is.Contains(history[3].Content.Text(), "rpc.go:"))
}
