// config.go - the servers of a .mcp.json, as the hosts write it.
// Needs: Go 1.25.
// SPDX-License-Identifier: 0BSD

package main

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// ConfigSyntaxError says where a configuration is not JSON.
type ConfigSyntaxError struct {
	Line, Column int    // from 1; the column in characters
	Reason       string // what is there, and what is not
}

func (e *ConfigSyntaxError) Error() string {
	return fmt.Sprintf("line %d, column %d: %s", e.Line, e.Column, e.Reason)
}

// Config is what a configuration file says.
type Config struct {
	Servers  []ServerConfig // in the order of the file, those with an Err among them
	Disabled []string       // names of servers that are switched off, which Servers does not have
	Warnings []string       // what has no effect, or perhaps another one than was meant; each names its server
}

// ServerConfig is one server of a configuration: a command to start or a URL to connect to, with its variables filled in.
type ServerConfig struct {
	Name string
	Err  error // why it cannot be used; nil if it can

	Command string // on stdio, if not empty
	Args    []string
	Env     []string // NAME=VALUE, by name
	Dir     string   // ours if empty

	URL    string // over HTTP, if not empty
	Header http.Header
	SSE    bool // the transport of 2024-11-05 (HTTP with SSE) was asked for by its name

	Timeout       time.Duration // of a request; 0 for the program's own
	AllowedTools  []string      // globs; all tools if empty
	ExcludedTools []string      // globs; stronger than AllowedTools
	AutoApprove   []string      // globs of the tools that run without being asked about

	// Secrets are texts that must not be shown, longest first: what env and headers hold, what variables were replaced with,
	// and keys in the URL. Short texts are not among them, nor what goes by a name such as LOG_LEVEL or DATA_DIR:
	// to take them out would take sentences apart.
	Secrets []string
}

// Allows says whether a model may be offered a tool.
func (s *ServerConfig) Allows(tool string) bool {
	return (len(s.AllowedTools) == 0 || matchesGlob(s.AllowedTools, tool)) && !matchesGlob(s.ExcludedTools, tool)
}

// Approves says whether a tool runs without being asked about.
func (s *ServerConfig) Approves(tool string) bool { return matchesGlob(s.AutoApprove, tool) }

// ParseConfig reads a configuration, which the hosts agree on but for details: mcpServers by name (Claude Desktop, Claude
// Code, Cursor, mcphost and most others), servers (VS Code) or context_servers (Zed), with comments and commas after the
// last element. lookup finds variables: ${NAME}, ${NAME:-default}, and the same with env: or env:// before the name.
//
// A server that is not in order has an Err, and stops no other. The error is a *ConfigSyntaxError, or says that the text
// is no configuration.
func ParseConfig(text []byte, lookup func(name string) (value string, ok bool)) (*Config, error) {
	text = bytes.TrimPrefix(text, []byte("\ufeff")) // Notepad's
	plain := withoutComments(text)
	var file json.RawMessage
	if err := json.Unmarshal(plain, &file); err != nil {
		return nil, configSyntaxError(text, err)
	}
	sections, ok := configMembers(file)
	if !ok {
		return nil, errors.New("the configuration is not a JSON object")
	}
	c, found := &Config{}, false
	for _, section := range sections {
		switch section.name {
		case "mcpServers", "servers", "context_servers":
			servers, ok := configMembers(section.value)
			if !ok {
				return nil, fmt.Errorf("%s is not an object of servers by their names", section.name)
			}
			found = true
			for _, server := range servers {
				c.add(server, lookup)
			}
		}
	}
	if !found {
		return nil, errors.New("the configuration has no mcpServers (in VS Code: servers; in Zed: context_servers)")
	}
	return c, nil
}

// add reads a server.
func (c *Config) add(server configMember, lookup func(string) (string, bool)) {
	r := &serverReader{server: ServerConfig{Name: server.name}, lookup: lookup, env: map[string]string{}}
	fields, ok := configMembers(server.value)
	for _, field := range fields {
		if string(field.value) != "null" {
			r.field(field.name, field.value)
		}
	}
	switch {
	case r.off:
		c.Disabled = append(c.Disabled, server.name)
		return // what it lacks is nobody's concern
	case server.name == "":
		r.problem("a server needs a name")
	case slices.ContainsFunc(c.Servers, func(s ServerConfig) bool { return s.Name == server.name }):
		r.problem("there is another server of this name")
	case !ok:
		r.problem("it is not an object")
	default:
		r.finish()
	}
	if len(r.problems) > 0 {
		r.server.Err = errors.New(strings.Join(r.problems, "; "))
	}
	for _, warning := range r.warnings {
		c.Warnings = append(c.Warnings, fmt.Sprintf("server %q: %s", server.name, warning))
	}
	c.Servers = append(c.Servers, r.server)
}

