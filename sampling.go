// sampling.go - a server's request to the model.
// Needs: Go 1.25, json.go, rpc.go, mcp_types.go, mistral.go, mcp_model.go.
// SPDX-License-Identifier: 0BSD

package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base32"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// maxSampleTokens bounds what a server can make the model write, whatever it asks for: somebody else pays. The protocol
// leaves a client free to allow less.
const maxSampleTokens = 8192

// toolUse is a content block of the type tool_use: a call that the model wants.
type toolUse struct {
	Type  string          `json:"type"`
	ID    string          `json:"id"`
	Name  string          `json:"name"`
	Input json.RawMessage `json:"input"` // an object
}

// toolAnswer is a content block of the type tool_result.
type toolAnswer struct {
	ToolUseID string `json:"toolUseId"`
	ToolResult
}

// SampleWith answers a server's sampling/createMessage with a model's next message (MCP 2025-11-25, client, sampling), for
// ClientOptions.Sample. The server chooses every word of the request and sees the answer, and somebody pays for it: whether
// the user agrees is for the caller to find out first.
//
// Hints at a model, and wishes for context of other servers, are not followed: the protocol leaves both to the client.
// A conversation that the protocol does not allow is an *Error with CodeInvalidParams.
func SampleWith(m *Mistral) func(ctx context.Context, r *SampleRequest) (*SampleResult, error) {
	return func(ctx context.Context, r *SampleRequest) (*SampleResult, error) {
		s, err := newSampling(r)
		if err != nil {
			return nil, &Error{Code: CodeInvalidParams, Message: err.Error()}
		}
		answer, err := m.Complete(ctx, &s.chat)
		if err != nil {
			return nil, err
		}
		answer.Model = cmp.Or(answer.Model, m.Model)
		return s.result(r, answer)
	}
}

// sampling is a request on its way from one protocol to the other.
type sampling struct {
	chat      ChatRequest
	functions map[string]string // by tool name; MCP allows names that the API does not
	tools     map[string]string // the other way round
	open      map[string]string // calls of the last message that have no result yet: function by id
}

// newSampling makes a request that the API takes. Its rules on the order of messages are stricter than MCP's, so short
// messages in parentheses stand where it wants one and the server has none.
func newSampling(r *SampleRequest) (*sampling, error) {
	s := &sampling{functions: make(map[string]string), tools: make(map[string]string), open: make(map[string]string)}
	s.chat.MaxTokens = min(max(r.MaxTokens, 1), maxSampleTokens)
	if r.Temperature != nil {
		t := min(max(*r.Temperature, 0), 1.5)
		s.chat.Temperature = &t
	}
	if err := s.offer(r); err != nil {
		return nil, err
	}
	if r.SystemPrompt != "" {
		s.say("system", Text(r.SystemPrompt))
	}
	for i, message := range r.Messages {
		var err error
		waiting := len(s.open) > 0
		switch message.Role {
		case "user":
			err = s.user(message.Content)
		case "assistant":
			err = s.assistant(message.Content)
		default:
			err = fmt.Errorf("the role %q is not known", message.Role)
		}
		if err == nil && waiting && len(s.open) > 0 {
			err = errors.New("not every tool_use of the message before has its tool_result here")
		}
		if err != nil {
			return nil, fmt.Errorf("messages[%d]: %w", i, err)
		}
	}
	switch {
	case len(s.open) > 0:
		return nil, errors.New("the last tool_use has no tool_result")
	case s.last() != "user" && s.last() != "tool":
		s.say("user", Text("(Go on.)"))
	}
	return s, nil
}

// offer takes over the tools, and whether the model has to call one.
func (s *sampling) offer(r *SampleRequest) error {
	if len(r.Tools) > maxFunctions {
		return fmt.Errorf("%d tools are more than the %d that a model can be offered", len(r.Tools), maxFunctions)
	}
	for i, name := range functionNames(r.Tools) {
		tool := &r.Tools[i]
		s.functions[tool.Name], s.tools[name] = name, tool.Name
		s.chat.Tools = append(s.chat.Tools, Function{Name: name, Description: tool.Description, Parameters: tool.InputSchema})
	}
	if r.ToolChoice == nil {
		return nil
	}
	switch s.chat.ToolChoice = r.ToolChoice.Mode; s.chat.ToolChoice {
	case "", "auto", "required", "none":
		return nil
	}
	return fmt.Errorf("the toolChoice %q is not known", r.ToolChoice.Mode)
}

