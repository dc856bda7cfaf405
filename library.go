// library.go - an MCP server that searches text files.
// SPDX-License-Identifier: 0BSD

package main

import (
	"bytes"
	"cmp"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"
)

// sourceFiles holds the source and the documentation of this program.
//
//go:embed *.go *.md docs/*.md
var sourceFiles embed.FS

// Library is an MCP server that searches the text files of a folder, as they are when it is asked: it reads a file
// once, and again when it has changed. Each file is also a resource. Create one with a constructor, set its fields,
// then call Serve; any number of connections may share it. Over a folder of the file system use os.Root.FS: no
// symbolic link leads out of it.
type Library struct {
	FS        fs.FS
	Skip      string               // a path.Match pattern: files whose base names match are not of the library
	MaxFile   int64                // bytes of one file, at most 1 GiB; 0 means 2 MiB
	MaxFiles  int                  // 0 means 20,000
	MaxTotal  int64                // bytes of all files together; 0 means 256 MiB
	Version   string               // the server's version; "" means "0"
	OnIndexed func(summary string) // receives what was read and what was left out, first and when that has changed

	turn   chan struct{} // one slot, held while the next three are read or set; a waiting request can be cancelled
	corpus *corpus       // nil until a request has read all files
	looked time.Time     // when a request looked at all files last
	took   time.Duration // how long it looked; 0 if it found others
}

// NewLibrary returns a library of the text files of fsys.
func NewLibrary(fsys fs.FS) *Library {
	return &Library{FS: fsys, OnIndexed: func(string) {}, turn: make(chan struct{}, 1)}
}

// SourceLibrary returns a library of this program's documentation and source, without its tests.
func SourceLibrary() *Library {
	l := NewLibrary(sourceFiles)
	l.Skip = "*_test.go"
	return l
}

