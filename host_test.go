package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

// hostPeer is a server in memory whose list of tools can change and fail.
type hostPeer struct {
	mu     sync.Mutex
	names  []string
	failed *Error // what tools/list answers, if set
	lists  int    // how often it was asked for
	called []string
}

// hostOver connects over what start starts.
func hostOver(start func() (Transport, error)) func(context.Context, ClientOptions) (*Client, error) {
	return func(ctx context.Context, o ClientOptions) (*Client, error) {
		return connectTo(ctx, func(context.Context) (Transport, error) { return start() }, o)
	}
}

// newHostPeer starts a session with a server that has tools of these names.
func newHostPeer(t *testing.T, names ...string) (*Host, *Conn, *hostPeer) {
	t.Helper()
	p := &hostPeer{names: names}
	ours, theirs := memoryPair()
	server := NewConn(theirs, Handler{Request: p.request})
	t.Cleanup(func() { server.Close() })
	host, err := StartHost(t.Context(), hostOver(func() (Transport, error) { return ours, nil }), ClientOptions{})
	assert.NilError(t, err)
	t.Cleanup(func() { host.Close() })
	return host, server, p
}

func (p *hostPeer) request(_ context.Context, _ *Conn, method string, params json.RawMessage) (any, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch method {
	case "initialize":
		return json.RawMessage(`{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"peer","version":"1"}}`), nil
	case "tools/list":
		if p.lists++; p.failed != nil {
			return nil, p.failed
		}
		tools := []Tool{}
		for _, name := range p.names {
			tool := Tool{Name: name, Description: "about " + name, InputSchema: json.RawMessage(`{"type":"object"}`)}
			if support, ok := strings.CutSuffix(name, "-task"); ok {
				tool.Execution = json.RawMessage(`{"taskSupport":"` + support + `"}`)
			}
			tools = append(tools, tool)
		}
		return map[string]any{"tools": tools}, nil
	case "tools/call":
		var call struct{ Name string }
		if err := json.Unmarshal(params, &call); err != nil {
			return nil, err
		}
		p.called = append(p.called, call.Name)
		return json.RawMessage(`{"content":[{"type":"text","text":"done"}]}`), nil
	}
	return nil, &Error{Code: CodeMethodNotFound, Message: method}
}

// change makes the server tell of other tools, and returns when the host has heard of it: a server's request is
// answered by the client after it has read what came before.
func (p *hostPeer) change(t *testing.T, server *Conn, failed *Error, names ...string) {
	t.Helper()
	p.mu.Lock()
	p.names, p.failed = names, failed
	p.mu.Unlock()
	assert.NilError(t, server.Notify(t.Context(), "notifications/tools/list_changed", nil))
	assert.NilError(t, server.Call(t.Context(), "ping", nil, nil))
}

func (p *hostPeer) listed() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lists
}

// hostFunctions are the names that a model would be offered.
func hostFunctions(t *testing.T, h *Host) string {
	t.Helper()
	functions, err := h.Functions(t.Context())
	assert.NilError(t, err)
	names := []string{}
	for _, f := range functions {
		names = append(names, f.Name)
	}
	return strings.Join(names, " ")
}

func TestHostFunctions(t *testing.T) {
	checkLeaks(t)
	host, _, peer := newHostPeer(t, "search", "files.read")
	functions, err := host.Functions(t.Context())
	assert.NilError(t, err)
	assert.DeepEqual(t, functions, []Function{
		{Name: "search", Description: "about search", Parameters: json.RawMessage(`{"type":"object"}`)},
		{Name: "files_read", Description: "about files.read", Parameters: json.RawMessage(`{"type":"object"}`)},
	})
	assert.Equal(t, host.Client.Server.Implementation.Name, "peer")

	// The function's name and the tool's own reach the same tool; a name that is neither reaches the server as it is.
	for _, name := range []string{"files_read", "files.read", "unheard-of"} {
		result, err := host.CallTool(t.Context(), name, nil, nil)
		assert.NilError(t, err)
		assert.Equal(t, ModelText(result), "done")
	}
	assert.DeepEqual(t, peer.called, []string{"files.read", "files.read", "unheard-of"})
}

