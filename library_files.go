// library_files.go - the text files of a library, as they are now.
// SPDX-License-Identifier: 0BSD

package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// corpus holds the files of a library as they were when a request looked at them. It does not change after read.
type corpus struct {
	documents []*document          // in the order of fs.WalkDir
	indexes   []*Index             // of the documents
	known     map[string]*document // by source: the documents, and the files that turned out not to be text
	leftOut   []omission           // by reason; nil if nothing is left out
	size      int64                // bytes of all texts
}

// document is one file. It does not change.
type document struct {
	Document // the source is the path in the folder, with slashes; the text is valid UTF-8
	lines    int
	reason   string    // why it is left out; "" if it is not
	size     int64     // bytes of the file
	changed  time.Time // when the file was changed
}

// omission is the files and folders that were left out for one reason.
type omission struct {
	Count   int      `json:"count"`
	Reason  string   `json:"reason"`
	Sources []string `json:"sources"` // the first of them
}

const (
	maxNamed = 20         // of omission.Sources
	notText  = "not text" // the reason that was found by reading the file
)

// load returns the files as they are now. Requests look at the folder one after the other; one that is cancelled
// leaves the corpus as it was. Looking takes a tenth of the time at most, so that a change in a large folder is seen a
// little later.
func (l *Library) load(ctx context.Context) (*corpus, error) {
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if l.corpus != nil && time.Since(l.looked) < 10*l.took {
		return l.corpus, nil
	}
	begin, old := time.Now(), cmp.Or(l.corpus, new(corpus))
	c, err := l.read(ctx, old)
	if err != nil {
		return nil, fmt.Errorf("the library cannot be read: %w", err)
	}
	l.looked, l.took = time.Now(), 0
	if slices.Equal(c.documents, old.documents) {
		l.took = l.looked.Sub(begin)
	}
	if summary := c.String(); l.corpus == nil || summary != old.String() {
		l.OnIndexed(summary)
	}
	l.corpus = c
	return c, nil
}

// read looks at all files. It reads those that are not in old, or had another time or size there. A file that cannot
// be read is not an error: leftOut names it.
func (l *Library) read(ctx context.Context, old *corpus) (*corpus, error) {
	c, leftOut := &corpus{known: make(map[string]*document)}, make(map[string]omission)
	err := fs.WalkDir(l.FS, ".", func(source string, entry fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		} else if source == "." {
			return err
		}
		if skip, _ := path.Match(l.Skip, path.Base(source)); skip {
			return nil
		}
		d := l.look(c, old.known[source], source, entry, err)
		if d == nil {
			return nil
		}
		if d.reason == "" || d.reason == notText {
			c.known[source] = d
		}
		if d.reason == "" {
			c.documents, c.size = append(c.documents, d), c.size+int64(len(d.Text))
			return nil
		}
		o := leftOut[d.reason]
		o.Reason = d.reason
		if o.Count++; o.Count <= maxNamed {
			o.Sources = append(o.Sources, source)
		}
		leftOut[d.reason] = o
		if entry.IsDir() {
			return fs.SkipDir
		}
		return nil
	})
	if err == nil {
		err = c.index(ctx, old)
	}
	byReason := func(a, b omission) int { return strings.Compare(a.Reason, b.Reason) }
	c.leftOut = slices.SortedFunc(maps.Values(leftOut), byReason)
	return c, err
}

