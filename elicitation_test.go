package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

// elicitForm is a request whose schema has these properties; some of them may be required.
func elicitForm(properties string, required ...string) *ElicitRequest {
	list, _ := json.Marshal(append([]string{}, required...))
	return &ElicitRequest{RequestedSchema: fmt.Appendf(nil, `{"type":"object","properties":{%s},"required":%s}`, properties, list)}
}

// elicitField is the only field of such a form.
func elicitField(t testing.TB, schema string) *Field {
	t.Helper()
	fields, err := elicitForm(`"f":` + schema).Form()
	assert.NilError(t, err)
	assert.Equal(t, len(fields), 1)
	return &fields[0]
}

func elicitNumber(n float64) *float64 { return &n }

// TestElicitForm: every kind of field that a revision has.
func TestElicitForm(t *testing.T) {
	rgb := []Option{{"#f00", "Red"}, {"#0f0", "Green"}}
	for _, test := range []struct {
		name, schema string
		want         Field
	}{
		{"string", `{"type":"string","title":"T","description":"D","minLength":1,"maxLength":5,"format":"email","default":"a@b"}`,
			Field{Type: "string", Title: "T", Description: "D", Min: elicitNumber(1), Max: elicitNumber(5), Format: "email", Default: "a@b"}},
		{"number", `{"type":"number","minimum":-1.5,"maximum":2,"default":0.5}`,
			Field{Type: "number", Min: elicitNumber(-1.5), Max: elicitNumber(2), Default: 0.5}},
		{"integer", `{"type":"integer","default":9007199254740993}`, Field{Type: "integer", Default: int64(9007199254740993)}},
		{"boolean", `{"type":"boolean","default":false}`, Field{Type: "boolean", Default: false}},
		{"enum", `{"type":"string","enum":["a","b"],"default":"b"}`,
			Field{Type: "string", Options: []Option{{"a", "a"}, {"b", "b"}}, Default: "b"}},
		{"legacy enum with names", `{"type":"string","enum":["a","b","c"],"enumNames":["A",""]}`,
			Field{Type: "string", Options: []Option{{"a", "A"}, {"b", "b"}, {"c", "c"}}}},
		{"oneOf", `{"type":"string","oneOf":[{"const":"#f00","title":"Red"},{"const":"#0f0","title":"Green"}]}`,
			Field{Type: "string", Options: rgb}},
		{"several, untitled", `{"type":"array","minItems":1,"maxItems":2,"items":{"type":"string","enum":["a","b"]},"default":["a"]}`,
			Field{Type: "string", Many: true, Min: elicitNumber(1), Max: elicitNumber(2), Options: []Option{{"a", "a"}, {"b", "b"}}, Default: []string{"a"}}},
		{"several, titled", `{"type":"array","items":{"anyOf":[{"const":"#f00","title":"Red"},{"const":"#0f0","title":"Green"}]},"default":[]}`,
			Field{Type: "string", Many: true, Options: rgb, Default: []string{}}},
		{"string or null, as older Python servers write it", `{"anyOf":[{"type":"string","maxLength":3},{"type":"null"}],"default":null,"title":"T"}`,
			Field{Type: "string", Title: "T", Max: elicitNumber(3)}},
		{"null or integer", `{"anyOf":[{"type":"null"},{"type":"integer","title":"inner"}],"default":3}`,
			Field{Type: "integer", Title: "inner", Default: int64(3)}},
		{"keywords of others", `{"type":"string","pattern":"^x$","x-order":{"a":[1]}}`, Field{Type: "string"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.want.Name = "f"
			assert.DeepEqual(t, *elicitField(t, test.schema), test.want)
		})
	}
}

// TestElicitFormOrder: the fields come as the server wrote them, wherever its other members stand.
func TestElicitFormOrder(t *testing.T) {
	r := &ElicitRequest{Mode: "form", RequestedSchema: json.RawMessage(`{"required":["m","\u0061"],"$schema":"x",
		"properties":{"z":{"type":"string"},"a":{"type":"string"},"m":{"type":"boolean"}},"type":"object","additionalProperties":false}`)}
	fields, err := r.Form()
	assert.NilError(t, err)
	var got []string
	for _, f := range fields {
		got = append(got, fmt.Sprint(f.Name, f.Required))
	}
	assert.DeepEqual(t, got, []string{"zfalse", "atrue", "mtrue"})

	fields, err = elicitForm("").Form() // to be agreed to, no more
	assert.NilError(t, err)
	assert.Equal(t, len(fields), 0)
}

