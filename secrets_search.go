// secrets_search.go - where in a text the secrets are, whatever the text was encoded for.
// SPDX-License-Identifier: 0BSD

package main

import "slices"

// maxEncodings is how often a text may have been encoded: a key in a URL, in JSON, in the JSON of a
// log.
const maxEncodings = 3

// secretSearch looks for secrets in a text that comes byte by byte.
//
// A log may show a secret as it is, or as JSON, HTML or a URL has it, or as one of these has that:
// "a+b" as "a\u002bb", "a&#43;b", "a%2Bb" or "a%252Bb". So several texts are searched at the same
// time: the text as it is, decoded once, decoded twice and three times. Each finding is a stretch
// of the text as it is. Secrets that overlap become one stretch, so that no end of a secret is
// left. The stretch gets the mark of the secret that begins first.
//
// Most of a text has no escapes, and there all levels have the same text, of which one search is
// enough.
type secretSearch struct {
	table  *secretTable
	read   int       // bytes so far
	found  []stretch // in order; no two overlap
	levels [maxEncodings + 1]searchLevel

	// isAlike says that all levels are where the first one is.
	isAlike bool
	// plain counts the last bytes that stood for themselves at all levels.
	plain int
}

// searchLevel is the search of one text: as it is, or decoded so many times.
type searchLevel struct {
	node    int       // of the table: the longest end of the text that begins a secret
	starts  []int     // where in the text as it is the bytes of node begin
	escapes unescaper // makes the text of the next level
}

// stretch is a part of the text in which secrets were found.
type stretch struct {
	start, end int    // counted from the beginning of the text
	mark       string // "" when it has been written
}

func newSecretSearch(table *secretTable) *secretSearch {
	return &secretSearch{table: table, isAlike: true}
}

// searchText goes on with a piece of the text.
func searchText[T string | []byte](s *secretSearch, piece T) {
	for i := 0; i < len(piece); i++ {
		if s.isAlike && s.levels[0].node == 0 {
			begin := i
			for i < len(piece) && s.table.quiet[piece[i]] {
				i++
			}
			s.read += i - begin
			s.plain += i - begin
		}
		if i < len(piece) {
			s.readByte(piece[i])
		}
	}
}

// readByte goes on with one byte.
func (s *secretSearch) readByte(b byte) {
	c := char{b, s.read, s.read + 1}
	s.read++
	s.plain++
	isPlain := !beginsEscape(b)
	if s.isAlike && isPlain {
		s.step(0, c)
		return
	}
	if s.isAlike {
		s.separate()
	}
	if !isPlain {
		s.plain = 0
	}
	s.readChar(0, c)
	s.isAlike = s.areAlike()
}

// readChar goes on with one character at a level, and with what becomes of it at the next levels.
func (s *secretSearch) readChar(level int, c char) {
	s.step(level, c)
	if level == maxEncodings {
		return
	}
	decoded, isChanged := s.levels[level].escapes.readChar(c)
	if isChanged {
		s.plain = 0
	}
	for _, d := range decoded {
		s.readChar(level+1, d)
	}
}

// step goes on with one character at a level, and notes the secret that ends with it.
func (s *secretSearch) step(level int, c char) {
	l := &s.levels[level]
	l.node = s.table.step(l.node, c.b)
	n := &s.table.nodes[l.node]
	if !s.isAlike {
		l.starts = append(l.starts, c.start)
		l.starts = l.starts[len(l.starts)-n.depth:]
	}
	if n.secret > 0 {
		s.add(stretch{s.startOf(level, n.depth-n.secret), c.end, n.mark})
	}
}

// startOf returns where in the text as it is a byte of a level's node begins.
func (s *secretSearch) startOf(level, index int) int {
	l := &s.levels[level]
	if s.isAlike {
		return s.read - s.table.nodes[l.node].depth + index
	}
	return l.starts[index]
}

// separate has each level searched by itself from now on.
func (s *secretSearch) separate() {
	first := &s.levels[0]
	depth := s.table.nodes[first.node].depth
	first.starts = first.starts[:0]
	for i := range depth {
		first.starts = append(first.starts, s.read-1-depth+i)
	}
	for level := 1; level <= maxEncodings; level++ {
		l := &s.levels[level]
		l.node = first.node
		l.starts = append(l.starts[:0], first.starts...)
	}
	s.isAlike = false
}

// areAlike reports whether all levels are at the same node again: what each of them looks back at
// is within the bytes that stood for themselves.
func (s *secretSearch) areAlike() bool {
	for i := range s.levels {
		l := &s.levels[i]
		if len(l.escapes.pending) > 0 || s.table.nodes[l.node].depth > s.plain {
			return false
		}
	}
	return true
}

// end ends the text: what began an escape stands for itself.
func (s *secretSearch) end() {
	for level := range maxEncodings {
		for _, c := range s.levels[level].escapes.end() {
			s.readChar(level+1, c)
		}
	}
}

// settled returns the first place at which a secret or an escape may have begun that has not ended
// yet. If there is none, it returns the end of the text.
func (s *secretSearch) settled() int {
	place := s.read
	for level := range s.levels {
		l := &s.levels[level]
		if len(l.escapes.pending) > 0 {
			place = min(place, l.escapes.pending[0].start)
		}
		place = min(place, s.openStart(level))
		if s.isAlike {
			break
		}
	}
	return place
}

// openStart returns the first place at which a secret may have begun at a level.
func (s *secretSearch) openStart(level int) int {
	l := &s.levels[level]
	depth := s.table.nodes[l.node].depth
	for node := l.node; node != 0; node = s.table.nodes[node].fallback {
		n := &s.table.nodes[node]
		if n.longer != 0 {
			return s.startOf(level, depth-n.depth)
		}
	}
	return s.read
}

// add adds the stretch of a secret, and joins it with the stretches that it overlaps. Levels are
// not equally far, so a stretch may come after one that stands behind it.
func (s *secretSearch) add(found stretch) {
	from := len(s.found)
	for from > 0 && s.found[from-1].end > found.start {
		from--
	}
	to := from
	for to < len(s.found) && s.found[to].start < found.end {
		to++
	}
	for _, other := range s.found[from:to] {
		found.end = max(found.end, other.end)
		if other.start < found.start {
			found.start, found.mark = other.start, other.mark
		}
	}
	s.found = slices.Replace(s.found, from, to, found)
}

// masked returns the part before end of a text that ends with the last byte that was read. All
// secrets in this part have been found. A stretch that goes beyond end becomes its mark now, and
// the rest of the stretch stays: another secret may begin in this rest, and make the stretch
// longer.
func (s *secretSearch) masked(text []byte, end int) []byte {
	first := s.read - len(text)
	if len(s.found) == 0 || s.found[0].start >= end {
		return text[:end-first]
	}
	var out []byte
	at := first
	for len(s.found) > 0 && s.found[0].start < end {
		f := &s.found[0]
		out = append(out, text[at-first:max(at, f.start)-first]...)
		out = append(out, f.mark...)
		f.mark = ""
		at = min(f.end, end)
		if f.end > end {
			return out
		}
		s.found = s.found[1:]
	}
	return append(out, text[at-first:end-first]...)
}
