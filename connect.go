// connect.go - from what names a server to a client of it.
// Needs: Go 1.25, json.go, rpc.go, transport_stdio.go, transport_stdio_unix.go, transport_stdio_windows.go, transport_http_events.go, transport_http.go, transport_http_params.go, transport_sse.go, mcp_types.go, elicitation.go, mcp.go, mcp_input.go, mcp_lists.go, mcp_handshake.go, mcp_repair.go.
// SPDX-License-Identifier: 0BSD

package main

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// Server says where an MCP server is: a command to start, or a URL.
type Server struct {
	Command Command      // of a server on stdio
	URL     string       // of a server on HTTP; empty if there is a command
	Header  http.Header  // sent to the URL with every request
	Client  *http.Client // for the URL; nil: see HTTP.Client
	SSE     bool         // the URL is known to be of HTTP+SSE, and nothing else is tried

	Wrap func(Transport) Transport // put around every transport, as a trace is; may be nil
	Warn func(text string)         // told what of the server is left out, and why; may be nil
}

// String is the command or the URL, without its query.
func (s *Server) String() string {
	if s.URL != "" {
		return bareURL(s.URL)
	}
	return s.Command.String()
}

// Connect connects to the server. An address at which nobody speaks Streamable HTTP may be one of HTTP+SSE (MCP 2026-07-28,
// transports, streamable HTTP, backward compatibility).
func (s *Server) Connect(ctx context.Context, o ClientOptions) (*Client, error) {
	client, err := s.connect(ctx, o)
	if advice := tlsAdvice(err); advice != "" {
		err = fmt.Errorf("%w; %s", err, advice)
	}
	return client, err
}

// tlsAdvice says what to do about a connection that is not trusted, or is none of TLS.
func tlsAdvice(err error) string {
	switch {
	case errors.As(err, new(x509.UnknownAuthorityError)):
		return "if it is to be trusted, add its authority to the system's, or name a file of certificates in SSL_CERT_FILE"
	case errors.As(err, new(x509.HostnameError)):
		return "its certificate is for another name: use that one in the URL"
	case errors.As(err, new(x509.CertificateInvalidError)):
		return "its certificate is out of date, or not for this use: only the server can change that"
	case err != nil && strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		return "it does not speak TLS there: try http:// in the URL"
	case err != nil && (strings.Contains(err.Error(), "HTTP request to an HTTPS server") || // in Go
		strings.Contains(err.Error(), "HTTP request was sent to HTTPS port") || // nginx
		strings.Contains(err.Error(), "plain HTTP to an SSL-enabled server")): // Apache
		return "it speaks TLS there: try https:// in the URL"
	}
	return ""
}

func (s *Server) connect(ctx context.Context, o ClientOptions) (*Client, error) {
	old := o
	old.Protocol = cmp.Or(o.Protocol, handshakeRevisions()[0]) // HTTP+SSE is older than server/discover
	if s.URL == "" {
		return s.open(ctx, s.stdio, o)
	}
	if s.SSE && o.Protocol == statelessRevision {
		return nil, fmt.Errorf("HTTP+SSE does not carry revision %s", statelessRevision)
	}
	if s.SSE {
		return s.open(ctx, s.sse, old)
	}
	client, err := s.open(ctx, s.http, o)
	var refusal *HTTPError
	if !errors.As(err, &refusal) || o.Protocol == statelessRevision {
		return client, err
	}
	switch refusal.Status {
	case http.StatusBadRequest, http.StatusNotFound, http.StatusMethodNotAllowed:
		client, failed := s.open(ctx, s.sse, old)
		if failed != nil {
			return nil, fmt.Errorf("%w; nor is it HTTP+SSE: %w", err, failed)
		}
		return client, nil
	}
	return nil, err
}

func (s *Server) open(ctx context.Context, start func(context.Context) (Transport, error), o ClientOptions) (*Client, error) {
	return connectTo(ctx, func(ctx context.Context) (Transport, error) {
		transport, err := start(ctx)
		if err == nil && s.Wrap != nil {
			transport = s.Wrap(transport)
		}
		return transport, err
	}, o)
}

// connectTo connects over what start starts. It is started again if the server did not survive being asked what it speaks: then
// it is of the handshake era.
func connectTo(ctx context.Context, start func(context.Context) (Transport, error), o ClientOptions) (*Client, error) {
	transport, err := start(ctx)
	if err != nil {
		return nil, err
	}
	client, err := Connect(ctx, transport, &o)
	if errors.Is(err, ErrProbe) {
		o.Protocol = handshakeRevisions()[0]
		return connectTo(ctx, start, o)
	}
	return client, err
}

func (s *Server) stdio(context.Context) (Transport, error) { return StartStdio(s.Command) }

func (s *Server) http(context.Context) (Transport, error) {
	return &ParamHeaders{HTTP: &HTTP{URL: s.URL, Header: s.Header, Client: s.Client}, Warn: s.Warn}, nil
}

func (s *Server) sse(ctx context.Context) (Transport, error) {
	return StartSSE(ctx, &HTTP{URL: s.URL, Header: s.Header, Client: s.Client})
}
