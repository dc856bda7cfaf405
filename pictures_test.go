package main

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"html"
	"io"
	"io/fs"
	"maps"
	"math"
	"net/url"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/golden"
)

// The pictures of docs/pictures are made of what they show: of transcripts, of the source, of a page's own table, and
// of a chat on a terminal. So a picture that is out of date fails its test, and
//
//	go test -run Picture . -update
//
// draws all of them anew. The diagrams are Mermaid, in pages of their own: library.go does not embed them, so that the
// built-in search does not quote a diagram for an answer.

// assertPicture checks a picture, or writes it with -update. An SVG has to be XML.
func assertPicture(t *testing.T, name, text string) {
	t.Helper()
	if filepath.Ext(name) == ".svg" {
		d := xml.NewDecoder(strings.NewReader(text))
		var err error
		for err == nil {
			_, err = d.Token()
		}
		assert.Assert(t, errors.Is(err, io.EOF), "%s: %v", name, err)
	}
	golden.Assert(t, text, "../docs/pictures/"+name)
}

// foldWords folds a text into lines of so many columns.
func foldWords(text string, columns int) (lines []string) {
	for line := range strings.Lines(text) {
		lines = append(lines, "")
		for word := range strings.FieldsSeq(line) {
			last := &lines[len(lines)-1]
			if *last != "" && utf8.RuneCountInString(*last+" "+word) > columns {
				lines = append(lines, word)
				continue
			}
			*last = strings.TrimSpace(*last + " " + word)
		}
	}
	return lines
}

// paragraph is a paragraph of a page.
func paragraph(text string) string { return strings.Join(foldWords(text, 120), "\n") + "\n\n" }

// diagramText is a text inside a Mermaid diagram, folded where it would make the diagram wide. A semicolon would end
// its line, and Mermaid shows no other form of it in a note.
func diagramText(text string, columns int) string {
	return strings.Join(foldWords(strings.ReplaceAll(text, ";", ","), columns), "<br/>")
}

// keysOf returns the names of an object's members in their order, and their values.
func keysOf(t *testing.T, text []byte) (names []string, values map[string]json.RawMessage) {
	values = make(map[string]json.RawMessage)
	d := json.NewDecoder(bytes.NewReader(text))
	_, err := d.Token()
	assert.NilError(t, err, "%s", text)
	for d.More() {
		name, err := d.Token()
		assert.NilError(t, err, "%s", text)
		var value json.RawMessage
		assert.NilError(t, d.Decode(&value), "%s", text)
		names = append(names, name.(string))
		values[name.(string)] = value
	}
	return names, values
}

// sequenceDiagram is one of a session.
type sequenceDiagram struct {
	t *testing.T
	strings.Builder
}

func newSequenceDiagram(t *testing.T, participants ...string) *sequenceDiagram {
	s := &sequenceDiagram{t: t}
	s.WriteString("```mermaid\nsequenceDiagram\n")
	for _, p := range participants {
		id, name, _ := strings.Cut(p, "=")
		fmt.Fprintf(s, "    participant %s as %s\n", id, name)
	}
	return s
}

// add draws an arrow between two participants: "P->>C".
func (s *sequenceDiagram) add(arrow, text string) {
	fmt.Fprintf(s, "    %s: %s\n", arrow, diagramText(text, 48))
}

func (s *sequenceDiagram) end() string { return s.String() + "```\n" }

// message is a JSON-RPC message in a few words, and whether it is an answer.
func (s *sequenceDiagram) message(text string) (words string, isAnswer bool) {
	names, m := keysOf(s.t, []byte(text))
	if id := m["id"]; id != nil {
		words = string(id) + ": "
	}
	switch {
	case m["error"] != nil:
		_, e := keysOf(s.t, m["error"])
		return words + "error " + string(e["code"]) + ", " + string(e["message"]), true
	case m["result"] != nil && bytes.HasPrefix(m["result"], []byte("{")):
		members, _ := keysOf(s.t, m["result"])
		return strings.TrimSuffix(words+"result: "+strings.Join(members, ", "), ": "), true
	case slices.Contains(names, "result"):
		return words + "result", true
	}
	words += strings.Trim(string(m["method"]), `"`)
	if m["params"] != nil {
		members, _ := keysOf(s.t, m["params"])
		words += "\n" + strings.Join(members, ", ")
	}
	return words, false
}

