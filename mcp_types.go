// mcp_types.go - what MCP messages hold.
// Needs: Go 1.25, json, rpc.
// SPDX-License-Identifier: 0BSD

package main

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
)

// The types of this file have the fields of the protocol's schema (MCP 2026-07-28, schema). Older
// revisions lack some of the fields, and have no others. Members that only a program for people
// could show, such as icons, stay JSON. Whatever a server says of itself is a claim, not a fact:
// names, annotations, instructions.

// The error codes of MCP 2026-07-28, basic, error codes, which only a server of the stateless era
// sends, and two older codes.
const (
	CodeHeaderMismatch     = -32020
	CodeMissingCapability  = -32021
	CodeUnsupportedVersion = -32022
	CodeResourceNotFound   = -32002 // of the handshake era: the resource does not exist
	CodeURLRequired        = -32042 // of 2025-11-25: see URLRequiredError
)

// Implementation names a program.
type Implementation struct {
	Name    string `json:"name"`
	Title   string `json:"title,omitempty"` // for people
	Version string `json:"version"`
}

// ServerInfo has what a server says of itself, in the result of initialize or server/discover.
type ServerInfo struct {
	ProtocolVersion string                     // the negotiated revision
	Capabilities    map[string]json.RawMessage // by name: tools, resources, prompts, logging, …
	Implementation  Implementation             `json:"serverInfo"` // for display only
	Instructions    string                     // how to use the server, for a model; may be empty
}

// Stateless reports whether the server speaks the revision without a handshake.
func (s *ServerInfo) Stateless() bool { return s.ProtocolVersion == statelessRevision }

// ListChanged reports whether the server declared that it tells of changes to a list: tools,
// prompts or resources.
func (s *ServerInfo) ListChanged(list string) bool { return s.declares(list, "listChanged") }

// declares reports whether a capability has a member that is true.
func (s *ServerInfo) declares(capability, member string) bool {
	var members map[string]any
	return json.Unmarshal(s.Capabilities[capability], &members) == nil && members[member] == true
}

// missing returns the capability that a method needs and the server did not declare, or "". A
// client must not use a capability that was not declared (MCP 2025-11-25, basic, lifecycle,
// operation). A tool is called all the same: there are servers that have tools and declare nothing.
func (s *ServerInfo) missing(method string) string {
	kind, verb, _ := strings.Cut(method, "/")
	capability := kind
	switch {
	case method == "tools/call":
		return ""
	case kind == "tasks":
		return s.missingForTasks(verb)
	case kind == "tools" || kind == "prompts" || kind == "resources":
	case kind == "completion" && s.ProtocolVersion != "2024-11-05":
		// The first revision has completion without a capability for it.
		capability = "completions"
	default:
		return ""
	}
	declared := string(s.Capabilities[capability])
	if declared == "" || declared == "null" {
		return capability
	}
	if verb == "subscribe" && !s.declares(capability, verb) {
		return "resources.subscribe"
	}
	return ""
}

// NotDeclaredError reports that a request was not sent, because the server did not declare the
// capability for it.
type NotDeclaredError struct{ Capability string }

func (e *NotDeclaredError) Error() string {
	return "the server did not declare the capability " + e.Capability
}

// Whole is a whole number for display: some servers write 1024.0. A value of another type counts
// as 0.
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
	Annotations  json.RawMessage `json:"annotations,omitempty"` // readOnlyHint, …
	Icons        json.RawMessage `json:"icons,omitempty"`
	Execution    json.RawMessage `json:"execution,omitempty"`
	Meta         json.RawMessage `json:"_meta,omitempty"`
}

// Repeatable reports whether the server says that a call changes nothing, or that a second call
// changes no more than the first.
func (t *Tool) Repeatable() bool {
	var hints struct{ ReadOnlyHint, IdempotentHint bool }
	err := json.Unmarshal(t.Annotations, &hints)
	return err == nil && (hints.ReadOnlyHint || hints.IdempotentHint)
}

