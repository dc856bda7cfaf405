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
// file, and by the content of each envFile. config was read from text, with lookup.
func (t *folderTrust) check(
	ctx context.Context,
	file string,
	text []byte,
	config *Config,
	lookup func(name string) (value string, ok bool),
) error {
	memory, err := t.unknown(file, text, config)
	if err != nil || memory == nil {
		return err
	}
	path := memory.path
	what := "was found in this folder"
	if memory.load() != "" {
		what = "has changed since you allowed it"
	}
	if !t.terminal.Interactive() {
		return fmt.Errorf("%s %s; its servers (%s) are not started. Look at it, and allow it: "+
			"mcpagent asks on a terminal, once; -trust or MCP_TRUST=1 is for one run",
			word(path), what, OneNames(ServerNames(config.Servers)))
	}
	question := fmt.Sprintf("%s %s. It starts or connects to:", word(path), what)
	question += describeAll(text, config, lookup)
	if !t.terminal.Confirm(ctx, "", question, "allow this, until the file changes?") {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return fmt.Errorf("the servers of %s were not allowed", word(path))
	}
	if err := memory.save(); err != nil {
		t.output.note("your approval cannot be saved: %v", err)
	}
	return nil
}

// unknown returns nil if the servers of a folder's file may be started without a question.
// Otherwise it returns where to remember the user's answer.
func (t *folderTrust) unknown(file string, text []byte, config *Config) (*trustMemory, error) {
	path, err := filepath.Abs(file)
	if err == nil {
		path, err = filepath.EvalSymlinks(path)
	}
	if err != nil {
		return nil, err
	}
	if t.settings.trust || len(config.Servers) == 0 || isHome() {
		return nil, nil
	}
	memory := newTrustMemory(path, text, config)
	if memory.load() == memory.content {
		return nil, nil
	}
	return memory, nil
}

// maxTrust bounds the file of a trustMemory, in bytes: it has a path.
const maxTrust = 64 << 10

// trustMemory is the file that remembers which configuration the user has allowed at one path.
type trustMemory struct {
	file     string
	path     string // of the configuration
	content  string // a hash of what is to be allowed now, and its path
	noFolder error  // a machine may have no home: then nothing is remembered
}

func newTrustMemory(path string, text []byte, config *Config) *trustMemory {
	folder, err := os.UserConfigDir()
	name := fmt.Sprintf("trusted-%.16x", sha256.Sum256([]byte(path)))
	hash := sha256.Sum256(slices.Concat(text, config.EnvFiles))
	return &trustMemory{
		file:     filepath.Join(folder, "mcpagent", name),
		path:     path,
		content:  fmt.Sprintf("%x %s\n", hash, path),
		noFolder: err,
	}
}

// load returns the content of what was allowed before, or "".
func (m *trustMemory) load() string {
	if m.noFolder != nil {
		return ""
	}
	content, _ := ReadRegular(m.file, maxTrust)
	return string(content)
}

func (m *trustMemory) save() error {
	if m.noFolder != nil {
		return m.noFolder
	}
	if err := MakeFolder(filepath.Dir(m.file)); err != nil {
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

// describeAll returns a line for each server of a configuration, as the file has it: a variable by
// its name, and all else as it is. To mask what the file calls a secret would let it hide a
// command. What a variable holds is the user's own, and is not shown.
func describeAll(
	text []byte,
	config *Config,
	lookup func(name string) (value string, ok bool),
) string {
	// A variable that is not set, or empty, has its default here, too.
	byName := func(name string) (value string, ok bool) {
		value, ok = lookup(name)
		if value != "" {
			value = "${" + name + "}"
		}
		return value, ok
	}
	// The text has been parsed before, so there is no error.
	written, _ := ParseConfig(text, byName, ReadOfStranger, new(Secrets))
	lines := ""
	for i := range config.Servers {
		s := &config.Servers[i]
		isSame := func(w Server) bool { return w.Name == s.Name }
		w := &written.Servers[slices.IndexFunc(written.Servers, isSame)]
		addHidden(w, s)
		lines += "\n  " + describe(w, written.OAuth[s.Name], written.TLS[s.Name])
	}
	return lines
}

// addHidden adds to a server, as it is written, what cannot be read without the variables: those of
// an envFile whose path has one, and the names of headers whose line is one; and the tools that
// approveSelf has added. s is the server that will be started.
func addHidden(w, s *Server) {
	w.Err = s.Err
	written := min(len(w.AutoApprove), len(s.AutoApprove))
	w.AutoApprove = append(w.AutoApprove, s.AutoApprove[written:]...)
	for _, variable := range s.Command.Env {
		name, _, _ := strings.Cut(variable, "=")
		isShown := func(shown string) bool { return strings.HasPrefix(shown, name+"=") }
		if !slices.ContainsFunc(w.Command.Env, isShown) {
			w.Command.Env = append(w.Command.Env, variable)
		}
	}
	for name := range s.Header {
		if len(w.Header) < len(s.Header) && w.Header[name] == nil {
			w.Header.Set(name, "${...}")
		}
	}
}

// describe returns one line with all that decides what a server does. The line leaves out nothing
// that could make the server harmful, and nothing in the line can look like something else.
func describe(s *Server, o *OAuthConfig, files *TLSFiles) string {
	words := []string{word(s.Name) + ":"}
	for _, variable := range s.Command.Env {
		words = append(words, word(variable))
	}
	words = append(words, startLine(s))
	if s.URL != "" {
		for _, name := range slices.Sorted(maps.Keys(s.Header)) {
			header := name + ": " + strings.Join(s.Header[name], ", ")
			words = append(words, "with the header", word(header))
		}
		if o != nil {
			words = append(words, "with oauth", word(o.Text))
		}
		if files != nil {
			words = append(words, "with tls", word(files.Text))
		}
	}
	if s.Command.Dir != "" {
		words = append(words, "in", word(s.Command.Dir))
	}
	if s.Err != nil {
		words = append(words, "(an input is missing, or its configuration is invalid)")
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
		return word(s.URL)
	}
	line := word(s.Command.Path)
	for _, argument := range s.Command.Args {
		line += " " + word(argument)
	}
	return line
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
