package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

// statelessMeta is what every request of the stateless era has.
const statelessMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
	`"io.modelcontextprotocol/clientInfo":{"name":"mcpagent","version":"0"},"io.modelcontextprotocol/clientCapabilities":{}}`

const (
	discoverLine    = `{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{` + statelessMeta + `}}`
	discoveryResult = `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{"listChanged":true}},"ttlMs":0,` +
		`"cacheScope":"public","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"fake","version":"1"}}}`
)

// bothEras are the revisions that a test of both eras is run in.
func bothEras() []string { return []string{"2025-11-25", statelessRevision} }

// eraOutcome is what a call that ran in the background has returned.
type eraOutcome[T any] struct {
	value T
	err   error
}

func inBackground[T any](f func() (T, error)) <-chan eraOutcome[T] {
	done := make(chan eraOutcome[T], 1)
	go func() {
		value, err := f()
		done <- eraOutcome[T]{value, err}
	}()
	return done
}

// wireRequest is a request of the client.
type wireRequest struct {
	ID     json.RawMessage
	Method string
	Params json.RawMessage
}

// next reads the client's next message, which has to be of that method.
func (p rawPeer) next(method string) (r wireRequest) {
	p.t.Helper()
	line, err := p.Read()
	assert.NilError(p.t, err)
	assert.NilError(p.t, json.Unmarshal(line, &r))
	assert.Equal(p.t, r.Method, method, "%s", line)
	return r
}

// reply answers a request with a result.
func (p rawPeer) reply(r wireRequest, result string) {
	p.t.Helper()
	p.send(`{"jsonrpc":"2.0","id":` + string(r.ID) + `,"result":` + result + `}`)
}

// refuse answers a request with an error.
func (p rawPeer) refuse(r wireRequest, code int) {
	p.t.Helper()
	p.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":"refused"}}`, r.ID, code))
}

// connectedWith is a client of a server that speaks the revision and has the capabilities. The client's next request
// has the id 2.
func connectedWith(t *testing.T, revision, capabilities string, o *ClientOptions) (*Client, rawPeer) {
	t.Helper()
	var forced ClientOptions
	if o != nil {
		forced = *o
	}
	forced.Protocol = revision
	peer, result := connecting(t, t.Context(), &forced)
	if revision == statelessRevision {
		peer.reply(peer.next("server/discover"), strings.Replace(discoveryResult, `{"tools":{"listChanged":true}}`, capabilities, 1))
	} else {
		peer.reply(peer.next("initialize"), `{"protocolVersion":"`+revision+`","capabilities":`+capabilities+`,"serverInfo":{"name":"fake","version":"1"}}`)
		peer.expect(initializedLine)
	}
	c, err := result()
	assert.NilError(t, err)
	return c, peer
}

func connectedIn(t *testing.T, revision string, o *ClientOptions) (*Client, rawPeer) {
	t.Helper()
	return connectedWith(t, revision, `{}`, o)
}

// requestOfEach is one request of every method that has a result, and what it needs of it.
func requestOfEach() map[string]func(ctx context.Context, c *Client) (any, error) {
	return map[string]func(ctx context.Context, c *Client) (any, error){
		"tools/call":               func(ctx context.Context, c *Client) (any, error) { return c.CallTool(ctx, "t", nil, nil) },
		"resources/read":           func(ctx context.Context, c *Client) (any, error) { return c.ReadResource(ctx, "u") },
		"prompts/get":              func(ctx context.Context, c *Client) (any, error) { return c.GetPrompt(ctx, "p", nil) },
		"tools/list":               func(ctx context.Context, c *Client) (any, error) { return c.ListTools(ctx) },
		"resources/list":           func(ctx context.Context, c *Client) (any, error) { return c.ListResources(ctx) },
		"resources/templates/list": func(ctx context.Context, c *Client) (any, error) { return c.ListResourceTemplates(ctx) },
		"prompts/list":             func(ctx context.Context, c *Client) (any, error) { return c.ListPrompts(ctx) },
		"completion/complete":      func(ctx context.Context, c *Client) (any, error) { return c.CompletePrompt(ctx, "p", "a", "v", nil) },
	}
}

// once makes one request, gives it the result, and returns what became of it.
func once(t *testing.T, c *Client, peer rawPeer, method, result string) eraOutcome[any] {
	t.Helper()
	done := inBackground(func() (any, error) { return requestOfEach()[method](t.Context(), c) })
	peer.reply(peer.next(method), result)
	return <-done
}

// --- How a session begins

