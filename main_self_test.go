package main

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

// Only what can do nothing but search is taken for a search: no arguments that listen, write or ask a model.
func TestSearchedFolder(t *testing.T) {
	for _, test := range []struct {
		args   []string
		folder string
		ok     bool
	}{
		{[]string{"serve"}, "", true},
		{[]string{"serve", "notes"}, "notes", true},
		{[]string{"-max-file=3", "serve", "notes"}, "notes", true},
		{[]string{"serve", "--", "-http"}, "-http", true},
		{nil, "", false},
		{[]string{"serve", "a", "b"}, "", false},
		{[]string{"serve", "-http", ":8080", "notes"}, "", false},
		{[]string{"serve", "notes", "--http=0.0.0.0:8080"}, "", false},
		{[]string{"serve", "-trace", "file", "notes"}, "", false},
		{[]string{"serve", "-o", "file"}, "", false},
		{[]string{"serve", "-session", "file"}, "", false},
		{[]string{"serve", "-max-file", "x"}, "", false},
		{[]string{"serve", "-h"}, "", false},
		{[]string{"serve", "-version"}, "", false},
		{[]string{"--", "serve"}, "", false},
		{[]string{"tools"}, "", false},
		{[]string{"call", "write", "serve"}, "", false},
	} {
		folder, ok := searchedFolder(test.args)
		assert.Check(t, is.Equal(ok, test.ok), "%q", test.args)
		assert.Check(t, is.Equal(folder, test.folder), "%q", test.args)
	}
}

// A server is this program by what it is, and not by its name. What a folder's file may have searched is within it.
func TestApproveSelf(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("links need rights that a user of Windows may lack")
	}
	self, err := os.Executable()
	assert.NilError(t, err)
	home := t.TempDir()
	folder := filepath.Join(home, "folder")
	assert.NilError(t, os.MkdirAll(filepath.Join(folder, "docs"), 0o700))
	link, other := filepath.Join(folder, "link"), filepath.Join(folder, "mcpagent")
	assert.NilError(t, os.Symlink(self, link))
	assert.NilError(t, os.Symlink(home, filepath.Join(folder, "up")))
	assert.NilError(t, os.WriteFile(other, []byte("#!/bin/sh\n"), 0o700))
	t.Chdir(folder)

	for name, test := range map[string]struct {
		server     Server
		ofUser     bool // it is approved in a file of the user
		ofStranger bool // and in the file of this folder
	}{
		"this program": {Server{Command: Command{Path: self, Args: []string{"serve"}}}, true, true},
		"a link":       {Server{Command: Command{Path: "./link", Args: []string{"serve", "docs"}}}, true, true},
		"its folder":   {Server{Command: Command{Path: link, Args: []string{"serve", folder}}}, true, true},
		"no folder":    {Server{Command: Command{Path: link, Args: []string{"serve", "missing"}}}, true, false},
		"outside":      {Server{Command: Command{Path: link, Args: []string{"serve", home}}}, true, false},
		"a host":       {Server{Command: Command{Path: "/" + self, Args: []string{"serve"}}}, true, false},
		"host's files": {Server{Command: Command{Path: self, Args: []string{"serve", "/" + folder}}}, true, false},
		"above":        {Server{Command: Command{Path: link, Args: []string{"serve", "docs/../.."}}}, true, false},
		"a link out":   {Server{Command: Command{Path: link, Args: []string{"serve", "up"}}}, true, false},
		"listening":    {Server{Command: Command{Path: link, Args: []string{"serve", "-http", ":1"}}}, false, false},
		"its name":     {Server{Command: Command{Path: other, Args: []string{"serve"}}}, false, false},
		"missing":      {Server{Command: Command{Path: "no-such-command", Args: []string{"serve"}}}, false, false},
		"a variable": {Server{Command: Command{Path: self, Args: []string{"serve"}, Env: []string{"A=b"}}},
			false, false},
		"a cwd":     {Server{Command: Command{Path: self, Args: []string{"serve"}, Dir: "docs"}}, false, false},
		"a url":     {Server{URL: "http://127.0.0.1/"}, false, false},
		"a mistake": {Server{Command: Command{Path: self, Args: []string{"serve"}}, Err: ErrClosed}, false, false},
	} {
		allow := []string{"other"}
		for within, want := range map[string]bool{"": test.ofUser, ".": test.ofStranger} {
			s := test.server
			s.AutoApprove = slices.Clone(allow)
			servers := []Server{s}
			approveSelf(servers, within)
			approved := allow
			if want {
				approved = []string{"other", "search_chunks", "list_documents", "get_document"}
				assert.Check(t, is.Equal(servers[0].Command.Path, self), "%s %q", name, within)
			} else {
				assert.Check(t, is.Equal(servers[0].Command.Path, s.Command.Path), "%s %q", name, within)
			}
			assert.Check(t, is.DeepEqual(servers[0].AutoApprove, approved), "%s %q", name, within)
		}
	}
}
