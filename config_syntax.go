// config_syntax.go - the JSON of a .mcp.json: its comments, and where it is wrong.
// SPDX-License-Identifier: 0BSD

package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// These match strings, too, so that what looks like a comment within one is left alone. Only what
// is to be replaced is in the group.
var (
	jsonComment   = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|(//[^\n]*|/\*(?s:.*?)\*/)`)
	trailingComma = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|(,)\s*(?:[}\]]|\z)`)
)

// withoutComments puts spaces in the place of comments and of commas after the last element, so
// that all else stays at its line and column.
func withoutComments(text []byte) []byte {
	text = bytes.Clone(text)
	for _, pattern := range []*regexp.Regexp{jsonComment, trailingComma} {
		for _, match := range pattern.FindAllSubmatchIndex(text, -1) {
			start, end := match[2], match[3]
			if start < 0 {
				// It is a string, without the group.
				continue
			}
			for i := start; i < end; i++ {
				if text[i] != '\n' {
					text[i] = ' '
				}
			}
		}
	}
	return text
}

// fragment matches the beginning of a member, which stands in an object that is not there. In YAML,
// too, a name and a text may stand in quotes, but without a comma behind them.
var fragment = regexp.MustCompile(
	`^\s*"(?:[^"\\]|\\.)*"\s*:\s*(?:[{\[]|"(?:[^"\\]|\\.)*"\s*(?:,|\z))`)

// configJSON returns the text without its comments. Where a README shows a member without the
// object that it stands in, as "mcpServers": {...}, configJSON adds that object.
func configJSON(text []byte) (json.RawMessage, error) {
	plain := withoutComments(text)
	err := json.Unmarshal(plain, new(json.RawMessage))
	if err == nil {
		return plain, nil
	}
	yaml := bytes.TrimSpace(yamlComment.ReplaceAll(text, nil))
	if emptyYAML.Match(yaml) {
		return json.RawMessage(`{"mcpServers":null}`), nil
	}
	if !fragment.Match(plain) {
		return nil, configSyntaxError(text, err)
	}
	// The text may end with a comment that goes to the end of its line.
	whole := withoutComments(slices.Concat([]byte("{"), text, []byte("\n}")))
	err = json.Unmarshal(whole, new(json.RawMessage))
	if err == nil {
		return whole, nil
	}
	return nil, configPositionError(text, err, len("{"))
}

// otherText matches YAML, and TOML, of which the group is the last table. JSON begins otherwise.
var otherText = regexp.MustCompile(
	`(?ms)\A(?:[^{].*)?^(?:(\s*\[+[\w."'-]+\]+\s*$)|["']?[\w-]+["']?:(?:\s|\z))`)

// These match the comments of YAML, and its beginning, and an object of servers that is empty.
var (
	yamlComment = regexp.MustCompile(`(?m)(?:^|\s)#.*$|\A---\s`)
	emptyYAML   = regexp.MustCompile(`\A["']?mcpServers["']?:(?:\s+(?:\{\s*\}|null|~))?\z`)
)

// errEmpty reports that a configuration says nothing.
var errEmpty = errors.New("it is empty")

// HasNoServers reports whether a configuration has no servers, and no mistake that may be the
// reason: its text is empty, has only comments, or has an object of servers that is empty or null.
func HasNoServers(text []byte) bool {
	lookup := func(string) (string, bool) { return "", false }
	noFile := func(string, int64) ([]byte, error) { return nil, fs.ErrNotExist }
	config, err := ParseConfig(text, lookup, noFile, new(Secrets))
	if err != nil {
		return errors.Is(err, errEmpty)
	}
	return len(config.Servers) == 0 && len(config.Disabled) == 0
}

// configSyntaxError adds the position to an error of encoding/json, unless the text as a whole is
// something else than JSON.
func configSyntaxError(text []byte, err error) error {
	plain := bytes.TrimSpace(withoutComments(text))
	other := otherText.FindSubmatch(plain)
	isUTF16 := bytes.HasPrefix(text, []byte("\xff\xfe")) ||
		bytes.HasPrefix(text, []byte("\xfe\xff"))
	switch {
	case len(plain) == 0 || len(bytes.TrimSpace(yamlComment.ReplaceAll(plain, nil))) == 0:
		return errEmpty
	case isUTF16:
		return errors.New("it is UTF-16, as PowerShell writes it: save it as UTF-8")
	case other != nil && other[1] != nil:
		return &ConfigFormatError{Format: "TOML"}
	case other != nil:
		return &ConfigFormatError{Format: "YAML"}
	case !bytes.ContainsAny(plain[:1], `{["`):
		return &ConfigFormatError{}
	}
	return configPositionError(text, err, 0)
}

// ConfigFormatError reports that a configuration is not JSON, but something else.
type ConfigFormatError struct {
	Format string // YAML, TOML, or "" for a text that has no known format
}

func (e *ConfigFormatError) Error() string {
	what := "it is not JSON"
	if e.Format != "" {
		what = "it is " + e.Format + ", and not JSON"
	}
	return what + ": write each server into an object, as in " +
		`{"mcpServers": {"NAME": {"command": "npx", "args": ["-y", "PACKAGE"], ` +
		`"env": {"KEY": "VALUE"}}}}`
}

// configPositionError adds the position to an error of encoding/json. Lines, and columns in
// characters, count from 1. The error is that of a text that has some bytes more before it.
func configPositionError(text []byte, err error, before int) error {
	// Decoding a json.RawMessage has no other errors. Their Offset counts the byte that is wrong,
	// too.
	syntax := new(json.SyntaxError)
	_ = errors.As(err, &syntax)
	at := min(max(0, int(syntax.Offset)-1-before), len(text))
	for at > 0 && !utf8.RuneStart(text[min(at, len(text)-1)]) {
		at--
	}
	line := bytes.Count(text[:at], []byte{'\n'})
	column := utf8.RuneCount(text[bytes.LastIndexByte(text[:at], '\n')+1 : at])
	reason := err.Error()
	found, size := utf8.DecodeRune(text[at:])
	if size > 1 {
		// Of a curly quote, say, encoding/json shows the first byte as if it were the character.
		firstByte, character := fmt.Sprintf("%q", rune(text[at])), fmt.Sprintf("%q", found)
		reason = strings.Replace(reason, firstByte, character, 1)
	}
	return fmt.Errorf("line %d, column %d: %s%s", line+1, column+1, reason,
		jsonAdvice(reason, found))
}

// jsonAdvice returns what to do about a mistake that is common in what people paste into a file. It
// knows the mistake by the reason that encoding/json gives, and by the character that is wrong.
func jsonAdvice(reason string, found rune) string {
	isStart := strings.Contains(reason, "looking for beginning of object key string") ||
		strings.Contains(reason, "looking for beginning of value")
	isNext := strings.Contains(reason, "after object key:value pair") ||
		strings.Contains(reason, "after array element")
	switch {
	case strings.ContainsRune("“”„‟«»‘’", found):
		return `; it is a curly quote: write "`
	case strings.Contains(reason, "unexpected end"):
		return "; a bracket, brace or quote is not closed"
	case strings.Contains(reason, "in string escape code"):
		return `; write \\ for a backslash`
	case found == '"' && isNext:
		return "; a comma is missing before it"
	case found == '"' && strings.HasSuffix(reason, "after object key"):
		return "; a colon is missing before it"
	case found == '#':
		return "; a comment begins with //"
	case isStart && found == '.':
		return "; write what ... stands for, or take it out"
	case isStart && !strings.ContainsRune(",:{}[]", found):
		return "; put names, strings and variables in double quotes, and write true, false and " +
			"null in lower case"
	}
	return ""
}

// serversAlone returns the object of servers, by name, where a README shows them without
// mcpServers: several of them, or one without even a name. It returns nil for another text.
func serversAlone(plain json.RawMessage) json.RawMessage {
	if isServer(plain) {
		name := append([]byte("{"), appendString(nil, nameOf(plain))...)
		return slices.Concat(name, []byte(":"), plain, []byte("}"))
	}
	count, others := 0, 0
	eachMember(plain, func(_ string, value json.RawMessage) {
		if isServer(value) {
			count++
		} else {
			others++
		}
	})
	if count == 0 || others > 0 {
		return nil
	}
	return plain
}

// isServer reports whether a value is an object that has a command or a URL.
func isServer(value json.RawMessage) bool {
	found := false
	eachMember(value, func(name string, _ json.RawMessage) {
		found = found || slices.Contains([]string{"command", "url", "serverUrl", "httpUrl"}, name)
	})
	return found
}

// nameOf returns a name for a server that stands without one: its command, or the host of its URL.
func nameOf(server json.RawMessage) string {
	var fields struct {
		Name    string
		Command any
		URL     string
	}
	// What is not a text stays empty.
	_ = json.Unmarshal(server, &fields)
	command, _ := fields.Command.(string)
	if command != "" {
		command = filepath.Base(command)
	}
	host := ""
	u, err := url.Parse(fields.URL)
	if err == nil {
		host = u.Hostname()
	}
	return cmp.Or(fields.Name, command, host, "server")
}
