package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

// These tests take the batteries of the tests over stdio to the same servers over HTTP, and look at what HTTP alone has:
// sessions, streams that break, servers that start anew.

// httpPeer is a server that listens on a port of 127.0.0.1, which stays its own when it is started again.
type httpPeer struct {
	t       *testing.T
	command Command
	path    string // of the endpoint, where the server does not say it

	// Set by start.
	url, port string
	stderr    *eraStderr
	process   *exec.Cmd
	ended     chan struct{} // closed when the process has
}

// startHTTPPeer runs a server until the end of the test. It says on stderr where it listens.
func startHTTPPeer(t *testing.T, command Command, path string) *httpPeer {
	t.Helper()
	p := &httpPeer{t: t, command: command, path: path}
	p.start("0")
	t.Cleanup(p.kill)
	return p
}

var httpPeerAddress = regexp.MustCompile(`listening on (http://127\.0\.0\.1:(\d+)[/\w]*)`)

func (p *httpPeer) start(port string) {
	p.t.Helper()
	p.stderr = new(eraStderr)
	p.process = exec.Command(p.command.Path, p.command.Args...)
	p.process.Env = slices.Concat(safeEnvironment(os.Environ()), p.command.Env, []string{"PORT=" + port})
	p.process.Stderr = p.stderr
	startGroup(p.process)
	assert.NilError(p.t, p.process.Start())
	ctx, cancel := context.WithTimeout(p.t.Context(), time.Minute)
	defer cancel()
	p.ended = make(chan struct{})
	go func() {
		_ = p.process.Wait() // says that it was killed
		close(p.ended)
		cancel()
	}()
	if err := p.stderr.await(ctx, "listening on http://"); err != nil {
		p.kill()
		p.t.Fatalf("%v does not listen: %v\n%s", p.process, err, p.stderr.String())
	}
	found := httpPeerAddress.FindStringSubmatch(p.stderr.String())
	p.url, p.port = found[1]+p.path, found[2]
}

// kill ends it at once, unless it has ended.
func (p *httpPeer) kill() {
	select {
	case <-p.ended:
	default:
		killGroup(p.process.Process)
		<-p.ended
	}
}

// restart ends it at once and starts it on the same port.
func (p *httpPeer) restart() {
	p.t.Helper()
	p.kill()
	p.start(p.port)
}

// httpPeerCommand is that of a server of testdata/peers with more arguments.
func httpPeerCommand(command Command, args ...string) Command {
	command.Args = append(slices.Clone(command.Args), args...)
	return command
}

// httpEverything is server-everything, made to listen on 127.0.0.1 only and to say on which port.
func httpEverything(t *testing.T, mode string) Command {
	t.Helper()
	command := httpPeerCommand(peerNode(t, "server-everything"), mode)
	loopback, err := filepath.Abs(filepath.Join(peerDir, "loopback.cjs"))
	assert.NilError(t, err)
	command.Args = append([]string{"--require", loopback}, command.Args...)
	return command
}

// httpPeerSession is a session over HTTP, whose requests are kept.
type httpPeerSession struct {
	eraSession
	peer *httpPeer
	log  *httpPeerLog
}

// session connects to the server, in a revision or in the one that is found out, as a client that can do everything.
func (p *httpPeer) session(t *testing.T, revision string) *httpPeerSession {
	t.Helper()
	s := p.newSession(t)
	s.connectOn(s.transport(), s.options(revision))
	return s
}

// transport is a new one to the server.
func (s *httpPeerSession) transport() Transport {
	return &ParamHeaders{HTTP: &HTTP{URL: s.peer.url, Client: s.log.client()}}
}

// newSession is one that is not connected yet.
func (p *httpPeer) newSession(t *testing.T) *httpPeerSession {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	connections := &http.Transport{MaxIdleConnsPerHost: 100}
	t.Cleanup(connections.CloseIdleConnections)
	s := &httpPeerSession{peer: p, log: &httpPeerLog{next: connections}}
	s.peerSession = &peerSession{t: t, ctx: ctx}
	var dialer net.Dialer
	connections.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		s.log.mu.Lock()
		s.log.dials++
		s.log.mu.Unlock()
		return dialer.DialContext(ctx, network, address)
	}
	return s
}

// httpPeerLog keeps what a client sends, and can break streams off.
type httpPeerLog struct {
	next http.RoundTripper

	mu        sync.Mutex // guards the following
	dials     int
	exchanges []httpPeerExchange
	breaks    func(x httpPeerExchange) string // if not "", the answer breaks off behind the event with this text; may be nil
}

// httpPeerExchange is a request and how it was answered.
type httpPeerExchange struct {
	Method string // of HTTP
	Header http.Header
	RPC    string // the method of JSON-RPC, or "" of an answer
	Status int    // 0 if none came
	Answer http.Header
}

