package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// TestMain makes the test binary a server of many kinds, for tests that need a child process, and the
// program itself: where MCPAGENT_CHILD says so, or where the program started itself as its built-in server.
func TestMain(m *testing.M) {
	mode := os.Getenv("MCPAGENT_CHILD")
	if mode == "main" || mode == "" && len(os.Args) > 1 && os.Args[1] == "serve" {
		os.Exit(run())
	}
	if status, ok := runProgramChild(mode); ok {
		os.Exit(status)
	}
	if mode != "" {
		os.Exit(runChild(mode))
	}
	if r, w, err := os.Pipe(); err == nil { // the runtime's own descriptors come with the first pipe
		r.Close()
		w.Close()
	}
	before := resources()
	code := m.Run()
	if flag.Lookup("test.fuzz").Value.String() != "" {
		os.Exit(code) // fuzzing leaves a goroutine of its own
	}
	if left := leftOver(before); left != "" && code == 0 {
		fmt.Fprintln(os.Stderr, "left over after all tests:", left)
		code = 1
	}
	os.Exit(code)
}

// count is what a test may leave no more of than there was.
type count struct {
	goroutines, files, children int
}

func resources() (c count) {
	c.goroutines = runtime.NumGoroutine()
	if files, err := os.ReadDir("/proc/self/fd"); err == nil {
		c.files = len(files)
	}
	tasks, _ := filepath.Glob("/proc/self/task/*/children")
	for _, task := range tasks {
		children, _ := os.ReadFile(task)
		c.children += len(strings.Fields(string(children)))
	}
	return c
}

// leftOver says what there is more of than before, after giving it some time to end: a goroutine that
// was waited for may still be on its last instructions.
func leftOver(before count) string {
	deadline := time.Now().Add(5 * time.Second)
	for {
		now := resources()
		if now.goroutines <= before.goroutines && now.files <= before.files && now.children <= before.children {
			return ""
		}
		if time.Now().After(deadline) {
			stacks := make([]byte, 1<<20)
			return fmt.Sprintf("%+v, before %+v\n%s", now, before, stacks[:runtime.Stack(stacks, true)])
		}
		time.Sleep(time.Millisecond)
	}
}

// checkLeaks makes the test fail if it leaves a goroutine, a file descriptor or a process behind. It
// goes first in a test, so that it looks last. (Descriptors and processes are counted on Linux.)
func checkLeaks(t *testing.T) {
	t.Helper()
	before := resources()
	t.Cleanup(func() {
		if left := leftOver(before); left != "" {
			t.Errorf("left over: %s", left)
		}
	})
}
