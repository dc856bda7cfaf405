// main_chat.go - the chat.
// Needs: Go 1.25, json.go, rpc.go, transport_stdio.go, transport_stdio_unix.go, transport_stdio_windows.go, transport_http_events.go, transport_http.go, transport_http_params.go, transport_sse.go, mcp_types.go, elicitation.go, mcp.go, mcp_input.go, mcp_lists.go, mcp_handshake.go, mcp_repair.go, mistral.go, mcp_model.go, sampling.go, agent.go, connect.go, host_server.go, host.go, config.go, mask.go, search.go, corpus.go, library_tools.go, library.go, library_http_answer.go, library_http.go, offline.go, terminal_unix.go, terminal_other.go, terminal_screen.go, terminal.go, terminal_view.go, session.go, main.go, main_host.go, main_log.go, main_ask.go, main_commands.go, main_server.go.
// SPDX-License-Identifier: 0BSD

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// errQuit ends a chat at the user's word.
var errQuit = errors.New("quit")

// chat is a conversation on a terminal.
type chat struct {
	*program
	host    *Host
	view    *View
	agent   *Agent
	breaker *breaker

	session  *Session     // of -session; an empty one if there is none
	usage    Usage        // of all questions
	context  int          // tokens of the last request and its answer: what the conversation takes
	attached []attachment // for the next question
	file     string       // last saved to or loaded from
}

// attachment is a resource that goes with a question.
type attachment struct {
	name string
	text string
}

// chat talks to the user until they have had enough. A question, or a command, that fails is told of and ends nothing.
func (p *program) chat(ctx context.Context, host *Host) error {
	if !isTerminal(os.Stderr) {
		return usageError("a chat asks on stderr, which is no terminal: give a question as an argument or on stdin")
	}
	session, err := p.resume()
	if err != nil {
		return err
	}
	c := &chat{program: p, host: host, view: p.newView(host), breaker: new(breaker), session: session, usage: session.Usage, file: p.session}
	c.agent, _ = p.newAgent(host, c.view)
	c.agent.History = session.History
	c.agent.OnText = c.view.Text
	observe := c.agent.Observe
	c.agent.Observe = func(e Event) {
		if e.Kind == TurnEnded && e.Response.Usage.TotalTokens > 0 {
			c.context = e.Response.Usage.TotalTokens
		}
		observe(e)
	}
	p.breaker.Store(c.breaker)
	defer p.breaker.Store(nil)
	c.greet()
	for {
		line, err := c.prompt(ctx)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err == io.EOF:
			return nil
		case err != nil:
			c.say("(Ctrl-C once more, Ctrl-D or /quit ends the chat)")
			continue
		}
		turn, done := c.breaker.begin(ctx)
		err = c.do(turn, line)
		interrupted := context.Cause(turn) == ErrCancelled
		done()
		switch {
		case err == errQuit:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case interrupted:
			c.terminal.Break()
			c.terminal.Forget(ctx)
			c.say("(cancelled; what was said so far is kept. Ctrl-C once more ends the chat)")
		case err != nil:
			c.fail(err)
		}
	}
}

func (c *chat) greet() {
	servers, tools := 0, 0
	for _, s := range c.host.Status() {
		if s.Err == nil {
			servers, tools = servers+1, tools+s.Tools
		}
	}
	text := fmt.Sprintf("mcpagent %s with %s, %s", version, c.agent.Model.Model, plural(servers, "server"))
	if tools > 0 {
		text += ", " + plural(tools, "tool")
	}
	if n := len(c.agent.History); n > 0 {
		text += ", going on after " + plural(n, "message")
	}
	c.say("%s\n/help tells what there is, Ctrl-D ends the chat", text)
}

// prompt reads what the user wants. An empty line is nothing.
func (c *chat) prompt(ctx context.Context) (line string, err error) {
	reading, done := c.breaker.begin(ctx)
	defer done()
	for err == nil && strings.TrimSpace(line) == "" {
		fmt.Fprintln(c.screen)
		line, err = c.terminal.Prompt(reading, c.screen.style(bold, ">")+" ")
	}
	if err == nil {
		c.breaker.disarm()
	}
	return line, err
}

