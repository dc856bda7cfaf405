// functions.go - MCP tools and their results, in the form that a model's API takes.
// Needs: Go 1.25, json, rpc, mcp, mistral.
// SPDX-License-Identifier: 0BSD

package main

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// MaxFunctions is the number of functions that the API takes with one request.
const MaxFunctions = 128

// MaxFunctionName is the length of a function's name that the API takes.
const MaxFunctionName = 64

// FunctionName returns name with _ for each character that the API refuses in it. It can still be empty or too long.
func FunctionName(name string) string {
	return refusedInName.ReplaceAllString(name, "_")
}

var refusedInName = regexp.MustCompile(`[^a-zA-Z0-9_-]`)

// maxPrefix bounds a server's name in the names of its functions.
const maxPrefix = 30

// FunctionNames returns a function's name, which the API takes (see Function; MCP allows more), for each tool of one
// server, with the server's prefix before it. The names are all different, and do not depend on the order of the
// tools, nor on the tools of other servers. A tool whose name the API takes keeps it.
func FunctionNames(prefix string, tools []Tool) []string {
	names := make([]string, len(tools))
	for i, tool := range tools {
		names[i] = tool.Name
	}
	names = UniqueNames(names, FunctionName, MaxFunctionName-len(prefix))
	for i := range names {
		names[i] = prefix + names[i]
	}
	return names
}

// FunctionPrefixes returns what the names of each server's functions begin with: nothing where there is only one
// server, else its name and two underscores. No prefix has two underscores elsewhere, so the first two in a
// function's name are where its server's name ends, and no server can have a tool that looks like another's: the
// tool b__c of server a is a__b__c, and the tool c of server a__b is a_b__c.
func FunctionPrefixes(servers []string) []string {
	if len(servers) == 1 {
		return []string{""}
	}
	prefixes := UniqueNames(servers, func(server string) string {
		return strings.TrimSuffix(betweenWords.ReplaceAllString(server, "_"), "_")
	}, maxPrefix)
	for i := range prefixes {
		prefixes[i] += "__"
	}
	return prefixes
}

var betweenWords = regexp.MustCompile(`[^a-zA-Z0-9-]+`)

// UniqueNames returns the form of each text, changed where it has to be for all to be different, and none of them
// empty or longer than limit. The outcome does not depend on the order of the texts. A text that is its own form
// keeps it before others that have it.
func UniqueNames(texts []string, form func(string) string, limit int) []string {
	names, order := make([]string, len(texts)), make([]int, len(texts))
	wanted := make(map[string]int) // how many texts have that form
	for i, text := range texts {
		names[i] = form(text)
		wanted[names[i]]++
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int {
		changed := func(i int) int { // 0 for a name that can stay: those come first
			if name := names[i]; name == texts[i] && name != "" && len(name) <= limit {
				return 0
			}
			return 1
		}
		return cmp.Or(changed(i)-changed(j), strings.Compare(texts[i], texts[j]))
	})
	taken, repeats := make(map[string]bool), make(map[string]int) // repeats: by the name that gets a number
	for _, i := range order {
		text, name := texts[i], names[i]
		if name == "" || len(name) > limit || name != text && wanted[name] > 1 || taken[name] {
			// The end is what tells long names apart; the hash tells the rest.
			sum := sha256.Sum256([]byte(text))
			hash := "_" + hex.EncodeToString(sum[:3])
			name = name[max(0, len(name)+len(hash)-limit):] + hash
		}
		hashed := name
		for taken[name] { // one text twice, or one hash
			repeats[hashed]++
			end := "_" + strconv.Itoa(repeats[hashed]+1)
			name = hashed[:min(len(hashed), limit-len(end))] + end
		}
		names[i], taken[name] = name, true
	}
	return names
}

// ToolFunction returns a tool under the given name, as a model is offered it. The error says why it cannot be.
func ToolFunction(name string, t *Tool) (Function, error) {
	parameters, err := functionParameters(t.InputSchema)
	var hints struct{ ReadOnlyHint bool }
	_ = json.Unmarshal(t.Annotations, &hints) // invalid hints say nothing
	return Function{Name: name, Description: t.Description, Parameters: parameters, ReadOnly: hints.ReadOnlyHint}, err
}

