// main.go - the command line.
// SPDX-License-Identifier: 0BSD

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const version = "0.1.0"

const defaultSystem = "You answer questions with the help of tools. Call a tool when it can know what you do not; " +
	"say which source an answer comes from; say so when the tools do not have it."

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
	error
}

func (e *exitError) Unwrap() error { return e.error }

func exitWith(status int, format string, args ...any) error {
	return &exitError{status, fmt.Errorf(format, args...)}
}

func usageError(format string, args ...any) error {
	return exitWith(exitUsage, format+" (see: mcpagent help)", args...)
}

func main() { os.Exit(run()) }

// run is the program, except for the call of os.Exit.
func run() int {
	screen := NewScreen(os.Stderr, os.Stdout)
	p := &program{screen: screen, secrets: screen.Secrets, terminal: NewTerminal(os.Stdin, screen)}
	defer p.terminal.Close() // after a panic, too
	log.SetFlags(0)
	log.SetOutput(writeFunc(func(text []byte) (int, error) { // of net/http, which repeats what a server sends
		p.note("%s", bytes.TrimSpace(text))
		return len(text), nil
	}))
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // as under nohup
		signal.Notify(signals, syscall.SIGHUP)
	}
	// A closed stdout (… | head) fails the write; it must not end the program before its server.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	go func() { // until the program ends
		for s := range signals {
			switch turn := p.turn.Swap(nil); {
			case ctx.Err() != nil: // both end now, whatever they do
				p.killServers()
				p.terminal.Close()
				os.Exit(exitInterrupted)
			case turn != nil && s == os.Interrupt:
				(*turn)(ErrCancelled)
			default: // what is running is cancelled, and the servers are asked to end
				cancel()
			}
		}
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
	var file *fs.PathError
	if errors.Is(err, syscall.EPIPE) && errors.As(err, &file) && file.Path == os.Stdout.Name() {
		return 0 // the reader of stdout has closed it, as head does
	}
	if p.json && !p.printed {
		_ = p.printJSON(failed{err.Error(), p.report})
	}
	screen.Show(Look{Max: maxShown}, "mcpagent: "+err.Error())
	return status
}

// maxShown bounds an error or a note of the program, in columns: it may hold the text of a server.
const maxShown = 2000

// program is one run of the command line.
type program struct {
	screen   *Screen
	terminal *Terminal
	secrets  *Secrets // the screen's: knows the key, and all secrets of the servers
	key      string   // never shown

	model, baseURL           string      // the model may change in a chat: see mistral
	ollamaURL                string      // of models whose names begin with ollama
	config                   string      // the file that -config names
	trust                    bool        // the folder's configuration
	server                   string      // a command line, or a URL
	headers                  http.Header // for the URL
	session                  string      // the file that -session names
	protocol, approve        string
	system                   string
	http                     string   // where serve listens; empty for stdio
	maxFile                  int      // MiB of a file that serve reads
	temperature              *float64 // of the model; nil leaves it to the API, as does a maxTokens of 0
	maxTokens                int
	output                   string // the file that -o names, - for stdout
	maxResult                int    // bytes
	maxTurns, maxRepeats     int
	maxSamples, maxQuestions int
	timeout, start           time.Duration
	trace                    string
	tracer                   func(s *Server, line string) // what writes the trace; nil for none
	json, quiet, raw         bool
	literal                  bool // the arguments are a question, whatever they look like

	// These are set by configure.
	servers  []Server
	oauth    map[string]*OAuthConfig // by the server's name
	builtIn  bool                    // the only server is this program
	disabled []string                // servers

	report    *report                                 // of the question, if there is one
	printed   bool                                    // there is JSON on stdout
	saved     int                                     // files of -o, with those that failed
	unsaved   error                                   // why the first of them failed
	approval  sync.Once                               // shows once why calls are refused
	chatting  bool                                    // the command is a chat
	turn      atomic.Pointer[context.CancelCauseFunc] // what the next interrupt ends, if it is not the program
	samples   atomic.Int64                            // sampling requests of servers, for this question
	processes sync.Map                                // of servers: *Stdio, also those that have ended
	logs      map[string]*serverLog                   // by the server's name
	logins    map[string]*login                       // by the server's name
	lists     sync.Map                                // of models, by the API's address: []ModelInfo

	mu       sync.Mutex        // guards reported, and model in a chat
	reported map[string]string // by a server's name: the error that the user has been shown
}

func (p *program) run(ctx context.Context, args []string) error {
	f := p.flags()
	args, err := p.parse(f, args)
	if err != nil {
		return err
	}
	name := ""
	if f.Lookup("version").Value.String() == "true" {
		args = []string{"version"}
	}
	if len(args) > 0 && !p.literal {
		name = args[0]
	}
	near := p.nearest(name)
	isCommand := near.name == name
	switch {
	case (p.http != "" || p.maxFile != 0) && name != "serve":
		return usageError("-http and -max-file go with serve")
	case p.output != "" && isCommand && name != "call" && name != "read":
		return usageError("-o goes with call, read, or a question")
	case p.session != "" && isCommand:
		return usageError("-session goes with a question")
	case !isCommand && len(args) == 1 && distance(name, near.name) <= 2 && !strings.Contains(name, " "):
		return usageError("%q is no command: did you mean %s? mcpagent -- %[1]s asks it as a question", name, near.name)
	case name != "serve" && name != "help" && name != "version":
		if err := p.check(ctx, f); err != nil {
			return err
		}
	}
	if isCommand {
		return near.run(ctx, args[1:])
	}
	return p.ask(ctx, strings.Join(args, " "))
}

