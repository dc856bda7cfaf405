// main.go - the command line.
// Needs: Go 1.25, json.go, rpc.go, transport_stdio.go, transport_stdio_unix.go, transport_stdio_windows.go, transport_http_events.go, transport_http.go, transport_http_params.go, transport_sse.go, mcp_types.go, elicitation.go, mcp.go, mcp_input.go, mcp_lists.go, mcp_handshake.go, mcp_repair.go, mistral.go, mcp_model.go, sampling.go, agent.go, connect.go, host.go, search.go, corpus.go, library_tools.go, library.go, library_http_answer.go, library_http.go, offline.go, terminal.go, main_server.go, main_commands.go.
// SPDX-License-Identifier: 0BSD

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const version = "0.1.0"

const usage = `mcpagent asks a language model a question that it answers with the tools of an MCP server.

  mcpagent "question"          ask once: the answer on stdout, everything else on stderr
  mcpagent                     the same, with the question read from stdin
  mcpagent tools               list the server's tools
  mcpagent call TOOL [JSON]    call one tool, no model
  mcpagent resources           list the server's resources
  mcpagent read URI            print a resource
  mcpagent prompts             list the server's prompts
  mcpagent prompt NAME [KEY=VALUE ...]   fill in a prompt and print its messages
  mcpagent serve [DIR]         be an MCP server on stdio: search over DIR, or over this program's source
  mcpagent serve -http ADDR [DIR]   the same over HTTP; an ADDR without a host (:8080) is for this machine alone
  mcpagent version | help

  variable           flag            meaning                                            default
  MISTRAL_API_KEY                    key of the model's API                             none: the offline stand-in
  MISTRAL_MODEL      -model          the model's name                                   mistral-large-latest
  MISTRAL_BASE_URL                   any chat-completions API (Ollama, vLLM, …)         Mistral's
  MCP_SERVER         -server         the server's command line; words NAME=VALUE        the built-in library
                                     before it set its environment; or its URL
  MCP_HEADERS                        headers for the URL, one "Name: value" a line      none
  MCP_PROTOCOL       -protocol       protocol revision to speak                         auto
  MCP_SYSTEM         -system         system prompt; @FILE reads it from a file          a short one
  MCP_APPROVE        -approve        calls by the model, and the server's own questions ask on a terminal, else never
                                     to it: ask, always, never
  MCP_MAX_TURNS      -max-turns      model turns per question                           20
  MCP_TIMEOUT        -timeout        of a request to the server without progress        5m
  MCP_START_TIMEOUT  -start-timeout  of the server's start                              30s
  MCP_TRACE          -trace          every message on the wire, and the server's        off
                                     stderr: 1 for stderr, or a file
                     -http           where serve is to listen: HOST:PORT, :PORT         stdio
                     -json           machine-readable output                            off
                     -q              nothing but the answer                             off

Exit status: 0 done, 1 cannot start, 2 usage, 3 call, read or prompt failed, 4 the model failed, 130 interrupted.
`

const defaultSystem = `You answer questions with the help of tools. Call a tool when it can know what you do not; say which source an answer comes from; say so when the tools do not have it.`

// The exit statuses.
const (
	exitStart       = 1
	exitUsage       = 2
	exitTool        = 3
	exitModel       = 4
	exitInterrupted = 130
)

// exitError is an error with the status that the program ends with.
type exitError struct {
	status int
	err    error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

func usageError(format string, args ...any) error {
	return &exitError{exitUsage, fmt.Errorf(format+" (see: mcpagent help)", args...)}
}

func main() { os.Exit(run()) }

// run is the program, but for the call of os.Exit.
func run() int {
	p := &program{stderr: &lineWriter{w: os.Stderr}}
	p.terminal = NewTerminal(os.Stdin, redacted{p})
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // as under nohup
		signal.Notify(signals, syscall.SIGHUP)
	}
	// A closed stdout (… | head) fails the write; it must not end the program before its server.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	go func() { // until the program ends
		<-signals
		cancel() // the first Ctrl-C cancels what runs, and the server is asked to end
		<-signals
		p.kill() // the next one ends both, whatever they do
		os.Exit(exitInterrupted)
	}()
	err := p.run(ctx, os.Args[1:])
	if err == nil {
		return 0
	}
	status := exitStart
	var e *exitError
	if errors.As(err, &e) {
		status = e.status
	}
	if ctx.Err() != nil {
		status, err = exitInterrupted, errors.New("interrupted")
	}
	text := cut(p.redact(err.Error()), 2000)
	if p.json && !p.printed {
		_ = p.print(map[string]any{"error": text})
	}
	fmt.Fprintln(p.stderr, "mcpagent:", visible(text))
	return status
}

