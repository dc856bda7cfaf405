// mcp.go - the Model Context Protocol, the client's side.
// Needs: Go 1.25, json, rpc.
// SPDX-License-Identifier: 0BSD

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"
)

// MCP is a set of methods on top of JSON-RPC: a client asks a server for its tools, resources and
// prompts, and tells it to run a tool. A connection is a Client. The files of this family tell of
// it in this order:
//
//	mcp.go            what a connection is, and its calls
//	mcp_connect.go    how it begins: which revision both sides speak
//	mcp_strays.go     what a server writes that is not a message
//	mcp_request.go    how a call becomes a message, and what is done when it fails
//	mcp_time.go       how long a call may take
//	mcp_lists.go      the lists of tools, resources and prompts
//	mcp_listen.go     what the server tells without being asked
//	mcp_questions.go  what the server asks the client
//	mcp_urls.go       what the user has to do in a browser before a call
//	mcp_tasks.go      a tool that runs as a task: its result comes later
//	mcp_tasks_wire.go what the messages about a task hold
//	mcp_types.go      what the messages hold
//	mcp_results.go    how large results are decoded: lists of tools, the texts of a tool
//
// The protocol has two eras. The revisions of the handshake era begin with the request initialize,
// and afterwards both sides may send requests. In the stateless era (2026-07-28) each request says
// in _meta who asks, in which revision, and what the asker can do, so that any process of a server
// can answer it. There a server sends no requests: when it needs something of the client, it
// answers input_required, and the client sends its request again with what was asked for.

const statelessRevision = "2026-07-28" // the one revision of the stateless era

// Revisions returns the protocol revisions that this client speaks, the newest first. All but the
// first have a handshake.
func Revisions() []string {
	return []string{statelessRevision, "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"}
}

// ProtocolError reports that a server breaks the protocol, or speaks no revision that is known
// here.
type ProtocolError struct{ Reason string }

func (e *ProtocolError) Error() string { return e.Reason }

// ClientOptions are the options of a connection. The zero value is useful.
type ClientOptions struct {
	Info       Implementation // who we are, for the server; mcpagent if empty
	Timeout    time.Duration  // of a request without progress; 5 min if 0
	MaxTimeout time.Duration  // of a request in all; if 0, 1 h or Timeout, whichever is longer

	// Protocol is the revision to offer without a probe. Empty means that Connect finds out what
	// the server speaks. A revision with a handshake is an offer: the server may answer with
	// another one, which ServerInfo.ProtocolVersion then holds.
	Protocol string

	// Answers has the Responder to each of the server's questions, by method: roots/list
	// (RootsAnswer), elicitation/create, sampling/createMessage. The capability for a method
	// without a Responder is not declared.
	Answers map[string]Responder

	MaxQuestions int // of the server before it answers one request; 50 if 0

	// Tasks lets a tool run as a task wherever 2025-11-25 leaves the choice to the client. Without
	// it, only tools run as tasks that run in no other way. In the stateless era servers choose.
	Tasks bool

	// OnTask, if set, is called by CallTool when a call has become a task, before it is waited for,
	// and when the task has ended. ctx is that of CallTool. It must return soon.
	OnTask func(ctx context.Context, event TaskEvent)

	// Extensions are declared to a server of the stateless era beside that of tasks, with their
	// settings, by their names. ServerInfo.Extensions has those of the server.
	Extensions map[string]any

	// Log receives the server's log messages of LogLevel (info if empty) or above. It runs on the
	// reader of the connection: it must return soon and must not call the Client.
	Log      func(LogMessage)
	LogLevel string

	// Skipped is Handler.Skipped, but for what comes after the end of the connection.
	Skipped func(message []byte, reason error)
	Trace   func(sent bool, text []byte) // see Handler.Trace

	// Warn receives a sentence for each loss that is no error of a call, such as an element of a
	// list that could not be read and was left out.
	Warn func(text string)
}

// Client is a connection to one MCP server. All methods may be called from any goroutine. Their
// errors name the method and its subject, such as the tool. They wrap an *Error of the server, a
// *TimeoutError, a *ProtocolError, the cause of ctx, the error of Write, or ErrClosed with the
// reason. When ctx or the time ends a request, the server is told.
type Client struct {
	// Connect sets these three, and from then on they are only read. Probed reports that a
	// handshake followed server/discover on the same connection, which upsets some servers.
	// SkipProbe reports that server/discover ended the server or had no answer: the next Connect
	// is faster with a revision in ClientOptions.Protocol.
	Server    ServerInfo
	Probed    bool
	SkipProbe bool

	conn     *Conn
	options  ClientOptions
	http     httpTransport   // the transport, if it is over HTTP; else nil
	declared json.RawMessage // our capabilities, in either era
	meta     []byte          // members of _meta, which each request of the stateless era has

	stateless atomic.Bool // the server is of the stateless era
	inFlight  inFlight
	sessions  sessions
	lists     listCache
	listeners listeners
	strays    strays
	visits    visits
	tasks     taskWaits
	warnings  warnings
}

