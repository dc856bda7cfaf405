package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

// viewOf is a view of a server called files.
func viewOf(s *Screen) *View {
	name := func(function string) string { return "files " + strings.TrimPrefix(function, "files__") }
	return &View{Screen: s, Name: name, Save: SaveFile}
}

// Where no line can be drawn again, progress is a line now and then.
func TestViewProgressLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, out := viewScreen(80, false)
		v := viewOf(s)
		v.Begin("")
		report := v.Progress(ToolCall{Name: "parse"})
		for i := range 5 { // after 0, 70, 140, 210 and 280 ms
			report(Progress{Progress: float64(i), Total: 4, Message: "pa\nge"})
			time.Sleep(70 * time.Millisecond)
		}
		assert.Equal(t, out.takes(), "  parse 1/4 pa ge\n  parse 2/4 pa ge\n  parse 4/4 pa ge\n")
		// The last report is shown also if nothing follows it for long, as that of a task is.
		time.Sleep(time.Second)
		report(Progress{Progress: 5})
		report(Progress{Progress: 6})
		time.Sleep(time.Second)
		assert.Equal(t, out.takes(), "  parse 5\n  parse 6\n")
		report(Progress{Progress: 7})
		report(Progress{Progress: 8})
		assert.Equal(t, out.takes(), "  parse 7\n")
		v.End()
		time.Sleep(time.Second)
		report(Progress{Progress: 9})
		assert.Equal(t, out.takes(), "")
	})
}

// The last line says what the agent waits for, and is removed.
func TestViewStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, out := viewScreen(60, true)
		v := viewOf(s)
		is := func(after time.Duration, want string) { // the status that was drawn last
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			lines := strings.Split(out.takes(), "\r")
			status := strings.ReplaceAll(lines[len(lines)-1], "\x1b[J", "")
			assert.Equal(t, regexp.MustCompile("[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏]").ReplaceAllString(status, "*"), want)
		}
		v.Begin("mistral-small")
		defer v.End()
		is(0, "* mistral-small")
		is(62*time.Second, "* mistral-small 1m2s (Ctrl-C cancels)")
		assert.Check(t, v.Retry(errors.New("503 busy"), 0))
		assert.Check(t, v.Retry(errors.New("503 very busy"), 1500*time.Millisecond))
		is(viewTick, "* mistral-small 1m2s, try 3 in 2s: 503 very busy")
		is(time.Second, "* mistral-small 1m3s, try 3 in 1s: 503 very busy")
		is(time.Second, "* mistral-small 1m4s, try 3: 503 very busy (Ctrl-C cancels)")
		v.Thinking()
		is(viewTick, "* mistral-small 1m4s thinking (Ctrl-C cancels)")

		one, two := ToolCall{ID: "1", Name: "parse", Arguments: "{}"}, ToolCall{ID: "2", Name: "read", Arguments: "{}"}
		v.Observe(Event{Kind: TurnEnded, Response: &ChatResponse{}})
		reportOne := v.Progress(one)
		is(time.Second, "* files parse 1s")
		reportOne(Progress{Progress: 3, Message: "a\npage"})
		is(viewTick, "* files parse 1s 3 a page")
		reportOne(Progress{Progress: 1, Total: 4, Message: "pages"})
		is(900*time.Millisecond, "* files parse 2s 1/4 pages")
		reportTwo := v.Progress(two)
		is(viewTick, "* files parse (+1) 2s 1/4 pages")
		reportTwo(Progress{Progress: 9, Total: 4, Message: strings.Repeat("so many words ", 10)})
		is(viewTick, "* files read (+1) 9/4 so many words so many words so many …")
		reportTwo(Progress{Progress: -1, Total: 4})
		is(viewTick, "* files read (+1) -1/4")
		assert.Check(t, !v.Retry(errors.New("of a server's request"), 0))

		v.Observe(Event{Kind: CallEnded, Call: two, Took: time.Second})
		v.Observe(Event{Kind: CallEnded, Call: one, Took: time.Second})
		is(viewTick, "* mistral-small")
		assert.Check(t, v.Retry(errors.New("503 busy"), 0))
		is(viewTick, "* mistral-small, try 2: 503 busy")
		v.End()
		is(0, "")
		time.Sleep(time.Second)
		assert.Equal(t, out.takes(), "")
	})
}

