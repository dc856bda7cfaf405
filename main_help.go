// main_help.go - the usage of the program and of each command.
// SPDX-License-Identifier: 0BSD

package main

import (
	"context"
	"flag"
	"fmt"
	"strings"
)

// A line of help is narrower than this, however wide the window is.
const helpColumns = 80

// The columns of the help before what it says of a command, and of a flag.
const (
	commandColumns = 31
	flagColumns    = 36
)

// usage returns the text of help, in lines of so many columns. It takes the variables from the
// flags themselves, so that none is missing. TestHelp looks for the variables that have no flag.
func usage(columns int) string {
	var b strings.Builder
	paragraph := func(text string) { b.WriteString(Fold(text, columns) + "\n") }
	line := func(left, right string, size int) {
		b.WriteString(helpLine("  "+left, right, size, columns) + "\n")
	}
	paragraph("mcpagent puts your question to a language model, which answers with the help of " +
		"MCP servers' tools.\n")
	line(`mcpagent "question"`, "ask once: the answer on stdout, everything else on stderr. Text "+
		"on stdin, from a pipe or a file, is added to the question. After --, words are a "+
		"question, never a command",
		commandColumns)
	line("mcpagent", "on a terminal: start a chat; otherwise: ask once, with the question from "+
		"stdin", commandColumns)
	paragraph("\nCommands, as in mcpagent tools; mcpagent help COMMAND says more:\n")
	for _, c := range new(program).commands() {
		line(strings.TrimSpace(c.name+" "+c.args), c.what, commandColumns)
	}
	paragraph("\nVariables and flags, with the default in brackets:\n")
	for _, v := range [][2]string{
		{"MISTRAL_API_KEY", "key of the model's API (none: the offline stand-in)"},
		{"MISTRAL_BASE_URL", "any chat-completions API: Ollama, vLLM, … (Mistral's)"},
		{"MCP_HEADERS", `headers for the URL of -server, one "Name: value" a line (none)`},
	} {
		line(v[0], v[1], flagColumns)
	}
	new(settings).flags().VisitAll(func(f *flag.Flag) {
		variable, meaning, _ := strings.Cut(f.Usage, " ")
		line(fmt.Sprintf("%-19s -%s", variable, f.Name), meaning, flagColumns)
	})
	paragraph("\nExit status: 0 done, 1 start or configuration failed, 2 invalid command line, " +
		"3 call, read or prompt failed, 4 the model failed, 130 interrupted.")
	return b.String()
}

// helpLine returns what help says of a name, folded: beside the name, which takes so many columns,
// or below it where the window is narrow.
func helpLine(name, meaning string, size, columns int) string {
	if columns < 64 {
		name = strings.Join(strings.Fields(name), " ")
		return Fold(name+"\n    "+meaning, columns)
	}
	return Fold(fmt.Sprintf("%-*s\t%s", size, name, meaning), columns)
}

// help prints the usage, or the description of one command.
func (p *program) help(_ context.Context, args []string) error {
	columns := helpColumns
	if p.output.screen.Answers {
		columns = min(columns, p.output.screen.Columns())
	}
	if len(args) == 0 {
		return p.output.print(usage(columns))
	}
	c, ok := p.commandNamed(args[0])
	if !ok {
		hint := ""
		if name, isNear := p.meant(args[0]); isNear {
			hint = fmt.Sprintf(": did you mean %s?", name)
		}
		return usageError("there is no command %q%s", args[0], hint)
	}
	line := fmt.Sprintf("mcpagent %s  %s", strings.TrimSpace(c.name+" "+c.args), c.what)
	return p.output.print(Fold(line, columns) + "\n" + Indent(c.more, "    "))
}
