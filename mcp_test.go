package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

// What a session can show is in testdata/transcripts (peer_test.go). Here are the races, what comes in large numbers,
// and the functions that are tested by themselves.

// statelessMeta is what every request of the stateless era has.
const statelessMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
	`"io.modelcontextprotocol/clientInfo":{"name":"mcpagent","version":"0"},` +
	`"io.modelcontextprotocol/clientCapabilities":{}}`

const (
	initializeLine = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"capabilities":{},` +
		`"clientInfo":{"name":"mcpagent","version":"0"},"protocolVersion":"2025-11-25"}}`
	initializedLine = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
	discoveryResult = `{"resultType":"complete","supportedVersions":["2026-07-28"],` +
		`"capabilities":{"tools":{"listChanged":true},"resources":{"subscribe":true},"prompts":{},"completions":{}},` +
		`"ttlMs":0,"cacheScope":"public",` +
		`"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"fake","version":"1"}}}`
)

// initializeResult is a server's answer to initialize.
func initializeResult(revision string) string { return introduced(revision, `{"tools":{}}`) }

// bothEras are the revisions that a test of both eras is run in.
func bothEras() []string { return []string{"2025-11-25", statelessRevision} }

// oneOfEach makes one request of every method that has a result.
func oneOfEach() []func(ctx context.Context, c *Client) error {
	return []func(ctx context.Context, c *Client) error{
		func(ctx context.Context, c *Client) error { _, err := c.ListTools(ctx); return err },
		func(ctx context.Context, c *Client) error { _, err := c.ListResources(ctx); return err },
		func(ctx context.Context, c *Client) error { _, err := c.ListResourceTemplates(ctx); return err },
		func(ctx context.Context, c *Client) error { _, err := c.ListPrompts(ctx); return err },
		func(ctx context.Context, c *Client) error { _, err := c.ReadResource(ctx, "u"); return err },
		func(ctx context.Context, c *Client) error { _, err := c.GetPrompt(ctx, "p", nil); return err },
		func(ctx context.Context, c *Client) error { _, err := c.CallTool(ctx, "t", nil, nil); return err },
		func(ctx context.Context, c *Client) error {
			_, err := c.Complete(ctx, Reference{Type: "ref/prompt", Name: "p"}, "a", "v", nil)
			return err
		},
		func(ctx context.Context, c *Client) error {
			return c.Listen(ctx, Subscription{Tools: true, URIs: []string{"u"}}, func(Change) {})
		},
	}
}

// fakeTransport is a server that hands its client's messages over and sends lines as they come.
type fakeTransport struct {
	lines  chan []byte   // to the client; closed at the end
	wrote  chan Outgoing // of the client
	closed chan struct{}
}

func newFakeTransport() *fakeTransport {
	return &fakeTransport{make(chan []byte), make(chan Outgoing, 1000), make(chan struct{})}
}

func (f *fakeTransport) Read() ([]byte, error) {
	select {
	case line, ok := <-f.lines:
		if ok {
			return line, nil
		}
	case <-f.closed:
	}
	return nil, io.EOF
}

func (f *fakeTransport) Write(_ context.Context, m Outgoing) error {
	select {
	case f.wrote <- m:
	default: // a server can ask for many rounds
	}
	return nil
}

func (f *fakeTransport) Close() error {
	close(f.closed)
	return nil
}

// connectedTo begins a session, after which the next request has the id 2.
func (f *fakeTransport) connectedTo(t *testing.T, o ClientOptions) *Client {
	t.Helper()
	connected := inBackground(t, func() (*Client, error) { return connectOver(t.Context(), f, &o) })
	answer := introduced(o.Protocol,
		`{"tools":{"listChanged":true},"resources":{"subscribe":true},"prompts":{},"completions":{}}`)
	if o.Protocol == statelessRevision {
		answer = discoveryResult
	}
	<-f.wrote
	f.lines <- []byte(`{"jsonrpc":"2.0","id":1,"result":` + answer + `}`)
	c := <-connected
	if !c.Server.Stateless() {
		<-f.wrote // notifications/initialized
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// reply answers the client's next request with a result.
func (f *fakeTransport) reply(m Outgoing, result string) {
	f.lines <- fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"result":%s}`, m.ID, result)
}

// paramsOf returns the members of a request's params.
func paramsOf(t *testing.T, m Outgoing) (params map[string]json.RawMessage) {
	t.Helper()
	var text struct{ Params json.RawMessage }
	assert.NilError(t, json.Unmarshal(m.Text, &text))
	assert.NilError(t, json.Unmarshal(text.Params, &params))
	return params
}

// TestOutgoing: with every message goes what the client knows of it, so that no transport has to parse it.
func TestOutgoing(t *testing.T) {
	checkLeaks(t)
	for _, revision := range bothEras() {
		server := newFakeTransport()
		c := server.connectedTo(t, ClientOptions{Protocol: revision})
		for _, request := range oneOfEach() {
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- request(ctx, c) }()
			m := <-server.wrote
			want := outgoing(string(m.Text))
			if revision != statelessRevision {
				want.Name = "" // no header repeats it
			}
			m.Source, m.Result = nil, nil // of its text, and of its answer
			assert.DeepEqual(t, m, want)
			assert.Assert(t, m.ID > 1 && m.Method != "" && m.Revision == want.Revision)
			cancel()
			assert.ErrorIs(t, <-done, context.Canceled)
			m = <-server.wrote // notifications/cancelled
			assert.DeepEqual(t, m, outgoing(string(m.Text)))
		}
	}
}

// TestTokensDiffer: no two requests at work have the same progress token, and each hears of its own progress.
func TestTokensDiffer(t *testing.T) {
	checkLeaks(t)
	for _, revision := range bothEras() {
		server := newFakeTransport()
		c := server.connectedTo(t, ClientOptions{Protocol: revision})
		const calls = 50
		var all sync.WaitGroup
		for i := range calls {
			all.Go(func() {
				var got []Progress
				_, err := c.CallTool(t.Context(), fmt.Sprint(`"`, i), nil, func(p Progress) { got = append(got, p) })
				assert.Check(t, err)
				assert.Check(t, is.DeepEqual(got, []Progress{{Message: fmt.Sprint(`"`, i)}}))
			})
		}
		seen := make(map[string]bool)
		var requests []Outgoing
		for range calls {
			m := <-server.wrote
			requests = append(requests, m)
			params := paramsOf(t, m)
			var meta struct{ ProgressToken json.RawMessage }
			assert.NilError(t, json.Unmarshal(params["_meta"], &meta))
			assert.Assert(t, !seen[string(meta.ProgressToken)])
			seen[string(meta.ProgressToken)] = true
			server.lines <- fmt.Appendf(nil, `{"jsonrpc":"2.0","method":"notifications/progress",`+
				`"params":{"progressToken":%s,"message":%s}}`, meta.ProgressToken, params["name"])
		}
		for _, m := range slices.Backward(requests) {
			server.reply(m, `{}`)
		}
		all.Wait()
	}
}

