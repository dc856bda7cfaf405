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
	full   string // SERVER:NAME, the name that nothing else has
	alias  string // another name that nothing else has: a tool's function
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

// show lists entries, by their full names if there are several servers. servers are the names that were asked for, if
// there were any.
func (p *program) show(kind string, entries []entry, servers []string) error {
	if who := "the servers have"; len(entries) == 0 {
		if len(servers) > 0 {
			who = fmt.Sprintf("the server %s has", servers[0])
		} else if len(p.servers) == 1 {
			who = "the server has"
		}
		p.note("%s no %s", who, kind)
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
	return p.screen.Print(text)
}

// shown is the name of an entry for a user: with its server if there are several.
func (p *program) shown(e entry) string {
	if len(p.servers) > 1 {
		return e.full
	}
	return e.name
}

// resolve finds the entry that a name stands for: its alias or full name, or its own if no other entry has that.
func (p *program) resolve(kind, name string, entries []entry) (entry, error) {
	var own, full, shown []string
	for _, e := range entries {
		own, full, shown = append(own, e.name), append(full, e.full), append(shown, p.shown(e))
		if e.alias != "" && e.alias == name {
			return e, nil
		}
	}
	i, err := Resolve(kind, name, own, full)
	if err == nil {
		return entries[i], nil
	}
	var unresolved *NameError
	if errors.As(err, &unresolved) && unresolved.Several == nil && len(entries) > 0 {
		return entry{}, exitWith(exitUsage, "%w; there are: %s", err, strings.Join(shown, ", "))
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
	status := statusOf(host, names)
	lists := make([][]entry, len(status))
	var work sync.WaitGroup
	for i := range status {
		s := &status[i]
		if s.Err == nil || s.Err == ErrStarting {
			work.Go(func() { lists[i], s.Err = p.askServer(ctx, host, s.Name, list) })
		}
	}
	work.Wait()
	answered := false
	for i, s := range status {
		for _, e := range lists[i] {
			e.server, e.full = s.Name, s.Name+":"+e.name
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

// askServer asks one server. One that does not answer must not keep the others for as long as a call may take.
func (p *program) askServer(ctx context.Context, host *Host, server string,
	list func(context.Context, *Client) ([]entry, error)) ([]entry, error) {
	client, err := host.Client(ctx, server)
	if err != nil {
		return nil, err
	}
	limit := cmp.Or(p.start, 30*time.Second)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, &TimeoutError{After: limit})
	defer cancel()
	return list(ctx, client)
}

// serverIn splits a name of the form SERVER:NAME; server is "" if it does not begin with one.
func (p *program) serverIn(name string) (server, rest string) {
	for _, s := range p.servers {
		if rest, ok := strings.CutPrefix(name, s.Name+":"); ok {
			return s.Name, rest
		}
	}
	return "", name
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

func (p *program) listResources(ctx context.Context, host *Host, servers ...string) error {
	all, err := p.everyServer(ctx, host, servers, resourceEntries)
	if err != nil {
		return err
	}
	if !p.json {
		return p.show("resources", all, servers)
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
		if p.output != "" {
			text := ""
			for _, c := range contents {
				text += c.Text
			}
			if text, err = p.saveResult(contentsResult(contents), text); err != nil || text == "" && !p.json {
				return err
			}
		}
		if p.json {
			return p.printJSON(append([]ResourceContents{}, contents...))
		}
		for i, c := range contents {
			text := c.Text + string(c.Blob) // one of them is empty
			if c.Blob != nil && (p.screen.Answers || p.output != "") {
				text = contentsText(contents[i : i+1])
			}
			if p.screen.Answers {
				text = strings.TrimSuffix(text, "\n") + "\n"
			}
			if err := p.screen.Print(text); err != nil {
				return err
			}
		}
		return nil
	})
}

// serverReport is what servers -json prints of a server.
type serverReport struct {
	Name      string          `json:"name"`
	Start     string          `json:"start,omitempty"` // its command line or URL
	Disabled  bool            `json:"disabled,omitempty"`
	Running   bool            `json:"running"`
	Error     string          `json:"error,omitempty"` // with what to do about it
	Info      *Implementation `json:"server,omitempty"`
	Protocol  string          `json:"protocol,omitempty"`
	Seconds   float64         `json:"seconds"` // that the start took
	Tools     int             `json:"tools"`
	Prompts   int             `json:"prompts"`
	Resources int             `json:"resources"` // with templates of more
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
	status := statusOf(host, names)
	if len(status) == 0 {
		return p.noServer(names[0])
	}
	reports, lines := make([]serverReport, len(status)), make([]string, len(status))
	var work sync.WaitGroup
	counting, end := context.WithTimeout(ctx, limit)
	defer end()
	for i, s := range status {
		work.Go(func() { reports[i], lines[i] = p.aboutStatus(counting, host, s) })
	}
	work.Wait()
	for _, name := range p.disabled {
		if len(names) == 0 {
			reports, lines = append(reports, serverReport{Name: name, Disabled: true}), append(lines, name+": disabled\n")
		}
	}
	text, err := strings.Join(lines, ""), error(nil)
	switch {
	case p.chatting:
		p.screen.Show(Look{}, strings.TrimSuffix(text, "\n"))
	case p.json:
		err = p.printJSON(reports)
	default:
		err = p.screen.Print(text)
	}
	if !p.chatting && !slices.ContainsFunc(status, func(s HostStatus) bool { return s.Running }) {
		err = exitWith(exitStart, "no server is running")
	}
	return err
}

// aboutStatus describes a server.
func (p *program) aboutStatus(ctx context.Context, host *Host, s HostStatus) (r serverReport, text string) {
	r = serverReport{Name: s.Name, Running: s.Running, Tools: s.Tools, Seconds: s.Took.Seconds()}
	for _, server := range p.servers {
		if server.Name == s.Name && server.Err == nil {
			r.Start = startLine(&server)
		}
	}
	if s.Err != nil {
		r.Error = strings.TrimPrefix(p.aboutServer(s), "server "+s.Name+": ")
	}
	if s.Running {
		r.Info, r.Protocol = &s.Info.Implementation, s.Info.ProtocolVersion
		prompts, _ := p.askServer(ctx, host, s.Name, promptEntries) // none of a server that cannot list them
		resources, _ := p.askServer(ctx, host, s.Name, resourceEntries)
		r.Prompts, r.Resources = len(prompts), len(resources)
	}
	pause := time.Until(s.Retry).Round(time.Second)
	switch {
	case s.Err == nil:
		era := map[bool]string{true: "stateless", false: "handshake"}[s.Info.Stateless()]
		text = fmt.Sprintf("%s, MCP %s (%s), %s, %s, %s, started in %s", strings.TrimSpace(r.Info.Name+" "+r.Info.Version),
			r.Protocol, era, Plural(r.Tools, "tool"), Plural(r.Prompts, "prompt"), Plural(r.Resources, "resource"),
			s.Took.Round(time.Millisecond))
	case s.Running || s.Err == ErrStarting || s.Err == ErrWaiting:
		text = r.Error
	case !p.chatting:
		text = "not running: " + r.Error
	case s.Starting && pause <= 0:
		text = "not running: " + r.Error + "; it is being started again"
	default:
		text = fmt.Sprintf("not running: %s; it is tried again in %s, or now with /reconnect %s",
			r.Error, max(pause, 0), s.Name)
	}
	if s.Restarts > 0 {
		text += ", restarted " + Plural(s.Restarts, "time")
	}
	return r, Clip(s.Name+": "+text, maxShown) + "\n" + indented(r.Start, "    ")
}

// contentsText is what a model reads of resources.
func contentsText(contents []ResourceContents) string { return ModelText(contentsResult(contents)) }

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
		all, err := p.everyServer(ctx, host, nil, resourceEntries)
		if err != nil {
			return nil, err
		}
		e, err := p.resolve("resource", name, all)
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

func (p *program) listPrompts(ctx context.Context, host *Host, servers ...string) error {
	all, err := p.everyServer(ctx, host, servers, promptEntries)
	if err != nil {
		return err
	}
	if p.json {
		return p.printJSON(append([]entry{}, all...))
	}
	return p.show("prompts", all, servers)
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
		if p.json {
			result.Messages = append([]PromptMessage{}, result.Messages...)
			return p.printJSON(result)
		}
		text := ""
		for _, m := range result.Messages {
			text += m.Role + ": " + ModelText(&ToolResult{Content: []ContentBlock{m.Content}}) + "\n"
		}
		return p.screen.Print(text)
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

// getPrompt fills in a prompt, which is named by SERVER:NAME, or by its name alone if only one server has it.
func (p *program) getPrompt(ctx context.Context, host *Host, name string,
	arguments map[string]string) (*PromptResult, error) {
	var servers []string
	if server, _ := p.serverIn(name); server != "" {
		servers = []string{server}
	}
	all, err := p.everyServer(ctx, host, servers, promptEntries)
	if err != nil {
		return nil, err
	}
	e, err := p.resolve("prompt", name, all)
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