// httpTransport is a transport over HTTP. Beside its requests it may have a stream for messages
// that belong to no request, such as notifications of changes. A server may refuse or end this
// stream.
type httpTransport interface {
	// ParamHeaders returns complete headers that repeat parameters of a tool call, where the schema
	// has x-mcp-header. The error says why these marks are invalid, or why an argument cannot be
	// sent in a header. Without arguments it only checks the marks.
	ParamHeaders(inputSchema, arguments json.RawMessage) (map[string]string, error)

	// Stream returns the number of the open stream, 0 if there is none. Each stream has another
	// number.
	Stream() int64

	// OnStreamEnd sets the func that is called when a stream has ended and is not opened again.
	OnStreamEnd(f func(error))
}

// changeStream returns the number of the stream on which the server tells of changes, 0 if none is
// open. A pipe is one stream, which is open as long as the connection.
func (c *Client) changeStream() int64 {
	if c.http == nil {
		return 1
	}
	return c.http.Stream()
}

// CallTool runs a tool with a JSON object of arguments; none means {}. A tool that fails is no
// error: ToolResult.IsError says so. report, which may be nil, runs on the reader of the
// connection: it must return soon and must not call the Client. It is not called after CallTool
// has returned.
//
// On a server of 2025-11-25 that has tasks, a call of a tool that was not listed yet lists the
// tools first, and takes a round trip more: only the list says which tools run as tasks.
//
// A call that runs as a task takes as long as the task. If the task may still be running when the
// wait for it has failed, the error wraps a *TaskError with its id, which Client.Task takes.
func (c *Client) CallTool(
	ctx context.Context,
	name string,
	arguments json.RawMessage,
	report func(Progress),
) (*ToolResult, error) {
	arguments, err := objectOrEmpty(arguments)
	if err != nil {
		return nil, fmt.Errorf("tools/call %s: arguments: %w", name, err)
	}
	params := make([]byte, 0, len(`"name":"","arguments":`)+len(name)+len(arguments))
	params = appendString(appendKey(params, "name"), name)
	params = append(appendKey(params, "arguments"), arguments...)
	asTask := c.runsAsTask(ctx, name)
	if asTask {
		ttl := map[string]int64{"ttl": askedTTL.Milliseconds()}
		params = joinMembers(params, members("task", ttl))
	}
	result := new(toolResult)
	r := &request{
		method:    "tools/call",
		subject:   name,
		params:    params,
		arguments: arguments,
		mayAsk:    true,
		asTask:    asTask,
		report:    report,
		result:    result,
	}
	raw, err := c.do(ctx, r)
	if err != nil {
		return nil, err
	}
	// In the handshake era nothing marks a task: a result without content can be one, too, that the
	// client has not asked for. It is followed, as its result would be lost.
	mayBeTask := r.isTask || result.Content == nil && !c.stateless.Load()
	if mayBeTask {
		task, err := newTask(raw, c.stateless.Load())
		if err != nil {
			return nil, r.wrap(err)
		}
		if task != nil {
			return c.finishTask(ctx, r, task)
		}
	}
	if result.err != nil {
		return nil, r.wrap(result.err)
	}
	c.warnLeftOut(r, result.left)
	return &result.ToolResult, nil
}

// objectOrEmpty returns arguments on one line, and {} for none. A nil map encodes to null, which
// the protocol does not allow here, nor anything else that is not an object.
func objectOrEmpty(arguments json.RawMessage) (json.RawMessage, error) {
	trimmed := bytes.TrimSpace(arguments)
	if len(trimmed) == 0 || string(trimmed) == "null" {
		return json.RawMessage("{}"), nil
	}
	if trimmed[0] == '{' {
		return onOneLine(arguments)
	}
	// No value of another kind fits into a map, and what is not JSON is named first.
	return nil, decodeJSON("", arguments, new(map[string]json.RawMessage))
}

// ReadResource returns the contents of a resource; a folder can have several. For an unknown URI it
// returns an *Error with the code CodeInvalidParams, or CodeResourceNotFound from older servers.
func (c *Client) ReadResource(ctx context.Context, uri string) ([]ResourceContents, error) {
	r := uriRequest("resources/read", uri)
	r.mayAsk = true
	var result struct{ Contents parts[ResourceContents] }
	err := c.resultInto(ctx, r, &result)
	if err != nil {
		return nil, err
	}
	c.warnLeftOut(r, result.Contents.left)
	return result.Contents.items, nil
}

