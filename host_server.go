// host_server.go - what describes a server, and how a connection to it is made.
// Needs: Go 1.25, json, rpc, lines, transport_stdio, transport_http, mcp, mistral, functions.
// SPDX-License-Identifier: 0BSD

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Server describes an MCP server: a command to start, or a URL to connect to, and what a Host may
// do with it. Only Name and either Command or URL are required.
type Server struct {
	Name string // no other server of a Host has it
	Err  error  // why the description is of no use; Connect returns it

	Command Command      // of a server on stdio
	URL     string       // of a server over HTTP; if it is not empty, Command is not used
	Header  http.Header  // sent to the URL with every request
	Client  *http.Client // for the URL; see HTTP.Client
	SSE     bool         // the URL is one of HTTP+SSE, and nothing else is tried

	// Start, if set, starts the server in place of Command and URL.
	Start func(ctx context.Context) (Transport, error)

	// NoProbe, if set, is a file that exists while a server on stdio has to be started without
	// server/discover (see Client.SkipProbe). Connect makes it, and removes it if the server then
	// fails to start.
	NoProbe string

	Protocol string        // the revision to offer; "" leaves it to ClientOptions.Protocol
	Timeout  time.Duration // of a request; 0 leaves it to ClientOptions.Timeout

	// StartTimeout bounds a start by a Host, and a list of tools. If it is 0, the bound is 30 s. A
	// start then has up to 5 min if the command may have to download the server (npx, uvx, docker,
	// …), and also as long as the server writes to stderr.
	StartTimeout time.Duration

	// OnSlowStart, if set, is called once if a start takes longer than 30 s.
	OnSlowStart func(limit time.Duration)

	AllowedTools  []string // globs of the tools that a model is offered; all if empty
	ExcludedTools []string // globs of those that it is not; stronger than AllowedTools
	AutoApprove   []string // globs of the tools that run without being asked about
}

// ServerNames returns the names of servers.
func ServerNames(servers []Server) []string {
	names := make([]string, len(servers))
	for i, s := range servers {
		names[i] = s.Name
	}
	return names
}

// Allows reports whether a model may be offered a tool.
func (s *Server) Allows(tool string) bool {
	if matchesGlob(s.ExcludedTools, tool) {
		return false
	}
	return len(s.AllowedTools) == 0 || matchesGlob(s.AllowedTools, tool)
}

// Approves reports whether a tool runs without being asked about.
func (s *Server) Approves(tool string) bool { return matchesGlob(s.AutoApprove, tool) }

