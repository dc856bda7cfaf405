// screen_search.go - Ctrl-R: the search of what was said before.
// SPDX-License-Identifier: 0BSD

package main

import "strings"

// historySearch is a search that goes on with each key, as in a shell: what is typed is searched
// for, Ctrl-R goes on to what was said before that, and Ctrl-G goes back to what was there. Any
// other key ends it, and does what it does to the entry that was found.
type historySearch struct {
	words  string   // what is searched for, in any case of its letters
	isLost bool     // no further entry has them
	cells  []string // of the editor, before the search
	at     int      // likewise
	back   int      // likewise
}

// pressInSearch obeys a key of the search, which Ctrl-R begins. It reports whether it was one.
func (e *editor) pressInSearch(key rune) bool {
	s := e.search
	switch {
	case s == nil && key == keySearch && e.history != nil:
		e.search = &historySearch{cells: e.cells, at: e.at, back: e.back}
	case s == nil:
		return false
	case key == keySearch:
		e.find(e.back + 1)
	case key == keyErase || key == keyEraseLeft:
		letters := []rune(s.words)
		s.words = string(letters[:max(len(letters)-1, 0)])
		e.find(1)
	case key == keyEndSearch:
		e.set(s.cells, s.back)
		e.at = s.at
	case key >= ' ' && key != keyPaste && key != keyLostPaste:
		s.words += string(key)
		e.find(max(e.back, 1))
	default:
		e.search = nil
		return false
	}
	return true
}

// find shows the first entry from back on, counted from the end of the history, that has the words.
// If none has them, the one before stays.
func (e *editor) find(back int) {
	s := e.search
	words := strings.ToLower(s.words)
	entries := e.history.entries
	s.isLost = true
	for ; back <= len(entries) && words != ""; back++ {
		entry := entries[len(entries)-back]
		isSame := e.back > 0 && back > e.back && entry == entries[len(entries)-e.back]
		if !isSame && strings.Contains(strings.ToLower(entry), words) {
			e.recall(back)
			s.isLost = false
			break
		}
	}
	e.search = s
}

// prompt is what stands before the entry that was found. Of many words it has the beginning.
func (s *historySearch) prompt(columns int) string {
	about := "search"
	if s.isLost && s.words != "" {
		about = "not found"
	}
	return fit("("+about+": "+s.words, max(columns/2, 12)) + ") "
}
