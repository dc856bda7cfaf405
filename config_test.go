package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/golden"
)

// configLookup finds a few variables.
func configLookup(name string) (string, bool) {
	value, ok := map[string]string{
		"HOME":            "/home/ada",
		"workspaceFolder": "/home/ada/work",
		"EMPTY":           "",
		"PORT":            "8080",
		"API_KEY":         "planted-key-1",
		"GITHUB_TOKEN":    "planted-token-22",
		"NESTED":          "${API_KEY}",
		"FROM_FILE":       "planted-from-file\n",
	}[name]
	return value, ok
}

// configServer reads a configuration of one server, given by its fields.
func configServer(t *testing.T, fields string) (server Server, warnings []string, secrets *Secrets) {
	t.Helper()
	secrets = new(Secrets)
	c, err := ParseConfig([]byte(`{"mcpServers": {"x": {`+fields+`}}}`), configLookup, ReadRegular, secrets)
	assert.NilError(t, err)
	assert.Equal(t, len(c.Servers), 1)
	return c.Servers[0], c.Warnings, secrets
}

func ExampleParseConfig() {
	config, err := ParseConfig([]byte(`{
		"mcpServers": {
			"files": {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-filesystem", "${DIR:-/tmp}"]},
			"issues": {"url": "https://example.com/mcp", "headers": {"Authorization": "Bearer ${TOKEN}"}}
		}
	}`), func(string) (string, bool) { return "", false }, ReadRegular, new(Secrets)) // os.LookupEnv
	if err != nil {
		panic(err)
	}
	for _, server := range config.Servers {
		fmt.Println(server.Name, server.Command.Path, server.Command.Args, server.Err)
	}
	// Output:
	// files npx [-y @modelcontextprotocol/server-filesystem /tmp] <nil>
	// issues  [] header Authorization: variable TOKEN is not set
}

// TestConfigFiles: what is read of each file in testdata/config. Nine are those of hosts, in the
// form that their documentation has; the others hold all that a server can be written like.
// (-update writes the outcomes.)
func TestConfigFiles(t *testing.T) {
	files, err := filepath.Glob("testdata/config/*.json")
	assert.NilError(t, err)
	assert.Equal(t, len(files), 12)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			assert.NilError(t, err)
			var secrets Secrets
			c, err := ParseConfig(text, configLookup, ReadRegular, &secrets)
			assert.NilError(t, err)
			var out strings.Builder
			for i := range c.Servers {
				out.WriteString(describeServer(&c.Servers[i]))
			}
			for _, in := range c.Inputs {
				fmt.Fprintf(&out, "input: %+v\n", in)
			}
			out.WriteString(strings.Join(c.Warnings, "\n") + "\n")
			golden.Assert(t, out.String(), strings.TrimSuffix("config/"+filepath.Base(file), "json")+"golden")
			assert.Check(t, !strings.Contains(secrets.Mask(out.String()), "planted"))
		})
	}
}

// describeServer says what is set of a server, a line each.
func describeServer(s *Server) string {
	out := fmt.Sprintf("server %q\n", s.Name)
	for _, field := range []struct {
		name  string
		value any
		set   bool
	}{
		{"error", fmt.Sprint(s.Err), s.Err != nil},
		{"command", append([]string{s.Command.Path}, s.Command.Args...), s.Command.Path != ""},
		{"env", s.Command.Env, s.Command.Env != nil},
		{"dir", s.Command.Dir, s.Command.Dir != ""},
		{"url", s.URL, s.URL != ""},
		{"header", s.Header, s.Header != nil},
		{"HTTP+SSE", s.SSE, s.SSE},
		{"timeout", s.Timeout.String(), s.Timeout != 0},
		{"start timeout", s.StartTimeout.String(), s.StartTimeout != 0},
		{"allowed", s.AllowedTools, s.AllowedTools != nil},
		{"excluded", s.ExcludedTools, s.ExcludedTools != nil},
		{"approved", s.AutoApprove, s.AutoApprove != nil},
	} {
		if field.set {
			value, _ := json.Marshal(field.value)
			out += fmt.Sprintf("\t%s: %s\n", field.name, value)
		}
	}
	return out
}

