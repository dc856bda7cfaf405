// mcp_tasks.go - a tool that runs as a task: the call returns a name, and the result comes later.
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
	"sync"
	"sync/atomic"
	"time"
)

// Work that takes minutes should not hang on one connection. So a server may answer tools/call with
// a task in place of a result, and the client asks again and again how the task stands. The task
// has a name, by which another process can go on to wait for it. There are two forms:
//
//	                       2025-11-25                       2026-07-28, the extension
//	-------------------    -----------------------------    -----------------------------
//	who decides            the client, by a member task     the server, unasked
//	how does it stand?     tasks/get                        tasks/get
//	news without asking    notifications/tasks/status       notifications/tasks, subscribed to
//	the server asks        by requests of its own, while    in the answer to tasks/get;
//	                       tasks/result is under way        the replies go in tasks/update
//	the result             answers tasks/result             is in the answer to tasks/get
//	an end before its time tasks/cancel                     tasks/cancel
//
// CallTool hides all this: it returns the result, however the server came to it. taskWait.run is
// the life of a task from its first state to its last.
//
// In 2025-11-25 a client may run tasks, too: a question of the server then becomes one. This client
// does not declare that, so it answers each question in full, and ignores what a server asks of a
// task in it (tasks, task support and handling).

const (
	askedTTL     = 24 * time.Hour   // for which a server is asked to keep a task, in 2025-11-25
	toldInterval = 30 * time.Second // between two polls, where notifications tell of the task
	cancelTime   = 2 * time.Second  // for the answer to tasks/cancel, when a call is given up
	maxLostPolls = 5                // in a row, after which the server cannot be reached
)

// relatedTask names in _meta of a message the task that the message belongs to, in 2025-11-25.
const relatedTask = "io.modelcontextprotocol/related-task"

var errTaskFailed = errors.New("the task failed")

// TaskEvent tells of a task that CallTool waits for.
type TaskEvent struct {
	Task
	Tool      string
	Arguments json.RawMessage // a JSON object
	Ended     bool            // the task is over, or the server has been told that nobody waits
}

// Task waits for a task that was begun before, by this process or another one, and returns its
// result as CallTool does. Its errors are those of CallTool. A server that does not know the task
// gives a *TaskError with ErrTaskForgotten. When ctx ends, the task goes on: CancelTask ends it.
func (c *Client) Task(
	ctx context.Context,
	id string,
	report func(Progress),
) (*ToolResult, error) {
	r := taskRequest("tasks/get", id)
	err := checkTaskID(id)
	if err != nil {
		return nil, r.wrap(err)
	}
	// Its id stands for the wait, as that of the tools/call does in CallTool.
	call := &request{method: "task", subject: id, id: c.conn.NextID(), report: report}
	return c.waitForTask(ctx, &taskWait{client: c, call: call, id: id}, nil)
}

// GetTask asks the server how a task stands. If the server does not know the task, the error is a
// *TaskError with ErrTaskForgotten.
func (c *Client) GetTask(ctx context.Context, id string) (*Task, error) {
	state, err := c.getTask(ctx, id)
	if err != nil {
		return nil, err
	}
	return &state.Task, nil
}

// CancelTask asks the server to end a task. The server may end it later, or not at all. A server of
// 2025-11-25 refuses to end a task that has ended before: its error is an *Error, and the result
// can be fetched with Task. A server of this revision that did not declare tasks.cancel is not
// asked: see NotDeclaredError.
func (c *Client) CancelTask(ctx context.Context, id string) error {
	_, err := c.do(ctx, taskRequest("tasks/cancel", id))
	if !isForgotten(err) {
		return err
	}
	// The code of the refusal is the same, whether the task has ended or is not known.
	_, unknown := c.getTask(ctx, id)
	if errors.Is(unknown, ErrTaskForgotten) {
		return unknown
	}
	return err
}

// ListTasks returns the tasks that the server has of this client. Only 2025-11-25 has such a list,
// and few servers do; where there is none, it is empty.
func (c *Client) ListTasks(ctx context.Context) ([]Task, error) {
	return list[Task](ctx, c, "tasks/list", "tasks")
}

