package main

import (
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"gotest.tools/v3/assert"
)

// chatScreen is a chat of the program on a terminal of 60 columns and 20 rows, and the screen that it must leave: what
// was typed and answered, each text in one piece.
type chatScreen struct {
	t          *testing.T
	program    *programRun
	seen, want *vt
	read       int             // of what the program has written, in bytes
	replies    chan modelReply // of the model
	calls      int             // that have run
	answers    int             // that have ended
}

// settle waits until the screen is as it must be, with this text added. Only the end compares what has been scrolled
// off: that takes long.
func (c *chatScreen) settle(added string) {
	c.t.Helper()
	_, _ = c.want.Write([]byte(added))
	same := func(a, b []cell) bool { return slices.Equal(a, b) }
	c.until(func() bool {
		v, w := c.seen, c.want
		return v.row == w.row && v.column == w.column && len(v.above) == len(w.above) &&
			slices.EqualFunc(v.screen, w.screen, same)
	})
}

// until waits for a state of the screen.
func (c *chatScreen) until(done func() bool) {
	c.t.Helper()
	late := time.After(c.program.patience)
	for {
		c.program.log.mu.Lock()
		text := slices.Clone(c.program.log.text.Bytes()[c.read:])
		c.program.log.mu.Unlock()
		c.read += len(text)
		_, _ = c.seen.Write(text)
		if done() {
			return
		}
		select {
		case <-c.program.log.grown:
		case <-late:
			row, column := c.seen.Cursor()
			c.t.Fatalf("the cursor is at %d, %d of\n%s\n\nand the screen must be\n%s", row, column,
				strings.Join(c.seen.Rows(), "\n"), strings.Join(c.want.Rows(), "\n"))
		}
	}
}

func (c *chatScreen) resize(columns, rows int) {
	c.seen.Resize(columns, rows)
	c.want.Resize(columns, rows)
	size := [4]uint16{uint16(rows), uint16(columns)}
	assert.NilError(c.t, terminalCall(c.program.keyboard, syscall.TIOCSWINSZ, unsafe.Pointer(&size)))
}

func (c *chatScreen) keys(text string) {
	_, err := c.program.keyboard.WriteString(text)
	assert.NilError(c.t, err)
}

// typed is what the window shows of a text that was typed after "> ".
func (c *chatScreen) typed(text string) (shown string) {
	used := 2
	for _, r := range text {
		if used+runeWidth(r) >= c.want.columns {
			shown, used = shown+"\n  ", 2
		}
		shown, used = shown+string(r), used+runeWidth(r)
	}
	return shown
}

// answerTook matches the line below an answer.
var answerTook = regexp.MustCompile(`\x1b\[2m(?:\d+ tokens · 1 tool call · )?[0-9.]+m?s\x1b\[0m`)

// answered is what the window shows of an answer, the line below it, and the next prompt.
func (c *chatScreen) answered(text string) string {
	c.t.Helper()
	took := c.matches(answerTook, c.answers)
	c.answers++
	m := newMarkdown(c.want.columns, true)
	return m.write(text, true) + "\n\n" + string(took[0]) + "\n\n\x1b[1m>\x1b[0m "
}

// matches waits until the program has written what matches more than n times, and returns the next one.
func (c *chatScreen) matches(pattern *regexp.Regexp, n int) [][]byte {
	c.t.Helper()
	var found [][][]byte
	c.until(func() bool {
		c.program.log.mu.Lock()
		defer c.program.log.mu.Unlock()
		found = pattern.FindAllSubmatch(c.program.log.text.Bytes(), -1)
		return len(found) > n
	})
	return found[n]
}

// ask types a question and waits for the answer.
func (c *chatScreen) ask(keys, text, answer string, size int) {
	c.t.Helper()
	c.keys(keys)
	c.settle(c.typed(text))
	c.replies <- modelPieces{answer, size, nil}
	c.keys("\r")
	c.settle("\n" + c.answered(answer))
}

// modelPieces is an answer that is streamed in pieces of so many characters. It waits for the end of held, if not nil,
// in its middle.
type modelPieces struct {
	text string
	size int
	held chan struct{}
}

