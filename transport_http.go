// transport_http.go - Streamable HTTP, of every revision.
// Needs: Go 1.25, json, rpc.
// SPDX-License-Identifier: 0BSD

package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// HTTPError is the error of a message that was not answered as the protocol requires, or that the RoundTripper of
// HTTP.Client refused with an error that has a Status: the server has not acted on that one.
type HTTPError struct {
	URL     string      // without its query, which may hold a key
	Status  int         // 0 if there was no whole response; the server may have acted all the same
	Header  http.Header // of the response; nil if there was none
	Err     error       // from the connection or the body; never io.EOF, which would be the end of the transport
	expired bool        // see SessionExpired
}

func (e *HTTPError) Error() string {
	if e.Status == http.StatusUnauthorized && e.Header == nil {
		return e.Err.Error() // of the RoundTripper, which says more
	}
	text := e.URL + ": "
	if e.Status != 0 {
		text = fmt.Sprintf("%s answers %d %s: ", e.URL, e.Status, http.StatusText(e.Status))
	}
	text += e.Err.Error()
	if challenge := e.Header.Get("WWW-Authenticate"); challenge != "" || e.Status == http.StatusUnauthorized {
		text += fmt.Sprintf(" (a header is missing or wrong, usually Authorization; WWW-Authenticate: %q)", challenge)
	}
	return text
}

func (e *HTTPError) Unwrap() error { return e.Err }

// Lost reports whether the message may not have reached the server, or its answer not the client. A proxy says so with
// the statuses 502 to 504.
func (e *HTTPError) Lost() bool {
	if e.Status == 0 {
		return !errors.As(e.Err, new(*MessageTooLongError)) // the answer would be as long the next time
	}
	return e.Status >= http.StatusBadGateway && e.Status <= http.StatusGatewayTimeout
}

// SessionExpired reports whether the server does not know the session any more. It has not acted: a new initialize
// begins another session.
func (e *HTTPError) SessionExpired() bool { return e.expired }

const (
	connectTime    = 15 * time.Second      // for TCP, and for TLS
	acceptTime     = 30 * time.Second      // for the response to a message that is not a request
	openTime       = 3 * time.Second       // for the headers of the GET stream, which may come with its first event
	deleteTime     = 2 * time.Second       // for the end of a session
	tailTime       = 50 * time.Millisecond // for what follows the answer in a stream
	maxHTTPMessage = 64 << 20              // bytes, unless HTTP.MaxMessage is set
)

// HTTP describes a server that is reached over HTTP. Start and StartSSE make a transport to it.
type HTTP struct {
	URL        string       // the MCP endpoint
	Header     http.Header  // sent with every request
	Client     *http.Client // nil: one of its own. CheckRedirect is not used; a Timeout would end streams
	MaxMessage int          // bytes of one message from the server; 64 MiB if 0
	ownClient  bool         // nobody else uses the connections of Client
}

// String returns the URL without its user and its query, which may be secret.
func (h *HTTP) String() string {
	u, err := url.Parse(h.URL)
	if err != nil {
		return "the server's URL"
	}
	return u.Scheme + "://" + u.Host + u.Path
}

// Start returns a *StreamableHTTP, for Connect. Nothing is sent yet.
func (h *HTTP) Start(context.Context) (Transport, error) {
	t := &StreamableHTTP{server: h.withDefaults(), in: make(chan []byte)}
	t.life, t.end = context.WithCancelCause(context.Background())
	t.readers.New = func() any { return new(eventReader) }
	t.header = maps.Clone(t.server.Header)
	t.header.Set("Content-Type", "application/json")
	t.header.Set("Accept", "application/json, text/event-stream")
	return t, nil
}

// StreamableHTTP carries messages over Streamable HTTP: each is a POST of its own, answered with JSON or with a
// stream of server-sent events. A message with a Revision is of the stateless era (MCP 2026-07-28, transports,
// streamable HTTP): its headers repeat what is in it, and closing its stream cancels it. Any other message is of the
// handshake era, which has sessions, a GET stream for what the server says unasked, and streams that are resumed (MCP
// 2025-11-25, transports, streamable HTTP).
type StreamableHTTP struct {
	lifetime
	server  HTTP        // with its defaults
	header  http.Header // of every POST
	in      chan []byte // to Read; closed when nothing is left
	readers sync.Pool   // of *eventReader that are not in use, for their buffers

	mu      sync.Mutex   // guards the following; never held across I/O
	session *httpSession // nil before the answer to initialize, and in the stateless era
	next    *httpSession // replaces session when the server has been told that the client is ready
	streams int64        // GET streams opened so far

	onEnd func(error) // see OnStreamEnd
}

