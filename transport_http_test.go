package main

import (
	"bufio"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"slices"
	"strconv"
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
}

// htSeen is one request that a scripted server got.
type htSeen struct {
	At           time.Time
	Method, Path string
	RPC          string // the method of the message
	Header       http.Header
	Body         string
}

// htScript answers one request.
type htScript func(w http.ResponseWriter, r *http.Request, m htMessage)

// How the body of a reply may end.
const (
	htBreak   = "\x00break"   // the connection breaks
	htHold    = "\x00hold"    // the stream stays open until the client leaves
	htForever = "\x00forever" // what follows is sent again and again until the client leaves
)

// htGone is the reply of a server that closes the connection.
const htGone = "gone"

// htReply answers with a text in the manner of HTTP: a status, 200 if absent, and a content type, header lines, an
// empty line, and the body, in which $id is the id of the request. The header Pause is the time before all that.
func htReply(reply string) htScript {
	head, body, _ := strings.Cut(reply, "\n\n")
	lines := strings.Split(head, "\n")
	number, kind, _ := strings.Cut(lines[0], " ")
	status, err := strconv.Atoi(number)
	if err != nil {
		status, kind = 200, lines[0]
	}
	short := map[string]string{"json": "application/json", "sse": "text/event-stream"}
	kind = cmp.Or(short[kind], kind)
	text, end, _ := strings.Cut(body, "\x00")
	return func(w http.ResponseWriter, r *http.Request, m htMessage) {
		if reply == htGone {
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("Content-Type", kind)
		for _, line := range lines[1:] {
			name, value, _ := strings.Cut(line, ": ")
			if pause, err := time.ParseDuration(value); err == nil && name == "Pause" {
				htWait(r, pause)
				continue
			}
			w.Header().Set(name, value)
		}
		w.WriteHeader(status)
		_, err := io.WriteString(w, strings.ReplaceAll(text, "$id", string(m.ID)))
		if end != "" || kind == short["sse"] {
			w.(http.Flusher).Flush()
		}
		part, forever := strings.CutPrefix(end, "forever")
		switch {
		case end == "break":
			panic(http.ErrAbortHandler)
		case end == "hold":
			<-r.Context().Done()
		case end == "hour":
			htWait(r, time.Hour)
		}
		for forever && err == nil {
			_, err = io.WriteString(w, part)
		}
	}
}

// htWait waits for some time, or until the client leaves.
func htWait(r *http.Request, d time.Duration) {
	select {
	case <-time.After(d):
	case <-r.Context().Done():
	}
}

// htReplies answers one request after the other, and all that follow with the last reply.
func htReplies(replies ...string) htScript {
	var mu sync.Mutex
	return func(w http.ResponseWriter, r *http.Request, m htMessage) {
		mu.Lock()
		reply := replies[0]
		replies = replies[min(1, len(replies)-1):]
		mu.Unlock()
		htReply(reply)(w, r, m)
	}
}

// htResult is the answer {"id":id,"result":{}}.
func htResult(id string) string { return `{"jsonrpc":"2.0","id":` + id + `,"result":{}}` }

// htEvent is what an event of that data is on the wire.
func htEvent(data string) string { return "data: " + data + "\n\n" }

// htJSON and htSSE are replies with status 200; htOK answers any request.
func htJSON(body string) string        { return "json\n\n" + body }
func htSSE(events ...string) string    { return "sse\n\n" + strings.Join(events, "") }
func htOK() string                     { return htJSON(htResult("$id")) }
func htAccepted(w http.ResponseWriter) { w.WriteHeader(http.StatusAccepted) }

// htServer is a scripted server. It notes what it is asked.
type htServer struct {
	*httptest.Server // nil in memory

	mu     sync.Mutex // guards the following
	script htScript
	seen   []htSeen
	conns  int // accepted so far
}

// set exchanges the script.
func (s *htServer) set(script htScript) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.script = script
}

func (s *htServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	var m htMessage
	_ = json.Unmarshal(body, &m)
	s.mu.Lock()
	s.seen = append(s.seen, htSeen{time.Now(), r.Method, r.URL.Path, m.Method, r.Header.Clone(), string(body)})
	script := s.script
	s.mu.Unlock()
	script(w, r, m)
}

func (s *htServer) all() []htSeen {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.seen)
}

// requests are those so far, as "POST tools/call" or "GET".
func (s *htServer) requests() (all []string) {
	for _, r := range s.all() {
		all = append(all, strings.TrimSpace(r.Method+" "+r.RPC))
	}
	return all
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

// TestHTTPAnsweredElsewhere: an answer that comes on the GET stream ends its call, although the POST still hangs,
// before its headers or after them; so does one that comes on the stream of another POST.
func TestHTTPAnsweredElsewhere(t *testing.T) {
	checkLeaks(t)
	for _, hangs := range []string{"json\nPause: 48h\n\n", htSSE(": wait\n\n") + htHold} {
		for _, other := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				asked := make(chan string, 1)
				answer := func(w http.ResponseWriter, r *http.Request, m htMessage) {
					id := <-asked
					htReply(htSSE(htEvent(`{"jsonrpc":"2.0","id":`+id+`,"result":{"content":[]}}`))+htHold)(w, r, m)
				}
				get := answer
				if other {
					get = nil
				}
				_, client := htInMemory(htSession("s", get, func(w http.ResponseWriter, r *http.Request, m htMessage) {
					if m.Method == "ping" {
						answer(w, r, m)
						return
					}
					asked <- string(m.ID)
					htReply(hangs)(w, r, m)
				}))
				c, err := Connect(t.Context(), HTTP{URL: "http://memory/", Client: client}.Start,
					&ClientOptions{Protocol: "2025-11-25"})
				assert.NilError(t, err)
				defer c.Close()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if other {
					go c.Ping(ctx)
				}
				begun := time.Now()
				_, err = c.CallTool(t.Context(), "t", nil, nil)
				assert.NilError(t, err)
				assert.Check(t, time.Since(begun) < time.Second+openTime, "%s", time.Since(begun))
			})
		}
	}
}

// TestHTTPLists: a list is kept while the GET stream is open that was when it was made. A stream that is not opened
// again is reported; if the session is over, another is begun.
func TestHTTPLists(t *testing.T) {
	checkLeaks(t)
	const list = "POST tools/list"
	const unknown = `400 json` + "\n\n" + `{"jsonrpc":"2.0","error":{"code":-32000,"message":"No valid session ID"}}`
	for refusal, want := range map[string][]string{
		htSSE(": hello\n\n") + htHold: {"GET", list},
		"405":                         {"GET", list, list},
		unknown:                       {"GET", "POST initialize", "GET", "POST notifications/initialized", list},
		"404":                         {"GET", "POST initialize", "GET", "POST notifications/initialized", list},
		htSSE("data: <forever>") + htForever + strings.Repeat("x", 1000): {"GET", list, list},
	} {
		synctest.Test(t, func(t *testing.T) {
			broke := make(chan struct{})
			streams := 0
			open := func(w http.ResponseWriter, r *http.Request, m htMessage) {
				streams++
				reply := htSSE(": hello\n\n") + htHold
				if streams == 2 {
					reply = refusal
				}
				if streams == 1 {
					ctx, cancel := context.WithCancel(r.Context())
					r = r.WithContext(ctx)
					go func() { <-broke; cancel() }()
				}
				htReply(reply)(w, r, m)
			}
			initialize := strings.Replace(htJSON(`{"jsonrpc":"2.0","id":$id,"result":`+initializeResult("2025-11-25")+`}`),
				`"tools":{}`, `"tools":{"listChanged":true}`, 1)
			initialize = strings.Replace(initialize, "json\n", "json\nMcp-Session-Id: s\n", 1)
			rest := htSession("s", open, htReply(htJSON(`{"jsonrpc":"2.0","id":$id,"result":{"tools":[]}}`)))
			s, client := htInMemory(func(w http.ResponseWriter, r *http.Request, m htMessage) {
				if m.Method == "initialize" {
					htReply(initialize)(w, r, m)
					return
				}
				rest(w, r, m)
			})
			warnings := make(chan string, 10)
			c, err := Connect(t.Context(), HTTP{URL: "http://memory/", Client: client, MaxMessage: 10_000}.Start,
				&ClientOptions{Protocol: "2025-11-25", Warn: func(text string) { warnings <- text }})
			assert.NilError(t, err)
			defer c.Close()
			lists := func() {
				for range 2 {
					_, err := c.ListTools(t.Context())
					assert.NilError(t, err)
				}
			}
			lists()
			begun := len(s.all())
			assert.DeepEqual(t, s.requests(), []string{"POST initialize", "GET", "POST notifications/initialized", list})
			close(broke)
			synctest.Wait()
			// The stream may be opened again in a second, but is not open now.
			lists()
			assert.DeepEqual(t, s.requests()[begun:], []string{list, list})
			time.Sleep(time.Minute)
			lists()
			assert.DeepEqual(t, s.requests()[begun+2:], want)
			warning := ""
			if slices.Contains(want, "POST initialize") {
				warning = "its session had expired, and session 2 was begun"
			} else if len(want) == 3 {
				warning = "the server no longer tells of changes: http://memory/"
			}
			if warning != "" {
				assert.Assert(t, strings.HasPrefix(<-warnings, warning))
			}
			assert.Equal(t, len(warnings), 0)
		})
	}
}

// htServe starts a server on loopback.
func htServe(t *testing.T, script htScript) *htServer {
	s := htUnstarted(t, script)
	s.Start()
	return s
}

// htInMemory is a server in memory, and a client of it, for tests in which time passes only when all wait.
func htInMemory(script htScript) (*htServer, *http.Client) {
	s := &htServer{script: script}
	return s, &http.Client{Transport: htMemory{s}}
}

