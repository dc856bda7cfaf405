// mistral_messages.go - a conversation: its messages, the request for the next one, and the answer.
// Needs: Go 1.25.
// SPDX-License-Identifier: 0BSD

package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// ChatMessage is one entry of a conversation. It marshals to the API's own form and back, so that a
// history can be saved.
type ChatMessage struct {
	Role    string  `json:"role"`    // system, user, assistant or tool
	Content Content `json:"content"` // of a tool message: always a string

	// Of an assistant message only.
	ToolCalls []ToolCall `json:"tool_calls,omitempty"`

	// Of a tool message only: the call that it answers, and the name of the function.
	ToolCallID string `json:"tool_call_id,omitempty"`
	Name       string `json:"name,omitempty"`

	// Of a user or tool message: data URLs. A request does not have them in this form.
	Images []string `json:"images,omitempty"`
}

// Content is a JSON string, or a list of chunks (text, thinking, reference, …). It has to be sent
// back as it came.
type Content json.RawMessage

// TextContent returns a content of the string s.
func TextContent(s string) Content {
	// Every string can be encoded, so there is no error.
	b, _ := wireJSON(s)
	return b
}

// Text returns what a reader sees of the content: the string, or its text chunks joined. A chunk of
// another form has no text, nor has a content of another form.
func (c Content) Text() string {
	var text string
	if json.Unmarshal(c, &text) == nil {
		return text
	}
	var chunks []struct{ Type, Text string }
	_ = json.Unmarshal(c, &chunks)
	var b strings.Builder
	for _, chunk := range chunks {
		if chunk.Type == "text" {
			b.WriteString(chunk.Text)
		}
	}
	return b.String()
}

// MarshalJSON writes null, and no content, as "". Beside tool calls the API takes both, but older
// servers take only "".
func (c Content) MarshalJSON() ([]byte, error) {
	if len(c) == 0 || string(c) == "null" {
		c = TextContent("")
	}
	return c, nil
}

// UnmarshalJSON keeps a copy of the content as it is.
func (c *Content) UnmarshalJSON(b []byte) error {
	*c = replaceSurrogates(b)
	return nil
}

// jsonEscape matches an escape in a JSON string: two halves of a surrogate pair, one half, or any
// other.
var jsonEscape = regexp.MustCompile(
	`\\(?:u[dD][89abAB]..\\u[dD][c-fC-F]..|u[dD][89a-fA-F]..|.)`)

// replaceSurrogates returns a copy of JSON with U+FFFD for each half of a surrogate pair that
// stands alone. Models write such halves, and servers refuse them.
func replaceSurrogates(text []byte) []byte {
	return jsonEscape.ReplaceAllFunc(text, func(match []byte) []byte {
		// A pair is longer, and any other escape is matched by its first two bytes.
		isHalf := len(match) == len(`\ud800`)
		if isHalf {
			return []byte(`\ufffd`)
		}
		return match
	})
}

// ChatRequest asks for the next message of a conversation.
type ChatRequest struct {
	// Messages is the conversation. Its last message is the user's or a tool's.
	Messages []ChatMessage `json:"messages"`

	// Tools are what the model may call, at most 128. ToolChoice says whether it has to: "auto",
	// which is the same as "", "none" or "required".
	Tools      []Function `json:"tools,omitempty"`
	ToolChoice string     `json:"tool_choice,omitempty"`

	// Temperature is 0 to MaxTemperature, and MaxTokens bounds the answer. Nil and 0 leave them to
	// the server.
	Temperature *float64 `json:"temperature,omitempty"`
	MaxTokens   int      `json:"max_tokens,omitempty"`
}

// MaxTemperature is the highest temperature of Mistral's chat completions, as its OpenAPI document
// has it. The requests of its package mistral-common and of its agents end at 1, those of other
// servers at 2.
const MaxTemperature = 1.5

