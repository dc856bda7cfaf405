// main_chat.go - the chat: a conversation on a terminal.
// SPDX-License-Identifier: 0BSD

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"strings"
	"unicode/utf8"
)

// errQuit ends a chat: the user has asked for it.
var errQuit = errors.New("quit")

// chat is a conversation on a terminal. Its lines are carried out one after another, by one
// goroutine. Only complete is called by another one, while the user types.
type chat struct {
	output     *output
	terminal   *Terminal
	interrupts *interrupts
	model      *modelChoice
	servers    *servers
	requests   *serverRequests
	catalog    *catalog
	agents     *agents

	view     *View
	agent    *Agent
	report   *report      // of the last question
	kept     *keptSession // what /save writes, and after each answer -session
	attached attachments  // for the next question

	wasInterrupted bool // the user's last act was a Ctrl-C: another one is the second in a row
}

// newChat returns a chat that continues a conversation, until ctx ends. The servers are open.
func (a *conversation) newChat(ctx context.Context, kept *keptSession) *chat {
	c := &chat{
		output:     a.output,
		terminal:   a.terminal,
		interrupts: a.interrupts,
		model:      a.model,
		servers:    a.servers,
		requests:   a.requests,
		catalog:    a.catalog,
		agents:     a.agents,
		view:       a.agents.newView(ctx),
		kept:       kept,
	}
	c.agent, c.report = a.agents.newAgent(c.view, kept)
	c.agent.History = kept.session.History
	c.agent.OnText = c.view.Text
	c.agents.approver.quit = c.quit
	return c
}

// run talks to the user until the user ends the chat. A question or a command that fails is
// reported, and the chat goes on.
func (c *chat) run(ctx context.Context) error {
	if !IsTerminal(os.Stderr) {
		return usageError("a chat asks on stderr, which is not a terminal: " +
			"give a question as an argument or on stdin")
	}
	defer c.interrupts.cancelLine.Store(nil)
	defer c.servers.watch(ctx)()
	defer c.model.readList(ctx)()
	// A server may have asked something before. Then a goroutine of the terminal reads keys
	// already, so the function is stored atomically.
	complete := func(text string) []string { return c.complete(ctx, text) }
	c.terminal.Complete.Store(&complete)
	c.output.say("mcpagent %s with %s; /help shows the commands, Ctrl-D quits",
		version, c.model.current().Model)
	work, end := c.interruptible(ctx)
	err := c.finishTasks(work)
	end(nil)
	if err != nil && ctx.Err() == nil {
		c.output.screen.Show(Look{Style: Red, Max: maxShown}, err.Error())
	}
	for {
		line, cancelled, err := c.nextLine(ctx)
		switch {
		case err == errQuit || err == io.EOF:
			if c.kept.isChat && c.kept.isKept() {
				c.output.say("(this chat is kept: mcpagent -c goes on with it)")
			}
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case cancelled && line == "" && c.servers.logins.giveUp():
			// The login that the user was asked for ends, and its end is shown in the chat.
		case cancelled:
			c.wasInterrupted = true
			c.terminal.Break(ctx)
			c.output.say("(cancelled; Ctrl-C once more ends the chat)")
		case err != nil:
			c.output.screen.Show(Look{Style: Red, Max: maxShown}, err.Error())
		}
	}
}

// nextLine reads a line, and carries it out. cancelled is set if a Ctrl-C ended the typing or the
// work.
func (c *chat) nextLine(ctx context.Context) (line string, cancelled bool, err error) {
	c.output.screen.Show(Look{}, "")
	typing, end := c.interruptible(ctx)
	line, err = c.terminal.Prompt(typing, "> ")
	end(nil)
	if err != nil || strings.TrimSpace(line) == "" {
		return line, context.Cause(typing) == ErrCancelled, err
	}
	c.wasInterrupted = false
	work, end := c.interruptible(ctx)
	err = c.do(work, line)
	end(nil)
	if context.Cause(work) == errQuit {
		// That the question was cancelled is not worth a word, and a chat that is not saved is.
		if saved := c.keep(); saved != nil {
			c.output.screen.Show(Look{Style: Red, Max: maxShown}, saved.Error())
		}
		err = errQuit
	}
	return line, context.Cause(work) == ErrCancelled, err
}

