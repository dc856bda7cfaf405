// config.go - the servers of a .mcp.json, as the hosts write it, or of a command line.
// SPDX-License-Identifier: 0BSD

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Config is what a configuration file says.
type Config struct {
	Servers  []Server // in the order of the file; those with an Err too, but none that is disabled
	Disabled []string // the names of the servers that are left out
	Warnings []string // what has no effect, or perhaps not the intended one; each names its server
	Settings []Setting

	OAuth map[string]*OAuthConfig // by the name of a server, nil if it says nothing
	TLS   map[string]*TLSFiles    // the same

	Inputs   []Input // of the servers; one that two of them need stands here twice
	EnvFiles []byte  // the paths and texts of all envFile: they decide, too, what the servers do
}

// Setting is what a file sets beside its servers.
type Setting struct {
	Name string
	Text string // its value, if that is a text
}

// Input is a value that VS Code asks the user for.
type Input struct {
	ID, Description string
	Password        bool
	Default         any      // a text, or nil
	Options         []string // to choose from
}

// ParseConfig reads a configuration. The hosts agree on its form but for details. The servers stand
// by name in an object: mcpServers (Claude Desktop, Claude Code, Cursor, mcphost and most others),
// servers (VS Code), context_servers (Zed), mcp (opencode) or mcp.servers (VS Code's settings).
// There may be comments, and commas after the last element. What surrounds the servers may be
// missing, as in many a README.
//
// lookup finds variables: ${NAME}, ${NAME:-default}, and the same with env: or env:// before the
// name; and VS Code's ${input:ID}, of the name input:ID. ParseConfig
// adds to secrets what is secret in each server's env, envFile, headers, arguments and URL, and in
// the values that lookup returned.
//
// readFile reads an envFile of at most limit bytes: ReadRegular, or ReadOfStranger for the text of
// a stranger.
//
// A server with a mistake has an Err, and does not stop the others. The object of servers may be
// empty or null. The error says where the text is not JSON, which other format it has, or that it
// is not a configuration.
func ParseConfig(
	text []byte,
	lookup func(name string) (value string, ok bool),
	readFile func(path string, limit int64) ([]byte, error),
	secrets *Secrets,
) (*Config, error) {
	text = withoutBOM(text)
	plain, err := configJSON(text)
	if err != nil {
		return nil, err
	}
	var file struct {
		Inputs []Input
		MCP    struct {
			Inputs  []Input
			Servers json.RawMessage
		}
	}
	// Only VS Code has these members. What has another form is not VS Code's, and has none of them.
	_ = json.Unmarshal(plain, &file)
	inputs := slices.Concat(file.Inputs, file.MCP.Inputs)

	c := &Config{
		OAuth: make(map[string]*OAuthConfig),
		TLS:   make(map[string]*TLSFiles),
	}
	sources := configSources{lookup, readFile, inputs, secrets}
	readServer := func(name string, server json.RawMessage) {
		r := serverReader{configSources: sources, config: c, env: make(map[string]string)}
		r.readServer(name, server)
	}
	hasServers := false
	eachMember(plain, func(section string, value json.RawMessage) {
		switch section {
		case "mcpServers", "servers", "context_servers":
		case "mcp":
			if file.MCP.Servers != nil {
				value = file.MCP.Servers
			}
		default:
			c.addSetting(section, value)
			return
		}
		isObject := eachMember(value, readServer)
		hasServers = hasServers || isObject || string(value) == "null"
	})
	alone := serversAlone(plain)
	if !hasServers && alone != nil {
		c.Settings = nil
		hasServers = eachMember(alone, readServer)
	}
	if !hasServers {
		return nil, errors.New("the configuration has no object mcpServers (in VS Code: servers; " +
			"in Zed: context_servers; in opencode: mcp)")
	}
	return c, nil
}

// addSetting adds what the file sets beside its servers.
func (c *Config) addSetting(name string, value json.RawMessage) {
	// Nothing is set by false, or by a value that is empty.
	if emptyValue.Match(value) {
		return
	}
	s := Setting{Name: name}
	// The value may be something else than a text.
	_ = json.Unmarshal(value, &s.Text)
	c.Settings = append(c.Settings, s)
}

// emptyValue matches a value that sets nothing.
var emptyValue = regexp.MustCompile(`^(?:null|false|""|\[\s*\]|\{\s*\})$`)

// eachMember calls member for each member of a JSON object, in their order. It reports whether the
// value, which is valid JSON, is an object.
func eachMember(value json.RawMessage, member func(name string, value json.RawMessage)) bool {
	s := scanner{text: value}
	s.object(func(key []byte) {
		name := strings.ToValidUTF8(string(key), "\uFFFD")
		member(name, s.value())
	})
	return s.end()
}

