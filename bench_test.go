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

// The benchmarks measure against a baseline in the same run. On stdio it is a raw pipe: a program that writes prepared
// lines to the same child and reads lines back, and knows no JSON. Over HTTP it is a bare loop of net/http. The ratio,
// x-raw, is what can be quoted: times depend on the machine, and on where the two processes are put, unless they share
// one core.
//
//	taskset -c 1 go test -run '^$' -bench . -count 5

// compare makes b.N calls of work, and as many of base, by turns: what else the machine does is the same to both. It
// reports the ratio of their times as unit. A turn takes long enough for the garbage of work to be collected in it.
func compare(b *testing.B, unit string, turn int, base, work func(calls int)) {
	base(min(turn, b.N)) // not the first calls' warming up
	work(min(turn, b.N))
	var baseTime time.Duration
	var baseAllocs uint64
	var before, after runtime.MemStats
	b.ReportAllocs()
	b.ResetTimer()
	b.StopTimer()
	for left := b.N; left > 0; left -= turn {
		calls := min(left, turn)
		runtime.ReadMemStats(&before)
		begin := time.Now()
		base(calls)
		baseTime += time.Since(begin)
		runtime.ReadMemStats(&after)
		baseAllocs += after.Mallocs - before.Mallocs
		b.StartTimer()
		work(calls)
		b.StopTimer()
	}
	b.ReportMetric(float64(b.Elapsed())/float64(baseTime), unit)
	b.ReportMetric(float64(baseAllocs)/float64(b.N), "raw-allocs/op")
}

// together returns a func that makes so many calls, of which inFlight are under way at once. Its goroutines are made
// here and end with the test, so that what is measured allocates nothing for them.
func together(t testing.TB, inFlight int, call func(worker int)) func(calls int) {
	if inFlight == 1 {
		return func(calls int) {
			for range calls {
				call(0)
			}
		}
	}
	var left atomic.Int64
	var turn, workers sync.WaitGroup
	begin := make(chan struct{})
	for worker := range inFlight {
		workers.Go(func() {
			for range begin {
				for left.Add(-1) >= 0 {
					call(worker)
				}
				turn.Done()
			}
		})
	}
	t.Cleanup(func() {
		close(begin)
		workers.Wait()
	})
	return func(calls int) {
		left.Store(int64(calls))
		turn.Add(inFlight)
		for range inFlight {
			begin <- struct{}{}
		}
		turn.Wait()
	}
}

// benchResult returns what a child answers. The name is a kind of text and its bytes, or tools and their number.
func benchResult(name string) string {
	kind, size, _ := strings.Cut(name, "-")
	n, _ := strconv.Atoi(size)
	if kind == "tools" {
		schema := fmt.Sprintf(`{"type":"object","properties":{"query":{"type":"string","description":"%s"},`+
			`"limit":{"type":"integer","minimum":1,"maximum":500,"default":10}},"required":["query"]}`,
			strings.Repeat("What to look for. ", 14))
		tools := make([]string, n)
		for i := range tools {
			tools[i] = fmt.Sprintf(`{"name":"tool_%d","description":"Does the thing number %[1]d and says so.",`+
				`"inputSchema":%s}`, i, schema)
		}
		return `{"tools":[` + strings.Join(tools, ",") + `]}`
	}
	line := map[string]string{
		"text":  "x",
		"prose": `A line of a text, as books have it, with few quotes and a newline at its end.\n`,
		"code":  `\tA line of a source file, with \"quotes\" and a newline at its end, as files have it.\n`,
	}[kind]
	return `{"content":[{"type":"text","text":"` + strings.Repeat(line, n/len(line)) + `"}]}`
}

// benchCall returns a call of a tool whose result has the name.
func benchCall(b testing.TB, c *Client, result string) func(worker int) {
	arguments := json.RawMessage(`{"query":"nominalism and realism"}`)
	_, size, _ := strings.Cut(result, "-")
	atLeast, _ := strconv.Atoi(size)
	atLeast -= atLeast / 10 // escapes are longer than what they stand for
	return func(int) {
		r, err := c.CallTool(context.Background(), "tool_0", arguments, nil)
		if err != nil || len(r.Content) != 1 || len(r.Content[0].Text) < atLeast {
			b.Errorf("%v, %v", r, err)
		}
	}
}

func benchList(b testing.TB, c *Client, result string) func(worker int) {
	return func(int) {
		tools, err := c.ListTools(context.Background())
		if err != nil || "tools-"+strconv.Itoa(len(tools)) != result {
			b.Errorf("%d tools, %v", len(tools), err)
		}
	}
}

// --- stdio

