package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

// openTerminal gives the program a terminal for stdin, stdout and stderr, whose window has so many columns. Its mode
// has to be the same when the program has ended.
func (p *programRun) openTerminal(columns uint16) error {
	keyboard, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		p.t.Skipf("there is no terminal: %v", err)
	}
	p.t.Cleanup(func() { keyboard.Close() })
	raw, err := keyboard.SyscallConn()
	if err != nil {
		return err
	}
	var number, unlock uint32
	var failed syscall.Errno
	size := [4]uint16{24, columns}
	err = raw.Control(func(fd uintptr) {
		for request, value := range map[uintptr]unsafe.Pointer{
			syscall.TIOCGPTN:   unsafe.Pointer(&number),
			syscall.TIOCSPTLCK: unsafe.Pointer(&unlock),
			syscall.TIOCSWINSZ: unsafe.Pointer(&size),
		} {
			if _, _, e := syscall.Syscall(syscall.SYS_IOCTL, fd, request, uintptr(value)); e != 0 {
				failed = e
			}
		}
	})
	if err != nil || failed != 0 {
		return fmt.Errorf("no terminal: %v, %w", err, failed)
	}
	tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		return err
	}
	mode := func() (m syscall.Termios) {
		_ = raw.Control(func(fd uintptr) {
			_, _, failed = syscall.Syscall(syscall.SYS_IOCTL, fd, syscall.TCGETS, uintptr(unsafe.Pointer(&m)))
		})
		return m
	}
	before := mode()
	p.resume = func() (os.Signal, bool) {
		err := raw.Control(func(fd uintptr) {
			_, _, failed = syscall.Syscall(syscall.SYS_IOCTL, fd, syscall.TCSETS, uintptr(unsafe.Pointer(&before)))
		})
		return syscall.SIGCONT, err == nil && failed == 0
	}
	p.columns, p.keyboard = int(columns), keyboard
	p.command.Stdin, p.command.Stdout, p.command.Stderr = tty, tty, tty
	p.command.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}

	// When the leader of its session ends, a terminal forgets what nobody has read yet. So the leader is a shell, which
	// ends when everything has been read: it writes NUL, and waits for the end of its descriptor 3.
	// ERRORS names a file for stderr.
	const shell = `trap : INT; [ -z "$ERRORS" ] || exec 2>"$ERRORS"
"$0" "$@"; status=$?; printf '\000'; read end <&3; exit $status`
	p.command.Args = append([]string{"sh", "-c", shell}, p.command.Args...)
	p.command.Path = "/bin/sh"
	wait, end, err := os.Pipe()
	if err != nil {
		return err
	}
	p.command.ExtraFiles = []*os.File{wait}
	p.begun = func() {
		tty.Close() // it is the program's
		wait.Close()
		p.reader.Go(func() { // ends with the last process that has the terminal open
			defer end.Close()
			buffer := make([]byte, 4096)
			for {
				n, err := keyboard.Read(buffer)
				output, _, ended := bytes.Cut(buffer[:n], []byte{0})
				_, _ = p.log.Write(output)
				if ended {
					if after := mode(); !p.killed.Load() && (after != before || failed != 0) {
						p.t.Errorf("the program leaves its terminal as %v, and not %v: %v", after, before, failed)
					}
					end.Close()
				}
				if err != nil {
					return
				}
			}
		})
	}
	return nil
}

// fullDisk runs a shell script in a folder with a disk of its own that is full but for some KiB. $SELF is the program.
func fullDisk(t *testing.T, script string) string {
	folder := t.TempDir()
	mount := "set -e; mount -t tmpfs -o size=256k none .; cd .; head -c 240K /dev/zero > ballast; "
	probe := exec.Command("unshare", "-rm", "sh", "-c", mount)
	probe.Dir = folder
	text, err := probe.CombinedOutput()
	if err != nil {
		t.Skipf("no disk can be mounted here: %v: %s", err, text)
	}
	home := t.TempDir()
	self, err := os.Executable()
	assert.NilError(t, err)
	command := exec.CommandContext(t.Context(), "unshare", "-rm", "sh", "-c", mount+"set +e; "+script)
	command.Dir = folder
	command.Env = append(programEnvironment(home), "SELF="+self, "MCP_SERVER="+self+" serve")
	out, err := command.CombinedOutput()
	assert.NilError(t, err, "%s", out)
	return string(out)
}

