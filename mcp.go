// mcp.go - the Model Context Protocol, the client's side.
// Needs: Go 1.25, json.go, rpc.go.
// SPDX-License-Identifier: 0BSD

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// ProtocolError says that a server does not keep to the protocol.
type ProtocolError struct{ Reason string }

func (e *ProtocolError) Error() string { return e.Reason }

// TimeoutError says that a request had no answer in time. It wraps context.DeadlineExceeded.
type TimeoutError struct {
	After time.Duration // since the request, or its last progress
	Total bool          // ClientOptions.MaxTimeout was reached, progress or not
}

func (e *TimeoutError) Error() string {
	if e.Total {
		return fmt.Sprintf("not done after %s in all", e.After)
	}
	return fmt.Sprintf("no answer and no progress for %s", e.After)
}

func (e *TimeoutError) Unwrap() error { return context.DeadlineExceeded }

// Revisions returns the protocol revisions this client speaks, newest first. All of them begin with a
// handshake: initialize, its result, notifications/initialized.
func Revisions() []string {
	return []string{"2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"}
}

// Implementation names a program (MCP 2025-11-25, schema, Implementation).
type Implementation struct {
	Name    string `json:"name"`
	Title   string `json:"title,omitempty"` // for people
	Version string `json:"version"`
}

// ServerInfo is what a server says of itself in its answer to initialize.
type ServerInfo struct {
	ProtocolVersion string                     `json:"protocolVersion"` // the revision spoken on this connection
	Capabilities    map[string]json.RawMessage `json:"capabilities"`    // by name: tools, resources, prompts, …
	Implementation  Implementation             `json:"serverInfo"`
	Instructions    string                     `json:"instructions"` // how to use the server, for a model; may be empty
}

// Tool is one tool of a server (MCP 2025-11-25, schema, Tool).
type Tool struct {
	Name         string          `json:"name"`
	Title        string          `json:"title,omitempty"` // for people
	Description  string          `json:"description,omitempty"`
	InputSchema  json.RawMessage `json:"inputSchema"` // JSON Schema of the arguments, byte for byte
	OutputSchema json.RawMessage `json:"outputSchema,omitempty"`
	Annotations  json.RawMessage `json:"annotations,omitempty"` // readOnlyHint, …: claims of the server, not facts
	Icons        json.RawMessage `json:"icons,omitempty"`
	Execution    json.RawMessage `json:"execution,omitempty"`
	Meta         json.RawMessage `json:"_meta,omitempty"`
}

// ToolResult is what a tool gave back (MCP 2025-11-25, schema, CallToolResult).
type ToolResult struct {
	Content           []ContentBlock  `json:"content"`
	StructuredContent json.RawMessage `json:"structuredContent,omitempty"` // nil if the tool gave none
	IsError           bool            `json:"isError,omitempty"`           // the tool itself failed; Content says how, for the model to read
	Meta              json.RawMessage `json:"_meta,omitempty"`
}

// ContentBlock is one piece of a result (MCP 2025-11-25, schema, ContentBlock). Which fields are set depends on
// the type; of a type not known here only Type and Raw are.
type ContentBlock struct {
	Type        string            `json:"type"` // text, image, audio, resource_link, resource
	Text        string            `json:"text,omitempty"`
	Data        []byte            `json:"data,omitempty"` // of an image or audio, decoded
	MIMEType    string            `json:"mimeType,omitempty"`
	URI         string            `json:"uri,omitempty"` // of a resource_link, like the next four
	Name        string            `json:"name,omitempty"`
	Title       string            `json:"title,omitempty"`
	Description string            `json:"description,omitempty"`
	Size        int64             `json:"size,omitempty"`     // bytes; 0 if unknown
	Resource    *ResourceContents `json:"resource,omitempty"` // an embedded resource
	Annotations json.RawMessage   `json:"annotations,omitempty"`
	Meta        json.RawMessage   `json:"_meta,omitempty"`
	Raw         json.RawMessage   `json:"-"` // the block as it came; nil for plain text
}

// ResourceContents is a resource's text or its bytes (MCP 2025-11-25, schema, TextResourceContents and
// BlobResourceContents).
type ResourceContents struct {
	URI      string          `json:"uri"`
	MIMEType string          `json:"mimeType,omitempty"`
	Text     string          `json:"text,omitempty"`
	Blob     []byte          `json:"blob,omitempty"` // decoded; nil if it is text
	Meta     json.RawMessage `json:"_meta,omitempty"`
}

// Progress is how far a call has come (MCP 2025-11-25, progress).
type Progress struct {
	Progress float64 `json:"progress"` // grows
	Total    float64 `json:"total"`    // 0 if unknown
	Message  string  `json:"message"`
}