// ChatResponse is the model's answer. Its ToolCalls alone say whether tools are to be called:
// servers say "stop" beside calls and "tool_calls" beside none. Of a Mistral, each call has an id
// of its own: see GiveIDs.
type ChatResponse struct {
	Message      ChatMessage // can go into the history as it is
	FinishReason string      // the server's: stop, tool_calls, length, error, …, or "" for none
	Model        string      // the name that the server gives to the model that answered
	Usage        Usage       // zero if the server does not say
}

// CutOff reports whether the answer ended at a length limit. Its last call may then be cut off,
// too, even if its arguments are valid.
func (r *ChatResponse) CutOff() bool { return endingOf(r.FinishReason) == endCutOff }

// SaysWhole reports whether the server says that the answer is whole. Some servers never say it of
// an answer that is, and some gateways do not say that their own server broke off: a text without
// it may be whole or not. Arguments of calls show it themselves.
func (r *ChatResponse) SaysWhole() bool { return endingOf(r.FinishReason) == endWhole }

// ending is what a finish_reason says of an answer.
type ending int

const (
	endUnknown ending = iota // the server says nothing, or a word that is not known
	endWhole
	endCutOff
	endFailed
)

// endingOf returns what a finish_reason says. Mistral has stop, tool_calls, length, model_length
// and error. The other words are those of OpenAI, Anthropic, Gemini, DeepSeek, Zhipu, vLLM, SGLang
// and Text Generation Inference, which gateways pass on as they are.
func endingOf(finishReason string) ending {
	switch strings.ToLower(finishReason) {
	case "stop", "tool_calls", "function_call", "tool_use", "end_turn", "stop_sequence", "eos",
		"eos_token":
		return endWhole
	case "length", "model_length", "max_tokens", "max_output_tokens",
		"model_context_window_exceeded":
		return endCutOff
	case "error", "content_filter", "abort", "network_error", "insufficient_system_resource",
		"sensitive", "refusal", "safety", "recitation", "blocklist", "prohibited_content", "spii",
		"malformed_function_call":
		return endFailed
	}
	return endUnknown
}

// Usage counts tokens.
type Usage struct {
	PromptTokens     int `json:"prompt_tokens"`
	CompletionTokens int `json:"completion_tokens"`
	TotalTokens      int `json:"total_tokens"`
}

// UnmarshalJSON takes counts in the forms 12, 12.0 and "12". A count in another form is 0: it does
// not make an answer invalid. Some servers leave the total to be added up.
func (u *Usage) UnmarshalJSON(b []byte) error {
	var members map[string]any
	_ = json.Unmarshal(b, &members)
	count := func(name string) int {
		f, _ := strconv.ParseFloat(fmt.Sprint(members[name]), 64)
		return int(f)
	}
	*u = Usage{
		PromptTokens:     count("prompt_tokens"),
		CompletionTokens: count("completion_tokens"),
		TotalTokens:      count("total_tokens"),
	}
	u.TotalTokens = cmp.Or(u.TotalTokens, u.PromptTokens+u.CompletionTokens)
	return nil
}

// Add adds v to u.
func (u *Usage) Add(v Usage) {
	u.PromptTokens += v.PromptTokens
	u.CompletionTokens += v.CompletionTokens
	u.TotalTokens += v.TotalTokens
}

// messagesFor returns messages as they are sent to a host: with ids of calls that Mistral accepts,
// without images, and without what another host has added to a call.
func messagesFor(host string, history []ChatMessage) []ChatMessage {
	messages := slices.Clone(history)
	for i := range messages {
		m := &messages[i]
		m.Images = nil
		if m.Role == "tool" {
			m.ToolCallID = callID(m.ToolCallID)
		}
		// The calls are the history's, so they are copied before they are changed.
		m.ToolCalls = slices.Clone(m.ToolCalls)
		for j := range m.ToolCalls {
			call := &m.ToolCalls[j]
			call.ID = callID(call.ID)
			if call.ExtraHost != host {
				call.Extra = nil
			}
			call.ExtraHost = ""
		}
	}
	return messages
}

// wireJSON is json.Marshal without the escapes for <, > and &. The kit in json_write.go has the
// same as plainJSON, which this family does without: it needs no other, so that it can be copied
// alone.
func wireJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	if err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
