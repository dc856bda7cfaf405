package main

import (
	"encoding/json"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

// What people read of a tool's arguments, also where the schema is nested, or refers to itself.
func TestSchemaDescribed(t *testing.T) {
	describe := func(schema string) string {
		return ToolSchema(&Tool{InputSchema: json.RawMessage(schema)}).Describe("")
	}
	for _, test := range []struct{ schema, want string }{
		{`["no object"]`, ""},
		{`{"properties":{"b":{"type":"integer","default":5},"a":{"description":" One.\nTwo. "}},"required":["a"]}`,
			"a: any JSON, required\n    One.\n    Two.\nb: integer, optional, default 5\n"},
		{`{"properties":{"a":{"enum":["x",null,3],"type":["string","null","integer"]},"b":{"enum":["<"]}}}`,
			"a: \"x\" or null or 3, optional\nb: \"<\", optional\n"},
		{`{"properties":{"a":{"anyOf":[{"type":"array","items":{"type":"string"}},{"type":"null"}],"default":null}}}`,
			"a: array of string or null, optional, default null\n"},
		{`{"properties":{"a":{"type":"object","properties":{"b":{"type":"boolean"}}}}}`,
			"a: object, optional\n  b: boolean, optional\n"},
		{`{"properties":{"a":{"type":"array","items":{"properties":{"b":{}},"required":["b"],"type":"object"}}}}`,
			"a: array of object, optional\n  b: any JSON, required\n"},
		{`{"properties":{"a":{"$ref":"#/$defs/A","description":"own"},"b":{"$ref":"#/$defs/A"}},
			"$defs":{"A":{"type":"string","description":"of A","default":"x"}}}`,
			"a: string, optional, default \"x\"\n    own\nb: string, optional, default \"x\"\n    of A\n"},
		{`{"properties":{"a":{"$ref":"#/$defs/none"},"b":{"$ref":"elsewhere"}}}`,
			"a: any JSON, optional\nb: any JSON, optional\n"},
	} {
		assert.Equal(t, describe(test.schema), test.want, test.schema)
	}
	tree := `{"properties":{"tree":{"$ref":"#/$defs/T"}},"$defs":{"T":{"type":"object","properties":{"sub":` +
		`{"type":"array","items":{"$ref":"#/$defs/T"}}}}}}`
	assert.Check(t, strings.Count(describe(tree), "sub:") < 10)
	wide := `{"$ref":"#/$defs/T","$defs":{"T":{"properties":{"a":{"$ref":"#/$defs/T"},"b":{"$ref":"#/$defs/T"},` +
		`"c":{"$ref":"#/$defs/T"},"d":{"$ref":"#/$defs/T"},"e":{"$ref":"#/$defs/T"}}}}}`
	assert.Check(t, strings.Count(describe(wide), "\n") < 5*maxSchemas)
	describe(`{"$ref":"#/$defs/R","$defs":{"R":{"$ref":"#/$defs/R"}}}`)
}

// Words become JSON by the types of the schema; what fits none of them is an error.
func TestSchemaTypesWords(t *testing.T) {
	tool := &Tool{InputSchema: json.RawMessage(`{"properties":{
		"s":{"type":"string"},"i":{"type":"integer"},"n":{"type":"number"},"b":{"type":"boolean"},"o":{"type":"object"},
		"a":{"type":"array","items":{"type":"string"}},"any":{},
		"maybe":{"anyOf":[{"type":"integer"},{"type":"null"}]},"si":{"type":["string","integer"]},
		"is":{"type":["integer","string"]},
		"e":{"enum":["a","1",1,null]},"es":{"type":"string","enum":["a","b"]},
		"ref":{"$ref":"#/$defs/R"},"all":{"allOf":[{"$ref":"#/$defs/E"}]},"loop":{"$ref":"#/$defs/L"}},
		"$defs":{"R":{"type":"integer"},"E":{"type":"string"},"L":{"anyOf":[{"$ref":"#/$defs/L"},{"$ref":"#/$defs/L"}]}}}`)}
	for _, test := range []struct{ name, word, want string }{
		{"s", "5", `"5"`}, {"s", "null", `"null"`}, {"s", "", `""`}, {"s", "<\"\n", `"<\"\n"`}, {"s", "[x]", `"[x]"`},
		{"i", "5", "5"}, {"i", " -5 ", "-5"}, {"i", "123456789012345678901", "123456789012345678901"}, {"i", "5.0", ""},
		{"i", "1e3", ""}, {"i", "05", ""}, {"i", "", ""}, {"i", "true", ""}, {"i", `"5"`, ""},
		{"n", "5.5", "5.5"}, {"n", "1e3", "1e3"}, {"n", ".5", ""}, {"n", "NaN", ""}, {"b", "true", "true"}, {"b", "yes", ""},
		{"o", `{"a":1}`, `{"a":1}`}, {"o", "[]", ""}, {"o", "{", ""},
		{"a", "x", ""}, {"a", `["x", 5]`, `["x",5]`}, {"a", "[x", ""}, {"a", "{}", ""},
		{"any", "5", "5"}, {"any", "five", `"five"`}, {"any", "[5]", "[5]"}, {"any", "", `""`},
		{"maybe", "5", "5"}, {"maybe", "null", "null"}, {"maybe", "x", ""}, {"si", "5", `"5"`}, {"is", "5", "5"},
		{"is", "x", `"x"`}, {"all", "1.0", `"1.0"`},
		{"e", "a", `"a"`}, {"e", "1", `"1"`}, {"e", "null", "null"}, {"e", "b", ""}, {"es", "b", `"b"`}, {"es", "c", ""},
		{"ref", "5", "5"}, {"ref", "x", ""}, {"loop", "[]", "[]"}, {"loop", "x", `"x"`}, {"none", "x", ""},
	} {
		object, err := ToolSchema(tool).Object(map[string]string{test.name: test.word})
		want := `{"` + test.name + `":` + test.want + "}"
		if test.want == "" {
			assert.ErrorContains(t, err, test.name, test.word)
		} else {
			assert.NilError(t, err, test.name)
			assert.Equal(t, string(object), want)
		}
	}
	_, err := ToolSchema(tool).Object(map[string]string{"a": "x"})
	assert.ErrorContains(t, err, `a has the type array ('["a", "b"]') of string, which "x" does not fit`)
	open := ToolSchema(&Tool{InputSchema: json.RawMessage(`{"additionalProperties":{},"required":["a","b"]}`)})
	object, err := open.Object(map[string]string{"a": "x", "b": "1", "c": "2"})
	assert.NilError(t, err)
	assert.Equal(t, string(object), `{"a":"x","b":1,"c":2}`)
	_, err = open.Object(map[string]string{"a": "1"})
	assert.ErrorContains(t, err, "b is missing")
	texts := ToolSchema(&Tool{InputSchema: json.RawMessage(`{"additionalProperties":{"type":"string"}}`)})
	object, err = texts.Object(map[string]string{"a": "5"})
	assert.NilError(t, err)
	assert.Equal(t, string(object), `{"a":"5"}`)
	for _, closed := range []string{`{}`, `{"additionalProperties":false}`} {
		_, err = ToolSchema(&Tool{InputSchema: json.RawMessage(closed)}).Object(map[string]string{"a": "1"})
		assert.ErrorContains(t, err, `it takes no "a"`)
	}
}
