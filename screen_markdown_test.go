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

func readAnswer(t testing.TB, name string) string {
	answer, err := os.ReadFile("testdata/markdown/" + name)
	assert.NilError(t, err)
	return string(answer)
}

// An answer with all that models write looks well in windows of three widths, and the same in whatever pieces it comes.
// (-update writes the screens.)
func TestMarkdown(t *testing.T) { testMarkdown(t, "answer.md", "", 40, 80, 200) }

// So does one whose lines a model broke.
func TestMarkdownBroken(t *testing.T) { testMarkdown(t, "demo.md", "demo-", 40, 80, 120) }

func testMarkdown(t *testing.T, file, prefix string, widths ...int) {
	answer := readAnswer(t, file)
	for _, columns := range widths {
		for name, color := range map[string]bool{"": true, "-plain": false} {
			screen := func(size func(string) int) string {
				window := newVT(columns, 24)
				answerOn(window, color, false, answer, size)
				return window.Styled() + "\n"
			}
			shown := screen(whole)
			golden.Assert(t, shown, fmt.Sprintf("markdown/%s%d%s.txt", prefix, columns, name))
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
		"-5 degrees", "a | b", "&copy=1 & &nosuchname;", "!important [", "] (x)", "**", "a ****", "int *a, *b;", "5 > 4",
		"SELECT * FROM t WHERE a_b = c_d", "*a", "**a*", "price*", "`", "``", "[a](b", "100%", "| alone", "$x", "\\(x",
		"[a]()", "[a](b c)", "list[i](x)", "<std::vector>", "<a@b", "~5 km", "a~~b", "~~open", "C:\\Users\\", "wow!",
	} {
		for _, color := range []bool{true, false} {
			window := newVT(80, 4)
			answerOn(window, color, false, text, whole)
			assert.Check(t, is.Equal(window.Styled(), text))
		}
	}
}

// laidOut is what a window of 40 columns shows of an answer. It is the same in pieces of one character.
func laidOut(t *testing.T, answer string, color bool) string {
	window, pieces := newVT(40, 24), newVT(40, 24)
	answerOn(window, color, false, answer, whole)
	answerOn(pieces, color, false, answer, func(string) int { return 1 })
	assert.Check(t, is.Equal(pieces.Styled(), window.Styled()), "%q", answer)
	return window.Styled()
}

// The lines of a paragraph are joined. What begins something else does not go on with one.
func TestMarkdownLines(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{"one\ntwo\n   three", "one two three"},
		{"one \n two\n\nthree", "one two\n\nthree"},
		{"one\n\n\ntwo", "one\n\n\ntwo"},
		{"one  \ntwo   \nthree", "one\ntwo\nthree"},
		{"one\\\ntwo", "one\ntwo"},
		{"one\\", "one\\"},
		{"C:\\\n\ntwo", "C:\\\n\ntwo"},
		{"one\n# two\nthree\nfour", "one\n⟨1;4⟩two⟨⟩\nthree four"},
		{"one\n- two\nthree\n  four\n- five", "one\n• two three four\n• five"},
		{"one\n4. two\n5. three", "one\n4. two\n5. three"},
		{"born in\n1984. And so on", "born in 1984. And so on"},
		{"1999. one\n2000. two", "1999. one\n2000. two"},
		{"> one\n> two\nthree\n\nfour", "│ one two three\n\nfour"},
		{"> one\n>> two\n> three\n>\n> four", "│ one\n│ │ two three\n│\n│ four"},
		{"> - one\n>   two\n> - three", "│ • one two\n│ • three"},
		{"one\n> two", "one\n│ two"},
		{">> one\n> - two", "│ │ one\n│ • two"},
		{"one\n---\ntwo\n===", "one\n" + strings.Repeat("─", 40) + "\ntwo\n" + strings.Repeat("─", 40)},
		{"one\n| a |\n|---|\ntwo", "one\n⟨1⟩a⟨⟩\n─\ntwo"},
		{"one\n| a\ntwo", "one\n| a\ntwo"},
		{"> | a |\n> | b |\n> c", "│ | a |\n│ | b |\n│ c"},
		{"one\n    two", "one two"},
		{"- one\n\n    two\n    three", "• one\n\n    two three"},
		{"one\n$$\na &= b \\\\\nc\n$$\ntwo", "one\n$$\na &= b \\\\\nc\n$$\ntwo"},
		{"日本\n語です。\nはい\nabc\n語", "日本語です。はい abc 語"},
		{"a **b\nc** d `e\nf`", "a ⟨1⟩b c⟨⟩ d ⟨36⟩e f⟨⟩"},
		{"a *b\n\nc* d", "a *b\n\nc* d"},
		{"one\n*two* three", "one ⟨3⟩two⟨⟩ three"},
		{"one\n**two** three\n-5 degrees", "one ⟨1⟩two⟨⟩ three -5 degrees"},
	} {
		assert.Check(t, is.Equal(laidOut(t, test.text, true), test.want), "%q", test.text)
	}
}

