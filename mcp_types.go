// mcp_types.go - what MCP messages hold.
// Needs: Go 1.25, json, rpc.
// SPDX-License-Identifier: 0BSD

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// The error codes of MCP 2026-07-28, basic, error codes, which only a server of that era sends; and an older one.
const (
	CodeHeaderMismatch     = -32020
	CodeMissingCapability  = -32021
	CodeUnsupportedVersion = -32022
	CodeResourceNotFound   = -32002 // of the handshake era instead: the resource does not exist
)

// Implementation names a program.
type Implementation struct {
	Name    string `json:"name"`
	Title   string `json:"title,omitempty"` // for people
	Version string `json:"version"`
}

// ServerInfo is what a server says of itself: its answer to initialize, or to server/discover.
type ServerInfo struct {
	ProtocolVersion string                     // the negotiated revision
	Capabilities    map[string]json.RawMessage // by name: tools, resources, prompts, logging, completions, …
	Implementation  Implementation             `json:"serverInfo"` // self-reported; for display only
	Instructions    string                     // how to use the server, for a model; may be empty
}

// Stateless reports whether the server speaks the revision without a handshake.
func (s *ServerInfo) Stateless() bool { return s.ProtocolVersion == statelessRevision }

// ListChanged reports whether the server declared that it tells of changes to a list: tools, prompts or resources.
func (s *ServerInfo) ListChanged(list string) bool { return s.declares(list, "listChanged") }

// declares reports whether a capability has a member that is true.
func (s *ServerInfo) declares(capability, member string) bool {
	var members map[string]any
	return json.Unmarshal(s.Capabilities[capability], &members) == nil && members[member] == true
}

// missing returns the capability that a method needs and the server did not declare, or "". Any known tool is called.
func (s *ServerInfo) missing(method string) string {
	kind, verb, _ := strings.Cut(method, "/")
	switch {
	case kind == "completion" && s.ProtocolVersion != "2024-11-05": // which has no such capability
		kind = "completions"
	case method == "tools/call" || kind != "tools" && kind != "prompts" && kind != "resources":
		return ""
	}
	switch declared := string(s.Capabilities[kind]); {
	case declared == "" || declared == "null":
		return kind
	case verb == "subscribe" && !s.declares(kind, verb):
		return "resources.subscribe"
	}
	return ""
}

// NotDeclaredError reports that a request was not sent, because the server did not declare the capability for it.
type NotDeclaredError struct{ Capability string }

func (e *NotDeclaredError) Error() string {
	return "the server did not declare the capability " + e.Capability
}

// Whole is a whole number for display: some servers write 1024.0. A value of another type counts as 0.
type Whole int64

func (w *Whole) UnmarshalJSON(text []byte) error {
	f, _ := strconv.ParseFloat(string(text), 64)
	*w = Whole(min(max(f, 0), 1<<53))
	return nil
}

// Tool is one tool of a server.
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

// TaskOnly reports whether a tool runs only as a task (2025-11-25, tasks), which this client does not support.
func (t *Tool) TaskOnly() bool {
	var execution struct{ TaskSupport string }
	return json.Unmarshal(t.Execution, &execution) == nil && execution.TaskSupport == "required"
}

// Repeatable reports whether the server says that a call changes nothing, or a second one no more than the first.
func (t *Tool) Repeatable() bool {
	var hints struct{ ReadOnlyHint, IdempotentHint bool }
	return json.Unmarshal(t.Annotations, &hints) == nil && (hints.ReadOnlyHint || hints.IdempotentHint)
}

// ToolResult is what a tool gave back (schema: CallToolResult).
type ToolResult struct {
	Content           []ContentBlock  `json:"content"`
	StructuredContent json.RawMessage `json:"structuredContent,omitempty"` // nil if the tool gave none
	IsError           bool            `json:"isError,omitempty"`           // the tool failed; Content says how
	Meta              json.RawMessage `json:"_meta,omitempty"`
}

// ContentBlock is one piece of a result or a message. Its type says which fields are set; of an unknown one only Raw.
type ContentBlock struct {
	Type        string            `json:"type"` // text, image, audio, resource_link, resource, tool_use, tool_result
	Text        string            `json:"text,omitempty"`
	Data        []byte            `json:"data,omitempty"` // of an image or audio, decoded
	MIMEType    string            `json:"mimeType,omitempty"`
	URI         string            `json:"uri,omitempty"` // of a resource_link, like the next four
	Name        string            `json:"name,omitempty"`
	Title       string            `json:"title,omitempty"`
	Description string            `json:"description,omitempty"`
	Size        Whole             `json:"size,omitempty"`     // bytes; 0 if unknown
	Resource    *ResourceContents `json:"resource,omitempty"` // an embedded resource
	Annotations json.RawMessage   `json:"annotations,omitempty"`
	Meta        json.RawMessage   `json:"_meta,omitempty"`
	Raw         json.RawMessage   `json:"-"` // the block as it came; nil where it is plain text
}

