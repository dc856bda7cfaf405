// ranking_terms.go - texts split into words, and words into terms.
// Needs: Go 1.25.
// SPDX-License-Identifier: 0BSD

package main

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// KeyTerms returns the distinct terms of a query without stop words. A query of stop words alone
// keeps them.
func KeyTerms(query string) []string {
	var words []string
	EachWord(query, func(word []byte) { words = append(words, string(word)) })
	key := slices.DeleteFunc(slices.Clone(words), isStopWord)
	if len(key) == 0 {
		key = words
	}
	for i, word := range key {
		key[i] = Stem(word)
	}
	slices.Sort(key)
	return slices.Compact(key)
}

// EachWord splits a text into words in lower case. An identifier gives its parts and itself:
// readLoop and read_loop both give read, loop and readloop. A word is valid until yield returns.
func EachWord(text string, yield func(word []byte)) {
	s := wordSplitter{word: make([]byte, 0, 64), yield: yield}
	for i, r := range text {
		isASCIILower := 'a' <= r && r <= 'z'
		switch {
		case isASCIILower && s.before < utf8.RuneSelf:
			// Nearly every character comes here. It begins no part: only one after a character of
			// a script without spaces could.
			s.word = append(s.word, byte(r))
			s.before = r
		case isWordRune(r):
			next, _ := utf8.DecodeRuneInString(text[i+utf8.RuneLen(r):])
			s.addRune(r, next)
		default:
			s.endWord()
		}
	}
	s.endWord()
}

// isWordRune reports whether a character belongs to a word. The first comparison is for speed:
// spaces and most punctuation come before the digits.
func isWordRune(r rune) bool {
	if r < '0' {
		return false
	}
	return r == '_' || unicode.IsLetter(r) || unicode.IsNumber(r) || unicode.IsMark(r)
}

// wordSplitter holds the word that EachWord is reading.
type wordSplitter struct {
	word      []byte // in lower case, without _
	partStart int    // where its last part begins
	parts     int    // the number of the parts before that
	before    rune   // the character before; 0 if no word has begun
	yield     func(word []byte)
}

// addRune adds a character, which next follows.
func (s *wordSplitter) addRune(r, next rune) {
	if s.before != 0 && beginsPart(s.before, r, next) {
		s.endPart()
	}
	if r != '_' {
		s.word = utf8.AppendRune(s.word, unicode.ToLower(r))
	}
	s.before = r
}

func (s *wordSplitter) endPart() {
	if s.partStart < len(s.word) {
		s.yield(s.word[s.partStart:])
		s.partStart = len(s.word)
		s.parts++
	}
}

func (s *wordSplitter) endWord() {
	s.endPart()
	if s.parts > 1 {
		s.yield(s.word)
	}
	s.word = s.word[:0]
	s.partStart, s.parts, s.before = 0, 0, 0
}

// beginsPart reports whether r begins a part of an identifier: the L of readLoop, the S of
// HTTPServer, the _ of read_loop. In scripts without spaces between words every character is a
// part.
func beginsPart(before, r, next rune) bool {
	beginsCapitalised := unicode.IsUpper(r) && (!unicode.IsUpper(before) || unicode.IsLower(next))
	return r == '_' || beginsCapitalised || hasNoSpaces(r) || hasNoSpaces(before)
}

// hasNoSpaces reports whether a character is of a script that does not separate its words.
func hasNoSpaces(r rune) bool {
	return unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Thai)
}

// isStopWord reports whether a word says nothing about what a question asks for.
func isStopWord(word string) bool {
	switch word {
	case "a", "about", "an", "and", "another", "any", "are", "as", "at", "be", "been", "but", "by",
		"can", "could", "did", "do", "does", "for", "from", "had", "has", "have", "how",
		"i", "if", "in", "into", "is", "it", "its", "me", "my", "no", "not", "of", "on",
		"or", "our", "s", "should", "so", "some", "t", "than", "that", "the", "their",
		"them", "then", "there", "these", "they", "thing", "this", "those", "to", "was", "we",
		"were", "what", "when", "where", "which", "while", "who", "whom", "whose", "why",
		"will", "with", "would", "you", "your":
		return true
	}
	return false
}

// Stem removes the most frequent English endings, in queries and in passages: deletes, deleted and
// deleting become delet, cancelled becomes cancel, queries and query become queri. Spellings of
// Britain and America are one: licence and license become licens. The result need not be a word.
func Stem(word string) string {
	if len(word) > 2 && !strings.HasSuffix(word, "ss") {
		word = strings.TrimSuffix(word, "s")
	}
	for _, ending := range []string{"ing", "ed"} {
		if w := strings.TrimSuffix(word, ending); len(w) > 2 && strings.ContainsAny(w, "aeiouy") {
			word = w
		}
	}
	if len(word) <= 3 {
		return word
	}
	word = strings.TrimSuffix(word, "e")
	front, last := word[:len(word)-1], word[len(word)-1]
	isASCIILower := 'a' <= last && last <= 'z'
	switch {
	case last == 'y':
		return front + "i"
	case isASCIILower && front[len(front)-1] == last:
		return front
	}
	return americanSpelling(word)
}

// americanSpelling turns the ending of a word without its e.
func americanSpelling(word string) string {
	for _, ending := range [][2]string{
		{"our", "or"}, {"is", "iz"}, {"isation", "ization"}, {"enc", "ens"},
	} {
		if front, found := strings.CutSuffix(word, ending[0]); found {
			return front + ending[1]
		}
	}
	return word
}