func (l *httpPeerLog) client() *http.Client { return &http.Client{Transport: l} }

func (l *httpPeerLog) RoundTrip(r *http.Request) (*http.Response, error) {
	x := httpPeerExchange{Method: r.Method, Header: r.Header.Clone()}
	if r.GetBody != nil {
		body, err := r.GetBody()
		if err != nil {
			return nil, err
		}
		var message struct{ Method string }
		_ = json.NewDecoder(body).Decode(&message)
		x.RPC = message.Method
	}
	l.mu.Lock()
	at := len(l.exchanges)
	l.exchanges = append(l.exchanges, x)
	breaks := l.breaks
	l.mu.Unlock()
	answer, err := l.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	l.exchanges[at].Status, l.exchanges[at].Answer = answer.StatusCode, answer.Header
	l.mu.Unlock()
	if breaks != nil {
		if after := breaks(x); after != "" {
			answer.Body = &httpPeerBreak{ReadCloser: answer.Body, after: []byte(after)}
		}
	}
	return answer, nil
}

// that returns the exchanges that fit.
func (l *httpPeerLog) that(fit func(x httpPeerExchange) bool) (fitting []httpPeerExchange) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, x := range l.exchanges {
		if fit(x) {
			fitting = append(fitting, x)
		}
	}
	return fitting
}

// rpc returns the exchanges of a method of JSON-RPC.
func (l *httpPeerLog) rpc(method string) []httpPeerExchange {
	return l.that(func(x httpPeerExchange) bool { return x.RPC == method })
}

// http returns the exchanges of a method of HTTP.
func (l *httpPeerLog) http(method string) []httpPeerExchange {
	return l.that(func(x httpPeerExchange) bool { return x.Method == method })
}

// httpPeerBreak is a body that breaks off behind the first event with a text.
type httpPeerBreak struct {
	io.ReadCloser
	after []byte
	read  []byte
}

func (b *httpPeerBreak) Read(p []byte) (int, error) {
	if at := bytes.Index(b.read, b.after); at >= 0 && bytes.Contains(bytes.ReplaceAll(b.read[at:], []byte("\r"), nil), []byte("\n\n")) {
		b.ReadCloser.Close()
		return 0, io.ErrUnexpectedEOF
	}
	n, err := b.ReadCloser.Read(p[:1])
	b.read = append(b.read, p[:n]...)
	return n, err
}

// raw sends a request beside the client, and returns the status of its answer.
func (s *httpPeerSession) raw(method string, header http.Header, body string) int {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.ctx, method, s.peer.url, strings.NewReader(body))
	assert.NilError(s.t, err)
	r.Header = header.Clone()
	r.Header.Set("Accept", "application/json, text/event-stream")
	r.Header.Set("Content-Type", "application/json")
	answer, err := s.log.next.RoundTrip(r)
	assert.NilError(s.t, err)
	_, _ = io.Copy(io.Discard, answer.Body)
	answer.Body.Close()
	return answer.StatusCode
}

// sessions returns the ids of the sessions that the server gave.
func (s *httpPeerSession) sessions() (ids []string) {
	for _, x := range s.log.rpc("initialize") {
		if id := x.Answer.Get("Mcp-Session-Id"); id != "" && x.Status == http.StatusOK {
			ids = append(ids, id)
		}
	}
	return ids
}

// header is that of a request in the session.
func (s *httpPeerSession) header() http.Header {
	ids := s.sessions()
	return http.Header{"Mcp-Session-Id": ids[len(ids)-1:], "Mcp-Protocol-Version": {s.Server.ProtocolVersion}}
}

const httpPeerPing = `{"jsonrpc":"2.0","id":1,"method":"ping"}`

