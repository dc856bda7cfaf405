package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

// lhttp is a server with a way to it.
type lhttp struct {
	t      *testing.T
	h      *LibraryHTTP
	url    string
	client *http.Client
}

func newLHTTP(t *testing.T, l *Library) *lhttp {
	h := NewLibraryHTTP(l, "library.example")
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return &lhttp{t, h, s.URL, s.Client()}
}

// lhttpHeader are the headers of a request, "Name: value", where a later one takes the place of an earlier one, and one without
// a value takes it away; "+Name: value" is there besides.
func lhttpHeader(lines ...string) http.Header {
	header := make(http.Header)
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ": ")
		switch name, more := strings.CutPrefix(name, "+"); {
		case more:
			header.Add(name, value)
		case value == "":
			header.Del(name)
		default:
			header.Set(name, value)
		}
	}
	return header
}

// open sends a request, and returns when the header of the answer is there.
func (s *lhttp) open(ctx context.Context, method string, header http.Header, body string) *http.Response {
	s.t.Helper()
	r, err := http.NewRequestWithContext(ctx, method, s.url, strings.NewReader(body))
	assert.NilError(s.t, err)
	r.Header, r.Host = header, header.Get("Host")
	answer, err := s.client.Do(r)
	assert.NilError(s.t, err)
	s.t.Cleanup(func() { answer.Body.Close() })
	return answer
}

// lhttpAnswer is a whole answer.
type lhttpAnswer struct {
	status int
	header http.Header
	body   string
}

func (s *lhttp) do(method string, header http.Header, body string) lhttpAnswer {
	s.t.Helper()
	answer := s.open(s.t.Context(), method, header, body)
	text, err := io.ReadAll(answer.Body)
	assert.NilError(s.t, err)
	return lhttpAnswer{answer.StatusCode, answer.Header, string(text)}
}

// What every POST has, and what a request of each era has besides.
func lhttpBase(more ...string) []string {
	return append([]string{"Content-Type: application/json", "Accept: application/json, text/event-stream"}, more...)
}

func lhttpModern(method, name string, more ...string) http.Header {
	lines := lhttpBase("MCP-Protocol-Version: 2026-07-28", "Mcp-Method: "+method)
	if name != "" {
		lines = append(lines, "Mcp-Name: "+name)
	}
	return lhttpHeader(append(lines, more...)...)
}

func (s *lhttp) modern(id, method, name, params string) lhttpAnswer {
	s.t.Helper()
	return s.do("POST", lhttpModern(method, name), libStateless(id, method, params))
}

// session begins a session of the handshake era.
func (s *lhttp) session() (id string) {
	s.t.Helper()
	a := s.do("POST", lhttpHeader(lhttpBase()...), libInitialize)
	assert.Equal(s.t, a.status, 200, a.body)
	id = a.header.Get("Mcp-Session-Id")
	assert.Equal(s.t, s.do("POST", lhttpOld(id), libInitialized).status, 202)
	return id
}

func lhttpOld(session string, more ...string) http.Header {
	return lhttpHeader(append(lhttpBase("MCP-Protocol-Version: 2025-11-25", "Mcp-Session-Id: "+session), more...)...)
}

func (s *lhttp) old(session, message string) lhttpAnswer {
	s.t.Helper()
	return s.do("POST", lhttpOld(session), message)
}

// sessions are those that the server keeps.
func (s *lhttp) sessions() []*libraryHTTPSession {
	s.h.mu.Lock()
	defer s.h.mu.Unlock()
	return slices.Clone(s.h.sessions)
}

// idle waits until the server has nothing at work.
func (s *lhttp) idle() {
	for range maxPosts {
		s.h.slots <- struct{}{}
	}
	for range maxPosts {
		<-s.h.slots
	}
}

const lhttpRead = `"name":"get_document","arguments":{"source":"Two.TXT"},`

