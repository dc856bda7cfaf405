// main_approve.go - the approval of calls: which calls of the model are made.
// SPDX-License-Identifier: 0BSD

package main

import (
	"context"
	"slices"
	"sync"
)

// approver decides which calls of the model are made, by MCP_APPROVE, by what the configuration
// approves, or by the user.
type approver struct {
	settings *askingSettings
	output   *output
	terminal *Terminal
	servers  *servers
	quit     func()    // ends the chat; nil outside of one
	showWhy  sync.Once // shows once why calls are refused
}

// decide is Agent.Decide. The agent asks it about one call at a time, in the order of the calls.
// The first of these cases that holds decides:
//
//   - Calls of the built-in library are made, as that library only reads public text.
//   - MCP_APPROVE=always makes every call.
//   - MCP_APPROVE=never refuses every call. It is stronger than alwaysAllow.
//   - Calls of a tool that the configuration names in alwaysAllow (Server.AutoApprove) are made. So
//     are those of a server that is this program and only searches (approveSelf).
//   - Calls of a tool that the user has allowed in an earlier run are made, if the tool has not
//     changed since (see main_allowed.go).
//   - Without a terminal there is no user to ask, and the call is refused.
//   - The user is asked. If their answer is that tools are always allowed, the Terminal keeps that
//     (terminal_approve.go), and does not ask about them again.
func (a *approver) decide(ctx context.Context, call ToolCall) Decision {
	tool, _ := a.servers.host.Tool(call.Name)
	config := a.servers.config
	server := config.named(tool.Server)
	isAllowed, isChanged := a.isKept(server, &tool.Tool)
	if server != nil && server.Approves(tool.Tool.Name) {
		isAllowed = true
	}
	switch {
	case config.builtIn || a.settings.approve == "always":
		return Decision{}
	case a.settings.approve == "never":
		return Decision{Refuse, "the user allows no calls"}
	case isAllowed:
		return Decision{}
	case !a.terminal.Interactive():
		a.showWhy.Do(func() {
			a.output.screen.Show(Look{}, "calls are refused, as without a terminal there is "+
				"no user to ask; alwaysAllow in the configuration names tools that may run, and "+
				"MCP_APPROVE=always allows all")
		})
		if isChanged {
			return Decision{Refuse, "the tool has changed since the user allowed it, and there " +
				"is no user to ask"}
		}
		return Decision{Refuse, "there is no user to allow it"}
	}
	r := a.request(&tool, call)
	r.IsChanged = isChanged
	return a.terminal.Approve(ctx, r)
}

// isKept reports whether the user has allowed a tool for later runs, as it is now, or as it was
// before a change.
func (a *approver) isKept(server *Server, tool *Tool) (isAllowed, isChanged bool) {
	if server == nil {
		return false, false
	}
	kept := allowedVersion(a.servers.config.allowedSource(server), tool.Name)
	isAllowed = kept == toolVersion(tool)
	return isAllowed, kept != "" && !isAllowed
}

// request returns what the user is asked about a call.
func (a *approver) request(tool *HostTool, call ToolCall) *ApprovalRequest {
	r := &ApprovalRequest{
		ServerTool: ServerTool{tool.Server, tool.Tool.Name},
		Arguments:  call.Arguments,
		Versions:   make(map[string]string),
		Quit:       a.quit,
	}
	server := a.servers.config.named(tool.Server)
	var readOnly []string
	for _, t := range a.servers.host.ReadOnlyTools(tool.Server) {
		_, isChanged := a.isKept(server, &t)
		if t.Name == tool.Tool.Name || !isChanged {
			readOnly = append(readOnly, t.Name)
			r.Versions[t.Name] = toolVersion(&t)
		}
	}
	if slices.Contains(readOnly, tool.Tool.Name) {
		r.ReadOnly = readOnly
	}
	version := toolVersion(&tool.Tool)
	r.Versions[tool.Tool.Name] = version
	if server != nil && allowedRecords.folder() != "" {
		r.Keep = func() error {
			source := a.servers.config.allowedSource(server)
			err := keepAllowed(source, server.Name, tool.Tool.Name, version)
			if err == nil {
				a.output.say("(kept for later runs; /allowed in a chat takes it back)")
			}
			return err
		}
	}
	return r
}
