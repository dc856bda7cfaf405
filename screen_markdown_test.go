package main

import (
	"fmt"
	"io"
	"math/rand"
	"os"
	"strings"
	"testing"
	"unicode"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/golden"
)

// answerOn shows an answer in a window, in pieces: size returns how long the next one is. Each is written to the view,
// as the model's are.
func answerOn(window *vt, color, raw bool, answer string, size func(rest string) int) {
	s := &Screen{Secrets: new(Secrets), Answers: true, Color: color, streams: streams{stderr: io.Discard, stdout: window}}
	s.Columns, s.Rows = func() int { return window.columns }, func() int { return window.rows }
	v := &View{Screen: s, Raw: raw}
	v.Begin("model")
	for answer != "" {
		n := min(max(size(answer), 1), len(answer))
		v.Text(answer[:n])
		answer = answer[n:]
	}
	v.End()
}

func whole(rest string) int { return len(rest) }

func readAnswer(t testing.TB) string {
	answer, err := os.ReadFile("testdata/markdown/answer.md")
	assert.NilError(t, err)
	return string(answer)
}

// An answer with all that models write looks well in windows of three widths, and the same in whatever pieces it comes.
// (-update writes the screens.)
func TestMarkdown(t *testing.T) {
	answer := readAnswer(t)
	for _, columns := range []int{40, 80, 200} {
		for name, color := range map[string]bool{"": true, "-plain": false} {
			screen := func(size func(string) int) string {
				window := newVT(columns, 24)
				answerOn(window, color, false, answer, size)
				return window.Styled() + "\n"
			}
			shown := screen(whole)
			golden.Assert(t, shown, fmt.Sprintf("markdown/%d%s.txt", columns, name))
			assert.Equal(t, screen(func(string) int { return 1 }), shown)
			for seed := range int64(3) {
				random := rand.New(rand.NewSource(seed))
				assert.Equal(t, screen(func(string) int { return 1 + random.Intn(40) }), shown)
			}
		}
	}
}

// With -raw the text goes out as it came, on a terminal, too.
func TestMarkdownRaw(t *testing.T) {
	const text = "# A  *heron*\x1b[1m\r\n| a | b |\n|---|---|\n"
	window := newVT(40, 24)
	answerOn(window, true, true, text, func(string) int { return 1 })
	assert.Equal(t, window.Styled(), "# A  *heron*\uFFFD[1m\n| a | b |\n|---|---|")
}

// What is no markup stays as it was written.
func TestMarkdownText(t *testing.T) {
	for _, text := range []string{
		"snake_case_name, __init__.py and __all__", "2*3*4 and 2 * 3 * 4", "x**2 + y**2", "*.go, src/*.go, lib/*.go",
		"*/5 * * * *", "a lone * and a lone _", "**unclosed", "an `unclosed word", "_unclosed emphasis",
		"<b>tags</b> and <a href=\"x_y_z\">", "$a_1*b*c^*$ and \\(x_1 * y * z\\)", "$5 and *10", "C:\\Users\\name",
		"https://example.com/a_b_/_c_?d=*", "f(**kwargs, **others)", "[1], [^2] and [a][b]", "#no heading", "1.5 times",
		"-5 degrees", "a | b", "&amp; and &lt;", "!important [", "] (x)", "**", "a ****", "int *a, *b;", "5 > 4",
		"SELECT * FROM t WHERE a_b = c_d", "*a", "**a*", "price*", "`", "``", "[a](b", "100%", "| alone", "$x", "\\(x",
	} {
		for _, color := range []bool{true, false} {
			window := newVT(80, 4)
			answerOn(window, color, false, text, whole)
			assert.Check(t, is.Equal(window.Styled(), text))
		}
	}
}

// Words appear while they come, and what is held back is bounded.
func TestMarkdownStreams(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{"Hello wor", "Hello"},
		{"Hello world ", "Hello world"},
		{"# Hello world ", "Hello world"},
		{"- one two ", "• one two"},
		{"> one two ", "│ one two"},
		{"a **bold wo", "a"},
		{"a **bold** ", "a bold"},
		{"2 * 3 * 4 ", "2 * 3 * 4"},
		{"a [1] b c ", "a [1] b c"},
		{"```\ncode co ", "```\ncode co"},
		{"| a | b |\n|---|---|\n| 1 | 2 |\n", ""},
		{"| a | b |\n|---|---|\n| 1 | 2 |\n\nT", "a │ b\n──┼──\n1 │ 2"},
		{"| a\nb c ", "| a\nb c"},
		{"日本語の文章", "日本語の文"},
		{"**" + strings.Repeat("word ", 100), strings.TrimSpace("**" + strings.Repeat("word ", 100))},
	} {
		window, m := newVT(600, 4), newMarkdown(600, true)
		m.columns = 600
		_, _ = io.WriteString(window, strings.ReplaceAll(m.write(test.text, false), "\n", "\r\n"))
		got := strings.Join(strings.Fields(strings.ReplaceAll(window.Text(), "\n", " \n ")), " ")
		want := strings.Join(strings.Fields(strings.ReplaceAll(test.want, "\n", " \n ")), " ")
		assert.Check(t, is.Equal(got, want), "%q", test.text)
	}
}

