// main_commands.go - the commands that show what the servers have.
// Needs: Go 1.25, json.go, rpc.go, transport_stdio.go, transport_stdio_unix.go, transport_stdio_windows.go, transport_http_events.go, transport_http.go, transport_http_params.go, transport_sse.go, mcp_types.go, elicitation.go, mcp.go, mcp_input.go, mcp_lists.go, mcp_handshake.go, mcp_repair.go, mistral.go, mcp_model.go, sampling.go, agent.go, connect.go, host_server.go, host.go, config.go, mask.go, search.go, corpus.go, library_tools.go, library.go, library_http_answer.go, library_http.go, offline.go, terminal_unix.go, terminal_other.go, terminal_screen.go, terminal.go, terminal_view.go, session.go, main.go, main_host.go, main_log.go, main_ask.go, main_chat.go, main_server.go.
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
	"regexp"
	"slices"
	"strings"
	"sync"
)

// hostCommand is a command that needs the servers.
type hostCommand func(ctx context.Context, host *Host) error

// withHost runs a command with the servers started, and ends those.
func (p *program) withHost(ctx context.Context, command hostCommand) error {
	host, done, err := p.host(ctx)
	if err != nil {
		return err
	}
	defer done()
	return command(ctx, host)
}

// tools lists what the servers offer.
func (p *program) tools(ctx context.Context, host *Host) error {
	all, err := host.Tools(ctx)
	if err != nil {
		return err
	}
	p.tellAbsent(host.Status())
	type listed struct {
		Server   string `json:"server"`
		Function string `json:"function"`           // what the model calls it, and call takes
		Excluded bool   `json:"excluded,omitempty"` // by the configuration: the model is not offered it
		Tool
	}
	tools := []listed{} // never null
	var tasks []string
	for _, t := range all {
		if t.Tool.TaskOnly() {
			tasks = append(tasks, p.one(t.Tool.Name, t.Function))
		} else {
			tools = append(tools, listed{t.Server, t.Function, !p.allows(t), t.Tool})
		}
	}
	if len(tasks) > 0 {
		p.note("left out, as they run only as tasks, which this client does not speak: %s", strings.Join(tasks, ", "))
	}
	if p.json {
		return p.print(tools)
	}
	if len(all) == 0 {
		p.note("%s no tools", p.one("the server has", "the servers have"))
	}
	list := listing{p: p}
	for _, t := range tools {
		text := p.one(t.Name, t.Function) + "(" + parameters(t.InputSchema) + ")"
		if t.Excluded {
			text += " [not for the model]"
		}
		title, _, _ := strings.Cut(strings.TrimSpace(cmp.Or(t.Description, t.Title)), "\n")
		if err := list.show(t.Server, text+"\n    "+title); err != nil {
			return err
		}
	}
	return nil
}

// one chooses the words for the only server, or for several.
func (p *program) one(word, words string) string {
	if len(p.servers) > 1 {
		return words
	}
	return word
}

// allows says whether the configuration lets the model have a tool.
func (p *program) allows(t HostTool) bool {
	return !slices.ContainsFunc(p.servers, func(s ServerConfig) bool { return s.Name == t.Server && !s.Allows(t.Tool.Name) })
}

// listing shows entries, those of each server under its name if there are several.
type listing struct {
	p      *program
	server string // whose entries are being shown
}

func (l *listing) show(server, text string) error {
	if len(l.p.servers) > 1 && server != l.server {
		if l.server != "" {
			text = "\n" + server + ":\n" + text
		} else {
			text = server + ":\n" + text
		}
		l.server = server
	}
	return l.p.show(text)
}

