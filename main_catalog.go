// main_catalog.go - what the servers have: tools, prompts and resources, by their names.
// SPDX-License-Identifier: 0BSD

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// catalog reads what the servers of a run have, for commands and for the chat. It keeps nothing:
// the host keeps the lists of tools, and a client keeps the lists whose changes its server tells.
type catalog struct {
	output  *output
	config  *configuration
	servers *servers
}

// entry is one line of a list: a tool, a prompt, a resource or a template of resources of a server.
type entry struct {
	server string
	name   string // the server's own: other servers may have something of this name, too
	detail string // stands after the name in a list
	about  string // a description, of which a list has the first line
	value  any    // a listedTool, Prompt, Resource or ResourceTemplate
}

// MarshalJSON puts the server before the members of the value.
func (e entry) MarshalJSON() ([]byte, error) {
	value, err := plainJSON(e.value)
	if err != nil {
		return nil, err
	}
	server := appendString([]byte(`{"server":`), e.server)
	return joinMembers(server, value[1:]), nil
}

// listedTool is a tool as tools -json prints it.
type listedTool struct {
	Function string `json:"function"`           // the model's name for it
	Excluded bool   `json:"excluded,omitempty"` // the model is not offered it
	Tool
}

// shown returns the name of an entry for a user: with its server if there are several servers, and
// "" for one that the server gave no name.
func (c *catalog) shown(e entry) string {
	name := cmp.Or(OneName(e.name), `""`)
	if c.config.hasSeveral() {
		return OneName(e.server) + ":" + name
	}
	return name
}

// entries asks several servers at the same time for their tools, prompts or resources: the servers
// of these names, or all servers if no name is given. A server that fails is reported, and the
// others go on. It is an error if no server succeeds.
func (c *catalog) entries(ctx context.Context, kind string, names []string) ([]entry, error) {
	if err := c.servers.start(ctx, names...); err != nil {
		return nil, err
	}
	status := c.servers.host.Status(names...)
	lists := make([][]entry, len(status))
	var work sync.WaitGroup
	for i := range status {
		s := &status[i]
		canAnswer := s.Err == nil || isStarting(*s) || s.Running
		if canAnswer {
			work.Go(func() {
				s.Err = c.servers.afterLogin(ctx, s.Name, "the list of "+kind, func() (err error) {
					lists[i], err = c.entriesOf(ctx, kind, s.Name)
					return err
				})
			})
		}
	}
	work.Wait()
	// Each goroutine wrote the error of its own server into its status.
	failed := slices.DeleteFunc(status, func(s HostStatus) bool { return s.Err == nil })
	if len(failed) == len(lists) {
		text := c.servers.reason(failed[0])
		if len(failed) > 1 {
			text = "server " + OneName(failed[0].Name) + ": " + text
		}
		return nil, errors.New(text)
	}
	for _, s := range failed {
		// A server that cannot list its tools is of no use to the model. This is a state of the
		// server, and the user is told a state once. A running server that cannot list its prompts
		// or resources works otherwise, so each such list says it again.
		isStateOfServer := !s.Running || kind == "tools"
		if isStateOfServer {
			c.servers.tell([]HostStatus{s})
		} else {
			c.output.warn("server %s: %s", OneName(s.Name), c.servers.reason(s))
		}
	}
	return slices.Concat(lists...), nil
}

// entriesOf asks one server. The other servers' lists wait for this one, so it gets the time of a
// start, and not the much longer time of a call. The host itself bounds the list of tools.
func (c *catalog) entriesOf(ctx context.Context, kind, server string) ([]entry, error) {
	client, err := c.servers.host.Client(ctx, server)
	if err != nil {
		return nil, err
	}
	limit := cmp.Or(c.servers.settings.startTimeout, 30*time.Second)
	soon, cancel := WithLimit(ctx, limit, &TimeoutError{After: limit})
	defer cancel()
	switch kind {
	case "tools":
		return c.toolsOf(ctx, server)
	case "prompts":
		return promptsOf(soon, client, server)
	default:
		return resourcesOf(soon, client, server)
	}
}

// toolsOf lists the tools of a server. The tools that came before an error are returned with the
// error, as in the other lists.
func (c *catalog) toolsOf(ctx context.Context, server string) ([]entry, error) {
	tools, err := c.servers.host.Tools(ctx, server)
	var entries []entry
	for _, t := range tools {
		entries = append(entries, c.toolEntry(&t))
	}
	return entries, err
}

// toolEntry describes a tool by its arguments, each with its type. An optional argument has a
// question mark.
func (c *catalog) toolEntry(t *HostTool) entry {
	isHidden := func(s *Server) bool { return !s.Allows(t.Tool.Name) }
	isExcluded := t.Unfit != nil || c.config.has(t.Server, isHidden)
	schema := ToolSchema(&t.Tool)
	var names []string
	for i, name := range schema.Names() {
		shown := OneName(name)
		if i >= len(schema.Required) {
			shown += "?"
		}
		names = append(names, shown+": "+schema.Kind(name))
	}
	detail := "(" + strings.Join(names, ", ") + ")"
	if isExcluded {
		detail += " [not for the model]"
	}
	return entry{
		server: t.Server,
		name:   t.Tool.Name,
		detail: detail,
		about:  cmp.Or(t.Tool.Description, t.Tool.Title),
		value:  listedTool{t.Function, isExcluded, t.Tool},
	}
}

