// terminal_view.go - what is seen of an agent at work.
// Needs: Go 1.25, json.go, mcp_types.go, elicitation.go, mistral.go, mcp_model.go, agent.go, terminal_unix.go, terminal_other.go, terminal_screen.go, terminal.go.
// SPDX-License-Identifier: 0BSD

package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// ErrCancelled is the cause of a question's end at the user's word, who needs no reasons.
var ErrCancelled = errors.New("cancelled")

// View shows what an agent does: its calls, how far they have come, what they gave, and the text of the model. On a terminal
// that can draw lines again, the last line says what is being waited for; elsewhere each event is a line.
//
// Screen is required; the fields are set before the first use. All methods may be called from any goroutine.
type View struct {
	Screen *Screen
	Quiet  bool                                        // show nothing but the text
	Name   func(function string) (server, tool string) // of a function; nil: its own name alone
	Answer io.Writer                                   // for Text, through Screen.Over; nil: the screen
	Wrap   bool                                        // the answer goes to a terminal
	Held   func(text string) int                       // how many bytes at the end of text can begin a secret; nil: none

	mu      sync.Mutex  // guards the following; held while something is shown
	calls   []*viewCall // at work, in the order in which they began
	model   string      // of this question
	waiting time.Time   // for the model, since then; zero if it is not waited for
	open    bool        // a text is on its way
	pending string      // of the text, not shown yet
	wrapper wrapper

	stop func() // ends the spinner
	done chan struct{}
}

// viewCall is a call at work.
type viewCall struct {
	id       string
	name     string // as it is shown
	began    time.Time
	progress *Progress   // nil if none was told of
	told     time.Time   // when
	result   *ToolResult // nil until it is there
}

const (
	maxShownArguments = 160 // characters, where no window bounds them
	maxShownError     = 400
	maxShownLines     = 4   // of a result
	maxAnswerWidth    = 100 // columns: longer lines are hard to read
	viewTick          = 100 * time.Millisecond
)

// Begin shows that a model is being waited for, until its text, calls, or End.
func (v *View) Begin(model string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.pending = ""
	v.Screen.begin(noParagraph)
	v.wrapper = wrapper{columns: min(v.Screen.Columns(), maxAnswerWidth)}
	v.model, v.waiting = model, time.Now()
	if v.Quiet || !v.Screen.Live {
		return
	}
	stop, done := make(chan struct{}), make(chan struct{})
	v.stop, v.done = func() { close(stop) }, done
	go func() { // until End, which waits for it
		defer close(done)
		tick := time.NewTicker(viewTick)
		defer tick.Stop()
		for frame := 0; ; frame++ {
			v.draw(frame)
			select {
			case <-tick.C:
			case <-stop:
				return
			}
		}
	}()
}

// End shows what is left of the text, and nothing after it.
func (v *View) End() {
	if v.stop != nil {
		v.stop()
		<-v.done
		v.stop = nil
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.endText()
	v.waiting, v.calls = time.Time{}, nil
	v.Screen.Status("")
}

// Text shows a piece of the model's text.
func (v *View) Text(piece string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.pending += piece
	if strings.TrimSpace(v.pending) == "" {
		return // so that no empty lines come before a text, or stand for one
	}
	v.showText(strings.TrimRight(v.pending, "\r\n \t")) // nor after it
}

// showText shows what of the pending text is not held back: what ends in half a secret.
func (v *View) showText(upTo string) {
	if v.Held != nil {
		upTo = upTo[:len(upTo)-v.Held(upTo)]
	}
	if upTo == "" {
		return
	}
	v.pending = v.pending[len(upTo):]
	if !v.open {
		v.open = true
		v.Screen.begin(aText)
		upTo = strings.TrimLeft(upTo, "\r\n")
	}
	v.waiting = time.Time{}
	v.Screen.Status("")
	if v.Screen.Redact != nil {
		upTo = v.Screen.Redact(upTo) // before it is taken apart into words
	}
	if v.Wrap {
		upTo = v.wrapper.wrap(visible(upTo))
	}
	v.write(upTo)
}

// endText ends the text with its line. It needs the lock.
func (v *View) endText() {
	rest := strings.TrimRight(v.pending, "\r\n \t")
	v.pending = ""
	if !v.open {
		if rest == "" {
			return
		}
		v.Screen.begin(aText) // of a text that begins like a secret, and is none
	}
	v.open = false
	if v.Screen.Redact != nil {
		rest = v.Screen.Redact(rest)
	}
	if v.Wrap {
		rest = v.wrapper.wrap(visible(rest))
		rest += v.wrapper.end()
	}
	v.write(rest + "\n")
	v.wrapper = wrapper{columns: v.wrapper.columns}
}

func (v *View) write(text string) {
	_, _ = io.WriteString(v.Screen.Over(cmp.Or[io.Writer](v.Answer, v.Screen.w)), text)
}

// Result keeps what a call gave, to be shown when the agent says that the call has ended.
func (v *View) Result(call ToolCall, r *ToolResult) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if c := v.call(call.ID); c != nil {
		c.result = r
	}
}

