// library_tools.go - the tools of the library.
// SPDX-License-Identifier: 0BSD

package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"path"
	"reflect"
	"strings"
)

// callTool runs a tool. An error that the model can correct, invalid arguments, is a result with
// isError. One that only the client can correct, an unknown tool, is a protocol error (MCP
// 2025-11-25, tools, error handling).
func (l *Library) callTool(ctx context.Context, r *libraryRequest) (map[string]any, error) {
	name := r.text("name")
	tools := map[string]func(*corpus, json.RawMessage) (any, error){
		"search_chunks":  (*corpus).searchChunks,
		"list_documents": (*corpus).listDocuments,
		"get_document":   (*corpus).getDocument,
	}
	run := tools[name]
	if run == nil {
		return nil, invalidParams("unknown tool: %s", name)
	}
	c, err := l.currentCorpus(ctx)
	var value any
	if err == nil {
		value, err = run(c, r.params["arguments"])
	}
	if err != nil {
		result := textResult(name + ": " + err.Error())
		result["isError"] = true
		return result, nil
	}
	if text, ok := value.(string); ok {
		return textResult(text), nil
	}
	// A client that knows nothing of structured content reads the same as text (MCP 2025-11-25,
	// tools, structured content). The values of our tools always encode.
	text, _ := plainJSON(value)
	result := textResult(string(text))
	result["structuredContent"] = value
	return result, nil
}

func textResult(text string) map[string]any {
	return map[string]any{"content": []ContentBlock{{Type: "text", Text: text}}}
}

// Each tool takes its arguments as the model wrote them. It returns text, or a value to encode as
// JSON. An error describes what is wrong with the arguments, so that the model can correct them.

// SearchReply is the result of search_chunks.
type SearchReply struct {
	Results    []SearchResult `json:"results"`
	TotalCount int            `json:"total_count"`
	Query      string         `json:"query"`
	LeftOut    []omission     `json:"left_out,omitempty"` // only if nothing was found
}

// SearchResult is a passage that was found.
type SearchResult struct {
	Heading    string  `json:"heading,omitempty"` // of the passage; in code, the declaration's line
	Text       string  `json:"text"`
	Similarity float64 `json:"similarity"`
	Source     string  `json:"source"`
	StartLine  int     `json:"start_line"`
	EndLine    int     `json:"end_line"`
}

// Bounds on what a result costs a model.
const (
	maxQuote  = 4 << 10 // bytes of one passage that is found: only very long lines exceed it
	maxListed = 1000    // documents of list_documents: a filter finds the others
)

// searchChunks returns the passages that match a query best. If there are none it tells what was
// left out of the library: the answer may stand there.
func (c *corpus) searchChunks(raw json.RawMessage) (any, error) {
	type arguments struct {
		Query         string  `json:"query"`
		Limit         float64 `json:"limit"` // for JSON Schema 10.0 is an integer, too
		MinSimilarity float64 `json:"min_similarity"`
		SourceFilter  string  `json:"source_filter"`
	}
	a := arguments{Limit: 10}
	if err := decodeArguments(raw, &a); err != nil {
		return nil, err
	}
	if strings.TrimSpace(a.Query) == "" {
		return nil, errors.New("query is missing or empty: give a question or key words")
	}
	// A limit outside of the schema's bounds is taken for the nearest one: the model wants few or
	// many passages, and an error would cost it a turn.
	limit := int(min(max(a.Limit, 1), 500))
	least := func(source string) float64 {
		if !matchesFilter(source, a.SourceFilter) {
			return math.Inf(1)
		}
		return a.MinSimilarity
	}
	hits, total := Search(a.Query, limit, least, c.indexes...)
	reply := SearchReply{Results: []SearchResult{}, TotalCount: total, Query: a.Query}
	for _, h := range hits {
		reply.Results = append(reply.Results, searchResult(h))
	}
	if total == 0 {
		reply.LeftOut = c.leftOut
	}
	return reply, nil
}

// searchResult leaves out the blank lines at the end of a passage, and cuts one that is too long.
func searchResult(h Hit) SearchResult {
	text := strings.TrimRight(h.Text, "\r\n\t ")
	result := SearchResult{
		Heading:    h.Heading(),
		Text:       text,
		Similarity: h.Similarity,
		Source:     h.Source,
		StartLine:  h.Start,
		EndLine:    h.Start + strings.Count(text, "\n"),
	}
	if len(text) > maxQuote {
		result.Text = strings.ToValidUTF8(text[:maxQuote], "") + " […]"
	}
	return result
}

// listDocuments names documents with their lengths, so that a model can read one in parts.
func (c *corpus) listDocuments(raw json.RawMessage) (any, error) {
	type arguments struct {
		SourceFilter string `json:"source_filter"`
	}
	var a arguments
	if err := decodeArguments(raw, &a); err != nil {
		return nil, err
	}
	listed, count := []map[string]any{}, 0
	for _, d := range c.documents {
		if !matchesFilter(d.Source, a.SourceFilter) {
			continue
		}
		count++
		if count <= maxListed {
			listed = append(listed, map[string]any{"source": d.Source, "lines": d.lines})
		}
	}
	reply := map[string]any{"documents": listed, "total_count": count, "library": c.String()}
	if c.leftOut != nil {
		reply["left_out"] = c.leftOut
	}
	return reply, nil
}