// A table beyond the bound does not wait for its end, nor does a row.
func TestMarkdownTableBound(t *testing.T) {
	m := newMarkdown(80, true)
	rows := "| a | b |\n|---|---|\n" + strings.Repeat("| 1 | 2 |\n", maxTable/5)
	assert.Assert(t, strings.Contains(m.write(rows, false), "1 │ 2"))
	row := "|" + strings.Repeat(" word", maxTable)
	assert.Assert(t, len(m.write(row, false))+maxTable > len(row))
	assert.Assert(t, len(m.rest)+len(m.rows) <= maxTable)

	m = newMarkdown(80, true) // of many rows, one of which has many columns
	rows = "| a |\n|---|\n" + strings.Repeat("|", maxTable/8) + "\n" + strings.Repeat("| a |\n", maxTable/8)
	allocated := testing.AllocsPerRun(1, func() { m.write(rows+"\n", true) })
	assert.Assert(t, allocated < 100*maxTable, "%.0f allocations", allocated)
}

// In whatever answer and window: the letters are all there, in order, no row is broken by the terminal but within a
// word that is longer than it, no style stays on, and the screen is the same in whatever pieces the text comes.
func FuzzMarkdown(f *testing.F) {
	f.Add(readAnswer(f), uint8(40), int64(1), true)
	f.Add("- **a `b** c`*d***e_f_ [x](y z) |\n\n|a|b|\n|-|-|\n|`c\\|d`|e|\n```\n\t日本 x\n> ```",
		uint8(7), int64(2), true)
	f.Add(">>> > - 1. # x\n```\n> a\n\n$$\n- b\n\\[", uint8(20), int64(3), false)
	f.Add("_*)_\\", uint8(80), int64(4), true)
	f.Add("a\\\\\\\n_b_", uint8(33), int64(5), false)
	f.Add("````x`y`\n0 _\v", uint8(63), int64(6), true)
	f.Add(">>* * * >* * * 00)", uint8(19), int64(7), true)
	f.Fuzz(func(t *testing.T, answer string, columns uint8, seed int64, color bool) {
		columns = max(columns, 4)
		random := rand.New(rand.NewSource(seed))
		one, many := newVT(int(columns), 5), newVT(int(columns), 5)
		answerOn(one, color, false, answer, whole)
		answerOn(many, color, false, answer, func(string) int { return 1 + random.Intn(9) })
		assert.Equal(t, many.Styled(), one.Styled())
		assert.Assert(t, len(one.style) == 0)
		letters := func(r rune) rune {
			if unicode.IsLetter(r) || unicode.IsDigit(r) && r > '9' {
				return r
			}
			return -1
		}
		want := strings.Map(letters, strings.ToValidUTF8(answer, ""))
		got := strings.Map(letters, one.Text())
		if !strings.Contains(answer, "|") { // tables are laid out
			assert.Equal(t, got, want)
		}
		longest := 0
		for word := range strings.FieldsSeq(Visible(answer)) {
			longest = max(longest, Width(word))
		}
		assert.Assert(t, one.wraps == 0 || longest+4 > int(columns)/2)

		m := newMarkdown(int(columns), color)
		for rest := answer; rest != ""; rest = rest[min(7, len(rest)):] {
			m.write(rest[:min(7, len(rest))], false)
			held := len(m.rest) + len(m.rows) + m.word.text.Len()
			assert.Assert(t, held <= maxSpan+maxTable+maxWord+7, "%d", held)
		}
	})
}

// The window's width changes in mid-answer, and other texts come between: no style stays on, and nothing is lost.
func TestMarkdownInterrupted(t *testing.T) {
	answer := readAnswer(t)
	random := rand.New(rand.NewSource(1))
	window := newVT(80, 24)
	answerOn(window, true, false, answer, func(string) int {
		window.Resize(20+random.Intn(100), 24)
		return 1 + random.Intn(200)
	})
	assert.Assert(t, len(window.style) == 0)

	s, _ := viewScreen(30, true)
	window = newVT(30, 24)
	s.stdout, s.stderr, s.user, s.Color = window, window, window, true
	v := &View{Screen: s}
	v.Begin("model")
	v.Text("- **A bold item** of a list that is")
	s.Show(Look{}, "a note")
	v.Text(" folded, and")
	s.ask("sure?", false)
	v.Text(" goes on.\n- Next")
	s.Show(Look{}, "another note")
	s.answered(false)
	v.End()
	rows := "• ⟨1⟩A bold item⟨⟩ of a list that\na note\n  is folded,\n" +
		"sure?\n  and goes on.\n•\nanother note\n  Next"
	assert.Equal(t, window.Styled(), rows)
}
