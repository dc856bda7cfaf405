// main_tools.go - the commands about tools.
// SPDX-License-Identifier: 0BSD

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// listedTool is a tool as tools -json prints it.
type listedTool struct {
	Function string `json:"function"`           // what the model calls it
	Excluded bool   `json:"excluded,omitempty"` // the model is not offered it
	Tool
}

// toolEntries returns the tools of the servers of these names, or of all if there are none.
func (p *program) toolEntries(ctx context.Context, host *Host, names []string) (entries []entry, err error) {
	if err := p.startServers(ctx, host, names...); err != nil {
		return nil, err
	}
	var tools []HostTool
	err = p.withLogins(ctx, host, func() (err error) { tools, err = host.Tools(ctx, names...); return err })
	if err != nil {
		return nil, p.explainCall(err)
	}
	p.tellAbsent(host.Status())
	for _, t := range tools {
		excluded := t.Unfit != nil || t.Tool.TaskOnly() || slices.ContainsFunc(p.servers, func(s Server) bool {
			return s.Name == t.Server && !s.Allows(t.Tool.Name)
		})
		s := toolSchema(&t.Tool)
		names := s.names()
		for i := len(s.Required); i < len(names); i++ {
			names[i] += "?"
		}
		detail := "(" + strings.Join(names, ", ") + ")"
		switch {
		case t.Tool.TaskOnly():
			detail += " [runs only as a task, which is not supported]"
		case excluded:
			detail += " [not for the model]"
		}
		about := cmp.Or(t.Tool.Description, t.Tool.Title)
		entries = append(entries,
			entry{t.Server, t.Tool.Name, detail, about, listedTool{t.Function, excluded, t.Tool}})
	}
	return entries, nil
}

// showTool shows a tool with all that it takes.
func (p *program) showTool(ctx context.Context, host *Host, name string) error {
	e, err := p.find(ctx, host, "tool", name)
	if err != nil {
		return err
	}
	if p.json {
		return p.printJSON(e)
	}
	tool := e.value.(listedTool)
	arguments := toolSchema(&tool.Tool).describe("  ")
	return p.screen.List(p.shown(e) + e.detail + "\n" + indented(e.about, "    ") + arguments)
}

// call runs one tool.
func (p *program) call(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return usageError("call takes a tool and its arguments: KEY=VALUE words, a JSON object, @FILE, or - for stdin")
	}
	arguments, err := p.arguments(ctx, args[1:])
	if err != nil {
		return fmt.Errorf("the arguments of %s: %w", args[0], err)
	}
	return p.withHost(ctx, func(host *Host) error { return p.callTool(ctx, host, args[0], arguments) })
}

// arguments reads those of a tool: KEY=VALUE words, which its schema gives types to, or the text of a JSON object,
// which goes to the tool as it is.
func (p *program) arguments(ctx context.Context, words []string) (func(*Tool) (json.RawMessage, error), error) {
	if len(words) == 1 && strings.IndexAny(strings.TrimSpace(words[0]), "{@-") == 0 {
		text, err := p.readArgument(ctx, words[0])
		if err != nil {
			return nil, err
		}
		var object map[string]json.RawMessage
		if err := json.Unmarshal([]byte(text), &object); err != nil || object == nil {
			return nil, usageError("not one JSON object, such as '{\"query\": \"text\"}': %s", Clip(text, 200))
		}
		return func(*Tool) (json.RawMessage, error) { return json.RawMessage(text), nil }, nil
	}
	given, err := pairs(words)
	return func(t *Tool) (json.RawMessage, error) { return toolSchema(t).object(given) }, err
}

// callTool calls a tool with the arguments that its schema makes.
func (p *program) callTool(
	ctx context.Context, host *Host, name string, typed func(*Tool) (json.RawMessage, error),
) error {
	e, err := p.find(ctx, host, "tool", name)
	if err != nil {
		return err
	}
	tool := e.value.(listedTool)
	if tool.TaskOnly() {
		return exitWith(exitUsage, "the tool %s runs only as a task, which this client does not support", name)
	}
	arguments, err := typed(&tool.Tool)
	if err != nil {
		return exitWith(exitUsage, "call %s%s: %w (see: mcpagent tools %[1]s)", name, e.detail, err)
	}
	view := p.newView(host)
	view.Begin("")
	result, err := host.CallTool(ctx, tool.Function, arguments, view.Watch(ToolCall{Name: name}))
	view.End()
	if err != nil {
		return &exitError{exitTool, p.explainCall(err)}
	}
	text := ModelText(result)
	if text != "" {
		text += "\n"
	}
	result.Content = append([]ContentBlock{}, result.Content...) // never null
	if err = p.give(result, text, result); err == nil && result.IsError {
		err = exitWith(exitTool, "%s reported an error", name)
	}
	return err
}