// functionParameters returns a tool's inputSchema as the API takes it: an object's JSON Schema of draft 7, with type
// and properties, and without the members that name a dialect and a place. An empty list stands for an empty object,
// as PHP writes it. A keyword with a value that draft 7 does not allow is renamed, for example to x-exclusiveMinimum:
// the API would refuse the whole request, and the model can still read it. The error says why the schema is not one
// of an object.
func functionParameters(schema json.RawMessage) (json.RawMessage, error) {
	s, b, properties, kind := scanner{text: schema}, []byte{'{'}, false, ""
	switch text := string(bytes.TrimSpace(schema)); {
	case text == "", text == "null", text == "true", emptyList(s):
		s.text = []byte("{}")
	case text[0] != '{':
		return nil, fmt.Errorf("its inputSchema is not an object: %.100s", text)
	}
	s.object(func(key []byte) {
		switch name := string(key); {
		case name == "type":
			kind = string(s.value())
		case name == "$schema", name == "$id", name == "properties" && s.peek() != '{':
			s.value()
		default:
			b = appendKeyword(b, name, &s)
			properties = properties || name == "properties"
		}
	})
	switch {
	case !s.end():
		return nil, errors.New("its inputSchema is not valid JSON")
	case kind != "" && kind != "null" && !properties && !strings.Contains(kind, `"object"`):
		return nil, fmt.Errorf("its inputSchema has the type %.100s, and not object", kind)
	case !properties:
		b = append(appendKey(b, "properties"), "{}"...)
	}
	return append(appendKey(b, "type"), `"object"}`...), nil
}

// emptyList reports whether [] is next. It reads a copy of the scanner.
func emptyList(s scanner) bool {
	empty := true
	s.array(func() { s.value(); empty = false })
	return empty && s.ok()
}

// appendSchema reads a schema and appends it as draft 7 has it. What is not a schema allows everything.
func appendSchema(b []byte, s *scanner) []byte {
	switch s.peek() {
	case '{':
		b = append(b, '{')
		s.object(func(key []byte) { b = appendKeyword(b, string(key), s) })
		return append(b, '}')
	case 't', 'f':
		return append(b, s.value()...)
	}
	s.value()
	return append(b, "{}"...)
}

// appendKeyword reads the value of a schema's member and appends the member as draft 7 has it. null is no member.
func appendKeyword(b []byte, name string, s *scanner) []byte {
	first, holdsSchemas := draft7(name)
	fits := first == "" || strings.IndexByte(first, s.peek()) >= 0
	with := appendKey(b, name)
	switch {
	case holdsSchemas && emptyList(*s):
		if s.value(); first == "[" { // it must have one
			return b
		}
		return append(with, "{}"...)
	case holdsSchemas && fits && s.peek() == '[':
		with = append(with, '[')
		s.array(func() {
			if with[len(with)-1] != '[' {
				with = append(with, ',')
			}
			with = appendSchema(with, s)
		})
		return append(with, ']')
	case holdsSchemas && fits && first == "{": // by name
		with = append(with, '{')
		s.object(func(key []byte) { with = appendSchema(appendKey(with, string(key)), s) })
		return append(with, '}')
	case holdsSchemas && fits:
		return appendSchema(with, s)
	}
	raw := s.value()
	switch {
	case fits && (name != "type" || knownTypes(raw)):
		return append(with, raw...)
	case string(raw) == "null":
		return b
	}
	return append(appendKey(b, "x-"+name), raw...)
}

// draft7 returns the bytes with which a keyword's value can begin, "" for any, and whether the value holds schemas.
func draft7(keyword string) (first string, holdsSchemas bool) {
	switch keyword {
	case "additionalItems", "additionalProperties", "contains", "else", "if", "not", "propertyNames", "then":
		return "{tf", true
	case "items":
		return "{[tf", true
	case "allOf", "anyOf", "oneOf":
		return "[", true
	case "$defs", "definitions", "patternProperties", "properties":
		return "{", true
	case "exclusiveMaximum", "exclusiveMinimum", "maximum", "minimum", "multipleOf",
		"maxItems", "maxLength", "maxProperties", "minItems", "minLength", "minProperties":
		return "-0123456789", false
	case "$id", "$ref", "$schema", "description", "format", "pattern", "title":
		return `"`, false
	case "readOnly", "uniqueItems", "writeOnly":
		return "tf", false
	case "enum", "examples", "required":
		return "[", false
	case "type":
		return `"[`, false
	}
	return "", false
}

// knownTypes reports whether the value of type, a string or a list of strings, names types that draft 7 has.
func knownTypes(raw []byte) bool {
	if bytes.HasPrefix(raw, []byte{'"'}) {
		raw = slices.Concat([]byte{'['}, raw, []byte{']'})
	}
	var types []string
	err := json.Unmarshal(raw, &types)
	known := []string{"array", "boolean", "integer", "null", "number", "object", "string"}
	unknown := func(t string) bool { return !slices.Contains(known, t) }
	return err == nil && len(types) > 0 && !slices.ContainsFunc(types, unknown)
}

// ModelText returns a tool's result as a model reads it: text as it is, bytes as a placeholder, links as URI and
// name. Structured content repeats what the text says (MCP 2025-11-25, tools, structured content), so it stands in
// only where there is no other content.
func ModelText(r *ToolResult) string {
	if len(r.Content) == 0 {
		return string(r.StructuredContent)
	}
	parts := make([]string, len(r.Content))
	for i, b := range r.Content {
		switch b.Type {
		case "text":
			parts[i] = b.Text
		case "image", "audio":
			parts[i] = fmt.Sprintf("[%s: %s, %d bytes]", b.Type, b.MIMEType, len(b.Data))
		case "resource_link":
			name := strings.TrimSpace(b.Name + " " + b.Description)
			parts[i] = strings.TrimSpace(fmt.Sprintf("[resource: %s %s", b.URI, name)) + "]"
		case "resource":
			parts[i] = ResourceText(b.Resource)
		default:
			parts[i] = fmt.Sprintf("[%s: %s]", b.Type, b.Raw)
		}
	}
	return strings.Join(parts, "\n")
}

