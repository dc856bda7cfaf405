// mcp_repair.go - requests that are sent again after a failure that can be repaired.
// Needs: Go 1.25, json.go, rpc.go, mcp_types.go, elicitation.go, mcp.go, mcp_input.go, mcp_lists.go, mcp_handshake.go.
// SPDX-License-Identifier: 0BSD

package main

import (
	"context"
	"errors"
	"fmt"
)

// What can be repaired is what a transport can lose without being lost itself: over HTTP each request is one of its own.
type (
	// sessionExpired is the error of a transport whose server has forgotten the session. It did nothing.
	sessionExpired interface{ SessionExpired() bool }
	// lostMessage is the error of a transport that does not know whether the server did anything.
	lostMessage interface{ Lost() bool }
)

type repeatableKey struct{} // of Repeatable's mark

// Repeatable marks the calls with that ctx as safe to be made twice: one whose answer is lost is then sent again, once, where
// streams cannot be resumed, in the stateless era. What only reads or lists needs no mark.
func Repeatable(ctx context.Context) context.Context {
	return context.WithValue(ctx, repeatableKey{}, true)
}

// repair mends what made a request fail. If that worked it returns nil, and the request is sent again, once; else the error
// that the request ends with.
func (c *Client) repair(ctx context.Context, method string, err error, w *watch) error {
	var expired sessionExpired
	var lost lostMessage
	var refusal *Error
	switch {
	case ctx.Err() != nil:
	case errors.As(err, &expired) && expired.SessionExpired():
		err = c.renew(ctx, w.session)
	case errors.As(err, &lost) && lost.Lost() && c.stateless() && (onlyReads(method) || ctx.Value(repeatableKey{}) != nil):
		err = nil
	case errors.As(err, &refusal) && refusal.Code == CodeHeaderMismatch && method == "tools/call":
		// The headers were made from a list that is out of date (MCP 2026-07-28, transports, streamable HTTP, client behavior).
		c.forgetLists("tools")
		if _, failed := c.ListTools(ctx); failed == nil {
			err = nil
		}
	}
	if err == nil {
		w.mu.Lock()
		w.over = false
		w.mu.Unlock()
	}
	return err
}

// onlyReads says whether a request changes nothing, by what the protocol says of its method.
func onlyReads(method string) bool {
	switch method {
	case "server/discover", "tools/list", "prompts/list", "prompts/get", "completion/complete",
		"resources/list", "resources/templates/list", "resources/read":
		return true
	}
	return false
}

// renew begins a new session in place of one that has expired: the server took it back, or was started again (MCP 2025-11-25,
// transports, session management). Requests that find it expired at the same time begin one together.
func (c *Client) renew(ctx context.Context, expired int) error {
	select {
	case c.renewing <- struct{}{}:
		defer func() { <-c.renewing }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	c.mu.Lock()
	done := c.session != expired
	var uris []string
	for l := range c.listens {
		uris = append(uris, l.URIs...)
	}
	c.mu.Unlock()
	if done {
		return nil
	}
	if _, err := c.handshake(ctx, c.Server.ProtocolVersion); err != nil {
		return fmt.Errorf("the session has expired, and there is no new one: %w", err)
	}
	c.forgetLists("")
	for _, uri := range uris { // a server that refuses now is one that does not tell of changes
		_, _ = c.call(ctx, "resources/subscribe", members(map[string]any{"uri": uri}), new(watch))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.session++
	return nil
}
