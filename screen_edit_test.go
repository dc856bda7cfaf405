package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

// editTerminal is a terminal that gives its keys, which the test presses, and the window that it is drawn in.
func editTerminal(columns, rows int) (*Terminal, *vt) {
	v := newVT(columns, rows)
	s := &Screen{Secrets: new(Secrets), Live: true, Answers: true, streams: streams{stderr: v, stdout: v, user: v}}
	s.Columns, s.Rows = func() int { return v.columns }, func() int { return v.rows }
	t := NewTerminal(nil, s)
	t.start.Do(func() {}) // nothing is read
	t.editing, t.draft.history = true, new(history)
	return t, v
}

// asking reports whether a question is open.
func asking(s *Screen) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.question.open
}

// prompts opens the chat's prompt, and returns what it gives.
func prompts(t *testing.T, terminal *Terminal) (answer func() (string, error)) {
	ctx, cancel := context.WithCancelCause(t.Context())
	text, failed, ended := "", error(nil), make(chan struct{})
	go func() {
		defer close(ended)
		text, failed = terminal.Prompt(ctx, "> ")
	}()
	for !asking(terminal.screen) {
		runtime.Gosched()
	}
	terminal.mu.Lock() // which edit holds until the prompt is drawn
	terminal.mu.Unlock()
	return func() (string, error) {
		if len(terminal.typed) == 0 {
			cancel(io.ErrNoProgress)
		}
		<-ended
		cancel(nil)
		return text, failed
	}
}

// input opens a question for a field, and returns what is answered.
func input(t *testing.T, terminal *Terminal, title string, hidden bool) (answer chan string) {
	answer = make(chan string)
	go func() {
		value, _ := terminal.Input(t.Context(), &Field{Title: title, Type: "string", Required: true}, hidden)
		answer <- value.(string)
	}()
	for !asking(terminal.screen) {
		runtime.Gosched()
	}
	return answer
}

const paste, pasted = "\x1b[200~", "\x1b[201~"

// What keys make of a text, what is seen of it, and where the cursor is: at once and in pieces of a byte.
func TestEdit(t *testing.T) {
	const up, down, right, left, home, end = "\x1b[A", "\x1b[B", "\x1bOC", "\x1b[D", "\x1b[H", "\x1b[4~"
	const family, flag, accent = "👨\u200d👩\u200d👧", "🇩🇪", "e\u0301"
	lines := strings.TrimSuffix(strings.Repeat("line\r", 120), "\r")
	for _, test := range []struct {
		keys, text  string
		row, column int
		shown       string
	}{
		{"heron", "heron", 0, 7, "> heron"},
		{"hron" + home + right + "e", "heron", 0, 4, "> heron"},
		{"xheron" + home + "\x1b[3~" + end + "s\x7f", "heron", 0, 7, "> heron"},
		{"one two three\x1bb\x1bb\x1bd\x1b[1;5C", "one  three", 0, 12, "> one  three"},
		{"one two-three\x17", "one ", 0, 6, "> one"},
		{"one two-three\x1b\x7f", "one two-", 0, 10, "> one two-"},
		{"one two\x1bb\x15x\x05", "xtwo", 0, 6, "> xtwo"},
		{"one two\x1bb\x0b\x01", "one ", 0, 2, "> one"},
		{"one\x02\x02\x04\x06", "oe", 0, 4, "> oe"},
		{"日本語" + left + left + "x", "日x本語", 0, 5, "> 日x本語"},
		{accent + "x" + left + "\b", "x", 0, 2, "> x"},
		{flag + flag + "\x7f", flag, 0, 6, "> " + flag},
		{family + "\U0001F3FB\x7f", "", 0, 2, ">"},
		{"a\u200d" + left, "a\u200d", 0, 2, "> a\u200d"},
		{"x" + strings.Repeat("\u0301", 99) + "\x7f", "", 0, 3, ""},
		{"one\x1b\rtwo\x1b[13;2uthree" + up + up + "X", "oneX\ntwo\nthree", 0, 6, "> oneX\n  two\n  three"},
		{"one\\\rtwo" + up + home + down + "X", "one\nXtwo", 1, 3, "> one\n  Xtwo"},
		{"three\x1b\r\x1b\rtwo" + up + up + end, "three\n\ntwo", 0, 7, "> three\n\n  two"},
		{strings.Repeat("0123456789", 5) + up + "X", "", 0, 16, ""},
		{"日" + strings.Repeat("本", 19), "日" + strings.Repeat("本", 19), 1, 6,
			"> 日" + strings.Repeat("本", 17) + "\n  本本"},
		{"a\x1b[99;9~b\x1b[[Ac\x1bzd\x1bOPe\x1b[1\x02f", "abcdfe", 0, 7, "> abcdfe"},
		{"a\xff\xc3b\x80\x00\x1fé", "abé", 0, 5, "> abé"},
		{"see " + paste + lines + pasted + " now\x02", "see " + strings.Repeat("line\n", 119) + "line now", 0, 27,
			"> see [pasted 120 lines] now"},
		{"see " + paste + lines + pasted + "\x7f.", "see .", 0, 7, "> see ."},
		{paste + "a\x1b[Db\r\nc" + pasted, "a[Db\nc", 1, 3, "> a[Db\n  c"},
		{paste + strings.Repeat("x", 1001) + pasted + "\x02", strings.Repeat("x", 1001), 0, 2, "> [pasted 1 line]"},
		{"a\tb" + paste + "\t" + pasted, "ab\t", 0, 8, "> ab"},
		{"\u202eab", "ab", 0, 4, "> ab"},
	} {
		for _, piece := range []int{len(test.keys), 1} {
			terminal, v := editTerminal(40, 10)
			answer := prompts(t, terminal)
			for part := range slices.Chunk([]byte(test.keys), piece) {
				terminal.press(part)
			}
			row, column := v.Cursor()
			text := terminal.draft.textBefore(len(terminal.draft.cells))
			if test.shown != "" {
				assert.Check(t, is.Equal(v.Text(), test.shown), "%q", test.keys)
				assert.Check(t, is.Equal(text, test.text), "%q", test.keys)
			}
			assert.Check(t, row == test.row && column == test.column, "%q: %d, %d\n%s", test.keys, row, column, v.Text())
			terminal.press([]byte("\r"))
			line, err := answer()
			assert.NilError(t, err)
			assert.Equal(t, line, text)
		}
	}
}

