package main

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"gotest.tools/v3/assert"
)

// TestGoTools: a function of the program is listed and called as a tool.
func TestGoTools(t *testing.T) {
	ctx := context.Background()
	tools := GoTools{{Function: Function{Name: "echo", Description: "Says it back."}, Run: agentEcho}}
	functions, err := tools.Functions(ctx)
	assert.NilError(t, err)
	assert.DeepEqual(t, functions, []Function{{Name: "echo", Description: "Says it back."}})

	output, err := tools.Call(ctx, ToolCall{Name: "echo", Arguments: `{"a":1}`})
	assert.NilError(t, err)
	assert.DeepEqual(t, output, ToolOutput{Text: `{"a":1}`})
	_, err = tools.Call(ctx, ToolCall{Name: "other"})
	assert.Error(t, err, `there is no tool "other"`)
}

// TestJoinToolboxes: each call goes to the box that listed its function, the first where several
// did, and a list that fails leaves that of its box in use, also where it was never there.
func TestJoinToolboxes(t *testing.T) {
	ctx := context.Background()
	first := &agentFailing{Toolbox: agentTools{"both": agentGives(ToolOutput{Text: "the first"}, nil)}}
	second := &agentFailing{Toolbox: agentTools{
		"both": agentGives(ToolOutput{Text: "the second"}, nil),
		"own":  agentGives(ToolOutput{Text: "of the second"}, nil),
	}}
	joined := JoinToolboxes(first, second)
	_, err := joined.Call(ctx, ToolCall{Name: "own"})
	assert.Error(t, err, `there is no tool "own"`)

	second.err = errors.New("no list")
	lists := func(want ...string) {
		t.Helper()
		functions, err := joined.Functions(ctx)
		assert.NilError(t, err)
		var names []string
		for _, function := range functions {
			names = append(names, function.Name)
		}
		assert.DeepEqual(t, names, want)
	}
	lists("both")
	second.err = nil
	lists("both", "own")
	second.err = errors.New("no list")
	lists("both", "own")
	ended, end := context.WithCancel(ctx)
	end()
	_, err = joined.Functions(ended)
	assert.Error(t, err, "no list")
	first.err = errors.New("nor here")
	_, err = joined.Functions(ctx)
	assert.Error(t, err, "nor here\nno list")
	for name, want := range map[string]string{"both": "the first", "own": "of the second"} {
		output, err := joined.Call(ctx, ToolCall{Name: name})
		assert.NilError(t, err)
		assert.Equal(t, output.Text, want)
	}
}

// agentFailing is a toolbox whose list fails while err is set.
type agentFailing struct {
	Toolbox
	err error
}

func (f *agentFailing) Functions(ctx context.Context) ([]Function, error) {
	if f.err != nil {
		return nil, f.err
	}
	return f.Toolbox.Functions(ctx)
}

// TestAgentNames: the enumerations of the agent print their names.
func TestAgentNames(t *testing.T) {
	actions := fmt.Sprint(Run, Answer, Refuse, Edit, Action(9))
	assert.Equal(t, actions, "run answer refuse edit Action(9)")
	kinds := fmt.Sprint(TurnEnded, CallStarted, CallEnded, ToolsFailed, LastTurn, EventKind(0))
	assert.Equal(t, kinds, "turn ended call started call ended tools failed last turn EventKind(0)")
}
