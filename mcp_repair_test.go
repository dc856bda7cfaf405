package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

// repairServer is a server on HTTP whose answers a test writes, and which remembers what it was asked.
type repairServer struct {
	answer func(w http.ResponseWriter, r *http.Request, method, id string, params json.RawMessage)

	mu    sync.Mutex
	asked []string // methods, with the session where there was one
}

func startRepair(t *testing.T, s *repairServer, o ClientOptions) *Client {
	t.Helper()
	checkLeaks(t)
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	client, err := Connect(t.Context(), &ParamHeaders{HTTP: &HTTP{URL: server.URL}}, &o)
	assert.NilError(t, err)
	t.Cleanup(func() { client.Close() })
	return client
}

func (s *repairServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	var m struct {
		ID     json.RawMessage
		Method string
		Params json.RawMessage
	}
	body, _ := io.ReadAll(r.Body)
	_ = json.Unmarshal(body, &m)
	s.mu.Lock()
	s.asked = append(s.asked, strings.TrimSpace(m.Method+" "+r.Header.Get("Mcp-Session-Id")))
	s.mu.Unlock()
	if m.ID == nil {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	s.answer(w, r, m.Method, string(m.ID), m.Params)
}

// count is how often something was asked.
func (s *repairServer) count(what string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, asked := range s.asked {
		if asked == what {
			n++
		}
	}
	return n
}

func repairResult(w http.ResponseWriter, id, result string) {
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, id, result)
}

func repairError(w http.ResponseWriter, status int, id string, code int, message string) {
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":%q}}`, id, code, message)
}

// repairSessions answers as a server of the handshake era whose sessions are numbered from 1, and of which it knows the last.
type repairSessions struct {
	mu      sync.Mutex
	session int
	known   bool
	status  int    // for a session that it does not know
	refuses bool   // to begin another
	says    string // the revision that it speaks

	subscribed chan struct{} // told of each subscription
}

func (s *repairSessions) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known = false
}

// unready counts the requests that came in a session before the client said that it was ready.
func (s *repairServer) unready() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ready := make(map[string]bool)
	for _, asked := range s.asked {
		method, session, _ := strings.Cut(asked, " ")
		switch {
		case method == "notifications/initialized":
			ready[session] = true
		case session != "" && !ready[session]:
			n++
		}
	}
	return n
}

func (s *repairSessions) answer(w http.ResponseWriter, r *http.Request, method, id string, _ json.RawMessage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case method == "initialize" && s.refuses && s.session > 0:
		repairError(w, 503, id, -32000, "no more sessions")
	case method == "initialize":
		s.session++
		s.known = true
		w.Header().Set("Mcp-Session-Id", fmt.Sprint("s", s.session))
		repairResult(w, id, `{"protocolVersion":"`+s.says+`","capabilities":{"tools":{},"logging":{},"resources":{"subscribe":true}},"serverInfo":{"name":"r","version":"1"}}`)
	case method == "server/discover":
		repairError(w, 400, "null", -32000, "Bad Request: Server not initialized")
	case !s.known || r.Header.Get("Mcp-Session-Id") != fmt.Sprint("s", s.session):
		repairError(w, s.status, "null", -32000, "no such session")
	case method == "tools/call":
		repairResult(w, id, `{"content":[{"type":"text","text":"done"}]}`)
	case method == "resources/subscribe":
		s.subscribed <- struct{}{}
		repairResult(w, id, `{}`)
	default:
		repairResult(w, id, `{}`)
	}
}

