package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
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
func configServer(t *testing.T, fields string) (ServerConfig, []string) {
	t.Helper()
	c, err := ParseConfig([]byte(`{"mcpServers": {"x": {`+fields+`}}}`), configLookup)
	assert.NilError(t, err)
	assert.Equal(t, len(c.Servers), 1)
	return c.Servers[0], c.Warnings
}

func ExampleParseConfig() {
	config, err := ParseConfig([]byte(`{
		"mcpServers": {
			"files": {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-filesystem", "${DIR:-/tmp}"]},
			"issues": {"url": "https://example.com/mcp", "headers": {"Authorization": "Bearer ${TOKEN}"}}
		}
	}`), func(string) (string, bool) { return "", false }) // os.LookupEnv
	if err != nil {
		panic(err)
	}
	for _, server := range config.Servers {
		fmt.Println(server.Name, server.Command, server.Args, server.Err)
	}
	// Output:
	// files npx [-y @modelcontextprotocol/server-filesystem /tmp] <nil>
	// issues  [] header Authorization: variable TOKEN is not set
}

// The files of the hosts, in the forms that their documentation has.
const (
	configClaudeDesktop = `{
  "globalShortcut": "Ctrl+Space",
  "mcpServers": {
    "filesystem": {
      "command": "npx",
      "args": ["-y", "@modelcontextprotocol/server-filesystem", "/Users/ada/Desktop", "/Users/ada/Downloads"]
    },
    "brave-search": {
      "command": "C:\\Program Files\\nodejs\\npx.cmd",
      "args": ["-y", "@modelcontextprotocol/server-brave-search"],
      "env": {"BRAVE_API_KEY": "planted-brave", "APPDATA_DIR": "C:\\Users\\ada", "RETRIES": 3, "VERBOSE": true}
    }
  }
}`
	configClaudeCode = `{
  "mcpServers": {
    "shared-server": {"type": "stdio", "command": "${TOOLS:-/opt/tools}/server", "args": [], "env": {}},
    "api-server": {
      "type": "http",
      "url": "${API_BASE_URL:-https://api.example.com}/mcp",
      "headers": {"Authorization": "Bearer ${API_KEY}"},
      "timeout": 600000
    },
    "asana": {"type": "sse", "url": "https://mcp.asana.com/sse"}
  }
}`
	configCursor = `{
  "mcpServers": {
    "local-server": {
      "type": "stdio",
      "command": "python",
      "args": ["${workspaceFolder}/mcp-server.py"],
      "env": {"API_KEY": "${env:API_KEY}"},
      "envFile": ".env"
    },
    "remote-server": {
      "url": "https://example.com/mcp",
      "headers": {"Authorization": "Bearer ${env:GITHUB_TOKEN}"}
    }
  }
}`
	configVSCode = `{
  // Asked for once, and kept by the editor.
  "inputs": [
    {"type": "promptString", "id": "perplexity-key", "description": "Perplexity API Key", "password": true},
  ],
  "servers": {
    "github": {"type": "http", "url": "https://api.githubcopilot.com/mcp/"},
    "perplexity": {
      "type": "stdio",
      "command": "npx",
      "args": ["-y", "server-perplexity-ask"],
      "env": {"PERPLEXITY_API_KEY": "${input:perplexity-key}"}, /* not here */
    },
    "fetch": {
      "type": "stdio",
      "command": "uvx",
      "args": ["mcp-server-fetch"],
      "gallery": true,
    },
  },
}`
	configMCPHost = `{
  "mcpServers": {
    "filesystem": {
      "type": "local",
      "command": ["npx", "@modelcontextprotocol/server-filesystem", "${env://WORK_DIR:-/tmp}"],
      "environment": {"DEBUG": "${env://DEBUG:-false}", "API_TOKEN": "${env://API_KEY}"},
      "allowedTools": ["read_*", "write_file"],
      "excludedTools": ["read_secret"]
    },
    "websearch": {
      "type": "remote",
      "url": "${env://WEBSEARCH_URL:-https://api.example.com/mcp}",
      "headers": ["Authorization: Bearer ${env://GITHUB_TOKEN}"]
    },
    "sqlite": {"command": "uvx", "args": ["mcp-server-sqlite", "--db-path", "/tmp/foo.db"]},
    "old": {"transport": "sse", "url": "http://localhost:8000/sse"},
    "todo": {"type": "builtin", "name": "todo"}
  },
  "model": "ollama:mistral-small",
  "max-steps": 20
}`
	configZed = `{
  "context_servers": {
    "mine": {"source": "custom", "enabled": true, "command": "my-server", "args": [], "env": {}},
    "its": {"enabled": false, "url": "${NOT_SET}"},
  },
  "theme": "One Dark",
}`
)

