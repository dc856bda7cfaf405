package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"math/rand"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

// libPair returns the two ends of a connection in memory.
func libPair() (client, server *Lines) {
	fromClient, toServer := io.Pipe()
	fromServer, toClient := io.Pipe()
	return NewLines(fromServer, toServer), NewLines(fromClient, toClient)
}

func libSmall() *Library {
	return NewLibrary(fstest.MapFS{
		"a/one.md": {Data: []byte("# One\n\nApples & <pears>.\n\n\n")},
		"a.go":     {Data: []byte("package a\n\n// F eats apples.\nfunc F() {}\n")},
		"Two.TXT":  {Data: []byte("Apples\r\nand plums")},
	})
}

// libMany is a library of n documents.
func libMany(n int) *Library {
	files := fstest.MapFS{}
	for i := range n {
		files[fmt.Sprintf("%03d.txt", i)] = &fstest.MapFile{Data: []byte("x")}
	}
	return NewLibrary(files)
}

const (
	libInitialize  = `{"jsonrpc":"2.0","id":"init","method":"initialize","params":{"protocolVersion":"2025-11-25"}}`
	libInitialized = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
	libMeta        = `{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
		`"io.modelcontextprotocol/clientCapabilities":{}}`
	libServerInfo = `"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"library","version":"0"}}`
	libRevisions  = `["2026-07-28","2025-11-25","2025-06-18","2025-03-26","2024-11-05"]`
)

// libStateless is a request of the stateless era. The params are members of an object, each with a comma after it.
func libStateless(id, method, params string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":{%s"_meta":%s}}`, id, method, params, libMeta)
}

// libOld is a request of the handshake era.
func libOld(id, method, params string) string {
	params = strings.TrimSuffix(params, ",")
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":{%s}}`, id, method, params)
}

// libSession sends lines to a library on stdio and returns the responses by their ids.
func libSession(t testing.TB, l *Library, lines ...string) (responses map[string]string) {
	t.Helper()
	var out bytes.Buffer
	assert.NilError(t, l.Serve(t.Context(), NewLines(strings.NewReader(strings.Join(lines, "\n")), &out)))
	responses = map[string]string{}
	for line := range strings.Lines(out.String()) {
		var m struct{ ID json.RawMessage }
		assert.NilError(t, json.Unmarshal([]byte(line), &m))
		assert.Equal(t, responses[string(m.ID)], "", "two responses")
		responses[string(m.ID)] = strings.TrimSpace(line)
	}
	return responses
}

// libCall calls a tool. If the result is structured, its text is the same JSON.
func libCall(t *testing.T, l *Library, name, arguments string) *ToolResult {
	t.Helper()
	response := libSession(t, l, libOld("1", "tools/call", fmt.Sprintf(`"name":%q,"arguments":%s`, name, arguments)))["1"]
	var m struct{ Result *ToolResult }
	assert.NilError(t, json.Unmarshal([]byte(response), &m))
	assert.Assert(t, m.Result != nil && len(m.Result.Content) == 1, response)
	if m.Result.StructuredContent != nil {
		var text, structured any
		assert.NilError(t, json.Unmarshal([]byte(m.Result.Content[0].Text), &text))
		assert.NilError(t, json.Unmarshal(m.Result.StructuredContent, &structured))
		assert.DeepEqual(t, text, structured)
	}
	return m.Result
}

func libSearch(t *testing.T, l *Library, arguments string) (reply SearchReply) {
	t.Helper()
	result := libCall(t, l, "search_chunks", arguments)
	assert.Assert(t, !result.IsError, "%v", result.Content)
	assert.NilError(t, json.Unmarshal(result.StructuredContent, &reply))
	return reply
}

// Every response, on stdio and over HTTP. A want that ends with … is the beginning of the response.
func TestLibraryResponses(t *testing.T) {
	checkLeaks(t)
	const (
		old, modern  = "old", "modern"
		offers       = `"capabilities":{"prompts":{},"resources":{},"tools":{}},`
		instructions = `"instructions":"Search with search_chunks first; read more of a source with get_document.",`
		text         = `"content":[{"type":"text","text":"Apples\r\nand plums"}]`
		contents     = `"contents":[{"mimeType":"text/plain","text":"Apples\r\nand plums","uri":"library:///Two.TXT"}]`
		noResource   = `"message":"resource not found: resources/list names them","data":{"uri":"library:///none"}}`
		templates    = `"resourceTemplates":[{"uriTemplate":"library:///{+source}","name":"document","title":"Document",` +
			`"description":"The text of a document, by its path"}]`
		resources = `"resources":[{"uri":"library:///Two.TXT","name":"Two.TXT","mimeType":"text/plain","size":17},` +
			`{"uri":"library:///a/one.md","name":"a/one.md","mimeType":"text/markdown","size":27},` +
			`{"uri":"library:///a.go","name":"a.go","mimeType":"text/plain","size":41}]`
		documents = `{"documents":[{"lines":2,"source":"Two.TXT"},{"lines":5,"source":"a/one.md"},` +
			`{"lines":4,"source":"a.go"}],"library":"3 documents","total_count":3}`
		read    = `"name":"get_document","arguments":{"source":"Two.TXT"},`
		ask     = `"name":"answer_from_library","arguments":`
		missing = `"error":{"code":-32601,"message":"method not found: `
		invalid = `"error":{"code":-32602,"message":"`
		public  = `"cacheScope":"public",`
		private = `"cacheScope":"private",`
		stale   = `"resultType":"complete","ttlMs":0}`
		hour    = `"resultType":"complete","ttlMs":3600000}`
	)
	s := newLHTTP(t, libSmall())
	for _, test := range []struct{ era, method, params, want string }{
		{old, "ping", ``, `"result":{}`},
		{old, "tools/call", read, `"result":{` + text + `}`},
		{old, "tools/call", `"name":"search"`, invalid + `unknown tool: search"}`},
		{old, "tools/call", `"name":7`, invalid + `unknown tool: 7"}`},
		{old, "tools/call", `"NAME":"list_documents","name":"none"`, invalid + `unknown tool: none"}`},
		{old, "tools/call", `"name":"get_document","arguments":{"uri":"Two.TXT"}`, `"result":{"content":[{"type":"text",` +
			`"text":"get_document: there is no argument \"uri\"; the arguments are: source, start_line, end_line"}],` +
			`"isError":true}`},
		{old, "tools/call", `"name":"list_documents"`, `"result":{"content":[{"type":"text","text":` +
			string(TextContent(documents)) + `}],"structuredContent":` + documents + `}`},
		{old, "server/discover", ``, missing + `server/discover"}`},
		{old, "subscriptions/listen", `"notifications":{}`, missing + `subscriptions/listen"}`},
		{old, "resources/read", `"uri":"library:///Two.TXT"`, `"result":{` + contents + `}`},
		{old, "resources/read", `"uri":"library:///none"`, `"error":{"code":-32002,` + noResource},
		{old, "resources/read", `"uri":7`, `"error":{"code":-32002,"message":"resource not found: …`},
		{old, "resources/read", `"URI":"library:///Two.TXT"`, `"error":{"code":-32002,"message":"resource not found: …`},
		{old, "resources/list", ``, `"result":{` + resources + `}`},
		{old, "resources/templates/list", `"_meta":{"progressToken":null}`, `"result":{` + templates + `}`},
		{old, "prompts/list", `"cursor":null`, `"result":{"prompts":[{"name":"answer_from_library",…`},
		{modern, "tools/call", read, `"result":{` + libServerInfo + `,` + text + `,"resultType":"complete"}`},
		{modern, "tools/call", `"name":"é",`, invalid + `unknown tool: é"}`},
		{modern, "tools/call", `"name":"search_chunks","arguments":{},`, `"result":{` + libServerInfo +
			`,"content":[{"type":"text","text":"search_chunks: query is missing or empty: give a question or key words"}],` +
			`"isError":true,"resultType":"complete"}`},
		{modern, "server/discover", ``, `"result":{` + libServerInfo + `,` + public + offers + instructions +
			`"resultType":"complete","supportedVersions":` + libRevisions + `,"ttlMs":3600000}`},
		{modern, "initialize", `"protocolVersion":"2025-06-18",`, missing + `initialize"}`},
		{modern, "ping", ``, missing + `ping"}`},
		{modern, "resources/read", `"uri":"library:///Two.TXT",`, `"result":{` + libServerInfo + `,` + private + contents +
			`,` + stale},
		{modern, "resources/read", `"uri":"library:///none",`, `"error":{"code":-32602,` + noResource},
		{modern, "resources/read", `"uri":"file:///a.go",`, invalid + `resource not found: …`},
		{modern, "resources/list", ``, `"result":{` + libServerInfo + `,` + private + resources[:len(resources)-1] + `],` +
			stale},
		{modern, "resources/templates/list", ``, `"result":{` + libServerInfo + `,` + public + templates + `,` + hour},
		{modern, "tools/list", ``, `"result":{` + libServerInfo + `,` + public + `"resultType":"complete","tools":[{…`},
		{modern, "prompts/get", ask + `{"question":" Why \"so\"? "},`, `"result":{` + libServerInfo +
			`,"description":"Answer from the library, with sources","messages":[{"role":"user","content":{"type":"text",` +
			`"text":"Answer the question below from the library alone. …`},
		{modern, "prompts/get", `"name":"answer",`, invalid + `unknown prompt: answer"}`},
		{modern, "prompts/get", ask + `{"question":" "},`, invalid + `answer_from_library needs the argument question"}`},
		{modern, "prompts/get", ask + `["why"],`, invalid + `answer_from_library needs the argument question"}`},
	} {
		t.Run(test.era+" "+test.method+" "+test.params, func(t *testing.T) {
			message, header := libOld("1", test.method, test.params), lhttpOld()
			if test.era == modern {
				var p struct{ Name, URI string }
				assert.NilError(t, json.Unmarshal([]byte("{"+strings.TrimSuffix(test.params, ",")+"}"), &p))
				header = lhttpModern(test.method, headerValue(cmp.Or(p.Name, p.URI)))
				message = libStateless("1", test.method, test.params)
			}
			answer := s.do("POST", header, message)
			for _, response := range []string{libSession(t, libSmall(), message)["1"], answer.body} {
				want, begins := strings.CutSuffix(`{"jsonrpc":"2.0","id":1,`+test.want, "…")
				if begins {
					response = response[:min(len(want), len(response))]
				} else {
					want += "}"
				}
				assert.Equal(t, response, want)
			}
			status := 200
			if test.era == modern && strings.HasPrefix(test.want, missing) {
				status = 404
			}
			assert.Equal(t, answer.status, status)
			assert.Equal(t, answer.header.Get("Content-Type"), "application/json")
			assert.Equal(t, answer.header.Get("Mcp-Session-Id"), "")
		})
	}
	for offered, want := range map[string]string{
		"2024-11-05": "2024-11-05", "2025-06-18": "2025-06-18", "2025-11-25": "2025-11-25",
		"2025-03-26": "2025-03-26", "2099-01-01": "2025-11-25", "2026-07-28": "2025-11-25", "": "2025-11-25",
	} {
		assert.Equal(t, libSession(t, libSmall(), strings.Replace(libInitialize, "2025-11-25", offered, 1))[`"init"`],
			`{"jsonrpc":"2.0","id":"init","result":{`+offers+instructions+`"protocolVersion":"`+want+
				`","serverInfo":{"name":"library","version":"0"}}}`)
	}
	assert.Assert(t, is.Contains(libSession(t, libSmall(), libOld("1", "initialize", `"protocolVersion":7`))["1"],
		`"protocolVersion":"2025-11-25"`))
	for _, method := range []string{"resources/list", "tools/list", "prompts/list", "resources/templates/list"} {
		for cursor, want := range map[string]string{
			`"1"`: method + `: unknown cursor \"1\"`,
			`7`:   method + `: unknown cursor \"7\"`,
		} {
			response := libSession(t, libSmall(), libStateless("1", method, `"cursor":`+cursor+`,`))["1"]
			assert.Assert(t, is.Contains(response, `"error":{"code":-32602,"message":"`+want))
		}
	}
	empty := libSession(t, libMany(0), libOld("1", "resources/list", ``))["1"]
	assert.Assert(t, is.Contains(empty, `"resources":[]`))
}

