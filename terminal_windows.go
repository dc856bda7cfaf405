// terminal_windows.go - the size of a console, on Windows.
// SPDX-License-Identifier: 0BSD

package main

import (
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
