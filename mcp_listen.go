// mcp_listen.go - what a server tells without being asked: changes, progress, its log.
// Needs: Go 1.25, json, rpc.
// SPDX-License-Identifier: 0BSD

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// A server tells of six things unasked, in notifications: a list or a resource has changed, a call
// has made progress, the server's log has a new message, the server has cancelled a request, it has
// got what it wanted of the user in a browser (mcp_urls.go), a task has another state
// (mcp_tasks.go). A program that wants to know of changes calls Listen, which returns when it
// listens no longer. A change also drops the kept lists of its kind: see ForgetLists for all that
// does.

// unsubscribeTime bounds the requests that end the subscriptions of a Listen, all together.
const unsubscribeTime = 500 * time.Millisecond

// acknowledgeTime is how long a server may take to acknowledge a subscription before that is worth
// a warning.
const acknowledgeTime = 10 * time.Second

// errUnsubscribed is the error of a Listen of the stateless era that the server has cancelled.
var errUnsubscribed = &ProtocolError{"the server has ended the subscription"}

// Subscription names the changes that a Listen waits for.
type Subscription struct {
	Tools     bool     `json:"toolsListChanged,omitempty"`
	Prompts   bool     `json:"promptsListChanged,omitempty"`
	Resources bool     `json:"resourcesListChanged,omitempty"`
	URIs      []string `json:"resourceSubscriptions,omitempty"` // of resources
}

// Change is one of the changes subscribed to.
type Change struct {
	List string // tools, prompts or resources; empty if the contents of a resource changed
	URI  string // of this resource

	// Refused reports that nothing has changed: the server has not agreed to tell of these changes.
	// Whoever takes that for a change reads the list or the resource once more than needed.
	Refused bool `json:",omitempty"`
}

// listener is one Listen that has not returned.
type listener struct {
	Subscription
	changed func(Change)

	// heard is closed, by the reader of the connection, when the server has acknowledged the
	// subscription, or has told of a change without that. It is not used in the handshake era, and
	// nil for a task, which has no changed either.
	heard chan struct{}

	// isAcknowledged reports whether the server has acknowledged the subscription. Only the reader
	// uses it.
	isAcknowledged bool
}

// hear notes a sign of the subscription. Only the reader of the connection calls it.
func (l *listener) hear() {
	select {
	case <-l.heard:
	default:
		close(l.heard)
	}
}

// refused returns what the subscription names beyond what the server has agreed to.
func (l *listener) refused(agreed Subscription) []Change {
	var refused []Change
	for _, list := range []struct {
		name            string
		isAsked, isTold bool
	}{
		{"tools", l.Tools, agreed.Tools},
		{"prompts", l.Prompts, agreed.Prompts},
		{"resources", l.Resources, agreed.Resources},
	} {
		if list.isAsked && !list.isTold {
			refused = append(refused, Change{List: list.name, Refused: true})
		}
	}
	for _, uri := range l.URIs {
		if !slices.Contains(agreed.URIs, uri) {
			refused = append(refused, Change{URI: uri, Refused: true})
		}
	}
	return refused
}

// wants reports whether a change was subscribed to. If the subscription has a URI, it wants the
// changes of all URIs: a server may also tell of resources below the named resource.
func (l *listener) wants(change Change) bool {
	switch change.List {
	case "tools":
		return l.Tools
	case "prompts":
		return l.Prompts
	case "resources":
		return l.Resources
	}
	return len(l.URIs) > 0
}

// listeners are the Listens of a connection that have not returned.
type listeners struct {
	mu sync.Mutex // guards the following; never held while a listener is told of a change

	// working has the id of each Listen's request. It is 0 in the handshake era, where a Listen is
	// not a request.
	working map[*listener]int64
}

// setRequest adds a listener, or gives it the id of the request that was sent for it last.
func (s *listeners) setRequest(l *listener, id int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.working[l] = id
}

func (s *listeners) remove(l *listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.working, l)
}