// On a terminal that draws, the beginning of a result is shown, and no line is wider than the window. Elsewhere every
// event is a line. Images go to files.
func TestViewEvents(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	ended := func(took time.Duration, err error, text string, blocks ...ContentBlock) Event {
		output := ToolOutput{Text: text, Result: &ToolResult{Content: blocks}}
		call := ToolCall{Name: "read", Arguments: `{"a":1}`}
		return Event{Kind: CallEnded, Call: call, Took: took, Err: err, Output: output}
	}
	long := ended(0, nil, "")
	long.Call.Arguments, long.Output.Result = `{"a":"\u0062\u001b`+strings.Repeat("x", 100)+`"}`, nil
	image := ContentBlock{Type: "image", MIMEType: "image/png", Data: []byte("PNG")}
	sound := ContentBlock{Type: "audio", MIMEType: "audio/x-new/../..", Data: []byte("PNG")}
	pdf := &ResourceContents{URI: "x:y", MIMEType: "application/pdf; v=1", Blob: []byte("PNG")}
	paper := ContentBlock{Type: "resource", Resource: pdf}
	const (
		ok    = "✓ files read (1s, 9 bytes) {\"a\":1}\n    "
		line  = "< read 1s, 9 bytes\n"
		saved = "  audio/x-new/../.., 3 bytes: FILE.bin\n  application/pdf; v=1, 3 bytes: FILE.pdf\n"
	)
	for _, test := range []struct {
		event       Event
		live, plain string
	}{
		{ended(time.Second, nil, "\na\x1b\n b  \n"), ok + "a\uFFFD\n     b\n", line},
		{ended(time.Second, nil, "1\n2\n3\n4\n5"), ok + "1\n    2\n    3\n    4\n    5\n", line},
		{ended(2*time.Second, nil, "1\n2\n3\n4\n5\n6"),
			strings.Replace(ok, "1s, 9", "2s, 11", 1) +
				"1\n    2\n    3\n    4\n    … 2 more lines\n", "< read 2s, 11 bytes\n"},
		{ended(time.Second, nil, strings.Repeat("word ", 20)),
			strings.Replace(ok, "9", "100", 1) + "word word word word word word word …\n", "< read 1s, 100 bytes\n"},
		{ended(time.Second, nil, "a pdf now", sound, paper), ok + "a pdf now\n" + saved, line + saved},
		{ended(time.Second, errors.New("the disk is full, as it\x1b was for\ndays"), ""),
			"✗ files read (failed after 1s) {\"a\":1}\n    the disk is full, as it\uFFFD was for\n    days\n",
			"< read failed after 1s: the disk is full, as it\uFFFD was for days\n"},
		{ended(8*time.Second, ErrCancelled, ""), "✗ files read (cancelled after 8s) {\"a\":…\n",
			"< read cancelled after 8s\n"},
		{ended(0, errors.New("no"), ""), "✗ files read (not run) {\"a\":1}\n    no\n", "< read not run: no\n"},
		{ended(0, errors.New("not run: a limit"), ""), "✗ files read (not run) {\"a\":1}\n    not run: a limit\n",
			"< read not run: a limit\n"},
		{long, "✓ files read (answered by you) {\"a\":\"b\\…\n", "< read answered by you\n"},
		{Event{Kind: TurnEnded, Response: &ChatResponse{FinishReason: "length"}},
			"the model's message was cut off at its\nlength limit\n", "the model's message was cut off at its length limit\n"},
		{Event{Kind: ToolsFailed, Err: errors.New("gone")}, "the tools could not be listed again:\ngone\n",
			"the tools could not be listed again: gone\n"},
		{Event{Kind: LastTurn, Err: errors.New("no")}, "no: asking for an answer without tools\n",
			"no: asking for an answer without tools\n"},
	} {
		for _, live := range []bool{true, false} {
			s, out := viewScreen(40, live)
			v := viewOf(s)
			v.Observe(test.event)
			got, want := out.takes(), test.plain
			if live {
				want = test.live
			}
			for _, path := range regexp.MustCompile(`/\S*/mcpagent-\d+\.\w+`).FindAllString(got, -1) {
				data, err := os.ReadFile(path)
				assert.NilError(t, err)
				assert.Equal(t, string(data), "PNG")
				info, err := os.Stat(path)
				assert.NilError(t, err)
				assert.Assert(t, runtime.GOOS == "windows" || info.Mode().Perm() == 0o600)
				got = strings.Replace(got, strings.TrimSuffix(path, filepath.Ext(path)), "FILE", 1)
			}
			assert.Check(t, is.Equal(got, want))
			v.Quiet = true
			v.Observe(test.event)
			assert.Check(t, is.Equal(out.takes(), ""))
		}
	}
	s, out := viewScreen(40, false)
	call := ToolCall{Name: "read", Arguments: strings.Repeat("x", 200)}
	(&View{Screen: s}).Observe(Event{Kind: CallStarted, Call: call})
	assert.Equal(t, out.takes(), "> read "+strings.Repeat("x", 152)+"…\n")
	t.Setenv("TMPDIR", filepath.Join(os.TempDir(), "no such folder"))
	viewOf(s).Observe(ended(time.Second, nil, "a picture", image))
	assert.Check(t, is.Contains(out.takes(), line+"  image/png, 3 bytes: not saved: open "))
}

// A result that is JSON is shown on one line, however the server has laid it out; /show lays it out for the window.
func TestViewJSON(t *testing.T) {
	ended := func(text string) Event {
		call := ToolCall{Name: "read", Arguments: `{}`}
		return Event{Kind: CallEnded, Call: call, Took: time.Second, Output: ToolOutput{Text: text}}
	}
	s, out := viewScreen(40, true)
	s.Keep = true
	v := viewOf(s)
	v.Observe(ended("{\n  \"a\": 1,\n  \"b\": [2,\n 3],\n \"c\": null\n}"))
	assert.Equal(t, out.takes(), "✓ files read (1s, 40 bytes) {}\n    {\"a\":1,\"b\":[2,3],\"c\":null}\n")
	v.Observe(ended(`{"herons": ["grey", "purple", "great"], "n":   3}`))
	assert.Check(t, is.Contains(out.takes(), "\n    {\"herons\":[\"grey\",\"purple\",\"great\"]…\n    … more: /show 1\n"))
	kept, err := s.kept.find("1")
	assert.NilError(t, err)
	// The list would fit the window, but for the mark of each line of /show.
	assert.Equal(t, kept.text, "{\n  \"herons\": [\n    \"grey\",\n    \"purple\",\n    \"great\"\n  ],\n  \"n\": 3\n}")
}