// session draws a transcript until the first call of a tool has its result.
func (s *sequenceDiagram) session(path string) string {
	comment, call := "", false
	for line := range strings.SplitSeq(readText(s.t, path), "\n") {
		mark, text, _ := strings.Cut(line, " ")
		switch mark {
		case "#":
			comment += text + " "
			continue
		case "": // the comment before it is about the whole file
			comment = ""
			continue
		}
		if comment != "" {
			fmt.Fprintf(s, "    Note over P,S: %s\n", diagramText(comment, 88))
		}
		comment = ""
		switch mark {
		case "*":
			method, arguments, _ := strings.Cut(text, " ")
			if method == "answer" {
				s.add("P-->>C", "the answer")
				continue
			}
			call = method == "CallTool"
			if call {
				method += " " + strings.Fields(arguments)[0]
			}
			s.add("P->>C", method)
		case "!":
			event, _, _ := strings.Cut(text, "{")
			s.add("C->>P", event)
		case "=":
			s.add("C-->>P", "the outcome")
			if call {
				return s.end()
			}
		case "->", "<-":
			arrow := map[string]string{"->": "C->>S", "<-": "S->>C"}[mark]
			words, isAnswer := s.message(text)
			if isAnswer {
				arrow = strings.Replace(arrow, "->>", "-->>", 1)
			}
			s.add(arrow, words)
		}
	}
	s.t.Fatalf("%s has no call of a tool", path)
	return ""
}

// Both eras of the protocol, as their transcripts have them.
func TestPictureSessions(t *testing.T) {
	draw := func(name string) string {
		return newSequenceDiagram(t, "P=Program", "C=Client", "S=Server").session("testdata/transcripts/" + name + ".txt")
	}
	assertPicture(t, "sessions.md", "# A session in each era\n\n"+
		paragraph("The number before a message is its id; below it are the members of its `params`, after `result` those of "+
			"its result. A dashed arrow is an answer. The messages themselves stand in `testdata/transcripts`, and "+
			"[mcp.md](../mcp.md) explains them.")+
		"## With a handshake: revision 2025-11-25\n\n"+
		paragraph("The server may send requests, too.")+draw("2025-11-25")+
		"\n## Stateless: revision 2026-07-28\n\n"+
		paragraph("Each request says in `_meta` who asks; the server asks in its result, and the request is sent again with "+
			"the answers.")+draw("2026-07-28"))
}

// httpMembers are the names of what a request or an answer of a login has in its query, its form, its JSON or its
// challenge: of an answer only those that the client reads.
func (s *sequenceDiagram) httpMembers(text, source string) string {
	var names []string
	switch {
	case strings.HasPrefix(text, "{"):
		names, _ = keysOf(s.t, []byte(strings.ReplaceAll(text, ":N,", ":0,"))) // N is a number that varies
	case strings.HasPrefix(text, "WWW-Authenticate: "):
		for _, part := range regexp.MustCompile(`(\w+)=`).FindAllStringSubmatch(text, -1) {
			names = append(names, part[1])
		}
		return "WWW-Authenticate: Bearer " + strings.Join(names, ", ")
	default:
		values, err := url.ParseQuery(text)
		assert.NilError(s.t, err)
		names = slices.Sorted(maps.Keys(values))
	}
	return strings.Join(slices.DeleteFunc(names, func(name string) bool {
		return source != "" && !strings.Contains(source, `"`+name)
	}), ", ")
}

