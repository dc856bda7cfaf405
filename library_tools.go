// library_tools.go - the tools of the library: what a model can ask of a corpus.
// Needs: Go 1.25, search.go, corpus.go.
// SPDX-License-Identifier: 0BSD

package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"path"
	"strings"
)

// Each tool takes its arguments as the model wrote them, and returns text or a value to be written as JSON. An error says what
// is wrong with the arguments, for the model to mend.

// searchReply is what search_chunks returns.
type searchReply struct {
	Results    []searchResult `json:"results"`
	TotalCount int            `json:"total_count"`
	Query      string         `json:"query"`
}

type searchResult struct {
	Text       string  `json:"text"`
	Similarity float64 `json:"similarity"`
	Source     string  `json:"source"`
	StartLine  int     `json:"start_line"`
	EndLine    int     `json:"end_line"`
}

// maxQuote is how much text one search result carries at most, in bytes. Only a passage of very long lines has more.
const maxQuote = 4 << 10

func (c *Corpus) searchChunks(raw json.RawMessage) (any, error) {
	a := struct {
		Query         string  `json:"query"`
		Limit         float64 `json:"limit"` // to JSON Schema, 10.0 is an integer too
		MinSimilarity float64 `json:"min_similarity"`
		SourceFilter  string  `json:"source_filter"`
	}{Limit: 10}
	err := decodeArguments(raw, &a)
	switch {
	case err != nil:
		return nil, err
	case strings.TrimSpace(a.Query) == "":
		return nil, errors.New("query is missing or empty: give a question or key words")
	case a.Limit < 1 || a.Limit > 500 || a.Limit != math.Trunc(a.Limit):
		return nil, fmt.Errorf("limit must be a whole number from 1 to 500, not %v", a.Limit)
	case a.MinSimilarity < 0 || a.MinSimilarity > 1:
		return nil, fmt.Errorf("min_similarity must be from 0 to 1, not %v", a.MinSimilarity)
	}
	meant, err := sourceFilter(a.SourceFilter)
	if err != nil {
		return nil, err
	}
	reply := searchReply{Results: []searchResult{}, Query: a.Query}
	for _, h := range c.Index.Search(a.Query) {
		if h.Similarity < a.MinSimilarity || !meant(h.Source) {
			continue
		}
		if reply.TotalCount++; reply.TotalCount > int(a.Limit) {
			continue
		}
		text := strings.TrimRight(h.Text, "\r\n\t ")
		end := h.Start + strings.Count(text, "\n")
		if len(text) > maxQuote {
			text = strings.ToValidUTF8(text[:maxQuote], "") + " […]"
		}
		reply.Results = append(reply.Results, searchResult{text, h.Similarity, h.Source, h.Start, end})
	}
	return reply, nil
}

// listDocuments names a thousand documents at most, so as not to flood a model; a filter reaches the rest.
func (c *Corpus) listDocuments(raw json.RawMessage) (any, error) {
	var a struct {
		SourceFilter string `json:"source_filter"`
	}
	if err := decodeArguments(raw, &a); err != nil {
		return nil, err
	}
	meant, err := sourceFilter(a.SourceFilter)
	if err != nil {
		return nil, err
	}
	list, count := []map[string]any{}, 0
	for _, d := range c.Documents {
		if !meant(d.Source) {
			continue
		}
		if count++; count <= 1000 {
			list = append(list, map[string]any{"source": d.Source, "lines": d.Lines, "passages": d.Passages})
		}
	}
	return map[string]any{"documents": list, "total_count": count, "library": c.String()}, nil
}

// getDocument serves what was indexed, from memory: no path that a client makes up is ever opened.
func (c *Corpus) getDocument(raw json.RawMessage) (any, error) {
	a := struct {
		Source    string `json:"source"`
		StartLine int    `json:"start_line"`
		EndLine   int    `json:"end_line"`
	}{StartLine: 1}
	if err := decodeArguments(raw, &a); err != nil {
		return nil, err
	}
	d, ok := c.Document(a.Source)
	if !ok {
		return nil, fmt.Errorf("there is no document %q: list_documents names them", a.Source)
	}
	end := cmp.Or(a.EndLine, d.Lines)
	if a.StartLine < 1 || a.StartLine > max(1, end) || end < 0 || end > d.Lines {
		return nil, fmt.Errorf("%s has the lines 1 to %d, not %d to %d", d.Source, d.Lines, a.StartLine, end)
	}
	lines := strings.SplitAfter(d.Text, "\n")
	return strings.Join(lines[a.StartLine-1:end], ""), nil
}