// TestConfigSecrets: from where a configuration's secrets come. What is secret there is for
// TestSecretsRules.
func TestConfigSecrets(t *testing.T) {
	for _, test := range []struct{ fields, text, want string }{
		{`"command": "a", "args": ["--token=${GITHUB_TOKEN}", "${HOME}", "${PORT}", "literal-text"]`,
			"planted-token-22 /home/ada 8080 literal-text", "[secret] /home/ada 8080 literal-text"},
		{`"command": "${API_KEY}", "cwd": "/x/${GITHUB_TOKEN}"`, "planted-token-22 planted-key-1", "[secret] [secret]"},
		{`"command": "a", "env": {"A_KEY": "${NONE:-planted-default}"}`, "planted-default", "[secret]"},
		{`"command": "a", "env": {"A_KEY": "x${API_KEY}y", "B": "${API_KEY}"}`,
			"xplanted-key-1y planted-key-1", "[secret] [secret]"},
		{`"command": "a", "env": {"A": "b${EMPTY}c"}, "args": ["short"]`, "bc short", "bc short"},
		{`"url": "http://h", "headers": {"Authorization": "Bearer planted-1", "X-Team": "7"}`, "planted-1 7", "[secret] 7"},
		{`"command": "npx", "args": ["x", "--api-key", "planted-3", "--token=planted-4", "postgres://a:planted-5@h"]`,
			"x planted-3 planted-4 planted-5", "x [secret] [secret] [secret]"},
		{`"url": "http://h", "headers": ["X-Key: planted-2"]`, "planted-2", "[secret]"},
		{`"url": "https://ada:planted-password@h/mcp?api_key=planted-1"`, "planted-1 planted-password", "[secret] [secret]"},
		{`"url": "https://ada:planted-password@/mcp", "env": {"A_KEY": "planted-2"}`,
			"planted-password planted-2", "planted-password [secret]"},
	} {
		_, _, secrets := configServer(t, test.fields)
		assert.Check(t, is.Equal(secrets.Mask(test.text), test.want), test.fields)
	}
}

func TestConfigErrors(t *testing.T) {
	const (
		asJSON = `write each server into an object, as in {"mcpServers": {"NAME": {"command": "npx", ` +
			`"args": ["-y", "PACKAGE"], "env": {"KEY": "VALUE"}}}}`
		inQuotes = `; put names, strings and variables in double quotes, and write true, false and ` +
			`null in lower case`
		isOpen = `; a bracket, brace or quote is not closed`
	)
	tests := []struct{ text, want string }{
		{"", "it is empty"},
		{" \n// nothing\n", "it is empty"},
		{"mcpServers of all\n  a:", "it is not JSON: " + asJSON},
		{"npx -y server /tmp", "it is not JSON: " + asJSON},
		{"```json\n{}\n```", "it is not JSON: " + asJSON},
		{"\xff\xfe{\x00}\x00", "it is UTF-16, as PowerShell writes it: save it as UTF-8"},
		{"\xfe\xff\x00{\x00}", "it is UTF-16, as PowerShell writes it: save it as UTF-8"},
		{"\"command\": npx\n", "it is YAML, and not JSON: " + asJSON},
		{"{\n  \"mcpServers\": {\n    \"é\": }\n}",
			"line 3, column 10: invalid character '}' looking for beginning of value"},
		{"{\r\n\t\"mcpServers\" {}}", "line 2, column 15: invalid character '{' after object key"},
		{"{\"a\": /* é\n é */ é}", "line 2, column 7: invalid character 'é' looking for beginning of value" + inQuotes},
		{"{\"a\": 1 // \"", "line 1, column 12: unexpected end of JSON input" + isOpen},
		{"{\"a\": 1 /* }", "line 1, column 9: invalid character '/' after object key:value pair"},
		{"\ufeff{,,}", "line 1, column 2: invalid character ',' looking for beginning of object key string"},
		{"{“a”: 1}", "line 1, column 2: invalid character '“' looking for beginning of object key string; " +
			"it is a curly quote: write \""},
		{"{'a': 1}", "line 1, column 2: invalid character '\\'' looking for beginning of object key string" + inQuotes},
		{"{a: 1}", "line 1, column 2: invalid character 'a' looking for beginning of object key string" + inQuotes},
		{`{"a": 'b'}`, `line 1, column 7: invalid character '\'' looking for beginning of value` + inQuotes},
		{"{\n...\n}", "line 2, column 1: invalid character '.' looking for beginning of object key string; " +
			"write what ... stands for, or take it out"},
		{`{"a": "C:\Users"}`, "line 1, column 11: invalid character 'U' in string escape code; write \\\\ for a backslash"},
		{"{\"a\": 1} # b", "line 1, column 10: invalid character '#' after top-level value; a comment begins with //"},
		{"{\"a\": 1}\n{\"b\": 2}", "line 2, column 1: invalid character '{' after top-level value"},
		{`"mcpServers": {"a": {"command": "x" "args": []}}`,
			"line 1, column 37: invalid character '\"' after object key:value pair; a comma is missing before it"},
		{`{"a" "b"}`, "line 1, column 6: invalid character '\"' after object key; a colon is missing before it"},
		{`{"a": 1} "b"`, "line 1, column 10: invalid character '\"' after top-level value"},
		{`{"a": True}`, "line 1, column 7: invalid character 'T' looking for beginning of value" + inQuotes},
		{"\"a\": {\n  \"command\": }", "line 2, column 14: invalid character '}' looking for beginning of value"},
		{`"a": {"command": "x"`, "line 1, column 21: unexpected end of JSON input" + isOpen},
		{`"context_servers": ["a": {}],`, "line 1, column 24: invalid character ':' after array element"},
		{"{\"max-steps\": ${env://STEPS:-20},\n\"a\": 1}", "line 1, column 15: invalid character '$' looking for beginning " +
			"of value" + inQuotes},
		{"{\xff}", "line 1, column 2: invalid character 'ÿ' looking for beginning of object key string" + inQuotes},
	}
	none := []string{"[]", "null", `{"servers": []}`, `{"files": {"commands": "a"}}`, "{}", `"a"`,
		`{"files": {"command": "a"}, "other": {}}`, `"mcpServers": []`}
	for _, text := range none {
		tests = append(tests, struct{ text, want string }{text, "the configuration has no object mcpServers (in VS Code: " +
			"servers; in Zed: context_servers; in opencode: mcp)"})
	}
	for _, test := range tests {
		c, err := ParseConfig([]byte(test.text), configLookup, ReadRegular, new(Secrets))
		assert.Check(t, is.Error(err, test.want), test.text)
		assert.Check(t, c == nil)
	}
}