// login draws the session with an authorization server until the first call of a tool is answered. source is what the
// client's files have: its names tell what it reads of an answer.
func (s *sequenceDiagram) login(path, source string) string {
	peer, isCall := "", false
	for line := range strings.Lines(readText(s.t, path)) {
		mark, text, _ := strings.Cut(strings.TrimSpace(line), " ")
		first, rest, _ := strings.Cut(text, " ") // a status or a method
		if mark == "<-" {
			s.add(peer+"-->>C", first+"\n"+s.httpMembers(rest, source))
			if isCall {
				return s.end()
			}
			continue
		}
		address, body, _ := strings.Cut(rest, " ")
		u, err := url.Parse(strings.Replace(address, ":N/", "/", 1)) // N is a port that varies
		assert.NilError(s.t, err)
		says := first + " " + u.Path + "\n"
		switch mark {
		case "=>":
			s.add("C->>B", "open "+u.Path+"\n"+s.httpMembers(u.RawQuery, ""))
			s.add("B->>A", says+"where the person logs in and agrees")
			s.add("A-->>B", "a redirect to the client's address")
			continue
		case "<=":
			s.add("B->>C", says+s.httpMembers(u.RawQuery, ""))
			continue
		}
		peer = map[string]string{"mcp.example.com": "S", "login.example.com": "A"}[u.Host]
		isCall = strings.Contains(body, "tools/call")
		if peer == "A" {
			body = s.httpMembers(body, "")
		}
		s.add("C->>"+peer, says+strings.ReplaceAll(body, "Bearer ACCESS-1 ", "Bearer …\n"))
	}
	s.t.Fatalf("%s has no call of a tool", path)
	return ""
}

// A login, as a real authorization server has it: from the first refusal to the first call.
func TestPictureLogin(t *testing.T) {
	source := ""
	for name, text := range readFiles(t) {
		if familyOf(name) == "oauth" {
			source += text
		}
	}
	s := newSequenceDiagram(t, "B=Browser of the person", "C=Client", "S=Server", "A=Authorization server")
	assertPicture(t, "login.md", "# A login\n\n"+
		paragraph("What a real authorization server and `oauth.go` said to each other. `testdata/authorization.txt` has the "+
			"messages whole, and what follows when the token ends and when a call needs more scopes. A dashed arrow is an "+
			"answer; of an answer the diagram has what the client reads. [mcp.md](../mcp.md) explains the steps.")+
		s.login("testdata/authorization.txt", source))
}

// callStep is a step of a question on its way to a tool and back.
type callStep struct {
	says string

	// path names functions. In "a > b > c" each calls the next; one that is called through a field of another name has
	// that before it: "Decide=b". In "a < b" b returns to a.
	path string
}

var (
	oneCall = []callStep{
		{"the question", "main_ask.go: conversation.answer > agent.go: Agent.Chat"},
		{"history and tools", "agent.go: Agent.Chat > agent.go: questionRun.askModel > " +
			"main_models.go: modelChoice.Complete > mistral.go: Mistral.Complete"},
		{"a call", "agent.go: questionRun.askModel < mistral.go: Mistral.Complete"},
		{"is it valid?", "agent.go: Agent.Chat > agent_calls.go: questionRun.callAll > agent_calls.go: questionRun.check"},
		{"may it run?", "agent_calls.go: questionRun.callAll > agent_calls.go: questionRun.approve > " +
			"Decide=main_approve.go: approver.decide > terminal_approve.go: Terminal.Approve"},
		{"yes", "agent_calls.go: questionRun.approve < main_approve.go: approver.decide"},
		{"the call", "agent_calls.go: questionRun.callAll > agent_calls.go: questionRun.runJobs > " +
			"finder.go: Finder.Call > main_agent.go: toolbox.Call > host.go: Host.Call"},
		{"to this server", "host.go: Host.Call > host.go: Host.CallTool > host_tools.go: hosted.callTool > " +
			"mcp.go: Client.CallTool"},
		{"tools/call", "mcp.go: Client.CallTool > mcp_request.go: Client.do > mcp_urls.go: Client.sendWithURLs > " +
			"mcp_request.go: Client.send > mcp_request.go: Client.attempt > rpc.go: Conn.Do"},
		{"the message", "rpc.go: Conn.Do > rpc.go: Conn.send > lines_write.go: Lines.WriteNow"},
		{"a line on stdin", "lines_write.go: Lines.WriteNow > lines_write.go: Lines.writeAtOnce > Server"},
		{"a line on stdout", "lines.go: Lines.readLine < Server"},
		{"the message", "rpc.go: Conn.readMessages < lines.go: Lines.Read"},
		{"whose answer is it?", "rpc.go: Conn.readMessages > rpc.go: Conn.dispatch > rpc.go: Conn.dispatchOne > " +
			"rpc.go: Conn.answer > rpc.go: waiter.deliver"},
		{"the result", "mcp_request.go: Client.attempt < rpc.go: Conn.Do"},
		{"the tool's result", "host_tools.go: hosted.callTool < mcp.go: Client.CallTool"},
		{"as text for a model", "host.go: Host.Call > functions_results.go: ModelOutput"},
		{"the output", "agent_calls.go: questionRun.runJobs < host.go: Host.Call"},
		{"into the history", "agent_calls.go: questionRun.runJobs > agent_calls.go: questionRun.endJob"},
		{"history, with the result", "agent.go: Agent.Chat > agent.go: questionRun.askModel > " +
			"main_models.go: modelChoice.Complete > mistral.go: Mistral.Complete"},
		{"an answer in words", "agent.go: questionRun.askModel < mistral.go: Mistral.Complete"},
		{"the answer", "main_ask.go: conversation.answer < agent.go: Agent.Chat"},
	}
	callParticipants = strings.Fields("main agent mistral host mcp rpc lines Server")
)

