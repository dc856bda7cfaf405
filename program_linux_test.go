package main

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"unsafe"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

// programTerminal is the program on a terminal, and whoever sits at it.
type programTerminal struct {
	*programRun
	keyboard *os.File // the terminal's other side
	reader   sync.WaitGroup
}

// newProgramTerminal starts the program with a terminal for stdin, stdout and stderr.
func newProgramTerminal(t *testing.T, variables []string, args ...string) *programTerminal {
	t.Helper()
	ptmx, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no terminal to be had: %v", err)
	}
	t.Cleanup(func() { ptmx.Close() })
	raw, err := ptmx.SyscallConn()
	assert.NilError(t, err)
	var number, unlock uint32
	var failed syscall.Errno
	assert.NilError(t, raw.Control(func(fd uintptr) {
		if _, _, failed = syscall.Syscall(syscall.SYS_IOCTL, fd, syscall.TIOCGPTN, uintptr(unsafe.Pointer(&number))); failed == 0 {
			_, _, failed = syscall.Syscall(syscall.SYS_IOCTL, fd, syscall.TIOCSPTLCK, uintptr(unsafe.Pointer(&unlock)))
		}
	}))
	assert.Equal(t, failed, syscall.Errno(0))
	tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	assert.NilError(t, err)
	defer tty.Close()

	p := &programTerminal{programRun: newProgram(t, variables, args...), keyboard: ptmx}
	p.command.Stdin, p.command.Stdout, p.command.Stderr = tty, tty, tty
	p.command.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	p.start()
	p.reader.Go(func() { // ends with the last of those who have the terminal open
		buffer := make([]byte, 4096)
		for {
			n, err := ptmx.Read(buffer)
			p.stderr.Write(buffer[:n])
			if err != nil {
				return
			}
		}
	})
	return p
}

// answer waits for the question, types, and returns the exit status and all that the screen has shown.
func (p *programTerminal) answer(question, keys string) (status int, screen string) {
	p.t.Helper()
	p.saw(question)
	_, err := p.keyboard.WriteString(keys)
	assert.NilError(p.t, err)
	status = p.end()
	p.reader.Wait()
	return status, strings.ReplaceAll(p.stderr.String(), "\r\n", "\n")
}

// On a terminal the user is asked, and what is shown does not steer the terminal.
func TestProgramTerminal(t *testing.T) {
	checkLeaks(t)
	for _, test := range []struct {
		what, keys, told string
		status           int
		screen           string // after the question
	}{
		{"yes", "y\n", "a\x1b[31m", 0, "y\n> echo {\"text\":\"a\\u001b[31m\"}\n< echo TIME, 6 bytes\n"},
		{"yes, in full", " Yes\n", "a\x1b[31m", 0, " Yes\n> echo {\"text\":\"a\\u001b[31m\"}\n< echo TIME, 6 bytes\n"},
		{"no", "n\n", "Error: the call was refused: the user said no", 0, "n\n< echo {\"text\":\"a\\u001b[31m\"}: the call was refused: the user said no\n"},
		{"nothing", "\n", "Error: the call was refused: the user said no", 0, "\n< echo {\"text\":\"a\\u001b[31m\"}: the call was refused: the user said no\n"},
		{"the end", "\x04", "Error: the call was refused: the user said no", 0, "\n< echo {\"text\":\"a\\u001b[31m\"}: the call was refused: the user said no\n"},
		{"Ctrl-C", "\x03", "", 130, "^C\n< echo {\"text\":\"a\\u001b[31m\"}: the question was interrupted before this call had a result\nmcpagent: interrupted\n"},
	} {
		t.Run(test.what, func(t *testing.T) {
			model := newModelServer(t, modelCalls(modelCall("aaaaaaaa1", "echo", `{"text":"a\u001b[31m"}`)), modelText("red:\x1b[31m\r\ngreen:\u009b32m"))
			p := newProgramTerminal(t, programModel(model, programServer(t, "prog-tools")), "hi")
			status, screen := p.answer("[y/n] ", test.keys)
			assert.Equal(t, status, test.status, screen)
			want := "call echo {\"text\":\"a\\u001b[31m\"}\nrun it? [y/n] " + test.screen
			if test.told != "" {
				assert.Equal(t, model.Requests()[1].Last(), test.told)
				want += "red:\uFFFD[31m\ngreen:\uFFFD32m\nmistral-large-latest: 2 turns, 1 call, 30 tokens (20 in, 10 out)\n"
			}
			assert.Equal(t, programSteady(screen), want)
		})
	}
}

// A terminal is asked about each call before any of them runs.
func TestProgramTerminalAsksFirst(t *testing.T) {
	checkLeaks(t)
	model := newModelServer(t, modelCalls(modelCall("aaaaaaaa1", "echo", `{"text":"1"}`), modelCall("aaaaaaaa2", "echo", `{"text":"2"}`)), modelText("done"))
	p := newProgramTerminal(t, programModel(model, programServer(t, "prog-tools")), "hi")
	p.saw("[y/n] ")
	_, err := p.keyboard.WriteString("n\n")
	assert.NilError(t, err)
	status, screen := p.answer(`call echo {"text":"2"}`, "y\n")
	assert.Equal(t, status, 0)
	assert.Equal(t, strings.Count(screen, "run it? [y/n]"), 2)
	messages := model.Requests()[1].Messages
	assert.Equal(t, messages[len(messages)-2].Content.Text(), "Error: the call was refused: the user said no")
	assert.Equal(t, messages[len(messages)-1].Content.Text(), "2")
}

// Without a question, nobody waits for one on a terminal; a server on one says what it is.
func TestProgramTerminalWithoutQuestion(t *testing.T) {
	checkLeaks(t)
	p := newProgramTerminal(t, nil)
	status, screen := p.answer("", "")
	assert.Equal(t, status, exitUsage)
	assert.Equal(t, screen, "mcpagent: no question: give it as an argument or on stdin (see: mcpagent help)\n")

	p = newProgramTerminal(t, nil, "serve")
	status, screen = p.answer("Ctrl-D ends it", "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n\x04")
	assert.Equal(t, status, 0)
	assert.Check(t, is.Contains(screen, `{"jsonrpc":"2.0","id":1,"result":{}}`))

	p = newProgramTerminal(t, nil, "serve")
	status, screen = p.answer("Ctrl-D ends it", "\x03")
	assert.Equal(t, status, exitInterrupted)
	assert.Check(t, strings.HasSuffix(screen, "mcpagent: interrupted\n"), screen)
}
