// main_host.go - the servers of a run: which they are, how each is started, and what is logged of them.
// SPDX-License-Identifier: 0BSD

package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// host returns the host of the servers, none of which is started yet. done ends them.
func (p *program) host(ctx context.Context) (_ *Host, done func(), err error) {
	if err := p.configure(ctx); err != nil {
		return nil, nil, err
	}
	traceFile, err := p.openTrace()
	if err != nil {
		return nil, nil, err
	}
	p.logs, p.reported = make(map[string]*serverLog), make(map[string]string)
	cache, err := os.UserCacheDir()
	keeps := err == nil && !p.builtIn // a machine may have no home: then there are no logs
	for i := range p.servers {
		s := &p.servers[i]
		s.StartTimeout = cmp.Or(s.StartTimeout, p.start)
		s.OnSlowStart = func(limit time.Duration) {
			p.note("server %s: it is still starting, and may be downloading: waiting up to %s (MCP_START_TIMEOUT)",
				s.Name, limit)
		}
		if s.URL != "" || s.Err != nil {
			continue
		}
		s.Command.Excerpt = StderrExcerpt
		hash := commandHash(&s.Command)
		name := url.QueryEscape(s.Name) // which every file system takes
		if p.server != "" {             // else all that begin with python or npx would share a log
			name += "-" + hash[:8]
		}
		if keeps {
			s.NoProbe = filepath.Join(cache, "mcpagent", "handshake-"+hash)
		}
		if p.tracer != nil {
			s.Command.Stderr = p.traceStderr(s)
		} else if keeps {
			p.openLog(s, filepath.Join(cache, "mcpagent", name+".log"))
		}
		s.Start = func(ctx context.Context) (Transport, error) { return p.startCommand(ctx, s) }
	}
	p.addLogins()
	host := NewHost(p.servers, p.clientOptions)
	return host, func() {
		_ = host.Close()
		p.closeLogins()
		for i := range p.servers {
			if w, ok := p.servers[i].Command.Stderr.(*MaskWriter); ok {
				_ = w.Close()
			}
		}
		for _, log := range p.logs {
			_ = log.file.Close()
		}
		_ = traceFile.Close() // which may be nil
	}, nil
}

// startCommand starts a server as Command does. Interrupts find the process, and an error says what to do about it.
func (p *program) startCommand(ctx context.Context, s *Server) (Transport, error) {
	if _, err := os.Stat(s.Command.Dir + "/."); s.Command.Dir != "" && err != nil { // else Go misses the command
		return nil, fmt.Errorf("start server: its \"cwd\": %w", err)
	}
	transport, err := s.Command.Start(ctx)
	if process, ok := transport.(*Stdio); ok {
		p.processes.Store(process, nil)
	}
	isMissing := errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist)
	if isMissing && strings.Contains(s.Command.Path, " ") {
		err = fmt.Errorf("%w; what follows the command belongs into its \"args\"", err)
	}
	return transport, err
}

// startServers starts the servers of these names, or all if there are none, and waits for them; the status names them.
// The error says why none is running.
func (p *program) startServers(ctx context.Context, host *Host, names ...string) error {
	if err := p.known(names...); err != nil {
		return err
	}
	err := p.withLogins(ctx, host, func() error {
		if awaited := starting(host.Status(names...)); len(awaited) > 0 {
			view := &View{Screen: p.screen, Quiet: p.quiet}
			view.Begin("starting " + strings.Join(awaited, ", "))
			defer view.End()
		}
		host.Start(ctx, names...)
		return context.Cause(ctx)
	})
	status := host.Status(names...)
	if err = cmp.Or(err, p.absent(status)); err == nil {
		p.tell(status)
	}
	return err
}

const (
	glance = time.Second            // for which the list of servers waits for them
	moment = 100 * time.Millisecond // nobody notices it
)

