// main_host.go - the servers of a run: which they are, how each is started, and what is logged of them.
// SPDX-License-Identifier: 0BSD

package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

// host returns the host of the servers, none of which is started yet. done ends them.
func (p *program) host(ctx context.Context) (_ *Host, done func(), err error) {
	if err := p.configure(ctx); err != nil {
		return nil, nil, err
	}
	trace, traceFile, err := p.openTrace()
	if err != nil {
		return nil, nil, err
	}
	p.tracer = trace
	p.logs, p.reported = make(map[string]*serverLog), make(map[string]string)
	cache, err := os.UserCacheDir()
	keeps := err == nil && !p.builtIn // a machine may have no home: then there are no logs
	for i, name := range logNames(p.servers) {
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
		if p.server != "" { // else all that begin with python or npx would share a log
			name += "-" + hash[:8]
		}
		if keeps {
			s.NoProbe = filepath.Join(cache, "mcpagent", "handshake-"+hash)
		}
		if trace != nil {
			s.Command.Stderr = p.traceStderr(s, trace)
		} else if keeps {
			p.openLog(s, filepath.Join(cache, "mcpagent", name+".log"))
		}
		s.Start = func(ctx context.Context) (Transport, error) { // as Command does, but interrupts find the process
			transport, err := s.Command.Start(ctx)
			if process, ok := transport.(*Stdio); ok {
				p.processes.Store(process, nil)
			}
			return transport, explainStart(&s.Command, err)
		}
	}
	p.addLogins()
	host := NewHost(p.servers, func(s *Server) ClientOptions { return p.clientOptions(s, trace) })
	return host, func() {
		_ = host.Close()
		p.closeLogins()
		for _, log := range p.logs {
			_ = log.Close()
		}
		_ = traceFile.Close() // which may be nil
	}, nil
}

// startServers starts the servers of these names, or all if there are none, and waits for them. The error says why
// none is running.
func (p *program) startServers(ctx context.Context, host *Host, names ...string) error {
	if err := p.known(names...); err != nil {
		return err
	}
	err := p.withLogins(ctx, host, func() error { p.startHost(ctx, host, names...); return context.Cause(ctx) })
	if err != nil {
		return err
	}
	return p.absent(host.Status(names...))
}

// startHost starts the servers of these names, or all if there are none, as Host.Start does. The status names those
// that are awaited.
func (p *program) startHost(ctx context.Context, host *Host, names ...string) {
	if awaited := starting(host.Status(names...)); len(awaited) > 0 {
		view := &View{Screen: p.screen, Quiet: p.quiet}
		view.Begin("starting " + strings.Join(awaited, ", "))
		defer view.End()
	}
	host.Start(ctx, names...)
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

// absent names the servers that are not running. The error says that none is, and that none is starting.
func (p *program) absent(status []HostStatus) error {
	var reasons []string
	for _, s := range status {
		if s.Err != nil && !isStarting(s) && s.Err != ErrWaiting {
			reasons = append(reasons, p.aboutServer(s))
		}
	}
	switch {
	case len(reasons) < len(status):
		p.tellAbsent(status)
		return nil
	case len(status) > 1:
		return fmt.Errorf("none of the %d servers could be started: %s", len(status), strings.Join(reasons, "; "))
	case p.server != "" || p.builtIn: // the user gave it no name
		return errors.New(strings.TrimPrefix(reasons[0], "server "+status[0].Name+": "))
	}
	return errors.New(reasons[0])
}

// tellAbsent names the servers that are not running, each once for every reason.
func (p *program) tellAbsent(status []HostStatus) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var late []string
	for _, s := range status {
		before := p.reported[s.Name]
		if s.Err == nil || before == s.Err.Error() {
			continue
		}
		if p.reported[s.Name] = s.Err.Error(); !isStarting(s) {
			p.screen.Show(Look{Max: maxShown}, p.aboutServer(s))
		} else if before == "" {
			late = append(late, s.Name)
		}
	}
	if len(late) > 0 {
		p.screen.Show(Look{Style: Faint, Max: maxShown}, "still starting: "+strings.Join(late, ", "))
	}
}

