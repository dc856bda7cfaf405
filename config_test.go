package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
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
		"HOME":         "/home/ada",
		"EMPTY":        "",
		"PORT":         "8080",
		"API_KEY":      "planted-key-1",
		"GITHUB_TOKEN": "planted-token-22",
		"NESTED":       "${API_KEY}",
		"FROM_FILE":    "planted-from-file\n",
	}[name]
	return value, ok
}

// configServer reads a configuration of one server, given by its fields.
func configServer(t *testing.T, fields string) (server Server, warnings []string, secrets *Secrets) {
	t.Helper()
	secrets = new(Secrets)
	c, err := ParseConfig([]byte(`{"mcpServers": {"x": {`+fields+`}}}`), configLookup, secrets)
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
	}`), func(string) (string, bool) { return "", false }, new(Secrets)) // os.LookupEnv
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

// TestConfigFiles: what is read of each file in testdata/config. Six are those of hosts, in the form that their
// documentation has; the others hold all that a server can be written like. (-update writes the outcomes.)
func TestConfigFiles(t *testing.T) {
	files, err := filepath.Glob("testdata/config/*.json")
	assert.NilError(t, err)
	assert.Equal(t, len(files), 9)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			assert.NilError(t, err)
			var secrets Secrets
			c, err := ParseConfig(text, configLookup, &secrets)
			assert.NilError(t, err)
			var out strings.Builder
			for i := range c.Servers {
				out.WriteString(describeServer(&c.Servers[i]))
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

// TestConfigSecrets: from where a configuration's secrets come. What is secret there is for TestSecretsRules.
func TestConfigSecrets(t *testing.T) {
	for _, test := range []struct{ fields, text, want string }{
		{`"command": "a", "args": ["--token=${GITHUB_TOKEN}", "${HOME}", "${PORT}", "literal-text"]`,
			"planted-token-22 /home/ada 8080 literal-text", "[secret] /home/ada 8080 literal-text"},
		{`"command": "${API_KEY}", "cwd": "/x/${GITHUB_TOKEN}"`, "planted-token-22 planted-key-1", "[secret] [secret]"},
		{`"command": "a", "env": {"A": "${NONE:-planted-default}"}`, "planted-default", "[secret]"},
		{`"command": "a", "env": {"A": "x${API_KEY}y", "B": "${API_KEY}"}`,
			"xplanted-key-1y planted-key-1", "[secret] [secret]"},
		{`"command": "a", "env": {"A": "b${EMPTY}c"}, "args": ["short"]`, "bc short", "bc short"},
		{`"url": "http://h", "headers": {"Authorization": "Bearer planted-1", "X-Team": "7"}`, "planted-1 7", "[secret] 7"},
		{`"url": "http://h", "headers": ["X-Key: planted-2"]`, "planted-2", "[secret]"},
		{`"url": "https://ada:planted-password@h/mcp?api_key=planted-1"`, "planted-1 planted-password", "[secret] [secret]"},
		{`"url": "https://ada:planted-password@/mcp", "env": {"A": "planted-2"}`,
			"planted-password planted-2", "planted-password [secret]"},
	} {
		_, _, secrets := configServer(t, test.fields)
		assert.Check(t, is.Equal(secrets.Mask(test.text), test.want), test.fields)
	}
}

func TestConfigErrors(t *testing.T) {
	tests := []struct{ text, want string }{
		{"", "line 1, column 1: unexpected end of JSON input"},
		{"mcpServers:\n  a:", "line 1, column 1: invalid character 'm' looking for beginning of value"},
		{"{\n  \"mcpServers\": {\n    \"é\": }\n}",
			"line 3, column 10: invalid character '}' looking for beginning of value"},
		{"{\r\n\t\"mcpServers\" {}}", "line 2, column 15: invalid character '{' after object key"},
		{"{\"a\": /* é\n é */ é}", "line 2, column 7: invalid character 'é' looking for beginning of value"},
		{"{\"a\": 1 // \"", "line 1, column 12: unexpected end of JSON input"},
		{"{\"a\": 1 /* }", "line 1, column 9: invalid character '/' after object key:value pair"},
		{"\ufeff{,,}", "line 1, column 2: invalid character ',' looking for beginning of object key string"},
		{"{“a”: 1}", "line 1, column 2: invalid character '“' looking for beginning of object key string"},
		{"{\xff}", "line 1, column 2: invalid character 'ÿ' looking for beginning of object key string"},
		{"[]", "the configuration is not a JSON object"},
		{"null", "the configuration is not a JSON object"},
		{`{"servers": []}`, "servers is not an object of servers by their names"},
		{`{"mcpServers": null}`, "mcpServers is not an object of servers by their names"},
		{`{"files": {"command": "a"}}`,
			"the configuration has no mcpServers (in VS Code: servers; in Zed: context_servers)"},
	}
	for _, test := range tests {
		c, err := ParseConfig([]byte(test.text), configLookup, new(Secrets))
		assert.Check(t, is.Error(err, test.want), test.text)
		assert.Check(t, c == nil)
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
		{`[1,,]`, `[1, ]`},
		{"/* é", "/* é"},
	}
	for _, test := range tests {
		assert.Check(t, is.Equal(string(withoutComments([]byte(test.text))), test.want))
	}
}

// FuzzParseConfig: whatever the text, JSON is read as it is, a server is either in order or says why not, and no
// message shows what a variable holds.
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
		"{\"a\":\"\\\"//\",/*\n*/}", "\ufeff{//\n}",
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
		c, err := ParseConfig(text, lookup, new(Secrets))
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

func TestSecretsMask(t *testing.T) {
	var s Secrets
	assert.Equal(t, s.Mask("planted-1"), "planted-1")
	s.Add("[key]", "planted-1", "short", "planted-1-2")
	s.Add("[secret]", "planted-1", "a planted-1 too", `quo"te\d<`, "späße & co", "")
	for text, want := range map[string]string{
		"":                                    "",
		"no secret, and short":                "no secret, and short",
		"planted-1planted-1, planted-":        "[key][key], planted-",
		"a planted-1 too":                     "[secret]",
		"planted-1-2 planted-1-":              "[key] [key]-",
		"a planted-1 to":                      "a [key] to",
		`{"a":"quo\"te\\d<"}`:                 `{"a":"[secret]"}`,
		`{"a":"quo\"te\\d\u003c"}`:            `{"a":"[secret]"}`,
		`quo"te\d<`:                           "[secret]",
		`{"a":"{\"b\":\"quo\\\"te\\\\d<\"}"}`: `{"a":"{\"b\":\"[secret]\"}"}`,
		"?a=sp%C3%A4%C3%9Fe+%26+co&b=1":       "?a=[secret]&b=1",
		"/sp%C3%A4%C3%9Fe%20&%20co/":          "/[secret]/",
		"späße & co":                          "[secret]",
		`{"a":"sp\u00e4\u00dfe \u0026 co"}`:   `{"a":"sp\u00e4\u00dfe \u0026 co"}`, // a form that nothing writes
	} {
		assert.Check(t, is.Equal(s.Mask(text), want), text)
	}
}

