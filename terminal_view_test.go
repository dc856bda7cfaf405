package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

// viewBuffer is a terminal that remembers. The timers of synctest tell the race detector nothing, so it has a lock of its own.
type viewBuffer struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

func (b *viewBuffer) Write(text []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(text)
}

func (b *viewBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func (b *viewBuffer) Reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.text.Reset()
}

// viewScreen is a screen that is looked at by the test.
func viewScreen(columns int, live bool) (*Screen, *viewBuffer) {
	out := new(viewBuffer)
	return &Screen{w: out, Live: live, Columns: func() int { return columns }}, out
}

// viewTakes returns what was written since it was called last.
func viewTakes(out *viewBuffer) string {
	defer out.Reset()
	return out.String()
}

// Texts, the status and questions do not disturb each other.
func TestScreen(t *testing.T) {
	s, out := viewScreen(80, true)
	s.Status("50%")
	assert.Equal(t, viewTakes(out), "\r50%\x1b[K")
	fmt.Fprintln(s, "a line")
	assert.Equal(t, viewTakes(out), "\r\x1b[Ka line\n\r50%\x1b[K", "it comes back below")
	s.Status("")
	assert.Equal(t, viewTakes(out), "\r\x1b[K")
	s.Status("")
	assert.Equal(t, viewTakes(out), "", "it is away already")

	answer := s.Over(out)
	s.Status("60%")
	fmt.Fprint(answer, "half a ")
	s.Status("70%")
	assert.Equal(t, viewTakes(out), "\r60%\x1b[K\r\x1b[Khalf a ", "no status on a line that somebody else has begun")
	fmt.Fprintln(s, "a note")
	assert.Equal(t, viewTakes(out), "\na note\n", "nor a note")
	fmt.Fprint(answer, "line\n")
	s.Status("80%")
	s.ask("name: ")
	assert.Equal(t, viewTakes(out), "line\n\r80%\x1b[K\r\x1b[Kname: ")
	s.Status("90%")
	fmt.Fprintln(s, "a note")
	fmt.Fprint(answer, "an ")
	fmt.Fprint(answer, "answer")
	assert.Equal(t, viewTakes(out), "", "nothing while a question is open")
	assert.Assert(t, s.Asking())
	s.answered(true)
	assert.Equal(t, viewTakes(out), "a note\nan answer")
	s.ask("sure? ")
	assert.Equal(t, viewTakes(out), "\nsure? ")
	s.answered(false)
	assert.Equal(t, viewTakes(out), "\n", "nobody has ended the line")

	s.ask("sure? ")
	out.Reset()
	fmt.Fprint(s, strings.Repeat("x", maxHeld-1), "\n")
	assert.Equal(t, viewTakes(out), "")
	fmt.Fprintln(s, "more")
	assert.Equal(t, viewTakes(out), "more\n", "what waits has an end")

	s, out = viewScreen(80, false)
	s.Status("50%")
	fmt.Fprintln(s, "a line")
	s.Status("")
	assert.Equal(t, viewTakes(out), "a line\n", "where lines cannot be drawn again, none is")
}

// Paragraphs stand apart on a terminal.
func TestScreenParagraphs(t *testing.T) {
	for live, want := range map[bool]string{true: "q\n\nq\n\nc\nc\n\nt\nt\n\nq\n", false: "q\nq\nc\nc\nt\nt\nq\n"} {
		s, out := viewScreen(80, live)
		for _, p := range []struct {
			paragraph
			text string
		}{{aQuestion, "q"}, {aQuestion, "q"}, {aCall, "c"}, {aCall, "c"}, {aText, "t"}, {aText, "t"}, {noParagraph, ""}, {aQuestion, "q"}} {
			s.begin(p.paragraph)
			if p.text != "" {
				fmt.Fprintln(s, p.text)
			}
		}
		want = strings.Replace(want, "t\n\nq", "t\nq", 1) // the first of the next
		assert.Equal(t, out.String(), want)
	}
}

