package main

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// runChild is the test binary as another program: a server of some kind, or what a server has started. Its
// result is the exit status.
func runChild(mode string) int {
	if era, ok := strings.CutPrefix(mode, "stress-"); ok {
		time.AfterFunc(time.Hour, func() { os.Exit(9) })
		return stressChild(era)
	}
	// Whatever becomes of the test, no child stays for ever.
	time.AfterFunc(time.Minute, func() { os.Exit(9) })
	var lifeline *os.File // open for as long as this process is there
	if path := os.Getenv("MCPAGENT_LIFELINE"); path != "" {
		var err error
		if lifeline, err = os.OpenFile(path, os.O_WRONLY, 0); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 2
		}
		defer lifeline.Close()
	}
	switch {
	case mode == "conformance":
		return conformanceChild()
	case mode == "bench-http":
		return benchHTTPChild()
	case strings.HasPrefix(mode, "bench-"):
		return benchChild(strings.TrimPrefix(mode, "bench-"))
	case strings.HasPrefix(mode, "held-"):
		return heldChild(mode, lifeline)
	}
	p := &puppet{in: bufio.NewReaderSize(os.Stdin, 64<<10)}
	switch mode {
	case "puppet":
		return p.serve()
	case "exits":
		fmt.Fprint(os.Stderr, "loading\n\ncannot open the library\n")
		return 3
	case "silent":
		fmt.Fprintln(os.Stderr, "started")
		_, _ = io.Copy(io.Discard, os.Stdin)
		return 0
	case "noisy":
		for i := range 1 << 14 {
			fmt.Fprintf(os.Stderr, "%063d\n", i)
		}
		return p.serve()
	case "lingers": // after the end of stdin, and writes nothing that would fail
		p.serve()
		select {}
	case "owner": // of a server that lingers
		command := childCommand("lingers")
		command.Env = append(command.Env, "MCPAGENT_LIFELINE="+os.Getenv("MCPAGENT_LIFELINE"))
		_, err := Connect(context.Background(), command.Start, nil)
		fmt.Println("connected:", err)
		select {}
	case "stays": // after the end of stdin, until SIGTERM
		p.serve()
		fmt.Fprintln(os.Stderr, "end of input")
		select {}
	case "stubborn": // until SIGKILL
		signals := make(chan os.Signal, 1)
		signal.Notify(signals, syscall.SIGTERM)
		p.serve()
		fmt.Fprintln(os.Stderr, "end of input")
		for range signals {
			fmt.Fprintln(os.Stderr, "SIGTERM")
		}
	}
	return 2
}

// puppet is an MCP server that does what the called tool's name says.
type puppet struct {
	in *bufio.Reader
}

// puppetRequest is what the puppet understands of a message.
type puppetRequest struct {
	ID     json.RawMessage
	Method string
	Params struct {
		Name      string
		Arguments struct{ Arg string }
	}
}

func (p *puppet) serve() int {
	for {
		line, err := p.in.ReadBytes('\n')
		if err != nil {
			return 0
		}
		var r puppetRequest
		_ = json.Unmarshal(line, &r)
		switch r.Method {
		case "initialize":
			p.answer(r, `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},`+
				`"serverInfo":{"name":"puppet","version":"1"}}`)
		case "tools/call":
			if status, end := p.do(r); end {
				return status
			}
		case "server/discover":
			fmt.Printf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"method not found"}}`+"\n", r.ID)
		}
	}
}

func (p *puppet) do(r puppetRequest) (status int, end bool) {
	switch arg := r.Params.Arguments.Arg; r.Params.Name {
	case "pid":
		p.text(r, strconv.Itoa(os.Getpid()))
	case "environment":
		environment := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "GOCOVERDIR=") })
		p.text(r, strings.Join(environment, "\n"))
	case "big": // a text of so many bytes
		n, _ := strconv.Atoi(arg)
		p.text(r, strings.Repeat("x", n))
	case "wait": // never answered
		p.progress(r)
	case "stderr": // written as it is
		fmt.Fprint(os.Stderr, arg)
		p.text(r, "written")
	case "spawn": // a process that keeps stdout and stderr open
		p.text(r, strconv.Itoa(spawn("held-"+arg)))
	case "leave": // answers, and is gone
		fmt.Fprintln(os.Stderr, "leaving")
		p.text(r, "bye")
		return 7, true
	case "close": // closes its stdin and answers, or its stdout, and lives on
		fmt.Fprintln(os.Stderr, "closing")
		if arg == "stdout" {
			os.Stdout.Close()
			select {}
		}
		os.Stdin.Close()
		p.text(r, "closed")
		select {}
	case "crash": // no answer, and gone
		fmt.Fprintln(os.Stderr, "out of memory")
		self, _ := os.FindProcess(os.Getpid())
		_ = self.Kill()
		select {}
	case "deaf": // begins to read the next message, says so, and reads no more
		p.text(r, "soon")
		_, _ = p.in.ReadByte()
		fmt.Println(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"reading"}}`)
		select {}
	}
	return 0, false
}

