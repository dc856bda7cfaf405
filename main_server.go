// main_server.go - the servers of the command line: the one that is asked, and the one that this program can be.
// Needs: Go 1.25, json.go, rpc.go, transport_stdio.go, transport_stdio_unix.go, transport_stdio_windows.go, transport_http_events.go, transport_http.go, transport_http_params.go, transport_sse.go, mcp_types.go, elicitation.go, mcp.go, mcp_input.go, mcp_lists.go, mcp_handshake.go, mcp_repair.go, mistral.go, mcp_model.go, sampling.go, agent.go, connect.go, host.go, search.go, corpus.go, library_tools.go, library.go, library_http_answer.go, library_http.go, offline.go, terminal.go, main.go, main_commands.go.
// SPDX-License-Identifier: 0BSD

package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
)

// host starts the server. done ends it.
func (p *program) host(ctx context.Context) (_ *Host, done func(), err error) {
	server, err := p.whichServer()
	if err != nil {
		return nil, nil, err
	}
	var trace io.Writer
	closeTrace := func() error { return nil }
	switch p.trace {
	case "", "0":
	case "1":
		trace = p.stderr
	default:
		file, err := os.OpenFile(p.trace, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
		if err != nil {
			return nil, nil, fmt.Errorf("MCP_TRACE: %w", err)
		}
		trace, closeTrace = &lineWriter{w: file}, file.Close
	}
	options := ClientOptions{Info: Implementation{Name: "mcpagent", Version: version}, Timeout: p.timeout, Elicit: p.elicit}
	if p.approve == "always" || p.approve != "never" && p.terminal.Interactive() {
		options.Sample = p.sample
	}
	if p.protocol != "auto" {
		options.Protocol = p.protocol
	}
	if trace != nil {
		server.Command.Stderr = tracer{p, trace, "!! stderr: "}
		options.Stray = func(_ []byte, reason error) { tracer{p, trace, "!! "}.line("skipped: " + reason.Error()) }
	}
	server.Warn = func(text string) { p.note("%s", text) }
	server.Wrap = func(t Transport) Transport {
		if stdio, ok := t.(*Stdio); ok {
			p.stdio.Store(stdio)
		}
		if trace == nil {
			return t
		}
		return traced{t, tracer{p, trace, "-> "}, tracer{p, trace, "<- "}}
	}
	starting, cancel := context.WithTimeoutCause(ctx, p.start,
		fmt.Errorf("server %s did not answer within %s (MCP_START_TIMEOUT)", server, p.start))
	defer cancel()
	host, err := StartHost(starting, server.Connect, options)
	if refusal := new(HTTPError); errors.As(err, &refusal) && (refusal.Status == http.StatusUnauthorized || refusal.Status == http.StatusForbidden) {
		err = fmt.Errorf("%w; MCP_HEADERS sets headers, one \"Name: value\" a line", err)
	}
	if err != nil {
		return nil, nil, errors.Join(err, closeTrace())
	}
	return host, func() {
		_ = host.Close()
		_ = closeTrace()
	}, nil
}

// whichServer is the server that was chosen.
func (p *program) whichServer() (*Server, error) {
	if p.server == "" {
		self, err := os.Executable()
		return &Server{Command: Command{Path: self, Args: []string{"serve"}}}, err
	}
	address := strings.TrimSpace(p.server)
	if !strings.HasPrefix(address, "http://") && !strings.HasPrefix(address, "https://") {
		command, err := ParseCommand(p.server)
		if err != nil {
			return nil, usageError("MCP_SERVER: %w", err)
		}
		return &Server{Command: command}, nil
	}
	if u, err := url.Parse(address); err != nil || u.Host == "" {
		return nil, usageError("MCP_SERVER is no URL that can be used: it needs a host, and no spaces")
	}
	return &Server{URL: address, Header: p.headers}, nil
}

// readHeaders reads MCP_HEADERS. What they hold is as secret as the key.
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
		p.secrets = append(p.secrets, value)
		if _, token, ok := strings.Cut(value, " "); ok { // of Authorization: Bearer TOKEN
			p.secrets = append(p.secrets, token)
		}
	}
	return nil
}

// kill ends the server at once, if there is one.
func (p *program) kill() {
	if stdio := p.stdio.Load(); stdio != nil {
		stdio.Kill()
	}
}

// traced writes every message of a transport down.
type traced struct {
	Transport
	out, in tracer
}

func (t traced) Read() ([]byte, error) {
	message, err := t.Transport.Read()
	if err == nil {
		t.in.line(string(message))
	}
	return message, err
}

func (t traced) Write(ctx context.Context, message []byte) error {
	t.out.line(string(message))
	return t.Transport.Write(ctx, message)
}

// tracer writes lines with a mark before each, and without the key.
type tracer struct {
	p    *program
	w    io.Writer
	mark string
}

func (t tracer) line(text string) { fmt.Fprintln(t.w, t.mark+t.p.redact(visible(text))) }

func (t tracer) Write(lines []byte) (int, error) {
	for line := range bytes.Lines(lines) {
		t.line(string(bytes.TrimRight(line, "\r\n")))
	}
	return len(lines), nil
}

// listenAt reads the address of -http. One without a host is on this machine alone.
func (p *program) listenAt(address string) error {
	if _, err := strconv.ParseUint(address, 10, 16); err == nil {
		address = ":" + address
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil || port == "" {
		return errors.New("not an address such as :8080 or 127.0.0.1:8080")
	}
	p.http = net.JoinHostPort(cmp.Or(host, "127.0.0.1"), port)
	return nil
}

// serve is the built-in server, on this program's own stdin and stdout, or over HTTP.
func (p *program) serve(ctx context.Context, args []string) error {
	library := SourceLibrary()
	switch len(args) {
	case 0:
	case 1:
		var err error
		if library, err = OpenLibrary(args[0]); err != nil {
			return err
		}
		defer library.Close()
	default:
		return usageError("serve takes one folder")
	}
	library.Version = version
	library.OnIndexed = func(summary string) { fmt.Fprintln(p.stderr, summary) }
	if p.http != "" {
		return p.serveHTTP(ctx, library)
	}
	if isTerminal(os.Stdin) {
		fmt.Fprintln(p.stderr, "an MCP server on stdin and stdout: one JSON-RPC message a line, Ctrl-D ends it")
	}
	served := make(chan error, 1)
	// A blocked read of a terminal cannot be interrupted, so an interrupt does not wait for it: the process ends.
	go func() { served <- library.Serve(context.Background(), NewLines(os.Stdin, os.Stdout)) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p *program) serveHTTP(ctx context.Context, library *Library) error {
	listener, err := net.Listen("tcp", p.http)
	if err != nil {
		return fmt.Errorf("serve -http: %w", err)
	}
	host, _, _ := net.SplitHostPort(p.http)
	_, port, _ := net.SplitHostPort(listener.Addr().String()) // another one if it was 0
	fmt.Fprintf(p.stderr, "an MCP server at http://%s/mcp; Ctrl-C ends it\n", net.JoinHostPort(host, port))
	return NewLibraryHTTP(library, host).Serve(ctx, listener)
}
