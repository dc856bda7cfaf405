// terminal.go - what the user is asked: approvals, forms, and what to say next.
// SPDX-License-Identifier: 0BSD

package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf16"
)

// ErrCancelled is the cause of a question's end when the user cancelled it.
var ErrCancelled = errors.New("cancelled")

var errDeclined = errors.New("declined")

// Terminal asks the user, one question at a time. Make one with NewTerminal.
//
// The terminal itself edits its lines. What is entered while no question is open is kept for Prompt, and never answers
// another question: the user had not seen that question yet.
type Terminal struct {
	in     *os.File
	screen *Screen
	start  sync.Once
	turn   chan struct{}      // one slot, taken while a question is asked
	lines  chan typedLine     // what the user enters; closed at the end of in
	next   *typedLine         // read from lines, but not used yet. Owned by the holder of the turn, as is always
	always map[[2]string]bool // server and tool that the user has allowed for good; "" for all tools

	mu       sync.Mutex         // guards the following
	life     context.Context    // of the questions that are open or wait for their turn
	breakOff context.CancelFunc // ends it
}

// typedLine is a line that the user has entered.
type typedLine struct {
	text string
	at   time.Time
}

// NewTerminal asks on the screen and reads the answers from in.
func NewTerminal(in *os.File, screen *Screen) *Terminal {
	t := &Terminal{
		in:     in,
		screen: screen,
		turn:   make(chan struct{}, 1),
		lines:  make(chan typedLine, 1000),
		always: make(map[[2]string]bool),
	}
	t.life, t.breakOff = context.WithCancel(context.Background())
	return t
}

// Interactive reports whether there is a user to ask.
func (t *Terminal) Interactive() bool { return IsTerminal(t.in) }

// pasteGap is the longest time between two lines that were pasted together; nobody types as fast.
const pasteGap = 15 * time.Millisecond

// Prompt reads what the user wants to say: a line, more lines after a backslash at the end, or all that was pasted at
// once. The error is io.EOF, or the cause of ctx.
func (t *Terminal) Prompt(ctx context.Context, prompt string) (string, error) {
	ctx, unlock, err := t.lock(ctx)
	if err != nil {
		return "", err
	}
	defer unlock()
	return t.text(ctx, Look{Style: Bold}, prompt, false)
}

// Break ends the questions that are open and those that wait: their callers get no answer. What was entered and not
// yet read is dropped, as an interrupt does with the line that is being typed.
func (t *Terminal) Break(ctx context.Context) {
	t.mu.Lock()
	t.breakOff()
	t.life, t.breakOff = context.WithCancel(context.Background())
	t.mu.Unlock()
	if _, unlock, err := t.lock(ctx); err == nil {
		t.drop()
		unlock()
	}
}

// lock waits for the user to be free, and returns what frees them. The context is for the questions until then.
func (t *Terminal) lock(ctx context.Context) (_ context.Context, unlock func(), err error) {
	t.mu.Lock()
	life := t.life
	t.mu.Unlock()
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(life, func() { cancel(ErrCancelled) })
	end := func() {
		stop()
		cancel(nil)
	}
	select {
	case t.turn <- struct{}{}:
		return ctx, func() { <-t.turn; end() }, nil
	case <-ctx.Done():
		err := context.Cause(ctx)
		end()
		return nil, nil, err
	}
}

// text reads lines that belong together. fresh is as for ask.
func (t *Terminal) text(ctx context.Context, look Look, prompt string, fresh bool) (string, error) {
	line, err := t.ask(ctx, look, prompt, fresh)
	text := line.text
	for err == nil {
		if more, ok := strings.CutSuffix(text, "\\"); ok {
			line, err = t.ask(ctx, Look{}, "… ", false)
			text = more + "\n" + line.text
			continue
		}
		soon, cancel := context.WithTimeout(ctx, pasteGap)
		pasted, late := t.take(soon)
		cancel()
		if late != nil {
			break
		}
		if pasted.at.Sub(line.at) > pasteGap || strings.HasPrefix(text, "/") {
			t.next = &pasted
			break
		}
		line = pasted
		text += "\n" + line.text
	}
	return text, err
}

// ask shows a question and returns the line that answers it. A fresh answer is one that was typed after the question.
func (t *Terminal) ask(ctx context.Context, look Look, question string, fresh bool) (typedLine, error) {
	t.start.Do(func() { go t.read() }) // until the end of in: a blocked read of a terminal cannot be interrupted
	if fresh {
		select { // by then, what was typed before has arrived
		case <-time.After(pasteGap):
		case <-ctx.Done():
		}
		if dropped := t.drop(); dropped != "" {
			t.screen.Show(Look{Max: 160}, "(ignored, because it was typed before the question: "+dropped+")")
		}
	}
	t.screen.ask(look, question)
	line, err := t.take(ctx)
	t.screen.answered(err == nil)
	return line, err
}

