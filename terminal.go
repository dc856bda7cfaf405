// terminal.go - what a person sees and types: questions, and the answers to them.
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
	"math"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// ErrCancelled is the cause of a question's end when the user cancelled it.
var ErrCancelled = errors.New("cancelled")

var errDeclined = errors.New("declined")

// Terminal asks the user, one question at a time. Make one with NewTerminal.
//
// What is entered while no question is open is kept for Prompt, and never answers another question: the user had not
// seen that question yet. Where the terminal does not give the keys one by one, it edits the lines itself.
type Terminal struct {
	// Complete, if set, returns the words that the last one of a text may become: of what the user types for Prompt, up
	// to the cursor. It returns soon: no key is obeyed meanwhile.
	Complete atomic.Pointer[func(text string) (candidates []string)]

	in     *os.File
	user   bool // there is a user to ask
	screen *Screen
	start  sync.Once
	edits  bool          // the terminal gives the keys. Set by begin
	turn   chan struct{} // one slot, taken while a question is asked
	typed  chan []string // the cells of what the user enters, nil for the end of the input; closed at the end of in
	always map[any]bool  // what the user has allowed for good: a server, or one and its tool. For the holder of turn

	reading sync.Mutex             // held while keys are read
	restore atomic.Pointer[func()] // puts the terminal into the mode that it had; nil if it is in that

	mu       sync.Mutex         // guards the following; taken before the screen's
	life     context.Context    // of the questions that are open or wait for their turn
	breakOff context.CancelFunc // ends it
	keys     keys
	draft    *editor // of what the user says next
	open     *editor // of the question that is open; nil if there is none
}

// NewTerminal asks on the screen and reads the answers from in.
func NewTerminal(in *os.File, screen *Screen) *Terminal {
	t := &Terminal{
		in:     in,
		screen: screen,
		turn:   make(chan struct{}, 1),
		typed:  make(chan []string, 1000),
		always: make(map[any]bool),
		draft:  &editor{history: new(history)},
	}
	t.user = IsTerminal(in) && screen.openUser()
	t.life, t.breakOff = context.WithCancel(context.Background())
	return t
}

// Interactive reports whether there is a user to ask.
func (t *Terminal) Interactive() bool { return t.user }

// Prompt reads what the user wants to say: a line, or more. The error is io.EOF, or the cause of ctx.
func (t *Terminal) Prompt(ctx context.Context, prompt string) (string, error) {
	ctx, unlock := t.lock(ctx)
	defer unlock()
	return t.ask(ctx, t.screen.render(Look{Style: Bold}, strings.TrimSpace(prompt)), t.draft)
}

// Input asks for a field, as Elicit does. Where the keys are read, what is typed is not shown if hidden.
func (t *Terminal) Input(ctx context.Context, f *Field, hidden bool) (any, error) {
	ctx, unlock := t.lock(ctx)
	defer unlock()
	return t.field(ctx, nil, f, hidden)
}

// Remember keeps what the user has said, without secrets, for the key Up.
func (t *Terminal) Remember(text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.draft.history.add(t.screen.Secrets.Mask(text))
}

// Close puts the terminal into the mode that it had, whatever that is now. It waits for nothing, as it is called after
// a panic, too.
func (t *Terminal) Close() {
	if restore := t.restore.Swap(nil); restore != nil {
		_, _ = io.WriteString(t.screen.user, "\x1b[?2004l") // what is pasted looks as if it were typed
		(*restore)()
	}
}

// takeKeys has the terminal give the keys until Close.
func (t *Terminal) takeKeys() error {
	t.Close() // else the mode to go back to would be this one
	restore, err := changeInput(t.in)
	if err == nil {
		t.restore.Store(&restore)
		_, _ = io.WriteString(t.screen.user, "\x1b[?2004h")
	}
	return err
}

// begin begins to read what is typed.
func (t *Terminal) begin() {
	if t.edits = t.user && t.screen.Live && t.takeKeys() == nil; !t.edits {
		go t.readLines() // until the end of in: a blocked read of a terminal cannot be interrupted
		return
	}
	t.draft.history = openHistory()
	go t.readKeys()
	go onContinue(t.goOn)
}