// quit ends the chat while a line is carried out, which it ends first.
func (c *chat) quit() {
	// After a Ctrl-C there is none: the line is ending.
	if cancel := c.interrupts.cancelLine.Load(); cancel != nil {
		(*cancel)(errQuit)
	}
}

// interruptible returns a context that the next Ctrl-C ends. Where that would be the second one in
// a row, the next Ctrl-C ends the program instead (see interrupts).
func (c *chat) interruptible(ctx context.Context) (context.Context, context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	if !c.wasInterrupted {
		c.interrupts.cancelLine.Store(&cancel)
	}
	return ctx, cancel
}

// do carries out a line: the address at which a login ended, a command, which begins with a slash,
// or a question. A blank at its beginning makes any line a question.
func (c *chat) do(ctx context.Context, line string) error {
	c.requests.samples.Store(0)
	if c.servers.logins.pasted(line) != nil {
		return nil
	}
	err := c.terminal.Remember(line, !c.agents.settings.asking.noHistory)
	if err != nil {
		c.output.say("(what you type is not kept for the next chat: %v)", err)
	}
	if !strings.HasPrefix(line, "/") {
		if name := c.commandWithoutSlash(line); name != "" {
			return fmt.Errorf("not sent to the model: type /%s for the command, or a space before "+
				"%s to ask it as a question", name, strings.TrimSpace(line))
		}
		return c.question(ctx, strings.TrimSpace(line))
	}
	name, args, _ := strings.Cut(line[1:], " ")
	name = knownCommand(name)
	for _, command := range c.commands() {
		if command.name != name {
			continue
		}
		if command.args == "FILE" && args == "" {
			return fmt.Errorf("/%s takes the name of a file", name)
		}
		return command.run(ctx, strings.TrimSpace(args))
	}
	if near, isNear := nearest(name, c.commandNames()); isNear {
		return fmt.Errorf("there is no command /%s: did you mean /%s?", name, near)
	}
	return fmt.Errorf("there is no command /%s; /help lists the commands", name)
}

// attachments are resources that go with a question.
type attachments struct {
	texts  []string
	images []string // of the texts: see ChatMessage
}

var mention = regexp.MustCompile(`(?:^|\s)@([^\s@]+)`)

// question asks the model what the user has typed, with the resources that are attached, and with
// what the question names: the resources @SERVER:URI, or @URI if that has "://", and the files
// @./FILE, @../FILE, @~/FILE or @/FILE. Any other text after an @ is left as it is, for it may be
// an address or a person's name, as is @/FILE where there is no such file: programs import by such
// names. If the question does not get to the model, the user types it again; so what it named is
// taken off.
func (c *chat) question(ctx context.Context, question string) error {
	before := c.attached
	for _, match := range mention.FindAllStringSubmatch(question, -1) {
		const endOfSentence = ".,;:!?)]}'\""
		name := strings.TrimRight(match[1], endOfSentence)
		server, _ := c.servers.config.split(name)
		attach := c.attach
		switch {
		case server != "" || strings.Contains(name, "://"):
		case isPath(name):
			attach = c.attachFile
		default:
			continue
		}
		if err := attach(ctx, name); err != nil {
			c.attached = before
			return fmt.Errorf("@%s: %w (nothing was asked)", name, err)
		}
	}
	err := c.send(ctx, question, c.attached.images)
	wasSent := c.attached.texts == nil
	if !wasSent {
		c.attached = before
	}
	return err
}

// maxAttachment bounds in bytes what a resource may add to a question.
const maxAttachment = 128 << 10

// attach reads a resource for the next question, and shows its beginning.
func (c *chat) attach(ctx context.Context, name string) error {
	result, err := c.catalog.readResource(ctx, name)
	if err != nil {
		return err
	}
	c.attachResult(name, result)
	return nil
}