// What can only be run as a task is not offered to a model, which would have nothing but errors of it. It is there all the same.
func TestHostTasks(t *testing.T) {
	checkLeaks(t)
	host, _, _ := newHostPeer(t, "required-task", "a.b", "optional-task", "forbidden-task")
	assert.Equal(t, hostFunctions(t, host), "a_b optional-task forbidden-task")
	tools, names, err := host.Tools(t.Context())
	assert.NilError(t, err)
	assert.Equal(t, len(tools), 4)
	assert.DeepEqual(t, names, []string{"required-task", "a_b", "optional-task", "forbidden-task"})
}

// A list that did not change is not asked for again; one that did is, before the next Functions, however often the
// server says so.
func TestHostListChanged(t *testing.T) {
	checkLeaks(t)
	host, server, peer := newHostPeer(t, "a", "b")
	assert.Equal(t, hostFunctions(t, host), "a b")
	assert.Equal(t, hostFunctions(t, host), "a b")
	assert.Equal(t, peer.listed(), 1)

	peer.change(t, server, nil, "a")
	peer.change(t, server, nil, "b", "c.d")
	assert.Equal(t, peer.listed(), 1, "the list is read when it is needed, and on the reader it cannot be")
	assert.Equal(t, hostFunctions(t, host), "b c_d")
	assert.Equal(t, hostFunctions(t, host), "b c_d")
	assert.Equal(t, peer.listed(), 2)
	_, err := host.CallTool(t.Context(), "c_d", nil, nil)
	assert.NilError(t, err)
	assert.DeepEqual(t, peer.called, []string{"c.d"})
}

// A changed list that cannot be read is an error, and asked for again the next time. Calls go on meanwhile.
func TestHostListFails(t *testing.T) {
	checkLeaks(t)
	host, server, peer := newHostPeer(t, "a.b")
	assert.Equal(t, hostFunctions(t, host), "a_b")
	peer.change(t, server, &Error{Code: CodeInternalError, Message: "not now"})
	for range 2 {
		_, err := host.Functions(t.Context())
		assert.Error(t, err, "tools/list: not now (error -32603)")
	}
	_, err := host.CallTool(t.Context(), "a_b", nil, nil)
	assert.NilError(t, err)
	assert.DeepEqual(t, peer.called, []string{"a.b"})

	peer.mu.Lock()
	peer.names, peer.failed = []string{"c"}, nil
	peer.mu.Unlock()
	assert.Equal(t, hostFunctions(t, host), "c")
	assert.Equal(t, peer.listed(), 4)
}

// A server need not have tools.
func TestHostWithoutTools(t *testing.T) {
	checkLeaks(t)
	host, server, peer := newHostPeer(t, "a")
	peer.change(t, server, &Error{Code: CodeMethodNotFound, Message: "no tools here"})
	assert.Equal(t, hostFunctions(t, host), "")
}

// hostServers starts one server after the other, each with its own way to answer server/discover and initialize.
type hostServers struct {
	t      *testing.T
	how    []func(method string) (any, error) // neither result nor error: the server ends
	starts int

	mu    sync.Mutex // guards asked
	asked []string   // the start and the method
}

func (s *hostServers) start() (Transport, error) {
	if s.starts == len(s.how) {
		return nil, errors.New("no such server")
	}
	s.starts++
	start := s.starts
	ours, theirs := memoryPair()
	server := NewConn(theirs, Handler{Request: func(ctx context.Context, c *Conn, method string, _ json.RawMessage) (any, error) {
		s.mu.Lock()
		s.asked = append(s.asked, fmt.Sprint(start, " ", method))
		s.mu.Unlock()
		if result, err := s.how[start-1](method); result != nil || err != nil {
			return result, err
		}
		go c.Close() // for which the cleanup waits
		<-ctx.Done()
		return nil, nil
	}})
	s.t.Cleanup(func() { server.Close() })
	return ours, nil
}

