// library.go - an MCP server that searches text files.
// SPDX-License-Identifier: 0BSD

package main

import (
	"bytes"
	"cmp"
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
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

// Library is an MCP server that searches the text files of a folder, as they are when it is
// asked: it reads a file once, and again when it has changed. Each file is also a resource.
// Create one with a constructor, set its fields, then call Serve; any number of connections may
// share it. Over a folder of the file system use os.Root.FS: no symbolic link leads out of it.
type Library struct {
	FS       fs.FS
	Skip     string // a path.Match pattern: files whose base names match are not of the library
	MaxFile  int64  // bytes of one file, at most 1 GiB; 0 means 2 MiB
	MaxFiles int    // 0 means 20,000
	MaxTotal int64  // bytes of all files together; 0 means 256 MiB
	Version  string // the server's version; "" means "0"

	// OnIndexed receives what was read and what was left out: first, and when that has changed.
	OnIndexed func(summary string)

	// scanSlot has one slot. A request that scans the folder holds the slot, and all others wait
	// for it. It is a channel and no mutex so that a request that waits can be cancelled. It guards
	// the fields below.
	scanSlot    chan struct{}
	corpus      *corpus       // nil until a request has read all files
	scanned     time.Time     // the end of the last scan
	unchangedIn time.Duration // how long the last scan took; 0 if it found changes
}

// NewLibrary returns a library of the text files of fsys.
func NewLibrary(fsys fs.FS) *Library {
	return &Library{FS: fsys, OnIndexed: func(string) {}, scanSlot: make(chan struct{}, 1)}
}

// SourceLibrary returns a library of this program's documentation and source, without its tests.
func SourceLibrary() *Library {
	l := NewLibrary(sourceFiles)
	l.Skip = "*_test.go"
	return l
}

// Serve answers one client. It returns nil when the client has closed its side and every request is
// answered, an error when the transport fails, and the cause of ctx when ctx ends. It closes t.
func (l *Library) Serve(ctx context.Context, t Transport) error {
	c := NewConn(t, Handler{
		Request: func(
			ctx context.Context,
			_ *Conn,
			method string,
			params json.RawMessage,
		) (any, error) {
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

	isMalformed bool // params is neither an object nor null
}

func newLibraryRequest(method string, params json.RawMessage) *libraryRequest {
	members := membersOf(params)
	// PHP writes [] for an empty object.
	isNone := slices.Contains([]string{"", "null", "[]"}, string(params))
	isMalformed := members == nil && !isNone
	return &libraryRequest{method, members, membersOf(members["_meta"]), isMalformed}
}

// membersOf returns the members of an object by their exact names: decoding into a struct,
// encoding/json would take "NAME" for "name". What is not an object has no members.
func membersOf(text []byte) (members map[string]json.RawMessage) {
	_ = json.Unmarshal(text, &members)
	return members
}

// text returns a member of the params as textOf does.
func (r *libraryRequest) text(name string) string { return textOf(r.params[name]) }

// textOf returns a string's value. Of any other value it returns the JSON: no tool, document or
// revision is called like that, so the request is refused with its value in the message.
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
	libraryMetaLogLevel     = "io.modelcontextprotocol/logLevel" // it may be missing
)

// stateless reports whether a request belongs to the stateless era: its _meta describes the client.
// Any other request belongs to the handshake era, so one connection serves both (MCP 2026-07-28,
// versioning, backward compatibility).
func (r *libraryRequest) stateless() bool {
	return r.meta[libraryMetaVersion] != nil || r.meta[libraryMetaCapabilities] != nil
}

// version returns the revision of a request of the stateless era, "" if it is missing.
func (r *libraryRequest) version() string { return textOf(r.meta[libraryMetaVersion]) }

// checkMeta checks the _meta of a request of the stateless era (MCP 2026-07-28, basic, _meta). The
// revision is checked first, as it decides what else is required.
func (r *libraryRequest) checkMeta() error {
	version := r.version()
	switch {
	case version == "":
		return invalidParams("%s needs %s in _meta", r.method, libraryMetaVersion)
	case version != Revisions()[0]:
		return unsupportedVersion(version)
	case !bytes.HasPrefix(r.meta[libraryMetaCapabilities], []byte("{")):
		return invalidParams("%s needs %s in _meta, an object", r.method, libraryMetaCapabilities)
	case !isLogLevel(textOf(r.meta[libraryMetaLogLevel])):
		return invalidParams("unknown log level %s", r.meta[libraryMetaLogLevel])
	}
	return nil
}

// isLogLevel reports whether a request may ask for log messages from that level on; "" asks for
// none. This server logs nothing, and checks the level all the same, as the client is wrong (MCP
// 2026-07-28, server, logging).
func isLogLevel(level string) bool {
	levels := []string{
		"", "debug", "info", "notice", "warning", "error", "critical", "alert", "emergency",
	}
	return slices.Contains(levels, level)
}

// unsupportedVersion lists the earlier revisions, too: the client may start again with initialize.
func unsupportedVersion(version string) error {
	data, _ := json.Marshal(map[string]any{"supported": Revisions(), "requested": version})
	message := fmt.Sprintf("unsupported protocol version; those before %s begin with initialize",
		Revisions()[0])
	return &Error{CodeUnsupportedVersion, message, data}
}

// answer returns the result of a request. A request of the handshake era is answered before the
// handshake, too: requests have goroutines of their own, so a request that is sent directly after
// the handshake can overtake it.
func (l *Library) answer(ctx context.Context, r *libraryRequest) (map[string]any, error) {
	if r.isMalformed {
		return nil, invalidParams("%s: params must be an object", r.method)
	}
	if r.stateless() {
		return l.answerStateless(ctx, r)
	}
	switch r.method {
	case "ping":
		return map[string]any{}, nil
	case "initialize":
		return l.initialize(r), nil
	}
	return l.answerEitherEra(ctx, r)
}

// initialize agrees on the revision that the client asks for, or else offers the newest of the era
// (MCP 2025-11-25, lifecycle, version negotiation).
func (l *Library) initialize(r *libraryRequest) map[string]any {
	handshakeRevisions := Revisions()[1:]
	version := r.text("protocolVersion")
	if !slices.Contains(handshakeRevisions, version) {
		version = handshakeRevisions[0]
	}
	result := introduction()
	result["serverInfo"] = l.info()
	result["protocolVersion"] = version
	return result
}

// answerStateless answers a request of the stateless era. Its results have more members: their
// kind, who sent them, and how long they may be kept (MCP 2026-07-28, basic, result type;
// utilities, caching).
func (l *Library) answerStateless(ctx context.Context, r *libraryRequest) (map[string]any, error) {
	if err := r.checkMeta(); err != nil {
		return nil, err
	}
	var result map[string]any
	if r.method == "server/discover" {
		result = introduction()
		result["supportedVersions"] = Revisions()
	} else {
		var err error
		result, err = l.answerEitherEra(ctx, r)
		if err != nil {
			return nil, err
		}
	}
	result["resultType"] = "complete"
	result["_meta"] = map[string]any{"io.modelcontextprotocol/serverInfo": l.info()}
	switch r.method {
	case "resources/list", "resources/read":
		// The files change, and they may be private.
		result["ttlMs"], result["cacheScope"] = 0, "private"
	case "server/discover", "tools/list", "prompts/list", "resources/templates/list":
		// None of these changes while the server runs.
		result["ttlMs"], result["cacheScope"] = time.Hour.Milliseconds(), "public"
	}
	return result, nil
}

func (l *Library) info() Implementation {
	return Implementation{Name: "library", Version: cmp.Or(l.Version, "0")}
}

// introduction returns what both eras tell of a server. An empty capability promises no
// notifications.
func introduction() map[string]any {
	promise := struct{}{}
	return map[string]any{
		"capabilities": map[string]any{"tools": promise, "resources": promise, "prompts": promise},
		"instructions": "Search with search_chunks first; read more of a source with get_document.",
	}
}

// answerEitherEra answers a request that both eras have. A list has one page, so no cursor is
// valid.
func (l *Library) answerEitherEra(ctx context.Context, r *libraryRequest) (map[string]any, error) {
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
			Arguments: []PromptArgument{
				{Name: "question", Description: "What you want to know", Required: true},
			},
		}}}, nil
	case "prompts/get":
		return getPrompt(r)
	}
	return nil, &Error{Code: CodeMethodNotFound, Message: "method not found: " + r.method}
}

