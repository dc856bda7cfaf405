package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

// races is how often each race is run.
const races = 2000

// memoryPair is a transport in memory and its other end.
func memoryPair() (*Lines, *Lines) {
	ar, bw := io.Pipe()
	br, aw := io.Pipe()
	return NewLines(ar, aw), NewLines(br, bw)
}

// connPair is two connections that talk to each other.
func connPair(t *testing.T, a, b Handler) (*Conn, *Conn) {
	left, right := memoryPair()
	ca, cb := NewConn(left, a), NewConn(right, b)
	t.Cleanup(func() { ca.Close(); cb.Close() })
	return ca, cb
}

// echo answers every request with its params.
func echo(_ context.Context, _ *Conn, _ string, params json.RawMessage) (any, error) {
	return params, nil
}

func TestCall(t *testing.T) {
	checkLeaks(t)
	c, _ := connPair(t, Handler{}, Handler{Request: echo})
	var got map[string]int
	assert.NilError(t, c.Call(t.Context(), "m", map[string]int{"a": 1}, &got))
	assert.DeepEqual(t, got, map[string]int{"a": 1})

	var raw json.RawMessage
	assert.NilError(t, c.Call(t.Context(), "m", json.RawMessage("{\n\"b\": [1]}"), &raw))
	assert.Equal(t, string(raw), `{"b":[1]}`)

	err := c.Call(t.Context(), "m", []int{1}, &got)
	assert.ErrorContains(t, err, "m: result: json: cannot unmarshal array")
	err = c.Call(t.Context(), "m", func() {}, nil)
	assert.ErrorContains(t, err, "m: params: json: unsupported type")
	assert.Equal(t, waiting(c), 0)
}

// TestWire pins what goes over the wire, byte by byte.
func TestWire(t *testing.T) {
	for _, c := range []struct {
		id     int64
		method string
		params any
		want   string
	}{
		{1, "a", nil, `{"jsonrpc":"2.0","id":1,"method":"a"}`},
		{2, "a", map[string]any(nil), `{"jsonrpc":"2.0","id":2,"method":"a"}`},
		{3, "a", (*int)(nil), `{"jsonrpc":"2.0","id":3,"method":"a"}`},
		{4, "a", json.RawMessage(nil), `{"jsonrpc":"2.0","id":4,"method":"a"}`},
		{5, "a\n", struct{}{}, `{"jsonrpc":"2.0","id":5,"method":"a\n","params":{}}`},
		{0, "n", []int{1}, `{"jsonrpc":"2.0","method":"n","params":[1]}`},
	} {
		got, err := appendRequest(c.id, c.method, func(b []byte, _ int64) ([]byte, error) { return appendJSON(b, c.params) })
		assert.NilError(t, err)
		assert.Equal(t, string(got), c.want)
	}
	for _, c := range []struct {
		result any
		err    error
		want   string
	}{
		{nil, nil, `{"jsonrpc":"2.0","id":"x","result":null}`},
		{struct{}{}, nil, `{"jsonrpc":"2.0","id":"x","result":{}}`},
		{1, io.EOF, `{"jsonrpc":"2.0","id":"x","error":{"code":-32603,"message":"EOF"}}`},
		{nil, fmt.Errorf("wrapped: %w", &Error{Code: 7, Message: "m", Data: json.RawMessage(`[1]`)}),
			`{"jsonrpc":"2.0","id":"x","error":{"code":7,"message":"m","data":[1]}}`},
	} {
		got, err := appendResponse(json.RawMessage(`"x"`), c.result, c.err)
		assert.NilError(t, err)
		assert.Equal(t, string(got), c.want)
	}
}

