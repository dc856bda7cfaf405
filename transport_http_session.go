// transport_http_session.go - sessions of the handshake era, and the GET stream of each.
// Needs: Go 1.25, json, rpc.
// SPDX-License-Identifier: 0BSD

package main

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
)

// httpSession is what the answer to an initialize began (MCP 2025-11-25, transports, session
// management).
//
// When a session expires, the server answers with status 404 (see isExpired), and Client.renew
// sends initialize again, while calls of the old session may still be at work. So for a moment
// there are two sessions: only the messages of the handshake belong to StreamableHTTP.next; all
// other messages belong to StreamableHTTP.session, and StreamableHTTP.prepare puts the id of theirs
// into the header. Calls that begin during the handshake still belong to the old session: the
// server tells each that this session has expired, and no call reaches the new session before the
// server knows that the client is ready.
type httpSession struct {
	id     string             // empty if the server keeps no session
	header http.Header        // of every request in it
	life   context.Context    // of its GET stream
	end    context.CancelFunc // ends the GET stream
	stream int64              // number of its open GET stream, or 0; StreamableHTTP.mu guards it
}

// beginHandshake records the session that the answer to an initialize begins.
func (t *StreamableHTTP) beginHandshake(id string, result []byte) {
	// The client reports what is wrong with a result that cannot be decoded.
	var initialized struct{ ProtocolVersion string }
	_ = json.Unmarshal(result, &initialized)
	s := &httpSession{
		id:     id,
		header: http.Header{"Mcp-Protocol-Version": {initialized.ProtocolVersion}},
	}
	if id != "" {
		s.header.Set("Mcp-Session-Id", id)
	}
	s.life, s.end = context.WithCancel(t.life)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.next = s
	if t.session == nil {
		t.session = s
	}
}

// endHandshake replaces the session, if the server has accepted that the client is ready.
func (t *StreamableHTTP) endHandshake(s *httpSession, accepted bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !accepted {
		s.end()
		return
	}
	if t.session != s {
		t.session.end()
		t.session = s
	}
}

// openGetStream opens the GET stream of a session. It does so before the server is told that the
// client is ready: what the server sends from then on, it sends only there, and only once.
//
// It returns when the server has answered the GET. A server may send the headers only with the
// first event, which may never come, so openGetStream waits no longer than openTime.
func (t *StreamableHTTP) openGetStream(ctx context.Context, s *httpSession) {
	opened := make(chan struct{})
	t.work.Go(func() {
		response, err := t.server.openStream(s.life, s, "")
		t.setStream(s, err == nil)
		close(opened)
		t.followGetStream(s, response, err)
	})
	ctx, cancel := context.WithTimeout(ctx, openTime)
	defer cancel()
	select {
	case <-opened:
	case <-ctx.Done():
	}
}

// followGetStream passes on what comes on the GET stream, until the session or the transport ends.
// It runs on a goroutine of its own, which Close waits for. err is why the stream could not be
// opened. A server that refuses the GET offers no stream, and need not (status 405); any other
// failure is one of the connection, and is tried again.
func (t *StreamableHTTP) followGetStream(s *httpSession, response *http.Response, err error) {
	var failure *HTTPError
	isLost := errors.As(err, &failure) && failure.Lost()
	if err != nil && !isLost {
		return
	}
	err = t.follow(s.life, nil, s, response, err)
	if t.onStreamEnd != nil && s.life.Err() == nil {
		t.onStreamEnd(err)
	}
}

// setStream records whether the GET stream of a session is open.
func (t *StreamableHTTP) setStream(s *httpSession, isOpen bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s.stream = 0
	if isOpen {
		t.streams++
		s.stream = t.streams
	}
}

// Stream returns the number of the GET stream that is open, 0 if none is. Each stream has another
// number: what the server sends between two of them may be lost.
func (t *StreamableHTTP) Stream() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.session == nil {
		return 0
	}
	return t.session.stream
}

// OnStreamEnd sets a func that is called when a GET stream has ended and is not opened again, with
// the reason, on a goroutine that Close waits for. It is set before the first Write.
func (t *StreamableHTTP) OnStreamEnd(f func(error)) { t.onStreamEnd = f }
