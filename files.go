// files.go - files that are read with a bound, and files that are written whole.
// SPDX-License-Identifier: 0BSD

package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// MaxNamedFile bounds a file that the user names, in bytes: it is read into memory.
const MaxNamedFile = 64 << 20

// ReadRegular reads a regular file, of at most limit bytes, without its byte order mark. It is for
// the files that a program finds by itself, which a stranger may have put there: a link to a device
// would have no end, and a pipe might wait for ever.
//
// The file is opened without waiting and looked at afterwards: what a path leads to may be replaced
// between a look at the path and the opening.
func ReadRegular(path string, limit int64) ([]byte, error) {
	special := fmt.Errorf("%s is not a regular file", path)
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, syscall.ENXIO) {
		// It is a socket.
		return nil, special
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, special
	}
	return readAtMost(file, limit)
}

// ErrOtherMachine reports a path that a stranger wrote, and that may lead to another machine.
var ErrOtherMachine = errors.New("a path that begins with two slashes can be on another machine, " +
	"and the configuration of a folder gets nothing from there: copy the file, or name the " +
	"configuration with -config")

// ReadOfStranger is ReadRegular for a path that a stranger may have written. It returns
// ErrOtherMachine without a look at the path if MayLeaveMachine.
func ReadOfStranger(path string, limit int64) ([]byte, error) {
	if MayLeaveMachine(path) {
		return nil, ErrOtherMachine
	}
	return ReadRegular(path, limit)
}

