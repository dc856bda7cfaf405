// main_excerpt.go - the excerpt of a server's stderr for an error: the lines that name a cause.
// SPDX-License-Identifier: 0BSD

package main

import (
	"regexp"
	"slices"
	"strings"
)

const (
	maxCauses = 4   // lines that are shown
	maxCause  = 240 // bytes of each
	maxBegin  = 160 // bytes of the beginning of a longer one
)

var (
	// terminalCode matches codes that move the cursor or set colours, and blanks at the end of a
	// line.
	terminalCode = regexp.MustCompile("(?m)[ \r]+$" +
		"|\x1b(?:\\[[0-?]*[ -/]*[@-~]|\\][^\a\x1b]*(?:\a|\x1b\\\\)|[@-Z_])")

	// noise matches, over several lines: a line of source with the marks below it; a frame of
	// Python with its line of source; Go's frames of a goroutine; a line that was written over; and
	// the frame that Python draws before the lines of an exception group.
	noise = regexp.MustCompile(`(?m)^.*\n[ \t|]*[~^][ \t~^]*$` +
		`|^[ \t|]*File ".*", line \d+.*\n[ \t]*(?:\| )? {4}[ \t]*[^ \t|\n].*` +
		`|^goroutine \d+ .*\[.*(?:\n.+)*|^.*\r(.)|^[ \t]*(?:\| ?|\+ )`)

	// noCause matches single lines that tell no cause: stack frames, lines without a letter,
	// versions, members of an error of Node.js, hints about logs.
	noCause = regexp.MustCompile(`^\s+(at|File) \S|^[^\pL]*$|^\s*\S+:\d+$|^\s*\.\.\. \d+ more` +
		`|^exit status \d+$|^(Node\.js|Bun|Deno) v?\d|^\s+\w+: ('.*'|-?\d+|\[.*\]|\[|\{),?$` +
		`|Traceback \(most recent call last\)|^(The above|During handling of the above) exception` +
		`|^stack backtrace:|^\s+\d+: \S|^note: |^npm (warn|notice)|^npm (error|ERR!)( \w+)?$` +
		`|A complete log of this run`)

	// causeTree matches an error or a cause as uv draws it, with the rows that it is folded into.
	causeTree = regexp.MustCompile(`(?m)^  (×|[├╰]─▶) (.*(?:\n  [│ ] +\S.*)*)`)

	// causeList matches the causes that Rust's anyhow and eyre print, which are numbered if there
	// are several.
	causeList = regexp.MustCompile(`(?m)^(?:Caused by|Error):[ \t]*\n(?:[ \t]+\d+: .*\n?)+` +
		`|^Caused by:[ \t]*\n[ \t]+\S.*`)
	causeNumber = regexp.MustCompile(`(?m)^[ \t]+(?:\d+: )?`)

	// aCause matches a link in a chain of causes. The last link is the one that says most.
	aCause = regexp.MustCompile(`(?i)^\[?cause(d by)?\]?: `)

	// Lines with an error are better than lines with a complaint: the usage text that a server
	// prints below its error is full of words such as required.
	anError    = regexp.MustCompile(`(?i)error|exception|panic|fatal|caused by|\bcause\]?: `)
	aComplaint = regexp.MustCompile(`(?i)fail|n't |not |unable|no (such|module)` +
		`|denied|invalid|missing|require`)

	digits = regexp.MustCompile(`\d+`)

	// continued matches a line whose next two lines say what the error is.
	continued = regexp.MustCompile(`:$|validation errors? for `)
)

// StderrExcerpt returns one line with the likely reason why a server ended: the lines of its stderr
// that name an error, else the lines that complain of something, else the last lines.
func StderrExcerpt(stderr string) string {
	lines := causeLines(stderr)
	chosen := matchingLines(lines, anError)
	if len(chosen) == 0 {
		chosen = matchingLines(lines, aComplaint)
	}
	if len(chosen) == 0 {
		chosen = lines[max(0, len(lines)-maxCauses):]
	}
	return strings.Join(shortened(chosen), " | ")
}

// shortened returns at most maxCauses of the lines, and a sign where others are left out. The first
// and the last line stay, and the last link of each chain of causes, and then the first lines.
func shortened(lines []string) []string {
	kept := make(map[int]bool)
	keep := func(i int) {
		if len(kept) < maxCauses {
			kept[i] = true
		}
	}
	last := len(lines) - 1
	keep(0)
	keep(last)
	for i := range last {
		if aCause.MatchString(lines[i]) && !aCause.MatchString(lines[i+1]) {
			keep(i)
		}
	}
	var shown []string
	for i, line := range lines {
		keep(i)
		switch {
		case kept[i]:
			shown = append(shown, cutBetweenWords(line))
		case kept[i-1]:
			shown = append(shown, "…")
		}
	}
	return shown
}

// causeLines returns the lines of stderr that may tell a cause, or all lines if none does.
func causeLines(stderr string) []string {
	if len(stderr) >= 8<<10 {
		// Stdio keeps the last 8 KiB, so this text begins in the middle of a word.
		stderr = stderr[strings.IndexAny(stderr, " \n")+1:]
	}
	text := noise.ReplaceAllString(terminalCode.ReplaceAllString(stderr, ""), "$1")
	text = withPlainCauses(text)
	all := strings.FieldsFunc(text, func(r rune) bool { return r == '\n' })
	lines := slices.DeleteFunc(slices.Clone(all), noCause.MatchString)
	if len(lines) == 0 {
		lines = all
	}
	for i, line := range lines {
		lines[i] = strings.TrimSpace(line)
	}
	return lines
}

// withPlainCauses puts each cause onto a line of its own that begins with "cause: ".
func withPlainCauses(text string) string {
	text = causeTree.ReplaceAllStringFunc(text, func(drawn string) string {
		sign, words, _ := strings.Cut(strings.TrimSpace(drawn), " ")
		words = strings.ReplaceAll(words, "\n  │ ", "\n")
		words = strings.Join(strings.Fields(words), " ")
		if sign == "×" {
			return "error: " + words
		}
		return "cause: " + words
	})
	return causeList.ReplaceAllStringFunc(text, func(list string) string {
		_, causes, _ := strings.Cut(list, "\n")
		return causeNumber.ReplaceAllString(causes, "cause: ")
	})
}

// matchingLines returns the lines that match a pattern, and the lines that continue a matching one.
// Of lines that differ in numbers alone, as those about each try do, it returns the first.
func matchingLines(lines []string, pattern *regexp.Regexp) []string {
	continues := func(i int) bool {
		return i >= 0 && continued.MatchString(lines[i]) && pattern.MatchString(lines[i])
	}
	var matching []string
	isKnown := make(map[string]bool)
	for i, line := range lines {
		fits := pattern.MatchString(line) || continues(i-1) || continues(i-2)
		text := digits.ReplaceAllString(line, "0")
		if fits && !isKnown[text] {
			isKnown[text] = true
			matching = append(matching, line)
		}
	}
	return matching
}

// cutBetweenWords cuts a long line between words, and leaves out its middle: the end of a line may
// name the cause, too. What is left out of a line without a blank is all of it, as a part might be
// that of a secret which was not recognized.
func cutBetweenWords(line string) string {
	if len(line) <= maxCause {
		return line
	}
	end := max(0, strings.LastIndexByte(line[:maxBegin], ' '))
	rest := line[len(line)-(maxCause-maxBegin):]
	begin := strings.IndexByte(rest, ' ')
	if begin < 0 {
		begin = len(rest)
	}
	return strings.TrimRight(line[:end]+" …"+rest[begin:], " ")
}
