package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

// What Windows takes for a path to another machine is known by its text alone, on every system.
func TestMayLeaveMachine(t *testing.T) {
	for path, want := range map[string]bool{
		`\\host\share\x.env`: true, `//host/share`: true, `\/host\share`: true, `/\host/share`: true,
		`\\host@SSL\DavWWWRoot`: true, `\\?\UNC\host\share`: true, `//?/UNC/host/share`: true,
		`\??\UNC\host\share`: true, `/??/UNC/host`: true, `\\.\pipe\x`: true,
		`C:\x.env`: false, `c:/x.env`: false, `x.env`: false, `.\x.env`: false, `/x.env`: false, `\x.env`: false,
		`a//b`: false, `a\\b`: false, `${HOME}`: false, ``: false, `https://host/x`: false,
	} {
		assert.Check(t, is.Equal(MayLeaveMachine(path), want), path)
	}
}

func TestReadOfStranger(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.env")
	assert.NilError(t, os.WriteFile(path, []byte("A=b"), 0o600))
	text, err := ReadOfStranger(path, 3)
	assert.NilError(t, err)
	assert.Equal(t, string(text), "A=b")
	_, err = ReadOfStranger(path, 2)
	assert.ErrorContains(t, err, "has more than")
	text, err = ReadOfStranger("//"+strings.TrimPrefix(filepath.ToSlash(path), "/"), 3)
	assert.ErrorIs(t, err, ErrOtherMachine)
	assert.Equal(t, len(text), 0)
}
