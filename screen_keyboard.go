// screen_keyboard.go - what the user types: lines, or keys and the mode of the terminal that gives them.
// SPDX-License-Identifier: 0BSD

package main

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
)

// inputTerminal is the file that answers are read from, and the mode of it as a terminal.
type inputTerminal struct {
	file    *os.File
	user    io.Writer  // the same terminal, to be written to
	reading sync.Mutex // held while keys are read

	mode    sync.Mutex // guards the following; held while the mode is changed, never while keys are read
	restore func()     // puts the terminal into the mode that it had; nil if it is in that
}

// takeKeys has the terminal give the keys until restoreMode.
func (t *inputTerminal) takeKeys() error {
	t.mode.Lock()
	defer t.mode.Unlock()
	return t.change()
}

// takeKeysAgain does so if the terminal gave the keys. It reports whether that is so.
func (t *inputTerminal) takeKeysAgain() bool {
	t.mode.Lock()
	defer t.mode.Unlock()
	if t.restore == nil {
		return false
	}
	_ = t.change()
	return true
}

// restoreMode puts the terminal into the mode that it had, if it is not in that.
func (t *inputTerminal) restoreMode() {
	t.mode.Lock()
	defer t.mode.Unlock()
	t.giveBack()
}

// change needs the lock of the mode, as does giveBack.
func (t *inputTerminal) change() error {
	// The mode to go back to is the one before, and not this one, if it is changed twice.
	t.giveBack()
	restore, err := changeInput(t.file)
	if err != nil {
		return err
	}
	t.restore = restore
	_, _ = io.WriteString(t.user, "\x1b[?2004h") // what is pasted is marked
	return nil
}

func (t *inputTerminal) giveBack() {
	if t.restore == nil {
		return
	}
	_, _ = io.WriteString(t.user, "\x1b[?2004l") // what is pasted looks as if it were typed
	t.restore()
	t.restore = nil
}

// startReading begins to read what is typed.
func (p *Prompter) startReading() {
	p.editing = p.hasUser && p.screen.Live && p.input.takeKeys() == nil
	if !p.editing {
		go p.readLines() // until the end of in: a blocked read of a terminal cannot be interrupted
		return
	}
	p.draft.history = openHistory()
	go p.readKeys()
	go onContinue(p.goOn)
}

// goOn takes the keys again after something else has stopped the program: meanwhile the shell has
// given the terminal its own mode, which shows what is typed.
func (p *Prompter) goOn() {
	if !p.input.takeKeysAgain() { // whoever has given the mode back takes the keys: stop or EditFile
		return
	}
	p.screen.edit(drawing{})
	p.press([]byte{0}) // which is no key: what is edited is drawn anew
}

// readLines reads all lines. It ends with in.
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

// readKeys reads all keys. It ends with in.
func (p *Prompter) readKeys() {
	defer close(p.typed)
	defer p.Close()
	buffer := make([]byte, 64<<10)
	for {
		p.input.reading.Lock()
		n, err := readKeys(p.input.file, buffer)
		p.input.reading.Unlock()
		if err != nil {
			return
		}
		p.press(buffer[:n])
	}
}

// press obeys keys: those of the open question, or of what the user says next. What is edited is drawn
// again if there are keys, or if the window has another size than before.
func (p *Prompter) press(in []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.keys.unread = append(p.keys.unread, in...)
	for key, pasted, ok := p.keys.next(); ok; key, pasted, ok = p.keys.next() {
		e := cmp.Or(p.open, p.draft)
		switch key = e.press(key, pasted); key {
		case '\r', keyClose:
			entered := append([]string{}, e.cells...)
			if key == keyClose {
				entered = nil
			}
			select {
			case p.typed <- entered:
				e.set(nil, 0)
				p.open = nil
			default: // nobody means to type so much ahead
			}
		case keyStop:
			p.screen.edit(drawing{}) // the shell's words stand in its place
			p.Close()
			stopProgram()
			_ = p.input.takeKeys()
		case '\t':
			complete := p.Complete.Load()
			if e != p.draft || complete == nil {
				break
			} else if words := (*complete)(e.text(e.at)); !e.expand(words) {
				p.screen.Show(Look{Style: Faint, Max: maxNote}, strings.Join(words, "  "))
			}
		case keyLostPaste:
			p.screen.Show(Look{}, fmt.Sprintf("(not taken: what was pasted has more than %d MiB)", maxPaste>>20))
		}
	}
	if e := p.open; e != nil {
		columns, rows := p.screen.Columns(), p.screen.Rows()
		if len(in) > 0 || columns != e.columns || rows != e.size {
			p.screen.edit(e.draw(columns, rows))
		}
	}
}

// EditorCommand returns the command of the editor that the user has named, or "" if there is none, or
// none can have the terminal: where that does not give the keys, the program would have to share them
// with a read that has begun.
func (p *Prompter) EditorCommand() string {
	if !p.editing {
		return ""
	}
	return cmp.Or(os.Getenv("VISUAL"), os.Getenv("EDITOR"))
}

// EditFile has the user edit a file in an editor, which has the terminal meanwhile: nothing else is
// written. The caller has the turn.
func (p *Prompter) EditFile(ctx context.Context, editor, path string) error {
	p.screen.ask("", false)
	defer p.screen.answered(true)
	p.input.reading.Lock()
	defer p.input.reading.Unlock()
	p.input.restoreMode()
	defer p.input.takeKeys()
	// As git does, the command may have arguments of its own.
	command := exec.CommandContext(ctx, "sh", "-c", editor+` "$@"`, editor, path)
	if runtime.GOOS == "windows" {
		command = exec.CommandContext(ctx, "cmd", "/c", editor, path)
	}
	command.Stdin, command.Stdout, command.Stderr = p.input.file, p.screen.window, p.screen.window
	if err := command.Run(); err != nil {
		return fmt.Errorf("%s: %w", editor, err)
	}
	return nil
}