// GetPrompt fills in a prompt.
func (c *Client) GetPrompt(
	ctx context.Context,
	name string,
	arguments map[string]string,
) (*PromptResult, error) {
	r := &request{method: "prompts/get", subject: name, mayAsk: true}
	if len(arguments) > 0 {
		r.params = members("arguments", arguments, "name", name)
	} else {
		r.params = members("name", name)
	}
	var result struct {
		Description string
		Messages    parts[PromptMessage]
		Meta        json.RawMessage `json:"_meta"`
	}
	err := c.resultInto(ctx, r, &result)
	if err != nil {
		return nil, err
	}
	c.warnLeftOut(r, result.Messages.left)
	return &PromptResult{
		Description: result.Description,
		Messages:    result.Messages.items,
		Meta:        result.Meta,
	}, nil
}

// Complete returns possible values, given what the user has typed of one, for an argument of a
// prompt or a variable of a resource template. known has the arguments whose values are known; it
// may be nil.
func (c *Client) Complete(
	ctx context.Context,
	ref Reference,
	name, value string,
	known map[string]string,
) (*Completion, error) {
	params := members("argument", map[string]string{"name": name, "value": value}, "ref", ref)
	if len(known) > 0 {
		params = joinMembers(params, members("context", map[string]any{"arguments": known}))
	}
	var result struct{ Completion Completion }
	r := &request{method: "completion/complete", subject: name, params: params}
	err := c.resultInto(ctx, r, &result)
	if err != nil {
		return nil, err
	}
	return &result.Completion, nil
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

// Close ends the connection: on stdio with the end of stdin, over HTTP with the DELETE of the
// session. Every call that waits returns ErrClosed.
func (c *Client) Close() error {
	defer c.inFlight.stop()
	return c.conn.Close()
}

// resultInto does a request and decodes its result, as json.Unmarshal does.
func (c *Client) resultInto(ctx context.Context, r *request, result any) error {
	raw, err := c.do(ctx, r)
	if err != nil {
		return err
	}
	return r.wrap(decodeJSON("result", raw, result))
}

// warnLeftOut warns of elements of a result, which were left out because they could not be read.
func (c *Client) warnLeftOut(r *request, left leftOut) {
	if left.count == 0 {
		return
	}
	text := "what cannot be read is left out: " + left.first
	if left.count > 1 {
		text += fmt.Sprintf(", and %d more", left.count-1)
	}
	c.warnings.warn(r.method+" "+r.subject, r.wrap(errors.New(text)).Error())
}

// warnings passes texts on to ClientOptions.Warn. A list with one bad tool is asked for many times,
// so a text is not repeated as long as there is nothing new about the same subject.
type warnings struct {
	tell func(text string) // ClientOptions.Warn; may be nil

	mu   sync.Mutex        // guards the following; never held while tell runs
	last map[string]string // the last text, by subject
}

func (w *warnings) warn(subject, text string) {
	w.mu.Lock()
	repeated := w.last[subject] == text
	w.last[subject] = text
	w.mu.Unlock()
	if !repeated && w.tell != nil {
		w.tell(text)
	}
}

// members returns the members of an object, which are given as alternating names and values. The
// values must be of types that always encode.
func members(namesAndValues ...any) []byte {
	var b []byte
	for i := 0; i < len(namesAndValues); i += 2 {
		name, value := namesAndValues[i].(string), namesAndValues[i+1]
		b, _ = appendJSON(appendKey(b, name), value)
	}
	return b
}

// uriRequest returns a request whose one parameter is the URI of a resource.
func uriRequest(method, uri string) *request {
	return &request{method: method, subject: uri, params: members("uri", uri)}
}

// wrap wraps an error with the method of the request, and with its subject if it has one.
func (r *request) wrap(err error) error {
	if err == nil {
		return nil
	}
	if r.subject == "" {
		return fmt.Errorf("%s: %w", r.method, err)
	}
	return fmt.Errorf("%s %s: %w", r.method, visibleName(r.subject), err)
}

// visibleName returns a name for a message: as it stands, or as a Go string if it has characters
// that cannot be seen. Servers choose the names of tools and tasks, and a control character in a
// message could change what a terminal shows.
func visibleName(name string) string {
	if strings.IndexFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) >= 0 {
		return strconv.Quote(name)
	}
	return name
}
