// host.go - many servers, one toolbox.
// Needs: Go 1.25, json, rpc, transport_stdio, transport_http, mcp, mistral, functions, agent.
// SPDX-License-Identifier: 0BSD

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// maxDescription is how many bytes a model reads of a tool's description, or of a server's instructions. It reads
// them with every request, and no server is to fill the context alone.
const maxDescription = 8 * 1024

// NameError says that a name stands for nothing, or for several things.
type NameError struct {
	Kind    string // tool, prompt or resource
	Name    string
	Several []string // the full names of what is called so, each of another server; nil if there is nothing
}

func (e *NameError) Error() string {
	if e.Several == nil {
		return fmt.Sprintf("no server has a %s %q", e.Kind, e.Name)
	}
	return fmt.Sprintf("several servers have a %s %q; say which: %s", e.Kind, e.Name, strings.Join(e.Several, ", "))
}

// Resolve returns the index of the tool, prompt or resource that a name stands for: the one whose full name it is,
// or else the only one whose own name it is. own has the names that servers use, full the same with the servers'
// names: no two of those are equal. The error is a *NameError.
func Resolve(kind, name string, own, full []string) (int, error) {
	if i := slices.Index(full, name); i >= 0 {
		return i, nil
	}
	found := 0
	var several []string
	for i := range own {
		if own[i] == name {
			found, several = i, append(several, full[i])
		}
	}
	if len(several) != 1 {
		return 0, &NameError{kind, name, several}
	}
	return found, nil
}

// HostStatus describes the state of one server.
type HostStatus struct {
	Name     string
	Err      error      // why it is not running, or why its tools could not be listed the last time; nil if all is well
	Info     ServerInfo // of the last successful start
	Tools    int        // of the last list that could be read
	Restarts int        // that were successful
}

// HostTool is one tool of a Host.
type HostTool struct {
	Server   string // Server.Name
	Function string // the name that a model knows it by
	Tool     Tool

	server *hosted
}

// Host stands between a model and MCP servers: it offers their tools under names that the model's API takes, and
// keeps the servers running. One that fails does not stop the others. All methods may be called from any goroutine.
type Host struct {
	servers []*hosted
	stop    context.CancelCauseFunc // ends the life of the Host
	work    sync.WaitGroup          // goroutines of the servers
}

// StartHost starts all servers at once, and returns when each is running or has failed; Status says which. options,
// if not nil, returns the options for each server. ctx bounds the starts; the Host lives until Close.
func StartHost(ctx context.Context, servers []Server, options func(s *Server) ClientOptions) *Host {
	life, stop := context.WithCancelCause(context.Background())
	h := &Host{stop: stop}
	var starts []*serverStart
	for i, prefix := range FunctionPrefixes(ServerNames(servers)) {
		s := &hosted{Server: servers[i], prefix: prefix, life: life, work: &h.work}
		if options != nil {
			s.options = options(&s.Server)
		}
		h.servers = append(h.servers, s)
		starts = append(starts, s.beginStart(ctx, time.Time{}))
	}
	for _, start := range starts {
		<-start.done
	}
	return h
}

// Status describes the servers, in the order in which they were given.
func (h *Host) Status() []HostStatus {
	status := make([]HostStatus, len(h.servers))
	for i, s := range h.servers {
		status[i] = s.status()
	}
	return status
}

// Tools returns the tools of all servers, also those that no model is offered. Lists that changed are read again,
// and a server that ended is started again. One that fails is left out, and Status says why; its tools can still be
// called. The error says that no server could be asked.
func (h *Host) Tools(ctx context.Context) ([]HostTool, error) {
	lists, err := h.lists(ctx)
	return slices.Concat(lists...), err
}

// Functions returns the tools as a model is offered them: without those that Server.Allows leaves out, and those
// that run only as tasks. The error says that there are too many, or is that of Tools.
func (h *Host) Functions(ctx context.Context) ([]Function, error) {
	lists, err := h.lists(ctx)
	if err != nil {
		return nil, err
	}
	functions := []Function{}
	for i, s := range h.servers {
		for _, t := range lists[i] {
			if tool := t.Tool; !tool.TaskOnly() && s.Allows(tool.Name) {
				description := Clip(tool.Description, maxDescription)
				functions = append(functions, Function{Name: t.Function, Description: description, Parameters: tool.InputSchema})
			}
		}
	}
	if len(functions) > MaxFunctions {
		return nil, fmt.Errorf("there are %d tools, and a model can be offered %d: "+
			"choose with allowedTools or excludedTools in the configuration", len(functions), MaxFunctions)
	}
	return functions, nil
}