// parse reads the flags, which may stand anywhere, and returns the rest.
func (p *program) parse(f *flag.FlagSet, args []string) (rest []string, err error) {
	p.key = os.Getenv("MISTRAL_API_KEY")
	p.secrets.Add("[key]", p.key)
	p.baseURL = os.Getenv("MISTRAL_BASE_URL")
	p.secrets.AddVariable("MISTRAL_BASE_URL", p.baseURL)
	for len(args) > 0 {
		if err := f.Parse(args); errors.Is(err, flag.ErrHelp) {
			return slices.Concat([]string{"help"}, rest, f.Args()), nil
		} else if err != nil {
			return nil, usageError("%w", err)
		}
		stopped := len(f.Args()) < len(args) && args[len(args)-len(f.Args())-1] == "--"
		if args = f.Args(); stopped {
			p.literal = len(rest) == 0
			return append(rest, args...), nil
		}
		if len(args) > 0 {
			rest, args = append(rest, args[0]), args[1:]
		}
	}
	return rest, nil
}

// readVariables reads the variables of the flags that are not given.
func readVariables(f *flag.FlagSet) (err error) {
	instead := map[string]string{"m": "model", "server": "config", "config": "server"}
	given := make(map[string]bool)
	f.Visit(func(f *flag.Flag) { given[f.Name], given[instead[f.Name]] = true, true })
	f.VisitAll(func(f *flag.Flag) {
		variable, _, _ := strings.Cut(f.Usage, " ")
		if text := os.Getenv(variable); text != "" && !given[f.Name] && err == nil {
			if err = f.Value.Set(text); err != nil {
				err = usageError("%s: %q: %w", variable, text, err)
			}
		}
	})
	return err
}

