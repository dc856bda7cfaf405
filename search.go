// search.go - ranked full-text search in memory.
// SPDX-License-Identifier: 0BSD

package main

import (
	"cmp"
	"encoding/binary"
	"maps"
	"slices"
	"sort"
	"strings"
)

// Document is a text to search.
type Document struct {
	Source string // its name
	Text   string // at most 1 GiB
	Prose  bool   // false for code
}

// Index holds the passages of documents, and in which of them each word occurs. It does not change,
// so any number of goroutines may search it.
//
// Besides the text, which it shares, it takes about a third of the text's size. For that it has no
// pointers for each word: the names of all terms stand in one string and their postings in one
// slice, and a term is two ends in them. A map of slices would take several times as much.
type Index struct {
	Documents []Document

	passages []Passage  // of one document after the other
	length   int        // the number of terms in all passages
	names    string     // all terms, sorted
	postings []byte     // of the first term, of the second, …
	terms    []termEnds // the first one is before all terms
}

// termEnds says where the name and the postings of a term end. They begin where those of the term
// before it end.
type termEnds struct{ name, postings uint32 }

// Passage is a sequence of whole lines of a document: some paragraphs of prose, or a declaration in
// code.
type Passage struct {
	Source     string // the name of the document
	Text       string // the lines, unchanged
	Start, End int    // the numbers of the first and the last line; the document begins with line 1

	heading  string // the heading above it; in code, the declaration's comment and first line
	length   int    // the number of terms
	internal bool   // see isInternal
}

// Heading returns the last of the headings above the passage, without its marks. In code it is the
// first line of the declaration. A text without headings has none.
func (p *Passage) Heading() string {
	lines := strings.Split(strings.TrimSpace(p.heading), "\n")
	return strings.TrimSpace(strings.TrimLeft(lines[len(lines)-1], "#"))
}

// Hit is a passage that matches a query.
type Hit struct {
	*Passage
	Similarity float64 // above 0, below 1
}

// NewIndex splits documents into passages and indexes them. The heading of a passage and the name
// of the document are indexed with its text.
func NewIndex(documents ...Document) *Index {
	b := &indexBuilder{
		byTerm: make(map[string]*termList),
		byWord: make(map[string]*termList),
	}
	for _, d := range documents {
		for _, p := range passages(d.Text, d.Prose) {
			p.Source = d.Source
			p.internal = isInternal(p)
			b.addPassage(p)
		}
	}
	x := b.index()
	x.Documents = documents
	return x
}

// indexBuilder collects passages and, for each term, where it occurs. It is used by one goroutine.
type indexBuilder struct {
	passages []Passage
	length   int // the number of terms in all passages
	byTerm   map[string]*termList
	byWord   map[string]*termList // the list of the word's term: most words are known already
}

// termList has the postings of one term: for each time that it occurs a varint, the distance of the
// passage, counted from 1, from the one where it occurred before.
type termList struct {
	postings []byte
	last     int // the passage where it occurred last
}

func (b *indexBuilder) addPassage(p Passage) {
	number := len(b.passages) + 1
	addWord := func(word []byte) {
		b.addWord(word, number)
		p.length++
	}
	EachWord(p.Text, addWord)
	EachWord(p.heading, addWord)
	EachWord(p.Source, addWord)
	b.length += p.length
	b.passages = append(b.passages, p)
}

// addWord notes that a word occurs in the passage of that number. Looking for a word that is known
// allocates nothing.
func (b *indexBuilder) addWord(word []byte, number int) {
	list := b.byWord[string(word)]
	if list == nil {
		list = b.listOf(Stem(string(word)))
		b.byWord[string(word)] = list
	}
	list.postings = binary.AppendUvarint(list.postings, uint64(number-list.last))
	list.last = number
}

// listOf returns the list of a term, which is a new one for a new term.
func (b *indexBuilder) listOf(term string) *termList {
	list := b.byTerm[term]
	if list == nil {
		list = new(termList)
		b.byTerm[term] = list
	}
	return list
}

// index packs what was collected. The slices are cloned to give back the room that they grew by.
func (b *indexBuilder) index() *Index {
	terms := make([]termEnds, 1, len(b.byTerm)+1)
	var names, postings []byte
	for _, name := range slices.Sorted(maps.Keys(b.byTerm)) {
		names = append(names, name...)
		postings = append(postings, b.byTerm[name].postings...)
		terms = append(terms, termEnds{uint32(len(names)), uint32(len(postings))})
	}
	return &Index{
		passages: slices.Clone(b.passages), length: b.length,
		names: string(names), postings: slices.Clone(postings), terms: terms,
	}
}

