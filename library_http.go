// library_http.go - the library over Streamable HTTP.
// Needs: Go 1.25, json.go, rpc.go, search.go, corpus.go, library_tools.go, library.go, library_http_answer.go.
// SPDX-License-Identifier: 0BSD

package main

import (
	"bytes"
	"context"
	"crypto/rand"
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
	"strings"
	"sync"
	"time"
)

// Bounds on what clients can make the server hold, and for how long.
const (
	maxPost     = 4 << 20          // bytes of one message
	maxPosts    = 256              // messages at work, of all clients together; a subscription is one
	maxSessions = 1000             // clients of the handshake era; one more takes the place of the one longest unused
	headerTime  = 10 * time.Second // for the header of a request to come
	bodyTime    = 30 * time.Second // for all of it
	idleTime    = 2 * time.Minute  // that a connection is kept for the next request
	leaveTime   = 5 * time.Second  // that Serve, at its end, gives what is at work
)

// LibraryHTTP is an http.Handler that serves a library over Streamable HTTP, clients of both eras at one address. It remembers
// nothing of those of the stateless era, so any number of servers over the same files can stand behind a load balancer. It
// says nothing unasked and so has no GET stream; streams cannot be resumed.
type LibraryHTTP struct {
	library *Library
	hosts   []string
	slots   chan struct{}   // one taken by each message at work
	life    context.Context // its end ends the subscriptions
	end     context.CancelFunc

	mu       sync.Mutex            // guards sessions; never held across I/O
	sessions []*libraryHTTPSession // the last used is the last
}

// libraryHTTPSession is a client of the handshake era.
type libraryHTTPSession struct {
	librarySession
	id      string   // which only the client knows
	running sync.Map // its requests at work: context.CancelFunc by id, a string as it was written
}

// NewLibraryHTTP serves l. Clients may address it as localhost, by any IP address, and by the names of hosts.
func NewLibraryHTTP(l *Library, hosts ...string) *LibraryHTTP {
	h := &LibraryHTTP{library: l, hosts: hosts, slots: make(chan struct{}, maxPosts)}
	h.life, h.end = context.WithCancel(context.Background())
	return h
}

// Serve answers HTTP at /mcp, on a listener that it closes, until that fails or ctx ends. Then it accepts no more, ends the
// subscriptions, and waits for what is at work, which it breaks off after five seconds. It is called once.
func (h *LibraryHTTP) Serve(ctx context.Context, listener net.Listener) error {
	mux := http.NewServeMux()
	mux.Handle("/mcp", h)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		newHTTPAnswer(w).refuse(refuse(http.StatusNotFound, "there is nothing at %s: the endpoint is /mcp", r.URL.Path))
	})
	server := &http.Server{
		Handler: mux, ReadHeaderTimeout: headerTime, ReadTimeout: bodyTime, WriteTimeout: writeTime, IdleTimeout: idleTime,
		ErrorLog: log.New(io.Discard, "", 0), // of what clients did wrong, who are told
	}
	failed := make(chan error, 1)
	var work sync.WaitGroup
	work.Go(func() { failed <- server.Serve(listener) })
	var err error
	select {
	case err = <-failed:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	h.end()
	leave, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTime)
	defer cancel()
	if server.Shutdown(leave) != nil {
		_ = server.Close() // ends the ctx of every request
	}
	work.Wait()
	for range maxPosts { // with all slots taken nothing is at work, and nothing can begin
		h.slots <- struct{}{}
	}
	return err
}

// ServeHTTP takes one message. A request's answer comes before it returns, unless the client goes.
func (h *LibraryHTTP) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a := newHTTPAnswer(w)
	defer a.end()
	if err := h.serve(a, r); err != nil {
		a.refuse(err)
	}
}

func (h *LibraryHTTP) serve(a *httpAnswer, r *http.Request) error {
	if err := h.admit(r); err != nil {
		return err
	}
	allowed := "POST, DELETE"
	if r.Header.Get(headerVersion) == libraryRevisions()[0] {
		allowed = "POST"
	}
	if !slices.Contains(strings.Split(allowed, ", "), r.Method) {
		a.w.Header().Set("Allow", allowed)
		return refuse(http.StatusMethodNotAllowed, "%s has no meaning here: POST a JSON-RPC message", r.Method)
	}
	select {
	case h.slots <- struct{}{}:
		defer func() { <-h.slots }()
	default:
		a.w.Header().Set("Retry-After", "1")
		return refuse(http.StatusServiceUnavailable, "%d messages are at work: try again", maxPosts)
	}
	if r.Method == http.MethodDelete {
		err := h.endSession(r)
		if err == nil {
			a.w.WriteHeader(http.StatusNoContent)
		}
		return err
	}
	in, err := readPost(a, r)
	if err != nil {
		return err
	}
	q, err := newLibraryRequest(in.method, in.params)
	switch {
	case err != nil:
		return &httpRefusal{http.StatusBadRequest, err}
	case in.method == "initialize" && in.id != nil && !(allowed == "POST" && q.meta[metaVersion] != nil):
		return h.initialize(a, r, q)
	case q.stateless() || allowed == "POST":
		return h.stateless(a, r, &in, q)
	}
	return h.handshake(a, r, &in, q)
}

