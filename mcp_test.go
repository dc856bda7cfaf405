package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
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

const (
	initializeLine  = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"capabilities":{},"clientInfo":{"name":"mcpagent","version":"0"},"protocolVersion":"2025-11-25"}}`
	initializedLine = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
)

// initializeResult is a server's answer to initialize.
func initializeResult(revision string) string {
	return `{"protocolVersion":"` + revision + `","capabilities":{"tools":{}},"serverInfo":{"name":"fake","version":"1"}}`
}

// inHandshake is o with the newest revision of the handshake era forced, unless o forces one.
func inHandshake(o *ClientOptions) *ClientOptions {
	var forced ClientOptions
	if o != nil {
		forced = *o
	}
	if forced.Protocol == "" {
		forced.Protocol = handshakeRevisions()[0]
	}
	return &forced
}

// connecting begins a session with a server that the test plays line by line.
func connecting(t *testing.T, ctx context.Context, o *ClientOptions) (rawPeer, func() (*Client, error)) {
	left, right := memoryPair()
	peer := rawPeer{t, right, sync.OnceFunc(func() { right.Close() })}
	var c *Client
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		c, err = Connect(ctx, left, o)
	}()
	t.Cleanup(func() {
		if <-done; err == nil {
			c.Close()
		}
		peer.hangUp()
	})
	return peer, func() (*Client, error) { <-done; return c, err }
}

// connected is connecting after a handshake. The client's next request has the id 2.
func connected(t *testing.T, o *ClientOptions) (*Client, rawPeer) {
	t.Helper()
	peer, result := connecting(t, t.Context(), inHandshake(o))
	peer.expect(initializeLine)
	peer.send(`{"jsonrpc":"2.0","id":1,"result":` + initializeResult("2025-11-25") + `}`)
	peer.expect(initializedLine)
	c, err := result()
	assert.NilError(t, err)
	return c, peer
}

// fakeServer is a client of a server that is a Conn; answer has everything but the handshake.
func fakeServer(t *testing.T, o *ClientOptions, answer func(ctx context.Context, c *Conn, method string, params json.RawMessage) (any, error)) *Client {
	t.Helper()
	left, right := memoryPair()
	server := NewConn(right, Handler{Request: func(ctx context.Context, c *Conn, method string, params json.RawMessage) (any, error) {
		if method == "initialize" {
			return json.RawMessage(initializeResult("2025-11-25")), nil
		}
		return answer(ctx, c, method, params)
	}})
	c, err := Connect(t.Context(), left, inHandshake(o))
	assert.NilError(t, err)
	t.Cleanup(func() { c.Close(); server.Close() })
	return c
}

// called is what CallTool returned.
type called struct {
	result *ToolResult
	err    error
}

func (c *Client) goCall(ctx context.Context, name string, report func(Progress)) <-chan called {
	done := make(chan called, 1)
	go func() {
		r, err := c.CallTool(ctx, name, nil, report)
		done <- called{r, err}
	}()
	return done
}

// callLine is the request for a tool without arguments.
func callLine(id int, name string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"%s","arguments":{},"_meta":{"progressToken":%[1]d}}}`, id, name)
}

func progressLine(token string, progress int) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d,"total":9,"message":"step"}}`, token, progress)
}

func TestHandshake(t *testing.T) {
	checkLeaks(t)
	assert.DeepEqual(t, Revisions(), []string{"2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"})
	for _, revision := range handshakeRevisions() {
		peer, result := connecting(t, t.Context(), inHandshake(nil))
		peer.expect(initializeLine)
		peer.send(`{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"` + revision + `","capabilities":{"tools":{"listChanged":true},"x/y":{}},` +
			`"serverInfo":{"name":"fake","title":"Fake","version":"1.2"},"instructions":"Ask me.","_meta":{}}}`)
		peer.expect(initializedLine)
		c, err := result()
		assert.NilError(t, err)
		assert.DeepEqual(t, c.Server, ServerInfo{
			ProtocolVersion: revision,
			Capabilities:    map[string]json.RawMessage{"tools": json.RawMessage(`{"listChanged":true}`), "x/y": json.RawMessage(`{}`)},
			Implementation:  Implementation{Name: "fake", Title: "Fake", Version: "1.2"},
			Instructions:    "Ask me.",
		})
	}
}

func TestHandshakeOptions(t *testing.T) {
	checkLeaks(t)
	peer, result := connecting(t, t.Context(), &ClientOptions{
		Protocol: "2024-11-05",
		Info:     Implementation{Name: "ours", Title: "Our Own", Version: "3"},
	})
	peer.expect(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"capabilities":{},"clientInfo":{"name":"ours","title":"Our Own","version":"3"},"protocolVersion":"2024-11-05"}}`)
	peer.send(`{"jsonrpc":"2.0","id":1,"result":` + initializeResult("2024-11-05") + `}`)
	peer.expect(initializedLine)
	_, err := result()
	assert.NilError(t, err)
}

