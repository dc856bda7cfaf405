//go:build unix

package main

import "syscall"

// detach makes the process the leader of a session of its own: no signal to its old group reaches it.
func detach() error {
	_, err := syscall.Setsid()
	return err
}
