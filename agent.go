// agent.go - the function-calling loop.
// Needs: Go 1.25, mistral.go.
// SPDX-License-Identifier: 0BSD

package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// ErrNoAnswer says that the model gave no text even in the last turn, in which it may not call tools. It is wrapped with the
// reason for that last turn: a *LimitError, or an empty message before it.
var ErrNoAnswer = errors.New("the model gave no answer")

// ErrRefused is the error of a call that Decide refused, wrapped with the reason given.
var ErrRefused = errors.New("the call was refused")

var (
	errEmpty       = errors.New("its message had neither text nor calls")
	errInterrupted = errors.New("the question was interrupted before this call had a result")
	errCut         = errors.New("not run: the message was cut off at its length limit in or after this call; make fewer or shorter calls")
	errNoResult    = errors.New("the tool ended without a result")
)

// LimitError names a bound of the Agent that was reached.
type LimitError struct {
	Max  int
	Unit string // what there may be Max of
}

func (e *LimitError) Error() string { return fmt.Sprintf("limit of %d %s reached", e.Max, e.Unit) }

// PanicError is the error of a call during which the Toolbox panicked.
type PanicError struct {
	Value any
	Stack []byte
}

func (e *PanicError) Error() string { return fmt.Sprintf("the tool panicked: %v", e.Value) }

// Toolbox is what the agent may call.
type Toolbox interface {
	// Functions lists what may be called, under names that the API takes. It is asked before every model turn. An error ends
	// the question if it is the first turn's, as there is nothing to go on with; a later turn uses the list before.
	Functions(ctx context.Context) ([]Function, error)

	// Call runs one call of a function that Functions listed; call.Arguments is a JSON object. It is called concurrently, at
	// most 16 at a time, and must return soon after ctx ends: Chat waits for it. Whatever it returns, the model is told.
	Call(ctx context.Context, call ToolCall) (ToolOutput, error)
}

// ToolOutput is the outcome of a call that reached its tool.
type ToolOutput struct {
	Text    string // what the model reads
	IsError bool   // the tool itself says that it failed
}

// Action is what is to be done with a call.
type Action int

const (
	Run    Action = iota // run it
	Answer               // give the model Decision.Text as its result, and do not run it
	Refuse               // tell the model that it was refused, for the reason Decision.Text
	Edit                 // run it with the arguments Decision.Text, a JSON object, and tell the model so
)

// Decision is the caller's word on one call. The zero value runs it.
type Decision struct {
	Action Action
	Text   string
}

// EventKind says which fields of an Event are set.
type EventKind int

const (
	TurnEnded   EventKind = iota + 1 // Response, Took: the model has answered
	CallStarted                      // Call
	CallEnded                        // Call, Took, Bytes, Err; once for every call, also for one that never started
	ToolsFailed                      // Err: the list of tools could not be read again, the turn uses the one before
	LastTurn                         // Err says why the coming turn is the last, in which no tool may be called
)

// Event is something that happened during a question.
type Event struct {
	Kind     EventKind
	Turn     int           // model turn of the question, from 1
	Call     ToolCall      // as the history has it, but with the arguments of an Edit
	Took     time.Duration // of the model's answer with its retries, or of the tool alone
	Bytes    int           // of the tool's text, before it was cut to MaxResult
	Err      error         // nil for a call that went well
	Response *ChatResponse // as it came; CutOff says whether it is whole
}

// Agent is a conversation with a model that may call tools. Only Model is required. One Chat at a time, and the fields are
// not to be changed while it runs.
//
// OnText, Decide and Observe run on Chat's own goroutine, never two at once. A limit of 0 means its default, in parentheses;
// one below 0 allows nothing.
type Agent struct {
	Model  *Mistral
	Tools  Toolbox      // nil means none
	System string       // sent before History, not part of it
	OnText func(string) // if set, all text of the model is streamed to it, also what it says beside calls

	// Decide is asked about a turn's calls one after the other, in call order, before the first of them starts: so running
	// tools do not print over the question, and an interrupt at the question means that no call of the turn has run.
	// Calls that could not run anyhow are not asked about. It must return soon after ctx ends. Nil runs every call.
	Decide func(ctx context.Context, call ToolCall) Decision

	// Observe, if set, is told what happens, but for new tries of a model request: those are told to Model.OnRetry, on the
	// same goroutine. (A Mistral may serve others too, so the agent does not put a function of its own there.)
	Observe func(Event)

	MaxTurns   int // model turns with tools per question (20); the last turn, without, comes on top
	MaxCalls   int // calls per question (100)
	MaxRepeats int // calls of one tool with equal arguments per question, run or refused (3)
	MaxResult  int // bytes of one result (64 KiB): three quarters of them from its head, the rest from its tail

	// History is accepted by the API after every way out of Chat, whatever question is next: every call has exactly
	// one answer, and the last message is the assistant's.
	History []Message
	Usage   Usage // of the last question, all its turns together
}

