// session_unix.go - a file that one process at a time may have, on Unix.
// SPDX-License-Identifier: 0BSD

//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package main

import (
	"errors"
	"os"
	"syscall"
)

// lockFile makes a file that no other process has, or returns ErrSessionBusy. One that a process
// left behind is in nobody's way: the lock ends with the process.
func lockFile(path string) (*os.File, error) {
	for {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return nil, err
		}
		if err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err == nil {
			ours, failed := f.Stat()
			if there, err := os.Stat(path); err == nil && failed == nil && os.SameFile(ours, there) {
				return f, nil
			}
		}
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, ErrSessionBusy
		} else if err != nil {
			return nil, err
		}
	} // it was removed between the two: try again
}

// unlockFile removes the file while it is locked: later it might be another process's.
func unlockFile(f *os.File) {
	_ = os.Remove(f.Name())
	_ = f.Close()
}
