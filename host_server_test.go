package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

// hostEras starts one server after the other, each with its own way to answer server/discover and initialize.
type hostEras struct {
	t      *testing.T
	how    []func(method string) (any, error) // neither result nor error: the server ends
	starts int

	mu    sync.Mutex // guards asked
	asked []string   // the start and the method
}

func (s *hostEras) connect(ctx context.Context, o ClientOptions) (*Client, error) {
	return connectTo(ctx, func(context.Context) (Transport, error) { return s.start() }, o)
}

func (s *hostEras) start() (Transport, error) {
	if s.starts == len(s.how) {
		return nil, errors.New("no such server")
	}
	s.starts++
	start := s.starts
	ours, theirs := memoryPair()
	server := NewConn(theirs, Handler{Request: func(ctx context.Context, c *Conn, method string, _ json.RawMessage) (any, error) {
		s.mu.Lock()
		s.asked = append(s.asked, fmt.Sprint(start, " ", method))
		s.mu.Unlock()
		if result, err := s.how[start-1](method); result != nil || err != nil {
			return result, err
		}
		hostEnds(ctx, c)
		return nil, nil
	}})
	s.t.Cleanup(func() { server.Close() })
	return ours, nil
}

// A server that ends when it is asked what it speaks is started once more, and then not asked. No other failure is a reason to
// start anything again. What fails leaves nothing.
func TestHostStart(t *testing.T) {
	handshake := json.RawMessage(`{"protocolVersion":"2025-06-18","capabilities":{}}`)
	ends := func(string) (any, error) { return nil, nil }
	answers := func(method string) (any, error) {
		if method == "initialize" {
			return handshake, nil
		}
		return nil, &Error{Code: CodeMethodNotFound, Message: method}
	}
	refuses := func(string) (any, error) { return nil, &Error{Code: CodeInternalError, Message: "out of order"} }
	for _, test := range []struct {
		what   string
		how    []func(string) (any, error)
		forced string
		asked  string
		err    string // a regular expression; empty if it succeeds
	}{
		{"of the handshake era", []func(string) (any, error){answers}, "", "1 server/discover, 1 initialize", ""},
		{"ends when probed", []func(string) (any, error){ends, answers}, "", "1 server/discover, 2 initialize", ""},
		{"ends always", []func(string) (any, error){ends, ends, answers}, "", "1 server/discover, 2 initialize", "^initialize: connection closed: .*$"},
		{"is there only once", []func(string) (any, error){ends}, "", "1 server/discover", "^no such server$"},
		{"is not there", nil, "", "", "^no such server$"},
		{"refuses all", []func(string) (any, error){refuses, answers}, "", "1 server/discover, 1 initialize", `^initialize: out of order \(error -32603\)$`},
		{"ends, forced", []func(string) (any, error){ends, answers}, "2024-11-05", "1 initialize", "^initialize: connection closed: .*$"},
		{"ends, forced to the stateless era", []func(string) (any, error){ends, answers}, "2026-07-28", "1 server/discover", "connection closed: .*$"},
	} {
		t.Run(test.what, func(t *testing.T) {
			checkLeaks(t)
			eras := &hostEras{t: t, how: test.how}
			host := StartHost(t.Context(), []HostServer{{Name: "it", Connect: eras.connect, Options: ClientOptions{Protocol: test.forced}}})
			defer host.Close()
			assert.Equal(t, strings.Join(eras.asked, ", "), test.asked)
			status := host.Status()[0]
			assert.Equal(t, status.Name, "it")
			if test.err == "" {
				assert.NilError(t, status.Err)
				assert.Equal(t, status.Info.ProtocolVersion, "2025-06-18")
			} else {
				assert.Assert(t, is.Regexp(test.err, fmt.Sprint(status.Err)))
				_, err := host.Tools(t.Context())
				assert.ErrorIs(t, err, status.Err)
			}
			assert.Equal(t, strings.Join(eras.asked, ", "), test.asked, "a list starts no server that was never there")
		})
	}
}

