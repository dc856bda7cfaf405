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
	leftOut   map[string]omission  // by reason
}

// document is one file. It does not change, but for its index.
type document struct {
	Document // the source is the path in the folder, with slashes; the text is valid UTF-8
	lines    int
	index    *Index    // only the request that has Library.turn may use it
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
	maxNamed = 100        // of omission.Sources
	notText  = "not text" // the reason that was found by reading the file
)

// load returns the files as they are now. Requests look at the folder one after the other; one that is cancelled
// leaves the corpus as it was. Looking takes a tenth of the time at most, so that a change in a large folder is seen a
// little later.
func (l *Library) load(ctx context.Context, r *libraryRequest) (*corpus, error) {
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if l.corpus != nil && time.Since(l.looked) < 10*l.took {
		return l.corpus, nil
	}
	begin, old := time.Now(), l.corpus
	if old == nil {
		old = new(corpus)
	}
	c, indexed, err := l.read(ctx, r, old)
	if err != nil {
		return nil, fmt.Errorf("the library cannot be read: %w", err)
	}
	l.looked, l.took = time.Now(), 0
	if indexed == 0 {
		l.took = l.looked.Sub(begin)
	}
	if summary := c.String(); l.corpus == nil || summary != old.String() {
		l.OnIndexed(summary)
	}
	l.corpus = c
	return c, nil
}

// read looks at all files. It indexes those that are not in old, or had another time or size there, and returns their
// number. A file that cannot be read is not an error: leftOut names it. Progress is reported after each of the first
// ten indexed files, then after every hundredth.
func (l *Library) read(ctx context.Context, r *libraryRequest, old *corpus) (c *corpus, indexed int, err error) {
	token := r.meta["progressToken"]
	report := token != nil && string(token) != "null"
	c = &corpus{known: make(map[string]*document), leftOut: make(map[string]omission)}
	room := cmp.Or(l.MaxTotal, 256<<20)
	err = fs.WalkDir(l.FS, ".", func(source string, entry fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		} else if source == "." {
			return err
		}
		if skip, _ := path.Match(l.Skip, path.Base(source)); skip {
			return nil
		}
		d := &document{reason: l.exclude(source, entry, err)}
		switch {
		case d.reason == "" && entry.IsDir():
			return nil
		case d.reason == "" && len(c.documents) == cmp.Or(l.MaxFiles, 20_000):
			d.reason = "beyond the number of files"
		case d.reason == "":
			d = l.open(source, entry, old.known[source], room)
		}
		if d.reason == "" || d.reason == notText {
			c.known[source] = d
		}
		if d.reason != "" {
			c.leaveOut(source, d.reason)
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		c.documents = append(c.documents, d)
		room -= int64(len(d.Text))
		if d == old.known[source] {
			return nil
		}
		if indexed++; report && (indexed <= 10 || indexed%100 == 0) {
			// If the notification cannot be sent, the client has gone, and ctx ends.
			_ = r.notify(ctx, "notifications/progress", map[string]any{
				"progressToken": token, "progress": indexed, "message": "indexing " + source,
			})
		}
		return nil
	})
	return c, indexed, cmp.Or(err, c.index(ctx))
}

