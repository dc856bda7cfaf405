package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"time"
)

// exampleServer is an MCP server as a child process: this program, with a folder to search.
func exampleServer() Command {
	program, err := os.Executable()
	if err != nil {
		log.Fatal(err)
	}
	return Command{Path: program, Args: []string{"serve", "testdata/library"}}
}

// ExampleClient is the specification's MCPClient at work: start a server, list its tools, call one, stop the server.
func ExampleClient() {
	ctx := context.Background()
	client, err := Connect(ctx, exampleServer().Start, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	tools, err := client.ListTools(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for _, tool := range tools {
		fmt.Println(tool.Name)
	}
	result, err := client.CallTool(ctx, "get_document", json.RawMessage(`{"source": "heron.txt"}`), nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(result.IsError, " ", result.Text())
	// Output:
	// search_chunks
	// list_documents
	// get_document
	// false The heron waits in shallow water until a fish comes near.
}

// ExampleHTTP is the same over HTTP: the server is reached at an address, and nothing is started.
func ExampleHTTP() {
	ctx := context.Background()
	library := NewLibrary(os.DirFS("testdata/library"))
	website := httptest.NewServer(NewLibraryHTTP(library))
	defer website.Close()

	server := HTTP{URL: website.URL, Header: http.Header{"Authorization": {"Bearer example"}}}
	client, err := Connect(ctx, server.Start, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	result, err := client.CallTool(ctx, "get_document", json.RawMessage(`{"source": "heron.txt"}`), nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(result.IsError, " ", result.Text())
	// Output: false The heron waits in shallow water until a fish comes near.
}

// ExampleAgent is the specification's LLMAgent at work: a model answers a question with the tools of a server.
func ExampleAgent() {
	ctx := context.Background()
	client, err := Connect(ctx, exampleServer().Start, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	model := httptest.NewServer(http.HandlerFunc(exampleModel)) // in place of Mistral's
	defer model.Close()

	agent := &Agent{
		Model:    &Mistral{BaseURL: model.URL, Model: "mistral-large-latest"},
		Tools:    exampleTools{client},
		System:   "Search before you answer.",
		MaxTurns: 10,
	}
	answer, err := agent.Chat(ctx, "Which bird waits in shallow water?")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(answer)
	// Output: The library says: The heron waits in shallow water until a fish comes near.
}

// exampleTools lets a model call the tools of one server. Host does this for many, with names that an API accepts.
type exampleTools struct{ client *Client }

// Functions is the specification's _convert_mcp_tools_to_llm_format.
func (t exampleTools) Functions(ctx context.Context) (functions []Function, err error) {
	tools, err := t.client.ListTools(ctx)
	for _, tool := range tools {
		if function, err := ToolFunction(tool.Name, &tool); err == nil {
			functions = append(functions, function)
		}
	}
	return functions, err
}

func (t exampleTools) Call(ctx context.Context, call ToolCall) (ToolOutput, error) {
	result, err := t.client.CallTool(ctx, call.Name, json.RawMessage(call.Arguments), nil)
	if err != nil {
		return ToolOutput{}, err
	}
	return ToolOutput{Text: ModelText(result), IsError: result.IsError}, nil
}

// ExampleHost has a model use a function of this program beside the tools of servers. One is in the
// list; each of them has a Command or a URL.
func ExampleHost() {
	ctx := context.Background()
	host := NewHost([]Server{{Name: "library", Command: exampleServer()}}, nil)
	defer host.Close()
	model := httptest.NewServer(http.HandlerFunc(exampleModel)) // in place of Mistral's
	defer model.Close()

	own := GoTools{{
		Function: Function{Name: "today", Description: "The date of today.", ReadOnly: true},
		Run: func(context.Context, string) (ToolOutput, error) {
			return ToolOutput{Text: time.Now().Format(time.DateOnly)}, nil
		},
	}}
	agent := &Agent{
		Model: &Mistral{BaseURL: model.URL, Model: "mistral-large-latest"},
		Tools: JoinToolboxes(own, host),
		Observe: func(e Event) {
			if e.Kind == CallStarted {
				fmt.Println(e.Call.Name, e.Call.Arguments)
			}
		},
	}
	answer, err := agent.Chat(ctx, "Which bird waits in shallow water?")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(answer)
	// Output:
	// get_document {"source": "heron.txt"}
	// The library says: The heron waits in shallow water until a fish comes near.
}

// ExampleModel has a model of one's own call a function of this program. TestCopiedModel holds docs/copy.md to it.
func ExampleModel() {
	weekday := GoTools{{
		Function: Function{Name: "weekday", Description: "The day of the week.", ReadOnly: true},
		Run:      func(context.Context, string) (ToolOutput, error) { return ToolOutput{Text: "Tuesday"}, nil },
	}}
	agent := &Agent{Model: ruleModel{}, Tools: weekday}
	answer, err := agent.Chat(context.Background(), "Which day is it?")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(answer)
	// Output: It is Tuesday.
}

// ruleModel calls a tool for each question, and answers with what that gave.
type ruleModel struct{}

func (ruleModel) Complete(_ context.Context, r *ChatRequest, onText func(string)) (*ChatResponse, error) {
	last := r.Messages[len(r.Messages)-1]
	if last.Role == "user" {
		call := ToolCall{Name: "weekday", Arguments: `{}`}
		return &ChatResponse{Message: ChatMessage{ToolCalls: []ToolCall{call}}}, nil
	}
	answer := "It is " + last.Content.Text() + "."
	if onText != nil {
		onText(answer)
	}
	return &ChatResponse{Message: ChatMessage{Content: TextContent(answer)}}, nil
}

// exampleModel is a model that reads a document, and then quotes it.
func exampleModel(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	message := `{"role":"assistant","content":"","tool_calls":[{"id":"abcdefghi","function":
		{"name":"get_document","arguments":"{\"source\": \"heron.txt\"}"}}]}`
	if _, result, ok := strings.Cut(string(body), "The heron"); err == nil && ok {
		quote, _, _ := strings.Cut(result, `\n`)
		message = `{"role":"assistant","content":"The library says: The heron` + quote + `"}`
	}
	fmt.Fprintf(w, `{"model":"scripted","choices":[{"index":0,"finish_reason":"stop","message":%s}]}`, message)
}

// ExampleOAuth sends a request to a protected server. OAuth finds the authorization server, registers there, has the
// person log in, and sends the request again with a token.
func ExampleOAuth() {
	server := newOAuthServer() // both servers, in memory; without Base they are reached over the network
	authorised := &OAuth{
		Resource: "https://mcp.test/mcp",
		Base:     server,
		Listen:   listenOAuth(server), // has the person log in
	}
	defer authorised.Close()
	client := &http.Client{Transport: authorised}
	answer, err := client.Post("https://mcp.test/mcp", "text/plain", strings.NewReader("hello"))
	if err != nil {
		log.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(answer.StatusCode, string(text))
	// Output: 200 hello
}