// hostWait is a start or an answer that takes its time.
func hostWait(d time.Duration) func(context.Context) error {
	return func(ctx context.Context) error { return pause(ctx, d) }
}

// All servers start at once: the host is there as soon as the slowest is, or is too slow.
func TestHostStartsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var peers []*hostPeer
		for i, seconds := range []time.Duration{2, 40, 3, 3600, 1} {
			peer := newHostPeer(t, string(rune('a'+i)), "tool")
			peer.start = hostWait(seconds * time.Second)
			peers = append(peers, peer)
		}
		peers[1].timeout = 41 * time.Second
		peers[4].start = func(context.Context) error { return errors.New("no such file") }
		begun := time.Now()
		host := startHost(t, peers...)
		assert.Equal(t, time.Since(begun), 40*time.Second)
		assert.DeepEqual(t, hostErrors(host), map[string]string{"d": "the server was not there within 30s", "e": "no such file"})
		assert.ErrorIs(t, host.Status()[3].Err, context.DeadlineExceeded)
		assert.Equal(t, hostFunctions(t, host), "a__tool b__tool c__tool")
		assert.Equal(t, time.Since(begun), 40*time.Second)
	})
}

// The end of its ctx ends the starts that are under way, and no server that is there.
func TestHostStartGivenUp(t *testing.T) {
	checkLeaks(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	reason := errors.New("enough")
	first, second := newHostPeer(t, "one", "a"), newHostPeer(t, "two", "b")
	second.start = func(ctx context.Context) error {
		cancel(reason)
		<-ctx.Done()
		return context.Cause(ctx)
	}
	first.start = func(context.Context) error { return nil }
	host := StartHost(ctx, []HostServer{{Name: "two", Connect: second.connect}})
	defer host.Close()
	assert.ErrorIs(t, host.Status()[0].Err, reason)

	ctx, cancel = context.WithCancelCause(t.Context())
	host = StartHost(ctx, []HostServer{{Name: "one", Connect: first.connect}})
	defer host.Close()
	cancel(reason)
	assert.Equal(t, hostFunctions(t, host), "a")
}

// What died is there again for the next call, and for the next list. A server of the first start has nothing to do with the
// next ones: what it listed is read again.
func TestHostRestarts(t *testing.T) {
	checkLeaks(t)
	peer := newHostPeer(t, "one", "a", "b")
	host := startHost(t, peer, newHostPeer(t, "two", "c"))
	assert.Equal(t, hostFunctions(t, host), "one__a one__b two__c")
	peer.die()
	assert.ErrorContains(t, host.Status()[0].Err, "connection closed: ")
	assert.Equal(t, host.Status()[0].Info.Implementation.Name, "one")
	assert.Equal(t, hostCall(t, host, "one__a"), "done by one")
	assert.NilError(t, host.Status()[0].Err)
	assert.Equal(t, host.Status()[0].Restarts, 1)

	peer.names = []string{"b", "d"}
	peer.die()
	assert.Equal(t, hostFunctions(t, host), "one__b one__d two__c")
	assert.Equal(t, hostCall(t, host, "one__d"), "done by one")
	assert.Equal(t, host.Status()[0].Restarts, 2)

	peer.die()
	client, err := host.Client(t.Context(), "one")
	assert.NilError(t, err)
	_, err = client.CallTool(t.Context(), "b", nil, nil)
	assert.NilError(t, err)
	assert.Equal(t, host.Status()[0].Restarts, 3)
	assert.Equal(t, host.Status()[1].Restarts, 0)
}

// All who call a dead server wait for one and the same start; and if that fails, it fails for all of them.
func TestHostRestartsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		peer := newHostPeer(t, "one", "a")
		var outcome error
		peer.start = func(ctx context.Context) error {
			_ = pause(ctx, time.Second)
			return outcome
		}
		host := startHost(t, peer)
		assert.Equal(t, hostFunctions(t, host), "a")
		for _, outcome = range []error{errors.New("no memory"), nil} {
			if peer.server != nil {
				peer.die()
			}
			before := peer.started()
			var calls sync.WaitGroup
			var done, failed atomic.Int32
			for range 20 {
				calls.Go(func() {
					switch _, err := host.CallTool(t.Context(), "a", nil, nil); {
					case err == nil:
						done.Add(1)
					case err.Error() == "tools/call a: no memory":
						failed.Add(1)
					}
				})
				calls.Go(func() { host.Status(); host.Tool("a") })
			}
			calls.Wait()
			assert.Equal(t, peer.started()-before, 1)
			if outcome == nil {
				assert.Equal(t, done.Load(), int32(20))
			} else {
				assert.Equal(t, failed.Load(), int32(20))
			}
		}
	})
}