// watch starts the servers beside a chat, for which it keeps the user a moment, and tells of each when it is ready, or
// why it is not, until done.
func (p *program) watch(ctx context.Context, host *Host) (done func()) {
	ctx, stop := context.WithCancel(ctx)
	soon, cancel := context.WithTimeout(ctx, moment)
	defer cancel()
	_, _ = host.Tools(soon)
	status := host.Status()
	p.tell(status)
	var work sync.WaitGroup
	for _, name := range starting(status) { // also one that is ready by now, of which that is not told
		work.Go(func() {
			if _, _ = host.Tools(ctx, name); ctx.Err() == nil {
				p.tell(host.Status(name))
			}
		})
	}
	return func() { stop(); work.Wait() }
}

// isStarting reports whether the first start of a server has not ended.
func isStarting(s HostStatus) bool {
	return s.Err == ErrStarting || s.Err == ErrListing || s.Err == nil && !s.Running
}

// starting returns the names of the servers whose first start has not ended.
func starting(status []HostStatus) (names []string) {
	for _, s := range status {
		if isStarting(s) {
			names = append(names, s.Name)
		}
	}
	return names
}

// known reports which of these names is not that of a server.
func (p *program) known(names ...string) error {
	known := ServerNames(p.servers)
	for _, name := range names {
		switch {
		case slices.Contains(p.disabled, name):
			return usageError("the server %q is disabled in the configuration", name)
		case !slices.Contains(known, name):
			return usageError("there is no server %q; the servers are: %s", name, strings.Join(known, ", "))
		}
	}
	return nil
}

// absent returns the reasons why none of the servers is running, nor starting, and nil if one is.
func (p *program) absent(status []HostStatus) error {
	var reasons []string
	for _, s := range status {
		if s.Err == nil || isStarting(s) || s.Err == ErrWaiting {
			return nil
		}
		reasons = append(reasons, "server "+s.Name+": "+p.about(s))
	}
	switch {
	case len(status) > 1:
		return fmt.Errorf("none of the %d servers could be started: %s", len(status), strings.Join(reasons, "; "))
	case p.server != "" || p.builtIn: // the user gave it no name
		return errors.New(p.about(status[0]))
	}
	return errors.New(reasons[0])
}

// tell says which servers are starting, and what became of those; and of others why they are not running. It says
// nothing twice.
func (p *program) tell(status []HostStatus) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var late []string
	for _, s := range status {
		before, now := p.reported[s.Name], ""
		if s.Err != nil {
			now = strings.TrimPrefix(s.Err.Error(), "server "+s.Name+": ") // with or without the Host's
		}
		switch p.reported[s.Name] = now; {
		case isStarting(s) && before == "":
			late = append(late, s.Name)
		case isStarting(s) || now == before:
		case s.Err != nil:
			p.screen.Show(Look{Max: maxShown}, "server "+s.Name+": "+p.about(s))
		case !p.quiet:
			p.screen.Show(Look{Style: Faint}, fmt.Sprintf("server %s is ready: %s", s.Name, Plural(s.Tools, "tool")))
		}
	}
	if len(late) > 0 {
		p.screen.Show(Look{Style: Faint, Max: maxShown}, "still starting: "+strings.Join(late, ", "))
	}
}

// about returns why a server is not running, without its name, which the error of a Host may have.
func (p *program) about(s HostStatus) string {
	err := s.Err
	if !errors.As(err, new(*TimeoutError)) { // of a list, which MCP_TIMEOUT does not bound
		err = p.explain(err)
	}
	text := strings.TrimPrefix(err.Error(), "server "+s.Name+": ")
	log := p.logs[s.Name]
	if log != nil && !errors.As(s.Err, new(*Error)) && log.written.Load() > 100 { // else the error has it all
		text += "; all that it wrote is in " + log.file.Name()
	}
	return text
}