// do does what a line says. One that begins with a slash is a command; a blank or a second slash before it makes it a question.
func (c *chat) do(ctx context.Context, line string) error {
	if text, ok := strings.CutPrefix(line, "//"); ok {
		line = " /" + text
	}
	if !strings.HasPrefix(line, "/") {
		return c.question(ctx, strings.TrimSpace(line))
	}
	name, args, _ := strings.Cut(line[1:], " ")
	var names []string
	for _, command := range chatCommands() {
		if command.name == name {
			return command.run(c, ctx, strings.TrimSpace(args))
		}
		names = append(names, command.name)
	}
	nearest := slices.MinFunc(names, func(a, b string) int { return distance(name, a) - distance(name, b) })
	hint := "/help names those that there are"
	if distance(name, nearest) <= 2 {
		hint = "did you mean /" + nearest + "?"
	}
	return fmt.Errorf("there is no command /%s; %s\n(put a space before a question that begins with a slash)", cut(name, 30), hint)
}

// question asks the model.
func (c *chat) question(ctx context.Context, question string) error {
	attached, err := c.mentioned(ctx, question)
	if err != nil {
		return err
	}
	for _, a := range append(c.attached, attached...) {
		question += "\n\n" + a.text
	}
	c.attached = nil
	c.view.Begin(c.agent.Model.Model)
	_, err = c.agent.Chat(ctx, question)
	c.view.End()
	c.usage.PromptTokens += c.agent.Usage.PromptTokens
	c.usage.CompletionTokens += c.agent.Usage.CompletionTokens
	c.usage.TotalTokens += c.agent.Usage.TotalTokens
	saved := c.keep(c.session, c.agent)
	if api := new(APIError); errors.As(err, &api) && api.TooLong() {
		return fmt.Errorf("%w\nThe conversation is kept as it is: /save FILE writes it down, /clear begins a new one, /model NAME takes a model that holds more", err)
	}
	if err != nil {
		return errors.Join(c.modelError(err), saved)
	}
	return saved
}

var mention = regexp.MustCompile(`(?:^|\s)@([^\s@]+)`)

// mentioned reads the resources that a question names, as @server:uri or, where nobody can mistake it for anything else,
// as @uri. What is no such name stays what it is: an address, or somebody's name.
func (c *chat) mentioned(ctx context.Context, question string) (all []attachment, err error) {
	for _, match := range mention.FindAllStringSubmatch(question, -1) {
		name := match[1]
		isServer := slices.ContainsFunc(c.host.Status(), func(s HostStatus) bool { return strings.HasPrefix(name, s.Name+":") })
		if !isServer && !strings.Contains(name, "://") {
			continue
		}
		a, err := c.attach(ctx, name)
		if trimmed := strings.TrimRight(name, ".,;:!?)]}'\""); err != nil && trimmed != name && ctx.Err() == nil {
			a, err = c.attach(ctx, trimmed) // it was the end of a sentence
		}
		if err != nil {
			return nil, fmt.Errorf("@%s: %w (nothing was asked)", name, err)
		}
		c.say("(with %s, %s)", a.name, size(len(a.text)))
		all = append(all, a)
	}
	return all, nil
}

// maxAttachment bounds in bytes what a resource may add to a question.
const maxAttachment = 128 << 10

func (c *chat) attach(ctx context.Context, name string) (attachment, error) {
	server, uri, err := c.findResource(ctx, c.host, name)
	if err != nil {
		return attachment{}, err
	}
	client, err := c.host.Client(ctx, server)
	if err != nil {
		return attachment{}, err
	}
	contents, err := client.ReadResource(ctx, uri)
	if err != nil {
		return attachment{}, err
	}
	texts := make([]string, len(contents))
	for i := range contents {
		texts[i] = resourceText(&contents[i])
	}
	text := strings.Join(texts, "\n\n")
	if len(texts) == 0 {
		text = fmt.Sprintf("[resource: %s] (empty)", uri)
	}
	return attachment{name, clip(text, maxAttachment)}, nil
}

// say tells the user something of the program's own.
func (c *chat) say(format string, args ...any) {
	text := visible(c.redact(fmt.Sprintf(format, args...)))
	fmt.Fprintln(c.screen, c.screen.style(faint, c.screen.Fold(text)))
}

// fail tells why something did not work.
func (c *chat) fail(err error) {
	text := strings.NewReplacer("(see: mcpagent tools)", "(see: /tools)", "(see: mcpagent prompts)", "(see: /prompt)",
		"(see: mcpagent resources)", "(see: /resource)").Replace(err.Error())
	lines := strings.Split(visible(c.redact(text)), "\n")
	for i := range lines {
		lines[i] = c.screen.Fold(cut(lines[i], 2000))
	}
	fmt.Fprintln(c.screen, c.screen.style(red, strings.Join(lines, "\n")))
}