// startTimes are the times of all starts but the first, in seconds.
func (p *hostPeer) startTimes(since time.Time) (seconds []int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, start := range p.starts[1:] {
		seconds = append(seconds, int(start.Sub(since)/time.Second))
	}
	return seconds
}

// A server that cannot be started again is tried five times, each time only when it is needed, and after a longer pause.
func TestHostGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		peer := newHostPeer(t, "one", "a")
		host := startHost(t, peer, newHostPeer(t, "two", "b"))
		assert.Equal(t, hostFunctions(t, host), "one__a two__b")
		time.Sleep(time.Hour)
		died := time.Now()
		peer.die()
		peer.start = func(context.Context) error { return errors.New("no memory") }
		for range 4 {
			assert.Equal(t, hostCall(t, host, "one__a"), "server one: tools/call a: no memory")
		}
		const want = "server one: tools/call a: given up after 5 restarts in a row: no memory"
		for range 3 {
			assert.Equal(t, hostCall(t, host, "one__a"), want)
			time.Sleep(time.Hour)
		}
		assert.DeepEqual(t, peer.startTimes(died), []int{0, 1, 3, 7, 15})
		assert.Equal(t, hostFunctions(t, host), "two__b")
		_, err := host.Client(t.Context(), "one")
		var given *GivenUpError
		assert.Assert(t, errors.As(err, &given))
		assert.Equal(t, given.Restarts, 5)
		assert.DeepEqual(t, hostErrors(host), map[string]string{"one": "given up after 5 restarts in a row: no memory"})
		assert.Equal(t, host.Status()[0].Restarts, 0)
	})
}

// A pause is counted from the last start: who comes after it does not wait.
func TestHostPauseIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		peer := newHostPeer(t, "one", "a")
		host := startHost(t, peer)
		assert.Equal(t, hostFunctions(t, host), "a")
		peer.die()
		peer.start = func(context.Context) error { return errors.New("no memory") }
		died := time.Now()
		for range 4 {
			hostCall(t, host, "a")
			time.Sleep(10 * time.Second)
		}
		assert.DeepEqual(t, peer.startTimes(died), []int{0, 10, 20, 30})
	})
}

