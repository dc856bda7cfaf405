// mcp_lists.go - the lists of a server: their pages, and how long they stay fresh.
// Needs: Go 1.25, json, rpc.
// SPDX-License-Identifier: 0BSD

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// A list comes in pages, and may be long, so it is kept as long as it is certain to be fresh. How
// long that is depends on the era. In the stateless era each page says for how many milliseconds
// it may be taken for fresh (MCP 2026-07-28, server, caching). In the handshake era a server that
// declared listChanged tells of each change on a stream, and the list is kept as long as this
// stream is open. ForgetLists names what else ends the keeping.

// Bounds on what a server can make the client do and hold for one list.
const (
	maxPages    = 10_000   // whose cursors are followed
	maxListSize = 64 << 20 // bytes of all pages but the last
)

// maxTTL is the longest time that a list is taken for fresh, in milliseconds: a day. A server that
// asks for more gets no more.
const maxTTL = 24 * 60 * 60 * 1000

// ListTools returns all tools of the server, from all pages. With an error it returns the tools of
// the pages before the error. A list is not asked for again while it is fresh, as the server said,
// or while the server would tell of changes to the list.
func (c *Client) ListTools(ctx context.Context) ([]Tool, error) {
	tools, err := list[Tool](ctx, c, "tools/list", "tools")
	if c.Server.runsTasks() {
		c.lists.setTaskSupport(tools)
	}
	if c.http != nil && c.stateless.Load() {
		tools = slices.DeleteFunc(tools, func(t Tool) bool { return !c.markTool(&t) })
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

// ForgetLists drops the kept lists of one kind: tools, prompts or resources. If kind is empty, it
// drops all kept lists. A program need not call it after what empties them by itself:
//
//   - A notification of a change drops the lists of its kind (Client.Listen, and the streams that
//     tell of changes unasked).
//   - An *Error as the answer to a request that may ask for input, such as a tool call, drops all:
//     what it named may be gone (Client.do).
//   - An error for headers that do not match drops the tools (Client.repair).
//   - A renewed session drops all, as the server may be another one (Client.renew).
func (c *Client) ForgetLists(kind string) { c.lists.forget(kind) }

// listCache keeps lists that need not be asked for again.
type listCache struct {
	mu       sync.Mutex                 // guards the following; never held across I/O or a callback
	byMethod map[string]cachedList      // by the method that asks for the list
	changes  int                        // how often something was forgotten
	marked   map[string]json.RawMessage // schemas that mark parameters for headers, by tool
	support  map[string]string          // Tool.TaskSupport of the last list, by tool
}

// cachedList is a list as the server sent it once.
type cachedList struct {
	items  any       // []Tool, …
	until  time.Time // zero: until the server tells of a change, or its stream ends
	stream int64     // the stream that would tell of a change; see Client.changeStream
}

// isFresh reports whether a list need not be asked for again. stream is the stream that is open
// now. If it is another stream than when the list was sent, a change may have been missed.
func (l *cachedList) isFresh(stream int64) bool {
	if l.until.IsZero() {
		return l.stream == stream
	}
	return time.Now().Before(l.until)
}

// find returns the list that is kept for a method, if it is fresh. changes counts the changes that
// the server has told of so far. The caller hands it to keep.
func (s *listCache) find(method string, stream int64) (items any, changes int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known, ok := s.byMethod[method]
	return known.items, s.changes, ok && known.isFresh(stream)
}

// keep keeps a list that was asked for after find had returned changes, and reports whether it did.
// If the server has told of a change since then, the pages may show the list before or after this
// change.
func (s *listCache) keep(method string, l cachedList, changes int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.changes != changes || !l.isFresh(l.stream) {
		return false
	}
	s.byMethod[method] = l
	return true
}

// forget drops the lists whose method begins with kind.
func (s *listCache) forget(kind string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changes++
	maps.DeleteFunc(s.byMethod, func(method string, _ cachedList) bool {
		return strings.HasPrefix(method, kind)
	})
}

// list returns the list that a method asks for, from the cache if it is fresh. member is the member
// of the result that holds the items. A server without the capability has an empty list.
func list[T any](ctx context.Context, c *Client, method, member string) ([]T, error) {
	stream := c.changeStream()
	known, changes, ok := c.lists.find(method, stream)
	if ok {
		return slices.Clone(known.([]T)), nil
	}
	if c.Server.missing(method) != "" {
		return nil, nil
	}
	pages := &listPages[T]{member: member, seen: make(map[string]bool)}
	r := &request{method: method}
	err := pages.readAll(ctx, c, r)
	if err != nil {
		return pages.items, err
	}
	c.warnLeftOut(r, pages.left)
	fresh := cachedList{items: pages.items, until: pages.until, stream: stream}
	// In the handshake era a server that declared listChanged tells of changes on its stream. No
	// server tells of changes to templates.
	if stream != 0 && !c.stateless.Load() && c.Server.ListChanged(member) {
		fresh.until = time.Time{}
	}
	if c.lists.keep(method, fresh, changes) {
		// The caller may change the list that it gets, and not the list that is kept.
		return slices.Clone(pages.items), nil
	}
	return pages.items, nil
}

// listPages gathers the pages of one list.
type listPages[T any] struct {
	member string
	items  []T
	left   leftOut
	until  time.Time       // the list is as fresh as its stalest page
	size   int             // bytes of the pages so far
	seen   map[string]bool // the cursors that were followed
}

// readAll asks for one page after the other, until one has no nextCursor (MCP 2026-07-28, server,
// pagination).
func (p *listPages[T]) readAll(ctx context.Context, c *Client, r *request) error {
	page := &listPage[T]{member: p.member}
	r.result = page
	for {
		sent := time.Now()
		raw, err := c.do(ctx, r)
		if err != nil {
			return err
		}
		if page.err != nil {
			return r.wrap(page.err)
		}
		p.addPage(page, len(raw), sent)
		// Some servers of the handshake era end with an empty cursor. In the stateless era an empty
		// cursor is a cursor like any other.
		isLast := page.nextCursor == nil || *page.nextCursor == "" && !c.stateless.Load()
		if isLast {
			return nil
		}
		err = p.follow(*page.nextCursor)
		if err != nil {
			return r.wrap(err)
		}
		r.params = members("cursor", *page.nextCursor)
	}
}

// addPage adds a page. size is the length of its text, and sent the time of the request for it.
func (p *listPages[T]) addPage(page *listPage[T], size int, sent time.Time) {
	p.size += size
	if len(p.items) == 0 && len(page.items) > 0 {
		// Most lists have one page, whose items need not be copied. The next page is decoded into
		// new memory.
		p.items = page.items
	} else {
		p.items = append(p.items, page.items...)
	}
	if p.left.count == 0 {
		p.left.first = page.left.first
	}
	p.left.count += page.left.count
	ttl := min(max(page.ttlMs, 0), maxTTL)
	until := sent.Add(time.Duration(ttl) * time.Millisecond)
	if p.until.IsZero() || until.Before(p.until) {
		p.until = until
	}
}

// follow notes a cursor. It returns an error if the pages go in a circle, because the server
// repeats a cursor, or if they go on and on. ListTools and its likes then return the tools of the
// pages that were read, together with the error.
func (p *listPages[T]) follow(cursor string) error {
	if p.seen[cursor] {
		return &ProtocolError{fmt.Sprintf("the server repeats the cursor %q", cursor)}
	}
	if len(p.seen) == maxPages || len(p.items) >= maxParts || p.size > maxListSize {
		return &ProtocolError{fmt.Sprintf("the list goes on after %d pages, %d items and %d bytes",
			len(p.seen)+1, len(p.items), p.size)}
	}
	p.seen[cursor] = true
	return nil
}

// markTool keeps the schema of a tool if it marks parameters that HTTP repeats in headers (MCP
// 2026-07-28, transports, streamable HTTP, custom headers). It reports whether the tool can be
// used: a tool with invalid marks is left out, as the protocol demands.
func (c *Client) markTool(tool *Tool) bool {
	// Most schemas have no mark. A search in the text shows this without parsing the schema.
	if !bytes.Contains(tool.InputSchema, []byte("x-mcp-header")) {
		c.lists.setMarked(tool.Name, nil)
		return true
	}
	_, err := c.http.ParamHeaders(tool.InputSchema, nil)
	if err != nil {
		c.lists.setMarked(tool.Name, nil)
		c.warnings.warn(tool.Name, fmt.Sprintf("the tool %q is left out: %s", tool.Name, err))
		return false
	}
	c.lists.setMarked(tool.Name, tool.InputSchema)
	return true
}

// setMarked keeps the schema of a tool, or notes with nil that the schema has no marks.
func (s *listCache) setMarked(tool string, schema json.RawMessage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if schema == nil {
		delete(s.marked, tool)
	} else {
		s.marked[tool] = schema
	}
}

// markedSchema returns the schema of a tool if the schema has marks, else nil.
func (s *listCache) markedSchema(tool string) json.RawMessage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.marked[tool]
}

// setTaskSupport notes of the tools of a list whether they run as tasks.
func (s *listCache) setTaskSupport(tools []Tool) {
	support := make(map[string]string)
	for i := range tools {
		support[tools[i].Name] = tools[i].TaskSupport()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.support = support
}

// taskSupport returns whether a tool runs as a task, if the tool was listed.
func (s *listCache) taskSupport(tool string) (support string, isListed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	support, isListed = s.support[tool]
	return support, isListed
}
