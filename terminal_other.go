// terminal_other.go - the size of a terminal where it cannot be asked for.
// SPDX-License-Identifier: 0BSD

//go:build !(linux || windows || darwin || freebsd || netbsd || openbsd || dragonfly)

package main

import "os"

// windowSize does not know.
func windowSize(*os.File) (columns, rows int) { return 0, 0 }

// userTerminal is the terminal of the user, whatever the standard streams are.
const userTerminal = "/dev/tty"