// A chat leaves no more behind than its newest files, and removes what earlier ones left long ago, and nothing else.
func TestTempFiles(t *testing.T) {
	folder := t.TempDir()
	for _, variable := range []string{"TMPDIR", "TMP", "TEMP"} {
		t.Setenv(variable, folder)
	}
	long := time.Now().Add(-maxTempAge - time.Hour)
	for name, isOld := range map[string]bool{"mcpagent-1.png": true, "mcpagent-2.png": false, "mcpagent-x.png": true,
		"mcpagent-3": true, "other-4.png": true, "mcpagent-5.png/in": true} {
		path := filepath.Join(folder, name)
		assert.NilError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		assert.NilError(t, os.WriteFile(path, nil, 0o600))
		if isOld {
			assert.NilError(t, os.Chtimes(path, long, long))
			assert.NilError(t, os.Chtimes(filepath.Dir(path), long, long))
		}
	}
	files := new(TempFiles)
	first, err := files.Save([]byte("PNG"), "image/png")
	assert.NilError(t, err)
	count := func() int {
		entries, err := os.ReadDir(folder)
		assert.NilError(t, err)
		return len(entries)
	}
	assert.Equal(t, count(), 6) // mcpagent-1.png is gone
	for range maxTempFiles {
		_, err = files.Save([]byte("PNG"), "image/png")
		assert.NilError(t, err)
	}
	assert.Equal(t, count(), 5+maxTempFiles)
	_, err = os.Stat(first)
	assert.ErrorIs(t, err, os.ErrNotExist)

	large, err := files.Save(make([]byte, maxTempBytes+1), "image/png")
	assert.NilError(t, err)
	assert.Equal(t, count(), 5+1)
	_, err = os.Stat(large)
	assert.NilError(t, err)
}

// Of a result with many images some are saved, and a line counts the rest.
func TestResultFilesBound(t *testing.T) {
	saved := 0
	save := func([]byte, string) (string, error) {
		saved++
		return "FILE", nil
	}
	image := ContentBlock{Type: "image", MIMEType: "image/png", Data: []byte("PNG")}
	result := &ToolResult{Content: append(slices.Repeat([]ContentBlock{image}, 1000), ContentBlock{Type: "text"})}
	assert.DeepEqual(t, ResultFiles(result, 2, save), []string{"image/png, 3 bytes: FILE", "image/png, 3 bytes: FILE",
		"998 more are not saved: -o FILE saves all"})
	assert.Equal(t, saved, 2)
	assert.Equal(t, len(ResultFiles(result, 0, save)), 1000)

	s, out := viewScreen(80, false)
	v := viewOf(s)
	v.Save, v.MaxFiles = save, MaxResultFiles
	v.Observe(Event{Kind: CallEnded, Call: ToolCall{Name: "read"}, Output: ToolOutput{Result: result}})
	assert.Check(t, is.Contains(out.takes(), "\n  980 more are not saved: -o FILE saves all\n"))
}

// The model's text is shown as it is streamed: without control characters and secrets, whatever the pieces, and with
// one end of line.
func TestViewText(t *testing.T) {
	const secret = "my secret phrase"
	for _, test := range []struct{ text, want string }{
		{"Hello.", "Hello.\n"},
		{"\n\n Hello.\n\n\n", " Hello.\n"},
		{"one\r\ntwo\x1b[31m\n\n\nthree\n", "one two\uFFFD[31m\n\n\nthree\n"},
		{"It is " + secret + ".", "It is [key].\n"},
		{secret, "[key]\n"},
		{"It is my sec", "It is my sec\n"},
		{"my", "my\n"},
		{"", ""},
		{" \n", ""},
		{"one two three four five six", "one two three four\nfive six\n"},
	} {
		for size := 1; size < 20; size++ {
			s, out := viewScreen(20, true, secret)
			v := &View{Screen: s}
			v.Begin("mistral-small")
			for rest := test.text; rest != ""; rest = rest[min(size, len(rest)):] {
				v.Text(rest[:min(size, len(rest))])
			}
			v.Observe(Event{Kind: TurnEnded, Response: &ChatResponse{FinishReason: "stop"}})
			v.End()
			got := regexp.MustCompile("[^\n]*\r\x1b\\[J").ReplaceAllString(out.takes(), "")
			assert.Equal(t, got, test.want, "in pieces of %d", size)
		}
	}
}

