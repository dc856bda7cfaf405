// transport_http_legacy.go - HTTP+SSE, the legacy transport that Streamable HTTP has replaced.
// Needs: Go 1.25, json, rpc.
// SPDX-License-Identifier: 0BSD

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"strings"
	"time"
)

// SSE carries messages over HTTP+SSE (MCP 2024-11-05, transports). The server's messages come on
// one stream of events, whose first event names the address where the client's are to be posted.
// The connection ends with the stream.
//
// The one goroutine that calls Read reads the stream. Each Write posts its message on a goroutine
// of its own, which Close waits for.
type SSE struct {
	lifetime
	stream   HTTP           // with its defaults
	posts    HTTP           // the same, but for the URL
	response *http.Response // the stream
	events   eventReader    // of the response; only Read uses it
}

// StartSSE opens the stream, and waits for the address, which must be of the same origin. It
// returns an *SSE. ctx bounds the beginning. The error is an *HTTPError, or the cause of ctx.
func (h HTTP) StartSSE(ctx context.Context) (Transport, error) {
	err := h.checkURL()
	if err != nil {
		return nil, err
	}
	s := &SSE{stream: h.withDefaults()}
	s.events.limit = s.stream.MaxMessage
	s.life, s.end = context.WithCancelCause(context.Background())
	stop := context.AfterFunc(ctx, func() { s.end(nil) })
	err = s.open()
	isInTime := stop()
	if !isInTime {
		err = context.Cause(ctx)
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// open opens the stream and reads it as far as the address.
func (s *SSE) open() error {
	response, err := s.stream.openStream(s.life, nil, "")
	if err != nil {
		return err
	}
	s.response = response
	s.events.resume(response.Body)
	for {
		name, data, err := s.events.next()
		if err != nil {
			return s.stream.connectionError(fmt.Errorf("no endpoint event: %w", err))
		}
		if name == "endpoint" {
			return s.setEndpoint(string(data))
		}
	}
}

// setEndpoint sets the address for messages, which may be relative to the address of the stream.
// One of another origin is refused: the headers, with their keys, would be sent to whom the user
// did not name.
func (s *SSE) setEndpoint(address string) error {
	here := s.response.Request.URL
	there, err := here.Parse(address)
	if err != nil {
		err = fmt.Errorf("its endpoint for messages is not a URL: %s", oneLine([]byte(address)))
		return s.stream.connectionError(err)
	}
	if there.Scheme != here.Scheme || !strings.EqualFold(there.Host, here.Host) {
		err = fmt.Errorf("its endpoint for messages, %s, is of another origin",
			HTTP{URL: there.String()})
		return s.stream.connectionError(err)
	}
	there.User = here.User
	s.posts = s.stream
	s.posts.URL = there.String()
	return nil
}

// Read returns the next message. The error wraps io.EOF when the stream has ended. It is never
// io.EOF itself, after which the server could still read: with the stream, the session is over.
func (s *SSE) Read() ([]byte, error) {
	for {
		name, data, err := s.events.next()
		switch {
		case s.life.Err() != nil:
			return nil, net.ErrClosed
		case errors.As(err, new(*MessageTooLongError)):
			return nil, err
		case err != nil:
			return nil, fmt.Errorf("%s: the stream has ended (%v): %w", s.stream, err, io.EOF)
		case isMessageEvent(name, data):
			return data, nil
		}
	}
}

// Write posts one message. The answer comes to Read, mostly a moment before the server accepts the
// POST, and sometimes long before it: Conn then ends ctx with ErrAnswered, and Write returns. The
// POST is given tailTime more, so that its connection can be used again.
func (s *SSE) Write(ctx context.Context, m Outgoing) error {
	if !s.enter() {
		return net.ErrClosed
	}
	defer s.work.Done()
	post, cancel := context.WithCancel(withValues{s.life, ctx})
	accepted := make(chan error, 1)
	s.work.Go(func() {
		defer cancel()
		accepted <- s.post(post, cancel, m)
	})
	select {
	case err := <-accepted:
		return err
	case <-ctx.Done():
	}
	if context.Cause(ctx) == ErrAnswered {
		time.AfterFunc(tailTime, cancel)
	} else {
		cancel()
	}
	return context.Cause(ctx)
}

// post posts a message, and returns an error unless the server accepts it.
func (s *SSE) post(ctx context.Context, cancel context.CancelFunc, m Outgoing) error {
	header := maps.Clone(s.posts.Header)
	header.Set("Content-Type", "application/json")
	response, err := s.posts.do(ctx, http.MethodPost, nil, header, m.Text)
	if err != nil {
		return cmp.Or(context.Cause(ctx), err)
	}
	defer response.Body.Close()
	if response.StatusCode/100 != 2 {
		// Of a body that breaks off, the beginning is enough for the error.
		body, _ := readBody(response, s.posts.MaxMessage)
		return s.posts.statusError(response, body)
	}
	readTail(response, cancel)
	return nil
}

// Close ends the stream, which is the end of the session.
func (s *SSE) Close() error {
	s.finish()
	if s.stream.ownClient {
		s.stream.Client.CloseIdleConnections()
	}
	return nil
}
