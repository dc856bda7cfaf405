// transport_stdio_unix.go - process groups on Unix.
// Needs: Go 1.25, json, rpc, lines.
// SPDX-License-Identifier: 0BSD

//go:build unix

package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// writeAtOnce returns a func that writes what the pipe takes without waiting; see
// Lines.WriteAtOnce. It must not be called concurrently. (*os.File).Write would wait until the
// pipe has taken all.
func writeAtOnce(pipe *os.File) func([]byte) (int, error) {
	// It fails only for a file that is nil.
	raw, _ := pipe.SyscallConn()
	var text []byte
	var n int
	var failed error
	// It returns true in any case, as after false the poller would wait until there is room and
	// call it again. It is made only once, as it would be an allocation in every call.
	write := func(fd uintptr) bool {
		n, failed = syscall.Write(int(fd), text)
		return true
	}
	return func(p []byte) (int, error) {
		text = p
		err := raw.Write(write)
		// The text may be large, and must not be kept from the garbage collector.
		text = nil
		wouldWait := failed == syscall.EAGAIN || failed == syscall.EINTR
		if err == nil && !wouldWait {
			err = failed
		}
		return max(n, 0), err
	}
}

// processGroup is a process and what it started, as far as that has not left it.
type processGroup struct{ leader *os.Process }

// prepare makes the process the leader of a group of its own. So a Ctrl-C on the terminal, which
// goes to the whole foreground group, is for us alone to handle.
//
// If we are killed, nobody ends the server: so it gets SIGTERM when the thread that started it
// ends. Only Linux and FreeBSD do that. Elsewhere SysProcAttr does not have the field, and the
// server must end with its stdin.
func (g *processGroup) prepare(c *exec.Cmd) {
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if signal := reflect.ValueOf(c.SysProcAttr).Elem().FieldByName("Pdeathsig"); signal.IsValid() {
		signal.Set(reflect.ValueOf(syscall.SIGTERM))
	}
}

// add takes the process that has just been started.
func (g *processGroup) add(leader *os.Process) { g.leader = leader }

func (g *processGroup) terminate() { _ = syscall.Kill(-g.leader.Pid, syscall.SIGTERM) }

func (g *processGroup) kill() { _ = syscall.Kill(-g.leader.Pid, syscall.SIGKILL) }

func (g *processGroup) close() {}

// alive reports whether any process of the group is running, after its leader has ended and been
// waited for.
//
// If we are process 1 of a container, all orphans become our children. Those of the group that
// have ended are zombies until we wait for them, which alive does last, so that none that it has
// seen as a zombie stays (TestCloseAsInit).
func (g *processGroup) alive() bool {
	defer g.reap()
	// A signal reaches zombies, too. So where the group still takes one, only /proc tells
	// whether a process of it is running. Systems without /proc have to believe the signal.
	if syscall.Kill(-g.leader.Pid, 0) != nil {
		return false
	}
	processes, _ := filepath.Glob("/proc/[0-9]*/stat")
	return len(processes) == 0 || slices.ContainsFunc(processes, g.runs)
}

// runs reports whether a process is of the group and no zombie. It reads the process's file in
// /proc, which has its id, its name in brackets, its state, its parent and its group, and then
// more. The name may hold anything. The file is gone if the process has just ended.
//
// The state is that of the process's first thread. A process whose first thread has ended runs as
// long as it has others, and nobody can wait for it before.
func (g *processGroup) runs(statFile string) bool {
	const threads = 17 // the place of their number, counted from the state
	text, _ := os.ReadFile(statFile)
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) <= threads || fields[2] != strconv.Itoa(g.leader.Pid) {
		return false
	}
	isZombie := fields[0] == "Z" || fields[0] == "X"
	hasOthers := fields[threads] != "0" && fields[threads] != "1"
	return !isZombie || hasOthers
}

// reap waits for the processes of the group that have ended and are our children.
func (g *processGroup) reap() {
	for {
		zombie, _ := syscall.Wait4(-g.leader.Pid, nil, syscall.WNOHANG, nil)
		if zombie <= 0 {
			return
		}
	}
}