// getDocument returns a document as it was indexed. No path of a client is ever opened.
func (c *corpus) getDocument(raw json.RawMessage) (any, error) {
	type arguments struct {
		Source    string      `json:"source"`
		StartLine wholeNumber `json:"start_line"`
		EndLine   wholeNumber `json:"end_line"`
	}
	a := arguments{StartLine: 1}
	if err := decodeArguments(raw, &a); err != nil {
		return nil, err
	}
	d := c.document(a.Source)
	switch {
	case a.Source == "":
		return nil, errors.New("source is missing or empty: list_documents names the documents")
	case d == nil:
		return nil, fmt.Errorf("unknown document %q: list_documents names them", a.Source)
	}
	lineOf := func(number wholeNumber) int { return int(min(max(number, -1), 1e9)) }
	start := lineOf(a.StartLine)
	// Some models write 0 for an argument that they leave out.
	end := min(cmp.Or(lineOf(a.EndLine), d.lines), d.lines)
	if start < 1 || start > end+1 {
		return nil, fmt.Errorf("%s has the lines 1 to %d, not %d to %d",
			d.Source, d.lines, start, end)
	}
	// A document may end without a newline, so lines are cut after it and joined as they were.
	lines := strings.SplitAfter(d.Text, "\n")
	return strings.Join(lines[start-1:end], ""), nil
}

// wholeNumber is an integer of any size. For JSON Schema 10.0 is one, too.
type wholeNumber float64

func (n *wholeNumber) UnmarshalJSON(text []byte) error {
	// After null the number is what it was.
	number := float64(*n)
	err := json.Unmarshal(text, &number)
	if err == nil && number != math.Trunc(number) {
		return &misfit{"", fmt.Sprintf("must be a whole number, not %.80s", text)}
	}
	*n = wholeNumber(number)
	return err
}

// decodeArguments refuses unknown arguments, since ignoring them would mislead the model; upper
// case makes no other name. An argument that is absent or null keeps its value, and so do all of
// them if there are no arguments, which the decoder calls io.EOF.
//
// A model reads the error. It names the argument and what that must be, and not Go's types.
func decodeArguments(raw json.RawMessage, into any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	err := d.Decode(into)
	if err == nil || err == io.EOF {
		return nil
	}
	unknown, isUnknown := strings.CutPrefix(err.Error(), "json: unknown field ")
	if isUnknown {
		return fmt.Errorf("there is no argument %s; the arguments are: %s",
			unknown, strings.Join(argumentNames(into), ", "))
	}
	return decodeJSON("arguments", raw, into)
}

// argumentNames returns the names that the fields of a struct have as arguments.
func argumentNames(of any) (names []string) {
	fields := reflect.TypeOf(of).Elem()
	for i := range fields.NumField() {
		names = append(names, fields.Field(i).Tag.Get("json"))
	}
	return names
}

// matchesFilter reports whether a filter is a part of a source in any case, or a path.Match pattern
// of the source or of its last element.
func matchesFilter(source, filter string) bool {
	whole, _ := path.Match(filter, source)
	last, _ := path.Match(filter, path.Base(source))
	return whole || last || strings.Contains(strings.ToLower(source), strings.ToLower(filter))
}

// ReadOnlyLibraryTools returns the names of the tools that change nothing, by their hints.
func ReadOnlyLibraryTools() (names []string) {
	var tools []struct {
		Name        string
		Annotations struct{ ReadOnlyHint bool }
	}
	// The list is a constant, which is valid.
	_ = json.Unmarshal([]byte(libraryTools), &tools)
	for _, t := range tools {
		if t.Annotations.ReadOnlyHint {
			names = append(names, t.Name)
		}
	}
	return names
}

// libraryTools is the list of tools/list. It stands here as JSON, as a model gets it: what a
// model does with a tool depends on these words more than on the code. The hints say that no tool
// changes anything, so a client need not ask before a call.
const libraryTools = `[{
	"name": "search_chunks",
	"title": "Search",
	"description":
		"Search the library. Returns the passages that match best, with their source and lines.",
	"inputSchema": {"type": "object", "required": ["query"], "additionalProperties": false,
		"properties": {
			"query": {"type": "string", "description": "A question or key words"},
			"limit": {"type": "integer", "minimum": 1, "maximum": 500, "default": 10,
				"description": "The maximum number of passages"},
			"min_similarity": {"type": "number", "minimum": 0, "maximum": 1, "default": 0,
				"description": "Leave out passages below this similarity; 0.3 is a fair match"},
			"source_filter": {"type": "string",
				"description": "A part of the source's path, or a pattern: docs/*.md"}
		}},
	"annotations": {"readOnlyHint": true, "openWorldHint": false}
}, {
	"name": "list_documents",
	"title": "List documents",
	"description": "List the documents of the library, and what was left out of it.",
	"inputSchema": {"type": "object", "additionalProperties": false,
		"properties": {
			"source_filter": {"type": "string",
				"description": "A part of the source's path, or a pattern: docs/*.md"}
		}},
	"annotations": {"readOnlyHint": true, "openWorldHint": false}
}, {
	"name": "get_document",
	"title": "Read a document",
	"description": "Return the text of a document of the library, or some lines of it.",
	"inputSchema": {"type": "object", "required": ["source"], "additionalProperties": false,
		"properties": {
			"source": {"type": "string",
				"description": "The source as search_chunks and list_documents name it"},
			"start_line": {"type": "integer", "minimum": 1, "default": 1,
				"description": "The first line to return"},
			"end_line": {"type": "integer", "minimum": 1,
				"description": "The last line; by default that of the document"}
		}},
	"annotations": {"readOnlyHint": true, "openWorldHint": false}
}]`