// TestSecretsRules: what of a variable, a header or a URL is secret, and what would take sentences apart if it were.
func TestSecretsRules(t *testing.T) {
	for _, test := range []struct{ name, value, text, want string }{ // the text is masked; if empty, the value
		{"A", "short", "", "short"},
		{"A", "planted1", "", "[secret]"},
		{"X_ENVY", "planted-envy", "", "[secret]"},
		{"LOG_LEVEL", "information", "", "information"},
		{"data_dir", "/var/lib/data", "", "/var/lib/data"},
		{"NODE_ENV", "development", "", "development"},
		{"OPENAI_MODEL", "mistral-large", "", "mistral-large"},
		{"HOME", "/home/ada", "", "/home/ada"},
		{"PYTHONPATH", "/opt/lib2", "", "/opt/lib2"},
		{"JAVA_HOME", "/opt/java17", "", "/opt/java17"},
		{"RUN_MODE", "streaming", "", "streaming"},
		{"DB_PWD", "planted-pwd", "", "[secret]"},
		{"TEAM", "marketing", "", "marketing"},
		{"ADMIN_PASSWORD", "engineering", "", "[secret]"},
		{"API_URL", "http://localhost:8080/v1", "", "http://localhost:8080/v1"},
		{"DB", "postgres://ada:planted-pass@db/main", "", "postgres://ada:[secret]@db/main"},
		{"DB", "postgres://ada:planted-pass@db/main", "YWRhOnBsYW50ZWQtcGFzcw==", "[secret]"},
		{"HOOK", "https://hooks.example/services/T01/planted0key1planted2", "", "[secret]"},
		{"PEM", "-----BEGIN-----\nplanted-line-1\r\n planted-2\n", "", "[secret]\n[secret]\r\n [secret]\n"},

		{"Authorization:", "Bearer planted-1", "", "[secret]"},
		{"Authorization:", "Bearer planted-1", "planted-1 Bearer", "[secret] Bearer"},
		{"Accept:", "application/json", "", "application/json"},
		{"Accept-Language:", "en-gb, en", "", "en-gb, en"},
		{"content-type:", "application/json", "", "application/json"},
		{"X-Key:", "planted-2", "", "[secret]"},
		{"X-Team:", "7", "", "7"},

		{"url", "https://ada:planted-password@h/mcp", "", "https://ada:[secret]@h/mcp"},
		{"url", "https://ada:planted-password@h/mcp", "YWRhOnBsYW50ZWQtcGFzc3dvcmQ=", "[secret]"},
		{"url", "https://h/mcp?api_key=planted-1%2F2&profile=standard&n=1", "",
			"https://h/mcp?api_key=[secret]&profile=standard&n=1"},
		{"url", "https://h/mcp?api_key=planted-1%2F2", "planted-1/2", "[secret]"},
	} {
		var s Secrets
		if header, ok := strings.CutSuffix(test.name, ":"); ok {
			s.AddHeader(header, test.value)
		} else if u, err := url.Parse(test.value); err == nil && test.name == "url" {
			s.AddURL(u)
		} else {
			s.AddVariable(test.name, test.value)
		}
		if test.text == "" {
			test.text = test.value
		}
		assert.Check(t, is.Equal(s.Mask(test.text), test.want), "%s=%s", test.name, test.value)
	}
}

