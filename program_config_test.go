package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

// programEntry is a server of a configuration: the test binary in a mode, with more fields.
func programEntry(t testing.TB, name, mode, fields string, variables ...string) string {
	t.Helper()
	path, err := os.Executable()
	assert.NilError(t, err)
	env := map[string]string{"MCPAGENT_CHILD": mode}
	for _, v := range append(variables, programRace) {
		name, value, _ := strings.Cut(v, "=")
		env[name] = value
	}
	if fields != "" {
		fields += ","
	}
	return fmt.Sprintf(`%s:{%s"command":%s,"env":%s}`, modelJSON(name), fields, modelJSON(path), modelJSON(env))
}

// programConfig writes a configuration.
func programConfig(t testing.TB, entries ...string) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "servers.json")
	programWrite(t, file, `{"mcpServers":{`+strings.Join(entries, ",\n")+`}}`)
	return file
}

func programWrite(t testing.TB, file, text string) {
	t.Helper()
	assert.NilError(t, os.MkdirAll(filepath.Dir(file), 0o700))
	assert.NilError(t, os.WriteFile(file, []byte(text), 0o600))
}

func programRead(t testing.TB, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	assert.NilError(t, err)
	return string(text)
}

// Which servers there are: what is said is stronger than what is found, and a flag than a variable.
func TestProgramConfigPrecedence(t *testing.T) {
	checkLeaks(t)
	entry := func(name string) string { return `{"mcpServers":{` + programEntry(t, name, "prog-tools", "") + `}}` }
	explicit := filepath.Join(t.TempDir(), "explicit.json")
	programWrite(t, explicit, entry("explicit"))
	other := filepath.Join(t.TempDir(), "other.json")
	programWrite(t, other, entry("other"))
	path, err := os.Executable()
	assert.NilError(t, err)
	name := strings.TrimSuffix(filepath.Base(path), ".exe")
	_, line, _ := strings.Cut(programServer(t, "prog-tools"), "=")
	for _, test := range []struct {
		what         string
		folder, home string // what .mcp.json there has
		variables    []string
		args         []string
		want         string // the server's name, or else the error
		status       int
	}{
		{what: "nothing", want: "library"},
		{what: "home", home: entry("home"), want: "home"},
		{what: "folder", folder: entry("folder"), home: entry("home"), want: "folder"},
		{what: "MCP_CONFIG", folder: entry("folder"), home: entry("home"), variables: []string{"MCP_CONFIG=" + explicit}, want: "explicit"},
		{what: "-config", folder: entry("folder"), variables: []string{"MCP_CONFIG=" + other}, args: []string{"-config", explicit}, want: "explicit"},
		{what: "MCP_SERVER", folder: entry("folder"), home: entry("home"), variables: []string{"MCP_SERVER=" + line}, want: name},
		{what: "-server over MCP_CONFIG", variables: []string{"MCP_CONFIG=" + explicit}, args: []string{"-server", line}, want: name},
		{what: "-config over MCP_SERVER", variables: []string{"MCP_SERVER=" + line}, args: []string{"-config", explicit}, want: "explicit"},
		{what: "both flags", args: []string{"-config", explicit, "-server", line}, status: 2,
			want: "MCP_CONFIG and MCP_SERVER both say which servers there are: give one of them (see: mcpagent help)"},
		{what: "both variables", variables: []string{"MCP_CONFIG=" + explicit, "MCP_SERVER=" + line}, status: 2,
			want: "MCP_CONFIG and MCP_SERVER both say which servers there are: give one of them (see: mcpagent help)"},
		{what: "no such file", home: entry("home"), args: []string{"-config", "missing.json"}, status: 1, want: "MCP_CONFIG: open missing.json: *"},
		{what: "no JSON", folder: "{\n  mcp", home: entry("home"), status: 1, want: ".mcp.json: line 2, column 3: invalid character 'm' *"},
		{what: "no servers", folder: `{"mcpServers":{}}`, home: entry("home"), status: 1, want: ".mcp.json has no servers"},
		{what: "none switched on", folder: `{"mcpServers":{"a":{"command":"x","disabled":true},"b":{"enabled":false}}}`, status: 1,
			want: ".mcp.json has no server that is switched on; these are not: a, b"},
		{what: "not to be read", folder: "a folder", status: 1, want: "*.mcp.json: *"},
	} {
		t.Run(test.what, func(t *testing.T) {
			p := newProgram(t, test.variables, append(test.args, "tools", "-json", "-q")...)
			p.command.Dir = t.TempDir()
			if test.folder == "a folder" {
				assert.NilError(t, os.Mkdir(filepath.Join(p.command.Dir, ".mcp.json"), 0o700))
			} else if test.folder != "" {
				programWrite(t, filepath.Join(p.command.Dir, ".mcp.json"), test.folder)
			}
			if test.home != "" {
				programWrite(t, filepath.Join(p.home, ".mcp.json"), test.home)
			}
			p.start()
			status := p.end()
			if test.status != 0 {
				var failed struct{ Error string }
				assert.NilError(t, json.Unmarshal(p.stdout.Bytes(), &failed), p.stdout.String())
				programOutcome{"", p.stderr.String(), status}.fails(t, test.status, test.want)
				return
			}
			assert.Equal(t, status, 0, p.stderr.String())
			assert.Equal(t, p.stderr.String(), "")
			var tools []struct{ Server, Function, Name string }
			assert.NilError(t, json.Unmarshal(p.stdout.Bytes(), &tools), p.stdout.String())
			assert.Equal(t, tools[0].Server, test.want)
			assert.Equal(t, tools[0].Function, tools[0].Name)
		})
	}
}

