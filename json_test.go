package main

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"gotest.tools/v3/assert"
)

// scanAll reads a text with every method of the scanner, decoding all strings, and builds what
// encoding/json would; ok says whether the scanner took it for valid.
func scanAll(text []byte) (value any, ok bool) {
	s := scanner{text: text}
	var read func() any
	read = func() any {
		switch s.peek() {
		case '{':
			object := map[string]any{}
			s.object(func(key []byte) {
				// encoding/json mends invalid UTF-8 in names, too.
				name := strings.ToValidUTF8(string(key), "\uFFFD")
				if !utf8.Valid(key) {
					_ = json.Unmarshal([]byte(`"`+string(key)+`"`), &name)
				}
				object[name] = read()
			})
			return object
		case '[':
			array := []any{}
			s.array(func() { array = append(array, read()) })
			return array
		case '"':
			return s.string()
		default:
			var v any
			_ = json.Unmarshal(s.value(), &v)
			return v
		}
	}
	value = read()
	return value, s.end()
}

func checkScanner(t *testing.T, text []byte) {
	t.Helper()
	valid := json.Valid(text)
	if validJSON(text) != valid {
		t.Fatalf("validJSON(%q) = %v, encoding/json says %v", text, !valid, valid)
	}
	if loose := (scanner{text: text, loose: true}); valid {
		assert.Equal(t, string(loose.value()), string(bytes.TrimSpace(text)))
		assert.Assert(t, loose.end())
	} else {
		loose.value() // without panic, to some end
	}
	got, ok := scanAll(text)
	if ok != valid {
		t.Fatalf("reading %q: ok = %v, encoding/json says %v", text, ok, valid)
	}
	var want any
	if valid && json.Unmarshal(text, &want) == nil {
		assert.Assert(t, reflect.DeepEqual(got, want), "%q: %v, encoding/json: %v", text, got, want)
	}
}

var scannerSeeds = []string{
	`{}`, `[]`, `""`, `null`, `true`, `false`, `0`, `-0`, `1.5e+3`, `-12.25E-7`, ` { "a" : [ 1 , "b" , null ] } `,
	``, ` `, `{`, `[1,]`, `[1 2]`, `{"a":1,}`, `{"a"}`, `{1:2}`, `01`, `1.`, `.5`, `-`, `1e`, `+1`, `tru`,
	`nulll`, `{} {}`, `"a`, "\"\n\"", "\"\x00\"", `"\x"`, `"\u12"`, `"\u12g4"`, `"\`,
	`"\u00e9\ud83d\ude00"`, `"\ud800"`, `"\ud800\u0041"`, `"\udc00\ud800"`, "\"\xff\xfe\"",
	"\"abc\xe2\x28\xa1defghijk\"", `"\"\\\/\b\f\n\r\t"`,
	`{"\u0061":1,"a":2}`, "{\"\xff\":1}", `"eight bytes at a time, \"then\" one by one"`,
	`{"a":NaN,"b":[-Infinity,undefined,None],"c":"\x"}`, "{\"a\":\"\t\"b\"}", "\"\x01\"x", "\"\x01\\", "[nul", "NaN",
	"\"0123456789\x1f\"", "\"0123456\x7f\x80\"", "\v1", "\ufeff{}",
	strings.Repeat("[", 200) + strings.Repeat("]", 200),
}

func FuzzScanner(f *testing.F) {
	for _, seed := range scannerSeeds {
		f.Add([]byte(seed))
	}
	f.Fuzz(checkScanner)
}

func TestScannerDepth(t *testing.T) {
	for _, depth := range []int{9_999, 10_000, 10_001, 1_000_000} {
		for _, pair := range []string{"[]", `{"":}`} {
			open, closing := pair[:len(pair)-1], pair[len(pair)-1:]
			middle := "0"
			text := []byte(strings.Repeat(open, depth) + middle + strings.Repeat(closing, depth))
			assert.Equal(t, validJSON(text), json.Valid(text), "%d times %s", depth, pair)
		}
	}
}

// TestStrings compares what comes out of a string with encoding/json, over all mixtures of three things that make
// strings unusual.
func TestStrings(t *testing.T) {
	pieces := []string{"", "a", "é", "€", "😀", "\x7f", "\u2028", "\ufffd", "plain text of some length",
		"\x00", "\x1f",
		`\n`, `\"`, `\\`, `\/`, `\b`, `\f`, `\r`, `\t`, `\u0041`, `\u00e9`,
		`\ud83d\ude00`, `\ud83d`, `\ude00`, `\uFFFF`, `\u12`, `\x`,
		`\`, "\xff", "\xc3", "\xe2\x82", "\xf0\x9f\x98", "\xed\xa0\x80", "\xc0\x80", "\xf8\x88\x80\x80\x80", `"`}
	for _, a := range pieces {
		for _, b := range pieces {
			for _, c := range pieces {
				checkScanner(t, []byte(`"`+a+b+c+`"`))
			}
		}
	}
}

func TestAppend(t *testing.T) {
	for _, s := range []string{"", "tools/call", "a\"b", `a\b`, "é", "\n", "\x7f", "\xff", "<>&"} {
		var back string
		assert.NilError(t, json.Unmarshal(appendString(nil, s), &back))
		assert.Equal(t, back, strings.ToValidUTF8(s, "\uFFFD"))
	}
	for want, in := range map[string]any{
		`{"a": 1}`:     json.RawMessage(`{"a": 1}`),
		`{"a":1}`:      json.RawMessage("{\n \"a\": 1\n}"),
		"[\"\uFFFD\"]": json.RawMessage("[\"\xff\"]"),
		`null`:         map[string]int(nil),
		`{}`:           struct{}{},
	} {
		got, err := appendJSON([]byte("before "), in)
		assert.NilError(t, err)
		assert.Equal(t, string(got), "before "+want)
	}
	got, err := appendJSON(nil, json.RawMessage(nil))
	assert.NilError(t, err)
	assert.Equal(t, string(got), "null")
	for _, bad := range []string{`{`, `{} {}`, "{\n", `{"a":1,}`} {
		_, err := appendJSON(nil, json.RawMessage(bad))
		assert.ErrorContains(t, err, "JSON", "%q", bad)
	}
	_, err = appendJSON(nil, json.RawMessage{})
	assert.ErrorContains(t, err, "missing or empty")
	assert.Equal(t, string(appendKey(appendKey([]byte("{"), "a"), "b")), `{"a":,"b":`)
}