// TestCapabilities: declared is what has a handler, and nothing else, in both eras; and who asks.
func TestCapabilities(t *testing.T) {
	checkLeaks(t)
	for set := range 8 {
		o := ClientOptions{Info: Implementation{Name: "ours", Title: "Our Own", Version: "3"}}
		var want []string
		if set&1 != 0 {
			o.Elicit = func(context.Context, *ElicitRequest) (*ElicitResult, error) { return nil, nil }
			want = append(want, `"elicitation":{"form":{},"url":{}}`)
		}
		if set&2 != 0 {
			o.Roots = func(context.Context) ([]Root, error) { return nil, nil }
			want = append(want, `"roots":{}`)
		}
		if set&4 != 0 {
			o.Sample = func(context.Context, *SampleRequest) (*SampleResult, error) { return nil, nil }
			want = append(want, `"sampling":{"tools":{}}`)
		}
		capabilities, info := "{"+strings.Join(want, ",")+"}", `{"name":"ours","title":"Our Own","version":"3"}`
		peer, result := connecting(t, t.Context(), &o)
		peer.expect(`{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
			`"io.modelcontextprotocol/clientInfo":` + info + `,"io.modelcontextprotocol/clientCapabilities":` + capabilities + `}}}`)
		peer.send(`{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"what?"}}`)
		peer.expect(`{"jsonrpc":"2.0","id":2,"method":"initialize","params":{"capabilities":` + capabilities + `,"clientInfo":` + info + `,"protocolVersion":"2025-11-25"}}`)
		peer.send(`{"jsonrpc":"2.0","id":2,"result":` + initializeResult("2025-11-25") + `}`)
		peer.expect(initializedLine)
		_, err := result()
		assert.NilError(t, err)
	}
}

func TestDiscovery(t *testing.T) {
	checkLeaks(t)
	peer, result := connecting(t, t.Context(), nil)
	peer.expect(discoverLine)
	peer.send(`{"jsonrpc":"2.0","id":1,"result":{"supportedVersions":["2099-01-01","2026-07-28"],"capabilities":{"tools":{},"x/y":{"a":1}},"instructions":"Ask me.",` +
		`"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"fake","title":"Fake","version":"1.2"}}}}`)
	c, err := result()
	assert.NilError(t, err)
	assert.DeepEqual(t, c.Server, ServerInfo{
		ProtocolVersion: "2026-07-28",
		Capabilities:    map[string]json.RawMessage{"tools": json.RawMessage(`{}`), "x/y": json.RawMessage(`{"a":1}`)},
		Implementation:  Implementation{Name: "fake", Title: "Fake", Version: "1.2"},
		Instructions:    "Ask me.",
	})
}

// TestProbeTime: a silent server costs three seconds, and what it answers later is dropped. A forced revision has the
// time of any request.
func TestProbeTime(t *testing.T) {
	checkLeaks(t)
	synctest.Test(t, func(t *testing.T) {
		var strays []string
		peer, result := connecting(t, t.Context(), &ClientOptions{Stray: func(_ []byte, reason error) { strays = append(strays, reason.Error()) }})
		begin := time.Now()
		peer.expect(discoverLine)
		r := peer.next("initialize") // and no word of cancelling before it
		assert.Equal(t, time.Since(begin), 3*time.Second)
		peer.send(`{"jsonrpc":"2.0","id":1,"result":` + discoveryResult + `}`)
		peer.reply(r, initializeResult("2025-11-25"))
		peer.expect(initializedLine)
		c, err := result()
		assert.NilError(t, err)
		assert.Equal(t, c.Server.ProtocolVersion, "2025-11-25")
		assert.DeepEqual(t, strays, []string{"nobody waits for a response with the id 1"})
	})
	synctest.Test(t, func(t *testing.T) {
		peer, result := connecting(t, t.Context(), &ClientOptions{Protocol: statelessRevision, Timeout: time.Minute})
		r := peer.next("server/discover")
		time.Sleep(59 * time.Second)
		peer.reply(r, discoveryResult)
		_, err := result()
		assert.NilError(t, err)
	})
	synctest.Test(t, func(t *testing.T) {
		peer, result := connecting(t, t.Context(), &ClientOptions{Protocol: statelessRevision, Timeout: time.Minute})
		peer.next("server/discover")
		line, end := peer.Read()
		assert.ErrorContains(t, end, "EOF", "%s", line)
		_, err := result()
		assert.Error(t, err, "the server does not speak 2026-07-28: server/discover: no answer and no progress for 1m0s")
	})
}

// TestProbeEnds: when ctx ends during the probe, that is the end, without a word to the server.
func TestProbeEnds(t *testing.T) {
	checkLeaks(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	peer, result := connecting(t, ctx, nil)
	peer.expect(discoverLine)
	reason := errors.New("too slow to start")
	cancel(reason)
	line, end := peer.Read()
	assert.ErrorContains(t, end, "EOF", "%s", line)
	_, err := result()
	assert.Error(t, err, "server/discover: too slow to start")
	assert.ErrorIs(t, err, reason)
}

// --- What every request has in common

// TestEveryRequest: in the stateless era each says who asks and in which revision; in the handshake era none does. An
// error names the method and wraps what the server said.
func TestEveryRequest(t *testing.T) {
	checkLeaks(t)
	for _, revision := range bothEras() {
		c, peer := connectedIn(t, revision, nil)
		for method, request := range requestOfEach() {
			done := inBackground(func() (any, error) { return request(t.Context(), c) })
			r := peer.next(method)
			var params struct {
				Meta map[string]json.RawMessage `json:"_meta"`
			}
			if r.Params != nil {
				assert.NilError(t, json.Unmarshal(r.Params, &params))
			}
			if method == "tools/call" {
				assert.Equal(t, string(params.Meta["progressToken"]), string(r.ID))
				delete(params.Meta, "progressToken")
			}
			if revision == statelessRevision {
				meta, err := json.Marshal(params.Meta)
				assert.NilError(t, err)
				assert.Equal(t, string(meta), `{"io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{"name":"mcpagent","version":"0"},"io.modelcontextprotocol/protocolVersion":"2026-07-28"}`)
			} else {
				assert.Equal(t, len(params.Meta), 0, "%s", r.Params)
			}
			peer.refuse(r, -32002)
			err := (<-done).err
			assert.ErrorContains(t, err, method)
			assert.ErrorContains(t, err, ": refused (error -32002)")
			var e *Error
			assert.Assert(t, errors.As(err, &e))
			assert.Equal(t, e.Code, int64(CodeResourceNotFound))
		}
	}
}

// TestResultType: a result of a type that is not known is none, whatever the request. A server of the handshake era
// knows no such thing.
func TestResultType(t *testing.T) {
	checkLeaks(t)
	for _, revision := range bothEras() {
		c, peer := connectedIn(t, revision, nil)
		for method := range requestOfEach() {
			for _, good := range []string{`{}`, `{"resultType":"complete"}`, `{"resultType":"\u0063omplete","content":[]}`, `{"resultType":null}`} {
				assert.NilError(t, once(t, c, peer, method, good).err, "%s %s", method, good)
			}
			for _, bad := range []string{`"task"`, `""`, `7`, `{}`, `"Complete"`} {
				err := once(t, c, peer, method, `{"content":[],"resultType":`+bad+`}`).err
				if revision != statelessRevision {
					assert.NilError(t, err)
					continue
				}
				var broken *ProtocolError
				assert.Assert(t, errors.As(err, &broken), "%s %s: %v", method, bad, err)
				assert.ErrorContains(t, err, method)
				assert.ErrorContains(t, err, "the result is of the unknown type ")
			}
		}
	}
}

// TestTokensDiffer: no two requests at work have the same progress token, and each hears of its own progress.
func TestTokensDiffer(t *testing.T) {
	checkLeaks(t)
	for _, revision := range bothEras() {
		c, peer := connectedIn(t, revision, nil)
		const calls = 50
		var all sync.WaitGroup
		for i := range calls {
			all.Go(func() {
				var got []Progress
				_, err := c.CallTool(t.Context(), fmt.Sprint(i), nil, func(p Progress) { got = append(got, p) })
				assert.Check(t, err)
				assert.Check(t, is.DeepEqual(got, []Progress{{Progress: float64(i)}}))
			})
		}
		seen := make(map[string]bool)
		var requests []wireRequest
		for range calls {
			r := peer.next("tools/call")
			requests = append(requests, r)
			var p struct {
				Name string
				Meta struct{ ProgressToken json.RawMessage } `json:"_meta"`
			}
			assert.NilError(t, json.Unmarshal(r.Params, &p))
			assert.Assert(t, !seen[string(p.Meta.ProgressToken)])
			seen[string(p.Meta.ProgressToken)] = true
			peer.send(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":` + string(p.Meta.ProgressToken) + `,"progress":` + p.Name + `}}`)
		}
		for _, r := range slices.Backward(requests) {
			peer.reply(r, `{}`)
		}
		all.Wait()
	}
}

// TestBatch: an array of messages is what its messages are, in their order (2025-03-26).
func TestBatch(t *testing.T) {
	checkLeaks(t)
	c, peer := connectedIn(t, "2025-03-26", nil)
	var got []float64
	first := c.goCall(t.Context(), "a", func(p Progress) { got = append(got, p.Progress) })
	peer.expect(callLine(2, "a"))
	second := c.goCall(t.Context(), "b", nil)
	peer.expect(callLine(3, "b"))
	peer.send(`[` + progressLine("2", 1) + `,{"jsonrpc":"2.0","id":"s","method":"ping"},{"jsonrpc":"2.0","id":3,"error":{"code":1,"message":"no"}},` +
		progressLine("2", 2) + `,{"jsonrpc":"2.0","id":2,"result":{}}]`)
	peer.expect(`{"jsonrpc":"2.0","id":"s","result":{}}`)
	assert.NilError(t, (<-first).err)
	assert.Error(t, (<-second).err, "tools/call b: no (error 1)")
	assert.DeepEqual(t, got, []float64{1, 2})
}

// --- Listen

// goListen begins to listen; changes arrive in the channel.
func goListen(ctx context.Context, c *Client, s Subscription) (<-chan Change, <-chan eraOutcome[struct{}]) {
	changes := make(chan Change, 100)
	return changes, inBackground(func() (struct{}, error) {
		return struct{}{}, c.Listen(ctx, s, func(change Change) { changes <- change })
	})
}

func changeLine(what, params string) string {
	return `{"jsonrpc":"2.0","method":"notifications/` + what + `","params":{` + params + `}}`
}

// heard makes sure that the client has dealt with all that was sent before.
func heard(t *testing.T, c *Client, peer rawPeer) {
	t.Helper()
	done := c.goCall(t.Context(), "heard", nil)
	peer.reply(peer.next("tools/call"), `{}`)
	assert.NilError(t, (<-done).err)
}

func TestListenInHandshakeEra(t *testing.T) {
	checkLeaks(t)
	c, peer := connectedIn(t, "2025-11-25", nil)
	ctx, cancel := context.WithCancelCause(t.Context())
	changes, done := goListen(ctx, c, Subscription{Tools: true, URIs: []string{"file:///a", "file:///b"}})
	for i, uri := range []string{"file:///a", "file:///b"} {
		peer.expect(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"resources/subscribe","params":{"uri":"%s"}}`, i+2, uri))
		if i == 1 { // told of between the two
			peer.send(changeLine("resources/updated", `"uri":"file:///a"`))
			assert.DeepEqual(t, <-changes, Change{URI: "file:///a"})
		}
		peer.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{}}`, i+2))
	}
	peer.send(
		changeLine("prompts/list_changed", ``), // nobody's
		changeLine("resources/list_changed", ``),
		`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`, // params may be missing
		changeLine("resources/updated", `"uri":"file:///b/below"`),
		changeLine("resources/updated", `"uri":7`),
	)
	assert.DeepEqual(t, <-changes, Change{List: "tools"})
	assert.DeepEqual(t, <-changes, Change{URI: "file:///b/below"})

	reason := errors.New("enough")
	cancel(reason)
	peer.expect(`{"jsonrpc":"2.0","id":4,"method":"resources/unsubscribe","params":{"uri":"file:///a"}}`)
	peer.send(`{"jsonrpc":"2.0","id":4,"error":{"code":-32601,"message":"once is for ever"}}`)
	peer.expect(`{"jsonrpc":"2.0","id":5,"method":"resources/unsubscribe","params":{"uri":"file:///b"}}`)
	peer.send(`{"jsonrpc":"2.0","id":5,"result":{}}`)
	assert.ErrorIs(t, (<-done).err, reason)
	peer.send(changeLine("resources/updated", `"uri":"file:///a"`))
	heard(t, c, peer)
	assert.Equal(t, len(changes), 0)

	// A subscription that the server does not grant ends those before it.
	_, done = goListen(t.Context(), c, Subscription{URIs: []string{"file:///a", "file:///none", "file:///c"}})
	peer.reply(peer.next("resources/subscribe"), `{}`)
	peer.refuse(peer.next("resources/subscribe"), -32602)
	r := peer.next("resources/unsubscribe")
	assert.Equal(t, string(r.Params), `{"uri":"file:///a"}`)
	peer.reply(r, `{}`)
	assert.Error(t, (<-done).err, "resources/subscribe file:///none: refused (error -32602)")
	assert.Equal(t, len(c.listens), 0)

	// A server that is gone ends them all.
	_, lists := goListen(t.Context(), c, Subscription{Prompts: true})
	_, uris := goListen(t.Context(), c, Subscription{URIs: []string{"file:///a"}})
	peer.reply(peer.next("resources/subscribe"), `{}`)
	peer.hangUp()
	assert.ErrorIs(t, (<-lists).err, ErrClosed)
	assert.ErrorIs(t, (<-uris).err, ErrClosed)
}

// TestListenTwiceToOneURI: the server knows only whether a resource is subscribed to; so who ends first must not take
// it from the other.
func TestListenTwiceToOneURI(t *testing.T) {
	checkLeaks(t)
	c, peer := connectedIn(t, "2025-11-25", nil)
	s := Subscription{URIs: []string{"file:///a"}}
	ctx, cancel := context.WithCancel(t.Context())
	_, first := goListen(ctx, c, s)
	peer.reply(peer.next("resources/subscribe"), `{}`)
	ctx2, cancel2 := context.WithCancel(t.Context())
	changes, second := goListen(ctx2, c, s)
	peer.reply(peer.next("resources/subscribe"), `{}`)
	cancel()
	assert.ErrorIs(t, (<-first).err, context.Canceled)
	heard(t, c, peer) // and nothing was sent before
	peer.send(changeLine("resources/updated", `"uri":"file:///a"`))
	assert.DeepEqual(t, <-changes, Change{URI: "file:///a"})
	cancel2()
	peer.reply(peer.next("resources/unsubscribe"), `{}`)
	assert.ErrorIs(t, (<-second).err, context.Canceled)
}

// TestListenUnsubscribesInPassing: a server that does not answer to the end of a subscription is not waited for long.
func TestListenUnsubscribesInPassing(t *testing.T) {
	checkLeaks(t)
	synctest.Test(t, func(t *testing.T) {
		c, peer := connectedIn(t, "2025-11-25", nil)
		ctx, cancel := context.WithCancel(t.Context())
		_, done := goListen(ctx, c, Subscription{URIs: []string{"file:///a"}})
		peer.reply(peer.next("resources/subscribe"), `{}`)
		cancel()
		peer.next("resources/unsubscribe")
		begin := time.Now()
		assert.ErrorIs(t, (<-done).err, context.Canceled)
		assert.Equal(t, time.Since(begin), noticeGrace)
		peer.next("notifications/cancelled")
	})
}

// TestListensDemultiplexed: in the stateless era a notification is for the one Listen whose request its subscription is,
// whatever that has asked for, and for no other.
func TestListensDemultiplexed(t *testing.T) {
	checkLeaks(t)
	c, peer := connectedIn(t, statelessRevision, nil)
	ctx, cancel := context.WithCancelCause(t.Context())
	one, oneDone := goListen(ctx, c, Subscription{Tools: true, Prompts: true})
	peer.expect(`{"jsonrpc":"2.0","id":2,"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true,"promptsListChanged":true},` + statelessMeta + `}}`)
	two, twoDone := goListen(t.Context(), c, Subscription{Resources: true, Tools: true, URIs: []string{"file:///a"}})
	peer.expect(`{"jsonrpc":"2.0","id":3,"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true,"resourcesListChanged":true,"resourceSubscriptions":["file:///a"]},` + statelessMeta + `}}`)
	of := func(id string) string { return `"_meta":{"io.modelcontextprotocol/subscriptionId":` + id + `}` }
	peer.send(
		changeLine("subscriptions/acknowledged", of("3")+`,"notifications":{"resourcesListChanged":true}`),
		changeLine("tools/list_changed", of("3")),
		changeLine("subscriptions/acknowledged", of("2")+`,"notifications":{}`),
		changeLine("tools/list_changed", of("2")),
		changeLine("resources/updated", of(`"3"`)+`,"uri":"file:///a"`), // servers change these as they change ids
		changeLine("prompts/list_changed", of("2.0")),
		changeLine("resources/list_changed", of("3")),
		changeLine("tools/list_changed", ``), // nobody's, like the next four
		changeLine("tools/list_changed", of("null")),
		changeLine("tools/list_changed", of("0")),
		changeLine("tools/list_changed", of("4")),
		changeLine("tools/list_changed", of(`{"id":2}`)),
	)
	heard(t, c, peer)
	var got [2][]Change
	for i, changes := range []<-chan Change{one, two} {
		for len(changes) > 0 {
			got[i] = append(got[i], <-changes)
		}
	}
	assert.DeepEqual(t, got, [2][]Change{
		{{List: "tools"}, {List: "prompts"}},
		{{List: "tools"}, {URI: "file:///a"}, {List: "resources"}},
	})

	// The end of one is not the other's.
	reason := errors.New("enough")
	cancel(reason)
	assert.ErrorIs(t, (<-oneDone).err, reason)
	peer.expect(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"reason":"enough","requestId":2}}`)
	peer.send(changeLine("tools/list_changed", of("2")), changeLine("tools/list_changed", of("3")))
	assert.DeepEqual(t, <-two, Change{List: "tools"})
	assert.Equal(t, len(one), 0)
	peer.send(`{"jsonrpc":"2.0","id":3,"result":{"resultType":"complete",` + of("3") + `}}`)
	assert.NilError(t, (<-twoDone).err)
	assert.Equal(t, len(c.listens), 0)
}

// TestListenEnds: in the stateless era the server has several ways to end a subscription, of which one is in good order. The
// client has nothing more to say then.
func TestListenEnds(t *testing.T) {
	checkLeaks(t)
	for _, end := range []struct{ line, want string }{
		{`{"jsonrpc":"2.0","id":2,"result":{"resultType":"complete"}}`, ""},
		{`{"jsonrpc":"2.0","id":2,"result":{}}`, ""},
		{`{"jsonrpc":"2.0","id":2,"result":{"resultType":"task"}}`, `the result is of the unknown type "task"`},
		{`{"jsonrpc":"2.0","id":2,"result":{"resultType":"input_required","requestState":"s"}}`, `the server asks for input where the protocol allows none`},
		{`{"jsonrpc":"2.0","id":2,"error":{"code":-32601,"message":"no such method"}}`, `no such method (error -32601)`},
		{`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2,"reason":"restart"}}`, `the server has ended the subscription`},
		{`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"2"}}`, `the server has ended the subscription`},
	} {
		c, peer := connectedIn(t, statelessRevision, nil)
		_, done := goListen(t.Context(), c, Subscription{Tools: true})
		peer.next("subscriptions/listen")
		peer.send(end.line)
		if err := (<-done).err; end.want == "" {
			assert.NilError(t, err, end.line)
		} else {
			assert.Error(t, err, "subscriptions/listen: "+end.want)
			var broken *ProtocolError
			var refused *Error
			assert.Assert(t, errors.As(err, &broken) || errors.As(err, &refused))
		}
		heard(t, c, peer)
		assert.NilError(t, c.Close()) // which waits for what else there is to be said
		line, err := peer.Read()
		assert.Equal(t, err, io.EOF, "%s", line)
	}
	c, peer := connectedIn(t, statelessRevision, nil)
	_, done := goListen(t.Context(), c, Subscription{})
	peer.expect(`{"jsonrpc":"2.0","id":2,"method":"subscriptions/listen","params":{"notifications":{},` + statelessMeta + `}}`)
	peer.hangUp()
	err := (<-done).err
	assert.ErrorIs(t, err, ErrClosed)
	assert.ErrorContains(t, err, "subscriptions/listen: ")
}

// TestServerEndsOnlyListens: in the stateless era a server may cancel no request but a subscription.
func TestServerEndsOnlyListens(t *testing.T) {
	checkLeaks(t)
	c, peer := connectedIn(t, statelessRevision, nil)
	done := c.goCall(t.Context(), "t", nil)
	r := peer.next("tools/call")
	for _, id := range []string{"2", `"2"`, "1", "99", "null", "{}"} {
		peer.send(changeLine("cancelled", `"requestId":`+id))
	}
	peer.reply(r, `{}`)
	assert.NilError(t, (<-done).err)
}

// TestListenIsEndless: it is the one request without a time; the others have theirs meanwhile.
func TestListenIsEndless(t *testing.T) {
	checkLeaks(t)
	for _, revision := range bothEras() {
		synctest.Test(t, func(t *testing.T) {
			c, peer := connectedIn(t, revision, nil)
			ctx, cancel := context.WithTimeout(t.Context(), 48*time.Hour)
			defer cancel()
			_, done := goListen(ctx, c, Subscription{Tools: true})
			if revision == statelessRevision {
				peer.next("subscriptions/listen")
			}
			begin := time.Now()
			call := c.goCall(t.Context(), "t", nil)
			peer.next("tools/call")
			assert.ErrorContains(t, (<-call).err, "no answer and no progress for 5m0s")
			peer.next("notifications/cancelled")
			assert.ErrorIs(t, (<-done).err, context.DeadlineExceeded)
			assert.Equal(t, time.Since(begin), 48*time.Hour)
			if revision == statelessRevision {
				peer.next("notifications/cancelled")
			}
		})
	}
}

// --- Lists

// listMethods are the methods of the lists, with the members that hold the items.
func listMethods() map[string]string {
	return map[string]string{"tools/list": "tools", "prompts/list": "prompts", "resources/list": "resources", "resources/templates/list": "resourceTemplates"}
}

// asks says whether the list has to be asked for; then it is answered with a page that says so much more.
func asks(t *testing.T, c *Client, peer rawPeer, method, more string) bool {
	t.Helper()
	before := lastID(c)
	done := inBackground(func() (any, error) { return requestOfEach()[method](t.Context(), c) })
	synctest.Wait()
	asked := lastID(c) > before
	if asked {
		peer.reply(peer.next(method), `{"`+listMethods()[method]+`":[{}]`+more+`}`)
	}
	assert.NilError(t, (<-done).err)
	return asked
}

func lastID(c *Client) int64 {
	c.conn.mu.Lock()
	defer c.conn.mu.Unlock()
	return c.conn.lastID
}

// TestListFresh: a list is not asked for again while the server says it is fresh, but at most for a day.
func TestListFresh(t *testing.T) {
	checkLeaks(t)
	day := 24 * time.Hour
	for ttl, fresh := range map[string]time.Duration{
		``:                       0,
		`,"ttlMs":0`:             0,
		`,"ttlMs":null`:          0,
		`,"ttlMs":-1`:            0,
		`,"ttlMs":-9e18`:         0,
		`,"ttlMs":60000`:         time.Minute,
		`,"ttlMs":6e4`:           time.Minute,
		`,"ttlMs":60000.0`:       time.Minute,
		`,"ttlMs":86400000`:      day,
		`,"ttlMs":86400001`:      day,
		`,"ttlMs":9e300`:         day,
		`,"ttlMs":9223372036855`: day,
	} {
		for method := range listMethods() {
			synctest.Test(t, func(t *testing.T) {
				c, peer := connectedWith(t, statelessRevision, `{"tools":{"listChanged":true}}`, nil)
				assert.Assert(t, asks(t, c, peer, method, ttl), "%s %s", method, ttl)
				if fresh > 0 {
					assert.Assert(t, !asks(t, c, peer, method, ttl), "%s %s", method, ttl)
					time.Sleep(fresh - time.Millisecond)
					assert.Assert(t, !asks(t, c, peer, method, ttl), "%s %s", method, ttl)
					time.Sleep(time.Millisecond)
				}
				assert.Assert(t, asks(t, c, peer, method, ttl), "%s %s", method, ttl)
			})
		}
	}
}

// TestListAsFreshAsItsStalestPage: each page's time begins with the page.
func TestListAsFreshAsItsStalestPage(t *testing.T) {
	checkLeaks(t)
	for _, ttls := range [][3]int{{30, 60, 90}, {60, 25, 90}, {90, 60, 20}} { // seconds
		synctest.Test(t, func(t *testing.T) {
			c, peer := connectedIn(t, statelessRevision, nil)
			done := inBackground(func() ([]Tool, error) { return c.ListTools(t.Context()) })
			for page, ttl := range ttls {
				r := peer.next("tools/list")
				time.Sleep(5 * time.Second) // asked for 0, 5 and 10 seconds after the first, and here 5 seconds later
				next := fmt.Sprintf(`,"nextCursor":"%d"`, page)
				if page == 2 {
					next = ""
				}
				peer.reply(r, fmt.Sprintf(`{"tools":[{"name":"%d"}],"ttlMs":%d%s}`, page, ttl*1000, next))
			}
			got := <-done
			assert.NilError(t, got.err)
			assert.Equal(t, len(got.value), 3)
			time.Sleep(15*time.Second - 1)
			assert.Assert(t, !asks(t, c, peer, "tools/list", ""))
			time.Sleep(5*time.Second + 1)
			assert.Assert(t, asks(t, c, peer, "tools/list", ""))
		})
	}
}

// TestListInHandshakeEra: a server that promises to tell of changes is believed; of templates there is no such promise.
func TestListInHandshakeEra(t *testing.T) {
	checkLeaks(t)
	synctest.Test(t, func(t *testing.T) {
		c, peer := connectedWith(t, "2025-11-25", `{"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"listChanged":true}}`, nil)
		for method := range listMethods() {
			assert.Assert(t, asks(t, c, peer, method, ""))
			time.Sleep(365 * 24 * time.Hour)
			assert.Equal(t, asks(t, c, peer, method, ""), method == "resources/templates/list")
		}
		for _, kind := range []string{"tools", "prompts", "resources"} {
			peer.send(`{"jsonrpc":"2.0","method":"notifications/` + kind + `/list_changed"}`)
			assert.Assert(t, asks(t, c, peer, kind+"/list", ""))
			assert.Assert(t, !asks(t, c, peer, kind+"/list", ""))
		}
	})
	for _, capabilities := range []string{`{}`, `{"tools":{},"prompts":{"listChanged":false},"resources":null}`, `{"tools":{"listChanged":"yes"},"prompts":[]}`} {
		synctest.Test(t, func(t *testing.T) {
			c, peer := connectedWith(t, "2025-11-25", capabilities, nil)
			for method := range listMethods() {
				for range 2 {
					assert.Assert(t, asks(t, c, peer, method, ""))
				}
			}
		})
	}
}

