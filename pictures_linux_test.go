package main

import (
	"encoding/json"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"gotest.tools/v3/assert"
)

// notesServer is the MCP server of the picture's chat, over HTTP: notes, of which there are two.
func notesServer(w http.ResponseWriter, r *http.Request) {
	var request struct {
		ID     json.RawMessage
		Method string
		Params struct{ Name string }
	}
	body, _ := io.ReadAll(r.Body)
	_ = json.Unmarshal(body, &request)
	result := map[string]string{
		"server/discover": `"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}`,
		"tools/list": `"tools":[{"name":"list_notes","annotations":{"readOnlyHint":true},"inputSchema":{"type":"object"}},` +
			`{"name":"add_note","inputSchema":{"type":"object","properties":{"text":{"type":"string"}}}}]`,
		"list_notes": `"content":[{"type":"text","text":"1: A heron stands in shallow water.\n2: Swifts are back."}]`,
		"add_note":   `"content":[{"type":"text","text":"Added as note 3."}]`,
	}
	key := request.Method
	if request.Params.Name != "" {
		key = request.Params.Name
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"resultType":"complete",%s}}`, request.ID, result[key])
}

// pictureTime is how long a call or an answer took, which varies.
var pictureTime = regexp.MustCompile(`\b\d+(\.\d+)?( ?)m?s\b`)

// A chat of the program on a terminal, with a call that the user allows. Where the machine was so busy that the chat
// says that its server is still starting, there is another one.
func TestPictureChat(t *testing.T) {
	screen, shown := pictureChat(t)
	for range 20 {
		if !strings.Contains(shown, "still starting") {
			break
		}
		screen, shown = pictureChat(t)
	}
	assertPicture(t, "chat.svg", screen.picture("A chat with mcpagent",
		"A terminal. A question about notes is answered with a table, after a call that needs no approval. Then a note "+
			"is to be added: the program shows the call with its arguments and asks, the answer is y, the call is made, "+
			"and the model says that it is done."))
}

// pictureChat is a terminal on which there was a chat, and what it was sent.
func pictureChat(t *testing.T) (screen *vt, shown string) {
	notes := httptest.NewServer(http.HandlerFunc(notesServer))
	defer notes.Close()
	model := newModelServer(t,
		modelCalls(modelCall("call00001", "list_notes", `{}`)),
		modelText("You have **two** notes:\n\n| # | note |\n|---|---|\n| 1 | A heron stands in shallow water. |\n"+
			"| 2 | Swifts are back. |"),
		modelCalls(modelCall("call00002", "add_note", `{"text":"The heron caught a fish."}`)),
		modelText("Done: it is note `3`."))
	home := t.TempDir()
	config := fmt.Sprintf(`{"mcpServers": {"notes": {"url": %q, "alwaysAllow": ["list_notes"]}}}`, notes.URL)
	assert.NilError(t, os.WriteFile(filepath.Join(home, ".mcp.json"), []byte(config), 0o600))
	p := newProgram(t, home, append(programEnvironment(home), "TERM=xterm", "MISTRAL_API_KEY="+scriptKey, "MCP_TRUST=1",
		"MISTRAL_BASE_URL="+model.URL, "MISTRAL_MODEL=mistral-small"))
	p.patience = 10 * time.Second
	const columns, rows = 84, 60
	assert.NilError(t, p.openTerminal(columns))
	size := [4]uint16{rows, columns}
	assert.NilError(t, terminalCall(p.keyboard, syscall.TIOCSWINSZ, unsafe.Pointer(&size)))
	assert.NilError(t, p.start())
	say := func(pattern, keys string) {
		_, err := p.expect(regexp.MustCompile(pattern))
		assert.NilError(t, err)
		assert.NilError(t, p.keys(keys))
	}
	const prompt = `>\x1b\[0m $`
	say(prompt, "Which notes do I have?\r")
	say(`(?s)Swifts.*Swifts.*`+prompt, "Add that the heron caught a fish.\r")
	say(`(?s)Call "add_note".*: $`, "y\r")
	say(`(?s)Done: .*`+prompt, "")
	screen, shown = newVT(columns, rows), p.shown()
	_, _ = screen.Write(pictureTime.ReplaceAll([]byte(shown), []byte("12${2}ms")))
	assert.NilError(t, p.keys("^D"))
	assert.Equal(t, p.end(), 0)
	assert.Equal(t, len(screen.above), 0)
	return screen, shown
}

// picture draws the screen, with its cursor, as an SVG.
func (v *vt) picture(title, description string) string {
	const left, top, cellWidth, cellHeight = 18, 30, 8.4, 19
	classes := map[string]string{"1": "bold", "2": "dim", "3": "italic", "4": "under", "31": "red", "32": "green",
		"33": "yellow", "34": "blue", "35": "magenta", "36": "cyan"}
	var b strings.Builder
	for i, row := range v.screen {
		y := top + i*cellHeight
		for at := 0; at < len(row); {
			end := at + 1
			for end < len(row) && row[end].style == row[at].style {
				end++
			}
			text := texts([][]cell{row[at:end]})[0]
			before := len(text) - len(strings.TrimLeft(text, " "))
			text = text[before:]
			if text != "" {
				var names []string
				for number := range strings.SplitSeq(row[at].style, ";") {
					if number != "" && classes[number] == "" {
						panic("the picture does not know the style " + number)
					}
					names = append(names, classes[number])
				}
				// The width is that of its cells, whatever the font is.
				fmt.Fprintf(&b, `<text x="%.1f" y="%d" textLength="%.1f" class="%s">%s</text>`+"\n",
					left+float64(at+before)*cellWidth, y, float64(Width(text))*cellWidth,
					strings.Join(names, " "), html.EscapeString(text))
			}
			at = end
		}
	}
	fmt.Fprintf(&b, `<rect class="cursor" x="%.1f" y="%d" width="8" height="17"/>`+"\n",
		left+float64(v.column)*cellWidth, top+v.row*cellHeight-13)
	return svgPicture(left*2+v.columns*84/10, top+v.row*cellHeight+20, title, description, b.String())
}
