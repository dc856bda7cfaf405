// main_report.go - the report of a question, which -json prints.
// SPDX-License-Identifier: 0BSD

package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
)

// report is the JSON that a question prints with -json. A chat has one report for all its
// questions, and prints none: its context tells when to offer /compact.
type report struct {
	Answer       string       `json:"answer"`
	FinishReason string       `json:"finish_reason"` // of the answer, as the API gave it, or error
	Calls        []callReport `json:"calls"`         // in the order in which they ended
	Turns        int          `json:"turns"`
	Usage        *Usage       `json:"usage"` // null if the API does not count tokens
	Model        string       `json:"model"`

	context int // tokens of the last request and its answer
}

type callReport struct {
	Name      string          `json:"name"`             // of the function: the model's name for it
	Server    string          `json:"server,omitempty"` // "" if there is no such tool
	Arguments json.RawMessage `json:"arguments"`
	Bytes     int             `json:"bytes"` // of the result
	Seconds   float64         `json:"seconds"`
	Error     string          `json:"error,omitempty"`
}

// newReport returns a report whose list of calls is never null.
func newReport(model string) *report { return &report{Model: model, Calls: []callReport{}} }

// observe adds an event. It is part of Agent.Observe, which is called for one event at a time.
func (r *report) observe(e Event, host *Host) {
	switch e.Kind {
	case TurnEnded:
		r.Turns++
		r.context = e.Response.Usage.TotalTokens
		r.Model = cmp.Or(e.Response.Model, r.Model)
		r.FinishReason = e.Response.FinishReason
	case CallEnded:
		tool, _ := host.Tool(e.Call.Name)
		call := callReport{
			Name:      e.Call.Name,
			Server:    tool.Server,
			Arguments: json.RawMessage(e.Call.Arguments),
			Bytes:     len(e.Output.Text),
			Seconds:   e.Took.Seconds(),
		}
		if e.Err != nil {
			call.Error = e.Err.Error()
		}
		r.Calls = append(r.Calls, call)
	}
}

// finish adds the answer, the tokens that were used, and whether the question failed.
func (r *report) finish(answer string, usage Usage, err error) {
	r.Answer = answer
	if usage != (Usage{}) {
		r.Usage = &usage
	}
	// If the question failed, the reason of a whole answer was given by an earlier turn.
	isOfEarlierTurn := slices.Contains([]string{"", "stop", "tool_calls"}, r.FinishReason)
	if err != nil && isOfEarlierTurn {
		r.FinishReason = "error"
	}
}

// tokenCount describes how many tokens were used. Some servers do not count them.
func tokenCount(u Usage) string {
	if u == (Usage{}) {
		return "tokens not reported"
	}
	return fmt.Sprintf("%d tokens (%d in, %d out)",
		u.TotalTokens, u.PromptTokens, u.CompletionTokens)
}