// testEnd closes the session, and looks at how it was kept and ended. gone is what the server then says to those who go on
// with it; 0 if it keeps no sessions.
func (s *httpPeerSession) testEnd(gone int) {
	t := s.t
	t.Helper()
	if s.stateless() {
		assert.NilError(t, s.Close())
		for _, x := range s.log.that(func(httpPeerExchange) bool { return true }) {
			assert.Equal(t, x.Method, "POST")
			assert.Equal(t, x.Header.Get("MCP-Protocol-Version"), statelessRevision)
			assert.Equal(t, x.Header.Get("Mcp-Method"), x.RPC)
			assert.Equal(t, x.Header.Get("Mcp-Session-Id"), "")
			assert.Assert(t, x.RPC != "notifications/cancelled")
		}
		return
	}
	ids := s.sessions()
	if gone == 0 {
		assert.NilError(t, s.Close())
		assert.Assert(t, is.Len(ids, 0))
		assert.Assert(t, is.Len(s.log.http("DELETE"), 0))
		return
	}
	assert.Assert(t, is.Len(ids, 1))
	begun := false
	for _, x := range s.log.that(func(x httpPeerExchange) bool { return x.RPC != "server/discover" }) {
		if x.RPC == "initialize" {
			assert.Assert(t, !begun && x.Header.Get("Mcp-Session-Id") == "" && x.Header.Get("MCP-Protocol-Version") == "", "%v", x)
			begun = true
			continue
		}
		assert.Equal(t, x.Header.Get("Mcp-Session-Id"), ids[0], "%v", x)
		assert.Equal(t, x.Header.Get("MCP-Protocol-Version"), s.Server.ProtocolVersion, "%v", x)
		assert.Equal(t, x.Header.Get("Mcp-Method"), "", "%v", x)
	}
	assert.Assert(t, is.Len(s.log.http("GET"), 1))
	assert.Equal(t, s.raw("POST", s.header(), httpPeerPing), http.StatusOK)
	assert.NilError(t, s.Close())
	ends := s.log.http("DELETE")
	assert.Assert(t, is.Len(ends, 1))
	assert.Equal(t, ends[0].Status, http.StatusOK)
	assert.Equal(t, ends[0].Header.Get("Mcp-Session-Id"), ids[0])
	assert.Equal(t, s.raw("POST", s.header(), httpPeerPing), gone)
}

func TestHTTPModern(t *testing.T) {
	for _, peer := range eraModern() {
		for _, revision := range eraRevisions() {
			t.Run(peer.name+"/"+revision, func(t *testing.T) {
				checkLeaks(t)
				p := startHTTPPeer(t, httpPeerCommand(peer.command(t), "http"), "")
				s := p.session(t, revision)
				s.testModern(peer.name, revision, p.stderr)
				s.testEnd(http.StatusNotFound)
			})
		}
	}
}

func TestHTTPStatelessOnly(t *testing.T) {
	checkLeaks(t)
	p := startHTTPPeer(t, httpPeerCommand(eraNode(t, "modern_server.mjs"), "http", "reject"), "")
	s := p.session(t, "")
	assert.Equal(t, s.Server.ProtocolVersion, statelessRevision)
	assert.Equal(t, s.text("echo", `{"message":"on"}`), "on")
	s.testEnd(0)

	_, err := Connect(s.ctx, &HTTP{URL: p.url}, &ClientOptions{Protocol: "2025-11-25"})
	assert.Equal(t, refused(t, err), int64(CodeUnsupportedVersion))
	assert.ErrorContains(t, err, "initialize: ")
}

// A server of the handshake era may keep no sessions, and then has nothing to tell beside its answers.
func TestHTTPSessionless(t *testing.T) {
	checkLeaks(t)
	p := startHTTPPeer(t, httpPeerCommand(eraNode(t, "modern_server.mjs"), "http", "sessionless"), "")
	for _, revision := range handshakeRevisions() {
		s := p.session(t, revision)
		s.testTools()
		s.testPrompts()
		get := s.log.http("GET")
		assert.Assert(t, is.Len(get, 1))
		assert.Equal(t, get[0].Status, http.StatusMethodNotAllowed)
		s.testEnd(0)
	}
}

func TestHTTPEverything(t *testing.T) {
	checkLeaks(t)
	p := startHTTPPeer(t, httpEverything(t, "streamableHttp"), "/mcp")
	for _, revision := range append([]string{""}, handshakeRevisions()...) {
		t.Run(revision, func(t *testing.T) {
			checkLeaks(t)
			s := p.session(t, revision)
			s.testEverything(revision)
			assert.Assert(t, len(s.wire.with("< ", `"roots/list"`)) > 0) // which it asks by itself, and sometimes twice
			s.testEnd(http.StatusBadRequest)                             // for which the protocol wants 404
		})
	}
	t.Run("forced", func(t *testing.T) {
		checkLeaks(t)
		s := p.newSession(t)
		_, err := Connect(s.ctx, &HTTP{URL: p.url}, &ClientOptions{Protocol: statelessRevision})
		assert.ErrorContains(t, err, "the server does not speak 2026-07-28: server/discover: ")
		refused(t, err)
	})
}

// What the stateless era alone has.
func TestHTTPStateless(t *testing.T) {
	for _, peer := range eraModern() {
		t.Run(peer.name, func(t *testing.T) {
			checkLeaks(t)
			p := startHTTPPeer(t, httpPeerCommand(peer.command(t), "http"), "")
			for _, test := range []struct {
				name string
				run  func(s *httpPeerSession)
			}{
				{"errors", (*httpPeerSession).testErrors},
				{"headers", (*httpPeerSession).testParamHeaders},
				{"broken off", (*httpPeerSession).testBrokenOff},
				{"listens apart", func(s *httpPeerSession) { s.connectOn(s.transport(), s.options("")); s.testListensApart() }},
				{"listens to restarted", (*httpPeerSession).testListensToRestarted},
			} {
				t.Run(test.name, func(t *testing.T) {
					checkLeaks(t)
					test.run(p.newSession(t))
				})
			}
		})
	}
}