func TestLibraryHTTPStateless(t *testing.T) {
	checkLeaks(t)
	s := newLHTTP(t, libSmall())
	for _, test := range []struct {
		method, name, params string
		status               int
		want                 string
	}{
		{"server/discover", "", "", 200, `"result":{` + libServerInfo + `,"cacheScope":"public","capabilities":{"completions":{},"prompts":{},"resources":{},"tools":{}},` +
			`"instructions":"Search with search_chunks first; read more of a source with get_document.","resultType":"complete",` +
			`"supportedVersions":["2026-07-28","2025-11-25","2025-06-18","2025-03-26","2024-11-05"],"ttlMs":3600000}`},
		{"tools/call", "get_document", lhttpRead, 200, `"result":{` + libServerInfo + `,"content":[{"type":"text","text":"Apples\r\nand plums"}],"resultType":"complete"}`},
		{"tools/call", "=?base64?Z2V0X2RvY3VtZW50?=", lhttpRead, 200, `"result":{` + libServerInfo + `,"content":[{"type":"text","text":"Apples\r\nand plums"}],"resultType":"complete"}`},
		{"resources/read", "library:///Two.TXT", `"uri":"library:///Two.TXT",`, 200, `"result":{` + libServerInfo + `,"cacheScope":"private",` +
			`"contents":[{"mimeType":"text/plain","text":"Apples\r\nand plums","uri":"library:///Two.TXT"}],"resultType":"complete","ttlMs":3600000}`},
		{"prompts/get", "answer_from_library", `"name":"answer_from_library",`, 200, `"error":{"code":-32602,"message":"answer_from_library needs the argument question"}`},
		{"tools/call", "=?base64?w6k=?=", `"name":"é",`, 200, `"error":{"code":-32602,"message":"unknown tool: é"}`},
		{"tools/call", "=?base64?=", `"name":"=?base64?=",`, 200, `"error":{"code":-32602,"message":"unknown tool: =?base64?="}`}, // too short to be encoded
		{"tools/list", "", `"cursor":"9",`, 200, `"error":{"code":-32602,"message":"tools/list: unknown cursor \"9\""}`},
		{"ping", "", "", 404, `"error":{"code":-32601,"message":"method not found: ping"}`},
		{"x/y", "", "", 404, `"error":{"code":-32601,"message":"method not found: x/y"}`},
		{"initialize", "", `"protocolVersion":"2025-11-25",`, 404, `"error":{"code":-32601,"message":"method not found: initialize"}`},
	} {
		for _, id := range []string{`7`, `"a"`} {
			a := s.modern(id, test.method, test.name, test.params)
			assert.Equal(t, a.body, `{"jsonrpc":"2.0","id":`+id+`,`+test.want+`}`)
			assert.Equal(t, a.status, test.status)
			assert.Equal(t, a.header.Get("Content-Type"), "application/json")
			assert.Equal(t, a.header.Get("Mcp-Session-Id"), "")
			assert.Equal(t, a.header.Get("X-Accel-Buffering"), "")
		}
	}
	// What belongs to the other era is ignored.
	a := s.do("POST", lhttpModern("tools/call", "get_document", "Mcp-Session-Id: x", "Last-Event-ID: 1"), libStateless("1", "tools/call", lhttpRead))
	assert.Equal(t, a.status, 200, a.body)
	// No notification has a meaning, but none is an error.
	for _, message := range []string{
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`,
		`{"jsonrpc":"2.0","method":"notifications/x"}`,
	} {
		a := s.do("POST", lhttpHeader(lhttpBase("MCP-Protocol-Version: 2026-07-28")...), message)
		assert.DeepEqual(t, []any{a.status, a.body, a.header.Get("Content-Type")}, []any{202, "", ""})
	}
	a = s.do("POST", lhttpHeader(lhttpBase()...), `{"jsonrpc":"2.0","method":"notifications/x","params":{"_meta":`+libMeta+`}}`)
	assert.Equal(t, a.status, 202, a.body)
	assert.Equal(t, len(s.sessions()), 0)
}

func TestLibraryHTTPHandshake(t *testing.T) {
	checkLeaks(t)
	s := newLHTTP(t, libSmall())
	const list = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"get_document","arguments":{"source":"Two.TXT"}}}`
	const listed = `{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"Apples\r\nand plums"}]}}`
	for _, revision := range libraryRevisions()[1:] {
		// Whatever the headers say: nothing was agreed on yet.
		for _, header := range []http.Header{lhttpHeader(lhttpBase()...), lhttpHeader(lhttpBase("MCP-Protocol-Version: 2026-07-28", "Mcp-Session-Id: old")...)} {
			a := s.do("POST", header, strings.Replace(libInitialize, "2025-11-25", revision, 1))
			assert.Equal(t, a.status, 200)
			assert.Assert(t, is.Contains(a.body, `"protocolVersion":"`+revision+`"`))
			assert.Equal(t, a.header.Get("Content-Type"), "application/json")
			session := a.header.Get("Mcp-Session-Id")
			assert.Assert(t, is.Regexp(`^[A-Z2-7]{26,}$`, session))

			a = s.old(session, list)
			assert.Assert(t, is.Contains(a.body, `"error":{"code":-32602,"message":"tools/call needs `), "not before notifications/initialized")
			a = s.old(session, libInitialized)
			assert.DeepEqual(t, []any{a.status, a.body, a.header.Get("Content-Type")}, []any{202, "", ""})
			for _, header := range []http.Header{lhttpOld(session), lhttpOld(session, "MCP-Protocol-Version: "+revision), lhttpOld(session, "MCP-Protocol-Version: ")} {
				a = s.do("POST", header, list)
				assert.DeepEqual(t, []any{a.status, a.body, a.header.Get("Mcp-Session-Id")}, []any{200, listed, ""})
			}
		}
	}
	one, two := s.session(), s.session()
	assert.Assert(t, one != two)
	assert.Equal(t, s.old(one, `{"jsonrpc":"2.0","id":"p","method":"ping"}`).body, `{"jsonrpc":"2.0","id":"p","result":{}}`)
	a := s.old(one, `{"jsonrpc":"2.0","id":2,"method":"x/y"}`)
	assert.DeepEqual(t, []any{a.status, a.body}, []any{200, `{"jsonrpc":"2.0","id":2,"error":{"code":-32601,"message":"method not found: x/y"}}`})
	a = s.old(one, `{"jsonrpc":"2.0","id":3,"result":{}}`)
	assert.DeepEqual(t, []any{a.status, a.body}, []any{202, ""})
	a = s.do("POST", lhttpHeader(lhttpBase()...), `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}`)
	assert.DeepEqual(t, []any{a.status, a.body, a.header.Get("Mcp-Session-Id")}, []any{200, `{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"initialize needs a protocolVersion"}}`, ""})

	a = s.do("DELETE", lhttpOld(one), "")
	assert.DeepEqual(t, []any{a.status, a.body}, []any{204, ""})
	assert.Equal(t, s.old(one, list).status, 404)
	assert.Equal(t, s.do("DELETE", lhttpOld(one), "").status, 404)
	assert.Equal(t, s.old(two, list).body, listed)
	// A session is nothing to the stateless era, nor the other way round.
	assert.Equal(t, s.do("POST", lhttpOld(two), libStateless("1", "tools/list", "")).status, 400)
}

// Every refusal, on the wire. Each test changes one thing about a request that is answered.
func TestLibraryHTTPRefusals(t *testing.T) {
	checkLeaks(t)
	s := newLHTTP(t, libSmall())
	modern := lhttpBase("MCP-Protocol-Version: 2026-07-28", "Mcp-Method: tools/call", "Mcp-Name: get_document")
	old := lhttpBase("MCP-Protocol-Version: 2025-11-25", "Mcp-Session-Id: "+s.session())
	call := libStateless("1", "tools/call", lhttpRead)
	const list = `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`
	const (
		unsupported = `"error":{"code":-32022,"message":"unsupported protocol version; those before 2026-07-28 begin with initialize","data":{"requested":"%s","supported":["2026-07-28","2025-11-25","2025-06-18","2025-03-26","2024-11-05"]}}}`
		mismatch    = `{"jsonrpc":"2.0","id":1,"error":{"code":-32020,"message":"the header `
		invalid     = `{"jsonrpc":"2.0","error":{"code":-32600,"message":"`
	)
	for _, test := range []struct {
		name   string
		base   []string
		method string // POST if empty
		change string // headers, as lhttpHeader has them, a line each
		body   string
		status int
		want   string // a whole body, but for its end
	}{
		{"", modern, "", "", call, 200, `{"jsonrpc":"2.0","id":1,"result":{`},
		{"", old, "", "", list, 200, `{"jsonrpc":"2.0","id":1,"result":{`},

		{"no Content-Type", modern, "", "Content-Type: ", call, 415, invalid + `Content-Type must be application/json, not \"\""}}`},
		{"text", old, "", "Content-Type: text/plain", list, 415, invalid + `Content-Type must be application/json, not \"text/plain\""}}`},
		{"charset", modern, "", "Content-Type: application/JSON; charset=utf-8", call, 200, ``},
		{"Accept JSON alone", modern, "", "Accept: application/json", call, 406, invalid + `Accept must list application/json and text/event-stream: an answer can be either"}}`},
		{"Accept events alone", old, "", "Accept: text/event-stream", list, 406, invalid + `Accept must list `},
		{"Accept in two lines", modern, "", "Accept: application/json\n+Accept: text/event-stream", call, 200, ``},
		{"Accept anything", modern, "", "Accept: */*", call, 200, ``},
		{"Accept families", modern, "", "Accept: text/*;q=0.5, application/*", call, 200, ``},
		{"no Accept", old, "", "Accept: ", list, 200, ``},

		{"another site", modern, "", "Origin: https://evil.example", call, 403, invalid + `the origin \"https://evil.example\" is another site"}}`},
		{"another site, GET", modern, "GET", "Origin: https://evil.example", "", 403, ``},
		{"another site, DELETE", old, "DELETE", "Origin: https://evil.example", "", 403, ``},
		{"a name that begins so", modern, "", "Origin: http://localhost.evil.example", call, 403, ``},
		{"a page of no site", modern, "", "Origin: null", call, 403, invalid + `the origin \"null\" is another site"}}`},
		{"a second origin", modern, "", "+Origin: http://localhost", call, 200, ``},
		{"no URL", modern, "", "Origin: http://[", call, 403, ``},
		{"a local page", modern, "", "Origin: http://localhost:6274", call, 200, ``},
		{"a local page by address", modern, "", "Origin: http://[::1]:6274", call, 200, ``},
		{"another host", modern, "", "Host: evil.example", call, 403, invalid + `\"evil.example\" is no host known here: it must be localhost, an IP address, or the name ` +
			`of the host that the server was told to listen on; a proxy can set the header Host"}}`},
		{"another host with a port", modern, "", "Host: 127.0.0.1.evil.example:80", call, 403, ``},
		{"another host, GET", modern, "GET", "Host: evil.example", "", 403, ``},
		{"our host", modern, "", "Host: Library.Example:8080", call, 200, ``},
		{"localhost", modern, "", "Host: localhost", call, 200, ``},
		{"an address", modern, "", "Host: [2001:db8::1]:80", call, 200, ``},

		{"GET", modern, "GET", "", "", 405, invalid + `GET has no meaning here: POST a JSON-RPC message"}}`},
		{"DELETE", modern, "DELETE", "", "", 405, invalid + `DELETE has no meaning here: `},
		{"GET in a session", old, "GET", "Accept: text/event-stream", "", 405, invalid + `GET has no meaning here: `},
		{"PUT", old, "PUT", "", list, 405, ``},

		{"nothing", modern, "", "", "", 400, `{"jsonrpc":"2.0","error":{"code":-32700,"message":"the message is not JSON"}}`},
		{"half a message", modern, "", "", call[:50], 400, `{"jsonrpc":"2.0","error":{"code":-32700,"message":"the message is not JSON"}}`},
		{"two messages", modern, "", "", call + call, 400, `{"jsonrpc":"2.0","error":{"code":-32700,"message":"the message is not JSON"}}`},
		{"a batch", old, "", "MCP-Protocol-Version: 2025-03-26", " \n[" + list + "]", 400, invalid + `a batch: POST each message by itself"}}`},
		{"a number", modern, "", "", "1", 400, invalid + `not JSON-RPC: not a JSON-RPC object"}}`},
		{"no version", old, "", "", `{"id":1,"method":"ping"}`, 400, invalid + `not JSON-RPC: no \"jsonrpc\":\"2.0\""}}`},
		{"id null", old, "", "", `{"jsonrpc":"2.0","id":null,"method":"ping"}`, 400, invalid + `not JSON-RPC: a request with the id null"}}`},
		{"params of a wrong kind", old, "", "", `{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}`, 400, `{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"ping: json: `},
		{"a long message", modern, "", "", call + strings.Repeat(" ", maxPost-len(call)), 200, ``},
		{"too long a message", modern, "", "", call + strings.Repeat(" ", maxPost-len(call)+1), 413, invalid + `the message has more than 4194304 bytes"}}`},
		{"a response", modern, "", "", `{"jsonrpc":"2.0","id":1,"result":{}}`, 400, invalid + `a response, which nobody waits for"}}`},

		{"no MCP-Protocol-Version", modern, "", "MCP-Protocol-Version: ", call, 400, mismatch + `MCP-Protocol-Version must be there once and say \"2026-07-28\", as the body does, not []"}}`},
		{"another MCP-Protocol-Version", modern, "", "MCP-Protocol-Version: 2025-11-25", call, 400, mismatch + `MCP-Protocol-Version must be there once and say \"2026-07-28\", as the body does, not [\"2025-11-25\"]"}}`},
		{"two of MCP-Protocol-Version", modern, "", "+MCP-Protocol-Version: 2026-07-28", call, 400, mismatch + `MCP-Protocol-Version must`},
		{"another version in the body", modern, "", "", strings.Replace(call, "2026-07-28", "2025-11-25", 1), 400, mismatch + `MCP-Protocol-Version must`},
		{"an unknown version", modern, "", "MCP-Protocol-Version: 2099-01-01", strings.Replace(call, "2026-07-28", "2099-01-01", 1), 400, `{"jsonrpc":"2.0","id":1,` + fmt.Sprintf(unsupported, "2099-01-01")},
		{"an old version", modern, "", "MCP-Protocol-Version: 2025-11-25", strings.Replace(call, "2026-07-28", "2025-11-25", 1), 400, `{"jsonrpc":"2.0","id":1,` + fmt.Sprintf(unsupported, "2025-11-25")},
		{"no _meta", modern, "", "", list, 400, `{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"tools/list needs io.modelcontextprotocol/protocolVersion in _meta"}}`},
		{"no capabilities", modern, "", "", strings.Replace(call, "clientCapabilities", "x", 1), 400, `{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"tools/call needs io.modelcontextprotocol/clientCapabilities in _meta, an object"}}`},
		{"no Mcp-Method", modern, "", "Mcp-Method: ", call, 400, mismatch + `Mcp-Method must be there once and say \"tools/call\", as the body does, not []"}}`},
		{"another Mcp-Method", modern, "", "Mcp-Method: tools/list", call, 400, mismatch + `Mcp-Method must`},
		{"Mcp-Method in another case", modern, "", "Mcp-Method: Tools/Call", call, 400, mismatch + `Mcp-Method must`},
		{"no Mcp-Name", modern, "", "Mcp-Name: ", call, 400, mismatch + `Mcp-Name must be there once and say \"get_document\", as the body does, not []"}}`},
		{"another Mcp-Name", modern, "", "Mcp-Name: search_chunks", call, 400, mismatch + `Mcp-Name must`},
		{"two of Mcp-Name", modern, "", "+Mcp-Name: get_document", call, 400, mismatch + `Mcp-Name must`},
		{"another Mcp-Name in Base64", modern, "", "Mcp-Name: =?base64?c2VhcmNo?=", call, 400, mismatch + `Mcp-Name must`},
		{"broken Base64", modern, "", "Mcp-Name: =?base64?Z2V0X2RvY3VtZW50!?=", call, 400, mismatch + `Mcp-Name must`},
		{"Base64 marked in another case", modern, "", "Mcp-Name: =?BASE64?Z2V0X2RvY3VtZW50?=", call, 400, mismatch + `Mcp-Name must`},
		{"Mcp-Name not ASCII", modern, "", "Mcp-Name: é", strings.Replace(call, "get_document", "é", 1), 400, mismatch + `Mcp-Name must be there once and say \"é\"`},
		{"Mcp-Name where the body has none", modern, "", "", libStateless("1", "tools/call", ""), 400, mismatch + `Mcp-Name must be there once and say \"\"`},
		{"another Mcp-Name of a resource", modern, "", "Mcp-Method: resources/read", libStateless("1", "resources/read", `"uri":"library:///a.go","name":"get_document",`), 400, mismatch + `Mcp-Name must`},
		{"another Mcp-Name of a prompt", modern, "", "Mcp-Method: prompts/get", libStateless("1", "prompts/get", `"name":"x","uri":"get_document",`), 400, mismatch + `Mcp-Name must`},

		{"no session", old, "", "Mcp-Session-Id: ", list, 400, `{"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"the header Mcp-Session-Id is missing: it came with the answer to initialize"}}`},
		{"no session for a notification", old, "", "Mcp-Session-Id: ", libInitialized, 400, invalid + `the header Mcp-Session-Id is missing`},
		{"no session for DELETE", old, "DELETE", "Mcp-Session-Id: ", "", 400, invalid + `the header Mcp-Session-Id is missing`},
		{"an unknown session", old, "", "Mcp-Session-Id: x", list, 404, `{"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"the session is unknown or has ended: begin anew with initialize"}}`},
		{"an unknown session for a notification", old, "", "Mcp-Session-Id: x", libInitialized, 404, invalid + `the session is unknown`},
		{"an unknown session for DELETE", old, "DELETE", "Mcp-Session-Id: x", "", 404, invalid + `the session is unknown`},
		{"an unknown version in a session", old, "", "MCP-Protocol-Version: 1.0", list, 400, `{"jsonrpc":"2.0","id":1,` + fmt.Sprintf(unsupported, "1.0")},
		{"an unknown version for DELETE", old, "DELETE", "MCP-Protocol-Version: 1.0", "", 400, `{"jsonrpc":"2.0",` + fmt.Sprintf(unsupported, "1.0")},

		{"at last", old, "", "", list, 200, ``}, // none of these has ended the session
	} {
		t.Run(cmp.Or(test.name, "as it should be"), func(t *testing.T) {
			s := &lhttp{t, s.h, s.url, s.client}
			a := s.do(cmp.Or(test.method, "POST"), lhttpHeader(append(test.base[:len(test.base):len(test.base)], strings.Split(test.change, "\n")...)...), test.body)
			assert.Equal(t, a.status, test.status, a.body)
			assert.Assert(t, strings.HasPrefix(a.body, test.want), "%s\nis not\n%s", a.body, test.want)
			assert.Assert(t, json.Valid([]byte(a.body)), a.body)
			assert.Equal(t, a.header.Get("Content-Type"), "application/json")
			allow := ""
			if a.status == 405 {
				allow = map[bool]string{true: "POST", false: "POST, DELETE"}[test.base[2] == modern[2]]
			}
			assert.Equal(t, a.header.Get("Allow"), allow)
		})
	}
	s.idle()
}

// lhttpEvents reads a stream: the data of each event, and ":" for each comment.
type lhttpEvents struct {
	t    *testing.T
	body *bufio.Reader
}

func newLHTTPEvents(t *testing.T, a *http.Response) *lhttpEvents {
	t.Helper()
	assert.Equal(t, a.StatusCode, 200)
	assert.Equal(t, a.Header.Get("Content-Type"), "text/event-stream")
	assert.Equal(t, a.Header.Get("X-Accel-Buffering"), "no")
	assert.Equal(t, a.Header.Get("Cache-Control"), "no-store")
	return &lhttpEvents{t, bufio.NewReader(a.Body)}
}

// next is the next event, "" at the end of the stream.
func (e *lhttpEvents) next() string {
	e.t.Helper()
	line, err := e.body.ReadString('\n')
	if err == io.EOF && line == "" {
		return ""
	}
	assert.NilError(e.t, err)
	blank, err := e.body.ReadString('\n')
	assert.NilError(e.t, err)
	assert.Equal(e.t, blank, "\n")
	return strings.TrimPrefix(strings.TrimSuffix(line, "\n"), "data: ")
}

// lhttpGate is a folder whose second file can be opened only when somebody has said so.
func lhttpGate() *libSlowFS {
	return &libSlowFS{
		FS:     fstest.MapFS{"0.md": {Data: []byte("x")}, "1.txt": {Data: []byte("y")}},
		opened: make(chan struct{}), release: make(chan struct{}),
	}
}

// Progress comes while the call runs, in both eras: here it cannot end before its progress was seen.
func TestLibraryHTTPProgress(t *testing.T) {
	checkLeaks(t)
	for _, era := range []string{"modern", "old"} {
		gate := lhttpGate()
		s := newLHTTP(t, NewLibrary(gate))
		release := sync.OnceFunc(func() { close(gate.release) })
		t.Cleanup(release)
		meta := strings.TrimSuffix(libMeta, "}") + `,"progressToken":"p"}`
		header := lhttpModern("tools/call", "list_documents")
		if era == "old" {
			meta, header = `{"progressToken":"p"}`, lhttpOld(s.session())
		}
		answer := s.open(t.Context(), "POST", header, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"list_documents","_meta":`+meta+`}}`)
		events := newLHTTPEvents(t, answer)
		progress := func(done int, name string) string {
			return fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"message":"indexing %s","progress":%d,"progressToken":"p","total":2}}`, name, done)
		}
		assert.Equal(t, events.next(), progress(1, "0.md"))
		release()
		assert.Equal(t, events.next(), progress(2, "1.txt"))
		assert.Assert(t, is.Contains(events.next(), `{"jsonrpc":"2.0","id":1,"result":{`))
		assert.Equal(t, events.next(), "")
	}
}

