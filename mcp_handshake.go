// mcp_handshake.go - the revisions of MCP that begin with a handshake.
// Needs: Go 1.25, json.go, rpc.go, mcp_types.go, elicitation.go, mcp.go, mcp_input.go, mcp_lists.go, mcp_repair.go.
// SPDX-License-Identifier: 0BSD

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// All that is of the handshake era alone is in this file: without it, and the places of mcp.go and mcp_lists.go that name
// something of it, what is left is a client of the stateless era.

// CodeResourceNotFound is how servers of this era say that there is no such resource.
const CodeResourceNotFound = -32002

// handshakeRevisions are the revisions of this era, newest first.
func handshakeRevisions() []string {
	return []string{"2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"}
}

// handshake agrees on a revision (MCP 2025-11-25, lifecycle, initialization): the client offers one, the server
// answers with that or with one it prefers, and the client takes it or leaves. Who is who, and who can do what, is said
// here once for the whole connection.
func (c *Client) handshake(ctx context.Context, offer string) (ServerInfo, error) {
	raw, err := c.call(ctx, "initialize", members(map[string]any{
		"protocolVersion": offer,
		"capabilities":    c.capabilities(),
		"clientInfo":      c.options.Info,
	}), new(watch))
	var answer struct {
		ProtocolVersion string                     `json:"protocolVersion"`
		Capabilities    map[string]json.RawMessage `json:"capabilities"`
		ServerInfo      Implementation             `json:"serverInfo"`
		Instructions    string                     `json:"instructions"`
	}
	if err == nil {
		err = json.Unmarshal(raw, &answer)
	}
	if err == nil && !slices.Contains(handshakeRevisions(), answer.ProtocolVersion) {
		err = &ProtocolError{fmt.Sprintf("the server wants protocol revision %q; this client speaks %s",
			answer.ProtocolVersion, strings.Join(Revisions(), ", "))}
	}
	if known := c.Server.ProtocolVersion; err == nil && known != "" && known != answer.ProtocolVersion {
		err = &ProtocolError{fmt.Sprintf("the server has changed from revision %s to %s", known, answer.ProtocolVersion)}
	}
	if err != nil {
		return ServerInfo{}, fmt.Errorf("initialize: %w", err)
	}
	server := ServerInfo{answer.ProtocolVersion, answer.Capabilities, answer.ServerInfo, answer.Instructions}
	if err = c.conn.Notify(ctx, "notifications/initialized", nil); err == nil {
		err = c.setLogLevel(ctx, server)
	}
	return server, err
}

// introduce is the first handshake of the connection.
func (c *Client) introduce(ctx context.Context, offer string) (err error) {
	c.Server, err = c.handshake(ctx, offer)
	return err
}

// setLogLevel says once what the stateless era says in every request.
func (c *Client) setLogLevel(ctx context.Context, server ServerInfo) error {
	if c.options.Log == nil || server.Capabilities["logging"] == nil {
		return nil
	}
	_, err := c.call(ctx, "logging/setLevel", members(map[string]any{"level": c.options.LogLevel}), new(watch))
	var refusal *Error
	if err != nil && !errors.As(err, &refusal) { // whose server logs as it likes
		return fmt.Errorf("logging/setLevel: %w", err)
	}
	return nil
}

// Ping asks the server for a sign of life. The stateless era has no such request.
func (c *Client) Ping(ctx context.Context) error {
	if _, err := c.request(ctx, "ping", nil, new(watch)); err != nil {
		return fmt.Errorf("ping: %w", err)
	}
	return nil
}

// serverRequest answers a request of the server, which it may send while the client waits for its own answer.
func (c *Client) serverRequest(ctx context.Context, _ *Conn, method string, params json.RawMessage) (any, error) {
	switch {
	case method == "ping": // which servers may send before they have said what they are
		return struct{}{}, nil
	case c.stateless():
		return nil, &Error{Code: CodeMethodNotFound, Message: "a server of revision " + statelessRevision + " sends no requests"}
	}
	return c.ask(ctx, method, params)
}

// subscribe is Listen: changed lists are told of without being asked for, contents of resources one by one.
func (c *Client) subscribe(ctx context.Context, l *listener) error {
	c.listen(l, 0)
	for i, uri := range l.URIs {
		if _, err := c.request(ctx, "resources/subscribe", members(map[string]any{"uri": uri}), new(watch)); err != nil {
			c.unlisten(l)
			c.unsubscribe(l.URIs[:i])
			return fmt.Errorf("resources/subscribe %s: %w", uri, err)
		}
	}
	defer c.unsubscribe(l.URIs)
	defer c.unlisten(l)
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-c.conn.life.Done():
		return context.Cause(c.conn.life)
	}
}

// listensTo says whether a Listen that is still at work wants that resource.
func (c *Client) listensTo(uri string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for l := range c.listens {
		if slices.Contains(l.URIs, uri) {
			return true
		}
	}
	return false
}

// unsubscribe does so in passing: ctx has ended, and a server that goes on telling is not listened to.
func (c *Client) unsubscribe(uris []string) {
	ctx, cancel := context.WithTimeout(c.conn.life, noticeGrace)
	defer cancel()
	for _, uri := range uris {
		if c.listensTo(uri) {
			continue // the server knows one subscription to it, not how many want it
		}
		_, _ = c.request(ctx, "resources/unsubscribe", members(map[string]any{"uri": uri}), new(watch))
	}
}
