// terminal_unix.go - how large a terminal is, on Unix.
// SPDX-License-Identifier: 0BSD

//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package main

import (
	"os"
	"syscall"
	"unsafe"
)

// userTerminal is the terminal of the user, whatever the standard streams are.
const userTerminal = "/dev/tty"

// windowSize is the size of a terminal's window; 0 is what is not known.
func windowSize(f *os.File) (columns, rows int) {
	var size struct{ rows, columns, width, height uint16 }
	raw, err := f.SyscallConn() // not Fd, which would make a terminal that does not block one that does
	if err != nil {
		return 0, 0
	}
	_ = raw.Control(func(fd uintptr) { // where it fails, the size stays 0
		syscall.Syscall(syscall.SYS_IOCTL, fd, syscall.TIOCGWINSZ, uintptr(unsafe.Pointer(&size)))
	})
	return int(size.columns), int(size.rows)
}