// Whoever cancels a request, it ends, without a response, and is remembered no more.
func TestLibraryHTTPCancellation(t *testing.T) {
	checkLeaks(t)
	l := libSmall()
	s := newLHTTP(t, l)
	session := s.session()
	kept := s.sessions()[0]
	call := func(id string) string {
		return `{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"list_documents"}}`
	}
	cancel := func(id string) {
		t.Helper()
		assert.Equal(t, s.old(session, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":`+id+`}}`).status, 202)
	}
	l.turn <- struct{}{} // nobody can read the documents now
	begin := func(id string) (ended <-chan *http.Response) {
		answered := make(chan *http.Response)
		go func() {
			r, _ := http.NewRequestWithContext(t.Context(), "POST", s.url, strings.NewReader(call(id)))
			r.Header = lhttpOld(session)
			answer, err := s.client.Do(r)
			if err == nil {
				answer.Body.Close()
			}
			answered <- answer
		}()
		for { // until it is at work
			if _, ok := kept.running.Load(id); ok {
				return answered
			}
			time.Sleep(time.Millisecond)
		}
	}
	one, two, three := begin(`1`), begin(`"1"`), begin(`3`)
	a := s.old(session, call("1"))
	assert.DeepEqual(t, []any{a.status, a.body}, []any{400, `{"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"a request with the id 1 is at work"}}`})
	cancel(`4`)
	cancel(`1`)
	answer := <-one
	assert.Equal(t, answer.StatusCode, 200)
	assert.Equal(t, answer.Header.Get("Content-Type"), "text/event-stream")
	cancel(`"1"`)
	<-two
	other := s.session()
	assert.Equal(t, s.old(other, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":3}}`).status, 202) // not of its requests
	select {
	case <-three:
		t.Fatal("cancelled by another client")
	default:
	}
	assert.Equal(t, s.do("DELETE", lhttpOld(session), "").status, 204)
	<-three
	<-l.turn
	assert.Equal(t, s.old(other, call("1")).status, 200)
	s.idle()
}

// A client that goes cancels its request, in both eras.
func TestLibraryHTTPDisconnection(t *testing.T) {
	checkLeaks(t)
	l := libSmall()
	s := newLHTTP(t, l)
	l.turn <- struct{}{} // nobody can read the documents now
	for body, header := range map[string]http.Header{
		libStateless("1", "tools/call", lhttpRead):                                          lhttpModern("tools/call", "get_document"),
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"list_documents"}}`: lhttpOld(s.session()),
	} {
		ctx, leave := context.WithCancel(t.Context())
		left := make(chan error)
		go func() {
			r, _ := http.NewRequestWithContext(ctx, "POST", s.url, strings.NewReader(body))
			r.Header = header
			_, err := s.client.Do(r)
			left <- err
		}()
		for len(s.h.slots) == 0 {
			time.Sleep(time.Millisecond)
		}
		leave()
		assert.ErrorIs(t, <-left, context.Canceled)
		s.idle() // though the documents cannot be read yet
	}
}

func TestLibraryHTTPSubscription(t *testing.T) {
	checkLeaks(t)
	s := newLHTTP(t, libSmall())
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	answer := s.open(ctx, "POST", lhttpModern("subscriptions/listen", ""), libStateless(`"s"`, "subscriptions/listen", `"notifications":{"toolsListChanged":true},`))
	events := newLHTTPEvents(t, answer)
	assert.Equal(t, events.next(), `{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"s"},"notifications":{}}}`)
	assert.Equal(t, len(s.h.slots), 1)
	leave()
	s.idle()

	a := s.modern("1", "subscriptions/listen", "", "")
	assert.DeepEqual(t, []any{a.status, a.body}, []any{200, `{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"subscriptions/listen needs notifications, an object"}}`})
}

// There are as many sessions as there may be: one more is in the place of the one that was not used for the longest time.
func TestLibraryHTTPSessionsAreBounded(t *testing.T) {
	checkLeaks(t)
	s := newLHTTP(t, libSmall())
	const ping, pong = `{"jsonrpc":"2.0","id":1,"method":"ping"}`, `{"jsonrpc":"2.0","id":1,"result":{}}`
	begin := func() (id string) {
		w := httptest.NewRecorder()
		r := httptest.NewRequest("POST", "http://localhost/", strings.NewReader(libInitialize))
		r.Header = lhttpHeader(lhttpBase()...)
		s.h.ServeHTTP(w, r)
		return w.Result().Header.Get("Mcp-Session-Id")
	}
	var ids []string
	for range maxSessions {
		ids = append(ids, begin())
	}
	assert.Equal(t, s.old(ids[0], ping).body, pong) // used
	begin()
	assert.Equal(t, len(s.sessions()), maxSessions)
	assert.Equal(t, s.old(ids[1], ping).status, 404)
	assert.Equal(t, s.old(ids[0], ping).body, pong)
	assert.Equal(t, s.old(ids[2], ping).body, pong)
}

func TestLibraryHTTPMessagesAreBounded(t *testing.T) {
	checkLeaks(t)
	s := newLHTTP(t, libSmall())
	for range maxPosts {
		s.h.slots <- struct{}{}
	}
	a := s.modern("1", "tools/list", "", "")
	assert.DeepEqual(t, []any{a.status, a.body, a.header.Get("Retry-After")},
		[]any{503, `{"jsonrpc":"2.0","error":{"code":-32600,"message":"256 messages are at work: try again"}}`, "1"})
	<-s.h.slots
	assert.Equal(t, s.modern("1", "tools/list", "", "").status, 200)
}

// Many clients at once, of both eras.
func TestLibraryHTTPConcurrently(t *testing.T) {
	checkLeaks(t)
	s := newLHTTP(t, libSmall())
	var clients sync.WaitGroup
	for i := range 16 {
		clients.Go(func() {
			var session string
			if i%2 == 0 {
				session = s.session()
			}
			for range 10 {
				a := lhttpAnswer{}
				if session != "" {
					a = s.old(session, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{`+strings.TrimSuffix(lhttpRead, ",")+`}}`)
				} else {
					a = s.modern("1", "tools/call", "get_document", lhttpRead)
				}
				if !strings.Contains(a.body, "and plums") {
					t.Error(a.body)
				}
			}
		})
	}
	clients.Wait()
}

