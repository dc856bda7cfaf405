// terminal_events.go - what is shown of an agent's events: calls that begin and end, and notes.
// SPDX-License-Identifier: 0BSD

package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Observe is for Agent.Observe. On a terminal that draws, a call that begins is shown by the status
// alone; elsewhere each event is a line.
func (v *View) Observe(e Event) {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch e.Kind {
	case TurnEnded:
		v.endText()
		v.wait.began = time.Time{}
		if e.Err == nil {
			v.showEnding(e.Response)
		}
	case CallStarted:
		if !v.Screen.Live {
			v.line(maxShownArguments, "> %s %s", e.Call.Name, e.Call.Arguments)
		}
	case CallEnded:
		ended := func(c *viewCall) bool { return c.id == e.Call.ID }
		v.calls = slices.DeleteFunc(v.calls, ended)
		// After the last call, the model is awaited again.
		if len(v.calls) == 0 {
			v.wait.began = time.Now()
			v.wait.progress = ""
			v.retry = viewRetry{}
		}
		v.showEnd(e)
		v.saveFiles(e)
	case ToolsFailed:
		v.line(0, "the tools could not be listed again: %v", e.Err)
	case LastTurn:
		v.line(0, "%v: asking for an answer without tools", e.Err)
	}
}

// showEnding tells where a message of the model is not whole, or may not be. Of calls their
// arguments show it. It needs the lock.
func (v *View) showEnding(r *ChatResponse) {
	hasCalls := len(r.Message.ToolCalls) > 0
	switch {
	case r.CutOff():
		v.line(0, "the model's message was cut off at its length limit")
	case !r.SaysWhole() && !hasCalls:
		v.line(0, "the model's server did not say that this answer is whole (finish_reason %q)",
			r.FinishReason)
	}
}

// line shows a line, cut to so many columns if that is not 0. It needs the lock.
func (v *View) line(columns int, format string, args ...any) {
	if !v.Quiet {
		v.Screen.Show(Look{Max: columns}, fmt.Sprintf(format, args...))
	}
}

// showEnd shows the end of a call. Where lines can be drawn again, it is a line as wide as the
// window, and the reason of a failure, or the beginning of the result, stands below. It needs the
// lock.
func (v *View) showEnd(e Event) {
	if v.Quiet {
		return
	}
	outcome := v.outcome(e)
	arguments := readableJSON(e.Call.Arguments, false)
	about := fmt.Sprintf("%s (%s) %s", v.Name(e.Call.Name), outcome, arguments)
	s := v.Screen
	// Separate keeps calls that follow each other together. A reason that begins with the outcome,
	// as "not run: a limit" does, is not to say it twice.
	switch {
	case s.Live && isCancelled(e):
		// The user knows why, as they have done it.
		s.Separate("call")
		s.Show(Look{Style: Faint, Max: s.Columns()}, "✗ "+about)
	case s.Live && e.Err != nil:
		s.Separate("call")
		s.Show(Look{Style: Red, Max: s.Columns()}, "✗ "+about)
		s.Preview(Look{Max: maxShownError}, about, e.Err.Error())
	case s.Live:
		s.Separate("call")
		s.Show(Look{Style: Green, Max: s.Columns()}, "✓ "+about)
		s.PreviewOf(Look{Style: Faint}, about, jsonLine(e.Output.Text),
			LayOutJSON(e.Output.Text, s.Columns()-Width(LineMark)))
	case isCancelled(e):
		v.line(maxShownError, "< %s %s", e.Call.Name, outcome)
	case e.Err != nil:
		reason := strings.TrimPrefix(e.Err.Error(), outcome+": ")
		v.line(maxShownError, "< %s %s: %s", e.Call.Name, outcome, reason)
	default:
		v.line(0, "< %s %s%s", e.Call.Name, outcome, s.KeepText(about, e.Output.Text))
	}
}

// isCancelled reports whether a call that was running has ended because the user cancelled it.
func isCancelled(e Event) bool { return e.Took > 0 && errors.Is(e.Err, ErrCancelled) }

// outcome says how a call has ended. One that took no time has not run.
func (v *View) outcome(e Event) string {
	took := ShownTime(e.Took)
	switch {
	case e.Took == 0 && e.Err != nil:
		return "not run"
	case e.Took == 0:
		return "answered by you"
	case isCancelled(e):
		return "cancelled after " + took
	case e.Err != nil:
		return "failed after " + took
	}
	outcome := took + ", " + Plural(len(e.Output.Text), "byte")
	if v.MaxResult > 0 && len(e.Output.Text) > v.MaxResult {
		outcome += fmt.Sprintf(", the model gets %d", v.MaxResult)
	}
	return outcome
}

// ShownTime returns how long something took, in milliseconds, or from a second on in tenths of it.
func ShownTime(took time.Duration) string {
	unit := time.Millisecond
	if took >= time.Second {
		unit = 100 * time.Millisecond
	}
	return took.Round(unit).String()
}

// saveFiles saves what a result has for files, also where nothing is shown of it.
func (v *View) saveFiles(e Event) {
	result, ok := e.Output.Result.(*ToolResult)
	if !ok || v.Save == nil {
		return
	}
	for _, file := range ResultFiles(result, v.MaxFiles, v.Save) {
		if !v.Quiet {
			v.Screen.Show(Look{Exact: true}, "  "+file)
		}
	}
}
