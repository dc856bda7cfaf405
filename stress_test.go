package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

// TestStress is for the race detector and for patience:
//
//	go test -race -run '^TestStress$' -stress 10m -timeout 20m -v .
//
// Servers of both eras, on stdio and over HTTP, are called by many goroutines at once. The calm ones answer always;
// the wild ones crash, leave, expire, cut their answers off, say nothing, or do not read. Every answer has to be that
// of its call, a calm server's has to come, and what a server wrote before it left must not be lost. At the end there
// is nothing left: no goroutine, no process, no descriptor.
func TestStress(t *testing.T) {
	if *stressTime == 0 {
		t.Skip("how long? -stress 1m")
	}
	if *stressSeed == 0 {
		*stressSeed = uint64(time.Now().UnixNano())
	}
	t.Logf("-stress-seed %d", *stressSeed)
	checkLeaks(t)
	// Nothing here may wait for ever. What does is shown.
	defer time.AfterFunc(*stressTime+time.Minute, func() {
		debug.SetTraceback("all")
		panic("the stress does not end")
	}).Stop()
	life, stop := context.WithTimeoutCause(t.Context(), *stressTime, errStressOver)
	defer stop()
	s := &stressRun{T: t, life: life, lost: make(map[string]bool), counts: make(map[string]int)}
	s.client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	s.http = make(map[string]*httptest.Server)
	for i, era := range bothEras() {
		for j, mood := range []string{"calm", "wild"} {
			h := &stressHTTP{stressPeer: stressPeer{era}, wild: mood == "wild"}
			h.random = rand.New(rand.NewPCG(*stressSeed, uint64(100+2*i+j)))
			h.sessions, h.asked = make(map[string]bool), make(map[string]chan json.RawMessage)
			s.http[mood+era] = httptest.NewServer(h)
		}
	}

	options := func(server *Server) ClientOptions { return s.options(server.Name[len("wild-http-"):]) }
	host := NewHost(s.servers(), options)
	for _, server := range s.servers() {
		_, err := host.Client(life, server.Name)
		assert.NilError(t, err)
	}
	tools, err := host.Tools(life)
	assert.NilError(t, err)
	functions := make(map[string]string)
	for _, tool := range tools {
		functions[tool.Server+" "+tool.Tool.Name] = tool.Function
	}
	assert.Equal(t, len(functions), 8*len(stressTools()))
	var work sync.WaitGroup
	for i := range 12 {
		random := rand.New(rand.NewPCG(*stressSeed, uint64(i)))
		work.Go(func() {
			for life.Err() == nil {
				if i < 8 {
					s.useHost(random, host, functions)
				} else {
					s.liveOnce(random)
				}
			}
		})
	}
	work.Wait()
	for _, status := range host.Status() {
		s.counts["restarted"] += status.Restarts
		isWild := strings.HasPrefix(status.Name, "wild")
		assert.Check(t, status.Restarts == 0 || isWild, "%s ended: %v", status.Name, status.Err)
	}
	assert.Check(t, host.Close())
	for _, server := range s.http {
		server.CloseClientConnections()
		server.Close()
	}
	s.client.CloseIdleConnections()
	for _, nonce := range s.claims {
		assert.Check(t, !s.lost[nonce], "%s was answered, and the answer is lost", nonce)
	}
	t.Log(s.counts)
	for _, kind := range []string{
		"answered", "restarted", "cancelled", "closed in mid-call", "stuck", "flooded", "left", "crashed",
	} {
		assert.Check(t, s.counts[kind] > 0 || *stressTime < 10*time.Second, "never %s", kind)
	}
}

var (
	stressTime = flag.Duration("stress", 0, "how long TestStress runs")
	stressSeed = flag.Uint64("stress-seed", 0, "what TestStress does; 0 is something new")

	errStressOver   = errors.New("the stress is over")
	errStressCancel = errors.New("no longer wanted")
	errStressLate   = errors.New("no answer within a minute")
)

// stressRun is what the goroutines of a run share.
type stressRun struct {
	*testing.T
	life   context.Context
	client *http.Client
	http   map[string]*httptest.Server // by mood and era
	nonces atomic.Int64

	mu     sync.Mutex // guards the following
	lost   map[string]bool
	claims []string // what servers that left say they had answered
	counts map[string]int
}