// TestHandshakeFails: the error says why, nothing more is sent, and the transport is closed.
func TestHandshakeFails(t *testing.T) {
	checkLeaks(t)
	for _, c := range []struct{ answer, want string }{
		{`"result":` + initializeResult("2199-01-01"),
			`initialize: the server wants protocol revision "2199-01-01"; this client speaks 2026-07-28, 2025-11-25, 2025-06-18, 2025-03-26, 2024-11-05`},
		// A revision without a handshake cannot be agreed on in one.
		{`"result":` + initializeResult("2026-07-28"), `initialize: the server wants protocol revision "2026-07-28"; `},
		{`"result":{}`, `initialize: the server wants protocol revision ""`},
		{`"result":null`, `initialize: the server wants protocol revision ""`},
		{`"result":{"protocolVersion":20251125}`, `initialize: json: cannot unmarshal number into Go struct field .protocolVersion`},
		{`"result":[]`, `initialize: json: cannot unmarshal array`},
		{`"error":{"code":-32602,"message":"Unsupported protocol version","data":{"supported":["1"]}}`,
			`initialize: Unsupported protocol version (error -32602)`},
	} {
		peer, result := connecting(t, t.Context(), inHandshake(nil))
		peer.expect(initializeLine)
		peer.send(`{"jsonrpc":"2.0","id":1,` + c.answer + `}`)
		_, err := result()
		assert.ErrorContains(t, err, c.want)
		_, end := peer.Read()
		assert.ErrorContains(t, end, "EOF")
	}
}

// TestHandshakeEnds: when ctx ends during initialize, the server is left without a word; initialize must not be
// cancelled (MCP 2025-11-25, cancellation).
func TestHandshakeEnds(t *testing.T) {
	checkLeaks(t)
	reason := errors.New("too slow to start")
	ctx, cancel := context.WithCancelCause(t.Context())
	peer, result := connecting(t, ctx, inHandshake(nil))
	peer.expect(initializeLine)
	cancel(reason)
	line, end := peer.Read()
	assert.ErrorContains(t, end, "EOF", "%s", line)
	_, err := result()
	assert.Error(t, err, "initialize: too slow to start")

	synctest.Test(t, func(t *testing.T) {
		peer, result := connecting(t, t.Context(), inHandshake(&ClientOptions{Timeout: 30 * time.Second}))
		peer.expect(initializeLine)
		line, end := peer.Read()
		assert.ErrorContains(t, end, "EOF", "%s", line)
		_, err := result()
		assert.Error(t, err, "initialize: no answer and no progress for 30s")
		assert.ErrorIs(t, err, context.DeadlineExceeded)
	})
}

