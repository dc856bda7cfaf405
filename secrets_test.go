package main

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"html"
	"net/url"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

func TestSecretsMask(t *testing.T) {
	var s Secrets
	assert.Equal(t, s.Mask("planted-1"), "planted-1")
	s.Add("[key]", "planted-1", "short", "planted-1-2")
	s.Add("[secret]", "planted-1", "a planted-1 too", `quo"te\d<`, "späße & co/+", "")
	for text, want := range map[string]string{
		"":                                                    "",
		"no secret, and short":                                "no secret, and short",
		"planted-1planted-1, planted-":                        "[key][key], planted-",
		"a planted-1 too":                                     "[secret]",
		"planted-1-2 planted-1-":                              "[key] [key]-",
		"a planted-1 to":                                      "a [key] to",
		`{"a":"quo\"te\\d<"}`:                                 `{"a":"[secret]"}`,
		`{"a":"quo\"te\\d\u003c"}`:                            `{"a":"[secret]"}`,
		`quo"te\d<`:                                           "[secret]",
		`{"a":"{\"b\":\"quo\\\"te\\\\d<\"}"}`:                 `{"a":"{\"b\":\"[secret]\"}"}`,
		"?a=sp%C3%A4%C3%9Fe+%26+co%2F%2B&b=1":                 "?a=[secret]&b=1",
		"?a=sp%c3%a4%c3%9fe+%26+co%2f%2b&b=1":                 "?a=[secret]&b=1",
		"/sp%C3%A4%C3%9Fe%20&%20co%2F+/":                      "/[secret]/",
		"späße & co/+":                                        "[secret]",
		`{"a":"sp\u00e4\u00dfe \u0026 co\/+"}`:                "{\"a\":\"[secret]\"}", // PHP, Python
		`{"a":"sp\u00E4\u00DFe \u0026 co/\u002B"}`:            "{\"a\":\"[secret]\"}", // .NET
		`{"a":"{\"b\":\"sp\\u00e4\\u00dfe & co\\/\\u002b\""}`: `{"a":"{\"b\":\"[secret]\""}`,
		`%5C"späße%`:                                          `%5C"späße%`,
		`C:\planted-1`:                                        `C:[key]`,
		"%planted-1":                                          "%[key]",
	} {
		assert.Check(t, is.Equal(s.Mask(text), want), text)
	}
}

// What base64 makes of a text with a secret in it shows nothing of that but the characters that it
// shares with what stands before and after it.
func TestSecretsBase64(t *testing.T) {
	var s Secrets
	const planted = "planted?~ü>key"
	s.Add("*", planted)
	for _, encoding := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding} {
		assert.Check(t, is.Equal(strings.Trim(s.Mask(encoding.EncodeToString([]byte(planted))), "="), "*"))
		for before := range 4 {
			for after := range 4 {
				text := encoding.EncodeToString([]byte(strings.Repeat("x", before) + planted + strings.Repeat("x", after)))
				masked := strings.Trim(s.Mask(text), "=")
				assert.Check(t, strings.Contains(masked, "*"), text)
				assert.Check(t, len(masked) <= 1+(before*4+2)/3+(after*4+2)/3+2, masked)
			}
		}
	}
}

// TestSecretsRules: what of a variable, a header, a URL or an argument is secret, as
// testdata/secrets.txt has it.
func TestSecretsRules(t *testing.T) {
	count := 0
	playCases(t, "testdata/secrets.txt", func(t *testing.T, _ string, given []string) (outcomes [][]string) {
		var s Secrets
		for _, line := range given {
			kind, text, _ := strings.Cut(strings.TrimPrefix(line, "* "), " ")
			text = strings.NewReplacer(`\n`, "\n", `\r`, "\r").Replace(text)
			if kind != "mask" {
				s = Secrets{}
				text = addSecret(t, &s, kind, text)
				count++
			}
			masked := strings.NewReplacer("\n", `\n`, "\r", `\r`).Replace(s.Mask(text))
			outcomes = append(outcomes, []string{"= " + masked})
		}
		return outcomes
	})
	assert.Check(t, count > 60)
}

