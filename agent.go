// agent.go - the function-calling loop.
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

// ErrNoAnswer reports that the model gave no text even in its last turn. It is wrapped with the reason for that turn.
var ErrNoAnswer = errors.New("the model gave no answer")

// ErrCutOff is the error of an answer that ended at the model's length limit.
var ErrCutOff = errors.New("the answer was cut off at the model's length limit: ask for a shorter one or for the rest")

// ErrRefused is the error of a call that Decide refused, wrapped with the reason given.
var ErrRefused = errors.New("the call was refused")

var errInterrupted = errors.New("the question was interrupted before this call had a result")

// LimitError reports a limit of the Agent that was reached.
type LimitError struct {
	Max  int
	Unit string // what there may be Max of
}

func (e *LimitError) Error() string { return fmt.Sprintf("limit of %d %s reached", e.Max, e.Unit) }

// Toolbox is what the agent may call.
type Toolbox interface {
	// Functions lists what may be called, under names that the API takes. It is called before every model turn. An error
	// ends the question in its first turn; a later turn uses the list of the turn before.
	Functions(ctx context.Context) ([]Function, error)

	// Call runs one call of a function that Functions listed; call.Arguments is a JSON object. It is called concurrently,
	// at most 16 at a time, and must return soon after ctx ends: Chat waits for it. The model is told of any error.
	Call(ctx context.Context, call ToolCall) (ToolOutput, error)
}

// Action is what is to be done with a call.
type Action int

const (
	Run    Action = iota // run it
	Answer               // give the model Decision.Text as its result, and do not run it
	Refuse               // tell the model that it was refused, for the reason Decision.Text
	Edit                 // run it with the arguments Decision.Text, a JSON object, and tell the model so
)

// Decision is what the caller decides on one call. The zero value runs it.
type Decision struct {
	Action Action
	Text   string
}

// EventKind determines which fields of an Event are set.
type EventKind int

const (
	TurnEnded   EventKind = iota + 1 // Response: the model has answered; Err if the answer is not whole
	CallStarted                      // Call
	CallEnded                        // Call, Took, Output, Err; once for every call, also for one that never started
	ToolsFailed                      // Err: the tools could not be listed again, the turn uses the list before
	LastTurn                         // Err: why the coming turn is the last, in which no tool may be called
)

// Event is something that happened during a question.
type Event struct {
	Kind     EventKind
	Call     ToolCall      // as in the history, but with the arguments of an Edit
	Took     time.Duration // of the tool alone
	Output   ToolOutput    // of a CallEnded: as the Toolbox gave it, before its text was cut to MaxResult
	Err      error         // nil for a call that succeeded
	Response *ChatResponse // as it came; CutOff reports whether it is whole
}

// Agent is a conversation with a model that may call tools. Only Model is required. No field may change during a Chat.
// OnText, Decide and Observe run on Chat's own goroutine, never two at once.
type Agent struct {
	Model interface { // a *Mistral, or what stands before one
		Complete(context.Context, *ChatRequest, func(string)) (*ChatResponse, error)
	}
	Tools  Toolbox      // nil means none
	System string       // sent before History, not part of it
	OnText func(string) // if set, all text of the model is streamed to it, also what it says beside calls

	// Decide is asked about the calls of a turn that can run, in call order, before the first of them starts: an
	// interrupt at the question means that none has run. It must return soon after ctx ends. Nil runs every call.
	Decide func(ctx context.Context, call ToolCall) Decision

	Missing func(name string) error // if set, returns why a function that may exist is not listed; the model is told
	Observe func(Event)             // if set, gets every event; the tries of a model request go to Model.OnRetry

	// A limit of 0 means the default in parentheses; one below 0 allows nothing.
	MaxTurns   int // model turns with tools per question (20), before a last turn without
	MaxCalls   int // calls per question (100)
	MaxRepeats int // equal calls with equal results while no other call may have changed anything (10)
	MaxResult  int // bytes of one result (64 KiB): three quarters of them from its head, the rest from its tail

	// History is valid for the API after every way out of Chat: each call has one answer, the assistant's is last.
	History []ChatMessage
	Usage   Usage // of the last question, all its turns together
}

var acceptedName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

const (
	maxParallel = 16                               // calls that run at once
	maxRefusals = 3                                // of equal calls, before Decide is not asked about them any more
	cutOff      = "[The answer was cut off here.]" // ends an answer in the history that is not whole
)

