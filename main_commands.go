// main_commands.go - the commands that need no model: what the servers have, and what this program can serve.
// SPDX-License-Identifier: 0BSD

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"
)

// onHost returns a command that gets a host, whose servers it ends.
func (p *program) onHost(
	command func(context.Context, *Host, ...string) error,
) func(context.Context, []string) error {
	return func(ctx context.Context, args []string) error {
		host, done, err := p.host(ctx)
		if err != nil {
			return err
		}
		defer done()
		return command(ctx, host, args...)
	}
}

// entry is something that a server has: a tool, a prompt, a resource or a template of resources.
type entry struct {
	server string
	name   string // the server's own, which other servers may have, too
	detail string // what stands after the name in a list
	about  string // a description, of which a list has the first line
	value  any    // the thing itself
}

// MarshalJSON puts the server before the members of the value.
func (e entry) MarshalJSON() ([]byte, error) {
	value, err := PlainJSON(e.value)
	if err != nil {
		return nil, err
	}
	return joinMembers(appendString([]byte(`{"server":`), e.server), value[1:]), nil
}

// listedTool is a tool as tools -json prints it.
type listedTool struct {
	Function string `json:"function"`           // what the model calls it
	Excluded bool   `json:"excluded,omitempty"` // the model is not offered it
	Tool
}

// list returns a function that lists the tools, resources or prompts of servers, or shows all there is to know of one
// tool.
func (p *program) list(kind string) func(ctx context.Context, host *Host, names ...string) error {
	return func(ctx context.Context, host *Host, names ...string) error {
		if kind == "tools" && len(names) == 1 && !slices.Contains(ServerNames(p.servers), names[0]) {
			return p.showTool(ctx, host, names[0])
		}
		all, err := p.entries(ctx, host, kind, names)
		if err != nil {
			return err
		}
		if p.json {
			lists := map[bool][]entry{false: {}, true: {}} // never null
			for _, e := range all {
				_, isTemplate := e.value.(ResourceTemplate)
				lists[isTemplate] = append(lists[isTemplate], e)
			}
			if kind != "resources" {
				return p.printJSON(lists[false])
			}
			return p.printJSON(map[string]any{"resources": lists[false], "resourceTemplates": lists[true]})
		}
		if len(all) == 0 {
			p.note("there are no %s", kind)
		}
		text := ""
		for i, e := range all {
			if i > 0 && e.server != all[i-1].server {
				text += "\n"
			}
			about, _, _ := strings.Cut(strings.TrimSpace(e.about), "\n")
			text += p.shown(e) + e.detail + "\n" + Indent(about, "    ")
		}
		return p.screen.Print(Look{}, text)
	}
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
	arguments := ToolSchema(&tool.Tool).Describe("  ")
	return p.screen.Print(Look{}, p.shown(e)+e.detail+"\n"+Indent(e.about, "    ")+arguments)
}

// shown is the name of an entry for a user: with its server if there are several.
func (p *program) shown(e entry) string {
	if len(p.servers) > 1 {
		return e.server + ":" + e.name
	}
	return e.name
}

// entries asks the servers of these names, or all if there are none, at once for their tools, resources or prompts.
// One that fails is reported, and the others go on; it is an error if none succeeds.
func (p *program) entries(ctx context.Context, host *Host, kind string, names []string) ([]entry, error) {
	if err := p.startServers(ctx, host, names...); err != nil {
		return nil, err
	}
	status := host.Status(names...)
	lists := make([][]entry, len(status))
	var work sync.WaitGroup
	for i := range status {
		if s := &status[i]; s.Err == nil || isStarting(*s) || s.Running && s.Err != ErrWaiting {
			work.Go(func() { lists[i], s.Err = p.entriesOf(ctx, host, kind, s.Name) })
		}
	}
	work.Wait()
	failed := slices.DeleteFunc(status, func(s HostStatus) bool { return s.Err == nil })
	if len(failed) == len(lists) {
		text := p.about(failed[0])
		if len(failed) > 1 {
			text = "server " + failed[0].Name + ": " + text
		}
		return nil, errors.New(text)
	}
	for _, s := range failed {
		if s.Running && kind != "tools" { // which is no news of its state
			p.screen.Show(Look{Max: maxShown}, "server "+s.Name+": "+p.about(s))
		} else {
			p.tell([]HostStatus{s})
		}
	}
	return slices.Concat(lists...), nil
}