// MissingNames returns the names in AllowedTools, ExcludedTools and AutoApprove that none of these
// tools has. A typing error there would otherwise allow or exclude nothing, and nobody would know.
// A pattern with wildcards may well match tools that are yet to come.
func (s *Server) MissingNames(tools []Tool) (names []string) {
	for _, name := range slices.Concat(s.AllowedTools, s.ExcludedTools, s.AutoApprove) {
		isTool := slices.ContainsFunc(tools, func(t Tool) bool { return t.Name == name })
		if !isTool && !strings.ContainsAny(name, "*?") && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// Connect starts the server, or connects to it.
func (s *Server) Connect(ctx context.Context, o ClientOptions) (*Client, error) {
	o.Protocol = cmp.Or(s.Protocol, o.Protocol)
	o.Timeout = cmp.Or(s.Timeout, o.Timeout)
	endpoint := HTTP{URL: s.URL, Header: s.Header, Client: s.Client}
	switch {
	case s.Err != nil:
		return nil, s.Err
	case s.Start != nil:
		return s.connectChild(ctx, s.Start, o)
	case s.URL == "":
		return s.connectChild(ctx, s.Command.Start, o)
	case s.SSE:
		return connectSSE(ctx, endpoint, o)
	}
	return connectHTTP(ctx, endpoint, o)
}

// connectHTTP connects to a URL of which nobody has said whether it is one of Streamable HTTP or of
// the older HTTP+SSE. The newer one is tried first (MCP 2026-07-28, transports, streamable HTTP,
// backward compatibility). If both fail, the error has both reasons.
func connectHTTP(ctx context.Context, endpoint HTTP, o ClientOptions) (*Client, error) {
	client, err := Connect(ctx, endpoint.Start, &o)
	if err == nil {
		return client, nil
	}
	if isStateless(o.Protocol) || !mayBeSSE(err) {
		return nil, err
	}
	client, failed := connectSSE(ctx, endpoint, o)
	if failed != nil {
		return nil, fmt.Errorf("%w; nor is it HTTP+SSE: %w", err, failed)
	}
	return client, nil
}

// mayBeSSE reports whether a URL that refused Streamable HTTP in this way may be one of HTTP+SSE.
// That is so if it refused the POST as such. A server that refused what was in the POST, with a
// code that only the stateless era has, has read it and speaks Streamable HTTP.
func mayBeSSE(err error) bool {
	var answer *Error
	if errors.As(err, &answer) {
		ofStatelessEra := answer.Code >= CodeUnsupportedVersion && answer.Code <= CodeHeaderMismatch
		if ofStatelessEra || answer.Code == CodeMethodNotFound {
			return false
		}
	}
	var refusal *HTTPError
	if !errors.As(err, &refusal) {
		return false
	}
	switch refusal.Status {
	case http.StatusBadRequest, http.StatusNotFound, http.StatusMethodNotAllowed:
		return true
	}
	return false
}

// connectSSE connects over HTTP+SSE. That transport is older than server/discover, and no server of
// the stateless era uses it, so the server is not probed.
func connectSSE(ctx context.Context, endpoint HTTP, o ClientOptions) (*Client, error) {
	if isStateless(o.Protocol) {
		return nil, fmt.Errorf("HTTP+SSE does not carry revision %s", o.Protocol)
	}
	if o.Protocol == "" {
		o.Protocol = NewestHandshake()
	}
	return Connect(ctx, endpoint.StartSSE, &o)
}

// connectChild starts a server on stdio. Some such servers do not survive server/discover, so that
// Connect has to start them twice. The file NoProbe remembers these from one run of the program to
// the next. A server that fails without the probe may have become another one: the file is removed,
// and the next start probes again.
func (s *Server) connectChild(
	ctx context.Context,
	start func(context.Context) (Transport, error),
	o ClientOptions,
) (*Client, error) {
	withoutProbe := o.Protocol == "" && s.remembersNoProbe()
	if withoutProbe {
		o.Protocol = NewestHandshake()
	}
	client, err := Connect(ctx, start, &o)
	if err != nil {
		if withoutProbe {
			_ = os.Remove(s.NoProbe)
		}
		return nil, err
	}
	if client.SkipProbe {
		s.rememberNoProbe()
	}
	return client, nil
}

func (s *Server) remembersNoProbe() bool {
	if s.NoProbe == "" {
		return false
	}
	_, err := os.Stat(s.NoProbe)
	return err == nil
}

// rememberNoProbe makes the file NoProbe. Where it cannot be made, the next start probes again.
func (s *Server) rememberNoProbe() {
	if s.NoProbe == "" {
		return
	}
	if err := os.MkdirAll(filepath.Dir(s.NoProbe), 0o700); err != nil {
		return
	}
	_ = os.WriteFile(s.NoProbe, nil, 0o600)
}

// isStateless reports whether a revision is that of the stateless era.
func isStateless(revision string) bool { return revision == Revisions()[0] }

// matchesGlob reports whether a name matches one of the patterns. * stands for any characters and ?
// for one. Unlike those of path.Match they also stand for slashes, which tools may have in their
// names.
func matchesGlob(patterns []string, name string) bool {
	wildcards := strings.NewReplacer(`\*`, `.*`, `\?`, `.`)
	for _, pattern := range patterns {
		expression := `(?s)\A` + wildcards.Replace(regexp.QuoteMeta(pattern)) + `\z`
		if ok, _ := regexp.MatchString(expression, name); ok {
			return true
		}
	}
	return false
}