// Some errors have statuses. They are the server's answers all the same.
func (s *httpPeerSession) testErrors() {
	t := s.t
	s.connectOn(s.transport(), &ClientOptions{})
	_, err := s.request(s.ctx, "no/such", nil, new(watch))
	assert.Equal(t, refused(t, err), int64(CodeMethodNotFound))
	assert.Equal(t, s.log.rpc("no/such")[0].Status, http.StatusNotFound)
	_, err = s.CallTool(s.ctx, "ask", nil, nil)
	assert.Equal(t, refused(t, err), int64(CodeMissingCapability))
	assert.Equal(t, s.log.rpc("tools/call")[0].Status, http.StatusBadRequest)
	assert.Equal(t, s.text("echo", `{"message":"on"}`), "on")
}

// A parameter that the server wants in a header is sent there too, and the server compares the two.
func (s *httpPeerSession) testParamHeaders() {
	t := s.t
	s.connectOn(s.transport(), s.options(""))
	for _, region := range []string{"Bern", "Zürich", " =?base64?x?=", "a\tb\n", ""} {
		arguments, err := json.Marshal(map[string]any{"region": region, "urgent": true})
		assert.NilError(t, err)
		assert.Equal(t, strings.ToLower(s.text("route", string(arguments))), strings.ToLower(region)+", true")
	}
	calls := s.log.rpc("tools/call")
	assert.Assert(t, is.Len(calls, 6))
	assert.Equal(t, calls[0].Status, http.StatusBadRequest) // the client did not know yet that the tool has such parameters
	assert.Equal(t, calls[0].Header.Get("Mcp-Param-Region"), "")
	assert.Equal(t, calls[1].Header.Get("Mcp-Param-Region"), "Bern")
	assert.Equal(t, calls[2].Header.Get("Mcp-Param-Region"), "=?base64?WsO8cmljaA==?=")
	assert.Equal(t, calls[2].Header.Get("Mcp-Param-Urgent"), "true")
	if s.Server.Implementation.Name == "modern-typescript" { // the other one cannot say this without $ref
		assert.Equal(t, s.text("route", `{"region":"Bern","address":{"floor":-7}}`), "Bern, none, -7")
	}
}

// Nothing is resumed: the call is lost, and cancelled with its stream.
func (s *httpPeerSession) testBrokenOff() {
	t := s.t
	s.log.breaks = func(httpPeerExchange) string { return `"waiting"` }
	s.connectOn(s.transport(), s.options(""))
	_, err := s.CallTool(s.ctx, "wait", nil, nil)
	assert.Assert(t, httpPeerLost(err), "%v", err)
	assert.NilError(t, s.peer.stderr.await(s.ctx, "wait was cancelled\n"))
	assert.Assert(t, is.Len(s.log.rpc("tools/call"), 1))
	assert.Equal(t, s.text("echo", `{"message":"on"}`), "on")
}

// What is listened to is lost with the server, as every request is.
func (s *httpPeerSession) testListensToRestarted() {
	t := s.t
	s.connectOn(s.transport(), s.options(""))
	l := s.listen(Subscription{Tools: true})
	s.peer.restart()
	err := l.wait()
	assert.Assert(t, httpPeerLost(err), "%v", err)
	l = s.listen(Subscription{Tools: true})
	s.text("grow", "")
	assert.DeepEqual(t, s.take(l, 1), map[Change]int{{List: "tools"}: 1})
}

// httpPeerLost says whether what came of a request is not known, on a connection that lives on.
func httpPeerLost(err error) bool {
	var lost *HTTPError
	return errors.As(err, &lost) && lost.Lost() && !errors.Is(err, ErrClosed) && !errors.Is(err, io.EOF)
}

// httpPeerWait is a server with a tool that reports progress once and then waits.
type httpPeerWait struct {
	name      string
	revision  string // that is forced
	command   func(t *testing.T) Command
	path      string
	tool      string
	arguments string
	echo      string // a tool that answers
	cancelled string // what it says on stderr when a call is cancelled; empty if it does not
}