// addSecret tells s of something that may be secret, and returns its value.
func addSecret(t *testing.T, s *Secrets, kind, text string) string {
	switch kind {
	case "variable":
		name, value, _ := strings.Cut(text, "=")
		s.AddVariable(name, value)
		return value
	case "header":
		name, value, _ := strings.Cut(text, ": ")
		s.AddHeader(name, value)
		return value
	case "url":
		u, err := url.Parse(text)
		assert.NilError(t, err)
		s.AddURL(u)
	case "arguments":
		s.AddArguments(strings.Fields(text))
	default:
		t.Fatalf("no such kind: %s", kind)
	}
	return text
}

// Whatever the pieces, what is written is what Mask makes of the whole.
func TestMaskWriter(t *testing.T) {
	var s Secrets
	s.Add("[1]", "planted-planted-x", "a3f9c07e55d1b2ca", "a3f9c07e55d1b2ca-and-more")
	s.Add("[2]", "antananarivo", "arivoarivo", "sla/sh+es")
	s.Add("[3]", "planned&")
	for text, want := range map[string]string{
		"planted-planted-planted-x: plant, antanantananarivo and planted-planted-x": "planted-[1]: plant, antan[2] and [1]",
		"the token a3f9c07e55d1b2ca.":                 "the token [1].",
		"planned&arivoarivo, planned&":                "[3][2], [3]",
		"plann%65d&":                                  "[3]",
		"a3f9c07e55d1b2ca":                            "[1]",
		"a3f9c07e55d1b2ca3f9c07e55d1b2ca":             "[1]",
		"a3f9c07e55d1b2ca-and-more a3f9c07e55d1b2ca-": "[1] [1]-",
		"antananarivoarivoarivo arivo":                "[2] arivo",
		`sla\/sh\u002bes sla%2fsh%2Bes sla\\/s sla%`:  `[2] [2] sla\\/s sla%`,
	} {
		assert.Equal(t, s.Mask(text), want)
		for i := range len(text) + 1 {
			for j := i; j <= len(text); j++ {
				var out strings.Builder
				w := s.Writer(&out)
				for _, piece := range []string{text[:i], text[i:j], text[j:]} {
					n, err := w.Write([]byte(piece))
					assert.NilError(t, err)
					assert.Equal(t, n, len(piece))
				}
				assert.NilError(t, w.Close())
				assert.Equal(t, out.String(), want, "%q %q %q", text[:i], text[i:j], text[j:])
			}
		}
	}

	var out strings.Builder
	w := s.Writer(&out)
	_, _ = w.Write([]byte("no more than is needed is kept: plan"))
	assert.Equal(t, out.String(), "no more than is needed is kept: ")
	assert.NilError(t, w.Close())
	_, _ = w.Write([]byte("ted-planted-x, after the end"))
	assert.Equal(t, out.String(), "no more than is needed is kept: planted-planted-x, after the end")
}

// What is written in single bytes takes no longer for it: nothing is read twice.
func BenchmarkMaskPieces(b *testing.B) {
	var s Secrets
	for i := range 20 {
		s.Add("*", fmt.Sprintf("%s-%02d", strings.Repeat("aaaaaaaaab", 10), i))
	}
	text := []byte(strings.Repeat("aaaaaaaaab", 10_000))
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		w := s.Writer(new(strings.Builder))
		for i := range text {
			_, _ = w.Write(text[i : i+1])
		}
	}
}