func TestErrors(t *testing.T) {
	checkLeaks(t)
	c, _ := connPair(t, Handler{}, Handler{Request: func(_ context.Context, _ *Conn, method string, _ json.RawMessage) (any, error) {
		switch method {
		case "typed":
			return nil, &Error{Code: 12, Message: "twelve", Data: json.RawMessage(`{"a":1}`)}
		case "unencodable":
			return func() {}, nil
		}
		return nil, errors.New("plain")
	}})
	err := c.Call(t.Context(), "typed", nil, nil)
	var e *Error
	assert.Assert(t, errors.As(err, &e))
	assert.DeepEqual(t, e, &Error{Code: 12, Message: "twelve", Data: json.RawMessage(`{"a":1}`)})
	assert.Error(t, err, "typed: twelve (error 12)")
	assert.Error(t, c.Call(t.Context(), "other", nil, nil), "other: plain (error -32603)")
	assert.ErrorContains(t, c.Call(t.Context(), "unencodable", nil, nil), "the result cannot be encoded")

	left, _ := connPair(t, Handler{}, Handler{})
	assert.Error(t, left.Call(t.Context(), "x", nil, nil), "x: method not found: x (error -32601)")
}

// rawPeer is the other end of a connection, played by the test line by line.
type rawPeer struct {
	t *testing.T
	*Lines
	hangUp func()
}

func (p rawPeer) expect(want string) {
	p.t.Helper()
	got, err := p.Read()
	assert.NilError(p.t, err)
	assert.Equal(p.t, string(got), want)
}

func (p rawPeer) send(lines ...string) {
	p.t.Helper()
	for _, line := range lines {
		assert.NilError(p.t, p.Write(context.Background(), []byte(line)))
	}
}

func newRawPeer(t *testing.T, h Handler) (*Conn, rawPeer) {
	left, right := memoryPair()
	c := NewConn(left, h)
	peer := rawPeer{t, right, sync.OnceFunc(func() { right.Close() })}
	t.Cleanup(func() { c.Close(); peer.hangUp() })
	return c, peer
}

// waiting is the number of calls that wait for an answer.
func waiting(c *Conn) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.pending)
}

// start makes a call in the background and returns where its outcome will be.
func start(c *Conn, ctx context.Context) <-chan error {
	done := make(chan error, 1)
	go func() { done <- c.Call(ctx, "m", nil, nil) }()
	return done
}

