// mcp_connect.go - how a connection begins: the probe, the handshake, a session begun anew.
// Needs: Go 1.25, json, rpc.
// SPDX-License-Identifier: 0BSD

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// probeTime bounds the wait for the answer to server/discover, before a handshake begins. Some
// servers of the handshake era never answer a method that they do not know.
const probeTime = 3 * time.Second

// Connect begins to speak MCP over the transport that start starts, and owns it: a failed Connect
// has closed it. ctx bounds the beginning; the connection lives until Close. Command.Start and
// HTTP.Start fit start.
//
// With a revision in o.Protocol the server is started once and spoken to in that revision. Without
// one, Connect finds out what the server speaks: see probe. On stdio the probe itself can do harm.
// Some servers end when a request comes before initialize, and some then refuse the handshake. So a
// server that failed after a probe is started a second time, for a handshake alone:
//
//	the first start                              what is done
//	-----------------------------------------    -----------------------------------------
//	succeeded                                    return the connection
//	failed with a given revision                 return the error
//	failed over HTTP                             return the error: no request upsets the next
//	failed because ctx ended                     return the error
//	failed finally, see isFinal                  return the error: no handshake would help
//	the server ended before it read anything     return the error: it was not the probe
//	failed in any other way                      start a second time
//
//	the second start                             what is done
//	-----------------------------------------    -----------------------------------------
//	succeeded                                    return the connection, with SkipProbe
//	failed for the same reason                   return its error
//	failed for another reason                    return both errors
func Connect(
	ctx context.Context,
	start func(context.Context) (Transport, error),
	o *ClientOptions,
) (*Client, error) {
	options := *cmp.Or(o, new(ClientOptions))
	first, err := newClient(ctx, start, options)
	if err != nil {
		return nil, err
	}
	err = first.begin(ctx)
	if err == nil {
		return first, nil
	}
	first.Close()
	err = first.strays.explain(err)
	if options.Protocol != "" || !first.mayBeUpset(ctx, err) {
		return nil, err
	}
	// With a revision given, Connect starts the server only once, so this does not go on for ever.
	options.Protocol = NewestHandshake()
	second, secondErr := Connect(ctx, start, &options)
	if secondErr == nil {
		second.SkipProbe = true
		return second, nil
	}
	_, reason, _ := strings.Cut(err.Error(), ": ")
	if strings.HasSuffix(secondErr.Error(), reason) {
		return nil, secondErr
	}
	const both = "%w (at the second start, without server/discover; the first, with it: %w)"
	return nil, fmt.Errorf(both, secondErr, err)
}

// mayBeUpset reports whether the beginning may have failed because of the probe: the last row of
// the first table of Connect.
func (c *Client) mayBeUpset(ctx context.Context, err error) bool {
	if c.http != nil || ctx.Err() != nil || isFinal(err) {
		return false
	}
	var ended interface{ Unread() bool }
	readNothing := errors.As(err, &ended) && ended.Unread()
	return !readNothing
}

// NewestHandshake returns the newest revision that begins with a handshake. Offered as
// ClientOptions.Protocol, it connects without a probe.
func NewestHandshake() string { return Revisions()[1] }

// newClient starts the server. Nothing is sent yet.
func newClient(
	ctx context.Context,
	start func(context.Context) (Transport, error),
	options ClientOptions,
) (*Client, error) {
	options.setDefaults()
	c := &Client{options: options}
	c.sessions.renewing = make(chan struct{}, 1)
	c.lists.byMethod = make(map[string]cachedList)
	c.lists.marked = make(map[string]json.RawMessage)
	c.listeners.working = make(map[*listener]int64)
	c.tasks.waiting = make(map[*taskWait]bool)
	c.visits.byID = make(map[string]context.CancelCauseFunc)
	c.strays.tell = options.Skipped
	c.warnings.tell = options.Warn
	c.warnings.last = make(map[string]string)
	err := c.declare()
	if err != nil {
		return nil, err
	}
	transport, err := start(ctx)
	if err != nil {
		return nil, err
	}
	overHTTP, ok := transport.(httpTransport)
	if ok {
		c.http = overHTTP
		overHTTP.OnStreamEnd(c.streamEnded)
	}
	c.conn = NewConn(transport, Handler{
		Request: c.serverRequest,
		// A ping is answered as a sign of life, however many questions wait for a person.
		Immediate:    func(method string) bool { return method == "ping" },
		Notification: c.notification,
		Abandoned:    sendCancelled,
		Skipped:      c.strays.skipped,
		Trace:        options.Trace,
	})
	c.inFlight.start(c.conn, options)
	return c, nil
}

