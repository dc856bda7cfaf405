package main

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

// viewBuffer is a terminal that remembers. The race detector knows nothing of synctest's timers, so it has a lock.
type viewBuffer struct {
	asked func(question string) // if set, called with all that does not end its line
	mu    sync.Mutex            // guards text
	text  []byte
}

func (b *viewBuffer) Write(text []byte) (int, error) {
	if b.asked != nil && !bytes.HasSuffix(text, []byte("\n")) {
		b.asked(string(text))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.text = append(b.text, text...)
	return len(text), nil
}

// takes returns what was written since it was called last.
func (b *viewBuffer) takes() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	text := string(b.text)
	b.text = nil
	return text
}

// viewScreen is a screen of which the test sees all that it writes.
func viewScreen(columns int, live bool, secrets ...string) (*Screen, *viewBuffer) {
	out := new(viewBuffer)
	s := &Screen{Secrets: new(Secrets), Live: live, Answers: live, streams: streams{stderr: out, stdout: out, user: out}}
	s.Columns, s.Rows = func() int { return columns }, func() int { return 24 }
	s.Secrets.Add("[key]", secrets...)
	return s, out
}

// What is shown of a name is one name, on one line, and cannot look like what stands around it.
func TestOneName(t *testing.T) {
	for name, want := range map[string]string{
		"read_file":                       "read_file",
		"größe.日本":                        "größe.日本",
		"note:///{+path}":                 "note:///{+path}",
		"":                                `""`,
		"a\nb()":                          `"a\nb()"`,
		"a\r\x1b[2K":                      `"a\r\u001b[2K"`,
		"a\u00a0b\u200b\u202e":            `"a\u00a0b\u200b\u202e"`,
		`a", "b`:                          `"a\", \"b"`,
		"a b":                             `"a b"`,
		"a      b":                        `"a[6 blanks]b"`,
		"a\\n":                            `"a\\n"`,
		"e" + strings.Repeat("\u0301", 6): "\"e\u0301\u0301\u0301\u0301\\u0301\\u0301\"",
		"\xff":                            `"\ufffd"`,
	} {
		assert.Check(t, is.Equal(OneName(name), want))
	}
}

// Texts, the status and questions do not disturb each other.
func TestScreen(t *testing.T) {
	s, out := viewScreen(80, true)
	s.Status("50% " + strings.Repeat("日本語", 20))
	cut := "50% " + strings.Repeat("日本語", 12) + "日…"
	assert.Equal(t, out.takes(), cut, "one column less than the window")
	s.Status("50%")
	assert.Equal(t, out.takes(), "\r50%\x1b[J", "nothing disappears first")
	s.Show(Look{}, "a line")
	assert.Equal(t, out.takes(), "\r\x1b[Ja line\n50%", "it comes back below")
	s.Status("")
	assert.Equal(t, out.takes(), "\r\x1b[J")
	s.Status("")
	assert.Equal(t, out.takes(), "", "it is removed already")

	md := newMarkdown(80, false)
	answer := func(text string, end bool) {
		s.stream(md, text+" ", end)
		if end {
			md = newMarkdown(80, false)
		}
	}
	s.Status("60%")
	answer("half a", false)
	s.Status("70%")
	assert.Equal(t, out.takes(), "60%\r\x1b[Jhalf a", "no status on a line that another text has begun")
	s.Show(Look{}, "a note")
	assert.Equal(t, out.takes(), "\na note\n", "nor a note")
	answer("line", true)
	s.Status("80%")
	s.ask("name:", false)
	assert.Equal(t, out.takes(), "line\n80%\r\x1b[Jname: ")
	s.Status("90%")
	s.Show(Look{}, "a note")
	answer("an", false)
	answer("answer", false)
	assert.Equal(t, out.takes(), "", "nothing while a question is open")
	s.answered(true)
	assert.Equal(t, out.takes(), "a note\nan answer")
	s.ask("sure?", false)
	assert.Equal(t, out.takes(), "\nsure? ")
	s.answered(false)
	assert.Equal(t, out.takes(), "\n", "nobody has ended the line")

	s.ask("sure?", false)
	out.takes()
	s.Show(Look{Exact: true}, strings.Repeat("x", maxHeld-1))
	assert.Equal(t, out.takes(), "")
	s.Show(Look{}, "more")
	assert.Equal(t, out.takes(), "more\n", "what waits is bounded")

	s, out = viewScreen(80, false)
	s.Status("50%")
	s.Show(Look{}, "a line")
	s.Status("")
	assert.Equal(t, out.takes(), "a line\n", "where lines cannot be drawn again, there is no status")
	s.ask(">", true)
	s.Show(Look{}, "a note")
	s.answered(true)
	s.Show(Look{}, "another")
	assert.Equal(t, out.takes(), "> \na note\nanother\n", "nor is a prompt drawn again")
}

