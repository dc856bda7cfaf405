// library.go - an MCP server that searches text files.
// Needs: Go 1.25, json.go, rpc.go, search.go.
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
	"maps"
	"math"
	"os"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"unicode/utf8"
)

// sourceFiles is the program that this file is part of. The one pattern stands for *.go and *.md: as two patterns it
// would not compile where this file was copied to without a .md beside it.
//
//go:embed *.[gm][od]
var sourceFiles embed.FS

// Library is an MCP server that searches the text files of FS, which it reads once, at the first tools/call.
// Make one with a constructor, set its fields, then Serve; any number of connections may share it.
type Library struct {
	FS        fs.FS
	Name      string               // as the server introduces itself; default "library"
	Version   string               // the same; default "0"
	Skip      string               // a path.Match pattern of base names to leave out
	MaxFile   int64                // bytes of one file, default 2 MiB
	MaxFiles  int                  // default 20,000
	MaxTotal  int64                // bytes of all files together, default 256 MiB
	OnIndexed func(summary string) // told once what was read and what was left out; nil tells nobody

	root   *os.Root      // what Close closes; nil unless the library was opened by OpenLibrary
	turn   chan struct{} // one slot, taken to read or set corpus; not a mutex, so that a waiting call can be cancelled
	corpus *corpus       // nil until a call has read everything, then never changed
}

// NewLibrary is a library over the text files of fsys.
func NewLibrary(fsys fs.FS) *Library {
	return &Library{FS: fsys, turn: make(chan struct{}, 1)}
}

// SourceLibrary is a library over this program's own source, without its tests, and its README.
func SourceLibrary() *Library {
	l := NewLibrary(sourceFiles)
	l.Skip = "*_test.go"
	return l
}

// OpenLibrary is a library over a folder. No symbolic link leads out of it, not even one that is put there later.
// The caller closes it.
func OpenLibrary(dir string) (*Library, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open library: %w", err)
	}
	l := NewLibrary(root.FS())
	l.root = root
	return l, nil
}

