// main_report.go - the report of a question: what -json prints, and the line below an answer.
// SPDX-License-Identifier: 0BSD

package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// report is the JSON that a question prints with -json. Without it, and in a chat, the user gets
// its summary.
type report struct {
	Answer       string       `json:"answer"`
	FinishReason string       `json:"finish_reason"` // of the answer, as the API gave it, or error
	Calls        []callReport `json:"calls"`         // in the order in which they ended
	Turns        int          `json:"turns"`
	Usage        *Usage       `json:"usage"` // null if the API does not count tokens
	Model        string       `json:"model"`

	context int           // tokens of the last request and its answer; 0 if that is not known
	began   time.Time     // when the question was asked
	asked   time.Duration // for how long the user had been asked something before
	took    time.Duration // from the question to the answer, but for what the user was asked
}

type callReport struct {
	Name      string          `json:"name"`             // of the function: the model's name for it
	Server    string          `json:"server,omitempty"` // "" if there is no such tool
	Arguments json.RawMessage `json:"arguments"`
	Bytes     int             `json:"bytes"` // of the result
	Seconds   float64         `json:"seconds"`
	Error     string          `json:"error,omitempty"`
}

// begin makes this the report of a question that is asked now. Its list of calls is never null.
// asked is Prompter.Asked, here and in finish.
func (r *report) begin(model string, asked time.Duration) {
	*r = report{Model: model, Calls: []callReport{}, began: time.Now(), asked: asked}
}

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
func (r *report) finish(answer string, usage Usage, asked time.Duration, err error) {
	r.Answer = answer
	r.took = time.Since(r.began) - (asked - r.asked)
	if usage != (Usage{}) {
		r.Usage = &usage
	}
	// If the question failed, the reason of a whole answer was given by an earlier turn.
	isOfEarlierTurn := slices.Contains([]string{"", "stop", "tool_calls"}, r.FinishReason)
	if err != nil && isOfEarlierTurn {
		r.FinishReason = "error"
	}
}

// summary says what an answer took, on one line of so many columns: the tokens of all its requests,
// how much of the model's context the last of them fills, the calls and the time. What is not known
// is left out, as are calls if there were none. window is the model's context in tokens, 0 if that
// is not known.
func (r *report) summary(columns, window int) string {
	var long, short []string
	if r.Usage != nil {
		tokens := Plural(r.Usage.TotalTokens, "token")
		long, short = append(long, tokens), append(short, tokens)
	}
	if r.context > 0 && window > 0 {
		share := fmt.Sprintf("%d%%", r.context*100/window)
		if share == "0%" {
			share = "<1%"
		}
		long, short = append(long, share+" of the context"), append(short, share+" full")
	}
	if calls := len(r.Calls); calls > 0 {
		long, short = append(long, Plural(calls, "tool call")), append(short, Plural(calls, "call"))
	}
	took := ShownTime(r.took)
	line := strings.Join(append(long, took), " · ")
	if Width(line) > columns {
		line = strings.Join(append(short, took), " · ")
	}
	return line
}

// tokenCount describes how many tokens were used. Some servers do not count them.
func tokenCount(u Usage) string {
	if u == (Usage{}) {
		return "tokens not reported"
	}
	return fmt.Sprintf("%d tokens (%d in, %d out)",
		u.TotalTokens, u.PromptTokens, u.CompletionTokens)
}
