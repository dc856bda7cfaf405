// transport_http.go - Streamable HTTP, of every revision.
// Needs: Go 1.25, transport_http_events.go.
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
	"strings"
	"sync"
	"time"
)

// HTTPError says why a message was not answered as the protocol has it.
type HTTPError struct {
	URL     string      // without its query, which may hold a key
	Status  int         // 0 if the connection could not be made, or broke off; the server may have acted all the same
	Header  http.Header // of the answer; nil if there was none
	Err     error       // what the connection or the body says; never io.EOF, with which a Transport ends for good
	expired bool        // see SessionExpired
}

func (e *HTTPError) Error() string {
	text := e.URL + ": "
	if e.Status != 0 {
		text = fmt.Sprintf("%s answers %d %s: ", e.URL, e.Status, http.StatusText(e.Status))
	}
	text += e.Err.Error()
	if e.Status == http.StatusUnauthorized || e.Status == http.StatusForbidden {
		text += fmt.Sprintf(" (a header is missing or wrong, as a rule Authorization; WWW-Authenticate: %q)", e.Header.Get("WWW-Authenticate"))
	}
	return text
}

func (e *HTTPError) Unwrap() error { return e.Err }

// Lost says that the message may not have reached the server, or its answer not the client: also where a proxy says so.
func (e *HTTPError) Lost() bool {
	switch e.Status {
	case 0:
		return !errors.As(e.Err, new(*BodyTooLongError))
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// SessionExpired says that the server knows the session no more, and did nothing: a new initialize begins another session.
func (e *HTTPError) SessionExpired() bool { return e.expired }

const (
	connectTime    = 15 * time.Second // for TCP, and for TLS
	acceptTime     = 30 * time.Second // for what has no answer but that it came
	openTime       = 3 * time.Second  // for the headers of the GET stream: some servers send none before they have something to say
	deleteTime     = 2 * time.Second  // for the end of a session
	retryTime      = time.Second      // before a stream is resumed, if the server does not say; doubled with each failure
	maxRetry       = time.Minute      // where that ends
	steadyTime     = maxRetry / 2     // after which a stream that breaks off was no failure
	maxFailures    = 3                // in a row, of a stream that has the answer to a request
	maxHTTPMessage = 64 << 20         // bytes, where HTTP.MaxMessage does not say
)

// HTTP carries messages over Streamable HTTP: each is a POST of its own, answered with JSON or with a stream of server-sent
// events. A message whose _meta says so is of the stateless era (MCP 2026-07-28, transports, streamable HTTP): its headers
// repeat what is in it, and closing its stream cancels it. Any other one is of the handshake era, which has sessions, a GET stream for
// what the server says by itself, and streams that are resumed (MCP 2025-11-25, transports, streamable HTTP).
type HTTP struct {
	URL        string       // the MCP endpoint
	Client     *http.Client // nil: one of its own, with the proxies of the environment. Redirects are not left to it; its Timeout would end streams
	Header     http.Header  // sent with every request
	MaxMessage int          // bytes of one message; 64 MiB if 0

	once    sync.Once          // sets the next five, which are then only read
	client  *http.Client       //
	in      chan []byte        // to Read
	life    context.Context    // ends with Close
	end     context.CancelFunc //
	readers sync.Pool          // of *eventReader that are done, for their buffers

	mu      sync.Mutex     // guards the following; never held across I/O
	session *httpSession   // nil before the answer to initialize, and in the stateless era
	next    *httpSession   // takes its place when the server has been told that the client is ready
	closed  bool           // nothing may be added to work
	work    sync.WaitGroup // Writes and the GET stream
}

// httpSession is what an initialize began. It does not change.
type httpSession struct {
	id, version string             // the id is empty if the server keeps no session
	life        context.Context    // of its GET stream
	end         context.CancelFunc //
}

// post is a message on its way, and what its body says about it.
type post struct {
	message   []byte
	id        string // see plainID; empty if no answer is awaited
	method    string // empty for a response
	name      string // of the tool or prompt, or the URI of the resource, that it is about
	stateless string // the revision that it says it is of; empty in the handshake era
	session   *httpSession
	header    http.Header // of its own
}

func (h *HTTP) init() {
	h.client = &http.Client{Transport: &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: connectTime}).DialContext,
		TLSHandshakeTimeout: connectTime,
		ForceAttemptHTTP2:   true,
		MaxIdleConnsPerHost: 100,             // each request at work has a connection
		IdleConnTimeout:     4 * time.Second, // Node and Python close theirs after 5 s: a POST that meets that end is lost
	}}
	if h.Client != nil {
		*h.client = *h.Client
	}
	h.client.CheckRedirect = checkRedirect
	h.in = make(chan []byte)
	h.readers.New = func() any { return new(eventReader) }
	h.life, h.end = context.WithCancel(context.Background())
}