// lhttpPipes is a listener in memory, for time to be testing/synctest's.
type lhttpPipes struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func (p *lhttpPipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *lhttpPipes) Close() error {
	p.once.Do(func() { close(p.done) })
	return nil
}

func (p *lhttpPipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80} }

func (p *lhttpPipes) dial(context.Context, string, string) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case p.conns <- there:
		return here, nil
	case <-p.done:
		return nil, errors.New("connection refused")
	}
}

// lhttpServed runs a test while a library is served, in a bubble of time. end ends the serving and returns what Serve did.
func lhttpServed(t *testing.T, l *Library, test func(t *testing.T, s *lhttp, pipes *lhttpPipes, end func() error)) {
	synctest.Test(t, func(t *testing.T) {
		pipes := &lhttpPipes{conns: make(chan net.Conn), done: make(chan struct{})}
		transport := &http.Transport{DialContext: pipes.dial}
		h := NewLibraryHTTP(l)
		ctx, cancel := context.WithCancelCause(context.Background())
		served := make(chan error, 1)
		go func() { served <- h.Serve(ctx, pipes) }()
		end := sync.OnceValue(func() error {
			cancel(errors.New("enough"))
			return <-served
		})
		test(t, &lhttp{t, h, "http://localhost/mcp", &http.Client{Transport: transport}}, pipes, end)
		assert.Error(t, end(), "enough")
		transport.CloseIdleConnections()
	})
}