// user takes over a message of the user, or the results of tools, which in the API are messages of their own.
func (s *sampling) user(content SampleContent) error {
	var chunks []map[string]any
	var texts []string // those of chunks
	results := 0
	for i, block := range content {
		switch block.Type {
		case "tool_result":
			results++
			var answer toolAnswer
			if err := json.Unmarshal(block.Raw, &answer); err != nil {
				return fmt.Errorf("tool_result: %w", err)
			}
			id := callID(answer.ToolUseID)
			function, ok := s.open[id]
			if !ok {
				return fmt.Errorf("the tool_result for %q belongs to no tool_use of the message before", answer.ToolUseID)
			}
			delete(s.open, id)
			text := ModelText(&answer.ToolResult)
			if answer.IsError {
				text = "Error: " + text
			}
			s.chat.Messages = append(s.chat.Messages, Message{Role: "tool", Content: Text(text), ToolCallID: id, Name: function})
		case "tool_use":
			return errors.New("a tool_use is not the user's")
		case "image":
			url := "data:" + block.MIMEType + ";base64," + base64.StdEncoding.EncodeToString(block.Data)
			chunks = append(chunks, map[string]any{"type": "image_url", "image_url": map[string]string{"url": url}})
		default:
			text := ModelText(&ToolResult{Content: content[i : i+1]})
			texts = append(texts, text)
			chunks = append(chunks, map[string]any{"type": "text", "text": text})
		}
	}
	said := Text(strings.Join(texts, "\n"))
	if len(chunks) > len(texts) { // not every server takes a list where a string will do
		var err error
		if said, err = chatJSON(chunks); err != nil {
			return err
		}
	}
	switch {
	case results > 0 && results < len(content):
		return errors.New("beside a tool_result nothing else is allowed")
	case results == 0 && s.last() == "tool": // many servers refuse a user's message there
		s.say("assistant", Text("(The results are there.)"))
	}
	s.say("user", said)
	return nil
}

// assistant takes over a message of the model.
func (s *sampling) assistant(content SampleContent) error {
	if s.last() == "" || s.last() == "system" {
		s.say("user", Text("(The assistant begins.)"))
	}
	var texts []string
	var calls []ToolCall
	for i, block := range content {
		switch block.Type {
		case "tool_result":
			return errors.New("a tool_result is not the assistant's")
		case "tool_use":
			var use toolUse
			if err := json.Unmarshal(block.Raw, &use); err != nil {
				return fmt.Errorf("tool_use: %w", err)
			}
			id := callID(use.ID)
			if _, ok := s.open[id]; ok {
				return fmt.Errorf("the id %q is there twice", use.ID)
			}
			if len(use.Input) == 0 || use.Input[0] != '{' {
				return fmt.Errorf("the input of %s is no object", use.Name)
			}
			name, ok := s.functions[use.Name]
			if !ok { // no longer offered
				name = functionNames([]Tool{{Name: use.Name}})[0]
			}
			s.open[id] = name
			calls = append(calls, ToolCall{ID: id, Name: name, Arguments: string(use.Input)})
		default:
			texts = append(texts, ModelText(&ToolResult{Content: content[i : i+1]}))
		}
	}
	s.say("assistant", Text(strings.Join(texts, "\n")), calls...)
	return nil
}

// say appends a message, but not one that says nothing: the API refuses it.
func (s *sampling) say(role string, content Content, calls ...ToolCall) {
	if string(content) != `""` || len(calls) > 0 {
		s.chat.Messages = append(s.chat.Messages, Message{Role: role, Content: content, ToolCalls: calls})
	}
}

// last is the role of the last message; empty if there is none.
func (s *sampling) last() string {
	if len(s.chat.Messages) == 0 {
		return ""
	}
	return s.chat.Messages[len(s.chat.Messages)-1].Role
}

// result makes the server's result of the model's answer.
func (s *sampling) result(r *SampleRequest, answer *ChatResponse) (*SampleResult, error) {
	text, calls := answer.Message.Content.Text(), answer.Message.ToolCalls
	reason := "endTurn"
	// The API has a parameter for stop sequences, but does not tell when one of them was what ended an answer. So the answer is
	// cut here, where the model would have ended it, calls and all.
	stop := len(text)
	for _, sequence := range r.StopSequences {
		if i := strings.Index(text, sequence); sequence != "" && i >= 0 && i <= stop {
			stop, reason = i, "stopSequence"
		}
	}
	switch {
	case reason == "stopSequence":
		text, calls = text[:stop], nil
	case answer.CutOff():
		calls, reason = nil, "maxTokens" // a call that is cut off is not what the model meant
	case answer.FinishReason == "error":
		return nil, errors.New("the model failed in the middle of its answer")
	case s.chat.ToolChoice == "none":
		calls = nil // from a server that does not know the word
	case len(calls) > 0:
		reason = "toolUse"
	}
	var content SampleContent
	if text != "" || len(calls) == 0 {
		content = append(content, ContentBlock{Type: "text", Text: text})
	}
	for _, call := range calls {
		name, ok := s.tools[call.Name]
		if !ok {
			return nil, fmt.Errorf("the model calls %q, which it was not offered", call.Name)
		}
		if input := strings.TrimSpace(call.Arguments); !strings.HasPrefix(input, "{") || !validJSON([]byte(input)) {
			return nil, fmt.Errorf("the model calls %s with arguments that are no JSON object", name)
		}
		raw, err := json.Marshal(toolUse{"tool_use", call.ID, name, json.RawMessage(call.Arguments)})
		if err != nil {
			return nil, err
		}
		content = append(content, ContentBlock{Type: "tool_use", Raw: raw})
	}
	return &SampleResult{Role: "assistant", Content: content, Model: answer.Model, StopReason: reason}, nil
}

var apiCallID = regexp.MustCompile(`^[a-zA-Z0-9]{9}$`)

// callID is a server's id of a call in the only form that the API takes. The same id gives the same, so that the model finds
// its earlier calls as they were.
func callID(id string) string {
	if apiCallID.MatchString(id) {
		return id
	}
	hash := sha256.Sum256([]byte(id))
	return base32.StdEncoding.EncodeToString(hash[:])[:9]
}
