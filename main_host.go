// main_host.go - the servers of a run: which they are, and how each is started.
// Needs: Go 1.25, json.go, rpc.go, transport_stdio.go, transport_stdio_unix.go, transport_stdio_windows.go, transport_http_events.go, transport_http.go, transport_http_params.go, transport_sse.go, mcp_types.go, elicitation.go, mcp.go, mcp_input.go, mcp_lists.go, mcp_handshake.go, mcp_repair.go, mistral.go, mcp_model.go, sampling.go, agent.go, connect.go, host_server.go, host.go, config.go, mask.go, search.go, corpus.go, library_tools.go, library.go, library_http_answer.go, library_http.go, offline.go, terminal_unix.go, terminal_other.go, terminal_screen.go, terminal.go, terminal_view.go, session.go, main.go, main_log.go, main_ask.go, main_chat.go, main_commands.go, main_server.go.
// SPDX-License-Identifier: 0BSD

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// host starts the servers. done ends them. The error says why there is none.
func (p *program) host(ctx context.Context) (_ *Host, done func(), err error) {
	if err := p.configure(); err != nil {
		return nil, nil, err
	}
	trace, closeTrace, err := p.openTrace()
	if err != nil {
		return nil, nil, err
	}
	var logs []*serverLog
	servers := make([]HostServer, len(p.servers))
	for i, name := range logNames(p.servers) {
		var log *serverLog
		if trace == nil && !p.builtIn && p.servers[i].Command != "" {
			if log = p.openLog(name); log != nil {
				logs = append(logs, log)
			}
		}
		servers[i] = p.hostServer(&p.servers[i], trace, log)
	}
	host := StartHost(ctx, servers)
	done = func() {
		_ = host.Close()
		for _, log := range logs {
			_ = log.Close()
		}
		_ = closeTrace()
	}
	if err = context.Cause(ctx); err == nil {
		err = p.absent(host)
	}
	if err != nil {
		done()
		return nil, nil, err
	}
	return host, done, nil
}

// absent names the servers that are not there. The error says that none is.
func (p *program) absent(host *Host) error {
	status := host.Status()
	var reasons []string
	for _, s := range status {
		if s.Err != nil {
			reasons = append(reasons, fmt.Sprintf("server %s: %v", s.Name, s.Err))
		}
	}
	switch {
	case len(reasons) < len(status):
		p.tellAbsent(status)
		return nil
	case len(status) > 1:
		return fmt.Errorf("none of the %d servers is there: %s", len(status), strings.Join(reasons, "; "))
	case p.server != "" || p.builtIn:
		return status[0].Err
	}
	return errors.New(reasons[0])
}

// tellAbsent names the servers that are not there, each once for every reason.
func (p *program) tellAbsent(status []HostStatus) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range status {
		if s.Err == nil || p.told[s.Name] == s.Err.Error() {
			continue
		}
		if p.told == nil {
			p.told = make(map[string]string)
		}
		p.told[s.Name] = s.Err.Error()
		fmt.Fprintln(p.stderr, p.screen.Fold(visible(cut(p.redact(fmt.Sprintf("server %s: %v", s.Name, s.Err)), 2000))))
	}
}

// hostServer is a server as a Host takes it. trace and log may be nil.
func (p *program) hostServer(s *ServerConfig, trace io.Writer, log *serverLog) HostServer {
	server := &Server{URL: s.URL, Header: s.Header, SSE: s.SSE, Warn: func(text string) { p.note("%s", p.ofServer(s, text)) }}
	server.Command = Command{Path: s.Command, Args: s.Args, Env: s.Env, Dir: s.Dir}
	options := ClientOptions{
		Info:    Implementation{Name: "mcpagent", Version: version},
		Timeout: cmp.Or(s.Timeout, p.timeout),
		Elicit:  func(ctx context.Context, r *ElicitRequest) (*ElicitResult, error) { return p.elicit(ctx, s, r) },
	}
	if p.approve == "always" || p.approve != "never" && p.terminal.Interactive() {
		options.Sample = func(ctx context.Context, r *SampleRequest) (*SampleResult, error) { return p.sample(ctx, s, r) }
	}
	if p.protocol != "auto" {
		options.Protocol = p.protocol
	}
	marked := func(mark string) tracer { return tracer{p, trace, mark} }
	if len(p.servers) > 1 {
		marked = func(mark string) tracer { return tracer{p, trace, s.Name + " " + mark} }
	}
	switch {
	case trace != nil:
		server.Command.Stderr = &lineWriter{w: p.mask.Writer(marked("!! stderr: "))}
		options.Stray = func(_ []byte, reason error) { marked("!! ").line("skipped: " + reason.Error()) }
	case log != nil:
		server.Command.Stderr = log
	}
	server.Wrap = func(t Transport) Transport {
		if stdio, ok := t.(*Stdio); ok {
			t = p.children.add(stdio)
		}
		if trace == nil {
			return t
		}
		return traced{t, marked("-> "), marked("<- ")}
	}
	return HostServer{
		Name:         s.Name,
		Options:      options,
		StartTimeout: p.start,
		Allows:       s.Allows,
		Connect: func(ctx context.Context, o ClientOptions) (*Client, error) {
			if s.Err != nil {
				return nil, s.Err
			}
			client, err := server.Connect(ctx, o)
			return client, p.explain(s, err, log)
		},
	}
}