// A server that ends when it is asked what it speaks is started once more, and then not asked. No other failure is a reason to
// start anything again. What fails leaves nothing.
func TestStartHost(t *testing.T) {
	handshake := json.RawMessage(`{"protocolVersion":"2025-06-18","capabilities":{}}`)
	ends := func(string) (any, error) { return nil, nil }
	answers := func(method string) (any, error) {
		if method == "initialize" {
			return handshake, nil
		}
		return nil, &Error{Code: CodeMethodNotFound, Message: method}
	}
	refuses := func(string) (any, error) { return nil, &Error{Code: CodeInternalError, Message: "out of order"} }
	for _, test := range []struct {
		what   string
		how    []func(string) (any, error)
		forced string
		asked  string
		err    string // a regular expression; empty if it succeeds
	}{
		{"of the handshake era", []func(string) (any, error){answers}, "", "1 server/discover, 1 initialize", ""},
		{"ends when probed", []func(string) (any, error){ends, answers}, "", "1 server/discover, 2 initialize", ""},
		{"ends always", []func(string) (any, error){ends, ends, answers}, "", "1 server/discover, 2 initialize", "^initialize: connection closed: .*$"},
		{"is there only once", []func(string) (any, error){ends}, "", "1 server/discover", "^no such server$"},
		{"is not there", nil, "", "", "^no such server$"},
		{"refuses all", []func(string) (any, error){refuses, answers}, "", "1 server/discover, 1 initialize", `^initialize: out of order \(error -32603\)$`},
		{"ends, forced", []func(string) (any, error){ends, answers}, "2024-11-05", "1 initialize", "^initialize: connection closed: .*$"},
		{"ends, forced to the stateless era", []func(string) (any, error){ends, answers}, "2026-07-28", "1 server/discover", "connection closed: .*$"},
	} {
		t.Run(test.what, func(t *testing.T) {
			checkLeaks(t)
			servers := &hostServers{t: t, how: test.how}
			host, err := StartHost(t.Context(), hostOver(servers.start), ClientOptions{Protocol: test.forced})
			assert.Equal(t, strings.Join(servers.asked, ", "), test.asked)
			if test.err == "" {
				assert.NilError(t, err)
				assert.NilError(t, host.Close())
				return
			}
			assert.Assert(t, is.Regexp(test.err, fmt.Sprint(err)))
			assert.Assert(t, host == nil)
		})
	}
}

func TestHostTooManyTools(t *testing.T) {
	checkLeaks(t)
	names := make([]string, maxFunctions+1)
	for i := range names {
		names[i] = fmt.Sprint("tool", i)
	}
	host, server, peer := newHostPeer(t, names...)
	_, err := host.Functions(t.Context())
	var tooMany *TooManyToolsError
	assert.Assert(t, errors.As(err, &tooMany))
	assert.Equal(t, tooMany.Tools, 129)
	assert.Error(t, err, "the server has 129 tools; a model can be offered 128")
	tools, _, err := host.Tools(t.Context()) // which a caller without a model can use
	assert.NilError(t, err)
	assert.Equal(t, len(tools), 129)

	peer.change(t, server, nil, names[:maxFunctions]...)
	functions, err := host.Functions(t.Context())
	assert.NilError(t, err)
	assert.Equal(t, len(functions), 128)
}

// hostNames are the function names of tools of these names.
func hostNames(names ...string) []string {
	tools := make([]Tool, len(names))
	for i, name := range names {
		tools[i].Name = name
	}
	return functionNames(tools)
}

func TestFunctionNames(t *testing.T) {
	long := func(end string) string { return strings.Repeat("x", 128-len(end)) + end }
	for _, test := range []struct {
		what        string
		tools, want []string
	}{
		{"none", nil, []string{}},
		{"as they are", []string{"search_chunks", "get-sum", "X1"}, []string{"search_chunks", "get-sum", "X1"}},
		{"64 characters", []string{long("")[:64]}, []string{long("")[:64]}},
		{"dots and slashes", []string{"files.read", "git/log", "a b"}, []string{"files_read", "git_log", "a_b"}},
		{"other scripts", []string{"éa", "読む"}, []string{"_a", "__"}},
		{"128 characters", []string{long("_first"), long("_second")},
			[]string{strings.Repeat("x", 51) + "_first_58ca83", strings.Repeat("x", 50) + "_second_ebd00f"}},
		{"a name that can stay does", []string{"a.b", "a_b"}, []string{"a_b_2e7336", "a_b"}},
		{"of two that cannot, neither does", []string{"a.b", "a/b"}, []string{"a_b_2e7336", "a_b_c14cdd"}},
		{"a name that a hash would make", []string{"a.b", "a/b", "a_b_2e7336"}, []string{"a_b_2e7336_2", "a_b_c14cdd", "a_b_2e7336"}},
		{"one name often", []string{"a", "a", "a", "a"}, []string{"a", "a_ca9781", "a_ca9781_2", "a_ca9781_2_3"}},
		{"no name", []string{"", ""}, []string{"_e3b0c4", "_e3b0c4_2"}},
	} {
		t.Run(test.what, func(t *testing.T) { assert.DeepEqual(t, hostNames(test.tools...), test.want) })
	}
}

