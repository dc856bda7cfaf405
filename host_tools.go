// host_tools.go - the tools of a server: their lists, their changes and their calls.
// Needs: Go 1.25, json, rpc, lines, transport_stdio, transport_http, mcp, mistral, functions.
// SPDX-License-Identifier: 0BSD

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

const listenTime = 5 * time.Second // before a subscription that ended is begun again

// beginListing begins to list the server's tools, or joins the list that is under way. It starts
// the server if it is not running. A busy server that has listed its tools before is not asked, as
// many answer nothing else while they work on a call: then there is no task.
func (s *hosted) beginListing() (listing *hostTask, isAwaited bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	start := s.currentStart()
	state := s.state()
	if s.listing == nil && state != stateBusy && state != stateClosed {
		s.listing = &hostTask{begins: time.Now(), done: make(chan struct{})}
		if s.isStarting() {
			s.listing.begins = start.begins
		}
		listing := s.listing
		s.work.Go(func() { s.listTools(listing, start) })
		state = s.state()
	}
	return s.listing, state.isAwaited()
}

// listTools is one list of the tools, after a start, by its own goroutine.
func (s *hosted) listTools(listing, start *hostTask) {
	client, tools, err := s.readTools(start)
	if isMethodNotFound(err) {
		// It is a server of resources or prompts alone.
		tools = nil
		err = nil
	}
	var described []HostTool
	if err == nil {
		described = s.describe(tools)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	defer close(listing.done)
	s.listing = nil
	// Meanwhile the server can have been started again, and an error is not one of the new process.
	if client == nil || client != s.client {
		return
	}
	s.err = err
	s.listTimedOut = errors.Is(err, context.DeadlineExceeded)
	if err == nil {
		s.tools = described
	}
}

// readTools asks the server for its tools after a start, and where that may help, once more after a
// second start. The client is the one that was asked last, nil if its start failed.
func (s *hosted) readTools(start *hostTask) (*Client, []Tool, error) {
	client, tools, firstErr := s.askForTools(start)
	second, withoutProbe := s.startAfterFailedList(client, firstErr)
	if second == nil {
		return client, tools, firstErr
	}
	client, tools, err := s.askForTools(second)
	if !withoutProbe {
		return client, tools, err
	}
	if err == nil {
		s.rememberNoProbe()
		return client, tools, nil
	}
	if err.Error() != firstErr.Error() {
		err = fmt.Errorf("%w (at the second start, without server/discover; "+
			"the first, with it: %w)", err, firstErr)
	}
	return client, nil, err
}

// askForTools asks the server for its tools, for no longer than a start may take. The client is nil
// if the start failed.
func (s *hosted) askForTools(start *hostTask) (*Client, []Tool, error) {
	client, err := start.wait(s.life)
	if err != nil {
		return nil, nil, err
	}
	// A request has minutes. Here a model and a person wait, who can do without these tools.
	limit := cmp.Or(s.StartTimeout, startTime)
	inTime, cancel := WithLimit(s.life, limit, &TimeoutError{After: limit})
	defer cancel()
	tools, err := client.ListTools(inTime)
	if err != nil {
		return client, nil, err
	}
	return client, tools, nil
}

// startAfterFailedList begins a start where that may help a list that failed, else it returns nil.
// There are two such cases.
//
//   - The first list of a server on stdio failed after a probe. Some servers survive
//     server/discover and the handshake after it, and then refuse all else, or end. They are
//     started without the probe. Connect does the same for a server that fails before. That cannot
//     be one function with this: here callers hold the client already, and the new start has to
//     replace it for them all.
//   - The server has ended although it was well: some servers end after they have answered a call.
//     It is started again.
func (s *hosted) startAfterFailedList(
	client *Client,
	err error,
) (start *hostTask, withoutProbe bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil || s.closed || client == nil || client != s.client {
		return nil, false
	}
	hasEnded := client.Err() != nil
	hasRefused := errors.As(err, new(*Error)) && !isMethodNotFound(err)
	isFirstAfterProbe := client.Probed && s.URL == "" && s.tools == nil
	if isFirstAfterProbe && (hasEnded || hasRefused) {
		s.options.Protocol = NewestHandshake()
		s.beginStart(time.Time{})
		return s.start, true
	}
	if hasEnded && s.tries == 0 {
		return s.currentStart(), false
	}
	return nil, false
}

// describe makes what the Host knows of tools, and warns of those that cannot be offered to a
// model, unless its last warning was the same.
func (s *hosted) describe(tools []Tool) []HostTool {
	described := make([]HostTool, len(tools))
	var reasons []string
	for i, name := range FunctionNames(s.prefix, tools) {
		tool := tools[i]
		function, err := ToolFunction(name, &tool)
		function.Description = Clip(function.Description, maxDescription)
		function.Pinned = s.Approves(tool.Name)
		described[i] = HostTool{
			Server:   s.Name,
			Function: name,
			Tool:     tool,
			Unfit:    err,
			offer:    function,
			server:   s,
		}
		if err != nil && s.Allows(tool.Name) {
			reason := fmt.Sprintf("the tool %q is not offered to the model: %v", tool.Name, err)
			reasons = append(reasons, reason)
		}
	}
	s.warn(&s.warnedOfUnfit, strings.Join(reasons, "; "))
	var missing []string
	for _, name := range s.MissingNames(tools) {
		missing = append(missing, fmt.Sprintf("it has no tool %q, which the configuration names",
			name))
	}
	s.warn(&s.warnedOfNames, strings.Join(missing, "; "))
	return described
}

// warn passes a warning on, unless it is empty or the same as the last of its kind.
func (s *hosted) warn(last *string, warning string) {
	s.mu.Lock()
	isNew := warning != *last
	*last = warning
	s.mu.Unlock()
	if isNew && warning != "" && s.options.Warn != nil {
		s.options.Warn(warning)
	}
}

// isMethodNotFound reports whether a server does not know the method that it was sent.
func isMethodNotFound(err error) bool {
	var refusal *Error
	return errors.As(err, &refusal) && refusal.Code == CodeMethodNotFound
}

// callTool runs one of the server's tools.
func (s *hosted) callTool(
	ctx context.Context,
	tool *Tool,
	arguments json.RawMessage,
	report func(Progress),
) (*ToolResult, error) {
	client, err := s.runningClient(ctx)
	if err != nil {
		return nil, fmt.Errorf("tools/call %s: %w", tool.Name, err)
	}
	// The tool says itself that a call does no harm if it runs twice. Only then may the client send
	// a call again whose answer was lost on the way.
	if tool.Repeatable() {
		ctx = Repeatable(ctx)
	}
	s.callBegins()
	result, err := client.CallTool(ctx, tool.Name, arguments, report)
	s.callEnds(client, err)
	return result, err
}

// callBegins notes that the server is working.
func (s *hosted) callBegins() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
}

// callEnds notes whether the server is well, which a call that it survived proves, and whether it
// may still work on the call.
func (s *hosted) callEnds(client *Client, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls--
	answered := err == nil || errors.As(err, new(*Error))
	hasEnded := !answered && client.Err() != nil
	if hasEnded {
		return
	}
	s.tries = 0
	s.abandoned = time.Time{}
	if !answered {
		s.abandoned = time.Now()
	}
}

// listenForTools subscribes to changes of the tools, after which the Client asks for them anew. A
// subscription that ends is begun again after a pause, in which the tools may have changed. It
// returns when the server has ended, as it has after Host.Close, or when the server does not know
// subscriptions/listen, or does not agree to tell of its tools.
func (s *hosted) listenForTools(client *Client) {
	for {
		ctx, refuse := context.WithCancel(s.life)
		err := client.Listen(ctx, Subscription{Tools: true}, func(change Change) {
			if change.Refused {
				refuse()
			}
		})
		isRefused := ctx.Err() != nil
		refuse()
		if isRefused || isMethodNotFound(err) {
			return
		}
		select {
		case <-time.After(listenTime):
			client.ForgetLists("tools")
		case <-client.Done():
			return
		}
	}
}