func TestAnswerIDs(t *testing.T) {
	checkLeaks(t)
	var strays []string
	c, peer := newRawPeer(t, Handler{Stray: func(message []byte, reason error) {
		strays = append(strays, fmt.Sprintf("%s: %v", message, reason))
	}})
	for i, id := range []string{`1`, `"2"`, `3.0`, `"4"`, `"5.0"`} {
		done := make(chan string, 1)
		go func() {
			var result string
			if err := c.Call(t.Context(), "m", nil, &result); err != nil {
				result = err.Error()
			}
			done <- result
		}()
		peer.expect(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"m"}`, i+1))
		peer.send(
			`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"what?"}}`,
			`{"jsonrpc":"2.0","id":99,"result":1}`,
			`{"jsonrpc":"2.0","id":1.5,"result":1}`,
			`{"jsonrpc":"2.0","id":"x","result":1}`,
			`{"jsonrpc":"2.0","id":"0x1p0","result":1}`,
			`{"jsonrpc":"2.0","id":[1],"result":1}`,
			`{"jsonrpc":"2.0","result":1}`,
			`{"jsonrpc":"2.0","id":`+id+`,"result":"yes"}`,
			`{"jsonrpc":"2.0","id":`+id+`,"result":"twice"}`)
		assert.Equal(t, <-done, "yes")
	}
	peer.hangUp()
	c.Wait()
	assert.Equal(t, len(strays), 5*8, "%q", strays)
	assert.Equal(t, strays[7], `{"jsonrpc":"2.0","id":1,"result":"twice"}: nobody waits for a response with the id 1`)
}

func TestNullResultIsAResult(t *testing.T) {
	checkLeaks(t)
	c, peer := newRawPeer(t, Handler{})
	done := start(c, t.Context())
	peer.expect(`{"jsonrpc":"2.0","id":1,"method":"m"}`)
	peer.send(`{"id":1,"result":null,"error":null,"jsonrpc":"2.0"}`)
	assert.NilError(t, <-done)

	done = start(c, t.Context())
	peer.expect(`{"jsonrpc":"2.0","id":2,"method":"m"}`)
	peer.send(`{"jsonrpc":"2.0","id":2,"error":"no object"}`)
	assert.Error(t, <-done, `m: an error that is none: "no object" (error -32603)`)
}

func TestStray(t *testing.T) {
	checkLeaks(t)
	var strays []string
	c, peer := newRawPeer(t, Handler{
		Request: echo,
		Stray: func(message []byte, reason error) {
			strays = append(strays, fmt.Sprintf("%.40s: %v", message, reason))
		}})
	peer.send(
		`Server listening`,
		`42`,
		`{"jsonrpc":"2.0","id":1,"resu`,
		`{}`,
		`{"jsonrpc":"1.0","id":1,"result":1}`,
		`{"jsonrpc":"2.0","id":1}`,
		`{"jsonrpc":"2.0","id":null,"method":"m"}`,
		`{"jsonrpc":"2.0","id":{},"method":"m"}`,
		`{"jsonrpc":"2.0","id":7,"method":"m","params":tru}`,
		`[]`,
		`[1,{"jsonrpc":"2.0","id":8,"method":"m","params":"in a batch"}`, `]`,
	)
	peer.send(`[1, {"jsonrpc":"2.0", "id":0, "method":"m", "params":"in a batch"}]`)
	peer.expect(`{"jsonrpc":"2.0","id":0,"result":"in a batch"}`)
	peer.hangUp()
	assert.NilError(t, c.Wait())
	assert.DeepEqual(t, strays, []string{
		`Server listening: not a JSON-RPC object`,
		`42: not a JSON-RPC object`,
		`{"jsonrpc":"2.0","id":1,"resu: not a JSON-RPC object`,
		`{}: no "jsonrpc":"2.0"`,
		`{"jsonrpc":"1.0","id":1,"result":1}: no "jsonrpc":"2.0"`,
		`{"jsonrpc":"2.0","id":1}: neither a method nor a result nor an error`,
		`{"jsonrpc":"2.0","id":null,"method":"m"}: a request with the id null`,
		`{"jsonrpc":"2.0","id":{},"method":"m"}: a request with the id {}`,
		`{"jsonrpc":"2.0","id":7,"method":"m","pa: not a JSON-RPC object`,
		`[]: not a JSON-RPC object`,
		`[1,{"jsonrpc":"2.0","id":8,"method":"m",: not a JSON-RPC object`,
		`]: not a JSON-RPC object`,
		`1: not a JSON-RPC object`,
	})
}

// TestAnswerThenExit: an answer that is followed at once by the end of the peer is never lost.
func TestAnswerThenExit(t *testing.T) {
	checkLeaks(t)
	for range races {
		left, right := memoryPair()
		c := NewConn(left, Handler{})
		go func() {
			right.Read()
			right.Write(context.Background(), []byte(`{"jsonrpc":"2.0","id":1,"result":1}`))
			right.Close()
		}()
		assert.NilError(t, c.Call(t.Context(), "m", nil, nil))
		c.Close()
	}
}

// TestAnswerAndCancel: a call that is answered while its ctx ends has one of the two outcomes, and
// leaves nothing behind.
func TestAnswerAndCancel(t *testing.T) {
	checkLeaks(t)
	c, _ := connPair(t, Handler{}, Handler{Request: echo})
	for range races {
		ctx, cancel := context.WithCancel(t.Context())
		go cancel()
		if err := c.Call(ctx, "m", nil, nil); err != nil {
			assert.ErrorIs(t, err, context.Canceled)
		}
	}
	assert.Equal(t, waiting(c), 0)
}

