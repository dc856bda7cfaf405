// rpc_message.go - the messages of JSON-RPC 2.0 as text.
// Needs: Go 1.25, json.
// SPDX-License-Identifier: 0BSD

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// maxID bounds the id of a request of the peer, in bytes: it is kept and sent back.
const maxID = 1 << 10

// AppendRequest begins the text of a request, or of a notification if id is 0, as an object that
// is still open: the caller appends the params, if there are any, and the brace that closes it.
func AppendRequest(b []byte, id int64, method string) []byte {
	b = append(b, `{"jsonrpc":"2.0"`...)
	if id != 0 {
		b = append(b, `,"id":`...)
		b = strconv.AppendInt(b, id, 10)
	}
	b = append(b, `,"method":`...)
	return appendString(b, method)
}

// EncodeRequest returns the text of a request, or of a notification if id is 0. Params that
// encode to null are left out.
func EncodeRequest(id int64, method string, params any) ([]byte, error) {
	raw, err := appendJSON(nil, params)
	if err != nil {
		return nil, fmt.Errorf("%s: params: %w", method, err)
	}
	b := AppendRequest(make([]byte, 0, 64+len(method)+len(raw)), id, method)
	if string(raw) != "null" {
		b = appendKey(b, "params")
		b = append(b, raw...)
	}
	return append(b, '}'), nil
}

// EncodeResponse makes the answer to a request: err if there is one, else result.
func EncodeResponse(id json.RawMessage, result any, err error) ([]byte, error) {
	member, value := "result", result
	if err != nil {
		var e *Error
		if !errors.As(err, &e) {
			e = &Error{Code: CodeInternalError, Message: err.Error()}
		}
		member, value = "error", e
	}
	b := append([]byte(`{"jsonrpc":"2.0","id":`), id...)
	b, err = appendJSON(appendKey(b, member), value)
	if err != nil {
		return nil, err
	}
	return append(b, '}'), nil
}

// Incoming is a message taken apart: its members as they stand in the text, nil where absent.
type Incoming struct {
	Method                    string
	ID, Params, Result, Error json.RawMessage
	otherID                   json.RawMessage // an id before ID, if it is another one
	text                      []byte          // the message
}

// Parse takes a message apart, in one pass that also proves the whole of it to be valid JSON. The
// error says why it is not a request, a notification or a response (JSON-RPC 2.0, 4 and 5). The
// members then hold what could be read, as a call may wait for even the worst answer.
func (in *Incoming) Parse(message []byte) error { return in.parse(message, nil) }

// parse is Parse for a Conn. resultOf, unless it is nil, is called for a result that stands after
// the message's id, and returns what reads that result in the same pass, or nil.
func (in *Incoming) parse(
	message []byte, resultOf func(id json.RawMessage) ResultReader,
) error {
	if !endsAsObject(message) {
		// The call goes on, as its answer may follow whole.
		resultOf = nil
	}
	s := scanner{text: message}
	isVersion2 := in.readMembers(&s, resultOf)
	if !s.end() {
		in.salvage(message)
		return errors.New("not a JSON-RPC object")
	}
	if !isVersion2 {
		return errors.New(`no "jsonrpc":"2.0"`)
	}
	if in.Method != "" {
		return checkID(in.ID)
	}
	if !in.IsResponse() {
		return errors.New("neither a method nor a result nor an error")
	}
	if in.otherID != nil {
		return errors.New("it has two ids")
	}
	// Some peers write both members always.
	isNoError := string(in.Error) == "null" || string(in.Error) == "false"
	if isNoError && in.Result != nil {
		in.Error = nil
	}
	return nil
}

// salvage reads what can be read of a message that is not valid JSON, for the call that it may
// answer. A text that does not end as an object does is a part of a message, of which nothing is
// believed.
func (in *Incoming) salvage(message []byte) {
	if !endsAsObject(message) {
		*in = Incoming{}
		return
	}
	in.readMembers(&scanner{text: message, loose: true}, nil)
}

// endsAsObject reports whether a text may be a whole message. A part of a message that happens to
// end with a brace is taken for one.
func endsAsObject(text []byte) bool { return bytes.HasSuffix(bytes.TrimSpace(text), []byte("}")) }

// checkID returns an error if a request cannot have that id. What else is no id, such as 1.5, is
// answered with an error; see Conn.handleRequest.
func checkID(id json.RawMessage) error {
	if len(id) > maxID {
		return fmt.Errorf("a request with an id of %d bytes", len(id))
	}
	if id != nil && strings.IndexByte(`"-0123456789`, id[0]) < 0 {
		return fmt.Errorf("a request with the id %s", id)
	}
	return nil
}

