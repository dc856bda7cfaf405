// screen_prompt.go - questions to the user, one at a time, and what they answer.
// SPDX-License-Identifier: 0BSD

package main

import (
	"context"
	"errors"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

var (
	// ErrCancelled is the cause of a question's end when the user cancelled it.
	ErrCancelled = errors.New("cancelled")

	// ErrDeclined says that the user has seen a question and does not answer it.
	ErrDeclined = errors.New("declined")
)

// Prompter asks the user, one question at a time. Make one with NewPrompter.
//
// What is entered while no question is open is kept for Prompt, and never answers another question:
// the user had not seen that question yet. Where the terminal does not give the keys one by one, it
// edits the lines itself.
//
// Whoever asks holds the turn (see Take), so that one question is open at a time. One goroutine
// reads what is typed, from the first question on, until the end of the input. It passes on each
// text that is entered through typed. Where it reads keys, it never waits for whoever takes that.
// All methods may be called from any goroutine.
type Prompter struct {
	// Complete, if set, returns the words that the last one of a text may become: of what the user
	// types for Prompt, up to the cursor. No key is obeyed meanwhile, but Break goes on to work.
	Complete atomic.Pointer[func(text string) (candidates []string)]

	screen  *Screen
	input   *inputTerminal
	hasUser bool          // there is a user to ask
	start   sync.Once     // of reading
	editing bool          // the terminal gives the keys. Set by startReading, only read after it
	turn    chan struct{} // one slot, taken while a question is asked

	// typed has the cells of each text that is entered, nil for Ctrl-D. It is closed at the end of
	// the input.
	typed chan []string

	// mu guards the following. It is taken before the screen's, and never held while a server, an
	// editor or the user is waited for.
	mu       sync.Mutex
	turns    turnTime
	life     context.Context    // of the questions that are open or wait for their turn
	breakOff context.CancelFunc // ends life
	keys     keys
	draft    *editor // of what the user says next
	open     *editor // of the question that is open; nil if there is none
}

// Question is what Prompter.Ask asks.
type Question struct {
	About  []Paragraph // stands above, page by page where the window is too small
	Text   string      // stands below each page. If it is "", the last row of About is the question
	Hidden bool        // the answer is not shown, where the keys are read

	// Early, if set, reports whether an answer counts above the last page. Any other one shows the
	// next page, as if it were empty.
	Early func(answer string) bool
}

// NewPrompter asks on the screen and reads the answers from in.
func NewPrompter(in *os.File, screen *Screen) *Prompter {
	p := &Prompter{
		screen: screen,
		turn:   make(chan struct{}, 1),
		typed:  make(chan []string, 1000),
		draft:  &editor{history: new(history)},
	}
	p.hasUser = IsTerminal(in) && screen.openUser()
	p.input = &inputTerminal{file: in, user: screen.user}
	p.life, p.breakOff = context.WithCancel(context.Background())
	return p
}

// Interactive reports whether there is a user to ask.
func (p *Prompter) Interactive() bool { return p.hasUser }

// Prompt reads what the user wants to say: a line, or more. The error is io.EOF, or the cause of
// ctx.
func (p *Prompter) Prompt(ctx context.Context, prompt string) (string, error) {
	ctx, release := p.Take(ctx)
	defer release()
	return p.ask(ctx, p.screen.render(Look{Style: Bold}, strings.TrimSpace(prompt)), p.draft)
}

// Remember keeps what the user has said, without secrets, for the key Up: also for the next run, if
// inFile. The error is why that will not know it, and comes once.
func (p *Prompter) Remember(text string, inFile bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.draft.history.add(p.screen.Secrets.Mask(text), inFile)
}

// Close puts the terminal into the mode that it had. It does not wait for a key or an answer, as it
// is called after a panic, too.
func (p *Prompter) Close() { p.input.restoreMode() }

// Break ends the questions that are open and those that wait: their callers get no answer. What was
// entered and not yet read is dropped, as an interrupt does with the line that is being typed.
func (p *Prompter) Break(ctx context.Context) {
	p.endLife()
	ctx, release := p.Take(ctx)
	defer release()
	if ctx.Err() == nil {
		p.discardTyped()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.draft.set(nil, 0)
	p.keys = keys{}
}

// endLife ends the questions of this life, and begins another.
func (p *Prompter) endLife() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.breakOff()
	p.life, p.breakOff = context.WithCancel(context.Background())
}

// Take waits for its turn to ask. The context that it returns is for the questions until release:
// Break ends it, too. It has ended already if the turn did not come.
func (p *Prompter) Take(ctx context.Context) (_ context.Context, release func()) {
	p.mu.Lock()
	life := p.life
	p.mu.Unlock()
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(life, func() { cancel(ErrCancelled) })
	taken := false
	select {
	case p.turn <- struct{}{}:
		taken = true
		p.noteTurn(time.Now())
	case <-ctx.Done():
	}
	return ctx, func() {
		stop()
		cancel(nil)
		if taken {
			p.noteTurn(time.Time{})
			<-p.turn
		}
	}
}

// turnTime is for how long the turn was taken.
type turnTime struct {
	before time.Duration // in all, but for now
	taken  time.Time     // when it was taken; zero if it is free
}

// upTo returns the time in all.
func (t turnTime) upTo(now time.Time) time.Duration {
	if t.taken.IsZero() {
		return t.before
	}
	return t.before + now.Sub(t.taken)
}

// noteTurn notes when the turn was taken, or with a time that is zero that it is free.
func (p *Prompter) noteTurn(taken time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.turns = turnTime{p.turns.upTo(time.Now()), taken}
}

// Asked returns for how long somebody has had the turn to ask the user, in all and until now.
func (p *Prompter) Asked() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.turns.upTo(time.Now())
}

