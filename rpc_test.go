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
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

// races is how often each race is run.
const races = 2000

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
	assert.ErrorContains(t, err, "m: result must be an object, not an array")
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
		got, err := EncodeRequest(c.id, c.method, c.params)
		assert.NilError(t, err)
		assert.Equal(t, string(got), c.want)
	}
}

// TestIDNumber: the one rule for ids and tokens, which servers change between numbers and texts.
func TestIDNumber(t *testing.T) {
	for text, want := range map[string]int64{`0`: 0, `"1"`: 1, `1.0`: 1, `"1.0"`: 1, `9007199254740993`: 1<<53 + 1,
		`1e0`: 1, `2.5E1`: 25, `10e-1`: 1, `9007199254740991e0`: 1<<53 - 1} {
		got, ok := IDNumber([]byte(text))
		assert.Assert(t, ok && got == want, "%s: %d", text, got)
	}
	for _, text := range []string{``, `null`, `""`, `"x"`, `1.5`, `-1`, `1e-1`, `-1e0`, `1e16`, `1e999`, `"1e0"`,
		`"0x1"`, `[1]`, `true`, `1.0.0`, `" 1"`} {
		got, ok := IDNumber([]byte(text))
		assert.Assert(t, !ok, "%s: %d", text, got)
	}
}

