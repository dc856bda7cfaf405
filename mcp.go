// mcp.go - the Model Context Protocol, the client's side.
// Needs: Go 1.25, json.go, rpc.go, mcp_types.go, elicitation.go, mcp_input.go, mcp_lists.go, mcp_handshake.go, mcp_repair.go.
// SPDX-License-Identifier: 0BSD

package main

import (
	"bytes"
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

// ErrProbe is wrapped by the error of a Connect whose server ended when it was asked for its revisions. Some old servers
// do. Started again, they can be connected to with ClientOptions.Protocol set to a handshake revision.
var ErrProbe = errors.New("the server ended on server/discover")

// ProtocolError says that a server does not keep to the protocol, or speaks none of its revisions that are known here.
type ProtocolError struct{ Reason string }

func (e *ProtocolError) Error() string { return e.Reason }

// TimeoutError says that a request had no answer in time. It wraps context.DeadlineExceeded.
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

// probeTime is for the answer to server/discover. Old servers may give none.
const probeTime = 3 * time.Second

// statelessRevision is the one without a handshake: every request says in _meta who asks, in which revision, and what the
// asker can do, so that any server process can answer it.
const statelessRevision = "2026-07-28"

// Revisions returns the protocol revisions this client speaks, newest first.
func Revisions() []string { return append([]string{statelessRevision}, handshakeRevisions()...) }

// ClientOptions are the choices of a connection. The zero value is a good one.
//
// The three handlers answer what a server asks of the client; a nil one is a capability that is not declared. They may be
// called from several goroutines at once, their ctx ends with the request, and an error of theirs, which they return or a result, is told to the server. An
// accepted answer of Elicit that does not fit its form is an error, too (ElicitRequest.Check).
type ClientOptions struct {
	Info       Implementation // who we are, for the server; mcpagent if empty
	Protocol   string         // the revision to speak; empty finds out
	Timeout    time.Duration  // of a request without progress; 5 min if 0
	MaxTimeout time.Duration  // of a request in all; 1 h if 0

	Roots  func(ctx context.Context) ([]Root, error)
	Elicit func(ctx context.Context, r *ElicitRequest) (*ElicitResult, error)
	Sample func(ctx context.Context, r *SampleRequest) (*SampleResult, error)

	// Log takes the server's log messages; it is asked for those of LogLevel (info if empty) and above. It runs on the reader of the connection,
	// so it must return soon and must not call the Client.
	Log      func(LogMessage)
	LogLevel string

	// Stray is told of each message of the server that was skipped; see Handler.Stray.
	Stray func(message []byte, reason error)
}

// Client is a connection to one MCP server. All methods may be called from any goroutine.
//
// Errors name the method and what it was about. They wrap an *Error of the server, a *TimeoutError, a *ProtocolError, the cause
// of ctx, what the transport's Write said, or ErrClosed with the reason. When ctx or the time ends a request, the server is told and nobody waits.
type Client struct {
	Server ServerInfo // set by Connect, then only read

	conn    *Conn
	options ClientOptions
	meta    atomic.Pointer[[]byte] // members of the _meta of every request, each with a comma after it; nil in the handshake era

	mu      sync.Mutex            // guards the following; never held across I/O or a callback; taken before Conn's
	watches map[int64]*watch      // requests at work, by id, which is their progress token
	clock   *time.Timer           // calls expire; one for all requests, as a timer each would cost more than they do
	ticking bool                  // the clock is set, to the first deadline or before it
	asked   int                   // questions of the server that are being answered: its requests may take that long
	lists   map[string]cachedList // by method
	changes int                   // how often lists was emptied
	listens map[*listener]int64   // Listens at work, with the id of their request; 0 in the handshake era
	session int                   // counts those of the handshake era that followed the first

	renewing chan struct{} // one slot, taken to begin a session anew
}

// watch is the time of one request, and its progress.
type watch struct {
	endless  bool           // never expires. Set before the request
	begun    func(id int64) // if not nil, told the id before the request is sent
	session  int            // Client.session when the request was made
	deadline time.Time      // later with each progress. Client.mu guards it
	last     time.Time      // no progress helps beyond it

	mu     sync.Mutex     // held during report, so that a call that has returned reports no more
	over   bool           // the call has returned
	report func(Progress) // nil if progress is not asked for
}

// Connect begins to speak MCP on a transport, which it owns from now on: a failed Connect has closed it. ctx bounds the
// beginning; the connection lives until Close.
//
// Unless a revision is forced, the server is asked with server/discover, which only the servers of the stateless era know
// (MCP 2026-07-28, transports, stdio, backward compatibility). Any answer that is not theirs, and silence, means a
// handshake. A server that ends instead is reported with ErrProbe.
func Connect(ctx context.Context, t Transport, o *ClientOptions) (*Client, error) {
	c := &Client{
		watches:  make(map[int64]*watch),
		lists:    make(map[string]cachedList),
		listens:  make(map[*listener]int64),
		renewing: make(chan struct{}, 1),
	}
	if o != nil {
		c.options = *o
	}
	if c.options.Info.Name == "" {
		c.options.Info = Implementation{Name: "mcpagent", Version: "0"}
	}
	if c.options.Timeout == 0 {
		c.options.Timeout = 5 * time.Minute
	}
	if c.options.MaxTimeout == 0 {
		c.options.MaxTimeout = time.Hour
	}
	if c.options.LogLevel == "" {
		c.options.LogLevel = "info"
	}
	c.clock = time.AfterFunc(c.options.Timeout, c.expire)
	c.clock.Stop()
	c.conn = NewConn(t, Handler{
		Request:      c.serverRequest,
		Notification: c.notification,
		Abandoned:    cancelled,
		Stray:        c.options.Stray,
	})
	if err := c.begin(ctx); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// begin finds out what the server speaks.
func (c *Client) begin(ctx context.Context) error {
	forced := c.options.Protocol
	if forced != "" && forced != statelessRevision {
		return c.introduce(ctx, forced)
	}
	probe := ctx
	if forced == "" {
		var cancel context.CancelFunc
		probe, cancel = context.WithTimeout(ctx, probeTime)
		defer cancel()
	}
	var modern *ProtocolError
	err := c.discover(probe)
	slow := errors.Is(err, context.DeadlineExceeded)
	switch {
	case err == nil || ctx.Err() != nil || errors.As(err, &modern) || isModern(err):
		return err
	case forced != "":
		return fmt.Errorf("the server does not speak %s: %w", forced, err)
	case errors.Is(err, ErrClosed):
		return fmt.Errorf("%w: %w", ErrProbe, err)
	}
	err = c.introduce(ctx, handshakeRevisions()[0])
	var refusal *Error
	if isModern(err) || slow && errors.As(err, &refusal) && refusal.Code == CodeMethodNotFound {
		return c.discover(ctx) // it had been slow to answer
	}
	return err
}

var errNoDiscovery = errors.New("the answer has no supportedVersions")

// discover asks the server what it is and speaks (MCP 2026-07-28, server, discovery). An error that is neither a
// *ProtocolError nor isModern leaves the era open.
func (c *Client) discover(ctx context.Context) error {
	capabilities, _ := json.Marshal(c.capabilities()) // strings and empty objects, which always encode
	info, _ := json.Marshal(c.options.Info)
	meta := fmt.Appendf(nil, `"io.modelcontextprotocol/protocolVersion":%q,"io.modelcontextprotocol/clientInfo":%s,"io.modelcontextprotocol/clientCapabilities":%s,`,
		statelessRevision, info, capabilities)
	if c.options.Log != nil {
		meta = append(appendString(append(meta, `"io.modelcontextprotocol/logLevel":`...), c.options.LogLevel), ',')
	}
	c.meta.Store(&meta)
	var answer struct {
		SupportedVersions []string                   `json:"supportedVersions"`
		Capabilities      map[string]json.RawMessage `json:"capabilities"`
		Instructions      string                     `json:"instructions"`
		Meta              struct {
			ServerInfo Implementation `json:"io.modelcontextprotocol/serverInfo"`
		} `json:"_meta"`
	}
	raw, err := c.request(ctx, "server/discover", nil, new(watch))
	var refusal *Error
	if errors.As(err, &refusal) && refusal.Code == CodeUnsupportedVersion {
		var data struct{ Supported []string }
		if json.Unmarshal(refusal.Data, &data) == nil && len(data.Supported) > 0 && !slices.Contains(data.Supported, statelessRevision) {
			err = c.noVersion(data.Supported)
		} else {
			// Some servers list what they have just refused, and take it the second time.
			raw, err = c.request(ctx, "server/discover", nil, new(watch))
		}
	}
	if err == nil {
		err = json.Unmarshal(raw, &answer)
	}
	if err == nil && len(answer.SupportedVersions) == 0 {
		err = errNoDiscovery // {} is what some old servers answer to anything
	}
	if err == nil && !slices.Contains(answer.SupportedVersions, statelessRevision) {
		err = c.noVersion(answer.SupportedVersions)
	}
	if err != nil {
		c.meta.Store(nil)
		return fmt.Errorf("server/discover: %w", err)
	}
	c.Server = ServerInfo{statelessRevision, answer.Capabilities, answer.Meta.ServerInfo, answer.Instructions}
	return nil
}

// noVersion is the error for a server of the stateless era that does not speak the stateless revision known here. It is no
// ProtocolError if the server speaks a handshake revision, too.
func (c *Client) noVersion(supported []string) error {
	reason := fmt.Sprintf("the server speaks %s; this client speaks %s", strings.Join(supported, ", "), strings.Join(Revisions(), ", "))
	for _, revision := range handshakeRevisions() {
		if slices.Contains(supported, revision) {
			return errors.New(reason)
		}
	}
	return &ProtocolError{reason}
}

// isModern recognises the errors that only a server of the stateless era sends.
func isModern(err error) bool {
	var e *Error
	return errors.As(err, &e) && (e.Code == CodeHeaderMismatch || e.Code == CodeMissingCapability || e.Code == CodeUnsupportedVersion)
}

// stateless says whether the server is, or is taken to be, of the stateless era.
func (c *Client) stateless() bool { return c.meta.Load() != nil }

// capabilities says what the server may ask for, in either era.
func (c *Client) capabilities() map[string]any {
	has := map[string]any{}
	if c.options.Roots != nil {
		has["roots"] = struct{}{}
	}
	if c.options.Elicit != nil {
		has["elicitation"] = map[string]any{"form": struct{}{}, "url": struct{}{}}
	}
	if c.options.Sample != nil {
		has["sampling"] = map[string]any{"tools": struct{}{}}
	}
	return has
}

// CallTool runs a tool. The arguments are a JSON object; none means {}. Progress that the server tells is
// reported, on the reader of the connection: report must return soon and must not call the Client. It may
// be nil, and is not called after CallTool has returned. A tool that fails says so in ToolResult.IsError.
func (c *Client) CallTool(ctx context.Context, name string, arguments json.RawMessage, report func(Progress)) (*ToolResult, error) {
	if a := bytes.TrimSpace(arguments); len(a) == 0 || string(a) == "null" { // also what a nil map encodes to
		arguments = json.RawMessage("{}")
	}
	if report == nil {
		report = func(Progress) {} // progress is asked for all the same: it keeps the request from expiring
	}
	raw, err := c.exchange(ctx, "tools/call", report, func(b []byte) ([]byte, error) {
		b = append(appendString(append(b, `"name":`...), name), `,"arguments":`...)
		b, err := appendRaw(b, arguments)
		return append(b, ','), err
	})
	var result *ToolResult
	if err == nil {
		result, err = decodeToolResult(raw)
	}
	if err != nil {
		return nil, fmt.Errorf("tools/call %s: %w", name, err)
	}
	return result, nil
}

// ReadResource returns the contents of a resource; of a folder, say, it can be several. That there is none is an *Error with
// the code CodeInvalidParams, or CodeResourceNotFound from older servers.
func (c *Client) ReadResource(ctx context.Context, uri string) ([]ResourceContents, error) {
	var result struct {
		Contents []ResourceContents `json:"contents"`
	}
	if err := c.get(ctx, "resources/read", map[string]any{"uri": uri}, &result); err != nil {
		return nil, fmt.Errorf("resources/read %s: %w", uri, err)
	}
	return result.Contents, nil
}

// GetPrompt fills in a prompt.
func (c *Client) GetPrompt(ctx context.Context, name string, arguments map[string]string) (*PromptResult, error) {
	params := map[string]any{"name": name}
	if len(arguments) > 0 {
		params["arguments"] = arguments
	}
	result := new(PromptResult)
	if err := c.get(ctx, "prompts/get", params, result); err != nil {
		return nil, fmt.Errorf("prompts/get %s: %w", name, err)
	}
	return result, nil
}

// CompletePrompt asks what an argument of a prompt that begins with value could be. others are the arguments that are
// known already; it may be nil.
func (c *Client) CompletePrompt(ctx context.Context, prompt, argument, value string, others map[string]string) (*Completion, error) {
	return c.complete(ctx, map[string]string{"type": "ref/prompt", "name": prompt}, argument, value, others)
}

// CompleteResource asks the same of a variable of a resource template.
func (c *Client) CompleteResource(ctx context.Context, uriTemplate, variable, value string, others map[string]string) (*Completion, error) {
	return c.complete(ctx, map[string]string{"type": "ref/resource", "uri": uriTemplate}, variable, value, others)
}

func (c *Client) complete(ctx context.Context, ref map[string]string, name, value string, others map[string]string) (*Completion, error) {
	params := map[string]any{"ref": ref, "argument": map[string]string{"name": name, "value": value}}
	if len(others) > 0 {
		params["context"] = map[string]any{"arguments": others}
	}
	var result struct {
		Completion Completion `json:"completion"`
	}
	raw, err := c.request(ctx, "completion/complete", members(params), new(watch))
	if err == nil {
		err = json.Unmarshal(raw, &result)
	}
	if err != nil {
		return nil, fmt.Errorf("completion/complete %s: %w", name, err)
	}
	return &result.Completion, nil
}

// Close ends the connection and the transport. MCP has no message for it: on stdio it is the end of stdin, over HTTP the DELETE of
// the session.
func (c *Client) Close() error {
	err := c.conn.Close()
	c.clock.Stop()
	return err
}

// membersFunc appends members of a request's params, each with a comma after it.
type membersFunc func(b []byte) ([]byte, error)

// members are those of a map, which is never nil.
func members(params map[string]any) membersFunc {
	return func(b []byte) ([]byte, error) {
		for _, name := range slices.Sorted(maps.Keys(params)) {
			b = append(appendString(b, name), ':')
			var err error
			if b, err = appendJSON(b, params[name]); err != nil {
				return nil, err
			}
			b = append(b, ',')
		}
		return b, nil
	}
}

// get is exchange with the result decoded.
func (c *Client) get(ctx context.Context, method string, params map[string]any, result any) error {
	raw, err := c.exchange(ctx, method, nil, members(params))
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, result)
}

// request is one request whose result is complete.
func (c *Client) request(ctx context.Context, method string, params membersFunc, w *watch) (json.RawMessage, error) {
	raw, err := c.call(ctx, method, params, w)
	if err != nil {
		if err = c.repair(ctx, method, err, w); err == nil {
			raw, err = c.call(ctx, method, params, w)
		}
	}
	if err != nil || !c.stateless() {
		return raw, err
	}
	switch kind := resultType(raw); kind {
	case "complete":
		return raw, nil
	case "input_required":
		needs := new(inputRequired)
		if err := json.Unmarshal(raw, needs); err != nil {
			return nil, err
		}
		return nil, needs
	default:
		return nil, &ProtocolError{fmt.Sprintf("the result is of the unknown type %q", kind)}
	}
}

// resultType is the result's own word on what it is; older servers have none.
func resultType(raw json.RawMessage) string {
	kind := "complete"
	s := scanner{text: raw}
	s.object(func(key []byte) {
		if value := s.value(); string(key) == "resultType" && json.Unmarshal(value, &kind) != nil {
			kind = string(value)
		}
	})
	return kind
}

// call is one request with its time.
func (c *Client) call(ctx context.Context, method string, params membersFunc, w *watch) (json.RawMessage, error) {
	var request int64
	raw, err := c.conn.call(ctx, method, func(b []byte, id int64) (_ []byte, err error) {
		request = id
		if !w.endless {
			c.watch(id, w)
		}
		if w.begun != nil {
			w.begun(id)
		}
		start := len(b)
		b = append(b, '{')
		if params != nil {
			if b, err = params(b); err != nil {
				return nil, err
			}
		}
		bare := len(b)
		b = append(b, `"_meta":{`...)
		empty := len(b)
		if w.report != nil {
			b = append(strconv.AppendInt(append(b, `"progressToken":`...), id, 10), ',')
		}
		if meta := c.meta.Load(); meta != nil {
			b = append(b, *meta...)
		}
		if len(b) == empty {
			b = b[:bare]
		} else {
			b = append(b[:len(b)-1], "},"...)
		}
		if len(b) == start+1 {
			return append(b[:start], "null"...), nil
		}
		return append(b[:len(b)-1], '}'), nil
	})
	if request != 0 {
		c.unwatch(request, w)
	}
	return raw, err
}

// watch starts the time of a request.
func (c *Client) watch(id int64, w *watch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	w.session = c.session
	w.last = now.Add(c.options.MaxTimeout)
	c.watches[id] = w
	c.extend(w, now)
	if !c.ticking { // else it is set to an earlier deadline: all requests have the same time
		c.ticking = true
		c.clock.Reset(w.deadline.Sub(now))
	}
}

// extend starts the time anew. The caller holds c.mu.
func (c *Client) extend(w *watch, now time.Time) {
	if w.deadline = now.Add(c.options.Timeout); w.deadline.After(w.last) {
		w.deadline = w.last
	}
}

func (c *Client) unwatch(id int64, w *watch) {
	c.mu.Lock()
	delete(c.watches, id)
	c.mu.Unlock()
	w.mu.Lock() // waits for a report under way
	w.over = true
	w.mu.Unlock()
}

// expire ends the requests whose time is up and sets the clock to the next deadline. It runs on a goroutine of the
// clock and waits for nothing.
func (c *Client) expire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	var next time.Time
	for id, w := range c.watches {
		if c.asked > 0 && !w.deadline.After(now) {
			c.extend(w, now) // the server waits for us
		}
		switch {
		case w.deadline.After(now):
			if next.IsZero() || w.deadline.Before(next) {
				next = w.deadline
			}
		case w.deadline.Equal(w.last):
			c.conn.giveUp(id, &TimeoutError{After: c.options.MaxTimeout, Total: true})
		default:
			c.conn.giveUp(id, &TimeoutError{After: c.options.Timeout})
		}
	}
	if c.ticking = !next.IsZero(); c.ticking {
		c.clock.Reset(next.Sub(now))
	}
}