// Chat asks a question, with images (see ChatMessage), and returns the answer, after as many turns of tool calls as
// the limits allow. What goes wrong with a call is told to the model. Chat fails only if the model does, if its answer
// is not whole, if ctx ends, or if the tools cannot be listed in the first turn. It then returns the text so far, kept
// in the history with the calls made. A question of which nothing came is taken out, so that it can be asked again.
func (a *Agent) Chat(ctx context.Context, question string, images ...string) (string, error) {
	x := &questionRun{Agent: a, equal: make(map[string]*equalCalls)}
	defer x.settle() // deferred, so that a callback's panic leaves a valid history too
	a.Usage = Usage{}
	a.History = append(a.History, ChatMessage{Role: "user", Content: TextContent(question), Images: images})
	for x.turn = 1; ; x.turn++ {
		if limit := cmp.Or(a.MaxTurns, 20); x.last == nil && x.turn > limit {
			x.last = &LimitError{limit, "model turns per question"}
		}
		answer, err := x.ask(ctx)
		text := answer.Message.Content.Text()
		switch {
		case err != nil:
			x.partial = text
			return text, err
		case len(answer.Message.ToolCalls) > 0:
			x.callAll(ctx, &answer) // also where ctx has ended: the next request says so
		case strings.TrimSpace(text) != "":
			a.History = append(a.History, answer.Message)
			return text, nil
		case x.last != nil:
			return "", fmt.Errorf("%w: %w", ErrNoAnswer, x.last)
		default: // the API refuses such a message in a history; asked without tools, most models do better
			x.last = errors.New("its message had neither text nor calls")
		}
	}
}

// questionRun is one question with all its turns. It belongs to Chat's goroutine.
type questionRun struct {
	*Agent
	turn      int                    // from 1
	last      error                  // why the coming turn is the last; nil while tools may be called
	functions []Function             // as offered in this turn
	partial   string                 // text of an answer that is not whole
	calls     int                    // made by the model, whatever became of them
	equal     map[string]*equalCalls // calls that could run, by name and canonical arguments
}

// equalCalls counts calls of one function with equal arguments.
type equalCalls struct {
	count    int    // with equal results, since something may have changed
	refusals int    // by Decide
	result   string // of the last one; "" before it
}

// ask makes one model turn. With an error, it returns what arrived of the answer.
func (x *questionRun) ask(ctx context.Context) (ChatResponse, error) {
	request := &ChatRequest{Messages: x.History}
	if x.System != "" {
		request.Messages = slices.Concat([]ChatMessage{{Role: "system", Content: TextContent(x.System)}}, x.History)
	}
	if x.last != nil {
		x.observe(Event{Kind: LastTurn, Err: x.last})
		request.ToolChoice = "none" // the tools are sent all the same: some servers want those that the history calls
	}
	if x.Tools != nil {
		functions, err := x.Tools.Functions(ctx)
		switch {
		case err == nil:
			x.functions = functions
		case x.turn == 1 || ctx.Err() != nil:
			return ChatResponse{}, fmt.Errorf("list tools: %w", err)
		default:
			x.observe(Event{Kind: ToolsFailed, Err: err})
		}
	}
	request.Tools = x.functions
	response, err := x.Model.Complete(ctx, request, x.OnText)
	if response == nil {
		return ChatResponse{}, err
	}
	answer := *response // what Observe gets stays as it came
	if x.last != nil {
		answer.Message.ToolCalls = nil // of servers that ignore tool_choice, as Ollama does
	}
	if err == nil && answer.CutOff() && len(answer.Message.ToolCalls) == 0 { // else the calls are told of it
		err = ErrCutOff
	}
	x.Usage.Add(answer.Usage)
	x.observe(Event{Kind: TurnEnded, Response: response, Err: err})
	return answer, err
}

// callAll answers every call of a message. Before anything is asked or run, each call has an answer in the history,
// which reports an interrupted call. The outcome replaces it: the history is valid whatever happens in between.
func (x *questionRun) callAll(ctx context.Context, answer *ChatResponse) {
	message, pending := answer.Message, TextContent("Error: "+errInterrupted.Error())
	message.ToolCalls = slices.Clone(message.ToolCalls) // what Observe got stays as it came
	messages := []ChatMessage{message}
	var jobs []*job
	for i, call := range message.ToolCalls {
		j := &job{Event: Event{Kind: CallEnded, Call: call}, answer: len(x.History) + 1 + i}
		j.Err = x.check(j, answer.CutOff())
		jobs, message.ToolCalls[i] = append(jobs, j), j.Call
		messages = append(messages, ChatMessage{Role: "tool", ToolCallID: j.Call.ID, Name: j.Call.Name, Content: pending})
	}
	x.History = append(x.History, messages...)

	var approved []*job
	for _, j := range jobs {
		if j.Err == nil && x.approve(ctx, j) {
			approved = append(approved, j)
		} else {
			x.end(j)
		}
	}
	x.run(ctx, approved)
}

// job is a call on its way to its answer.
type job struct {
	Event                // its CallEnded; Output, Err and Took are the running goroutine's until it hands the job back
	answer   int         // where in the history
	readOnly bool        // see Function
	note     string      // for the model, before the tool's text: that the arguments are not its own
	equal    *equalCalls // nil if it does not run
}