func TestListToolsPages(t *testing.T) {
	checkLeaks(t)
	c, peer := connected(t, nil)
	type listed struct {
		tools []Tool
		err   error
	}
	list := func() <-chan listed {
		done := make(chan listed, 1)
		go func() {
			tools, err := c.ListTools(t.Context())
			done <- listed{tools, err}
		}()
		return done
	}
	names := func(tools []Tool) (names []string) {
		for _, tool := range tools {
			names = append(names, tool.Name)
		}
		return names
	}
	done := list()
	peer.expect(`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`)
	peer.send(`{"jsonrpc":"2.0","id":2,"result":{"tools":[{"name":"a","inputSchema":{"type":"object", "properties":{}}},{"name":"b","inputSchema":true}],"nextCursor":"p\"2"}}`)
	peer.expect(`{"jsonrpc":"2.0","id":3,"method":"tools/list","params":{"cursor":"p\"2"}}`)
	peer.send(`{"jsonrpc":"2.0","id":3,"result":{"nextCursor":"p3","tools":[]}}`)
	peer.expect(`{"jsonrpc":"2.0","id":4,"method":"tools/list","params":{"cursor":"p3"}}`)
	peer.send(`{"jsonrpc":"2.0","id":4,"result":{"tools":[{"name":"c"}],"nextCursor":null}}`)
	got := <-done
	assert.NilError(t, got.err)
	assert.DeepEqual(t, names(got.tools), []string{"a", "b", "c"})
	assert.Equal(t, string(got.tools[0].InputSchema), `{"type":"object", "properties":{}}`) // byte for byte

	// A cursor that repeats ends the list, with what there was.
	done = list()
	for id, cursor := range []string{"x", "y", "x"} {
		_, err := peer.Read()
		assert.NilError(t, err)
		peer.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{"tools":[{"name":"%[2]s"}],"nextCursor":"%[2]s"}}`, id+5, cursor))
	}
	got = <-done
	assert.Error(t, got.err, `tools/list: the server repeats the cursor "x"`)
	var broken *ProtocolError
	assert.Assert(t, errors.As(got.err, &broken))
	assert.DeepEqual(t, names(got.tools), []string{"x", "y", "x"})

	// So does an error, or a page that is none.
	for id, page := range []string{`"error":{"code":-32603,"message":"out of order"}`, `"result":{"tools":{}}`} {
		done = list()
		_, err := peer.Read()
		assert.NilError(t, err)
		peer.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{"tools":[{"name":"a"}],"nextCursor":"x"}}`, 8+2*id))
		_, err = peer.Read()
		assert.NilError(t, err)
		peer.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,%s}`, 9+2*id, page))
		got = <-done
		assert.ErrorContains(t, got.err, []string{"tools/list: out of order (error -32603)", "tools/list: tools: json: cannot unmarshal object"}[id])
		assert.DeepEqual(t, names(got.tools), []string{"a"})
	}
}

// TestNeverNull: params and arguments that are not there are left out or empty, but never null.
func TestNeverNull(t *testing.T) {
	checkLeaks(t)
	c, peer := connected(t, nil)
	for id, arguments := range []json.RawMessage{nil, {}, json.RawMessage("null"), json.RawMessage(" null\n")} {
		done := make(chan error, 1)
		go func() {
			_, err := c.CallTool(t.Context(), "t", arguments, nil)
			if done <- err; err != nil {
				peer.hangUp()
			}
		}()
		peer.expect(callLine(id+2, "t"))
		peer.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{}}`, id+2))
		assert.NilError(t, <-done)
	}
	done := make(chan error, 1)
	go func() { done <- c.Ping(t.Context()) }()
	peer.expect(`{"jsonrpc":"2.0","id":6,"method":"ping"}`)
	peer.send(`{"jsonrpc":"2.0","id":6,"result":{}}`)
	assert.NilError(t, <-done)
}

// TestArguments: what is no JSON is refused before anything is sent, and line breaks do not break the framing.
func TestArguments(t *testing.T) {
	checkLeaks(t)
	c, peer := connected(t, nil)
	for _, bad := range []string{`{"a":`, `{a:1}`, `{} {}`} {
		_, err := c.CallTool(t.Context(), "t", json.RawMessage(bad), nil)
		assert.ErrorContains(t, err, "tools/call t: params: ")
	}
	done := make(chan error, 1)
	go func() {
		_, err := c.CallTool(t.Context(), "a\"\n", json.RawMessage("{\n \"a\":\t1.0,\r\n \"b\": \"é\"}"), nil)
		done <- err
	}()
	peer.expect(`{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"a\"\n","arguments":{"a":1.0,"b":"é"},"_meta":{"progressToken":5}}}`)
	peer.send(`{"jsonrpc":"2.0","id":5,"error":{"code":-32602,"message":"Unknown tool"}}`)
	err := <-done
	assert.Error(t, err, "tools/call a\"\n: Unknown tool (error -32602)")
	var e *Error
	assert.Assert(t, errors.As(err, &e))
}

