package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
)

// benchTurns is how many turns the model takes to answer a question: one call of a tool in each, and then the answer.
const benchTurns = 10

const (
	benchTool = `{"name":"search","description":"Searches.","parameters":` +
		`{"type":"object","properties":{"query":{"type":"string"}},"required":["query"]}}`
	benchModelCall = `{"id":"1","model":"m","choices":[{"index":0,"finish_reason":"tool_calls","message":` +
		`{"role":"assistant","content":"","tool_calls":[{"id":"abcdefghi","type":"function","function":` +
		`{"name":"search","arguments":"{\"query\":\"nominalism and realism\"}"}}]}}],` +
		`"usage":{"prompt_tokens":100,"completion_tokens":10,"total_tokens":110}}`
	benchModelText = `{"id":"1","model":"m","choices":[{"index":0,"finish_reason":"stop","message":` +
		`{"role":"assistant","content":"It is a matter of names."}}],` +
		`"usage":{"prompt_tokens":100,"completion_tokens":10,"total_tokens":110}}`
)

var benchToolText = strings.Repeat("A passage of a book. ", 20)

// benchTools has one tool, which answers at once.
type benchTools [1]Function

func (t *benchTools) Functions(context.Context) ([]Function, error) { return t[:], nil }

func (t *benchTools) Call(context.Context, ToolCall) (ToolOutput, error) {
	return ToolOutput{Text: benchToolText}, nil
}

// benchModel answers at once, in place of the network. It allocates nothing itself.
type benchModel struct {
	turn     int
	header   http.Header
	body     benchBody
	response http.Response
}

type benchBody struct{ strings.Reader }

func (*benchBody) Close() error { return nil }

func (m *benchModel) RoundTrip(r *http.Request) (*http.Response, error) {
	_, _ = io.Copy(io.Discard, r.Body)
	r.Body.Close()
	answer := benchModelCall
	if m.turn++; m.turn%benchTurns == 0 {
		answer = benchModelText
	}
	m.body.Reset(answer)
	m.response = http.Response{StatusCode: http.StatusOK, Header: m.header, Body: &m.body,
		ContentLength: int64(len(answer)), Request: r}
	return &m.response, nil
}

func benchModelClient() *http.Client {
	return &http.Client{Transport: &benchModel{header: http.Header{"Content-Type": {"application/json"}}}}
}

func benchAgent() *Agent {
	var f struct {
		Name, Description string
		Parameters        json.RawMessage
	}
	_ = json.Unmarshal([]byte(benchTool), &f)
	tools := &benchTools{{Name: f.Name, Description: f.Description, Parameters: f.Parameters}}
	model := &Mistral{BaseURL: "http://model.test/v1", Model: "m", Client: benchModelClient()}
	return &Agent{Model: model, Tools: tools}
}

// bareMessage is a message as a program has it that knows what this model sends.
type bareMessage struct {
	Role      string `json:"role"`
	Content   string `json:"content"`
	ToolCalls []struct {
		ID       string `json:"id"`
		Type     string `json:"type"`
		Function struct {
			Name      string `json:"name"`
			Arguments string `json:"arguments"`
		} `json:"function"`
	} `json:"tool_calls,omitempty"`
	ToolCallID string `json:"tool_call_id,omitempty"`
	Name       string `json:"name,omitempty"`
}

// bareChat is a loop that encodes and decodes the same messages, and sends them with the same http.Client.
func bareChat(client *http.Client, question string) (string, error) {
	var request struct {
		Model    string          `json:"model"`
		Messages []bareMessage   `json:"messages"`
		Tools    json.RawMessage `json:"tools"`
	}
	request.Model, request.Tools = "m", json.RawMessage(`[{"type":"function","function":`+benchTool+`}]`)
	request.Messages = []bareMessage{{Role: "user", Content: question}}
	for {
		body, err := json.Marshal(&request)
		if err != nil {
			return "", err
		}
		response, err := client.Post("http://model.test/v1/chat/completions", "application/json", bytes.NewReader(body))
		if err != nil {
			return "", err
		}
		body, err = io.ReadAll(response.Body)
		if err != nil {
			return "", err
		}
		var answer struct {
			Choices [1]struct{ Message bareMessage }
		}
		if err := json.Unmarshal(body, &answer); err != nil {
			return "", err
		}
		message := answer.Choices[0].Message
		if message.ToolCalls == nil {
			return message.Content, nil
		}
		request.Messages = append(request.Messages, message)
		for _, call := range message.ToolCalls {
			request.Messages = append(request.Messages,
				bareMessage{Role: "tool", Content: benchToolText, ToolCallID: call.ID, Name: call.Function.Name})
		}
	}
}

// BenchmarkTurn is one turn of an agent, besides the model and the tool.
func BenchmarkTurn(b *testing.B) {
	agent, bare := benchAgent(), benchModelClient()
	turns := func(chat func() (string, error)) func(turns int) {
		return func(turns int) {
			for ; turns > 0; turns -= benchTurns {
				if answer, err := chat(); answer != "It is a matter of names." || err != nil {
					b.Fatalf("%q, %v", answer, err)
				}
			}
		}
	}
	compare(b, "x-raw", 50*benchTurns,
		turns(func() (string, error) { return bareChat(bare, "What is a universal?") }),
		turns(func() (string, error) {
			agent.History = nil
			return agent.Chat(context.Background(), "What is a universal?")
		}))
}