// A link shows where it leads, whatever its text says, with and without styles. Entities and addresses are what they
// stand for, but in code; nothing that a terminal obeys comes from them.
func TestMarkdownLinks(t *testing.T) {
	for _, test := range []struct{ text, want, plain string }{
		{"a [b c](https://d.e/f_g_h), i", "a b c ⟨2⟩(https://d.e/f_g_h)⟨⟩, i", "a b c (https://d.e/f_g_h), i"},
		{`[a](b "c d") [e](<f>) [g](h 'i')`, "a ⟨2⟩(b)⟨⟩ e ⟨2⟩(f)⟨⟩ g ⟨2⟩(h)⟨⟩", "a (b) e (f) g (h)"},
		{"[https://a.b](https://c.d)", "https://a.b ⟨2⟩(https://c.d)⟨⟩", "https://a.b (https://c.d)"},
		{"[https://a.b](https://a.b)", "https://a.b", "https://a.b"},
		{"<https://a.b/c_d_e> <x@y.z> <mailto:a@b.c>", "https://a.b/c_d_e x@y.z mailto:a@b.c", ""},
		{"[x@y.z](mailto:x@y.z)", "x@y.z", "x@y.z"},
		{"![a](b.png) ![](c.png)", "a ⟨2⟩(b.png)⟨⟩ c.png", "a (b.png) c.png"},
		{"[![a](b)](c)", "a ⟨2⟩(b) (c)⟨⟩", "a (b) (c)"},
		{"[a](b_(c))", "a ⟨2⟩(b_(c))⟨⟩", "a (b_(c))"},
		{"[**a** `b`](c)", "⟨1⟩a⟨⟩ ⟨36⟩b⟨⟩ ⟨2⟩(c)⟨⟩", "**a** `b` (c)"},
		{"**[a](b)** *c*", "⟨1⟩a⟨⟩ ⟨2⟩(b)⟨⟩ ⟨3⟩c⟨⟩", "**a (b)** *c*"},
		{"[a\nb](c)", "a b ⟨2⟩(c)⟨⟩", "a b (c)"},
		{"[a](b?c&amp;d) [e](f\\_g)", "a ⟨2⟩(b?c&d)⟨⟩ e ⟨2⟩(f_g)⟨⟩", "a (b?c&d) e (f_g)"},
		{"`[a](b) &amp;` <https://a.b", "⟨36⟩[a](b) &amp;⟨⟩ <https://a.b", "`[a](b) &amp;` <https://a.b"},
		{"&amp; &lt;b&gt; &#39; &mdash; &#x41; &nosuch;", "& <b> ' — A &nosuch;", "& <b> ' — A &nosuch;"},
		{"&#42;a&#42; &amp;lt;", "*a* &lt;", "*a* &lt;"},
		{"a&#27;[31mb&#x202E;c&#7;&#10;d", "a\uFFFD[31mb\uFFFDc\uFFFD d", "a\uFFFD[31mb\uFFFDc\uFFFD d"},
		{"[a](b&#27;[2J)", "a ⟨2⟩(b\uFFFD[2J)⟨⟩", "a (b\uFFFD[2J)"},
		{"is ~~not~~ so, ~5 ~6", "is ⟨2⟩~~⟨⟩⟨2;9⟩not⟨⟩⟨2⟩~~⟨⟩ so, ~5 ~6", "is ~~not~~ so, ~5 ~6"},
	} {
		assert.Check(t, is.Equal(laidOut(t, test.text, true), test.want), "%q", test.text)
		if test.plain == "" {
			test.plain = test.want
		}
		assert.Check(t, is.Equal(laidOut(t, test.text, false), test.plain), "%q", test.text)
	}
}

// An address that is longer than a row is one text for the terminal: it is copied whole.
func TestMarkdownLongLink(t *testing.T) {
	address := "https://example.com/" + strings.Repeat("path/", 20)
	m := newMarkdown(40, true)
	assert.Assert(t, is.Contains(styles.ReplaceAllString(m.write("see [the page]("+address+").", true), ""), address))
}