func TestToolResults(t *testing.T) {
	checkLeaks(t)
	for _, c := range []struct {
		in   string
		want ToolResult
	}{
		{`{}`, ToolResult{}},
		{`{"content":[],"isError":false}`, ToolResult{Content: []ContentBlock{}}},
		{`{"isError":true,"content":[{"type":"text","text":"no such \"file\"\n"}]}`,
			ToolResult{IsError: true, Content: []ContentBlock{{Type: "text", Text: "no such \"file\"\n"}}}},
		{`{"structuredContent": [1, 2] ,"_meta":{"a":1}}`, ToolResult{StructuredContent: json.RawMessage(`[1, 2]`), Meta: json.RawMessage(`{"a":1}`)}},
		{`{"content":[{"text":"first","type":"text"},{"type":"image","data":"AQID","mimeType":"image/png"},{"type":"audio","data":"","mimeType":"audio/wav"}]}`,
			ToolResult{Content: []ContentBlock{
				{Type: "text", Text: "first"},
				{Type: "image", Data: []byte{1, 2, 3}, MIMEType: "image/png", Raw: json.RawMessage(`{"type":"image","data":"AQID","mimeType":"image/png"}`)},
				{Type: "audio", Data: []byte{}, MIMEType: "audio/wav", Raw: json.RawMessage(`{"type":"audio","data":"","mimeType":"audio/wav"}`)},
			}}},
		{`{"content":[{"type":"text","text":"a","annotations":{"priority":1}}]}`, ToolResult{Content: []ContentBlock{
			{Type: "text", Text: "a", Annotations: json.RawMessage(`{"priority":1}`), Raw: json.RawMessage(`{"type":"text","text":"a","annotations":{"priority":1}}`)}}}},
		{`{"content":[{"uri":"file:///a","name":"a","title":"A","description":"d","mimeType":"text/plain","size":12,"type":"resource_link"}]}`,
			ToolResult{Content: []ContentBlock{{Type: "resource_link", URI: "file:///a", Name: "a", Title: "A", Description: "d", MIMEType: "text/plain", Size: 12,
				Raw: json.RawMessage(`{"uri":"file:///a","name":"a","title":"A","description":"d","mimeType":"text/plain","size":12,"type":"resource_link"}`)}}}},
		{`{"content":[{"type":"resource","resource":{"uri":"u","text":"t","_meta":{}}},{"type":"resource","resource":{"uri":"u","mimeType":"m","blob":"/w=="}}]}`,
			ToolResult{Content: []ContentBlock{
				{Type: "resource", Resource: &ResourceContents{URI: "u", Text: "t", Meta: json.RawMessage(`{}`)},
					Raw: json.RawMessage(`{"type":"resource","resource":{"uri":"u","text":"t","_meta":{}}}`)},
				{Type: "resource", Resource: &ResourceContents{URI: "u", MIMEType: "m", Blob: []byte{255}},
					Raw: json.RawMessage(`{"type":"resource","resource":{"uri":"u","mimeType":"m","blob":"/w=="}}`)},
			}}},
		// What is not known is kept as it came, whatever its members are.
		{`{"content":[{"type":"video","data":7,"text":{}},{"text":"no type"},{}]}`, ToolResult{Content: []ContentBlock{
			{Type: "video", Raw: json.RawMessage(`{"type":"video","data":7,"text":{}}`)},
			{Raw: json.RawMessage(`{"text":"no type"}`)},
			{Raw: json.RawMessage(`{}`)},
		}}},
		// Of members that are there twice, the last counts.
		{`{"content":[{"type":"text","text":"a"}],"content":[{"type":"text","text":"b"}]}`, ToolResult{Content: []ContentBlock{{Type: "text", Text: "b"}}}},
	} {
		client := fakeServer(t, nil, func(context.Context, *Conn, string, json.RawMessage) (any, error) {
			return json.RawMessage(c.in), nil
		})
		got, err := client.CallTool(t.Context(), "t", nil, nil)
		assert.NilError(t, err, c.in)
		assert.DeepEqual(t, *got, c.want)
	}
}

