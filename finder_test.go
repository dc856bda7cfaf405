package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

// finderBox is a toolbox that notes its calls.
type finderBox struct {
	functions []Function
	called    []string
	err       error
}

func (b *finderBox) Functions(context.Context) ([]Function, error) { return b.functions, b.err }

func (b *finderBox) Call(_ context.Context, call ToolCall) (ToolOutput, error) {
	b.called = append(b.called, call.Name)
	return ToolOutput{Text: "called " + call.Name}, nil
}

// finderFunctions returns so many functions of one server, tool0, tool1, ….
func finderFunctions(prefix string, count int) []Function {
	all := make([]Function, count)
	for i := range all {
		all[i] = Function{Name: fmt.Sprintf("%stool%d", prefix, i), Description: fmt.Sprintf("Does errand %d.", i),
			Parameters: json.RawMessage(`{"properties":{},"type":"object"}`)}
	}
	return all
}

// finderNotes is a server with tools that are easily told apart.
func finderNotes() []Function {
	return []Function{
		{Name: "notes__API-create-a-comment", Description: "Notion | Create comment"},
		{Name: "notes__readPage", Title: "Read a page", Description: "Returns what stands there."},
		{Name: "notes__move", Description: "Puts something elsewhere.", Parameters: json.RawMessage(
			`{"properties":{"shelf":{"type":"string","description":"where the parcel goes",` +
				`"enum":["attic"]},"list":{"items":{"properties":{"label":{"default":"cellar"}}}}},"type":"object"}`)},
	}
}

var finderSources = []ToolSource{
	{"big", "big__", "Be kind.\n"}, {"notes", "notes__", ""}, {"dead", "dead__", "Nobody."},
}

// newFinderTest returns a finder before 311 functions, 3 of them notes, and the history that it reads.
func newFinderTest() (*Finder, *finderBox, *[]ChatMessage) {
	history := new([]ChatMessage)
	box := &finderBox{functions: append(finderFunctions("big__", 308), finderNotes()...)}
	return &Finder{
		Tools:   box,
		Sources: func() []ToolSource { return finderSources },
		History: func() []ChatMessage { return *history },
	}, box, history
}

// offered returns the names that a finder offers.
func offered(t testing.TB, f *Finder) []string {
	functions, err := f.Functions(t.Context())
	assert.NilError(t, err)
	names := []string{}
	for _, function := range functions {
		names = append(names, function.Name)
	}
	return names
}

// find calls find_tools, and puts the call and its result into the history.
func find(t testing.TB, f *Finder, history *[]ChatMessage, arguments string) string {
	name := f.last.Load().own.Name
	output, err := f.Call(t.Context(), ToolCall{Name: name, Arguments: arguments})
	assert.NilError(t, err)
	if history != nil {
		*history = append(*history, calling(name), ChatMessage{Role: "tool", Name: name, Content: TextContent(output.Text)})
	}
	return output.Text
}

func calling(names ...string) ChatMessage {
	m := ChatMessage{Role: "assistant"}
	for _, name := range names {
		m.ToolCalls = append(m.ToolCalls, ToolCall{Name: name})
	}
	return m
}

// TestFinderBelowItsBounds: nothing is another than without a finder.
func TestFinderBelowItsBounds(t *testing.T) {
	box := &finderBox{functions: finderFunctions("", MaxFunctions)}
	f := &Finder{Tools: box, MaxBytes: OfferSize(box.functions...), Warn: func(text string) { t.Error(text) }}
	functions, err := f.Functions(t.Context())
	assert.NilError(t, err)
	assert.DeepEqual(t, functions, box.functions)
	assert.Equal(t, f.Instructions(), "")
	assert.NilError(t, f.Missing("tool1"))
	assert.Check(t, !f.IsOwn("find_tools"))
	output, err := f.Call(t.Context(), ToolCall{Name: "find_tools"})
	assert.NilError(t, err)
	assert.Equal(t, output.Text, "called find_tools")

	box.err = fmt.Errorf("no list")
	_, err = f.Functions(t.Context())
	assert.ErrorIs(t, err, box.err)
}