// htMemory brings requests to a handler in this process.
type htMemory struct{ handler http.Handler }

func (m htMemory) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(r.Context())
	in, out := io.Pipe()
	w := &htMemoryWriter{header: make(http.Header), out: out, begun: make(chan struct{})}
	stop := context.AfterFunc(ctx, func() { out.CloseWithError(context.Cause(ctx)) })
	go func() {
		defer stop()
		defer func() {
			if recover() != nil {
				// It was http.ErrAbortHandler: the connection breaks.
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
		body := htMemoryBody{in, cancel}
		return &http.Response{StatusCode: w.status, Header: w.sent, ContentLength: -1, Request: r, Body: body}, nil
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

// htOpen starts a transport.
func htOpen(t *testing.T, h HTTP) *htPeer {
	transport, err := h.Start(t.Context())
	assert.NilError(t, err)
	return htRun(t, transport)
}

// htRun reads all that a transport returns. What the test does not expect, it must not get.
func htRun(t *testing.T, transport Transport) *htPeer {
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
func (p *htPeer) write(message string) error { return p.Write(p.t.Context(), outgoing(message)) }

// say sends a message that must arrive, and waits for what is read then.
func (p *htPeer) say(message string, want ...string) {
	p.t.Helper()
	assert.NilError(p.t, p.write(message), "%.1000s", message)
	p.expect(want...)
}

// expect waits for messages.
func (p *htPeer) expect(messages ...string) {
	p.t.Helper()
	for _, want := range messages {
		got, ok := <-p.in
		assert.Assert(p.t, ok, "the end, not %.1000s", want)
		assert.Assert(p.t, got == want, "got\n%.1000s\nnot\n%.1000s", got, want)
	}
}

// fails is the error of a message that is refused.
func (p *htPeer) fails(message string) *HTTPError {
	p.t.Helper()
	err := p.write(message)
	var refusal *HTTPError
	assert.Assert(p.t, errors.As(err, &refusal), "%v", err)
	assert.Check(p.t, !errors.Is(err, io.EOF), "for a Transport that is its end")
	return refusal
}

// fail sends a message in the background, whose error is returned.
func (p *htPeer) fail(ctx context.Context, message string) <-chan error {
	failed := make(chan error, 1)
	go func() { failed <- p.Write(ctx, outgoing(message)) }()
	return failed
}

// handshake begins a session.
func (p *htPeer) handshake() *htPeer {
	p.t.Helper()
	p.say(initializeLine, `{"jsonrpc":"2.0","id":1,"result":`+initializeResult("2025-11-25")+`}`)
	p.say(initializedLine)
	return p
}

// htRequest is a request of the handshake era, htModern of the stateless one, htCall a call in a session.
func htRequest(id int, method, params string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":{%s}}`, id, method, params)
}

func htModern(id int, method, params string) string {
	if params != "" {
		params += ","
	}
	return htRequest(id, method, params+statelessMeta)
}

func htCall(id int) string { return htRequest(id, "tools/call", `"name":"t"`) }

// htSession is the script of a server of the handshake era: it begins and ends sessions, or keeps none if session is
// empty. Its GET stream is answered by get, if that is not nil, and all else by rest.
func htSession(session string, get, rest htScript) htScript {
	initialize := "json\n\n"
	if session != "" {
		initialize = "json\nMcp-Session-Id: " + session + "\n\n"
	}
	initialize += `{"jsonrpc":"2.0","id":$id,"result":` + initializeResult("2025-11-25") + `}`
	return func(w http.ResponseWriter, r *http.Request, m htMessage) {
		switch {
		case m.Method == "initialize":
			htReply(initialize)(w, r, m)
		case m.Method == "notifications/initialized":
			htAccepted(w)
		case r.Method == http.MethodDelete:
		case r.Method == http.MethodGet && get != nil:
			get(w, r, m)
		case r.Method == http.MethodGet && r.Header.Get("Last-Event-Id") == "":
			w.WriteHeader(http.StatusMethodNotAllowed)
		default:
			rest(w, r, m)
		}
	}
}

// htEra is one of the two eras, for a test of both. In the handshake era there is a session.
type htEra struct {
	*testing.T
	stateless bool
}

func htEras(t *testing.T, test func(e htEra)) {
	for _, stateless := range []bool{false, true} {
		t.Run(fmt.Sprintf("stateless=%v", stateless), func(t *testing.T) {
			checkLeaks(t)
			test(htEra{t, stateless})
		})
	}
}

// call is a call of a tool.
func (e htEra) call(id int) string {
	if e.stateless {
		return htModern(id, "tools/call", `"name":"t"`)
	}
	return htCall(id)
}

// open opens a transport to a server on loopback.
func (e htEra) open(h HTTP, script htScript) (*htPeer, *htServer) {
	s := htServe(e.T, script)
	h.URL = s.URL + "/mcp"
	if e.stateless {
		return htOpen(e.T, h), s
	}
	s.set(htSession("the-session", nil, script))
	return htOpen(e.T, h).handshake(), s
}

// play is set for a server that was opened by open.
func (e htEra) play(s *htServer, script htScript) {
	if !e.stateless {
		script = htSession("the-session", nil, script)
	}
	s.set(script)
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

// htError is an error whose id is written so; empty for none.
func htError(id string) string {
	if id != "" {
		id = `"id":` + id + `,`
	}
	return `{"jsonrpc":"2.0",` + id + `"error":{"code":-32000,"message":"no"}}`
}

// TestHTTPBroken: a broken response is an error, and the message after it is answered. A notification is done with a
// response of which nothing comes, and for which net/http waits with a lock held.
func TestHTTPBroken(t *testing.T) {
	hijack := func(begin, more string) htScript {
		return func(w http.ResponseWriter, _ *http.Request, _ htMessage) {
			c, _, _ := w.(http.Hijacker).Hijack()
			defer c.Close()
			_, err := io.WriteString(c, begin)
			for err == nil && more != "" {
				_, err = io.WriteString(c, more)
			}
		}
	}
	htEras(t, func(e htEra) {
		p, s := e.open(HTTP{}, nil)
		for want, script := range map[string]htScript{
			"EOF":                  htReply(htGone),
			": unexpected EOF":     htReply("json\nContent-Length: 1000\n\n" + htResult("2") + htBreak),
			"unexpected EOF":       htReply(htJSON(htResult("2")[:20]) + htBreak),
			"gzip: invalid header": htReply("json\nContent-Encoding: gzip\n\n" + htResult("2")),
			"malformed HTTP":       hijack("220 mail.example.com ESMTP\r\n", ""),
			"headers exceeded":     hijack("HTTP/1.1 200 OK\r\nX: ", strings.Repeat("x", 1<<16)),
		} {
			e.play(s, script)
			err := p.fails(e.call(2))
			assert.ErrorContains(e, err, want)
			assert.Assert(e, err.Status == 0 && err.Lost() && !err.SessionExpired())
			e.play(s, htReply(htOK()))
			p.say(e.call(2), htResult("2"))
		}
		e.play(s, htReply("sse\nContent-Encoding: gzip\n\n"+htHold))
		p.say(`{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}`)
	})
}

// htPlayer plays one session of testdata/http.txt, on one server.
type htPlayer struct {
	*testing.T
	kind      string // of the server: see start
	server    *htServer
	client    *http.Client
	limit     int
	transport Transport
	begun     time.Time
	shown     map[string]int // requests that were shown, by command

	mu       sync.Mutex // guards the following
	sessions int        // begun so far, of kind "count"
	read     []string   // since the last command

	// Replies to come, to "post", "get", and "ready", which is notifications/initialized. The last one is given again and
	// again. Once one was given, the next line begins a new list.
	replies map[string][]string
	given   map[string]bool
}

// htWords are what cannot stand in a line.
var htWords = strings.NewReplacer(`\n`, "\n", `\r`, "\r", "<bom>", "\ufeff", "<nul>", "\x01", "<bad>", "\xff",
	"<long>", strings.Repeat("x", 1000),
	"<break>", htBreak, "<hold>", htHold, "<forever>", htForever, "<hour>", "\x00hour")

// note adds to the outcome.
func (p *htPlayer) note(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.read = append(p.read, fmt.Sprintf(format, args...))
}

// reply answers with the next reply of a list.
func (p *htPlayer) reply(list string) htScript {
	return func(w http.ResponseWriter, r *http.Request, m htMessage) {
		p.mu.Lock()
		p.given[list] = true
		reply := p.replies[list][0]
		p.replies[list] = p.replies[list][min(1, len(p.replies[list])-1):]
		p.mu.Unlock()
		htReply(reply)(w, r, m)
		if r.Context().Err() != nil && (strings.Contains(reply, htHold) || strings.Contains(reply, "\nPause: ")) {
			p.note("left %s", strings.TrimSpace(r.Method+" "+strings.TrimPrefix(r.Header.Get("Mcp-Session-Id"), "session")))
		}
	}
}

// serve answers as a server of its kind.
func (p *htPlayer) serve(w http.ResponseWriter, r *http.Request, m htMessage) {
	p.mu.Lock()
	var get htScript
	if p.replies["get"] != nil {
		get = p.reply("get")
	}
	hasReady := p.replies["ready"] != nil
	session := strings.Trim(p.kind, "-")
	if p.kind == "count" && m.Method == "initialize" {
		p.sessions++
	}
	if p.kind == "count" {
		session = fmt.Sprint(p.sessions)
	}
	p.mu.Unlock()
	switch isModern := p.kind == "stateless"; {
	case isModern && m.Method == "server/discover":
		htReply(htJSON(`{"jsonrpc":"2.0","id":1,"result":`+discoveryResult+`}`))(w, r, m)
	case r.Method == http.MethodGet && p.kind == "sse":
		get(w, r, m)
	case isModern, p.kind == "sse":
		p.reply("post")(w, r, m)
	case m.Method == "notifications/initialized" && hasReady:
		p.reply("ready")(w, r, m)
	default:
		htSession(session, get, p.reply("post"))(w, r, m)
	}
}

func (p *htPlayer) close() {
	if p.transport != nil {
		assert.Check(p, p.transport.Close())
		p.transport = nil
	}
}

// start starts a transport in place of the one before, and reads it. It is for a server of a kind: "stateless",
// "sse", and for the handshake era the id of its session, "-" if it has none, and "count" if it counts them. The
// handshake of "session" is done, so that the same can be done in both eras.
func (p *htPlayer) start(start func(context.Context) (Transport, error)) error {
	p.close()
	ctx, cancel := context.WithTimeoutCause(p.Context(), time.Minute, errGaveUp)
	defer cancel()
	transport, err := start(ctx)
	if err != nil {
		return err
	}
	p.transport = transport
	go func() {
		for err == nil {
			var message []byte
			message, err = transport.Read()
			if err == nil {
				p.note("read %s", strings.NewReplacer("\n", `\n`, "\r", `\r`).Replace(string(message)))
			} else if err != net.ErrClosed {
				p.note("end %v", err)
			}
		}
	}()
	return nil
}

// command runs one command. The outcome is a list of lines.
func (p *htPlayer) command(word, text string) (outcome []string) {
	var err error
	begun := time.Now()
	switch word {
	case "post", "get", "ready":
		p.addReply(word, htWords.Replace(text))
		return nil
	case "limit":
		p.limit, err = strconv.Atoi(text)
	case "wait":
		var d time.Duration
		d, err = time.ParseDuration(text)
		time.Sleep(d)
		begun = time.Now()
	case "close":
		p.close()
	case "start":
		err = p.startKind()
	case "answer":
		begun, err = p.callAsClient(htWords.Replace(text))
	case "asked", "headers":
		outcome = p.newRequests(word)
	case "text":
		outcome = htMeaning(text)
	default:
		ctx, cancel := context.WithTimeoutCause(p.Context(), time.Hour, errGaveUp)
		defer cancel()
		err = p.transport.Write(ctx, p.message(word, text))
	}
	after := time.Since(begun)
	synctest.Wait()
	outcome = append(outcome, p.notes()...)
	if err != nil {
		outcome = append(outcome, p.failure(err)...)
	}
	if after != 0 {
		outcome = append(outcome, "after "+after.String())
	}
	return outcome
}

// endpoint is the server of a session, at an address with secrets.
func (p *htPlayer) endpoint() HTTP {
	return HTTP{
		URL:        "http://s3cret:s3cret@memory/mcp?key=s3cret",
		Client:     p.client,
		MaxMessage: p.limit,
		Header: http.Header{
			"Authorization": {"Bearer s3cret"}, "X-Two": {"a", "b"}, "Accept": {"text/html"}, "Host": {"mcp.example"},
		},
	}
}

// addReply adds to a list of replies to come.
func (p *htPlayer) addReply(list, reply string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.given[list] {
		p.replies[list], p.given[list] = nil, false
	}
	p.replies[list] = append(p.replies[list], reply)
}

// startKind starts a transport to the server, and does the handshake of "session".
func (p *htPlayer) startKind() error {
	if p.kind == "sse" {
		return p.start(p.endpoint().StartSSE)
	}
	err := p.start(p.endpoint().Start)
	if p.kind == "session" {
		assert.NilError(p, p.transport.Write(p.Context(), outgoing(initializeLine)))
		assert.NilError(p, p.transport.Write(p.Context(), outgoing(initializedLine)))
		synctest.Wait()
		p.read = nil
		p.shown["asked"], p.shown["headers"] = len(p.server.all()), len(p.server.all())
	}
	return err
}

// callAsClient is the outcome of a Client's call with that reply, and when the call began.
func (p *htPlayer) callAsClient(reply string) (begun time.Time, err error) {
	p.replies["post"] = []string{reply}
	revision := "2025-11-25"
	if p.kind == "stateless" {
		revision = statelessRevision
	}
	c, failed := Connect(p.Context(), p.endpoint().Start, &ClientOptions{Protocol: revision})
	assert.NilError(p, failed)
	begun = time.Now()
	_, err = c.CallTool(p.Context(), "t", nil, nil)
	assert.Check(p, !errors.Is(err, ErrClosed))
	assert.Check(p, c.Close())
	return begun, err
}

// message is what a command sends.
func (p *htPlayer) message(word, text string) Outgoing {
	call := htCall(2)
	if p.kind == "stateless" {
		call = htModern(2, "tools/call", `"name":"t"`)
	}
	if word == "named" {
		m := outgoing(call)
		m.Name, m.Headers = htWords.Replace(text), map[string]string{"Mcp-Param-A": "1"}
		return m
	}
	said := map[string]string{"call": call, "initialize": initializeLine, "initialized": initializedLine, "send": text}
	return outgoing(said[word])
}

// newRequests are the requests since the last command of that word: with "asked" the time since the beginning, with
// "headers" the headers.
func (p *htPlayer) newRequests(word string) (lines []string) {
	all := p.server.all()
	for _, r := range all[p.shown[word]:] {
		words := []string{r.At.Sub(p.begun).String(), r.Method, r.Path, r.RPC, r.Header.Get("Last-Event-ID")}
		if word == "headers" {
			words = words[1:4]
			for name, value := range htOwn(r.Header) {
				words = append(words, name+": "+value+",")
			}
			slices.Sort(words[3:])
		}
		words = slices.DeleteFunc(words, func(word string) bool { return word == "" })
		lines = append(lines, strings.TrimSuffix(strings.Join(words, " "), ","))
	}
	p.shown[word] = len(all)
	return lines
}

// notes are those since the last command. Lines about a server that is left stand last, as that happens at any time.
func (p *htPlayer) notes() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	isLeft := func(line string) int { return strings.Index("r", line[:1]) }
	slices.SortStableFunc(p.read, func(a, b string) int { return isLeft(b) - isLeft(a) })
	notes := p.read
	p.read = nil
	return notes
}

// failure describes an error, which is one short line without a secret.
func (p *htPlayer) failure(err error) (lines []string) {
	var refusal *HTTPError
	isRefusal := errors.As(err, &refusal)
	if isRefusal && refusal.Lost() {
		lines = append(lines, "lost")
	}
	if isRefusal && refusal.SessionExpired() {
		lines = append(lines, "expired")
	}
	text := err.Error()
	assert.Check(p, len(text) < 1000 && utf8.ValidString(text) && !strings.ContainsAny(text, "\r\n"), "%q", text)
	assert.Check(p, !strings.Contains(text, "s3cret") && !strings.HasSuffix(text, ": "), "%q", text)
	assert.Check(p, !errors.Is(err, io.EOF), "for a Transport that is its end")
	return append(lines, "error "+text)
}

var errGaveUp = errors.New("the sender gave up")

// htMeaning is what a text is to the request with the id 2.
func htMeaning(text string) (meaning []string) {
	var m Incoming
	valid := m.Parse([]byte(text)) == nil
	for _, c := range []struct {
		name string
		is   bool
	}{
		{"begins an answer", beginsAnswer([]byte(text), 2)},
		{"is an answer", valid && isResponseTo(&m, 2)},
		{"is an invalid answer", !valid && isResponseTo(&m, 2)},
		{"is an error without an id: " + string(answerWithID(2, m.Error)), valid && isErrorWithoutID(&m)},
		{"is a batch with an answer", batchAnswers([]byte(text), 2)},
	} {
		if c.is {
			meaning = append(meaning, c.name)
		}
	}
	return meaning
}

// htPlay plays a session, and returns the outcome of each command.
func htPlay(t *testing.T, kind string, commands []string) (outcomes [][]string) {
	checkLeaks(t)
	synctest.Test(t, func(t *testing.T) {
		p := &htPlayer{T: t, kind: kind, begun: time.Now(), shown: map[string]int{}, given: map[string]bool{}}
		p.replies, p.given["post"] = map[string][]string{"post": {"202"}}, true
		p.server, p.client = htInMemory(p.serve)
		for _, command := range commands {
			mark, rest, _ := strings.Cut(command, " ")
			if mark == "@" {
				rest = "wait " + rest
			}
			word, text, _ := strings.Cut(rest, " ")
			outcome := p.command(word, text)
			for i, line := range outcome {
				if len(line) > 500 {
					outcome[i] = fmt.Sprintf("%.400s… (%d bytes)", line, len(line))
				}
			}
			outcomes = append(outcomes, outcome)
		}
		p.close()
	})
	return outcomes
}

// TestHTTPScripts plays the sessions in testdata/http.txt. The name of a session begins with the kinds of server that
// it is played with. A line "<-" adds to the replies to come; see htPlayer.replies. What comes of a line has the kind
// of the server before it if it is not the same with all.
func TestHTTPScripts(t *testing.T) {
	playCases(t, "testdata/http.txt", func(t *testing.T, name string, given []string) (outcomes [][]string) {
		words, _, _ := strings.Cut(name, ": ")
		kinds := strings.Fields(words)
		byKind := make(map[string][][]string)
		for _, kind := range kinds {
			t.Run(kind, func(t *testing.T) { byKind[kind] = htPlay(t, kind, given) })
		}
		for i := range given {
			isSame := !slices.ContainsFunc(kinds, func(kind string) bool {
				return !slices.Equal(byKind[kind][i], byKind[kinds[0]][i])
			})
			var outcome []string
			for _, kind := range kinds {
				before := "= "
				if !isSame {
					before += kind + ": "
				} else if kind != kinds[0] {
					break
				}
				for _, line := range byKind[kind][i] {
					outcome = append(outcome, before+line)
				}
			}
			outcomes = append(outcomes, outcome)
		}
		return outcomes
	})
}

// TestHTTPSecrets: no error repeats what may be a key: the query and the user of the URL, and the headers. So it is in
// TestHTTPScripts, too.
func TestHTTPSecrets(t *testing.T) {
	checkLeaks(t)
	refused := httptest.NewServer(nil)
	refused.Close()
	for address, token := range map[string]string{
		strings.Replace(refused.URL, "http://", "http://s3cret:s3cret@", 1) + "/mcp?key=s3cret#s3cret": "s3cret",
		"http://s3cret:s3cret@127.0.0.1:port/?key=s3cret":                                              "s3cret",
		"http://s3cret:s3cret@127.0.0.1/%zz?key=s3cret":                                                "s3cret",
		"http://s3cret:s3cret@127.0.0.1\x7f?key=s3cret":                                                "s3cret",
		"http://s3cret:s3cret@[::1/?key=s3cret":                                                        "s3cret",

		// An invalid header.
		"http://127.0.0.1/": "\ns3cret",
	} {
		p := htOpen(t, HTTP{URL: address, Header: http.Header{"Authorization": {"Bearer " + token}}})
		for _, e := range chatErrorTree(p.fails(initializeLine)) {
			assert.Check(t, !strings.Contains(fmt.Sprintf("%v %+v", e, e), "s3cret"), "%s: %v", address, e)
		}
		p.close()
	}
}

// A URL to which nothing can be sent is refused before anything is, in words that say how to write it, and are not the
// URL's: it may hold a key.
func TestHTTPWrongURL(t *testing.T) {
	for _, wrong := range []string{
		"", "127.0.0.1:8080/mcp", "localhost:8080/mcp", "/mcp", "https:///mcp",
		"ftp://s3cret:s3cret@127.0.0.1/?key=s3cret", "/mcp?key=s3cret", "http://?key=s3cret", "?key=s3cret",
	} {
		server := HTTP{URL: wrong}
		for _, start := range []func(context.Context) (Transport, error){server.Start, server.StartSSE} {
			_, err := Connect(t.Context(), start, nil)
			assert.Error(t, err, "the server's URL must begin with http:// or https:// and name a host")
		}
	}
}

// TestHTTPTLS: what goes wrong with TLS is explained.
func TestHTTPTLS(t *testing.T) {
	checkLeaks(t)
	secure := htUnstarted(t, htReply(htOK()))
	secure.StartTLS()
	plain := htServe(t, htReply(htOK()))
	for _, c := range []struct {
		url, want string
		status    int
	}{
		{secure.URL, "certificate signed by unknown authority", 0},
		{strings.Replace(secure.URL, "127.0.0.1", "localhost", 1), "certificate is valid for ", 0},
		{strings.Replace(plain.URL, "http", "https", 1), "HTTP response to HTTPS client", 0},
		{strings.Replace(secure.URL, "https", "http", 1), "HTTP request to an HTTPS server", 400},
	} {
		p := htOpen(t, HTTP{URL: c.url})
		err := p.fails(htModern(1, "server/discover", ""))
		assert.ErrorContains(t, err, c.want)
		assert.Equal(t, err.Status, c.status)
		p.close()
	}
	client := secure.Client()
	p := htOpen(t, HTTP{URL: secure.URL, Client: client})
	p.say(htModern(1, "server/discover", ""), htResult("1"))
	p.close()
	client.CloseIdleConnections()
}

// htZip is a script's answer, compressed. Each part is on its way at once.
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
			// What is behind the answer does not keep the call.
			<-r.Context().Done()
			return
		}
		z.Close()
	}
}

// TestHTTPTooLong: a message of the limit passes, also compressed, and what is longer is read no further, nor asked
// for again. The error says whose answer it was.
func TestHTTPTooLong(t *testing.T) {
	const limit = 100_000
	const begin = `{"jsonrpc":"2.0","id":2,"result":`
	exact := func(n int) string {
		return begin + `"` + strings.Repeat("x", n-len(begin+`""}`)) + `"}`
	}
	part := strings.Repeat("x", 1000)
	bomb := strings.Repeat("a", limit)
	htEras(t, func(e htEra) {
		p, s := e.open(HTTP{MaxMessage: limit}, nil)
		for _, good := range []htScript{
			htReply(htJSON(exact(limit))),
			htReply(htSSE(htEvent(exact(limit)))),
			htReply(htSSE("data: " + exact(limit) + "\r\n\r\n")),
			htZip("application/json", exact(limit)),
			htZip("text/event-stream", ": c\n\n", htEvent(exact(limit))),
		} {
			e.play(s, good)
			p.say(e.call(2), exact(limit))
		}
		for i, bad := range []htScript{
			htReply(htJSON(exact(limit + 1))),
			htReply(htSSE("id: 1\n" + htEvent(exact(limit+1)))),
			htReply(htJSON(begin+`"`) + htForever + part),
			htReply(htJSON(begin+`[`) + htForever + "[],"),
			htReply(htSSE("data: "+begin+`"`) + htForever + part),
			htReply(htSSE("id: 1\ndata: \n\n") + htForever + "data: " + part + "\n"),
			htReply(htSSE() + htForever + "data\r"),
			htReply(htSSE(": ") + htForever + part),
			htReply(htSSE("event: ") + htForever + part),
			htReply(htSSE("id: ") + htForever + part),
			htReply("text/html\n\n" + htForever + part),
			htZip("application/json", begin, bomb, bomb),
			htZip("text/event-stream", "data: "+begin, bomb, bomb),
			htZip("text/html", bomb, bomb),
		} {
			e.play(s, bad)
			before := len(s.all())
			err := p.fails(e.call(2))
			var long *MessageTooLongError
			assert.Assert(e, errors.As(err, &long), "%d: %v", i, err)
			assert.Equal(e, long.Limit, limit)
			assert.ErrorContains(e, err, s.URL)
			assert.ErrorContains(e, err, "limit of 100000 bytes")
			assert.Assert(e, !err.Lost(), "it would come again")
			assert.Equal(e, len(s.all()), before+1, "%d: it is not resumed either", i)
		}
		p, s = e.open(HTTP{MaxMessage: math.MaxInt}, htReplies(htOK(), htSSE(htEvent(htResult("3")))))
		p.say(e.call(2), htResult("2"))
		p.say(e.call(3), htResult("3"))
	})
}

// TestHTTPOneConnection: calls one after the other take one connection, whatever the answers and refusals are. Only
// where an answer was in a stream may the next call come before the end of that stream, and take another one.
func TestHTTPOneConnection(t *testing.T) {
	htEras(t, func(e htEra) {
		var replies []string
		for range 20 {
			replies = append(replies, htOK(), htSSE(htEvent(htResult("1")), htEvent(htResult("2"))),
				htSSE(htEvent(htResult("2")), ": the end\n\n"), "400 json\n\n"+htError("2"),
				"503 json\n\n"+strings.Repeat("no", 10000), "202")
		}
		p, s := e.open(HTTP{}, htReplies(replies...))
		for i := range replies {
			if i%12 < 6 {
				_ = p.write(e.call(2))
			} else {
				_ = p.write(`{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}`)
			}
		}
		for range 10 {
			p.expect(htResult("2"), htResult("1"), htResult("2"), htResult("2"), htError("2"))
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		assert.Check(e, s.conns <= 4, "%d connections", s.conns)
	})
}

// TestHTTPClose: it ends all that is at work, whoever waits for what, and the session last.
func TestHTTPClose(t *testing.T) {
	checkLeaks(t)
	begun, ended := make(chan struct{}, 100), make(chan struct{}, 100)
	script := func(w http.ResponseWriter, r *http.Request, m htMessage) {
		if string(m.ID) != "1" {
			// Some streams have begun.
			htReply(htSSE(": hello\n\n", "id: 5\nretry: 3600000\ndata: \n\n"))(w, r, m)
		}
		begun <- struct{}{}
		if string(m.ID) == "2" {
			// Some wait for the time to be resumed.
			ended <- struct{}{}
			return
		}
		<-r.Context().Done()
		ended <- struct{}{}
	}
	s := htServe(t, htSession("s", script, script))
	p := htOpen(t, HTTP{URL: s.URL}).handshake()
	const writes = 30
	var failed []<-chan error
	for i := range writes {
		failed = append(failed, p.fail(context.Background(), htCall(i%3+1)))
	}
	for range writes + 1 {
		<-begun
	}
	p.close()
	for i := range writes {
		assert.ErrorIs(t, <-failed[i], net.ErrClosed)
	}
	for range writes + 1 {
		<-ended
	}
	assert.ErrorIs(t, p.write(initializeLine), net.ErrClosed)
	_, err := p.Read()
	assert.ErrorIs(t, err, net.ErrClosed)
	requests := s.requests()
	assert.Equal(t, requests[len(requests)-1], "DELETE")
	unused, err := HTTP{URL: "http://127.0.0.1:1"}.Start(t.Context())
	assert.NilError(t, err)
	assert.NilError(t, unused.Close())
}

// TestHTTPCloseWaits: when Close returns nothing is left, nor has the end of the session been sent before all else was
// over. A server that does not answer the end of the session is waited for a moment.
func TestHTTPCloseWaits(t *testing.T) {
	checkLeaks(t)
	starts := map[string]func(HTTP, context.Context) (Transport, error){"s": HTTP.Start, "sse": HTTP.StartSSE}
	for name, start := range starts {
		synctest.Test(t, func(t *testing.T) {
			s, client := htInMemory(htSession(name, func(w http.ResponseWriter, r *http.Request, m htMessage) {
				htReply(htSSE(htEndpoint("/x"))+htHold)(w, r, m)
			}, func(_ http.ResponseWriter, r *http.Request, _ htMessage) { <-r.Context().Done() }))
			var left atomic.Int32
			slow := &http.Client{Transport: htSlow{client.Transport, &left}}
			transport, err := start(HTTP{URL: "http://memory/", Client: slow}, t.Context())
			assert.NilError(t, err)
			p := htRun(t, transport)
			if name == "s" {
				p.handshake()
			}
			for range 10 {
				p.fail(t.Context(), htCall(2))
			}
			synctest.Wait()
			assert.Equal(t, left.Load(), int32(10))
			begun := time.Now()
			p.close()
			assert.Equal(t, left.Load(), int32(0))
			assert.Equal(t, time.Since(begun), time.Second)
			assert.Equal(t, len(s.all()), map[string]int{"s": 14, "sse": 11}[name])
		})
	}
	synctest.Test(t, func(t *testing.T) {
		s, client := htInMemory(htSession("s", nil, nil))
		p := htOpen(t, HTTP{URL: "http://memory/", Client: client}).handshake()
		s.set(func(_ http.ResponseWriter, r *http.Request, _ htMessage) { <-r.Context().Done() })
		begun := time.Now()
		p.close()
		assert.Equal(t, time.Since(begun), deleteTime)
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
			htReply(htSSE(htEndpoint("/x"))+htHold)(w, r, m)
			return
		}
		htReply(htOK())(w, r, m)
	})
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateClosed {
			closed <- struct{}{}
		}
	}
	s.Start()
	// Without a timeout, only Close closes an idle connection.
	keep := func(h HTTP) { h.Client.Transport.(*http.Transport).IdleConnTimeout = 0 }
	p := htOpen(t, HTTP{URL: s.URL})
	keep(p.Transport.(*StreamableHTTP).server)
	p.say(htModern(2, "tools/list", ""), htResult("2"))
	p.close()
	<-closed
	old, err := HTTP{URL: s.URL}.StartSSE(t.Context())
	assert.NilError(t, err)
	keep(old.(*SSE).stream)
	p = htRun(t, old)
	p.say(initializeLine)
	p.close()
	// Both are closed: the stream's connection, and that of the POST.
	<-closed
	<-closed
}

