// main_tasks.go - the tasks that have not ended: kept from one run of the program to the next.
// SPDX-License-Identifier: 0BSD

package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"
)

// A task goes on when this program has ended, however that came. So each task is in a file before
// it is waited for, and the file goes when the task has ended. What is left belongs to a run that
// was killed, or that lost its network: `mcpagent tasks` lists it, and the next run with the same
// session gives the result to the model.

const taskRecords records = "tasks"

const (
	maxKeptTasks = 200              // above it the oldest is forgotten
	askTaskTime  = 10 * time.Second // for the state of a task
)

// keptTask is a task in a file.
type keptTask struct {
	ID        string    `json:"id"`
	Server    string    `json:"server"` // its name
	Source    string    `json:"source"` // a hash of its command or URL: names change
	Tool      string    `json:"tool"`
	Arguments string    `json:"arguments"` // a hash, as they may be secret
	Begun     time.Time `json:"begun"`
	TTL       int64     `json:"ttlMs"`             // negative if the server keeps it without limit
	Session   string    `json:"session,omitempty"` // the file of -session
	Call      string    `json:"call,omitempty"`    // the id of the model's call in the session

	path string // of the file
}

// keptTasks are the open tasks of this run, in files that other runs find.
type keptTasks struct {
	output *output

	mu      sync.Mutex // guards the following
	session *keptSession
	told    []string // the ids of open tasks that the user has been told of
}

// callKey is the key of the id of the model's call in a ctx.
type callKey struct{}

// onTask keeps a task that has begun, and drops one that has ended: see ClientOptions.OnTask. If
// the task cannot be kept, the call goes on all the same.
func (k *keptTasks) onTask(ctx context.Context, s *Server, e TaskEvent) {
	source := sourceHash(s)
	path := taskRecords.path(source, e.ID)
	if path == "" {
		return
	}
	if e.Ended {
		_ = os.Remove(path)
		return
	}
	task := keptTask{
		ID:        e.ID,
		Server:    s.Name,
		Source:    source,
		Tool:      e.Tool,
		Arguments: fmt.Sprintf("%x", sha256.Sum256(e.Arguments)),
		Begun:     time.Now().UTC().Truncate(time.Second),
		TTL:       max(-1, e.TTL.Milliseconds()),
	}
	session := k.currentSession()
	saveErr := session.saveAsked()
	call, isOfModel := ctx.Value(callKey{}).(string)
	if file := session.file(); file != "" && isOfModel {
		task.Session, task.Call = file, call
	}
	// A task whose call cannot be saved is kept all the same: the command tasks finds it.
	err := errors.Join(saveErr, writeRecord(path, task))
	if err != nil {
		k.output.warn("the task %s of %s, or its question, is not kept: %v",
			OneName(e.ID), OneName(e.Tool), err)
	}
	k.forgetOldest()
}

// currentSession returns the session of this run, which has no file where there is no question.
func (k *keptTasks) currentSession() *keptSession {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.session == nil {
		return new(keptSession)
	}
	return k.session
}

// useSession sets the session of this run, for whose calls tasks are kept.
func (k *keptTasks) useSession(session *keptSession) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.session = session
}

// load returns the tasks that are kept, the oldest first. A file that is no task is left out.
func (k *keptTasks) load() []keptTask {
	var tasks []keptTask
	for _, path := range taskRecords.paths() {
		task := keptTask{path: path}
		err := readRecord(path, &task)
		if err == nil && task.ID != "" {
			tasks = append(tasks, task)
		}
	}
	slices.SortFunc(tasks, func(a, b keptTask) int {
		order := a.Begun.Compare(b.Begun)
		if order == 0 {
			order = cmp.Compare(a.ID, b.ID)
		}
		return order
	})
	return tasks
}

// forgetOldest drops the files above maxKeptTasks.
func (k *keptTasks) forgetOldest() {
	if len(taskRecords.paths()) <= maxKeptTasks {
		return
	}
	tasks := k.load()
	for i := range max(0, len(tasks)-maxKeptTasks) {
		tasks[i].drop()
	}
}

// drop forgets a task.
func (t *keptTask) drop() { _ = os.Remove(t.path) }

// describe names a task for a user.
func (t *keptTask) describe() string {
	return fmt.Sprintf("the task %s of %s:%s, started %s", OneName(t.ID), OneName(t.Server),
		OneName(t.Tool), t.Begun.Local().Format(time.DateTime))
}

// serverOf returns the name of the server of a task in this run, and an error if there is none: the
// server may have another name now.
func (s *servers) serverOf(t *keptTask) (string, error) {
	for i := range s.config.servers {
		if sourceHash(&s.config.servers[i]) == t.Source {
			return s.config.servers[i].Name, nil
		}
	}
	return "", fmt.Errorf("its server %s is not among the servers of this run",
		OneName(t.Server))
}