// program is one run of the command line.
type program struct {
	stderr *lineWriter
	key    string // never shown

	model, baseURL string
	server         string      // a command line, or a URL; empty for the built-in library
	headers        http.Header // for the URL
	secrets        []string    // what else is never shown
	protocol       string
	system         string
	approve        string
	http           string                                 // where serve listens; empty for stdio
	given          struct{ turns, timeout, start string } // as they were written; check reads them
	maxTurns       int
	timeout, start time.Duration
	trace          string
	json, quiet    bool

	printed  bool      // there is JSON on stdout
	approval sync.Once // says once why calls are refused

	terminal *Terminal
	stdio    atomic.Pointer[Stdio] // the server, for kill
}

func (p *program) run(ctx context.Context, args []string) error {
	args, err := p.parse(args)
	if err != nil {
		if errors.Is(err, flag.ErrHelp) {
			_, err = io.WriteString(os.Stdout, usage)
		}
		return err
	}
	command := ""
	if len(args) > 0 {
		command = args[0]
	}
	if p.http != "" && command != "serve" {
		return usageError("-http goes with serve")
	}
	switch command {
	case "help":
		_, err := io.WriteString(os.Stdout, usage)
		return err
	case "version":
		_, err := fmt.Printf("mcpagent %s, MCP %s, %s\n", version, strings.Join(Revisions(), " "), runtime.Version())
		return err
	case "serve":
		return p.serve(ctx, args[1:])
	}
	if err := p.check(); err != nil {
		return err
	}
	switch command {
	case "tools", "resources", "prompts":
		if len(args) > 1 {
			return usageError("%s takes no arguments", command)
		}
		return p.withHost(ctx, map[string]hostCommand{"tools": p.tools, "resources": p.resources, "prompts": p.prompts}[command])
	case "call":
		return p.call(ctx, args[1:])
	case "read":
		return p.read(ctx, args[1:])
	case "prompt":
		return p.prompt(ctx, args[1:])
	}
	return p.ask(ctx, strings.Join(args, " "))
}

