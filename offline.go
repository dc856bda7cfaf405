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
	"regexp"
	"slices"
	"strings"
)

// Offline is an http.RoundTripper that answers requests for chat completions without a network, as an API that does
// not stream. It is no language model. It sends each part of the last user message to a search tool, and quotes the
// best passages of what that finds.
type Offline struct{}

// RoundTrip fails if the request's body cannot be read or is no request, or if its context has ended.
func (Offline) RoundTrip(r *http.Request) (*http.Response, error) {
	in := cmp.Or[io.ReadCloser](r.Body, http.NoBody)
	defer in.Close()
	body, err := io.ReadAll(in)
	var request offlineRequest
	if err := cmp.Or(err, r.Context().Err(), json.Unmarshal(body, &request)); err != nil {
		return nil, err
	}
	parts, results := request.question()
	reply, finish := request.reply(parts, results), "stop"
	if len(reply.ToolCalls) > 0 {
		finish = "tool_calls"
	}
	body, _ = PlainJSON(map[string]any{ // it has an encoding
		"id": "offline", "object": "chat.completion", "model": "offline", "usage": Usage{},
		"choices": []any{map[string]any{"index": 0, "message": reply, "finish_reason": finish}},
	})
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)), Request: r,
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

// question returns the parts of the last user message and the results of the calls since then.
func (r *offlineRequest) question() (parts []string, results []ChatMessage) {
	parts = offlineParts("")
	for _, m := range r.Messages {
		switch m.Role {
		case "user":
			parts, results = offlineParts(strings.Join(strings.Fields(m.Content.Text()), " ")), nil
		case "tool":
			results = append(results, m)
		}
	}
	return parts, results
}

var (
	offlineNext    = regexp.MustCompile(`(?i)(?:[.?!;]|,? and) ((?:what|how|why|where|who|which|can|do|does|is)\b)`)
	offlineRefer   = regexp.MustCompile(`(?i) (?:it|one|them)\b`)                  // to the question before
	offlineEnd     = regexp.MustCompile("[^\\d\\s][.!?][)\"*_]*\\s|\\|\\n|```\\n") // a sentence, a row, a block of code
	offlineHeading = regexp.MustCompile(`^(?:#.*\n\s*)+`)
	offlineHead    = regexp.MustCompile(`^(?:(?://|#).*\n)*.*`) // a declaration's first line, and the comment above it
)