// TestProgressRepeated: a server that resumes a stream may send once more what has been seen; that is not reported
// again, but keeps the call from expiring.
func TestProgressRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newFakeTransport()
		c := server.connectedTo(t, ClientOptions{Protocol: "2025-11-25", Timeout: time.Minute})
		var got []Progress
		called := inBackground(t, func() (*ToolResult, error) {
			return c.CallTool(t.Context(), "t", nil, func(p Progress) { got = append(got, p) })
		})
		call := <-server.wrote
		for _, progress := range []string{
			`1`, `2`, // the stream breaks off here
			`1`, `2`, `2, "message": "half"`, `3`,
			`1`, `2`, `2, "message": "half"`, `3`, // and here
			`3, "message": "a server that does not count"`, `3, "message": "and goes on"`, `3, "total": 4`, `4`,
		} {
			time.Sleep(50 * time.Second)
			server.lines <- fmt.Appendf(nil, `{"jsonrpc":"2.0","method":"notifications/progress",`+
				`"params":{"progressToken":%d,"progress":%s}}`, call.ID, progress)
		}
		server.reply(call, `{}`)
		<-called
		assert.DeepEqual(t, got, []Progress{
			{Progress: 1}, {Progress: 2}, {Progress: 2, Message: "half"}, {Progress: 3},
			{Progress: 3, Message: "a server that does not count"}, {Progress: 3, Message: "and goes on"},
			{Progress: 3, Total: 4}, {Progress: 4},
		})
	})
}

// TestNoProgressAfterReturn: a call that has returned reports nothing more, even where its ctx ended while it
// was reporting.
func TestNoProgressAfterReturn(t *testing.T) {
	checkLeaks(t)
	left, right := memoryPair()
	answer := func(ctx context.Context, conn *Conn, method string, params json.RawMessage) (any, error) {
		if method == "initialize" {
			return json.RawMessage(initializeResult("2025-11-25")), nil
		}
		var p struct {
			Meta struct{ ProgressToken int64 } `json:"_meta"`
		}
		err := json.Unmarshal(params, &p)
		for range 3 {
			_ = conn.Notify(ctx, "notifications/progress", map[string]any{"progressToken": p.Meta.ProgressToken, "progress": 1})
		}
		return struct{}{}, err
	}
	server := NewConn(right, Handler{Request: answer})
	defer server.Close()
	c, err := connectOver(t.Context(), left, &ClientOptions{Protocol: "2025-11-25"})
	assert.NilError(t, err)
	defer c.Close()
	for i := range races {
		ctx, cancel := context.WithCancel(t.Context())
		var returned, reported atomic.Bool
		_, err := c.CallTool(ctx, "t", nil, func(Progress) {
			if i%2 == 0 {
				cancel()
			}
			for range i % 8 {
				runtime.Gosched()
			}
			assert.Check(t, !returned.Load())
			reported.Store(true)
		})
		returned.Store(true)
		if i%2 == 1 {
			assert.NilError(t, err)
		}
		assert.Assert(t, err != nil || reported.Load())
		cancel()
	}
	assert.Equal(t, len(c.inFlight.requests), 0)
}

// TestExpiry: when a request has expired, how its time is extended, and what its error says.
func TestExpiry(t *testing.T) {
	for _, test := range []struct {
		at   time.Duration // of the progress
		want time.Duration // until the request expires
		err  TimeoutError
	}{
		{0, time.Minute, TimeoutError{After: time.Minute}},
		{30 * time.Second, 90 * time.Second, TimeoutError{After: time.Minute}},
		{59 * time.Second, 119 * time.Second, TimeoutError{After: time.Minute}},
		{90*time.Second - 1, 150*time.Second - 1, TimeoutError{After: time.Minute}},
		{90 * time.Second, 150 * time.Second, TimeoutError{After: 150 * time.Second, Total: true}},
		{149 * time.Second, 150 * time.Second, TimeoutError{After: 150 * time.Second, Total: true}},
	} {
		synctest.Test(t, func(t *testing.T) {
			server := newFakeTransport()
			c := server.connectedTo(t, ClientOptions{
				Protocol: "2025-11-25", Timeout: time.Minute, MaxTimeout: 150 * time.Second})
			// The timer also runs while there are no requests.
			time.Sleep(100 * time.Second)
			begun := time.Now()
			progress := func() { c.inFlight.reportProgress(json.RawMessage("2"), Progress{}) }
			for at := 50 * time.Second; at < test.at; at += 50 * time.Second {
				time.AfterFunc(at, progress)
			}
			time.AfterFunc(test.at, progress)
			_, err := c.CallTool(t.Context(), "t", nil, nil)
			assert.Equal(t, time.Since(begun), test.want)
			var timeout *TimeoutError
			assert.Assert(t, errors.As(err, &timeout))
			assert.DeepEqual(t, timeout, &test.err)
			assert.ErrorIs(t, err, context.DeadlineExceeded)
		})
	}
}

// TestShortestTimeout: a request may expire at once, also the first one, whose timer may ring before anything else
// has happened.
func TestShortestTimeout(t *testing.T) {
	checkLeaks(t)
	for range races {
		o := &ClientOptions{Protocol: "2025-11-25", Timeout: time.Nanosecond}
		_, err := connectOver(t.Context(), newFakeTransport(), o)
		var timeout *TimeoutError
		assert.Assert(t, errors.As(err, &timeout), "%v", err)
		assert.DeepEqual(t, timeout, &TimeoutError{After: time.Nanosecond})
	}
}

