// transport_stdio_unix.go - the processes of a server on Unix.
// Needs: Go 1.25, json, rpc, lines.
// SPDX-License-Identifier: 0BSD

//go:build unix

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
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

// bytesHeld is for pipes without deadlines, which Unix does not have.
func bytesHeld(*os.File) (int, error) { return 0, errors.ErrUnsupported }

// processGroup is a process and what it started. The process leads a session of its own, and a
// process group in it.
//
// A signal to the group does not reach all: a program may put what it starts into another group, or
// into another session, as setsid does. On Linux, /proc tells of those. They belong to the server
// if they are in its session, or if their parent is one of its processes and they hold a pipe of
// the server. The browser that a server opens for a login holds none, and is the user's. Once found
// they are remembered, as the parent may end before them. Two kinds are not found: a daemon, whose
// parent ended before anybody looked, and on systems without /proc all that have left the group.
type processGroup struct {
	leader *os.Process
	pipes  []string // of the leader, as pipesOf has them; empty without /proc

	mu   sync.Mutex      // guards the following
	left map[int]process // those found in another session, by id
}

// prepare makes the process the leader of a session of its own. So a Ctrl-C on the terminal, which
// goes to the whole foreground group, is for us alone to handle. Why not only of a group? A shell
// that is to be interactive (bash -ic, to find nvm) stops itself in a background group of a
// terminal, and never starts the server. In a session without a terminal it goes on.
//
// If we are killed, nobody ends the server: so it gets SIGTERM when the thread that started it
// ends. Only Linux and FreeBSD do that. Elsewhere SysProcAttr does not have the field, and the
// server must end with its stdin. So must, on all systems, what a shell has started: the shell
// alone gets the signal.
func (g *processGroup) prepare(c *exec.Cmd) {
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if signal := reflect.ValueOf(c.SysProcAttr).Elem().FieldByName("Pdeathsig"); signal.IsValid() {
		signal.Set(reflect.ValueOf(syscall.SIGTERM))
	}
}

// add takes the process that has just been started.
func (g *processGroup) add(leader *os.Process) {
	g.leader = leader
	g.pipes = pipesOf(leader.Pid)
}

func (g *processGroup) terminate() { g.signal(syscall.SIGTERM) }

func (g *processGroup) kill() { g.signal(syscall.SIGKILL) }

func (g *processGroup) close() {}

// signal sends a signal to the group, and to each process outside of it that belongs to the server.
func (g *processGroup) signal(s syscall.Signal) {
	// They are found first: when their parent has ended, they are harder to find.
	found := g.find()
	_ = syscall.Kill(-g.leader.Pid, s)
	for _, p := range found {
		if p.group != g.leader.Pid {
			_ = syscall.Kill(p.id, s)
		}
	}
}

// alive reports whether any process of the server is running, after the leader has ended and been
// waited for.
//
// If we are process 1 of a container, all orphans become our children. Those of the server that
// have ended are zombies until we wait for them, which alive does, so that none that it has seen as
// a zombie stays (TestCloseAsInit).
func (g *processGroup) alive() bool {
	// A signal reaches zombies, too. So where the group still takes one, only /proc tells whether a
	// process of it is running. Systems without /proc have to believe the signal.
	takesSignals := syscall.Kill(-g.leader.Pid, 0) == nil
	found := g.find()
	isRunning := takesSignals && !hasProc()
	for _, p := range found {
		if !p.isZombie {
			isRunning = true
			continue
		}
		// It fails for a process that is not our child.
		_, _ = syscall.Wait4(p.id, nil, syscall.WNOHANG, nil)
	}
	return isRunning
}

// hasProc reports whether this system tells of its processes in /proc.
func hasProc() bool {
	_, err := os.Stat("/proc/self/stat")
	return err == nil
}

// find returns the processes of the server, the zombies among them; none where there is no /proc.
func (g *processGroup) find() []process {
	g.mu.Lock()
	defer g.mu.Unlock()
	known := g.left
	g.left = make(map[int]process)
	var found []process
	rest := allProcesses()
	isFound := func(p process) bool {
		// The id of one that has ended may belong to another process by now, which began later.
		before, isKnown := known[p.id]
		isKnown = isKnown && before.start == p.start
		if p.session == g.leader.Pid || isKnown {
			return true
		}
		isChild := func(parent process) bool { return parent.id == p.parent }
		return slices.ContainsFunc(found, isChild) && g.holdsPipe(p)
	}
	for {
		// Each round finds the children of those that the round before has found.
		var others []process
		for _, p := range rest {
			if !isFound(p) {
				others = append(others, p)
				continue
			}
			found = append(found, p)
			if p.session != g.leader.Pid {
				g.left[p.id] = p
			}
		}
		if len(others) == len(rest) {
			return found
		}
		rest = others
	}
}

// holdsPipe reports whether one of the leader's pipes is a standard stream of a process.
func (g *processGroup) holdsPipe(p process) bool {
	isOurs := func(pipe string) bool { return slices.Contains(g.pipes, pipe) }
	return slices.ContainsFunc(pipesOf(p.id), isOurs)
}

// pipesOf returns the pipes among the standard streams of a process, as /proc names them.
func pipesOf(id int) []string {
	var pipes []string
	for stream := range 3 {
		// It fails where a stream is closed, and for the process of another user.
		name, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", id, stream))
		if strings.HasPrefix(name, "pipe:") {
			pipes = append(pipes, name)
		}
	}
	return pipes
}

// process is what /proc tells of a process.
type process struct {
	id, parent, group, session int

	start    string // when it began, in a unit of the system
	isZombie bool   // it has ended, and nobody has waited for it
}

// allProcesses returns the processes of the system.
func allProcesses() []process {
	var all []process
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range files {
		// It is gone if the process has just ended.
		stat, _ := os.ReadFile(file)
		p, ok := parseProcess(string(stat))
		if ok {
			all = append(all, p)
		}
	}
	return all
}

// parseProcess reads the file stat of a process in /proc (proc_pid_stat(5)). It has the id of the
// process, its name in brackets, its state, parent, group and session, and then more. The name may
// hold anything.
//
// The state is that of the process's first thread. A process whose first thread has ended runs as
// long as it has others, and nobody can wait for it before.
func parseProcess(stat string) (p process, ok bool) {
	// The places of the number of threads and of the start, counted from the state.
	const threads, start = 17, 19
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) <= start {
		return process{}, false
	}
	id, _, _ := strings.Cut(stat, " ")
	p.id, _ = strconv.Atoi(id)
	p.parent, _ = strconv.Atoi(fields[1])
	p.group, _ = strconv.Atoi(fields[2])
	p.session, _ = strconv.Atoi(fields[3])
	p.start = fields[start]
	hasEnded := fields[0] == "Z" || fields[0] == "X"
	hasOthers := fields[threads] != "0" && fields[threads] != "1"
	p.isZombie = hasEnded && !hasOthers
	return p, true
}
