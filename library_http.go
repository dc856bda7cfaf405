// library_http.go - the library over Streamable HTTP.
// SPDX-License-Identifier: 0BSD

package main

import (
	"bytes"
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
	"sync"
	"time"
)

// Bounds on what clients can make the server hold, and for how long.
const (
	maxPost    = 4 << 20          // bytes of one message, or batch
	smallPost  = 16 << 10         // bytes of a message that every client can send at any time
	maxLarge   = 32               // longer messages of all clients at once
	maxPosts   = 256              // requests of all clients at once
	maxBatch   = 1000             // messages of a batch
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
	slots   chan struct{} // one is taken by each request that runs, after its body was received
	large   chan struct{} // one is taken by each message longer than smallPost, before it is received
}

// NewLibraryHTTP serves l. Clients may address it as localhost, by an IP address, or by one of the names in hosts.
func NewLibraryHTTP(l *Library, hosts ...string) *LibraryHTTP {
	return &LibraryHTTP{l, hosts, make(chan struct{}, maxPosts), make(chan struct{}, maxLarge)}
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
	ctx, end := context.WithCancelCause(ctx)
	var serving sync.WaitGroup
	serving.Go(func() { end(server.Serve(listener)) })
	<-ctx.Done()
	leave, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTime)
	defer cancel()
	if server.Shutdown(leave) != nil {
		_ = server.Close() // ends the ctx of every request
	}
	serving.Wait()
	for range maxPosts { // with all slots taken no request is running, and none can start
		h.slots <- struct{}{}
	}
	return context.Cause(ctx)
}

// ServeHTTP takes one message, or a batch. It returns after the response was written or the client has gone.
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
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind != "application/json" {
		return httpErrorf(http.StatusUnsupportedMediaType, "Content-Type must be application/json, not %q", kind)
	}
	body := http.MaxBytesReader(a.w, r.Body, maxPost)
	var text bytes.Buffer
	_, err := text.ReadFrom(io.LimitReader(body, smallPost))
	if err == nil && text.Len() == smallPost {
		if err := a.enter(h.large, "long messages are being read"); err != nil {
			return err
		}
		defer func() { <-h.large }()
		_, err = text.ReadFrom(body)
	}
	if long := (*http.MaxBytesError)(nil); errors.As(err, &long) {
		return httpErrorf(http.StatusRequestEntityTooLarge, "the message is longer than %d bytes", maxPost)
	} else if err != nil {
		return httpErrorf(http.StatusBadRequest, "incomplete message: %v", err)
	}
	if err := a.enter(h.slots, "requests are running"); err != nil {
		return err
	}
	defer func() { <-h.slots }()
	return h.answer(a, r, text.Bytes())
}

// enter takes a slot without waiting. It is an error if none is free.
func (a *httpAnswer) enter(slots chan struct{}, taken string) error {
	select {
	case slots <- struct{}{}:
		return nil
	default:
		a.w.Header().Set("Retry-After", "1")
		return httpErrorf(http.StatusServiceUnavailable, "%d %s: try again", cap(slots), taken)
	}
}

// answer answers the one request of a POST, or those of a batch. The responses to a batch are a stream, each sent as
// soon as it is ready (MCP 2025-03-26, transports, sending messages). Notifications, which change nothing here, and
// responses are accepted.
func (h *LibraryHTTP) answer(a *httpAnswer, r *http.Request, text []byte) error {
	version := r.Header.Get(headerVersion)
	isBatch := (version == "" || version == batchRevision) && bytes.HasPrefix(bytes.TrimSpace(text), []byte("["))
	messages := [][]byte{text}
	if isBatch {
		messages = batch(text)
	}
	var requests []Incoming
	for _, message := range messages {
		in, err := readMessage(message)
		switch {
		case err != nil:
			return &httpError{http.StatusBadRequest, err}
		case isBatch && in.Method == "initialize":
			return httpErrorf(http.StatusBadRequest, "initialize must not be part of a batch")
		case in.Method != "" && in.ID != nil:
			requests = append(requests, in)
		}
	}
	switch {
	case len(messages) == 0:
		return httpErrorf(http.StatusBadRequest, "a batch must be an array of 1 to %d messages", maxBatch)
	case len(requests) == 0:
		a.w.WriteHeader(http.StatusAccepted)
	case isBatch:
		a.stream()
	}
	for _, in := range requests {
		if a.id = in.ID; r.Context().Err() != nil {
			return nil // the client has gone
		}
		if err := h.respond(a, r, &in); err != nil {
			a.fail(err)
		}
	}
	return nil
}

// batchRevision is the only revision with batches. It has no header for the revision yet.
const batchRevision = "2025-03-26"

