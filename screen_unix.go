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
	// Where the call fails, the size stays 0.
	var size struct{ rows, columns, width, height uint16 }
	_ = terminalCall(f, syscall.TIOCGWINSZ, unsafe.Pointer(&size))
	return int(size.columns), int(size.rows)
}

// changeInput has a terminal show nothing of what is typed, and give each key to readKeys. Ctrl-C
// still interrupts.
//
// Ctrl-Z is to be a key: Prompter puts the mode back before it stops the program. So the terminal
// gets the key of Ctrl-C for the one that stops and the one that quits; of keys that are the same,
// the one that interrupts comes first. A read returns after two tenths of a second at most.
func changeInput(f *os.File) (restore func(), err error) {
	var before syscall.Termios
	if err := terminalCall(f, getMode, unsafe.Pointer(&before)); err != nil {
		return nil, err
	}
	mode := before
	mode.Lflag &^= syscall.ECHO | syscall.ICANON | syscall.IEXTEN
	mode.Iflag &^= syscall.IXON | syscall.ICRNL | syscall.INLCR | syscall.IGNCR
	mode.Cc[syscall.VSUSP] = mode.Cc[syscall.VINTR]
	mode.Cc[syscall.VQUIT] = mode.Cc[syscall.VINTR]
	mode.Cc[syscall.VMIN] = 0
	mode.Cc[syscall.VTIME] = 2
	restore = func() { _ = terminalCall(f, setMode, unsafe.Pointer(&before)) }
	return restore, terminalCall(f, setMode, unsafe.Pointer(&mode))
}

// readKeys reads what is typed. It returns 0 when nothing was for a while, as a read without an end
// could not be left for another program that needs the keys.
func readKeys(f *os.File, buffer []byte) (int, error) {
	n, err := f.Read(buffer)
	// Nothing was typed, or the terminal is gone: then it has no mode any longer.
	if err == io.EOF {
		var mode syscall.Termios
		err = terminalCall(f, getMode, unsafe.Pointer(&mode))
	}
	return n, err
}

// stopTakes is how long a signal may take to stop the program.
const stopTakes = 100 * time.Millisecond

// stopProgram does what Ctrl-Z does where changeInput has not turned it off: it stops the processes
// of the program's group. The system does not stop them where no shell could have them go on.
func stopProgram() {
	_ = syscall.Kill(0, syscall.SIGTSTP)
	<-time.After(stopTakes)
}

// onContinue calls a function whenever the program goes on that something has stopped. It never
// returns.
func onContinue(f func()) {
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, syscall.SIGCONT)
	for range continued {
		f()
	}
}