// Serve answers one client and returns when the client has gone and all its requests are answered (nil), when
// the transport fails, or when ctx ends. It closes t.
func (l *Library) Serve(ctx context.Context, t Transport) error {
	s := librarySession{library: l}
	c := NewConn(t, Handler{Request: s.request, Notification: s.notification})
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	err := c.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// Close releases the folder of OpenLibrary. Call it when every Serve has returned.
func (l *Library) Close() error {
	if l.root == nil {
		return nil
	}
	return l.root.Close()
}

// librarySession is what the server knows of one client.
type librarySession struct {
	library *Library
	ready   atomic.Bool // set by the reader, read by requests
}

// notification runs on the reader and so in wire order. That is why the session is ready at notifications/initialized
// and not at the answer to initialize: every request has a goroutine of its own, and one that was sent right behind the
// handshake would sometimes overtake it (TestLibraryPipelinedSession).
func (s *librarySession) notification(c *Conn, method string, params json.RawMessage) {
	switch method {
	case "notifications/initialized":
		s.ready.Store(true)
	case "notifications/cancelled":
		var p struct {
			RequestID json.RawMessage `json:"requestId"`
		}
		if json.Unmarshal(params, &p) == nil {
			c.CancelRequest(p.RequestID)
		}
	}
}

func (s *librarySession) request(ctx context.Context, c *Conn, method string, params json.RawMessage) (any, error) {
	switch {
	case method == "initialize":
		return s.library.initialize(params)
	case method == "ping":
		return struct{}{}, nil
	case method != "tools/list" && method != "tools/call":
		return nil, &Error{Code: CodeMethodNotFound, Message: "method not found: " + method}
	case !s.ready.Load():
		return nil, &Error{Code: CodeInvalidRequest, Message: method + " before notifications/initialized"}
	case method == "tools/list":
		return json.RawMessage(libraryTools), nil
	}
	return s.library.call(ctx, c, params)
}

// initialize agrees on the client's revision if it is one of the handshake era, else offers the newest of them
// (MCP 2025-11-25, lifecycle, version negotiation).
func (l *Library) initialize(params json.RawMessage) (any, error) {
	var p struct {
		ProtocolVersion string `json:"protocolVersion"`
	}
	if err := json.Unmarshal(params, &p); err != nil || p.ProtocolVersion == "" {
		return nil, &Error{Code: CodeInvalidParams, Message: "initialize needs a protocolVersion"}
	}
	switch p.ProtocolVersion {
	case "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25":
	default:
		p.ProtocolVersion = "2025-11-25"
	}
	return map[string]any{
		"protocolVersion": p.ProtocolVersion,
		"capabilities":    map[string]any{"tools": struct{}{}},
		"serverInfo":      map[string]any{"name": cmp.Or(l.Name, "library"), "version": cmp.Or(l.Version, "0")},
		"instructions":    "Search with search_chunks first; read more of a source with get_document.",
	}, nil
}

// libraryReply is the result of tools/call.
type libraryReply struct {
	Content           []libraryText `json:"content"`
	StructuredContent any           `json:"structuredContent,omitempty"`
	IsError           bool          `json:"isError,omitempty"`
}

type libraryText struct {
	Type string `json:"type"` // always "text"
	Text string `json:"text"`
}

// call runs a tool. What the model can mend, wrong arguments, comes back as a result with isError that says how; what
// only the client can, an unknown tool, is a protocol error (MCP 2025-11-25, tools, error handling).
func (l *Library) call(ctx context.Context, c *Conn, params json.RawMessage) (any, error) {
	var p struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
		Meta      struct {
			ProgressToken json.RawMessage `json:"progressToken"`
		} `json:"_meta"`
	}
	if err := json.Unmarshal(params, &p); err != nil {
		return nil, &Error{Code: CodeInvalidParams, Message: "tools/call: " + err.Error()}
	}
	run := map[string]func(*corpus, json.RawMessage) (any, error){
		"search_chunks":  (*corpus).searchChunks,
		"list_documents": (*corpus).listDocuments,
		"get_document":   (*corpus).getDocument,
	}[p.Name]
	if run == nil {
		return nil, &Error{Code: CodeInvalidParams, Message: "unknown tool: " + p.Name}
	}
	progress := func(done, total int, source string) {}
	if token := p.Meta.ProgressToken; len(token) > 0 && string(token) != "null" {
		progress = func(done, total int, source string) {
			// A notification that cannot be sent is no reason to stop: if the client is gone, ctx ends.
			c.Notify(ctx, "notifications/progress", map[string]any{
				"progressToken": token, "progress": done, "total": total, "message": "indexing " + source,
			})
		}
	}
	corpus, err := l.load(ctx, progress)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	var value any
	if err == nil {
		value, err = run(corpus, p.Arguments)
	}
	if err != nil {
		return libraryReply{Content: []libraryText{{"text", p.Name + ": " + err.Error()}}, IsError: true}, nil
	}
	if text, ok := value.(string); ok {
		return libraryReply{Content: []libraryText{{"text", text}}}, nil
	}
	var text strings.Builder
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false) // a model reads this text as it is: "a < b", not "a \u003c b"
	if err := e.Encode(value); err != nil {
		return nil, err
	}
	return libraryReply{Content: []libraryText{{"text", strings.TrimSpace(text.String())}}, StructuredContent: value}, nil
}

// corpus is the library's files as they were read.
type corpus struct {
	index     Index
	documents []document     // in the order of their sources
	leftOut   map[string]int // files and folders, by reason
}

type document struct {
	source, text    string // slash-separated path, content
	lines, passages int
}

func (c *corpus) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d documents", len(c.documents))
	separator := "; left out: "
	for _, reason := range slices.Sorted(maps.Keys(c.leftOut)) {
		fmt.Fprintf(&b, "%s%d %s", separator, c.leftOut[reason], reason)
		separator = ", "
	}
	return b.String()
}

// load returns the corpus, which the first call reads while others wait. If that call is cancelled, nothing is kept and
// the next one begins anew.
func (l *Library) load(ctx context.Context, progress func(done, total int, source string)) (*corpus, error) {
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if l.corpus != nil {
		return l.corpus, nil
	}
	c := &corpus{leftOut: make(map[string]int)}
	sources, err := l.scan(ctx, c.leftOut)
	if err != nil {
		return nil, fmt.Errorf("the library cannot be read: %w", err)
	}
	room, step := cmp.Or(l.MaxTotal, 256<<20), max(1, len(sources)/50) // about 50 notifications, however many files
	for i, source := range sources {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		text, reason := l.read(source)
		if room -= int64(len(text)); room < 0 {
			c.leftOut["beyond the total size"] += len(sources) - i
			break
		}
		if reason != "" {
			c.leftOut[reason]++
		} else {
			c.add(source, text)
		}
		if done := i + 1; done%step == 0 || done == len(sources) {
			progress(done, len(sources), source)
		}
	}
	if l.OnIndexed != nil {
		l.OnIndexed(c.String())
	}
	l.corpus = c
	return c, nil
}

