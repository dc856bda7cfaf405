// search.go - ranked full-text search in memory.
// SPDX-License-Identifier: 0BSD

package main

import (
	"cmp"
	"encoding/binary"
	"maps"
	"math"
	"slices"
	"sort"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Document is a text to search.
type Document struct {
	Source, Text string // its name, and at most 1 GiB
	Prose        bool   // not code
}

// Index holds the passages of documents, and in which of them each word occurs. It does not change. Besides the text,
// which it shares, it takes about a third of the text's size, and has no pointers for each word: a map of slices would
// take several times as much.
type Index struct {
	Documents []Document

	passages []Passage  // of one document after the other
	length   int        // the number of terms in all passages
	names    string     // all terms, sorted
	postings []byte     // of the first term, of the second, …
	terms    []termEnds // the first one is before all terms
}

// termEnds says where the name and the postings of a term end.
type termEnds struct{ name, postings uint32 }

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

// termList has the postings of one term: for each time that it occurs a varint, the distance of the passage, counted
// from 1, from the one where it occurred before.
type termList struct {
	postings []byte
	passage  int // the last one
}

// NewIndex splits documents into passages and indexes them. The heading of a passage and the name of the document are
// indexed with its text.
func NewIndex(documents ...Document) *Index {
	x := &Index{Documents: documents}
	lists, words := make(map[string]*termList), make(map[string]*termList) // by term; by word, before its stem is taken
	for _, d := range documents {
		for _, p := range passages(d.Text, d.Prose) {
			p.Source = d.Source
			for _, part := range []string{p.Text, p.heading, d.Source} {
				eachWord(part, func(word []byte) {
					l := words[string(word)] // allocates nothing
					if l == nil {
						term := stem(string(word))
						if l = lists[term]; l == nil {
							l = new(termList)
							lists[term] = l
						}
						words[string(word)] = l
					}
					passage := len(x.passages) + 1
					l.postings = binary.AppendUvarint(l.postings, uint64(passage-l.passage))
					l.passage = passage
					p.length++
				})
			}
			x.length += p.length
			x.passages = append(x.passages, p)
		}
	}
	x.terms = append(make([]termEnds, 0, len(lists)+1), termEnds{})
	var names []byte
	for _, name := range slices.Sorted(maps.Keys(lists)) {
		names, x.postings = append(names, name...), append(x.postings, lists[name].postings...)
		x.terms = append(x.terms, termEnds{uint32(len(names)), uint32(len(x.postings))})
	}
	x.names, x.postings, x.passages = string(names), slices.Clone(x.postings), slices.Clone(x.passages)
	return x
}

// posting is the number of times that a term occurs in a passage.
type posting struct{ passage, count int32 }

// find appends the postings of a term.
func (x *Index) find(term string, all []posting) []posting {
	i, found := sort.Find(len(x.terms)-1, func(i int) int {
		return strings.Compare(term, x.names[x.terms[i].name:x.terms[i+1].name])
	})
	if !found {
		return all
	}
	passage := int32(-1)
	for at := x.terms[i].postings; at < x.terms[i+1].postings; {
		distance, size := binary.Uvarint(x.postings[at:])
		if at += uint32(size); distance > 0 {
			passage += int32(distance)
			all = append(all, posting{passage: passage})
		}
		all[len(all)-1].count++
	}
	return all
}

// Search returns the best passages that contain a term of the query, up to a limit, and the number of all. Equal ones
// are in the order of the indexes and of their documents. A passage less similar than least says for its source is
// left out. The rank is BM25 (Robertson and Zaragoza, The Probabilistic Relevance Framework, 2009), over all the
// indexes as if they were one. Similarity is the score of a passage divided by the limit that the score approaches as
// every term of the query is repeated. It is comparable between queries: a passage of average length that contains
// each term once has about 0.45.
func Search(query string, limit int, least func(source string) float64, indexes ...*Index) (hits []Hit, total int) {
	const k, b = 1.2, 0.75 // the weight of a repeated term; the weight of a passage's length
	n, length, most := 0.0, 0.0, 0.0
	for _, x := range indexes {
		n += float64(len(x.passages))
		length += float64(x.length)
	}
	scores := make([][]float64, len(indexes)) // of the passages of each index; nil if they have no term of the query
	postings := make([][]posting, len(indexes))
	for _, term := range KeyTerms(query) {
		found := 0.0
		for i, x := range indexes {
			postings[i] = x.find(term, postings[i][:0])
			found += float64(len(postings[i]))
		}
		rarity := math.Log(1 + (n-found+0.5)/(found+0.5))
		most += rarity * (k + 1)
		for i, x := range indexes {
			if scores[i] == nil && len(postings[i]) > 0 {
				scores[i] = make([]float64, len(x.passages))
			}
			for _, p := range postings[i] {
				count, size := float64(p.count), float64(x.passages[p.passage].length)*n/length
				scores[i][p.passage] += rarity * (k + 1) * count / (count + k*(1-b+b*size))
			}
		}
	}
	best := func() {
		slices.SortStableFunc(hits, func(a, b Hit) int { return cmp.Compare(b.Similarity, a.Similarity) })
		hits = hits[:min(limit, len(hits))]
	}
	floor := 0.0 // the hits that follow must be better, as limit others are as good
	for i, x := range indexes {
		source, bound := "", least("")
		for j, score := range scores[i] {
			p := &x.passages[j]
			if score > 0 && p.Source != source {
				source, bound = p.Source, least(p.Source)
			}
			if score == 0 || score/most < bound {
				continue
			}
			if total++; score/most > floor {
				hits = append(hits, Hit{p, score / most})
			}
			if len(hits) == 8*limit { // sorting all takes ten times as long
				best()
				floor = hits[limit-1].Similarity
			}
		}
	}
	best()
	return hits, total
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

// KeyTerms returns the distinct terms of a query without stop words. A query of stop words alone keeps them.
func KeyTerms(query string) []string {
	var all []string
	eachWord(query, func(word []byte) { all = append(all, string(word)) })
	key := slices.DeleteFunc(slices.Clone(all), isStopWord)
	if len(key) == 0 {
		key = all
	}
	for i, w := range key {
		key[i] = stem(w)
	}
	slices.Sort(key)
	return slices.Compact(key)
}

// eachWord splits a text into words in lower case. An identifier gives its parts and itself: readLoop and read_loop
// both give read, loop and readloop. A word is only valid until yield returns.
func eachWord(text string, yield func(word []byte)) {
	word, start, parts := make([]byte, 0, 64), 0, 0 // without _; where its last part starts; the number of the others
	before := rune(0)                               // the character before; 0 if no word has begun
	endPart := func() {
		if start < len(word) {
			yield(word[start:])
			start, parts = len(word), parts+1
		}
	}
	end := func() {
		if endPart(); parts > 1 {
			yield(word)
		}
		word, start, parts, before = word[:0], 0, 0, 0
	}
	for i, r := range text {
		switch {
		case 'a' <= r && r <= 'z' && before < utf8.RuneSelf: // nearly all: they begin no part
			word = append(word, byte(r))
		case r < '0' || r != '_' && !unicode.IsLetter(r) && !unicode.IsNumber(r) && !unicode.IsMark(r):
			end()
			continue
		default:
			next, _ := utf8.DecodeRuneInString(text[i+utf8.RuneLen(r):])
			if before != 0 && startsPart(before, r, next) {
				endPart()
			}
			if r != '_' {
				word = utf8.AppendRune(word, unicode.ToLower(r))
			}
		}
		before = r
	}
	end()
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