// TestStuckWrite: a peer that reads nothing blocks neither a ctx nor Close nor another caller.
func TestStuckWrite(t *testing.T) {
	checkLeaks(t)
	for range races {
		left, right := memoryPair() // io.Pipe holds nothing: the first write is stuck
		c := NewConn(left, Handler{})
		ctx, cancel := context.WithCancel(t.Context())
		first := start(c, ctx)
		second := start(c, ctx)
		cancel()
		assert.ErrorIs(t, <-first, context.Canceled)
		assert.ErrorIs(t, <-second, context.Canceled)
		assert.Equal(t, waiting(c), 0)
		third := start(c, t.Context())
		c.Close()
		assert.ErrorIs(t, <-third, ErrClosed)
		right.Close()
	}
}

// halfDeaf is a peer that reads nothing; what it sends is in the test's hands.
func halfDeaf(t *testing.T) (*Conn, io.WriteCloser) {
	in, peer := io.Pipe()
	unread, out := io.Pipe()
	c := NewConn(NewLines(in, out), Handler{})
	t.Cleanup(func() { c.Close(); unread.Close() })
	return c, peer
}

// TestLossEndsStuckWrite: a message that cannot be written does not outlive the connection.
func TestLossEndsStuckWrite(t *testing.T) {
	checkLeaks(t)
	for range races / 10 {
		c, peer := halfDeaf(t)
		call := start(c, t.Context())
		note := make(chan error, 1)
		go func() { note <- c.Notify(t.Context(), "n", nil) }()
		peer.Close()
		assert.ErrorIs(t, <-call, io.ErrUnexpectedEOF)
		assert.ErrorIs(t, <-note, io.ErrUnexpectedEOF)
		assert.ErrorIs(t, c.Call(t.Context(), "m", nil, nil), ErrClosed)
		assert.Equal(t, waiting(c), 0)
		c.Close()
	}
}

// TestGiveUpEndsStuckWrite: a call's time is up wherever the call is.
func TestGiveUpEndsStuckWrite(t *testing.T) {
	checkLeaks(t)
	reason := errors.New("time is up")
	for range races / 10 {
		c, _ := halfDeaf(t)
		call := start(c, t.Context())
		for waiting(c) == 0 {
			runtime.Gosched()
		}
		c.giveUp(1, reason)
		c.giveUp(2, reason) // nobody's
		assert.ErrorIs(t, <-call, reason)
		assert.Equal(t, waiting(c), 0)
		c.Close()
	}
}