// Code is shown without its fences, as it was written: no mark, no blank at the end of a line, and lines that the
// terminal breaks. So it is copied as it was written. Without styles it is indented.
func TestMarkdownCode(t *testing.T) {
	long := "x = " + strings.Repeat("word ", 20) + "y"
	deep := strings.Repeat(" ", 30) + "deep"
	for _, test := range []struct{ text, want string }{
		{"one:\n```\n a  b \n\nc\n```\ntwo\nthree", "one:\n a  b\n\nc\ntwo three"},
		{"~~~ text\n```\n~~~", "```"},
		{"````\n```\n````\n", "```"},
		{"```\n" + long + "\n" + deep + "\n```", long + "\n" + deep},
		{"- one\n  ```sh\n  two\n    three\n  ```\n- four", "• one\ntwo\n  three\n• four"},
		{"1. ```\n   one\n   ```\n2. two", "1.\none\n2. two"},
		{"> ```\n> one\n>\n>   two\n> ```\n> three", "│ one\n│\n│   two\n│ three"},
		{"> ```\n> one\ntwo\nthree", "│ one\ntwo three"},
		{"one\n\n    two *a*\n    &lt;\n\nthree", "one\n\ntwo *a*\n&lt;\n\nthree"},
		{"```\n# *one*\n- [a](b)\n> c\n| d |\n```", "# *one*\n- [a](b)\n> c\n| d |"},
		{"```\none", "one"},
		{"```\n\tone\n```", "    one"},
	} {
		for _, color := range []bool{true, false} {
			pieces, all := newMarkdown(40, color), ""
			for _, r := range test.text {
				all += pieces.write(string(r), false)
			}
			all += pieces.write("", true)
			m := newMarkdown(40, color)
			got := m.write(test.text, true)
			assert.Check(t, is.Equal(styles.ReplaceAllString(all, ""), styles.ReplaceAllString(got, "")))
			if color {
				got = strings.NewReplacer("│ \n", "│\n", "1. \n", "1.\n").Replace(styles.ReplaceAllString(got, ""))
				assert.Check(t, is.Equal(got, test.want), "%q", test.text)
			}
		}
	}
	assert.Equal(t, laidOut(t, "one\n```sh\ntwo\n\n  three\n```\nfour", false), "one\n  two\n\n    three\nfour")
}

// The colors of code follow a few rules, by its language.
func TestMarkdownColors(t *testing.T) {
	for _, test := range []struct{ language, line, want string }{
		{"", `if "x" # 1`, `⟨36⟩if "x" # 1⟨⟩`},
		{"text", "it's", "⟨36⟩it's⟨⟩"},
		{"python", `if x != "a # b": # c "d"`, `⟨1;36⟩if⟨⟩⟨36⟩ x != ⟨⟩⟨35⟩"a # b"⟨⟩⟨36⟩: ⟨⟩⟨2;36⟩# c "d"⟨⟩`},
		{"Go", "x.for(10) // y", "⟨36⟩x.for(⟨⟩⟨35⟩10⟨⟩⟨36⟩) ⟨⟩⟨2;36⟩// y⟨⟩"},
		{"sh", "curl https://a.b#c $#", "⟨36⟩curl https://a.b#c $#⟨⟩"},
		{"js", "a /* if\nb */ if", "⟨36⟩a ⟨⟩⟨2;36⟩/* if⟨⟩\n⟨2;36⟩b */⟨⟩⟨36⟩ ⟨⟩⟨1;36⟩if⟨⟩"},
		{"py", "'''if\nif'''\nif", "⟨35⟩'''if⟨⟩\n⟨35⟩if'''⟨⟩\n⟨1;36⟩if⟨⟩"},
		{"sql", "SELECT 'a' -- b\nselect", "⟨1;36⟩SELECT⟨⟩⟨36⟩ ⟨⟩⟨35⟩'a'⟨⟩⟨36⟩ ⟨⟩⟨2;36⟩-- b⟨⟩\n⟨36⟩select⟨⟩"},
		{"json", `{"a": [1.5, true, "b`, `⟨36⟩{⟨⟩⟨35⟩"a"⟨⟩⟨36⟩: [⟨⟩⟨35⟩1.5⟨⟩⟨36⟩, ⟨⟩⟨1;36⟩true⟨⟩⟨36⟩, "b⟨⟩`},
	} {
		got := laidOut(t, "```"+test.language+"\n"+test.line+"\n```", true)
		assert.Check(t, is.Equal(got, test.want), "%q", test.line)
	}
}

