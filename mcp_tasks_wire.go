// mcp_tasks_wire.go - what the messages about a task hold, and what of it is refused.
// Needs: Go 1.25, json, rpc.
// SPDX-License-Identifier: 0BSD

package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// tasksExtension names the extension of the stateless era (the repository
// modelcontextprotocol/ext-tasks, specification/draft/tasks.md, and SEP-2663). Revision 2025-11-25
// has a capability tasks instead.
const tasksExtension = "io.modelcontextprotocol/tasks"

// The states of a task. The last three are final.
const (
	TaskWorking       = "working"
	TaskInputRequired = "input_required"
	TaskCompleted     = "completed"
	TaskFailed        = "failed"
	TaskCancelled     = "cancelled"
)

// The bounds on what a server says of a task.
const (
	maxTaskID   = 1024                   // bytes: the id is sent in a header, and kept in a file
	minInterval = 100 * time.Millisecond // between two polls, whatever the server asks for
	maxInterval = time.Minute
	maxTaskTTL  = 10 * 365 * 24 * time.Hour // a longer time to live is taken for this one
)

const defaultInterval = time.Second // between two polls, if the server does not say

// The reasons why a task has no result, which a TaskError wraps.
var (
	ErrTaskForgotten = errors.New("the server does not know this task, or no longer: " +
		"its result is lost")
	ErrTaskCancelled = errors.New("the task was cancelled")
	ErrTaskExpired   = errors.New("the time for which the server keeps the task is over")
)

// TaskError reports that the wait for a task has ended without its result. It wraps the reason.
type TaskError struct {
	ID string

	// Open reports that the task may still be running: Client.Task can wait for it again.
	Open bool
	Err  error
}

func (e *TaskError) Error() string {
	text := fmt.Sprintf("task %s: %v", visibleName(e.ID), e.Err)
	if e.Open {
		text += "; the task may still be running on the server"
	}
	return text
}

func (e *TaskError) Unwrap() error { return e.Err }

// Task is what a server says of a task: work that goes on beside the connection, under a name. Its
// messages have the members of MCP 2025-11-25, basic, utilities, tasks, data types, or those of the
// extension, whose times end in Ms.
type Task struct {
	ID      string        `json:"taskId"` // chosen by the server
	Status  string        `json:"status"` // one of the states above
	Message string        `json:"statusMessage,omitempty"`
	Created time.Time     `json:"createdAt,omitzero"` // by the server's clock; zero if unreadable
	TTL     time.Duration `json:"-"`                  // from Created on; negative means no limit
	Every   time.Duration `json:"-"`                  // the pause between two polls
}

// Ended reports whether the status is final.
func (t *Task) Ended() bool {
	return t.Status == TaskCompleted || t.Status == TaskFailed || t.Status == TaskCancelled
}

// UnmarshalJSON reads a task, and refuses one that cannot be followed with a *ProtocolError.
func (t *Task) UnmarshalJSON(text []byte) error {
	state, err := readTask(text)
	if err != nil {
		return err
	}
	*t = state.Task
	return nil
}

// taskState is a task together with what the extension adds to its status. In 2025-11-25 the result
// and the questions come by tasks/result.
type taskState struct {
	Task
	result    json.RawMessage // of a completed task
	failure   *Error          // of a failed task
	questions json.RawMessage // of a task that needs input: an object of them
}

// readTask reads a task in either form. A wrong time is no reason to give up work that goes on, so
// it is replaced: a missing or wrong interval by a second, a short or long one by the nearest
// bound, a wrong time to live by none, and a negative one by 0.
func readTask(text []byte) (*taskState, error) {
	var wire struct {
		ID            json.RawMessage `json:"taskId"`
		Status        string
		StatusMessage json.RawMessage
		CreatedAt     json.RawMessage
		TTL           json.RawMessage
		TTLMs         json.RawMessage
		Every         json.RawMessage `json:"pollInterval"`
		EveryMs       json.RawMessage `json:"pollIntervalMs"`
		Result        json.RawMessage
		Error         json.RawMessage
		InputRequests json.RawMessage
	}
	err := json.Unmarshal(text, &wire)
	if err != nil {
		return nil, &ProtocolError{fmt.Sprintf("not a task, but %.100s",
			cmp.Or(oneLine(text), "nothing"))}
	}
	state := &taskState{result: wire.Result, questions: wire.InputRequests}
	state.ID, err = readTaskID(wire.ID)
	if err != nil {
		return nil, err
	}
	state.Status = wire.Status
	switch state.Status {
	case TaskWorking, TaskInputRequired, TaskCompleted, TaskFailed, TaskCancelled:
	default:
		return nil, &ProtocolError{fmt.Sprintf("the task %s has the unknown status %.100q",
			visibleName(state.ID), wire.Status)}
	}
	// A message or a time of another type counts as absent.
	_ = json.Unmarshal(wire.StatusMessage, &state.Message)
	_ = json.Unmarshal(wire.CreatedAt, &state.Created)
	state.TTL = readMilliseconds(firstOf(wire.TTLMs, wire.TTL), -1, maxTaskTTL)
	every := readMilliseconds(firstOf(wire.EveryMs, wire.Every), defaultInterval, maxInterval)
	state.Every = max(every, minInterval)
	if wire.Error != nil && json.Unmarshal(wire.Error, &state.failure) != nil {
		state.failure = &Error{Code: CodeInternalError, Message: oneLine(wire.Error)}
	}
	return state, nil
}