// A quiet stream says every 15 seconds that it is still there. At the server's end it has its response.
func TestLibraryHTTPQuietStream(t *testing.T) {
	lhttpServed(t, libSmall(), func(t *testing.T, s *lhttp, _ *lhttpPipes, end func() error) {
		answer := s.open(t.Context(), "POST", lhttpModern("subscriptions/listen", ""), libStateless("1", "subscriptions/listen", `"notifications":{},`))
		events := newLHTTPEvents(t, answer)
		assert.Assert(t, is.Contains(events.next(), "acknowledged"))
		begun := time.Now()
		for i := range 5 {
			assert.Equal(t, events.next(), ":")
			assert.Equal(t, time.Since(begun), time.Duration(i+1)*15*time.Second)
		}
		ended := make(chan error)
		go func() { ended <- end() }()
		assert.Equal(t, events.next(), `{"jsonrpc":"2.0","id":1,"result":{"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"library","version":"0"},`+
			`"io.modelcontextprotocol/subscriptionId":1},"resultType":"complete"}}`)
		assert.Equal(t, events.next(), "")
		assert.Error(t, <-ended, "enough")
		assert.Assert(t, time.Since(begun) < 76*time.Second) // at once
	})
}

// At the server's end, a request at work has five seconds; then it is broken off.
func TestLibraryHTTPServeEnds(t *testing.T) {
	for _, ready := range []bool{true, false} {
		l := libSmall()
		l.turn = nil // of the bubble
		lhttpServed(t, l, func(t *testing.T, s *lhttp, _ *lhttpPipes, end func() error) {
			l.turn = make(chan struct{}, 1)
			l.turn <- struct{}{}
			begun := time.Now()
			answered := make(chan string)
			go func() {
				r, _ := http.NewRequest("POST", s.url, strings.NewReader(libStateless("1", "tools/call", lhttpRead)))
				r.Header = lhttpModern("tools/call", "get_document")
				answer, err := s.client.Do(r)
				if err != nil {
					answered <- err.Error()
					return
				}
				defer answer.Body.Close()
				text, _ := io.ReadAll(answer.Body)
				answered <- string(text)
			}()
			synctest.Wait()
			assert.Equal(t, len(s.h.slots), 1)
			ended := make(chan error)
			go func() { ended <- end() }()
			time.Sleep(4 * time.Second)
			_, err := s.client.Get(s.url)
			assert.ErrorContains(t, err, "connection refused") // nothing new
			if ready {
				<-l.turn
				assert.Assert(t, is.Contains(<-answered, "and plums"))
			} else {
				assert.Assert(t, is.Contains(<-answered, "EOF"))
				assert.Equal(t, time.Since(begun), 5*time.Second)
			}
			<-ended
		})
	}
}

