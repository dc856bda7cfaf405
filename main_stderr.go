// main_stderr.go - what an error shows of a server's last words: the lines that name a cause.
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
	// terminalCode matches what moves or colours, and blanks at the end of a line.
	terminalCode = regexp.MustCompile("(?m)[ \r]+$|\x1b(?:\\[[0-?]*[ -/]*[@-~]|\\][^\a\x1b]*(?:\a|\x1b\\\\)|[@-Z_])")

	// noise matches a line of source with the marks below it, or below the frame of Python that it is of; Go's frames of
	// a goroutine, what was written over, and what Python draws before the lines of an exception group.
	noise = regexp.MustCompile(`(?m)^.*\n[ \t|]*[~^][ \t~^]*$` +
		`|^[ \t|]*File ".*", line \d+.*\n[ \t]*(?:\| )? {4}[ \t]*[^ \t|\n].*` +
		`|^goroutine \d+ .*\[.*(?:\n.+)*|^.*\r(.)|^[ \t]*(?:\| ?|\+ )`)

	// noCause matches single lines that tell no cause: stack frames, lines without a letter, versions, members of an
	// error of Node.js, hints about logs.
	noCause = regexp.MustCompile(`^\s+(at|File) \S|^[^\pL]*$|^\s*\S+:\d+$|^\s*\.\.\. \d+ more|^exit status \d+$` +
		`|^(Node\.js|Bun|Deno) v?\d|^\s+\w+: ('.*'|-?\d+|\[.*\]|\[|\{),?$` +
		`|Traceback \(most recent call last\)|^(The above|During handling of the above) exception` +
		`|^stack backtrace:|^\s+\d+: \S|^note: |^npm (warn|notice)|^npm (error|ERR!)( \w+)?$|A complete log of this run`)

	// An error beats a complaint: usage texts are full of words such as required.
	anError     = regexp.MustCompile(`(?i)error|exception|panic|fatal|caused by`)
	aComplaint  = regexp.MustCompile(`(?i)fail|n't |not |unable|no (such|module)|denied|invalid|missing|require`)
	isContinued = regexp.MustCompile(`:$|validation errors? for `) // the next two lines say what it is
)

// StderrExcerpt returns one line with what is likely to be the reason why a server ended: the lines of its stderr that
// name an error, else those that complain of something, else the last ones. Long lines are cut between words, as half
// a secret would not be masked.
func StderrExcerpt(stderr string) string {
	if len(stderr) >= 8<<10 { // all that Stdio keeps: it begins in the middle of a word
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
	chosen := lines[max(0, len(lines)-maxCauses):]
	for _, pattern := range []*regexp.Regexp{aComplaint, anError} {
		var matching []string
		for i, line := range lines {
			told := i > 0 && isContinued.MatchString(lines[i-1]) && pattern.MatchString(lines[i-1]) ||
				i > 1 && isContinued.MatchString(lines[i-2]) && pattern.MatchString(lines[i-2])
			if (told || pattern.MatchString(line)) && !slices.Contains(matching, line) {
				matching = append(matching, line)
			}
		}
		if len(matching) > 0 {
			chosen = matching
		}
	}
	if n := len(chosen); n > maxCauses {
		chosen = append(chosen[:maxCauses-1:maxCauses-1], "…", chosen[n-1])
	}
	for i, line := range chosen {
		if len(line) > maxCause {
			chosen[i] = line[:max(0, strings.LastIndexByte(line[:maxCause], ' '))] + " …"
		}
	}
	return strings.Join(chosen, " | ")
}