func (p modelPieces) reply(w http.ResponseWriter, _ *modelRequest) {
	w.Header().Set("Content-Type", "text/event-stream")
	event := func(text, end string) {
		const form = `data: {"choices":[{"index":0,"delta":{"content":%s},"finish_reason":%s}]}` + "\n\n"
		fmt.Fprintf(w, form, modelJSON(text), end)
	}
	sent, text := 0, []rune(p.text)
	for piece := range slices.Chunk(text, p.size) {
		event(string(piece), "null")
		if sent += p.size; sent%20 == 0 || p.held != nil && sent >= len(text)/2 {
			_ = http.NewResponseController(w).Flush()
		}
		if p.held != nil && sent >= len(text)/2 {
			<-p.held
			p.held = nil
		}
	}
	event("", `"stop"`)
	fmt.Fprint(w, "data: [DONE]\n\n")
}

// A long chat leaves no cell of its screen, and of what has been scrolled off, other than it must be.
func TestLongChat(t *testing.T) {
	self, err := os.Executable()
	assert.NilError(t, err)
	c := &chatScreen{t: t, seen: newVT(60, 20), want: newVT(60, 20), replies: make(chan modelReply, 9)}
	model := newModelServer(t)
	model.Rest = modelFunc(func(*modelRequest) modelReply { return <-c.replies })
	home := t.TempDir()
	assert.NilError(t, os.Symlink(self, home+"/peer"))
	c.program = newProgram(t, home, append(programEnvironment(home), "TERM=xterm", "MISTRAL_API_KEY="+scriptKey,
		"MISTRAL_BASE_URL="+model.URL, "MISTRAL_MODEL=mistral-small", "MCP_SERVER=MCPAGENT_CHILD=peer-tools ./peer"))
	c.program.patience = 10 * time.Second
	assert.NilError(t, c.program.openTerminal(60))
	c.resize(60, 20)
	assert.NilError(t, c.program.start())

	// The first question waits for the server. What was shown before it depends on how fast that is.
	c.replies <- modelPieces{"Ready.", 9, nil}
	c.keys("ready?\r")
	ready := regexp.MustCompile(`Ready\.\n\n\S+\n\n>$`)
	c.until(func() bool { return c.seen.column == 2 && ready.MatchString(strings.TrimSpace(c.seen.Text())) })
	c.answers++
	c.seen.above = nil
	for i, row := range c.seen.screen {
		c.want.screen[i] = slices.Clone(row)
	}
	c.want.row, c.want.column = c.seen.row, c.seen.column

	parts := []string{
		"# A *heading*\n\nA paragraph with **bold** words, `code`, a [link](https://example.com/a_b) and snake_case, " +
			"long enough to fold.",
		"1. one\n   - nested, and long enough that this item goes on in a second row\n   - 日本語の項目\n2. two",
		"| Name | What |\n|---|---|\n" +
			"| `a` | 日本語の説明は二つの列を使いますから、" +
			"この欄は折り返されます |\n| **b** | x |",
		"```go\nfunc main() {\n\tfmt.Println(\"a line of code that is longer than the window is wide\")\n}\n```",
		"> A quotation that goes on for longer than one row of the window has room for.\n\n---\n",
		"日本語の文章も正しく折り返されるべきです。" +
			"幅の広い文字は二つの列を使います 🎉👍 2*3*4 * alone, _not closed",
	}
	answer := func(i int) string {
		return parts[i%6] + "\n\n" + parts[i/6%6] + fmt.Sprintf("\n\nEnd %d.", i)
	}
	said := []string{"ready?"}
	for i := range 60 {
		size, text := i%12+1, fmt.Sprintf("question %d", i)
		switch i % 10 {
		case 0, 5: // a call that is allowed
			c.call(i, text)
		case 1: // edited in the middle of its rows
			text = fmt.Sprint(i, " 日本語の文章をここに書いて、幅の広い文字が行の終わりで",
				"正しく折り返されるか and words that make it longer")
			typed := []rune(text)
			c.keys(string(typed[:20]) + string(typed[26:]) + "xyz\x7f\x7f\x7f\x1b[A\x1b[H")
			c.keys(strings.Repeat("\x1b[C", 20) + string(typed[20:26]))
			c.until(func() bool { return strings.Contains(c.seen.Text(), string(typed[20:26])) })
			c.ask("\x05", text, answer(i), size)
		case 2: // pasted
			lines := strings.TrimSuffix(strings.Repeat(fmt.Sprintf("line %d\r", i), 120), "\r")
			text += " " + strings.ReplaceAll(lines, "\r", "\n")
			shown := fmt.Sprintf("question %d [pasted 120 lines]", i)
			c.ask(fmt.Sprint("question ", i, " \x1b[200~", lines, "\x1b[201~"), shown, answer(i), size)
		case 3: // from the history
			text = said[len(said)-2]
			c.ask("draft\x1b[A\x1b[A", text, answer(i), size)
		case 4: // a window of another size
			c.keys("wi")
			c.settle("wi")
			c.resize(60+i%4*15, 20+i%3*5)
			c.ask("der", "der", answer(i), size)
			text = "wider"
		case 6: // typed ahead, while the answer comes
			c.keys(text)
			c.settle(text)
			held := make(chan struct{})
			c.replies <- modelPieces{answer(i), size, held}
			c.keys("\r")
			c.keys("typed 日本")
			close(held)
			c.settle("\n" + c.answered(answer(i)) + "typed 日本")
			c.ask(" ahead", " ahead", "Yes.", 1)
			said, text = append(said, text), "typed 日本 ahead"
		case 7: // a note above the prompt
			c.keys("some words /\x1b[D\x15\x1b[C")
			c.settle("/")
			c.keys("s\t")
			c.settle("\r\x1b[J\x1b[2m/servers  /show  /save\x1b[0m\n\x1b[1m>\x1b[0m /s")
			c.ask("\x15"+text, "\r\x1b[J\x1b[1m>\x1b[0m "+text, answer(i), size)
		case 8: // several lines
			c.keys(text + "\\\rtwo\x1b\rthreexy")
			c.settle(text + "\n  two\n  threexy")
			c.keys("\x7f\x7f\x1b[A\x1b[A\x1b[B\x1b[B")
			c.ask("\x1b[F", "\b\b  \b\b", answer(i), size)
			text += "\ntwo\nthree"
		case 9: // given up
			c.keys("given upx")
			c.settle("given upx")
			c.keys("\x7f")
			c.settle("\b \b")
			c.keys("\x03")
			c.settle("\n\x1b[2m(cancelled; Ctrl-C once more ends the chat)\x1b[0m\n\n\x1b[1m>\x1b[0m ")
			c.ask(text, text, answer(i), size)
		}
		said = append(said, text)
	}
	c.keys("\x04")
	assert.Equal(t, c.program.end(), 0)
	c.settle("\n\x1b[2m(this chat is kept: mcpagent -c goes on with it)\x1b[0m\n")
	assert.Equal(t, c.seen.Styled(), c.want.Styled())
	assert.Assert(t, !c.seen.paste, "what is pasted is marked no longer")
	assert.Assert(t, len(c.seen.above) > 800, "%d rows", len(c.seen.above))
	assert.Equal(t, c.seen.wraps, c.want.wraps, "the terminal breaks nothing but long lines of code")
}

