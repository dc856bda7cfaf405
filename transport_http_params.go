// transport_http_params.go - parameters of tools that are repeated in HTTP headers.
// Needs: Go 1.25, transport_http_events.go, transport_http.go.
// SPDX-License-Identifier: 0BSD

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// ParamHeaders is HTTP for the stateless era as a whole: a server can ask, with x-mcp-header in the schema of a tool, that a
// parameter is also sent as a header, for those between here and it to read (MCP 2026-07-28, transports, streamable HTTP,
// custom headers). What a tool asks for is learned from the lists of tools that pass through; a tool that asks for what is not allowed is
// taken out of them.
type ParamHeaders struct {
	*HTTP
	Warn func(text string) // told which tools were left out, and why, by Read; may be nil

	warned map[string]string // what Warn was told of, by tool; only Read uses it

	mu    sync.Mutex               // guards the following; never held across I/O or a callback
	lists map[string]bool          // ids of the tools/list requests at work
	tools map[string][]paramHeader // by name
}

// paramHeader is one parameter that is sent as a header.
type paramHeader struct {
	name string   // behind Mcp-Param-
	path []string // from the arguments to the parameter
}

// Read returns the next message.
func (t *ParamHeaders) Read() ([]byte, error) {
	message, err := t.HTTP.Read()
	if err != nil || !t.listing("") {
		return message, err
	}
	m := outline(message)
	if id := plainID(m.get("id")); t.listing(id) && m.get("method") == nil {
		t.listed(id)
		message = t.learn(message, outline(m.get("result")).get("tools"))
	}
	return message, nil
}

// Write sends one message; see HTTP.Write. It is an error to call a tool with an integer beyond 2^53-1 for such a parameter.
func (t *ParamHeaders) Write(ctx context.Context, message []byte) error {
	p := t.newPost(message)
	switch {
	case p.stateless != "" && p.method == "tools/list":
		t.list(p.id)
		err := t.write(ctx, p)
		if errors.As(err, new(*HTTPError)) {
			t.listed(p.id) // else Read does, to which the answer may come only after this
		}
		return err
	case p.stateless != "" && p.method == "tools/call":
		if err := t.repeat(p); err != nil {
			return err
		}
	}
	return t.write(ctx, p)
}

func (t *ParamHeaders) list(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lists == nil {
		t.lists, t.tools = make(map[string]bool), make(map[string][]paramHeader)
	}
	t.lists[id] = true
}

func (t *ParamHeaders) listed(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.lists, id)
}

// listing says whether the list with that id, or any if there is none, is awaited.
func (t *ParamHeaders) listing(id string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lists[id] || id == "" && len(t.lists) > 0
}

// repeat adds the headers that repeat parameters of a call.
func (t *ParamHeaders) repeat(p *post) error {
	t.mu.Lock()
	params := t.tools[p.name]
	t.mu.Unlock()
	if len(params) == 0 {
		return nil
	}
	raw := outline(outline(p.message).get("params")).get("arguments")
	if raw == nil {
		return nil
	}
	var arguments any
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	if err := decoder.Decode(&arguments); err != nil {
		return fmt.Errorf("arguments: %v", err)
	}
	for _, param := range params {
		value := arguments
		for _, name := range param.path {
			object, _ := value.(map[string]any)
			value = object[name]
		}
		switch v := value.(type) { // no header for null, or what the schema does not allow
		case string:
			p.header.Set("Mcp-Param-"+param.name, HeaderValue(v))
		case bool:
			p.header.Set("Mcp-Param-"+param.name, strconv.FormatBool(v))
		case json.Number:
			f, err := v.Float64()
			if err != nil || math.Abs(f) > 1<<53-1 {
				return fmt.Errorf("%s: %s is beyond 2^53-1, which a parameter that is sent as a header must not be", strings.Join(param.path, "."), v)
			}
			if f == math.Trunc(f) {
				p.header.Set("Mcp-Param-"+param.name, strconv.FormatInt(int64(f), 10))
			}
		}
	}
	return nil
}

