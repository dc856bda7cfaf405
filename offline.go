// offline.go - a stand-in for a model, for machines without a key.
// SPDX-License-Identifier: 0BSD

package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"
)

// Offline is an http.RoundTripper that serves POST …/chat/completions, whole or as a stream, without a network. It
// is no language model. It sends the last user message to a search tool, once, and quotes the best passages of the
// result. It prefers prose to code with a comment above it, and that to other code.
type Offline struct{}

// RoundTrip fails only if the request's body or context does. An invalid request gets an error response of the API.
func (Offline) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		var err error
		body, err = io.ReadAll(r.Body)
		r.Body.Close()
		if err != nil {
			return nil, err
		}
	}
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	var request offlineRequest
	status, problem := http.StatusBadRequest, ""
	switch err := json.Unmarshal(body, &request); {
	case !strings.HasSuffix(r.URL.Path, "/chat/completions"):
		status, problem = http.StatusNotFound, r.URL.Path+" not found: use /chat/completions"
	case r.Method != http.MethodPost:
		status, problem = http.StatusMethodNotAllowed, "the method must be POST"
	case err != nil:
		problem = "invalid request: " + err.Error()
	case request.question() == "":
		problem = "messages: a user message is required, and the last must be the user's or a tool's"
	}
	header := http.Header{"Content-Type": {"application/json"}}
	switch {
	case problem != "":
		body = offlineJSON(map[string]any{
			"object": "error", "message": problem, "type": "invalid_request_error", "param": nil, "code": nil,
		})
	case request.Stream:
		status, body = http.StatusOK, offlineStream(request.reply())
		header.Set("Content-Type", "text/event-stream")
	default:
		reply := request.reply()
		status, body = http.StatusOK, offlineFrame("chat.completion", "message", reply, offlineFinish(reply))
	}
	return &http.Response{
		Status: fmt.Sprintf("%d %s", status, http.StatusText(status)), StatusCode: status,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: header, Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)), Request: r,
	}, nil
}

// offlineRequest holds the members of a chat-completions request that are used here.
type offlineRequest struct {
	Messages []ChatMessage `json:"messages"`
	Tools    []struct {
		Function Function `json:"function"`
	} `json:"tools"`
	ToolChoice json.RawMessage `json:"tool_choice"`
	Stream     bool            `json:"stream"`
}

// question returns the last user message on one line, or "" if the request is invalid.
func (r *offlineRequest) question() string {
	last := len(r.Messages) - 1
	if last < 0 || r.Messages[last].Role != "user" && r.Messages[last].Role != "tool" {
		return ""
	}
	for _, m := range slices.Backward(r.Messages) {
		if m.Role == "user" {
			return cmp.Or(strings.Join(strings.Fields(m.Content.Text()), " "), "?")
		}
	}
	return ""
}

// reply calls a search tool, or quotes the result of the call.
func (r *offlineRequest) reply() ChatMessage {
	question, last := r.question(), r.Messages[len(r.Messages)-1]
	if last.Role == "tool" {
		return ChatMessage{Role: "assistant", Content: TextContent(offlineQuote(last, question))}
	}
	for _, t := range r.Tools {
		var schema struct{ Required []string }
		_ = json.Unmarshal(t.Function.Parameters, &schema) // an invalid schema requires nothing
		isSearch := strings.Contains(strings.ToLower(t.Function.Name), "search") && len(schema.Required) == 1
		if isSearch && string(r.ToolChoice) != `"none"` {
			return ChatMessage{Role: "assistant", Content: TextContent(""), ToolCalls: []ToolCall{{
				ID:        fmt.Sprintf("call%05d", len(r.Messages)), // nine characters, unique in the history
				Name:      t.Function.Name,
				Arguments: string(offlineJSON(map[string]string{schema.Required[0]: question})),
			}}}
		}
	}
	return ChatMessage{Role: "assistant", Content: TextContent("No tool here is a search with one required argument.\n")}
}

