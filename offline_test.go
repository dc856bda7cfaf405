package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

func ExampleOffline() {
	model := Mistral{
		BaseURL: "http://offline.invalid/v1", Model: "offline",
		Client: &http.Client{Transport: Offline{}},
	}
	request := &ChatRequest{
		Messages: []Message{{Role: "user", Content: Text("How hot is the water for tea?")}},
		Tools: []Function{{
			Name: "search_chunks", Description: "Search the library",
			Parameters: json.RawMessage(`{"type":"object","properties":{"query":{"type":"string"}},"required":["query"]}`),
		}},
	}
	response, err := model.Complete(context.Background(), request)
	call := response.Message.ToolCalls[0]
	fmt.Println(err, call.Name, call.Arguments)

	request.Messages = append(request.Messages, response.Message, Message{
		Role: "tool", ToolCallID: call.ID, Name: call.Name,
		Content: Text(`{"results":[{"text":"Pour water of 80 degrees.","source":"tea.md","start_line":3}]}`),
	})
	response, err = model.Complete(context.Background(), request)
	fmt.Println(err)
	fmt.Println(response.Message.Content.Text())
	// Output:
	// <nil> search_chunks {"query":"How hot is the water for tea?"}
	// <nil>
	// tea.md:3
	//     Pour water of 80 degrees.
	//
	// (This is no language model: it picks a tool and quotes what comes back. Set MISTRAL_API_KEY to ask a real one.)
}

func offlineUser(text string) Message { return Message{Role: "user", Content: Text(text)} }

// offlineFunctions reads tools from lines: the name, the parameters with ! behind the required ones and = before an enum's
// values, and the description.
func offlineFunctions(lines string) (all []Function) {
	for line := range strings.Lines(strings.TrimSpace(lines)) {
		head, description, _ := strings.Cut(strings.TrimSpace(line), " - ")
		words := strings.Fields(head)
		properties, required := map[string]any{}, []string{}
		for _, p := range words[1:] {
			p, values, isEnum := strings.Cut(p, "=")
			p, kind, typed := strings.Cut(p, ":")
			if !typed {
				kind = "string"
			}
			name := strings.TrimSuffix(p, "!")
			if name != p {
				required = append(required, name)
			}
			property := map[string]any{"type": kind}
			if isEnum {
				property["enum"] = strings.Split(values, "|")
			}
			if kind == "null" {
				property = map[string]any{"anyOf": []any{map[string]any{"type": "string"}, map[string]any{"type": "null"}}}
			}
			properties[name] = property
		}
		schema, _ := json.Marshal(map[string]any{"type": "object", "properties": properties, "required": required})
		all = append(all, Function{Name: words[0], Description: description, Parameters: schema})
	}
	return all
}

// The tools of some servers that people use, in their own words.
const (
	offlineEverything = `
		echo message! - Echoes back the input string
		get-annotated-message messageType!=error|success|debug includeImage:boolean - Demonstrates how annotations can be used to provide metadata about content.
		get-env - Returns all environment variables, helpful for debugging MCP server configuration
		get-resource-links count:number - Returns up to ten resource links that reference different types of resources
		get-structured-content location!=New_York|Chicago|Los_Angeles - Returns structured content along with an output schema for client data validation
		get-sum a!:number b!:number - Returns the sum of two numbers
		get-tiny-image - Returns a tiny MCP logo image.
		toggle-simulated-logging - Toggles simulated, random-leveled logging on or off.
		trigger-long-running-operation duration:number steps:number - Demonstrates a long running operation with progress updates.`
	offlineFiles = `
		read_text_file path! tail:number head:number - Read the complete contents of a file from the file system as text.
		read_multiple_files paths!:array - Read the contents of multiple files simultaneously.
		write_file path! content! - Create a new file or completely overwrite an existing file with new content.
		create_directory path! - Create a new directory or ensure a directory exists.
		list_directory path! - Get a detailed listing of all files and directories in a specified path.
		get_file_info path! - Retrieve detailed metadata about a file or directory.
		list_allowed_directories - Returns the list of directories that this server is allowed to access.`
	offlineMemory = `
		create_entities entities!:array - Create multiple new entities in the knowledge graph
		delete_entities entityNames!:array - Delete multiple entities and their associated relations from the knowledge graph
		read_graph - Read the entire knowledge graph
		search_nodes query! - Search for nodes in the knowledge graph based on a query
		open_nodes names!:array - Open specific nodes in the knowledge graph by their names`
	offlineRAG = `
		search_chunks query! limit:integer min_similarity:number author_filter:null work_filter:null - Search the library for passages that fit a question, best first.
		parse_pdf pdf_path! - Take a PDF file into the library. This takes time, and progress is reported.`
	offlineOwn = `
		search_chunks query! limit:integer min_similarity:number source_filter - Search the library for passages about a question or some key words.
		list_documents source_filter - List the documents of the library with their size, and what was left out of it.
		get_document source! start_line:integer end_line:integer - Return the text of a document of the library, or some lines of it.`
)

