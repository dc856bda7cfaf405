// functions.go - MCP tools and their results, in the form that a model's API takes.
// Needs: Go 1.25, json, rpc, mcp, mistral.
// SPDX-License-Identifier: 0BSD

package main

import (
	"cmp"
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// MaxFunctions is how many functions the API takes with one request.
const MaxFunctions = 128

// maxPrefix is how many characters of a server's name are in the names of its functions: the rest is for the tool's
// name.
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
		name := FunctionName(server)
		for strings.Contains(name, "__") {
			name = strings.ReplaceAll(name, "__", "_")
		}
		return strings.TrimSuffix(name, "_")
	}, maxPrefix)
	for i := range prefixes {
		prefixes[i] += "__"
	}
	return prefixes
}

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
	taken := make(map[string]bool)
	for _, i := range order {
		text, name := texts[i], names[i]
		if name == "" || len(name) > limit || name != text && wanted[name] > 1 || taken[name] {
			// The end is what tells long names apart; the hash tells the rest.
			sum := sha256.Sum256([]byte(text))
			hash := "_" + hex.EncodeToString(sum[:3])
			name = name[max(0, len(name)+len(hash)-limit):] + hash
		}
		hashed := name
		for n := 2; taken[name]; n++ { // one text twice, or one hash
			end := "_" + strconv.Itoa(n)
			name = hashed[:min(len(hashed), limit-len(end))] + end
		}
		names[i], taken[name] = name, true
	}
	return names
}

var acceptedID = regexp.MustCompile(`^[a-zA-Z0-9]{9}$`)

// CallID returns id if Mistral takes it as the id of a call: nine letters and digits. Otherwise it returns such an id,
// the same one for the same id.
func CallID(id string) string {
	if acceptedID.MatchString(id) {
		return id
	}
	hash := sha256.Sum256([]byte(id))
	return base32.StdEncoding.EncodeToString(hash[:])[:9]
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