// TestPingPassesQuestions: a server that has asked for more than the client answers at once gets its pings answered.
func TestPingPassesQuestions(t *testing.T) {
	checkLeaks(t)
	ours, theirs := memoryPair()
	peer := rawPeer{t, theirs, nil}
	o := &ClientOptions{Protocol: "2025-11-25", Answers: map[string]Responder{
		"roots/list": RootsAnswer(func(ctx context.Context) ([]Root, error) { <-ctx.Done(); return nil, ctx.Err() }),
	}}
	client := inBackground(t, func() (*Client, error) { return connectOver(t.Context(), ours, o) })
	_, err := peer.Read()
	assert.NilError(t, err)
	peer.send(`{"jsonrpc":"2.0","id":1,"result":` + introduced("2025-11-25", "{}") + `}`)
	peer.expect(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	for i := range 2 * maxServing {
		peer.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"roots/list"}`, i))
	}
	peer.send(`{"jsonrpc":"2.0","id":"p","method":"ping"}`)
	peer.expect(`{"jsonrpc":"2.0","id":"p","result":{}}`)
	(<-client).Close()
	peer.Close()
}

// TestRelatedTask: the answer to a question that belongs to a task names the task, whatever else the answer has.
func TestRelatedTask(t *testing.T) {
	for answer, want := range map[string]string{
		`{}`:                                  `{"_meta":{"` + relatedTask + `":{"taskId":"a"}}}`,
		`null`:                                `{"_meta":{"` + relatedTask + `":{"taskId":"a"}}}`,
		`{"b":1}`:                             `{"_meta":{"` + relatedTask + `":{"taskId":"a"}},"b":1}`,
		`{"_meta":{"x":"y"},"b":"<"}`:         `{"_meta":{"` + relatedTask + `":{"taskId":"a"},"x":"y"},"b":"<"}`,
		`{"_meta":{"` + relatedTask + `":1}}`: `{"_meta":{"` + relatedTask + `":{"taskId":"a"}}}`,
	} {
		checkLeaks(t)
		ours, theirs := memoryPair()
		peer := rawPeer{t, theirs, nil}
		reply := func(context.Context, json.RawMessage) (any, error) { return json.RawMessage(answer), nil }
		o := &ClientOptions{Protocol: "2025-11-25", Answers: map[string]Responder{"x/ask": {Reply: reply}}}
		client := inBackground(t, func() (*Client, error) { return connectOver(t.Context(), ours, o) })
		_, err := peer.Read()
		assert.NilError(t, err)
		peer.send(`{"jsonrpc":"2.0","id":1,"result":` + introduced("2025-11-25", "{}") + `}`)
		peer.expect(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
		peer.send(`{"jsonrpc":"2.0","id":"q","method":"x/ask","params":{"_meta":{"` + relatedTask + `":{"taskId":"a"}}}}`)
		peer.expect(`{"jsonrpc":"2.0","id":"q","result":` + want + `}`)
		(<-client).Close()
		peer.Close()
	}
}

// TestHints: which tools run as tasks, and which are safe to be called twice.
func TestHints(t *testing.T) {
	const never = "forbidden"
	for execution, want := range map[string]string{``: never, `null`: never, `{}`: never, `[]`: never,
		`{"taskSupport":"optional"}`: "optional", `{"taskSupport":"required"}`: "required", `{"taskSupport":7}`: never,
		`{"taskSupport":"always"}`: never, `{"taskSupport":"forbidden"}`: never} {
		assert.Equal(t, (&Tool{Execution: json.RawMessage(execution)}).TaskSupport(), want, execution)
	}
	for annotations, want := range map[string]bool{``: false, `null`: false, `[]`: false, `{"readOnlyHint":true}`: true,
		`{"idempotentHint":true}`: true, `{"readOnlyHint":false}`: false, `{"readOnlyHint":"yes"}`: false} {
		assert.Equal(t, (&Tool{Annotations: json.RawMessage(annotations)}).Repeatable(), want, annotations)
	}
}

// TestToolResultText: the text of a result is that of its text blocks.
func TestToolResultText(t *testing.T) {
	for content, want := range map[string]string{
		``:                               "",
		`{"type":"text","text":"alone"}`: "alone",
		`{"type":"text","text":"a\n"},{"type":"image","data":"AQ=="},{"type":"text","text":"b"}`: "a\n\nb",
		`{"type":"resource","resource":{"uri":"u","text":"not a text block"}}`:                   "",
	} {
		result, _, err := decodeToolResult(json.RawMessage(`{"content":[` + content + `]}`))
		assert.NilError(t, err)
		assert.Equal(t, result.Text(), want, content)
	}
}

// TestUnencodable: what a program declares or answers has to be JSON.
func TestUnencodable(t *testing.T) {
	checkLeaks(t)
	left, right := memoryPair()
	defer right.Close()
	// The connection is not begun, so nobody else closes its side.
	defer left.Close()
	answers := map[string]Responder{"x": {Declare: func() {}}}
	_, err := connectOver(t.Context(), left, &ClientOptions{Answers: answers})
	assert.ErrorContains(t, err, "json: unsupported type")

	server := newFakeTransport()
	c := server.connectedTo(t, ClientOptions{Protocol: statelessRevision, Answers: map[string]Responder{
		"x": {Reply: func(context.Context, json.RawMessage) (any, error) { return func() {}, nil }},
	}})
	done := c.goCall(t.Context(), "t", nil)
	server.reply(<-server.wrote, `{"resultType":"input_required","inputRequests":{"q":{"method":"x"}}}`)
	assert.ErrorContains(t, (<-done).err, "tools/call t: json: unsupported type")
}

// TestLongLists: a list of a hundred thousand is one, which is the caller's own; but a server that always has another
// cursor is asked for so many pages.
func TestLongLists(t *testing.T) {
	checkLeaks(t)
	const many = 100_000
	server := newFakeTransport()
	c := server.connectedTo(t, ClientOptions{Protocol: statelessRevision})
	done := inBackground(t, func() ([]Tool, error) { return c.ListTools(t.Context()) })
	page := strings.Repeat(`{"name":"t","inputSchema":{"type":"object"}},`, many-1)
	server.reply(<-server.wrote, `{"tools":[`+page+`{"name":"last"}],"ttlMs":60000}`)
	assert.Equal(t, len(<-done), many)
	// These come from the cache.
	for range 3 {
		tools, err := c.ListTools(t.Context())
		assert.NilError(t, err)
		assert.Equal(t, len(tools), many)
		assert.Equal(t, tools[0].Name+tools[many-1].Name, "tlast")
		slices.Reverse(tools)
	}

	go func() {
		for i := range maxPages + 1 {
			server.reply(<-server.wrote, fmt.Sprintf(`{"prompts":[{"name":"%d"}],"nextCursor":"%[1]d"}`, i))
		}
	}()
	prompts, err := c.ListPrompts(t.Context())
	assert.ErrorContains(t, err, "prompts/list: the list goes on after 10001 pages, 10001 items and ")
	assert.Assert(t, errors.As(err, new(*ProtocolError)))
	assert.Equal(t, len(prompts), maxPages+1)

	// Items are bounded too, in one page and in all.
	go func() {
		page := `{"resourceTemplates":[{}` + strings.Repeat(",{}", maxParts+1) + `],"nextCursor":"c"}`
		server.reply(<-server.wrote, page)
	}()
	templates, err := c.ListResourceTemplates(t.Context())
	assert.ErrorContains(t, err, "resources/templates/list: the list goes on after 1 pages, 200000 items and ")
	assert.Assert(t, errors.As(err, new(*ProtocolError)))
	assert.Equal(t, len(templates), maxParts)

	result, left, err := decodeToolResult(json.RawMessage(`{"content":[{}` + strings.Repeat(",{}", maxParts+1) + `]}`))
	assert.NilError(t, err)
	assert.Equal(t, len(result.Content), maxParts)
	assert.Equal(t, left, leftOut{2, "{} (there are more than 200000)"})

	// And so are bytes.
	go func() {
		page := `{"resources":[{"uri":"u","name":"` + strings.Repeat("n", 8<<20) + `"}],"nextCursor":"%d"}`
		for i := range maxListSize / (8 << 20) {
			server.reply(<-server.wrote, fmt.Sprintf(page, i))
		}
	}()
	resources, err := c.ListResources(t.Context())
	assert.ErrorContains(t, err, "resources/list: the list goes on after 8 pages, 8 items and 67109")
	assert.Assert(t, errors.As(err, new(*ProtocolError)))
	assert.Equal(t, len(resources), 8)
}

// TestInputForEver: a server that asks on and on is answered ten times. Nobody is asked for what would not be sent,
// each round is a request of its own, with a token of its own, and a state of any length is returned as it came.
func TestInputForEver(t *testing.T) {
	checkLeaks(t)
	state := strings.Repeat(`\u00e9\/\"é<&>\ud83d 😀`, 1<<20/30) + strings.Repeat("x", 1<<19)
	assert.Assert(t, len(state) > 1<<20)
	for i, method := range map[int]string{4: "resources/read", 5: "prompts/get", 6: "tools/call"} {
		asked := 0
		server := newFakeTransport()
		c := server.connectedTo(t, ClientOptions{Protocol: statelessRevision, Answers: map[string]Responder{
			"x": {Reply: func(context.Context, json.RawMessage) (any, error) { asked++; return asked, nil }},
		}})
		done := make(chan error, 1)
		go func() { done <- oneOfEach()[i](t.Context(), c) }()
		for round := range maxRounds + 1 {
			var m Outgoing
			select {
			case m = <-server.wrote:
			case err := <-done:
				t.Fatalf("%s has returned in round %d: %v", method, round, err)
			}
			assert.Equal(t, m.ID, int64(2+round))
			params := paramsOf(t, m)
			if round > 0 {
				assert.Equal(t, string(params["inputResponses"]), fmt.Sprintf(`{"q":%d}`, round))
				assert.Assert(t, string(params["requestState"]) == `"`+state+`"`)
			}
			if method == "tools/call" {
				assert.Assert(t, is.Contains(string(params["_meta"]), fmt.Sprintf(`{"progressToken":%d,`, m.ID)))
			}
			server.reply(m, `{"resultType":"input_required","inputRequests":{"q":{"method":"x"}},"requestState":"`+state+`"}`)
		}
		err := <-done
		assert.Assert(t, errors.As(err, new(*ProtocolError)))
		assert.ErrorContains(t, err, method)
		assert.ErrorContains(t, err, "the server asked for input 11 times")
		assert.Equal(t, asked, maxRounds)
	}
}

// TestManyQuestions: no question is asked of a result with too many, nor of one that makes too many with those before.
func TestManyQuestions(t *testing.T) {
	checkLeaks(t)
	questions := func(count int) string {
		var members []string
		for i := range count {
			members = append(members, fmt.Sprintf(`"q%d":{"method":"x"}`, i))
		}
		return `{"resultType":"input_required","inputRequests":{` + strings.Join(members, ",") + `}}`
	}
	for _, test := range []struct {
		max, first, second, asked int
		want                      string
	}{
		{0, 10_000, 0, 0, "tools/call t: the server asks 10000 questions; a request may ask 50"},
		{0, 50, 1, 50, "tools/call t: the server asks 51 questions; a request may ask 50"},
		{3, 4, 0, 0, "tools/call t: the server asks 4 questions; a request may ask 3"},
		{100, 60, 40, 100, ""},
	} {
		asked := 0
		server := newFakeTransport()
		c := server.connectedTo(t, ClientOptions{Protocol: statelessRevision, MaxQuestions: test.max,
			Answers: map[string]Responder{
				"x": {Reply: func(context.Context, json.RawMessage) (any, error) { asked++; return asked, nil }},
			}})
		done := c.goCall(t.Context(), "t", nil)
		server.reply(<-server.wrote, questions(test.first))
		if test.second > 0 {
			server.reply(<-server.wrote, questions(test.second))
		}
		if test.want == "" {
			server.reply(<-server.wrote, `{"content":[]}`)
			assert.NilError(t, (<-done).err)
		} else {
			err := (<-done).err
			assert.Error(t, err, test.want)
			assert.Assert(t, errors.As(err, new(*ProtocolError)))
		}
		assert.Equal(t, asked, test.asked)
	}
}

// TestManyRequestsOfServer: in the handshake era the questions are requests of the server, and no more of them are
// answered than our own requests may ask together.
func TestManyRequestsOfServer(t *testing.T) {
	checkLeaks(t)
	server := newFakeTransport()
	asked := 0
	var warnings []string
	c := server.connectedTo(t, ClientOptions{Protocol: "2025-11-25", MaxQuestions: 3,
		Warn: func(text string) { warnings = append(warnings, text) },
		Answers: map[string]Responder{
			"x": {Reply: func(context.Context, json.RawMessage) (any, error) { asked++; return asked, nil }},
		}})
	ask := func(times int) (refused int) {
		for range times {
			server.lines <- []byte(`{"jsonrpc":"2.0","id":"q","method":"x"}`)
			m := <-server.wrote
			const refusal = `"error":{"code":-32600,"message":"the server asks more questions than the 3 that`
			if strings.Contains(string(m.Text), refusal) {
				refused++
			}
		}
		return refused
	}
	for range 2 {
		one := c.goCall(t.Context(), "t", nil)
		first := <-server.wrote
		assert.Equal(t, ask(120), 117)
		two := c.goCall(t.Context(), "t", nil)
		second := <-server.wrote
		assert.Equal(t, ask(4), 1)
		server.reply(first, `{"content":[]}`)
		assert.NilError(t, (<-one).err)
		server.reply(second, `{"content":[]}`)
		assert.NilError(t, (<-two).err)
	}
	// A ping is no question.
	server.lines <- []byte(`{"jsonrpc":"2.0","id":"p","method":"ping"}`)
	assert.Equal(t, string((<-server.wrote).Text), `{"jsonrpc":"2.0","id":"p","result":{}}`)
	assert.DeepEqual(t, warnings,
		[]string{"the server asks more questions than the 3 that a request may ask; they are refused"})

	three := c.goCall(t.Context(), "t", nil)
	m := <-server.wrote
	four := c.goCall(t.Context(), "t", nil)
	n := <-server.wrote
	assert.Equal(t, ask(7), 1)
	server.reply(m, `{"content":[]}`)
	assert.NilError(t, (<-three).err)
	server.reply(n, `{"content":[]}`)
	assert.NilError(t, (<-four).err)
	assert.Equal(t, asked, 3*6)
}

// TestSessionRenewed: a session that has expired is begun anew once for all calls that find it so, and each of them
// is made again.
func TestSessionRenewed(t *testing.T) {
	checkLeaks(t)
	var sessions, known atomic.Int64 // the number of sessions, and the one that has not expired; 0 if it has
	server, memory := htInMemory(func(w http.ResponseWriter, r *http.Request, m htMessage) {
		if m.Method == "initialize" {
			known.Store(sessions.Add(1))
		}
		session := fmt.Sprint("s", known.Load())
		if r.Method == http.MethodPost && m.Method != "initialize" && r.Header.Get("Mcp-Session-Id") != session {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		htSession(session, nil, htReply(htJSON(`{"jsonrpc":"2.0","id":$id,"result":{"content":[]}}`)))(w, r, m)
	})
	start := (&HTTP{URL: "http://memory/", Client: memory}).Start
	client, err := Connect(t.Context(), start, &ClientOptions{Protocol: "2025-11-25"})
	assert.NilError(t, err)
	defer client.Close()
	for session := range 20 {
		if session > 0 {
			known.Store(0)
		}
		var calls sync.WaitGroup
		for range 20 {
			calls.Go(func() {
				result, err := client.CallTool(t.Context(), "tool", nil, nil)
				assert.Check(t, err)
				assert.Check(t, result != nil && result.Content != nil)
			})
		}
		calls.Wait()
		asked := make(map[string]int) // how often, by method and session
		for _, r := range server.all() {
			asked[r.RPC+" "+r.Header.Get("Mcp-Session-Id")]++
		}
		assert.Equal(t, asked["initialize "], session+1)
		assert.Equal(t, asked[fmt.Sprint("notifications/initialized s", session+1)], 1)
		assert.Equal(t, asked[fmt.Sprint("tools/call s", session+1)], 20)
	}
}

// TestSessionsExpireAtOnce: a server that ends the stream of each session, and then does not know the session, is not
// asked for sessions for ever. The next call begins one.
func TestSessionsExpireAtOnce(t *testing.T) {
	checkLeaks(t)
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex              // guards the following
		opened := make(map[string]int) // streams, by session
		forgets := true
		sessions := 0
		var warnings []string
		server, memory := htInMemory(nil)
		server.set(func(w http.ResponseWriter, r *http.Request, m htMessage) {
			mu.Lock()
			session := r.Header.Get("Mcp-Session-Id")
			if m.Method == "initialize" {
				sessions++
			}
			if r.Method == http.MethodGet {
				opened[session]++
			}
			forgotten := forgets && opened[session] > 1
			stream := htSSE("retry: 1\n\n")
			if !forgets {
				stream = htSSE(": hello\n\n") + htHold
			}
			begun := fmt.Sprint("s", sessions)
			mu.Unlock()
			if forgotten {
				w.WriteHeader(http.StatusNotFound)
				return
			}
			answer := htReply(htJSON(`{"jsonrpc":"2.0","id":$id,"result":{"content":[]}}`))
			htSession(begun, htReply(stream), answer)(w, r, m)
		})
		start := (&HTTP{URL: "http://memory/", Client: memory}).Start
		client, err := Connect(t.Context(), start, &ClientOptions{Protocol: "2025-11-25",
			Warn: func(text string) {
				mu.Lock()
				defer mu.Unlock()
				warnings = append(warnings, text)
			}})
		assert.NilError(t, err)
		defer client.Close()
		begunAfter := func(d time.Duration) int {
			time.Sleep(d)
			mu.Lock()
			defer mu.Unlock()
			return sessions
		}
		assert.Equal(t, begunAfter(time.Minute), 1+maxExpiries)
		mu.Lock()
		assert.Equal(t, len(warnings), 1+maxExpiries)
		assert.Equal(t, warnings[maxExpiries], "the server no longer tells of changes: each session that is begun "+
			"expires at once: http://memory/ answers 404 Not Found: nothing more")
		mu.Unlock()

		_, err = client.CallTool(t.Context(), "tool", nil, nil)
		assert.NilError(t, err)
		assert.Equal(t, begunAfter(time.Minute), 1+2*maxExpiries+1)
		// It has come to its senses.
		mu.Lock()
		forgets = false
		mu.Unlock()
		_, err = client.CallTool(t.Context(), "tool", nil, nil)
		assert.NilError(t, err)
		assert.Equal(t, begunAfter(time.Minute), 1+2*maxExpiries+1)
	})
}

