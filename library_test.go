package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

func ExampleLibrary() {
	library := NewLibrary(fstest.MapFS{
		"tea.md":  {Data: []byte("# Tea\n\nPour water of 80 degrees over green tea.\n")},
		"brew.go": {Data: []byte("// Brew heats the water.\nfunc Brew() {}\n")},
	})
	here, there := libPair()
	served := make(chan error)
	go func() { served <- library.Serve(context.Background(), there) }()

	c, ctx := NewConn(here, Handler{}), context.Background()
	c.Call(ctx, "initialize", map[string]any{"protocolVersion": "2025-11-25"}, nil)
	c.Notify(ctx, "notifications/initialized", nil)
	var result struct {
		StructuredContent searchReply `json:"structuredContent"`
	}
	err := c.Call(ctx, "tools/call", map[string]any{
		"name": "search_chunks", "arguments": map[string]any{"query": "How hot is the water for tea?"},
	}, &result)
	for _, r := range result.StructuredContent.Results {
		fmt.Printf("%s:%d-%d %.2f\n", r.Source, r.StartLine, r.EndLine, r.Similarity)
	}
	c.Close()
	fmt.Println(err, <-served)
	// Output:
	// tea.md:1-3 0.23
	// brew.go:1-2 0.04
	// <nil> <nil>
}

// libTransport is one end of a connection in memory.
type libTransport struct {
	in        <-chan []byte
	out       chan<- []byte
	gone      <-chan struct{} // the other end
	done      chan struct{}   // this end
	closeOnce sync.Once
}

func libPair() (a, b *libTransport) {
	ab, ba := make(chan []byte, 100), make(chan []byte, 100)
	adone, bdone := make(chan struct{}), make(chan struct{})
	return &libTransport{in: ba, out: ab, done: adone, gone: bdone}, &libTransport{in: ab, out: ba, done: bdone, gone: adone}
}

func (t *libTransport) Read() ([]byte, error) {
	select {
	case m := <-t.in:
		return m, nil
	case <-t.done:
	case <-t.gone:
		select {
		case m := <-t.in:
			return m, nil
		default:
		}
	}
	return nil, io.EOF
}

func (t *libTransport) Write(ctx context.Context, message []byte) error {
	select {
	case t.out <- message:
		return nil
	case <-t.done:
		return io.ErrClosedPipe
	case <-t.gone:
		return io.ErrClosedPipe
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (t *libTransport) Close() error {
	t.closeOnce.Do(func() { close(t.done) })
	return nil
}

// libScript is a client that has written all its lines and closed its side before the server reads the first one, as
// printf … | program serve does.
type libScript struct {
	mu    sync.Mutex
	lines []string
	got   []string
}

func (s *libScript) Read() ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.lines) == 0 {
		return nil, io.EOF
	}
	line := s.lines[0]
	s.lines = s.lines[1:]
	return []byte(line), nil
}

func (s *libScript) Write(_ context.Context, message []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.got = append(s.got, string(message))
	return nil
}

func (s *libScript) Close() error { return nil }

const (
	libInitialize  = `{"jsonrpc":"2.0","id":"init","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`
	libInitialized = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
)

// libSession has a library answer some lines and returns the answers by their ids, and the notifications.
func libSession(t *testing.T, l *Library, lines ...string) (answers map[string]string, notifications []string) {
	t.Helper()
	s := &libScript{lines: lines}
	assert.NilError(t, l.Serve(t.Context(), s))
	answers = map[string]string{}
	for _, line := range s.got {
		var m struct{ ID json.RawMessage }
		assert.NilError(t, json.Unmarshal([]byte(line), &m))
		if m.ID == nil {
			notifications = append(notifications, line)
			continue
		}
		_, twice := answers[string(m.ID)]
		assert.Assert(t, !twice, "%s was answered twice", m.ID)
		answers[string(m.ID)] = line
	}
	return answers, notifications
}

// libResult is the result of one tool call as a client reads it.
type libResult struct {
	Content           []libraryText
	StructuredContent json.RawMessage
	IsError           bool
}

// libCall calls a tool and returns its result, or the protocol's error.
func libCall(t *testing.T, l *Library, name, arguments string) (libResult, error) {
	t.Helper()
	line := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q,"arguments":%s}}`, name, arguments)
	answers, _ := libSession(t, l, libInitialize, libInitialized, line)
	var answer struct {
		Result libResult
		Error  *Error
	}
	assert.NilError(t, json.Unmarshal([]byte(answers["1"]), &answer))
	if answer.Error != nil {
		return libResult{}, answer.Error
	}
	assert.Equal(t, len(answer.Result.Content), 1)
	assert.Equal(t, answer.Result.Content[0].Type, "text")
	if answer.Result.StructuredContent != nil {
		assert.Equal(t, libCompact(t, answer.Result.Content[0].Text), libCompact(t, string(answer.Result.StructuredContent)))
	}
	return answer.Result, nil
}

func libCompact(t *testing.T, text string) string {
	t.Helper()
	var v any
	assert.NilError(t, json.Unmarshal([]byte(text), &v))
	b, err := json.Marshal(v)
	assert.NilError(t, err)
	return string(b)
}

func libSearch(t *testing.T, l *Library, arguments string) searchReply {
	t.Helper()
	result, err := libCall(t, l, "search_chunks", arguments)
	assert.NilError(t, err)
	assert.Assert(t, !result.IsError, "%v", result.Content)
	var reply searchReply
	assert.NilError(t, json.Unmarshal(result.StructuredContent, &reply))
	return reply
}

func libSmall() *Library {
	return NewLibrary(fstest.MapFS{
		"a/one.md": {Data: []byte("# One\n\nApples & <pears>.\n\n\n")},
		"a.go":     {Data: []byte("package a\n\n// F eats apples.\nfunc F() {}\n")},
		"Two.TXT":  {Data: []byte("Apples\r\nand plums")},
	})
}

func TestLibraryRawSession(t *testing.T) {
	answers, notifications := libSession(t, libSmall(),
		`{"jsonrpc":"2.0","id":"ping","method":"ping"}`,
		libInitialize,
		libInitialized,
		`not JSON`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"get_document","arguments":{"source":"Two.TXT"}}}`,
		`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"search_chunks","arguments":{"query":"pear"}}}`,
		`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"search","arguments":{}}}`,
		`{"jsonrpc":"2.0","id":4,"method":"server/discover","params":{}}`,
		`{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":7}}`,
		`{"jsonrpc":"2.0","id":6,"method":"tools/call","params":{"name":"list_documents"}}`,
		`{"jsonrpc":"2.0","id":7,"method":"initialize","params":{}}`,
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"nobody"}}`,
	)
	assert.Equal(t, len(notifications), 0)
	assert.Assert(t, is.Contains(answers["2"], `\"similarity\":0.`))
	delete(answers, "2")
	for id, want := range map[string]string{
		`"ping"`: `"result":{}`,
		`"init"`: `"result":{"capabilities":{"completions":{},"prompts":{},"resources":{},"tools":{}},"instructions":"Search with search_chunks first; read more of a source with get_document.",` +
			`"protocolVersion":"2025-11-25","serverInfo":{"name":"library","version":"0"}}`,
		`1`: `"result":{"content":[{"type":"text","text":"Apples\r\nand plums"}]}`,
		`3`: `"error":{"code":-32602,"message":"unknown tool: search"}`,
		`4`: `"error":{"code":-32601,"message":"method not found: server/discover"}`,
		`5`: `"error":{"code":-32602,"message":"tools/call: json: cannot unmarshal number into Go struct field .name of type string"}`,
		`6`: `"result":{"content":[{"type":"text","text":"{\"documents\":[` +
			`{\"lines\":2,\"passages\":1,\"source\":\"Two.TXT\"},{\"lines\":4,\"passages\":1,\"source\":\"a.go\"},{\"lines\":5,\"passages\":1,\"source\":\"a/one.md\"}],` +
			`\"library\":\"3 documents\",\"total_count\":3}"}],"structuredContent":{"documents":[` +
			`{"lines":2,"passages":1,"source":"Two.TXT"},{"lines":4,"passages":1,"source":"a.go"},{"lines":5,"passages":1,"source":"a/one.md"}],` +
			`"library":"3 documents","total_count":3}}`,
		`7`: `"error":{"code":-32602,"message":"initialize needs a protocolVersion"}`,
	} {
		assert.Equal(t, answers[id], `{"jsonrpc":"2.0","id":`+id+`,`+want+`}`)
		delete(answers, id)
	}
	assert.Equal(t, len(answers), 0, "%v", answers)
}