func TestWrongResults(t *testing.T) {
	checkLeaks(t)
	for _, c := range []struct{ in, field string }{
		{`[]`, "array"},
		{`"text"`, "string"},
		{`{"content":"text"}`, "ToolResult.content"},
		{`{"content":[{"type":"text","text":1}]}`, ".text"},
		{`{"content":[{"type":1}]}`, ".Type"},
		{`{"content":["text"]}`, "string"},
		{`{"content":[{"type":"image","data":1}]}`, ".data"},
		{`{"content":[{"type":"image","data":"not base64"}]}`, "base64"},
		{`{"content":[{"type":"resource_link","size":"large"}]}`, ".size"},
		{`{"content":[{"type":"resource","resource":{"blob":1}}]}`, "resource.blob"},
		{`{"isError":"no"}`, "ToolResult.isError"},
	} {
		client := fakeServer(t, nil, func(context.Context, *Conn, string, json.RawMessage) (any, error) {
			return json.RawMessage(c.in), nil
		})
		got, err := client.CallTool(t.Context(), "t", nil, nil)
		assert.Assert(t, is.Nil(got))
		assert.ErrorContains(t, err, "tools/call t: ")
		assert.ErrorContains(t, err, c.field)
	}
}

func TestProgress(t *testing.T) {
	checkLeaks(t)
	c, peer := connected(t, nil)
	var got []Progress
	done := c.goCall(t.Context(), "t", func(p Progress) { got = append(got, p) })
	peer.expect(callLine(2, "t"))
	peer.send(
		progressLine(`2`, 1),
		progressLine(`"2"`, 2), // servers change tokens as they change ids
		progressLine(`3`, 3),   // nobody's
		progressLine(`null`, 4),
		`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":2,"progress":"half"}}`,
		`{"jsonrpc":"2.0","method":"notifications/progress"}`,
		`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":2.0,"progress":5.5}}`,
		`{"jsonrpc":"2.0","id":2,"result":{}}`,
	)
	assert.NilError(t, (<-done).err)
	peer.send(progressLine(`2`, 6)) // late; what is called next is answered after it
	done = c.goCall(t.Context(), "t", nil)
	peer.expect(callLine(3, "t"))
	peer.send(`{"jsonrpc":"2.0","id":3,"result":{}}`)
	assert.NilError(t, (<-done).err)
	assert.DeepEqual(t, got, []Progress{{1, 9, "step"}, {2, 9, "step"}, {5.5, 0, ""}})
}

// TestNoProgressAfterReturn: a call that has returned reports nothing more, even where its ctx ended while it
// was reporting.
func TestNoProgressAfterReturn(t *testing.T) {
	checkLeaks(t)
	c := fakeServer(t, nil, func(ctx context.Context, conn *Conn, _ string, params json.RawMessage) (any, error) {
		var p struct {
			Meta struct{ ProgressToken int64 } `json:"_meta"`
		}
		err := json.Unmarshal(params, &p)
		for range 3 {
			conn.Notify(ctx, "notifications/progress", map[string]any{"progressToken": p.Meta.ProgressToken, "progress": 1})
		}
		return struct{}{}, err
	})
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
	assert.Equal(t, len(c.watches), 0)

	// The reader may have found the call just before it returned.
	w := &watch{report: func(Progress) { t.Error("reported after the call has returned") }}
	c.watch(9999, w)
	c.unwatch(9999, w)
	c.watches[9999] = w
	c.progress(json.RawMessage(`9999`), Progress{Progress: 1})
	delete(c.watches, 9999)
}

