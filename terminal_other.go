// terminal_other.go - a terminal that cannot be asked for its size or its keys.
// SPDX-License-Identifier: 0BSD

//go:build !(linux || windows || darwin || freebsd || netbsd || openbsd || dragonfly)

package main

import (
	"errors"
	"os"
)

func windowSize(*os.File) (columns, rows int) { return 0, 0 }

func changeInput(*os.File) (restore func(), err error) { return nil, errors.ErrUnsupported }

func readKeys(f *os.File, buffer []byte) (int, error) { return f.Read(buffer) }

func stopProgram() {}