// Requests have goroutines of their own, so those right behind the handshake must not depend on who is first.
func TestLibraryPipelinedSession(t *testing.T) {
	l := libSmall()
	lines := []string{libInitialize, libInitialized}
	for i := range 20 {
		lines = append(lines, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"list_documents"}}`, i))
	}
	for range 200 {
		answers, _ := libSession(t, l, lines...)
		assert.Equal(t, len(answers), 21)
		for id, a := range answers {
			assert.Assert(t, is.Contains(a, `"result"`), id)
		}
	}
}

func TestLibraryWantsTheHandshakeFirst(t *testing.T) {
	for _, method := range []string{"tools/list", "tools/call"} {
		answers, _ := libSession(t, libSmall(),
			`{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":{"name":"list_documents"}}`,
			`{"jsonrpc":"2.0","id":2,"method":"ping"}`,
			libInitialize, // alone, it is not the end of the handshake
		)
		assert.Equal(t, answers["1"], `{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"`+method+` needs io.modelcontextprotocol/protocolVersion in _meta, or an initialize before it"}}`)
		assert.Equal(t, answers["2"], `{"jsonrpc":"2.0","id":2,"result":{}}`)
	}
}

func TestLibraryAgreesOnARevision(t *testing.T) {
	for offered, want := range map[string]string{
		"2024-11-05": "2024-11-05", "2025-03-26": "2025-03-26", "2025-06-18": "2025-06-18", "2025-11-25": "2025-11-25",
		"2099-01-01": "2025-11-25", "2026-07-28": "2025-11-25", "1": "2025-11-25",
	} {
		answers, _ := libSession(t, libSmall(), strings.Replace(libInitialize, "2025-11-25", offered, 1))
		assert.Assert(t, is.Contains(answers[`"init"`], `"protocolVersion":"`+want+`"`), offered)
	}
}

// libSchema checks what is offered as a JSON Schema, as far as the tools here use it, and returns what is wrong with it.
func libSchema(schema map[string]any) (wrong []string) {
	properties, _ := schema["properties"].(map[string]any)
	if schema["type"] != "object" || properties == nil {
		wrong = append(wrong, "not an object with properties")
	}
	for _, name := range libStrings(schema["required"]) {
		if properties[name] == nil {
			wrong = append(wrong, name+" is required but no property")
		}
	}
	for name, p := range properties {
		property, _ := p.(map[string]any)
		if !slices.Contains([]any{"string", "integer", "number", "array"}, property["type"]) {
			wrong = append(wrong, fmt.Sprintf("%s has the type %v", name, property["type"]))
		}
		low, hasLow := property["minimum"].(float64)
		high, hasHigh := property["maximum"].(float64)
		if d, ok := property["default"].(float64); ok && (hasLow && d < low || hasHigh && d > high) {
			wrong = append(wrong, name+" has a default out of its range")
		}
	}
	return wrong
}

func libStrings(v any) (all []string) {
	list, _ := v.([]any)
	for _, s := range list {
		all = append(all, s.(string))
	}
	return all
}

func TestLibraryTools(t *testing.T) {
	answers, _ := libSession(t, libSmall(), libInitialize, libInitialized, `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}`)
	var answer struct {
		Result struct {
			Tools []struct {
				Name, Description         string
				InputSchema, OutputSchema map[string]any
				Annotations               map[string]bool
			}
			NextCursor *string
		}
	}
	assert.NilError(t, json.Unmarshal([]byte(answers["1"]), &answer))
	assert.Assert(t, answer.Result.NextCursor == nil)
	var names []string
	for _, tool := range answer.Result.Tools {
		names = append(names, tool.Name)
		assert.Assert(t, tool.Description != "" && tool.Annotations["readOnlyHint"], tool.Name)
		assert.Assert(t, is.Len(libSchema(tool.InputSchema), 0), tool.Name)
		for name, p := range tool.InputSchema["properties"].(map[string]any) {
			assert.Assert(t, p.(map[string]any)["description"] != nil, "%s: %s", tool.Name, name)
		}
	}
	assert.DeepEqual(t, names, []string{"search_chunks", "list_documents", "get_document"})

	// The output schema says just what comes.
	schema := answer.Result.Tools[0].OutputSchema
	assert.Assert(t, is.Len(libSchema(schema), 0))
	result, err := libCall(t, libSmall(), "search_chunks", `{"query":"apples"}`)
	assert.NilError(t, err)
	var reply map[string]any
	assert.NilError(t, json.Unmarshal(result.StructuredContent, &reply))
	libSameKeys(t, schema, reply)
	items := schema["properties"].(map[string]any)["results"].(map[string]any)["items"].(map[string]any)
	assert.Assert(t, is.Len(libSchema(items), 0))
	libSameKeys(t, items, reply["results"].([]any)[0].(map[string]any))

	assert.Assert(t, len(libSchema(map[string]any{"type": "object", "required": []any{"a"}, "properties": map[string]any{"b": true}})) == 2)
}