// TestListForgotten: a change empties the cache of its kind, whether or not somebody listens; the error of a request empties
// all of it, as the client may have asked for what is there no more.
func TestListForgotten(t *testing.T) {
	checkLeaks(t)
	const fresh = `,"ttlMs":3600000`
	for kind, emptied := range map[string][]string{
		"tools":     {"tools/list"},
		"prompts":   {"prompts/list"},
		"resources": {"resources/list", "resources/templates/list"},
	} {
		for _, params := range []string{``, `"_meta":{"io.modelcontextprotocol/subscriptionId":7}`} {
			synctest.Test(t, func(t *testing.T) {
				c, peer := connectedIn(t, statelessRevision, nil)
				for method := range listMethods() {
					asks(t, c, peer, method, fresh)
				}
				peer.send(changeLine(kind+"/list_changed", params), changeLine("resources/updated", `"uri":"u"`))
				for method := range listMethods() {
					assert.Equal(t, asks(t, c, peer, method, fresh), slices.Contains(emptied, method), "%s %s", kind, method)
				}
			})
		}
	}
	for _, method := range []string{"tools/call", "prompts/get", "resources/read"} {
		synctest.Test(t, func(t *testing.T) {
			c, peer := connectedIn(t, statelessRevision, nil)
			for list := range listMethods() {
				asks(t, c, peer, list, fresh)
			}
			assert.NilError(t, once(t, c, peer, method, `{"isError":true}`).err)
			for list := range listMethods() {
				assert.Assert(t, !asks(t, c, peer, list, fresh))
			}
			done := inBackground(func() (any, error) { return requestOfEach()[method](t.Context(), c) })
			peer.refuse(peer.next(method), -32602)
			assert.ErrorContains(t, (<-done).err, "refused")
			for list := range listMethods() {
				assert.Assert(t, asks(t, c, peer, list, fresh))
			}
		})
	}
}

