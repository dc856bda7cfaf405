// main_help.go - the usage of the program and of each command.
// SPDX-License-Identifier: 0BSD

package main

import (
	"context"
	"flag"
	"fmt"
	"runtime"
	"slices"
	"strings"
)

// usageText is what help prints, without the commands and the flags.
const usageText = `mcpagent asks a language model a question that it answers with the tools of MCP servers.

  mcpagent "question"                  ask once: the answer on stdout, everything else on stderr; text on stdin, if
                                       that is a pipe or a file, is part of it; what follows -- is no command
  mcpagent                             on a terminal: a chat; else the same, with the question read from stdin
%s
  variable            flag            meaning (default)
  MISTRAL_API_KEY                     key of the model's API (none: the offline stand-in)
  MISTRAL_BASE_URL                    any chat-completions API: Ollama, vLLM, … (Mistral's)
  MCP_HEADERS                         headers for the URL of -server, one "Name: value" a line (none)
%s
Exit status: 0 done, 1 cannot start, 2 usage, 3 call, read or prompt failed, 4 the model failed, 130 interrupted.
`

// command is a command of the command line.
type command struct {
	name, args, what string
	more             string // that help COMMAND says
	run              func(ctx context.Context, args []string) error
}

func (p *program) commands() []command {
	return []command{
		{"tools", "[SERVER ...|TOOL]", "list the tools of every server, or of some; or show what one tool takes",
			"A tool is SERVER:TOOL, or TOOL alone if no other server has it.\n  mcpagent tools files:read_file",
			p.onHost(p.list("tools"))},
		{"call", "TOOL [KEY=VALUE ...]", "call a tool, without a model", "The tool's schema says what is a text, a " +
			"number, true or null; lists and\nobjects are JSON. A JSON object, @FILE or - in place of the words goes to " +
			"the tool\nunchecked. -o FILE gets images and other bytes of the result, or else its text.\n" +
			"  mcpagent call files:read_file path=notes.txt head=10", p.onHost(p.call)},
		{"resources", "[SERVER ...]", "list the resources of every server, or of some", "  mcpagent resources files",
			p.onHost(p.list("resources"))},
		{"read", "URI", "print a resource", "SERVER:URI where several servers have it. -o FILE gets its bytes or its " +
			"text.\n  mcpagent read library:///rpc.go", p.onHost(p.read)},
		{"prompts", "[SERVER ...]", "list the prompts of every server, or of some", "  mcpagent prompts -json",
			p.onHost(p.list("prompts"))},
		{"prompt", "NAME [KEY=VALUE ...]", "fill in a prompt, and print its messages", "SERVER:NAME where several " +
			"servers have it. Values are texts.\n  mcpagent prompt issues:triage label=bug", p.onHost(p.prompt)},
		{"servers", "[SERVER ...]", "show how each server is started, whether it runs, what it speaks", "Where one " +
			"does not run, why, and what to do. The exit status is 1 if none runs.\n  mcpagent servers -json",
			p.onHost(p.listServers)},
		{"login", "URL|NAME", "log in to a server that asks for it (OAuth), in the browser",
			"  mcpagent login https://mcp.example.com/mcp", p.logIn},
		{"logout", "URL|NAME", "forget a login", "  mcpagent logout issues", p.logOut},
		{"whoami", "", "show the logins that are kept: where, with which scopes, until when", "", p.whoAmI},
		{"serve", "[DIR]", "be an MCP server on stdio: search over DIR, or over this program's source", "With -http " +
			"ADDR over HTTP; an ADDR without a host (:8080) is for this machine alone.\n" +
			"  mcpagent serve -http :8080 ~/notes", p.serve},
		{"version", "", "print the version, and what it speaks", "", func(context.Context, []string) error {
			speaks := strings.Join(Revisions(), " ")
			line := fmt.Sprintf("mcpagent %s, MCP %s, %s\n", version, speaks, runtime.Version())
			return p.screen.Print(Look{Exact: true}, line)
		}},
		{"help", "[COMMAND]", "print this, or more about one command", "  mcpagent help call", p.help},
	}
}

// nearest returns the command that a word names, or else the one with the most similar name.
func (p *program) nearest(word string) command {
	return slices.MinFunc(p.commands(), func(a, b command) int { return distance(word, a.name) - distance(word, b.name) })
}

// distance counts the letters that only one of two words has: all, if they do not begin alike.
func distance(a, b string) int {
	if !strings.HasPrefix(strings.ToLower(a), b[:1]) {
		return len(a) + len(b)
	}
	left := b
	for _, letter := range a {
		left = strings.Replace(left, string(letter), "", 1)
	}
	return len(a) - len(b) + 2*len(left)
}

// usage is what help prints.
func usage() string {
	commands, flags, p := "", "", new(program)
	for _, c := range p.commands() {
		commands += fmt.Sprintf("  mcpagent %-27s %s\n", c.name+" "+c.args, c.what)
	}
	p.flags().VisitAll(func(f *flag.Flag) {
		variable, meaning, _ := strings.Cut(f.Usage, " ")
		flags += fmt.Sprintf("  %-19s -%-14s %s\n", variable, f.Name, meaning)
	})
	return fmt.Sprintf(usageText, commands, flags)
}

// help prints the usage, or what there is to know of a command.
func (p *program) help(_ context.Context, args []string) error {
	if len(args) == 0 {
		return p.screen.Print(Look{Exact: true}, usage())
	}
	c := p.nearest(args[0])
	if c.name != args[0] {
		return usageError("there is no command %q", args[0])
	}
	line := fmt.Sprintf("mcpagent %s  %s\n", strings.TrimSpace(c.name+" "+c.args), c.what)
	return p.screen.Print(Look{Exact: true}, line+Indent(c.more, "    "))
}
