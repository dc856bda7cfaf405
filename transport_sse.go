// transport_sse.go - HTTP+SSE, the transport that Streamable HTTP has replaced.
// Needs: Go 1.25, transport_http_events.go, transport_http.go.
// SPDX-License-Identifier: 0BSD

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
)

// SSE carries messages over HTTP+SSE (MCP 2024-11-05, transports): the server's come on one stream of events, whose first names
// the address where the client's are to be posted. With the stream the connection ends.
type SSE struct {
	stream   *HTTP
	posts    *HTTP
	response *http.Response
	events   *eventReader // of the response; only Read uses it
}

// StartSSE opens the stream, of whose HTTP it takes what is exported, and waits for the address, which must be of the same origin.
// ctx bounds the beginning. The error is an *HTTPError, or the cause of ctx.
func StartSSE(ctx context.Context, h *HTTP) (*SSE, error) {
	h.once.Do(h.init)
	s := &SSE{stream: h, events: &eventReader{limit: h.limit()}}
	stop := context.AfterFunc(ctx, h.end)
	err := s.start()
	if !stop() {
		err = context.Cause(ctx)
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func (s *SSE) start() (err error) {
	if s.response, err = s.stream.get(s.stream.life, nil, ""); err != nil {
		return err
	}
	s.events.begin(s.response.Body)
	for {
		name, data, err := s.events.next()
		if err != nil {
			return s.stream.lost(fmt.Errorf("no endpoint event: %w", err))
		}
		if name != "endpoint" {
			continue
		}
		here := s.response.Request.URL
		there, err := here.Parse(string(data))
		if err != nil {
			return s.stream.lost(fmt.Errorf("it wants messages posted to what is no URL: %s", oneLine(data)))
		}
		if there.Scheme != here.Scheme || !strings.EqualFold(there.Host, here.Host) {
			return s.stream.lost(fmt.Errorf("it wants messages posted to %s, which is of another origin", bareURL(there.String())))
		}
		there.User = here.User
		s.posts = &HTTP{URL: there.String(), Client: s.stream.client, Header: s.stream.Header, MaxMessage: s.stream.MaxMessage}
		s.posts.once.Do(s.posts.init)
		return nil
	}
}

// Read returns the next message. The error wraps io.EOF when the stream has ended.
func (s *SSE) Read() ([]byte, error) {
	for {
		name, data, err := s.events.next()
		switch {
		case s.stream.life.Err() != nil:
			return nil, net.ErrClosed
		case errors.As(err, new(*BodyTooLongError)):
			return nil, err
		case err != nil:
			return nil, fmt.Errorf("%s: the stream has ended (%v): %w", bareURL(s.stream.URL), err, io.EOF)
		case (name == "" || name == "message") && len(data) > 0:
			return data, nil
		}
	}
}

// Write posts one message. The answer comes to Read.
func (s *SSE) Write(ctx context.Context, message []byte) error {
	if !s.stream.enter() {
		return net.ErrClosed
	}
	defer s.stream.work.Done()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.stream.life, func() { cancel(net.ErrClosed) })()
	response, err := s.posts.do(ctx, http.MethodPost, nil, http.Header{"Content-Type": {"application/json"}}, message)
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode/100 != 2 {
		body, _ := readBody(response, s.posts.limit())
		return s.posts.refusal(response, body)
	}
	readTail(response)
	return nil
}

// Close ends the stream, which is the end of the session.
func (s *SSE) Close() error {
	return s.stream.Close()
}
