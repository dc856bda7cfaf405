// main_requests.go - the requests of servers to the user, and to the model.
// SPDX-License-Identifier: 0BSD

package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
)

// serverRequests answers what servers ask of the user (elicitation) and of the model (sampling).
type serverRequests struct {
	settings *askingSettings
	output   *output
	terminal *Terminal
	config   *configuration
	model    *modelChoice
	samples  atomic.Int64 // sampling requests for this question, of all servers
}

// answers returns the function that answers each kind of request of a server. If no user can allow
// sampling, the client does not offer it.
func (q *serverRequests) answers(s *Server) map[string]Responder {
	elicit := func(ctx context.Context, r *ElicitRequest) (*ElicitResult, error) {
		return q.elicit(ctx, s, r)
	}
	sample := func(ctx context.Context, r *SampleRequest) (*SampleResult, error) {
		return q.sample(ctx, s, r)
	}
	answers := map[string]Responder{"elicitation/create": ElicitAnswer(elicit)}
	userDecides := q.settings.approve != "never" && q.terminal.Interactive()
	if q.settings.approve == "always" || userDecides {
		answers["sampling/createMessage"] = SampleAnswer(sample)
	}
	return answers
}

// elicit lets the user answer a question of a server.
func (q *serverRequests) elicit(
	ctx context.Context,
	s *Server,
	r *ElicitRequest,
) (*ElicitResult, error) {
	who := q.config.title(s)
	if !q.terminal.Interactive() {
		what := strconv.Quote(r.Message)
		if r.Mode == "url" {
			what += " at " + r.URL
		}
		q.output.note("%s asks %s: declined, as without a terminal there is no user to ask",
			who, what)
		return &ElicitResult{Action: "decline"}, nil
	}
	return q.terminal.Elicit(ctx, who, r)
}

// sample lets a server use the model, if the user allows it. The user pays for it, and reads what
// the server wants to ask: MCP 2025-11-25, client, sampling, asks for a person in the loop.
func (q *serverRequests) sample(
	ctx context.Context,
	s *Server,
	r *SampleRequest,
) (*SampleResult, error) {
	count, most := int(q.samples.Add(1)), q.settings.maxSamples
	what := fmt.Sprintf("%s asks the model (%d of %d)", q.config.title(s), count, most)
	switch {
	case count > most:
		isFirst := count == most+1
		if isFirst {
			// The server may go on asking, and the user need not read each refusal.
			q.output.note("%s: refused (MCP_MAX_SAMPLES)", what)
		}
		limit := &LimitError{most, "sampling requests per question"}
		return nil, &Error{Code: -1, Message: limit.Error()}
	case q.settings.approve == "always":
		q.output.note("%s", what)
	case !q.terminal.Confirm(ctx, what, strings.Join(r.Parts(), "\n"), "let it?"):
		// The code is that of MCP 2025-11-25, client, sampling, error handling.
		return nil, &Error{Code: -1, Message: "the user said no"}
	}
	return SampleWith(q.model.current())(ctx, r)
}