// A server that comes up and dies of every call is no better than one that does not come up. One that answered a call, or was
// there for a while, has done well, and its next end is the first.
func TestHostDiesOfCalls(t *testing.T) {
	for _, test := range []struct {
		what   string
		well   func(t *testing.T, host *Host, tool *string)
		starts []int
	}{
		{"never well", func(*testing.T, *Host, *string) {}, []int{0, 1, 3, 7, 15}},
		{"a call answered", func(t *testing.T, host *Host, tool *string) {
			*tool = "fine"
			assert.Equal(t, hostCall(t, host, "fine"), "done by one")
		}, []int{0, 1, 3, 7, 7, 8, 10, 14, 22}},
		{"a call refused", func(t *testing.T, host *Host, tool *string) {
			*tool = "refused"
			assert.Equal(t, hostCall(t, host, "refused"), "tools/call refused: not now (error -32603)")
		}, []int{0, 1, 3, 7, 7, 8, 10, 14, 22}},
		{"there for a while", func(t *testing.T, host *Host, _ *string) {
			_, err := host.Client(t.Context(), "")
			assert.NilError(t, err)
			time.Sleep(calmTime)
		}, []int{0, 1, 3, 7, 67, 68, 70, 74, 82}},
		{"there, but not for long", func(t *testing.T, host *Host, _ *string) {
			_, err := host.Client(t.Context(), "")
			assert.NilError(t, err)
			time.Sleep(calmTime - time.Second)
		}, []int{0, 1, 3, 7, 66}},
	} {
		t.Run(test.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				peer := newHostPeer(t, "one", "fatal", "fine", "refused")
				tool := "fatal"
				peer.answer = func(_ context.Context, method string) any {
					switch {
					case method != "tools/call" || tool == "fine":
						return nil
					case tool == "refused":
						return errNotNow
					}
					return hostDies{}
				}
				host := startHost(t, peer)
				hostFunctions(t, host)
				begun := time.Now()
				fatal := func() string {
					tool = "fatal"
					said := hostCall(t, host, "fatal")
					synctest.Wait() // for all to notice
					return said
				}
				fatal() // of the first start
				for range 3 {
					assert.Equal(t, fatal(), "tools/call fatal: connection closed: unexpected EOF")
				}
				test.well(t, host, &tool)
				for range 10 {
					fatal()
				}
				assert.Equal(t, hostCall(t, host, "fatal"), "tools/call fatal: given up after 5 restarts in a row: connection closed: unexpected EOF")
				assert.DeepEqual(t, peer.startTimes(begun), test.starts)
			})
		})
	}
}

// The pause before a start ends for a caller with its ctx; the start comes all the same.
func TestHostPauseGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		peer := newHostPeer(t, "one", "a")
		host := startHost(t, peer)
		assert.Equal(t, hostFunctions(t, host), "a")
		peer.die()
		peer.start = func(context.Context) error { return errors.New("no memory") }
		died := time.Now()
		for range 3 {
			hostCall(t, host, "a")
		}
		peer.start = nil
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errors.New("enough"))
		defer cancel()
		begun := time.Now()
		_, err := host.CallTool(ctx, "a", nil, nil)
		assert.Error(t, err, "tools/call a: enough")
		assert.Equal(t, time.Since(begun), time.Second)
		time.Sleep(time.Minute)
		assert.NilError(t, host.Status()[0].Err)
		assert.DeepEqual(t, peer.startTimes(died), []int{0, 1, 3, 7})
	})
}

// A list waits for the first restart of a server, and then for none that follows on a failure: those go on behind its back,
// so that the other servers' tools are there at once.
func TestHostListsDoNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		peer := newHostPeer(t, "one", "a")
		host := startHost(t, peer, newHostPeer(t, "two", "b"))
		assert.Equal(t, hostFunctions(t, host), "one__a two__b")
		time.Sleep(time.Hour)
		peer.die()
		died := time.Now()
		peer.start = func(ctx context.Context) error {
			_ = pause(ctx, 10*time.Second)
			if peer.started() == 2 {
				return errors.New("no memory")
			}
			return nil
		}
		for range 3 { // at 10 s the first restart has failed; the second one begins at 11 s and has succeeded at 21 s
			assert.Equal(t, hostFunctions(t, host), "two__b")
			assert.DeepEqual(t, hostErrors(host), map[string]string{"one": "no memory"})
			assert.Equal(t, time.Since(died), 10*time.Second)
		}
		time.Sleep(10 * time.Second)
		assert.Equal(t, hostFunctions(t, host), "two__b")
		assert.Equal(t, time.Since(died), 20*time.Second)
		time.Sleep(time.Second)
		synctest.Wait()
		assert.Equal(t, hostFunctions(t, host), "one__a two__b")
		assert.Equal(t, time.Since(died), 21*time.Second)
		assert.Equal(t, len(hostErrors(host)), 0)
	})
}