// lists returns the tools of each server, all of which are asked at once.
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

// Tool finds a tool of the last lists: by its function's name, or by its own if no other server has a tool of that
// name. The error is a *NameError.
func (h *Host) Tool(name string) (HostTool, error) {
	// A name with the prefix of a server is a function of that server or nothing, even if the server is not running: no
	// other server can get its calls by a tool that is called so.
	prefixed := slices.ContainsFunc(h.servers, func(s *hosted) bool {
		return s.prefix != "" && strings.HasPrefix(name, s.prefix)
	})
	var tools []HostTool
	var own, full []string
	for _, s := range h.servers {
		for _, t := range s.lastTools() {
			tools, own, full = append(tools, t), append(own, t.Tool.Name), append(full, t.Function)
		}
	}
	if prefixed {
		own = nil
	}
	i, err := Resolve("tool", name, own, full)
	if err != nil {
		return HostTool{}, err
	}
	return tools[i], nil
}

// CallTool runs a tool, which it finds as Tool does; see Client.CallTool. Where no list has it, the servers are
// asked for their lists first. A server that ended is started again, but a call that ended it is not made again.
func (h *Host) CallTool(
	ctx context.Context, name string, arguments json.RawMessage, report func(Progress),
) (*ToolResult, error) {
	t, err := h.Tool(name)
	if err != nil {
		if _, err := h.Tools(ctx); err != nil {
			return nil, err
		}
		if t, err = h.Tool(name); err != nil {
			return nil, err
		}
	}
	result, err := t.server.call(ctx, &t.Tool, arguments, report)
	return result, h.named(t.server, err)
}

// Client returns a client of the server of that name, for all that is not about tools. "" names the only server. If
// it is not running it is started again.
func (h *Host) Client(ctx context.Context, server string) (*Client, error) {
	for _, s := range h.servers {
		if s.Name == server || server == "" && len(h.servers) == 1 {
			client, err := s.get(ctx, true)
			return client, h.named(s, err)
		}
	}
	return nil, fmt.Errorf("none of the %d servers is called %q", len(h.servers), server)
}

// named says which server the error is about.
func (h *Host) named(s *hosted, err error) error {
	if err == nil || len(h.servers) == 1 {
		return err
	}
	return fmt.Errorf("server %s: %w", s.Name, err)
}

// Instructions returns what the servers say about how to use them, for a model.
func (h *Host) Instructions() string {
	var parts []string
	for _, s := range h.servers {
		text, about := strings.TrimSpace(s.status().Info.Instructions), "The server says of its tools:\n"
		if s.prefix != "" {
			about = fmt.Sprintf("The server %s says of its tools, which begin with %s:\n", s.Name, s.prefix)
		}
		if text != "" {
			parts = append(parts, about+Clip(text, maxDescription))
		}
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
	words, err := SplitWords(line)
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

// SplitWords splits a command line into its words, without their quotes.
func SplitWords(line string) (words []string, err error) {
	for line = strings.TrimLeft(line, blanks); line != ""; line = strings.TrimLeft(line, blanks) {
		word := commandWord.FindString(line)
		if line = line[len(word):]; line != "" && !strings.Contains(blanks, line[:1]) {
			return nil, errors.New("the command line ends inside quotes or after a backslash")
		}
		words = append(words, quoted.ReplaceAllStringFunc(word, func(part string) string {
			switch part[0] {
			case '\'':
				return part[1 : len(part)-1]
			case '"':
				part = part[1 : len(part)-1]
			}
			return escaped.ReplaceAllString(part, "$1")
		}))
	}
	return words, nil
}

const blanks = " \t\n"

var (
	commandWord = regexp.MustCompile(`^(?s:[^ \t\n"'\\]|\\.|"(?:[^"\\]|\\.)*"|'[^']*')*`)
	quoted      = regexp.MustCompile(`(?s)'[^']*'|"(?:[^"\\]|\\.)*"|\\.`)
	escaped     = regexp.MustCompile(`\\([ "'\\])`)
)