// A README shows a piece of a configuration; what goes around it is added.
func TestConfigSnippets(t *testing.T) {
	const server = `{"command": "/usr/bin/uvx", "args": ["a"]}`
	for text, want := range map[string]string{
		`"mcpServers": {"git": ` + server + `}`:                                  "git",
		"\ufeff // in your settings\n\"mcpServers\": {\"git\": " + server + "},": "git",
		`"context_servers": {"git": ` + server + `}, // and others`:              "git",
		`"mcp": {"inputs": [], "servers": {"git": ` + server + `}}`:              "git",
		`"git": ` + server: "git",
		`"git": ` + server + `, "b": ` + server + `,`:        "git b",
		`{"git": ` + server + `, "b": {"url": "http://h/"}}`: "git b",
		server:                                "uvx",
		`{"type": "stdio", "command": ["a"]}`: "server",
		`{"url": "https://example.com/mcp"}`:  "example.com",
		`{"name": "files", "command": "a", "description": "b"}`: "files",
		server + ",": "uvx",
		`{"mcpServers": {"git": ` + server + `}},`:    "git",
		`"command": "/usr/bin/uvx", "args": ["a"]`:    "uvx",
		"\"type\": \"stdio\",\n\"command\": \"a\",\n": "a",
		`"url": "https://example.com/mcp"`:            "example.com",
		`"args": ["a"], "command": "b"`:               "b",
	} {
		c, err := ParseConfig([]byte(text), configLookup, ReadRegular, new(Secrets))
		assert.NilError(t, err, text)
		assert.Check(t, is.Equal(strings.Join(ServerNames(c.Servers), " "), want), text)
		for _, s := range c.Servers {
			assert.Check(t, s.Err == nil && s.Command.Path+s.URL != "", text)
		}
		assert.Check(t, len(c.Warnings) == 0, "%v", c.Warnings)
	}
}

func TestConfigComments(t *testing.T) {
	tests := []struct{ text, want string }{
		{"1 // a \"b\n2", "1        \n2"},
		{"1/*a\nb*/2/**/3", "1   \n   2    3"},
		{`["//", "/*", "\"//", "*/"] // x`, `["//", "/*", "\"//", "*/"]     `},
		{`[1, 2, ]`, `[1, 2  ]`},
		{"{\"a\": [1,\n],}", "{\"a\": [1 \n] }"},
		{`[1, /* , */ ]`, `[1          ]`},
		{`{"a": ",]", "b,}": 1}`, `{"a": ",]", "b,}": 1}`},
		{"{}, // a\n", "{}      \n"},
		{`[1,,]`, `[1, ]`},
		{"/* é", "/* é"},
	}
	for _, test := range tests {
		assert.Check(t, is.Equal(string(withoutComments([]byte(test.text))), test.want))
	}
}