// TestHTTPCloseUnread: a message that nobody reads keeps nobody.
func TestHTTPCloseUnread(t *testing.T) {
	checkLeaks(t)
	for _, reply := range []string{htOK(), "400 json\n\n" + htError(""), htSSE(htEvent(htResult("9")))} {
		synctest.Test(t, func(t *testing.T) {
			_, client := htInMemory(htReply(reply))
			transport, err := HTTP{URL: "http://memory/", Client: client}.Start(t.Context())
			assert.NilError(t, err)
			p := &htPeer{Transport: transport, t: t}
			ctx, cancel := context.WithCancelCause(t.Context())
			cancelled, closed := p.fail(ctx, htModern(2, "a", "")), p.fail(t.Context(), htModern(2, "a", ""))
			synctest.Wait()
			cancel(io.ErrNoProgress)
			assert.Equal(t, <-cancelled, io.ErrNoProgress)
			synctest.Wait()
			assert.Equal(t, len(closed), 0)
			assert.NilError(t, p.Close())
			assert.Equal(t, <-closed, net.ErrClosed)
		})
	}
}

// TestHTTPTail: a stream that stays open behind the answer does not keep the call. The stream is closed after a moment,
// in which its end may come. The end of the sender's ctx, which the answer brings about, does not end it.
func TestHTTPTail(t *testing.T) {
	checkLeaks(t)
	synctest.Test(t, func(t *testing.T) {
		cut := 0
		_, client := htInMemory(func(w http.ResponseWriter, r *http.Request, m htMessage) {
			htReply(htSSE(htEvent(htResult("$id"))))(w, r, m)
			select {
			case <-time.After(time.Duration(m.ID[0]-'1') * tailTime / 2):
				htReply(htSSE(": the end\n\n"))(w, r, m)
			case <-r.Context().Done():
				cut++
			}
		})
		p := htOpen(t, HTTP{URL: "http://memory/", Client: client})
		for i := range 4 {
			begun := time.Now()
			ctx, cancel := context.WithCancelCause(t.Context())
			failed := p.fail(ctx, htModern(i+1, "tools/call", `"name":"t"`))
			p.expect(htResult(fmt.Sprint(i + 1)))
			cancel(ErrAnswered)
			assert.NilError(t, <-failed)
			assert.Equal(t, time.Since(begun), time.Duration(0))
			time.Sleep(2 * tailTime)
		}
		synctest.Wait()
		assert.Equal(t, cut, 1)
		p.close()
	})
}