// callsOf returns what each function of a file calls, by its name as declarations has it. What is called has the last
// part of its name.
func callsOf(t *testing.T, path string) map[string]map[string]bool {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	assert.NilError(t, err)
	calls := make(map[string]map[string]bool)
	for _, declaration := range file.Decls {
		f, ok := declaration.(*ast.FuncDecl)
		if !ok {
			continue
		}
		name, called := f.Name.Name, make(map[string]bool)
		if f.Recv != nil {
			name = receiverOf(f) + "." + name
		}
		ast.Inspect(f, func(node ast.Node) bool {
			if call, ok := node.(*ast.CallExpr); ok {
				switch f := call.Fun.(type) {
				case *ast.Ident:
					called[f.Name] = true
				case *ast.SelectorExpr:
					called[f.Sel.Name] = true
				}
			}
			return true
		})
		calls[name] = called
	}
	return calls
}

// check returns what of a step's path is not so in the code, and the families that the path begins and ends with.
func (s callStep) check(t *testing.T) (faults, functions []string, from, to string) {
	separator := " > "
	if strings.Contains(s.path, " < ") {
		separator = " < "
	}
	var before map[string]bool // what the function before this one calls
	for part := range strings.SplitSeq(s.path, separator) {
		calledAs, function, isField := strings.Cut(part, "=")
		if !isField {
			function = part
		}
		file, name, isFunction := strings.Cut(function, ": ")
		if !isField {
			calledAs = name[strings.LastIndex(name, ".")+1:]
		}
		family := function
		if isFunction {
			family = familyOf(file)
			functions = append(functions, "`"+function+"`")
			calls := callsOf(t, file)[name]
			if calls == nil {
				faults = append(faults, function+" is not there")
			}
			if separator == " > " && before != nil && !before[calledAs] {
				faults = append(faults, calledAs+" is not called before "+function)
			}
			before = calls
		}
		if slices.Contains(callParticipants, family) {
			if to = family; from == "" {
				from = family
			}
		}
	}
	if separator == " < " {
		from, to = to, from
	}
	return faults, functions, from, to
}

// One call on its way through the files, of which every function is there and calls the next.
func TestPictureCall(t *testing.T) {
	s := newSequenceDiagram(t)
	s.WriteString("    autonumber\n")
	for _, p := range callParticipants {
		fmt.Fprintf(s, "    participant %s\n", p)
	}
	var rows strings.Builder
	for i, step := range oneCall {
		faults, functions, from, to := step.check(t)
		assert.Check(t, len(faults) == 0, "%s: %v", step.says, faults)
		arrow := "->>"
		if strings.Contains(step.path, " < ") {
			arrow = "-->>"
			slices.Reverse(functions)
		}
		s.add(from+arrow+to, step.says)
		fmt.Fprintf(&rows, "| %d | %s | %s |\n", i+1, step.says, strings.Join(functions, ", "))
	}
	assertPicture(t, "call.md", "# One call through the files\n\n"+
		paragraph("A question to the program, for which the model calls a tool of a server on stdio. The columns of the "+
			"diagram are families of files; a dashed arrow is what a function returns. The table has the functions of each "+
			"step: each calls the next, or, at a dashed arrow, returns to it.")+
		s.end()+"\n| step | what | functions |\n|---|---|---|\n"+rows.String())
}

