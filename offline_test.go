package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/iotest"

	"gotest.tools/v3/assert"
)

// offlineAsk sends one request, whole and as a stream, which must be answered alike.
func offlineAsk(t *testing.T, r *ChatRequest) ChatMessage {
	t.Helper()
	client := &http.Client{Transport: Offline{Rephrase}}
	m := Mistral{BaseURL: "http://offline.invalid/v1", Model: "offline", Client: client}
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
		{Name: "simulate-research-query", Parameters: json.RawMessage(`{"required":["topic"]}`)},
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
	lines := strings.Repeat("One thing. Another `a.b` thing, e.g\\n", 100)
	sentences := strings.ReplaceAll(lines[:69*37], `\n`, "\n") + "One thing."
	rows := strings.Repeat("| a cell. More | bb |\\n", 150)
	row := strings.ReplaceAll(rows[:113*23], `\n`, "\n")
	block := "```sh\\n" + strings.Repeat("A line. \\n", 400) + "```\\n"
	function := "// F does it.\\nfunc F() {\\n" + strings.Repeat("\\tG(1234567890)\\n", 250) + "}\\n"
	quoted := func(source, text string) string {
		return `{"results":[{"text":"` + text + `","source":"` + source + `","similarity":0.5}]}`
	}
	const nothing = "Nothing was found that fits."
	const unsure = "Nothing that was found is surely an answer. Nearest to the question are:\n\n"
	const advice = "\nThis only searches: to read a section, ask with the words of its heading."
	const also = "\n\nNear to the question are also:\n\n"
	for _, test := range []struct{ what, result, want string }{
		{"nothing", `{"results":[],"total_count":0,"query":"x"}`, nothing},
		{"no results", `{"results":null,"total_count":0,"query":"x"}`, nothing},
		{"no text", " \n", nothing},
		{"what is far off", `{"results":[{"text":"Far off.","source":"d.md","similarity":0.1}]}`, nothing},
		{"an error", "Error: the tool failed", "search\n\nError: the tool failed"},
		{"another object", `{"temperature":20}`, "search\n\n{\"temperature\":20}"},
		{"text", "Tea is a\ndrink.\n", "search\n\nTea is a\ndrink."},
		{"sentences", quoted("a.txt", lines), "a.txt\n\n" + sentences + "\n\n…"},
		{"rows", quoted("a.md", rows), "a.md\n\n" + row + "\n…"},
		{"no block in part", quoted("a.md", "Do this. So:\\n\\n"+block), "a.md\n\nDo this.\n\n…"},
		{"a block alone", quoted("a.md", block),
			"a.md\n\n```sh\n" + strings.Repeat("A line. \n", 276) + "A line.\n```\n\n…"},
		{"a long line", strings.Repeat("é", 2000), "search\n\n" + strings.Repeat("é", 1250) + "\n\n…"},
		{"a function", quoted("a.go", `// F has `+"```"+`.\nfunc F() {}`),
			"a.go\n\n````go\n// F has ```.\nfunc F() {}\n````"},
		{"a long function", quoted("a.go", function), "a.go\n\n```go\n// F does it.\nfunc F() {\n…\n```"},
		{"without sources, in the tool's order", `{"results":[{"text":"1"},{"text":"2\nmore"},{"text":""},{"text":"3"},` +
			`{"text":"4"}]}`, "search\n\n1" + also + "- 2 (…)\n- 3 (…)"},
		{"a heading like the question first", `{"results":[` +
			`{"text":"It is tea.","source":"a.md","start_line":4,"similarity":0.7},` +
			`{"heading":"What is tea?","text":"## What is tea?\n\nA drink.","source":"b.md","start_line":5,"similarity":0.5},` +
			`{"text":"A pot.","source":"c.md","similarity":0.4}]}`,
			"b.md:5\n\n## What is tea?\n\nA drink." + also + "- It is tea. (a.md:4)\n- A pot. (c.md)"},
		{"the middle of a section", `{"results":[` +
			`{"heading":"Tea","text":"It goes on.","source":"a.md","start_line":9,"similarity":0.6}]}`,
			"a.md:9\n\nOf: Tea\n\nIt goes on."},
		{"of each section one passage", `{"results":[` +
			`{"heading":"Tea","text":"# Tea\n\nA drink.","source":"a.md","start_line":5,"similarity":0.6},` +
			`{"heading":"Tea","text":"It goes on.","source":"a.md","start_line":9,"similarity":0.5},` +
			`{"heading":"Tea","text":"# Tea\n\nA plant.","source":"b.md","start_line":1,"similarity":0.4}]}`,
			"a.md:5\n\n# Tea\n\nA drink." + also + "- Tea (b.md:1)"},
		{"close to each other", `{"results":[` +
			`{"heading":"Cups","text":"# Cups\n\nOf tea.","source":"a.md","start_line":5,"similarity":0.6},` +
			`{"heading":"Pots","text":"# Pots\n\nOf tea.","source":"a.md","start_line":9,"similarity":0.5},` +
			`{"heading":"Bags","text":"# Bags\n\nOf tea.","source":"b.md","start_line":1,"similarity":0.5},` +
			`{"heading":"Fees","text":"# Fees\n\nFor tea.","source":"b.md","start_line":9,"similarity":0.5}]}`,
			unsure + "- Cups (a.md:5)\n- Pots (a.md:9)\n- Bags (b.md:1)\n" + advice},
		{"close to each other, and without a heading", `{"results":[` +
			`{"heading":"Cups","text":"# Cups\n\nOf tea.","source":"a.md","start_line":5,"similarity":0.6},` +
			`{"text":"Pots of tea.","source":"a.txt","start_line":9,"similarity":0.5}]}`,
			"a.md:5\n\n# Cups\n\nOf tea." + also + "- Pots of tea. (a.txt:9)"},
		{"not quite near", `{"results":[` +
			`{"heading":"Cups","text":"# Cups\n\nOf tea.","source":"a.md","start_line":5,"similarity":0.3}]}`,
			unsure + "- Cups (a.md:5)\n" + advice},
		{"the rest of its section", `{"results":[` +
			`{"heading":"Tea","text":"# Tea\n\nSo:","source":"a.md","start_line":1,"end_line":3,"similarity":0.6},` +
			`{"heading":"Milk","text":"# Milk","source":"a.md","start_line":9,"end_line":9,"similarity":0.1},` +
			`{"heading":"Tea","text":"Last.","source":"a.md","start_line":7,"end_line":7,"similarity":0.01},` +
			`{"heading":"Tea","text":"Pour.","source":"a.md","start_line":5,"end_line":5,"similarity":0.1}]}`,
			"a.md:1\n\n# Tea\n\nSo:\n\nPour.\n\nLast."},
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

// A search that can be told to searches prose first, and if nothing there is near everything.
func TestOfflineSearchesProseFirst(t *testing.T) {
	r := &ChatRequest{Tools: []Function{{Name: "search", Parameters: json.RawMessage(
		`{"properties":{"source_filter":{"type":"string"}},"required":["query"]}`)}}}
	step := func(result string) string {
		id := r.Messages[len(r.Messages)-1].ToolCalls[0].ID
		r.Messages = append(r.Messages, ChatMessage{Role: "tool", ToolCallID: id, Content: TextContent(result)})
		r.Messages = append(r.Messages, offlineAsk(t, r))
		answer := r.Messages[len(r.Messages)-1]
		if len(answer.ToolCalls) > 0 {
			return answer.ToolCalls[0].Arguments
		}
		return answer.Content.Text()
	}
	const none = `{"results":[],"total_count":0}`
	r.Messages = []ChatMessage{{Role: "user", Content: TextContent("What is tea?")}}
	r.Messages = append(r.Messages, offlineAsk(t, r))
	assert.Equal(t, r.Messages[1].ToolCalls[0].Arguments, `{"query":"What is tea?","source_filter":"*.md"}`)
	assert.Equal(t, step(none), `{"query":"What is tea?"}`)
	assert.Equal(t, step(`{"results":[{"text":"A drink.","source":"a"}]}`), "a\n\nA drink.")
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
	const advice = "No model is set, and the stand-in for one can only search, for which no tool is here. " +
		"Set MISTRAL_API_KEY, or name a local model: -m ollama:NAME."
	const example = "\n\nWithout a model you call a tool yourself. `mcpagent tools` lists them, and this calls one:\n\n" +
		"```sh\nmcpagent call %s '%s'\n```"
	parameters := json.RawMessage(`{"properties":{"to":{"type":"string"},"count":{"type":"integer"},` +
		`"note":{"type":"string"},"any":{"type":["string","null"]}},"required":["to","count","any"]}`)
	for _, test := range []struct {
		request ChatRequest
		want    string
	}{
		{ChatRequest{}, advice},
		{ChatRequest{Tools: []Function{{Name: "ask"}, {Name: "tell"}}}, advice + fmt.Sprintf(example, "ask", "{}")},
		{ChatRequest{Tools: []Function{{Name: "post", Parameters: parameters}}},
			advice + fmt.Sprintf(example, "post", `{"any":null,"count":1,"to":"…"}`)},
	} {
		test.request.Messages = []ChatMessage{{Role: "user", Content: TextContent(" ")}}
		assert.Equal(t, offlineAsk(t, &test.request).Content.Text(), test.want)
	}
	search := Function{Name: "search", Parameters: json.RawMessage(`{"required":["query"]}`)}
	none := &ChatRequest{Tools: []Function{search}, ToolChoice: "none"}
	none.Messages = []ChatMessage{{Role: "user", Content: TextContent("What is tea?")}}
	assert.Assert(t, strings.HasPrefix(offlineAsk(t, none).Content.Text(), advice))
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
		answer := offlineAnswer(ChatMessage{Role: "tool", Name: "search", Content: TextContent(result)}, question)
		assert.Assert(t, answer == "" || len(answer) < 3*maxOfflineQuote || len(result) > maxOfflineQuote)
	})
}

