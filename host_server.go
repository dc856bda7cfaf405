// host_server.go - a server: what describes it, and how it is started, and started again when it has ended.
// Needs: Go 1.25, json, rpc, lines, transport_stdio, transport_http, mcp, mistral, functions.
// SPDX-License-Identifier: 0BSD

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// StartTimeoutError says that a server did not start in time. It wraps context.DeadlineExceeded.
type StartTimeoutError struct {
	After  time.Duration
	Stderr string // an excerpt; see Stdio.Stderr
}

func (e *StartTimeoutError) Error() string {
	text := fmt.Sprintf("the server did not start within %s", e.After)
	if e.Stderr != "" {
		text += ", stderr: " + e.Stderr
	}
	return text
}

func (e *StartTimeoutError) Unwrap() error { return context.DeadlineExceeded }

// ErrStarting is the state of a server whose first start is under way, ErrListing that of one that has not yet
// answered tools/list, and ErrWaiting that of one for which a person has to do something first.
var (
	ErrStarting = errors.New("it is still starting")
	ErrListing  = errors.New("it is running, and has not yet listed its tools")
	ErrWaiting  = errors.New("it is waiting for a login")

	errRestart = errors.New("it is being started again")
)

const (
	startTime  = 30 * time.Second // Server.StartTimeout if 0
	slowStart  = 5 * time.Minute  // the same, for a server that may still be downloaded
	maxPause   = time.Minute      // before a start
	listenTime = 5 * time.Second  // before a subscription that ended is begun again
	busyTime   = 5 * time.Minute  // for which a server may work on a call that was given up
	waitStep   = time.Second      // between two looks at Server.Waited

	patience = 10 * time.Second // with a server that is slow while others are ready
	noEnd    = time.Duration(math.MaxInt64)
)

// Server describes an MCP server: a command to start, or a URL to connect to, and what a Host may do with it. Only
// Name and either Command or URL are required.
type Server struct {
	Name string // no other server of a Host has it
	Err  error  // why the description is of no use, nil if it is; Connect returns it

	Command Command      // of a server on stdio
	URL     string       // of a server over HTTP; if it is not empty, Command is not used
	Header  http.Header  // sent to the URL with every request
	Client  *http.Client // for the URL; see HTTP.Client
	SSE     bool         // the URL is one of HTTP+SSE, and nothing else is tried

	// Start, if set, starts the server in place of Command and URL.
	Start func(ctx context.Context) (Transport, error)

	// NoProbe, if set, is a file that exists while a server on stdio has to be started without server/discover (see
	// Client.SkipProbe). Connect makes it, and removes it if the server then fails to start.
	NoProbe string

	Timeout time.Duration // of a request; 0 leaves it to ClientOptions.Timeout

	// StartTimeout bounds a start by a Host, and a list of tools: 30 s if 0. A start has then up to 5 min if the command
	// may have to download the server (npx, uvx, docker, …), and as long as the server writes to stderr.
	StartTimeout time.Duration
	OnSlowStart  func(limit time.Duration) // called once if a start takes longer than 30 s; may be nil

	// Waited, if set, returns for how long requests to the server have waited for a person, who has to log in, and
	// whether they do so now. That time does not count against StartTimeout. Meanwhile no call expires, and nothing
	// waits for the server.
	Waited func() (total time.Duration, now bool)

	AllowedTools  []string // globs of the tools that a model is offered; all if empty
	ExcludedTools []string // globs of those that it is not; stronger than AllowedTools
	AutoApprove   []string // globs of the tools that run without being asked about
}

// ServerNames returns the names of servers.
func ServerNames(servers []Server) []string {
	names := make([]string, len(servers))
	for i, s := range servers {
		names[i] = s.Name
	}
	return names
}

// Allows reports whether a model may be offered a tool.
func (s *Server) Allows(tool string) bool {
	return (len(s.AllowedTools) == 0 || matchesGlob(s.AllowedTools, tool)) && !matchesGlob(s.ExcludedTools, tool)
}

// Approves reports whether a tool runs without being asked about.
func (s *Server) Approves(tool string) bool { return matchesGlob(s.AutoApprove, tool) }