func httpPeersThatWait() (peers []httpPeerWait) {
	for _, peer := range eraModern() {
		for _, revision := range []string{statelessRevision, "2025-11-25"} {
			peers = append(peers, httpPeerWait{
				name:     peer.name,
				revision: revision,
				command:  func(t *testing.T) Command { return httpPeerCommand(peer.command(t), "http") },
				tool:     "wait", echo: "echo", cancelled: "wait was cancelled\n",
			})
		}
	}
	return append(peers, httpPeerWait{
		name:     "everything",
		revision: "2025-11-25",
		command:  func(t *testing.T) Command { return httpEverything(t, "streamableHttp") },
		path:     "/mcp",
		tool:     "trigger-long-running-operation", arguments: `{"duration":50,"steps":1000}`, echo: "echo",
	}, httpPeerWait{
		name:     "library_rag",
		revision: "2025-11-25",
		command:  func(t *testing.T) Command { return httpPeerCommand(peerPython(t, "60"), "http") },
		tool:     "parse_pdf", echo: "environment", cancelled: "parse_pdf cancelled",
	})
}

// eachHTTPPeer runs a test against each of those servers.
func eachHTTPPeer(t *testing.T, peers []httpPeerWait, test func(t *testing.T, peer httpPeerWait, s *httpPeerSession)) {
	for _, peer := range peers {
		t.Run(peer.name+"/"+peer.revision, func(t *testing.T) {
			checkLeaks(t)
			p := startHTTPPeer(t, peer.command(t), peer.path)
			s := p.session(t, peer.revision)
			if peer.tool == "parse_pdf" {
				peer.arguments = s.pdf()
			}
			test(t, peer, s)
		})
	}
}

// alive says that the server answers calls.
func (s *httpPeerSession) alive(peer httpPeerWait) {
	s.t.Helper()
	result := s.call(peer.echo, `{"message":"on"}`)
	assert.Assert(s.t, !result.IsError, result.Content[0].Text)
}

func TestHTTPCalls(t *testing.T) {
	eachHTTPPeer(t, httpPeersThatWait(), func(t *testing.T, peer httpPeerWait, s *httpPeerSession) {
		s.testConnections(peer)
		s.testInFlight(peer)
		s.testClosedWhileBusy(peer)
	})
}

// testConnections: calls one after the other take one connection, beside that of the stream for what the server says by itself;
// but the end of an answer is not waited for long.
func (s *httpPeerSession) testConnections(peer httpPeerWait) {
	for range 20 {
		s.alive(peer)
	}
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	assert.Assert(s.t, s.log.dials <= 5, s.log.dials)
}

func (s *httpPeerSession) testInFlight(peer httpPeerWait) {
	t := s.t
	const calls = 64
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	begun, ended := make(chan struct{}, calls), make(chan error, calls)
	for range calls {
		go func() {
			once := sync.OnceFunc(func() { begun <- struct{}{} })
			_, err := s.CallTool(ctx, peer.tool, json.RawMessage(peer.arguments), func(Progress) { once() })
			ended <- err
		}()
	}
	for range calls {
		peerReceive(s.peerSession, begun)
	}
	var others sync.WaitGroup // while all of them are at work
	for i := range calls {
		others.Go(func() {
			text := fmt.Sprintf("message %d.", i)
			result, err := s.CallTool(s.ctx, peer.echo, json.RawMessage(fmt.Sprintf(`{"message":%q}`, text)), nil)
			assert.Check(t, err)
			if peer.echo == "echo" && err == nil {
				assert.Check(t, is.Contains(result.Content[0].Text, text))
			}
		})
	}
	others.Wait()
	cancel()
	for range calls {
		assert.ErrorIs(t, peerReceive(s.peerSession, ended), context.Canceled)
	}
	if peer.cancelled != "" {
		assert.NilError(t, s.peer.stderr.awaitCount(s.ctx, peer.cancelled, calls))
	}
	s.alive(peer)
}

// testClosedWhileBusy: what is at work when the client closes is over on both sides.
func (s *httpPeerSession) testClosedWhileBusy(peer httpPeerWait) {
	t := s.t
	cancelled := strings.Count(s.peer.stderr.String(), peer.cancelled)
	outcome := s.begin(peer.tool, peer.arguments)
	assert.NilError(t, s.Close())
	assert.ErrorIs(t, peerReceive(s.peerSession, outcome), ErrClosed)
	if peer.cancelled != "" && peer.name != "library_rag" { // which does not care
		assert.NilError(t, s.peer.stderr.awaitCount(s.ctx, peer.cancelled, cancelled+1))
	}
	if s.stateless() {
		assert.Assert(t, is.Len(s.log.rpc("notifications/cancelled"), 0))
		return
	}
	assert.Assert(t, len(s.log.rpc("notifications/cancelled")) >= 64)
	assert.Equal(t, s.raw("POST", s.header(), httpPeerPing)/100, 4)
}