// TestFinderAboveItsBounds: one function more than the API takes, or one byte more than the budget, and the model is
// offered find_tools. The user is told once.
func TestFinderAboveItsBounds(t *testing.T) {
	for _, test := range []struct{ count, bytes int }{{MaxFunctions + 1, 0}, {20, -1}} {
		box := &finderBox{functions: finderFunctions("", test.count)}
		var warnings []string
		f := &Finder{Tools: box, Warn: func(text string) { warnings = append(warnings, text) }}
		if test.bytes != 0 {
			f.MaxBytes = OfferSize(box.functions...) + test.bytes
		}
		for range 2 {
			assert.DeepEqual(t, offered(t, f), []string{"find_tools"})
		}
		assert.Equal(t, len(warnings), 1)
		assert.Check(t, strings.HasPrefix(warnings[0], fmt.Sprintf("there are %d tools, of ", test.count)), warnings[0])

		// It says so again when it is no longer the same.
		box.functions[3].Description = strings.Repeat("x", MaxOffer)
		offered(t, f)
		assert.Equal(t, len(warnings), 2)
		assert.Check(t, strings.HasSuffix(warnings[1], "; too large to be offered at all: tool3"), warnings[1])
	}
}

// TestFinderOffersWhatIsFound: from the turn after it was found, in the place where it was found, and by a session that
// goes on from the history alone.
func TestFinderOffersWhatIsFound(t *testing.T) {
	f, _, history := newFinderTest()
	assert.DeepEqual(t, offered(t, f), []string{"find_tools"})
	text := find(t, f, history, `{"query":"comment on a Notion page"}`)
	assert.Equal(t, text, "The tools that match best. Those with a number are offered to you from your next turn on:\n"+
		"1. notes__API-create-a-comment: Notion | Create comment\n"+
		"2. notes__readPage: Returns what stands there.\n"+
		"If none of them fits: find_tools with a server and no query lists all tools of that server: "+
		"big (308 tools), notes (3 tools).")
	both := []string{"find_tools", "notes__readPage", "notes__API-create-a-comment"}
	assert.DeepEqual(t, offered(t, f), both)
	// What is used or found again stays where it is.
	*history = append(*history, calling("notes__readPage"))
	find(t, f, history, `{"query":"errand 7"}`)
	all := offered(t, f)
	assert.DeepEqual(t, all[:3], both)
	assert.Check(t, slices.Contains(all, "big__tool7"))

	again, _, _ := newFinderTest()
	again.History = f.History
	assert.DeepEqual(t, offered(t, again), all)

	// A new conversation begins with nothing.
	*history = nil
	assert.DeepEqual(t, offered(t, f), []string{"find_tools"})
}

// TestFinderMissing: a call of a function that exists and is not offered runs nothing, the model is told, and the next
// turn has it.
func TestFinderMissing(t *testing.T) {
	f, box, _ := newFinderTest()
	a, server := newAgentTest(t, f, modelCalls(agentCall("big__tool200", 1), agentCall("no_such_tool", 2)),
		modelCalls(agentCall("big__tool200", 3)), modelText("Done."))
	a.Missing = f.Missing
	a.Instructions = f.Instructions
	f.History = func() []ChatMessage { return a.History }
	answer, err := a.Chat(t.Context(), "Run it.")
	assert.NilError(t, err)
	assert.Equal(t, answer, "Done.")
	assert.DeepEqual(t, box.called, []string{"big__tool200"})
	requests := server.Requests()
	assert.Equal(t, len(requests), 3)
	names := func(request *modelRequest) (names []string) {
		for _, tool := range request.Tools {
			names = append(names, tool.Name)
		}
		return names
	}
	assert.DeepEqual(t, names(requests[0]), []string{"find_tools"})
	assert.DeepEqual(t, names(requests[1]), []string{"find_tools", "big__tool200"})
	assert.Equal(t, a.History[2].Content.Text(), "Error: not run: the tool big__tool200 was not offered to "+
		"you, so you could not know what it takes; it is offered from now on: call it again")
	assert.Equal(t, a.History[3].Content.Text(), `Error: there is no tool "no_such_tool"; the tools are: find_tools`)
	assert.Check(t, is.Contains(requests[0].Messages[0].Content.Text(), "There are 311 tools"))
}