// TestChangeDuringListing: what is told of while a list is read may be of a page that was there already.
func TestChangeDuringListing(t *testing.T) {
	checkLeaks(t)
	for _, revision := range bothEras() {
		synctest.Test(t, func(t *testing.T) {
			c, peer := connectedWith(t, revision, `{"tools":{"listChanged":true}}`, nil)
			done := inBackground(func() ([]Tool, error) { return c.ListTools(t.Context()) })
			peer.reply(peer.next("tools/list"), `{"tools":[{"name":"a"}],"nextCursor":"2","ttlMs":60000}`)
			r := peer.next("tools/list")
			peer.send(changeLine("tools/list_changed", ``))
			peer.reply(r, `{"tools":[{"name":"b"}],"ttlMs":60000}`)
			got := <-done
			assert.NilError(t, got.err)
			assert.Equal(t, len(got.value), 2)
			assert.Assert(t, asks(t, c, peer, "tools/list", `,"ttlMs":60000`))
			assert.Assert(t, !asks(t, c, peer, "tools/list", ""))
		})
	}
}

// TestListIsTheCallers: what a caller does with a list is not done to the next one's.
func TestListIsTheCallers(t *testing.T) {
	checkLeaks(t)
	c, peer := connectedIn(t, statelessRevision, nil)
	once(t, c, peer, "prompts/list", `{"prompts":[{"name":"a"},{"name":"b"}],"ttlMs":60000}`)
	for range 3 {
		prompts, err := c.ListPrompts(t.Context())
		assert.NilError(t, err)
		assert.Assert(t, is.Len(prompts, 2))
		assert.Equal(t, prompts[0].Name+prompts[1].Name, "ab")
		slices.Reverse(prompts)
	}
}

// TestListFails: a list that was not read to its end is returned as far as it goes, and not kept.
func TestListFails(t *testing.T) {
	checkLeaks(t)
	for _, revision := range bothEras() {
		c, peer := connectedWith(t, revision, `{"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"listChanged":true}}`, nil)
		for method, member := range listMethods() {
			page := func(name, more string) string {
				return `{"` + member + `":[{"name":"` + name + `"}],"ttlMs":60000` + more + `}`
			}
			for ending, want := range map[string]string{
				page("c", `,"nextCursor":"x"`):          `the server repeats the cursor "x"`,
				`{"` + member + `":{}}`:                 member,
				`{"` + member + `":[7]}`:                member,
				`{"` + member + `":[{"name":[]}]}`:      `name`,
				`{"` + member + `":[],"nextCursor":7}`:  `nextCursor`,
				`{"` + member + `":[],"ttlMs":"a day"}`: `ttlMs`,
				`[]`:                                    `array`,
			} {
				done := inBackground(func() (any, error) { return requestOfEach()[method](t.Context(), c) })
				peer.reply(peer.next(method), page("a", `,"nextCursor":"x"`))
				peer.reply(peer.next(method), page("b", `,"nextCursor":"y"`))
				peer.reply(peer.next(method), ending)
				got := <-done
				assert.ErrorContains(t, got.err, method+": ")
				assert.Assert(t, strings.Contains(strings.ToLower(got.err.Error()), strings.ToLower(want)), "%s: %v", ending, got.err)
				text, err := json.Marshal(got.value)
				assert.NilError(t, err)
				assert.Assert(t, bytes.Contains(text, []byte(`"name":"a"`)) && bytes.Contains(text, []byte(`"name":"b"`)), "%s", text)
			}
		}
	}
}

// TestEmptyCursor: in the stateless era it is a cursor like any other, before it an end.
func TestEmptyCursor(t *testing.T) {
	checkLeaks(t)
	for method, member := range listMethods() {
		c, peer := connectedIn(t, "2025-11-25", nil)
		assert.NilError(t, once(t, c, peer, method, `{"`+member+`":[{}],"nextCursor":""}`).err)

		c, peer = connectedIn(t, statelessRevision, nil)
		done := inBackground(func() (any, error) { return requestOfEach()[method](t.Context(), c) })
		peer.reply(peer.next(method), `{"`+member+`":[{}],"nextCursor":""}`)
		peer.expect(`{"jsonrpc":"2.0","id":3,"method":"` + method + `","params":{"cursor":"",` + statelessMeta + `}}`)
		peer.send(`{"jsonrpc":"2.0","id":3,"result":{"` + member + `":[{}]}}`)
		got := <-done
		assert.NilError(t, got.err)
		text, err := json.Marshal(got.value)
		assert.NilError(t, err)
		var items []any
		assert.NilError(t, json.Unmarshal(text, &items))
		assert.Equal(t, len(items), 2)
	}
}

// TestEndlessList: a server that always has another cursor is asked for so many pages.
func TestEndlessList(t *testing.T) {
	checkLeaks(t)
	pages := 0
	c := fakeServer(t, nil, func(context.Context, *Conn, string, json.RawMessage) (any, error) {
		pages++ // no lock: one after the other
		return json.RawMessage(fmt.Sprintf(`{"tools":[{"name":"%d"}],"nextCursor":"%[1]d"}`, pages)), nil
	})
	tools, err := c.ListTools(t.Context())
	assert.Error(t, err, "tools/list: the list goes on after 10000 pages")
	assert.Equal(t, len(tools), pages)
	assert.Assert(t, pages == maxPages+1, "%d", pages)
}

// TestManyTools: a list of a hundred thousand is one.
func TestManyTools(t *testing.T) {
	checkLeaks(t)
	const many = 100_000
	var page strings.Builder
	page.WriteString(`{"tools":[`)
	for i := range many {
		fmt.Fprintf(&page, `{"name":"t%d","inputSchema":{"type":"object"}},`, i)
	}
	c, peer := connectedIn(t, statelessRevision, nil)
	got := once(t, c, peer, "tools/list", strings.TrimSuffix(page.String(), ",")+`],"ttlMs":60000}`)
	assert.NilError(t, got.err)
	tools := got.value.([]Tool)
	assert.Equal(t, len(tools), many)
	assert.Equal(t, tools[many-1].Name, fmt.Sprintf("t%d", many-1))
	tools, err := c.ListTools(t.Context())
	assert.NilError(t, err)
	assert.Equal(t, len(tools), many)
}

// --- What the server asks

// mayNeedInput are the requests to which a server may answer that it needs input (MCP 2026-07-28, patterns, multi
// round-trip requests).
func mayNeedInput() []string { return []string{"tools/call", "prompts/get", "resources/read"} }

// inputOf decodes what a request brings of the round before: absent members are nil.
func inputOf(t *testing.T, r wireRequest) (responses map[string]json.RawMessage, state json.RawMessage) {
	t.Helper()
	var members map[string]json.RawMessage
	assert.NilError(t, json.Unmarshal(r.Params, &members))
	if members["inputResponses"] != nil {
		assert.NilError(t, json.Unmarshal(members["inputResponses"], &responses))
	}
	return responses, members["requestState"]
}

// TestInputAllowed: what may need input and what may not.
func TestInputAllowed(t *testing.T) {
	checkLeaks(t)
	c, peer := connectedIn(t, statelessRevision, &ClientOptions{Roots: func(context.Context) ([]Root, error) { return nil, nil }})
	for method := range requestOfEach() {
		done := inBackground(func() (any, error) { return requestOfEach()[method](t.Context(), c) })
		first := peer.next(method)
		peer.reply(first, `{"resultType":"input_required","inputRequests":{"r":{"method":"roots/list"}},"requestState":"s"}`)
		if !slices.Contains(mayNeedInput(), method) {
			err := (<-done).err
			assert.ErrorContains(t, err, method)
			assert.ErrorContains(t, err, "the server asks for input where the protocol allows none")
			var broken *ProtocolError
			assert.Assert(t, errors.As(err, &broken))
			continue
		}
		second := peer.next(method)
		assert.Assert(t, string(first.ID) != string(second.ID))
		responses, state := inputOf(t, second)
		assert.DeepEqual(t, responses, map[string]json.RawMessage{"r": json.RawMessage(`{"roots":[]}`)})
		assert.Equal(t, string(state), `"s"`)
		peer.reply(second, `{}`)
		assert.NilError(t, (<-done).err)
		// It is of that request alone.
		done = inBackground(func() (any, error) { return requestOfEach()[method](t.Context(), c) })
		third := peer.next(method)
		responses, state = inputOf(t, third)
		assert.Assert(t, responses == nil && state == nil)
		peer.reply(third, `{}`)
		assert.NilError(t, (<-done).err)
	}
}

