package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// runChild is the test binary as another program: a server of some kind, or what a server has started. Its
// result is the exit status.
func runChild(mode string) int {
	// Whatever becomes of the test, no child stays for ever.
	time.AfterFunc(time.Minute, func() { os.Exit(9) })
	var lifeline *os.File // open for as long as this process is there
	if path := os.Getenv("MCPAGENT_LIFELINE"); path != "" {
		var err error
		if lifeline, err = os.OpenFile(path, os.O_WRONLY, 0); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 2
		}
		defer lifeline.Close()
	}
	switch {
	case mode == "conformance":
		return conformanceChild()
	case mode == "bench-http":
		return benchHTTPChild()
	case strings.HasPrefix(mode, "bench-"):
		return benchChild(benchResults()[mode])
	case strings.HasPrefix(mode, "held-"):
		return heldChild(mode, lifeline)
	}
	p := &puppet{in: bufio.NewReaderSize(os.Stdin, 64<<10)}
	switch mode {
	case "puppet":
		return p.serve()
	case "exits":
		fmt.Fprint(os.Stderr, "loading\n\ncannot open the library\n")
		return 3
	case "silent":
		fmt.Fprintln(os.Stderr, "started")
		_, _ = io.Copy(io.Discard, os.Stdin)
		return 0
	case "banner":
		fmt.Print("*** Library server 1.0 ***\n\r\n\n2025-01-01 INFO ready\n")
		p.noise = "42\n" + `{"jsonrpc":"2.0","id":2,"resu` + "\n"
		return p.serve()
	case "noisy":
		for i := range 1 << 14 {
			fmt.Fprintf(os.Stderr, "%063d\n", i)
		}
		return p.serve()
	case "stays": // after the end of stdin, until SIGTERM
		p.serve()
		fmt.Fprintln(os.Stderr, "end of input")
		select {}
	case "stubborn": // until SIGKILL
		signals := make(chan os.Signal, 1)
		signal.Notify(signals, syscall.SIGTERM)
		p.serve()
		fmt.Fprintln(os.Stderr, "end of input")
		for range signals {
			fmt.Fprintln(os.Stderr, "SIGTERM")
		}
	}
	return 2
}

// puppet is an MCP server that does what the called tool's name says.
type puppet struct {
	in    *bufio.Reader
	noise string // written before every answer
}

// puppetRequest is what the puppet understands of a message.
type puppetRequest struct {
	ID     json.RawMessage
	Method string
	Params struct {
		Name      string
		Arguments struct{ Arg string }
	}
}

func (p *puppet) serve() int {
	for {
		line, err := p.in.ReadBytes('\n')
		if err != nil {
			return 0
		}
		var r puppetRequest
		_ = json.Unmarshal(line, &r)
		switch r.Method {
		case "initialize":
			p.answer(r, `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"puppet","version":"1"}}`)
		case "tools/call":
			if status, end := p.do(r); end {
				return status
			}
		case "server/discover":
			_, _ = os.Stdout.WriteString(`{"jsonrpc":"2.0","id":` + string(r.ID) + `,"error":{"code":-32601,"message":"method not found"}}` + "\n")
		}
	}
}

func (p *puppet) do(r puppetRequest) (status int, end bool) {
	switch arg := r.Params.Arguments.Arg; r.Params.Name {
	case "pid":
		p.text(r, strconv.Itoa(os.Getpid()))
	case "environment":
		p.text(r, strings.Join(os.Environ(), "\n"))
	case "big": // a text of so many bytes
		n, _ := strconv.Atoi(arg)
		p.text(r, strings.Repeat("x", n))
	case "wait": // never answered
		p.progress(r)
	case "stderr": // written as it is
		fmt.Fprint(os.Stderr, arg)
		p.text(r, "written")
	case "spawn": // a process that keeps stdout and stderr open
		p.text(r, strconv.Itoa(spawn("held-"+arg)))
	case "leave": // answers, and is gone
		fmt.Fprintln(os.Stderr, "leaving")
		p.text(r, "bye")
		return 7, true
	case "crash": // no answer, and gone
		fmt.Fprintln(os.Stderr, "out of memory")
		self, _ := os.FindProcess(os.Getpid())
		_ = self.Kill()
		select {}
	case "deaf": // begins to read the next message, says so, and reads no more
		p.text(r, "soon")
		_, _ = p.in.ReadByte()
		fmt.Println(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"reading"}}`)
		select {}
	}
	return 0, false
}

func (p *puppet) answer(r puppetRequest, result string) {
	_, _ = os.Stdout.WriteString(p.noise + `{"jsonrpc":"2.0","id":` + string(r.ID) + `,"result":` + result + "}\n")
}

func (p *puppet) text(r puppetRequest, text string) {
	quoted, _ := json.Marshal(text)
	p.answer(r, `{"content":[{"type":"text","text":`+string(quoted)+`}]}`)
}

func (p *puppet) progress(r puppetRequest) {
	fmt.Println(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":` + string(r.ID) + `,"progress":1}}`)
}

// spawn starts this program once more and returns its process id when it is ready.
func spawn(mode string) int {
	r, w, err := os.Pipe()
	if err != nil {
		return 0
	}
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), "MCPAGENT_CHILD="+mode)
	c.Stdout, c.Stderr, c.ExtraFiles = os.Stdout, os.Stderr, []*os.File{w}
	err = c.Start()
	w.Close()
	if _, eof := r.Read(make([]byte, 1)); err != nil || eof != nil {
		return 0
	}
	return c.Process.Pid
}

// heldChild does nothing but exist, with the stdout and stderr of the server that started it.
func heldChild(mode string, lifeline *os.File) int {
	asked := make(chan os.Signal, 1)
	switch mode {
	case "held-polite":
		signal.Notify(asked, syscall.SIGTERM)
	case "held-stubborn":
		signal.Ignore(syscall.SIGTERM)
	case "held-detached":
		if err := detach(); err != nil {
			return 2
		}
	}
	ready := os.NewFile(3, "ready")
	_, _ = ready.Write([]byte("!"))
	ready.Close()
	<-asked
	_, _ = lifeline.WriteString("asked")
	return 0
}