// A client outlives its server: the next one at that address goes on.
func TestHTTPRestarted(t *testing.T) {
	peers := slices.DeleteFunc(httpPeersThatWait(), func(p httpPeerWait) bool {
		return p.name == "python" && p.revision != statelessRevision // else it is as library_rag
	})
	eachHTTPPeer(t, peers, func(t *testing.T, peer httpPeerWait, s *httpPeerSession) {
		sessions := 1
		if s.stateless() {
			sessions = 0
		} else {
			assert.Equal(t, s.raw("DELETE", s.header(), ""), http.StatusOK) // by somebody else
			s.alive(peer)
			s.alive(peer)
			sessions++
			assert.Assert(t, is.Len(s.sessions(), sessions))
		}

		s.peer.restart()
		var calls sync.WaitGroup // of which many find at once that there is no session
		for range 32 {
			calls.Go(func() {
				_, err := s.CallTool(s.ctx, peer.echo, json.RawMessage(`{"message":"on"}`), nil)
				assert.Check(t, err)
			})
		}
		calls.Wait()
		if sessions > 0 {
			sessions++
		}
		assert.Assert(t, is.Len(s.sessions(), sessions))

		before := len(s.log.rpc("tools/call"))
		outcome := s.begin(peer.tool, peer.arguments)
		s.peer.kill()
		if peer.name == "everything" { // which is asked in a second for what is left of the stream
			s.peer.restart()
		}
		err := peerReceive(s.peerSession, outcome)
		assert.Assert(t, httpPeerLost(err), "%v", err)
		assert.Equal(t, len(s.log.rpc("tools/call")), before+1, "a call that may have been made is not made again")
		if peer.name != "everything" {
			_, err = s.CallTool(s.ctx, peer.echo, json.RawMessage(`{"message":"on"}`), nil)
			assert.Assert(t, httpPeerLost(err), "%v", err) // nobody is there
			s.peer.restart()
		}
		s.alive(peer)
		if sessions > 0 {
			sessions++
			x := s.log.rpc("tools/call")
			assert.Equal(t, x[len(x)-1].Header.Get("Mcp-Session-Id"), s.sessions()[sessions-1])
		}
		assert.Assert(t, is.Len(s.sessions(), sessions))
		assert.Assert(t, is.Len(s.log.rpc("notifications/initialized"), sessions))
		assert.Assert(t, len(s.log.rpc("initialize")) == sessions)
	})
}

// Changes are told of by the server that is there now.
func TestHTTPListensToRestarted(t *testing.T) {
	t.Run("lists", func(t *testing.T) {
		checkLeaks(t)
		p := startHTTPPeer(t, httpPeerCommand(eraNode(t, "modern_server.mjs"), "http"), "")
		s := p.session(t, "2025-11-25")
		l := s.listen(Subscription{Tools: true})
		s.tools()
		p.restart()
		s.text("grow", "")
		assert.DeepEqual(t, s.take(l, 1), map[Change]int{{List: "tools"}: 1})
		assert.Assert(t, is.Contains(s.tools(), "grown"))
		assert.ErrorIs(t, l.stop(), context.Canceled)
	})
	t.Run("resources", func(t *testing.T) {
		checkLeaks(t)
		p := startHTTPPeer(t, httpEverything(t, "streamableHttp"), "/mcp")
		s := p.session(t, "")
		const uri = "demo://resource/dynamic/text/1"
		l := s.listen(Subscription{URIs: []string{uri}})
		p.restart()
		s.text("toggle-subscriber-updates", "")
		assert.DeepEqual(t, s.take(l, 1), map[Change]int{{URI: uri}: 1})
		assert.ErrorIs(t, l.stop(), context.Canceled)
	})
}

// A stream that breaks off is resumed where it broke off, if the server has the means for it.
func TestHTTPResumed(t *testing.T) {
	checkLeaks(t)
	p := startHTTPPeer(t, httpPeerCommand(eraNode(t, "modern_server.mjs"), "http"), "")
	s := p.newSession(t)
	s.log.breaks = func(x httpPeerExchange) string {
		switch {
		case x.RPC == "tools/call":
			return `"progress":1`
		case x.Method == "GET" && x.Header.Get("Last-Event-ID") == "":
			return "note://text"
		}
		return ""
	}
	s.connectOn(s.transport(), s.options("2025-11-25"))
	var got []Progress
	result, err := s.CallTool(s.ctx, "count", json.RawMessage(`{"steps":3}`), func(p Progress) { got = append(got, p) })
	assert.NilError(t, err)
	assert.Equal(t, result.Content[0].Text, "counted to 3")
	assert.DeepEqual(t, got, []Progress{{1, 3, "step 1"}, {2, 3, "step 2"}, {3, 3, "step 3"}})
	resumed := s.log.that(func(x httpPeerExchange) bool { return x.Header.Get("Last-Event-ID") != "" })
	assert.Assert(t, len(resumed) > 0)
	assert.Assert(t, is.Len(s.log.rpc("tools/call"), 1))

	l := s.listen(Subscription{URIs: []string{"note://text"}})
	for range 3 {
		s.text("touch", `{"uri":"note://text"}`)
	}
	assert.DeepEqual(t, s.take(l, 3), map[Change]int{{URI: "note://text"}: 3})
	assert.Equal(t, s.text("echo", `{"message":"on"}`), "on")
	assert.Assert(t, is.Len(l.changes, 0))
}

