package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

// adoptOrphans makes this process the parent of all orphans among what it starts, as process 1
// of a container is.
func adoptOrphans(t *testing.T, adopt uintptr) {
	t.Helper()
	const setChildSubreaper = 36 // PR_SET_CHILD_SUBREAPER
	if _, _, err := syscall.RawSyscall(syscall.SYS_PRCTL, setChildSubreaper, adopt, 0); err != 0 {
		t.Skipf("this system has no child subreapers: %v", err)
	}
}

// closeWithOrphan ends a server that has started another process, which is asked to end and then
// is a zombie. A Close that waits for zombies takes an hour.
func closeWithOrphan(t *testing.T) (group int) {
	t.Helper()
	command := childCommand("puppet")
	command.Grace = time.Hour
	alive := newLifeline(t, &command)
	c, s := connectChild(t, command, nil)
	c.spawned(t, "polite")
	assert.NilError(t, c.Close())
	assert.Equal(t, alive.wantAllGone(t), "asked")
	return s.process.Process.Pid
}

// TestCloseAsInit: where we are the parent of orphans, Close reaps those of the server's group.
func TestCloseAsInit(t *testing.T) {
	checkLeaks(t)
	adoptOrphans(t, 1)
	defer adoptOrphans(t, 0)
	group := closeWithOrphan(t)
	_, err := syscall.Wait4(-group, nil, syscall.WNOHANG, nil)
	assert.ErrorIs(t, err, syscall.ECHILD) // no zombie is left
}

// TestParseProcess: a process of which only the first thread has ended is running, and is no zombie to be reaped.
func TestParseProcess(t *testing.T) {
	for stat, want := range map[string]process{
		"78 (a) b) S 1 77 76 0 -1 4 0 0 0 0 0 0 0 0 20 0 3 0 5": {78, 1, 77, 76, "5", false},
		"78 (a) b) Z 1 77 76 0 -1 4 0 0 0 0 0 0 0 0 20 0 3 0 5": {78, 1, 77, 76, "5", false},
		"78 (a) b) Z 1 77 76 0 -1 4 0 0 0 0 0 0 0 0 20 0 1 0 5": {78, 1, 77, 76, "5", true},
		"78 (a) b) S 1 77": {},
		"":                 {},
	} {
		got, ok := parseProcess(stat)
		assert.Check(t, is.Equal(got, want), stat)
		assert.Check(t, is.Equal(ok, want.id != 0), stat)
	}
}

// TestCloseUnderLateParent: where the parent of orphans does not reap them, Close does not wait
// for it. The test is run in a process of its own, under one that is such a parent.
func TestCloseUnderLateParent(t *testing.T) {
	role := os.Getenv("MCPAGENT_LATE_PARENT")
	if role == "child" {
		closeWithOrphan(t)
		return
	}
	next := "child"
	if role == "" {
		checkLeaks(t)
		next = "parent"
	} else {
		adoptOrphans(t, 1)
	}
	c := exec.Command(os.Args[0], "-test.run=^TestCloseUnderLateParent$", "-test.timeout=20s")
	c.Env = append(os.Environ(), "MCPAGENT_LATE_PARENT="+next)
	output, err := c.CombinedOutput()
	assert.NilError(t, err, "%s", output)
	for zombie := 1; zombie > 0; { // now the parent does
		zombie, _ = syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
	}
}

// TestKilled: a server that does not end with its stdin ends with us, even if we are killed.
func TestKilled(t *testing.T) {
	checkLeaks(t)
	command := childCommand("owner")
	alive := newLifeline(t, &command)
	c := exec.Command(command.Path)
	c.Env = append(os.Environ(), command.Env...)
	stdout, err := c.StdoutPipe()
	assert.NilError(t, err)
	assert.NilError(t, c.Start())
	line, err := bufio.NewReader(stdout).ReadString('\n')
	assert.NilError(t, err)
	assert.Equal(t, line, "connected: <nil>\n")
	assert.NilError(t, c.Process.Kill())
	assert.ErrorContains(t, c.Wait(), "killed")
	alive.wantAllGone(t)
}