// flags returns the flags. The usage of each begins with the variable that sets it, too, if there is one. A 0 leaves a
// bound to what it is for.
func (p *program) flags() *flag.FlagSet {
	f := flag.NewFlagSet("mcpagent", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.StringVar(&p.model, "model", "mistral-large-latest", "MISTRAL_MODEL mistral-large-latest, ollama:NAME, …")
	f.StringVar(&p.model, "m", p.model, " the same as -model")
	f.StringVar(&p.config, "config", "", "MCP_CONFIG a file of mcpServers (./.mcp.json, ~/.mcp.json, ~/.mcphost.json)")
	f.BoolVar(&p.trust, "trust", false, "MCP_TRUST 1: start the servers of ./.mcp.json without asking")
	f.StringVar(&p.server, "server", "", "MCP_SERVER one server instead: its URL, or [NAME=VALUE ...] COMMAND [ARG ...]")
	f.Func("temperature", "MISTRAL_TEMPERATURE from 0, for the likeliest words, to 2 (the API's)", p.setTemperature)
	f.Func("max-tokens", "MISTRAL_MAX_TOKENS of each message of the model (the API's)", number(&p.maxTokens, 0))
	f.Func("protocol", "MCP_PROTOCOL revision (auto)", oneOf(&p.protocol, append([]string{"auto"}, Revisions()...)...))
	f.StringVar(&p.system, "system", defaultSystem, "MCP_SYSTEM the system prompt; @FILE reads it from a file")
	f.Func("approve", "MCP_APPROVE calls: ask, always, never", oneOf(&p.approve, "ask", "always", "never"))
	f.Func("max-turns", "MCP_MAX_TURNS model turns per question (20)", number(&p.maxTurns, 20))
	f.Func("max-repeats", "MCP_MAX_REPEATS equal calls with equal results (10)", number(&p.maxRepeats, 10))
	f.Func("max-result", "MCP_MAX_RESULT bytes of a result that the model gets (65536)", number(&p.maxResult, 65536))
	f.Func("max-samples", "MCP_MAX_SAMPLES servers' requests to the model per question (20)", number(&p.maxSamples, 20))
	f.Func("max-questions", "MCP_MAX_QUESTIONS of a server, during a request to it (50)", number(&p.maxQuestions, 50))
	f.Func("timeout", "MCP_TIMEOUT of a request without progress (30m)", duration(&p.timeout, 30*time.Minute))
	f.Func("start-timeout", "MCP_START_TIMEOUT of a server's start (30s; 5m for npx, docker, …)", duration(&p.start, 0))
	f.StringVar(&p.trace, "trace", "", "MCP_TRACE all messages, the model's too: 1 for stderr, or a file")
	f.StringVar(&p.session, "session", "", " a file with the conversation: it is continued, and kept there")
	f.StringVar(&p.output, "o", "", " a file for images and other bytes, or else the text; - for stdout")
	f.Func("http", " where serve listens: HOST:PORT, or :PORT for this machine alone (stdio)", p.listenAt)
	f.Func("max-file", " MiB of a file that serve reads, of all together 128 times as much (2)", number(&p.maxFile, 0))
	f.BoolVar(&p.json, "json", false, " machine-readable output")
	f.BoolVar(&p.quiet, "q", false, " nothing but the answer")
	f.BoolVar(&p.raw, "raw", false, " answers as they come, on a terminal, too: markdown is not laid out")
	f.Bool("version", false, " the same as version")
	return f
}

// check reads the variables, and what the options refer to, and reports what is wrong. help, version and serve do not
// need it.
func (p *program) check(ctx context.Context, f *flag.FlagSet) (err error) {
	if err := readVariables(f); err != nil {
		return err
	}
	p.ollamaURL = "http://localhost:11434/v1"
	if strings.HasPrefix(p.model, ollama) && p.baseURL != "" {
		p.ollamaURL, p.key = p.baseURL, "" // the key is Mistral's
	}
	if p.config != "" && p.server != "" {
		return usageError("MCP_CONFIG and MCP_SERVER both say which servers there are: give one of them")
	}
	if err := p.readHeaders(os.Getenv("MCP_HEADERS")); err != nil {
		return err
	}
	if p.system, err = p.readArgument(ctx, p.system); err != nil {
		return fmt.Errorf("MCP_SYSTEM: %w", err)
	}
	return nil
}

// oneOf, number and duration return functions that read the value of a flag.
func oneOf(into *string, known ...string) func(string) error {
	return func(text string) error {
		if *into = text; !slices.Contains(known, text) {
			return fmt.Errorf("not one of %s", strings.Join(known, ", "))
		}
		return nil
	}
}

func number(into *int, standard int) func(string) error {
	*into = standard
	return func(text string) (err error) {
		if *into, err = strconv.Atoi(text); err != nil || *into < 1 {
			return errors.New("not a whole number above 0")
		}
		return nil
	}
}

func (p *program) setTemperature(text string) error {
	t, err := strconv.ParseFloat(text, 64)
	if p.temperature = &t; err != nil || !(t >= 0 && t <= 2) {
		return errors.New("not a number from 0 to 2")
	}
	return nil
}

// duration takes 90s, 5m, or a number of seconds.
func duration(into *time.Duration, standard time.Duration) func(string) error {
	*into = standard
	return func(text string) (err error) {
		if *into, err = time.ParseDuration(text); err != nil {
			*into, err = time.ParseDuration(text + "s")
		}
		if err != nil || *into <= 0 {
			return errors.New("not a duration such as 90s or 5m")
		}
		return nil
	}
}

// note tells the user something in passing.
func (p *program) note(format string, args ...any) {
	if !p.quiet {
		p.screen.Show(Look{Max: maxShown}, fmt.Sprintf(format, args...))
	}
}

// printJSON writes a value to stdout.
func (p *program) printJSON(v any) error {
	p.printed = true
	text, err := PlainJSON(v)
	if err != nil {
		return err
	}
	var lines bytes.Buffer
	_ = json.Indent(&lines, text, "", "  ")
	return p.screen.PrintJSON(lines.String() + "\n")
}

const maxInput = 4 << 20 // bytes of stdin: more than a model reads

// isPiped reports whether stdin is a pipe or a file, which may have text: not a terminal, not a device such as
// /dev/null, and not closed.
func isPiped() bool {
	info, err := os.Stdin.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice == 0
}

// readAll reads stdin to its end, which another process may hold open: the user is told after a while, and ctx and
// MCP_TIMEOUT end the wait.
func (p *program) readAll(ctx context.Context, stdin io.Reader) (string, error) {
	note := time.AfterFunc(3*time.Second, func() {
		if !p.terminal.Interactive() {
			p.note("waiting for the end of stdin, whose text is read; </dev/null gives none")
		}
	})
	defer note.Stop()
	ctx, cancel := context.WithTimeoutCause(ctx, p.timeout, usageError("stdin did not end within %s", p.timeout))
	defer cancel()
	var text []byte
	err := whileReading(ctx, func() (err error) {
		text, err = io.ReadAll(io.LimitReader(stdin, maxInput+1))
		return err
	})
	switch {
	case err != nil:
		return "", err // the read may go on
	case len(text) > maxInput:
		return "", fmt.Errorf("stdin has more than %d MiB: give a part of it", maxInput>>20)
	}
	return string(text), nil
}

// readArgument returns the text of an argument that may be - or @- for stdin, or @FILE.
func (p *program) readArgument(ctx context.Context, argument string) (string, error) {
	path, isFile := strings.CutPrefix(argument, "@")
	switch {
	case path == "-":
		return p.readAll(ctx, os.Stdin)
	case !isFile:
		return argument, nil
	}
	text, err := os.ReadFile(path)
	return string(text), err
}

// whileReading does what reads, or gives up with ctx: a blocked read stays behind, as the program is about to end.
func whileReading(ctx context.Context, do func() error) error {
	done := make(chan error, 1)
	go func() { done <- do() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
