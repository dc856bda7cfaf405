// library.go - an MCP server that searches text files.
// SPDX-License-Identifier: 0BSD

package main

import (
	"cmp"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
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
	took   time.Duration // how long it looked; 0 if it indexed any
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
		Request: func(ctx context.Context, c *Conn, method string, params json.RawMessage) (any, error) {
			r, err := newLibraryRequest(method, params)
			if err != nil {
				return nil, err
			}
			r.notify = c.Notify
			return l.answer(ctx, r)
		},
		Brief: func(method string) bool { return method == "ping" },
		Notification: func(c *Conn, method string, params json.RawMessage) {
			if method == "notifications/cancelled" {
				r, _ := newLibraryRequest(method, params) // invalid params name no request
				c.CancelRequest(r.params["requestId"])
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

	notify func(ctx context.Context, method string, params any) error // sends a notification before the response
}

func newLibraryRequest(method string, params json.RawMessage) (*libraryRequest, error) {
	r := &libraryRequest{method: method}
	var err error
	if r.params, err = readObject(params); err == nil {
		r.meta, err = readObject(r.params["_meta"])
	}
	if err != nil {
		err = invalidParams("%s: params or _meta: %v", method, err)
	}
	return r, err
}

// readObject returns the members of an object by their exact names: encoding/json would take "NAME" for "name".
// Nothing, or null, has no members. A name that comes twice is an error: another reader may have taken the other one.
func readObject(text []byte) (map[string]json.RawMessage, error) {
	members := make(map[string]json.RawMessage)
	if len(text) == 0 || string(text) == "null" {
		return members, nil
	}
	twice := ""
	s := scanner{text: text}
	s.object(func(key []byte) {
		if members[string(key)] != nil {
			twice = string(key)
		}
		members[string(key)] = s.value()
	})
	switch {
	case !s.end():
		return nil, errors.New("not an object")
	case twice != "":
		return nil, fmt.Errorf("the member %q comes twice", twice)
	}
	return members, nil
}

// member decodes a member of the params. An absent one keeps its value.
func (r *libraryRequest) member(name string, into any) error {
	if value := r.params[name]; value != nil {
		if err := json.Unmarshal(value, into); err != nil {
			return invalidParams("%s: %s: %v", r.method, name, err)
		}
	}
	return nil
}

func invalidParams(format string, args ...any) error {
	return &Error{Code: CodeInvalidParams, Message: fmt.Sprintf(format, args...)}
}

// Members of _meta. A request of the stateless era must have the first two.
const (
	libraryMetaVersion      = "io.modelcontextprotocol/protocolVersion"
	libraryMetaCapabilities = "io.modelcontextprotocol/clientCapabilities"
	libraryMetaLogLevel     = "io.modelcontextprotocol/logLevel"
)

// stateless reports whether a request belongs to the stateless era: its _meta describes the client. Any other request
// belongs to the handshake era, so one connection serves both (MCP 2026-07-28, versioning, backward compatibility).
func (r *libraryRequest) stateless() bool {
	return r.meta[libraryMetaVersion] != nil || r.meta[libraryMetaCapabilities] != nil
}

// version returns the revision of a request of the stateless era, "" if it is missing.
func (r *libraryRequest) version() (version string) {
	_ = json.Unmarshal(r.meta[libraryMetaVersion], &version) // an invalid one is missing
	return version
}

// answer returns the result of a request. A request of the handshake era is answered before the handshake, too:
// requests have goroutines of their own, so one sent directly after the handshake can overtake it.
func (l *Library) answer(ctx context.Context, r *libraryRequest) (any, error) {
	switch {
	case r.stateless():
		return l.answerStateless(ctx, r)
	case r.method == "initialize":
		return l.initialize(r)
	case r.method == "ping":
		return struct{}{}, nil
	}
	return l.answerCommon(ctx, r)
}

// initialize agrees to the client's revision if that has a handshake. Otherwise it offers the newest that does
// (MCP 2025-11-25, lifecycle, version negotiation).
func (l *Library) initialize(r *libraryRequest) (any, error) {
	var version string
	if err := r.member("protocolVersion", &version); err != nil {
		return nil, err
	}
	result, revisions := l.introduction(), Revisions()[1:]
	result["serverInfo"], result["protocolVersion"] = l.info(), revisions[0]
	if slices.Contains(revisions, version) {
		result["protocolVersion"] = version
	}
	return result, nil
}

// introduction describes the server in both eras. An empty capability promises no notifications.
func (l *Library) introduction() map[string]any {
	none := struct{}{}
	return map[string]any{
		"capabilities": map[string]any{"tools": none, "resources": none, "prompts": none},
		"instructions": "Search with search_chunks first; read more of a source with get_document.",
	}
}

func (l *Library) info() Implementation {
	return Implementation{Name: "library", Version: cmp.Or(l.Version, "0")}
}

// answerStateless adds what the stateless era requires in a result (MCP 2026-07-28, basic, result type; utilities,
// caching).
func (l *Library) answerStateless(ctx context.Context, r *libraryRequest) (result map[string]any, err error) {
	if err := r.checkMeta(); err != nil {
		return nil, err
	}
	if r.method == "server/discover" {
		result = l.introduction()
		result["supportedVersions"] = Revisions()
	} else if result, err = l.answerCommon(ctx, r); err != nil {
		return nil, err
	}
	result["resultType"] = "complete"
	result["_meta"] = map[string]any{"io.modelcontextprotocol/serverInfo": l.info()}
	const hour = 60 * 60 * 1000 // in milliseconds; only the files change while the server runs
	switch r.method {
	case "resources/list", "resources/read": // the files may be private
		result["ttlMs"], result["cacheScope"] = 0, "private"
	case "server/discover", "tools/list", "prompts/list", "resources/templates/list":
		result["ttlMs"], result["cacheScope"] = hour, "public"
	}
	return result, nil
}

// checkMeta checks the _meta of a request (MCP 2026-07-28, basic, _meta). The revision is checked first, as it decides
// what else is required.
func (r *libraryRequest) checkMeta() error {
	if version := r.version(); version == "" {
		return invalidParams("%s needs %s in _meta", r.method, libraryMetaVersion)
	} else if version != Revisions()[0] {
		return unsupportedVersion(version)
	}
	var capabilities map[string]json.RawMessage
	if json.Unmarshal(r.meta[libraryMetaCapabilities], &capabilities) != nil || capabilities == nil {
		return invalidParams("%s needs %s in _meta, an object", r.method, libraryMetaCapabilities)
	}
	levels := []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}
	level, known := r.meta[libraryMetaLogLevel], ""
	if level != nil && (json.Unmarshal(level, &known) != nil || !slices.Contains(levels, known)) {
		return invalidParams("%s: unknown %s in _meta: %s", r.method, libraryMetaLogLevel, level)
	}
	return nil
}

// unsupportedVersion lists the earlier revisions, too: the client may start again with initialize.
func unsupportedVersion(version string) error {
	data, _ := json.Marshal(map[string]any{"supported": Revisions(), "requested": version})
	message := "unsupported protocol version; those before " + Revisions()[0] + " begin with initialize"
	return &Error{CodeUnsupportedVersion, message, data}
}

// answerCommon answers a request that both eras have.
func (l *Library) answerCommon(ctx context.Context, r *libraryRequest) (map[string]any, error) {
	switch r.method {
	case "tools/list":
		return r.list("tools", json.RawMessage(libraryTools))
	case "tools/call":
		return l.callTool(ctx, r)
	case "resources/list":
		return l.listResources(ctx, r)
	case "resources/templates/list":
		return r.list("resourceTemplates", json.RawMessage(libraryTemplates))
	case "resources/read":
		return l.readResource(ctx, r)
	case "prompts/list":
		return r.list("prompts", json.RawMessage(libraryPrompts))
	case "prompts/get":
		return getPrompt(r)
	}
	return nil, &Error{Code: CodeMethodNotFound, Message: "method not found: " + r.method}
}

// list returns a list. It has one page, so no cursor is valid.
func (r *libraryRequest) list(member string, items any) (map[string]any, error) {
	var cursor *string
	if err := r.member("cursor", &cursor); err != nil {
		return nil, err
	}
	if cursor != nil {
		return nil, invalidParams("%s: unknown cursor %q", r.method, *cursor)
	}
	return map[string]any{member: items}, nil
}

func (l *Library) listResources(ctx context.Context, r *libraryRequest) (map[string]any, error) {
	c, err := l.load(ctx, r)
	if err != nil {
		return nil, err
	}
	resources := []Resource{}
	for _, d := range c.documents {
		resources = append(resources, Resource{
			URI: documentURI(d.Source), Name: d.Source, MIMEType: mimeType(d.Source), Size: Whole(len(d.Text)),
		})
	}
	return r.list("resources", resources)
}

// readResource returns a document as it was indexed. No path of a client is ever opened.
func (l *Library) readResource(ctx context.Context, r *libraryRequest) (map[string]any, error) {
	var uri string
	if err := r.member("uri", &uri); err != nil {
		return nil, err
	}
	c, err := l.load(ctx, r)
	if err != nil {
		return nil, err
	}
	d := c.document(documentSource(uri))
	if d == nil {
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
	var name string
	var arguments map[string]string
	if err := cmp.Or(r.member("name", &name), r.member("arguments", &arguments)); err != nil {
		return nil, err
	}
	question := strings.TrimSpace(arguments["question"])
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
	var name string
	if err := r.member("name", &name); err != nil {
		return nil, err
	}
	run := map[string]func(*corpus, json.RawMessage) (any, error){
		"search_chunks":  (*corpus).searchChunks,
		"list_documents": (*corpus).listDocuments,
		"get_document":   (*corpus).getDocument,
	}[name]
	if run == nil {
		return nil, invalidParams("unknown tool: %s", name)
	}
	c, err := l.load(ctx, r)
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
	var a struct {
		Query         string  `json:"query"`
		Limit         float64 `json:"limit"` // for JSON Schema 10.0 is an integer, too
		MinSimilarity float64 `json:"min_similarity"`
		SourceFilter  string  `json:"source_filter"`
	}
	a.Limit = 10
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
	hits, total := Search(a.Query, int(a.Limit), func(source string) float64 {
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
		reply.LeftOut = c.omissions(10)
	}
	return reply, nil
}

// listDocuments names at most a thousand documents, to spare the model. A filter finds the others.
func (c *corpus) listDocuments(raw json.RawMessage) (any, error) {
	var a struct {
		SourceFilter string `json:"source_filter"`
	}
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
	if leftOut := c.omissions(maxNamed); leftOut != nil {
		reply["left_out"] = leftOut
	}
	return reply, nil
}

type documentArguments struct {
	Source    string `json:"source"`
	StartLine int    `json:"start_line"`
	EndLine   int    `json:"end_line"`
}

// getDocument returns a document as it was indexed. No path of a client is ever opened.
func (c *corpus) getDocument(raw json.RawMessage) (any, error) {
	a := documentArguments{StartLine: 1}
	if err := decodeArguments(raw, &a); err != nil {
		return nil, err
	}
	d := c.document(a.Source)
	if d == nil {
		return nil, fmt.Errorf("unknown document %q: list_documents names them", a.Source)
	}
	end := cmp.Or(a.EndLine, d.lines)
	if a.StartLine < 1 || a.StartLine > max(1, end) || end < 0 || end > d.lines {
		return nil, fmt.Errorf("%s has the lines 1 to %d, not %d to %d", d.Source, d.lines, a.StartLine, end)
	}
	lines := strings.SplitAfter(d.Text, "\n")
	return strings.Join(lines[a.StartLine-1:end], ""), nil
}

// decodeArguments refuses unknown arguments, since ignoring them would mislead the model. An argument that is absent
// or null keeps its value.
func decodeArguments(raw json.RawMessage, into any) error {
	fields, _ := json.Marshal(into) // our structs have an encoding
	known, _ := readObject(fields)
	arguments, err := readObject(raw)
	for name := range arguments {
		if known[name] == nil {
			err = fmt.Errorf("unknown argument %q", name)
		}
	}
	if err == nil && len(raw) > 0 {
		err = json.Unmarshal(raw, into)
	}
	if err != nil {
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

// libraryTemplates is the list of resources/templates/list.
const libraryTemplates = `[{
	"uriTemplate": "library:///{+source}", "name": "document", "title": "Document",
	"description": "The text of a document, by its path"
}]`

// libraryPrompts is the list of prompts/list.
const libraryPrompts = `[{
	"name": "answer_from_library", "title": "Answer from the library",
	"description": "Answer a question from the library, with sources",
	"arguments": [{"name": "question", "description": "What you want to know", "required": true}]
}]`
