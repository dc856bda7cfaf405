// mcp.go - the Model Context Protocol, the client's side.
// Needs: Go 1.25, json, rpc.
// SPDX-License-Identifier: 0BSD

package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// MCP has two eras. The revisions of the handshake era begin with initialize, and both sides may send requests. In the
// stateless era (2026-07-28) every request says in _meta who asks, in which revision, and what the asker can do, so
// that any server process can answer it; a server that needs something of the client answers input_required.

const statelessRevision = "2026-07-28" // the one revision of the stateless era

// Revisions returns the protocol revisions this client speaks, newest first: all but the first have a handshake.
func Revisions() []string {
	return []string{statelessRevision, "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"}
}

// ProtocolError reports that a server breaks the protocol, or speaks no revision that is known here.
type ProtocolError struct{ Reason string }

func (e *ProtocolError) Error() string { return e.Reason }

// TimeoutError reports that a request had no answer in time. It wraps context.DeadlineExceeded.
type TimeoutError struct {
	After time.Duration // since the request, or its last progress
	Total bool          // ClientOptions.MaxTimeout was reached, progress or not
}

func (e *TimeoutError) Error() string {
	if e.Total {
		return fmt.Sprintf("not done after %s in all", e.After)
	}
	return fmt.Sprintf("no answer and no progress for %s", e.After)
}

func (e *TimeoutError) Unwrap() error { return context.DeadlineExceeded }

var errUnsubscribed = &ProtocolError{"the server has ended the subscription"}

const (
	probeTime = 3 * time.Second // for the answer to server/discover alone; old servers may send none
	maxRounds = 10              // how often a request is sent again with input
)

// ClientOptions are the options of a connection. The zero value is useful.
type ClientOptions struct {
	Info       Implementation // who we are, for the server; mcpagent if empty
	Timeout    time.Duration  // of a request without progress; 5 min if 0
	MaxTimeout time.Duration  // of a request in all; 1 h, or Timeout if that is longer, if 0
	Waiting    func() bool    // requests wait for a person who logs in: none expires by Timeout; may be nil

	// Protocol is the revision to offer without a probe; empty finds out what the server speaks. A handshake revision is
	// an offer: the server may answer with another one, which ServerInfo.ProtocolVersion then holds.
	Protocol string

	// Answers, by method: roots/list (RootsAnswer), elicitation/create, sampling/createMessage. Others are not declared.
	Answers map[string]Responder

	MaxQuestions int // in all input_required results of one request; 50 if 0

	// Log gets messages of LogLevel (info if empty) or above, on the reader: it must return soon and not call the Client.
	Log      func(LogMessage)
	LogLevel string

	Skipped func(message []byte, reason error) // see Handler.Skipped
	Trace   func(sent bool, text []byte)       // see Handler.Trace
	Warn    func(text string)                  // receives what is left out of lists and results, and what else was lost
}

// Responder is what the client answers to one method of the server. In the handshake era the method comes as a request
// of the server, in the stateless era in a result that is input_required.
type Responder struct {
	Capability string // declared under this name: roots, elicitation, sampling
	Declare    any    // the capability's value; nil means {}

	// Reply may be called from several goroutines at once. Its ctx ends with the request. The server is told its error.
	Reply func(ctx context.Context, params json.RawMessage) (result any, err error)
}

// RootsAnswer returns the answer to roots/list, for ClientOptions.Answers.
func RootsAnswer(list func(ctx context.Context) ([]Root, error)) Responder {
	return Responder{Capability: "roots", Reply: func(ctx context.Context, _ json.RawMessage) (any, error) {
		roots, err := list(ctx)
		return map[string]any{"roots": append([]Root{}, roots...)}, err // never null
	}}
}