// A configuration that lies in the folder may not be the user's own: they are told of it, and what is odd in it, once.
func TestProgramConfigTells(t *testing.T) {
	checkLeaks(t)
	p := newProgram(t, programModel(newModelServer(t, modelCalls(modelCall("aaaaaaaa1", "echo", `{"text":"x"}`)), modelText("done")), "MCP_APPROVE=always"), "hi")
	programWrite(t, filepath.Join(p.home, ".mcp.json"), `{"mcpServers":{`+programEntry(t, "a", "prog-tools", `"comand":"x"`)+`,"off":{"disabled":true,"odd":1}}}`)
	p.start()
	assert.Equal(t, p.end(), 0)
	assert.Equal(t, p.stdout.String(), "done\n")
	assert.Equal(t, programSteady(p.stderr.String()), `the servers of .mcp.json: a
.mcp.json: server "a": comand is not known here and has no effect
> echo {"text":"x"}
< echo TIME, 1 bytes
mistral-large-latest: 2 turns, 1 call, 30 tokens (20 in, 10 out)
`)
}

// programFour is three servers that are there, and one that is not.
func programFour(t *testing.T) string {
	return programConfig(t,
		programEntry(t, "alpha", "prog-tools", "", "PROGRAM_NAME=alpha"),
		programEntry(t, "broken", "prog-exits", ""),
		programEntry(t, "beta", "prog-modern", "", "PROGRAM_NAME=beta"),
		programEntry(t, "gamma-3", "prog-mortal", "", "PROGRAM_NAME=gamma"),
		`"unset":{"url":"https://example.com/${NO_SUCH_VARIABLE}"}`)
}

// Three servers at once, and others that are broken: those are named with the reason, and the question is answered.
func TestProgramServers(t *testing.T) {
	checkLeaks(t)
	const broken = `server broken: initialize: .* ended (exit status 7), stderr: loading | no such file: library.db
server unset: url: variable NO_SUCH_VARIABLE is not set
`
	model := newModelServer(t,
		modelCalls(
			modelCall("aaaaaaaa1", "alpha__echo", `{"text":"1"}`), modelCall("aaaaaaaa2", "beta__echo", `{"text":"2"}`),
			modelCall("aaaaaaaa3", "gamma-3__only_gamma", `{}`), modelCall("aaaaaaaa4", "broken__echo", `{}`)),
		modelText("done"))
	o := runProgram(t, "", programModel(model, "MCP_CONFIG="+programFour(t), "MCP_APPROVE=always"), "-json", "-q", "hi")
	assert.Equal(t, o.status, 0)
	assert.Check(t, is.Regexp("^"+strings.NewReplacer("(", `\(`, ")", `\)`, "|", `\|`).Replace(broken)+"$", o.stderr), "also with -q")
	var got report
	assert.NilError(t, json.Unmarshal([]byte(o.stdout), &got), o.stdout)
	assert.Equal(t, got.Answer, "done")
	servers := make(map[string]string)
	for _, call := range got.Calls {
		servers[call.Name] = call.Server + call.Error
		assert.Check(t, call.Error != "" || call.Bytes > 0 && call.Seconds > 0, call.Name)
	}
	assert.DeepEqual(t, servers, map[string]string{
		"alpha__echo": "alpha", "beta__echo": "beta", "gamma-3__only_gamma": "gamma-3", "broken__echo": servers["broken__echo"],
	})
	assert.Check(t, is.Contains(servers["broken__echo"], "there is no tool"))
	requests := model.Requests()
	var results []string
	for _, m := range requests[1].Messages {
		if m.Role == "tool" {
			results = append(results, m.Content.Text())
		}
	}
	assert.DeepEqual(t, results[:3], []string{"alpha1", "beta2", "gamma alone"})
	assert.Equal(t, len(requests[0].Tools), 3*(len(programTools)+1))
	system := requests[0].Messages[0].Content.Text()
	for _, name := range []string{"alpha", "gamma-3"} { // the stateless one says nothing
		assert.Check(t, is.Regexp("The server "+name+` says of its tools.*:\nBe kind to it\.`, system))
	}

	// If none is there, the reason of each is the error, with exit status 1.
	none := programConfig(t, programEntry(t, "a", "prog-exits", ""), `"b":{"command":"no-such-command"}`, `"c":{}`)
	o = runProgram(t, "", programModel(newModelServer(t), "MCP_CONFIG="+none), "hi")
	o.fails(t, 1, "none of the 3 servers is there: server a: initialize: *exit status 7*; server b: start server no-such-command: *; server c: it has neither a command nor a url")
	o = runProgram(t, "", []string{"MCP_CONFIG=" + programConfig(t, `"c":{}`)}, "tools")
	o.fails(t, 1, "server c: it has neither a command nor a url")
}

