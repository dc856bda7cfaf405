// mcp_input.go - requests to which the server answers that it needs input first.
// Needs: Go 1.25, json.go, rpc.go, mcp_types.go, elicitation.go, mcp.go, mcp_lists.go, mcp_handshake.go, mcp_repair.go.
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

// maxRounds is how often a request is sent again with input, each got by this side.
const maxRounds = 10

// exchange is a request to which the server may answer that it needs input (MCP 2026-07-28, patterns, multi round-trip
// requests). The input is got from the handlers that answer a server's requests in the handshake era, and the request
// is sent again with it, as a new one.
func (c *Client) exchange(ctx context.Context, method string, report func(Progress), params membersFunc) (json.RawMessage, error) {
	var inputs []byte // members of this round
	for round := range maxRounds + 1 {
		raw, err := c.request(ctx, method, func(b []byte) ([]byte, error) {
			b, err := params(b)
			return append(b, inputs...), err
		}, &watch{report: report})
		if err == nil {
			return raw, nil
		}
		var needs *inputRequired
		if !errors.As(err, &needs) {
			var refusal *Error
			if errors.As(err, &refusal) {
				c.forgetLists("") // they may be what was wrong
			}
			return nil, err
		}
		if round == maxRounds {
			break // nobody is asked for what will not be sent
		}
		if inputs, err = c.input(ctx, needs); err != nil {
			return nil, err
		}
	}
	return nil, &ProtocolError{fmt.Sprintf("the server asked for input %d times", maxRounds+1)}
}

// inputRequired is a result that is none yet.
type inputRequired struct {
	InputRequests map[string]struct {
		Method string
		Params json.RawMessage
	}
	RequestState json.RawMessage // the server's own: returned byte for byte
}

func (*inputRequired) Error() string {
	return "the server asks for input where the protocol allows none"
}

func (r *inputRequired) Unwrap() error { return &ProtocolError{r.Error()} }

// input answers what the server asks, one after the other: there is one user.
func (c *Client) input(ctx context.Context, needs *inputRequired) (members []byte, err error) {
	if string(needs.RequestState) == "null" {
		needs.RequestState = nil
	}
	if len(needs.InputRequests) == 0 && needs.RequestState == nil {
		return nil, &ProtocolError{"the server asks for input, but not for which"}
	}
	if len(needs.InputRequests) > 0 {
		answers := make(map[string]any)
		for _, name := range slices.Sorted(maps.Keys(needs.InputRequests)) {
			r := needs.InputRequests[name]
			answers[name], err = c.ask(ctx, r.Method, r.Params)
			var refusal *Error
			if errors.As(err, &refusal) { // ours, for the server to read, if it could read it
				err = &ProtocolError{refusal.Message}
			}
			if err != nil {
				return nil, fmt.Errorf("the server asks for %s: %w", r.Method, err)
			}
		}
		if members, err = appendJSON(append(members, `"inputResponses":`...), answers); err != nil {
			return nil, err
		}
		members = append(members, ',')
	}
	if needs.RequestState != nil {
		members = append(append(append(members, `"requestState":`...), needs.RequestState...), ',')
	}
	return members, nil
}