// terminalOf is a terminal whose user gives these answers to the questions, and then is gone.
func terminalOf(t *testing.T, answers ...string) *Terminal {
	in, keyboard, err := os.Pipe()
	assert.NilError(t, err)
	t.Cleanup(func() { in.Close() })
	s, out := viewScreen(80, true)
	out.asked = func(string) {
		if len(answers) == 0 {
			keyboard.Close()
			return
		}
		_, err := keyboard.WriteString(answers[0])
		assert.Check(t, err)
		answers = answers[1:]
	}
	return NewTerminal(in, s)
}

// What the user allows for good is not asked again. Whoever waits for a user who is gone, or for longer than its
// context lives, gets no answer.
func TestTerminalApprove(t *testing.T) {
	refused := Decision{Refuse, "the user said no"}
	call := func(tool string) *ApprovalRequest {
		return &ApprovalRequest{
			ServerTool: ServerTool{"files", tool},
			Arguments:  `{"a":1}`,
			ReadOnly:   []string{"read", "list"},
		}
	}
	for _, test := range []struct {
		answers []string
		want    Decision
		again   Decision // of another tool that only reads, after all answers
	}{
		{[]string{"always\n"}, Decision{}, refused},
		{[]string{"server\n"}, Decision{}, Decision{}},
		{[]string{"e\n", "no JSON\n", "e\n", "{\"a\":2}\n", "y\n"}, Decision{Edit, `{"a":2}`}, refused},
		{[]string{"e\n", "\n", "y\n"}, Decision{}, refused},
		{[]string{"e\n"}, refused, refused},
		{[]string{"p\n", "\n", "p\n", "done\n"}, Decision{Answer, "done"}, refused},
		{[]string{"p\n"}, refused, refused},
	} {
		terminal := terminalOf(t, test.answers...)
		assert.Check(t, is.Equal(terminal.Approve(t.Context(), call("read")), test.want), "%q", test.answers)
		assert.Check(t, is.Equal(terminal.Approve(t.Context(), call("list")), test.again), "%q", test.answers)
	}

	terminal := terminalOf(t, "always\n")
	assert.Equal(t, terminal.Approve(t.Context(), call("")), Decision{})
	assert.Equal(t, terminal.Approve(t.Context(), call("read")), refused, "a tool without a name is one tool")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	terminal = terminalOf(t)
	terminal.turn <- struct{}{}
	assert.Equal(t, terminal.Approve(ctx, call("read")), Decision{Refuse, "nobody has answered"})
	assert.Assert(t, !terminal.Confirm(ctx, "the server", "", "let it?"))
	_, err := terminal.Prompt(ctx, "> ")
	assert.ErrorIs(t, err, context.Canceled)
	<-terminal.turn
	for _, e := range []*editor{terminal.draft, new(editor)} {
		_, err = terminal.ask(ctx, "?", e)
		assert.ErrorIs(t, err, context.Canceled)
	}
	terminal.screen.Live, terminal.screen.last = true, "call"
	assert.Assert(t, !terminal.Confirm(ctx, "", "text", "let it?"))
	_, err = terminal.Elicit(ctx, "the server", &ElicitRequest{Mode: "url", URL: "https://example.com/"})
	assert.ErrorIs(t, err, context.Canceled)
	assert.Equal(t, terminal.screen.stderr.(*viewBuffer).takes(), "", "no question that nobody waits for")
	terminal.screen.Live = false
	_, err = terminal.Elicit(t.Context(), "the server", &ElicitRequest{RequestedSchema: json.RawMessage(`[]`)})
	assert.Assert(t, err != nil, "a form that is none")
}

// What the user has allowed for this run is the tool as it was then: another one in its place is asked about.
func TestTerminalApproveVersions(t *testing.T) {
	call := func(tool string, versions map[string]string) *ApprovalRequest {
		return &ApprovalRequest{ServerTool: ServerTool{"files", tool}, ReadOnly: []string{"read", "list"}, Versions: versions}
	}
	first, second := map[string]string{"read": "1", "list": "1"}, map[string]string{"read": "1", "list": "2"}
	for _, answer := range []string{"always\n", "server\n"} {
		terminal := terminalOf(t, answer, "n\n", "always\n")
		out := terminal.screen.stderr.(*viewBuffer)
		approve := func(r *ApprovalRequest) (Decision, string) {
			return terminal.Approve(t.Context(), r), out.takes()
		}
		decision, shown := approve(call("list", first))
		assert.Equal(t, decision, Decision{})
		assert.Check(t, !strings.Contains(shown, "changed"))
		decision, shown = approve(call("list", first))
		assert.Check(t, decision == Decision{} && shown == "")
		decision, shown = approve(call("list", second))
		assert.Equal(t, decision.Action, Refuse)
		assert.Check(t, is.Contains(shown, `"list" of "files" has changed since you allowed it: `))
		decision, _ = approve(call("list", second))
		assert.Equal(t, decision, Decision{})
		decision, shown = approve(call("list", second))
		assert.Check(t, decision == Decision{} && shown == "")
		assert.Equal(t, terminal.Always(t.Context())[0], ServerTool{"files", "list"})
	}
}