// Resource is one resource of a server, without its contents.
type Resource struct {
	URI         string          `json:"uri"`
	Name        string          `json:"name"`
	Title       string          `json:"title,omitempty"`
	Description string          `json:"description,omitempty"`
	MIMEType    string          `json:"mimeType,omitempty"`
	Size        Whole           `json:"size,omitempty"` // bytes; 0 if unknown
	Annotations json.RawMessage `json:"annotations,omitempty"`
	Icons       json.RawMessage `json:"icons,omitempty"`
	Meta        json.RawMessage `json:"_meta,omitempty"`
}

// ResourceTemplate is a family of resources, with a URI template (RFC 6570).
type ResourceTemplate struct {
	URITemplate string          `json:"uriTemplate"`
	Name        string          `json:"name"`
	Title       string          `json:"title,omitempty"`
	Description string          `json:"description,omitempty"`
	MIMEType    string          `json:"mimeType,omitempty"`
	Annotations json.RawMessage `json:"annotations,omitempty"`
	Icons       json.RawMessage `json:"icons,omitempty"`
	Meta        json.RawMessage `json:"_meta,omitempty"`
}

// ResourceContents is a resource's text or its bytes.
type ResourceContents struct {
	URI      string          `json:"uri"`
	MIMEType string          `json:"mimeType,omitempty"`
	Text     string          `json:"text,omitempty"`
	Blob     []byte          `json:"blob,omitzero"` // decoded; nil if it is text
	Meta     json.RawMessage `json:"_meta,omitempty"`
}

// Prompt is one prompt of a server, without its messages.
type Prompt struct {
	Name        string           `json:"name"`
	Title       string           `json:"title,omitempty"`
	Description string           `json:"description,omitempty"`
	Arguments   []PromptArgument `json:"arguments,omitempty"`
	Icons       json.RawMessage  `json:"icons,omitempty"`
	Meta        json.RawMessage  `json:"_meta,omitempty"`
}

// PromptArgument is what a prompt can be given.
type PromptArgument struct {
	Name        string `json:"name"`
	Title       string `json:"title,omitempty"`
	Description string `json:"description,omitempty"`
	Required    bool   `json:"required,omitempty"`
}

// PromptResult is a prompt with its arguments filled in (schema: GetPromptResult).
type PromptResult struct {
	Description string          `json:"description,omitempty"`
	Messages    []PromptMessage `json:"messages"`
	Meta        json.RawMessage `json:"_meta,omitempty"`
}

// PromptMessage is one message of a prompt.
type PromptMessage struct {
	Role    string       `json:"role"` // user or assistant
	Content ContentBlock `json:"content"`
}

// Reference names what is to be completed: a prompt by its name, or a resource template by its URI template.
type Reference struct {
	Name string `json:"name,omitempty"`
	Type string `json:"type"` // ref/prompt or ref/resource
	URI  string `json:"uri,omitempty"`
}

// Completion is what an argument could be completed to.
type Completion struct {
	Values  []string `json:"values"` // at most 100
	Total   Whole    `json:"total,omitempty"`
	HasMore bool     `json:"hasMore,omitempty"`
}

// Progress is how far a request has come.
type Progress struct {
	Progress float64 `json:"progress"` // grows
	Total    float64 `json:"total"`    // 0 if unknown
	Message  string  `json:"message"`
}

// LogMessage is a server's message for its log.
type LogMessage struct {
	Level  string          `json:"level"` // debug, info, notice, warning, error, critical, alert, emergency
	Logger string          `json:"logger,omitempty"`
	Data   json.RawMessage `json:"data"` // any JSON value
}

// Root is a folder or file that a server may work in.
type Root struct {
	URI  string `json:"uri"` // file://…
	Name string `json:"name,omitempty"`
}

// UnmarshalJSON decodes a block of a known type, and keeps each as it came.
func (b *ContentBlock) UnmarshalJSON(text []byte) error {
	type fields ContentBlock // without this method
	*b = ContentBlock{Raw: slices.Clone(text)}
	var t struct{ Type string }
	err := json.Unmarshal(text, &t)
	switch b.Type = t.Type; b.Type {
	case "text", "image", "audio", "resource_link", "resource":
		err = json.Unmarshal(text, (*fields)(b))
	}
	return err
}

// MarshalJSON writes a block of an unknown type as it came.
func (b ContentBlock) MarshalJSON() ([]byte, error) {
	type fields ContentBlock
	switch b.Type {
	case "text": // its text is required, be it empty
		return json.Marshal(struct {
			fields
			Text string `json:"text"`
		}{fields(b), b.Text})
	case "image", "audio", "resource_link", "resource":
		return json.Marshal(fields(b))
	}
	return json.Marshal(b.Raw)
}

