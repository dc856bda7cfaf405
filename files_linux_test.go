package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

// fifo makes a pipe with a name. Whatever waits for its other side when the test ends, or is about to, gets it.
func fifo(t *testing.T) string {
	path := filepath.Join(t.TempDir(), "fifo")
	assert.NilError(t, syscall.Mkfifo(path, 0o600))
	before := resources()
	t.Cleanup(func() {
		for resources().goroutines > before.goroutines {
			file, err := os.OpenFile(path, os.O_RDWR, 0)
			assert.NilError(t, err)
			assert.NilError(t, file.Close())
		}
	})
	return path
}

// endedContext has ended: what returns its cause has not waited for anything else.
func endedContext() (context.Context, error) {
	reason := errors.New("it is over")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(reason)
	return ctx, reason
}

// What a program finds by itself is read if it is a regular file, also at the end of a link, with a bound. Nothing else
// is read at all: /dev/zero has no end, and a pipe without a writer would be waited for.
func TestReadRegular(t *testing.T) {
	folder := t.TempDir()
	file, link, zero := filepath.Join(folder, "file"), filepath.Join(folder, "link"), filepath.Join(folder, "zero")
	assert.NilError(t, os.WriteFile(file, []byte("\ufeffheron"), 0o600))
	assert.NilError(t, os.Symlink(file, link))
	assert.NilError(t, os.Symlink("/dev/zero", zero))
	for path, want := range map[string]string{
		file:                             "",
		link:                             "",
		zero:                             "zero is not a regular file",
		fifo(t):                          "fifo is not a regular file",
		folder:                           " is not a regular file",
		filepath.Join(folder, "missing"): "no such file or directory",
	} {
		text, err := ReadRegular(path, 8)
		if want == "" {
			assert.NilError(t, err)
			assert.Equal(t, string(text), "heron")
		} else {
			assert.Check(t, is.ErrorContains(err, want))
		}
	}
	_, err := ReadRegular(file, 7)
	assert.Check(t, is.ErrorContains(err, "file has more than 0 MiB"))
}

// What the user names may be a pipe, and the wait for its writer ends with ctx.
func TestReadNamed(t *testing.T) {
	path := fifo(t)
	go func() { _ = os.WriteFile(path, []byte("\ufeffheron"), 0) }()
	text, err := ReadNamed(t.Context(), path)
	assert.NilError(t, err)
	assert.Equal(t, string(text), "heron")
	_, err = ReadNamed(t.Context(), "/dev/zero")
	assert.Check(t, is.Error(err, "/dev/zero has more than 64 MiB"))
	ctx, reason := endedContext()
	_, err = ReadNamed(ctx, path)
	assert.Equal(t, err, reason)
}

// A file that is written keeps its mode, its links and its hidden neighbours, and a new one has the mode that the
// user's mask leaves. Devices and pipes get the bytes. One that cannot be written stays as it is.
func TestWriteNamed(t *testing.T) {
	folder := t.TempDir()
	file, link := filepath.Join(folder, "file"), filepath.Join(folder, "link")
	write := func(path, text string) error { return WriteNamed(t.Context(), path, []byte(text)) }
	assert.NilError(t, write(file, "a longer text"))
	plain := filepath.Join(folder, "plain")
	assert.NilError(t, os.WriteFile(plain, nil, 0o666))
	asPlain, err := os.Stat(plain)
	assert.NilError(t, err)
	written, err := os.Stat(file)
	assert.NilError(t, err)
	assert.Equal(t, written.Mode(), asPlain.Mode())

	assert.NilError(t, os.Chmod(file, 0o646))
	assert.NilError(t, os.Symlink("file", link))
	assert.NilError(t, write(link, "\x00new\r\n"))
	assert.Equal(t, readText(t, file), "\x00new\r\n")
	written, err = os.Lstat(file)
	assert.NilError(t, err)
	assert.Equal(t, written.Mode(), os.FileMode(0o646))
	assert.Check(t, is.Error(write("/dev/full", "x"), "write /dev/full: no space left on device"))
	assert.NilError(t, write("/dev/null", "x"))
	assert.Check(t, is.Error(write(folder, "x"), "open "+folder+": is a directory"))
	missing := filepath.Join(folder, "missing", "file")
	assert.Check(t, is.Error(write(missing, "x"), "open "+missing+": no such file or directory"))
	entries, err := os.ReadDir(folder)
	assert.NilError(t, err)
	assert.Check(t, is.Len(entries, 3))

	// By these names a process has its own open files: the file of one is not replaced by another.
	open, err := os.OpenFile(plain, os.O_RDWR, 0)
	assert.NilError(t, err)
	defer open.Close()
	assert.NilError(t, write(fmt.Sprintf("/dev/fd/%d", open.Fd()), "by its number"))
	now, err := os.Stat(plain)
	assert.NilError(t, err)
	assert.Check(t, os.SameFile(now, asPlain))
	assert.Equal(t, readText(t, plain), "by its number")

	ctx, reason := endedContext()
	path := fifo(t)
	assert.Equal(t, WriteNamed(ctx, path, nil), reason)
}