// TestStrays: where the beginning fails, the error has the first of what the server wrote in place of messages, even a
// prompt without a newline.
func TestStrays(t *testing.T) {
	checkLeaks(t)
	const answer = `{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"no"}}` + "\n"
	const one, some = "1 line that is not a message, the first: ", " lines that are not messages, the first: "
	const spoils = `"Loading..." before a message, on the same line, so that the message was lost; ` +
		"stdout is for MCP alone: print to stderr"
	for text, want := range map[string]string{
		"":                              "",
		answer:                          "",
		"Password: ":                    one + `"Password:"`,
		"Loading... " + answer:          spoils,
		"Hello\n" + answer + "World!\n": "2" + some + `"Hello"`,
		"Content-Length: 2\r\n\r\n{}\n": "2" + some +
			`"Content-Length: 2"; MCP has one message a line, without headers`,
		"{\n  \"jsonrpc\": \"2.0\"\n}\n": "3" + some + `"{"; MCP has each message on one line`,
		string(libUTF16(binary.LittleEndian, "\ufeff{}\n")): "2" + some +
			`"{}"; MCP has UTF-8, and this looks like UTF-16`,
		"word " + strings.Repeat("x", 1000) + "\n": one + `"word …"`,
	} {
		synctest.Test(t, func(t *testing.T) {
			var serving sync.WaitGroup
			start := func(context.Context) (Transport, error) {
				in, theirOut := io.Pipe()
				theirIn, out := io.Pipe()
				serving.Go(func() {
					_, _ = theirIn.Read(make([]byte, 1000)) // server/discover
					_, _ = io.WriteString(theirOut, text)
					_, _ = io.Copy(io.Discard, theirIn)
					theirOut.Close()
				})
				return NewLines(in, out), nil
			}
			ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, errors.New("too slow"))
			defer cancel()
			_, err := Connect(ctx, start, nil)
			if want != "" {
				want = "; it wrote " + want
			}
			assert.Error(t, err, "initialize: too slow"+want)
			serving.Wait()
		})
	}
	// A server that refuses in good order is not made of strays.
	for reply, want := range map[string]string{
		`"error":{"code":-1,"message":"no key"}`: "initialize: no key (error -1)",
		`"result":{"protocolVersion":"1"}`: `initialize: the server wants protocol revision "1"; ` +
			`this client speaks 2026-07-28, 2025-11-25, 2025-06-18, 2025-03-26, 2024-11-05`,
	} {
		server := newFakeTransport()
		failed := make(chan error, 1)
		go func() {
			_, err := connectOver(t.Context(), server, &ClientOptions{Protocol: "2025-11-25"})
			failed <- err
		}()
		<-server.wrote
		server.lines <- []byte("Hello")
		server.lines <- []byte(`{"jsonrpc":"2.0","id":1,` + reply + `}`)
		assert.Error(t, <-failed, want)
	}
	// Its refusal may follow from an answer that was lost.
	server := newFakeTransport()
	failed := make(chan error, 1)
	go func() {
		_, err := connectOver(t.Context(), server, &ClientOptions{Protocol: "2025-11-25"})
		failed <- err
	}()
	<-server.wrote
	server.lines <- []byte("Hello")
	server.lines <- []byte(`Loading... {"result":{},"jsonrpc":"2.0","id":9}`)
	server.lines <- []byte(`{"jsonrpc":"2.0","id":1,"error":{"code":-32022,"message":"no handshake"}}`)
	assert.Error(t, <-failed, "initialize: no handshake (error -32022); it wrote "+spoils)
}

