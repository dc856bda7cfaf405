// transport_stdio_windows.go - process trees on Windows.
// Needs: Go 1.25, json, rpc.
// SPDX-License-Identifier: 0BSD

package main

import (
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// isBrokenPipe knows both numbers that Windows has for it.
func isBrokenPipe(err error) bool {
	const noData = syscall.Errno(232) // ERROR_NO_DATA
	return errors.Is(err, syscall.ERROR_BROKEN_PIPE) || errors.Is(err, noData)
}

// startGroup keeps a Ctrl-C in the console from reaching the process: it is for us alone to handle.
func startGroup(c *exec.Cmd) {
	c.SysProcAttr = &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}

// terminateGroup ends the process and all it started. Windows has no signal that asks first.
func terminateGroup(leader *os.Process) {
	_ = exec.Command("taskkill", "/T", "/F", "/PID", strconv.Itoa(leader.Pid)).Run()
}

func killGroup(leader *os.Process) {
	terminateGroup(leader)
	_ = leader.Kill()
}

// groupAlive is false: once the leader has ended, Windows does not know what it had started.
func groupAlive(*os.Process) bool { return false }

func isSafeVariable(name string) bool {
	switch strings.ToUpper(name) {
	case "APPDATA", "COMSPEC", "HOMEDRIVE", "HOMEPATH", "LOCALAPPDATA", "PATH", "PATHEXT", "PROCESSOR_ARCHITECTURE",
		"PROGRAMDATA", "PROGRAMFILES", "SYSTEMDRIVE", "SYSTEMROOT", "TEMP", "TMP", "USERNAME", "USERPROFILE", "WINDIR":
		return true
	}
	return false
}