// TestCancelledCallsLeaveNothing: ten cancelled calls leave no entry, and the peer is told of each.
func TestCancelledCallsLeaveNothing(t *testing.T) {
	checkLeaks(t)
	for range races / 10 {
		var wg sync.WaitGroup
		wg.Add(10)
		c, peer := newRawPeer(t, Handler{Abandoned: func(ctx context.Context, c *Conn, id int64, method string, cause error) {
			defer wg.Done()
			c.Notify(ctx, "cancelled", id)
		}})
		reason := errors.New("no longer wanted")
		for i := range 10 {
			ctx, cancel := context.WithCancelCause(t.Context())
			done := start(c, ctx)
			peer.expect(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"m"}`, i+1))
			cancel(reason)
			assert.ErrorIs(t, <-done, reason)
			peer.expect(fmt.Sprintf(`{"jsonrpc":"2.0","method":"cancelled","params":%d}`, i+1))
		}
		wg.Wait()
		assert.Equal(t, waiting(c), 0)
		// The answers that come all the same are nobody's.
		peer.send(`{"jsonrpc":"2.0","id":3,"result":1}`)
		c.Close()
		peer.hangUp()
	}
}

// TestAbandonedIsToldAtClose: a call cancelled just before Close is still worth its notification;
// one that cannot be written holds Close only for a moment.
func TestAbandonedIsToldAtClose(t *testing.T) {
	checkLeaks(t)
	told := Handler{Abandoned: func(ctx context.Context, c *Conn, id int64, _ string, _ error) {
		c.Notify(ctx, "cancelled", id)
	}}
	for range races / 10 {
		c, peer := newRawPeer(t, told)
		ctx, cancel := context.WithCancel(t.Context())
		done := start(c, ctx)
		peer.expect(`{"jsonrpc":"2.0","id":1,"method":"m"}`)
		cancel()
		<-done
		closed := make(chan struct{})
		go func() { c.Close(); close(closed) }()
		peer.expect(`{"jsonrpc":"2.0","method":"cancelled","params":1}`)
		<-closed
		peer.hangUp()
	}
	synctest.Test(t, func(t *testing.T) {
		left, right := memoryPair()
		c := NewConn(left, told)
		ctx, cancel := context.WithCancel(t.Context())
		done := start(c, ctx)
		right.Read()
		cancel()
		<-done
		begin := time.Now()
		c.Close() // nobody reads the notification
		assert.Equal(t, time.Since(begin), noticeGrace)
		right.Close()
	})
}

// TestHandlerCallsBack: a request's handler may call the peer, whose handler may call back, and so on.
func TestHandlerCallsBack(t *testing.T) {
	checkLeaks(t)
	bounce := func(ctx context.Context, c *Conn, method string, params json.RawMessage) (any, error) {
		var n int
		if err := json.Unmarshal(params, &n); err != nil || n == 0 {
			return n, err
		}
		var result int
		err := c.Call(ctx, method, n-1, &result)
		return result + 1, err
	}
	a, b := connPair(t, Handler{Request: bounce}, Handler{Request: bounce})
	var wg sync.WaitGroup
	for _, c := range []*Conn{a, b} {
		wg.Go(func() {
			for range races / 2 {
				var n int
				assert.Check(t, c.Call(t.Context(), "bounce", 5, &n))
				assert.Check(t, is.Equal(n, 5))
			}
		})
	}
	wg.Wait()
}

// TestNotificationOrder: notifications arrive in the order of the wire, and before an answer that
// was sent after them.
func TestNotificationOrder(t *testing.T) {
	checkLeaks(t)
	next := 0
	c, _ := connPair(t,
		Handler{Notification: func(_ *Conn, _ string, params json.RawMessage) {
			assert.Check(t, is.Equal(string(params), fmt.Sprint(next)))
			next++
		}},
		Handler{Request: func(ctx context.Context, c *Conn, _ string, params json.RawMessage) (any, error) {
			var from int
			json.Unmarshal(params, &from)
			for i := range 10 {
				c.Notify(ctx, "n", from+i)
			}
			return nil, nil
		}})
	for i := range races {
		assert.NilError(t, c.Call(t.Context(), "m", i*10, nil))
		assert.Equal(t, next, (i+1)*10) // no lock: the answer came after them
	}
}

// TestFullPipes: two peers that both write much and answer each other cannot wait for each other.
func TestFullPipes(t *testing.T) {
	checkLeaks(t)
	a, b := connPair(t, Handler{Request: echo}, Handler{Request: echo})
	big := strings.Repeat("x", 1<<16)
	var wg sync.WaitGroup
	for range 16 {
		for _, c := range []*Conn{a, b} {
			wg.Go(func() {
				for range 20 {
					var back string
					assert.Check(t, c.Call(t.Context(), "m", big, &back))
					assert.Check(t, back == big)
				}
			})
		}
	}
	wg.Wait()
}

func TestTooManyRequests(t *testing.T) {
	checkLeaks(t)
	release := make(chan struct{})
	c, peer := newRawPeer(t, Handler{Request: func(ctx context.Context, _ *Conn, _ string, params json.RawMessage) (any, error) {
		<-release
		return params, nil
	}})
	for i := range maxServing {
		peer.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"m"}`, i))
	}
	refusal := `,"error":{"code":-32600,"message":"more than 32 requests at once, or one with an id in use"}}`
	peer.send(`{"jsonrpc":"2.0","id":"one more","method":"m"}`)
	peer.expect(`{"jsonrpc":"2.0","id":"one more"` + refusal)
	close(release)
	for range maxServing {
		_, err := peer.Read()
		assert.NilError(t, err)
	}
	peer.send(`{"jsonrpc":"2.0","id":0,"method":"m","params":{}}`)
	peer.expect(`{"jsonrpc":"2.0","id":0,"result":{}}`)
	c.Close()
}

