// host_server.go - a server that is started again when it has died.
// Needs: Go 1.25, json.go, rpc.go, mcp_types.go, elicitation.go, mcp.go, mcp_input.go, mcp_lists.go, mcp_handshake.go, mcp_repair.go, mistral.go, mcp_model.go.
// SPDX-License-Identifier: 0BSD

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"
)

// StartTimeoutError says that a server was not there in time. It wraps context.DeadlineExceeded.
type StartTimeoutError struct{ After time.Duration }

func (e *StartTimeoutError) Error() string {
	return fmt.Sprintf("the server was not there within %s", e.After)
}

func (e *StartTimeoutError) Unwrap() error { return context.DeadlineExceeded }

// GivenUpError says that a server is not started any more. It wraps what went wrong the last time.
type GivenUpError struct {
	Restarts int // in a row, none of which did any good
	Err      error
}

func (e *GivenUpError) Error() string {
	return fmt.Sprintf("given up after %d restarts in a row: %v", e.Restarts, e.Err)
}

func (e *GivenUpError) Unwrap() error { return e.Err }

const (
	startTime   = 30 * time.Second // HostServer.StartTimeout if 0
	maxRestarts = 5                // in a row
	calmTime    = time.Minute      // a server that is there for so long does well
	maxPause    = time.Minute      // before a subscription is begun again
)

// HostServer is one server that a Host is to have.
type HostServer struct {
	Name         string // which no other server has
	Connect      func(ctx context.Context, o ClientOptions) (*Client, error)
	Options      ClientOptions
	StartTimeout time.Duration          // of a start, and of a list of tools; 30 s if 0
	Allows       func(tool string) bool // whether a model is offered that tool; nil if it is offered all
}

// HostStatus is how a server is.
type HostStatus struct {
	Name     string
	Err      error      // why it is not there, or why its tools could not be listed the last time; nil if all is well
	Info     ServerInfo // of the last start that went well
	Tools    int        // of the last list that could be read
	Restarts int        // that went well
}

// HostTool is one tool of a Host.
type HostTool struct {
	Server   string // HostServer.Name
	Function string // the name that a model knows it by
	Tool     Tool
}

// hosted is one server through all its starts. Nobody watches it: that it has died is noticed by the next who needs it,
// who starts it again; all who need it meanwhile wait for that one start.
type hosted struct {
	HostServer
	prefix string          // of the names of its functions
	life   context.Context // the Host's
	work   *sync.WaitGroup // the Host's, for begin and listen

	mu       sync.Mutex   // guards the following; never held across I/O or a callback
	client   *Client      // nil if the server is not there; see look
	err      error        // why it is not there, or why it could not be listed
	dead     *Client      // the one before, if it is not closed yet
	starting *serverStart // nil if no start is under way
	closed   bool         // no start may begin
	last     time.Time    // when the last start was over, well or not
	tries    int          // restarts since the server did well: it answered a call, or was there for a while
	restarts int          // that went well
	been     bool         // the server has been there
	info     ServerInfo   // what it was then
	tools    []HostTool   // of the last list that could be read; replaced, never changed
}

// serverStart is one start, for all who wait for it.
type serverStart struct {
	done   chan struct{} // closed when the following are set
	client *Client
	err    error
}

// get returns a client of the server, which it starts again if it has died or was never there. Without patience it only
// waits for a restart that is likely to go well, the first after the server did well. Others go on in the background; and a
// server that was never there is not started again.
func (s *hosted) get(ctx context.Context, patient bool) (*Client, error) {
	client, again, err := s.reach(patient)
	if again == nil {
		return client, err
	}
	select {
	case <-again.done:
		return again.client, again.err
	case <-ctx.Done():
		return nil, context.Cause(ctx) // the others still wait for the start
	}
}

// reach is get but for the wait.
func (s *hosted) reach(patient bool) (*Client, *serverStart, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.look()
	switch {
	case s.closed:
		return nil, nil, ErrClosed
	case s.client != nil:
		return s.client, nil, nil
	case !patient && !s.been:
		return nil, nil, s.err
	case s.starting == nil && s.tries == maxRestarts:
		return nil, nil, s.err
	case s.starting == nil:
		pause := time.Duration(1<<s.tries/2) * time.Second // 0, 1, 2, 4, 8
		s.tries++
		s.begin(s.life, s.last.Add(pause))
	}
	if !patient && s.tries > 1 {
		return nil, nil, s.err
	}
	return nil, s.starting, nil
}

// look notices that the server has died. The caller holds s.mu.
func (s *hosted) look() {
	if s.client == nil || s.client.conn.life.Err() == nil {
		return
	}
	if time.Since(s.last) >= calmTime {
		s.tries = 0
	}
	s.fail(context.Cause(s.client.conn.life))
	s.client, s.dead = nil, s.client
}

