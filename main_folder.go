// main_folder.go - the configuration of a folder: the user allows the servers that it starts.
// SPDX-License-Identifier: 0BSD

package main

import (
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

// folderTrust lets the user decide whether the servers of a folder's configuration may be started:
// a folder that comes from elsewhere brings commands of somebody else.
type folderTrust struct {
	settings *serverSettings
	output   *output
	terminal *Terminal
}

// check returns nil if the servers of a folder's file may be started. It asks the user the first
// time and after each change. It remembers what the user allows by the path and the content of the
// file, and by the content of each envFile.
func (t *folderTrust) check(
	ctx context.Context,
	file string,
	text []byte,
	config *Config,
) error {
	path, err := filepath.Abs(file)
	if err == nil {
		path, err = filepath.EvalSymlinks(path)
	}
	if err != nil {
		return err
	}
	if t.settings.trust || len(config.Servers) == 0 || isHome() {
		return nil
	}
	memory := newTrustMemory(path, text, config)
	remembered := memory.load()
	if remembered == memory.content {
		return nil
	}
	what := "was found in this folder"
	if remembered != "" {
		what = "has changed since you allowed it"
	}
	if !t.terminal.Interactive() {
		return fmt.Errorf("%s %s; its servers (%s) are not started. Look at it, and allow it: "+
			"mcpagent asks on a terminal, once; -trust or MCP_TRUST=1 is for one run",
			word(path), what, strings.Join(ServerNames(config.Servers), ", "))
	}
	question := fmt.Sprintf("%s %s. It starts or connects to:", word(path), what)
	for i := range config.Servers {
		s := &config.Servers[i]
		question += "\n  " + describe(s, config.OAuth[s.Name])
	}
	if !t.terminal.Confirm(ctx, "", question, "allow this, until the file changes?") {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return fmt.Errorf("the servers of %s were not allowed", word(path))
	}
	if err := memory.save(); err != nil {
		t.output.note("this cannot be remembered: %v", err)
	}
	return nil
}

// trustMemory is the file that remembers which configuration the user has allowed at one path.
type trustMemory struct {
	file     string
	content  string // a hash of what is to be allowed now, and its path
	noFolder error  // a machine may have no home: then nothing is remembered
}

func newTrustMemory(path string, text []byte, config *Config) *trustMemory {
	folder, err := os.UserConfigDir()
	name := fmt.Sprintf("trusted-%.16x", sha256.Sum256([]byte(path)))
	hash := sha256.Sum256(slices.Concat(text, config.EnvFiles))
	return &trustMemory{
		file:     filepath.Join(folder, "mcpagent", name),
		content:  fmt.Sprintf("%x %s\n", hash, path),
		noFolder: err,
	}
}

// load returns the content of what was allowed before, or "".
func (m *trustMemory) load() string {
	if m.noFolder != nil {
		return ""
	}
	content, _ := os.ReadFile(m.file)
	return string(content)
}

func (m *trustMemory) save() error {
	if m.noFolder != nil {
		return m.noFolder
	}
	if err := os.MkdirAll(filepath.Dir(m.file), 0o700); err != nil {
		return err
	}
	return ReplaceFile(m.file, []byte(m.content))
}

// isHome reports whether this folder is the user's home, whose configuration is the user's own. It
// compares the folders, as links may lead to the home by other paths.
func isHome() bool {
	home, _ := os.UserHomeDir()
	at, _ := os.Stat(home)
	here, _ := os.Stat(".")
	return os.SameFile(here, at)
}

// describe returns one line with all that decides what a server does. The line leaves out nothing
// that could make the server harmful, and nothing in the line can look like something else.
func describe(s *Server, o *OAuthConfig) string {
	words := []string{word(s.Name) + ":"}
	for _, variable := range s.Command.Env {
		words = append(words, ownWord(variable, variable))
	}
	words = append(words, startLine(s))
	if s.URL != "" {
		for _, name := range slices.Sorted(maps.Keys(s.Header)) {
			header := name + ": " + strings.Join(s.Header[name], ", ")
			words = append(words, "with the header", ownWord(header, "--header", header))
		}
		if o != nil {
			own := new(Secrets)
			given := []string{o.Client.Secret, o.ProviderClient.Secret, o.Key, o.Assertion}
			for _, secret := range given {
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
		approved := strings.Join(s.AutoApprove, ", ")
		words = append(words, "and does not ask before it calls", word(approved))
	}
	return strings.Join(words, " ")
}

// startLine returns the URL of a server, or its command line.
func startLine(s *Server) string {
	if s.URL != "" {
		// Under the name --endpoint only the keys in the URL are masked. Otherwise a host that
		// looks like a key would be masked, too.
		return ownWord(s.URL, "--endpoint", s.URL)
	}
	line := word(s.Command.Path)
	// flag is the argument before, if its value may be the next argument.
	flag := ""
	for _, argument := range s.Command.Args {
		line += " " + ownWord(argument, append([]string{flag}, argumentParts(argument)...)...)
		flag = ""
		if strings.HasPrefix(argument, "-") && !strings.Contains(argument, "=") {
			flag = argument
		}
	}
	return line
}

// argumentParts splits an argument where a secret in it ends. It may be a script of sh -c, which
// runs another command after each of these characters: a secret that went on behind them would
// hide that command.
func argumentParts(argument string) []string {
	ends := "\n;&|`$()<>"
	name, _, isPair := strings.Cut(argument, "=")
	if isPair && plainWord.MatchString(name) && name[0] != '-' {
		// This is "NAME=VALUE command".
		ends += " \t"
	}
	return strings.FieldsFunc(argument, func(r rune) bool { return strings.ContainsRune(ends, r) })
}

// ownWord returns a word of a command, in which the secrets of the given words are masked. The
// secrets of other parts of the configuration are not masked: they could hide a part of a command.
func ownWord(text string, words ...string) string {
	own := new(Secrets)
	own.AddArguments(words)
	return own.Mask(word(text))
}

var plainWord = regexp.MustCompile(`^[\w@%+=:,.*/~-]+$`)

// word quotes a text that is not plain, so that its end and all its characters can be seen. Letters
// beyond ASCII are escaped: some look like others, and some are invisible.
func word(text string) string {
	if plainWord.MatchString(text) {
		return text
	}
	return strconv.QuoteToASCII(text)
}
