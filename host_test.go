package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

// hostPeer is a server in memory, through all its starts.
type hostPeer struct {
	Server

	answer func(ctx context.Context, method string) any // if it returns not nil, that is the answer: an error or a result
	wrap   func(Transport) Transport                    // around the client's transport, if set

	mu     sync.Mutex                       // guards the following
	names  []string                         // of its tools
	says   string                           // its instructions
	fails  error                            // what a start ends with
	slow   time.Duration                    // how long a start takes
	writes time.Duration                    // how long it writes to stderr after the start of the host
	to     map[string]func(*hostPeer) error // how it answers a method, where it does not as it should; hostEnds ends it
	lists  int                              // how often it was asked for its tools
	called []string
	starts []time.Time
	conn   *Conn // of the last start
}

var errHostEnds = errors.New("the server ends without an answer")

func newHostPeer(name string, tools ...string) *hostPeer {
	p := &hostPeer{names: tools, to: make(map[string]func(*hostPeer) error)}
	p.Server = Server{Name: name, Start: p.start, Timeout: 30 * time.Minute} // as in the program
	return p
}

func startHost(t *testing.T, peers ...*hostPeer) *Host {
	t.Helper()
	host := hostOf(t, peers...)
	host.Start(t.Context())
	return host
}

// hostOf is a host that has not started its servers.
func hostOf(t *testing.T, peers ...*hostPeer) *Host {
	t.Helper()
	var servers []Server
	for _, p := range peers {
		servers = append(servers, p.Server)
	}
	host := NewHost(servers, nil)
	t.Cleanup(func() {
		host.Close()
		for _, p := range peers {
			if p.conn != nil {
				p.conn.Close()
			}
		}
	})
	return host
}

func (p *hostPeer) start(ctx context.Context) (Transport, error) {
	p.mu.Lock()
	p.starts = append(p.starts, time.Now())
	slow := p.slow
	p.mu.Unlock()
	if err := hostPause(ctx, slow); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fails != nil {
		return nil, p.fails
	}
	in, out := io.Pipe()
	theirIn, theirOut := io.Pipe()
	if p.conn != nil {
		p.conn.Close()
	}
	p.conn = NewConn(NewLines(theirIn, out), Handler{Request: p.request})
	var ours Transport = NewLines(in, theirOut)
	if p.wrap != nil {
		ours = p.wrap(ours)
	}
	return hostTransport{ours, p, time.Now().Add(p.writes)}, nil
}

// hostTransport is a transport to a server that writes to stderr for a while.
type hostTransport struct {
	Transport
	peer  *hostPeer
	until time.Time
}

func (t hostTransport) Stderr() (string, time.Time) {
	if t.peer.writes == 0 {
		return "", time.Time{}
	}
	if time.Now().Before(t.until) {
		return "loading", time.Now()
	}
	return "loading", t.until
}