// A disk that is full takes nothing away: a file of -o that was there is whole, of one that was not no part is left,
// and the error names it once.
func TestOutputFullDisk(t *testing.T) {
	out := fullDisk(t, `echo old > old; rm -f ballast; head -c 200K /dev/zero > ballast
		$SELF read library:///mcp.go -q -o small; echo status $?
		dd if=/dev/zero of=ballast2 bs=1K 2>/dev/null
		$SELF read library:///rpc.go -q -o old; echo status $?; cat old
		$SELF read library:///rpc.go -q -o new; echo status $?; ls -A`)
	assert.Equal(t, out, "status 0\n"+
		"mcpagent: write old: no space left on device\nstatus 1\nold\n"+
		"mcpagent: write new: no space left on device\nstatus 1\n"+
		"ballast\nballast2\nold\nsmall\n")
}

// A trace that is not whole says so once, with the exit status; and a log says so once.
func TestTraceFullDisk(t *testing.T) {
	out := fullDisk(t, `dd if=/dev/zero of=ballast2 bs=1K 2>/dev/null
		$SELF -trace trace tools >/dev/null; echo status $?
		$SELF -q -trace trace tools >/dev/null; echo status $?
		XDG_CACHE_HOME=$PWD MCP_SERVER="sh -c 'echo one >&2; echo two >&2; exec $SELF serve'" $SELF tools >/dev/null
		echo status $?`)
	lost := "the trace is incomplete: write trace: no space left on device\nstatus 1\n"
	log := `server sh: its log is incomplete: write \S+\.log: no space left on device\n`
	assert.Check(t, is.Regexp(`^`+lost+lost+log+`status 0\n$`, out))
}

// A trace into a pipe that nobody reads ends with ctx, both while it is opened and when the pipe is full.
func TestTraceUnreadPipe(t *testing.T) {
	path := fifo(t)
	screen, _ := viewScreen(80, false)
	unread := &trace{output: &output{screen: screen}}
	ended, _ := endedContext()
	assert.ErrorContains(t, unread.open(ended, path, false), "it is over")

	reader, err := os.OpenFile(path, os.O_RDWR, 0)
	assert.NilError(t, err)
	defer reader.Close()
	ctx, cancel := context.WithCancel(t.Context())
	stuck := &trace{output: &output{screen: screen}}
	assert.NilError(t, stuck.open(ctx, path, false))
	cancel()
	stuck.write(strings.Repeat("x", 1<<20)) // more than a pipe holds
	assert.Check(t, stuck.output.isIncomplete.Load())
	stuck.close()
}

// Ctrl-C ends the wait for who writes to a pipe that the user has named, wherever it is named.
func TestInterruptUnwrittenPipe(t *testing.T) {
	path := fifo(t)
	for _, args := range [][]string{
		{"-config", path, "tools"},
		{"-config", path, "login", "https://mcp.example.com/mcp"},
		{"-server", "peer", "-system", "@" + path, "hi"},
		{"-server", "$SELF serve", "call", "search_chunks", "@" + path},
	} {
		t.Run(strings.Join(args[2:], " "), func(t *testing.T) {
			run := startProgram(t, args...)
			// The opening waits until the program reads.
			writer, err := os.OpenFile(path, os.O_WRONLY, 0)
			assert.NilError(t, err)
			defer writer.Close()
			endsInterrupted(t, run)
		})
	}
}

// Ctrl-C ends a run whose pipe for a trace, or for a result, is open, full and not read.
func TestInterruptUnreadPipe(t *testing.T) {
	path := fifo(t)
	for _, args := range [][]string{
		{"-trace", path, "tools"},
		{"read", "library:///rpc.go", "-o", path},
	} {
		t.Run(args[0], func(t *testing.T) {
			reader, err := os.OpenFile(path, os.O_RDWR, 0)
			assert.NilError(t, err)
			defer reader.Close()
			const setPipeSize = 1031 // F_SETPIPE_SZ of fcntl(2)
			_, _, failed := syscall.Syscall(syscall.SYS_FCNTL, reader.Fd(), setPipeSize, 4096)
			assert.Equal(t, failed, syscall.Errno(0))
			run := startProgram(t, append([]string{"-server", "$SELF serve"}, args...)...)
			_, err = reader.Read(make([]byte, 1))
			assert.NilError(t, err)
			endsInterrupted(t, run)
		})
	}
}

// startProgram starts the program in a home of its own. $SELF in an argument is the program, too.
func startProgram(t *testing.T, args ...string) *programRun {
	self, err := os.Executable()
	assert.NilError(t, err)
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], "$SELF", self)
	}
	home := t.TempDir()
	run := newProgram(t, home, programEnvironment(home), args...)
	assert.NilError(t, run.start())
	return run
}

func endsInterrupted(t *testing.T, run *programRun) {
	assert.NilError(t, run.command.Process.Signal(os.Interrupt))
	assert.Equal(t, run.end(), exitInterrupted)
	assert.Check(t, is.Regexp(`(?m)^mcpagent: interrupted\n\z`, run.log.String()))
	assert.Equal(t, run.stdout.String(), "")
}
