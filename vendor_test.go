package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

// sourceHeader is what the first lines of a file say.
type sourceHeader struct {
	idea  string
	needs []string // sibling files
	lines int
}

var headerForm = regexp.MustCompile(`^// (\S+\.go) - (.+)\.\n// Needs: Go 1\.25((?:, [a-z_]+\.go)*)\.\n// SPDX-License-Identifier: 0BSD\n\n`)

// readHeaders reads the header of every file of the program.
func readHeaders(t *testing.T) map[string]sourceHeader {
	files, err := filepath.Glob("*.go")
	assert.NilError(t, err)
	headers := make(map[string]sourceHeader)
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		assert.NilError(t, err)
		h := headerForm.FindSubmatch(text)
		assert.Assert(t, h != nil, "%s has no header of the form %s", file, headerForm)
		assert.Equal(t, string(h[1]), file)
		var needs []string
		if len(h[3]) > 0 {
			needs = strings.Split(string(h[3][2:]), ", ")
		}
		headers[file] = sourceHeader{string(h[2]), needs, bytes.Count(text, []byte("\n"))}
	}
	return headers
}

// vetAlone copies files into a module of their own, under another package name, and vets that for
// the systems. The module proxy is off: the standard library is all there is.
func vetAlone(t *testing.T, files []string, systems ...string) error {
	dir := t.TempDir()
	assert.NilError(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module vendored\n\ngo 1.25\n"), 0o600))
	for _, file := range files {
		text, err := os.ReadFile(file)
		assert.NilError(t, err)
		text = bytes.Replace(text, []byte("\npackage main\n"), []byte("\npackage vendored\n"), 1)
		assert.NilError(t, os.WriteFile(filepath.Join(dir, file), text, 0o600))
	}
	for _, system := range systems {
		vet := exec.Command("go", "vet", ".")
		vet.Dir = dir
		vet.Env = append(os.Environ(), "GOOS="+system, "GOPROXY=off", "GOFLAGS=-mod=mod", "GOWORK=off", "CGO_ENABLED=0")
		out, err := vet.CombinedOutput()
		if err != nil && !bytes.Contains(out, []byte("build constraints exclude all Go files")) {
			return fmt.Errorf("%v for %s: %w\n%s", files, system, err, out)
		}
	}
	return nil
}

// TestVendorable: each file works in another program with the files that it names, and needs each of them.
func TestVendorable(t *testing.T) {
	if testing.Short() || raceEnabled {
		t.Skip("runs go vet a hundred times, and finds no races")
	}
	for file, header := range readHeaders(t) {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			assert.NilError(t, vetAlone(t, append([]string{file}, header.needs...), "linux", "darwin", "windows"))
			for i, need := range header.needs {
				rest := slices.Delete(slices.Clone(header.needs), i, i+1)
				assert.Assert(t, vetAlone(t, append([]string{file}, rest...), "linux", "darwin", "windows") != nil,
					"%s does not need %s", file, need)
			}
		})
	}
}

// family is what the parts of one thing have in common: mcp.go, mcp_lists.go.
func family(file string) string {
	name, _, _ := strings.Cut(strings.TrimSuffix(file, ".go"), "_")
	return name
}

// shortNeeds are a file's needs, with one word for all files of a family.
func shortNeeds(file string, headers map[string]sourceHeader) string {
	needs := headers[file].needs
	switch len(needs) {
	case 0:
		return "–"
	case len(headers) - 1:
		return "all others"
	}
	var short []string
	for _, need := range needs {
		name, members, all := need, 0, true
		for other := range headers {
			if family(other) == family(need) && other != file {
				members++
				all = all && slices.Contains(needs, other)
			}
		}
		if members > 1 && all {
			name = family(need) + "*.go"
		}
		if name = "`" + name + "`"; !slices.Contains(short, name) {
			short = append(short, name)
		}
	}
	return strings.Join(short, ", ")
}

// TestFileTable: the table of files in the README has every file, after those that it needs, with the idea,
// the needs and, to the nearest ten, the lines that the file itself has.
func TestFileTable(t *testing.T) {
	headers := readHeaders(t)
	readme, err := os.ReadFile("README.md")
	assert.NilError(t, err)
	row := regexp.MustCompile("(?m)^\\| `([a-z_]+\\.go)` \\| (.+) \\| (.+) \\| (\\d+) \\|$")
	var seen []string
	for _, cells := range row.FindAllStringSubmatch(string(readme), -1) {
		file := cells[1]
		header, ok := headers[file]
		assert.Assert(t, ok, "README names %s, which is not there", file)
		for _, need := range header.needs {
			assert.Assert(t, family(need) == family(file) || slices.Contains(seen, need), "README has %s before %s, which it needs", file, need)
		}
		want := fmt.Sprintf("| `%s` | %s | %s | %d |", file, header.idea, shortNeeds(file, headers), (header.lines+5)/10*10)
		assert.Equal(t, cells[0], want)
		seen = append(seen, file)
	}
	assert.Equal(t, len(seen), len(headers), "README names %d of %d files: %v", len(seen), len(headers), seen)
}

// TestReadmeAnswer: what the README says the first command prints is what it prints, but for the line's number.
func TestReadmeAnswer(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	assert.NilError(t, err)
	_, sample, _ := strings.Cut(string(readme), "\n```\nrpc.go:")
	sample, _, ok := strings.Cut(sample, "\n…\n")
	assert.Assert(t, ok)
	_, sample, _ = strings.Cut(sample, "\n")
	o := runProgram(t, "", nil, "How does a call find its answer?")
	assert.Assert(t, strings.HasPrefix(o.stdout, "rpc.go:"), o.stdout)
	assert.Assert(t, strings.Contains(o.stdout, sample), "%s\nis not in\n%s", sample, o.stdout)
}

// TestReadmeNamesTests: the tests that the README names are there.
func TestReadmeNamesTests(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	assert.NilError(t, err)
	files, err := filepath.Glob("*_test.go")
	assert.NilError(t, err)
	var tests []byte
	for _, file := range files {
		text, err := os.ReadFile(file)
		assert.NilError(t, err)
		tests = append(tests, text...)
	}
	names := regexp.MustCompile("`((?:Test|Fuzz)[A-Za-z]+)`").FindAllSubmatch(readme, -1)
	assert.Assert(t, len(names) > 20)
	for _, name := range names {
		assert.Check(t, bytes.Contains(tests, slices.Concat([]byte("\nfunc "), name[1], []byte("("))), "there is no %s", name[1])
	}
}

// TestStandardLibraryOnly: the program imports nothing else.
func TestStandardLibraryOnly(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", ".").Output()
	assert.NilError(t, err)
	assert.Equal(t, strings.TrimSpace(string(out)), "mcpagent")
}