// Watch is Progress for a call that nobody else tells of, between Begin and End.
func (v *View) Watch(call ToolCall) func(Progress) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.waiting = time.Time{}
	v.calls = append(v.calls, &viewCall{id: call.ID, name: v.name(call.Name), began: time.Now()})
	return v.Progress(call)
}

// Progress is what shows how far a call has come. It returns at once.
func (v *View) Progress(call ToolCall) func(Progress) {
	last := time.Now() // a call that is soon done needs no lines, nor are many of them any good
	return func(p Progress) {
		v.mu.Lock()
		defer v.mu.Unlock()
		c := v.call(call.ID)
		if c == nil {
			return
		}
		c.progress, c.told = &p, time.Now()
		if v.Screen.Live || v.Quiet || time.Since(last) < viewTick || v.Screen.Asking() {
			return
		}
		last = time.Now()
		count := fmt.Sprintf("%g", p.Progress)
		if p.Total > 0 {
			count += fmt.Sprintf("/%g", p.Total)
		}
		v.line("  %s %s", call.Name, cut(count+" "+v.redact(p.Message), maxShownArguments))
	}
}

// Observe is for Agent.Observe.
func (v *View) Observe(e Event) {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch e.Kind {
	case TurnEnded:
		v.endText()
		v.waiting = time.Time{}
		if e.Response.CutOff() {
			v.line("the model's message was cut off at its length limit")
		}
	case CallStarted:
		v.waiting = time.Time{}
		v.calls = append(v.calls, &viewCall{id: e.Call.ID, name: v.name(e.Call.Name), began: time.Now()})
		if !v.Screen.Live {
			v.line("> %s %s", e.Call.Name, cut(v.redact(e.Call.Arguments), maxShownArguments))
		}
	case CallEnded:
		c := v.call(e.Call.ID)
		v.calls = slices.DeleteFunc(v.calls, func(other *viewCall) bool { return other == c })
		if c == nil { // it never started
			c = &viewCall{name: v.name(e.Call.Name)}
		}
		switch {
		case v.Quiet:
		case v.Screen.Live:
			v.ended(e, c)
		default:
			v.endedLine(e, c)
		}
		if len(v.calls) == 0 {
			v.waiting = time.Now()
		}
	case ToolsFailed:
		v.line("the tools could not be listed again: %v", e.Err)
	case LastTurn:
		v.line("%v: asking for an answer without tools", e.Err)
	}
}

// line is something said in passing. It needs the lock.
func (v *View) line(format string, args ...any) {
	if !v.Quiet {
		fmt.Fprintln(v.Screen, visible(v.redact(fmt.Sprintf(format, args...))))
	}
}

// endedLine tells of a call's end where lines are all there is.
func (v *View) endedLine(e Event, c *viewCall) {
	name, reason := e.Call.Name, ""
	if e.Err != nil {
		reason = cut(v.reason(e), maxShownError)
	}
	switch {
	case e.Err == nil:
		v.line("< %s %s, %d bytes", name, round(e.Took), e.Bytes)
	case e.Took == 0: // it never started
		v.line("< %s %s: %s", name, cut(v.redact(e.Call.Arguments), maxShownArguments), reason)
	default:
		v.line("< %s failed after %s: %s", name, round(e.Took), reason)
	}
	if c.result != nil {
		for _, file := range v.files(c.result) {
			v.line("  %s", file)
		}
	}
}