func libSameKeys(t *testing.T, schema, value map[string]any) {
	t.Helper()
	properties := schema["properties"].(map[string]any)
	assert.DeepEqual(t, slices.Sorted(maps.Keys(properties)), slices.Sorted(maps.Keys(value)))
	assert.DeepEqual(t, slices.Sorted(slices.Values(libStrings(schema["required"]))), slices.Sorted(maps.Keys(value)))
}

func TestLibraryArgumentErrors(t *testing.T) {
	l := libSmall()
	for _, test := range []struct{ tool, arguments, want string }{
		{"search_chunks", `{}`, "query is missing or empty: give a question or key words"},
		{"search_chunks", `null`, "query is missing or empty: give a question or key words"},
		{"search_chunks", `{"query":" "}`, "query is missing or empty: give a question or key words"},
		{"search_chunks", `{"query":null}`, "query is missing or empty: give a question or key words"},
		{"search_chunks", `{"query":["x"]}`, "query must be a string, not array"},
		{"search_chunks", `["x"]`, "arguments must be an object, not array"},
		{"search_chunks", `"x"`, "arguments must be an object, not string"},
		{"search_chunks", `{"query":"x","limit":0}`, "limit must be a whole number from 1 to 500, not 0"},
		{"search_chunks", `{"query":"x","limit":501}`, "limit must be a whole number from 1 to 500, not 501"},
		{"search_chunks", `{"query":"x","limit":1.5}`, "limit must be a whole number from 1 to 500, not 1.5"},
		{"search_chunks", `{"query":"x","limit":"5"}`, "limit must be a number, not string"},
		{"search_chunks", `{"query":"x","min_similarity":-0.1}`, "min_similarity must be from 0 to 1, not -0.1"},
		{"search_chunks", `{"query":"x","min_similarity":2}`, "min_similarity must be from 0 to 1, not 2"},
		{"search_chunks", `{"query":"x","source_filter":"[a"}`, `source_filter must be a part of a path or a pattern such as docs/*.md, not "[a"`},
		{"search_chunks", `{"query":"x","author_filter":"me"}`, `unknown field "author_filter": leave it out`},
		{"list_documents", `{"source_filter":"[a"}`, `source_filter must be a part of a path or a pattern such as docs/*.md, not "[a"`},
		{"get_document", `{"source":"a.go","end_line":1.5}`, "end_line must be a whole number, not number 1.5"},
		{"list_documents", `{"query":"x"}`, `unknown field "query": leave it out`},
		{"get_document", `{}`, `there is no document "": list_documents names them`},
		{"get_document", `{"source":"../a.go"}`, `there is no document "../a.go": list_documents names them`},
		{"get_document", `{"source":"a.go","start_line":0}`, `a.go has the lines 1 to 4, not 0 to 4`},
		{"get_document", `{"source":"a.go","end_line":-1}`, `a.go has the lines 1 to 4, not 1 to -1`},
		{"get_document", `{"source":"a.go","end_line":5}`, `a.go has the lines 1 to 4, not 1 to 5`},
		{"get_document", `{"source":"a.go","start_line":3,"end_line":2}`, `a.go has the lines 1 to 4, not 3 to 2`},
	} {
		result, err := libCall(t, l, test.tool, test.arguments)
		assert.NilError(t, err)
		assert.Assert(t, result.IsError && result.StructuredContent == nil, test.arguments)
		assert.Equal(t, result.Content[0].Text, test.tool+": "+test.want)
	}
	_, err := libCall(t, l, "Search_chunks", `{"query":"x"}`)
	var e *Error
	assert.Assert(t, errors.As(err, &e) && e.Code == CodeInvalidParams)
}

func TestLibrarySearchReply(t *testing.T) {
	l := libSmall()
	reply := libSearch(t, l, `{"query":"eating apples","limit":2.0}`)
	assert.Equal(t, reply.Query, "eating apples")
	assert.Equal(t, reply.TotalCount, 3)
	assert.Equal(t, len(reply.Results), 2)
	assert.DeepEqual(t, searchResult{Text: "package a\n\n// F eats apples.\nfunc F() {}", Source: "a.go", StartLine: 1, EndLine: 4, Similarity: reply.Results[0].Similarity}, reply.Results[0])

	least := reply.Results[1].Similarity
	reply = libSearch(t, l, fmt.Sprintf(`{"query":"eating apples","min_similarity":%v,"limit":null}`, least))
	assert.Equal(t, reply.TotalCount, 2)

	reply = libSearch(t, l, `{"query":"pears"}`) // the blank lines behind it are not quoted, and < is no \u003c
	assert.Equal(t, reply.Results[0].Text, "# One\n\nApples & <pears>.")
	assert.Equal(t, reply.Results[0].EndLine, 3)
	result, err := libCall(t, l, "search_chunks", `{"query":"pears"}`)
	assert.NilError(t, err)
	assert.Assert(t, is.Contains(result.Content[0].Text, "& <pears>"))

	result, err = libCall(t, l, "search_chunks", `{"query":"zebra"}`)
	assert.NilError(t, err)
	assert.Equal(t, result.Content[0].Text, `{"results":[],"total_count":0,"query":"zebra"}`)

	long := NewLibrary(fstest.MapFS{"a.json": {Data: []byte(`"` + strings.Repeat("é", maxQuote) + `"`)}})
	reply = libSearch(t, long, `{"query":"json"}`)
	assert.Assert(t, len(reply.Results[0].Text) < maxQuote+10 && strings.HasSuffix(reply.Results[0].Text, "é […]"))
}

func TestLibrarySourceFilter(t *testing.T) {
	l := libSmall()
	for filter, want := range map[string]string{
		"": "Two.TXT a.go a/one.md", "A": "a.go a/one.md", "one": "a/one.md", "*.md": "a/one.md", "a*": "a.go",
		"a/*": "a/one.md", "?wo.TXT": "Two.TXT", "*.txt": "", "zebra": "",
	} {
		sources := []string{}
		for _, r := range libSearch(t, l, fmt.Sprintf(`{"query":"apples","source_filter":%q}`, filter)).Results {
			sources = append(sources, r.Source)
		}
		slices.Sort(sources)
		assert.Equal(t, strings.Join(sources, " "), want, "%q", filter)
	}
}

func TestLibraryGetDocument(t *testing.T) {
	l := NewLibrary(fstest.MapFS{"a.txt": {Data: []byte("one\ntwo\nthree")}, "empty.txt": {}, "b.txt": {Data: []byte("one\n")}})
	for arguments, want := range map[string]string{
		`{"source":"a.txt"}`:                             "one\ntwo\nthree",
		`{"source":"a.txt","start_line":2}`:              "two\nthree",
		`{"source":"a.txt","start_line":2,"end_line":2}`: "two\n",
		`{"source":"a.txt","end_line":null}`:             "one\ntwo\nthree",
		`{"source":"b.txt","start_line":1,"end_line":1}`: "one\n",
		`{"source":"empty.txt"}`:                         "",
	} {
		result, err := libCall(t, l, "get_document", arguments)
		assert.NilError(t, err)
		assert.Assert(t, !result.IsError, "%s: %v", arguments, result.Content)
		assert.Equal(t, result.Content[0].Text, want, arguments)
	}
}