// offlineAsk is one request to the model, through the client.
func offlineAsk(t *testing.T, r *ChatRequest) Message {
	t.Helper()
	m := Mistral{BaseURL: "http://offline.invalid/v1", Model: "offline", Client: &http.Client{Transport: Offline{}}}
	response, err := m.Complete(t.Context(), r)
	assert.NilError(t, err)
	var streamed strings.Builder
	stream, err := m.Stream(t.Context(), r, func(s string) { streamed.WriteString(s) })
	assert.NilError(t, err)
	assert.Equal(t, stream.Message.Content.Text(), response.Message.Content.Text())
	assert.Equal(t, streamed.String(), response.Message.Content.Text())
	assert.DeepEqual(t, stream.Message.ToolCalls, response.Message.ToolCalls)
	assert.Equal(t, stream.FinishReason, response.FinishReason)
	assert.Equal(t, response.FinishReason == "tool_calls", len(response.Message.ToolCalls) > 0)
	return response.Message
}

func TestOfflinePicksATool(t *testing.T) {
	for _, test := range []struct{ tools, question, want string }{
		{offlineOwn, "How does a call find its answer?", `search_chunks {"query":"How does a call find its answer?"}`},
		{offlineOwn, "Which documents are there?", `list_documents {}`},
		{offlineOwn, `Where is "the end" handled?`, `search_chunks {"query":"the end"}`},
		{offlineRAG, "What did Peirce say about nominalism?", `search_chunks {"query":"What did Peirce say about nominalism?"}`},
		{offlineRAG, "parse the PDF peirce.pdf", `parse_pdf {"pdf_path":"peirce.pdf"}`},
		{offlineRAG, "Is there a word in peirce.pdf about it?", `search_chunks {"query":"Is there a word in peirce.pdf about it?"}`},
		{offlineEverything, `Please echo "hello, world"`, `echo {"message":"hello, world"}`},
		{offlineEverything, "What is it?", `echo {"message":"What is it?"}`},
		{offlineEverything, "Show me the environment variables", `get-env {}`},
		{offlineEverything, "structured content for Chicago, please", `get-structured-content {"location":"Chicago"}`},
		{offlineFiles, "What is in notes.txt?", `read_text_file {"path":"notes.txt"}`},
		{offlineFiles, `Read the file "my notes.txt"`, `read_text_file {"path":"my notes.txt"}`},
		{offlineFiles, "Which files are in the directory /tmp/x?", `list_directory {"path":"/tmp/x"}`},
		{offlineFiles, "create the directory /tmp/x", `create_directory {"path":"/tmp/x"}`},
		{offlineFiles, "Which directories are allowed?", `list_allowed_directories {}`},
		{offlineMemory, "What do you know about Alice?", `search_nodes {"query":"What do you know about Alice?"}`},
		{"weather city! - Tells the weather of a city", "Is it warm in Paris today?", `weather {"city":"Paris"}`},
		{"ask question! - Asks an expert", "Why?", `ask {"question":"Why?"}`},
		{"lookup q - Looks a word up", "serendipity", `lookup {"q":"serendipity"}`},
	} {
		reply := offlineAsk(t, &ChatRequest{Messages: []Message{offlineUser(test.question)}, Tools: offlineFunctions(test.tools)})
		assert.Equal(t, len(reply.ToolCalls), 1, "%s: %s", test.question, reply.Content.Text())
		call := reply.ToolCalls[0]
		assert.Equal(t, call.Name+" "+call.Arguments, test.want, test.question)
		assert.Equal(t, call.ID, "call00001")
	}
}

