// mcp_model.go - tools and their results, in a form that a model's API takes.
// Needs: Go 1.25, json.go, mcp_types.go, mistral.go.
// SPDX-License-Identifier: 0BSD

package main

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

const (
	maxFunctions   = 128      // that the API takes with one request
	maxPrefix      = 30       // characters of a server's name in those of its functions: a tool's name has the rest
	maxDescription = 8 * 1024 // bytes that a model reads of a tool's description, or a server's instructions
)

// functionNames returns a name for each tool that the API takes (see Function; MCP allows more). They are all different, and
// the same whatever the order of the tools. A tool whose name is taken as it is keeps it.
func functionNames(tools []Tool) []string { return serverFunctionNames("", tools) }

// serverFunctionNames is functionNames with the prefix of a server before each name. What a server can do to a name ends there:
// the names of its other tools count, those of other servers do not.
func serverFunctionNames(prefix string, tools []Tool) []string {
	names := make([]string, len(tools))
	for i, tool := range tools {
		names[i] = tool.Name
	}
	names = uniqueNames(names, functionName, maxFunctionName-len(prefix))
	for i := range names {
		names[i] = prefix + names[i]
	}
	return names
}

// functionPrefixes returns what the names of each server's functions begin with: nothing where there is only one server, else
// its name and two underscores. No prefix has two underscores elsewhere, so the first two in a function's name are where its
// server's ends, and no server can have a tool that looks like another's: of server a, b__c is a__b__c; of server a__b, c is a_b__c.
func functionPrefixes(servers []string) []string {
	if len(servers) == 1 {
		return []string{""}
	}
	prefixes := uniqueNames(servers, func(server string) string {
		name := functionName(server)
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

// uniqueNames returns the form of each text, changed where it has to be for all to be different, and none of them empty or over
// the limit. The outcome does not depend on the order of the texts. A text that is its own form comes before others that have it.
func uniqueNames(texts []string, form func(string) string, limit int) []string {
	names, order := make([]string, len(texts)), make([]int, len(texts))
	wanted := make(map[string]int)
	for i, text := range texts {
		names[i] = form(text)
		wanted[names[i]]++
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int {
		made := func(i int) int { // 0 for a name that can stay: those come first
			if name := names[i]; name == texts[i] && name != "" && len(name) <= limit {
				return 0
			}
			return 1
		}
		return cmp.Or(made(i)-made(j), strings.Compare(texts[i], texts[j]))
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

// cutForModel shortens a text that a model reads with every request, so that no server fills the context alone.
func cutForModel(text string) string {
	if len(text) <= maxDescription {
		return text
	}
	end := maxDescription
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return fmt.Sprintf("%s\n[… %d more bytes are left out]", text[:end], len(text)-end)
}

// ModelText is a tool's result as a model reads it: text as it is, bytes as a placeholder, links as URI and name. Structured
// content repeats what the text says (MCP 2025-11-25, tools, structured content), so it stands in only where there is none.
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
			parts[i] = strings.TrimSpace(fmt.Sprintf("[resource: %s %s", b.URI, strings.TrimSpace(b.Name+" "+b.Description))) + "]"
		case "resource":
			parts[i] = resourceText(b.Resource)
		default:
			parts[i] = fmt.Sprintf("[%s: %s]", b.Type, b.Raw)
		}
	}
	return strings.Join(parts, "\n")
}

func resourceText(r *ResourceContents) string {
	switch {
	case r == nil:
		return "[resource without contents]"
	case r.Blob != nil:
		return fmt.Sprintf("[resource: %s %s, %d bytes]", r.URI, r.MIMEType, len(r.Blob))
	}
	return fmt.Sprintf("[resource: %s]\n%s", r.URI, r.Text)
}