// decodeArguments is strict, because an argument that is silently dropped leads a model astray. What is absent or
// null keeps the value that it has.
func decodeArguments(raw json.RawMessage, into any) error {
	if len(raw) == 0 {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	err := d.Decode(into)
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		want := map[string]string{"string": "a string", "float64": "a number", "int": "a whole number"}[wrong.Type.String()]
		return fmt.Errorf("%s must be %s, not %s", cmp.Or(wrong.Field, "arguments"), cmp.Or(want, "an object"), wrong.Value)
	}
	if err != nil {
		return fmt.Errorf("%s: leave it out", strings.TrimPrefix(err.Error(), "json: "))
	}
	return nil
}

// sourceFilter makes a filter a function. One with any of * ? [ is a path.Match pattern for the whole path or its last
// element; any other is a part of the path, in whatever case.
func sourceFilter(filter string) (meant func(source string) bool, err error) {
	if !strings.ContainsAny(filter, "*?[") {
		filter = strings.ToLower(filter)
		return func(source string) bool { return strings.Contains(strings.ToLower(source), filter) }, nil
	}
	if _, err := path.Match(filter, ""); err != nil {
		return nil, fmt.Errorf("source_filter must be a part of a path or a pattern such as docs/*.md, not %q", filter)
	}
	return func(source string) bool {
		whole, _ := path.Match(filter, source)
		last, _ := path.Match(filter, path.Base(source))
		return whole || last
	}, nil
}

// libraryTools is the list of tools/list.
const libraryTools = `[
{
	"name": "search_chunks",
	"title": "Search",
	"description": "Search the library for passages about a question or some key words. Returns the best matching passages with their source and lines.",
	"inputSchema": {
		"type": "object",
		"properties": {
			"query": {"type": "string", "description": "A question or key words"},
			"limit": {"type": "integer", "minimum": 1, "maximum": 500, "default": 10, "description": "How many passages to return at most"},
			"min_similarity": {"type": "number", "minimum": 0, "maximum": 1, "default": 0, "description": "Leave out passages that match less; 0.3 is a fair match"},
			"source_filter": {"type": "string", "description": "Only sources with this in their path, or that match this pattern, such as docs/*.md"}
		},
		"required": ["query"],
		"additionalProperties": false
	},
	"outputSchema": {
		"type": "object",
		"properties": {
			"results": {
				"type": "array",
				"description": "Passages, best first",
				"items": {
					"type": "object",
					"properties": {
						"text": {"type": "string"},
						"similarity": {"type": "number", "minimum": 0, "maximum": 1},
						"source": {"type": "string"},
						"start_line": {"type": "integer", "minimum": 1},
						"end_line": {"type": "integer", "minimum": 1}
					},
					"required": ["text", "similarity", "source", "start_line", "end_line"]
				}
			},
			"total_count": {"type": "integer", "description": "How many passages match, with those beyond the limit"},
			"query": {"type": "string"}
		},
		"required": ["results", "total_count", "query"]
	},
	"annotations": {"readOnlyHint": true, "openWorldHint": false}
},
{
	"name": "list_documents",
	"title": "List documents",
	"description": "List the documents of the library with their size, and what was left out of it.",
	"inputSchema": {
		"type": "object",
		"properties": {
			"source_filter": {"type": "string", "description": "Only sources with this in their path, or that match this pattern, such as docs/*.md"}
		},
		"additionalProperties": false
	},
	"annotations": {"readOnlyHint": true, "openWorldHint": false}
},
{
	"name": "get_document",
	"title": "Read a document",
	"description": "Return the text of a document of the library, or some lines of it.",
	"inputSchema": {
		"type": "object",
		"properties": {
			"source": {"type": "string", "description": "The document, as search_chunks and list_documents name it"},
			"start_line": {"type": "integer", "minimum": 1, "default": 1, "description": "The first line to return"},
			"end_line": {"type": "integer", "minimum": 1, "description": "The last line to return; all if left out"}
		},
		"required": ["source"],
		"additionalProperties": false
	},
	"annotations": {"readOnlyHint": true, "openWorldHint": false}
}
]`