func (o *ClientOptions) setDefaults() {
	o.Info.Name = cmp.Or(o.Info.Name, "mcpagent")
	o.Info.Version = cmp.Or(o.Info.Version, "0")
	o.Timeout = cmp.Or(o.Timeout, 5*time.Minute)
	o.MaxTimeout = cmp.Or(o.MaxTimeout, max(o.Timeout, time.Hour))
	o.Timeout = min(o.Timeout, o.MaxTimeout)
	o.LogLevel = cmp.Or(o.LogLevel, "info")
	o.MaxQuestions = cmp.Or(o.MaxQuestions, 50)
}

// declare sets the capabilities of the client, and the members of _meta. In the handshake era the
// client declares its capabilities once, in the stateless era in the _meta of each request (MCP
// 2026-07-28, basic, _meta).
func (c *Client) declare() error {
	capabilities := make(map[string]any)
	for _, responder := range c.options.Answers {
		capabilities[responder.Capability] = cmp.Or[any](responder.Declare, struct{}{})
	}
	var err error
	c.declared, err = json.Marshal(capabilities)
	if err != nil {
		return err
	}
	// Only the stateless era has extensions.
	extensions := map[string]any{tasksExtension: struct{}{}}
	maps.Copy(extensions, c.options.Extensions)
	capabilities["extensions"] = extensions
	stateless, err := json.Marshal(capabilities)
	if err != nil {
		return err
	}
	c.meta = members(
		"io.modelcontextprotocol/protocolVersion", statelessRevision,
		"io.modelcontextprotocol/clientInfo", c.options.Info,
		"io.modelcontextprotocol/clientCapabilities", json.RawMessage(stateless))
	if c.options.Log != nil {
		level := members("io.modelcontextprotocol/logLevel", c.options.LogLevel)
		c.meta = joinMembers(c.meta, level)
	}
	return nil
}

// begin agrees with the server on a revision.
func (c *Client) begin(ctx context.Context) error {
	switch c.options.Protocol {
	case "":
		return c.probe(ctx)
	case statelessRevision:
		server, err := c.discover(ctx)
		if err != nil && ctx.Err() == nil && !isFinal(err) {
			return fmt.Errorf("the server does not speak %s: %w", statelessRevision, err)
		}
		if err != nil {
			return err
		}
		c.useStateless(server)
		return nil
	default:
		return c.handshake(ctx, c.options.Protocol)
	}
}

// useStateless makes the connection one of the stateless era. server is the answer to
// server/discover.
func (c *Client) useStateless(server *ServerInfo) {
	c.Server = *server
	c.stateless.Store(true)
}

// probe finds out the era of the server. It asks server/discover, which only the stateless era
// knows (MCP 2026-07-28, transports, stdio, backward compatibility). The table has a row for each
// answer to it, and to the handshake that may follow.
//
//	server/discover          initialize                       outcome
//	---------------------    -----------------------------    ------------------------------
//	in 3 s:
//	  it speaks 2026-07-28   is not sent                      the stateless era
//	  a final refusal        is not sent                      this refusal
//	  ctx or conn. ended     is not sent                      this error
//	  any other refusal      agreed                           the handshake era
//	  any other refusal      a final refusal of the server    the refusal of server/discover
//	  any other refusal      any other failure                the failure of initialize
//	not in 3 s               agreed                           the handshake era
//	then in 3 s more:
//	  it speaks 2026-07-28   refused by the server            the stateless era
//	  a final refusal        refused by the server            the refusal of server/discover
//	  any other refusal      refused by the server            the failure of initialize
//	not at all               refused by the server            the failure of initialize
//	any                      any other failure                the failure of initialize
//
// isFinal knows the final refusals. Where initialize is refused in a way that only a stateless
// server has, the refusal of server/discover tells more of the cause. Where a slow server
// of both eras has agreed to a handshake, its late answer to server/discover no longer counts: the
// server may keep to the revision of initialize.
func (c *Client) probe(ctx context.Context) error {
	p := c.startProbing(ctx)
	defer p.cancel()
	if p.answersWithin(probeTime) {
		return c.afterAnswer(ctx, p)
	}
	return c.afterSilence(ctx, p)
}

// afterAnswer follows the upper rows of probe's table: p has its outcome.
func (c *Client) afterAnswer(ctx context.Context, p *probing) error {
	if p.err == nil {
		c.useStateless(p.server)
		return nil
	}
	ended := ctx.Err() != nil || errors.Is(p.err, ErrClosed)
	if ended || isFinal(p.err) {
		return p.err
	}
	err := c.handshake(ctx, NewestHandshake())
	if err == nil {
		c.Probed = true
		return nil
	}
	if errors.As(err, new(*Error)) && isFinal(err) {
		return p.err
	}
	return err
}