// taskRequest returns a request whose subject is a task. HTTP repeats the task's id as Mcp-Name, by
// which a proxy finds the process that has the task (extension tasks, routing headers).
func taskRequest(method, id string) *request {
	return &request{method: method, subject: id, params: members("taskId", id)}
}

// isForgotten reports whether an error is the answer of a server that does not know a task, or not
// as one that it can end: the code for both is -32602. A server that does not know the method has
// no tasks at all.
func isForgotten(err error) bool {
	var refusal *Error
	if !errors.As(err, &refusal) {
		return false
	}
	return refusal.Code == CodeInvalidParams || refusal.Code == CodeMethodNotFound
}

// getTask polls a task.
func (c *Client) getTask(ctx context.Context, id string) (*taskState, error) {
	r := taskRequest("tasks/get", id)
	raw, err := c.do(ctx, r)
	if isForgotten(err) {
		return nil, &TaskError{ID: id, Err: fmt.Errorf("%w (%w)", ErrTaskForgotten, err)}
	}
	if err != nil {
		return nil, err
	}
	state, err := readTask(raw)
	if err == nil && state.ID != id {
		err = &ProtocolError{fmt.Sprintf("the server answers with the task %.100q", state.ID)}
	}
	return state, r.wrap(err)
}

// runsAsTask reports whether CallTool asks for a task. Only 2025-11-25 leaves that to the client,
// for a server that has declared it: by what the tool says, and if that leaves it open, by
// ClientOptions.Tasks. What the tool says is in the list of tools, which is read if nobody has.
func (c *Client) runsAsTask(ctx context.Context, tool string) bool {
	if c.stateless.Load() || !c.Server.runsTasks() {
		return false
	}
	support, isListed := c.lists.taskSupport(tool)
	if !isListed {
		// If the list fails, the call goes out without a task, and the server says what is wrong.
		_, _ = c.ListTools(ctx)
		support, _ = c.lists.taskSupport(tool)
	}
	return support == "required" || support == "optional" && c.options.Tasks
}

// finishTask waits for the task that a server has answered to a tools/call. If the caller gives up,
// the server is asked to end the task.
func (c *Client) finishTask(
	ctx context.Context,
	r *request,
	first *taskState,
) (*ToolResult, error) {
	event := TaskEvent{Task: first.Task, Tool: r.subject, Arguments: r.arguments}
	c.tellOfTask(ctx, event)
	w := &taskWait{client: c, call: r, id: first.ID, isOurs: true}
	result, err := c.waitForTask(ctx, w, first)
	var task *TaskError
	event.Ended = !errors.As(err, &task) || !task.Open
	if event.Ended {
		c.tellOfTask(ctx, event)
	}
	return result, err
}

func (c *Client) tellOfTask(ctx context.Context, event TaskEvent) {
	if c.options.OnTask != nil {
		c.options.OnTask(ctx, event)
	}
}

// waitForTask runs a wait to its end. The wait has the time of a request: Timeout without news, and
// MaxTimeout in all.
func (c *Client) waitForTask(
	ctx context.Context,
	w *taskWait,
	first *taskState,
) (*ToolResult, error) {
	waiting, stop := w.begin(ctx)
	raw, err := w.run(waiting, first)
	stop()
	if err == nil && isAbsent(raw) {
		err = &ProtocolError{"the task is completed without a result"}
	}
	if err != nil {
		err = w.end(err)
		isNamed := !w.isOurs && errors.As(err, new(*TaskError))
		if isNamed {
			return nil, err
		}
		return nil, w.call.wrap(err)
	}
	result := new(toolResult)
	result.ReadResult(&scanner{text: raw})
	if result.err != nil {
		return nil, w.call.wrap(result.err)
	}
	c.warnLeftOut(w.call, result.left)
	return &result.ToolResult, nil
}