// A request of either era can be the first of a connection, and a strange one is no reason to end it.
func TestLibraryServesBothErasAtOnce(t *testing.T) {
	lines := []string{libStateless("-1", "tools/list", ""), libOld("-2", "tools/list", ""), "not JSON", libInitialize,
		libInitialized, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"unknown"}}`}
	for i := range 20 {
		lines = append(lines, libOld(fmt.Sprint(i), "tools/call", `"name":"list_documents"`))
	}
	responses := libSession(t, libSmall(), lines...)
	assert.Equal(t, len(responses), 23)
	for _, response := range responses {
		assert.Assert(t, is.Contains(response, `"result":{`))
	}
}

func TestLibraryMeta(t *testing.T) {
	const version = `"io.modelcontextprotocol/protocolVersion":`
	const capabilities = `"io.modelcontextprotocol/clientCapabilities":`
	const noVersion = `"code":-32602,"message":"tools/list needs io.modelcontextprotocol/protocolVersion in _meta"`
	const noCapabilities = `"code":-32602,"message":"tools/list needs io.modelcontextprotocol/clientCapabilities in _meta`
	const unsupported = `"code":-32022,"message":"unsupported protocol version; those before 2026-07-28 begin with ` +
		`initialize","data":{"requested":"2099-01-01","supported":` + libRevisions + `}`
	for params, want := range map[string]string{
		`{"_meta":{` + version + `"2026-07-28",` + capabilities + `{"roots":{}},"progressToken":1}}`: `"result":{`,
		`{"_meta":{"progressToken":1}}`:                                    `"result":{`,
		`{"_meta":{` + capabilities + `{}}}`:                               noVersion,
		`{"_meta":{` + version + `null,` + capabilities + `{}}}`:           noVersion,
		`{"_meta":{` + version + `"",` + capabilities + `{}}}`:             noVersion,
		`{"_meta":{` + version + `"2026-07-28"}}`:                          noCapabilities,
		`{"_meta":{` + version + `"2026-07-28",` + capabilities + `null}}`: noCapabilities,
		`{"_meta":{` + version + `"2026-07-28",` + capabilities + `[]}}`:   noCapabilities,
		`{"_meta":{` + version + `"2099-01-01",` + capabilities + `{}}}`:   unsupported,
		`{"_meta":{` + version + `"2099-01-01"}}`:                          unsupported,
		`{"_meta":{` + version + `20260728,` + capabilities + `{}}}`:       `"data":{"requested":"20260728",`,
		`[]`:            `"result":{`,
		`{"_meta":"x"}`: `"result":{`,
	} {
		request := `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":` + params + `}`
		assert.Assert(t, is.Contains(libSession(t, libSmall(), request)["1"], want), params)
	}
}

func TestLibraryArguments(t *testing.T) {
	l := NewLibrary(fstest.MapFS{
		"a.txt": {Data: []byte("one\ntwo\nthree")}, "b.txt": {Data: []byte("four\n")}, "empty.txt": {},
	})
	const noQuery = "query is missing or empty: give a question or key words"
	for _, test := range []struct{ tool, arguments, want string }{
		{"get_document", `{"source":"a.txt"}`, "one\ntwo\nthree"},
		{"get_document", `{"source":"a.txt","start_line":2}`, "two\nthree"},
		{"get_document", `{"source":"a.txt","start_line":2,"end_line":2}`, "two\n"},
		{"get_document", `{"source":"b.txt","start_line":1,"end_line":1}`, "four\n"},
		{"get_document", `{"source":"empty.txt"}`, ""},
		{"search_chunks", `{"query":"zebra"}`, `{"results":[],"total_count":0,"query":"zebra"}`},
		{"list_documents", `{"source_filter":"zebra"}`, `{"documents":[],"library":"3 documents","total_count":0}`},
		{"search_chunks", `null`, "!" + noQuery},
		{"search_chunks", `{"query":" "}`, "!" + noQuery},
		{"search_chunks", `["x"]`, "!arguments must be an object, not an array"},
		{"search_chunks", `true`, "!arguments must be an object, not a boolean"},
		{"search_chunks", `5`, "!arguments must be an object, not a number"},
		{"search_chunks", `{"query":["x"]}`, "!arguments.query must be a string, not an array"},
		{"search_chunks", `{"query":5}`, "!arguments.query must be a string, not a number"},
		{"search_chunks", `{"query":"x","limit":"5"}`, "!arguments.limit must be a number, not a string"},
		{"search_chunks", `{"query":"x","limit":{}}`, "!arguments.limit must be a number, not an object"},
		{"search_chunks", `{"query":"x","limit":1e400}`, "!arguments.limit must be a number of 64 bits, not 1e400"},
		{"search_chunks", `{"query":"x","author_filter":"me"}`,
			`!there is no argument "author_filter"; the arguments are: query, limit, min_similarity, source_filter`},
		{"list_documents", `{"query":"x"}`, `!there is no argument "query"; the arguments are: source_filter`},
		{"get_document", `{"source":"a.txt","end_line":"2"}`, "!arguments.end_line must be a number, not a string"},
		{"get_document", `{"source":"a.txt","start_line":2.0,"end_line":1e30}`, "two\nthree"},
		{"get_document", `{"source":"a.txt","start_line":10.5}`, "!arguments.start_line must be a whole number, not 10.5"},
		{"get_document", `{"source":"a.txt","end_line":1.5e0}`, "!arguments.end_line must be a whole number, not 1.5e0"},
		{"get_document", `{"source":"a.txt","start_line":null,"end_line":null}`, "one\ntwo\nthree"},
		{"get_document", `{"source":"a.txt","end_line":5}`, "one\ntwo\nthree"},
		{"get_document", `{"source":"a.txt","start_line":4}`, ""}, // all was read
		{"get_document", `{"source":"a.txt","start_line":2,"end_line":0}`, "two\nthree"},
		{"get_document", `{}`, `!source is missing or empty: list_documents names the documents`},
		{"get_document", `{"source":"c.txt"}`, `!unknown document "c.txt": list_documents names them`},
		{"get_document", `{"source":"a.txt","start_line":0}`, `!a.txt has the lines 1 to 3, not 0 to 3`},
		{"get_document", `{"source":"a.txt","end_line":-1}`, `!a.txt has the lines 1 to 3, not 1 to -1`},
		{"get_document", `{"source":"a.txt","start_line":5}`, `!a.txt has the lines 1 to 3, not 5 to 3`},
	} {
		result := libCall(t, l, test.tool, test.arguments)
		want, isError := strings.CutPrefix(test.want, "!")
		if isError {
			want = test.tool + ": " + want
		}
		assert.Equal(t, result.IsError, isError, test.arguments)
		assert.Equal(t, result.Content[0].Text, want, test.arguments)
	}
}

// No arguments make a tool panic.
func FuzzLibraryArguments(f *testing.F) {
	f.Add(`{"source":"empty.txt","start_line":5}`)
	f.Add(`{"query":"one","limit":1e9,"source_filter":"[]a]"}`)
	l := NewLibrary(fstest.MapFS{"a.txt": {Data: []byte("one\ntwo\nthree")}, "empty.txt": {}})
	c, err := l.currentCorpus(f.Context())
	assert.NilError(f, err)
	f.Fuzz(func(t *testing.T, arguments string) {
		if !json.Valid([]byte(arguments)) {
			return // the connection does not let it through
		}
		c.searchChunks(json.RawMessage(arguments))
		c.listDocuments(json.RawMessage(arguments))
		c.getDocument(json.RawMessage(arguments))
	})
}