// index makes the indexes, or takes those of old. One of all documents would have to be made anew after each change,
// and one of each takes ten times the memory. So each is of a segment: some documents in their order, as long as they
// are the same. It ends at 8 MiB of text, or by the name of its last document: so a file that is added moves the ends
// of few others.
func (c *corpus) index(ctx context.Context, old *corpus) error {
	var segment []Document
	size := 0 // of its texts
	for i, d := range c.documents {
		segment, size = append(segment, d.Document), size+len(d.Text)
		ends := crc32.ChecksumIEEE([]byte(d.Source))%512 == 0 || size >= 8<<20 || i == len(c.documents)-1
		if !ends {
			continue
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		at := slices.IndexFunc(old.indexes, func(x *Index) bool { return slices.Equal(x.Documents, segment) })
		if at >= 0 {
			c.indexes = append(c.indexes, old.indexes[at])
		} else {
			c.indexes = append(c.indexes, NewIndex(segment...))
		}
		segment, size = nil, 0
	}
	return nil
}

// look returns the document of a file that was found after those of c: the known one, unless the file has another time
// or size now. The document of what is left out has the reason. A folder to look into has none.
func (l *Library) look(c *corpus, known *document, source string, entry fs.DirEntry, err error) *document {
	var info fs.FileInfo
	if err == nil {
		info, err = entry.Info()
	}
	d, name := &document{Document: Document{Source: source, Prose: isProse(source)}}, entry.Name()
	maxFile := min(cmp.Or(l.MaxFile, 2<<20), 1<<30)
	switch {
	case err != nil:
		d.reason = "unreadable"
	case name[0] == '.':
		d.reason = "hidden"
	case entry.IsDir() && (name == "node_modules" || name == "vendor"):
		d.reason = "folders of dependencies"
	case entry.IsDir():
		return nil
	case !entry.Type().IsRegular():
		d.reason = "links and special files"
	case !isText(name):
		d.reason = "of other types"
	case len(c.documents) == cmp.Or(l.MaxFiles, 20_000):
		d.reason = "beyond the number of files"
	case info.Size() > maxFile:
		d.reason = "too large"
	case info.Size() > cmp.Or(l.MaxTotal, 256<<20)-c.size:
		d.reason = "beyond the total size"
	case known != nil && known.size == info.Size() && known.changed.Equal(info.ModTime()):
		return known
	default:
		d.size, d.changed = info.Size(), info.ModTime()
		if d.Text, d.reason = l.readFile(source, maxFile); known != nil && known.Text == d.Text {
			d.Text = known.Text // its index has it, too
		}
		for range strings.Lines(d.Text) {
			d.lines++
		}
	}
	return d
}

// readFile returns the text of a file, or the reason to leave it out. The limit applies to what is read, too, because
// the size in the directory may be out of date.
func (l *Library) readFile(source string, limit int64) (text, reason string) {
	file, err := l.FS.Open(source)
	if err != nil {
		return "", "unreadable"
	}
	defer file.Close()
	b, err := io.ReadAll(io.LimitReader(file, limit+1))
	switch {
	case err != nil:
		return "", "unreadable"
	case int64(len(b)) > limit:
		return "", "too large"
	}
	return decodeText(b)
}

// windows1252 has the characters of the bytes from 0x80 to 0x9F in Windows-1252, the superset of Latin-1. A byte
// without a character has its control character.
const windows1252 = "€\u0081‚ƒ„…†‡ˆ‰Š‹Œ\u008dŽ\u008f" +
	"\u0090‘’“”•–—˜™š›œ\u009džŸ"

// decodeText returns the text of a file in UTF-8, Windows-1252 or, after its byte order mark, UTF-16, or the reason to
// leave it out.
func decodeText(b []byte) (text, reason string) {
	ok := false
	isControl := func(r rune) bool { return unicode.IsControl(r) && !strings.ContainsRune("\t\n\v\f\r\x1b", r) }
	b = bytes.TrimPrefix(b, []byte("\ufeff"))
	orders := map[string]binary.ByteOrder{"\xff\xfe": binary.LittleEndian, "\xfe\xff": binary.BigEndian}
	if order := orders[string(b[:min(2, len(b))])]; order != nil && len(b)%2 == 0 {
		var units []uint16
		for unit := range slices.Chunk(b[2:], 2) {
			units = append(units, order.Uint16(unit))
		}
		text = string(utf16.Decode(units))
		ok = !strings.ContainsFunc(text, isControl) && !strings.ContainsRune(text, utf8.RuneError)
	} else if utf8.Valid(b) {
		text, ok = string(b), bytes.IndexByte(b, 0) < 0
	} else {
		text = strings.ToValidUTF8(string(b), "\ufffd")
		if wide := len(text) - utf8.RuneCountInString(text); wide <= 3*strings.Count(text, "\ufffd") {
			decoded := make([]rune, len(b)) // more of it is invalid than valid UTF-8
			table := []rune(windows1252)
			for i, c := range b {
				if decoded[i] = rune(c); 0x80 <= c && c < 0xA0 {
					decoded[i] = table[c-0x80]
				}
			}
			text = string(decoded)
		}
		ok = !strings.ContainsFunc(text, isControl)
	}
	if !ok {
		return "", notText
	}
	return text, ""
}

// String returns the number of documents, and what was left out.
func (c *corpus) String() string {
	text, separator := fmt.Sprintf("%d documents", len(c.documents)), "; left out: "
	if len(c.documents) == 1 {
		text = "1 document"
	}
	for _, o := range c.leftOut {
		text += fmt.Sprintf("%s%d %s", separator, o.Count, o.Reason)
		separator = ", "
	}
	return text
}

// isText decides by the name, because files without a known extension are often keys, data or dumps.
func isText(name string) bool {
	const code = `.bash .bat .c .cc .cfg .conf .cpp .cs .css .csv .dart .el .ex .go .h .hpp .hs .htm .html .ini .java
		.jl .js .json .jsonl .jsx .kt .lua .mjs .ml .php .pl .proto .ps1 .py .r .rb .rs .scala .sh .sql .svelte .swift
		.tf .toml .ts .tsv .tsx .vue .xml .yaml .yml .zig`
	return isProse(name) || slices.Contains(strings.Fields(code), strings.ToLower(path.Ext(name)))
}

func isProse(name string) bool {
	const prose = ".adoc .markdown .md .mdx .org .rst .tex .text .txt"
	return slices.Contains(strings.Fields(prose), strings.ToLower(path.Ext(name)))
}