// Serve answers one client. It returns nil when the client has closed its side and every request is answered, an error
// when the transport fails, and the cause of ctx when ctx ends. It closes t.
func (l *Library) Serve(ctx context.Context, t Transport) error {
	c := NewConn(t, Handler{
		Request: func(ctx context.Context, _ *Conn, method string, params json.RawMessage) (any, error) {
			return l.answer(ctx, newLibraryRequest(method, params))
		},
		Immediate: func(method string) bool { return method == "ping" },
		Notification: func(c *Conn, method string, params json.RawMessage) {
			if method == "notifications/cancelled" {
				c.CancelRequest(membersOf(params)["requestId"])
			}
		},
	})
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	err := c.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// libraryRequest is a request of either era.
type libraryRequest struct {
	method string
	params map[string]json.RawMessage
	meta   map[string]json.RawMessage // the _meta of params
}

func newLibraryRequest(method string, params json.RawMessage) *libraryRequest {
	members := membersOf(params)
	return &libraryRequest{method, members, membersOf(members["_meta"])}
}

// membersOf returns the members of an object by their exact names: in a struct encoding/json would take "NAME" for
// "name". What is not an object has none.
func membersOf(text []byte) (members map[string]json.RawMessage) {
	_ = json.Unmarshal(text, &members)
	return members
}

// text returns a member of the params that is a string, and of another one the JSON, which names nothing here.
func (r *libraryRequest) text(name string) string { return textOf(r.params[name]) }

func textOf(value json.RawMessage) (text string) {
	if json.Unmarshal(value, &text) != nil {
		return string(value)
	}
	return text
}

func invalidParams(format string, args ...any) error {
	return &Error{Code: CodeInvalidParams, Message: fmt.Sprintf(format, args...)}
}

// Members of _meta that a request of the stateless era must have.
const (
	libraryMetaVersion      = "io.modelcontextprotocol/protocolVersion"
	libraryMetaCapabilities = "io.modelcontextprotocol/clientCapabilities"
)

// stateless reports whether a request belongs to the stateless era: its _meta describes the client. Any other request
// belongs to the handshake era, so one connection serves both (MCP 2026-07-28, versioning, backward compatibility).
func (r *libraryRequest) stateless() bool {
	return r.meta[libraryMetaVersion] != nil || r.meta[libraryMetaCapabilities] != nil
}

// version returns the revision of a request of the stateless era, "" if it is missing.
func (r *libraryRequest) version() string { return textOf(r.meta[libraryMetaVersion]) }

// checkMeta checks the _meta of a request of the stateless era (MCP 2026-07-28, basic, _meta). The revision is checked
// first, as it decides what else is required.
func (r *libraryRequest) checkMeta() error {
	switch version := r.version(); {
	case version == "":
		return invalidParams("%s needs %s in _meta", r.method, libraryMetaVersion)
	case version != Revisions()[0]:
		return unsupportedVersion(version)
	case !bytes.HasPrefix(r.meta[libraryMetaCapabilities], []byte("{")):
		return invalidParams("%s needs %s in _meta, an object", r.method, libraryMetaCapabilities)
	}
	return nil
}

// unsupportedVersion lists the earlier revisions, too: the client may start again with initialize.
func unsupportedVersion(version string) error {
	data, _ := json.Marshal(map[string]any{"supported": Revisions(), "requested": version})
	message := "unsupported protocol version; those before " + Revisions()[0] + " begin with initialize"
	return &Error{CodeUnsupportedVersion, message, data}
}

// answer returns the result of a request. A request of the handshake era is answered before the handshake, too:
// requests have goroutines of their own, so one sent directly after the handshake can overtake it. A result of the
// stateless era has some members more (MCP 2026-07-28, basic, result type; utilities, caching).
func (l *Library) answer(ctx context.Context, r *libraryRequest) (result map[string]any, err error) {
	info := Implementation{Name: "library", Version: cmp.Or(l.Version, "0")}
	promise := struct{}{} // an empty capability: no notifications
	introduction := map[string]any{
		"capabilities": map[string]any{"tools": promise, "resources": promise, "prompts": promise},
		"instructions": "Search with search_chunks first; read more of a source with get_document.",
	}
	stateless := r.stateless()
	if stateless {
		err = r.checkMeta()
	}
	switch {
	case err != nil:
	case r.method == "ping" && !stateless:
		result = map[string]any{}
	case r.method == "initialize" && !stateless:
		result = introduction
		result["serverInfo"], result["protocolVersion"] = info, Revisions()[1]
		if version := r.text("protocolVersion"); slices.Contains(Revisions()[1:], version) {
			result["protocolVersion"] = version // else the newest (MCP 2025-11-25, lifecycle, version negotiation)
		}
	case r.method == "server/discover" && stateless:
		result = introduction
		result["supportedVersions"] = Revisions()
	default:
		result, err = l.answerCommon(ctx, r)
	}
	if err != nil || !stateless {
		return result, err
	}
	result["resultType"] = "complete"
	result["_meta"] = map[string]any{"io.modelcontextprotocol/serverInfo": info}
	const hour = 60 * 60 * 1000 // in milliseconds; only the files change while the server runs
	switch r.method {
	case "resources/list", "resources/read": // the files may be private
		result["ttlMs"], result["cacheScope"] = 0, "private"
	case "server/discover", "tools/list", "prompts/list", "resources/templates/list":
		result["ttlMs"], result["cacheScope"] = hour, "public"
	}
	return result, nil
}

// answerCommon answers a request that both eras have. A list has one page, so no cursor is valid.
func (l *Library) answerCommon(ctx context.Context, r *libraryRequest) (map[string]any, error) {
	if cursor := r.text("cursor"); cursor != "" {
		return nil, invalidParams("%s: unknown cursor %q", r.method, cursor)
	}
	switch r.method {
	case "tools/list":
		return map[string]any{"tools": json.RawMessage(libraryTools)}, nil
	case "tools/call":
		return l.callTool(ctx, r)
	case "resources/list":
		return l.listResources(ctx)
	case "resources/templates/list":
		return map[string]any{"resourceTemplates": []ResourceTemplate{{
			URITemplate: "library:///{+source}", Name: "document", Title: "Document",
			Description: "The text of a document, by its path",
		}}}, nil
	case "resources/read":
		return l.readResource(ctx, r)
	case "prompts/list":
		return map[string]any{"prompts": []Prompt{{
			Name: "answer_from_library", Title: "Answer from the library",
			Description: "Answer a question from the library, with sources",
			Arguments:   []PromptArgument{{Name: "question", Description: "What you want to know", Required: true}},
		}}}, nil
	case "prompts/get":
		return getPrompt(r)
	}
	return nil, &Error{Code: CodeMethodNotFound, Message: "method not found: " + r.method}
}

func (l *Library) listResources(ctx context.Context) (map[string]any, error) {
	c, err := l.load(ctx)
	if err != nil {
		return nil, err
	}
	resources := []Resource{}
	for _, d := range c.documents {
		resources = append(resources, Resource{
			URI: documentURI(d.Source), Name: d.Source, MIMEType: mimeType(d.Source), Size: Whole(len(d.Text)),
		})
	}
	return map[string]any{"resources": resources}, nil
}

// readResource returns a document as it was indexed. No path of a client is ever opened.
func (l *Library) readResource(ctx context.Context, r *libraryRequest) (map[string]any, error) {
	c, err := l.load(ctx)
	if err != nil {
		return nil, err
	}
	uri := r.text("uri")
	d := c.known[documentSource(uri)]
	if d == nil || d.reason != "" {
		data, _ := json.Marshal(map[string]string{"uri": uri})
		notFound := &Error{CodeResourceNotFound, "resource not found: resources/list names them", data}
		if r.stateless() {
			notFound.Code = CodeInvalidParams // that era reserves the other code
		}
		return nil, notFound
	}
	return map[string]any{"contents": []map[string]any{
		{"uri": documentURI(d.Source), "mimeType": mimeType(d.Source), "text": d.Text},
	}}, nil
}

func documentURI(source string) string {
	u := url.URL{Scheme: "library", Path: "/" + source}
	return u.String()
}

// documentSource is the inverse of documentURI. It also accepts a path with another encoding, or none, as clients that
// fill in the template send it.
func documentSource(uri string) string {
	escaped, ok := strings.CutPrefix(uri, "library:///")
	source, err := url.PathUnescape(escaped)
	if !ok || err != nil {
		return "" // not the source of any document
	}
	return source
}

func mimeType(source string) string {
	if path.Ext(source) == ".md" {
		return "text/markdown"
	}
	return "text/plain"
}

// getPrompt returns the message that the user sends to the model.
func getPrompt(r *libraryRequest) (map[string]any, error) {
	name, question := r.text("name"), strings.TrimSpace(textOf(membersOf(r.params["arguments"])["question"]))
	switch {
	case name != "answer_from_library":
		return nil, invalidParams("unknown prompt: %s", name)
	case question == "":
		return nil, invalidParams("%s needs the argument question", name)
	}
	const text = `Answer the question below from the library alone. Search it with search_chunks, if necessary again with
other words, and read more of a source with get_document. After each statement name its source and lines, for example
notes.md:10-14. If the library does not have the answer, say so.

Question: `
	return map[string]any{
		"description": "Answer from the library, with sources",
		"messages":    []PromptMessage{{"user", ContentBlock{Type: "text", Text: text + question}}},
	}, nil
}

// callTool runs a tool. An error that the model can correct, invalid arguments, is a result with isError. One that
// only the client can correct, an unknown tool, is a protocol error (MCP 2025-11-25, tools, error handling).
func (l *Library) callTool(ctx context.Context, r *libraryRequest) (map[string]any, error) {
	name := r.text("name")
	run := map[string]func(*corpus, json.RawMessage) (any, error){
		"search_chunks":  (*corpus).searchChunks,
		"list_documents": (*corpus).listDocuments,
		"get_document":   (*corpus).getDocument,
	}[name]
	if run == nil {
		return nil, invalidParams("unknown tool: %s", name)
	}
	c, err := l.load(ctx)
	var value any
	if err == nil {
		value, err = run(c, r.params["arguments"])
	}
	result := make(map[string]any)
	text, isText := value.(string)
	switch {
	case err != nil:
		text, result["isError"] = name+": "+err.Error(), true
	case !isText:
		b, _ := PlainJSON(value) // our values have an encoding
		text, result["structuredContent"] = string(b), value
	}
	result["content"] = []ContentBlock{{Type: "text", Text: text}}
	return result, nil
}

// Each tool takes its arguments as the model wrote them. It returns text, or a value to encode as JSON. An error
// describes what is wrong with the arguments, so that the model can correct them.

// SearchReply is the result of search_chunks.
type SearchReply struct {
	Results    []SearchResult `json:"results"`
	TotalCount int            `json:"total_count"`
	Query      string         `json:"query"`
	LeftOut    []omission     `json:"left_out,omitempty"` // if nothing was found: what was not searched
}

// SearchResult is a passage that was found.
type SearchResult struct {
	Text       string  `json:"text"`
	Similarity float64 `json:"similarity"`
	Source     string  `json:"source"`
	StartLine  int     `json:"start_line"`
	EndLine    int     `json:"end_line"`
}

// maxQuote is the length of the text of a search result in bytes. Only a passage of very long lines exceeds it.
const maxQuote = 4 << 10

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
	hits, total := Search(a.Query, int(min(max(a.Limit, 1), 500)), func(source string) float64 {
		if !matchesFilter(source, a.SourceFilter) {
			return math.Inf(1)
		}
		return a.MinSimilarity
	}, c.indexes...)
	reply := SearchReply{Results: []SearchResult{}, TotalCount: total, Query: a.Query}
	for _, h := range hits {
		text := strings.TrimRight(h.Text, "\r\n\t ")
		end := h.Start + strings.Count(text, "\n")
		if len(text) > maxQuote {
			text = strings.ToValidUTF8(text[:maxQuote], "") + " […]"
		}
		reply.Results = append(reply.Results, SearchResult{text, h.Similarity, h.Source, h.Start, end})
	}
	if total == 0 {
		reply.LeftOut = c.leftOut
	}
	return reply, nil
}