// A session that has expired is begun anew, once for all calls that find it so, and each of them is made again.
func TestSessionRenewed(t *testing.T) {
	for _, status := range []int{404, 400} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			sessions := &repairSessions{status: status, says: "2025-11-25", subscribed: make(chan struct{}, 2)}
			server := &repairServer{answer: sessions.answer}
			client := startRepair(t, server, ClientOptions{Log: func(LogMessage) {}})
			listening, stop := context.WithCancel(t.Context())
			var work sync.WaitGroup
			work.Go(func() { _ = client.Listen(listening, Subscription{URIs: []string{"a:b"}}, func(Change) {}) })
			<-sessions.subscribed // Listen does not say when it has begun
			_, err := client.CallTool(t.Context(), "tool", nil, nil)
			assert.NilError(t, err)
			sessions.forget()
			var calls sync.WaitGroup
			for range 20 {
				calls.Go(func() {
					result, err := client.CallTool(t.Context(), "tool", nil, nil)
					assert.Check(t, err)
					assert.Check(t, result != nil && result.Content[0].Text == "done")
				})
			}
			calls.Wait()
			assert.Check(t, is.Equal(server.count("initialize"), 2))
			assert.Check(t, is.Equal(server.unready(), 0))
			for _, method := range []string{"notifications/initialized", "logging/setLevel", "resources/subscribe"} {
				assert.Check(t, is.Equal(server.count(method+" s2"), 1), method)
			}
			assert.Check(t, is.Equal(server.count("tools/call s2"), 20))
			stop()
			work.Wait()
		})
	}
}

// Where no new session is to be had, the call says so; it is not made again for ever.
func TestSessionNotRenewed(t *testing.T) {
	sessions := &repairSessions{status: 404, says: "2025-11-25", refuses: true}
	server := &repairServer{answer: sessions.answer}
	client := startRepair(t, server, ClientOptions{})
	sessions.forget()
	_, err := client.CallTool(t.Context(), "tool", nil, nil)
	assert.Error(t, err, "tools/call tool: the session has expired, and there is no new one: initialize: no more sessions (error -32000)")
	assert.Equal(t, server.count("tools/call s1"), 1)

	sessions.mu.Lock()
	sessions.refuses, sessions.says = false, "2025-06-18"
	sessions.mu.Unlock()
	_, err = client.CallTool(t.Context(), "tool", nil, nil)
	assert.ErrorContains(t, err, "the server has changed from revision 2025-11-25 to 2025-06-18")

	sessions.mu.Lock()
	sessions.says = "2025-11-25"
	sessions.mu.Unlock()
	sessions.forget()
	_, err = client.CallTool(t.Context(), "tool", nil, nil)
	assert.NilError(t, err)
}

// In the stateless era a lost request is made again if that does no harm: if it only reads, or was marked so.
func TestLostCallsRepeated(t *testing.T) {
	left := make(map[string]int) // how often a method is lost
	var mu sync.Mutex
	proxy := false
	server := &repairServer{answer: func(w http.ResponseWriter, r *http.Request, method, id string, _ json.RawMessage) {
		mu.Lock()
		lose := left[method] > 0
		left[method]--
		proxy := proxy
		mu.Unlock()
		switch {
		case lose && proxy:
			w.Header().Set("Content-Type", "text/html")
			w.WriteHeader(http.StatusBadGateway)
			fmt.Fprint(w, "<html><head><title>502 Bad Gateway</title></head></html>")
		case lose:
			panic(http.ErrAbortHandler) // the connection ends
		case method == "server/discover":
			repairResult(w, id, `{"supportedVersions":["2026-07-28"],"capabilities":{}}`)
		case method == "tools/call":
			repairResult(w, id, `{"content":[]}`)
		default:
			repairResult(w, id, `{"tools":[],"contents":[]}`)
		}
	}}
	lose := func(method string, times int) {
		mu.Lock()
		defer mu.Unlock()
		left[method] = times
	}
	lose("server/discover", 1)
	client := startRepair(t, server, ClientOptions{})
	assert.Equal(t, client.Server.ProtocolVersion, "2026-07-28")
	for _, proxied := range []bool{false, true} {
		mu.Lock()
		proxy = proxied
		mu.Unlock()
		lose("tools/list", 1)
		_, err := client.ListTools(t.Context())
		assert.NilError(t, err)
		lose("tools/list", 2)
		_, err = client.ListTools(t.Context())
		var lost *HTTPError
		assert.Assert(t, errors.As(err, &lost) && lost.Lost(), err)
		lose("tools/call", 1)
		before := server.count("tools/call")
		_, err = client.CallTool(t.Context(), "tool", nil, nil)
		assert.Assert(t, errors.As(err, &lost) && lost.Lost(), err)
		assert.Equal(t, server.count("tools/call"), before+1)
		lose("tools/call", 1)
		_, err = client.CallTool(Repeatable(t.Context()), "tool", nil, nil)
		assert.NilError(t, err)
		assert.Equal(t, server.count("tools/call"), before+3)
	}
}

