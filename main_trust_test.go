package main

import (
	"fmt"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

// What a folder's configuration starts is shown before it is allowed, whatever the file says is secret.
func TestHidesCommand(t *testing.T) {
	for fields, want := range map[string]bool{
		`"args": ["-c", "touch x y"], "env": {"TOKEN": "touch x y"}`:                    true,
		`"args": ["-c", "touch x"], "env": {"TOKEN": "sh -c \"touch x\""}`:              true,
		`"args": ["-c", "touch x"], "env": {"A": "b", "TOKEN": "A=b sh -c"}`:            false, // it is not what is shown
		`"args": ["-c", "touch x"], "env": {"TOKEN": "a: sh -c"}`:                       false,
		`"args": ["-c", "touch x"], "env": {"A_TOKEN": "Z=b sh -c", "Z": "b"}`:          true,
		`"args": ["-c", "touch x y", "--token", "touch x y"]`:                           true,
		`"args": ["-c", "touch x y", "--token=touch x y"]`:                              true,
		`"args": ["--token=touch x y", "touch x y"]`:                                    true,
		`"args": ["--token", "planted-1", "--key=planted-2", "${SET}", "npx"]`:          false,
		`"args": ["--x", "${SET}", "touch"], "env": {"TOKEN": "${SET}", "B": "${SET}"}`: false,
		`"args": ["postgres://ada:planted-3@h/db"], "env": {"DB_KEY": "planted-4"}`:     false,
	} {
		text := fmt.Appendf(nil, `{"mcpServers": {"a": {"command": "sh", %s}}}`, fields)
		p := &program{secrets: new(Secrets)}
		_, err := ParseConfig(text, func(string) (string, bool) { return "planted-variable", true }, p.secrets)
		assert.NilError(t, err)
		assert.Check(t, is.Equal(p.hidesCommand(text), want), fields)
	}
}