// benchChild answers tools/call with the named result, and tools/list with it if it has tools. It must not be the
// bottleneck: it looks for the id and the method and nothing else, and writes once for all the lines of a read.
func benchChild(name string) int {
	result, list := benchResult(name), benchResult("tools-1")
	if strings.HasPrefix(name, "tools-") {
		list = result
	}
	in := bufio.NewReaderSize(os.Stdin, 64<<10)
	out := bufio.NewWriterSize(os.Stdout, 64<<10)
	for {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return 0
		}
		if _, request, asked := bytes.Cut(line, []byte(`"id":`)); asked {
			id, request, _ := bytes.Cut(request, []byte(","))
			out.WriteString(`{"jsonrpc":"2.0","id":`)
			out.Write(id)
			method, _, _ := bytes.Cut(bytes.TrimPrefix(request, []byte(`"method":"`)), []byte(`"`))
			switch string(method) {
			case "tools/call":
				out.WriteString(`,"result":`)
				out.WriteString(result)
			case "tools/list":
				out.WriteString(`,"result":`)
				out.WriteString(list)
			case "initialize":
				out.WriteString(`,"result":`)
				out.WriteString(initializeResult("2025-11-25"))
			default:
				out.WriteString(`,"error":{"code":-32601,"message":"method not found"}`)
			}
			out.WriteString("}\n")
		}
		if in.Buffered() == 0 && out.Flush() != nil {
			return 1
		}
	}
}

// benchCommand is the child that has the named result.
func benchCommand(result string) Command {
	return Command{Path: os.Args[0], Env: []string{"MCPAGENT_CHILD=bench-" + result}}
}

// benchClient connects to the child. The caller closes the client.
func benchClient(b testing.TB, result string) *Client {
	b.Helper()
	c, err := Connect(context.Background(), benchCommand(result).Start, &ClientOptions{Protocol: "2025-11-25"})
	assert.NilError(b, err)
	return c
}

// rawChild is the child without a client.
type rawChild struct {
	testing.TB
	process *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Reader
	line    []byte // a request
}

func startRaw(b testing.TB, result, method string) *rawChild {
	command := benchCommand(result)
	c := &rawChild{TB: b, process: exec.Command(command.Path)}
	c.process.Env = command.Env
	var err error
	c.in, err = c.process.StdinPipe()
	assert.NilError(b, err)
	out, err := c.process.StdoutPipe()
	assert.NilError(b, err)
	c.out = bufio.NewReaderSize(out, 64<<10)
	assert.NilError(b, c.process.Start())
	c.exchange([]byte(`{"jsonrpc":"2.0","id":1,"method":"initialize"}`+"\n"), 1)
	c.line = []byte(`{"jsonrpc":"2.0","id":12345,"method":"` + method + `","params":{"name":"tool_0",` +
		`"arguments":{"query":"nominalism and realism"}}}` + "\n")
	return c
}

func (c *rawChild) stop() {
	c.in.Close()
	_ = c.process.Wait()
}

// exchange writes lines and reads n lines back.
func (c *rawChild) exchange(lines []byte, n int) {
	write := func() {
		if _, err := c.in.Write(lines); err != nil {
			c.Error(err)
		}
	}
	if len(lines) <= 32<<10 {
		write()
	} else {
		go write() // a pipe does not hold so much, and the child must not wait for us; it ends before the last answer
	}
	for n > 0 {
		_, err := c.out.ReadSlice('\n')
		if err == nil {
			n--
		} else if !errors.Is(err, bufio.ErrBufferFull) {
			c.Fatal(err)
		}
	}
}

// together returns a func that makes so many calls, inFlight at once.
func (c *rawChild) together(inFlight int) func(calls int) {
	lines := bytes.Repeat(c.line, inFlight)
	return func(calls int) {
		for ; calls > 0; calls -= inFlight {
			n := min(calls, inFlight)
			c.exchange(lines[:n*len(c.line)], n)
		}
	}
}

func BenchmarkStdio(b *testing.B) {
	for _, w := range []struct {
		name, result   string
		inFlight, turn int
	}{
		{"call", "text-100", 1, 1000},
		{"64 in flight", "text-100", 64, 6400},
		{"1,000 in flight", "text-100", 1000, 10_000},
		{"10,000 in flight", "text-100", 10_000, 20_000},
		{"1 MiB", "prose-1048576", 1, 20},
		{"1 MiB of code", "code-1048576", 1, 20},
		{"10 MiB", "prose-10485760", 1, 2},
		{"1,000 tools", "tools-1000", 1, 20},
		{"10,000 tools", "tools-10000", 1, 4},
	} {
		b.Run(w.name, func(b *testing.B) {
			method, work := "tools/call", benchCall
			if strings.HasPrefix(w.result, "tools-") {
				method, work = "tools/list", benchList
			}
			raw := startRaw(b, w.result, method)
			defer raw.stop()
			c := benchClient(b, w.result)
			defer c.Close()
			compare(b, "x-raw", w.turn, raw.together(w.inFlight), together(b, w.inFlight, work(b, c, w.result)))
		})
	}
}