// afterSilence follows the lower rows of probe's table: the server has not answered in time.
func (c *Client) afterSilence(ctx context.Context, p *probing) error {
	err := c.handshake(ctx, NewestHandshake())
	if err == nil {
		p.cancel()
		c.Probed = true
		// The handshake has given the server more time for its answer to server/discover.
		c.SkipProbe = errors.Is(p.err, context.Canceled)
		return nil
	}
	isRefused := errors.As(err, new(*Error))
	if !isRefused || !p.answersWithin(probeTime) {
		return err
	}
	if p.err == nil {
		c.useStateless(p.server)
		return nil
	}
	if isFinal(p.err) {
		return p.err
	}
	return err
}

// probing is a server/discover that a goroutine waits for, while a handshake may be under way.
type probing struct {
	stop   context.CancelFunc
	ended  chan struct{} // closed when the next two are set
	server *ServerInfo
	err    error
}

// startProbing begins to ask server/discover. The goroutine ends when the server has answered, or
// when cancel is called. The caller must call cancel in any case, which waits for that end.
func (c *Client) startProbing(ctx context.Context) *probing {
	ctx, stop := context.WithCancel(ctx)
	p := &probing{stop: stop, ended: make(chan struct{})}
	go func() {
		defer close(p.ended)
		p.server, p.err = c.discover(ctx)
	}()
	return p
}

// answersWithin waits for the outcome, and reports whether it came in time.
func (p *probing) answersWithin(limit time.Duration) bool {
	isOver := make(chan struct{})
	timer := AfterLimit(limit, func() { close(isOver) })
	defer timer.Stop()
	select {
	case <-p.ended:
		return true
	case <-isOver:
		return false
	}
}

// cancel ends the wait for the server, and returns when the outcome is set. If the server had not
// answered before, the error is context.Canceled.
func (p *probing) cancel() {
	p.stop()
	<-p.ended
}

// discover asks the server which revisions it speaks (MCP 2026-07-28, server, discovery).
func (c *Client) discover(ctx context.Context) (*ServerInfo, error) {
	r := &request{method: "server/discover"}
	raw, err := c.send(ctx, r)
	var refusal *Error
	if errors.As(err, &refusal) && refusal.Code == CodeUnsupportedVersion {
		var data struct{ Supported []string }
		_ = json.Unmarshal(refusal.Data, &data)
		err = checkRevisions(data.Supported)
		if err != nil && len(data.Supported) > 0 {
			return nil, r.wrap(err)
		}
		// Some servers list the revision that they have just refused, and accept it the second
		// time.
		raw, err = c.send(ctx, r)
	}
	if err != nil {
		return nil, r.wrap(err)
	}
	var result struct {
		ServerInfo
		SupportedVersions []string
		Meta              struct {
			Implementation Implementation `json:"io.modelcontextprotocol/serverInfo"`
		} `json:"_meta"`
	}
	// A member of another type counts as absent: encoding/json decodes the others all the same.
	_ = json.Unmarshal(raw, &result)
	err = checkRevisions(result.SupportedVersions)
	if err != nil {
		return nil, r.wrap(err)
	}
	result.ProtocolVersion = statelessRevision
	result.Implementation = result.Meta.Implementation
	return &result.ServerInfo, nil
}

// checkRevisions returns nil if a server speaks our stateless revision. After a *ProtocolError no
// revision is left to try; any other error means that a handshake may succeed.
func checkRevisions(supported []string) error {
	if slices.Contains(supported, statelessRevision) {
		return nil
	}
	if len(supported) == 0 {
		// Some servers of the handshake era answer {} to any request.
		return errors.New("the answer has no supportedVersions")
	}
	reason := fmt.Sprintf("the server speaks %s; this client speaks %s",
		strings.Join(supported, ", "), strings.Join(Revisions(), ", "))
	isOurs := func(revision string) bool { return slices.Contains(Revisions(), revision) }
	if slices.ContainsFunc(supported, isOurs) {
		return errors.New(reason)
	}
	return &ProtocolError{reason}
}

// isFinal reports whether an error of discover or handshake leaves no other revision to try. A
// server that breaks the protocol is given up. A request that HTTP could not authorise, whose error
// has the method Status, is not helped by another request. Three codes come only from servers of
// the stateless era, which refuse any handshake.
func isFinal(err error) bool {
	var unauthorised interface{ Status() int }
	if errors.As(err, new(*ProtocolError)) || errors.As(err, &unauthorised) {
		return true
	}
	var refusal *Error
	if !errors.As(err, &refusal) {
		return false
	}
	statelessCodes := []int64{CodeHeaderMismatch, CodeMissingCapability, CodeUnsupportedVersion}
	return slices.Contains(statelessCodes, refusal.Code)
}