// TestConfigHosts: what each host's own file says.
func TestConfigHosts(t *testing.T) {
	tests := []struct {
		host, text string
		want       []ServerConfig // without errors
		errors     string         // of the servers, a line each
		warnings   string         // a line each
	}{
		{host: "Claude Desktop", text: configClaudeDesktop, want: []ServerConfig{{
			Name: "filesystem", Command: "npx",
			Args: []string{"-y", "@modelcontextprotocol/server-filesystem", "/Users/ada/Desktop", "/Users/ada/Downloads"},
		}, {
			Name: "brave-search", Command: `C:\Program Files\nodejs\npx.cmd`, Args: []string{"-y", "@modelcontextprotocol/server-brave-search"},
			Env:     []string{`APPDATA_DIR=C:\Users\ada`, "BRAVE_API_KEY=planted-brave", "RETRIES=3", "VERBOSE=true"},
			Secrets: []string{"planted-brave"},
		}}},
		{host: "Claude Code", text: configClaudeCode, want: []ServerConfig{{
			Name: "shared-server", Command: "/opt/tools/server",
		}, {
			Name: "api-server", URL: "https://api.example.com/mcp", Header: http.Header{"Authorization": {"Bearer planted-key-1"}},
			Timeout: 10 * time.Minute, Secrets: []string{"Bearer planted-key-1", "planted-key-1"},
		}, {
			Name: "asana", URL: "https://mcp.asana.com/sse", SSE: true,
		}}},
		{host: "Cursor", text: configCursor, want: []ServerConfig{{
			Name: "local-server", Command: "python", Args: []string{"/mcp-server.py"},
			Env: []string{"API_KEY=planted-key-1"}, Secrets: []string{"planted-key-1"},
		}, {
			Name: "remote-server", URL: "https://example.com/mcp", Header: http.Header{"Authorization": {"Bearer planted-token-22"}},
			Secrets: []string{"Bearer planted-token-22", "planted-token-22"},
		}}, errors: `local-server: args: ${workspaceFolder} is for an editor to fill in: write the path itself`,
			warnings: `server "local-server": envFile is not known here and has no effect`},
		{host: "VS Code", text: configVSCode, want: []ServerConfig{{
			Name: "github", URL: "https://api.githubcopilot.com/mcp/",
		}, {
			Name: "perplexity", Command: "npx", Args: []string{"-y", "server-perplexity-ask"}, Env: []string{"PERPLEXITY_API_KEY="},
		}, {
			Name: "fetch", Command: "uvx", Args: []string{"mcp-server-fetch"},
		}}, errors: `perplexity: env PERPLEXITY_API_KEY: ${input:perplexity-key} is for an editor to fill in: write ${PERPLEXITY_KEY} and set that variable`},
		{host: "mcphost", text: configMCPHost, want: []ServerConfig{{
			Name: "filesystem", Command: "npx", Args: []string{"@modelcontextprotocol/server-filesystem", "/tmp"},
			Env:          []string{"API_TOKEN=planted-key-1", "DEBUG=false"},
			AllowedTools: []string{"read_*", "write_file"}, ExcludedTools: []string{"read_secret"}, Secrets: []string{"planted-key-1"},
		}, {
			Name: "websearch", URL: "https://api.example.com/mcp", Header: http.Header{"Authorization": {"Bearer planted-token-22"}},
			Secrets: []string{"Bearer planted-token-22", "planted-token-22"},
		}, {
			Name: "sqlite", Command: "uvx", Args: []string{"mcp-server-sqlite", "--db-path", "/tmp/foo.db"},
		}, {
			Name: "old", URL: "http://localhost:8000/sse", SSE: true,
		}, {
			Name: "todo",
		}}, errors: `todo: type "builtin" is none of stdio (or local), http (or streamable-http, remote) and sse; it has neither a command nor a url`},
		{host: "Zed", text: configZed, want: []ServerConfig{{Name: "mine", Command: "my-server"}}},
	}
	for _, test := range tests {
		t.Run(test.host, func(t *testing.T) {
			c, err := ParseConfig([]byte(test.text), configLookup)
			assert.NilError(t, err)
			var failed []string
			for i := range c.Servers {
				s := &c.Servers[i]
				if s.Err != nil {
					failed = append(failed, s.Name+": "+s.Err.Error())
					s.Err = nil
				}
				if len(s.Args) == 0 {
					s.Args = nil // the same
				}
			}
			assert.Check(t, is.DeepEqual(c.Servers, test.want))
			assert.Check(t, is.Equal(strings.Join(failed, "\n"), test.errors))
			assert.Check(t, is.Equal(strings.Join(c.Warnings, "\n"), test.warnings))
		})
	}
}

