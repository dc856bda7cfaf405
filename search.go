// search.go - ranked full-text search in memory.
// SPDX-License-Identifier: 0BSD

package main

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Index holds the passages of documents, and in which of them each word occurs. The zero value is an empty index.
// While Add runs, nothing else may use the index.
type Index struct {
	passages []Passage
	postings map[string][]posting // by term
	length   int                  // the number of terms in all passages
}

// Passage is a sequence of whole lines of a document: some paragraphs of prose, or a declaration in code.
type Passage struct {
	Source     string // the name of the document
	Text       string // the lines, unchanged
	Start, End int    // the numbers of the first and the last line; the document begins with line 1

	heading string // the heading above it; in code, the declaration's comment and first line
	length  int    // the number of terms
}

// Hit is a passage that matches a query.
type Hit struct {
	*Passage
	Similarity float64 // above 0, below 1
}

// posting is the number of times that a term occurs in a passage.
type posting struct{ passage, count int }

// Add splits a document into passages, indexes them and returns them. The heading of a passage and the name of the
// document are indexed with its text. The passages cover the text without gap or overlap.
func (x *Index) Add(source, text string, prose bool) []Passage {
	if x.postings == nil {
		x.postings = make(map[string][]posting)
	}
	first := len(x.passages)
	for _, p := range passages(text, prose) {
		p.Source = source
		counts := make(map[string]int)
		for _, part := range []string{p.Text, p.heading, source} {
			for _, t := range terms(part) {
				counts[t]++
				p.length++
			}
		}
		for t, n := range counts {
			x.postings[t] = append(x.postings[t], posting{len(x.passages), n})
		}
		x.passages = append(x.passages, p)
		x.length += p.length
	}
	return x.passages[first:]
}

// Search returns all passages that contain a term of the query, the best first, equal ones in the order of the indexes
// and of Add. The rank is BM25 (Robertson and Zaragoza, The Probabilistic Relevance Framework, 2009), over all the
// indexes as if they were one. Similarity is the score of a passage divided by the limit that the score approaches as
// every term of the query is repeated. It is comparable between queries: a passage of average length that contains
// each term once has about 0.45.
func Search(query string, indexes ...*Index) []Hit {
	const k, b = 1.2, 0.75 // the weight of a repeated term; the weight of a passage's length
	n, length, limit := 0.0, 0.0, 0.0
	for _, x := range indexes {
		n += float64(len(x.passages))
		length += float64(x.length)
	}
	scores := make([][]float64, len(indexes)) // of the passages of each index; nil if they have no term of the query
	for _, term := range keyTerms(query) {
		found := 0.0
		for _, x := range indexes {
			found += float64(len(x.postings[term]))
		}
		rarity := math.Log(1 + (n-found+0.5)/(found+0.5))
		limit += rarity * (k + 1)
		for i, x := range indexes {
			for _, p := range x.postings[term] {
				if scores[i] == nil {
					scores[i] = make([]float64, len(x.passages))
				}
				count, size := float64(p.count), float64(x.passages[p.passage].length)*n/length
				scores[i][p.passage] += rarity * (k + 1) * count / (count + k*(1-b+b*size))
			}
		}
	}
	var hits []Hit
	for i, x := range indexes {
		for j, score := range scores[i] {
			if score > 0 {
				hits = append(hits, Hit{&x.passages[j], score / limit})
			}
		}
	}
	slices.SortStableFunc(hits, func(a, b Hit) int { return cmp.Compare(b.Similarity, a.Similarity) })
	return hits
}

// Sizes of passages in bytes.
const (
	smallPassage = 200  // a smaller declaration is joined with the next one
	smallProse   = 600  // a smaller paragraph is joined with the next one under the same heading
	largePassage = 3000 // a larger passage is split, at a blank line if there is one
	maxHeading   = 1000 // the rest of a longer heading is not indexed
)