// ofServer says which server says something, if there are several.
func (p *program) ofServer(s *ServerConfig, text string) string {
	if len(p.servers) > 1 {
		return s.Name + ": " + text
	}
	return text
}

// explain adds to an error of a server's start what to do about it.
func (p *program) explain(s *ServerConfig, err error, log *serverLog) error {
	var refusal *HTTPError
	var answer *Error
	var exit *ServerExitError
	var late *StartTimeoutError
	if errors.As(err, &late) {
		err = fmt.Errorf("%w (MCP_START_TIMEOUT)", err)
	}
	switch {
	case err == nil || errors.As(err, &answer):
	case errors.As(err, &refusal):
		if refusal.Status != http.StatusUnauthorized && refusal.Status != http.StatusForbidden {
			break
		}
		if p.server != "" {
			return fmt.Errorf("%w; MCP_HEADERS sets headers, one \"Name: value\" a line", err)
		}
		return fmt.Errorf("%w; \"headers\" of the server in %s sets headers", err, p.from)
	case log != nil && log.hasMore(errors.As(err, &exit)):
		return fmt.Errorf("%w; all that it wrote is in %s", err, log.path)
	}
	return err
}

// configure finds out which servers there are to be.
func (p *program) configure() error {
	if p.server != "" {
		return p.oneServer()
	}
	file := p.config
	if file == "" {
		var found bool
		if file, found = defaultConfig(); !found {
			self, err := os.Executable()
			p.builtIn, p.servers = true, []ServerConfig{{Name: "library", Command: self, Args: []string{"serve"}}}
			return err
		}
	}
	text, err := os.ReadFile(file)
	if err != nil && p.config != "" {
		return fmt.Errorf("MCP_CONFIG: %w", err)
	} else if err != nil {
		return err
	}
	config, err := ParseConfig(text, os.LookupEnv)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	var names []string
	for _, s := range config.Servers {
		p.mask.Add("[secret]", s.Secrets...)
		names = append(names, s.Name)
	}
	if p.config == "" && filepath.Dir(file) == "." { // of this folder: it may be somebody else's
		p.note("the servers of %s: %s", file, strings.Join(names, ", "))
	}
	for _, warning := range config.Warnings {
		p.note("%s: %s", file, warning)
	}
	if p.from, p.servers = file, config.Servers; len(p.servers) > 0 {
		return nil
	}
	if len(config.Disabled) > 0 {
		return fmt.Errorf("%s has no server that is switched on; these are not: %s", file, strings.Join(config.Disabled, ", "))
	}
	return fmt.Errorf("%s has no servers", file)
}

// defaultConfig is the configuration of this folder, or else of the user.
func defaultConfig() (file string, found bool) {
	files := []string{".mcp.json"}
	if home, err := os.UserHomeDir(); err == nil {
		files = append(files, filepath.Join(home, ".mcp.json"))
	}
	for _, file := range files {
		if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
			return file, true // also one that cannot be read: its reader says why
		}
	}
	return "", false
}

// oneServer is the server of MCP_SERVER.
func (p *program) oneServer() error {
	address := strings.TrimSpace(p.server)
	if !strings.HasPrefix(address, "http://") && !strings.HasPrefix(address, "https://") {
		c, err := ParseCommand(p.server)
		if err != nil {
			return usageError("MCP_SERVER: %w", err)
		}
		name := strings.TrimSuffix(filepath.Base(c.Path), ".exe")
		p.servers = []ServerConfig{{Name: name, Command: c.Path, Args: c.Args, Env: c.Env}}
		for _, variable := range c.Env {
			name, value, _ := strings.Cut(variable, "=")
			p.mask.Add("[secret]", secretsOf(name, value)...)
		}
		return nil
	}
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return usageError("MCP_SERVER is no URL that can be used: it needs a host, and no spaces")
	}
	p.mask.Add("[secret]", secretsOfURL(u)...)
	p.servers = []ServerConfig{{Name: u.Hostname(), URL: address, Header: p.headers}}
	return nil
}

// readHeaders reads MCP_HEADERS.
func (p *program) readHeaders(text string) error {
	p.headers = make(http.Header)
	for line := range strings.Lines(text) {
		if strings.TrimSpace(line) == "" {
			continue
		}
		name, value, ok := strings.Cut(line, ":")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		if !ok || name == "" || strings.Trim(name, tokenCharacters) != "" {
			return usageError("MCP_HEADERS: a line is not of the form \"Name: value\"")
		}
		p.headers.Add(name, value)
		_, token, _ := strings.Cut(value, " ") // of Authorization: Bearer TOKEN
		p.mask.Add("[secret]", slices.Concat(secretsOf(name, value), secretsOf(name, token))...)
	}
	return nil
}

// children are the processes that servers run as.
type children struct {
	mu  sync.Mutex // guards all
	all map[*Stdio]bool
}

// child is a process that is among the children until it is closed.
type child struct {
	*Stdio
	all *children
}

func (c *children) add(s *Stdio) Transport {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all == nil {
		c.all = make(map[*Stdio]bool)
	}
	c.all[s] = true
	return child{s, c}
}

func (c child) Close() error {
	err := c.Stdio.Close()
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	delete(c.all.all, c.Stdio)
	return err
}

// kill ends all of them at once.
func (c *children) kill() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for s := range c.all {
		s.Kill()
	}
}
