package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

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

// newChat starts a chat, or asks a question: the words that follow --.
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
	var args []string
	if n := len(variables); n > 0 && strings.HasPrefix(variables[n-1], "-- ") {
		variables, args = variables[:n-1], strings.Fields(variables[n-1])
	}
	variables = append(programModel(model, "TERM=xterm", "MISTRAL_MODEL=mistral-small"), variables...)
	p := openProgramTerminal(t, uint16(columns), variables, args...)
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
	text = programSteady(text)
	return regexp.MustCompile(`(\{.{20}).*…  TIME`).ReplaceAllString(text, "$1 …  TIME") // where it was cut depends on the time
}

// upTo is the output until it had what matches the pattern for the first time.
func (c *chatRun) upTo(pattern string) string {
	c.t.Helper()
	late := time.After(30 * time.Second)
	for {
		all := c.stderr.String()
		if at := regexp.MustCompile(pattern).FindStringIndex(all); at != nil {
			return all[:at[1]]
		}
		select {
		case <-c.stderr.grown:
		case <-late:
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

// chatText is the output without what draws on the terminal.
func chatText(output string) string {
	output = strings.ReplaceAll(output, "\r\n", "\n")
	return regexp.MustCompile("\r[^\r\n]*\x1b\\[K|\x1b\\[\\d*[mK]|\r").ReplaceAllString(output, "")
}

// leavesText is leaves, for what is no picture.
func (c *chatRun) leavesText() string {
	c.t.Helper()
	c.leaves()
	return chatText(c.stderr.String())
}

// What was typed before a question is not its answer; what nobody asked for is the next question.
func TestChatTypedAhead(t *testing.T) {
	checkLeaks(t)
	asked, release := make(chan struct{}), make(chan struct{}, 2)
	model := newModelServer(t,
		modelFunc(func(*modelRequest) modelReply {
			close(asked)
			<-release
			return modelCalls(modelCall("aaaaaaaa1", "notes__echo", `{"text":"1"}`), modelCall("aaaaaaaa2", "notes__echo", `{"text":"2"}`))
		}),
		modelFunc(func(*modelRequest) modelReply {
			<-release
			return modelText("It is said.")
		}), modelText("You are welcome."))
	c := newChat(t, 80, model)
	c.says("Say it.")
	<-asked
	c.types("", "yes\ny\n")
	c.saw("y\n")
	release <- struct{}{}
	c.types("(not taken for an answer, as it was typed before the question: yes y)", "", "its [p]lace: ", "y\ny\n")
	c.types("(not taken for an answer, as it was typed before the question: y)", "", "its [p]lace: ", "n\n")
	c.saw("not run")
	c.types("", "Thanks.\n")
	c.saw("Thanks.\n")
	release <- struct{}{}
	c.saw("It is said.")
	c.saw("You are welcome.")
	c.leaves()
	requests := model.Requests()
	messages := requests[1].Messages
	assert.Equal(t, messages[len(messages)-2].Content.Text(), "1")
	assert.Equal(t, messages[len(messages)-1].Content.Text(), "Error: the call was refused: the user said no")
	assert.Equal(t, requests[2].Last(), "Thanks.")
	assert.Equal(t, len(requests), 3)
}

// Several lines are one question: after a backslash, or pasted at once. What begins with a slash can be one.
func TestChatLines(t *testing.T) {
	checkLeaks(t)
	model := programAlways(t, modelText("Yes."))
	c := newChat(t, 80, model)
	c.says("one\\")
	c.types("… ", "two\\\n", "… ", "three\n")
	c.says("pasted\n/quit\n\nlines")
	c.says(" /etc/hosts?", "//help me", "/helpp", "/tmp is what?", "")
	text := c.leavesText()
	var asked []string
	for _, r := range model.Requests() {
		asked = append(asked, r.Last())
	}
	assert.DeepEqual(t, asked, []string{"one\ntwo\nthree", "pasted\n/quit\n\nlines", "/etc/hosts?", "/help me"})
	assert.Check(t, is.Contains(text, "there is no command /helpp; did you mean /help?\n(put a space before a question that begins with a slash)\n"))
	assert.Check(t, is.Contains(text, "there is no command /tmp; /help names those that there are\n"))
}

// The first Ctrl-C ends what is going on, the next one the chat, unless something was entered meanwhile.
func TestChatInterrupts(t *testing.T) {
	checkLeaks(t)
	hang := modelCalls(modelCall("aaaaaaaa1", "files__hang", `{}`))
	const hint = "(Ctrl-C once more, Ctrl-D or /quit ends the chat)"
	interrupted := func(c *chatRun) string {
		t.Helper()
		status, _ := c.answer("", "")
		assert.Equal(t, status, exitInterrupted)
		text := chatText(c.stderr.String())
		assert.Check(t, strings.HasSuffix(text, "mcpagent: interrupted\n"), text)
		return text
	}
	t.Run("twice at the prompt", func(t *testing.T) {
		c := newChat(t, 80, newModelServer(t))
		c.types(chatPrompt, "half a line\x03", hint, "", chatPrompt, "\x03")
		interrupted(c)
	})
	t.Run("in a turn and at the prompt", func(t *testing.T) {
		c := newChat(t, 80, newModelServer(t, hang))
		c.says("Hang.")
		c.types("files hang", "\x03", "(cancelled; what was said so far is kept. Ctrl-C once more ends the chat)", "", chatPrompt, "\x03")
		interrupted(c)
	})
	t.Run("not in a row", func(t *testing.T) {
		model := newModelServer(t, hang, modelText("Here."), hang)
		c := newChat(t, 80, model)
		c.types(chatPrompt, "\x03", hint, "")
		c.says("/usage")
		c.types(chatPrompt, "\x03", hint, "")
		c.says("Hang.")
		c.types("files hang", "\x03", "(cancelled", "")
		c.says("Are you there?")
		c.saw("Here.")
		c.says("Hang.")
		c.types("files hang", "\x03", "(cancelled", "")
		c.leaves()
	})
	t.Run("at the approval", func(t *testing.T) {
		model := newModelServer(t, modelCalls(modelCall("aaaaaaaa1", "notes__echo", `{"text":"x"}`)), modelText("Here."))
		c := newChat(t, 80, model)
		c.says("Say it.")
		c.types("its [p]lace: ", "\x03", "(cancelled", "")
		c.says("Are you there?")
		c.leaves()
		messages := model.Requests()[1].Messages
		assert.Equal(t, messages[len(messages)-3].Content.Text(), failure(errInterrupted))
	})
	t.Run("while the model answers", func(t *testing.T) {
		release := make(chan struct{})
		model := newModelServer(t, chatStops{"It was a dark and ", release}, modelText("Here."))
		t.Cleanup(func() { close(release) })
		c := newChat(t, 80, model)
		c.says("Tell me.")
		c.types("It was a dark", "\x03", "(cancelled", "")
		c.says("Are you there?")
		text := c.leavesText()
		assert.Check(t, is.Contains(text, "It was a dark^C and\n(cancelled"))
		messages := model.Requests()[1].Messages
		assert.Equal(t, messages[len(messages)-2].Content.Text(), "It was a dark and \n\n"+cutOff)
	})
	t.Run("a question that a server asks on", func(t *testing.T) {
		model := newModelServer(t, modelCalls(modelCall("aaaaaaaa1", "files__ask", programAsks("q", "elicitation/create", programForm))), modelText("Here."))
		c := newChat(t, 80, model)
		c.says("Ask me.")
		c.types("name [none]: ", "\x03", "(cancelled", "")
		c.says("Are you there?")
		c.leaves()
	})
	t.Run("SIGTERM", func(t *testing.T) {
		c := newChat(t, 80, newModelServer(t))
		c.saw(chatPrompt)
		for pid, line := range c.processes() {
			if !strings.HasPrefix(line, "sh ") && !strings.Contains(c.environment(pid), "prog-tools") {
				assert.NilError(t, syscall.Kill(pid, syscall.SIGTERM))
			}
		}
		interrupted(c)
	})
}

// environment is that of a process.
func (c *chatRun) environment(pid int) string {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	return string(text)
}

// chatStops streams a text and then no more until it is released.
type chatStops struct {
	text    string
	release chan struct{}
}

func (s chatStops) reply(w http.ResponseWriter, _ *modelRequest) {
	w.Header().Set("Content-Type", "text/event-stream")
	fmt.Fprintf(w, "data: {\"choices\":[{\"delta\":{\"content\":%q}}]}\n\n", s.text)
	http.NewResponseController(w).Flush()
	<-s.release
}

// A conversation is saved, cleared, and gone on with: in the chat and by -session.
func TestChatSession(t *testing.T) {
	checkLeaks(t)
	model := programAlways(t, modelText("A heron, "+programKey+"."))
	c := newChat(t, 80, model)
	c.says("/save", "Which bird?", "/save birds.json", "/clear", "And now?", "/load birds.json", "Where?", "/save", "/load none.json", "/load .mcp.json",
		"/save no/such/folder/x", "/usage", "/model other", "How?", "/model")
	text := c.leavesText()
	for _, want := range []string{
		"/save takes the name of a file\n", "(2 messages in birds.json)\n", "(a new conversation)\n", "(2 messages from birds.json)\n", "(4 messages in birds.json)\n",
		"load session: open none.json: no such file or directory\n", "load session .mcp.json: it is no session", "save session: open no/such/folder/",
		"last question: 15 tokens (10 in, 5 out)\nall questions: 30 tokens (20 in, 10 out)\nthe conversation: 4 messages, 15 tokens\n",
		"> /model\nother\n", "A heron, [key].\n",
	} {
		assert.Check(t, is.Contains(text, want))
	}
	var counts []int
	requests := model.Requests()
	for _, r := range requests {
		counts = append(counts, len(r.Messages)-1) // without the system prompt
	}
	assert.DeepEqual(t, counts, []int{1, 1, 3, 5})
	assert.Equal(t, requests[3].Model, "other")
	saved, err := os.ReadFile(filepath.Join(c.home, "birds.json"))
	assert.NilError(t, err)
	assert.Check(t, !strings.Contains(string(saved), programKey), "%s", saved)
	assert.Check(t, is.Contains(string(saved), "A heron, [key]."))
}

// Resources go with a question that names them; a prompt asks what it says.
func TestChatResourcesAndPrompts(t *testing.T) {
	checkLeaks(t)
	model := programAlways(t, modelText("Yes."))
	c := newChat(t, 80, model)
	c.says("What is in @notes:note:///hello, and who is @ann or ann@example.com?", "And @files:note:///all?", "What of @notes:note:///nothing?", "And @note:///hello",
		"/resource notes:note:///red", "What of that?", "And now?",
		"/prompt notes:greet who=Ann how=\"very kindly\"", "/prompt notes:greet", "/prompt notes:gret", "/prompt greet who=Ann", "/prompt", "/resource", "/tools", "/servers")
	text := c.leavesText()
	var asked []string
	for _, r := range model.Requests() {
		asked = append(asked, r.Last())
	}
	assert.DeepEqual(t, asked, []string{
		"What is in @notes:note:///hello, and who is @ann or ann@example.com?\n\n[resource: note:///hello]\nhello",
		"And @files:note:///all?\n\n[resource: note:///hello]\nhello\n\n\n[resource: note:///bytes , 3 bytes]",
		"What of that?\n\n[resource: note:///red]\na\x1b[31m\r\n",
		"And now?",
	})
	for _, want := range []string{
		"(with notes:note:///hello, 31 bytes)\n", "@notes:note:///nothing?: ", "(nothing was asked)\n", "several servers have a resource",
		"    [resource: note:///red]\n    a\uFFFD[31m\n(", "the prompt greet needs who=… (see: /prompt)", "none of the servers has a prompt \"notes:gret\"",
		"several servers have a prompt \"greet\"; say which: notes:greet, files:greet", "note:///hello (text/plain, 5 bytes)", "echo(text)", "    user: Greet \"Ann\" \"very kindly\".\n",
		"notes: prog 1, MCP ",
	} {
		assert.Check(t, is.Contains(text, want))
	}
	// The prompt's last message is the assistant's: it is part of the conversation, and nothing is asked.
	assert.Check(t, is.Contains(text, "(the prompt asks nothing; what it says is now part of the conversation)\n"))
}

// Whatever goes wrong with the model, the chat goes on.
func TestChatErrors(t *testing.T) {
	checkLeaks(t)
	model := newModelServer(t, modelContextTooLong(), modelUnauthorized(), modelText(""), modelText(""), modelText("There."))
	c := newChat(t, 80, model)
	c.says("one", "two", "three", "four")
	text := strings.Join(strings.Fields(c.leavesText()), " ")
	for _, want := range []string{
		"the conversation is too long for this model: shorten it or begin a new one The conversation is kept as it is: /save FILE writes it down, /clear begins a new one",
		"401 Unauthorized", "check the API key", "the model gave no answer", "There.",
	} {
		assert.Check(t, is.Contains(text, want))
	}
	assert.Equal(t, model.Requests()[4].Last(), "four")
}

// What a terminal cannot do, or was asked not to, is not done.
func TestChatPlainTerminals(t *testing.T) {
	checkLeaks(t)
	for variables, escapes := range map[string]string{"TERM=dumb": "", "NO_COLOR=1": "K", "": "Km"} {
		t.Run(variables, func(t *testing.T) {
			model := newModelServer(t, modelCalls(modelCall("aaaaaaaa1", "files__slow", `{}`)), modelText("Slow but **sure**."))
			c := newChat(t, 80, model, strings.Fields(variables)...)
			prompt := "\n> "
			if variables == "" {
				prompt = chatPrompt
			}
			c.types(prompt, "How slow?\n", "sure**.\n"+prompt, "/quit\n")
			status, _ := c.answer("", "")
			assert.Equal(t, status, 0)
			output := strings.ReplaceAll(c.stderr.String(), "\r\n", "\n")
			found := ""
			for _, match := range regexp.MustCompile("\x1b\\[[0-9;]*(.)").FindAllStringSubmatch(output, -1) {
				if !strings.Contains(found, match[1]) {
					found += match[1]
				}
			}
			for _, kind := range []string{"K", "m"} {
				assert.Check(t, is.Equal(strings.Contains(found, kind), strings.Contains(escapes, kind)), "%q", output)
			}
			if variables == "TERM=dumb" {
				assert.Check(t, is.Contains(programSteady(output), "> How slow?\n> files__slow {}\n  files__slow 1/2 half way\n  files__slow 2/2\n< files__slow TIME, 13 bytes\nSlow but **sure**.\n\n> /quit\n"))
				assert.Check(t, !strings.Contains(output, "\r"))
			}
		})
	}
}

// A question on the command line looks the same.
func TestChatScreenOneShot(t *testing.T) {
	chatWidths(t, func(t *testing.T, columns int) {
		model := newModelServer(t, modelCalls(modelCall("aaaaaaaa1", "files__slow", `{}`)), modelText(chatAnswer))
		c := newChat(t, columns, model, "-- How slow is it?")
		status, _ := c.answer("", "")
		assert.Equal(t, status, 0)
		c.isScreen("question", c.screen(c.stderr.String()))
	})
}
