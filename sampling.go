// sampling.go - a server's request to the model.
// Needs: Go 1.25, json, rpc, mcp, mistral, functions.
// SPDX-License-Identifier: 0BSD

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// maxSampleTokens bounds what a server can make the model write: somebody else pays. The protocol lets a client
// allow less than the server asks for.
const maxSampleTokens = 8192

// SampleRequest asks the client's model for a message (schema: CreateMessageRequestParams).
type SampleRequest struct {
	Messages         []SampleMessage `json:"messages"`
	SystemPrompt     string          `json:"systemPrompt,omitempty"`
	MaxTokens        int             `json:"maxTokens"`
	Temperature      *float64        `json:"temperature,omitempty"`
	StopSequences    []string        `json:"stopSequences,omitempty"`
	Tools            []Tool          `json:"tools,omitempty"`
	ToolChoice       SampleChoice    `json:"toolChoice,omitzero"`
	ModelPreferences json.RawMessage `json:"modelPreferences,omitempty"`
	IncludeContext   string          `json:"includeContext,omitempty"`
	Metadata         json.RawMessage `json:"metadata,omitempty"`
}

// Parts returns all that a model would get of the request, for a user to decide about: texts as they are, tools with
// their schemas, bytes by type and size.
func (r *SampleRequest) Parts() (parts []string) {
	if r.SystemPrompt != "" {
		parts = append(parts, "system: "+r.SystemPrompt)
	}
	for _, tool := range r.Tools {
		parts = append(parts, fmt.Sprintf("tool %s: %s %s", tool.Name, tool.Description, tool.InputSchema))
	}
	for _, m := range r.Messages {
		for i := range m.Content {
			parts = append(parts, m.Role+": "+ModelText(&ToolResult{Content: m.Content[i : i+1]}))
		}
	}
	return parts
}

// SampleChoice says whether the model must, may or must not call a tool.
type SampleChoice struct {
	Mode string `json:"mode,omitempty"` // auto, required, none
}

// SampleMessage is one message of a sampling request.
type SampleMessage struct {
	Role    string        `json:"role"` // user or assistant
	Content SampleContent `json:"content"`
}

// SampleContent is one block or, since 2025-11-25, an array of them.
type SampleContent []ContentBlock

// SampleResult is the model's message (schema: CreateMessageResult).
type SampleResult struct {
	Role       string        `json:"role"`
	Content    SampleContent `json:"content"`
	Model      string        `json:"model"`
	StopReason string        `json:"stopReason,omitempty"` // endTurn, stopSequence, maxTokens, toolUse
}

// UnmarshalJSON takes both forms.
func (c *SampleContent) UnmarshalJSON(text []byte) error {
	if len(text) > 0 && text[0] == '[' {
		return json.Unmarshal(text, (*[]ContentBlock)(c))
	}
	*c = make(SampleContent, 1)
	return json.Unmarshal(text, &(*c)[0])
}

// MarshalJSON writes a single block as such, which every revision takes.
func (c SampleContent) MarshalJSON() ([]byte, error) {
	if len(c) == 1 {
		return json.Marshal(c[0])
	}
	return json.Marshal(append([]ContentBlock{}, c...)) // never null, and not of this type: it would come back here
}

// SampleAnswer returns the answer to sampling/createMessage, for ClientOptions.Answers. sample returns the model's
// message; SampleWith makes such a function.
func SampleAnswer(sample func(ctx context.Context, r *SampleRequest) (*SampleResult, error)) Responder {
	return Responder{
		Capability: "sampling",
		Declare:    map[string]any{"tools": struct{}{}},
		Reply: func(ctx context.Context, params json.RawMessage) (any, error) {
			r := new(SampleRequest)
			if err := json.Unmarshal(params, r); err != nil {
				return nil, &Error{Code: CodeInvalidParams, Message: err.Error()}
			}
			return sample(ctx, r)
		},
	}
}

// toolUse is a content block of the type tool_use: a call that the model wants.
type toolUse struct {
	Type  string          `json:"type"`
	ID    string          `json:"id"`
	Name  string          `json:"name"`
	Input json.RawMessage `json:"input"` // an object
}

// SampleWith answers a server's sampling/createMessage with a model's next message (MCP 2025-11-25, client,
// sampling). The server chooses every word of the request and sees the answer, and somebody pays for it: the caller
// is to ask the user first.
//
// Hints at a model, and wishes for context of other servers, are not followed: the protocol leaves both to the client.
// For a conversation that the protocol does not allow, the error is an *Error with CodeInvalidParams.
func SampleWith(m *Mistral) func(ctx context.Context, r *SampleRequest) (*SampleResult, error) {
	return func(ctx context.Context, r *SampleRequest) (*SampleResult, error) {
		s, err := newSampling(r)
		if err != nil {
			return nil, &Error{Code: CodeInvalidParams, Message: err.Error()}
		}
		answer, err := m.Complete(ctx, &s.chat, nil)
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
		s.say("system", TextContent(r.SystemPrompt))
	}
	for i, message := range r.Messages {
		waiting := len(s.open) > 0
		err := s.add(message.Role, message.Content)
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
		s.say("user", TextContent("(Go on.)"))
	}
	return s, nil
}