// BenchmarkStart is from nothing to the first result, and back to nothing.
func BenchmarkStart(b *testing.B) {
	raw := func(int) {
		c := startRaw(b, "text-100", "tools/call")
		c.exchange(c.line, 1)
		c.stop()
	}
	client := func(int) {
		c := benchClient(b, "text-100")
		benchCall(b, c, "text-100")(0)
		c.Close()
	}
	compare(b, "x-raw", 5, together(b, 1, raw), together(b, 1, client))
}

// --- HTTP

// benchHTTPChild is a server for both eras. A URL's path is the form of the answer, json or sse, and a result's name.
// It prints its address, and ends with its stdin. As benchChild, it looks for the id and little else.
func benchHTTPChild() int {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	fmt.Println(listener.Addr())
	results := make(map[string]string)
	for _, name := range []string{"text-100", "prose-1048576", "code-1048576"} {
		results["/json/"+name], results["/sse/"+name] = benchResult(name), benchResult(name)
	}
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
		if strings.HasPrefix(r.URL.Path, "/json/") {
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
	server  string // the URL without its path
	client  *http.Client
	dialled atomic.Int64
	header  http.Header
	body    []byte
	answers [64]bytes.Buffer // of each worker
}

func startBareHTTP(t testing.TB, server, path, protocol string) *bareHTTP {
	l := &bareHTTP{server: server, url: server + path, header: http.Header{
		"Content-Type":         {"application/json"},
		"Accept":               {"application/json, text/event-stream"},
		"Mcp-Protocol-Version": {protocol},
	}}
	var meta string
	if protocol == statelessRevision {
		l.header.Set("Mcp-Method", "tools/call")
		l.header.Set("Mcp-Name", "tool_0")
		meta = "," + strings.TrimPrefix(strings.TrimSuffix(statelessMeta, "}"), `"_meta":{`)
	} else {
		l.header.Set("Mcp-Session-Id", "bench")
	}
	l.body = []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"tool_0",` +
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
	response, err := l.client.Get(l.server + "/connections")
	assert.NilError(t, err)
	defer response.Body.Close()
	var all int
	_, err = fmt.Fscan(response.Body, &all)
	assert.NilError(t, err)
	return all - int(l.dialled.Load())
}

func BenchmarkHTTP(b *testing.B) {
	for _, w := range []struct {
		path, protocol string
		inFlight, turn int
	}{
		{"/json/text-100", statelessRevision, 1, 200},
		{"/json/text-100", statelessRevision, 64, 1280},
		{"/json/text-100", "2025-11-25", 1, 200},
		{"/json/text-100", "2025-11-25", 64, 1280},
		{"/sse/text-100", statelessRevision, 1, 200},
		{"/sse/text-100", statelessRevision, 64, 1280},
		{"/sse/text-100", "2025-11-25", 1, 200},
		{"/sse/text-100", "2025-11-25", 64, 1280},
		{"/json/prose-1048576", statelessRevision, 1, 20},
		{"/sse/prose-1048576", statelessRevision, 1, 20},
		{"/sse/code-1048576", statelessRevision, 1, 20},
	} {
		b.Run(fmt.Sprintf("%s%s/%d in flight", w.protocol, w.path, w.inFlight), func(b *testing.B) {
			server := startBenchHTTP(b)
			l := startBareHTTP(b, server, w.path, w.protocol)
			c := benchHTTPClient(b, server+w.path, w.protocol)
			bare := together(b, w.inFlight, func(worker int) { l.call(b, worker) })
			client := together(b, w.inFlight, benchCall(b, c, w.path[strings.LastIndexByte(w.path, '/')+1:]))
			compare(b, "x-raw", w.turn, bare, client)
			b.ReportMetric(float64(l.connections(b)), "connections")
		})
	}
}

// TestHTTPConnections: a connection whose answer was read to its end is used again, whatever the answer was. A call
// that begins before the end of the last stream was read takes another one.
func TestHTTPConnections(t *testing.T) {
	for _, test := range []struct {
		path, protocol          string
		calls, inFlight, atMost int
	}{
		{"/json", statelessRevision, 200, 1, 1},
		{"/sse", statelessRevision, 200, 1, 8},
		{"/json", "2025-11-25", 200, 1, 1},
		{"/sse", "2025-11-25", 200, 1, 8},
		{"/sse", statelessRevision, 2000, 64, 256}, // a call that finds none idle dials, but takes one that is idle sooner
	} {
		t.Run(fmt.Sprintf("%s of %s %d in flight", test.path, test.protocol, test.inFlight), func(t *testing.T) {
			checkLeaks(t)
			server, path := startBenchHTTP(t), test.path+"/text-100"
			l := startBareHTTP(t, server, path, test.protocol)
			c := benchHTTPClient(t, server+path, test.protocol)
			together(t, test.inFlight, benchCall(t, c, "text-100"))(test.calls)
			n := l.connections(t)
			t.Log(n, "connections")
			assert.Assert(t, n >= 1 && n <= test.atMost, "%d connections for %d calls", n, test.calls)
		})
	}
}
