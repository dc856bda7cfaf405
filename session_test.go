package main

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

// What is saved comes back as it was, also from a link, and over an older file. Where it cannot be written, nothing
// changes.
func TestSession(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "birds.json")
	s := &Session{Model: "m", Usage: Usage{PromptTokens: 1, CompletionTokens: 2, TotalTokens: 3}, History: []ChatMessage{
		{Role: "user", Content: TextContent("Which bird?\n<&>")},
		{Role: "assistant", Content: TextContent("I look."), ToolCalls: []ToolCall{
			{ID: "aaaaaaaa1", Name: "search", Arguments: `{"q": "bird"}`, Extra: json.RawMessage(`{"google":{"x":1}}`)},
			{ID: "aaaaaaaa2", Name: "search", Arguments: `{}`}}},
		{Role: "tool", ToolCallID: "aaaaaaaa1", Name: "search", Content: TextContent("A heron.")},
		{Role: "tool", ToolCallID: "aaaaaaaa2", Name: "search", Content: TextContent("Error: no")},
		{Role: "assistant", Content: Content(`[{"type":"thinking","thinking":[]},{"type":"text","text":"A heron."}]`)},
	}}
	assert.NilError(t, SaveSession(path, s))
	got, err := LoadSession(path)
	assert.NilError(t, err)
	assert.Assert(t, !got.Saved.IsZero())
	assert.Equal(t, s.Version, 0, "the caller's session is not changed")
	want := *s
	want.Version, want.Saved = 1, got.Saved
	assert.DeepEqual(t, *got, want)

	if runtime.GOOS != "windows" {
		info, err := os.Stat(path)
		assert.NilError(t, err)
		assert.Equal(t, info.Mode().Perm(), fs.FileMode(0o600))
		link := filepath.Join(dir, "link.json")
		assert.NilError(t, os.Symlink(path, link))
		// An empty conversation is one, too.
		assert.NilError(t, SaveSession(link, &Session{Model: "another"}))
		assert.NilError(t, os.Remove(link))
		got, err = LoadSession(path)
		assert.NilError(t, err)
		assert.Equal(t, got.Model, "another")
		assert.Equal(t, len(got.History), 0)
	}

	// An editor on Windows may add a byte order mark.
	saved, err := os.ReadFile(path)
	assert.NilError(t, err)
	assert.NilError(t, os.WriteFile(path, append([]byte("\ufeff"), saved...), 0o600))
	marked, err := LoadSession(path)
	assert.NilError(t, err)
	assert.DeepEqual(t, marked, got)

	assert.NilError(t, os.WriteFile(path, []byte("a diary"), 0o644))
	assert.ErrorContains(t, SaveSession(path, s), "save session: the existing file is not a session: ")
	text, err := os.ReadFile(path)
	assert.NilError(t, err)
	assert.Equal(t, string(text), "a diary")
	assert.ErrorIs(t, SaveSession(filepath.Join(dir, "no", "such", "folder"), s), fs.ErrNotExist)
	assert.NilError(t, os.WriteFile(path, []byte(`{"version":2,"history":"another"}`), 0o600))
	_, err = LoadSession(path)
	assert.ErrorContains(t, err, "the session has version 2")
	taken := filepath.Join(dir, "taken", "something")
	assert.NilError(t, os.MkdirAll(taken, 0o700))
	assert.ErrorContains(t, SaveSession(filepath.Dir(taken), s), "save session: ")
	if runtime.GOOS != "windows" {
		// A socket stands for all that is no file: pipes and devices, too.
		socket := filepath.Join(t.TempDir(), "socket")
		listener, err := net.Listen("unix", socket)
		assert.NilError(t, err)
		defer listener.Close()
		assert.ErrorContains(t, SaveSession(socket, s), "socket is not a regular file")
		_, err = LoadSession(socket)
		assert.ErrorContains(t, err, "socket is not a regular file")
		_, err = LockSession(t.Context(), socket)
		assert.ErrorContains(t, err, "socket is not a regular file")
		info, err := os.Lstat(socket)
		assert.NilError(t, err)
		assert.Check(t, info.Mode()&fs.ModeSocket != 0)
	}
	files, err := os.ReadDir(dir)
	assert.NilError(t, err)
	assert.Equal(t, len(files), 2, "no half of a file is left")
}

// Of questions that are asked at the same time with one session none is lost.
func TestSessionInParallel(t *testing.T) {
	checkLeaks(t)
	home := t.TempDir()
	var runs []*programRun
	for i := range 4 {
		p := newProgram(t, home, programEnvironment(home), "-q", "-session", "s", fmt.Sprintf("What is question %d?", i))
		assert.NilError(t, p.command.Start())
		runs = append(runs, p)
	}
	for _, p := range runs {
		assert.NilError(t, p.command.Wait(), p.log.String())
	}
	s, err := LoadSession(filepath.Join(home, "s"))
	assert.NilError(t, err)
	text, _ := plainJSON(s.History)
	for i := range runs {
		assert.Check(t, is.Contains(string(text), fmt.Sprintf("What is question %d?", i)))
	}
}

// A session that another process has is waited for, but not for ever.
func TestSessionWait(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	release, err := LockSession(t.Context(), path)
	assert.NilError(t, err)
	defer release()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		_, err := openSession(t.Context(), &askingSettings{session: path}, false,
			&output{settings: &outputSettings{quiet: true}})
		assert.ErrorIs(t, err, ErrSessionBusy)
		assert.Check(t, time.Since(began) >= sessionWait && time.Since(began) < sessionWait+time.Second)
	})
}

// FuzzLoadSession: whatever the text, it is an error, or a session that is the same when it is written and read again.
func FuzzLoadSession(f *testing.F) {
	for _, history := range []string{
		`[]`, `[{"role":"user","content":"a"}]`, `[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]`,
		`[{"role":"user","content":"a"},{"role":"assistant","content":null,"tool_calls":[` +
			`{"id":"call_0","function":{"name":"f","arguments":{}}}]},` +
			`{"role":"tool","tool_call_id":"call_0","name":"f","content":"c"},` +
			`{"role":"assistant","content":[{"type":"text","text":"d"}]}]`,
		`[{"role":"tool","content":"a"},{"role":"system","content":null}]`,
		`[{"role":"user","content":"\ud800"},{"role":"assistant","content":[{"type":"thinking"}]}]`,
	} {
		f.Add([]byte(`{"version":1,"saved":"2026-01-02T03:04:05Z","usage":{},"history":` + history + `}`))
	}
	path := filepath.Join(f.TempDir(), "session")
	f.Fuzz(func(t *testing.T, text []byte) {
		assert.NilError(t, os.WriteFile(path, text, 0o600))
		s, err := LoadSession(path)
		if err != nil {
			return
		}
		want, err := plainJSON(s)
		assert.NilError(t, err)
		// WriteFile is quicker than SaveSession, which waits for the disk.
		assert.NilError(t, os.WriteFile(path, want, 0o600))
		got, err := LoadSession(path)
		assert.NilError(t, err)
		have, _ := plainJSON(got)
		assert.Equal(t, string(have), string(want))
		_, err = (&Mistral{Model: "m"}).request(&ChatRequest{Messages: s.History}, formWhole)
		assert.NilError(t, err)
	})
}