func TestLibrarySearch(t *testing.T) {
	l := libSmall()
	reply := libSearch(t, l, `{"query":"eating apples","limit":2.0}`)
	assert.Equal(t, reply.TotalCount, 3)
	assert.Equal(t, len(reply.Results), 2)
	assert.DeepEqual(t, reply.Results[0], SearchResult{"func F() {}",
		"package a\n\n// F eats apples.\nfunc F() {}", reply.Results[0].Similarity, "a.go", 1, 4})
	for limit, want := range map[string]int{"0": 1, "1.5": 1, "1e300": 3} { // the bounds apply
		assert.Equal(t, len(libSearch(t, l, `{"query":"eating apples","limit":`+limit+`}`).Results), want)
	}
	least := fmt.Sprintf(`{"query":"eating apples","min_similarity":%v,"limit":null}`, reply.Results[1].Similarity)
	assert.Equal(t, libSearch(t, l, least).TotalCount, 2)

	reply = libSearch(t, l, `{"query":"pears"}`) // without the blank lines at the end
	assert.DeepEqual(t, reply.Results[0], SearchResult{"One", "# One\n\nApples & <pears>.",
		reply.Results[0].Similarity, "a/one.md", 1, 3})
	result := libCall(t, l, "search_chunks", `{"query":"pears"}`)
	assert.Assert(t, is.Contains(result.Content[0].Text, "& <pears>"), "< is not escaped")

	long := NewLibrary(fstest.MapFS{"a.json": {Data: []byte(`"` + strings.Repeat("é", maxQuote) + `"`)}})
	reply = libSearch(t, long, `{"query":"json"}`)
	assert.Assert(t, len(reply.Results[0].Text) < maxQuote+10 && strings.HasSuffix(reply.Results[0].Text, "é […]"))

	for filter, want := range map[string]string{
		"": "Two.TXT a.go a/one.md", "A": "a.go a/one.md", "one": "a/one.md", "*.md": "a/one.md", "a*": "a.go",
		"a/*": "a/one.md", "?wo.TXT": "Two.TXT", "*.txt": "", "zebra": "", "[a": "",
	} {
		sources := []string{}
		for _, r := range libSearch(t, l, fmt.Sprintf(`{"query":"apples","source_filter":%q}`, filter)).Results {
			sources = append(sources, r.Source)
		}
		slices.Sort(sources)
		assert.Equal(t, strings.Join(sources, " "), want, "%q", filter)
	}
}

func TestLibraryDocumentURIs(t *testing.T) {
	for source, uri := range map[string]string{
		"Größe/b c.md":           "library:///Gr%C3%B6%C3%9Fe/b%20c.md",
		"100% why?[1] #1+&=@.md": "library:///100%25%20why%3F%5B1%5D%20%231+&=@.md",
	} {
		assert.Equal(t, documentURI(source), uri)
		assert.Equal(t, documentSource(uri), source)
	}
	for uri, source := range map[string]string{ // a template filled in, more and less carefully
		"library:///a%2Fb%20c.md": "a/b c.md", "library:///why?#1.md": "why?#1.md", "file:///a.go": "", "library:///%z": "",
	} {
		assert.Equal(t, documentSource(uri), source, uri)
	}
}

func TestLibraryKeepsToTheFolder(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	write := func(name string, content string) {
		t.Helper()
		assert.NilError(t, os.MkdirAll(filepath.Dir(name), 0o700))
		assert.NilError(t, os.WriteFile(name, []byte(content), 0o600))
	}
	write(filepath.Join(outside, "secret.md"), "apples")
	for _, name := range []string{"a.md", "sub/b.md", ".hidden.md", ".git/c.md", "node_modules/d.md", "sub/vendor/e.md",
		"id_rsa", "image.png"} {
		write(filepath.Join(dir, name), "apples")
	}
	write(filepath.Join(dir, "zero.md"), "apples\x00")
	write(filepath.Join(dir, "latin1.md"), "apples \xe9")
	write(filepath.Join(dir, "large.md"), strings.Repeat("apples ", 100))
	links := 0
	for name, target := range map[string]string{
		"link.md": filepath.Join(outside, "secret.md"), "inside.md": "a.md", "folder": outside, "up": "..",
	} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err == nil || runtime.GOOS != "windows" {
			assert.NilError(t, err)
			links++
		}
	}
	root, err := os.OpenRoot(dir)
	assert.NilError(t, err)
	defer root.Close()
	l := NewLibrary(root.FS())
	l.MaxFile = 500
	var reports []string
	l.OnIndexed = func(summary string) { reports = append(reports, summary) }
	sources := []string{}
	for _, r := range libSearch(t, l, `{"query":"apples"}`).Results {
		sources = append(sources, r.Source)
	}
	slices.Sort(sources)
	assert.DeepEqual(t, sources, []string{"a.md", "latin1.md", "sub/b.md"})
	if links == 0 {
		return
	}
	const summary = "3 documents; left out: 2 folders of dependencies, 2 hidden, 4 links and special files, " +
		"1 not text, 2 of other types, 1 too large"
	assert.Assert(t, is.Contains(libCall(t, l, "list_documents", `{}`).Content[0].Text, summary))
	assert.DeepEqual(t, reports, []string{summary})                // once
	for _, name := range []string{"link.md", "folder/secret.md"} { // a file that became a link after it was found
		_, reason := l.readText(name)
		assert.Equal(t, reason, "unreadable")
	}
}

// libUTF16 encodes a text, with a byte order mark if it begins with one.
func libUTF16(order binary.AppendByteOrder, text string) (b []byte) {
	for _, unit := range utf16.Encode([]rune(text)) {
		b = order.AppendUint16(b, unit)
	}
	return b
}

func TestLibraryDecodes(t *testing.T) {
	const text = "# Où?\r\nLe « cœur » coûte 5 €, 😀.\n"
	const ansi = "# O\xf9?\r\nLe \xab c\x9cur \xbb co\xfbte 5 \x80.\n" // Windows-1252, the superset of Latin-1
	for name, test := range map[string]struct{ file, want string }{
		"UTF-8":              {text, text},
		"UTF-8 with a mark":  {"\ufeff" + text, text},
		"UTF-8 with a slip":  {text + "\xff", text + "\ufffd"},
		"UTF-16LE":           {string(libUTF16(binary.LittleEndian, "\ufeff"+text)), text},
		"UTF-16BE":           {string(libUTF16(binary.BigEndian, "\ufeff"+text)), text},
		"Chinese, UTF-16BE":  {string(libUTF16(binary.BigEndian, "\ufeff搜索")), "搜索"},
		"ANSI":               {ansi, strings.Replace(text, ", 😀", "", 1)},
		"Latin-1":            {"caf\xe9", "café"},
		"empty":              {"", ""},
		"only a mark":        {"\xff\xfe", ""},
		"a colour":           {"\x1b[1mcaf\xe9\x1b[m\f", "\x1b[1mcafé\x1b[m\f"},
		"!a NUL":             {"apples\x00", ""},
		"!NULs":              {strings.Repeat("\x00", 100), ""},
		"!UTF-32":            {"\xff\xfe\x00\x00a\x00\x00\x00", ""},
		"!half a character":  {"\xff\xfea\x00b", ""},
		"!half a surrogate":  {"\xff\xfe\x00\xd8", ""},
		"!PNG":               {"\x89PNG\r\n\x1a\n\xe9", ""},
		"!a control":         {"caf\xe9\x01", ""},
		"!machine code":      {"\x7fELF\x02\x01\x01" + strings.Repeat("\x00\xe9\x90\x03", 20), ""},
		"!numbers in 16 bit": {strings.Repeat("\x01\x00\x02\x00", 100), ""},
	} {
		got, reason := decodeText([]byte(test.file))
		assert.Equal(t, reason == "", name[0] != '!', name)
		assert.Equal(t, got, test.want, name)
	}
}

func FuzzDecodeText(f *testing.F) {
	for _, seed := range []string{
		"", "caf\xe9", "\ufeffé", "\xff\xfea\x00", "a\x00b\x00", "\xfe\xff\xd8\x00", "é\xffé\xc3",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		text, reason := decodeText(bytes.Clone(file))
		assert.Assert(t, utf8.ValidString(text) && !strings.Contains(text, "\x00"), "%q", text)
		assert.Assert(t, reason == "" || text == "", "%q", text)
		if plain := bytes.TrimPrefix(file, []byte("\ufeff")); utf8.Valid(file) && bytes.IndexByte(file, 0) < 0 {
			assert.Assert(t, reason == "" && text == string(plain), "%q", text)
		}
	})
}

// TestLibraryNamesWhatIsLeftOut: in the list, and where nothing was found.
func TestLibraryNamesWhatIsLeftOut(t *testing.T) {
	files := fstest.MapFS{
		"a.txt": {Data: []byte("apples")}, "sub/large.csv": {Data: make([]byte, 11)}, "nul.txt": {Data: []byte{0}},
		".git/config.txt": {}, "report.pdf": {},
	}
	for i := range 30 {
		files[fmt.Sprintf("%02d.png", i)] = &fstest.MapFile{}
	}
	l := NewLibrary(files)
	l.MaxFile = 10
	const leftOut = `"left_out":[{"count":1,"reason":"hidden","sources":[".git"]},` +
		`{"count":1,"reason":"not text","sources":["nul.txt"]},{"count":31,"reason":"of other types","sources":["00.png",`
	list := libCall(t, l, "list_documents", `{}`).Content[0].Text
	assert.Assert(t, is.Contains(list, leftOut))
	assert.Assert(t, is.Contains(list, `"19.png"]},`+ // some of them
		`{"count":1,"reason":"too large","sources":["sub/large.csv"]}]`))
	none := libCall(t, l, "search_chunks", `{"query":"pears"}`).Content[0].Text
	assert.Assert(t, is.Contains(none, `"left_out":[{"count":1,"reason":"hidden"`))
	assert.Assert(t, is.Contains(none, `"sources":["sub/large.csv"]`))
	some := libCall(t, l, "search_chunks", `{"query":"apples"}`).Content[0].Text
	assert.Assert(t, !strings.Contains(some, "left_out"))
}

// libSlow is a folder that takes a second to look at.
type libSlow struct{ fstest.MapFS }

func (s libSlow) ReadDir(name string) ([]fs.DirEntry, error) {
	time.Sleep(time.Second)
	return s.MapFS.ReadDir(name)
}

