// host.go - many servers, one toolbox.
// Needs: Go 1.25, json, rpc, lines, transport_stdio, transport_http, mcp, mistral, functions.
// SPDX-License-Identifier: 0BSD

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// maxDescription is how many bytes a model reads of a tool's description, or of a server's
// instructions. It reads them with every request, and no server is to fill the context alone.
const maxDescription = 8 * 1024

// NameError reports that a name stands for nothing, or for several things.
type NameError struct {
	Kind string // tool, prompt or resource
	Name string

	// Several are the full names of all that have the name, each of another server. It is nil if
	// there is nothing of that name.
	Several []string
}

func (e *NameError) Error() string {
	if e.Several == nil {
		return fmt.Sprintf("no server has a %s %q", e.Kind, e.Name)
	}
	return fmt.Sprintf("several servers have a %s %q; say which: %s",
		e.Kind, e.Name, strings.Join(e.Several, ", "))
}

// ServersError reports that none of several servers could list its tools. It wraps an error of
// each, which names its server.
type ServersError struct{ Errs []error }

func (e *ServersError) Error() string {
	texts := make([]string, len(e.Errs))
	for i, err := range e.Errs {
		texts[i] = err.Error()
	}
	return strings.Join(texts, "; ")
}

// Unwrap returns all of the errors.
func (e *ServersError) Unwrap() []error { return e.Errs }

// Resolve returns the index of the tool, prompt or resource that a name stands for: the one whose
// full name it is, or else the only one whose own name it is. own has the names that servers use,
// full the same with the servers' names: no two of those are equal. The error is a *NameError.
func Resolve(kind, name string, own, full []string) (int, error) {
	if i := slices.Index(full, name); i >= 0 {
		return i, nil
	}
	last := 0
	var fullNames []string // of all whose own name it is
	for i := range own {
		if own[i] == name {
			last = i
			fullNames = append(fullNames, full[i])
		}
	}
	if len(fullNames) != 1 {
		return 0, &NameError{Kind: kind, Name: name, Several: fullNames}
	}
	return last, nil
}

// HostStatus describes the state of one server.
type HostStatus struct {
	Name     string
	Prefix   string // of the names of its functions; "" if it is the only server
	Running  bool
	Starting bool          // a start is under way, or will begin at Retry
	Retry    time.Time     // no start begins earlier
	Err      error         // why it is not running, or has no list of tools; nil if all is well
	Info     ServerInfo    // of the last successful start
	Tools    int           // of the last list that could be read
	Restarts int           // successful starts after the first
	Took     time.Duration // of the last start that is over

	tools []HostTool
}

// Instructions returns what the server says about how to use it, for a model.
func (s *HostStatus) Instructions() string {
	return Clip(strings.TrimSpace(s.Info.Instructions), maxDescription)
}

// HostTool is one tool of a Host.
type HostTool struct {
	Server   string // Server.Name
	Function string // the name that a model knows it by
	Tool     Tool
	Unfit    error // why no model can be offered it, as ToolFunction says; nil if one can

	offer  Function // to a model
	server *hosted
}

// Host stands between a model and MCP servers: it offers their tools under names that the model's
// API takes, and keeps the servers running. It is a Toolbox of an agent. A server that fails, or is
// slow, does not stop the others. A server is started when it is needed first. All methods may be
// called from any goroutine.
type Host struct {
	// OnProgress, if set, is called as each Call begins. What it returns is called with every
	// report of the tool's progress, and must return at once. It is set before the first Call.
	OnProgress func(call ToolCall) (report func(Progress))

	servers []*hosted
	stop    context.CancelCauseFunc // ends the life of the Host
	work    sync.WaitGroup          // goroutines of the servers
}

// NewHost returns a host of servers, none of which is started yet. options, if not nil, returns the
// options for each server. The Host lives until Close.
func NewHost(servers []Server, options func(s *Server) ClientOptions) *Host {
	life, stop := context.WithCancelCause(context.Background())
	h := &Host{stop: stop}
	for i, prefix := range FunctionPrefixes(ServerNames(servers)) {
		s := &hosted{
			Server: servers[i],
			prefix: prefix,
			life:   life,
			work:   &h.work,
		}
		if options != nil {
			s.options = options(&s.Server)
		}
		h.servers = append(h.servers, s)
	}
	return h
}