// This server replays more than what was missed.
func TestHTTPResumedEverything(t *testing.T) {
	checkLeaks(t)
	p := startHTTPPeer(t, httpEverything(t, "streamableHttp"), "/mcp")
	s := p.newSession(t)
	s.log.breaks = func(x httpPeerExchange) string {
		if x.RPC == "tools/call" {
			return "data: " // of the event that is there for its id alone
		}
		return ""
	}
	s.connectOn(s.transport(), s.options("2025-11-25"))
	assert.Equal(t, s.text("echo", `{"message":"on"}`), "Echo: on")
	resumed := s.log.that(func(x httpPeerExchange) bool { return x.Header.Get("Last-Event-ID") != "" })
	assert.Assert(t, len(resumed) > 0)
}

func TestHTTPLibraryRAG(t *testing.T) {
	for _, mode := range [][]string{{}, {"json"}, {"stateless"}} {
		t.Run(strings.Join(mode, " "), func(t *testing.T) {
			checkLeaks(t)
			p := startHTTPPeer(t, httpPeerCommand(httpPeerCommand(peerPython(t, "0.1"), "http"), mode...), "")
			s := p.session(t, "")
			assert.Equal(t, s.Server.ProtocolVersion, "2025-11-25")
			assert.Equal(t, s.Server.Implementation.Name, "library-rag")
			assert.Assert(t, is.Contains(s.tools(), "search_chunks"))
			assert.Equal(t, s.search(`{"query":"common name","author_filter":"Pierre Abélard"}`).TotalCount, 1)
			assert.Assert(t, is.Contains(s.failure("search_chunks", `{"query":"x","limit":0}`), "limit must be from 1 to 500, not 0"))
			var got []Progress
			_, err := s.CallTool(s.ctx, "parse_pdf", json.RawMessage(s.pdf()), func(progress Progress) { got = append(got, progress) })
			assert.NilError(t, err)
			if slices.Contains(mode, "json") {
				assert.Assert(t, is.Len(got, 0)) // an answer that is JSON has room for nothing else
			} else {
				assert.Assert(t, is.Len(got, 6))
				assert.DeepEqual(t, got[5], Progress{5, 5, "done"})
			}
			query := strings.Repeat("é", 1<<20)
			assert.Assert(t, s.search(`{"query":"`+query+`"}`).Query == query) // 12 MiB on the wire
			if slices.Contains(mode, "stateless") {
				s.testEnd(0)
			} else {
				s.testEnd(http.StatusNotFound)
			}
			if slices.Contains(mode, "json") {
				p.session(t, "").testKilledBeforeHeaders()
			}
		})
	}
}

// testKilledBeforeHeaders: an answer that is JSON has not even begun before it is there.
func (s *httpPeerSession) testKilledBeforeHeaders() {
	s.peer.command.Env = []string{"LIBRARY_RAG_SECONDS=60"}
	s.peer.restart()
	pdf, outcome := s.pdf(), make(chan error, 1)
	go func() {
		_, err := s.CallTool(s.ctx, "parse_pdf", json.RawMessage(pdf), nil)
		outcome <- err
	}()
	assert.NilError(s.t, s.peer.stderr.await(s.ctx, "parse_pdf started"))
	s.peer.kill()
	err := peerReceive(s.peerSession, outcome)
	assert.Assert(s.t, httpPeerLost(err), "%v", err)
}

// A message that is too large is refused, by either side, and the session goes on.
func TestHTTPTooLarge(t *testing.T) {
	checkLeaks(t)
	p := startHTTPPeer(t, httpPeerCommand(peerPython(t, "0"), "http"), "")
	s := p.newSession(t)
	s.connectOn(&HTTP{URL: p.url, Client: s.log.client(), MaxMessage: 1 << 20}, s.options(""))
	query := func(size int) json.RawMessage {
		return json.RawMessage(`{"query":"` + strings.Repeat("x", size) + `"}`)
	}
	_, err := s.CallTool(s.ctx, "search_chunks", query(5<<20), nil)
	refusal := new(HTTPError)
	assert.Assert(t, errors.As(err, &refusal), "%v", err)
	assert.Equal(t, refusal.Status, http.StatusRequestEntityTooLarge)
	_, err = s.CallTool(s.ctx, "search_chunks", query(1<<20), nil)
	tooLong := new(BodyTooLongError)
	assert.Assert(t, errors.As(err, &tooLong), "%v", err)
	assert.Equal(t, tooLong.Limit, 1<<20)
	assert.Equal(t, s.search(`{"query":"zebra"}`).TotalCount, 0)
}