// hostPause waits, unless ctx ends before.
func hostPause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (p *hostPeer) request(ctx context.Context, c *Conn, method string, params json.RawMessage) (any, error) {
	if p.answer != nil {
		if answer := p.answer(ctx, method); answer == errHostEnds {
			return nil, hostEnds(ctx, c)
		} else if err, ok := answer.(error); ok {
			return nil, err
		} else if answer != nil {
			return answer, nil
		}
	}
	p.mu.Lock()
	to := p.to[method]
	if method == "tools/list" {
		p.lists++
	}
	p.mu.Unlock()
	if to != nil {
		if err := to(p); err == errHostEnds {
			return nil, hostEnds(ctx, c)
		} else if err != nil {
			return nil, err
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch method {
	case "initialize":
		return map[string]any{
			"protocolVersion": "2025-11-25",
			"capabilities":    map[string]any{"tools": map[string]any{"listChanged": true}},
			"serverInfo":      map[string]any{"name": p.Name, "version": "1"},
			"instructions":    p.says,
		}, nil
	case "tools/list":
		tools := []Tool{}
		for _, name := range p.names {
			tool := Tool{Name: name, Description: "about " + name, InputSchema: json.RawMessage(`{"type":"object"}`)}
			if support, ok := strings.CutSuffix(name, "-task"); ok {
				tool.Execution = json.RawMessage(`{"taskSupport":"` + support + `"}`)
			}
			if strings.HasSuffix(name, "-safe") {
				tool.Annotations = json.RawMessage(`{"readOnlyHint":true}`)
			}
			tools = append(tools, tool)
		}
		return map[string]any{"tools": tools, "ttlMs": 60 * 60 * 1000}, nil
	case "tools/call":
		var call struct{ Name string }
		if err := json.Unmarshal(params, &call); err != nil {
			return nil, err
		}
		p.called = append(p.called, call.Name)
		return json.RawMessage(`{"content":[{"type":"text","text":"done by ` + p.Name + `"}]}`), nil
	}
	return nil, &Error{Code: CodeMethodNotFound, Message: method}
}

// hostEnds ends a server that is asked something, without an answer.
func hostEnds(ctx context.Context, c *Conn) error {
	c.CancelRequest(requestID(c, ctx)) // else the end could come after an answer
	go c.Close()
	return nil
}

// die ends the server, and returns when the host can know it.
func (p *hostPeer) die(h *Host) {
	client := p.hosted(h).client
	p.conn.Close()
	<-client.Done()
}

// hosted is the server in the host.
func (p *hostPeer) hosted(h *Host) *hosted {
	return h.servers[slices.IndexFunc(h.servers, func(s *hosted) bool { return s.Name == p.Name })]
}

// change makes the server tell of other tools, and returns when the host has heard of it: a
// server's request is answered by the client after it has read what came before.
func (p *hostPeer) change(t *testing.T, names ...string) {
	p.mu.Lock()
	p.names = names
	p.mu.Unlock()
	assert.NilError(t, p.conn.Notify(t.Context(), "notifications/tools/list_changed", nil))
	assert.NilError(t, p.conn.Call(t.Context(), "ping", nil, nil))
}

// hostFunctions are the names that a model would be offered.
func hostFunctions(ctx context.Context, h *Host) string {
	functions, err := h.Functions(ctx)
	var names []string
	for _, f := range functions {
		names = append(names, f.Name)
	}
	return hostOutcome(strings.Join(names, " "), err)
}

// hostCall calls a tool, and says what came of it.
func hostCall(ctx context.Context, h *Host, name string) string {
	result, err := h.CallTool(ctx, name, nil, nil)
	if err != nil {
		return hostOutcome("", err)
	}
	return ModelText(result)
}

// hostStatus are the errors in Status.
func hostStatus(h *Host) string {
	var errs []string
	for _, s := range h.Status() {
		if s.Err != nil {
			errs = append(errs, s.Name+": "+s.Err.Error())
		}
	}
	return strings.Join(errs, "; ")
}

func hostOutcome(text string, err error) string {
	if err != nil {
		text = err.Error()
	}
	return strings.ReplaceAll(text, "\n", "/")
}

// hostSession is one session of testdata/host.txt.
type hostSession struct {
	t     *testing.T
	peers []*hostPeer
	host  *Host
	begun time.Time // when elapsed and starts count from

	mu   sync.Mutex // guards slow
	slow []string   // what OnSlowStart was called with
}

// peer is the server of that name. Where one is called "a b" its name is that much of the words.
func (s *hostSession) peer(name string) *hostPeer {
	i := slices.IndexFunc(s.peers, func(p *hostPeer) bool { return p.Name == name })
	assert.Assert(s.t, i >= 0, "no server %q", name)
	return s.peers[i]
}

func (s *hostSession) duration(text string) time.Duration {
	d, err := time.ParseDuration(text)
	assert.NilError(s.t, err)
	return d
}

// do runs a command and returns its outcome.
func (s *hostSession) do(command string, words []string) string {
	ctx := s.t.Context()
	first, rest := "", []string(nil)
	if len(words) > 0 {
		first, rest = words[0], words[1:]
	}
	last := strings.Join(rest, " ")
	switch command {
	case "server": // with these tools
		p := newHostPeer(first, rest...)
		p.OnSlowStart = func(limit time.Duration) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.slow = append(s.slow, first+" "+limit.String())
		}
		s.peers = append(s.peers, p)
	case "excluded":
		s.peer(first).ExcludedTools = rest
	case "timeout":
		s.peer(first).StartTimeout = s.duration(last)
	case "command": // that would start it
		s.peer(first).Command.Path = last
	case "slow-starts": // that the host has told of
		s.mu.Lock()
		defer s.mu.Unlock()
		return strings.Join(s.slow, " ")
	case "start": // the host
		s.begun = time.Now()
		s.host = startHost(s.t, s.peers...)
	case "host": // which starts none
		s.begun = time.Now()
		s.host = hostOf(s.t, s.peers...)
	case "restart":
		return hostOutcome("", s.host.Restart(ctx, first))
	case "missing":
		return hostOutcome("", s.host.Missing(first))
	case "close":
		return hostOutcome("", s.host.Close())
	case "now":
		s.begun = time.Now()
	case "sleep":
		time.Sleep(s.duration(first))
		synctest.Wait()
	case "elapsed":
		return time.Since(s.begun).String()
	case "functions":
		return hostFunctions(ctx, s.host)
	case "turn": // and what it begins
		_, _ = s.host.Functions(ctx)
		synctest.Wait()
	case "tools": // as SERVER:TOOL, of these servers
		tools, err := s.host.Tools(ctx, words...)
		var names []string
		for _, tool := range tools {
			names = append(names, tool.Server+":"+tool.Tool.Name)
		}
		return hostOutcome(strings.Join(names, " "), err)
	case "tool":
		tool, err := s.host.Tool(first)
		return hostOutcome(tool.Server+":"+tool.Tool.Name, err)
	case "call":
		outcome := hostCall(ctx, s.host, first)
		synctest.Wait() // for all to notice
		return outcome
	case "calling": // which goes on
		go hostCall(ctx, s.host, first)
		synctest.Wait()
	case "calls": // several at once, with one outcome for all
		outcomes := make(chan string, 20)
		for range 20 {
			go func() { outcomes <- hostCall(ctx, s.host, rest[0]) }()
			go func() { s.host.Status(); _, _ = s.host.Tool(rest[0]) }()
		}
		outcome := <-outcomes
		for range 19 {
			assert.Equal(s.t, <-outcomes, outcome)
		}
		return outcome
	case "impatient": // a call that is given up after a while
		ctx, cancel := context.WithTimeoutCause(ctx, s.duration(first), errors.New("enough"))
		defer cancel()
		return hostCall(ctx, s.host, rest[0])
	case "client": // the server that it is connected to
		client, err := s.host.Client(ctx, first)
		if err != nil {
			return hostOutcome("", err)
		}
		return client.Server.Implementation.Name
	case "status":
		return hostStatus(s.host)
	case "instructions":
		return hostOutcome(s.host.Instructions(), nil)
	case "restarts":
		return fmt.Sprint(s.peer(first).hosted(s.host).status().Restarts)
	case "state":
		status := s.host.Status()[slices.IndexFunc(s.host.servers, func(h *hosted) bool { return h.Name == first })]
		retry := time.Until(status.Retry).Round(time.Second)
		switch {
		case status.Running:
			return "running"
		case status.Starting:
			return fmt.Sprintf("starting, in %s", retry)
		}
		return fmt.Sprintf("not running, tried again in %s", retry)
	case "dies":
		s.peer(first).die(s.host)
	case "changed": // the server tells of its tools
		s.peer(first).change(s.t, rest...)
	default:
		synctest.Wait() // for what goes on in the background
		return s.peer(first).do(command, rest, last, s.begun)
	}
	return ""
}

// do runs a command that is about one server.
func (p *hostPeer) do(command string, rest []string, last string, begun time.Time) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch command {
	case "says":
		p.says = last
	case "offers": // other tools, and tells nobody
		p.names = rest
	case "slow": // from now on a start takes so long
		p.slow, _ = time.ParseDuration(last)
	case "writes":
		p.writes, _ = time.ParseDuration(last)
	case "broken": // from now on a start fails
		p.fails = errors.New(last)
	case "repaired":
		p.fails = nil
	case "refuses": // a method, with this code
		var code int64
		fmt.Sscan(rest[1], &code)
		p.to[rest[0]] = func(*hostPeer) error { return &Error{Code: code, Message: "not now"} }
	case "ends":
		p.to[rest[0]] = func(*hostPeer) error { return errHostEnds }
	case "ends-once":
		p.to[rest[0]] = func(p *hostPeer) error {
			p.mu.Lock()
			defer p.mu.Unlock()
			delete(p.to, rest[0])
			return errHostEnds
		}
	case "delays":
		d, _ := time.ParseDuration(rest[1])
		p.to[rest[0]] = func(*hostPeer) error { time.Sleep(d); return nil }
	case "answers":
		clear(p.to)
	case "lists": // how often it was asked for them
		return fmt.Sprint(p.lists)
	case "called":
		return strings.Join(p.called, " ")
	case "starts": // in seconds
		var seconds []string
		for _, start := range p.starts {
			seconds = append(seconds, fmt.Sprint(int(start.Sub(begun)/time.Second)))
		}
		return strings.Join(seconds, " ")
	default:
		return "there is no such command"
	}
	return ""
}