// parse takes the options from the environment and the flags, which may stand anywhere, and returns the rest.
func (p *program) parse(args []string) (rest []string, err error) {
	p.key = os.Getenv("MISTRAL_API_KEY")
	p.baseURL = os.Getenv("MISTRAL_BASE_URL")
	f := flag.NewFlagSet("mcpagent", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	text := func(into *string, name, variable, value string) {
		f.StringVar(into, name, cmp.Or(os.Getenv(variable), value), "")
	}
	text(&p.model, "model", "MISTRAL_MODEL", "mistral-large-latest")
	text(&p.server, "server", "MCP_SERVER", "")
	text(&p.protocol, "protocol", "MCP_PROTOCOL", "auto")
	text(&p.system, "system", "MCP_SYSTEM", defaultSystem)
	text(&p.approve, "approve", "MCP_APPROVE", "")
	text(&p.given.turns, "max-turns", "MCP_MAX_TURNS", "20")
	text(&p.given.timeout, "timeout", "MCP_TIMEOUT", "5m")
	text(&p.given.start, "start-timeout", "MCP_START_TIMEOUT", "30s")
	text(&p.trace, "trace", "MCP_TRACE", "")
	f.Func("http", "", p.listenAt)
	f.BoolVar(&p.json, "json", false, "")
	f.BoolVar(&p.quiet, "q", false, "")
	for len(args) > 0 {
		if err := f.Parse(args); errors.Is(err, flag.ErrHelp) {
			return nil, err
		} else if err != nil {
			return nil, usageError("%w", err)
		}
		stopped := len(f.Args()) < len(args) && args[len(args)-len(f.Args())-1] == "--"
		if args = f.Args(); stopped {
			rest = append(rest, args...)
			break
		}
		if len(args) > 0 {
			rest, args = append(rest, args[0]), args[1:]
		}
	}
	return rest, nil
}

// check looks at the options, which help and version have no need of.
func (p *program) check() (err error) {
	if p.maxTurns, err = strconv.Atoi(p.given.turns); err != nil || p.maxTurns < 1 {
		return usageError("MCP_MAX_TURNS: %q is not a number of turns", p.given.turns)
	}
	if p.timeout, err = duration(p.given.timeout); err != nil {
		return usageError("MCP_TIMEOUT: %w", err)
	}
	if p.start, err = duration(p.given.start); err != nil {
		return usageError("MCP_START_TIMEOUT: %w", err)
	}
	if p.protocol != "auto" && !slices.Contains(Revisions(), p.protocol) {
		return usageError("MCP_PROTOCOL: %q is not a revision known here: auto, %s", p.protocol, strings.Join(Revisions(), ", "))
	}
	switch p.approve {
	case "", "ask", "always", "never":
	default:
		return usageError("MCP_APPROVE: %q is none of ask, always, never", p.approve)
	}
	if err := p.readHeaders(os.Getenv("MCP_HEADERS")); err != nil {
		return err
	}
	if file, ok := strings.CutPrefix(p.system, "@"); ok {
		text, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("MCP_SYSTEM: %w", err)
		}
		p.system = string(text)
	}
	return nil
}

// duration reads 90s, 5m, or a number of seconds.
func duration(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil {
		d, err = time.ParseDuration(text + "s")
	}
	if err != nil || d <= 0 {
		return 0, fmt.Errorf("%q is not a duration such as 90s or 5m", text)
	}
	return d, nil
}

// ask is a question to the model.
func (p *program) ask(ctx context.Context, question string) error {
	if question == "" {
		if isTerminal(os.Stdin) {
			return usageError("no question: give it as an argument or on stdin")
		}
		text, err := readAll(ctx, os.Stdin)
		if err != nil {
			return err
		}
		if question = strings.TrimSpace(text); question == "" {
			return usageError("the question on stdin is empty")
		}
	}
	model := p.mistral()
	if _, err := model.target(); err != nil { // rather than after the server's start
		return usageError("MISTRAL_BASE_URL, MISTRAL_API_KEY: %w", err)
	}
	host, done, err := p.host(ctx)
	if err != nil {
		return err
	}
	defer done()
	if p.key == "" && p.baseURL == "" {
		p.note("no MISTRAL_API_KEY: the built-in stand-in answers, which is no language model")
	}
	report := &report{Model: model.Model, Calls: []callReport{}}
	agent := &Agent{
		Model:    model,
		Tools:    toolbox{p, host},
		System:   p.system,
		MaxTurns: p.maxTurns,
		Decide:   p.decide,
		Observe:  func(e Event) { p.observe(e, report) },
	}
	if instructions := host.Client.Server.Instructions; instructions != "" {
		agent.System += "\n\nThe server says of its tools:\n" + instructions
	}
	answer, err := agent.Chat(ctx, question)
	report.Usage = agent.Usage
	var api *APIError
	var failed *exitError
	switch {
	case errors.As(err, &failed):
		return err
	case errors.As(err, &api) && (api.Status == 401 || api.Status == 403) && p.key == "":
		return &exitError{exitModel, fmt.Errorf("%w: set MISTRAL_API_KEY", err)}
	case err != nil:
		return &exitError{exitModel, err}
	}
	if p.json {
		report.Answer = answer
		return p.print(report)
	}
	err = p.show(answer)
	tokens := ""
	if u := agent.Usage; u != (Usage{}) {
		tokens = fmt.Sprintf(", %d tokens (%d in, %d out)", u.TotalTokens, u.PromptTokens, u.CompletionTokens)
	}
	p.note("%s: %s, %s%s", report.Model, plural(report.Turns, "turn"), plural(len(report.Calls), "call"), tokens)
	return err
}