// MayLeaveMachine reports whether Windows may take a path for one on another machine, such as
// \\host\share, //host/share, \\?\UNC\host\share and \??\UNC\host\share. Even to look whether such
// a file exists is to connect to the host and to prove to it who the user is. On other systems such
// paths are harmless, and rare enough to be judged alike.
func MayLeaveMachine(path string) bool {
	path = strings.ReplaceAll(path, "/", `\`)
	return strings.HasPrefix(path, `\\`) || strings.HasPrefix(path, `\??\`)
}

// ReadNamed reads a file that the user has named, of at most MaxNamedFile, without its byte order
// mark. It may be a pipe, such as a shell makes of <(command): the wait for it ends with ctx.
func ReadNamed(ctx context.Context, path string) ([]byte, error) {
	var text []byte
	err := WhileBlocked(ctx, func() error {
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		defer file.Close()
		text, err = readAtMost(file, MaxNamedFile)
		return err
	})
	if err != nil {
		// After ctx has ended, the read may go on, so text is not touched.
		return nil, err
	}
	return text, nil
}

func readAtMost(file *os.File, limit int64) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(file, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(text)) > limit {
		return nil, fmt.Errorf("%s has more than %d MiB", file.Name(), limit>>20)
	}
	return withoutBOM(text), nil
}

// WhileBlocked calls do, which reads or writes, and waits until it returns or ctx ends. A read of a
// terminal, and the opening of a pipe, cannot be interrupted: their goroutine stays behind. So
// WhileBlocked is for a ctx that ends with the program.
func WhileBlocked(ctx context.Context, do func() error) error {
	done := make(chan error, 1)
	go func() { done <- do() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// WriteNamed writes a file that the user has named. The name leads to the same file as with the >
// of a shell: to the one at the end of a link, though it does not exist yet. If WriteNamed fails, a
// file that was there is as it was before, and no part of a new one is left. A file that was there
// keeps its mode and its owner. A device or a pipe gets the bytes, and the wait for its reader ends
// with ctx.
//
// A file may be writable where no other file can take its place: its folder or the file belongs to
// somebody else, it has other names, or it alone is mounted into a container. Then the bytes go to
// the file itself, and a failure can leave a part of them.
func WriteNamed(ctx context.Context, path string, data []byte) error {
	old, err := os.Stat(path)
	isNew := errors.Is(err, fs.ErrNotExist)
	if isStream(path) || err == nil && !old.Mode().IsRegular() {
		return WhileBlocked(ctx, func() error { return os.WriteFile(path, data, 0o666) })
	}
	if isNew {
		return replace(path, data, 0o666, nil)
	}
	if err != nil {
		return err
	}
	// A file that may not be written is not to be replaced, either.
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_ = file.Close()
	err = replace(path, data, old.Mode().Perm(), old)
	if isIrreplaceable(err) {
		return os.WriteFile(path, data, old.Mode().Perm())
	}
	return err
}

// isIrreplaceable reports whether replace has failed because no other file can take the place of
// the old one. Linux says EBUSY of a file that is mounted by itself.
func isIrreplaceable(err error) bool {
	return errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) ||
		errors.Is(err, syscall.EBUSY)
}

// isStream reports whether a path is one of those by which a process names its open files, such as
// /dev/stdout and /dev/fd/3. Where one leads to a regular file, the bytes go to that file: one that
// took its name would not be the open file.
func isStream(path string) bool {
	folder := filepath.Dir(path)
	return folder == "/dev" || folder == "/dev/fd" || strings.HasPrefix(path, "/proc/")
}

// ReplaceFile writes a file that only its owner can read. If it fails, the file is as it was
// before.
func ReplaceFile(path string, text []byte) error { return replace(path, text, 0o600, nil) }

// replace writes a file of a mode, which is exactly that of the old file if there is one, and else
// what the user's mask leaves of it.
//
// The text goes to a temporary file in the same folder first, which then takes the name of the old
// one. Whatever ends the program, the name leads to the whole old text or to the whole new one. An
// error names the file, and not the temporary one.
func replace(path string, text []byte, mode fs.FileMode, old fs.FileInfo) error {
	target := LinkTarget(path)
	folder, name := filepath.Split(target)
	temporary := filepath.Join(folder, "."+name+"."+rand.Text())
	file, err := os.OpenFile(temporary, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err == nil {
		err = writeAndClose(file, text)
		if err == nil && old != nil {
			err = takePlace(temporary, old)
		}
		if err == nil && old != nil {
			err = os.Chmod(temporary, mode)
		}
		if err == nil {
			err = os.Rename(temporary, target)
		}
		if err != nil {
			_ = os.Remove(temporary)
		}
	}
	var failed *fs.PathError
	if errors.As(err, &failed) {
		failed.Path = path
	}
	return err
}

// writeAndClose writes a text to a file and closes it. The text is on the disk before: otherwise a
// crash of the machine could leave the new name with an empty file.
func writeAndClose(f *os.File, text []byte) error {
	_, err := f.Write(text)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// maxLinks bounds a chain of links, as systems do: a link may lead to itself.
const maxLinks = 40

// LinkTarget returns the file that a link leads to, though it may not exist yet: what is written
// there must not replace the link. A path that is no link is its own target.
func LinkTarget(path string) string {
	target := path
	for range maxLinks {
		file, err := filepath.EvalSymlinks(target)
		if err == nil {
			return file
		}
		next, err := os.Readlink(target)
		if err != nil {
			return target
		}
		folder, err := filepath.EvalSymlinks(filepath.Dir(target))
		if err != nil {
			return path
		}
		target = next
		if !filepath.IsAbs(next) {
			target = filepath.Join(folder, next)
		}
	}
	return path
}

// OpenKept opens a file that the program adds to from one run to the next, which only its owner can
// read. It makes the folder for it. It does not wait for the reader of a pipe.
func OpenKept(path string) (*os.File, error) {
	err := MakeFolder(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	flags := os.O_APPEND | os.O_CREATE | os.O_WRONLY | syscall.O_NONBLOCK
	return os.OpenFile(path, flags, 0o600)
}

// MakeFolder makes a folder for what is kept from one run to the next, unless CheckHome has an
// error.
func MakeFolder(path string) error {
	err := CheckHome(path)
	if err != nil {
		return err
	}
	return os.MkdirAll(path, 0o700)
}

// CheckHome returns an error if a path is in the user's home, and that does not exist. Accounts of
// services have a home such as /nonexistent, by which they say that nothing is to be kept: who made
// it would give them one.
func CheckHome(path string) error {
	home, err := os.UserHomeDir()
	if err != nil {
		// The path is not in a home.
		return nil
	}
	inHome, err := filepath.Rel(home, path)
	if err != nil || !filepath.IsLocal(inHome) {
		return nil
	}
	_, err = os.Stat(home)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("the home folder %s does not exist", home)
	}
	return nil
}