// TestCloseEndsWhatLeftTheGroup: a busy process that a shell has put into another group, or another session, goes with
// the server, if need be with SIGKILL.
func TestCloseEndsWhatLeftTheGroup(t *testing.T) {
	const busy = `echo started; while :; do :; done`
	for name, script := range map[string]string{
		"shell":                    "trap '' TERM; " + busy,
		"child of a shell":         "sh -c '" + busy + "'; true",
		"session":                  "setsid sh -c '" + busy + "'; true",
		"session, ignores SIGTERM": `setsid sh -c "trap '' TERM; ` + busy + `"; true`,
		"session in background":    "setsid sh -c '" + busy + "' & wait",
		"session of a session":     `setsid sh -c "setsid sh -c '` + busy + `'; true"; true`,
		"interactive shell":        "bash -ic '" + busy + "'; true",
	} {
		t.Run(name, func(t *testing.T) {
			checkLeaks(t)
			// Whatever becomes of the test, nothing is busy for ever.
			script = `ulimit -t 20; exec 9>"$MCPAGENT_LIFELINE"; ` + script
			command := Command{Path: "sh", Args: []string{"-c", script}, Grace: 50 * time.Millisecond}
			alive := newLifeline(t, &command)
			s, err := startStdio(command)
			assert.NilError(t, err)
			line, err := s.Read()
			assert.NilError(t, err)
			assert.Equal(t, string(line), "started")
			assert.NilError(t, s.Close())
			alive.wantAllGone(t)
		})
	}
}

// TestCloseSparesTheBrowser: what a server starts in another session, and without its pipes, is not the server: it may
// be the user's browser, which the server has opened for a login.
func TestCloseSparesTheBrowser(t *testing.T) {
	checkLeaks(t)
	script := `setsid sleep 60 </dev/null >/dev/null 2>&1 & echo $!; ulimit -t 20; while :; do :; done`
	s, err := startStdio(Command{Path: "sh", Args: []string{"-c", script}, Grace: 50 * time.Millisecond})
	assert.NilError(t, err)
	line, err := s.Read()
	assert.NilError(t, err)
	browser, err := strconv.Atoi(string(line))
	assert.NilError(t, err)
	defer syscall.Kill(browser, syscall.SIGKILL)
	server := s.process.Process.Pid
	assert.NilError(t, s.Close())
	assert.ErrorIs(t, syscall.Kill(server, 0), syscall.ESRCH)
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", browser))
	assert.NilError(t, err)
	p, _ := parseProcess(string(stat))
	assert.Assert(t, !p.isZombie, "%s", stat)
}

// TestCloseEndsOtherGroups: a process in another group of the server's session goes with the server, also where the
// server has ended before, so that nobody is its parent any more.
func TestCloseEndsOtherGroups(t *testing.T) {
	for _, mode := range []string{"lingers", "puppet"} {
		for _, kind := range []string{"group", "group-stubborn"} {
			t.Run(mode+" "+kind, func(t *testing.T) {
				checkLeaks(t)
				command := childCommand(mode)
				command.Grace = 50 * time.Millisecond
				alive := newLifeline(t, &command)
				c, s := connectChild(t, command, nil)
				other := c.spawned(t, kind)
				group, err := syscall.Getpgid(other)
				assert.NilError(t, err)
				assert.Equal(t, group, other)
				if mode == "puppet" {
					_, err = c.run(t.Context(), "leave", "")
					assert.NilError(t, err)
					<-s.exited
				}
				assert.NilError(t, c.Close())
				alive.wantAllGone(t)
			})
		}
	}
}

// TestServerHasNoTerminal: a server has a session of its own, as a shell that is to be interactive would stop itself in
// the background of our terminal.
func TestServerHasNoTerminal(t *testing.T) {
	checkLeaks(t)
	command := Command{Path: "sh", Args: []string{"-c", `read -r stat </proc/self/stat; echo "$stat"; cat`}}
	s, err := startStdio(command)
	assert.NilError(t, err)
	defer s.Close()
	line, err := s.Read()
	assert.NilError(t, err)
	fields := strings.Fields(string(line))
	assert.Equal(t, fields[5], strconv.Itoa(s.process.Process.Pid), "its session")
	assert.Equal(t, fields[6], "0", "its terminal")
}

// TestStartedTwice: a server that the probe ends is started a second time, but not one that has
// ended before it read the probe.
func TestStartedTwice(t *testing.T) {
	for script, want := range map[string]int{
		"exit 3":                      1,
		"echo no licence >&2; exit 3": 1,
		"exec <&-; sleep 0.1; exit 3": 1,
		"read line; exit 3":           2,
	} {
		checkLeaks(t)
		starts := 0
		_, err := Connect(t.Context(), func(ctx context.Context) (Transport, error) {
			starts++
			return Command{Path: "sh", Args: []string{"-c", script}}.Start(ctx)
		}, nil)
		var exit *ServerExitError
		assert.Assert(t, errors.As(err, &exit), "%s: %v", script, err)
		assert.Equal(t, exit.State.ExitCode(), 3)
		assert.Equal(t, starts, want, "%s: %v", script, err)
	}
}
