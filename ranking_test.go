package main

import (
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"gotest.tools/v3/assert"
)

// terms returns the words of a text as they are indexed.
func terms(text string) (all []string) {
	EachWord(text, func(word []byte) { all = append(all, Stem(string(word))) })
	return all
}

func TestTerms(t *testing.T) {
	for text, want := range map[string]string{
		"readLoop read_loop":              "read loop readloop read loop readloop",
		"HTTPServer parseURL":             "http server httpserver pars url parseurl",
		"_private __init__ x_1":           "privat init x 1 x1",
		"deletes deleted deleting delete": "delet delet delet delet",
		"cancelled cancel cancels":        "cancel cancel cancel",
		"queries query, matches match":    "queri queri match match",
		"string bring need ids process":   "string bring need id proces",
		"licence license, colours color":  "licens licens color color",
		"authorised authorizing":          "authoriz authoriz",
		"organisation organization":       "organization organization",
		"Réalisme ÉTÉ naïve":              "réalism été naïv",
		"2026-07-28 -32600":               "2026 07 28 32600",
		"搜索 text":                         "搜 索 搜索 text",
		"don't":                           "don t",
		"\xff\xfe invalid \x00 UTF\xc3":   "invalid utf",
		"":                                "",
	} {
		assert.Equal(t, strings.Join(terms(text), " "), want, "%q", text)
	}
}

// splitWords is the plain form of EachWord.
func splitWords(text string) (all []string) {
	for word := range strings.FieldsFuncSeq(text, func(r rune) bool {
		return r != '_' && !unicode.IsLetter(r) && !unicode.IsNumber(r) && !unicode.IsMark(r)
	}) {
		runes := append([]rune(word), utf8.RuneError)
		var parts []string
		for i, r := range runes[:len(runes)-1] {
			if i == 0 || beginsPart(runes[i-1], r, runes[i+1]) {
				parts = append(parts, "")
			}
			if r != '_' {
				parts[len(parts)-1] += strings.ToLower(string(r))
			}
		}
		whole := strings.Join(parts, "")
		parts = slices.DeleteFunc(parts, func(part string) bool { return part == "" })
		if all = append(all, parts...); len(parts) > 1 {
			all = append(all, whole)
		}
	}
	return all
}

func TestKeyTerms(t *testing.T) {
	assert.DeepEqual(t, KeyTerms("How does a call find its answer? A call!"), []string{"answer", "cal", "find"})
	assert.DeepEqual(t, KeyTerms("Is there a thing that counts?"), []string{"count"})
	assert.DeepEqual(t, KeyTerms("to be or not to be"), []string{"be", "not", "or", "to"})
	assert.Equal(t, len(KeyTerms("?")), 0)
}

// TestAlternatives: a word of people has those of programs beside it, and not the other way round.
func TestAlternatives(t *testing.T) {
	assert.DeepEqual(t, Alternatives(KeyTerms("Drop the remarks!")), [][]string{{"drop", "delet"}, {"remark", "comment"}})
	assert.DeepEqual(t, Alternatives(KeyTerms("delete")), [][]string{{"delet"}})
	assert.DeepEqual(t, Alternatives(KeyTerms("rate")), [][]string{{"rat"}})
	assert.Equal(t, len(Alternatives(nil)), 0)
}

// TestSynonyms: each word of programs has one line, in the order of the alphabet, and words of people on it that are
// found: each once, in lower case, none a stop word, and none with the term of the line's first.
func TestSynonyms(t *testing.T) {
	var heads []string
	for line := range strings.Lines(synonyms) {
		head, rest, hasColon := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		words := strings.Split(rest, " ")
		assert.Check(t, hasColon && slices.IsSorted(words), line)
		assert.Equal(t, len(slices.Compact(words)), len(words), line)
		for _, word := range append(words, head) {
			assert.DeepEqual(t, splitWords(word), []string{strings.ToLower(word)})
			assert.Check(t, !isStopWord(word), "%s: %s", head, word)
		}
		for _, word := range words {
			assert.Check(t, Stem(word) != Stem(head), "%s: %s", head, word)
			assert.Check(t, slices.Contains(Alternatives([]string{Stem(word)})[0], Stem(head)), "%s: %s", head, word)
		}
		heads = append(heads, head)
	}
	assert.Check(t, slices.IsSorted(heads))
	assert.Equal(t, len(slices.Compact(heads)), len(heads))
}

// TestBM25: rare terms say more than frequent ones, a term in a short text more than in a long one, and each further
// time less than the one before, up to a limit.
func TestBM25(t *testing.T) {
	r := BM25{Texts: 100, Length: 1000}
	rare, frequent := r.Rarity(1), r.Rarity(50)
	assert.Check(t, rare > frequent && frequent > 0)
	assert.Check(t, r.Rarity(100) > 0, "a term of all texts lowers no score")
	assert.Check(t, r.Score(rare, 1, 5) > r.Score(rare, 1, 20))
	once, twice, thrice := r.Score(rare, 1, 10), r.Score(rare, 2, 10), r.Score(rare, 3, 10)
	assert.Check(t, thrice-twice < twice-once && once < twice && twice < thrice)
	assert.Check(t, r.Score(rare, 1e9, 10) < r.Limit(rare) && r.Score(rare, 1e9, 10) > 0.99*r.Limit(rare))
}
