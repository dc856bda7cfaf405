package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
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
	var tools []string
	for i := range 1000 {
		tool := fmt.Sprintf(`{"name":"tool_%d","description":"Does the thing number %d and says so.","inputSchema":{"type":"object","properties":{"query":{"type":"string","description":"%s"},"limit":{"type":"integer","minimum":1,"maximum":500,"default":10}},"required":["query"]}}`,
			i, i, strings.Repeat("What to look for. ", 14))
		tools = append(tools, tool)
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
	initialize := `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"bench","version":"1"}}`
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
		lines = append(lines, `,"method":"`+method+`","params":{"name":"tool","arguments":{"query":"nominalism and realism"}}}`+"\n"...)
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
	s, err := StartStdio(Command{Path: os.Args[0], Env: []string{"MCPAGENT_CHILD=" + mode}})
	assert.NilError(b, err)
	c, err := Connect(context.Background(), s, &ClientOptions{Protocol: "2025-11-25"})
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
	var wg sync.WaitGroup
	var begun atomic.Int64
	for range inFlight {
		wg.Go(func() {
			for begun.Add(1) <= int64(b.N) {
				work(c)
			}
		})
	}
	wg.Wait()
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
