package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"gotest.tools/v3/assert"
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
	query, err := plainJSON(map[string]string{"query": question})
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
	lines := strings.Repeat("One thing. Another `a.b` thing, e.g\\n", 60)
	sentences := strings.ReplaceAll(lines[:44*37], `\n`, "\n") + "One thing."
	rows := strings.Repeat("| a cell. More | bb |\\n", 90)
	row := strings.ReplaceAll(rows[:72*23], `\n`, "\n")
	block := "```sh\\n" + strings.Repeat("A line. \\n", 200) + "```\\n"
	function := "// F does it.\\nfunc F() {\\n" + strings.Repeat("\\tG(1234567890)\\n", 150) + "}\\n"
	quoted := func(source, text string) string {
		return `{"results":[{"text":"` + text + `","source":"` + source + `","similarity":0.5}]}`
	}
	const nothing = "Nothing was found that fits."
	for _, test := range []struct{ what, result, want string }{
		{"nothing", `{"results":[],"total_count":0,"query":"x"}`, nothing},
		{"no results", `{"results":null,"total_count":0,"query":"x"}`, nothing},
		{"no text", " \n", nothing},
		{"what hardly fits", `{"results":[{"text":"Far off.","source":"d.md","similarity":0.1}]}`, nothing},
		{"an error", "Error: the tool failed", "search\n\nError: the tool failed"},
		{"another object", `{"temperature":20}`, "search\n\n{\"temperature\":20}"},
		{"text", "Tea is a\ndrink.\n", "search\n\nTea is a\ndrink."},
		{"sentences", quoted("a.txt", lines), "a.txt\n\n" + sentences + "\n\n…"},
		{"rows", quoted("a.md", rows), "a.md\n\n" + row + "\n…"},
		{"no block in part", quoted("a.md", "Do this. So:\\n\\n"+block), "a.md\n\nDo this.\n\n…"},
		{"a block alone", quoted("a.md", block),
			"a.md\n\n```sh\n" + strings.Repeat("A line. \n", 176) + "A line.\n```\n\n…"},
		{"a long line", strings.Repeat("é", 1000), "search\n\n" + strings.Repeat("é", 800) + "\n\n…"},
		{"a function", quoted("a.go", `// F has `+"```"+`.\nfunc F() {}`),
			"a.go\n\n````go\n// F has ```.\nfunc F() {}\n````"},
		{"a long function", quoted("a.go", function), "a.go\n\n```go\n// F does it.\nfunc F() {\n…\n```"},
		{"no part of a function", quoted("a.go", `\treturn tea\n}`), nothing},
		{"without sources", `{"results":[{"text":"1"},{"text":"2"},{"text":""},{"text":"3"},{"text":"4"}]}`,
			"search\n\n1\n\nsearch\n\n2\n\nsearch\n\n3"},
		{"a heading first, and prose", `{"results":[` +
			`{"text":"// F is tea.","source":"a.go","start_line":2,"similarity":0.6},` +
			`{"text":"It is tea.","source":"a.md","start_line":4,"similarity":0.7},` +
			`{"text":"## What is tea?\n\nA drink.","source":"b.md","start_line":5,"similarity":0.5},` +
			`{"text":"# A pot of tea\n\nWhat it is in.","source":"c.md","similarity":0.5}]}`,
			"b.md:5\n\n## What is tea?\n\nA drink."},
		{"prose first", `{"results":[{"text":"// F does it.","source":"a.go","similarity":0.6},` +
			`{"text":"It is done.","source":"a.md","similarity":0.5}]}`, "a.md\n\nIt is done."},
		{"what belongs together", `{"results":[{"text":"It goes on.","source":"a.md","start_line":9,"similarity":0.41},` +
			`{"text":"# Tea\n\nA drink.","source":"a.md","start_line":5,"end_line":7,"similarity":0.6},` +
			`{"text":"# Cold tea\n\nIt too.","source":"a.md","start_line":30,"similarity":0.8},` +
			`{"text":"# Tea\n\nElsewhere.","source":"b.md","start_line":3,"similarity":0.6},` +
			`{"text":"Far from it.","source":"a.md","start_line":50,"similarity":0.41}]}`,
			"a.md:30\n\n# Cold tea\n\nIt too.\n\na.md:5\n\n# Tea\n\nA drink."},
		{"the same section", `{"results":[{"text":"It goes on.","source":"a.md","start_line":9,"similarity":0.41},` +
			`{"text":"# Tea\n\nA drink.","source":"a.md","start_line":5,"end_line":7,"similarity":0.6}]}`,
			"a.md:5\n\n# Tea\n\nA drink.\n\na.md:9\n\nIt goes on."},
		{"not the question itself", `{"results":[{"text":"$ go run . \"What is tea?\"","source":"README.md"},` +
			`{"text":"Tea is a drink.","source":"tea.md"}]}`, "tea.md\n\nTea is a drink."},
	} {
		t.Run(test.what, func(t *testing.T) {
			history := offlineTalk(t, nil, "What is tea?", test.result)
			if answer := history[3].Content.Text(); test.want == nothing {
				assert.Assert(t, strings.HasPrefix(answer, nothing), answer)
			} else {
				assert.Equal(t, answer, test.want)
			}
		})
	}
}

