// config.go - the servers of a .mcp.json, as the hosts write it, or of a command line.
// SPDX-License-Identifier: 0BSD

package main

import (
	"bytes"
	"cmp"
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

	Inputs   []Input // that servers need, and lookup does not have as input:ID
	EnvFiles []byte  // the paths and texts of all envFile: they decide, too, what the servers do
}

// Input is a value that VS Code asks the user for.
type Input struct {
	ID, Type, Description string
	Password              bool
	Default               any      // a text, or nil
	Options               []string // to choose from
}

// ErrInput is the Err of a server that needs an input.
var ErrInput = errors.New("it needs an input, which is asked for on a terminal")

// ParseConfig reads a configuration, which the hosts agree on but for details: mcpServers by name (Claude Desktop,
// Claude Code, Cursor, mcphost and most others), servers (VS Code), context_servers (Zed), mcp (opencode) or
// mcp.servers (VS Code's settings), with comments and commas after the last element. lookup finds variables: ${NAME},
// ${NAME:-default}, and the same with env: or env:// before the name; and VS Code's ${input:ID}. What is secret of the
// servers, ParseConfig adds to secrets: in env, envFile, headers, arguments and the URL, and in what variables were
// replaced with.
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
	inputs := slices.DeleteFunc(append(file.Inputs, file.MCP.Inputs...), func(in Input) bool {
		return in.Type != "promptString" && in.Type != "pickString"
	})
	c, found := &Config{OAuth: make(map[string]*OAuthConfig)}, false
	var problem error
	ok := eachMember(plain, func(section string, value json.RawMessage) {
		if !slices.Contains([]string{"mcpServers", "servers", "context_servers", "mcp"}, section) {
			return
		}
		found = true
		if section == "mcp" && file.MCP.Servers != nil {
			value = file.MCP.Servers
		}
		if !eachMember(value, func(name string, server json.RawMessage) {
			r := serverReader{config: c, lookup: lookup, inputs: inputs, secrets: secrets, env: make(map[string]string)}
			r.read(name, server)
		}) {
			problem = cmp.Or(problem, fmt.Errorf("%s is not an object of servers by their names", section))
		}
	})
	switch {
	case !ok:
		return nil, errors.New("the configuration is not a JSON object")
	case problem != nil:
		return nil, problem
	case !found:
		return nil, errors.New("the configuration has no mcpServers (in VS Code: servers; in Zed: context_servers; " +
			"in opencode: mcp)")
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

// serverReader reads one server: field for each field, in any order, and then finish.
type serverReader struct {
	config  *Config // which it is added to
	lookup  func(name string) (value string, ok bool)
	inputs  []Input // all that are defined
	secrets *Secrets

	server Server
	needs  []Input // those of the inputs that have no value

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
	isObject := eachMember(value, r.field)
	switch {
	case r.disabled:
		c.Disabled = append(c.Disabled, name)
		return
	case name == "":
		r.problem("a server needs a name")
	case slices.Contains(ServerNames(c.Servers), name):
		r.problem("there is another server of this name")
	case !isObject:
		r.problem("it is not an object")
	default:
		r.finish()
		c.OAuth[name] = r.login
	}
	if len(r.problems) > 0 {
		r.server.Err = errors.New(strings.Join(r.problems, "; "))
	} else if len(r.needs) > 0 {
		r.server.Err = fmt.Errorf("%w; for runs without one, write ${VARIABLE} in place of ${input:%s}", ErrInput,
			r.needs[0].ID)
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

// field reads a field. Where hosts have several names for a thing, all of them are known: to miss that a tool is
// excluded would be worse than to miss a decoration.
func (r *serverReader) field(name string, value json.RawMessage) {
	s := &r.server
	if string(value) == "null" {
		return
	}
	switch name {
	case "command": // of mcphost and opencode: with its arguments, in a list; of Zed, once: an object with path
		if !eachMember(value, func(name string, value json.RawMessage) {
			r.field(strings.Replace(name, "path", "command", 1), value)
		}) {
			r.command = r.list(name, value, r.expanded)
		}
	case "args":
		if value[0] != '[' {
			r.problem("args is not a list")
		}
		r.args = r.list(name, value, r.expanded)
	case "env", "environment":
		r.environment(name, value)
	case "envFile":
		r.envFile = r.text(name, value)
	case "cwd":
		s.Command.Dir = r.expanded(name, value)
	case "url", "serverUrl", "httpUrl": // the latter two: Windsurf, Gemini CLI
		s.URL = r.expanded(name, value)
	case "headers":
		r.headers(value)
	case "oauth", "auth": // the latter: Cursor
		r.oauth(name, value)
	case "type", "transport":
		r.kind = r.text(name, value)
	case "timeout":
		s.Timeout = r.timeout(r.text(name, value))
	case "startTimeout", "startup_timeout_sec": // the latter: Codex
		s.StartTimeout = r.timeout(r.text(name, value))
	case "allowedTools", "includeTools", "enabledTools", "tools":
		before := len(s.AllowedTools)
		if s.AllowedTools = append(s.AllowedTools, r.list(name, value, r.text)...); len(s.AllowedTools) == before {
			r.warn("%s is empty and has no effect: all tools are allowed", name)
		}
	case "excludedTools", "excludeTools", "disabledTools":
		s.ExcludedTools = append(s.ExcludedTools, r.list(name, value, r.text)...)
	case "alwaysAllow", "autoApprove":
		if string(value) == "true" {
			s.AutoApprove = []string{"*"}
		} else if string(value) != "false" {
			s.AutoApprove = append(s.AutoApprove, r.list(name, value, r.text)...)
		}
	case "disabled", "enabled":
		r.disabled = r.disabled || r.bool(name, value) == (name == "disabled")
	case "$schema", "description", "gallery", "icon", "name", "source", "title", "version": // of no effect here
	default:
		if name != "" && name[0] != '_' && name[0] != '/' { // as comments are written in plain JSON
			r.warn("%s is not known here and has no effect", name)
		}
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
	kind := plainName(r.kind)
	needs, known := map[string]string{"": "", "stdio": "command", "local": "command", "sse": "url", "http": "url",
		"remote": "url", "streamable": "url", "streamablehttp": "url"}[kind]
	if s.SSE = kind == "sse"; !known {
		r.problem("type %q is none of stdio (or local), http (or streamable-http, remote) and sse", r.kind)
	}
	switch {
	case s.Command.Path != "" && s.URL != "":
		r.problem("it has both a command and a url")
	case s.Command.Path == "" && s.URL == "":
		r.problem("it has neither a command nor a url")
	case needs == "command" && s.Command.Path == "", needs == "url" && s.URL == "":
		r.problem("type %q goes with a %s, which it does not have", r.kind, needs)
	}
	if r.login != nil && (s.URL == "" || s.Header.Get("Authorization") != "") {
		r.warn("oauth has no effect: it goes with a url, and without a header Authorization")
	}
	if s.URL != "" && len(r.problems)+len(r.needs) == 0 {
		u, err := url.Parse(s.URL)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			r.problem("its url is not of the form https://host/path") // not the text of it: there may be a key in it
			return
		}
		r.secrets.AddURL(u)
	}
}

func (r *serverReader) environment(field string, value json.RawMessage) {
	if !eachMember(value, func(name string, value json.RawMessage) {
		switch {
		case name == "" || strings.Contains(name, "="):
			r.problem("%s: %q is not a variable's name", field, name)
		case string(value) != "null": // VS Code: not set
			r.env[name] = r.expanded(field+" "+name, value)
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
	path := r.expand("envFile", r.envFile)
	info, err := os.Stat(path)
	if err == nil && info.Mode().IsRegular() && info.Size() <= maxEnvFile { // another one may have no end
		text, err = os.ReadFile(path)
	}
	if err != nil || text == nil {
		r.problem("envFile %s is not a file that can be read", r.envFile) // not the path: a variable may be in it
	}
	r.config.EnvFiles = fmt.Appendf(r.config.EnvFiles, "%q %q\n", path, text)
	variables, escapes := make(map[string]string), strings.NewReplacer(`\n`, "\n", `\r`, "\r", `\"`, `"`)
	for _, m := range envLine.FindAllStringSubmatch(string(text), -1) {
		variables[m[1]] = escapes.Replace(m[2]) + m[3] + m[4]
		r.secrets.AddVariable(m[1], variables[m[1]])
	}
	maps.Copy(variables, r.env)
	r.env = variables
}

// headers reads an object, or mcphost's list of lines.
func (r *serverReader) headers(value json.RawMessage) {
	r.server.Header = http.Header{}
	add := func(name, text string) {
		name, text = strings.TrimSpace(name), strings.TrimSpace(text) // a file's text often ends with a newline
		if name == "" {
			r.problem("a header has no name")
			return
		}
		r.server.Header.Add(name, text)
		r.secrets.AddHeader(name, text)
	}
	switch isObject := eachMember(value, func(name string, value json.RawMessage) {
		add(name, r.expanded("header "+name, value))
	}); {
	case isObject:
	case value[0] != '[':
		r.problem("headers is neither an object nor a list")
	default:
		for _, line := range r.list("headers", value, r.expanded) {
			name, text, ok := strings.Cut(line, ":")
			if ok {
				add(name, text)
			} else {
				r.problem("a header is not of the form Name: value")
			}
		}
	}
}

// timeout reads 30s, or a number. Hosts do not agree on its unit: it is the second for Cline and Roo Code, which
// allow up to an hour, and the millisecond for Claude Code, Gemini CLI, Copilot and opencode, where so few make no
// sense.
func (r *serverReader) timeout(text string) time.Duration {
	n, err := strconv.ParseFloat(text, 64)
	d := time.Duration(n * float64(time.Second))
	switch {
	case err != nil:
		d, err = time.ParseDuration(text)
	case n > 3600:
		d = time.Duration(n * float64(time.Millisecond))
	case n >= 1000:
		r.warn("timeout %s is taken for seconds; write \"%sms\" for milliseconds", text, text)
	}
	if err != nil || d < 0 || !(n < 1e12) { // also NaN
		r.problem("timeout %q is neither a duration such as 30s nor a number of seconds or milliseconds", text)
		return 0
	}
	return d
}

var variableIn = regexp.MustCompile(`(?:\$\{|\{env:)[^}]*\}?`) // the second: of opencode

// expand replaces the variables of a text. What they hold is not expanded in turn.
func (r *serverReader) expand(where, text string) string {
	return variableIn.ReplaceAllStringFunc(text, func(found string) string {
		name, closed := strings.CutSuffix(found[strings.Index(found, "{")+1:], "}")
		if !closed {
			r.problem("%s: a ${ has no }", where)
		}
		return r.variable(where, name)
	})
}

// variable returns what a variable holds, or else its default: as in a shell, also if it holds nothing.
func (r *serverReader) variable(where, text string) string {
	name, fallback, hasFallback := strings.Cut(text, ":-")
	name = strings.TrimPrefix(strings.TrimPrefix(name, "env:"), "//")
	value, ok := r.lookup(name)
	id, isInput := strings.CutPrefix(name, "input:")
	i := slices.IndexFunc(r.inputs, func(in Input) bool { return in.ID == id })
	switch {
	case isInput && !ok && i >= 0:
		r.needs = append(r.needs, r.inputs[i])
		return "<" + id + ">"
	case isInput && !ok:
		r.problem("%s: the inputs have no %q of type promptString or pickString; others are not supported", where, id)
	case name == "" || strings.Contains(fallback, "${"):
		r.problem("%s: ${%s} is neither ${NAME} nor ${NAME:-default}", where, text)
	case ok && (value != "" || !hasFallback):
		r.secrets.AddVariable(name, value)
		return value
	case hasFallback:
		return fallback
	default:
		r.problem("%s: variable %s is not set", where, name)
	}
	return ""
}

// list reads a list of texts, or a single one, each by text or expanded.
func (r *serverReader) list(
	where string, value json.RawMessage, read func(where string, value json.RawMessage) string,
) (texts []string) {
	s := scanner{text: value}
	if s.array(func() { texts = append(texts, read(where, s.value())) }); !s.end() {
		texts = []string{read(where, value)}
	}
	return texts
}

// expanded reads a text with its variables replaced.
func (r *serverReader) expanded(where string, value json.RawMessage) string {
	return r.expand(where, r.text(where, value))
}

// text reads a string, or a number or a boolean as it is written.
func (r *serverReader) text(where string, value json.RawMessage) string {
	switch value[0] {
	case '"':
		s := scanner{text: value}
		return s.string()
	case '{', '[', 'n':
		r.problem("%s is not a text", where)
		return ""
	}
	return string(value)
}

func (r *serverReader) bool(where string, value json.RawMessage) bool {
	b, err := strconv.ParseBool(r.text(where, value))
	if err != nil {
		r.problem("%s is neither true nor false", where)
	}
	return b
}

// plainName is a name in lower case, without dashes and underscores: hosts differ in these.
func plainName(name string) string {
	return strings.NewReplacer("-", "", "_", "").Replace(strings.ToLower(name))
}

// Strings are matched so as to be left alone.
var (
	jsonComment   = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|//[^\n]*|/\*(?s:.*?)\*/`)
	trailingComma = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|,\s*[}\]]`)
)

// withoutComments puts spaces in the place of comments and of commas after the last element, so that every position
// holds.
func withoutComments(text []byte) []byte {
	text = bytes.Clone(text)
	for _, pattern := range []*regexp.Regexp{jsonComment, trailingComma} {
		for _, at := range pattern.FindAllIndex(text, -1) {
			first := text[at[0]]
			for i := at[0]; i < at[1]; i++ {
				if first == '/' && text[i] != '\n' || first == ',' && i == at[0] {
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
	if m := otherText.FindSubmatch(bytes.TrimSpace(text)); m != nil {
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
	var c Command
	for i, word := range words {
		if name, _, ok := strings.Cut(word, "="); !ok || name == "" || strings.ContainsAny(name, `/\.-`) {
			c.Path, c.Args = word, words[i+1:]
			break
		}
		c.Env = append(c.Env, word)
	}
	if c.Path == "" {
		return Command{}, errors.New("the command line has no command")
	}
	return c, nil
}

// SplitWords splits a command line into its words, without their quotes.
func SplitWords(line string) (words []string, err error) {
	for line = strings.TrimLeft(line, blanks); line != ""; line = strings.TrimLeft(line, blanks) {
		word := commandWord.FindString(line)
		if line = line[len(word):]; line != "" && !strings.Contains(blanks, line[:1]) {
			return nil, errors.New("the command line ends inside quotes or after a backslash")
		}
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

const blanks = " \t\n"

var (
	commandWord = regexp.MustCompile(`^(?s:[^ \t\n"'\\]|\\.|"(?:[^"\\]|\\.)*"|'[^']*')*`)
	quoted      = regexp.MustCompile(`(?s)'[^']*'|"(?:[^"\\]|\\.)*"|\\.`)
	escaped     = regexp.MustCompile(`\\([ "'\\])`)
)