// ClientOptions are the choices of a connection. The zero value is a good one.
type ClientOptions struct {
	Info       Implementation // who we are, for the server; mcpagent if empty
	Protocol   string         // the revision to offer; the newest of Revisions if empty
	Timeout    time.Duration  // of a request without progress; 5 min if 0
	MaxTimeout time.Duration  // of a request in all; 1 h if 0

	// ToolsChanged is told that the list of tools is not what it was. It runs on the reader of the
	// connection: it must return soon and must not call the Client.
	ToolsChanged func()

	// Stray is told of each message of the server that was skipped; see Handler.Stray.
	Stray func(message []byte, reason error)
}

// Client is a connection to one MCP server. All methods may be called from any goroutine.
type Client struct {
	Server ServerInfo // set by Connect, then only read

	conn    *Conn
	options ClientOptions

	mu      sync.Mutex       // guards the following; never held across I/O or a callback
	watches map[int64]*watch // requests at work, by id, which is their progress token
	clock   *time.Timer      // calls expire; one for all requests, as a timer each would cost more than they do
	ticking bool             // the clock is set, to the first deadline or before it
}

// watch is the time of one request, and its progress.
type watch struct {
	deadline time.Time // later with each progress. Client.mu guards it
	last     time.Time // no progress helps beyond it

	mu     sync.Mutex     // held during report, so that a call that has returned reports no more
	over   bool           // the call has returned
	report func(Progress) // may be nil
}