// maxParallel bounds the calls that run at once.
const maxParallel = 16

// cutOff stands in the history, after what was streamed if anything, where an answer did not come to its end.
const cutOff = "[The answer was cut off here.]"

// Chat asks a question and returns the model's answer, after as many turns of tool calls as the model wants and the limits
// allow. Whatever goes wrong with a call is told to the model, which can do something about it. Chat fails only if the model
// does, if ctx ends, or if the tools cannot be listed to begin with. A question of which nothing came is then taken
// out of the history, so that it can be asked again; otherwise the calls made and the text streamed so far stay.
func (a *Agent) Chat(ctx context.Context, question string) (string, error) {
	x := &exchange{Agent: a, start: len(a.History), repeats: make(map[string]int)}
	defer x.settle() // deferred, so that a callback's panic leaves a valid history too
	a.Usage = Usage{}
	a.History = append(a.History, Message{Role: "user", Content: Text(question)})

	maxTurns := cmp.Or(a.MaxTurns, 20)
	for {
		x.turn++
		if x.last == nil && x.turn > maxTurns {
			x.last = &LimitError{maxTurns, "model turns per question"}
		}
		answer, err := x.ask(ctx)
		if err != nil {
			return "", err
		}
		message := answer.Message
		if len(message.ToolCalls) > 0 && x.last == nil {
			x.callAll(ctx, answer)
			continue // also where ctx has ended: the next request says so
		}
		message.ToolCalls = nil // of servers that ignore tool_choice, as Ollama does
		if text := message.Content.Text(); strings.TrimSpace(text) != "" {
			a.History = append(a.History, message)
			return text, nil
		}
		if x.last != nil {
			return "", fmt.Errorf("%w: %w", ErrNoAnswer, x.last)
		}
		x.last = errEmpty // the API refuses such a message in a history; asked without tools, most models do better
	}
}

// exchange is one question with all its turns. It belongs to Chat's goroutine.
type exchange struct {
	*Agent
	start     int             // length of the history before the question
	turn      int             // from 1
	last      error           // why the coming turn is the last; nil while tools may be called
	functions []Function      // as offered in this turn
	streamed  strings.Builder // text of this turn's answer so far
	calls     int             // made by the model, whatever became of them
	repeats   map[string]int  // calls that could run, by name and canonical arguments
}

// ask makes one model turn.
func (x *exchange) ask(ctx context.Context) (*ChatResponse, error) {
	if x.last != nil {
		x.observe(Event{Kind: LastTurn, Err: x.last})
	}
	if x.Tools != nil {
		functions, err := x.Tools.Functions(ctx)
		switch {
		case err == nil:
			x.functions = functions
		case x.turn == 1 || ctx.Err() != nil:
			return nil, fmt.Errorf("list tools: %w", err)
		default:
			x.observe(Event{Kind: ToolsFailed, Err: err})
		}
	}
	request := &ChatRequest{Messages: x.History, Tools: x.functions}
	if x.System != "" {
		request.Messages = slices.Concat([]Message{{Role: "system", Content: Text(x.System)}}, x.History)
	}
	if x.last != nil && len(x.functions) > 0 {
		request.ToolChoice = "none" // the tools are sent all the same: some servers want those that the history calls
	}

	began := time.Now()
	var response *ChatResponse
	var err error
	if x.OnText == nil {
		response, err = x.Model.Complete(ctx, request)
	} else {
		response, err = x.Model.Stream(ctx, request, func(text string) {
			x.streamed.WriteString(text)
			x.OnText(text)
		})
	}
	if err != nil {
		return nil, err
	}
	x.streamed.Reset() // the response has it all
	x.Usage.PromptTokens += response.Usage.PromptTokens
	x.Usage.CompletionTokens += response.Usage.CompletionTokens
	x.Usage.TotalTokens += response.Usage.TotalTokens
	x.observe(Event{Kind: TurnEnded, Response: response, Took: time.Since(began)})
	return response, nil
}

