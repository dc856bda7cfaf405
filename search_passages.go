// search_passages.go - texts split into passages.
// SPDX-License-Identifier: 0BSD

package main

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Sizes of passages in bytes.
const (
	smallPassage = 200  // a smaller declaration is joined with the next one
	smallProse   = 600  // a smaller paragraph is joined with the next one under the same heading
	largePassage = 3000 // a larger passage is split, at a blank line if there is one
	maxHeading   = 1000 // of a longer heading the beginning and the last line are indexed
)

// passages splits a text into passages that cover it without gap or overlap (FuzzIndex). A unit is
// a paragraph of prose, or a declaration of code with the comment above it. Small units are joined,
// large ones are split.
func passages(text string, prose bool) []Passage {
	s := &splitter{text: text, prose: prose, small: smallPassage, afterBlank: true}
	if prose {
		s.small = smallProse
	}
	s.here.line, s.start.line = 1, 1
	for line := range strings.Lines(text) {
		s.addLine(line)
	}
	if s.here.offset > s.start.offset {
		s.cutAt(s.here)
	}
	return s.passages
}

// position is the beginning of a line.
type position struct {
	offset int // in bytes
	line   int // its number; the first one is 1
}

// splitter splits a text. It is given one line after the other, and cuts before or inside the unit
// that a line begins or continues.
type splitter struct {
	text     string
	prose    bool
	small    int // a passage of fewer bytes is joined with the next unit
	passages []Passage

	here       position // the line that is added next
	start      position // of the current passage
	blankEnd   position // the line after the last blank one
	afterBlank bool     // the line before here is blank; true at the beginning
	splitUnit  bool     // the current passage begins inside a unit: no other unit may join it

	heading     int  // where the last heading begins
	headingEnd  int  // where it ends
	headingOpen bool // the next line may continue it
	firstUnder  int  // the number of the passages before the first one that has it
	inFence     bool // in prose: inside a block of code
}

// lineRole is what a line is for the passages.
type lineRole struct {
	beginsUnit bool
	isTitle    bool // a heading of prose: the passage before it ends, however small it is
	inHeading  bool // part of the heading of the passages that follow
}

// addLine decides first whether the line ends the current passage, and then moves here past it.
func (s *splitter) addLine(line string) {
	isBlank := strings.TrimSpace(line) == ""
	var role lineRole
	if s.prose {
		role = s.proseRole(line, isBlank)
	} else {
		role = s.codeRole(line)
	}
	if role.beginsUnit {
		s.endUnit(role.isTitle)
	}
	s.splitLarge(len(line))

	if role.inHeading && role.beginsUnit {
		s.heading = s.here.offset
		s.firstUnder = len(s.passages)
	}
	s.here.offset += len(line)
	s.here.line++
	if role.inHeading {
		s.headingEnd = s.here.offset
		s.renameCut()
	}
	if isBlank {
		s.blankEnd = s.here
	}
	s.afterBlank = isBlank
}

// proseRole finds markdown's headings and the paragraphs between blank lines. Headings that follow
// each other, with or without blank lines, are one: a chapter's and that of its first section. A
// block of code belongs to the paragraph above it: a "#" in it is a comment, no heading.
func (s *splitter) proseRole(line string, isBlank bool) lineRole {
	isTitle := !s.inFence && line[0] == '#' && strings.HasPrefix(strings.TrimLeft(line, "#"), " ")
	role := lineRole{isTitle: isTitle, inHeading: isTitle}
	if isTitle {
		role.beginsUnit = !s.headingOpen
	} else {
		role.beginsUnit = s.afterBlank && !isBlank && !s.inFence
	}
	s.headingOpen = isTitle || s.headingOpen && isBlank
	if strings.HasPrefix(line, "```") {
		s.inFence = !s.inFence
	}
	return role
}

