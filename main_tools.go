// main_tools.go - the commands about tools.
// SPDX-License-Identifier: 0BSD

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
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
func (p *program) toolEntries(ctx context.Context, host *Host, names ...string) (entries []entry, err error) {
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
		entries = append(entries, entry{t.Server, t.Tool.Name, t.Server + ":" + t.Tool.Name, t.Function, detail, about,
			listedTool{t.Function, excluded, t.Tool}})
	}
	return entries, nil
}

// listTools shows the tools of every server, or of one, or all there is to know of one tool.
func (p *program) listTools(ctx context.Context, host *Host, names ...string) error {
	if len(names) > 0 && !slices.Contains(ServerNames(p.servers), names[0]) {
		return p.showTool(ctx, host, names[0])
	}
	tools, err := p.toolEntries(ctx, host, names...)
	if err != nil {
		return err
	}
	if p.json {
		return p.printJSON(append([]entry{}, tools...)) // never null
	}
	return p.show("tools", tools, names)
}

// showTool shows a tool with all that it takes.
func (p *program) showTool(ctx context.Context, host *Host, name string) error {
	e, err := p.findTool(ctx, host, name)
	if err != nil {
		return err
	}
	if p.json {
		return p.printJSON(e)
	}
	tool := e.value.(listedTool)
	arguments := toolSchema(&tool.Tool).describe("  ")
	return p.screen.Print(p.shown(e) + e.detail + "\n" + indented(e.about, "    ") + arguments)
}

// findTool asks the servers that may have a tool of that name: SERVER:TOOL, or SERVER__TOOL, or the tool's own name if
// no other server has it.
func (p *program) findTool(ctx context.Context, host *Host, name string) (entry, error) {
	owner := host.Owner(name)
	if server, _ := p.serverIn(name); server != "" {
		owner = []string{server}
	}
	tools, err := p.toolEntries(ctx, host, owner...)
	if err != nil {
		return entry{}, err
	}
	return p.resolve("tool", name, tools)
}

// call runs one tool.
func (p *program) call(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return usageError("call takes a tool and its arguments: KEY=VALUE words, a JSON object, @FILE, or - for stdin")
	}
	given, text, err := p.arguments(ctx, args[1:])
	if err != nil {
		return err
	}
	return p.withHost(ctx, func(host *Host) error { return p.callTool(ctx, host, args[0], given, text) })
}

// arguments reads those of a tool: KEY=VALUE words, which are given by their keys, or the text of a JSON object, which
// goes to the tool as it is. KEY=@FILE is the text of a file, KEY=@- that of stdin, and KEY=@@TEXT is @TEXT.
func (p *program) arguments(ctx context.Context, words []string) (given map[string][]string, text string, err error) {
	if len(words) == 1 && strings.IndexAny(strings.TrimSpace(words[0]), "{@-") == 0 {
		if text, err = p.readArgument(ctx, words[0]); err != nil {
			return nil, "", fmt.Errorf("the arguments: %w", err)
		}
		var object map[string]json.RawMessage
		if err := json.Unmarshal([]byte(text), &object); err != nil || object == nil {
			err = usageError("the arguments must be one JSON object, such as '{\"query\": \"text\"}': %s", Clip(text, 200))
			return nil, "", err
		}
		return nil, text, nil
	}
	given = make(map[string][]string)
	for _, word := range words {
		key, value, ok := strings.Cut(word, "=")
		if !ok || key == "" {
			return nil, "", usageError("%q is neither KEY=VALUE nor one JSON object", word)
		}
		if literal, ok := strings.CutPrefix(value, "@@"); ok {
			value = "@" + literal
		} else if strings.HasPrefix(value, "@") {
			if value, err = p.readArgument(ctx, value); err != nil {
				return nil, "", fmt.Errorf("the argument %s: %w", key, err)
			}
		}
		given[key] = append(given[key], value)
	}
	return given, "", nil
}

// callTool calls a tool with the arguments that were given, or else with those of the text.
func (p *program) callTool(
	ctx context.Context, host *Host, name string, given map[string][]string, text string,
) error {
	e, err := p.findTool(ctx, host, name)
	if err != nil {
		return err
	}
	tool, arguments := e.value.(listedTool), json.RawMessage(text)
	if tool.TaskOnly() {
		return exitWith(exitUsage, "the tool %s runs only as a task, which this client does not support", name)
	}
	if given != nil {
		if arguments, err = toolSchema(&tool.Tool).object(given); err != nil {
			return exitWith(exitUsage, "call %s%s: %w (see: mcpagent tools %[1]s)", name, e.detail, err)
		}
	}
	view := p.newView(host)
	view.Begin("")
	result, err := host.CallTool(ctx, e.alias, arguments, view.Watch(ToolCall{Name: name}))
	view.End()
	if err != nil {
		return &exitError{exitTool, p.explainCall(err)}
	}
	if text = ModelText(result); text != "" {
		text += "\n"
	}
	if p.output != "" && !result.IsError {
		if text, err = p.saveResult(result, text); err != nil {
			return err
		}
	}
	if p.json {
		result.Content = append([]ContentBlock{}, result.Content...) // never null
		err = p.printJSON(result)
	} else if text != "" {
		err = p.screen.Print(text)
	}
	if err == nil && result.IsError {
		err = exitWith(exitTool, "%s reported an error", name)
	}
	return err
}

// save writes data to the file of -o, and what comes later to others beside it, with numbers. It returns the name.
func (p *program) save(data []byte, _ string) (path string, err error) {
	path, ending := p.output, filepath.Ext(p.output)
	p.saved++
	switch {
	case p.unsaved != nil:
		err = p.unsaved // the others would not be where they are expected
	case path == "-":
		path, err = "stdout", p.screen.Print(string(data))
	case p.saved > 1:
		path = fmt.Sprintf("%s-%d%s", strings.TrimSuffix(path, ending), p.saved, ending)
		fallthrough
	default:
		err = os.WriteFile(path, data, 0o666)
	}
	p.unsaved = cmp.Or(p.unsaved, err)
	return path, err
}

// saveResult writes the images and other bytes of a result to the files of -o, or else its text. It returns the text
// that stays for stdout.
func (p *program) saveResult(r *ToolResult, text string) (rest string, err error) {
	lines := ResultFiles(r, p.save)
	for _, line := range lines {
		p.note("%s", line)
	}
	if len(lines) == 0 {
		_, _ = p.save([]byte(text), "")
	}
	if p.unsaved != nil || len(lines) == 0 || p.output == "-" {
		return "", p.unsaved
	}
	return text, nil
}
