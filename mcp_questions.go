// mcp_questions.go - what a server asks the client: roots, a form for the user, a model's answer.
// Needs: Go 1.25, json, rpc.
// SPDX-License-Identifier: 0BSD

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// In the midst of a call a server may need something that only the client has: the folders to work
// in, an answer of the user, the answer of a model. Each kind of question is a method, and a client
// declares which of them it answers (MCP 2025-11-25, basic, lifecycle, capability negotiation).
//
// In the handshake era a question is a request of the server, which it sends before it answers the
// client's request. In the stateless era the result of the client's request has the questions, and
// the client sends its request again, with its replies and with the server's requestState: so the
// server need not remember the call. Client.do sends it again, and request.AppendText appends the
// replies (mcp_request.go). The table ClientOptions.Answers serves both eras.

// Responder answers one method of the server. In the handshake era the method comes as a request of
// the server, in the stateless era in a result that is input_required.
type Responder struct {
	Capability string // declared under this name: roots, elicitation, sampling
	Declare    any    // the capability's value; nil means {}

	// Reply may be called from several goroutines at once. Its ctx ends with the request. The
	// server is told its error.
	Reply func(ctx context.Context, params json.RawMessage) (result any, err error)
}

// RootsAnswer returns the Responder to roots/list, for ClientOptions.Answers.
func RootsAnswer(list func(ctx context.Context) ([]Root, error)) Responder {
	reply := func(ctx context.Context, _ json.RawMessage) (any, error) {
		roots, err := list(ctx)
		if err != nil {
			return nil, err
		}
		if roots == nil {
			// The protocol wants an array, and nil would be null.
			roots = []Root{}
		}
		return map[string]any{"roots": roots}, nil
	}
	return Responder{Capability: "roots", Reply: reply}
}

// serverRequest answers a request of the server. The server may send it while the client waits for
// the result of a call. Servers may send a ping even before the handshake.
func (c *Client) serverRequest(
	ctx context.Context,
	_ *Conn,
	method string,
	params json.RawMessage,
) (any, error) {
	if method == "ping" {
		return struct{}{}, nil
	}
	if c.stateless.Load() {
		return nil, &Error{
			Code:    CodeMethodNotFound,
			Message: "a server of revision " + statelessRevision + " sends no requests",
		}
	}
	if !c.inFlight.mayAsk(c.options.MaxQuestions) {
		text := fmt.Sprintf("the server asks more questions than the %d that a request may ask; "+
			"they are refused", c.options.MaxQuestions)
		c.warnings.warn("questions", text)
		return nil, &Error{Code: CodeInvalidRequest, Message: text}
	}
	reply, err := c.answerQuestion(ctx, method, params)
	if err != nil {
		return nil, err
	}
	return withRelatedTask(reply, params)
}

// question is one question of a server, in a result.
type question struct {
	Method string
	Params json.RawMessage
}

// inputRequired is a result that asks for input first.
type inputRequired struct {
	InputRequests map[string]question
	RequestState  *json.RawMessage // is returned byte for byte; nil if it is null
}

// answerQuestions answers the questions of a result that is input_required. It returns the members
// that the request has when it is sent again.
func (c *Client) answerQuestions(
	ctx context.Context,
	r *request,
	result json.RawMessage,
) ([]byte, error) {
	var needs inputRequired
	err := decodeJSON("result", result, &needs)
	if err != nil {
		return nil, err
	}
	if len(needs.InputRequests) == 0 && needs.RequestState == nil {
		return nil, &ProtocolError{"the server's input_required result names no input"}
	}
	var input []byte
	if len(needs.InputRequests) > 0 {
		input, err = c.askAll(ctx, r, needs.InputRequests)
		if err != nil {
			return nil, err
		}
	}
	if needs.RequestState != nil {
		input = append(appendKey(input, "requestState"), *needs.RequestState...)
	}
	return input, nil
}

// askAll answers questions that the server asks before it answers a request, and returns the member
// with the replies. They are asked one after the other, as there is one user.
func (c *Client) askAll(
	ctx context.Context,
	r *request,
	questions map[string]question,
) ([]byte, error) {
	err := c.countQuestions(r, len(questions))
	if err != nil {
		return nil, err
	}
	replies := make(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(questions)) {
		q := questions[name]
		replies[name], err = c.answerQuestion(ctx, q.Method, q.Params)
		if err != nil {
			return nil, fmt.Errorf("the server asks for %s: %w",
				visibleName(q.Method), asOurError(err))
		}
	}
	return appendJSON(appendKey(nil, "inputResponses"), replies)
}

// countQuestions counts questions that the server asks before it answers a request. The error says
// that they are too many.
func (c *Client) countQuestions(r *request, count int) error {
	r.questions += count
	if r.questions > c.options.MaxQuestions {
		return &ProtocolError{fmt.Sprintf("the server asks %d questions; a request may ask %d",
			r.questions, c.options.MaxQuestions)}
	}
	return nil
}

// asOurError turns a refusal that a Responder made for the server into an error of the call. In the
// stateless era a refusal is not sent, and as an *Error it would pass for a refusal by the server.
func asOurError(err error) error {
	var refusal *Error
	if errors.As(err, &refusal) {
		return &ProtocolError{refusal.Message}
	}
	return err
}

// answerQuestion answers one question of the server, in either era. Meanwhile the client's requests
// expire only at MaxTimeout.
func (c *Client) answerQuestion(
	ctx context.Context,
	method string,
	params json.RawMessage,
) (any, error) {
	responder, ok := c.options.Answers[method]
	if !ok {
		return nil, &Error{
			Code:    CodeMethodNotFound,
			Message: "this client does not offer " + visibleName(method),
		}
	}
	c.inFlight.questionBegins()
	defer c.inFlight.questionEnds()
	return responder.Reply(ctx, params)
}
