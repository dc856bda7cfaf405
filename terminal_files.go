// terminal_files.go - temporary files for a result's images, sounds and bytes; without -o.
// SPDX-License-Identifier: 0BSD

package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
)

// ResultFiles saves the images, sounds and embedded bytes of a result, and returns a line about
// each. One that cannot be saved keeps no other from it.
func ResultFiles(
	r *ToolResult, save func(data []byte, kind string) (path string, err error),
) (lines []string) {
	for _, b := range r.Content {
		data, kind := b.Data, b.MIMEType
		if b.Type == "resource" && b.Resource != nil {
			data, kind = b.Resource.Blob, b.Resource.MIMEType
		}
		if len(data) == 0 {
			continue
		}
		path, err := save(data, kind)
		if err != nil {
			path = fmt.Sprintf("not saved: %v", err)
		}
		lines = append(lines, fmt.Sprintf("%s, %s: %s", kind, Plural(len(data), "byte"), path))
	}
	return lines
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