// Looking takes a tenth of the time at most: a change in a slow folder is seen a little later.
func TestLibraryLooksSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		files := fstest.MapFS{"a.txt": {Data: []byte("apples")}}
		l := NewLibrary(libSlow{files})
		count := func() int { return len(libSearch(t, l, `{"query":"apples"}`).Results) }
		start := time.Now()
		assert.Equal(t, count(), 1) // which finds the files
		assert.Equal(t, count(), 1) // which finds no others
		assert.Equal(t, time.Since(start), 2*time.Second)
		files["b.txt"] = &fstest.MapFile{Data: []byte("apples")}
		time.Sleep(9 * time.Second)
		assert.Equal(t, count(), 1)
		assert.Equal(t, time.Since(start), 11*time.Second)
		time.Sleep(time.Second)
		assert.Equal(t, count(), 2)
		assert.Equal(t, time.Since(start), 13*time.Second)
	})
}

// TestLibraryFindsChanges: a file that was added, changed or removed is seen by the next request, and no other is read
// again.
func TestLibraryFindsChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // where no time passes, every request looks
		files := fstest.MapFS{
			"a.txt": {Data: []byte("apples and plums")}, "b.txt": {Data: []byte("plums")}, "nul.txt": {Data: []byte{0}},
		}
		var opened, reports []string
		l := NewLibrary(libOpens{files, &opened})
		l.OnIndexed = func(summary string) { reports = append(reports, summary) }
		for _, step := range []struct {
			change               func()
			opened, apples, plum string
		}{
			{func() {}, "a.txt b.txt nul.txt", "a.txt", "b.txt a.txt"},
			{func() {}, "", "a.txt", "b.txt a.txt"},
			{func() { files["0.txt"] = &fstest.MapFile{Data: []byte("apples")} }, "0.txt", "0.txt a.txt", "b.txt a.txt"},
			{func() { files["a.txt"] = &fstest.MapFile{Data: []byte("plum"), ModTime: time.Now()} }, "a.txt", "0.txt",
				"a.txt b.txt"},
			{func() { files["b.txt"].Data = []byte("pears") }, "", "0.txt", "a.txt b.txt"}, // the same size and time
			{func() { files["b.txt"].Data = []byte("walnut") }, "b.txt", "0.txt", "a.txt"},
			{func() { delete(files, "0.txt") }, "", "", "a.txt"},
			{func() { files["nul.txt"] = &fstest.MapFile{Data: []byte("apples")} }, "nul.txt", "nul.txt", "a.txt"},
		} {
			step.change()
			opened = nil
			for query, want := range map[string]string{"apples": step.apples, "plum": step.plum} {
				found := []string{}
				for _, r := range libSearch(t, l, `{"query":"`+query+`"}`).Results {
					found = append(found, r.Source)
				}
				assert.Equal(t, strings.Join(found, " "), want)
			}
			assert.Equal(t, strings.Join(opened, " "), step.opened)
		}
		assert.DeepEqual(t, reports, []string{
			"2 documents; left out: 1 not text", "3 documents; left out: 1 not text",
			"2 documents; left out: 1 not text", "3 documents",
		})
	})
}

// TestLibraryIndexesSegments: after any changes a library finds what a new one does, in the same order, and most of its
// indexes are still those of before.
func TestLibraryIndexesSegments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		random, files := rand.New(rand.NewSource(1)), fstest.MapFS{}
		write := func(i int) {
			words := strings.Fields("apple pear plum grape fig")
			text := fmt.Sprintf("# %s\n\nA %s.\n", words[random.Intn(5)], words[random.Intn(5)])
			files[fmt.Sprintf("%d/%04d.md", i%3, i)] = &fstest.MapFile{
				Data: []byte(text), ModTime: time.Unix(random.Int63n(1<<32), 0),
			}
		}
		for i := range 3000 {
			write(i)
		}
		l := NewLibrary(files)
		search := func(l *Library, query string) SearchReply {
			return libSearch(t, l, fmt.Sprintf(`{"query":%q,"limit":300}`, query))
		}
		search(l, "apple")
		for range 5 {
			old := slices.Clone(l.corpus.indexes)
			write(random.Intn(4000)) // a new file, or another text
			i := random.Intn(3000)
			delete(files, fmt.Sprintf("%d/%04d.md", i%3, i))
			for _, query := range []string{"apple", "fig plum", "md", "zebra"} {
				assert.DeepEqual(t, search(l, query), search(NewLibrary(files), query))
			}
			kept := 0
			for _, x := range l.corpus.indexes {
				if slices.Contains(old, x) {
					kept++
				}
			}
			assert.Assert(t, kept >= len(old)-3 && len(old) > 5, "%d of %d", kept, len(old))
		}
	})
}

// libOpens notes which files are opened.
type libOpens struct {
	fs.FS
	opened *[]string
}

func (o libOpens) Open(name string) (fs.File, error) {
	if name != "." {
		*o.opened = append(*o.opened, name)
	}
	return o.FS.Open(name)
}

// libBrokenFS has ten files and a folder. Two of the files and the folder are broken.
type libBrokenFS struct{}

func (libBrokenFS) Open(name string) (fs.File, error) {
	files := fstest.MapFS{"sub/0.txt": {}}
	for i := range 10 {
		files[fmt.Sprintf("%d.txt", i)] = &fstest.MapFile{}
	}
	switch name {
	case "sub", "1.txt":
		return nil, fs.ErrPermission
	case "2.txt":
		name = "." // a folder has nothing to read
	}
	return files.Open(name)
}

func TestLibraryBounds(t *testing.T) {
	files := fstest.MapFS{}
	for i := range 10 {
		files[fmt.Sprintf("%d.txt", i)] = &fstest.MapFile{Data: []byte("0123456789")}
	}
	for want, l := range map[string]*Library{
		"4 documents; left out: 6 beyond the number of files": {MaxFiles: 4},
		"3 documents; left out: 7 beyond the total size":      {MaxTotal: 35},
		"10 documents":                        {MaxTotal: 100, MaxFiles: 10, MaxFile: 10},
		"0 documents; left out: 10 too large": {MaxFile: 9},
		"5 documents":                         {Skip: "[0-4].*"},
		"8 documents; left out: 3 unreadable": {FS: libBrokenFS{}},
	} {
		if l.FS == nil {
			l.FS = files
		}
		l.scanSlot = make(chan struct{}, 1)
		var got string
		l.OnIndexed = func(summary string) { got = summary }
		libCall(t, l, "list_documents", `{}`)
		assert.Equal(t, got, want)
	}
	missing := NewLibrary(os.DirFS(filepath.Join(t.TempDir(), "none")))
	result := libCall(t, missing, "list_documents", `{}`)
	assert.Assert(t, result.IsError)
	assert.Assert(t, is.Contains(result.Content[0].Text, "list_documents: the library cannot be read: "))
	for _, method := range []string{"resources/list", "resources/read"} {
		assert.Assert(t, is.Contains(libSession(t, missing, libOld("1", method, ``))["1"], `"error":{"code":-32603,`))
	}
}

// libGate is a folder of which one file can be opened only after release is closed.
type libGate struct {
	fs.FS
	name            string
	opened, release chan struct{}
}

func (g *libGate) Open(name string) (fs.File, error) {
	if name == g.name {
		g.opened <- struct{}{}
		<-g.release
	}
	return g.FS.Open(name)
}

func TestLibraryCallCanBeCancelledWhileIndexing(t *testing.T) {
	checkLeaks(t)
	gate := &libGate{libMany(2).FS, "001.txt", make(chan struct{}, 2), make(chan struct{})}
	l := NewLibrary(gate)
	indexed := 0
	l.OnIndexed = func(string) { indexed++ }
	here, there := libPair()
	served := make(chan error, 1)
	go func() { served <- l.Serve(t.Context(), there) }()
	send := func(line string) { assert.NilError(t, here.Write(t.Context(), Outgoing{Text: []byte(line)})) }
	next := func() string {
		line, err := here.Read()
		assert.NilError(t, err)
		return string(line)
	}
	send(libOld("1", "tools/call", `"name":"list_documents"`))
	<-gate.opened // the first call is reading
	ctx, cancel := context.WithCancel(t.Context())
	waiting := make(chan error)
	go func() {
		_, err := l.currentCorpus(ctx)
		waiting <- err
	}()
	cancel()
	assert.ErrorIs(t, <-waiting, context.Canceled) // although the first call is still reading
	send(libOld("4", "resources/list", ``))
	ids := []string{"1", "4", `"unknown"`, `{`}
	for i := range 2 * maxServing { // more than are served at once
		ids = append(ids, fmt.Sprint(100+i))
		send(libOld(ids[len(ids)-1], "resources/list", ``))
	}
	send(libOld(`"ping"`, "ping", ``))
	assert.Equal(t, next(), `{"jsonrpc":"2.0","id":"ping","result":{}}`) // although all the others wait
	for _, id := range ids {
		send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `}}`)
	}
	send(libOld(`"ping"`, "ping", ``))
	assert.Equal(t, next(), `{"jsonrpc":"2.0","id":"ping","result":{}}`) // the cancellations were read before it
	close(gate.release)
	send(libOld("2", "tools/call", `"name":"list_documents"`))
	assert.Assert(t, is.Contains(next(), `"id":2,"result"`)) // no response to 1
	assert.Equal(t, indexed, 1)
	here.Close()
	assert.NilError(t, <-served)
}

// TestLibraryPipelined: a client that sends thousands of requests before it reads gets an answer to each. Those that
// ask for a subscription, which this server does not offer, hold up nothing.
func TestLibraryPipelined(t *testing.T) {
	checkLeaks(t)
	var lines []string
	for i := range 5000 {
		id := fmt.Sprint(i)
		lines = append(lines, [...]string{
			libOld(id, "ping", ""),
			libStateless(id, "subscriptions/listen", `"notifications":{"toolsListChanged":true},`),
			libOld(id, "tools/call", `"name":"search_chunks","arguments":{"query":"apples"}`),
			libStateless(id, "tools/list", ""),
		}[i%4])
	}
	responses := libSession(t, libSmall(), lines...)
	assert.Equal(t, len(responses), 5000)
	assert.Assert(t, is.Contains(responses["1"], `"code":-32601`))
	assert.Assert(t, is.Contains(responses["4998"], `"total_count":3`))
}

