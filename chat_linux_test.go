package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

// vtScreen is what a terminal of so many columns shows of an output: all its lines, those included that have scrolled away. It
// knows what the program uses, and nothing more: everything else would be seen.
func vtScreen(columns int, output string) string {
	lines, x, y := [][]rune{nil}, 0, 0
	put := func(r rune, width int) {
		for len(lines[y]) < x {
			lines[y] = append(lines[y], ' ')
		}
		lines[y] = append(lines[y][:x], append([]rune{r}, lines[y][min(x+1, len(lines[y])):]...)...)
		for x++; width > 1; width-- { // the other half of a wide one
			lines[y] = append(lines[y][:x], append([]rune{0}, lines[y][min(x+1, len(lines[y])):]...)...)
			x++
		}
	}
	escape := regexp.MustCompile(`^\x1b\[([0-9;]*)([Km])`)
	for len(output) > 0 {
		if match := escape.FindStringSubmatch(output); match != nil {
			if match[2] == "K" {
				lines[y] = lines[y][:min(x, len(lines[y]))]
			}
			output = output[len(match[0]):]
			continue
		}
		r := []rune(output)[0]
		output = output[len(string(r)):]
		switch {
		case r == '\r':
			x = 0
		case r == '\n':
			if y++; y == len(lines) {
				lines = append(lines, nil)
			}
		case r < ' ' || r == 0x7f:
			put('\u2421', 1) // it is not known
		default:
			if w := runeWidth(r); x+w > columns { // the terminal breaks the line
				x = 0
				if y++; y == len(lines) {
					lines = append(lines, nil)
				}
			}
			put(r, runeWidth(r))
		}
	}
	text := ""
	for _, line := range lines {
		text += strings.TrimRight(strings.ReplaceAll(string(line), "\x00", ""), " ") + "\n"
	}
	return strings.TrimRight(text, "\n") + "\n"
}

func TestVTScreen(t *testing.T) {
	for _, test := range []struct{ output, want string }{
		{"one\r\ntwo\r\n", "one\ntwo\n"},
		{"50%\x1b[K\r100%\x1b[K\r\x1b[Kdone\r\n", "done\n"},
		{"12345678901\r\n", "1234567890\n1\n"},
		{"1234567890\r\nx", "1234567890\nx\n"},
		{"abc\rx", "xbc\n"},
		{"\x1b[1mb\x1b[0m\x1b[2J", "b\u2421[2J\n"},
		{"日本語日本語x\r日", "日本語日本\n日x\n"},
	} {
		assert.Check(t, is.Equal(vtScreen(10, test.output), test.want), "%q", test.output)
	}
}

// chatRun is a chat on a terminal, with two servers: notes, and files, which is asked about nothing.
type chatRun struct {
	*programTerminal
	columns int
}

// newChat starts a chat.
func newChat(t *testing.T, columns int, model *modelServer, variables ...string) *chatRun {
	t.Helper()
	path, err := os.Executable()
	assert.NilError(t, err)
	server := func(more string) string {
		env := map[string]string{"MCPAGENT_CHILD": "prog-tools", "GORACE": strings.TrimPrefix(programRace, "GORACE=")}
		text, err := json.Marshal(map[string]any{"command": path, "env": env})
		assert.NilError(t, err)
		return strings.TrimSuffix(string(text), "}") + more + "}"
	}
	variables = append(programModel(model, "TERM=xterm", "MISTRAL_MODEL=mistral-small"), variables...)
	p := openProgramTerminal(t, uint16(columns), variables)
	config := `{"mcpServers":{"notes":` + server("") + `,"files":` + server(`,"alwaysAllow":["*"]`) + `}}`
	assert.NilError(t, os.WriteFile(filepath.Join(p.home, ".mcp.json"), []byte(config), 0o600))
	p.sit()
	return &chatRun{p, columns}
}

// chatPrompt is what the chat waits with.
const chatPrompt = "\n\x1b[1m>\x1b[0m "

