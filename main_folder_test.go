package main

import (
	"fmt"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

// What a folder's configuration starts is shown before it is allowed, whatever the file says is secret; and of that no
// secret.
func TestDescribeCommand(t *testing.T) {
	const key, touch = "planted0123456789abcdef", `sh -c "touch x y"`
	for fields, want := range map[string]string{
		`"args": ["-c", "touch x y"], "env": {"TOKEN": "touch x y"}`:             `"TOKEN=[secret]" ` + touch,
		`"args": ["-c", "touch x y"], "env": {"TOKEN": "sh -c \"touch x y\""}`:   `"TOKEN=[secret]" ` + touch,
		`"args": ["-c", "touch x y"], "env": {"A_TOKEN": "Z=b sh -c", "Z": "b"}`: `"A_TOKEN=[secret]" Z=b ` + touch,
		`"args": ["-c", "touch x y", "--token", "touch x y"]`:                    touch + ` --token "[secret]"`,
		`"args": ["-c", "touch x y", "--token=touch x y"]`:                       touch + ` "--token=[secret]"`,
		`"args": ["--token=touch x y", "touch x y"]`:                             `sh "--token=[secret]" "touch x y"`,
		`"args": ["` + key + `", "` + key + `-x y"]`:                             `sh [secret] "[secret] y"`,
		`"args": ["--token", "planted-1", "--key=planted-2", "npx"]`:             "sh --token [secret] --key=[secret] npx",
		`"args": ["postgres://ada:planted-3@h/db"], "env": {"DB_KEY": "-planted-4"}`: "DB_KEY=[secret] sh " +
			"postgres://ada:[secret]@h/db",
		// What a shell runs is no secret.
		`"args": ["-c", "TOKEN=none; touch x"]`:      `sh -c "TOKEN=none; touch x"`,
		`"args": ["-c", "TOKEN=planted-6 touch x"]`:  `sh -c "TOKEN=[secret] touch x"`,
		`"args": ["-c", "TOKEN=planted-6\ntouch x"]`: `sh -c "TOKEN=[secret]\ntouch x"`,
		`"args": ["-c", "TOKEN=planted-6|touch x"]`:  `sh -c "TOKEN=[secret]|touch x"`,
		`"args": ["-c", "a://b:;touch$IFS.x;@c"]`:    `sh -c "a://b:;touch$IFS.x;@c"`,
		`"args": ["-c", "a://b?token=$(touch x)"]`:   `sh -c "a://b?token=$(touch x)"`,
	} {
		text := fmt.Appendf(nil, `{"mcpServers": {"a": {"command": "sh", %s}}}`, fields)
		c, err := ParseConfig(text, configLookup, new(Secrets))
		assert.NilError(t, err)
		assert.Check(t, is.Equal(describe(&c.Servers[0], nil), "a: "+want), fields)
	}
	remote := &Server{Name: "a", URL: "https://k1234567890abcdefghij.example/mcp?token=planted-5"}
	assert.Check(t, is.Equal(describe(remote, nil), `a: "https://k1234567890abcdefghij.example/mcp?token=[secret]"`))
}
