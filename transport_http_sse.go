// transport_http_sse.go - HTTP+SSE, the transport that Streamable HTTP has replaced.
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

// SSE carries messages over HTTP+SSE (MCP 2024-11-05, transports): the server's come on one stream of events, whose
// first names the address where the client's are to be posted. The connection ends with the stream.
type SSE struct {
	lifetime
	stream   HTTP           // with its defaults
	posts    HTTP           // the same, but for the URL
	response *http.Response // the stream
	events   eventReader    // of the response; only Read uses it
}

// StartSSE opens the stream, and waits for the address, which must be of the same origin. It returns an *SSE. ctx
// bounds the beginning. The error is an *HTTPError, or the cause of ctx.
func (h *HTTP) StartSSE(ctx context.Context) (Transport, error) {
	s := &SSE{stream: h.withDefaults()}
	s.events.limit = s.stream.MaxMessage
	s.life, s.end = context.WithCancelCause(context.Background())
	stop := context.AfterFunc(ctx, func() { s.end(nil) })
	err := s.open()
	if !stop() {
		err = context.Cause(ctx)
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func (s *SSE) open() (err error) {
	if s.response, err = s.stream.openStream(s.life, nil, ""); err != nil {
		return err
	}
	s.events.resume(s.response.Body)
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

// setEndpoint sets the address for messages.
func (s *SSE) setEndpoint(address string) error {
	here := s.response.Request.URL
	there, err := here.Parse(address)
	if err != nil {
		return s.stream.connectionError(fmt.Errorf("its endpoint for messages is not a URL: %s", oneLine([]byte(address))))
	}
	if there.Scheme != here.Scheme || !strings.EqualFold(there.Host, here.Host) {
		other := &HTTP{URL: there.String()}
		return s.stream.connectionError(fmt.Errorf("its endpoint for messages, %s, is of another origin", other))
	}
	there.User = here.User
	s.posts = s.stream
	s.posts.URL = there.String()
	return nil
}

// Read returns the next message. The error wraps io.EOF when the stream has ended.
func (s *SSE) Read() ([]byte, error) {
	for {
		name, data, err := s.events.next()
		switch {
		case s.life.Err() != nil:
			return nil, net.ErrClosed
		case errors.As(err, new(*MessageTooLongError)):
			return nil, err
		case err != nil:
			return nil, fmt.Errorf("%s: the stream has ended (%v): %w", &s.stream, err, io.EOF)
		case (name == "" || name == "message") && len(data) > 0:
			return data, nil
		}
	}
}

// Write posts one message. The answer comes to Read.
func (s *SSE) Write(ctx context.Context, m Outgoing) error {
	if !s.enter() {
		return net.ErrClosed
	}
	defer s.work.Done()
	sender := ctx
	ctx, cancel := context.WithCancel(withValues{s.life, sender})
	defer cancel()
	defer context.AfterFunc(sender, func() {
		if context.Cause(sender) == ErrAnswered { // servers accept a message a moment after they have answered it
			time.AfterFunc(tailTime, cancel)
		} else {
			cancel()
		}
	})()
	header := maps.Clone(s.posts.Header)
	header.Set("Content-Type", "application/json")
	response, err := s.posts.do(ctx, http.MethodPost, nil, header, m.Text)
	if ctx.Err() != nil {
		err = cmp.Or(context.Cause(sender), context.Cause(ctx))
	}
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode/100 != 2 {
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
