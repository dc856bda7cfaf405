//go:build unix

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

// These tests put a real nginx between client and server, as it is when nobody has tuned it: it buffers what servers answer,
// speaks HTTP/1.0 to them, and balances in turn.

// requireNginx finds a program of that name, or skips the test. Where the environment says PEERS=required, it fails the test instead.
func requireNginx(t testing.TB, name string) (path string) {
	t.Helper()
	for _, path := range []string{name, "/usr/sbin/" + name} { // where Debian has it, and not every user's PATH
		if path, err := exec.LookPath(path); err == nil {
			return path
		}
	}
	reason := name + " is not installed (Debian: apt-get install nginx-light)"
	if os.Getenv("PEERS") == "required" {
		t.Fatal(reason)
	}
	t.Skip(reason)
	return ""
}

func TestRequireNginx(t *testing.T) {
	for peers, want := range map[string]string{"": "skip: ", "required": "fatal: "} {
		t.Setenv("PEERS", peers)
		var v peerVerdict
		func() {
			defer func() { _ = recover() }()
			requireNginx(&v, "no-nginx")
		}()
		assert.Equal(t, v.verdict, want+"no-nginx is not installed (Debian: apt-get install nginx-light)")
	}
}

// nginxRun is an nginx of the test's own.
type nginxRun struct {
	t       *testing.T
	url     string // of the MCP endpoint behind it
	dir     string
	command *exec.Cmd
	end     io.Closer // its stdin
	stderr  bytes.Buffer
}

// startNginx starts an nginx in front of servers, "127.0.0.1:port" each. It is one process, so that it balances strictly in turn.
func startNginx(t *testing.T, servers ...string) *nginxRun {
	t.Helper()
	n := &nginxRun{t: t, dir: t.TempDir()}
	// The shell ends nginx at the end of its stdin: also where the tests break off and clean nothing up.
	n.command = exec.Command("sh", "-c", `"$@" & read -r _; kill $!; wait`, "sh", requireNginx(t, "nginx"), "-p", n.dir, "-c", "nginx.conf")
	free, err := net.Listen("tcp", "127.0.0.1:0")
	assert.NilError(t, err)
	address := free.Addr().String()
	free.Close()
	n.url = "http://" + address + "/mcp"
	configuration := `daemon off;
master_process off;
pid nginx.pid;
error_log stderr;
events {}
http {
	client_body_temp_path body;
	proxy_temp_path proxy;
	fastcgi_temp_path fastcgi;
	uwsgi_temp_path uwsgi;
	scgi_temp_path scgi;
	log_format calls '$http_x_call $status $upstream_addr';
	access_log calls.log calls;
	upstream servers {
		server ` + strings.Join(servers, ";\n\t\tserver ") + `;
	}
	server {
		listen ` + address + `;
		location /mcp {
			proxy_pass http://servers;
			proxy_buffering on;
			proxy_set_header Host localhost;
		}
	}
}
`
	assert.NilError(t, os.WriteFile(filepath.Join(n.dir, "nginx.conf"), []byte(configuration), 0o600))
	n.command.Stderr = &n.stderr
	n.end, err = n.command.StdinPipe()
	assert.NilError(t, err)
	assert.NilError(t, n.command.Start())
	t.Cleanup(n.stop)
	for late := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		if c, err := net.Dial("tcp", address); err == nil {
			c.Close()
			return n
		}
		if time.Now().After(late) {
			n.stop()
			t.Fatalf("nginx does not listen: %s", &n.stderr)
		}
	}
}

// stop ends nginx. Its log is whole then.
func (n *nginxRun) stop() {
	_ = n.end.Close()
	if n.command.ProcessState == nil {
		_ = n.command.Wait()
	}
}

// connect connects through nginx.
func (n *nginxRun) connect(revision string) *Client {
	n.t.Helper()
	pool := &http.Transport{MaxIdleConnsPerHost: 100}
	n.t.Cleanup(pool.CloseIdleConnections)
	c, err := Connect(n.t.Context(), &HTTP{URL: n.url, Client: &http.Client{Transport: nginxMarked{pool}}}, &ClientOptions{Protocol: revision, Timeout: 30 * time.Second})
	assert.NilError(n.t, err, "%s", &n.stderr)
	n.t.Cleanup(func() { c.Close() })
	assert.Equal(n.t, c.Server.ProtocolVersion, revision)
	return c
}

// nginxMarked gives a request the number of its call for a header, so that it can be found in nginx's log.
type nginxMarked struct{ http.RoundTripper }

type nginxCallKey struct{} // of the number in a ctx

