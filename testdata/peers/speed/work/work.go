// Package work defines the works that clients are compared by, and runs one of them in a client's program.
package work

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Work is one unit of work that is done again and again: a call of a tool, or a list of all tools.
type Work struct {
	Name     string
	Tools    int  // if set, the tools are listed, and there are so many
	Text     int  // bytes of the text that each call returns
	InFlight int  // calls at once
	Turn     int  // calls between two looks at the clock
	Start    bool // the time is that from the start of the program to its first result
}

// All returns the works. The program of a client gets the index of one.
func All() []Work {
	return []Work{
		{Name: "call after call, 100 bytes", Text: 100, InFlight: 1, Turn: 500},
		{Name: "64 calls in flight", Text: 100, InFlight: 64, Turn: 3200},
		{Name: "10,000 calls in flight", Text: 100, InFlight: 10_000, Turn: 20_000},
		{Name: "one result of 1 MiB", Text: 1 << 20, InFlight: 1, Turn: 1},
		{Name: "one result of 10 MiB", Text: 10 << 20, InFlight: 1, Turn: 1},
		{Name: "`tools/list`, 1,000 tools", Tools: 1000, InFlight: 1, Turn: 1},
		{Name: "`tools/list`, 10,000 tools", Tools: 10_000, InFlight: 1, Turn: 1},
		{Name: "start to first result", Text: 100, InFlight: 1, Turn: 1, Start: true},
	}
}

// Tool is the name of the tool that returns the work's text.
func (w Work) Tool() string { return "text-" + strconv.Itoa(w.Text) }

// Arguments are those of every call.
const Arguments = `{"query":"nominalism and realism"}`

// ArgumentsMap returns them for the clients that encode a map.
func ArgumentsMap() (arguments map[string]any) {
	if err := json.Unmarshal([]byte(Arguments), &arguments); err != nil {
		log.Fatal(err)
	}
	return arguments
}

// Client is a connected client.
type Client interface {
	Call(ctx context.Context, tool string) (text string, err error)
	List(ctx context.Context) (tools int, err error)
	Close() error
}

// Task is what the program of a client is started for. The program's arguments are the path of the server, the index of
// the work, and how many milliseconds to work for.
type Task struct {
	Work
	Server []string // its command
	time   time.Duration
}

// NewTask returns the task of this program.
func NewTask() Task {
	log.SetFlags(0)
	log.SetPrefix(os.Args[0] + ": ")
	if len(os.Args) != 4 {
		log.Fatal("usage: SERVER WORK MILLISECONDS")
	}
	index, _ := strconv.Atoi(os.Args[2])
	milliseconds, err := strconv.Atoi(os.Args[3])
	if err != nil {
		log.Fatal(err)
	}
	w := All()[index]
	return Task{w, []string{os.Args[1], strconv.Itoa(w.Tools)}, time.Duration(milliseconds) * time.Millisecond}
}

// Main is the program of a client.
func Main(connect func(ctx context.Context, server []string) (Client, error)) {
	task := NewTask()
	ctx, cancel := context.WithCancel(context.Background()) // as programs have it that can be interrupted
	defer cancel()
	c, err := connect(ctx, task.Server)
	if err != nil {
		log.Fatal(err)
	}
	tool := task.Tool()
	task.Measure(together(task.InFlight, func() {
		if task.Tools > 0 {
			n, err := c.List(ctx)
			if err != nil || n != task.Tools {
				log.Fatalf("%d tools, %v", n, err)
			}
			return
		}
		text, err := c.Call(ctx, tool)
		if err != nil || len(text) != task.Text {
			log.Fatalf("%d bytes, %v", len(text), err)
		}
	}))
	if err := c.Close(); err != nil {
		log.Fatal(err)
	}
}

// together returns a func that makes so many calls, of which inFlight are under way at once. The goroutines are made
// here, and stay: what is measured allocates nothing for them.
func together(inFlight int, call func()) func(calls int) {
	if inFlight == 1 {
		return func(calls int) {
			for range calls {
				call()
			}
		}
	}
	var left atomic.Int64
	var turn sync.WaitGroup
	begin := make(chan struct{})
	for range inFlight {
		go func() {
			for range begin {
				for left.Add(-1) >= 0 {
					call()
				}
				turn.Done()
			}
		}()
	}
	return func(calls int) {
		left.Store(int64(calls))
		turn.Add(inFlight)
		for range inFlight {
			begin <- struct{}{}
		}
		turn.Wait()
	}
}

// Figures are what was measured: per call, but for Peak.
type Figures struct {
	Ns, Allocations, Bytes float64
	Peak                   float64 // resident memory of the program at its peak, in KiB; 0 where Linux does not tell it
}

// Measure makes calls for the time of the task, and prints the figures on one line. The first calls, as many as are in
// flight, are not measured.
func (t Task) Measure(do func(calls int)) {
	do(t.InFlight)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	calls, elapsed, begin := 0, time.Duration(0), time.Now()
	for elapsed < t.time {
		do(t.Turn)
		calls += t.Turn
		elapsed = time.Since(begin)
	}
	runtime.ReadMemStats(&after)
	n := float64(max(calls, 1))
	fmt.Println(float64(elapsed)/n, float64(after.Mallocs-before.Mallocs)/n,
		float64(after.TotalAlloc-before.TotalAlloc)/n, peak())
}

func peak() (kib int) {
	status, _ := os.ReadFile("/proc/self/status")
	_, line, _ := strings.Cut(string(status), "VmHWM:")
	_, _ = fmt.Sscan(line, &kib)
	return kib
}
