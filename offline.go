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
	"regexp"
	"slices"
	"strings"
)

// Offline is an http.RoundTripper that answers requests for chat completions without a network, as
// an API that does not stream. It is no language model. It sends each part of the last user message
// to a search tool, and quotes the best passages of what that finds.
type Offline struct{}

// RoundTrip fails if the request's body cannot be read or is no request, or if its context has
// ended.
func (Offline) RoundTrip(r *http.Request) (*http.Response, error) {
	request, err := readOfflineRequest(r)
	if err != nil {
		return nil, err
	}
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

// reply quotes what was found, or else searches for each part of the question. It searches prose
// first if the tool can do that, and then, without an answer, everything. Nothing was found if
// offlineFits accepts no passage, as all have a similarity below minOfflineSimilarity.
func (r *offlineRequest) reply() ChatMessage {
	// After a search of prose there is one result for each part of the question, and after a search
	// of everything there are more. That was the last one.
	parts, results := r.question()
	answer, missed := offlineAnswer(parts, results)
	if answer == "" && len(results) <= len(parts) && string(r.ToolChoice) != `"none"` {
		for _, t := range r.Tools {
			calls := r.searchCalls(t.Function, parts, len(results) > 0)
			if len(calls) > 0 {
				return ChatMessage{Role: "assistant", ToolCalls: calls}
			}
		}
	}
	switch {
	case answer != "":
		answer += missed
	case len(results) == 0:
		answer = "No tool here is a search with one required argument.\n"
	default:
		answer = "Nothing was found that fits. Try other words. " +
			"With no server configured, these have answers:\n\n" +
			"- What can this program do?\n- What is MCP?\n" +
			"- How do I set up a server?\n- What happens on Ctrl-C?\n"
	}
	return ChatMessage{Role: "assistant", Content: TextContent(strings.TrimSpace(answer))}
}

// question returns the parts of the last user message and the results of the calls since then.
func (r *offlineRequest) question() (parts []string, results []ChatMessage) {
	parts = offlineParts("")
	for _, m := range r.Messages {
		switch m.Role {
		case "user":
			parts = offlineParts(strings.Join(strings.Fields(m.Content.Text()), " "))
			results = nil
		case "tool":
			results = append(results, m)
		}
	}
	return parts, results
}

// searchCalls returns a call for each part of the question, none if the function is no search: it
// must have search in its name, and one required argument. After a search of prose only a function
// that can filter sources is worth a second call, now without the filter.
func (r *offlineRequest) searchCalls(f Function, parts []string, isSecond bool) (calls []ToolCall) {
	var schema struct {
		Required   []string
		Properties map[string]json.RawMessage
	}
	// An invalid schema requires nothing, so its function is no search.
	_ = json.Unmarshal(f.Parameters, &schema)
	isSearch := strings.Contains(strings.ToLower(f.Name), "search") && len(schema.Required) == 1
	hasFilter := schema.Properties["source_filter"] != nil
	if !isSearch || isSecond && !hasFilter {
		return nil
	}
	for i, part := range parts {
		arguments := map[string]string{schema.Required[0]: part}
		if hasFilter && !isSecond {
			arguments["source_filter"] = "*.md"
		}
		text, _ := plainJSON(arguments)
		calls = append(calls, ToolCall{
			ID:        offlineCallID(len(r.Messages), i),
			Name:      f.Name,
			Arguments: string(text),
		})
	}
	return calls
}

// offlineCallID returns the id of a call: nine characters, as the API demands, and unique in the
// history, which grows with each request.
func offlineCallID(messages, call int) string {
	return fmt.Sprintf("call%04d%d", messages, call)
}

var (
	// offlineNext finds where a question begins after another one.
	offlineNext = regexp.MustCompile(
		`(?i)(?:[.?!;]|,? and) ((?:what|how|why|where|who|which|can|do|does|is)\b)`)
	// offlineRefer finds a word that stands for what the question before it names.
	offlineRefer = regexp.MustCompile(`(?i) (?:it|one|them)\b`)
)

// offlineParts splits a text into at most three questions. One that says nothing itself is part of
// the one before it.
func offlineParts(text string) (parts []string) {
	lines := strings.SplitN(offlineNext.ReplaceAllString(text, "\n$1"), "\n", 3)
	for i, line := range lines {
		part := strings.ReplaceAll(line, "\n", " ")
		switch {
		case i == 0:
			parts = append(parts, cmp.Or(part, "?"))
		// It has stop words alone, as "and why?", and so no term of the whole text.
		case offlineAlike(part, text) == 0:
			parts[len(parts)-1] += " " + part
		case offlineRefer.MatchString(part):
			parts = append(parts, parts[len(parts)-1]+" "+part)
		default:
			parts = append(parts, part)
		}
	}
	return parts
}

// offlineAlike returns how many of the terms of two texts they have in common: 1 for all, 0 for
// none.
func offlineAlike(a, b string) float64 {
	termsOfA, termsOfB := KeyTerms(a), KeyTerms(b)
	common := 0
	for _, term := range termsOfA {
		if slices.Contains(termsOfB, term) {
			common++
		}
	}
	return float64(2*common) / float64(max(1, len(termsOfA)+len(termsOfB)))
}
