package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

// htEndpoint is the event that begins a stream of HTTP+SSE.
func htEndpoint(url string) string { return "event: endpoint\ndata: " + url + "\n\n" }

// htOld is a script for a server of HTTP+SSE: it names the endpoint, and gives rest a way to send on the stream.
func htOld(endpoint func(r *http.Request) string, rest func(w http.ResponseWriter, m htMessage, send func(events ...string))) htScript {
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
		htStream(w, htEndpoint(endpoint(r)))
		for {
			select {
			case events := <-stream:
				if events == nil {
					return
				}
				htStream(w, events...)
			case <-r.Context().Done():
				return
			}
		}
	}
}

// htConnect is a transport to such a server.
func htConnect(t *testing.T, h *HTTP, script htScript) (*htPeer, *htServer) {
	t.Helper()
	s := htServe(t, script)
	h.URL = s.URL + "/sse?key=1"
	transport, err := StartSSE(t.Context(), h)
	assert.NilError(t, err)
	return htOpen(t, transport), s
}

// TestSSE: the answer comes on the stream, before the POST is accepted or after it, and with it whatever else the server says.
func TestSSE(t *testing.T) {
	for _, before := range []bool{true, false} {
		checkLeaks(t)
		accepted := make(chan struct{}, 1)
		p, s := htConnect(t, &HTTP{Header: http.Header{"Authorization": {"Bearer me"}}}, htOld(
			func(*http.Request) string { return "/messages?sessionId=5" },
			func(w http.ResponseWriter, m htMessage, send func(...string)) {
				answer := []string{": ping\n\n", "event: other\ndata: x\n\n", htEndpoint("/elsewhere"), "event: message\ndata: " + htResult("7") + "\n\n", "data:\n\n", htEvent(htResult(string(m.ID)))}
				if before {
					send(answer...)
				}
				w.WriteHeader(http.StatusAccepted)
				io.WriteString(w, "Accepted")
				if !before {
					w.(http.Flusher).Flush()
					accepted <- struct{}{}
					send(answer...)
				}
			}))
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
			assert.DeepEqual(t, htOwn(post.Header), map[string]string{"Content-Type": "application/json", "Authorization": "Bearer me"})
		}
		assert.DeepEqual(t, htOwn(s.last(t, "GET").Header), map[string]string{"Accept": "text/event-stream", "Authorization": "Bearer me"})
		p.close()
		assert.Equal(t, len(s.all()), 3, "there is no session to DELETE")
		assert.Assert(t, s.connections() <= 2)
		assert.ErrorIs(t, p.write(htRequest(1, "ping", "")), net.ErrClosed)
	}
}

// TestSSEClient: a Client can speak over it.
func TestSSEClient(t *testing.T) {
	checkLeaks(t)
	s := htServe(t, htOld(func(*http.Request) string { return "messages" }, func(w http.ResponseWriter, m htMessage, send func(...string)) {
		w.WriteHeader(http.StatusAccepted)
		w.(http.Flusher).Flush()
		switch m.Method {
		case "initialize":
			send(htEvent(`{"jsonrpc":"2.0","id":` + string(m.ID) + `,"result":` + initializeResult("2024-11-05") + `}`))
		case "tools/call":
			send(htEvent(`{"jsonrpc":"2.0","id":` + string(m.ID) + `,"result":{"content":[]}}`))
		}
	}))
	transport, err := StartSSE(t.Context(), &HTTP{URL: s.URL + "/deep/sse"})
	assert.NilError(t, err)
	c, err := Connect(t.Context(), transport, &ClientOptions{Protocol: "2024-11-05"})
	assert.NilError(t, err)
	_, err = c.CallTool(t.Context(), "t", nil, nil)
	assert.NilError(t, err)
	assert.Equal(t, s.last(t, "POST").Path, "/deep/messages")
	assert.NilError(t, c.Close())
}