// Three real servers, in three languages and from three hands, and a fourth that is broken.
func TestProgramRealServers(t *testing.T) {
	checkLeaks(t)
	dir := t.TempDir()
	programWrite(t, filepath.Join(dir, "birds.txt"), "The heron waits in shallow water.\n")
	var entries []string
	for _, server := range []struct {
		name    string
		command Command
	}{
		{"everything", peerNode(t, "server-everything")},
		{"files", peerNode(t, "server-filesystem", dir)},
		{"library", peerPython(t, "0")},
		{"broken", Command{Path: "node", Args: []string{"-e", "console.error('no licence'); process.exit(3)"}}},
	} {
		c := server.command
		env := make(map[string]string)
		for _, v := range c.Env {
			name, value, _ := strings.Cut(v, "=")
			env[name] = value
		}
		entries = append(entries, fmt.Sprintf(`%q:{"command":%s,"args":%s,"env":%s}`, server.name, modelJSON(c.Path), modelJSON(c.Args), modelJSON(env)))
	}
	model := newModelServer(t, modelCalls(
		modelCall("aaaaaaaa1", "everything__echo", `{"message":"hi"}`),
		modelCall("aaaaaaaa2", "files__list_directory", string(modelJSON(map[string]string{"path": dir}))),
		modelCall("aaaaaaaa3", "library__environment", `{}`),
	), modelText("done"))
	o := runProgram(t, "", programModel(model, "MCP_CONFIG="+programConfig(t, entries...), "MCP_APPROVE=always"), "-json", "-q", "hi")
	assert.Equal(t, o.status, 0, o.stderr)
	assert.Check(t, is.Regexp(`^server broken: .* \(exit status 3\), stderr: no licence\n$`, o.stderr))
	var got report
	assert.NilError(t, json.Unmarshal([]byte(o.stdout), &got), o.stdout)
	assert.Equal(t, len(got.Calls), 3)
	for _, call := range got.Calls {
		assert.Check(t, is.Equal(call.Error, ""))
	}
	messages := model.Requests()[1].Messages
	for i, want := range []string{"Echo: hi", "birds.txt", "LIBRARY_RAG_SECONDS"} {
		assert.Check(t, is.Contains(messages[len(messages)-3+i].Content.Text(), want))
	}
}

// The commands, over several servers: each is listed under its name, and asked by it where that is needed.
func TestProgramServersCommands(t *testing.T) {
	checkLeaks(t)
	config := programConfig(t,
		programEntry(t, "alpha", "prog-tools", "", "PROGRAM_NAME=alpha"),
		programEntry(t, "note", "prog-tools", "", "PROGRAM_NAME=beta"), // as a scheme that resources have
		programEntry(t, "bare", "prog-bare", ""))
	run := func(args ...string) programOutcome {
		t.Helper()
		return runProgram(t, "", []string{"MCP_CONFIG=" + config, "MISTRAL_API_KEY=" + programKey}, args...)
	}
	for _, test := range []struct{ args, stdout string }{
		{"call alpha__echo {\"text\":\"x\"}", "alphax\n"},
		{"call note__echo {\"text\":\"x\"}", "betax\n"},
		{"call only_alpha", "alpha alone\n"},
		{"call note__only_beta", "beta alone\n"},
		{"read only:///beta", "beta has it\n"},
		{"read beta:///by-its-template", "beta has it\n"},
		{"read alpha:note:///hello", "hello"},
		{"read note:note:///hello", "hello"},
		{"prompt only-alpha", "user: Greet \"\" \"\".alpha\nassistant: [image: image/png, 3 bytes]\n"},
		{"prompt note:greet who=Ann", "user: Greet \"Ann\" \"\".beta\nassistant: [image: image/png, 3 bytes]\n"},
		{"resources", "alpha:\nnote:///hello (text/plain, 5 bytes)\n    A greeting.\nnote:///bytes\n    Some bytes\nonly:///alpha\n    alpha\n" +
			"note:///{name} (text/plain)\n    any note\nalpha:///{name}\n    its own\n\n" +
			"note:\nnote:///hello (text/plain, 5 bytes)\n    A greeting.\nnote:///bytes\n    Some bytes\nonly:///beta\n    beta\n" +
			"note:///{name} (text/plain)\n    any note\nbeta:///{name}\n    its own\n"},
		{"prompts", "alpha:\ngreet (who, how?)\n    Greets somebody.\nplain\n    Nothing to fill in\nonly-alpha\n\n" +
			"note:\ngreet (who, how?)\n    Greets somebody.\nplain\n    Nothing to fill in\nonly-beta\n"},
	} {
		assert.Check(t, is.Equal(run(strings.Fields(test.args)...), programOutcome{test.stdout, "", 0}), test.args)
	}
	for _, test := range []struct {
		args, want string
		status     int
	}{
		{"call echo", `several servers have a tool "echo"; say which: alpha__echo, note__echo`, 2},
		{"call eco", `none of the servers has a tool "eco"; the nearest are: alpha__echo, note__echo (see: mcpagent tools)`, 2},
		{"call alpha__eco", `none of the servers has a tool "alpha__eco"; the nearest are: alpha__echo* (see: mcpagent tools)`, 2},
		{"call weather", `none of the servers has a tool "weather"; they have: alpha__echo, alpha__notes_read, *`, 2},
		{"call alpha__fail", "", 3},
		{"call alpha__refuse", "server alpha: tools/call refuse: first line second line (error -32603)", 3},
		{"read note:///hello", `several servers have a resource "note:///hello"; say which: alpha:note:///hello, note:note:///hello`, 2},
		{"read other:///x", `none of the servers has a resource "other:///x"; they have: note:///hello, note:///bytes, only:///alpha, only:///beta (see: mcpagent resources)`, 2},
		{"read alpha:other:///x", "resources/read other:///x: there is no other:///x (error -32002)", 3},
		{"prompt greet who=Ann", `several servers have a prompt "greet"; say which: alpha:greet, note:greet`, 2},
		{"prompt alpha:great", `none of the servers has a prompt "alpha:great"; * (see: mcpagent prompts)`, 2},
		{"prompt alpha:greet", "the prompt greet needs who=… (see: mcpagent prompts)", 2},
	} {
		o := run(strings.Fields(test.args)...)
		if test.want == "" {
			assert.Check(t, is.Equal(o, programOutcome{"the disk is full\n", "mcpagent: alpha__fail reported an error\n", 3}))
			continue
		}
		o.fails(t, test.status, test.want)
	}

	o := run("tools")
	assert.Equal(t, o.stderr, "")
	assert.Check(t, strings.HasPrefix(o.stdout, "alpha:\nalpha__echo(text)\n    Repeats a text.\nalpha__notes_read("), o.stdout)
	assert.Check(t, is.Contains(o.stdout, "\n\nnote:\nnote__echo(text)\n"))
	var tools []struct{ Server, Function, Name string }
	assert.NilError(t, json.Unmarshal([]byte(run("tools", "-json").stdout), &tools))
	assert.Equal(t, len(tools), 2*(len(programTools)+1))
	assert.Equal(t, fmt.Sprint(tools[1], tools[len(tools)-1]), "{alpha alpha__notes_read notes.read} {note note__only_beta only_beta}")
	for _, command := range []string{"resources", "prompts"} {
		text := run(command, "-json").stdout
		assert.Check(t, is.Contains(text, `"server": "alpha"`))
		assert.Check(t, is.Contains(text, `"server": "note"`))
	}

	// A server that has died, or cannot say what it has, is named, and the others go on.
	config = programFour(t)
	for _, command := range []string{"tools", "resources", "prompts"} {
		o := run(command)
		assert.Check(t, is.Equal(o.status, 0))
		assert.Check(t, is.Regexp("^server broken: .*\nserver unset: .*\n$", o.stderr))
		assert.Check(t, is.Regexp(`(?s)alpha:\n.*\nbeta:\n.*\ngamma-3:\n`, o.stdout))
	}
	o = run("read", "alpha:note:///hello") // for which the others are not asked
	assert.Check(t, is.Equal(o.stdout, "hello"))
	assert.Check(t, is.Regexp("^server broken: .*\nserver unset: .*\n$", o.stderr))
	config = programConfig(t, programEntry(t, "well", "prog-tools", ""), programEntry(t, "sick", "prog-sick", ""))
	for _, command := range []string{"resources", "prompts"} {
		o := run(command)
		assert.Check(t, is.Equal(o.status, 0))
		assert.Check(t, is.Contains(o.stdout, "well:\n"))
		assert.Check(t, strings.HasPrefix(o.stderr, "server sick: "+command+"/list: not today (error -32603)\n"), o.stderr)
	}
	config = programConfig(t, programEntry(t, "sick", "prog-sick", ""), programEntry(t, "sicker", "prog-sick", ""))
	run("prompts").fails(t, 1, "prompts/list: not today (error -32603)")
	config = programConfig(t, programEntry(t, "empty", "prog-none", ""), programEntry(t, "bare", "prog-bare", ""))
	for _, command := range []string{"tools", "resources", "prompts"} {
		assert.Check(t, is.Equal(run(command), programOutcome{"", "the servers have no " + command + "\n", 0}))
	}
	run("call", "echo").fails(t, 2, `none of the servers has a tool "echo", nor any other`)
}

