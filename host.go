// host.go - a server's tools as functions of a model.
// Needs: Go 1.25, json.go, rpc.go, transport_stdio.go, transport_stdio_unix.go, transport_stdio_windows.go, mcp.go, mistral.go.
// SPDX-License-Identifier: 0BSD

package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// maxFunctions is how many functions the API takes with one request.
const maxFunctions = 128

// TooManyToolsError says that there are more tools than a model can be offered.
type TooManyToolsError struct{ Tools int }

func (e *TooManyToolsError) Error() string {
	return fmt.Sprintf("the server has %d tools; a model can be offered %d", e.Tools, maxFunctions)
}

// Host is what stands between a model and an MCP server: it offers the server's tools under names that the model's
// API takes, and turns what they give back into text. All methods may be called from any goroutine.
type Host struct {
	client *Client

	changed atomic.Bool // the server said that its list is not what it was

	mu    sync.Mutex      // guards tools; never held across I/O
	tools map[string]Tool // by function name; nil before the first list
	order []string        // of the server
}

// StartHost begins a session on a transport that it owns from now on; see Connect. o.ToolsChanged is the host's.
func StartHost(ctx context.Context, t Transport, o ClientOptions) (*Host, error) {
	h := new(Host)
	o.ToolsChanged = func() { h.changed.Store(true) }
	var err error
	if h.client, err = Connect(ctx, t, &o); err != nil {
		return nil, err
	}
	if err = h.list(ctx); err != nil {
		h.Close()
		return nil, err
	}
	return h, nil
}

// Server is what the server says of itself.
func (h *Host) Server() ServerInfo { return h.client.Server }

