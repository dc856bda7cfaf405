package main

import (
	"cmp"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

// htMessage is what a scripted server reads of a POST.
type htMessage struct {
	ID     json.RawMessage
	Method string
	Params json.RawMessage
	Error  json.RawMessage
}

// htSeen is one request that a scripted server got.
type htSeen struct {
	Method, Path string
	Header       http.Header
	Body         string
}

// htScript answers one request.
type htScript func(w http.ResponseWriter, r *http.Request, m htMessage)

// htSwitch is a script that a test exchanges for another.
type htSwitch struct {
	mu     sync.Mutex
	script htScript
}

func (s *htSwitch) set(script htScript) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.script = script
}

func (s *htSwitch) serve(w http.ResponseWriter, r *http.Request, m htMessage) {
	s.mu.Lock()
	script := s.script
	s.mu.Unlock()
	script(w, r, m)
}

// htServer is a scripted server. It notes what it is asked.
type htServer struct {
	*httptest.Server // nil in memory
	script           htScript

	mu    sync.Mutex
	seen  []htSeen
	conns int // accepted so far
}

func (s *htServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	var m htMessage
	_ = json.Unmarshal(body, &m)
	s.mu.Lock()
	s.seen = append(s.seen, htSeen{r.Method, r.URL.Path, r.Header.Clone(), string(body)})
	s.mu.Unlock()
	s.script(w, r, m)
}

// requests are those so far, as "POST tools/call" or "GET".
func (s *htServer) requests() (all []string) {
	for _, r := range s.all() {
		var m htMessage
		_ = json.Unmarshal([]byte(r.Body), &m)
		all = append(all, strings.TrimSpace(r.Method+" "+m.Method))
	}
	return all
}

func (s *htServer) all() []htSeen {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.seen)
}

// last is the last request of that HTTP method.
func (s *htServer) last(t *testing.T, method string) htSeen {
	t.Helper()
	for _, r := range slices.Backward(s.all()) {
		if r.Method == method {
			return r
		}
	}
	t.Fatalf("there was no %s", method)
	return htSeen{}
}

func (s *htServer) connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conns
}

// htUnstarted is a server on loopback that is not started yet.
func htUnstarted(t *testing.T, script htScript) *htServer {
	s := &htServer{script: script}
	s.Server = httptest.NewUnstartedServer(s)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			s.mu.Lock()
			s.conns++
			s.mu.Unlock()
		}
	}
	t.Cleanup(s.Close)
	return s
}

// htServe starts a server on loopback.
func htServe(t *testing.T, script htScript) *htServer {
	s := htUnstarted(t, script)
	s.Start()
	return s
}

// htMemory brings requests to a handler in this process, for tests in which time passes only when all wait.
type htMemory struct{ handler http.Handler }

// htInMemory is a server in memory, and a client of it.
func htInMemory(script htScript) (*htServer, *http.Client) {
	s := &htServer{script: script}
	return s, &http.Client{Transport: htMemory{s}}
}

func (m htMemory) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(r.Context())
	in, out := io.Pipe()
	w := &htMemoryWriter{header: make(http.Header), out: out, begun: make(chan struct{})}
	stop := context.AfterFunc(ctx, func() { out.CloseWithError(context.Cause(ctx)) })
	go func() {
		defer stop()
		defer func() {
			if recover() != nil { // http.ErrAbortHandler: the connection breaks
				out.CloseWithError(io.ErrUnexpectedEOF)
				w.once.Do(func() { w.err = io.EOF; close(w.begun) })
			}
			w.WriteHeader(http.StatusOK)
			out.Close()
		}()
		m.handler.ServeHTTP(w, r.Clone(ctx))
	}()
	select {
	case <-w.begun:
		if w.err != nil {
			cancel()
			return nil, w.err
		}
		return &http.Response{
			StatusCode: w.status, Header: w.sent, ContentLength: -1, Request: r,
			Body: htMemoryBody{in, cancel},
		}, nil
	case <-ctx.Done():
		cancel()
		return nil, context.Cause(ctx)
	}
}

type htMemoryBody struct {
	*io.PipeReader
	cancel context.CancelFunc
}

func (b htMemoryBody) Close() error {
	b.cancel()
	return b.PipeReader.Close()
}

type htMemoryWriter struct {
	header, sent http.Header
	status       int
	err          error
	out          *io.PipeWriter
	once         sync.Once
	begun        chan struct{}
}

func (w *htMemoryWriter) Header() http.Header { return w.header }
func (w *htMemoryWriter) Flush()              { w.WriteHeader(http.StatusOK) }

func (w *htMemoryWriter) WriteHeader(status int) {
	w.once.Do(func() {
		w.status, w.sent = status, w.header.Clone()
		close(w.begun)
	})
}

func (w *htMemoryWriter) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.out.Write(b)
}

// htPeer is a transport, and what its Read has returned.
type htPeer struct {
	Transport
	t     *testing.T
	in    chan string
	end   chan error
	close func()
}

// htOpen reads all that a transport returns. What the test does not expect, it must not get.
func htOpen(t *testing.T, transport Transport) *htPeer {
	p := &htPeer{Transport: transport, t: t, in: make(chan string, 1000), end: make(chan error, 1)}
	go func() {
		defer close(p.in)
		for {
			message, err := transport.Read()
			if err != nil {
				p.end <- err
				return
			}
			p.in <- string(message)
		}
	}()
	p.close = sync.OnceFunc(func() {
		assert.Check(t, transport.Close())
		assert.Check(t, is.ErrorIs(<-p.end, net.ErrClosed))
		for message := range p.in {
			t.Errorf("not expected: %.1000s", message)
		}
	})
	t.Cleanup(p.close)
	return p
}

// write sends a message.
func (p *htPeer) write(message string) error { return p.Write(p.t.Context(), []byte(message)) }

// say sends a message that must arrive.
func (p *htPeer) say(message string) {
	p.t.Helper()
	assert.NilError(p.t, p.write(message), "%.1000s", message)
}

// expect waits for messages.
func (p *htPeer) expect(messages ...string) {
	p.t.Helper()
	for _, want := range messages {
		got, ok := <-p.in
		if !ok {
			p.t.Fatalf("the end, not %.1000s", want)
		}
		if got != want {
			p.t.Fatalf("got\n%.1000s\nnot\n%.1000s", got, want)
		}
	}
}

// htFails is the error of a message that is refused.
func (p *htPeer) fails(message string) *HTTPError {
	p.t.Helper()
	err := p.write(message)
	var refusal *HTTPError
	assert.Assert(p.t, errors.As(err, &refusal), "%v", err)
	assert.Check(p.t, !errors.Is(err, io.EOF), "for a Transport that is its end")
	return refusal
}

// htRequest is a request of the handshake era.
func htRequest(id int, method, params string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":{%s}}`, id, method, params)
}

// htModern is a request of the stateless era. The members of its params have a comma after each.
func htModern(id int, method, params string) string {
	return htRequest(id, method, params+statelessMeta)
}

// htResult is the answer {"id":id,"result":{}}.
func htResult(id string) string { return `{"jsonrpc":"2.0","id":` + id + `,"result":{}}` }

// htAnswer answers with JSON.
func htAnswer(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	io.WriteString(w, body)
}

// htEvent is what an event of that data is on the wire.
func htEvent(data string) string { return "data: " + data + "\n\n" }

// htStream begins a stream of events, or goes on with it.
func htStream(w http.ResponseWriter, events ...string) {
	w.Header().Set("Content-Type", "text/event-stream")
	for _, e := range events {
		io.WriteString(w, e)
	}
	w.(http.Flusher).Flush()
}

// htSession is a script for a server of the handshake era: it begins and ends sessions, and has no GET stream. If the session
// is empty, it keeps none.
func htSession(session string, rest htScript) htScript {
	return func(w http.ResponseWriter, r *http.Request, m htMessage) {
		switch {
		case m.Method == "initialize":
			if session != "" {
				w.Header().Set("Mcp-Session-Id", session)
			}
			htAnswer(w, 200, `{"jsonrpc":"2.0","id":1,"result":`+initializeResult("2025-11-25")+`}`)
		case m.Method == "notifications/initialized":
			w.WriteHeader(http.StatusAccepted)
		case r.Method == http.MethodDelete:
		case r.Method == http.MethodGet && r.Header.Get("Last-Event-Id") == "" && r.Header.Get("X-Wants") == "":
			w.WriteHeader(http.StatusMethodNotAllowed)
		default:
			rest(w, r, m)
		}
	}
}

// htListening is htSession with a GET stream.
func htListening(session string, rest htScript) htScript {
	plain := htSession(session, rest)
	return func(w http.ResponseWriter, r *http.Request, m htMessage) {
		if r.Method == http.MethodGet {
			rest(w, r, m)
			return
		}
		plain(w, r, m)
	}
}

// handshake begins a session.
func (p *htPeer) handshake() *htPeer {
	p.t.Helper()
	p.say(initializeLine)
	p.expect(`{"jsonrpc":"2.0","id":1,"result":` + initializeResult("2025-11-25") + `}`)
	p.say(initializedLine)
	return p
}

// htEras runs a test of requests with the id 2 in both eras. In the handshake era there is a session.
func htEras(t *testing.T, test func(t *testing.T, request func(method, params string) string, open func(*HTTP, htScript) (*htPeer, *htServer))) {
	t.Run("handshake", func(t *testing.T) {
		checkLeaks(t)
		test(t, func(method, params string) string { return htRequest(2, method, strings.TrimSuffix(params, ",")) },
			func(h *HTTP, script htScript) (*htPeer, *htServer) {
				s := htServe(t, htSession("the-session", script))
				h.URL = cmp.Or(h.URL, s.URL+"/mcp")
				return htOpen(t, h).handshake(), s
			})
	})
	t.Run("stateless", func(t *testing.T) {
		checkLeaks(t)
		test(t, func(method, params string) string { return htModern(2, method, params) },
			func(h *HTTP, script htScript) (*htPeer, *htServer) {
				s := htServe(t, script)
				h.URL = cmp.Or(h.URL, s.URL+"/mcp")
				return htOpen(t, h), s
			})
	})
}

// htOwn leaves out of a request's headers what net/http adds.
func htOwn(header http.Header) map[string]string {
	own := make(map[string]string)
	for name, values := range header {
		if !slices.Contains([]string{"User-Agent", "Content-Length", "Accept-Encoding"}, name) {
			own[name] = strings.Join(values, " | ")
		}
	}
	return own
}