func (m nginxMarked) RoundTrip(r *http.Request) (*http.Response, error) {
	if number, ok := r.Context().Value(nginxCallKey{}).(int); ok {
		r = r.Clone(r.Context())
		r.Header.Set("X-Call", strconv.Itoa(number))
	}
	return m.RoundTripper.RoundTrip(r)
}

func nginxRevisions() []string { return []string{"2026-07-28", "2025-11-25"} }

// nginxLibrary serves a library on a port of its own.
func nginxLibrary(t *testing.T, l *Library) (h *LibraryHTTP, address string) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	assert.NilError(t, err)
	h = NewLibraryHTTP(l)
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error)
	go func() { served <- h.Serve(ctx, listener) }()
	t.Cleanup(func() {
		cancel()
		assert.Check(t, is.ErrorIs(<-served, context.Canceled))
	})
	return h, listener.Addr().String()
}

// Progress comes through nginx while the call runs: the library cannot read its second file, and so not answer, before the
// client has seen the progress of the first.
func TestNginxPassesProgress(t *testing.T) {
	checkLeaks(t)
	requireNginx(t, "nginx")
	for _, revision := range nginxRevisions() {
		t.Run(revision, func(t *testing.T) {
			gate := lhttpGate()
			_, address := nginxLibrary(t, NewLibrary(gate))
			release := sync.OnceFunc(func() { close(gate.release) })
			t.Cleanup(release)
			var seen []string
			result, err := startNginx(t, address).connect(revision).CallTool(t.Context(), "list_documents", nil, func(p Progress) {
				seen = append(seen, p.Message)
				release()
			})
			assert.NilError(t, err)
			assert.Assert(t, !result.IsError)
			assert.DeepEqual(t, seen, []string{"indexing 0.md", "indexing 1.txt"})
		})
	}
}

// nginxBackend is a server of the stateless era whose one call tells of progress, and waits until that was seen, but not for ever.
type nginxBackend struct {
	header string // of the stream
	wait   time.Duration
	seen   chan struct{}
	late   bool // it was not seen in time
}