// Secrets are taken out while they are whole, control characters become visible, then the text is cut, then folded.
func TestScreenRender(t *testing.T) {
	const (
		secret  = "planted secret\x1b[1m of three words"
		hostile = "\x00\a\b\r\x1b\x7f\u0085\u009b\u061c\u200e\u200f\u2028\u2029\u202a\u202b\u202c\u202d\u202e" +
			"\u2066\u2067\u2068\u2069"
		harmless = "a é\u0301 読\u00a0\u202f\u200d\U0001F600\uFFFD\n\t" // with spaces that do not break, and what joins
	)
	for _, test := range []struct {
		look       Look
		text, want string
	}{
		{Look{}, "It is " + secret + ".", "It is [key]."},
		{Look{Max: 12}, "It is " + secret + ".", "It is [key]."},
		{Look{Max: 11}, "It is " + secret + ".", "It is [key…"},
		{Look{Max: 9}, "a\x1b[31m\nb cde", "a\uFFFD[31m b…"},
		{Look{}, "red\x1b[31m and more words\r\n", "red\uFFFD[31m and more\nwords\n"},
		{Look{Max: 30}, "  red\x1b[31m and more words", "  red\uFFFD[31m and more\n  words"},
		{Look{Exact: true}, "as  it is, however long it may be", "as  it is, however long it may be"},
		{Look{Max: 5}, "heron", "heron"},
		{Look{Max: 5}, "herons", "hero…"},
		{Look{Max: 8}, "  one  two", "  one t…"},
		{Look{Max: 6}, "日本語", "日本語"},
		{Look{Max: 5}, "日本語", "日本…"},
		{Look{Max: 4}, "日本語", "日…"},
		{Look{Max: 3}, "e\u0301e\u0301e\u0301", "e\u0301e\u0301e\u0301"},
		{Look{Max: 3}, "e\u0301e\u0301e\u0301e", "e\u0301e\u0301…"},
		{Look{Exact: true}, hostile, strings.Repeat("\uFFFD", len([]rune(hostile)))},
		{Look{Exact: true}, harmless + "\r\n", harmless + "\n"},
		{Look{Style: Red}, "> ", "\x1b[31m>\x1b[0m"},
		{Look{Style: Red}, "", ""},
	} {
		s, out := viewScreen(20, true, secret)
		s.Color = true
		assert.Check(t, is.Equal(string(s.render(test.look, test.text)), test.want))
		s.Show(test.look, test.text)
		assert.Check(t, is.Equal(out.takes(), test.want+"\n"))
	}
	for answers, want := range map[bool]string{false: "  one two three four\n", true: "  one two three\n  four\n"} {
		s, out := viewScreen(18, true)
		s.Answers = answers
		assert.NilError(t, s.Print(Look{}, "  one two three four\n"))
		assert.Equal(t, out.takes(), want)
	}
}

// A text is counted as wide as a terminal shows it, or wider: the status of a server's progress stays on its line.
func TestWidth(t *testing.T) {
	for text, want := range map[string]int{
		"heron": 5, "日本語": 6, "ｈｅ": 4, "한글": 4, "한": 2, "e\u0301": 1, "a\u200bb": 2, "\u0600": 1,
		"✅⚡⭐🟢": 8, "✓✗→…": 4, "\u2764\uFE0F": 2, "1\uFE0F\u20E3": 2, "🇩🇪": 4,
		"🌡": 2, "⚠": 1, "\U0001FAE9": 2, "\U000E0041": 0,
	} {
		assert.Check(t, is.Equal(Width(text), want), "%+q", text)
	}
	s, out := viewScreen(20, true)
	s.Status(strings.Repeat("✅", 20))
	assert.Equal(t, out.takes(), strings.Repeat("✅", 9)+"…")
}