// handshake begins a session of the handshake era (MCP 2025-11-25, basic, lifecycle): a request
// initialize, a notification that its answer was accepted, and the log level if we want a log.
func (c *Client) handshake(ctx context.Context, offer string) error {
	server, err := c.initialize(ctx, offer)
	if err != nil {
		return err
	}
	err = c.conn.Notify(ctx, "notifications/initialized", nil)
	if err != nil {
		return err
	}
	if c.options.Log != nil && server.Capabilities["logging"] != nil {
		// A server that refuses logs as it likes, which is no reason to end the connection.
		level := members("level", c.options.LogLevel)
		_, _ = c.attempt(ctx, &request{method: "logging/setLevel", params: level})
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return c.Err()
}

// initialize offers a revision, and the server answers with the revision that it prefers. Both
// sides exchange identity and capabilities here, once for each session. The first answer of a
// connection becomes c.Server. A session that is begun anew must keep its revision, as other
// goroutines read c.Server at any time.
func (c *Client) initialize(ctx context.Context, offer string) (*ServerInfo, error) {
	r := &request{method: "initialize", params: members(
		"capabilities", c.declared,
		"clientInfo", c.options.Info,
		"protocolVersion", offer)}
	raw, err := c.attempt(ctx, r)
	if err != nil {
		return nil, r.wrap(err)
	}
	var server ServerInfo
	// A member of another type counts as absent.
	_ = json.Unmarshal(raw, &server)
	revision, agreedBefore := server.ProtocolVersion, c.Server.ProtocolVersion
	switch {
	case revision == "":
		return nil, r.wrap(errors.New("the answer has no protocolVersion"))
	case !slices.Contains(Revisions()[1:], revision):
		return nil, r.wrap(&ProtocolError{fmt.Sprintf(
			"the server wants protocol revision %q; this client speaks %s",
			revision, strings.Join(Revisions(), ", "))})
	case agreedBefore == "":
		c.Server = server
	case agreedBefore != revision:
		return nil, r.wrap(&ProtocolError{fmt.Sprintf(
			"the server has changed from revision %s to %s", agreedBefore, revision)})
	}
	return &server, nil
}

// sessions counts the sessions of a connection over HTTP. A request that finds its session expired
// compares the number of the session in which it was sent with the current number, so that many
// such requests begin one new session together.
type sessions struct {
	current  atomic.Int64  // counts the sessions that followed the first
	renewing chan struct{} // one slot, taken by whoever begins a session

	mu       sync.Mutex // guards the following; never held across I/O or a callback
	expiries int        // streams in a row whose session had expired soon after the one before
	lastAt   time.Time  // of the last of them
}

// A server may forget each session as soon as its stream ends, and end the stream at once. So a
// session that only the stream of notifications asks for is begun a few times in a row, and then no
// more: the next request of a caller begins one.
const (
	maxExpiries   = 3
	steadySession = 30 * time.Second // a session that was known for so long did not expire at once
)

// mayRenewForStream counts a stream whose session had expired, and reports whether another session
// is worth a try.
func (s *sessions) mayRenewForStream() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if now.Sub(s.lastAt) > steadySession {
		s.expiries = 0
	}
	s.lastAt = now
	s.expiries++
	return s.expiries <= maxExpiries
}

// renew begins a new session in place of an expired session, which the server has dropped, or which
// ended when the server was started again (MCP 2025-11-25, transports, session management). Where
// several requests find the same session expired, the first begins a new session, and the others
// wait for it.
func (c *Client) renew(ctx context.Context, expired int64) error {
	select {
	case c.sessions.renewing <- struct{}{}:
		defer func() { <-c.sessions.renewing }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if c.sessions.current.Load() != expired {
		return nil
	}
	err := c.handshake(ctx, c.Server.ProtocolVersion)
	if err != nil {
		return fmt.Errorf("the session has expired, and a new one could not be begun: %w", err)
	}
	number := c.sessions.current.Add(1) + 1
	c.warnings.warn("", fmt.Sprintf("its session had expired, and session %d was begun", number))
	c.ForgetLists("")
	// Subscriptions ended with the session. If the server refuses a subscription now, it sends no
	// more changes of that resource, and the Listen waits on.
	for _, l := range c.listeners.all() {
		for _, uri := range l.URIs {
			_, _ = c.attempt(ctx, uriRequest("resources/subscribe", uri))
		}
	}
	return nil
}

// streamEnded runs, on a goroutine of the transport, when the server has ended the stream of its
// notifications. If the session has expired, a new session is begun, by requests that each have
// their time limit. Otherwise nobody tells of changes any more, which is worth a warning.
func (c *Client) streamEnded(err error) {
	switch {
	case !isSessionExpired(err):
	case c.sessions.mayRenewForStream():
		err = c.renew(context.Background(), c.sessions.current.Load())
	default:
		err = fmt.Errorf("each session that is begun expires at once: %w", err)
	}
	if err != nil && c.Err() == nil && c.options.Warn != nil {
		c.options.Warn(fmt.Sprintf("the server no longer tells of changes: %v", err))
	}
}
