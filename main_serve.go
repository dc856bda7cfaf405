// main_serve.go - the command serve: this program as an MCP server.
// SPDX-License-Identifier: 0BSD

package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"runtime/debug"
)

// serving is the built-in server, on stdin and stdout or over HTTP.
type serving struct {
	settings *serveSettings
	screen   *Screen
	terminal *Terminal
}

// run is the command serve.
func (s *serving) run(ctx context.Context, args []string) error {
	if len(args) > 1 {
		return usageError("serve takes one folder")
	}
	library := SourceLibrary()
	if len(args) == 1 {
		root, err := os.OpenRoot(args[0])
		if err != nil {
			return fmt.Errorf("open library: %w", err)
		}
		defer root.Close()
		// No symbolic link leads out of a Root.
		library = NewLibrary(root.FS())
		if os.Getenv("GOGC") == "" {
			// A large library would take twice the memory, for a tenth of the time.
			debug.SetGCPercent(20)
		}
	}
	library.Version = version
	maxFile := s.settings.maxFile
	library.MaxFile = int64(maxFile) << 20
	library.MaxTotal = int64(maxFile) << 27
	library.MaxFiles = maxFile * 10_000
	library.OnIndexed = func(summary string) { s.screen.Show(Look{}, summary) }
	if s.settings.address != "" {
		return s.overHTTP(ctx, library)
	}
	if s.terminal.Interactive() {
		s.screen.Show(Look{}, "an MCP server on stdin and stdout: one JSON-RPC message a line, "+
			"Ctrl-D ends it")
	}
	return WhileBlocked(ctx, func() error {
		return library.Serve(context.Background(), NewLines(os.Stdin, os.Stdout))
	})
}

// overHTTP serves until ctx ends. Requests have to name the host of the address, so that no page in
// a browser reaches the server by another name.
func (s *serving) overHTTP(ctx context.Context, library *Library) error {
	listener, err := net.Listen("tcp", s.settings.address)
	if err != nil {
		return fmt.Errorf("serve -http: %w", err)
	}
	host, _, _ := net.SplitHostPort(s.settings.address)
	// The port 0 stands for any that is free.
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	address := net.JoinHostPort(host, port)
	s.screen.Show(Look{}, fmt.Sprintf("an MCP server at http://%s/mcp; Ctrl-C ends it", address))
	return NewLibraryHTTP(library, host).Serve(ctx, listener)
}
