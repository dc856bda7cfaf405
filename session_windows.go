// session_windows.go - a lock between processes, on Windows, where an open file cannot be removed.
// SPDX-License-Identifier: 0BSD

package main

import (
	"errors"
	"io/fs"
	"os"
)

// lockFile makes a file and keeps it open until unlock, or returns ErrSessionBusy. A file that was
// left behind is not open, so it can be removed first.
func lockFile(path string) (unlock func(), err error) {
	_ = os.Remove(path)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil, ErrSessionBusy
	}
	if err != nil {
		return nil, err
	}
	return func() {
		_ = f.Close()
		_ = os.Remove(path)
	}, nil
}