// --- Whatever a server sends

// ambiguous reports whether a text has an object with a known member twice, or one that encoding/json alone takes for
// it, as it disregards case: nobody can say what such a text means.
func ambiguous(s *scanner) (found bool) {
	known := strings.Fields("tools nextCursor ttlMs name title description inputSchema outputSchema annotations icons " +
		"execution _meta content structuredContent isError type text data mimeType uri size resource blob")
	seen := make(map[string]bool)
	switch s.peek() {
	case '{':
		s.object(func(key []byte) {
			for _, name := range known {
				if strings.EqualFold(name, string(key)) {
					found = found || seen[name] || name != string(key)
					seen[name] = true
				}
			}
			found = ambiguous(s) || found
		})
	case '[':
		s.array(func() { found = ambiguous(s) || found })
	default:
		s.value()
	}
	return found
}

// FuzzDecoders: the scanner takes from a result what encoding/json does, and what any decoder has taken comes out of
// it again as it went in.
func FuzzDecoders(f *testing.F) {
	_, results := transcriptLines(f)
	for _, seed := range results {
		f.Add([]byte(seed))
	}
	for _, seed := range []string{ // what is odd; the rest is in the transcripts
		`{"content":[{"type":"text","text":"a\u00e9\n"}],"isError":true,"structuredContent":{"a": [1] },"_meta":null}`,
		`{"content":[{"type":"\u0074ext","text":""},{"type":"audio","data":null},{"type":"new","data":1},{},null]}`,
		`{"content":[{"type":"text","annotations":{},"text":"t"}]}`,
		`{"content":[{"type":null,"text":"t"}],"isError":null}`, `{"content":[{"type":"text","text":null}]}`,
		`{"content":null}`, `null`, `[]`, `{"x":1}`, `{"type":"text"}`,
		`{"tools":[{"name":"a","inputSchema":{"type" : "object"},"annotations":null,"icons":[]}],"nextCursor":"c"}`,
		`{"nextCursor":null,"tools":[{"name":null},{},null]}`, `{"tools":null}`, `{"tools":[{"name":"\ud800"}]} `,
		`{"tools":[{"inputSchema":tru}]}`, `{"tools":[],"ttlMs":60000,"nextCursor":""}`, `{"ttlMs":"1"}`, `{"ttlMs":1e999}`,
		`{"contents":[{"uri":"u","blob":"AQ=="},null]}`, `{"messages":[{"role":"user","content":null},{}]}`,
		`{"completion":{"values":null,"total":1.0}}`, `{"resources":[{"size":1}],"ttlMs":1}`,
		`{"action":"accept","content":{"a":[1]}}`, `{"messages":[{"content":[{"type":"tool_use"}]}],"tools":[{}]}`,
		`{"inputRequests":{"a":{"method":"m","params":[1]},"b":null},"requestState":{"a": 1},"resultType":"input_required"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if !json.Valid(raw) || !ambiguous(&scanner{text: raw}) {
			fuzzToolResult(t, raw)
			fuzzTools(t, raw)
		}
		again[struct{ Contents []ResourceContents }](t, raw)
		again[PromptResult](t, raw)
		again[struct{ Completion Completion }](t, raw)
		again[ElicitRequest](t, raw)
		again[ElicitResult](t, raw)
		again[SampleRequest](t, raw)
		again[SampleResult](t, raw)
		again[ToolResult](t, raw)
		again[ContentBlock](t, raw)
		again[inputRequired](t, raw)
		listAgain[Tool](t, raw, "tools")
		listAgain[Resource](t, raw, "resources")
		listAgain[ResourceTemplate](t, raw, "resourceTemplates")
		listAgain[Prompt](t, raw, "prompts")
		if json.Valid(raw) {
			resultType(raw)
		}
	})
}

func decodeToolResult(raw json.RawMessage) (*ToolResult, leftOut, error) {
	var a toolResult
	s := scanner{text: raw}
	a.ReadResult(&s)
	if a.err == nil && !s.end() {
		a.err = errors.New("not one JSON value")
	}
	return &a.ToolResult, a.left, a.err
}

func decodePage[T any](raw json.RawMessage, member string) (*listPage[T], error) {
	page := &listPage[T]{member: member}
	s := scanner{text: raw}
	page.ReadResult(&s)
	if page.err == nil && !s.end() {
		page.err = errors.New("not one JSON value")
	}
	return page, page.err
}

func fuzzToolResult(t *testing.T, raw []byte) {
	got, _, err := decodeToolResult(raw)
	want := new(ToolResult) // by encoding/json alone
	wantErr := json.Unmarshal(raw, want)
	if wantErr != nil {
		return // of which what can be read may be left
	}
	assert.NilError(t, err, "%q", raw)
	for i := range min(len(got.Content), len(want.Content)) {
		if b := &got.Content[i]; b.Type == "text" && b.Raw == nil {
			b.Raw = want.Content[i].Raw // it was plain: nothing is lost
			var members map[string]any
			assert.NilError(t, json.Unmarshal(b.Raw, &members))
			delete(members, "type")
			delete(members, "text")
			assert.Equal(t, len(members), 0, "%s", b.Raw)
		}
	}
	assert.Assert(t, reflect.DeepEqual(got, want), "%q:\n%+v, encoding/json:\n%+v", raw, got, want)
	again[ToolResult](t, []byte(unescapedJSON(got)))
}

func fuzzTools(t *testing.T, raw []byte) {
	if string(bytes.TrimSpace(raw)) == "null" {
		return // which encoding/json takes for an empty list
	}
	got, err := decodePage[Tool](raw, "tools")
	var want struct {
		Tools      []Tool
		NextCursor *string
		TTLMs      float64
	}
	wantErr := json.Unmarshal(raw, &want)
	if wantErr != nil {
		return // of which what can be read may be left
	}
	assert.NilError(t, err, "%q", raw)
	assert.DeepEqual(t, got.nextCursor, want.NextCursor)
	assert.Equal(t, got.ttlMs, want.TTLMs)
	assert.Assert(t, reflect.DeepEqual(got.items, want.Tools), "%q:\n%+v, encoding/json:\n%+v", raw, got.items, want.Tools)
}

// again checks that what was decoded is encoded and decoded to the same.
func again[T any](t *testing.T, raw []byte) {
	t.Helper()
	var first, second T
	if json.Unmarshal(raw, &first) != nil {
		return
	}
	text, err := json.Marshal(&first)
	assert.NilError(t, err)
	assert.NilError(t, json.Unmarshal(text, &second), "%T: %q: %s", first, raw, text)
	twice, err := json.Marshal(&second)
	assert.NilError(t, err)
	assert.Equal(t, string(twice), string(text))
}

func listAgain[T any](t *testing.T, raw []byte, member string) {
	t.Helper()
	page, err := decodePage[T](raw, member)
	if err == nil {
		again[[]T](t, []byte(unescapedJSON(page.items)))
	}
}

// FuzzServer: whatever lines a server sends in the midst of one request of every method, nothing panics, and when it
// has gone every request has an end. (No two runs of an input are quite the same, which makes minimizing one take its
// full time: go test -fuzz FuzzServer -fuzzminimizetime 10x.)
func FuzzServer(f *testing.F) {
	seeds, _ := transcriptLines(f)
	for _, seed := range seeds {
		f.Add(true, []byte(seed))
		f.Add(false, []byte(seed))
	}
	const form = `"elicitation/create","params":{"message":"?","requestedSchema":{"type":"object","properties":{}}}`
	const sample = `"sampling/createMessage","params":{"messages":[],"maxTokens":1}`
	for _, kind := range []string{form, sample, `"roots/list"`, `"x"`, `7`} {
		f.Add(true, []byte(`{"jsonrpc":"2.0","id":8,"result":{"resultType":"input_required","requestState":"s",`+
			`"inputRequests":{"a":{"method":`+kind+`}}}}`))
		f.Add(false, []byte(`{"jsonrpc":"2.0","id":8,"method":`+kind+`}`+"\n"+
			`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":8}}`))
	}
	for _, seed := range []string{`{"jsonrpc":"2.0","id":"2","error":{"code":1,"message":"m"}}`, `[[[]]]`,
		`[{"jsonrpc":"2.0","id":2,"result":null}]`, `{"jsonrpc":"2.0","id":1e400,"result":1}`,
		`{"id":-1,"jsonrpc":"2.0","method":""}`,
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":10}}`} {
		f.Add(true, []byte(seed))
	}
	f.Add(true, []byte(`[{"jsonrpc":"2.0","id":2,"result":{"tools":[{}],"nextCursor":"","ttlMs":-1e300}},`+
		`{"jsonrpc":"2.0","id":11,"result":{"nextCursor":""}}]`))
	f.Fuzz(func(t *testing.T, stateless bool, lines []byte) {
		server := newFakeTransport()
		c := server.connectedTo(t, ClientOptions{
			Protocol: map[bool]string{true: statelessRevision, false: "2025-11-25"}[stateless],
			Log:      func(LogMessage) {},
			Skipped:  func([]byte, error) {},
			Answers: map[string]Responder{
				"roots/list": RootsAnswer(func(context.Context) ([]Root, error) { return nil, nil }),
				"elicitation/create": ElicitAnswer(func(_ context.Context, r *ElicitRequest) (*ElicitResult, error) {
					return &ElicitResult{Action: "accept", Content: map[string]any{r.Message: r.URL}}, nil
				}),
				"sampling/createMessage": SampleAnswer(func(_ context.Context, r *SampleRequest) (*SampleResult, error) {
					for _, m := range r.Messages {
						return &SampleResult{Role: m.Role, Content: m.Content}, nil
					}
					return nil, errors.New("nothing to go on")
				}),
			},
		})
		// In a fixed order, so that the same lines answer the same requests: ids 2 to 10.
		var all sync.WaitGroup
		for _, request := range oneOfEach() {
			method := make(chan string, 1)
			all.Go(func() {
				err, method := request(t.Context(), c), <-method
				if err != nil && method != "resources/subscribe" && !strings.Contains(err.Error(), method) {
					t.Errorf("%s: %v", method, err)
				}
			})
			method <- (<-server.wrote).Method
		}
		for line := range bytes.Lines(lines) {
			select {
			case server.lines <- bytes.Clone(bytes.TrimSpace(line)):
			case <-c.Done(): // a peer that floods is left
			}
		}
		close(server.lines)
		all.Wait()
		assert.NilError(t, c.Close())
		assert.Equal(t, atWork(c), 0)
	})
}

