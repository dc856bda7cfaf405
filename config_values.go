// config_values.go - the values in a .mcp.json: texts with variables, environments, headers, times.
// SPDX-License-Identifier: 0BSD

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
)

// variableIn matches a variable in a text. opencode writes {env:NAME}.
var variableIn = regexp.MustCompile(`(?:\$\{|\{env:)[^}]*\}?`)

// text reads a string, or a number or a boolean as it is written, and replaces its variables. What
// they hold is not expanded in turn.
func (r *serverReader) text(where string, value json.RawMessage) string {
	switch value[0] {
	case '"':
		s := scanner{text: value}
		return variableIn.ReplaceAllStringFunc(s.string(), func(found string) string {
			return r.variable(where, found)
		})
	case '{', '[', 'n':
		r.problem("%s is not a text", where)
		return ""
	}
	return string(value)
}

// variable returns what a variable holds, or else its default. As in a shell, the default also
// stands for a variable that holds nothing. If a variable is not set and has no default, that is a
// problem, which becomes the Server.Err of its server.
func (r *serverReader) variable(where, text string) string {
	inner, isClosed := strings.CutSuffix(text[strings.Index(text, "{")+1:], "}")
	name, fallback, hasFallback := strings.Cut(inner, ":-")
	name = strings.TrimPrefix(name, "env:")
	name = strings.TrimPrefix(name, "//")
	value, isSet := r.lookup(name)
	for _, in := range r.inputs {
		if name == "input:"+in.ID {
			r.needs = append(r.needs, in)
		}
	}
	switch {
	case !isClosed || name == "" || strings.Contains(fallback, "${"):
		r.problem("%s: a variable is neither ${NAME} nor ${NAME:-default}", where)
	case isSet && (value != "" || !hasFallback):
		// What was asked for is secret or not as the user was asked, and the caller knows it.
		isInput := strings.HasPrefix(name, "input:")
		if !isInput {
			r.secrets.AddVariable(name, value)
		}
		return value
	case hasFallback:
		return fallback
	case strings.HasPrefix(name, "input:"):
		r.problem("%s: ${%s} is asked for on a terminal, if the inputs have it; "+
			"for runs without one, write ${VARIABLE}", where, name)
		return "<" + name + ">"
	default:
		r.problem("%s: variable %s is not set", where, name)
	}
	return ""
}

// list reads a list of texts, or a single one.
func (r *serverReader) list(where string, value json.RawMessage) []string {
	var texts []string
	s := scanner{text: value}
	s.array(func() { texts = append(texts, r.text(where, s.value())) })
	isList := s.end()
	if !isList {
		texts = []string{r.text(where, value)}
	}
	return texts
}

// duration reads 30s, or a number. Hosts do not agree on its unit: it is the second for Cline and
// Roo Code, which allow up to an hour, and the millisecond for Claude Code, Gemini CLI, Copilot and
// opencode. So a number of more than an hour of seconds is one of milliseconds.
func (r *serverReader) duration(where, text string) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil {
		d, err = time.ParseDuration(text + "s")
		if d > time.Hour {
			d /= 1000
		}
	}
	if err != nil || d < 0 {
		r.problem("%s is neither a duration such as 30s nor a number of seconds or milliseconds",
			where)
	}
	return d
}

// readOptions reads the folders that a builtin server of mcphost has. They are for a message that
// says what to write here, and so keep their variables.
func (r *serverReader) readOptions(where string, value json.RawMessage) {
	var options struct {
		Directories []string `json:"allowed_directories"`
	}
	// What has another form is of no use for the message.
	_ = json.Unmarshal(value, &options)
	r.directories = options.Directories
	r.warn("%s is not known here and has no effect", where)
}

// readLabel reads a name that a server has beside its own: with type builtin, it says which server
// of mcphost it is. Its variables do not matter, and nothing but a text is of use.
func (r *serverReader) readLabel(_ string, value json.RawMessage) {
	_ = json.Unmarshal(value, &r.label)
}

// readProtocol reads the revision of MCP that a server is offered. Other hosts may have another
// meaning for the name, so an unknown value is no mistake.
func (r *serverReader) readProtocol(where string, value json.RawMessage) {
	revision := ""
	if value[0] == '"' {
		revision = r.text(where, value)
	}
	if !slices.Contains(Revisions(), revision) {
		r.warn("%s has no effect: it must be one of %s", where, strings.Join(Revisions(), ", "))
		return
	}
	r.server.Protocol = revision
}

