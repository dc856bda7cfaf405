// host.go - a server's tools as functions of a model.
// Needs: Go 1.25, json.go, rpc.go, transport_stdio.go, transport_stdio_unix.go, transport_stdio_windows.go, mcp_types.go, elicitation.go, mcp.go, mcp_input.go, mcp_lists.go, mcp_handshake.go, mcp_repair.go, mistral.go, mcp_model.go.
// SPDX-License-Identifier: 0BSD

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
)

// TooManyToolsError says that there are more tools than a model can be offered.
type TooManyToolsError struct{ Tools int }

func (e *TooManyToolsError) Error() string {
	return fmt.Sprintf("the server has %d tools; a model can be offered %d", e.Tools, maxFunctions)
}

// Host is what stands between a model and an MCP server: it offers the server's tools under names that the model's
// API takes, and turns what they give back into text. All methods may be called from any goroutine.
type Host struct {
	Client *Client // for all that is not about tools

	stop func()         // ends the goroutines of work
	work sync.WaitGroup // listen

	mu    sync.Mutex      // guards tools; never held across I/O
	tools map[string]Tool // by the function's name, of the last list
}

// StartHost connects to a server, as Server.Connect does.
func StartHost(ctx context.Context, connect func(context.Context, ClientOptions) (*Client, error), o ClientOptions) (*Host, error) {
	client, err := connect(ctx, o)
	if err != nil {
		return nil, err
	}
	life, stop := context.WithCancel(context.Background())
	h := &Host{Client: client, stop: stop}
	if client.stateless() && client.tellsOfChanges("tools") {
		h.work.Go(func() { h.listen(life) })
	}
	return h, nil
}

// listen has the server tell of changed tools, which the Client then asks for anew. Where that fails, the list is as fresh as
// the server said when it gave it.
func (h *Host) listen(ctx context.Context) {
	_ = h.Client.Listen(ctx, Subscription{Tools: true}, func(Change) {})
}

// Tools returns the server's tools and the function name of each: also those that run only as tasks (Tool.TaskOnly), which
// Functions leaves out. A list that changed is read again.
func (h *Host) Tools(ctx context.Context) (tools []Tool, names []string, err error) {
	tools, err = h.Client.ListTools(ctx)
	var refusal *Error
	if errors.As(err, &refusal) && refusal.Code == CodeMethodNotFound {
		tools, err = nil, nil // a server of resources or prompts alone
	}
	if err != nil {
		return nil, nil, err
	}
	names = functionNames(tools)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tools = make(map[string]Tool, len(tools))
	for i, tool := range tools {
		h.tools[names[i]] = tool
	}
	return tools, names, nil
}

// Functions returns the tools as a model is offered them. The error is a *TooManyToolsError, or tools/list's.
func (h *Host) Functions(ctx context.Context) ([]Function, error) {
	tools, names, err := h.Tools(ctx)
	if err != nil {
		return nil, err
	}
	functions := make([]Function, 0, len(tools))
	for i, tool := range tools {
		if !tool.TaskOnly() {
			functions = append(functions, Function{Name: names[i], Description: tool.Description, Parameters: tool.InputSchema})
		}
	}
	if len(functions) > maxFunctions {
		return nil, &TooManyToolsError{len(functions)}
	}
	return functions, nil
}

// CallTool runs the tool behind a function, under the function's name or the tool's own; see Client.CallTool.
func (h *Host) CallTool(ctx context.Context, name string, arguments json.RawMessage, report func(Progress)) (*ToolResult, error) {
	h.mu.Lock()
	tool, ok := h.tools[name]
	h.mu.Unlock()
	if ok {
		name = tool.Name
		if tool.Repeatable() {
			ctx = Repeatable(ctx)
		}
	}
	return h.Client.CallTool(ctx, name, arguments, report)
}

// Close ends the connection and the server.
func (h *Host) Close() error {
	h.stop()
	err := h.Client.Close()
	h.work.Wait()
	return err
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