// startSSE connects over HTTP+SSE.
func (p *httpPeer) startSSE(t *testing.T, revision string) *httpPeerSession {
	t.Helper()
	s := p.newSession(t)
	transport, err := StartSSE(s.ctx, &HTTP{URL: p.url, Client: s.log.client()})
	assert.NilError(t, err)
	s.connectOn(transport, s.options(revision))
	return s
}

func TestSSEEverything(t *testing.T) {
	checkLeaks(t)
	p := startHTTPPeer(t, httpEverything(t, "sse"), "/sse")
	for _, revision := range []string{"", "2024-11-05"} {
		t.Run(revision, func(t *testing.T) {
			checkLeaks(t)
			p.startSSE(t, revision).testEverything(revision)
		})
	}
}

func TestSSEOld(t *testing.T) {
	checkLeaks(t)
	p := startHTTPPeer(t, httpPeerCommand(eraNode(t, "old_server.mjs"), "sse"), "")
	p.startSSE(t, "").testOld()
}

// With its one stream, everything is over.
func TestSSEKilled(t *testing.T) {
	checkLeaks(t)
	p := startHTTPPeer(t, httpEverything(t, "sse"), "/sse")
	s := p.startSSE(t, "")
	outcome := s.begin("trigger-long-running-operation", `{"duration":50,"steps":1000}`)
	p.kill()
	err := peerReceive(s.peerSession, outcome)
	assert.ErrorIs(t, err, ErrClosed)
	assert.ErrorContains(t, err, p.url)
	assert.ErrorIs(t, s.Ping(s.ctx), ErrClosed)
}

// Which of the two transports a server speaks is found out.
func TestSSEFound(t *testing.T) {
	checkLeaks(t)
	for _, test := range []struct {
		name, path string
		command    Command
		echo       string
	}{
		{"everything", "/sse", httpEverything(t, "sse"), "Echo: on"},
		{"old", "", httpPeerCommand(eraNode(t, "old_server.mjs"), "sse"), "on"},
	} {
		t.Run(test.name, func(t *testing.T) {
			checkLeaks(t)
			s := startHTTPPeer(t, test.command, test.path).newSession(t)
			server := &Server{URL: s.peer.url}
			var err error
			s.Client, err = server.Connect(s.ctx, *s.options(""))
			assert.NilError(t, err)
			assert.Equal(t, s.text("echo", `{"message":"on"}`), test.echo)
			assert.NilError(t, s.Close())

			server.URL += "/nowhere"
			_, err = server.Connect(s.ctx, *s.options(""))
			assert.ErrorContains(t, err, "404")
			assert.ErrorContains(t, err, "nor is it HTTP+SSE")
		})
	}
}

func TestProgramOnHTTPPeers(t *testing.T) {
	for _, test := range []struct {
		name, path            string
		command               Command
		tool, arguments, want string
	}{
		{"typescript", "", httpPeerCommand(eraNode(t, "modern_server.mjs"), "http"), "echo", `{"message":"on"}`, "on"},
		{"everything", "/mcp", httpEverything(t, "streamableHttp"), "get-sum", `{"a":2,"b":3}`, "The sum of 2 and 3 is 5."},
		{"SSE", "/sse", httpEverything(t, "sse"), "get-sum", `{"a":2,"b":3}`, "The sum of 2 and 3 is 5."},
		{"library_rag", "", httpPeerCommand(peerPython(t, "0"), "http"), "search_chunks", `{"query":"common name"}`, "Abélard"},
	} {
		t.Run(test.name, func(t *testing.T) {
			checkLeaks(t)
			p := peerProgram{t: t, url: startHTTPPeer(t, test.command, test.path).url}
			p.run("call", test.tool, test.arguments)
			assert.Equal(t, p.status, 0)
			assert.Assert(t, is.Contains(p.stdout, test.want))

			model := newModelServer(t, modelCalls(modelCall("aaaaaaaa1", test.tool, test.arguments)), modelText("The answer."))
			p.env = peerModel(model)
			p.run("A question?")
			assert.Equal(t, p.status, 0)
			assert.Equal(t, p.stdout, "The answer.\n")
			assert.Assert(t, is.Contains(model.Requests()[1].Last(), test.want))
		})
	}
}
