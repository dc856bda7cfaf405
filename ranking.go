// ranking.go - the rank of texts for a query: its terms, and BM25.
// Needs: Go 1.25.
// SPDX-License-Identifier: 0BSD

package main

import "math"

// BM25 ranks texts for the terms of a query (Robertson and Zaragoza, The Probabilistic Relevance
// Framework, 2009). A text scores the sum of Score over the terms that it contains.
type BM25 struct {
	Texts  float64 // how many there are
	Length float64 // of all together, in terms
}

const (
	repeatWeight = 1.2  // of a repeated term; k1 in the literature
	lengthWeight = 0.75 // of a text's length; b in the literature
)

// Rarity returns the weight of a term that so many of the texts contain: rare terms say more.
func (r BM25) Rarity(texts float64) float64 {
	return math.Log(1 + (r.Texts-texts+0.5)/(texts+0.5))
}

// Score returns what a term of that rarity adds to a text of that length, in which it occurs so
// often. Where parts of a text have weights, count and length are sums of weights.
func (r BM25) Score(rarity, count, length float64) float64 {
	relativeLength := length * r.Texts / r.Length
	damping := repeatWeight * (1 - lengthWeight + lengthWeight*relativeLength)
	return rarity * (repeatWeight + 1) * count / (count + damping)
}

// Limit returns what Score approaches as the term is repeated.
func (r BM25) Limit(rarity float64) float64 { return rarity * (repeatWeight + 1) }
