// transport_http.go - Streamable HTTP, of every revision.
// Needs: Go 1.25, json, rpc.
// SPDX-License-Identifier: 0BSD

package main

import (
	"context"
	"errors"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
)

// HTTP describes a server that is reached over HTTP. Start and StartSSE make a transport to it.
type HTTP struct {
	URL        string       // the MCP endpoint: http:// or https://, a host, and mostly a path
	Header     http.Header  // sent with every request
	Client     *http.Client // CheckRedirect is not used; a Timeout would end streams
	MaxMessage int          // bytes of one message from the server; 64 MiB if 0
	ownClient  bool         // nobody else uses the connections of Client
}

// String returns the URL without its user and its query, which may be secret.
func (h HTTP) String() string {
	u, err := url.Parse(h.URL)
	if err != nil {
		return "the server's URL"
	}
	return u.Scheme + "://" + u.Host + u.Path
}

// checkURL returns what is wrong with a URL that nothing can be sent to. What package net/http says
// of such a one, "unsupported protocol scheme", does not say what to write.
func (h HTTP) checkURL() error {
	scheme, _, _ := strings.Cut(strings.ToLower(h.URL), "://")
	isHTTP := scheme == "http" || scheme == "https"
	u, err := url.Parse(h.URL)
	hasNoHost := err == nil && u.Host == ""
	if !isHTTP || hasNoHost {
		// It does not quote the URL, which can hold a secret.
		return errors.New("the server's URL must begin with http:// or https:// and name a host")
	}
	return nil
}

// Start returns a *StreamableHTTP, for Connect. Nothing is sent yet. Without a Client, the
// transport makes one of its own, and closes its connections in the end.
func (h HTTP) Start(context.Context) (Transport, error) {
	err := h.checkURL()
	if err != nil {
		return nil, err
	}
	t := &StreamableHTTP{server: h.withDefaults(), incoming: make(chan []byte)}
	t.life, t.end = context.WithCancelCause(context.Background())
	t.readers.New = func() any { return new(eventReader) }
	t.header = maps.Clone(t.server.Header)
	t.header.Set("Content-Type", "application/json")
	t.header.Set("Accept", "application/json, text/event-stream")
	return t, nil
}

// StreamableHTTP carries messages over Streamable HTTP. Each message is a POST of its own. Its
// response is the answer as JSON, or a stream of server-sent events with the answer in one of them.
//
// The two eras of the protocol differ in what is around a message:
//
//   - A message with a Revision is of the stateless era (MCP 2026-07-28, transports, streamable
//     HTTP). Its headers repeat what is in it, and closing its stream cancels it.
//   - Any other message is of the handshake era (MCP 2025-11-25, transports, streamable HTTP). That
//     has sessions, a GET stream for what the server says unasked, and streams that are resumed.
//
// Each Write runs on the goroutine of its caller, and the GET stream on one of its own. All of them
// hand what they read to the one goroutine that calls Read. A message that nobody reads holds up
// its own stream alone, until its sender's ctx or the transport ends.
type StreamableHTTP struct {
	lifetime
	server   HTTP        // with its defaults
	header   http.Header // of every POST
	incoming chan []byte // the messages for Read; closed when nothing is left
	readers  sync.Pool   // of *eventReader that are not in use, for their buffers

	onStreamEnd func(error) // see OnStreamEnd

	mu      sync.Mutex   // guards the following; never held across I/O
	session *httpSession // nil before the answer to initialize, and in the stateless era
	next    *httpSession // replaces session once the server accepts that the client is ready
	streams int64        // GET streams opened so far
}

// Read returns the next message of any of the streams, until Close.
func (t *StreamableHTTP) Read() ([]byte, error) {
	message, open := <-t.incoming
	if !open {
		return nil, net.ErrClosed
	}
	return message, nil
}

