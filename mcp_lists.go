// mcp_lists.go - the lists of a server: their pages, how long they stay fresh, and their changes.
// Needs: Go 1.25, json, rpc.
// SPDX-License-Identifier: 0BSD

package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Subscription names the changes that a Listen waits for.
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

// listener is one Listen that has not returned.
type listener struct {
	Subscription
	changed func(Change)
}

// wants leaves the choice of URIs to the server, which may also tell of what is below one.
func (l *listener) wants(change Change) bool {
	return map[string]bool{
		"tools": l.Tools, "prompts": l.Prompts, "resources": l.Resources, "": len(l.URIs) > 0,
	}[change.List]
}

// cachedList is a list that need not be asked for again.
type cachedList struct {
	items  any       // []Tool, …
	until  time.Time // zero: until the server tells of a change, or its stream ends
	stream int64     // on which the server would tell; see Client.stream
}

// ListTools returns all tools of the server, from all pages; with an error, those of the pages before it. A list is
// not asked for again while it is fresh, as the server said, or while the server would tell of changes to it.
func (c *Client) ListTools(ctx context.Context) ([]Tool, error) {
	tools, err := list[Tool](ctx, c, "tools/list", "tools")
	if c.headers != nil && c.stateless.Load() {
		tools = slices.DeleteFunc(tools, func(t Tool) bool { return !c.mark(&t) })
	}
	return tools, err
}

// ListResources returns all resources that have a URI of their own; see ListTools.
func (c *Client) ListResources(ctx context.Context) ([]Resource, error) {
	return list[Resource](ctx, c, "resources/list", "resources")
}

// ListResourceTemplates returns all families of resources; see ListTools.
func (c *Client) ListResourceTemplates(ctx context.Context) ([]ResourceTemplate, error) {
	return list[ResourceTemplate](ctx, c, "resources/templates/list", "resourceTemplates")
}

// ListPrompts returns all prompts; see ListTools.
func (c *Client) ListPrompts(ctx context.Context) ([]Prompt, error) {
	return list[Prompt](ctx, c, "prompts/list", "prompts")
}

// Listen tells of changes until ctx ends, whose cause it wraps, or until the server ends the subscription in good
// order: nil. changed runs on the reader of the connection: it must return soon and must not call the Client.
func (c *Client) Listen(ctx context.Context, s Subscription, changed func(Change)) error {
	l := &listener{s, changed}
	if missing := c.Server.missing("resources/subscribe"); missing != "" && len(s.URIs) > 0 {
		return fmt.Errorf("resources/subscribe: %w", &NotDeclaredError{missing})
	}
	if c.stateless.Load() {
		// One request that lasts as long as the subscription, whose id is in every notification that comes of it.
		defer c.listens.Delete(l)
		_, err := c.do(ctx, &request{method: "subscriptions/listen", params: members("notifications", s), subscribe: l})
		return err
	}
	// In the handshake era only the contents of resources have to be subscribed to, one by one.
	c.listens.Store(l, int64(0))
	subscribed := 0
	defer func() {
		c.listens.Delete(l)
		c.unsubscribe(l.URIs[:subscribed])
	}()
	for _, uri := range l.URIs {
		if _, err := c.do(ctx, subscription("resources/subscribe", uri)); err != nil {
			return err
		}
		subscribed++
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-c.Done():
		return c.Err()
	}
}

func subscription(method, uri string) *request {
	return &request{method: method, about: uri, params: members("uri", uri)}
}

// unsubscribe is brief: ctx has ended, and notifications that a server goes on sending are dropped.
func (c *Client) unsubscribe(uris []string) {
	ctx, cancel := context.WithTimeout(context.Background(), unsubscribeTime)
	defer cancel()
	for _, uri := range uris {
		// The server knows one subscription to it, not how many Listens share it.
		if len(c.listeners(func(l *listener, _ int64) bool { return slices.Contains(l.URIs, uri) })) == 0 {
			_, _ = c.do(ctx, subscription("resources/unsubscribe", uri))
		}
	}
}

// listeners returns the Listens at work that match; match gets the id of the request, too.
func (c *Client) listeners(match func(l *listener, id int64) bool) (found []*listener) {
	for key, id := range c.listens.Range {
		if l := key.(*listener); match(l, id.(int64)) {
			found = append(found, l)
		}
	}
	return found
}

// holds reports whether a list need not be asked for again. stream is the one that is open now.
func (l *cachedList) holds(stream int64) bool {
	return l.until.IsZero() && l.stream == stream || time.Now().Before(l.until)
}