// Client is a connection to one MCP server. All methods may be called from any goroutine. Their errors name the method
// and what it was about, and wrap an *Error of the server, a *TimeoutError, a *ProtocolError, the cause of ctx, the
// error of Write, or ErrClosed with the reason. When ctx or the time ends a request, the server is told.
type Client struct {
	Server    ServerInfo // set by Connect, then only read, like the next two
	Probed    bool       // a handshake followed server/discover on the same connection, which upsets some servers
	SkipProbe bool       // server/discover upset the server, or had no answer: give ClientOptions.Protocol the next time

	conn      *Conn
	options   ClientOptions
	headers   httpTransport   // the transport, if it is over HTTP; else nil
	stream    func() int64    // the number of the stream on which the server tells of changes, 0 if there is none
	declared  json.RawMessage // our capabilities, in either era
	meta      []byte          // members of the _meta of every request of the stateless era; set by discover
	stateless atomic.Bool     // the server is of that era
	session   atomic.Int64    // counts the sessions that followed the first
	listens   sync.Map        // of *listener: Listens at work, with the id of their request; 0 in the handshake era
	asked     atomic.Int64    // questions of the server that are being answered: requests do not expire
	begun     time.Time       // deadlines count from here
	renewing  chan struct{}   // one slot, taken to begin a session anew

	mu       sync.Mutex                 // guards the following; never held across I/O or a callback; taken before Conn's
	requests map[int64]*request         // that are being sent, by id, which is their progress token
	clock    *time.Timer                // always runs, and ends expired requests: a timer each would cost too much
	lists    map[string]cachedList      // by method
	changes  int                        // how often lists was emptied
	marked   map[string]json.RawMessage // schemas that mark parameters for headers, by tool
	warned   map[string]string          // the last text for Warn, by what it is about
}

// httpTransport is a transport over HTTP. Its stream is for what belongs to no request; a server may refuse or end it.
type httpTransport interface {
	// ParamHeaders returns complete headers that repeat parameters of a tool call, where the schema has x-mcp-header. The
	// error says why these marks are invalid, or why an argument cannot be sent so. Without arguments it only checks.
	ParamHeaders(inputSchema, arguments json.RawMessage) (map[string]string, error)
	Stream() int64             // the number of the stream that is open, 0 if none is; each has another number
	OnStreamEnd(f func(error)) // sets what is called when a stream has ended and is not opened again
}

// request is one request, however often it is sent.
type request struct {
	method    string
	about     string          // the name of a tool, prompt or argument, or the URI of a resource; may be empty
	params    []byte          // members, without _meta and without those of arguments
	meta      []byte          // members of _meta; nil in the handshake era
	arguments json.RawMessage // of a tool call, whose name is the first of its params; else nil
	report    func(Progress)  // of a tool call; may be nil
	input     bool            // the server may ask for input first
	asked     int             // questions that it then asked, in all
	subscribe *listener       // of a subscriptions/listen, which never expires; else nil

	id       int64           // of one sending, like all that follow
	marked   json.RawMessage // of Client.marked: the schema of the tool with that name, if headers repeat parameters
	session  int64           // Client.session when it was sent
	deadline time.Duration   // since Client.begun; later with each progress; Client.mu guards it
	last     time.Duration   // no progress helps beyond it; Client.mu guards it

	mu sync.Mutex // held during report, so that a call that has returned reports no more; taken after Client.mu
}

// Connect begins to speak MCP over the transport that start starts, and owns it: a failed Connect has closed it. ctx
// bounds the beginning; the connection lives until Close. Command.Start and HTTP.Start fit start. Without a revision,
// the server is probed with server/discover, which only the stateless era knows (MCP 2026-07-28, transports, stdio,
// backward compatibility). Any other answer, and silence, means a handshake. Some servers end on that request or
// refuse the handshake after it, so they are started again, for a handshake alone.
func Connect(ctx context.Context, start func(context.Context) (Transport, error), o *ClientOptions) (*Client, error) {
	options := *cmp.Or(o, new(ClientOptions))
	c, err := newClient(ctx, start, options)
	if err != nil {
		return nil, err
	}
	var server *ServerInfo // nil after a handshake, which has set c.Server
	switch options.Protocol {
	case "":
		server, err = c.probe(ctx)
	case statelessRevision:
		if server, err = c.discover(ctx); err != nil && ctx.Err() == nil && !isFinal(err) {
			err = fmt.Errorf("the server does not speak %s: %w", statelessRevision, err)
		}
	default:
		err = c.handshake(ctx, options.Protocol)
	}
	if err == nil {
		if server != nil {
			c.Server = *server
			c.stateless.Store(true)
		}
		return c, nil
	}
	c.Close()
	var end interface{ Unread() bool } // of a server that ended before it read anything
	if options.Protocol != "" || ctx.Err() != nil || isFinal(err) || errors.As(err, &end) && end.Unread() ||
		c.headers != nil { // over HTTP no request upsets the next one
		return nil, err
	}
	options.Protocol = Revisions()[1]
	second, failed := Connect(ctx, start, &options)
	if failed == nil {
		second.SkipProbe = true
		return second, nil
	}
	if _, reason, _ := strings.Cut(err.Error(), ": "); strings.HasSuffix(failed.Error(), reason) {
		return nil, failed
	}
	return nil, fmt.Errorf("%w (at the second start, without server/discover; the first, with it: %w)", failed, err)
}