// TestHTTPTailClient: so it is with the calls of a Client, whatever carries them.
func TestHTTPTailClient(t *testing.T) {
	checkLeaks(t)
	id := `{"jsonrpc":"2.0","id":$id,"result":`
	for _, protocol := range []string{statelessRevision, "2025-11-25"} {
		synctest.Test(t, func(t *testing.T) {
			answer := func(w http.ResponseWriter, r *http.Request, m htMessage) {
				result := map[string]string{"server/discover": discoveryResult, "tools/call": `{"content":[]}`}[m.Method]
				htReply(htSSE(htEvent(id+result+`}`))+htHold)(w, r, m)
			}
			_, client := htInMemory(htSession("s", nil, answer))
			h := HTTP{URL: "http://memory/", Client: client}
			c, err := Connect(t.Context(), h.Start, &ClientOptions{Protocol: protocol})
			assert.NilError(t, err)
			defer c.Close()
			begun := time.Now()
			_, err = c.CallTool(t.Context(), "t", nil, nil)
			assert.NilError(t, err)
			assert.Equal(t, time.Since(begun), time.Duration(0))
		})
	}
}

// TestHTTP2: the same over one connection of HTTP/2.
func TestHTTP2(t *testing.T) {
	checkLeaks(t)
	begun, ended := make(chan struct{}, 10), make(chan struct{}, 10)
	get := htReply(htSSE(htEvent(htResult("9"))) + htHold)
	s := htUnstarted(t, htSession("s", get, func(w http.ResponseWriter, r *http.Request, m htMessage) {
		if r.ProtoMajor != 2 || m.Method == "tools/call" {
			htReply(htSSE(htEvent(htResult("$id"))))(w, r, m)
			return
		}
		htReply(htSSE(": wait\n\n"))(w, r, m)
		begun <- struct{}{}
		<-r.Context().Done()
		ended <- struct{}{}
	}))
	s.EnableHTTP2 = true
	s.StartTLS()
	client := s.Client()
	defer client.CloseIdleConnections()
	p := htOpen(t, HTTP{URL: s.URL, Client: client}).handshake()
	p.expect(htResult("9"))
	for range 10 {
		p.say(htCall(2), htResult("2"))
	}
	failed := p.fail(t.Context(), htRequest(3, "prompts/list", ""))
	<-begun
	p.close()
	assert.ErrorIs(t, <-failed, net.ErrClosed)
	<-ended
	assert.Equal(t, s.conns, 1)
	assert.Equal(t, s.last(t, "DELETE").Header.Get("Mcp-Session-Id"), "s")
}