// maxParts bounds the elements of an array, which take memory however short their text is.
const maxParts = 200_000

var errTooMany = fmt.Errorf("there are more than %d", maxParts)

// parts is an array without the elements that cannot be decoded, and without those after maxParts.
type parts[T any] struct {
	items []T // nil if it is null
	left  leftOut
}

// leftOut counts the elements that are left out, and describes the first.
type leftOut struct {
	count int
	first string
}

// read reads the array. The error says what it is instead.
func (p *parts[T]) read(s *scanner) error {
	if p.left = (leftOut{}); s.peek() != '[' {
		p.items = nil
		return json.Unmarshal(s.value(), new([]T)) // none if it is null
	}
	if p.items = p.items[:0]; p.items == nil {
		p.items = []T{}
	}
	begin := s.at
	s.array(func() {
		s.peek()
		start, count, err := s.at, len(p.items), errTooMany
		if count == cap(p.items) && count > 0 { // grow once or twice: by what the rest of the text may hold
			p.items = slices.Grow(p.items, min((len(s.text)-start)/((start-begin)/count)+1, 7*count, maxParts-count))
		}
		if count == maxParts {
			s.value()
		} else {
			p.items = append(p.items, *new(T))
			err = decodePart(s, &p.items[count])
		}
		if err == nil || !s.ok() {
			return
		}
		p.items = p.items[:count]
		if p.left.count++; p.left.count == 1 {
			p.left.first = fmt.Sprintf("%.80s (%v)", s.text[start:s.at], err)
		}
	})
	return nil
}

func (p *parts[T]) UnmarshalJSON(text []byte) error { return p.read(&scanner{text: text}) }

// decodePart scans tools and texts, which can be long. The rest, and what is invalid, is for encoding/json.
func decodePart[T any](s *scanner, item *T) error {
	start, scanned := *s, false
	switch item := any(item).(type) { // not an interface: calls of its method would have each scanner allocated
	case *Tool:
		scanned = item.scan(s)
	case *ContentBlock:
		scanned = item.scan(s)
	}
	if scanned {
		return nil
	}
	*s, *item = start, *new(T)
	return json.Unmarshal(s.value(), item)
}

func (t *Tool) scan(s *scanner) bool {
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
	return s.ok()
}

// scan reads plain text, and nothing else.
func (b *ContentBlock) scan(s *scanner) bool {
	s.object(func(key []byte) {
		switch string(key) {
		case "text":
			b.Text = s.string()
		case "type":
			if b.Type = "text"; string(s.value()) != `"text"` {
				s.fail()
			}
		default:
			s.fail()
		}
	})
	return s.ok() && b.Type == "text"
}

// listPage is one page of a list.
type listPage[T any] struct {
	parts[T]
	member     string  // of the result: where the items are
	nextCursor *string // nil on the last; "" is a cursor like any other
	ttlMs      float64 // how long it stays fresh, in milliseconds
}

// decode reads one page, whose text is valid JSON. The error tells the first member that is of another type.
func (p *listPage[T]) decode(raw json.RawMessage) (err error) {
	*p = listPage[T]{member: p.member}
	s := scanner{text: raw}
	s.object(func(key []byte) {
		var invalid error
		switch string(key) {
		case p.member:
			invalid = p.read(&s)
		case "nextCursor":
			invalid = json.Unmarshal(s.value(), &p.nextCursor)
		case "ttlMs":
			_ = json.Unmarshal(s.value(), &p.ttlMs) // of another type it counts as absent
		default:
			s.value()
		}
		if invalid != nil && err == nil {
			err = fmt.Errorf("%s: %w", key, invalid)
		}
	})
	if err == nil && !s.end() {
		err = &ProtocolError{"the result is not a list of " + p.member}
	}
	return err
}

// toolAnswer is the result of a tool with what belongs to reading it, in one allocation.
type toolAnswer struct {
	ToolResult
	first [1]ContentBlock // of Content; most results have one block
	left  leftOut
}

// decode reads a result, which can be large, without copies of its text, which is valid JSON.
func (a *toolAnswer) decode(raw json.RawMessage) error {
	*a = toolAnswer{}
	content := parts[ContentBlock]{items: a.first[:0]}
	s := scanner{text: raw}
	s.object(func(key []byte) {
		switch string(key) {
		case "content":
			if content.read(&s) != nil {
				s.fail()
			}
			a.Content = content.items
		case "structuredContent":
			a.StructuredContent = s.value()
		case "isError":
			a.IsError = string(bytes.Trim(s.value(), `"`)) == "true"
		case "_meta":
			a.Meta = s.value()
		default:
			s.value()
		}
	})
	a.left = content.left
	if !s.end() && string(bytes.TrimSpace(raw)) != "null" {
		return &ProtocolError{"the result is not an object with an array of content"}
	}
	return nil
}