// What the configuration leaves out is not offered to the model; the user can still see it, and call it.
func TestProgramConfigTools(t *testing.T) {
	checkLeaks(t)
	config := "MCP_CONFIG=" + programConfig(t,
		programEntry(t, "a", "prog-tools", `"allowedTools":["e*","fail"],"excludedTools":["empty"]`),
		programEntry(t, "b", "prog-many", `"allowedTools":["tool11?"]`))
	model := newModelServer(t, modelText("done"))
	o := runProgram(t, "", programModel(model, config), "-q", "hi")
	assert.Equal(t, o, programOutcome{"done\n", "", 0})
	var names []string
	for _, f := range model.Requests()[0].Tools {
		names = append(names, f.Name)
	}
	assert.Equal(t, strings.Join(names, " "), "a__echo a__fail b__tool110 b__tool111 b__tool112 b__tool113 b__tool114 b__tool115 b__tool116 b__tool117 b__tool118")

	o = runProgram(t, "", []string{config}, "tools")
	assert.Check(t, is.Contains(o.stdout, "\na__echo(text)\n"))
	assert.Check(t, is.Contains(o.stdout, "\na__empty() [not for the model]\n"))
	o = runProgram(t, "", []string{config}, "tools", "-json")
	assert.Check(t, is.Contains(o.stdout, `"excluded": true`))
	o = runProgram(t, "", []string{config}, "call", "a__structured")
	assert.Equal(t, o, programOutcome{"{\"sum\":3}\n", "", 0})
}