// A step that is not so in the code is found.
func TestPictureCallFails(t *testing.T) {
	for path, want := range map[string]string{
		"rpc.go: Conn.Do > rpc.go: Conn.send":                    "",
		"rpc.go: Conn.Do > rpc.go: Conn.sends":                   "rpc.go: Conn.sends is not there",
		"rpc.go: Conn.Do > rpc.go: Conn.readLoop":                "readLoop is not called before rpc.go: Conn.readLoop",
		"rpc.go: Conn.Do > Decide=rpc.go: Conn.send":             "Decide is not called before rpc.go: Conn.send",
		"rpc.go: Conn.Done < mcp.go: Client.Rings":               "mcp.go: Client.Rings is not there",
		"agent_calls.go: questionRun.approve < host.go: NewHost": "",
	} {
		faults, _, _, _ := callStep{path: path}.check(t)
		assert.Check(t, is.Contains(strings.Join(append(faults, ""), "\n"), want), path)
		assert.Check(t, (want == "") == (len(faults) == 0), "%s: %v", path, faults)
	}
}

// familyUses returns which families each family uses in its code, whatever the system.
func familyUses(t *testing.T) map[string]map[string]bool {
	h := newHouse(readFiles(t))
	for _, system := range systems {
		fset := token.NewFileSet()
		h.check(system, fset, standardLibrary(t, system, fset))
	}
	return h.uses
}

// withoutIndirect leaves out what a family uses through another as well.
func withoutIndirect(uses map[string]map[string]bool) map[string][]string {
	through := make(map[string]map[string]bool)
	for _, family := range families { // those above it come first
		through[family] = make(map[string]bool)
		for used := range uses[family] {
			maps.Copy(through[family], through[used])
		}
		maps.Copy(through[family], uses[family])
	}
	direct := make(map[string][]string)
	for family, used := range uses {
		for other := range used {
			isIndirect := false
			for between := range used {
				isIndirect = isIndirect || through[between][other]
			}
			if !isIndirect {
				direct[family] = append(direct[family], other)
			}
		}
		slices.SortFunc(direct[family], func(a, b string) int { return rank(a) - rank(b) })
	}
	return direct
}

// The families, and what they need of each other, as TestFloors finds it in the code.
func TestPictureFamilies(t *testing.T) {
	direct := withoutIndirect(familyUses(t))
	floors := []struct{ name, first, colour string }{
		{"protocol", families[0], "#1a7f37"}, {"agent", "mistral", "#0969da"}, {"program", "secrets", "#8250df"},
	}
	var b strings.Builder
	b.WriteString("# The map of families\n\n" +
		paragraph("An arrow points at what a family uses. What a family uses through another as well has no arrow of its "+
			"own. The protocol floor is green, the agent floor blue, the program floor violet. [read.md](../read.md) says "+
			"what each family is.") +
		"```mermaid\nflowchart BT\n")
	for _, family := range families {
		for _, used := range direct[family] {
			fmt.Fprintf(&b, "    %s --> %s\n", family, used)
		}
	}
	for i, floor := range floors {
		end := len(families)
		if i+1 < len(floors) {
			end = rank(floors[i+1].first)
		}
		fmt.Fprintf(&b, "    classDef %s stroke:%s,stroke-width:3px\n", floor.name, floor.colour)
		fmt.Fprintf(&b, "    class %s %s\n", strings.Join(families[rank(floor.first):end], ","), floor.name)
	}
	b.WriteString("```\n")
	assertPicture(t, "families.md", b.String())
}

// What is used through another is left out, and nothing else.
func TestPictureFamiliesDirect(t *testing.T) {
	direct := withoutIndirect(map[string]map[string]bool{
		"json": {}, "rpc": {"json": true}, "lines": {"rpc": true, "json": true}, "mcp": {"json": true, "lines": true},
		"oauth": {"json": true, "rpc": true, "lines": true, "mcp": true},
	})
	assert.DeepEqual(t, direct, map[string][]string{
		"rpc": {"json"}, "lines": {"rpc"}, "mcp": {"lines"}, "oauth": {"mcp"},
	})
}