func TestTimeout(t *testing.T) {
	checkLeaks(t)
	options := ClientOptions{Timeout: time.Minute, MaxTimeout: 150 * time.Second}
	t.Run("no answer", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var strays []string
			o := options
			o.Stray = func(message []byte, reason error) { strays = append(strays, reason.Error()) }
			c, peer := connected(t, &o)
			begin := time.Now()
			done := c.goCall(t.Context(), "slow", nil)
			peer.expect(callLine(2, "slow"))
			err := (<-done).err
			assert.Error(t, err, "tools/call slow: no answer and no progress for 1m0s")
			var timeout *TimeoutError
			assert.Assert(t, errors.As(err, &timeout))
			assert.DeepEqual(t, *timeout, TimeoutError{After: time.Minute})
			assert.ErrorIs(t, err, context.DeadlineExceeded)
			assert.Equal(t, time.Since(begin), time.Minute)
			peer.expect(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"reason":"no answer and no progress for 1m0s","requestId":2}}`)

			// The answer that comes all the same is dropped, and calls go on.
			peer.send(`{"jsonrpc":"2.0","id":2,"result":{}}`, progressLine(`2`, 1))
			done = c.goCall(t.Context(), "quick", nil)
			peer.expect(callLine(3, "quick"))
			peer.send(`{"jsonrpc":"2.0","id":3,"result":{}}`)
			assert.NilError(t, (<-done).err)
			assert.DeepEqual(t, strays, []string{"nobody waits for a response with the id 2"})
		})
	})
	t.Run("progress sets the clock back", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c, peer := connected(t, &options)
			done := c.goCall(t.Context(), "slow", nil) // also if nobody wants to know
			peer.expect(callLine(2, "slow"))
			for i := range 2 {
				time.Sleep(59 * time.Second)
				peer.send(progressLine(`2`, i))
			}
			time.Sleep(30 * time.Second)
			peer.send(`{"jsonrpc":"2.0","id":2,"result":{}}`)
			assert.NilError(t, (<-done).err)
		})
	})
	t.Run("but not for ever", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c, peer := connected(t, &options)
			begin := time.Now()
			done := c.goCall(t.Context(), "slow", func(Progress) {})
			peer.expect(callLine(2, "slow"))
			for i := range 5 {
				time.Sleep(29 * time.Second)
				peer.send(progressLine(`2`, i))
			}
			err := (<-done).err
			assert.Error(t, err, "tools/call slow: not done after 2m30s in all")
			assert.ErrorIs(t, err, context.DeadlineExceeded)
			assert.Equal(t, time.Since(begin), options.MaxTimeout)
			peer.expect(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"reason":"not done after 2m30s in all","requestId":2}}`)
		})
	})
	t.Run("every request has one", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c, peer := connected(t, nil)
			go peer.Read()
			begin := time.Now()
			_, err := c.ListTools(t.Context())
			assert.Error(t, err, "tools/list: no answer and no progress for 5m0s")
			assert.Equal(t, time.Since(begin), 5*time.Minute)
		})
	})
}

func TestCancelledCall(t *testing.T) {
	checkLeaks(t)
	c, peer := connected(t, nil)
	ctx, cancel := context.WithCancelCause(t.Context())
	done := c.goCall(ctx, "t", nil)
	peer.expect(callLine(2, "t"))
	cancel(errors.New("the user pressed Ctrl-C"))
	assert.Error(t, (<-done).err, "tools/call t: the user pressed Ctrl-C")
	peer.expect(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"reason":"the user pressed Ctrl-C","requestId":2}}`)

	// A call whose ctx had ended before is not sent at all.
	assert.Error(t, (<-c.goCall(ctx, "t", nil)).err, "tools/call t: the user pressed Ctrl-C")
	done = c.goCall(t.Context(), "t", nil)
	peer.expect(callLine(3, "t"))
	peer.hangUp()
	assert.ErrorIs(t, (<-done).err, ErrClosed)
}

// TestServerAsks: the server's requests are answered whenever they come: before the handshake is done, and while
// the client waits.
func TestServerAsks(t *testing.T) {
	checkLeaks(t)
	peer, result := connecting(t, t.Context(), inHandshake(nil))
	peer.expect(initializeLine)
	peer.send(`{"jsonrpc":"2.0","id":1,"method":"ping"}`) // its ids are its own
	peer.expect(`{"jsonrpc":"2.0","id":1,"result":{}}`)
	peer.send(`{"jsonrpc":"2.0","id":1,"result":` + initializeResult("2025-11-25") + `}`)
	peer.expect(initializedLine)
	c, err := result()
	assert.NilError(t, err)
	done := c.goCall(t.Context(), "t", nil)
	peer.expect(callLine(2, "t"))
	for _, method := range []string{"roots/list", "sampling/createMessage", "elicitation/create", "tools/list", "x"} {
		peer.send(`{"jsonrpc":"2.0","id":0,"method":"` + method + `","params":{}}`)
		peer.expect(`{"jsonrpc":"2.0","id":0,"error":{"code":-32601,"message":"this client does not offer ` + method + `"}}`)
	}
	peer.send(
		`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info"}}`,
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":99}}`,
		`{"jsonrpc":"2.0","method":"notifications/cancelled"}`,
		`{"jsonrpc":"2.0","id":2,"result":{}}`)
	assert.NilError(t, (<-done).err)
}