// Ask asks a question that the user need not answer, and returns the answer without the blanks
// around it. The error is ErrDeclined after "!no", and io.EOF after "!stop" or at the end of the
// input. The caller has the turn.
func (p *Prompter) Ask(ctx context.Context, q Question) (string, error) {
	rows := p.screen.rows(q.About)
	question := p.screen.render(Look{}, q.Text)
	if q.Text == "" {
		last := len(rows) - 1
		rows, question = rows[:last], rendered(rows[last])
	}
	// Where the window has no room for all rows, an empty answer shows more.
	size := p.screen.pageSize(question)
	for ; len(rows) > size; rows = rows[size:] {
		more := Plural(len(rows)-size, "more row") + ": Enter shows more"
		if q.Early != nil {
			more += "; yes counts below the last one"
		}
		more = "(" + more + ")"
		shown := append(slices.Clip(rows[:size]), string(p.screen.render(Look{Style: Bold}, more)))
		answer, err := p.askOnce(ctx, above(shown, question), q.Hidden)
		counts := answer != "" && (q.Early == nil || q.Early(answer))
		if err != nil || counts {
			return answer, err
		}
	}
	return p.askOnce(ctx, above(rows, question), q.Hidden)
}

// askOnce shows a question, and knows the two words that do not answer it.
func (p *Prompter) askOnce(ctx context.Context, question rendered, hidden bool) (string, error) {
	line, err := p.ask(ctx, question, &editor{hidden: hidden})
	line = strings.TrimSpace(line)
	switch {
	case err != nil:
		return "", err
	case line == "!stop":
		return "", io.EOF
	case line == "!no":
		return "", ErrDeclined
	}
	return line, nil
}

// AskText returns what the user types, as it is: any word of it may be meant so. The caller has the
// turn.
func (p *Prompter) AskText(ctx context.Context, question string) (string, error) {
	return p.ask(ctx, p.screen.render(Look{}, question), new(editor))
}

// maxEditText bounds a text that is changed in the line, in bytes: it is drawn again with each key.
const maxEditText = 64 << 10

