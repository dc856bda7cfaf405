// main_complete.go - what the word that is being typed may become, in a chat and in a shell.
// SPDX-License-Identifier: 0BSD

package main

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// candidates returns what the next argument of a command may be, after those that it has already.
// It is for the commands of the command line and of the chat, of which those of one name take the
// same. word is what is typed of it: a tool that is begun with its server goes on so. A server that
// does not answer while ctx lasts has none.
func (c *catalog) candidates(
	ctx context.Context,
	command string,
	before []string,
	word string,
) []string {
	names := ServerNames(c.config.servers)
	isFirst := len(before) == 0
	withServer := c.config.hasSeveral() || strings.Contains(word, ":")
	switch command {
	case "servers", "resources", "prompts", "reconnect", "login", "logout":
		return names
	case "tools":
		return append(names, c.names(ctx, "tools", withServer)...)
	case "call", "prompt":
		kind := command + "s"
		if command == "call" {
			kind = "tools"
		}
		if isFirst {
			return c.names(ctx, kind, withServer)
		}
		return c.parameters(ctx, kind, before)
	case "read", "resource":
		return c.names(ctx, "resources", c.config.hasSeveral())
	}
	return nil
}

// glanceAt returns the tools, prompts or resources of all servers that can list them while ctx
// lasts. It asks the user for nothing, and tells nothing: a person who types is not interrupted.
func (c *catalog) glanceAt(ctx context.Context, kind string) []entry {
	status := c.servers.host.Status()
	lists := make([][]entry, len(status))
	var work sync.WaitGroup
	for i, s := range status {
		if s.Err == nil || isStarting(s) {
			work.Go(func() { lists[i], _ = c.entriesOf(ctx, kind, s.Name) })
		}
	}
	work.Wait()
	return slices.Concat(lists...)
}

// names returns the names of all tools, prompts or resources, as find takes them, with or without
// their servers. A template, which has braces, is not the URI of a resource.
func (c *catalog) names(ctx context.Context, kind string, withServer bool) []string {
	var names []string
	for _, e := range c.glanceAt(ctx, kind) {
		name := e.name
		if _, isTemplate := e.value.(ResourceTemplate); isTemplate {
			continue
		}
		if withServer {
			name = e.server + ":" + name
		}
		names = append(names, name)
	}
	return names
}

// parameters returns the words KEY=VALUE of a tool or a prompt, the first of before, where the
// schema says which values there are, and else KEY=. Those that are given already are left out.
func (c *catalog) parameters(ctx context.Context, kind string, before []string) []string {
	var words []string
	for _, e := range c.glanceAt(ctx, kind) {
		if before[0] != e.name && before[0] != e.server+":"+e.name {
			continue
		}
		for name, values := range parametersOf(e) {
			isGiven := slices.ContainsFunc(before[1:], func(word string) bool {
				return strings.HasPrefix(word, name+"=")
			})
			for _, value := range values {
				if !isGiven {
					words = append(words, name+"="+value)
				}
			}
		}
		break
	}
	slices.Sort(words)
	return words
}

// parametersOf returns the values that each parameter of a tool or a prompt may have: "" where that
// is not known.
func parametersOf(e entry) map[string][]string {
	parameters := make(map[string][]string)
	switch value := e.value.(type) {
	case listedTool:
		schema := ToolSchema(&value.Tool)
		for _, name := range schema.Names() {
			parameters[name] = schema.Words(name)
		}
	case Prompt:
		for _, argument := range value.Arguments {
			parameters[argument.Name] = []string{""}
		}
	}
	return parameters
}

// complete is called for a Tab, on a goroutine of the terminal. It returns the words that the last
// word of a text may become: commands and what they take, or after @ a resource or a file. The
// servers have a second for it.
func (c *chat) complete(ctx context.Context, text string) []string {
	ctx, cancel := context.WithTimeout(ctx, glance)
	defer cancel()
	begin := strings.LastIndexAny(text, " \t\n") + 1
	before, word := strings.Fields(text[:begin]), text[begin:]
	var words []string
	name, isAt := strings.CutPrefix(word, "@")
	switch {
	case isAt:
		words = c.mentions(ctx, name)
	case begin == 0:
		for _, name := range c.commandNames() {
			words = append(words, "/"+name)
		}
	case text[0] != '/' || len(before) == 0:
	case before[0] == "/save" || before[0] == "/load":
		words = files(word)
	case before[0] == "/model":
		for _, m := range c.model.known(ctx) {
			words = append(words, m.ID)
		}
	default:
		words = c.catalog.candidates(ctx, before[0][1:], before[1:], word)
	}
	return slices.DeleteFunc(words, func(w string) bool {
		isTyped := strings.HasPrefix(w, word) || isAt
		return !isTyped || EscapeUnseen(w) != w
	})
}

// mentions returns the resources and the files that a word after @ may name, as a question can name
// them. A resource is found by any part of its name, and a file of this folder by its beginning.
func (c *chat) mentions(ctx context.Context, word string) []string {
	var all []string
	for _, e := range c.catalog.glanceAt(ctx, "resources") {
		text := "@" + e.server + ":" + e.name
		_, isTemplate := e.value.(ResourceTemplate)
		if !isTemplate && mention.FindString(text) == text && strings.Contains(text, word) {
			all = append(all, text)
		}
	}
	path := word
	if !isPath(word) {
		path = "./" + word
	}
	for _, name := range files(path) {
		if mention.FindString("@"+name) == "@"+name {
			all = append(all, "@"+name)
		}
	}
	return all
}

// isPath reports whether a word after @ names a file of this machine: nothing else begins so.
func isPath(word string) bool {
	for _, begin := range []string{"./", "../", "/", "~/"} {
		if strings.HasPrefix(word, begin) {
			return true
		}
	}
	return false
}

// maxCompleted bounds how many files of a folder are looked at.
const maxCompleted = 1000

// files returns the files and folders whose paths begin like this. A hidden one needs its dot.
func files(begin string) []string {
	folder, name := filepath.Split(begin)
	dir, err := os.Open(expandHome(folder) + ".")
	if err != nil {
		return nil
	}
	defer dir.Close()
	entries, _ := dir.ReadDir(maxCompleted)
	var paths []string
	for _, e := range entries {
		isHidden := strings.HasPrefix(e.Name(), ".") && !strings.HasPrefix(name, ".")
		if isHidden || !strings.HasPrefix(e.Name(), name) {
			continue
		}
		path := folder + e.Name()
		info, err := os.Stat(expandHome(path))
		if err == nil && info.IsDir() {
			path += "/"
		}
		paths = append(paths, path)
	}
	slices.Sort(paths)
	return paths
}

// expandHome returns a path with the user's home in the place of a ~ at its beginning.
func expandHome(path string) string {
	rest, isOfHome := strings.CutPrefix(path, "~/")
	home, err := os.UserHomeDir()
	if !isOfHome || err != nil {
		return path
	}
	return home + "/" + rest
}