// What the name of a file leads to is written as a shell's > writes it: the file at the end of a link, also if it does
// not exist yet; a file of another owner, which stays his; a file that has another name, too.
func TestWriteNamedKeepsTheFile(t *testing.T) {
	folder := t.TempDir()
	at := func(name string) string { return filepath.Join(folder, name) }
	write := func(name string) error { return WriteNamed(t.Context(), at(name), []byte(name)) }
	assert.NilError(t, os.Mkdir(at("sub"), 0o700))
	for name, to := range map[string]string{
		"new": "sub/file", "sub/up": "../above", "sub/far": at("far away"), "first": "second", "second": "third",
		"folder": "sub", "sub/beside": "../beside", "nowhere": "missing/file", "loop": "loop",
	} {
		assert.NilError(t, os.Symlink(to, at(name)))
	}
	for name, target := range map[string]string{"new": "sub/file", "sub/up": "above", "sub/far": "far away",
		"first": "third", "folder/beside": "beside"} {
		assert.NilError(t, write(name))
		assert.Check(t, is.Equal(readText(t, at(target)), name))
		info, err := os.Lstat(at(name))
		assert.NilError(t, err)
		assert.Check(t, info.Mode()&os.ModeSymlink != 0, "%s is still a link", name)
	}
	assert.Check(t, is.Error(write("nowhere"), "open "+at("nowhere")+": no such file or directory"))
	assert.Check(t, is.ErrorContains(write("loop"), "too many levels of symbolic links"))

	assert.NilError(t, os.WriteFile(at("one"), nil, 0o600))
	assert.NilError(t, os.Link(at("one"), at("other")))
	assert.NilError(t, write("one"))
	assert.Equal(t, readText(t, at("other")), "one")

	if os.Getuid() != 0 {
		t.Skip("only root can give a file away")
	}
	const nobody = 65534
	assert.NilError(t, os.WriteFile(at("his"), nil, 0o640))
	assert.NilError(t, os.Chown(at("his"), nobody, nobody))
	assert.NilError(t, os.Chmod(at("his"), 0o4750))
	assert.NilError(t, write("his"))
	assert.Equal(t, readText(t, at("his")), "his")
	info, err := os.Stat(at("his"))
	assert.NilError(t, err)
	stat := info.Sys().(*syscall.Stat_t)
	assert.Equal(t, [2]uint32{stat.Uid, stat.Gid}, [2]uint32{nobody, nobody})
	assert.Equal(t, info.Mode().Perm(), os.FileMode(0o750))

	// Of a file of root that all may write, nobody else can make another one of root.
	assert.NilError(t, os.WriteFile(at("open"), nil, 0o666))
	assert.NilError(t, os.Chmod(at("open"), 0o666))
	assert.NilError(t, os.Chmod(folder, 0o777))
	assert.NilError(t, os.Chmod(filepath.Dir(folder), 0o777))
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	assert.NilError(t, syscall.Setfsuid(nobody))
	defer func() { _ = syscall.Setfsuid(0) }()
	assert.NilError(t, write("open"))
	info, err = os.Stat(at("open"))
	assert.NilError(t, err)
	assert.Equal(t, info.Sys().(*syscall.Stat_t).Uid, uint32(0))
	assert.Equal(t, readText(t, at("open")), "open")
}

// A file that may be written is written, also where its folder takes no other file.
func TestWriteNamedInPlace(t *testing.T) {
	folder := t.TempDir()
	file := filepath.Join(folder, "file")
	assert.NilError(t, os.WriteFile(file, []byte("a longer text"), 0o600))
	assert.NilError(t, os.Chmod(folder, 0o555))
	t.Cleanup(func() { _ = os.Chmod(folder, 0o700) })
	if os.Getuid() == 0 {
		// Root may write everywhere, so this thread becomes another user for the file system.
		const nobody = 65534
		for _, path := range []string{filepath.Dir(folder), folder, file} {
			assert.NilError(t, os.Chown(path, nobody, nobody))
		}
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		assert.NilError(t, syscall.Setfsuid(nobody))
		defer func() { _ = syscall.Setfsuid(0) }()
	}
	assert.ErrorIs(t, os.WriteFile(filepath.Join(folder, "other"), nil, 0o600), os.ErrPermission)
	assert.NilError(t, WriteNamed(t.Context(), file, []byte("short")))
	assert.Equal(t, readText(t, file), "short")
	entries, err := os.ReadDir(folder)
	assert.NilError(t, err)
	assert.Check(t, is.Len(entries, 1))
}

// A home that does not exist is not made; what is elsewhere is.
func TestMakeFolder(t *testing.T) {
	home := filepath.Join(t.TempDir(), "nonexistent")
	t.Setenv("HOME", home)
	inHome := filepath.Join(home, ".config", "mcpagent")
	assert.Check(t, is.Error(MakeFolder(inHome), "the home folder "+home+" does not exist"))
	_, err := OpenKept(filepath.Join(inHome, "history"))
	assert.Check(t, is.Error(err, "the home folder "+home+" does not exist"))
	_, err = os.Stat(home)
	assert.Check(t, errors.Is(err, os.ErrNotExist))
	assert.NilError(t, MakeFolder(home+"-of-others/a"))
	assert.NilError(t, os.Mkdir(home, 0o700))
	assert.NilError(t, MakeFolder(inHome))
}
