package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

// The benchmarks measure against a raw pipe in the same run: a program that writes prepared lines to the
// same child and reads lines back, and knows no JSON. Their ratio, x-raw, is what can be quoted; times depend
// on the machine, and, unless client and server share one core, on where the two processes are put.
//
//	taskset -c 1 go test -run '^$' -bench . -count 5

// benchResults are what the child answers, by its mode.
func benchResults() map[string]string {
	small := `{"content":[{"type":"text","text":"` + strings.Repeat("x", 100) + `"}]}`
	line := `\tA line of a source file, with \"quotes\" and a newline at its end, as files have it.\n`
	large := `{"content":[{"type":"text","text":"` + strings.Repeat(line, 1<<20/len(line)) + `"}]}`
	schema := fmt.Sprintf(`{"type":"object","properties":{"query":{"type":"string","description":"%s"},`+
		`"limit":{"type":"integer","minimum":1,"maximum":500,"default":10}},"required":["query"]}`,
		strings.Repeat("What to look for. ", 14))
	var tools []string
	for i := range 1000 {
		tools = append(tools, fmt.Sprintf(`{"name":"tool_%d","description":"Does the thing number %[1]d and says so.",`+
			`"inputSchema":%s}`, i, schema))
	}
	return map[string]string{
		"bench-small": small,
		"bench-large": large,
		"bench-tools": `{"tools":[` + strings.Join(tools, ",") + `]}`,
	}
}

// benchChild answers every line that has an id with the same result. It must not be the bottleneck: it looks
// for the id and nothing else, and writes once for all the lines of a read.
func benchChild(result string) int {
	in := bufio.NewReaderSize(os.Stdin, 64<<10)
	out := bufio.NewWriterSize(os.Stdout, max(64<<10, 2*len(result)))
	initialize := initializeResult("2025-11-25")
	for {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return 0
		}
		if i := bytes.Index(line, []byte(`"id":`)); i >= 0 {
			digits := line[i+5:]
			digits = digits[:bytes.IndexByte(digits, ',')]
			out.WriteString(`{"jsonrpc":"2.0","id":`)
			out.Write(digits)
			out.WriteString(`,"result":`)
			if initialize != "" {
				out.WriteString(initialize)
				initialize = ""
			} else {
				out.WriteString(result)
			}
			out.WriteString("}\n")
		}
		if in.Buffered() == 0 {
			if out.Flush() != nil {
				return 1
			}
		}
	}
}

// rawChild is the child without a client.
type rawChild struct {
	process *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Reader
}

func startRaw(b *testing.B, mode string) *rawChild {
	c := &rawChild{process: exec.Command(os.Args[0])}
	c.process.Env = []string{"MCPAGENT_CHILD=" + mode}
	var err error
	c.in, err = c.process.StdinPipe()
	assert.NilError(b, err)
	out, err := c.process.StdoutPipe()
	assert.NilError(b, err)
	c.out = bufio.NewReaderSize(out, 64<<10)
	assert.NilError(b, c.process.Start())
	c.exchange(b, []byte(`{"jsonrpc":"2.0","id":1,"method":"initialize"}`+"\n"), 1)
	return c
}

func (c *rawChild) stop() {
	c.in.Close()
	c.process.Wait()
}

// exchange writes lines and reads n lines back.
func (c *rawChild) exchange(b *testing.B, lines []byte, n int) {
	if _, err := c.in.Write(lines); err != nil {
		b.Fatal(err)
	}
	for n > 0 {
		_, err := c.out.ReadSlice('\n')
		if err == nil {
			n--
		} else if !errors.Is(err, bufio.ErrBufferFull) {
			b.Fatal(err)
		}
	}
}

// rawNs is what one operation costs on the raw pipe, where `calls` requests go out together.
func rawNs(b *testing.B, mode, method string, calls int) float64 {
	b.Helper()
	c := startRaw(b, mode)
	defer c.stop()
	var lines []byte
	for i := range calls {
		lines = append(lines, `{"jsonrpc":"2.0","id":`...)
		lines = strconv.AppendInt(lines, int64(i+1), 10)
		lines = append(lines, `,"method":"`+method+`","params":{"name":"tool",`...)
		lines = append(lines, `"arguments":{"query":"nominalism and realism"}}}`+"\n"...)
	}
	rounds := 0
	begin := time.Now()
	for elapsed := time.Duration(0); elapsed < 300*time.Millisecond; elapsed = time.Since(begin) {
		for range 20 {
			c.exchange(b, lines, calls)
			rounds++
		}
	}
	return float64(time.Since(begin)) / float64(rounds*calls)
}