// promptsOf lists the prompts of a server with their arguments. An optional argument has a question
// mark.
func promptsOf(ctx context.Context, client *Client, server string) ([]entry, error) {
	prompts, err := client.ListPrompts(ctx)
	var entries []entry
	for _, p := range prompts {
		var names []string
		for _, a := range p.Arguments {
			name := OneName(a.Name)
			if !a.Required {
				name += "?"
			}
			names = append(names, name)
		}
		detail := inBrackets(strings.Join(names, ", "))
		about := cmp.Or(p.Description, p.Title)
		entries = append(entries, entry{server, p.Name, detail, about, p})
	}
	return entries, unlessUnknown(err)
}

// resourcesOf lists the resources of a server, and the templates, from which a user can make the
// URIs of more resources.
func resourcesOf(ctx context.Context, client *Client, server string) ([]entry, error) {
	var entries []entry
	resources, err := client.ListResources(ctx)
	for _, r := range resources {
		about := cmp.Or(r.Description, r.Title, r.Name)
		detail := inBrackets(EscapeUnseen(r.MIMEType))
		entries = append(entries, entry{server, r.URI, detail, about, r})
	}
	templates, templatesErr := client.ListResourceTemplates(ctx)
	for _, t := range templates {
		about := cmp.Or(t.Description, t.Title, t.Name)
		detail := inBrackets(EscapeUnseen(t.MIMEType))
		entries = append(entries, entry{server, t.URITemplate, detail, about, t})
	}
	if err := unlessUnknown(err); err != nil {
		return entries, err
	}
	return entries, unlessUnknown(templatesErr)
}

// inBrackets puts a text into brackets, to stand after a name in a list. An empty text stays empty.
func inBrackets(text string) string {
	if text == "" {
		return ""
	}
	return " (" + text + ")"
}

// unlessUnknown drops the error of a server that does not know the method of a list. Some servers
// declare resources, and do not know the method that lists the templates.
func unlessUnknown(err error) error {
	var refusal *Error
	if errors.As(err, &refusal) && refusal.Code == CodeMethodNotFound {
		return nil
	}
	return err
}

// find finds a tool, a prompt or a resource by SERVER:NAME, or by its own name if no other server
// has something of that name. It finds a tool also by the name of its function, and that of the
// only server by the name that its function would have beside other servers. Only the servers that
// can have it are asked.
func (c *catalog) find(ctx context.Context, kind, name string) (entry, error) {
	var asked []string // names of servers; empty for all servers
	server, _ := c.config.split(name)
	switch {
	case kind == "resource":
		// A URI may begin with a scheme that is also the name of a server.
	case server != "":
		asked = []string{server}
	case kind == "tool":
		asked = c.servers.host.Owner(name)
	}
	all, err := c.entries(ctx, kind+"s", asked)
	if err != nil {
		return entry{}, err
	}
	isOwn := slices.ContainsFunc(all, func(e entry) bool { return e.name == name })
	if kind == "tool" && !c.config.hasSeveral() && !isOwn {
		name = strings.TrimPrefix(name, c.config.servers[0].Name+"__")
	}
	// The name of a function belongs to one tool only. Resolve compares the other names.
	var own, full []string
	for _, e := range all {
		own = append(own, e.name)
		full = append(full, e.server+":"+e.name)
		tool, isTool := e.value.(listedTool)
		if isTool && tool.Function == name {
			return e, nil
		}
	}
	i, err := Resolve(kind, name, own, full)
	if err == nil {
		return all[i], nil
	}
	isServer := kind == "resource" || server != ""
	return entry{}, &exitError{exitUsage, c.withNearest(err, kind, name, all, isServer)}
}

// withNearest adds to the error of a name that cannot be found which names there are: those of the
// servers, if the name begins with a server that there is not. isServer is set for any other name.
func (c *catalog) withNearest(
	err error, kind, name string, all []entry, isServer bool,
) error {
	prefix, _, hasPrefix := strings.Cut(name, ":")
	isOwn := slices.ContainsFunc(all, func(e entry) bool { return e.name == name })
	switch {
	case hasPrefix && !isServer:
		return fmt.Errorf("%w; there is no server %q either, only %s",
			err, prefix, OneNames(ServerNames(c.config.servers)))
	case len(all) > 0 && !isOwn:
		return fmt.Errorf("%w; %s", err, c.nearest(kind, name, all))
	}
	return err
}

// maxNearest is how many names an error about an unknown name has.
const maxNearest = 3

