// main_chat_commands.go - the commands of a chat, which begin with a slash.
// SPDX-License-Identifier: 0BSD

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
)

// chatCommand is a command after a slash.
type chatCommand struct {
	name, args, what string
	run              func(ctx context.Context, args string) error
}

// commands returns all commands, in the order of /help.
func (c *chat) commands() []chatCommand {
	quit := func(context.Context, string) error { return errQuit }
	return []chatCommand{
		{"tools", "[SERVER|TOOL]", "list the tools of every server, or of one; show a tool; " +
			"or -find WORDS", c.tools},
		{"servers", "[SERVER]", "show the state of the servers", c.showServers},
		{"reconnect", "[SERVER]", "start a server again, or those that are not running",
			c.reconnect},
		{"show", "[N]", "show all of a result that was cut, or of the last one", c.show},
		{"resource", "[[SERVER:]URI]", "add a resource to the next question, or list them",
			c.resource},
		{"prompt", "[NAME KEY=VALUE ...]", "ask with a prompt of a server, or list them", c.prompt},
		{"allowed", "[N]", "list the tools that you have allowed, or take one back",
			c.allowed},
		{"model", "[NAME]", "show the model, or choose another", c.chooseModel},
		{"usage", "", "show the tokens used so far", c.showUsage},
		{"compact", "", "replace the older half of the conversation with a summary", c.compact},
		{"clear", "", "begin a new conversation", c.clear},
		{"save", "FILE", "write the conversation to a file", c.save},
		{"load", "FILE", "continue the conversation in a file", c.load},
		{"help", "", "show this", c.help},
		{"quit", "", "end the chat, as Ctrl-D does", quit},
	}
}

// commandNames returns the names of the commands, without their slash.
func (c *chat) commandNames() []string {
	var names []string
	for _, command := range c.commands() {
		names = append(names, command.name)
	}
	return names
}

// commandWithoutSlash returns the command that a line names where a user has left out the slash, as
// other programs want it: quit alone would be a question to the model. It returns "" for any other
// line. A model may have asked for a word, so only the very names count, and not what is like them.
func (c *chat) commandWithoutSlash(line string) string {
	name := strings.TrimRight(line, " \t\n")
	isLetter := len(name) == 1
	if !isLetter && slices.Contains(c.commandNames(), knownCommand(name)) {
		return knownCommand(name)
	}
	return ""
}

// knownCommand returns the command that other programs know by a name, and any other name as it is.
func knownCommand(name string) string {
	switch {
	case IsQuit(name):
		return "quit"
	case name == "list", name == "ls":
		return "tools"
	}
	return name
}

// help shows the commands.
func (c *chat) help(context.Context, string) error {
	for _, command := range c.commands() {
		usage := "/" + command.name + " " + command.args
		c.output.screen.Show(Look{Exact: true},
			helpLine(usage, command.what, 28, c.output.screen.Columns()))
	}
	c.output.say("%s", "\n@SERVER:URI in a question adds a resource to it, and @./FILE, @/FILE or "+
		"@~/FILE a file. Alt-Enter, or a backslash at the end of a line, begins a new line. Tab "+
		"completes commands, the tools and servers that they take, resources, and files after "+
		"@./. Up and Down show earlier questions and commands, and Ctrl-R searches them. A "+
		"question that begins with a slash, or is the name of a command, needs a space before "+
		"it.\nCtrl-C cancels what is running and keeps the conversation; twice, it ends the chat.")
	return nil
}

// tools lists the tools of servers, or shows one of them, or finds some by words. The words may be
// in quotes, as on a command line.
func (c *chat) tools(ctx context.Context, args string) error {
	option, words, _ := strings.Cut(args, " ")
	if option == "-find" {
		words = strings.Trim(words, ` "'`)
		if words == "" {
			return errors.New("/tools -find takes words, such as: /tools -find read a file")
		}
		return c.catalog.findTools(ctx, words)
	}
	return c.catalog.list(ctx, "tools", strings.Fields(args)...)
}

// showServers shows how the servers are now.
func (c *chat) showServers(ctx context.Context, args string) error {
	return c.catalog.listServers(ctx, strings.Fields(args)...)
}

// show shows the whole of a text of which only the beginning was shown. It stops at each full
// window.
func (c *chat) show(ctx context.Context, number string) error {
	return c.terminal.PageKept(ctx, number)
}

// reconnect starts the server of this name again, or without a name all servers that are not
// running. It waits a second for them. A start that takes longer goes on beside the chat: the list
// of servers says so, and its end is shown later.
func (c *chat) reconnect(ctx context.Context, name string) error {
	if err := c.servers.config.checkNames(); err != nil {
		return err
	}
	var names []string
	for _, s := range c.servers.host.Status() {
		isDown := s.Err != nil && !isStarting(s)
		if s.Name == name || name == "" && isDown {
			names = append(names, s.Name)
		}
	}
	if names == nil {
		all := OneNames(ServerNames(c.servers.config.servers))
		if name != "" {
			return fmt.Errorf("there is no server %q; the servers are: %s", name, all)
		}
		return fmt.Errorf("all servers are running or starting; to restart one, give its name: %s",
			all)
	}
	soon, cancel := context.WithTimeout(ctx, glance)
	defer cancel()
	for _, name := range names {
		isAsking := c.servers.logins.askAgain(name)
		if !isAsking {
			_ = c.servers.host.Restart(soon, name)
		}
	}
	err := c.catalog.listServers(ctx, names...)
	var late []HostStatus
	var lateNames []string
	for _, state := range c.servers.host.Status(names...) {
		if state.Starting || isStarting(state) {
			late = append(late, state)
			lateNames = append(lateNames, state.Name)
		}
	}
	c.servers.areTold(late)
	c.servers.tellLater(lateNames)
	return err
}