// TestFlood: a peer that asks for ever and reads nothing is cut off with bounded memory and goroutines.
func TestFlood(t *testing.T) {
	checkLeaks(t)
	c, peer := newRawPeer(t, Handler{Request: echo})
	for i := 0; c.life.Err() == nil; i++ {
		peer.Write(c.life, fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"method":"m"}`, i))
		assert.Assert(t, i < 2*maxRefusing)
	}
	assert.ErrorContains(t, c.Call(t.Context(), "m", nil, nil), "does not read the answers")
	c.Close() // after it nobody refuses any more
	assert.Assert(t, len(c.refusing) <= maxRefusing)
}

func TestCancelRequest(t *testing.T) {
	checkLeaks(t)
	started := make(chan struct{})
	c, peer := newRawPeer(t, Handler{
		Request: func(ctx context.Context, _ *Conn, method string, _ json.RawMessage) (any, error) {
			if method == "slow" {
				close(started)
				<-ctx.Done()
			}
			return method, nil
		},
		Notification: func(c *Conn, _ string, params json.RawMessage) { c.CancelRequest(params) },
	})
	peer.send(`{"jsonrpc":"2.0","id":"a","method":"slow"}`)
	<-started
	peer.send(`{"jsonrpc":"2.0","method":"cancel","params":"b"}`, `{"jsonrpc":"2.0","method":"cancel","params":"a"}`)
	peer.send(`{"jsonrpc":"2.0","id":1,"method":"quick"}`)
	peer.expect(`{"jsonrpc":"2.0","id":1,"result":"quick"}`) // and none for "a"
	c.Close()
	_, err := peer.Read()
	assert.ErrorIs(t, err, io.EOF)
}

// TestHalfClose: the requests of a peer that has closed its own side are answered all the same.
func TestHalfClose(t *testing.T) {
	checkLeaks(t)
	in := strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"a"}` + "\n\r\n" + `{"jsonrpc":"2.0","id":2,"method":"b"}`)
	var out bytes.Buffer
	begun := make(chan struct{})
	c := NewConn(NewLines(in, &out), Handler{Request: func(ctx context.Context, c *Conn, method string, _ json.RawMessage) (any, error) {
		if method == "a" {
			<-c.life.Done() // not before the end of the input
			close(begun)
		}
		<-begun
		return method, ctx.Err()
	}})
	assert.NilError(t, c.Wait())
	c.Close()
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	assert.Equal(t, len(lines), 2)
	assert.Check(t, is.Contains(out.String(), `{"jsonrpc":"2.0","id":1,"result":"a"}`))
	assert.Check(t, is.Contains(out.String(), `{"jsonrpc":"2.0","id":2,"result":"b"}`))
}

func TestCloseEndsEveryWait(t *testing.T) {
	checkLeaks(t)
	c, peer := newRawPeer(t, Handler{Request: func(ctx context.Context, _ *Conn, _ string, _ json.RawMessage) (any, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}})
	done := start(c, t.Context())
	peer.expect(`{"jsonrpc":"2.0","id":1,"method":"m"}`)
	peer.send(`{"jsonrpc":"2.0","id":1,"method":"forever"}`)
	assert.NilError(t, c.Close())
	assert.Error(t, <-done, "m: connection closed")
	assert.NilError(t, c.Close())
	assert.Error(t, c.Call(t.Context(), "m", nil, nil), "m: connection closed")
	assert.Error(t, c.Notify(t.Context(), "n", nil), "n: connection closed")
	assert.NilError(t, c.Wait())
}

// lossy is a transport that fails some writes, as HTTP does, and stays.
type lossy struct {
	*Lines
	fail func(message []byte) error
}

func (l lossy) Write(ctx context.Context, message []byte) error {
	if err := l.fail(message); err != nil {
		return err
	}
	return l.Lines.Write(ctx, message)
}