// batch returns the messages of a batch, none if it is invalid or too long.
func batch(text []byte) (messages [][]byte) {
	s := scanner{text: text}
	s.array(func() {
		if messages = append(messages, s.value()); len(messages) > maxBatch {
			s.fail()
		}
	})
	if !s.end() {
		return nil
	}
	return messages
}

// readMessage takes a message apart.
func readMessage(text []byte) (in Incoming, err error) {
	if !validJSON(text) {
		return in, &Error{Code: CodeParseError, Message: "the message is not JSON"}
	}
	if _, err = readObject(text); err == nil { // no member comes twice
		err = in.Parse(text)
	}
	if err == nil && in.Method != "" && in.ID != nil && !isID(in.ID) {
		err = fmt.Errorf("a request with the id %s", in.ID)
	}
	if err != nil {
		err = &Error{Code: CodeInvalidRequest, Message: fmt.Sprintf("not a JSON-RPC message: %v", err)}
	}
	return in, err
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

// checkHeaders checks that the headers agree with the body, because a proxy may have relied on them (MCP 2026-07-28,
// Streamable HTTP, server validation).
func checkHeaders(header http.Header, q *libraryRequest) error {
	version := q.version()
	if version == "" {
		return q.checkMeta() // returns an error
	}
	body := map[string]string{headerVersion: version, headerMethod: q.method}
	named := map[string]string{"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
	if member := named[q.method]; member != "" {
		var name string
		if err := q.member(member, &name); err != nil {
			return err
		}
		body[headerName] = name
	}
	for name, want := range body {
		if value, ok := decodeHeader(header, name); !ok || value != want {
			return &Error{Code: CodeHeaderMismatch, Message: fmt.Sprintf(
				"the header %s must be present once with the value of the body, %q, not %q", name, want, header.Values(name))}
		}
	}
	return q.checkMeta()
}

// decodeHeader returns a header that must be present once, in plain ASCII. A name may be in Base64, too (MCP
// 2026-07-28, Streamable HTTP, value encoding).
func decodeHeader(header http.Header, name string) (value string, ok bool) {
	values := header.Values(name)
	special := func(c rune) bool { return c != '\t' && (c < ' ' || c > '~') }
	if len(values) != 1 || strings.ContainsFunc(values[0], special) {
		return "", false
	}
	encoded, begins := strings.CutPrefix(values[0], "=?base64?")
	encoded, ends := strings.CutSuffix(encoded, "?=")
	if name != headerName || !begins || !ends {
		return values[0], true
	}
	plain, err := base64.StdEncoding.DecodeString(encoded)
	return string(plain), err == nil
}

// respond runs a request of either era and writes the response. initialize and ping may be of the handshake era
// whatever the header says: who asks may not know the era of the server.
func (h *LibraryHTTP) respond(a *httpAnswer, r *http.Request, in *Incoming) error {
	q, err := newLibraryRequest(in.Method, in.Params)
	q.notify = a.notify
	version := r.Header.Get(headerVersion)
	anyEra := q.method == "initialize" || q.method == "ping"
	switch {
	case err != nil:
	case q.stateless() || version == Revisions()[0] && !anyEra:
		err = checkHeaders(r.Header, q)
	case version != "" && !slices.Contains(Revisions(), version):
		err = unsupportedVersion(version)
	}
	if err != nil {
		return &httpError{http.StatusBadRequest, err}
	}
	result, err := h.library.answer(r.Context(), q)
	status, refusal := http.StatusOK, (*Error)(nil)
	switch {
	case r.Context().Err() != nil: // the client has gone
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

// httpAnswer is the answer to one HTTP request: JSON if one response is its only message, otherwise a stream of
// server-sent events.
type httpAnswer struct {
	w         http.ResponseWriter
	id        json.RawMessage // of the JSON-RPC request that is being answered; nil if there is none
	streaming bool
}

// send writes text within writeTime.
func (a *httpAnswer) send(text string) error {
	control := http.NewResponseController(a.w)
	_ = control.SetWriteDeadline(time.Now().Add(writeTime))
	_, _ = io.WriteString(a.w, text)
	return control.Flush() // reports a failure of the write, too
}

// stream makes the answer a stream.
func (a *httpAnswer) stream() {
	if !a.streaming {
		a.streaming = true
		a.w.Header().Set("Content-Type", "text/event-stream")
		a.w.Header().Set("Cache-Control", "no-store")
		a.w.Header().Set("X-Accel-Buffering", "no") // otherwise nginx buffers the events
		a.w.WriteHeader(http.StatusOK)
	}
}

// notify sends a notification before the response. It makes the answer a stream.
func (a *httpAnswer) notify(_ context.Context, method string, params any) error {
	a.stream()
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
