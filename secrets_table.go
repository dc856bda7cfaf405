// secrets_table.go - a table that finds many texts in one pass over another one.
// SPDX-License-Identifier: 0BSD

package main

// secretTable finds all secrets in one pass over a text (Aho and Corasick, 1975). Nothing changes
// it.
//
// Each node of the table is the beginning of a secret; the first node is the empty beginning. While
// a text is read, the search is at the longest node with which the text so far ends. The next byte
// leads to a node with one byte more. If there is no such node, the search goes on from the
// fallback of the node: the longest shorter node with which the text so far also ends.
type secretTable struct {
	nodes  []secretNode
	longer map[nodeStep]int // the number of the node with one byte more
	first  [256]bool        // the bytes with which secrets begin: most texts have few of them
}

// nodeStep is a node and the byte that follows.
type nodeStep struct {
	node int
	b    byte
}

type secretNode struct {
	depth    int    // the length of the beginning
	isOpen   bool   // it is the beginning of a longer node
	fallback int    // the longest other node that this node ends with
	secret   int    // the length of the longest secret that this node ends with, 0 for none
	mark     string // of that secret
}

// newSecretTable makes the table of the secrets that have these marks. Short nodes are made before
// long nodes: the fallback of a node is shorter than the node, and must be there before it.
func newSecretTable(marks map[string]string) *secretTable {
	t := &secretTable{nodes: make([]secretNode, 1), longer: make(map[nodeStep]int)}
	// Of each secret that is longer than depth, reached has the node of its first bytes.
	reached := make(map[string]int)
	for text := range marks {
		t.first[text[0]] = true
		reached[text] = 0
	}
	for depth := 1; len(reached) > 0; depth++ {
		for text, node := range reached {
			next := t.extend(node, text[depth-1])
			reached[text] = next
			if depth == len(text) {
				t.nodes[next].secret = depth
				t.nodes[next].mark = marks[text]
				delete(reached, text)
			}
		}
	}
	return t
}

// extend returns the node with one byte more, and adds this node if it is not there.
func (t *secretTable) extend(node int, b byte) int {
	to := nodeStep{node, b}
	next, isKnown := t.longer[to]
	if isKnown {
		return next
	}
	added := secretNode{depth: t.nodes[node].depth + 1}
	if node != 0 {
		added.fallback = t.step(t.nodes[node].fallback, b)
		// A secret with which the fallback ends is also an end of this node.
		added.secret = t.nodes[added.fallback].secret
		added.mark = t.nodes[added.fallback].mark
	}
	next = len(t.nodes)
	t.nodes = append(t.nodes, added)
	t.nodes[node].isOpen = true
	t.longer[to] = next
	return next
}

// step returns the longest node that a node with one more byte ends with.
func (t *secretTable) step(node int, b byte) int {
	for {
		next := t.longer[nodeStep{node, b}]
		if next != 0 || node == 0 {
			return next
		}
		node = t.nodes[node].fallback
	}
}
