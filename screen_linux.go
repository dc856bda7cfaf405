// screen_linux.go - what Linux calls the requests of screen_unix.go.
// SPDX-License-Identifier: 0BSD

package main

import "syscall"

// The requests that read and write the mode of a terminal.
const (
	getMode = syscall.TCGETS
	setMode = syscall.TCSETS
)