// TestSSEEndpoint: messages go to another place of the same origin, and to no other origin.
func TestSSEEndpoint(t *testing.T) {
	checkLeaks(t)
	other := htServe(t, func(w http.ResponseWriter, _ *http.Request, _ htMessage) { w.WriteHeader(http.StatusAccepted) })
	var endpoint atomic.Value
	s := htServe(t, htOld(func(*http.Request) string { return endpoint.Load().(string) }, func(w http.ResponseWriter, _ htMessage, _ func(...string)) {
		w.WriteHeader(http.StatusAccepted)
	}))
	user := strings.Replace(s.URL, "http://", "http://me:s3cret@", 1)
	for given, path := range map[string]string{
		"/messages?sessionId=1":                  "/messages",
		"messages":                               "/v1/messages",
		"?sessionId=1":                           "/v1/sse",
		"../messages":                            "/messages",
		s.URL + "/messages?x":                    "/messages",
		"//" + s.Listener.Addr().String() + "/m": "/m",
	} {
		endpoint.Store(given)
		transport, err := StartSSE(t.Context(), &HTTP{URL: user + "/v1/sse?key=s3cret"})
		assert.NilError(t, err, given)
		p := htOpen(t, transport)
		p.say(initializeLine)
		post := s.last(t, "POST")
		assert.Equal(t, post.Path, path)
		name, password, _ := (&http.Request{Header: post.Header}).BasicAuth()
		assert.Equal(t, name+password, "mes3cret", given)
		p.close()
	}
	for _, given := range []string{
		other.URL + "/messages?sessionId=s3cret",
		"//" + other.Listener.Addr().String() + "/messages",
		strings.Replace(s.URL, "127.0.0.1", "localhost", 1),
		strings.Replace(s.URL, "http", "https", 1),
		"mailto:me@example.com",
		"http://[bad/",
		"%zz",
	} {
		endpoint.Store(given)
		_, err := StartSSE(t.Context(), &HTTP{URL: user + "/v1/sse?key=s3cret"})
		var refusal *HTTPError
		assert.Assert(t, errors.As(err, &refusal), "%s: %v", given, err)
		assert.Check(t, is.ErrorContains(err, s.URL+"/v1/sse"))
		assert.Check(t, !strings.Contains(err.Error(), "s3cret"), "%v", err)
	}
	assert.Equal(t, len(other.all()), 0)
}

// TestSSENoStream: what is not the beginning of a stream is an error that says what it is.
func TestSSENoStream(t *testing.T) {
	checkLeaks(t)
	all := htBadAnswers()
	for _, name := range []string{"400", "401", "403", "404", "404 empty", "405", "421", "500", "502", "503", "504", "301", "304", "202", "204",
		"HTML", "no type", "gone", "no HTTP", "SSE empty", "SSE ends", "SSE cut"} {
		c := all[name]
		s := htServe(t, c.answer)
		_, err := StartSSE(t.Context(), &HTTP{URL: s.URL + "/sse"})
		var refusal *HTTPError
		assert.Assert(t, errors.As(err, &refusal), "%s: %v", name, err)
		assert.Equal(t, refusal.Status, c.status, name)
		for _, want := range append(c.want, s.URL+"/sse") {
			assert.Check(t, is.Contains(err.Error(), want), name)
		}
		s.Close()
	}
	s := htServe(t, func(w http.ResponseWriter, _ *http.Request, _ htMessage) {
		htStream(w, htEvent("x"), "event: endpoint\ndata: /x\n")
	})
	_, err := StartSSE(t.Context(), &HTTP{URL: s.URL})
	assert.ErrorContains(t, err, "no endpoint event")
	assert.Assert(t, !errors.Is(err, io.EOF))
	long := htServe(t, htEndless("text/event-stream", "event: endpoint\ndata: ", "xxxxxxxx"))
	_, err = StartSSE(t.Context(), &HTTP{URL: long.URL, MaxMessage: 1 << 16})
	assert.Assert(t, errors.As(err, new(*BodyTooLongError)), "%v", err)
}