func TestOfflineParts(t *testing.T) {
	for text, want := range map[string]string{
		"":                               "?",
		"What is tea?":                   "What is tea?",
		"what is tea and how is it made": "what is tea|what is tea how is it made",
		"What is tea, and where can I buy coffee?":           "What is tea|where can I buy coffee?",
		"Tea is cold. What can I do?":                        "Tea is cold What can I do?",
		"Who is it? What is tea? How is coffee made? Where?": "Who is it|What is tea|How is coffee made Where?",
	} {
		assert.Equal(t, strings.Join(offlineParts(text), "|"), want)
	}
}

// A question in two parts gets two answers. A search that can be told to searches prose first, and if that has no
// answer everything.
func TestOfflineSearchesProseFirst(t *testing.T) {
	r := &ChatRequest{Tools: []Function{{Name: "search", Parameters: json.RawMessage(
		`{"properties":{"source_filter":{"type":"string"}},"required":["query"]}`)}}}
	ask := func(text string) {
		r.Messages = append(r.Messages, ChatMessage{Role: "user", Content: TextContent(text)})
	}
	step := func(results ...string) (arguments []string) {
		for i, result := range results {
			id := r.Messages[len(r.Messages)-1-i].ToolCalls[i].ID
			r.Messages = append(r.Messages, ChatMessage{Role: "tool", ToolCallID: id, Content: TextContent(result)})
		}
		answer := offlineAsk(t, r)
		r.Messages = append(r.Messages, answer)
		for _, call := range answer.ToolCalls {
			arguments = append(arguments, call.Arguments)
		}
		return arguments
	}
	const none = `{"results":[],"total_count":0}`
	ask("What is tea, and where is cocoa?")
	assert.DeepEqual(t, step(), []string{
		`{"query":"What is tea","source_filter":"*.md"}`, `{"query":"where is cocoa?","source_filter":"*.md"}`})
	assert.DeepEqual(t, step(none, none), []string{`{"query":"What is tea"}`, `{"query":"where is cocoa?"}`})
	assert.Equal(t, len(step(`{"results":[{"text":"A drink.","source":"a"},{"text":"Yes."}]}`, none)), 0)
	answer := r.Messages[len(r.Messages)-1].Content.Text()
	assert.Equal(t, answer, "a\n\nA drink.\n\nNothing was found for \"where is cocoa?\".")
}

// A second question gets a second search, with an id of its own.
func TestOfflineAnswersTheLastQuestion(t *testing.T) {
	history := []ChatMessage{{Role: "system", Content: TextContent("Be brief.")}}
	history = offlineTalk(t, history, "What is tea?", "A drink.")
	history = offlineTalk(t, history, "What is <coffee>?", "Another.")
	assert.Assert(t, history[2].ToolCalls[0].ID != history[6].ToolCalls[0].ID)
	assert.Equal(t, history[8].Content.Text(), "search\n\nAnother.")
}

func TestOfflineWithoutASearch(t *testing.T) {
	search := Function{Name: "search", Parameters: json.RawMessage(`{"required":["query"]}`)}
	none := &ChatRequest{Tools: []Function{search}, ToolChoice: "none"}
	for i, r := range []*ChatRequest{{}, {Tools: []Function{{Name: "ask"}}}, none} {
		r.Messages = []ChatMessage{{Role: []string{"user", "assistant"}[i%2], Content: TextContent(" ")}}
		assert.Equal(t, offlineAsk(t, r).Content.Text(), "No tool here is a search with one required argument.")
	}
}

func TestOfflineErrors(t *testing.T) {
	const path = "http://offline.invalid/v1/chat/completions"
	for body, want := range map[string]string{
		``: "request is missing or empty", `{"messages":7}`: "request.messages must be an array, not a number",
	} {
		r, err := http.NewRequest("POST", path, strings.NewReader(body))
		assert.NilError(t, err)
		_, err = Offline{}.RoundTrip(r)
		assert.ErrorContains(t, err, want)
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
		text := offlineQuote(ChatMessage{Role: "tool", Name: "search", Content: TextContent(result)}, question, 3)
		assert.Assert(t, text == "" || strings.HasSuffix(text, "\n\n"))
		assert.Assert(t, len(offlineParts(question)) > 0)
	})
}

