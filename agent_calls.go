// agent_calls.go - the calls of one turn: which of them run, and what the model is told of each.
// Needs: Go 1.25, mistral.
// SPDX-License-Identifier: 0BSD

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// acceptedName matches what the API takes as the name of a function.
var acceptedName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

const (
	maxParallel = 16   // calls that run at once
	maxRefusals = 3    // of equal calls; after that Decide is not asked about them
	maxQuoted   = 1000 // bytes of a model's own words that an error repeats to it

	// maxExcess bounds how many calls of a message beyond MaxCalls are kept, each with its answer.
	// A model that repeats itself makes thousands of them, which would fill the history.
	maxExcess = 100
)

// equalCalls counts the calls of one function with equal arguments: the same call, made again and
// again. A model that has lost its way repeats a call although its result stays the same.
//
//   - admit counts a call when it is let through, before it has a result, as the calls of one turn
//     run at the same time.
//   - At MaxRepeats a further such call is not run. Only this call is refused, and the model is
//     told why; the question goes on.
//   - countResult, when a call has ended, begins to count anew where its result, or another call
//     since, shows that a repetition can give something new.
type equalCalls struct {
	count    int    // admitted, since anything may have changed
	refusals int    // of Decide
	result   string // of the call that ended last; "" before the first
}

// callAll answers every call of a message. Before anything is asked or run, each call has an answer
// in the history, which reports an interrupted call. The outcome replaces it: the history is valid
// whatever happens in between. Of calls far beyond MaxCalls the model is told only how many they
// were: see maxExcess.
func (x *questionRun) callAll(ctx context.Context, answer *ChatResponse) {
	message := answer.Message
	kept := min(len(message.ToolCalls), max(0, x.maxCalls()-x.calls)+maxExcess)
	leftOut := len(message.ToolCalls) - kept
	// The calls are changed, and what Observe got stays as it came.
	message.ToolCalls = slices.Clone(message.ToolCalls[:kept])
	GiveIDs(message.ToolCalls)
	pending := TextContent("Error: " + errInterrupted.Error())
	var jobs []*job
	var results []ChatMessage
	for i, call := range message.ToolCalls {
		j := &job{
			Event:  Event{Kind: CallEnded, Call: call},
			answer: len(x.History) + 1 + i,
		}
		j.Err = x.check(j, answer.CutOff())
		jobs = append(jobs, j)
		message.ToolCalls[i] = j.Call
		results = append(results, ChatMessage{
			Role:       "tool",
			ToolCallID: j.Call.ID,
			Name:       j.Call.Name,
			Content:    pending,
		})
	}
	x.History = append(x.History, message)
	x.History = append(x.History, results...)
	if leftOut > 0 {
		last := jobs[kept-1]
		last.Err = fmt.Errorf("%w; the %d calls after this one were left out", last.Err, leftOut)
	}

	var approved []*job
	for _, j := range jobs {
		if j.Err == nil && x.approve(ctx, j) {
			approved = append(approved, j)
		} else {
			x.endJob(j)
		}
	}
	x.runJobs(ctx, approved)
}

// job is a call on its way to its answer. While it runs, Output, Err and Took belong to the
// goroutine that runs it, and all else to Chat's. That goroutine hands the job back when it ends.
type job struct {
	Event              // its CallEnded
	answer int         // the place of its answer in the history
	note   string      // for the model, before the tool's text: the arguments are not its own
	equal  *equalCalls // nil if it does not run

	readOnly bool // see Function
}

// check brings a job's call into a form that can be sent again. Its error tells the model why the
// call is not run.
func (x *questionRun) check(j *job, isCutOff bool) error {
	name, arguments := j.Call.Name, j.Call.Arguments
	// Also arguments that are not valid go back to the API with the history, which wants an object.
	object, key, invalid := ParseArguments(arguments)
	j.Call.Arguments = cmp.Or(object, "{}")
	at := slices.IndexFunc(x.functions, func(f Function) bool { return f.Name == name })
	// The call goes back to the API with the history, which would be refused for such a name.
	if at < 0 && !acceptedName.MatchString(name) {
		j.Call.Name = "unknown"
	}
	x.calls++
	// The order is that of what helps the model most: a name that does not exist comes before
	// arguments, which belong to another function.
	switch {
	case x.calls > x.maxCalls():
		x.lastReason = &LimitError{x.maxCalls(), "calls per question"}
		return fmt.Errorf("not run: %w", x.lastReason)
	case at < 0:
		return x.noSuchFunction(name)
	case isCutOff:
		// The arguments can be valid all the same: "{}" may be what was left of none.
		return errors.New("not run: the message was cut off at its length limit; " +
			"make fewer or shorter calls")
	case invalid != nil:
		return fmt.Errorf("%w; they were: %s", invalid, Clip(arguments, maxQuoted))
	}
	return x.admit(j, name+" "+key, x.functions[at].ReadOnly)
}

// maxCalls is how many calls the model may make for a question.
func (x *questionRun) maxCalls() int { return max(0, cmp.Or(x.MaxCalls, defaultMaxCalls)) }