// TestHTTPStatelessHeaders: what a message of the stateless era has beside it, and that no session is kept.
func TestHTTPStatelessHeaders(t *testing.T) {
	checkLeaks(t)
	s := htServe(t, func(w http.ResponseWriter, r *http.Request, m htMessage) {
		assert.Check(t, is.Equal(r.Host, "mcp.example"))
		w.Header().Set("Mcp-Session-Id", "of-no-use")
		htAnswer(w, 200, htResult(string(m.ID)))
	})
	h := &HTTP{URL: s.URL + "/mcp?key=1", Header: http.Header{"Authorization": {"Bearer me"}, "X-Two": {"a", "b"}, "Accept": {"text/html"}, "Host": {"mcp.example"}}}
	p := htOpen(t, h)
	for _, c := range []struct{ method, params, name string }{
		{"server/discover", ``, ""},
		{"tools/list", ``, ""},
		{"tools/call", `"name":"get_weather","arguments":{"name":"no","uri":"no"},`, "get_weather"},
		{"tools/call", `"name":"a b","uri":"no",`, "a b"},
		{"tools/call", `"name":" a",`, "=?base64?IGE=?="},
		{"tools/call", `"name":"日本",`, "=?base64?5pel5pys?="},
		{"tools/call", `"name":"a\r\nX-Evil: 1",`, "=?base64?YQ0KWC1FdmlsOiAx?="},
		{"tools/call", `"name":"=?base64?eA==?=",`, "=?base64?PT9iYXNlNjQ/ZUE9PT89?="},
		{"tools/call", `"name":5,`, ""},
		{"prompts/get", `"name":"greet",`, "greet"},
		{"prompts/list", `"name":"no",`, ""},
		{"resources/read", `"name":"no","uri":"file:///a%20b?id=1",`, "file:///a%20b?id=1"},
		{"resources/list", ``, ""},
		{"completion/complete", `"ref":{"type":"ref/prompt","name":"no"},`, ""},
		{"subscriptions/listen", `"notifications":{},`, ""},
	} {
		p.say(htModern(7, c.method, c.params))
		p.expect(htResult("7"))
		want := map[string]string{
			"Content-Type":         "application/json",
			"Accept":               "application/json, text/event-stream",
			"Mcp-Protocol-Version": "2026-07-28",
			"Mcp-Method":           c.method,
			"Authorization":        "Bearer me",
			"X-Two":                "a | b",
		}
		if c.name != "" {
			want["Mcp-Name"] = c.name
		}
		got := s.last(t, "POST")
		assert.DeepEqual(t, htOwn(got.Header), want)
		assert.Equal(t, got.Body, htModern(7, c.method, c.params))
		assert.Equal(t, got.Path, "/mcp")
	}
	p.say(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`) // closing the stream has said it
	p.close()
	assert.Equal(t, len(s.all()), 15, "neither a notification, nor a DELETE, nor a GET")
	assert.DeepEqual(t, h.Header, http.Header{"Authorization": {"Bearer me"}, "X-Two": {"a", "b"}, "Accept": {"text/html"}, "Host": {"mcp.example"}})
}

// TestHTTPSession: the session and the revision that initialize began with are beside every later message, and DELETE ends it.
func TestHTTPSession(t *testing.T) {
	for _, session := range []string{"", "s-1"} {
		checkLeaks(t)
		s := htServe(t, htListening(session, func(w http.ResponseWriter, r *http.Request, m htMessage) {
			switch {
			case r.Method == http.MethodGet:
				htStream(w)
				<-r.Context().Done()
			case m.ID == nil || m.Method == "":
				w.WriteHeader(http.StatusAccepted)
			default:
				w.Header().Set("Mcp-Session-Id", "another")
				htAnswer(w, 200, htResult(string(m.ID)))
			}
		}))
		p := htOpen(t, &HTTP{URL: s.URL, Header: http.Header{"X-Key": {"k"}}}).handshake()
		p.say(htRequest(2, "tools/call", `"name":"t"`))
		p.say(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`)
		p.say(`{"jsonrpc":"2.0","id":"of the server","result":{}}`)
		p.expect(htResult("2"))
		p.close()
		want := []string{"POST initialize", "GET", "POST notifications/initialized", "POST tools/call", "POST notifications/cancelled", "POST", "DELETE"}
		if session == "" {
			want = want[:len(want)-1]
		}
		assert.DeepEqual(t, s.requests(), want)
		for i, r := range s.all() {
			want := map[string]string{"X-Key": "k"}
			switch r.Method {
			case "POST":
				want["Accept"], want["Content-Type"] = "application/json, text/event-stream", "application/json"
			case "GET":
				want["Accept"] = "text/event-stream"
			}
			if i > 0 {
				want["Mcp-Protocol-Version"] = "2025-11-25"
				if session != "" {
					want["Mcp-Session-Id"] = session
				}
			}
			assert.DeepEqual(t, htOwn(r.Header), want)
		}
	}
}

// TestHTTPSessionOfErrors: only what answers initialize begins a session; servers put a new id beside errors, too.
func TestHTTPSessionOfErrors(t *testing.T) {
	checkLeaks(t)
	s := htServe(t, func(w http.ResponseWriter, _ *http.Request, m htMessage) {
		w.Header().Set("Mcp-Session-Id", "none")
		if m.Method == "server/discover" {
			htAnswer(w, 400, `{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"Missing session ID"}}`)
			return
		}
		htAnswer(w, 200, `{"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"no"}}`)
	})
	p := htOpen(t, &HTTP{URL: s.URL})
	p.say(htModern(1, "server/discover", ""))
	p.say(initializeLine)
	p.expect(`{"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"Missing session ID"}}`, `{"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"no"}}`)
	p.close()
	assert.DeepEqual(t, s.requests(), []string{"POST server/discover", "POST initialize"})
	assert.Equal(t, s.last(t, "POST").Header.Get("Mcp-Session-Id"), "")
}

// TestHTTPSecondSession: a new session takes the place of the one before when the server has been told that the client is ready, and
// not earlier: until then messages are of the old one. If the server does not take that, there is no new one.
func TestHTTPSecondSession(t *testing.T) {
	checkLeaks(t)
	var sessions int
	var refuses atomic.Bool
	ended := make(chan string, 3)
	s := htServe(t, func(w http.ResponseWriter, r *http.Request, m htMessage) {
		switch {
		case r.Method == http.MethodGet:
			htStream(w)
			<-r.Context().Done()
			ended <- r.Header.Get("Mcp-Session-Id")
		case m.Method == "initialize":
			sessions++
			w.Header().Set("Mcp-Session-Id", fmt.Sprint(sessions))
			htStream(w, htEvent(`{"jsonrpc":"2.0","id":1,"result":`+initializeResult("2025-11-25")+`}`))
		case m.Method == "notifications/initialized" && refuses.Load():
			w.WriteHeader(http.StatusBadRequest)
		case m.ID == nil || m.Method == "":
			w.WriteHeader(http.StatusAccepted)
		case m.Method == "tools/call":
			htAnswer(w, 200, htResult("2"))
		}
	})
	p := htOpen(t, &HTTP{URL: s.URL}).handshake()
	of := func(message string) string {
		t.Helper()
		p.say(message)
		if strings.Contains(message, "tools/call") {
			p.expect(htResult("2"))
		}
		return s.last(t, "POST").Header.Get("Mcp-Session-Id")
	}
	call := htRequest(2, "tools/call", `"name":"t"`)
	assert.Equal(t, of(call), "1")
	assert.Equal(t, of(initializeLine), "", "initialize is of no session")
	<-p.in
	assert.Equal(t, of(call), "1")
	assert.Equal(t, of(htResult(`"of the server"`)), "2", "what it asks comes on its new stream")
	assert.Equal(t, of(initializedLine), "2")
	assert.Equal(t, <-ended, "1")
	assert.Equal(t, of(call), "2")

	p.say(initializeLine)
	<-p.in
	refuses.Store(true)
	p.fails(initializedLine)
	assert.Equal(t, <-ended, "3")
	assert.Equal(t, of(call), "2")
	p.close()
	assert.Equal(t, <-ended, "2")
	assert.DeepEqual(t, s.requests(), []string{"POST initialize", "GET", "POST notifications/initialized", "POST tools/call",
		"POST initialize", "POST tools/call", "POST", "GET", "POST notifications/initialized", "POST tools/call",
		"POST initialize", "GET", "POST notifications/initialized", "POST tools/call", "DELETE"})
	assert.Equal(t, s.last(t, "DELETE").Header.Get("Mcp-Session-Id"), "2")
}

// TestHTTPAnswers: what comes with an answer, before it and in which form, and that the message after it is answered as well.
func TestHTTPAnswers(t *testing.T) {
	const progress = `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":2,"progress":1}}`
	const refused = `{"jsonrpc":"2.0","id":2,"error":{"code":-32000,"message":"no"}}`
	json := func(status int, body string) func(w http.ResponseWriter) {
		return func(w http.ResponseWriter) { htAnswer(w, status, body) }
	}
	stream := func(events ...string) func(w http.ResponseWriter) {
		return func(w http.ResponseWriter) { htStream(w, events...) }
	}
	long := strings.Repeat("x", 10<<20)
	for name, c := range map[string]struct {
		answer func(w http.ResponseWriter)
		want   []string
	}{
		"JSON": {json(200, htResult("2")), []string{htResult("2")}},
		"JSON charset": {func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "Application/JSON; charset=utf-8")
			io.WriteString(w, htResult("2"))
		}, []string{htResult("2")}},
		"spaces":         {json(200, " \r\n"+htResult("2")+"\n"), []string{htResult("2")}},
		"id string":      {json(200, htResult(`"2"`)), []string{htResult(`"2"`)}},
		"id number":      {json(200, htResult(`2.0`)), []string{htResult(`2.0`)}},
		"error":          {json(200, refused), []string{refused}},
		"error 400":      {json(400, refused), []string{refused}},
		"error 404":      {json(404, strings.Replace(refused, "-32000", "-32601", 1)), []string{strings.Replace(refused, "-32000", "-32601", 1)}},
		"error 500":      {json(500, refused), []string{refused}},
		"result 400":     {json(400, htResult("2")), []string{htResult("2")}},
		"error text":     {func(w http.ResponseWriter) { http.Error(w, refused, 400) }, []string{refused}},
		"no error":       {json(200, `{"jsonrpc":"2.0","id":2,"result":{},"error":null}`), []string{`{"jsonrpc":"2.0","id":2,"result":{},"error":null}`}},
		"no error first": {json(200, `{"jsonrpc":"2.0","error":null,"result":{},"id":2}`), []string{htResult("2")}},
		"no result":      {json(200, `{"jsonrpc":"2.0","result":null,"id":2,"error":{"code":-32000,"message":"no"}}`), []string{refused}},
		"newline":        {json(200, htResult("2")+"\n"), []string{htResult("2")}},
		"error no id":    {json(400, `{"jsonrpc":"2.0","error":{"code":-32000,"message":"no"}}`), []string{refused}},
		"error id null":  {json(406, `{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"no"}}`), []string{refused}},
		"error other":    {json(413, `{"jsonrpc":"2.0","id":"server-error","error":{"code":-32000,"message":"no"}}`), []string{refused}},
		"error 200":      {json(200, `{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"no"}}`), []string{refused}},
		"batch":          {json(200, "["+progress+","+htResult("2")+"]"), []string{progress, htResult("2")}},
		"SSE":            {stream(htEvent(htResult("2"))), []string{htResult("2")}},
		"SSE error":      {stream(htEvent(`{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"no"}}`)), []string{refused}},
		"SSE progress":   {stream(htEvent(progress), htEvent(progress), htEvent(htResult("2"))), []string{progress, progress, htResult("2")}},
		"SSE batch":      {stream(htEvent("["+progress+","+htResult("2")+"]"), "id: 1\n\n"), []string{progress, htResult("2")}},
		"SSE other answer": {stream(htEvent(htResult("77")), htEvent(htResult("2"))),
			[]string{htResult("77"), htResult("2")}},
		"SSE request": {stream(htEvent(`{"jsonrpc":"2.0","id":2,"method":"ping"}`), htEvent(htResult("2"))),
			[]string{`{"jsonrpc":"2.0","id":2,"method":"ping"}`, htResult("2")}},
		"SSE what is no message": {stream(": hello\n\n", "id: 5\nretry: 50\ndata: \n\n", "event: endpoint\ndata: /x\n\n", "event: ping\ndata: {}\n\n",
			"event: message\nid: 6\ndata: "+htResult("2")+"\n\n"), []string{htResult("2")}},
		"SSE no JSON": {stream(htEvent("hello"), htEvent(`{"jsonrpc":`), htEvent(htResult("2"))),
			[]string{"hello", `{"jsonrpc":`, htResult("2")}},
		"SSE CRLF":     {stream(strings.ReplaceAll(": c\nevent: message\ndata: "+htResult("2")+"\n\n", "\n", "\r\n")), []string{htResult("2")}},
		"SSE CR":       {stream(strings.ReplaceAll(": c\nevent: message\ndata: "+htResult("2")+"\n\n", "\n", "\r")), []string{htResult("2")}},
		"SSE BOM":      {stream("\ufeff" + htEvent(htResult("2"))), []string{htResult("2")}},
		"SSE lines":    {stream("data:{\ndata:\"jsonrpc\":\"2.0\",\ndata: \"id\":2,\"result\":{}}\n\n"), []string{htResult("2")}},
		"result first": {json(200, `{"result":{"a":[1]},"jsonrpc":"2.0","id":2}`), []string{`{"jsonrpc":"2.0","id":2,"result":{"a":[1]}}`}},
		"SSE endless": {func(w http.ResponseWriter) {
			htStream(w, htEvent(htResult("2")))
			htEndless("", ":", strings.Repeat("x", 1000))(w, nil, htMessage{})
		}, []string{htResult("2")}},
		"SSE 10 MiB": {stream(htEvent(`{"jsonrpc":"2.0","id":2,"result":"` + long + `"}`)),
			[]string{`{"jsonrpc":"2.0","id":2,"result":"` + long + `"}`}},
		"JSON 10 MiB": {json(200, `{"jsonrpc":"2.0","id":2,"result":"`+long+`"}`), []string{`{"jsonrpc":"2.0","id":2,"result":"` + long + `"}`}},
	} {
		t.Run(name, func(t *testing.T) {
			htEras(t, func(t *testing.T, request func(method, params string) string, open func(*HTTP, htScript) (*htPeer, *htServer)) {
				asked := 0
				p, _ := open(&HTTP{}, func(w http.ResponseWriter, r *http.Request, m htMessage) {
					if asked++; asked == 1 {
						c.answer(w)
						return
					}
					htAnswer(w, 200, htResult("2"))
				})
				p.say(request("tools/call", `"name":"t",`))
				p.expect(c.want...)
				p.say(request("tools/call", `"name":"t",`))
				p.expect(htResult("2"))
			})
		})
	}
}

