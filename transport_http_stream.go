// transport_http_stream.go - reading a stream of messages, and resuming it with Last-Event-ID.
// Needs: Go 1.25, json, rpc.
// SPDX-License-Identifier: 0BSD

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// A connection fails if it ends early and has brought no event with an id, so that the same events
// would be asked for again.
const (
	retryTime   = time.Second  // before a stream is resumed, if the server does not say
	maxRetry    = time.Minute  // the pause is doubled with each failure, up to this
	steadyTime  = maxRetry / 2 // a connection that lasted so long has not failed
	maxFailures = 3            // in a row, of a stream that has the answer to a request
)

// follow passes on the messages of a stream. It returns when the answer to p has come; or where p
// is nil, which is the GET stream, when ctx ends or the server refuses to go on.
//
// A proxy may cut a stream that is silent for a minute, and a server may close one to have fewer
// connections open. So in the handshake era a stream that ends early is resumed: the client names
// the last event that it got, and the server sends those after it. It waits before for the time
// that the server asked for (MCP 2025-11-25, transports, resumability).
//
// response is the first connection, or nil if it could not be opened, which err explains.
func (t *StreamableHTTP) follow(
	ctx context.Context, p *httpPost, s *httpSession, response *http.Response, err error,
) error {
	events := t.readers.Get().(*eventReader)
	*events = eventReader{limit: t.server.MaxMessage, buf: events.buf}
	defer t.readers.Put(events)
	isGet := p == nil
	// Only messages of the handshake era belong to a session.
	inHandshakeEra := s != nil
	for failures := 0; ; failures++ {
		if err == nil {
			lastID, opened := events.lastID, time.Now()
			var isOver bool
			isOver, err = t.readStream(ctx, p, events, response)
			if isOver {
				return err
			}
			if events.lastID != lastID || time.Since(opened) > steadyTime {
				failures = 0
			}
		}
		if isGet {
			t.setStream(s, false)
		}
		canResume := isGet || inHandshakeEra && events.lastID != "" && failures < maxFailures
		if !canResume || refusesToResume(err) || errors.As(err, new(*MessageTooLongError)) {
			return t.streamError(p, err)
		}
		select {
		case <-time.After(resumePause(events.retry, failures)):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		response, err = t.server.openStream(ctx, s, events.lastID)
		if isGet {
			t.setStream(s, err == nil)
		}
	}
}

// resumePause is the time before a stream is resumed. asked is what the server asked for; a pause
// of this length is kept even where it is over maxRetry.
func resumePause(asked time.Duration, failures int) time.Duration {
	pause := cmp.Or(asked, retryTime) << min(failures, 10)
	return max(asked, min(pause, maxRetry))
}

// refusesToResume reports whether the server will not send the rest of a stream. The status 409
// means that it is too soon.
func refusesToResume(err error) bool {
	var failure *HTTPError
	return errors.As(err, &failure) && failure.Status/100 == 4 &&
		failure.Status != http.StatusConflict
}

// streamError is the error for a stream that has ended early and is not resumed. A server that
// refuses to resume the stream of p may have acted on p all the same, so the error has no status:
// the refusal is of the GET, not of the message.
func (t *StreamableHTTP) streamError(p *httpPost, err error) error {
	if p != nil && refusesToResume(err) {
		err = fmt.Errorf("the answer broke off, and the server does not resume it: %w",
			errors.Unwrap(err))
	}
	return t.server.connectionError(err)
}

// readStream passes on the messages of one connection. It reports whether nothing more is awaited:
// the answer to p came, or was invalid, or nobody waits. Otherwise the error is why the connection
// had no answer.
func (t *StreamableHTTP) readStream(
	ctx context.Context, p *httpPost, events *eventReader, response *http.Response,
) (isOver bool, err error) {
	events.resume(response.Body)
	for {
		name, data, err := events.next()
		if err != nil {
			response.Body.Close()
			return false, err
		}
		if !isMessageEvent(name, data) {
			continue
		}
		answered := false
		if p == nil {
			err = t.give(ctx, data)
		} else {
			answered, err = t.pass(ctx, p, response, data)
		}
		if err != nil {
			response.Body.Close()
			return true, err
		}
		if answered {
			t.leaveTail(p, response)
			return true, nil
		}
	}
}

// isMessageEvent reports whether an event holds a message. Others are of another protocol, or there
// for their id alone.
func isMessageEvent(name string, data []byte) bool {
	return (name == "" || name == "message") && len(data) > 0
}

// leaveTail reads what follows the answer to p in its stream, so that the connection can be used
// again, on a goroutine that Close waits for. The call is not kept: a stream may stay open although
// its answer has come. The goroutine also ends the HTTP request.
func (t *StreamableHTTP) leaveTail(p *httpPost, response *http.Response) {
	p.hasTail = true
	t.work.Go(func() {
		defer p.cancel()
		defer response.Body.Close()
		readTail(response, p.cancel)
	})
}
