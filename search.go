// search.go - ranked full-text search in memory.
// Needs: Go 1.25.
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

// Index finds passages of documents by the words of a query. The zero value is an empty index. Searches may run
// concurrently with each other, but not with Add.
type Index struct {
	passages []Passage
	postings map[string][]posting // by term
	length   int                  // terms of all passages together
}

// Passage is a run of whole lines of a document: some paragraphs of prose, or a declaration in code.
type Passage struct {
	Source     string // the document
	Text       string // the lines as they are, with their ends
	Start, End int    // the lines' numbers, from 1, inclusive

	heading string // what it stands under; in code, the comment above the declaration and its first line
	length  int    // terms
}

// Hit is a passage that matches a query.
type Hit struct {
	*Passage
	Similarity float64 // above 0, below 1
}

// posting says how often a term occurs in a passage.
type posting struct{ passage, count int }

// Add cuts a document into passages and indexes them. Each one's heading and the document's name count as if they
// were written in it. It returns the passages, which cover the text without gap or overlap.
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

// Search returns all passages that have a term of the query, best first, equals in the order they were added in. The
// rank is BM25 (Robertson and Zaragoza, The Probabilistic Relevance Framework, 2009). Similarity is a passage's score
// divided by that of an imaginary one that repeats every term of the query without end. So it tells how much of the
// query is met, whatever the query, and about 0.45 is a passage of average length that has each term once.
func (x *Index) Search(query string) []Hit {
	const k, b = 1.2, 0.75 // how soon repeating a term stops to count; how much a passage's length does
	scores, best, n := make([]float64, len(x.passages)), 0.0, float64(len(x.passages))
	for _, w := range keyTerms(query) {
		found := float64(len(x.postings[w]))
		rarity := math.Log(1 + (n-found+0.5)/(found+0.5))
		best += rarity * (k + 1)
		for _, p := range x.postings[w] {
			count, size := float64(p.count), float64(x.passages[p.passage].length)*n/float64(x.length)
			scores[p.passage] += rarity * (k + 1) * count / (count + k*(1-b+b*size))
		}
	}
	var hits []Hit
	for i, score := range scores {
		if score > 0 {
			hits = append(hits, Hit{&x.passages[i], score / best})
		}
	}
	slices.SortStableFunc(hits, func(a, b Hit) int { return cmp.Compare(b.Similarity, a.Similarity) })
	return hits
}

// Sizes of passages in bytes.
const (
	smallPassage = 200  // one that is smaller takes in its neighbour
	smallProse   = 600  // the same for paragraphs, under one heading
	largePassage = 3000 // a larger one is cut, at a blank line if there is one
	maxHeading   = 1000 // more of it is not indexed with each passage under it
)

// passages cuts a text into runs of lines that cover it without gap or overlap (FuzzPassages). Its units are, in prose,
// paragraphs; in code, declarations with the comments above them. Small units are put together, large ones cut.
func passages(text string, prose bool) []Passage {
	var all []Passage
	at := 0         // bytes in all
	inside := false // the last of all began inside a unit, so the next unit must not join it
	small := smallPassage
	if prose {
		small = smallProse
	}
	for _, b := range blocks(text, prose) {
		last := len(all) - 1
		if last >= 0 && len(all[last].Text)+len(b.Text) <= largePassage &&
			(!b.unit || len(all[last].Text) < small && !b.titled && !inside) {
			p := &all[last]
			p.Text, p.End = text[at-len(p.Text):at+len(b.Text)], b.End
			if b.unit && b.heading != p.heading {
				p.heading += b.heading
			}
		} else {
			all, inside = append(all, b.Passage), !b.unit
		}
		at += len(b.Text)
	}
	return all
}

// block is some lines up to and with the blank ones behind them.
type block struct {
	Passage
	unit   bool // begins a unit, rather than going on with it
	titled bool // begins with a heading
}

// blocks cuts a text after blank lines, before headings, and where a block would be too large. In prose a blank line
// ends a unit; in code it does if the next line is at the left margin, which finds the declarations of most languages
// without knowing any.
func blocks(text string, prose bool) []block {
	var all []block
	at, line, blank := 0, 1, true
	fenced := false                          // in prose: between two lines of ```
	heading, headingEnd, open := 0, 0, false // where the last one is, and whether the next line may go on with it
	for l := range strings.Lines(text) {
		end := at + len(l)
		unit, titled, empty := len(all) == 0, false, strings.TrimSpace(l) == ""
		if prose {
			titled = !fenced && l[0] == '#' && strings.HasPrefix(strings.TrimLeft(l, "#"), " ")
			switch {
			case titled && open:
				headingEnd = end
			case titled:
				unit, heading, headingEnd, open = true, at, end, true
			case !empty:
				unit, open = unit || blank && !fenced, false
			}
			fenced = fenced != strings.HasPrefix(l, "```")
		} else if !strings.ContainsAny(l[:1], " \t\r\n})]") {
			if blank {
				unit, heading, open = true, at, true
			}
			if open {
				headingEnd = end
				open = strings.ContainsAny(l[:1], `/#*-;"'<@`) // a comment or an annotation
			}
		}
		last := len(all) - 1
		if unit || blank && !empty || len(all[last].Text)+len(l) > largePassage {
			all = append(all, block{Passage{Start: line}, unit, titled})
			last++
		}
		b := &all[last]
		b.Text, b.End = text[at-len(b.Text):end], line
		b.heading = text[heading:min(headingEnd, heading+maxHeading)]
		at, line, blank = end, line+1, empty
	}
	return all
}

// terms are the words of a text as the index has them, in lower case and without endings.
func terms(text string) []string {
	all := lowerWords(text)
	for i, w := range all {
		all[i] = stem(w)
	}
	return all
}

// keyTerms are the terms of a query, each once, without the words that questions are made of; with them if there are no
// others.
func keyTerms(query string) []string {
	all := lowerWords(query)
	if key := slices.DeleteFunc(slices.Clone(all), isStopWord); len(key) > 0 {
		all = key
	}
	for i, w := range all {
		all[i] = stem(w)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// lowerWords takes a text apart. An identifier counts as a whole and by its parts: readLoop and read_loop are read,
// loop and readloop.
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

// startsPart says whether a part of an identifier begins with r: the L of readLoop, the S of HTTPServer, the _ of
// read_loop. In scripts that put no spaces between words, every sign is a part.
func startsPart(before, r, next rune) bool {
	dense := func(r rune) bool { return unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Thai) }
	return r == '_' || unicode.IsUpper(r) && (!unicode.IsUpper(before) || unicode.IsLower(next)) || dense(r) || dense(before)
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

// stem takes the commonest English endings off, alike in queries and in passages: deletes, deleted and deleting are
// delet, cancelled is cancel, queries is queri as query is. What is left need not be a word.
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
