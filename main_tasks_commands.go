// main_tasks_commands.go - the command tasks: what is open, and how it ends.
// SPDX-License-Identifier: 0BSD

package main

import (
	"context"
	"errors"
	"time"
)

// listedTask is a task as tasks -json prints it.
type listedTask struct {
	ID      string    `json:"id"`
	Server  string    `json:"server"`
	Tool    string    `json:"tool"`
	Begun   time.Time `json:"begun"`
	State   string    `json:"state"` // of the server; or forgotten, or unknown
	Message string    `json:"message,omitempty"`
}

// openTasks lists the tasks that have not ended, waits for one, or with -cancel ends one.
func (c *serverCommands) openTasks(ctx context.Context, ids ...string) error {
	switch {
	case len(ids) > 1 || c.settings.cancelTask && len(ids) == 0:
		return usageError("tasks takes the id of one task, or nothing: then it lists all")
	case len(ids) == 0:
		return c.listTasks(ctx)
	}
	task, err := c.taskNamed(ids[0])
	if err != nil {
		return err
	}
	if c.settings.cancelTask {
		return c.cancelTask(ctx, task)
	}
	result, err := c.servers.waitForTask(ctx, task)
	if err != nil {
		return &exitError{exitTool, c.servers.explain(err)}
	}
	return c.giveResult(ctx, task.Tool, result)
}

// listTasks lists the tasks that are kept, with their states. A server that cannot be asked does
// not keep the others from the list.
func (c *serverCommands) listTasks(ctx context.Context) error {
	list := []listedTask{}
	text := ""
	for _, t := range c.servers.tasks.load() {
		l := listedTask{ID: t.ID, Server: t.Server, Tool: t.Tool, Begun: t.Begun, State: "unknown"}
		state, err := c.servers.taskState(ctx, &t)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, ErrTaskForgotten):
			l.State = "forgotten"
			l.Message = "the server does not know it any more, and it is dropped from this list"
		case err != nil:
			l.Message = c.servers.explain(err).Error()
		default:
			l.State, l.Message = state.Status, state.Message
		}
		list = append(list, l)
		line := OneName(l.Server) + ":" + OneName(l.Tool) + ", started " +
			l.Begun.Local().Format(time.DateTime) + ", " + l.State
		if l.Message != "" {
			line += ": " + l.Message
		}
		text += OneName(l.ID) + "\n" + Indent(oneLine([]byte(line)), "    ")
	}
	if len(list) == 0 {
		c.output.note("there are no open tasks")
	}
	return c.output.give(ctx, nil, text, text, list)
}

// taskNamed returns the task of an id, which may be written as the list shows it. A task that no
// run has kept can be asked for if there is one server only.
func (c *serverCommands) taskNamed(id string) (*keptTask, error) {
	for _, t := range c.servers.tasks.load() {
		if t.ID == id || OneName(t.ID) == id {
			return &t, nil
		}
	}
	if len(c.servers.config.servers) != 1 {
		return nil, exitWith(exitUsage, "no open task has the id %.100q (see: mcpagent tasks); "+
			"with -server, the id is looked up on that server", id)
	}
	server := &c.servers.config.servers[0]
	source := sourceHash(server)
	return &keptTask{
		ID:     id,
		Server: server.Name,
		Source: source,
		Tool:   "the task",
		path:   taskRecords.path(source, id),
	}, nil
}

// cancelTask asks the server to end a task, and forgets it.
func (c *serverCommands) cancelTask(ctx context.Context, t *keptTask) error {
	client, err := c.servers.clientOf(ctx, t)
	if err == nil {
		err = client.CancelTask(ctx, t.ID)
	}
	if err == nil || errors.Is(err, ErrTaskForgotten) {
		t.drop()
	}
	if err != nil {
		return &exitError{exitTool, c.servers.explain(err)}
	}
	c.output.note("%s: the server was asked to end it", OneName(t.ID))
	return nil
}
