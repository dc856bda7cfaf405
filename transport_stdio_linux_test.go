package main

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"
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

// TestZombieWithThreads: a process of which only the first thread has ended is running, and is no zombie to be reaped.
func TestZombieWithThreads(t *testing.T) {
	g := &processGroup{leader: &os.Process{Pid: 77}}
	for stat, want := range map[string]bool{
		"78 (a) b) S 1 77 77 0 -1 4 0 0 0 0 0 0 0 0 20 0 3 0 5": true,
		"78 (a) b) Z 1 77 77 0 -1 4 0 0 0 0 0 0 0 0 20 0 3 0 5": true,
		"78 (a) b) Z 1 77 77 0 -1 4 0 0 0 0 0 0 0 0 20 0 1 0 5": false,
		"78 (a) b) S 1 76 77 0 -1 4 0 0 0 0 0 0 0 0 20 0 1 0 5": false,
		"": false,
	} {
		path := filepath.Join(t.TempDir(), "stat")
		assert.NilError(t, os.WriteFile(path, []byte(stat), 0o600))
		assert.Check(t, g.runs(path) == want, stat)
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
