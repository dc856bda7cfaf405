// main_commands.go - the commands that show what a server has.
// Needs: Go 1.25, json.go, rpc.go, transport_stdio.go, transport_stdio_unix.go, transport_stdio_windows.go, transport_http_events.go, transport_http.go, transport_http_params.go, transport_sse.go, mcp_types.go, elicitation.go, mcp.go, mcp_input.go, mcp_lists.go, mcp_handshake.go, mcp_repair.go, mistral.go, mcp_model.go, sampling.go, agent.go, connect.go, host.go, search.go, corpus.go, library_tools.go, library.go, library_http_answer.go, library_http.go, offline.go, terminal.go, main.go, main_server.go.
// SPDX-License-Identifier: 0BSD

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
)

// hostCommand is a command that needs the server.
type hostCommand func(ctx context.Context, host *Host) error

// withHost runs a command with the server started, and ends that.
func (p *program) withHost(ctx context.Context, command hostCommand) error {
	host, done, err := p.host(ctx)
	if err != nil {
		return err
	}
	defer done()
	return command(ctx, host)
}

// tools lists what the server offers.
func (p *program) tools(ctx context.Context, host *Host) error {
	tools, _, err := host.Tools(ctx)
	if err != nil {
		return err
	}
	var tasks []string
	tools = slices.DeleteFunc(tools, func(tool Tool) bool {
		if tool.TaskOnly() {
			tasks = append(tasks, tool.Name)
		}
		return tool.TaskOnly()
	})
	if len(tasks) > 0 {
		p.note("left out, as they run only as tasks, which this client does not speak: %s", strings.Join(tasks, ", "))
	}
	if p.json {
		return p.print(append([]Tool{}, tools...)) // never null
	}
	if len(tools)+len(tasks) == 0 {
		p.note("the server has no tools")
	}
	for _, tool := range tools {
		title, _, _ := strings.Cut(strings.TrimSpace(cmp.Or(tool.Description, tool.Title)), "\n")
		if err := p.show(fmt.Sprintf("%s(%s)\n    %s", tool.Name, parameters(tool.InputSchema), title)); err != nil {
			return err
		}
	}
	return nil
}

// parameters lists the names in a schema, optional ones last and with a question mark.
func parameters(schema json.RawMessage) string {
	var s struct {
		Properties map[string]json.RawMessage `json:"properties"`
		Required   []string                   `json:"required"`
	}
	_ = json.Unmarshal(schema, &s) // what is no schema has no parameters to show
	names := slices.Clone(s.Required)
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		if !slices.Contains(s.Required, name) {
			names = append(names, name+"?")
		}
	}
	return strings.Join(names, ", ")
}

// call runs one tool.
func (p *program) call(ctx context.Context, args []string) error {
	if len(args) == 0 || len(args) > 2 {
		return usageError("call takes a tool and, if it has arguments, a JSON object")
	}
	arguments := json.RawMessage("{}")
	if len(args) == 2 {
		var object map[string]json.RawMessage
		if err := json.Unmarshal([]byte(args[1]), &object); err != nil || object == nil {
			return usageError("the arguments must be one JSON object, such as '{\"query\": \"text\"}': %s", cut(args[1], 80))
		}
		arguments = json.RawMessage(args[1])
	}
	return p.withHost(ctx, func(ctx context.Context, host *Host) error { return p.callTool(ctx, host, args[0], arguments) })
}

func (p *program) callTool(ctx context.Context, host *Host, name string, arguments json.RawMessage) error {
	tools, names, err := host.Tools(ctx)
	if err != nil {
		return err
	}
	known := make([]string, len(tools))
	for i, tool := range tools {
		known[i] = tool.Name
	}
	i := max(slices.Index(names, name), slices.Index(known, name))
	switch {
	case i < 0:
		return notThere("tool", name, known)
	case tools[i].TaskOnly():
		return &exitError{exitUsage, fmt.Errorf("the tool %s runs only as a task, which this client does not speak", name)}
	}
	result, err := host.CallTool(ctx, name, arguments, p.progress(name))
	if err != nil {
		return toolError(err)
	}
	if p.json {
		result.Content = append([]ContentBlock{}, result.Content...) // never null
		err = p.print(result)
	} else if text := ModelText(result); text != "" {
		err = p.show(text)
	}
	if err == nil && result.IsError {
		err = &exitError{exitTool, fmt.Errorf("%s reported an error", name)}
	}
	return err
}

// resources lists the resources and the families of them.
func (p *program) resources(ctx context.Context, host *Host) error {
	resources, err := optional(host.Client.ListResources(ctx))
	if err != nil {
		return err
	}
	templates, err := optional(host.Client.ListResourceTemplates(ctx))
	if err != nil {
		return err
	}
	if p.json {
		return p.print(map[string]any{"resources": resources, "resourceTemplates": templates})
	}
	if len(resources)+len(templates) == 0 {
		p.note("the server has no resources")
	}
	for _, r := range resources {
		size := ""
		if r.Size > 0 {
			size = fmt.Sprintf(", %d bytes", r.Size)
		}
		if err := p.item(r.URI, strings.TrimPrefix(r.MIMEType+size, ", "), cmp.Or(r.Description, r.Title, r.Name)); err != nil {
			return err
		}
	}
	for _, t := range templates {
		if err := p.item(t.URITemplate, t.MIMEType, cmp.Or(t.Description, t.Title, t.Name)); err != nil {
			return err
		}
	}
	return nil
}

