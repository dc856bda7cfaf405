// screen_bsd.go - what macOS and the BSDs call the requests of screen_unix.go.
// SPDX-License-Identifier: 0BSD

//go:build unix && !linux

package main

import "syscall"

// The requests that read and write the mode of a terminal.
const (
	getMode = syscall.TIOCGETA
	setMode = syscall.TIOCSETA
)
