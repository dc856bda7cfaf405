// library_files.go - the text files of a library, as they are now.
// SPDX-License-Identifier: 0BSD

package main

import (
	"cmp"
	"context"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"time"
)

// corpus holds the files of a library as they were when a request scanned the folder. It does not
// change once scan has returned it, so requests share it without a lock.
type corpus struct {
	documents []*document          // in the order of fs.WalkDir
	indexes   []*Index             // of the documents
	known     map[string]*document // by source: the documents and what is notText
	leftOut   []omission           // by reason; nil if nothing is left out
	size      int64                // bytes of all texts
}

// document is one file. It does not change. Its source is the path in the folder, with slashes, and
// its text is valid UTF-8.
type document struct {
	Document
	lines   int
	reason  string    // why it is left out; "" if it is not
	size    int64     // bytes of the file
	changed time.Time // when the file was changed
}

// omission is the files and folders that were left out for one reason.
type omission struct {
	Count   int      `json:"count"`
	Reason  string   `json:"reason"`
	Sources []string `json:"sources"` // the first of them
}

// maxNamed is the length of omission.Sources.
const maxNamed = 20

// document returns the document of a source, nil if there is none.
func (c *corpus) document(source string) *document {
	d := c.known[source]
	if d == nil || d.reason != "" {
		return nil
	}
	return d
}