// TestInputForEver: a server that asks on and on is answered ten times. Nobody is asked for what would not be sent, and each
// round is a request of its own, with a token of its own.
func TestInputForEver(t *testing.T) {
	checkLeaks(t)
	for _, method := range mayNeedInput() {
		asked := 0
		c, peer := connectedIn(t, statelessRevision, &ClientOptions{Elicit: func(context.Context, *ElicitRequest) (*ElicitResult, error) {
			asked++
			return &ElicitResult{Action: "decline"}, nil
		}})
		done := inBackground(func() (any, error) { return requestOfEach()[method](t.Context(), c) })
		seen := make(map[string]bool)
		for round := range maxRounds + 1 {
			r := peer.next(method)
			assert.Assert(t, !seen[string(r.ID)])
			seen[string(r.ID)] = true
			responses, _ := inputOf(t, r)
			assert.Equal(t, len(responses), min(round, 1))
			if method == "tools/call" {
				assert.Assert(t, strings.Contains(string(r.Params), `"_meta":{"progressToken":`+string(r.ID)+`,`), "%s", r.Params)
			}
			peer.reply(r, `{"resultType":"input_required","inputRequests":{"q":{"method":"elicitation/create","params":{"message":"again?","requestedSchema":{"type":"object","properties":{}}}}}}`)
		}
		err := (<-done).err
		var broken *ProtocolError
		assert.Assert(t, errors.As(err, &broken), "%v", err)
		assert.ErrorContains(t, err, method)
		assert.ErrorContains(t, err, "the server asked for input 11 times")
		assert.Equal(t, asked, maxRounds)
		heard(t, c, peer)
	}
}

// TestRequestState: it is returned byte for byte, once, and is absent where it was absent.
func TestRequestState(t *testing.T) {
	checkLeaks(t)
	c, peer := connectedIn(t, statelessRevision, &ClientOptions{Roots: func(context.Context) ([]Root, error) { return nil, nil }})
	const roots = `"inputRequests":{"r":{"method":"roots/list","params":{}}}`
	large := strings.Repeat(`\u00e9\/\"é<&>\ud83d 😀`, 1<<20/30) + strings.Repeat("x", 1<<19)
	assert.Assert(t, len(large) > 1<<20)
	for _, state := range []string{``, `null`, `""`, `"s"`, `"\u0073"`, `"` + large + `"`} {
		needs, want := roots, ``
		if state != `` {
			needs += `,"requestState":` + state
		}
		if state != `null` {
			want = state
		}
		done := c.goCall(t.Context(), "t", nil)
		peer.reply(peer.next("tools/call"), `{"resultType":"input_required",`+needs+`}`)
		r := peer.next("tools/call")
		_, got := inputOf(t, r)
		assert.Assert(t, string(got) == want, "%.100s: %.100s", want, got)
		if want == `` {
			// A round with a state alone: no answers go with it, and those of the round before do not either.
			peer.reply(r, `{"resultType":"input_required","requestState":"later"}`)
			r = peer.next("tools/call")
			responses, got := inputOf(t, r)
			assert.Assert(t, responses == nil)
			assert.Equal(t, string(got), `"later"`)
		}
		peer.reply(r, `{"resultType":"input_required",`+roots+`}`)
		r = peer.next("tools/call")
		_, got = inputOf(t, r)
		assert.Assert(t, got == nil, "%.100s", got) // the state of a round before
		peer.reply(r, `{}`)
		assert.NilError(t, (<-done).err)
	}
}

// TestInputOrder: the user is asked one question after the other, in the order of their names.
func TestInputOrder(t *testing.T) {
	checkLeaks(t)
	var asked []string
	c, peer := connectedIn(t, statelessRevision, &ClientOptions{
		Elicit: func(_ context.Context, r *ElicitRequest) (*ElicitResult, error) {
			asked = append(asked, r.Message) // no lock: one after the other
			return &ElicitResult{Action: "accept", Content: map[string]any{"name": r.Message}}, nil
		},
		Sample: func(_ context.Context, r *SampleRequest) (*SampleResult, error) {
			asked = append(asked, r.SystemPrompt)
			return &SampleResult{Role: "assistant", Content: SampleContent{{Type: "text", Text: "Paris"}}, Model: "m", StopReason: "endTurn"}, nil
		},
	})
	done := c.goCall(t.Context(), "t", nil)
	form := func(message string) string {
		return `{"method":"elicitation/create","params":{"mode":"form","message":"` + message + `","requestedSchema":{"type":"object","properties":{"name":{"type":"string"}},"required":["name"]}}}`
	}
	peer.reply(peer.next("tools/call"), `{"resultType":"input_required","inputRequests":{"c":`+form("third")+`,"a":`+form("first")+
		`,"b":{"method":"sampling/createMessage","params":{"messages":[],"maxTokens":1,"systemPrompt":"second"}},"d":`+form("fourth")+`}}`)
	r := peer.next("tools/call")
	responses, _ := inputOf(t, r)
	assert.DeepEqual(t, asked, []string{"first", "second", "third", "fourth"})
	got, err := json.Marshal(responses)
	assert.NilError(t, err)
	assert.Equal(t, string(got), `{"a":{"action":"accept","content":{"name":"first"}},`+
		`"b":{"role":"assistant","content":{"type":"text","text":"Paris"},"model":"m","stopReason":"endTurn"},`+
		`"c":{"action":"accept","content":{"name":"third"}},"d":{"action":"accept","content":{"name":"fourth"}}}`)
	peer.reply(r, `{}`)
	assert.NilError(t, (<-done).err)
}

// TestInputFails: a call whose question cannot be answered fails, and says for what; it is not sent again.
func TestInputFails(t *testing.T) {
	checkLeaks(t)
	noTerminal := errors.New("no terminal")
	c, peer := connectedIn(t, statelessRevision, &ClientOptions{
		Elicit: func(context.Context, *ElicitRequest) (*ElicitResult, error) { return nil, noTerminal },
	})
	const form = `{"method":"elicitation/create","params":{"message":"?","requestedSchema":{"type":"object","properties":{}}}}`
	for _, needs := range []struct{ in, want string }{
		{`"inputRequests":{"q":` + form + `},"requestState":"s"`, "the server asks for elicitation/create: no terminal"},
		{`"inputRequests":{"q":{"method":"elicitation/create","params":{"message":7}}}`, "the server asks for elicitation/create: "},
		{`"inputRequests":{"q":{"method":"elicitation/create"}}`, "the server asks for elicitation/create: "},
		{`"inputRequests":{"q":{"method":"sampling/createMessage","params":{}}}`, "the server asks for sampling/createMessage: this client does not offer sampling/createMessage"},
		{`"inputRequests":{"q":{"method":"roots/list"}}`, "the server asks for roots/list: this client does not offer roots/list"},
		{`"inputRequests":{"q":{"method":"ping"}}`, "the server asks for ping: this client does not offer ping"},
		{`"inputRequests":{"q":{"method":"tools/call"}}`, "the server asks for tools/call: "},
		{`"inputRequests":{"q":{}}`, "the server asks for "},
		{`"inputRequests":{"q":null}`, "the server asks for "},
		{`"inputRequests":{}`, "the server asks for input, but not for which"},
		{`"inputRequests":null,"requestState":null`, "the server asks for input, but not for which"},
		{`"x":1`, "the server asks for input, but not for which"},
		{`"inputRequests":[]`, "cannot unmarshal array"},
		{`"inputRequests":{"q":7}`, "cannot unmarshal number"},
		{`"inputRequests":{"q":{"method":7}}`, "cannot unmarshal number"},
	} {
		for _, method := range mayNeedInput() {
			got := once(t, c, peer, method, `{"resultType":"input_required",`+needs.in+`}`)
			assert.ErrorContains(t, got.err, method+" ", "%s", needs.in)
			assert.ErrorContains(t, got.err, needs.want, "%s", needs.in)
			ours := strings.HasSuffix(needs.want, "no terminal")
			assert.Equal(t, errors.Is(got.err, noTerminal), ours)
			var refusal *Error // nothing of this is the server's word
			assert.Assert(t, !errors.As(got.err, &refusal), "%v", got.err)
			if !ours && !strings.HasPrefix(needs.want, "cannot") {
				var broken *ProtocolError
				assert.Assert(t, errors.As(got.err, &broken), "%v", got.err)
			}
		}
	}
	heard(t, c, peer)
}

// TestInputIsOfTheStatelessEra: before it, a result of that look is an ordinary one.
func TestInputIsOfTheStatelessEra(t *testing.T) {
	checkLeaks(t)
	c, peer := connectedIn(t, "2025-11-25", nil)
	assert.NilError(t, once(t, c, peer, "tools/call", `{"resultType":"input_required","requestState":"s","content":[]}`).err)
}

// TestInputEnds: ctx ends a call that waits for the user, and nothing is sent for it any more.
func TestInputEnds(t *testing.T) {
	checkLeaks(t)
	asked := make(chan struct{})
	c, peer := connectedIn(t, statelessRevision, &ClientOptions{Elicit: func(ctx context.Context, _ *ElicitRequest) (*ElicitResult, error) {
		close(asked)
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}})
	ctx, cancel := context.WithCancelCause(t.Context())
	done := c.goCall(ctx, "t", nil)
	peer.reply(peer.next("tools/call"), `{"resultType":"input_required","inputRequests":{"q":{"method":"elicitation/create","params":{"message":"?","requestedSchema":{"type":"object","properties":{}}}}}}`)
	<-asked
	reason := errors.New("interrupted")
	cancel(reason)
	err := (<-done).err
	assert.ErrorIs(t, err, reason)
	assert.Error(t, err, "tools/call t: the server asks for elicitation/create: interrupted")
	heard(t, c, peer)
}