// fail takes down why the server is not there. The caller holds s.mu.
func (s *hosted) fail(err error) {
	if s.err = err; s.tries == maxRestarts {
		s.err = &GivenUpError{s.tries, err}
	}
}

// begin begins a start, though not before the given time. The caller holds s.mu.
func (s *hosted) begin(ctx context.Context, at time.Time) *serverStart {
	next, dead := &serverStart{done: make(chan struct{})}, s.dead
	s.starting, s.dead = next, nil
	s.work.Go(func() {
		if dead != nil {
			_ = dead.Close() // what is left of it, as a grandchild, may be in the way
		}
		if next.err = pause(ctx, time.Until(at)); next.err == nil {
			next.client, next.err = s.connect(ctx)
		}
		s.started(next)
	})
	return next
}

func (s *hosted) connect(ctx context.Context) (*Client, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.StartTimeout, &StartTimeoutError{s.StartTimeout})
	defer cancel()
	return s.Connect(ctx, s.Options)
}

// started takes down what came of a start.
func (s *hosted) started(next *serverStart) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer close(next.done)
	s.starting, s.last = nil, time.Now()
	if next.err != nil {
		s.fail(next.err)
		next.err = s.err
		return
	}
	s.client, s.err = next.client, nil
	if s.been {
		s.restarts++
	}
	s.been, s.info = true, next.client.Server
	if next.client.stateless() && next.client.tellsOfChanges("tools") {
		s.work.Go(func() { s.listen(next.client) })
	}
}

// list asks the server for its tools.
func (s *hosted) list(ctx context.Context) ([]HostTool, error) {
	client, err := s.get(ctx, false)
	if err != nil {
		return nil, err
	}
	// A server that is there and does not answer must not keep the others for as long as a call may take.
	inTime, cancel := context.WithTimeoutCause(ctx, s.StartTimeout, &TimeoutError{After: s.StartTimeout})
	defer cancel()
	tools, err := client.ListTools(inTime)
	var refusal *Error
	if errors.As(err, &refusal) && refusal.Code == CodeMethodNotFound {
		tools, err = nil, nil // a server of resources or prompts alone
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.client == client && ctx.Err() == nil { // else it says nothing about the server
		s.err = err
	}
	if err != nil {
		return nil, err
	}
	s.tools = make([]HostTool, len(tools))
	for i, function := range serverFunctionNames(s.prefix, tools) {
		s.tools[i] = HostTool{s.Name, function, tools[i]}
	}
	return s.tools, nil
}

// call runs one of the server's tools.
func (s *hosted) call(ctx context.Context, tool *Tool, arguments json.RawMessage, report func(Progress)) (*ToolResult, error) {
	client, err := s.get(ctx, true)
	if err != nil {
		return nil, fmt.Errorf("tools/call %s: %w", tool.Name, err)
	}
	if tool.Repeatable() {
		ctx = Repeatable(ctx)
	}
	result, err := client.CallTool(ctx, tool.Name, arguments, report)
	var refusal *Error
	if err == nil || errors.As(err, &refusal) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.tries = 0
	}
	return result, err
}

// known are the tools of the last list.
func (s *hosted) known() []HostTool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tools
}

func (s *hosted) status() HostStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.look()
	return HostStatus{s.Name, s.err, s.info, len(s.tools), s.restarts}
}

// close ends the server. The Host's life has ended, and with it a start under way.
func (s *hosted) close() error {
	s.mu.Lock()
	s.closed = true
	starting := s.starting
	s.mu.Unlock()
	if starting != nil {
		<-starting.done
	}
	s.mu.Lock()
	clients := []*Client{s.client, s.dead}
	s.mu.Unlock()
	var err error
	for _, client := range clients {
		if client != nil {
			err = errors.Join(err, client.Close())
		}
	}
	return err
}

// listen has the server tell of changed tools, which the Client then asks for anew. A subscription that ends is begun again
// after a pause, as long as the server is there and knows what that is.
func (s *hosted) listen(client *Client) {
	for wait := time.Second; ; wait = min(2*wait, maxPause) {
		begun := time.Now()
		err := client.Listen(s.life, Subscription{Tools: true}, func(Change) {})
		var refusal *Error
		if errors.As(err, &refusal) && refusal.Code == CodeMethodNotFound {
			return
		}
		if time.Since(begun) >= maxPause {
			wait = time.Second
		}
		if pause(client.conn.life, wait) != nil { // it has died, or the Host is being closed
			return
		}
		client.forgetLists("tools") // of a change meanwhile nobody was told
	}
}

// pause waits, unless ctx ends before.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