// Whatever the pieces, what is written is what Mask makes of the whole.
func TestMaskWriter(t *testing.T) {
	var s Secrets
	s.Add("[1]", "planted-planted-x")
	s.Add("[2]", "antananarivo")
	const text = "planted-planted-planted-x: plant, antanantananarivo and planted-planted-x"
	want := s.Mask(text)
	assert.Equal(t, want, "planted-[1]: plant, antan[2] and [1]")
	for i := range len(text) + 1 {
		for j := i; j <= len(text); j++ {
			var out strings.Builder
			w := s.Writer(&out)
			for _, piece := range []string{text[:i], text[i:j], text[j:]} {
				n, err := w.Write([]byte(piece))
				assert.NilError(t, err)
				assert.Equal(t, n, len(piece))
			}
			assert.NilError(t, w.Close())
			assert.Equal(t, out.String(), want, "%q %q %q", text[:i], text[i:j], text[j:])
		}
	}

	var out strings.Builder
	_, _ = s.Writer(&out).Write([]byte("no more than is needed is kept: plan"))
	assert.Equal(t, out.String(), "no more than is needed is kept: ")
}

func FuzzMask(f *testing.F) {
	f.Add("a secret", "text with a secret", 12)
	f.Add(`"\<é &/+%`, `{"a":"\"\\\u003cé \u0026/+%"}`, 3)
	f.Fuzz(func(t *testing.T, secret, text string, at int) {
		var s Secrets
		s.Add("*", secret)
		if len(secret) < minSecret || strings.Contains(secret, "*") {
			return
		}
		for _, form := range secretForms(secret) {
			assert.Check(t, !strings.Contains(s.Mask(text+form+text), secret))
		}
		at = min(max(at, 0), len(text))
		var out strings.Builder
		w := s.Writer(&out)
		_, _ = w.Write([]byte(text[:at]))
		_, _ = w.Write([]byte(text[at:]))
		_ = w.Close()
		assert.Check(t, !strings.Contains(out.String(), secret))
	})
}