// No client keeps the server by being slow.
func TestLibraryHTTPSlowClients(t *testing.T) {
	head := "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nMCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/list\r\n"
	list := libStateless("1", "tools/list", "")
	for _, test := range []struct {
		name, sends string
		reads       bool
		after       time.Duration
		answer      string
	}{
		{"says nothing", "", true, headerTime, ""},
		{"breaks off in the header", head, true, headerTime, ""},
		{"breaks off in the body", head + "Content-Length: 1000\r\n\r\n" + list[:20], true, bodyTime, "HTTP/1.1 400 Bad Request"},
		{"asks nothing more", fmt.Sprintf("%sContent-Length: %d\r\n\r\n%s", head, len(list), list), true, idleTime, "HTTP/1.1 200 OK"},
		{"does not read", fmt.Sprintf("%sContent-Length: %d\r\n\r\n%s", head, len(list), list), false, writeTime, ""},
		{"does not read that a notification is accepted", fmt.Sprintf("%sContent-Length: %d\r\n\r\n%s", head, len(libInitialized), libInitialized), false, writeTime, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			lhttpServed(t, libSmall(), func(t *testing.T, s *lhttp, pipes *lhttpPipes, _ func() error) {
				c, err := pipes.dial(t.Context(), "", "")
				assert.NilError(t, err)
				defer c.Close()
				begun := time.Now()
				_, err = io.WriteString(c, test.sends)
				assert.NilError(t, err)
				var answer []byte
				if test.reads {
					answer, err = io.ReadAll(c)
					assert.NilError(t, err)
				} else {
					synctest.Wait()
					time.Sleep(test.after)
					synctest.Wait()
					_, err = c.Write([]byte("x"))
					assert.ErrorIs(t, err, io.ErrClosedPipe)
				}
				line, _, _ := strings.Cut(string(answer), "\r\n")
				assert.Equal(t, line, test.answer)
				assert.Equal(t, time.Since(begun), test.after)
				assert.Equal(t, len(s.h.slots), 0)
			})
		})
	}
	t.Run("does not read a stream", func(t *testing.T) {
		lhttpServed(t, libSmall(), func(t *testing.T, s *lhttp, pipes *lhttpPipes, _ func() error) {
			c, err := pipes.dial(t.Context(), "", "")
			assert.NilError(t, err)
			defer c.Close()
			listen := libStateless("1", "subscriptions/listen", `"notifications":{},`)
			fmt.Fprintf(c, "%sContent-Length: %d\r\n\r\n%s", strings.Replace(head, "tools/list", "subscriptions/listen", 1), len(listen), listen)
			synctest.Wait()
			assert.Equal(t, len(s.h.slots), 1)
			time.Sleep(writeTime)
			synctest.Wait()
			assert.Equal(t, len(s.h.slots), 0)
		})
	})
	t.Run("reads no more of a stream", func(t *testing.T) {
		lhttpServed(t, libSmall(), func(t *testing.T, s *lhttp, pipes *lhttpPipes, _ func() error) {
			c, err := pipes.dial(t.Context(), "", "")
			assert.NilError(t, err)
			defer c.Close()
			listen := libStateless("1", "subscriptions/listen", `"notifications":{},`)
			fmt.Fprintf(c, "%sContent-Length: %d\r\n\r\n%s", strings.Replace(head, "tools/list", "subscriptions/listen", 1), len(listen), listen)
			for text := ""; !strings.Contains(text, "acknowledged"); {
				b := make([]byte, 1000)
				n, err := c.Read(b)
				assert.NilError(t, err)
				text += string(b[:n])
			}
			time.Sleep(quietTime + writeTime)
			synctest.Wait()
			assert.Equal(t, len(s.h.slots), 0)
		})
	})
}