// firstQuestions are what people ask first, and of each the passages that must come first in the answer: the source,
// and a phrase of the passage. A question in two parts has two passages; one without any has no answer.
func firstQuestions() [][]string {
	return [][]string{
		{"What is MCP?", "docs/mcp.md", "## What is MCP"},
		{"what is mcp and why do i need it", "docs/mcp.md", "## What is MCP",
			"docs/mcp.md", "Why use MCP, and do I need it?"},
		{"What is MCP, and how do I set up a server?", "docs/mcp.md", "## What is MCP",
			"docs/start.md", "How do I set up"},
		{"What can this program do?", "docs/start.md", "What can this program, mcpagent, do"},
		{"hello", "docs/start.md", "Who are you?"},
		{"help", "docs/start.md", "Who are you?"},
		{"who are you?", "docs/start.md", "Who are you?"},
		{"How do I set up a server?", "docs/start.md", "How do I set up"},
		{"how to add my own mcp server", "docs/start.md", "How do I set up"},
		{"Where do I put my API key?", "docs/start.md", "API key"},
		{"do i need a key", "docs/start.md", "API key"},
		{"can i use it with ollama", "docs/start.md", "Ollama"},
		{"How do I use a local model instead of Mistral?", "docs/start.md", "Ollama"},
		{"which models are supported?", "docs/start.md", "Which models"},
		{"What does it cost?", "docs/start.md", "cost"},
		{"Is my data sent anywhere?", "docs/start.md", "Is my data sent"},
		{"What happens on Ctrl-C?", "docs/use.md", "Ctrl-C"},
		{"how do I quit", "docs/use.md", "quit"},
		{"Where are the logs?", "docs/use.md", "logs"},
		{"my server does not start", "docs/use.md", "does not start"},
		{"a tool call hangs, what can I do?", "docs/use.md", "hangs"},
		{"What happens when a server crashes?", "docs/mcp.md", "What happens when a server dies"},
		{"Does it ask before it runs a tool?", "docs/use.md", "Before a model"},
		{"how do I stop it asking every time", "docs/use.md", "How do I stop it asking"},
		{"Where can I find MCP servers?", "docs/start.md", "find"},
		{"how do I install this", "README.md", "## Install"},
		{"does it run on windows?", "docs/start.md", "Windows"},
		{"where is the config file", "docs/config.md", "Where is the config file"},
		{"Can I use my Claude Desktop configuration?", "docs/start.md", "Claude Desktop"},
		{"how do I connect to a remote server with a token", "docs/start.md", "remote server"},
		{"how do i log in to a sever with oauth", "docs/oauth.md", "How do I log in to a server"},
		{"How do I copy rpc.go into my own program?", "docs/copy.md", "copy"},
		{"how do I run the tests", "CONTRIBUTING.md", "test"},
		{"How does a call find its answer?", "docs/mcp.md", "How does a call find its answer?"},
		{"What's the difference between stdio and http?", "docs/mcp.md", "What is a transport?"},
		{"how do I continue a conversation later", "docs/use.md", "continue"},
		{"how to use it in a script", "docs/use.md", "script"},
		{"How can I see what is sent between client and server?", "docs/use.md", "trace"},
		{"how do I search my own notes", "docs/use.md", "notes"},
		{"Where do I start reading the code?", "docs/read.md", "Where should I begin to read"},
		{"What is the weather in Paris?"},
		{"write me a poem about the sea"},
		{"who won the world cup in 2018"},
	}
}

// TestFirstQuestions asks the program's own pages what people ask first: the right passages must come first.
func TestFirstQuestions(t *testing.T) {
	library := SourceLibrary()
	parameters := json.RawMessage(`{"properties":{"source_filter":{"type":"string"}},"required":["query"]}`)
	passage := regexp.MustCompile(`(?m)^(\S+\.(?:go|md)):\d+\n\n`)
	assert.Equal(t, len(firstQuestions()), 43)
	for _, fields := range firstQuestions() {
		r := &ChatRequest{Tools: []Function{{Name: "search_chunks", Parameters: parameters}}}
		r.Messages = []ChatMessage{{Role: "user", Content: TextContent(fields[0])}}
		answer := offlineAsk(t, r)
		for len(answer.ToolCalls) > 0 {
			r.Messages = append(r.Messages, answer)
			for _, call := range answer.ToolCalls {
				found := libCall(t, library, call.Name, call.Arguments).Content[0].Text
				r.Messages = append(r.Messages, ChatMessage{Role: "tool", ToolCallID: call.ID, Content: TextContent(found)})
			}
			answer = offlineAsk(t, r)
		}
		text := answer.Content.Text()
		if len(fields) == 1 {
			assert.Check(t, strings.HasPrefix(text, "Nothing was found that fits."), "%s\n\n%s", fields[0], text)
			continue
		}
		places := passage.FindAllStringSubmatchIndex(text, -1)
		places = append(places, []int{len(text)})
		for i, want := range slices.Collect(slices.Chunk(fields[1:], 2)) {
			ok := i < len(places)-1 && text[places[i][2]:places[i][3]] == want[0] &&
				strings.Contains(text[places[i][1]:places[i+1][0]], want[1])
			assert.Check(t, ok, "%s\nmust have %s as passage %d:\n\n%s", fields[0], want, i+1, text)
		}
	}
}