// taskWait is one wait for a task.
type taskWait struct {
	client *Client
	call   *request // its time, its report, and the number of the server's questions
	id     string
	isOurs bool // CallTool has begun the task, and ends it if nobody waits any more

	begun    time.Time
	isOver   bool               // the server has said that the task is over
	message  string             // the last one that was reported
	replied  map[string]bool    // the names of the questions that were answered
	fetching chan fetchedResult // one slot; nil if no tasks/result is under way
	lost     int                // requests in a row that were lost on the way

	news         chan *taskState // one slot: the state of the last notification
	isSubscribed bool
	isTold       atomic.Bool    // the server has agreed to tell of the task
	work         sync.WaitGroup // the goroutines of tasks/result and of the subscription
}

// fetchedResult is the outcome of tasks/result.
type fetchedResult struct {
	raw json.RawMessage
	err error
}

// run is the life of a task: it looks at one state of the task after the other, until the task has
// a result, and returns that. first is nil if no state is known yet.
func (w *taskWait) run(ctx context.Context, first *taskState) (json.RawMessage, error) {
	var err error
	state := first
	if state == nil {
		state, err = w.client.getTask(ctx, w.id)
	}
	for err == nil {
		w.isOver = w.isOver || state.Ended()
		isNews := true
		switch {
		case state.Status == TaskCancelled:
			return nil, &TaskError{ID: w.id, Err: withMessage(ErrTaskCancelled, state)}
		case !w.client.stateless.Load() && (state.Status == TaskInputRequired || w.isOver):
			// The server asks, and gives the result, while tasks/result is under way.
			isNews = w.fetch(ctx)
		case w.isOver:
			return w.outcome(state)
		case state.Status == TaskInputRequired:
			isNews, err = w.answer(ctx, state)
			if err != nil {
				return nil, err
			}
		}
		// A question that was answered before, and is repeated, is no sign that the work goes on.
		w.tell(state, isNews)
		var raw json.RawMessage
		raw, state, err = w.next(ctx, state)
		if raw != nil {
			return raw, nil
		}
	}
	return nil, err
}

// begin starts the time of the wait, and what tells of the task between two polls. The ctx that it
// returns ends with the time. stop returns when all goroutines of the wait have ended.
func (w *taskWait) begin(ctx context.Context) (waiting context.Context, stop func()) {
	c := w.client
	ctx, cancel := context.WithCancelCause(ctx)
	w.begun = time.Now()
	w.replied = make(map[string]bool)
	w.news = make(chan *taskState, 1)
	w.call.expire = cancel
	c.inFlight.addRequest(w.call)
	c.tasks.add(w)
	return ctx, func() {
		cancel(nil)
		w.work.Wait()
		c.tasks.remove(w)
		c.inFlight.removeRequest(w.call)
	}
}

// subscribe asks the server once to tell of the task, until ctx ends, on a goroutine that begin's
// stop waits for. A server need not do so: then the task is polled as before (extension tasks, task
// status notifications). In 2025-11-25 a server tells without a subscription, if it likes.
func (w *taskWait) subscribe(ctx context.Context) {
	_, isDeclared := w.client.Server.Extensions()[tasksExtension]
	if w.isSubscribed || !isDeclared || !w.client.stateless.Load() {
		return
	}
	w.isSubscribed = true
	w.work.Go(func() {
		l := new(listener)
		defer w.client.listeners.remove(l)
		_, _ = w.client.do(ctx, &request{
			method:   "subscriptions/listen",
			params:   members("notifications", map[string]any{"taskIds": []string{w.id}}),
			listener: l,
		})
		w.isTold.Store(false)
	})
}

// next waits for the next state, or for the result. A state comes by a notification, or by a poll
// when the interval is over.
func (w *taskWait) next(
	ctx context.Context,
	state *taskState,
) (raw json.RawMessage, next *taskState, err error) {
	w.subscribe(ctx)
	poll := w.poll(state)
	for {
		end := w.client.Done()
		if w.fetching != nil || len(w.news) > 0 {
			// What came before the end of the connection counts, and may be the result.
			end = nil
		}
		select {
		case <-ctx.Done():
			return nil, nil, context.Cause(ctx)
		case <-end:
			return nil, nil, w.client.Err()
		case next = <-w.news:
			if !w.client.stateless.Load() || next.isWhole() {
				return nil, next, nil
			}
			// Only the answer to tasks/get has what this notification lacks.
			poll = time.After(0)
		case f := <-w.fetching:
			w.fetching = nil
			if !w.mayRepeat(f.err) {
				// An error of the server is that of the tool, or says that the task is forgotten.
				w.isOver = w.isOver || f.err == nil || errors.As(f.err, new(*Error))
				return f.raw, nil, f.err
			}
			// The next state of the task begins another tasks/result.
			w.isOver = false
			poll = w.poll(state)
		case <-poll:
			next, err = w.client.getTask(ctx, w.id)
			if w.mayRepeat(err) {
				poll = w.poll(state)
				continue
			}
			if err == nil && w.isExpired(next) {
				err = &TaskError{ID: w.id, Err: fmt.Errorf("%w (%s)", ErrTaskExpired, next.TTL)}
			}
			return nil, next, err
		}
	}
}

