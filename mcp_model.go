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
	"strings"
)

// maxFunctions is how many functions the API takes with one request.
const maxFunctions = 128

// functionNames returns a name for each tool that the API takes (see Function; MCP allows more). They are all different, and
// the same whatever the order of the tools. A tool whose name is taken as it is keeps it.
func functionNames(tools []Tool) []string {
	names, order := make([]string, len(tools)), make([]int, len(tools))
	wanted := make(map[string]int)
	for i, tool := range tools {
		names[i] = functionName(tool.Name)
		wanted[names[i]]++
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int {
		made := func(i int) int { // 0 for a name that can stay: those come first
			if name := names[i]; name == tools[i].Name && name != "" && len(name) <= maxFunctionName {
				return 0
			}
			return 1
		}
		return cmp.Or(made(i)-made(j), strings.Compare(tools[i].Name, tools[j].Name))
	})
	taken := make(map[string]bool)
	for _, i := range order {
		tool, name := tools[i], names[i]
		if name == "" || len(name) > maxFunctionName || name != tool.Name && wanted[name] > 1 || taken[name] {
			// The end is what tells long names apart; the hash tells the rest.
			sum := sha256.Sum256([]byte(tool.Name))
			hash := "_" + hex.EncodeToString(sum[:3])
			name = name[max(0, len(name)+len(hash)-maxFunctionName):] + hash
		}
		for n := 2; taken[name]; n++ { // a server that lists one name twice
			name = fmt.Sprintf("%.60s_%d", name, n)
		}
		names[i], taken[name] = name, true
	}
	return names
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