func TestElicitFormRefuses(t *testing.T) {
	field := func(schema string) *ElicitRequest { return elicitForm(`"f":` + schema) }
	many := func(n int) *ElicitRequest {
		var properties []string
		for i := range n {
			properties = append(properties, fmt.Sprintf(`"f%d":{"type":"boolean"}`, i))
		}
		return elicitForm(strings.Join(properties, ","))
	}
	_, err := many(maxFields).Form()
	assert.NilError(t, err)
	for _, test := range []struct {
		name string
		r    *ElicitRequest
		want string // the error
	}{
		{"no schema", &ElicitRequest{}, "the form has a schema that is not one of an object"},
		{"schema of a string", &ElicitRequest{RequestedSchema: json.RawMessage(`{"type":"string"}`)}, "not one of an object"},
		{"schema that is none", &ElicitRequest{RequestedSchema: json.RawMessage(`[]`)}, "not one of an object"},
		{"schema cut off", &ElicitRequest{RequestedSchema: json.RawMessage(`{"type":"object","properties":{`)}, "not one of an object"},
		{"properties list", &ElicitRequest{RequestedSchema: json.RawMessage(`{"type":"object","properties":[]}`)}, "not one of an object"},
		{"required word", &ElicitRequest{RequestedSchema: json.RawMessage(`{"type":"object","required":"f"}`)}, "not one of an object"},
		{"URL", &ElicitRequest{Mode: "url", URL: "https://example.org"}, `the mode is "url"`},
		{"mode", &ElicitRequest{Mode: "voice"}, `the mode is "voice"`},
		{"101 fields", many(maxFields + 1), "the form has more than 100 fields"},
		{"twice", elicitForm(`"f":{"type":"string"},"f":{"type":"string"}`), `the field "f" is there twice`},
		{"required stranger", elicitForm(`"f":{"type":"string"}`, "g"), `the field "g" is required, but is not there`},
		{"object", field(`{"type":"object","properties":{}}`), `the field "f" is not a string`},
		{"null", field(`{"type":"null"}`), `the field "f" is not a string`},
		{"no type", field(`{}`), `the field "f" is not a string`},
		{"reference", field(`{"$ref":"#/$defs/x"}`), `the field "f" is not a string`},
		{"true", field(`true`), `the field "f" has a schema that no field`},
		{"types", field(`{"type":["string","null"]}`), `the field "f" has a schema that no field`},
		{"bound", field(`{"type":"string","minLength":"1"}`), "cannot unmarshal string"},
		{"array without items", field(`{"type":"array"}`), `the field "f" is not a string`},
		{"array of any strings", field(`{"type":"array","items":{"type":"string"}}`), `the field "f" is not a string`},
		{"array of numbers", field(`{"type":"array","items":{"enum":[1]}}`), `the field "f" has a schema that no field`},
		{"options of schemas", field(`{"type":"string","oneOf":[{"type":"string"}]}`), `the field "f" is not a string`},
		{"default of string", field(`{"type":"string","default":1}`), `the field "f" has a default of another type`},
		{"default of number", field(`{"type":"number","default":"1"}`), `the field "f" has a default of another type`},
		{"default of boolean", field(`{"type":"boolean","default":"no"}`), `the field "f" has a default of another type`},
		{"default of several", field(`{"type":"array","items":{"enum":["a"]},"default":"a"}`), `the field "f" has a default of another type`},
	} {
		t.Run(test.name, func(t *testing.T) {
			fields, err := test.r.Form()
			assert.ErrorContains(t, err, test.want)
			var form *FormError
			assert.Assert(t, errors.As(err, &form))
			assert.Assert(t, fields == nil)
			assert.Equal(t, len(test.r.Defaults()), 0)
		})
	}
}

// elicit fields that the tests of Parse and Check share.
const (
	elicitColor  = `{"type":"string","oneOf":[{"const":"#f00","title":"Red"},{"const":"#0f0","title":"Green"},{"const":"1","title":"One"}]}`
	elicitColors = `{"type":"array","minItems":1,"maxItems":2,"items":{"anyOf":[{"const":"r","title":"Red, dark"},{"const":"g","title":"Green"},{"const":"b","title":"Blue"}]}}`
)

