// offline.go - a stand-in for a model, for machines without a key.
// Needs: Go 1.25, mistral.go, search.go.
// SPDX-License-Identifier: 0BSD

package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
)

const (
	offlineCalls = 4 // at most for one question
	offlineNote  = "(This is no language model: it picks a tool and quotes what comes back. Set MISTRAL_API_KEY to ask a real one.)"
)

// Offline is an http.RoundTripper that serves POST …/chat/completions, whole or as a stream, without a network. It is
// no language model: it compares words. It tries the tool whose description is nearest to the last user message; where
// that brings nothing, fewer words or another tool; and then quotes what came, with its source. It can use any tool
// that is content with one text, or with nothing, and says so where there is none.
type Offline struct{}

// RoundTrip fails only with the request's body or context. What is wrong with a request it says as the API does.
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
		status, problem = http.StatusNotFound, "there is only /chat/completions, no "+r.URL.Path
	case r.Method != http.MethodPost:
		status, problem = http.StatusMethodNotAllowed, "the method is POST"
	case err != nil:
		problem = "the request cannot be read: " + err.Error()
	case request.asked() < 0:
		problem = "messages: a user message is needed, and the last has to be the user's or a tool's"
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

// offlineRequest is as much of a chat-completions request as is looked at.
type offlineRequest struct {
	Messages []Message `json:"messages"`
	Tools    []struct {
		Function Function `json:"function"`
	} `json:"tools"`
	ToolChoice json.RawMessage `json:"tool_choice"`
	Stream     bool            `json:"stream"`
}

// asked is the place of the last user message, or -1 if there is nothing to reply to.
func (r *offlineRequest) asked() int {
	at := len(r.Messages) - 1
	if at < 0 || r.Messages[at].Role != "user" && r.Messages[at].Role != "tool" {
		return -1
	}
	for at >= 0 && r.Messages[at].Role != "user" {
		at--
	}
	return at
}

// reply quotes what the tools have found for the last user message, or makes the next call of the plan, or gives up.
func (r *offlineRequest) reply() Message {
	at := r.asked()
	question := strings.TrimSpace(r.Messages[at].Content.Text())
	var found, failed []offlineResult
	made, broken := map[string]ToolCall{}, map[string]bool{} // calls by id, tools
	for _, m := range r.Messages[at+1:] {
		for _, c := range m.ToolCalls {
			made[c.ID] = c
		}
		if m.Role != "tool" {
			continue
		}
		result := offlineResult{made[m.ToolCallID].Name, m.Content.Text()}
		if wrong, nothing := result.judge(); wrong || nothing {
			failed = append(failed, result)
			broken[result.tool] = broken[result.tool] || wrong
		} else {
			found = append(found, result)
		}
	}
	if len(found) > 0 {
		return offlineSay(offlineQuote(found, question))
	}
	if string(r.ToolChoice) != `"none"` && len(made) < offlineCalls {
		tried := slices.Collect(maps.Values(made))
		for _, next := range r.plan(question) {
			again := func(c ToolCall) bool { return c.Name == next.Name && c.Arguments == next.Arguments }
			if !broken[next.Name] && !slices.ContainsFunc(tried, again) {
				next.ID = fmt.Sprintf("call%05d", len(r.Messages)) // nine characters, once in the history
				return Message{Role: "assistant", Content: Text(""), ToolCalls: []ToolCall{next}}
			}
		}
	}
	if len(failed) == 0 {
		return offlineSay("None of the tools offered can be used with the words of this question.\n\n")
	}
	text := "The tools found nothing.\n\n"
	for _, f := range failed {
		text += f.tool + ": " + offlineCut(cmp.Or(strings.TrimSpace(f.text), "(nothing)"), 300) + "\n\n"
	}
	return offlineSay(text)
}

// offlineResult is what came back from a tool.
type offlineResult struct{ tool, text string }

// judge says whether a result tells of a failure, or of nothing found. The API has no field for either, so this goes by
// the forms that hosts and tools use.
func (r offlineResult) judge() (wrong, nothing bool) {
	var object map[string]any
	if json.Unmarshal([]byte(r.text), &object) == nil {
		failure := object["error"]
		wrong = object["success"] == false || failure != nil && failure != false && failure != ""
		nothing = true // if all it has is empty, but for the query
		for key, value := range object {
			list, isList := value.([]any)
			nothing = nothing && (isList && len(list) == 0 || value == 0.0 || value == nil || key == "query")
		}
		return wrong, nothing
	}
	text := strings.TrimSpace(r.text)
	wrong = strings.HasPrefix(text, "Error: ")
	if len(text) < 500 { // a longer text with these words is likely to be about failures
		failure := regexp.MustCompile(`(?i)^\W*(\w+\W+){0,2}(error|failed|denied|refused|cannot|invalid|unknown)\b|\bno such\b`)
		none := regexp.MustCompile(`(?i)^(\[\s*\]|null|)$|\b(no|nothing) (\w+ )?(results?|match\w*|found|text)\b|\bnot found\b`)
		wrong, nothing = wrong || failure.MatchString(text), none.MatchString(text)
	}
	return wrong, nothing
}