// ended tells of a call's end in a line of the window's width, with the beginning of what it gave below.
func (v *View) ended(e Event, c *viewCall) {
	v.Screen.begin(aCall)
	s, reason := v.Screen, ""
	if e.Err != nil {
		reason = cut(v.reason(e), maxShownError)
	}
	mark, outcome := s.style(green, "✓"), fmt.Sprintf("%s, %s", round(e.Took), size(e.Bytes))
	switch {
	case e.Took == 0 && e.Err != nil:
		mark, outcome = s.style(red, "✗"), "not run"
	case e.Took == 0:
		outcome = "answered by you"
	case errors.Is(e.Err, ErrCancelled):
		mark, outcome, reason = s.style(red, "✗"), fmt.Sprintf("cancelled after %s", round(e.Took)), ""
	case e.Err != nil:
		mark, outcome = s.style(red, "✗"), fmt.Sprintf("failed after %s", round(e.Took))
	}
	columns := s.Columns()
	name := fit(c.name, columns-width(outcome)-5)
	arguments, room := v.redact(readableJSON(e.Call.Arguments)), columns-width(name+outcome)-5
	if arguments == "{}" || room < min(width(arguments), 8) {
		arguments = ""
	}
	arguments = fit(arguments, room)
	fmt.Fprintln(s, strings.Join(strings.Fields(mark+" "+s.style(bold, name)), " ")+" "+s.style(faint, strings.TrimLeft(arguments+"  "+outcome, " ")))
	if reason != "" {
		fmt.Fprintln(s, s.Fold("    "+visible(reason)))
	}
	if e.Err != nil || c.result == nil {
		return
	}
	shown, files := *c.result, v.files(c.result)
	shown.Content = slices.DeleteFunc(slices.Clone(shown.Content), func(b ContentBlock) bool { return b.Type == "image" || b.Type == "audio" })
	result := ""
	if len(shown.Content) > 0 || len(files) == 0 {
		result = strings.TrimSpace(v.redact(ModelText(&shown)))
	}
	for _, line := range folded(result) {
		fmt.Fprintln(s, "    "+s.style(faint, fit(line, columns-4)))
	}
	for _, file := range files {
		fmt.Fprintln(s, "    "+visible(v.redact(file)))
	}
}

// folded are the first lines of a text, and how many more it has.
func folded(text string) []string {
	if text == "" {
		return nil
	}
	lines := strings.Split(text, "\n")
	if len(lines) > maxShownLines+1 { // a line that says "1 more line" would be no gain
		more := len(lines) - maxShownLines
		lines = append(slices.Clone(lines[:maxShownLines]), fmt.Sprintf("… %d more lines", more))
	}
	return lines
}

// reason is why a call failed, in fewer words where those before say the rest. It needs the lock.
func (v *View) reason(e Event) string {
	server, tool := "", e.Call.Name
	if v.Name != nil {
		server, tool = v.Name(e.Call.Name)
	}
	text := strings.TrimPrefix(e.Err.Error(), "server "+server+": ")
	return v.redact(strings.TrimPrefix(text, "tools/call "+tool+": "))
}

// files writes what a result has of images and sound into files of their own, and returns what is to be said of each.
func (v *View) files(r *ToolResult) (said []string) {
	if v.Quiet {
		return nil
	}
	for _, b := range r.Content {
		data, kind := b.Data, b.MIMEType
		if b.Type == "resource" && b.Resource != nil && strings.HasPrefix(b.Resource.MIMEType, "image/") {
			data, kind = b.Resource.Blob, b.Resource.MIMEType
		}
		if len(data) == 0 {
			continue
		}
		path, err := keepFile(data, kind)
		if err != nil {
			said = append(said, fmt.Sprintf("%s, %s, could not be kept: %v", kind, size(len(data)), err))
			continue
		}
		said = append(said, fmt.Sprintf("%s, %s: %s", kind, size(len(data)), path))
	}
	return said
}

