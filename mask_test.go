package main

import (
	"net/url"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

func TestMask(t *testing.T) {
	var m Mask
	assert.Equal(t, m.Text("planted-1"), "planted-1")
	m.Add("[key]", "planted-1", "short", "planted-1-2")
	m.Add("[secret]", "planted-1", "a planted-1 too", `quo"te\d<`, "späße & co", "")
	for text, want := range map[string]string{
		"":                                    "",
		"no secret, and short":                "no secret, and short",
		"planted-1planted-1, planted-":        "[key][key], planted-",
		"a planted-1 too":                     "[secret]",
		"planted-1-2 planted-1-":              "[key] [key]-",
		"a planted-1 to":                      "a [key] to",
		`{"a":"quo\"te\\d<"}`:                 `{"a":"[secret]"}`,
		`{"a":"quo\"te\\d\u003c"}`:            `{"a":"[secret]"}`,
		`quo"te\d<`:                           "[secret]",
		`{"a":"{\"b\":\"quo\\\"te\\\\d<\"}"}`: `{"a":"{\"b\":\"[secret]\"}"}`,
		"?a=sp%C3%A4%C3%9Fe+%26+co&b=1":       "?a=[secret]&b=1",
		"/sp%C3%A4%C3%9Fe%20&%20co/":          "/[secret]/",
		"späße & co":                          "[secret]",
		`{"a":"sp\u00e4\u00dfe \u0026 co"}`:   `{"a":"sp\u00e4\u00dfe \u0026 co"}`, // as nobody writes it who need not
	} {
		assert.Check(t, is.Equal(m.Text(text), want), text)
	}
}

// Whatever the pieces, what is written is what Text makes of the whole.
func TestMaskWriter(t *testing.T) {
	var m Mask
	m.Add("[1]", "planted-planted-x")
	m.Add("[2]", "antananarivo")
	const text = "planted-planted-planted-x: plant, antanantananarivo and planted-planted-x"
	want := m.Text(text)
	assert.Equal(t, want, "planted-[1]: plant, antan[2] and [1]")
	for i := range len(text) + 1 {
		for j := i; j <= len(text); j++ {
			var out strings.Builder
			w := m.Writer(&out)
			for _, piece := range []string{text[:i], text[i:j], text[j:]} {
				n, err := w.Write([]byte(piece))
				assert.NilError(t, err)
				assert.Equal(t, n, len(piece))
			}
			assert.NilError(t, w.Close())
			assert.Equal(t, out.String(), want, "%q %q %q", text[:i], text[i:j], text[j:])
		}
	}

	var out strings.Builder
	w := m.Writer(&out)
	_, _ = w.Write([]byte("no more than is needed is kept: plan"))
	assert.Equal(t, out.String(), "no more than is needed is kept: ")
}

func FuzzMask(f *testing.F) {
	f.Add("a secret", "text with a secret", 12)
	f.Add(`"\<é &/+%`, `{"a":"\"\\\u003cé \u0026/+%"}`, 3)
	f.Fuzz(func(t *testing.T, secret, text string, at int) {
		var m Mask
		m.Add("*", secret)
		if len(secret) < minMask || strings.Contains(secret, "*") {
			return
		}
		for _, form := range []string{secret, string(Text(secret)), url.QueryEscape(secret), url.PathEscape(secret)} {
			form = strings.Trim(form, `"`)
			assert.Check(t, !strings.Contains(m.Text(text+form+text), secret))
		}
		at = min(max(at, 0), len(text))
		var out strings.Builder
		w := m.Writer(&out)
		_, _ = w.Write([]byte(text[:at]))
		_, _ = w.Write([]byte(text[at:]))
		_ = w.Close()
		assert.Check(t, !strings.Contains(out.String(), secret))
	})
}