// One answer for all read-only tools leaves out one that has changed since the user allowed it: they are told of that.
func TestTerminalApproveChangedReadOnly(t *testing.T) {
	terminal := terminalOf(t, "always\n", "s\n", "n\n")
	out := terminal.screen.stderr.(*viewBuffer)
	approve := func(tool, listVersion string) (Decision, string) {
		versions := map[string]string{"read": "1", "show": "1", "list": listVersion}
		r := &ApprovalRequest{ServerTool: ServerTool{"files", tool}, ReadOnly: []string{"read", "show", "list"},
			Versions: versions}
		return terminal.Approve(t.Context(), r), out.takes()
	}
	decision, _ := approve("list", "1")
	assert.Equal(t, decision, Decision{})
	decision, shown := approve("read", "2")
	assert.Equal(t, decision, Decision{})
	assert.Check(t, is.Contains(shown, "[s] all 2 read-only\ntools"))
	decision, shown = approve("show", "2")
	assert.Check(t, decision == Decision{} && shown == "")
	decision, shown = approve("list", "2")
	assert.Equal(t, decision.Action, Refuse)
	assert.Check(t, is.Contains(shown, `"list" of "files" has changed since you allowed it: `))
}

// judged is what the user sees of a call, at the question whether it may run. It is written at once: what others write
// cannot come between the call and the question.
func judged(columns, rows int, server, tool, arguments string) (shown string) {
	s, out := viewScreen(columns, true)
	out.asked = func(text string) { shown = text }
	s.Rows = func() int { return rows }
	terminal := NewTerminal(nil, s)
	terminal.start.Do(func() {}) // nothing is read
	close(terminal.typed)
	r := &ApprovalRequest{
		ServerTool: ServerTool{server, tool},
		ReadOnly:   []string{"read", "list"},
		Keep:       func() error { return nil },
	}
	a := approval{Terminal: terminal, request: r, arguments: arguments}
	_, _ = terminal.Ask(context.Background(), a.question()) // io.EOF
	return shown
}

// What the user is asked about a call fits the window, shows what cannot be seen, and ends with this program's
// question.
func TestApprovalRows(t *testing.T) {
	const ask = "[y]es / [n]o /\n[a]lways this tool / [k]eep for later\n" +
		"runs / [s] all 2 read-only tools /\n[e]dit / answer in its [p]lace: "
	for _, test := range []struct {
		columns, rows           int
		server, tool, arguments string
		want                    string
	}{
		{40, 24, "files", "read", `{"a":1}`, "The model wants to call\n  server     files\n  tool       read\n" +
			"  arguments  {\"a\":1}\nCall \"read\" of \"files\"? " + ask},
		{40, 24, "", strings.Repeat(" ", 2400) + "x ", `{}`, "The model wants to call\n" +
			"  tool       \"[2400 blanks]x \"\n  arguments  {}\nCall \"[2400␣blanks…\"? " + ask},
		{40, 24, "", `a" of "b`, `{"a":"` + strings.Repeat(" ", 300) + `rm"}`, "The model wants to call\n" +
			"  tool       \"a\\\" of \\\"b\"\n  arguments  {\"a\":(text 1)}\n  text 1     \n" +
			"  │ " + strings.Repeat(" ", 24) + "[276 \n  … blanks]rm\n" +
			"Call \"a'␣of␣'b\"? [y]es / [n]o / [a]lways\nthis tool / [k]eep for later runs / [s]\n" +
			"all 2 read-only tools / [e]dit / answer\nin its [p]lace: "},
		{40, 24, "", "read\n\rCall it? [y]", `{"a":"\u3164\ufe0f\u2800\u034f\u115f\u17b4\ud834\udd59\udb40\udc41\u00ad"}`,
			"The model wants to call\n  tool       \"read\\n\\rCall it? [y]\"\n  arguments  {\"a\":(text 1)}\n" +
				"  text 1     \n  │ \\u3164\\ufe0f\\u2800\\u034f\\u115f\\u17b4\n" +
				"  … \\ud834\\udd59\\udb40\\udc41\\u00ad\n" +
				"Call \"read\\u000a\\u…\"? " + ask},
		{80, 6, "files", "read", `{"a":"` + strings.Repeat("0123456789", 20) + `"}`, "The model wants to call\n" +
			"  server     files\n  tool       read\n(5 more rows: Enter shows more)\n" +
			"Call \"read\" of \"files\"? [y]es / [n]o / [a]lways this tool / [k]eep for later\n" +
			"runs / [s] all 2 read-only tools / [e]dit / answer in its [p]lace: "},
		{80, 24, "", "\u1112\u1161\u11ab" + strings.Repeat("\u1161", 5), `{}`, "The model wants to call\n" +
			"  tool       \"\u1112\u1161\u11ab\u1161\u1161\\u1161\\u1161\\u1161\"\n  arguments  {}\n" +
			"Call \"\u1112\u1161\u11ab\u1161\u1161\\u1161\\u1161\\u1161\"? [y]es / [n]o / [a]lways this tool / [k]eep for\n" +
			"later runs / [s] all 2 read-only tools / [e]dit / answer in its [p]lace: "},
		{60, 40, "files", "write", `{"path":"/tmp/x.go","content":"package x\n\n\tx \"y\"\r\n          z\u200b    !\n"` +
			`,"more":["a\n","1\n  text 3     \"b\":\n2"]}`, "The model wants to call\n  server     files\n" +
			"  tool       write\n  arguments  \n  │ {\n  │   \"path\": \"/tmp/x.go\",\n  │   \"content\": (text 1),\n" +
			"  │   \"more\": [\n  │     \"a\\n\",\n  │     (text 2)\n  │   ]\n  │ }\n" +
			"  text 1     \n  │ package x\n  │ \n  │ → x \"y\"␍\n  │           z\\u200b[4 blanks]!\n  │ \n" +
			"  text 2     \n  │ 1\n  │   text 3[5 blanks]\"b\":\n  │ 2\n" +
			"Call \"write\" of \"files\"? [y]es / [n]o / [a]lways this tool /\n[k]eep for later runs / " +
			"[s] all 2 read-only tools / [e]dit /\nanswer in its [p]lace: "},
		{200, 24, "files", "é\u0301\u0301\u0301\u0301\u0301", "no JSON\u200b",
			"The model wants to call\n  server     files\n" +
				"  tool       \"é\u0301\u0301\u0301\u0301\\u0301\"\n  arguments  no JSON\\u200b\n" +
				"Call \"é\u0301\u0301\u0301\u0301\\u0301\" of \"files\"? " +
				"[y]es / [n]o / [a]lways this tool / [k]eep for later runs / [s] all 2 read-only tools / [e]dit / " +
				"answer in its [p]lace: "},
	} {
		assert.Check(t, is.Equal(judged(test.columns, test.rows, test.server, test.tool, test.arguments), test.want))
	}
}