// TestServerCancels: notifications/cancelled ends the work on the server's own request, which is not answered then.
func TestServerCancels(t *testing.T) {
	checkLeaks(t)
	begun, ended := make(chan struct{}), make(chan struct{})
	_, peer := connectedIn(t, "2025-11-25", &ClientOptions{Roots: func(ctx context.Context) ([]Root, error) {
		close(begun)
		<-ctx.Done()
		close(ended)
		return nil, ctx.Err()
	}})
	peer.send(`{"jsonrpc":"2.0","id":"s1","method":"roots/list"}`)
	<-begun
	peer.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"s1","reason":"enough"}}`)
	<-ended
	peer.send(`{"jsonrpc":"2.0","id":"s2","method":"ping"}`)
	peer.expect(`{"jsonrpc":"2.0","id":"s2","result":{}}`) // and nothing for s1
}

// The reference decoders are encoding/json alone: no scanner, no UnmarshalJSON.

type referenceContent ContentBlock

func referenceResult(raw []byte) (*ToolResult, error) {
	var r struct {
		Content           []json.RawMessage
		StructuredContent json.RawMessage
		IsError           bool
		Meta              json.RawMessage `json:"_meta"`
	}
	if err := json.Unmarshal(raw, &r); err != nil {
		return nil, err
	}
	result := &ToolResult{StructuredContent: r.StructuredContent, IsError: r.IsError, Meta: r.Meta}
	if r.Content != nil {
		result.Content = []ContentBlock{}
	}
	for _, block := range r.Content {
		var t struct{ Type string }
		if err := json.Unmarshal(block, &t); err != nil {
			return nil, err
		}
		b := referenceContent{Type: t.Type}
		if slices.Contains([]string{"text", "image", "audio", "resource_link", "resource"}, t.Type) {
			if err := json.Unmarshal(block, &b); err != nil {
				return nil, err
			}
		}
		b.Raw = block
		result.Content = append(result.Content, ContentBlock(b))
	}
	return result, nil
}

// ambiguous says whether a valid text has an object with a member twice, or one that encoding/json alone takes for
// another, as it disregards case: nobody can say what such a text means.
func ambiguous(text []byte) bool {
	known := []string{"tools", "nextCursor", "ttlMs", "name", "title", "description", "inputSchema", "outputSchema", "annotations",
		"icons", "execution", "_meta", "content", "structuredContent", "isError", "type", "text", "data", "mimeType", "uri",
		"size", "resource", "blob"}
	d := json.NewDecoder(bytes.NewReader(text))
	var value func() bool
	value = func() bool {
		token, err := d.Token()
		if err != nil {
			return false
		}
		delim, _ := token.(json.Delim)
		seen := make(map[string]bool)
		for delim != 0 && d.More() {
			if delim == '{' {
				token, _ := d.Token()
				key, _ := token.(string)
				if seen[key] {
					return true
				}
				seen[key] = true
				for _, k := range known {
					if key != k && strings.EqualFold(key, k) {
						return true
					}
				}
			}
			if value() {
				return true
			}
		}
		if delim != 0 {
			_, _ = d.Token()
		}
		return false
	}
	return value()
}

func FuzzToolResult(f *testing.F) {
	for _, seed := range []string{
		`{"content":[{"type":"text","text":"a\u00e9\n"}],"isError":true,"structuredContent":{"a":[1]},"_meta":null}`,
		`{"content":[{"type":"text","text":"a","annotations":{}},{"text":"b","type":"text"},{"type":"\u0074ext","text":""}]}`,
		`{"content":[{"type":"image","data":"AQID","mimeType":"m"},{"type":"audio","data":null},{"type":"resource_link","uri":"u","size":1}]}`,
		`{"content":[{"type":"resource","resource":{"uri":"u","blob":"AQ==","text":"t"}},{"type":"new","data":1},{"text":"x"},{},null]}`,
		`{"content":null,"isError":null}`, `null`, `{"x":1}`, `{"content":[{"type":"text","text":null}]}`, `{"content":[{"type":null,"text":"t"}]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		got, err := decodeToolResult(raw)
		want, wantErr := referenceResult(raw)
		if json.Valid(raw) && ambiguous(raw) {
			return
		}
		assert.Equal(t, err == nil, wantErr == nil, "%q: %v, encoding/json: %v", raw, err, wantErr)
		if err != nil {
			return
		}
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
	})
}

