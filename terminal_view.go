// terminal_view.go - what is shown of an agent at work.
// SPDX-License-Identifier: 0BSD

package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
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

	mu     sync.Mutex // guards the following; held while something is shown
	calls  []*viewCall
	wait   viewCall    // for what Begin names, such as the model; it began at zero if that is not awaited now
	text   *MaskWriter // takes the secrets out of the model's text, before viewText gets it
	blank  []byte      // the end of the text so far: white space, not shown if nothing follows, or half a character
	answer *markdown   // lays out the text that has begun; nil if none has

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
	v.text = v.Screen.Secrets.Writer(viewText{v})
	v.Screen.begin("")
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

// Text shows a piece of the model's text, between Begin and End. What may be the beginning of a secret is kept back.
func (v *View) Text(piece string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	_, _ = io.WriteString(v.text, piece)
}

// viewText is what View.text writes to. It needs the lock.
type viewText struct{ *View }

func (v viewText) Write(piece []byte) (int, error) {
	v.blank = append(v.blank, piece...)
	if len(bytes.TrimRight(piece, " \r\n\t")) == 0 {
		return len(piece), nil
	}
	end := len(bytes.TrimRight(v.blank, " \r\n\t"))
	for i := end - 1; i >= max(end-utf8.UTFMax, 0); i-- {
		if utf8.RuneStart(v.blank[i]) && !utf8.FullRune(v.blank[i:end]) {
			end = i // the character has not come whole
		}
	}
	text := string(v.blank[:end])
	v.blank = bytes.Clone(v.blank[end:])
	if v.answer == nil && text != "" {
		v.answer, v.wait.began = newMarkdown(v.Screen.Columns(), v.Screen.Color), time.Time{}
		v.answer.raw = v.Raw || !v.Screen.Answers
		v.Screen.Status("")
		v.Screen.begin("text")
		text = strings.TrimLeft(text, "\r\n")
	}
	if text != "" {
		v.Screen.stream(v.answer, text, false)
	}
	return len(piece), nil
}

// endText ends the text and its line. It needs the lock.
func (v *View) endText() {
	_ = v.text.Close() // which may begin the text
	if v.answer != nil {
		v.Screen.stream(v.answer, string(bytes.TrimSpace(v.blank)), true)
	}
	v.answer, v.blank = nil, nil
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
		v.line(0, "< %s %s%s", e.Call.Name, outcome, s.keep(about, e.Output.Text))
	default:
		s.begin("call")
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

// ResultFiles saves the images, sounds and embedded bytes of a result, and returns a line about each.
func ResultFiles(r *ToolResult, save func(data []byte, kind string) (path string, err error)) (lines []string) {
	for _, b := range r.Content {
		data, kind := b.Data, b.MIMEType
		if b.Type == "resource" && b.Resource != nil {
			data, kind = b.Resource.Blob, b.Resource.MIMEType
		}
		if len(data) == 0 {
			continue
		}
		path, err := save(data, kind)
		if err != nil {
			path = fmt.Sprintf("not saved: %v", err)
		}
		lines = append(lines, fmt.Sprintf("%s, %s: %s", kind, Plural(len(data), "byte"), path))
	}
	return lines
}

// SaveFile writes data to a new file, which only its owner can read. The server has no part in its name.
func SaveFile(data []byte, kind string) (path string, err error) {
	kind, _, _ = strings.Cut(kind, ";")
	endings := map[string]string{
		"image/png": "png", "image/jpeg": "jpg", "image/gif": "gif", "image/webp": "webp", "image/svg+xml": "svg",
		"audio/wav": "wav", "audio/mpeg": "mp3", "audio/ogg": "ogg", "video/mp4": "mp4", "application/pdf": "pdf",
		"application/zip": "zip", "application/gzip": "gz", "application/json": "json", "text/csv": "csv",
	}
	f, err := os.CreateTemp("", "mcpagent-*."+cmp.Or(endings[kind], "bin"))
	if err != nil {
		return "", err
	}
	_, err = f.Write(data)
	return f.Name(), errors.Join(err, f.Close())
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
