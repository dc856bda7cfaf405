// finder_rank.go - the rank of functions for words.
// Needs: Go 1.25, json, mistral, agent, ranking.
// SPDX-License-Identifier: 0BSD

package main

import (
	"cmp"
	"math"
	"slices"
	"strings"
)

// maxQuery bounds the bytes of a query: a model may send a whole document.
const maxQuery = 1000

// nameWeight is how often a word in a name counts: it is what an author thought of most. Titles,
// descriptions and parameters count once.
const nameWeight = 3

// RankFunctions returns the indexes of the functions that contain a term of the query, or one of
// its alternatives, the best matches first; equal ones are in their order. The rank is BM25, where
// each term counts as the one of its alternatives that scores most. A function whose name is the
// query, with or without the part before two underscores, comes first.
//
// Nothing is kept: each query reads all functions once. That takes less time than the next turn of
// a model by far, even for 10,000 of them (BenchmarkFinder).
func RankFunctions(functions []Function, query string) []int {
	query = strings.TrimSpace(query[:min(len(query), maxQuery)])
	r := newFunctionReader(query)
	for i := range functions {
		r.read(&functions[i])
	}
	scores := r.scores()
	var matches []int
	for i := range functions {
		isNamed := functions[i].Name == query || strings.HasSuffix(functions[i].Name, "__"+query)
		if query != "" && isNamed {
			scores[i] = math.Inf(1)
		}
		if scores[i] > 0 {
			matches = append(matches, i)
		}
	}
	slices.SortStableFunc(matches, func(i, j int) int { return cmp.Compare(scores[j], scores[i]) })
	return matches
}

// functionReader counts the terms of a query in functions.
type functionReader struct {
	query   [][]int        // the numbers of each term of the query and of its alternatives
	terms   map[string]int // the number of each of these
	words   map[string]int // the number of the word's term, -1 for others: most were read before
	counts  []float64      // of each term in the first function, in the second, …
	lengths []float64      // of each function, in words; those of its name count nameWeight times
}

func newFunctionReader(query string) *functionReader {
	r := &functionReader{terms: make(map[string]int), words: make(map[string]int)}
	for _, alternatives := range Alternatives(KeyTerms(query)) {
		var numbers []int
		for _, term := range alternatives {
			number, isKnown := r.terms[term]
			if !isKnown {
				number = len(r.terms)
				r.terms[term] = number
			}
			numbers = append(numbers, number)
		}
		r.query = append(r.query, numbers)
	}
	return r
}

// read counts the terms of one function.
func (r *functionReader) read(f *Function) {
	r.lengths = append(r.lengths, 0)
	r.counts = append(r.counts, make([]float64, len(r.terms))...)
	r.add(f.Name, nameWeight)
	r.add(f.Title, 1)
	r.add(f.Description, 1)
	s := scanner{text: f.Parameters}
	r.addSchema(&s)
}

// add counts the terms of a text of the function that is being read.
func (r *functionReader) add(text string, weight float64) {
	last := len(r.lengths) - 1
	counts := r.counts[last*len(r.terms):]
	EachWord(text, func(word []byte) {
		r.lengths[last] += weight
		number, isKnown := r.words[string(word)]
		if !isKnown {
			var isOfQuery bool
			number, isOfQuery = r.terms[Stem(string(word))]
			if !isOfQuery {
				number = -1
			}
			r.words[string(word)] = number
		}
		if number >= 0 {
			counts[number] += weight
		}
	})
}

// addSchema counts the terms in the names and descriptions of the parameters in a JSON Schema, also
// of those inside others. What a parameter may be, such as a list of words, is not counted.
func (r *functionReader) addSchema(s *scanner) {
	switch s.peek() {
	case '{':
		s.object(func(key []byte) { r.addKeyword(string(key), s) })
	case '[':
		s.array(func() { r.addSchema(s) })
	default:
		s.value()
	}
}

// addKeyword counts the terms in the value of a member of a schema.
func (r *functionReader) addKeyword(name string, s *scanner) {
	next := s.peek()
	switch {
	case name == "properties" && next == '{':
		s.object(func(key []byte) {
			r.add(string(key), 1)
			r.addSchema(s)
		})
	case (name == "description" || name == "title") && next == '"':
		r.add(s.string(), 1)
	case name == "const", name == "default", name == "enum", name == "example", name == "examples":
		s.value()
	default:
		r.addSchema(s)
	}
}

// scores returns the BM25 score of each function.
func (r *functionReader) scores() []float64 {
	ranking := BM25{Texts: float64(len(r.lengths))}
	for _, length := range r.lengths {
		ranking.Length += length
	}
	rarities := make([]float64, len(r.terms))
	for term := range rarities {
		found := 0.0
		for i := term; i < len(r.counts); i += len(r.terms) {
			if r.counts[i] > 0 {
				found++
			}
		}
		rarities[term] = ranking.Rarity(found)
	}
	scores := make([]float64, len(r.lengths))
	for i, length := range r.lengths {
		counts := r.counts[i*len(r.terms):]
		for _, alternatives := range r.query {
			best := 0.0
			for _, term := range alternatives {
				if counts[term] > 0 {
					best = max(best, ranking.Score(rarities[term], counts[term], length))
				}
			}
			scores[i] += best
		}
	}
	return scores
}
