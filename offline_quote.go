// offline_quote.go - the answers of the stand-in: passages that a search found, quoted.
// SPDX-License-Identifier: 0BSD

package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// How near a section must be to a question. Its score is its similarity, which its heading can
// raise up to three times.
const (
	leastNear  = 0.12 // to be named, for prose; code that is less than clear shares some word
	leastClear = 0.5  // to be quoted …
	clearLead  = 1.25 // … if its score is so many times that of the next one
)

// nearSections is how many sections an answer quotes or names.
const nearSections = 3

// offlineAnswer quotes the section that is clearly nearest to the question, or has it for its
// heading, and names the next ones. If none is, it names the nearest, as a section that answers
// another question is worse than none. A passage without a heading is quoted: nothing else names
// it. The answer is empty if nothing is near.
func offlineAnswer(result ChatMessage, question string) string {
	near := offlineSections(result, question)
	if len(near) == 0 {
		return ""
	}
	best, others := near[0], near[1:]
	isAhead := len(others) == 0 || best.score >= clearLead*others[0].score
	isClear := best.isAsked || best.score >= leastClear && isAhead
	hasNoHeading := func(s offlineSection) bool { return s.Heading == "" }
	if !isClear && !slices.ContainsFunc(near, hasNoHeading) {
		return "Nothing that was found is surely an answer. Nearest to the question are:\n\n" +
			offlineList(near) +
			"\nThis only searches: to read a section, ask with the words of its heading."
	}
	answer := best.place(result.Name) + "\n\n"
	if best.Heading != "" && !strings.Contains(best.Text, best.Heading) {
		answer += "Of: " + best.Heading + "\n\n"
	}
	passages := offlinePassages(result, question)
	answer += offlineCut(restOfSection(best.SearchResult, passages), best.Source) + "\n\n"
	if len(others) > 0 {
		answer += "Near to the question are also:\n\n" + offlineList(others)
	}
	return answer
}

// offlineList names sections, a line each.
func offlineList(sections []offlineSection) string {
	list := ""
	for _, s := range sections {
		heading := s.Heading
		if heading == "" {
			firstLine, _, _ := strings.Cut(s.Text, "\n")
			heading = fmt.Sprintf("%.80s", firstLine)
		}
		list += fmt.Sprintf("- %s (%s)\n", heading, s.place("…"))
	}
	return list
}

// offlineSection is the best passage of a section of a document.
type offlineSection struct {
	SearchResult
	score   float64
	isAsked bool // the question has all words of the heading, and no others
}

// restOfSection returns the text of a passage of prose, with those passages that follow it under
// its heading: what a text announces is often a block of code in the next one.
func restOfSection(p SearchResult, passages []SearchResult) string {
	text, end := p.Text, p.EndLine
	for range passages {
		// An empty line between two passages is of neither.
		next := slices.IndexFunc(passages, func(other SearchResult) bool {
			isNext := other.StartLine == end+1 || other.StartLine == end+2
			return isNext && other.Source == p.Source && other.Heading == p.Heading
		})
		if next < 0 || p.Heading == "" || !isMarkdown(p.Source) {
			break
		}
		text += "\n\n" + passages[next].Text
		end = passages[next].EndLine
	}
	return text
}

// compare orders sections: first those that are asked for, from their beginning, then the nearest.
func (s offlineSection) compare(other offlineSection) int {
	switch {
	case s.isAsked && other.isAsked:
		byLine := cmp.Compare(s.StartLine, other.StartLine)
		return cmp.Or(cmp.Compare(s.Source, other.Source), byLine)
	case s.isAsked:
		return -1
	case other.isAsked:
		return 1
	}
	return cmp.Compare(other.score, s.score)
}

// place returns the document and the line, or the tool if it tells no documents.
func (s offlineSection) place(tool string) string {
	if s.Source == "" || s.StartLine == 0 {
		return cmp.Or(s.Source, tool)
	}
	return fmt.Sprintf("%s:%d", s.Source, s.StartLine)
}