// FuzzTask: whatever a server says of a task, in either form, the call ends in its time, the server is then told at
// most once that nobody waits, and nothing of the task is left. A task that is read keeps to the bounds.
func FuzzTask(f *testing.F) {
	states := []string{
		`"taskId":"1","status":"working"`, `"taskId":"1","status":"completed","result":{"content":[]}`,
		`"taskId":"1","status":"failed","error":{"code":1,"message":"m"}`, `"taskId":"1","status":"cancelled"`,
		`"taskId":"1","status":"input_required","inputRequests":{"a":{"method":"roots/list"}},"pollIntervalMs":1`,
		`"taskId":"1","status":"working","ttlMs":-1e300,"pollInterval":1e300,"statusMessage":"m\u0000"`,
		`"taskId":7,"status":[]`, `"taskId":"2","status":"completed","result":null`,
	}
	for _, first := range states {
		for _, second := range states {
			first, second := "{"+first+"}", "{"+second+"}"
			f.Add(true, []byte(`{"resultType":"task",`+first[1:]+"\n"+second))
			f.Add(false, []byte(`{"task":`+first+"}\n"+second))
		}
	}
	f.Fuzz(func(t *testing.T, stateless bool, text []byte) {
		lines := bytes.Split(text, []byte("\n"))
		for _, line := range lines {
			state, err := readTask(line)
			if err != nil {
				assert.Assert(t, errors.As(err, new(*ProtocolError)), "%v", err)
				continue
			}
			assert.Assert(t, 0 < len(state.ID) && len(state.ID) <= maxTaskID)
			assert.Assert(t, minInterval <= state.Every && state.Every <= maxInterval)
			assert.Assert(t, state.TTL <= maxTaskTTL && state.TTL >= -1)
		}
		synctest.Test(t, func(t *testing.T) { fuzzTask(t, stateless, lines) })
	})
}

