package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

// hostNames are the function names of tools of these names.
func hostNames(names ...string) []string {
	tools := make([]Tool, len(names))
	for i, name := range names {
		tools[i].Name = name
	}
	return FunctionNames("", tools)
}

func TestFunctionNames(t *testing.T) {
	long := func(end string) string { return strings.Repeat("x", 128-len(end)) + end }
	for _, test := range []struct {
		what        string
		tools, want []string
	}{
		{"none", nil, []string{}},
		{"as they are", []string{"search_chunks", "get-sum", "X1"}, []string{"search_chunks", "get-sum", "X1"}},
		{"64 characters", []string{long("")[:64]}, []string{long("")[:64]}},
		{"dots and slashes", []string{"files.read", "git/log", "a b"}, []string{"files_read", "git_log", "a_b"}},
		{"other scripts", []string{"éa", "読む"}, []string{"_a", "__"}},
		{"128 characters", []string{long("_first"), long("_second")},
			[]string{strings.Repeat("x", 51) + "_first_58ca83", strings.Repeat("x", 50) + "_second_ebd00f"}},
		{"a name that can stay does", []string{"a.b", "a_b"}, []string{"a_b_2e7336", "a_b"}},
		{"of two that cannot, neither does", []string{"a.b", "a/b"}, []string{"a_b_2e7336", "a_b_c14cdd"}},
		{"a name that a hash would make", []string{"a.b", "a/b", "a_b_2e7336"},
			[]string{"a_b_2e7336_2", "a_b_c14cdd", "a_b_2e7336"}},
		{"one name often", []string{"a", "a", "a", "a"}, []string{"a", "a_ca9781", "a_ca9781_2", "a_ca9781_3"}},
		{"no name", []string{"", ""}, []string{"_e3b0c4", "_e3b0c4_2"}},
	} {
		t.Run(test.what, func(t *testing.T) { assert.DeepEqual(t, hostNames(test.tools...), test.want) })
	}
}

// Two names that come out alike even with their hashes, which are short, are still told apart, and the same in any
// order.
func TestFunctionNamesCollide(t *testing.T) {
	seen := make(map[string]string) // by function name
	for i := range 1 << 16 {
		tool := strings.NewReplacer("0", ".", "1", "/").Replace(fmt.Sprintf("%016b", i))
		name := hostNames(tool, "________________")[0]
		other := seen[name]
		if seen[name] = tool; other == "" {
			continue
		}
		one, two := hostNames(tool, other), hostNames(other, tool)
		assert.DeepEqual(t, one, []string{two[1], two[0]})
		assert.Assert(t, one[0] != one[1])
		return
	}
	t.Fatal("no two names have the same hash")
}

// The functions of several servers. Those of one do not depend on what the others have.
func TestFunctionPrefixes(t *testing.T) {
	long := strings.Repeat("x", 29)
	for _, test := range []struct {
		what          string
		servers, want []string
	}{
		{"none", nil, []string{}},
		{"one", []string{"files"}, []string{""}},
		{"one with any name", []string{"__"}, []string{""}},
		{"as they are", []string{"files", "git-hub_2"}, []string{"files__", "git-hub_2__"}},
		{"30 characters", []string{long + "y", "a"}, []string{long + "y__", "a__"}},
		{"31 characters", []string{long + "yz", "a"}, []string{strings.Repeat("x", 21) + "yz_9b2455__", "a__"}},
		{"dots and spaces", []string{"io.github.me/files", "my files"}, []string{"io_github_me_files__", "my_files__"}},
		{"a name that can stay does", []string{"my files", "my_files"}, []string{"my_files_3c02e6__", "my_files__"}},
		{"two underscores", []string{"a", "a__b", "a___b"}, []string{"a__", "a_b_63e5c1__", "a_b_ce178f__"}},
		{"underscores around", []string{"a_", "_a", "a"}, []string{"a_571fb0__", "_a__", "a__"}},
		{"nothing else", []string{"_", ""}, []string{"_d2e2ad__", "_e3b0c4__"}},
		{"one name twice", []string{"a", "a"}, []string{"a__", "a_ca9781__"}},
	} {
		t.Run(test.what, func(t *testing.T) { assert.DeepEqual(t, FunctionPrefixes(test.servers), test.want) })
	}
}

