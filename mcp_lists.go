// mcp_lists.go - the lists of a server: their pages, how long they hold, and their changes.
// Needs: Go 1.25, json.go, rpc.go, mcp_types.go, elicitation.go, mcp.go, mcp_input.go, mcp_handshake.go, mcp_repair.go.
// SPDX-License-Identifier: 0BSD

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Subscription says what changes to tell of.
type Subscription struct {
	Tools     bool     `json:"toolsListChanged,omitempty"`
	Prompts   bool     `json:"promptsListChanged,omitempty"`
	Resources bool     `json:"resourcesListChanged,omitempty"`
	URIs      []string `json:"resourceSubscriptions,omitempty"` // of resources whose contents matter
}

// Change is one of the changes subscribed to.
type Change struct {
	List string // tools, prompts or resources; empty if it is a resource's contents
	URI  string // of that resource
}

// listener is one Listen at work.
type listener struct {
	Subscription
	changed func(Change)
}

func (l *listener) wants(change Change) bool {
	switch change.List {
	case "tools":
		return l.Tools
	case "prompts":
		return l.Prompts
	case "resources":
		return l.Resources
	}
	return len(l.URIs) > 0 // the server knows which: it may also tell of what is below a URI
}

// cachedList is a list that need not be asked for again.
type cachedList struct {
	kind  string    // tools, prompts or resources
	items any       // []Tool, …
	until time.Time // zero: until the server tells of a change
}

// ListTools returns all tools of the server, over as many pages as it takes. With an error comes what had been read until
// then. A list that the server said is fresh, or promised to tell of changes to, is not asked for again.
func (c *Client) ListTools(ctx context.Context) ([]Tool, error) {
	return list(ctx, c, "tools/list", "tools", decodeTools)
}

// ListResources returns all resources that have a URI of their own; see ListTools.
func (c *Client) ListResources(ctx context.Context) ([]Resource, error) {
	return list(ctx, c, "resources/list", "resources", decodeList[Resource]("resources"))
}

// ListResourceTemplates returns all families of resources; see ListTools.
func (c *Client) ListResourceTemplates(ctx context.Context) ([]ResourceTemplate, error) {
	return list(ctx, c, "resources/templates/list", "resources", decodeList[ResourceTemplate]("resourceTemplates"))
}

// ListPrompts returns all prompts; see ListTools.
func (c *Client) ListPrompts(ctx context.Context) ([]Prompt, error) {
	return list(ctx, c, "prompts/list", "prompts", decodeList[Prompt]("prompts"))
}

// Listen tells of changes until ctx ends, whose cause it wraps, or until the server ends the subscription in good order: nil.
// changed runs on the reader of the connection: it must return soon and must not call the Client.
func (c *Client) Listen(ctx context.Context, s Subscription, changed func(Change)) error {
	l := &listener{s, changed}
	if !c.stateless() {
		return c.subscribe(ctx, l)
	}
	// One request that lasts as long as the subscription, whose id is in every notification that comes of it.
	_, err := c.request(ctx, "subscriptions/listen", members(map[string]any{"notifications": s}),
		&watch{endless: true, begun: func(id int64) { c.listen(l, id) }})
	c.unlisten(l)
	if err != nil {
		return fmt.Errorf("subscriptions/listen: %w", err)
	}
	return nil
}

func (c *Client) listen(l *listener, id int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.listens[l] = id
}

// errUnsubscribed ends a Listen whose subscription the server has cancelled.
var errUnsubscribed = &ProtocolError{"the server has ended the subscription"}

// listensWith says whether that request is a Listen's.
func (c *Client) listensWith(id int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, request := range c.listens {
		if request == id {
			return true
		}
	}
	return false
}

func (c *Client) unlisten(l *listener) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.listens, l)
}

func (l *cachedList) holds() bool { return l.until.IsZero() || time.Now().Before(l.until) }

// list asks for one page after the other, until one has no nextCursor (MCP 2026-07-28, server, pagination). A cursor that was
// there before would begin a circle.
func list[T any](ctx context.Context, c *Client, method, kind string, decode func([]T, json.RawMessage) ([]T, listPage, error)) ([]T, error) {
	c.mu.Lock()
	known, ok := c.lists[method]
	changes := c.changes
	c.mu.Unlock()
	if ok && known.holds() {
		return slices.Clone(known.items.([]T)), nil
	}
	var items []T
	var params membersFunc
	seen := make(map[string]bool)
	fresh := cachedList{kind: kind}
	for {
		asked := time.Now()
		raw, err := c.request(ctx, method, params, new(watch))
		var p listPage
		if err == nil {
			items, p, err = decode(items, raw)
		}
		if p.NextCursor != nil && *p.NextCursor == "" && !c.stateless() {
			p.NextCursor = nil // what some servers of the handshake era end with; since then it is a cursor
		}
		if err == nil && p.NextCursor != nil && seen[*p.NextCursor] {
			err = &ProtocolError{fmt.Sprintf("the server repeats the cursor %q", *p.NextCursor)}
		}
		if err == nil && len(seen) == maxPages {
			err = &ProtocolError{fmt.Sprintf("the list goes on after %d pages", maxPages)}
		}
		if err != nil {
			return items, fmt.Errorf("%s: %w", method, err)
		}
		// The list is as fresh as its stalest page.
		if until := asked.Add(time.Duration(min(max(p.TTLMs, 0), maxTTL)) * time.Millisecond); fresh.until.IsZero() || until.Before(fresh.until) {
			fresh.until = until
		}
		if p.NextCursor == nil {
			break
		}
		seen[*p.NextCursor] = true
		params = members(map[string]any{"cursor": *p.NextCursor})
	}
	if !c.stateless() && method != "resources/templates/list" && c.tellsOfChanges(kind) {
		fresh.until = time.Time{}
	}
	if !fresh.holds() {
		return items, nil
	}
	fresh.items = items
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.changes == changes { // else a change was told of meanwhile
		c.lists[method] = fresh
	}
	return slices.Clone(items), nil
}

const (
	maxPages = 10_000              // of one list
	maxTTL   = 24 * 60 * 60 * 1000 // what a server can ask to be taken for fresh, in milliseconds: a day
)

// tellsOfChanges says whether the server has promised to.
func (c *Client) tellsOfChanges(kind string) bool {
	var capability struct{ ListChanged bool }
	return json.Unmarshal(c.Server.Capabilities[kind], &capability) == nil && capability.ListChanged
}

// forgetLists empties the cache, or what is of one kind in it.
func (c *Client) forgetLists(kind string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changes++
	maps.DeleteFunc(c.lists, func(_ string, l cachedList) bool { return kind == "" || l.kind == kind })
}

// changed tells the listeners: in the stateless era the one whose subscription it is, before it all that want it.
func (c *Client) changed(subscription json.RawMessage, change Change) {
	if change.List != "" {
		c.forgetLists(change.List)
	}
	id, ok := responseID(subscription)
	c.mu.Lock()
	var told []func(Change)
	for l, request := range c.listens {
		if ok && request == id || !ok && request == 0 && l.wants(change) {
			told = append(told, l.changed)
		}
	}
	c.mu.Unlock()
	for _, changed := range told {
		changed(change)
	}
}