// TestFinderInstructions: the system prompt names each server, however many tools it has, in a line, with what it says.
func TestFinderInstructions(t *testing.T) {
	f, box, _ := newFinderTest()
	box.functions = append(box.functions, Function{Name: "own_tool"})
	offered(t, f)
	assert.Equal(t, f.Instructions(), "There are 312 tools, too many to offer you at once. You are offered those "+
		"that you used, and those that you find: call find_tools before you say that you have no tool for something.\n\n"+
		"The server big has 308 tools, which begin with big__. It says of them:\nBe kind.\n\n"+
		"The server notes has 3 tools, which begin with notes__\n\nThe server (others) has 1 tool")
	f.Sources = nil
	offered(t, f)
	assert.Check(t, is.Contains(f.Instructions(), "\n\nThe server (others) has 312 tools"))
}

// TestFinderPages: a server alone is listed in pages, of which none is too long, and which together have all.
func TestFinderPages(t *testing.T) {
	f, _, history := newFinderTest()
	offered(t, f)
	first := find(t, f, history, `{"server":"big"}`)
	assert.Check(t, strings.HasPrefix(first, "big: 308 tools, page 1 of 4:\n- big__tool0: Does errand 0.\n"), first)
	assert.Check(t, strings.HasSuffix(first, "- big__tool99: Does errand 99.\nThe next page is 2.\n"+
		"To be offered one of them, call find_tools with its name as the query."), first)
	assert.DeepEqual(t, offered(t, f), []string{"find_tools"}) // a list offers none
	last := find(t, f, nil, `{"server":"BIG","page":4}`)
	assert.Equal(t, strings.Count(last, "\n- "), 8)
	assert.Check(t, !strings.Contains(last, "next page"))
	for _, page := range []string{"99", "1e999", `"4"`, "4.0"} {
		assert.Equal(t, find(t, f, nil, `{"server":"big__","page":`+page+`}`), last, page)
	}
	for _, page := range []string{"0", "-3", "null"} {
		assert.Equal(t, find(t, f, nil, `{"server":"big","query":" ","page":`+page+`}`), first, page)
	}
	text := find(t, f, history, `{"query":"big__tool200","server":"big"}`)
	assert.Check(t, is.Contains(text, "\n1. big__tool200: "))
	assert.Check(t, slices.Contains(offered(t, f), "big__tool200"))
}

// TestFinderAnswers: what a model may send to find_tools, and what it is told.
func TestFinderAnswers(t *testing.T) {
	f, box, _ := newFinderTest()
	offered(t, f)
	const servers = "big (308 tools), notes (3 tools)"
	for arguments, want := range map[string]string{
		`{}`:                           "The servers are: " + servers + ". Give a query, or the name of one.",
		`{"query":null,"server":null}`: "The servers are: " + servers + ". Give a query, or the name of one.",
		`{"query":7}`:                  "query and server are texts, and page is a number",
		`{"page":"two"}`:               "query and server are texts, and page is a number",
		`{"server":"nobody"}`:          `there is no server "nobody"; the servers are: ` + servers,
		`{"query":"zebra"}`: "No tool matches. Other words may find one. find_tools with a server and no query lists all " +
			"tools of that server: " + servers + ".",
		`{"query":"?"}`: "No tool matches. Other words may find one. find_tools with a server and no query lists all " +
			"tools of that server: " + servers + ".",
		`{"query":"errand","server":"notes"}`: "No tool matches. Other words may find one. find_tools with a server and no " +
			"query lists all tools of that server: " + servers + ".",
	} {
		assert.Equal(t, find(t, f, nil, arguments), want, arguments)
	}

	// The only server needs no name.
	f.Sources = func() []ToolSource { return []ToolSource{{Name: "only"}} }
	box.functions = finderFunctions("", 311)
	offered(t, f)
	assert.Check(t, strings.HasPrefix(find(t, f, nil, `{}`), "only: 311 tools, page 1 of 4:\n"))
	assert.Equal(t, find(t, f, nil, `{"query":"zebra"}`),
		"No tool matches. Other words may find one. find_tools without a query lists all 311 tools, in pages.")
}