// clientOf returns a client of the server of a task.
func (s *servers) clientOf(ctx context.Context, t *keptTask) (*Client, error) {
	name, err := s.serverOf(t)
	if err != nil {
		return nil, err
	}
	return s.host.Client(ctx, name)
}

// taskState asks the server of a task how it stands. What the server does not know is dropped.
func (s *servers) taskState(ctx context.Context, t *keptTask) (*Task, error) {
	client, err := s.clientOf(ctx, t)
	if err != nil {
		return nil, err
	}
	soon, cancel := context.WithTimeoutCause(ctx, askTaskTime, &TimeoutError{After: askTaskTime})
	defer cancel()
	state, err := client.GetTask(soon, t.ID)
	if errors.Is(err, ErrTaskForgotten) {
		t.drop()
	}
	return state, err
}

// waitForTask waits for the result of a task, and drops the task if it has ended.
func (s *servers) waitForTask(ctx context.Context, t *keptTask) (*ToolResult, error) {
	client, err := s.clientOf(ctx, t)
	if err != nil {
		return nil, &TaskError{ID: t.ID, Open: true, Err: err}
	}
	view := s.output.newView(ctx, s.host, 0)
	view.Begin("")
	result, err := client.Task(ctx, t.ID, view.Progress(ToolCall{Name: t.Tool}))
	view.End()
	if !isStillOpen(err) {
		t.drop()
	}
	return result, err
}

// isStillOpen reports whether the wait for a task has ended before the task.
func isStillOpen(err error) bool {
	var failed *TaskError
	return errors.As(err, &failed) && failed.Open
}

// isNew reports whether the user has not been told of an open task yet, and notes that they are.
func (k *keptTasks) isNew(id string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	isNew := !slices.Contains(k.told, id)
	k.told = append(k.told, id)
	return isNew
}

// finishTasks gives the model the results of tasks of this session, which another run has begun:
// each becomes the answer of its call. With isAwaited, tasks that still run are waited for; without
// it, only those whose server asks something, as nobody else would answer. If ctx ends, the error
// is its cause. It returns the history with the answers.
func (s *servers) finishTasks(
	ctx context.Context,
	history []ChatMessage,
	maxResult int,
	isAwaited bool,
) ([]ChatMessage, error) {
	session := s.tasks.currentSession().file()
	if session == "" {
		return history, nil
	}
	history = slices.Clone(history)
	for _, t := range s.tasks.load() {
		if t.Session != session {
			continue
		}
		output, isOver := s.finishTask(ctx, &t, isAwaited)
		if ctx.Err() != nil {
			return history, context.Cause(ctx)
		}
		isCall := func(m ChatMessage) bool { return m.Role == "tool" && m.ToolCallID == t.Call }
		at := slices.IndexFunc(history, isCall)
		if at < 0 {
			if isOver {
				s.output.warn("its call is not in the session any more: the result is dropped")
			}
			continue
		}
		history[at].Content = TextContent(Clip(output.Text, maxResult))
		history[at].Images = output.Images
	}
	return history, nil
}

// finishTask returns what the model is told of a task, and whether the task is over.
func (s *servers) finishTask(
	ctx context.Context,
	t *keptTask,
	isAwaited bool,
) (told ToolOutput, isOver bool) {
	state, err := s.taskState(ctx, t)
	isOpen := err == nil && !state.Ended()
	if isOpen && s.tasks.isNew(t.ID) {
		s.output.warn("%s, is still open: %s", t.describe(),
			cmp.Or(oneLine([]byte(state.Message)), state.Status))
	}
	isQuestion := isOpen && state.Status == TaskInputRequired
	if isOpen && !isAwaited && !isQuestion {
		text := "(This call runs as a task on the server. It has no result yet.)"
		return ToolOutput{Text: text}, false
	}
	isOver = errors.Is(err, ErrTaskForgotten)
	var result *ToolResult
	if err == nil {
		result, err = s.waitForTask(ctx, t)
		isOver = !isStillOpen(err)
	}
	if err == nil {
		s.output.warn("%s, has ended: the model gets its result", t.describe())
		return ModelOutput(result), true
	}
	if ctx.Err() != nil {
		return ToolOutput{}, false
	}
	if isOver {
		s.output.warn("%s, has no result: %v", t.describe(), err)
		text := s.output.screen.Secrets.Mask("Error: " + err.Error())
		return ToolOutput{Text: text}, true
	}
	s.output.warn("%s, could not be asked: %v", t.describe(), err)
	text := "(This call runs as a task on the server, which cannot be reached now.)"
	return ToolOutput{Text: text}, false
}