// take returns the next line, or the cause of ctx.
func (t *Terminal) take(ctx context.Context) (typedLine, error) {
	if t.next != nil {
		line := *t.next
		t.next = nil
		return line, nil
	}
	select {
	case line, ok := <-t.lines:
		if !ok {
			return line, io.EOF
		}
		return line, nil
	case <-ctx.Done():
		return typedLine{}, context.Cause(ctx)
	}
}

// drop forgets what was typed, and returns it.
func (t *Terminal) drop() (dropped string) {
	if t.next != nil {
		dropped, t.next = t.next.text, nil
	}
	for {
		select {
		case line, ok := <-t.lines:
			if !ok {
				return dropped
			}
			dropped += " " + line.text
		default:
			return dropped
		}
	}
}

// read reads all lines. It ends with in.
func (t *Terminal) read() {
	defer close(t.lines)
	in := bufio.NewScanner(t.in)
	for in.Scan() {
		t.lines <- typedLine{in.Text(), time.Now()}
	}
}

// Approve asks whether a call may run, unless the user has allowed it for good.
func (t *Terminal) Approve(ctx context.Context, server, tool string, call ToolCall) Decision {
	ctx, unlock, err := t.lock(ctx)
	if err != nil {
		return Decision{Refuse, "nobody has answered"}
	}
	defer unlock()
	if t.always[[2]string{server}] || t.always[[2]string{server, tool}] {
		return Decision{}
	}
	t.screen.begin(aQuestion)
	approved, arguments := Decision{}, call.Arguments
	t.showCall(server, tool, arguments)
	for first := true; err == nil; first = false {
		var line typedLine
		line, err = t.ask(ctx, Look{}, approvalQuestion, first) // a second answer can only be to this question
		switch strings.ToLower(strings.TrimSpace(line.text)) {
		case "y", "yes":
			return approved
		case "n", "no":
			return Decision{Refuse, "the user said no"}
		case "a", "always":
			t.always[[2]string{server, tool}] = true
			return approved
		case "s", "server":
			t.always[[2]string{server}] = true
			return approved
		case "e", "edit":
			var text string
			text, err = t.text(ctx, Look{}, "the arguments, a JSON object (an empty line keeps them): ", true)
			if object, _, bad := ParseArguments(text); bad != nil {
				t.screen.Show(Look{Style: Red}, bad.Error())
			} else if text != "" {
				approved, arguments = Decision{Edit, object}, object
			}
			t.showCall(server, tool, arguments)
		case "p", "place":
			var text string
			text, err = t.text(ctx, Look{}, "your answer, for the model (nothing goes back): ", true)
			if err == nil && text != "" {
				return Decision{Answer, text}
			}
		}
	}
	return Decision{Refuse, "the user said no"}
}

// approvalQuestion stands below what showCall shows.
const approvalQuestion = "[y]es / [n]o / [a]lways this tool / always this [s]erver / " +
	"[e]dit arguments / answer in its [p]lace: "

// showCall shows a call that is to be approved, as it will run: with nothing left out, and nothing hidden.
func (t *Terminal) showCall(server, tool, arguments string) {
	arguments = readableJSON(arguments)
	if width("  arguments  "+arguments) > t.screen.Columns() {
		var lines bytes.Buffer
		if json.Indent(&lines, []byte(arguments), "    ", "  ") == nil {
			arguments = "\n    " + lines.String()
		}
	}
	text := "  tool       " + exactly(tool) + "\n  arguments  " + arguments
	if server != "" {
		text = "  server     " + exactly(server) + "\n" + text
	}
	t.screen.Show(Look{Style: Bold}, "The model wants to call")
	t.screen.Show(Look{Exact: true}, text)
}

var jsonString = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)

// readableJSON is JSON of the same meaning: without the escapes that make it hard to read, and with escapes for what
// cannot be seen.
func readableJSON(text string) string {
	var compact bytes.Buffer
	if json.Compact(&compact, []byte(text)) != nil {
		return exactly(text)
	}
	return jsonString.ReplaceAllStringFunc(compact.String(), func(quoted string) string {
		var s string
		if json.Unmarshal([]byte(quoted), &s) != nil {
			return exactly(quoted)
		}
		return exactly(string(TextContent(s)))
	})
}

// exactly is a text with an escape for each character that cannot be seen or that controls a terminal.
func exactly(text string) string {
	var b strings.Builder
	for _, r := range text {
		if unicode.IsPrint(r) { // of white space this is the blank alone
			b.WriteRune(r)
			continue
		}
		for _, unit := range utf16.Encode([]rune{r}) {
			fmt.Fprintf(&b, `\u%04x`, unit)
		}
	}
	return b.String()
}

// ApproveSample asks whether a server may use the model, and shows its request, all of it. what says who asks, as in
// "the server asks the model".
func (t *Terminal) ApproveSample(ctx context.Context, what string, r *SampleRequest) bool {
	question := what + ":"
	for _, part := range r.Parts() {
		question += "\n  " + indent(part)
	}
	return t.Confirm(ctx, question+"\nlet it?")
}

