// finder.go - a toolbox before a large one: it offers what is looked for.
// Needs: Go 1.25, json, mistral, agent, ranking.
// SPDX-License-Identifier: 0BSD

package main

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
)

// Finder is a Toolbox before one that may have more functions than a model can be offered. Up to
// MaxFunctions of them, and MaxBytes, it offers all. Above that the model is offered find_tools,
// which finds functions by words or lists those of one server, and beside it:
//
//   - what the model has called in this conversation, or tried to call;
//   - what find_tools has found in it;
//   - what is pinned (see Function), up to half of both bounds.
//
// It keeps nothing of a conversation: it reads the history anew before each turn. So a conversation
// that is continued another day, in another process, or after a part was taken out, has what its
// messages name. What is there stays in its place as more is found. If the bounds do not leave
// room for all of it, the model is offered what was named last.
//
// Only Tools is required. Functions is called by one goroutine at a time, as Agent.Chat does, and
// the fields are set before that. All other methods may be called from any goroutine.
type Finder struct {
	Tools    Toolbox // all that there is
	MaxBytes int     // of an offer, by OfferSize, beside find_tools; 0 means MaxOffer

	// Sources returns where the functions of Tools are from. Nil means from one source.
	Sources func() []ToolSource

	// History returns the conversation, such as Agent.History. Functions calls it.
	History func() []ChatMessage

	// Warn, if set, is called by Functions with what a user should know of an offer that has not
	// all functions, whenever that has changed.
	Warn func(text string)

	warned string
	last   atomic.Pointer[finderList] // of the last call of Functions that succeeded
}

// ToolSource describes an MCP server, or what else functions are from.
type ToolSource struct {
	Name         string
	Prefix       string // of the names of its functions, and of no others; "" if it is the only one
	Instructions string // for the model; may be empty
}

// Functions returns all functions, or if those are too many, the ones described at Finder. The
// error is that of Tools.
func (f *Finder) Functions(ctx context.Context) ([]Function, error) {
	all, err := f.Tools.Functions(ctx)
	if err != nil {
		return nil, err
	}
	c := f.newList(all)
	f.last.Store(c)
	warning := c.warning()
	if warning != f.warned && warning != "" && f.Warn != nil {
		f.Warn(warning)
	}
	f.warned = warning
	if c.own.Name == "" {
		return all, nil
	}
	var history []ChatMessage
	if f.History != nil {
		history = f.History()
	}
	return c.offer(c.mentions(history)), nil
}

// Call answers a call of find_tools, and hands any other on.
func (f *Finder) Call(ctx context.Context, call ToolCall) (ToolOutput, error) {
	if f.IsOwn(call.Name) {
		return f.last.Load().answer(call.Arguments), nil
	}
	return f.Tools.Call(ctx, call)
}

// IsOwn reports whether a function is find_tools, which reads the list of functions and reaches no
// server.
func (f *Finder) IsOwn(function string) bool {
	c := f.last.Load()
	return c != nil && c.own.Name != "" && c.own.Name == function
}

// Missing is Agent.Missing: it returns why a function that exists is not offered, and that it is in
// the next turn, as the call of it is in the history. It is nil if that is not the reason.
func (f *Finder) Missing(function string) error {
	c := f.last.Load()
	if c == nil || c.own.Name == "" {
		return nil
	}
	i, exists := c.byName[function]
	switch {
	case !exists:
		return nil
	case c.isTooLarge(i):
		return fmt.Errorf("not run: the tool %s has more bytes than you can be offered; "+
			"go on without it", function)
	}
	return fmt.Errorf("not run: the tool %s was not offered to you, so you could not know what it "+
		"takes; it is offered from now on: call it again", function)
}