func TestOfflineWithoutASuitableTool(t *testing.T) {
	for name, r := range map[string]*ChatRequest{
		"no tools":      {},
		"two texts":     {Tools: offlineFunctions("compare left! right! - Compares a question with another")},
		"numbers":       {Tools: offlineFunctions("get-sum a!:number b!:number - Adds\nsquare n!:number - Squares the question")},
		"no path":       {Tools: offlineFunctions("read_file path! - Reads a question")},
		"not asked for": {Tools: offlineFunctions("delete_all - Deletes\ndrop table! - Drops\ntoggle-logging - Toggles")},
		"an enum":       {Tools: offlineFunctions("weather city!=Paris|London - Tells the weather")},
		"no schema":     {Tools: []Function{{Name: "search", Parameters: json.RawMessage(`{"type":"object","properties":{"query":true},"required":["query"]}`)}}},
		"odd schema":    {Tools: []Function{{Name: "search", Parameters: json.RawMessage(`{"type":"object","properties":{},"required":"query"}`)}}},
		"forbidden":     {Tools: offlineFunctions(offlineOwn), ToolChoice: "none"},
	} {
		r.Messages = []Message{offlineUser("What is the question?")}
		reply := offlineAsk(t, r)
		assert.Equal(t, len(reply.ToolCalls), 0, name)
		assert.Equal(t, reply.Content.Text(), "None of the tools offered can be used with the words of this question.\n\n"+offlineNote, name)
	}
}

// offlineTalk lets the model have its way until it answers; tool is what a call returns.
func offlineTalk(t *testing.T, history []Message, tools string, tool func(call ToolCall) string) (calls []string, _ []Message) {
	t.Helper()
	for range 10 {
		reply := offlineAsk(t, &ChatRequest{Messages: history, Tools: offlineFunctions(tools)})
		history = append(history, reply)
		if len(reply.ToolCalls) == 0 {
			return calls, history
		}
		for _, c := range reply.ToolCalls {
			calls = append(calls, c.Name+" "+c.Arguments)
			history = append(history, Message{Role: "tool", ToolCallID: c.ID, Name: c.Name, Content: Text(tool(c))})
		}
	}
	t.Fatal("no answer")
	return nil, nil
}

func offlineLast(history []Message) string { return history[len(history)-1].Content.Text() }

func TestOfflineTriesFewerWordsWhereNothingIsFound(t *testing.T) {
	calls, history := offlineTalk(t, []Message{offlineUser("What do you know about Alice?")}, offlineMemory, func(c ToolCall) string {
		if strings.Contains(c.Arguments, `"Alice"`) {
			return `{"entities":[{"name":"Alice","observations":["likes tea"]}],"relations":[]}`
		}
		return `{"entities":[],"relations":[]}`
	})
	assert.DeepEqual(t, calls, []string{
		`search_nodes {"query":"What do you know about Alice?"}`, `search_nodes {"query":"know Alice"}`, `search_nodes {"query":"Alice"}`,
	})
	assert.Assert(t, is.Contains(offlineLast(history), "search_nodes\n    {\"entities\":[{\"name\":\"Alice\",\"observations\":[\"likes tea\"]}]"))
	assert.Assert(t, strings.HasSuffix(offlineLast(history), "\n\n"+offlineNote))
}

func TestOfflineTriesAnotherToolAfterAnError(t *testing.T) {
	for _, failure := range []string{
		"Error: ENOENT: no such file or directory", "MCP error -32602: Input validation error", "Access denied - path outside allowed directories",
		`{"success":false,"error":"not a file"}`, "read_text_file: unknown path",
	} {
		calls, history := offlineTalk(t, []Message{offlineUser("What is in notes.txt?")}, offlineFiles, func(c ToolCall) string {
			if c.Name == "read_text_file" {
				return failure
			}
			return "size: 7"
		})
		assert.Equal(t, len(calls), 2, "%s: %v", failure, calls)
		assert.Assert(t, calls[0] != calls[1])
		assert.Assert(t, is.Contains(offlineLast(history), "\n    size: 7\n"))
	}
}

func TestOfflineLeavesAToolThatFailed(t *testing.T) {
	calls, _ := offlineTalk(t, []Message{offlineUser("What is tea made of?")}, "search query! - Search for tea\nask question! - Ask", func(c ToolCall) string {
		if c.Name == "search" {
			return "Error: broken"
		}
		return "leaves"
	})
	assert.DeepEqual(t, calls, []string{`search {"query":"What is tea made of?"}`, `ask {"question":"What is tea made of?"}`})
}

