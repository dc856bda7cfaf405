// terminal.go - what is asked of the user.
// Needs: Go 1.25, json.go, mcp_types.go, elicitation.go, mistral.go, agent.go, terminal_unix.go, terminal_other.go, terminal_screen.go.
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

// Terminal asks the user, one question at a time. Make one with NewTerminal.
//
// The terminal edits its lines itself. What is entered while nobody asks is kept for Prompt, and never answers another
// question: those are about something that the user had not seen yet.
type Terminal struct {
	in     *os.File
	screen *Screen
	start  sync.Once
	turn   chan struct{}     // one slot, taken while a question is asked
	lines  chan typedLine    // what the user enters; closed at the end of in
	next   *typedLine        // taken from lines, but not by anybody yet. Whoever has the turn
	always map[standing]bool // what the user has allowed for good. Whoever has the turn

	mu     sync.Mutex                      // guards the following
	open   map[int]context.CancelCauseFunc // what ends each question that is open or waits for its turn
	asking int                             // questions so far
}

// typedLine is a line that the user has entered.
type typedLine struct {
	text string
	at   time.Time
}

// standing is a tool, or without a name all tools, of a server.
type standing struct{ server, tool string }

// NewTerminal asks on the screen and reads the answers from in.
func NewTerminal(in *os.File, screen *Screen) *Terminal {
	return &Terminal{
		in:     in,
		screen: screen,
		turn:   make(chan struct{}, 1),
		lines:  make(chan typedLine, 1000),
		always: make(map[standing]bool),
		open:   make(map[int]context.CancelCauseFunc),
	}
}

// Interactive says whether somebody is there to be asked.
func (t *Terminal) Interactive() bool { return isTerminal(t.in) }

// pasteGap is the time between two lines that nobody types as fast: they were pasted.
const pasteGap = 15 * time.Millisecond

// Prompt reads what the user wants to say: a line, more of them after a backslash at the end, or all that was pasted at
// once. The error is io.EOF, or the cause of ctx.
func (t *Terminal) Prompt(ctx context.Context, prompt string) (string, error) {
	ctx, unlock, err := t.lock(ctx)
	if err != nil {
		return "", err
	}
	defer unlock()
	return t.text(ctx, prompt, false)
}

// Forget drops what was entered and not yet read, as an interrupt does with what is being typed.
func (t *Terminal) Forget(ctx context.Context) {
	if _, unlock, err := t.lock(ctx); err == nil {
		t.drop()
		unlock()
	}
}