// Two names that come out alike even with their hashes, which are short, are still told apart, and the same in any order.
func TestFunctionNamesCollide(t *testing.T) {
	seen := make(map[string]string) // by function name
	for i := range 1 << 16 {
		tool := strings.NewReplacer("0", ".", "1", "/").Replace(fmt.Sprintf("%016b", i))
		name := hostNames(tool, "________________")[0]
		other := seen[name]
		if seen[name] = tool; other == "" {
			continue
		}
		one, two := hostNames(tool, other), hostNames(other, tool)
		assert.DeepEqual(t, one, []string{two[1], two[0]})
		assert.Assert(t, one[0] != one[1])
		return
	}
	t.Fatal("no two names have the same hash")
}

// Whatever the tools are called, their functions have names that the API takes, all different; and which a tool gets
// does not depend on the order in which the server lists them.
func TestFunctionNamesProperties(t *testing.T) {
	valid := regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)
	pieces := []string{"a", "b", "_", ".", "/", "é", "-", strings.Repeat("long", 20)}
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		var tools []string
		for range random.IntN(8) {
			name := ""
			for range random.IntN(4) {
				name += pieces[random.IntN(len(pieces))]
			}
			if !slices.Contains(tools, name) { // as the protocol has it; TestFunctionNames has the others
				tools = append(tools, name)
			}
		}
		if len(tools) > 0 { // and one that looks made
			if name := hostNames(append(tools, "a.b", "a/b")...)[random.IntN(len(tools))]; !slices.Contains(tools, name) {
				tools = append(tools, name)
			}
		}
		names := hostNames(tools...)
		got := make(map[string]string) // by the tool's name
		for i, name := range names {
			assert.Assert(t, valid.MatchString(name), "%q for %q", name, tools[i])
			assert.Assert(t, !slices.Contains(names[:i], name), "%q twice for %q", name, tools)
			got[tools[i]] = name
		}
		for tool, name := range got {
			assert.Assert(t, name == tool || !valid.MatchString(tool), "%q could have stayed, and is %q, of %q", tool, name, tools)
		}
		shuffled := slices.Clone(tools)
		random.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		for i, name := range hostNames(shuffled...) {
			assert.Equal(t, name, got[shuffled[i]], "for %q, of %q", shuffled[i], shuffled)
		}
	}
}

func TestModelText(t *testing.T) {
	for _, test := range []struct{ what, result, want string }{
		{"text", `{"content":[{"type":"text","text":"one\ntwo"},{"type":"text","text":"three"}]}`, "one\ntwo\nthree"},
		{"nothing", `{"content":[]}`, ""},
		{"structured content alone", `{"content":[],"structuredContent":{"sum": 3}}`, `{"sum": 3}`},
		{"structured content beside text", `{"content":[{"type":"text","text":"3"}],"structuredContent":{"sum":3}}`, "3"},
		{"an error", `{"content":[{"type":"text","text":"no such file"}],"isError":true}`, "no such file"},
		{"image", `{"content":[{"type":"image","data":"AAECAwQ=","mimeType":"image/png"}]}`, "[image: image/png, 5 bytes]"},
		{"audio", `{"content":[{"type":"audio","data":"AAE=","mimeType":"audio/wav"}]}`, "[audio: audio/wav, 2 bytes]"},
		{"link", `{"content":[{"type":"resource_link","uri":"file:///a.txt","name":"a","description":"the first"}]}`, "[resource: file:///a.txt a the first]"},
		{"link without a name", `{"content":[{"type":"resource_link","uri":"file:///a.txt"}]}`, "[resource: file:///a.txt]"},
		{"embedded text", `{"content":[{"type":"resource","resource":{"uri":"file:///a.txt","mimeType":"text/plain","text":"hello"}}]}`, "[resource: file:///a.txt]\nhello"},
		{"embedded bytes", `{"content":[{"type":"resource","resource":{"uri":"file:///a.bin","mimeType":"application/zip","blob":"AAEC"}}]}`, "[resource: file:///a.bin application/zip, 3 bytes]"},
		{"nothing embedded", `{"content":[{"type":"resource"}]}`, "[resource without contents]"},
		{"of a later revision", `{"content":[{"type":"smell","of":"roses"}]}`, `[smell: {"type":"smell","of":"roses"}]`},
		{"mixed, in order", `{"content":[{"type":"text","text":"before"},{"type":"image","data":"","mimeType":"image/gif"},{"type":"text","text":"after"}]}`,
			"before\n[image: image/gif, 0 bytes]\nafter"},
	} {
		t.Run(test.what, func(t *testing.T) {
			result, err := decodeToolResult(json.RawMessage(test.result))
			assert.NilError(t, err)
			assert.Equal(t, ModelText(result), test.want)
		})
	}
}

