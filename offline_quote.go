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

// offlineAnswer quotes the last results, each of which belongs to one part of the question, and
// names the parts for which nothing was found. A quote that answers two parts is given once.
func offlineAnswer(parts []string, results []ChatMessage) (answer, missed string) {
	last := results[max(0, len(results)-len(parts)):]
	for i, result := range last {
		quote := offlineQuote(result, parts[i], 3/len(parts))
		if quote == "" {
			missed += fmt.Sprintf("Nothing was found for %q.\n", parts[i])
		} else if !strings.Contains(answer, quote) {
			answer += quote
		}
	}
	return answer, missed
}

// offlineQuote quotes at most so many passages of a search result with their sources: the best one,
// what goes on from it, and what is nearly as good.
func offlineQuote(result ChatMessage, question string, most int) (quote string) {
	passages := offlinePassages(result, question)
	offlineRank(passages, question)
	for _, p := range passages {
		if most == 0 {
			break
		}
		if !offlineFits(p, passages[0]) {
			continue
		}
		most--
		quote += cmp.Or(p.Source, result.Name)
		if p.StartLine > 0 {
			quote += fmt.Sprintf(":%d", p.StartLine)
		}
		quote += "\n\n" + offlineCut(p.Text, p.Source) + "\n\n"
	}
	return quote
}

// offlinePassages returns the passages of a result. A result in another form than that of
// search_chunks is one passage without a source. Two kinds of passages are left out: an indented
// one, which is the middle of a declaration, and one with the question in quotation marks, which
// shows how to ask it.
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
		isMiddle := strings.HasPrefix(p.Text, "\t")
		isExample := strings.Contains(p.Text, `"`+question+`"`)
		return p.Text == "" || isMiddle || isExample
	})
}

var offlineHeading = regexp.MustCompile(`^(?:#.*\n\s*)+`)

// offlineRank sorts passages. One whose heading is much of the question gains up to three times its
// similarity, and one of this program's code stands behind prose that is as similar.
func offlineRank(passages []SearchResult, question string) {
	for i, p := range passages {
		alike := 0.0
		for _, part := range offlineParts(offlineHeading.FindString(p.Text)) {
			alike = max(alike, offlineAlike(question, part))
		}
		passages[i].Similarity *= 1 + 2*alike
		if path.Ext(p.Source) == ".go" {
			passages[i].Similarity *= 0.8
		}
	}
	slices.SortStableFunc(passages, func(a, b SearchResult) int {
		return cmp.Compare(b.Similarity, a.Similarity)
	})
}

// minOfflineSimilarity is the least similarity of a passage that is quoted. A passage below it only
// shares some word with the question.
const minOfflineSimilarity = 0.4

// offlineFits reports whether a passage is worth quoting, given the best one. Nothing was found if
// it accepts no passage. A tool that tells no similarity is believed.
func offlineFits(p, best SearchResult) bool {
	if 0 < p.Similarity && p.Similarity < minOfflineSimilarity || p.Source != best.Source {
		return false
	}
	follows := p.StartLine > best.EndLine && p.StartLine < best.EndLine+3
	goesOn := follows && p.Text[0] != '#'
	return goesOn || p.Similarity >= 0.9*best.Similarity
}

// maxOfflineQuote is the length of a quoted passage in bytes.
const maxOfflineQuote = 1600

// offlineCut returns a passage as markdown, cut if it is too long.
func offlineCut(text, source string) string {
	language := strings.TrimPrefix(path.Ext(source), ".")
	switch {
	case language != "" && language != "md" && language != "txt":
		return offlineCode(text, language)
	case len(text) <= maxOfflineQuote:
		return text
	}
	return offlineCutProse(text)
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