func (s *stressRun) count(kind string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts[kind]++
}

// options are those of a client in an era.
func (s *stressRun) options(protocol string) ClientOptions {
	repeat := func(_ context.Context, params json.RawMessage) (any, error) { return params, nil }
	return ClientOptions{Protocol: protocol, Answers: map[string]Responder{
		"stress/echo": {Capability: "stress", Reply: repeat}, "roots/list": {Capability: "roots", Reply: repeat},
	}}
}

func stressCommand(era string) Command {
	return Command{Path: os.Args[0], Env: []string{"MCPAGENT_CHILD=stress-" + era}, Grace: 100 * time.Millisecond}
}

// servers are a calm one and a wild one of each transport and era.
func (s *stressRun) servers() (servers []Server) {
	for _, era := range bothEras() {
		for _, mood := range []string{"calm", "wild"} {
			servers = append(servers, Server{Name: mood + "-pipe-" + era, Command: stressCommand(era)},
				Server{Name: mood + "-http-" + era, URL: s.http[mood+era].URL, Client: s.client})
		}
	}
	return servers
}

// useHost makes one call of a tool of the host.
func (s *stressRun) useHost(random *rand.Rand, host *Host, functions map[string]string) {
	mood, transport, tool := pick(random, "calm", "wild"), pick(random, "pipe", "http"), stressTool(random)
	if mood == "wild" && transport == "pipe" && random.IntN(60) == 0 {
		tool = pick(random, "crash", "leave", "deaf")
	}
	if random.IntN(200) == 0 {
		_, err := host.Tools(s.life)
		assert.Check(s, err == nil || s.life.Err() != nil, "%v", err)
	}
	function := functions[mood+"-"+transport+"-"+pick(random, bothEras()...)+" "+tool]
	_ = s.call(random, tool, mood == "calm", func(
		ctx context.Context, arguments json.RawMessage, report func(Progress),
	) (*ToolResult, error) {
		return host.CallTool(ctx, function, arguments, report)
	})
}

// liveOnce is the life of one client, with several calls at once, and one of several ends.
func (s *stressRun) liveOnce(random *rand.Rand) {
	era := pick(random, bothEras()...)
	start, transport := stressCommand(era).Start, pick(random, "pipe", "http")
	if transport == "http" {
		start = (&HTTP{URL: s.http["calm"+era].URL, Client: s.client}).Start
	}
	options := s.options(pick(random, era, "")) // the probe finds out
	client, err := Connect(s.life, start, &options)
	if err != nil {
		assert.Check(s, s.life.Err() != nil, "connect: %v", err)
		return
	}
	end := pick(random, "wait", "close")
	if transport == "pipe" {
		end = pick(random, "wait", "close", "crash", "leave", "stuck", "flood")
	}
	var calls sync.WaitGroup
	call := func(tool string) error {
		seed := random.Uint64()
		own := rand.New(rand.NewPCG(seed, seed))
		failed := make(chan error, 1)
		calls.Go(func() {
			failed <- s.call(own, tool, end == "wait", func(
				ctx context.Context, arguments json.RawMessage, report func(Progress),
			) (*ToolResult, error) {
				return client.CallTool(ctx, tool, arguments, report)
			})
		})
		if tool == end {
			return <-failed
		}
		return nil
	}
	isOurs := func(err error) bool { return errors.Is(err, errStressOver) || errors.Is(err, errStressCancel) }
	for range 1 + random.IntN(8) {
		_ = call(stressTool(random))
	}
	switch end {
	case "close":
		s.count("closed in mid-call")
		assert.Check(s, client.Close())
	case "crash":
		s.count("crashed")
		err := call(end)
		assert.Check(s, errors.Is(err, ErrClosed) || isOurs(err), "%v", err)
	case "leave":
		s.count("left")
		err := call(end)
		assert.Check(s, err == nil || isOurs(err), "it answered: %v", err)
	case "stuck": // it reads no more, and the pipe fills
		s.count("stuck")
		_ = call(end)
		for range 3 {
			_ = call("full")
		}
	case "flood": // it asks for ever and does not read
		s.count("flooded")
		if call(end) == nil {
			<-client.Done()
			assert.Check(s, errors.Is(client.Err(), ErrClosed), "%v", client.Err())
		}
	}
	if end != "wait" && end != "close" && random.IntN(2) == 0 {
		_ = client.Close() // while the others wait
	}
	calls.Wait()
	_ = client.Close()
	err = client.Ping(s.life)
	assert.Check(s, errors.Is(err, ErrClosed) || s.life.Err() != nil, "after Close: %v", err)
}