// TestHTTPNotification: a notification is done with any 2xx, whatever comes with it.
func TestHTTPNotification(t *testing.T) {
	checkLeaks(t)
	var script htSwitch
	s := htServe(t, htSession("s", script.serve))
	p := htOpen(t, &HTTP{URL: s.URL}).handshake()
	const notification = `{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}`
	for _, accepts := range []htScript{
		func(w http.ResponseWriter, _ *http.Request, _ htMessage) { w.WriteHeader(http.StatusAccepted) },
		func(w http.ResponseWriter, _ *http.Request, _ htMessage) { w.WriteHeader(http.StatusNoContent) },
		func(w http.ResponseWriter, _ *http.Request, _ htMessage) {
			htAnswer(w, 200, `{"jsonrpc":"2.0","result":{}}`)
		},
		func(w http.ResponseWriter, r *http.Request, _ htMessage) { htStream(w); <-r.Context().Done() },
		func(w http.ResponseWriter, r *http.Request, _ htMessage) {
			w.Header().Set("Content-Encoding", "gzip") // of which nothing comes, and for which net/http waits with a lock held
			htStream(w)
			<-r.Context().Done()
		},
	} {
		script.set(accepts)
		p.say(notification)
	}
	script.set(func(w http.ResponseWriter, _ *http.Request, _ htMessage) {
		htAnswer(w, 400, `{"jsonrpc":"2.0","error":{"code":-32600,"message":"not now"}}`)
	})
	err := p.fails(notification)
	assert.ErrorContains(t, err, "not now")
	assert.Equal(t, err.Status, 400)
	assert.Assert(t, !err.Lost() && !err.SessionExpired())
}

// htBad is an answer that is none.
type htBad struct {
	answer  htScript
	status  int
	lost    bool
	expired bool // in a session
	want    []string
}

// htBadAnswers are the wrong answers to a request with the id 2.
func htBadAnswers() map[string]htBad {
	text := func(status int, kind, body string) htScript {
		return func(w http.ResponseWriter, _ *http.Request, _ htMessage) {
			w.Header()["Content-Type"] = []string{kind}
			w.WriteHeader(status)
			io.WriteString(w, body)
		}
	}
	page := "<html>\r\n<head><title>502 Bad\n Gateway</title></head>\r\n<body>" + strings.Repeat("<hr>", 5000) + "</body></html>"
	return map[string]htBad{
		"401": {answer: func(w http.ResponseWriter, _ *http.Request, _ htMessage) {
			w.Header().Set("WWW-Authenticate", `Bearer realm="here", error="invalid_token"`)
			htAnswer(w, 401, `{"error":"invalid_token"}`)
		}, status: 401, want: []string{"401 Unauthorized", "invalid_token", "Authorization", `Bearer realm=`}},
		"401 JSON-RPC": {answer: text(401, "application/json", `{"jsonrpc":"2.0","id":2,"error":{"code":-32001,"message":"who are you"}}`),
			status: 401, want: []string{"401 Unauthorized", "who are you", "Authorization"}},
		"403":       {answer: text(403, "text/plain", "Invalid Origin header"), status: 403, want: []string{"403 Forbidden", "Invalid Origin header", "Authorization"}},
		"404":       {answer: text(404, "text/html", "<pre>Cannot POST /mcp</pre>"), status: 404, expired: true, want: []string{"404 Not Found", "Cannot POST /mcp"}},
		"404 empty": {answer: text(404, "", ""), status: 404, expired: true, want: []string{"404 Not Found"}},
		"405":       {answer: text(405, "", ""), status: 405, want: []string{"405 Method Not Allowed"}},
		"400":       {answer: text(400, "text/plain", "what?"), status: 400, want: []string{"400 Bad Request", "what?"}},
		"421":       {answer: text(421, "text/plain", "Invalid Host header"), status: 421, want: []string{"421 Misdirected Request", "Invalid Host header"}},
		"500":       {answer: text(500, "text/plain", "Internal Server Error"), status: 500, want: []string{"500 Internal Server Error"}},
		"long":      {answer: text(500, "text/plain", strings.Repeat("é\r\n", 100_000)), status: 500, want: []string{"é é é"}},
		"longer":    {answer: text(500, "text/plain", "x"+strings.Repeat("é", 100_000)), status: 500, want: []string{": …"}},
		"502":       {answer: text(502, "text/html", page), status: 502, lost: true, want: []string{"502 Bad Gateway"}},
		"503":       {answer: text(503, "text/html", page), status: 503, lost: true, want: []string{"503 Service Unavailable"}},
		"504":       {answer: text(504, "text/html", page), status: 504, lost: true, want: []string{"504 Gateway Timeout"}},
		"600":       {answer: text(600, "text/plain", "what?"), status: 600, want: []string{"600"}},
		"400 half":  {answer: text(400, "application/json", `{"jsonrpc":"2.0","id":2,"err`), status: 400, want: []string{"400 Bad Request", `"err`}},
		"404 JSON":  {answer: text(404, "application/json", `{"error":"no such page"}`), status: 404, expired: true, want: []string{"404 Not Found", "no such page"}},
		"500 JSON":  {answer: text(500, "application/json", `{"error":{"message":"oh"}}`), status: 500, want: []string{"500 Internal Server Error", "oh"}},
		"503 JSON":  {answer: text(503, "application/json", ""), status: 503, lost: true, want: []string{"503 Service Unavailable"}},
		"HTML":      {answer: text(200, "text/html", page), status: 200, want: []string{"text/html", "502 Bad Gateway"}},
		"no type":   {answer: text(200, "", "hello"), status: 200, want: []string{"hello"}},
		"text":      {answer: text(200, "text/plain", htResult("2")), status: 200, want: []string{"text/plain"}},
		"bad type":  {answer: text(200, ";;;", htResult("2")), status: 200, want: []string{";;;"}},
		"no body":   {answer: text(200, "application/json", ""), lost: true, want: []string{"cut off"}},
		"half":      {answer: text(200, "application/json", `{"jsonrpc":"2.0","id":2,"result":{"a":[1,2`), lost: true, want: []string{"cut off", `[1,2`}},
		"in a string": {answer: text(200, "application/json", `{"jsonrpc":"2.0","id":2,"result":"abc`), lost: true,
			want: []string{"cut off"}},
		"no JSON":  {answer: text(200, "application/json", `hello`), lost: true, want: []string{"hello"}},
		"202":      {answer: text(202, "", ""), status: 202, want: []string{"202 Accepted"}},
		"204":      {answer: func(w http.ResponseWriter, _ *http.Request, _ htMessage) { w.WriteHeader(204) }, status: 204, want: []string{"204 No Content"}},
		"206 JSON": {answer: text(206, "text/plain", "x"), status: 206, want: []string{"206"}},
		"short": {answer: func(w http.ResponseWriter, _ *http.Request, _ htMessage) {
			w.Header().Set("Content-Length", "1000")
			htAnswer(w, 200, htResult("2"))
			panic(http.ErrAbortHandler)
		}, lost: true, want: []string{"unexpected EOF"}},
		"chunks cut": {answer: func(w http.ResponseWriter, _ *http.Request, _ htMessage) {
			htAnswer(w, 200, `{"jsonrpc":"2.0","id":2,`)
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}, lost: true, want: []string{"unexpected EOF"}},
		"gone": {answer: func(http.ResponseWriter, *http.Request, htMessage) { panic(http.ErrAbortHandler) }, lost: true, want: []string{"EOF"}},
		"no HTTP": {answer: func(w http.ResponseWriter, _ *http.Request, _ htMessage) {
			c, _, _ := w.(http.Hijacker).Hijack()
			io.WriteString(c, "220 mail.example.com ESMTP\r\n")
			c.Close()
		}, lost: true, want: []string{"malformed HTTP"}},
		"endless header": {answer: func(w http.ResponseWriter, _ *http.Request, _ htMessage) {
			c, _, _ := w.(http.Hijacker).Hijack()
			defer c.Close()
			_, err := io.WriteString(c, "HTTP/1.1 200 OK\r\nX: ")
			for part := strings.Repeat("x", 1<<16); err == nil; {
				_, err = io.WriteString(c, part)
			}
		}, lost: true, want: []string{"headers exceeded"}},
		"SSE empty": {answer: func(w http.ResponseWriter, _ *http.Request, _ htMessage) { htStream(w) }, lost: true, want: []string{"unexpected EOF"}},
		"SSE ends": {answer: func(w http.ResponseWriter, _ *http.Request, _ htMessage) {
			htStream(w, ": nothing\n\n", "data: "+htResult("2")+"\n") // not the end of the event
		}, lost: true, want: []string{"unexpected EOF"}},
		"SSE cut": {answer: func(w http.ResponseWriter, _ *http.Request, _ htMessage) {
			htStream(w, ": nothing\n\n")
			panic(http.ErrAbortHandler)
		}, lost: true, want: []string{"unexpected EOF"}},
		"301": {answer: text(301, "", ""), status: 301, want: []string{"301 Moved Permanently"}}, // without Location
		"304": {answer: text(304, "", ""), status: 304, want: []string{"304 Not Modified"}},
		"gzip that is none": {answer: func(w http.ResponseWriter, _ *http.Request, _ htMessage) {
			w.Header().Set("Content-Encoding", "gzip")
			htAnswer(w, 200, htResult("2"))
		}, lost: true, want: []string{"gzip"}},
	}
}