// checkRedirect keeps headers from another origin: net/http leaves out only those that it knows to hold credentials.
func checkRedirect(next *http.Request, via []*http.Request) error {
	if first := via[0]; next.URL.Scheme != first.URL.Scheme || next.URL.Host != first.URL.Host || next.Method != first.Method || len(via) > 5 {
		return fmt.Errorf("it redirects to %s, and no message is sent there: if that is the server, give its URL", bareURL(next.URL.String()))
	}
	return nil
}

// Read returns the next message of any of the streams, until Close.
func (h *HTTP) Read() ([]byte, error) {
	h.once.Do(h.init)
	select {
	case message := <-h.in:
		return message, nil
	case <-h.life.Done():
		return nil, net.ErrClosed
	}
}

// Write sends one message. For a request it returns when Read has been given the answer, and before it what came on the same
// stream. When ctx ends, the stream is closed. The error is an *HTTPError or the cause of ctx; but a JSON-RPC error is an
// answer, with any status but 401 and 403, unless it says that the session has expired.
func (h *HTTP) Write(ctx context.Context, message []byte) error {
	return h.write(ctx, h.newPost(message))
}

// write is Write for a message that has been read.
func (h *HTTP) write(ctx context.Context, p *post) error {
	h.once.Do(h.init)
	if !h.enter() {
		return net.ErrClosed
	}
	defer h.work.Done()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(h.life, func() { cancel(net.ErrClosed) })()

	if p.method == "notifications/cancelled" && p.session == nil {
		return nil // to close the stream was to say so
	}
	ready := p.method == "notifications/initialized" && p.session != nil
	if ready {
		h.listen(ctx, p.session)
	}
	err := h.post(ctx, p)
	if ready {
		h.adopt(p.session, err == nil)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// Close ends every stream, and tells the server that the session is over.
func (h *HTTP) Close() error {
	h.once.Do(h.init)
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	h.end()
	h.work.Wait()
	s := h.session // which nobody sets any more
	if s != nil && s.id != "" {
		ctx, cancel := context.WithTimeout(context.Background(), deleteTime)
		defer cancel()
		// Whether it allows that or not, and is there or not: the session ends.
		if response, err := h.do(ctx, http.MethodDelete, s, nil, nil); err == nil {
			response.Body.Close()
		}
	}
	if h.Client == nil {
		h.client.CloseIdleConnections()
	}
	return nil
}

// enter counts a goroutine that Close waits for, if it is not too late.
func (h *HTTP) enter() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.closed {
		h.work.Add(1)
	}
	return !h.closed
}

// post sends a message and sees to the answer.
func (h *HTTP) post(ctx context.Context, p *post) error {
	if p.id == "" {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, acceptTime)
		defer cancel()
	}
	response, err := h.do(ctx, http.MethodPost, p.session, p.header, p.message)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	accepted := response.StatusCode/100 == 2
	if accepted && p.id == "" {
		readTail(response) // whatever is said besides
		return nil
	}
	kind := contentType(response)
	if accepted && kind == "text/event-stream" {
		return h.follow(ctx, p, p.session, response, nil)
	}
	body, err := readBody(response, h.limit())
	if err != nil {
		return h.lost(err)
	}
	// The examples of the official SDKs say 400 for what the specification makes a 404.
	status := response.StatusCode
	expired := p.session != nil && p.session.id != "" && !accepted && !bytes.Contains(body, []byte("-32601")) &&
		(status == http.StatusNotFound || status == http.StatusBadRequest && bytes.Contains(bytes.ToLower(body), []byte("session")) && plainID(outline(body).get("id")) != p.id)
	if (kind == "application/json" || !accepted) && p.id != "" && !expired && status != http.StatusUnauthorized && status != http.StatusForbidden {
		if answered, err := h.deliver(ctx, p, response, body); answered || err != nil {
			return err
		}
	}
	refusal := h.refusal(response, body)
	refusal.expired = expired
	return refusal
}

// do makes one HTTP request. Closing the body of the answer ends it first: else Close could wait for a stream.
func (h *HTTP) do(ctx context.Context, method string, s *httpSession, header http.Header, body []byte) (*http.Response, error) {
	ctx, cancel := context.WithCancel(ctx)
	request, err := http.NewRequestWithContext(ctx, method, h.URL, bytes.NewReader(body))
	if err != nil {
		cancel()
		return nil, h.lost(err)
	}
	maps.Copy(request.Header, h.Header)
	maps.Copy(request.Header, header)
	request.Host = request.Header.Get("Host") // where else net/http does not take it from; empty: the URL's
	if s != nil {
		request.Header.Set("Mcp-Protocol-Version", s.version)
		if s.id != "" {
			request.Header.Set("Mcp-Session-Id", s.id)
		}
	}
	response, err := h.client.Do(request)
	if err != nil {
		cancel()
		if err = h.lost(err); response != nil { // refused by checkRedirect
			err.(*HTTPError).Status = response.StatusCode
		}
		return nil, err
	}
	response.Body = cancelBody{response.Body, cancel}
	return response, nil
}

