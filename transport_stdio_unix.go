// transport_stdio_unix.go - process groups on Unix.
// Needs: Go 1.25, json, rpc.
// SPDX-License-Identifier: 0BSD

//go:build unix

package main

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
)

func isBrokenPipe(err error) bool { return errors.Is(err, syscall.EPIPE) }

// startGroup makes the process the leader of a group of its own. So a Ctrl-C on the terminal, which goes to the whole
// foreground group, is for us alone to handle.
func startGroup(c *exec.Cmd) { c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

func terminateGroup(leader *os.Process) { _ = syscall.Kill(-leader.Pid, syscall.SIGTERM) }

func killGroup(leader *os.Process) { _ = syscall.Kill(-leader.Pid, syscall.SIGKILL) }

// groupAlive says whether any process of the group is left, be it one that waits to be reaped.
func groupAlive(leader *os.Process) bool { return syscall.Kill(-leader.Pid, 0) == nil }

func isSafeVariable(name string) bool {
	switch name {
	case "HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "TMPDIR", "LANG":
		return true
	}
	return strings.HasPrefix(name, "LC_")
}