// httpSession is what an initialize began.
type httpSession struct {
	id     string             // empty if the server keeps no session
	header http.Header        // of every request in it
	life   context.Context    // of its GET stream
	end    context.CancelFunc //
	stream int64              // number of the GET stream while it is open, else 0; guarded by StreamableHTTP.mu
}

// httpPost is a message on its way.
type httpPost struct {
	Outgoing
	session  *httpSession       // nil in the stateless era, and before the first handshake
	header   http.Header        // of the HTTP request, which may change it
	values   [3]string          // in header
	cancel   context.CancelFunc // ends the HTTP request
	answered atomic.Bool        // the answer has come with the response to this message
}

// Read returns the next message of any of the streams, until Close.
func (t *StreamableHTTP) Read() ([]byte, error) {
	message, open := <-t.in
	if !open {
		return nil, net.ErrClosed
	}
	return message, nil
}

// Write sends one message. For a request it returns when Read has been given the answer, and before it what came on
// the same stream. When ctx ends before that, the stream is closed. The error is an *HTTPError or the cause of ctx;
// but a JSON-RPC error is an answer, with any status but 401 and 403, unless it says that the session has expired, or
// refuses initialize with a status 4xx: an *HTTPError then wraps it.
func (t *StreamableHTTP) Write(ctx context.Context, m Outgoing) error {
	if !t.enter() {
		return net.ErrClosed
	}
	defer t.work.Done()
	p := t.prepare(m)
	if m.Method == "notifications/cancelled" && p.session == nil {
		return nil // in the stateless era the end of the stream has said it
	}

	// The HTTP request ends with the sender's ctx, and with the transport. But when the answer to it ends the call, the
	// rest of the response must be read, so that its connection can be used again (TestHTTPConnections).
	sender := ctx
	ctx, p.cancel = context.WithCancel(withValues{t.life, sender})
	defer p.cancel()
	defer context.AfterFunc(sender, func() {
		if context.Cause(sender) != ErrAnswered || !p.answered.Load() {
			p.cancel()
		}
	})()

	ready := m.Method == "notifications/initialized" && p.session != nil
	if ready {
		t.openGetStream(ctx, p.session)
	}
	err := t.post(ctx, p)
	if ready {
		t.endHandshake(p.session, err == nil)
	}
	if err != nil && ctx.Err() != nil {
		return cmp.Or(context.Cause(sender), context.Cause(ctx))
	}
	return err
}

// Close ends every stream, and tells the server that the session is over.
func (t *StreamableHTTP) Close() error {
	t.finish()
	close(t.in)
	s := t.session // nothing sets it any more
	if s != nil && s.id != "" {
		ctx, cancel := context.WithTimeout(context.Background(), deleteTime)
		defer cancel()
		if response, err := t.server.do(ctx, http.MethodDelete, s, maps.Clone(t.server.Header), nil); err == nil {
			response.Body.Close() // the session ends, whatever it says
		}
	}
	if t.server.ownClient {
		t.server.Client.CloseIdleConnections()
	}
	return nil
}