// newClient starts the server. Nothing is sent yet.
func newClient(ctx context.Context, start func(context.Context) (Transport, error), o ClientOptions) (*Client, error) {
	o.Info.Name = cmp.Or(o.Info.Name, "mcpagent")
	o.Info.Version = cmp.Or(o.Info.Version, "0")
	o.Timeout = cmp.Or(o.Timeout, 5*time.Minute)
	o.MaxTimeout = cmp.Or(o.MaxTimeout, max(o.Timeout, time.Hour))
	o.Timeout = min(o.Timeout, o.MaxTimeout)
	o.LogLevel = cmp.Or(o.LogLevel, "info")
	o.MaxQuestions = cmp.Or(o.MaxQuestions, 50)
	c := &Client{
		options:  o,
		requests: make(map[int64]*request),
		lists:    make(map[string]cachedList),
		marked:   make(map[string]json.RawMessage),
		warned:   make(map[string]string),
		renewing: make(chan struct{}, 1),
		stream:   func() int64 { return 1 },
	}
	capabilities := make(map[string]any)
	for _, answer := range o.Answers {
		capabilities[answer.Capability] = cmp.Or[any](answer.Declare, struct{}{})
	}
	var err error
	if c.declared, err = json.Marshal(capabilities); err != nil {
		return nil, err
	}
	transport, err := start(ctx)
	if err != nil {
		return nil, err
	}
	if t, ok := transport.(httpTransport); ok {
		c.headers, c.stream = t, t.Stream
		t.OnStreamEnd(c.streamEnded)
	}
	c.begun = time.Now()
	c.conn = NewConn(transport, Handler{
		Request:      c.serverRequest,
		Immediate:    func(method string) bool { return method == "ping" }, // a sign of life, however much is asked
		Notification: c.notification,
		Abandoned:    sendCancelled,
		Skipped:      o.Skipped,
		Trace:        o.Trace,
	})
	c.clock = time.AfterFunc(c.options.Timeout, c.expire)
	return c, nil
}

// probe finds out the era of the server. If the answer takes long, a handshake begins meanwhile. Its outcome decides,
// as a server of both eras may keep to that of initialize; if it is refused, the late answer to the probe counts.
func (c *Client) probe(ctx context.Context) (*ServerInfo, error) {
	asking, stop := context.WithCancel(ctx)
	var server *ServerInfo
	var refusal error
	found := make(chan struct{}) // closed when one of them is set
	go func() { server, refusal = c.discover(asking); close(found) }()
	defer func() { stop(); <-found }()
	inTime := func() bool {
		select {
		case <-found:
			return true
		case <-time.After(probeTime):
			return false
		}
	}
	silent := !inTime()
	if !silent && (refusal == nil || isFinal(refusal) || ctx.Err() != nil || errors.Is(refusal, ErrClosed)) {
		return server, refusal
	}
	err := c.handshake(ctx, Revisions()[1])
	switch {
	case err == nil:
		stop()
		<-found
		c.Probed = true
		c.SkipProbe = silent && errors.Is(refusal, context.Canceled) // not even during the handshake
	case silent && errors.As(err, new(*Error)) && inTime() && (refusal == nil || isFinal(refusal)):
		return server, refusal
	case !silent && errors.As(err, new(*Error)) && isFinal(err): // so what a stateless server said first counts
		return nil, refusal
	}
	return nil, err
}