// readCommand reads a command. mcphost and opencode write it in a list with its arguments. Zed once
// wrote an object, in which the command is called path.
func (r *serverReader) readCommand(where string, value json.RawMessage) {
	isObject := eachMember(value, func(name string, value json.RawMessage) {
		r.readField(strings.Replace(name, "path", "command", 1), value)
	})
	if !isObject {
		r.command = r.list(where, value)
	}
}

// readEnv reads the variables of a server. VS Code writes null for one that is not set.
func (r *serverReader) readEnv(field string, value json.RawMessage) {
	isObject := eachMember(value, func(name string, value json.RawMessage) {
		if string(value) == "null" {
			return
		}
		r.env[name] = r.text(field+" "+name, value)
		r.secrets.AddVariable(name, r.env[name])
	})
	if !isObject {
		r.problem("%s is not an object of variables", field)
	}
}

// envLine matches a line NAME=VALUE, whose value is in double quotes, in single quotes or in none.
var envLine = regexp.MustCompile(`(?m)^[ \t]*(?:export[ \t]+)?([\w.-]+)[ \t]*=[ \t]*` +
	`(?:"((?:[^"\\]|\\.)*)"|'([^']*)'|([^#\n]*?))[ \t\r]*(?:#.*)?$`)

// maxEnvFiles bounds all envFile of a configuration together, in bytes: they are read before the
// user allows the servers of a folder.
const maxEnvFiles = 1 << 20

// readEnvFile reads the lines NAME=VALUE of a file, as VS Code does. Variables of env are stronger.
func (r *serverReader) readEnvFile() {
	text, err := r.readFile(r.envFile, maxEnvFiles-int64(len(r.config.EnvFiles)))
	switch {
	case errors.Is(err, ErrOtherMachine):
		r.problem("envFile: %v", ErrOtherMachine)
	case err != nil:
		// The path is not named: what a variable in it holds may be secret.
		r.problem("envFile is not a file that can be read")
	}
	r.config.EnvFiles = fmt.Appendf(r.config.EnvFiles, "%q %q\n", r.envFile, text)
	variables := make(map[string]string)
	escapes := strings.NewReplacer(`\n`, "\n", `\r`, "\r", `\"`, `"`)
	for _, m := range envLine.FindAllStringSubmatch(string(text), -1) {
		name, inDoubleQuotes, inSingleQuotes, bare := m[1], m[2], m[3], m[4]
		variables[name] = escapes.Replace(inDoubleQuotes) + inSingleQuotes + bare
		r.secrets.AddVariable(name, variables[name])
	}
	maps.Copy(variables, r.env)
	r.env = variables
}

// readHeaders reads an object, or mcphost's list of lines.
func (r *serverReader) readHeaders(field string, value json.RawMessage) {
	var lines []string
	isObject := eachMember(value, func(name string, value json.RawMessage) {
		lines = append(lines, name+": "+r.text("header "+name, value))
	})
	if !isObject {
		lines = r.list(field, value)
	}
	r.server.Header = make(http.Header)
	for _, line := range lines {
		err := AddHeader(r.server.Header, line, r.secrets)
		if err != nil {
			r.problem("%s: %v", field, err)
		}
	}
}

// AddHeader adds a header of the form Name: value, which may be secret. A value that stands in a
// file often ends with a newline, so the blanks around it are left out.
func AddHeader(to http.Header, line string, secrets *Secrets) error {
	name, value, hasColon := strings.Cut(line, ":")
	name, value = strings.TrimSpace(name), strings.TrimSpace(value)
	if !hasColon || name == "" || strings.ContainsAny(name, " \t") {
		return errors.New(`a header is not of the form "Name: value"`)
	}
	to.Add(name, value)
	secrets.AddHeader(name, value)
	return nil
}

// ParseServerURL reads the URL of a server. The error has no part of it: there may be a key in it.
func ParseServerURL(text string, secrets *Secrets) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || !isHTTP(u) || u.Host == "" {
		return nil, errors.New("its url is not of the form https://host/path or http://host/path")
	}
	secrets.AddURL(u)
	return u, nil
}

// isHTTP reports whether a URL is one of http or https.
func isHTTP(u *url.URL) bool { return u.Scheme == "http" || u.Scheme == "https" }