// Connect starts the server, or connects to it. A URL at which nobody speaks Streamable HTTP may be one of HTTP+SSE
// (MCP 2026-07-28, transports, streamable HTTP, backward compatibility).
func (s *Server) Connect(ctx context.Context, o ClientOptions) (*Client, error) {
	o.Timeout = cmp.Or(s.Timeout, o.Timeout)
	endpoint := HTTP{URL: s.URL, Header: s.Header, Client: s.Client}
	switch {
	case s.Err != nil:
		return nil, s.Err
	case s.Start != nil:
		return s.connectChild(ctx, s.Start, o)
	case s.URL == "":
		return s.connectChild(ctx, s.Command.Start, o)
	case s.SSE:
		return connectSSE(ctx, endpoint, o)
	}
	client, err := Connect(ctx, endpoint.Start, &o)
	var refusal *HTTPError
	if !errors.As(err, &refusal) || o.Protocol == Revisions()[0] {
		return client, err
	}
	var answer *Error
	if errors.As(err, &answer) && (answer.Code <= CodeHeaderMismatch && answer.Code >= CodeUnsupportedVersion ||
		answer.Code == CodeMethodNotFound) {
		return nil, err // the answer of a server of the stateless era
	}
	switch refusal.Status {
	case http.StatusBadRequest, http.StatusNotFound, http.StatusMethodNotAllowed:
		var failed error
		if client, failed = connectSSE(ctx, endpoint, o); failed == nil {
			return client, nil
		}
		err = fmt.Errorf("%w; nor is it HTTP+SSE: %w", err, failed)
	}
	return nil, err
}

// connectChild starts a server on stdio, and keeps NoProbe.
func (s *Server) connectChild(
	ctx context.Context, start func(context.Context) (Transport, error), o ClientOptions,
) (*Client, error) {
	_, unknown := os.Stat(s.NoProbe)
	known := unknown == nil && o.Protocol == ""
	if known {
		o.Protocol = Revisions()[1] // the newest with a handshake
	}
	client, err := Connect(ctx, start, &o)
	if err != nil && known {
		_ = os.Remove(s.NoProbe)
	}
	if err == nil && client.SkipProbe {
		s.skipProbe()
	}
	return client, err
}

// skipProbe makes the file NoProbe. Where it cannot be made, the next start probes again.
func (s *Server) skipProbe() {
	if s.NoProbe != "" && os.MkdirAll(filepath.Dir(s.NoProbe), 0o700) == nil {
		_ = os.WriteFile(s.NoProbe, nil, 0o600)
	}
}

// connectSSE connects over HTTP+SSE, which is older than server/discover: no server there is of the stateless era.
func connectSSE(ctx context.Context, endpoint HTTP, o ClientOptions) (*Client, error) {
	revisions := Revisions() // the first is the stateless one
	if o.Protocol == revisions[0] {
		return nil, fmt.Errorf("HTTP+SSE does not carry revision %s", o.Protocol)
	}
	o.Protocol = cmp.Or(o.Protocol, revisions[1])
	return Connect(ctx, endpoint.StartSSE, &o)
}

// matchesGlob reports whether a name matches one of the patterns. * stands for any characters and ? for one; unlike
// path.Match's they also stand for slashes, which tools may have in their names.
func matchesGlob(patterns []string, name string) bool {
	wildcards := strings.NewReplacer(`\*`, `.*`, `\?`, `.`)
	for _, pattern := range patterns {
		if ok, _ := regexp.MatchString(`(?s)\A`+wildcards.Replace(regexp.QuoteMeta(pattern))+`\z`, name); ok {
			return true
		}
	}
	return false
}

// waits reports whether the server waits for a person.
func (s *Server) waits() bool {
	if s.Waited == nil {
		return false
	}
	_, now := s.Waited()
	return now
}

// stopwatch measures a time, without that for which a server has waited for a person.
type stopwatch struct {
	begun  time.Time
	waited func() time.Duration
}

func (s *Server) stopwatch() stopwatch {
	total := func() (total time.Duration) {
		if s.Waited != nil {
			total, _ = s.Waited()
		}
		return total
	}
	before := total()
	return stopwatch{time.Now(), func() time.Duration { return total() - before }}
}

// wait waits until so much time has been measured, and reports whether that was before ctx ended.
func (w stopwatch) wait(ctx context.Context, limit time.Duration) bool {
	for {
		waited := w.waited()
		left := limit + waited - time.Since(w.begun)
		switch {
		case left <= 0:
			return true
		case waited > 0:
			left = max(left, waitStep)
		}
		select {
		case <-time.After(left):
		case <-ctx.Done():
			return false
		}
	}
}