// ask answers one question of the server, whatever way it came.
func (c *Client) ask(ctx context.Context, method string, params json.RawMessage) (any, error) {
	c.mu.Lock()
	c.asked++
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.asked--
		for _, w := range c.watches {
			c.extend(w, time.Now()) // the server goes on only now
		}
	}()
	switch o := &c.options; {
	case method == "roots/list" && o.Roots != nil:
		roots, err := o.Roots(ctx)
		return map[string]any{"roots": append([]Root{}, roots...)}, err // never null
	case method == "elicitation/create" && o.Elicit != nil:
		r := new(ElicitRequest)
		err := json.Unmarshal(params, r)
		if err == nil {
			err = r.Valid() // the user is not asked what cannot be answered
		}
		if err != nil {
			return nil, &Error{Code: CodeInvalidParams, Message: err.Error()}
		}
		answer, err := o.Elicit(ctx, r)
		if err == nil && answer != nil && answer.Action == "accept" {
			err = r.Check(answer.Content)
		}
		return answer, err
	case method == "sampling/createMessage" && o.Sample != nil:
		r := new(SampleRequest)
		if err := json.Unmarshal(params, r); err != nil {
			return nil, &Error{Code: CodeInvalidParams, Message: err.Error()}
		}
		return o.Sample(ctx, r)
	}
	return nil, &Error{Code: CodeMethodNotFound, Message: "this client does not offer " + method}
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
		// Of another form than its method's: nothing can be done with it.
		return
	}
	switch method {
	case "notifications/progress":
		c.progress(p.Token, p.Progress)
	case "notifications/message":
		if c.options.Log != nil {
			c.options.Log(p.LogMessage)
		}
	case "notifications/cancelled":
		if !c.stateless() {
			conn.CancelRequest(p.RequestID)
		} else if id, ok := responseID(p.RequestID); ok && c.listensWith(id) { // the one request that a server may end
			conn.giveUp(id, errUnsubscribed)
		}
	case "notifications/tools/list_changed":
		c.changed(p.Meta.Subscription, Change{List: "tools"})
	case "notifications/prompts/list_changed":
		c.changed(p.Meta.Subscription, Change{List: "prompts"})
	case "notifications/resources/list_changed":
		c.changed(p.Meta.Subscription, Change{List: "resources"})
	case "notifications/resources/updated":
		c.changed(p.Meta.Subscription, Change{URI: p.URI})
	}
}

func (c *Client) progress(token json.RawMessage, progress Progress) {
	id, _ := responseID(token) // servers change tokens as they change ids
	c.mu.Lock()
	w := c.watches[id]
	if w != nil {
		c.extend(w, time.Now())
	}
	c.mu.Unlock()
	if w == nil || w.report == nil {
		return // late, or never asked for
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.over {
		w.report(progress)
	}
}

// cancelled tells the server that nobody waits for an answer any more (MCP 2026-07-28, patterns, cancellation); but never for
// initialize, whose end is the connection's, nor for the probe, which an old server may never have understood, nor for what
// the server has ended itself.
func cancelled(ctx context.Context, c *Conn, id int64, method string, cause error) {
	if method != "initialize" && method != "server/discover" && cause != errUnsubscribed {
		// If it cannot be sent, the answer is dropped all the same.
		_ = c.Notify(ctx, "notifications/cancelled", map[string]any{"requestId": id, "reason": cause.Error()})
	}
}