// prepare chooses the headers of a message, and the session that it belongs to.
func (t *StreamableHTTP) prepare(m Outgoing) *httpPost {
	p := &httpPost{Outgoing: m, header: maps.Clone(t.header)}
	if m.Revision != "" {
		// For those between here and the server (MCP 2026-07-28, transports, streamable HTTP, request metadata).
		p.values = [...]string{m.Revision, m.Method, headerValue(m.Name)}
		p.header["Mcp-Protocol-Version"] = p.values[:1:1]
		p.header["Mcp-Method"] = p.values[1:2:2]
		if m.Name != "" {
			p.header["Mcp-Name"] = p.values[2:]
		}
		for name, value := range m.Headers {
			p.header.Set(name, value)
		}
		return p
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch m.Method {
	case "initialize":
	case "notifications/initialized", "": // a response is to what came on the new GET stream
		p.session = t.next
	default:
		p.session = t.session
	}
	return p
}

// post sends a message and passes the answer on.
func (t *StreamableHTTP) post(ctx context.Context, p *httpPost) error {
	if p.ID == 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, acceptTime)
		defer cancel()
	}
	response, err := t.server.do(ctx, http.MethodPost, p.session, p.header, p.Text)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	accepted := response.StatusCode/100 == 2
	kind := contentType(response)
	switch {
	case accepted && p.ID == 0:
		readTail(response, p.cancel) // whatever is in it
		return nil
	case accepted && kind == "text/event-stream":
		return t.follow(ctx, p, p.session, response, nil)
	}
	body, err := readBody(response, t.server.MaxMessage)
	switch {
	case err != nil:
		return t.server.connectionError(err)
	case !accepted:
		return t.passRefusal(ctx, p, response, body)
	case kind == "application/json":
		if answered, err := t.pass(ctx, p, response, body); answered || err != nil {
			return err
		}
	}
	return t.server.statusError(response, body)
}

// passRefusal passes on the JSON-RPC response in an HTTP response with a status other than 2xx. An error says that
// there is none, or that it is about more than this one request.
func (t *StreamableHTTP) passRefusal(ctx context.Context, p *httpPost, response *http.Response, body []byte) error {
	refusal, m := t.server.refusal(p.session, response, body)
	switch {
	case refusal.expired, response.StatusCode == http.StatusUnauthorized, response.StatusCode == http.StatusForbidden,
		p.ID == 0, m.Method != "":
		return refusal
	case p.Method == "initialize" && m.Error != nil && response.StatusCode/100 == 4:
		// By the status a server of HTTP+SSE is recognised (MCP 2025-11-25, transports, backwards compatibility).
		return refusal
	case m.Error != nil && !isAnswer(&m, p.ID):
		body = answerWithID(p.ID, m.Error)
	case !isAnswer(&m, p.ID):
		return refusal
	}
	p.answered.Store(true)
	return t.give(ctx, body)
}

// pass gives a text that came with status 2xx to Read. It reports whether that was the answer to p.
func (t *StreamableHTTP) pass(ctx context.Context, p *httpPost, response *http.Response, text []byte) (
	answered bool, err error) {
	var m Incoming
	var invalid error
	begins := p.Method != "initialize" && beginsAnswer(text, p.ID)
	if !begins {
		invalid = m.Parse(text)
	}
	switch {
	case begins, invalid == nil && isAnswer(&m, p.ID), invalid != nil && batchAnswers(text, p.ID):
		answered = true
	case invalid == nil && isErrorWithoutID(&m):
		answered, text = true, answerWithID(p.ID, m.Error)
	case invalid == nil: // a notification, a request, or the answer to another request
	case contentType(response) == "application/json", isInvalidAnswer(&m, p.ID):
		err = fmt.Errorf("the answer is cut off or invalid: %w: %q", invalid, oneLine(text))
		return false, t.server.connectionError(err)
	} // else it is not a message, and the answer may follow in the stream
	if !answered {
		return false, t.give(ctx, text)
	}
	if p.Method == "initialize" && m.Result != nil && m.Error == nil {
		t.beginHandshake(response.Header.Get("Mcp-Session-Id"), m.Result)
	}
	p.answered.Store(true)
	return true, t.give(ctx, text)
}

// beginsAnswer reports whether a text begins as most responses to the request with that id do. Its megabytes are then
// left to Conn, which ends the call whatever is wrong with them: servers in Python write NaN.
func beginsAnswer(text []byte, id int64) (begins bool) {
	s := scanner{text: text}
	isOurs := false
	s.object(func(key []byte) {
		switch string(key) {
		case "jsonrpc":
			s.value()
		case "id":
			n, ok := idNumber(s.value())
			isOurs = ok && n == id
		default: // no more is read
			begins = isOurs && (string(key) == "result" || string(key) == "error")
			s.fail()
		}
	})
	return begins && bytes.HasSuffix(bytes.TrimSpace(text), []byte("}")) // else it is cut off
}

// isAnswer reports whether a message is the response to the request with that id.
func isAnswer(m *Incoming, id int64) bool {
	n, ok := idNumber(m.ID)
	return ok && n == id && m.Method == ""
}

