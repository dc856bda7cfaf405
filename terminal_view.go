// terminal_view.go - what is shown of an agent while it works: its text, and what it waits for.
// SPDX-License-Identifier: 0BSD

package main

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

// View shows what an agent does: its calls, their progress and results, and the text of the model.
// On a terminal whose lines can be drawn again, the last line says what the agent waits for;
// elsewhere each event is a line.
//
// Screen is required, and Name for calls; the fields are set before the first use. All methods may
// be called from any goroutine: calls run at once, and each reports its progress when it likes. One
// goroutine, the spinner, draws the last line. It ends when End or another Begin stops it, and they
// wait for it without the lock, as it takes the lock to draw.
type View struct {
	Screen *Screen
	Quiet  bool                         // show nothing but the text
	Raw    bool                         // the text goes out as it came
	Name   func(function string) string // how a function is shown: its server and tool

	// Save, if set, writes an image, or other bytes of a result, to a file, whose name it returns.
	Save     func(data []byte, kind string) (path string, err error)
	MaxFiles int // of one result; 0 for no bound

	MaxResult int // bytes of a result that the model gets; 0 if that is not known

	mu    sync.Mutex // guards the following; held while something is shown
	begun bool       // since Begin there was no End
	calls []*viewCall
	wait  viewCall // what Begin names, such as the model; began is zero while it is not awaited
	retry viewRetry
	text  *Stream // of the model; nil if none has come
	stop  func()  // ends the spinner and waits for it, however often; nil if there was none
}

// viewCall is a call that is running, or what else is awaited.
type viewCall struct {
	id       string
	name     string // shown of it
	began    time.Time
	progress string    // the last report, with a blank before it; "" if there was none
	reported time.Time // when it came
}

// viewRetry is the request to the model that is sent again; failed is nil if none is.
type viewRetry struct {
	tries  int   // the number of those that have failed
	failed error // the reason of the last one
	at     time.Time
}

// String counts the tries, and says when the next one begins.
func (r viewRetry) String() string {
	if r.failed == nil {
		return ""
	}
	wait := (time.Until(r.at) + time.Second - 1).Truncate(time.Second)
	when := ""
	if wait > 0 {
		when = " in " + wait.String()
	}
	return fmt.Sprintf(", try %d%s: %v", r.tries+1, when, r.failed)
}

const (
	maxShownArguments = 160 // columns, where no window bounds them
	maxShownError     = 400
	viewTick          = 100 * time.Millisecond

	// After a while, who waits may want to know how not to.
	cancelHint      = " (Ctrl-C cancels)"
	cancelHintAfter = 3 * time.Second
)

// Begin shows what is awaited, such as a model, until its text, its calls, or End.
func (v *View) Begin(awaited string) {
	stopFormer := v.begin(awaited)
	if stopFormer != nil {
		stopFormer()
	}
}

// begin returns what ends the spinner of the Begin before, if there was one.
func (v *View) begin(awaited string) (stopFormer func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	stopFormer = v.stop
	v.stop = nil
	v.begun = true
	v.Screen.Separate("")
	v.wait = viewCall{name: awaited, began: time.Now()}
	v.retry = viewRetry{}
	if !v.Quiet && v.Screen.Live {
		v.stop = v.startSpinner()
	}
	return stopFormer
}

// startSpinner starts the goroutine that draws the status, and returns what ends it and waits for
// it.
func (v *View) startSpinner() (stop func()) {
	ended := make(chan struct{})
	var spinner sync.WaitGroup
	spinner.Go(func() {
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
	return sync.OnceFunc(func() {
		close(ended)
		spinner.Wait()
	})
}

// End shows the rest of the text, and nothing of it that comes later.
func (v *View) End() {
	v.mu.Lock()
	stop := v.stop
	v.mu.Unlock()
	if stop != nil {
		stop()
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.endText()
	v.begun = false
	v.wait.began = time.Time{}
	v.calls = nil
	v.Screen.Status("")
}

// Thinking shows that the model has begun to answer, with what it thinks.
func (v *View) Thinking() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.wait.progress = " thinking"
	v.retry = viewRetry{}
}

// Retry shows in the status that a request to the model has failed and is sent again after a wait.
// It reports false where there is no status, or nothing is awaited: then a line has to say it.
func (v *View) Retry(failed error, wait time.Duration) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.stop == nil || v.wait.began.IsZero() {
		return false
	}
	v.retry = viewRetry{v.retry.tries + 1, failed, time.Now().Add(wait)}
	return true
}

// Text shows a piece of the model's text, between Begin and End. What may be the beginning of a
// secret is kept back.
func (v *View) Text(piece string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.begun {
		return
	}
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

// Progress begins to show a call, until it has ended or End, and returns what shows its progress.
// That returns at once.
//
// Where each report would be a line of its own, a report is shown only a while after the one
// before: a short call needs no lines, and a long one not many. What is held back is shown when
// that while is over, as nothing else may come for long: a task tells of each state once.
func (v *View) Progress(call ToolCall) func(Progress) {
	v.mu.Lock()
	defer v.mu.Unlock()
	now := time.Now()
	c := &viewCall{id: call.ID, name: v.Name(call.Name), began: now}
	// A call is made twice if it needed a login.
	v.calls = slices.DeleteFunc(v.calls, func(c *viewCall) bool { return c.id == call.ID })
	v.calls = append(v.calls, c)
	v.wait.began = time.Time{}
	lastLine := now
	// A report that is held back has a timer, and those that come meanwhile replace it.
	isHeld := false
	show := func() {
		isHeld = false
		if slices.Contains(v.calls, c) {
			lastLine = time.Now()
			v.line(maxShownArguments, "  %s%s", call.Name, c.progress)
		}
	}
	return func(p Progress) {
		v.mu.Lock()
		defer v.mu.Unlock()
		c.reported = time.Now()
		c.progress = shownProgress(p)
		pause := viewTick - time.Since(lastLine)
		switch {
		case v.Screen.Live || isHeld:
		case pause <= 0:
			show()
		default:
			isHeld = true
			time.AfterFunc(pause, func() {
				v.mu.Lock()
				defer v.mu.Unlock()
				show()
			})
		}
	}
}

// shownProgress returns a report as it is shown. The status of a task has no number.
func shownProgress(p Progress) string {
	number := fmt.Sprintf(" %g", p.Progress)
	switch {
	case p.Total > 0:
		number += fmt.Sprintf("/%g", p.Total)
	case p.Progress == 0 && p.Message != "":
		number = ""
	}
	return number + " " + p.Message
}

// draw draws the status: what the agent waits for. Of several calls it is the one with the latest
// report.
func (v *View) draw(frame int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	c := &v.wait
	if len(v.calls) > 0 {
		byReport := func(a, b *viewCall) int { return a.reported.Compare(b.reported) }
		c = slices.MaxFunc(v.calls, byReport)
	}
	if c.began.IsZero() {
		v.Screen.Status("")
		return
	}
	spinner := []rune("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏")
	status := string(spinner[frame%len(spinner)]) + " " + c.name
	if more := len(v.calls) - 1; more > 0 {
		status += fmt.Sprintf(" (+%d)", more)
	}
	took := time.Since(c.began).Truncate(time.Second)
	if took > 0 {
		status += " " + took.String()
	}
	status += c.progress
	if c == &v.wait {
		status += v.retry.String()
	}
	if took >= cancelHintAfter && Width(status+cancelHint) < v.Screen.Columns() {
		status += cancelHint
	}
	v.Screen.Status(status)
}