// TestHost plays the sessions of testdata/host.txt.
func TestHost(t *testing.T) {
	playCases(t, "testdata/host.txt", func(t *testing.T, _ string, given []string) (outcomes [][]string) {
		synctest.Test(t, func(t *testing.T) {
			s := &hostSession{t: t}
			for _, line := range given {
				mark, text, _ := strings.Cut(line, " ")
				if mark == "@" {
					text = "sleep " + text
				}
				words := strings.Fields(text)
				var lines []string
				if outcome := s.do(words[0], words[1:]); outcome != "" {
					lines = []string{"= " + outcome}
				}
				outcomes = append(outcomes, lines)
			}
		})
		return outcomes
	})
}

func TestHostFunctions(t *testing.T) {
	checkLeaks(t)
	peer := newHostPeer("one", "search", "files.read")
	host := startHost(t, peer)
	functions, err := host.Functions(t.Context())
	assert.NilError(t, err)
	assert.DeepEqual(t, functions, []Function{
		{Name: "search", Description: "about search", Parameters: json.RawMessage(`{"properties":{},"type":"object"}`)},
		{Name: "files_read", Description: "about files.read",
			Parameters: json.RawMessage(`{"properties":{},"type":"object"}`)},
	})
	assert.Equal(t, host.Status()[0].Info.Implementation.Name, "one")
	assert.Equal(t, host.Status()[0].Tools, 2)
}

// However many tools there are, all are listed: a Finder chooses. Those that alwaysAllow names are marked for it.
func TestHostManyTools(t *testing.T) {
	checkLeaks(t)
	peer, other := newHostPeer("one"), newHostPeer("two", "a", "b")
	for i := range MaxFunctions {
		peer.names = append(peer.names, fmt.Sprint("tool", i))
	}
	other.ExcludedTools, other.AutoApprove = []string{"a"}, []string{"b*"}
	functions, err := startHost(t, peer, other).Functions(t.Context())
	assert.NilError(t, err)
	assert.Equal(t, len(functions), MaxFunctions+1)
	for _, f := range functions {
		assert.Equal(t, f.Pinned, f.Name == "two__b", f.Name)
	}
}