// TestRephrase: a question for this program's pages is asked in their words, and another one as it stands.
func TestRephrase(t *testing.T) {
	for question, want := range map[string]string{
		"How do I get rid of the Confirmation Prompts?": "How do I get rid of the approval?",
		"does it work with ChatGPT":                     "does it work with OpenAI",
		"a chatgptx, a confirmation-like crashing":      "a chatgptx, a approval-like crashing",
		"what is MCP": "what is MCP",
		"":            "",
	} {
		assert.Equal(t, Rephrase(question), want)
	}
	const query = `{"query":"What of ChatGPT?"}`
	r := &ChatRequest{Tools: []Function{{Name: "search", Parameters: json.RawMessage(`{"required":["query"]}`)}}}
	r.Messages = []ChatMessage{{Role: "user", Content: TextContent("What of ChatGPT?")}}
	for _, test := range []struct {
		rephrase func(string) string
		want     string
	}{{nil, query}, {Rephrase, `{"query":"What of OpenAI?"}`}} {
		m := Mistral{BaseURL: "http://offline.invalid/v1", Client: &http.Client{Transport: Offline{test.rephrase}}}
		response, err := m.Complete(t.Context(), r, nil)
		assert.NilError(t, err)
		assert.Equal(t, response.Message.ToolCalls[0].Arguments, test.want)
	}
	choice := &modelChoice{config: new(configuration)}
	assert.Equal(t, choice.rephrase("ChatGPT"), "ChatGPT")
	choice.config.builtIn = true
	assert.Equal(t, choice.rephrase("ChatGPT"), "OpenAI")
}