func TestFit(t *testing.T) {
	for _, test := range []struct {
		text    string
		columns int
		want    string
	}{
		{"heron", 5, "heron"},
		{"herons", 5, "hero…"},
		{"one\n two\t three", 20, "one two three"},
		{"a\x1b[31m", 20, "a\uFFFD[31m"},
		{"日本語", 6, "日本語"},
		{"日本語", 5, "日本…"},
		{"日本語", 4, "日…"},
		{"e\u0301e\u0301e\u0301", 3, "e\u0301e\u0301e\u0301"},
		{"e\u0301e\u0301e\u0301e", 3, "e\u0301e\u0301…"},
		{"heron", 0, "…"},
		{"", 0, ""},
	} {
		got := fit(test.text, test.columns)
		assert.Check(t, is.Equal(got, test.want))
		assert.Check(t, width(got) <= max(test.columns, 1))
	}
}

// Lines are broken between words; what is laid out stays as it is, in whatever pieces it comes.
func TestFold(t *testing.T) {
	const text = `The heron waits in shallow water for a long time.

- Herons wait where the water is shallow,
  and cranes walk.
12. Storks do neither.
    Indented text goes on below where it began.
| a table | that is | too wide |
	tabs stay as they are, too
` + "```\ncode  is  as  it  is, however long\n```\nabcdefghijklmnopqrstuvwxyz is long.\n\n日本語日本語 日本語日本語\n"
	const want = `The heron waits in
shallow water for a
long time.

- Herons wait where
  the water is
  shallow,
  and cranes walk.
12. Storks do
    neither.
    Indented text
    goes on below
    where it began.
| a table | that is | too wide |
	tabs stay as they are, too
` + "```\ncode  is  as  it  is, however long\n```\nabcdefghijklmnopqrstuvwxyz\nis long.\n\n日本語日本語\n日本語日本語\n"
	for size := 1; size < 30; size++ {
		w, got := wrapper{columns: 20}, ""
		for rest := []rune(text); len(rest) > 0; rest = rest[min(size, len(rest)):] {
			got += w.wrap(string(rest[:min(size, len(rest))]))
		}
		assert.Equal(t, got+w.end(), want)
	}
	s, _ := viewScreen(10, true)
	assert.Equal(t, s.Fold("a long question: "), "a long\nquestion: ")
	s, _ = viewScreen(10, false)
	assert.Equal(t, s.Fold("a long question: "), "a long question: ")
}

// The environment says what a terminal can do.
func TestNewScreen(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "log"))
	assert.NilError(t, err)
	defer file.Close()
	t.Setenv("TERM", "xterm")
	t.Setenv("NO_COLOR", "")
	t.Setenv("COLUMNS", "")
	s := NewScreen(file)
	assert.Assert(t, !s.Live && !s.Color, "a file is no terminal")
	assert.Equal(t, s.Columns(), 80)
	t.Setenv("COLUMNS", "132")
	assert.Equal(t, s.Columns(), 132)
	for _, bad := range []string{"-1", "0", "wide"} {
		t.Setenv("COLUMNS", bad)
		assert.Equal(t, s.Columns(), 80)
	}
	assert.Equal(t, s.style(bold, "x"), "x")
	s.Color = true
	assert.Equal(t, s.style(bold, "x"), "\x1b[1mx\x1b[0m")
}

// viewCallOf is a call of a tool.
func viewCallOf(id, name, arguments string) ToolCall {
	return ToolCall{ID: id, Name: name, Arguments: arguments}
}

