// main.go - the command line.
// Needs: Go 1.25, json.go, rpc.go, transport_stdio.go, transport_stdio_unix.go, transport_stdio_windows.go, transport_http_events.go, transport_http.go, transport_http_params.go, transport_sse.go, mcp_types.go, elicitation.go, mcp.go, mcp_input.go, mcp_lists.go, mcp_handshake.go, mcp_repair.go, mistral.go, mcp_model.go, sampling.go, agent.go, connect.go, host_server.go, host.go, config.go, mask.go, search.go, corpus.go, library_tools.go, library.go, library_http_answer.go, library_http.go, offline.go, terminal_unix.go, terminal_other.go, terminal_screen.go, terminal.go, terminal_view.go, session.go, main_host.go, main_log.go, main_ask.go, main_chat.go, main_commands.go, main_server.go.
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

const usage = `mcpagent asks a language model a question that it answers with the tools of MCP servers.

  mcpagent "question"          ask once: the answer on stdout, everything else on stderr
  mcpagent                     on a terminal: a chat; else the same, with the question read from stdin
  mcpagent tools               list the tools of every server
  mcpagent call TOOL [JSON]    call one tool, no model; SERVER__TOOL where several servers have it
  mcpagent resources           list the resources of every server
  mcpagent read URI            print a resource; SERVER:URI where several servers have it
  mcpagent prompts             list the prompts of every server
  mcpagent prompt NAME [KEY=VALUE ...]   fill in a prompt and print its messages
  mcpagent serve [DIR]         be an MCP server on stdio: search over DIR, or over this program's source
  mcpagent serve -http ADDR [DIR]   the same over HTTP; an ADDR without a host (:8080) is for this machine alone
  mcpagent version | help

  variable           flag            meaning                                            default
  MISTRAL_API_KEY                    key of the model's API                             none: the offline stand-in
  MISTRAL_MODEL      -model, -m      the model's name; ollama:NAME is one of Ollama     mistral-large-latest
  MISTRAL_BASE_URL                   any chat-completions API (Ollama, vLLM, …)         Mistral's
  MCP_CONFIG         -config         the servers: a file of mcpServers, as .mcp.json    ./.mcp.json, else ~/.mcp.json,
                                     of most hosts is                                   else the built-in library
  MCP_SERVER         -server         one server instead: its command line, where words  none
                                     NAME=VALUE set its environment; or its URL
  MCP_HEADERS                        headers for the URL, one "Name: value" a line      none
  MCP_PROTOCOL       -protocol       protocol revision to speak                         auto
  MCP_SYSTEM         -system         system prompt; @FILE reads it from a file          a short one
  MCP_APPROVE        -approve        calls by the model, and the server's own questions ask on a terminal, else never
                                     to it: ask, always, never
  MCP_MAX_TURNS      -max-turns      model turns per question                           20
  MCP_TIMEOUT        -timeout        of a request to a server without progress          5m
  MCP_START_TIMEOUT  -start-timeout  of a server's start                                30s
  MCP_TRACE          -trace          every message on the wire, and the servers'        off
                                     stderr: 1 for stderr, or a file
                     -session        a file with the conversation: it is continued,     none
                                     and kept there
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
	screen := NewScreen(os.Stderr)
	p := &program{screen: screen, stderr: &lineWriter{w: screen}, terminal: NewTerminal(os.Stdin, screen)}
	screen.Redact = p.redact
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // as under nohup
		signal.Notify(signals, syscall.SIGHUP)
	}
	// A closed stdout (… | head) fails the write; it must not end the program before its server.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	go func() { // until the program ends
		for <-signals == os.Interrupt && p.breaker.Load().interrupt() { // it ends what the chat is doing
		}
		cancel() // the first Ctrl-C cancels what runs, and the servers are asked to end
		<-signals
		p.children.kill() // the next one ends both, whatever they do
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
		_ = p.print(failed{text, p.report})
	}
	fmt.Fprintln(p.stderr, p.screen.Fold("mcpagent: "+visible(text)))
	return status
}

// program is one run of the command line.
type program struct {
	screen *Screen     // stderr, and what changes on its last line
	stderr *lineWriter // the screen
	key    string      // never shown

	model, baseURL string
	config         string      // the file that -config names
	server         string      // a command line, or a URL
	headers        http.Header // for the URL
	session        string      // the file that -session names
	protocol       string
	system         string
	approve        string
	http           string                                 // where serve listens; empty for stdio
	given          struct{ turns, timeout, start string } // as they were written; check reads them
	maxTurns       int
	timeout, start time.Duration
	trace          string
	json, quiet    bool

	// These are set by configure.
	servers []ServerConfig
	builtIn bool   // the only server is this program
	from    string // the file that names them, if one does

	report   *report   // of the question, if there is one
	printed  bool      // there is JSON on stdout
	approval sync.Once // says once why calls are refused
	mask     Mask      // knows the key, and all that is secret of the servers
	terminal *Terminal
	breaker  atomic.Pointer[breaker] // of the chat, if there is one
	children children

	mu   sync.Mutex        // guards told
	told map[string]string // why a server is not there, as the user has been told; by its name
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
	if p.session != "" && slices.Contains([]string{"serve", "tools", "resources", "prompts", "call", "read", "prompt"}, command) {
		return usageError("-session goes with a question")
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
	p.mask.Add("[key]", p.key)
	p.baseURL = os.Getenv("MISTRAL_BASE_URL")
	f := flag.NewFlagSet("mcpagent", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	text := func(into *string, name, variable, value string) {
		f.StringVar(into, name, cmp.Or(os.Getenv(variable), value), "")
	}
	text(&p.model, "model", "MISTRAL_MODEL", "mistral-large-latest")
	f.StringVar(&p.model, "m", p.model, "")
	text(&p.config, "config", "MCP_CONFIG", "")
	text(&p.server, "server", "MCP_SERVER", "")
	text(&p.protocol, "protocol", "MCP_PROTOCOL", "auto")
	text(&p.system, "system", "MCP_SYSTEM", defaultSystem)
	text(&p.approve, "approve", "MCP_APPROVE", "")
	text(&p.given.turns, "max-turns", "MCP_MAX_TURNS", "20")
	text(&p.given.timeout, "timeout", "MCP_TIMEOUT", "5m")
	text(&p.given.start, "start-timeout", "MCP_START_TIMEOUT", "30s")
	text(&p.trace, "trace", "MCP_TRACE", "")
	f.StringVar(&p.session, "session", "", "")
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
	given := make(map[string]bool)
	f.Visit(func(f *flag.Flag) { given[f.Name] = true })
	switch { // a flag is stronger than a variable
	case given["server"] && !given["config"]:
		p.config = ""
	case given["config"] && !given["server"]:
		p.server = ""
	}
	return rest, nil
}

// check looks at the options, which help and version have no need of.
func (p *program) check() (err error) {
	if name, ok := strings.CutPrefix(p.model, "ollama:"); ok { // as mcphost has it
		p.model, p.key = name, "" // which is Mistral's
		p.baseURL = cmp.Or(p.baseURL, "http://localhost:11434/v1")
	}
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
	if p.config != "" && p.server != "" {
		return usageError("MCP_CONFIG and MCP_SERVER both say which servers there are: give one of them")
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

// note tells the user something in passing.
func (p *program) note(format string, args ...any) {
	if !p.quiet {
		fmt.Fprintln(p.stderr, p.screen.Fold(visible(p.redact(fmt.Sprintf(format, args...)))))
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

// redact takes all secrets out of a text.
func (p *program) redact(text string) string { return p.mask.Text(text) }

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