// What a server says to a model has its bounds: its descriptions and its instructions.
func TestHostCutsText(t *testing.T) {
	checkLeaks(t)
	long := strings.Repeat("x", maxDescription) + "yz"
	peer := newHostPeer("one")
	peer.says = " " + long + "\n"
	peer.answer = func(_ context.Context, method string) any {
		if method != "tools/list" {
			return nil
		}
		return map[string]any{"tools": []Tool{{Name: "a", Description: long, InputSchema: json.RawMessage(`{}`)}}}
	}
	host := startHost(t, peer)
	functions, err := host.Functions(t.Context())
	assert.NilError(t, err)
	assert.Assert(t, functions[0].Description == Clip(long, maxDescription))
	tool, _ := host.Tool("a")
	assert.Assert(t, tool.Tool.Description == long)
	assert.Assert(t, host.Instructions() == "The server says of its tools:\n"+Clip(long, maxDescription))
}

// A tool whose schema cannot be one of arguments is left out, and named once; the others are
// offered.
func TestHostUnfitTools(t *testing.T) {
	checkLeaks(t)
	peer, other := newHostPeer("one"), newHostPeer("two", "b")
	// A name has no second line, and nothing that cannot be seen.
	schemas := map[string]string{"list": `[]`, "truth": `true`, "text": `"x"`, "number": `{"type":"number"}`,
		"all is well\n\x1b[2Kserver two": `7`}
	peer.answer = func(_ context.Context, method string) any {
		if method != "tools/list" {
			return nil
		}
		tools := []Tool{}
		for _, name := range slices.Sorted(maps.Keys(schemas)) {
			tools = append(tools, Tool{Name: name, InputSchema: json.RawMessage(schemas[name])})
		}
		return map[string]any{"tools": tools}
	}
	var warnings []string // of one server, whose list is asked for by one goroutine at a time
	options := func(s *Server) ClientOptions {
		return ClientOptions{Warn: func(text string) { warnings = append(warnings, s.Name+": "+text) }}
	}
	host := NewHost([]Server{peer.Server, other.Server}, options)
	defer host.Close()
	host.Start(t.Context())
	for range 3 {
		functions, err := host.Functions(t.Context())
		assert.NilError(t, err)
		var names []string
		for _, f := range functions {
			names = append(names, f.Name)
			assert.Equal(t, string(f.Parameters), `{"properties":{},"type":"object"}`)
		}
		assert.DeepEqual(t, names, []string{"one__list", "one__truth", "two__b"})
	}
	assert.DeepEqual(t, warnings, []string{`one: the tool "all is well\n\x1b[2Kserver two" is not offered to ` +
		`the model: its inputSchema is not an object: 7; the tool "number" is not offered to the model: ` +
		`its inputSchema has the ` +
		`type "number", and not object; the tool "text" is not offered to the model: its inputSchema is not an object: "x"`})
	tool, err := host.Tool("one__text") // without a model it is there, as it came
	assert.NilError(t, err)
	assert.Equal(t, string(tool.Tool.InputSchema), `"x"`)
	peer.conn.Close()
	other.conn.Close()
}

// A tool without a name cannot be called: it is not offered, and named by what the server says of it.
func TestHostNamelessTools(t *testing.T) {
	checkLeaks(t)
	peer := newHostPeer("one")
	peer.answer = func(_ context.Context, method string) any {
		if method != "tools/list" {
			return nil
		}
		return json.RawMessage(`{"tools":[{"name":null,"inputSchema":{}},` +
			`{"name":"","description":"Adds two.","inputSchema":{}},{"description":"Adds\nthree.","inputSchema":{}},` +
			`{"name":"a","inputSchema":{}},{"name":"a","inputSchema":{}}]}`)
	}
	var warnings []string // by the goroutine of a list, and there is one at a time
	options := func(*Server) ClientOptions {
		return ClientOptions{Warn: func(text string) { warnings = append(warnings, text) }}
	}
	host := NewHost([]Server{peer.Server}, options)
	defer host.Close()
	assert.Equal(t, hostFunctions(t.Context(), host), "a a_ca9781")
	assert.DeepEqual(t, warnings, []string{`the tool "" is not offered to the model: it has no name; the tool "" is not ` +
		`offered to the model: it has no name, but the description "Adds two."; the tool "" is not offered to the model: ` +
		`it has no name, but the description "Adds\nthree."`})
	peer.conn.Close()
}

// A server of several pages whose second fails has no list at all, rather than half of one.
func TestHostListHalf(t *testing.T) {
	checkLeaks(t)
	peer, pages := newHostPeer("one"), 0
	peer.answer = func(_ context.Context, method string) any {
		if method != "tools/list" {
			return nil
		}
		if pages++; pages > 1 {
			return &Error{Code: CodeInternalError, Message: "not now"}
		}
		return json.RawMessage(`{"tools":[{"name":"a","inputSchema":{}}],"nextCursor":"2"}`)
	}
	host := startHost(t, peer, newHostPeer("two", "b"))
	assert.Equal(t, hostFunctions(t.Context(), host), "two__b")
	_, err := host.Tool("a")
	var unknown *NameError
	assert.Assert(t, errors.As(err, &unknown) && unknown.Several == nil)
}