// listDocuments names at most a thousand documents, to spare the model. A filter finds the others.
func (c *corpus) listDocuments(raw json.RawMessage) (any, error) {
	type arguments struct {
		SourceFilter string `json:"source_filter"`
	}
	var a arguments
	if err := decodeArguments(raw, &a); err != nil {
		return nil, err
	}
	list, count := []map[string]any{}, 0
	for _, d := range c.documents {
		if !matchesFilter(d.Source, a.SourceFilter) {
			continue
		}
		if count++; count <= 1000 {
			list = append(list, map[string]any{"source": d.Source, "lines": d.lines})
		}
	}
	reply := map[string]any{"documents": list, "total_count": count, "library": c.String()}
	if c.leftOut != nil {
		reply["left_out"] = c.leftOut
	}
	return reply, nil
}

// getDocument returns a document as it was indexed. No path of a client is ever opened.
func (c *corpus) getDocument(raw json.RawMessage) (any, error) {
	type arguments struct {
		Source    string `json:"source"`
		StartLine int    `json:"start_line"`
		EndLine   int    `json:"end_line"`
	}
	a := arguments{StartLine: 1}
	if err := decodeArguments(raw, &a); err != nil {
		return nil, err
	}
	d := c.known[a.Source]
	if d == nil || d.reason != "" {
		return nil, fmt.Errorf("unknown document %q: list_documents names them", a.Source)
	}
	end := min(cmp.Or(a.EndLine, d.lines), d.lines) // some models write 0 for what they leave out
	if a.StartLine < 1 || a.StartLine > end+1 {
		return nil, fmt.Errorf("%s has the lines 1 to %d, not %d to %d", d.Source, d.lines, a.StartLine, end)
	}
	lines := strings.SplitAfter(d.Text, "\n")
	return strings.Join(lines[a.StartLine-1:end], ""), nil
}