// aboutServer returns a server's error with its name, which the error of a Host may have already, and with what to do
// about it.
func (p *program) aboutServer(s HostStatus) string {
	name := "server " + s.Name + ": "
	text := name + strings.TrimPrefix(s.Err.Error(), name)
	if errors.As(s.Err, new(*StartTimeoutError)) {
		text += "; MCP_START_TIMEOUT, or \"startTimeout\" in the configuration, sets how long to wait"
	}
	var refusal *HTTPError
	log := p.logs[s.Name]
	switch {
	case errors.As(s.Err, new(*LoginError)):
		text = name + strings.TrimPrefix(p.explainCall(s.Err).Error(), name)
	case errors.As(s.Err, new(*AuthorizationError)): // which says what is wrong
	case errors.As(s.Err, &refusal) && refusal.Status == http.StatusUnauthorized:
		text += "; MCP_HEADERS, or \"headers\" in the configuration, sets headers"
	case log != nil && !errors.As(s.Err, new(*Error)) && log.hasMore(errors.As(s.Err, new(*ServerExitError))):
		text += "; all that it wrote is in " + log.path
	}
	return text
}

// explainStart returns an error of Command.Start with what to do about it. Go reports a missing folder as a missing
// command.
func explainStart(c *Command, err error) error {
	_, noFolder := os.Stat(c.Dir + "/.")
	switch {
	case err == nil:
		return nil
	case c.Dir != "" && noFolder != nil:
		return fmt.Errorf("start server: its \"cwd\": %w", noFolder)
	case strings.Contains(c.Path, " ") && (errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist)):
		return fmt.Errorf("%w; what follows the command belongs into its \"args\"", err)
	}
	return err
}

// explainCall returns an error of a request with what to do about it.
func (p *program) explainCall(err error) error {
	var needed *LoginError
	for _, l := range p.logins {
		if errors.As(err, &needed) && needed.Resource == l.server.URL {
			return fmt.Errorf("%w; run: mcpagent login %s", err, word(l.name()))
		}
	}
	if errors.Is(err, ErrWaiting) {
		return fmt.Errorf("%w: finish it, and ask again; in a chat, /reconnect shows its address", err)
	}
	var timeout *TimeoutError
	if errors.As(err, &timeout) && !timeout.Total {
		return fmt.Errorf("%w; the server may still finish the work; MCP_TIMEOUT, or \"timeout\" in the configuration, "+
			"sets how long to wait", err)
	}
	return err
}

// clientOptions are the options of the connection to a server. trace may be nil.
func (p *program) clientOptions(s *Server, trace func(s *Server, line string)) ClientOptions {
	elicit := func(ctx context.Context, r *ElicitRequest) (*ElicitResult, error) { return p.elicit(ctx, s, r) }
	sample := func(ctx context.Context, r *SampleRequest) (*SampleResult, error) { return p.sample(ctx, s, r) }
	o := ClientOptions{
		Info:         Implementation{Name: "mcpagent", Version: version},
		Timeout:      p.timeout,
		Warn:         func(text string) { p.note("server %s: %s", s.Name, text) },
		Answers:      map[string]Responder{"elicitation/create": ElicitAnswer(elicit)},
		MaxQuestions: p.maxQuestions,
	}
	if p.approve == "always" || p.approve != "never" && p.terminal.Interactive() {
		o.Answers["sampling/createMessage"] = SampleAnswer(sample)
	}
	if p.protocol != "auto" {
		o.Protocol = p.protocol
	}
	if trace != nil {
		o.Trace = func(sent bool, text []byte) {
			trace(s, map[bool]string{true: "-> ", false: "<- "}[sent]+string(text))
		}
		o.Stray = func(_ []byte, reason error) { trace(s, "!! skipped: "+reason.Error()) }
	}
	return o
}