// A request may take longer than its header, its body or a write.
func TestLibraryHTTPSlowRequest(t *testing.T) {
	l := libSmall()
	l.turn = nil
	lhttpServed(t, l, func(t *testing.T, s *lhttp, _ *lhttpPipes, _ func() error) {
		l.turn = make(chan struct{}, 1)
		l.turn <- struct{}{}
		time.AfterFunc(time.Hour, func() { <-l.turn })
		assert.Assert(t, is.Contains(s.modern("1", "tools/call", "get_document", lhttpRead).body, "and plums"))
	})
}

// The client of this program and its server understand each other over HTTP in every revision.
func TestLibraryHTTPWithClient(t *testing.T) {
	checkLeaks(t)
	for _, revision := range append(Revisions(), "") {
		t.Run(revision, func(t *testing.T) {
			checkLeaks(t)
			l := libMany(230)
			l.FS.(fstest.MapFS)["a b/é.md"] = &fstest.MapFile{Data: []byte("# Tea\n\nGreen tea wants 80 degrees.\n")}
			s := newLHTTP(t, l)
			c, err := Connect(t.Context(), &ParamHeaders{HTTP: &HTTP{URL: s.url}}, &ClientOptions{Protocol: revision, Stray: func(message []byte, reason error) {
				t.Errorf("%s: %v", message, reason)
			}})
			assert.NilError(t, err)
			version := cmp.Or(revision, "2026-07-28")
			sessions := map[bool]int{true: 0, false: 1}[version == "2026-07-28"]
			assert.Equal(t, c.Server.ProtocolVersion, version)
			assert.Equal(t, c.Server.Implementation.Name, "library")
			assert.Equal(t, len(s.sessions()), sessions)

			tools, err := c.ListTools(t.Context())
			assert.NilError(t, err)
			assert.Equal(t, len(tools), 3)
			var progress []float64
			result, err := c.CallTool(t.Context(), "search_chunks", json.RawMessage(`{"query":"green tea"}`), func(p Progress) { progress = append(progress, p.Progress) })
			assert.NilError(t, err)
			assert.Assert(t, !result.IsError && len(result.StructuredContent) > 0)
			assert.Assert(t, len(progress) >= 20 && progress[len(progress)-1] == 231, "%v", progress)
			resources, err := c.ListResources(t.Context())
			assert.NilError(t, err)
			assert.Equal(t, len(resources), 231)
			contents, err := c.ReadResource(t.Context(), resources[230].URI)
			assert.NilError(t, err)
			assert.Equal(t, contents[0].Text, "# Tea\n\nGreen tea wants 80 degrees.\n")
			_, err = c.ReadResource(t.Context(), "library:///no é") // a name that no header can hold
			var refusal *Error
			assert.Assert(t, errors.As(err, &refusal) && strings.Contains(refusal.Message, "there is no such resource"), "%v", err)
			completion, err := c.CompleteResource(t.Context(), "library:///{+source}", "source", "É", nil)
			assert.NilError(t, err)
			assert.DeepEqual(t, completion.Values, []string{"a b/é.md"})
			_, err = c.GetPrompt(t.Context(), "answer_from_library", nil)
			assert.Assert(t, errors.As(err, &refusal) && refusal.Code == CodeInvalidParams, "%v", err)
			_, err = c.CallTool(t.Context(), "none", nil, nil)
			assert.Assert(t, errors.As(err, &refusal) && refusal.Message == "unknown tool: none", "%v", err)

			if sessions > 0 { // as if it were one too many
				s.h.mu.Lock()
				s.h.sessions = nil
				s.h.mu.Unlock()
				_, err = c.CallTool(t.Context(), "list_documents", nil, nil)
				assert.NilError(t, err)
			}

			ctx, stop := context.WithCancelCause(t.Context())
			enough := errors.New("enough")
			listened := make(chan error)
			go func() {
				listened <- c.Listen(ctx, Subscription{Tools: true, Resources: true}, func(Change) { t.Error("nothing changes") })
			}()
			if sessions == 0 {
				for len(s.h.slots) == 0 {
					time.Sleep(time.Millisecond)
				}
			}
			stop(enough)
			assert.ErrorIs(t, <-listened, enough)
			s.idle()
			assert.Equal(t, len(s.sessions()), sessions)
			assert.NilError(t, c.Close())
			assert.Equal(t, len(s.sessions()), 0)
			s.client.CloseIdleConnections()
		})
	}
}

func TestLibraryHTTPServe(t *testing.T) {
	checkLeaks(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	assert.NilError(t, err)
	served := make(chan error)
	go func() { served <- NewLibraryHTTP(libSmall()).Serve(t.Context(), listener) }()
	s := &lhttp{t: t, client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
	for path, want := range map[string]int{"/mcp": 200, "/": 404, "/sse": 404, "/mcp/x": 404} {
		s.url = "http://" + listener.Addr().String() + path
		a := s.modern("1", "tools/list", "", "")
		assert.Equal(t, a.status, want)
		if want == 404 {
			assert.Equal(t, a.body, `{"jsonrpc":"2.0","error":{"code":-32600,"message":"there is nothing at `+path+`: the endpoint is /mcp"}}`)
		}
	}
	listener.Close()
	assert.ErrorIs(t, <-served, net.ErrClosed)
}