// serverReader reads one server: field for each field, in any order, and then finish.
type serverReader struct {
	server ServerConfig
	lookup func(name string) (value string, ok bool)

	command, args []string
	env           map[string]string
	kind          string // of transport, as written
	off           bool

	problems, warnings []string
}

func (r *serverReader) problem(format string, args ...any) {
	r.problems = append(r.problems, fmt.Sprintf(format, args...))
}

func (r *serverReader) warn(format string, args ...any) {
	r.warnings = append(r.warnings, fmt.Sprintf(format, args...))
}

// field reads a field. Where hosts have several names for a thing, all of them are known: to miss that a tool is excluded
// would be worse than to miss a decoration.
func (r *serverReader) field(name string, value json.RawMessage) {
	s := &r.server
	switch name {
	case "command": // of mcphost and opencode: with its arguments, in a list
		r.command = r.expandAll(name, r.list(name, value))
	case "args":
		if value[0] != '[' {
			r.problem("args is not a list")
		}
		r.args = r.expandAll(name, r.list(name, value))
	case "env", "environment":
		r.environment(name, value)
	case "cwd":
		s.Dir = r.expand(name, r.text(name, value))
	case "url", "serverUrl", "httpUrl": // the latter two: Windsurf, Gemini CLI
		s.URL = r.expand(name, r.text(name, value))
	case "headers":
		r.headers(value)
	case "type", "transport":
		r.kind = r.text(name, value)
	case "disabled":
		r.off = r.off || r.bool(name, value)
	case "enabled":
		r.off = r.off || !r.bool(name, value)
	case "timeout":
		s.Timeout = r.timeout(r.text(name, value))
	case "allowedTools", "includeTools", "enabledTools", "tools":
		tools := r.list(name, value)
		if len(tools) == 0 {
			r.warn("%s is empty and has no effect: all tools are allowed", name)
		}
		s.AllowedTools = append(s.AllowedTools, tools...)
	case "excludedTools", "excludeTools", "disabledTools":
		s.ExcludedTools = append(s.ExcludedTools, r.list(name, value)...)
	case "alwaysAllow", "autoApprove":
		switch string(value) {
		case "true":
			s.AutoApprove = []string{"*"}
		case "false":
		default:
			s.AutoApprove = append(s.AutoApprove, r.list(name, value)...)
		}
	case "$schema", "description", "gallery", "icon", "name", "source", "title", "version": // say nothing about how to use it
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
		s.Command, s.Args = r.command[0], append(r.command[1:], r.args...)
	}
	for _, name := range slices.Sorted(maps.Keys(r.env)) {
		s.Env = append(s.Env, name+"="+r.env[name])
	}
	needs := ""
	switch strings.NewReplacer("-", "", "_", "").Replace(strings.ToLower(r.kind)) {
	case "":
	case "stdio", "local":
		needs = "command"
	case "http", "streamablehttp", "streamable", "remote":
		needs = "url"
	case "sse":
		needs, s.SSE = "url", true
	default:
		r.problem("type %q is none of stdio (or local), http (or streamable-http, remote) and sse", r.kind)
	}
	switch {
	case s.Command != "" && s.URL != "":
		r.problem("it has both a command and a url")
	case s.Command == "" && s.URL == "":
		r.problem("it has neither a command nor a url")
	case needs == "command" && s.Command == "", needs == "url" && s.URL == "":
		r.problem("type %q goes with a %s, which it does not have", r.kind, needs)
	}
	if s.URL != "" && len(r.problems) == 0 {
		u, err := url.Parse(s.URL)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			r.problem("its url is not of the form https://host/path") // not the text of it: there may be a key in it
		} else {
			s.Secrets = append(s.Secrets, secretsOfURL(u)...)
		}
	}
	slices.SortFunc(s.Secrets, func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
	s.Secrets = slices.Compact(s.Secrets)
}

func (r *serverReader) environment(field string, value json.RawMessage) {
	variables, ok := configMembers(value)
	if !ok {
		r.problem("%s is not an object of variables", field)
	}
	for _, v := range variables {
		switch {
		case v.name == "" || strings.Contains(v.name, "="):
			r.problem("%s: %q is no variable's name", field, v.name)
		case string(v.value) != "null": // VS Code: not set
			where := field + " " + v.name
			text := r.expand(where, r.text(where, v.value))
			r.secret(v.name, text)
			r.env[v.name] = text
		}
	}
}