// A server that misses a header has changed its tool: its tools are listed again, and the call is made once more.
func TestHeaderMismatch(t *testing.T) {
	var mu sync.Mutex
	lists, fails := 0, false
	server := &repairServer{answer: func(w http.ResponseWriter, r *http.Request, method, id string, _ json.RawMessage) {
		mu.Lock()
		defer mu.Unlock()
		switch method {
		case "server/discover":
			repairResult(w, id, `{"supportedVersions":["2026-07-28"],"capabilities":{}}`)
		case "tools/list":
			annotation := ""
			if lists++; lists > 1 {
				annotation = `,"x-mcp-header":"Region"`
			}
			repairResult(w, id, `{"ttlMs":60000,"tools":[{"name":"tool","inputSchema":{"type":"object","properties":{"region":{"type":"string"`+annotation+`}}}}]}`)
		case "tools/call":
			if r.Header.Get("Mcp-Param-Region") != "eu" || fails {
				repairError(w, 400, id, CodeHeaderMismatch, "Mcp-Param-Region is missing")
				return
			}
			repairResult(w, id, `{"content":[]}`)
		}
	}}
	client := startRepair(t, server, ClientOptions{})
	_, err := client.ListTools(t.Context())
	assert.NilError(t, err)
	_, err = client.CallTool(t.Context(), "tool", json.RawMessage(`{"region":"eu"}`), nil)
	assert.NilError(t, err)
	assert.Equal(t, server.count("tools/list"), 2)
	assert.Equal(t, server.count("tools/call"), 2)
	mu.Lock()
	fails = true
	mu.Unlock()
	_, err = client.CallTool(t.Context(), "tool", json.RawMessage(`{"region":"eu"}`), nil)
	assert.ErrorContains(t, err, "Mcp-Param-Region is missing")
	assert.Equal(t, server.count("tools/call"), 4)
}

// A server of the stateless era alone that takes long to start is not taken for an old one: it says what it is when it refuses the
// handshake.
func TestSlowProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := memoryPair()
		var mu sync.Mutex
		var asked []string
		server := NewConn(theirs, Handler{Request: func(ctx context.Context, _ *Conn, method string, _ json.RawMessage) (any, error) {
			mu.Lock()
			asked = append(asked, method)
			first := len(asked) == 1
			mu.Unlock()
			switch {
			case method == "initialize":
				return nil, &Error{Code: CodeUnsupportedVersion, Message: "no handshakes", Data: json.RawMessage(`{"supported":["2026-07-28"]}`)}
			case first:
				<-ctx.Done() // the client gives up
				return nil, ctx.Err()
			}
			return json.RawMessage(`{"supportedVersions":["2026-07-28"],"capabilities":{}}`), nil
		}})
		defer server.Close()
		client, err := Connect(t.Context(), ours, nil)
		assert.NilError(t, err)
		defer client.Close()
		assert.Equal(t, client.Server.ProtocolVersion, "2026-07-28")
		mu.Lock()
		defer mu.Unlock()
		assert.DeepEqual(t, asked, []string{"server/discover", "initialize", "server/discover"})
	})
}

// A server that never says that it took a notification does not hold a call for ever.
func TestUnacceptedNotification(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client := htInMemory(func(w http.ResponseWriter, r *http.Request, m htMessage) {
			<-r.Context().Done()
		})
		h := &HTTP{URL: "http://memory/", Client: client}
		err := h.Write(t.Context(), []byte(`{"jsonrpc":"2.0","method":"notifications/initialized"}`))
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.NilError(t, h.Close())
	})
}

// A forced revision is the one that is offered over HTTP+SSE, too.
func TestForcedOverSSE(t *testing.T) {
	s := Server{URL: "http://127.0.0.1:1/sse", SSE: true}
	_, err := s.Connect(t.Context(), ClientOptions{Protocol: statelessRevision})
	assert.Error(t, err, "HTTP+SSE does not carry revision 2026-07-28")
}
