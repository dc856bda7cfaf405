// config.go - the servers of a .mcp.json, as the hosts write it, or of a command line.
// SPDX-License-Identifier: 0BSD

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Config is what a configuration file says.
type Config struct {
	Servers  []Server // in the order of the file, those with an Err among them, but not those that are disabled
	Disabled []string
	Warnings []string // what has no effect, or perhaps another one than was meant; each names its server

	OAuth map[string]*OAuthConfig // by the name of a server, nil if it says nothing

	Inputs   []Input // that servers need, some perhaps twice
	EnvFiles []byte  // the paths and texts of all envFile: they decide, too, what the servers do
}

// Input is a value that VS Code asks the user for.
type Input struct {
	ID, Description string
	Password        bool
	Default         any      // a text, or nil
	Options         []string // to choose from
}

// ParseConfig reads a configuration, which the hosts agree on but for details: mcpServers by name (Claude Desktop,
// Claude Code, Cursor, mcphost and most others), servers (VS Code), context_servers (Zed), mcp (opencode) or
// mcp.servers (VS Code's settings), with comments and commas after the last element. lookup finds variables: ${NAME},
// ${NAME:-default}, and the same with env: or env:// before the name; and VS Code's ${input:ID}, of the name input:ID.
// What is secret of the servers, ParseConfig adds to secrets: in env, envFile, headers, arguments and the URL, and in
// what variables were replaced with.
//
// A server with a mistake has an Err, and does not stop the others. The error says where the text is not JSON, which
// other format it has, or that it is not a configuration.
func ParseConfig(text []byte, lookup func(name string) (value string, ok bool), secrets *Secrets) (*Config, error) {
	text = bytes.TrimPrefix(text, []byte("\ufeff")) // Notepad's
	plain := withoutComments(text)
	if err := json.Unmarshal(plain, new(json.RawMessage)); err != nil {
		return nil, configSyntaxError(text, err)
	}
	var file struct {
		Inputs []Input
		MCP    struct {
			Inputs  []Input
			Servers json.RawMessage
		}
	}
	_ = json.Unmarshal(plain, &file) // what has another form is not VS Code's
	c, found := &Config{OAuth: make(map[string]*OAuthConfig)}, false
	eachMember(plain, func(section string, value json.RawMessage) {
		if section == "mcp" && file.MCP.Servers != nil {
			value = file.MCP.Servers
		}
		isOne := slices.Contains([]string{"mcpServers", "servers", "context_servers", "mcp"}, section)
		found = isOne && eachMember(value, func(name string, server json.RawMessage) {
			r := serverReader{config: c, lookup: lookup, inputs: slices.Concat(file.Inputs, file.MCP.Inputs),
				secrets: secrets, env: make(map[string]string)}
			r.read(name, server)
		}) || found
	})
	if !found {
		return nil, errors.New("the configuration has no object mcpServers (in VS Code: servers; in Zed: " +
			"context_servers; in opencode: mcp)")
	}
	return c, nil
}

// eachMember calls member for each member of a JSON object, in their order, and reports whether the value, which is
// valid JSON, is one.
func eachMember(value json.RawMessage, member func(name string, value json.RawMessage)) bool {
	s := scanner{text: value}
	s.object(func(key []byte) { member(strings.ToValidUTF8(string(key), "\uFFFD"), s.value()) })
	return s.end()
}

// serverReader reads one server: its fields, in any order, and then finish.
type serverReader struct {
	config  *Config // which it is added to
	lookup  func(name string) (value string, ok bool)
	inputs  []Input // all that are defined
	secrets *Secrets

	server Server
	needs  []Input // of the inputs

	command, args []string
	env           map[string]string
	envFile       string
	kind          string // of transport, as written
	login         *OAuthConfig
	disabled      bool

	problems, warnings []string
}