// says waits for the prompt and types lines.
func (c *chatRun) says(lines ...string) {
	c.t.Helper()
	for _, line := range lines {
		c.types(chatPrompt, line+"\n")
	}
}

// screen is what the window shows, without what is different each time; see upTo.
func (c *chatRun) screen(output string) string {
	text := vtScreen(c.columns, output)
	text = regexp.MustCompile(`[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏]`).ReplaceAllString(text, "⠋")
	text = regexp.MustCompile(`mcpagent-\d+`).ReplaceAllString(text, "mcpagent-NUMBER")
	return programSteady(text)
}

// upTo is the output until it had what matches the pattern for the first time.
func (c *chatRun) upTo(pattern string) string {
	c.t.Helper()
	late := 0
	for {
		all := c.stderr.String()
		if at := regexp.MustCompile(pattern).FindStringIndex(all); at != nil {
			return all[:at[1]]
		}
		<-c.stderr.grown
		if late++; late > 10_000 {
			c.t.Fatalf("the screen never had %q:\n%s", pattern, all)
		}
	}
}

// leaves ends the chat and returns all that was on the screen.
func (c *chatRun) leaves() string {
	c.t.Helper()
	status, _ := c.answer(chatPrompt, "\x04")
	assert.Equal(c.t, status, 0)
	return c.screen(c.stderr.String())
}

// isScreen compares screens with a golden one; with -rewrite it makes that.
func (c *chatRun) isScreen(name string, screens ...string) {
	c.t.Helper()
	path := filepath.Join("testdata", "screens", fmt.Sprintf("%s-%d.txt", name, c.columns))
	got := strings.Join(screens, strings.Repeat("~", c.columns)+"\n")
	for i, line := range strings.Split(got, "\n") {
		assert.Check(c.t, width(line) <= c.columns, "line %d is too long: %s", i+1, line)
	}
	if *rewriteTranscripts {
		assert.NilError(c.t, os.WriteFile(path, []byte(got), 0o644))
		return
	}
	want, err := os.ReadFile(path)
	assert.NilError(c.t, err)
	assert.Equal(c.t, got, string(want))
}

// chatWidths runs a test in both windows.
func chatWidths(t *testing.T, test func(t *testing.T, columns int)) {
	checkLeaks(t)
	for _, columns := range []int{80, 200} {
		t.Run(fmt.Sprint(columns), func(t *testing.T) { test(t, columns) })
	}
}

const chatAnswer = `It took a while, but it is done. Of the two halves, the first was the longer one, and the second the shorter; together they were as long as they had to be.

- The first half came with a message, which the bar showed for as long as nothing newer was there to be shown.
- The second half did not.

` + "```go\nfmt.Println(\"this line is code, and stays as it is however long it may be, in whatever window it is shown\")\n```"

// A question with a call that tells of its progress, on a server that need not be asked about.
func TestChatScreenProgress(t *testing.T) {
	chatWidths(t, func(t *testing.T, columns int) {
		model := newModelServer(t, modelAnswer{Content: "I will have a look.", Calls: []ToolCall{modelCall("aaaaaaaa1", "files__slow", `{}`)}}, modelText(chatAnswer+"\n\n"))
		c := newChat(t, columns, model)
		c.says("How slow is it?")
		halfway := c.screen(c.upTo(`50% half way\x1b\[K`))
		c.isScreen("progress", halfway, c.leaves())
	})
}