// What the configuration always allows runs without a terminal, unless the user says never.
func TestProgramConfigApproval(t *testing.T) {
	checkLeaks(t)
	config := "MCP_CONFIG=" + programConfig(t,
		programEntry(t, "a", "prog-tools", `"alwaysAllow":["ec*"]`), programEntry(t, "b", "prog-tools", ""), programEntry(t, "c", "prog-tools", `"autoApprove":true`))
	const refused = "Error: the call was refused: nobody is there to allow it"
	for approve, want := range map[string][]string{
		"":       {"1", refused, refused, "4"},
		"ask":    {"1", refused, refused, "4"},
		"always": {"1", "the note x", "3", "4"},
		"never":  {"Error: the call was refused: the user allows no calls"},
	} {
		model := newModelServer(t, modelCalls(
			modelCall("aaaaaaaa1", "a__echo", `{"text":"1"}`), modelCall("aaaaaaaa2", "a__notes_read", `{"name":"x"}`),
			modelCall("aaaaaaaa3", "b__echo", `{"text":"3"}`), modelCall("aaaaaaaa4", "c__echo", `{"text":"4"}`)), modelText("done"))
		o := runProgram(t, "", programModel(model, config, "MCP_APPROVE="+approve), "-q", "hi")
		assert.Check(t, is.Equal(o.stdout, "done\n"))
		messages := model.Requests()[1].Messages
		for i, m := range messages[len(messages)-4:] {
			assert.Check(t, is.Equal(m.Content.Text(), want[min(i, len(want)-1)]), "%s: call %d", approve, i+1)
		}
	}
}

// A server's own timeout is stronger than the program's.
func TestProgramConfigTimeout(t *testing.T) {
	checkLeaks(t)
	config := programConfig(t, programEntry(t, "a", "prog-tools", `"timeout":"2s"`))
	o := runProgram(t, "", []string{"MCP_CONFIG=" + config}, "call", "hang")
	o.fails(t, 3, "tools/call hang: no answer and no progress for 2s")
}

// programLogs is the folder of the logs.
func (p *programRun) programLogs() string {
	return filepath.Join(p.home, ".cache", "mcpagent")
}

// What servers write to stderr goes to a file for each, without secrets, from its beginning in every run.
func TestProgramLogs(t *testing.T) {
	checkLeaks(t)
	if runtime.GOOS != "linux" {
		t.Skip("the folder is another one")
	}
	const secret = "planted-secret-1"
	config := programConfig(t,
		programEntry(t, "../a b", "prog-key", "", "PROGRAM_KEY="+secret),
		programEntry(t, "b", "prog-tools", "", "PROGRAM_TELLS=1"),
		programEntry(t, "many", "prog-loud", ""))
	p := newProgram(t, []string{"MCP_CONFIG=" + config}, "call", "b__echo", `{"text":"x"}`)
	programWrite(t, filepath.Join(p.programLogs(), "b.log"), "of an earlier run")
	p.start()
	assert.Equal(t, p.end(), 0, p.stderr.String())
	many := filepath.Join(p.programLogs(), "many.log")
	assert.Check(t, is.Regexp(`^server many: initialize: .* \(exit status 7\), stderr: line 6 \| line 7 \| line 8 \| line 9; all that it wrote is in `+regexp.QuoteMeta(many)+"\n$", p.stderr.String()))
	assert.Check(t, is.Equal(programRead(t, many), strings.Repeat("line 0\nline 1\nline 2\nline 3\nline 4\nline 5\nline 6\nline 7\nline 8\nline 9\n", 2)), "of both starts")
	assert.Check(t, is.Equal(programRead(t, filepath.Join(p.programLogs(), "b.log")),
		"started\nasked server/discover\nasked initialize\nasked tools/list\nasked tools/call\nend of stdin <nil>\n"))
	files, err := os.ReadDir(p.programLogs())
	assert.NilError(t, err)
	assert.Equal(t, len(files), 3)
	for _, file := range files {
		info, err := file.Info()
		assert.NilError(t, err)
		assert.Check(t, is.Equal(info.Mode().Perm(), os.FileMode(0o600)))
		assert.Check(t, is.Regexp(`^(b|many|_\._a_b\w*)\.log$`, file.Name()))
		assert.Check(t, !strings.Contains(programRead(t, filepath.Join(p.programLogs(), file.Name())), secret))
	}

	// With a trace they are in that, and there are no logs, nor are there of the built-in library; without a home there are none, either.
	for _, variables := range [][]string{{"MCP_CONFIG=" + config, "MCP_TRACE=1"}, nil, {"MCP_CONFIG=" + config, "HOME="}} {
		p = newProgram(t, variables, "tools")
		p.start()
		assert.Equal(t, p.end(), 0, p.stderr.String())
		_, err = os.Stat(p.programLogs())
		assert.Check(t, os.IsNotExist(err))
	}
}

// A log has a bound, and a secret in two pieces does not get into it.
func TestServerLog(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("HOME", t.TempDir())
	t.Setenv("LocalAppData", t.TempDir())
	p := &program{}
	p.mask.Add("[secret]", "planted-secret")
	l := p.openLog("a")
	assert.Assert(t, l != nil)
	write := func(text string) {
		t.Helper()
		n, err := l.Write([]byte(text))
		assert.NilError(t, err)
		assert.Equal(t, n, len(text))
	}
	write("it is planted-")
	assert.Check(t, is.Equal(programRead(t, l.path), "it is "))
	write("secret\n")
	assert.Check(t, is.Equal(programRead(t, l.path), "it is [secret]\n"))
	write(strings.Repeat("x", maxLog-20) + "\n")
	assert.Check(t, is.Equal(len(programRead(t, l.path)), maxLog-4))
	write("the newest\nand pla")
	assert.NilError(t, l.Close())
	if runtime.GOOS != "windows" {
		assert.Check(t, is.Equal(programRead(t, l.path), "the newest\nand pla"))
	}
}

func TestLogNames(t *testing.T) {
	names := []string{"github", "a/b", "a_b", ".hidden", "..", "", "é", "A", strings.Repeat("x", 100), "a\x00b"}
	var servers []ServerConfig
	for _, name := range names {
		servers = append(servers, ServerConfig{Name: name})
	}
	seen := make(map[string]bool)
	for i, name := range logNames(servers) {
		assert.Check(t, is.Regexp(`^[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}$`, name))
		assert.Check(t, !seen[name], name)
		seen[name] = true
		if names[i] == "github" || names[i] == "a_b" || names[i] == "A" {
			assert.Check(t, is.Equal(name, names[i]))
		}
	}
}

