// main_commands.go - the commands that use the servers without a model.
// SPDX-License-Identifier: 0BSD

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
)

// serverCommands are the commands that need servers, but no model.
type serverCommands struct {
	settings *settings
	output   *output
	input    *textInput
	servers  *servers
	catalog  *catalog
}

// withServers returns a command that opens the servers, does its work, and closes them.
func (c *serverCommands) withServers(
	command func(ctx context.Context, args ...string) error,
) func(ctx context.Context, args []string) error {
	return func(ctx context.Context, args []string) error {
		closeServers, err := c.servers.open(ctx)
		if err != nil {
			return err
		}
		defer closeServers()
		return command(ctx, args...)
	}
}

// list returns the command that lists one kind of the things that servers have: prompts or
// resources.
func (c *serverCommands) list(kind string) func(ctx context.Context, names []string) error {
	return c.withServers(func(ctx context.Context, names ...string) error {
		return c.catalog.list(ctx, kind, names...)
	})
}

// tools lists the tools of servers, or those that match the words of -find best.
func (c *serverCommands) tools(ctx context.Context, names ...string) error {
	if words := c.output.settings.find; words != "" {
		return c.catalog.findTools(ctx, words, names...)
	}
	return c.catalog.list(ctx, "tools", names...)
}

func (c *serverCommands) listServers(ctx context.Context, names ...string) error {
	return c.catalog.listServers(ctx, names...)
}

// call runs one tool. The arguments are read before the servers are started, so that a mistake in
// the arguments costs no start. Their types are checked when the tool's schema is known.
func (c *serverCommands) call(ctx context.Context, args ...string) error {
	if len(args) == 0 {
		return usageError("call takes a tool and its arguments: " +
			"KEY=VALUE words, a JSON object, @FILE, or - for stdin")
	}
	name := args[0]
	arguments, words, err := c.arguments(ctx, args[1:])
	if err != nil {
		return fmt.Errorf("the arguments of %s: %w", name, err)
	}
	e, err := c.catalog.find(ctx, "tool", name)
	if err != nil {
		return err
	}
	tool := e.value.(listedTool)
	if arguments == nil {
		arguments, err = ToolSchema(&tool.Tool).Object(words)
		if err != nil {
			return exitWith(exitUsage,
				"call %s%s: %w (see: mcpagent tools %[1]s)", name, e.detail, err)
		}
	}
	var result *ToolResult
	logged := c.servers.logSize(e.server)
	err = c.servers.afterLogin(ctx, e.server, name, func() (err error) {
		result, err = c.callTool(ctx, name, tool.Function, arguments)
		return err
	})
	if err != nil {
		return &exitError{exitTool, c.servers.explain(err)}
	}
	err = c.giveResult(ctx, name, result)
	wrote := c.servers.wroteSince(e.server, logged)
	if err != nil && result.IsError && wrote != "" {
		return fmt.Errorf("%w; %s", err, wrote)
	}
	return err
}

// giveResult prints the result of a tool. For a person its JSON is laid out.
func (c *serverCommands) giveResult(
	ctx context.Context,
	name string,
	result *ToolResult,
) error {
	text := ModelText(result)
	if result.Content == nil {
		// The JSON has a list, never null.
		result.Content = []ContentBlock{}
	}
	printed := withLineEnd(text)
	isForPerson := c.output.screen.Answers && c.output.settings.file == "" && !c.output.settings.raw
	if isForPerson {
		printed = withLineEnd(laidOutResult(result, c.output.screen.Columns()))
	}
	if err := c.output.give(ctx, result, text, printed, result); err != nil {
		return err
	}
	if result.IsError {
		return exitWith(exitTool, "%s reported an error", name)
	}
	return nil
}

// laidOutResult is ModelText with each block that is JSON laid out in so many columns.
func laidOutResult(result *ToolResult, columns int) string {
	if len(result.Content) == 0 {
		return ModelText(result)
	}
	var texts []string
	for _, block := range result.Content {
		one := &ToolResult{Content: []ContentBlock{block}}
		texts = append(texts, LayOutJSON(ModelText(one), columns))
	}
	return strings.Join(texts, "\n")
}

// callTool calls a function of the host, and shows its progress under the name that the user gave.
func (c *serverCommands) callTool(
	ctx context.Context,
	name, function string,
	arguments json.RawMessage,
) (*ToolResult, error) {
	host := c.servers.host
	view := c.output.newView(ctx, host, 0)
	view.Begin("")
	defer view.End()
	return host.CallTool(ctx, function, arguments, view.Progress(ToolCall{Name: name}))
}

// arguments reads the arguments of a tool. They are the text of a JSON object, which goes to the
// tool as it is, or KEY=VALUE words, whose types the tool's schema tells.
func (c *serverCommands) arguments(
	ctx context.Context,
	args []string,
) (object json.RawMessage, words map[string]string, err error) {
	// No key begins with one of these characters, so the word is no KEY=VALUE.
	isObject := len(args) == 1 && strings.IndexAny(strings.TrimSpace(args[0]), "{@-") == 0
	if !isObject {
		words, err := pairs(args)
		return nil, words, err
	}
	text, err := c.input.argument(ctx, args[0])
	if err != nil {
		return nil, nil, err
	}
	var members map[string]json.RawMessage
	err = json.Unmarshal([]byte(text), &members)
	if err != nil {
		return nil, nil, usageError("not one JSON object, such as '{\"query\": \"text\"}' (%w): %s",
			err, Clip(text, 200))
	}
	if members == nil {
		return nil, nil, usageError("null is not one JSON object, such as '{\"query\": \"text\"}'")
	}
	return json.RawMessage(text), nil, nil
}

// read prints a resource, which can have several contents. The JSON is always a list.
func (c *serverCommands) read(ctx context.Context, args ...string) error {
	if len(args) != 1 || args[0] == "" {
		return usageError("read takes the URI of a resource")
	}
	result, err := c.catalog.readResource(ctx, args[0])
	if err != nil {
		return err
	}
	text := ""
	contents := []*ResourceContents{}
	for _, block := range result.Content {
		contents = append(contents, block.Resource)
		text += c.contentText(block.Resource)
	}
	return c.output.give(ctx, result, text, text, contents)
}

// contentText returns the text to print for one of the contents of a resource. Bytes go to a pipe
// as they are. For a person, a description of the bytes is printed. A file of -o gets them from the
// result itself.
func (c *serverCommands) contentText(r *ResourceContents) string {
	isFile := c.output.settings.file != ""
	isForPerson := c.output.screen.Answers && !isFile
	text := r.Text
	if !isFile && r.Blob != nil {
		if !isForPerson {
			return string(r.Blob)
		}
		text = ResourceText(r)
	}
	if isForPerson {
		text = withLineEnd(text)
	}
	return text
}

// prompt fills in a prompt and prints its messages, each with its role. It asks no model: the
// command /prompt of the chat does.
func (c *serverCommands) prompt(ctx context.Context, args ...string) error {
	if len(args) == 0 {
		return usageError("prompt takes a name and, if it has arguments, KEY=VALUE words")
	}
	result, err := c.catalog.getPrompt(ctx, args)
	if err != nil {
		return err
	}
	if result.Messages == nil {
		// The JSON has a list, never null.
		result.Messages = []PromptMessage{}
	}
	text := ""
	for _, m := range result.Messages {
		content := &ToolResult{Content: []ContentBlock{m.Content}}
		text += withLineEnd(m.Role + ": " + ModelText(content))
	}
	return c.output.give(ctx, nil, text, text, result)
}
