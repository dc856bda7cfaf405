// files_unix.go - the owner of a file, on Unix.
// SPDX-License-Identifier: 0BSD

//go:build unix

package main

import (
	"io/fs"
	"os"
	"syscall"
)

// takePlace gives a new file the owner and the group of the old one whose name it is to take. It
// returns fs.ErrPermission if the new file cannot be that: this user may not give it away, or the
// old one has other names, which would go on leading to the old text.
func takePlace(path string, old fs.FileInfo) error {
	now, err := os.Lstat(path)
	if err != nil {
		return err
	}
	was, isKnown := old.Sys().(*syscall.Stat_t)
	is, isKnownNow := now.Sys().(*syscall.Stat_t)
	switch {
	case !isKnown || !isKnownNow:
		return nil
	case was.Nlink > 1:
		return fs.ErrPermission
	case was.Uid == is.Uid && was.Gid == is.Gid:
		return nil
	}
	return os.Lchown(path, int(was.Uid), int(was.Gid))
}