// ToolResult is the result of a tool (schema: CallToolResult).
type ToolResult struct {
	Content           []ContentBlock  `json:"content"`
	StructuredContent json.RawMessage `json:"structuredContent,omitempty"` // nil if there is none
	IsError           bool            `json:"isError,omitempty"`           // Content says why
	Meta              json.RawMessage `json:"_meta,omitempty"`
}

// Text returns the texts of a result, one block after the other, with a line break between two
// blocks. Blocks of other types, such as images and links, are not in it.
func (r *ToolResult) Text() string {
	var texts []string
	for _, block := range r.Content {
		if block.Type == "text" {
			texts = append(texts, block.Text)
		}
	}
	return strings.Join(texts, "\n")
}

// ContentBlock is one piece of a result or a message. Its type says which fields are set. A block
// of an unknown type has only its Type and Raw.
type ContentBlock struct {
	Type     string `json:"type"` // text, image, audio, resource_link, resource, …
	Text     string `json:"text,omitempty"`
	Data     []byte `json:"data,omitempty"` // of an image or audio, decoded
	MIMEType string `json:"mimeType,omitempty"`

	// The next five belong to a resource_link.
	URI         string `json:"uri,omitempty"`
	Name        string `json:"name,omitempty"`
	Title       string `json:"title,omitempty"`
	Description string `json:"description,omitempty"`
	Size        Whole  `json:"size,omitempty"` // bytes; 0 if unknown

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
	Blob     []byte          `json:"blob,omitzero"` // decoded; nil if the contents are text
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

// PromptArgument describes an argument of a prompt.
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

// Reference names what is to be completed: a prompt by its name, or a resource template by its URI
// template.
type Reference struct {
	Name string `json:"name,omitempty"`
	Type string `json:"type"` // ref/prompt or ref/resource
	URI  string `json:"uri,omitempty"`
}

// Completion has the values that an argument could be completed to.
type Completion struct {
	Values  []string `json:"values"` // at most 100
	Total   Whole    `json:"total,omitempty"`
	HasMore bool     `json:"hasMore,omitempty"`
}

// Progress tells how far a request has come.
type Progress struct {
	Progress float64 `json:"progress"` // grows
	Total    float64 `json:"total"`    // 0 if unknown
	Message  string  `json:"message"`
}

// LogMessage is a server's message for its log.
type LogMessage struct {
	Level  string          `json:"level"` // from debug to emergency, as in syslog (RFC 5424)
	Logger string          `json:"logger,omitempty"`
	Data   json.RawMessage `json:"data"` // any JSON value
}

// Root is a folder or file that a server may work in.
type Root struct {
	URI  string `json:"uri"` // file://…
	Name string `json:"name,omitempty"`
}

// UnmarshalJSON decodes a block of a known type, and keeps the text of every block in Raw.
func (b *ContentBlock) UnmarshalJSON(text []byte) error {
	*b = ContentBlock{Raw: slices.Clone(text)}
	var block struct{ Type string }
	err := json.Unmarshal(text, &block)
	b.Type = block.Type
	switch b.Type {
	case "text", "image", "audio", "resource_link", "resource":
		// The same type without this method, which would call itself.
		type fields ContentBlock
		err = decodeJSON("", text, (*fields)(b))
	}
	return err
}

// MarshalJSON writes a block of an unknown type as it came. A text block must have the member text,
// even if it is empty, while other blocks have no such member.
func (b ContentBlock) MarshalJSON() ([]byte, error) {
	type fields ContentBlock
	switch b.Type {
	case "text":
		return json.Marshal(struct {
			fields
			Text string `json:"text"`
		}{fields(b), b.Text})
	case "image", "audio", "resource_link", "resource":
		return json.Marshal(fields(b))
	}
	return json.Marshal(b.Raw)
}
