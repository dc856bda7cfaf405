package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

// programHTTP is a serve -http that has started, and its URL.
func programHTTP(t *testing.T, address string, args ...string) (p *programRun, url string) {
	t.Helper()
	p = newProgram(t, nil, append([]string{"serve", "-http", address}, args...)...)
	p.start()
	p.saw("an MCP server at ")
	return p, p.saw("; Ctrl-C ends it\n")
}

// programFolder is a folder with one document.
func programFolder(t *testing.T) string {
	dir := t.TempDir()
	assert.NilError(t, os.WriteFile(filepath.Join(dir, "birds.txt"), []byte("The heron waits in shallow water.\n"), 0o600))
	return dir
}

// serve -http is a server of the program itself, in every revision.
func TestProgramServeHTTP(t *testing.T) {
	checkLeaks(t)
	p, url := programHTTP(t, ":0", programFolder(t))
	assert.Check(t, is.Regexp(`^http://127\.0\.0\.1:\d+/mcp$`, url))
	for _, revision := range append(Revisions(), "auto") {
		variables := []string{"MCP_SERVER=" + url, "MCP_PROTOCOL=" + revision, "MCP_APPROVE=always"}
		o := runProgram(t, "", variables, "-q", "Where does the heron wait?")
		assert.Check(t, is.Equal(o.status, 0), o.stderr)
		assert.Check(t, is.Contains(o.stdout, "birds.txt:1\n    The heron waits in shallow water."))
		o = runProgram(t, "", variables, "read", "library:///birds.txt")
		assert.Check(t, is.Equal(o.stdout, "The heron waits in shallow water.\n"), o.stderr)
	}
	p.saw("1 documents\n")
	p.interrupted(syscall.SIGTERM)
	assert.Check(t, !strings.Contains(p.stderr.String()[p.seen:], "documents"), "read more than once")

	p, url = programHTTP(t, "127.0.0.1:0") // over the source
	o := runProgram(t, "", []string{"MCP_SERVER=" + url, "MCP_APPROVE=always"}, "-q", "How does a call find its answer?")
	assert.Check(t, is.Contains(o.stdout, "rpc.go:"), o.stderr)
	p.interrupted(os.Interrupt)
}

// interrupted ends the program with a signal.
func (p *programRun) interrupted(signal os.Signal) {
	p.t.Helper()
	if runtime.GOOS == "windows" {
		return // where no signals can be sent to another process: it is killed in the end
	}
	assert.NilError(p.t, p.command.Process.Signal(signal))
	assert.Equal(p.t, p.end(), exitInterrupted)
	assert.Check(p.t, strings.HasSuffix(p.stderr.String(), "\nmcpagent: interrupted\n"), p.stderr.String())
	assert.Equal(p.t, p.stdout.String(), "")
}