func FuzzTools(f *testing.F) {
	for _, seed := range []string{
		`{"tools":[{"name":"a","title":"A","description":"d\n","inputSchema":{"type" : "object"},"outputSchema":true,"annotations":null,"icons":[],"execution":{},"_meta":{}}],"nextCursor":"c"}`,
		`{"nextCursor":null,"tools":[{"name":null},{},null]}`, `{"tools":null}`, `{"tools":[1]}`, `null`, `{"tools":[{"name":"\ud800"}]} `,
		`{"tools":[{"inputSchema":tru}]}`, `{"tools":[],"ttlMs":60000,"nextCursor":""}`, `{"ttlMs":1e3}`, `{"ttlMs":null}`, `{"ttlMs":"1"}`, `{"ttlMs":1e999}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		before := []Tool{{Name: "of the page before"}}
		got, page, err := decodeTools(before, raw)
		var want struct {
			Tools      []Tool
			NextCursor *string
			TTLMs      float64
		}
		wantErr := json.Unmarshal(raw, &want)
		assert.DeepEqual(t, got[0], before[0])
		if json.Valid(raw) && ambiguous(raw) {
			return
		}
		assert.Equal(t, err == nil, wantErr == nil, "%q: %v, encoding/json: %v", raw, err, wantErr)
		if err != nil {
			return
		}
		assert.DeepEqual(t, page, listPage{want.NextCursor, want.TTLMs})
		if len(got) > 1 || len(want.Tools) > 0 {
			assert.Assert(t, reflect.DeepEqual(got[1:], want.Tools), "%q:\n%+v, encoding/json:\n%+v", raw, got[1:], want.Tools)
		}
	})
}

// ExampleClient is a whole session with a server at the other end of a socket.
func ExampleClient() {
	left, right := net.Pipe()
	server := NewConn(NewLines(right, right), Handler{
		Request: func(_ context.Context, _ *Conn, method string, params json.RawMessage) (any, error) {
			switch method {
			case "initialize":
				return json.RawMessage(`{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"greeter","version":"1"}}`), nil
			case "tools/list":
				return json.RawMessage(`{"tools":[{"name":"greet","inputSchema":{"type":"object"}}]}`), nil
			case "tools/call":
				return json.RawMessage(`{"content":[{"type":"text","text":"Hello, Ada."}]}`), nil
			}
			return nil, &Error{Code: CodeMethodNotFound, Message: method}
		},
	})
	ctx := context.Background()
	client, err := Connect(ctx, NewLines(left, left), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(client.Server.Implementation.Name, client.Server.ProtocolVersion)
	tools, _ := client.ListTools(ctx)
	fmt.Println(tools[0].Name)
	result, _ := client.CallTool(ctx, "greet", json.RawMessage(`{"name":"Ada"}`), nil)
	fmt.Println(result.Content[0].Text)
	client.Close()
	server.Close()
	// Output:
	// greeter 2025-06-18
	// greet
	// Hello, Ada.
}