// index makes the indexes. One of all documents would have to be made anew after each change, and one of each takes
// ten times the memory. So each is of a segment: some documents in their order, as long as they are the same. It ends
// at 8 MiB of text, or by the name of its last document: so a file that is added moves the ends of few others.
func (c *corpus) index(ctx context.Context) error {
	var segment []*document
	var texts []Document
	size := 0 // of the texts
	for i, d := range c.documents {
		segment, texts, size = append(segment, d), append(texts, d.Document), size+len(d.Text)
		ends := crc32.ChecksumIEEE([]byte(d.Source))%512 == 0 || size >= 8<<20
		if !ends && i < len(c.documents)-1 {
			continue
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		x := d.index
		other := func(d *document) bool { return d.index != x }
		if x == nil || x.Documents != len(segment) || slices.ContainsFunc(segment, other) {
			x = NewIndex(texts...)
			for _, d := range segment {
				d.index = x
			}
		}
		c.indexes, segment, texts, size = append(c.indexes, x), nil, nil, 0
	}
	return nil
}

// exclude returns why a file or folder is left out without a look into it, "" if it is not.
func (l *Library) exclude(source string, entry fs.DirEntry, err error) string {
	base := path.Base(source)
	switch {
	case err != nil:
		return "unreadable"
	case base[0] == '.':
		return "hidden"
	case entry.IsDir() && (base == "node_modules" || base == "vendor"):
		return "folders of dependencies"
	case entry.IsDir():
		return ""
	case !entry.Type().IsRegular():
		return "links and special files"
	case !isText(base):
		return "of other types"
	}
	return ""
}

// open returns the document of a file: the known one, unless the file has another time or size now. room is what is
// left of MaxTotal.
func (l *Library) open(source string, entry fs.DirEntry, known *document, room int64) *document {
	info, err := entry.Info()
	d := &document{Document: Document{Source: source, Prose: isProse(source)}}
	switch {
	case err != nil:
		d.reason = "unreadable"
	case info.Size() > l.maxFile():
		d.reason = "too large"
	case info.Size() > room:
		d.reason = "beyond the total size"
	case known != nil && known.size == info.Size() && known.changed.Equal(info.ModTime()):
		return known
	default:
		d.size, d.changed = info.Size(), info.ModTime()
		d.Text, d.reason = l.readFile(source)
		for range strings.Lines(d.Text) {
			d.lines++
		}
	}
	return d
}

func (l *Library) maxFile() int64 { return min(cmp.Or(l.MaxFile, 2<<20), 1<<30) }

// readFile returns the text of a file, or the reason to leave it out. The limit applies to what is read, too, because
// the size in the directory may be out of date.
func (l *Library) readFile(source string) (text, reason string) {
	file, err := l.FS.Open(source)
	if err != nil {
		return "", "unreadable"
	}
	defer file.Close()
	b, err := io.ReadAll(io.LimitReader(file, l.maxFile()+1))
	switch {
	case err != nil:
		return "", "unreadable"
	case int64(len(b)) > l.maxFile():
		return "", "too large"
	}
	text, ok := decodeText(b)
	if !ok {
		return "", notText
	}
	return text, ""
}

// windows1252 has the characters of the bytes from 0x80 to 0x9F in Windows-1252, the superset of Latin-1. A byte
// without a character has its control character.
const windows1252 = "€\u0081‚ƒ„…†‡ˆ‰Š‹Œ\u008dŽ\u008f" +
	"\u0090‘’“”•–—˜™š›œ\u009džŸ"

// decodeText returns the text of a file in UTF-8, Windows-1252 or, after its byte order mark, UTF-16.
func decodeText(b []byte) (text string, ok bool) {
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
		return "", false
	}
	return text, true
}

func (c *corpus) leaveOut(source, reason string) {
	o := c.leftOut[reason]
	o.Reason = reason
	if o.Count++; o.Count <= maxNamed {
		o.Sources = append(o.Sources, source)
	}
	c.leftOut[reason] = o
}

// omissions describes what was left out, by reason, with up to the given number of names for each.
func (c *corpus) omissions(names int) (all []omission) {
	for _, reason := range slices.Sorted(maps.Keys(c.leftOut)) {
		o := c.leftOut[reason]
		o.Sources = o.Sources[:min(names, len(o.Sources))]
		all = append(all, o)
	}
	return all
}

// document returns the document with a source, or nil.
func (c *corpus) document(source string) *document {
	if d := c.known[source]; d != nil && d.reason == "" {
		return d
	}
	return nil
}

// String returns the number of documents, and what was left out.
func (c *corpus) String() string {
	text, separator := fmt.Sprintf("%d documents", len(c.documents)), "; left out: "
	if len(c.documents) == 1 {
		text = "1 document"
	}
	for _, o := range c.omissions(0) {
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