// FuzzMaskPieces: whatever the secrets and the pieces, what is written is what Mask makes of the
// whole, and has no secret in any of its forms, and no end of one after a mark.
func FuzzMaskPieces(f *testing.F) {
	f.Add("a secret text", "with a secret", "text with a secret text with a secret", 12, 3)
	f.Add("a3f9c07e55d1b2ca", "a3f9c07e55d1b2ca-2", "is a3f9c07e55d1b2ca, a3f9c07e55d1b2ca-2", 5, 7)
	f.Add(`"\<é &/+%`, "aaaaaaaa", `{"a":"\"\\\u003cé \u0026/+%"}aaaaaaaaaaa`, 3, 1)
	f.Add("abcdefgh", "efghijkl", "abcdefghijkl %61bcdefgh \\\\u0061bcdefgh", 9, 2)
	f.Fuzz(func(t *testing.T, first, second, text string, at, size int) {
		if strings.Contains(first+second, "*") {
			return
		}
		var s Secrets
		s.Add("*", first)
		s.Add("**", second)
		escaped, _ := plainJSON(first)
		twice, _ := plainJSON(string(escaped))
		at = min(max(at, 0), len(text))
		text = text[:at] + first + text[at:] + second + url.QueryEscape(first) + text + url.PathEscape(second) +
			string(escaped) + text + string(twice) + base64.StdEncoding.EncodeToString([]byte(first))
		whole := s.Mask(text)

		var out strings.Builder
		w := s.Writer(&out)
		_, _ = w.Write([]byte(text[:at]))
		for rest := text[at:]; rest != ""; {
			n := min(max(size, 1), len(rest))
			_, _ = w.Write([]byte(rest[:n]))
			rest = rest[n:]
		}
		_ = w.Close()
		assert.Equal(t, out.String(), whole)

		for _, secret := range []string{first, second} {
			assert.Check(t, len(secret) < minSecret || !strings.Contains(whole, secret))
		}

		// In texts of two letters, where secrets overlap, every one of them is covered to its end.
		few := func(text string) string {
			return strings.Map(func(r rune) rune { return 'a' + r%2 }, strings.ToValidUTF8(text, ""))
		}
		text = few(text)
		secrets := []string{few(first), few(second)}
		covered, want := make([]bool, len(text)), ""
		s = Secrets{}
		s.Add("*", secrets...)
		for i := range text {
			begins := false
			for _, secret := range secrets {
				if len(secret) >= minSecret && strings.HasPrefix(text[i:], secret) {
					begins = begins || !covered[i]
					for j := range secret {
						covered[i+j] = true
					}
				}
			}
			if !covered[i] {
				want += text[i : i+1]
			} else if begins {
				want += "*"
			}
		}
		assert.Equal(t, s.Mask(text), want)
	})
}

// secretEncodings are what programs make of a text, by name.
var secretEncodings = map[string]func(string) string{
	"nothing":     strings.Clone,
	"query":       url.QueryEscape,
	"path":        url.PathEscape,
	"html":        html.EscapeString,
	"json":        jsonInner,
	"upper":       strings.ToUpper,
	"lower":       strings.ToLower,
	"hex":         func(text string) string { return fmt.Sprintf("%x", text) },
	"upper hex":   func(text string) string { return fmt.Sprintf("%X", text) },
	"base64":      func(text string) string { return base64.RawStdEncoding.EncodeToString([]byte(text)) },
	"base64url":   func(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) },
	"percent":     eachByte("%%%02x"),
	"backslash x": eachByte(`\x%02X`),
	"decimal":     eachRune("&#%d;"),
	"hexadecimal": eachRune("&#x%06X;"),
	"utf16": func(text string) (out string) {
		for _, code := range utf16.Encode([]rune(text)) {
			out += fmt.Sprintf(`\u%04x`, code)
		}
		return out
	},
	"colours":    splitBy("\x1b[0m", "\x1b[38;2;255;255;255m", "\x1b[K"),
	"zero width": splitBy("\u200b", "\u200d", "\ufeff", "\u00ad", "\u2060", "\ufe0f"),
}

func jsonInner(text string) string {
	quoted, _ := plainJSON(text)
	return strings.Trim(string(quoted), `"`)
}

func eachByte(format string) func(string) string {
	return func(text string) (out string) {
		for _, b := range []byte(text) {
			out += fmt.Sprintf(format, b)
		}
		return out
	}
}

func eachRune(format string) func(string) string {
	return func(text string) (out string) {
		for _, r := range text {
			out += fmt.Sprintf(format, r)
		}
		return out
	}
}

// splitBy puts texts between the characters of another one.
func splitBy(parts ...string) func(string) string {
	return func(text string) (out string) {
		for i, r := range []rune(text) {
			if i > 0 {
				out += parts[i%len(parts)]
			}
			out += string(r)
		}
		return out
	}
}

