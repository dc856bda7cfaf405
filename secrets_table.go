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
//
// Upper and lower case are the same to it, and so are + and a space: see foldByte.
type secretTable struct {
	nodes []secretNode
	first [256]int  // the nodes of one byte, by that byte, folded or not; 0 for none
	quiet [256]bool // the bytes that begin neither a secret nor an escape, as most bytes of a text
}

type secretNode struct {
	b        byte   // the last byte
	depth    int    // the length of the beginning
	longer   int    // the first of the nodes with one byte more, 0 for none
	sibling  int    // the next of the nodes that differ from this one in b alone, 0 for none
	fallback int    // the longest other node that this node ends with
	secret   int    // the length of the longest secret that this node ends with, 0 for none
	mark     string // of that secret
}

// newSecretTable makes the table of the secrets that have these marks, which are folded. Short
// nodes are made before long nodes: the fallback of a node is shorter than the node, and must be
// there before it.
func newSecretTable(marks map[string]string) *secretTable {
	t := &secretTable{nodes: make([]secretNode, 1)}
	// Of each secret that is longer than depth, reached has the node of its first bytes.
	reached := make(map[string]int)
	for text := range marks {
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
	for b := range t.first {
		t.first[b] = t.first[foldByte(byte(b))]
		t.quiet[b] = t.first[b] == 0 && !beginsEscape(byte(b))
	}
	return t
}

// extend returns the node with one byte more, and adds this node if it is not there.
func (t *secretTable) extend(node int, b byte) int {
	next := t.longer(node, b)
	if next != 0 {
		return next
	}
	added := secretNode{b: b, depth: t.nodes[node].depth + 1}
	next = len(t.nodes)
	if node == 0 {
		t.first[b] = next
	} else {
		added.fallback = t.step(t.nodes[node].fallback, b)
		// A secret with which the fallback ends is also an end of this node.
		added.secret = t.nodes[added.fallback].secret
		added.mark = t.nodes[added.fallback].mark
		added.sibling = t.nodes[node].longer
		t.nodes[node].longer = next
	}
	t.nodes = append(t.nodes, added)
	return next
}

// longer returns the node with one byte more, 0 if there is none.
func (t *secretTable) longer(node int, b byte) int {
	if node == 0 {
		return t.first[b]
	}
	next := t.nodes[node].longer
	for next != 0 && t.nodes[next].b != b {
		next = t.nodes[next].sibling
	}
	return next
}

// step returns the longest node that a node with one more byte ends with.
func (t *secretTable) step(node int, b byte) int {
	b = foldByte(b)
	for {
		next := t.longer(node, b)
		if next != 0 || node == 0 {
			return next
		}
		node = t.nodes[node].fallback
	}
}

// foldByte returns the byte that stands for a byte in the table: programs write a key in upper or
// lower case, as that of a header, and a query has + for a space.
func foldByte(b byte) byte {
	switch {
	case 'A' <= b && b <= 'Z':
		return b + 'a' - 'A'
	case b == '+':
		return ' '
	}
	return b
}

// foldText returns a text with each byte folded.
func foldText(text string) string {
	folded := []byte(text)
	for i, b := range folded {
		folded[i] = foldByte(b)
	}
	return string(folded)
}