func TestLibraryServeEndsWithItsContext(t *testing.T) {
	here, there := libPair()
	defer here.Close()
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("stop")
	time.AfterFunc(time.Millisecond, func() { cancel(stop) })
	assert.Equal(t, libSmall().Serve(ctx, there), stop)
}

func TestSourceLibrary(t *testing.T) {
	reply := libSearch(t, SourceLibrary(), `{"query":"Library SourceLibrary sourceFiles", "limit":500}`)
	assert.Equal(t, reply.Results[0].Source, "library.go")
	for _, r := range reply.Results {
		assert.Assert(t, !strings.HasSuffix(r.Source, "_test.go"), r.Source)
	}
}

// lhttp is a server over HTTP and a client.
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

// lhttpHeader returns headers of the form "Name: value". A later one replaces an earlier one, one without a value
// deletes it, and "+Name: value" adds to it.
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

// lhttpBase returns the header of any POST, lhttpModern and lhttpOld that of a request of each era.
func lhttpBase(more ...string) []string {
	return append([]string{"Content-Type: application/json", "Accept: application/json, text/event-stream"}, more...)
}

func lhttpModern(method, name string, more ...string) http.Header {
	lines := lhttpBase("MCP-Protocol-Version: 2026-07-28", "Mcp-Method: "+method, "Mcp-Name: "+name)
	return lhttpHeader(append(lines, more...)...)
}

func lhttpOld() http.Header {
	return lhttpHeader(lhttpBase("MCP-Protocol-Version: 2025-11-25")...)
}

// open sends a request and returns when the header of the answer has come.
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

func (s *lhttp) modern(method, name, params string) lhttpAnswer {
	s.t.Helper()
	return s.do("POST", lhttpModern(method, name), libStateless("1", method, params))
}

// begin sends a POST, and returns the body of the answer, or the error, when it has come.
func (s *lhttp) begin(ctx context.Context, header http.Header, body string) <-chan string {
	answered := make(chan string, 1)
	go func() {
		r, _ := http.NewRequestWithContext(ctx, "POST", s.url, strings.NewReader(body))
		r.Header = header
		answer, err := s.client.Do(r)
		if err != nil {
			answered <- err.Error()
			return
		}
		defer answer.Body.Close()
		text, _ := io.ReadAll(answer.Body)
		answered <- answer.Header.Get("Content-Type") + " " + string(text)
	}()
	return answered
}

// idle waits until the server has no running request.
func (s *lhttp) idle() {
	for range maxPosts {
		s.h.slots <- struct{}{}
	}
	for range maxPosts {
		<-s.h.slots
	}
}

const lhttpRead = `"name":"get_document","arguments":{"source":"Two.TXT"},`

// A session id is neither given nor needed, and no notification does anything.
func TestLibraryHTTPHasNoSessions(t *testing.T) {
	checkLeaks(t)
	s := newLHTTP(t, libSmall())
	for message, header := range map[string]http.Header{
		libInitialized:                         lhttpOld(),
		`{"jsonrpc":"2.0","id":3,"result":{}}`: lhttpOld(),
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`:   lhttpModern("", ""),
		`{"jsonrpc":"2.0","method":"notifications/x","params":{"_meta":` + libMeta + `}}`: lhttpModern("", ""),
	} {
		a := s.do("POST", header, message)
		assert.DeepEqual(t, []any{a.status, a.body, a.header.Get("Content-Type")}, []any{202, "", ""})
	}
	// Whatever its headers are, initialize begins the handshake era.
	for _, header := range [][]string{nil, {"MCP-Protocol-Version: 2026-07-28", "Mcp-Session-Id: old"}} {
		a := s.do("POST", lhttpHeader(lhttpBase(header...)...), libInitialize)
		assert.Equal(t, a.status, 200)
		assert.Assert(t, is.Contains(a.body, `"protocolVersion":"2025-11-25"`))
		assert.Equal(t, a.header.Get("Mcp-Session-Id"), "")
	}
}

// Every error response. Each row changes one thing of a request that succeeds.
func TestLibraryHTTPErrors(t *testing.T) {
	checkLeaks(t)
	s := newLHTTP(t, libSmall())
	modern := lhttpBase("MCP-Protocol-Version: 2026-07-28", "Mcp-Method: tools/call", "Mcp-Name: get_document")
	old := lhttpBase("MCP-Protocol-Version: 2025-11-25")
	call := libStateless("1", "tools/call", lhttpRead)
	const (
		list        = `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`
		withID      = `{"jsonrpc":"2.0","id":1,"error":{"code":`
		unsupported = `-32022,"message":"unsupported protocol version; those before 2026-07-28 begin with initialize",` +
			`"data":{"requested":"%s","supported":` + libRevisions + `}}}`
		mismatch = withID + `-32020,"message":"the header %s must be present once with the value of the body, \"%s\", not `
		noID     = `{"jsonrpc":"2.0","error":{"code":`
		invalid  = noID + `-32600,"message":"`
		notJSON  = noID + `-32700,"message":"not a JSON-RPC object"}}`
		site     = invalid + `the origin \"`
		host     = invalid + `unknown host \"`
		noParam  = withID + `-32602,"message":"`
	)
	version := fmt.Sprintf(mismatch, "MCP-Protocol-Version", "2026-07-28")
	method := fmt.Sprintf(mismatch, "Mcp-Method", "tools/call")
	name := fmt.Sprintf(mismatch, "Mcp-Name", "get_document")
	for _, test := range []struct {
		name   string
		base   []string
		method string // "" is POST
		change string // headers, as lhttpHeader takes them, one a line
		body   string
		status int
		want   string // how the body begins
	}{
		{"modern", modern, "", "", call, 200, `{"jsonrpc":"2.0","id":1,"result":{`},
		{"a byte order mark", modern, "", "", "\ufeff" + call, 200, `{"jsonrpc":"2.0","id":1,"result":{`},
		{"headers of sessions", modern, "", "Mcp-Session-Id: x\nLast-Event-ID: 1", call, 200, ``},
		{"old", old, "", "", list, 200, `{"jsonrpc":"2.0","id":1,"result":{`},

		{"no Content-Type", modern, "", "Content-Type: ", call, 415, invalid + `Content-Type must be application/json, not`},
		{"charset", modern, "", "Content-Type: application/JSON; charset=utf-8", call, 200, ``},

		{"another site", modern, "", "Origin: https://evil.example", call, 403, site + `https://evil.example\" is another`},
		{"a similar name", modern, "", "Origin: http://localhost.evil.example", call, 403, site},
		{"a page of no site", modern, "", "Origin: null", call, 403, site},
		{"a local page", modern, "", "Origin: http://[::1]:6274", call, 200, ``},
		{"a local page in capitals", modern, "", "Origin: http://LocalHost:6274", call, 200, ``},
		{"a second origin", modern, "", "Origin: http://localhost\n+Origin: http://evil.example", call, 403, site},
		{"not a URL", modern, "", "Origin: http://[", call, 403, site},
		{"another host", modern, "", "Host: evil.example", call, 403, host + `evil.example\": the header Host must be`},
		{"our host", modern, "", "Host: Library.Example:8080", call, 200, ``},
		{"a page of our host", modern, "", "Host: Library.Example:8080\nOrigin: http://library.example:8080", call, 200, ``},
		{"localhost", modern, "", "Host: localhost", call, 200, ``},
		{"an address", modern, "", "Host: [2001:db8::1]:80", call, 200, ``},

		{"GET", modern, "GET", "", "", 405, invalid + `GET is not allowed: POST a JSON-RPC message"}}`},
		{"DELETE", modern, "DELETE", "", "", 405, invalid},

		{"nothing", modern, "", "", "", 400, notJSON},
		{"a batch", old, "", "MCP-Protocol-Version: 2025-03-26", " \n[" + list + "]", 400,
			invalid + `a POST holds one message, and no batch"`},
		{"id 1.5", old, "", "", strings.Replace(list, `"id":1`, `"id":1.5`, 1), 400,
			`{"jsonrpc":"2.0","id":1.5,"error":{"code":-32600,` +
				`"message":"the id of a request must be a string or an integer"}}`},
		{"params", old, "", "", strings.Replace(list, `"id":1`, `"id":1,"params":["a"]`, 1), 200,
			noParam + `tools/list: params must be an object"}}`},
		{"no params", old, "", "", strings.Replace(list, `"id":1`, `"id":1,"params":null`, 1), 200, ``},
		{"a log level", modern, "", "", strings.Replace(call, `"_meta":{`,
			`"_meta":{"io.modelcontextprotocol/logLevel":"info",`, 1), 200, ``},
		{"an unknown log level", modern, "", "",
			strings.Replace(call, `"_meta":{`, `"_meta":{"io.modelcontextprotocol/logLevel":"loud",`, 1),
			400, noParam + `unknown log level \"loud\""}}`},
		{"id 1.0", old, "", "", strings.Replace(list, `"id":1`, `"id":1.0`, 1), 200, `{"jsonrpc":"2.0","id":1.0,"result":`},
		{"id []", old, "", "", strings.Replace(list, `"id":1`, `"id":[]`, 1), 400, invalid + `a request with the id []"`},
		{"ping", modern, "", "", `{"jsonrpc":"2.0","id":1,"method":"ping"}`, 200, `{"jsonrpc":"2.0","id":1,"result":{}}`},
		{"id null", old, "", "", `{"jsonrpc":"2.0","id":null,"method":"ping"}`, 400, invalid + `a request with the id null"`},
		{"neither", old, "", "", `{"jsonrpc":"2.0","id":1}`, 400, invalid + `neither a method nor a result nor an error"`},
		{"too long a message", modern, "", "", call + strings.Repeat(" ", maxPost-len(call)+1), 413,
			invalid + `the message is longer than 65536 bytes"}}`},

		{"no version header", modern, "", "MCP-Protocol-Version: ", call, 400, version + `[]"}}`},
		{"another version header", modern, "", "MCP-Protocol-Version: 2025-11-25", call, 400, version + `[\"2025-11-25\"]`},
		{"two version headers", modern, "", "+MCP-Protocol-Version: 2026-07-28", call, 400, version},
		{"an unknown version", modern, "", "MCP-Protocol-Version: 2099-01-01",
			strings.Replace(call, "2026-07-28", "2099-01-01", 1), 400, withID + fmt.Sprintf(unsupported, "2099-01-01")},
		{"no _meta", modern, "", "", list, 400, noParam + `tools/list needs io.modelcontextprotocol/protocolVersion in`},
		{"no Mcp-Method", modern, "", "Mcp-Method: ", call, 400, method + `[]"}}`},
		{"no Mcp-Name", modern, "", "Mcp-Name: ", call, 400, name + `[]"}}`},
		{"another Mcp-Name", modern, "", "Mcp-Name: search_chunks", call, 400, name},
		{"Base64", modern, "", "Mcp-Name: =?base64?Z2V0X2RvY3VtZW50?=", call, 200, ``},
		{"a method in Base64", modern, "", "Mcp-Method: =?base64?dG9vbHMvY2FsbA==?=", call, 400, method},
		{"a version in Base64", modern, "", "MCP-Protocol-Version: =?base64?MjAyNi0wNy0yOA==?=", call, 400, version},
		{"NAME", modern, "", "", strings.Replace(call, `"name"`, `"NAME":"list_documents","name"`, 1), 200,
			`{"jsonrpc":"2.0","id":1,"result":{` + libServerInfo + `,"content":[{"type":"text","text":"Apples`},
		{"NAME in Mcp-Name", modern, "", "Mcp-Name: list_documents", strings.Replace(call, `"arguments"`,
			`"NAME":"list_documents","arguments"`, 1), 400, name},
		{"an empty Mcp-Method", modern, "", "Mcp-Method: \n+Mcp-Method: ", call, 400, method},
		{"broken Base64", modern, "", "Mcp-Name: =?base64?Z2V0X2RvY3VtZW50!?=", call, 400, name},
		{"too short for Base64", modern, "", "Mcp-Name: =?base64?=", strings.Replace(call, "get_document", "=?base64?=", 1),
			200, noParam + `unknown tool: =?base64?="}}`},
		{"a name of the wrong type", modern, "", "", libStateless("1", "tools/call", `"name":7,`), 400,
			fmt.Sprintf(mismatch, "Mcp-Name", "7")},
		{"Mcp-Name of a resource", modern, "", "Mcp-Method: resources/read",
			libStateless("1", "resources/read", `"uri":"library:///a.go","name":"get_document",`), 400,
			fmt.Sprintf(mismatch, "Mcp-Name", "library:///a.go")},

		{"no version", old, "", "MCP-Protocol-Version: ", list, 200, ``},
		{"unknown version", old, "", "MCP-Protocol-Version: 1.0", list, 400, withID + fmt.Sprintf(unsupported, "1.0")},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := &lhttp{t, s.h, s.url, s.client}
			header := lhttpHeader(slices.Concat(test.base, strings.Split(test.change, "\n"))...)
			a := s.do(cmp.Or(test.method, "POST"), header, test.body)
			assert.Equal(t, a.status, test.status, a.body)
			assert.Assert(t, strings.HasPrefix(a.body, test.want), "%s\nis not\n%s", a.body, test.want)
			assert.Assert(t, json.Valid([]byte(a.body)), a.body)
			assert.Equal(t, a.header.Get("Content-Type"), "application/json")
			assert.Equal(t, a.header.Get("Allow"), map[bool]string{true: "POST"}[a.status == 405])
		})
	}
	s.idle()
	for range maxPosts { // all slots are taken
		s.h.slots <- struct{}{}
	}
	a := s.modern("tools/list", "", "")
	assert.DeepEqual(t, []any{a.status, a.body, a.header.Get("Retry-After")},
		[]any{503, invalid + `256 requests are running: try again"}}`, "1"})
	<-s.h.slots
	assert.Equal(t, s.modern("tools/list", "", "").status, 200)
}

