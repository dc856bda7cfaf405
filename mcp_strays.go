// mcp_strays.go - what a server writes that is not a message.
// Needs: Go 1.25, json, rpc.
// SPDX-License-Identifier: 0BSD

package main

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
)

// Many servers print a banner or a log where only messages may be, and the connection goes on
// without it. But if the connection cannot begin, what was printed says why: the program is another
// one, or it asks for a password, or it frames its messages in another way. So the first of it goes
// into the error.

// strays counts what a server has written that could not be used.
type strays struct {
	tell func(message []byte, reason error) // ClientOptions.Skipped; may be nil

	mu    sync.Mutex // guards the following; never held while tell runs
	count int
	first []byte
}

// skipped is Handler.Skipped.
func (s *strays) skipped(message []byte, reason error) {
	isLate := errors.Is(reason, ErrClosed)
	if isLate && validJSON(message) {
		// An answer that nobody waits for any more.
		return
	}
	s.mu.Lock()
	if s.count == 0 {
		s.first = message
	}
	s.count++
	s.mu.Unlock()
	if s.tell != nil && !isLate {
		s.tell(message, reason)
	}
}

// explain adds to the error of a failed beginning how much could not be used, and the first of it.
// After a refusal there is nothing to explain: the server speaks the protocol.
func (s *strays) explain(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.count == 0 || errors.As(err, new(*Error)) || errors.As(err, new(*ProtocolError)) {
		return err
	}
	text, advice := s.first, ""
	switch {
	case bytes.IndexByte(text, 0) >= 0:
		text = bytes.ReplaceAll(text, []byte{0}, nil)
		advice = "; MCP has UTF-8, and this looks like UTF-16"
	case bytes.HasPrefix(text, []byte("Content-Length:")):
		advice = "; MCP has one message a line, without headers"
	case string(text) == "{" || string(text) == "[":
		advice = "; MCP has each message on one line"
	}
	return fmt.Errorf("%w; it wrote %s, the first: %q%s",
		err, countLines(s.count), oneLine(text), advice)
}

// countLines names lines that are not messages.
func countLines(count int) string {
	if count == 1 {
		return "1 line that is not a message"
	}
	return fmt.Sprintf("%d lines that are not messages", count)
}