// fuzzTask calls a tool of a server that says these lines of its task, one after the other and the last for ever.
func fuzzTask(t *testing.T, stateless bool, lines [][]byte) {
	const limit = 10 * time.Minute
	server := newFakeTransport()
	o := ClientOptions{Protocol: "2025-11-25", MaxTimeout: limit, Answers: map[string]Responder{
		"roots/list": RootsAnswer(func(context.Context) ([]Root, error) { return nil, nil })}}
	if stateless {
		o.Protocol = statelessRevision
	}
	c := server.connectedTo(t, o)
	c.Server.Capabilities["tasks"] = json.RawMessage(`{"cancel":{},"requests":{"tools":{"call":{}}}}`)
	c.lists.support = map[string]string{"t": "required"}
	ended := make(chan struct{})
	cancelled := 0
	var work sync.WaitGroup
	work.Go(func() {
		for {
			var m Outgoing
			select {
			case m = <-server.wrote:
			case <-ended:
				return
			}
			said := lines[0]
			switch {
			case m.Method == "tasks/cancel":
				cancelled++
				said = []byte("{}")
			case m.Method == "tasks/update":
				said = []byte("{}")
			case m.ID == 0 || m.Method == "tasks/result" && len(lines) > 1:
				continue
			case json.Valid(said):
				lines = lines[min(1, len(lines)-1):]
			}
			if !json.Valid(said) {
				said = []byte("7")
			}
			server.reply(m, string(bytes.ReplaceAll(said, []byte("\n"), []byte(" "))))
		}
	})
	begun := time.Now()
	_, _ = c.CallTool(t.Context(), "t", nil, nil)
	assert.Assert(t, time.Since(begun) <= 2*limit, "%s", time.Since(begun))
	assert.Equal(t, len(c.inFlight.requests), 0)
	assert.Equal(t, len(c.tasks.waiting), 0)
	synctest.Wait()
	close(ended)
	work.Wait()
	assert.Assert(t, cancelled <= 1)
}

