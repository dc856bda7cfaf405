// transport_http_params.go - parameters of a tool call as headers of the request.
// Needs: Go 1.25, json, rpc.
// SPDX-License-Identifier: 0BSD

package main

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// ParamHeaders returns the headers that repeat parameters of a tool call, where the tool's schema
// has x-mcp-header (MCP 2026-07-28, transports, streamable HTTP, custom headers). A proxy can then
// choose by the header {"x-mcp-header": "Region"} where a request goes, without reading the
// message:
//
//	{"properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}
//
// makes of the arguments {"region": "eu"} the header Mcp-Param-Region: eu.
//
// Without arguments it only checks the schema, which is valid JSON. The error says what in the
// schema is not allowed; or it names an integer beyond 2^53-1, which cannot be sent so. ListTools
// leaves out a tool whose schema has such an error (Client.markTool).
func (t *StreamableHTTP) ParamHeaders(
	inputSchema, arguments json.RawMessage,
) (map[string]string, error) {
	var schema, values any
	_ = json.Unmarshal(inputSchema, &schema)
	if arguments != nil {
		err := decodeJSON("arguments", arguments, &values)
		if err != nil {
			return nil, err
		}
	}
	p := paramHeaders{headers: make(map[string]string), marked: make(map[string]bool)}
	err := p.visit(param{schema: schema, value: values, isReachable: true})
	if err != nil {
		return nil, err
	}
	return p.headers, nil
}

// paramHeaders makes headers of parameters.
type paramHeaders struct {
	headers map[string]string
	marked  map[string]bool // the names of all headers that the schema has, with a value or without
}

// param is a part of a schema, and the part of the arguments that it is about.
type param struct {
	name        string // of the property; empty for all arguments, and for what is no property
	schema      any
	value       any  // nil if the arguments have none, or the schema is about many
	isReachable bool // all that stand above it are properties
}

// visit makes the headers for what is marked in a schema. Only a parameter that is reachable
// through properties alone may be marked: of an element of a list, say, there can be many. So all
// other parts of the schema are visited, too, to find marks that are not allowed.
func (p paramHeaders) visit(at param) error {
	switch schema := at.schema.(type) {
	case []any:
		for _, part := range schema {
			err := p.visit(param{schema: part})
			if err != nil {
				return err
			}
		}
	case map[string]any:
		mark, isMarked := schema["x-mcp-header"]
		if isMarked {
			err := p.addHeader(mark, schema["type"], at)
			if err != nil {
				return err
			}
		}
		for _, keyword := range slices.Sorted(maps.Keys(schema)) {
			err := p.visitKeyword(keyword, schema[keyword], at)
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// visitKeyword visits what stands under a keyword of the schema at a parameter.
func (p paramHeaders) visitKeyword(keyword string, part any, at param) error {
	switch keyword {
	case "default", "const", "enum", "examples":
		// They hold values, in which x-mcp-header is a name like any other.
		return nil
	case "properties", "patternProperties", "dependentSchemas", "$defs", "definitions":
		// They hold schemas by name.
		named, _ := part.(map[string]any)
		object, _ := at.value.(map[string]any)
		for _, name := range slices.Sorted(maps.Keys(named)) {
			err := p.visit(param{
				name:        name,
				schema:      named[name],
				value:       object[name],
				isReachable: at.isReachable && keyword == "properties",
			})
			if err != nil {
				return err
			}
		}
		return nil
	}
	return p.visit(param{schema: part})
}

// addHeader makes the header for one parameter. mark is what x-mcp-header says, and kind what type
// says: one type or a list of them.
func (p paramHeaders) addHeader(mark, kind any, at param) error {
	name, _ := mark.(string)
	header := http.CanonicalHeaderKey("Mcp-Param-" + name)
	isToken := name != "" && strings.Trim(name, tokenCharacters) == ""
	switch {
	case !isToken:
		return fmt.Errorf("x-mcp-header %q is not a valid name of a header", fmt.Sprint(mark))
	case !at.isReachable || at.name == "":
		return fmt.Errorf("x-mcp-header %q marks what is not reached through properties alone",
			name)
	case !isPrimitive(kind):
		return fmt.Errorf("x-mcp-header %q marks what is not a string, integer or boolean", name)
	case p.marked[header]:
		return fmt.Errorf("x-mcp-header %q is used twice", name)
	}
	p.marked[header] = true
	// There is no header for null, nor for a value that the schema does not allow.
	switch value := at.value.(type) {
	case string:
		p.headers[header] = headerValue(value)
	case bool:
		p.headers[header] = strconv.FormatBool(value)
	case float64:
		if math.Abs(value) > 1<<53-1 {
			return fmt.Errorf("%s is beyond 2^53-1, "+
				"the limit for a parameter that is sent as a header", at.name)
		}
		if value == math.Trunc(value) {
			p.headers[header] = strconv.FormatInt(int64(value), 10)
		}
	}
	return nil
}

// isPrimitive reports whether a type, or a list of types, allows a string, an integer or a boolean,
// and nothing else but null.
func isPrimitive(kind any) bool {
	kinds, isList := kind.([]any)
	if !isList {
		kinds = []any{kind}
	}
	found := false
	for _, k := range kinds {
		switch k {
		case "string", "integer", "boolean":
			found = true
		case "null":
		default:
			return false
		}
	}
	return found
}

// tokenCharacters are those of a header's name (RFC 9110, 5.6.2).
const tokenCharacters = "!#$%&'*+-.^_`|~0123456789" +
	"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

// headerValue returns a text as the value of a header. It encodes one that a header cannot hold, or
// that would be taken for an encoded one (MCP 2026-07-28, transports, streamable HTTP, value
// encoding).
func headerValue(text string) string {
	const begin, end = "=?base64?", "?="
	looksEncoded := strings.HasPrefix(text, begin) && strings.HasSuffix(text, end)
	isTrimmed := strings.Trim(text, " ") == text
	isSpecial := func(r rune) bool { return r < ' ' || r > '~' }
	if isTrimmed && !looksEncoded && strings.IndexFunc(text, isSpecial) < 0 {
		return text
	}
	return begin + base64.StdEncoding.EncodeToString([]byte(text)) + end
}
