// terminal_view.go - what is shown of an agent at work.
// SPDX-License-Identifier: 0BSD

package main

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// View shows what an agent does: its calls, their progress and results, and the text of the model. On a terminal
// whose lines can be drawn again, the last line says what the agent waits for; elsewhere each event is a line.
//
// Screen is required, and Name for calls; the fields are set before the first use. All methods may be called from any
// goroutine.
type View struct {
	Screen *Screen
	Quiet  bool                         // show nothing but the text
	Raw    bool                         // which goes out as it came
	Name   func(function string) string // how a function is shown: its server and tool

	// Save, if set, writes an image, or other bytes of a result, to a file, whose name it returns.
	Save func(data []byte, kind string) (path string, err error)

	MaxResult int // bytes of a result that the model gets; 0 if that is not known

	mu    sync.Mutex // guards the following; held while something is shown
	calls []*viewCall
	wait  viewCall // for what Begin names, such as the model; it began at zero if that is not awaited now
	text  *Stream  // the model's text; nil if none has come

	stop func() // ends the spinner; nil if there is none
}

// viewCall is a call that is running, or what else is awaited.
type viewCall struct {
	id       string
	name     string // as it is shown
	began    time.Time
	progress string    // the last report, with a blank before it; "" if there was none
	reported time.Time // when it came
}

const (
	maxShownArguments = 160 // columns, where no window bounds them
	maxShownError     = 400
	viewTick          = 100 * time.Millisecond
)

// Begin shows what is awaited, such as a model, until its text, its calls, or End.
func (v *View) Begin(awaited string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.Screen.Separate("")
	v.wait = viewCall{name: awaited, began: time.Now()}
	if v.Quiet || !v.Screen.Live {
		return
	}
	ended := make(chan struct{})
	var spinner sync.WaitGroup
	v.stop = func() { close(ended); spinner.Wait() }
	spinner.Go(func() { // until End, which waits for it
		tick := time.NewTicker(viewTick)
		defer tick.Stop()
		for frame := 0; ; frame++ {
			v.draw(frame)
			select {
			case <-tick.C:
			case <-ended:
				return
			}
		}
	})
}

// End shows the rest of the text, and nothing after it.
func (v *View) End() {
	if v.stop != nil {
		v.stop()
		v.stop = nil
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.endText()
	v.wait.began, v.calls = time.Time{}, nil
	v.Screen.Status("")
}

// Text shows a piece of the model's text, between Begin and End. What may be the beginning of a secret
// is kept back.
func (v *View) Text(piece string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.text == nil {
		v.text = v.Screen.NewStream(v.Raw)
	}
	v.text.Add(piece)
	if v.text.Begun() {
		v.wait.began = time.Time{}
	}
}

// endText ends the text and its line. It needs the lock.
func (v *View) endText() {
	if v.text != nil {
		v.text.Close()
		v.text = nil
	}
}

// Progress begins to show a call, until CallEnded or End, and returns what shows its progress. That returns at once.
func (v *View) Progress(call ToolCall) func(Progress) {
	v.mu.Lock()
	defer v.mu.Unlock()
	last := time.Now() // a short call needs no lines, and a long one not many
	c := &viewCall{id: call.ID, name: v.Name(call.Name), began: last}
	v.calls, v.wait.began = append(v.calls, c), time.Time{}
	return func(p Progress) {
		v.mu.Lock()
		defer v.mu.Unlock()
		c.progress, c.reported = fmt.Sprintf(" %g", p.Progress), time.Now()
		if p.Total > 0 {
			c.progress += fmt.Sprintf("/%g", p.Total)
		}
		c.progress += " " + p.Message
		if !v.Screen.Live && time.Since(last) >= viewTick && slices.Contains(v.calls, c) {
			last = time.Now()
			v.line(maxShownArguments, "  %s%s", call.Name, c.progress)
		}
	}
}

// Observe is for Agent.Observe.
func (v *View) Observe(e Event) {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch e.Kind {
	case TurnEnded:
		v.endText()
		v.wait.began = time.Time{}
		if e.Err == nil && e.Response.CutOff() {
			v.line(0, "the model's message was cut off at its length limit")
		}
	case CallStarted:
		if !v.Screen.Live {
			v.line(maxShownArguments, "> %s %s", e.Call.Name, e.Call.Arguments)
		}
	case CallEnded:
		v.calls = slices.DeleteFunc(v.calls, func(c *viewCall) bool { return c.id == e.Call.ID })
		if len(v.calls) == 0 {
			v.wait.began = time.Now()
		}
		v.ended(e)
	case ToolsFailed:
		v.line(0, "the tools could not be listed again: %v", e.Err)
	case LastTurn:
		v.line(0, "%v: asking for an answer without tools", e.Err)
	}
}

// line shows a line, cut to so many columns if that is not 0. It needs the lock.
func (v *View) line(columns int, format string, args ...any) {
	if !v.Quiet {
		v.Screen.Show(Look{Max: columns}, fmt.Sprintf(format, args...))
	}
}

// ended shows the end of a call: a line, which is as wide as the window where lines can be drawn again. There the
// reason of a failure, or the beginning of the result, stands below. It needs the lock.
func (v *View) ended(e Event) {
	took := e.Took.Round(time.Millisecond).String()
	outcome := took + ", " + Plural(len(e.Output.Text), "byte")
	if v.MaxResult > 0 && len(e.Output.Text) > v.MaxResult {
		outcome += fmt.Sprintf(", the model gets %d", v.MaxResult)
	}
	switch {
	case e.Took == 0 && e.Err != nil:
		outcome = "not run"
	case e.Took == 0:
		outcome = "answered by you"
	case e.Err != nil:
		outcome = "failed after " + took
	}
	s := v.Screen
	about := fmt.Sprintf("%s (%s) %s", v.Name(e.Call.Name), outcome, readableJSON(e.Call.Arguments, false))
	switch {
	case v.Quiet:
	case !s.Live && e.Err != nil:
		v.line(maxShownError, "< %s %s: %s", e.Call.Name, outcome, strings.TrimPrefix(e.Err.Error(), outcome+": "))
	case !s.Live:
		v.line(0, "< %s %s%s", e.Call.Name, outcome, s.KeepText(about, e.Output.Text))
	default:
		s.Separate("call")
		head, look, mark, text := Look{Style: Green, Max: s.Columns()}, Look{Style: Faint}, "✓", e.Output.Text
		if e.Err != nil {
			head.Style, look, mark, text = Red, Look{Max: maxShownError}, "✗", e.Err.Error()
		}
		s.Show(head, mark+" "+about)
		s.Preview(look, about, text)
	}
	if result, ok := e.Output.Result.(*ToolResult); ok && v.Save != nil {
		for _, file := range ResultFiles(result, v.Save) {
			if !v.Quiet {
				s.Show(Look{Exact: true}, "  "+file)
			}
		}
	}
}

// draw draws the status: what the agent waits for. Of several calls it is the one with the latest report.
func (v *View) draw(frame int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	c := &v.wait
	if len(v.calls) > 0 {
		c = slices.MaxFunc(v.calls, func(a, b *viewCall) int { return a.reported.Compare(b.reported) })
	}
	status := string([]rune("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏")[frame%10]) + " " + c.name
	if others := len(v.calls) - 1; others > 0 {
		status += fmt.Sprintf(" (+%d)", others)
	}
	if took := time.Since(c.began).Truncate(time.Second); took > 0 {
		status += " " + took.String()
	}
	if status += c.progress; c.began.IsZero() {
		status = ""
	}
	v.Screen.Status(status)
}