// noSuchFunction tells the model that it called a function that it was not offered.
func (x *questionRun) noSuchFunction(name string) error {
	if x.Missing != nil {
		if err := x.Missing(name); err != nil {
			return err
		}
	}
	// Models that made a name up often find the right one in the list.
	names := make([]string, len(x.functions))
	for i, f := range x.functions {
		names[i] = f.Name
	}
	list := cmp.Or(strings.Join(names, ", "), "none")
	return fmt.Errorf("there is no tool %.100q; the tools are: %s", name, Clip(list, maxQuoted))
}

// admit lets a call run and counts it among those with the same key (see equalCalls), or returns
// the error that tells the model why it is not run: it was repeated MaxRepeats times, or the user
// has refused it maxRefusals times. Without these limits the model would go on until MaxTurns.
func (x *questionRun) admit(j *job, key string, readOnly bool) error {
	equal := x.equal[key]
	if equal == nil {
		equal = new(equalCalls)
		x.equal[key] = equal
	}
	maxRepeats := cmp.Or(x.MaxRepeats, defaultMaxRepeats)
	if equal.refusals >= maxRefusals {
		return fmt.Errorf("%w %d times: do without it", ErrRefused, maxRefusals)
	}
	if equal.count >= maxRepeats {
		limit := &LimitError{maxRepeats, "equal calls with equal results"}
		return fmt.Errorf("not run: %w; use the result that you have, or change something first",
			limit)
	}
	equal.count++
	j.equal = equal
	j.readOnly = readOnly
	return nil
}

// approve reports whether Decide lets the job run. If not, the job has its outcome. After ctx has
// ended nobody is asked: runJobs says that the call was interrupted.
func (x *questionRun) approve(ctx context.Context, j *job) bool {
	var decision Decision
	if x.Decide != nil && ctx.Err() == nil {
		decision = x.Decide(ctx, j.Call)
	}
	if ctx.Err() != nil {
		return true
	}
	switch decision.Action {
	case Run:
		return true
	case Answer:
		j.Output.Text = decision.Text
	case Edit:
		object, _, err := ParseArguments(decision.Text)
		if err == nil {
			j.Call.Arguments = object
			j.note = fmt.Sprintf(
				"(The user changed the arguments of this call to %s.)\n", object)
			return true
		}
		j.Err = fmt.Errorf("%w: the user changed the arguments, but %w", ErrRefused, err)
	default:
		j.equal.refusals++
		j.Err = fmt.Errorf("%w: %s", ErrRefused, cmp.Or(decision.Text, "no reason was given"))
	}
	j.equal = nil
	return false
}

// runJobs runs jobs concurrently and returns when the last of them has ended. It owns their
// goroutines, the only ones of this family, and waits for each, also when a callback panics. After
// ctx has ended it starts no more.
func (x *questionRun) runJobs(ctx context.Context, jobs []*job) {
	var goroutines sync.WaitGroup
	defer goroutines.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// There is room for all that run, so that handing back never blocks.
	ended := make(chan *job, maxParallel)

	running := 0
	for _, j := range jobs {
		if running == maxParallel {
			x.endJob(<-ended)
			running--
		}
		if ctx.Err() != nil {
			j.Err = errInterrupted
			x.endJob(j)
			continue
		}
		x.observe(Event{Kind: CallStarted, Call: j.Call})
		running++
		goroutines.Go(func() {
			began := time.Now()
			j.Output, j.Err = x.Tools.Call(ctx, j.Call)
			j.Took = time.Since(began)
			ended <- j
		})
	}
	for range running {
		x.endJob(<-ended)
	}
}

// endJob writes a job's outcome into the history.
func (x *questionRun) endJob(j *job) {
	text := j.Output.Text
	if j.Err == nil && j.Output.IsError {
		j.Err = errors.New(cmp.Or(text, "the tool reported an error without a text"))
	}
	if j.Err != nil {
		text = "Error: " + j.Err.Error()
	}
	// The history is saved and sent as JSON, which has no other text than UTF-8.
	text = j.note + cmp.Or(text, "(The tool returned no text.)")
	text = strings.ToValidUTF8(text, "\uFFFD")
	text = Clip(text, cmp.Or(x.MaxResult, defaultMaxResult))
	message := &x.History[j.answer]
	message.Content = TextContent(text)
	message.Images = j.Output.Images
	if j.equal != nil {
		x.countResult(j, text)
	}
	x.observe(j.Event)
}

// countResult begins to count repeated calls anew where a repetition can give something new.
//
// If an equal call gives another result than the time before, the model is polling for something:
// the count of this call goes back to 1. The counts of calls with another function or other
// arguments go back to 0 then, and also after any call that is not known to be read-only: what they
// read may have changed.
func (x *questionRun) countResult(j *job, text string) {
	isNew := j.equal.result != "" && j.equal.result != text
	j.equal.result = text
	if isNew {
		j.equal.count = 1
	}
	if j.readOnly && !isNew {
		return
	}
	for _, other := range x.equal {
		if other != j.equal {
			other.count = 0
		}
	}
}