// headers reads an object, or mcphost's list of lines.
func (r *serverReader) headers(value json.RawMessage) {
	header := http.Header{}
	add := func(name, text string) {
		if name = strings.TrimSpace(name); name == "" {
			r.problem("a header has no name")
			return
		}
		text = strings.TrimSpace(r.expand("header "+name, text)) // a key that comes from a file often ends with a newline
		header.Add(name, text)
		r.secret(name, text)
		if _, key, ok := strings.Cut(text, " "); ok { // Bearer …
			r.secret(name, key)
		}
	}
	if value[0] == '[' {
		for _, line := range r.list("headers", value) {
			name, text, ok := strings.Cut(line, ":")
			if !ok {
				r.problem("a header is not of the form Name: value")
				continue
			}
			add(name, text)
		}
	} else if members, ok := configMembers(value); ok {
		for _, m := range members {
			add(m.name, r.text("header "+m.name, m.value))
		}
	} else {
		r.problem("headers is neither an object nor a list")
	}
	r.server.Header = header
}

// maxSeconds is the largest number that is a timeout in seconds.
const maxSeconds = 3600

// timeout reads 30s, or a number. Hosts do not agree on its unit: it is the second for Cline and Roo Code, which allow up to
// an hour, and the millisecond for Claude Code, Gemini CLI, Copilot and opencode, where so few make no sense.
func (r *serverReader) timeout(text string) time.Duration {
	n, err := strconv.ParseFloat(text, 64)
	d := time.Duration(n * float64(time.Second))
	switch {
	case err != nil:
		d, err = time.ParseDuration(text)
	case n > maxSeconds:
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

func (r *serverReader) expandAll(where string, texts []string) []string {
	for i, text := range texts {
		texts[i] = r.expand(where, text)
	}
	return texts
}

// expand replaces the variables of a text. What they hold is not looked at again.
func (r *serverReader) expand(where, text string) string {
	if bareVariable.MatchString(text) {
		r.warn("%s: %s is passed on as it is; ${%s} would be replaced", where, text, text[1:])
	}
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(text, "${")
		out.WriteString(before)
		if !found {
			return out.String()
		}
		variable, after, closed := strings.Cut(rest, "}")
		if !closed {
			r.problem("%s: a ${ has no }", where)
		}
		out.WriteString(r.variable(where, variable))
		text = after
	}
}

var (
	bareVariable   = regexp.MustCompile(`^\$[A-Za-z_][A-Za-z0-9_]*$`)
	notInName      = regexp.MustCompile(`[^A-Z0-9]+`)
	editorVariable = regexp.MustCompile(`^(workspace(Folder|FolderBasename|Root)|userHome|pathSeparator|cwd|/)$`)
)

// variable returns what a variable holds, or else its default: as in a shell, also if it holds nothing.
func (r *serverReader) variable(where, text string) string {
	name, fallback, hasFallback := strings.Cut(text, ":-")
	if rest, ok := strings.CutPrefix(name, "env:"); ok {
		name = strings.TrimPrefix(rest, "//")
	}
	value, ok := r.lookup(name)
	kind, id, special := strings.Cut(name, ":")
	switch {
	case name == "" || strings.Contains(fallback, "${"):
		r.problem("%s: ${%s} is neither ${NAME} nor ${NAME:-default}", where, text)
	case special: // VS Code: ${input:key}, ${command:…}, ${config:…}
		r.problem("%s: ${%s} is for an editor to fill in: write ${%s} and set that variable", where, text,
			strings.Trim(notInName.ReplaceAllString(strings.ToUpper(cmp.Or(id, kind)), "_"), "_"))
	case ok && (value != "" || !hasFallback):
		r.secret(name, value)
		return value
	case hasFallback:
		return fallback
	case editorVariable.MatchString(name):
		r.problem("%s: ${%s} is for an editor to fill in: write the path itself", where, text)
	default:
		r.problem("%s: variable %s is not set", where, name)
	}
	return ""
}

var (
	// noSecret has the names of variables and headers that hold no secrets.
	noSecret = regexp.MustCompile(`(?i)(dir|file|home|path)s?$|(^|_)(debug|endpoint|env|host|lang|level|mode|model|port|region|root|tz|version)$` +
		`|^(accept(-.*)?|content-type|user-agent|logname|pwd|shell|tmpdir|user)$`)

	// Under another name than these, a word without digits is no secret: TEAM=engineering.
	secretName = regexp.MustCompile(`(?i)auth|cookie|cred|key|pass|pwd|secret|session|token`)
	plainWord  = regexp.MustCompile(`^[A-Za-z]+$`)

	// What may be a key in the path of a URL, as webhooks have it.
	keyInPath = regexp.MustCompile(`[A-Za-z0-9_-]{16}`)
)

// minSecret is the length of the shortest secret, in bytes.
const minSecret = 8

// secretsOf returns what a variable or header holds, line by line, as logs come in lines.
func secretsOf(name, text string) (secrets []string) {
	if noSecret.MatchString(name) || plainWord.MatchString(text) && !secretName.MatchString(name) {
		return nil
	}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if u, err := url.Parse(line); err == nil && u.Host != "" {
			secrets = append(secrets, secretsOfURL(u)...)
			if !keyInPath.MatchString(u.Path) {
				continue
			}
		}
		if len(line) >= minSecret {
			secrets = append(secrets, line)
		}
	}
	return secrets
}

