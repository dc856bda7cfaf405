// session_unix.go - a lock between processes, on Unix.
// SPDX-License-Identifier: 0BSD

//go:build unix

package main

import (
	"errors"
	"os"
	"syscall"
)

// lockFile makes and locks a file until unlock, or returns ErrSessionBusy. A lock ends with its process, so a file
// that was left behind is not locked.
func lockFile(path string) (unlock func(), err error) {
	for {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return nil, err
		}
		if err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err == nil {
			ours, failed := f.Stat()
			if there, err := os.Stat(path); err == nil && failed == nil && os.SameFile(ours, there) {
				return func() {
					_ = os.Remove(path) // while it is locked: afterwards it might be another process's
					_ = f.Close()
				}, nil
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