// admit keeps out the pages of other sites, which any browser on this machine may show. The browser says whose the page is;
// and where a page has its own host lead to this one (DNS rebinding), that is the host that the browser names.
func (h *LibraryHTTP) admit(r *http.Request) error {
	host := (&url.URL{Host: r.Host}).Hostname()
	_, err := netip.ParseAddr(host)
	known := func(name string) bool { return strings.EqualFold(name, host) }
	if err != nil && !isLoopback(host) && !slices.ContainsFunc(h.hosts, known) {
		return refuse(http.StatusForbidden, "%q is no host known here: it must be localhost, an IP address, or the name of the host that "+
			"the server was told to listen on; a proxy can set the header Host", host)
	}
	for _, origin := range r.Header.Values("Origin") {
		if u, err := url.Parse(origin); err != nil || !isLoopback(u.Hostname()) && !strings.EqualFold(u.Host, r.Host) {
			return refuse(http.StatusForbidden, "the origin %q is another site", origin)
		}
	}
	return nil
}

func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback() || strings.EqualFold(host, "localhost")
}

// readPost reads a message.
func readPost(a *httpAnswer, r *http.Request) (in incoming, err error) {
	if !accepts(r.Header, "application/json") || !accepts(r.Header, "text/event-stream") {
		return in, refuse(http.StatusNotAcceptable, "Accept must list application/json and text/event-stream: an answer can be either")
	}
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind != "application/json" {
		return in, refuse(http.StatusUnsupportedMediaType, "Content-Type must be application/json, not %q", kind)
	}
	body, err := io.ReadAll(http.MaxBytesReader(a.w, r.Body, maxPost))
	long := (*http.MaxBytesError)(nil)
	switch {
	case errors.As(err, &long):
		return in, refuse(http.StatusRequestEntityTooLarge, "the message has more than %d bytes", maxPost)
	case err != nil:
		return in, refuse(http.StatusBadRequest, "the message broke off: %v", err)
	case !validJSON(body):
		return in, &httpRefusal{http.StatusBadRequest, &Error{Code: CodeParseError, Message: "the message is not JSON"}}
	case bytes.TrimSpace(body)[0] == '[':
		// Left out: they came with 2025-03-26 and went with the next revision.
		return in, refuse(http.StatusBadRequest, "a batch: POST each message by itself")
	}
	if err := in.parse(body); err != nil {
		return in, refuse(http.StatusBadRequest, "not JSON-RPC: %v", err)
	}
	if in.method != "" {
		a.id = in.id
	}
	return in, nil
}

// accepts says whether the client takes answers of a kind. Without the header it takes any.
func accepts(header http.Header, kind string) bool {
	lines := header.Values("Accept")
	family, _, _ := strings.Cut(kind, "/")
	for part := range strings.SplitSeq(strings.Join(lines, ","), ",") {
		accepted, _, _ := mime.ParseMediaType(part)
		if accepted == kind || accepted == family+"/*" || accepted == "*/*" {
			return true
		}
	}
	return len(lines) == 0
}

// stateless takes a message of the stateless era.
func (h *LibraryHTTP) stateless(a *httpAnswer, r *http.Request, in *incoming, q *libraryRequest) error {
	switch {
	case in.method == "":
		return refuse(http.StatusBadRequest, "a response, which nobody waits for")
	case in.id == nil:
		a.w.WriteHeader(http.StatusAccepted)
		return nil
	}
	if err := checkHeaders(r.Header, q); err != nil {
		return &httpRefusal{http.StatusBadRequest, err}
	}
	if q.method == "initialize" { // which says with all that it has that it is not the other era's
		return &httpRefusal{http.StatusNotFound, &Error{Code: CodeMethodNotFound, Message: "method not found: initialize"}}
	}
	return h.answer(r.Context(), a, &librarySession{library: h.library}, q)
}

// The headers of the protocol.
const (
	headerVersion = "MCP-Protocol-Version"
	headerMethod  = "Mcp-Method"
	headerName    = "Mcp-Name"
	headerSession = "Mcp-Session-Id"
)

// checkHeaders checks what a request says of itself, and that its headers say the same: whatever stands before this server may
// have gone by them (MCP 2026-07-28, Streamable HTTP, server validation).
func checkHeaders(header http.Header, q *libraryRequest) error {
	var version string
	if json.Unmarshal(q.meta[metaVersion], &version) != nil || version == "" {
		return q.checkMeta() // says what is missing
	}
	var p struct{ Name, URI string }
	if err := q.decode(&p); err != nil {
		return err
	}
	body := [][2]string{{headerVersion, version}, {headerMethod, q.method}}
	switch q.method {
	case "tools/call", "prompts/get":
		body = append(body, [2]string{headerName, p.Name})
	case "resources/read":
		body = append(body, [2]string{headerName, p.URI})
	}
	for _, member := range body {
		name, want := member[0], member[1]
		if value, ok := decodeHeader(header.Values(name)); !ok || value != want {
			const headerMismatch = -32020
			return &Error{Code: headerMismatch, Message: fmt.Sprintf("the header %s must be there once and say %q, as the body does, not %q",
				name, want, header.Values(name))}
		}
	}
	return q.checkMeta()
}

