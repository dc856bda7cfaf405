package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
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
	tty      *os.File // the program's side, until that has it
	tell     *os.File // closed to let the shell end
	reader   sync.WaitGroup
}

// newProgramTerminal starts the program with a terminal for stdin, stdout and stderr.
func newProgramTerminal(t *testing.T, variables []string, args ...string) *programTerminal {
	t.Helper()
	p := openProgramTerminal(t, 80, variables, args...)
	p.sit()
	return p
}

// onTerminal starts a program that was made before, with a terminal of 80 columns.
func (run *programRun) onTerminal() *programTerminal {
	p := run.openTerminal(80)
	p.sit()
	return p
}

// openProgramTerminal is a program that can be started with a terminal, whose window has so many columns.
func openProgramTerminal(t *testing.T, columns uint16, variables []string, args ...string) *programTerminal {
	return newProgram(t, variables, args...).openTerminal(columns)
}

func (run *programRun) openTerminal(columns uint16) *programTerminal {
	t := run.t
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
	size := [4]uint16{24, columns}
	assert.NilError(t, raw.Control(func(fd uintptr) {
		if _, _, failed = syscall.Syscall(syscall.SYS_IOCTL, fd, syscall.TIOCGPTN, uintptr(unsafe.Pointer(&number))); failed == 0 {
			_, _, failed = syscall.Syscall(syscall.SYS_IOCTL, fd, syscall.TIOCSPTLCK, uintptr(unsafe.Pointer(&unlock)))
		}
		if failed == 0 {
			_, _, failed = syscall.Syscall(syscall.SYS_IOCTL, fd, syscall.TIOCSWINSZ, uintptr(unsafe.Pointer(&size)))
		}
	}))
	assert.Equal(t, failed, syscall.Errno(0))
	tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	assert.NilError(t, err)
	t.Cleanup(func() { tty.Close() })
	p := &programTerminal{programRun: run, keyboard: ptmx, tty: tty}
	p.command.Stdin, p.command.Stdout, p.command.Stderr = tty, tty, tty
	p.command.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}

	// When the leader of its session ends, a terminal forgets what nobody has read yet. So the leader is a shell, which ends
	// when all has been read: it says NUL, and waits to be told.
	p.command.Args = append([]string{"sh", "-c", `trap : INT; "$0" "$@"; status=$?; printf '\000'; read end <&3; exit $status`}, p.command.Args...)
	p.command.Path = "/bin/sh"
	told, tell, err := os.Pipe()
	assert.NilError(t, err)
	t.Cleanup(func() { told.Close(); tell.Close() })
	p.command.ExtraFiles, p.tell = []*os.File{told}, tell
	return p
}

// sit starts the program.
func (p *programTerminal) sit() {
	p.t.Helper()
	p.start()
	p.tty.Close()        // it is the program's
	p.reader.Go(func() { // ends with the last of those who have the terminal open
		buffer := make([]byte, 4096)
		for {
			n, err := p.keyboard.Read(buffer)
			output, _, ended := bytes.Cut(buffer[:n], []byte{0})
			p.stderr.Write(output)
			if ended {
				p.tell.Close()
			}
			if err != nil {
				return
			}
		}
	})
}

// types has a conversation: each question, which it waits for, and the keys to answer it with. It returns all of that,
// which is what the screen shows.
func (p *programTerminal) types(conversation ...string) (screen string) {
	p.t.Helper()
	for i := 0; i < len(conversation); i += 2 {
		p.saw(conversation[i])
		_, err := p.keyboard.WriteString(conversation[i+1])
		assert.NilError(p.t, err)
	}
	return strings.Join(conversation, "")
}

// answer waits for the question, types, and returns the exit status and all that the screen has shown.
func (p *programTerminal) answer(question, keys string) (status int, screen string) {
	p.t.Helper()
	p.types(question, keys)
	status = p.end()
	p.reader.Wait()
	return status, strings.ReplaceAll(p.stderr.String(), "\r\n", "\n")
}

// programApprove is the question about a call, in a window of 80 columns.
const programApprove = "[y]es / [n]o / [a]lways this tool / always this [s]erver\n[e]dit arguments / answer in its [p]lace: "