// Calls that the user is asked about: once each, and then never again.
func TestChatScreenApproval(t *testing.T) {
	chatWidths(t, func(t *testing.T, columns int) {
		evil := `{"text":"a\u001b[31m\u202e\u200b\u0062","to": "` + strings.Repeat("everybody, ", 8) + `\ud83d\ude00","n":1e3}`
		model := newModelServer(t, modelCalls(modelCall("aaaaaaaa1", "notes__echo", evil)), modelCalls(modelCall("aaaaaaaa2", "notes__image", `{}`)),
			modelCalls(modelCall("aaaaaaaa3", "notes__echo", `{"text":"1\n2\n3\n4\n5\n6\n7\n8"}`)), modelCalls(modelCall("aaaaaaaa4", "notes__fail", `{}`)), modelText("All said."))
		c := newChat(t, columns, model)
		c.says("Say it.")
		c.types("its [p]lace: ", "perhaps\n", "its [p]lace: ", "a\n", "its [p]lace: ", "y\n", "its [p]lace: ", "s\n")
		c.isScreen("approval", c.leaves())
		requests := model.Requests()
		assert.Equal(t, requests[1].Last(), "a\x1b[31m\u202e\u200bb")
		assert.Equal(t, requests[4].Last(), "Error: the disk is full")
	})
}

// A call that the user does not want, one that they change, and one that they answer.
func TestChatScreenRefusal(t *testing.T) {
	chatWidths(t, func(t *testing.T, columns int) {
		model := newModelServer(t, modelCalls(modelCall("aaaaaaaa1", "notes__echo", `{"text":"no"}`), modelCall("aaaaaaaa2", "notes__notes_read", `{"name":"n1","zone":"x"}`),
			modelCall("aaaaaaaa3", "notes__fail", `{}`)), modelText("Very well."))
		c := newChat(t, columns, model)
		c.says("Say it.")
		c.types("its [p]lace: ", "n\n", "its [p]lace: ", "e\n", "change: ", "name=n2\n", "change: ", "line\n", "change: ", "line=3\n", "change: ", "\n",
			"its [p]lace: ", "y\n", "its [p]lace: ", "p\n", "goes back): ", "It did \\\n", "… ", "not fail.\n")
		c.isScreen("refusal", c.leaves())
		messages := model.Requests()[1].Messages
		var told []string
		for _, m := range messages[len(messages)-3:] {
			told = append(told, m.Content.Text())
		}
		assert.DeepEqual(t, told, []string{
			"Error: the call was refused: the user said no",
			"(The user changed the arguments of this call to {\"name\":\"n2\",\"zone\":\"x\",\"line\":3}.)\nthe note n2",
			"It did \nnot fail.",
		})
		assert.Equal(t, messages[len(messages)-4].ToolCalls[1].Arguments, `{"name":"n1","zone":"x"}`, "the history has the model's own")
	})
}

// Ctrl-C ends the turn, and the conversation goes on.
func TestChatScreenCancel(t *testing.T) {
	chatWidths(t, func(t *testing.T, columns int) {
		model := newModelServer(t, modelCalls(modelCall("aaaaaaaa1", "files__hang", `{}`)), modelText("I am here."))
		c := newChat(t, columns, model)
		c.says("Do hang.")
		hanging := c.screen(c.upTo(`files hang\x1b\[K`))
		c.types("files hang", "\x03")
		c.says("Are you there?")
		c.isScreen("cancel", hanging, c.leaves())
		messages := model.Requests()[1].Messages
		assert.Equal(t, messages[len(messages)-2].Content.Text(), cutOff)
		assert.Equal(t, messages[len(messages)-1].Content.Text(), "Are you there?")
	})
}

// A server asks for a form while its tool runs.
func TestChatScreenForm(t *testing.T) {
	chatWidths(t, func(t *testing.T, columns int) {
		asks := programAsks("q", "elicitation/create", programFields)
		model := newModelServer(t, modelCalls(modelCall("aaaaaaaa1", "files__ask", asks)), modelText("Nice to meet you."))
		c := newChat(t, columns, model)
		c.says("Ask me.")
		c.types("Your name: ", "Ann\n", "age: ", "17\n", "age: ", "18\n", "share [0.5]: ", "\n", "y/n [y]: ", "\n", "[Green]: ", "1\n", "stork]: ", "\n",
			"mail [none]: ", "\n", "change it (n)? ", "y\n")
		c.isScreen("form", c.leaves())
		assert.Check(t, is.Contains(model.Requests()[1].Last(), `"name":"Ann"`))
	})
}