// call makes one call, which may be cancelled, and judges its outcome, which it returns.
func (s *stressRun) call(random *rand.Rand, tool string, calm bool,
	do func(context.Context, json.RawMessage, func(Progress)) (*ToolResult, error)) error {
	nonce := fmt.Sprintf("N%d.", s.nonces.Add(1))
	ctx, cancel := context.WithCancelCause(s.life)
	defer cancel(nil)
	limit, cause := time.Minute, errStressLate
	switch {
	case tool == "never" || tool == "full" || random.IntN(10) == 0:
		limit, cause = time.Duration(random.IntN(5000))*time.Microsecond, errStressCancel
	case !calm:
		limit, cause = 2*time.Second, errStressCancel
	}
	defer time.AfterFunc(limit, func() { cancel(cause) }).Stop()
	pad := ""
	if tool == "full" || tool == "big" {
		pad = strings.Repeat("x", 200_000)
	}
	arguments := fmt.Appendf(nil, `{"nonce":%q,"pad":%q}`, nonce, pad)
	result, err := do(ctx, arguments, func(p Progress) {
		assert.Check(s, p.Message == nonce, "progress of another call: %s", p.Message)
	})
	switch {
	case err == nil:
		s.count("answered")
		s.judge(tool, nonce, result)
	case errors.Is(err, errStressOver):
	case errors.Is(err, errStressCancel):
		s.count("cancelled")
	case calm:
		s.Errorf("%s %s: no answer: %v", tool, nonce, err)
	default:
		s.count("failed")
		s.mu.Lock()
		defer s.mu.Unlock()
		s.lost[nonce] = true
	}
	return err
}

// judge checks that an answer is that of the call.
func (s *stressRun) judge(tool, nonce string, result *ToolResult) {
	text := "nothing"
	if len(result.Content) == 1 && !result.IsError {
		text = result.Content[0].Text
	}
	first, rest, _ := strings.Cut(text, "\n")
	if first != nonce || tool == "big" && len(rest) != 200_000 {
		s.Errorf("%s %s has the answer %.200s", tool, nonce, text)
	}
	if tool == "leave" {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.claims = append(s.claims, strings.Fields(rest)[1:]...)
	}
}

func pick(random *rand.Rand, from ...string) string { return from[random.IntN(len(from))] }

// stressTools are the tools of every server; what each does is in stressPeer.call.
func stressTools() []string {
	return []string{"echo", "slow", "ask", "big", "never", "leave", "crash", "deaf", "stuck", "flood", "full"}
}

// stressTool is one of those that do no harm.
func stressTool(random *rand.Rand) string {
	return pick(random, "echo", "echo", "echo", "slow", "slow", "ask", "ask", "big", "never")
}

// stressPeer is a server that gives back the nonce of each call.
type stressPeer struct{ era string }

// stressWire is the way to the client while a request is answered.
type stressWire struct {
	ask   func(ctx context.Context, method string, params any) (json.RawMessage, error)
	tell  func(ctx context.Context, method string, params any)
	lines *stressLines // on stdio
}

type stressCall struct {
	Name           string
	Arguments      struct{ Nonce, Pad string }
	InputResponses map[string]struct{ Nonce string }
	Meta           struct{ ProgressToken json.RawMessage } `json:"_meta"`
}