// keepFile writes data to a new file, which only its owner can read. What it is called is not the server's to say.
func keepFile(data []byte, kind string) (path string, err error) {
	endings := map[string]string{
		"image/png": "png", "image/jpeg": "jpg", "image/gif": "gif", "image/webp": "webp", "image/svg+xml": "svg",
		"audio/wav": "wav", "audio/mpeg": "mp3", "audio/ogg": "ogg",
	}
	f, err := os.CreateTemp("", "mcpagent-*."+cmp.Or(endings[kind], "bin"))
	if err != nil {
		return "", err
	}
	_, err = f.Write(data)
	return f.Name(), errors.Join(err, f.Close())
}

// name is a function's tool with its server. It needs the lock.
func (v *View) name(function string) string {
	if v.Name == nil {
		return function
	}
	server, tool := v.Name(function)
	return strings.TrimSpace(server + " " + tool)
}

func (v *View) call(id string) *viewCall {
	if i := slices.IndexFunc(v.calls, func(c *viewCall) bool { return c.id == id }); i >= 0 {
		return v.calls[i]
	}
	return nil
}

func (v *View) redact(text string) string {
	if v.Screen.Redact == nil {
		return text
	}
	return v.Screen.Redact(text)
}

// draw draws the status: what is being waited for.
func (v *View) draw(frame int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	spinner := string([]rune("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏")[frame%10])
	columns := v.Screen.Columns() - 1 // in the last column some terminals begin a new line
	switch {
	case len(v.calls) > 0:
		c := slices.MaxFunc(v.calls, func(a, b *viewCall) int { return a.told.Compare(b.told) })
		head := spinner + " " + fit(c.name, columns*2/3)
		if others := len(v.calls) - 1; others > 0 {
			head += fmt.Sprintf(" (+%d)", others)
		}
		v.Screen.Status(fit(head+c.state(v.redact, columns-width(head)), columns))
	case !v.waiting.IsZero():
		v.Screen.Status(fit(spinner+" "+v.model+elapsed(time.Since(v.waiting)), columns))
	default:
		v.Screen.Status("")
	}
}

// state is how far a call has come: where the end is known with a bar and the time that is left at this pace, else with the
// count. Its columns are the message's to lose.
func (c *viewCall) state(redact func(string) string, columns int) string {
	took := time.Since(c.began)
	if c.progress == nil {
		return elapsed(took)
	}
	p := *c.progress
	message := redact(p.Message)
	if p.Total <= 0 {
		tail := elapsed(took)
		return " " + fit(fmt.Sprintf("%g %s", p.Progress, message), columns-width(tail)-1) + tail
	}
	const cells = 20
	part := min(max(p.Progress/p.Total, 0), 1)
	done := int(part * cells)
	bar := fmt.Sprintf(" %s%s %d%%", strings.Repeat("█", done), strings.Repeat("░", cells-done), int(part*100))
	left := ""
	if part > 0 && part < 1 && took >= time.Second {
		left = ", " + briefly(time.Duration(float64(took)*(1-part)/part)) + " left"
	}
	if room := columns - width(bar+left) - 1; message != "" && room >= min(8, width(message)) {
		bar += " " + fit(message, room)
	}
	if width(bar+left) > columns {
		return fmt.Sprintf(" %d%%", int(part*100))
	}
	return bar + left
}

// elapsed is a time that is worth telling.
func elapsed(d time.Duration) string {
	if d < time.Second {
		return ""
	}
	return " " + briefly(d)
}

// briefly is a time in seconds, minutes or hours.
func briefly(d time.Duration) string {
	switch d = max(d, time.Second); {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	}
	return fmt.Sprintf("%dh%02dm", int(min(d.Hours(), 999)), int(d.Minutes())%60)
}

// size is a number of bytes for people.
func size(bytes int) string {
	switch {
	case bytes < 10_000:
		return plural(bytes, "byte")
	case bytes < 10_000_000:
		return fmt.Sprintf("%d kB", (bytes+500)/1000)
	}
	return fmt.Sprintf("%d MB", (bytes+500_000)/1_000_000)
}
