// main_table.go - the table of the commands, and which of them a word names.
// SPDX-License-Identifier: 0BSD

package main

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
)

// command is a command of the command line.
type command struct {
	name, args, what string
	more             string // what help COMMAND says beside
	run              func(ctx context.Context, args []string) error
	like             string // what other programs call it, or what it does
}

// commands returns all commands, in the order of help. The commands that list or use what servers
// have open the servers first. The others read the configuration themselves, or need none. For help
// the table is made of a program without parts, and no command of it is run.
func (p *program) commands() []command {
	s := p.serverCommands
	return []command{
		{"tools", "[SERVER ...|TOOL]",
			"list the tools of every server, or of some; or show what one tool takes",
			`A tool is SERVER:TOOL, or TOOL alone if no other server has it. -find lists those
that match words best, with the ranking that a model has.
  mcpagent tools files:read_file
  mcpagent tools -find "read a file"`,
			s.withServers(s.tools), "list ls"},
		{"call", "TOOL [KEY=VALUE ...]", "call a tool, without a model",
			`The tool's schema decides whether a value is sent as text, number, boolean
or null; lists and objects are JSON. A JSON object, @FILE or - in place of
the words is sent to the tool unchecked. -o FILE saves the result's images
and other bytes, or its text if there are none.
  mcpagent call files:read_file path=notes.txt head=10`,
			s.withServers(s.call), "run exec"},
		{"resources", "[SERVER ...]", "list the resources of every server, or of some",
			"  mcpagent resources files", s.list("resources"), ""},
		{"read", "URI", "print a resource",
			`SERVER:URI where several servers have it. -o FILE saves its bytes or text.
  mcpagent read library:///rpc.go`,
			s.withServers(s.read), "cat"},
		{"prompts", "[SERVER ...]", "list the prompts of every server, or of some",
			"  mcpagent prompts -json", s.list("prompts"), ""},
		{"prompt", "NAME [KEY=VALUE ...]", "fill in a prompt, and print its messages",
			`SERVER:NAME where several servers have it. Values are texts.
  mcpagent prompt issues:triage label=bug`,
			s.withServers(s.prompt), ""},
		{"servers", "[SERVER ...]",
			"show each server's command or URL, its state and its protocol revision",
			`For a server that is not running, it says why and what to do. The exit
status is 1 if none is running.
  mcpagent servers -json`,
			s.withServers(s.listServers), "status ps doctor"},
		{"tasks", "[ID]", "list open tasks (calls that still run), wait for one, or end it",
			"A task outlives this program. -cancel ends it.\n  mcpagent tasks -cancel 786512e2",
			s.withServers(s.openTasks), ""},
		{"login", "URL|NAME", "log in to a server with OAuth, in the browser",
			"  mcpagent login https://mcp.example.com/mcp", p.logins.logIn, "auth"},
		{"logout", "URL|NAME", "end a login: its token is revoked, if the server can do that",
			`A NAME stands for the login of that server's configuration, a URL for all logins to it.
  mcpagent logout issues`,
			p.logins.logOut, ""},
		{"whoami", "", "show the saved logins: authorization server, scopes, expiry",
			"", p.logins.whoAmI, ""},
		{"serve", "[DIR]",
			"be an MCP server on stdio: search over DIR, or over this program's source",
			`-http ADDR serves over HTTP. Without a host (:8080), on this machine only.
  mcpagent serve -http :8080 ~/notes`,
			p.serving.run, ""},
		{"completion", "bash|zsh|fish", "print the shell script for Tab completion",
			`It completes commands, flags, and names from servers; to get these it starts
the servers, and waits 3 s for them.
  mcpagent completion bash     in ~/.bashrc: eval "$(mcpagent completion bash)"`,
			p.completion, "complete"},
		{"version", "", "print the version and the supported MCP revisions", "", p.version, ""},
		{"help", "[COMMAND]", "print this, or more about one command",
			"  mcpagent help call", p.help, "usage"},
	}
}

// version is the command version.
func (p *program) version(context.Context, []string) error {
	speaks := strings.Join(Revisions(), " ")
	line := fmt.Sprintf("mcpagent %s, MCP %s, %s\n", version, speaks, runtime.Version())
	return p.output.screen.Print(Look{}, line)
}

// commandNamed returns the command of a name, and false if there is none.
func (p *program) commandNamed(name string) (c command, ok bool) {
	for _, c := range p.commands() {
		if c.name == name {
			return c, true
		}
	}
	return command{}, false
}

// meant returns the command that a word is probably meant as. As a question a typing error, or the
// name that another program has for a command, would cost time and money.
func (p *program) meant(word string) (name string, isNear bool) {
	commands := make(map[string]string)
	for _, c := range p.commands() {
		commands[c.name] = c.name
		for _, other := range strings.Fields(c.like) {
			commands[other] = c.name
		}
	}
	near, isNear := nearest(word, slices.Sorted(maps.Keys(commands)))
	return commands[near], isNear
}

// nearest returns the name that is most similar to a word, and whether the word may be a typing
// error of it. Of a short name, such as call, most words of two other letters are other words.
func nearest(word string, names []string) (name string, isNear bool) {
	for _, other := range names {
		if name == "" || distance(word, other) < distance(word, name) {
			name = other
		}
	}
	limit := 2
	if len(name) <= 4 {
		limit = 1
	}
	return name, name != "" && distance(word, name) <= limit
}

// distance counts the letters that only one of two words has. If the words do not begin alike, it
// counts all letters.
func distance(a, b string) int {
	a, b = strings.ToLower(a), strings.ToLower(b)
	if a == "" || b == "" || a[0] != b[0] {
		return len(a) + len(b)
	}
	onlyInB := b
	for _, letter := range a {
		onlyInB = strings.Replace(onlyInB, string(letter), "", 1)
	}
	return len(a) - len(b) + 2*len(onlyInB)
}