func TestConfigVariables(t *testing.T) {
	tests := []struct{ text, want, problem string }{
		{text: "", want: ""},
		{text: "$HOME $ { } }", want: "$HOME $ { } }"},
		{text: "${HOME}", want: "/home/ada"},
		{text: "${env:HOME}/x", want: "/home/ada/x"},
		{text: "a${env://HOME}b${PORT}c", want: "a/home/adab8080c"},
		{text: "${HOME:-/x}", want: "/home/ada"},
		{text: "${NONE:-/x}${NONE:-}", want: "/x"},
		{text: "${env:NONE:-a:-b}", want: "a:-b"},
		{text: "${env://NONE:-http://h:1/}", want: "http://h:1/"},
		{text: "${EMPTY}", want: ""},
		{text: "${EMPTY:-x}", want: "x"},
		{text: "${NESTED}", want: "${API_KEY}"},
		{text: "$${PORT}}", want: "$8080}"},
		{text: "${NONE}", problem: "variable NONE is not set"},
		{text: "${env:NONE}", problem: "variable NONE is not set"},
		{text: "${NONE} ${NONE2}", want: " ", problem: "variable NONE is not set; args: variable NONE2 is not set"},
		{text: "${", problem: "a ${ has no }; args: ${} is neither ${NAME} nor ${NAME:-default}"},
		{text: "${}", problem: "${} is neither ${NAME} nor ${NAME:-default}"},
		{text: "${env:}", problem: "${env:} is neither ${NAME} nor ${NAME:-default}"},
		{text: "${NONE:-${PORT}}", want: "}", problem: "${NONE:-${PORT} is neither ${NAME} nor ${NAME:-default}"},
		{text: "${input:my key.id}", problem: "${input:my key.id} is for an editor to fill in: write ${MY_KEY_ID} and set that variable"},
		{text: "${command:a}", problem: "${command:a} is for an editor to fill in: write ${A} and set that variable"},
		{text: "${userHome}", problem: "${userHome} is for an editor to fill in: write the path itself"},
		{text: "${/}", problem: "${/} is for an editor to fill in: write the path itself"},
	}
	for _, test := range tests {
		text, err := json.Marshal(test.text)
		assert.NilError(t, err)
		s, _ := configServer(t, `"command": "x", "args": [`+string(text)+`]`)
		assert.Check(t, is.DeepEqual(s.Args, []string{test.want}), test.text)
		if test.problem != "" {
			assert.Check(t, is.Error(s.Err, `args: `+test.problem), test.text)
		} else {
			assert.Check(t, s.Err, test.text)
		}
	}
}

// TestConfigVariablesEverywhere: in every field that hosts replace them in, and in no other.
func TestConfigVariablesEverywhere(t *testing.T) {
	s, _ := configServer(t, `"command": "${HOME}/x", "args": ["${PORT}"], "env": {"A": "${PORT}"}, "cwd": "${HOME}", "allowedTools": ["${PORT}"]`)
	assert.NilError(t, s.Err)
	assert.Equal(t, strings.Join(slices.Concat([]string{s.Command, s.Dir}, s.Args, s.Env, s.AllowedTools), " "),
		"/home/ada/x /home/ada 8080 A=8080 ${PORT}")
	s, _ = configServer(t, `"url": "http://localhost:${PORT}", "headers": {"X-Port": "${PORT}", "X-Key": "${FROM_FILE}"}`)
	assert.NilError(t, s.Err)
	assert.Equal(t, s.URL, "http://localhost:8080")
	assert.DeepEqual(t, s.Header, http.Header{"X-Port": {"8080"}, "X-Key": {"planted-from-file"}})
}