// TestSSEBegin: ctx bounds the beginning, whatever is missing of it, and nothing after it.
func TestSSEBegin(t *testing.T) {
	checkLeaks(t)
	synctest.Test(t, func(t *testing.T) {
		var script htSwitch
		_, client := htInMemory(func(w http.ResponseWriter, r *http.Request, m htMessage) {
			if r.Method == http.MethodGet {
				script.serve(w, r, m)
				<-r.Context().Done()
			}
		})
		for _, begin := range []func(w http.ResponseWriter){
			func(http.ResponseWriter) {},
			func(w http.ResponseWriter) { htStream(w) },
			func(w http.ResponseWriter) {
				htStream(w, ": wait\n\n", "event: other\ndata: /x\n\n", "event: endpoint\ndata: /x\n")
			},
		} {
			script.set(func(w http.ResponseWriter, _ *http.Request, _ htMessage) { begin(w) })
			ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, io.ErrNoProgress)
			begun := time.Now()
			_, err := StartSSE(ctx, &HTTP{URL: "http://memory/", Client: client})
			assert.Equal(t, err, io.ErrNoProgress)
			assert.Equal(t, time.Since(begun), time.Second)
			cancel()
			_, err = StartSSE(ctx, &HTTP{URL: "http://memory/", Client: client})
			assert.Equal(t, err, io.ErrNoProgress)
		}
		script.set(func(w http.ResponseWriter, _ *http.Request, _ htMessage) { htStream(w, htEndpoint("/x")) })
		ctx, cancel := context.WithCancel(t.Context())
		transport, err := StartSSE(ctx, &HTTP{URL: "http://memory/", Client: client})
		assert.NilError(t, err)
		p := htOpen(t, transport)
		cancel()
		synctest.Wait()
		p.say(initializeLine)
	})
}

// TestSSEEnd: the end of the stream is the end of the connection, however it comes.
func TestSSEEnd(t *testing.T) {
	for name, end := range map[string]func(w http.ResponseWriter){
		"ends":   func(http.ResponseWriter) {},
		"breaks": func(http.ResponseWriter) { panic(http.ErrAbortHandler) },
		"half":   func(w http.ResponseWriter) { htStream(w, "data: {}\n") },
	} {
		t.Run(name, func(t *testing.T) {
			checkLeaks(t)
			s := htServe(t, func(w http.ResponseWriter, r *http.Request, _ htMessage) {
				htStream(w, htEndpoint("/x"), htEvent(htResult("1")))
				end(w)
			})
			transport, err := StartSSE(t.Context(), &HTTP{URL: s.URL + "/sse?key=s3cret"})
			assert.NilError(t, err)
			message, err := transport.Read()
			assert.NilError(t, err)
			assert.Equal(t, string(message), htResult("1"))
			for range 2 {
				_, err = transport.Read()
				assert.ErrorIs(t, err, io.EOF)
				assert.Assert(t, err != io.EOF, "that would say that the server can still read")
				assert.ErrorContains(t, err, s.URL+"/sse: ")
				assert.Assert(t, !strings.Contains(err.Error(), "s3cret"))
			}
			assert.NilError(t, transport.Close())
		})
	}
}

// TestSSEEndClient: calls at work end with it.
func TestSSEEndClient(t *testing.T) {
	checkLeaks(t)
	s := htServe(t, htOld(func(*http.Request) string { return "/x" }, func(w http.ResponseWriter, m htMessage, send func(...string)) {
		w.WriteHeader(http.StatusAccepted)
		w.(http.Flusher).Flush()
		if m.Method == "initialize" {
			send(htEvent(`{"jsonrpc":"2.0","id":` + string(m.ID) + `,"result":` + initializeResult("2024-11-05") + `}`))
		}
		if m.Method == "tools/call" {
			send()
		}
	}))
	transport, err := StartSSE(t.Context(), &HTTP{URL: s.URL})
	assert.NilError(t, err)
	c, err := Connect(t.Context(), transport, &ClientOptions{Protocol: "2024-11-05"})
	assert.NilError(t, err)
	_, err = c.CallTool(t.Context(), "t", nil, nil)
	assert.ErrorIs(t, err, ErrClosed)
	assert.NilError(t, c.Close())
}