// prompts lists the prompts with their arguments.
func (p *program) prompts(ctx context.Context, host *Host) error {
	prompts, err := optional(host.Client.ListPrompts(ctx))
	if err != nil {
		return err
	}
	if p.json {
		return p.print(prompts)
	}
	if len(prompts) == 0 {
		p.note("the server has no prompts")
	}
	for _, prompt := range prompts {
		var names []string
		for _, a := range prompt.Arguments {
			if a.Required {
				names = append(names, a.Name)
			} else {
				names = append(names, a.Name+"?")
			}
		}
		if err := p.item(prompt.Name, strings.Join(names, ", "), cmp.Or(prompt.Description, prompt.Title)); err != nil {
			return err
		}
	}
	return nil
}

// optional is a list of what a server need not have at all; it is never nil, so that it is [] in JSON.
func optional[T any](list []T, err error) ([]T, error) {
	var refusal *Error
	if errors.As(err, &refusal) && refusal.Code == CodeMethodNotFound {
		err = nil
	}
	return append([]T{}, list...), err
}

// item shows one entry of a list: its name, a remark, and the first line of its description.
func (p *program) item(name, remark, description string) error {
	if remark != "" {
		remark = "(" + remark + ")"
	}
	if description, _, _ = strings.Cut(strings.TrimSpace(description), "\n"); description != "" {
		description = "\n    " + description
	}
	return p.show(strings.TrimSpace(name+" "+remark) + description)
}

// read prints a resource, whose contents can be several: as they are, unless somebody looks.
func (p *program) read(ctx context.Context, args []string) error {
	if len(args) != 1 || args[0] == "" {
		return usageError("read takes the URI of a resource")
	}
	return p.withHost(ctx, func(ctx context.Context, host *Host) error {
		contents, err := host.Client.ReadResource(ctx, args[0])
		if err != nil {
			return toolError(err)
		}
		if p.json {
			return p.print(append([]ResourceContents{}, contents...))
		}
		for _, c := range contents {
			switch {
			case !isTerminal(os.Stdout):
				_, err = os.Stdout.WriteString(p.redact(c.Text + string(c.Blob))) // one of them is empty
			case c.Blob != nil:
				err = p.show(resourceText(&c))
			default:
				err = p.show(strings.TrimSuffix(c.Text, "\n"))
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// prompt fills in a prompt and prints its messages.
func (p *program) prompt(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return usageError("prompt takes a name and, if it has arguments, KEY=VALUE words")
	}
	arguments := make(map[string]string)
	for _, word := range args[1:] {
		key, value, ok := strings.Cut(word, "=")
		if !ok || key == "" {
			return usageError("%q is not of the form KEY=VALUE", word)
		}
		if _, ok := arguments[key]; ok {
			return usageError("%s is given twice", key)
		}
		arguments[key] = value
	}
	return p.withHost(ctx, func(ctx context.Context, host *Host) error {
		prompts, err := optional(host.Client.ListPrompts(ctx))
		if err != nil {
			return err
		}
		if err := checkPrompt(prompts, args[0], arguments); err != nil {
			return err
		}
		result, err := host.Client.GetPrompt(ctx, args[0], arguments)
		if err != nil {
			return toolError(err)
		}
		if p.json {
			result.Messages = append([]PromptMessage{}, result.Messages...)
			return p.print(result)
		}
		for _, m := range result.Messages {
			if err := p.show(m.Role + ": " + ModelText(&ToolResult{Content: []ContentBlock{m.Content}})); err != nil {
				return err
			}
		}
		return nil
	})
}

// checkPrompt says what is wrong with a prompt's name or arguments.
func checkPrompt(prompts []Prompt, name string, arguments map[string]string) error {
	names := make([]string, len(prompts))
	for i, prompt := range prompts {
		names[i] = prompt.Name
	}
	i := slices.Index(names, name)
	if i < 0 {
		return notThere("prompt", name, names)
	}
	known := make(map[string]bool)
	var missing []string
	for _, a := range prompts[i].Arguments {
		known[a.Name] = true
		if _, given := arguments[a.Name]; a.Required && !given {
			missing = append(missing, a.Name+"=…")
		}
	}
	if len(missing) > 0 {
		return &exitError{exitUsage, fmt.Errorf("the prompt %s needs %s (see: mcpagent prompts)", name, strings.Join(missing, " "))}
	}
	for _, key := range slices.Sorted(maps.Keys(arguments)) {
		if !known[key] {
			return &exitError{exitUsage, fmt.Errorf("the prompt %s has no argument %q (see: mcpagent prompts)", name, key)}
		}
	}
	return nil
}

// notThere is the error for a name that the server does not have, with those that may have been meant.
func notThere(kind, name string, names []string) error {
	has := "it has"
	if near := closest(name, names); len(near) > 0 {
		has, names = "the nearest are", near
	}
	if len(names) == 0 {
		return &exitError{exitUsage, fmt.Errorf("the server has no %s %q, nor any other", kind, name)}
	}
	return &exitError{exitUsage, fmt.Errorf("the server has no %s %q; %s: %s (see: mcpagent %ss)",
		kind, name, has, cut(strings.Join(names, ", "), 400), kind)}
}

// toolError gives an error of the server its exit status.
func toolError(err error) error { return &exitError{exitTool, err} }
