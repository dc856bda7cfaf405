package main

import (
	"encoding/json"
	"math/rand/v2"
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
	``, ` `, `{`, `[1,]`, `{"a":1,}`, `{"a"}`, `{1:2}`, `01`, `1.`, `.5`, `-`, `1e`, `+1`, `tru`, `nulll`, `{} {}`, `"a`, "\"\n\"", "\"\x00\"", `"\x"`, `"\u12"`, `"\u12g4"`, `"\`,
	`"\u00e9\ud83d\ude00"`, `"\ud800"`, `"\ud800\u0041"`, `"\udc00\ud800"`, "\"\xff\xfe\"", "\"abc\xe2\x28\xa1defghijk\"", `"\"\\\/\b\f\n\r\t"`,
	`{"\u0061":1,"a":2}`, "{\"\xff\":1}", `"eight bytes at a time, \"then\" one by one"`, "\"0123456789\x1f\"", "\"0123456\x7f\x80\"", "\v1", "\ufeff{}",
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

// TestRandomStrings compares what comes out of a string with encoding/json, over every mixture of what
// makes strings unusual.
func TestRandomStrings(t *testing.T) {
	pieces := []string{"a", "é", "€", "😀", " ", "\x7f", "\u2028", "\ufffd", "plain text of some length", "\x00", "\x1f",
		`\n`, `\"`, `\\`, `\/`, `\b`, `\f`, `\r`, `\t`, `\u0041`, `\u00e9`, `\ud83d\ude00`, `\ud83d`, `\ude00`, `\ud83dx`, `\u0000`, `\uFFFF`, `\u12`, `\x`, `\`,
		"\xff", "\xc3", "\xe2\x82", "\xf0\x9f\x98", "\xed\xa0\x80", "\xc0\x80", "\xf8\x88\x80\x80\x80", `"`}
	random := rand.New(rand.NewPCG(1, 2))
	n := 2_000_000
	if testing.Short() || raceEnabled {
		n = 100_000
	}
	var text []byte
	for range n {
		text = append(text[:0], '"')
		for range random.IntN(8) {
			text = append(text, pieces[random.IntN(len(pieces))]...)
		}
		text = append(text, '"')
		var want string
		err := json.Unmarshal(text, &want)
		s := scanner{text: text}
		got := s.string()
		if ok := s.end(); ok != (err == nil) || ok && got != want {
			t.Fatalf("%q: %q, %v; encoding/json: %q, %v", text, got, ok, want, err)
		}
	}
}

func TestAppendString(t *testing.T) {
	for _, s := range []string{"", "tools/call", "a\"b", `a\b`, "é", "\n", "\x7f", "\xff", "<>&"} {
		var back string
		assert.NilError(t, json.Unmarshal(appendString(nil, s), &back))
		assert.Equal(t, back, strings.ToValidUTF8(s, "\uFFFD"))
	}
}

func TestAppendJSON(t *testing.T) {
	for _, c := range []struct {
		in   any
		want string
	}{
		{json.RawMessage(`{"a": 1}`), `{"a": 1}`},
		{json.RawMessage("{\n \"a\": 1\n}"), `{"a":1}`},
		{json.RawMessage(nil), `null`},
		{map[string]int(nil), `null`},
		{struct{}{}, `{}`},
	} {
		got, err := appendJSON(nil, c.in)
		assert.NilError(t, err)
		assert.Equal(t, string(got), c.want)
	}
	for _, bad := range []string{`{`, ``, `{} {}`, "{\n", `{"a":1,}`} {
		_, err := appendJSON(nil, json.RawMessage(bad))
		assert.ErrorContains(t, err, "JSON", "%q", bad)
	}
}
