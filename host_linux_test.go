package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

// stoppedLimit is each time limit of the client that its server stops.
const stoppedLimit = 2 * time.Second

// answerWhileStopped stops a process, has it answered meanwhile, and lets it go on when its limit is over.
func answerWhileStopped(pid int, answer func()) {
	_ = syscall.Kill(pid, syscall.SIGSTOP)
	for {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		_, state, _ := strings.Cut(string(stat), ") ")
		if err != nil || strings.HasPrefix(state, "T") {
			break
		}
		runtime.Gosched()
	}
	answer()
	// The clock of the limit, which runs on in a stopped process, is the real one.
	<-time.After(stoppedLimit + 100*time.Millisecond)
	_ = syscall.Kill(pid, syscall.SIGCONT)
}

// stoppedAnswer is the answer of the server to a request, nil to a notification.
func stoppedAnswer(request []byte) []byte {
	var m struct {
		ID     json.RawMessage
		Method string
	}
	_ = json.Unmarshal(request, &m)
	result := map[string]string{
		"server/discover": hostDiscoveryWithoutChanges,
		"tools/list":      `{"resultType":"complete","tools":[{"name":"a","inputSchema":{"type":"object"}}]}`,
		"tools/call":      `{"resultType":"complete","content":[{"type":"text","text":"done"}]}`,
	}[m.Method]
	if m.ID == nil {
		return nil
	}
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", m.ID, result)
}

const hostDiscoveryWithoutChanges = `{"resultType":"complete","supportedVersions":["2026-07-28"],` +
	`"capabilities":{"tools":{}}}`

// stoppedClient is a program that starts a server, lists its tools and calls one.
func stoppedClient(t *testing.T, url string) {
	server := Server{
		Name:         "s",
		URL:          url,
		Command:      Command{Path: os.Args[0], Args: []string{"-test.run=^TestStopped$"}},
		StartTimeout: stoppedLimit,
		Timeout:      stoppedLimit,
	}
	server.Command.Env = []string{"MCPAGENT_STOPPED=server"}
	host := NewHost([]Server{server}, nil)
	defer host.Close()
	host.Start(t.Context())
	assert.Equal(t, hostStatus(host), "")
	assert.Equal(t, hostFunctions(t.Context(), host), "a")
	assert.Equal(t, hostCall(t.Context(), host, "a"), "done")
}

// stoppedServer is a server on stdio that stops its client for each answer.
func stoppedServer() {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		answer := stoppedAnswer(lines.Bytes())
		if answer != nil {
			answerWhileStopped(os.Getppid(), func() { _, _ = os.Stdout.Write(answer) })
		}
	}
	os.Exit(0)
}

// TestStopped: a process that is stopped for longer than its time limits finds the answers that came meanwhile: to the
// start of a server, to its list of tools and to a call, on stdio and over HTTP. The test is the client, too, in a
// process of its own, and the server on stdio.
func TestStopped(t *testing.T) {
	role, url, _ := strings.Cut(os.Getenv("MCPAGENT_STOPPED"), " ")
	switch role {
	case "server":
		stoppedServer()
	case "client":
		stoppedClient(t, url)
		return
	}
	checkLeaks(t)
	var client atomic.Int64
	var answers atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		request, _ := io.ReadAll(r.Body)
		answerWhileStopped(int(client.Load()), func() {
			answer := stoppedAnswer(request)
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Length", strconv.Itoa(len(answer)))
			_, _ = w.Write(answer)
			_ = http.NewResponseController(w).Flush()
		})
		answers.Add(1)
	}))
	defer server.Close()
	var ended []func() error
	for _, url := range []string{"", server.URL} {
		c := exec.Command(os.Args[0], "-test.run=^TestStopped$", "-test.timeout=40s")
		c.Env = append(os.Environ(), "MCPAGENT_STOPPED=client "+url)
		var output strings.Builder
		c.Stdout, c.Stderr = &output, &output
		assert.NilError(t, c.Start())
		client.Store(int64(c.Process.Pid))
		ended = append(ended, func() error {
			err := c.Wait()
			if err != nil {
				return fmt.Errorf("%s %w: %s", url, err, &output)
			}
			return nil
		})
	}
	for _, end := range ended {
		assert.Check(t, end())
	}
	assert.Equal(t, answers.Load(), int64(3))
}