func (b *nginxBackend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var m struct {
		ID     json.RawMessage
		Method string
		Params struct {
			Meta struct{ ProgressToken json.RawMessage } `json:"_meta"`
		}
	}
	if json.NewDecoder(r.Body).Decode(&m) != nil || m.Method != "tools/call" {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}}`, m.ID)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", b.header)
	fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":%s,\"progress\":1}}\n\n", m.Params.Meta.ProgressToken)
	_ = http.NewResponseController(w).Flush()
	select {
	case <-b.seen:
	case <-r.Context().Done():
	case <-time.After(b.wait):
		b.late = true
	}
	fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{\"resultType\":\"complete\",\"content\":[]}}\n\n", m.ID)
}

// What the test above sees is the server's doing: without X-Accel-Buffering, this nginx keeps events back.
func TestNginxBuffers(t *testing.T) {
	checkLeaks(t)
	requireNginx(t, "nginx")
	for _, test := range []struct {
		header string
		wait   time.Duration
		late   bool
	}{{"no", 30 * time.Second, false}, {"", 200 * time.Millisecond, true}} {
		backend := &nginxBackend{header: test.header, wait: test.wait, seen: make(chan struct{})}
		server := httptest.NewServer(backend)
		defer server.Close()
		_, err := startNginx(t, server.Listener.Addr().String()).connect("2026-07-28").
			CallTool(t.Context(), "wait", nil, func(Progress) { close(backend.seen) })
		assert.NilError(t, err)
		assert.Equal(t, backend.late, test.late, "X-Accel-Buffering: %s", test.header)
	}
}

// A cancelled call ends at the server, too: nginx passes on that the client has gone, or what it says.
func TestNginxPassesCancellation(t *testing.T) {
	checkLeaks(t)
	requireNginx(t, "nginx")
	for _, revision := range nginxRevisions() {
		t.Run(revision, func(t *testing.T) {
			l := libSmall()
			h, address := nginxLibrary(t, l)
			c := startNginx(t, address).connect(revision)
			l.turn <- struct{}{} // the call cannot be answered
			ctx, cancel := context.WithCancelCause(t.Context())
			enough := errors.New("enough")
			called := make(chan error)
			go func() {
				_, err := c.CallTool(ctx, "list_documents", nil, nil)
				called <- err
			}()
			nginxAwait(t, func() bool { return len(h.slots) == 1 })
			cancel(enough)
			assert.ErrorIs(t, <-called, enough)
			nginxAwait(t, func() bool { return len(h.slots) == 0 })
			<-l.turn
			_, err := c.CallTool(t.Context(), "list_documents", nil, nil)
			assert.NilError(t, err)
		})
	}
}

// nginxAwait waits for what another goroutine or process does.
func nginxAwait(t *testing.T, done func() bool) {
	t.Helper()
	for late := time.Now().Add(30 * time.Second); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(late) {
			t.Fatal("waited for too long")
		}
	}
}

// nginxCall is one call of the load, and what became of it.
type nginxCall struct {
	repeatable, afterwards bool // afterwards: begun when the replica was dead
	err                    error
	replica                string // that had it last, as nginx says
	tries                  int
}

// Three replicas of serve -http behind nginx, and a client that calls and calls. One replica hangs, with calls in flight on it,
// and is then killed. Those calls are lost, but for the repeatable ones, which are made again; no other call notices.
func TestNginxReplicaKilled(t *testing.T) {
	checkLeaks(t)
	requireNginx(t, "nginx")
	dir := programFolder(t)
	var replicas []*programRun
	var addresses []string
	for range 3 {
		p, url := programHTTP(t, "127.0.0.1:0", dir)
		replicas = append(replicas, p)
		addresses = append(addresses, strings.TrimSuffix(strings.TrimPrefix(url, "http://"), "/mcp"))
	}
	n := startNginx(t, addresses...)
	c := n.connect("2026-07-28")

	const workers, before, each = 12, 40, 60
	calls := make([]nginxCall, workers*each)
	var begun atomic.Int64
	var work sync.WaitGroup
	dead := make(chan struct{})
	for worker := range workers {
		work.Go(func() {
			for i := range each {
				if i == before {
					<-dead
				}
				number := worker*each + i
				call := &calls[number]
				call.repeatable = number%2 == 0
				ctx := context.WithValue(t.Context(), nginxCallKey{}, number)
				if call.repeatable {
					ctx = Repeatable(ctx)
				}
				select {
				case <-dead:
					call.afterwards = true
				default:
				}
				begun.Add(1)
				var result *ToolResult
				if result, call.err = c.CallTool(ctx, "search_chunks", json.RawMessage(`{"query":"heron"}`), nil); call.err == nil && !bytes.Contains(result.StructuredContent, []byte("birds.txt")) {
					call.err = fmt.Errorf("another answer: %s", result.StructuredContent)
				}
			}
		})
	}
	nginxAwait(t, func() bool { return begun.Load() > workers*before/4 })
	assert.NilError(t, replicas[1].command.Process.Signal(syscall.SIGSTOP))
	// Of the calls from now on each third stays with it, until every worker waits for one, or for its death.
	last, quiet := begun.Load(), 0
	nginxAwait(t, func() bool {
		quiet++
		if now := begun.Load(); now != last {
			last, quiet = now, 0
		}
		return quiet == 100
	})
	assert.NilError(t, replicas[1].command.Process.Kill())
	assert.Equal(t, replicas[1].end(), -1)
	close(dead)
	work.Wait()
	assert.NilError(t, c.Close())

	var log [][]string
	nginxAwait(t, func() bool { // nginx is done with a request only after the client is
		text, err := os.ReadFile(filepath.Join(n.dir, "calls.log"))
		assert.NilError(t, err)
		log = regexp.MustCompile(`(?m)^(\d+) (\d+) (?:.*, )?(\S+)$`).FindAllStringSubmatch(string(text), -1)
		logged := make(map[string]bool)
		for _, line := range log {
			logged[line[1]] = true
		}
		return len(logged) == len(calls)
	})
	used := make(map[string]int)
	for _, line := range log {
		number, _ := strconv.Atoi(line[1])
		calls[number].replica = line[3]
		calls[number].tries++
		if line[2] == "200" {
			used[line[3]]++
		}
	}
	lost, again := 0, 0
	for number, call := range calls {
		switch {
		case call.tries == 2 && call.repeatable && call.err == nil:
			again++
		case call.tries > 1:
			t.Errorf("call %d was made %d times", number, call.tries)
		case call.err != nil && call.replica == addresses[1] && !call.afterwards && !call.repeatable:
			lost++
			var refusal *HTTPError
			assert.Check(t, errors.As(call.err, &refusal) && refusal.Lost(), "call %d: %v", number, call.err)
		case call.err != nil:
			t.Errorf("call %d on %s: %v", number, call.replica, call.err)
		}
	}
	t.Logf("answered by each: %v; of %d calls %d were lost, %d were made again", used, len(calls), lost, again)
	assert.Check(t, lost+again > 0, "no call was in flight on the replica")
	assert.Check(t, lost+again <= workers)
	for _, address := range addresses {
		assert.Check(t, used[address] > 0, "%s answered nothing", address)
	}
	for _, i := range []int{0, 2} {
		assert.Check(t, is.Contains(replicas[i].stderr.String(), "1 documents\n"))
		replicas[i].interrupted(syscall.SIGTERM)
	}
}
