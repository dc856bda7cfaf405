package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

// TestDecodeJSON: a mistake is told with the path of the value, as the text has it, and what must be there.
func TestDecodeJSON(t *testing.T) {
	type leaf struct {
		Text   string
		Count  int      `json:"count"`
		Size   float64  `json:"size,omitempty"`
		IsOpen bool     `json:"isOpen"`
		Any    any      `json:"any"`
		List   []string `json:"list"`
		Blocks []ContentBlock
	}
	type target struct {
		leaf
		Map    map[string]leaf
		Leaves []*leaf
		Sample SampleContent
	}
	deep := strings.Repeat(`{"items":`, 200) + `{"minLength":"x"}` + strings.Repeat("}", 200)
	for _, test := range []struct{ text, want string }{
		{`{"Text":"a","count":1,"Leaves":[null,{"count":2}],"other":7}`, ""},
		{``, "p is missing or empty"},
		{" \n", "p is missing or empty"},
		{`{"text":`, "p is not valid JSON: the text ends too early"},
		{`{text: 1}`, `p is not valid JSON: unexpected 't' at byte 2`},
		{`{} é`, `p is not valid JSON: unexpected 'é' at byte 4`},
		{`[]`, "p must be an object, not an array"},
		{`["a"]`, "p must be an object, not an array"},
		{`{"list":{"a":7}}`, "p.list must be an array, not an object"},
		{`"a"`, "p must be an object, not a string"},
		{`{"text":7}`, "p.text must be a string, not a number"},
		{`{"TEXT":{}}`, "p.TEXT must be a string, not an object"},
		{`{"isOpen":"yes"}`, "p.isOpen must be a boolean, not a string"},
		{`{"count":"1"}`, "p.count must be a number, not a string"},
		{`{"count":10.5}`, "p.count must be a whole number of 64 bits, not 10.5"},
		{`{"size":1e400}`, "p.size must be a number of 64 bits, not 1e400"},
		{`{"any":{"b":[1,-1e400]}}`, "p.any.b[1] must be a number of 64 bits, not -1e400"},
		{`{"list":["a","b",true]}`, "p.list[2] must be a string, not a boolean"},
		{`{"list":{}}`, "p.list must be an array, not an object"},
		{`{"leaves":[null,{"text":"a"},{"text":"b","count":[]}]}`, "p.leaves[2].count must be a number, not an array"},
		{`{"map":{"a b":{"text":1}}}`, `p.map["a b"].text must be a string, not a number`},
		{`{"map":{"\u001b[2J":7}}`, `p.map["\x1b[2J"] must be an object, not a number`},
		{`{"map":{"` + strings.Repeat("k", 99) + `":7}}`,
			`p.map["` + strings.Repeat("k", 80) + `"] must be an object, not a number`},
		// What a block of content must be depends on its type.
		{`{"blocks":[{"type":"text","text":"a"},{"type":"text","text":7}]}`,
			"p.blocks[1].text must be a string, not a number"},
		{`{"blocks":[{"type":"resource","resource":{"uri":"u","text":[]}}]}`,
			"p.blocks[0].resource.text must be a string, not an array"},
		{`{"blocks":[{"text":"a","type":{}}]}`, "p.blocks[0].type must be a string, not an object"},
		{`{"sample":[{"type":"text","text":"a"},{"type":"image","mimeType":1}]}`,
			"p.sample[1].mimeType must be a string, not a number"},
		{`{"sample":"text"}`, "p.sample must be an object, not a string"},
		// The first of several mistakes is told.
		{`{"count":"a","text":7}`, "p.count must be a number, not a string"},
	} {
		got := new(target)
		err := decodeJSON("p", []byte(test.text), got)
		assert.Check(t, is.Equal(fmt.Sprint(err), cmpOrNil(test.want)), "%s", test.text)
		if err != nil {
			assert.Check(t, !strings.Contains(err.Error(), "json:"), "%v", err)
		}
	}
	assert.Check(t, is.Error(decodeJSON("", []byte(`{"text":7}`), new(leaf)), "text must be a string, not a number"))
	assert.Check(t, is.Error(decodeJSON("", []byte(`7`), new(leaf)), "it must be an object, not a number"))

	// A path has an end.
	err := decodeJSON("p", []byte(deep), new(fieldSchema))
	assert.Check(t, is.Regexp(`^p(\.items)+ has a value of a wrong type$`, err.Error()))
	assert.Check(t, len(err.Error()) < 2*maxMisfitPath)

	// An error of another kind is the caller's to understand.
	mistake := &FormError{Reason: "has no fields"}
	assert.Check(t, is.ErrorIs(jsonMistake("p", []byte("{}"), mistake, nil), mistake))
	var none *target
	assert.Check(t, errors.As(decodeJSON("p", []byte("{}"), none), new(*json.InvalidUnmarshalError)))
}

func cmpOrNil(text string) string {
	if text == "" {
		return "<nil>"
	}
	return text
}

// TestDecodeJSONIsBounded: the mistake at the end of a long list is searched for as long as that takes no more than a
// small multiple of the first reading.
func TestDecodeJSONIsBounded(t *testing.T) {
	text := `{"list":[` + strings.Repeat(`"",`, 100_000) + `7]}`
	read := 0
	decode := func(text []byte) error {
		read += len(text)
		return json.Unmarshal(text, new(struct{ List []string }))
	}
	err := jsonMistake("p", []byte(text), json.Unmarshal([]byte(text), new(struct{ List []string })), decode)
	assert.Error(t, err, "p.list[100000] must be a string, not a number")
	assert.Check(t, read < 32*len(text), "%d bytes for %d", read, len(text))

	read = 0
	long := strings.Replace(text, "list", strings.Repeat("list", 25), 1)
	longList := new(map[string][]string)
	decode = func(text []byte) error {
		read += len(text)
		return json.Unmarshal(text, longList)
	}
	err = jsonMistake("p", []byte(long), decode([]byte(long)), decode)
	assert.Assert(t, is.Regexp(`^p\["(list){20}"\] has a value of a wrong type$`, err.Error()))
	assert.Check(t, read < 64*len(long), "%d bytes for %d", read, len(long))
}
