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
	maxCause  = 160 // bytes of each
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

	// Lines with an error are better than lines with a complaint: the usage text that a server
	// prints below its error is full of words such as required.
	anError    = regexp.MustCompile(`(?i)error|exception|panic|fatal|caused by`)
	aComplaint = regexp.MustCompile(`(?i)fail|n't |not |unable|no (such|module)` +
		`|denied|invalid|missing|require`)

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
	if n := len(chosen); n > maxCauses {
		chosen = slices.Concat(chosen[:maxCauses-1], []string{"…", chosen[n-1]})
	}
	shown := make([]string, len(chosen))
	for i, line := range chosen {
		shown[i] = cutBetweenWords(line)
	}
	return strings.Join(shown, " | ")
}

// causeLines returns the lines of stderr that may tell a cause, or all lines if none does.
func causeLines(stderr string) []string {
	if len(stderr) >= 8<<10 {
		// Stdio keeps the last 8 KiB, so this text begins in the middle of a word.
		stderr = stderr[strings.IndexAny(stderr, " \n")+1:]
	}
	text := noise.ReplaceAllString(terminalCode.ReplaceAllString(stderr, ""), "$1")
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

// matchingLines returns the lines that match a pattern, and the lines that continue a matching one.
// It returns each text once.
func matchingLines(lines []string, pattern *regexp.Regexp) []string {
	continues := func(i int) bool {
		return i >= 0 && continued.MatchString(lines[i]) && pattern.MatchString(lines[i])
	}
	var matching []string
	for i, line := range lines {
		fits := pattern.MatchString(line) || continues(i-1) || continues(i-2)
		if fits && !slices.Contains(matching, line) {
			matching = append(matching, line)
		}
	}
	return matching
}

// cutBetweenWords cuts a long line after a word. The secrets in the line are masked later, when the
// error is shown, and half a secret would not be recognized. So a line without a blank is left out.
func cutBetweenWords(line string) string {
	if len(line) <= maxCause {
		return line
	}
	end := strings.LastIndexByte(line[:maxCause], ' ')
	return line[:max(0, end)] + " …"
}
