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

	mu     sync.Mutex // guards the following; never held while tell runs
	count  int
	first  []byte
	spoils []byte // the first text that stood before a message on its line; nil if there is none
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
	if s.spoils == nil {
		s.spoils = beforeMessage(message)
	}
	s.count++
	s.mu.Unlock()
	if s.tell != nil && !isLate {
		s.tell(message, reason)
	}
}

// beforeMessage returns the text before a message on one line, as of a server that prints
// "Loading... " without a newline before its first answer. The message is lost. It returns nil for
// any other line.
func beforeMessage(line []byte) []byte {
	at := bytes.Index(line, []byte(`{"`))
	if at > 0 && bytes.Contains(line[at:], []byte(`"jsonrpc"`)) && validJSON(line[at:]) {
		return line[:at]
	}
	return nil
}

// explain adds to the error of a failed beginning how much could not be used, and the first of it.
// After a refusal there is nothing to explain, as the server speaks the protocol, unless a message
// was lost: the refusal may follow from that.
func (s *strays) explain(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	isRefusal := errors.As(err, new(*Error)) || errors.As(err, new(*ProtocolError))
	if s.count == 0 || isRefusal && s.spoils == nil {
		return err
	}
	text, advice := s.first, ""
	switch {
	case s.spoils != nil:
		return fmt.Errorf("%w; it wrote %q before a message, on the same line, so that the "+
			"message was lost; stdout is for MCP alone: print to stderr", err, oneLine(s.spoils))
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
