// corpus.go - the text files of a folder, read once into memory.
// Needs: Go 1.25, search.go.
// SPDX-License-Identifier: 0BSD

package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"unicode/utf8"
)

// Folder says which files a corpus is made of: the text files of FS, within bounds. Of a bound, 0 is the default.
type Folder struct {
	FS       fs.FS
	Skip     string // a path.Match pattern of base names to leave out
	MaxFile  int64  // bytes of one file, default 2 MiB
	MaxFiles int    // default 20,000
	MaxTotal int64  // bytes of all files together, default 256 MiB
}

// Corpus is the files of a folder as they were read. It does not change, so anybody may read it.
type Corpus struct {
	Index     Index
	Documents []Document     // in the order of their sources
	LeftOut   map[string]int // files and folders, by reason
}

// Document is one file.
type Document struct {
	Source          string // its path in the folder, with slashes
	Text            string // valid UTF-8
	Lines, Passages int
}

// ReadCorpus reads the files of a folder, and tells how many are done about fifty times, however many there are. That
// single files cannot be read is no error: LeftOut counts them.
func ReadCorpus(ctx context.Context, f *Folder, progress func(done, total int, source string)) (*Corpus, error) {
	c := &Corpus{LeftOut: make(map[string]int)}
	sources, err := f.scan(ctx, c.LeftOut)
	if err != nil {
		return nil, err
	}
	room, step := cmp.Or(f.MaxTotal, 256<<20), max(1, len(sources)/50)
	for i, source := range sources {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		text, reason := f.read(source)
		if room -= int64(len(text)); room < 0 {
			c.LeftOut["beyond the total size"] += len(sources) - i
			break
		}
		if reason != "" {
			c.LeftOut[reason]++
		} else {
			c.add(source, text)
		}
		if done := i + 1; done%step == 0 || done == len(sources) {
			progress(done, len(sources), source)
		}
	}
	return c, nil
}

// String says how many documents there are, and what was left out.
func (c *Corpus) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d documents", len(c.Documents))
	separator := "; left out: "
	for _, reason := range slices.Sorted(maps.Keys(c.LeftOut)) {
		fmt.Fprintf(&b, "%s%d %s", separator, c.LeftOut[reason], reason)
		separator = ", "
	}
	return b.String()
}

// Document finds a document by its source.
func (c *Corpus) Document(source string) (Document, bool) {
	i, ok := slices.BinarySearchFunc(c.Documents, source, func(d Document, source string) int {
		return strings.Compare(d.Source, source)
	})
	if !ok {
		return Document{}, false
	}
	return c.Documents[i], true
}

func (c *Corpus) add(source, text string) {
	d := Document{Source: source, Text: text}
	passages := c.Index.Add(source, text, isProse(source))
	if d.Passages = len(passages); d.Passages > 0 {
		d.Lines = passages[d.Passages-1].End
	}
	c.Documents = append(c.Documents, d)
}

// scan finds the files to read, in lexical order of their paths, and counts what it passes by.
func (f *Folder) scan(ctx context.Context, leftOut map[string]int) (sources []string, err error) {
	limit := cmp.Or(f.MaxFiles, 20_000)
	err = fs.WalkDir(f.FS, ".", func(name string, entry fs.DirEntry, err error) error {
		base, reason := path.Base(name), ""
		skip, _ := path.Match(f.Skip, base)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case name == ".":
			return err
		case err != nil:
			reason = "unreadable"
		case base[0] == '.':
			reason = "hidden"
		case entry.IsDir() && (base == "node_modules" || base == "vendor"):
			reason = "folders of dependencies"
		case entry.IsDir():
			return nil
		case !entry.Type().IsRegular():
			reason = "links and special files"
		case skip || !isText(base):
			reason = "of other types"
		case len(sources) == limit:
			reason = "beyond the number of files"
		default:
			sources = append(sources, name)
			return nil
		}
		leftOut[reason]++
		if entry.IsDir() {
			return fs.SkipDir
		}
		return nil
	})
	slices.Sort(sources) // the walk has a/b before a.go
	return sources, err
}

// read returns a file's text, or the reason to leave it out. The bound is on what is read, since the size that the
// folder tells may be out of date.
func (f *Folder) read(source string) (text, reason string) {
	file, err := f.FS.Open(source)
	if err != nil {
		return "", "unreadable"
	}
	defer file.Close()
	limit := cmp.Or(f.MaxFile, 2<<20)
	b, err := io.ReadAll(io.LimitReader(file, limit+1))
	switch {
	case err != nil:
		return "", "unreadable"
	case int64(len(b)) > limit:
		return "", "too large"
	case bytes.IndexByte(b, 0) >= 0 || !utf8.Valid(b):
		return "", "not text"
	}
	return string(b), ""
}

// isText goes by the name, since files without a known ending are often keys, data or dumps.
func isText(name string) bool {
	const code = `.bash .bat .c .cc .cfg .conf .cpp .cs .css .csv .dart .el .ex .go .h .hpp .hs .htm .html .ini .java .jl .js
		.json .jsonl .jsx .kt .lua .mjs .ml .php .pl .proto .ps1 .py .r .rb .rs .scala .sh .sql .svelte .swift .tf .toml
		.ts .tsv .tsx .vue .xml .yaml .yml .zig`
	return isProse(name) || slices.Contains(strings.Fields(code), strings.ToLower(path.Ext(name)))
}

func isProse(name string) bool {
	const prose = ".adoc .markdown .md .mdx .org .rst .tex .text .txt"
	return slices.Contains(strings.Fields(prose), strings.ToLower(path.Ext(name)))
}