// hosted is one server through all its starts. Nothing watches it: that it has ended is noticed by the next caller
// who needs it and starts it again; all who need it meanwhile wait for that one start.
type hosted struct {
	Server
	options ClientOptions
	prefix  string          // of the names of its functions
	life    context.Context // the Host's
	work    *sync.WaitGroup // the Host's, for beginStart, connect, read and listen

	mu        sync.Mutex // guards the following; never held across I/O or a callback
	start     *hostTask  // the last one; nil before the first
	starting  bool       // it is under way
	client    *Client    // of the start, once it was successful; else nil
	err       error      // why it is not running, or why its tools could not be listed; see noticeEnd
	reading   *hostTask  // nil if the tools are not being listed
	closed    bool       // no start may begin
	lastStart time.Time  // when the last start was over, successful or not
	tries     int        // starts since a call that the server survived, or since the first that was successful
	starts    int        // that were successful
	info      ServerInfo // of the last successful start
	tools     []HostTool // of the last list that could be read; replaced, never changed
	silent    bool       // the last list had no answer in time
	calls     int        // that are running
	givenUp   time.Time  // when the last call ended without an answer; zero if it was answered

	unfit string // the last warning about tools that cannot be offered to a model; only list's goroutine uses it
}

// hostTask is one start, or one reading of the tools, for all who wait for it.
type hostTask struct {
	begins time.Time               // of a start: later than now while there is a pause before it
	stop   context.CancelCauseFunc // ends a start
	done   chan struct{}           // closed when the following are set
	client *Client                 // of a start
	err    error
}