// configSources are what all servers of a configuration are read with.
type configSources struct {
	lookup   func(name string) (value string, ok bool)
	readFile func(path string, limit int64) ([]byte, error)
	inputs   []Input // all that are defined
	secrets  *Secrets
}

// serverReader reads one server. Its fields come in any order, so each is only stored when it is
// read; finishServer puts them together. A mistake is noted, and the next field is read, so that
// the user learns of all mistakes at once.
type serverReader struct {
	configSources
	config *Config // gets the server

	server Server
	needs  []Input // of the inputs

	command, args []string
	env           map[string]string
	envFile       string
	kind          string   // of transport, as written
	label         string   // what the file calls the server beside its name
	directories   []string // in the options of a builtin server, as written
	remote
	disabled bool

	problems, warnings []string
}

// remote is what a server over HTTP has beside its Server.
type remote struct {
	login *OAuthConfig
	tls   *TLSFiles
}

// readServer reads the server, unless it is disabled: what a disabled server lacks does not matter.
func (r *serverReader) readServer(name string, value json.RawMessage) {
	c := r.config
	r.server.Name = name
	eachMember(value, r.readField)
	if r.disabled {
		c.Disabled = append(c.Disabled, name)
		return
	}
	// Each name that was read before is in this map.
	_, isTaken := c.OAuth[name]
	if name == "" || isTaken {
		r.problem("each server needs a unique name")
	} else {
		r.finishServer()
		c.OAuth[name] = r.login
		c.TLS[name] = r.tls
	}
	if len(r.problems) > 0 {
		r.server.Err = errors.New(strings.Join(r.problems, "; "))
	}
	c.Inputs = append(c.Inputs, r.needs...)
	c.Warnings = append(c.Warnings, r.warnings...)
	c.Servers = append(c.Servers, r.server)
}

// problem notes a mistake, for which the server cannot be used.
func (r *serverReader) problem(format string, args ...any) {
	r.problems = append(r.problems, fmt.Sprintf(format, args...))
}

// warn notes what the user should know of a server that can be used.
func (r *serverReader) warn(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	r.warnings = append(r.warnings, fmt.Sprintf("server %q: %s", r.server.Name, text))
}

// fields is the table of all fields that a server may have: where the value of each is stored, or
// the method that reads it. Where hosts have several names for a thing, all of them are known: to
// miss that a tool is excluded would be worse than to miss a decoration.
func (r *serverReader) fields() map[string]any {
	s := &r.server
	return map[string]any{
		// A server that is started.
		"command":     r.readCommand,
		"args":        &r.args,
		"cwd":         &s.Command.Dir,
		"env":         r.readEnv,
		"environment": r.readEnv, // opencode
		"envFile":     &r.envFile,

		// A server that is reached over HTTP.
		"url":       &s.URL,
		"serverUrl": &s.URL, // Windsurf
		"httpUrl":   &s.URL, // Gemini CLI
		"headers":   r.readHeaders,
		"oauth":     r.readOAuth,
		"auth":      r.readOAuth, // Cursor
		"tls":       r.readTLS,

		// Either of them.
		"type":      &r.kind,
		"transport": &r.kind,
		"name":      r.readLabel,
		"options":   r.readOptions, // mcphost's builtin servers
		"disabled":  &r.disabled,
		"enabled":   &r.disabled, // storeBool turns it round

		"protocol":            r.readProtocol,
		"timeout":             &s.Timeout,
		"startTimeout":        &s.StartTimeout,
		"startup_timeout_sec": &s.StartTimeout, // Codex

		// Its tools.
		"allowedTools":  &s.AllowedTools,
		"includeTools":  &s.AllowedTools,
		"enabledTools":  &s.AllowedTools,
		"tools":         &s.AllowedTools,
		"excludedTools": &s.ExcludedTools,
		"excludeTools":  &s.ExcludedTools,
		"disabledTools": &s.ExcludedTools,
		"alwaysAllow":   &s.AutoApprove,
		"autoApprove":   &s.AutoApprove,
	}
}

// noEffect matches fields that say nothing about how a server is used, and comments in plain JSON.
var noEffect = regexp.MustCompile(
	`^(|[_/].*|\$schema|description|gallery|icon|source|title|version)$`)

// readField reads one field of the server.
func (r *serverReader) readField(name string, value json.RawMessage) {
	into := r.fields()[name]
	// Go programs write null for an empty list.
	isList := value[0] == '[' || string(value) == "null"
	if name == "args" && !isList {
		r.problem("args is not a list")
	}
	if into != nil || !noEffect.MatchString(name) {
		r.store(name, value, into)
	}
}

