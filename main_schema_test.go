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
		return toolSchema(&Tool{InputSchema: json.RawMessage(schema)}).describe("")
	}
	for _, test := range []struct{ schema, want string }{
		{`["no object"]`, ""},
		{`{"properties":{"b":{"type":"integer","default":5},"a":{"description":" One.\nTwo. "}},"required":["a"]}`,
			"a: any JSON, required\n    One.\n    Two.\nb: integer, optional, default 5\n"},
		{`{"properties":{"a":{"enum":["x",null,3],"type":["string","null","integer"]},"b":{"const":"<"}}}`,
			"a: \"x\" or null or 3, optional\nb: \"<\", optional\n"},
		{`{"properties":{"a":{"anyOf":[{"type":"array","items":{"type":"string"}},{"type":"null"}],"default":null}}}`,
			"a: array of string or null, optional, default null\n"},
		{`{"properties":{"a":{"type":"object","properties":{"b":{"type":"boolean"}}}}}`,
			"a: object, optional\n  b: boolean, optional\n"},
		{`{"properties":{"a":{"type":"array","items":{"properties":{"b":{}},"required":["b"],"type":"object"}}}}`,
			"a: array of object, optional\n  b: any JSON, required\n"},
		{`{"properties":{"a":{"$ref":"#/$defs/A","description":"own"},"b":{"allOf":[{"$ref":"#/$defs/A"}]}},
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