// TestFailedWriteFailsOneCall: the connection survives a message that could not be sent.
func TestFailedWriteFailsOneCall(t *testing.T) {
	checkLeaks(t)
	left, right := memoryPair()
	refused := errors.New("503")
	c := NewConn(lossy{left, func(m []byte) error {
		if bytes.Contains(m, []byte(`"bad"`)) {
			return refused
		}
		return nil
	}}, Handler{Abandoned: func(context.Context, *Conn, int64, string, error) { t.Error("nothing was abandoned") }})
	peer := NewConn(right, Handler{Request: echo})
	assert.ErrorIs(t, c.Call(t.Context(), "bad", nil, nil), refused)
	assert.Equal(t, waiting(c), 0)
	assert.NilError(t, c.Call(t.Context(), "good", nil, nil))
	c.Close()
	peer.Close()
}

// TestLostConnection: a loss is told with its reason, to those who wait and those who come later.
func TestLostConnection(t *testing.T) {
	checkLeaks(t)
	c, peer := newRawPeer(t, Handler{})
	done := start(c, t.Context())
	peer.expect(`{"jsonrpc":"2.0","id":1,"method":"m"}`)
	peer.hangUp()
	err := <-done
	assert.Error(t, err, "m: connection closed: unexpected EOF")
	assert.ErrorIs(t, err, ErrClosed)
	assert.ErrorIs(t, err, io.ErrUnexpectedEOF)
	assert.ErrorIs(t, c.Notify(t.Context(), "n", nil), io.ErrUnexpectedEOF)
}

func FuzzDispatch(f *testing.F) {
	for _, seed := range []string{
		`{"jsonrpc":"2.0","id":1,"result":{}}`, `{"jsonrpc":"2.0","id":"1","error":{"code":1,"message":"m"}}`,
		`{"jsonrpc":"2.0","id":0,"method":"m","params":[]}`, `{"jsonrpc":"2.0","method":"n"}`,
		`[{"jsonrpc":"2.0","id":1,"result":null}]`, `[[[]]]`, `{"jsonrpc":"2.0","id":1e400,"result":1}`, `{"id":-1,"jsonrpc":"2.0","method":""}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, message []byte) {
		c, peer := connPair(t, Handler{}, Handler{})
		c.dispatch(message)
		assert.NilError(t, peer.Notify(t.Context(), "n", nil))
	})
}

// Example_rpc is a connection between two ends of a socket: both may ask.
func ExampleConn() {
	left, right := net.Pipe()
	server := NewConn(NewLines(right, right), Handler{
		Request: func(ctx context.Context, c *Conn, method string, params json.RawMessage) (any, error) {
			return map[string]string{"you said": string(params)}, nil
		},
	})
	client := NewConn(NewLines(left, left), Handler{})
	var answer map[string]string
	err := client.Call(context.Background(), "say", []string{"hello"}, &answer)
	fmt.Println(answer, err)
	client.Close()
	server.Close()
	fmt.Println(client.Call(context.Background(), "say", nil, nil))
	// Output:
	// map[you said:["hello"]] <nil>
	// say: connection closed
}

// An answer that is no valid JSON ends its call: nothing else would, but time. Servers in Python write NaN.
func TestInvalidAnswer(t *testing.T) {
	checkLeaks(t)
	ours, theirs := memoryPair()
	defer theirs.Close()
	strays := make(chan error, 1)
	c := NewConn(ours, Handler{Stray: func(_ []byte, reason error) { strays <- reason }})
	defer c.Close()
	go func() {
		if _, err := theirs.Read(); err == nil {
			_ = theirs.Write(t.Context(), []byte(`{"jsonrpc":"2.0","id":1,"result":{"x":NaN}}`))
		}
	}()
	err := c.Call(t.Context(), "measure", nil, nil)
	assert.Error(t, err, "measure: the answer is not valid: not a JSON-RPC object")
	assert.Error(t, <-strays, "not a JSON-RPC object")
}
