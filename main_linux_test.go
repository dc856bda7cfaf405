package main

import (
	"bytes"
	"fmt"
	"os"
	"syscall"
	"unsafe"
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
					if after := mode(); after != before || failed != 0 {
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