// passages splits a text into passages that cover it without gap or overlap (FuzzIndex). A unit is a paragraph of
// prose, or a declaration of code with the comment above it. Small units are joined, large ones are split. In code a
// unit begins after a blank line with a line that is not indented: that finds the declarations of most languages.
func passages(text string, prose bool) []Passage {
	var all []Passage
	start, startLine := 0, 1                 // of the current passage
	blankEnd, blankLine := 0, 0              // the end of its last blank line, and the number of the next line
	heading, headingEnd, open := 0, 0, false // the last heading; open while the next line may continue it
	cut := func(end, next int) {
		title := text[heading:min(headingEnd, heading+maxHeading)]
		all = append(all, Passage{Text: text[start:end], Start: startLine, End: next - 1, heading: title})
		start, startLine = end, next
	}
	small := smallPassage
	if prose {
		small = smallProse
	}
	at, line, blank := 0, 1, true // at is the offset of line; blank: the line before it is blank
	fenced := false               // in prose: inside a block of code
	split := false                // the current passage began inside a unit, so the next unit must not join it
	for l := range strings.Lines(text) {
		unit, titled, empty := false, false, strings.TrimSpace(l) == ""
		if prose {
			titled = !fenced && l[0] == '#' && strings.HasPrefix(strings.TrimLeft(l, "#"), " ")
			unit = titled && !open || !titled && blank && !empty && !fenced
		} else {
			unit = blank && !strings.ContainsAny(l[:1], " \t\r\n})]")
		}
		if unit && at > start && (titled || split || at-start >= small) {
			cut(at, line)
			split = false
		}
		for at > start && at+len(l)-start > largePassage {
			if split = true; blankEnd > start {
				cut(blankEnd, blankLine)
			} else {
				cut(at, line)
			}
		}
		headed := titled || !prose && (unit || open)
		if headed && unit {
			heading = at
		}
		at += len(l)
		line++
		if headed {
			headingEnd = at
		}
		if prose {
			open = headed || open && empty
			fenced = fenced != strings.HasPrefix(l, "```")
		} else {
			open = headed && strings.ContainsAny(l[:1], "/#*-;\"'<@ \t") // a comment or an annotation
		}
		if blank = empty; blank {
			blankEnd, blankLine = at, line
		}
	}
	if at > start {
		cut(at, line)
	}
	return all
}

// terms returns the words of a text as they are indexed: in lower case and without endings.
func terms(text string) []string {
	all := lowerWords(text)
	for i, w := range all {
		all[i] = stem(w)
	}
	return all
}

// keyTerms returns the distinct terms of a query without stop words. A query of stop words alone keeps them.
func keyTerms(query string) []string {
	key := slices.DeleteFunc(lowerWords(query), isStopWord)
	if len(key) == 0 {
		key = lowerWords(query)
	}
	for i, w := range key {
		key[i] = stem(w)
	}
	slices.Sort(key)
	return slices.Compact(key)
}

// lowerWords splits a text into words in lower case. An identifier gives its parts and itself: readLoop and read_loop
// both give read, loop and readloop.
func lowerWords(text string) []string {
	var all []string
	add := func(word string) {
		if word = strings.Trim(word, "_"); word != "" {
			all = append(all, strings.ToLower(word))
		}
	}
	for word := range strings.FieldsFuncSeq(text, func(r rune) bool {
		return r != '_' && !unicode.IsLetter(r) && !unicode.IsNumber(r) && !unicode.IsMark(r)
	}) {
		parts, start, before := len(all), 0, rune(0)
		for i, r := range word {
			next, _ := utf8.DecodeRuneInString(word[i+utf8.RuneLen(r):])
			if i > 0 && startsPart(before, r, next) {
				add(word[start:i])
				start = i
			}
			before = r
		}
		add(word[start:])
		if len(all)-parts > 1 {
			add(strings.ReplaceAll(word, "_", ""))
		}
	}
	return all
}

// startsPart reports whether r begins a part of an identifier: the L of readLoop, the S of HTTPServer, the _ of
// read_loop. In scripts without spaces between words every character is a part.
func startsPart(before, r, next rune) bool {
	upper := unicode.IsUpper(r) && (!unicode.IsUpper(before) || unicode.IsLower(next))
	dense := func(r rune) bool { return unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Thai) }
	return r == '_' || upper || dense(r) || dense(before)
}

func isStopWord(word string) bool {
	switch word {
	case "a", "about", "an", "and", "any", "are", "as", "at", "be", "been", "but", "by", "can", "could", "did", "do",
		"does", "for", "from", "had", "has", "have", "how", "i", "if", "in", "into", "is", "it", "its", "me", "my", "no",
		"not", "of", "on", "or", "our", "s", "should", "so", "some", "t", "than", "that", "the", "their", "them", "then",
		"there", "these", "they", "this", "those", "to", "was", "we", "were", "what", "when", "where", "which", "while",
		"who", "whom", "whose", "why", "will", "with", "would", "you", "your":
		return true
	}
	return false
}

// stem removes the most frequent English endings, in queries and in passages: deletes, deleted and deleting become
// delet, cancelled becomes cancel, queries and query become queri. The result need not be a word.
func stem(word string) string {
	if len(word) > 2 && !strings.HasSuffix(word, "ss") {
		word = strings.TrimSuffix(word, "s")
	}
	for _, ending := range []string{"ing", "ed"} {
		if w := strings.TrimSuffix(word, ending); len(w) > 2 && strings.ContainsAny(w, "aeiouy") {
			word = w
		}
	}
	if len(word) > 3 {
		word = strings.TrimSuffix(word, "e")
		front, last := word[:len(word)-1], word[len(word)-1]
		if last == 'y' {
			word = front + "i"
		} else if 'a' <= last && last <= 'z' && front[len(front)-1] == last {
			word = front
		}
	}
	return word
}