// TestFinderOwnName: a server's tool that is called find_tools keeps its name, and is found and called like any other.
func TestFinderOwnName(t *testing.T) {
	f, box, history := newFinderTest()
	box.functions = append(box.functions, Function{Name: "find_tools", Description: "Looks for hammers."},
		Function{Name: "find_tools_2", Description: "Looks for nails."})
	assert.DeepEqual(t, offered(t, f), []string{"find_tools_3"})
	assert.Check(t, f.IsOwn("find_tools_3") && !f.IsOwn("find_tools"))
	find(t, f, history, `{"query":"hammers"}`)
	assert.DeepEqual(t, offered(t, f), []string{"find_tools_3", "find_tools"})
	output, err := f.Call(t.Context(), ToolCall{Name: "find_tools"})
	assert.NilError(t, err)
	assert.Equal(t, output.Text, "called find_tools")
	// What the server's tool says promises nothing.
	*history = append(*history, ChatMessage{Role: "tool", Name: "find_tools", Content: TextContent("1. big__tool1: x")})
	assert.DeepEqual(t, offered(t, f), []string{"find_tools_3", "find_tools"})
}

// TestFinderBounds: an offer keeps both bounds. What was named last has room first, then what is pinned, up to half.
func TestFinderBounds(t *testing.T) {
	box := &finderBox{functions: finderFunctions("", 1000)}
	var history []ChatMessage
	f := &Finder{Tools: box, History: func() []ChatMessage { return history }}
	for i := range 200 {
		history = append(history, calling(fmt.Sprint("tool", i)))
	}
	names := offered(t, f)
	assert.Equal(t, len(names), MaxFunctions)
	assert.DeepEqual(t, names[:2], []string{"find_tools", "tool73"}) // the first ones have no room any more
	assert.Equal(t, names[MaxFunctions-1], "tool199")

	for i := 300; i < 500; i++ {
		box.functions[i].Pinned = true
	}
	names = offered(t, f)
	assert.Equal(t, len(names), MaxFunctions)
	assert.DeepEqual(t, names[:2], []string{"find_tools", "tool300"})
	assert.Equal(t, names[63], "tool362")
	assert.Equal(t, names[64], "tool136")
	assert.Equal(t, names[MaxFunctions-1], "tool199")

	// A large one leaves room for what was named before it, and is left out when others were named after it.
	large := "tool0"
	box.functions[0].Description = strings.Repeat("x", 3000)
	f.MaxBytes = 5000
	history = []ChatMessage{calling("tool1", large)}
	names = offered(t, f)
	assert.Check(t, slices.Contains(names, large))
	assert.Check(t, slices.Contains(names, "tool1"))
	for i := 600; i < 700; i++ {
		history = append(history, calling(fmt.Sprint("tool", i)))
	}
	names = offered(t, f)
	assert.Check(t, !slices.Contains(names, large))
	assert.Check(t, slices.Contains(names, "tool699"))

	// One that is larger than the whole budget is named, is never offered, and the model is told so.
	f.MaxBytes = 3000
	history = nil
	offered(t, f)
	text := find(t, f, &history, `{"query":"tool0"}`)
	assert.Check(t, is.Contains(text, "\n- tool0: xxx"))
	assert.Check(t, is.Contains(text, "… (too large to be offered)\n"))
	history = append(history, calling(large))
	assert.Check(t, !slices.Contains(offered(t, f), large))
	assert.ErrorContains(t, f.Missing(large), "has more bytes than you can be offered")
}

// TestFinderProperties: whatever was called and found, an offer keeps the bounds, has no name twice, has what was named
// last, is the same if it is made again, and changes nothing that was listed.
func TestFinderProperties(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		functions := finderFunctions("", 130+random.IntN(400))
		for i := range functions {
			functions[i].Pinned = random.IntN(10) == 0
			if random.IntN(20) == 0 {
				functions[i].Description = strings.Repeat("word ", random.IntN(2000))
			}
		}
		var history []ChatMessage
		for range random.IntN(300) {
			history = append(history, calling(fmt.Sprint("tool", random.IntN(600))))
		}
		box := &finderBox{functions: slices.Clone(functions)}
		f := &Finder{Tools: box, MaxBytes: 2000 + random.IntN(MaxOffer),
			History: func() []ChatMessage { return history }}
		offer, err := f.Functions(t.Context())
		assert.NilError(t, err)
		if OfferSize(functions...) > f.MaxBytes || len(functions) > MaxFunctions {
			assert.Check(t, OfferSize(offer[1:]...) <= f.MaxBytes)
			assert.Check(t, len(offer) <= MaxFunctions)
			assert.Equal(t, offer[0].Name, "find_tools")
		}
		names := offered(t, f)
		sorted := slices.Sorted(slices.Values(names))
		assert.Equal(t, len(slices.Compact(sorted)), len(names))
		assert.DeepEqual(t, offered(t, f), names)
		isSame := func(a, b Function) bool {
			return a.Name == b.Name && a.Description == b.Description && a.Pinned == b.Pinned
		}
		assert.Check(t, slices.EqualFunc(box.functions, functions, isSame))
		if len(history) > 0 {
			last := history[len(history)-1].ToolCalls[0].Name
			c := f.last.Load()
			i, exists := c.byName[last]
			assert.Check(t, !exists || c.isTooLarge(i) || slices.Contains(names, last), last)
		}
	}
}