// TestHTTPBadAnswers: each ends in an error that says what came, with nothing secret in it; the message after it is answered.
func TestHTTPBadAnswers(t *testing.T) {
	for name, c := range htBadAnswers() {
		t.Run(name, func(t *testing.T) {
			htEras(t, func(t *testing.T, request func(method, params string) string, open func(*HTTP, htScript) (*htPeer, *htServer)) {
				asked := 0
				h := &HTTP{Header: http.Header{"X-Api-Key": {"s3cret"}}}
				p, s := open(h, func(w http.ResponseWriter, r *http.Request, m htMessage) {
					if asked++; asked == 1 {
						c.answer(w, r, m)
						return
					}
					htAnswer(w, 200, htResult("2"))
				})
				refusal := p.fails(request("tools/call", `"name":"t",`))
				assert.Equal(t, refusal.Status, c.status, "%v", refusal)
				assert.Equal(t, refusal.Lost(), c.lost, "%v", refusal)
				assert.Equal(t, refusal.SessionExpired(), c.expired && strings.Contains(t.Name(), "/handshake"))
				assert.Equal(t, refusal.URL, s.URL+"/mcp")
				for _, want := range append(c.want, s.URL+"/mcp") {
					assert.Check(t, is.Contains(refusal.Error(), want))
				}
				assert.Check(t, len(refusal.Error()) < 1000 && utf8.ValidString(refusal.Error()), "%s", refusal)
				assert.Check(t, !strings.ContainsAny(refusal.Error(), "\r\n") && (c.lost || !strings.HasSuffix(refusal.Error(), ": ")), "%q", refusal)
				p.say(request("tools/call", `"name":"t",`))
				p.expect(htResult("2"))
			})
		})
	}
}

// TestHTTPSecrets: no error repeats what may be a key: the query and the user of the URL, and the headers.
func TestHTTPSecrets(t *testing.T) {
	checkLeaks(t)
	var script htSwitch
	s := htServe(t, script.serve)
	refused := httptest.NewServer(nil)
	refused.Close()
	open := func(address string) *htPeer {
		return htOpen(t, &HTTP{URL: address, Header: http.Header{"Authorization": {"Bearer s3cret"}, "X-Key": {"s3cret"}}})
	}
	check := func(name string, err error) {
		t.Helper()
		assert.Assert(t, err != nil, name)
		for _, e := range chatErrorTree(err) {
			assert.Check(t, !strings.Contains(fmt.Sprintf("%v %+v", e, e), "s3cret"), "%s: %v", name, e)
		}
	}
	with := func(address string) string {
		return strings.Replace(address, "http://", "http://s3cret:s3cret@", 1) + "/mcp?key=s3cret#s3cret"
	}
	p := open(with(s.URL))
	for name, c := range htBadAnswers() {
		script.set(c.answer)
		check(name, p.write(htModern(2, "tools/call", `"name":"t",`)))
	}
	for _, status := range []int{301, 302, 303, 307, 308} {
		for _, location := range []string{with(refused.URL), "http://[s3cret/", "http://s3cret@127.0.0.1:s3cret/"} {
			script.set(func(w http.ResponseWriter, _ *http.Request, _ htMessage) {
				w.Header().Set("Location", location)
				w.WriteHeader(status)
			})
			err := p.write(htModern(2, "tools/call", `"name":"t",`))
			assert.ErrorContains(t, err, bareURL(s.URL))
			if location == with(refused.URL) { // else the server says it, not the user
				check("redirect", err)
			}
		}
	}
	user, password, ok := (&http.Request{Header: s.last(t, "POST").Header}).BasicAuth()
	assert.Assert(t, !ok, "%s %s: the header that the user gave goes before the URL's", user, password)
	p.close()
	for _, address := range []string{
		with(refused.URL),
		strings.Replace(with(s.URL), "http", "https", 1),
		"http://s3cret:s3cret@127.0.0.1:port/?key=s3cret",
		"http://s3cret:s3cret@127.0.0.1/%zz?key=s3cret",
		"http://s3cret:s3cret@127.0.0.1\x7f?key=s3cret",
		"http://s3cret:s3cret@[::1/?key=s3cret",
		"ftp://s3cret:s3cret@127.0.0.1/?key=s3cret",
		"/mcp?key=s3cret",
		"http://?key=s3cret",
		"?key=s3cret",
	} {
		p := open(address)
		check(address, p.write(initializeLine))
		p.close()
	}
	p = htOpen(t, &HTTP{URL: s.URL, Header: http.Header{"Authorization": {"Bearer\ns3cret"}}})
	check("a header that is none", p.write(initializeLine))
}

// TestHTTPRedirects: a message follows to another place of the same origin. It goes to no other origin, nor does anything beside it.
func TestHTTPRedirects(t *testing.T) {
	htEras(t, func(t *testing.T, request func(method, params string) string, open func(*HTTP, htScript) (*htPeer, *htServer)) {
		other := htServe(t, func(w http.ResponseWriter, _ *http.Request, m htMessage) { htAnswer(w, 200, htResult(string(m.ID))) })
		var script htSwitch
		p, s := open(&HTTP{Header: http.Header{"Authorization": {"Bearer me"}, "X-Key": {"k"}}}, script.serve)
		message := request("tools/call", `"name":"t",`)
		redirect := func(status int, location string) {
			script.set(func(w http.ResponseWriter, r *http.Request, m htMessage) {
				if r.URL.Path == "/there" {
					htAnswer(w, 200, htResult("2"))
					return
				}
				w.Header().Set("Location", location)
				w.WriteHeader(status)
			})
		}
		for _, status := range []int{307, 308} {
			for _, location := range []string{"/there", s.URL + "/there?x=1", "there"} {
				redirect(status, location)
				p.say(message)
				p.expect(htResult("2"))
				requests := s.all()
				first, second := requests[len(requests)-2], requests[len(requests)-1]
				assert.Equal(t, second.Path, "/there")
				assert.Equal(t, second.Body, message)
				for _, header := range []http.Header{first.Header, second.Header} {
					header.Del("Referer")
				}
				assert.DeepEqual(t, first.Header, second.Header)
			}
			redirect(status, "/mcp") // again and again
			assert.ErrorContains(t, p.fails(message), "redirects")
		}
		for _, status := range []int{301, 302, 303} {
			redirect(status, "/there")
			before := len(s.all())
			err := p.fails(message)
			assert.ErrorContains(t, err, "redirects to "+s.URL+"/there")
			assert.ErrorContains(t, err, "give its URL")
			assert.Equal(t, len(s.all()), before+1, "what is sent there has lost its body")
		}
		for _, status := range []int{301, 302, 303, 307, 308} {
			for _, location := range []string{
				other.URL + "/mcp", // another port
				strings.Replace(s.URL, "127.0.0.1", "localhost", 1), // another name
				strings.Replace(s.URL, "http", "https", 1),
				"//" + other.Listener.Addr().String(),
			} {
				redirect(status, location)
				err := p.fails(message)
				assert.ErrorContains(t, err, "redirects to ")
				assert.Equal(t, err.Status, status)
				assert.Assert(t, !err.Lost() && !err.SessionExpired(), "nobody did anything")
			}
		}
		p.close()
		assert.DeepEqual(t, other.requests(), []string(nil))
	})
}

// TestHTTPRedirectedStream: neither does the GET stream.
func TestHTTPRedirectedStream(t *testing.T) {
	checkLeaks(t)
	other := htServe(t, func(w http.ResponseWriter, _ *http.Request, _ htMessage) { htStream(w, htEvent(htResult("9"))) })
	s := htServe(t, htListening("s", func(w http.ResponseWriter, r *http.Request, _ htMessage) {
		http.Redirect(w, r, other.URL, http.StatusFound)
	}))
	htOpen(t, &HTTP{URL: s.URL}).handshake().close()
	assert.DeepEqual(t, other.requests(), []string(nil))
}

// TestHTTPTLS: what goes wrong with TLS is explained.
func TestHTTPTLS(t *testing.T) {
	checkLeaks(t)
	answer := func(w http.ResponseWriter, _ *http.Request, m htMessage) { htAnswer(w, 200, htResult(string(m.ID))) }
	secure := htUnstarted(t, answer)
	secure.StartTLS()
	plain := htServe(t, answer)
	for _, c := range []struct {
		url, want string
		status    int
	}{
		{secure.URL, "certificate signed by unknown authority", 0},
		{strings.Replace(secure.URL, "127.0.0.1", "localhost", 1), "certificate is valid for ", 0},
		{strings.Replace(plain.URL, "http", "https", 1), "HTTP response to HTTPS client", 0},
		{strings.Replace(secure.URL, "https", "http", 1), "HTTP request to an HTTPS server", 400},
	} {
		p := htOpen(t, &HTTP{URL: c.url})
		err := p.fails(htModern(1, "server/discover", ""))
		assert.ErrorContains(t, err, c.want)
		assert.Equal(t, err.Status, c.status)
		p.close()
	}
	client := secure.Client()
	p := htOpen(t, &HTTP{URL: secure.URL, Client: client})
	p.say(htModern(1, "server/discover", ""))
	p.expect(htResult("1"))
	p.close()
	client.CloseIdleConnections()
}

// htZip is a script's answer, compressed. Each event is on its way at once.
func htZip(kind string, parts ...string) htScript {
	return func(w http.ResponseWriter, r *http.Request, _ htMessage) {
		if r.Header.Get("Accept-Encoding") != "gzip" {
			w.WriteHeader(http.StatusNotAcceptable)
			return
		}
		w.Header().Set("Content-Type", kind)
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		for _, part := range parts {
			if _, err := io.WriteString(z, part); err != nil {
				return
			}
			z.Flush()
			w.(http.Flusher).Flush()
		}
		if kind == "text/event-stream" {
			<-r.Context().Done() // what is behind the answer is not waited for
			return
		}
		z.Close()
	}
}

// TestHTTPGzip: compressed answers are asked for, and taken as they come; the limit is for what is in them.
func TestHTTPGzip(t *testing.T) {
	htEras(t, func(t *testing.T, request func(method, params string) string, open func(*HTTP, htScript) (*htPeer, *htServer)) {
		var script htSwitch
		p, _ := open(&HTTP{MaxMessage: 1 << 20}, script.serve)
		message := request("tools/call", `"name":"t",`)
		for range 2 {
			script.set(htZip("application/json", htResult("2")))
			p.say(message)
			p.expect(htResult("2"))
			script.set(htZip("text/event-stream", ": c\n\n", htEvent(htResult("1")), htEvent(htResult("2"))))
			p.say(message)
			p.expect(htResult("1"), htResult("2"))
		}
		mega := strings.Repeat("a", 1<<20)
		for _, bomb := range []htScript{
			htZip("application/json", `{"jsonrpc":"2.0","id":2,"result":"`, mega, mega, mega, `"}`),
			htZip("text/event-stream", `data: {"jsonrpc":"2.0","id":2,"result":"`, mega, mega, mega, "\"}\n\n"),
			htZip("text/html", mega, mega),
		} {
			script.set(bomb)
			err := p.write(message)
			var long *BodyTooLongError
			assert.Assert(t, errors.As(err, &long), "%v", err)
			assert.Equal(t, long.Limit, 1<<20)
		}
	})
}