// goOn takes the keys again after something else has stopped the program: meanwhile the shell has given the terminal
// its own mode, which shows what is typed.
func (t *Terminal) goOn() {
	if t.restore.Load() == nil { // press or inEditor takes them
		return
	}
	_ = t.takeKeys()
	t.screen.edit(drawing{})
	t.press([]byte{0}) // which is no key: what is edited is drawn anew
}

// readLines reads all lines. It ends with in.
func (t *Terminal) readLines() {
	defer close(t.typed)
	for in := bufio.NewReader(t.in); ; {
		text, err := in.ReadString('\n')
		if text != "" {
			t.typed <- []string{strings.TrimRight(text, "\r\n")}
		}
		if err != nil {
			return
		}
	}
}

// readKeys reads all keys. It ends with in.
func (t *Terminal) readKeys() {
	defer close(t.typed)
	defer t.Close()
	buffer := make([]byte, 64<<10)
	for {
		t.reading.Lock()
		n, err := readKeys(t.in, buffer)
		t.reading.Unlock()
		if err != nil {
			return
		}
		t.press(buffer[:n])
	}
}

// press obeys keys: those of the open question, or of what the user says next. What is edited is drawn again if there
// are keys, or if the window has another size than before.
func (t *Terminal) press(in []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.keys.unread = append(t.keys.unread, in...)
	for key, pasted, ok := t.keys.next(); ok; key, pasted, ok = t.keys.next() {
		e := cmp.Or(t.open, t.draft)
		switch key = e.press(key, pasted); key {
		case '\r', keyClose:
			entered := append([]string{}, e.cells...)
			if key == keyClose {
				entered = nil
			}
			select {
			case t.typed <- entered:
				e.set(nil, 0)
				t.open = nil
			default: // nobody means to type so much ahead
			}
		case keyStop:
			t.screen.edit(drawing{}) // the shell's words stand in its place
			t.Close()
			stopProgram()
			_ = t.takeKeys()
		case '\t':
			complete := t.Complete.Load()
			if e != t.draft || complete == nil {
				break
			} else if words := (*complete)(e.text(e.at)); !e.expand(words) {
				t.screen.Show(Look{Style: Faint, Max: maxShownError}, strings.Join(words, "  "))
			}
		case keyLostPaste:
			t.screen.Show(Look{}, fmt.Sprintf("(not taken: what was pasted has more than %d MiB)", maxPaste>>20))
		}
	}
	if e := t.open; e != nil {
		columns, rows := t.screen.Columns(), t.screen.Rows()
		if len(in) > 0 || columns != e.columns || rows != e.size {
			t.screen.edit(e.draw(columns, rows))
		}
	}
}