// A trace names the server where there are several.
func TestProgramTraceServers(t *testing.T) {
	checkLeaks(t)
	config := programConfig(t, programEntry(t, "a", "prog-banner", "", "PROGRAM_TELLS=1"), programEntry(t, "b\x1b", "prog-modern", ""))
	trace := filepath.Join(t.TempDir(), "trace")
	o := runProgram(t, "", []string{"MCP_CONFIG=" + config, "MCP_TRACE=" + trace}, "tools")
	assert.Equal(t, o.status, 0)
	assert.Equal(t, o.stderr, "")
	text := programRead(t, trace)
	for _, want := range []string{"\na -> {", "\na <- {", "\na !! skipped: not a JSON-RPC object\n", "\na !! stderr: asked initialize\n", "\nb\uFFFD -> {", "\nb\uFFFD <- {"} {
		assert.Check(t, is.Contains("\n"+text, want))
	}
	for line := range strings.Lines(text) {
		assert.Check(t, is.Regexp(`^(a|b\x{FFFD}) (->|<-|!!) `, line))
	}
}

const (
	programSecretEnv    = "planted-env-0123456789"
	programSecretHeader = "planted-header-0123456789"
	programSecretVar    = `planted-"variable"\0123456789`
)

// programGossip is a server on HTTP that repeats, in whatever it says, the header it was sent.
func programGossip(t *testing.T) string {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var m struct {
			ID     json.RawMessage
			Method string
			Params struct{ Name string }
		}
		_ = json.Unmarshal(body, &m)
		kind, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		secret := fmt.Sprintf("it was told %s %s, that is %s", kind, token, token)
		if m.ID == nil {
			w.WriteHeader(http.StatusAccepted)
			return
		}
		var result any
		switch m.Method {
		case "initialize":
			result = map[string]any{"protocolVersion": "2025-11-25", "capabilities": map[string]any{"tools": map[string]any{}, "resources": map[string]any{}},
				"serverInfo": map[string]any{"name": secret, "version": "1"}, "instructions": secret}
		case "tools/list":
			result = map[string]any{"tools": []Tool{{Name: "gossip", Description: secret, InputSchema: json.RawMessage(`{"type":"object"}`)}}}
		case "tools/call":
			result = ToolResult{Content: []ContentBlock{{Type: "text", Text: secret}}}
		case "resources/list":
			result = map[string]any{"resources": []Resource{{URI: "gossip:///x", Name: secret}, {URI: "gossip:///page", Name: "page"}}}
		case "resources/read":
			if strings.Contains(string(body), "page") { // of which an error has the beginning
				http.Error(w, strings.Repeat(secret+" ", 100), http.StatusBadGateway)
				return
			}
		}
		w.Header().Set("Content-Type", "application/json")
		if result == nil {
			_, _ = w.Write(modelJSON(map[string]any{"jsonrpc": "2.0", "id": m.ID, "error": &Error{Code: CodeMethodNotFound + 5, Message: secret}}))
			return
		}
		_, _ = w.Write(modelJSON(map[string]any{"jsonrpc": "2.0", "id": m.ID, "result": result}))
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// No secret of the configuration, and not the key, is in anything that the program shows or writes down, though servers and
// model repeat them.
func TestProgramHidesSecrets(t *testing.T) {
	checkLeaks(t)
	config := programConfig(t,
		programEntry(t, "env", "prog-key", "", "PROGRAM_KEY="+programSecretEnv),
		programEntry(t, "var", "prog-key", "", "PROGRAM_KEY=x${PLANTED}x"),
		programEntry(t, "bad", "prog-key-exits", `"args":["--token=${PLANTED}"]`, "PROGRAM_KEY="+programSecretEnv),
		`"away":{"command":"no-such-command","args":["${PLANTED}"]}`,
		fmt.Sprintf(`"http":{"url":%q,"headers":{"Authorization":"Bearer %s"}}`, programGossip(t), programSecretHeader),
		`"401":{"url":"http://127.0.0.1:1/?token=`+programSecretEnv+`"}`)
	secrets := []string{programKey, programSecretEnv, programSecretHeader, programSecretVar, strings.Trim(string(modelJSON(programSecretVar)), `"`)}
	dir := t.TempDir()
	session, trace := filepath.Join(dir, "session"), filepath.Join(dir, "trace")
	seen := ""
	for _, tracing := range []string{"", "1", trace} {
		for _, args := range [][]string{
			{"-session", session, "hi"}, {"-session", session, "-json", "hi"}, {"tools"}, {"tools", "-json"}, {"resources"}, {"resources", "-json"},
			{"prompts"}, {"prompts", "-json"}, {"call", "env__echo"}, {"call", "env__echo", "-json"}, {"call", "var__slow"}, {"call", "var__refuse"},
			{"call", "gossip"}, {"call", "gossip", "-json"}, {"call", "var__fail", "-json"}, {"read", "var:note:///hello"}, {"read", "var:note:///bytes"},
			{"read", "env:note:///none"}, {"read", "gossip:///x"}, {"read", "gossip:///x", "-json"}, {"read", "gossip:///page"}, {"prompt", "env:plain"}, {"prompt", "var:plain", "-json"},
			{"call", "env__ask", programAsks("q", "elicitation/create", strings.Replace(programForm, "Who", programSecretHeader, 1))},
			{"call", programSecretEnv}, {"-config", programSecretEnv, "tools"},
		} {
			model := programAlways(t, modelText("The secrets are "+strings.Join(secrets, " and ")), modelCalls(
				modelCall("aaaaaaaa1", "env__echo", `{"text":"`+programSecretHeader+`"}`), modelCall("aaaaaaaa2", "var__slow", `{}`),
				modelCall("aaaaaaaa3", "var__refuse", `{}`), modelCall("aaaaaaaa4", "http__gossip", `{}`), modelCall("aaaaaaaa5", programSecretEnv, `{}`)))
			p := newProgram(t, programModel(model, "MCP_CONFIG="+config, "PLANTED="+programSecretVar, "MCP_APPROVE=always", "MCP_TRACE="+tracing), args...)
			p.start()
			p.end()
			written := p.stdout.String() + p.stderr.String()
			logs, _ := filepath.Glob(filepath.Join(p.programLogs(), "*"))
			for _, file := range append(logs, session, trace) {
				text, _ := os.ReadFile(file)
				written += "\n" + file + ":\n" + string(text)
			}
			if tracing == "" && runtime.GOOS == "linux" && args[0] != "-config" {
				assert.Check(t, is.Len(logs, 4))
			}
			if args[len(args)-1] == "-json" || args[0] == "-session" && args[2] == "-json" {
				assert.Check(t, json.Valid(p.stdout.Bytes()), p.stdout.String())
			}
			for _, secret := range secrets {
				at := max(strings.Index(written, secret[:12]), strings.Index(written, secret[len(secret)-12:])) // nor the half of it
				if args[0] == "-config" {                                                                       // it is not known for a secret yet, and the user's own word
					continue
				}
				assert.Assert(t, at < 0, "%s %q: …%s", tracing, args, written[max(0, at-200):min(len(written), max(0, at+60))])
			}
			seen += written
		}
	}
	assert.Check(t, is.Contains(seen, "The secrets are [key] and [secret] and [secret] and [secret] and [secret]"), "the test shows nothing")
	assert.Check(t, is.Contains(seen, "it was told [secret]"))
	assert.Check(t, is.Contains(seen, "!! stderr: the key is [secret]"))
}

// What MCP_SERVER and MCP_HEADERS hold is hidden, too.
func TestProgramHidesSecretsOfOneServer(t *testing.T) {
	checkLeaks(t)
	basic := base64.StdEncoding.EncodeToString([]byte("ada:" + programSecretEnv))
	for _, test := range []struct{ server, headers, secret, want string }{
		{programServer(t, "prog-key", "PROGRAM_KEY="+programSecretEnv), "", programSecretEnv, "the key is [secret], says echo"},
		{programServer(t, "prog-key", "'PROGRAM_KEY=https://ada:"+programSecretEnv+"@example.com/'"), "", programSecretEnv, "the key is https://ada:[secret]@example.com/, says echo"},
		{"MCP_SERVER=" + programGossip(t), "Authorization: Bearer " + programSecretHeader, programSecretHeader, "it was told [secret], that is [secret]"},
		{"MCP_SERVER=" + strings.Replace(programGossip(t), "//", "//ada:"+programSecretEnv+"@", 1), "", basic, "it was told Basic [secret]"},
	} {
		o := runProgram(t, "", []string{test.server, "MCP_HEADERS=" + test.headers, "MCP_TRACE=1"}, "tools")
		assert.Equal(t, o.status, 0, o.stderr)
		assert.Check(t, is.Contains(o.stdout, test.want))
		assert.Check(t, !strings.Contains(o.stdout+o.stderr, test.secret))
	}
}

// A session goes on where it was left, from one run to the next.
func TestProgramSession(t *testing.T) {
	checkLeaks(t)
	file := filepath.Join(t.TempDir(), "session.json")
	server := programServer(t, "prog-tools")
	ask := func(model *modelServer, args ...string) programOutcome {
		return runProgram(t, "", programModel(model, server, "MCP_APPROVE=always"), append([]string{"-q", "-session", file}, args...)...)
	}
	model := newModelServer(t, modelCalls(modelCall("aaaaaaaa1", "echo", `{"text":"a heron"}`)), modelText("It is a heron."))
	assert.Equal(t, ask(model, "which", "bird?"), programOutcome{"It is a heron.\n", "", 0})
	info, err := os.Stat(file)
	assert.NilError(t, err)
	assert.Check(t, runtime.GOOS == "windows" || info.Mode().Perm() == 0o600)

	model = newModelServer(t, modelText("In water."))
	assert.Equal(t, ask(model, "where", "does", "it", "wait?"), programOutcome{"In water.\n", "", 0})
	var told []string
	for _, m := range model.Requests()[0].Messages[1:] {
		told = append(told, m.Role+": "+m.Content.Text())
	}
	assert.Equal(t, strings.Join(told, "\n"), "user: which bird?\nassistant: \ntool: a heron\nassistant: It is a heron.\nuser: where does it wait?")

	model = newModelServer(t, modelText("Yes."))
	o := ask(model, "-json", "sure?")
	var got report
	assert.NilError(t, json.Unmarshal([]byte(o.stdout), &got), o.stdout)
	assert.Equal(t, len(got.Calls), 0, "of this question alone")
	assert.Equal(t, len(model.Requests()[0].Messages), 8)

	// A question that came to nothing leaves the session as it was; one that broke off half-way does not.
	before := programRead(t, file)
	o = ask(newModelServer(t, modelUnauthorized()), "lost")
	assert.Equal(t, o.status, 4)
	assert.Equal(t, programRead(t, file), before)
	o = ask(newModelServer(t, modelCalls(modelCall("aaaaaaaa1", "echo", `{"text":"done"}`)), modelUnauthorized()), "half")
	assert.Equal(t, o.status, 4)
	assert.Check(t, is.Contains(programRead(t, file), "half"))

	// What is no session is not overwritten, and no server is started for it.
	programWrite(t, file, "{")
	o = ask(newModelServer(t), "hi")
	o.fails(t, 1, "-session: *")
	assert.Equal(t, programRead(t, file), "{")
	missing := filepath.Join(filepath.Dir(file), "no", "folder")
	o = runProgram(t, "", programModel(newModelServer(t, modelText("hi")), server), "-session", missing, "-q", "hi")
	assert.Equal(t, o.status, 1)
	assert.Equal(t, o.stdout, "hi\n", "the answer is not lost")
	assert.Check(t, is.Regexp("^mcpagent: -session: .*\n$", o.stderr))
	for _, command := range []string{"tools", "call", "serve"} {
		runProgram(t, "", []string{server}, "-session", file, command).fails(t, 2, "-session goes with a question (see: mcpagent help)")
	}
}

// What is kept is what was said last, also if it is no longer than what had been kept before.
func TestProgramKeep(t *testing.T) {
	p := &program{session: filepath.Join(t.TempDir(), "session")}
	session, err := p.resume()
	assert.NilError(t, err)
	agent := &Agent{Model: &Mistral{Model: "m"}, Usage: Usage{TotalTokens: 5}}
	for _, text := range []string{"one", "two"} {
		agent.History = []Message{{Role: "user", Content: Text(text)}, {Role: "assistant", Content: Text("yes")}}
		assert.NilError(t, p.keep(session, agent))
	}
	session, err = p.resume()
	assert.NilError(t, err)
	assert.Equal(t, session.History[0].Content.Text(), "two")
	assert.Equal(t, session.Usage.TotalTokens, 10)
	assert.Equal(t, session.Model, "m")
	assert.NilError(t, os.Remove(p.session))
	assert.NilError(t, p.keep(&Session{History: agent.History}, agent))
	_, err = os.Stat(p.session)
	assert.Check(t, os.IsNotExist(err), "nothing new was said")
}

// With -json, a question that failed tells what had been done.
func TestProgramAskFailsJSON(t *testing.T) {
	checkLeaks(t)
	model := newModelServer(t, modelCalls(modelCall("aaaaaaaa1", "echo", `{"text":"x"}`)), modelUnauthorized())
	o := runProgram(t, "", programModel(model, programServer(t, "prog-tools"), "MCP_APPROVE=always"), "-json", "-q", "hi")
	assert.Equal(t, o.status, 4)
	var got struct {
		Error string
		report
	}
	assert.NilError(t, json.Unmarshal([]byte(o.stdout), &got), o.stdout)
	assert.Check(t, is.Contains(got.Error, "401 Unauthorized"))
	assert.Equal(t, got.Calls[0].Name, "echo")
	assert.Equal(t, got.Usage.TotalTokens, 15)
	assert.Equal(t, got.Model, "mistral-large-latest")
}

// Ctrl-C ends all servers, and the next one ends at once those that do not want to.
func TestProgramServersInterrupted(t *testing.T) {
	checkLeaks(t)
	if runtime.GOOS == "windows" {
		t.Skip("no signals can be sent to another process")
	}
	config := programConfig(t, programEntry(t, "a", "prog-immortal", ""), programEntry(t, "b", "prog-immortal", ""), programEntry(t, "c", "prog-tools", ""))
	p := newProgram(t, []string{"MCP_CONFIG=" + config, "MCP_TRACE=1"}, "call", "c__hang")
	p.start()
	p.saw("c !! stderr: hanging\n")
	assert.NilError(t, p.command.Process.Signal(os.Interrupt))
	p.saw("!! stderr: end of stdin")
	p.saw("!! stderr: end of stdin")
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for p.command.Process.Signal(os.Interrupt) == nil { // not once: the first one may be a moment in coming through
			time.Sleep(time.Millisecond)
		}
	}()
	status := p.end()
	<-ended
	assert.Equal(t, status, exitInterrupted, p.stderr.String())
}

// BenchmarkStartServers is how much longer three servers take, of which one is slow, than that one alone: from the start to the
// lists of their tools.
func BenchmarkStartServers(b *testing.B) {
	path, err := os.Executable()
	assert.NilError(b, err)
	server := func(delay string) HostServer {
		s := &Server{Command: Command{Path: path, Env: []string{"MCPAGENT_CHILD=prog-tools", "PROGRAM_DELAY=" + delay, programRace}}}
		return HostServer{Name: "after-" + delay, Connect: s.Connect}
	}
	start := func(servers ...HostServer) time.Duration {
		began := time.Now()
		host := StartHost(context.Background(), servers)
		_, err := host.Functions(context.Background())
		took := time.Since(began)
		assert.NilError(b, err)
		assert.NilError(b, host.Close())
		return took
	}
	var alone, together time.Duration
	for b.Loop() {
		alone += start(server("300ms"))
		together += start(server("100ms"), server("300ms"), server("200ms"))
	}
	b.ReportMetric(float64(together-alone)/float64(b.N)/1e6, "ms-over-slowest")
}