// chatCommand is what can be said after a slash.
type chatCommand struct {
	name, args, what string
	run              func(c *chat, ctx context.Context, args string) error
}

func chatCommands() []chatCommand {
	return []chatCommand{
		{"tools", "", "the tools of every server", (*chat).tools},
		{"servers", "", "the servers, and what has become of them", (*chat).servers},
		{"resource", "[[SERVER:]URI]", "put a resource beside the next question, or list them", (*chat).resource},
		{"prompt", "[NAME KEY=VALUE ...]", "ask what a server has prepared, or list that", (*chat).prepared},
		{"model", "[NAME]", "the model that answers, or another one from now on", (*chat).chooseModel},
		{"usage", "", "the tokens used so far", (*chat).tellUsage},
		{"clear", "", "begin a new conversation", (*chat).clear},
		{"save", "FILE", "write the conversation to a file", (*chat).save},
		{"load", "FILE", "go on with the conversation in a file", (*chat).load},
		{"help", "", "this", (*chat).help},
		{"quit", "", "end the chat, as Ctrl-D does", func(*chat, context.Context, string) error { return errQuit }},
	}
}

func (c *chat) help(context.Context, string) error {
	for _, command := range chatCommands() {
		fmt.Fprintf(c.screen, "%-27s %s\n", strings.TrimSpace("/"+command.name+" "+command.args), command.what)
	}
	c.say(`
@SERVER:URI in a question puts a resource beside it. A backslash at the end of a line goes on in the next one; lines that are pasted at once are one question. Put a space before a question that begins with a slash.
Ctrl-C cancels what is going on and keeps the conversation; twice, it ends the chat.`)
	return nil
}

func (c *chat) tools(ctx context.Context, _ string) error { return c.program.tools(ctx, c.host) }

func (c *chat) servers(ctx context.Context, _ string) error {
	_, _ = c.host.Tools(ctx) // whose number is told, too; a server that fails says so in its status
	for _, s := range c.host.Status() {
		name := strings.TrimSpace(s.Info.Implementation.Name + " " + s.Info.Implementation.Version)
		line := fmt.Sprintf("%s: %s, MCP %s, %s", s.Name, name, s.Info.ProtocolVersion, plural(s.Tools, "tool"))
		if s.Err != nil {
			line = fmt.Sprintf("%s: not there: %s", s.Name, cut(s.Err.Error(), 1000))
		}
		if s.Restarts > 0 {
			line += fmt.Sprintf(", started again %s", plural(s.Restarts, "time"))
		}
		fmt.Fprintln(c.screen, c.screen.Fold(visible(c.redact(line))))
	}
	return nil
}

func (c *chat) resource(ctx context.Context, name string) error {
	if name == "" {
		return c.resources(ctx, c.host)
	}
	a, err := c.attach(ctx, name)
	if err != nil {
		return err
	}
	for _, line := range folded(strings.TrimSpace(a.text)) {
		fmt.Fprintln(c.screen, "    "+fit(c.redact(line), c.screen.Columns()-4))
	}
	c.attached = append(c.attached, a)
	c.say("(%s for the next question)", size(len(a.text)))
	return nil
}

// prepared asks what a prompt of a server says: its last message, after those before it.
func (c *chat) prepared(ctx context.Context, text string) error {
	words, err := splitWords(text)
	if err != nil {
		return err
	}
	if len(words) == 0 {
		return c.prompts(ctx, c.host)
	}
	arguments, err := promptArguments(words[1:])
	if err != nil {
		return err
	}
	result, err := c.getPrompt(ctx, c.host, words[0], arguments)
	if err != nil {
		return err
	}
	before, last := c.agent.History, ""
	history := slices.Clone(before)
	for i, m := range result.Messages {
		text := ModelText(&ToolResult{Content: []ContentBlock{m.Content}})
		for _, line := range folded(strings.TrimSpace(m.Role + ": " + text)) {
			fmt.Fprintln(c.screen, "    "+c.screen.style(faint, fit(c.redact(line), c.screen.Columns()-4)))
		}
		switch {
		case strings.TrimSpace(text) == "":
		case m.Role != "assistant" && i == len(result.Messages)-1:
			last = text
		case m.Role != "assistant":
			history = append(history, Message{Role: "user", Content: Text(text)})
		default:
			if len(history) == 0 { // which the API does not take
				history = append(history, Message{Role: "user", Content: Text("(The assistant begins.)")})
			}
			history = append(history, Message{Role: "assistant", Content: Text(text)})
		}
	}
	if last == "" {
		c.agent.History = repairHistory(history)
		c.say("(the prompt asks nothing; what it says is now part of the conversation)")
		return nil
	}
	c.agent.History = history
	fmt.Fprintln(c.screen)
	err = c.question(ctx, last)
	if len(c.agent.History) == len(history) { // nothing came of it
		c.agent.History = before
	}
	return err
}

