package main

import (
	"os"
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

// playCases plays a file that is written as the transcripts are (testdata/transcripts/README.md): each case begins
// with "== name", and below each line that is given stand the lines "=" and "->", which are what comes of it. A file
// has no others of these, so where there is none, nothing comes.
//
// play gets the lines of one case that are given, those with the marks "*", "<-" and "@", and returns what comes of
// each. With -rewrite what it returns is written to the file.
func playCases(t *testing.T, path string, play func(t *testing.T, name string, given []string) (outcomes [][]string)) {
	t.Helper()
	var played []string
	for _, lines := range sessionsOf(t, path) {
		name, isCase := strings.CutPrefix(lines[0], "== ")
		if !isCase {
			played = append(played, lines...)
			continue
		}
		given := slices.DeleteFunc(slices.Clone(lines), func(line string) bool { return !isGiven(line) })
		t.Run(name, func(t *testing.T) {
			got := withOutcomes(lines, play(t, name, given))
			played = append(played, got...)
			if *rewriteTranscripts {
				return
			}
			for i, line := range got {
				assert.Assert(t, i < len(lines) && line == lines[i], "%s, %s: below\n%s\ncomes\n%s",
					path, name, lastGiven(got[:i]), line)
			}
			assert.Equal(t, len(got), len(lines), "%s, %s: nothing comes of the last line", path, name)
		})
	}
	if *rewriteTranscripts {
		assert.NilError(t, os.WriteFile(path, []byte(strings.Join(played, "\n")+"\n"), 0o644))
	}
}

// isGiven reports whether a line of a case is one that a test acts on, and not a comment or what comes of it.
func isGiven(line string) bool {
	mark, _, _ := strings.Cut(line, " ")
	return mark == "*" || mark == "<-" || mark == "@"
}

// withOutcomes returns the lines of a case with what comes of each line that is given, in place of what stood there.
func withOutcomes(lines []string, outcomes [][]string) (all []string) {
	for _, line := range lines {
		mark, _, _ := strings.Cut(line, " ")
		if mark == "=" || mark == "->" {
			continue
		}
		all = append(all, line)
		if isGiven(line) {
			all = append(all, outcomes[0]...)
			outcomes = outcomes[1:]
		}
	}
	return all
}

func lastGiven(lines []string) string {
	for _, line := range slices.Backward(lines) {
		if isGiven(line) {
			return line
		}
	}
	return ""
}

// A case fails if anything comes that its file does not have, or does not come that it has.
func TestCasesDiffer(t *testing.T) {
	lines := []string{"== a", "* one", "= 1", "# why", "* two", "<- three", "= 3"}
	assert.DeepEqual(t, withOutcomes(lines, [][]string{{"= 1"}, nil, {"= 3"}}), lines)
	for _, outcomes := range [][][]string{
		{{"= 2"}, nil, {"= 3"}}, {nil, nil, {"= 3"}}, {{"= 1"}, {"= 2"}, {"= 3"}}, {{"= 1"}, nil, nil},
	} {
		assert.Assert(t, !slices.Equal(withOutcomes(lines, outcomes), lines), "%v", outcomes)
	}
}