// TestServerRequests: a server of the handshake era asks whenever it wants.
func TestServerRequests(t *testing.T) {
	checkLeaks(t)
	var roots []Root
	var elicited *ElicitRequest
	var sampled *SampleRequest
	answers := struct {
		elicit *ElicitResult
		sample *SampleResult
		err    error
	}{}
	c, peer := connectedIn(t, "2025-11-25", &ClientOptions{
		Roots: func(context.Context) ([]Root, error) { return roots, answers.err },
		Elicit: func(_ context.Context, r *ElicitRequest) (*ElicitResult, error) {
			elicited = r
			return answers.elicit, answers.err
		},
		Sample: func(_ context.Context, r *SampleRequest) (*SampleResult, error) {
			sampled = r
			return answers.sample, answers.err
		},
	})
	ask := func(method, params, want string) {
		t.Helper()
		peer.send(`{"jsonrpc":"2.0","id":0,"method":"` + method + `"` + params + `}`)
		peer.expect(`{"jsonrpc":"2.0","id":0,` + want + `}`)
	}
	ask("roots/list", ``, `"result":{"roots":[]}`) // never null
	roots = []Root{{URI: "file:///a", Name: "A"}, {URI: "file:///b"}}
	ask("roots/list", `,"params":{"_meta":{}}`, `"result":{"roots":[{"uri":"file:///a","name":"A"},{"uri":"file:///b"}]}`)

	answers.elicit = &ElicitResult{Action: "accept", Content: map[string]any{"n": 1, "s": "é", "b": true, "l": []string{"x"}}}
	const schema = `{"type":"object", "properties":{"n":{"type":"integer"},"s":{"type":"string"},"b":{"type":"boolean"},"l":{"type":"array","items":{"type":"string","enum":["x","y"]}}}}`
	ask("elicitation/create", `,"params":{"message":"Who?","requestedSchema":`+schema+`}`,
		`"result":{"action":"accept","content":{"b":true,"l":["x"],"n":1,"s":"é"}}`)
	assert.DeepEqual(t, elicited, &ElicitRequest{Message: "Who?", RequestedSchema: json.RawMessage(schema)})
	answers.elicit = &ElicitResult{Action: "cancel"}
	ask("elicitation/create", `,"params":{"mode":"url","message":"Log in.","url":"https://a.example/login","elicitationId":"e1"}`, `"result":{"action":"cancel"}`)
	assert.DeepEqual(t, elicited, &ElicitRequest{Mode: "url", Message: "Log in.", URL: "https://a.example/login", ElicitationID: "e1"})

	// The content of a message is a block or, since 2025-11-25, an array of them.
	answers.sample = &SampleResult{Role: "assistant", Content: SampleContent{{Type: "text", Text: ""}}, Model: "m"}
	ask("sampling/createMessage", `,"params":{"messages":[{"role":"user","content":{"type":"text","text":"Hello"}}],"maxTokens":7,"temperature":0,"modelPreferences":{"hints":[]},"includeContext":"none"}`,
		`"result":{"role":"assistant","content":{"type":"text","text":""},"model":"m"}`)
	zero := 0.0
	assert.DeepEqual(t, sampled, &SampleRequest{
		Messages: []SampleMessage{{Role: "user", Content: SampleContent{
			{Type: "text", Text: "Hello", Raw: json.RawMessage(`{"type":"text","text":"Hello"}`)}}}},
		MaxTokens: 7, Temperature: &zero, ModelPreferences: json.RawMessage(`{"hints":[]}`), IncludeContext: "none",
	})
	const use, result = `{"type":"tool_use","id":"c1","name":"t","input":{}}`, `{"type":"tool_result","toolUseId":"c1","content":[]}`
	answers.sample = &SampleResult{Role: "assistant", Model: "m", StopReason: "toolUse", Content: SampleContent{
		{Type: "text", Text: "Wait."}, {Type: "tool_use", Raw: json.RawMessage(use)}}}
	ask("sampling/createMessage", `,"params":{"messages":[{"role":"assistant","content":[`+use+`]},{"role":"user","content":[`+result+`,{"type":"image","data":"AQI=","mimeType":"image/png"}]},`+
		`{"role":"user","content":[]}],"maxTokens":7,"systemPrompt":"Be brief.","stopSequences":["."],"tools":[{"name":"t","inputSchema":{"type":"object"}}],"toolChoice":{"mode":"required"},"metadata":{"a":1}}`,
		`"result":{"role":"assistant","content":[{"type":"text","text":"Wait."},`+use+`],"model":"m","stopReason":"toolUse"}`)
	assert.DeepEqual(t, sampled, &SampleRequest{
		Messages: []SampleMessage{
			{Role: "assistant", Content: SampleContent{{Type: "tool_use", Raw: json.RawMessage(use)}}},
			{Role: "user", Content: SampleContent{{Type: "tool_result", Raw: json.RawMessage(result)},
				{Type: "image", Data: []byte{1, 2}, MIMEType: "image/png", Raw: json.RawMessage(`{"type":"image","data":"AQI=","mimeType":"image/png"}`)}}},
			{Role: "user", Content: SampleContent{}},
		},
		MaxTokens: 7, SystemPrompt: "Be brief.", StopSequences: []string{"."}, ToolChoice: &SampleChoice{Mode: "required"}, Metadata: json.RawMessage(`{"a":1}`),
		Tools: []Tool{{Name: "t", InputSchema: json.RawMessage(`{"type":"object"}`)}},
	})
	answers.sample = &SampleResult{Role: "assistant", Model: "m"}
	ask("sampling/createMessage", `,"params":{"messages":[],"maxTokens":1}`, `"result":{"role":"assistant","content":[],"model":"m"}`) // never null

	// What is not understood is refused, and nobody is asked.
	elicited, sampled = nil, nil
	for _, bad := range []struct{ method, params string }{
		{"elicitation/create", ``},
		{"elicitation/create", `,"params":[]`},
		{"elicitation/create", `,"params":{"message":["Who?"]}`},
		{"sampling/createMessage", ``},
		{"sampling/createMessage", `,"params":{"messages":"Hello","maxTokens":1}`},
		{"sampling/createMessage", `,"params":{"messages":[{"role":"user","content":"Hello"}],"maxTokens":1}`},
		{"sampling/createMessage", `,"params":{"messages":[],"maxTokens":"many"}`},
	} {
		peer.send(`{"jsonrpc":"2.0","id":"b","method":"` + bad.method + `"` + bad.params + `}`)
		line, err := peer.Read()
		assert.NilError(t, err)
		assert.Assert(t, bytes.Contains(line, []byte(`"error":{"code":-32602,`)), "%s%s: %s", bad.method, bad.params, line)
	}
	assert.Assert(t, elicited == nil && sampled == nil)

	// What a handler says of its failure is told to the server.
	answers.err = errors.New("not now")
	ask("roots/list", ``, `"error":{"code":-32603,"message":"not now"}`)
	answers.err = &Error{Code: -1, Message: "the user has declined"}
	ask("sampling/createMessage", `,"params":{"messages":[],"maxTokens":1}`, `"error":{"code":-1,"message":"the user has declined"}`)
	heard(t, c, peer)
}

// TestStatelessServerAsks: a server of the stateless era may send no request, be there a handler for it or not. A ping is
// answered all the same: the servers of the other era may send one while they are probed.
func TestStatelessServerAsks(t *testing.T) {
	checkLeaks(t)
	c, peer := connectedIn(t, statelessRevision, &ClientOptions{
		Roots:  func(context.Context) ([]Root, error) { t.Error("asked"); return nil, nil },
		Elicit: func(context.Context, *ElicitRequest) (*ElicitResult, error) { t.Error("asked"); return nil, nil },
		Sample: func(context.Context, *SampleRequest) (*SampleResult, error) { t.Error("asked"); return nil, nil },
	})
	peer.send(`{"jsonrpc":"2.0","id":0,"method":"ping"}`)
	peer.expect(`{"jsonrpc":"2.0","id":0,"result":{}}`)
	for _, method := range []string{"roots/list", "elicitation/create", "sampling/createMessage", "tools/list", "x"} {
		peer.send(`{"jsonrpc":"2.0","id":0,"method":"` + method + `","params":{"message":"?","messages":[],"maxTokens":1}}`)
		peer.expect(`{"jsonrpc":"2.0","id":0,"error":{"code":-32601,"message":"a server of revision 2026-07-28 sends no requests"}}`)
	}
	heard(t, c, peer)
}

// TestTimeWhileAsked: the time of a request does not run while the server waits for this side, and begins anew when it
// has its answer; but all of it together is bounded.
func TestTimeWhileAsked(t *testing.T) {
	checkLeaks(t)
	for _, test := range []struct {
		name                string
		asks, thinks, works time.Duration // after the request; after the question; after the answer
		want                string
	}{
		{"longer than the time", 10 * time.Second, 5 * time.Minute, 59 * time.Second, ""},
		{"answered at the last moment", 30 * time.Second, 29 * time.Second, 59 * time.Second, ""},
		{"answered just before the clock is set back again", 30 * time.Second, 89 * time.Second, 59 * time.Second, ""},
		{"and then no answer", 30 * time.Second, 5 * time.Minute, 61 * time.Second, "tools/call t: no answer and no progress for 1m0s"},
		{"for ever", 30 * time.Second, 11 * time.Minute, time.Second, "tools/call t: not done after 10m0s in all"},
		{"longer than all time, then", 30 * time.Second, 9*time.Minute + 25*time.Second, 59 * time.Second, "tools/call t: not done after 10m0s in all"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, peer := connectedIn(t, "2025-11-25", &ClientOptions{
					Timeout: time.Minute, MaxTimeout: 10 * time.Minute,
					Roots: func(context.Context) ([]Root, error) { time.Sleep(test.thinks); return nil, nil },
				})
				begin := time.Now()
				done := c.goCall(t.Context(), "t", nil)
				r := peer.next("tools/call")
				time.Sleep(test.asks)
				peer.send(`{"jsonrpc":"2.0","id":"s","method":"roots/list"}`)
				go func() { // the rest of the server
					for {
						line, err := peer.Read()
						if err != nil {
							return
						}
						if string(line) == `{"jsonrpc":"2.0","id":"s","result":{"roots":[]}}` {
							select {
							case <-time.After(test.works):
							case <-t.Context().Done():
							}
							_ = peer.Write(context.Background(), []byte(`{"jsonrpc":"2.0","id":`+string(r.ID)+`,"result":{}}`))
						}
					}
				}()
				err := (<-done).err
				switch {
				case test.want == "":
					assert.NilError(t, err)
				case strings.HasSuffix(test.want, "in all"):
					assert.Error(t, err, test.want)
					assert.Equal(t, time.Since(begin), 10*time.Minute)
				default:
					assert.Error(t, err, test.want)
					assert.Equal(t, time.Since(begin), test.asks+test.thinks+time.Minute)
				}
			})
		})
	}
}