// A list that the caller gave up says nothing about the server, and the end of a start's ctx ends
// no server that runs.
func TestHostGivenUp(t *testing.T) {
	checkLeaks(t)
	reason := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	peer := newHostPeer("one", "a")
	peer.answer = func(ctx context.Context, method string) any {
		if method == "tools/list" {
			cancel(reason)
			<-ctx.Done()
		}
		return nil
	}
	host := startHost(t, peer)
	_, err := host.Tools(ctx)
	assert.ErrorIs(t, err, reason)
	assert.Equal(t, host.Status()[0].Err, ErrListing)

	ctx, cancel = context.WithCancelCause(t.Context())
	begins := func(ctx context.Context) (Transport, error) {
		cancel(reason)
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	second := NewHost([]Server{{Name: "two", Start: begins}}, nil)
	defer second.Close()
	second.Start(ctx)
	assert.Equal(t, second.Status()[0].Err, ErrStarting)
	assert.Assert(t, host.Status()[0].Running)
}

// Close ends a start that is under way, and a pause before one, for all who wait for them.
// (synctest looks for goroutines.)
func TestHostClosesStart(t *testing.T) {
	for what, failures := range map[string]int{"a start": 0, "a pause": 2} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				peer := newHostPeer("one", "a")
				host := startHost(t, peer)
				peer.die(host)
				peer.fails = errors.New("no memory")
				for range failures {
					hostCall(t.Context(), host, "a")
				}
				peer.slow = time.Hour
				begun := time.Now()
				var calls sync.WaitGroup
				for range 3 {
					calls.Go(func() {
						_, err := host.Client(context.Background(), "one")
						assert.Check(t, is.ErrorIs(err, ErrClosed))
					})
				}
				synctest.Wait()
				assert.NilError(t, host.Close())
				calls.Wait()
				assert.Equal(t, time.Since(begun), time.Duration(0))
			})
		})
	}
}

// A start that succeeds although the host is being closed leaves nothing.
func TestHostClosesLateStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		peer := newHostPeer("one", "a")
		var host *Host
		peer.Start = func(ctx context.Context) (Transport, error) {
			if host != nil {
				<-ctx.Done()
			}
			return peer.start(context.Background())
		}
		peer.answer = func(context.Context, string) any { return nil }
		host = startHost(t, peer)
		peer.die(host)
		go func() { _, _ = host.Client(t.Context(), "one") }()
		synctest.Wait()
		assert.NilError(t, host.Close())
		assert.Equal(t, len(peer.starts), 2)
	})
}

// stuckTransport cannot be closed well.
type stuckTransport struct{ Transport }

func (s stuckTransport) Close() error {
	_ = s.Transport.Close()
	return errors.New("stuck")
}

// A server that does not end well does not keep the others from theirs, and is named.
func TestHostCloseFails(t *testing.T) {
	checkLeaks(t)
	peer, other := newHostPeer("one"), newHostPeer("two")
	peer.wrap = func(t Transport) Transport { return stuckTransport{t} }
	host := startHost(t, peer, other)
	assert.Error(t, host.Close(), "server one: stuck")
	assert.ErrorIs(t, other.hosted(host).client.Err(), ErrClosed)
}

// hostModern is a server of the stateless era that tells of changed tools, to who listens.
type hostModern struct {
	*hostPeer
	listens []time.Time
	ids     []json.RawMessage
	end     chan any // how the subscription ends: an error or a result
}

const hostDiscovery = `{"resultType":"complete","supportedVersions":["2026-07-28"],` +
	`"capabilities":{"tools":{"listChanged":true}},"ttlMs":0}`

func newHostModern() *hostModern {
	m := &hostModern{hostPeer: newHostPeer("one", "a"), end: make(chan any)}
	m.answer = func(ctx context.Context, method string) any {
		switch method {
		case "server/discover":
			return json.RawMessage(hostDiscovery)
		case "subscriptions/listen":
			m.mu.Lock()
			m.listens = append(m.listens, time.Now())
			m.ids = append(m.ids, requestID(m.conn, ctx))
			m.mu.Unlock()
			select {
			case end := <-m.end:
				return end
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	}
	return m
}

// tell makes the server tell of other tools, by the subscription it has.
func (m *hostModern) tell(t *testing.T, names ...string) {
	m.mu.Lock()
	m.names = names
	id := m.ids[len(m.ids)-1]
	m.mu.Unlock()
	params := map[string]any{"_meta": map[string]any{"io.modelcontextprotocol/subscriptionId": id}}
	assert.NilError(t, m.conn.Notify(t.Context(), "notifications/tools/list_changed", params))
	synctest.Wait()
}

// seconds are when the subscriptions began.
func (m *hostModern) seconds(since time.Time) (seconds []int) {
	synctest.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, at := range m.listens {
		seconds = append(seconds, int(at.Sub(since)/time.Second))
	}
	return seconds
}

// In the stateless era a server tells only who listens, and the host does. A list that the server
// called fresh is read again when it tells of a change.
func TestHostListens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newHostModern()
		host := startHost(t, m.hostPeer)
		synctest.Wait()
		assert.Equal(t, hostFunctions(t.Context(), host), "a")
		m.tell(t, "b")
		assert.Equal(t, m.lists, 1)
		assert.Equal(t, hostFunctions(t.Context(), host), "b")
		assert.Equal(t, hostFunctions(t.Context(), host), "b")
		assert.Equal(t, m.lists, 2)

		// The next process is listened to as well, at once.
		m.die(host)
		assert.Equal(t, hostFunctions(t.Context(), host), "b")
		synctest.Wait()
		m.tell(t, "c")
		assert.Equal(t, hostFunctions(t.Context(), host), "c")
		assert.Equal(t, len(m.ids), 2)
	})
}

