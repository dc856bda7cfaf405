// main_commands.go - the commands that need no model: what the servers have, and what this program can serve.
// SPDX-License-Identifier: 0BSD

package main

import (
	"cmp"
	"context"
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

// withHost runs a command with a host, whose servers it ends.
func (p *program) withHost(ctx context.Context, command func(*Host) error) error {
	host, done, err := p.host(ctx)
	if err != nil {
		return err
	}
	defer done()
	return command(host)
}

// onHost returns the command of that name, which lists something of all servers, or of one.
func (p *program) onHost(
	name string, list func(context.Context, *Host, ...string) error,
) func(context.Context, []string) error {
	return func(ctx context.Context, servers []string) error {
		if len(servers) > 1 {
			return usageError("%s takes at most the name of a server", name)
		}
		return p.withHost(ctx, func(host *Host) error { return list(ctx, host, servers...) })
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
	server, err := PlainJSON(e.server)
	return slices.Concat([]byte(`{"server":`), server, []byte(","), value[1:]), err
}

// show lists entries, by their full names if there are several servers.
func (p *program) show(kind string, entries []entry) error {
	if len(entries) == 0 {
		p.note("there are no %s", kind)
	}
	text, server := "", ""
	for _, e := range entries {
		if server != "" && e.server != server {
			text += "\n"
		}
		server = e.server
		about, _, _ := strings.Cut(strings.TrimSpace(e.about), "\n")
		text += p.shown(e) + e.detail + "\n" + indented(about, "    ")
	}
	return p.screen.List(text)
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
	return p.screen.Print(text)
}

// save writes data to the file of -o, and what comes later to others beside it, with numbers. It returns the name.
func (p *program) save(data []byte, _ string) (path string, err error) {
	path, p.saved = p.output, p.saved+1
	if ending := filepath.Ext(path); p.saved > 1 {
		path = fmt.Sprintf("%s-%d%s", strings.TrimSuffix(path, ending), p.saved, ending)
	}
	switch {
	case p.unsaved != nil:
		err = p.unsaved // the others would not be where they are expected
	case p.output == "-":
		path, err = "stdout", p.screen.Print(string(data))
	default:
		err = os.WriteFile(path, data, 0o666)
	}
	p.unsaved = cmp.Or(p.unsaved, err)
	return path, err
}

// indented returns the lines of a text, each with blanks before it; "" for a text without any.
func indented(text, blanks string) string {
	if text = strings.TrimSpace(text); text == "" {
		return ""
	}
	return blanks + strings.ReplaceAll(text, "\n", "\n"+blanks) + "\n"
}

// shown is the name of an entry for a user: with its server if there are several.
func (p *program) shown(e entry) string {
	if len(p.servers) > 1 {
		return e.server + ":" + e.name
	}
	return e.name
}

// list returns a function that lists the tools, resources or prompts of servers, or all there is to know of one tool.
func (p *program) list(kind string) func(ctx context.Context, host *Host, names ...string) error {
	return func(ctx context.Context, host *Host, names ...string) error {
		if kind == "tools" && len(names) > 0 && !slices.Contains(ServerNames(p.servers), names[0]) {
			return p.showTool(ctx, host, names[0])
		}
		all, err := p.entries(ctx, host, kind, names)
		switch {
		case err != nil:
			return err
		case !p.json:
			return p.show(kind, all)
		case kind != "resources":
			return p.printJSON(append([]entry{}, all...)) // never null
		}
		lists := map[string][]entry{"resources": {}, "resourceTemplates": {}}
		for _, e := range all {
			list := "resources"
			if _, ok := e.value.(ResourceTemplate); ok {
				list = "resourceTemplates"
			}
			lists[list] = append(lists[list], e)
		}
		return p.printJSON(lists)
	}
}

// entries returns the tools, resources or prompts of the servers of these names, or of all if there are none.
func (p *program) entries(ctx context.Context, host *Host, kind string, servers []string) ([]entry, error) {
	switch kind {
	case "tools":
		return p.toolEntries(ctx, host, servers)
	case "prompts":
		return p.everyServer(ctx, host, servers, promptEntries)
	}
	return p.everyServer(ctx, host, servers, resourceEntries)
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
	if err == nil {
		return all[i], nil
	}
	var unresolved *NameError
	if errors.As(err, &unresolved) && unresolved.Several == nil && len(all) > 0 {
		err = fmt.Errorf("%w; there are: %s", err, strings.Join(shown, ", "))
	}
	return entry{}, &exitError{exitUsage, err}
}

// everyServer asks the servers of these names, or all if there are none, at once. One that fails is reported, and the
// others go on; it is an error if none succeeds.
func (p *program) everyServer(ctx context.Context, host *Host, names []string,
	list func(context.Context, *Client) ([]entry, error)) (all []entry, err error) {
	if err := p.startServers(ctx, host, names...); err != nil {
		return nil, err
	}
	status := host.Status(names...)
	lists, limit := make([][]entry, len(status)), cmp.Or(p.start, 30*time.Second)
	var work sync.WaitGroup
	for i := range status {
		s := &status[i]
		if s.Err != nil && s.Err != ErrStarting {
			continue
		}
		work.Go(func() {
			client, err := host.Client(ctx, s.Name)
			if s.Err = err; err == nil { // it must not keep the others for as long as a call may take
				soon, cancel := context.WithTimeoutCause(ctx, limit, &TimeoutError{After: limit})
				defer cancel()
				lists[i], s.Err = list(soon, client)
			}
		})
	}
	work.Wait()
	answered := false
	for i, s := range status {
		for _, e := range lists[i] {
			e.server = s.Name
			all = append(all, e)
		}
		answered = answered || s.Err == nil
	}
	if !answered {
		return nil, p.explainCall(status[0].Err)
	}
	p.tellAbsent(status)
	return all, nil
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

// ifKnown drops the error of a server that does not know the method of a list.
func ifKnown(err error) error {
	var refusal *Error
	if errors.As(err, &refusal) && refusal.Code == CodeMethodNotFound {
		return nil
	}
	return err
}

// resourceEntries are the resources of a server, and its templates of more.
func resourceEntries(ctx context.Context, c *Client) (entries []entry, err error) {
	resources, err := c.ListResources(ctx)
	if err = ifKnown(err); err != nil {
		return nil, err
	}
	templates, err := c.ListResourceTemplates(ctx)
	if err = ifKnown(err); err != nil {
		return nil, err
	}
	add := func(uri, detail, about string, value any) {
		if detail != "" {
			detail = " (" + detail + ")"
		}
		entries = append(entries, entry{name: uri, detail: detail, about: about, value: value})
	}
	for _, r := range resources {
		detail := r.MIMEType
		if r.Size > 0 {
			detail = strings.TrimPrefix(fmt.Sprintf("%s, %d bytes", r.MIMEType, r.Size), ", ")
		}
		add(r.URI, detail, cmp.Or(r.Description, r.Title, r.Name), r)
	}
	for _, t := range templates {
		add(t.URITemplate, t.MIMEType, cmp.Or(t.Description, t.Title, t.Name), t)
	}
	return entries, nil
}

// read prints a resource, which can have several contents. A file gets them as they are.
func (p *program) read(ctx context.Context, args []string) error {
	if len(args) != 1 || args[0] == "" {
		return usageError("read takes the URI of a resource")
	}
	return p.withHost(ctx, func(host *Host) error {
		contents, err := p.readResource(ctx, host, args[0])
		if err != nil {
			return err
		}
		text := ""
		for i, c := range contents {
			switch {
			case p.output != "", c.Blob == nil: // a file gets the bytes
				text += c.Text
			case p.screen.Answers:
				text += ModelText(contentsResult(contents[i : i+1]))
			default:
				text += string(c.Blob)
			}
			if p.screen.Answers && p.output == "" && !strings.HasSuffix(text, "\n") {
				text += "\n"
			}
		}
		return p.give(contentsResult(contents), text, append([]ResourceContents{}, contents...))
	})
}

// serverReport is what servers prints of a server, with -json as it is.
type serverReport struct {
	Name    string `json:"name"`
	Start   string `json:"start,omitempty"` // its command line or URL
	Running bool   `json:"running"`
	State   string `json:"state"` // what it speaks, and how long it took to start; or why it does not run, and what to do
}

// listServers shows how the servers are. A chat does not wait for those that need long. Elsewhere it is an error if
// none is running.
func (p *program) listServers(ctx context.Context, host *Host, names ...string) error {
	limit := time.Hour
	if p.chatting {
		limit = glance
	}
	soon, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	_ = p.withLogins(soon, host, func() error { _, err := host.Tools(soon, names...); return err }) // see the status
	var reports []serverReport
	for _, s := range host.Status(names...) {
		r := serverReport{Name: s.Name, Running: s.Running, State: p.state(s)}
		for _, server := range p.servers {
			if server.Name == s.Name && server.Err == nil {
				r.Start = startLine(&server)
			}
		}
		reports = append(reports, r)
	}
	if reports == nil {
		return p.noServer(names[0])
	}
	for _, name := range p.disabled {
		if len(names) == 0 {
			reports = append(reports, serverReport{Name: name, State: "disabled"})
		}
	}
	text, running := "", p.chatting
	for _, r := range reports {
		text += Clip(r.Name+": "+r.State, maxShown) + "\n" + indented(r.Start, "    ")
		running = running || r.Running
	}
	if p.chatting {
		p.screen.Show(Look{}, strings.TrimSuffix(text, "\n"))
		return nil
	}
	if err := p.give(nil, text, reports); err != nil || running {
		return err
	}
	return exitWith(exitStart, "no server is running")
}

// state describes the state of a server.
func (p *program) state(s HostStatus) (text string) {
	if s.Err != nil {
		text = strings.TrimPrefix(p.aboutServer(s), "server "+s.Name+": ")
	}
	pause := time.Until(s.Retry).Round(time.Second)
	switch {
	case s.Err == nil:
		era := map[bool]string{true: "stateless", false: "handshake"}[s.Info.Stateless()]
		name := strings.TrimSpace(s.Info.Implementation.Name + " " + s.Info.Implementation.Version)
		text = fmt.Sprintf("%s, MCP %s (%s), %s, started in %s", name, s.Info.ProtocolVersion, era,
			Plural(s.Tools, "tool"), s.Took.Round(time.Millisecond))
	case s.Running || s.Err == ErrStarting || s.Err == ErrWaiting:
	case !p.chatting:
		text = "not running: " + text
	case s.Starting && pause <= 0:
		text = "not running: " + text + "; it is being started again"
	default:
		again := fmt.Sprintf("it is tried again in %s, or now with /reconnect %s", max(pause, 0), s.Name)
		text = "not running: " + text + "; " + again
	}
	if s.Restarts > 0 {
		text += ", restarted " + Plural(s.Restarts, "time")
	}
	return text
}

// contentsResult is the result of a tool that has resources embedded in it.
func contentsResult(contents []ResourceContents) *ToolResult {
	r := new(ToolResult)
	for i := range contents {
		r.Content = append(r.Content, ContentBlock{Type: "resource", Resource: &contents[i]})
	}
	return r
}

var uriScheme = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9+.-]*:`)

// readResource reads a resource, which is named by SERVER:URI, or by its URI alone if only one server lists it.
func (p *program) readResource(ctx context.Context, host *Host, name string) ([]ResourceContents, error) {
	server, uri := p.serverIn(name)
	if !uriScheme.MatchString(uri) { // a server may have the name of a scheme
		server, uri = "", name
	}
	if server == "" && len(p.servers) == 1 {
		server = p.servers[0].Name
	} else if server == "" {
		e, err := p.find(ctx, host, "resource", name)
		if err != nil {
			return nil, err
		}
		server = e.server
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
		return nil, &exitError{exitTool, p.explainCall(err)}
	}
	return contents, nil
}

// promptEntries are the prompts of a server.
func promptEntries(ctx context.Context, c *Client) (entries []entry, err error) {
	prompts, err := c.ListPrompts(ctx)
	for _, prompt := range prompts {
		var names []string
		for _, a := range prompt.Arguments {
			if !a.Required {
				a.Name += "?"
			}
			names = append(names, a.Name)
		}
		detail := ""
		if len(names) > 0 {
			detail = " (" + strings.Join(names, ", ") + ")"
		}
		about := cmp.Or(prompt.Description, prompt.Title)
		entries = append(entries, entry{name: prompt.Name, detail: detail, about: about, value: prompt})
	}
	return entries, ifKnown(err)
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
	return p.withHost(ctx, func(host *Host) error {
		result, err := p.getPrompt(ctx, host, args[0], arguments)
		if err != nil {
			return err
		}
		result.Messages = append([]PromptMessage{}, result.Messages...) // never null
		text := ""
		for _, m := range result.Messages {
			text += m.Role + ": " + ModelText(&ToolResult{Content: []ContentBlock{m.Content}}) + "\n"
		}
		return p.give(nil, text, result)
	})
}

// promptArguments reads KEY=VALUE words.
func promptArguments(words []string) (map[string]string, error) {
	given, err := pairs(words)
	arguments := make(map[string]string)
	for key, values := range given {
		if arguments[key] = values[0]; len(values) > 1 {
			return nil, usageError("%s is given twice", key)
		}
	}
	return arguments, err
}

// pairs reads KEY=VALUE words.
func pairs(words []string) (map[string][]string, error) {
	values := make(map[string][]string)
	for _, word := range words {
		key, value, ok := strings.Cut(word, "=")
		if !ok || key == "" {
			return nil, usageError("%q is not of the form KEY=VALUE", word)
		}
		values[key] = append(values[key], value)
	}
	return values, nil
}

// getPrompt fills in a prompt, which is named by SERVER:NAME, or by its name alone if only one server has it.
func (p *program) getPrompt(ctx context.Context, host *Host, name string,
	arguments map[string]string) (*PromptResult, error) {
	e, err := p.find(ctx, host, "prompt", name)
	if err != nil {
		return nil, err
	}
	client, err := host.Client(ctx, e.server)
	if err != nil {
		return nil, err
	}
	result, err := client.GetPrompt(ctx, e.name, arguments)
	if err != nil {
		return nil, &exitError{exitTool, p.explainCall(err)}
	}
	return result, nil
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
	library := SourceLibrary()
	switch len(args) {
	case 0:
	case 1:
		root, err := os.OpenRoot(args[0])
		if err != nil {
			return fmt.Errorf("open library: %w", err)
		}
		defer root.Close()
		library = NewLibrary(root.FS()) // no symbolic link leads out of the folder
		if os.Getenv("GOGC") == "" {
			debug.SetGCPercent(20) // or a large library takes twice the memory, for a tenth of the time
		}
	default:
		return usageError("serve takes one folder")
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
	served := make(chan error, 1)
	// A blocked read of a terminal cannot be interrupted, so an interrupt does not wait for it: the process ends.
	go func() { served <- library.Serve(context.Background(), NewLines(os.Stdin, os.Stdout)) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
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