// CheckID returns the *Error that answers a request whose id is a fraction, such as 1.5: it must be
// a string or a whole number (MCP 2025-11-25, basic, requests).
func (in *Incoming) CheckID() error {
	isString := bytes.HasPrefix(in.ID, []byte(`"`))
	f, err := strconv.ParseFloat(string(in.ID), 64)
	if isString || err == nil && f == math.Trunc(f) {
		return nil
	}
	return &Error{
		Code:    CodeInvalidRequest,
		Message: "the id of a request must be a string or an integer",
	}
}

// IDNumber returns the whole number that the id of a response holds, or a progress token, so that
// it finds the call that it is about. The JSON-RPC 2.0 ids that this side gives to its requests
// count from 1. A peer must send them back as they are, but one whose language has a single type
// for numbers sends 1.0 or 1e0 for 1, and one that keeps ids as text sends "1". All four are the
// id 1.
func IDNumber(raw []byte) (id int64, ok bool) {
	if bytes.ContainsAny(raw, "eE") {
		// Every whole number below 2^53 is exact.
		f, err := strconv.ParseFloat(string(raw), 64)
		return int64(f), err == nil && 0 <= f && f < 1<<53 && f == math.Trunc(f)
	}
	whole, fraction, _ := strings.Cut(string(bytes.Trim(raw, `"`)), ".")
	n, err := strconv.ParseUint(whole, 10, 63)
	return int64(n), err == nil && strings.Trim(fraction, "0") == ""
}

// readMembers sets the members, and reports whether the message is of JSON-RPC 2.0.
func (in *Incoming) readMembers(
	s *scanner, resultOf func(id json.RawMessage) ResultReader,
) (isVersion2 bool) {
	*in = Incoming{text: s.text}
	s.object(func(key []byte) {
		switch string(key) {
		case "jsonrpc":
			isVersion2 = string(s.value()) == `"2.0"`
		case "id":
			id := s.value()
			if in.ID != nil && !bytes.Equal(in.ID, id) {
				in.otherID = in.ID
			}
			in.ID = id
		case "method":
			in.Method = s.string()
		case "params":
			in.Params = s.value()
		case "result":
			var reader ResultReader
			// A request may have all members, too, with null for those that it does not use.
			isNull := s.peek() == 'n'
			if resultOf != nil && in.ID != nil && !isNull {
				reader = resultOf(in.ID)
			}
			in.Result = readResult(s, reader)
		case "error":
			in.Error = s.value()
		default:
			s.value()
		}
	})
	return isVersion2
}

// readResult returns the text of a result, which reader, unless it is nil, reads in the same pass.
// A value that reader fails on may be valid JSON all the same, and is passed over from its
// beginning.
func readResult(s *scanner, reader ResultReader) json.RawMessage {
	if reader == nil {
		return s.value()
	}
	s.peek()
	before := *s
	reader.ReadResult(s)
	if !s.ok() {
		*s = before
		return s.value()
	}
	return s.text[before.at:s.at:s.at]
}

// IsResponse reports whether a message is a response, be it an invalid one.
func (in *Incoming) IsResponse() bool {
	return in.Method == "" && (in.Result != nil || in.Error != nil)
}

// hasOutcome reports whether a message has what only a response has. A message with a method is a
// request all the same, unless a call with its id waits.
func (in *Incoming) hasOutcome() bool {
	isGiven := func(member json.RawMessage) bool {
		return member != nil && string(member) != "null" && string(member) != "false"
	}
	return in.IsResponse() || isGiven(in.Result) || isGiven(in.Error)
}

// outcome returns what an answer means for its call. The error says why the answer is invalid.
func (in *Incoming) outcome(invalid error) outcome {
	if invalid != nil {
		return outcome{err: fmt.Errorf("the answer is invalid: %w", invalid)}
	}
	if in.Error == nil {
		return outcome{result: in.Result}
	}
	var e Error
	err := json.Unmarshal(in.Error, &e)
	if err != nil {
		e = Error{Code: CodeInternalError, Message: "a malformed error: " + string(in.Error)}
	}
	return outcome{err: &e}
}

// splitBatch returns the messages of a batch. It reads loosely, as one invalid message must not
// cost the others. What is no array of values is one message, which Parse will refuse.
func splitBatch(text []byte) [][]byte {
	var messages [][]byte
	s := scanner{text: text, loose: true}
	s.array(func() { messages = append(messages, s.value()) })
	if !s.end() || len(messages) == 0 {
		return [][]byte{text}
	}
	return messages
}