func TestOfflineGivesUp(t *testing.T) {
	for _, nothing := range []string{
		"", " \n", "null", "[]", "{}", `{"results":[],"total_count":0,"query":"x"}`, "No results found.",
		"(The tool returned no text.)", "Error: broken", "Error: " + strings.Repeat("broken ", 100),
	} {
		calls, history := offlineTalk(t, []Message{offlineUser("What is a zebra in Africa?")}, offlineOwn+offlineMemory, func(ToolCall) string { return nothing })
		assert.Assert(t, len(calls) > 1 && len(calls) <= offlineCalls, "%q: %v", nothing, calls)
		assert.Assert(t, strings.HasPrefix(offlineLast(history), "The tools found nothing.\n\nsearch_"), offlineLast(history))
		assert.Assert(t, strings.HasSuffix(offlineLast(history), offlineNote))
	}
}

func TestOfflineAnswersTheLastQuestion(t *testing.T) {
	tool := func(c ToolCall) string { return "about " + c.Arguments }
	_, history := offlineTalk(t, []Message{{Role: "system", Content: Text("Be brief.")}, offlineUser("What is tea?")}, offlineOwn, tool)
	calls, history := offlineTalk(t, append(history, offlineUser("What is coffee?")), offlineOwn, tool)
	assert.DeepEqual(t, calls, []string{`search_chunks {"query":"What is coffee?"}`}) // though a result is in the history
	assert.Assert(t, is.Contains(offlineLast(history), "coffee"))
	assert.Assert(t, !strings.Contains(offlineLast(history), "tea"))
	ids := map[string]bool{}
	for _, m := range history {
		for _, c := range m.ToolCalls {
			assert.Assert(t, !ids[c.ID] && len(c.ID) == 9, c.ID)
			ids[c.ID] = true
		}
	}
	assert.Equal(t, len(ids), 2)
}

func TestOfflineQuotes(t *testing.T) {
	quote := func(question, result string) string {
		_, history := offlineTalk(t, []Message{offlineUser(question)}, offlineOwn, func(ToolCall) string { return result })
		return strings.TrimSuffix(offlineLast(history), offlineNote)
	}
	var long []string
	for i := range 40 {
		long = append(long, fmt.Sprintf("line %d", i))
	}
	long[21] = "here is the tea"
	passages := func(results ...map[string]any) string {
		b, err := json.Marshal(map[string]any{"results": results, "total_count": len(results)})
		assert.NilError(t, err)
		return string(b)
	}
	// The lines that matter, with the number of the first.
	got := quote("Where is the tea?", passages(map[string]any{"text": strings.Join(long, "\n"), "source": "a.txt", "start_line": 101}))
	assert.Equal(t, got, "a.txt:115\n    "+strings.Join(long[14:22], "\n    ")+"\n\n")

	// An example of asking the question is not its answer.
	question := "What is tea?"
	got = quote(question, passages(
		map[string]any{"text": "$ prog \"What is tea?\"", "source": "README.md", "start_line": 1},
		map[string]any{"text": "Tea is a drink.", "source": "tea.md", "start_line": 2},
	))
	assert.Equal(t, got, "tea.md:2\n    Tea is a drink.\n\nREADME.md:1\n    $ prog \"What is tea?\"\n\n")

	// Without source and lines, whatever else says where it is from.
	got = quote(question, passages(map[string]any{"text": "Tea.", "author": "Peirce", "work": "Letters", "similarity": 0.5}))
	assert.Equal(t, got, "Peirce, Letters\n    Tea.\n\n")

	// Three of many, and other forms as they are.
	got = quote(question, passages(map[string]any{"text": "1"}, map[string]any{"text": "2"}, map[string]any{"text": "3"}, map[string]any{"text": "4"}))
	assert.Equal(t, got, "search_chunks\n    1\n\nsearch_chunks\n    2\n\nsearch_chunks\n    3\n\n")
	assert.Equal(t, quote(question, "Tea is a drink.\n"), "search_chunks\n    Tea is a drink.\n\n")
	assert.Equal(t, quote(question, `{"temperature":20}`), "search_chunks\n    {\"temperature\":20}\n\n")
	got = quote(question, strings.Repeat("é", 100_000))
	assert.Assert(t, len(got) < 1300 && strings.HasSuffix(got, "é […]\n\n"))
}