// plan lists the calls that may help, best first: of the tools nearest to the question, those with the whole of it
// before those with fewer words. A tool that changes things has to be asked for by its verb.
func (r *offlineRequest) plan(question string) []ToolCall {
	const changes = "write create add insert update edit set move rename delete remove drop send post upload ingest parse " +
		"run execute start stop install toggle trigger"
	var index Index
	for _, t := range r.Tools {
		index.Add(t.Function.Name, t.Function.Name+": "+t.Function.Description, true)
	}
	score := map[string]float64{} // of tools
	for _, h := range index.Search(question) {
		score[h.Source] = max(score[h.Source], 2*h.Similarity)
	}
	var all []ToolCall
	for _, t := range r.Tools {
		name := t.Function.Name
		calls, fit := offlineFill(t.Function, question)
		score[name] += fit
		if offlineShare(name, "search find query lookup ask retrieve") {
			score[name] += 0.3
		} else if offlineShare(name, "read get show list fetch echo") {
			score[name] += 0.1
		}
		unasked := slices.ContainsFunc(strings.Fields(changes), func(verb string) bool {
			return offlineShare(name, verb) && !offlineShare(question, verb)
		})
		if score[name] > 0 && !unasked {
			all = append(all, calls...)
		}
	}
	slices.SortStableFunc(all, func(a, b ToolCall) int { return cmp.Compare(score[b.Name], score[a.Name]) })
	return all
}

