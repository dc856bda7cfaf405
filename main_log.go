// main_log.go - the files with what servers write to stderr, and what they print in vain to stdout.
// SPDX-License-Identifier: 0BSD

package main

import (
	"bytes"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// maxLog bounds a server's log, in bytes: a full one begins anew.
const maxLog = 5 << 20

// serverLog is the file with the stderr of a server. It also has the stderr of earlier runs, whose
// servers may still be running.
//
// A server may print a token or a key, and a log stays on the disk. So the secrets are taken out
// before the log: servers.prepare puts Secrets.Writer between the stderr and this file, and nothing
// else writes to it. A serverLog itself masks nothing.
//
// The goroutine that drains stderr calls Write. Any goroutine may read written.
type serverLog struct {
	file    *os.File
	written atomic.Int64 // bytes, in this run

	lost func(error) // if set, is called the first time that a write fails, as on a full disk
	once sync.Once   // guards the call of lost

	named sync.Once // guards the note about a failed call; see toolbox.Call
}

// openServerLog opens a log, which only its owner can read. It makes the folder for it.
func openServerLog(path string) (*serverLog, error) {
	file, err := OpenKept(path)
	if err != nil {
		return nil, err
	}
	return &serverLog{file: file}, nil
}

// Write appends a part of the stderr. A line with the time and the process of this program goes
// before the first part.
func (l *serverLog) Write(text []byte) (int, error) {
	n := int64(len(text))
	isFirst := l.written.Add(n) == n
	if isFirst {
		began := time.Now().Format(time.RFC3339)
		text = append(fmt.Appendf(nil, "--- %s, process %d\n", began, os.Getpid()), text...)
	}
	info, err := l.file.Stat()
	if err == nil && info.Size()+int64(len(text)) > maxLog {
		// On Windows a file that is opened for appending cannot truncate itself.
		_ = os.Truncate(l.file.Name(), 0)
	}
	size, err := l.file.Write(text)
	if err != nil && l.lost != nil {
		l.once.Do(func() { l.lost(err) })
	}
	return size, err
}

// logSize returns how much a server has written to its log in this run, 0 if it has none.
func (s *servers) logSize(server string) int64 {
	log := s.logs[server]
	if log == nil {
		return 0
	}
	return log.written.Load()
}

// wroteSince returns where to read what a server has written since its log had a size, "" if it has
// written nothing. Many a server hides the reason of a failed call from its client, and writes it
// to stderr.
func (s *servers) wroteSince(server string, size int64) string {
	if s.logSize(server) == size {
		return ""
	}
	return "what the server wrote meanwhile is in " + s.logs[server].file.Name()
}

// strayLines are the lines of a server's stdout that were no messages. The connection goes on
// without them, so that the server's author may never see what was printed there.
type strayLines struct {
	mu    sync.Mutex // guards the following
	count int
	first string
}

// add adds a line that was skipped. A whole message may be a late answer, and is no stray.
func (l *strayLines) add(line []byte) {
	if bytes.Contains(line, []byte(`"jsonrpc"`)) && validJSON(line) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.count == 0 {
		l.first = oneLine(line)
	}
	l.count++
}

// describe returns what the list of servers says of the lines, "" if there are none.
func (l *strayLines) describe() string {
	if l == nil {
		return ""
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.count == 0 {
		return ""
	}
	return fmt.Sprintf("; on its stdout, which is for MCP alone, it printed %s, the first: %q: "+
		"print to stderr", Plural(l.count, "other line"), l.first)
}
