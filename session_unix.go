// session_unix.go - a lock between processes, on Unix.
// SPDX-License-Identifier: 0BSD

//go:build unix

package main

import (
	"errors"
	"os"
	"syscall"
)

// lockFile makes and locks a file until unlock, or returns ErrSessionBusy. A lock ends with its
// process, so a file that was left behind is not locked.
//
// Between the opening and the locking of the file, the process that had the lock may end it, and
// remove the file. The lock is then one of a file without a name, which keeps nobody out, and
// lockFile begins anew.
func lockFile(path string) (unlock func(), err error) {
	for {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return nil, err
		}
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil && isAt(f, path) {
			return func() {
				// Removed while it is locked: afterwards it might be another process's.
				_ = os.Remove(path)
				_ = f.Close()
			}, nil
		}
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, ErrSessionBusy
		}
		if err != nil {
			return nil, err
		}
	}
}

// isAt reports whether a path leads to an open file.
func isAt(f *os.File, path string) bool {
	opened, err := f.Stat()
	if err != nil {
		return false
	}
	named, err := os.Stat(path)
	return err == nil && os.SameFile(opened, named)
}
