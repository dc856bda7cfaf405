// library_http.go - the library over Streamable HTTP.
// SPDX-License-Identifier: 0BSD

package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Bounds on what clients can make the server hold, and for how long.
const (
	maxPost    = 4 << 20          // bytes of one message
	maxPosts   = 256              // requests of all clients at once
	headerTime = 10 * time.Second // to receive the header of a request
	bodyTime   = 30 * time.Second // to receive the whole request
	writeTime  = 30 * time.Second // for the client to receive what is written
	idleTime   = 2 * time.Minute  // to keep a connection without a request
	leaveTime  = 5 * time.Second  // for running requests after Serve was told to end
)

// The headers of the protocol.
const (
	headerVersion = "MCP-Protocol-Version"
	headerMethod  = "Mcp-Method"
	headerName    = "Mcp-Name"
)

// LibraryHTTP is an http.Handler that serves a library over Streamable HTTP to clients of both eras. It keeps no state
// and gives no session id, so several servers of the same files can stand behind a load balancer. Only the end of its
// HTTP request cancels a request of either era: without sessions, two clients may use the same id. The server sends
// nothing unasked and so has no GET stream; a broken stream cannot be resumed.
type LibraryHTTP struct {
	library *Library
	hosts   []string
	slots   chan struct{} // one is taken by each running request
}

// NewLibraryHTTP serves l. Clients may address it as localhost, by an IP address, or by one of the names in hosts.
func NewLibraryHTTP(l *Library, hosts ...string) *LibraryHTTP {
	return &LibraryHTTP{library: l, hosts: hosts, slots: make(chan struct{}, maxPosts)}
}

// Serve answers HTTP at /mcp until the listener fails or ctx ends. It closes the listener and waits for
// running requests, which it aborts after five seconds. It is called once.
func (h *LibraryHTTP) Serve(ctx context.Context, listener net.Listener) error {
	mux := http.NewServeMux()
	mux.Handle("/mcp", h)
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "the endpoint is /mcp", http.StatusNotFound)
	})
	server := &http.Server{
		Handler: mux, ReadHeaderTimeout: headerTime, ReadTimeout: bodyTime, WriteTimeout: writeTime, IdleTimeout: idleTime,
		ErrorLog: log.New(io.Discard, "", 0), // it reports the errors of clients, who get a response
	}
	failed := make(chan error, 1)
	go func() {
		defer close(failed)
		failed <- server.Serve(listener)
	}()
	var err error
	select {
	case err = <-failed:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	leave, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTime)
	defer cancel()
	if server.Shutdown(leave) != nil {
		_ = server.Close() // ends the ctx of every request
	}
	<-failed
	for range maxPosts { // with all slots taken no request is running, and none can start
		h.slots <- struct{}{}
	}
	return err
}

// ServeHTTP takes one message. It returns after the response was written or the client has gone.
func (h *LibraryHTTP) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a := &httpAnswer{w: w}
	if err := h.serve(a, r); err != nil {
		a.fail(err)
	}
}

func (h *LibraryHTTP) serve(a *httpAnswer, r *http.Request) error {
	if err := h.admit(r); err != nil {
		return err
	}
	if r.Method != http.MethodPost {
		a.w.Header().Set("Allow", "POST")
		return httpErrorf(http.StatusMethodNotAllowed, "%s is not allowed: POST a JSON-RPC message", r.Method)
	}
	select {
	case h.slots <- struct{}{}:
		defer func() { <-h.slots }()
	default:
		a.w.Header().Set("Retry-After", "1")
		return httpErrorf(http.StatusServiceUnavailable, "%d requests are running: try again", maxPosts)
	}
	q, err := h.readPost(a, r)
	if err != nil {
		return err
	}
	version := r.Header.Get(headerVersion)
	switch {
	case a.id == nil: // a notification, which changes nothing here, or a response
		a.w.WriteHeader(http.StatusAccepted)
		return nil
	case q.stateless() || version == Revisions()[0] && q.method != "initialize":
		err = checkHeaders(r.Header, q)
	case version != "" && !slices.Contains(Revisions(), version):
		err = unsupportedVersion(version)
	}
	if err != nil {
		return &httpError{http.StatusBadRequest, err}
	}
	return h.respond(r.Context(), a, q)
}

// admit refuses the pages of other sites, which a browser on this machine may show. The browser names the site in
// Origin. If a site makes its own host name lead to this server (DNS rebinding), the browser names it in Host.
func (h *LibraryHTTP) admit(r *http.Request) error {
	host := (&url.URL{Host: r.Host}).Hostname()
	_, err := netip.ParseAddr(host)
	known := func(name string) bool { return strings.EqualFold(name, host) }
	if err != nil && !isLoopback(host) && !slices.ContainsFunc(h.hosts, known) {
		return httpErrorf(http.StatusForbidden, "unknown host %q: the header Host must be localhost, an IP address, or the "+
			"name of the host that the server listens on; a proxy can set it", host)
	}
	for _, origin := range r.Header.Values("Origin") {
		if u, err := url.Parse(origin); err != nil || !isLoopback(u.Hostname()) && !strings.EqualFold(u.Host, r.Host) {
			return httpErrorf(http.StatusForbidden, "the origin %q is another site", origin)
		}
	}
	return nil
}

func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback() || strings.EqualFold(host, "localhost")
}