// Write sends one message. For a request it returns when Read has been given the answer, and all
// that came before the answer on the same stream. When ctx ends earlier, the stream is closed.
//
// The error is an *HTTPError or the cause of ctx. A JSON-RPC error in the response is an answer,
// which Read returns, whatever the status. An *HTTPError wraps it in three cases: the status is 401
// or 403; the error says that the session has expired; it refuses initialize with a status 4xx.
func (t *StreamableHTTP) Write(ctx context.Context, m Outgoing) error {
	if !t.enter() {
		return net.ErrClosed
	}
	defer t.work.Done()
	p := t.prepare(m)
	if m.Method == "notifications/cancelled" && p.session == nil {
		// In the stateless era the server knows: the stream of the cancelled request was closed.
		return nil
	}

	// The HTTP request ends with its sender's ctx, and with the transport. But Conn ends the
	// sender's ctx also when the answer has come. The rest of the response must then be read all
	// the same, as only a connection whose response was read to its end is used again
	// (TestHTTPConnections).
	sender := ctx
	ctx, p.cancel = context.WithCancel(withValues{t.life, sender})
	stop := context.AfterFunc(sender, func() {
		isAnswered := context.Cause(sender) == ErrAnswered && p.answered.Load()
		if !isAnswered {
			p.cancel()
		}
	})
	defer stop()

	err := t.send(ctx, p)
	if err != nil && ctx.Err() != nil {
		// The request was ended from here: by its sender, or by Close.
		err = context.Cause(ctx)
		if sender.Err() != nil {
			err = context.Cause(sender)
		}
	}
	if !p.hasTail {
		p.cancel()
	}
	return err
}

// send posts a message. Around the one that tells the server that the client is ready, it opens the
// GET stream and changes to the new session.
func (t *StreamableHTTP) send(ctx context.Context, p *httpPost) error {
	if p.Method != "notifications/initialized" || p.session == nil {
		return t.post(ctx, p)
	}
	t.openGetStream(ctx, p.session)
	err := t.post(ctx, p)
	t.endHandshake(p.session, err == nil)
	return err
}

// Close ends every stream, and tells the server that the session is over.
func (t *StreamableHTTP) Close() error {
	t.finish()
	close(t.incoming)
	// No goroutine is left that could set the session.
	if t.session != nil && t.session.id != "" {
		t.deleteSession(t.session)
	}
	if t.server.ownClient {
		t.server.Client.CloseIdleConnections()
	}
	return nil
}

// deleteSession tells the server that a session is over. The session ends for this client whatever
// the server answers (MCP 2025-11-25, transports, session management).
func (t *StreamableHTTP) deleteSession(s *httpSession) {
	ctx, cancel := context.WithTimeout(context.Background(), deleteTime)
	defer cancel()
	response, err := t.server.do(ctx, http.MethodDelete, s, maps.Clone(t.server.Header), nil)
	if err == nil {
		response.Body.Close()
	}
}

// give gives a message to Read, unless ctx ends first.
func (t *StreamableHTTP) give(ctx context.Context, message []byte) error {
	select {
	case t.incoming <- message:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// lifetime is the life of a running transport, with the goroutines that are at work in it. finish
// ends it and waits for them. No goroutine may begin while finish waits: a Write therefore enters
// first, and only a goroutine that is counted already may start another with work.Go.
type lifetime struct {
	life context.Context // ends with Close; its cause is net.ErrClosed
	end  context.CancelCauseFunc
	gate sync.Mutex     // held while life ends, and while enter adds to work
	work sync.WaitGroup // Writes, the GET stream, and the tails of responses
}

// enter counts a goroutine, which calls work.Done in the end. It reports false when it is too late.
func (l *lifetime) enter() bool {
	l.gate.Lock()
	defer l.gate.Unlock()
	if l.life.Err() != nil {
		return false
	}
	l.work.Add(1)
	return true
}

// finish ends the life, and waits for all who are at work.
func (l *lifetime) finish() {
	l.gate.Lock()
	l.end(net.ErrClosed)
	l.gate.Unlock()
	l.work.Wait()
}

// withValues is a ctx with the values of another one, which does not end it. A RoundTripper may
// look for what its caller has put into the ctx of a call, such as a trace.
type withValues struct {
	context.Context
	values context.Context
}

// Value asks the embedded ctx first. Package context calls Value with a private key to find the ctx
// that cancels a derived ctx. Asked first, values would answer with the caller's ctx, and the
// request would end with the caller.
func (c withValues) Value(key any) any {
	value := c.Context.Value(key)
	if value != nil {
		return value
	}
	return c.values.Value(key)
}