// offlinePassage is a passage as search_chunks returns it.
type offlinePassage struct {
	Text       string
	Source     string
	StartLine  int `json:"start_line"`
	Similarity float64
}

// offlineQuote quotes the three best passages of a search result with their sources. Any other result is quoted as a
// passage of its own.
func offlineQuote(result ChatMessage, question string) string {
	text := strings.TrimSpace(result.Content.Text())
	var found struct {
		Results    []offlinePassage
		TotalCount *int `json:"total_count"`
	}
	if json.Unmarshal([]byte(text), &found) != nil || found.Results == nil && found.TotalCount == nil {
		found.Results = []offlinePassage{{Text: text}}
	}
	// A passage with the question in quotation marks shows how to ask it and does not answer it.
	passages := slices.DeleteFunc(found.Results, func(p offlinePassage) bool {
		return p.Text == "" || strings.Contains(p.Text, `"`+question+`"`)
	})
	slices.SortStableFunc(passages, func(a, b offlinePassage) int { return cmp.Compare(b.weight(), a.weight()) })
	var b strings.Builder
	for i, p := range passages {
		if i == 3 || p.weight() < passages[0].weight()/2 {
			break
		}
		b.WriteString(cmp.Or(p.Source, result.Name))
		if p.StartLine > 0 {
			fmt.Fprintf(&b, ":%d", p.StartLine)
		}
		b.WriteString("\n    " + strings.ReplaceAll(offlineCut(p.Text), "\n", "\n    ") + "\n\n")
	}
	return cmp.Or(b.String(), "The search found nothing. Try other words.\n")
}

// weight is the similarity, higher for prose and lower for code without a comment above it.
func (p offlinePassage) weight() float64 {
	switch {
	case path.Ext(p.Source) == ".md":
		return 1.5 * p.Similarity
	case path.Ext(p.Source) == ".go" && !strings.HasPrefix(p.Text, "//"):
		return 0.7 * p.Similarity
	}
	return p.Similarity
}

// offlineCut cuts a text after sixteen lines or 1200 bytes.
func offlineCut(text string) string {
	lines := strings.SplitAfter(text, "\n")
	short := strings.Join(lines[:min(16, len(lines))], "")
	short = strings.ToValidUTF8(short[:min(1200, len(short))], "")
	if len(short) < len(text) {
		return strings.TrimSpace(short) + " […]"
	}
	return text
}

// offlineStream encodes a reply as server-sent events: the text by lines, a tool call as a whole.
func offlineStream(reply ChatMessage) []byte {
	var b bytes.Buffer
	send := func(delta map[string]any, finish any) {
		fmt.Fprintf(&b, "data: %s\n\n", offlineFrame("chat.completion.chunk", "delta", delta, finish))
	}
	send(map[string]any{"role": "assistant", "content": ""}, nil)
	for line := range strings.Lines(reply.Content.Text()) {
		send(map[string]any{"content": line}, nil)
	}
	end := map[string]any{"content": ""}
	if len(reply.ToolCalls) > 0 {
		end["tool_calls"] = reply.ToolCalls
	}
	send(end, offlineFinish(reply))
	b.WriteString("data: [DONE]\n\n")
	return b.Bytes()
}

// offlineFrame encodes a message or a part of one. The last part has a finish reason, and a usage of no tokens.
func offlineFrame(object, part string, message, finish any) []byte {
	frame := map[string]any{
		"id": "offline", "object": object, "created": time.Now().Unix(), "model": "offline",
		"choices": []any{map[string]any{"index": 0, part: message, "finish_reason": finish}},
	}
	if finish != nil {
		frame["usage"] = Usage{}
	}
	return offlineJSON(frame)
}

func offlineFinish(reply ChatMessage) string {
	if len(reply.ToolCalls) > 0 {
		return "tool_calls"
	}
	return "stop"
}

// offlineJSON encodes a value that always has an encoding.
func offlineJSON(v any) []byte {
	b, _ := PlainJSON(v)
	return b
}