// TestHTTPAtOnce: many messages at once, each with its own answer. A Client that was given is not changed.
func TestHTTPAtOnce(t *testing.T) {
	htEras(t, func(e htEra) {
		client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 10}}
		defer client.CloseIdleConnections()
		p, _ := e.open(HTTP{Client: client}, func(w http.ResponseWriter, r *http.Request, m htMessage) {
			if len(m.ID)%2 == 0 {
				htReply(htSSE(htEvent(`{"jsonrpc":"2.0","method":"$id"}`), htEvent(htResult("$id"))))(w, r, m)
				return
			}
			htReply(htOK())(w, r, m)
		})
		const writes = 100
		var all sync.WaitGroup
		var got, want []string
		for id := range writes {
			all.Go(func() { assert.Check(e, p.write(e.call(id+1))) })
			want = append(want, htResult(fmt.Sprint(id+1)))
			if id+1 >= 10 && id+1 < 100 {
				want = append(want, fmt.Sprintf(`{"jsonrpc":"2.0","method":"%d"}`, id+1))
			}
		}
		for range want {
			got = append(got, <-p.in)
		}
		all.Wait()
		slices.Sort(got)
		slices.Sort(want)
		assert.DeepEqual(e, got, want)
		assert.Assert(e, client.CheckRedirect == nil)
		p.close()
	})
}

// TestHTTPProxy: what a proxy refuses is told as the proxy's, in its own words, and is not sent again.
func TestHTTPProxy(t *testing.T) {
	checkLeaks(t)
	long := strings.Repeat("x", 1000)
	for answer, want := range map[string]string{
		"403 urlblocked":                         "403 urlblocked",
		"407 Log in\r\nProxy-Authenticate: NTLM": `407 Log in (Proxy-Authenticate: "NTLM")`,
		"502 " + long:                            "502 " + long[:maxProxyWords],
		"204 No Content":                         "204 No Content",
		"500":                                    "500 ",
	} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		assert.NilError(t, err)
		var asked atomic.Int32
		var proxy sync.WaitGroup
		proxy.Go(func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				asked.Add(1)
				request, err := http.ReadRequest(bufio.NewReader(conn))
				if assert.Check(t, err) {
					assert.Check(t, is.Equal(request.Method, "CONNECT"))
				}
				fmt.Fprintf(conn, "HTTP/1.1 %s\r\n\r\n", answer)
				conn.Close()
			}
		})
		transport := NewHTTPTransport()
		transport.Proxy = http.ProxyURL(&url.URL{Scheme: "http", Host: l.Addr().String()})
		endpoint := HTTP{URL: "https://mcp.test/mcp", Client: &http.Client{Transport: transport}}
		p := htOpen(t, endpoint)
		err = p.write(htModern(1, "tools/call", `"name":"t"`))
		p.close()
		var refusal *HTTPError
		assert.Assert(t, errors.As(err, &refusal) && !refusal.Lost())
		assert.ErrorContains(t, err, "https://mcp.test/mcp: the proxy "+l.Addr().String()+
			" refuses the connection to mcp.test:443: "+want)
		assert.Equal(t, asked.Load(), int32(1))
		l.Close()
		proxy.Wait()
	}
}