// TestConfigServerErrors: what is wrong with a server is said with its name.
func TestConfigServerErrors(t *testing.T) {
	tests := []struct{ fields, problem string }{
		{``, `it has neither a command nor a url`},
		{`"command": ""`, `it has neither a command nor a url`},
		{`"command": []`, `it has neither a command nor a url`},
		{`"command": null, "url": null`, `it has neither a command nor a url`},
		{`"command": "a", "url": "http://h"`, `it has both a command and a url`},
		{`"command": {"path": "a"}`, `command is not a text; it has neither a command nor a url`},
		{`"command": "a", "args": "b"`, `args is not a list`},
		{`"command": "a", "args": [["b"]]`, `args is not a text`},
		{`"command": "a", "args": [null]`, `args is not a text`},
		{`"command": "a", "env": []`, `env is not an object of variables`},
		{`"command": "a", "env": {"": "b"}`, `env: "" is no variable's name`},
		{`"command": "a", "env": {"B=C": "d"}`, `env: "B=C" is no variable's name`},
		{`"command": "a", "env": {"B": {}}`, `env B is not a text`},
		{`"command": "a", "type": "http"`, `type "http" goes with a url, which it does not have`},
		{`"command": "a", "type": "SSE"`, `type "SSE" goes with a url, which it does not have`},
		{`"url": "http://h", "type": "stdio"`, `type "stdio" goes with a command, which it does not have`},
		{`"command": "a", "transport": "ws"`, `type "ws" is none of stdio (or local), http (or streamable-http, remote) and sse`},
		{`"command": "a", "type": []`, `type is not a text`},
		{`"url": "localhost:8000"`, `its url is not of the form https://host/path`},
		{`"url": "${NONE}:1"`, `url: variable NONE is not set`},
		{`"url": "ftp://h/x"`, `its url is not of the form https://host/path`},
		{`"url": "https://"`, `its url is not of the form https://host/path`},
		{`"url": "unix:///tmp/s"`, `its url is not of the form https://host/path`},
		{`"url": "http://[/?key=planted-key"`, `its url is not of the form https://host/path`},
		{`"url": "${NONE}"`, `url: variable NONE is not set; it has neither a command nor a url`},
		{`"url": "http://h", "headers": "a: b"`, `headers is neither an object nor a list`},
		{`"url": "http://h", "headers": ["planted-key"]`, `a header is not of the form Name: value`},
		{`"url": "http://h", "headers": [": b"]`, `a header has no name`},
		{`"url": "http://h", "headers": {"A": []}`, `header A is not a text`},
		{`"command": "a", "disabled": "perhaps"`, `disabled is neither true nor false`},
	}
	for _, test := range tests {
		s, _ := configServer(t, test.fields)
		assert.Check(t, is.Error(s.Err, test.problem), test.fields)
	}

	c, err := ParseConfig([]byte(`{"mcpServers": {"": {"command": "a"}, "b": {"command": "b"}, "c": [], "b": {"command": "d"}, "e": {"command": "e"}}}`), configLookup)
	assert.NilError(t, err)
	var got []string
	for _, s := range c.Servers {
		got = append(got, fmt.Sprint(s.Name, " ", s.Err))
	}
	assert.DeepEqual(t, got, []string{` a server needs a name`, `b <nil>`, `c it is not an object`,
		`b there is another server of this name`, `e <nil>`})
}