// On stdio a client of 2025-03-26 may send a batch.
func TestLibraryBatch(t *testing.T) {
	const ping = `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	const call = `{"jsonrpc":"2.0","id":"two","method":"tools/call","params":{"name":"none"}}`
	lines := libSession(t, libSmall(), "["+ping+","+libInitialized+","+call+"]", strings.Replace(ping, `1`, `1.5`, 1))
	assert.DeepEqual(t, lines, map[string]string{
		"1":     `{"jsonrpc":"2.0","id":1,"result":{}}`,
		`"two"`: `{"jsonrpc":"2.0","id":"two","error":{"code":-32602,"message":"unknown tool: none"}}`,
		"1.5": `{"jsonrpc":"2.0","id":1.5,"error":{"code":-32600,` +
			`"message":"the id of a request must be a string or an integer"}}`})
}

// TestLibraryHTTPUnfinished: messages that are not whole take no place of those that are.
func TestLibraryHTTPUnfinished(t *testing.T) {
	lhttpServed(t, func(t *testing.T, s *lhttp, pipes *lhttpPipes, _ chan struct{}, _ func() error) {
		send := func(length int) {
			c, err := pipes.dial(t.Context(), "", "")
			assert.NilError(t, err)
			t.Cleanup(func() { c.Close() })
			_, err = fmt.Fprintf(c, "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"+
				"Content-Length: %d\r\n\r\n%s", length+1, strings.Repeat(" ", length))
			assert.NilError(t, err)
		}
		const ping = `{"jsonrpc":"2.0","id":1,"method":"ping"}`
		for i := range 2 * maxPosts {
			send(i)
		}
		synctest.Wait()
		a := s.do("POST", lhttpOld(), ping)
		assert.Equal(t, a.status, 200, a.body)
	})
}

// A client that disconnects cancels its request, in both eras.
func TestLibraryHTTPCancellation(t *testing.T) {
	checkLeaks(t)
	l := libSmall()
	s := newLHTTP(t, l)
	l.scanSlot <- struct{}{} // no request can read the documents now
	call := libOld("1", "tools/call", `"name":"list_documents"`)
	for body, header := range map[string]http.Header{
		libStateless("1", "tools/call", lhttpRead): lhttpModern("tools/call", "get_document"), call: lhttpOld(),
	} {
		ctx, leave := context.WithCancel(t.Context())
		left := s.begin(ctx, header, body)
		for len(s.h.slots) == 0 {
			time.Sleep(time.Millisecond)
		}
		leave()
		assert.Assert(t, is.Contains(<-left, "context canceled"))
		s.idle() // although the documents cannot be read yet
	}
	<-l.scanSlot
	assert.Equal(t, s.do("POST", lhttpOld(), call).status, 200)
}

// lhttpPipes is a listener in memory, for testing/synctest.
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

// lhttpServed runs a test in a bubble while a library is served. slot is its scanSlot; e ends Serve and returns its
// error.
func lhttpServed(t *testing.T, test func(t *testing.T, s *lhttp, p *lhttpPipes, slot chan struct{}, e func() error)) {
	synctest.Test(t, func(t *testing.T) {
		pipes := &lhttpPipes{conns: make(chan net.Conn), done: make(chan struct{})}
		transport := &http.Transport{DialContext: pipes.dial}
		l := libSmall()
		h := NewLibraryHTTP(l)
		ctx, cancel := context.WithCancelCause(context.Background())
		served := make(chan error, 1)
		go func() { served <- h.Serve(ctx, pipes) }()
		end := sync.OnceValue(func() error {
			cancel(errors.New("enough"))
			return <-served
		})
		test(t, &lhttp{t, h, "http://localhost/mcp", &http.Client{Transport: transport}}, pipes, l.scanSlot, end)
		assert.Error(t, end(), "enough")
		transport.CloseIdleConnections()
	})
}

// At the server's end a running request has five seconds before it is aborted.
func TestLibraryHTTPServeEnds(t *testing.T) {
	for _, ready := range []bool{true, false} {
		lhttpServed(t, func(t *testing.T, s *lhttp, _ *lhttpPipes, scanSlot chan struct{}, end func() error) {
			scanSlot <- struct{}{}
			begun := time.Now()
			request := libStateless("1", "tools/call", lhttpRead)
			answered := s.begin(t.Context(), lhttpModern("tools/call", "get_document"), request)
			synctest.Wait()
			assert.Equal(t, len(s.h.slots), 1)
			ended := make(chan error)
			go func() { ended <- end() }()
			time.Sleep(4 * time.Second)
			_, err := s.client.Get(s.url)
			assert.ErrorContains(t, err, "connection refused") // no new request
			if ready {
				<-scanSlot
				assert.Assert(t, is.Contains(<-answered, "and plums"))
			} else {
				assert.Assert(t, is.Contains(<-answered, "EOF"))
				assert.Equal(t, time.Since(begun), 5*time.Second)
			}
			<-ended
		})
	}
	closed := &lhttpPipes{done: make(chan struct{})}
	closed.Close()
	assert.ErrorIs(t, NewLibraryHTTP(libSmall()).Serve(t.Context(), closed), net.ErrClosed)
}

// A request may take longer than its header, its body or a write. No client occupies the server by being slow.
func TestLibraryHTTPTimes(t *testing.T) {
	lhttpServed(t, func(t *testing.T, s *lhttp, _ *lhttpPipes, scanSlot chan struct{}, _ func() error) {
		scanSlot <- struct{}{}
		time.AfterFunc(time.Hour, func() { <-scanSlot })
		assert.Assert(t, is.Contains(s.modern("tools/call", "get_document", lhttpRead).body, "and plums"))
	})
	const head = "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" +
		"MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: "
	request := func(method, body string) string {
		return fmt.Sprintf("%s%s\r\nContent-Length: %d\r\n\r\n%s", head, method, len(body), body)
	}
	list := request("tools/list", libStateless("1", "tools/list", ""))
	for _, test := range []struct {
		name, sends string
		status      string // what the client reads, up to the end of the connection; "-" if it does not read
		after       time.Duration
	}{
		{"says nothing", "", "", headerTime},
		{"breaks off in the header", head, "", headerTime},
		{"breaks off in the body", list[:len(list)-20], "HTTP/1.1 400 Bad Request", bodyTime},
		{"sends no further request", list, "HTTP/1.1 200 OK", idleTime},
		{"does not read", list, "-", writeTime},
		{"does not read a status", request("", libInitialized), "-", writeTime},
	} {
		t.Run(test.name, func(t *testing.T) {
			lhttpServed(t, func(t *testing.T, s *lhttp, pipes *lhttpPipes, _ chan struct{}, _ func() error) {
				c, err := pipes.dial(t.Context(), "", "")
				assert.NilError(t, err)
				defer c.Close()
				begun := time.Now()
				_, err = io.WriteString(c, test.sends)
				assert.NilError(t, err)
				if test.status != "-" {
					answer, err := io.ReadAll(c)
					assert.NilError(t, err)
					line, _, _ := strings.Cut(string(answer), "\r\n")
					assert.Equal(t, line, test.status)
					assert.Equal(t, time.Since(begun), test.after)
				} else {
					synctest.Wait()
					time.Sleep(test.after)
					synctest.Wait()
					_, err = c.Write([]byte("x"))
					assert.ErrorIs(t, err, io.ErrClosedPipe)
				}
				assert.Equal(t, len(s.h.slots), 0)
			})
		})
	}
}

// The client of this program and the library understand each other in every revision, on both transports.
func TestLibraryWithClient(t *testing.T) {
	checkLeaks(t)
	for _, revision := range append(Revisions(), "") {
		for _, transport := range []string{"stdio", "HTTP"} {
			t.Run(transport+" "+revision, func(t *testing.T) {
				checkLeaks(t)
				l := libMany(1050)
				l.FS.(fstest.MapFS)["a b/é.md"] = &fstest.MapFile{Data: []byte("# Tea\n\nGreen tea wants 80 degrees.\n")}
				s, served := newLHTTP(t, l), make(chan error, 1)
				defer s.client.CloseIdleConnections()
				start := (&HTTP{URL: s.url}).Start
				if transport == "HTTP" {
					served <- nil
				} else {
					here, there := libPair()
					go func() { served <- l.Serve(t.Context(), there) }()
					start = func(context.Context) (Transport, error) { return here, nil }
				}
				stray := func(message []byte, reason error) { t.Errorf("%s: %v", message, reason) }
				c, err := Connect(t.Context(), start, &ClientOptions{Protocol: revision, Skipped: stray})
				assert.NilError(t, err)
				version := cmp.Or(revision, "2026-07-28")
				assert.Equal(t, c.Server.ProtocolVersion, version)
				assert.Equal(t, c.Server.Implementation.Name, "library")
				result, err := c.CallTool(t.Context(), "search_chunks", json.RawMessage(`{"query":"green tea"}`), nil)
				assert.NilError(t, err)
				assert.Assert(t, !result.IsError && len(result.StructuredContent) > 0)
				result, err = c.CallTool(t.Context(), "list_documents", nil, nil)
				assert.NilError(t, err)
				assert.Equal(t, strings.Count(result.Content[0].Text, ".txt"), 1000)
				assert.Assert(t, is.Contains(result.Content[0].Text, `"total_count":1051`))
				resources, err := c.ListResources(t.Context())
				assert.NilError(t, err)
				assert.Equal(t, len(resources), 1051)
				contents, err := c.ReadResource(t.Context(), "library:///a%20b/%C3%A9.md")
				assert.NilError(t, err)
				assert.Equal(t, contents[0].Text, "# Tea\n\nGreen tea wants 80 degrees.\n")
				prompt, err := c.GetPrompt(t.Context(), "answer_from_library", map[string]string{"question": "How hot?"})
				assert.NilError(t, err)
				assert.Assert(t, strings.HasSuffix(prompt.Messages[0].Content.Text, "Question: How hot?"))
				_, err = c.ReadResource(t.Context(), "library:///no é") // a header holds it in Base64
				var refusal *Error
				assert.Assert(t, errors.As(err, &refusal) && strings.Contains(refusal.Message, "resource not found"), "%v", err)

				s.idle()
				assert.NilError(t, c.Close())
				assert.NilError(t, <-served)
			})
		}
	}
}

func ExampleIndex() {
	x := NewIndex(
		Document{"tea.md", "# Tea\n\nPour water of 80 degrees over green tea.\n", true},
		Document{"coffee.md", "# Coffee\n\nGrind the beans just before brewing.\n", true},
	)
	everything := func(string) float64 { return 0 }
	hits, _ := Search("How hot is the water for tea?", 10, everything, x)
	for _, hit := range hits {
		fmt.Printf("%s:%d-%d %.2f\n", hit.Source, hit.Start, hit.End, hit.Similarity)
	}
	// Output: tea.md:1-3 0.26
}

// The passages of these texts begin at the lines marked with |.
func TestPassages(t *testing.T) {
	filler := strings.Repeat("x", 250)
	code := `
|// a.go - an example.
 // SPDX-License-Identifier: 0BSD
 
 package a
 
 import (
 	"fmt"
 
 	"` + filler + `"
 )
 
|// F does it.
 func F() {
 	fmt.Println("` + filler + `")
 
 	fmt.Println()
 }
 
|const a = 1
 
 const b = 2
 
 func c() { ` + filler + ` }
 
|const d = 4
`
	prose := `
|# Title
 
 First. ` + filler + filler + filler + `
 
|Second, which is short.
 
 Third, which is too.
 
|## Section
 
 ### Section in it
 
 Fourth. ` + filler + filler + filler + `
|## Section without a blank line before it
 Fifth. ` + filler + filler + filler + `
 
|` + "```" + `
 # not a heading
 
 code ` + filler + filler + filler + `
 
 more code
 ` + "```" + `
 
|Sixth. ` + filler + filler + filler + `
`
	for _, marked := range []string{code, prose} {
		var text strings.Builder
		var want, got []int
		for i, line := range strings.Split(strings.TrimSpace(marked), "\n") {
			if line[0] == '|' {
				want = append(want, i+1)
			}
			text.WriteString(line[1:] + "\n")
		}
		for _, p := range passages(text.String(), marked == prose) {
			got = append(got, p.Start)
		}
		assert.DeepEqual(t, got, want)
	}
}

func TestPassagesAreBounded(t *testing.T) {
	statement := "\tstatement()\n"
	for name, text := range map[string]string{
		"a long function with blank lines": "func f() {\n" + strings.Repeat(strings.Repeat(statement, 20)+"\n", 40) + "}\n",
		"a long function without":          "func f() {\n" + strings.Repeat(statement, 800) + "}\n",
	} {
		all := passages(text, false)
		assert.Assert(t, len(all) > 3, name)
		for i, p := range all {
			assert.Assert(t, len(p.Text) <= largePassage, name)
			assert.Equal(t, p.heading, "func f() {\n", name)
			if i > 0 && strings.Contains(text, "\n\n") {
				assert.Assert(t, strings.HasSuffix(all[i-1].Text, "\n\n"), "%s: cut inside a block", name)
			}
		}
	}
	// The small rest of a long function does not take in the next one.
	f := "func f() {\n" + strings.Repeat(statement, largePassage/len(statement)-1) + "\n\treturn something\n}\n\n"
	all := passages(f+"func g() {}\n", false)
	assert.Equal(t, len(all), 3)
	assert.Equal(t, all[1].Text, "\treturn something\n}\n\n")

	long := strings.Repeat("x", 2*largePassage)
	all = passages("short\n"+long+"\nshort\n", true)
	assert.Equal(t, len(all), 3) // no line is ever cut
	assert.Equal(t, all[1].Text, long+"\n")
}

// Headings are indexed with each passage under them, which must not make the work grow with the square of the size.
func TestHeadingsAreBounded(t *testing.T) {
	for name, text := range map[string]string{
		"long line":    "# " + strings.Repeat("x", 1<<20) + "\n\nText.\n",
		"many lines":   strings.Repeat("# x\n", 1<<16),
		"many remarks": strings.Repeat("# x\n", 1<<16) + "x = 1\n",
	} {
		for _, p := range passages(text, name != "many remarks") {
			assert.Assert(t, len(p.heading) <= maxHeading, "%s: %d", name, len(p.heading))
		}
	}
}

// TestHeadingOfALongComment: it is the declaration below, also of passages that end before that.
func TestHeadingOfALongComment(t *testing.T) {
	for _, lines := range []int{2, 60, 400} {
		comment := strings.Repeat("// é is said of it.\n", lines)
		first := "package a\n\n// " + strings.Repeat("x", 250) + "\n\n"
		all := passages(first+comment+"func F(é int) {\n\treturn\n}\n\nfunc G() {}\n", false)
		assert.Check(t, len(all) >= 2+lines/200, "%d passages", len(all))
		for i, p := range all[1:] {
			want := "func F(é int) {"
			if strings.Contains(p.Text, "G()") {
				want = "func G() {}"
			}
			assert.Equal(t, p.Heading(), want, "%d lines, passage %d", lines, i)
			assert.Check(t, len(p.heading) <= maxHeading && utf8.ValidString(p.heading))
		}
	}
}

// libFind returns all hits.
func libFind(query string, indexes ...*Index) []Hit {
	hits, _ := Search(query, math.MaxInt, func(string) float64 { return 0 }, indexes...)
	return hits
}

// libIndex has one document for each pair of name and text.
func libIndex(pairs ...string) *Index {
	var all []Document
	for pair := range slices.Chunk(pairs, 2) {
		all = append(all, Document{pair[0], pair[1], isProse(pair[0])})
	}
	return NewIndex(all...)
}

func TestSearchRanks(t *testing.T) {
	x := libIndex(
		"cache.go", "// Cache keeps what was read.\ntype Cache struct{}\n",
		"close.go", "// Close ends the connection and waits for its goroutines.\nfunc Close() {}\n",
		"conn.go", "// readLoop delivers answers. It ends with the connection.\nfunc readLoop() {}\n",
		"guide.md", "# Retries\n\nA request that failed with 503 is sent again after a while.\n",
		"long.md", "Connections, a connection, the connection. "+strings.Repeat("Many other words about others. ", 40),
	)
	for query, want := range map[string]string{
		"what closes a connection": "close.go", // both words before one word often
		"retry":                    "guide.md", // a heading
		"requests failing":         "guide.md", // endings
		"cache":                    "cache.go",
		"read_loop":                "conn.go",  // spelled in another way
		"guide":                    "guide.md", // a file's name
		"The Who":                  "close.go", // only stop words: they count then
		"connection":               "close.go", // short before long
	} {
		hits := libFind(query, x)
		assert.Assert(t, len(hits) > 0, query)
		assert.Equal(t, hits[0].Source, want, query)
		for i, h := range hits {
			assert.Assert(t, h.Similarity > 0 && h.Similarity < 1, "%s: %v", query, h)
			assert.Assert(t, i == 0 || h.Similarity <= hits[i-1].Similarity, query)
		}
	}
	assert.Equal(t, len(libFind("zebra", x)), 0)
	assert.Equal(t, len(libFind(" ?! ", x)), 0)
	assert.Equal(t, len(libFind("anything", NewIndex())), 0)
}

func TestSimilarityTellsHowMuchOfTheQueryIsMet(t *testing.T) {
	x := libIndex("a.txt", "apples and pears", "b.txt", "apples", "c.txt", "plums")
	of := func(query string) float64 { return libFind(query, x)[0].Similarity }
	assert.Assert(t, of("apples pears") > of("apples pears bananas"))
	assert.Assert(t, of("apples pears bananas") > of("apples cherries bananas"))
	assert.Equal(t, of("pears pears pears"), of("pears"))
	x = libIndex("a.txt", strings.Repeat("apples ", 100_000))
	assert.Assert(t, of("apples") > 0.95 && of("apples") < 1)
}

func TestSearchKeepsTheOrderOfEquals(t *testing.T) {
	var pairs []string
	for i := range 100 {
		pairs = append(pairs, fmt.Sprintf("%02d.txt", i), "same thing\n")
	}
	for i, h := range libFind("same", libIndex(pairs...)) {
		assert.Equal(t, h.Source, fmt.Sprintf("%02d.txt", i))
	}
}

// TestSearchSeveral: over an index for each document, Search finds what it does over one index of all.
func TestSearchSeveral(t *testing.T) {
	pairs := []string{
		"a.txt", "apples and pears", "b.md", "# Pears\n\nand plums\n", "c.txt", "plums", "d.go", "func Pears() {}\n",
	}
	var each []*Index
	for pair := range slices.Chunk(pairs, 2) {
		each = append(each, libIndex(pair...), NewIndex())
	}
	for _, query := range []string{"pears", "plums and apples", "func", "zebra"} {
		assert.Equal(t, libHits(libFind(query, each...)), libHits(libFind(query, libIndex(pairs...))))
	}
	assert.Equal(t, len(libFind("pears")), 0)
}

func libHits(hits []Hit) (text string) {
	for _, h := range hits {
		text += fmt.Sprintln(h.Source, h.Start, h.Similarity)
	}
	return text
}

func FuzzIndex(f *testing.F) {
	f.Add("# a\n\nb\n```\n# c\n\n```\n", true)
	f.Add("// a\nfunc b() {\n\n\tc()\n\n}\n\n\n#\n", false)
	f.Add("\n\n\r\n \n"+strings.Repeat("x\n", 4000), false)
	f.Add("readLoop HTTPServer _x_ 搜索 don't ſeeds ǅ İ", true)
	f.Fuzz(func(t *testing.T, text string, prose bool) {
		whole, line := "", 1
		for _, p := range passages(text, prose) {
			whole += p.Text
			assert.Equal(t, p.Start, line)
			lines := strings.Count(p.Text, "\n")
			if !strings.HasSuffix(p.Text, "\n") {
				lines++ // the last line of all
			}
			line += lines
			assert.Equal(t, p.End, line-1)
			assert.Assert(t, len(p.Text) <= largePassage || lines == 1)
		}
		assert.Equal(t, whole, text)
		var words []string
		EachWord(text, func(word []byte) { words = append(words, string(word)) })
		assert.DeepEqual(t, words, splitWords(text))
		for _, term := range terms(text) {
			assert.Assert(t, term != "" && utf8.ValidString(term), "%q", term)
		}
		for _, h := range libFind(text, NewIndex(Document{"text.md", text, prose})) {
			assert.Assert(t, h.Similarity > 0 && h.Similarity <= 1)
		}
	})
}