// read reads the server, unless it is disabled: what a disabled server lacks does not matter.
func (r *serverReader) read(name string, value json.RawMessage) {
	c := r.config
	r.server.Name = name
	eachMember(value, r.field)
	switch {
	case r.disabled:
		c.Disabled = append(c.Disabled, name)
		return
	case name == "" || slices.Contains(ServerNames(c.Servers), name):
		r.problem("a server needs a name, which no other has")
	default:
		r.finish()
		c.OAuth[name] = r.login
	}
	if len(r.problems) > 0 {
		r.server.Err = errors.New(strings.Join(r.problems, "; "))
	}
	c.Inputs = append(c.Inputs, r.needs...)
	c.Warnings = append(c.Warnings, r.warnings...)
	c.Servers = append(c.Servers, r.server)
}

func (r *serverReader) problem(format string, args ...any) {
	r.problems = append(r.problems, fmt.Sprintf(format, args...))
}

func (r *serverReader) warn(format string, args ...any) {
	r.warnings = append(r.warnings, fmt.Sprintf("server %q: "+format, append([]any{r.server.Name}, args...)...))
}

// noEffect matches fields that are known, and comments in plain JSON.
var noEffect = regexp.MustCompile(`^(|[_/].*|\$schema|description|gallery|icon|name|source|title|version)$`)

// field reads a field. Where hosts have several names for a thing, all of them are known: to miss that a tool is
// excluded would be worse than to miss a decoration.
func (r *serverReader) field(name string, value json.RawMessage) {
	s := &r.server
	into := map[string]any{
		"command": r.readCommand, "args": &r.args, "cwd": &s.Command.Dir,
		"env": r.readEnv, "environment": r.readEnv, "envFile": &r.envFile,
		"url": &s.URL, "serverUrl": &s.URL, "httpUrl": &s.URL, // the latter two: Windsurf, Gemini CLI
		"headers": r.readHeaders, "oauth": r.readOAuth, "auth": r.readOAuth, // the latter: Cursor
		"type": &r.kind, "transport": &r.kind, "disabled": &r.disabled, "enabled": &r.disabled,
		"timeout": &s.Timeout, "startTimeout": &s.StartTimeout, "startup_timeout_sec": &s.StartTimeout, // Codex
		"allowedTools": &s.AllowedTools, "includeTools": &s.AllowedTools, "enabledTools": &s.AllowedTools,
		"tools": &s.AllowedTools, "excludedTools": &s.ExcludedTools, "excludeTools": &s.ExcludedTools,
		"disabledTools": &s.ExcludedTools, "alwaysAllow": &s.AutoApprove, "autoApprove": &s.AutoApprove,
	}[name]
	if name == "args" && value[0] != '[' && value[0] != 'n' { // of null: Go's empty list
		r.problem("args is not a list")
	}
	if into != nil || !noEffect.MatchString(name) {
		r.store(name, value, into)
	}
}

// store reads a value into what a pointer points to, or by a function. In place of a list, there may be one text; true
// stands for all, and false for nothing.
func (r *serverReader) store(where string, value json.RawMessage, into any) {
	if string(value) == "null" {
		return
	}
	switch into := into.(type) {
	case *string:
		*into = r.text(where, value)
	case *[]string:
		if string(value) == "true" {
			*into = append(*into, "*")
		} else if string(value) != "false" {
			*into = append(*into, r.list(where, value)...)
		}
		if into == &r.server.AllowedTools && len(*into) == 0 {
			r.warn("%s is empty and has no effect: all tools are allowed", where)
		}
	case *bool:
		is, err := strconv.ParseBool(r.text(where, value))
		if err != nil {
			r.problem("%s is neither true nor false", where)
			break
		}
		*into = *into || is != strings.HasSuffix(plainName(where), "enabled")
	case *time.Duration:
		*into = r.duration(where, r.text(where, value))
	case func(string, json.RawMessage):
		into(where, value)
	default:
		r.warn("%s is not known here and has no effect", where)
	}
}

