// main_server.go - the server that this program can be.
// Needs: Go 1.25, json.go, rpc.go, transport_stdio.go, transport_stdio_unix.go, transport_stdio_windows.go, transport_http_events.go, transport_http.go, transport_http_params.go, transport_sse.go, mcp_types.go, elicitation.go, mcp.go, mcp_input.go, mcp_lists.go, mcp_handshake.go, mcp_repair.go, mistral.go, mcp_model.go, sampling.go, agent.go, connect.go, host_server.go, host.go, config.go, mask.go, search.go, corpus.go, library_tools.go, library.go, library_http_answer.go, library_http.go, offline.go, terminal_unix.go, terminal_other.go, terminal_screen.go, terminal.go, terminal_view.go, session.go, main.go, main_host.go, main_log.go, main_ask.go, main_chat.go, main_commands.go.
// SPDX-License-Identifier: 0BSD

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
)

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