// TestSSETooLong: nor does it survive a message that is too long.
func TestSSETooLong(t *testing.T) {
	checkLeaks(t)
	s := htServe(t, func(w http.ResponseWriter, r *http.Request, m htMessage) {
		htStream(w, htEndpoint("/x"), htEvent(strings.Repeat("x", 10_000)))
		htEndless("", "data: ", strings.Repeat("x", 1000))(w, r, m)
	})
	transport, err := StartSSE(t.Context(), &HTTP{URL: s.URL, MaxMessage: 10_000})
	assert.NilError(t, err)
	_, err = transport.Read()
	assert.NilError(t, err)
	_, err = transport.Read()
	var long *BodyTooLongError
	assert.Assert(t, errors.As(err, &long), "%v", err)
	assert.Equal(t, long.Limit, 10_000)
	assert.NilError(t, transport.Close())
}

// TestSSEPosts: a message that is refused, or that nobody takes, is an error of its own; the connection goes on.
func TestSSEPosts(t *testing.T) {
	checkLeaks(t)
	var script htSwitch
	answer := func(answer func(w http.ResponseWriter)) {
		script.set(func(w http.ResponseWriter, _ *http.Request, _ htMessage) { answer(w) })
	}
	asked, release := make(chan struct{}), make(chan struct{})
	p, s := htConnect(t, &HTTP{}, htOld(func(*http.Request) string { return "/m?sessionId=s3cret" }, func(w http.ResponseWriter, m htMessage, _ func(...string)) {
		script.serve(w, nil, m)
	}))
	for _, status := range []int{400, 401, 403, 404, 405, 413, 500, 502} {
		answer(func(w http.ResponseWriter) { http.Error(w, "what?", status) })
		err := p.fails(initializeLine)
		assert.Equal(t, err.Status, status)
		assert.Equal(t, err.URL, s.URL+"/m")
		assert.ErrorContains(t, err, fmt.Sprintf("%s/m answers %d %s: what?", s.URL, status, http.StatusText(status)))
		assert.Assert(t, !err.SessionExpired())
		assert.Equal(t, strings.Contains(err.Error(), "Authorization"), status == 401 || status == 403)
	}
	answer(func(w http.ResponseWriter) { panic(http.ErrAbortHandler) })
	assert.Assert(t, p.fails(initializeLine).Lost())
	answer(func(w http.ResponseWriter) {
		w.Header().Set("Location", "http://127.0.0.1:1/")
		w.WriteHeader(http.StatusTemporaryRedirect)
	})
	assert.ErrorContains(t, p.fails(initializeLine), "redirects to http://127.0.0.1:1/")
	answer(func(w http.ResponseWriter) { htAnswer(w, 200, htResult("1")) }) // is no place for an answer
	p.say(initializeLine)
	answer(func(http.ResponseWriter) {
		asked <- struct{}{}
		<-release
	})
	ctx, cancel := context.WithCancelCause(t.Context())
	failed := make(chan error)
	go func() { failed <- p.Write(ctx, []byte(initializeLine)) }()
	<-asked
	cancel(io.ErrNoProgress)
	assert.Equal(t, <-failed, io.ErrNoProgress)
	go func() { failed <- p.write(initializeLine) }()
	<-asked
	p.close()
	assert.ErrorIs(t, <-failed, net.ErrClosed)
	close(release)
}

// TestSSECloseWaits: when Close returns nothing is left.
func TestSSECloseWaits(t *testing.T) {
	checkLeaks(t)
	synctest.Test(t, func(t *testing.T) {
		_, client := htInMemory(func(w http.ResponseWriter, r *http.Request, _ htMessage) {
			if r.Method == http.MethodGet {
				htStream(w, htEndpoint("/x"))
			}
			<-r.Context().Done()
		})
		var left atomic.Int32
		transport, err := StartSSE(t.Context(), &HTTP{URL: "http://memory/", Client: &http.Client{Transport: htSlow{client.Transport, &left}}})
		assert.NilError(t, err)
		p := htOpen(t, transport)
		go func() { _ = p.write(initializeLine) }()
		synctest.Wait()
		assert.Equal(t, left.Load(), int32(1))
		begun := time.Now()
		p.close()
		assert.Equal(t, left.Load(), int32(0))
		assert.Equal(t, time.Since(begun), time.Second)
	})
}