// No arguments make a tool panic.
func FuzzLibraryArguments(f *testing.F) {
	for _, seed := range []string{
		`{"source":"empty.txt","start_line":5}`, `{"source":"empty.txt","end_line":-1}`, `{"source":"a.txt","start_line":2,"end_line":3}`,
		`{"query":"one","limit":1e9}`, `{"query":"\u0000","source_filter":"[]a]"}`, `{"source_filter":"*"}`, `null`, `7`,
	} {
		f.Add(seed)
	}
	l := NewLibrary(fstest.MapFS{"a.txt": {Data: []byte("one\ntwo\nthree")}, "empty.txt": {}})
	c, err := l.load(f.Context(), new(libraryRequest))
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

func TestOpenLibraryKeepsToTheFolder(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	write := func(name string, content string) {
		t.Helper()
		assert.NilError(t, os.MkdirAll(filepath.Dir(name), 0o700))
		assert.NilError(t, os.WriteFile(name, []byte(content), 0o600))
	}
	write(filepath.Join(outside, "secret.md"), "apples")
	for _, name := range []string{"a.md", "sub/b.md", ".hidden.md", ".git/c.md", "node_modules/d.md", "sub/vendor/e.md", "id_rsa", "image.png"} {
		write(filepath.Join(dir, name), "apples")
	}
	write(filepath.Join(dir, "nul.md"), "apples\x00")
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
	l, err := OpenLibrary(dir)
	assert.NilError(t, err)
	defer l.Close()
	l.MaxFile = 500
	var told []string
	l.OnIndexed = func(summary string) { told = append(told, summary) }
	sources := []string{}
	for _, r := range libSearch(t, l, `{"query":"apples"}`).Results {
		sources = append(sources, r.Source)
	}
	assert.DeepEqual(t, sources, []string{"a.md", "sub/b.md"})
	libSearch(t, l, `{"query":"apples"}`)
	if links > 0 {
		assert.DeepEqual(t, told, []string{"2 documents; left out: 2 folders of dependencies, 2 hidden, 4 links and special files, 2 not text, 2 of other types, 1 too large"})
		result, err := libCall(t, l, "list_documents", `{}`)
		assert.NilError(t, err)
		assert.Assert(t, is.Contains(result.Content[0].Text, told[0]))

		// A file that is exchanged for a link after it was found.
		_, reason := l.read("link.md")
		assert.Equal(t, reason, "unreadable")
		_, reason = l.read("folder/secret.md")
		assert.Equal(t, reason, "unreadable")
	}
	_, err = OpenLibrary(filepath.Join(dir, "none"))
	assert.Assert(t, errors.Is(err, fs.ErrNotExist))
}

func TestLibraryBounds(t *testing.T) {
	files := fstest.MapFS{}
	for i := range 10 {
		files[fmt.Sprintf("%d.txt", i)] = &fstest.MapFile{Data: []byte("0123456789")}
	}
	for name, test := range map[string]struct {
		f    Folder
		want string
	}{
		"files": {Folder{MaxFiles: 4}, "4 documents; left out: 6 beyond the number of files"},
		"total": {Folder{MaxTotal: 35}, "3 documents; left out: 7 beyond the total size"},
		"fits":  {Folder{MaxTotal: 100, MaxFiles: 10, MaxFile: 10}, "10 documents"},
		"file":  {Folder{MaxFile: 9}, "0 documents; left out: 10 too large"},
		"skip":  {Folder{Skip: "[0-4].*"}, "5 documents; left out: 5 of other types"},
	} {
		l := NewLibrary(files)
		test.f.FS = files
		l.Folder = test.f
		var got string
		l.OnIndexed = func(summary string) { got = summary }
		_, err := libCall(t, l, "list_documents", `{}`)
		assert.NilError(t, err)
		assert.Equal(t, got, test.want, name)
	}
}

func TestLibraryThatCannotBeRead(t *testing.T) {
	result, err := libCall(t, NewLibrary(os.DirFS(filepath.Join(t.TempDir(), "none"))), "list_documents", `{}`)
	assert.NilError(t, err)
	assert.Assert(t, result.IsError)
	assert.Assert(t, is.Contains(result.Content[0].Text, "list_documents: the library cannot be read: "))
}

func TestLibraryReportsProgress(t *testing.T) {
	files := fstest.MapFS{}
	for i := range 230 {
		files[fmt.Sprintf("%03d.txt", i)] = &fstest.MapFile{Data: []byte("x")}
	}
	l := NewLibrary(files)
	call := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"list_documents","_meta":{"progressToken":%s}}}`
	progress := func(token string) (all []float64) {
		here, there := libPair()
		served := make(chan error)
		go func() { served <- l.Serve(t.Context(), there) }()
		for _, line := range []string{libInitialized, fmt.Sprintf(call, token)} {
			assert.NilError(t, here.Write(t.Context(), []byte(line)))
		}
		for {
			line, err := here.Read()
			assert.NilError(t, err)
			var m struct {
				ID, Method any
				Params     struct {
					ProgressToken   json.RawMessage
					Progress, Total float64
					Message         string
				}
			}
			assert.NilError(t, json.Unmarshal(line, &m))
			if m.ID != nil { // the answer, which comes after all progress
				here.Close()
				assert.NilError(t, <-served)
				return all
			}
			assert.Equal(t, m.Method, "notifications/progress")
			assert.Equal(t, string(m.Params.ProgressToken), token)
			assert.Equal(t, m.Params.Total, 230.0)
			assert.Assert(t, is.Contains(m.Params.Message, ".txt"))
			all = append(all, m.Params.Progress)
		}
	}
	assert.Equal(t, len(progress("null")), 0)
	l.corpus = nil // as if it were new
	all := progress(`"a"`)
	assert.Assert(t, len(all) >= 20 && len(all) <= 60, "%d", len(all))
	assert.Assert(t, slices.IsSorted(all) && len(slices.Compact(slices.Clone(all))) == len(all))
	assert.Equal(t, all[len(all)-1], 230.0)
	assert.Equal(t, len(progress("7")), 0) // it is there already
}

// libSlowFS stops at the first Open until it is released.
type libSlowFS struct {
	fs.FS
	opened, release chan struct{}
	once            sync.Once
	count           atomic.Int64 // of Opens
}

func (f *libSlowFS) Open(name string) (fs.File, error) {
	if strings.HasSuffix(name, ".txt") {
		f.count.Add(1)
		f.once.Do(func() {
			close(f.opened)
			<-f.release
		})
	}
	return f.FS.Open(name)
}

func TestLibraryCallCanBeCancelledWhileIndexing(t *testing.T) {
	slow := &libSlowFS{
		FS:     fstest.MapFS{"a.txt": {Data: []byte("a")}, "b.txt": {Data: []byte("b")}},
		opened: make(chan struct{}), release: make(chan struct{}),
	}
	l := NewLibrary(slow)
	indexed := 0
	l.OnIndexed = func(string) { indexed++ }
	here, there := libPair()
	served := make(chan error)
	go func() { served <- l.Serve(t.Context(), there) }()
	send := func(line string) { assert.NilError(t, here.Write(t.Context(), []byte(line))) }
	call := func(id string) string {
		return `{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"list_documents"}}`
	}
	cancel := func(id string) string {
		return `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `}}`
	}
	send(libInitialized)
	send(call("1"))
	<-slow.opened // the first call is at work
	ctx, give := context.WithCancel(t.Context())
	waiting := make(chan error)
	go func() {
		_, err := l.load(ctx, new(libraryRequest))
		waiting <- err
	}()
	give()
	assert.Assert(t, errors.Is(<-waiting, context.Canceled)) // though the first still holds the turn
	send(cancel("1"))
	send(`{"jsonrpc":"2.0","id":"ping","method":"ping"}`)
	line, err := here.Read() // after which the cancellation has been read too
	assert.NilError(t, err)
	assert.Equal(t, string(line), `{"jsonrpc":"2.0","id":"ping","result":{}}`)
	close(slow.release)
	send(call("2"))
	line, err = here.Read() // no answer to 1
	assert.NilError(t, err)
	assert.Assert(t, is.Contains(string(line), `"id":2,"result"`))
	assert.Equal(t, indexed, 1)
	assert.Equal(t, slow.count.Load(), int64(3)) // a.txt for 1, which then gave up; both for 2
	here.Close()
	assert.NilError(t, <-served)
}