// programWants is what a user is asked about a call of a MCP_SERVER.
func programWants(tool, arguments string) string {
	return "The model wants to call\n  server     " + filepath.Base(os.Args[0]) + "\n  tool       " + tool + "\n  arguments  " + arguments + "\n" + programApprove
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
		{"nothing, then no", "\nno\n", "Error: the call was refused: the user said no", 0, "\nno\n" + programApprove +
			"< echo {\"text\":\"a\\u001b[31m\"}: the call was refused: the user said no\n"},
		{"the end", "\x04", "Error: the call was refused: the user said no", 0, "\n< echo {\"text\":\"a\\u001b[31m\"}: the call was refused: the user said no\n"},
		{"Ctrl-C", "\x03", "", 130, "^C\n< echo {\"text\":\"a\\u001b[31m\"}: the question was interrupted before this call had a result\nmcpagent: interrupted\n"},
	} {
		t.Run(test.what, func(t *testing.T) {
			model := newModelServer(t, modelCalls(modelCall("aaaaaaaa1", "echo", `{"text":"a\u001b[31m"}`)), modelText("red:\x1b[31m\r\ngreen:\u009b32m"))
			p := newProgramTerminal(t, programModel(model, programServer(t, "prog-tools")), "hi")
			status, screen := p.answer(programApprove, test.keys)
			assert.Equal(t, status, test.status, screen)
			want := programWants("echo", `{"text":"a\u001b[31m"}`) + test.screen
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
	p.types(programApprove, "n\n")
	status, screen := p.answer(programWants("echo", `{"text":"2"}`), "y\n")
	assert.Equal(t, status, 0)
	assert.Equal(t, strings.Count(screen, programApprove), 2)
	messages := model.Requests()[1].Messages
	assert.Equal(t, messages[len(messages)-2].Content.Text(), "Error: the call was refused: the user said no")
	assert.Equal(t, messages[len(messages)-1].Content.Text(), "2")
}

// A server on a terminal says what it is.
func TestProgramTerminalServe(t *testing.T) {
	checkLeaks(t)
	p := newProgramTerminal(t, nil, "serve")
	status, screen := p.answer("Ctrl-D ends it", "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n\x04")
	assert.Equal(t, status, 0)
	assert.Check(t, is.Contains(screen, `{"jsonrpc":"2.0","id":1,"result":{}}`))

	p = newProgramTerminal(t, nil, "serve")
	status, screen = p.answer("Ctrl-D ends it", "\x03")
	assert.Equal(t, status, exitInterrupted)
	assert.Check(t, strings.HasSuffix(screen, "mcpagent: interrupted\n"), screen)
}

// programFields is a form with a field of every kind.
const programFields = `{"mode":"form","message":"Who\nare \u001b[31myou?","requestedSchema":{"type":"object","required":["name","age"],"properties":{
	"name":{"type":"string","title":"Your name","minLength":2},
	"age":{"type":"integer","minimum":18},
	"share":{"type":"number","default":0.5},
	"member":{"type":"boolean","default":true,"description":"Of the club\n[y/n]"},
	"color":{"type":"string","oneOf":[{"const":"#f00","title":"Red"},{"const":"#0f0","title":"Green"}],"default":"#0f0"},
	"birds":{"type":"array","items":{"type":"string","enum":["heron","crane","stork"]},"default":["heron","stork"]},
	"mail":{"type":"string","format":"email"}}}}`

// What a user types into a form is checked, can be changed, and is sent when they say so. A server's words neither steer
// the terminal nor look like the program's.
func TestProgramTerminalForm(t *testing.T) {
	checkLeaks(t)
	for _, mode := range []string{"prog-tools", "prog-modern"} {
		p := newProgramTerminal(t, []string{programServer(t, mode)}, "call", "ask", programAsks("q", "elicitation/create", programFields))
		want := p.types(
			"the server asks: Who\n    are \uFFFD[31myou?\n(an empty line takes what is in brackets; !no declines, !stop breaks off)\nYour name: ", "\n",
			"it is required\nYour name: ", "A\n",
			"it must be at least 2 characters\nYour name: ", " Ann \n",
			"age: ", "old\n",
			"it must be a number\nage: ", "17\n",
			"it must be at least 18\nage: ", "18\n",
			"share [0.5]: ", "0.25\n",
			"member (Of the club\n    [y/n]), y/n [y]: ", "\n",
			"color\n  1 Red\n  2 Green\none of these [Green]: ", "3\n",
			"it must be one of the options\ncolor\n  1 Red\n  2 Green\none of these [Green]: ", "\n",
			"birds\n  1 heron\n  2 crane\n  3 stork\nany of these, with commas [heron, stork]: ", "2, stork\n",
			"mail [none]: ", "\n",
			"send it (y) or change it (n)? ", "n\n",
			"Your name [Ann]: ", "\n",
			"age [18]: ", "19\n",
			"share [0.25]: ", "\n",
			"member (Of the club\n    [y/n]), y/n [y]: ", "n\n",
			"color\n  1 Red\n  2 Green\none of these [Green]: ", "1\n",
			"birds\n  1 heron\n  2 crane\n  3 stork\nany of these, with commas [crane, stork]: ", "\n",
			"mail [none]: ", "ann@example.com\n",
			"send it (y) or change it (n)? ", "y\n")
		status, screen := p.answer("", "")
		assert.Equal(t, status, 0)
		assert.Equal(t, screen, want+`{"q":{"action":"accept","content":{"age":19,"birds":["crane","stork"],"color":"#f00",`+
			`"mail":"ann@example.com","member":false,"name":"Ann","share":0.25}}}`+"\n")
	}
}

// Each way out of a question of the server.
func TestProgramTerminalElicits(t *testing.T) {
	checkLeaks(t)
	const (
		form = "the server asks: Who are\n    you?\n(an empty line takes what is in brackets; !no declines, !stop breaks off)\nname [none]: "
		send = "send it (y) or change it (n)? "
		none = "the server asks: Sure?\nyes? [y/n] "
		url  = "the server asks: Sign in\nopen this in a browser, if you trust it: \"https://ex\\u0430mple.com/?a=b\"\nwill you? [y/n] "
		key  = "the server asks: [key]\nyes? [y/n] "
	)
	sure := `{"message":"Sure?","requestedSchema":{"type":"object","properties":{}}}`
	sign := `{"mode":"url","message":"Sign in","url":"https://ex\u0430mple.com/?a=b","elicitationId":"1"}`
	for _, test := range []struct {
		what, params string
		conversation []string
		answer       string
	}{
		{"!no", programForm, []string{form, "!no\n"}, `{"action":"decline"}`},
		{"!stop", programForm, []string{form, " !stop\n"}, `{"action":"cancel"}`},
		{"the end of the input", programForm, []string{form, "\x04"}, `{"action":"cancel"}`},
		{"!no in the end", programForm, []string{form, "Ann\n", send, "!no\n"}, `{"action":"decline"}`},
		{"nothing", programForm, []string{form, "\n", send, "y\n"}, `{"action":"accept","content":{}}`},
		{"no fields, yes", sure, []string{none, "YES\n"}, `{"action":"accept","content":{}}`},
		{"no fields, no", sure, []string{none, "yesterday\n"}, `{"action":"decline"}`},
		{"no fields, the end of the input", sure, []string{none, "\x04"}, `{"action":"cancel"}`},
		{"URL, yes", sign, []string{url, "y\n"}, `{"action":"accept"}`},
		{"URL, no", sign, []string{url, "\n"}, `{"action":"decline"}`},
		{"URL, !stop", sign, []string{url, "!stop\n"}, `{"action":"cancel"}`},
		{"a key", strings.Replace(sure, "Sure?", programKey, 1), []string{key, "y\n"}, `{"action":"accept","content":{}}`},
	} {
		t.Run(test.what, func(t *testing.T) {
			// What would open a URL is on no PATH of this run.
			p := newProgramTerminal(t, []string{"PATH=", "MISTRAL_API_KEY=" + programKey, programServer(t, "prog-tools")},
				"call", "ask", programAsks("q", "elicitation/create", test.params))
			want := strings.ReplaceAll(p.types(test.conversation...), "\x04", "\n")
			status, screen := p.answer("", "")
			assert.Equal(t, status, 0)
			assert.Equal(t, screen, want+`{"q":`+test.answer+"}\n")
		})
	}

	for what, conversation := range map[string][]string{
		"in a field":  {"name [none]: ", "An\x03"},
		"in the end":  {"name [none]: ", "Ann\n", send, "\x03"},
		"in approval": {"let it? [y/n] ", "\x03"},
	} {
		for _, mode := range []string{"prog-tools", "prog-modern"} {
			t.Run("Ctrl-C "+what+" "+mode, func(t *testing.T) {
				ask := programAsks("q", "elicitation/create", programForm)
				if what == "in approval" {
					ask = programAsks("q", "sampling/createMessage", programSample)
				}
				p := newProgramTerminal(t, []string{programServer(t, mode)}, "call", "ask", ask)
				p.types(conversation...)
				status, screen := p.answer("", "")
				assert.Equal(t, status, exitInterrupted)
				assert.Check(t, strings.HasSuffix(screen, "^C\nmcpagent: interrupted\n"), screen)
			})
		}
	}
}

// On a terminal the user is asked whether a server may use the model, unless it was said beforehand that it may, or may not.
func TestProgramTerminalSampling(t *testing.T) {
	checkLeaks(t)
	const question = "the server asks the model:\n  system: Be brief.\n  user: Which bird?\nlet it? [y/n] "
	ask := programAsks("q", "sampling/createMessage", programSample)
	for _, mode := range []string{"prog-tools", "prog-modern"} {
		model := newModelServer(t, modelText("A heron."))
		p := newProgramTerminal(t, programModel(model, programServer(t, mode)), "call", "ask", ask)
		status, screen := p.answer(question, "y\n")
		assert.Equal(t, status, 0)
		assert.Equal(t, screen, question+"y\n"+`{"q":{"role":"assistant","content":{"type":"text","text":"A heron."},"model":"mistral-large-latest","stopReason":"endTurn"}}`+"\n")
		assert.Equal(t, model.Requests()[0].Last(), "Which bird?")

		for _, keys := range []string{"n\n", "yes, but\n", "\x04"} {
			p = newProgramTerminal(t, programModel(newModelServer(t), programServer(t, mode)), "call", "ask", ask)
			_, screen = p.answer(question, keys)
			assert.Check(t, is.Contains(screen, "sampling/createMessage: the user said no"))
			assert.Check(t, mode == "prog-modern" || strings.Contains(screen, "(error -1)"), "what the protocol has for it: %s", screen)
		}
		p = newProgramTerminal(t, programModel(newModelServer(t), programServer(t, mode), "MCP_APPROVE=never"), "call", "ask", ask)
		_, screen = p.answer("", "")
		assert.Check(t, is.Contains(screen, "this client does not offer sampling/createMessage"))
	}
}

// There is one user: who is asked something is asked nothing else.
func TestProgramTerminalAsksInTurn(t *testing.T) {
	checkLeaks(t)
	const form = `{"message":"MESSAGE","requestedSchema":{"type":"object","properties":{"one":{"type":"string"},"two":{"type":"string"}}}}`
	params := func(message string) string { return strings.Replace(form, "MESSAGE", message, 1) }
	model := newModelServer(t, modelText("A heron."))
	p := newProgramTerminal(t, programModel(model, programServer(t, "prog-tools")), "call", "ask", programAsks(
		"first", "elicitation/create", params("first"), "second", "elicitation/create", params("second"), "third", "sampling/createMessage", programSample))
	const first = "(an empty line takes what is in brackets; !no declines, !stop breaks off)\none [none]: "
	want := ""
	for range 3 { // in whichever order
		line := p.saw("\n") + "\n"
		want += line
		switch line {
		case "the server asks the model:\n":
			want += p.types("  system: Be brief.\n  user: Which bird?\nlet it? [y/n] ", "y\n")
		case "the server asks: first\n":
			want += p.types(first, "1\n", "two [none]: ", "2\n", "send it (y) or change it (n)? ", "y\n")
		default:
			want += p.types(first, "3\n", "two [none]: ", "4\n", "send it (y) or change it (n)? ", "y\n")
		}
		p.saw("y\n") // the last keys
	}
	status, screen := p.answer("", "")
	assert.Equal(t, status, 0)
	assert.Equal(t, screen, want+`{"first":{"action":"accept","content":{"one":"1","two":"2"}},"second":{"action":"accept","content":{"one":"3","two":"4"}},`+
		`"third":{"role":"assistant","content":{"type":"text","text":"A heron."},"model":"mistral-large-latest","stopReason":"endTurn"}}`+"\n")

	// The model wants a call while the server's question is open.
	asked := make(chan struct{})
	model = newModelServer(t, modelFunc(func(*modelRequest) modelReply {
		<-asked
		return modelCalls(modelCall("aaaaaaaa1", "echo", `{"text":"x"}`))
	}), modelText("done"))
	p = newProgramTerminal(t, programModel(model, programServer(t, "prog-nosy")), "-q", "hi")
	want = p.types("the server asks: Who are\n    you?\n(an empty line takes what is in brackets; !no declines, !stop breaks off)\nname [none]: ", "")
	close(asked)
	want += p.types("", "Ann\n", "send it (y) or change it (n)? ", "y\n", programWants("echo", `{"text":"x"}`), "y\n")
	status, screen = p.answer("", "")
	assert.Equal(t, status, 0)
	assert.Equal(t, screen, want+"done\n")
	assert.Equal(t, model.Requests()[1].Last(), "x")
}