// A subscription that ends, in whatever way, is begun again after a pause. What changed meanwhile
// is seen.
func TestHostListensAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newHostModern()
		host := startHost(t, m.hostPeer)
		begun := time.Now()
		synctest.Wait()
		assert.Equal(t, hostFunctions(t.Context(), host), "a")
		m.end <- &Error{Code: CodeInternalError}
		synctest.Wait()
		m.names = []string{"b"} // of which it tells nobody
		time.Sleep(listenTime - time.Millisecond)
		assert.Equal(t, hostFunctions(t.Context(), host), "a")
		time.Sleep(time.Millisecond)
		synctest.Wait()
		assert.Equal(t, hostFunctions(t.Context(), host), "b")
		for range 3 {
			m.end <- json.RawMessage(`{"resultType":"complete"}`)
		}
		assert.DeepEqual(t, m.seconds(begun), []int{0, 5, 10, 15})
		assert.Equal(t, len(m.starts), 1)
	})
}

// A server that does not know the subscription it promised is not asked again, nor is one that has
// ended; and Close ends the pause.
func TestHostListensNoMore(t *testing.T) {
	for what, end := range map[string]any{
		"unknown": &Error{Code: CodeMethodNotFound},
		"ended":   errHostEnds,
		"closed":  &Error{Code: CodeInternalError},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newHostModern()
				host := startHost(t, m.hostPeer)
				synctest.Wait()
				m.end <- end
				synctest.Wait()
				if what == "closed" {
					assert.NilError(t, host.Close())
				}
				time.Sleep(time.Hour)
				assert.Equal(t, len(m.listens), 1)
			})
		})
	}
}

// A server that does not agree to tell of its tools is not asked again. Its list is kept no longer than it said.
func TestHostListensToAgreement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newHostModern()
		host := startHost(t, m.hostPeer)
		synctest.Wait()
		assert.NilError(t, m.conn.Notify(t.Context(), "notifications/subscriptions/acknowledged", map[string]any{
			"_meta":         map[string]any{"io.modelcontextprotocol/subscriptionId": m.ids[0]},
			"notifications": map[string]any{"promptsListChanged": true},
		}))
		time.Sleep(time.Hour)
		assert.Equal(t, len(m.listens), 1)
		assert.Equal(t, hostFunctions(t.Context(), host), "a")
		m.names = []string{"b"}
		time.Sleep(24 * time.Hour)
		assert.Equal(t, hostFunctions(t.Context(), host), "b")
	})
}

// What listens to a server is gone with it.
func TestHostListensToTheLiving(t *testing.T) {
	checkLeaks(t)
	m := newHostModern()
	host := startHost(t, m.hostPeer)
	assert.Equal(t, hostFunctions(t.Context(), host), "a")
	before := resources()
	for range 5 {
		m.die(host)
		assert.Equal(t, hostCall(t.Context(), host, "a"), "done by one")
	}
	assert.Equal(t, leftOver(before), "")
	assert.Equal(t, host.Status()[0].Restarts, 5)
}

// A server that promised to tell of nothing is not listened to.
func TestHostListensToPromises(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mute := newHostPeer("one", "a")
		mute.answer = func(_ context.Context, method string) any {
			switch method {
			case "server/discover":
				return json.RawMessage(strings.Replace(hostDiscovery, `"listChanged":true`, "", 1))
			case "subscriptions/listen":
				t.Error("is listened to")
			}
			return nil
		}
		startHost(t, mute)
		synctest.Wait()
	})
}

// lossyTransport loses the answers of calls: each tool's first.
type lossyTransport struct {
	Transport
	lost map[string]bool // by the tool's name
}

type errLost struct{}

func (errLost) Error() string { return "the answer is lost" }
func (errLost) Lost() bool    { return true }

func (l lossyTransport) Write(ctx context.Context, m Outgoing) error {
	if m.Method == "tools/call" && !l.lost[m.Name] {
		l.lost[m.Name] = true
		return errLost{}
	}
	return l.Transport.Write(ctx, m)
}

// A call whose answer is lost is made again if the server says that it does no harm.
func TestHostRepeats(t *testing.T) {
	checkLeaks(t)
	m := newHostModern()
	m.names = []string{"a", "b-safe"}
	m.wrap = func(t Transport) Transport { return lossyTransport{t, make(map[string]bool)} }
	host := startHost(t, m.hostPeer)
	assert.Equal(t, hostCall(t.Context(), host, "a"), "tools/call a: the answer is lost")
	assert.Equal(t, hostCall(t.Context(), host, "b-safe"), "done by one")
}

