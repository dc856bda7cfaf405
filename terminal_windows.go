// terminal_windows.go - the size of a console and its keys, on Windows.
// SPDX-License-Identifier: 0BSD

package main

import (
	"cmp"
	"os"
	"syscall"
	"unsafe"
)

// userTerminal is the console of the user, whatever the standard streams are.
const userTerminal = "CONOUT$"

// windowSize returns the columns and rows of a console's window; 0 if they are not known. It also has the console obey
// the escape sequences that are written to it, which older ones do only when they are asked to.
func windowSize(f *os.File) (columns, rows int) {
	const processEscapes = 4 // ENABLE_VIRTUAL_TERMINAL_PROCESSING
	var info struct {        // CONSOLE_SCREEN_BUFFER_INFO
		columns, rows, cursorX, cursorY int16
		attributes                      uint16
		left, top, right, bottom        int16
		maximumColumns, maximumRows     int16
	}
	kernel32 := syscall.NewLazyDLL("kernel32.dll")
	raw, err := f.SyscallConn()
	if err != nil {
		return 0, 0
	}
	_ = raw.Control(func(fd uintptr) { // where it fails, info stays empty
		var mode uint32
		if syscall.GetConsoleMode(syscall.Handle(fd), &mode) == nil {
			_, _, _ = kernel32.NewProc("SetConsoleMode").Call(fd, uintptr(mode|processEscapes))
		}
		_, _, _ = kernel32.NewProc("GetConsoleScreenBufferInfo").Call(fd, uintptr(unsafe.Pointer(&info)))
	})
	if info.columns == 0 {
		return 0, 0
	}
	return int(info.right) - int(info.left) + 1, int(info.bottom) - int(info.top) + 1
}

// changeInput has a console show nothing of what is typed and, with keys, give each key to readKeys, in the escape
// sequences that terminals have. Ctrl-C still interrupts.
func changeInput(f *os.File, keys bool) (restore func(), err error) {
	const processed, lines, echo, sequences = 1, 2, 4, 0x200 // ENABLE_PROCESSED_INPUT and so on
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	change := func(mode uint32) (before uint32, err error) {
		failed := raw.Control(func(fd uintptr) {
			if err = syscall.GetConsoleMode(syscall.Handle(fd), &before); err != nil {
				return
			}
			if mode == 0 {
				mode = before&^echo | processed
				if keys {
					mode = mode&^lines | sequences
				}
			}
			ok, _, failed := syscall.NewLazyDLL("kernel32.dll").NewProc("SetConsoleMode").Call(fd, uintptr(mode))
			if ok == 0 {
				err = failed
			}
		})
		return before, cmp.Or(failed, err)
	}
	before, err := change(0)
	return func() { _, _ = change(before) }, err
}

// readKeys reads what is typed. It returns 0 when nothing was for a while, as a read without an end could not be left
// for another program that needs the keys.
func readKeys(f *os.File, buffer []byte) (n int, err error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return 0, err
	}
	event := uint32(syscall.WAIT_FAILED)
	err = raw.Control(func(fd uintptr) { event, err = syscall.WaitForSingleObject(syscall.Handle(fd), 200) })
	if err != nil || event == syscall.WAIT_TIMEOUT {
		return 0, err
	}
	return f.Read(buffer)
}

// A console has no key that stops a program.
func stopProgram(rune) {}

func onContinue(func()) {}
