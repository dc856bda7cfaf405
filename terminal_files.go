// terminal_files.go - temporary files for a result's images, sounds and bytes; without -o.
// SPDX-License-Identifier: 0BSD

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// ResultFiles saves the images, sounds and embedded bytes of a result, and returns a line about
// each. One that cannot be saved keeps no other from it. After limit of them, one line counts the
// rest, unless limit is 0.
func ResultFiles(
	r *ToolResult, limit int, save func(data []byte, kind string) (path string, err error),
) (lines []string) {
	leftOut := 0
	for _, b := range r.Content {
		data, kind := b.Data, b.MIMEType
		if b.Type == "resource" && b.Resource != nil {
			data, kind = b.Resource.Blob, b.Resource.MIMEType
		}
		if len(data) == 0 {
			continue
		}
		if limit > 0 && len(lines) == limit {
			leftOut++
			continue
		}
		path, err := save(data, kind)
		if err != nil {
			path = fmt.Sprintf("not saved: %v", err)
		}
		lines = append(lines, fmt.Sprintf("%s, %s: %s", kind, Plural(len(data), "byte"), path))
	}
	if leftOut > 0 {
		lines = append(lines, fmt.Sprintf("%d more are not saved: -o FILE saves all", leftOut))
	}
	return lines
}

// MaxResultFiles bounds the temporary files of one result: a person opens no more of them.
const MaxResultFiles = 20

// The bounds of TempFiles. A server may send images with every result, and a chat may last for
// days.
const (
	maxTempFiles = 100       // of one run
	maxTempBytes = 256 << 20 // of all files of one run, but for the newest, which stays
	maxTempAge   = 7 * 24 * time.Hour
)

// TempFiles are the temporary files of a run, for a person to open. The newest stay when the run
// ends. The oldest go when there are too many, and those of earlier runs when they are old, as not
// every system does that.
type TempFiles struct {
	kept  []tempFile // the oldest first
	bytes int        // of all of them
}

type tempFile struct {
	path string
	size int
}

// Save is SaveFile within the bounds.
func (f *TempFiles) Save(data []byte, kind string) (path string, err error) {
	if f.kept == nil {
		removeOldFiles(time.Now().Add(-maxTempAge))
	}
	path, err = SaveFile(data, kind)
	if err != nil {
		return "", err
	}
	f.kept = append(f.kept, tempFile{path, len(data)})
	f.bytes += len(data)
	for len(f.kept) > maxTempFiles || f.bytes > maxTempBytes && len(f.kept) > 1 {
		_ = os.Remove(f.kept[0].path)
		f.bytes -= f.kept[0].size
		f.kept = f.kept[1:]
	}
	return path, nil
}

// tempName matches the names that SaveFile gives.
var tempName = regexp.MustCompile(`^mcpagent-\d+\.[a-z0-9]+$`)

// removeOldFiles removes the files of SaveFile that were written before a time. The folder for
// temporary files lets nobody remove those of another user.
func removeOldFiles(before time.Time) {
	folder := os.TempDir()
	files, _ := os.ReadDir(folder)
	for _, file := range files {
		info, err := file.Info()
		isOurs := err == nil && info.Mode().IsRegular() && tempName.MatchString(file.Name())
		if isOurs && info.ModTime().Before(before) {
			_ = os.Remove(filepath.Join(folder, file.Name()))
		}
	}
}

// SaveFile writes data to a new file in the folder for temporary files, which only its owner can
// read. The server has no part in its name: a path, or an ending that something would run, cannot
// come from it. With -o the user has chosen the name, and output.saveFile writes the file.
func SaveFile(data []byte, kind string) (path string, err error) {
	f, err := os.CreateTemp("", "mcpagent-*."+fileEnding(kind))
	if err != nil {
		return "", err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Close())
	if err != nil {
		_ = os.Remove(f.Name())
		return "", err
	}
	return f.Name(), nil
}

// fileEnding returns the ending for files of a MIME type, "bin" for those that are not known.
func fileEnding(kind string) string {
	kind, _, _ = strings.Cut(kind, ";")
	endings := map[string]string{
		"image/png":        "png",
		"image/jpeg":       "jpg",
		"image/gif":        "gif",
		"image/webp":       "webp",
		"image/svg+xml":    "svg",
		"audio/wav":        "wav",
		"audio/mpeg":       "mp3",
		"audio/ogg":        "ogg",
		"video/mp4":        "mp4",
		"application/pdf":  "pdf",
		"application/zip":  "zip",
		"application/gzip": "gz",
		"application/json": "json",
		"text/csv":         "csv",
	}
	if ending, ok := endings[kind]; ok {
		return ending
	}
	return "bin"
}
