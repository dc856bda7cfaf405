// agent_tools.go - Go functions as tools, and several toolboxes as one.
// Needs: Go 1.25, mistral.
// SPDX-License-Identifier: 0BSD

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
)

// GoTool is a tool that is a function of this program.
type GoTool struct {
	Function

	// Run is called as Toolbox.Call is. The arguments are a JSON object, which the agent does not
	// compare with Function.Parameters. A panic ends the program, as in any goroutine.
	Run func(ctx context.Context, arguments string) (ToolOutput, error)
}

// GoTools is a Toolbox of functions of this program. Their names are all different.
type GoTools []GoTool

// Functions lists the tools as they were given. There is no error.
func (tools GoTools) Functions(context.Context) ([]Function, error) {
	functions := make([]Function, len(tools))
	for i, tool := range tools {
		functions[i] = tool.Function
	}
	return functions, nil
}

// Call runs the tool that the call names.
func (tools GoTools) Call(ctx context.Context, call ToolCall) (ToolOutput, error) {
	at := slices.IndexFunc(tools, func(tool GoTool) bool { return tool.Name == call.Name })
	if at < 0 {
		return ToolOutput{}, fmt.Errorf("there is no tool %q", call.Name)
	}
	return tools[at].Run(ctx, call.Arguments)
}

// JoinToolboxes returns a Toolbox with the functions of all boxes, in the order of the boxes. Where
// several have a function of one name, that of the first box is listed and called: tools of the
// program that stand before those of servers cannot be replaced by a server.
//
// A box that cannot be listed stops no other: its last list counts, which is empty at first. So the
// functions of the program are there while no server of a Host is running, which Host.Status and,
// for the model, Host.Missing tell. An error means that no box could be listed, or that ctx ended.
func JoinToolboxes(boxes ...Toolbox) Toolbox {
	return &joinedToolboxes{boxes: boxes, lists: make([][]Function, len(boxes))}
}

// joinedToolboxes has to know which box a call is for. It remembers the last list of each box, as
// the agent, too, goes on with its last list when a new one fails.
type joinedToolboxes struct {
	boxes []Toolbox

	mu     sync.Mutex         // guards the following; never held while a box is called
	lists  [][]Function       // the last list of each box; nil before the first
	owners map[string]Toolbox // by the name of a function
}

func (j *joinedToolboxes) Functions(ctx context.Context) ([]Function, error) {
	var errs []error
	for i, box := range j.boxes {
		functions, err := box.Functions(ctx)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		j.setList(i, functions)
	}
	hasNone := len(errs) == len(j.boxes) || ctx.Err() != nil
	if len(errs) > 0 && hasNone {
		return nil, errors.Join(errs...)
	}
	return j.join(), nil
}

func (j *joinedToolboxes) setList(box int, functions []Function) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lists[box] = functions
}

// join returns the last lists as one, and notes which box each function is of.
func (j *joinedToolboxes) join() []Function {
	j.mu.Lock()
	defer j.mu.Unlock()
	var all []Function
	j.owners = make(map[string]Toolbox)
	for i, functions := range j.lists {
		for _, function := range functions {
			if j.owners[function.Name] == nil {
				j.owners[function.Name] = j.boxes[i]
				all = append(all, function)
			}
		}
	}
	return all
}

func (j *joinedToolboxes) Call(ctx context.Context, call ToolCall) (ToolOutput, error) {
	box := j.owner(call.Name)
	if box == nil {
		return ToolOutput{}, fmt.Errorf("there is no tool %q", call.Name)
	}
	return box.Call(ctx, call)
}

func (j *joinedToolboxes) owner(function string) Toolbox {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.owners[function]
}