// internalWeight lowers the rank of a passage that isInternal. What is asked of code is mostly how
// to use it, and tests and helpers repeat the words of what they serve, more often than that does.
const internalWeight = 0.7

// posting is the number of times that a term occurs in a passage.
type posting struct{ passage, count int32 }

// appendPostings appends the postings of a term: none if no passage contains it.
func (x *Index) appendPostings(all []posting, term string) []posting {
	i, found := sort.Find(len(x.terms)-1, func(i int) int {
		return strings.Compare(term, x.names[x.terms[i].name:x.terms[i+1].name])
	})
	if !found {
		return all
	}
	passage := int32(-1)
	packed := x.postings[x.terms[i].postings:x.terms[i+1].postings]
	for len(packed) > 0 {
		distance, size := binary.Uvarint(packed)
		packed = packed[size:]
		if distance > 0 {
			passage += int32(distance)
			all = append(all, posting{passage: passage})
		}
		all[len(all)-1].count++
	}
	return all
}

// Search returns the best passages that contain a term of the query, up to a limit, and the number
// of all. Equal ones are in the order of the indexes and of their documents. For each source, least
// returns the similarity that its passages must have: those below it are left out.
//
// The rank is BM25, over all the indexes as if they were one. Similarity is the score of a passage
// divided by the limit that the score approaches as every term of the query is repeated. It is
// comparable between queries: a passage of average length that contains each term once has about
// 0.45. Of two that match alike, one of exported declarations comes first: see internalWeight.
func Search(
	query string,
	limit int,
	least func(source string) float64,
	indexes ...*Index,
) (hits []Hit, total int) {
	scores, limitOfScore := scorePassages(KeyTerms(query), indexes)
	best := bestHits{limit: limit}
	for i, x := range indexes {
		// The passages of a document follow each other, so least is asked once for each document.
		source := ""
		leastOfSource := least(source)
		for j, score := range scores[i] {
			if score == 0 {
				continue
			}
			p := &x.passages[j]
			if p.Source != source {
				source = p.Source
				leastOfSource = least(source)
			}
			similarity := score / limitOfScore
			if p.internal {
				similarity *= internalWeight
			}
			if similarity >= leastOfSource {
				total++
				best.offer(Hit{p, similarity})
			}
		}
	}
	best.keepBest()
	return best.hits, total
}

// scorePassages returns the BM25 score of each passage of each index, and the limit that a score
// approaches as every term is repeated. An index that has none of the terms has no scores.
func scorePassages(terms []string, indexes []*Index) (scores [][]float64, limitOfScore float64) {
	var ranking BM25
	for _, x := range indexes {
		ranking.Texts += float64(len(x.passages))
		ranking.Length += float64(x.length)
	}
	scores = make([][]float64, len(indexes))
	postings := make([][]posting, len(indexes))
	for _, term := range terms {
		found := 0.0
		for i, x := range indexes {
			postings[i] = x.appendPostings(postings[i][:0], term)
			found += float64(len(postings[i]))
		}
		rarity := ranking.Rarity(found)
		limitOfScore += ranking.Limit(rarity)
		for i, x := range indexes {
			if scores[i] == nil && len(postings[i]) > 0 {
				scores[i] = make([]float64, len(x.passages))
			}
			for _, p := range postings[i] {
				length := float64(x.passages[p.passage].length)
				scores[i][p.passage] += ranking.Score(rarity, float64(p.count), length)
			}
		}
	}
	return scores, limitOfScore
}

// bestHits keeps the best hits of those that it is offered, and of equal ones the first. It sorts
// each time that it holds eight times as many as it must: sorting all at the end takes ten times as
// long.
type bestHits struct {
	limit int // how many to keep
	hits  []Hit
	floor float64 // limit hits are as similar as this, so a new one must be more similar
}

func (b *bestHits) offer(h Hit) {
	if h.Similarity <= b.floor {
		return
	}
	b.hits = append(b.hits, h)
	if len(b.hits) == 8*b.limit {
		b.keepBest()
		b.floor = b.hits[b.limit-1].Similarity
	}
}

// keepBest sorts the hits and drops those beyond the limit.
func (b *bestHits) keepBest() {
	slices.SortStableFunc(b.hits, func(x, y Hit) int {
		return cmp.Compare(y.Similarity, x.Similarity)
	})
	b.hits = b.hits[:min(b.limit, len(b.hits))]
}
