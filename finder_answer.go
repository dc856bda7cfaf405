// finder_answer.go - the function find_tools, and what it answers.
// Needs: Go 1.25, json, mistral, agent, ranking.
// SPDX-License-Identifier: 0BSD

package main

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode"
)

// MaxMatches is how many functions one query finds.
const MaxMatches = 10

const (
	pageLength = 100 // functions in a page of a server's list
	maxAbout   = 160 // bytes of what a line of an answer says of a function
)

// findTools returns find_tools, under that name, as a model is offered it. It does not depend on
// what there is, so that a prompt that begins with it can be cached.
func findTools(name string) Function {
	return Function{
		Name: name,
		Description: "Finds tools that you are not offered yet. With a query it returns the " +
			"tools that match best, and you can call them from your next turn on. With a server " +
			"and no query it lists all tools of that server, in pages: look there if a query did " +
			"not find the right tool.",
		Parameters: json.RawMessage(`{"properties":{` +
			`"query":{"type":"string","description":"what the tool should do, in a few words"},` +
			`"server":{"type":"string","description":"the name of a server: only its tools"},` +
			`"page":{"type":"integer","minimum":1,"description":"of the list of a server (1)"}},` +
			`"type":"object"}`),
		ReadOnly: true,
	}
}

// answer returns the result of find_tools for its arguments. What is wrong with them is told to
// the model.
func (c *finderList) answer(arguments string) ToolOutput {
	var a struct {
		Query, Server string
		Page          json.Number // Models also write "2" and 2.0.
	}
	err := json.Unmarshal([]byte(arguments), &a)
	if err != nil {
		text := "query and server are texts, and page is a number"
		return ToolOutput{Text: text, IsError: true}
	}
	query := strings.TrimSpace(a.Query)
	at := -1
	if a.Server != "" || len(c.sources) == 1 {
		at = c.sourceNamed(a.Server)
		if at < 0 {
			text := fmt.Sprintf("there is no server %.100q; the servers are: %s",
				a.Server, c.counts())
			return ToolOutput{Text: text, IsError: true}
		}
	}
	switch {
	case query != "":
		return ToolOutput{Text: c.matchesOf(query, at)}
	case at < 0:
		text := "The servers are: " + c.counts() + ". Give a query, or the name of one."
		return ToolOutput{Text: text}
	}
	page, _ := a.Page.Float64()
	return ToolOutput{Text: c.page(at, page)}
}

// sourceNamed returns the source of a name, or of a prefix, which models take for it. It is -1 if
// there is none. The only source needs no name.
func (c *finderList) sourceNamed(name string) int {
	if name == "" && len(c.sources) == 1 {
		return 0
	}
	at := slices.IndexFunc(c.sources, func(s countedSource) bool { return s.Name == name })
	if at >= 0 || name == "" {
		return at
	}
	return slices.IndexFunc(c.sources, func(s countedSource) bool {
		return strings.EqualFold(s.Name, name) || strings.TrimSuffix(s.Prefix, "__") == name ||
			s.Prefix == name
	})
}

// matchesOf returns the best matches of a query, of one source or of all if that is -1.
func (c *finderList) matchesOf(query string, source int) string {
	numbers := c.functionsOf(source)
	searched := make([]Function, len(numbers))
	for i, number := range numbers {
		searched[i] = c.functions[number]
	}
	ranked := RankFunctions(searched, query)
	if len(ranked) == 0 {
		return "No tool matches. Other words may find one. " + c.howToLook()
	}
	lines := []string{"The tools that match best. Those with a number are offered to you from " +
		"your next turn on:"}
	for i, r := range ranked[:min(len(ranked), MaxMatches)] {
		number := numbers[r]
		function := &c.functions[number]
		if c.isTooLarge(number) {
			lines = append(lines, "- "+functionLine(function)+" (too large to be offered)")
		} else {
			lines = append(lines, fmt.Sprintf("%d. %s", i+1, functionLine(function)))
		}
	}
	lines = append(lines, "If none of them fits: "+c.howToLook())
	return strings.Join(lines, "\n")
}

// functionsOf returns the functions of a source, or all if that is -1.
func (c *finderList) functionsOf(source int) []int {
	var numbers []int
	for i := range c.functions {
		if source < 0 || c.sourceOf[i] == source {
			numbers = append(numbers, i)
		}
	}
	return numbers
}

// howToLook says how the tools of a server are listed. The tool that somebody means may have none
// of their words. Then its server may have no match either, so all servers are named.
func (c *finderList) howToLook() string {
	if len(c.sources) == 1 {
		return fmt.Sprintf("%s without a query lists all %s, in pages.",
			c.own.Name, countOfTools(len(c.functions)))
	}
	return fmt.Sprintf("%s with a server and no query lists all tools of that server: %s.",
		c.own.Name, c.counts())
}

// counts names all sources with the numbers of their functions. Those without any are left out.
func (c *finderList) counts() string {
	var counts []string
	for _, s := range c.sources {
		if s.count > 0 {
			counts = append(counts, fmt.Sprintf("%s (%s)", s.Name, countOfTools(s.count)))
		}
	}
	return strings.Join(counts, ", ")
}

func countOfTools(count int) string {
	if count == 1 {
		return "1 tool"
	}
	return fmt.Sprintf("%d tools", count)
}

// page lists functions of a source. A page that does not exist is the nearest that does. None of
// them is offered for that: a page may be more than a model takes.
func (c *finderList) page(source int, number float64) string {
	functions := c.functionsOf(source)
	pages := max(1, (len(functions)+pageLength-1)/pageLength)
	page := int(math.Min(math.Max(number, 1), float64(pages)))
	first := (page - 1) * pageLength
	s := c.sources[source]
	lines := []string{fmt.Sprintf("%s: %s, page %d of %d:",
		s.Name, countOfTools(s.count), page, pages)}
	for _, i := range functions[first:min(first+pageLength, len(functions))] {
		lines = append(lines, "- "+functionLine(&c.functions[i]))
	}
	if page < pages {
		lines = append(lines, fmt.Sprintf("The next page is %d.", page+1))
	}
	lines = append(lines, fmt.Sprintf("To be offered one of them, call %s with its name as the "+
		"query.", c.own.Name))
	return strings.Join(lines, "\n")
}

// functionLine returns a function's name and the beginning of what it says of itself. Its text is
// another's: on a line of its own it could pass for one of find_tools, and control characters or
// invisible ones could hide what a person is shown of it.
func functionLine(f *Function) string {
	text := f.Description
	if strings.TrimSpace(text) == "" {
		text = f.Title
	}
	var line strings.Builder
	wantsSpace := false
	for _, r := range text {
		switch {
		case unicode.IsSpace(r):
			wantsSpace = line.Len() > 0
			continue
		case !unicode.IsPrint(r):
			continue
		case line.Len() >= maxAbout:
			return f.Name + ": " + line.String() + "…"
		case wantsSpace:
			line.WriteByte(' ')
			wantsSpace = false
		}
		line.WriteRune(r)
	}
	return f.Name + ": " + line.String()
}