// ResourceText returns a resource as a model reads it: its URI and its text, or a placeholder for its bytes.
func ResourceText(r *ResourceContents) string {
	switch {
	case r == nil:
		return "[resource without contents]"
	case r.Blob != nil:
		return fmt.Sprintf("[resource: %s %s, %d bytes]", r.URI, r.MIMEType, len(r.Blob))
	}
	return fmt.Sprintf("[resource: %s]\n%s", r.URI, r.Text)
}

// The images that the API takes, as Mistral documents it: of these types, so many in a request, of so many bytes.
const (
	MaxImages = 8
	MaxImage  = 10_000_000
)

// ModelContent returns a tool's result for a model that may see: its ModelText, in which each image has a number or
// says why it is left out, and the images after those that are given, as data URLs. A blob may be an image, too. What
// counts is what the bytes are, not what the server calls them.
func ModelContent(r *ToolResult, images []string) (string, []string) {
	if len(r.Content) == 0 {
		return ModelText(r), images
	}
	parts := make([]string, len(r.Content))
	for i, b := range r.Content {
		parts[i] = ModelText(&ToolResult{Content: r.Content[i : i+1]})
		data, isImage := b.Data, b.Type == "image"
		if b.Type == "resource" && b.Resource != nil && b.Resource.Blob != nil {
			data = b.Resource.Blob
			isImage = strings.HasPrefix(b.Resource.MIMEType, "image/") || imageType(data) != ""
		}
		if !isImage {
			continue
		}
		outcome, kind := "left out: it is not a PNG, JPEG, WEBP or GIF", imageType(data)
		if len(data) > MaxImage {
			outcome = "left out: it is larger than 10 MB"
		} else if kind != "" {
			images = append(images, "data:"+kind+";base64,"+base64.StdEncoding.EncodeToString(data))
			outcome = fmt.Sprintf("image %d", len(images))
		}
		parts[i] = strings.TrimSuffix(parts[i], "]") + ", " + outcome + "]"
	}
	return strings.Join(parts, "\n"), images
}

// ModelOutput returns a tool's result as the outcome of a call: its ModelContent for the model, and
// the result itself for the program.
func ModelOutput(r *ToolResult) ToolOutput {
	text, images := ModelContent(r, nil)
	return ToolOutput{Text: text, Images: images, IsError: r.IsError, Result: r}
}

// imageType returns the type of an image that the API takes, else "".
func imageType(data []byte) string {
	switch kind := http.DetectContentType(data); kind {
	case "image/png", "image/jpeg", "image/webp", "image/gif":
		return kind
	}
	return ""
}

// ShowImages returns messages as the API takes them, with the last of their images, at most so many, as chunks. Where
// one is left out, the text says why. The content of a tool message is a string, and the user's message directly after
// it was refused by servers before mid-2026, so the images of tools stand in a message of the user behind one of the
// assistant, each under the place of its result.
func ShowImages(messages []ChatMessage, most int, why string) (shown []ChatMessage) {
	count := 0
	for _, m := range messages {
		count += len(m.Images)
	}
	if count == 0 {
		return messages
	}
	chunk := func(kind string, value any) any { return map[string]any{"type": kind, kind: value} }
	var ofTools []any // chunks
	left, result := count-most, 0
	for i, m := range messages {
		if result++; m.Role != "tool" {
			result = 0
		}
		if len(m.Images) > 0 {
			text, chunks := m.Content.Text(), []any(nil)
			for at, url := range m.Images {
				label := fmt.Sprintf("Image %d", at+1)
				if m.Role == "tool" {
					label += fmt.Sprintf(" of result %d, %s", result, m.Name)
				}
				if left--; left >= 0 {
					text += fmt.Sprintf("\n(Image %d is left out: %s.)", at+1, why)
				} else {
					chunks = append(chunks, chunk("text", label+":"), chunk("image_url", map[string]string{"url": url}))
				}
			}
			switch m.Images = nil; {
			case m.Role == "tool":
				m.Content, ofTools = TextContent(text), append(ofTools, chunks...)
			case len(chunks) > 0:
				m.Content, _ = PlainJSON(append([]any{chunk("text", text)}, chunks...)) // strings always encode
			default:
				m.Content = TextContent(text)
			}
		}
		shown = append(shown, m)
		if len(ofTools) > 0 && (i+1 == len(messages) || messages[i+1].Role != "tool") {
			content, _ := PlainJSON(ofTools)
			shown = append(shown, ChatMessage{Role: "assistant", Content: TextContent("The images follow.")},
				ChatMessage{Role: "user", Content: content})
			ofTools = nil
		}
	}
	return shown
}