// callAll answers every call of the response's message, and puts message and answers into the history.
//
// They are all there before anything is asked or run, each answer saying that the call was interrupted; what becomes of
// a call then replaces its answer. So the history has every answer, in call order, whatever happens in between.
func (x *exchange) callAll(ctx context.Context, response *ChatResponse) {
	message := response.Message
	calls := slices.Clone(message.ToolCalls) // the response in Observe's hands stays as it came
	jobs := make([]*job, len(calls))
	ids := map[string]bool{"": true} // taken
	for i := range calls {
		call := &calls[i]
		err := x.check(call, response.CutOff() && i == len(calls)-1)
		for ids[call.ID] { // the answers could not be told apart
			call.ID = rand.Text()[:9] // of the form that Mistral's own have
		}
		ids[call.ID] = true
		jobs[i] = &job{call: *call, err: err}
	}
	message.ToolCalls = calls
	x.History = append(x.History, message)
	for _, call := range calls {
		x.History = append(x.History, Message{
			Role: "tool", ToolCallID: call.ID, Name: call.Name, Content: Text(failure(errInterrupted)),
		})
	}
	answers := x.History[len(x.History)-len(calls):]

	var approved []*job
	for i, j := range jobs {
		j.answer = &answers[i]
		if j.err == nil && x.approve(ctx, j) {
			approved = append(approved, j)
		} else {
			x.end(j)
		}
	}
	x.run(ctx, approved)
}

// job is a call on its way to its answer in the history.
type job struct {
	call   ToolCall // as it runs
	edited bool     // with other arguments than the model's
	answer *Message
	output ToolOutput // these three are the running goroutine's until it hands the job back
	err    error
	took   time.Duration
}

// check brings a call into a form in which it can be sent again, and returns why it cannot be run, in words for the model.
func (x *exchange) check(call *ToolCall, cut bool) error {
	name, arguments := call.Name, call.Arguments
	object, key, err := parseArguments(arguments)
	call.Arguments = object
	known := slices.ContainsFunc(x.functions, func(f Function) bool { return f.Name == name })
	if !known {
		allowed := functionName(name)
		call.Name = cmp.Or(allowed[:min(len(allowed), maxFunctionName)], "unknown")
	}

	x.calls++
	maxCalls, maxRepeats := cmp.Or(x.MaxCalls, 100), cmp.Or(x.MaxRepeats, 3)
	switch {
	case x.calls > maxCalls:
		x.last = &LimitError{maxCalls, "calls per question"}
		return fmt.Errorf("not run: %w", x.last)
	case !known:
		return unknownTool(name, x.functions)
	case cut:
		return errCut // even if the arguments are valid: "{}" may be what was left of none
	case err != nil:
		return fmt.Errorf("%w; they were: %s", err, clip(arguments, 1000))
	}
	key = name + " " + key
	if x.repeats[key] >= maxRepeats {
		return fmt.Errorf("not run, use the results that you have: %w", &LimitError{maxRepeats, "equal calls per question"})
	}
	x.repeats[key]++
	return nil
}

// approve asks Decide. If the job is not to be run, it holds its outcome.
func (x *exchange) approve(ctx context.Context, j *job) bool {
	var decision Decision
	if x.Decide != nil && ctx.Err() == nil {
		decision = x.Decide(ctx, j.call)
	}
	switch {
	case ctx.Err() != nil:
		j.err = errInterrupted
	case decision.Action == Run:
		return true
	case decision.Action == Answer:
		j.output.Text = decision.Text
	case decision.Action == Edit:
		object, _, err := parseArguments(decision.Text)
		if err != nil {
			j.err = fmt.Errorf("%w: the user changed the arguments, but %w", ErrRefused, err)
			return false
		}
		j.call.Arguments, j.edited = object, true
		return true
	default:
		j.err = fmt.Errorf("%w: %s", ErrRefused, cmp.Or(decision.Text, "no reason was given"))
	}
	return false
}

// run runs jobs concurrently and returns when the last of them has ended. It owns their goroutines, the only ones in this
// file, and waits for each, also when a callback panics. When ctx ends, no more are started.
func (x *exchange) run(ctx context.Context, jobs []*job) {
	var goroutines sync.WaitGroup
	defer goroutines.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan *job, maxParallel) // room for all that run, so that handing back never blocks

	for running := 0; running > 0 || len(jobs) > 0; {
		if running == maxParallel || len(jobs) == 0 {
			x.end(<-done)
			running--
			continue
		}
		j := jobs[0]
		jobs = jobs[1:]
		if ctx.Err() != nil {
			j.err = errInterrupted
			x.end(j)
			continue
		}
		x.observe(Event{Kind: CallStarted, Call: j.call})
		running++
		goroutines.Go(func() {
			defer func() { done <- j }()
			j.run(ctx, x.Tools)
		})
	}
}

// run runs the call. It always leaves an outcome: a panic becomes an error, and so does runtime.Goexit.
func (j *job) run(ctx context.Context, tools Toolbox) {
	began := time.Now()
	j.err = errNoResult
	defer func() {
		j.took = time.Since(began)
		if value := recover(); value != nil {
			j.err = &PanicError{value, debug.Stack()}
		}
	}()
	j.output, j.err = tools.Call(ctx, j.call)
}

