// functions.go - MCP tools and their results, in the form that a model's API takes.
// Needs: Go 1.25, json, rpc, mcp, mistral.
// SPDX-License-Identifier: 0BSD

package main

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// MaxFunctionName is the length of a function's name that the API takes.
const MaxFunctionName = 64

// FunctionName returns name with _ for each character that the API refuses in it. It can still be
// empty or too long.
func FunctionName(name string) string {
	return refusedInName.ReplaceAllString(name, "_")
}

var refusedInName = regexp.MustCompile(`[^a-zA-Z0-9_-]`)

// maxPrefix bounds a server's name in the names of its functions.
const maxPrefix = 30

// FunctionNames returns a function's name, which the API takes (see Function; MCP allows more), for
// each tool of one server, with the server's prefix before it. The names are all different, and do
// not depend on the order of the tools, nor on the tools of other servers. A tool whose name the
// API takes keeps it.
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

// FunctionPrefixes returns what the names of each server's functions begin with: nothing where
// there is only one server, else its name and two underscores. No prefix has two underscores
// elsewhere, so the first two in a function's name are where its server's name ends, and no server
// can have a tool that looks like another's: the tool b__c of server a is a__b__c, and the tool c
// of server a__b is a_b__c.
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

// UniqueNames returns the form of each text, changed where it has to be for all to be different,
// and none of them empty or longer than limit. The outcome does not depend on the order of the
// texts. A text that is its own form keeps it before others that have it.
func UniqueNames(texts []string, form func(string) string, limit int) []string {
	names := make([]string, len(texts))
	// wanted counts for each form how many texts have it.
	wanted := make(map[string]int)
	for i, text := range texts {
		names[i] = form(text)
		wanted[names[i]]++
	}
	taken := make(map[string]bool)
	// repeats counts how often each name was taken already.
	repeats := make(map[string]int)
	for _, i := range namingOrder(texts, names, limit) {
		text, name := texts[i], names[i]
		isContested := name != text && wanted[name] > 1
		if name == "" || len(name) > limit || isContested || taken[name] {
			name = nameWithHash(name, text, limit)
		}
		// The name can still be taken if one text comes twice, or if two have one hash.
		base := name
		for taken[name] {
			repeats[base]++
			number := "_" + strconv.Itoa(repeats[base]+1)
			name = base[:min(len(base), limit-len(number))] + number
		}
		names[i] = name
		taken[name] = true
	}
	return names
}

// namingOrder returns the indices of the texts in the order in which they get their names: first
// those whose name can stay as the text is, and all by the alphabet, so that the order in which
// they were given makes no difference.
func namingOrder(texts, names []string, limit int) []int {
	canStay := func(i int) bool {
		return names[i] == texts[i] && names[i] != "" && len(names[i]) <= limit
	}
	order := make([]int, len(texts))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int {
		if canStay(i) != canStay(j) {
			if canStay(i) {
				return -1
			}
			return 1
		}
		return strings.Compare(texts[i], texts[j])
	})
	return order
}

// nameWithHash returns a name with a hash of its text. Of a name that is too long the beginning
// goes: the end is what tells long names apart.
func nameWithHash(name, text string, limit int) string {
	sum := sha256.Sum256([]byte(text))
	hash := "_" + hex.EncodeToString(sum[:3])
	tooLong := max(0, len(name)+len(hash)-limit)
	return name[tooLong:] + hash
}

// ToolFunction returns a tool under the given name, as a model is offered it. The error says why it
// cannot be. Annotations that are invalid say nothing.
func ToolFunction(name string, t *Tool) (Function, error) {
	if t.Name == "" {
		return Function{}, namelessTool(t)
	}
	parameters, err := functionParameters(t.InputSchema)
	if err != nil {
		return Function{}, err
	}
	var hints struct {
		Title        string
		ReadOnlyHint bool
	}
	_ = json.Unmarshal(t.Annotations, &hints)
	return Function{
		Name:        name,
		Description: t.Description,
		Parameters:  parameters,
		Title:       cmp.Or(t.Title, hints.Title),
		ReadOnly:    hints.ReadOnlyHint,
	}, nil
}

// namelessTool returns the error of a tool that nobody can call. Its description, if it has one,
// shows which tool of the server it is.
func namelessTool(t *Tool) error {
	if t.Description == "" {
		return errors.New("it has no name")
	}
	return fmt.Errorf("it has no name, but the description %.80q", t.Description)
}