// TestPicturesUnsearched: the built-in library has no diagram, and no picture, that a search could quote.
func TestPicturesUnsearched(t *testing.T) {
	assert.NilError(t, fs.WalkDir(sourceFiles, ".", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && filepath.Ext(path) != ".go" {
			text, _ := fs.ReadFile(sourceFiles, path)
			assert.Check(t, !strings.HasPrefix(path, "docs/pictures/"), path)
			assert.Check(t, !strings.Contains(string(text), "```mermaid"), path)
		}
		return err
	}))
}

// TestPicturesShown: each picture is shown, or linked, by a page, and what the pages show is there; so is what the
// pictures' own pages link.
func TestPicturesShown(t *testing.T) {
	pages, err := filepath.Glob("docs/*.md")
	assert.NilError(t, err)
	pictures, err := filepath.Glob("docs/pictures/*")
	assert.NilError(t, err)
	link := regexp.MustCompile(`\]\(([^)#]+)`)
	shown := make(map[string]bool)
	for _, page := range append(pages, "README.md") {
		for _, part := range link.FindAllStringSubmatch(readText(t, page), -1) {
			target := path.Join(path.Dir(filepath.ToSlash(page)), part[1])
			if strings.HasPrefix(target, "docs/pictures/") {
				shown[target] = true
			}
		}
	}
	var all []string
	for _, picture := range pictures {
		all = append(all, filepath.ToSlash(picture))
		if path.Ext(picture) != ".md" {
			continue
		}
		for _, part := range link.FindAllStringSubmatch(readText(t, picture), -1) {
			_ = readText(t, filepath.Join(filepath.Dir(picture), part[1]))
		}
	}
	assert.DeepEqual(t, slices.Sorted(maps.Keys(shown)), all)
}

// svgStyle has the colours of both pictures, as a light and as a dark page has them. A program that does not know of
// dark pages takes the light ones.
const svgStyle = `<style>
text { font: 14px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; }
text { fill: #1f2328; white-space: pre; }
.bold { font-weight: bold; } .italic { font-style: italic; } .under { text-decoration: underline; }
.page { fill: #ffffff; stroke: #d1d9e0; } .line { stroke: #d1d9e0; } .dim { fill: #59636e; } .cursor { fill: #59636e; }
.red { fill: #cf222e; } .green { fill: #1a7f37; } .yellow { fill: #9a6700; }
.blue { fill: #0969da; } .magenta { fill: #8250df; } .cyan { fill: #1b7c83; }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3; }
.page { fill: #0d1117; stroke: #3d444d; } .line { stroke: #3d444d; } .dim { fill: #9198a1; } .cursor { fill: #9198a1; }
.red { fill: #ff7b72; } .green { fill: #3fb950; } .yellow { fill: #d29922; }
.blue { fill: #58a6ff; } .magenta { fill: #bc8cff; } .cyan { fill: #39c5cf; }
}
</style>
`

// svgPicture is an SVG of that size, with a title and a description for those who hear it.
func svgPicture(width, height int, title, description, body string) string {
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%[1]d" height="%[2]d" `+
		`role="img" aria-labelledby="title description">`+"\n<title id=\"title\">%[3]s</title>\n"+
		`<desc id="description">%s</desc>`+"\n%s"+
		`<rect class="page" x="0.5" y="0.5" width="%d" height="%d" rx="8"/>`+"\n%s</svg>\n",
		width, height, html.EscapeString(title), html.EscapeString(description), svgStyle, width-1, height-1, body)
}

// plotRow is a row of a table of figures.
type plotRow struct {
	name   string
	values []float64
}

// plotTable returns the names of the first table of a page, and its rows: those whose first figure has the unit, and
// all others. The first column of figures is what the others are compared with.
func plotTable(t *testing.T, page, unit string) (names []string, with, without []plotRow) {
	table := regexp.MustCompile(`(?m)(^\|.*\n)+`).FindString(page)
	for i, line := range strings.Split(strings.TrimSpace(table), "\n") {
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for j := range cells {
			cells[j] = strings.Trim(strings.TrimSpace(cells[j]), "`")
		}
		if i == 0 {
			names = cells[1:]
		}
		if i < 2 {
			continue
		}
		row := plotRow{name: strings.ReplaceAll(cells[0], "`", "")}
		for _, cell := range cells[1:] {
			figure, _, _ := strings.Cut(cell, " ")
			value, err := strconv.ParseFloat(figure, 64)
			assert.NilError(t, err, line)
			row.values = append(row.values, value)
		}
		if strings.HasSuffix(cells[1], " "+unit) {
			with = append(with, row)
		} else {
			without = append(without, row)
		}
	}
	return names, with, without
}