// explain returns an error with what to do about it.
func (p *program) explain(err error) error {
	var timeout *TimeoutError
	var needed *LoginError
	var refusal *HTTPError
	var model *APIError
	todo := ""
	switch {
	case errors.As(err, new(*StartTimeoutError)):
		todo = `MCP_START_TIMEOUT, or "startTimeout" in the configuration, sets how long to wait`
	case errors.As(err, &timeout) && !timeout.Total:
		todo = `the server may still finish the work; MCP_TIMEOUT, or "timeout" in the configuration, sets how long to wait`
	case errors.Is(err, ErrWaiting):
		todo = "finish it, and ask again; in a chat, /reconnect shows its address"
	case errors.As(err, &needed):
		for _, l := range p.logins {
			if needed.Resource == l.server.URL {
				todo = "run: mcpagent login " + word(l.name())
			}
		}
	case errors.As(err, new(*AuthorizationError)): // which says what is wrong
	case errors.As(err, &refusal) && refusal.Status == http.StatusUnauthorized:
		todo = `MCP_HEADERS, or "headers" in the configuration, sets headers`
	case errors.As(err, &model) && model.Status == http.StatusUnauthorized:
		todo = "check the API key"
	case model != nil && (model.Code == "1500" || model.Status == 404 && strings.Contains(model.Message, "model")):
		todo = "check the model's name"
	}
	if todo == "" {
		return err
	}
	return fmt.Errorf("%w; %s", err, todo)
}

// clientOptions are the options of the connection to a server.
func (p *program) clientOptions(s *Server) ClientOptions {
	elicit := func(ctx context.Context, r *ElicitRequest) (*ElicitResult, error) { return p.elicit(ctx, s, r) }
	sample := func(ctx context.Context, r *SampleRequest) (*SampleResult, error) { return p.sample(ctx, s, r) }
	o := ClientOptions{
		Info:         Implementation{Name: "mcpagent", Version: version},
		Timeout:      p.timeout,
		Protocol:     strings.TrimPrefix(p.protocol, "auto"),
		Warn:         func(text string) { p.note("server %s: %s", s.Name, text) },
		Answers:      map[string]Responder{"elicitation/create": ElicitAnswer(elicit)},
		MaxQuestions: p.maxQuestions,
	}
	if p.approve == "always" || p.approve != "never" && p.terminal.Interactive() {
		o.Answers["sampling/createMessage"] = SampleAnswer(sample)
	}
	if p.tracer != nil {
		o.Trace = func(sent bool, text []byte) {
			p.tracer(s, map[bool]string{true: "-> ", false: "<- "}[sent]+string(text))
		}
		o.Skipped = func(_ []byte, reason error) { p.tracer(s, "!! skipped: "+reason.Error()) }
	}
	return o
}

// commandHash is a hash of a command, its arguments, which may be secret, and its folder.
func commandHash(c *Command) string {
	folder, _ := filepath.Abs(c.Dir) // "" where this folder is gone
	return fmt.Sprintf("%.16x", sha256.Sum256(fmt.Appendf(nil, "%q %q %q", c.Path, c.Args, folder)))
}

// configure reads which servers to use.
func (p *program) configure(ctx context.Context) error {
	if p.server != "" {
		return p.oneServer()
	}
	file := cmp.Or(p.config, defaultConfig())
	if file == "" {
		self, err := os.Executable()
		p.builtIn = true
		p.servers = []Server{{Name: "library", Command: Command{Path: self, Args: []string{"serve"}}}}
		return err
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("MCP_CONFIG: %w", err)
	}
	folder, _ := os.Getwd()
	home, _ := os.UserHomeDir()
	values := map[string]string{"workspaceFolder": folder, "userHome": home}
	lookup := func(name string) (value string, ok bool) {
		if value, ok = values[name]; !ok {
			value, ok = os.LookupEnv(name)
		}
		p.secrets.AddVariable(name, value)
		return value, ok
	}
	// What the file itself has as a secret is not hidden from the question of trust.
	config, err := ParseConfig(text, lookup, new(Secrets))
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if p.config == "" && filepath.Dir(file) == "." {
		if err := p.trustFolder(ctx, file, text, config); err != nil {
			return err
		}
		p.note("the servers of %s: %s", file, strings.Join(ServerNames(config.Servers), ", "))
	}
	if p.terminal.Interactive() {
		if err := p.askInputs(ctx, config.Inputs, values); err != nil {
			return err
		}
	}
	config, _ = ParseConfig(text, lookup, p.secrets)
	for _, warning := range config.Warnings {
		p.note("%s: %s", file, warning)
	}
	p.oauth, p.disabled = config.OAuth, config.Disabled
	if p.servers = config.Servers; len(p.servers) == 0 {
		return fmt.Errorf("%s has no servers, or none that is enabled", file)
	}
	return nil
}