func benchClient(b *testing.B, mode string) *Client {
	b.Helper()
	child := Command{Path: os.Args[0], Env: []string{"MCPAGENT_CHILD=" + mode}}
	c, err := Connect(context.Background(), child.Start, &ClientOptions{Protocol: "2025-11-25"})
	assert.NilError(b, err)
	return c
}

// compare runs work b.N times between two measurements of the raw pipe.
func compare(b *testing.B, mode, method string, inFlight int, work func(c *Client)) {
	before := rawNs(b, mode, method, inFlight)
	c := benchClient(b, mode)
	defer c.Close()
	work(c) // not the first call's warming up
	b.ReportAllocs()
	b.ResetTimer()
	spread(b.N, inFlight, func(int) { work(c) })
	b.StopTimer()
	ns := float64(b.Elapsed()) / float64(b.N)
	after := rawNs(b, mode, method, inFlight)
	b.ReportMetric(2*ns/(before+after), "x-raw")
}

func benchCall(b testing.TB) func(*Client) {
	arguments := json.RawMessage(`{"query":"nominalism and realism"}`)
	return func(c *Client) {
		r, err := c.CallTool(context.Background(), "tool", arguments, nil)
		if err != nil || len(r.Content) != 1 || len(r.Content[0].Text) < 100 {
			b.Errorf("%v, %v", r, err)
		}
	}
}

func BenchmarkCall(b *testing.B)     { compare(b, "bench-small", "tools/call", 1, benchCall(b)) }
func BenchmarkInFlight(b *testing.B) { compare(b, "bench-small", "tools/call", 64, benchCall(b)) }
func BenchmarkLarge(b *testing.B)    { compare(b, "bench-large", "tools/call", 1, benchCall(b)) }

func BenchmarkListTools(b *testing.B) {
	compare(b, "bench-tools", "tools/list", 1, func(c *Client) {
		tools, err := c.ListTools(context.Background())
		if err != nil || len(tools) != 1000 {
			b.Errorf("%d tools, %v", len(tools), err)
		}
	})
}

// BenchmarkStart is from nothing to the first result, and back to nothing.
func BenchmarkStart(b *testing.B) {
	begin := time.Now()
	const rounds = 30
	for range rounds {
		startRaw(b, "bench-small").stop()
	}
	raw := float64(time.Since(begin)) / rounds
	call := benchCall(b)
	for b.Loop() {
		c := benchClient(b, "bench-small")
		call(c)
		c.Close()
	}
	b.ReportMetric(float64(b.Elapsed())/float64(b.N)/raw, "x-raw")
}

// --- HTTP

// The same for HTTP, against a bare net/http loop in the same run: it posts prepared bytes, with the same headers, to
// the same child, and reads the answers to their end. x-raw is the ratio; connections are those that the Client
// opened.

// benchHTTPResults are what the child answers to calls, by the path of its URL.
func benchHTTPResults() map[string]string {
	results := benchResults()
	line := `A line of a text, as books have it, with few quotes and a newline at its end.\n`
	prose := `{"content":[{"type":"text","text":"` + strings.Repeat(line, 1<<20/len(line)) + `"}]}`
	return map[string]string{
		"/json":  results["bench-small"],
		"/sse":   results["bench-small"],
		"/prose": prose,
		"/code":  results["bench-large"],
	}
}