func (p *puppet) answer(r puppetRequest, result string) {
	_, _ = os.Stdout.WriteString(`{"jsonrpc":"2.0","id":` + string(r.ID) + `,"result":` + result + "}\n")
}

func (p *puppet) text(r puppetRequest, text string) {
	quoted, _ := json.Marshal(text)
	p.answer(r, `{"content":[{"type":"text","text":`+string(quoted)+`}]}`)
}

func (p *puppet) progress(r puppetRequest) {
	const progress = `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":1}}`
	fmt.Printf(progress+"\n", r.ID)
}

// spawn starts this program once more and returns its process id when it is ready.
func spawn(mode string) int {
	r, w, err := os.Pipe()
	if err != nil {
		return 0
	}
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), "MCPAGENT_CHILD="+mode)
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	c.Stdin = w // it is written to: Windows has no ExtraFiles
	c.SysProcAttr = new(syscall.SysProcAttr)
	// A session or a group of its own: no signal to its old group reaches it. Windows has no such fields.
	field := ""
	switch mode {
	case "held-detached":
		field = "Setsid"
	case "held-group", "held-group-stubborn":
		field = "Setpgid"
	}
	if leaves := reflect.ValueOf(c.SysProcAttr).Elem().FieldByName(field); leaves.IsValid() {
		leaves.SetBool(true)
	}
	err = c.Start()
	w.Close()
	if _, eof := r.Read(make([]byte, 1)); err != nil || eof != nil {
		return 0
	}
	return c.Process.Pid
}

// heldChild does nothing but exist, with the stdout and stderr of the server that started it.
func heldChild(mode string, lifeline *os.File) int {
	asked := make(chan os.Signal, 1)
	switch mode {
	case "held-polite":
		signal.Notify(asked, syscall.SIGTERM)
	case "held-stubborn", "held-group-stubborn":
		signal.Ignore(syscall.SIGTERM)
	}
	_, _ = os.Stdin.WriteString("!") // see spawn
	os.Stdin.Close()
	<-asked
	_, _ = lifeline.WriteString("asked")
	return 0
}

// runPeer is the MCP server of the scripts, which they start as `peer MODE`. ok reports whether mode is one of its
// own.
func runPeer(mode string) (status int, ok bool) {
	mode, ok = strings.CutPrefix(mode, "peer-")
	if !ok {
		return 0, false
	}
	p := &scriptPeer{mode: mode, name: os.Getenv("PEER_NAME"), tells: os.Getenv("PEER_TELLS") != ""}
	key := os.Getenv("PEER_KEY")
	switch mode {
	case "key": // the key is in everything that it says
		fmt.Fprintln(os.Stderr, "the key is", key)
		fmt.Println("the key is", key)
		// The key stands where a line is cut.
		before := map[string]string{"refuse": strings.Repeat("x", 374), "slow": strings.Repeat("x", 131)}
		p.key = func(name string) string { return before[name] + "the key is " + key + ", says " + name }
	case "banner":
		fmt.Print("Welcome to the server!\n\n42\n{\"jsonrpc\":\"2.0\",\n[]\n")
	case "bom": // as .NET prints it, once
		fmt.Print("\ufeff")
	case "stubborn": // must be killed
		signal.Ignore(os.Interrupt, syscall.SIGTERM)
		defer time.Sleep(time.Minute)
	}
	p.serve()
	return 0, true
}