// libWords is a vocabulary: frequent words come first, and are short.
func libWords() (words []string) {
	words = strings.Fields(`the of and to in a is that for it as was with be by on not but at are this have from or an
		they which one you were all there would their we been has when who will no more if out so up what its about than`)
	for rank := 75; len(words) < 300_000; rank++ {
		word := ""
		for n := rank; n > 0; n /= 75 {
			word += string("bcdfghklmnprstv"[n%75/5]) + string("aeiou"[n%5])
		}
		words = append(words, word)
	}
	return words
}

// libWrite writes files of prose and code to a folder. The words have the frequencies of a language (Zipf): half of
// them are new again in each file's topic, and of the identifiers most.
func libWrite(b *testing.B, dir string, files, size int) {
	random, words := rand.New(rand.NewSource(1)), libWords()
	zipf := rand.NewZipf(random, 1.25, 8, uint64(len(words)-1))
	for i := range files {
		room := min(int(float64(size/files)*(0.1+0.9*random.ExpFloat64())), 1<<20)
		topic, names := make([]string, 100), make([]string, 40)
		for j := range topic {
			topic[j] = words[random.Intn(40_000)]
		}
		word := func() string {
			switch n := random.Intn(1000); {
			case n == 0:
				return strconv.FormatInt(random.Int63(), 16)
			case n < 150:
				return topic[min(int(random.ExpFloat64()*15), 99)]
			}
			return words[zipf.Uint64()]
		}
		for j := range names {
			other := words[random.Intn(2000)]
			names[j] = topic[random.Intn(100)] + strings.ToUpper(other[:1]) + other[1:]
		}
		name := func() string { return names[min(int(random.ExpFloat64()*10), 39)] }
		sentence := func() (text string) {
			for range 5 + random.Intn(20) {
				text += word() + " "
			}
			return text + word() + "."
		}
		var text strings.Builder
		for text.Len() < room {
			if i%2 == 0 {
				fmt.Fprintf(&text, "## %s\n\n%s\n%s\n\n", sentence(), sentence(), sentence())
				continue
			}
			fmt.Fprintf(&text, "// %s does %s\nfunc %s() {\n", name(), sentence(), name())
			for range 2 + random.Intn(20) {
				fmt.Fprintf(&text, "\t%s := %s.%s(%q)\n", name(), name(), name(), word())
			}
			text.WriteString("}\n\n")
		}
		folder := filepath.Join(dir, strconv.Itoa(i%100))
		assert.NilError(b, os.MkdirAll(folder, 0o700))
		file := filepath.Join(folder, fmt.Sprintf("%s%d.%s", topic[0], i, []string{"md", "go"}[i%2]))
		assert.NilError(b, os.WriteFile(file, []byte(text.String()), 0o600))
	}
}