// benchHTTPChild is a server for both eras, of JSON at /json and of events elsewhere. It prints its address, and ends
// with its stdin. As benchChild, it looks for the id and little else.
func benchHTTPChild() int {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	fmt.Println(listener.Addr())
	results := benchHTTPResults()
	var connections atomic.Int64
	answer := func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, request, asked := bytes.Cut(body, []byte(`"id":`))
		id, request, _ := bytes.Cut(request, []byte(","))
		result := results[r.URL.Path]
		switch {
		case r.URL.Path == "/connections":
			fmt.Fprint(w, connections.Load())
			return
		case r.Method == http.MethodGet:
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		case !asked:
			w.WriteHeader(http.StatusAccepted)
			return
		case bytes.HasPrefix(request, []byte(`"method":"initialize"`)):
			w.Header().Set("Mcp-Session-Id", "bench")
			result = initializeResult("2025-11-25")
		case bytes.HasPrefix(request, []byte(`"method":"server/discover"`)):
			result = discovery(`{"tools":{}}`)
		}
		before, result, after := `{"jsonrpc":"2.0","id":`+string(id)+`,"result":`, result[:len(result)-1], "}}"
		if r.Header.Get("Mcp-Method") != "" { // of the stateless era, whose servers add this last
			after = `,"resultType":"complete"}}`
		}
		if r.URL.Path == "/json" {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Length", strconv.Itoa(len(before)+len(result)+len(after)))
		} else {
			w.Header().Set("Content-Type", "text/event-stream")
			before, after = "event: message\ndata: "+before, after+"\n\n"
			defer w.(http.Flusher).Flush() // as servers do after an event; the end of the stream comes by itself
		}
		_, _ = io.WriteString(w, before)
		_, _ = io.WriteString(w, result)
		_, _ = io.WriteString(w, after)
	}
	server := &http.Server{
		Handler: http.HandlerFunc(answer),
		ConnState: func(_ net.Conn, state http.ConnState) {
			if state == http.StateNew {
				connections.Add(1)
			}
		},
	}
	go func() { _ = server.Serve(listener) }()
	_, _ = io.Copy(io.Discard, os.Stdin)
	server.Close()
	return 0
}

// startBenchHTTP starts the child, and returns its URL. It ends with the test.
func startBenchHTTP(t testing.TB) string {
	t.Helper()
	child := exec.Command(os.Args[0])
	child.Env = []string{"MCPAGENT_CHILD=bench-http"}
	in, err := child.StdinPipe()
	assert.NilError(t, err)
	out, err := child.StdoutPipe()
	assert.NilError(t, err)
	assert.NilError(t, child.Start())
	t.Cleanup(func() {
		in.Close()
		assert.Check(t, child.Wait())
	})
	address, err := bufio.NewReader(out).ReadString('\n')
	assert.NilError(t, err)
	return "http://" + strings.TrimSpace(address)
}

