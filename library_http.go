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
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
)

// Bounds on what clients can make the server hold, and for how long.
const (
	maxPost    = 64 << 10         // bytes of one message
	maxPosts   = 256              // requests of all clients at once
	headerTime = 10 * time.Second // to receive the header of a request
	bodyTime   = 30 * time.Second // to receive the whole request
	writeTime  = 30 * time.Second // for the client to receive the response
	idleTime   = 2 * time.Minute  // to keep a connection without a request
	leaveTime  = 5 * time.Second  // for running requests after Serve was told to end
)

// The headers of the protocol.
const (
	headerVersion = "MCP-Protocol-Version"
	headerMethod  = "Mcp-Method"
	headerName    = "Mcp-Name"
)

// LibraryHTTP is an http.Handler that serves a library over Streamable HTTP to clients of both
// eras. It keeps no state and gives no session id, so several servers of the same files can stand
// behind a load balancer. Only the end of its HTTP request cancels a request of either era:
// without sessions, two clients may use the same id. The server sends nothing but responses, so
// it has no streams. A batch of 2025-03-26 is refused: no client needs one.
type LibraryHTTP struct {
	library *Library
	hosts   []string
	slots   chan struct{} // one is taken by each request that runs, after its body was received
}

// NewLibraryHTTP serves l. Clients may address it as localhost, by an IP address, or by one of
// the names in hosts.
func NewLibraryHTTP(l *Library, hosts ...string) *LibraryHTTP {
	return &LibraryHTTP{l, append(hosts, "localhost"), make(chan struct{}, maxPosts)}
}

// Serve answers HTTP at /mcp until the listener fails or ctx ends. It closes the listener and
// waits for running requests, which it aborts after five seconds. It is called once.
func (h *LibraryHTTP) Serve(ctx context.Context, listener net.Listener) error {
	server := h.server()
	ctx, end := context.WithCancelCause(ctx)
	var serving sync.WaitGroup
	serving.Go(func() { end(server.Serve(listener)) })
	<-ctx.Done()

	// Shutdown waits for the running requests. Close ends their contexts, but waits for none.
	leave, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTime)
	defer cancel()
	if server.Shutdown(leave) != nil {
		_ = server.Close()
	}
	serving.Wait()
	// A request that runs holds a slot. When all slots are taken here, no request is running and
	// none can start.
	for range maxPosts {
		h.slots <- struct{}{}
	}
	return context.Cause(ctx)
}

// server returns an HTTP server of the endpoint. It logs nothing: the log of net/http tells of the
// errors of clients, and those get a response.
func (h *LibraryHTTP) server() *http.Server {
	mux := http.NewServeMux()
	mux.Handle("/mcp", h)
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "the endpoint is /mcp", http.StatusNotFound)
	})
	return &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: headerTime,
		ReadTimeout:       bodyTime,
		WriteTimeout:      writeTime,
		IdleTimeout:       idleTime,
		ErrorLog:          log.New(io.Discard, "", 0),
	}
}

// libraryResponse is a JSON-RPC response. An error may have no id (MCP 2026-07-28, Streamable
// HTTP).
type libraryResponse struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id,omitempty"`
	Result  map[string]any  `json:"result,omitzero"`
	Error   *Error          `json:"error,omitempty"`
}

// ServeHTTP takes one message. It returns after the response was written or the client has gone.
func (h *LibraryHTTP) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	response := libraryResponse{Version: "2.0"}
	status, err := h.handle(w, r, &response)
	if err != nil {
		response.Error = responseError(status, err)
	}

	// The deadline of the server counts from the request's header on, and includes the search.
	// The client has the whole time to receive the response. From here on an error means that the
	// client has gone.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTime))
	if status == http.StatusAccepted {
		w.WriteHeader(status)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	text, _ := json.Marshal(response)
	_, _ = w.Write(text)
}

// responseError returns the JSON-RPC error of a response. An error of the library has its own code.
func responseError(status int, err error) *Error {
	if ours := (*Error)(nil); errors.As(err, &ours) {
		return ours
	}
	if status == http.StatusOK {
		return &Error{Code: CodeInternalError, Message: err.Error()}
	}
	return &Error{Code: CodeInvalidRequest, Message: err.Error()}
}

// handle receives a message and answers it. A client that sends its message slowly holds no slot,
// so it keeps no other client out.
func (h *LibraryHTTP) handle(
	w http.ResponseWriter,
	r *http.Request,
	response *libraryResponse,
) (status int, err error) {
	text, status, err := h.receive(w, r)
	if err != nil {
		return status, err
	}
	select {
	case h.slots <- struct{}{}:
		defer func() { <-h.slots }()
		return h.answer(r, text, response)
	default:
		w.Header().Set("Retry-After", "1")
		err := fmt.Errorf("%d requests are running: try again", maxPosts)
		return http.StatusServiceUnavailable, err
	}
}

