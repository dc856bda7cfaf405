// agent.go - the function-calling loop.
// Needs: Go 1.25, mistral.
// SPDX-License-Identifier: 0BSD

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// ErrNoAnswer reports that the model gave no text even in its last turn. It is wrapped with the
// reason for that turn.
var ErrNoAnswer = errors.New("the model gave no answer")

// ErrCutOff is the error of an answer that ended at the model's length limit.
var ErrCutOff = errors.New("the answer was cut off at the model's length limit: " +
	"ask for a shorter one or for the rest")

// ErrRefused is the error of a call that Decide refused, wrapped with the reason given.
var ErrRefused = errors.New("the call was refused")

var errInterrupted = errors.New("the question was interrupted before this call had a result")

// LimitError reports a limit of the Agent that was reached.
type LimitError struct {
	Max  int
	Unit string // what there may be Max of
}

func (e *LimitError) Error() string { return fmt.Sprintf("limit of %d %s reached", e.Max, e.Unit) }

// Model is what the agent asks: a *Mistral, what stands before one, or a model of one's own, as in
// ExampleModel.
type Model interface {
	// Complete returns the next message of the conversation in r, which it must not change. Only
	// Message need be set, and of that the Content, made with TextContent, or the ToolCalls, or
	// both. A call needs the Name of a function in r.Tools, and its Arguments unless there are
	// none. The agent sets the role, and an id for each call that has none of its own. An answer
	// that is cut off has the FinishReason "length".
	//
	// Where onText is not nil, it is called with all text of the answer before Complete returns, in
	// one piece or in many, never two at once: who reads along sees no other text.
	//
	// With an error, Complete returns what arrived of the answer, or nil. It must return soon after
	// ctx ends. Chat never has two calls at once.
	Complete(
		ctx context.Context, r *ChatRequest, onText func(text string),
	) (*ChatResponse, error)
}

// Toolbox is what the agent may call.
type Toolbox interface {
	// Functions lists what may be called, under names that the API takes. It is called before every
	// model turn. An error ends the question in its first turn; a later turn uses the list of the
	// turn before.
	Functions(ctx context.Context) ([]Function, error)

	// Call runs one call of a function that Functions listed; call.Arguments is a JSON object. It
	// is called concurrently, at most 16 at a time, and must return soon after ctx ends: Chat waits
	// for it. The model is told of any error.
	Call(ctx context.Context, call ToolCall) (ToolOutput, error)
}

// Action is what is to be done with a call.
type Action int

const (
	// Run runs it.
	Run Action = iota

	// Answer gives the model Decision.Text as the result, and does not run it.
	Answer

	// Refuse tells the model that it was refused, for the reason Decision.Text.
	Refuse

	// Edit runs it with the arguments Decision.Text, a JSON object, and tells the model so.
	Edit
)

func (a Action) String() string {
	switch a {
	case Run:
		return "run"
	case Answer:
		return "answer"
	case Refuse:
		return "refuse"
	case Edit:
		return "edit"
	}
	return fmt.Sprintf("Action(%d)", int(a))
}

// Decision is what the caller decides on one call. The zero value runs it.
type Decision struct {
	Action Action
	Text   string
}

// EventKind determines which fields of an Event are set.
type EventKind int

const (
	// TurnEnded has the Response of the model, and Err if that is not whole.
	TurnEnded EventKind = iota + 1

	// CallStarted has the Call.
	CallStarted

	// CallEnded has Call, Took, Output and Err. It comes once for every call in the history, also
	// for one that never started.
	CallEnded

	// ToolsFailed has in Err why the tools could not be listed again. The turn uses the list of the
	// turn before.
	ToolsFailed

	// LastTurn has in Err why the coming turn is the last, in which no tool may be called.
	LastTurn
)

func (k EventKind) String() string {
	switch k {
	case TurnEnded:
		return "turn ended"
	case CallStarted:
		return "call started"
	case CallEnded:
		return "call ended"
	case ToolsFailed:
		return "tools failed"
	case LastTurn:
		return "last turn"
	}
	return fmt.Sprintf("EventKind(%d)", int(k))
}

