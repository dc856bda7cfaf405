// screen_windows.go - the size of a console and its keys, on Windows.
// SPDX-License-Identifier: 0BSD

package main

import (
	"os"
	"syscall"
	"unsafe"
)

// changeMode sets and clears bits of a console's mode.
func changeMode(f *os.File, bits, cleared uint32) (restore func(), err error) {
	var before uint32
	if err := syscall.GetConsoleMode(syscall.Handle(f.Fd()), &before); err != nil {
		return nil, err
	}
	setMode := syscall.NewLazyDLL("kernel32.dll").NewProc("SetConsoleMode")
	set := func(mode uint32) error {
		ok, _, err := setMode.Call(f.Fd(), uintptr(mode))
		if ok == 0 {
			return err
		}
		return nil
	}
	return func() { _ = set(before) }, set(before&^cleared | bits)
}

// windowSize returns the columns and rows of a console's window; 0 if they are not known. It also
// has the console obey the escape sequences that are written to it, which older ones do only when
// they are asked to.
func windowSize(f *os.File) (columns, rows int) {
	const processEscapes = 4 // ENABLE_VIRTUAL_TERMINAL_PROCESSING
	_, _ = changeMode(f, processEscapes, 0)
	// It is a CONSOLE_SCREEN_BUFFER_INFO.
	var info struct {
		columns, rows, cursorX, cursorY int16
		attributes                      uint16
		left, top, right, bottom        int16
		maximumColumns, maximumRows     int16
	}
	size := syscall.NewLazyDLL("kernel32.dll").NewProc("GetConsoleScreenBufferInfo")
	if ok, _, _ := size.Call(f.Fd(), uintptr(unsafe.Pointer(&info))); ok == 0 {
		return 0, 0
	}
	return int(info.right) - int(info.left) + 1, int(info.bottom) - int(info.top) + 1
}

// changeInput has a console show nothing of what is typed, and give each key to readKeys, in the
// escape sequences that terminals have. Ctrl-C still interrupts.
func changeInput(f *os.File) (restore func(), err error) {
	const processed, lines, echo, sequences = 1, 2, 4, 0x200 // ENABLE_PROCESSED_INPUT and so on
	return changeMode(f, processed|sequences, echo|lines)
}

// readKeys reads what is typed. It returns 0 when nothing was for a while: see screen_unix.go.
func readKeys(f *os.File, buffer []byte) (n int, err error) {
	event, err := syscall.WaitForSingleObject(syscall.Handle(f.Fd()), 200)
	if err != nil || event == syscall.WAIT_TIMEOUT {
		return 0, err
	}
	return f.Read(buffer)
}

// stopProgram does nothing: Windows has no key for that.
func stopProgram() {}

// onContinue does nothing, as nothing stops the program.
func onContinue(func()) {}