// Instructions returns the part of a system prompt that names each source, with the number of its
// functions and its instructions. It is "" as long as all functions are offered.
func (f *Finder) Instructions() string {
	c := f.last.Load()
	if c == nil || c.own.Name == "" {
		return ""
	}
	parts := []string{fmt.Sprintf("There are %d tools, too many to offer you at once. You are "+
		"offered those that you used, and those that you find: call %s before you say that you "+
		"have no tool for something.", len(c.functions), c.own.Name)}
	for _, s := range c.sources {
		if s.count == 0 {
			continue
		}
		part := fmt.Sprintf("The server %s has %s", s.Name, countOfTools(s.count))
		if s.Prefix != "" {
			part += ", which begin with " + s.Prefix
		}
		if text := strings.TrimSpace(s.Instructions); text != "" {
			part += ". It says of them:\n" + text
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, "\n\n")
}

// finderList is all functions, as they were listed once. It does not change.
type finderList struct {
	functions []Function
	byName    map[string]int
	sources   []countedSource
	sourceOf  []int    // of each function
	own       Function // find_tools, which has no name if all functions are offered
	maxBytes  int
}

type countedSource struct {
	ToolSource
	count int // of functions
}

// newList describes functions and where they are from.
func (f *Finder) newList(functions []Function) *finderList {
	c := &finderList{functions: functions, maxBytes: cmp.Or(f.MaxBytes, MaxOffer)}
	if len(functions) <= MaxFunctions && OfferSize(functions...) <= c.maxBytes {
		return c
	}
	c.byName = make(map[string]int, len(functions))
	for i, function := range functions {
		c.byName[function.Name] = i
	}
	// A function of that name keeps it.
	name := "find_tools"
	for n := 2; ; n++ {
		if _, isTaken := c.byName[name]; !isTaken {
			break
		}
		name = fmt.Sprintf("find_tools_%d", n)
	}
	c.own = findTools(name)
	if f.Sources != nil {
		for _, s := range f.Sources() {
			c.sources = append(c.sources, countedSource{ToolSource: s})
		}
	}
	c.countSources()
	return c
}

// countSources finds the source of each function. What is from none of them is from one more.
func (c *finderList) countSources() {
	c.sourceOf = make([]int, len(c.functions))
	for i, function := range c.functions {
		at := slices.IndexFunc(c.sources, func(s countedSource) bool {
			return strings.HasPrefix(function.Name, s.Prefix)
		})
		if at < 0 {
			at = len(c.sources)
			other := ToolSource{Name: "(others)"}
			c.sources = append(c.sources, countedSource{ToolSource: other})
		}
		c.sourceOf[i] = at
		c.sources[at].count++
	}
}

// isTooLarge reports whether a function cannot be offered at all.
func (c *finderList) isTooLarge(i int) bool {
	return OfferSize(c.functions[i]) > c.maxBytes
}

// warning returns what a user should know of the offer, "" as long as all functions are in it.
func (c *finderList) warning() string {
	if c.own.Name == "" {
		return ""
	}
	text := fmt.Sprintf("there are %d tools, of %d bytes; a model is offered at most %d tools "+
		"and %d bytes at once: it searches for them with %s",
		len(c.functions), OfferSize(c.functions...), MaxFunctions, c.maxBytes, c.own.Name)
	var tooLarge []string
	for i, function := range c.functions {
		if c.isTooLarge(i) {
			tooLarge = append(tooLarge, function.Name)
		}
	}
	const maxNamed = 5
	if more := len(tooLarge) - maxNamed; more > 0 {
		tooLarge = append(tooLarge[:maxNamed], fmt.Sprintf("and %d more", more))
	}
	if tooLarge != nil {
		text += "; too large to be offered at all: " + strings.Join(tooLarge, ", ")
	}
	return text
}

// foundLine matches a line of a result of find_tools that promises a function.
var foundLine = regexp.MustCompile(`(?m)^[0-9]+\. ([a-zA-Z0-9_-]{1,64}):`)

// mentions returns the functions that the messages of a conversation name, in their order: those
// that were called, and those that find_tools found, of one result the best match last. A function
// can come several times.
func (c *finderList) mentions(history []ChatMessage) []int {
	var all []int
	add := func(name string) {
		i, exists := c.byName[name]
		if exists {
			all = append(all, i)
		}
	}
	for _, m := range history {
		for _, call := range m.ToolCalls {
			add(call.Name)
		}
		if m.Role == "tool" && m.Name == c.own.Name {
			found := foundLine.FindAllStringSubmatch(m.Content.Text(), -1)
			for _, line := range slices.Backward(found) {
				add(line[1])
			}
		}
	}
	return all
}

// offer returns find_tools, the pinned functions, and those that are mentioned, in the order in
// which they were mentioned first. Of the room, the last mention has its part first, so that what
// the model was promised last is there; then the pinned ones have up to half; and then the other
// mentions, the last ones first.
func (c *finderList) offer(mentions []int) []Function {
	room := offerRoom{
		chosen: make(map[int]bool),
		count:  MaxFunctions - 1,
		bytes:  c.maxBytes,
	}
	if len(mentions) > 0 {
		room.take(c, mentions[len(mentions)-1])
	}
	var pinned []int
	half := offerRoom{chosen: make(map[int]bool), count: room.count / 2, bytes: room.bytes / 2}
	for i, function := range c.functions {
		if function.Pinned && half.take(c, i) && room.take(c, i) {
			pinned = append(pinned, i)
		}
	}
	for _, i := range slices.Backward(mentions) {
		room.take(c, i)
	}
	offered := []Function{c.own}
	for _, i := range slices.Concat(pinned, mentions) {
		if room.chosen[i] {
			offered = append(offered, c.functions[i])
			room.chosen[i] = false
		}
	}
	return offered
}

// offerRoom is the room that is left in an offer, and what has been given some of it.
type offerRoom struct {
	chosen map[int]bool
	count  int
	bytes  int
}

// take gives a function room, and reports whether it has some.
func (r *offerRoom) take(c *finderList, i int) bool {
	if r.chosen[i] {
		return true
	}
	size := OfferSize(c.functions[i])
	if r.count < 1 || size > r.bytes {
		return false
	}
	r.count--
	r.bytes -= size
	r.chosen[i] = true
	return true
}