// readCommand reads a command, of mcphost and opencode with its arguments, in a list; of Zed once an object with path.
func (r *serverReader) readCommand(where string, value json.RawMessage) {
	if !eachMember(value, func(name string, value json.RawMessage) {
		r.field(strings.Replace(name, "path", "command", 1), value) // elsewhere a path is something else
	}) {
		r.command = r.list(where, value)
	}
}

// finish puts together what the fields say.
func (r *serverReader) finish() {
	s := &r.server
	if len(r.command) > 0 {
		s.Command.Path, s.Command.Args = r.command[0], append(r.command[1:], r.args...)
		r.secrets.AddArguments(s.Command.Args)
	}
	if r.envFile != "" {
		r.readEnvFile()
	}
	for _, name := range slices.Sorted(maps.Keys(r.env)) {
		s.Command.Env = append(s.Command.Env, name+"="+r.env[name])
	}
	kind, isRemote := plainName(r.kind), s.URL != ""
	s.SSE = kind == "sse"
	kinds := map[bool][]string{false: {"", "stdio", "local"},
		true: {"", "http", "sse", "remote", "streamable", "streamablehttp"}}
	switch {
	case len(r.problems) > 0:
	case isRemote == (s.Command.Path != "") || !slices.Contains(kinds[isRemote], kind):
		r.problem("it needs either a command (type stdio or local) or a url (type http, streamable-http, remote or sse)")
	case isRemote:
		if _, err := ParseServerURL(s.URL, r.secrets); err != nil {
			r.problem("%v", err)
		}
	}
	if r.login != nil && (!isRemote || s.Header.Get("Authorization") != "") {
		r.warn("oauth has no effect: it goes with a url, and without a header Authorization")
	}
}

// ParseServerURL reads the URL of a server. The error has no part of it: there may be a key in it.
func ParseServerURL(text string, secrets *Secrets) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, errors.New("its url is not of the form https://host/path")
	}
	secrets.AddURL(u)
	return u, nil
}

func (r *serverReader) readEnv(field string, value json.RawMessage) {
	if !eachMember(value, func(name string, value json.RawMessage) {
		if string(value) != "null" { // VS Code: not set
			r.env[name] = r.text(field+" "+name, value)
			r.secrets.AddVariable(name, r.env[name])
		}
	}) {
		r.problem("%s is not an object of variables", field)
	}
}

var envLine = regexp.MustCompile(`(?m)^[ \t]*(?:export[ \t]+)?([\w.-]+)[ \t]*=[ \t]*` +
	`(?:"((?:[^"\\]|\\.)*)"|'([^']*)'|([^#\n]*?))[ \t\r]*(?:#.*)?$`)

const maxEnvFile = 1 << 20 // bytes; it is read before the user allows a folder's configuration

// readEnvFile reads the lines NAME=VALUE of a file, as VS Code does. Variables of env are stronger.
func (r *serverReader) readEnvFile() {
	var text []byte
	info, err := os.Stat(r.envFile)
	if err == nil && info.Mode().IsRegular() && info.Size() <= maxEnvFile { // another one may have no end
		text, err = os.ReadFile(r.envFile)
	}
	if err != nil || text == nil {
		r.problem("envFile is not a file that can be read") // not which: a variable may be in the path
	}
	r.config.EnvFiles = fmt.Appendf(r.config.EnvFiles, "%q %q\n", r.envFile, text)
	variables, escapes := make(map[string]string), strings.NewReplacer(`\n`, "\n", `\r`, "\r", `\"`, `"`)
	for _, m := range envLine.FindAllStringSubmatch(string(text), -1) {
		variables[m[1]] = escapes.Replace(m[2]) + m[3] + m[4]
		r.secrets.AddVariable(m[1], variables[m[1]])
	}
	maps.Copy(variables, r.env)
	r.env = variables
}

// readHeaders reads an object, or mcphost's list of lines.
func (r *serverReader) readHeaders(field string, value json.RawMessage) {
	var lines []string
	if !eachMember(value, func(name string, value json.RawMessage) {
		lines = append(lines, name+": "+r.text("header "+name, value))
	}) {
		lines = r.list(field, value)
	}
	r.server.Header = make(http.Header)
	for _, line := range lines {
		if err := AddHeader(r.server.Header, line, r.secrets); err != nil {
			r.problem("%s: %v", field, err)
		}
	}
}