// htEndless sends the beginning, and then the part again and again until nobody takes it.
func htEndless(kind, begin, part string) htScript {
	return func(w http.ResponseWriter, _ *http.Request, _ htMessage) {
		w.Header().Set("Content-Type", kind)
		_, err := io.WriteString(w, begin)
		for err == nil {
			_, err = io.WriteString(w, part)
		}
	}
}

// TestHTTPTooLong: a message of the limit passes, and what is longer is read no further. The text says whose answer it was.
func TestHTTPTooLong(t *testing.T) {
	t.Run("no limit", func(t *testing.T) {
		checkLeaks(t)
		s := htServe(t, func(w http.ResponseWriter, _ *http.Request, m htMessage) {
			if string(m.ID) == "1" {
				htAnswer(w, 200, htResult("1"))
				return
			}
			htStream(w, htEvent(htResult("2")))
		})
		p := htOpen(t, &HTTP{URL: s.URL, MaxMessage: math.MaxInt})
		p.say(htModern(1, "tools/list", ""))
		p.say(htModern(2, "tools/list", ""))
		p.expect(htResult("1"), htResult("2"))
	})
	const limit = 100_000
	exact := func(n int) string {
		return `{"jsonrpc":"2.0","id":2,"result":"` + strings.Repeat("x", n-len(`{"jsonrpc":"2.0","id":2,"result":""}`)) + `"}`
	}
	htEras(t, func(t *testing.T, request func(method, params string) string, open func(*HTTP, htScript) (*htPeer, *htServer)) {
		var script htSwitch
		p, s := open(&HTTP{MaxMessage: limit}, script.serve)
		message := request("tools/call", `"name":"t",`)
		for _, good := range []htScript{
			func(w http.ResponseWriter, _ *http.Request, _ htMessage) { htAnswer(w, 200, exact(limit)) },
			func(w http.ResponseWriter, _ *http.Request, _ htMessage) { htStream(w, htEvent(exact(limit))) },
			func(w http.ResponseWriter, _ *http.Request, _ htMessage) {
				htStream(w, "data: "+exact(limit)+"\r\n\r\n")
			},
		} {
			script.set(good)
			p.say(message)
			p.expect(exact(limit))
		}
		part := strings.Repeat("x", 1000)
		for i, bad := range []htScript{
			func(w http.ResponseWriter, _ *http.Request, _ htMessage) { htAnswer(w, 200, exact(limit+1)) },
			func(w http.ResponseWriter, _ *http.Request, _ htMessage) {
				htStream(w, "id: 1\n"+htEvent(exact(limit+1)))
			},
			htEndless("application/json", `{"jsonrpc":"2.0","id":2,"result":"`, part),
			htEndless("application/json", `{"jsonrpc":"2.0","id":2,"result":[`, "[],"),
			htEndless("text/event-stream", `data: {"jsonrpc":"2.0","id":2,"result":"`, part),
			htEndless("text/event-stream", "id: 1\ndata: \n\n", "data: "+part+"\n"),
			htEndless("text/event-stream", "", "data\r"),
			htEndless("text/event-stream", ": ", part),
			htEndless("text/event-stream", "event: ", part),
			htEndless("text/event-stream", "id: ", part),
			htEndless("text/html", "", part),
		} {
			script.set(bad)
			before := len(s.all())
			err := p.fails(message)
			var long *BodyTooLongError
			assert.Assert(t, errors.As(err, &long), "%d: %v", i, err)
			assert.Equal(t, long.Limit, limit)
			assert.ErrorContains(t, err, s.URL)
			assert.ErrorContains(t, err, "limit of 100000 bytes")
			assert.Assert(t, !err.Lost(), "it would come again")
			assert.Equal(t, len(s.all()), before+1, "%d: it is not resumed either", i)
		}
	})
}

// TestHTTPOneConnection: calls one after the other take one connection, with answers of either kind, with refusals, and beside a GET stream.
func TestHTTPOneConnection(t *testing.T) {
	htEras(t, func(t *testing.T, request func(method, params string) string, open func(*HTTP, htScript) (*htPeer, *htServer)) {
		const refused = `{"jsonrpc":"2.0","id":2,"error":{"code":-32000,"message":"no"}}`
		answers := []func(w http.ResponseWriter){
			func(w http.ResponseWriter) { htAnswer(w, 200, htResult("2")) },
			func(w http.ResponseWriter) { htStream(w, htEvent(htResult("1")), htEvent(htResult("2"))) },
			func(w http.ResponseWriter) { htStream(w, htEvent(htResult("2")), ": the end\n\n") },
			func(w http.ResponseWriter) { htAnswer(w, 400, refused) },
			func(w http.ResponseWriter) { htAnswer(w, 503, strings.Repeat("no", 10000)) },
			func(w http.ResponseWriter) { w.WriteHeader(202) },
		}
		asked := 0
		p, s := open(&HTTP{}, func(w http.ResponseWriter, r *http.Request, m htMessage) {
			asked++
			answers[asked%len(answers)](w)
		})
		for range 10 {
			for range answers {
				_ = p.write(request("tools/call", `"name":"t",`))
			}
			for range answers {
				_ = p.write(`{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}`)
			}
		}
		assert.Equal(t, s.connections(), 1)
		for range 10 {
			p.expect(htResult("1"), htResult("2"), htResult("2"), refused, htResult("2"))
		}
	})
}

// TestHTTPCancel: a request that ends early takes its stream with it, which in the stateless era says so; in the handshake era a
// notification does.
func TestHTTPCancel(t *testing.T) {
	for _, revision := range bothEras() {
		for _, streaming := range []bool{false, true} {
			t.Run(fmt.Sprint(revision, streaming), func(t *testing.T) {
				checkLeaks(t)
				begun, ended := make(chan struct{}), make(chan struct{})
				s := htServe(t, htListening("s", func(w http.ResponseWriter, r *http.Request, m htMessage) {
					switch {
					case r.Method == http.MethodGet:
						htStream(w)
						<-r.Context().Done()
					case m.Method == "server/discover":
						htAnswer(w, 200, `{"jsonrpc":"2.0","id":1,"result":`+discoveryResult+`}`)
					case m.Method == "tools/call":
						if streaming {
							htStream(w, "id: 5\ndata: \n\n")
						}
						close(begun)
						<-r.Context().Done()
						close(ended)
					default:
						w.WriteHeader(http.StatusAccepted)
					}
				}))
				c, err := Connect(t.Context(), &HTTP{URL: s.URL}, &ClientOptions{Protocol: revision})
				assert.NilError(t, err)
				defer c.Close()
				ctx, cancel := context.WithCancel(t.Context())
				done := c.goCall(ctx, "t", nil)
				<-begun
				cancel()
				<-ended
				assert.ErrorIs(t, (<-done).err, context.Canceled)
				assert.NilError(t, c.Close())
				want := []string{"POST initialize", "GET", "POST notifications/initialized", "POST tools/call", "POST notifications/cancelled", "DELETE"}
				if revision == statelessRevision {
					want = []string{"POST server/discover", "POST tools/call"}
				}
				assert.DeepEqual(t, s.requests(), want)
				if revision != statelessRevision {
					assert.Assert(t, is.Contains(s.last(t, "POST").Body, `"requestId":2`))
				}
			})
		}
	}
}

// TestHTTPGetStream: what a server says by itself is read, and its requests are answered. The stream is there before the server
// hears that the client is ready.
func TestHTTPGetStream(t *testing.T) {
	checkLeaks(t)
	opened, answered := make(chan func(event string), 1), make(chan htMessage, 1)
	var listens bool // when the server is told that the client is ready
	s := htServe(t, func(w http.ResponseWriter, r *http.Request, m htMessage) {
		switch {
		case r.Method == http.MethodGet:
			more := make(chan string)
			opened <- func(event string) { more <- event }
			htStream(w)
			for {
				select {
				case event := <-more:
					htStream(w, event)
				case <-r.Context().Done():
					return
				}
			}
		case m.Method == "notifications/initialized":
			listens = len(opened) == 1
			w.WriteHeader(http.StatusAccepted)
		case m.Method == "":
			answered <- m
			w.WriteHeader(http.StatusAccepted)
		default:
			htSession("s", nil)(w, r, m)
		}
	})
	p := htOpen(t, &HTTP{URL: s.URL}).handshake()
	assert.Assert(t, listens)
	send := <-opened
	for _, message := range []string{
		`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`,
		`{"jsonrpc":"2.0","id":0,"method":"roots/list"}`,
		`{"jsonrpc":"2.0","id":1,"result":{}}`, // answers nothing
		`{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"no"}}`,
		`what is this?`,
	} {
		send(": ping\n\n" + htEvent(message))
		p.expect(message)
	}
	send(htEvent(`[{"jsonrpc":"2.0","id":"x","method":"ping"},{"jsonrpc":"2.0","id":"y","method":"ping"}]`))
	p.expect(`{"jsonrpc":"2.0","id":"x","method":"ping"}`, `{"jsonrpc":"2.0","id":"y","method":"ping"}`)
	p.say(`{"jsonrpc":"2.0","id":0,"result":{"roots":[]}}`)
	assert.Equal(t, string((<-answered).ID), "0")
}

// TestHTTPGetStreamTooLong: what is too long ends the stream, as it would come again; the session goes on.
func TestHTTPGetStreamTooLong(t *testing.T) {
	checkLeaks(t)
	ended := make(chan struct{})
	s := htServe(t, htListening("s", func(w http.ResponseWriter, r *http.Request, m htMessage) {
		if r.Method == http.MethodGet {
			htStream(w, "id: 1\n"+htEvent(htResult("9")))
			htEndless("", "data: ", strings.Repeat("x", 1000))(w, r, m)
			<-r.Context().Done()
			close(ended)
			return
		}
		htAnswer(w, 200, htResult("2"))
	}))
	p := htOpen(t, &HTTP{URL: s.URL, MaxMessage: 10_000}).handshake()
	p.expect(htResult("9"))
	<-ended
	p.say(htRequest(2, "tools/call", `"name":"t"`))
	p.expect(htResult("2"))
	p.close()
	assert.DeepEqual(t, s.requests(), []string{"POST initialize", "GET", "POST notifications/initialized", "POST tools/call", "DELETE"})
}

// TestHTTPNoGetStream: not to have one is a server's right, however it says so. It is not asked again.
func TestHTTPNoGetStream(t *testing.T) {
	checkLeaks(t)
	for _, answer := range []func(w http.ResponseWriter){
		func(w http.ResponseWriter) { w.WriteHeader(http.StatusMethodNotAllowed) },
		func(w http.ResponseWriter) {
			htAnswer(w, 400, `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"no"}}`)
		},
		func(w http.ResponseWriter) { w.WriteHeader(http.StatusNotFound) },
		func(w http.ResponseWriter) { htAnswer(w, 409, htResult("1")) },
		func(w http.ResponseWriter) { htAnswer(w, 200, htResult("1")) },
		func(w http.ResponseWriter) { w.WriteHeader(http.StatusNoContent) },
		func(w http.ResponseWriter) { http.Error(w, "no", http.StatusInternalServerError) },
		func(w http.ResponseWriter) { w.WriteHeader(http.StatusNotImplemented) },
	} {
		synctest.Test(t, func(t *testing.T) {
			s, client := htInMemory(htListening("s", func(w http.ResponseWriter, r *http.Request, m htMessage) {
				if r.Method == http.MethodGet {
					answer(w)
					return
				}
				htStream(w, htEvent(htResult("2")))
			}))
			p := htOpen(t, &HTTP{URL: "http://memory/", Client: client}).handshake()
			time.Sleep(time.Hour)
			p.say(htRequest(2, "tools/call", `"name":"t"`))
			p.expect(htResult("2"))
			p.close()
			assert.DeepEqual(t, s.requests(), []string{"POST initialize", "GET", "POST notifications/initialized", "POST tools/call", "DELETE"})
		})
	}
}