// nearest says in an error which names there are: all, if they are few, and else those that are
// most like a name that there is not.
func (c *catalog) nearest(kind, name string, all []entry) string {
	if len(all) <= maxNearest {
		return "there are: " + c.shownNames(all)
	}
	typos := func(e entry) int {
		tool, _ := e.value.(listedTool)
		return min(distance(name, e.name), distance(name, e.server+":"+e.name),
			distance(name, tool.Function))
	}
	near := slices.Clone(all)
	near = slices.DeleteFunc(near, func(e entry) bool { return typos(e) > maxTypos })
	slices.SortStableFunc(near, func(a, b entry) int { return typos(a) - typos(b) })
	for _, i := range RankFunctions(functionsOf(all), name) {
		isNamed := func(e entry) bool { return e.server == all[i].server && e.name == all[i].name }
		if !slices.ContainsFunc(near, isNamed) {
			near = append(near, all[i])
		}
	}
	how := "of which the nearest are"
	if len(near) == 0 {
		near = all
		how = "such as"
	}
	return fmt.Sprintf("there are %s, %s: %s", Plural(len(all), kind), how,
		c.shownNames(near[:min(len(near), maxNearest)]))
}

// maxTypos is how many letters of a name may be wrong or missing.
const maxTypos = 3

func (c *catalog) shownNames(entries []entry) string {
	var names []string
	for _, e := range entries {
		names = append(names, c.shown(e))
	}
	return strings.Join(names, ", ")
}

// functionsOf returns entries in the form in which they are ranked.
func functionsOf(entries []entry) []Function {
	functions := make([]Function, len(entries))
	for i, e := range entries {
		functions[i] = Function{Name: e.name, Description: e.about}
		tool, isTool := e.value.(listedTool)
		if isTool {
			functions[i] = Function{
				Name:        tool.Function,
				Title:       tool.Title,
				Description: tool.Description,
				Parameters:  tool.InputSchema,
			}
		}
	}
	return functions
}

// readResource reads a resource by SERVER:URI, or by its URI alone if only one server lists it. It
// returns the contents in the form of a tool's result.
func (c *catalog) readResource(ctx context.Context, name string) (*ToolResult, error) {
	server, uri, err := c.resourceNamed(ctx, name)
	if err != nil {
		return nil, err
	}
	if err := c.servers.start(ctx, server); err != nil {
		return nil, err
	}
	client, err := c.servers.host.Client(ctx, server)
	if err != nil {
		return nil, err
	}
	var contents []ResourceContents
	err = c.servers.afterLogin(ctx, server, uri, func() (err error) {
		contents, err = client.ReadResource(ctx, uri)
		return err
	})
	if err != nil {
		return nil, &exitError{exitTool, c.servers.explain(err)}
	}
	result := new(ToolResult)
	for i := range contents {
		block := ContentBlock{Type: "resource", Resource: &contents[i]}
		result.Content = append(result.Content, block)
	}
	return result, nil
}

// resourceNamed returns the server and the URI of a resource.
func (c *catalog) resourceNamed(ctx context.Context, name string) (server, uri string, err error) {
	server, uri = c.config.split(name)
	// If the rest is no URI, the name is itself a URI, and its scheme is also the name of a server.
	isFullName := server != "" && uriScheme.MatchString(uri)
	if isFullName {
		return server, uri, nil
	}
	if len(c.config.servers) == 1 {
		return c.config.servers[0].Name, name, nil
	}
	e, err := c.find(ctx, "resource", name)
	if err != nil {
		return "", "", err
	}
	return e.server, e.name, nil
}

// getPrompt fills in a prompt with KEY=VALUE words. The first word names it: by SERVER:NAME, or by
// its name alone if only one server has that.
func (c *catalog) getPrompt(ctx context.Context, words []string) (*PromptResult, error) {
	arguments, err := pairs(words[1:])
	if err != nil {
		return nil, err
	}
	e, err := c.find(ctx, "prompt", words[0])
	if err != nil {
		return nil, err
	}
	client, err := c.servers.host.Client(ctx, e.server)
	if err != nil {
		return nil, err
	}
	var result *PromptResult
	err = c.servers.afterLogin(ctx, e.server, e.name, func() (err error) {
		result, err = client.GetPrompt(ctx, e.name, arguments)
		return err
	})
	if err != nil {
		return nil, &exitError{exitTool, c.servers.explain(err)}
	}
	return result, nil
}

// pairs reads KEY=VALUE words. A key that is given twice is an error, as nobody can say which of
// the values the user wants.
func pairs(words []string) (map[string]string, error) {
	values := make(map[string]string)
	for _, word := range words {
		key, value, isPair := strings.Cut(word, "=")
		if _, isGiven := values[key]; isGiven {
			return nil, usageError("%s is given twice", key)
		}
		if !isPair || key == "" {
			return nil, usageError("%q is not of the form KEY=VALUE", word)
		}
		values[key] = value
	}
	return values, nil
}