func TestOfflineRefusesAsTheAPIDoes(t *testing.T) {
	send := func(method, url, body string) (*http.Response, string) {
		r, err := http.NewRequest(method, url, strings.NewReader(body))
		assert.NilError(t, err)
		resp, err := Offline{}.RoundTrip(r)
		assert.NilError(t, err)
		b, err := io.ReadAll(resp.Body)
		assert.NilError(t, err)
		assert.NilError(t, resp.Body.Close())
		assert.Equal(t, resp.ContentLength, int64(len(b)))
		assert.Assert(t, resp.Request == r)
		return resp, string(b)
	}
	const path = "http://offline.invalid/v1/chat/completions"
	for _, test := range []struct {
		method, url, body string
		status            int
		message           string
	}{
		{"POST", path, `{`, 400, "the request cannot be read: unexpected end of JSON input"},
		{"POST", path, `[]`, 400, "the request cannot be read: "},
		{"POST", path, ``, 400, "the request cannot be read: "},
		{"POST", path, `{"messages":7}`, 400, "the request cannot be read: "},
		{"POST", path, `{}`, 400, "messages: a user message is needed"},
		{"POST", path, `{"messages":[{"role":"system","content":"x"}]}`, 400, "messages: a user message is needed"},
		{"POST", path, `{"messages":[{"role":"user","content":"x"},{"role":"assistant","content":"y"}]}`, 400, "messages: a user message is needed"},
		{"POST", path, `{"messages":[{"role":"tool","content":"x"}]}`, 400, "messages: a user message is needed"},
		{"GET", path, ``, 405, "the method is POST"},
		{"GET", "http://offline.invalid/v1/models", ``, 404, "there is only /chat/completions, no /v1/models"},
	} {
		resp, body := send(test.method, test.url, test.body)
		assert.Equal(t, resp.StatusCode, test.status, test.body)
		var e struct{ Object, Message, Type string }
		assert.NilError(t, json.Unmarshal([]byte(body), &e))
		assert.Equal(t, e.Object+" "+e.Type, "error invalid_request_error")
		assert.Assert(t, is.Contains(e.Message, test.message), test.body)
	}
	resp, body := send("POST", path, `{"messages":[{"role":"user","content":[{"type":"text","text":"x"}]}],"stream":true}`)
	assert.Equal(t, resp.Header.Get("Content-Type"), "text/event-stream")
	assert.Assert(t, strings.HasPrefix(body, "data: {") && strings.HasSuffix(body, "\n\ndata: [DONE]\n\n"))

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r, err := http.NewRequestWithContext(ctx, "POST", path, bytes.NewReader(nil))
	assert.NilError(t, err)
	_, err = Offline{}.RoundTrip(r)
	assert.Assert(t, errors.Is(err, context.Canceled))
}

// Whatever a tool or a user says, there is an answer and no panic.
func FuzzOffline(f *testing.F) {
	f.Add("What is \"tea\" in a.txt?", `{"results":[{"text":"x","start_line":1e99},7]}`, `{"properties":{"q":{"type":["string"]}}}`)
	f.Add("'", "", `{"required":["a"],"properties":{"a":{"enum":[null,1]}}}`)
	f.Fuzz(func(t *testing.T, question, result, schema string) {
		if !json.Valid([]byte(schema)) {
			schema = "{}"
		}
		var r offlineRequest
		body, _ := json.Marshal(map[string]any{
			"messages": []Message{offlineUser(question)},
			"tools":    []any{map[string]any{"function": map[string]any{"name": "search", "parameters": json.RawMessage(schema)}}},
		})
		assert.NilError(t, json.Unmarshal(body, &r))
		for range offlineCalls + 1 {
			reply := r.reply()
			if len(reply.ToolCalls) == 0 {
				assert.Assert(t, strings.HasSuffix(reply.Content.Text(), offlineNote))
				return
			}
			r.Messages = append(r.Messages, reply, Message{Role: "tool", ToolCallID: reply.ToolCalls[0].ID, Content: Text(result)})
		}
		t.Fatal("no answer")
	})
}

// The README's question, with no key and no network.
func TestOfflineOverTheOwnSource(t *testing.T) {
	source := SourceLibrary()
	_, history := offlineTalk(t, []Message{offlineUser("How does a call find its answer?")}, offlineOwn, func(c ToolCall) string {
		result, err := libCall(t, source, c.Name, c.Arguments)
		assert.NilError(t, err)
		return result.Content[0].Text
	})
	first, _, _ := strings.Cut(offlineLast(history), "\n\n")
	assert.Assert(t, strings.HasPrefix(first, "rpc.go:") && strings.Contains(first, "pending map"), offlineLast(history))
}