// item shows one entry of a list: its name, a remark, and the first line of its description.
func (l *listing) item(server, name, remark, description string) error {
	if remark != "" {
		remark = "(" + remark + ")"
	}
	if description, _, _ = strings.Cut(strings.TrimSpace(description), "\n"); description != "" {
		description = "\n    " + description
	}
	return l.show(server, strings.TrimSpace(name+" "+remark)+description)
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
	tools, err := host.Tools(ctx)
	if err != nil {
		return err
	}
	p.tellAbsent(host.Status())
	tool, err := p.findTool(tools, name)
	if err != nil {
		return err
	}
	if tool.Tool.TaskOnly() {
		return &exitError{exitUsage, fmt.Errorf("the tool %s runs only as a task, which this client does not speak", name)}
	}
	view := p.newView(host)
	view.Begin("")
	result, err := host.CallTool(ctx, tool.Function, arguments, view.Watch(ToolCall{Name: name}))
	view.End()
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

// findTool finds a tool by its function's name, or by its own if only one server has it.
func (p *program) findTool(tools []HostTool, name string) (HostTool, error) {
	var names, functions []string // of all tools; the one is what the other is called by
	var found []HostTool
	for _, t := range tools {
		if t.Function == name {
			return t, nil
		}
		if t.Tool.Name == name {
			found = append(found, t)
		}
		names, functions = append(names, t.Tool.Name), append(functions, p.one(t.Tool.Name, t.Function))
	}
	switch len(found) {
	case 0:
		return HostTool{}, p.notThere("tool", name, names, functions)
	case 1:
		return found[0], nil
	}
	functions = nil
	for _, t := range found {
		functions = append(functions, t.Function)
	}
	return HostTool{}, severalHave("tool", name, functions)
}

// fromServer is what one of the servers has.
type fromServer[T any] struct {
	server string
	has    []T
}

// everyServer asks all servers that are there for a list, at the same time. One that fails is named, and the others go on;
// the error says that all did. A server need not have such a list at all.
func everyServer[T any](ctx context.Context, p *program, host *Host, list func(*Client, context.Context) ([]T, error)) ([]fromServer[T], error) {
	status := host.Status()
	all := make([]fromServer[T], len(status))
	var asking sync.WaitGroup
	for i := range status {
		s := &status[i]
		all[i].server = s.Name
		if s.Err != nil {
			continue
		}
		asking.Go(func() {
			client, err := host.Client(ctx, s.Name)
			if err == nil {
				all[i].has, err = list(client, ctx)
			}
			var refusal *Error
			if !errors.As(err, &refusal) || refusal.Code != CodeMethodNotFound {
				s.Err = err
			}
		})
	}
	asking.Wait()
	if failed := slices.IndexFunc(status, func(s HostStatus) bool { return s.Err == nil }); failed < 0 {
		return nil, status[0].Err
	}
	p.tellAbsent(status)
	return all, nil
}

// resources lists the resources and the families of them.
func (p *program) resources(ctx context.Context, host *Host) error {
	resources, err := everyServer(ctx, p, host, (*Client).ListResources)
	if err != nil {
		return err
	}
	templates, err := everyServer(ctx, p, host, (*Client).ListResourceTemplates)
	if err != nil {
		return err
	}
	if p.json {
		type resource struct {
			Server string `json:"server"`
			Resource
		}
		type template struct {
			Server string `json:"server"`
			ResourceTemplate
		}
		return p.print(map[string]any{
			"resources":         withServers(resources, func(server string, r Resource) resource { return resource{server, r} }),
			"resourceTemplates": withServers(templates, func(server string, t ResourceTemplate) template { return template{server, t} }),
		})
	}
	list, none := listing{p: p}, true
	for i, from := range resources {
		for _, r := range from.has {
			size := ""
			if r.Size > 0 {
				size = fmt.Sprintf(", %d bytes", r.Size)
			}
			if err := list.item(from.server, r.URI, strings.TrimPrefix(r.MIMEType+size, ", "), cmp.Or(r.Description, r.Title, r.Name)); err != nil {
				return err
			}
		}
		for _, t := range templates[i].has {
			if err := list.item(from.server, t.URITemplate, t.MIMEType, cmp.Or(t.Description, t.Title, t.Name)); err != nil {
				return err
			}
		}
		none = none && len(from.has)+len(templates[i].has) == 0
	}
	if none {
		p.note("%s no resources", p.one("the server has", "the servers have"))
	}
	return nil
}

// withServers is lists as one, for JSON: never nil.
func withServers[T, U any](lists []fromServer[T], with func(server string, v T) U) []U {
	all := []U{}
	for _, from := range lists {
		for _, v := range from.has {
			all = append(all, with(from.server, v))
		}
	}
	return all
}

// prompts lists the prompts with their arguments.
func (p *program) prompts(ctx context.Context, host *Host) error {
	prompts, err := everyServer(ctx, p, host, (*Client).ListPrompts)
	if err != nil {
		return err
	}
	type listed struct {
		Server string `json:"server"`
		Prompt
	}
	all := withServers(prompts, func(server string, prompt Prompt) listed { return listed{server, prompt} })
	if p.json {
		return p.print(all)
	}
	if len(all) == 0 {
		p.note("%s no prompts", p.one("the server has", "the servers have"))
	}
	list := listing{p: p}
	for _, prompt := range all {
		var names []string
		for _, a := range prompt.Arguments {
			if a.Required {
				names = append(names, a.Name)
			} else {
				names = append(names, a.Name+"?")
			}
		}
		if err := list.item(prompt.Server, prompt.Name, strings.Join(names, ", "), cmp.Or(prompt.Description, prompt.Title)); err != nil {
			return err
		}
	}
	return nil
}

// read prints a resource, whose contents can be several: as they are, unless somebody looks.
func (p *program) read(ctx context.Context, args []string) error {
	if len(args) != 1 || args[0] == "" {
		return usageError("read takes the URI of a resource")
	}
	return p.withHost(ctx, func(ctx context.Context, host *Host) error {
		server, uri, err := p.findResource(ctx, host, args[0])
		if err != nil {
			return err
		}
		client, err := host.Client(ctx, server)
		if err != nil {
			return err
		}
		contents, err := client.ReadResource(ctx, uri)
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

var uriScheme = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9+.-]*:`)

// findResource finds the server of a resource, which is written as SERVER:URI, or as its URI alone if only one server lists
// it, or has a template that begins as it does.
func (p *program) findResource(ctx context.Context, host *Host, text string) (server, uri string, err error) {
	for _, s := range p.servers {
		// What follows must be a URI again: a server may be called file.
		if uri, ok := strings.CutPrefix(text, s.Name+":"); ok && uriScheme.MatchString(uri) {
			return s.Name, uri, nil
		}
	}
	if len(p.servers) == 1 {
		return p.servers[0].Name, text, nil
	}
	resources, err := everyServer(ctx, p, host, (*Client).ListResources)
	if err != nil {
		return "", "", err
	}
	var uris, found []string
	for _, from := range resources {
		for _, r := range from.has {
			uris = append(uris, r.URI)
		}
		if slices.ContainsFunc(from.has, func(r Resource) bool { return r.URI == text }) {
			found = append(found, from.server)
		}
	}
	if len(found) == 0 {
		templates, err := everyServer(ctx, p, host, (*Client).ListResourceTemplates)
		if err != nil {
			return "", "", err
		}
		for _, from := range templates {
			if slices.ContainsFunc(from.has, func(t ResourceTemplate) bool {
				literal, _, _ := strings.Cut(t.URITemplate, "{")
				return literal != "" && strings.HasPrefix(text, literal)
			}) {
				found = append(found, from.server)
			}
		}
	}
	switch len(found) {
	case 0:
		return "", "", p.notThere("resource", text, uris, uris)
	case 1:
		return found[0], text, nil
	}
	return "", "", severalHave("resource", text, qualified(found, text))
}

// qualified is a name with each of the servers before it.
func qualified(servers []string, name string) []string {
	names := make([]string, len(servers))
	for i, server := range servers {
		names[i] = server + ":" + name
	}
	return names
}

// prompt fills in a prompt and prints its messages.
func (p *program) prompt(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return usageError("prompt takes a name and, if it has arguments, KEY=VALUE words")
	}
	arguments, err := promptArguments(args[1:])
	if err != nil {
		return err
	}
	return p.withHost(ctx, func(ctx context.Context, host *Host) error {
		result, err := p.getPrompt(ctx, host, args[0], arguments)
		if err != nil {
			return err
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

// promptArguments reads KEY=VALUE words.
func promptArguments(words []string) (map[string]string, error) {
	arguments := make(map[string]string)
	for _, word := range words {
		key, value, ok := strings.Cut(word, "=")
		if !ok || key == "" {
			return nil, usageError("%q is not of the form KEY=VALUE", word)
		}
		if _, ok := arguments[key]; ok {
			return nil, usageError("%s is given twice", key)
		}
		arguments[key] = value
	}
	return arguments, nil
}

// getPrompt fills in a prompt, which is written as SERVER:NAME, or as its name alone if only one server has it.
func (p *program) getPrompt(ctx context.Context, host *Host, name string, arguments map[string]string) (*PromptResult, error) {
	prompts, err := everyServer(ctx, p, host, (*Client).ListPrompts)
	if err != nil {
		return nil, err
	}
	var names, written, found []string
	var prompt Prompt
	for _, from := range prompts {
		for _, candidate := range from.has {
			whole := from.server + ":" + candidate.Name
			names, written = append(names, candidate.Name), append(written, p.one(candidate.Name, whole))
			switch name {
			case candidate.Name:
				found, prompt = append(found, from.server), candidate
			case whole:
				return p.fillPrompt(ctx, host, from.server, candidate, arguments)
			}
		}
	}
	switch len(found) {
	case 0:
		return nil, p.notThere("prompt", name, names, written)
	case 1:
		return p.fillPrompt(ctx, host, found[0], prompt, arguments)
	}
	return nil, severalHave("prompt", name, qualified(found, name))
}

func (p *program) fillPrompt(ctx context.Context, host *Host, server string, prompt Prompt, arguments map[string]string) (*PromptResult, error) {
	if err := checkPrompt(prompt, arguments); err != nil {
		return nil, err
	}
	client, err := host.Client(ctx, server)
	if err != nil {
		return nil, err
	}
	result, err := client.GetPrompt(ctx, prompt.Name, arguments)
	if err != nil {
		return nil, toolError(err)
	}
	return result, nil
}

// checkPrompt says what is wrong with a prompt's arguments.
func checkPrompt(prompt Prompt, arguments map[string]string) error {
	known := make(map[string]bool)
	var missing []string
	for _, a := range prompt.Arguments {
		known[a.Name] = true
		if _, given := arguments[a.Name]; a.Required && !given {
			missing = append(missing, a.Name+"=…")
		}
	}
	if len(missing) > 0 {
		return &exitError{exitUsage, fmt.Errorf("the prompt %s needs %s (see: mcpagent prompts)", prompt.Name, strings.Join(missing, " "))}
	}
	for _, key := range slices.Sorted(maps.Keys(arguments)) {
		if !known[key] {
			return &exitError{exitUsage, fmt.Errorf("the prompt %s has no argument %q (see: mcpagent prompts)", prompt.Name, key)}
		}
	}
	return nil
}

// notThere is the error for a name that no server has, with those that may have been meant: as they can be written, which is
// how the server has it, or with the server's name.
func (p *program) notThere(kind, name string, names, written []string) error {
	none := p.one("the server has no "+kind, "none of the servers has a "+kind)
	if len(names) == 0 {
		return &exitError{exitUsage, fmt.Errorf("%s %q, nor any other", none, name)}
	}
	has, all := p.one("it has", "they have"), written
	if near := closest(name, slices.Concat(names, written)); len(near) > 0 {
		has, all = "the nearest are", nil
		for _, other := range near {
			for i := range names {
				if names[i] == other || written[i] == other {
					all = append(all, written[i])
				}
			}
		}
	}
	var meant []string
	for _, other := range all {
		if !slices.Contains(meant, other) {
			meant = append(meant, other)
		}
	}
	return &exitError{exitUsage, fmt.Errorf("%s %q; %s: %s (see: mcpagent %ss)", none, name, has, cut(strings.Join(meant, ", "), 400), kind)}
}

// severalHave is the error for a name that several servers have.
func severalHave(kind, name string, typed []string) error {
	return &exitError{exitUsage, fmt.Errorf("several servers have a %s %q; say which: %s", kind, name, strings.Join(typed, ", "))}
}

// toolError gives an error of a server its exit status.
func toolError(err error) error { return &exitError{exitTool, err} }