// Start starts the servers of these names, or all if there are none, at once. It returns when each
// is running or has failed, which Status reports. For those that take longer than 10 s it waits
// only until one of them is running. The starts go on when ctx ends.
func (h *Host) Start(ctx context.Context, names ...string) {
	// The cause of ctx is all that await returns: the caller knows it.
	_ = await(ctx, h.named(names), patience, (*hosted).beginStarting)
}

// named returns the servers of these names, or all if there are none.
func (h *Host) named(names []string) []*hosted {
	if len(names) == 0 {
		return h.servers
	}
	var found []*hosted
	for _, s := range h.servers {
		if slices.Contains(names, s.Name) {
			found = append(found, s)
		}
	}
	return found
}

// Status describes the servers of these names, or all if there are none, in the order in which they
// were given.
func (h *Host) Status(names ...string) []HostStatus {
	servers := h.named(names)
	status := make([]HostStatus, len(servers))
	for i, s := range servers {
		status[i] = s.status()
	}
	return status
}

// Tools returns the tools of the servers of these names, or of all if there are none, also those
// that no model is offered. Lists that changed are read again, and a server that is not running is
// started. One that fails is left out, and Status says why; its tools can still be called. The
// error says that no server could be asked.
func (h *Host) Tools(ctx context.Context, names ...string) ([]HostTool, error) {
	lists, err := h.lists(ctx, h.named(names), noEnd)
	return slices.Concat(lists...), err
}

// Functions returns the tools as a model is offered them: without those that Server.Allows leaves
// out, and those that ToolFunction finds unfit, which ClientOptions.Warn names. Those that
// Server.Approves names are pinned. If there are other servers, a server that takes more than 10 s
// to start or to list its tools is left out until it is ready; Status describes its state. The
// error is that of Host.Tools.
//
// There may be more functions than a request can have: a Finder offers those that are looked for.
func (h *Host) Functions(ctx context.Context) ([]Function, error) {
	lists, err := h.lists(ctx, h.servers, patience)
	if err != nil {
		return nil, err
	}
	functions := []Function{}
	for i, s := range h.servers {
		for _, t := range lists[i] {
			if t.Unfit == nil && s.Allows(t.Tool.Name) {
				functions = append(functions, t.offer)
			}
		}
	}
	return functions, nil
}

// lists returns the tools of each of the servers, all of which are asked at once. A server that
// has no list now has none, and its error counts only if no server has one.
func (h *Host) lists(
	ctx context.Context,
	servers []*hosted,
	patience time.Duration,
) ([][]HostTool, error) {
	err := await(ctx, servers, patience, (*hosted).beginListing)
	if err != nil {
		return nil, err
	}
	lists := make([][]HostTool, len(servers))
	var errs []error
	for i, s := range servers {
		status := s.status()
		if status.Err != nil {
			errs = append(errs, h.about(s, status.Err))
		} else {
			lists[i] = status.tools
		}
	}
	switch {
	case len(errs) < len(servers) || len(errs) == 0:
		return lists, nil
	case len(errs) == 1:
		return nil, errs[0]
	}
	return nil, &ServersError{errs}
}

// Owner returns the server that the prefix of a function's name belongs to, whether or not that
// server has such a function. It is a list, to be handed to Tools or Start: of one name, or nil,
// which they take for all servers. No prefix begins with another, so there are never two.
func (h *Host) Owner(function string) (servers []string) {
	for _, s := range h.servers {
		if s.prefix != "" && strings.HasPrefix(function, s.prefix) {
			return []string{s.Name}
		}
	}
	return nil
}

// Missing returns why a function is not offered that there may be: its server is not running, or
// cannot list its tools. It is nil if that is not the reason.
func (h *Host) Missing(function string) error {
	for _, s := range h.servers {
		err := s.status().Err
		if err != nil && strings.HasPrefix(function, s.prefix) {
			return fmt.Errorf("the server %s, which %.100q may be a tool of, is not available "+
				"now; go on without it, or try again later: %w",
				s.Name, function, err)
		}
	}
	return nil
}

// Tool finds a tool of the last lists: by its function's name, or by its own if no other server has
// a tool of that name. The error is a *NameError.
func (h *Host) Tool(name string) (HostTool, error) {
	var tools []HostTool
	var own, full []string
	for _, s := range h.servers {
		for _, t := range s.status().tools {
			tools = append(tools, t)
			own = append(own, t.Tool.Name)
			full = append(full, t.Function)
		}
	}
	if h.Owner(name) != nil {
		// A name with the prefix of a server is a function of that server or nothing, even if the
		// server is not running. Otherwise another server could get its calls, by giving a
		// tool of its own that name.
		own = nil
	}
	i, err := Resolve("tool", name, own, full)
	if err != nil {
		return HostTool{}, err
	}
	return tools[i], nil
}

