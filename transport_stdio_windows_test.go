package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

// TestBatchCommandLine: whatever an argument holds, cmd.exe takes it as a part of one argument.
func TestBatchCommandLine(t *testing.T) {
	const begin = `cmd.exe /e:ON /v:OFF /d /c ""C:\n p\npx.cmd"`
	for _, test := range []struct{ arg, want string }{
		{``, `""`},
		{`-y`, `"-y"`},
		{`https://h/?a=1&b=2`, `"https://h/?a=1&b=2"`},
		{`a|b<c>d^e(f)!g`, `"a|b<c>d^e(f)!g"`},
		{`"&calc.exe`, `"""&calc.exe"`},
		{`{"a":"b c"}`, `"{""a"":""b c""}"`},
		{`%PATH%`, `"%%cd:~,%PATH%%cd:~,%"`},
		{`C:\dir\`, `"C:\dir\\"`},
		{`a\"b\\c`, `"a\\""b\\c"`},
	} {
		line, err := batchCommandLine(`C:\n p\npx.cmd`, []string{test.arg, "x"})
		assert.Check(t, err)
		assert.Check(t, is.Equal(line, begin+" "+test.want+` "x""`))
	}
	for _, arg := range []string{"a\nb", "a\rb", "a\x00b"} {
		_, err := batchCommandLine("npx.cmd", []string{arg})
		assert.Check(t, is.ErrorContains(err, "line break"))
	}
}

// TestCloseEndsTheJob: what a server has started goes with it, though it holds the server's stdout.
func TestCloseEndsTheJob(t *testing.T) {
	for _, end := range []string{"close", "crash"} {
		t.Run(end, func(t *testing.T) {
			checkLeaks(t)
			c, _ := connectChild(t, childCommand("puppet"), nil)
			text, err := c.run(t.Context(), "spawn", "stubborn")
			assert.NilError(t, err)
			pid, err := strconv.Atoi(text)
			assert.NilError(t, err)
			grandchild, err := syscall.OpenProcess(syscall.SYNCHRONIZE, false, uint32(pid))
			assert.NilError(t, err)
			defer syscall.CloseHandle(grandchild)
			event, err := syscall.WaitForSingleObject(grandchild, 0)
			assert.NilError(t, err)
			assert.Equal(t, event, uint32(syscall.WAIT_TIMEOUT), "it runs")
			if end == "crash" {
				_, err = c.run(t.Context(), "crash", "")
				var exit *ServerExitError
				assert.Assert(t, errors.As(err, &exit), "%v", err)
			}
			assert.NilError(t, c.Close())
			event, err = syscall.WaitForSingleObject(grandchild, 10_000)
			assert.NilError(t, err)
			assert.Equal(t, event, uint32(syscall.WAIT_OBJECT_0), "it has ended")
		})
	}
}

// TestCloseLeavesNoHandles: of each server its process, its job and three pipes are closed. The runtime's own threads
// have handles, too, so a few more may be open than before, but not one for each server.
func TestCloseLeavesNoHandles(t *testing.T) {
	const servers = 8
	startAll := func() {
		for range servers {
			c, err := Connect(t.Context(), childCommand("puppet").Start, nil)
			assert.NilError(t, err)
			assert.NilError(t, c.Close())
		}
	}
	startAll()
	before := openHandles()
	startAll()
	startAll()
	now := openHandles()
	assert.Check(t, now < before+servers, "%d handles, then %d", before, now)
}

// TestLateReaderWithoutDeadline: what a dead server wrote is read to its end, however late the reader comes, though
// another process holds the pipe open. What that one writes without end is not read for ever.
func TestLateReaderWithoutDeadline(t *testing.T) {
	for _, test := range []string{"silent", "endless"} {
		t.Run(test, func(t *testing.T) {
			reader, writer, err := os.Pipe()
			assert.NilError(t, err)
			pipe := newChildPipe(reader)
			const last = 3000 // bytes: less than a pipe holds
			_, err = writer.Write(bytes.Repeat([]byte("x"), last))
			assert.NilError(t, err)
			pipe.end()
			<-time.After(3 * drain) // the reader is held up
			var work sync.WaitGroup
			if test == "endless" {
				work.Go(func() {
					for err := error(nil); err == nil; {
						_, err = writer.Write([]byte("more"))
					}
				})
			}
			n, err := io.Copy(io.Discard, struct{ io.Reader }{pipe})
			assert.Check(t, err)
			assert.Check(t, n >= last && n <= maxPipe+1<<15, "%d bytes", n)
			assert.Check(t, reader.Close())
			work.Wait()
			assert.Check(t, writer.Close())
		})
	}
}

// openHandles counts the handles of this process by trying each number that one may have: wine counts none.
func openHandles() (n int) {
	getInformation := kernel32("GetHandleInformation")
	for handle := uintptr(4); handle < 4<<11; handle += 4 {
		var flags uint32
		if ok, _, _ := getInformation.Call(handle, uintptr(unsafe.Pointer(&flags))); ok != 0 {
			n++
		}
	}
	return n
}