// ofRequest returns the listeners whose request has this id. With the id 0 it returns the listeners
// that have no request.
func (s *listeners) ofRequest(id int64) []*listener {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []*listener
	for l, requestID := range s.working {
		if requestID == id {
			found = append(found, l)
		}
	}
	return found
}

func (s *listeners) all() []*listener {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []*listener
	for l := range s.working {
		found = append(found, l)
	}
	return found
}

// Listen tells of changes until ctx ends, and returns an error with its cause, or until the server
// ends the subscription in good order, and returns nil. changed runs on the reader of the
// connection: it must return soon and must not call the Client.
//
// In the stateless era the server first acknowledges what it will tell of. What it leaves out comes
// as a Change that is Refused, and the rest goes on. A server that acknowledges nothing in time may
// tell of changes all the same, so that Listen waits on. Both are worth a warning
// (ClientOptions.Warn). No list is kept for longer than its server said, whether it tells or not.
func (c *Client) Listen(ctx context.Context, s Subscription, changed func(Change)) error {
	missing := c.Server.missing("resources/subscribe")
	if missing != "" && len(s.URIs) > 0 {
		return fmt.Errorf("resources/subscribe: %w", &NotDeclaredError{missing})
	}
	l := &listener{Subscription: s, changed: changed, heard: make(chan struct{})}
	if c.stateless.Load() {
		return c.listenByRequest(ctx, l)
	}
	return c.listenByURI(ctx, l)
}

// listenByRequest sends one request that lasts as long as the subscription. The id of the request
// is in every notification of the subscription (MCP 2026-07-28, patterns, subscriptions).
func (c *Client) listenByRequest(ctx context.Context, l *listener) error {
	defer c.listeners.remove(l)
	ended := make(chan struct{})
	var work sync.WaitGroup
	defer work.Wait()
	defer close(ended)
	work.Go(func() {
		select {
		case <-l.heard:
		case <-ended:
		case <-time.After(acknowledgeTime):
			c.warnings.warn("subscriptions/listen", fmt.Sprintf("it has not acknowledged a "+
				"subscription within %s, and may not tell of changes", acknowledgeTime))
		}
	})
	_, err := c.do(ctx, &request{
		method:   "subscriptions/listen",
		params:   members("notifications", l.Subscription),
		listener: l,
	})
	return err
}

// acknowledged takes what the server has agreed to tell of, and tells the listener of the rest (MCP
// 2026-07-28, patterns, subscriptions, acknowledgment). Only the first acknowledgement counts. It
// does so also after a change, which a server with several threads may have told of before.
func (c *Client) acknowledged(subscription json.RawMessage, agreed Subscription) {
	id, ok := IDNumber(subscription)
	if !ok || id == 0 {
		return
	}
	for _, l := range c.listeners.ofRequest(id) {
		if l.changed == nil || l.isAcknowledged {
			continue
		}
		l.isAcknowledged = true
		l.hear()
		var names []string
		for _, change := range l.refused(agreed) {
			l.changed(change)
			if change.List != "" {
				names = append(names, "its "+change.List)
			} else {
				names = append(names, fmt.Sprintf("%q", change.URI))
			}
		}
		if len(names) > 0 {
			c.warnings.warn("subscriptions/listen",
				"it does not agree to tell of changes to "+strings.Join(names, ", "))
		}
	}
}