func TestLibraryServeEndsWithItsContext(t *testing.T) {
	_, there := libPair()
	ctx, cancel := context.WithCancelCause(t.Context())
	served := make(chan error)
	go func() { served <- libSmall().Serve(ctx, there) }()
	stop := errors.New("stop")
	cancel(stop)
	assert.Equal(t, <-served, stop)
	<-there.done
}

func TestSourceLibrary(t *testing.T) {
	l := SourceLibrary()
	sources := []string{}
	for _, r := range libSearch(t, l, `{"query":"Library OpenLibrary sourceFiles", "limit":500}`).Results {
		sources = append(sources, r.Source)
	}
	assert.Equal(t, sources[0], "library.go")
	assert.Assert(t, !slices.ContainsFunc(sources, func(s string) bool { return strings.HasSuffix(s, "_test.go") }))
}

// libStateless is a request of the stateless era. The params are members of an object, each with a comma after it.
func libStateless(id, method, params string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":{%s"_meta":%s}}`, id, method, params, libMeta)
}

const (
	libMeta       = `{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`
	libServerInfo = `"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"library","version":"0"}}`
)

// In the stateless era any request can be the first, and says itself how it is meant; those of the handshake era, among them,
// depend on what came before, and have answers without anything new.
func TestLibraryServesBothErasAtOnce(t *testing.T) {
	answers, notifications := libSession(t, libSmall(),
		libStateless("1", "tools/call", `"name":"get_document","arguments":{"source":"Two.TXT"},`),
		libStateless("2", "server/discover", ``),
		libStateless("3", "initialize", `"protocolVersion":"2025-06-18",`),
		libStateless("4", "ping", ``),
		libStateless("5", "tools/call", `"name":"search_chunks","arguments":{},`),
		libStateless("6", "completion/complete", `"ref":{"type":"ref/prompt","name":"answer_from_library"},"argument":{"name":"question","value":"w"},`),
		libStateless("7", "resources/read", `"uri":"library:///Two.TXT",`),
		libStateless("8", "resources/read", `"uri":"library:///none",`),
		libStateless("9", "resources/templates/list", ``),
		libStateless("10", "logging/setLevel", `"level":"info",`),
		libInitialized,
		`{"jsonrpc":"2.0","id":12,"method":"server/discover"}`,
		`{"jsonrpc":"2.0","id":13,"method":"subscriptions/listen","params":{"notifications":{}}}`,
		`{"jsonrpc":"2.0","id":14,"method":"resources/read","params":{"uri":"library:///Two.TXT"}}`,
		`{"jsonrpc":"2.0","id":15,"method":"resources/read","params":{"uri":"library:///none"}}`,
		`{"jsonrpc":"2.0","id":16,"method":"resources/subscribe","params":{"uri":"library:///Two.TXT"}}`,
		libStateless("17", "resources/list", ``),
		`{"jsonrpc":"2.0","id":18,"method":"resources/list"}`,
		`{"jsonrpc":"2.0","id":19,"method":"resources/templates/list","params":{"_meta":{"progressToken":1}}}`,
	)
	assert.Equal(t, len(notifications), 0)
	const offers = `"capabilities":{"completions":{},"prompts":{},"resources":{},"tools":{}},`
	const instructions = `"instructions":"Search with search_chunks first; read more of a source with get_document.",`
	const contents = `"contents":[{"mimeType":"text/plain","text":"Apples\r\nand plums","uri":"library:///Two.TXT"}]`
	const noResource = `"message":"there is no such resource: resources/list names them","data":{"uri":"library:///none"}`
	const templates = `"resourceTemplates":[{"uriTemplate":"library:///{+source}","name":"document","title":"Document","description":"The text of a document, by its path"}]`
	const resources = `"resources":[{"mimeType":"text/plain","name":"Two.TXT","size":17,"uri":"library:///Two.TXT"},` +
		`{"mimeType":"text/x-go","name":"a.go","size":41,"uri":"library:///a.go"},{"mimeType":"text/markdown","name":"a/one.md","size":27,"uri":"library:///a/one.md"}]`
	for id, want := range map[string]string{
		`1`: `"result":{` + libServerInfo + `,"content":[{"type":"text","text":"Apples\r\nand plums"}],"resultType":"complete"}`,
		`2`: `"result":{` + libServerInfo + `,"cacheScope":"public",` + offers + instructions +
			`"resultType":"complete","supportedVersions":["2026-07-28","2025-11-25","2025-06-18","2025-03-26","2024-11-05"],"ttlMs":3600000}`,
		`3`:  `"result":{` + offers + instructions + `"protocolVersion":"2025-06-18","serverInfo":{"name":"library","version":"0"}}`,
		`4`:  `"error":{"code":-32601,"message":"method not found: ping"}`,
		`5`:  `"result":{` + libServerInfo + `,"content":[{"type":"text","text":"search_chunks: query is missing or empty: give a question or key words"}],"isError":true,"resultType":"complete"}`,
		`6`:  `"result":{` + libServerInfo + `,"completion":{"hasMore":false,"total":0,"values":[]},"resultType":"complete"}`,
		`7`:  `"result":{` + libServerInfo + `,"cacheScope":"private",` + contents + `,"resultType":"complete","ttlMs":3600000}`,
		`8`:  `"error":{"code":-32602,` + noResource + `}`,
		`9`:  `"result":{` + libServerInfo + `,"cacheScope":"public",` + templates + `,"resultType":"complete","ttlMs":3600000}`,
		`10`: `"error":{"code":-32601,"message":"method not found: logging/setLevel"}`,
		`12`: `"error":{"code":-32601,"message":"method not found: server/discover"}`,
		`13`: `"error":{"code":-32601,"message":"method not found: subscriptions/listen"}`,
		`14`: `"result":{` + contents + `}`,
		`15`: `"error":{"code":-32002,` + noResource + `}`,
		`16`: `"error":{"code":-32601,"message":"method not found: resources/subscribe"}`,
		`17`: `"result":{` + libServerInfo + `,"cacheScope":"private",` + resources + `,"resultType":"complete","ttlMs":3600000}`,
		`18`: `"result":{` + resources + `}`,
		`19`: `"result":{` + templates + `}`,
	} {
		assert.Equal(t, answers[id], `{"jsonrpc":"2.0","id":`+id+`,`+want+`}`)
		delete(answers, id)
	}
	assert.Equal(t, len(answers), 0, "%v", answers)
}