// AddHeader adds a header of the form Name: value, which may be secret.
func AddHeader(to http.Header, line string, secrets *Secrets) error {
	name, value, ok := strings.Cut(line, ":")
	name, value = strings.TrimSpace(name), strings.TrimSpace(value) // a file's text often ends with a newline
	if !ok || name == "" || strings.ContainsAny(name, " \t") {
		return errors.New(`a header is not of the form "Name: value"`)
	}
	to.Add(name, value)
	secrets.AddHeader(name, value)
	return nil
}

// duration reads 30s, or a number. Hosts do not agree on its unit: it is the second for Cline and Roo Code, which
// allow up to an hour, and the millisecond for Claude Code, Gemini CLI, Copilot and opencode.
func (r *serverReader) duration(where, text string) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil {
		if d, err = time.ParseDuration(text + "s"); d > time.Hour {
			d /= 1000
		}
	}
	if err != nil || d < 0 {
		r.problem("%s is neither a duration such as 30s nor a number of seconds or milliseconds", where)
	}
	return d
}

var variableIn = regexp.MustCompile(`(?:\$\{|\{env:)[^}]*\}?`) // the second: of opencode

// text reads a string, or a number or a boolean as it is written, and replaces its variables. What they hold is not
// expanded in turn.
func (r *serverReader) text(where string, value json.RawMessage) string {
	switch value[0] {
	case '"':
		s := scanner{text: value}
		return variableIn.ReplaceAllStringFunc(s.string(), func(found string) string { return r.variable(where, found) })
	case '{', '[', 'n':
		r.problem("%s is not a text", where)
		return ""
	}
	return string(value)
}

// variable returns what a variable holds, or else its default: as in a shell, also if it holds nothing.
func (r *serverReader) variable(where, text string) string {
	inner, closed := strings.CutSuffix(text[strings.Index(text, "{")+1:], "}")
	name, fallback, hasFallback := strings.Cut(inner, ":-")
	name = strings.TrimPrefix(strings.TrimPrefix(name, "env:"), "//")
	value, ok := r.lookup(name)
	for _, in := range r.inputs {
		if name == "input:"+in.ID {
			r.needs = append(r.needs, in)
		}
	}
	switch {
	case !closed || name == "" || strings.Contains(fallback, "${"):
		r.problem("%s: a variable is neither ${NAME} nor ${NAME:-default}", where)
	case ok && (value != "" || !hasFallback):
		r.secrets.AddVariable(name, value)
		return value
	case hasFallback:
		return fallback
	case strings.HasPrefix(name, "input:"):
		r.problem("%s: ${%s} is asked for on a terminal, if the inputs have it; for runs without one, write ${VARIABLE}",
			where, name)
		return "<" + name + ">"
	default:
		r.problem("%s: variable %s is not set", where, name)
	}
	return ""
}

// list reads a list of texts, or a single one.
func (r *serverReader) list(where string, value json.RawMessage) (texts []string) {
	s := scanner{text: value}
	if s.array(func() { texts = append(texts, r.text(where, s.value())) }); !s.end() {
		texts = []string{r.text(where, value)}
	}
	return texts
}

// plainName is a name in lower case, without dashes and underscores: hosts differ in these.
func plainName(name string) string {
	return strings.NewReplacer("-", "", "_", "").Replace(strings.ToLower(name))
}