// The cells of a table stand in their columns as the row below the head says, and a tag breaks their lines.
func TestMarkdownAlignment(t *testing.T) {
	const table = "| left | mid | right | none |\n|:--|:-:|--:|---|\n| a | b | c | d |\n| e<br>ff | long mid | 10 |\n"
	assert.Equal(t, laidOut(t, table, false), "left │   mid    │ right │ none\n─────┼──────────┼───────┼─────\n"+
		"a    │    b     │     c │ d\ne    │ long mid │    10 │\nff   │          │       │")
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
		{"```\ncode\nco ", "code"},
		{"```\n" + strings.Repeat("x", maxSpan+1), strings.Repeat("x", maxSpan)},
		{"a b\n", "a"},
		{"a b\nc ", "a b c"},
		{"a b\n- ", "a"},
		{"a b\n| c |\n", "a b"},
		{"a b  \nc ", "a b \n c"},
		{"a ~~b c", "a"},
		{"a [b c](d", "a"},
		{"a [b c](d) ", "a b c (d)"},
		{"a &am", "a"},
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

// Code in a quote does not end where its next line has begun to come.
func TestMarkdownQuotedCodeStreams(t *testing.T) {
	for _, text := range []string{
		"> > ```\n> > code\n> > more\n> > ```\n> > x\n",
		"> ```\n > code\n > more\n> ```\nx\n",
		"> ```\n> code\nx\n",
	} {
		one, many := newVT(40, 9), newVT(40, 9)
		answerOn(one, true, false, text, whole)
		answerOn(many, true, false, text, func(string) int { return 1 })
		assert.Equal(t, many.Styled(), one.Styled(), "%q", text)
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
	f.Add(readAnswer(f, "answer.md"), uint8(40), int64(1), true)
	f.Add(readAnswer(f, "demo.md"), uint8(33), int64(1), true)
	f.Add("- **a `b** c`*d***e_f_ [x](y z) |\n\n|a|b|\n|-|-|\n|`c\\|d`|e|\n```\n\t日本 x\n> ```",
		uint8(7), int64(2), true)
	f.Add(">>> > - 1. # x\n```\n> a\n\n$$\n- b\n\\[", uint8(20), int64(3), false)
	f.Add("_*)_\\", uint8(80), int64(4), true)
	f.Add("a\\\\\\\n_b_", uint8(33), int64(5), false)
	f.Add("````x`y`\n0 _\v", uint8(63), int64(6), true)
	f.Add(">>* * * >* * * 00)", uint8(19), int64(7), true)
	f.Add("a  \nb\\\n**c\nd** [e\nf](g) ~~h\ni~~ &lt;&#27;\n> j\nk\n>> l\n1984. m\n\n    n\n\t\to", uint8(20),
		int64(8), true)
	f.Add("\\\n\\\\\na\\\\\\\nb  \n\n$$\n\\begin{x}\n- ```go\n  \"a\n  /* b\n  ```\nc", uint8(9), int64(9), false)
	f.Add("```\n"+strings.Repeat(" ", 401)+"\n"+strings.Repeat("日 ", 300)+"\n```\n> ~~~py\n> '''\n> x\ny\n===",
		uint8(30), int64(10), true)
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
		// Tables are laid out; names of languages and entities, and titles of links, are not shown.
		if !strings.ContainsAny(answer, "|&~`") && !strings.Contains(answer, "](") {
			assert.Equal(t, got, want)
		}
		longest := 0
		for word := range strings.FieldsSeq(Visible(answer)) {
			longest = max(longest, Width(word))
		}
		// The terminal breaks lines of code.
		mayBeCode := strings.ContainsAny(answer, "`~\t") || strings.Contains(answer, "    ")
		assert.Assert(t, one.wraps == 0 || mayBeCode || longest+4 > int(columns)/2)

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
	answer := readAnswer(t, "answer.md")
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
	v.Text("\n```\ncode\n``")
	s.Show(Look{}, "a third note")
	v.Text("`\nThe end")
	v.End()
	rows := "• ⟨1⟩A bold item⟨⟩ of a list that\na note\n  is folded,\n" +
		"sure?\n  and goes on.\n•\nanother note\n  Next\n⟨36⟩code⟨⟩\na third note\nThe end"
	assert.Equal(t, window.Styled(), rows)
}
