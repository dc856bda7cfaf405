// main_help.go - the usage of the program and of each command.
// SPDX-License-Identifier: 0BSD

package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"strings"
)

const about = `mcpagent asks a language model a question that it answers with the tools of MCP servers.

  mcpagent "question"                  ask once: the answer on stdout, everything else on stderr; text on stdin, if
                                       that is a pipe or a file, is part of it; what follows -- is no command
  mcpagent                             on a terminal: a chat; else the same, with the question read from stdin
`

// manual has a line of the usage for each command, and below it what help COMMAND says beside that.
const manual = `tools [SERVER|TOOL]         list the tools of every server, or of one; or show what one tool takes
    A tool is SERVER:TOOL, or TOOL alone if no other server has it.
      mcpagent tools files:read_file
call TOOL [KEY=VALUE ...]   call a tool, without a model
    The tool's schema says what is a text, a number, true, null, or JSON; the words of a list repeat KEY. KEY=@FILE is
    the text of a file, KEY=@- that of stdin, KEY=@@X is @X. A JSON object, @FILE or - in place of the words goes to
    the tool unchecked. -o FILE gets images and other bytes of the result, or else its text.
      mcpagent call files:read_file path=notes.txt head=10
resources [SERVER]          list the resources of every server, or of one
read URI                    print a resource
    SERVER:URI where several servers have it. -o FILE gets its bytes or its text.
      mcpagent read library:///rpc.go
prompts [SERVER]            list the prompts of every server, or of one
prompt NAME [KEY=VALUE ...] fill in a prompt, and print its messages
    SERVER:NAME where several servers have it. Values are texts.
      mcpagent prompt issues:triage label=bug
servers [SERVER]            show how each server is started, whether it runs, what it speaks
    Where one does not run, why, and what to do. The exit status is 1 if none runs.
login URL|NAME              log in to a server that asks for it (OAuth), in the browser
      mcpagent login https://mcp.example.com/mcp
logout URL|NAME             forget a login
whoami [URL|NAME]           show the logins that are kept: where, with which scopes, until when
serve [DIR]                 be an MCP server on stdio: search over DIR, or over this program's source
    With -http ADDR over HTTP; an ADDR without a host (:8080) is for this machine alone.
      mcpagent serve -http :8080 ~/notes
version                     print the version, and what it speaks
help [COMMAND]              print this, or more about one command
`

const variables = `
  variable           flag            meaning (default)
  MISTRAL_API_KEY                    key of the model's API (none: the offline stand-in)
  MISTRAL_BASE_URL                   any chat-completions API: Ollama, vLLM, … (Mistral's)
  MCP_HEADERS                        headers for the URL of -server, one "Name: value" a line (none)
`

// usage is what help prints.
func usage() string {
	text := about
	for line := range strings.Lines(manual) {
		if line[0] != ' ' {
			text += "  mcpagent " + line
		}
	}
	text += variables
	new(program).flags().VisitAll(func(f *flag.Flag) {
		variable, meaning, _ := strings.Cut(f.Usage, " ")
		text += fmt.Sprintf("  %-18s -%-14s %s\n", variable, f.Name, meaning)
	})
	return text + "\nExit status: 0 done, 1 cannot start, 2 usage, 3 call, read or prompt failed, 4 the model failed, " +
		"130 interrupted.\n"
}

// help prints the usage, or what there is to know of a command.
func (p *program) help(_ context.Context, args []string) error {
	if len(args) == 0 {
		return p.screen.List(usage())
	}
	text, name, names := "", "", []string(nil)
	for line := range strings.Lines(manual) {
		if line[0] != ' ' {
			name, _, _ = strings.Cut(line, " ")
			names = append(names, name)
		}
		if name == args[0] {
			text += line
		}
	}
	if text == "" {
		meant := cmp.Or(nearest(args[0], names), "one of "+strings.Join(names, ", "))
		return usageError("there is no command %q: did you mean %s?", args[0], meant)
	}
	return p.screen.List("mcpagent " + text)
}