// isErrorWithoutID reports whether a message is an error without an id: what was wrong may have kept the server from
// reading the id (JSON-RPC 2.0, 5), but it answers the request that it comes with.
func isErrorWithoutID(m *Incoming) bool {
	return m.Method == "" && m.Error != nil && (m.ID == nil || string(m.ID) == "null")
}

// answerWithID makes the answer to a request of an error that came without the id of the request.
func answerWithID(id int64, failure json.RawMessage) []byte {
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"error":%s}`, id, failure)
}

// batchAnswers reports whether a text is a batch (MCP 2025-03-26, JSON-RPC 2.0, 6) with the answer to a request in it.
func batchAnswers(text []byte, id int64) bool {
	var batch []json.RawMessage
	_ = json.Unmarshal(text, &batch)
	for _, one := range batch {
		var m Incoming
		if m.Parse(one) == nil && isAnswer(&m, id) {
			return true
		}
	}
	return false
}

// isInvalidAnswer reports whether a text that is not a valid message is the answer to a request all the same, which
// no other message will be. m is what was read of it. Other JSON with the id, such as a line of a log, is not an
// answer.
func isInvalidAnswer(m *Incoming, id int64) bool {
	return isAnswer(m, id) && (m.Result != nil || m.Error != nil)
}

// isExpired reports whether the refusal of a message says that its session is over; e is the error in m. The status
// for that is 404 (MCP 2025-11-25, transports, session management), but it can also mean an unknown method. The
// examples of the official SDKs answer 400, with a JSON-RPC error about the session that has no id. Such an error is
// the answer only to what the server did not take for a request (JSON-RPC 2.0, 5).
func isExpired(status int, m *Incoming, e *Error) bool {
	text := strings.ToLower(e.Message)
	says := func(word string) bool { return strings.Contains(text, word) }
	if status == http.StatusBadRequest {
		reasons := []string{"expired", "invalid", "missing", "no such", "no valid", "not found", "terminated", "unknown"}
		return isErrorWithoutID(m) && says("session") && slices.ContainsFunc(reasons, says)
	}
	return status == http.StatusNotFound && e.Code != CodeMethodNotFound
}

// give gives a text to Read, unless ctx ends first.
func (t *StreamableHTTP) give(ctx context.Context, text []byte) error {
	select {
	case t.in <- text:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// beginHandshake records the session that the answer to an initialize begins. If it is not the first, the one before,
// which has expired, stays until endHandshake: who uses it learns that, and no message overtakes the end of the
// handshake.
func (t *StreamableHTTP) beginHandshake(id string, result []byte) {
	var initialized struct{ ProtocolVersion string }
	_ = json.Unmarshal(result, &initialized) // the client reports what is wrong with it
	s := &httpSession{id: id, header: http.Header{"Mcp-Protocol-Version": {initialized.ProtocolVersion}}}
	if id != "" {
		s.header.Set("Mcp-Session-Id", id)
	}
	s.life, s.end = context.WithCancel(t.life)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.next = s; t.session == nil {
		t.session = s
	}
}

// endHandshake replaces the session, if the server has accepted that the client is ready.
func (t *StreamableHTTP) endHandshake(s *httpSession, accepted bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case !accepted:
		s.end()
	case t.session != s:
		t.session.end()
		t.session = s
	}
}

// openGetStream opens the GET stream, before the server is told that the client is ready: what the server sends then,
// it sends only there, and only once.
func (t *StreamableHTTP) openGetStream(ctx context.Context, s *httpSession) {
	opened := make(chan struct{})
	t.work.Go(func() { // counted while Write still is
		response, err := t.server.openStream(s.life, s, "")
		t.setStream(s, err == nil)
		close(opened)
		if refusal := new(HTTPError); err == nil || errors.As(err, &refusal) && refusal.Lost() { // else it offers none
			err = t.follow(s.life, nil, s, response, err)
			if t.onEnd != nil && s.life.Err() == nil {
				t.onEnd(err)
			}
		}
	})
	ctx, cancel := context.WithTimeout(ctx, openTime)
	defer cancel()
	select {
	case <-opened:
	case <-ctx.Done():
	}
}

// setStream records whether the GET stream of a session is open.
func (t *StreamableHTTP) setStream(s *httpSession, open bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s.stream = 0; open {
		t.streams++
		s.stream = t.streams
	}
}

// Stream returns the number of the GET stream that is open, 0 if none is. Each stream has another number: what the
// server sends between two of them may be lost.
func (t *StreamableHTTP) Stream() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.session == nil {
		return 0
	}
	return t.session.stream
}

// OnStreamEnd sets a func that is called when a GET stream has ended and is not opened again, with the reason, on a
// goroutine that Close waits for. It is set before the first Write.
func (t *StreamableHTTP) OnStreamEnd(f func(error)) { t.onEnd = f }

// lifetime is that of a running transport, with what runs in it.
type lifetime struct {
	life context.Context // ends with Close; its cause is net.ErrClosed
	end  context.CancelCauseFunc
	mu   sync.Mutex     // held while life ends, and while something is added to work, which must not be after that
	work sync.WaitGroup // Writes and the GET stream
}

// enter counts a goroutine that finish waits for. It reports false when it is too late for that.
func (l *lifetime) enter() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.life.Err() != nil {
		return false
	}
	l.work.Add(1)
	return true
}

// finish ends the life, and waits for what runs in it.
func (l *lifetime) finish() {
	l.mu.Lock()
	l.end(net.ErrClosed)
	l.mu.Unlock()
	l.work.Wait()
}

// withValues is a ctx with the values of another one, which does not end it.
type withValues struct {
	context.Context
	values context.Context
}

func (c withValues) Value(key any) any {
	if value := c.Context.Value(key); value != nil { // how package context finds the ctx whose end it is
		return value
	}
	return c.values.Value(key)
}

// NewHTTPTransport returns the round tripper of an HTTP that has no Client: Client may have it under another one.
func NewHTTPTransport() *http.Transport {
	return &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            (&net.Dialer{Timeout: connectTime}).DialContext,
		TLSHandshakeTimeout:    connectTime,
		ForceAttemptHTTP2:      true,
		MaxResponseHeaderBytes: 1 << 20,
		MaxIdleConnsPerHost:    100,             // each request that is being answered has a connection
		IdleConnTimeout:        4 * time.Second, // Node and Python close theirs after 5 s; a POST that meets it is lost
	}
}

// withDefaults returns a copy of h for a transport.
func (h *HTTP) withDefaults() HTTP {
	client := &http.Client{Transport: NewHTTPTransport()}
	if h.Client != nil {
		*client = *h.Client
	}
	client.CheckRedirect = checkRedirect
	limit := min(cmp.Or(h.MaxMessage, maxHTTPMessage), math.MaxInt32-1<<10)
	header := make(http.Header)
	maps.Copy(header, h.Header)
	return HTTP{URL: h.URL, Header: header, Client: client, MaxMessage: limit, ownClient: h.Client == nil}
}

// checkRedirect keeps headers from another origin: net/http leaves out only those that it knows to hold credentials.
func checkRedirect(next *http.Request, via []*http.Request) error {
	first := via[0]
	sameOrigin := next.URL.Scheme == first.URL.Scheme && next.URL.Host == first.URL.Host
	if sameOrigin && next.Method == first.Method && len(via) <= 5 {
		return nil
	}
	to := &HTTP{URL: next.URL.String()}
	return fmt.Errorf("it redirects to %s, and no message is sent there: if that is the server, give its URL", to)
}

// do makes one HTTP request, with the headers given and those of its session.
func (h *HTTP) do(ctx context.Context, method string, s *httpSession, header http.Header, body []byte) (
	*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, method, h.URL, bytes.NewReader(body))
	if err != nil {
		return nil, h.connectionError(err)
	}
	request.Header = header
	if s != nil {
		maps.Copy(header, s.header)
	}
	request.Host = request.Header.Get("Host") // net/http does not take it from the headers; empty: the URL's
	response, err := h.Client.Do(request)
	if err != nil {
		failure := h.connectionError(err)
		if response != nil { // refused by checkRedirect
			failure.Status = response.StatusCode
		}
		return nil, failure
	}
	return response, nil
}

// openStream opens the GET stream of a session, or resumes the stream whose last event had that id.
func (h *HTTP) openStream(ctx context.Context, s *httpSession, lastID string) (*http.Response, error) {
	header := maps.Clone(h.Header)
	header.Set("Accept", "text/event-stream")
	if lastID != "" {
		header.Set("Last-Event-ID", lastID)
	}
	response, err := h.do(ctx, http.MethodGet, s, header, nil)
	if err == nil && (response.StatusCode != http.StatusOK || contentType(response) != "text/event-stream") {
		defer response.Body.Close()
		body, _ := readBody(response, h.MaxMessage)
		refusal, _ := h.refusal(s, response, body)
		return nil, refusal
	}
	return response, err
}

// connectionError is the error for an exchange that has no whole response.
func (h *HTTP) connectionError(err error) *HTTPError {
	var known *HTTPError
	if errors.As(err, &known) {
		return known
	}
	if of := new(url.Error); errors.As(err, &of) { // it has the whole URL
		err = of.Err
	}
	var refused interface{ Status() int }
	if errors.As(err, &refused) {
		return &HTTPError{URL: h.String(), Status: refused.Status(), Err: err}
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return &HTTPError{URL: h.String(), Err: err}
}

// statusError is the error for a response without a JSON-RPC message.
func (h *HTTP) statusError(response *http.Response, body []byte) *HTTPError {
	text := cmp.Or(oneLine(body), "nothing more")
	if _, title, ok := strings.Cut(text, "<title>"); ok {
		text, _, _ = strings.Cut(title, "</title>")
	}
	if response.StatusCode/100 == 2 {
		text = fmt.Sprintf("no message, but %q: %s", response.Header.Get("Content-Type"), text)
	}
	return &HTTPError{URL: h.String(), Status: response.StatusCode, Header: response.Header, Err: errors.New(text)}
}

// refusal is the error for a response with a status other than 2xx to a message of the session s. m is the JSON-RPC
// message in it; no member of it is set if there is none.
func (h *HTTP) refusal(s *httpSession, response *http.Response, body []byte) (refusal *HTTPError, m Incoming) {
	refusal = h.statusError(response, body)
	invalid := m.Parse(body)
	var e Error
	if json.Unmarshal(m.Error, &e) == nil && invalid == nil {
		e.Message = oneLine([]byte(e.Message))
		refusal.Err = &e
	}
	refusal.expired = s != nil && s.id != "" && isExpired(response.StatusCode, &m, &e)
	if invalid != nil {
		m = Incoming{}
	}
	return refusal, m
}

func contentType(response *http.Response) string {
	kind, _, _ := strings.Cut(response.Header.Get("Content-Type"), ";")
	return strings.ToLower(strings.TrimSpace(kind))
}

// readBody reads a response that is not a stream.
func readBody(response *http.Response, limit int) ([]byte, error) {
	if response.ContentLength > int64(limit) {
		return nil, &MessageTooLongError{limit}
	}
	length := cmp.Or(max(response.ContentLength, 0), bytes.MinRead) // it is -1 if it is not known
	for body := make([]byte, 0, length); ; body = slices.Grow(body, 1) {
		n, err := response.Body.Read(body[len(body):cap(body)])
		switch body = body[:len(body)+n]; {
		case len(body) > limit:
			return nil, &MessageTooLongError{limit}
		case err == io.EOF:
			return body, nil
		case err != nil:
			return nil, err
		}
	}
}

// readTail reads a response to its end if that comes within tailTime, so that its connection can be used again.
// Otherwise it ends the request, rather than close the body: of a compressed one, net/http holds a lock while it is
// read.
func readTail(response *http.Response, cancel context.CancelFunc) {
	late := time.AfterFunc(tailTime, cancel)
	defer late.Stop()
	_, _ = io.Copy(io.Discard, response.Body)
}

// oneLine returns the beginning of a text that a server sent, for an error: whole words, as half of a secret would
// not be recognised, and taken out, later.
func oneLine(text []byte) string {
	line := ""
	for word := range bytes.FieldsSeq(text) {
		if len(line)+len(word) > 300 {
			return line + "…"
		}
		line += strings.ToValidUTF8(string(word), "") + " "
	}
	return strings.TrimSuffix(line, " ")
}

// ParamHeaders returns the headers that repeat parameters of a tool call, where the tool's schema has x-mcp-header
// (MCP 2026-07-28, transports, streamable HTTP, custom headers). Without arguments it only checks the schema. The
// error says what in the schema is not allowed; or it names an integer beyond 2^53-1, which cannot be sent so.
func (t *StreamableHTTP) ParamHeaders(inputSchema, arguments json.RawMessage) (map[string]string, error) {
	var schema, values any
	_ = json.Unmarshal(inputSchema, &schema) // it is valid
	if err := json.Unmarshal(arguments, &values); arguments != nil && err != nil {
		return nil, fmt.Errorf("arguments: %w", err)
	}
	p := paramHeaders{make(map[string]string), make(map[string]bool)}
	err := p.find(schema, values, "", true)
	return p.headers, err
}

// paramHeaders makes headers of parameters.
type paramHeaders struct {
	headers map[string]string
	marked  map[string]bool // the names of all headers that the schema has, with a value or without
}

// find makes the headers for what is marked in the schema of a value, which is the parameter with that name, or all
// arguments if it is empty. Only a parameter that is reachable through properties alone may be marked.
func (p paramHeaders) find(schema, value any, name string, reachable bool) (err error) {
	switch s := schema.(type) {
	case []any:
		for _, part := range s {
			err = cmp.Or(err, p.find(part, nil, "", false))
		}
	case map[string]any:
		if mark, ok := s["x-mcp-header"]; ok {
			err = p.add(mark, s["type"], value, name, reachable && name != "")
		}
		object, _ := value.(map[string]any)
		for _, key := range slices.Sorted(maps.Keys(s)) {
			switch key {
			case "default", "const", "enum", "examples": // are values
			case "properties", "patternProperties", "dependentSchemas", "$defs", "definitions": // have schemas by name
				named, _ := s[key].(map[string]any)
				for _, name := range slices.Sorted(maps.Keys(named)) {
					err = cmp.Or(err, p.find(named[name], object[name], name, reachable && key == "properties"))
				}
			default:
				err = cmp.Or(err, p.find(s[key], nil, "", false))
			}
		}
	}
	return err
}

// add makes the header for one parameter, of a type or of several types.
func (p paramHeaders) add(mark, kind, value any, param string, reachable bool) error {
	name, _ := mark.(string)
	header := http.CanonicalHeaderKey("Mcp-Param-" + name)
	kinds, ok := kind.([]any)
	if !ok {
		kinds = []any{kind}
	}
	isPrimitive := func(k any) bool { return k == "string" || k == "integer" || k == "boolean" }
	isOther := func(k any) bool { return !isPrimitive(k) && k != "null" }
	switch {
	case name == "" || strings.Trim(name, tokenCharacters) != "":
		return fmt.Errorf("x-mcp-header %q is not a valid name of a header", fmt.Sprint(mark))
	case !reachable:
		return fmt.Errorf("x-mcp-header %q marks what is not reached through properties alone", name)
	case !slices.ContainsFunc(kinds, isPrimitive) || slices.ContainsFunc(kinds, isOther):
		return fmt.Errorf("x-mcp-header %q marks what is not a string, integer or boolean", name)
	case p.marked[header]:
		return fmt.Errorf("x-mcp-header %q is used twice", name)
	}
	p.marked[header] = true
	switch v := value.(type) { // no header for null, or for a value that the schema does not allow
	case string:
		p.headers[header] = headerValue(v)
	case bool:
		p.headers[header] = strconv.FormatBool(v)
	case float64:
		if math.Abs(v) > 1<<53-1 {
			return fmt.Errorf("%s is beyond 2^53-1, the limit for a parameter that is sent as a header", param)
		}
		if v == math.Trunc(v) {
			p.headers[header] = strconv.FormatInt(int64(v), 10)
		}
	}
	return nil
}

// tokenCharacters are those of a header's name (RFC 9110, 5.6.2).
const tokenCharacters = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

// headerValue encodes a text that a header cannot hold, or that would be taken for an encoded one.
func headerValue(text string) string {
	plain := strings.Trim(text, " ") == text && !(strings.HasPrefix(text, "=?base64?") && strings.HasSuffix(text, "?="))
	if plain && strings.IndexFunc(text, func(r rune) bool { return r < ' ' || r > '~' }) < 0 {
		return text
	}
	return "=?base64?" + base64.StdEncoding.EncodeToString([]byte(text)) + "?="
}