// Tools returns the tools in the server's order, and the function name of each. A list that the server has changed is
// read again.
func (h *Host) Tools(ctx context.Context) (tools []Tool, names []string, err error) {
	if h.changed.Load() {
		if err := h.list(ctx); err != nil {
			return nil, nil, err
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, name := range h.order {
		tools = append(tools, h.tools[name])
	}
	return tools, h.order, nil
}

// Functions returns the tools as a model is offered them, without those that run only as tasks. The error is a *TooManyToolsError, or tools/list's.
func (h *Host) Functions(ctx context.Context) ([]Function, error) {
	tools, names, err := h.Tools(ctx)
	if err != nil {
		return nil, err
	}
	functions := make([]Function, 0, len(tools))
	for i, tool := range tools {
		if !taskRequired(tool) {
			functions = append(functions, Function{Name: names[i], Description: tool.Description, Parameters: tool.InputSchema})
		}
	}
	if len(functions) > maxFunctions {
		return nil, &TooManyToolsError{len(functions)}
	}
	return functions, nil
}

// taskRequired says whether a tool runs only as a task (MCP 2025-11-25, tasks), which is not spoken here.
func taskRequired(t Tool) bool {
	var execution struct{ TaskSupport string }
	return json.Unmarshal(t.Execution, &execution) == nil && execution.TaskSupport == "required"
}

// CallTool runs the tool behind a function, under the tool's own name or the function's; see Client.CallTool.
func (h *Host) CallTool(ctx context.Context, function string, arguments json.RawMessage, report func(Progress)) (*ToolResult, error) {
	h.mu.Lock()
	tool, ok := h.tools[function]
	h.mu.Unlock()
	if !ok {
		tool.Name = function
	}
	return h.client.CallTool(ctx, tool.Name, arguments, report)
}

// Close ends the session and the server.
func (h *Host) Close() error { return h.client.Close() }

func (h *Host) list(ctx context.Context) error {
	h.changed.Store(false) // before the list is asked for: a change meanwhile is a change
	tools, err := h.client.ListTools(ctx)
	if err != nil {
		h.changed.Store(true)
		return err
	}
	names := functionNames(tools)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.order = names
	h.tools = make(map[string]Tool, len(tools))
	for i, tool := range tools {
		h.tools[names[i]] = tool
	}
	return nil
}

// functionNames returns a name for each tool that the API takes (^[a-zA-Z0-9_-]{1,64}$; MCP allows more), each another,
// and the same whatever the order of the tools. A tool whose name is taken as it is keeps it.
func functionNames(tools []Tool) []string {
	names, order := make([]string, len(tools)), make([]int, len(tools))
	wanted := make(map[string]int)
	for i, tool := range tools {
		names[i] = strings.Map(func(r rune) rune {
			if r == '_' || r == '-' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' {
				return r
			}
			return '_'
		}, tool.Name)
		wanted[names[i]]++
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int {
		made := func(i int) int { // 0 for a name that can stay: those come first
			if name := names[i]; name == tools[i].Name && name != "" && len(name) <= 64 {
				return 0
			}
			return 1
		}
		return cmp.Or(made(i)-made(j), strings.Compare(tools[i].Name, tools[j].Name))
	})
	taken := make(map[string]bool)
	for _, i := range order {
		tool, name := tools[i], names[i]
		if name == "" || len(name) > 64 || name != tool.Name && wanted[name] > 1 || taken[name] {
			// The end is what tells long names apart; the hash tells the rest.
			hash := sha256.Sum256([]byte(tool.Name))
			name = name[max(0, len(name)-57):] + "_" + hex.EncodeToString(hash[:3])
		}
		for n := 2; taken[name]; n++ { // a server that lists one name twice
			name = fmt.Sprintf("%.60s_%d", name, n)
		}
		names[i], taken[name] = name, true
	}
	return names
}

// ModelText is a tool's result as a model reads it: text as it is, bytes as a placeholder, links as URI and name. Structured
// content repeats what the text says (MCP 2025-11-25, tools, structured content), so it stands in only where there is none.
func ModelText(r *ToolResult) string {
	if len(r.Content) == 0 {
		return string(r.StructuredContent)
	}
	parts := make([]string, len(r.Content))
	for i, b := range r.Content {
		switch b.Type {
		case "text":
			parts[i] = b.Text
		case "image", "audio":
			parts[i] = fmt.Sprintf("[%s: %s, %d bytes]", b.Type, b.MIMEType, len(b.Data))
		case "resource_link":
			parts[i] = strings.TrimSpace(fmt.Sprintf("[resource: %s %s", b.URI, strings.TrimSpace(b.Name+" "+b.Description))) + "]"
		case "resource":
			parts[i] = resourceText(b.Resource)
		default:
			parts[i] = fmt.Sprintf("[%s: %s]", b.Type, b.Raw)
		}
	}
	return strings.Join(parts, "\n")
}

func resourceText(r *ResourceContents) string {
	switch {
	case r == nil:
		return "[resource without contents]"
	case r.Blob != nil:
		return fmt.Sprintf("[resource: %s %s, %d bytes]", r.URI, r.MIMEType, len(r.Blob))
	}
	return fmt.Sprintf("[resource: %s]\n%s", r.URI, r.Text)
}

// ParseCommand reads a command line: words apart by spaces, with quotes as in a shell and nothing
// expanded; a backslash takes a space, a quote or another backslash as it is.
// Leading words of the form NAME=VALUE set the server's environment.
func ParseCommand(line string) (Command, error) {
	words, err := splitWords(line)
	if err != nil {
		return Command{}, err
	}
	var c Command
	for i, word := range words {
		if name, _, ok := strings.Cut(word, "="); !ok || name == "" || strings.ContainsAny(name, `/\.-`) {
			c.Path, c.Args = word, words[i+1:]
			break
		}
		c.Env = append(c.Env, word)
	}
	if c.Path == "" {
		return Command{}, errors.New("the command line has no command")
	}
	return c, nil
}

func splitWords(line string) (words []string, err error) {
	var word strings.Builder
	var quote rune // that is open, 0 if none
	inWord, backslash := false, false
	for _, r := range line {
		switch {
		case backslash:
			if !strings.ContainsRune(` "'\`, r) {
				word.WriteByte('\\') // as in C:\python
			}
			word.WriteRune(r)
			backslash = false
		case r == '\\' && quote != '\'':
			backslash, inWord = true, true
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '"' || r == '\'':
			quote, inWord = r, true
		case r == ' ' || r == '\t' || r == '\n':
			if inWord {
				words = append(words, word.String())
				word.Reset()
				inWord = false
			}
		default:
			word.WriteRune(r)
			inWord = true
		}
	}
	if quote != 0 || backslash {
		return nil, errors.New("the command line ends inside quotes or after a backslash")
	}
	if inWord {
		words = append(words, word.String())
	}
	return words, nil
}