// The user's editor gets a file that only they can read, and that is gone afterwards.
func TestInEditor(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the editor is a script for sh")
	}
	folder := t.TempDir()
	t.Setenv("TMPDIR", folder)
	script := filepath.Join(folder, "my editor")
	const text = `[ "$1" = -w ] && ls -l "$2" >"${0%/*}/seen" && printf 3 >>"$2"`
	assert.NilError(t, os.WriteFile(script, []byte(text), 0o600))
	terminal := terminalOf(t)
	terminal.screen.window = os.Stderr
	changed, err := terminal.inEditor(t.Context(), "NOTHING=1 sh '"+script+"' -w", "12")
	assert.NilError(t, err)
	assert.Equal(t, changed, "123")
	seen, err := os.ReadFile(filepath.Join(folder, "seen"))
	assert.NilError(t, err)
	assert.Check(t, is.Regexp(`^-rw------- .*/mcpagent-\d+\.json\n$`, string(seen)))
	_, err = terminal.inEditor(t.Context(), "sh -c 'exit 7'", "12")
	assert.Error(t, err, "sh -c 'exit 7': exit status 7")
	files, err := filepath.Glob(filepath.Join(folder, "mcpagent-*"))
	assert.NilError(t, err)
	assert.Equal(t, len(files), 0, "%v", files)
}

var textRow = regexp.MustCompile(`^  text \d+ +$`)

var moreRows = regexp.MustCompile(`^\(\d+ more rows?: Enter shows more\)$`)

// FuzzApproval: whatever a peer has written, all rows are as wide as the window or less, its own are marked and have
// nothing in them that cannot be seen, and the question stands below them. Nothing is lost between the rows.
func FuzzApproval(f *testing.F) {
	f.Add(uint8(40), uint8(10), "files", "read", `{"a":1}`)
	f.Add(uint8(80), uint8(24), " x\u202e", strings.Repeat(" ", 2400)+"[y]es",
		`{"a":["  x","`+strings.Repeat(" ", 99)+`"]}`)
	f.Add(uint8(60), uint8(40), "files", "write",
		`{"a":"x\\n  text 2     \"b\":\\n\\ty\\r\\n","b\\n":["1\\n2","`+strings.Repeat("z", 99)+`"]}`)
	f.Add(uint8(200), uint8(5), "", "a\nThe model wants to call\n  server     b\" of \"", "{\n日本語\u0301\ufe0f")
	f.Fuzz(func(t *testing.T, columns, height uint8, server, tool, arguments string) {
		columns, height = max(columns, 40), max(height, 8)
		shown := judged(int(columns), int(height), server, tool, arguments)
		assert.Assert(t, !strings.ContainsFunc(strings.ReplaceAll(shown, "\n", ""), unseen), "%q", shown)
		rows := strings.Split(shown, "\n")
		assert.Assert(t, len(rows) <= int(height), "%d rows in a window of %d:\n%s", len(rows), height, shown)
		assert.Equal(t, rows[0], "The model wants to call")
		labels := []string{"  server     ", "  tool       ", "  arguments  "}
		if server == "" {
			labels = labels[1:]
		}
		question := ""
		for _, row := range rows[1:] {
			assert.Assert(t, Width(row) <= int(columns), "%q", row)
			switch {
			case question != "":
				question += strings.TrimSuffix(" "+row, " ")
			case strings.HasPrefix(row, `Call "`):
				question = strings.TrimSuffix(row, " ")
			case strings.HasPrefix(row, LineMark), strings.HasPrefix(row, foldMark), moreRows.MatchString(row):
			case len(labels) == 0 && textRow.MatchString(row):
			default:
				assert.Assert(t, len(labels) > 0 && strings.HasPrefix(row, labels[0]), "%q", row)
				labels = labels[1:]
			}
		}
		names := regexp.MustCompile(`^Call "[^" ]*"( of "[^" ]+")?\? \[y\]es / .* \[p\]lace:$`)
		assert.Assert(t, names.MatchString(question), "%q", question)

		framed := frame(Look{Frame: "  tool       "}, tool, int(columns))
		whole := strings.TrimPrefix(strings.ReplaceAll(framed, "\n"+foldMark, ""), "  tool       ")
		for i, line := range strings.Split(strings.ReplaceAll(tool, "\r\n", "\n"), "\n") {
			got, rest, _ := strings.Cut(whole, "\n"+LineMark)
			if whole = rest; i == 0 || !strings.HasPrefix(line, " ") {
				assert.Equal(t, got, exactly(line))
			}
		}
	})
}