// A process that crashes in a call ends that call with what it last said; the calls after it have
// one new process.
func TestHostChildCrashes(t *testing.T) {
	checkLeaks(t)
	host := NewHost([]Server{{Name: "child", Command: childCommand("peer-tools")}}, nil)
	defer host.Close()
	host.Start(t.Context())
	assert.NilError(t, host.Status()[0].Err)
	assert.Assert(t, strings.Contains(" "+hostFunctions(t.Context(), host)+" ", " die "))
	for i := range 2 {
		const want = `^tools/call die: connection closed: server .* ended \(exit status \d+\), .*stderr.*$`
		assert.Assert(t, is.Regexp(want, hostCall(t.Context(), host, "die")))
		assert.ErrorContains(t, host.Status()[0].Err, "exit status")
		var calls sync.WaitGroup
		for range 10 {
			calls.Go(func() {
				result, err := host.CallTool(t.Context(), "echo", json.RawMessage(`{"text":"hello"}`), nil)
				assert.Check(t, err)
				assert.Check(t, is.Equal(ModelText(result), "hello"))
			})
		}
		calls.Wait()
		assert.Equal(t, host.Status()[0].Restarts, 1+i)
	}
}

// A program that does not exist, or ends at once, or is mute, does not keep the others, and is
// named with its last words.
func TestHostChildrenFail(t *testing.T) {
	checkLeaks(t)
	host := NewHost([]Server{
		{Name: "good", Command: childCommand("peer-tools")},
		{Name: "absent", Command: Command{Path: "./no-such-server"}},
		{Name: "exits", Command: childCommand("exits")},
		{Name: "mute", Command: childCommand("silent"), StartTimeout: time.Second},
		{Name: "wrong", Err: errors.New("it has neither a command nor a url")},
	}, nil)
	defer host.Close()
	host.Start(t.Context())
	const want = `^absent: .*no-such-server.*; exits: .*exit status 3.*cannot open the library.*; ` +
		`mute: .*the server did not start within 1s, stderr: started; wrong: it has neither a command nor a url$`
	assert.Assert(t, is.Regexp(want, hostStatus(host)))
	assert.ErrorIs(t, host.Status()[3].Err, context.DeadlineExceeded)
	assert.Assert(t, strings.HasPrefix(hostFunctions(t.Context(), host), "good__echo good__notes_read "))
}

// TestServerConnect: where an address does not speak Streamable HTTP, HTTP+SSE is tried, unless it
// cannot be that.
func TestServerConnect(t *testing.T) {
	checkLeaks(t)
	status, code := http.StatusNotFound, 0
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Method)
		w.WriteHeader(status)
		if code != 0 {
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":null,"error":{"code":%d,"message":"not so"}}`, code)
		}
	}))
	defer server.Close()
	for _, test := range []struct {
		status   int
		server   Server
		protocol string
		asked    string // the methods
		err      string
		code     int // of a JSON-RPC error
	}{
		{404, Server{}, "", "POST GET", `404 Not Found: .*; nor is it HTTP\+SSE: .*404 Not Found`, 0},
		{405, Server{}, "", "POST GET",
			`405 Method Not Allowed: not so \(error -32000\).*; nor is it HTTP\+SSE: .*405`, -32000},
		{400, Server{}, "2025-11-25", "POST GET", `400 Bad Request: not so \(error -32600\); nor is it HTTP\+SSE: `, -32600},
		{400, Server{}, "2025-11-25", "POST", `400 Bad Request: not so \(error -32020\)$`, CodeHeaderMismatch},
		{400, Server{}, "2025-11-25", "POST", `400 Bad Request: not so \(error -32022\)$`, CodeUnsupportedVersion},
		{404, Server{}, "2025-11-25", "POST", `404 Not Found: not so \(error -32601\)$`, CodeMethodNotFound},
		{500, Server{}, "2025-11-25", "POST", `initialize: not so \(error -32000\)$`, -32000},
		{405, Server{}, "2025-06-18", "POST GET", `405 Method Not Allowed: .*; nor is it HTTP\+SSE: .*405`, 0},
		{404, Server{}, "2026-07-28", "POST", "404 Not Found", 0},
		{500, Server{}, "2025-06-18", "POST", "500 Internal Server Error", 0},
		{404, Server{SSE: true}, "", "GET", "404 Not Found", 0},
		{404, Server{SSE: true}, "2026-07-28", "", `^HTTP\+SSE does not carry revision 2026-07-28$`, 0},
		{404, Server{Err: errors.New("no good")}, "", "", "^no good$", 0},
	} {
		asked, status, code = nil, test.status, test.code
		test.server.URL = server.URL
		client, err := test.server.Connect(t.Context(), ClientOptions{Protocol: test.protocol})
		assert.Check(t, client == nil)
		assert.Check(t, is.Regexp(test.err, fmt.Sprint(err)))
		// Of servers of unknown eras several things are asked.
		assert.Check(t, is.Equal(strings.Join(slices.Compact(asked), " "), test.asked), "%+v", test)
	}
}

