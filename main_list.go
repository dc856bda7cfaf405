// main_list.go - the lists of what the servers have, and of the servers.
// SPDX-License-Identifier: 0BSD

package main

import (
	"context"
	"slices"
	"strings"
	"time"
)

// list lists the tools, prompts or resources of servers, in a paragraph for each server. For the
// name of a tool it shows that tool with its arguments.
func (c *catalog) list(ctx context.Context, kind string, names ...string) error {
	isServer := func(name string) bool {
		return slices.Contains(ServerNames(c.config.servers), name)
	}
	if kind == "tools" && len(names) == 1 && !isServer(names[0]) {
		return c.showTool(ctx, names[0])
	}
	all, err := c.entries(ctx, kind, names)
	if err != nil {
		return err
	}
	if c.output.settings.json {
		return c.output.printJSON(listsOf(kind, all))
	}
	if len(all) == 0 {
		c.output.note("there are no %s", kind)
	}
	text := ""
	for i, e := range all {
		if i > 0 && e.server != all[i-1].server {
			text += "\n"
		}
		text += c.summary(e)
	}
	return c.output.screen.Print(Look{}, text)
}

// summary returns an entry as a list has it: with the first line of its description.
func (c *catalog) summary(e entry) string {
	about, _, _ := strings.Cut(strings.TrimSpace(e.about), "\n")
	return c.shown(e) + e.detail + "\n" + Indent(about, "    ")
}

// findTools lists the tools of servers that match words best, with the ranking that a model has
// (see Finder). Unlike a model, a person also finds the tools that no model is offered.
func (c *catalog) findTools(ctx context.Context, words string, servers ...string) error {
	all, err := c.entries(ctx, "tools", servers)
	if err != nil {
		return err
	}
	ranked := RankFunctions(functionsOf(all), words)
	found := []entry{}
	text := ""
	for _, i := range ranked[:min(len(ranked), MaxMatches)] {
		found = append(found, all[i])
		text += c.summary(all[i])
	}
	if c.output.settings.json {
		return c.output.printJSON(found)
	}
	if len(found) == 0 {
		c.output.note("no tool has any of these words; mcpagent tools SERVER lists those of one")
	}
	return c.output.screen.Print(Look{}, text)
}

// listsOf returns the value whose JSON is the list of a command. A list is never null, so that a
// script can go through it. Templates of resources have a list of their own.
func listsOf(kind string, all []entry) any {
	entries, templates := []entry{}, []entry{}
	for _, e := range all {
		if _, isTemplate := e.value.(ResourceTemplate); isTemplate {
			templates = append(templates, e)
		} else {
			entries = append(entries, e)
		}
	}
	if kind != "resources" {
		return entries
	}
	return map[string]any{"resources": entries, "resourceTemplates": templates}
}

// showTool shows a tool with its whole description and its arguments, also those inside of objects
// and lists.
func (c *catalog) showTool(ctx context.Context, name string) error {
	e, err := c.find(ctx, "tool", name)
	if err != nil {
		return err
	}
	if c.output.settings.json {
		return c.output.printJSON(e)
	}
	tool := e.value.(listedTool)
	text := c.shown(e) + e.detail + "\n" + Indent(e.about, "    ")
	text += ToolSchema(&tool.Tool).Describe("  ")
	return c.output.screen.Print(Look{}, text)
}

// listedServer is a server as servers -json prints it.
type listedServer struct {
	Name    string `json:"name"`
	Running bool   `json:"running"`
	Start   string `json:"start"` // its URL or its command line; "" if it is not known
	State   string `json:"state"`
}

// listServers starts the servers that are not running, and shows the state of each. In a chat it
// does not wait for a server that needs long, and shows that server as starting. Elsewhere the list
// is all that the program does, so it waits for all servers, and it is an error if none is running.
func (c *catalog) listServers(ctx context.Context, names ...string) error {
	if err := c.config.checkNames(names...); err != nil {
		return err
	}
	limit := time.Hour
	if c.output.inChat {
		limit = glance
	}
	soon, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	// The status of each server has its error, so the error here is not needed.
	_ = c.servers.withLogins(soon, func() error {
		_, err := c.servers.host.Tools(soon, names...)
		return err
	})
	list := c.listedServers(names)
	text, isAnyRunning := "", false
	for _, s := range list {
		text += Clip(OneName(s.Name)+": "+s.State, maxShown) + "\n" + Indent(s.Start, "    ")
		isAnyRunning = isAnyRunning || s.Running
	}
	if c.output.inChat {
		c.output.screen.Show(Look{}, strings.TrimSuffix(text, "\n"))
		return nil
	}
	if err := c.output.give(ctx, nil, text, text, list); err != nil {
		return err
	}
	if !isAnyRunning {
		return exitWith(exitStart, "no server is running")
	}
	return nil
}

// listedServers returns the servers of these names. Without names it returns all servers, also the
// disabled ones. The list is never nil, as its JSON would be null.
func (c *catalog) listedServers(names []string) []listedServer {
	list := []listedServer{}
	for i, state := range c.servers.host.Status() {
		if len(names) > 0 && !slices.Contains(names, state.Name) {
			continue
		}
		server := &c.config.servers[i]
		start := ""
		if server.Err == nil {
			start = startLine(server)
		}
		text := c.servers.describe(state)
		list = append(list, listedServer{state.Name, state.Running, start, text})
	}
	if len(names) == 0 {
		for _, name := range c.config.disabled {
			list = append(list, listedServer{Name: name, State: "disabled"})
		}
	}
	return list
}