// transcriptLines returns what the servers of the transcripts send: the lines of each session, and the results alone.
func transcriptLines(f *testing.F) (sessions, results []string) {
	f.Helper()
	files, err := filepath.Glob("testdata/transcripts/*.txt")
	assert.NilError(f, err)
	for _, path := range files {
		for _, lines := range sessionsOf(f, path) {
			var sent []string
			for _, line := range lines {
				text, ok := strings.CutPrefix(line, "<- ")
				var message struct{ Params, Result json.RawMessage }
				if result, isResult := strings.CutPrefix(line, "<= "); isResult {
					results = append(results, result)
				} else if ok {
					sent = append(sent, text)
					_ = json.Unmarshal([]byte(text), &message)
					results = append(results, string(message.Params)+string(message.Result))
				}
			}
			sessions = append(sessions, strings.Join(sent, "\n"))
		}
	}
	assert.Assert(f, len(sessions) > 10 && len(results) > 100)
	return sessions, results
}

// TestResultType: the type of a result is that of its own member, wherever it stands and whatever else ends like it.
func TestResultType(t *testing.T) {
	for text, want := range map[string]string{
		`{}`:                                     "complete",
		`{"content":[],"resultType":"complete"}`: "complete",
		`{"resultType":"input_required","x":{"a":1,"resultType":"complete"}}`: "input_required",
		`{"resultType":"input_required","x":",\"resultType\":\"complete\"}"}`: "input_required",
		`{"resultType":"input_required","x,\"resultType":"complete"}`:         "input_required",
		`{"x":{"resultType":"complete"},"resultType":"input_required"}`:       "input_required",
		`{"x":{"resultType":"input_required"},"resultType":"complete"}`:       "complete",
		`{"x":1,"resultType":17}`: "17",
	} {
		assert.Equal(t, resultType(json.RawMessage(text)), want, text)
	}
}

// A refusal for want of authorization is not one of a revision: nobody is asked twice, and the message says what was
// refused first.
func TestConnectUnauthorised(t *testing.T) {
	sent := 0
	nobody := chatTransport(func(*http.Request) (*http.Response, error) {
		sent++
		return nil, &AuthorizationError{errors.New("nobody is here")}
	})
	h := &HTTP{URL: "http://memory/", Client: &http.Client{Transport: nobody}}
	_, err := Connect(t.Context(), h.Start, nil)
	assert.Assert(t, errors.As(err, new(*AuthorizationError)), "%v", err)
	assert.Equal(t, sent, 1)

	_, client := htInMemory(func(w http.ResponseWriter, r *http.Request, m htMessage) {
		w.Header().Set("Content-Type", "application/json")
		if m.Method == "server/discover" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32020,"message":"no header"}}`, m.ID)
	})
	h = &HTTP{URL: "http://memory/", Client: client}
	_, err = Connect(t.Context(), h.Start, nil)
	assert.ErrorContains(t, err, "server/discover: http://memory/ answers 403 Forbidden")
}