// offlineSections returns the sections of a result that are nearest to the question, the nearest
// first, and none that is not near. A tool that tells no similarity is believed.
func offlineSections(result ChatMessage, question string) (near []offlineSection) {
	for _, p := range offlinePassages(result, question) {
		if p.Similarity == 0 {
			p.Similarity = leastClear
		}
		alike := 0.0
		// A heading that asks two things answers both.
		for part := range strings.SplitSeq(p.Heading, ", ") {
			alike = max(alike, offlineAlike(question, part))
		}
		score := p.Similarity * (1 + 2*alike)
		isCode := path.Ext(p.Source) == ".go"
		if score >= leastClear || score >= leastNear && !isCode {
			isAsked := offlineAlike(question, p.Heading) == 1
			near = append(near, offlineSection{p, score, isAsked})
		}
	}
	slices.SortStableFunc(near, offlineSection.compare)
	var sections []offlineSection
	for _, s := range near {
		isSame := func(known offlineSection) bool {
			return s.Heading != "" && known.Heading == s.Heading && known.Source == s.Source
		}
		if !slices.ContainsFunc(sections, isSame) && len(sections) < nearSections {
			sections = append(sections, s)
		}
	}
	return sections
}

// offlinePassages returns the passages of a result. A result in another form than that of
// search_chunks is one passage without a source. One with the question in quotation marks is left
// out: it shows how to ask it.
func offlinePassages(result ChatMessage, question string) []SearchResult {
	text := strings.TrimSpace(result.Content.Text())
	var found struct {
		Results    []SearchResult `json:"results"`
		TotalCount *int           `json:"total_count"`
	}
	err := json.Unmarshal([]byte(text), &found)
	if err != nil || found.Results == nil && found.TotalCount == nil {
		found.Results = []SearchResult{{Text: text}}
	}
	return slices.DeleteFunc(found.Results, func(p SearchResult) bool {
		return p.Text == "" || strings.Contains(p.Text, `"`+question+`"`)
	})
}

// offlineAlike returns how many of the terms of two texts they have in common: 1 for all, 0 for
// none.
func offlineAlike(a, b string) float64 {
	termsOfA, termsOfB := KeyTerms(a), KeyTerms(b)
	common := 0
	for _, term := range termsOfA {
		if slices.Contains(termsOfB, term) {
			common++
		}
	}
	return float64(2*common) / float64(max(1, len(termsOfA)+len(termsOfB)))
}

// maxOfflineQuote is the length of a quoted passage in bytes.
const maxOfflineQuote = 2500

// offlineCut returns a passage as markdown, cut if it is too long.
func offlineCut(text, source string) string {
	switch {
	case !isMarkdown(source):
		return offlineCode(text, strings.TrimPrefix(path.Ext(source), "."))
	case len(text) <= maxOfflineQuote:
		return text
	}
	return offlineCutProse(text)
}

// isMarkdown reports whether a document can stand in an answer as it is. Any other one is code.
func isMarkdown(source string) bool {
	return slices.Contains([]string{"", ".md", ".txt"}, path.Ext(source))
}

// offlineHead finds a declaration's first line, and the comment above it.
var offlineHead = regexp.MustCompile(`^(?:(?://|#).*\n)*.*`)

// offlineCode returns a declaration as a block of code. One that is too long ends after its first
// line. The fence is longer than one in the code.
func offlineCode(text, language string) string {
	if len(text) > maxOfflineQuote {
		text = offlineHead.FindString(text) + "\n…"
	}
	fence := "```"
	if strings.Contains(text, fence) {
		fence = "````"
	}
	return fence + language + "\n" + text + "\n" + fence
}

// offlineEnd finds the end of a sentence, of a table's row, or of a block of code.
var offlineEnd = regexp.MustCompile("[^\\d\\s][.!?][)\"*_]*\\s|\\|\\n|```\\n")

// offlineCutProse cuts a text that is too long after a sentence, a row or a block of code, or else
// after a word. A sentence that ends inside a row or a block is no place to cut. A block of code
// that is longer than the room for it is closed.
func offlineCutProse(text string) string {
	end := 0
	for _, at := range offlineEnd.FindAllStringIndex(text[:maxOfflineQuote], -1) {
		lineStart := strings.LastIndexByte(text[:at[0]], '\n') + 1
		isInsideRow := text[lineStart] == '|' && text[at[0]] != '|'
		isInsideBlock := strings.Count(text[:at[1]], "```")%2 == 1
		if !isInsideRow && !isInsideBlock {
			end = at[1]
		}
	}
	lastWord := strings.LastIndexByte(text[:maxOfflineQuote], ' ') + 1
	end = cmp.Or(end, lastWord, maxOfflineQuote)
	text = strings.TrimSpace(strings.ToValidUTF8(text[:end], ""))
	if strings.Count(text, "```")%2 == 1 {
		text += "\n```"
	}
	return text + "\n\n…"
}