// A server that was never there is started again only for who asks for it by name.
func TestHostNeverThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		peer := newHostPeer(t, "one", "a")
		outcome := errors.New("no such file")
		peer.start = func(context.Context) error { return outcome }
		host := startHost(t, peer, newHostPeer(t, "two", "b"))
		for range 3 {
			assert.Equal(t, hostFunctions(t, host), "two__b")
		}
		assert.Equal(t, peer.started(), 1)
		_, err := host.Client(t.Context(), "one")
		assert.Error(t, err, "server one: no such file")
		outcome = nil
		client, err := host.Client(t.Context(), "one")
		assert.NilError(t, err)
		assert.Assert(t, client == peer.client)
		assert.Equal(t, hostFunctions(t, host), "one__a two__b")
		assert.Equal(t, host.Status()[0].Restarts, 0, "it is there for the first time")
		assert.Equal(t, peer.started(), 3)
	})
}

// Close ends a start that is under way, and a pause before one, for all who wait for them; and what is called later.
func TestHostCloses(t *testing.T) {
	for what, failures := range map[string]int{"a start": 0, "a pause": 2} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				peer, other := newHostPeer(t, "one", "a"), newHostPeer(t, "two", "b")
				host := startHost(t, peer, other)
				assert.Equal(t, hostFunctions(t, host), "one__a two__b")
				peer.die()
				peer.start = func(context.Context) error { return errors.New("no memory") }
				for range failures {
					hostCall(t, host, "a")
				}
				peer.start = hostWait(time.Hour)
				begun := time.Now()
				var calls sync.WaitGroup
				for range 3 {
					calls.Go(func() {
						_, err := host.CallTool(context.Background(), "a", nil, nil)
						assert.Check(t, is.ErrorIs(err, ErrClosed))
					})
				}
				synctest.Wait()
				for range 2 {
					assert.NilError(t, host.Close())
					calls.Wait()
				}
				assert.Equal(t, time.Since(begun), time.Duration(0))
				assert.Assert(t, other.client.conn.life.Err() != nil)
				for range 2 * maxRestarts { // none of which is one
					assert.Equal(t, hostCall(t, host, "b"), "server two: tools/call b: connection closed")
				}
				_, err := host.Tools(t.Context())
				assert.ErrorIs(t, err, ErrClosed)
				_, err = host.Client(t.Context(), "two")
				assert.ErrorIs(t, err, ErrClosed)
			})
		})
	}
}

// A start that succeeds although the host is being closed leaves nothing. (synctest looks for goroutines.)
func TestHostClosesLateStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		peer := newHostPeer(t, "one", "a")
		host := startHost(t, peer)
		peer.die()
		connected := host.servers[0].Connect
		host.servers[0].Connect = func(ctx context.Context, o ClientOptions) (*Client, error) {
			<-ctx.Done()
			return connected(context.Background(), o)
		}
		var call sync.WaitGroup
		call.Go(func() { _, _ = host.Client(t.Context(), "one") })
		synctest.Wait()
		assert.NilError(t, host.Close())
		call.Wait()
		assert.Assert(t, peer.client.conn.life.Err() != nil)
		assert.Equal(t, peer.started(), 2)
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
	peer, other := newHostPeer(t, "one"), newHostPeer(t, "two")
	peer.wrap = func(t Transport) Transport { return stuckTransport{t} }
	host := startHost(t, peer, other)
	assert.Error(t, host.Close(), "server one: stuck")
	assert.Assert(t, other.client.conn.life.Err() != nil)
}

// hostModern is a server of the stateless era that tells of changed tools, to who listens.
type hostModern struct {
	*hostPeer
	listens []time.Time
	ids     []json.RawMessage
	end     chan any // how the subscription ends: hostDies, an error, or a result
}