// TestSecretsForms: whatever was made of a secret, up to three times, and wherever a text is cut into pieces, nothing
// of the secret comes out. All that stands around it does.
func TestSecretsForms(t *testing.T) {
	secrets := []string{
		"Planted-Key.1", `p&"l<a>n't\ed`, "späße & co/+%41x", "ключ-😀-key", "a3F9C07E55d1b2ca", "100% planted",
	}
	s := new(Secrets)
	s.Add("*", secrets...)
	const before, after = "The key (", ") = [x], 50% & more\n"
	write := func(pieces ...string) string {
		var out strings.Builder
		w := s.Writer(&out)
		for _, piece := range pieces {
			_, _ = w.Write([]byte(piece))
		}
		_ = w.Close()
		return out.String()
	}
	check := func(what, secret, form string) {
		text, want := before+form+after, before+"*"+after
		assert.Check(t, is.Equal(s.Mask(text), want), "%s of %q, which is %q", what, secret, form)
		assert.Check(t, is.Equal(write(strings.Split(text, "")...), want), "%s of %q in pieces", what, secret)
	}
	decodable := []string{"query", "path", "html", "json", "percent", "backslash x", "decimal", "hexadecimal", "utf16",
		"colours", "zero width"}
	for _, secret := range secrets {
		for name, encode := range secretEncodings {
			text := before + encode(secret) + after
			check(name, secret, encode(secret))
			for cut := range len(text) {
				assert.Equal(t, write(text[:cut], text[cut:]), before+"*"+after, "%s of %q, cut at %d", name, secret, cut)
			}
			for _, outer := range decodable {
				twice := secretEncodings[outer](encode(secret))
				check(name+", "+outer, secret, twice)
			}
		}
		for _, name := range []string{"query", "path", "html", "json"} {
			encode := secretEncodings[name]
			check("three times "+name, secret, encode(encode(encode(secret))))
		}
		check("html in json in a query", secret, url.QueryEscape(jsonInner(html.EscapeString(secret))))
		check("colours in json in html", secret, html.EscapeString(jsonInner(secretEncodings["colours"](secret))))
	}
}

// TestSecretsUnrelated: a text without secrets comes out byte for byte, in whatever pieces, and nothing that is too
// short to be a secret, or that is only like one, is masked.
func TestSecretsUnrelated(t *testing.T) {
	s := ordinarySecrets()
	s.Add("*", "short", "seven77", "%41%42%43%44", "&lt;&gt;&amp;", "\u200b\u200b\u200b", "production-key")
	texts := []string{
		readText(t, "docs/mcp.md"), readText(t, "docs/config.md"), readText(t, "agent_test.go"),
		readText(t, "testdata/secrets.txt"), readText(t, "testdata/sampling.txt"),
		"short seven77 ABCD abcd <>& \u200b\u200b QUJDRA== 73686f7274 product production production- key production_key",
		"\x1b[31mred\x1b[0m 100% R&D &c; a && b &amp; " +
			"\\u00 \\ud83d \\x4 C:\\temp\\new %zz %4 é “quoted” … 日本語 🎉 \xff\xfe\xe2\x80",
		"production\x00-key ghp_ ghp_0000 &", "&#", "\x1b", "\x1b[", "%", `\`, `\u`, "\xe2", "",
	}
	for _, text := range texts {
		assert.Check(t, s.Mask(text) == text, "%.100q", text)
		for _, size := range []int{1, 7, 4096} {
			var out strings.Builder
			w := s.Writer(&out)
			for piece := range slices.Chunk([]byte(text), size) {
				_, _ = w.Write(piece)
			}
			_ = w.Close()
			assert.Check(t, out.String() == text, "%.100q in pieces of %d", text, size)
		}
	}
}

// BenchmarkMask masks texts in which there is no secret, as most have none, with as many secrets as a configuration of
// ten servers has.
func BenchmarkMask(b *testing.B) {
	s := ordinarySecrets()
	prose := strings.Repeat(readText(b, "docs/mcp.md"), 4)
	quoted, err := plainJSON(prose)
	assert.NilError(b, err)
	for _, text := range []struct{ name, text string }{
		{"prose", prose},
		{"json", string(quoted)},
		{"query", url.QueryEscape(prose)},
	} {
		b.Run(text.name, func(b *testing.B) {
			b.SetBytes(int64(len(text.text)))
			for b.Loop() {
				s.Mask(text.text)
			}
		})
	}
}

// ordinarySecrets knows 20 secrets such as servers have.
func ordinarySecrets() *Secrets {
	s := new(Secrets)
	for i := range 10 {
		sum := sha256.Sum256([]byte{byte(i)})
		s.Add("[secret]", fmt.Sprintf("ghp_%x", sum[:16]), base64.StdEncoding.EncodeToString(sum[:18]))
	}
	return s
}