func TestElicitParse(t *testing.T) {
	for _, test := range []struct {
		schema, text string
		want         any // nil if there is no value; an error's text after "error: "
	}{
		{`{"type":"string"}`, "  two words ", "two words"},
		{`{"type":"string"}`, " ", nil},
		{`{"type":"string","default":"d"}`, "", "d"},
		{`{"type":"string","maxLength":2,"default":"long"}`, "", "error: at most 2 characters"},
		{`{"type":"string","format":"email"}`, "x", "error: must be of the form email"},

		{`{"type":"integer"}`, " 42 ", int64(42)},
		{`{"type":"integer"}`, "9007199254740993", int64(9007199254740993)},
		{`{"type":"integer"}`, "-3.0", -3.0},
		{`{"type":"integer"}`, "3.5", "error: must be a whole number"},
		{`{"type":"number"}`, "1e3", 1000.0},
		{`{"type":"number"}`, "1e999", "error: must be a number"},
		{`{"type":"number"}`, "NaN", "error: must be a number"},
		{`{"type":"number"}`, "many", "error: must be a number"},
		{`{"type":"number","default":2.5}`, "", 2.5},
		{`{"type":"number"}`, "", nil},

		{`{"type":"boolean"}`, "Yes", true},
		{`{"type":"boolean"}`, "j", true},
		{`{"type":"boolean"}`, "1", true},
		{`{"type":"boolean"}`, "FALSE", false},
		{`{"type":"boolean"}`, "n", false},
		{`{"type":"boolean"}`, "maybe", "error: must be yes or no"},
		{`{"type":"boolean","default":false}`, "", false},

		{elicitColor, "#0f0", "#0f0"},
		{elicitColor, "Green", "#0f0"},
		{elicitColor, "gREEN", "#0f0"},
		{elicitColor, "2", "#0f0"},
		{elicitColor, "1", "1"}, // the value, not the first option
		{elicitColor, "3", "1"},
		{elicitColor, "0", "error: must be one of the options"},
		{elicitColor, "4", "error: must be one of the options"},
		{elicitColor, "-1", "error: must be one of the options"},
		{elicitColor, "", nil},

		{elicitColors, "3, g", []string{"b", "g"}},
		{elicitColors, "green,2,G,", []string{"g"}},
		{elicitColors, "red, dark", []string{"r"}},
		{elicitColors, "r,x", `error: has no option "x"`},
		{elicitColors, "1,2,3", "error: at most 2 options"},
		{elicitColors, ",", "error: at least 1 options"},
		{elicitColors, "", nil},
	} {
		t.Run(test.schema+test.text, func(t *testing.T) {
			v, err := elicitField(t, test.schema).Parse(test.text)
			if text, ok := test.want.(string); ok && strings.HasPrefix(text, "error: ") {
				assert.ErrorContains(t, err, `the field "f" `)
				assert.ErrorContains(t, err, strings.TrimPrefix(text, "error: "))
				assert.Assert(t, v == nil)
				return
			}
			assert.NilError(t, err)
			assert.DeepEqual(t, v, test.want)
		})
	}
}

// TestElicitParseRequired: nothing is no answer where one is required, but none of several options can be one.
func TestElicitParseRequired(t *testing.T) {
	for schema, want := range map[string]any{
		`{"type":"string"}`:  nil,
		`{"type":"boolean"}`: nil,
		elicitColor:          nil,
		elicitColors:         nil,
		`{"type":"array","items":{"enum":["a"]}}`: []string{},
		`{"type":"boolean","default":false}`:      false,
	} {
		f := elicitField(t, schema)
		f.Required = true
		v, err := f.Parse(" ")
		assert.DeepEqual(t, v, want)
		assert.Equal(t, err == nil, want != nil, "%s: %v", schema, err)
	}
}