func newHostModern(t *testing.T) *hostModern {
	m := &hostModern{hostPeer: newHostPeer(t, "one", "a"), end: make(chan any)}
	m.answer = func(ctx context.Context, method string) any {
		switch method {
		case "server/discover":
			return json.RawMessage(discoveryResult)
		case "subscriptions/listen":
			m.mu.Lock()
			m.listens = append(m.listens, time.Now())
			m.ids = append(m.ids, RequestID(ctx))
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
func (m *hostModern) tell(names ...string) {
	m.mu.Lock()
	m.names = names
	id := m.ids[len(m.ids)-1]
	m.mu.Unlock()
	params := map[string]any{"_meta": map[string]any{"io.modelcontextprotocol/subscriptionId": id}}
	assert.NilError(m.t, m.server.Notify(m.t.Context(), "notifications/tools/list_changed", params))
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

// In the stateless era a server tells only who listens, and the host does. A list that the server called fresh is read
// again when it tells of a change.
func TestHostListens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newHostModern(t)
		host := startHost(t, m.hostPeer)
		synctest.Wait()
		assert.Equal(t, hostFunctions(t, host), "a")
		m.tell("b")
		assert.Equal(t, m.listed(), 1)
		assert.Equal(t, hostFunctions(t, host), "b")
		assert.Equal(t, hostFunctions(t, host), "b")
		assert.Equal(t, m.listed(), 2)

		// The next process is listened to as well, at once.
		m.die()
		assert.Equal(t, hostFunctions(t, host), "b")
		synctest.Wait()
		m.tell("c")
		assert.Equal(t, hostFunctions(t, host), "c")
		assert.Equal(t, len(m.ids), 2)
	})
}

// A subscription that ends, in whatever way, is begun again after a pause, which grows. What changed meanwhile is seen.
func TestHostListensAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newHostModern(t)
		host := startHost(t, m.hostPeer)
		begun := time.Now()
		synctest.Wait()
		assert.Equal(t, hostFunctions(t, host), "a")
		m.end <- errNotNow
		synctest.Wait()
		m.names = []string{"b"} // of which it tells nobody
		time.Sleep(999 * time.Millisecond)
		assert.Equal(t, hostFunctions(t, host), "a")
		time.Sleep(time.Millisecond)
		synctest.Wait()
		assert.Equal(t, hostFunctions(t, host), "b")
		for range 8 {
			m.end <- json.RawMessage(`{"resultType":"complete"}`)
		}
		assert.DeepEqual(t, m.seconds(begun), []int{0, 1, 3, 7, 15, 31, 63, 123, 183})
		time.Sleep(2 * time.Minute) // during which one lasts, and so the next pause is a short one again
		m.end <- errNotNow
		time.Sleep(time.Hour)
		assert.DeepEqual(t, m.seconds(begun)[9:], []int{243, 304})
		assert.Equal(t, m.started(), 1)
	})
}