// EditText returns a text as the user changes it, as AskText does; "" is none. what says what it
// is. The text stands in the line, unless the terminal edits its lines itself, or the text is too
// long, or has a secret: a change to what is shown of that would put the mask in its place. Then
// the user types it anew.
func (p *Prompter) EditText(ctx context.Context, what, text string) (string, error) {
	p.start.Do(p.startReading)
	isShown := p.editing && len(text) <= maxEditText && p.screen.Secrets.Mask(text) == text
	if !isShown {
		return p.AskText(ctx, what+" (an empty line keeps it):")
	}
	e := new(editor)
	e.set(character.FindAllString(text, -1), 0)
	hint := " (Enter takes it, Alt-Enter begins a line):"
	return p.ask(ctx, p.screen.render(Look{}, what+hint)+"\n", e)
}

// above puts rows and a question into one text, so that nothing else comes between them.
func above(rows []string, question rendered) rendered {
	return rendered(strings.Join(append(slices.Clip(rows), string(question)), "\n"))
}

// maxLine is how many bytes of a line Linux takes from a terminal that edits it; it drops the rest
// in silence.
const maxLine = 4095

// typedBefore is how long what was typed before a question may take to arrive.
const typedBefore = 15 * time.Millisecond

// ask shows a question and returns what answers it: but for the draft, what is typed after the
// question. When ctx has ended, nobody waits for an answer: the question is not shown.
func (p *Prompter) ask(ctx context.Context, question rendered, e *editor) (string, error) {
	p.start.Do(p.startReading)
	if ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	if e != p.draft {
		<-time.After(typedBefore)
		if dropped := p.discardTyped(); dropped != "" {
			p.screen.Tell(Look{Max: 160},
				"(ignored, because it was typed before the question: "+dropped+")")
		}
	}
	if p.editing {
		p.beginEdit(question, e)
		entered, err := p.awaitTyped(ctx)
		p.endEdit(e, entered, err)
		return strings.Join(entered, ""), err
	}
	p.screen.ask(question, e == p.draft)
	entered, err := p.awaitTyped(ctx)
	p.screen.answered(err == nil)
	text := strings.Join(entered, "")
	if len(text) >= maxLine || strings.ContainsFunc(text, steers) {
		p.screen.Tell(Look{Style: Red}, "not taken: the line has control characters, as arrow "+
			"keys give them, or is so long that the terminal may have cut it. Type it again, or "+
			"give a file on stdin")
		return p.ask(ctx, question, e)
	}
	return text, err
}

// awaitTyped waits for the next text that is entered.
func (p *Prompter) awaitTyped(ctx context.Context) (entered []string, err error) {
	select {
	case entered = <-p.typed:
		if entered == nil {
			return nil, io.EOF
		}
		return entered, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// beginEdit opens a question whose answer is edited here.
func (p *Prompter) beginEdit(question rendered, e *editor) {
	p.mu.Lock()
	defer p.mu.Unlock()
	end := strings.LastIndexByte(string(question), '\n') + 1
	e.prompt = string(question[end:]) + " "
	// Where the question fills its row, the answer begins a row of its own.
	if plainWidth(e.prompt) > p.screen.Columns()-4 {
		question += "\n"
		end = len(question)
		e.prompt = ""
	}
	p.screen.ask(question[:end], e == p.draft)
	// Of a text that was typed ahead, the answer is here already.
	if len(p.typed) == 0 {
		p.open = e
		p.screen.edit(e.draw(p.screen.Columns(), p.screen.Rows()))
	}
}

// endEdit closes the question: the answer is here, or err says why nobody waits for it any longer.
func (p *Prompter) endEdit(e *editor, answer []string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open = nil
	isLater := e == p.draft && err != ErrCancelled && err != io.EOF
	switch {
	case err == nil:
		// All of it is shown, however small the window is.
		whole := &editor{prompt: e.prompt, hidden: e.hidden, cells: answer, at: len(answer)}
		p.screen.edit(whole.draw(p.screen.Columns(), math.MaxInt))
	case isLater:
		// It stands in the next prompt.
		p.screen.edit(drawing{})
	default:
		e.set(nil, 0)
	}
	p.screen.answered(true)
}

// discardTyped discards what was typed, and returns it. Its caller has the turn, so that nobody
// else takes it.
func (p *Prompter) discardTyped() (dropped string) {
	for len(p.typed) > 0 {
		dropped += " " + strings.Join(<-p.typed, "")
	}
	return dropped
}