// Break ends the questions that are open and those that wait: their callers get no answer. What was entered and not
// yet read is dropped, as an interrupt does with the line that is being typed.
func (t *Terminal) Break(ctx context.Context) {
	t.mu.Lock()
	t.breakOff()
	t.life, t.breakOff = context.WithCancel(context.Background())
	t.mu.Unlock()
	ctx, unlock := t.lock(ctx)
	defer unlock()
	if ctx.Err() == nil {
		t.drop()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.draft.set(nil, 0)
	t.keys = keys{}
}

// lock waits for the user to be free, and returns what frees them. The context is for the questions until then: Break
// ends it, too, and it has ended if the user is not free.
func (t *Terminal) lock(ctx context.Context) (_ context.Context, unlock func()) {
	t.mu.Lock()
	life := t.life
	t.mu.Unlock()
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(life, func() { cancel(ErrCancelled) })
	free := func() {}
	select {
	case t.turn <- struct{}{}:
		free = func() { <-t.turn }
	case <-ctx.Done():
	}
	return ctx, func() {
		stop()
		cancel(nil)
		free()
	}
}

// maxLine is how many bytes of a line Linux takes from a terminal that edits it; it drops the rest in silence.
const maxLine = 4095

// ask shows a question and returns what answers it: but for the draft, what is typed after the question. When ctx has
// ended, nobody waits for an answer: the question is not shown.
func (t *Terminal) ask(ctx context.Context, question rendered, e *editor) (string, error) {
	t.start.Do(t.begin)
	if ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	if e != t.draft {
		<-time.After(15 * time.Millisecond) // by then, what was typed before has arrived
		if dropped := t.drop(); dropped != "" {
			t.screen.tell(Look{Max: 160}, "(ignored, because it was typed before the question: "+dropped+")")
		}
	}
	if t.edits {
		t.edit(question, e)
	} else {
		t.screen.ask(question, e == t.draft)
	}
	var entered []string
	var err error
	select {
	case entered = <-t.typed:
		if entered == nil {
			err = io.EOF
		}
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	text := strings.Join(entered, "")
	if t.edits {
		t.endEdit(e, entered, err)
	} else if t.screen.answered(err == nil); len(text) >= maxLine || strings.ContainsFunc(text, steers) {
		t.screen.tell(Look{Style: Red}, "not taken: the line has control characters, as arrow keys give them, or is so "+
			"long that the terminal may have cut it. Type it again, or give a file on stdin")
		return t.ask(ctx, question, e)
	}
	return text, err
}

// edit opens a question whose answer is edited here.
func (t *Terminal) edit(question rendered, e *editor) {
	t.mu.Lock()
	defer t.mu.Unlock()
	end := strings.LastIndexByte(string(question), '\n') + 1
	if e.prompt = string(question[end:]) + " "; plainWidth(e.prompt) > t.screen.Columns()-4 {
		question, end, e.prompt = question+"\n", len(question)+1, ""
	}
	t.screen.ask(question[:end], e == t.draft)
	if len(t.typed) == 0 { // else the answer is there
		t.open = e
		t.screen.edit(e.draw(t.screen.Columns(), t.screen.Rows()))
	}
}

// endEdit closes it: the answer is there, or err says why it is not awaited.
func (t *Terminal) endEdit(e *editor, answer []string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open = nil
	switch {
	case err == nil: // all of it is shown
		whole := &editor{prompt: e.prompt, hidden: e.hidden, cells: answer, at: len(answer)}
		t.screen.edit(whole.draw(t.screen.Columns(), math.MaxInt))
	case e == t.draft && err != ErrCancelled && err != io.EOF: // it stands in the next prompt
		t.screen.edit(drawing{})
	default:
		e.set(nil, 0)
	}
	t.screen.answered(true)
}

// drop discards what was typed, and returns it. Its caller has the turn, so that nobody else takes it.
func (t *Terminal) drop() (dropped string) {
	for len(t.typed) > 0 {
		dropped += " " + strings.Join(<-t.typed, "")
	}
	return dropped
}

// Approve asks whether a call may run, unless the user has allowed it for good.
func (t *Terminal) Approve(ctx context.Context, server, tool string, call ToolCall) Decision {
	ctx, unlock := t.lock(ctx)
	defer unlock()
	if ctx.Err() != nil {
		return Decision{Refuse, "nobody has answered"}
	}
	one := [2]string{server, tool}
	if t.always[server] || t.always[one] {
		return Decision{}
	}
	t.screen.begin("question")
	approved, arguments, draft := Decision{}, call.Arguments, ""
	for {
		about, question := t.call(server, tool, arguments)
		line, err := t.below(ctx, t.screen.rows(about), t.screen.render(Look{}, question), false)
		switch strings.ToLower(line) {
		case "y", "yes":
			return approved
		case "n", "no":
			return Decision{Refuse, "the user said no"}
		case "a", "always":
			t.always[one] = true
			return approved
		case "s", "server":
			t.always[server] = true
			return approved
		case "e", "edit":
			draft, err = t.change(ctx, cmp.Or(draft, readableJSON(arguments, true)))
			if object, _, bad := ParseArguments(draft); bad != nil {
				t.screen.tell(Look{Style: Red}, bad.Error())
			} else if draft != "" {
				approved, arguments, draft = Decision{Edit, object}, object, ""
			}
		case "p", "place":
			line, err = t.ask(ctx, "your answer, for the model (nothing goes back):", new(editor))
			if err == nil && line != "" {
				return Decision{Answer, line}
			}
		}
		if err != nil {
			return Decision{Refuse, "the user said no"}
		}
	}
}

// change returns the arguments as the user changes them, in their editor if they have named one; "" if they do not.
func (t *Terminal) change(ctx context.Context, arguments string) (string, error) {
	command := cmp.Or(os.Getenv("VISUAL"), os.Getenv("EDITOR"))
	if command == "" || !t.edits {
		return t.ask(ctx, "the arguments, a JSON object (an empty line keeps them):", new(editor))
	}
	t.screen.ask("", false) // so that nothing else is written
	changed, err := t.inEditor(ctx, command, strings.TrimSpace(arguments)+"\n")
	t.screen.answered(true)
	if err != nil && ctx.Err() == nil {
		t.screen.tell(Look{Style: Red}, err.Error())
	} else if strings.TrimSpace(changed) == strings.TrimSpace(arguments) {
		changed = ""
	}
	return changed, context.Cause(ctx)
}

// inEditor returns a text as the user leaves it in an editor, which has the terminal meanwhile. It is for a terminal
// that gives the keys: elsewhere the program would have to share them with a read that has begun.
func (t *Terminal) inEditor(ctx context.Context, editor, text string) (string, error) {
	path, err := SaveFile([]byte(text), "application/json")
	defer os.Remove(path)
	if err != nil {
		return "", err
	}
	t.reading.Lock()
	defer t.reading.Unlock()
	t.Close()
	defer t.takeKeys()
	command := exec.CommandContext(ctx, "sh", "-c", editor+` "$@"`, editor, path) // as git does
	if runtime.GOOS == "windows" {
		command = exec.CommandContext(ctx, "cmd", "/c", editor, path)
	}
	command.Stdin, command.Stdout, command.Stderr = t.in, t.screen.window, t.screen.window
	if err := command.Run(); err != nil {
		return "", fmt.Errorf("%s: %w", editor, err)
	}
	changed, err := os.ReadFile(path)
	return string(changed), err
}

// call returns what the user sees of a call that is to be approved, all of it, and the question whether it may run.
// That names the tool and its server, too: what stands above is theirs.
func (t *Terminal) call(server, tool, arguments string) (about []passage, question string) {
	quote := func(name string) string { // no quote in it can end it, and the line does not break in it
		name = t.screen.name(name, min(t.screen.Columns()/3, 40))
		return `"` + strings.NewReplacer(`"`, "'", " ", "␣").Replace(name) + `"`
	}
	about, question = []passage{{Look{Style: Bold}, "The model wants to call"}}, "Call "+quote(tool)
	if server != "" {
		about = append(about, passage{Look{Frame: "  server     "}, server})
		question += " of " + quote(server)
	}
	shown, texts := t.texts(readableJSON(arguments, false))
	if width("  arguments  "+shown) > t.screen.Columns() {
		shown, texts = t.texts("\n" + readableJSON(arguments, true))
	}
	about = append(about, passage{Look{Frame: "  tool       "}, tool}, passage{Look{Frame: "  arguments  "}, shown})
	return append(about, texts...), question + "? [y]es / [n]o / [a]lways this tool / always this [s]erver / " +
		"[e]dit arguments / answer in its [p]lace:"
}

// texts returns JSON with a mark, which is not JSON, in place of each string that has several lines or does not fit
// one; and those strings, each below its mark. Tabs and carriage returns have a sign there.
func (t *Terminal) texts(arguments string) (shown string, texts []passage) {
	signs := strings.NewReplacer("\t", "→ ", "\r", "␍")
	shown = jsonString.ReplaceAllStringFunc(arguments, func(quoted string) string {
		var text string
		err := json.Unmarshal([]byte(quoted), &text)
		isLong := width(quoted) > t.screen.Columns() || strings.Contains(strings.TrimRight(text, "\n"), "\n")
		if err != nil || !isLong {
			return quoted
		}
		mark := fmt.Sprintf("text %d", len(texts)+1)
		texts = append(texts, passage{Look{Frame: fmt.Sprintf("  %-9s  ", mark)}, "\n" + signs.Replace(text)})
		return "(" + mark + ")"
	})
	return shown, texts
}

// below asks a question below rows. Where the window has no room for all of them, an empty answer shows more.
func (t *Terminal) below(ctx context.Context, rows []string, question rendered, hidden bool) (string, error) {
	for size := t.screen.pageSize(question); len(rows) > size; rows = rows[size:] {
		more := fmt.Sprintf("(%s: Enter shows more)", Plural(len(rows)-size, "more row"))
		shown := append(slices.Clip(rows[:size]), string(t.screen.render(Look{Style: Bold}, more)))
		if answer, err := t.answer(ctx, above(shown, question), hidden); err != nil || answer != "" {
			return answer, err
		}
	}
	return t.answer(ctx, above(rows, question), hidden)
}

// Page shows a text, as much of it at once as the window has room for. about stands above it.
func (t *Terminal) Page(ctx context.Context, about, text string) error {
	ctx, unlock := t.lock(ctx)
	defer unlock()
	of := passage{Look{Style: Bold, Max: maxShownError}, about}
	rows := t.screen.rows([]passage{of, {Look{Frame: lineMark, Exact: true}, text}})
	for size := max(t.screen.Rows()-1, 1); len(rows) > size; rows = rows[size:] {
		more := fmt.Sprintf("(%s: Enter, or !stop)", Plural(len(rows)-size, "more row"))
		_, err := t.answer(ctx, above(rows[:size], rendered(more)), false)
		if err == errDeclined || err == io.EOF {
			return nil // the user has seen enough
		} else if err != nil {
			return err
		}
	}
	t.screen.showLines(t.screen.user, above(rows, ""))
	return nil
}

// above puts rows and a question into one text, so that nothing else comes between them.
func above(rows []string, question rendered) rendered {
	return rendered(strings.Join(append(slices.Clip(rows), string(question)), "\n"))
}

var jsonString = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)

// readableJSON returns JSON of the same meaning, with a line for each value if long: letters stand for themselves, and
// escapes for what cannot be seen.
func readableJSON(text string, long bool) string {
	var b bytes.Buffer
	if json.Compact(&b, []byte(text)) != nil {
		return escape(text, unseen)
	}
	if compact := bytes.Clone(b.Bytes()); long {
		b.Reset()
		_ = json.Indent(&b, compact, "", "  ") // it is valid
	}
	return jsonString.ReplaceAllStringFunc(b.String(), func(quoted string) string {
		var s string
		if json.Unmarshal([]byte(quoted), &s) != nil {
			return escape(quoted, unseen)
		}
		return escape(string(TextContent(s)), unseen)
	})
}

// Confirm asks a question that only a clear yes allows, about a text. what, if not "", says who wants what, as in "the
// server asks the model".
func (t *Terminal) Confirm(ctx context.Context, what, text, question string) bool {
	about := []passage{{Look{Frame: lineMark}, text}}
	if what != "" {
		head := t.screen.name(what, t.screen.Columns()-1) + ":"
		about = slices.Insert(about, 0, passage{Look{Style: Bold}, head})
	}
	ctx, unlock := t.lock(ctx)
	defer unlock()
	t.beginQuestion(ctx)
	return t.confirm(ctx, about, question) == nil
}

// beginQuestion begins a paragraph, if somebody waits for the answer.
func (t *Terminal) beginQuestion(ctx context.Context) {
	if ctx.Err() == nil {
		t.screen.begin("question")
	}
}

// Elicit asks the user what a server wants to know, field by field. A URL is shown, never opened. who is the server,
// as in "the server asks".
func (t *Terminal) Elicit(ctx context.Context, who string, r *ElicitRequest) (*ElicitResult, error) {
	ctx, unlock := t.lock(ctx)
	defer unlock()
	switch content, err := t.fill(ctx, who, r); err {
	case nil:
		return &ElicitResult{Action: "accept", Content: content}, nil
	case errDeclined:
		return &ElicitResult{Action: "decline"}, nil
	case io.EOF, ErrCancelled:
		return &ElicitResult{Action: "cancel"}, nil
	default:
		return nil, err
	}
}

// fill has the user fill in a form, and change it until it can be sent (MCP 2026-07-28, client, elicitation). A form
// without fields is a question of yes or no.
func (t *Terminal) fill(ctx context.Context, who string, r *ElicitRequest) (content map[string]any, err error) {
	t.beginQuestion(ctx)
	asks := t.screen.name(who, t.screen.Columns()-20) + " asks:"
	about := []passage{{Look{Style: Bold}, asks}, {Look{Frame: lineMark}, r.Message}}
	if r.Mode == "url" {
		return nil, t.confirm(ctx, append(about, address(r.URL)...), "will you open it?")
	}
	fields, err := r.Form()
	if err != nil {
		return nil, err
	}
	content = make(map[string]any)
	if len(fields) == 0 {
		return content, t.confirm(ctx, about, "yes?")
	}
	hint := Plural(len(fields), "question") + "; an empty line takes what is in brackets; !no declines, !stop breaks off"
	intro := t.screen.rows(append(about, passage{text: "(" + hint + ")"}))
	for {
		for i := range fields {
			f := &fields[i]
			if f.Default, err = t.field(ctx, intro, f, false); err != nil {
				return nil, err
			}
			if f.Default != nil {
				content[f.Name] = f.Default
			}
			intro = nil
		}
		line, err := t.answer(ctx, "send it (y) or change it (n)?", false)
		if err != nil || isYes(line) {
			return content, err
		}
	}
}

// address shows a URL that is to be opened, its host apart and all in ASCII, so that no letter of another script
// passes for one of the domain.
func address(text string) []passage {
	ascii := func(text string) string { return strings.Trim(strconv.QuoteToASCII(text), `"`) }
	u, _ := url.Parse(text) // it is valid
	host, about := ascii(u.Hostname()), "to be opened in a browser, if you trust it:"
	if host != u.Hostname() || strings.Contains("."+strings.ToLower(host), ".xn--") {
		about = "to be opened in a browser, where the host has letters other than a to z and may look like another:"
	}
	return []passage{{text: about}, {Look{Frame: "  host  "}, host}, {Look{Frame: "  URL   "}, ascii(text)}}
}

// field asks for one field until the value is valid; nil is none. intro stands above it.
func (t *Terminal) field(ctx context.Context, intro []string, f *Field, hidden bool) (any, error) {
	for {
		rows := append(intro, t.screen.rows([]passage{{Look{Frame: lineMark}, label(f)}})...)
		last := len(rows) - 1
		line, err := t.below(ctx, rows[:last], rendered(rows[last]), hidden)
		if err != nil {
			return nil, err
		}
		intro = nil
		value, err := f.Parse(line)
		var bad *FormError
		if !errors.As(err, &bad) {
			return value, err
		}
		t.screen.tell(Look{}, "it "+bad.Reason) // the user knows the field by its title
	}
}

// confirm asks a question that only a clear yes allows: else the error is errDeclined, or that of answer.
func (t *Terminal) confirm(ctx context.Context, about []passage, question string) error {
	line, err := t.below(ctx, t.screen.rows(about), t.screen.render(Look{}, question+" [y/n]"), false)
	if err == nil && !isYes(line) {
		return errDeclined
	}
	return err
}

// answer asks a question that the user need not answer: the error is errDeclined or, as at the end of in, io.EOF.
func (t *Terminal) answer(ctx context.Context, question rendered, hidden bool) (string, error) {
	line, err := t.ask(ctx, question, &editor{hidden: hidden})
	line = strings.TrimSpace(line)
	refusals := map[string]error{"!stop": io.EOF, "!no": errDeclined}
	return line, cmp.Or(refusals[line], err)
}

// label is the question for a field. Its default is shown as the user would type it.
func label(f *Field) string {
	text := cmp.Or(f.Title, f.Name)
	if f.Description != "" {
		text += " (" + f.Description + ")"
	}
	typed := make(map[string]string) // for a value
	for i, option := range f.Options {
		typed[option.Value] = cmp.Or(option.Title, option.Value)
		text += fmt.Sprintf("\n  %d %s", i+1, typed[option.Value])
	}
	switch {
	case f.Many:
		text += "\nany of these, with commas"
	case len(f.Options) > 0:
		text += "\none of these"
	case f.Type == "boolean":
		text += ", y/n"
		typed["true"], typed["false"] = "y", "n"
	}
	if f.Default == nil && f.Required {
		return text + ":"
	}
	values, many := f.Default.([]string)
	if !many && f.Default != nil {
		values = []string{fmt.Sprint(f.Default)}
	}
	var preset []string
	for _, value := range values {
		preset = append(preset, cmp.Or(typed[value], value))
	}
	return text + " [" + cmp.Or(strings.Join(preset, ", "), "none") + "]:"
}

func isYes(line string) bool { return strings.EqualFold(line, "y") || strings.EqualFold(line, "yes") }
