// library.go - an MCP server that searches text files.
// Needs: Go 1.25, json.go, rpc.go, search.go, corpus.go, library_tools.go.
// SPDX-License-Identifier: 0BSD

package main

import (
	"cmp"
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
)

// sourceFiles is the program that this file is part of. The one pattern stands for *.go and *.md: as two patterns it
// would not compile where this file was copied to without a .md beside it.
//
//go:embed *.[gm][od]
var sourceFiles embed.FS

// Library is an MCP server that searches the text files of a folder, which it reads once, when they are first asked for.
// Each file is a resource, too. Make one with a constructor, set its fields, then Serve; any number of connections may
// share it.
type Library struct {
	Folder
	Name      string               // as the server introduces itself; default "library"
	Version   string               // the same; default "0"
	OnIndexed func(summary string) // told once what was read and what was left out; nil tells nobody

	root   *os.Root      // what Close closes; nil unless the library was opened by OpenLibrary
	turn   chan struct{} // one slot, taken to read or set corpus; not a mutex, so that a waiting request can be cancelled
	corpus *Corpus       // nil until a request has read everything, then never changed
}

// NewLibrary is a library over the text files of fsys.
func NewLibrary(fsys fs.FS) *Library {
	return &Library{Folder: Folder{FS: fsys}, turn: make(chan struct{}, 1)}
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
	c := NewConn(t, Handler{
		Request: func(ctx context.Context, c *Conn, method string, params json.RawMessage) (any, error) {
			r, err := newLibraryRequest(method, params)
			if err != nil {
				return nil, err
			}
			r.notify, r.gone = c.Notify, c.life.Done()
			return s.request(ctx, r)
		},
		Notification: func(c *Conn, method string, params json.RawMessage) {
			s.notification(method, params, c.CancelRequest)
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

// Close releases the folder of OpenLibrary. Call it when every Serve has returned.
func (l *Library) Close() error {
	if l.root == nil {
		return nil
	}
	return l.root.Close()
}

// What differs between the revisions is in the functions from here to initialize. A request that says in its _meta how to
// take it is one of the stateless era, wherever it comes; any other is one of the handshake era (MCP 2026-07-28, versioning,
// backward compatibility). So one connection serves both.

// libraryRevisions are the revisions spoken, newest first. The first is the stateless one.
func libraryRevisions() []string {
	return []string{"2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"}
}

// librarySession is what the server has to remember of one client. The stateless era uses none of it.
type librarySession struct {
	library *Library
	ready   atomic.Bool // the handshake is over. Set by the reader, read by requests
}

// libraryRequest is a request of either era.
type libraryRequest struct {
	method        string
	params        json.RawMessage
	meta          map[string]json.RawMessage // the _meta of the params
	progressToken json.RawMessage            // nil if the client wants to hear of no progress
	noResource    int64                      // the era's error code for a resource that is not there

	notify func(ctx context.Context, method string, params any) error // tells the client something before the answer
	gone   <-chan struct{}                                            // closed when the client sends no more, or the server leaves; the client may still read
}

func newLibraryRequest(method string, params json.RawMessage) (*libraryRequest, error) {
	r := &libraryRequest{method: method, params: params}
	var p struct {
		Meta map[string]json.RawMessage `json:"_meta"`
	}
	if err := r.decode(&p); err != nil {
		return nil, err
	}
	r.meta = p.Meta
	if token := r.meta["progressToken"]; string(token) != "null" {
		r.progressToken = token
	}
	return r, nil
}

// stateless says whether the request is one of the stateless era.
func (r *libraryRequest) stateless() bool {
	return r.method != "initialize" && (r.meta[metaVersion] != nil || r.meta[metaCapabilities] != nil)
}

// notification runs on the reader and so in wire order. That is why the session is ready at notifications/initialized
// and not at the answer to initialize: every request has a goroutine of its own, and one that was sent right behind the
// handshake would sometimes overtake it (TestLibraryPipelinedSession).
func (s *librarySession) notification(method string, params json.RawMessage, cancel func(id json.RawMessage)) {
	switch method {
	case "notifications/initialized":
		s.ready.Store(true)
	case "notifications/cancelled":
		var p struct {
			RequestID json.RawMessage `json:"requestId"`
		}
		if json.Unmarshal(params, &p) == nil {
			cancel(p.RequestID)
		}
	}
}

// request finds out the era.
func (s *librarySession) request(ctx context.Context, r *libraryRequest) (any, error) {
	switch {
	case r.method == "initialize":
		return s.library.initialize(r)
	case r.stateless():
		r.noResource = CodeInvalidParams
		return s.library.stateless(ctx, r)
	case r.method == "ping":
		return struct{}{}, nil
	case !s.ready.Load():
		return nil, invalidParams("%s needs %s in _meta, or an initialize before it", r.method, metaVersion)
	}
	const resourceNotFound = -32002 // whose number the stateless era forbids
	r.noResource = resourceNotFound
	return s.library.answer(ctx, r)
}

// Members of _meta. A request of the stateless era must have the first two.
const (
	metaVersion      = "io.modelcontextprotocol/protocolVersion"
	metaCapabilities = "io.modelcontextprotocol/clientCapabilities"
	metaSubscription = "io.modelcontextprotocol/subscriptionId"
)

// stateless serves a request of the stateless era. To what the handshake era would answer it adds what a result must say of
// itself (MCP 2026-07-28, basic, result type; utilities, caching).
func (l *Library) stateless(ctx context.Context, r *libraryRequest) (any, error) {
	if err := r.checkMeta(); err != nil {
		return nil, err
	}
	about := map[string]any{"io.modelcontextprotocol/serverInfo": l.info()}
	var result map[string]any
	var err error
	switch r.method {
	case "server/discover":
		result = l.introduction()
		result["supportedVersions"] = libraryRevisions()
	case "subscriptions/listen":
		about[metaSubscription] = RequestID(ctx)
		result, err = listen(ctx, r)
	default:
		result, err = l.answer(ctx, r)
	}
	if err != nil {
		return nil, err
	}
	result["resultType"], result["_meta"] = "complete", about
	switch r.method {
	case "resources/list", "resources/read": // the files may be somebody's own
		result["ttlMs"], result["cacheScope"] = libraryTTL, "private"
	case "server/discover", "tools/list", "prompts/list", "resources/templates/list":
		result["ttlMs"], result["cacheScope"] = libraryTTL, "public"
	}
	return result, nil
}

// libraryTTL is how long a client may keep what it got, in milliseconds: nothing changes until the next start.
const libraryTTL = 60 * 60 * 1000

// checkMeta checks what a request says of itself (MCP 2026-07-28, basic, _meta). The revision comes first: what else is
// needed depends on it.
func (r *libraryRequest) checkMeta() error {
	var version string
	if json.Unmarshal(r.meta[metaVersion], &version) != nil || version == "" {
		return invalidParams("%s needs %s in _meta", r.method, metaVersion)
	}
	if version != libraryRevisions()[0] {
		return unsupportedVersion(version)
	}
	var capabilities map[string]json.RawMessage
	if json.Unmarshal(r.meta[metaCapabilities], &capabilities) != nil || capabilities == nil {
		return invalidParams("%s needs %s in _meta, an object", r.method, metaCapabilities)
	}
	return nil
}

// unsupportedVersion has the earlier revisions in its list for a client that can begin anew with initialize.
func unsupportedVersion(version string) error {
	revisions := libraryRevisions()
	data, err := json.Marshal(map[string]any{"supported": revisions, "requested": version})
	if err != nil {
		return err
	}
	const code = -32022
	return &Error{code, "unsupported protocol version; those before " + revisions[0] + " begin with initialize", data}
}

// listen keeps a subscription until the client cancels it or goes. It is acknowledged with an empty list of what will be
// told: nothing here changes, and no capability says otherwise (MCP 2026-07-28, patterns, subscriptions).
func listen(ctx context.Context, r *libraryRequest) (map[string]any, error) {
	var p struct{ Notifications map[string]json.RawMessage }
	if err := r.decode(&p); err != nil {
		return nil, err
	}
	if p.Notifications == nil {
		return nil, invalidParams("%s needs notifications, an object", r.method)
	}
	err := r.notify(ctx, "notifications/subscriptions/acknowledged", map[string]any{
		"_meta": map[string]any{metaSubscription: RequestID(ctx)}, "notifications": struct{}{},
	})
	if err != nil {
		return nil, err
	}
	select {
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-r.gone: // The client could not even cancel any more, but it may still read.
		return make(map[string]any), nil
	}
}

// initialize agrees on the client's revision if it is one of the handshake era, else offers the newest of them
// (MCP 2025-11-25, lifecycle, version negotiation).
func (l *Library) initialize(r *libraryRequest) (any, error) {
	var p struct{ ProtocolVersion string }
	if err := r.decode(&p); err != nil {
		return nil, err
	}
	if p.ProtocolVersion == "" {
		return nil, invalidParams("initialize needs a protocolVersion")
	}
	result := l.introduction()
	result["serverInfo"] = l.info()
	result["protocolVersion"] = libraryRevisions()[1]
	if slices.Contains(libraryRevisions()[1:], p.ProtocolVersion) {
		result["protocolVersion"] = p.ProtocolVersion
	}
	return result, nil
}

// introduction is what both eras say of the server. A capability with nothing in it promises no notifications.
func (l *Library) introduction() map[string]any {
	none := struct{}{}
	return map[string]any{
		"capabilities": map[string]any{"tools": none, "resources": none, "prompts": none, "completions": none},
		"instructions": "Search with search_chunks first; read more of a source with get_document.",
	}
}

func (l *Library) info() map[string]any {
	return map[string]any{"name": cmp.Or(l.Name, "library"), "version": cmp.Or(l.Version, "0")}
}

// answer serves a request that both eras have.
func (l *Library) answer(ctx context.Context, r *libraryRequest) (map[string]any, error) {
	switch r.method {
	case "tools/list":
		return r.list("tools", libraryTools)
	case "tools/call":
		return l.callTool(ctx, r)
	case "resources/list":
		return l.listResources(ctx, r)
	case "resources/templates/list":
		return r.list("resourceTemplates", libraryTemplates)
	case "resources/read":
		return l.readResource(ctx, r)
	case "prompts/list":
		return r.list("prompts", libraryPrompts)
	case "prompts/get":
		return getPrompt(r)
	case "completion/complete":
		return l.complete(ctx, r)
	}
	return nil, &Error{Code: CodeMethodNotFound, Message: "method not found: " + r.method}
}

// decode reads the request's params; without any, into stays as it is.
func (r *libraryRequest) decode(into any) error {
	if len(r.params) == 0 {
		return nil
	}
	if err := json.Unmarshal(r.params, into); err != nil {
		return invalidParams("%s: %v", r.method, err)
	}
	return nil
}

func invalidParams(format string, a ...any) error {
	return &Error{Code: CodeInvalidParams, Message: fmt.Sprintf(format, a...)}
}

// load returns the corpus, which the first request reads while others wait. If that one is cancelled, nothing is kept and
// the next one begins anew.
func (l *Library) load(ctx context.Context, r *libraryRequest) (*Corpus, error) {
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if l.corpus != nil {
		return l.corpus, nil
	}
	c, err := ReadCorpus(ctx, &l.Folder, func(done, total int, source string) {
		if r.progressToken != nil {
			// A notification that cannot be sent is no reason to stop: if the client is gone, ctx ends.
			_ = r.notify(ctx, "notifications/progress", map[string]any{
				"progressToken": r.progressToken, "progress": done, "total": total, "message": "indexing " + source,
			})
		}
	})
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("the library cannot be read: %w", err)
	}
	if l.OnIndexed != nil {
		l.OnIndexed(c.String())
	}
	l.corpus = c
	return c, nil
}

// libraryPage is how many resources one page of their list has at most.
const libraryPage = 100

// page finds the part of a list of n items that a request asks for. The cursor is the number of items before it, which
// stays right because no list changes.
func (r *libraryRequest) page(n int) (first, end int, err error) {
	var p struct{ Cursor *string }
	if err := r.decode(&p); err != nil {
		return 0, 0, err
	}
	if p.Cursor != nil {
		if first, err = strconv.Atoi(*p.Cursor); err != nil || first <= 0 || first >= n {
			return 0, 0, invalidParams("%s: unknown cursor %q", r.method, *p.Cursor)
		}
	}
	return first, min(first+libraryPage, n), nil
}

// list is a list that fits on a page.
func (r *libraryRequest) list(member, items string) (map[string]any, error) {
	if _, _, err := r.page(1); err != nil {
		return nil, err
	}
	return map[string]any{member: json.RawMessage(items)}, nil
}

func (l *Library) listResources(ctx context.Context, r *libraryRequest) (map[string]any, error) {
	c, err := l.load(ctx, r)
	if err != nil {
		return nil, err
	}
	first, end, err := r.page(len(c.Documents))
	if err != nil {
		return nil, err
	}
	resources := []map[string]any{}
	for _, d := range c.Documents[first:end] {
		resources = append(resources, map[string]any{
			"uri": documentURI(d.Source), "name": d.Source, "mimeType": mimeType(d.Source), "size": len(d.Text),
		})
	}
	result := map[string]any{"resources": resources}
	if end < len(c.Documents) {
		result["nextCursor"] = strconv.Itoa(end)
	}
	return result, nil
}

// readResource serves what was indexed, from memory: no path that a client makes up is ever opened.
func (l *Library) readResource(ctx context.Context, r *libraryRequest) (map[string]any, error) {
	var p struct{ URI string }
	if err := r.decode(&p); err != nil {
		return nil, err
	}
	if p.URI == "" {
		return nil, invalidParams("%s needs a uri", r.method)
	}
	c, err := l.load(ctx, r)
	if err != nil {
		return nil, err
	}
	d, ok := c.Document(documentSource(p.URI))
	if !ok {
		data, err := json.Marshal(map[string]string{"uri": p.URI})
		if err != nil {
			return nil, err
		}
		return nil, &Error{r.noResource, "there is no such resource: resources/list names them", data}
	}
	return map[string]any{"contents": []map[string]any{
		{"uri": documentURI(d.Source), "mimeType": mimeType(d.Source), "text": d.Text},
	}}, nil
}

// libraryURIs is what the URI of every document begins with. Its path follows, percent-encoded.
const libraryURIs = "library:///"

func documentURI(source string) string {
	u := url.URL{Scheme: "library", Path: "/" + source}
	return u.String()
}

// documentSource is the other way. It takes any encoding, and none, as templates that are filled in come with.
func documentSource(uri string) string {
	escaped, ok := strings.CutPrefix(uri, libraryURIs)
	source, err := url.PathUnescape(escaped)
	if !ok || err != nil {
		return "" // which no document is called
	}
	return source
}

// mimeType knows the registered types of text, and the one of this source.
func mimeType(source string) string {
	switch strings.ToLower(path.Ext(source)) {
	case ".css":
		return "text/css"
	case ".csv":
		return "text/csv"
	case ".go":
		return "text/x-go"
	case ".htm", ".html":
		return "text/html"
	case ".js", ".mjs":
		return "text/javascript"
	case ".json":
		return "application/json"
	case ".markdown", ".md":
		return "text/markdown"
	case ".tsv":
		return "text/tab-separated-values"
	case ".xml":
		return "application/xml"
	case ".yaml", ".yml":
		return "application/yaml"
	}
	return "text/plain"
}

// getPrompt writes the message that the user sends to the model.
func getPrompt(r *libraryRequest) (map[string]any, error) {
	var p struct {
		Name      string
		Arguments map[string]string
	}
	if err := r.decode(&p); err != nil {
		return nil, err
	}
	question := strings.TrimSpace(p.Arguments["question"])
	switch {
	case p.Name != "answer_from_library":
		return nil, invalidParams("unknown prompt: %s", p.Name)
	case question == "":
		return nil, invalidParams("%s needs the argument question", p.Name)
	}
	const text = `Answer the question below from the library alone. Search it with search_chunks, again with other words if need be, and
read on in a source with get_document. After each statement name its source and lines, as in notes.md:10-14. If the library
does not have the answer, say so.

Question: `
	return map[string]any{
		"description": "Answer from the library, with sources",
		"messages":    []map[string]any{{"role": "user", "content": libraryText{"text", text + question}}},
	}, nil
}

// complete completes the variable of the resource template: to documents whose path begins with what is there, then to
// those that have it elsewhere.
func (l *Library) complete(ctx context.Context, r *libraryRequest) (map[string]any, error) {
	var p struct {
		Ref      struct{ Type, Name, URI string }
		Argument struct{ Name, Value string }
	}
	if err := r.decode(&p); err != nil {
		return nil, err
	}
	values, others := []string{}, []string(nil)
	switch ref := p.Ref; {
	case ref.Type == "ref/resource" && ref.URI == libraryURIs+"{+source}" && p.Argument.Name == "source":
		c, err := l.load(ctx, r)
		if err != nil {
			return nil, err
		}
		value := strings.ToLower(p.Argument.Value)
		for _, d := range c.Documents {
			switch strings.Index(strings.ToLower(d.Source), value) {
			case -1:
			case 0:
				values = append(values, d.Source)
			default:
				others = append(others, d.Source)
			}
		}
	case ref.Type == "ref/prompt" && ref.Name == "answer_from_library" && p.Argument.Name == "question":
		// It is whatever the user wants to know.
	default:
		return nil, invalidParams("%s: there is no argument %q of %q", r.method, p.Argument.Name, cmp.Or(ref.URI, ref.Name))
	}
	values = append(values, others...)
	const most = 100 // MCP 2026-07-28, utilities, completion
	return map[string]any{"completion": map[string]any{
		"values": values[:min(most, len(values))], "total": len(values), "hasMore": len(values) > most,
	}}, nil
}

// libraryText is a block of content.
type libraryText struct {
	Type string `json:"type"` // always "text"
	Text string `json:"text"`
}

// callTool runs a tool. What the model can mend, wrong arguments, comes back as a result with isError that says how; what
// only the client can, an unknown tool, is a protocol error (MCP 2025-11-25, tools, error handling).
func (l *Library) callTool(ctx context.Context, r *libraryRequest) (map[string]any, error) {
	var p struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
	}
	if err := r.decode(&p); err != nil {
		return nil, err
	}
	run := map[string]func(*Corpus, json.RawMessage) (any, error){
		"search_chunks":  (*Corpus).searchChunks,
		"list_documents": (*Corpus).listDocuments,
		"get_document":   (*Corpus).getDocument,
	}[p.Name]
	if run == nil {
		return nil, invalidParams("unknown tool: %s", p.Name)
	}
	corpus, err := l.load(ctx, r)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	var value any
	if err == nil {
		value, err = run(corpus, p.Arguments)
	}
	result := make(map[string]any)
	text, plain := value.(string)
	switch {
	case err != nil:
		text, result["isError"] = p.Name+": "+err.Error(), true
	case !plain:
		var b strings.Builder
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false) // a model reads this text as it is: "a < b", not "a \u003c b"
		if err := e.Encode(value); err != nil {
			return nil, err
		}
		text, result["structuredContent"] = strings.TrimSpace(b.String()), value
	}
	result["content"] = []libraryText{{"text", text}}
	return result, nil
}

// libraryTemplates is the list of resources/templates/list.
const libraryTemplates = `[
{
	"uriTemplate": "library:///{+source}",
	"name": "document",
	"title": "Document",
	"description": "The text of a document, by its path"
}
]`

// libraryPrompts is the list of prompts/list.
const libraryPrompts = `[
{
	"name": "answer_from_library",
	"title": "Answer from the library",
	"description": "Answer a question from the library, with sources",
	"arguments": [
		{"name": "question", "description": "What you want to know", "required": true}
	]
}
]`