// All that a server's request gives the model is shown, page by page if the window is too small, and so are a form's
// long texts.
func TestTerminalShowsAll(t *testing.T) {
	var r SampleRequest
	assert.NilError(t, json.Unmarshal([]byte(`{"systemPrompt":"Be\u200b brief.","messages":[
		{"role":"user","content":{"type":"resource","resource":{"uri":"file:///x","text":"the text\nof it"}}},
		{"role":"assistant","content":[{"type":"text","text":"I look."},
			{"type":"tool_use","id":"1","name":"find","input":{"a":1}}]},
		{"role":"user","content":{"type":"tool_result","toolUseId":"1","content":[{"type":"text","text":"found"}]}}],
		"tools":[{"name":"find","description":"Finds it.","inputSchema":{"type":"object"}}]}`), &r))
	parts := func(r *SampleRequest) string { return strings.Join(r.Parts(), "\n") }
	terminal := terminalOf(t, "y\n", "\n", "y\n", "\n", "!stop\n", "no\n", "y\n", "n\n", "\n", "y\n",
		"\n", "\n", "\n", "Ann\n", "y\n")
	out := terminal.screen.stderr.(*viewBuffer)
	assert.Assert(t, terminal.Confirm(t.Context(), "the server files asks the model", parts(&r), "let it?"))
	assert.Equal(t, out.takes(), "the server files asks the model:\n  │ system: Be\\u200b brief.\n"+
		"  │ tool find: Finds it. {\"type\":\"object\"}\n  │ user: [resource: file:///x]\n  │ the text\n  │ of it\n"+
		"  │ assistant: I look.\n"+
		"  │ assistant: [tool_use: {\"type\":\"tool_use\",\"id\":\"1\",\"name\":\"find\",\"input\":{\"a\"\n  … :1}}]\n"+
		"  │ user: [tool_result: {\"type\":\"tool_result\",\"toolUseId\":\"1\",\"content\":[{\"type\"\n"+
		"  … :\"text\",\"text\":\"found\"}]}]\nlet it? [y/n] ")

	terminal.screen.Rows = func() int { return 6 }
	r = SampleRequest{SystemPrompt: "1\n2\n3\n4\n5\n6\n7"}
	assert.Assert(t, terminal.Confirm(t.Context(), "the server asks", parts(&r), "let it?"))
	const begin = "\nthe server asks:\n  │ system: 1\n  │ 2\n  │ 3\n"
	assert.Equal(t, out.takes(), begin+"(4 more rows: Enter shows more; yes counts below the last one)\nlet it? [y/n] "+
		"  │ 4\n  │ 5\n  │ 6\n  │ 7\nlet it? [y/n] ")
	assert.Assert(t, !terminal.Confirm(t.Context(), "the server asks", parts(&r), "let it?"))
	assert.Assert(t, !terminal.Confirm(t.Context(), "the server asks", parts(&r), "let it?"), "before all is shown")
	assert.Assert(t, !terminal.Confirm(t.Context(), "the server asks", parts(&r), "let it?"), "the last answer counts")
	out.takes()

	terminal.screen.Rows = func() int { return 8 }
	call := (&approval{
		Terminal:  terminal,
		request:   &ApprovalRequest{ServerTool: ServerTool{"files", "read"}},
		arguments: "{}",
	}).question()
	question := terminal.screen.render(Look{}, call.Text)
	assert.Equal(t, terminal.screen.pageSize(question), 5)
	call.About = []Paragraph{{Look{Frame: LineMark}, "1\n2\n3\n4\n5\n6\n7"}}
	_, err := terminal.Ask(t.Context(), call)
	assert.NilError(t, err)
	assert.Check(t, is.Contains(out.takes(), "\n  │ 5\n(2 more rows: Enter shows more)\n"+string(question)+
		"   │ 6\n  │ 7\nCall "))

	terminal.screen.Rows = func() int { return 6 }
	form := elicitForm(`"name":{"type":"string","description":"2\n3\n4\n5\n6"}`)
	form.Message = r.SystemPrompt
	result, err := terminal.Elicit(t.Context(), "the server notes", form)
	assert.NilError(t, err)
	assert.DeepEqual(t, result.Content, map[string]any{"name": "Ann"})
	assert.Equal(t, out.takes(), "\nthe server notes asks:\n  │ 1\n  │ 2\n  │ 3\n"+
		"(10 more rows: Enter shows more)\n  │ 6) [none]:   │ 4\n  │ 5\n  │ 6\n  │ 7\n"+
		"(6 more rows: Enter shows more)\n  │ 6) [none]: "+
		"(1 question; an empty line takes what is in brackets; !no declines, !stop breaks\noff)\n"+
		"  │ name (2\n  │ 3\n(2 more rows: Enter shows more)\n  │ 6) [none]:   │ 4\n  │ 5\n"+
		"  │ 6) [none]: What is sent:\n  │ 1  name: Ann\nEnter sends this, 1 changes it: ")
}