// entriesOf asks one server.
func (p *program) entriesOf(ctx context.Context, host *Host, kind, server string) (entries []entry, err error) {
	client, err := host.Client(ctx, server)
	if err != nil {
		return nil, err
	}
	limit := cmp.Or(p.start, 30*time.Second) // it must not keep the others for as long as a call may take
	soon, cancel := context.WithTimeoutCause(ctx, limit, &TimeoutError{After: limit})
	defer cancel()
	switch kind {
	case "tools": // for which the host has limits
		var tools []HostTool
		err = p.withLogins(ctx, host, func() (err error) { tools, err = host.Tools(ctx, server); return err })
		for _, t := range tools {
			entries = append(entries, p.toolEntry(&t))
		}
		return entries, err
	case "prompts":
		prompts, err := client.ListPrompts(soon)
		for _, prompt := range prompts {
			var names []string
			for _, a := range prompt.Arguments {
				if !a.Required {
					a.Name += "?"
				}
				names = append(names, a.Name)
			}
			about := cmp.Or(prompt.Description, prompt.Title)
			entries = append(entries, entry{server, prompt.Name, inBrackets(strings.Join(names, ", ")), about, prompt})
		}
		return entries, ifKnown(err)
	}
	resources, err := client.ListResources(soon)
	for _, r := range resources {
		about := cmp.Or(r.Description, r.Title, r.Name)
		entries = append(entries, entry{server, r.URI, inBrackets(r.MIMEType), about, r})
	}
	templates, failed := client.ListResourceTemplates(soon)
	for _, t := range templates {
		about := cmp.Or(t.Description, t.Title, t.Name)
		entries = append(entries, entry{server, t.URITemplate, inBrackets(t.MIMEType), about, t})
	}
	return entries, cmp.Or(ifKnown(err), ifKnown(failed))
}

// inBrackets returns what stands after a name in a list.
func inBrackets(text string) string {
	if text == "" {
		return ""
	}
	return " (" + text + ")"
}

// ifKnown drops the error of a server that does not know the method of a list.
func ifKnown(err error) error {
	var refusal *Error
	if errors.As(err, &refusal) && refusal.Code == CodeMethodNotFound {
		return nil
	}
	return err
}

func (p *program) toolEntry(t *HostTool) entry {
	excluded := t.Unfit != nil || t.Tool.TaskOnly() || slices.ContainsFunc(p.servers, func(s Server) bool {
		return s.Name == t.Server && !s.Allows(t.Tool.Name)
	})
	s := ToolSchema(&t.Tool)
	names := s.Names()
	for i := len(s.Required); i < len(names); i++ {
		names[i] += "?"
	}
	detail := "(" + strings.Join(names, ", ") + ")"
	if excluded {
		detail += " [not for the model]"
	}
	about := cmp.Or(t.Tool.Description, t.Tool.Title)
	return entry{t.Server, t.Tool.Name, detail, about, listedTool{t.Function, excluded, t.Tool}}
}

// find finds a tool, resource or prompt: by SERVER:NAME, or by its own name if no other has that, or a tool by its
// function's.
func (p *program) find(ctx context.Context, host *Host, kind, name string) (entry, error) {
	var servers []string
	switch server, _ := p.serverIn(name); {
	case kind == "resource": // which can begin with a scheme that a server has the name of
	case server != "":
		servers = []string{server}
	case kind == "tool":
		servers = host.Owner(name)
	}
	all, err := p.entries(ctx, host, kind+"s", servers)
	if err != nil {
		return entry{}, err
	}
	var own, full, shown []string
	for _, e := range all {
		own, full, shown = append(own, e.name), append(full, e.server+":"+e.name), append(shown, p.shown(e))
		if tool, ok := e.value.(listedTool); ok && tool.Function == name {
			return e, nil
		}
	}
	i, err := Resolve(kind, name, own, full)
	switch {
	case err == nil:
		return all[i], nil
	case len(all) > 0 && !slices.Contains(own, name):
		err = fmt.Errorf("%w; there are: %s", err, strings.Join(shown, ", "))
	}
	return entry{}, &exitError{exitUsage, err}
}