// TestConfigTypes: every spelling of a transport that is seen.
func TestConfigTypes(t *testing.T) {
	for _, kind := range []string{"stdio", "local"} {
		s, _ := configServer(t, `"command": "a", "type": "`+kind+`"`)
		assert.Check(t, s.Err, kind)
	}
	for _, kind := range []string{"http", "streamable-http", "streamable_http", "streamableHttp", "streamable", "remote", "sse"} {
		s, _ := configServer(t, `"url": "http://h", "transport": "`+kind+`"`)
		assert.Check(t, s.Err, kind)
		assert.Check(t, is.Equal(s.SSE, kind == "sse"))
	}
	for _, field := range []string{"url", "serverUrl", "httpUrl"} {
		s, _ := configServer(t, `"`+field+`": "http://h"`)
		assert.Check(t, s.Err, field)
		assert.Check(t, is.Equal(s.URL, "http://h"))
	}
}

func TestConfigCommandAsList(t *testing.T) {
	s, _ := configServer(t, `"args": ["c", 4, true], "command": ["a", "b"], "env": {"NOT_SET": null}`)
	assert.NilError(t, s.Err)
	assert.Equal(t, len(s.Env), 0)
	assert.Equal(t, s.Command, "a")
	assert.DeepEqual(t, s.Args, []string{"b", "c", "4", "true"})
}

// TestConfigDisabled: nobody wants to hear of a server that is switched off.
func TestConfigDisabled(t *testing.T) {
	c, err := ParseConfig([]byte(`{"mcpServers": {"a": {"disabled": true, "url": "${NONE}", "odd": 1}, "b": {"enabled": false},
		"c": {"disabled": "true", "enabled": true}, "c2": {"enabled": false, "disabled": false}, "d": {"disabled": false, "enabled": true, "command": "d"}}}`), configLookup)
	assert.NilError(t, err)
	assert.DeepEqual(t, c.Disabled, []string{"a", "b", "c", "c2"})
	assert.Equal(t, len(c.Servers), 1)
	assert.Equal(t, c.Servers[0].Name, "d")
	assert.NilError(t, c.Servers[0].Err)
	assert.Equal(t, len(c.Warnings), 0)
}

func TestConfigTimeout(t *testing.T) {
	tests := []struct {
		text     string
		want     time.Duration
		warnings int
	}{
		{`null`, 0, 0},
		{`0`, 0, 0},
		{`60`, time.Minute, 0},
		{`1.5`, 1500 * time.Millisecond, 0},
		{`"60"`, time.Minute, 0},
		{`"30s"`, 30 * time.Second, 0},
		{`"2000ms"`, 2 * time.Second, 0},
		{`999`, 999 * time.Second, 0},
		{`2000`, 2000 * time.Second, 1}, // Cline's, or somebody's in a hurry
		{`3600`, time.Hour, 1},
		{`5000`, 5 * time.Second, 0},
		{`600000`, 10 * time.Minute, 0},
		{`-1`, -1, 0},
		{`1e12`, -1, 0},
		{`1e999`, -1, 0},
		{`"NaN"`, -1, 0},
		{`"-Inf"`, -1, 0},
		{`"-30s"`, -1, 0},
		{`"soon"`, -1, 0},
		{`""`, -1, 0},
	}
	for _, test := range tests {
		s, warnings := configServer(t, `"command": "a", "timeout": `+test.text)
		assert.Check(t, is.Len(warnings, test.warnings), test.text)
		if test.want >= 0 {
			assert.Check(t, s.Err, test.text)
			assert.Check(t, is.Equal(s.Timeout, test.want), test.text)
		} else {
			assert.Check(t, is.ErrorContains(s.Err, `neither a duration such as 30s nor a number`), test.text)
			assert.Check(t, is.Equal(s.Timeout, time.Duration(0)), test.text)
		}
	}
}