// readPost reads a message. That of a response has no method.
func (h *LibraryHTTP) readPost(a *httpAnswer, r *http.Request) (*libraryRequest, error) {
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind != "application/json" {
		return nil, httpErrorf(http.StatusUnsupportedMediaType, "Content-Type must be application/json, not %q", kind)
	}
	body, err := io.ReadAll(http.MaxBytesReader(a.w, r.Body, maxPost))
	if long := (*http.MaxBytesError)(nil); errors.As(err, &long) {
		return nil, httpErrorf(http.StatusRequestEntityTooLarge, "the message is longer than %d bytes", maxPost)
	} else if err != nil {
		return nil, httpErrorf(http.StatusBadRequest, "incomplete message: %v", err)
	}
	if !json.Valid(body) {
		return nil, &httpError{http.StatusBadRequest, &Error{Code: CodeParseError, Message: "the message is not JSON"}}
	}
	var in Incoming
	if err := in.Parse(body); err != nil { // a batch, too: only revision 2025-03-26 has them
		return nil, httpErrorf(http.StatusBadRequest, "not a JSON-RPC message: %v", err)
	}
	if in.Method != "" {
		a.id = in.ID
	}
	q, err := newLibraryRequest(in.Method, in.Params)
	if err != nil {
		return nil, &httpError{http.StatusBadRequest, err}
	}
	q.notify = a.notify
	return q, nil
}

// checkHeaders checks that the headers agree with the body, because a proxy may have relied on them (MCP 2026-07-28,
// Streamable HTTP, server validation).
func checkHeaders(header http.Header, q *libraryRequest) error {
	version := q.version()
	if version == "" {
		return q.checkMeta() // returns an error
	}
	var p struct{ Name, URI string }
	if err := q.decode(&p); err != nil {
		return err
	}
	body := map[string]string{headerVersion: version, headerMethod: q.method}
	switch q.method {
	case "tools/call", "prompts/get":
		body[headerName] = p.Name
	case "resources/read":
		body[headerName] = p.URI
	}
	for name, want := range body {
		if value, ok := decodeHeader(header.Values(name)); !ok || value != want {
			return &Error{Code: CodeHeaderMismatch, Message: fmt.Sprintf(
				"the header %s must be present once with the value of the body, %q, not %q", name, want, header.Values(name))}
		}
	}
	return q.checkMeta()
}

// decodeHeader decodes a header that is present once, in plain ASCII or as Base64 (MCP 2026-07-28, Streamable HTTP,
// value encoding).
func decodeHeader(values []string) (value string, ok bool) {
	special := func(c rune) bool { return c != '\t' && (c < ' ' || c > '~') }
	if len(values) != 1 || strings.ContainsFunc(values[0], special) {
		return "", false
	}
	encoded, begins := strings.CutPrefix(values[0], "=?base64?")
	encoded, ends := strings.CutSuffix(encoded, "?=")
	if !begins || !ends {
		return values[0], true
	}
	plain, err := base64.StdEncoding.DecodeString(encoded)
	return string(plain), err == nil
}

// respond runs a request of either era and writes the response.
func (h *LibraryHTTP) respond(ctx context.Context, a *httpAnswer, q *libraryRequest) error {
	result, err := h.library.answer(ctx, q)
	status, refusal := http.StatusOK, (*Error)(nil)
	switch {
	case ctx.Err() != nil: // the client has gone
		return nil
	case err == nil:
		text, err := EncodeResponse(a.id, result, nil)
		_ = a.write(status, text) // the client may have gone
		return err
	case q.stateless() && errors.As(err, &refusal) && refusal.Code == CodeMethodNotFound:
		status = http.StatusNotFound
	}
	return &httpError{status, err}
}

// httpError is an error with the HTTP status of its response.
type httpError struct {
	status int
	error
}

func (e *httpError) Unwrap() error { return e.error }

func httpErrorf(status int, format string, args ...any) error {
	return &httpError{status, &Error{Code: CodeInvalidRequest, Message: fmt.Sprintf(format, args...)}}
}

// httpAnswer is the answer to one HTTP request: JSON if the response is its only message, otherwise a stream of
// server-sent events.
type httpAnswer struct {
	w         http.ResponseWriter
	id        json.RawMessage // of the JSON-RPC request; nil if there is none, or it was not read yet
	streaming bool
}

// send writes text within writeTime.
func (a *httpAnswer) send(text string) error {
	control := http.NewResponseController(a.w)
	_ = control.SetWriteDeadline(time.Now().Add(writeTime))
	_, _ = io.WriteString(a.w, text)
	return control.Flush() // reports a failure of the write, too
}

// notify sends a notification before the response. It makes the answer a stream.
func (a *httpAnswer) notify(_ context.Context, method string, params any) error {
	if !a.streaming {
		a.streaming = true
		a.w.Header().Set("Content-Type", "text/event-stream")
		a.w.Header().Set("Cache-Control", "no-store")
		a.w.Header().Set("X-Accel-Buffering", "no") // otherwise nginx buffers the events
		a.w.WriteHeader(http.StatusOK)
	}
	text, _ := EncodeRequest(0, method, params) // our params have an encoding
	return a.write(http.StatusOK, text)
}

// write sends a JSON-RPC message. The status applies unless the answer is a stream.
func (a *httpAnswer) write(status int, text []byte) error {
	if a.streaming {
		return a.send("data: " + string(text) + "\n\n")
	}
	a.w.Header().Set("Content-Type", "application/json")
	a.w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	a.w.WriteHeader(status)
	return a.send(string(text))
}

// fail writes an error response. Without a request to answer it has no id (MCP 2026-07-28, Streamable HTTP).
func (a *httpAnswer) fail(err error) {
	response := struct {
		Version string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id,omitempty"`
		Error   *Error          `json:"error"`
	}{"2.0", a.id, &Error{Code: CodeInternalError, Message: err.Error()}}
	errors.As(err, &response.Error)
	withStatus := &httpError{status: http.StatusInternalServerError}
	errors.As(err, &withStatus)
	text, _ := json.Marshal(response)
	_ = a.write(withStatus.status, text) // the client may have gone
}