// end writes a job's outcome into the history.
func (x *exchange) end(j *job) {
	bytes, text := len(j.output.Text), j.output.Text
	if j.err == nil && j.output.IsError {
		j.err = errors.New(cmp.Or(text, "the tool reported an error without a text"))
	}
	if j.err != nil {
		text = failure(j.err)
	}
	text = cmp.Or(text, "(The tool returned no text.)")
	if j.edited { // first, where clip leaves it
		text = fmt.Sprintf("(The user changed the arguments of this call to %s.)\n%s", j.call.Arguments, text)
	}
	text = strings.ToValidUTF8(text, "\uFFFD")
	j.answer.Content = Text(clip(text, cmp.Or(x.MaxResult, 64<<10)))
	x.observe(Event{Kind: CallEnded, Call: j.call, Took: j.took, Bytes: bytes, Err: j.err})
}

// settle closes the history after the exchange. Not every server lets a user's message follow a tool's, nor is a model
// helped by a question that seems to be open still: where no answer came, an assistant's message says so.
func (x *exchange) settle() {
	switch {
	case x.History[len(x.History)-1].Role == "assistant":
	case len(x.History) == x.start+1 && x.streamed.Len() == 0:
		x.History = x.History[:x.start]
	default:
		text := strings.TrimSpace(x.streamed.String() + "\n\n" + cutOff)
		x.History = append(x.History, Message{Role: "assistant", Content: Text(text)})
	}
}

func (x *exchange) observe(e Event) {
	e.Turn = x.turn
	if x.Observe != nil {
		x.Observe(e)
	}
}

// failure is what the model reads of an error.
func failure(err error) string { return "Error: " + err.Error() }

// parseArguments returns a call's arguments as a JSON object to send on, "{}" if there are none, and a key that is the same for
// objects that differ only in white space and the order of members. Numbers are compared as they are written.
func parseArguments(text string) (object, key string, err error) {
	text = cmp.Or(strings.TrimSpace(text), "null") // two ways in which servers say that there are none
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber() // as float64, large numbers that differ would be equal
	var value any
	// Unmarshal first: it also finds what stands after the value, which Decode leaves unread.
	if err := cmp.Or(json.Unmarshal([]byte(text), new(json.RawMessage)), decoder.Decode(&value)); err != nil {
		return "{}", "", fmt.Errorf("the arguments are not valid JSON (%w)", err)
	}
	switch value.(type) {
	case nil:
		return "{}", "{}", nil
	case map[string]any:
		canonical, err := json.Marshal(value) // sorts the members
		return text, string(canonical), err
	}
	return "{}", "", errors.New("the arguments must be a JSON object")
}

func unknownTool(name string, functions []Function) error {
	names := make([]string, len(functions))
	for i, f := range functions {
		names[i] = f.Name
	}
	if near := closest(name, names); len(near) > 0 {
		return fmt.Errorf("there is no tool %.100q; the nearest are: %s", name, strings.Join(near, ", "))
	}
	return fmt.Errorf("there is no tool %.100q", name)
}

// closest returns those of names, at most three, that name is likely to have meant, the likeliest first.
func closest(name string, names []string) []string {
	name = name[:min(len(name), maxFunctionName)]
	near := make([][]string, max(1, len(name)/3)+1) // by distance; what is further away is another name
	for _, other := range names {
		if d := distance(strings.ToLower(name), strings.ToLower(other)); d < len(near) {
			near[d] = append(near[d], other)
		}
	}
	all := slices.Concat(near...)
	return all[:min(len(all), 3)]
}

// distance counts the bytes to insert, delete or replace to make b of a (Levenshtein). It is 0 if one begins or ends with the
// other, since what models forget or add first is a server's prefix.
func distance(a, b string) int {
	long, short := a, b
	if len(a) < len(b) {
		long, short = b, a
	}
	if short != "" && (strings.HasPrefix(long, short) || strings.HasSuffix(long, short)) {
		return 0
	}
	row := make([]int, len(b)+1) // from a[:i] to each b[:j]
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}

// clip shortens text to limit bytes, three quarters of them from its head and the rest from its tail, cut between runes. The line
// between them that says what is missing comes on top.
func clip(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	limit = max(limit, 0)
	head := limit * 3 / 4
	tail := len(text) - (limit - head)
	for head > 0 && !utf8.RuneStart(text[head]) {
		head--
	}
	for tail < len(text) && !utf8.RuneStart(text[tail]) {
		tail++
	}
	return fmt.Sprintf("%s\n[... %d bytes left out ...]\n%s", text[:head], tail-head, text[tail:])
}