func TestLibraryChecksMeta(t *testing.T) {
	const version, capabilities = `"io.modelcontextprotocol/protocolVersion":`, `"io.modelcontextprotocol/clientCapabilities":`
	const noVersion = `"code":-32602,"message":"tools/list needs io.modelcontextprotocol/protocolVersion in _meta`
	const noCapabilities = `"code":-32602,"message":"tools/list needs io.modelcontextprotocol/clientCapabilities in _meta, an object"`
	const unsupported = `"code":-32022,"message":"unsupported protocol version; those before 2026-07-28 begin with initialize",` +
		`"data":{"requested":"%s","supported":["2026-07-28","2025-11-25","2025-06-18","2025-03-26","2024-11-05"]}`
	for meta, want := range map[string]string{
		version + `"2026-07-28",` + capabilities + `{}`:                                               `"result":{`,
		version + `"2026-07-28",` + capabilities + `{"roots":{}},"progressToken":1,"com.example/a":7`: `"result":{`,
		``:                                      noVersion + `, or an initialize before it"`,
		`"progressToken":1`:                     noVersion + `, or an initialize before it"`,
		capabilities + `{}`:                     noVersion + `"`,
		version + `null,` + capabilities + `{}`: noVersion + `"`,
		version + `"",` + capabilities + `{}`:   noVersion + `"`,
		version + `20260728,` + capabilities + `{}`:        noVersion + `"`,
		version + `"2026-07-28"`:                           noCapabilities,
		version + `"2026-07-28",` + capabilities + `null`:  noCapabilities,
		version + `"2026-07-28",` + capabilities + `[]`:    noCapabilities,
		version + `"2026-07-28",` + capabilities + `"all"`: noCapabilities,
		version + `"2099-01-01",` + capabilities + `{}`:    fmt.Sprintf(unsupported, "2099-01-01"),
		version + `"2099-01-01"`:                           fmt.Sprintf(unsupported, "2099-01-01"), // what else it needs is unknown
		version + `"2025-11-25",` + capabilities + `{}`:    fmt.Sprintf(unsupported, "2025-11-25"),
	} {
		answers, _ := libSession(t, libSmall(), `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{`+meta+`}}}`)
		assert.Assert(t, is.Contains(answers["1"], want), meta)
	}
	for _, params := range []string{`[]`, `7`, `{"_meta":[]}`, `{"_meta":"x"}`} {
		answers, _ := libSession(t, libSmall(), `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":`+params+`}`)
		assert.Assert(t, is.Contains(answers["1"], `"error":{"code":-32602,"message":"tools/list: json: `), params)
	}
	// What one request has said is not remembered for the next.
	answers, _ := libSession(t, libSmall(), libStateless("1", "tools/list", ``), `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`)
	assert.Assert(t, is.Contains(answers["1"], `"result":{`))
	assert.Assert(t, is.Contains(answers["2"], noVersion))
	answers, _ = libSession(t, libSmall(), `{"jsonrpc":"2.0","id":1,"method":"server/discover"}`)
	assert.Assert(t, is.Contains(answers["1"], `"code":-32602,"message":"server/discover needs `))
}

// libMany is a library of n documents.
func libMany(n int) *Library {
	files := fstest.MapFS{}
	for i := range n {
		files[fmt.Sprintf("%03d.txt", i)] = &fstest.MapFile{Data: []byte("x")}
	}
	return NewLibrary(files)
}

func TestLibraryPages(t *testing.T) {
	for n, want := range map[int][]int{0: {0}, 1: {1}, 100: {100}, 101: {100, 1}, 230: {100, 100, 30}} {
		l := libMany(n)
		var sizes []int
		cursor, next := "", 0
		for more := true; more; {
			answers, _ := libSession(t, l, libStateless("1", "resources/list", cursor))
			var answer struct {
				Result struct {
					Resources  []map[string]any
					NextCursor *string
				}
			}
			assert.NilError(t, json.Unmarshal([]byte(answers["1"]), &answer))
			assert.Assert(t, answer.Result.Resources != nil) // an array, even where there is nothing
			for _, r := range answer.Result.Resources {
				assert.Equal(t, r["name"], fmt.Sprintf("%03d.txt", next))
				next++
			}
			sizes = append(sizes, len(answer.Result.Resources))
			if more = answer.Result.NextCursor != nil; more {
				cursor = fmt.Sprintf(`"cursor":%q,`, *answer.Result.NextCursor)
			}
		}
		assert.DeepEqual(t, sizes, want)
	}
	l := libMany(150)
	for _, method := range []string{"resources/list", "tools/list", "prompts/list", "resources/templates/list"} {
		for _, cursor := range []string{`""`, `"0"`, `"-100"`, `"150"`, `"99999999999999999999"`, `"x"`} {
			answers, _ := libSession(t, l, libStateless("1", method, `"cursor":`+cursor+`,`))
			assert.Assert(t, is.Contains(answers["1"], `"error":{"code":-32602,"message":"`+method+`: unknown cursor`), cursor)
		}
		answers, _ := libSession(t, l, libStateless("1", method, `"cursor":7,`))
		assert.Assert(t, is.Contains(answers["1"], `"error":{"code":-32602,`))
		answers, _ = libSession(t, l, libStateless("1", method, `"cursor":null,`))
		assert.Assert(t, is.Contains(answers["1"], `"result":{`))
	}
}