// list asks for one page after the other, until one has no nextCursor (MCP 2026-07-28, server, pagination).
func list[T any](ctx context.Context, c *Client, method, member string) ([]T, error) {
	c.mu.Lock()
	known, ok := c.lists[method]
	changes := c.changes
	c.mu.Unlock()
	stream := c.stream()
	if ok && known.holds(stream) {
		return slices.Clone(known.items.([]T)), nil
	}
	if c.Server.missing(method) != "" {
		return nil, nil // the server has none
	}
	var items []T
	var left leftOut
	size := 0 // of all pages, in bytes
	page := &listPage[T]{member: member}
	r := &request{method: method}
	seen := make(map[string]bool)
	fresh := cachedList{stream: stream}
	for {
		asked := time.Now()
		raw, err := c.do(ctx, r)
		if err == nil {
			err = r.failed(page.decode(raw))
		}
		if err != nil {
			return items, err
		}
		size += len(raw)
		if len(items) == 0 && len(page.items) > 0 {
			items = page.items // of most lists the only page
		} else {
			items = append(items, page.items...)
		}
		left.count, left.first = left.count+page.left.count, cmp.Or(left.first, page.left.first)
		if page.nextCursor != nil && *page.nextCursor == "" && !c.stateless.Load() {
			page.nextCursor = nil // what some servers of the handshake era end with; since then it is a cursor
		}
		// The list is as fresh as its stalest page.
		until := asked.Add(time.Duration(min(max(page.ttlMs, 0), maxTTL)) * time.Millisecond)
		if fresh.until.IsZero() || until.Before(fresh.until) {
			fresh.until = until
		}
		if page.nextCursor == nil {
			break
		}
		switch {
		case seen[*page.nextCursor]:
			err = &ProtocolError{fmt.Sprintf("the server repeats the cursor %q", *page.nextCursor)}
		case len(seen) == maxPages || len(items) >= maxParts || size > maxListSize:
			err = &ProtocolError{fmt.Sprintf("the list goes on after %d pages, %d items and %d bytes",
				len(seen)+1, len(items), size)}
		}
		if err != nil {
			return items, r.failed(err)
		}
		seen[*page.nextCursor] = true
		r.params = members("cursor", *page.nextCursor)
	}
	c.warnOf(r, left)
	if stream != 0 && !c.stateless.Load() && c.Server.ListChanged(member) { // no server tells of templates
		fresh.until = time.Time{}
	}
	fresh.items = items
	c.mu.Lock()
	defer c.mu.Unlock()
	if fresh.holds(stream) && c.changes == changes { // else the list has changed meanwhile
		c.lists[method] = fresh
		items = slices.Clone(items)
	}
	return items, nil
}

const (
	maxPages        = 10_000                 // of one list
	maxListSize     = 64 << 20               // bytes of all its pages but the last
	maxTTL          = 24 * 60 * 60 * 1000    // what a server can ask to be taken for fresh, in milliseconds: a day
	unsubscribeTime = 500 * time.Millisecond // for all of a Listen that ends
)

// mark keeps the schema of a tool if it marks parameters for headers (MCP 2026-07-28, transports, streamable HTTP,
// custom headers). It reports whether the tool can be used: its marks may be invalid.
func (c *Client) mark(tool *Tool) bool {
	var invalid error
	marked := bytes.Contains(tool.InputSchema, []byte("x-mcp-header")) // most schemas have no mark
	if marked {
		if _, invalid = c.headers.ParamHeaders(tool.InputSchema, nil); invalid != nil {
			c.warn(tool.Name, fmt.Sprintf("the tool %q is left out: %s", tool.Name, invalid))
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if delete(c.marked, tool.Name); marked && invalid == nil {
		c.marked[tool.Name] = tool.InputSchema
	}
	return invalid == nil
}

// ForgetLists drops what is kept of the lists of one kind, tools, prompts or resources, or of all if kind is empty.
func (c *Client) ForgetLists(kind string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changes++
	maps.DeleteFunc(c.lists, func(method string, _ cachedList) bool { return strings.HasPrefix(method, kind) })
}

// changed tells the listeners of a change: in the stateless era the one it was sent to, before it all that want it.
func (c *Client) changed(subscription json.RawMessage, change Change) {
	if change.List != "" {
		c.ForgetLists(change.List)
	}
	id, ok := idNumber(subscription)
	for _, l := range c.listeners(func(l *listener, request int64) bool {
		return ok && request == id || !ok && request == 0 && l.wants(change)
	}) {
		l.changed(change)
	}
}