func TestParseCommand(t *testing.T) {
	for _, test := range []struct {
		line string
		want Command
	}{
		{"python mcp_server.py", Command{Path: "python", Args: []string{"mcp_server.py"}}},
		{"  npx\t-y \n server ", Command{Path: "npx", Args: []string{"-y", "server"}}},
		{`sh -c 'echo "a b" >&2'`, Command{Path: "sh", Args: []string{"-c", `echo "a b" >&2`}}},
		{`"/my servers/one" "it's" a'b'"c"d`, Command{Path: "/my servers/one", Args: []string{"it's", "abcd"}}},
		{`a "" ''`, Command{Path: "a", Args: []string{"", ""}}},
		{`a b\ c \"d\" 'e\f' "g\"h\\i"`, Command{Path: "a", Args: []string{"b c", `"d"`, `e\f`, `g"h\i`}}},
		{`C:\Python\python.exe C:\my\server.py`, Command{Path: `C:\Python\python.exe`, Args: []string{`C:\my\server.py`}}},
		{`"C:\Program Files\node.exe" x`, Command{Path: `C:\Program Files\node.exe`, Args: []string{"x"}}},
		{`'\\host\share\server.exe'`, Command{Path: `\\host\share\server.exe`, Args: []string{}}},
		{"$HOME/server *.txt ~", Command{Path: "$HOME/server", Args: []string{"*.txt", "~"}}},
		{"A=1 B_2= server C=3", Command{Path: "server", Args: []string{"C=3"}, Env: []string{"A=1", "B_2="}}},
		{`KEY="two words" X=a=b server`, Command{Path: "server", Args: []string{}, Env: []string{"KEY=two words", "X=a=b"}}},
		{"./odd=name", Command{Path: "./odd=name", Args: []string{}}},
		{"--flag=x y", Command{Path: "--flag=x", Args: []string{"y"}}},
		{"odd.name=x y", Command{Path: "odd.name=x", Args: []string{"y"}}},
		{`C:\a=b y`, Command{Path: `C:\a=b`, Args: []string{"y"}}},
		{"=x", Command{Path: "=x", Args: []string{}}},
	} {
		got, err := ParseCommand(test.line)
		assert.NilError(t, err)
		assert.DeepEqual(t, got, test.want)
	}
	for line, want := range map[string]string{
		"":           "the command line has no command",
		" \t ":       "the command line has no command",
		"A=1 B=2":    "the command line has no command",
		`""`:         "the command line has no command",
		`A=1 "" x`:   "the command line has no command",
		`server "a`:  "the command line ends inside quotes or after a backslash",
		"server 'a":  "the command line ends inside quotes or after a backslash",
		`server a\`:  "the command line ends inside quotes or after a backslash",
		`server "a\`: "the command line ends inside quotes or after a backslash",
	} {
		c, err := ParseCommand(line)
		assert.Error(t, err, want)
		assert.DeepEqual(t, c, Command{})
	}
}

// What ParseCommand takes apart can be put together, in quotes, and taken apart again.
func FuzzParseCommand(f *testing.F) {
	for _, line := range []string{"a b", `A=1 "b c" 'd'`, `C:\x\y "\\" \ `, `a''b "`, "é\xff=1 x", `""`, "=", "./a=b\n"} {
		f.Add(line)
	}
	quote := strings.NewReplacer(`\`, `\\`, `"`, `\"`)
	f.Fuzz(func(t *testing.T, line string) {
		c, err := ParseCommand(line)
		if err != nil {
			assert.DeepEqual(t, c, Command{})
			return
		}
		assert.Assert(t, c.Path != "")
		var again strings.Builder
		for _, word := range slices.Concat(c.Env, []string{c.Path}, c.Args) {
			io.WriteString(&again, `"`+quote.Replace(word)+`" `)
		}
		same, err := ParseCommand(again.String())
		assert.NilError(t, err)
		assert.Check(t, is.DeepEqual(same, c))
	})
}