// Event is something that happened during a question.
type Event struct {
	Kind EventKind
	// Call is as in the history, but with the arguments of an Edit, if there was one.
	Call ToolCall
	Took time.Duration // of the tool alone
	Err  error         // nil for a call that succeeded

	// Output of a CallEnded is what the Toolbox gave, before its text was cut to MaxResult.
	Output ToolOutput

	// Response is the model's, unchanged. Its CutOff reports whether it is whole.
	Response *ChatResponse
}

// Agent is a conversation with a model that may call tools. Only Model is required. No field may
// change during a Chat. Its functions run on Chat's own goroutine, never two at once.
type Agent struct {
	Model  Model
	Tools  Toolbox // nil means none
	System string  // sent before History, not part of it

	// Instructions, if set, returns what is sent behind System. It is called before every model
	// turn, when the tools have been listed: that is when the servers say how to use them.
	Instructions func() string

	// OnText, if set, gets all text of the model as it is streamed, also what it says beside calls.
	OnText func(string)

	// Decide is asked about the calls of a turn that can run, in call order, before the first of
	// them starts: an interrupt at the question means that none has run. It must return soon after
	// ctx ends. Nil runs every call.
	Decide func(ctx context.Context, call ToolCall) Decision

	// Missing, if set, returns why a function that may exist is not listed, for the model to read.
	Missing func(name string) error

	// Observe, if set, gets every event. The tries of a model request go to Mistral.OnRetry.
	Observe func(Event)

	// A limit of 0 means the default in parentheses. A limit below 0 allows nothing.
	MaxTurns   int // turns per question in which the model may call tools (20); one more follows
	MaxCalls   int // calls per question (100)
	MaxRepeats int // equal calls with equal results, while no other call may change them (10)
	MaxResult  int // bytes of one result (64 KiB), most of them from its head; see Clip

	// History is valid for the API after every way out of Chat: each call has one answer, and the
	// assistant's message is last.
	History []ChatMessage
	Usage   Usage // of the last question, all its turns together
}

// The defaults of Agent's limits.
const (
	defaultMaxTurns   = 20
	defaultMaxCalls   = 100
	defaultMaxRepeats = 10
	defaultMaxResult  = 64 << 10
)

// cutOff ends an answer in the history that is not whole.
const cutOff = "[The answer was cut off here.]"

// Chat asks a question, with images (see ChatMessage), and returns the answer, after as many turns
// of tool calls as the limits allow. When a limit is reached, the model has one last turn, in which
// it may not call tools. If it gives no text there either, the error is ErrNoAnswer with the reason
// for the last turn. What goes wrong with a call is told to the model. Otherwise Chat fails only if
// the model does, if its answer is not whole, if ctx ends, or if the tools cannot be listed in the
// first turn. It then returns the text so far, kept in the history with the calls made. A question
// of which nothing came is taken out, so that it can be asked again.
func (a *Agent) Chat(ctx context.Context, question string, images ...string) (string, error) {
	x := &questionRun{Agent: a, equal: make(map[string]*equalCalls)}
	// It is deferred, so that a panic of a callback leaves a valid history, too.
	defer x.settle()
	a.Usage = Usage{}
	a.History = append(a.History,
		ChatMessage{Role: "user", Content: TextContent(question), Images: images})
	maxTurns := cmp.Or(a.MaxTurns, defaultMaxTurns)
	for x.turn = 1; ; x.turn++ {
		if x.turn > maxTurns && x.lastReason == nil {
			x.lastReason = &LimitError{maxTurns, "model turns per question"}
		}
		answer, err := x.askModel(ctx)
		text := answer.Message.Content.Text()
		switch {
		case err != nil:
			x.partial = text
			return text, err
		case len(answer.Message.ToolCalls) > 0:
			// Where ctx has ended, the calls are answered all the same, and the next request fails.
			x.callAll(ctx, &answer)
		case strings.TrimSpace(text) != "":
			a.History = append(a.History, answer.Message)
			return text, nil
		case x.lastReason != nil:
			return "", fmt.Errorf("%w: %w", ErrNoAnswer, x.lastReason)
		default:
			// The API refuses a message without text and calls in a history, so it is left out.
			// Most models do better when they are asked without tools.
			x.lastReason = errors.New("its message had neither text nor calls")
		}
	}
}

