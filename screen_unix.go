// screen_unix.go - a terminal's size, its keys, and what stops its programs, on Unix.
// SPDX-License-Identifier: 0BSD

//go:build unix

package main

import (
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
	"unsafe"
)

// terminalCall asks the driver of a terminal to read or write a value.
func terminalCall(f *os.File, request uintptr, value unsafe.Pointer) error {
	if _, _, err := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), request, uintptr(value)); err != 0 {
		return err
	}
	return nil
}

// windowSize is the size of a terminal's window; 0 is what is not known.
func windowSize(f *os.File) (columns, rows int) {
	var size struct{ rows, columns, width, height uint16 }
	_ = terminalCall(f, syscall.TIOCGWINSZ, unsafe.Pointer(&size)) // where it fails, the size stays 0
	return int(size.columns), int(size.rows)
}

// changeInput has a terminal show nothing of what is typed, and give each key to readKeys. Ctrl-C still interrupts.
func changeInput(f *os.File) (restore func(), err error) {
	var before syscall.Termios
	if err := terminalCall(f, getMode, unsafe.Pointer(&before)); err != nil {
		return nil, err
	}
	mode := before
	mode.Lflag &^= syscall.ECHO | syscall.ICANON | syscall.IEXTEN
	mode.Iflag &^= syscall.IXON | syscall.ICRNL | syscall.INLCR | syscall.IGNCR
	mode.Cc[syscall.VSUSP] = mode.Cc[syscall.VINTR] // which comes first, so that Ctrl-Z is a key: see Terminal.press
	mode.Cc[syscall.VQUIT] = mode.Cc[syscall.VINTR]
	mode.Cc[syscall.VMIN], mode.Cc[syscall.VTIME] = 0, 2 // tenths of a second: see readKeys
	restore = func() { _ = terminalCall(f, setMode, unsafe.Pointer(&before)) }
	return restore, terminalCall(f, setMode, unsafe.Pointer(&mode))
}

// readKeys reads what is typed. It returns 0 when nothing was for a while, as a read without an end could not be left
// for another program that needs the keys.
func readKeys(f *os.File, buffer []byte) (int, error) {
	n, err := f.Read(buffer)
	if err == io.EOF { // nothing was typed, or the terminal is gone
		var mode syscall.Termios
		err = terminalCall(f, getMode, unsafe.Pointer(&mode))
	}
	return n, err
}

// stopProgram does what Ctrl-Z does where changeInput has not turned it off.
func stopProgram() {
	_ = syscall.Kill(0, syscall.SIGTSTP) // which nobody obeys where nobody could have the program go on
	<-time.After(100 * time.Millisecond) // it may take a moment
}

// onContinue calls a function whenever the program goes on that something has stopped. It never returns.
func onContinue(f func()) {
	continued := make(chan os.Signal, 1)
	for signal.Notify(continued, syscall.SIGCONT); ; f() {
		<-continued
	}
}
