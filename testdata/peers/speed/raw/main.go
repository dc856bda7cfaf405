// The raw pipe: it writes prepared lines and reads lines back, and knows no JSON. It is the limit of what a client on
// these pipes can do.
package main

import (
	"bufio"
	"errors"
	"io"
	"log"
	"os/exec"
	"strings"

	"speed/work"
)

// pipe is what a pipe holds, about: more than this must not be written while nobody reads the answers.
const pipe = 32 << 10

type raw struct {
	in  io.Writer
	out *bufio.Reader
}

func main() {
	task := work.NewTask()
	server := exec.Command(task.Server[0], task.Server[1:]...)
	in, err := server.StdinPipe()
	check(err)
	out, err := server.StdoutPipe()
	check(err)
	check(server.Start())
	r := &raw{in, bufio.NewReaderSize(out, 64<<10)}
	r.exchange([]byte(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}`+"\n"), 1)

	line := `{"jsonrpc":"2.0","id":12345,"method":"tools/list"}` + "\n"
	if task.Tools == 0 {
		line = `{"jsonrpc":"2.0","id":12345,"method":"tools/call","params":{"name":"` + task.Tool() +
			`","arguments":` + work.Arguments + "}}\n"
	}
	lines := []byte(strings.Repeat(line, task.InFlight))
	task.Measure(func(calls int) {
		for range calls / task.InFlight {
			r.exchange(lines, task.InFlight)
		}
	})
	check(in.Close())
	check(server.Wait())
}

// exchange writes lines and reads n lines back.
func (r *raw) exchange(lines []byte, n int) {
	write := func() {
		_, err := r.in.Write(lines)
		check(err)
	}
	if len(lines) <= pipe {
		write()
	} else {
		go write() // it is through before the last answer
	}
	for n > 0 {
		_, err := r.out.ReadSlice('\n')
		if err == nil {
			n--
		} else if !errors.Is(err, bufio.ErrBufferFull) {
			check(err)
		}
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