// report is what ask -json prints.
type report struct {
	Answer string       `json:"answer"`
	Calls  []callReport `json:"calls"`
	Turns  int          `json:"turns"`
	Usage  Usage        `json:"usage"`
	Model  string       `json:"model"`
}

type callReport struct {
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
	Bytes     int             `json:"bytes"` // of the result
	Seconds   float64         `json:"seconds"`
	Error     string          `json:"error,omitempty"`
}

// observe tells what the agent does, one line each.
func (p *program) observe(e Event, r *report) {
	name, arguments := e.Call.Name, cut(p.redact(e.Call.Arguments), 160)
	switch e.Kind {
	case TurnEnded:
		r.Turns++
		r.Model = cmp.Or(e.Response.Model, r.Model)
		if e.Response.CutOff() {
			p.note("the model's message was cut off at its length limit")
		}
	case CallStarted:
		p.note("> %s %s", name, arguments)
	case CallEnded:
		call := callReport{Name: name, Arguments: json.RawMessage(e.Call.Arguments), Bytes: e.Bytes, Seconds: e.Took.Seconds()}
		if e.Err != nil {
			call.Error = p.redact(e.Err.Error())
		}
		switch {
		case e.Err == nil:
			p.note("< %s %s, %d bytes", name, round(e.Took), e.Bytes)
		case e.Took == 0: // never started
			p.note("< %s %s: %s", name, arguments, cut(call.Error, 400))
		default:
			p.note("< %s failed after %s: %s", name, round(e.Took), cut(strings.TrimPrefix(call.Error, "tools/call "+name+": "), 400))
		}
		r.Calls = append(r.Calls, call)
	case ToolsFailed:
		p.note("the tools could not be listed again: %v", e.Err)
	case LastTurn:
		p.note("%v: asking for an answer without tools", e.Err)
	}
}

// toolbox is the host as the agent sees it.
type toolbox struct {
	*program
	host *Host
}

func (t toolbox) Functions(ctx context.Context) ([]Function, error) {
	functions, err := t.host.Functions(ctx)
	if err != nil {
		err = &exitError{exitStart, err} // the server has failed, not the model
	}
	return functions, err
}

func (t toolbox) Call(ctx context.Context, call ToolCall) (ToolOutput, error) {
	result, err := t.host.CallTool(ctx, call.Name, json.RawMessage(call.Arguments), t.progress(call.Name))
	if err != nil {
		return ToolOutput{}, err
	}
	return ToolOutput{Text: ModelText(result), IsError: result.IsError}, nil
}

// progress tells how far a call has come, at most ten times a second: a call that is soon done needs no such lines, and a
// user who is asked something even less.
func (p *program) progress(tool string) func(Progress) {
	last := time.Now()
	return func(progress Progress) {
		if time.Since(last) < 100*time.Millisecond || p.terminal.Busy() {
			return
		}
		last = time.Now()
		text := fmt.Sprintf("%g", progress.Progress)
		if progress.Total > 0 {
			text += fmt.Sprintf("/%g", progress.Total)
		}
		p.note("  %s %s", tool, cut(text+" "+p.redact(progress.Message), 160))
	}
}

// decide lets the user decide on a call. The built-in library only reads what everybody may.
func (p *program) decide(ctx context.Context, call ToolCall) Decision {
	switch {
	case p.server == "" || p.approve == "always":
		return Decision{}
	case p.approve == "never":
		return Decision{Refuse, "the user allows no calls"}
	case !p.terminal.Interactive():
		p.approval.Do(func() {
			fmt.Fprintln(p.stderr, "calls are refused, as nobody can be asked without a terminal; MCP_APPROVE=always allows them")
		})
		return Decision{Refuse, "nobody is there to allow it"}
	}
	return p.terminal.Approve(ctx, call)
}