// secretsOfURL returns a URL's password, also as it goes into a header, and those of its parameters that look like keys: words
// have no digits.
func secretsOfURL(u *url.URL) (secrets []string) {
	if password, ok := u.User.Password(); ok {
		secrets = append(secretsOf("password", password), base64.StdEncoding.EncodeToString([]byte(u.User.Username()+":"+password)))
	}
	for name, values := range u.Query() {
		for _, value := range values {
			if strings.ContainsAny(value, "0123456789") {
				secrets = append(secrets, secretsOf(name, value)...)
				secrets = append(secrets, secretsOf(name, url.QueryEscape(value))...) // as it stands in the URL
			}
		}
	}
	return secrets
}

func (r *serverReader) secret(name, text string) {
	r.server.Secrets = append(r.server.Secrets, secretsOf(name, text)...)
}

// list reads a list of texts, or a single one.
func (r *serverReader) list(where string, value json.RawMessage) []string {
	if value[0] != '[' {
		return []string{r.text(where, value)}
	}
	var elements []json.RawMessage
	_ = json.Unmarshal(value, &elements) // which ParseConfig has found to be valid
	texts := make([]string, len(elements))
	for i, element := range elements {
		texts[i] = r.text(where, element)
	}
	return texts
}

// text reads a string, or a number or a boolean as it is written.
func (r *serverReader) text(where string, value json.RawMessage) (text string) {
	switch value[0] {
	case '"':
		_ = json.Unmarshal(value, &text)
	case '{', '[', 'n':
		r.problem("%s is not a text", where)
	default:
		text = string(value)
	}
	return text
}

func (r *serverReader) bool(where string, value json.RawMessage) bool {
	b, err := strconv.ParseBool(r.text(where, value))
	if err != nil {
		r.problem("%s is neither true nor false", where)
	}
	return b
}

// matchesGlob says whether a name matches one of the patterns. * stands for any characters and ? for one; unlike
// path.Match's they also stand for slashes, which tools may have in their names.
func matchesGlob(patterns []string, name string) bool {
	wildcards := strings.NewReplacer(`\*`, `.*`, `\?`, `.`)
	for _, pattern := range patterns {
		if ok, _ := regexp.MatchString(`(?s)\A`+wildcards.Replace(regexp.QuoteMeta(pattern))+`\z`, name); ok {
			return true
		}
	}
	return false
}

// configMember is a member of a JSON object.
type configMember struct {
	name  string
	value json.RawMessage
}

// configMembers returns the members of an object in their order; ok says whether it is one.
func configMembers(object json.RawMessage) (members []configMember, ok bool) {
	d := json.NewDecoder(bytes.NewReader(object))
	if start, _ := d.Token(); start != json.Delim('{') {
		return nil, false
	}
	for d.More() {
		name, _ := d.Token()
		var m configMember
		m.name, _ = name.(string)
		if err := d.Decode(&m.value); err != nil {
			return nil, false
		}
		members = append(members, m)
	}
	return members, true
}

// Strings are matched so as to be left alone.
var (
	jsonComment   = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|//[^\n]*|/\*(?s:.*?)\*/`)
	trailingComma = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|,\s*[}\]]`)
)

// withoutComments puts spaces in the place of comments and of commas after the last element, so that every position holds.
func withoutComments(text []byte) []byte {
	text = jsonComment.ReplaceAllFunc(text, func(match []byte) []byte {
		if match[0] == '"' {
			return match
		}
		blank := bytes.Clone(match)
		for i, c := range blank {
			if c != '\n' {
				blank[i] = ' '
			}
		}
		return blank
	})
	return trailingComma.ReplaceAllFunc(text, func(match []byte) []byte {
		if match[0] == '"' {
			return match
		}
		return append([]byte{' '}, match[1:]...)
	})
}

// configSyntaxError adds the position to an error of encoding/json.
func configSyntaxError(text []byte, err error) error {
	var syntax *json.SyntaxError
	if !errors.As(err, &syntax) {
		return err
	}
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
	return &ConfigSyntaxError{line + 1, column + 1, reason}
}
