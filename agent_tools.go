// agent_tools.go - Go functions as tools, and several toolboxes as one.
// Needs: Go 1.25, mistral.
// SPDX-License-Identifier: 0BSD

package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
)

// GoTool is a tool that is a function of this program.
type GoTool struct {
	Function

	// Run is called as Toolbox.Call is. The arguments are a JSON object, which the agent does not
	// compare with Function.Parameters.
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
// program that stand before those of servers cannot be replaced by a server. If one box cannot be
// listed, none is: the error is that of the box.
func JoinToolboxes(boxes ...Toolbox) Toolbox {
	return &joinedToolboxes{boxes: boxes}
}

// joinedToolboxes has to know which box a call is for. It remembers the lists of the last call of
// Functions that succeeded, as the agent, too, goes on with its last list when a new one fails.
type joinedToolboxes struct {
	boxes []Toolbox

	mu     sync.Mutex         // guards owners; never held while a box is called
	owners map[string]Toolbox // by the name of a function; replaced, never changed
}

func (j *joinedToolboxes) Functions(ctx context.Context) ([]Function, error) {
	var all []Function
	owners := make(map[string]Toolbox)
	for _, box := range j.boxes {
		functions, err := box.Functions(ctx)
		if err != nil {
			return nil, err
		}
		for _, function := range functions {
			if owners[function.Name] == nil {
				owners[function.Name] = box
				all = append(all, function)
			}
		}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.owners = owners
	return all, nil
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
