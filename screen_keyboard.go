// screen_keyboard.go - what the user types: where it is read, and what obeys it.
// SPDX-License-Identifier: 0BSD

package main

import (
	"bufio"
	"cmp"
	"fmt"
	"strings"
)

// startReading begins to read what is typed. A read of a terminal cannot be interrupted, so the
// goroutines that it starts end with the input, or with the program.
func (p *Prompter) startReading() {
	p.editing = p.hasUser && p.screen.Live && p.input.takeKeys() == nil
	if !p.editing {
		go p.readLines()
		return
	}
	p.draft.history = openHistory()
	go p.readKeys()
	go onContinue(p.goOn)
}

// readLines reads all lines, where the terminal edits them. It is the only sender of typed then.
func (p *Prompter) readLines() {
	defer close(p.typed)
	in := bufio.NewReader(p.input.file)
	for {
		text, err := in.ReadString('\n')
		if text != "" {
			p.typed <- []string{strings.TrimRight(text, "\r\n")}
		}
		if err != nil {
			return
		}
	}
}

// readKeys reads all keys and has them obeyed.
func (p *Prompter) readKeys() {
	defer close(p.typed)
	defer p.Close()
	buffer := make([]byte, 64<<10)
	for {
		n, err := p.input.readKeys(buffer)
		if err != nil {
			return
		}
		p.press(buffer[:n])
	}
}

// goOn takes the keys again after another program has stopped this one: meanwhile the shell has
// given the terminal its own mode, which shows what is typed. If the keys were not taken at that
// time, whoever has given the mode back takes them: see inputTerminal.lend.
func (p *Prompter) goOn() {
	if !p.input.takeKeysAgain() {
		return
	}
	p.screen.edit(drawing{})
	// A NUL is no key, but it has what is edited drawn anew.
	p.press([]byte{0})
}

// press obeys keys: those of the open question, or of what the user says next. What is edited is
// drawn again if there are keys, or if the window has another size than before.
func (p *Prompter) press(in []byte) {
	p.receive(in)
	for {
		key := p.obeyKeys()
		if key == 0 {
			break
		}
		p.obeyUnlocked(key)
	}
	p.redraw(len(in) > 0)
}

// receive adds what was typed to what is not obeyed yet.
func (p *Prompter) receive(in []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.keys.unread = append(p.keys.unread, in...)
}

// obeyKeys obeys the keys that are here, up to one that obeyUnlocked obeys. It returns that, or 0
// if no whole key is left.
//
// All keys up to there are obeyed under one lock: a question that opens meanwhile gets none of
// them, as the user has not seen it.
func (p *Prompter) obeyKeys() rune {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		key, pasted, ok := p.keys.next()
		if !ok {
			return 0
		}
		e := p.edited()
		key = e.press(key, pasted)
		switch key {
		case 0:
		case keyEnter:
			p.enter(e, append([]string{}, e.cells...))
		case keyClose:
			p.enter(e, nil)
		default:
			return key
		}
	}
}

// edited returns what the keys go to. It needs the lock, as does enter.
func (p *Prompter) edited() *editor { return cmp.Or(p.open, p.draft) }

// enter passes on what was entered, nil for the end of the input. Where nobody takes it and the
// queue is full, it stays in its editor: so the lock is never held for a receiver.
func (p *Prompter) enter(e *editor, entered []string) {
	select {
	case p.typed <- entered:
		e.set(nil, 0)
		p.open = nil
	default:
	}
}

// obeyUnlocked obeys a key that may take its time, so that Break need not wait for that: words for
// Tab may come from a server, and Ctrl-Z lasts until the user goes on (TestEditCompleteBreak).
func (p *Prompter) obeyUnlocked(key rune) {
	switch key {
	case keyTab:
		p.completeWord()
	case keyStop:
		// The shell's words stand in the place of what is edited.
		p.screen.edit(drawing{})
		_ = p.input.lend(func() error {
			stopProgram()
			return nil
		})
	case keyLostPaste:
		note := fmt.Sprintf("(not taken: what was pasted has more than %d MiB)", maxPaste>>20)
		p.screen.Show(Look{}, note)
	}
}

// completeWord completes the last word of what the user says, or shows what it may become.
func (p *Prompter) completeWord() {
	complete := p.Complete.Load()
	before, ok := p.textToComplete()
	if complete == nil || !ok {
		return
	}
	words := (*complete)(before)
	if !p.expandWord(before, words) {
		p.screen.Show(Look{Style: Faint}, someOf(words, maxNote))
	}
}

// someOf returns as many words as so many columns have room for, and counts the others.
func someOf(words []string, columns int) string {
	text := ""
	for i, word := range words {
		if i > 0 {
			text += "  "
		}
		if Width(text+word) > columns {
			return fmt.Sprintf("%s… %d more", text, len(words)-i)
		}
		text += word
	}
	return text
}

// textToComplete returns what stands before the cursor. ok is false if a question is being
// answered.
func (p *Prompter) textToComplete() (before string, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.edited()
	return e.textBefore(e.at), e == p.draft
}

// expandWord completes the word as far as all candidates agree, if the same text stands before the
// cursor as when they were asked for. It reports whether there is nothing to choose from.
func (p *Prompter) expandWord(before string, candidates []string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.edited()
	if e != p.draft || e.textBefore(e.at) != before {
		return true
	}
	return e.expand(candidates)
}

// redraw draws what is edited of the open question, if it has changed or the window has.
func (p *Prompter) redraw(changed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.open
	if e == nil {
		return
	}
	columns, rows := p.screen.Columns(), p.screen.Rows()
	if changed || columns != e.columns || rows != e.size {
		p.screen.edit(e.draw(columns, rows))
	}
}
