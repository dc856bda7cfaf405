// main.go - the command line: one run of the program, and what it is made of.
// SPDX-License-Identifier: 0BSD

package main

import (
	"bytes"
	"context"
	"log"
	"os"
	"strings"
)

const version = "0.1.0"

func main() { os.Exit(run()) }

// run is the program, except for the call of os.Exit.
func run() int {
	p := assemble()
	// This puts the terminal back into its first state, also after a panic.
	defer p.terminal.Close()
	p.takeLog()
	ctx, cancel := context.WithCancelCause(context.Background())
	p.interrupts.watch(ctx, func() { cancel(ErrCancelled) })
	err := p.run(ctx, os.Args[1:])
	return p.output.end(err, ctx.Err() != nil)
}

// program is one run of the command line. Its parts stand in an order: the settings, which all
// parts need, come first, and what a user asks for comes last. Each part is handed the earlier
// parts that it needs.
//
// A question goes through them like this: settings say what is asked for; conversation reads stdin
// and the session; configuration says which servers there are; servers start them; agents join
// their tools with the chosen model; approver lets the user decide on each call; output prints the
// answer and returns the exit status.
type program struct {
	settings *settings

	// These parts speak with the user.
	output     *output
	terminal   *Terminal
	input      *textInput
	interrupts *interrupts

	// These are the servers of the run.
	logins  *logins
	servers *servers

	// These are what a user can ask for: the commands, a question, or a chat.
	serverCommands *serverCommands
	serving        *serving
	conversation   *conversation
}

// assemble makes the parts of a run. Nothing is read or started yet: the parts have pointers to the
// settings, and look at them when the settings have been read.
func assemble() *program {
	set := new(settings)
	screen := NewScreen(os.Stderr, os.Stdout)
	terminal := NewTerminal(os.Stdin, screen)
	out := &output{settings: &set.output, screen: screen}
	in := &textInput{&set.servers, out, terminal}
	processes := new(processes)
	interrupts := &interrupts{processes: processes, terminal: terminal}

	trace := &trace{output: out}
	config := &configuration{settings: &set.servers, output: out, terminal: terminal}
	model := &modelChoice{settings: &set.model, output: out, trace: trace, config: config}
	requests := &serverRequests{
		settings: &set.asking,
		output:   out,
		terminal: terminal,
		config:   config,
		model:    model,
	}
	logins := &logins{config: config, output: out, terminal: terminal, trace: trace}
	servers := &servers{
		settings:  &set.servers,
		output:    out,
		config:    config,
		requests:  requests,
		processes: processes,
		logins:    logins,
		trace:     trace,
		tasks:     &keptTasks{output: out},
	}
	catalog := &catalog{out, config, servers}
	approver := &approver{
		settings: &set.asking,
		output:   out,
		terminal: terminal,
		servers:  servers,
	}
	return &program{
		settings:       set,
		output:         out,
		terminal:       terminal,
		input:          in,
		interrupts:     interrupts,
		logins:         logins,
		servers:        servers,
		serverCommands: &serverCommands{set, out, in, servers, catalog},
		serving:        &serving{&set.serve, screen, terminal},
		conversation: &conversation{
			settings:   set,
			output:     out,
			terminal:   terminal,
			input:      in,
			model:      model,
			servers:    servers,
			requests:   requests,
			agents:     &agents{set, out, model, servers, approver},
			catalog:    catalog,
			interrupts: interrupts,
		},
	}
}

// takeLog makes a note of what packages log, so that it is masked like all other text. net/http
// logs, and repeats what a server sends.
func (p *program) takeLog() {
	log.SetFlags(0)
	log.SetOutput(writeFunc(func(text []byte) (int, error) {
		p.output.note("%s", bytes.TrimSpace(text))
		return len(text), nil
	}))
}

type writeFunc func([]byte) (int, error)

func (f writeFunc) Write(text []byte) (int, error) { return f(text) }

// run reads the settings, and does what the user asks for: it runs a command if the first word
// names one, and else asks a question.
func (p *program) run(ctx context.Context, args []string) error {
	secrets := p.output.screen.Secrets
	p.settings.model.readKey(secrets)
	addProxies(secrets)
	flags := p.settings.flags()
	words, isQuestion, err := parseFlags(flags, args)
	if err != nil {
		return err
	}
	if p.settings.showVersion {
		words = []string{"version"}
	}
	// name is the word that may name a command.
	name := ""
	if len(words) > 0 && !isQuestion {
		name = words[0]
	}
	command, isCommand := p.commandNamed(name)
	if err := p.settings.checkCommand(command.name); err != nil {
		return err
	}
	if !isCommand && !isQuestion {
		if err := p.checkTyping(words); err != nil {
			return err
		}
	}
	switch command.name {
	case "serve", "help", "version", "completion":
		// These commands need neither the model nor the servers, and work also where the model or
		// the servers are misconfigured.
	default:
		if err := p.settings.finish(ctx, flags, p.input, secrets); err != nil {
			return err
		}
	}
	if !isCommand {
		return p.conversation.run(ctx, strings.Join(words, " "))
	}
	return command.run(ctx, words[1:])
}

// checkTyping reports a question that is a command of mcphost, or is one word and nearly the name
// of a command.
func (p *program) checkTyping(words []string) error {
	if err := checkMcphostCommand(words); err != nil || len(words) != 1 {
		return err
	}
	word := words[0]
	name, isNear := p.meant(word)
	instead := ""
	switch {
	case word == "chat":
		instead = "a chat is mcpagent alone, on a terminal"
	case IsQuit(word):
		instead = "/quit ends a chat"
	}
	if instead != "" {
		return usageError("%q is no command: %s; mcpagent -- %[1]s asks it as a question",
			word, instead)
	}
	// A slash stands before the commands of a chat alone.
	bare, hasSlash := strings.CutPrefix(word, "/")
	if hasSlash {
		name, isNear = nearest(bare, new(chat).commandNames())
		name = "/" + name + " in a chat"
	}
	if !isNear || strings.Contains(word, " ") {
		return nil
	}
	return usageError("%q is no command: did you mean %s? mcpagent -- %[1]s asks it as a question",
		word, name)
}