// The environment says what a terminal can do. What is printed on stdout has no secrets, and only on a terminal no
// control characters.
func TestNewScreen(t *testing.T) {
	for live, want := range map[bool]string{true: "a\uFFFD [key]\n", false: "a\x1b [key]\r\n"} {
		s, out := viewScreen(80, live, "planted secret")
		assert.NilError(t, s.Print(Look{Exact: true}, "a\x1b planted secret\r\n"))
		assert.Equal(t, out.takes(), want)
	}
	file, err := os.Open(os.DevNull) // which cannot be written to
	assert.NilError(t, err)
	defer file.Close()
	t.Setenv("TERM", "xterm")
	t.Setenv("NO_COLOR", "")
	t.Setenv("COLUMNS", "132")
	s := NewScreen(file, file)
	assert.Assert(t, !s.Live && !s.Color && !s.Answers, "not a terminal")
	assert.ErrorContains(t, s.Print(Look{Exact: true}, "x"), os.DevNull)
	assert.Equal(t, s.Columns(), 132)
	for _, bad := range []string{"", "-1", "0", "wide"} {
		t.Setenv("COLUMNS", bad)
		assert.Equal(t, s.Columns(), 80)
	}
}

// The secrets of a text are taken out once: what stands in their place stays as it is.
func TestMaskedOnce(t *testing.T) {
	s, out := viewScreen(40, true, "planted secret")
	s.Keep = true
	s.Secrets.Add("[the key phrase]", "another secret")
	s.Secrets.Add("[twice]", "key phrase")
	s.Preview(Look{Style: Faint}, "about", "has another secret\n2\n3\n4\n5\n6")
	assert.Equal(t, out.takes(), "    has [the key phrase]\n    2\n    3\n    4\n    … 2 more lines: /show 1\n")
}

// The last texts that were cut are kept, in bounded memory, without their secrets.
func TestKept(t *testing.T) {
	s, out := viewScreen(20, true, "my secret phrase")
	s.Preview(Look{Style: Faint}, "none", "1\n2\n3\n4\n5\n6")
	assert.Check(t, is.Contains(out.takes(), "\n    … 2 more lines\n"), "without Keep, no number")
	s.Keep = true
	s.Preview(Look{Style: Faint}, "short", "1\n2\n3\n4\n5")
	assert.Check(t, !strings.Contains(out.takes(), "…"))
	for i := 1; i <= maxKept+5; i++ {
		s.Preview(Look{Style: Faint}, fmt.Sprint("about ", i), fmt.Sprint(i, " my secret phrase, and much more"))
		assert.Check(t, is.Contains(out.takes(), fmt.Sprintf("\n    … more: /show %d\n", i)))
	}
	for number, want := range map[string]int{"": maxKept + 5, "6": 6, "25": 25} {
		kept, err := s.kept.find(number)
		assert.NilError(t, err)
		assert.Equal(t, kept.about+": "+kept.text, fmt.Sprintf("about %d: %[1]d [key], and much more", want))
	}
	for _, number := range []string{"5", "26", "0", "-1", "one"} {
		_, err := s.kept.find(number)
		assert.ErrorContains(t, err, "the last number is 25", number)
	}
	assert.Equal(t, s.KeepText("of my secret phrase", "a my secret phrase"), ": /show 26")
	kept, err := s.kept.find("26")
	assert.NilError(t, err)
	assert.Equal(t, kept, keptText{"of [key]", "a [key]"})
	s.Preview(Look{Style: Faint}, "large", strings.Repeat("x", 2*maxKeptText))
	kept, _ = s.kept.find("")
	assert.Check(t, len(kept.text) < maxKeptText+100)
}