func TestLibraryDocumentURIs(t *testing.T) {
	for source, uri := range map[string]string{
		"rpc.go":               "library:///rpc.go",
		"a/b c.md":             "library:///a/b%20c.md",
		"Größe/日本.txt":         "library:///Gr%C3%B6%C3%9Fe/%E6%97%A5%E6%9C%AC.txt",
		"100% why? #1.md":      "library:///100%25%20why%3F%20%231.md",
		"a+b&c=d;e@f:g[1].txt": "library:///a+b&c=d;e@f:g%5B1%5D.txt",
		"..md":                 "library:///..md",
	} {
		assert.Equal(t, documentURI(source), uri)
		assert.Equal(t, documentSource(uri), source)
	}
	for uri, source := range map[string]string{ // as templates are filled in, more and less carefully
		"library:///a%2Fb%20c.md": "a/b c.md", "library:///a/b c.md": "a/b c.md", "library:///why?#1.md": "why?#1.md",
		"library:///": "", "library://rpc.go": "", "file:///rpc.go": "", "rpc.go": "", "": "", "library:///%zz": "", "library:///%": "",
	} {
		assert.Equal(t, documentSource(uri), source, uri)
	}
}

func TestLibraryReadsResources(t *testing.T) {
	l := NewLibrary(fstest.MapFS{
		"Größe 1.md": {Data: []byte("größer & <kleiner>")}, "empty.json": {}, "a/b.YAML": {Data: []byte("a: b\n")}, ".hidden.md": {Data: []byte("x")},
	})
	for uri, want := range map[string]string{
		"library:///Gr%C3%B6%C3%9Fe%201.md": `[{"mimeType":"text/markdown","text":"größer & <kleiner>","uri":"library:///Gr%C3%B6%C3%9Fe%201.md"}]`,
		"library:///Größe 1.md":             `[{"mimeType":"text/markdown","text":"größer & <kleiner>","uri":"library:///Gr%C3%B6%C3%9Fe%201.md"}]`,
		"library:///empty.json":             `[{"mimeType":"application/json","text":"","uri":"library:///empty.json"}]`, // the text is required
		"library:///a%2fb.YAML":             `[{"mimeType":"application/yaml","text":"a: b\n","uri":"library:///a/b.YAML"}]`,
		"library:///.hidden.md":             "", "library:///../a/b.YAML": "", "library:///a": "", "library:///": "", "x": "",
	} {
		answers, _ := libSession(t, l, libStateless("1", "resources/read", fmt.Sprintf(`"uri":%q,`, uri)))
		if want == "" {
			assert.Assert(t, is.Contains(answers["1"], `"error":{"code":-32602,"message":"there is no such resource`), uri)
			continue
		}
		var answer struct{ Result struct{ Contents any } }
		assert.NilError(t, json.Unmarshal([]byte(answers["1"]), &answer))
		got, err := json.Marshal(answer.Result.Contents)
		assert.NilError(t, err)
		assert.Equal(t, string(got), libCompact(t, want))
	}
	for params, want := range map[string]string{
		``:         `{"code":-32602,"message":"resources/read needs a uri"}`,
		`"uri":7,`: `{"code":-32602,"message":"resources/read: json: `,
	} {
		answers, _ := libSession(t, l, libStateless("1", "resources/read", params))
		assert.Assert(t, is.Contains(answers["1"], strings.TrimSuffix(want, "}")))
	}
	broken := NewLibrary(os.DirFS(filepath.Join(t.TempDir(), "none")))
	answers, _ := libSession(t, broken, libStateless("1", "resources/list", ``))
	assert.Assert(t, is.Contains(answers["1"], `"error":{"code":-32603,"message":"the library cannot be read: `))
}

func TestLibraryPrompt(t *testing.T) {
	get := func(params string) string {
		answers, _ := libSession(t, libSmall(), libStateless("1", "prompts/get", params))
		return answers["1"]
	}
	got := get(`"name":"answer_from_library","arguments":{"question":" Why \"so\"? "},`)
	assert.Assert(t, is.Contains(got, `"messages":[{"content":{"type":"text","text":"Answer the question below from the library alone.`))
	assert.Assert(t, is.Contains(got, `Question: Why \"so\"?"},"role":"user"}]`))
	for params, want := range map[string]string{
		``:                              `unknown prompt: `,
		`"name":"answer",`:              `unknown prompt: answer`,
		`"name":"answer_from_library",`: `answer_from_library needs the argument question`,
		`"name":"answer_from_library","arguments":{"question":" "},`:     `answer_from_library needs the argument question`,
		`"name":"answer_from_library","arguments":{"question":["why"]},`: `prompts/get: json: `,
	} {
		assert.Assert(t, is.Contains(get(params), `"error":{"code":-32602,"message":"`+want), params)
	}
}

func TestLibraryCompletes(t *testing.T) {
	complete := func(l *Library, ref, argument, value string) string {
		answers, _ := libSession(t, l, libStateless("1", "completion/complete",
			fmt.Sprintf(`"ref":%s,"argument":{"name":%q,"value":%q},`, ref, argument, value)))
		return answers["1"]
	}
	const template = `{"type":"ref/resource","uri":"library:///{+source}"}`
	for value, want := range map[string]string{
		"":    `{"hasMore":false,"total":3,"values":["Two.TXT","a.go","a/one.md"]}`,
		"o":   `{"hasMore":false,"total":3,"values":["Two.TXT","a.go","a/one.md"]}`,
		"A":   `{"hasMore":false,"total":2,"values":["a.go","a/one.md"]}`,
		"one": `{"hasMore":false,"total":1,"values":["a/one.md"]}`,
		"zzz": `{"hasMore":false,"total":0,"values":[]}`,
	} {
		assert.Assert(t, is.Contains(complete(libSmall(), template, "source", value), `"completion":`+want), value)
	}
	// Those that begin with it are first.
	l := NewLibrary(fstest.MapFS{"a-b.md": {}, "b-a.md": {}, "c.md": {}})
	assert.Assert(t, is.Contains(complete(l, template, "source", "b"), `"values":["b-a.md","a-b.md"]`))

	var many struct {
		Result struct{ Completion Completion }
	}
	assert.NilError(t, json.Unmarshal([]byte(complete(libMany(150), template, "source", "txt")), &many))
	assert.Equal(t, len(many.Result.Completion.Values), 100)
	assert.Assert(t, many.Result.Completion.HasMore && many.Result.Completion.Total == 150)

	for _, test := range [][2]string{
		{template, "path"}, {`{"type":"ref/resource","uri":"library:///a.go"}`, "source"}, {`{"type":"ref/prompt","name":"answer_from_library"}`, "source"},
		{`{"type":"ref/prompt","name":"x"}`, "question"}, {`{"type":"ref/tool","name":"search_chunks"}`, "query"}, {`{}`, ""},
	} {
		assert.Assert(t, is.Contains(complete(libSmall(), test[0], test[1], ""), `"error":{"code":-32602,"message":"completion/complete: there is no argument`), test[0])
	}
}

// libHalf is a client that can close its side and go on reading.
type libHalf struct {
	in  chan string
	out chan []byte
}