// poll returns a channel that says when it is time for the next poll: after the server's interval.
// But a server that tells of the task is asked only now and then, and when the time to live is over
// the task is polled once more: the server may still have it. A task that is over is not polled,
// and the channel is nil.
func (w *taskWait) poll(state *taskState) <-chan time.Time {
	if w.isOver {
		return nil
	}
	pause := state.Every
	if w.isTold.Load() {
		pause = max(pause, toldInterval)
	}
	if state.TTL >= 0 {
		pause = min(pause, time.Until(w.begun.Add(state.TTL)))
	}
	return time.After(max(pause, minInterval))
}

// isExpired reports whether the time to live of a task that still works is over. It is counted from
// the begin of the wait: the clock of the server may be wrong.
func (w *taskWait) isExpired(state *taskState) bool {
	return state.TTL >= 0 && !state.Ended() && time.Since(w.begun) >= state.TTL
}

// mayRepeat reports whether a request was lost on the way, and may be sent again. It only reads,
// and the network may be away for a while, in which the task goes on.
func (w *taskWait) mayRepeat(err error) bool {
	if !isLost(err) {
		w.lost = 0
		return false
	}
	w.lost++
	return w.lost <= maxLostPolls
}

// isLost reports whether an error of a transport says that a message was lost on the way.
func isLost(err error) bool {
	var lost interface{ Lost() bool }
	return errors.As(err, &lost) && lost.Lost()
}

// fetch begins tasks/result, and reports whether it did: one that is under way goes on. The answer
// comes when the task has ended, so the request has no time of its own. Its goroutine hands the
// answer over without waiting; begin's stop waits for it.
func (w *taskWait) fetch(ctx context.Context) bool {
	if w.fetching != nil {
		return false
	}
	fetched := make(chan fetchedResult, 1)
	w.fetching = fetched
	w.work.Go(func() {
		r := taskRequest("tasks/result", w.id)
		r.isUntimed = true
		raw, err := w.client.do(ctx, r)
		fetched <- fetchedResult{raw, err}
	})
	return true
}

// answer answers the questions of a state, each once: the server repeats them until it has taken
// the replies (extension tasks, task update requests). It reports whether there was a new one.
func (w *taskWait) answer(ctx context.Context, state *taskState) (isNews bool, err error) {
	var questions map[string]question
	isInvalid := state.questions != nil && json.Unmarshal(state.questions, &questions) != nil
	if isInvalid {
		return false, &ProtocolError{"the questions of the task are not an object of requests"}
	}
	isAnswered := func(name string, _ question) bool { return w.replied[name] }
	maps.DeleteFunc(questions, isAnswered)
	if len(questions) == 0 {
		return false, nil
	}
	replies, err := w.client.askAll(ctx, w.call, questions)
	if err != nil {
		return false, err
	}
	for name := range questions {
		w.replied[name] = true
	}
	r := taskRequest("tasks/update", w.id)
	r.params = joinMembers(r.params, replies)
	for {
		_, err = w.client.do(ctx, r)
		if !w.mayRepeat(err) {
			return true, err
		}
		// Nobody is asked again because the network has lost the replies.
		select {
		case <-ctx.Done():
			return true, context.Cause(ctx)
		case <-time.After(state.Every):
		}
	}
}

