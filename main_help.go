// main_help.go - the usage of the program and of each command.
// SPDX-License-Identifier: 0BSD

package main

import (
	"context"
	"flag"
	"fmt"
	"strings"
)

// usageText is what help prints, without the commands and the flags.
const usageText = `mcpagent asks a language model a question ` +
	`that it answers with the tools of MCP servers.

  mcpagent "question"                  ` +
	`ask once: the answer on stdout, everything else on stderr; text on stdin, if
                                       that is a pipe or a file, is part of it; ` +
	`what follows -- is no command
  mcpagent                             on a terminal: a chat; else the same, ` +
	`with the question read from stdin
%s
  variable            flag            meaning (default)
  MISTRAL_API_KEY                     key of the model's API (none: the offline stand-in)
  MISTRAL_BASE_URL                    any chat-completions API: Ollama, vLLM, … (Mistral's)
  MCP_HEADERS                         ` +
	`headers for the URL of -server, one "Name: value" a line (none)
%s
Exit status: 0 done, 1 cannot start, 2 usage, 3 call, read or prompt failed, 4 the model failed, ` +
	`130 interrupted.
`

// usage returns the text of help. It takes the variables from the flags themselves, so that none is
// missing. TestHelp looks for the variables that have no flag.
func usage() string {
	commands, flags := "", ""
	for _, c := range new(program).commands() {
		commands += fmt.Sprintf("  mcpagent %-27s %s\n", c.name+" "+c.args, c.what)
	}
	new(settings).flags().VisitAll(func(f *flag.Flag) {
		variable, meaning, _ := strings.Cut(f.Usage, " ")
		flags += fmt.Sprintf("  %-19s -%-14s %s\n", variable, f.Name, meaning)
	})
	return fmt.Sprintf(usageText, commands, flags)
}

// help prints the usage, or the description of one command.
func (p *program) help(_ context.Context, args []string) error {
	if len(args) == 0 {
		return p.output.print(usage())
	}
	c, ok := p.commandNamed(args[0])
	if !ok {
		return usageError("there is no command %q", args[0])
	}
	line := fmt.Sprintf("mcpagent %s  %s\n", strings.TrimSpace(c.name+" "+c.args), c.what)
	return p.output.print(line + Indent(c.more, "    "))
}