func TestConfigTools(t *testing.T) {
	tests := []struct{ fields, tool, want string }{
		{``, "any", "allowed"},
		{`"allowedTools": []`, "any", "allowed"},
		{`"allowedTools": ["read_*"]`, "read_file", "allowed"},
		{`"allowedTools": ["read_*"]`, "read_", "allowed"},
		{`"allowedTools": ["read_*"]`, "bread_file", ""},
		{`"allowedTools": ["read"]`, "read_file", ""},
		{`"allowedTools": ["a?c"]`, "abc", "allowed"},
		{`"allowedTools": ["a?c"]`, "aéc", "allowed"},
		{`"allowedTools": ["a?c"]`, "ac", ""},
		{`"allowedTools": ["a.c"]`, "abc", ""},
		{`"allowedTools": ["[ab]"]`, "a", ""},
		{`"allowedTools": ["a\\*"]`, "a\\b", "allowed"},
		{`"allowedTools": ["*"]`, "a/b\nc", "allowed"},
		{`"allowedTools": "read_*"`, "read_file", "allowed"},
		{`"allowedTools": ["a"], "tools": ["b"]`, "a", "allowed"},
		{`"tools": ["*"]`, "any", "allowed"},
		{`"includeTools": ["a"]`, "b", ""},
		{`"excludedTools": ["delete_*"]`, "delete_file", ""},
		{`"excludedTools": ["*"]`, "a/b", ""},
		{`"allowedTools": ["*"], "excludedTools": ["a"]`, "a", ""},
		{`"excludeTools": ["a"]`, "a", ""},
		{`"disabledTools": ["b"], "excludedTools": ["a"]`, "b", ""},
		{`"alwaysAllow": ["read_*"]`, "read_file", "allowed approved"},
		{`"alwaysAllow": ["read_*"]`, "write_file", "allowed"},
		{`"alwaysAllow": []`, "a", "allowed"},
		{`"autoApprove": true`, "a", "allowed approved"},
		{`"autoApprove": false`, "false", "allowed"},
		{`"autoApprove": "*"`, "a", "allowed approved"},
		{`"autoApprove": ["a"], "alwaysAllow": ["b"]`, "a", "allowed approved"},
	}
	for _, test := range tests {
		s, _ := configServer(t, strings.TrimSuffix(`"command": "a", `+test.fields, ", "))
		assert.NilError(t, s.Err)
		got := ""
		if s.Allows(test.tool) {
			got = "allowed"
		}
		if s.Approves(test.tool) {
			got += " approved"
		}
		assert.Check(t, is.Equal(got, test.want), "%s: %s", test.fields, test.tool)
	}
}

func TestConfigWarnings(t *testing.T) {
	_, warnings := configServer(t, `"command": "a", "comand": "b", "oauth": {}, "description": "c", "_note": 1, "//": "d", "trust": null`)
	assert.DeepEqual(t, warnings, []string{`server "x": comand is not known here and has no effect`, `server "x": oauth is not known here and has no effect`})
	_, warnings = configServer(t, `"command": "a", "tools": []`)
	assert.DeepEqual(t, warnings, []string{`server "x": tools is empty and has no effect: all tools are allowed`})
	_, warnings = configServer(t, `"command": "a", "env": {"KEY": "$MY_KEY"}, "args": ["$5", "$$", "a$B"]`)
	assert.DeepEqual(t, warnings, []string{`server "x": env KEY: $MY_KEY is passed on as it is; ${MY_KEY} would be replaced`})
}

