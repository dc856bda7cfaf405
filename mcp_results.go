// mcp_results.go - how large results are decoded: lists of tools, the texts of a tool.
// Needs: Go 1.25, json, rpc.
// SPDX-License-Identifier: 0BSD

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
)

// Two results can have megabytes: a list of tools, and the result of a tool. Both are read with the
// scanner. It is several times as fast as encoding/json, keeps the schema of a tool byte for byte,
// and leaves JSON that nobody decodes as a slice of the message. All other results are read by
// encoding/json, which also decides about an element that looks odd to the scanner (FuzzDecoders).

// maxParts bounds the elements of an array, which take memory however short their text is.
const maxParts = 200_000

var errTooMany = fmt.Errorf("there are more than %d", maxParts)

// parts is an array of which each element is read by itself. An element that cannot be decoded is
// left out, so that one odd tool does not cost the other hundred. Elements after the first maxParts
// are left out, too.
type parts[T any] struct {
	items []T // nil if the array is null
	left  leftOut
}

// leftOut counts the elements that are left out, and describes the first.
type leftOut struct {
	count int
	first string
}

func (p *parts[T]) UnmarshalJSON(text []byte) error {
	return p.readArray("", &scanner{text: text})
}

// readArray reads an array. It reads null as no array. For any other value the error says with its
// name what it is.
func (p *parts[T]) readArray(name string, s *scanner) error {
	p.left = leftOut{}
	if s.peek() != '[' {
		p.items = nil
		return decodeJSON(name, s.value(), new([]T))
	}
	p.items = p.items[:0]
	if p.items == nil {
		p.items = []T{}
	}
	begin := s.at
	s.array(func() {
		s.peek()
		p.readElement(s, begin)
	})
	return nil
}

// readElement reads the element at the scanner's place. begin is where its array begins.
func (p *parts[T]) readElement(s *scanner, begin int) {
	start, count := s.at, len(p.items)
	err := errTooMany
	if count == maxParts {
		s.value()
	} else {
		p.reserve(start-begin, len(s.text)-start)
		// The element is decoded in its place, as a tool is too large to be copied for nothing.
		p.items = append(p.items, *new(T))
		err = decodeElement(s, &p.items[count])
	}
	// After a mistake in the text nothing of the array is of use.
	if err == nil || !s.ok() {
		return
	}
	p.items = p.items[:count]
	if p.left.count == 0 {
		p.left.first = fmt.Sprintf("%.80s (%v)", oneLine(s.text[start:s.at]), err)
	}
	p.left.count++
}

// reserve makes room for the next element. read is the length of the text before this element, rest
// the length of the text from here on. A full array grows to the number of elements that the rest
// can hold if they are as long as the elements so far. So a long list is moved once or twice, and
// not twenty times.
func (p *parts[T]) reserve(read, rest int) {
	count := len(p.items)
	if count == 0 || count < cap(p.items) {
		return
	}
	expected := rest/(read/count) + 1
	p.items = slices.Grow(p.items, min(expected, 7*count, maxParts-count))
}

// decodeElement decodes an element. Tools and plain texts, which can be long and many, are read by
// the scanner. All other elements, and elements that the scanner takes for invalid, are read by
// encoding/json.
func decodeElement[T any](s *scanner, item *T) error {
	start := *s
	if scanElement(s, item) {
		return nil
	}
	*s, *item = start, *new(T)
	return decodeJSON("", s.value(), item)
}

// scanElement reads an element of a type that the scanner can read, and reports whether it did. An
// interface with a method would do the same, but each call of the method would allocate a scanner.
func scanElement[T any](s *scanner, item *T) bool {
	switch item := any(item).(type) {
	case *Tool:
		return item.scan(s)
	case *ContentBlock:
		return item.scanText(s)
	}
	return false
}

// scan reads a tool, and reports whether all its members were of their types.
func (t *Tool) scan(s *scanner) bool {
	s.object(func(key []byte) {
		switch string(key) {
		case "name":
			t.Name = s.string()
		case "title":
			t.Title = s.string()
		case "description":
			t.Description = s.string()
		case "inputSchema":
			t.InputSchema = s.value()
		case "outputSchema":
			t.OutputSchema = s.value()
		case "annotations":
			t.Annotations = s.value()
		case "icons":
			t.Icons = s.value()
		case "execution":
			t.Execution = s.value()
		case "_meta":
			t.Meta = s.value()
		default:
			s.value()
		}
	})
	return s.ok()
}

// scanText reads a block that has a type and a text, and no other member.
func (b *ContentBlock) scanText(s *scanner) bool {
	s.object(func(key []byte) {
		switch string(key) {
		case "text":
			b.Text = s.string()
		case "type":
			b.Type = "text"
			if string(s.value()) != `"text"` {
				s.fail()
			}
		default:
			s.fail()
		}
	})
	return s.ok() && b.Type == "text"
}

// listPage is one page of a list.
type listPage[T any] struct {
	parts[T]
	member     string  // of the result: where the items are
	nextCursor *string // nil on the last page; "" is a cursor like any other
	ttlMs      float64 // the time that the page stays fresh, in milliseconds
	err        error   // names the first member of a wrong type
}

// ReadResult reads one page; see ResultReader.
func (p *listPage[T]) ReadResult(s *scanner) {
	*p = listPage[T]{member: p.member}
	s.object(func(key []byte) {
		err := p.readMember(s, string(key))
		if err != nil && p.err == nil {
			p.err = err
		}
	})
	if p.err == nil && !s.ok() {
		p.err = &ProtocolError{"the result is not a list of " + p.member}
	}
}

// readMember reads the value of one member of the result.
func (p *listPage[T]) readMember(s *scanner, name string) error {
	switch name {
	case p.member:
		return p.readArray("result."+name, s)
	case "nextCursor":
		return decodeJSON("result.nextCursor", s.value(), &p.nextCursor)
	case "ttlMs":
		// A ttlMs of another type counts as absent.
		_ = json.Unmarshal(s.value(), &p.ttlMs)
	default:
		s.value()
	}
	return nil
}

// toolResult is a ToolResult that is being read, with room for its content. Most results have
// one block, and then the result and its content are one allocation.
type toolResult struct {
	ToolResult
	first [1]ContentBlock
	left  leftOut
	err   error
}

// ReadResult reads the result of a tool; see ResultReader. Its strings are decoded once; members
// that stay JSON share the text. Some servers answer null where there is nothing to tell: this is a
// result without content.
func (r *toolResult) ReadResult(s *scanner) {
	*r = toolResult{}
	if s.peek() == 'n' {
		s.value()
		return
	}
	content := parts[ContentBlock]{items: r.first[:0]}
	s.object(func(key []byte) {
		switch string(key) {
		case "content":
			if content.readArray("", s) != nil {
				s.fail()
			}
			r.Content = content.items
		case "structuredContent":
			r.StructuredContent = s.value()
		case "isError":
			// Some servers write "true".
			r.IsError = string(bytes.Trim(s.value(), `"`)) == "true"
		case "_meta":
			r.Meta = s.value()
		default:
			s.value()
		}
	})
	r.left = content.left
	if !s.ok() {
		r.err = &ProtocolError{"the result is not an object with an array of content"}
	}
}
