// terminal_unix.go - a terminal's size, its keys, and what stops its programs, on Unix.
// SPDX-License-Identifier: 0BSD

//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package main

import (
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
	"unsafe"
)

// userTerminal is the terminal of the user, whatever the standard streams are.
const userTerminal = "/dev/tty"

// terminalCall asks the driver of a terminal to read or write a value.
func terminalCall(f *os.File, request uintptr, value unsafe.Pointer) error {
	raw, err := f.SyscallConn() // not Fd, which would make a terminal that does not block one that does
	if err != nil {
		return err
	}
	var failed syscall.Errno
	err = raw.Control(func(fd uintptr) {
		_, _, failed = syscall.Syscall(syscall.SYS_IOCTL, fd, request, uintptr(value))
	})
	if err == nil && failed != 0 {
		err = failed
	}
	return err
}

// windowSize is the size of a terminal's window; 0 is what is not known.
func windowSize(f *os.File) (columns, rows int) {
	var size struct{ rows, columns, width, height uint16 }
	_ = terminalCall(f, syscall.TIOCGWINSZ, unsafe.Pointer(&size)) // where it fails, the size stays 0
	return int(size.columns), int(size.rows)
}

// changeInput has a terminal show nothing of what is typed and, with keys, give each key to readKeys. Ctrl-C still
// interrupts.
func changeInput(f *os.File, keys bool) (restore func(), err error) {
	var before syscall.Termios
	if err := terminalCall(f, getMode, unsafe.Pointer(&before)); err != nil {
		return nil, err
	}
	mode := before
	mode.Lflag &^= syscall.ECHO
	if keys {
		mode.Lflag &^= syscall.ICANON | syscall.IEXTEN
		mode.Iflag &^= syscall.IXON | syscall.ICRNL | syscall.INLCR | syscall.IGNCR
		mode.Cc[syscall.VSUSP], mode.Cc[syscall.VQUIT] = noKey, noKey // the mode has to be put back before
		mode.Cc[syscall.VMIN], mode.Cc[syscall.VTIME] = 0, 2          // tenths of a second: see readKeys
	}
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

// stopProgram does what a key does that changeInput has turned off: it stops the program, or quits it.
func stopProgram(key rune) {
	goesOn := make(chan os.Signal, 1)
	signal.Notify(goesOn, syscall.SIGCONT)
	defer signal.Stop(goesOn)
	_ = syscall.Kill(0, map[rune]syscall.Signal{keyStop: syscall.SIGTSTP, keyQuit: syscall.SIGQUIT}[key])
	select { // it may take a moment, or not happen where nobody could have the program go on
	case <-goesOn:
	case <-time.After(100 * time.Millisecond):
	}
}

// onContinue calls a function when the program goes on that another one has stopped. It never returns.
func onContinue(f func()) {
	goesOn := make(chan os.Signal, 1)
	signal.Notify(goesOn, syscall.SIGCONT)
	for range goesOn {
		f()
	}
}