// TestTimeOfRounds: in the stateless era there is no request at work while the user is asked, and each round has its own time.
func TestTimeOfRounds(t *testing.T) {
	checkLeaks(t)
	synctest.Test(t, func(t *testing.T) {
		c, peer := connectedIn(t, statelessRevision, &ClientOptions{
			Timeout: time.Minute, MaxTimeout: 2 * time.Minute,
			Roots: func(context.Context) ([]Root, error) { time.Sleep(time.Hour); return nil, nil },
		})
		done := c.goCall(t.Context(), "t", nil)
		for range 3 {
			r := peer.next("tools/call")
			time.Sleep(59 * time.Second)
			peer.reply(r, `{"resultType":"input_required","inputRequests":{"r":{"method":"roots/list"}}}`)
		}
		peer.next("tools/call")
		assert.Error(t, (<-done).err, "tools/call t: no answer and no progress for 1m0s")
		peer.next("notifications/cancelled")
	})
}

// --- Log messages

func TestLog(t *testing.T) {
	checkLeaks(t)
	for _, revision := range bothEras() {
		for level, want := range map[string]string{"": "info", "warning": "warning"} {
			var got []LogMessage
			o := &ClientOptions{Protocol: revision, LogLevel: level, Log: func(m LogMessage) { got = append(got, m) }}
			peer, result := connecting(t, t.Context(), o)
			if revision == statelessRevision {
				r := peer.next("server/discover")
				assert.Assert(t, strings.Contains(string(r.Params), `"io.modelcontextprotocol/logLevel":"`+want+`"`), "%s", r.Params)
				peer.reply(r, discoveryResult)
			} else {
				peer.reply(peer.next("initialize"), `{"protocolVersion":"2025-11-25","capabilities":{"logging":{}},"serverInfo":{"name":"fake","version":"1"}}`)
				peer.expect(initializedLine)
				peer.expect(`{"jsonrpc":"2.0","id":2,"method":"logging/setLevel","params":{"level":"` + want + `"}}`)
				peer.send(`{"jsonrpc":"2.0","id":2,"result":{}}`)
			}
			c, err := result()
			assert.NilError(t, err)
			done := c.goCall(t.Context(), "t", nil)
			r := peer.next("tools/call")
			assert.Equal(t, strings.Contains(string(r.Params), `"io.modelcontextprotocol/logLevel":"`+want+`"`), revision == statelessRevision)
			peer.send(
				changeLine("message", `"level":"error","logger":"db","data":{"error":"gone", "code":[7]}`),
				changeLine("message", `"level":3,"data":"dropped"`),
				`{"jsonrpc":"2.0","method":"notifications/message","params":["dropped"]}`,
				changeLine("message", `"level":"emergency","data":"the end"`),
			)
			peer.reply(r, `{}`)
			assert.NilError(t, (<-done).err)
			assert.DeepEqual(t, got, []LogMessage{ // no lock: the answer came after them
				{Level: "error", Logger: "db", Data: json.RawMessage(`{"error":"gone", "code":[7]}`)},
				{Level: "emergency", Data: json.RawMessage(`"the end"`)},
			})
		}
	}
}

// TestNoLog: no level is set where nobody wants to know, or where the server has no such capability.
func TestNoLog(t *testing.T) {
	checkLeaks(t)
	for _, revision := range bothEras() {
		c, peer := connectedWith(t, revision, `{"logging":{}}`, nil)
		peer.send(changeLine("message", `"level":"error","data":1`))
		done := c.goCall(t.Context(), "t", nil)
		r := peer.next("tools/call")
		assert.Assert(t, !strings.Contains(string(r.Params), `logLevel`), "%s", r.Params)
		peer.reply(r, `{}`)
		assert.NilError(t, (<-done).err)
	}
	c, peer := connectedWith(t, "2025-11-25", `{}`, &ClientOptions{Log: func(LogMessage) {}})
	heard(t, c, peer)
}

// TestLogLevelRefused: a server that logs as it likes is still a server; one that gives no answer is not.
func TestLogLevelRefused(t *testing.T) {
	checkLeaks(t)
	for _, refused := range []bool{true, false} {
		peer, result := connecting(t, t.Context(), inHandshake(&ClientOptions{Log: func(LogMessage) {}}))
		peer.reply(peer.next("initialize"), `{"protocolVersion":"2025-11-25","capabilities":{"logging":{}},"serverInfo":{"name":"fake","version":"1"}}`)
		peer.expect(initializedLine)
		r := peer.next("logging/setLevel")
		if refused {
			peer.refuse(r, -32601)
		} else {
			peer.hangUp()
		}
		_, err := result()
		assert.Equal(t, err == nil, refused, "%v", err)
		if !refused {
			assert.ErrorContains(t, err, "logging/setLevel: ")
			assert.ErrorIs(t, err, ErrClosed)
		}
	}
}

// --- Results

func TestResults(t *testing.T) {
	checkLeaks(t)
	raw := func(s string) json.RawMessage { return json.RawMessage(s) }
	for _, revision := range bothEras() {
		c, peer := connectedIn(t, revision, nil)
		for _, test := range []struct {
			method, in string
			want       any
		}{
			{"resources/list", `{"resources":[{"uri":"u","name":"n","title":"T","description":"d","mimeType":"m","size":7,"annotations":{"priority":1},"icons":[{}],"_meta":{"a":1},"new":1},{"uri":"v","name":"w"}]}`,
				[]Resource{{URI: "u", Name: "n", Title: "T", Description: "d", MIMEType: "m", Size: 7, Annotations: raw(`{"priority":1}`), Icons: raw(`[{}]`), Meta: raw(`{"a":1}`)}, {URI: "v", Name: "w"}}},
			{"resources/templates/list", `{"resourceTemplates":[{"uriTemplate":"u{x}","name":"n","title":"T","description":"d","mimeType":"m","annotations":{},"icons":[],"_meta":{}}]}`,
				[]ResourceTemplate{{URITemplate: "u{x}", Name: "n", Title: "T", Description: "d", MIMEType: "m", Annotations: raw(`{}`), Icons: raw(`[]`), Meta: raw(`{}`)}}},
			{"prompts/list", `{"prompts":[{"name":"n","title":"T","description":"d","arguments":[{"name":"a","title":"A","description":"d","required":true},{"name":"b"}],"icons":[],"_meta":{}}]}`,
				[]Prompt{{Name: "n", Title: "T", Description: "d", Arguments: []PromptArgument{{"a", "A", "d", true}, {Name: "b"}}, Icons: raw(`[]`), Meta: raw(`{}`)}}},
			{"tools/list", `{"tools":[{"name":"n","title":"T","description":"d","inputSchema":{"a": 1},"outputSchema":true,"annotations":{"readOnlyHint":true},"icons":[{}],"execution":{"taskSupport":"required"},"_meta":{"a":1}}]}`,
				[]Tool{{Name: "n", Title: "T", Description: "d", InputSchema: raw(`{"a": 1}`), OutputSchema: raw(`true`), Annotations: raw(`{"readOnlyHint":true}`), Icons: raw(`[{}]`), Execution: raw(`{"taskSupport":"required"}`), Meta: raw(`{"a":1}`)}}},
			{"resources/read", `{"contents":[{"uri":"u","mimeType":"m","text":"t","_meta":{"a":1}},{"uri":"v","blob":"AQL/"},{"uri":"w","blob":""},{"uri":"x","text":""}]}`,
				[]ResourceContents{{URI: "u", MIMEType: "m", Text: "t", Meta: raw(`{"a":1}`)}, {URI: "v", Blob: []byte{1, 2, 255}}, {URI: "w", Blob: []byte{}}, {URI: "x"}}},
			{"prompts/get", `{"description":"d","messages":[{"role":"user","content":{"type":"text","text":"t"}},{"role":"assistant","content":{"type":"resource","resource":{"uri":"u","blob":"AQ=="}}},` +
				`{"role":"user","content":{"type":"hologram","data":7}}],"_meta":{"a":1}}`,
				&PromptResult{Description: "d", Meta: raw(`{"a":1}`), Messages: []PromptMessage{
					{"user", ContentBlock{Type: "text", Text: "t", Raw: raw(`{"type":"text","text":"t"}`)}},
					{"assistant", ContentBlock{Type: "resource", Resource: &ResourceContents{URI: "u", Blob: []byte{1}}, Raw: raw(`{"type":"resource","resource":{"uri":"u","blob":"AQ=="}}`)}},
					{"user", ContentBlock{Type: "hologram", Raw: raw(`{"type":"hologram","data":7}`)}}, // never dropped
				}}},
			{"completion/complete", `{"completion":{"values":["a","b"],"total":7,"hasMore":true}}`, &Completion{Values: []string{"a", "b"}, Total: 7, HasMore: true}},
			{"completion/complete", `{"completion":{"values":[]}}`, &Completion{Values: []string{}}},
		} {
			got := once(t, c, peer, test.method, test.in)
			assert.NilError(t, got.err, test.in)
			assert.DeepEqual(t, got.value, test.want)
		}
	}
}

// TestTaskOnly: which tools run only as a task.
func TestTaskOnly(t *testing.T) {
	for execution, want := range map[string]bool{``: false, `null`: false, `{}`: false, `{"taskSupport":"optional"}`: false, `{"taskSupport":"required"}`: true, `{"taskSupport":7}`: false, `[]`: false} {
		tool := Tool{Execution: json.RawMessage(execution)}
		assert.Equal(t, tool.TaskOnly(), want, execution)
	}
}