// An image of one pixel, as base64, in two forms.
const (
	scriptPNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
	scriptGIF = "R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7"
)

// scriptTools is what the server offers, by name: the schema's properties, and what is required.
var scriptTools = []struct{ name, description, properties, required string }{
	{"echo", "Repeats a text.\nWord for word.", `"text":{"type":"string"}`, `"text"`},
	{"notes.read", "Reads a note.",
		`"zone":{"type":"string"},"name":{"type":"string"},"line":{"type":"integer"}`, `"name"`},
	{"fail", "", "", ""},
	{"refuse", "Answers with an error of the protocol.", "", ""},
	{"structured", "Structured content alone.", "", ""},
	{"image", "An image.", "", ""},
	{"empty", "Nothing at all.", "", ""},
	{"slow", "Reports its progress.", "", ""},
	{"hang", "Waits to be cancelled.", "", ""},
	{"die", "Ends the server.", "", ""},
	{"ask", "Asks the client.", `"requests":{"type":"object"}`, `"requests"`},
}

// oddThings answers each list, with names that look like something else where they are shown as they are.
const oddThings = `{"tools":[{"name":"read\nwrite()\n    Writes a file.","description":"Reads a file.","inputSchema":` +
	`{"type":"object","required":["a, b"],"properties":{"a, b":{"enum":["x\u200b","y\nz"]},` +
	`"c\u001b[2K":{"type":"string\nd: string, required","default":{
		"e": 1}}}}}],` +
	`"resources":[{"uri":"note:///a\nnote:///b","name":"a","mimeType":"text/plain\r\nx"}],"resourceTemplates":[],` +
	`"prompts":[{"name":"greet\u202e","arguments":[{"name":"who)\nplain (all"}]}]}`

// scriptPeer is a server on stdin and stdout, or over HTTP.
type scriptPeer struct {
	mode  string
	key   func(name string) string // if set, all that the server says is key of something
	name  string                   // if set, the server has something that no other has
	tells bool                     // what it is asked, on stderr

	confused atomic.Bool  // by server/discover
	opened   atomic.Bool  // the user has been asked to open a URL
	session  atomic.Int64 // over HTTP: the one that has not expired
	polls    atomic.Int64 // of tasks
	finished atomic.Bool  // the tool hang is done, if it runs as a task
	begun    sync.Map     // the params of the calls that run as tasks, by the tasks' ids: scriptCall
}

// say is a text of the server, about what has the name.
func (p *scriptPeer) say(name, text string) string {
	if p.key != nil {
		return p.key(name)
	}
	return text
}

// serve answers on stdout until the end of stdin.
func (p *scriptPeer) serve() {
	if p.tells {
		fmt.Fprintln(os.Stderr, "started")
	}
	c := NewConn(NewLines(os.Stdin, os.Stdout), Handler{
		Request: p.request,
		Notification: func(c *Conn, method string, params json.RawMessage) {
			switch {
			case method == "notifications/cancelled":
				fmt.Fprintln(os.Stderr, "cancelled")
				var p struct{ RequestID json.RawMessage }
				if json.Unmarshal(params, &p) == nil {
					c.CancelRequest(p.RequestID)
				}
			case method == "notifications/initialized" && p.mode == "nosy": // asks at once
				form := `{"message":"Who are\nyou?","requestedSchema":{"type":"object","properties":{"name":{"type":"string"}}}}`
				go c.Call(context.Background(), "elicitation/create", json.RawMessage(form), nil)
			}
		},
	})
	err := c.Wait()
	fmt.Fprintln(os.Stderr, "end of stdin", err)
	c.Close()
}