func TestErrors(t *testing.T) {
	checkLeaks(t)
	twelve := &Error{Code: 12, Message: "twelve", Data: json.RawMessage(`{"a":1}`)}
	answer := func(_ context.Context, _ *Conn, method string, _ json.RawMessage) (any, error) {
		return func() {}, map[string]error{"typed": fmt.Errorf("wrapped: %w", twelve)}[method]
	}
	left, right := connPair(t, Handler{}, Handler{Request: answer})
	assert.ErrorContains(t, left.Call(t.Context(), "m", nil, nil), "the result cannot be encoded")
	assert.Error(t, right.Call(t.Context(), "x", nil, nil), "x: method not found: x (error -32601)")
	assert.ErrorContains(t, left.Notify(t.Context(), "n", func() {}), "n: params: json: unsupported type")
	var e *Error
	assert.Assert(t, errors.As(left.Call(t.Context(), "typed", nil, nil), &e))
	assert.DeepEqual(t, e, twelve)
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

// TestAnswerThenExit: an answer that is followed at once by the end of the peer is never lost.
func TestAnswerThenExit(t *testing.T) {
	checkLeaks(t)
	for range races {
		left, right := memoryPair()
		c := NewConn(left, Handler{})
		go func() {
			right.Read()
			right.Write(context.Background(), outgoing(`{"jsonrpc":"2.0","id":1,"result":1}`))
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

// halfDeaf is a peer that reads nothing; what it sends is in the test's hands.
func halfDeaf(t *testing.T) (*Conn, io.WriteCloser) {
	in, peer := io.Pipe()
	unread, out := io.Pipe()
	c := NewConn(NewLines(in, out), Handler{})
	t.Cleanup(func() { c.Close(); unread.Close() })
	return c, peer
}

// TestStuckWrite: whatever ends a call ends it also while its message cannot be written, and that of another call
// behind it. Nothing is left behind, and Close is not held up.
func TestStuckWrite(t *testing.T) {
	checkLeaks(t)
	reason := errors.New("time is up")
	for _, test := range []struct {
		name string
		end  func(c *Conn, peer io.WriteCloser, cancel context.CancelFunc)
		want error
	}{
		{"ctx", func(_ *Conn, _ io.WriteCloser, cancel context.CancelFunc) { cancel() }, context.Canceled},
		{"Cancel", func(c *Conn, _ io.WriteCloser, _ context.CancelFunc) {
			for id := range int64(5) { // some are nobody's
				c.Cancel(id, reason)
			}
		}, reason},
		{"the answer", func(_ *Conn, peer io.WriteCloser, _ context.CancelFunc) {
			_, _ = io.WriteString(peer, `{"jsonrpc":"2.0","id":2,"result":1}`+"\n"+`{"jsonrpc":"2.0","id":1,"result":1}`+"\n")
		}, nil},
		{"loss", func(_ *Conn, peer io.WriteCloser, _ context.CancelFunc) { peer.Close() }, io.ErrUnexpectedEOF},
		{"Close", func(c *Conn, _ io.WriteCloser, _ context.CancelFunc) { c.Close() }, ErrClosed},
	} {
		stuck := func(t *testing.T, fill int) {
			c, peer := halfDeaf(t)
			ctx, cancel := context.WithCancel(t.Context())
			for range fill { // the first is being written; from the second on, a Write waits for room
				assert.NilError(t, c.Notify(ctx, "n", strings.Repeat("x", maxUnwritten)))
				synctest.Wait()
			}
			first, second := start(c, ctx), start(c, ctx)
			note := make(chan error, 1)
			go func() { note <- c.Notify(ctx, "n", nil) }()
			for waiting(c) < 2 {
				runtime.Gosched()
			}
			test.end(c, peer, cancel)
			assert.ErrorIs(t, <-first, test.want)
			assert.ErrorIs(t, <-second, test.want)
			assert.Equal(t, waiting(c), 0)
			c.Close()
			if err := <-note; fill > 0 {
				assert.Assert(t, err != nil)
			}
			assert.ErrorIs(t, c.Call(t.Context(), "m", nil, nil), ErrClosed)
			cancel()
		}
		t.Run(test.name, func(t *testing.T) {
			for range races / 10 {
				synctest.Test(t, func(t *testing.T) { stuck(t, 0) })
			}
			for range 5 {
				synctest.Test(t, func(t *testing.T) { stuck(t, 2) })
			}
		})
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

// TestManyRequests: a peer that sends more requests than are served at once gets an answer to each.
func TestManyRequests(t *testing.T) {
	checkLeaks(t)
	release := make(chan struct{})
	var running, most atomic.Int32
	answer := func(_ context.Context, _ *Conn, _ string, params json.RawMessage) (any, error) {
		most.Store(max(most.Load(), running.Add(1)))
		defer running.Add(-1)
		<-release
		return params, nil
	}
	c, peer := newRawPeer(t, Handler{Request: answer})
	const requests = 20 * maxServing
	for i := range requests {
		peer.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"m"}`, i))
	}
	close(release)
	for range requests {
		_, err := peer.Read()
		assert.NilError(t, err)
	}
	assert.Assert(t, most.Load() <= maxServing)
	peer.send(`{"jsonrpc":"2.0","id":0,"method":"m","params":{}}`)
	peer.expect(`{"jsonrpc":"2.0","id":0,"result":{}}`)
	c.Close()
}

// requestLine is a request of a peer, with any JSON as its id.
func requestLine(id any, method string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%v,"method":%q}`, id, method)
}

// TestManyRequestsWait: a peer that sends 33,000 requests at once, while all handlers wait, gets an
// answer to each.
func TestManyRequestsWait(t *testing.T) {
	checkLeaks(t)
	release := make(chan struct{})
	letGo := sync.OnceFunc(func() { close(release) })
	c, peer := newRawPeer(t, Handler{Request: func(context.Context, *Conn, string, json.RawMessage) (any, error) {
		<-release
		return nil, nil
	}})
	t.Cleanup(letGo)
	// A connection that ends fails what the peer sends and reads, which would wait for ever.
	context.AfterFunc(c.life, peer.hangUp)
	const requests = 33_000
	for i := range requests {
		peer.send(requestLine(i, "m"))
	}
	letGo()
	for range requests {
		_, err := peer.Read()
		assert.NilError(t, err)
	}
	c.Close()
}

// TestWaitingBytes: what was answered does not count as waiting any more, however much it was in all.
func TestWaitingBytes(t *testing.T) {
	checkLeaks(t)
	c, peer := newRawPeer(t, Handler{Request: func(context.Context, *Conn, string, json.RawMessage) (any, error) {
		return nil, nil
	}})
	context.AfterFunc(c.life, peer.hangUp)
	large := strings.Repeat("m", 1<<20)
	for i := range 40 {
		assert.NilError(t, peer.Write(t.Context(), Outgoing{Text: []byte(requestLine(i, large))}))
		peer.expect(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":null}`, i))
	}
	c.Close()
	assert.Equal(t, c.requests.waitingBytes, 0)
}

// TestLargeRequest: one request may be as long as the transport lets a message be, and those behind it
// wait.
func TestLargeRequest(t *testing.T) {
	checkLeaks(t)
	c, peer := newRawPeer(t, Handler{Request: func(context.Context, *Conn, string, json.RawMessage) (any, error) {
		return nil, nil
	}})
	context.AfterFunc(c.life, peer.hangUp)
	large := requestLine(1, strings.Repeat("m", maxWaiting+1))
	assert.NilError(t, peer.Write(t.Context(), Outgoing{Text: []byte(large)}))
	peer.expect(`{"jsonrpc":"2.0","id":1,"result":null}`)
	c.Close()
}

// TestIDTwice: of two requests with the same id, the later one is cancelled, also when the other has
// been answered meanwhile.
func TestIDTwice(t *testing.T) {
	for _, answered := range []bool{false, true} {
		checkLeaks(t)
		synctest.Test(t, func(t *testing.T) {
			release := make(chan struct{})
			var cancelled []string
			c, peer := newRawPeer(t, Handler{
				Request: func(ctx context.Context, _ *Conn, method string, _ json.RawMessage) (any, error) {
					if method == "first" {
						<-release
					} else {
						<-ctx.Done()
						cancelled = append(cancelled, method)
					}
					return method, nil
				},
				Notification: func(c *Conn, _ string, id json.RawMessage) { c.CancelRequest(id) },
			})
			peer.send(requestLine(1, "first"), requestLine(1, "second"))
			synctest.Wait()
			if answered {
				close(release)
				peer.expect(`{"jsonrpc":"2.0","id":1,"result":"first"}`)
			}
			peer.send(`{"jsonrpc":"2.0","method":"cancelled","params":1}`)
			synctest.Wait()
			assert.DeepEqual(t, cancelled, []string{"second"})
			if !answered {
				close(release)
				peer.expect(`{"jsonrpc":"2.0","id":1,"result":"first"}`)
			}
			c.Close()
			peer.hangUp()
		})
	}
}

// TestImmediateRequests: what is answered without waiting, and what needs no answer, is not kept
// waiting by handlers that wait themselves.
func TestImmediateRequests(t *testing.T) {
	checkLeaks(t)
	release := make(chan struct{})
	cancelled := make(chan string, 2)
	c, peer := newRawPeer(t, Handler{
		Immediate: func(method string) bool { return method == "ping" },
		Request: func(ctx context.Context, _ *Conn, method string, params json.RawMessage) (any, error) {
			if method == "ping" {
				return method, nil
			}
			select {
			case <-release:
			case <-ctx.Done():
				cancelled <- string(params)
			}
			return nil, nil
		},
		Notification: func(c *Conn, _ string, params json.RawMessage) { c.CancelRequest(params) },
	})
	const requests = 4 * maxServing
	for i := range requests {
		peer.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"wait","params":[%[1]d]}`, i))
	}
	for range races {
		peer.send(`{"jsonrpc":"2.0","id":"p","method":"ping"}`)
		peer.expect(`{"jsonrpc":"2.0","id":"p","result":"ping"}`)
	}
	peer.send(`{"jsonrpc":"2.0","method":"cancelled","params":0}`) // at work
	assert.Equal(t, <-cancelled, "[0]")
	peer.send(fmt.Sprintf(`{"jsonrpc":"2.0","method":"cancelled","params":%d}`, requests-1)) // waits, and is not begun
	peer.send(`{"jsonrpc":"2.0","id":"p","method":"ping"}`)
	peer.expect(`{"jsonrpc":"2.0","id":"p","result":"ping"}`) // the cancellation was read before it
	close(release)
	for range requests - 2 {
		_, err := peer.Read()
		assert.NilError(t, err)
	}
	c.Close()
	assert.Equal(t, len(cancelled), 0)
}

// TestFlood: a peer that asks for ever and reads nothing is cut off with bounded memory and goroutines.
func TestFlood(t *testing.T) {
	checkLeaks(t)
	c, peer := newRawPeer(t, Handler{Request: echo})
	for i := 0; c.life.Err() == nil; i++ {
		peer.Write(c.life, outgoing(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"m"}`, i)))
		assert.Assert(t, i < (maxWaiting+maxUnwritten)/40+2*maxServing)
	}
	assert.ErrorContains(t, c.Call(t.Context(), "m", nil, nil), "does not read the answers")
	c.Close()
	assert.Assert(t, len(c.requests.ordinary.waiting) == 0)
}

// textReader is a ResultReader for results that are strings.
type textReader struct {
	text  string
	calls int
}

func (r *textReader) ReadResult(s *scanner) {
	r.calls++
	r.text = s.string()
}

// TestResultReader: the result of an answer is read while the message is taken apart, wherever its id stands. What the
// reader does not expect, and what is no answer, costs nothing but the reading.
func TestResultReader(t *testing.T) {
	for _, test := range []struct {
		answer, result, text, err string
		skipped                   int
	}{
		{answer: `{"jsonrpc":"2.0","id":1,"result":"a"}`, result: `"a"`, text: "a"},
		{answer: `{"jsonrpc":"2.0","result":"a","id":1}`, result: `"a"`, text: "a"},
		{answer: `{"jsonrpc":"2.0","id":"1","result": ["a"] }`, result: `["a"]`},
		{answer: `{"jsonrpc":"2.0","id":1e0,"result":"a"}`, result: `"a"`, text: "a"},
		{answer: `{"jsonrpc":"2.0","id":1,"result":"a","id":1}`, result: `"a"`, text: "a"},
		{answer: `{"jsonrpc":"2.0","id":1,"result":"a","id":2}`, err: "it has two ids", text: "a", skipped: 1},
		{answer: `{"jsonrpc":"2.0","id":1,"result":"a","method":"m"}`, err: "it has a method", text: "a", skipped: 1},
		{answer: `{"jsonrpc":"2.0","id":1,"result":"a","x":NaN}`, err: "not a JSON-RPC object", text: "a", skipped: 1},
		{answer: `{"jsonrpc":"2.0","id":1,"result":"a` + "\n" + `{"jsonrpc":"2.0","id":1,"result":"b"}`,
			result: `"b"`, text: "b", skipped: 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			skipped := 0
			c, peer := newRawPeer(t, Handler{Skipped: func([]byte, error) { skipped++ }})
			var reader textReader
			done := make(chan struct{})
			var result json.RawMessage
			var err error
			go func() {
				defer close(done)
				m := Outgoing{ID: c.NextID(), Method: "m", Result: &reader}
				m.Text, _ = EncodeRequest(m.ID, m.Method, nil)
				result, err = c.Do(t.Context(), m)
			}()
			peer.expect(`{"jsonrpc":"2.0","id":1,"method":"m"}`)
			peer.send(strings.Split(test.answer, "\n")...)
			<-done
			synctest.Wait()
			assert.Check(t, is.Equal(string(result), test.result), test.answer)
			assert.Check(t, is.Equal(reader.text, test.text), test.answer)
			assert.Check(t, is.Equal(reader.calls, 1), test.answer)
			assert.Check(t, is.Equal(skipped, test.skipped), test.answer)
			if test.err != "" {
				assert.Check(t, is.ErrorContains(err, test.err), test.answer)
			} else {
				assert.Check(t, err, test.answer)
			}
		})
	}
}

// TestOddAnswers: an answer that has a method or two ids, in whatever order, ends its call, and a request with the id
// of a call and a null for each other member does not.
func TestOddAnswers(t *testing.T) {
	for answer, want := range map[string]string{
		`{"jsonrpc":"2.0","method":"m","result":"a","id":1}`:                           "it has a method",
		`{"jsonrpc":"2.0","id":1,"method":"m","result":"a"}`:                           "it has a method",
		`{"jsonrpc":"2.0","id":"1","result":"a","method":"m"}`:                         "it has a method",
		`{"jsonrpc":"2.0","method":"m","error":{"code":1,"message":"no"},"id":1}`:      "it has a method",
		`{"jsonrpc":"2.0","id":99,"result":"a","id":1}`:                                "it has two ids",
		`{"jsonrpc":"2.0","id":1,"id":99,"result":"a"}`:                                "it has two ids",
		`{"jsonrpc":"2.0","result":"a","id":1,"id":99}`:                                "it has two ids",
		`{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"no"},"id":2}`:            "it has two ids",
		`{"result":"a","id":1,"id":99}`:                                                "no \"jsonrpc\":\"2.0\"",
		`{"jsonrpc":"2.0","result":"a","id":1e0}`:                                      "",
		`{"jsonrpc":"2.0","id":1,"method":"m","params":{},"result":null,"error":null}`: "no answer",
		`{"jsonrpc":"2.0","result":null,"error":false,"id":1,"method":"m"}`:            "no answer",
	} {
		synctest.Test(t, func(t *testing.T) {
			c, peer := newRawPeer(t, Handler{})
			ended := make(chan error, 2)
			for id := 1; id <= 2; id++ {
				go func() { ended <- c.Call(t.Context(), "x", nil, nil) }()
				peer.expect(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"x"}`, id))
			}
			peer.send(answer)
			if want == "no answer" {
				peer.expect(`{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"method not found: m"}}`)
				peer.send(htResult("1"))
				assert.NilError(t, <-ended, answer)
			} else if want == "" {
				assert.NilError(t, <-ended, answer)
			} else {
				assert.ErrorContains(t, <-ended, "the answer is invalid: "+want, answer)
			}
			if strings.HasSuffix(answer, `"id":2}`) {
				assert.ErrorContains(t, <-ended, "the answer is invalid: "+want, answer)
			}
			synctest.Wait()
			assert.Equal(t, len(ended), 0)
		})
	}
	// Where no call waits, it is a request.
	_, peer := newRawPeer(t, Handler{})
	peer.send(`{"jsonrpc":"2.0","id":1,"method":"m","result":"a"}`)
	peer.expect(`{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"method not found: m"}}`)
}

// TestHalfClose: the requests of a peer that has closed its own side are answered all the same.
func TestHalfClose(t *testing.T) {
	checkLeaks(t)
	in := strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"a"}` + "\n\r\n" + `{"jsonrpc":"2.0","id":2,"method":"b"}`)
	var out bytes.Buffer
	begun := make(chan struct{})
	answer := func(ctx context.Context, c *Conn, method string, _ json.RawMessage) (any, error) {
		if method == "a" {
			<-c.life.Done() // not before the end of the input
			close(begun)
		}
		<-begun
		return method, ctx.Err()
	}
	c := NewConn(NewLines(in, &out), Handler{Request: answer})
	assert.NilError(t, c.Wait())
	c.Close()
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	assert.Equal(t, len(lines), 2)
	assert.Check(t, is.Contains(out.String(), `{"jsonrpc":"2.0","id":1,"result":"a"}`))
	assert.Check(t, is.Contains(out.String(), `{"jsonrpc":"2.0","id":2,"result":"b"}`))

	c = NewConn(NewLines(iotest.ErrReader(io.ErrNoProgress), io.Discard), Handler{}) // no orderly end
	assert.ErrorIs(t, c.Wait(), io.ErrNoProgress)
	c.Close()
}

// lossy is a transport that fails some writes, as HTTP does, and stays.
type lossy struct {
	*Lines
	fail func(message []byte) error
}

func (l lossy) WriteNow(m Outgoing) (sent bool, err error) {
	if err := l.fail(m.Text); err != nil {
		return false, err
	}
	return l.Lines.WriteNow(m)
}

// brokenTransport is a transport of one's own whose reader fails with err.
type brokenTransport struct {
	Transport
	err error
}

func (b brokenTransport) Read() ([]byte, error) { return nil, b.err }

// TestWaitTellsFailure: Wait takes only io.EOF for an orderly end. Both ends look alike in the error of a call.
func TestWaitTellsFailure(t *testing.T) {
	checkLeaks(t)
	for _, test := range []struct{ fromRead, fromWait error }{
		{io.EOF, nil},
		{io.ErrUnexpectedEOF, io.ErrUnexpectedEOF},
		{io.ErrClosedPipe, io.ErrClosedPipe},
	} {
		left, _ := memoryPair()
		c := NewConn(brokenTransport{left, test.fromRead}, Handler{})
		assert.ErrorIs(t, c.Wait(), test.fromWait)
		if test.fromRead != io.ErrClosedPipe {
			assert.ErrorIs(t, c.Err(), io.ErrUnexpectedEOF)
			assert.Error(t, c.Err(), "connection closed: unexpected EOF")
		}
		assert.NilError(t, c.Close())
	}
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

// FuzzSkipped: whatever a peer prints before an answer, if it is no answer itself, the answer reaches its call.
func FuzzSkipped(f *testing.F) {
	for _, seed := range []string{
		`{"id":1,"level":"info"}`, `{"jsonrpc":"2.0","id":1}`, `{"jsonrpc":"2.0","id":1,"method":"m","params":NaN}`,
		`[{"id":1},{"jsonrpc":"2.0","id":1,"method":7}]`, `{"id":1,"level":"info","data":{"result":NaN}}`,
		"Server listening", `{"jsonrpc":"2.0","id":1,"resu`, `{"jsonrpc":"2.0","id":"1","method":"m","result":1}`,
		`{"jsonrpc":"2.0","method":"m"}`, `{"id":1,"a\"":"\\\"result\":1"}`, `{"id":1,"a":[}{"result":1}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, stray string) {
		var each []map[string]any
		if one := map[string]any(nil); json.Unmarshal([]byte(stray), &one) == nil {
			each = append(each, one)
		} else if json.Unmarshal([]byte(stray), &each) != nil &&
			(strings.Contains(stray, "result") || strings.Contains(stray, "error") || strings.Contains(stray, `\u`)) {
			t.Skip("it may be an answer that is invalid JSON")
		}
		for _, one := range each {
			_, result := one["result"]
			_, failure := one["error"]
			if result || failure {
				t.Skip("it may be an answer, be it one that also has a method")
			}
		}
		c, peer := newRawPeer(t, Handler{Request: echo})
		defer c.Close()
		go func() {
			for err := error(nil); err == nil; { // our request, and answers to the peer's
				_, err = peer.Read()
			}
		}()
		call := start(c, t.Context())
		for waiting(c) == 0 {
			runtime.Gosched()
		}
		c.dispatch([]byte(stray))
		peer.send(`{"jsonrpc":"2.0","id":1,"result":1}`)
		assert.NilError(t, <-call, "%q", stray)
		peer.hangUp()
	})
}

// ExampleNewLines serves a caller over a socket. Whether a caller that sends no more has closed its side alone, or was
// killed, nobody can see. Here neither gets answers any more, and no handler works for nobody.
func ExampleNewLines() {
	caller, socket := net.Pipe()
	asked := make(chan struct{})
	server := NewConn(NewLines(socket, socket), Handler{
		Request: func(ctx context.Context, c *Conn, method string, params json.RawMessage) (any, error) {
			close(asked)
			<-ctx.Done()
			fmt.Println("the work ends:", ctx.Err())
			return nil, ctx.Err()
		},
	})
	fmt.Fprintln(caller, `{"jsonrpc":"2.0","id":1,"method":"work"}`)
	<-asked
	caller.Close()
	<-server.Done()
	server.Close() // Wait would wait for the handler
	// Output: the work ends: context canceled
}

// ExampleConn is a connection between two ends of a socket: both may ask.
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
