// terminal_unix.go - how wide a terminal is, on Unix.
// SPDX-License-Identifier: 0BSD

//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package main

import (
	"os"
	"syscall"
	"unsafe"
)

// windowWidth is the width of a terminal's window in columns; 0 if it is not known.
func windowWidth(f *os.File) int {
	var size struct{ rows, columns, width, height uint16 }
	raw, err := f.SyscallConn() // not Fd, which would make a terminal that does not block one that does
	if err != nil {
		return 0
	}
	_ = raw.Control(func(fd uintptr) { // where it fails, the size stays 0
		syscall.Syscall(syscall.SYS_IOCTL, fd, syscall.TIOCGWINSZ, uintptr(unsafe.Pointer(&size)))
	})
	return int(size.columns)
}