// TestHTTPExpired: what says that the session is over, and what does not.
func TestHTTPExpired(t *testing.T) {
	const code = `{"jsonrpc":"2.0","id":2,"error":{"code":%d,"message":%q}}`
	for _, c := range []struct {
		status   int
		kind     string
		body     string
		expired  bool
		answered bool
	}{
		{404, "text/plain", "", true, false},
		{404, "text/html", "<h1>what?</h1>", true, false},
		{404, "application/json", `{"jsonrpc":"2.0","error":{"code":-32001,"message":"Session not found"},"id":null}`, true, false},
		{404, "application/json", `{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"Session not found"}}`, true, false},
		{404, "application/json", fmt.Sprintf(code, -32601, "no such method"), false, true},
		{400, "application/json", `{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: No valid session ID provided"}}`, true, false},
		{400, "text/plain", "Session expired", true, false},
		{400, "application/json", fmt.Sprintf(code, -32602, "no such tool"), false, true},
		{400, "application/json", fmt.Sprintf(code, -32602, "no such tool: session_start"), false, true},
		{400, "text/plain", "what?", false, false},
		{500, "text/plain", "no session", false, false},
		{200, "application/json", fmt.Sprintf(code, -32000, "Session not found"), false, true},
		{403, "text/plain", "no session", false, false},
	} {
		for _, session := range []string{"", "s"} {
			checkLeaks(t)
			s := htServe(t, htSession(session, func(w http.ResponseWriter, _ *http.Request, _ htMessage) {
				w.Header().Set("Content-Type", c.kind)
				w.WriteHeader(c.status)
				io.WriteString(w, c.body)
			}))
			p := htOpen(t, &HTTP{URL: s.URL}).handshake()
			err := p.write(htRequest(2, "tools/call", `"name":"t"`))
			var refusal *HTTPError
			if errors.As(err, &refusal) {
				assert.Equal(t, refusal.SessionExpired(), c.expired && session != "", "%d %s", c.status, c.body)
				assert.Assert(t, !c.answered, c.body)
				assert.Assert(t, !refusal.Lost())
			} else {
				assert.NilError(t, err)
				assert.Assert(t, c.answered || session == "", c.body)
				<-p.in
			}
			p.close()
		}
	}
}

// TestHTTPClose: it ends all that is at work, whoever waits for what, and the session last.
func TestHTTPClose(t *testing.T) {
	checkLeaks(t)
	begun, ended := make(chan struct{}, 100), make(chan struct{}, 100)
	s := htServe(t, htListening("s", func(w http.ResponseWriter, r *http.Request, m htMessage) {
		if string(m.ID) != "1" { // some streams have begun
			htStream(w, ": hello\n\n", "id: 5\ndata: \n\n")
		}
		begun <- struct{}{}
		<-r.Context().Done()
		ended <- struct{}{}
	}))
	p := &HTTP{URL: s.URL}
	peer := htOpen(t, p)
	go func() {
		<-begun
	}()
	peer.handshake()
	const writes = 30
	failed := make(chan error, writes)
	for i := range writes {
		go func() { failed <- p.Write(context.Background(), []byte(htRequest(i%3, "tools/call", `"name":"t"`))) }()
	}
	for range writes {
		<-begun
	}
	peer.close()
	for range writes {
		assert.ErrorIs(t, <-failed, net.ErrClosed)
	}
	for range writes + 1 {
		<-ended
	}
	assert.ErrorIs(t, peer.write(initializeLine), net.ErrClosed)
	_, err := p.Read()
	assert.ErrorIs(t, err, net.ErrClosed)
	requests := s.requests()
	assert.Equal(t, requests[len(requests)-1], "DELETE")
}

// TestHTTPCloseWaits: when Close returns nothing is left, nor has the end of the session been sent before all else was over.
func TestHTTPCloseWaits(t *testing.T) {
	checkLeaks(t)
	synctest.Test(t, func(t *testing.T) {
		s, client := htInMemory(htListening("s", func(w http.ResponseWriter, r *http.Request, _ htMessage) {
			if r.Method == http.MethodGet {
				htStream(w)
			}
			<-r.Context().Done()
		}))
		var left atomic.Int32
		slow := htSlow{client.Transport, &left}
		p := htOpen(t, &HTTP{URL: "http://memory/", Client: &http.Client{Transport: slow}}).handshake()
		for range 10 {
			go func() { _ = p.write(htRequest(2, "tools/call", `"name":"t"`)) }()
		}
		synctest.Wait()
		assert.Equal(t, left.Load(), int32(10))
		begun := time.Now()
		p.close()
		assert.Equal(t, left.Load(), int32(0))
		assert.Equal(t, time.Since(begun), time.Second)
		assert.Equal(t, s.requests()[13], "DELETE")
	})
}

// htSlow takes a second to notice that nobody waits for an answer any more. It counts those that it is waiting for.
type htSlow struct {
	http.RoundTripper
	left *atomic.Int32
}

func (s htSlow) RoundTrip(r *http.Request) (*http.Response, error) {
	s.left.Add(1)
	defer s.left.Add(-1)
	response, err := s.RoundTripper.RoundTrip(r)
	if err != nil {
		time.Sleep(time.Second)
	}
	return response, err
}

// TestHTTPCloseConnections: Close keeps no connection for later, of whichever transport.
func TestHTTPCloseConnections(t *testing.T) {
	checkLeaks(t)
	closed := make(chan struct{}, 10)
	s := htUnstarted(t, func(w http.ResponseWriter, r *http.Request, m htMessage) {
		if r.Method == http.MethodGet {
			htStream(w, htEndpoint("/x"))
			<-r.Context().Done()
			return
		}
		htAnswer(w, 200, htResult(string(m.ID)))
	})
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateClosed {
			closed <- struct{}{}
		}
	}
	s.Start()
	open := func() *HTTP {
		h := &HTTP{URL: s.URL}
		h.once.Do(h.init)
		h.client.Transport.(*http.Transport).IdleConnTimeout = 0 // else it would do so, later
		return h
	}
	p := htOpen(t, open())
	p.say(htModern(2, "tools/list", ""))
	p.expect(htResult("2"))
	p.close()
	<-closed
	old, err := StartSSE(t.Context(), open())
	assert.NilError(t, err)
	p = htOpen(t, old)
	p.say(initializeLine)
	p.close()
	<-closed // the stream's
	<-closed // that of the POST
}

// TestHTTPCloseUnread: a message that nobody reads keeps nobody.
func TestHTTPCloseUnread(t *testing.T) {
	checkLeaks(t)
	synctest.Test(t, func(t *testing.T) {
		_, client := htInMemory(func(w http.ResponseWriter, _ *http.Request, _ htMessage) { htAnswer(w, 200, htResult("2")) })
		h := &HTTP{URL: "http://memory/", Client: client}
		ctx, cancel := context.WithCancelCause(t.Context())
		cancelled, closed := make(chan error, 1), make(chan error, 1)
		go func() { cancelled <- h.Write(ctx, []byte(htModern(2, "tools/list", ""))) }()
		go func() { closed <- h.Write(t.Context(), []byte(htModern(2, "tools/list", ""))) }()
		synctest.Wait()
		cancel(io.ErrNoProgress)
		assert.Equal(t, <-cancelled, io.ErrNoProgress)
		synctest.Wait()
		assert.Equal(t, len(closed), 0)
		assert.NilError(t, h.Close())
		assert.Equal(t, <-closed, net.ErrClosed)
	})
}

// TestHTTPCloseUnused: a transport that did nothing has nothing to end.
func TestHTTPCloseUnused(t *testing.T) {
	checkLeaks(t)
	h := &HTTP{URL: "http://127.0.0.1:1"}
	assert.NilError(t, h.Close())
	assert.ErrorIs(t, h.Write(t.Context(), []byte(initializeLine)), net.ErrClosed)
}

// TestHTTPServerGone: a server that is there no more is an error each time, for the session as well, and Close does not mind.
func TestHTTPServerGone(t *testing.T) {
	checkLeaks(t)
	s := htServe(t, htListening("s", func(w http.ResponseWriter, r *http.Request, _ htMessage) { htStream(w) }))
	p := htOpen(t, &HTTP{URL: s.URL}).handshake()
	s.CloseClientConnections()
	s.Close()
	for range 2 {
		err := p.fails(htRequest(2, "tools/call", `"name":"t"`))
		assert.Assert(t, err.Lost() && !err.SessionExpired())
	}
	p.close()
}

// TestHTTPSilentServer: one that takes the connection and says nothing keeps nobody beyond ctx.
func TestHTTPSilentServer(t *testing.T) {
	checkLeaks(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	assert.NilError(t, err)
	defer listener.Close()
	for _, scheme := range []string{"http", "https"} {
		p := htOpen(t, &HTTP{URL: scheme + "://" + listener.Addr().String()})
		ctx, cancel := context.WithCancelCause(t.Context())
		failed := make(chan error)
		go func() { failed <- p.Write(ctx, []byte(initializeLine)) }()
		c, err := listener.Accept()
		assert.NilError(t, err)
		_, err = c.Read(make([]byte, 1))
		assert.NilError(t, err)
		cancel(io.ErrNoProgress)
		assert.Equal(t, <-failed, io.ErrNoProgress)
		p.close()
		c.Close()
	}
}

// htTimes is how long after the beginning of a test requests came.
type htTimes struct {
	begun time.Time
	mu    sync.Mutex
	at    []time.Duration
}

// note takes the time, and says how many there were before.
func (c *htTimes) note() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = append(c.at, time.Since(c.begun))
	return len(c.at) - 1
}

func (c *htTimes) all() []time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.at)
}

// htSeconds are durations of so many seconds.
func htSeconds(seconds ...float64) (all []time.Duration) {
	for _, s := range seconds {
		all = append(all, time.Duration(s*float64(time.Second)))
	}
	return all
}