// Elsewhere than on a terminal everything is a line.
func TestViewLines(t *testing.T) {
	s, out := viewScreen(80, false)
	v := &View{Screen: s, Name: func(function string) (string, string) { return "files", strings.TrimPrefix(function, "files__") }}
	call := viewCallOf("1", "files__read", `{"path": "/tmp/`+strings.Repeat("x", 200)+`"}`)
	v.Begin("mistral-small")
	v.Observe(Event{Kind: TurnEnded, Response: &ChatResponse{}})
	v.Observe(Event{Kind: CallStarted, Call: call})
	line := viewTakes(out)
	assert.Check(t, is.Regexp(`^> files__read {"path": "/tmp/x+…\n$`, line))
	assert.Equal(t, len([]rune(line)), len("> files__read ")+160+1)
	v.Result(call, &ToolResult{Content: []ContentBlock{{Type: "text", Text: "a\nb\n"}}})
	v.Observe(Event{Kind: CallEnded, Call: call, Took: 20 * time.Millisecond, Bytes: 4})
	assert.Equal(t, viewTakes(out), "< files__read 20ms, 4 bytes\n")
	v.Observe(Event{Kind: CallEnded, Call: viewCallOf("2", "files__read", "{}"), Took: time.Second, Err: errors.New("server files: tools/call read: no\x1b[m such\nfile")})
	assert.Equal(t, viewTakes(out), "< files__read failed after 1s: no\uFFFD[m such file\n")
	v.Observe(Event{Kind: CallEnded, Call: viewCallOf("3", "files__read", `{"a":1}`), Err: errors.New("no")})
	assert.Equal(t, viewTakes(out), "< files__read {\"a\":1}: no\n")
	v.Observe(Event{Kind: TurnEnded, Response: &ChatResponse{FinishReason: "length"}})
	v.Observe(Event{Kind: ToolsFailed, Err: errors.New("gone")})
	v.Observe(Event{Kind: LastTurn, Err: &LimitError{3, "turns"}})
	v.End()
	assert.Equal(t, viewTakes(out), "the model's message was cut off at its length limit\nthe tools could not be listed again: gone\nlimit of 3 turns reached: asking for an answer without tools\n")

	v.Quiet = true
	v.Begin("mistral-small")
	v.Observe(Event{Kind: CallStarted, Call: call})
	v.Observe(Event{Kind: CallEnded, Call: call})
	v.Observe(Event{Kind: LastTurn, Err: &LimitError{3, "turns"}})
	v.Text("only this")
	v.End()
	assert.Equal(t, viewTakes(out), "only this\n")
}

// Progress is told not all the time, and not to somebody who is being asked something.
func TestViewProgressLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, out := viewScreen(80, false)
		v := &View{Screen: s}
		report := v.Watch(ToolCall{Name: "parse"})
		for i := range 5 { // after 0, 60, 120, 180 and 240 ms
			report(Progress{Progress: float64(i), Total: 4, Message: "pa\nge"})
			time.Sleep(60 * time.Millisecond)
		}
		assert.Equal(t, viewTakes(out), "  parse 2/4 pa ge\n  parse 4/4 pa ge\n")
		s.ask("name: ")
		time.Sleep(time.Second)
		report(Progress{Progress: 5})
		s.answered(true)
		assert.Equal(t, viewTakes(out), "name: ")
		report(Progress{Progress: 6})
		assert.Equal(t, viewTakes(out), "  parse 6\n")
		v.End()
		time.Sleep(time.Second)
		report(Progress{Progress: 7})
		assert.Equal(t, viewTakes(out), "")
	})
}

// The last line says what is being waited for, and goes away.
func TestViewStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, out := viewScreen(60, true)
		v := &View{Screen: s, Name: func(function string) (string, string) { return "files", function }}
		last := func() string { // the status that was drawn last
			synctest.Wait()
			lines := strings.Split(viewTakes(out), "\r")
			status, ok := strings.CutSuffix(lines[len(lines)-1], "\x1b[K")
			assert.Assert(t, ok, "%q", lines)
			return regexp.MustCompile("[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏]").ReplaceAllString(status, "*")
		}
		v.Begin("mistral-small")
		defer v.End()
		assert.Equal(t, last(), "* mistral-small")
		time.Sleep(62 * time.Second)
		assert.Equal(t, last(), "* mistral-small 1m02s")

		one, two := viewCallOf("1", "parse", "{}"), viewCallOf("2", "read", "{}")
		v.Observe(Event{Kind: TurnEnded, Response: &ChatResponse{}})
		v.Observe(Event{Kind: CallStarted, Call: one})
		time.Sleep(time.Second)
		assert.Equal(t, last(), "* files parse 1s")
		v.Progress(one)(Progress{Progress: 3, Message: "a\npage"})
		time.Sleep(viewTick)
		assert.Equal(t, last(), "* files parse 3 a page 1s")
		v.Progress(one)(Progress{Progress: 1, Total: 4, Message: "pages"})
		time.Sleep(900 * time.Millisecond)
		assert.Equal(t, last(), "* files parse █████░░░░░░░░░░░░░░░ 25% pages, 6s left")
		v.Observe(Event{Kind: CallStarted, Call: two})
		time.Sleep(viewTick)
		assert.Equal(t, last(), "* files parse (+1) █████░░░░░░░░░░░░░░░ 25% pages, 6s left")
		v.Progress(two)(Progress{Progress: 9, Total: 4, Message: strings.Repeat("so many words ", 10)})
		time.Sleep(viewTick)
		assert.Equal(t, last(), "* files read (+1) ████████████████████ 100% so many words …")
		v.Progress(two)(Progress{Progress: -1, Total: 4})
		time.Sleep(viewTick)
		assert.Equal(t, last(), "* files read (+1) ░░░░░░░░░░░░░░░░░░░░ 0%")

		v.Observe(Event{Kind: CallEnded, Call: two, Took: time.Second})
		v.Observe(Event{Kind: CallEnded, Call: one, Took: time.Second})
		time.Sleep(viewTick)
		assert.Equal(t, last(), "* mistral-small")
		v.End()
		assert.Equal(t, last(), "")
		time.Sleep(time.Second)
		assert.Equal(t, viewTakes(out), "")
	})
}