// listenByURI subscribes to the contents of resources, one by one. In the handshake era a server
// tells of changes to its lists without a subscription (MCP 2025-11-25, server, resources,
// subscriptions).
func (c *Client) listenByURI(ctx context.Context, l *listener) error {
	c.listeners.setRequest(l, 0)
	subscribed := 0
	defer func() {
		c.listeners.remove(l)
		c.unsubscribe(l.URIs[:subscribed])
	}()
	for _, uri := range l.URIs {
		_, err := c.do(ctx, uriRequest("resources/subscribe", uri))
		if err != nil {
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

// unsubscribe ends subscriptions to resources. It takes little time, as the ctx of the Listen has
// ended, and reports no error: notifications that a server goes on sending find no listener. The
// server knows one subscription to a resource, not how many Listens share it, so the last of them
// ends it.
func (c *Client) unsubscribe(uris []string) {
	ctx, cancel := context.WithTimeout(context.Background(), unsubscribeTime)
	defer cancel()
	for _, uri := range uris {
		sharesIt := func(l *listener) bool { return slices.Contains(l.URIs, uri) }
		if !slices.ContainsFunc(c.listeners.all(), sharesIt) {
			_, _ = c.do(ctx, uriRequest("resources/unsubscribe", uri))
		}
	}
}

// notification takes a notification of the server. It runs on the reader, in wire order, so it
// never waits and never sends.
func (c *Client) notification(conn *Conn, method string, params json.RawMessage) {
	// One type serves all notifications: each method has some of these members.
	var p struct {
		Token     json.RawMessage `json:"progressToken"`
		RequestID json.RawMessage
		URI       string
		VisitID   string `json:"elicitationId"`
		Agreed    struct {
			Subscription
			TaskIDs json.RawMessage
		} `json:"notifications"`
		Meta struct {
			Subscription json.RawMessage `json:"io.modelcontextprotocol/subscriptionId"`
		} `json:"_meta"`
		Progress
		LogMessage
	}
	if len(params) > 0 && json.Unmarshal(params, &p) != nil {
		return
	}
	switch method {
	case "notifications/progress":
		c.inFlight.reportProgress(p.Token, p.Progress)
	case "notifications/message":
		if c.options.Log != nil {
			c.options.Log(p.LogMessage)
		}
	case "notifications/cancelled":
		c.cancelled(conn, p.RequestID)
	case "notifications/tools/list_changed":
		c.changed(p.Meta.Subscription, Change{List: "tools"})
	case "notifications/prompts/list_changed":
		c.changed(p.Meta.Subscription, Change{List: "prompts"})
	case "notifications/resources/list_changed":
		c.changed(p.Meta.Subscription, Change{List: "resources"})
	case "notifications/elicitation/complete":
		c.visits.complete(p.VisitID)
	case "notifications/tasks", "notifications/tasks/status":
		// One that cannot be read says nothing of the task: the polls go on.
		state, err := readTask(params)
		if err != nil {
			c.warnings.warn(method, "what cannot be read is left out: "+err.Error())
			return
		}
		c.tasks.tell(state)
	case "notifications/subscriptions/acknowledged":
		var ids []string
		_ = json.Unmarshal(p.Agreed.TaskIDs, &ids)
		c.tasks.acknowledge(ids)
		c.acknowledged(p.Meta.Subscription, p.Agreed.Subscription)
	case "notifications/resources/updated":
		c.changed(p.Meta.Subscription, Change{URI: p.URI})
	}
}

// cancelled takes the server's word that it no longer waits for our answer to its request, or, in
// the stateless era, that it ends a Listen: the one request of ours that a server may cancel.
func (c *Client) cancelled(conn *Conn, requestID json.RawMessage) {
	conn.CancelRequest(requestID)
	id, ok := IDNumber(requestID)
	if ok && id != 0 && len(c.listeners.ofRequest(id)) > 0 {
		conn.Cancel(id, errUnsubscribed)
	}
}

// changed forgets a list that has changed, and tells the listeners. In the stateless era a
// notification names the request of one Listen. In the handshake era it names
// no request, and goes to every listener that wants the change.
func (c *Client) changed(subscription json.RawMessage, change Change) {
	if change.List != "" {
		c.ForgetLists(change.List)
	}
	id, ok := IDNumber(subscription)
	if ok {
		for _, l := range c.listeners.ofRequest(id) {
			if l.changed != nil {
				l.hear()
				l.changed(change)
			}
		}
		return
	}
	for _, l := range c.listeners.ofRequest(0) {
		if l.wants(change) {
			l.changed(change)
		}
	}
}