// currentCorpus returns the files as they are now. Requests scan the folder one after the other; a
// request that is cancelled leaves the corpus as it was.
//
// Scanning a large folder takes long, and a model asks often. So a scan that found no change is
// good for ten times as long as it took: scans take a tenth of the time at most, and a change in
// a large folder is seen a little later.
func (l *Library) currentCorpus(ctx context.Context) (*corpus, error) {
	select {
	case l.scanSlot <- struct{}{}:
		defer func() { <-l.scanSlot }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if l.corpus != nil && time.Since(l.scanned) < 10*l.unchangedIn {
		return l.corpus, nil
	}
	begin := time.Now()
	old := cmp.Or(l.corpus, new(corpus))
	c, err := l.scan(ctx, old)
	if err != nil {
		return nil, fmt.Errorf("the library cannot be read: %w", err)
	}
	l.scanned = time.Now()
	l.unchangedIn = 0
	if slices.Equal(c.documents, old.documents) {
		l.unchangedIn = l.scanned.Sub(begin)
	}
	if summary := c.String(); l.corpus == nil || summary != old.String() {
		l.OnIndexed(summary)
	}
	l.corpus = c
	return c, nil
}

// scan looks at all files. It reads those that are not in old, or had another time or size there. A
// file that cannot be read is not an error: leftOut names it.
func (l *Library) scan(ctx context.Context, old *corpus) (*corpus, error) {
	c := &corpus{known: make(map[string]*document)}
	leftOut := make(map[string]omission)
	visit := func(source string, entry fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if source == "." {
			return err
		}
		if skip, _ := path.Match(l.Skip, path.Base(source)); skip {
			return nil
		}
		reason := l.visitFile(c, old.known[source], source, entry, err)
		if reason == "" {
			return nil
		}
		leftOut[reason] = leftOut[reason].with(reason, source)
		if entry.IsDir() {
			return fs.SkipDir
		}
		return nil
	}
	err := fs.WalkDir(l.FS, ".", visit)
	if err == nil {
		err = c.makeIndexes(ctx, old)
	}
	byReason := func(a, b omission) int { return strings.Compare(a.Reason, b.Reason) }
	c.leftOut = slices.SortedFunc(maps.Values(leftOut), byReason)
	return c, err
}

// with returns an omission with one more source.
func (o omission) with(reason, source string) omission {
	o.Reason = reason
	o.Count++
	if o.Count <= maxNamed {
		o.Sources = append(o.Sources, source)
	}
	return o
}

// visitFile adds a file to c, or returns the reason to leave it out. A folder to look into has
// neither. The document that was known is taken over if the file has the same time and size now; so
// is one that turned out not to be text, which need not be read a second time to learn that.
func (l *Library) visitFile(
	c *corpus,
	known *document,
	source string,
	entry fs.DirEntry,
	err error,
) (reason string) {
	var info fs.FileInfo
	if err == nil {
		info, err = entry.Info()
	}
	if err != nil {
		return "unreadable"
	}
	if reason := leftOutByName(entry); reason != "" || entry.IsDir() {
		return reason
	}
	if reason := l.leftOutBySize(c, info.Size()); reason != "" {
		return reason
	}
	d := known
	if known == nil || known.size != info.Size() || !known.changed.Equal(info.ModTime()) {
		d = l.readDocument(source, info, known)
	}
	switch d.reason {
	case "":
		c.known[source] = d
		c.documents = append(c.documents, d)
		c.size += int64(len(d.Text))
	case notText:
		c.known[source] = d
	}
	return d.reason
}

// leftOutByName returns the reason to leave out a file or a folder that its name or kind gives.
func leftOutByName(entry fs.DirEntry) string {
	name := entry.Name()
	switch {
	case name[0] == '.':
		return "hidden"
	case entry.IsDir() && (name == "node_modules" || name == "vendor"):
		return "folders of dependencies"
	case entry.IsDir():
		return ""
	case !entry.Type().IsRegular():
		return "links and special files"
	case !isText(name):
		return "of other types"
	}
	return ""
}

// leftOutBySize returns the reason to leave out a file of a size, after those of c.
func (l *Library) leftOutBySize(c *corpus, size int64) string {
	switch {
	case len(c.documents) == cmp.Or(l.MaxFiles, 20_000):
		return "beyond the number of files"
	case size > l.maxFile():
		return "too large"
	case size > cmp.Or(l.MaxTotal, 256<<20)-c.size:
		return "beyond the total size"
	}
	return ""
}

// maxFile is MaxFile, or its default.
func (l *Library) maxFile() int64 { return min(cmp.Or(l.MaxFile, 2<<20), 1<<30) }

// readDocument reads a file that is new or may have changed. One that was only touched shares the
// text with the document that was known: its index keeps that text, and memory holds it once.
func (l *Library) readDocument(source string, info fs.FileInfo, known *document) *document {
	d := &document{
		Document: Document{Source: source, Prose: isProse(source)},
		size:     info.Size(),
		changed:  info.ModTime(),
	}
	d.Text, d.reason = l.readText(source)
	if known != nil && known.Text == d.Text {
		d.Text = known.Text
	}
	for range strings.Lines(d.Text) {
		d.lines++
	}
	return d
}

// readText returns the text of a file, or the reason to leave it out. The limit applies to what is
// read, too, because the size in the directory may be out of date.
func (l *Library) readText(source string) (text, reason string) {
	file, err := l.FS.Open(source)
	if err != nil {
		return "", "unreadable"
	}
	defer file.Close()
	limit := l.maxFile()
	b, err := io.ReadAll(io.LimitReader(file, limit+1))
	switch {
	case err != nil:
		return "", "unreadable"
	case int64(len(b)) > limit:
		return "", "too large"
	}
	return decodeText(b)
}

// makeIndexes makes the indexes, or takes those of old. One index of all documents would have to
// be made anew after each change, and one of each document takes ten times the memory. So each
// index is of a segment: some documents in their order, as long as they are the same.
func (c *corpus) makeIndexes(ctx context.Context, old *corpus) error {
	var segment []Document
	size := 0
	for i, d := range c.documents {
		segment = append(segment, d.Document)
		size += len(d.Text)
		isLast := i == len(c.documents)-1
		if !isLast && !endsSegment(d.Source, size) {
			continue
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		c.indexes = append(c.indexes, old.indexOf(segment))
		segment, size = nil, 0
	}
	return nil
}

// endsSegment reports whether a segment with texts of that size ends with that source. If segments
// had all the same number of documents, a new file would move the ends of all that follow. So the
// name of a document decides whether it ends one: a new file moves the ends of few others.
func endsSegment(source string, size int) bool {
	return size >= 8<<20 || crc32.ChecksumIEEE([]byte(source))%512 == 0
}

// indexOf returns the index that c has of a segment, or a new one.
func (c *corpus) indexOf(segment []Document) *Index {
	for _, x := range c.indexes {
		if slices.Equal(x.Documents, segment) {
			return x
		}
	}
	return NewIndex(segment...)
}

// String returns the number of documents, and what was left out.
func (c *corpus) String() string {
	text := fmt.Sprintf("%d documents", len(c.documents))
	if len(c.documents) == 1 {
		text = "1 document"
	}
	separator := "; left out: "
	for _, o := range c.leftOut {
		text += fmt.Sprintf("%s%d %s", separator, o.Count, o.Reason)
		separator = ", "
	}
	return text
}
