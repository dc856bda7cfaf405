package main

import (
	"io"
	"os"
	"sync"
	"syscall"
	"testing"
	"unsafe"

	"gotest.tools/v3/assert"
)

// openKeyboard opens a terminal that gives its keys, and returns what reads its mode.
func openKeyboard(t *testing.T) (*inputTerminal, func() syscall.Termios) {
	keyboard, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("there is no terminal: %v", err)
	}
	t.Cleanup(func() { keyboard.Close() })
	mode := func() (m syscall.Termios) { // which the two ends share
		assert.NilError(t, terminalCall(keyboard, getMode, unsafe.Pointer(&m)))
		return m
	}
	return &inputTerminal{file: keyboard, user: io.Discard}, mode
}

// A terminal whose keys are taken again, as after Ctrl-Z while an editor has it, gets the mode back that it had first.
func TestTakeKeysAgain(t *testing.T) {
	input, mode := openKeyboard(t)
	before := mode()
	assert.NilError(t, input.takeKeys())
	assert.NilError(t, input.takeKeys())
	assert.Assert(t, mode() != before)
	input.restoreMode()
	assert.Equal(t, mode(), before)
}

// The keys are taken by several goroutines at once, as when the program goes on after Ctrl-Z: the mode to go back to is
// never the one that gives the keys.
func TestTakeKeysAtOnce(t *testing.T) {
	input, mode := openKeyboard(t)
	before := mode()
	for range 200 {
		var takers sync.WaitGroup
		for range 4 {
			takers.Go(func() { assert.Check(t, input.takeKeys()) })
			takers.Go(func() { input.takeKeysAgain() })
		}
		takers.Wait()
		input.restoreMode()
		assert.Equal(t, mode(), before)
	}
}