// wait waits for a task, which goes on for others when ctx ends.
func (t *hostTask) wait(ctx context.Context) (*Client, error) {
	select {
	case <-t.done:
		return t.client, t.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// get returns a client of the server, which it starts if it is not running.
func (s *hosted) get(ctx context.Context) (*Client, error) {
	start, _ := s.begin()
	return start.wait(ctx)
}

// begin starts the server if it is not running, and returns the start, which may be over. It is worth waiting for if
// it is the first since a call that the server survived.
func (s *hosted) begin() (start *hostTask, worthWaiting bool) {
	waits := s.waits()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current(), s.tries <= 1 && !waits
}

// current returns the start of a server that is running or starting, or else begins one. The caller holds s.mu.
func (s *hosted) current() *hostTask {
	running := s.client != nil && !s.noticeEnd()
	if !running && !s.starting {
		at := s.lastStart.Add(pauseAfter(s.tries))
		s.tries++
		s.beginStart(at)
	}
	return s.start
}

// pauseAfter returns the pause after so many tries: 0, 1, 2, 4, … seconds.
func pauseAfter(tries int) time.Duration {
	return min(time.Duration(1<<min(tries, 10)/2)*time.Second, maxPause)
}

// noticeEnd reports whether the server has ended by itself. The caller holds s.mu.
func (s *hosted) noticeEnd() bool {
	if s.client == nil || s.client.Err() == nil {
		return false
	}
	s.err = s.client.Err()
	return true
}

// restart begins a start without a pause, which ends the server if it is running.
func (s *hosted) restart() *hostTask {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tries = 1
	s.beginStart(time.Time{})
	return s.start
}

// beginStart begins a start, though not before the given time. It ends the start before it, and the server that this
// one started. After Close it fails at once. The caller holds s.mu.
func (s *hosted) beginStart(at time.Time) {
	ctx, stop := context.WithCancelCause(s.life)
	if now := time.Now(); at.Before(now) {
		at = now
	}
	previous, start := s.start, &hostTask{begins: at, stop: stop, done: make(chan struct{})}
	if s.closed {
		start.err = ErrClosed
		close(start.done)
		s.start, s.client = start, nil
		return
	}
	s.start, s.starting, s.client, s.silent = start, true, nil, false
	s.work.Go(func() {
		defer stop(nil)
		if previous != nil {
			previous.stop(errRestart)
			if ended, _ := previous.wait(context.Background()); ended != nil {
				_ = ended.Close() // what is left of it, as a grandchild, may be in the way
			}
		}
		select {
		case <-time.After(time.Until(at)):
			start.client, start.err = s.connect(ctx)
		case <-ctx.Done():
			start.err = context.Cause(ctx)
		}
		if ended := s.finishStart(start); ended != nil && s.options.Warn != nil {
			s.options.Warn(fmt.Sprintf("it was started again, as it had ended: %v", ended))
		}
	})
}

// connect starts the server, in the time that it has for it.
func (s *hosted) connect(ctx context.Context) (*Client, error) {
	inTime, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var transport atomic.Pointer[Transport]
	server := s.Server
	if server.Start == nil && server.URL == "" {
		server.Start = server.Command.Start
	}
	if start := server.Start; start != nil {
		server.Start = func(ctx context.Context) (Transport, error) {
			started, err := start(ctx)
			transport.Store(&started)
			return started, err
		}
	}
	s.work.Go(func() { s.limitStart(inTime, cancel, &transport) })
	return server.Connect(inTime, s.options)
}

// packageRunner matches the commands that may have to download the server first.
var packageRunner = regexp.MustCompile(`(^|[/\\])(bunx?|docker|npm|npx|pipx|pnpm|pnpx|podman|uvx?|yarn)(\.\w+)?$`)

// limitStart ends a start that takes too long. It returns when inTime has ended.
func (s *hosted) limitStart(
	inTime context.Context, cancel context.CancelCauseFunc, transport *atomic.Pointer[Transport],
) {
	watch := s.stopwatch()
	limit := cmp.Or(s.StartTimeout, startTime)
	for slow := false; ; slow = true {
		if !watch.wait(inTime, limit) {
			return
		}
		var excerpt string
		var wrote time.Time
		if started := transport.Load(); started != nil {
			if child, ok := (*started).(interface{ Stderr() (string, time.Time) }); ok {
				excerpt, wrote = child.Stderr()
			}
		}
		// In steps, so that a first line, as most servers write, does not extend the start by a moment.
		longer := min(wrote.Add(startTime).Sub(watch.begun), slowStart).Truncate(startTime / 6)
		if packageRunner.MatchString(s.Command.Path) {
			longer = slowStart
		}
		if s.StartTimeout != 0 || longer <= limit {
			cancel(&StartTimeoutError{limit, excerpt})
			return
		}
		if limit = longer; !slow && s.OnSlowStart != nil {
			s.OnSlowStart(slowStart)
		}
	}
}

// finishStart keeps the outcome of a start, unless another one has begun since. If the server runs again, it returns
// why it had ended.
func (s *hosted) finishStart(start *hostTask) (ended error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer close(start.done)
	if s.start != start {
		return nil
	}
	s.starting, s.lastStart = false, time.Now()
	ended, s.client, s.err = s.err, start.client, start.err
	if s.err != nil {
		return nil
	}
	if s.starts++; s.starts == 1 {
		s.tries, ended = 0, nil
	}
	s.info, s.givenUp = s.client.Server, time.Time{}
	if s.info.Stateless() && s.info.ListChanged("tools") {
		s.work.Go(func() { s.listen(start.client) })
	}
	return ended
}

// read begins to list the server's tools, or joins the reading that is under way. It is not worth waiting for if the
// last one had no answer, if the start before it is not, or if a person has to do something first. A server that works
// on a call, or may still do so after the caller has given up, is not asked: many answer nothing else meanwhile.
func (s *hosted) read() (reading *hostTask, worthWaiting bool) {
	waits := s.waits()
	s.mu.Lock()
	defer s.mu.Unlock()
	start := s.current()
	busy := !s.starting && s.tools != nil && (s.calls > 0 || time.Since(s.givenUp) < busyTime)
	if s.reading == nil && !s.closed && !busy {
		s.reading = &hostTask{begins: time.Now(), done: make(chan struct{})}
		if s.starting {
			s.reading.begins = start.begins
		}
		reading := s.reading
		s.work.Go(func() { s.list(reading, start) })
	}
	return s.reading, !s.silent && !waits && !(s.starting && s.tries > 1)
}

// list is one reading of the tools, after a start, by its own goroutine.
func (s *hosted) list(reading, start *hostTask) {
	client, tools, err := s.ask(start)
	if again, withoutProbe := s.startAgain(client, err); again != nil {
		first := err
		client, tools, err = s.ask(again)
		switch {
		case !withoutProbe:
		case err == nil:
			s.skipProbe()
		case err.Error() != first.Error():
			err = fmt.Errorf("%w (at the second start, without server/discover; the first, with it: %w)", err, first)
		}
	}
	if isMethodNotFound(err) {
		tools, err = nil, nil // a server of resources or prompts alone
	}
	var described []HostTool
	if err == nil {
		described = s.describe(tools)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	defer close(reading.done)
	s.reading = nil
	if client == nil || client != s.client { // the outcome says nothing about the server
		return
	}
	s.err, s.silent = err, errors.Is(err, context.DeadlineExceeded)
	if err == nil {
		s.tools = described
	}
}

// ask asks the server for its tools, for no longer than a start may take. The client is nil if the start failed.
func (s *hosted) ask(start *hostTask) (*Client, []Tool, error) {
	client, err := start.wait(s.life)
	if err != nil {
		return nil, nil, err
	}
	limit := cmp.Or(s.StartTimeout, startTime)
	inTime, cancel := context.WithCancelCause(s.life)
	defer cancel(nil)
	watch := s.stopwatch()
	s.work.Go(func() {
		if watch.wait(inTime, limit) {
			cancel(&TimeoutError{After: limit})
		}
	})
	tools, err := client.ListTools(inTime)
	return client, tools, err
}

// startAgain begins a start if a list failed because the server has ended, as one may that has just answered its last
// call. It begins one without a probe if the first list of a server on stdio failed after one, which may be why (see
// Client.Probed). Else it returns nil.
func (s *hosted) startAgain(client *Client, err error) (start *hostTask, withoutProbe bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if client == nil || client != s.client || s.closed {
		return nil, false
	}
	refused := errors.As(err, new(*Error)) && !isMethodNotFound(err)
	switch ended := client.Err() != nil; {
	case client.Probed && s.URL == "" && s.tools == nil && (ended || refused):
		s.options.Protocol = Revisions()[1] // the newest with a handshake
		s.beginStart(time.Time{})
		return s.start, true
	case ended && s.tries == 0:
		return s.current(), false
	}
	return nil, false
}

// describe makes what the Host knows of tools, and warns of those that cannot be offered to a model.
func (s *hosted) describe(tools []Tool) []HostTool {
	described := make([]HostTool, len(tools))
	var reasons []string
	for i, name := range FunctionNames(s.prefix, tools) {
		function, err := ToolFunction(name, &tools[i])
		function.Description = Clip(function.Description, maxDescription)
		described[i] = HostTool{s.Name, name, tools[i], err, function, s}
		if err != nil && s.Allows(tools[i].Name) {
			reasons = append(reasons, fmt.Sprintf("the tool %s is not offered to the model: %v", tools[i].Name, err))
		}
	}
	unfit := strings.Join(reasons, "; ")
	if unfit != "" && unfit != s.unfit && s.options.Warn != nil {
		s.options.Warn(unfit)
	}
	s.unfit = unfit
	return described
}

func isMethodNotFound(err error) bool {
	var refusal *Error
	return errors.As(err, &refusal) && refusal.Code == CodeMethodNotFound
}

// call runs one of the server's tools.
func (s *hosted) call(
	ctx context.Context, tool *Tool, arguments json.RawMessage, report func(Progress),
) (*ToolResult, error) {
	client, err := s.get(ctx)
	if err != nil {
		return nil, fmt.Errorf("tools/call %s: %w", tool.Name, err)
	}
	if tool.Repeatable() {
		ctx = Repeatable(ctx)
	}
	s.callBegins()
	result, err := client.CallTool(ctx, tool.Name, arguments, report)
	s.callEnds(client, err)
	return result, err
}

func (s *hosted) callBegins() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
}

func (s *hosted) callEnds(client *Client, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls--
	answered := err == nil || errors.As(err, new(*Error))
	if answered || client.Err() == nil { // the server survived the call
		s.tries, s.givenUp = 0, time.Time{}
		if !answered {
			s.givenUp = time.Now()
		}
	}
}

func (s *hosted) status() HostStatus {
	waits := s.waits()
	s.mu.Lock()
	defer s.mu.Unlock()
	running := s.client != nil && !s.noticeEnd()
	status := HostStatus{Name: s.Name, Running: running, Starting: s.starting, Err: s.err, Info: s.info,
		Tools: len(s.tools), Restarts: max(0, s.starts-1), tools: s.tools}
	if status.Retry = s.lastStart.Add(pauseAfter(s.tries)); s.starting {
		status.Retry = s.start.begins
	} else if s.start != nil {
		status.Took = s.lastStart.Sub(s.start.begins)
	}
	switch {
	case waits && (s.starting || s.reading != nil):
		status.Err = ErrWaiting
	case s.err != nil:
	case s.closed:
		status.Err = ErrClosed
	case s.starting:
		status.Err = ErrStarting
	case s.reading != nil && s.tools == nil:
		status.Err = ErrListing
	}
	return status
}

// close ends the server. The Host's life has ended, and with it a start under way.
func (s *hosted) close() error {
	s.mu.Lock()
	s.closed = true
	start := s.start
	s.mu.Unlock()
	if start == nil {
		return nil
	}
	client, _ := start.wait(context.Background())
	if client == nil {
		return nil
	}
	return client.Close()
}

// listen subscribes to changes of the tools, after which the Client asks for them anew. A subscription that ends is
// begun again after a pause, as long as the server runs and knows what a subscription is.
func (s *hosted) listen(client *Client) {
	for !isMethodNotFound(client.Listen(s.life, Subscription{Tools: true}, func(Change) {})) {
		select {
		case <-time.After(listenTime):
			client.ForgetLists("tools") // they may have changed meanwhile
		case <-client.Done(): // also when the Host is closed
			return
		}
	}
}