// TestHTTPResume: a stream of the handshake era that ends before its answer goes on with a GET, not before the time that the
// server asked for, from the last event. It goes on as long as there is progress.
func TestHTTPResume(t *testing.T) {
	for name, c := range map[string]struct {
		first  string // on the POST stream
		breaks bool
		lastID string
		after  time.Duration
	}{
		"ends":           {"id: 7\nretry: 5000\ndata: \n\n", false, "7", 5 * time.Second},
		"breaks off":     {"id: 7\nretry: 50\ndata: \n\n", true, "7", 50 * time.Millisecond},
		"no time":        {"id: 7\ndata: \n\n", false, "7", time.Second},
		"no time wanted": {"id: 7\nretry: 0\ndata: \n\n", false, "7", time.Second},
		"half an event":  {"id: 7\nretry: 5000\n\nid: 8\ndata: {}\n", true, "7", 5 * time.Second},
		"id of before":   {"id: 7\n\nretry: 10\n" + htEvent(htResult("9")), true, "7", 10 * time.Millisecond},
		"no number":      {"id: é/+=\nretry: 5s\n\n", true, "é/+=", time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			checkLeaks(t)
			synctest.Test(t, func(t *testing.T) {
				var times htTimes
				s, client := htInMemory(htSession("s", func(w http.ResponseWriter, r *http.Request, m htMessage) {
					switch n := times.note(); {
					case r.Method == http.MethodPost:
						htStream(w, c.first)
						if c.breaks {
							panic(http.ErrAbortHandler)
						}
					case n < 20:
						htStream(w, fmt.Sprintf("id: a%d\nretry: 1000\ndata: \n\n", n))
					default:
						htStream(w, htEvent(htResult("2")))
						<-r.Context().Done() // a resumed stream may never end
					}
				}))
				p := htOpen(t, &HTTP{URL: "http://memory/", Client: client}).handshake()
				times.begun = time.Now()
				p.say(htRequest(2, "tools/call", `"name":"t"`))
				if strings.Contains(c.first, `"id":9`) {
					p.expect(htResult("9"))
				}
				p.expect(htResult("2"))
				want := []time.Duration{0}
				for i := range 20 {
					want = append(want, c.after+time.Duration(i)*time.Second)
				}
				assert.DeepEqual(t, times.all(), want)
				var ids []string
				for _, r := range s.all()[4:] {
					assert.Equal(t, r.Method, "GET")
					own := htOwn(r.Header)
					ids = append(ids, own["Last-Event-Id"])
					delete(own, "Last-Event-Id")
					assert.DeepEqual(t, own, map[string]string{"Accept": "text/event-stream", "Mcp-Session-Id": "s", "Mcp-Protocol-Version": "2025-11-25"})
				}
				assert.DeepEqual(t, ids[:3], []string{c.lastID, "a1", "a2"})
			})
		})
	}
}

// TestHTTPResumeFails: a stream that cannot be resumed is tried a few times, later each time, or not at all if that is what the
// server says, or if there is nothing to resume it from.
func TestHTTPResumeFails(t *testing.T) {
	all := htSeconds(0, 1, 3, 7)
	for name, c := range map[string]struct {
		first string
		get   func(w http.ResponseWriter)
		at    []time.Duration
		want  string
	}{
		"gone":       {"", func(w http.ResponseWriter) { panic(http.ErrAbortHandler) }, all, "unexpected EOF"},
		"500":        {"", func(w http.ResponseWriter) { http.Error(w, "what?", 500) }, all, "what?"},
		"502":        {"", func(w http.ResponseWriter) { http.Error(w, "what?", 502) }, all, "what?"},
		"too soon":   {"", func(w http.ResponseWriter) { http.Error(w, "what?", 409) }, all, "what?"},
		"empty":      {"", func(w http.ResponseWriter) { htStream(w) }, all, "unexpected EOF"},
		"breaks":     {"", func(w http.ResponseWriter) { htStream(w); panic(http.ErrAbortHandler) }, all, "unexpected EOF"},
		"same event": {"", func(w http.ResponseWriter) { htStream(w, "id: 7\ndata: \n\n") }, all, "unexpected EOF"},
		"JSON":       {"", func(w http.ResponseWriter) { htAnswer(w, 200, htResult("2")) }, all, "application/json"},
		"no stream": {"", func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "text/event-stream")
			w.WriteHeader(500)
			htStream(w, htEvent(htResult("2")))
		}, all, "500 Internal"},
		"slower":      {"retry: 4000\n", func(w http.ResponseWriter) { http.Error(w, "what?", 500) }, htSeconds(0, 4, 12, 28), "what?"},
		"much slower": {"retry: 120000\n", func(w http.ResponseWriter) { http.Error(w, "what?", 500) }, htSeconds(0, 120, 240, 360), "what?"},
		"400":         {"", func(w http.ResponseWriter) { http.Error(w, "what?", 400) }, all[:2], "does not resume it: what?"},
		"404":         {"", func(w http.ResponseWriter) { http.Error(w, "what?", 404) }, all[:2], "does not resume it: what?"},
		"405":         {"", func(w http.ResponseWriter) { http.Error(w, "what?", 405) }, all[:2], "does not resume it: what?"},
		"no id":       {"id\n", func(w http.ResponseWriter) { t.Error("resumed") }, all[:1], "unexpected EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			checkLeaks(t)
			synctest.Test(t, func(t *testing.T) {
				var times htTimes
				_, client := htInMemory(htSession("s", func(w http.ResponseWriter, r *http.Request, m htMessage) {
					times.note()
					if r.Method == http.MethodPost {
						htStream(w, "id: 7\n"+c.first+"data: \n\n")
						return
					}
					c.get(w)
				}))
				p := htOpen(t, &HTTP{URL: "http://memory/", Client: client}).handshake()
				times.begun = time.Now()
				err := p.fails(htRequest(2, "tools/call", `"name":"t"`))
				assert.ErrorContains(t, err, c.want)
				assert.Assert(t, !err.SessionExpired(), "the call may have begun")
				assert.DeepEqual(t, times.all(), c.at)
			})
		})
	}
}

// TestHTTPResumeEnds: neither ctx nor Close waits for the time before a stream is resumed.
func TestHTTPResumeEnds(t *testing.T) {
	checkLeaks(t)
	synctest.Test(t, func(t *testing.T) {
		_, client := htInMemory(htSession("s", func(w http.ResponseWriter, _ *http.Request, _ htMessage) {
			htStream(w, "id: 7\nretry: 3600000\ndata: \n\n")
		}))
		p := htOpen(t, &HTTP{URL: "http://memory/", Client: client}).handshake()
		begun := time.Now()
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, io.ErrNoProgress)
		defer cancel()
		assert.Equal(t, p.Write(ctx, []byte(htRequest(2, "tools/call", `"name":"t"`))), io.ErrNoProgress)
		assert.Equal(t, time.Since(begun), time.Second)
		failed := make(chan error, 1)
		go func() { failed <- p.write(htRequest(2, "tools/call", `"name":"t"`)) }()
		synctest.Wait()
		p.close()
		assert.Equal(t, <-failed, net.ErrClosed)
		assert.Equal(t, time.Since(begun), time.Second)
	})
}

// TestHTTPStatelessBroken: streams of the stateless era are not resumed, whatever is in them.
func TestHTTPStatelessBroken(t *testing.T) {
	checkLeaks(t)
	synctest.Test(t, func(t *testing.T) {
		s, client := htInMemory(func(w http.ResponseWriter, _ *http.Request, m htMessage) {
			htStream(w, "id: 7\nretry: 10\ndata: \n\n", htEvent(htResult("1")))
			panic(http.ErrAbortHandler)
		})
		p := htOpen(t, &HTTP{URL: "http://memory/", Client: client})
		begun := time.Now()
		err := p.fails(htModern(2, "tools/call", `"name":"t",`))
		assert.Assert(t, err.Lost() && !err.SessionExpired())
		assert.ErrorIs(t, err, io.ErrUnexpectedEOF)
		p.expect(htResult("1"))
		assert.Equal(t, time.Since(begun), time.Duration(0))
		assert.DeepEqual(t, s.requests(), []string{"POST tools/call"})
	})
}

// TestHTTPListenTime: a GET stream that is not there soon is not waited for; it is used when it comes.
func TestHTTPListenTime(t *testing.T) {
	checkLeaks(t)
	synctest.Test(t, func(t *testing.T) {
		const changed = `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`
		s, client := htInMemory(htListening("s", func(w http.ResponseWriter, r *http.Request, _ htMessage) {
			if r.Method == http.MethodGet {
				time.Sleep(time.Minute)
				htStream(w, htEvent(changed))
				<-r.Context().Done()
			}
			htAnswer(w, 200, htResult("2"))
		}))
		p := htOpen(t, &HTTP{URL: "http://memory/", Client: client})
		begun := time.Now()
		p.handshake()
		assert.Equal(t, time.Since(begun), openTime)
		p.say(htRequest(2, "tools/call", `"name":"t"`))
		p.expect(htResult("2"))
		assert.Equal(t, time.Since(begun), openTime)
		p.expect(changed)
		assert.Equal(t, time.Since(begun), time.Minute)
		p.close()
		assert.DeepEqual(t, s.requests(), []string{"POST initialize", "GET", "POST notifications/initialized", "POST tools/call", "DELETE"})
	})
}

// TestHTTPListenCancelled: nor beyond ctx.
func TestHTTPListenCancelled(t *testing.T) {
	checkLeaks(t)
	synctest.Test(t, func(t *testing.T) {
		_, client := htInMemory(htListening("s", func(w http.ResponseWriter, r *http.Request, _ htMessage) { <-r.Context().Done() }))
		p := htOpen(t, &HTTP{URL: "http://memory/", Client: client})
		p.say(initializeLine)
		<-p.in
		begun := time.Now()
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, io.ErrNoProgress)
		defer cancel()
		assert.Equal(t, p.Write(ctx, []byte(initializedLine)), io.ErrNoProgress)
		assert.Equal(t, time.Since(begun), time.Second)
	})
}

// TestHTTPListenAgain: a GET stream that breaks off is opened again and again, later each time, unless it went well for a while;
// only the server's own word ends that.
func TestHTTPListenAgain(t *testing.T) {
	checkLeaks(t)
	synctest.Test(t, func(t *testing.T) {
		var times htTimes
		s, client := htInMemory(htListening("s", func(w http.ResponseWriter, r *http.Request, _ htMessage) {
			switch n := times.note(); {
			case n == 1 || n == 4:
				panic(http.ErrAbortHandler)
			case n == 2 || n == 5 || n == 10 || n == 11:
				http.Error(w, "what?", http.StatusServiceUnavailable)
			case n == 3:
				http.Error(w, "too soon", http.StatusConflict)
			case n == 8:
				htStream(w)
				time.Sleep(time.Hour)
			case n == 9:
				htStream(w, "id: 5\nretry: 30000\ndata: \n\n")
			case n == 12:
				htStream(w, htEvent(htResult("9")))
				panic(http.ErrAbortHandler)
			case n == 13:
				http.Error(w, "no more", http.StatusNotFound)
			default: // the first one: else the server has none
				htStream(w)
			}
		}))
		times.begun = time.Now()
		p := htOpen(t, &HTTP{URL: "http://memory/", Client: client}).handshake()
		p.expect(htResult("9"))
		time.Sleep(24 * time.Hour)
		assert.DeepEqual(t, times.all(), htSeconds(0, 1, 3, 7, 15, 31, 63, 123, 183, 183+3600+1, 3814, 3874, 3934, 3994))
		n := 0
		for _, r := range s.all() {
			if r.Method == http.MethodGet {
				id := ""
				if n > 9 {
					id = "5"
				}
				assert.Equal(t, r.Header.Get("Last-Event-ID"), id, n)
				n++
			}
		}
	})
}

// TestHTTPListenLost: a GET stream that could not be reached is tried again; a server that refuses it has none.
func TestHTTPListenLost(t *testing.T) {
	checkLeaks(t)
	for _, lost := range []func(w http.ResponseWriter){
		func(w http.ResponseWriter) { http.Error(w, "not now", http.StatusServiceUnavailable) },
		func(w http.ResponseWriter) { panic(http.ErrAbortHandler) },
	} {
		synctest.Test(t, func(t *testing.T) {
			var times htTimes
			_, client := htInMemory(htListening("s", func(w http.ResponseWriter, r *http.Request, _ htMessage) {
				if times.note() < 3 {
					lost(w)
					return
				}
				htStream(w, htEvent(htResult("9")))
				<-r.Context().Done()
			}))
			times.begun = time.Now()
			p := htOpen(t, &HTTP{URL: "http://memory/", Client: client}).handshake()
			p.expect(htResult("9"))
			assert.DeepEqual(t, times.all(), htSeconds(0, 1, 3, 7))
		})
	}
}