func (c *chat) chooseModel(_ context.Context, name string) error {
	if name != "" {
		c.model = name
		c.agent.Model = c.mistral()
	}
	c.say("%s", c.agent.Model.Model)
	return nil
}

func (c *chat) tellUsage(context.Context, string) error {
	tokens := func(u Usage) string {
		return fmt.Sprintf("%d tokens (%d in, %d out)", u.TotalTokens, u.PromptTokens, u.CompletionTokens)
	}
	c.say("last question: %s\nall questions: %s", tokens(c.agent.Usage), tokens(c.usage))
	c.say("the conversation: %s, %s", plural(len(c.agent.History), "message"), plural(c.context, "token"))
	return nil
}

func (c *chat) clear(context.Context, string) error {
	c.agent.History, c.attached, c.context = nil, nil, 0
	c.say("(a new conversation)")
	return nil
}

func (c *chat) save(_ context.Context, path string) error {
	if path = c.path(path); path == "" {
		return errors.New("/save takes the name of a file")
	}
	session := &Session{Model: c.agent.Model.Model, Usage: c.usage, History: c.agent.History, Redact: c.redact}
	if err := SaveSession(path, session); err != nil {
		return err
	}
	c.file = path
	c.say("(%s in %s)", plural(len(session.History), "message"), path)
	return nil
}

func (c *chat) load(_ context.Context, path string) error {
	if path = c.path(path); path == "" {
		return errors.New("/load takes the name of a file")
	}
	session, err := LoadSession(path)
	if err != nil {
		return err
	}
	c.agent.History, c.usage, c.context, c.file = session.History, session.Usage, 0, path
	with := ""
	if session.Model != "" && session.Model != c.agent.Model.Model {
		with = fmt.Sprintf("; it was with %s, and goes on with %s", session.Model, c.agent.Model.Model)
	}
	c.say("(%s from %s%s)", plural(len(session.History), "message"), path, with)
	return nil
}

// path is the file that is meant: the one before if none is named.
func (c *chat) path(name string) string {
	if name == "" {
		return c.file
	}
	if rest, ok := strings.CutPrefix(name, "~/"); ok {
		if home, err := os.UserHomeDir(); err == nil {
			return filepath.Join(home, rest)
		}
	}
	return name
}

// newView shows what agents do with the host, on stderr; the text goes to stdout.
func (p *program) newView(host *Host) *View {
	return &View{
		Screen: p.screen,
		Quiet:  p.quiet,
		Answer: os.Stdout,
		Wrap:   isTerminal(os.Stdout),
		Held:   p.mask.begun,
		Name: func(function string) (server, tool string) {
			t, ok := host.Tool(function)
			if !ok {
				return "", function
			}
			return t.Server, t.Tool.Name
		},
	}
}

// breaker is what an interrupt does in a chat: the first one ends what is going on, be it that a line is waited for; one that
// follows before the user has entered anything is not the chat's any more, and ends the program. A nil one takes none.
type breaker struct {
	mu     sync.Mutex // guards the following
	cancel context.CancelCauseFunc
	armed  bool // an interrupt was taken, and nothing entered since
}

// interrupt says whether the chat has taken an interrupt.
func (b *breaker) interrupt() (taken bool) {
	if b == nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.armed || b.cancel == nil {
		return false
	}
	b.armed = true
	b.cancel(ErrCancelled)
	return true
}

// begin makes what an interrupt ends.
func (b *breaker) begin(ctx context.Context) (_ context.Context, done func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cancel = cancel
	return ctx, func() { cancel(nil) }
}

// disarm takes what the user has entered for a sign that they go on.
func (b *breaker) disarm() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.armed = false
}