// discover asks the server which revisions it speaks (MCP 2026-07-28, server, discovery).
func (c *Client) discover(ctx context.Context) (*ServerInfo, error) {
	c.meta = members(
		"io.modelcontextprotocol/protocolVersion", statelessRevision,
		"io.modelcontextprotocol/clientInfo", c.options.Info,
		"io.modelcontextprotocol/clientCapabilities", c.declared)
	if c.options.Log != nil {
		c.meta = appendString(appendKey(c.meta, "io.modelcontextprotocol/logLevel"), c.options.LogLevel)
	}
	r := &request{method: "server/discover", meta: c.meta}
	raw, err := c.do(ctx, r)
	var refusal *Error
	if errors.As(err, &refusal) && refusal.Code == CodeUnsupportedVersion {
		var data struct{ Supported []string }
		_ = json.Unmarshal(refusal.Data, &data)
		if err = checkRevisions(data.Supported); err != nil && len(data.Supported) > 0 {
			return nil, r.failed(err)
		}
		raw, err = c.do(ctx, r) // some servers list what they have just refused, and accept it the second time
	}
	if err != nil {
		return nil, err
	}
	var answer struct {
		ServerInfo
		SupportedVersions []string
		Meta              struct {
			Implementation Implementation `json:"io.modelcontextprotocol/serverInfo"`
		} `json:"_meta"`
	}
	_ = json.Unmarshal(raw, &answer) // what is of another type counts as absent
	answer.ProtocolVersion, answer.Implementation = statelessRevision, answer.Meta.Implementation
	return &answer.ServerInfo, r.failed(checkRevisions(answer.SupportedVersions))
}

// checkRevisions returns nil if a stateless server speaks our revision. A plain error means: try a handshake.
func checkRevisions(supported []string) error {
	reason := fmt.Sprintf("the server speaks %s; this client speaks %s",
		strings.Join(supported, ", "), strings.Join(Revisions(), ", "))
	switch {
	case slices.Contains(supported, statelessRevision):
		return nil
	case len(supported) == 0:
		return errors.New("the answer has no supportedVersions") // some old servers answer {} to any request
	case slices.ContainsFunc(supported, func(revision string) bool { return slices.Contains(Revisions(), revision) }):
		return errors.New(reason)
	}
	return &ProtocolError{reason}
}

// isFinal reports whether an error leaves no other revision to try: only a stateless server sends these codes; and a
// request that the transport could not authorise, of whose error Status is a method, is not helped by another one.
func isFinal(err error) bool {
	var e *Error
	var unauthorised interface{ Status() int }
	return errors.As(err, new(*ProtocolError)) || errors.As(err, &unauthorised) || errors.As(err, &e) &&
		(e.Code == CodeHeaderMismatch || e.Code == CodeMissingCapability || e.Code == CodeUnsupportedVersion)
}

// handshake agrees on a revision (MCP 2025-11-25, lifecycle, initialization): the server answers an offer with the
// revision that it prefers. Both sides exchange identity and capabilities here, once for each session.
func (c *Client) handshake(ctx context.Context, offer string) error {
	params := members("capabilities", c.declared, "clientInfo", c.options.Info, "protocolVersion", offer)
	r := &request{method: "initialize", params: params}
	raw, err := c.send(ctx, r)
	var answer ServerInfo
	_ = json.Unmarshal(raw, &answer)  // what is of another type counts as absent
	known := c.Server.ProtocolVersion // in a session that is begun anew
	switch revision := answer.ProtocolVersion; {
	case err != nil:
	case revision == "":
		err = errors.New("the answer has no protocolVersion")
	case !slices.Contains(Revisions()[1:], revision):
		err = &ProtocolError{fmt.Sprintf("the server wants protocol revision %q; this client speaks %s",
			revision, strings.Join(Revisions(), ", "))}
	case known == "":
		c.Server = answer
	case known != revision: // others may be reading c.Server
		err = &ProtocolError{fmt.Sprintf("the server has changed from revision %s to %s", known, revision)}
	}
	if err != nil {
		return r.failed(err)
	}
	if err = c.conn.Notify(ctx, "notifications/initialized", nil); err != nil {
		return err
	}
	if c.options.Log != nil && answer.Capabilities["logging"] != nil { // refused, the server logs as it likes
		_, _ = c.send(ctx, &request{method: "logging/setLevel", params: members("level", c.options.LogLevel)})
	}
	return cmp.Or(context.Cause(ctx), c.Err())
}