// outcome returns what an ended task of the extension has come to.
func (w *taskWait) outcome(state *taskState) (json.RawMessage, error) {
	switch {
	case state.Status == TaskFailed && state.failure != nil:
		return nil, state.failure
	case state.Status == TaskFailed:
		return nil, &TaskError{ID: w.id, Err: withMessage(errTaskFailed, state)}
	}
	return state.result, nil
}

// withMessage adds to an error what the server says of the task.
func withMessage(err error, state *taskState) error {
	if state.Message == "" {
		return err
	}
	return fmt.Errorf("%w: %s", err, oneLine([]byte(state.Message)))
}

// tell gives the wait more time if a state is news, and reports the message of the state as
// progress, each once.
func (w *taskWait) tell(state *taskState, isNews bool) {
	var progress *Progress
	if state.Message != "" && state.Message != w.message {
		w.message = state.Message
		progress = &Progress{Message: state.Message}
	}
	if isNews {
		w.client.inFlight.signOfLife(w.call, progress)
	}
}

// end returns the error of a wait that has no result. If the task may still be running, the error
// says so:
//
//	the server has said that the task is over      it is not
//	the server does not know the task              it is not
//	the server cannot be reached, or is in trouble it is
//	anything else, and CallTool has begun the task it is asked to end, and is not if it agrees
//	anything else, in Client.Task                  it is
func (w *taskWait) end(err error) error {
	isUnreachable := isLost(err) || errors.Is(err, ErrClosed)
	isRefusal := errors.As(err, new(*Error))
	switch {
	case errors.Is(err, ErrTaskForgotten):
		return err
	case isUnreachable:
		// What is over has a result, which can be fetched later.
	case w.isOver:
		return err
	case !isRefusal && w.isOurs:
		ctx, cancel := context.WithTimeout(context.Background(), cancelTime)
		defer cancel()
		_, failed := w.client.do(ctx, taskRequest("tasks/cancel", w.id))
		if failed == nil || isForgotten(failed) {
			return err
		}
	}
	var known *TaskError
	if errors.As(err, &known) {
		err = known.Err
	}
	return &TaskError{ID: w.id, Open: true, Err: err}
}

// taskWaits are the waits of a connection, for the notifications about their tasks.
type taskWaits struct {
	mu      sync.Mutex // guards the following; never held while anything waits
	waiting map[*taskWait]bool
}

func (s *taskWaits) add(w *taskWait) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting[w] = true
}

func (s *taskWaits) remove(w *taskWait) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.waiting, w)
}

// tell hands the state of a notification to the waits for its task, on the reader. A state that
// nobody has looked at yet is replaced: the newer one says more.
func (s *taskWaits) tell(state *taskState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.waiting {
		if w.id != state.ID {
			continue
		}
		select {
		case <-w.news:
		default:
		}
		w.news <- state
	}
}

// acknowledge notes that the server has agreed to tell of these tasks.
func (s *taskWaits) acknowledge(ids []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.waiting {
		if slices.Contains(ids, w.id) {
			w.isTold.Store(true)
		}
	}
}

// withRelatedTask adds to the reply to a question the task that the question belongs to, as all
// messages about a task of 2025-11-25 name it (tasks, related task metadata).
func withRelatedTask(reply any, params json.RawMessage) (any, error) {
	var question struct {
		Meta struct {
			Task json.RawMessage `json:"io.modelcontextprotocol/related-task"`
		} `json:"_meta"`
	}
	_ = json.Unmarshal(params, &question)
	if question.Meta.Task == nil {
		return reply, nil
	}
	text, err := appendJSON(nil, reply)
	if err != nil {
		return nil, err
	}
	var members, meta map[string]json.RawMessage
	err = json.Unmarshal(text, &members)
	if err != nil {
		return nil, fmt.Errorf("the answer to a question must be an object: %w", err)
	}
	// What is no object could not hold the task, and is replaced.
	_ = json.Unmarshal(members["_meta"], &meta)
	withTask := make(map[string]json.RawMessage)
	maps.Copy(withTask, meta)
	withTask[relatedTask] = question.Meta.Task
	object := map[string]any{}
	for name, value := range members {
		object[name] = value
	}
	object["_meta"] = withTask
	merged, err := plainJSON(object)
	return json.RawMessage(merged), err
}