// commandHash is a hash of a command, its arguments, which may be secret, and its folder.
func commandHash(c *Command) string {
	folder, _ := filepath.Abs(c.Dir) // "" where this folder is gone
	command, _ := json.Marshal([]any{c.Path, c.Args, folder})
	return fmt.Sprintf("%.16x", sha256.Sum256(command))
}

// configure reads which servers to use.
func (p *program) configure(ctx context.Context) error {
	if p.server != "" {
		return p.oneServer()
	}
	file := p.config
	if file == "" {
		if file = defaultConfig(); file == "" {
			self, err := os.Executable()
			p.builtIn = true
			p.servers = []Server{{Name: "library", Command: Command{Path: self, Args: []string{"serve"}}}}
			return err
		}
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
	before := func(name string) (string, bool) { // the user is asked
		if id, isInput := strings.CutPrefix(name, "input:"); isInput {
			return "<" + id + ">", true
		}
		return lookup(name)
	}
	// What the file itself has as a secret is not hidden from the question of trust.
	config, err := ParseConfig(text, before, new(Secrets))
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
	files := []string{".mcp.json"}
	if home, err := os.UserHomeDir(); err == nil {
		for _, name := range []string{".mcp.json", ".mcphost.json", ".mcphost.yml", ".mcphost.yaml"} {
			files = append(files, filepath.Join(home, name))
		}
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
	for line := range strings.Lines(text) {
		if strings.TrimSpace(line) == "" {
			continue
		}
		if err := AddHeader(p.headers, line, p.secrets); err != nil {
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

// maxLog bounds a server's log, in bytes.
const maxLog = 5 << 20

// serverLog is the file with what a server writes to stderr, in this run of the program after those before it, whose
// servers may still be running. A full one is renamed to NAME.log.old.
type serverLog struct {
	path string

	mu      sync.Mutex // guards the following; held during a write
	file    *os.File
	mask    *MaskWriter // over fill
	written int         // by the server in this run
}

// openLog makes the log of a server, if that is possible.
func (p *program) openLog(s *Server, path string) {
	l := &serverLog{path: path}
	l.mask = p.secrets.Writer(writeFunc(l.fill))
	if os.MkdirAll(filepath.Dir(path), 0o700) == nil && l.open() == nil {
		p.logs[s.Name], s.Command.Stderr = l, l
	}
}

var notInLogName = regexp.MustCompile(`^\.|[^A-Za-z0-9._-]`)

// logNames returns for each server a name that every file system takes.
func logNames(servers []Server) []string {
	form := func(name string) string { return notInLogName.ReplaceAllString(name, "_") }
	return UniqueNames(ServerNames(servers), form, 64)
}

type writeFunc func([]byte) (int, error)

func (f writeFunc) Write(text []byte) (int, error) { return f(text) }

func (l *serverLog) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mask.Write(text)
}

// open opens the file, and leaves what it has.
func (l *serverLog) open() (err error) {
	l.file, err = os.OpenFile(l.path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	return err
}

// fill writes to the file.
func (l *serverLog) fill(text []byte) (int, error) {
	if l.written += len(text); l.written == len(text) {
		text = append(fmt.Appendf(nil, "--- %s, process %d\n", time.Now().Format(time.RFC3339), os.Getpid()), text...)
	}
	info, err := l.file.Stat()
	if err == nil && info.Size() > 0 && info.Size()+int64(len(text)) > maxLog {
		// Where a file that is open cannot be renamed, it grows until it is not open elsewhere.
		_, _ = l.file.Close(), os.Rename(l.path, l.path+".old")
		err = l.open()
	}
	if err != nil {
		return 0, err
	}
	return l.file.Write(text)
}

// hasMore reports whether the log has more than an error shows: that of a process that exited has its last words.
func (l *serverLog) hasMore(exited bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.written > 100 || l.written > 0 && !exited
}

func (l *serverLog) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return errors.Join(l.mask.Close(), l.file.Close())
}

// onlyForOwner makes a file that may have existed before private to its owner.
func onlyForOwner(file *os.File) error {
	info, err := file.Stat()
	if err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o077 != 0 && runtime.GOOS != "windows" {
		err = file.Chmod(0o600)
	}
	return err
}