// TestRankFunctions: names count more than titles, descriptions and parameters, and a function is found by the words of
// people as by its own.
func TestRankFunctions(t *testing.T) {
	filler := "It does one thing, does it well, and says so."
	functions := []Function{
		{Name: "a1", Description: filler, Parameters: json.RawMessage(`{"properties":{"heron":{}}}`)},
		{Name: "a2", Description: filler + " Heron."},
		{Name: "a3", Description: filler, Title: "Heron"},
		{Name: "get-heron", Description: filler},
		{Name: "a5", Description: filler},
	}
	assert.DeepEqual(t, RankFunctions(functions, "Where are the herons?"), []int{3, 0, 1, 2})
	for query, want := range map[string]string{
		"read a page":            "notes__readPage",
		"parcel":                 "notes__move",
		"which shelf":            "notes__move",
		"label":                  "notes__move",
		"create comment":         "notes__API-create-a-comment",
		"API-create-a-comment":   "notes__API-create-a-comment",
		"notes__move":            "notes__move",
		"move":                   "notes__move",
		"leave a remark":         "notes__API-create-a-comment",
		"attic":                  "", // a value is no name
		"cellar":                 "",
		"":                       "",
		strings.Repeat("x", 1e6): "",
	} {
		notes := finderNotes()
		got := ""
		if ranked := RankFunctions(notes, query); len(ranked) > 0 {
			got = notes[ranked[0]].Name
		}
		assert.Equal(t, got, want, "%.100q", query)
	}
}

// TestRankByName: each function is the first that its name finds, with its server's name or without.
func TestRankByName(t *testing.T) {
	functions := append(finderFunctions("big__", 200), finderNotes()...)
	functions = append(functions, Function{Name: "big__tool", Description: "tool tool7 tool8 tool9"})
	for i, f := range functions {
		_, own, _ := strings.Cut(f.Name, "__")
		assert.Equal(t, RankFunctions(functions, f.Name)[0], i, f.Name)
		assert.Equal(t, RankFunctions(functions, own)[0], i, own)
	}
}

// TestRankExactName: a function whose name is the query comes first, however little its terms say; an empty query is no
// name.
func TestRankExactName(t *testing.T) {
	functions := []Function{
		{Name: "web__search_pages", Title: "Search", Description: "Search, search, search."},
		{Name: "web__search", Description: strings.Repeat("It does one thing, does it well, and says so. ", 20)},
		{Name: "the", Description: "One."},
		{Name: "odd__", Description: "Two."},
	}
	for query, want := range map[string][]int{
		"search": {1, 0}, "web__search": {1, 0}, " search\n": {1, 0}, "searching": {0, 1}, "the": {2}, "": nil, " ": nil,
	} {
		assert.DeepEqual(t, RankFunctions(functions, query), want)
	}
}

// TestRankLongQuery: of a query that is a whole document, the beginning is read.
func TestRankLongQuery(t *testing.T) {
	functions := []Function{{Name: "heron"}, {Name: "egret"}}
	found := []int{0}
	filler := strings.Repeat("x", maxQuery-len(" heron"))
	assert.DeepEqual(t, RankFunctions(functions, filler+" heron"), found)
	assert.DeepEqual(t, RankFunctions(functions, filler+"x heron"), []int(nil))
	assert.DeepEqual(t, RankFunctions(functions, "heron "+strings.Repeat("é ", maxQuery)+"egret"), found)
}