// text reads lines that belong together. A fresh one must not have been typed before the prompt.
func (t *Terminal) text(ctx context.Context, prompt string, fresh bool) (string, error) {
	line, err := t.ask(ctx, prompt, fresh)
	text := line.text
	for err == nil {
		if more, ok := strings.CutSuffix(text, "\\"); ok {
			line, err = t.ask(ctx, "… ", false)
			text = more + "\n" + line.text
			continue
		}
		pasted, e := t.take(ctx, pasteGap)
		if e != nil {
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

// ask writes a question and returns the line that answers it.
func (t *Terminal) ask(ctx context.Context, question string, fresh bool) (typedLine, error) {
	t.start.Do(func() { go t.read() }) // until the end of in: a blocked read of a terminal cannot be interrupted
	if fresh {
		select { // what the terminal holds, or is on its way from it, is there by then
		case <-time.After(pasteGap):
		case <-ctx.Done():
		}
		if dropped := t.drop(); dropped != "" {
			fmt.Fprintf(t.screen, "(not taken for an answer, as it was typed before the question: %s)\n", fit(dropped, 60))
		}
	}
	t.screen.ask(t.screen.Fold(question))
	line, err := t.take(ctx, 0)
	t.screen.answered(err == nil)
	return line, err
}

var errNothingTyped = errors.New("nothing was typed")

// take returns the next line, waiting for it until ctx ends or, if patience is not 0, so long.
func (t *Terminal) take(ctx context.Context, patience time.Duration) (typedLine, error) {
	if t.next != nil {
		line := *t.next
		t.next = nil
		return line, nil
	}
	var late <-chan time.Time
	if patience > 0 {
		late = time.After(patience)
	}
	select {
	case line, ok := <-t.lines:
		if !ok {
			return line, io.EOF
		}
		return line, nil
	case <-late:
		return typedLine{}, errNothingTyped
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

func (t *Terminal) read() {
	defer close(t.lines)
	in := bufio.NewScanner(t.in)
	for in.Scan() {
		t.lines <- typedLine{in.Text(), time.Now()}
	}
}

// Approve asks whether a call may run, unless the user has allowed it for good. They are shown all of it, as it will run.
func (t *Terminal) Approve(ctx context.Context, server, tool string, call ToolCall) Decision {
	ctx, unlock, err := t.lock(ctx)
	if err != nil {
		return Decision{Refuse, "nobody has answered"}
	}
	defer unlock()
	if t.always[standing{server, ""}] || t.always[standing{server, tool}] {
		return Decision{}
	}
	arguments := call.Arguments
	t.screen.begin(aQuestion)
	fmt.Fprint(t.screen, t.describe(server, tool, arguments))
	question := approveFor + " / " + approveBut
	if width(question) >= t.screen.Columns() {
		question = approveFor + "\n" + approveBut
	}
	decision := func() Decision {
		if arguments == call.Arguments {
			return Decision{}
		}
		return Decision{Edit, arguments}
	}
	for first := true; ; first = false {
		line, err := t.ask(ctx, question, first) // a second answer is no other question's
		if err != nil {
			return Decision{Refuse, "the user said no"}
		}
		switch strings.ToLower(strings.TrimSpace(line.text)) {
		case "y", "yes":
			return decision()
		case "n", "no":
			return Decision{Refuse, "the user said no"}
		case "a", "always":
			t.always[standing{server, tool}] = true
			return decision()
		case "s", "server":
			t.always[standing{server, ""}] = true
			return decision()
		case "e", "edit":
			if arguments, err = t.edit(ctx, arguments); err != nil {
				return Decision{Refuse, "the user said no"}
			}
			fmt.Fprint(t.screen, t.describe(server, tool, arguments))
		case "p", "place":
			text, err := t.text(ctx, "your answer, for the model (nothing goes back): ", true)
			if err != nil {
				return Decision{Refuse, "the user said no"}
			}
			if text != "" {
				return Decision{Answer, text}
			}
		}
	}
}

const (
	approveFor = "[y]es / [n]o / [a]lways this tool / always this [s]erver"
	approveBut = "[e]dit arguments / answer in its [p]lace: "
)

// describe is a call as it is approved: nothing left out, and nothing that only seems to be there.
func (t *Terminal) describe(server, tool, arguments string) string {
	text := t.screen.style(bold, "The model wants to call") + "\n"
	row := func(name, value string) { text += fmt.Sprintf("  %-9s  %s\n", name, value) }
	if server != "" {
		row("server", exactly(server))
	}
	row("tool", exactly(tool))
	arguments = readableJSON(arguments)
	if width("  arguments  "+arguments) > t.screen.Columns() {
		var lines bytes.Buffer
		if json.Indent(&lines, []byte(arguments), "    ", "  ") == nil {
			row("arguments", "\n    "+lines.String())
			return text
		}
	}
	row("arguments", arguments)
	return text
}

// edit has the user change the arguments of a call.
func (t *Terminal) edit(ctx context.Context, arguments string) (string, error) {
	fmt.Fprintln(t.screen, "NAME=VALUE sets an argument, {…} all of them; an empty line ends it")
	for {
		line, err := t.text(ctx, "change: ", true)
		if err != nil || line == "" {
			return arguments, err
		}
		changed, err := setArguments(arguments, strings.TrimSpace(line))
		if err != nil {
			fmt.Fprintln(t.screen, visible(err.Error()))
			continue
		}
		arguments = changed
		fmt.Fprintf(t.screen, "  arguments  %s\n", readableJSON(arguments))
	}
}

// setArguments makes a change to a JSON object: NAME=VALUE to one member, anything that begins with a brace to all. A member
// that is a text stays one, whatever its new value looks like.
func setArguments(arguments, change string) (string, error) {
	if strings.HasPrefix(change, "{") {
		object, _, err := parseArguments(change)
		return object, err
	}
	name, value, ok := strings.Cut(change, "=")
	if name = strings.TrimSpace(name); !ok || name == "" {
		return "", errors.New("this is neither NAME=VALUE nor a JSON object")
	}
	value = strings.TrimSpace(value)
	set := func(was []byte) (json.RawMessage, error) {
		isText := was == nil && !json.Valid([]byte(value)) || len(was) > 0 && was[0] == '"'
		if !isText && !json.Valid([]byte(value)) {
			return nil, fmt.Errorf("%s is no text: its value must be JSON, such as 5, true or [\"a\"]", name)
		}
		if !isText {
			return json.RawMessage(value), nil
		}
		return json.RawMessage(Text(value)), nil
	}
	var members []string
	found := false
	var bad error
	s := scanner{text: []byte(arguments)}
	s.object(func(key []byte) { // in their order, which a map would forget
		member := string(key)
		was := s.value()
		if member == name {
			found = true
			was, bad = set(was)
		}
		members = append(members, string(Text(member))+":"+string(was))
	})
	if !found {
		var added json.RawMessage
		added, bad = set(nil)
		members = append(members, string(Text(name))+":"+string(added))
	}
	return "{" + strings.Join(members, ",") + "}", bad
}

var jsonString = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)

// readableJSON is JSON without the escapes that hide what it says, and with those that show what cannot be seen. It still is
// JSON, and means the same.
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
		return exactly(string(Text(s)))
	})
}

// exactly is text with an escape for each character that is not seen or that steers a terminal.
func exactly(text string) string {
	var b strings.Builder
	for _, r := range text {
		switch {
		case unicode.IsPrint(r): // of white space this is the blank alone
			b.WriteRune(r)
		case r > 0xFFFF:
			r1, r2 := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, r1, r2)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// ApproveSample asks whether a server may use the model, and shows what for. who is the server, as "the server".
func (t *Terminal) ApproveSample(ctx context.Context, who string, r *SampleRequest) bool {
	text := who + " asks the model:"
	if r.SystemPrompt != "" {
		text += "\n  system: " + indent(r.SystemPrompt)
	}
	for _, m := range r.Messages {
		for _, block := range m.Content {
			text += "\n  " + indent(m.Role+": "+cmp.Or(block.Text, "["+block.Type+"]"))
		}
	}
	return t.approve(ctx, text+"\nlet it?")
}

// approve asks a question that only a clear yes allows.
func (t *Terminal) approve(ctx context.Context, question string) bool {
	ctx, unlock, err := t.lock(ctx)
	if err != nil {
		return false
	}
	defer unlock()
	t.screen.begin(aQuestion)
	line, err := t.ask(ctx, visible(question)+" [y/n] ", true)
	return err == nil && isYes(line.text)
}

// Elicit asks the user what a server wants to know, field by field. A URL is shown, never opened. who is the
// server, as in "the server asks".
func (t *Terminal) Elicit(ctx context.Context, who string, r *ElicitRequest) (*ElicitResult, error) {
	var content map[string]any
	ctx, unlock, err := t.lock(ctx)
	if err == nil {
		defer unlock()
		t.screen.begin(aQuestion)
		content, err = t.fill(ctx, who, r)
	}
	var none noAnswer
	switch {
	case errors.Is(err, errBroken):
		return &ElicitResult{Action: "cancel"}, nil
	case errors.As(err, &none):
		return &ElicitResult{Action: string(none)}, nil
	case err != nil:
		return nil, err
	}
	return &ElicitResult{Action: "accept", Content: content}, nil
}

// fill has the user fill in a form, and change it until it can be sent (MCP 2026-07-28, client, elicitation: they must be
// able to). What needs no filling in is a question of yes or no.
func (t *Terminal) fill(ctx context.Context, who string, r *ElicitRequest) (content map[string]any, err error) {
	question := who + " asks: " + indent(r.Message)
	if r.Mode == "url" {
		// In ASCII, so that no letter of another script passes for one of the domain.
		return nil, t.confirm(ctx, fmt.Sprintf("%s\nopen this in a browser, if you trust it: %+q\nwill you?", question, r.URL))
	}
	fields, err := r.Form()
	if err != nil {
		return nil, err
	}
	content = make(map[string]any)
	if len(fields) == 0 {
		return content, t.confirm(ctx, question+"\nyes?")
	}
	fmt.Fprintln(t.screen, t.screen.Fold(visible(question))+"\n(an empty line takes what is in brackets; !no declines, !stop breaks off)")
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

// field asks for one field until the value fits; nil is none.
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
		fmt.Fprintln(t.screen, "it "+visible(bad.Reason)) // the user knows the field by its title
	}
}

func (t *Terminal) confirm(ctx context.Context, question string) error {
	line, err := t.answer(ctx, question+" [y/n] ")
	if err == nil && !isYes(line) {
		err = noAnswer("decline")
	}
	return err
}

// noAnswer is the action of an ElicitResult without an answer.
type noAnswer string

func (n noAnswer) Error() string { return string(n) }

// answer is ask for a server, which the user need not answer.
func (t *Terminal) answer(ctx context.Context, question string) (string, error) {
	typed, err := t.ask(ctx, visible(question), true)
	line := strings.TrimSpace(typed.text)
	switch {
	case err == io.EOF || line == "!stop":
		err = noAnswer("cancel")
	case line == "!no":
		err = noAnswer("decline")
	}
	return line, err
}

// label is a field as it is asked for.
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
		text += " [" + indent(shown(f, f.Default)) + "]"
	} else if !f.Required {
		text += " [none]"
	}
	return text + ": "
}