// TestHTTPEarlyAnswer: a server that refuses a message before it has read it keeps nobody, whether its answer comes
// through or not.
func TestHTTPEarlyAnswer(t *testing.T) {
	checkLeaks(t)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		htReply("413 json\nConnection: close\n\n"+htError(""))(w, r, htMessage{})
	}))
	defer s.Close()
	p := htOpen(t, HTTP{URL: s.URL})
	defer p.close()
	message := htModern(2, "tools/call", `"name":"t","arguments":{"a":"`+strings.Repeat("x", 8<<20)+`"}`)
	if err := p.write(message); err != nil {
		var refusal *HTTPError
		assert.Assert(t, errors.As(err, &refusal), "%v", err)
		assert.Assert(t, refusal.Lost())
		return
	}
	p.expect(htError("2"))
}

// FuzzHeaderValue: what is encoded is a header's value, and comes back.
func FuzzHeaderValue(f *testing.F) {
	for _, text := range []string{"", "us-west1", "Hello, 世界", " padded ", "line1\nline2", "=?base64?literal?=",
		"=?base64?=", "a\tb", "\x7f", "\xff"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		value := headerValue(text)
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

// TestHTTPParams plays testdata/http_params.txt: what headers a schema makes of arguments.
func TestHTTPParams(t *testing.T) {
	playCases(t, "testdata/http_params.txt", func(t *testing.T, _ string, given []string) (outcomes [][]string) {
		var schema, arguments json.RawMessage
		for _, line := range given {
			word, text, _ := strings.Cut(strings.TrimPrefix(line, "* "), " ")
			assert.Assert(t, json.Valid([]byte(text)), text)
			if word == "schema" {
				schema, arguments = json.RawMessage(text), nil
			} else {
				arguments = json.RawMessage(text)
			}
			headers, err := new(StreamableHTTP).ParamHeaders(schema, arguments)
			var outcome []string
			if err != nil {
				outcome = append(outcome, fmt.Sprintf("= error: %v", err))
			}
			for _, name := range slices.Sorted(maps.Keys(headers)) {
				outcome = append(outcome, fmt.Sprintf("= %s: %s", name, headers[name]))
			}
			outcomes = append(outcomes, outcome)
		}
		return outcomes
	})
	_, err := new(StreamableHTTP).ParamHeaders(json.RawMessage(`{}`), json.RawMessage(`{`))
	assert.ErrorContains(t, err, "arguments is not valid JSON: the text ends too early")
}

// TestHTTPParamsDeep: what a marked parameter costs does not grow with its depth, in memory, which time follows.
func TestHTTPParamsDeep(t *testing.T) {
	allocated := func(depth, marks int) uint64 {
		schema := strings.Repeat(`{"properties":{"a":`, depth) + `{"properties":{`
		arguments := strings.Repeat(`{"a":`, depth) + `{`
		for i := range marks {
			comma := strings.Repeat(",", min(i, 1))
			schema += fmt.Sprintf(`%s"p%d":{"type":"integer","x-mcp-header":"P%d"}`, comma, i, i)
			arguments += fmt.Sprintf(`%s"p%d":%d`, comma, i, i)
		}
		schema, arguments = schema+strings.Repeat("}}", depth+1), arguments+strings.Repeat("}", depth+1)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		headers, err := new(StreamableHTTP).ParamHeaders(json.RawMessage(schema), json.RawMessage(arguments))
		runtime.ReadMemStats(&after)
		assert.NilError(t, err)
		assert.Equal(t, len(headers), marks)
		return after.TotalAlloc - before.TotalAlloc
	}
	shallow, deep := allocated(400, 1000), allocated(4000, 1000)
	assert.Assert(t, deep < 8*shallow, "%d bytes, %d where it is not as deep", deep, shallow)
}

// TestHTTPParamsClient: a Client leaves out tools whose schemas are not allowed, with one warning for each reason,
// and sends the headers of the others, as they were listed last. When the server finds the headers wrong, it lists
// the tools again. In the handshake era nothing of this is.
func TestHTTPParamsClient(t *testing.T) {
	tool := func(name, properties string) string {
		return fmt.Sprintf(`{"name":%q,"inputSchema":{"type":"object","properties":{%s}}}`, name, properties)
	}
	mark := func(kind, header string) string { return `"a":{"type":"` + kind + `","x-mcp-header":"` + header + `"}` }
	for _, revision := range bothEras() {
		checkLeaks(t)
		var tools atomic.Value
		var wants atomic.Value // the header that the server wants
		wants.Store("")
		s := htServe(t, func(w http.ResponseWriter, r *http.Request, m htMessage) {
			switch {
			case m.Method == "server/discover":
				htReply(htJSON(`{"jsonrpc":"2.0","id":$id,"result":`+discoveryResult+`}`))(w, r, m)
			case m.Method == "tools/list":
				result := `{"resultType":"complete","ttlMs":0,"cacheScope":"public","tools":[` + tools.Load().(string) + `]}`
				htReply(htSSE(htEvent(`{"jsonrpc":"2.0","id":$id,"result":`+result+`}`)))(w, r, m)
			case m.Method == "tools/call" && wants.Load() != "" && r.Header.Get(wants.Load().(string)) == "":
				htReply("400 json\n\n"+`{"jsonrpc":"2.0","id":$id,"error":{"code":-32020,"message":"no header"}}`)(w, r, m)
			case m.Method == "tools/call":
				htReply(htJSON(`{"jsonrpc":"2.0","id":$id,"result":{"resultType":"complete","content":[]}}`))(w, r, m)
			default:
				htSession("", nil, nil)(w, r, m)
			}
		})
		var warnings []string
		warn := func(text string) { warnings = append(warnings, text) }
		c, err := Connect(t.Context(), HTTP{URL: s.URL}.Start, &ClientOptions{Protocol: revision, Warn: warn})
		assert.NilError(t, err)
		list := func(listed ...string) (names []string) {
			t.Helper()
			tools.Store(strings.Join(listed, ","))
			c.ForgetLists("tools")
			list, err := c.ListTools(t.Context())
			assert.NilError(t, err)
			for _, tool := range list {
				names = append(names, tool.Name)
			}
			return names
		}
		call := func(name, arguments string) map[string]string {
			t.Helper()
			_, err := c.CallTool(t.Context(), name, json.RawMessage(arguments), nil)
			assert.NilError(t, err)
			params := htOwn(s.last(t, "POST").Header)
			maps.DeleteFunc(params, func(name, _ string) bool { return !strings.HasPrefix(name, "Mcp-Param-") })
			return params
		}
		if revision != statelessRevision {
			assert.DeepEqual(t, list(tool("bad", mark("number", "X")), tool("t", mark("string", "A"))), []string{"bad", "t"})
			assert.DeepEqual(t, call("t", `{"a":"x"}`), map[string]string{})
			assert.Equal(t, len(warnings), 0)
			assert.NilError(t, c.Close())
			continue
		}
		// The user is told once of what happens three times.
		for range 3 {
			assert.DeepEqual(t, list(tool("bad", mark("number", "X")), tool("t", mark("string", "A"))), []string{"t"})
		}
		assert.DeepEqual(t, warnings, []string{
			`the tool "bad" is left out: x-mcp-header "X" marks what is not a string, integer or boolean`,
		})
		assert.DeepEqual(t, call("t", `{"a":"é"}`), map[string]string{"Mcp-Param-A": "=?base64?w6k=?="})
		assert.DeepEqual(t, call("t", `{}`), map[string]string{})
		assert.DeepEqual(t, call("unheard of", `{"a":"x"}`), map[string]string{})
		sent := len(s.all())
		list(tool("t", mark("integer", "A")))
		_, err = c.CallTool(t.Context(), "t", json.RawMessage(`{"a":9007199254740993}`), nil)
		assert.ErrorContains(t, err, "a is beyond 2^53-1")
		assert.Equal(t, len(s.all()), sent+1, "only the list")
		list(tool("t", `"b":{"type":"string","x-mcp-header":"B"}`))
		assert.DeepEqual(t, call("t", `{"a":"x","b":"y"}`), map[string]string{"Mcp-Param-B": "y"})
		list(tool("t", `"a":{"type":"string"}`))
		assert.DeepEqual(t, call("t", `{"a":"x"}`), map[string]string{})

		// The Client does not know this schema yet.
		tools.Store(tool("t", mark("string", "C")))
		wants.Store("Mcp-Param-C")
		sent = len(s.all())
		assert.DeepEqual(t, call("t", `{"a":"x"}`), map[string]string{"Mcp-Param-C": "x"})
		assert.DeepEqual(t, s.requests()[sent:], []string{"POST tools/call", "POST tools/list", "POST tools/call"})

		assert.DeepEqual(t, list(tool("bad", mark("string", "x y"))), []string(nil))
		assert.Equal(t, len(warnings), 2)
		assert.NilError(t, c.Close())
	}
}

// FuzzParams: a mark is found where nothing but properties leads to it, is wrong at any other schema, and is none in a
// value.
func FuzzParams(f *testing.F) {
	f.Add([]byte{0}, "Name", "string")
	f.Add([]byte{0, 0, 0}, "Name", "integer")
	f.Add([]byte{0, 1, 0}, "Name", "string")
	f.Add([]byte{4, 0, 7}, "a b", "boolean")
	f.Add([]byte{5, 6}, "Name", "string")
	f.Add([]byte{}, "Name", "string")
	f.Fuzz(func(t *testing.T, steps []byte, name, kind string) {
		named := []string{"patternProperties", "dependentSchemas", "$defs", "definitions"}
		plain := []string{"items", "not", "if", "then", "else", "contains", "additionalProperties", "propertyNames"}
		lists := []string{"oneOf", "anyOf", "allOf", "prefixItems"}
		values := []string{"default", "const", "enum", "examples"}
		names := []string{"a", "properties", "items", "default", "x-mcp-header", "type", "$defs"}
		var schema any = map[string]any{"type": kind, "x-mcp-header": name}
		path, only, isValue := []string{}, true, false
		for i, step := range slices.Backward(steps[:min(len(steps), 50)]) {
			outer := map[string]any{"type": "object", "required": []any{"x-mcp-header"}}
			switch key := int(step) / 8; step % 8 {
			default:
				// This is more often than the others.
				step := names[key%len(names)]
				outer["properties"] = map[string]any{step: schema, "other": map[string]any{"type": "string"}}
				path = append([]string{step}, path...)
			case 4:
				outer[named[key%len(named)]] = map[string]any{names[i%len(names)]: schema}
				only = false
			case 5:
				outer[plain[key%len(plain)]] = schema
				only = false
			case 6:
				outer[lists[key%len(lists)]] = []any{map[string]any{}, schema}
				only = false
			case 7:
				outer[values[key%len(values)]] = schema
				isValue = true
			}
			schema = outer
		}
		token := name != ""
		for _, c := range []byte(name) {
			token = token && c > ' ' && c < 0x7f && !strings.ContainsRune(`"(),/:;<=>?@[\]{}`, rune(c))
		}
		var value any = "the value"
		for _, step := range slices.Backward(path) {
			value = map[string]any{step: value}
		}
		params := paramHeaders{make(map[string]string), make(map[string]bool)}
		err := params.visit(param{schema: schema, value: value, isReachable: true})
		isPrimitive := slices.Contains([]string{"string", "integer", "boolean"}, kind)
		switch {
		case isValue:
			assert.NilError(t, err)
			assert.Equal(t, len(params.marked), 0)
		case token && only && len(path) > 0 && isPrimitive:
			assert.NilError(t, err)
			want := map[string]string{http.CanonicalHeaderKey("Mcp-Param-" + name): "the value"}
			assert.DeepEqual(t, params.headers, want)
		default:
			assert.Assert(t, err != nil, "%v", schema)
		}
	})
}

// htEndpoint is the event that begins a stream of HTTP+SSE.
func htEndpoint(url string) string { return "event: endpoint\ndata: " + url + "\n\n" }

// htOld is a script for a server of HTTP+SSE: it names the endpoint, and gives rest a way to send on the stream, which
// ends it if there is nothing to send.
func htOld(endpoint string, rest func(w http.ResponseWriter, m htMessage, send func(events ...string))) htScript {
	streams := make(chan chan []string, 1)
	return func(w http.ResponseWriter, r *http.Request, m htMessage) {
		if r.Method != http.MethodGet {
			stream := <-streams
			streams <- stream
			rest(w, m, func(events ...string) { stream <- events })
			return
		}
		stream := make(chan []string)
		streams <- stream
		defer func() { <-streams }()
		for events := []string{htEndpoint(endpoint)}; events != nil; {
			htReply(htSSE(events...))(w, r, m)
			select {
			case events = <-stream:
			case <-r.Context().Done():
				return
			}
		}
	}
}

// TestSSE: the answer comes on the stream, before the POST is accepted or after it, and with it whatever else the
// server says.
func TestSSE(t *testing.T) {
	for _, before := range []bool{true, false} {
		checkLeaks(t)
		accepted := make(chan struct{}, 1)
		s := htServe(t, htOld("/messages?sessionId=5", func(w http.ResponseWriter, m htMessage, send func(...string)) {
			answer := []string{htEvent(htResult("7")), htEvent(htResult(string(m.ID)))}
			if before {
				send(answer...)
			}
			htAccepted(w)
			io.WriteString(w, "Accepted")
			if !before {
				w.(http.Flusher).Flush()
				accepted <- struct{}{}
				send(answer...)
			}
		}))
		user := strings.Replace(s.URL, "http://", "http://me:s3cret@", 1)
		transport, err := HTTP{URL: user + "/sse?key=1", Header: http.Header{"X-Key": {"k"}}}.StartSSE(t.Context())
		assert.NilError(t, err)
		p := htRun(t, transport)
		for _, id := range []string{"1", `"a"`} {
			message := `{"jsonrpc":"2.0","id":` + id + `,"method":"tools/list"}`
			p.say(message)
			if !before {
				<-accepted
			}
			p.expect(htResult("7"), htResult(id))
			post := s.last(t, "POST")
			assert.Equal(t, post.Path, "/messages")
			assert.Equal(t, post.Body, message)
			assert.DeepEqual(t, htOwn(post.Header), map[string]string{
				"Content-Type": "application/json", "X-Key": "k", "Authorization": "Basic bWU6czNjcmV0",
			})
		}
		assert.DeepEqual(t, htOwn(s.last(t, "GET").Header), map[string]string{
			"Accept": "text/event-stream", "X-Key": "k", "Authorization": "Basic bWU6czNjcmV0",
		})
		p.close()
		assert.Equal(t, len(s.all()), 3, "there is no session to DELETE")
		assert.Assert(t, s.conns <= 2)
		assert.ErrorIs(t, p.write(htRequest(1, "ping", "")), net.ErrClosed)
	}
}

// TestSSEClient: a Client can speak over it. Calls at work end with the stream.
func TestSSEClient(t *testing.T) {
	checkLeaks(t)
	s := htServe(t, htOld("messages", func(w http.ResponseWriter, m htMessage, send func(...string)) {
		htAccepted(w)
		w.(http.Flusher).Flush()
		id := `{"jsonrpc":"2.0","id":` + string(m.ID) + `,"result":`
		switch m.Method {
		case "initialize":
			send(htEvent(id + initializeResult("2024-11-05") + `}`))
		case "tools/call":
			send(htEvent(id + `{"content":[]}}`))
		case "prompts/list":
			send()
		}
	}))
	h := HTTP{URL: s.URL + "/deep/sse"}
	c, err := Connect(t.Context(), h.StartSSE, &ClientOptions{Protocol: "2024-11-05"})
	assert.NilError(t, err)
	_, err = c.CallTool(t.Context(), "t", nil, nil)
	assert.NilError(t, err)
	assert.Equal(t, s.last(t, "POST").Path, "/deep/messages")
	assert.ErrorIs(t, c.conn.Call(t.Context(), "prompts/list", nil, nil), ErrClosed)
	assert.NilError(t, c.Close())
}

// TestSSEAnswered: an answer on the stream ends its call, although the POST is never accepted. The POST is waited for
// for a moment, without the call.
func TestSSEAnswered(t *testing.T) {
	checkLeaks(t)
	synctest.Test(t, func(t *testing.T) {
		asked, left := make(chan string), make(chan time.Time, 1)
		_, client := htInMemory(func(w http.ResponseWriter, r *http.Request, m htMessage) {
			if r.Method == http.MethodPost {
				if m.ID != nil {
					asked <- string(m.ID)
				}
				<-r.Context().Done()
				left <- time.Now()
				return
			}
			htReply(htSSE(htEndpoint("/x")))(w, r, m)
			for {
				select {
				case id := <-asked:
					result := initializeResult("2024-11-05")
					htReply(htSSE(htEvent(`{"jsonrpc":"2.0","id":`+id+`,"result":`+result+`}`)))(w, r, m)
				case <-r.Context().Done():
					return
				}
			}
		})
		transport, err := HTTP{URL: "http://memory/", Client: client}.StartSSE(t.Context())
		assert.NilError(t, err)
		c := NewConn(transport, Handler{})
		defer c.Close()
		begun := time.Now()
		assert.NilError(t, c.Call(t.Context(), "initialize", nil, nil))
		assert.Equal(t, time.Since(begun), time.Duration(0))
		assert.Equal(t, (<-left).Sub(begun), tailTime)
	})
}

// TestSSEEnds: the end of the stream is the end of the connection, each time that it is read, but not io.EOF itself,
// which would say that the server can still read. ctx bounds the beginning.
func TestSSEEnds(t *testing.T) {
	checkLeaks(t)
	s := htServe(t, htReply(htSSE(htEndpoint("/x"))))
	transport, err := HTTP{URL: s.URL}.StartSSE(t.Context())
	assert.NilError(t, err)
	for range 2 {
		_, err = transport.Read()
		assert.ErrorIs(t, err, io.EOF)
		assert.Assert(t, err != io.EOF)
	}
	assert.NilError(t, transport.Close())
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(io.ErrNoProgress)
	_, err = HTTP{URL: s.URL}.StartSSE(ctx)
	assert.Equal(t, err, io.ErrNoProgress)
}

// htRead is one event, and what was the last id when it came.
type htRead struct{ Name, Data, ID string }

// htEvents reads a stream to its end.
func htEvents(e *eventReader, r io.Reader) (events []htRead, err error) {
	e.resume(r)
	for {
		name, data, err := e.next()
		if err != nil {
			return events, err
		}
		events = append(events, htRead{name, string(data), e.lastID})
	}
}

// htReference reads server-sent events as the WHATWG describes it, from the whole text at once.
func htReference(text, lastID string) (events []htRead, id string, retry time.Duration) {
	text = strings.TrimPrefix(text, "\ufeff")
	text = strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\r", "\n")
	lines := strings.Split(text, "\n")
	var name string
	var data []string
	next := lastID
	// The last line has no end.
	for _, line := range lines[:len(lines)-1] {
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case line == "":
			lastID = next
			if data != nil {
				// Not so in the WHATWG's: some servers print a mark before each message.
				text := strings.TrimPrefix(strings.Join(data, "\n"), "\ufeff")
				events = append(events, htRead{name, text, lastID})
			}
			name, data = "", nil
		case field == "event":
			name = value
		case field == "data":
			data = append(data, value)
		case field == "id" && !strings.Contains(value, "\x00"):
			next = value
		case field == "retry" && value != "" && strings.Trim(value, "0123456789") == "":
			// 1<<31 is about the longest that a timer should wait.
			if ms, err := strconv.Atoi(value); err == nil && int64(ms) < 1<<31 {
				retry = time.Duration(ms) * time.Millisecond
			}
		}
	}
	return events, lastID, retry
}

// htChunks reads a text in pieces of the sizes given.
type htChunks struct {
	text  []byte
	sizes []byte
	n     int
}

func (c *htChunks) Read(b []byte) (int, error) {
	size := 1
	if len(c.sizes) > 0 {
		size += int(c.sizes[c.n%len(c.sizes)])
		c.n++
	}
	n := copy(b, c.text[:min(size, len(c.text))])
	c.text = c.text[n:]
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

// FuzzEvents: whatever the pieces in which it comes, a stream is read as by a simple reader of whole texts.
func FuzzEvents(f *testing.F) {
	for _, text := range []string{
		"", "data", "data\n", "data\n\n", "data:\n\n", "data: \n\n", "data:  x\n\n", "data:x\ndata: y\n\n",
		"\n\n\ndata: x\n\n", "data: x\r\n\r\ndata: y\r\n\r\n", "data: x\r\rdata: y\r\r", "data: x\r\n\ndata: y\n\r\n",
		"data: a\rdata: b\ndata: c\r\n\r", "data: x\n\r", "\r\n\r", "\n\r\n", "\ufeffdata: x\n\n",
		"\ufeff\ufeffdata: x\n\n\ufeffdata: y\n\n", "data: x\n\n\ufeffdata: y\n\n", "\ufeff\n\ndata: x\n\n",
		": comment\n:\n::\ndata: x\n\n", "event: a\n\ndata: x\n\n", "event: a\nevent: b\ndata: x\n\n",
		"event\ndata: x\n\n", "foo: bar\ndata : x\ndata: y\n\n", "id: 1\ndata: x\n\ndata: y\n\nid\ndata: z\n\n",
		"id: 1\n\nid: 2\n", "id: a\x00b\ndata: x\n\n", "id: 1\nid: 2\nid: \n\n", "id: 1\ndata: x\n", "retry: 50\n",
		"retry: 5s\nretry: -1\nretry:\nretry: +5\nretry: 0x5\n", "retry: 007\n\n",
		"retry: 99999999999999999999\nretry: 2147483648\nretry: 2147483647\n", "retry: 1_0\n",
		"data: {\"a\":\ndata: 1}\n\n", "data: \x00\xff\n\n", "Data: x\n\n", " data: x\n\n", "data:\tx\n\n",
		"data: \ufeffx\n\n", "data: \ufeff\ndata: \ufeff\n\n", "\ufeffdata:\ufeff\n\n",
	} {
		f.Add([]byte(text), []byte{0})
		f.Add([]byte(text), []byte{255})
		f.Add([]byte(text), []byte{0, 5, 2, 100})
	}
	f.Fuzz(func(t *testing.T, text, sizes []byte) {
		e := &eventReader{limit: 1 << 20, lastID: "before"}
		got, err := htEvents(e, &htChunks{text: text, sizes: sizes})
		want, id, retry := htReference(string(text), "before")
		assert.DeepEqual(t, got, want)
		assert.Equal(t, err, io.ErrUnexpectedEOF)
		assert.Equal(t, e.lastID, id)
		assert.Equal(t, e.retry, retry)
	})
}

// TestEventsAtOnce: an event is there as soon as its end is, and is not waited on for more; in particular not for the
// second half of CRLF.
func TestEventsAtOnce(t *testing.T) {
	checkLeaks(t)
	for _, end := range []string{"\n", "\r\n", "\r"} {
		for _, size := range []int{1, 7, 1000, 100_000} {
			r, w := io.Pipe()
			e := &eventReader{limit: 1 << 20}
			e.resume(r)
			data := strings.Repeat("x", size)
			for range 3 {
				go io.WriteString(w, ": c"+end+"event: e"+end+"data: "+data+end+"data:"+end+end)
				name, got, err := e.next()
				assert.NilError(t, err)
				assert.Equal(t, name, "e")
				assert.Equal(t, string(got), data+"\n")
			}
			w.Close()
			_, _, err := e.next()
			assert.Equal(t, err, io.ErrUnexpectedEOF)
		}
	}
}

// TestEventsKept: an event stays what it was while others are read.
func TestEventsKept(t *testing.T) {
	e := &eventReader{limit: 1 << 20}
	e.resume(strings.NewReader(strings.Repeat("data: first\n\n", 1000) + strings.Repeat("data: other\n\n", 10_000)))
	var kept [][]byte
	for range 1000 {
		_, data, err := e.next()
		assert.NilError(t, err)
		kept = append(kept, data)
	}
	for range 10_000 {
		_, _, err := e.next()
		assert.NilError(t, err)
	}
	for _, data := range kept {
		assert.Equal(t, string(data), "first")
	}
}

// TestEventsLimit: the data of an event may be as long as the limit, in one line or in several; a line of any other
// kind is bounded as well.
func TestEventsLimit(t *testing.T) {
	const limit = 5000
	line := func(n int) string { return "data: " + strings.Repeat("x", n) + "\r\n" }
	for _, c := range []struct {
		text string
		ok   bool
	}{
		{line(limit) + "\r\n", true},
		{line(limit+1) + "\r\n", false},
		{line(limit/2) + line(limit/2-1) + "\n", true},
		{strings.Repeat(line(limit/4), 5) + "\n", false},
		{strings.Repeat("data\n", limit) + "\n", true},
		{strings.Repeat("data\n", limit+2) + "\n", false},
		{":" + strings.Repeat("x", limit) + "\n" + line(1) + "\n", true},
		{":" + strings.Repeat("x", limit+100) + "\n" + line(1) + "\n", false},
		{":" + strings.Repeat("x", 2*limit) + "\n" + line(1) + "\n", false},
		{"event:" + strings.Repeat("x", 2*limit), false},
		{strings.Repeat("x", 2*limit), false},
		{strings.Repeat(": x\n", limit) + line(1) + "\n", true},
	} {
		e := &eventReader{limit: limit}
		e.resume(strings.NewReader(c.text))
		_, data, err := e.next()
		if c.ok {
			assert.NilError(t, err, "%.20q", c.text)
			assert.Assert(t, len(data) <= limit)
			continue
		}
		var long *MessageTooLongError
		assert.Assert(t, errors.As(err, &long), "%.20q: %v", c.text, err)
		assert.Equal(t, long.Limit, limit)
	}
	// Some breaks are neither the limit nor the end.
	e := &eventReader{limit: limit}
	e.resume(io.MultiReader(strings.NewReader("data: x\n"), errReader{io.ErrNoProgress}))
	_, _, err := e.next()
	assert.Equal(t, err, io.ErrNoProgress)
}

type errReader struct{ err error }

func (r errReader) Read([]byte) (int, error) { return 0, r.err }

// TestEventsConnections: what one connection left unfinished is not finished by the next; the last id and the time
// stay.
func TestEventsConnections(t *testing.T) {
	e := &eventReader{limit: 1000}
	events, _ := htEvents(e, strings.NewReader("id: 1\nretry: 5\ndata: x\n\nid: 2\nevent: e\ndata: half\r"))
	assert.DeepEqual(t, events, []htRead{{"", "x", "1"}})
	events, _ = htEvents(e, strings.NewReader("\n\ufeff\n\ndata: y\n\n"))
	assert.DeepEqual(t, events, []htRead{{"", "y", "1"}})
	assert.Equal(t, e.retry, 5*time.Millisecond)
}

// errUnauthorised is of a RoundTripper that could not authorise a request.
type errUnauthorised struct{}

func (errUnauthorised) Error() string { return "authorization: nobody has logged in" }
func (errUnauthorised) Status() int   { return http.StatusUnauthorized }

type refusingTransport struct{ requests *atomic.Int64 }

func (t refusingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	t.requests.Add(1)
	return nil, errUnauthorised{}
}

// A request that the RoundTripper of the client could not authorise has been refused, as by the server: it is not
// sent again, no other transport is tried, and the error is told once.
func TestHTTPUnauthorised(t *testing.T) {
	for _, sse := range []bool{false, true} {
		requests := new(atomic.Int64)
		client := &http.Client{Transport: refusingTransport{requests}}
		server := &Server{URL: "https://mcp.test/mcp", SSE: sse, Client: client}
		_, err := server.Connect(t.Context(), ClientOptions{})
		var refusal *HTTPError
		assert.Assert(t, errors.As(err, &refusal))
		assert.Check(t, refusal.Status == http.StatusUnauthorized && !refusal.Lost() && !refusal.SessionExpired())
		assert.Check(t, errors.As(err, new(errUnauthorised)))
		assert.Check(t, is.Equal(strings.Count(err.Error(), "nobody has logged in"), 1), err)
		assert.Check(t, !strings.Contains(err.Error(), "WWW-Authenticate"), err)
		assert.Equal(t, requests.Load(), int64(1))
	}
}
