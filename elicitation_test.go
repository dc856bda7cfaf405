package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

// elicitForm is a request whose schema has these properties; some of them may be required.
func elicitForm(properties string, required ...string) *ElicitRequest {
	list, _ := json.Marshal(append([]string{}, required...))
	schema := fmt.Appendf(nil, `{"type":"object","properties":{%s},"required":%s}`, properties, list)
	return &ElicitRequest{RequestedSchema: schema}
}

// TestElicitForms plays testdata/elicitation.txt, which says how it is read.
func TestElicitForms(t *testing.T) {
	unset := regexp.MustCompile(`,"(Title|Description|Format)":""|,"(Required|Many)":false|` +
		`,"(Default|Min|Max|Options)":null`)
	var field Field
	var form ElicitRequest
	playCases(t, "testdata/elicitation.txt", func(t *testing.T, _ string, given []string) (outcomes [][]string) {
		for _, line := range given {
			line = strings.TrimPrefix(line, "* ")
			value, err := elicitCase(&field, &form, line)
			outcome := "= " + unset.ReplaceAllString(unescapedJSON(value), "")
			if what, _, _ := strings.Cut(line, " "); what == "type" {
				outcome = fmt.Sprintf("= %T %[1]v", value)
			}
			if err != nil {
				outcome = "= error: " + err.Error()
				assert.Assert(t, is.ErrorType(err, &FormError{}), "%s", line)
			}
			outcomes = append(outcomes, []string{outcome})
		}
		return outcomes
	})
}

// elicitCase does what a line says: a schema makes a field, and a request a form, of which the lines after it speak.
func elicitCase(f *Field, r *ElicitRequest, line string) (any, error) {
	what, text, _ := strings.Cut(line, " ")
	var v any
	switch what {
	case "type":
		return f.Parse(unquoted(text))
	case "value":
		err := json.Unmarshal([]byte(text), &v)
		return "fits", cmp.Or(err, f.Check(v))
	case "content":
		content, _ := v.(map[string]any)
		err := json.Unmarshal([]byte(text), &content)
		return "fits", cmp.Or(err, r.Check(content))
	case "defaults":
		return elicitDefaults(r), nil
	case "request":
		*r = ElicitRequest{}
		if err := json.Unmarshal([]byte(text), r); err != nil {
			return nil, err
		}
	case "form":
		*r = ElicitRequest{RequestedSchema: json.RawMessage(text)}
	default: // schema, required schema
		_, schema, _ := strings.Cut(line, "schema ")
		fields, err := elicitForm(`"f":` + schema).Form()
		if err != nil {
			return nil, err
		}
		*f = fields[0]
		f.Required = what == "required"
		return f, nil
	}
	if err := r.Valid(); err != nil || r.Mode == "url" {
		return "a URL", err
	}
	names := []string{}
	fields, err := r.Form()
	for _, field := range fields {
		names = append(names, fmt.Sprint(field.Name, " ", field.Required))
	}
	return names, err
}

// TestElicitValues: what a program may give as a value, and JSON cannot; and how long a form may be.
func TestElicitValues(t *testing.T) {
	number, integer := Field{Type: "number"}, Field{Type: "integer"}
	several := Field{Type: "string", Many: true, Options: []Option{{"r", "R"}}}
	for _, v := range []any{3, int64(3), 3.0} {
		assert.NilError(t, integer.Check(v))
	}
	assert.NilError(t, several.Check([]string{"r"}))
	assert.ErrorContains(t, several.Check([]string{"R"}), "must be a list of options")
	for _, v := range []float64{math.Inf(1), math.NaN()} {
		assert.ErrorContains(t, number.Check(v), "must be a number")
	}
	many := strings.TrimSuffix(strings.Repeat(`"%d":{"type":"boolean"},`, maxFields), ",")
	for i := range maxFields {
		many = strings.Replace(many, "%d", fmt.Sprint("f", i), 1)
	}
	_, err := elicitForm(many).Form()
	assert.NilError(t, err)
	_, err = elicitForm(many + `,"f":{"type":"boolean"}`).Form()
	assert.Error(t, err, "the form has more than 100 fields")
	options := `"f":{"type":"string","enum":["` + strings.Repeat(`a","`, maxForm/4) + `"]}`
	_, err = elicitForm(options).Form()
	assert.Error(t, err, "the form is longer than 64 KiB")
	assert.Equal(t, len(elicitDefaults(elicitForm(many+`,"f":{"type":"boolean","default":true}`))), 0)
	_, err = (&ElicitRequest{Mode: "url", URL: "https://example.org"}).Form()
	assert.Error(t, err, `the form cannot be shown: the mode is "url"`)

	// The numbers and lists that a form's defaults are can be sent as they are.
	r := elicitForm(`"age":{"type":"integer","default":20},` +
		`"tags":{"type":"array","items":{"enum":["a"]},"default":["a"]}`)
	assert.DeepEqual(t, elicitDefaults(r), map[string]any{"age": int64(20), "tags": []string{"a"}})
	assert.NilError(t, r.Check(elicitDefaults(r)))
}

// FuzzElicit: whatever the schema and whatever is typed, what Parse makes of it fits, goes over the wire and still
// fits.
func FuzzElicit(f *testing.F) {
	for _, schema := range []string{
		`{"type":"string","minLength":1,"format":"date"}`, `{"type":"integer","maximum":9,"default":3}`,
		`{"type":"boolean"}`,
		`{"type":"string","enum":["a","b"],"enumNames":["A"]}`, `{"anyOf":[{"type":"number"},{"type":"null"}]}`,
		`{"type":"string","oneOf":[{"const":"#f00","title":"Red"},{"const":"1","title":"One"}]}`,
		`{"type":"array","minItems":1,"maxItems":2,"items":{"anyOf":[{"const":"r","title":"Red, dark"},{"const":"g"}]}}`,
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

// elicitDefaults is the content of a form that the user has left as it was.
func elicitDefaults(r *ElicitRequest) map[string]any {
	content := make(map[string]any)
	fields, _ := r.Form()
	for _, f := range fields {
		if f.Default != nil {
			content[f.Name] = f.Default
		}
	}
	return content
}