// shown is a value of a field as the user would enter it.
func shown(f *Field, value any) string {
	switch value := value.(type) {
	case bool:
		if value {
			return "y"
		}
		return "n"
	case string:
		for _, option := range f.Options {
			if option.Value == value {
				return cmp.Or(option.Title, value)
			}
		}
	case []string:
		var texts []string
		for _, v := range value {
			texts = append(texts, shown(f, v))
		}
		return cmp.Or(strings.Join(texts, ", "), "none")
	}
	return fmt.Sprint(value)
}

func isYes(line string) bool {
	line = strings.ToLower(strings.TrimSpace(line))
	return line == "y" || line == "yes"
}

// indent keeps what a server says from looking like a question of this program.
func indent(text string) string { return strings.ReplaceAll(text, "\n", "\n    ") }

// lock waits for the user to be free, and returns what frees them. The context is for what they are asked meanwhile.
func (t *Terminal) lock(ctx context.Context) (_ context.Context, unlock func(), err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	t.mu.Lock()
	t.asking++
	number := t.asking
	t.open[number] = cancel
	t.mu.Unlock()
	end := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.open, number)
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

// errBroken is the cause of a question's end that nobody waits for any more.
var errBroken = errors.New("the user has broken off")

// Break ends the questions that are open and those that wait: whoever asked gets no answer, as a server does whose call was
// cancelled but that asks on.
func (t *Terminal) Break() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, cancel := range t.open {
		cancel(errBroken)
	}
}