// isWhole reports whether a state of the extension has what its status promises. A notification may
// lack it: in the extension's text it is all that tasks/get would answer, and in the type that
// stands beside the text it has a bare task.
func (s *taskState) isWhole() bool {
	switch s.Status {
	case TaskCompleted:
		return !isAbsent(s.result)
	case TaskFailed:
		return s.failure != nil
	case TaskInputRequired:
		return !isAbsent(s.questions)
	}
	return true
}

// readTaskID returns the id of a task, which is a text of 1 to maxTaskID bytes.
func readTaskID(raw json.RawMessage) (string, error) {
	var id string
	err := json.Unmarshal(raw, &id)
	if err != nil {
		return "", &ProtocolError{fmt.Sprintf("the id of the task is no text: %.100s",
			cmp.Or(string(raw), "it is absent"))}
	}
	return id, checkTaskID(id)
}

// checkTaskID returns an error if no task can have that id.
func checkTaskID(id string) error {
	if id == "" || len(id) > maxTaskID {
		return &ProtocolError{fmt.Sprintf("the id of a task has 1 to %d bytes, and this one has %d",
			maxTaskID, len(id))}
	}
	return nil
}

// readMilliseconds returns a time that is given in milliseconds, from 0 to most. It returns missing
// for what is no number, such as null.
func readMilliseconds(raw json.RawMessage, missing, most time.Duration) time.Duration {
	ms, err := strconv.ParseFloat(string(raw), 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		return missing
	}
	ms = min(max(ms, 0), float64(most/time.Millisecond))
	return time.Duration(ms) * time.Millisecond
}

// isAbsent reports whether a member is not there, or null.
func isAbsent(value json.RawMessage) bool { return len(value) == 0 || string(value) == "null" }

// firstOf returns the first value that is there.
func firstOf(values ...json.RawMessage) json.RawMessage {
	for _, value := range values {
		if value != nil {
			return value
		}
	}
	return nil
}

// newTask returns the task that the result of tools/call has, nil if it has none. In 2025-11-25 the
// task is a member of the result, and in the extension it is the result (create task result).
func newTask(result json.RawMessage, stateless bool) (*taskState, error) {
	if stateless {
		return readTask(result)
	}
	var wire struct{ Task json.RawMessage }
	err := json.Unmarshal(result, &wire)
	if err != nil || isAbsent(wire.Task) {
		return nil, nil
	}
	return readTask(wire.Task)
}

// TaskSupport returns how the tool runs in 2025-11-25: required means only as a task, optional
// as a task or not, and forbidden, which silence means, too, never as a task (tasks, tool-level
// negotiation).
func (t *Tool) TaskSupport() string {
	var execution struct{ TaskSupport string }
	_ = json.Unmarshal(t.Execution, &execution)
	switch execution.TaskSupport {
	case "required", "optional":
		return execution.TaskSupport
	}
	return "forbidden"
}

// runsTasks reports whether the server of the handshake era runs tools as tasks. Without this
// capability no tool is run as one, whatever the tool says.
func (s *ServerInfo) runsTasks() bool {
	capability := s.Capabilities["tasks"]
	if capability == nil {
		return false
	}
	var tasks struct {
		Requests struct {
			Tools struct{ Call json.RawMessage }
		}
	}
	err := json.Unmarshal(capability, &tasks)
	return err == nil && len(tasks.Requests.Tools.Call) > 0
}

// missingForTasks returns the capability of 2025-11-25 that a method about tasks needs, and the
// server did not declare, or "". The extension has tasks/get, tasks/update and tasks/cancel, and
// whoever has a task may send them.
func (s *ServerInfo) missingForTasks(verb string) string {
	if verb != "list" && (verb != "cancel" || s.Stateless()) {
		return ""
	}
	var verbs map[string]json.RawMessage
	_ = json.Unmarshal(s.Capabilities["tasks"], &verbs)
	if isAbsent(verbs[verb]) {
		return "tasks." + verb
	}
	return ""
}

// Extensions returns the settings of the extensions that the server declared, by their names, such
// as io.modelcontextprotocol/tasks (MCP 2026-07-28, basic, extensions). An extension is in force if
// both sides have declared it.
func (s *ServerInfo) Extensions() map[string]json.RawMessage {
	var extensions map[string]json.RawMessage
	_ = json.Unmarshal(s.Capabilities["extensions"], &extensions)
	return extensions
}