// deliver gives a message to Read, and says whether it is the answer to p, which is nil on the GET stream.
func (h *HTTP) deliver(ctx context.Context, p *post, response *http.Response, message []byte) (answered bool, err error) {
	m := outline(message)
	id, result, failure := m.get("id"), m.get("result"), m.get("error")
	refused := response.StatusCode/100 != 2
	switch {
	case refused && result == nil && outline(failure).get("code") == nil: // a page, or JSON that is no JSON-RPC
		return false, nil
	case m != nil && len(m) == 0: // a batch (MCP 2025-03-26)
		var batch []json.RawMessage
		_ = json.Unmarshal(message, &batch)
		for _, message := range batch {
			one, err := h.deliver(ctx, p, response, message)
			if answered = answered || one; err != nil {
				return answered, err
			}
		}
		return answered, nil
	case m == nil && p != nil && contentType(response) == "application/json": // else another message may follow
		return false, h.lost(fmt.Errorf("the answer is cut off, or is no JSON: %q", oneLine(message)))
	case p == nil || result == nil && failure == nil:
	case failure != nil && (refused || id == nil || string(id) == "null"):
		// What was wrong may have kept the server from reading the id, but it is this POST that it answers.
		answered = true
	default:
		answered = plainID(id) == p.id
	}
	if answered && !(bytes.HasPrefix(message, []byte(`{"jsonrpc":"2.0","id":`)) && bytes.HasSuffix(message, []byte("}")) && plainID(id) == p.id) {
		// In the order in which whoever waits is found first, even if what follows is no JSON.
		message = fmt.Appendf(nil, `{"jsonrpc":%s,"id":%s,`, cmp.Or(string(m.get("jsonrpc")), "null"), outline(p.message).get("id"))
		if failure != nil && string(failure) != "null" {
			message = append(append(append(message, `"error":`...), failure...), '}')
		} else {
			message = append(append(append(message, `"result":`...), result...), '}')
		}
	}
	if answered && p.method == "initialize" && result != nil {
		h.begin(response.Header.Get("Mcp-Session-Id"), result)
	}
	select {
	case h.in <- message:
		return answered, nil
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
}

// begin takes down the session that the answer to an initialize begins. If it is not the first, the one before, which has
// expired, stays until adopt: who uses it learns that, and no message overtakes the end of the handshake.
func (h *HTTP) begin(id string, result []byte) {
	s := &httpSession{id: id}
	_ = json.Unmarshal(outline(result).get("protocolVersion"), &s.version) // whoever asked reads it, too
	s.life, s.end = context.WithCancel(h.life)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.next = s; h.session == nil {
		h.session = s
	}
}

// adopt ends a handshake.
func (h *HTTP) adopt(s *httpSession, accepted bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case !accepted:
		s.end()
	case h.session != s:
		h.session.end()
		h.session = s
	}
}

// listen opens the GET stream, before the server is told that the client is ready: what it has to say or to ask then, it says
// only there, and only once.
func (h *HTTP) listen(ctx context.Context, s *httpSession) {
	if !h.enter() {
		return
	}
	opened := make(chan struct{})
	go func() {
		defer h.work.Done()
		response, err := h.get(s.life, s, "")
		close(opened)
		if refusal := new(HTTPError); err == nil || errors.As(err, &refusal) && refusal.Lost() { // else the server has none
			_ = h.follow(s.life, nil, s, response, err)
		}
	}()
	late := time.NewTimer(openTime)
	defer late.Stop()
	select {
	case <-opened:
	case <-late.C:
	case <-ctx.Done():
	}
}

// get opens the GET stream, or resumes the stream whose last event had that id.
func (h *HTTP) get(ctx context.Context, s *httpSession, lastID string) (*http.Response, error) {
	header := http.Header{"Accept": {"text/event-stream"}}
	if lastID != "" {
		header.Set("Last-Event-ID", lastID)
	}
	response, err := h.do(ctx, http.MethodGet, s, header, nil)
	if err == nil && (response.StatusCode != http.StatusOK || contentType(response) != "text/event-stream") {
		defer response.Body.Close()
		body, _ := readBody(response, h.limit())
		return nil, h.refusal(response, body)
	}
	return response, err
}