// TestConfigSecrets: what must be hidden, and what would take sentences apart if it were.
func TestConfigSecrets(t *testing.T) {
	tests := []struct {
		fields string
		want   []string
	}{
		{`"command": "a", "args": ["--token=${GITHUB_TOKEN}", "${HOME}", "${PORT}", "literal-text"]`, []string{"planted-token-22"}},
		{`"command": "${API_KEY}", "cwd": "/x/${GITHUB_TOKEN}"`, []string{"planted-token-22", "planted-key-1"}},
		{`"command": "a", "env": {"A": "short", "LOG_LEVEL": "information", "data_dir": "/var/lib/data", "NODE_ENV": "development",
			"OPENAI_MODEL": "mistral-large", "HOME": "/home/ada", "DB_PWD": "planted-pwd", "X_ENVY": "planted-envy", "RUN_MODE": "streaming"}`,
			[]string{"planted-envy", "planted-pwd"}},
		{`"command": "a", "env": {"PYTHONPATH": "/opt/lib2", "JAVA_HOME": "/opt/java17", "TEAM": "marketing", "ADMIN_PASSWORD": "engineering"}`,
			[]string{"engineering"}},
		{`"command": "a", "env": {"API_URL": "http://localhost:8080/v1", "DB": "postgres://ada:planted-pass@db/main",
			"HOOK": "https://hooks.example/services/T01/planted0key1planted2"}`,
			[]string{"https://hooks.example/services/T01/planted0key1planted2", "YWRhOnBsYW50ZWQtcGFzcw==", "planted-pass"}},
		{`"command": "a", "env": {"PEM": "-----BEGIN-----\nplanted-line-1\r\n planted-2\n"}`, []string{"-----BEGIN-----", "planted-line-1", "planted-2"}},
		{`"command": "a", "env": {"A": "${NONE:-planted-default}"}`, []string{"planted-default"}},
		{`"command": "a", "env": {"A": "x${API_KEY}y", "B": "${API_KEY}"}`, []string{"xplanted-key-1y", "planted-key-1"}},
		{`"url": "http://h", "headers": {"Authorization": "Bearer planted-1", "Accept": "application/json", "Accept-Language": "en-gb, en",
			"content-type": "application/json", "X-Key": "planted-2", "X-Team": "7"}`, []string{"Bearer planted-1", "planted-1", "planted-2"}},
		{`"url": "https://ada:planted-password@h/mcp?api_key=planted-1%2F2&profile=standard&n=1"`,
			[]string{"YWRhOnBsYW50ZWQtcGFzc3dvcmQ=", "planted-password", "planted-1%2F2", "planted-1/2"}},
	}
	for _, test := range tests {
		s, _ := configServer(t, test.fields)
		assert.Check(t, s.Err)
		assert.Check(t, is.DeepEqual(s.Secrets, test.want), test.fields)
	}
}

func TestConfigErrors(t *testing.T) {
	tests := []struct{ text, want string }{
		{"", "line 1, column 1: unexpected end of JSON input"},
		{"mcpServers:\n  a:", "line 1, column 1: invalid character 'm' looking for beginning of value"},
		{"{\n  \"mcpServers\": {\n    \"é\": }\n}", "line 3, column 10: invalid character '}' looking for beginning of value"},
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
		{`{"files": {"command": "a"}}`, "the configuration has no mcpServers (in VS Code: servers; in Zed: context_servers)"},
	}
	for _, test := range tests {
		c, err := ParseConfig([]byte(test.text), configLookup)
		assert.Check(t, is.Error(err, test.want), test.text)
		assert.Check(t, c == nil)
		var syntax *ConfigSyntaxError
		assert.Check(t, is.Equal(errors.As(err, &syntax), strings.HasPrefix(test.want, "line ")))
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

// FuzzParseConfig: whatever the text, JSON is read as it is, a server is either in order or says why not, and no message
// shows what a variable holds.
func FuzzParseConfig(f *testing.F) {
	for _, text := range []string{configClaudeDesktop, configClaudeCode, configCursor, configVSCode, configMCPHost, configZed,
		"", "[]", `{"mcpServers":{"a":{"command":["${A"],"headers":["a:b"],"timeout":"1s","disabled":false},"a":1}}`,
		`{"servers":{"a":{"url":"http://u:p@h/?a=${B}","headers":{"":null,"a b":"${C}"},"tools":"*","alwaysAllow":true}},}`,
		"{\"a\":\"\\\"//\",/*\n*/}", "\ufeff{//\n}"} {
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
		c, err := ParseConfig(text, lookup)
		assert.Check(t, bytes.Equal(text, before))
		var syntax *ConfigSyntaxError
		if errors.As(err, &syntax) {
			lines := bytes.Split(bytes.TrimPrefix(text, []byte("\ufeff")), []byte("\n"))
			assert.Assert(t, syntax.Line >= 1 && syntax.Line <= len(lines))
			assert.Assert(t, syntax.Column >= 1 && syntax.Column <= utf8.RuneCount(lines[syntax.Line-1])+1)
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
			assert.Check(t, (s.Command == "") != (s.URL == ""))
			assert.Check(t, s.Name != "" && s.Timeout >= 0)
			assert.Check(t, slices.IsSortedFunc(s.Secrets, func(a, b string) int { return len(b) - len(a) }))
			s.Allows("a")
			s.Approves("a")
		}
		if !bytes.Contains(text, []byte(planted)) {
			assert.Check(t, !strings.Contains(messages, planted), messages)
		}
	})
}