// Where serve -http listens, and what it says of that.
func TestProgramServeHTTPAddress(t *testing.T) {
	checkLeaks(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	assert.NilError(t, err)
	defer taken.Close()
	_, port, _ := net.SplitHostPort(taken.Addr().String())
	const see = " (see: mcpagent help)"
	for _, test := range []struct {
		args   []string
		status int
		want   string
	}{
		{[]string{"serve", "-http", ":" + port}, 1, "serve -http: listen tcp 127.0.0.1:" + port + ": bind: *"},
		{[]string{"serve", "-http", port}, 1, "serve -http: listen tcp 127.0.0.1:" + port + ": bind: *"},
		{[]string{"-http=localhost:" + port, "serve"}, 1, "serve -http: listen tcp *:" + port + ": bind: *"},
		{[]string{"serve", "-http", "192.0.2.1:8080"}, 1, "serve -http: listen tcp 192.0.2.1:8080: bind: *"},
		{[]string{"serve", "-http", ":0", filepath.Join("no", "folder")}, 1, "open library: *"},
		{[]string{"serve", "-http"}, 2, "flag needs an argument: -http" + see},
		{[]string{"serve", "-http", ""}, 2, `invalid value "" for flag -http: not an address such as :8080 or 127.0.0.1:8080` + see},
		{[]string{"serve", "-http", "localhost"}, 2, `invalid value "localhost" for flag -http: not an address such as :8080 or 127.0.0.1:8080` + see},
		{[]string{"serve", "-http", "localhost:"}, 2, `invalid value "localhost:" for flag -http: not an address such as :8080 or 127.0.0.1:8080` + see},
		{[]string{"serve", "-http", "http://localhost:80/"}, 2, `invalid value "http://localhost:80/" for flag -http: not an address *` + see},
		{[]string{"serve", "-http", ":0", "a", "b"}, 2, "serve takes one folder" + see},
		{[]string{"tools", "-http", ":0"}, 2, "-http goes with serve" + see},
	} {
		t.Run(strings.Join(test.args, " "), func(t *testing.T) {
			runProgram(t, "", nil, test.args...).fails(t, test.status, test.want)
		})
	}
	for address, want := range map[string]string{
		"0":           `http://127\.0\.0\.1:\d+/mcp`,
		":0":          `http://127\.0\.0\.1:\d+/mcp`,
		"localhost:0": `http://localhost:\d+/mcp`,
		"0.0.0.0:0":   `http://0\.0\.0\.0:\d+/mcp`,
	} {
		p, url := programHTTP(t, address)
		assert.Check(t, is.Regexp("^"+want+"$", url))
		answer, err := http.Get(url)
		assert.NilError(t, err)
		answer.Body.Close()
		assert.Check(t, is.Equal(answer.StatusCode, http.StatusMethodNotAllowed))
		p.interrupted(os.Interrupt)
	}
	http.DefaultClient.CloseIdleConnections()
}

// One Ctrl-C ends the server, though a client listens, and after it has told the client.
func TestProgramServeHTTPInterrupted(t *testing.T) {
	checkLeaks(t)
	if runtime.GOOS == "windows" {
		t.Skip("no signals can be sent to another process")
	}
	p, url := programHTTP(t, ":0")
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	r, err := http.NewRequestWithContext(t.Context(), "POST", url, strings.NewReader(libStateless("1", "subscriptions/listen", `"notifications":{},`)))
	assert.NilError(t, err)
	r.Header = lhttpModern("subscriptions/listen", "")
	answer, err := client.Do(r)
	assert.NilError(t, err)
	defer answer.Body.Close()
	events := newLHTTPEvents(t, answer)
	assert.Check(t, is.Contains(events.next(), "acknowledged"))
	p.interrupted(os.Interrupt)
	assert.Check(t, is.Contains(events.next(), `"result":`))
	assert.Equal(t, events.next(), "")
	_, err = client.Get(url)
	assert.ErrorContains(t, err, "refused")
}

// A page in a browser must not get at the server, whatever name it makes lead to this machine.
func TestProgramServeHTTPKeepsPagesOut(t *testing.T) {
	checkLeaks(t)
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	ask := func(url, host, origin string) string {
		r, err := http.NewRequestWithContext(t.Context(), "POST", url, strings.NewReader(libStateless("1", "tools/list", "")))
		assert.NilError(t, err)
		r.Header, r.Host = lhttpModern("tools/list", "", "Origin: "+origin), host
		answer, err := client.Do(r)
		assert.NilError(t, err)
		defer answer.Body.Close()
		text, _ := io.ReadAll(answer.Body)
		return fmt.Sprint(answer.StatusCode, " ", string(text))
	}
	hostname, err := os.Hostname()
	assert.NilError(t, err)
	for _, address := range []string{":0", hostname + ":0"} {
		if _, err := net.LookupHost(hostname); err != nil && address != ":0" {
			continue
		}
		p, url := programHTTP(t, address)
		port := regexp.MustCompile(`:\d+`).FindString(url)
		assert.Check(t, is.Contains(ask(url, "", ""), "200 "))
		assert.Check(t, is.Contains(ask(url, "localhost"+port, "http://localhost:3000"), "200 "))
		assert.Check(t, is.Contains(ask(url, "", "https://evil.example"), "403 "))
		assert.Check(t, is.Contains(ask(url, "evil.example"+port, "http://evil.example"+port), "403 "))
		p.interrupted(os.Interrupt)
	}
}
