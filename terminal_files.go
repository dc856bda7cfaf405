// terminal_files.go - the files that a result's images, sounds and bytes go to.
// SPDX-License-Identifier: 0BSD

package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strings"
)

// ResultFiles saves the images, sounds and embedded bytes of a result, and returns a line about each.
func ResultFiles(r *ToolResult, save func(data []byte, kind string) (path string, err error)) (lines []string) {
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

// SaveFile writes data to a new file, which only its owner can read. The server has no part in its name.
func SaveFile(data []byte, kind string) (path string, err error) {
	kind, _, _ = strings.Cut(kind, ";")
	endings := map[string]string{
		"image/png": "png", "image/jpeg": "jpg", "image/gif": "gif", "image/webp": "webp", "image/svg+xml": "svg",
		"audio/wav": "wav", "audio/mpeg": "mp3", "audio/ogg": "ogg", "video/mp4": "mp4", "application/pdf": "pdf",
		"application/zip": "zip", "application/gzip": "gz", "application/json": "json", "text/csv": "csv",
	}
	f, err := os.CreateTemp("", "mcpagent-*."+cmp.Or(endings[kind], "bin"))
	if err != nil {
		return "", err
	}
	_, err = f.Write(data)
	return f.Name(), errors.Join(err, f.Close())
}