// codeRole finds the declarations of most languages: one begins after a blank line with a line that
// is not indented and closes no bracket. Its heading is the comments and annotations above it and
// the line after them.
func (s *splitter) codeRole(line string) lineRole {
	beginsUnit := s.afterBlank && !strings.ContainsAny(line[:1], " \t\r\n})]")
	inHeading := beginsUnit || s.headingOpen
	isComment := strings.ContainsAny(line[:1], "/#*-;\"'<@ \t")
	s.headingOpen = inHeading && isComment
	return lineRole{beginsUnit: beginsUnit, inHeading: inHeading}
}

// endUnit ends the current passage before a new unit, unless it is so small that the unit joins it.
func (s *splitter) endUnit(beforeTitle bool) {
	size := s.here.offset - s.start.offset
	if size > 0 && (beforeTitle || s.splitUnit || size >= s.small) {
		s.cutAt(s.here)
		s.splitUnit = false
	}
}

// splitLarge makes room for a line of so many bytes: it cuts at the last blank line, or else before
// the line. A line that alone is too large is a passage all the same.
func (s *splitter) splitLarge(size int) {
	for s.here.offset > s.start.offset && s.here.offset+size-s.start.offset > largePassage {
		s.splitUnit = true
		if s.blankEnd.offset > s.start.offset {
			s.cutAt(s.blankEnd)
		} else {
			s.cutAt(s.here)
		}
	}
}

// cutAt ends the current passage at a line, which begins the next one.
func (s *splitter) cutAt(next position) {
	s.passages = append(s.passages, Passage{
		Text:    s.text[s.start.offset:next.offset],
		Start:   s.start.line,
		End:     next.line - 1,
		heading: s.boundedHeading(),
	})
	s.start = next
}

// renameCut gives the passages that were cut inside of a comment the heading of the declaration
// below it, which is read only now.
func (s *splitter) renameCut() {
	if s.headingOpen {
		return
	}
	for i := s.firstUnder; i < len(s.passages); i++ {
		s.passages[i].heading = s.boundedHeading()
	}
}

// boundedHeading returns the current heading. A longer one loses what is before its last line, as
// that is the declaration under a comment.
func (s *splitter) boundedHeading() string {
	heading := s.text[s.heading:s.headingEnd]
	if len(heading) <= maxHeading {
		return heading
	}
	last := strings.TrimRight(heading[len(heading)-maxHeading/2:], "\r\n")
	last = last[strings.LastIndexByte(last, '\n')+1:]
	return strings.ToValidUTF8(heading[:maxHeading-1-len(last)]+"\n"+last, "")
}

// isInternal reports whether a passage of Go is for those who work on the package, not for those
// who use it: it is of a test, or it declares names of which none is exported. The later parts of a
// long declaration are judged by their heading.
func isInternal(p Passage) bool {
	if !strings.HasSuffix(p.Source, ".go") {
		return false
	}
	if strings.HasSuffix(p.Source, "_test.go") {
		return true
	}
	declaresAny := false
	for line := range strings.Lines(p.Text) {
		declares, isExported := declaration(line)
		if isExported {
			return false
		}
		declaresAny = declaresAny || declares
	}
	if declaresAny {
		return true
	}
	declares, isExported := declaration(p.Heading())
	return declares && !isExported
}

// declaration reports whether a line of Go declares a name at the top of a file, and whether it is
// exported. A method is exported only if its type is, too. The names of type parameters do not
// count, and those that a group in parentheses declares are not known.
func declaration(line string) (declares, isExported bool) {
	keyword, name, _ := strings.Cut(line, " ")
	switch keyword {
	case "func", "type", "var", "const":
	default:
		return false, false
	}
	inParentheses, isOpen := strings.CutPrefix(name, "(")
	if !isOpen {
		return true, beginsUpper(name)
	}
	receiver, method, isMethod := strings.Cut(inParentheses, ") ")
	receiver, _, _ = strings.Cut(receiver, "[")
	receiverType := strings.TrimLeft(receiver[strings.LastIndexByte(receiver, ' ')+1:], "*")
	return isMethod, isMethod && beginsUpper(receiverType) && beginsUpper(method)
}

// beginsUpper reports whether a text begins with an upper case letter: such a name is exported.
func beginsUpper(text string) bool {
	first, _ := utf8.DecodeRuneInString(text)
	return unicode.IsUpper(first)
}