// A long name of a tool is cut to what its server's leaves, and keeps its end.
func TestFunctionNamesOfServer(t *testing.T) {
	prefix := strings.Repeat("p", maxPrefix) + "__"
	tool := strings.Repeat("t", 23) + "_to_the_end"
	names := FunctionNames(prefix, []Tool{{Name: "short"}, {Name: tool[2:]}, {Name: tool}})
	cut := prefix + strings.Repeat("t", 14) + "_to_the_end_748efc"
	assert.DeepEqual(t, names, []string{prefix + "short", prefix + tool[2:], cut})
}

// nameCase is servers and their tools, from a text: a line for each server, in which its tools follow its name, with
// spaces between. No server and no tool of one is there twice.
func nameCase(text string) (servers []string, tools map[string][]string) {
	tools = make(map[string][]string)
	for line := range strings.SplitSeq(text, "\n") {
		words := strings.Split(line, " ")
		if slices.Contains(servers, words[0]) {
			continue
		}
		servers = append(servers, words[0])
		for _, tool := range words[1:] {
			if !slices.Contains(tools[words[0]], tool) {
				tools[words[0]] = append(tools[words[0]], tool)
			}
		}
	}
	return servers, tools
}

// namesOf are the functions' names by server and tool.
func namesOf(servers []string, tools map[string][]string) map[[2]string]string {
	names := make(map[[2]string]string)
	for i, prefix := range FunctionPrefixes(servers) {
		list := make([]Tool, len(tools[servers[i]]))
		for j, name := range tools[servers[i]] {
			list[j].Name = name
		}
		for j, name := range FunctionNames(prefix, list) {
			names[[2]string{servers[i], list[j].Name}] = name
		}
	}
	return names
}