// elicit lets the user answer a question of the server.
func (p *program) elicit(ctx context.Context, r *ElicitRequest) (*ElicitResult, error) {
	if !p.terminal.Interactive() {
		p.note("the server asks %q: declined, as nobody can be asked without a terminal", cut(r.Message, 160))
		return &ElicitResult{Action: "decline"}, nil
	}
	return p.terminal.Elicit(ctx, r)
}

// sample lets the server use the model, if the user allows it. It is not offered where nobody can.
func (p *program) sample(ctx context.Context, r *SampleRequest) (*SampleResult, error) {
	switch {
	case p.approve == "always":
		p.note("the server asks the model")
	case !p.terminal.ApproveSample(ctx, r):
		return nil, &Error{Code: -1, Message: "the user said no"} // the code: MCP 2025-11-25, client, sampling, error handling
	}
	return SampleWith(p.mistral())(ctx, r)
}

// mistral is the model that was chosen.
func (p *program) mistral() *Mistral {
	m := &Mistral{BaseURL: p.baseURL, Key: p.key, Model: p.model, OnRetry: func(r Retry) {
		p.note("%v; trying again in %s", r.Err, round(r.Wait))
	}}
	if p.key == "" && p.baseURL == "" {
		m.Client, m.Model = &http.Client{Transport: Offline{}}, "offline"
	}
	return m
}

// note tells the user something in passing.
func (p *program) note(format string, args ...any) {
	if !p.quiet {
		fmt.Fprintln(p.stderr, visible(p.redact(fmt.Sprintf(format, args...))))
	}
}

// print writes a value to stdout as JSON.
func (p *program) print(v any) error {
	p.printed = true
	var text strings.Builder
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		return err
	}
	_, err := os.Stdout.WriteString(p.redact(text.String()))
	return err
}

// show writes a text of the model or a server to stdout. A file gets it as it is, but for the secrets.
func (p *program) show(text string) error {
	if text = p.redact(text); isTerminal(os.Stdout) {
		text = visible(text)
	}
	// Not Println, which would copy it: results can be large.
	_, err := os.Stdout.WriteString(text)
	if err == nil {
		_, err = os.Stdout.WriteString("\n")
	}
	return err
}

// redact takes the key and the headers out of a text. What local servers are given for one ("none", "ollama") is no secret, and
// taking it out would take words apart.
func (p *program) redact(text string) string {
	for _, secret := range p.secrets {
		if len(secret) >= 8 {
			text = strings.ReplaceAll(text, secret, "[secret]")
		}
	}
	if len(p.key) >= 8 {
		text = strings.ReplaceAll(text, p.key, "[key]")
	}
	return text
}

// redacted is stderr without the secrets.
type redacted struct{ p *program }

func (r redacted) Write(text []byte) (int, error) {
	_, err := io.WriteString(r.p.stderr, r.p.redact(string(text)))
	return len(text), err
}

// cut shortens a text to n runes, on one line.
func cut(text string, n int) string {
	runes := []rune(strings.Join(strings.Fields(text), " "))
	if len(runes) <= n {
		return string(runes)
	}
	return string(runes[:n-1]) + "…"
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func round(d time.Duration) time.Duration {
	if d < time.Second {
		return d.Round(time.Millisecond)
	}
	return d.Round(100 * time.Millisecond)
}

// readAll reads to the end, or gives up with ctx: the blocked read stays behind, as the program is about to end.
func readAll(ctx context.Context, r io.Reader) (string, error) {
	var text []byte
	done := make(chan error, 1)
	go func() {
		var err error
		text, err = io.ReadAll(r)
		done <- err
	}()
	select {
	case err := <-done:
		return string(text), err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// lineWriter lets several goroutines write whole lines to one file.
type lineWriter struct {
	mu sync.Mutex // held during a write
	w  io.Writer
}

func (l *lineWriter) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(text)
}