// decodeHeader reads a header that is there once, in plain ASCII or as Base64 (MCP 2026-07-28, Streamable HTTP, value encoding).
func decodeHeader(values []string) (value string, ok bool) {
	special := func(c rune) bool { return c != '\t' && (c < ' ' || c > '~') }
	if len(values) != 1 || strings.ContainsFunc(values[0], special) {
		return "", false
	}
	const opening, closing = "=?base64?", "?="
	value = values[0]
	if !strings.HasPrefix(value, opening) || !strings.HasSuffix(value[len(opening):], closing) {
		return value, true
	}
	plain, err := base64.StdEncoding.DecodeString(value[len(opening) : len(value)-len(closing)])
	return string(plain), err == nil
}

// handshake takes a message of the handshake era that is not initialize.
func (h *LibraryHTTP) handshake(a *httpAnswer, r *http.Request, in *incoming, q *libraryRequest) error {
	s, err := h.session(r)
	if err != nil {
		return err
	}
	if a.id == nil {
		s.notification(in.method, in.params, func(id json.RawMessage) {
			if cancel, ok := s.running.Load(string(id)); ok {
				cancel.(context.CancelFunc)()
			}
		})
		a.w.WriteHeader(http.StatusAccepted)
		return nil
	}
	// A client that goes cancels its request in this era, too, which should rather run on (MCP 2025-11-25, transports, sending
	// messages): as no stream can be resumed, nobody would ever have the answer.
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	if _, inUse := s.running.LoadOrStore(string(a.id), cancel); inUse {
		return refuse(http.StatusBadRequest, "a request with the id %s is at work", a.id)
	}
	defer s.running.Delete(string(a.id))
	return h.answer(ctx, a, &s.librarySession, q)
}

// initialize begins a session, if the library agrees.
func (h *LibraryHTTP) initialize(a *httpAnswer, r *http.Request, q *libraryRequest) error {
	s := &libraryHTTPSession{librarySession: librarySession{library: h.library}, id: rand.Text()}
	if _, err := h.library.initialize(q); err == nil {
		h.addSession(s)
		a.w.Header().Set(headerSession, s.id)
	}
	return h.answer(r.Context(), a, &s.librarySession, q)
}

func (h *LibraryHTTP) addSession(s *libraryHTTPSession) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.sessions) == maxSessions {
		h.sessions = slices.Delete(h.sessions, 0, 1)
	}
	h.sessions = append(h.sessions, s)
}

// session finds the session of a request.
func (h *LibraryHTTP) session(r *http.Request) (*libraryHTTPSession, error) {
	if version := r.Header.Get(headerVersion); version != "" && !slices.Contains(libraryRevisions()[1:], version) {
		return nil, &httpRefusal{http.StatusBadRequest, unsupportedVersion(version)}
	}
	id := r.Header.Get(headerSession)
	if id == "" {
		return nil, refuse(http.StatusBadRequest, "the header %s is missing: it came with the answer to initialize", headerSession)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	i := slices.IndexFunc(h.sessions, func(s *libraryHTTPSession) bool { return s.id == id })
	if i < 0 {
		return nil, refuse(http.StatusNotFound, "the session is unknown or has ended: begin anew with initialize")
	}
	s := h.sessions[i]
	h.sessions = append(slices.Delete(h.sessions, i, i+1), s)
	return s, nil
}

// endSession ends the session of a request, and what it has at work.
func (h *LibraryHTTP) endSession(r *http.Request) error {
	s, err := h.session(r)
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sessions = slices.DeleteFunc(h.sessions, func(other *libraryHTTPSession) bool { return other == s })
	s.running.Range(func(_, cancel any) bool {
		cancel.(context.CancelFunc)()
		return true
	})
	return nil
}

// answer runs a request of either era and writes its response.
func (h *LibraryHTTP) answer(ctx context.Context, a *httpAnswer, s *librarySession, q *libraryRequest) error {
	q.notify, q.gone = a.notify, h.life.Done()
	result, err := s.request(context.WithValue(ctx, requestID{}, a.id), q)
	if ctx.Err() != nil {
		a.stream() // which ends without a response, as it was cancelled
		return nil
	}
	status := http.StatusOK
	if refusal := (*Error)(nil); q.stateless() && errors.As(err, &refusal) && refusal.Code == CodeMethodNotFound {
		status = http.StatusNotFound
	}
	message, err := appendResponse(a.id, result, err)
	if err != nil {
		return &httpRefusal{http.StatusInternalServerError, err}
	}
	a.respond(status, message)
	return nil
}
