// main_trust.go - the configuration of a folder: the user allows what it starts, the first time and after each change.
// SPDX-License-Identifier: 0BSD

package main

import (
	"cmp"
	"context"
	"crypto/sha256"
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
	if err != nil || p.trust || len(config.Servers) == 0 || isHome() {
		return err
	}
	folder, failed := os.UserConfigDir() // a machine may have no home
	memory := filepath.Join(folder, "mcpagent", fmt.Sprintf("trusted-%.16x", sha256.Sum256([]byte(path))))
	hash := fmt.Sprintf("%x %s\n", sha256.Sum256(slices.Concat(text, config.EnvFiles)), path)
	what := "was found in this folder"
	if allowed, err := os.ReadFile(memory); err == nil && failed == nil {
		if string(allowed) == hash {
			return nil
		}
		what = "has changed since you allowed it"
	}
	if !p.terminal.Interactive() {
		return fmt.Errorf("%s %s; its servers (%s) are not started. Look at it, and allow it: mcpagent asks on a "+
			"terminal, once; -trust or MCP_TRUST=1 is for one run", word(path), what,
			strings.Join(ServerNames(config.Servers), ", "))
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

// isHome reports whether this folder is the user's home, whose configuration is the user's.
func isHome() bool {
	home, _ := os.UserHomeDir()
	at, _ := os.Stat(home)
	here, _ := os.Stat(".")
	return os.SameFile(here, at)
}

// describe returns one line with all that decides what a server does.
func describe(s *Server, o *OAuthConfig) string {
	words := []string{word(s.Name) + ":"}
	for _, variable := range s.Command.Env {
		words = append(words, ownWord(variable, variable))
	}
	if words = append(words, startLine(s)); s.URL != "" {
		for _, name := range slices.Sorted(maps.Keys(s.Header)) {
			header := name + ": " + strings.Join(s.Header[name], ", ")
			words = append(words, "with the header", ownWord(header, "--header", header))
		}
		if o != nil {
			own := new(Secrets)
			for _, secret := range []string{o.Client.Secret, o.ProviderClient.Secret, o.Key, o.Assertion} {
				own.AddHeader("secret", secret)
			}
			words = append(words, "with oauth", own.Mask(word(o.Text)))
		}
	}
	if s.Command.Dir != "" {
		words = append(words, "in", word(s.Command.Dir))
	}
	if s.Err != nil {
		words = append(words, "(it lacks an input, or has a mistake)")
	}
	if len(s.AutoApprove) > 0 {
		words = append(words, "and does not ask before it calls", word(strings.Join(s.AutoApprove, ", ")))
	}
	return strings.Join(words, " ")
}

// startLine is the URL of a server, or its command line.
func startLine(s *Server) string {
	if s.URL != "" {
		return ownWord(s.URL, "--endpoint", s.URL) // a name whose values are not secret: a host may look like a key
	}
	line, flag := word(s.Command.Path), ""
	for _, argument := range s.Command.Args {
		ends := "\n;&|`$()<>" // in a script of sh -c, nothing after these is part of a secret
		if name, _, ok := strings.Cut(argument, "="); ok && plainWord.MatchString(name) && name[0] != '-' {
			ends += " \t" // NAME=VALUE command
		}
		parts := strings.FieldsFunc(argument, func(r rune) bool { return strings.ContainsRune(ends, r) })
		line += " " + ownWord(argument, append([]string{flag}, parts...)...)
		if flag = ""; strings.HasPrefix(argument, "-") && !strings.Contains(argument, "=") { // which is not secret itself
			flag = argument
		}
	}
	return line
}

// ownWord returns a word of a command without what is secret in these words of it: what a configuration has as a
// secret elsewhere hides no part of a command.
func ownWord(text string, words ...string) string {
	own := new(Secrets)
	own.AddArguments(words)
	return own.Mask(word(text))
}

var plainWord = regexp.MustCompile(`^[\w@%+=:,.*/~-]+$`)

// word quotes a text that is not plain, so that its end and all its characters can be seen.
func word(text string) string {
	if plainWord.MatchString(text) {
		return text
	}
	return strconv.QuoteToASCII(text)
}