// Connect begins a session on a transport, which it owns from now on: a failed Connect has closed it. ctx
// bounds the handshake; the session lives until Close. The error says what the server did.
func Connect(ctx context.Context, t Transport, o *ClientOptions) (*Client, error) {
	c := &Client{watches: make(map[int64]*watch)}
	if o != nil {
		c.options = *o
	}
	if c.options.Info.Name == "" {
		c.options.Info = Implementation{Name: "mcpagent", Version: "0"}
	}
	if c.options.Timeout == 0 {
		c.options.Timeout = 5 * time.Minute
	}
	if c.options.MaxTimeout == 0 {
		c.options.MaxTimeout = time.Hour
	}
	c.clock = time.AfterFunc(c.options.Timeout, c.expire)
	c.clock.Stop()
	c.conn = NewConn(t, Handler{
		Request:      c.request,
		Notification: c.notification,
		Abandoned:    cancelled,
		Stray:        c.options.Stray,
	})
	if err := c.handshake(ctx); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// handshake agrees on a revision (MCP 2025-11-25, lifecycle, initialization): the client offers one, the server
// answers with that or with one it prefers, and the client takes it or leaves.
func (c *Client) handshake(ctx context.Context) error {
	offer := c.options.Protocol
	if offer == "" {
		offer = Revisions()[0]
	}
	raw, err := c.ask(ctx, "initialize", map[string]any{
		"protocolVersion": offer,
		"capabilities":    struct{}{},
		"clientInfo":      c.options.Info,
	})
	if err == nil {
		err = json.Unmarshal(raw, &c.Server)
	}
	if err == nil && !slices.Contains(Revisions(), c.Server.ProtocolVersion) {
		err = &ProtocolError{fmt.Sprintf("the server wants protocol revision %q; this client speaks %s",
			c.Server.ProtocolVersion, strings.Join(Revisions(), ", "))}
	}
	if err != nil {
		return fmt.Errorf("initialize: %w", err)
	}
	return c.conn.Notify(ctx, "notifications/initialized", nil)
}

// Ping asks the server for a sign of life.
func (c *Client) Ping(ctx context.Context) error {
	if _, err := c.ask(ctx, "ping", nil); err != nil {
		return fmt.Errorf("ping: %w", err)
	}
	return nil
}

// ListTools returns all tools of the server, over as many pages as it takes. With an error comes what had been
// read until then.
func (c *Client) ListTools(ctx context.Context) ([]Tool, error) {
	var tools []Tool
	err := c.pages(ctx, "tools/list", func(page json.RawMessage) (cursor string, err error) {
		tools, cursor, err = decodeTools(tools, page)
		return cursor, err
	})
	return tools, err
}

// pages asks for one page after the other (MCP 2025-11-25, pagination), until one has no nextCursor. A cursor
// that was there before would begin a circle.
func (c *Client) pages(ctx context.Context, method string, read func(page json.RawMessage) (nextCursor string, err error)) error {
	seen := make(map[string]bool)
	var params any
	for {
		page, err := c.ask(ctx, method, params)
		var cursor string
		if err == nil {
			cursor, err = read(page)
		}
		if err == nil && cursor == "" {
			return nil
		}
		if err == nil && seen[cursor] {
			err = &ProtocolError{fmt.Sprintf("the server repeats the cursor %q", cursor)}
		}
		if err != nil {
			return fmt.Errorf("%s: %w", method, err)
		}
		seen[cursor] = true
		params = map[string]string{"cursor": cursor}
	}
}

// CallTool runs a tool. The arguments are a JSON object; nil means {}. Progress that the server tells is
// reported, on the reader of the connection: report must return soon and must not call the Client. It may
// be nil, and is not called after CallTool has returned.
//
// A tool that fails says so in ToolResult.IsError. The error is the protocol's: an *Error of the server, a
// *TimeoutError, the cause of ctx, or ErrClosed with the reason. When ctx or the time ends the call, the server
// is told and its answer is not waited for.
func (c *Client) CallTool(ctx context.Context, name string, arguments json.RawMessage, report func(Progress)) (*ToolResult, error) {
	if a := bytes.TrimSpace(arguments); len(a) == 0 || string(a) == "null" { // also what a nil map encodes to
		arguments = json.RawMessage("{}")
	}
	raw, err := c.call(ctx, &watch{report: report}, "tools/call", func(b []byte, id int64) ([]byte, error) {
		b = append(b, `{"name":`...)
		b = appendString(b, name)
		b = append(b, `,"arguments":`...)
		b, err := appendRaw(b, arguments)
		b = append(b, `,"_meta":{"progressToken":`...)
		b = strconv.AppendInt(b, id, 10)
		return append(b, `}}`...), err
	})
	var result *ToolResult
	if err == nil {
		result, err = decodeToolResult(raw)
	}
	if err != nil {
		return nil, fmt.Errorf("tools/call %s: %w", name, err)
	}
	return result, nil
}

// Close ends the session and the transport. MCP has no message for it: the end of stdin is the end.
func (c *Client) Close() error {
	err := c.conn.Close()
	c.clock.Stop()
	return err
}

// call is one request with its time.
func (c *Client) call(ctx context.Context, w *watch, method string, params paramsFunc) (json.RawMessage, error) {
	var request int64
	raw, err := c.conn.call(ctx, method, func(b []byte, id int64) ([]byte, error) {
		request = id
		c.watch(id, w)
		return params(b, id)
	})
	c.unwatch(request, w)
	return raw, err
}

// ask is a request whose params are encoded by encoding/json, without progress.
func (c *Client) ask(ctx context.Context, method string, params any) (json.RawMessage, error) {
	return c.call(ctx, new(watch), method, func(b []byte, _ int64) ([]byte, error) { return appendJSON(b, params) })
}

// watch starts the time of a request.
func (c *Client) watch(id int64, w *watch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	w.last = now.Add(c.options.MaxTimeout)
	c.watches[id] = w
	c.extend(w, now)
	if !c.ticking { // else it is set to an earlier deadline: all requests have the same time
		c.ticking = true
		c.clock.Reset(w.deadline.Sub(now))
	}
}

// extend starts the time anew. The caller holds c.mu.
func (c *Client) extend(w *watch, now time.Time) {
	if w.deadline = now.Add(c.options.Timeout); w.deadline.After(w.last) {
		w.deadline = w.last
	}
}

func (c *Client) unwatch(id int64, w *watch) {
	c.mu.Lock()
	delete(c.watches, id)
	c.mu.Unlock()
	w.mu.Lock() // waits for a report under way
	w.over = true
	w.mu.Unlock()
}

// expire ends the requests whose time is up and sets the clock to the next deadline. It runs on a goroutine of the
// clock and waits for nothing.
func (c *Client) expire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	var next time.Time
	for id, w := range c.watches {
		switch {
		case w.deadline.After(now):
			if next.IsZero() || w.deadline.Before(next) {
				next = w.deadline
			}
		case w.deadline.Equal(w.last):
			c.conn.giveUp(id, &TimeoutError{After: c.options.MaxTimeout, Total: true})
		default:
			c.conn.giveUp(id, &TimeoutError{After: c.options.Timeout})
		}
	}
	if c.ticking = !next.IsZero(); c.ticking {
		c.clock.Reset(next.Sub(now))
	}
}

// request answers what the server asks. It may ask while the client waits for its own answer.
func (c *Client) request(_ context.Context, _ *Conn, method string, _ json.RawMessage) (any, error) {
	if method == "ping" {
		return struct{}{}, nil
	}
	return nil, &Error{Code: CodeMethodNotFound, Message: "this client does not offer " + method}
}

// notification runs on the reader, in wire order.
func (c *Client) notification(conn *Conn, method string, params json.RawMessage) {
	switch method {
	case "notifications/progress":
		c.progress(params)
	case "notifications/cancelled":
		var p struct {
			RequestID json.RawMessage `json:"requestId"`
		}
		if json.Unmarshal(params, &p) == nil {
			conn.CancelRequest(p.RequestID)
		}
	case "notifications/tools/list_changed":
		if c.options.ToolsChanged != nil {
			c.options.ToolsChanged()
		}
	}
}