// serverIn splits a name of the form SERVER:NAME; server is "" if it does not begin with one.
func (p *program) serverIn(name string) (server, rest string) {
	rest = name
	for _, s := range p.servers {
		if after, ok := strings.CutPrefix(name, s.Name+":"); ok && len(after) < len(rest) { // of several the longest
			server, rest = s.Name, after
		}
	}
	return server, rest
}

// call runs one tool.
func (p *program) call(ctx context.Context, host *Host, args ...string) error {
	if len(args) == 0 {
		return usageError("call takes a tool and its arguments: KEY=VALUE words, a JSON object, @FILE, or - for stdin")
	}
	name := args[0]
	arguments, words, err := p.arguments(ctx, args[1:])
	if err != nil {
		return fmt.Errorf("the arguments of %s: %w", name, err)
	}
	e, err := p.find(ctx, host, "tool", name)
	if err != nil {
		return err
	}
	tool := e.value.(listedTool)
	if tool.TaskOnly() {
		return exitWith(exitUsage, "the tool %s runs only as a task, which this client does not support", name)
	}
	if arguments == nil {
		if arguments, err = ToolSchema(&tool.Tool).Object(words); err != nil {
			return exitWith(exitUsage, "call %s%s: %w (see: mcpagent tools %[1]s)", name, e.detail, err)
		}
	}
	view := p.newView(host)
	view.Begin("")
	result, err := host.CallTool(ctx, tool.Function, arguments, view.Progress(ToolCall{Name: name}))
	view.End()
	if err != nil {
		return &exitError{exitTool, p.explain(err)}
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

// arguments reads those of a tool: the text of a JSON object, which goes to the tool as it is, or KEY=VALUE words,
// which its schema gives types to.
func (p *program) arguments(ctx context.Context, args []string) (json.RawMessage, map[string]string, error) {
	if len(args) != 1 || strings.IndexAny(strings.TrimSpace(args[0]), "{@-") != 0 {
		words, err := pairs(args)
		return nil, words, err
	}
	text, err := p.readArgument(ctx, args[0])
	if err != nil {
		return nil, nil, err
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &members); err != nil || members == nil {
		return nil, nil, usageError("not one JSON object, such as '{\"query\": \"text\"}': %s", Clip(text, 200))
	}
	return json.RawMessage(text), nil, nil
}

// pairs reads KEY=VALUE words.
func pairs(words []string) (map[string]string, error) {
	values := make(map[string]string)
	for _, word := range words {
		key, value, ok := strings.Cut(word, "=")
		if _, given := values[key]; given {
			return nil, usageError("%s is given twice", key)
		}
		if values[key] = value; !ok || key == "" {
			return nil, usageError("%q is not of the form KEY=VALUE", word)
		}
	}
	return values, nil
}

// give prints what a command gives: a text, or with -json the value. With -o, the images and other bytes of a result
// go to files, or else its text does.
func (p *program) give(r *ToolResult, text string, value any) error {
	if p.output != "" && !r.IsError {
		lines := ResultFiles(r, p.save)
		for _, line := range lines {
			p.note("%s", line)
		}
		if len(lines) == 0 {
			_, _ = p.save([]byte(text), "")
		}
		if p.unsaved != nil {
			return p.unsaved
		}
		if len(lines) == 0 || p.output == "-" {
			text = ""
		}
	}
	if p.json {
		return p.printJSON(value)
	}
	return p.screen.Print(Look{Exact: true}, text)
}

// save writes data to the file of -o, and what comes later to others beside it, with numbers. It returns the name.
func (p *program) save(data []byte, _ string) (path string, err error) {
	path, p.saved = p.output, p.saved+1
	if ending := filepath.Ext(path); p.saved > 1 {
		path = fmt.Sprintf("%s-%d%s", strings.TrimSuffix(path, ending), p.saved, ending)
	}
	if p.output == "-" {
		path, err = "stdout", p.screen.Print(Look{Exact: true}, string(data))
	} else {
		err = os.WriteFile(path, data, 0o666)
	}
	p.unsaved = cmp.Or(p.unsaved, err)
	return path, err
}

// read prints a resource, which can have several contents. A file gets them as they are.
func (p *program) read(ctx context.Context, host *Host, args ...string) error {
	if len(args) != 1 || args[0] == "" {
		return usageError("read takes the URI of a resource")
	}
	result, err := p.readResource(ctx, host, args[0])
	if err != nil {
		return err
	}
	text, contents := "", []*ResourceContents{} // never null
	for _, block := range result.Content {
		c := block.Resource
		contents = append(contents, c)
		switch {
		case p.output != "", c.Blob == nil: // a file gets the bytes
			text += c.Text
		case p.screen.Answers:
			text += ResourceText(c)
		default:
			text += string(c.Blob)
		}
		if p.screen.Answers && p.output == "" && !strings.HasSuffix(text, "\n") {
			text += "\n"
		}
	}
	return p.give(result, text, contents)
}

var uriScheme = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9+.-]*:`)

// readResource reads a resource, which is named by SERVER:URI, or by its URI alone if only one server lists it. Its
// contents are those of a tool's result.
func (p *program) readResource(ctx context.Context, host *Host, name string) (*ToolResult, error) {
	server, uri := p.serverIn(name)
	switch {
	case server != "" && uriScheme.MatchString(uri): // else the server has the name of a scheme
	case len(p.servers) == 1:
		server, uri = p.servers[0].Name, name
	default:
		e, err := p.find(ctx, host, "resource", name)
		if err != nil {
			return nil, err
		}
		server, uri = e.server, e.name
	}
	if err := p.startServers(ctx, host, server); err != nil {
		return nil, err
	}
	client, err := host.Client(ctx, server)
	if err != nil {
		return nil, err
	}
	contents, err := client.ReadResource(ctx, uri)
	if err != nil {
		return nil, &exitError{exitTool, p.explain(err)}
	}
	result := new(ToolResult)
	for i := range contents {
		result.Content = append(result.Content, ContentBlock{Type: "resource", Resource: &contents[i]})
	}
	return result, nil
}

// prompt fills in a prompt and prints its messages.
func (p *program) prompt(ctx context.Context, host *Host, args ...string) error {
	if len(args) == 0 {
		return usageError("prompt takes a name and, if it has arguments, KEY=VALUE words")
	}
	result, err := p.getPrompt(ctx, host, args)
	if err != nil {
		return err
	}
	result.Messages = append([]PromptMessage{}, result.Messages...) // never null
	text := ""
	for _, m := range result.Messages {
		text += m.Role + ": " + ModelText(&ToolResult{Content: []ContentBlock{m.Content}}) + "\n"
	}
	return p.give(nil, text, result)
}

// getPrompt fills in a prompt with KEY=VALUE words. The first word names it: by SERVER:NAME, or by its name alone if
// only one server has that.
func (p *program) getPrompt(ctx context.Context, host *Host, words []string) (*PromptResult, error) {
	arguments, err := pairs(words[1:])
	if err != nil {
		return nil, err
	}
	e, err := p.find(ctx, host, "prompt", words[0])
	if err != nil {
		return nil, err
	}
	client, err := host.Client(ctx, e.server)
	if err != nil {
		return nil, err
	}
	result, err := client.GetPrompt(ctx, e.name, arguments)
	if err != nil {
		return nil, &exitError{exitTool, p.explain(err)}
	}
	return result, nil
}

// listServers shows how the servers are. A chat does not wait for those that need long. Elsewhere it is an error if
// none is running.
func (p *program) listServers(ctx context.Context, host *Host, names ...string) error {
	if err := p.known(names...); err != nil {
		return err
	}
	limit := map[bool]time.Duration{true: glance, false: time.Hour}[p.chatting]
	soon, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	_ = p.withLogins(soon, host, func() error { _, err := host.Tools(soon, names...); return err }) // see the status
	list, text, running := []any{}, "", p.chatting
	add := func(name, start, state string, isRunning bool) {
		list = append(list, map[string]any{"name": name, "start": start, "state": state, "running": isRunning})
		text += Clip(name+": "+state, maxShown) + "\n" + Indent(start, "    ")
		running = running || isRunning
	}
	for i, s := range host.Status() {
		start := ""
		if p.servers[i].Err == nil {
			start = startLine(&p.servers[i])
		}
		if len(names) == 0 || slices.Contains(names, s.Name) {
			add(s.Name, start, p.state(s), s.Running)
		}
	}
	for _, name := range p.disabled {
		if len(names) == 0 {
			add(name, "", "disabled", false)
		}
	}
	if p.chatting {
		p.screen.Show(Look{}, strings.TrimSuffix(text, "\n"))
		return nil
	}
	if err := p.give(nil, text, list); err != nil || running {
		return err
	}
	return exitWith(exitStart, "no server is running")
}

// state describes the state of a server.
func (p *program) state(s HostStatus) string {
	if s.Err == nil {
		era := map[bool]string{true: "stateless", false: "handshake"}[s.Info.Stateless()]
		name := strings.TrimSpace(s.Info.Implementation.Name + " " + s.Info.Implementation.Version)
		text := fmt.Sprintf("%s, MCP %s (%s), %s, started in %s", name, s.Info.ProtocolVersion, era,
			Plural(s.Tools, "tool"), s.Took.Round(time.Millisecond))
		if s.Restarts > 0 {
			text += ", restarted " + Plural(s.Restarts, "time")
		}
		return text
	}
	text := p.about(s)
	if s.Running || isStarting(s) || s.Err == ErrWaiting {
		return text
	}
	if p.chatting {
		text += "; it is tried again with each question, or now with /reconnect " + s.Name
	}
	return "not running: " + text
}

// listenAt reads the address of -http. One without a host is on this machine alone.
func (p *program) listenAt(address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil || port == "" {
		return errors.New("not an address such as :8080 or 127.0.0.1:8080")
	}
	p.http = net.JoinHostPort(cmp.Or(host, "127.0.0.1"), port)
	return nil
}

// serve is the built-in server, on stdin and stdout or over HTTP.
func (p *program) serve(ctx context.Context, args []string) error {
	if len(args) > 1 {
		return usageError("serve takes one folder")
	}
	library := SourceLibrary()
	if len(args) == 1 {
		root, err := os.OpenRoot(args[0])
		if err != nil {
			return fmt.Errorf("open library: %w", err)
		}
		defer root.Close()
		library = NewLibrary(root.FS()) // no symbolic link leads out of the folder
		if os.Getenv("GOGC") == "" {
			debug.SetGCPercent(20) // or a large library takes twice the memory, for a tenth of the time
		}
	}
	library.Version = version
	library.MaxFile, library.MaxTotal, library.MaxFiles = int64(p.maxFile)<<20, int64(p.maxFile)<<27, p.maxFile*10_000
	library.OnIndexed = func(summary string) { p.screen.Show(Look{}, summary) }
	if p.http != "" {
		return p.serveHTTP(ctx, library)
	}
	if p.terminal.Interactive() {
		p.screen.Show(Look{}, "an MCP server on stdin and stdout: one JSON-RPC message a line, Ctrl-D ends it")
	}
	return whileReading(ctx, func() error { return library.Serve(context.Background(), NewLines(os.Stdin, os.Stdout)) })
}

func (p *program) serveHTTP(ctx context.Context, library *Library) error {
	listener, err := net.Listen("tcp", p.http)
	if err != nil {
		return fmt.Errorf("serve -http: %w", err)
	}
	host, _, _ := net.SplitHostPort(p.http)
	_, port, _ := net.SplitHostPort(listener.Addr().String()) // another one if it was 0
	address := net.JoinHostPort(host, port)
	p.screen.Show(Look{}, fmt.Sprintf("an MCP server at http://%s/mcp; Ctrl-C ends it", address))
	return NewLibraryHTTP(library, host).Serve(ctx, listener)
}