// No status is wider than its window, whatever servers say.
func TestViewStatusFits(t *testing.T) {
	for columns := 12; columns < 90; columns++ {
		for _, name := range []string{"a", "日本語", strings.Repeat("name", 30)} {
			for _, p := range []*Progress{nil, {Progress: 1e300}, {Progress: 1, Total: 2}, {Progress: 1, Total: 2, Message: strings.Repeat("日本語 ", 30)}, {Progress: 5, Message: strings.Repeat("x", 200)}} {
				s, out := viewScreen(columns, true)
				v := &View{Screen: s}
				v.calls = []*viewCall{{name: name, progress: p, began: time.Now().Add(-100 * time.Hour)}, {name: "b"}}
				v.draw(0)
				status := strings.NewReplacer("\r", "", "\x1b[K", "").Replace(out.String())
				assert.Check(t, width(status) < columns, "%d: %q", columns, status)
			}
		}
	}
}

// What a call gave is folded, images go to files, and a line is no wider than the window.
func TestViewResults(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	for _, test := range []struct {
		what   string
		result *ToolResult
		event  Event
		want   string
	}{
		{"nothing", &ToolResult{}, Event{Took: time.Second}, "✓ files read {\"a\":1}  1s, 0 bytes\n"},
		{"text", &ToolResult{Content: []ContentBlock{{Type: "text", Text: "\na\x1b[31m\nb  c\n"}}}, Event{Took: time.Second, Bytes: 5},
			"✓ files read {\"a\":1}  1s, 5 bytes\n    a\uFFFD[31m\n    b c\n"},
		{"five lines", &ToolResult{Content: []ContentBlock{{Type: "text", Text: "1\n2\n3\n4\n5"}}}, Event{Took: time.Second, Bytes: 10_000},
			"✓ files read {\"a\":1}  1s, 10 kB\n    1\n    2\n    3\n    4\n    5\n"},
		{"six lines", &ToolResult{Content: []ContentBlock{{Type: "text", Text: "1\n2\n3\n4\n5\n6"}}}, Event{Took: time.Second, Bytes: 12_345_678},
			"✓ files read {\"a\":1}  1s, 12 MB\n    1\n    2\n    3\n    4\n    … 2 more lines\n"},
		{"a long line", &ToolResult{Content: []ContentBlock{{Type: "text", Text: strings.Repeat("word ", 20)}}}, Event{Took: time.Second, Bytes: 1},
			"✓ files read {\"a\":1}  1s, 1 byte\n    word word word word word word word …\n"},
		{"structured", &ToolResult{StructuredContent: json.RawMessage(`{"b":2}`)}, Event{Took: time.Second}, "✓ files read {\"a\":1}  1s, 0 bytes\n    {\"b\":2}\n"},
		{"an image", &ToolResult{Content: []ContentBlock{{Type: "image", MIMEType: "image/png", Data: []byte("PNG")}}}, Event{Took: time.Second},
			"✓ files read {\"a\":1}  1s, 0 bytes\n    image/png, 3 bytes: FILE.png\n"},
		{"a sound and a picture", &ToolResult{Content: []ContentBlock{{Type: "text", Text: "Both:"}, {Type: "audio", MIMEType: "audio/x-new/../..", Data: []byte("PNG")},
			{Type: "resource", Resource: &ResourceContents{URI: "x:y", MIMEType: "image/gif", Blob: []byte("PNG")}}}}, Event{Took: time.Second},
			"✓ files read {\"a\":1}  1s, 0 bytes\n    Both:\n    [resource: x:y image/gif, 3 bytes]\n    audio/x-new/../.., 3 bytes: FILE.bin\n    image/gif, 3 bytes: FILE.gif\n"},
		{"an error", nil, Event{Took: time.Second, Err: errors.New("tools/call read: the disk is full, as it has been for days")},
			"✗ files read {\"a\":1}  failed after 1s\n    the disk is full, as it has been for\n    days\n"},
		{"cancelled", nil, Event{Took: time.Second, Err: fmt.Errorf("tools/call read: %w", ErrCancelled)}, "✗ files read {\"a\":1}  cancelled after 1s\n"},
		{"refused", nil, Event{Err: fmt.Errorf("%w: no", ErrRefused)}, "✗ files read {\"a\":1}  not run\n    the call was refused: no\n"},
		{"answered", nil, Event{}, "✓ files read {\"a\":1}  answered by you\n"},
		{"escapes", nil, Event{Call: viewCallOf("1", "read", `{"a":"\u0062\u001b"}`)}, "✓ files read {\"a\":\"b\\u…  answered by you\n"},
		{"long arguments", nil, Event{Call: viewCallOf("1", "read", `{"a":"`+strings.Repeat("x", 100)+`"}`)}, "✓ files read {\"a\":\"xxx…  answered by you\n"},
		{"a long name", nil, Event{Call: viewCallOf("1", strings.Repeat("x", 100), `{}`)}, "✓ files xxxxxxxxxxxxx… answered by you\n"},
	} {
		t.Run(test.what, func(t *testing.T) {
			s, out := viewScreen(40, true)
			v := &View{Screen: s, Name: func(function string) (string, string) { return "files", function }}
			event := test.event
			if event.Call.Name == "" {
				event.Call = viewCallOf("1", "read", `{"a":1}`)
			}
			if event.Took > 0 {
				v.Observe(Event{Kind: CallStarted, Call: event.Call})
			}
			if test.result != nil {
				v.Result(event.Call, test.result)
			}
			event.Kind = CallEnded
			v.Observe(event)
			got := out.String()
			for _, path := range regexp.MustCompile(`/\S*/mcpagent-\d+\.\w+`).FindAllString(got, -1) {
				data, err := os.ReadFile(path)
				assert.NilError(t, err)
				assert.Equal(t, string(data), "PNG")
				info, err := os.Stat(path)
				assert.NilError(t, err)
				assert.Assert(t, runtime.GOOS == "windows" || info.Mode().Perm() == 0o600)
				got = strings.Replace(got, strings.TrimSuffix(path, filepath.Ext(path)), "FILE", 1)
			}
			assert.Equal(t, got, test.want)
		})
	}
}