// Strings are matched so as to be left alone.
var (
	jsonComment   = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|(//[^\n]*|/\*(?s:.*?)\*/)`)
	trailingComma = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|(,)\s*[}\]]`)
)

// withoutComments puts spaces in the place of comments and of commas after the last element, so that every position
// holds.
func withoutComments(text []byte) []byte {
	text = bytes.Clone(text)
	for _, pattern := range []*regexp.Regexp{jsonComment, trailingComma} {
		for _, group := range pattern.FindAllSubmatchIndex(text, -1) {
			for i := max(0, group[2]); i < group[3]; i++ { // both are -1 for a string
				if text[i] != '\n' {
					text[i] = ' '
				}
			}
		}
	}
	return text
}

// otherText matches YAML, and TOML, of which the group is the last table. JSON begins otherwise.
var otherText = regexp.MustCompile(`(?ms)\A(?:[^{].*)?^(?:(\s*\[+[\w."'-]+\]+\s*$)|["']?[\w-]+["']?:(?:\s|\z))`)

// configSyntaxError adds the position to an error of encoding/json, unless the text has another format. Lines, and
// columns in characters, count from 1.
func configSyntaxError(text []byte, err error) error {
	if m := otherText.FindSubmatch(bytes.TrimSpace(withoutComments(text))); m != nil {
		format := "YAML (goose's cmd is command, its envs are env, its uri is url)"
		if m[1] != nil {
			format = "TOML"
		}
		return fmt.Errorf(`it is %s, and not JSON: write each server into an object, as in {"mcpServers": {"NAME": `+
			`{"command": "npx", "args": ["-y", "PACKAGE"], "env": {"KEY": "VALUE"}}}}`, format)
	}
	syntax := new(json.SyntaxError)
	_ = errors.As(err, &syntax)        // a json.RawMessage has no other errors
	at := max(0, int(syntax.Offset)-1) // Offset counts the byte that is wrong
	for at > 0 && !utf8.RuneStart(text[min(at, len(text)-1)]) {
		at--
	}
	line := bytes.Count(text[:at], []byte{'\n'})
	column := utf8.RuneCount(text[bytes.LastIndexByte(text[:at], '\n')+1 : at])
	reason := err.Error()
	if found, size := utf8.DecodeRune(text[at:]); size > 1 { // such as a curly quote, of which encoding/json shows a byte
		reason = strings.Replace(reason, fmt.Sprintf("%q", rune(text[at])), fmt.Sprintf("%q", found), 1)
	}
	return fmt.Errorf("line %d, column %d: %s", line+1, column+1, reason)
}

// ParseCommand reads a command line: words apart by spaces, with quotes as in a shell and nothing
// expanded; a backslash takes a space, a quote or another backslash as it is.
// Leading words of the form NAME=VALUE set the server's environment.
func ParseCommand(line string) (Command, error) {
	words, err := SplitWords(line)
	if err != nil {
		return Command{}, err
	}
	i := slices.IndexFunc(words, func(word string) bool { return !assignment.MatchString(word) })
	if i < 0 || words[i] == "" {
		return Command{}, errors.New("the command line has no command")
	}
	return Command{Path: words[i], Args: words[i+1:], Env: append([]string(nil), words[:i]...)}, nil
}

// SplitWords splits a command line into its words, without their quotes.
func SplitWords(line string) (words []string, err error) {
	if strings.ContainsAny(commandWord.ReplaceAllLiteralString(line, ""), `"'\`) {
		return nil, errors.New("the command line ends inside quotes or after a backslash")
	}
	for _, word := range commandWord.FindAllString(line, -1) {
		words = append(words, quoted.ReplaceAllStringFunc(word, func(part string) string {
			switch part[0] {
			case '\'':
				return part[1 : len(part)-1]
			case '"':
				part = part[1 : len(part)-1]
			}
			return escaped.ReplaceAllString(part, "$1")
		}))
	}
	return words, nil
}

var (
	assignment  = regexp.MustCompile(`^[^=/\\.-]+=`)
	commandWord = regexp.MustCompile(`(?s:[^ \t\n"'\\]|\\.|"(?:[^"\\]|\\.)*"|'[^']*')+`)
	quoted      = regexp.MustCompile(`(?s)'[^']*'|"(?:[^"\\]|\\.)*"|\\.`)
	escaped     = regexp.MustCompile(`\\([ "'\\])`)
)
