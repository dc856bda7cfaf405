// main_chat.go - the chat.
// SPDX-License-Identifier: 0BSD

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
)

// errQuit ends a chat: the user has asked for it.
var errQuit = errors.New("quit")

// chat is a conversation on a terminal.
type chat struct {
	*program
	host  *Host
	view  *View
	agent *Agent

	session     *Session // what /save writes, and after each answer -session
	answers     *report  // to the last question
	attached    []string // resources for the next question
	images      []string // in them: see ChatMessage
	interrupted bool     // the last thing that the user did was an interrupt: the next one ends the program
}

// chat talks to the user until they end it. A question or a command that fails is reported, and ends nothing.
func (p *program) chat(ctx context.Context, host *Host, session *Session) error {
	if !IsTerminal(os.Stderr) {
		return usageError("a chat asks on stderr, which is not a terminal: give a question as an argument or on stdin")
	}
	c := &chat{program: p, host: host, view: p.newView(host), session: session}
	c.agent, c.answers = p.newAgent(host, c.view)
	c.agent.History = session.History
	c.agent.OnText, c.screen.Keep = c.view.Text, true
	defer p.turn.Store(nil)
	defer p.watch(ctx, host)()
	complete := func(text string) []string { return c.complete(ctx, text) }
	c.terminal.Complete.Store(&complete) // keys may be read already, as a server may have asked something
	c.say(fmt.Sprintf("mcpagent %s with %s; /help shows the commands, Ctrl-D quits", version, c.mistral().Model))
	for {
		c.screen.Show(Look{}, "")
		turn, end := c.begin(ctx)
		line, err := c.terminal.Prompt(turn, "> ")
		if end(nil); err == nil && strings.TrimSpace(line) != "" {
			c.interrupted = false
			turn, end = c.begin(ctx)
			err = c.do(turn, line)
			end(nil)
		}
		switch cancelled := context.Cause(turn) == ErrCancelled; {
		case err == errQuit || err == io.EOF:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case cancelled && line == "" && c.giveUpLogins(): // which says so
		case cancelled:
			c.interrupted = true
			c.terminal.Break(ctx)
			c.say("(cancelled; Ctrl-C once more ends the chat)")
		case err != nil:
			c.screen.Show(Look{Style: Red, Max: maxShown}, err.Error())
		}
	}
}

// begin returns a context that the next interrupt ends, unless it is the second in a row: that ends the program.
func (c *chat) begin(ctx context.Context) (context.Context, context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	if !c.interrupted {
		c.turn.Store(&cancel)
	}
	return ctx, cancel
}

// do carries out a line. What begins with a slash is a command; a blank before it makes it a question.
func (c *chat) do(ctx context.Context, line string) error {
	c.samples.Store(0)
	if c.pasted(line) {
		return nil
	}
	if c.terminal.Remember(line); !strings.HasPrefix(line, "/") {
		return c.question(ctx, strings.TrimSpace(line))
	}
	name, args, _ := strings.Cut(line[1:], " ")
	for _, command := range c.commands() {
		if command.name == name && command.args == "FILE" && args == "" {
			return fmt.Errorf("/%s takes the name of a file", name)
		}
		if command.name == name {
			return command.run(ctx, strings.TrimSpace(args))
		}
	}
	return fmt.Errorf("there is no command /%s; /help lists the commands", name)
}

var mention = regexp.MustCompile(`(?:^|\s)@([^\s@]+)`)

// question asks the model what the user has typed, with the resources beside it, also those that it names:
// @SERVER:URI, or @URI if it has "://". Anything else after an @ stays: it may be an address, or a person's name.
func (c *chat) question(ctx context.Context, question string) error {
	attached, images := c.attached, c.images
	for _, match := range mention.FindAllStringSubmatch(question, -1) {
		name := strings.TrimRight(match[1], ".,;:!?)]}'\"") // of the sentence
		if server, _ := c.serverIn(name); server == "" && !strings.Contains(name, "://") {
			continue
		}
		if err := c.attach(ctx, name); err != nil {
			c.attached, c.images = attached, images
			return fmt.Errorf("@%s: %w (nothing was asked)", name, err)
		}
	}
	err := c.send(ctx, question, c.images...)
	if c.attached != nil { // nothing was asked
		c.attached, c.images = attached, images
	}
	return err
}

// maxAttachment bounds in bytes what a resource may add to a question.
const maxAttachment = 128 << 10

// attach reads a resource that goes with the next question, and shows its beginning.
func (c *chat) attach(ctx context.Context, name string) error {
	result, err := c.readResource(ctx, c.host, name)
	if err != nil {
		return err
	}
	text := fmt.Sprintf("[resource: %s] (empty)", name)
	if len(result.Content) > 0 {
		text, c.images = ModelContent(result, c.images)
	}
	text = Clip(text, maxAttachment)
	c.attached = append(c.attached, text)
	c.screen.Preview(Look{Style: Faint}, name, text)
	c.say(fmt.Sprintf("(%s goes with the question: %s)", name, Plural(len(text), "byte")))
	return nil
}