// askInputs asks the user for what servers need, once each. What is not chosen from a list may be secret.
func (p *program) askInputs(ctx context.Context, inputs []Input, values map[string]string) error {
	for _, in := range inputs {
		if _, answered := values["input:"+in.ID]; answered {
			continue
		}
		f := &Field{Name: in.ID, Title: in.Description, Type: "string", Default: in.Default}
		for _, option := range in.Options {
			f.Options = append(f.Options, Option{Value: option})
		}
		value, err := p.terminal.Input(ctx, f, in.Password)
		if err != nil {
			return context.Cause(ctx) // nil if the user ends it: the servers that need it say so
		}
		text, _ := value.(string)
		values["input:"+in.ID] = text
		if in.Password {
			p.secrets.AddHeader("password", text)
		} else if in.Options == nil {
			p.secrets.AddHeader(in.ID, text)
		}
	}
	return nil
}

// defaultConfig is the configuration of this folder, or else of the user, or "".
func defaultConfig() string {
	home, _ := os.UserHomeDir()
	files := []string{".mcp.json"}
	for _, name := range []string{".mcp.json", ".mcphost.json", ".mcphost.yml", ".mcphost.yaml"} {
		files = append(files, filepath.Join(home, name))
	}
	for _, file := range files {
		if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
			return file // also one that cannot be read: its reader says why
		}
	}
	return ""
}

// oneServer is the server of MCP_SERVER.
func (p *program) oneServer() error {
	address := strings.TrimSpace(p.server)
	if scheme := uriScheme.FindString(address); scheme != "" && strings.HasPrefix(address, scheme+"//") {
		u, err := ParseServerURL(address, p.secrets)
		if err != nil {
			return usageError("MCP_SERVER: %w", err)
		}
		p.servers = []Server{{Name: u.Hostname(), URL: address, Header: p.headers}}
		return nil
	}
	c, err := ParseCommand(p.server)
	if err != nil {
		return usageError("MCP_SERVER: %w", err)
	}
	for _, variable := range c.Env {
		name, value, _ := strings.Cut(variable, "=")
		p.secrets.AddVariable(name, value)
	}
	p.secrets.AddArguments(c.Args)
	name, _, _ := strings.Cut(filepath.Base(c.Path), " ")
	p.servers = []Server{{Name: name, Command: c}}
	return nil
}

// readHeaders reads MCP_HEADERS.
func (p *program) readHeaders(text string) error {
	p.headers = make(http.Header)
	for _, line := range strings.FieldsFunc(text, func(r rune) bool { return r == '\r' || r == '\n' }) {
		if err := AddHeader(p.headers, line, p.secrets); err != nil && strings.TrimSpace(line) != "" {
			return usageError("MCP_HEADERS: %w", err)
		}
	}
	return nil
}

// killServers ends all processes of servers at once, for an interrupt that does not wait for them to end by
// themselves.
func (p *program) killServers() {
	p.processes.Range(func(process, _ any) bool {
		process.(*Stdio).Kill() // which does nothing where it has ended
		return true
	})
}

// maxLog bounds a server's log, in bytes: a full one begins anew.
const maxLog = 5 << 20

// serverLog is the file with what a server writes to stderr, after that of earlier runs, whose servers may still be
// running.
type serverLog struct {
	file    *os.File
	written atomic.Int64 // bytes, in this run
}

// openLog makes the log of a server, if that is possible.
func (p *program) openLog(s *Server, path string) {
	_ = os.MkdirAll(filepath.Dir(path), 0o700)
	if file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600); err == nil {
		p.logs[s.Name] = &serverLog{file: file}
		s.Command.Stderr = p.secrets.Writer(p.logs[s.Name])
	}
}

func (l *serverLog) Write(text []byte) (int, error) {
	if n := int64(len(text)); l.written.Add(n) == n {
		text = append(fmt.Appendf(nil, "--- %s, process %d\n", time.Now().Format(time.RFC3339), os.Getpid()), text...)
	}
	if info, err := l.file.Stat(); err == nil && info.Size()+int64(len(text)) > maxLog {
		_ = os.Truncate(l.file.Name(), 0) // on Windows a file that is appended to cannot truncate itself
	}
	return l.file.Write(text)
}
