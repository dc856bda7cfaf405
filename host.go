// host.go - many servers, one toolbox.
// Needs: Go 1.25, json.go, rpc.go, transport_stdio.go, transport_stdio_unix.go, transport_stdio_windows.go, mcp_types.go, elicitation.go, mcp.go, mcp_input.go, mcp_lists.go, mcp_handshake.go, mcp_repair.go, mistral.go, mcp_model.go, host_server.go.
// SPDX-License-Identifier: 0BSD

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// TooManyToolsError says that there are more tools than a model can be offered.
type TooManyToolsError struct{ Tools int }

func (e *TooManyToolsError) Error() string {
	return fmt.Sprintf("there are %d tools, and a model can be offered %d: choose with allowedTools or excludedTools in the configuration",
		e.Tools, maxFunctions)
}

// NoToolError says that a name stands for no tool, or for several.
type NoToolError struct {
	Name      string
	Functions []string // of the tools that are called so, each on another server; nil if there is none
}

func (e *NoToolError) Error() string {
	if e.Functions == nil {
		return fmt.Sprintf("no server has a tool %q", e.Name)
	}
	return fmt.Sprintf("several servers have a tool %q: %s", e.Name, strings.Join(e.Functions, ", "))
}

// Host is what stands between a model and MCP servers: it offers their tools under names that the model's API takes, and keeps
// the servers there. One that fails stops no other. All methods may be called from any goroutine.
type Host struct {
	servers []*hosted
	stop    context.CancelCauseFunc // ends the life of the Host
	work    sync.WaitGroup          // what the servers have begun
}

// StartHost starts all servers at once, and returns when each is there or has failed; Status says which. ctx bounds the
// starts; the Host lives until Close.
func StartHost(ctx context.Context, servers []HostServer) *Host {
	life, stop := context.WithCancelCause(context.Background())
	h := &Host{stop: stop}
	names := make([]string, len(servers))
	for i, server := range servers {
		names[i] = server.Name
	}
	var starts []*serverStart
	for i, prefix := range functionPrefixes(names) {
		s := &hosted{HostServer: servers[i], prefix: prefix, life: life, work: &h.work}
		s.StartTimeout = cmp.Or(s.StartTimeout, startTime)
		h.servers = append(h.servers, s)
		starts = append(starts, s.begin(ctx, time.Time{}))
	}
	for _, s := range starts {
		<-s.done
	}
	return h
}

// Status says how the servers are, in the order in which they were given.
func (h *Host) Status() []HostStatus {
	status := make([]HostStatus, len(h.servers))
	for i, s := range h.servers {
		status[i] = s.status()
	}
	return status
}

// Tools returns the tools of all servers, also those that no model is offered. Lists that changed are read again, and a server
// that died is started again. One that fails is left out, and Status says why; its tools can still be called. The error is
// for no server that could be asked.
func (h *Host) Tools(ctx context.Context) ([]HostTool, error) {
	lists, err := h.lists(ctx)
	return slices.Concat(lists...), err
}

// Functions returns the tools as a model is offered them: without those that the server's Allows leaves out, and those that
// run only as tasks. The error is a *TooManyToolsError, or that of Tools.
func (h *Host) Functions(ctx context.Context) ([]Function, error) {
	lists, err := h.lists(ctx)
	if err != nil {
		return nil, err
	}
	functions := []Function{}
	for i, s := range h.servers {
		for _, t := range lists[i] {
			if tool := t.Tool; !tool.TaskOnly() && (s.Allows == nil || s.Allows(tool.Name)) {
				functions = append(functions, Function{Name: t.Function, Description: cutForModel(tool.Description), Parameters: tool.InputSchema})
			}
		}
	}
	if len(functions) > maxFunctions {
		return nil, &TooManyToolsError{len(functions)}
	}
	return functions, nil
}

