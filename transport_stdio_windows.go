// transport_stdio_windows.go - process trees on Windows.
// Needs: Go 1.25, json, rpc, lines.
// SPDX-License-Identifier: 0BSD

package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"unsafe"
)

func kernel32(name string) *syscall.LazyProc {
	return syscall.NewLazyDLL("kernel32.dll").NewProc(name)
}

// writeAtOnce returns nil: a pipe of Windows has no write that does not wait; see
// Lines.WriteAtOnce.
func writeAtOnce(*os.File) func([]byte) (int, error) { return nil }

// bytesHeld returns how many bytes a pipe holds. It fails if the other end is closed and nothing is
// left. It waits for a read of the same pipe that is under way, as Windows does one after another.
func bytesHeld(pipe *os.File) (int, error) {
	raw, err := pipe.SyscallConn()
	if err != nil {
		return 0, err
	}
	var held uint32
	var failed error
	err = raw.Control(func(handle uintptr) {
		ok, _, reason := kernel32("PeekNamedPipe").Call(
			handle, 0, 0, 0, uintptr(unsafe.Pointer(&held)), 0)
		if ok == 0 {
			failed = reason
		}
	})
	return int(held), errors.Join(err, failed)
}

// processGroup is a process and what it started: a job object. When the last handle to a job is
// closed, Windows ends all of the job. That handle is ours, so the processes end however we end.
type processGroup struct {
	leader *os.Process
	job    syscall.Handle // 0 if there is none
}

// prepare keeps a Ctrl-C in the console from reaching the process: it is for us alone to handle. A
// batch file, as npx is one, gets a command line that cmd.exe understands.
func (g *processGroup) prepare(c *exec.Cmd) {
	c.SysProcAttr = &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
	script, err := exec.LookPath(c.Path)
	if err != nil {
		return
	}
	switch strings.ToLower(filepath.Ext(script)) {
	case ".bat", ".cmd":
	default:
		return
	}
	c.Path, c.Err = exec.LookPath("cmd.exe")
	if c.Err == nil {
		c.SysProcAttr.CmdLine, c.Err = batchCommandLine(script, c.Args[1:])
	}
}

// batchCommandLine returns the command line with which cmd.exe runs a batch file. cmd.exe has
// rules of its own, which syscall.EscapeArg does not know: a & outside of quotes begins another
// command, and %NAME% is replaced within quotes, too.
//
// So each argument is quoted, and a quote is doubled, as are the backslashes before it. A % gets
// an empty substring of a variable before it, which keeps it from beginning a name. The rules
// are those of Rust's standard library (CVE-2024-24576).
func batchCommandLine(script string, args []string) (string, error) {
	quote := regexp.MustCompile(`(\\*)("|$)`)
	line := `cmd.exe /e:ON /v:OFF /d /c ""` + script + `"`
	for _, arg := range args {
		if strings.ContainsAny(arg, "\x00\r\n") {
			return "", errors.New("a batch file takes no argument with a line break")
		}
		arg = quote.ReplaceAllString(arg, "$1$1$2$2")
		line += ` "` + strings.ReplaceAll(arg, "%", "%%cd:~,%") + `"`
	}
	return line + `"`, nil
}

// add puts the process into a job. What it starts before that, in its first instants, stays
// outside. Without a job, terminate ends the process alone.
func (g *processGroup) add(leader *os.Process) {
	const (
		extendedLimits = 9 // JobObjectExtendedLimitInformation
		killOnClose    = 0x2000
		setQuota       = 0x0100 // PROCESS_SET_QUOTA
	)
	g.leader = leader
	job, _, _ := kernel32("CreateJobObjectW").Call(0, 0)
	rights := uint32(setQuota | syscall.PROCESS_TERMINATE)
	process, err := syscall.OpenProcess(rights, false, uint32(leader.Pid))
	if job == 0 || err != nil {
		return
	}
	defer syscall.CloseHandle(process)
	g.job = syscall.Handle(job)
	// JOBOBJECT_EXTENDED_LIMIT_INFORMATION, whose LimitFlags stand at byte 16. It has 144 bytes,
	// or 112 where pointers have four.
	limits := [18]uint64{2: killOnClose}
	size := 80 + 8*unsafe.Sizeof(uintptr(0))
	_, _, _ = kernel32("SetInformationJobObject").Call(
		job, extendedLimits, uintptr(unsafe.Pointer(&limits)), size)
	_, _, _ = kernel32("AssignProcessToJobObject").Call(job, uintptr(process))
}

// terminate ends the process and all that it started. Windows has no signal that asks first.
func (g *processGroup) terminate() {
	_, _, _ = kernel32("TerminateJobObject").Call(uintptr(g.job), 1)
	// The process may be in no job.
	_ = g.leader.Kill()
}

func (g *processGroup) kill() { g.terminate() }

// alive reports whether any process of the job still runs.
func (g *processGroup) alive() bool {
	const accounting = 1 // JobObjectBasicAccountingInformation
	// JOBOBJECT_BASIC_ACCOUNTING_INFORMATION, whose ActiveProcesses stand at byte 40.
	var information [6]uint64
	ok, _, _ := kernel32("QueryInformationJobObject").Call(uintptr(g.job), accounting,
		uintptr(unsafe.Pointer(&information)), unsafe.Sizeof(information), 0)
	return ok != 0 && uint32(information[5]) > 0
}

func (g *processGroup) close() { _ = syscall.CloseHandle(g.job) }