// TestPeoplesWords: each phrase of people is found as it is written, and stands once; the words for it are in the
// pages.
func TestPeoplesWords(t *testing.T) {
	library := SourceLibrary()
	known := make(map[string]bool)
	for line := range strings.Lines(peoplesWords) {
		page, phrases, hasColon := strings.Cut(strings.TrimSpace(line), ": ")
		assert.Check(t, hasColon, line)
		found := libSearch(t, library, fmt.Sprintf(`{"query":%q,"source_filter":"*.md"}`, page))
		assert.Check(t, found.TotalCount > 0, line)
		for phrase := range strings.SplitSeq(phrases, ", ") {
			assert.Check(t, !known[phrase] && phrase == strings.ToLower(phrase), phrase)
			known[phrase] = true
			assert.Equal(t, Rephrase("x "+phrase+"!"), "x "+page+"!")
		}
	}
}

// firstQuestions are what people ask first, and of each the section that answers it: the page, and a phrase of the
// section. For one without a section nothing may be quoted.
func firstQuestions() [][]string {
	return [][]string{
		{"What is MCP?", "docs/mcp.md", "What is MCP"},
		{"what is mcp and why do i need it", "docs/mcp.md", "Why use MCP, and do I need it?"},
		{"What is MCP, and how do I set up a server?", "docs/start.md", "How do I set up"},
		{"What can this program do?", "docs/start.md", "What can this program do"},
		{"hello", "docs/start.md", "Who are you"},
		{"help", "docs/start.md", "Who are you"},
		{"who are you?", "docs/start.md", "Who are you"},
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
		{"Does it ask before it runs a tool?", "docs/use.md", "How do I stop it asking"},
		{"how do I stop it asking every time", "docs/use.md", "How do I stop it asking"},
		{"Where can I find MCP servers?", "docs/start.md", "find"},
		{"how do I install this", "README.md", "## Install"},
		{"does it run on windows?", "docs/start.md", "Windows"},
		{"where is the config file", "docs/config.md", "Where is the configuration file"},
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
		{"what is this thing and what can I do", "docs/start.md", "What can this program do"},
		{"use two servers at the same time", "docs/use.md", "How do I use several servers"},
		{"which tools a server offers", "docs/use.md", "Which tools are there"},
		{"can a server ask me questions", "docs/use.md", "Which questions may a server ask me"},
		{"can I turn off colours", "docs/use.md", "How do I turn off the colours?"},
		{"what does -q do", "docs/reference.md", "What do -q and -json print"},
		{"exit codes", "docs/reference.md", "What does the exit status"},
		{"how do I add another server", "docs/start.md", "How do I set up"},
		{"how do I change the model", "docs/start.md", "how do I change the model"},
		{"can it read the files on my disk", "docs/start.md", "Can it read the files"},
		{"is it dangerous to let a model run tools", "docs/start.md", "Is it safe"},
		{"how do I see which tools were called", "docs/use.md", "How do I see which tools were called"},
		{"is there a list of all commands", "docs/reference.md", "Is there a list of all commands"},
		{"how do I stop a running question", "docs/use.md", "Ctrl-C"},
		{"What is the weather in Paris?"},
		{"write me a poem about the sea"},
		{"who won the world cup in 2018"},
	}
}