// checkNames: whatever servers and tools are called, their functions have names that the API takes, all different.
// Which a tool gets does not depend on the order of anything, nor on the tools of other servers; and what stands
// before the first two underscores is no other server's, unless there is only one.
func checkNames(t *testing.T, servers []string, tools map[string][]string, shuffle func([]string)) {
	t.Helper()
	names := namesOf(servers, tools)
	seen, owners := make(map[string]bool), make(map[string]string)
	for of, name := range names {
		server, tool := of[0], of[1]
		assert.Assert(t, regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`).MatchString(name), "%q for %q", name, of)
		assert.Assert(t, !seen[name], "%q twice for %q %q", name, servers, tools)
		seen[name] = true
		if len(servers) > 1 {
			prefix, _, ok := strings.Cut(name, "__")
			assert.Assert(t, ok, name)
			owner, ok := owners[prefix]
			assert.Assert(t, !ok || owner == server, "%q could be of %q or %q", name, server, owner)
			owners[prefix] = server
		}
		plain := FunctionName(server) == server && !strings.Contains(server, "__") && !strings.HasSuffix(server, "_") &&
			server != "" && len(server) <= maxPrefix
		want, limit := tool, MaxFunctionName
		if len(servers) > 1 {
			want, limit = server+"__"+tool, MaxFunctionName-len(server)-2
		} else {
			plain = true
		}
		if plain && tool != "" && FunctionName(tool) == tool && len(tool) <= limit {
			assert.Equal(t, name, want)
		}
	}

	servers = slices.Clone(servers)
	shuffle(servers)
	for _, list := range tools {
		shuffle(list)
	}
	assert.DeepEqual(t, namesOf(servers, tools), names)
	for _, server := range servers {
		if len(servers) > 1 {
			for of, name := range namesOf(servers, map[string][]string{server: tools[server]}) {
				assert.Equal(t, name, names[of])
			}
		}
	}
}

func FuzzFunctionNames(f *testing.F) {
	long := strings.Repeat("t", 70)
	for _, text := range []string{
		"", "a b c", "a b__c\na__b c", "a _b\na_ b\na b", "a.b c\na_b c\na/b c", "a a.b a/b a_b a_b_2e7336",
		strings.Repeat("s", 40) + " " + long + "\nx " + long + "1 " + long + "2",
		"\n_\n__ \n___ _ __", "é 読む\nè 読", "a_b_63e5c1 x\na__b x", "a  \x00 \xff",
	} {
		f.Add(text, uint64(1))
	}
	f.Fuzz(func(t *testing.T, text string, seed uint64) {
		if len(text) > 2000 {
			return // which is a lot of servers, and each is looked at with all others
		}
		random := rand.New(rand.NewPCG(seed, 0))
		servers, tools := nameCase(text)
		checkNames(t, servers, tools, func(list []string) {
			random.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		})
	})
}

// The same over texts that are more likely to make names alike, among them names that were made.
func TestFunctionNamesProperties(t *testing.T) {
	pieces := []string{"a", "b", "_", "__", ".", "/", "é", "-", strings.Repeat("long", 9)}
	random := rand.New(rand.NewPCG(1, 2))
	word := func() (word string) {
		for range random.IntN(4) {
			word += pieces[random.IntN(len(pieces))]
		}
		return word
	}
	for range 2000 {
		text, made := word(), ""
		for range random.IntN(8) {
			text += []string{" ", "\n"}[random.IntN(2)] + word()
		}
		for of, name := range namesOf(nameCase(text)) {
			prefix, rest, _ := strings.Cut(name, "__")
			made += " " + name + "\n" + prefix + " " + rest + " " + of[1]
		}
		servers, tools := nameCase(text + made)
		checkNames(t, servers, tools, func(list []string) {
			random.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		})
	}
}

// What servers send for a schema becomes one that the API takes, or the tool is left out. What stands in default,
// const, enum and examples is no schema.
func TestToolFunction(t *testing.T) {
	const least = `{"properties":{},"type":"object"}`
	for schema, want := range map[string]string{
		``: least, `null`: least, ` true `: least, `[]`: least, "[\n]": least, `{}`: least, `{"type":"object"}`: least,
		`{"$schema":"x","$id":"x","type":["object","null"],"properties":{"a":{"$id":"x"}},"required":["a"]}`://
		`{"properties":{"a":{"$id":"x"}},"required":["a"],"type":"object"}`,
		`{"properties":[],"required":null,"type":null,"additionalProperties":[]}`://
		`{"additionalProperties":{},"properties":{},"type":"object"}`,
		`{"type":"string","properties":{"a":true}}`: `{"properties":{"a":true},"type":"object"}`,
		`{"properties":"?","default":null}`:         `{"default":null,"properties":{},"type":"object"}`,

		`"object"`:            `error its inputSchema is not an object: "object"`,
		`[{"type":"object"}]`: `error its inputSchema is not an object: [{"type":"object"}]`,
		`false`:               `error its inputSchema is not an object: false`,
		`7`:                   `error its inputSchema is not an object: 7`,
		`{"type":"string"}`:   `error its inputSchema has the type "string", and not object`,
		`{"type":`:            `error its inputSchema is not valid JSON`,
		`{"items":{"type":"`:  `error its inputSchema is not valid JSON`,
		`[ `:                  `error its inputSchema is not an object: [`,
		strings.Repeat(`{"not":`, 64) + "{}" + strings.Repeat("}", 64)://
		"error its inputSchema is nested deeper than 64 levels",
	} {
		f, err := ToolFunction("f", &Tool{Name: "f", InputSchema: json.RawMessage(schema)})
		got := string(f.Parameters)
		if err != nil {
			got = "error " + err.Error()
		}
		assert.Equal(t, got, want, schema)
	}

	// The schema of a property; "" where it stays as it is.
	for schema, want := range map[string]string{
		`{"minimum":0,"exclusiveMinimum":true}`:    `{"minimum":0,"x-exclusiveMinimum":true}`,
		`{"items":[{"exclusiveMaximum" : false}]}`: `{"items":[{"x-exclusiveMaximum":false}]}`,

		`{"minimum":-1,"exclusiveMinimum":-1.5,"maximum":5,"unknown":[{"required":1}]}`: ``,
		`{"type":"object","properties":{"exclusiveMinimum":{"type":"null"}}}`:           ``,
		`{"type":"object","properties":{"exclusiveMinimum":true,"required":false}}`:     ``,
		`{"default":{"exclusiveMinimum":true},"const":{"exclusiveMaximum":false}}`:      ``,
		`{"enum":[{"required":null},null],"examples":[{"type":"x"}],"default":null}`:    ``,
		`{"b":"\"exclusiveMinimum\": true","a":{"d":1}}`:                                ``,
		`{"anyOf":[{"type":"string"},{"not":{}}],"items":true,"$ref":"#/$defs/\u0061"}`: ``,
		`{"properties":{"a":[],"b":"text","c":{"properties":[],"required":true}}}`://
		`{"properties":{"a":{},"b":{},"c":{"properties":{},"x-required":true}}}`,
		`{"type":"int","items":[],"anyOf":[],"oneOf":{"a":1},"not":null}`://
		`{"x-type":"int","items":{},"x-oneOf":{"a":1}}`,
		`{"type":["string","any"],"title":7,"minLength":"3","uniqueItems":"yes","enum":"a"}`://
		`{"x-type":["string","any"],"x-title":7,"x-minLength":"3","x-uniqueItems":"yes","x-enum":"a"}`,
		// What the API's checker takes (jsonschema 4.26 for Python, tried), and what it refuses.
		`{"multipleOf":0.5,"minLength":0,"maxLength":3.0,"maxItems":1e2,"minProperties":7}`: ``,
		`{"required":["a","b"],"type":["string","null"],"readOnly":true,"$comment":"c"}`:    ``,
		`{"dependencies":{"a":["b"],"c":{"minLength":1},"d":true},"writeOnly":false}`:       ``,
		`{"pattern":"^(?!a)[\\w.-]{2,3}\\d-\\d(?=$)","patternProperties":{"^x-":{}}}`:       ``,
		`{"multipleOf":0,"minLength":-1,"maxLength":1.5,"minItems":1e400,"maxProperties":-0}`://
		`{"x-multipleOf":0,"x-minLength":-1,"x-maxLength":1.5,"x-minItems":1e400,"x-maxProperties":-0}`,
		`{"multipleOf":1e-400,"anyOf":[{"multipleOf":-2}],"min\u0049tems":-1}`://
		`{"x-multipleOf":1e-400,"anyOf":[{"x-multipleOf":-2}],"x-minItems":-1}`,
		`{"required":["a","a"],"type":["string","string"],"$comment":1,"contentEncoding":2,"contentMediaType":[]}`://
		`{"x-required":["a","a"],"x-type":["string","string"],"x-$comment":1,"x-contentEncoding":2,"x-contentMediaType":[]}`,
		`{"not":{"required":["a",null]},"dependencies":{"a":["b","b"],"c":7,"d":{"minLength":-1}}}`://
		`{"not":{"x-required":["a",null]},"dependencies":{"a":{},"c":{},"d":{"x-minLength":-1}}}`,
		`{"dependencies":[],"patternProperties":{"[":{"minLength":-1}}}`://
		`{"dependencies":{},"x-patternProperties":{"[":{"x-minLength":-1}}}`,
	} {
		f, err := ToolFunction("f", &Tool{Name: "f", InputSchema: json.RawMessage(`{"properties":{"n":` + schema + `}}`)})
		assert.NilError(t, err)
		tool, err := plainJSON(f)
		assert.NilError(t, err)
		want = `"parameters":{"properties":{"n":` + cmp.Or(want, schema) + `},"type":"object"}`
		want = strings.ReplaceAll(want, `" :`, `":`)
		assert.Assert(t, strings.Contains(string(tool), want), "%s\n%s", tool, want)
	}
	for hints, want := range map[string]bool{``: false, `[]`: false, `{"readOnlyHint":true}`: true,
		`{"idempotentHint":true}`: false} {
		f, err := ToolFunction("f", &Tool{Name: "f", Annotations: json.RawMessage(hints)})
		assert.NilError(t, err)
		assert.Equal(t, f.ReadOnly, want, hints)
	}
}

// A pattern stays where Python has it, too, in which the API is written, and is renamed elsewhere.
func TestToolFunctionPattern(t *testing.T) {
	for pattern, stays := range map[string]bool{
		`^[a-zA-Z0-9_.-]+$`: true, `^\d{4}-\d{2}$`: true, `(?:a|b)+?`: true, `\bx\b`: true, `^\/.*[^\s]$`: true,
		`(?=.*\d)(?!x)`: true, `\d-\d`: true, `[\w-]`: true, `[$^]`: true,

		`[`: false, `(a`: false, `a**`: false, `\p{L}`: false, `\z`: false, `\u{1F600}`: false, `(?<n>a)`: false,
		`(?<=a+)b`: false, `a(?i)b`: false, `[\w-.]`: false, `$?`: false, `^*`: false, `\b+`: false, `a{,3}*`: false,
		`\12`: false, `[[:alpha:]-\d--]`: false, `a{99999999999}`: false,
	} {
		schema := fmt.Sprintf(`{"properties":{"n":{"pattern":%s}}}`, modelJSON(pattern))
		f, err := ToolFunction("f", &Tool{Name: "f", InputSchema: json.RawMessage(schema)})
		assert.NilError(t, err)
		assert.Equal(t, strings.Contains(string(f.Parameters), `"pattern"`), stays, pattern)
	}
}

// Time grows as the schema does: with its length and its number of keywords.
func TestToolFunctionIsLinear(t *testing.T) {
	many := strings.Repeat(`{"anyOf":[{"items":{"pattern":"^a$"}}]},`, 30_000) + "{}"
	wide := strings.Repeat(`{"default":{"exclusiveMinimum":true}},`, 100_000) + "{}"
	for _, parts := range []string{many, wide} {
		schema := `{"properties":{"a":{"anyOf":[` + parts + `]}}}`
		f, err := ToolFunction("f", &Tool{Name: "f", InputSchema: json.RawMessage(schema)})
		assert.NilError(t, err)
		assert.Assert(t, len(f.Parameters) > len(schema))
	}
}

// A hundred thousand tools of one name are not compared with each other.
func TestFunctionNamesAreLinear(t *testing.T) {
	tools := make([]Tool, 100_000)
	for i := range tools {
		tools[i].Name = "same"
	}
	names := FunctionNames("", tools)
	slices.Sort(names)
	assert.Equal(t, len(slices.Compact(names)), len(tools))
}

// FuzzToolFunction: whatever a schema is, the API takes what comes of it.
func FuzzToolFunction(f *testing.F) {
	for _, schema := range []string{
		`{}`, `[]`, `{"type":["object",null]}`, `{"properties":{"a":{"type":["x"],"required":[1],"items":[[]]}}}`,
		`{"allOf":[{"minimum":"1","anyOf":[]}],"$defs":[],"additionalProperties":null,"enum":{},"title":{}}`,
	} {
		f.Add([]byte(schema))
	}
	f.Fuzz(func(t *testing.T, schema []byte) {
		function, err := ToolFunction("f", &Tool{Name: "f", InputSchema: schema})
		if !json.Valid(schema) || err != nil {
			return
		}
		request := ChatRequest{Messages: chatHello.Messages, Tools: []Function{function}}
		r, err := (&Mistral{Model: "m"}).request(&request, formWhole)
		assert.NilError(t, err)
		body, err := r.GetBody()
		assert.NilError(t, err)
		var sent map[string]any
		assert.NilError(t, json.NewDecoder(body).Decode(&sent))
		check := new(modelCheck)
		check.value(sent, "request", "body")
		assert.Equal(t, len(check.details), 0, "%s: %v", schema, check.details)
		if refusal := modelRules(sent); refusal != nil {
			t.Errorf("%s\nbecame %s\nrefused with %s", schema, function.Parameters, refusal.Body)
		}
	})
}

func TestModelText(t *testing.T) {
	for _, test := range []struct{ what, result, want string }{
		{"text", `{"content":[{"type":"text","text":"one\ntwo"},{"type":"text","text":"three"}]}`, "one\ntwo\nthree"},
		{"nothing", `{"content":[]}`, ""},
		{"structured content alone", `{"content":[],"structuredContent":{"sum": 3}}`, `{"sum": 3}`},
		{"structured content beside text", `{"content":[{"type":"text","text":"3"}],"structuredContent":{"sum":3}}`, "3"},
		{"an error", `{"content":[{"type":"text","text":"no such file"}],"isError":true}`, "no such file"},
		{"image", `{"content":[{"type":"image","data":"AAECAwQ=","mimeType":"image/png"}]}`, "[image: image/png, 5 bytes]"},
		{"audio", `{"content":[{"type":"audio","data":"AAE=","mimeType":"audio/wav"}]}`, "[audio: audio/wav, 2 bytes]"},
		{"link", `{"content":[{"type":"resource_link","uri":"file:///a.txt","name":"a","description":"the first"}]}`,
			"[resource: file:///a.txt a the first]"},
		{"link without a name", `{"content":[{"type":"resource_link","uri":"file:///a.txt"}]}`, "[resource: file:///a.txt]"},
		{"embedded text", `{"content":[{"type":"resource","resource":{"uri":"file:///a.txt","text":"hello"}}]}`,
			"[resource: file:///a.txt]\nhello"},
		{"embedded bytes", `{"content":[{"type":"resource","resource":{"uri":"a:b","mimeType":"a/z","blob":"AAEC"}}]}`,
			"[resource: a:b a/z, 3 bytes]"},
		{"nothing embedded", `{"content":[{"type":"resource"}]}`, "[resource without contents]"},
		{"of a later revision", `{"content":[{"type":"smell","of":"roses"}]}`, `[smell: {"type":"smell","of":"roses"}]`},
		{"mixed, in order", `{"content":[{"type":"text","text":"before"},` +
			`{"type":"image","data":"","mimeType":"image/gif"},{"type":"text","text":"after"}]}`,
			"before\n[image: image/gif, 0 bytes]\nafter"},
	} {
		t.Run(test.what, func(t *testing.T) {
			result, _, err := decodeToolResult(json.RawMessage(test.result))
			assert.NilError(t, err)
			assert.Equal(t, ModelText(result), test.want)
		})
	}
}

// An image is what its bytes are; each has a number, also across results, or the reason why it has none.
func TestModelContent(t *testing.T) {
	const refused = ", left out: it is not a PNG, JPEG, WEBP or GIF]"
	png, gif := "data:image/png;base64,"+scriptPNG, "data:image/gif;base64,"+scriptGIF
	image := func(kind, data string) string {
		return fmt.Sprintf(`{"type":"image","data":%q,"mimeType":%q}`, data, kind)
	}
	blob := func(kind, data string) string {
		return fmt.Sprintf(`{"type":"resource","resource":{"uri":"a:b","mimeType":%q,"blob":%q}}`, kind, data)
	}
	for _, test := range []struct {
		what, content, want string
		images              []string
	}{
		{"nothing", ``, "", nil},
		{"text", `{"type":"text","text":"[image: x]"}`, "[image: x]", nil},
		{"several", image("image/png", scriptPNG) + `,{"type":"text","text":"and"},` + blob("image/gif", scriptGIF),
			"[image: image/png, 70 bytes, image 1]\nand\n[resource: a:b image/gif, 42 bytes, image 2]", []string{png, gif}},
		{"a wrong type", image("image/jpeg", scriptPNG), "[image: image/jpeg, 70 bytes, image 1]", []string{png}},
		{"a blob without a type", blob("", scriptGIF), "[resource: a:b , 42 bytes, image 1]", []string{gif}},
		{"no image", image("image/png", "AAEC"), "[image: image/png, 3 bytes" + refused, nil},
		{"no bytes", image("image/png", ""), "[image: image/png, 0 bytes" + refused, nil},
		{"another type", blob("image/tiff", "SUkqAA=="), "[resource: a:b image/tiff, 4 bytes" + refused, nil},
		{"bytes", blob("application/pdf", "JVBERi0="), "[resource: a:b application/pdf, 5 bytes]", nil},
		{"an image as text", `{"type":"resource","resource":{"uri":"a:b","mimeType":"image/svg+xml","text":"<svg/>"}}`,
			"[resource: a:b]\n<svg/>", nil},
	} {
		t.Run(test.what, func(t *testing.T) {
			result, _, err := decodeToolResult(json.RawMessage(`{"content":[` + test.content + `]}`))
			assert.NilError(t, err)
			text, images := ModelContent(result, nil)
			assert.Equal(t, text, test.want)
			assert.DeepEqual(t, images, test.images)
			if len(images) > 0 {
				text, images = ModelContent(result, []string{"x"})
				assert.Equal(t, text, strings.NewReplacer("image 1]", "image 2]", "image 2]", "image 3]").Replace(test.want))
				assert.DeepEqual(t, images, append([]string{"x"}, test.images...))
			}
		})
	}

	// A result of many images says how many more there are. The URI of a resource stays, to be asked for.
	many := strings.Repeat(image("image/png", scriptPNG)+",", 11) + blob("image/gif", scriptGIF) +
		`,{"type":"text","text":"end"}`
	result, _, err := decodeToolResult(json.RawMessage(`{"content":[` + many + `]}`))
	assert.NilError(t, err)
	for given, left := range map[int]int{0: 4, 7: 11, 8: 12} {
		text, images := ModelContent(result, make([]string, given, 20))
		assert.Equal(t, len(images), 8)
		want := "[resource: a:b image/gif, 42 bytes]\nend\n" +
			fmt.Sprintf("[images left out: %d, as a model is sent at most 8]", left)
		for i := 8; i > given; i-- {
			want = fmt.Sprintf("[image: image/png, 70 bytes, image %d]\n", i) + want
		}
		assert.Equal(t, text, want)
	}

	large := make([]byte, MaxImage+1)
	copy(large, "\xff\xd8\xff")
	for size, want := range map[int]string{MaxImage: "image 1", MaxImage + 1: "left out: it is larger than 10 MB"} {
		block := ContentBlock{Type: "image", MIMEType: "image/jpeg", Data: large[:size]}
		text, images := ModelContent(&ToolResult{Content: []ContentBlock{block}}, nil)
		assert.Equal(t, text, fmt.Sprintf("[image: image/jpeg, %d bytes, %s]", size, want))
		assert.Equal(t, len(images) == 1 && strings.HasPrefix(images[0], "data:image/jpeg;base64,/9j/"), size == MaxImage)
	}
}

// The last images go out, in an order that the strict server takes; the text says what is left out, whatever the
// number is; what has no images stays as it is.
func TestShowImages(t *testing.T) {
	png, gif := "data:image/png;base64,"+scriptPNG, "data:image/gif;base64,"+scriptGIF
	history := []ChatMessage{
		{Role: "system", Content: TextContent("Be brief.")},
		{Role: "user", Content: TextContent("What is it?"), Images: []string{png, gif}},
		{Role: "assistant", Content: Content(`[{"type":"thinking","thinking":[]},{"type":"text","text":"I look."}]`),
			ToolCalls: []ToolCall{{ID: "aaaaaaaa1", Name: "look"}, {ID: "aaaaaaaa2", Name: "none"},
				{ID: "aaaaaaaa3", Name: "look"}}},
		{Role: "tool", Content: TextContent("one"), ToolCallID: "aaaaaaaa1", Name: "look", Images: []string{gif}},
		{Role: "tool", Content: TextContent("none"), ToolCallID: "aaaaaaaa2", Name: "none"},
		{Role: "tool", Content: TextContent("two"), ToolCallID: "aaaaaaaa3", Name: "look", Images: []string{png, gif}},
		{Role: "assistant", Content: Content(`""`), ToolCalls: []ToolCall{{ID: "aaaaaaaa4", Name: "look"}}},
		{Role: "tool", Content: TextContent("three"), ToolCallID: "aaaaaaaa4", Name: "look", Images: []string{png}},
	}
	before := fmt.Sprint(history)
	lines := func(messages []ChatMessage) (lines []string) {
		for _, m := range messages {
			line := strings.NewReplacer(png, "PNG", gif, "GIF").Replace(string(m.Content))
			lines = append(lines, m.Role+" "+line)
		}
		return lines
	}
	chunks := func(parts ...string) string {
		for i, part := range parts {
			if parts[i] = `{"text":"` + part + `","type":"text"}`; part == "PNG" || part == "GIF" {
				parts[i] = `{"image_url":{"url":"` + part + `"},"type":"image_url"}`
			}
		}
		return "user [" + strings.Join(parts, ",") + "]"
	}
	const think = `assistant [{"type":"thinking","thinking":[]},{"type":"text","text":"I look."}]`
	const follow = `assistant "The images follow."`
	for most, want := range map[int][]string{
		6: {`system "Be brief."`, chunks("What is it?", "Image 1:", "PNG", "Image 2:", "GIF"),
			think, `tool "one"`, `tool "none"`, `tool "two"`, follow,
			chunks("Image 1 of result 1, look:", "GIF", "Image 1 of result 3, look:", "PNG",
				"Image 2 of result 3, look:", "GIF"),
			`assistant ""`, `tool "three"`, follow, chunks("Image 1 of result 1, look:", "PNG")},
		2: {`system "Be brief."`, `user "What is it?\n(Image 1 is left out: of A.)\n(Image 2 is left out: of A.)"`,
			think, `tool "one\n(Image 1 is left out: of A.)"`, `tool "none"`, `tool "two\n(Image 1 is left out: of A.)"`, follow,
			chunks("Image 2 of result 3, look:", "GIF"),
			`assistant ""`, `tool "three"`, follow, chunks("Image 1 of result 1, look:", "PNG")},
		0: {`system "Be brief."`, `user "What is it?\n(Image 1 is left out: of A.)\n(Image 2 is left out: of A.)"`,
			think, `tool "one\n(Image 1 is left out: of A.)"`, `tool "none"`,
			`tool "two\n(Image 1 is left out: of A.)\n(Image 2 is left out: of A.)"`,
			`assistant ""`, `tool "three\n(Image 1 is left out: of A.)"`},
	} {
		shown := ShowImages(history, most, "of A")
		assert.DeepEqual(t, lines(shown), want)
		assert.Equal(t, fmt.Sprint(history), before)
		server := newModelServer(t, modelText("fine"))
		_, err := (&Mistral{BaseURL: server.URL, Model: "m"}).Complete(t.Context(), &ChatRequest{Messages: shown}, nil)
		assert.NilError(t, err)
	}

	// Without ShowImages they are not sent at all.
	server := newModelServer(t, modelText("fine"))
	_, err := (&Mistral{BaseURL: server.URL, Model: "m"}).Complete(t.Context(), &ChatRequest{Messages: history}, nil)
	assert.NilError(t, err)
	assert.Assert(t, !strings.Contains(string(server.Requests()[0].Body), "base64"))

	plain := slices.Clone(history[4:5])
	assert.DeepEqual(t, lines(ShowImages(plain, 8, "of A")), lines(plain))
}
