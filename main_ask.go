// main_ask.go - a question to the model.
// SPDX-License-Identifier: 0BSD

package main

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
)

// conversation is the use of the program without a command: a question, or a chat. The settings are
// checked first, then the saved conversation is locked, then the servers are started. So a mistake
// is told before anything has happened, and a run that waits for another one's saved conversation
// has no servers running.
type conversation struct {
	settings   *settings
	output     *output
	terminal   *Terminal
	input      *textInput
	model      *modelChoice
	servers    *servers
	requests   *serverRequests
	agents     *agents
	catalog    *catalog
	interrupts *interrupts
}

// run asks a question. If none is given, a person on a terminal gets a chat, and elsewhere the
// question is read from stdin.
func (a *conversation) run(ctx context.Context, question string) error {
	isChat := question == "" && a.terminal.Interactive()
	file := a.settings.output.file
	if file == "-" {
		return usageError("-o - works with call and read alone: with a question, -o takes a file")
	}
	if isChat && (a.settings.output.json || file != "") {
		return usageError("-o and -json need a question: give it as an argument or on stdin")
	}
	if !isChat {
		var err error
		question, err = a.withStdin(ctx, question)
		if err != nil {
			return err
		}
	}
	if err := a.model.check(); err != nil {
		return err
	}
	a.output.inChat, a.output.screen.Keep = isChat, isChat
	kept, err := openSession(ctx, &a.settings.asking, isChat, a.output)
	if err != nil {
		return err
	}
	defer kept.close()
	a.servers.tasks.useSession(kept)
	closeServers, err := a.servers.open(ctx)
	if err != nil {
		return err
	}
	defer closeServers()
	if err := a.startServers(ctx, isChat); err != nil {
		return err
	}
	a.remark()
	if isChat {
		return a.newChat(ctx, kept).run(ctx)
	}
	return a.answer(ctx, question, kept)
}

// startServers starts the servers, if there are any. Those of a chat start beside it, unless none
// of them ever can: then the error says why.
func (a *conversation) startServers(ctx context.Context, isChat bool) error {
	servers := a.servers.config.servers
	isUsable := func(s Server) bool { return s.Err == nil }
	isBeside := isChat && slices.ContainsFunc(servers, isUsable)
	if len(servers) == 0 || isBeside {
		return nil
	}
	return a.servers.start(ctx)
}

// remark tells the user what they may not expect of the model that will answer. That it is none is
// said with -q, too: a script would take the answer for that of a model. So are the settings
// without effect then, as the user may have named the model there.
func (a *conversation) remark() {
	config := a.servers.config
	isOffline := a.model.current().Model == offline
	tell := a.output.note
	if isOffline {
		tell = a.output.warn
	}
	if text := withoutEffect(config.others, a.settings); text != "" {
		tell("%s: %s", config.file, text)
	}
	if system := a.settings.model.system; namesFile(system) {
		by := givenBy(a.settings.given, "system", "MCP_SYSTEM")
		a.output.note("%s: the model gets the name of a file; %s gives it the text",
			by, word("@"+system))
	}
	if len(config.servers) == 0 {
		a.output.note("%s has no servers: the model answers without tools", config.file)
	}
	if isOffline {
		a.output.warn("no model is set (MISTRAL_API_KEY, or -m ollama:NAME): the built-in " +
			"stand-in answers; it is not a language model")
	}
}

// withStdin returns a question with the text on stdin behind it. Stdin is read if it is a pipe or a
// file, or if the question is empty.
func (a *conversation) withStdin(ctx context.Context, question string) (string, error) {
	if question != "" && !isPiped() {
		return question, nil
	}
	text, err := a.input.all(ctx, os.Stdin)
	if err != nil {
		return "", err
	}
	question = strings.TrimSpace(question + "\n\n" + strings.Trim(text, "\r\n"))
	if question == "" {
		return "", usageError("the question on stdin is empty")
	}
	return question, nil
}

// answer asks one question, and prints its answer or its report. After an error it still saves the
// conversation, and prints what there is of the answer.
func (a *conversation) answer(ctx context.Context, question string, kept *keptSession) error {
	view := a.agents.newView(ctx)
	agent, report := a.agents.newAgent(view, kept)
	maxResult := a.settings.asking.maxResult
	var err error
	agent.History, err = a.servers.finishTasks(ctx, kept.session.History, maxResult, true)
	err = errors.Join(err, kept.keep(agent, a.model.current().Model))
	if err != nil {
		return err
	}
	screen, wantsJSON := a.output.screen, a.settings.output.json
	if screen.Live && screen.Answers && !wantsJSON {
		agent.OnText = view.Text
	}
	report.begin(a.model.current().Model, a.terminal.Asked())
	a.output.report = report
	view.Begin(report.Model)
	answer, err := agent.Chat(ctx, question)
	view.End()
	report.finish(answer, agent.Usage, a.terminal.Asked(), err)
	// The conversation is saved also if the question failed: it has the calls that were made.
	saved := a.save(kept, agent)
	// On a terminal the view has printed the answer piece by piece.
	isPrinted := agent.OnText != nil
	var printed error
	switch {
	case wantsJSON && err == nil:
		printed = a.output.printJSON(report)
	case wantsJSON:
		// The JSON of the error has the report.
	case !isPrinted && answer != "":
		printed = a.output.print(withLineEnd(answer))
	}
	if err != nil {
		err = a.agents.agentError(err)
	} else if !wantsJSON {
		model := report.Model + ": "
		columns := screen.Columns() - Width(model)
		a.output.note("%s%s", model, report.summary(columns, a.model.listed().Context))
	}
	failed := errors.Join(err, saved)
	if failed != nil && isClosedStdout(printed) {
		// A run that ends with the error of a closed stdout counts as successful. This one has
		// failed, whether or not somebody reads stdout.
		return failed
	}
	return errors.Join(failed, printed)
}

// save keeps the conversation, and reports whether the files of -o could be written.
func (a *conversation) save(kept *keptSession, agent *Agent) error {
	err := kept.keep(agent, a.model.current().Model)
	if err != nil {
		return err
	}
	if a.settings.output.file != "" && a.output.files.count == 0 {
		return exitWith(exitTool, "-o: no result has an image, or other bytes")
	}
	return a.output.files.failed
}