// learn keeps what the tools of a list ask for, and returns the list without those that do it wrongly. tools is a part of message.
func (t *ParamHeaders) learn(message, tools []byte) []byte {
	var list []json.RawMessage
	if json.Unmarshal(tools, &list) != nil {
		return message // for the reader to refuse
	}
	if t.warned == nil {
		t.warned = make(map[string]string)
	}
	found := make(map[string][]paramHeader)
	var kept [][]byte
	for _, raw := range list {
		var tool struct {
			Name        string
			InputSchema any
		}
		_ = json.Unmarshal(raw, &tool) // the same
		var f paramFinder
		if bytes.Contains(raw, []byte("x-mcp-header")) { // most schemas need not be gone through
			f.schema(tool.InputSchema, nil, true)
		}
		switch found[tool.Name] = f.found; {
		case f.wrong == "":
			kept = append(kept, raw)
		case t.Warn != nil && t.warned[tool.Name] != f.wrong:
			t.Warn(fmt.Sprintf("the tool %q is left out: %s", tool.Name, f.wrong))
			t.warned[tool.Name] = f.wrong
		}
	}
	t.mu.Lock()
	maps.Copy(t.tools, found)
	t.mu.Unlock()
	if len(kept) == len(list) {
		return message
	}
	start := cap(message) - cap(tools)
	return slices.Concat(message[:start], []byte("["), bytes.Join(kept, []byte(",")), []byte("]"), message[start+len(tools):])
}

// paramFinder goes through a schema for x-mcp-header.
type paramFinder struct {
	found []paramHeader
	wrong string // why the schema is not allowed
}

// schema goes through a schema and those in it. reachable says that nothing but properties leads to it, by that path.
func (f *paramFinder) schema(schema any, path []string, reachable bool) {
	switch s := schema.(type) {
	case []any:
		for _, part := range s {
			f.schema(part, nil, false)
		}
	case map[string]any:
		if name, ok := s["x-mcp-header"]; ok {
			f.param(name, s["type"], path, reachable)
		}
		for _, key := range slices.Sorted(maps.Keys(s)) {
			part := s[key]
			switch key {
			case "default", "const", "enum", "examples": // are values
			case "properties", "patternProperties", "dependentSchemas", "$defs", "definitions": // have names of any kind in them
				named, _ := part.(map[string]any)
				for name, part := range named {
					f.schema(part, append(slices.Clip(path), name), reachable && key == "properties")
				}
			default:
				f.schema(part, nil, false)
			}
		}
	}
}

// param checks one x-mcp-header.
func (f *paramFinder) param(value, kind any, path []string, reachable bool) {
	name, _ := value.(string)
	kinds, ok := kind.([]any)
	if !ok {
		kinds = []any{kind}
	}
	primitive := func(k any) bool { return k == "string" || k == "integer" || k == "boolean" }
	switch {
	case name == "" || strings.Trim(name, tokenCharacters) != "":
		f.wrong = fmt.Sprintf("x-mcp-header %q is no name for a header", fmt.Sprint(value))
	case !reachable || len(path) == 0:
		f.wrong = fmt.Sprintf("x-mcp-header %q is where not only properties lead to", name)
	case !slices.ContainsFunc(kinds, primitive) || slices.ContainsFunc(kinds, func(k any) bool { return !primitive(k) && k != "null" }):
		f.wrong = fmt.Sprintf("x-mcp-header %q is at what is no string, integer or boolean", name)
	case slices.ContainsFunc(f.found, func(p paramHeader) bool { return strings.EqualFold(p.name, name) }):
		f.wrong = fmt.Sprintf("x-mcp-header %q is there twice", name)
	default:
		f.found = append(f.found, paramHeader{name, path})
	}
}

// tokenCharacters are those of a header's name (RFC 9110, 5.6.2).
const tokenCharacters = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