// A server that does not know the subscription it promised is not asked again, nor is one that has died; and Close ends the
// pause.
func TestHostListensNoMore(t *testing.T) {
	for what, end := range map[string]any{
		"unknown": &Error{Code: CodeMethodNotFound, Message: "listen?"},
		"dead":    hostDies{},
		"closed":  errNotNow,
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newHostModern(t)
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

// Who listens to a server is gone with it.
func TestHostListensToTheLiving(t *testing.T) {
	checkLeaks(t)
	m := newHostModern(t)
	host := startHost(t, m.hostPeer)
	assert.Equal(t, hostFunctions(t, host), "a")
	before := resources()
	for range 5 {
		m.die()
		assert.Equal(t, hostCall(t, host, "a"), "done by one")
	}
	assert.Equal(t, leftOver(before), "")
	assert.Equal(t, host.Status()[0].Restarts, 5)
}

// A server that promised to tell of nothing is not listened to, nor is one of the handshake era, which needs no asking.
func TestHostListensToPromises(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mute, old := newHostPeer(t, "one", "a"), newHostPeer(t, "two", "b")
		mute.answer = func(_ context.Context, method string) any {
			switch method {
			case "server/discover":
				return json.RawMessage(strings.Replace(discoveryResult, `"listChanged":true`, "", 1))
			case "subscriptions/listen":
				t.Error("is listened to")
			}
			return nil
		}
		startHost(t, mute, old)
		synctest.Wait()
		assert.Equal(t, len(old.client.listens), 0)
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

func (l lossyTransport) Write(ctx context.Context, message []byte) error {
	var call struct {
		Method string
		Params struct{ Name string }
	}
	if json.Unmarshal(message, &call) == nil && call.Method == "tools/call" && !l.lost[call.Params.Name] {
		l.lost[call.Params.Name] = true
		return errLost{}
	}
	return l.Transport.Write(ctx, message)
}

// A call whose answer is lost is made again if the server says that it does no harm.
func TestHostRepeats(t *testing.T) {
	checkLeaks(t)
	m := newHostModern(t)
	m.names = []string{"a", "b-safe"}
	m.wrap = func(t Transport) Transport { return lossyTransport{t, make(map[string]bool)} }
	host := startHost(t, m.hostPeer)
	assert.Equal(t, hostCall(t, host, "a"), "tools/call a: the answer is lost")
	assert.Equal(t, hostCall(t, host, "b-safe"), "done by one")
}

// hostChild is a host of the test binary, as a server of that mode, and the processes that it has started.
func hostChild(t *testing.T, mode string) (*Host, func() []*Stdio) {
	t.Helper()
	var mu sync.Mutex
	var processes []*Stdio
	server := &Server{Command: childCommand(mode), Wrap: func(transport Transport) Transport {
		mu.Lock()
		defer mu.Unlock()
		processes = append(processes, transport.(*Stdio))
		return transport
	}}
	host := StartHost(t.Context(), []HostServer{{Name: "child", Connect: server.Connect}})
	t.Cleanup(func() { host.Close() })
	return host, func() []*Stdio {
		mu.Lock()
		defer mu.Unlock()
		return processes
	}
}

// A process that crashes in a call ends that call with what it last said; the calls after it have one new process.
func TestHostChildCrashes(t *testing.T) {
	checkLeaks(t)
	host, processes := hostChild(t, "prog-tools")
	assert.NilError(t, host.Status()[0].Err)
	assert.Assert(t, strings.Contains(" "+hostFunctions(t, host)+" ", " die "))
	for i := range 2 {
		assert.Assert(t, is.Regexp(`^tools/call die: connection closed: server .* ended \(exit status \d+\), .*stderr.*$`, hostCall(t, host, "die")))
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
		assert.Equal(t, len(processes()), 2+i)
		assert.Equal(t, host.Status()[0].Restarts, 1+i)
	}
	assert.NilError(t, host.Close())
}

// A program that is not there, or ends at once, or is mute, does not keep the others, and is named with its own last words.
func TestHostChildrenFail(t *testing.T) {
	checkLeaks(t)
	server := func(name, mode string) HostServer {
		command := childCommand(mode)
		return HostServer{Name: name, Connect: (&Server{Command: command}).Connect}
	}
	absent := HostServer{Name: "absent", Connect: (&Server{Command: Command{Path: "./no-such-server"}}).Connect}
	mute := server("mute", "prog-silent")
	mute.StartTimeout = 200 * time.Millisecond
	host := StartHost(t.Context(), []HostServer{server("good", "prog-tools"), absent, server("exits", "prog-exits"), mute})
	defer host.Close()
	errs := hostErrors(host)
	assert.Equal(t, len(errs), 3)
	assert.Assert(t, is.Contains(errs["absent"], "no-such-server"))
	assert.Assert(t, is.Contains(errs["exits"], "exit status 7"))
	assert.Assert(t, is.Contains(errs["exits"], "no such file: library.db"))
	assert.Assert(t, is.Contains(errs["mute"], "the server was not there within 200ms"))
	assert.Assert(t, strings.HasPrefix(hostFunctions(t, host), "good__echo good__notes_read "))
}