// FuzzParseConfig: whatever the text, JSON is read as it is, a server is either in order or says
// why not, and no message shows what a variable holds.
func FuzzParseConfig(f *testing.F) {
	files, err := filepath.Glob("testdata/config/*.json")
	assert.NilError(f, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		assert.NilError(f, err)
		f.Add(text)
	}
	for _, text := range []string{
		"", "[]", `{"mcpServers":{"a":{"command":["${A"],"headers":["a:b"],"timeout":"1s","disabled":false},"a":1}}`,
		`{"servers":{"a":{"url":"http://u:p@h/?a=${B}","headers":{"":null,"a b":"${C}"},"tools":"*","alwaysAllow":true}},}`,
		"{\"a\":\"\\\"//\",/*\n*/}", "\ufeff{//\n}", `"a": {"command": "x"},`,
		`"mcp": {"servers": {"a": {} }`, `{"url": "http://h"}`,
	} {
		f.Add([]byte(text))
	}
	const planted = "planted-secret-of-a-variable"
	lookup := func(name string) (string, bool) { return planted, !strings.HasPrefix(name, "N") }
	f.Fuzz(func(t *testing.T, text []byte) {
		plain := withoutComments(text)
		assert.Equal(t, len(plain), len(text))
		if json.Valid(text) {
			assert.Check(t, is.Equal(string(plain), string(text)))
		}
		before := bytes.Clone(text)
		c, err := ParseConfig(text, lookup, ReadRegular, new(Secrets))
		assert.Check(t, bytes.Equal(text, before))
		var line, column int
		if _, scanned := fmt.Sscanf(fmt.Sprint(err), "line %d, column %d:", &line, &column); scanned == nil {
			lines := bytes.Split(bytes.TrimPrefix(text, []byte("\ufeff")), []byte("\n"))
			assert.Assert(t, line >= 1 && line <= len(lines))
			assert.Assert(t, column >= 1 && column <= utf8.RuneCount(lines[line-1])+1)
		}
		if err != nil {
			return
		}
		messages := strings.Join(c.Warnings, "\n")
		for _, s := range c.Servers {
			if s.Err != nil {
				messages += s.Err.Error()
				continue
			}
			assert.Check(t, (s.Command.Path == "") != (s.URL == ""))
			assert.Check(t, s.Name != "" && s.Timeout >= 0)
			s.Allows("a")
			s.Approves("a")
		}
		if !bytes.Contains(text, []byte(planted)) {
			assert.Check(t, !strings.Contains(messages, planted), messages)
		}
	})
}

func TestParseCommand(t *testing.T) {
	for _, test := range []struct {
		line string
		want Command
	}{
		{"python mcp_server.py", Command{Path: "python", Args: []string{"mcp_server.py"}}},
		{"  npx\t-y \n server ", Command{Path: "npx", Args: []string{"-y", "server"}}},
		{`sh -c 'echo "a b" >&2'`, Command{Path: "sh", Args: []string{"-c", `echo "a b" >&2`}}},
		{`"/my servers/one" "it's" a'b'"c"d`, Command{Path: "/my servers/one", Args: []string{"it's", "abcd"}}},
		{`a "" ''`, Command{Path: "a", Args: []string{"", ""}}},
		{`a b\ c \"d\" 'e\f' "g\"h\\i"`, Command{Path: "a", Args: []string{"b c", `"d"`, `e\f`, `g"h\i`}}},
		{`C:\Python\python.exe C:\my\server.py`, Command{Path: `C:\Python\python.exe`, Args: []string{`C:\my\server.py`}}},
		{`"C:\Program Files\node.exe" x`, Command{Path: `C:\Program Files\node.exe`, Args: []string{"x"}}},
		{`'\\host\share\server.exe'`, Command{Path: `\\host\share\server.exe`, Args: []string{}}},
		{"$HOME/server *.txt ~", Command{Path: "$HOME/server", Args: []string{"*.txt", "~"}}},
		{"A=1 B_2= server C=3", Command{Path: "server", Args: []string{"C=3"}, Env: []string{"A=1", "B_2="}}},
		{`KEY="two words" X=a=b server`, Command{Path: "server", Args: []string{}, Env: []string{"KEY=two words", "X=a=b"}}},
		{"./odd=name", Command{Path: "./odd=name", Args: []string{}}},
		{"--flag=x y", Command{Path: "--flag=x", Args: []string{"y"}}},
		{"odd.name=x y", Command{Path: "odd.name=x", Args: []string{"y"}}},
		{`C:\a=b y`, Command{Path: `C:\a=b`, Args: []string{"y"}}},
		{"=x", Command{Path: "=x", Args: []string{}}},
		{`a b\ `, Command{Path: "a", Args: []string{"b "}}},
	} {
		got, err := ParseCommand(test.line)
		assert.NilError(t, err)
		assert.DeepEqual(t, got, test.want)
	}
	for line, want := range map[string]string{
		"":           "the command line has no command",
		" \t ":       "the command line has no command",
		"A=1 B=2":    "the command line has no command",
		`""`:         "the command line has no command",
		`A=1 "" x`:   "the command line has no command",
		`server "a`:  "the command line ends inside quotes or after a backslash",
		"server 'a":  "the command line ends inside quotes or after a backslash",
		`server a\`:  "the command line ends inside quotes or after a backslash",
		`server "a\`: "the command line ends inside quotes or after a backslash",
	} {
		c, err := ParseCommand(line)
		assert.Error(t, err, want)
		assert.DeepEqual(t, c, Command{})
	}
}