func TestElicitCheck(t *testing.T) {
	for _, test := range []struct {
		schema string
		v      any
		want   string // the error; empty if it fits
	}{
		{`{"type":"string","minLength":2,"maxLength":3}`, "äöü", ""}, // six bytes
		{`{"type":"string","minLength":2,"maxLength":3}`, "日本語x", "at most 3 characters"},
		{`{"type":"string","minLength":2}`, "ä", "at least 2 characters"},
		{`{"type":"string"}`, "", ""},
		{`{"type":"string"}`, 1, "must be a text"},
		{`{"type":"string"}`, nil, "must be a text"},
		{`{"type":"string","format":"email"}`, "a@example.org", ""},
		{`{"type":"string","format":"email"}`, "A <a@example.org>", "form email"},
		{`{"type":"string","format":"email"}`, "a", "form email"},
		{`{"type":"string","format":"uri"}`, "https://example.org/x?y", ""},
		{`{"type":"string","format":"uri"}`, "urn:isbn:1", ""},
		{`{"type":"string","format":"uri"}`, "/path", "form uri"},
		{`{"type":"string","format":"uri"}`, "http://%zz", "form uri"},
		{`{"type":"string","format":"date"}`, "2024-02-29", ""},
		{`{"type":"string","format":"date"}`, "2023-02-29", "form date"},
		{`{"type":"string","format":"date-time"}`, "2024-02-29T12:00:00.5+01:00", ""},
		{`{"type":"string","format":"date-time"}`, "2024-02-29", "form date-time"},
		{`{"type":"string","format":"color"}`, "anything", ""},

		{`{"type":"number","minimum":0,"maximum":1000000}`, 0.5, ""},
		{`{"type":"number","minimum":0}`, -1, "at least 0"},
		{`{"type":"number","maximum":1000000}`, 1e7, "at most 1000000"},
		{`{"type":"number"}`, math.Inf(1), "must be a number"},
		{`{"type":"number"}`, math.NaN(), "must be a number"},
		{`{"type":"number"}`, "1", "must be a number"},
		{`{"type":"integer"}`, 3, ""},
		{`{"type":"integer"}`, int64(3), ""},
		{`{"type":"integer"}`, 3.0, ""},
		{`{"type":"integer"}`, 3.5, "must be a whole number"},

		{`{"type":"boolean"}`, true, ""},
		{`{"type":"boolean"}`, "true", "must be yes or no"},

		{elicitColor, "#f00", ""},
		{elicitColor, "Red", "must be one of the options"}, // its title
		{elicitColor, []any{}, "must be one of the options"},
		{elicitColors, []string{"r", "g"}, ""},
		{elicitColors, []any{"r", "g"}, ""},
		{elicitColors, []any{"r", 1}, "must be a list of options"},
		{elicitColors, []string{"Green"}, "must be a list of options"},
		{elicitColors, "r", "must be a list of options"},
		{elicitColors, []string{}, "at least 1 options"},
		{elicitColors, []string{"r", "g", "b"}, "at most 2 options"},
	} {
		t.Run(fmt.Sprint(test.schema, test.v), func(t *testing.T) {
			err := elicitField(t, test.schema).Check(test.v)
			if test.want == "" {
				assert.NilError(t, err)
				return
			}
			assert.ErrorContains(t, err, `the field "f" must be `)
			assert.ErrorContains(t, err, test.want)
		})
	}
}

func TestElicitContent(t *testing.T) {
	r := elicitForm(`"name":{"type":"string"},"age":{"type":"integer","minimum":18,"default":20},"tags":{"type":"array","items":{"enum":["a"]},"default":["a"]}`, "name")
	assert.DeepEqual(t, r.Defaults(), map[string]any{"age": int64(20), "tags": []string{"a"}})
	url := &ElicitRequest{Mode: "url", URL: "https://example.org"}
	for _, test := range []struct {
		r       *ElicitRequest
		content map[string]any
		want    string
	}{
		{r, map[string]any{"name": "N"}, ""},
		{r, map[string]any{"name": "N", "age": 18, "tags": []string{}}, ""},
		{r, r.Defaults(), `the field "name" is required`},
		{r, map[string]any{"name": "N", "age": 17}, `the field "age" must be at least 18`},
		{r, map[string]any{"name": nil}, `the field "name" must be a text`},
		{r, map[string]any{"name": "N", "Age": 20}, `the field "Age" was not asked for`},
		{r, nil, "has no content"},
		{elicitForm(""), map[string]any{}, ""},
		{elicitForm(""), nil, "has no content"},
		{&ElicitRequest{}, map[string]any{}, "not one of an object"},
		{url, nil, ""},
		{url, map[string]any{}, "takes no content"},
	} {
		err := test.r.Check(test.content)
		if test.want == "" {
			assert.NilError(t, err)
		} else {
			assert.ErrorContains(t, err, test.want)
		}
	}
}

func TestElicitValid(t *testing.T) {
	assert.NilError(t, elicitForm("").Valid())
	assert.NilError(t, (&ElicitRequest{Mode: "url", URL: "https://example.org/?x=1"}).Valid())
	for want, r := range map[string]*ElicitRequest{
		"has no valid URL":     {Mode: "url", URL: "example.org"},
		`the mode is "voice"`:  {Mode: "voice"},
		"not one of an object": {},
	} {
		assert.ErrorContains(t, r.Valid(), want)
	}
}