func (l *Library) listResources(ctx context.Context) (map[string]any, error) {
	c, err := l.currentCorpus(ctx)
	if err != nil {
		return nil, err
	}
	resources := []Resource{}
	for _, d := range c.documents {
		resources = append(resources, Resource{
			URI:      documentURI(d.Source),
			Name:     d.Source,
			MIMEType: mimeType(d.Source),
			Size:     Whole(len(d.Text)),
		})
	}
	return map[string]any{"resources": resources}, nil
}

// readResource returns a document as it was indexed. No path of a client is ever opened.
func (l *Library) readResource(ctx context.Context, r *libraryRequest) (map[string]any, error) {
	c, err := l.currentCorpus(ctx)
	if err != nil {
		return nil, err
	}
	uri := r.text("uri")
	d := c.document(documentSource(uri))
	if d == nil {
		data, _ := json.Marshal(map[string]string{"uri": uri})
		notFound := &Error{
			Code:    CodeResourceNotFound,
			Message: "resource not found: resources/list names them",
			Data:    data,
		}
		// The stateless era reserves that code (MCP 2026-07-28, resources, error handling).
		if r.stateless() {
			notFound.Code = CodeInvalidParams
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

// documentSource is the inverse of documentURI. It also accepts a path with another encoding, or
// none, as clients that fill in the template send it. Of another URI it returns "", which is the
// source of no document.
func documentSource(uri string) string {
	escaped, ok := strings.CutPrefix(uri, "library:///")
	source, err := url.PathUnescape(escaped)
	if !ok || err != nil {
		return ""
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
	name := r.text("name")
	question := strings.TrimSpace(textOf(membersOf(r.params["arguments"])["question"]))
	switch {
	case name != "answer_from_library":
		return nil, invalidParams("unknown prompt: %s", name)
	case question == "":
		return nil, invalidParams("%s needs the argument question", name)
	}
	const text = "Answer the question below from the library alone. " +
		"Search it with search_chunks, if necessary again with\n" +
		"other words, and read more of a source with get_document. " +
		"After each statement name its source and lines, for example\n" +
		"notes.md:10-14. If the library does not have the answer, say so.\n\n" +
		"Question: "
	return map[string]any{
		"description": "Answer from the library, with sources",
		"messages":    []PromptMessage{{"user", ContentBlock{Type: "text", Text: text + question}}},
	}, nil
}
