// mcp_types.go - what MCP messages hold.
// Needs: Go 1.25, json.go.
// SPDX-License-Identifier: 0BSD

package main

import (
	"encoding/json"
	"fmt"
	"slices"
)

// The error codes of MCP 2026-07-28, basic, error codes. Only a server of that era sends them.
const (
	CodeHeaderMismatch     = -32020
	CodeMissingCapability  = -32021
	CodeUnsupportedVersion = -32022
)

// Implementation names a program.
type Implementation struct {
	Name    string `json:"name"`
	Title   string `json:"title,omitempty"` // for people
	Version string `json:"version"`
}

// ServerInfo is what a server says of itself: its answer to initialize, or to server/discover.
type ServerInfo struct {
	ProtocolVersion string                     // the revision that is spoken
	Capabilities    map[string]json.RawMessage // by name: tools, resources, prompts, logging, completions, …
	Implementation  Implementation             // self-reported; for display only
	Instructions    string                     // how to use the server, for a model; may be empty
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

// TaskOnly says whether a tool runs only as a task (2025-11-25, tasks: taskSupport "required"), which this client
// does not speak.
func (t *Tool) TaskOnly() bool {
	var execution struct{ TaskSupport string }
	return json.Unmarshal(t.Execution, &execution) == nil && execution.TaskSupport == "required"
}

// Repeatable says whether the server says that a call changes nothing, or a second one no more than the first. Nobody but that
// server is at risk if it is not true.
func (t *Tool) Repeatable() bool {
	var hints struct{ ReadOnlyHint, IdempotentHint bool }
	return json.Unmarshal(t.Annotations, &hints) == nil && (hints.ReadOnlyHint || hints.IdempotentHint)
}

// ToolResult is what a tool gave back (schema: CallToolResult).
type ToolResult struct {
	Content           []ContentBlock  `json:"content"`
	StructuredContent json.RawMessage `json:"structuredContent,omitempty"` // nil if the tool gave none
	IsError           bool            `json:"isError,omitempty"`           // the tool itself failed; Content says how, for the model to read
	Meta              json.RawMessage `json:"_meta,omitempty"`
}

// ContentBlock is one piece of a result or a message. Which fields are set depends on the type; of a type not
// known here only Type and Raw are.
type ContentBlock struct {
	Type        string            `json:"type"` // text, image, audio, resource_link, resource; in sampling also tool_use, tool_result
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
	Raw         json.RawMessage   `json:"-"` // the block as it came; nil where it is plain text
}

// Resource is one resource of a server, without its contents.
type Resource struct {
	URI         string          `json:"uri"`
	Name        string          `json:"name"`
	Title       string          `json:"title,omitempty"`
	Description string          `json:"description,omitempty"`
	MIMEType    string          `json:"mimeType,omitempty"`
	Size        int64           `json:"size,omitempty"` // bytes; 0 if unknown
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

// Completion is what an argument could be completed to.
type Completion struct {
	Values  []string `json:"values"` // at most 100
	Total   int      `json:"total,omitempty"`
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

// ElicitRequest is a server's question to the user.
type ElicitRequest struct {
	Mode            string          `json:"mode,omitempty"` // form (or empty), or url
	Message         string          `json:"message"`
	RequestedSchema json.RawMessage `json:"requestedSchema,omitempty"` // of a form: a flat object; see Form
	URL             string          `json:"url,omitempty"`             // to be opened by the user, never by the program itself
	ElicitationID   string          `json:"elicitationId,omitempty"`   // of a URL, in 2025-11-25
}

// ElicitResult is the user's answer.
type ElicitResult struct {
	Action  string         `json:"action"`           // accept, decline or cancel
	Content map[string]any `json:"content,omitzero"` // of an accepted form, if only {}: strings, numbers, booleans, []string
}

// SampleRequest asks the client's model for a message (schema: CreateMessageRequestParams).
type SampleRequest struct {
	Messages         []SampleMessage `json:"messages"`
	SystemPrompt     string          `json:"systemPrompt,omitempty"`
	MaxTokens        int             `json:"maxTokens"`
	Temperature      *float64        `json:"temperature,omitempty"`
	StopSequences    []string        `json:"stopSequences,omitempty"`
	Tools            []Tool          `json:"tools,omitempty"`
	ToolChoice       *SampleChoice   `json:"toolChoice,omitempty"`
	ModelPreferences json.RawMessage `json:"modelPreferences,omitempty"`
	IncludeContext   string          `json:"includeContext,omitempty"`
	Metadata         json.RawMessage `json:"metadata,omitempty"`
}

// SampleChoice says whether the model must, may or must not call a tool.
type SampleChoice struct {
	Mode string `json:"mode,omitempty"` // auto, required, none
}

// SampleMessage is one message of a sampling request.
type SampleMessage struct {
	Role    string        `json:"role"` // user or assistant
	Content SampleContent `json:"content"`
}

// SampleContent is one block or, since 2025-11-25, an array of them.
type SampleContent []ContentBlock

// SampleResult is the model's message (schema: CreateMessageResult).
type SampleResult struct {
	Role       string        `json:"role"`
	Content    SampleContent `json:"content"`
	Model      string        `json:"model"`
	StopReason string        `json:"stopReason,omitempty"` // endTurn, stopSequence, maxTokens, toolUse
}

// UnmarshalJSON takes both forms.
func (c *SampleContent) UnmarshalJSON(text []byte) error {
	if len(text) > 0 && text[0] == '[' {
		return json.Unmarshal(text, (*[]ContentBlock)(c))
	}
	*c = make(SampleContent, 1)
	return json.Unmarshal(text, &(*c)[0])
}

// MarshalJSON writes a single block as such, which every revision takes.
func (c SampleContent) MarshalJSON() ([]byte, error) {
	if len(c) == 1 {
		return json.Marshal(c[0])
	}
	return json.Marshal(append([]ContentBlock{}, c...)) // never null, and not of this type: it would come back here
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

// Lists can be long with large schemas, and results large: their usual shape is read by the scanner. Whatever it does not
// take, encoding/json judges, and says what is wrong with it.

// listPage is what one page of a list says of itself.
type listPage struct {
	NextCursor *string `json:"nextCursor"` // nil on the last; "" is a cursor like any other
	TTLMs      float64 `json:"ttlMs"`      // how long it may be taken for fresh, in milliseconds
}

// decodeTools appends the tools of one page of tools/list.
func decodeTools(tools []Tool, raw json.RawMessage) ([]Tool, listPage, error) {
	before := len(tools)
	var page listPage
	s := scanner{text: raw}
	s.object(func(key []byte) {
		switch string(key) {
		case "tools":
			tools = tools[:before] // of members that are there twice the last counts
			s.array(func() { tools = append(tools, scanTool(&s)) })
		case "nextCursor":
			cursor := s.string()
			page.NextCursor = &cursor
		case "ttlMs":
			if json.Unmarshal(s.value(), &page.TTLMs) != nil {
				s.fail()
			}
		default:
			s.value()
		}
	})
	if s.end() {
		return tools, page, nil
	}
	return decodeList[Tool]("tools")(tools[:before], raw)
}

// decodeList appends the items of one page of any list, which are in the member of that name.
func decodeList[T any](member string) func([]T, json.RawMessage) ([]T, listPage, error) {
	return func(items []T, raw json.RawMessage) ([]T, listPage, error) {
		var page listPage
		var members map[string]json.RawMessage
		err := json.Unmarshal(raw, &page)
		if err == nil {
			err = json.Unmarshal(raw, &members)
		}
		var more []T
		if text := members[member]; err == nil && text != nil {
			err = json.Unmarshal(text, &more)
		}
		if err != nil {
			err = fmt.Errorf("%s: %w", member, err)
		}
		return append(items, more...), page, err
	}
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