// send sends a question to the model, with the resources beside it. Their images are among the images.
func (c *chat) send(ctx context.Context, question string, images ...string) error {
	if err := c.startServers(ctx, c.host); err != nil {
		return err
	}
	question = strings.Join(append([]string{question}, c.attached...), "\n\n")
	c.attached, c.images, c.answers.Calls = nil, nil, nil
	c.view.Begin(c.mistral().Model)
	c.agent.System = c.systemPrompt(c.host) // of more servers than before
	_, err := c.agent.Chat(ctx, question, images...)
	c.view.End()
	saved := c.keep(c.session, c.agent)
	if isTooLong(err) {
		err = fmt.Errorf("%w (/compact puts a summary in place of the older half, /save FILE keeps it, /clear begins "+
			"a new one, /model NAME chooses another model)", err)
	}
	if err != nil {
		return errors.Join(c.agentError(err), saved)
	}
	c.offerCompact(ctx)
	return saved
}

// tooLong matches what servers say of a conversation that does not fit the model.
var tooLong = regexp.MustCompile(`(?i)context (length|window|size)|too (large|long)`)

func isTooLong(err error) bool {
	return errors.As(err, new(*APIError)) && tooLong.MatchString(err.Error())
}

// say shows what the program itself says.
func (c *chat) say(text string) { c.screen.Show(Look{Style: Faint}, text) }

// complete returns what the last word of a text may become: a command, or @SERVER:URI of what the servers list within
// a second.
func (c *chat) complete(ctx context.Context, text string) (words []string) {
	word := text[strings.LastIndexAny(text, " \t\n")+1:]
	if word == text {
		for _, command := range c.commands() {
			words = append(words, "/"+command.name)
		}
	}
	soon, cancel := context.WithTimeout(ctx, glance)
	defer cancel()
	for _, s := range c.host.Status() {
		if s.Err == nil && strings.HasPrefix(word, "@") {
			resources, _ := c.entriesOf(soon, c.host, "resources", s.Name)
			for _, r := range resources {
				uri := "@" + s.Name + ":" + r.name
				if mention.FindString(uri) == uri && !strings.Contains(uri, "{") { // which a template has
					words = append(words, uri)
				}
			}
		}
	}
	return slices.DeleteFunc(words, func(w string) bool { return !strings.HasPrefix(w, word) })
}

// chatCommand is a command after a slash.
type chatCommand struct {
	name, args, what string
	run              func(ctx context.Context, args string) error
}

func (c *chat) commands() []chatCommand {
	ofServers := func(run func(context.Context, *Host, ...string) error) func(context.Context, string) error {
		return func(ctx context.Context, args string) error { return run(ctx, c.host, strings.Fields(args)...) }
	}
	return []chatCommand{
		{"tools", "[SERVER|TOOL]", "list the tools of every server, or of one; or show a tool", ofServers(c.list("tools"))},
		{"servers", "[SERVER]", "show how the servers are", ofServers(c.listServers)},
		{"reconnect", "[SERVER]", "start a server again, or those that are not running", c.reconnect},
		{"show", "[N]", "show all of a result that was cut, or of the last one", c.show},
		{"resource", "[[SERVER:]URI]", "add a resource to the next question, or list them", c.resource},
		{"prompt", "[NAME KEY=VALUE ...]", "ask with a prompt of a server, or list them", c.askPrompt},
		{"model", "[NAME]", "show the model, or choose another", c.chooseModel},
		{"usage", "", "show the tokens used so far", c.showUsage},
		{"compact", "", "put a summary in place of the older half of the conversation", c.compact},
		{"clear", "", "begin a new conversation", c.clear},
		{"save", "FILE", "write the conversation to a file", c.save},
		{"load", "FILE", "continue the conversation in a file", c.load},
		{"help", "", "show this", c.help},
		{"quit", "", "end the chat, as Ctrl-D does", func(context.Context, string) error { return errQuit }},
	}
}

func (c *chat) help(context.Context, string) error {
	for _, command := range c.commands() {
		format := "%-28s\t%s"
		if c.screen.Columns() < 64 {
			format = "%s\n    %s"
		}
		c.screen.Show(Look{}, fmt.Sprintf(format, "/"+command.name+" "+command.args, command.what))
	}
	c.say("\n@SERVER:URI in a question adds a resource to it. A backslash at the end of a line and Alt-Enter " +
		"begin a new one. Tab completes commands and resources, Up and Down show what was said before. A question " +
		"that begins with a slash needs a space before it.\nCtrl-C cancels what is running and keeps the " +
		"conversation; twice, it ends the chat.")
	return nil
}