// offlineFill returns the calls of a tool that the question has words for, and how well its parameter suits: the one
// that is required, or an optional one for a query.
func offlineFill(f Function, question string) (calls []ToolCall, fit float64) {
	const (
		queries = "query question search text message prompt topic keyword term input content phrase pattern q"
		places  = "path file filename dir directory folder uri url source document"
	)
	var schema struct {
		Properties map[string]json.RawMessage `json:"properties"`
		Required   []string                   `json:"required"`
	}
	if len(f.Parameters) > 0 && json.Unmarshal(f.Parameters, &schema) != nil || len(schema.Required) > 1 {
		return nil, 0
	}
	names := schema.Required
	if len(names) == 0 {
		names = slices.Sorted(maps.Keys(schema.Properties))
		names = slices.DeleteFunc(names, func(p string) bool { return !offlineShare(p, queries) })
	}
	if len(names) == 0 {
		return []ToolCall{{Name: f.Name, Arguments: "{}"}}, -0.1 // only for a question that shares words with the tool
	}
	var parameter struct {
		Type, AnyOf json.RawMessage // a name, a list of names; a list of schemas
		Enum        []string
	}
	if json.Unmarshal(schema.Properties[names[0]], &parameter) != nil ||
		!bytes.Contains(slices.Concat(parameter.Type, parameter.AnyOf), []byte(`"string"`)) {
		return nil, 0
	}
	quoted, words := offlineWords(question)
	values, fit := append(quoted, offlineTelling(words)...), 0.1
	switch {
	case parameter.Enum != nil:
		values = slices.DeleteFunc(parameter.Enum, func(v string) bool { return !offlineShare(v, question) })
	case offlineShare(names[0], places):
		values, fit = append(quoted, slices.DeleteFunc(words, func(w string) bool {
			return !strings.ContainsAny(w, `/\`) && len(path.Ext(w)) < 2
		})...), 0.4
	case offlineShare(names[0], queries):
		fit = 0.2
		if len(quoted) == 0 {
			values = append([]string{question, strings.Join(words, " ")}, values...)
		}
	}
	for _, v := range values {
		calls = append(calls, ToolCall{Name: f.Name, Arguments: string(offlineJSON(map[string]string{names[0]: v}))})
	}
	return calls, fit
}

// offlineWords returns what stands in quotation marks, and the words but for those that every text has.
func offlineWords(question string) (quoted, words []string) {
	marks := regexp.MustCompile("\"([^\"]+)\"|`([^`]+)`|“([^”]+)”|«\\s*([^»]+?)\\s*»|(?:^|\\s)'([^']+)'")
	for _, m := range marks.FindAllStringSubmatch(question, -1) {
		quoted = append(quoted, strings.Join(m[1:], ""))
	}
	for _, w := range strings.Fields(question) {
		w = strings.TrimRight(strings.Trim(w, "\"'`“”«»()[]{}<>,;:!?…"), ".")
		if w != "" && !isStopWord(strings.ToLower(w)) {
			words = append(words, w)
		}
	}
	return slices.Clip(quoted), words
}

// offlineTelling returns the two words that are likely to tell most: names before other words, then the longer one.
func offlineTelling(words []string) []string {
	lower := func(w string) int {
		if unicode.IsUpper([]rune(w)[0]) {
			return 0
		}
		return 1
	}
	words = slices.Clone(words)
	slices.SortStableFunc(words, func(a, b string) int { return cmp.Or(lower(a)-lower(b), len(b)-len(a)) })
	return words[:min(2, len(words))]
}

// offlineShare says whether a name has one of some words.
func offlineShare(name, words string) bool {
	key := keyTerms(words)
	return slices.ContainsFunc(terms(name), func(t string) bool { return slices.Contains(key, t) })
}

// offlinePiece is a text to quote from.
type offlinePiece struct {
	source string
	line   int // of the first line in the source; 0 if that is not known
	lines  []string
}

// pieces takes a result apart if it is a list of passages, as search_chunks gives it; any other is one piece.
func (r offlineResult) pieces() (all []offlinePiece) {
	var list struct{ Results []map[string]any }
	if json.Unmarshal([]byte(r.text), &list) != nil || len(list.Results) == 0 {
		return []offlinePiece{{r.tool, 0, strings.Split(r.text, "\n")}}
	}
	for _, result := range list.Results {
		text, _ := result["text"].(string)
		source, _ := result["source"].(string)
		line, _ := result["start_line"].(float64)
		if source == "" { // then what else says where it is from, such as author and work
			var names []string
			for _, key := range slices.Sorted(maps.Keys(result)) {
				if name, ok := result[key].(string); ok && key != "text" {
					names = append(names, name)
				}
			}
			source = cmp.Or(strings.Join(names, ", "), r.tool)
		}
		all = append(all, offlinePiece{source, int(line), strings.Split(text, "\n")})
	}
	return all
}

// offlineQuote quotes the first three pieces, each with its source and cut to the lines that have most of the question.
// A piece with the question itself in quotation marks shows how to ask it and does not answer it: it comes last.
func offlineQuote(results []offlineResult, question string) string {
	var pieces, examples []offlinePiece
	for _, r := range results {
		for _, p := range r.pieces() {
			if strings.Contains(strings.Join(p.lines, "\n"), `"`+question+`"`) {
				examples = append(examples, p)
			} else {
				pieces = append(pieces, p)
			}
		}
	}
	pieces = append(pieces, examples...)
	var b strings.Builder
	for _, p := range pieces[:min(3, len(pieces))] {
		from, to := p.best(keyTerms(question))
		b.WriteString(p.source)
		if p.line > 0 {
			fmt.Fprintf(&b, ":%d", p.line+from)
		}
		text := offlineCut(strings.TrimRight(strings.Join(p.lines[from:to], "\n"), " \t\r\n"), 1200)
		b.WriteString("\n    " + strings.ReplaceAll(text, "\n", "\n    ") + "\n\n")
	}
	return b.String()
}

// best is the range of at most eight lines with the most words of the question. A word that occurs again adds little.
func (p offlinePiece) best(words []string) (from, to int) {
	const height = 8
	most := -1.0
	for start := range max(1, len(p.lines)-height+1) {
		sum, seen := 0.0, map[string]bool{}
		for _, t := range terms(strings.Join(p.lines[start:min(start+height, len(p.lines))], "\n")) {
			if slices.Contains(words, t) {
				if sum += 0.1; !seen[t] {
					sum++
				}
				seen[t] = true
			}
		}
		if sum > most {
			most, from = sum, start
		}
	}
	to = min(from+height, len(p.lines))
	for from < to-1 && strings.TrimSpace(p.lines[from]) == "" {
		from++
	}
	return from, to
}

// offlineCut shortens a text to so many bytes.
func offlineCut(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "") + " […]"
}

func offlineSay(text string) Message {
	return Message{Role: "assistant", Content: Text(text + offlineNote)}
}

// offlineStream is a reply as server-sent events: the text line by line, calls whole.
func offlineStream(reply Message) []byte {
	var b bytes.Buffer
	send := func(delta map[string]any, finish any) {
		fmt.Fprintf(&b, "data: %s\n\n", offlineFrame("chat.completion.chunk", "delta", delta, finish))
	}
	send(map[string]any{"role": "assistant", "content": ""}, nil)
	for line := range strings.Lines(reply.Content.Text()) {
		send(map[string]any{"content": line}, nil)
	}
	end := map[string]any{"content": ""}
	for i, c := range reply.ToolCalls {
		end["tool_calls"] = []any{map[string]any{
			"index": i, "id": c.ID, "type": "function", "function": map[string]string{"name": c.Name, "arguments": c.Arguments},
		}}
	}
	send(end, offlineFinish(reply))
	b.WriteString("data: [DONE]\n\n")
	return b.Bytes()
}

// offlineFrame is the envelope of a message, or of a part of one. The last part has a finish reason, and a usage of no
// tokens.
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

func offlineFinish(reply Message) string {
	if len(reply.ToolCalls) > 0 {
		return "tool_calls"
	}
	return "stop"
}

// offlineJSON encodes what always has an encoding.
func offlineJSON(v any) []byte {
	b, _ := chatJSON(v)
	return b
}