// renew begins a new session in place of one that has expired: the server dropped it, or was started again (MCP
// 2025-11-25, transports, session management). Requests that find it expired at the same time begin one together.
func (c *Client) renew(ctx context.Context, expired int64) error {
	select {
	case c.renewing <- struct{}{}:
		defer func() { <-c.renewing }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if c.session.Load() != expired {
		return nil
	}
	if err := c.handshake(ctx, c.Server.ProtocolVersion); err != nil {
		return fmt.Errorf("the session has expired, and a new one could not be begun: %w", err)
	}
	c.warn("", fmt.Sprintf("its session had expired, and session %d was begun", c.session.Add(1)+1))
	c.ForgetLists("")
	for _, l := range c.listeners(func(*listener, int64) bool { return true }) {
		for _, uri := range l.URIs { // a server that refuses now sends no more changes of that resource
			_, _ = c.send(ctx, subscription("resources/subscribe", uri))
		}
	}
	return nil
}

// streamEnded runs, on a goroutine of the transport, when the server has ended the stream of its notifications. If the
// session has expired, a new one is begun, by requests that each have their time; else changes are told of no longer.
func (c *Client) streamEnded(err error) {
	r := &request{session: c.session.Load()}
	if err = c.repair(context.Background(), r, err); err != nil && c.Err() == nil && c.options.Warn != nil {
		c.options.Warn(fmt.Sprintf("the server no longer tells of changes: %v", err))
	}
}

// CallTool runs a tool with a JSON object of arguments; none means {}. report, which may be nil, runs on the reader of
// the connection: it must return soon and must not call the Client. It is not called after CallTool has returned.
func (c *Client) CallTool(ctx context.Context, name string, arguments json.RawMessage,
	report func(Progress)) (*ToolResult, error) {
	if a := bytes.TrimSpace(arguments); len(a) == 0 || string(a) == "null" { // also what a nil map encodes to
		arguments = json.RawMessage("{}")
	}
	arguments, err := onOneLine(arguments)
	if err != nil {
		return nil, fmt.Errorf("tools/call %s: arguments: %w", name, err)
	}
	answer := new(toolAnswer)
	r := &request{method: "tools/call", about: name, arguments: arguments, report: report, input: true}
	raw, err := c.do(ctx, r)
	if err == nil {
		err = r.failed(answer.decode(raw))
	}
	if err != nil {
		return nil, err
	}
	c.warnOf(r, answer.left)
	return &answer.ToolResult, nil
}

// ReadResource returns the contents of a resource; a folder can have several. For an unknown URI it returns an *Error
// with the code CodeInvalidParams, or CodeResourceNotFound from older servers.
func (c *Client) ReadResource(ctx context.Context, uri string) ([]ResourceContents, error) {
	var result struct{ Contents parts[ResourceContents] }
	r := &request{method: "resources/read", about: uri, params: members("uri", uri), input: true}
	err := c.get(ctx, r, &result)
	c.warnOf(r, result.Contents.left)
	return result.Contents.items, err
}

// GetPrompt fills in a prompt.
func (c *Client) GetPrompt(ctx context.Context, name string, arguments map[string]string) (*PromptResult, error) {
	r := &request{method: "prompts/get", about: name, params: members("name", name), input: true}
	if len(arguments) > 0 {
		r.params = members("arguments", arguments, "name", name)
	}
	var result struct {
		Description string
		Messages    parts[PromptMessage]
		Meta        json.RawMessage `json:"_meta"`
	}
	err := c.get(ctx, r, &result)
	c.warnOf(r, result.Messages.left)
	return &PromptResult{result.Description, result.Messages.items, result.Meta}, err
}

// Complete returns values that an argument of a prompt, or a variable of a resource template, could have if it begins
// with value. known are the arguments whose values are known; it may be nil.
func (c *Client) Complete(ctx context.Context, r Reference, name, value string,
	known map[string]string) (*Completion, error) {
	params := members("argument", map[string]string{"name": name, "value": value}, "ref", r)
	if len(known) > 0 {
		params = joinMembers(params, members("context", map[string]any{"arguments": known}))
	}
	var result struct{ Completion Completion }
	err := c.get(ctx, &request{method: "completion/complete", about: name, params: params}, &result)
	return &result.Completion, err
}

// Ping asks the server for a sign of life. The stateless era has no such request.
func (c *Client) Ping(ctx context.Context) error {
	_, err := c.do(ctx, &request{method: "ping"})
	return err
}

// Done returns a channel that is closed when the connection has ended; Err then returns the reason.
func (c *Client) Done() <-chan struct{} { return c.conn.Done() }

// Err returns nil before the connection has ended, then ErrClosed wrapped with the reason.
func (c *Client) Err() error { return c.conn.Err() }

// Close ends the connection: on stdio with the end of stdin, over HTTP with the DELETE of the session.
func (c *Client) Close() error {
	defer c.clock.Stop()
	return c.conn.Close()
}

// members returns the members of an object, which are given as alternating names and values that always encode.
func members(of ...any) (b []byte) {
	for i := 0; i < len(of); i += 2 {
		b, _ = appendJSON(appendKey(b, of[i].(string)), of[i+1])
	}
	return b
}

func (c *Client) get(ctx context.Context, r *request, result any) error {
	raw, err := c.do(ctx, r)
	return cmp.Or(err, r.failed(json.Unmarshal(raw, result)))
}

// warnOf warns of what was left out of a request's result.
func (c *Client) warnOf(r *request, left leftOut) {
	if left.count == 0 {
		return
	}
	text := "what cannot be read is left out: " + left.first
	if left.count > 1 {
		text += fmt.Sprintf(", and %d more", left.count-1)
	}
	c.warn(r.method+" "+r.about, r.failed(errors.New(text)).Error())
}

// warn gives ClientOptions.Warn a text, unless it is the last one that it received about the same.
func (c *Client) warn(about, text string) {
	c.mu.Lock()
	known := c.warned[about] == text
	c.warned[about] = text
	c.mu.Unlock()
	if !known && c.options.Warn != nil {
		c.options.Warn(text)
	}
}

// failed says which request an error is about.
func (r *request) failed(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", strings.TrimSuffix(r.method+" "+r.about, " "), err)
}

// do sends a request, again if the cause of its failure could be repaired, and returns its complete result. If a
// server needs input first (MCP 2026-07-28, patterns, multi round-trip requests), a new request has that of c.answer.
func (c *Client) do(ctx context.Context, r *request) (json.RawMessage, error) {
	if missing := c.Server.missing(r.method); missing != "" {
		return nil, r.failed(&NotDeclaredError{missing})
	}
	bare := slices.Clip(r.params)
	for round := 1; ; round++ {
		raw, err := c.send(ctx, r)
		if err != nil {
			if err = c.repair(ctx, r, err); err == nil {
				raw, err = c.send(ctx, r)
			}
		}
		kind := "complete"
		if err == nil && c.stateless.Load() {
			kind = resultType(raw)
		}
		switch {
		case err != nil && r.input && errors.As(err, new(*Error)):
			c.ForgetLists("") // they may have changed
		case err != nil:
		case kind == "complete":
			return raw, nil
		case kind != "input_required":
			err = &ProtocolError{fmt.Sprintf("the result is of the unknown type %q", kind)}
		case !r.input:
			err = &ProtocolError{"the server's result is input_required where the protocol does not allow it"}
		case round > maxRounds: // no question is asked whose answer will not be sent
			err = &ProtocolError{fmt.Sprintf("the server asked for input %d times", round)}
		default:
			r.params, err = c.input(ctx, r, bare, raw)
		}
		if err != nil {
			return nil, r.failed(err)
		}
	}
}

// resultType returns the resultType of a result; older servers send none, which means complete. Where it stands last,
// as most servers write it, the megabytes before it are not read again: in valid JSON no string can end like this.
func resultType(raw json.RawMessage) string {
	kind := "complete"
	if bytes.HasSuffix(raw, []byte(`,"resultType":"complete"}`)) {
		return kind
	}
	s := scanner{text: raw}
	s.object(func(key []byte) {
		if value := s.value(); string(key) == "resultType" {
			if json.Unmarshal(value, &kind) != nil {
				kind = string(value)
			}
			s.fail() // the rest is read by whoever decodes the result
		}
	})
	return kind
}

// send sends a request once and returns the result of its answer.
func (c *Client) send(ctx context.Context, r *request) (json.RawMessage, error) {
	r.id = c.conn.NextID()
	m := Outgoing{ID: r.id, Method: r.method, Source: r}
	if c.stateless.Load() {
		r.meta = c.meta
	}
	if r.meta != nil {
		m.Revision = statelessRevision
		if r.input { // exactly these have a name, which HTTP sends as Mcp-Name
			m.Name = r.about
		}
	}
	if r.subscribe != nil {
		c.listens.Store(r.subscribe, r.id)
	} else {
		c.track(r)
		defer c.untrack(r)
	}
	if r.marked != nil && r.arguments != nil {
		var err error
		if m.Headers, err = c.headers.ParamHeaders(r.marked, r.arguments); err != nil {
			return nil, err
		}
	}
	return c.conn.Do(ctx, m)
}

// AppendText makes the request's message where it is sent from, rather than to be copied there.
func (r *request) AppendText(b []byte) ([]byte, error) {
	b = AppendRequest(b, r.id, r.method)
	if r.arguments == nil && r.params == nil && r.meta == nil {
		return append(b, '}'), nil
	}
	b = append(b, `,"params":{`...)
	if r.arguments != nil {
		b = appendString(append(b, `"name":`...), r.about)
		b = append(append(b, `,"arguments":`...), r.arguments...)
	}
	b = joinMembers(b, r.params)
	if r.arguments != nil || r.meta != nil {
		b = append(appendKey(b, "_meta"), '{')
		if r.arguments != nil { // reported or not: progress keeps the request from expiring
			b = strconv.AppendInt(append(b, `"progressToken":`...), r.id, 10)
		}
		b = append(joinMembers(b, r.meta), '}')
	}
	return append(b, "}}"...), nil
}

type repeatableKey struct{} // of the mark that Repeatable sets

// Repeatable marks calls with that ctx as safe to repeat. In the stateless era, where streams cannot be resumed, such
// a call is sent once more if its answer is lost. Requests that only read or list need no mark.
func Repeatable(ctx context.Context) context.Context {
	return context.WithValue(ctx, repeatableKey{}, true)
}

// repair removes the cause of a failed request, which can then be sent again, or returns the error that it ends with.
// A transport can lose a message without being lost itself, as over HTTP; its errors say so.
func (c *Client) repair(ctx context.Context, r *request, err error) error {
	var expired interface{ SessionExpired() bool } // the server does not know the session, and has not acted
	var lost interface{ Lost() bool }              // nobody knows whether the server has acted
	var refusal *Error
	switch {
	case ctx.Err() != nil:
	case errors.As(err, &expired) && expired.SessionExpired():
		return c.renew(ctx, r.session)
	case errors.As(err, &lost) && lost.Lost() && r.meta != nil:
		if r.arguments == nil && r.subscribe == nil || ctx.Value(repeatableKey{}) != nil { // the former only read
			return nil
		}
	case errors.As(err, &refusal) && refusal.Code == CodeHeaderMismatch && r.method == "tools/call":
		// The headers were made from an outdated list (MCP 2026-07-28, transports, streamable HTTP, client behavior).
		c.ForgetLists("tools")
		if _, failed := c.ListTools(ctx); failed == nil {
			return nil
		}
	}
	return err
}

// track starts the time of a request that is about to be sent.
func (c *Client) track(r *request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Since(c.begun)
	r.session = c.session.Load()
	r.last = now + c.options.MaxTimeout
	r.deadline = now + c.options.Timeout
	c.requests[r.id] = r
	r.marked = c.marked[r.about]
}

func (c *Client) untrack(r *request) {
	c.mu.Lock()
	delete(c.requests, r.id)
	c.mu.Unlock()
	r.mu.Lock() // waits for a report under way
	r.mu.Unlock()
}

// expire ends the requests whose time is up and sets the clock to the next deadline. The clock calls it.
func (c *Client) expire() {
	waits := c.asked.Load() > 0 || c.options.Waiting != nil && c.options.Waiting()
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Since(c.begun)
	next := now + c.options.Timeout // no request that is sent from now on expires before
	for id, r := range c.requests {
		if waits && r.deadline <= now {
			r.deadline = now + c.options.Timeout // the server waits for us
		}
		switch {
		case r.last <= min(now, r.deadline):
			c.conn.Cancel(id, &TimeoutError{After: c.options.MaxTimeout, Total: true})
		case r.deadline <= now:
			c.conn.Cancel(id, &TimeoutError{After: c.options.Timeout})
		default:
			next = min(next, r.deadline, r.last)
		}
	}
	if c.Err() == nil {
		c.clock.Reset(next - now)
	}
}

// serverRequest answers a request of the server, which it may send while the client waits for its own answer.
func (c *Client) serverRequest(ctx context.Context, _ *Conn, method string, params json.RawMessage) (any, error) {
	switch {
	case method == "ping": // which servers may send before the handshake
		return struct{}{}, nil
	case c.stateless.Load():
		return nil, &Error{CodeMethodNotFound, "a server of revision " + statelessRevision + " sends no requests", nil}
	}
	return c.answer(ctx, method, params)
}

// inputRequired is a result that asks for input first.
type inputRequired struct {
	InputRequests map[string]struct {
		Method string
		Params json.RawMessage
	}
	RequestState *json.RawMessage // the server's own: returned byte for byte; nil if it is null
}

// input returns params with the answers to the server's questions. They are asked in turn: there is one user.
func (c *Client) input(ctx context.Context, r *request, params []byte, result json.RawMessage) ([]byte, error) {
	var needs inputRequired
	err := json.Unmarshal(result, &needs)
	r.asked += len(needs.InputRequests)
	switch most := c.options.MaxQuestions; {
	case err != nil:
		return nil, err
	case len(needs.InputRequests) == 0 && needs.RequestState == nil:
		return nil, &ProtocolError{"the server's input_required result names no input"}
	case r.asked > most:
		return nil, &ProtocolError{fmt.Sprintf("the server asks %d questions; a request may ask %d", r.asked, most)}
	}
	answers := make(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(needs.InputRequests)) {
		question := needs.InputRequests[name]
		answer, err := c.answer(ctx, question.Method, question.Params)
		var refusal *Error
		if errors.As(err, &refusal) { // in this era a refusal is not sent: report its text
			err = &ProtocolError{refusal.Message}
		}
		if err != nil {
			return nil, fmt.Errorf("the server asks for %s: %w", question.Method, err)
		}
		answers[name] = answer
	}
	if len(answers) > 0 {
		params, err = appendJSON(appendKey(params, "inputResponses"), answers)
	}
	if needs.RequestState != nil {
		params = append(appendKey(params, "requestState"), *needs.RequestState...)
	}
	return params, err
}

// answer answers one question of the server, in either era. The client's requests expire meanwhile only at MaxTimeout.
func (c *Client) answer(ctx context.Context, method string, params json.RawMessage) (any, error) {
	answer, ok := c.options.Answers[method]
	if !ok {
		return nil, &Error{Code: CodeMethodNotFound, Message: "this client does not offer " + method}
	}
	c.asked.Add(1)
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.asked.Add(-1)
		for _, r := range c.requests {
			r.deadline = time.Since(c.begun) + c.options.Timeout // the server goes on only now
		}
	}()
	return answer.Reply(ctx, params)
}