// ServeHTTP is the server over HTTP. It repeats, in everything that it says, the Authorization header of the request.
func (p *scriptPeer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodConnect || r.URL.Host != "" { // it is asked as a proxy
		w.Header().Set("Proxy-Authenticate", "Basic")
		http.Error(w, "log in", http.StatusProxyAuthRequired)
		return
	}
	kind, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	secret := fmt.Sprintf("it was told %s %s, that is %s", kind, token, token)
	gossip := &scriptPeer{mode: "gossip", name: "gossip", key: func(string) string { return secret }}
	if p.mode == "tasks" {
		gossip = p
	}
	var m struct {
		ID, Params json.RawMessage
		Method     string
	}
	_ = json.NewDecoder(r.Body).Decode(&m)
	session := fmt.Sprint("s", p.session.Load())
	if had := r.Header.Get("Mcp-Session-Id"); had != "" && had != session {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	w.Header().Set("Mcp-Session-Id", session)
	if m.ID == nil {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	if m.Method == "resources/read" && strings.Contains(string(m.Params), "page") { // of which an error has the beginning
		http.Error(w, strings.Repeat(secret+" ", 100), http.StatusBadGateway)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	answer := map[string]any{"jsonrpc": "2.0", "id": m.ID}
	result, err := gossip.request(r.Context(), nil, m.Method, m.Params)
	var refusal *Error
	switch isRefusal := errors.As(err, &refusal); {
	case isRefusal && p.mode == "tasks":
		answer["error"] = refusal
	case err != nil:
		answer["error"] = &Error{Code: CodeInternalError, Message: secret}
	default:
		answer["result"] = result
	}
	_, _ = w.Write(modelJSON(answer))
}

const scriptCapabilities = `"capabilities":{"tools":{},"resources":{},"prompts":{}}`

// request answers in the server's era.
func (p *scriptPeer) request(ctx context.Context, c *Conn, method string, params json.RawMessage) (any, error) {
	if p.tells {
		fmt.Fprintln(os.Stderr, "asked", method)
	}
	if p.mode == "modern" {
		return p.modern(ctx, c, method, params)
	}
	switch {
	case method == "initialize":
		var offer struct{ ProtocolVersion string }
		if err := json.Unmarshal(params, &offer); err != nil {
			return nil, err
		}
		capabilities := scriptCapabilities
		if p.mode == "only-tools" {
			capabilities = `"capabilities":{"tools":{}}`
		}
		if p.mode == "odd" {
			capabilities = strings.TrimSuffix(capabilities, "}") + `,"extensions":{"a, b\nc":{}}}`
		}
		if p.mode == "tasks" {
			capabilities = `"capabilities":{"tools":{},"tasks":{"cancel":{},"requests":{"tools":{"call":{}}}}}`
		}
		return json.RawMessage(`{"protocolVersion":"` + offer.ProtocolVersion + `",` + capabilities +
			`,"serverInfo":` + string(modelJSON(Implementation{Name: p.say("name", "peer"), Version: "1"})) +
			`,"instructions":` + string(modelJSON(p.say("instructions", "Be kind to it."))) + `}`), nil
	case method == "server/discover" && p.mode == "mortal":
		os.Exit(1)
	case method == "server/discover" && p.mode == "confused":
		p.confused.Store(true)
	case method == "tools/list" && p.confused.Load():
		return nil, errors.New("not initialized")
	case method == "server/discover" && p.mode == "mute":
		<-ctx.Done()
	}
	return p.answer(ctx, c, method, params)
}

// modern is the server in the stateless era.
func (p *scriptPeer) modern(ctx context.Context, c *Conn, method string, params json.RawMessage) (any, error) {
	var asker struct {
		Meta struct {
			Revision string `json:"io.modelcontextprotocol/protocolVersion"`
		} `json:"_meta"`
	}
	if json.Unmarshal(params, &asker) != nil || asker.Meta.Revision != "2026-07-28" {
		return nil, &Error{Code: CodeInvalidParams, Message: "no revision"}
	}
	if method == "server/discover" {
		return json.RawMessage(`{"resultType":"complete","supportedVersions":["2026-07-28"],` + scriptCapabilities +
			`,"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"peer","version":"1"}}}`), nil
	}
	result, err := p.answer(ctx, c, method, params)
	if object, ok := result.(map[string]any); ok && object["resultType"] == nil {
		object["resultType"] = "complete"
	}
	return result, err
}

func (p *scriptPeer) answer(ctx context.Context, c *Conn, method string, params json.RawMessage) (any, error) {
	var asked struct {
		URI, Name, TaskID string
		Arguments         map[string]string
	}
	if method == "tools/call" {
		return p.call(ctx, c, params)
	}
	if err := json.Unmarshal(params, &asked); len(params) > 0 && err != nil {
		return nil, &Error{Code: CodeInvalidParams, Message: err.Error()}
	}
	switch {
	case p.mode == "tasks" && strings.HasPrefix(method, "tasks/"):
		return p.task(ctx, c, method, asked.TaskID)
	case p.mode == "bare":
	case p.mode == "only-tools" && !strings.HasPrefix(method, "tools/"):
		return nil, &Error{Code: CodeInternalError, Message: "there are only tools"}
	case p.mode == "sick" && method != "tools/list" || p.mode == "refuses" && method == "tools/list",
		p.mode == "gossip" && method == "resources/templates/list":
		return nil, &Error{Code: CodeInternalError, Message: "not today"}
	case p.mode == "odd":
		return json.RawMessage(oddThings), nil
	case p.mode == "none":
		return map[string]any{"tools": []any{}, "resources": []any{}, "resourceTemplates": []any{}, "prompts": []any{}}, nil
	case method == "tools/list":
		return map[string]any{"tools": p.tools()}, nil
	case method == "resources/list":
		resources := []Resource{
			{URI: "note:///hello", Name: "hello", MIMEType: "text/plain", Size: 5,
				Description: p.say("hello", "A greeting.\nA short one.")},
			{URI: "note:///bytes", Name: "bytes", Title: "Some bytes"},
		}
		if p.name != "" {
			resources = append(resources, Resource{URI: "only:///" + p.name, Name: p.name})
		}
		return map[string]any{"resources": resources}, nil
	case method == "resources/templates/list":
		note := p.say("any", "any note")
		templates := []ResourceTemplate{{URITemplate: "note:///{name}", Name: note, MIMEType: "text/plain"}}
		if p.name != "" {
			templates = append(templates, ResourceTemplate{URITemplate: p.name + ":///{name}", Name: "its own"})
		}
		return map[string]any{"resourceTemplates": templates}, nil
	case method == "resources/read":
		return p.read(asked.URI)
	case method == "prompts/list":
		prompts := []Prompt{
			{Name: "greet", Description: p.say("greet", "Greets somebody.\nOr something."),
				Arguments: []PromptArgument{{Name: "who", Required: true}, {Name: "how"}}},
			{Name: "plain", Title: "Nothing to fill in"},
		}
		if p.name != "" {
			prompts = append(prompts, Prompt{Name: "only-" + p.name})
		}
		return map[string]any{"prompts": prompts}, nil
	case method == "prompts/get" && asked.Name == "greet" && asked.Arguments["who"] == "":
		return nil, &Error{Code: CodeInvalidParams, Message: "who is to be greeted?"}
	case method == "prompts/get":
		text := p.say("prompt", fmt.Sprintf("Greet %q %q.", asked.Arguments["who"], asked.Arguments["how"])+p.name)
		return map[string]any{"messages": []PromptMessage{
			{Role: "user", Content: ContentBlock{Type: "text", Text: text}},
			{Role: "assistant", Content: ContentBlock{Type: "image", MIMEType: "image/png", Data: []byte{0, 1, 2}}},
		}}, nil
	}
	return nil, &Error{Code: CodeMethodNotFound, Message: p.say("method", "unheard of: "+method)}
}

func (p *scriptPeer) read(uri string) (any, error) {
	dot, _ := base64.StdEncoding.DecodeString(scriptPNG)
	contents := map[string][]ResourceContents{
		"note:///hello": {{URI: uri, Text: p.say("hello", "hello")}},
		"note:///red":   {{URI: uri, Text: "a\x1b[31m\r\n"}},
		"note:///bytes": {{URI: uri, MIMEType: "application/x-bytes", Blob: []byte(p.say("bytes", "\x00\xff\x1b\n"))}},
		"note:///all":   {{URI: "note:///hello", Text: "hello\n"}, {URI: "note:///bytes", Blob: []byte("\x00\xff\n")}},
		"note:///none":  {},
		"note:///dot":   {{URI: uri, MIMEType: "image/png", Blob: dot}},
	}[uri]
	if p.name != "" && strings.Contains(uri, p.name) {
		contents = []ResourceContents{{URI: uri, Text: p.say("only", p.name+" has it\n")}}
	}
	switch {
	case contents == nil:
		return nil, &Error{Code: CodeResourceNotFound, Message: "there is no " + p.say("note", uri)}
	case len(contents) == 0: // some servers answer so
		return map[string]any{}, nil
	}
	return map[string]any{"contents": contents}, nil
}

func (p *scriptPeer) tools() []Tool {
	tools := []Tool{}
	for _, tool := range scriptTools {
		schema := fmt.Sprintf(`{"type":"object","properties":{%s},"required":[%s]}`, tool.properties, tool.required)
		description := p.say(tool.name, tool.description)
		tools = append(tools, Tool{Name: tool.name, Description: description, InputSchema: json.RawMessage(schema)})
	}
	if p.name != "" {
		tools = append(tools, Tool{Name: "only_" + p.name, InputSchema: json.RawMessage(`{"type":"object"}`)})
	}
	if count, isMany := strings.CutPrefix(p.mode, "many"); isMany { // many311 has 311 tools, and many 130
		most, err := strconv.Atoi(count)
		if err != nil {
			most = 130
		}
		for i := range most - len(tools) {
			description := fmt.Sprintf("Does errand %d.\nAnd no other.", i)
			schema := json.RawMessage(`{"type":"object"}`)
			tools = append(tools, Tool{Name: fmt.Sprint("tool", i), Description: description, InputSchema: schema})
		}
	}
	if p.mode == "unfit" {
		tools[0].InputSchema, tools[1].InputSchema = json.RawMessage(`["text"]`), json.RawMessage(`[]`)
		tools = append(tools, Tool{Description: "Nobody can call this.", InputSchema: json.RawMessage(`{}`)})
	}
	if p.mode == "marked" { // two tools only read, by the server's word
		for _, i := range []int{1, 5} {
			tools[i].Annotations = json.RawMessage(`{"readOnlyHint":true}`)
		}
		if text, err := os.ReadFile("description"); err == nil { // it says something else of echo than before
			tools[0].Description = string(text)
		}
	}
	if p.mode == "tasks" {
		for _, i := range []int{0, 1, 8} {
			tools[i].Execution = json.RawMessage(`{"taskSupport":"required"}`)
		}
	}
	return tools
}

// scriptCall is the params of a tools/call.
type scriptCall struct {
	Name      string
	Arguments struct {
		Text, Name string
		Requests   map[string]struct {
			Method string          `json:"method"`
			Params json.RawMessage `json:"params"`
		}
	}
	InputResponses json.RawMessage
	Task           json.RawMessage
	Meta           struct{ ProgressToken json.RawMessage } `json:"_meta"`
}

func (p *scriptPeer) call(ctx context.Context, c *Conn, params json.RawMessage) (any, error) {
	var call scriptCall
	if err := json.Unmarshal(params, &call); err != nil {
		return nil, err
	}
	if call.Task != nil {
		p.begun.Store("t-"+call.Name, params)
		return p.task(ctx, c, "", "t-"+call.Name)
	}
	progress := func(n int, message string) {
		time.Sleep(300 * time.Millisecond) // what comes faster is not shown
		c.Notify(ctx, "notifications/progress", map[string]any{
			"progressToken": call.Meta.ProgressToken, "progress": n, "total": 2, "message": message,
		})
	}
	text := func(text string) (any, error) {
		block := map[string]any{"type": "text", "text": p.say(call.Name, text)}
		return map[string]any{"content": []any{block}, "isError": call.Name == "fail"}, nil
	}
	switch call.Name {
	case "echo":
		return text(p.name + call.Arguments.Text)
	case "only_" + p.name:
		return text(p.name + " alone")
	case "notes.read":
		return text("the note " + call.Arguments.Name)
	case "fail":
		return text("the disk is full")
	case "structured":
		return json.RawMessage(`{"content":[],"structuredContent":{"sum":3}}`), nil
	case "image":
		if call.Arguments.Name == "real" {
			return json.RawMessage(`{"content":[{"type":"text","text":"Here:"},` +
				`{"type":"image","data":"` + scriptPNG + `","mimeType":"image/png"},{"type":"resource","resource":` +
				`{"uri":"note:///dot","mimeType":"image/gif","blob":"` + scriptGIF + `"}}]}`), nil
		}
		return json.RawMessage(`{"content":[{"type":"text","text":"Here:"},` +
			`{"type":"image","data":"AAEC","mimeType":"image/png"}]}`), nil
	case "empty":
		return json.RawMessage(`{}`), nil
	case "slow":
		progress(1, p.say("slow", "half\nway"))
		if p.key == nil {
			progress(2, "")
		}
		return text("slow but sure")
	case "hang":
		fmt.Fprintln(os.Stderr, "hanging")
		<-ctx.Done()
		return nil, ctx.Err()
	case "die":
		fmt.Fprintln(os.Stderr, "out of memory")
		os.Exit(9)
	case "ask": // its result is the client's answers
		if call.Arguments.Name == "browser" && !p.opened.Swap(true) {
			return nil, &Error{Code: CodeURLRequired, Message: "Log in first.", Data: json.RawMessage(
				`{"elicitations":[{"mode":"url","elicitationId":"1","url":"https://log.in/?a=b","message":"For your files."}]}`)}
		}
		if p.mode != "modern" {
			return text(p.ask(ctx, c, &call))
		}
		if call.InputResponses == nil {
			return map[string]any{"resultType": "input_required", "inputRequests": call.Arguments.Requests}, nil
		}
		return text(string(call.InputResponses))
	}
	return nil, &Error{Code: CodeInternalError, Message: p.say(call.Name, "first line\nsecond line")}
}

// task answers the methods of tasks of 2025-11-25, and with the method "" a call that becomes a task. Each is done
// when it is asked for, but for the tool hang, which is done when finished says so.
func (p *scriptPeer) task(ctx context.Context, c *Conn, method, id string) (any, error) {
	params, ok := p.begun.Load(id)
	if !ok {
		return nil, &Error{Code: CodeInvalidParams, Message: "there is no task " + id}
	}
	state := map[string]any{"taskId": id, "status": "working", "pollInterval": 100,
		"statusMessage": fmt.Sprint("at work, ", p.polls.Add(1))}
	switch {
	case method == "tasks/result" && id == "t-hang":
		return map[string]any{"content": []any{map[string]any{"type": "text", "text": "hung for long"}}}, nil
	case method == "tasks/result":
		return p.call(ctx, c, []byte(strings.Replace(string(params.(json.RawMessage)), `"task":`, `"no task":`, 1)))
	case method == "tasks/cancel":
		fmt.Fprintln(os.Stderr, "cancelled", id)
		p.begun.Delete(id)
		state["status"] = "cancelled"
	case method == "tasks/get" && (id != "t-hang" || p.finished.Load()):
		state["status"] = "completed"
	case method == "":
		return map[string]any{"task": state}, nil
	}
	return state, nil
}

// ask sends all requests at once and returns the answers, a JSON object.
func (p *scriptPeer) ask(ctx context.Context, c *Conn, call *scriptCall) string {
	var asking sync.WaitGroup
	var mu sync.Mutex // guards answers
	answers := make(map[string]any)
	for name, request := range call.Arguments.Requests {
		asking.Go(func() {
			var answer json.RawMessage
			err := c.Call(ctx, request.Method, request.Params, &answer)
			mu.Lock()
			defer mu.Unlock()
			if answers[name] = answer; err != nil {
				answers[name] = err.Error()
			}
		})
	}
	asking.Wait()
	return string(modelJSON(answers))
}