// ReadOnlyTools returns the tools of a server's last list that it marks as read-only, without those
// that no model is offered. The mark is a hint, and only as good as the server (MCP 2025-11-25,
// server, tools: annotations).
func (h *Host) ReadOnlyTools(server string) []Tool {
	var readOnly []Tool
	for _, s := range h.named([]string{server}) {
		for _, t := range s.status().tools {
			if t.offer.ReadOnly && t.Unfit == nil && s.Allows(t.Tool.Name) {
				readOnly = append(readOnly, t.Tool)
			}
		}
	}
	return readOnly
}

// Call runs a function that a model calls, for an agent's Toolbox. See CallTool.
func (h *Host) Call(ctx context.Context, call ToolCall) (ToolOutput, error) {
	var report func(Progress)
	if h.OnProgress != nil {
		report = h.OnProgress(call)
	}
	result, err := h.CallTool(ctx, call.Name, json.RawMessage(call.Arguments), report)
	if err != nil {
		return ToolOutput{}, err
	}
	return ModelOutput(result), nil
}

// CallTool runs a tool, which it finds as Tool does; see Client.CallTool. Where no list has it, the
// servers that may have it are asked for their lists first. A server that ended is started again,
// but a call that ended it is not made again.
func (h *Host) CallTool(
	ctx context.Context,
	name string,
	arguments json.RawMessage,
	report func(Progress),
) (*ToolResult, error) {
	t, err := h.Tool(name)
	if err != nil {
		_, err = h.Tools(ctx, h.Owner(name)...)
		if err != nil {
			return nil, err
		}
		t, err = h.Tool(name)
		if err != nil {
			return nil, err
		}
	}
	result, err := t.server.callTool(ctx, &t.Tool, arguments, report)
	return result, h.about(t.server, err)
}

// Client returns a client of the server of that name, for all that is not about tools. "" names the
// only server. If it is not running it is started.
func (h *Host) Client(ctx context.Context, server string) (*Client, error) {
	s, err := h.server(server)
	if err != nil {
		return nil, err
	}
	client, err := s.runningClient(ctx)
	return client, h.about(s, err)
}

// Restart ends the server of that name, if it is running, and starts it now, without the pause that
// it may be in. "" names the only server.
func (h *Host) Restart(ctx context.Context, server string) error {
	s, err := h.server(server)
	if err != nil {
		return err
	}
	_, err = s.restart().wait(ctx)
	return h.about(s, err)
}

// server returns the server of that name. "" names the only server.
func (h *Host) server(name string) (*hosted, error) {
	if name == "" && len(h.servers) == 1 {
		return h.servers[0], nil
	}
	var names []string
	for _, s := range h.servers {
		if s.Name == name {
			return s, nil
		}
		names = append(names, s.Name)
	}
	return nil, fmt.Errorf("there is no server %q; the servers are: %s",
		name, strings.Join(names, ", "))
}

// about adds to an error which server it is about. Where there is only one, everybody knows.
func (h *Host) about(s *hosted, err error) error {
	if err == nil || len(h.servers) == 1 {
		return err
	}
	return fmt.Errorf("server %s: %w", s.Name, err)
}

// Instructions returns what the servers say about how to use them, for a model.
func (h *Host) Instructions() string {
	var parts []string
	for _, s := range h.Status() {
		text := s.Instructions()
		if text == "" {
			continue
		}
		speaker := "The server says of its tools:\n"
		if s.Prefix != "" {
			speaker = fmt.Sprintf("The server %s says of its tools, which begin with %s:\n",
				s.Name, s.Prefix)
		}
		parts = append(parts, speaker+text)
	}
	return strings.Join(parts, "\n\n")
}

// Close ends the servers, all at once, also one that is being started.
func (h *Host) Close() error {
	h.stop(ErrClosed)
	errs := make([]error, len(h.servers))
	var work sync.WaitGroup
	for i, s := range h.servers {
		work.Go(func() { errs[i] = h.about(s, s.close()) })
	}
	work.Wait()
	h.work.Wait()
	return errors.Join(errs...)
}