// What is pasted is taken up to a size. What is longer is not kept until its end.
func TestEditLongPaste(t *testing.T) {
	const lost = "(not taken: what was pasted has more than 4 MiB)\n"
	for size, shown := range map[int]string{
		maxPaste: "> a[pasted 1 line]b", maxPaste + 1: lost + "> ab", 2 * maxPaste: lost + "> ab",
	} {
		terminal, v := editTerminal(80, 8)
		prompts(t, terminal)
		for part := range slices.Chunk([]byte("a"+paste+strings.Repeat("x", size)+pasted+"b"), 64<<10-3) {
			terminal.press(part)
			assert.Assert(t, len(terminal.keys.unread) <= maxPaste+len(pasted))
		}
		assert.Equal(t, v.Text(), shown)
	}
}

// A line that is written while the prompt is open goes above it; while another question is open, it waits. What is
// typed ahead is no answer: it stands in the next prompt, and what was entered ahead is the next question.
func TestEditMeanwhile(t *testing.T) {
	for _, columns := range []int{40, 80, 200} {
		terminal, v := editTerminal(columns, 8)
		answer := prompts(t, terminal)
		terminal.press([]byte("one\x1b\r日本"))
		terminal.screen.Show(Look{}, "a note")
		terminal.press([]byte("語"))
		assert.Equal(t, v.Text(), "a note\n> one\n  日本語")
		_, err := answer()
		assert.ErrorIs(t, err, io.ErrNoProgress)
		assert.Equal(t, v.Text(), "a note", "it is taken away")

		terminal.press([]byte("\x1b[D\x1b[D!"))
		asked := input(t, terminal, "The port", false)
		terminal.press([]byte("8"))
		terminal.screen.Show(Look{}, "another note")
		terminal.press([]byte("0\rnext\x1b"))
		assert.Equal(t, <-asked, "80")
		assert.Equal(t, v.Text(), "a note\n  │ The port: 80\nanother note")

		answer = prompts(t, terminal)
		assert.Equal(t, v.Text(), "a note\n  │ The port: 80\nanother note\n> one\n  日!next本語")
		terminal.press([]byte("[H\x15\r"))
		line, err := answer()
		assert.NilError(t, err)
		assert.Equal(t, line, "one\n日!next本語")
		terminal.press([]byte("two\rthree\rfo"))
		for _, want := range []string{"two", "three"} {
			line, err := terminal.Prompt(t.Context(), "> ")
			assert.NilError(t, err)
			assert.Equal(t, line, want)
		}
		assert.Check(t, is.Contains(v.Text(), "\n> two\n> three"))
		terminal.Break(t.Context())
		terminal.press([]byte("\x04"))
		_, err = terminal.Prompt(t.Context(), "> ")
		assert.ErrorIs(t, err, io.EOF)
		assert.Check(t, !strings.Contains(v.Text(), "fo"))
	}

	terminal, v := editTerminal(40, 8)
	asked := input(t, terminal, "The key", true)
	terminal.press([]byte("my secret\\\r"))
	assert.Equal(t, <-asked, `my secret\`)
	assert.Equal(t, v.Text(), "  │ The key:")
	asked = input(t, terminal, "The key", true)
	terminal.press([]byte(paste + "two\rlines\r" + pasted + "\r"))
	assert.Equal(t, <-asked, "two\nlines")
}

// A window that changes its size has the text drawn anew, and of one that is taller than the window what is around
// the cursor.
func TestEditWindow(t *testing.T) {
	terminal, v := editTerminal(80, 6)
	terminal.screen.Show(Look{}, "a line")
	answer := prompts(t, terminal)
	terminal.press([]byte("one two three four"))
	v.Resize(40, 6)
	terminal.press(nil)
	assert.Equal(t, v.Text(), "a line\n> one two three four")
	terminal.press([]byte(strings.ReplaceAll("\n2\n3\n4\n5\n6\n7", "\n", "\x1b\r")))
	assert.DeepEqual(t, v.Rows()[1:], []string{"  3", "  4", "  5", "  6", "  7"})
	terminal.press([]byte("\x1b[A\x1b[A\x1b[A\x1b[A\x1b[A\x1b[Hx"))
	assert.DeepEqual(t, v.Rows()[1:], []string{"  x2", "  3", "  4", "  5", "  6"})
	row, column := v.Cursor()
	assert.Assert(t, row == 1 && column == 3)
	v.Resize(200, 12)
	terminal.press(nil)
	assert.DeepEqual(t, v.Rows()[1:8], []string{"> one two three four", "  x2", "  3", "  4", "  5", "  6", "  7"})
	terminal.press([]byte("\r"))
	_, err := answer()
	assert.NilError(t, err)
	assert.DeepEqual(t, v.Rows()[7:9], []string{"  7", ""})
}

// Tab completes a word as far as all candidates agree, or shows them.
func TestEditComplete(t *testing.T) {
	terminal, v := editTerminal(40, 8)
	var early sync.WaitGroup
	early.Go(func() { terminal.press([]byte("x\t\x15")) }) // a question was asked before the chat begins
	complete := func(text string) (words []string) {
		all := []string{"/tools", "/today", "@ab:x"}
		begin := text[strings.LastIndex(text, " ")+1:]
		return slices.DeleteFunc(all, func(w string) bool { return !strings.HasPrefix(w, begin) })
	}
	terminal.Complete.Store(&complete)
	early.Wait()
	answer := prompts(t, terminal)
	terminal.press([]byte("/\t"))
	assert.Equal(t, v.Text(), "> /to")
	terminal.press([]byte("\t"))
	assert.Equal(t, v.Text(), "/tools  /today\n> /to")
	terminal.press([]byte("o\t@\tnone\t"))
	assert.Equal(t, v.Text(), "/tools  /today\n> /tools @ab:x none")
	terminal.press([]byte("\x17"))
	terminal.press([]byte("\r"))
	line, err := answer()
	assert.NilError(t, err)
	assert.Equal(t, line, "/tools @ab:x ")
}

// Of more words than the screen has room for, whole ones are shown, and the others are counted.
func TestSomeOf(t *testing.T) {
	for columns, want := range map[int]string{
		14: "one  two  日本", 13: "one  two  … 1 more", 7: "one  … 2 more", 0: "… 3 more",
	} {
		assert.Equal(t, someOf([]string{"one", "two", "日本"}, columns), want)
	}
	assert.Equal(t, someOf(nil, 0), "")
}

// What is completed goes on where a candidate may do so. One that begins otherwise takes the place of the word alone.
func TestEditExpand(t *testing.T) {
	for _, test := range []struct{ typed, candidates, want string }{
		{"see @he", "@notes:herons", "see @notes:herons "},
		{"see @he", "@notes:herons @notes:the", "see @he"},
		{"see @n", "@notes:herons @notes:the", "see @notes:"},
		{"/load d", "docs/", "/load docs/"},
		{"call q", "query=", "call query="},
		{"/tools", "/tools", "/tools "},
		{"x", "", "x"},
	} {
		e := &editor{columns: 80}
		e.insert(test.typed)
		isDone := e.expand(strings.Fields(test.candidates))
		assert.Equal(t, e.textBefore(len(e.cells)), test.want)
		assert.Equal(t, isDone, e.textBefore(len(e.cells)) != test.typed || test.candidates == "", test.typed)
	}
}

// Ctrl-R searches what was said before while it is typed, the latest first. What is found is edited and entered as if
// it had been typed, and Ctrl-G gives back what was there.
func TestEditSearch(t *testing.T) {
	const again, giveUp, left = "\x12", "\x07", "\x1b[D"
	for _, test := range []struct{ keys, shown, text string }{
		{again, "(search:)", ""},
		{again + "her", "(search: her) Which HERON?", "Which HERON?"},
		{"draft" + again + "her" + again, "(search: her) a heron", "a heron"},
		{again + "her" + again + again, "(not found: her) a heron", "a heron"},
		{again + "herx", "(not found: herx) Which HERON?", "Which HERON?"},
		{again + "herx\x7f", "(search: her) Which HERON?", "Which HERON?"},
		{again + "x\x7f\x7f\x7f", "(search:)", ""},
		{"draft" + left + again + "her" + giveUp + "X", "> drafXt", "drafXt"},
		{"draft" + again + "her" + left + "X", "> Which HERONX?", "Which HERONX?"},
		{again + "two", "(search: two) two\n  lines", "two\nlines"},
		{again + "lines\x1b[A\x1b[A", "> a heron", "a heron"},
		{again + "日本語日本語日本語日本語日本語", "(not found: 日本語…)", ""},
	} {
		terminal, v := editTerminal(40, 8)
		terminal.draft.history.entries = []string{"a heron", "two\nlines", "Which HERON?", "Which HERON?", "egrets"}
		answer := prompts(t, terminal)
		for _, key := range []byte(test.keys) {
			terminal.press([]byte{key})
		}
		assert.Check(t, is.Equal(v.Text(), test.shown), "%q", test.keys)
		terminal.press([]byte("\r"))
		line, err := answer()
		assert.NilError(t, err)
		assert.Equal(t, line, test.text)
	}
	// Where a question is answered, there is nothing to search.
	terminal, v := editTerminal(40, 8)
	value := input(t, terminal, "Bird", false)
	terminal.press([]byte("a\x12b"))
	assert.Check(t, is.Contains(v.Text(), "ab"))
	terminal.press([]byte("\r"))
	assert.Equal(t, <-value, "ab")
}

// While the words for Tab are looked for, which may take a server's time, Ctrl-C breaks off: then nothing is completed.
func TestEditCompleteBreak(t *testing.T) {
	terminal, v := editTerminal(40, 8)
	begun, release, ended := make(chan struct{}), make(chan struct{}), new(atomic.Bool)
	complete := func(string) []string {
		close(begun)
		select {
		case <-release:
		case <-time.After(5 * time.Second):
		}
		ended.Store(true)
		return []string{"/tools"}
	}
	terminal.Complete.Store(&complete)
	prompts(t, terminal)
	var keys sync.WaitGroup
	keys.Go(func() { terminal.press([]byte("/t\tx")) })
	<-begun
	terminal.endLife()
	assert.Assert(t, !ended.Load(), "Ctrl-C waits for the words")
	terminal.Break(t.Context())
	assert.Assert(t, !ended.Load(), "Ctrl-C waits for the words")
	close(release)
	keys.Wait()
	assert.Equal(t, terminal.draft.textBefore(len(terminal.draft.cells)), "")
	assert.Equal(t, strings.TrimSpace(v.Text()), ">")
}

// The history is a file that only its owner can read, of some size, without secrets; programs add to it at once.
func TestEditHistory(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("USERPROFILE", home)
	t.Setenv("XDG_STATE_HOME", filepath.Join(home, "state"))
	terminal, v := editTerminal(40, 8)
	terminal.screen.Secrets.Add("[key]", "planted secret")
	terminal.draft.history = openHistory()
	path := terminal.draft.history.path
	for _, text := range []string{"one", "two\nlines", "two\nlines", "a planted secret"} {
		terminal.Remember(text, true)
	}
	info, err := os.Stat(path)
	assert.NilError(t, err)
	assert.Assert(t, runtime.GOOS == "windows" || info.Mode().Perm() == 0o600)
	assert.DeepEqual(t, openHistory().entries, []string{"one", "two\nlines", "a [key]"})

	prompts(t, terminal)
	terminal.press([]byte("draft\x1b[A\x1b[A"))
	assert.Equal(t, v.Text(), "> two\n  lines")
	terminal.press([]byte("\x1b[A\x1b[A\x1b[A\x1b[A"))
	assert.Equal(t, v.Text(), "> one")
	terminal.press([]byte("\x1b[B\x1b[B\x1b[B\x1b[B"))
	assert.Equal(t, v.Text(), "> draft")

	var programs sync.WaitGroup
	for program := range 4 {
		programs.Go(func() {
			h := openHistory()
			for i := range 100 {
				h.add(fmt.Sprint(program, " ", i, strings.Repeat(" x", 500)), true)
			}
		})
	}
	programs.Wait()
	assert.Equal(t, len(openHistory().entries), 403)
	h := openHistory()
	for i := range 3000 {
		h.add(fmt.Sprint(i, strings.Repeat(" y", 300)), true)
	}
	h.add(strings.Repeat("z", maxEntry), true)
	assert.Equal(t, len(h.entries), maxEntries)
	assert.Equal(t, openHistory().entries[maxEntries-1], h.entries[maxEntries-2], "what is too long is not kept")
	for _, file := range []string{path, path + ".old"} {
		info, err := os.Stat(file)
		assert.NilError(t, err)
		assert.Assert(t, info.Size() < maxHistory+maxEntry)
	}
	assert.NilError(t, os.RemoveAll(home))
	assert.NilError(t, os.WriteFile(home, nil, 0o600))
	h.add("nowhere to be kept", true)
	assert.Equal(t, len(openHistory().entries), 0)
}

// FuzzEdit: whatever is typed, in pieces, the window shows what a fresh drawing of the text shows.
func FuzzEdit(f *testing.F) {
	for _, seed := range []string{
		"heron\x1b[D\x1b[Dx\x7f", "日本語\x1bb\x0b\x19\x19", paste + strings.Repeat("line\r", 9) + pasted + "\x02\x02x\r",
		"a\\\rb\n\nc\x1b[A\x1b[A\x1b[Bx", "👨\u200d👩\u200d👧🇩🇪e\u0301\x7f\x7f",
		"\x1b]0;x\a\x1b[200~a\x1b[201", "\t\t\u202e\x00\xff\x04",
		strings.Repeat("0123456789", 9) + "\x1b[A\x1b[A\x1b[H\x15", "one\rtwo\rthree\f",
	} {
		f.Add(uint8(20), uint8(5), uint8(3), []byte(seed))
	}
	f.Fuzz(func(t *testing.T, columns, rows, piece uint8, in []byte) {
		terminal, v := editTerminal(int(max(columns, 12)), int(max(rows, 3)))
		terminal.draft.history.entries = []string{"before", "two\nlines"}
		terminal.screen.question.open, terminal.open = true, terminal.draft
		terminal.draft.prompt = "> "
		in = slices.DeleteFunc(slices.Clone(in), func(b byte) bool { return b == 26 })
		for part := range slices.Chunk(in, int(max(piece, 1))) {
			terminal.press(part)
			terminal.open = terminal.draft
			for len(terminal.typed) > 0 {
				<-terminal.typed
			}
		}
		terminal.press([]byte{0})
		fresh := newVT(v.columns, v.rows)
		s := &Screen{streams: streams{user: fresh}, Columns: terminal.screen.Columns}
		s.draw(terminal.draft.draw(v.columns, v.rows))
		row, column := v.Cursor()
		freshRow, freshColumn := fresh.Cursor()
		first := row - freshRow
		assert.Assert(t, first >= 0 && column == freshColumn, "%d, %d\n%s\n\n%s", row, column, v.Text(), fresh.Text())
		assert.DeepEqual(t, v.Rows()[first:], fresh.Rows()[:v.rows-first])
	})
}