// Confirm asks a question that only a clear yes allows.
func (t *Terminal) Confirm(ctx context.Context, question string) bool {
	ctx, unlock, err := t.lock(ctx)
	if err != nil {
		return false
	}
	defer unlock()
	t.screen.begin(aQuestion)
	return t.confirm(ctx, question) == nil
}

// Elicit asks the user what a server wants to know, field by field. A URL is shown, never opened. who is the server,
// as in "the server asks".
func (t *Terminal) Elicit(ctx context.Context, who string, r *ElicitRequest) (*ElicitResult, error) {
	var content map[string]any
	ctx, unlock, err := t.lock(ctx)
	if err == nil {
		defer unlock()
		t.screen.begin(aQuestion)
		content, err = t.fill(ctx, who, r)
	}
	switch {
	case errors.Is(err, ErrCancelled), errors.Is(err, io.EOF):
		return &ElicitResult{Action: "cancel"}, nil
	case errors.Is(err, errDeclined):
		return &ElicitResult{Action: "decline"}, nil
	case err != nil:
		return nil, err
	}
	return &ElicitResult{Action: "accept", Content: content}, nil
}

// fill has the user fill in a form, and change it until it can be sent (MCP 2026-07-28, client, elicitation). A form
// without fields is a question of yes or no.
func (t *Terminal) fill(ctx context.Context, who string, r *ElicitRequest) (content map[string]any, err error) {
	question := who + " asks: " + indent(r.Message)
	if r.Mode == "url" {
		// In ASCII, so that no letter of another script passes for one of the domain.
		text := fmt.Sprintf("%s\nopen this in a browser, if you trust it: %+q\nwill you?", question, r.URL)
		return nil, t.confirm(ctx, text)
	}
	fields, err := r.Form()
	if err != nil {
		return nil, err
	}
	content = make(map[string]any)
	if len(fields) == 0 {
		return content, t.confirm(ctx, question+"\nyes?")
	}
	t.screen.Show(Look{}, question+"\n(an empty line takes what is in brackets; !no declines, !stop breaks off)")
	for {
		for i := range fields {
			f := &fields[i]
			if f.Default, err = t.field(ctx, f); err != nil {
				return nil, err
			}
			if f.Default != nil {
				content[f.Name] = f.Default
			}
		}
		line, err := t.answer(ctx, "send it (y) or change it (n)? ")
		if err != nil || isYes(line) {
			return content, err
		}
	}
}

// field asks for one field until the value is valid; nil is none.
func (t *Terminal) field(ctx context.Context, f *Field) (any, error) {
	for {
		line, err := t.answer(ctx, label(f))
		if err != nil {
			return nil, err
		}
		value, err := f.Parse(line)
		var bad *FormError
		if !errors.As(err, &bad) {
			return value, err
		}
		t.screen.Show(Look{}, "it "+bad.Reason) // the user knows the field by its title
	}
}

// confirm asks a question that only a clear yes allows; the error is errDeclined if there was another answer.
func (t *Terminal) confirm(ctx context.Context, question string) error {
	line, err := t.answer(ctx, question+" [y/n] ")
	if err == nil && !isYes(line) {
		err = errDeclined
	}
	return err
}

// answer asks for a server. The user need not answer: the error is errDeclined or, as at the end of in, io.EOF.
func (t *Terminal) answer(ctx context.Context, question string) (string, error) {
	typed, err := t.ask(ctx, Look{}, question, true)
	line := strings.TrimSpace(typed.text)
	switch line {
	case "!stop":
		err = io.EOF
	case "!no":
		err = errDeclined
	}
	return line, err
}

// label is what a field is asked for with.
func label(f *Field) string {
	text := indent(cmp.Or(f.Title, f.Name))
	if f.Description != "" {
		text += " (" + indent(f.Description) + ")"
	}
	for i, option := range f.Options {
		text += fmt.Sprintf("\n  %d %s", i+1, indent(cmp.Or(option.Title, option.Value)))
	}
	switch {
	case f.Many:
		text += "\nany of these, with commas"
	case len(f.Options) > 0:
		text += "\none of these"
	case f.Type == "boolean":
		text += ", y/n"
	}
	if f.Default != nil {
		text += " [" + indent(typedAs(f, f.Default)) + "]"
	} else if !f.Required {
		text += " [none]"
	}
	return text + ": "
}

// typedAs is the value of a field as the user would type it.
func typedAs(f *Field, value any) string {
	switch value := value.(type) {
	case bool:
		return map[bool]string{true: "y", false: "n"}[value]
	case string:
		for _, option := range f.Options {
			if option.Value == value {
				return cmp.Or(option.Title, value)
			}
		}
	case []string:
		var texts []string
		for _, v := range value {
			texts = append(texts, typedAs(f, v))
		}
		return cmp.Or(strings.Join(texts, ", "), "none")
	}
	return fmt.Sprint(value)
}

func isYes(line string) bool {
	line = strings.ToLower(strings.TrimSpace(line))
	return line == "y" || line == "yes"
}

// indent keeps a server's text from looking like a question of this program.
func indent(text string) string { return strings.ReplaceAll(text, "\n", "\n    ") }
