// screen_mode.go - the terminal that answers are typed on: who has it, and in which mode it is.
// SPDX-License-Identifier: 0BSD

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync"
)

// inputTerminal is the file that answers are read from, and its mode if it is a terminal.
//
// A terminal has one mode for all its programs. Ours gives each key as it is typed and shows
// nothing; the shell and an editor expect the mode that they had. So the mode of before is put back
// whenever another program gets the terminal, and at the end, after a panic, too.
type inputTerminal struct {
	file *os.File
	user io.Writer // the same terminal, to be written to

	// holder is held by whoever has the terminal: a read of keys, an editor, the shell after
	// Ctrl-Z. It is taken before mode.
	holder sync.Mutex

	mode    sync.Mutex // guards the following; held while it changes, never during a read
	restore func()     // puts the terminal into the mode of before; nil if it is in that
}

// What is written to a terminal to have it mark what is pasted, and to have it stop that.
const (
	markPastes   = "\x1b[?2004h"
	unmarkPastes = "\x1b[?2004l"
)

// takeKeys has the terminal give the keys until restoreMode.
func (t *inputTerminal) takeKeys() error {
	t.mode.Lock()
	defer t.mode.Unlock()
	return t.change()
}

// takeKeysAgain does so if the terminal has given the keys so far, and reports whether it has.
func (t *inputTerminal) takeKeysAgain() bool {
	t.mode.Lock()
	defer t.mode.Unlock()
	if t.restore == nil {
		return false
	}
	_ = t.change()
	return true
}

// restoreMode puts the terminal into the mode of before, if it is not in that.
func (t *inputTerminal) restoreMode() {
	t.mode.Lock()
	defer t.mode.Unlock()
	t.giveBack()
}

// change takes the keys. It needs the lock of the mode.
//
// The mode is given back first: else the one to go back to would be the one that gives the keys,
// and the user's shell would show nothing of what they type (TestTakeKeysAtOnce).
func (t *inputTerminal) change() error {
	t.giveBack()
	restore, err := changeInput(t.file)
	if err != nil {
		return err
	}
	t.restore = restore
	_, _ = io.WriteString(t.user, markPastes)
	return nil
}

// giveBack needs the lock of the mode.
func (t *inputTerminal) giveBack() {
	if t.restore == nil {
		return
	}
	_, _ = io.WriteString(t.user, unmarkPastes)
	t.restore()
	t.restore = nil
}

// lend gives the terminal to another program while use runs, and takes the keys again.
func (t *inputTerminal) lend(use func() error) error {
	t.holder.Lock()
	defer t.holder.Unlock()
	t.restoreMode()
	defer t.takeKeys()
	return use()
}

// readKeys reads what is typed. It returns 0 when nothing was typed for a while, so that an editor
// does not wait long for the terminal.
func (t *inputTerminal) readKeys(buffer []byte) (int, error) {
	t.holder.Lock()
	defer t.holder.Unlock()
	return readKeys(t.file, buffer)
}

// EditorCommand returns the command of the editor that the user has named. It is "" if they have
// named none, or if the terminal does not give the keys: then a read of a line has begun, which
// cannot be taken back, and would take keys from an editor.
func (p *Prompter) EditorCommand() string {
	if !p.editing {
		return ""
	}
	if command := os.Getenv("VISUAL"); command != "" {
		return command
	}
	return os.Getenv("EDITOR")
}

// EditFile has the user edit a file with a command, which has the terminal until it ends. What
// others write meanwhile waits. The caller has the turn.
func (p *Prompter) EditFile(ctx context.Context, command, path string) error {
	// The command may have arguments of its own, as in "code --wait". Git starts it in the same
	// way.
	editor := exec.CommandContext(ctx, "sh", "-c", command+` "$@"`, command, path)
	if runtime.GOOS == "windows" {
		editor = exec.CommandContext(ctx, "cmd", "/c", command, path)
	}
	editor.Stdin, editor.Stdout, editor.Stderr = p.input.file, p.screen.window, p.screen.window
	p.screen.ask("", false)
	defer p.screen.answered(true)
	if err := p.input.lend(editor.Run); err != nil {
		return fmt.Errorf("%s: %w", command, err)
	}
	return nil
}