// offlineParts splits a text into at most three questions. One that says nothing itself is part of the one before it.
func offlineParts(text string) (parts []string) {
	for i, part := range strings.SplitN(offlineNext.ReplaceAllString(text, "\n$1"), "\n", 3) {
		switch part = strings.ReplaceAll(part, "\n", " "); {
		case i == 0:
			parts = append(parts, cmp.Or(part, "?"))
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

// offlineAlike returns how many of the terms of two texts they have in common: 1 for all, 0 for none.
func offlineAlike(a, b string) float64 {
	common, terms, others := 0, KeyTerms(a), KeyTerms(b)
	for _, term := range terms {
		if slices.Contains(others, term) {
			common++
		}
	}
	return float64(2*common) / float64(max(1, len(terms)+len(others)))
}

// reply quotes the results, or searches for each part of the question: in prose if the tool can do that, then, without
// an answer, in everything.
func (r *offlineRequest) reply(parts []string, results []ChatMessage) ChatMessage {
	message, answer, missed := ChatMessage{Role: "assistant"}, "", ""
	for i, result := range results[max(0, len(results)-len(parts)):] {
		if quote := offlineQuote(result, parts[i], 3/len(parts)); quote == "" {
			missed += fmt.Sprintf("Nothing was found for %q.\n", parts[i])
		} else if !strings.Contains(answer, quote) {
			answer += quote
		}
	}
	for _, t := range r.Tools {
		var schema struct {
			Required   []string
			Properties map[string]json.RawMessage
		}
		_ = json.Unmarshal(t.Function.Parameters, &schema) // an invalid schema requires nothing
		isSearch := strings.Contains(strings.ToLower(t.Function.Name), "search") && len(schema.Required) == 1
		proseFirst := schema.Properties["source_filter"] != nil
		done := answer != "" || len(results) > len(parts) || len(results) > 0 && !proseFirst
		if done || !isSearch || string(r.ToolChoice) == `"none"` {
			continue
		}
		for i, part := range parts {
			arguments := map[string]string{schema.Required[0]: part}
			if proseFirst && len(results) == 0 {
				arguments["source_filter"] = "*.md"
			}
			id := fmt.Sprintf("call%04d%d", len(r.Messages), i) // nine characters, unique in the history
			text, _ := PlainJSON(arguments)                     // they have an encoding
			message.ToolCalls = append(message.ToolCalls, ToolCall{ID: id, Name: t.Function.Name, Arguments: string(text)})
		}
		return message
	}
	switch {
	case answer != "":
		answer += missed
	case len(results) == 0:
		answer = "No tool here is a search with one required argument.\n"
	default:
		answer = "Nothing was found that fits. Try other words. With no server configured, these have answers:\n\n" +
			"- What can this program do?\n- What is MCP?\n- How do I set up a server?\n- What happens on Ctrl-C?\n"
	}
	message.Content = TextContent(strings.TrimSpace(answer))
	return message
}

// offlineQuote quotes the best passages of a search result with their sources: the best one, what goes on from it, and
// what is nearly as good. Any other result is quoted as it is.
func offlineQuote(result ChatMessage, question string, most int) (quote string) {
	text := strings.TrimSpace(result.Content.Text())
	found := SearchReply{TotalCount: -1}
	if json.Unmarshal([]byte(text), &found) != nil || found.Results == nil && found.TotalCount < 0 {
		found.Results = []SearchResult{{Text: text}}
	}
	passages := slices.DeleteFunc(found.Results, func(p SearchResult) bool {
		isPart := strings.HasPrefix(p.Text, "\t")                                   // of a declaration
		return p.Text == "" || isPart || strings.Contains(p.Text, `"`+question+`"`) // which shows how to ask
	})
	for i, p := range passages { // a heading that is much of the question weighs more
		alike := 0.0
		for _, part := range offlineParts(offlineHeading.FindString(p.Text)) {
			alike = max(alike, offlineAlike(question, part))
		}
		passages[i].Similarity *= 1 + 2*alike
		if path.Ext(p.Source) == ".go" { // prose comes first
			passages[i].Similarity *= 0.8
		}
	}
	slices.SortStableFunc(passages, func(a, b SearchResult) int { return cmp.Compare(b.Similarity, a.Similarity) })
	for _, p := range passages {
		first := passages[0]
		goesOn := p.StartLine > first.EndLine && p.StartLine < first.EndLine+3 && p.Text[0] != '#'
		fits := p.Source == first.Source && (goesOn || p.Similarity >= 0.9*first.Similarity)
		if most == 0 || !fits || 0 < p.Similarity && p.Similarity < 0.4 { // what fits a little has 0.4
			continue
		}
		most--
		quote += cmp.Or(p.Source, result.Name)
		if p.StartLine > 0 {
			quote += fmt.Sprintf(":%d", p.StartLine)
		}
		quote += "\n\n" + offlineCut(p.Text, p.Source) + "\n\n"
	}
	return quote
}

// offlineCut returns a text as markdown. One that is too long ends after a sentence, a row of a table or a block of
// code; a declaration, after its first line.
func offlineCut(text, source string) string {
	const most = 1600 // bytes
	language, end := strings.TrimPrefix(path.Ext(source), "."), 0
	switch {
	case language != "" && language != "md" && language != "txt":
		if len(text) > most {
			text = offlineHead.FindString(text) + "\n…"
		}
		fence := strings.Repeat("`", 3+min(1, strings.Count(text, "```")))
		return fence + language + "\n" + text + "\n" + fence
	case len(text) <= most:
		return text
	}
	for _, at := range offlineEnd.FindAllStringIndex(text[:most], -1) {
		inRow := text[strings.LastIndexByte(text[:at[0]], '\n')+1] == '|' && text[at[0]] != '|'
		if !inRow && strings.Count(text[:at[1]], "```")%2 == 0 {
			end = at[1]
		}
	}
	text = strings.TrimSpace(strings.ToValidUTF8(text[:cmp.Or(end, strings.LastIndexByte(text[:most], ' ')+1, most)], ""))
	return text + strings.Repeat("\n```", strings.Count(text, "```")%2) + "\n\n…"
}