// BenchmarkLibrary asks the real program. The metrics are the time until its first answer, its memory as a multiple of
// the text, and the median and the ninth decile of the questions.
func BenchmarkLibrary(b *testing.B) {
	for _, c := range []struct{ files, mib int }{{0, 0}, {500, 10}, {10_000, 200}} {
		b.Run(fmt.Sprintf("%d-MiB", c.mib), func(b *testing.B) {
			if c.mib > 10 && testing.Short() {
				b.Skip("writes many files")
			}
			serve := &Command{Path: os.Args[0], Args: []string{"serve"}, Env: []string{"MCPAGENT_CHILD=main"}}
			if c.mib > 0 {
				serve.Args = append(serve.Args, b.TempDir())
				libWrite(b, serve.Args[1], c.files, c.mib<<20)
			}
			libMeasure(b, serve, float64(c.mib<<10))
		})
	}
}

func libMeasure(b *testing.B, serve *Command, kib float64) {
	var pid int
	client, err := Connect(b.Context(), func(ctx context.Context) (Transport, error) {
		t, err := serve.Start(ctx)
		if s, ok := t.(*Stdio); ok {
			pid = s.process.Process.Pid
		}
		return t, err
	}, nil)
	assert.NilError(b, err)
	defer client.Close()
	ask := func(query string) time.Duration {
		begin := time.Now()
		arguments, _ := json.Marshal(map[string]string{"query": query})
		result, err := client.CallTool(b.Context(), "search_chunks", arguments, nil)
		assert.NilError(b, err)
		assert.Assert(b, !result.IsError)
		return time.Since(begin)
	}
	indexed := ask("zebra")
	random, words := rand.New(rand.NewSource(2)), libWords()
	var times []time.Duration
	for b.Loop() {
		i := len(times)
		query := words[random.Intn([]int{100, 1000, 10_000, 100_000}[i%4])]
		for range i % 8 {
			query += " " + words[random.Intn(1000)]
		}
		times = append(times, ask(query))
	}
	slices.Sort(times)
	b.ReportMetric(indexed.Seconds(), "index-s")
	b.ReportMetric(float64(times[len(times)/2].Microseconds())/1000, "median-ms")
	b.ReportMetric(float64(times[len(times)*9/10].Microseconds())/1000, "p90-ms")
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if most := regexp.MustCompile(`VmHWM:\s+(\d+)`).FindSubmatch(status); most != nil && kib > 0 {
		resident, _ := strconv.ParseFloat(string(most[1]), 64)
		b.ReportMetric(resident/kib, "x-text")
	}
}