// questionRun is one question with all its turns. It belongs to Chat's goroutine.
type questionRun struct {
	*Agent
	turn       int                    // from 1
	lastReason error                  // why the coming turn is the last; nil if it is not
	functions  []Function             // the tools of this turn
	partial    string                 // text of an answer that is not whole
	calls      int                    // made by the model, whatever became of them
	equal      map[string]*equalCalls // calls that could run, by name and canonical arguments
}

// askModel makes one model turn. With an error, it returns what arrived of the answer.
func (x *questionRun) askModel(ctx context.Context) (ChatResponse, error) {
	if x.lastReason != nil {
		x.observe(Event{Kind: LastTurn, Err: x.lastReason})
	}
	err := x.listFunctions(ctx)
	if err != nil {
		return ChatResponse{}, err
	}
	response, err := x.Model.Complete(ctx, x.request(), x.OnText)
	if err == nil {
		err = checkResponse(response)
	}
	if response == nil {
		return ChatResponse{}, err
	}
	// A copy is changed, so that Observe gets the response as it came.
	answer := *response
	// A Model need not set the role, for which settle looks.
	answer.Message.Role = "assistant"
	if x.lastReason != nil {
		// Some servers ignore tool_choice, as Ollama does.
		answer.Message.ToolCalls = nil
	}
	// Where the message has calls, their results tell the model that it was cut off.
	if err == nil && answer.CutOff() && len(answer.Message.ToolCalls) == 0 {
		err = ErrCutOff
	}
	x.Usage.Add(answer.Usage)
	x.observe(Event{Kind: TurnEnded, Response: response, Err: err})
	return answer, err
}

// checkResponse returns what a Model has got wrong that cannot be set right, nil if nothing.
func checkResponse(r *ChatResponse) error {
	if r == nil {
		return errors.New("the model returned neither an answer nor an error")
	}
	content := r.Message.Content
	if len(content) > 0 && !json.Valid(content) {
		return errors.New("the Content of the model's message is not JSON: " +
			"make it of a text with TextContent")
	}
	return nil
}

// listFunctions lists the tools anew. A list that fails in a later turn ends no question: the model
// goes on with the list of the turn before.
func (x *questionRun) listFunctions(ctx context.Context) error {
	if x.Tools == nil {
		return nil
	}
	functions, err := x.Tools.Functions(ctx)
	if err == nil {
		x.functions = functions
		return nil
	}
	if x.turn == 1 || ctx.Err() != nil {
		return fmt.Errorf("list tools: %w", err)
	}
	x.observe(Event{Kind: ToolsFailed, Err: err})
	return nil
}

// request makes the request of a turn. The last turn, too, has the tools, with a choice that
// forbids them: some servers refuse a history with calls of tools that the request does not have.
func (x *questionRun) request() *ChatRequest {
	request := &ChatRequest{Messages: x.History, Tools: x.functions}
	system := x.System
	if x.Instructions != nil {
		system = strings.TrimSpace(system + "\n\n" + x.Instructions())
	}
	if system != "" {
		first := ChatMessage{Role: "system", Content: TextContent(system)}
		request.Messages = slices.Concat([]ChatMessage{first}, x.History)
	}
	if x.lastReason != nil {
		request.ToolChoice = "none"
	}
	return request
}

// settle ends the history with an assistant's message, as not every server accepts a user's message
// after a tool's. A question of which nothing came is taken out.
func (x *questionRun) settle() {
	last := len(x.History) - 1
	switch {
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