func (p stressPeer) request(ctx context.Context, wire stressWire, method string, params json.RawMessage) (any, error) {
	modern := p.era == statelessRevision
	switch {
	case method == "initialize" && !modern:
		return json.RawMessage(introduced(p.era, `{"tools":{}}`)), nil
	case method == "server/discover" && modern:
		return json.RawMessage(discovery(`{"tools":{}}`)), nil
	case method == "tools/list":
		tools := []Tool{}
		for _, name := range stressTools() {
			tools = append(tools, Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`)})
		}
		return map[string]any{"tools": tools, "resultType": "complete"}, nil
	case method == "tools/call":
		var call stressCall
		if err := json.Unmarshal(params, &call); err != nil {
			return nil, err
		}
		text, err := p.call(ctx, wire, &call)
		if text == "" {
			return map[string]any{"resultType": "input_required", "inputRequests": map[string]any{
				"q": map[string]any{"method": "stress/echo", "params": map[string]string{"nonce": call.Arguments.Nonce}},
			}}, err
		}
		content := []map[string]string{{"type": "text", "text": text}}
		return map[string]any{"content": content, "resultType": "complete"}, err
	}
	return nil, &Error{Code: CodeMethodNotFound, Message: "unknown: " + method}
}

// call returns the text of the result, whose first line is the nonce; "" asks for input first.
func (p stressPeer) call(ctx context.Context, wire stressWire, call *stressCall) (string, error) {
	nonce, token := call.Arguments.Nonce, call.Meta.ProgressToken // which is the id, too
	wire.tell(ctx, "notifications/progress", map[string]any{"progressToken": token, "progress": 1, "message": nonce})
	if l := wire.lines; l != nil {
		for _, stray := range []string{`{"id":%s,"level":"info"}`, `{"jsonrpc":"2.0","id":%s,"params":NaN,"method":"m"}`} {
			_ = l.Lines.Write(ctx, Outgoing{Text: fmt.Appendf(nil, stray, token)})
		}
	}
	switch call.Name {
	case "slow":
		select {
		case <-time.After(time.Duration(rand.IntN(5000)) * time.Microsecond):
		case <-ctx.Done():
		}
	case "big":
		return nonce + "\n" + call.Arguments.Pad, nil
	case "never":
		<-ctx.Done()
	case "ask":
		if p.era == statelessRevision {
			return call.InputResponses["q"].Nonce, nil
		}
		var answer struct{ Nonce string }
		raw, err := wire.ask(ctx, "stress/echo", map[string]string{"nonce": nonce})
		_ = json.Unmarshal(raw, &answer)
		return answer.Nonce + "\n", err
	case "leave": // with this answer
		return nonce + "\nleave " + wire.lines.allAnswered(), nil
	case "crash":
		os.Exit(3)
	case "deaf": // reads no more
		wire.lines.deaf.Store(true)
		time.AfterFunc(time.Second, func() { os.Exit(4) })
	case "stuck": // neither reads nor ends
		wire.lines.deaf.Store(true)
	case "flood":
		wire.lines.deaf.Store(true)
		question := Outgoing{Text: []byte(`{"jsonrpc":"2.0","id":"f","method":"roots/list"}`)}
		go func() {
			for wire.lines.Lines.Write(context.Background(), question) == nil {
			}
		}()
	}
	return nonce, nil
}

// stressLines are the stdin and stdout of a server.
type stressLines struct {
	*Lines
	deaf atomic.Bool // Read does not return any more

	mu       sync.Mutex // guards the following
	answered []string   // the last nonces that were written
}

func (l *stressLines) Read() ([]byte, error) {
	if l.deaf.Load() {
		select {}
	}
	return l.Lines.Read()
}

var stressNonce = regexp.MustCompile(`"text":"(N\d+\.)(\\nleave )?`)

func (l *stressLines) Write(ctx context.Context, m Outgoing) error {
	err := l.Lines.Write(ctx, m)
	found := stressNonce.FindSubmatch(m.Text[:min(200, len(m.Text))])
	if err != nil || found == nil {
		return err
	}
	if len(found[2]) > 0 {
		l.Close() // when all is written
		os.Exit(0)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.answered = append(l.answered, string(found[1]))
	l.answered = l.answered[max(0, len(l.answered)-200):]
	return nil
}

func (l *stressLines) allAnswered() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.answered, " ")
}

// stressChild is a stressPeer on stdin and stdout.
func stressChild(era string) int {
	lines := &stressLines{Lines: NewLines(os.Stdin, os.Stdout)}
	c := NewConn(lines, Handler{
		Request: func(ctx context.Context, c *Conn, method string, params json.RawMessage) (any, error) {
			ask := func(ctx context.Context, method string, params any) (answer json.RawMessage, err error) {
				return answer, c.Call(ctx, method, params, &answer)
			}
			tell := func(ctx context.Context, method string, params any) { _ = c.Notify(ctx, method, params) }
			return stressPeer{era}.request(ctx, stressWire{ask, tell, lines}, method, params)
		},
		Notification: func(c *Conn, method string, params json.RawMessage) {
			var p struct{ RequestID json.RawMessage }
			if method == "notifications/cancelled" && json.Unmarshal(params, &p) == nil {
				c.CancelRequest(p.RequestID)
			}
		},
	})
	_ = c.Wait()
	c.Close()
	return 0
}

// stressHTTP is a stressPeer over Streamable HTTP.
type stressHTTP struct {
	stressPeer
	wild bool

	mu       sync.Mutex // guards the following
	random   *rand.Rand
	sessions map[string]bool
	asked    map[string]chan json.RawMessage // questions of ours that wait, by id
	count    int
}

func (h *stressHTTP) next(prefix string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.count++
	return fmt.Sprint(prefix, h.count)
}

// fate is what becomes of an answer.
func (h *stressHTTP) fate(session string, in *Incoming) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	isCall := in.Method == "tools/call"
	if h.era != statelessRevision && in.Method != "initialize" && in.Method != "server/discover" {
		if isCall && h.wild && h.random.IntN(50) == 0 {
			delete(h.sessions, session)
		}
		if !h.sessions[session] {
			return "expired"
		}
	}
	fate := pick(h.random, "json", "stream")
	if isCall && h.wild && h.random.IntN(10) == 0 {
		fate = pick(h.random, "lost", "cut off", "busy", "silence")
	}
	if bytes.Contains(in.Params, []byte(`"ask"`)) && fate == "json" {
		fate = "stream" // its questions are sent there
	}
	return fate
}

func (h *stressHTTP) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var in Incoming
	switch {
	case r.Method == http.MethodGet:
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	case r.Method == http.MethodDelete:
		return
	case err != nil || in.Parse(body) != nil:
		w.WriteHeader(http.StatusBadRequest)
		return
	case in.Method == "" || in.ID == nil:
		h.mu.Lock()
		defer h.mu.Unlock()
		if asked := h.asked[string(in.ID)]; asked != nil {
			delete(h.asked, string(in.ID))
			asked <- in.Result
		}
		w.WriteHeader(http.StatusAccepted)
		return
	}
	fate := h.fate(r.Header.Get("Mcp-Session-Id"), &in)
	switch fate {
	case "expired":
		w.WriteHeader(http.StatusNotFound)
		return
	case "busy":
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	case "lost":
		panic(http.ErrAbortHandler)
	case "silence":
		<-r.Context().Done()
		return
	}
	if in.Method == "initialize" {
		session := h.next("session")
		h.mu.Lock()
		h.sessions[session] = true
		h.mu.Unlock()
		w.Header().Set("Mcp-Session-Id", session)
	}
	var writing sync.Mutex
	event := func(text []byte) {
		writing.Lock()
		defer writing.Unlock()
		fmt.Fprintf(w, "data: %s\n\n", text)
		w.(http.Flusher).Flush()
	}
	wire := stressWire{tell: func(_ context.Context, method string, params any) {
		if text, err := EncodeRequest(0, method, params); err == nil && fate == "stream" {
			event(text)
		}
	}}
	wire.ask = func(ctx context.Context, method string, params any) (json.RawMessage, error) {
		id, answer := h.next(""), make(chan json.RawMessage, 1)
		h.mu.Lock()
		h.asked[id] = answer
		h.mu.Unlock()
		raw, _ := json.Marshal(params)
		event(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"method":%q,"params":%s}`, id, method, raw))
		select {
		case raw := <-answer:
			return raw, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	w.Header().Set("Content-Type", "text/event-stream")
	if fate == "json" {
		w.Header().Set("Content-Type", "application/json")
	}
	result, err := h.request(r.Context(), wire, in.Method, in.Params)
	text, _ := EncodeResponse(in.ID, result, err)
	switch fate {
	case "json":
		_, _ = w.Write(text)
	case "cut off":
		fmt.Fprintf(w, "data: %s", text[:len(text)/2])
		panic(http.ErrAbortHandler)
	default:
		event(text)
	}
}