var callTook = regexp.MustCompile(`✓ \S+ \((\S+), `)

// call asks a question for which the model calls a tool, which the user allows.
func (c *chatScreen) call(i int, text string) {
	c.t.Helper()
	c.keys(text)
	c.settle(text)
	words := fmt.Sprintf("call %d: 日本語\nand a second line", i)
	arguments := fmt.Sprintf(`{"text":%q}`, words)
	c.replies <- modelCalls(modelCall(fmt.Sprintf("call%05d", i), "echo", arguments))
	c.replies <- modelPieces{"It *said* so.", i%5 + 1, nil}
	c.keys("\r")
	lines := strings.Split(words, "\n")
	question := `Call "echo" of "peer"? [y]es / [n]o / [a]lways this tool / [k]eep for later runs / [e]dit / ` +
		"answer in its [p]lace:"
	c.settle("\n\x1b[1mThe model wants to call\x1b[0m\n  server     peer\n  tool       echo\n" +
		"  arguments  {\"text\":(text 1)}\n  text 1\n  │ " + strings.Join(lines, "\n  │ ") + "\n" +
		Fold(question, c.want.columns) + " ")
	c.keys("y\r")
	took := c.matches(callTook, c.calls)
	line := fmt.Sprintf(`✓ peer:echo (%s, %s) %s`, took[1], Plural(len(words), "byte"), arguments)
	c.calls++
	c.settle("y\n\n\x1b[32m" + fit(line, c.want.columns) + "\x1b[0m\n\x1b[2m    " + lines[0] + "\x1b[0m\n\x1b[2m    " +
		lines[1] + "\x1b[0m\n\n" + c.answered("It *said* so."))
}
