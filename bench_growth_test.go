package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

// BenchmarkGrowth compares two amounts of work of the client: x-small is 1 where the cost of one unit stays the same.
func BenchmarkGrowth(b *testing.B) {
	calls, few, many := benchClient(b, "text-100"), benchClient(b, "tools-1000"), benchClient(b, "tools-10000")
	defer calls.Close()
	defer few.Close()
	defer many.Close()
	call, listFew := benchCall(b, calls, "text-100"), together(b, 1, benchList(b, few, "tools-1000"))
	for _, w := range []struct {
		name       string
		turn       int
		base, work func(calls int)
	}{
		{"64 in flight", 6400, together(b, 1, call), together(b, 64, call)},
		{"1,000 in flight", 10_000, together(b, 64, call), together(b, 1000, call)},
		{"10,000 in flight", 20_000, together(b, 64, call), together(b, 10_000, call)},
		{"10,000 tools", 2, func(calls int) { listFew(10 * calls) }, together(b, 1, benchList(b, many, "tools-10000"))},
	} {
		b.Run(w.name, func(b *testing.B) { compare(b, "x-small", w.turn, w.base, w.work) })
	}
}

// TestChatMemory: a conversation takes a few times the memory of its history. Each of its 300 requests alone has half
// of that, on average: keeping them would take a hundred times as much.
func TestChatMemory(t *testing.T) {
	a := benchAgent()
	heap := func() int {
		var stats runtime.MemStats
		runtime.GC()
		runtime.GC() // what the first one finalized
		runtime.ReadMemStats(&stats)
		return int(stats.HeapAlloc)
	}
	before := heap()
	for range 30 {
		_, err := a.Chat(t.Context(), "What is a universal?")
		assert.NilError(t, err)
	}
	kept := heap() - before
	history, err := json.Marshal(a.History)
	assert.NilError(t, err)
	t.Logf("%d bytes kept for %d messages of %d bytes", kept, len(a.History), len(history))
	assert.Assert(t, kept < 6*len(history))
}

// --- memory

// BenchmarkMemory reports the resident memory of the program at its peak, in MiB.
func BenchmarkMemory(b *testing.B) {
	for _, result := range []string{"text-100", "prose-1048576", "prose-10485760", "text-104857600", "tools-10000"} {
		b.Run(result, func(b *testing.B) {
			var all float64
			for range b.N {
				mib, _, _ := programPeak(b, result)
				all += mib
			}
			b.ReportMetric(all/float64(b.N), "MiB")
		})
	}
}

// programPeak runs the program for a call of a tool whose result has the name, and returns its resident memory at its
// peak in MiB, and its output.
func programPeak(t testing.TB, result string) (mib float64, stdout, stderr string) {
	if runtime.GOOS != "linux" || raceEnabled || testing.CoverMode() != "" {
		t.Skip("resident memory is known on Linux, and is another with the race detector or counted statements")
	}
	path := t.TempDir() + "/peak"
	program := exec.Command(os.Args[0], "call", "tool_0", "{}")
	program.Env = []string{"MCPAGENT_CHILD=main", "MCPAGENT_PEAK=" + path, "PATH=" + os.Getenv("PATH"),
		"HOME=" + t.TempDir(), "MCP_SERVER=MCPAGENT_CHILD=bench-" + result + " " + os.Args[0]}
	var out, errs strings.Builder
	program.Stdout, program.Stderr = &out, &errs
	_ = program.Run() // what it says shows whether it was as it should be
	status, err := os.ReadFile(path)
	assert.NilError(t, err, "%s", &errs)
	_, peak, _ := strings.Cut(string(status), "VmHWM:")
	_, err = fmt.Sscan(peak, &mib)
	assert.NilError(t, err)
	return mib / 1024, out.String(), errs.String()
}

// TestPeakMemory: a large result takes a few times its size. One that is too large is refused before it takes more.
func TestPeakMemory(t *testing.T) {
	for _, test := range []struct {
		result string
		atMost float64 // MiB
		output string
		err    string
	}{
		{"text-100", 24, "xxx", ""},
		// The variable of the server's command is a secret: so the text is searched, and not copied.
		{"prose-10485760", 60, "A line of a text", ""},
		{"text-104857600", 128, "", "longer than the limit of 67108864 bytes"},
	} {
		t.Run(test.result, func(t *testing.T) {
			mib, stdout, stderr := programPeak(t, test.result)
			t.Logf("%.1f MiB, %d bytes of output, %.200s", mib, len(stdout), stderr)
			assert.Check(t, mib <= test.atMost)
			assert.Check(t, strings.HasPrefix(stdout, test.output), "%.200s", stdout)
			assert.Check(t, strings.Contains(stderr, test.err), "%.200s", stderr)
		})
	}
}
