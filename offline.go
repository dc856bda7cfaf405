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
	"strings"
)

// Offline is an http.RoundTripper that answers requests for chat completions without a network, as
// an API that does not stream. It is no language model. It sends the last user message to a search
// tool, and quotes the best passage of what that finds, or names the sections that are nearest.
type Offline struct {
	// Rephrase, if set, returns what is searched for a question.
	Rephrase func(question string) string
}

// RoundTrip fails if the request's body cannot be read or is no request, or if its context has
// ended.
func (o Offline) RoundTrip(r *http.Request) (*http.Response, error) {
	request, err := readOfflineRequest(r)
	if err != nil {
		return nil, err
	}
	request.rephrase = o.Rephrase
	reply := request.reply()
	finish := "stop"
	if len(reply.ToolCalls) > 0 {
		finish = "tool_calls"
	}
	body, err := plainJSON(map[string]any{
		"id": "offline", "object": "chat.completion", "model": "offline", "usage": Usage{},
		"choices": []any{
			map[string]any{"index": 0, "message": reply, "finish_reason": finish},
		},
	})
	if err != nil {
		return nil, err
	}
	return &http.Response{
		StatusCode:    http.StatusOK,
		Header:        http.Header{"Content-Type": {"application/json"}},
		Body:          io.NopCloser(bytes.NewReader(body)),
		ContentLength: int64(len(body)),
		Request:       r,
	}, nil
}

// offlineRequest holds the members of a chat-completions request that are used here.
type offlineRequest struct {
	Messages []ChatMessage `json:"messages"`
	Tools    []struct {
		Function Function `json:"function"`
	} `json:"tools"`
	ToolChoice json.RawMessage `json:"tool_choice"`

	rephrase func(question string) string // see Offline
}

// readOfflineRequest closes the body also if it fails, as an http.RoundTripper must.
func readOfflineRequest(r *http.Request) (*offlineRequest, error) {
	var body []byte
	if r.Body != nil {
		defer r.Body.Close()
		var err error
		body, err = io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
	}
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	var request offlineRequest
	err := decodeJSON("request", body, &request)
	if err != nil {
		return nil, err
	}
	return &request, nil
}

// reply answers from what was found, or else searches for the question. It searches prose first if
// the tool can do that, and then, if nothing there is near to the question, everything.
func (r *offlineRequest) reply() ChatMessage {
	question, results := r.question()
	answer := ""
	if len(results) > 0 {
		answer = offlineAnswer(results[len(results)-1], question)
	}
	if answer == "" && len(results) < 2 && string(r.ToolChoice) != `"none"` {
		for _, t := range r.Tools {
			call := r.searchCall(t.Function, question, len(results) > 0)
			if call != nil {
				return ChatMessage{Role: "assistant", ToolCalls: []ToolCall{*call}}
			}
		}
	}
	switch {
	case answer != "":
	case len(results) == 0:
		answer = r.withoutSearch()
	default:
		answer = "Nothing was found that fits. Try other words. " +
			"With no server configured, these have answers:\n\n" +
			"- What can this program do?\n- What is MCP?\n" +
			"- How do I set up a server?\n- What happens on Ctrl-C?\n"
	}
	return ChatMessage{Role: "assistant", Content: TextContent(strings.TrimSpace(answer))}
}

// question returns the last user message, as it is searched, and the results of the calls since
// then.
func (r *offlineRequest) question() (question string, results []ChatMessage) {
	for _, m := range r.Messages {
		switch m.Role {
		case "user":
			question = strings.Join(strings.Fields(m.Content.Text()), " ")
			results = nil
		case "tool":
			results = append(results, m)
		}
	}
	if r.rephrase != nil {
		question = r.rephrase(question)
	}
	return cmp.Or(question, "?"), results
}

// offlineSchema holds what is used here of a function's parameters.
type offlineSchema struct {
	Required   []string
	Properties map[string]struct {
		Type any // a text, or several
	}
}

// schemaOf takes an invalid schema for one that requires nothing.
func schemaOf(f Function) offlineSchema {
	var schema offlineSchema
	if json.Unmarshal(f.Parameters, &schema) != nil {
		return offlineSchema{}
	}
	return schema
}

// offlineLimit is how many passages a search is asked for. The section whose heading is the
// question may be far behind: "What is a tool?" has only words that stand nearly everywhere.
const offlineLimit = 40

// searchCall returns a call, nil if the function is no search: it must have the word search in its
// name, which research is not, and one required argument. After a search of prose only a function
// that can filter sources is worth a second call, now without the filter.
func (r *offlineRequest) searchCall(f Function, question string, isSecond bool) *ToolCall {
	schema := schemaOf(f)
	isSearch := false
	EachWord(f.Name, func(word []byte) { isSearch = isSearch || string(word) == "search" })
	isSearch = isSearch && len(schema.Required) == 1
	_, hasFilter := schema.Properties["source_filter"]
	_, hasLimit := schema.Properties["limit"]
	if !isSearch || isSecond && !hasFilter {
		return nil
	}
	arguments := map[string]any{schema.Required[0]: question}
	if hasLimit {
		arguments["limit"] = offlineLimit
	}
	if hasFilter && !isSecond {
		arguments["source_filter"] = "*.md"
	}
	text, _ := plainJSON(arguments)
	// The API demands nine characters, and no two calls of a history have the same: it grows with
	// each request.
	id := fmt.Sprintf("call%05d", len(r.Messages))
	return &ToolCall{ID: id, Name: f.Name, Arguments: string(text)}
}

// withoutSearch says what to do where a model is needed, and how to call a tool without one.
func (r *offlineRequest) withoutSearch() string {
	const advice = "No model is set, and the stand-in for one can only search, for which no tool " +
		"is here. Set MISTRAL_API_KEY, or name a local model: -m ollama:NAME."
	if len(r.Tools) == 0 {
		return advice
	}
	f := r.Tools[0].Function
	schema := schemaOf(f)
	arguments := make(map[string]any)
	for _, name := range schema.Required {
		arguments[name] = exampleOf(schema.Properties[name].Type)
	}
	text, _ := plainJSON(arguments)
	return fmt.Sprintf("%s\n\nWithout a model you call a tool yourself. `mcpagent tools` lists "+
		"them, and this calls one:\n\n```sh\nmcpagent call %s '%s'\n```", advice, f.Name, text)
}

// exampleOf returns a value of a type of JSON Schema that stands for the one that a person is to
// write. For other types that is null.
func exampleOf(typeName any) any {
	switch typeName {
	case "string":
		return "…"
	case "integer", "number":
		return 1
	case "boolean":
		return true
	case "array":
		return []any{}
	case "object":
		return struct{}{}
	}
	return nil
}