// notification runs on the reader, in wire order.
func (c *Client) notification(conn *Conn, method string, params json.RawMessage) {
	var p struct {
		Token     json.RawMessage `json:"progressToken"`
		RequestID json.RawMessage
		URI       string
		Meta      struct {
			Subscription json.RawMessage `json:"io.modelcontextprotocol/subscriptionId"`
		} `json:"_meta"`
		Progress
		LogMessage
	}
	if len(params) > 0 && json.Unmarshal(params, &p) != nil {
		return // malformed
	}
	switch method {
	case "notifications/progress":
		c.progress(p.Token, p.Progress)
	case "notifications/message":
		if c.options.Log != nil {
			c.options.Log(p.LogMessage)
		}
	case "notifications/cancelled":
		conn.CancelRequest(p.RequestID)
		id, _ := idNumber(p.RequestID) // in the stateless era of a Listen: all that a server may cancel
		if len(c.listeners(func(_ *listener, request int64) bool { return request == id })) > 0 {
			conn.Cancel(id, errUnsubscribed)
		}
	case "notifications/tools/list_changed", "notifications/prompts/list_changed", "notifications/resources/list_changed":
		c.changed(p.Meta.Subscription, Change{List: strings.Split(method, "/")[1]})
	case "notifications/resources/updated":
		c.changed(p.Meta.Subscription, Change{URI: p.URI})
	}
}

func (c *Client) progress(token json.RawMessage, progress Progress) {
	id, _ := idNumber(token) // servers change tokens as they change ids
	c.mu.Lock()
	r := c.requests[id]
	if r != nil {
		r.deadline = time.Since(c.begun) + c.options.Timeout
		r.mu.Lock() // while untrack cannot yet have passed
		defer r.mu.Unlock()
	}
	c.mu.Unlock()
	if r != nil && r.report != nil { // else it is late, or nobody wants to know
		r.report(progress)
	}
}

// sendCancelled tells the server, if it can, that nobody waits (MCP 2026-07-28, patterns, cancellation); but not for
// initialize, which must not be cancelled, the probe, which may upset old servers, or what the server ended itself.
func sendCancelled(ctx context.Context, c *Conn, id int64, method string, cause error) {
	if method != "initialize" && method != "server/discover" && cause != errUnsubscribed {
		_ = c.Notify(ctx, "notifications/cancelled", map[string]any{"requestId": id, "reason": cause.Error()})
	}
}