// check brings a job's call into a form that can be sent again. Its error tells the model why the call is not run.
func (x *questionRun) check(j *job, cut bool) error {
	name, arguments := j.Call.Name, j.Call.Arguments
	object, key, err := ParseArguments(arguments)
	j.Call.Arguments = cmp.Or(object, "{}")
	at := slices.IndexFunc(x.functions, func(f Function) bool { return f.Name == name })
	if at < 0 && !acceptedName.MatchString(name) {
		j.Call.Name = "unknown"
	}
	key = name + " " + key
	equal := cmp.Or(x.equal[key], new(equalCalls))

	x.calls++
	maxCalls, maxRepeats := cmp.Or(x.MaxCalls, 100), cmp.Or(x.MaxRepeats, 10)
	switch {
	case x.calls > maxCalls:
		x.last = &LimitError{maxCalls, "calls per question"}
		return fmt.Errorf("not run: %w", x.last)
	case at < 0:
		names := make([]string, len(x.functions))
		for i, f := range x.functions {
			names[i] = f.Name
		}
		list := cmp.Or(Clip(strings.Join(names, ", "), 1000), "none")
		err = fmt.Errorf("there is no tool %.100q; the tools are: %s", name, list)
		if x.Missing != nil {
			err = cmp.Or(x.Missing(name), err)
		}
		return err
	case cut: // even if the arguments are valid: "{}" may be what was left of none
		return errors.New("not run: the message was cut off at its length limit; make fewer or shorter calls")
	case err != nil:
		return fmt.Errorf("%w; they were: %s", err, Clip(arguments, 1000))
	case equal.refusals >= maxRefusals:
		return fmt.Errorf("%w %d times: do without it", ErrRefused, maxRefusals)
	case equal.count >= maxRepeats:
		limit := &LimitError{maxRepeats, "equal calls with equal results"}
		return fmt.Errorf("not run: %w; use the result that you have, or change something first", limit)
	}
	equal.count++
	x.equal[key], j.equal, j.readOnly = equal, equal, x.functions[at].ReadOnly
	return nil
}

// approve reports whether Decide lets the job run. If not, the job has its outcome.
func (x *questionRun) approve(ctx context.Context, j *job) bool {
	var decision Decision
	if x.Decide != nil && ctx.Err() == nil {
		decision = x.Decide(ctx, j.Call)
	}
	switch {
	case decision.Action == Run, ctx.Err() != nil: // run says that the call was interrupted
		return true
	case decision.Action == Answer:
		j.Output.Text = decision.Text
	case decision.Action == Edit:
		object, _, err := ParseArguments(decision.Text)
		if err == nil {
			j.Call.Arguments = object
			j.note = fmt.Sprintf("(The user changed the arguments of this call to %s.)\n", object)
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

// run runs jobs concurrently and returns when the last of them has ended. It owns their goroutines, the only ones in
// this file, and waits for each, also when a callback panics. After ctx has ended it starts no more.
func (x *questionRun) run(ctx context.Context, jobs []*job) {
	var goroutines sync.WaitGroup
	defer goroutines.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan *job, maxParallel) // room for all that run, so that handing back never blocks

	next := 0
	for ended := range jobs {
		for ; next < min(len(jobs), ended+maxParallel); next++ {
			j := jobs[next]
			if ctx.Err() != nil {
				j.Err = errInterrupted
				done <- j
				continue
			}
			x.observe(Event{Kind: CallStarted, Call: j.Call})
			goroutines.Go(func() {
				began := time.Now()
				j.Output, j.Err = x.Tools.Call(ctx, j.Call)
				j.Took = time.Since(began)
				done <- j
			})
		}
		x.end(<-done)
	}
}

// end writes a job's outcome into the history.
func (x *questionRun) end(j *job) {
	text := j.Output.Text
	if j.Err == nil && j.Output.IsError {
		j.Err = errors.New(cmp.Or(text, "the tool reported an error without a text"))
	}
	if j.Err != nil {
		text = "Error: " + j.Err.Error()
	}
	text = strings.ToValidUTF8(j.note+cmp.Or(text, "(The tool returned no text.)"), "\uFFFD")
	text = Clip(text, cmp.Or(x.MaxResult, 64<<10))
	x.History[j.answer].Content, x.History[j.answer].Images = TextContent(text), j.Output.Images
	if equal := j.equal; equal != nil {
		changed := equal.result != "" && equal.result != text
		if changed { // polling may go on
			equal.count = 1
		}
		for _, other := range x.equal {
			if other != equal && (changed || !j.readOnly) {
				other.count = 0 // its result may be another one now
			}
		}
		equal.result = text
	}
	x.observe(j.Event)
}

// settle ends the history with an assistant's message: not every server accepts a user's message after a tool's.
func (x *questionRun) settle() {
	switch last := len(x.History) - 1; {
	case x.History[last].Role == "assistant":
	case x.History[last].Role == "user" && x.partial == "":
		x.History = x.History[:last]
	default:
		text := strings.TrimSpace(x.partial + "\n\n" + cutOff)
		x.History = append(x.History, ChatMessage{Role: "assistant", Content: TextContent(text)})
	}
}

func (x *questionRun) observe(e Event) {
	if x.Observe != nil {
		x.Observe(e)
	}
}