func (c *Client) progress(params json.RawMessage) {
	var p struct {
		Token json.RawMessage `json:"progressToken"`
		Progress
	}
	if json.Unmarshal(params, &p) != nil {
		return
	}
	token, _ := responseID(p.Token) // servers change tokens as they change ids
	c.mu.Lock()
	w := c.watches[token]
	if w != nil {
		c.extend(w, time.Now())
	}
	c.mu.Unlock()
	if w == nil || w.report == nil {
		return // late, never asked for, or of no interest
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.over {
		w.report(p.Progress)
	}
}

// cancelled tells the server that nobody waits for an answer any more (MCP 2025-11-25, cancellation), but never
// for initialize: what ends there is the session.
func cancelled(ctx context.Context, c *Conn, id int64, method string, cause error) {
	if method != "initialize" {
		// If it cannot be sent, the answer is dropped all the same.
		_ = c.Notify(ctx, "notifications/cancelled", map[string]any{"requestId": id, "reason": cause.Error()})
	}
}

// decodeTools appends the tools of one page of tools/list. Lists can be long and their schemas large, so the usual
// shape is read by the scanner; whatever it does not take, encoding/json judges, and says what is wrong with it.
func decodeTools(tools []Tool, page json.RawMessage) (_ []Tool, nextCursor string, err error) {
	before := len(tools)
	s := scanner{text: page}
	s.object(func(key []byte) {
		switch string(key) {
		case "tools":
			tools = tools[:before] // of members that are there twice the last counts
			s.array(func() { tools = append(tools, scanTool(&s)) })
		case "nextCursor":
			nextCursor = s.string()
		default:
			s.value()
		}
	})
	if s.end() {
		return tools, nextCursor, nil
	}
	var list struct {
		Tools      []Tool `json:"tools"`
		NextCursor string `json:"nextCursor"`
	}
	err = json.Unmarshal(page, &list)
	return append(tools[:before], list.Tools...), list.NextCursor, err
}

func scanTool(s *scanner) (t Tool) {
	s.object(func(key []byte) {
		switch string(key) {
		case "name":
			t.Name = s.string()
		case "title":
			t.Title = s.string()
		case "description":
			t.Description = s.string()
		case "inputSchema":
			t.InputSchema = s.value()
		case "outputSchema":
			t.OutputSchema = s.value()
		case "annotations":
			t.Annotations = s.value()
		case "icons":
			t.Icons = s.value()
		case "execution":
			t.Execution = s.value()
		case "_meta":
			t.Meta = s.value()
		default:
			s.value()
		}
	})
	return t
}

// decodeToolResult decodes the result of tools/call; see decodeTools.
func decodeToolResult(raw json.RawMessage) (*ToolResult, error) {
	r := new(ToolResult)
	s := scanner{text: raw}
	s.object(func(key []byte) {
		switch string(key) {
		case "content":
			r.Content = []ContentBlock{}
			s.array(func() { r.Content = append(r.Content, scanContent(&s)) })
		case "structuredContent":
			r.StructuredContent = s.value()
		case "isError":
			r.IsError = s.bool()
		case "_meta":
			r.Meta = s.value()
		default:
			s.value()
		}
	})
	if !s.end() {
		*r = ToolResult{}
		if err := json.Unmarshal(raw, r); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// scanContent reads a block: plain text in one pass, any other as encoding/json does.
func scanContent(s *scanner) (b ContentBlock) {
	s.peek()
	start, typed, plain := s.at, false, true
	s.object(func(key []byte) {
		switch string(key) {
		case "text":
			b.Text = s.string()
		case "type":
			typed = string(s.value()) == `"text"`
		default:
			plain = false
			s.value()
		}
	})
	if plain && typed {
		b.Type = "text"
		return b
	}
	return decodeContent(s, start)
}

func decodeContent(s *scanner, start int) (b ContentBlock) {
	if s.ok() && json.Unmarshal(s.text[start:s.at], &b) != nil {
		s.fail()
	}
	return b
}

// UnmarshalJSON decodes a block of a known type, and keeps each as it came.
func (b *ContentBlock) UnmarshalJSON(text []byte) error {
	type fields ContentBlock // without this method
	*b = ContentBlock{Raw: slices.Clone(text)}
	var t struct{ Type string }
	if err := json.Unmarshal(text, &t); err != nil {
		return err
	}
	switch b.Type = t.Type; b.Type {
	case "text", "image", "audio", "resource_link", "resource":
		return json.Unmarshal(text, (*fields)(b))
	}
	return nil
}
