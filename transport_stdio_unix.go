// transport_stdio_unix.go - process groups on Unix.
// Needs: Go 1.25, json, rpc.
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

// writeAtOnce returns a func that writes what the pipe takes without waiting. It must not be called concurrently.
func writeAtOnce(pipe *os.File) func([]byte) (int, error) {
	raw, _ := pipe.SyscallConn() // fails only for nil
	var text []byte
	var n int
	var failed error
	write := func(fd uintptr) bool { // made once: it would be an allocation in every call
		n, failed = syscall.Write(int(fd), text)
		return true
	}
	return func(p []byte) (int, error) {
		text = p
		err := raw.Write(write)
		text = nil // it may be large
		if err == nil && failed != syscall.EAGAIN && failed != syscall.EINTR {
			err = failed
		}
		return max(n, 0), err
	}
}

// processGroup is a process and what it started, as far as that has not left it.
type processGroup struct{ leader *os.Process }

// prepare makes the process the leader of a group of its own. So a Ctrl-C on the terminal, which goes to the whole
// foreground group, is for us alone to handle. If the thread that starts the process ends first, as when we are
// killed, the server gets SIGTERM. Only Linux and FreeBSD do that: elsewhere SysProcAttr does not have the field, and
// the server must end with its stdin.
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

// alive reports whether any process of the group is running, once its leader has been reaped. It reaps those that have
// become our children, as all orphans do if we are process 1 of a container. Signals reach zombies, too, as long as
// their parent does not wait for them: only the /proc of Linux tells.
func (g *processGroup) alive() bool {
	defer func() { // last: none that was seen as a zombie may stay (TestCloseAsInit)
		for zombie := g.leader.Pid; zombie > 0; {
			zombie, _ = syscall.Wait4(-g.leader.Pid, nil, syscall.WNOHANG, nil)
		}
	}()
	if syscall.Kill(-g.leader.Pid, 0) != nil {
		return false
	}
	processes, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range processes {
		text, _ := os.ReadFile(file) // nothing if it has just ended
		// Its id, (its name), state, parent, group: the name may hold anything.
		fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		if len(fields) > 2 && fields[2] == strconv.Itoa(g.leader.Pid) && fields[0] != "Z" && fields[0] != "X" {
			return true
		}
	}
	return len(processes) == 0
}

func isSafeVariable(name string) bool {
	safe := strings.Fields("HOME LOGNAME PATH SHELL TERM USER TMPDIR LANG")
	return slices.Contains(safe, name) || strings.HasPrefix(name, "LC_")
}