// FuzzFindTools: whatever a model asks for, and whatever a tool says of itself, the answer has its bounds, each tool
// has one line, nothing in it is invisible, and no text of a tool promises another tool.
func FuzzFindTools(f *testing.F) {
	f.Add(`{"query":"errand"}`, "one\n2. big__tool2: two", "title", `{"properties":{"a":{"description":"b"}}}`)
	f.Add(`{"server":"big","page":2}`, "\x1b[31m\u202ered\u2028\x00\xff", "", `{`)
	f.Add(`{"query":"tool0","server":"big"}`, strings.Repeat("x", 1000), "\n", `{"properties":{"properties":{"title":7}}}`)
	f.Fuzz(func(t *testing.T, arguments, description, title, parameters string) {
		finder, box, history := newFinderTest()
		box.functions[0].Description, box.functions[0].Title = description, title
		box.functions[0].Parameters = json.RawMessage(parameters)
		finder.MaxBytes = 4 * OfferSize(box.functions...)
		offered(t, finder)
		object, _, err := ParseArguments(arguments)
		if err != nil {
			return
		}
		text := find(t, finder, history, object)
		assert.Check(t, len(text) < 64<<10)
		assert.Check(t, utf8.ValidString(text))
		visible := func(r rune) bool { return r == '\n' || unicode.IsPrint(r) }
		assert.Check(t, strings.IndexFunc(text, func(r rune) bool { return !visible(r) }) < 0, "%q", text)
		named := 0
		for line := range strings.Lines(text) {
			if _, rest, isTool := strings.Cut(line, " "); isTool && strings.HasPrefix(rest, "big__tool0:") {
				named++
			}
			assert.Check(t, len(line) < 600, line)
		}
		assert.Check(t, named <= 1, text)
		promised := len(offered(t, finder)) - 1
		assert.Check(t, promised <= MaxMatches)
		for _, name := range offered(t, finder)[1:] {
			assert.Check(t, strings.Count(text, ". "+name+":") > 0, name)
		}
	})
}

// largeFunctions returns functions as a server of so many has them: of about 1,000 bytes each.
func largeFunctions(count int) []Function {
	verbs := strings.Fields("create read update delete list find move copy archive merge")
	things := strings.Fields("page issue branch card photo invoice user report room track bill order")
	all := make([]Function, count)
	for i := range all {
		verb, thing := verbs[i%len(verbs)], things[i/len(verbs)%len(things)]
		var parameters []string
		for _, name := range things[:6] {
			parameters = append(parameters, fmt.Sprintf(
				`"%s_id":{"type":"string","description":"the id of the %[1]s that number %d is about"}`, name, i))
		}
		all[i] = Function{
			Name:        fmt.Sprintf("big__%s_%s_%d", verb, thing, i),
			Description: fmt.Sprintf("Use this to %s a %s. %s", verb, thing, strings.Repeat("It needs a login first. ", 15)),
			Parameters:  json.RawMessage(`{"properties":{` + strings.Join(parameters, ",") + `},"type":"object"}`),
		}
	}
	return all
}

// BenchmarkFinder measures a turn and a query, with 10,000 functions of 1,000 bytes.
func BenchmarkFinder(b *testing.B) {
	for _, count := range []int{311, 1000, 10000} {
		functions := largeFunctions(count)
		f := &Finder{Tools: &finderBox{functions: functions}}
		b.Run(fmt.Sprint("turn-", count), func(b *testing.B) {
			b.ReportAllocs()
			b.ReportMetric(float64(OfferSize(functions...)/count), "B/function")
			for b.Loop() {
				offered(b, f)
			}
		})
		b.Run(fmt.Sprint("query-", count), func(b *testing.B) {
			b.ReportAllocs()
			offered(b, f)
			for b.Loop() {
				text := find(b, f, nil, `{"query":"please file away the bill of that customer, it is paid"}`)
				assert.Check(b, cmp.Compare(strings.Count(text, "\n"), MaxMatches) >= 0)
			}
		})
	}
}

// TestFunctionLine: what a tool says of itself is one line, in which all is visible.
func TestFunctionLine(t *testing.T) {
	f := &Function{Name: "a", Description: " one\n2. b: \x1b[31mtwo\u202e\u2028\x00three\xff\t"}
	assert.Equal(t, functionLine(f), "a: one 2. b: [31mtwo three\uFFFD")
	assert.Equal(t, functionLine(&Function{Name: "a", Description: " \n", Title: "A title"}), "a: A title")
}