// What ParseCommand takes apart can be put together, in quotes, and taken apart again.
func FuzzParseCommand(f *testing.F) {
	for _, line := range []string{"a b", `A=1 "b c" 'd'`, `C:\x\y "\\" \ `, `a''b "`, "é\xff=1 x", `""`, "="} {
		f.Add(line)
	}
	quote := strings.NewReplacer(`\`, `\\`, `"`, `\"`)
	f.Fuzz(func(t *testing.T, line string) {
		c, err := ParseCommand(line)
		if err != nil {
			assert.DeepEqual(t, c, Command{})
			return
		}
		assert.Assert(t, c.Path != "")
		var again strings.Builder
		for _, word := range slices.Concat(c.Env, []string{c.Path}, c.Args) {
			io.WriteString(&again, `"`+quote.Replace(word)+`" `)
		}
		same, err := ParseCommand(again.String())
		assert.NilError(t, err)
		assert.Check(t, is.DeepEqual(same, c))
	})
}

// Notepad writes a byte order mark, which belongs to no name.
func TestConfigMarkedEnvFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "marked.env")
	assert.NilError(t, os.WriteFile(file, []byte("\ufeffA=1\nB=2\n"), 0o600))
	server, _, _ := configServer(t, fmt.Sprintf(`"command": "a", "envFile": %q`, file))
	assert.NilError(t, server.Err)
	assert.DeepEqual(t, server.Command.Env, []string{"A=1", "B=2"})
}

// An envFile is read before the user allows what a folder's configuration starts: no more than one
// can need.
func TestConfigLargeEnvFile(t *testing.T) {
	for size, read := range map[int]bool{maxEnvFiles: true, maxEnvFiles + 1: false} {
		file := filepath.Join(t.TempDir(), "large.env")
		assert.NilError(t, os.WriteFile(file, []byte("A=1\n"+strings.Repeat("#", size-4)), 0o600))
		server, _, _ := configServer(t, fmt.Sprintf(`"command": "a", "envFile": %q`, file))
		assert.Check(t, is.Equal(server.Err == nil, read))
	}
}

// A stranger's file may have as many names as it likes: each is looked up in the same time, and its memory is the
// reader's alone. With a list of all names to look in, these would take 7 GB.
func TestConfigManyNames(t *testing.T) {
	const names = 30_000
	text := []byte(`{"mcpServers":{`)
	for i := range names {
		text = fmt.Appendf(text, `"n%d":{},`, i)
	}
	text = append(text, "}}"...)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	config, err := ParseConfig(text, os.LookupEnv, ReadRegular, new(Secrets))
	runtime.ReadMemStats(&after)
	assert.NilError(t, err)
	assert.Equal(t, len(config.Servers), names)
	perName := (after.TotalAlloc - before.TotalAlloc) / names
	assert.Check(t, perName < 30_000, "%d bytes for each name", perName)
}

// The envFile of all servers together have a bound: each server of a stranger's file may name the same large one.
func TestConfigManyEnvFiles(t *testing.T) {
	file := filepath.Join(t.TempDir(), "large.env")
	assert.NilError(t, os.WriteFile(file, bytes.Repeat([]byte("#"), maxEnvFiles*2/3), 0o600))
	server := fmt.Sprintf(`{"command": "a", "envFile": %q}`, file)
	text := fmt.Sprintf(`{"mcpServers": {"a": %s, "b": %[1]s, "c": %[1]s}}`, server)
	config, err := ParseConfig([]byte(text), os.LookupEnv, ReadRegular, new(Secrets))
	assert.NilError(t, err)
	assert.NilError(t, config.Servers[0].Err)
	assert.ErrorContains(t, config.Servers[1].Err, "envFile")
	assert.Check(t, len(config.EnvFiles) < maxEnvFiles)
}