// Before a form is sent each field is on one line, and no name or default of the server looks like another field.
func TestTerminalReviewsForm(t *testing.T) {
	terminal := terminalOf(t, "\n", "1\n", "\n", "\n")
	out := terminal.screen.stderr.(*viewBuffer)
	result, err := terminal.Elicit(t.Context(), "the server notes", elicitForm(
		`"a":{"type":"string","title":"A\n2  b: y","default":"x\n2  b: y"}`))
	assert.NilError(t, err)
	assert.DeepEqual(t, result.Content, map[string]any{"a": "x\n2  b: y"})
	assert.Check(t, is.Contains(out.takes(), "What is sent:\n  │ 1  A\\u000a2  b: y: x\\u000a2  b: y\nEnter sends this"))
}

// Lines that are typed one after the other are several prompts, and not the answer to another question.
func TestTerminalTypedAhead(t *testing.T) {
	s, out := viewScreen(80, false)
	terminal := NewTerminal(nil, s)
	terminal.start.Do(func() {}) // the test types in place of read
	for _, text := range []string{"one", "two", "three", "four"} {
		terminal.typed <- []string{text}
	}
	close(terminal.typed)
	text, err := terminal.Prompt(t.Context(), "> ")
	assert.NilError(t, err)
	assert.Equal(t, text, "one")
	assert.Assert(t, !terminal.Confirm(t.Context(), "the server", "", "let it?"))
	assert.Check(t, is.Contains(out.takes(), "(ignored, because it was typed before the question: two three four)\n"))
}

// End may be called from several goroutines, and more than once. What comes after it is not shown.
func TestViewEnds(t *testing.T) {
	s, out := viewScreen(60, true)
	v := viewOf(s)
	for range 50 {
		v.Begin("model")
		report := v.Progress(ToolCall{ID: "1", Name: "read"})
		v.Text("An answer")
		var all sync.WaitGroup
		for range 4 {
			all.Go(v.End)
			all.Go(func() { report(Progress{Progress: 1}) })
		}
		all.Wait()
		out.takes()
		v.Text(" and more")
		v.End()
		assert.Equal(t, out.takes(), "")
	}
	v.Begin("model")
	v.Text("The next")
	v.End()
	assert.Check(t, is.Contains(out.takes(), "The next\n"))
}

// Begin ends what was begun before: one spinner draws.
func TestViewBegunTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := viewScreen(60, true)
		v := viewOf(s)
		v.Begin("one")
		v.Begin("two")
		v.End()
	})
}

// Time grows as the text does, in however small pieces it comes, and however much white space it has.
func TestViewSmallPieces(t *testing.T) {
	const pieces = 500_000
	for _, piece := range []string{" ", "\n", "x", "word "} {
		s, out := viewScreen(80, true, "a-secret-0123456789")
		v := &View{Screen: s}
		v.Begin("model")
		for range pieces {
			v.Text(piece)
		}
		v.Text("end")
		v.Text(strings.Repeat(piece, pieces))
		v.Text("end")
		v.End()
		assert.Equal(t, strings.Count(out.takes(), "end"), 2, "%q", piece)
	}
}

// JSON is laid out for a person as the window has room for it, and any other text stays as it is.
func TestLayOutJSON(t *testing.T) {
	const weather = `{"city":"Genf \u00fc\u202e","wind":{"speed":12,"direction":"NW"},"days":[{"high":23.50,"low":12},` +
		`{"high":1e400,"low":null}],"none":[],"big":12345678901234567890}`
	assert.Equal(t, LayOutJSON(weather, 40), strings.TrimSpace(`
{
  "city": "Genf ü\u202e",
  "wind": {"speed":12,"direction":"NW"},
  "days": [
    {"high":23.50,"low":12},
    {"high":1e400,"low":null}
  ],
  "none": [],
  "big": 12345678901234567890
}`))
	assert.Equal(t, LayOutJSON(`[ {"a": 1},
2]`, 40), `[{"a":1},2]`)
	for _, text := range []string{"", "21.5", `"text"`, "null", "{broken", "[1] and more", "one\n{}"} {
		assert.Equal(t, LayOutJSON(text, 10), text)
	}
	deep := strings.Repeat(`[1,`, 5000) + "2" + strings.Repeat("]", 5000)
	lines := strings.Split(LayOutJSON(deep, 40), "\n")
	assert.Check(t, len(lines) < 50, "%d lines", len(lines))
	assert.Equal(t, strings.Join(strings.Fields(LayOutJSON(deep, 40)), ""), deep)
}