// TestElicitAsk: the user is not asked what has no valid form, and the server is not sent what does not fit it.
func TestElicitAsk(t *testing.T) {
	const form = `{"message":"?","requestedSchema":{"type":"object","properties":{"n":{"type":"integer","maximum":9}},"required":["n"]}}`
	for _, test := range []struct {
		name, params string
		answer       ElicitResult
		want         string // what the server is sent
		asked        bool
	}{
		{"fits", form, ElicitResult{"accept", map[string]any{"n": int64(3)}}, `{"action":"accept","content":{"n":3}}`, true},
		{"declined", form, ElicitResult{Action: "decline"}, `{"action":"decline"}`, true},
		{"declined in the middle", form, ElicitResult{"cancel", map[string]any{"n": "x"}}, `{"action":"cancel","content":{"n":"x"}}`, true},
		{"nothing to fill in", `{"requestedSchema":{"type":"object","properties":{}}}`, ElicitResult{"accept", map[string]any{}}, `{"action":"accept","content":{}}`, true},
		{"URL", `{"mode":"url","url":"https://example.org","message":"?"}`, ElicitResult{Action: "accept"}, `{"action":"accept"}`, true},
		{"too large", form, ElicitResult{"accept", map[string]any{"n": 10}}, `error: the field "n" must be at most 9`, true},
		{"missing", form, ElicitResult{"accept", map[string]any{}}, `error: the field "n" is required`, true},
		{"no form", `{"requestedSchema":{"type":"object","properties":{"n":{"type":"object"}}}}`, ElicitResult{}, `error: the field "n" is not a string`, false},
		{"no URL", `{"mode":"url","url":":"}`, ElicitResult{}, "error: the form has no valid URL", false},
		{"no request", `{"message":1}`, ElicitResult{}, "error: json: cannot unmarshal number", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			asked := false
			c := &Client{options: ClientOptions{Elicit: func(context.Context, *ElicitRequest) (*ElicitResult, error) {
				asked = true
				return &test.answer, nil
			}}}
			result, err := c.ask(t.Context(), "elicitation/create", json.RawMessage(test.params))
			assert.Equal(t, asked, test.asked)
			if want, ok := strings.CutPrefix(test.want, "error: "); ok {
				assert.ErrorContains(t, err, want)
				var e *Error
				assert.Equal(t, errors.As(err, &e) && e.Code == CodeInvalidParams, !asked)
				return
			}
			assert.NilError(t, err)
			text, err := json.Marshal(result)
			assert.NilError(t, err)
			assert.Equal(t, string(text), test.want)
		})
	}
}

// FuzzElicit: whatever the schema and whatever is typed, what Parse makes of it fits, goes over the wire and still fits.
func FuzzElicit(f *testing.F) {
	for _, schema := range []string{
		`{"type":"string","minLength":1,"format":"date"}`, `{"type":"integer","maximum":9,"default":3}`, `{"type":"boolean"}`,
		`{"type":"string","enum":["a","b"],"enumNames":["A"]}`, `{"anyOf":[{"type":"number"},{"type":"null"}]}`, elicitColor, elicitColors,
	} {
		for _, text := range []string{"", "1", "a, b", "2024-01-01", "yes", "1e400"} {
			f.Add([]byte(`{"type":"object","properties":{"f":`+schema+`},"required":["f"]}`), text)
		}
	}
	f.Fuzz(func(t *testing.T, schema []byte, text string) {
		r := &ElicitRequest{RequestedSchema: schema}
		fields, err := r.Form()
		if err != nil {
			assert.Assert(t, fields == nil)
			return
		}
		assert.Assert(t, json.Valid(schema))
		assert.Assert(t, len(fields) <= maxFields)
		content := make(map[string]any)
		for _, field := range fields {
			v, err := field.Parse(text)
			switch {
			case err != nil:
				assert.Assert(t, v == nil)
				assert.Assert(t, is.ErrorType(err, &FormError{}))
				return
			case v != nil:
				assert.NilError(t, field.Check(v))
				content[field.Name] = v
			default:
				assert.Assert(t, !field.Required && strings.TrimSpace(text) == "")
			}
		}
		assert.NilError(t, r.Check(content))
		wire, err := json.Marshal(content)
		assert.NilError(t, err)
		var back map[string]any
		assert.NilError(t, json.Unmarshal(wire, &back))
		assert.Equal(t, len(back), len(content))
		if strings.ToValidUTF8(text, "") == text { // else the wire changes it
			assert.NilError(t, r.Check(back))
		}
	})
}