// receive returns the message of a request that may be made of this server. The error has an HTTP
// status.
func (h *LibraryHTTP) receive(
	w http.ResponseWriter,
	r *http.Request,
) (text []byte, status int, err error) {
	if err := h.admit(r); err != nil {
		return nil, http.StatusForbidden, err
	}
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", "POST")
		err := fmt.Errorf("%s is not allowed: POST a JSON-RPC message", r.Method)
		return nil, http.StatusMethodNotAllowed, err
	}
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if kind != "application/json" {
		err := fmt.Errorf("Content-Type must be application/json, not %q", kind)
		return nil, http.StatusUnsupportedMediaType, err
	}
	text, err = io.ReadAll(http.MaxBytesReader(w, r.Body, maxPost))
	if tooLong := (*http.MaxBytesError)(nil); errors.As(err, &tooLong) {
		err := fmt.Errorf("the message is longer than %d bytes", maxPost)
		return nil, http.StatusRequestEntityTooLarge, err
	}
	if err != nil {
		return nil, http.StatusBadRequest, fmt.Errorf("incomplete message: %w", err)
	}
	return withoutBOM(text), http.StatusOK, nil
}

// answer answers a request of either era. Notifications, which change nothing here, and responses
// are accepted. The error of a method that does not exist has an HTTP status of its own in the
// stateless era (MCP 2026-07-28, Streamable HTTP).
func (h *LibraryHTTP) answer(
	r *http.Request,
	text []byte,
	response *libraryResponse,
) (status int, err error) {
	var in Incoming
	if err := in.Parse(text); err != nil {
		refusal := &Error{Code: CodeInvalidRequest, Message: err.Error()}
		if bytes.HasPrefix(bytes.TrimSpace(text), []byte("[")) {
			refusal.Message = "a POST holds one message, and no batch"
		}
		if !validJSON(text) {
			refusal.Code = CodeParseError
		}
		return http.StatusBadRequest, refusal
	}
	if in.Method == "" || in.ID == nil {
		return http.StatusAccepted, nil
	}
	response.ID = in.ID
	if err := in.CheckID(); err != nil {
		return http.StatusBadRequest, err
	}
	q := newLibraryRequest(in.Method, in.Params)
	if err := checkEra(r.Header, q); err != nil {
		return http.StatusBadRequest, err
	}
	response.Result, err = h.library.answer(r.Context(), q)
	refusal := (*Error)(nil)
	if q.stateless() && errors.As(err, &refusal) && refusal.Code == CodeMethodNotFound {
		return http.StatusNotFound, err
	}
	return http.StatusOK, err
}

// checkEra checks the header of the revision, and all headers of a request of the stateless era. A
// request belongs to that era by its body or by its header. But initialize and ping may be of the
// handshake era whatever the header says: who sends them may not know the era of the server yet.
func checkEra(header http.Header, q *libraryRequest) error {
	version := header.Get(headerVersion)
	isOfAnyEra := q.method == "initialize" || q.method == "ping"
	switch {
	case q.stateless(), version == Revisions()[0] && !isOfAnyEra:
		return checkHeaders(header, q)
	case version != "" && !slices.Contains(Revisions(), version):
		return unsupportedVersion(version)
	}
	return nil
}

// admit refuses the pages of other sites, which a browser on this machine may show. Such a page can
// send requests to any server on this machine, and the browser names the site in Origin. If a site
// makes its own host name lead to this server (DNS rebinding), the browser names it in Host.
func (h *LibraryHTTP) admit(r *http.Request) error {
	host := (&url.URL{Host: r.Host}).Hostname()
	isHost := func(name string) bool { return strings.EqualFold(name, host) }
	if net.ParseIP(host) == nil && !slices.ContainsFunc(h.hosts, isHost) {
		return fmt.Errorf("unknown host %q: the header Host must be localhost, an IP address, "+
			"or the name of the host that the server listens on; a proxy can set it", host)
	}
	for _, origin := range r.Header.Values("Origin") {
		u, err := url.Parse(origin)
		if err != nil || !IsLoopback(u.Hostname()) && !strings.EqualFold(u.Host, r.Host) {
			return fmt.Errorf("the origin %q is another site", origin)
		}
	}
	return nil
}

// checkHeaders checks that each header is present once with the value of the body, because a
// proxy may have relied on it (MCP 2026-07-28, Streamable HTTP, server validation), and that the
// body is right. A body without a revision has nothing to compare with: checkMeta refuses it.
func checkHeaders(header http.Header, q *libraryRequest) error {
	if q.version() == "" {
		return q.checkMeta()
	}
	body := map[string]string{headerVersion: q.version(), headerMethod: q.method}
	named := map[string]string{"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
	if member := named[q.method]; member != "" {
		body[headerName] = q.text(member)
	}
	for name, want := range body {
		values := header.Values(name)
		if len(values) != 1 || !hasHeaderValue(name, values[0], want) {
			return &Error{Code: CodeHeaderMismatch, Message: fmt.Sprintf(
				"the header %s must be present once with the value of the body, %q, not %q",
				name, want, values)}
		}
	}
	return q.checkMeta()
}

// hasHeaderValue reports whether a header has a value: the name of what is called may be in Base64.
func hasHeaderValue(name, value, want string) bool {
	if value == want {
		return true
	}
	encoded := "=?base64?" + base64.StdEncoding.EncodeToString([]byte(want)) + "?="
	return name == headerName && value == encoded
}