// TestHTTPAcceptTime: a message that has no answer is not waited for as long as one that has.
func TestHTTPAcceptTime(t *testing.T) {
	checkLeaks(t)
	synctest.Test(t, func(t *testing.T) {
		_, client := htInMemory(htSession("s", func(w http.ResponseWriter, r *http.Request, _ htMessage) { <-r.Context().Done() }))
		p := htOpen(t, &HTTP{URL: "http://memory/", Client: client}).handshake()
		for _, message := range []string{`{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}`, htResult(`"a"`)} {
			begun := time.Now()
			err := p.fails(message)
			assert.ErrorIs(t, err, context.DeadlineExceeded)
			assert.Equal(t, time.Since(begun), acceptTime)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		assert.Equal(t, p.Write(ctx, []byte(htRequest(2, "tools/call", `"name":"t"`))), context.DeadlineExceeded)
	})
}

// TestHTTPTail: a stream that stays open behind the answer is not followed; it is closed after a moment, in which its end may come.
func TestHTTPTail(t *testing.T) {
	checkLeaks(t)
	synctest.Test(t, func(t *testing.T) {
		ended := 0
		_, client := htInMemory(func(w http.ResponseWriter, r *http.Request, m htMessage) {
			htStream(w, htEvent(htResult(string(m.ID))))
			select {
			case <-time.After(time.Duration(m.ID[0]-'0') * tailTime / 2):
				htStream(w, ": the end\n\n")
			case <-r.Context().Done():
				ended++
			}
		})
		p := htOpen(t, &HTTP{URL: "http://memory/", Client: client})
		for id := range 4 {
			begun := time.Now()
			p.say(htModern(id, "tools/call", `"name":"t",`))
			p.expect(htResult(fmt.Sprint(id)))
			assert.Equal(t, time.Since(begun), min(time.Duration(id)*tailTime/2, tailTime))
		}
		p.close()
		synctest.Wait()
		assert.Equal(t, ended, 1)
	})
}

// TestHTTPInvalidAnswer: a call ends with an answer that only looks like one, and does not wait for its time to be over.
func TestHTTPInvalidAnswer(t *testing.T) {
	for _, answer := range []string{
		`{"jsonrpc":"2.0","id":2,"result":{bad}}`,
		`{"jsonrpc":"2.0","id":2,"result":{"a":NaN}}`,
		`{"jsonrpc":"2.0","id":2,"result":{}}` + htResult("2"),
		`{"jsonrpc":"2.0","id":2,"result":{"a":"` + "\x00" + `"}}`,
		`{"jsonrpc":"2.0","id":2,"result":[}}`,
		`{"jsonrpc":"1.0","id":2,"result":{}}`,
		`{"jsonrpc":"2.0","id":2,"result":{"a":NaN}}` + "\n",
		`{"result":{"a":NaN},"jsonrpc":"2.0","id":2}`,
		`{"id":2,"result":{}}`,
		`{"jsonrpc":"2.0","id":2}`,
		`{"jsonrpc":"2.0","id":2,"error":"no"}`,
		`{"jsonrpc":"2.0","id":2,"error":{"code":"no"}}`,
		`{"jsonrpc":"2.0","id":2,"result":{},"error":{"code":1,"message":"no"}}`,
		`{"id":2,"jsonrpc":"2.0","result":{},"error":{"code":1,"message":"no"}}`,
		`{"jsonrpc":"2.0","id":2.0,"result":{"content":[]}}`,
		`{}`, `[]`, `[[]]`, `[{}]`, `null`, `2`, `}`, `,`,
	} {
		for _, streaming := range []bool{false, true} {
			checkLeaks(t)
			synctest.Test(t, func(t *testing.T) {
				_, client := htInMemory(htSession("s", func(w http.ResponseWriter, _ *http.Request, m htMessage) {
					if streaming {
						htStream(w, htEvent(answer))
						return
					}
					htAnswer(w, 200, answer)
				}))
				c, err := Connect(t.Context(), &HTTP{URL: "http://memory/", Client: client}, &ClientOptions{Protocol: "2025-11-25"})
				assert.NilError(t, err)
				begun := time.Now()
				_, err = c.CallTool(t.Context(), "t", nil, nil)
				assert.Check(t, err != nil || strings.Contains(answer, "content"), answer)
				assert.Check(t, time.Since(begun) == 0, "%s: %v after %s", answer, err, time.Since(begun))
				assert.Check(t, !errors.Is(err, ErrClosed), "%v", err)
				assert.NilError(t, c.Close())
			})
		}
	}
}

// TestHTTP2: the same over one connection of HTTP/2.
func TestHTTP2(t *testing.T) {
	checkLeaks(t)
	begun, ended := make(chan struct{}, 10), make(chan struct{}, 10)
	s := htUnstarted(t, htListening("s", func(w http.ResponseWriter, r *http.Request, m htMessage) {
		switch {
		case r.ProtoMajor != 2:
			w.WriteHeader(http.StatusHTTPVersionNotSupported)
		case r.Method == http.MethodGet:
			htStream(w, htEvent(htResult("9")))
			<-r.Context().Done()
			ended <- struct{}{}
		case m.Method == "tools/call":
			htStream(w, htEvent(htResult(string(m.ID))))
		default:
			htStream(w, ": wait\n\n")
			begun <- struct{}{}
			<-r.Context().Done()
			ended <- struct{}{}
		}
	}))
	s.EnableHTTP2 = true
	s.StartTLS()
	client := s.Client()
	defer client.CloseIdleConnections()
	p := htOpen(t, &HTTP{URL: s.URL, Client: client}).handshake()
	p.expect(htResult("9"))
	for range 10 {
		p.say(htRequest(2, "tools/call", `"name":"t"`))
		p.expect(htResult("2"))
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	failed := make(chan error, 2)
	go func() { failed <- p.Write(ctx, []byte(htRequest(3, "prompts/list", ""))) }()
	<-begun
	cancel(io.ErrNoProgress)
	assert.Equal(t, <-failed, io.ErrNoProgress)
	<-ended
	go func() { failed <- p.write(htRequest(3, "prompts/list", "")) }()
	<-begun
	p.close()
	assert.ErrorIs(t, <-failed, net.ErrClosed)
	<-ended
	<-ended
	assert.Equal(t, s.connections(), 1)
	assert.Equal(t, s.last(t, "DELETE").Header.Get("Mcp-Session-Id"), "s")
}

// TestHTTPAtOnce: many messages at once, each with its own answer.
func TestHTTPAtOnce(t *testing.T) {
	htEras(t, func(t *testing.T, _ func(method, params string) string, open func(*HTTP, htScript) (*htPeer, *htServer)) {
		client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 10}}
		defer client.CloseIdleConnections()
		h := &HTTP{Client: client, Header: http.Header{"X-Key": {"k"}}}
		p, _ := open(h, func(w http.ResponseWriter, r *http.Request, m htMessage) {
			if len(m.ID)%2 == 0 {
				htStream(w, htEvent(`{"jsonrpc":"2.0","method":"`+string(m.ID)+`"}`), htEvent(htResult(string(m.ID))))
				return
			}
			htAnswer(w, 200, htResult(string(m.ID)))
		})
		const writes = 100
		var all sync.WaitGroup
		want := []string{}
		for id := range writes {
			all.Go(func() {
				message := htRequest(id, "tools/call", `"name":"t"`)
				if strings.Contains(t.Name(), "/stateless") {
					message = htModern(id, "tools/call", `"name":"t",`)
				}
				assert.Check(t, p.write(message))
			})
			want = append(want, htResult(fmt.Sprint(id)))
			if id >= 10 {
				want = append(want, fmt.Sprintf(`{"jsonrpc":"2.0","method":"%d"}`, id))
			}
		}
		got := []string{}
		for range want {
			got = append(got, <-p.in)
		}
		all.Wait()
		slices.Sort(got)
		slices.Sort(want)
		assert.DeepEqual(t, got, want)
		assert.Assert(t, client.CheckRedirect == nil, "a Client that was given is not changed")
		p.close()
	})
}

// TestHTTPEarlyAnswer: a server that refuses a message before it has read it keeps nobody, whether its answer comes through or not.
func TestHTTPEarlyAnswer(t *testing.T) {
	checkLeaks(t)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "close")
		htAnswer(w, http.StatusRequestEntityTooLarge, `{"jsonrpc":"2.0","error":{"code":-32000,"message":"too large"}}`)
	}))
	defer s.Close()
	h := &HTTP{URL: s.URL}
	p := htOpen(t, h)
	defer p.close()
	message := htModern(2, "tools/call", `"name":"t","arguments":{"a":"`+strings.Repeat("x", 8<<20)+`"},`)
	if err := p.write(message); err != nil {
		var refusal *HTTPError
		assert.Assert(t, errors.As(err, &refusal), "%v", err)
		assert.Assert(t, refusal.Lost())
		return
	}
	p.expect(`{"jsonrpc":"2.0","id":2,"error":{"code":-32000,"message":"too large"}}`)
}

// TestHTTPTimes: a server that never answers is waited for as long as the Client says, and its end of session for a moment.
func TestHTTPTimes(t *testing.T) {
	for _, revision := range bothEras() {
		t.Run(revision, func(t *testing.T) {
			checkLeaks(t)
			synctest.Test(t, func(t *testing.T) {
				var silent atomic.Bool
				_, client := htInMemory(func(w http.ResponseWriter, r *http.Request, m htMessage) {
					switch {
					case silent.Load():
						<-r.Context().Done()
					case m.Method == "server/discover":
						htAnswer(w, 200, `{"jsonrpc":"2.0","id":1,"result":`+discoveryResult+`}`)
					default:
						htSession("s", nil)(w, r, m)
					}
				})
				open := func() (*Client, error) {
					return Connect(t.Context(), &HTTP{URL: "http://memory/", Client: client}, &ClientOptions{Protocol: revision, Timeout: time.Minute})
				}
				c, err := open()
				assert.NilError(t, err)
				silent.Store(true)
				begun := time.Now()
				_, err = c.CallTool(t.Context(), "t", nil, nil)
				var late *TimeoutError
				assert.Assert(t, errors.As(err, &late), "%v", err)
				assert.Equal(t, time.Since(begun), time.Minute)
				assert.NilError(t, c.Close())
				grace := time.Duration(0)
				if revision != statelessRevision { // for the DELETE, and before it for notifications/cancelled
					grace = deleteTime + noticeGrace
				}
				assert.Equal(t, time.Since(begun), time.Minute+grace)
				begun = time.Now()
				_, err = open()
				assert.Assert(t, errors.As(err, &late), "%v", err)
				assert.Assert(t, time.Since(begun) <= time.Minute+noticeGrace, "%s", time.Since(begun))
			})
		})
	}
}

// FuzzHeaderValue: what is encoded is a header's value, and comes back.
func FuzzHeaderValue(f *testing.F) {
	for _, text := range []string{"", "us-west1", "Hello, 世界", " padded ", "line1\nline2", "=?base64?literal?=", "=?base64?=", "a\tb", "\x7f", "\xff"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		value := HeaderValue(text)
		for _, c := range []byte(value) {
			assert.Assert(t, ' ' <= c && c <= '~', "%q", value)
		}
		assert.Equal(t, strings.TrimSpace(value), value)
		if encoded, ok := strings.CutPrefix(value, "=?base64?"); ok && strings.HasSuffix(encoded, "?=") {
			decoded, err := base64.StdEncoding.DecodeString(strings.TrimSuffix(encoded, "?="))
			assert.NilError(t, err)
			value = string(decoded)
		}
		assert.Equal(t, value, text)
	})
}
