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

// maxSampleTokens bounds what a server can make the model write: somebody else pays. The protocol
// lets a client allow less than the server asks for.
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

// Parts returns all that a model would get of the request, for a user to decide about: texts as
// they are, tools with their schemas, bytes by type and size.
func (r *SampleRequest) Parts() []string {
	var parts []string
	if r.SystemPrompt != "" {
		parts = append(parts, "system: "+r.SystemPrompt)
	}
	for _, tool := range r.Tools {
		part := fmt.Sprintf("tool %s: %s %s", tool.Name, tool.Description, tool.InputSchema)
		parts = append(parts, part)
	}
	for _, m := range r.Messages {
		for i := range m.Content {
			block := &ToolResult{Content: m.Content[i : i+1]}
			parts = append(parts, m.Role+": "+ModelText(block))
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
	Role    string        `json:"role"`
	Content SampleContent `json:"content"`
	Model   string        `json:"model"`

	// StopReason is endTurn, stopSequence, maxTokens or toolUse.
	StopReason string `json:"stopReason,omitempty"`
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
	// The list is never nil, which would be null, and of another type, whose encoding does not come
	// back here.
	return json.Marshal(append([]ContentBlock{}, c...))
}

// SampleAnswer returns the answer to sampling/createMessage, for ClientOptions.Answers. sample
// returns the model's message; SampleWith makes such a function.
func SampleAnswer(
	sample func(ctx context.Context, r *SampleRequest) (*SampleResult, error),
) Responder {
	return Responder{
		Capability: "sampling",
		Declare:    map[string]any{"tools": struct{}{}},
		Reply: func(ctx context.Context, params json.RawMessage) (any, error) {
			r := new(SampleRequest)
			err := decodeJSON("params", params, r)
			if err != nil {
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

// SampleWith answers a server's sampling/createMessage with a model's next message (MCP 2025-11-25,
// client, sampling). The server chooses every word of the request and sees the answer, and somebody
// pays for it: the caller is to ask the user first.
//
// Hints at a model, and wishes for context of other servers, are not followed: the protocol leaves
// both to the client. For a conversation that the protocol does not allow, the error is an *Error
// with CodeInvalidParams.
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
		// The protocol wants the name of the model, which not every server says.
		answer.Model = cmp.Or(answer.Model, m.Model)
		return s.result(r, answer)
	}
}

// sampling is a request on its way from one protocol to the other. MCP allows names of tools that
// the API does not, so that each tool has two names.
type sampling struct {
	chat      ChatRequest
	functions map[string]string // the name for the API, by that of the server
	tools     map[string]string // the name of the server, by that for the API

	// openCalls are the calls of the last message that have no result yet: the name of the
	// function, by the id of the call.
	openCalls map[string]string

	// excessImages is how many of the next images are left out, for the last MaxImages of the
	// request to be sent: a server that shows screenshots asks about the newest.
	excessImages int
}

// newSampling makes a request that the API takes. The API is stricter than MCP about the order of
// messages. Where it demands a message that the server did not send, a short one in parentheses is
// put in, such as (Go on.).
func newSampling(r *SampleRequest) (*sampling, error) {
	s := &sampling{
		functions: make(map[string]string),
		tools:     make(map[string]string),
		openCalls: make(map[string]string),
	}
	s.chat.MaxTokens = min(max(r.MaxTokens, 1), maxSampleTokens)
	if r.Temperature != nil {
		temperature := min(max(*r.Temperature, 0), MaxTemperature)
		s.chat.Temperature = &temperature
	}
	if err := s.offerTools(r); err != nil {
		return nil, err
	}
	if r.SystemPrompt != "" {
		s.say("system", TextContent(r.SystemPrompt))
	}
	s.excessImages = countImages(r) - MaxImages
	// Each tool_use has its tool_result in the next message (MCP 2025-11-25, client, sampling). A
	// model's API refuses a conversation where that is not so, in words that do not help the
	// server.
	for i, message := range r.Messages {
		hadOpenCalls := len(s.openCalls) > 0
		err := s.addMessage(message.Role, message.Content)
		if err == nil && hadOpenCalls && len(s.openCalls) > 0 {
			err = errors.New("a tool_use of the previous message has no tool_result here")
		}
		if err != nil {
			return nil, fmt.Errorf("messages[%d]: %w", i, err)
		}
	}
	if len(s.openCalls) > 0 {
		return nil, errors.New("the last tool_use has no tool_result")
	}
	if last := s.lastRole(); last != "user" && last != "tool" {
		s.say("user", TextContent("(Go on.)"))
	}
	return s, nil
}

// offerTools adds the tools, and whether the model has to call one.
func (s *sampling) offerTools(r *SampleRequest) error {
	if len(r.Tools) > MaxFunctions {
		return fmt.Errorf("%d tools are more than the %d that a model can be offered",
			len(r.Tools), MaxFunctions)
	}
	for i, name := range FunctionNames("", r.Tools) {
		tool := &r.Tools[i]
		function, err := ToolFunction(name, tool)
		if err != nil {
			return fmt.Errorf("tool %s: %w", cmp.Or(tool.Name, `""`), err)
		}
		s.functions[tool.Name] = name
		s.tools[name] = tool.Name
		s.chat.Tools = append(s.chat.Tools, function)
	}
	if OfferSize(s.chat.Tools...) > MaxOffer {
		return fmt.Errorf("the tools have more than the %d bytes that a model can be offered",
			MaxOffer)
	}
	switch r.ToolChoice.Mode {
	case "", "auto", "required", "none":
		s.chat.ToolChoice = r.ToolChoice.Mode
		return nil
	}
	return fmt.Errorf("the toolChoice %q is not known", r.ToolChoice.Mode)
}

// sampleContent is the content of one message of the server, sorted by what the API makes of it.
type sampleContent struct {
	chunks  []map[string]any // texts, and images of the user
	texts   []string         // those of chunks
	calls   []ToolCall
	results []ChatMessage
}

// addMessage adds a message of the server's. In the API, results of tools are messages of their
// own, and calls stand beside the content.
func (s *sampling) addMessage(role string, blocks SampleContent) error {
	if role != "user" && role != "assistant" {
		return fmt.Errorf("the role %q is not known", role)
	}
	var content sampleContent
	for i := range blocks {
		err := s.addBlock(&content, role, blocks[i:i+1])
		if err != nil {
			return err
		}
	}
	results := content.results
	if len(results) > 0 && len(results) < len(blocks) {
		return errors.New("beside a tool_result nothing else is allowed")
	}
	// The API wants the first message after the system's to be the user's.
	last := s.lastRole()
	if role == "assistant" && (last == "" || last == "system") {
		s.say("user", TextContent("(The assistant begins.)"))
	}
	s.chat.Messages = append(s.chat.Messages, results...)
	if role == "user" && len(results) == 0 && last == "tool" {
		// Many servers refuse a user's message there.
		s.say("assistant", TextContent("(The results are there.)"))
	}
	said := TextContent(strings.Join(content.texts, "\n"))
	if hasImages := len(content.chunks) > len(content.texts); hasImages {
		// Not every server takes a list, so it is sent only where a string will not do. Strings can
		// always be encoded.
		said, _ = plainJSON(content.chunks)
	}
	s.say(role, said, content.calls...)
	return nil
}

// addBlock adds a block, given as a list of one, to the content of a message.
func (s *sampling) addBlock(content *sampleContent, role string, block SampleContent) error {
	switch kind := block[0].Type; {
	case kind == "tool_use" && role == "assistant":
		call, err := s.readCall(block[0].Raw)
		content.calls = append(content.calls, call)
		return err
	case kind == "tool_result" && role == "user":
		result, err := s.readResult(block[0].Raw)
		content.results = append(content.results, result)
		return err
	case kind == "tool_use", kind == "tool_result":
		return fmt.Errorf("a %s is not the %s's", kind, role)
	}
	part := &ToolResult{Content: block}
	text, images := ModelContent(part, nil)
	switch {
	case len(images) == 0:
	case role != "user":
		// The API takes no images of the assistant. A placeholder stands for this one.
		text = ModelText(part)
	case s.excessImages > 0:
		s.excessImages--
		text = fmt.Sprintf("%s (left out: only the last %d images are sent)",
			ModelText(part), MaxImages)
	default:
		content.chunks = append(content.chunks, map[string]any{
			"type":      "image_url",
			"image_url": map[string]string{"url": images[0]},
		})
		return nil
	}
	content.texts = append(content.texts, text)
	content.chunks = append(content.chunks, map[string]any{"type": "text", "text": text})
	return nil
}

// countImages counts the images of the user, which are those that the API takes.
func countImages(r *SampleRequest) int {
	count := 0
	for _, m := range r.Messages {
		for _, block := range m.Content {
			if m.Role == "user" && IsModelImage(block) {
				count++
			}
		}
	}
	return count
}

// readResult reads the result of a call that is open, and closes it.
func (s *sampling) readResult(raw json.RawMessage) (ChatMessage, error) {
	var result struct {
		ToolUseID string `json:"toolUseId"`
		ToolResult
	}
	err := decodeJSON("tool_result", raw, &result)
	if err != nil {
		return ChatMessage{}, err
	}
	function, isOpen := s.openCalls[result.ToolUseID]
	if !isOpen {
		return ChatMessage{}, fmt.Errorf(
			"the tool_result for %q belongs to no tool_use of the message before", result.ToolUseID)
	}
	delete(s.openCalls, result.ToolUseID)
	text := ModelText(&result.ToolResult)
	if result.IsError {
		text = "Error: " + text
	}
	return ChatMessage{
		Role:       "tool",
		Content:    TextContent(text),
		ToolCallID: result.ToolUseID,
		Name:       function,
	}, nil
}

// readCall reads a call that the model has made before, which is open then. Its tool need not be
// offered any more.
func (s *sampling) readCall(raw json.RawMessage) (ToolCall, error) {
	var use toolUse
	err := decodeJSON("tool_use", raw, &use)
	if err != nil {
		return ToolCall{}, err
	}
	if _, isOpen := s.openCalls[use.ID]; isOpen {
		return ToolCall{}, fmt.Errorf("the id %q is used twice", use.ID)
	}
	if len(use.Input) == 0 || use.Input[0] != '{' {
		return ToolCall{}, fmt.Errorf("the input of %s is not an object", use.Name)
	}
	name, isOffered := s.functions[use.Name]
	if !isOffered {
		name = FunctionNames("", []Tool{{Name: use.Name}})[0]
	}
	s.openCalls[use.ID] = name
	return ToolCall{ID: use.ID, Name: name, Arguments: string(use.Input)}, nil
}

// say appends a message, but not one that says nothing: the API refuses it.
func (s *sampling) say(role string, content Content, calls ...ToolCall) {
	if string(content) == `""` && len(calls) == 0 {
		return
	}
	message := ChatMessage{Role: role, Content: content, ToolCalls: calls}
	s.chat.Messages = append(s.chat.Messages, message)
}

// lastRole is the role of the last message, empty if there is none.
func (s *sampling) lastRole() string {
	if len(s.chat.Messages) == 0 {
		return ""
	}
	return s.chat.Messages[len(s.chat.Messages)-1].Role
}

// result makes the server's result of the model's answer.
func (s *sampling) result(r *SampleRequest, answer *ChatResponse) (*SampleResult, error) {
	text, calls, reason := s.endOfAnswer(r, answer)
	// A message without any content would not be valid in MCP: an empty text stands for it.
	var content SampleContent
	if text != "" || len(calls) == 0 {
		content = append(content, ContentBlock{Type: "text", Text: text})
	}
	for _, call := range calls {
		block, err := s.callBlock(call)
		if err != nil {
			return nil, err
		}
		content = append(content, block)
	}
	return &SampleResult{
		Role:       "assistant",
		Content:    content,
		Model:      answer.Model,
		StopReason: reason,
	}, nil
}

// endOfAnswer returns what of the model's answer the server gets, and why the answer ends there.
//
// The API has a parameter for stop sequences, but does not report that one of them ended an answer.
// So the answer is cut here, where the model would have ended it: before the first of them, without
// the calls, which come after the text.
func (s *sampling) endOfAnswer(
	r *SampleRequest,
	answer *ChatResponse,
) (text string, calls []ToolCall, reason string) {
	text = answer.Message.Content.Text()
	if before, found := cutAtFirst(text, r.StopSequences); found {
		return before, nil, "stopSequence"
	}
	if answer.CutOff() {
		// A call that is cut off is not what the model meant.
		return text, nil, "maxTokens"
	}
	calls = answer.Message.ToolCalls
	if s.chat.ToolChoice == "none" {
		// Not every server of models knows the word, and such a one sends calls all the same.
		calls = nil
	}
	switch {
	case len(calls) > 0:
		return text, calls, "toolUse"
	case answer.SaysWhole():
		return text, nil, "endTurn"
	}
	// MCP lets the reason out where it is not known.
	return text, nil, ""
}

// cutAtFirst returns the text before the first of the sequences in it, and whether there is one. An
// empty sequence is none.
func cutAtFirst(text string, sequences []string) (before string, found bool) {
	before = text
	for _, sequence := range sequences {
		if sequence == "" {
			continue
		}
		at := strings.Index(text, sequence)
		if at >= 0 && at <= len(before) {
			before = text[:at]
			found = true
		}
	}
	return before, found
}

// callBlock makes a block of a call, for the server.
func (s *sampling) callBlock(call ToolCall) (ContentBlock, error) {
	name, isOffered := s.tools[call.Name]
	if !isOffered {
		return ContentBlock{}, fmt.Errorf("the model calls %q, which it was not offered", call.Name)
	}
	input, _, err := ParseArguments(call.Arguments)
	if err != nil {
		return ContentBlock{}, fmt.Errorf("the model calls %s, but %w", name, err)
	}
	// The input is valid JSON, so that there is no error.
	raw, _ := json.Marshal(toolUse{
		Type:  "tool_use",
		ID:    call.ID,
		Name:  name,
		Input: json.RawMessage(input),
	})
	return ContentBlock{Type: "tool_use", Raw: raw}, nil
}