// resource attaches a resource to the next question, or lists all resources.
func (c *chat) resource(ctx context.Context, name string) error {
	if name == "" {
		return c.catalog.list(ctx, "resources")
	}
	return c.attach(ctx, name)
}

// prompt asks with a prompt of a server, or lists all prompts. A prompt is a list of messages of
// the user and of the model. Several messages become one question, in which each has its role.
func (c *chat) prompt(ctx context.Context, text string) error {
	words, err := SplitWords(text)
	if err != nil {
		return err
	}
	if len(words) == 0 {
		return c.catalog.list(ctx, "prompts")
	}
	result, err := c.catalog.getPrompt(ctx, words)
	if err != nil {
		return err
	}
	var messages []string
	images := c.attached.images
	for _, m := range result.Messages {
		var message string
		content := &ToolResult{Content: []ContentBlock{m.Content}}
		message, images = ModelContent(content, images)
		if len(result.Messages) > 1 {
			message = m.Role + ": " + message
		}
		c.output.screen.Preview(Look{Style: Faint}, words[0], message)
		messages = append(messages, message)
	}
	c.output.screen.Show(Look{}, "")
	return c.send(ctx, strings.Join(messages, "\n\n"), images)
}

// chooseModel chooses a model that the API has, or lists the models. If the API has no list, any
// name is taken, and the first question shows whether it is right.
func (c *chat) chooseModel(ctx context.Context, name string) error {
	before := c.model.name()
	c.model.choose(cmp.Or(name, before))
	model := c.model.current()
	if model.Model == offline {
		c.output.say("%s, the built-in stand-in: another model needs MISTRAL_API_KEY, or "+
			"MISTRAL_BASE_URL; %sNAME needs neither", offline, ollama)
		return nil
	}
	endpoint, err := model.Endpoint()
	if err != nil {
		return err
	}
	// The list is read again, as the user may have added a model to it.
	models, err := ListModels(ctx, model)
	if err == nil {
		c.model.lists.Store(model.BaseURL, models)
	}
	_, isKnown := FindModel(models, model.Model)
	if name != "" && !isKnown && len(models) > 0 {
		c.model.choose(before)
		return fmt.Errorf("%s has no model %s; /model lists them", endpoint.Host, model.Model)
	}
	c.output.say("%s at %s", model.Model, endpoint.Host)
	if err != nil {
		c.output.say("(%v)", err)
	}
	if name == "" {
		c.listModels(models)
	}
	return nil
}

// listModels shows each model once: Mistral lists one under each of its names.
func (c *chat) listModels(models []ModelInfo) {
	var listed []ModelInfo
	for _, m := range models {
		_, isListed := FindModel(listed, m.ID)
		if isListed || m.Hidden {
			continue
		}
		listed = append(listed, m)
		var about []string
		for _, alias := range m.Aliases {
			about = append(about, OneName(alias))
		}
		if m.Context > 0 {
			about = append(about, Plural(m.Context, "token"))
		}
		if m.Vision {
			about = append(about, "takes images")
		}
		line := fmt.Sprintf("  %s  %s", OneName(m.ID), strings.Join(about, ", "))
		c.output.screen.Show(Look{}, line)
	}
}

// showUsage shows the tokens used. The tokens of all questions include those of the earlier runs of
// a saved conversation.
func (c *chat) showUsage(context.Context, string) error {
	c.output.say("last question: %s\nall questions: %s\nthe conversation: %s",
		tokenCount(c.agent.Usage),
		tokenCount(c.kept.session.Usage),
		Plural(len(c.agent.History), "message"))
	return nil
}

// clear begins a new conversation. The usage is of the whole chat, so it goes on. The file of
// -session stays as it is until there is a question, so that a /clear by mistake loses nothing.
func (c *chat) clear(context.Context, string) error {
	c.agent.History = nil
	c.kept.begin(&Session{Usage: c.kept.session.Usage})
	c.attached = attachments{}
	if c.kept.isNamed {
		c.output.say("(a new conversation; its first question replaces the one in %s)", c.kept.path)
	} else {
		c.output.say("(a new conversation)")
	}
	return nil
}

// save writes the conversation to a file. Another run may have that file open as its saved
// conversation, so it is locked first. The file of -session is locked by this run already.
func (c *chat) save(ctx context.Context, path string) error {
	own, _ := os.Stat(c.kept.path)
	file, _ := os.Stat(path)
	if path != c.kept.path && !os.SameFile(file, own) {
		soon, cancel := context.WithTimeout(ctx, moment)
		defer cancel()
		release, err := LockSession(soon, path)
		if errors.Is(err, ErrSessionBusy) {
			return err
		}
		// A file that cannot be locked is written without a lock.
		if err == nil {
			defer release()
		}
	}
	if err := SaveSession(path, c.kept.session); err != nil {
		return err
	}
	c.output.say("(%s in %s)", Plural(len(c.kept.session.History), "message"), path)
	return nil
}

// load continues the conversation of a file. With -session this is an error: the next answer would
// write the other conversation over the one in the file of -session.
func (c *chat) load(_ context.Context, path string) error {
	if c.kept.isNamed {
		return fmt.Errorf("this chat is saved in %s; to continue another conversation, quit and "+
			"run: mcpagent -session %s", c.kept.path, word(path))
	}
	session, err := LoadSession(path)
	if err != nil {
		return err
	}
	c.kept.begin(session)
	c.agent.History = session.History
	c.output.say("(%s from %s)", Plural(len(session.History), "message"), path)
	c.kept.recall()
	return nil
}