// askPages asks the stand-in a question that it searches the program's own pages for, and returns the answer.
func askPages(t *testing.T, library *Library, question string) string {
	parameters := json.RawMessage(`{"properties":{"source_filter":{"type":"string"},"limit":{"type":"integer"}},` +
		`"required":["query"]}`)
	r := &ChatRequest{Tools: []Function{{Name: "search_chunks", Parameters: parameters}}}
	r.Messages = []ChatMessage{{Role: "user", Content: TextContent(question)}}
	answer := offlineAsk(t, r)
	for len(answer.ToolCalls) > 0 {
		r.Messages = append(r.Messages, answer)
		call := answer.ToolCalls[0]
		found := libCall(t, library, call.Name, call.Arguments).Content[0].Text
		r.Messages = append(r.Messages, ChatMessage{Role: "tool", ToolCallID: call.ID, Content: TextContent(found)})
		answer = offlineAsk(t, r)
	}
	return answer.Content.Text()
}

// TestHeadingsAreAnswered: who asks with the words of a heading, as an answer that names three of them advises, gets
// that section. A chapter may have the name of its first section.
func TestHeadingsAreAnswered(t *testing.T) {
	library, asked := SourceLibrary(), 0
	pages, err := filepath.Glob("docs/*.md")
	assert.NilError(t, err)
	for _, page := range pages {
		text, err := os.ReadFile(page)
		assert.NilError(t, err)
		prose := regexp.MustCompile("(?ms)^```.*?^```$").ReplaceAllString(string(text), "")
		for _, match := range regexp.MustCompile(`(?m)^#+ (.*\?)$`).FindAllStringSubmatch(prose, -1) {
			answer := askPages(t, library, match[1])
			isQuoted := strings.HasPrefix(answer, page+":") && strings.Contains(answer, "# "+match[1]+"\n")
			assert.Check(t, isQuoted || match[1] == "What is authorization?", "%s\n\n%s", match[1], answer)
			asked++
		}
	}
	assert.Assert(t, asked > 150, asked)
}

// TestFirstQuestions asks the program's own pages what people ask first: the right section must be quoted, or be named
// among the three that are nearest. Most are quoted.
func TestFirstQuestions(t *testing.T) {
	library := SourceLibrary()
	assert.Equal(t, len(firstQuestions()), 57)
	quoted := 0
	for _, fields := range firstQuestions() {
		text := askPages(t, library, fields[0])
		if len(fields) == 1 {
			assert.Check(t, strings.HasPrefix(text, "Nothing "), "%s\n\n%s", fields[0], text)
			continue
		}
		quote, _, _ := strings.Cut(text, "\n\nNear to the question are also:")
		isQuoted := strings.HasPrefix(quote, fields[1]+":") && strings.Contains(quote, fields[2])
		isNamed := regexp.MustCompile(`(?m)^- .*` + regexp.QuoteMeta(fields[2]) + `.* \(` + fields[1] + `:`).MatchString(text)
		assert.Check(t, isQuoted || isNamed, "%s\nmust have %s:\n\n%s", fields[0], fields[1:], text)
		if isQuoted {
			quoted++
		}
	}
	assert.Check(t, quoted >= 45, "%d are quoted", quoted)
}
