// main_trust.go - the configuration of a folder: the user allows what it starts, the first time and after each change.
// SPDX-License-Identifier: 0BSD

package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// trustFolder lets the user decide whether the servers of this folder's configuration may be started: a folder that
// comes from elsewhere brings commands of somebody else. What was allowed is remembered by the path and the text.
func (p *program) trustFolder(ctx context.Context, file string, text []byte, config *Config) error {
	path, err := filepath.Abs(file)
	if err == nil {
		path, err = filepath.EvalSymlinks(path)
	}
	if err != nil || p.trust || len(config.Servers) == 0 || inHome(path) {
		return err
	}
	memory, failed := trustFile(path)
	hash := fmt.Sprintf("%x %s\n", sha256.Sum256(slices.Concat(text, config.EnvFiles)), path)
	allowed, _ := os.ReadFile(memory) // what cannot be read allows nothing
	what := "was found in this folder"
	if string(allowed) == hash {
		return nil
	} else if len(allowed) > 0 {
		what = "has changed since you allowed it"
	}
	if !p.terminal.Interactive() {
		return fmt.Errorf("%s %s; its servers (%s) are not started. Look at it, and allow it: mcpagent asks on a "+
			"terminal, once; -trust or MCP_TRUST=1 is for one run", word(path), what,
			strings.Join(ServerNames(config.Servers), ", "))
	}
	if p.hidesCommand(text) {
		return fmt.Errorf("%s has a part of a command as a secret elsewhere, so that it would not be shown: look at the "+
			"file, and name it with -config if you allow it", word(path))
	}
	question := fmt.Sprintf("%s %s. It starts or connects to:", word(path), what)
	for i := range config.Servers {
		s := &config.Servers[i]
		question += "\n  " + describe(s, config.OAuth[s.Name])
	}
	if !p.terminal.Confirm(ctx, "", question, "allow this, until the file changes?") {
		return cmp.Or(context.Cause(ctx), fmt.Errorf("the servers of %s were not allowed", word(path)))
	}
	if failed == nil {
		failed = cmp.Or(os.MkdirAll(filepath.Dir(memory), 0o700), ReplaceFile(memory, []byte(hash)))
	}
	if failed != nil {
		p.note("this cannot be remembered: %v", failed)
	}
	return nil
}

// hidesCommand reports whether a command would be shown in part as a secret that the file has in another place: so the
// file could hide what it starts. What variables hold is not the file's.
func (p *program) hidesCommand(text []byte) bool {
	config, err := ParseConfig(text, func(string) (string, bool) { return "", true }, new(Secrets))
	return err != nil || slices.ContainsFunc(config.Servers, func(s Server) bool {
		for _, words := range [][]string{s.Command.Env, s.Command.Args} {
			flag := "" // before a word, and no secret itself
			for i, word := range words {
				own := new(Secrets)
				own.AddArguments([]string{flag, word})
				words[i] = own.Mask(word)
				if flag = word; strings.ContainsAny(flag, "=:0123456789") {
					flag = ""
				}
			}
		}
		line := describe(&s, nil)
		return s.URL == "" && p.secrets.Mask(line) != line
	})
}

// trustFile returns the file that says which text of a configuration was allowed.
func trustFile(path string) (string, error) {
	folder, err := os.UserConfigDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(folder, "mcpagent", fmt.Sprintf("trusted-%.16x", sha256.Sum256([]byte(path)))), nil
}

// inHome reports whether a file is the configuration of the user's home.
func inHome(path string) bool {
	home, err := os.UserHomeDir()
	if err == nil {
		home, err = filepath.EvalSymlinks(filepath.Join(home, ".mcp.json"))
	}
	return err == nil && path == home
}

// describe returns one line with all that decides what a server does.
func describe(s *Server, o *OAuthConfig) string {
	words := []string{word(s.Name) + ":"}
	for _, variable := range s.Command.Env {
		words = append(words, word(variable))
	}
	if words = append(words, startLine(s)); s.URL != "" {
		for _, name := range slices.Sorted(maps.Keys(s.Header)) {
			words = append(words, "with the header", word(name+": "+strings.Join(s.Header[name], ", ")))
		}
		if o != nil {
			words = append(words, "with oauth", word(o.Text))
		}
	}
	if s.Command.Dir != "" {
		words = append(words, "in", word(s.Command.Dir))
	}
	if s.Err != nil && !errors.Is(s.Err, ErrInput) {
		words = append(words, "(not started: it has a mistake)")
	}
	if len(s.AutoApprove) > 0 {
		words = append(words, "and does not ask before it calls", word(strings.Join(s.AutoApprove, ", ")))
	}
	return strings.Join(words, " ")
}

// startLine is the URL of a server, or its command line.
func startLine(s *Server) string {
	if s.URL != "" {
		return word(s.URL)
	}
	line := word(s.Command.Path)
	for _, argument := range s.Command.Args {
		line += " " + word(argument)
	}
	return line
}

var plainWord = regexp.MustCompile(`^[\w@%+=:,.*/~-]+$`)

// word quotes a text that is not plain, so that its end and all its characters can be seen.
func word(text string) string {
	if plainWord.MatchString(text) {
		return text
	}
	return strconv.QuoteToASCII(text)
}