// TestServerConnectSSE: a server of HTTP+SSE is found behind the refusal that it gives to
// Streamable HTTP, with a page or with a JSON-RPC error.
func TestServerConnectSSE(t *testing.T) {
	const failure = `{"jsonrpc":"2.0","error":{"code":-32000,"message":"Method not allowed."},"id":null}`
	for name, refusal := range map[string]string{
		"page":     "405 text/plain\n\nMethod Not Allowed",
		"JSON-RPC": "405 application/json\n\n" + failure,
	} {
		t.Run(name, func(t *testing.T) {
			checkLeaks(t)
			old := htOld("/post", func(w http.ResponseWriter, m htMessage, send func(events ...string)) {
				if m.ID != nil {
					result := `{"jsonrpc":"2.0","id":` + string(m.ID) + `,"result":{"protocolVersion":"2024-11-05"}}`
					send(htEvent(result))
				}
				htAccepted(w)
			})
			server := htServe(t, func(w http.ResponseWriter, r *http.Request, m htMessage) {
				if r.Method == http.MethodPost && r.URL.Path == "/sse" {
					htReply(refusal)(w, r, m)
					return
				}
				old(w, r, m)
			})
			client, err := (&Server{URL: server.URL + "/sse"}).Connect(t.Context(), ClientOptions{})
			assert.NilError(t, err)
			assert.Equal(t, client.Server.ProtocolVersion, "2024-11-05")
			assert.NilError(t, client.Close())
		})
	}
}

func TestServerGlobs(t *testing.T) {
	for _, test := range []struct {
		allowed, excluded, approved string // patterns, with spaces between
		tool, want                  string
	}{
		{"", "", "", "any", "allowed"},
		{"read_*", "", "", "read_file", "allowed"},
		{"read_*", "", "", "read_", "allowed"},
		{"read_*", "", "", "bread_file", ""},
		{"read", "", "", "read_file", ""},
		{"a?c", "", "", "abc", "allowed"},
		{"a?c", "", "", "aéc", "allowed"},
		{"a?c", "", "", "ac", ""},
		{"a.c", "", "", "abc", ""},
		{"[ab]", "", "", "a", ""},
		{`a\*`, "", "", `a\b`, "allowed"},
		{"*", "", "", "a/b\nc", "allowed"},
		{"a b", "", "", "b", "allowed"},
		{"", "delete_*", "", "delete_file", ""},
		{"", "*", "", "a/b", ""},
		{"*", "b a", "", "a", ""},
		{"", "", "read_*", "read_file", "allowed approved"},
		{"", "", "read_*", "write_file", "allowed"},
		{"", "", "a b", "b", "allowed approved"},
	} {
		s := Server{
			AllowedTools:  strings.Fields(test.allowed),
			ExcludedTools: strings.Fields(test.excluded),
			AutoApprove:   strings.Fields(test.approved),
		}
		got := ""
		if s.Allows(test.tool) {
			got = "allowed"
		}
		if s.Approves(test.tool) {
			got += " approved"
		}
		assert.Check(t, is.Equal(got, test.want), "%+v", test)
	}
}

// TestHostRestartsStart: a start that another one has replaced leaves nothing behind, neither its
// error nor its end, while the new one is under way.
func TestHostRestartsStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		peer := newHostPeer("one", "a")
		peer.slow = 20 * time.Second
		host := hostOf(t, peer)
		go host.Start(t.Context())
		time.Sleep(5 * time.Second)
		go func() { assert.Check(t, host.Restart(t.Context(), "one")) }()
		synctest.Wait()
		status := host.Status()[0]
		assert.Check(t, is.Equal(status.Err, ErrStarting))
		assert.Check(t, status.Starting)
		time.Sleep(20 * time.Second)
		synctest.Wait()
		assert.Check(t, host.Status()[0].Running)
		assert.Check(t, is.Equal(host.Status()[0].Restarts, 0))
		assert.Check(t, is.Equal(len(peer.starts), 2))
	})
}

// TestHostProgress: a call for an agent has its progress reported with the call.
func TestHostProgress(t *testing.T) {
	checkLeaks(t)
	peer := newHostPeer("one", "a")
	peer.answer = func(ctx context.Context, method string) any {
		if method == "tools/call" {
			params := json.RawMessage(`{"progressToken":` + string(requestID(peer.conn, ctx)) + `,"progress":1,"total":2}`)
			assert.Check(t, peer.conn.Notify(ctx, "notifications/progress", params))
		}
		return nil
	}
	host := startHost(t, peer)
	var reports []string
	host.OnProgress = func(call ToolCall) func(Progress) {
		return func(p Progress) { reports = append(reports, fmt.Sprint(call.ID, " ", p.Progress, "/", p.Total)) }
	}
	output, err := host.Call(t.Context(), ToolCall{ID: "x", Name: "a", Arguments: "{}"})
	assert.NilError(t, err)
	assert.Equal(t, output.Text, "done by one")
	assert.DeepEqual(t, reports, []string{"x 1/2"})

	output, err = host.Call(t.Context(), ToolCall{Name: "b"})
	assert.ErrorContains(t, err, `no server has a tool "b"`)
	assert.DeepEqual(t, output, ToolOutput{})
}