// store reads a value into what a pointer points to, or by a method. null is as if the field were
// not there.
func (r *serverReader) store(where string, value json.RawMessage, into any) {
	if string(value) == "null" {
		return
	}
	switch into := into.(type) {
	case *string:
		*into = r.text(where, value)
	case *[]string:
		r.storeList(where, value, into)
	case *bool:
		r.storeBool(where, value, into)
	case *time.Duration:
		*into = r.duration(where, r.text(where, value))
	case func(string, json.RawMessage):
		into(where, value)
	default:
		r.warn("%s is not known here and has no effect", where)
	}
}

// storeList adds to a list. In its place there may be one text, true for all, or false for nothing.
func (r *serverReader) storeList(where string, value json.RawMessage, into *[]string) {
	switch string(value) {
	case "true":
		*into = append(*into, "*")
	case "false":
	default:
		*into = append(*into, r.list(where, value)...)
	}
	if into == &r.server.AllowedTools && len(*into) == 0 {
		r.warn("%s is empty and has no effect: all tools are allowed", where)
	}
}

// storeBool sets what a field says. A field whose name ends with enabled says the opposite of what
// it is stored as. Of two fields that do not agree, the one that disables is stronger.
func (r *serverReader) storeBool(where string, value json.RawMessage, into *bool) {
	says, err := strconv.ParseBool(r.text(where, value))
	if err != nil {
		r.problem("%s is neither true nor false", where)
		return
	}
	if strings.HasSuffix(plainName(where), "enabled") {
		says = !says
	}
	*into = *into || says
}

// plainName is a name in lower case, without dashes and underscores: hosts differ in these.
func plainName(name string) string {
	return strings.NewReplacer("-", "", "_", "").Replace(strings.ToLower(name))
}

// finishServer puts together what the fields say.
func (r *serverReader) finishServer() {
	s := &r.server
	if len(r.command) > 0 {
		s.Command.Path = r.command[0]
		s.Command.Args = append(r.command[1:], r.args...)
		r.secrets.AddArguments(s.Command.Args)
	}
	if r.envFile != "" {
		r.readEnvFile()
	}
	for _, name := range slices.Sorted(maps.Keys(r.env)) {
		s.Command.Env = append(s.Command.Env, name+"="+r.env[name])
	}
	r.checkTransport()
	isRemote := s.URL != ""
	if isRemote && len(s.Command.Env) > 0 {
		r.warn("env has no effect on a server with a url: headers go with its requests")
	}
	if r.login != nil && (!isRemote || s.Header.Get("Authorization") != "") {
		r.warn("oauth has no effect: it goes with a url, and without a header Authorization")
	}
	r.checkTLS()
}

// checkTransport checks that the server has a command or a URL, and a type that goes with it.
func (r *serverReader) checkTransport() {
	s := &r.server
	kind := plainName(r.kind)
	s.SSE = kind == "sse"
	if kind == "builtin" && r.command == nil && s.URL == "" {
		// Nothing of such a server can be used, so nothing else is said of it.
		r.warnings, r.problems = nil, []string{withoutBuiltin(r.label, r.directories)}
		return
	}
	if len(r.problems) > 0 {
		// One of them may be the reason why something is missing.
		return
	}
	isLocal, isRemote := s.Command.Path != "", s.URL != ""
	// A builtin server that got a command is what the command says.
	kinds := []string{"", "stdio", "local", "builtin"}
	if isRemote {
		kinds = []string{"", "http", "sse", "remote", "streamable", "streamablehttp"}
	}
	if isLocal == isRemote || !slices.Contains(kinds, kind) {
		r.problem("it needs either a command (type stdio or local) or a url " +
			"(type http, streamable-http, remote or sse)")
		return
	}
	if isRemote {
		_, err := ParseServerURL(s.URL, r.secrets)
		if err != nil {
			r.problem("%v", err)
		}
	}
}

// withoutBuiltin says what takes the place of a server that is part of mcphost, where a package
// that many use does. These were run. directories are those that the server has in the file.
func withoutBuiltin(name string, directories []string) string {
	if len(directories) == 0 {
		directories = []string{"DIR"}
	}
	folders := ""
	for _, directory := range directories {
		folders += ", " + string(appendString(nil, directory))
	}
	const fetch = `"command": "uvx", "args": ["mcp-server-fetch"]`
	instead := map[string]string{
		"fs": `"command": "npx", "args": ["-y", "@modelcontextprotocol/server-filesystem"` +
			folders + "]",
		"bash":  `"command": "npx", "args": ["-y", "mcp-server-commands"]`,
		"http":  fetch,
		"fetch": fetch,
	}[name]
	const none = "there are no builtin servers here"
	switch {
	case name == "todo":
		return none + "; take it out, as the conversation itself remembers"
	case instead == "":
		return none
	}
	return none + "; in its place: " + instead
}
