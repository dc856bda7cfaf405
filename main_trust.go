// main_trust.go - the configuration of a folder: the user allows what it starts, the first time and after each change.
// SPDX-License-Identifier: 0BSD

package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// maxTrustQuestion bounds what the user is asked about at once, in bytes: the beginning of more would not be seen.
const maxTrustQuestion = 3000

// trustFolder lets the user decide whether the servers of this folder's configuration may be started: a folder that
// comes from elsewhere brings commands of somebody else. What was allowed is remembered by the path and the text.
func (p *program) trustFolder(ctx context.Context, file string, text []byte, servers []Server) error {
	path, err := filepath.Abs(file)
	if err == nil {
		path, err = filepath.EvalSymlinks(path)
	}
	if err != nil {
		return err
	}
	hash := fmt.Sprintf("%x", sha256.Sum256(text))
	allowed, store := allowedFolders()
	if p.trust || len(servers) == 0 || allowed[path] == hash || inHome(path) {
		return nil
	}
	what := "was found in this folder"
	if allowed[path] != "" {
		what = "has changed since you allowed it"
	}
	question := fmt.Sprintf("%s %s. It starts or connects to:", word(path), what)
	for i := range servers {
		question += "\n  " + describe(&servers[i])
	}
	if !p.terminal.Interactive() || len(question) > maxTrustQuestion {
		return fmt.Errorf("%s %s; its servers (%s) are not started. Look at it, and allow it with -trust or MCP_TRUST=1",
			word(path), what, strings.Join(ServerNames(servers), ", "))
	}
	if !p.terminal.Confirm(ctx, question+"\nallow this, until the file changes?") {
		return cmp.Or(context.Cause(ctx), fmt.Errorf("the servers of %s were not allowed", word(path)))
	}
	allowed[path] = hash
	if err := saveAllowed(store, allowed); err != nil {
		p.note("this cannot be remembered: %v", err)
	}
	return nil
}

// inHome reports whether a file is the configuration of the user's home.
func inHome(path string) bool {
	home, err := os.UserHomeDir()
	if err == nil {
		home, err = filepath.EvalSymlinks(filepath.Join(home, ".mcp.json"))
	}
	return err == nil && path == home
}

// describe names what starts with a server, on one line: all that decides on what it does.
func describe(s *Server) string {
	words := []string{word(s.Name) + ":"}
	for _, variable := range s.Command.Env {
		words = append(words, word(variable))
	}
	if s.URL != "" {
		words = append(words, word(s.URL))
		for _, name := range slices.Sorted(maps.Keys(s.Header)) {
			words = append(words, "with the header", word(name+": "+strings.Join(s.Header[name], ", ")))
		}
	} else {
		for _, argument := range append([]string{s.Command.Path}, s.Command.Args...) {
			words = append(words, word(argument))
		}
	}
	if s.Command.Dir != "" {
		words = append(words, "in", word(s.Command.Dir))
	}
	if s.Err != nil {
		words = append(words, "(not started: it has a mistake)")
	}
	if len(s.AutoApprove) > 0 {
		words = append(words, "and does not ask before it calls", word(strings.Join(s.AutoApprove, ", ")))
	}
	return strings.Join(words, " ")
}

var plainWord = regexp.MustCompile(`^[\w@%+=:,.*/~-]+$`)

// word is a text that shows where it ends, and every character of it.
func word(text string) string {
	if plainWord.MatchString(text) {
		return text
	}
	return strconv.QuoteToASCII(text)
}

// allowedFolders returns the hashes of the texts that were allowed, by path, and the file that has them. What cannot
// be read there allows nothing.
func allowedFolders() (allowed map[string]string, store string) {
	if folder, err := os.UserConfigDir(); err == nil {
		store = filepath.Join(folder, "mcpagent", "trusted.json")
	}
	if text, err := os.ReadFile(store); err == nil {
		_ = json.Unmarshal(text, &allowed)
	}
	if allowed == nil {
		allowed = make(map[string]string)
	}
	return allowed, store
}

func saveAllowed(store string, allowed map[string]string) error {
	text, err := PlainJSON(allowed)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(store), 0o700)
	}
	if err == nil {
		err = ReplaceFile(store, append(text, '\n'))
	}
	return err
}