// follow reads the stream that has the answer to p, or where p is nil the GET stream until ctx ends. In the handshake era one that
// breaks off is resumed, not before the time that the server asked for (MCP 2025-11-25, transports, resumability).
func (h *HTTP) follow(ctx context.Context, p *post, s *httpSession, response *http.Response, err error) error {
	events := h.readers.Get().(*eventReader)
	*events = eventReader{limit: h.limit(), buf: events.buf}
	defer h.readers.Put(events)
	for failures := 0; ; failures++ {
		if err == nil {
			lastID, opened := events.lastID, time.Now()
			if err = h.receive(ctx, p, events, response); err == nil {
				return nil
			}
			if events.lastID != lastID || time.Since(opened) > steadyTime {
				failures = 0
			}
		}
		refusal := new(HTTPError)
		refused := errors.As(err, &refusal) && refusal.Status/100 == 4 && refusal.Status != http.StatusConflict // which is: too soon
		resumable := p == nil || s != nil && events.lastID != "" && failures < maxFailures
		switch {
		case refused && p != nil:
			return h.lost(fmt.Errorf("the answer broke off, and the server does not resume it: %w", refusal.Err))
		case refused || !resumable || errors.As(err, new(*BodyTooLongError)):
			return h.lost(err)
		}
		pause := min(cmp.Or(events.retry, retryTime)<<min(failures, 10), maxRetry)
		select {
		case <-time.After(max(pause, events.retry)):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		response, err = h.get(ctx, s, events.lastID)
	}
}

// receive delivers the messages of one connection, until the answer to p. The error is why it had none.
func (h *HTTP) receive(ctx context.Context, p *post, events *eventReader, response *http.Response) error {
	defer response.Body.Close()
	events.begin(response.Body)
	for {
		name, data, err := events.next()
		if err != nil {
			return err
		}
		if name != "" && name != "message" || len(data) == 0 { // of no use here, or there for its id alone
			continue
		}
		answered, err := h.deliver(ctx, p, response, data)
		if answered {
			readTail(response)
		}
		if answered || err != nil {
			return err
		}
	}
}

// newPost reads what the transport has to know of a message.
func (h *HTTP) newPost(message []byte) *post {
	m := outline(message)
	params := outline(m.get("params"))
	p := &post{
		message:   message,
		method:    jsonText(m.get("method")),
		stateless: jsonText(outline(params.get("_meta")).get("io.modelcontextprotocol/protocolVersion")),
		header: http.Header{
			"Content-Type": {"application/json"},
			"Accept":       {"application/json, text/event-stream"},
		},
	}
	if p.method != "" { // else the id is that of the server's request
		p.id = plainID(m.get("id"))
	}
	switch p.method {
	case "tools/call", "prompts/get":
		p.name = jsonText(params.get("name"))
	case "resources/read":
		p.name = jsonText(params.get("uri"))
	}
	if p.stateless != "" {
		// For those between here and the server (MCP 2026-07-28, transports, streamable HTTP, request metadata).
		p.header.Set("Mcp-Protocol-Version", p.stateless)
		p.header.Set("Mcp-Method", p.method)
		if p.name != "" {
			p.header.Set("Mcp-Name", HeaderValue(p.name))
		}
		return p
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	switch p.method {
	case "initialize":
	case "notifications/initialized", "": // a response is to what came on the new GET stream
		p.session = h.next
	default:
		p.session = h.session
	}
	return p
}

// HeaderValue encodes a text that a header cannot hold, or that would be taken for an encoded one.
func HeaderValue(text string) string {
	plain := strings.Trim(text, " ") == text && !(strings.HasPrefix(text, "=?base64?") && strings.HasSuffix(text, "?="))
	if plain && strings.IndexFunc(text, func(r rune) bool { return r < ' ' || r > '~' }) < 0 {
		return text
	}
	return "=?base64?" + base64.StdEncoding.EncodeToString([]byte(text)) + "?="
}

// lost is the error of a connection.
func (h *HTTP) lost(err error) error {
	if of := new(url.Error); errors.As(err, &of) {
		err = of.Err
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if errors.As(err, new(*HTTPError)) {
		return err
	}
	return &HTTPError{URL: bareURL(h.URL), Err: err}
}

// refusal is the error for an answer with no message in it.
func (h *HTTP) refusal(response *http.Response, body []byte) *HTTPError {
	text := cmp.Or(oneLine(body), "nothing more")
	if _, title, ok := strings.Cut(text, "<title>"); ok {
		text, _, _ = strings.Cut(title, "</title>")
	}
	if response.StatusCode/100 == 2 {
		text = fmt.Sprintf("no message, but %q: %s", response.Header.Get("Content-Type"), text)
	}
	return &HTTPError{URL: bareURL(h.URL), Status: response.StatusCode, Header: response.Header, Err: errors.New(text)}
}

// bareURL is a URL without what may be secret in it.
func bareURL(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return "the server's URL"
	}
	return u.Scheme + "://" + u.Host + u.Path
}

func (h *HTTP) limit() int { return min(cmp.Or(h.MaxMessage, maxHTTPMessage), math.MaxInt32-1<<10) }