func (h *libHalf) Read() ([]byte, error) {
	line, ok := <-h.in
	if !ok {
		return nil, io.EOF
	}
	return []byte(line), nil
}

func (h *libHalf) Write(_ context.Context, message []byte) error {
	h.out <- message
	return nil
}

func (h *libHalf) Close() error { return nil }

// A subscription lasts until the client cancels it, then without an answer, or until it goes. Neither keeps Serve.
func TestLibrarySubscription(t *testing.T) {
	h := &libHalf{make(chan string), make(chan []byte, 10)}
	served := make(chan error)
	go func() { served <- libSmall().Serve(t.Context(), h) }()
	acknowledged := func(id string) string {
		return `{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":` + id + `},"notifications":{}}}`
	}
	h.in <- libStateless(`1`, "subscriptions/listen", `"notifications":{"toolsListChanged":true,"resourceSubscriptions":["library:///a.go"]},`)
	assert.Equal(t, string(<-h.out), acknowledged(`1`))
	h.in <- libStateless(`"two"`, "subscriptions/listen", `"notifications":{},`)
	assert.Equal(t, string(<-h.out), acknowledged(`"two"`))
	h.in <- libStateless(`3`, "subscriptions/listen", ``)
	assert.Equal(t, string(<-h.out), `{"jsonrpc":"2.0","id":3,"error":{"code":-32602,"message":"subscriptions/listen needs notifications, an object"}}`)
	h.in <- `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`
	close(h.in)
	assert.NilError(t, <-served)
	assert.Equal(t, string(<-h.out), `{"jsonrpc":"2.0","id":"two","result":{"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"library","version":"0"},`+
		`"io.modelcontextprotocol/subscriptionId":"two"},"resultType":"complete"}}`)
	assert.Equal(t, len(h.out), 0)
}

// Whatever needs the documents reports the progress of reading them, in either era.
func TestLibraryReportsProgressOfAnyRequest(t *testing.T) {
	meta := strings.TrimSuffix(libMeta, "}") + `,"progressToken":"p"}`
	for method, params := range map[string]string{
		"resources/list": ``, "resources/read": `"uri":"library:///001.txt",`, "tools/call": `"name":"list_documents",`,
		"completion/complete": `"ref":{"type":"ref/resource","uri":"library:///{+source}"},"argument":{"name":"source","value":""},`,
	} {
		for _, meta := range []string{meta, `{"progressToken":"p"}`} {
			h := &libHalf{make(chan string), make(chan []byte, 10)}
			served := make(chan error)
			go func() { served <- libMany(2).Serve(t.Context(), h) }()
			h.in <- libInitialized
			h.in <- fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":{%s"_meta":%s}}`, method, params, meta)
			for i := range 2 {
				assert.Equal(t, string(<-h.out), fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":`+
					`{"message":"indexing %03d.txt","progress":%d,"progressToken":"p","total":2}}`, i, i+1))
			}
			assert.Assert(t, is.Contains(string(<-h.out), `"id":1,"result":{`))
			close(h.in)
			assert.NilError(t, <-served)
		}
	}
}

// The client of this program and its server understand each other in every revision.
func TestLibraryWithClient(t *testing.T) {
	for _, revision := range append(Revisions(), "") {
		t.Run(revision, func(t *testing.T) {
			l := libMany(230)
			l.FS.(fstest.MapFS)["a b/é.md"] = &fstest.MapFile{Data: []byte("# Tea\n\nGreen tea wants 80 degrees.\n")}
			here, there := libPair()
			served := make(chan error)
			go func() { served <- l.Serve(t.Context(), there) }()
			c, err := Connect(t.Context(), here, &ClientOptions{Protocol: revision, Stray: func(message []byte, reason error) {
				t.Errorf("%s: %v", message, reason)
			}})
			assert.NilError(t, err)
			if revision == "" {
				revision = "2026-07-28"
			}
			assert.Equal(t, c.Server.ProtocolVersion, revision)
			assert.Equal(t, c.Server.Implementation.Name, "library")
			assert.DeepEqual(t, slices.Sorted(maps.Keys(c.Server.Capabilities)), []string{"completions", "prompts", "resources", "tools"})

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
			assert.DeepEqual(t, resources[230], Resource{URI: "library:///a%20b/%C3%A9.md", Name: "a b/é.md", MIMEType: "text/markdown", Size: 35})
			contents, err := c.ReadResource(t.Context(), resources[230].URI)
			assert.NilError(t, err)
			assert.DeepEqual(t, contents, []ResourceContents{{URI: resources[230].URI, MIMEType: "text/markdown", Text: "# Tea\n\nGreen tea wants 80 degrees.\n"}})
			_, err = c.ReadResource(t.Context(), "library:///none")
			var refusal *Error
			assert.Assert(t, errors.As(err, &refusal))
			assert.Equal(t, refusal.Code, map[bool]int64{true: CodeInvalidParams, false: CodeResourceNotFound}[revision == "2026-07-28"])

			templates, err := c.ListResourceTemplates(t.Context())
			assert.NilError(t, err)
			assert.Equal(t, len(templates), 1)
			completion, err := c.CompleteResource(t.Context(), templates[0].URITemplate, "source", "É", nil)
			assert.NilError(t, err)
			assert.DeepEqual(t, *completion, Completion{Values: []string{"a b/é.md"}, Total: 1})

			prompts, err := c.ListPrompts(t.Context())
			assert.NilError(t, err)
			assert.Equal(t, len(prompts), 1)
			assert.DeepEqual(t, prompts[0].Arguments, []PromptArgument{{Name: "question", Description: "What you want to know", Required: true}})
			completion, err = c.CompletePrompt(t.Context(), prompts[0].Name, "question", "w", nil)
			assert.NilError(t, err)
			assert.Equal(t, len(completion.Values), 0)
			prompt, err := c.GetPrompt(t.Context(), prompts[0].Name, map[string]string{"question": "How hot?"})
			assert.NilError(t, err)
			assert.Equal(t, len(prompt.Messages), 1)
			assert.Assert(t, prompt.Messages[0].Role == "user" && strings.HasSuffix(prompt.Messages[0].Content.Text, "Question: How hot?"))
			_, err = c.GetPrompt(t.Context(), prompts[0].Name, nil)
			assert.Assert(t, errors.As(err, &refusal) && refusal.Code == CodeInvalidParams)

			ctx, stop := context.WithCancelCause(t.Context())
			enough := errors.New("enough")
			listened := make(chan error)
			go func() {
				listened <- c.Listen(ctx, Subscription{Tools: true, Resources: true}, func(Change) { t.Error("nothing changes") })
			}()
			_, err = c.CallTool(t.Context(), "list_documents", nil, nil)
			assert.NilError(t, err)
			stop(enough)
			assert.ErrorIs(t, <-listened, enough)

			assert.NilError(t, c.Close())
			assert.NilError(t, <-served)
		})
	}
}