func (c *chat) show(ctx context.Context, number string) error {
	return c.terminal.PageKept(ctx, number)
}

// reconnect starts servers again: that of this name, or else those that are not running. It waits a moment for them: a
// start that takes longer goes on beside the chat.
func (c *chat) reconnect(ctx context.Context, name string) error {
	var names []string
	for _, s := range c.host.Status() {
		if s.Name == name || name == "" && s.Err != nil && !isStarting(s) {
			names = append(names, s.Name)
		}
	}
	if names == nil {
		return fmt.Errorf("nothing is to be started again: /reconnect takes the name of a server, one of %s, or starts "+
			"those that are not running", strings.Join(ServerNames(c.servers), ", "))
	}
	soon, cancel := context.WithTimeout(ctx, glance)
	defer cancel()
	for _, name := range names {
		if l := c.logins[name]; l != nil {
			if q := l.asking.Load(); q != nil {
				c.screen.Show(Look{}, q.text)
				continue
			}
			l.failed.Store(nil)
		}
		_ = c.host.Restart(soon, name) // which goes on; the list has its state
	}
	return c.listServers(ctx, c.host, names...)
}

func (c *chat) resource(ctx context.Context, name string) error {
	if name == "" {
		return c.list("resources")(ctx, c.host)
	}
	return c.attach(ctx, name)
}

// askPrompt asks with a prompt of a server. Several messages become one question, each with its role.
func (c *chat) askPrompt(ctx context.Context, text string) error {
	words, err := SplitWords(text)
	if err != nil {
		return err
	}
	if len(words) == 0 {
		return c.list("prompts")(ctx, c.host)
	}
	result, err := c.getPrompt(ctx, c.host, words)
	if err != nil {
		return err
	}
	var messages []string
	images := c.images
	for _, m := range result.Messages {
		var message string
		message, images = ModelContent(&ToolResult{Content: []ContentBlock{m.Content}}, images)
		if len(result.Messages) > 1 {
			message = m.Role + ": " + message
		}
		c.screen.Preview(Look{Style: Faint}, words[0], message)
		messages = append(messages, message)
	}
	c.screen.Show(Look{}, "")
	return c.send(ctx, strings.Join(messages, "\n\n"), images...)
}

func (c *chat) showUsage(context.Context, string) error {
	c.say(fmt.Sprintf("last question: %s\nall questions: %s\nthe conversation: %s",
		tokens(c.agent.Usage), tokens(c.session.Usage), Plural(len(c.agent.History), "message")))
	return nil
}

func (c *chat) clear(context.Context, string) error {
	c.agent.History, c.session.History, c.attached, c.images = nil, nil, nil, nil
	said := "(a new conversation)"
	if c.program.session != "" {
		said = fmt.Sprintf("(a new conversation; its first answer replaces the one in %s)", c.program.session)
	}
	c.say(said)
	return nil
}

func (c *chat) save(ctx context.Context, path string) error {
	own, _ := os.Stat(c.program.session) // which is locked already
	file, _ := os.Stat(path)
	if path != c.program.session && !os.SameFile(file, own) {
		soon, cancel := context.WithTimeout(ctx, moment)
		defer cancel()
		if release, err := LockSession(soon, path); err == nil {
			defer release()
		} else if errors.Is(err, ErrSessionBusy) {
			return err
		}
	}
	err := SaveSession(path, c.session)
	if err == nil {
		c.say(fmt.Sprintf("(%s in %s)", Plural(len(c.session.History), "message"), path))
	}
	return err
}

// load continues another conversation. It is none for a chat whose own would be replaced by it.
func (c *chat) load(_ context.Context, path string) error {
	if c.program.session != "" {
		return fmt.Errorf("what follows would replace the conversation in %s: leave this chat, and run: mcpagent "+
			"-session %s", c.program.session, word(path))
	}
	session, err := LoadSession(path)
	if err != nil {
		return err
	}
	c.session, c.agent.History = session, session.History
	c.say(fmt.Sprintf("(%s from %s)", Plural(len(session.History), "message"), path))
	return nil
}

// newView shows what agents do with the host.
func (p *program) newView(host *Host) *View {
	v := &View{Screen: p.screen, Quiet: p.quiet, Raw: p.raw, Save: SaveFile, MaxResult: p.maxResult}
	if p.output != "" {
		v.Save = p.save
	} else if p.json || p.quiet { // nobody would find them
		v.Save = nil
	}
	v.Name = func(name string) string {
		t, err := host.Tool(name)
		if err != nil {
			return name
		}
		return t.Server + ":" + t.Tool.Name
	}
	return v
}