// scan finds the files to read, in lexical order of their paths, and counts what it passes by.
func (l *Library) scan(ctx context.Context, leftOut map[string]int) (sources []string, err error) {
	limit := cmp.Or(l.MaxFiles, 20_000)
	err = fs.WalkDir(l.FS, ".", func(name string, entry fs.DirEntry, err error) error {
		base, reason := path.Base(name), ""
		skip, _ := path.Match(l.Skip, base)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case name == ".":
			return err
		case err != nil:
			reason = "unreadable"
		case base[0] == '.':
			reason = "hidden"
		case entry.IsDir() && (base == "node_modules" || base == "vendor"):
			reason = "folders of dependencies"
		case entry.IsDir():
			return nil
		case !entry.Type().IsRegular():
			reason = "links and special files"
		case skip || !isText(base):
			reason = "of other types"
		case len(sources) == limit:
			reason = "beyond the number of files"
		default:
			sources = append(sources, name)
			return nil
		}
		leftOut[reason]++
		if entry.IsDir() {
			return fs.SkipDir
		}
		return nil
	})
	slices.Sort(sources) // the walk has a/b before a.go
	return sources, err
}

// read returns a file's text, or the reason to leave it out. The bound is on what is read, since the size that the
// folder tells may be out of date.
func (l *Library) read(source string) (text, reason string) {
	f, err := l.FS.Open(source)
	if err != nil {
		return "", "unreadable"
	}
	defer f.Close()
	limit := cmp.Or(l.MaxFile, 2<<20)
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	switch {
	case err != nil:
		return "", "unreadable"
	case int64(len(b)) > limit:
		return "", "too large"
	case bytes.IndexByte(b, 0) >= 0 || !utf8.Valid(b):
		return "", "not text"
	}
	return string(b), ""
}

func (c *corpus) add(source, text string) {
	d := document{source: source, text: text}
	passages := c.index.Add(source, text, isProse(source))
	if d.passages = len(passages); d.passages > 0 {
		d.lines = passages[d.passages-1].End
	}
	c.documents = append(c.documents, d)
}

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

func (c *corpus) searchChunks(raw json.RawMessage) (any, error) {
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
	for _, h := range c.index.Search(a.Query) {
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
func (c *corpus) listDocuments(raw json.RawMessage) (any, error) {
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
	for _, d := range c.documents {
		if !meant(d.source) {
			continue
		}
		if count++; count <= 1000 {
			list = append(list, map[string]any{"source": d.source, "lines": d.lines, "passages": d.passages})
		}
	}
	return map[string]any{"documents": list, "total_count": count, "library": c.String()}, nil
}

// getDocument serves what was indexed, from memory: no path that a client makes up is ever opened.
func (c *corpus) getDocument(raw json.RawMessage) (any, error) {
	a := struct {
		Source    string `json:"source"`
		StartLine int    `json:"start_line"`
		EndLine   int    `json:"end_line"`
	}{StartLine: 1}
	if err := decodeArguments(raw, &a); err != nil {
		return nil, err
	}
	i := slices.IndexFunc(c.documents, func(d document) bool { return d.source == a.Source })
	if i < 0 {
		return nil, fmt.Errorf("there is no document %q: list_documents names them", a.Source)
	}
	d := c.documents[i]
	end := cmp.Or(a.EndLine, d.lines)
	if a.StartLine < 1 || a.StartLine > max(1, end) || end < 0 || end > d.lines {
		return nil, fmt.Errorf("%s has the lines 1 to %d, not %d to %d", d.source, d.lines, a.StartLine, end)
	}
	lines := strings.SplitAfter(d.text, "\n")
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

// isText goes by the name, since files without a known ending are often keys, data or dumps.
func isText(name string) bool {
	const code = `.bash .bat .c .cc .cfg .conf .cpp .cs .css .csv .dart .el .ex .go .h .hpp .hs .htm .html .ini .java .jl .js
		.json .jsonl .jsx .kt .lua .mjs .ml .php .pl .proto .ps1 .py .r .rb .rs .scala .sh .sql .svelte .swift .tf .toml
		.ts .tsv .tsx .vue .xml .yaml .yml .zig`
	return isProse(name) || slices.Contains(strings.Fields(code), strings.ToLower(path.Ext(name)))
}

func isProse(name string) bool {
	const prose = ".adoc .markdown .md .mdx .org .rst .tex .text .txt"
	return slices.Contains(strings.Fields(prose), strings.ToLower(path.Ext(name)))
}

// libraryTools is the result of tools/list.
const libraryTools = `{"tools": [
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
]}`