// benchHTTPClient is a Client as the program has it.
func benchHTTPClient(t testing.TB, url, protocol string) *Client {
	t.Helper()
	c, err := Connect(context.Background(), (&HTTP{URL: url}).Start, &ClientOptions{Protocol: protocol})
	assert.NilError(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

// bareHTTP is the loop without a client.
type bareHTTP struct {
	url     string
	client  *http.Client
	dialled atomic.Int64
	header  http.Header
	body    []byte
	answers [64]bytes.Buffer // of each worker
}

func startBareHTTP(t testing.TB, url, protocol string) *bareHTTP {
	l := &bareHTTP{url: url, header: http.Header{
		"Content-Type":         {"application/json"},
		"Accept":               {"application/json, text/event-stream"},
		"Mcp-Protocol-Version": {protocol},
	}}
	var meta string
	if protocol == statelessRevision {
		l.header.Set("Mcp-Method", "tools/call")
		l.header.Set("Mcp-Name", "tool")
		meta = "," + strings.TrimPrefix(strings.TrimSuffix(statelessMeta, "}"), `"_meta":{`)
	} else {
		l.header.Set("Mcp-Session-Id", "bench")
	}
	l.body = []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"tool",` +
		`"arguments":{"query":"nominalism and realism"},"_meta":{"progressToken":1` + meta + `}}}`)
	dialer := new(net.Dialer)
	l.client = &http.Client{Transport: &http.Transport{
		MaxIdleConnsPerHost: 100,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			l.dialled.Add(1)
			return dialer.DialContext(ctx, network, address)
		},
	}}
	t.Cleanup(l.client.CloseIdleConnections)
	return l
}

func (l *bareHTTP) call(t testing.TB, worker int) {
	request, err := http.NewRequest(http.MethodPost, l.url, bytes.NewReader(l.body))
	if err != nil {
		t.Error(err)
		return
	}
	request.Header = l.header
	response, err := l.client.Do(request)
	if err != nil {
		t.Error(err)
		return
	}
	defer response.Body.Close()
	answer := &l.answers[worker]
	answer.Reset()
	if _, err = answer.ReadFrom(response.Body); err != nil || answer.Len() < 100 {
		t.Errorf("%d bytes, %v", answer.Len(), err)
	}
}

// connections is how many the child has seen but for those of the bare loop itself.
func (l *bareHTTP) connections(t testing.TB) int {
	base := l.url[:strings.LastIndexByte(l.url, '/')]
	response, err := l.client.Get(base + "/connections")
	assert.NilError(t, err)
	defer response.Body.Close()
	var all int
	_, err = fmt.Fscan(response.Body, &all)
	assert.NilError(t, err)
	return all - int(l.dialled.Load())
}

// spread makes calls, so many at a time.
func spread(calls, inFlight int, call func(worker int)) {
	var wg sync.WaitGroup
	var begun atomic.Int64
	for worker := range inFlight {
		wg.Go(func() {
			for begun.Add(1) <= int64(calls) {
				call(worker)
			}
		})
	}
	wg.Wait()
}

// compareHTTP makes b.N calls, and as many on the bare loop, by turns of some milliseconds: what else the machine
// does is the same to both.
func compareHTTP(b *testing.B, path, protocol string, inFlight int) {
	url := startBenchHTTP(b) + "/" + path
	l := startBareHTTP(b, url, protocol)
	c := benchHTTPClient(b, url, protocol)
	callTool := benchCall(b)
	bare := func(worker int) { l.call(b, worker) }
	client := func(int) { callTool(c) }
	spread(inFlight, inFlight, bare) // not the first calls' warming up
	spread(inFlight, inFlight, client)

	b.ReportAllocs()
	b.ResetTimer()
	b.StopTimer()
	var bareTime time.Duration
	var bareAllocs uint64
	var before, after runtime.MemStats
	turn := max(50, 20*inFlight)
	for left := b.N; left > 0; left -= turn {
		runtime.ReadMemStats(&before)
		begin := time.Now()
		spread(min(left, turn), inFlight, bare)
		bareTime += time.Since(begin)
		runtime.ReadMemStats(&after)
		bareAllocs += after.Mallocs - before.Mallocs
		b.StartTimer()
		spread(min(left, turn), inFlight, client)
		b.StopTimer()
	}
	b.ReportMetric(float64(b.Elapsed())/float64(bareTime), "x-raw")
	b.ReportMetric(float64(bareAllocs)/float64(b.N), "raw-allocs/op")
	b.ReportMetric(float64(l.connections(b)), "connections")
}

func BenchmarkHTTPCall(b *testing.B)     { compareHTTP(b, "json", statelessRevision, 1) }
func BenchmarkHTTPStream(b *testing.B)   { compareHTTP(b, "sse", statelessRevision, 1) }
func BenchmarkHTTPInFlight(b *testing.B) { compareHTTP(b, "json", statelessRevision, 64) }
func BenchmarkHTTPProse(b *testing.B)    { compareHTTP(b, "prose", statelessRevision, 1) }
func BenchmarkHTTPCode(b *testing.B)     { compareHTTP(b, "code", statelessRevision, 1) }
func BenchmarkHTTPSession(b *testing.B)  { compareHTTP(b, "json", "2025-11-25", 1) }

// TestHTTPConnections: a connection whose answer was read to its end is used again, whatever the answer was.
func TestHTTPConnections(t *testing.T) {
	for _, test := range []struct {
		path, protocol          string
		calls, inFlight, atMost int
	}{
		{"json", statelessRevision, 200, 1, 1},
		{"sse", statelessRevision, 200, 1, 1},
		{"json", "2025-11-25", 200, 1, 1},
		{"sse", "2025-11-25", 200, 1, 1},
		{"sse", statelessRevision, 2000, 64, 256}, // a call that finds none idle dials, but takes one that is idle sooner
	} {
		t.Run(fmt.Sprintf("%s of %s %d in flight", test.path, test.protocol, test.inFlight), func(t *testing.T) {
			checkLeaks(t)
			url := startBenchHTTP(t) + "/" + test.path
			l := startBareHTTP(t, url, test.protocol)
			c := benchHTTPClient(t, url, test.protocol)
			call := benchCall(t)
			spread(test.calls, test.inFlight, func(int) { call(c) })
			n := l.connections(t)
			t.Log(n, "connections")
			assert.Assert(t, n >= 1 && n <= test.atMost, "%d connections for %d calls", n, test.calls)
		})
	}
}