// The model's text comes as it is streamed, without what steers a terminal, without secrets whatever the pieces, and with one end
// of line.
func TestViewText(t *testing.T) {
	const secret = "my secret phrase"
	held := func(text string) (n int) {
		for i := range len(secret) {
			if strings.HasSuffix(text, secret[:i]) {
				n = i
			}
		}
		return n
	}
	for _, test := range []struct{ text, want string }{
		{"Hello.", "Hello.\n"},
		{"\n\n Hello.\n\n\n", " Hello.\n"},
		{"one\r\ntwo\x1b[31m\n\n\nthree\n", "one\ntwo\uFFFD[31m\n\n\nthree\n"},
		{"It is " + secret + ".", "It is [key].\n"},
		{secret, "[key]\n"},
		{"It is my sec", "It is my sec\n"},
		{"my", "my\n"},
		{"", ""},
		{" \n", ""},
		{"one two three four five six", "one two three four\nfive six\n"},
	} {
		for size := 1; size < 20; size++ {
			s, out := viewScreen(20, true)
			s.Redact = func(text string) string { return strings.ReplaceAll(text, secret, "[key]") }
			v := &View{Screen: s, Held: held, Wrap: true, Answer: out}
			v.Begin("mistral-small")
			for rest := test.text; rest != ""; rest = rest[min(size, len(rest)):] {
				v.Text(rest[:min(size, len(rest))])
			}
			v.Observe(Event{Kind: TurnEnded, Response: &ChatResponse{}})
			v.End()
			got := regexp.MustCompile("\r[^\x1b]*\x1b\\[K").ReplaceAllString(out.String(), "")
			assert.Equal(t, got, test.want, "in pieces of %d", size)
		}
	}
}