// TestWrongTypes: the error of a result that cannot be decoded names the method and the field.
func TestWrongTypes(t *testing.T) {
	checkLeaks(t)
	for _, revision := range bothEras() {
		c, peer := connectedIn(t, revision, nil)
		for _, test := range []struct{ method, in, field string }{
			{"tools/list", `{"tools":[{"name":7}]}`, "name"},
			{"tools/list", `{"tools":[{"description":{}}]}`, "description"},
			{"tools/list", `{"tools":"none"}`, "tools"},
			{"resources/list", `{"resources":[{"uri":7}]}`, "uri"},
			{"resources/list", `{"resources":[{"size":"large"}]}`, "size"},
			{"resources/list", `{"resources":7}`, "resources"},
			{"resources/templates/list", `{"resourceTemplates":[{"uriTemplate":[]}]}`, "uriTemplate"},
			{"prompts/list", `{"prompts":[{"arguments":{}}]}`, "arguments"},
			{"prompts/list", `{"prompts":[{"arguments":[{"required":"yes"}]}]}`, "required"},
			{"resources/read", `{"contents":{}}`, "contents"},
			{"resources/read", `{"contents":[{"text":7}]}`, "text"},
			{"resources/read", `{"contents":[{"blob":7}]}`, "blob"},
			{"resources/read", `{"contents":[{"blob":"not base64"}]}`, "base64"},
			{"resources/read", `"text"`, "string"},
			{"prompts/get", `{"messages":{}}`, "messages"},
			{"prompts/get", `{"messages":[{"role":7}]}`, "role"},
			{"prompts/get", `{"messages":[{"content":"text"}]}`, "string"},
			{"prompts/get", `{"messages":[{"content":{"type":"text","text":7}}]}`, "text"},
			{"completion/complete", `{"completion":[]}`, "completion"},
			{"completion/complete", `{"completion":{"values":"a"}}`, "values"},
			{"completion/complete", `{"completion":{"values":[7]}}`, "values"},
			{"completion/complete", `{"completion":{"hasMore":"yes"}}`, "hasMore"},
		} {
			got := once(t, c, peer, test.method, test.in)
			assert.ErrorContains(t, got.err, test.method, test.in)
			// In Go's own spelling of the field.
			assert.Assert(t, strings.Contains(strings.ToLower(got.err.Error()), strings.ToLower(test.field)), "%s: %v", test.in, got.err)
		}
	}
}

// TestCompletion: how each of the two kinds is asked for.
func TestCompletion(t *testing.T) {
	checkLeaks(t)
	c, peer := connectedIn(t, "2025-11-25", nil)
	done := inBackground(func() (*Completion, error) { return c.CompletePrompt(t.Context(), "p", "a", "v", nil) })
	peer.expect(`{"jsonrpc":"2.0","id":2,"method":"completion/complete","params":{"argument":{"name":"a","value":"v"},"ref":{"name":"p","type":"ref/prompt"}}}`)
	peer.send(`{"jsonrpc":"2.0","id":2,"result":{}}`)
	assert.NilError(t, (<-done).err)
	done = inBackground(func() (*Completion, error) {
		return c.CompleteResource(t.Context(), "u{x}", "x", "", map[string]string{"b": "2"})
	})
	peer.expect(`{"jsonrpc":"2.0","id":3,"method":"completion/complete","params":{"argument":{"name":"x","value":""},"context":{"arguments":{"b":"2"}},"ref":{"type":"ref/resource","uri":"u{x}"}}}`)
	peer.send(`{"jsonrpc":"2.0","id":3,"result":{}}`)
	assert.NilError(t, (<-done).err)
}

// --- Whatever a server sends

// fuzzTransport is a server that begins a session as it should and then sends lines as they come.
type fuzzTransport struct {
	lines  chan []byte // to the client; closed at the end
	wrote  chan string // the methods of the client's requests
	closed chan struct{}
}

func newFuzzTransport() *fuzzTransport {
	return &fuzzTransport{make(chan []byte), make(chan string, 1000), make(chan struct{})}
}

func (f *fuzzTransport) Read() ([]byte, error) {
	select {
	case line, ok := <-f.lines:
		if ok {
			return line, nil
		}
	case <-f.closed:
	}
	return nil, io.EOF
}

func (f *fuzzTransport) Write(_ context.Context, message []byte) error {
	var r wireRequest
	if json.Unmarshal(message, &r) == nil && r.ID != nil && r.Method != "" {
		select {
		case f.wrote <- r.Method:
		default: // a server can ask for many rounds
		}
	}
	return nil
}

func (f *fuzzTransport) Close() error {
	close(f.closed)
	return nil
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
	for _, kind := range []string{`"elicitation/create","params":{"message":"?","requestedSchema":{"type":"object","properties":{}}}`, `"roots/list"`, `"sampling/createMessage","params":{"messages":[],"maxTokens":1}`, `"x"`, `7`} {
		f.Add(true, []byte(`{"jsonrpc":"2.0","id":8,"result":{"resultType":"input_required","requestState":"s","inputRequests":{"a":{"method":`+kind+`}}}}`))
		f.Add(false, []byte(`{"jsonrpc":"2.0","id":8,"method":`+kind+`}`+"\n"+`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":8}}`))
	}
	f.Add(true, []byte(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":10}}`))
	f.Add(true, []byte(`[{"jsonrpc":"2.0","id":2,"result":{"tools":[{}],"nextCursor":"","ttlMs":-1e300}},{"jsonrpc":"2.0","id":11,"result":{"nextCursor":""}}]`))
	f.Fuzz(func(t *testing.T, stateless bool, lines []byte) {
		server := newFuzzTransport()
		o := ClientOptions{
			Protocol: "2025-11-25",
			Roots:    func(context.Context) ([]Root, error) { return nil, nil },
			Elicit: func(_ context.Context, r *ElicitRequest) (*ElicitResult, error) {
				return &ElicitResult{Action: "accept", Content: map[string]any{r.Message: r.URL}}, nil
			},
			Sample: func(_ context.Context, r *SampleRequest) (*SampleResult, error) {
				for _, m := range r.Messages {
					return &SampleResult{Role: m.Role, Content: m.Content}, nil
				}
				return nil, errors.New("nothing to go on")
			},
			Log:   func(LogMessage) {},
			Stray: func([]byte, error) {},
		}
		opening := `{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true}},"serverInfo":{}}}`
		if stateless {
			o.Protocol, opening = statelessRevision, `{"jsonrpc":"2.0","id":1,"result":`+discoveryResult+`}`
		}
		connected := inBackground(func() (*Client, error) { return Connect(t.Context(), server, &o) })
		<-server.wrote
		server.lines <- []byte(opening)
		begun := <-connected
		assert.NilError(t, begun.err)
		c := begun.value

		// One request of each method, in a fixed order, so that the same lines answer the same requests: ids 2 to 9, and 10.
		var all sync.WaitGroup
		for _, method := range []string{"tools/list", "resources/list", "resources/templates/list", "prompts/list", "resources/read", "prompts/get", "tools/call", "completion/complete"} {
			all.Go(func() {
				_, err := requestOfEach()[method](t.Context(), c)
				if err != nil && !strings.Contains(err.Error(), method) {
					t.Errorf("%s: %v", method, err)
				}
			})
			assert.Equal(t, <-server.wrote, method)
		}
		all.Go(func() {
			_ = c.Listen(t.Context(), Subscription{Tools: true, URIs: []string{"u"}}, func(Change) {})
		})
		<-server.wrote
		for line := range bytes.Lines(lines) {
			select {
			case server.lines <- bytes.Clone(bytes.TrimSpace(line)):
			case <-c.conn.life.Done(): // a peer that floods is left
			}
		}
		close(server.lines)
		all.Wait()
		assert.NilError(t, c.Close())
		assert.Equal(t, len(c.watches)+len(c.listens)+c.asked, 0)
	})
}

// FuzzDecoders: what any decoder has taken comes out of it again as it went in.
func FuzzDecoders(f *testing.F) {
	_, results := transcriptLines(f)
	for _, seed := range results {
		f.Add([]byte(seed))
	}
	for _, seed := range []string{
		`{"contents":[{"uri":"u","text":"t"},{"uri":"u","blob":"AQ=="},null]}`, `{"messages":[{"role":"user","content":{"type":"video"}},{"content":null},{}]}`,
		`{"completion":{"values":null,"total":1.0}}`, `{"messages":[{"role":"user","content":[{"type":"tool_use","id":"1"}]}],"maxTokens":1,"tools":[{}]}`,
		`{"mode":"form","message":"?","requestedSchema":{"type":"object"}}`, `{"action":"accept","content":{"a":[1]}}`, `{"type":"text"}`, `[]`, `null`, `{"resources":[{"size":1}],"ttlMs":1}`,
		`{"inputRequests":{"a":{"method":"m","params":[1]},"b":null},"requestState":{"a": 1},"resultType":"input_required"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
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
		if result, err := decodeToolResult(raw); err == nil {
			again[ToolResult](t, jsonOf(t, result))
		}
	})
}

func jsonOf(t *testing.T, value any) []byte {
	t.Helper()
	text, err := json.Marshal(value)
	assert.NilError(t, err)
	return text
}

// again checks that what was decoded is encoded and decoded to the same.
func again[T any](t *testing.T, raw []byte) {
	t.Helper()
	var first, second T
	if json.Unmarshal(raw, &first) != nil {
		return
	}
	text := jsonOf(t, &first)
	assert.NilError(t, json.Unmarshal(text, &second), "%T: %q: %s", first, raw, text)
	assert.Equal(t, string(jsonOf(t, &second)), string(text))
}

func listAgain[T any](t *testing.T, raw []byte, member string) {
	t.Helper()
	items, _, err := decodeList[T](member)(nil, raw)
	if err == nil {
		again[[]T](t, jsonOf(t, items))
	}
}

// transcriptLines returns what the servers of the transcripts send, the lines of each and the results alone.
func transcriptLines(f *testing.F) (sessions, results []string) {
	f.Helper()
	files, err := filepath.Glob("testdata/transcripts/*.txt")
	assert.NilError(f, err)
	for _, path := range files {
		text, err := os.ReadFile(path)
		assert.NilError(f, err)
		var session []string
		for line := range strings.Lines(string(text)) {
			line, ok := strings.CutPrefix(strings.TrimSpace(line), "<- ")
			if !ok {
				continue
			}
			session = append(session, line)
			var message struct{ Params, Result json.RawMessage }
			if json.Unmarshal([]byte(line), &message) == nil {
				results = append(results, string(message.Params), string(message.Result))
			}
		}
		sessions = append(sessions, strings.Join(session, "\n"))
	}
	assert.Assert(f, len(sessions) > 0 && len(results) > 0)
	return sessions, results
}