// lists are the tools of each server, asked for at once.
func (h *Host) lists(ctx context.Context) ([][]HostTool, error) {
	lists, errs := make([][]HostTool, len(h.servers)), make([]error, len(h.servers))
	var work sync.WaitGroup
	for i, s := range h.servers {
		work.Go(func() {
			var err error
			lists[i], err = s.list(ctx)
			errs[i] = h.named(s, err)
		})
	}
	work.Wait()
	if !slices.Contains(errs, nil) {
		return nil, errors.Join(errs...) // nil if there are no servers
	}
	return lists, nil
}

// Tool finds a tool of the last lists: by its function's name, or by its own if no other server has a tool of that name.
func (h *Host) Tool(name string) (HostTool, bool) {
	_, tool, err := h.find(name)
	return tool, err == nil
}

func (h *Host) find(name string) (*hosted, HostTool, error) {
	var server *hosted
	var tool HostTool
	var functions []string
	// What looks like a function of some server is that or nothing, even if the server is not there: no other server can have it
	// by calling its tool so.
	function := slices.ContainsFunc(h.servers, func(s *hosted) bool { return s.prefix != "" && strings.HasPrefix(name, s.prefix) })
	for _, s := range h.servers {
		known := s.known()
		i := slices.IndexFunc(known, func(t HostTool) bool { return t.Function == name })
		if i >= 0 {
			return s, known[i], nil
		}
		i = slices.IndexFunc(known, func(t HostTool) bool { return t.Tool.Name == name })
		if i >= 0 && !function {
			server, tool, functions = s, known[i], append(functions, known[i].Function)
		}
	}
	if len(functions) != 1 {
		return nil, HostTool{}, &NoToolError{name, functions}
	}
	return server, tool, nil
}

// CallTool runs a tool, which it finds as Tool does; see Client.CallTool. Where no list has it, the servers are asked for
// their lists first. A server that died is started again, but a call that it died of is not made again.
func (h *Host) CallTool(ctx context.Context, name string, arguments json.RawMessage, report func(Progress)) (*ToolResult, error) {
	s, tool, err := h.find(name)
	if err != nil {
		if _, err := h.Tools(ctx); err != nil {
			return nil, err
		}
		if s, tool, err = h.find(name); err != nil {
			return nil, err
		}
	}
	result, err := s.call(ctx, &tool.Tool, arguments, report)
	return result, h.named(s, err)
}

// Client returns a client of the server of that name, for all that is not about tools. "" is the only server. If it is not
// there it is started again.
func (h *Host) Client(ctx context.Context, server string) (*Client, error) {
	s := h.server(server)
	switch {
	case s == nil && server == "":
		return nil, fmt.Errorf("there are %d servers: which?", len(h.servers))
	case s == nil:
		return nil, fmt.Errorf("there is no server %q", server)
	}
	client, err := s.get(ctx, true)
	return client, h.named(s, err)
}

// server is the server of that name, or nil.
func (h *Host) server(name string) *hosted {
	for _, s := range h.servers {
		if s.Name == name || name == "" && len(h.servers) == 1 {
			return s
		}
	}
	return nil
}

// named says which server the error is about.
func (h *Host) named(s *hosted, err error) error {
	if err == nil || len(h.servers) == 1 {
		return err
	}
	return fmt.Errorf("server %s: %w", s.Name, err)
}

// Instructions are what the servers say about how to use them, for a model.
func (h *Host) Instructions() string {
	var parts []string
	for _, s := range h.servers {
		text := strings.TrimSpace(s.status().Info.Instructions)
		switch {
		case text == "":
			continue
		case s.prefix == "":
			text = "The server says of its tools:\n" + cutForModel(text)
		default:
			text = fmt.Sprintf("The server %s says of its tools, which begin with %s:\n%s", s.Name, s.prefix, cutForModel(text))
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, "\n\n")
}

// Close ends the servers, all at once, also one that is being started.
func (h *Host) Close() error {
	h.stop(ErrClosed)
	errs := make([]error, len(h.servers))
	var work sync.WaitGroup
	for i, s := range h.servers {
		work.Go(func() { errs[i] = h.named(s, s.close()) })
	}
	work.Wait()
	h.work.Wait()
	return errors.Join(errs...)
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