// decodeArguments refuses unknown arguments, since ignoring them would mislead the model; upper case makes no other
// name. An argument that is absent or null keeps its value.
func decodeArguments(raw json.RawMessage, into any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil && err != io.EOF { // no arguments
		return fmt.Errorf("invalid arguments: %w", err)
	}
	return nil
}

// matchesFilter reports whether a filter is a part of a source in any case, or a path.Match pattern of the source or
// of its last element.
func matchesFilter(source, filter string) bool {
	whole, _ := path.Match(filter, source)
	last, _ := path.Match(filter, path.Base(source))
	return whole || last || strings.Contains(strings.ToLower(source), strings.ToLower(filter))
}

// libraryTools is the list of tools/list.
const libraryTools = `[{
	"name": "search_chunks", "title": "Search",
	"description": "Search the library. Returns the passages that match best, with their source and lines.",
	"inputSchema": {"type": "object", "required": ["query"], "additionalProperties": false, "properties": {
		"query": {"type": "string", "description": "A question or key words"},
		"limit": {"type": "integer", "minimum": 1, "maximum": 500, "default": 10,
			"description": "The maximum number of passages"},
		"min_similarity": {"type": "number", "minimum": 0, "maximum": 1, "default": 0,
			"description": "Leave out passages below this similarity; 0.3 is a fair match"},
		"source_filter": {"type": "string", "description": "A part of the source's path, or a pattern: docs/*.md"}
	}},
	"annotations": {"readOnlyHint": true, "openWorldHint": false}
}, {
	"name": "list_documents", "title": "List documents",
	"description": "List the documents of the library, and what was left out of it.",
	"inputSchema": {"type": "object", "additionalProperties": false, "properties": {
		"source_filter": {"type": "string", "description": "A part of the source's path, or a pattern: docs/*.md"}
	}},
	"annotations": {"readOnlyHint": true, "openWorldHint": false}
}, {
	"name": "get_document", "title": "Read a document",
	"description": "Return the text of a document of the library, or some lines of it.",
	"inputSchema": {"type": "object", "required": ["source"], "additionalProperties": false, "properties": {
		"source": {"type": "string", "description": "The source as search_chunks and list_documents name it"},
		"start_line": {"type": "integer", "minimum": 1, "default": 1, "description": "The first line to return"},
		"end_line": {"type": "integer", "minimum": 1, "description": "The last line; by default that of the document"}
	}},
	"annotations": {"readOnlyHint": true, "openWorldHint": false}
}]`