// attachFile reads a file of this machine for the next question, as attach does with a resource.
func (c *chat) attachFile(_ context.Context, name string) error {
	data, err := ReadRegular(expandHome(name), MaxImage)
	if errors.Is(err, fs.ErrNotExist) && name[0] == '/' {
		return nil
	}
	if err != nil {
		return err
	}
	contents := &ResourceContents{URI: name, Text: string(data)}
	if !utf8.Valid(data) || bytes.IndexByte(data, 0) >= 0 {
		contents = &ResourceContents{URI: name, Blob: data}
	}
	block := ContentBlock{Type: "resource", Resource: contents}
	c.attachResult(name, &ToolResult{Content: []ContentBlock{block}})
	return nil
}

// attachResult puts what was read of a resource or a file to the next question.
func (c *chat) attachResult(name string, result *ToolResult) {
	text, images := fmt.Sprintf("[resource: %s] (empty)", name), c.attached.images
	if len(result.Content) > 0 {
		text, images = ModelContent(result, images)
	}
	text = Clip(text, maxAttachment)
	c.attached = attachments{append(c.attached.texts, text), images}
	c.output.screen.Preview(Look{Style: Faint}, name, text)
	c.output.say("(%s goes with the question: %s)", name, Plural(len(text), "byte"))
}

// send sends a question to the model, with the texts that are attached. images are the images of
// the question and of the attachments.
func (c *chat) send(ctx context.Context, question string, images []string) error {
	if len(c.servers.config.servers) > 0 {
		if err := c.servers.start(ctx); err != nil {
			return err
		}
	}
	// At the beginning of the chat the user was told that a server is starting, and each answer
	// without its tools may miss something.
	if late := starting(c.servers.host.Status()); late != nil {
		c.output.say("(asking without servers that are still starting: %s)", OneNames(late))
	}
	if err := c.finishTasks(ctx); err != nil {
		return err
	}
	question = strings.Join(append([]string{question}, c.attached.texts...), "\n\n")
	c.attached = attachments{}
	c.report.begin(c.model.current().Model, c.terminal.Asked())
	c.view.Begin(c.report.Model)
	answer, err := c.agent.Chat(ctx, question, images...)
	c.view.End()
	c.report.finish(answer, c.agent.Usage, c.terminal.Asked(), err)
	saved := c.keep()
	if isTooLong(err) {
		err = fmt.Errorf("%w (/compact replaces the older half with a summary, "+
			"/save FILE keeps it, /clear begins a new one, /model NAME chooses another model)", err)
	}
	// A question that failed, or was cancelled, may have cost as much as one that is answered.
	isWorthTelling := err == nil || c.report.Usage != nil
	if isWorthTelling && !c.output.settings.quiet {
		window := c.model.listed().Context
		c.output.screen.Separate("summary")
		c.output.say("%s", c.report.summary(c.output.screen.Columns(), window))
	}
	if err != nil {
		return errors.Join(c.agents.agentError(err), saved)
	}
	c.offerCompact(ctx)
	return saved
}

// finishTasks gives the model the results of tasks that have ended since another run was killed.
func (c *chat) finishTasks(ctx context.Context) error {
	maxResult := c.agents.settings.asking.maxResult
	history, err := c.servers.finishTasks(ctx, c.agent.History, maxResult, false)
	c.agent.History = history
	// The tokens of the last question have been counted.
	c.agent.Usage = Usage{}
	return errors.Join(err, c.keep())
}

// keep puts the agent's conversation into the session, and into the file of -session.
func (c *chat) keep() error { return c.kept.keep(c.agent, c.model.current().Model) }

// tooLong matches the errors of APIs about a conversation that does not fit the model.
var tooLong = regexp.MustCompile(`(?i)context (length|window|size)|too (large|long)`)

func isTooLong(err error) bool {
	return errors.As(err, new(*APIError)) && tooLong.MatchString(err.Error())
}