// offer adds the tools, and whether the model has to call one.
func (s *sampling) offer(r *SampleRequest) error {
	if len(r.Tools) > MaxFunctions {
		return fmt.Errorf("%d tools are more than the %d that a model can be offered", len(r.Tools), MaxFunctions)
	}
	for i, name := range FunctionNames("", r.Tools) {
		tool := &r.Tools[i]
		s.functions[tool.Name], s.tools[name] = name, tool.Name
		function, err := ToolFunction(name, tool)
		if err != nil {
			return fmt.Errorf("tool %s: %w", tool.Name, err)
		}
		s.chat.Tools = append(s.chat.Tools, function)
	}
	switch s.chat.ToolChoice = r.ToolChoice.Mode; s.chat.ToolChoice {
	case "", "auto", "required", "none":
		return nil
	}
	return fmt.Errorf("the toolChoice %q is not known", r.ToolChoice.Mode)
}

// add adds a message of the server's. In the API, results of tools are messages of their own.
func (s *sampling) add(role string, content SampleContent) error {
	var chunks []map[string]any
	var texts []string // those of chunks
	var calls []ToolCall
	results := 0
	for i, block := range content {
		var err error
		switch {
		case block.Type == "tool_use" && role == "assistant":
			calls, err = s.addCall(calls, block.Raw)
		case block.Type == "tool_result" && role == "user":
			err = s.addResult(block.Raw)
			results++
		case block.Type == "tool_use", block.Type == "tool_result":
			err = fmt.Errorf("a %s is not the %s's", block.Type, role)
		default:
			part := &ToolResult{Content: content[i : i+1]}
			text, images := ModelContent(part, nil)
			if len(images) > 0 && role == "user" {
				url := map[string]string{"url": images[0]}
				chunks = append(chunks, map[string]any{"type": "image_url", "image_url": url})
				continue
			}
			if len(images) > 0 {
				text = ModelText(part)
			}
			texts = append(texts, text)
			chunks = append(chunks, map[string]any{"type": "text", "text": text})
		}
		if err != nil {
			return err
		}
	}
	said := TextContent(strings.Join(texts, "\n"))
	if len(chunks) > len(texts) { // not every server takes a list where a string will do
		said, _ = PlainJSON(chunks) // strings always encode
	}
	switch last := s.last(); {
	case results > 0 && results < len(content):
		return errors.New("beside a tool_result nothing else is allowed")
	case role == "assistant" && (last == "" || last == "system"):
		s.say("user", TextContent("(The assistant begins.)"))
	case role == "user" && results == 0 && last == "tool": // many servers refuse a user's message there
		s.say("assistant", TextContent("(The results are there.)"))
	case role != "user" && role != "assistant":
		return fmt.Errorf("the role %q is not known", role)
	}
	s.say(role, said, calls...)
	return nil
}

// addResult adds the result of a tool.
func (s *sampling) addResult(raw json.RawMessage) error {
	var result struct {
		ToolUseID string `json:"toolUseId"`
		ToolResult
	}
	if err := json.Unmarshal(raw, &result); err != nil {
		return fmt.Errorf("tool_result: %w", err)
	}
	function, ok := s.open[result.ToolUseID]
	if !ok {
		return fmt.Errorf("the tool_result for %q belongs to no tool_use of the message before", result.ToolUseID)
	}
	delete(s.open, result.ToolUseID)
	text := ModelText(&result.ToolResult)
	if result.IsError {
		text = "Error: " + text
	}
	message := ChatMessage{Role: "tool", Content: TextContent(text), ToolCallID: result.ToolUseID, Name: function}
	s.chat.Messages = append(s.chat.Messages, message)
	return nil
}

// addCall adds a call to those of a message.
func (s *sampling) addCall(calls []ToolCall, raw json.RawMessage) ([]ToolCall, error) {
	var use toolUse
	if err := json.Unmarshal(raw, &use); err != nil {
		return nil, fmt.Errorf("tool_use: %w", err)
	}
	if _, ok := s.open[use.ID]; ok {
		return nil, fmt.Errorf("the id %q is used twice", use.ID)
	}
	if len(use.Input) == 0 || use.Input[0] != '{' {
		return nil, fmt.Errorf("the input of %s is not an object", use.Name)
	}
	name, ok := s.functions[use.Name]
	if !ok { // no longer offered
		name = FunctionNames("", []Tool{{Name: use.Name}})[0]
	}
	s.open[use.ID] = name
	return append(calls, ToolCall{ID: use.ID, Name: name, Arguments: string(use.Input)}), nil
}

// say appends a message, but not one that says nothing: the API refuses it.
func (s *sampling) say(role string, content Content, calls ...ToolCall) {
	if string(content) != `""` || len(calls) > 0 {
		s.chat.Messages = append(s.chat.Messages, ChatMessage{Role: role, Content: content, ToolCalls: calls})
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
	// The API has a parameter for stop sequences, but does not report that one of them ended an answer. So the answer
	// is cut here, where the model would have ended it, calls and all.
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
		input, _, err := ParseArguments(call.Arguments)
		if err != nil {
			return nil, fmt.Errorf("the model calls %s, but %w", name, err)
		}
		raw, _ := json.Marshal(toolUse{"tool_use", call.ID, name, json.RawMessage(input)}) // input is valid
		content = append(content, ContentBlock{Type: "tool_use", Raw: raw})
	}
	return &SampleResult{Role: "assistant", Content: content, Model: answer.Model, StopReason: reason}, nil
}