// plot draws rows of figures, as marks beside each other on a scale that grows by factors.
type plot struct {
	t *testing.T
	strings.Builder
	y int // where the next row is
}

const (
	plotLeft, plotWidth = 340, 440
	plotRowHeight       = 26
	plotMost            = 500 // at the end of the scale
)

func plotX(value float64) float64 {
	return plotLeft + plotWidth*math.Log(value)/math.Log(plotMost)
}

// text writes one at a place; anchor is start, middle or end.
func (p *plot) text(x float64, y int, class, anchor, text string) {
	fmt.Fprintf(p, `<text x="%.1f" y="%d" class="%s" text-anchor="%s">%s</text>`+"\n", x, y, class, anchor,
		html.EscapeString(text))
}

// mark draws the mark of a column: each has a shape of its own, for those who do not see its colour.
func (p *plot) mark(column int, x float64, y int) {
	switch column {
	case 0:
		fmt.Fprintf(p, `<circle class="green" cx="%.1f" cy="%d" r="6"/>`+"\n", x, y)
	case 1:
		fmt.Fprintf(p, `<rect class="blue" x="%.1f" y="%d" width="10" height="10"/>`+"\n", x-5, y-5)
	default:
		fmt.Fprintf(p, `<path class="magenta" d="M%.1f %d l6.5 11 h-13 z"/>`+"\n", x, y-7)
	}
}

// rows draws a part of the table, with its scale above it.
func (p *plot) rows(title, unit string, rows []plotRow) {
	p.text(16, p.y, "bold", "start", title)
	top := p.y + 8
	bottom := top + len(rows)*plotRowHeight + 4
	for _, n := range []float64{1, 2, 5, 10, 20, 50, 100, 200, 500} {
		fmt.Fprintf(p, `<path class="line" d="M%.1f %d V%d"/>`+"\n", plotX(n), top, bottom)
		p.text(plotX(n), p.y, "dim", "middle", fmt.Sprintf("%g", n))
	}
	p.text(plotLeft+plotWidth+20, p.y, "dim", "start", unit)
	for i, row := range rows {
		y := top + i*plotRowHeight + plotRowHeight/2 + 2
		p.text(16, y+5, "", "start", row.name)
		values := row.values[1:]
		least, most := slices.Min(values), slices.Max(values)
		assert.Assert(p.t, 1 <= least && most <= plotMost, "%s: %v", row.name, values)
		fmt.Fprintf(p, `<path class="line" d="M%.1f %d H%.1f"/>`+"\n", plotX(least), y, plotX(most))
		for column, value := range slices.Backward(values) {
			p.mark(column, plotX(value), y)
		}
	}
	p.y = bottom + 36
}

// The first table of docs/performance.md as a plot.
func TestPicturePerformance(t *testing.T) {
	names, memory, times := plotTable(t, readText(t, "docs/performance.md"), "MiB")
	p := &plot{t: t, y: 64}
	x := 16.0
	for column, name := range names[1:] {
		p.mark(column, x+6, 24)
		p.text(x+20, 29, "", "start", name)
		x += float64(len(name))*8.5 + 60
	}
	description := "Times, in times of what a raw pipe takes. "
	p.rows("Time, × the raw pipe; less is better", "×", times)
	for i := range memory {
		memory[i].name = strings.TrimPrefix(memory[i].name, "memory at its peak: ")
	}
	p.rows("Memory at its peak", "MiB", memory)
	for _, row := range slices.Concat(times, memory) {
		if len(memory) > 0 && row.name == memory[0].name {
			description += "Memory at its peak, in MiB. "
		}
		var figures []string
		for i, value := range row.values[1:] {
			figures = append(figures, fmt.Sprintf("%s %g", names[i+1], value))
		}
		description += row.name + ": " + strings.Join(figures, ", ") + ". "
	}
	assertPicture(t, "performance.svg", svgPicture(plotLeft+plotWidth+60, p.y-20,
		"Time and memory of this client beside others", strings.TrimSpace(description), p.String()))
}
