// main_records.go - what is remembered from one run of the program to the next, a file for each.
// SPDX-License-Identifier: 0BSD

package main

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// records is a folder of JSON files in the user's own configuration folder, by its name there. Each
// file is about something of a server: a task, or a tool.
type records string

const maxRecord = 64 << 10 // bytes of a file

// folder returns the path of the folder, "" where there is no home.
func (r records) folder() string {
	folder, err := os.UserConfigDir()
	if err != nil || CheckHome(folder) != nil {
		return ""
	}
	return filepath.Join(folder, "mcpagent", string(r))
}

// path returns the path of the file about what has a name at a server, "" where there is no folder.
// The server is known by its source, see sourceHash: its own name may change.
func (r records) path(source, name string) string {
	folder := r.folder()
	if folder == "" {
		return ""
	}
	hash := sha256.Sum256([]byte(source + "\n" + name))
	return filepath.Join(folder, fmt.Sprintf("%.16x.json", hash))
}

// paths returns the paths of all files, in order.
func (r records) paths() []string {
	folder := r.folder()
	if folder == "" {
		return nil
	}
	entries, _ := os.ReadDir(folder)
	var paths []string
	for _, e := range entries {
		if filepath.Ext(e.Name()) == ".json" {
			paths = append(paths, filepath.Join(folder, e.Name()))
		}
	}
	return paths
}

// sourceHash returns a hash of what a server is reached by, which is the same in each run.
func sourceHash(s *Server) string {
	if s.URL != "" {
		return fmt.Sprintf("%.16x", sha256.Sum256([]byte(s.URL)))
	}
	return commandHash(&s.Command)
}

// writeRecord writes a file, and makes its folder.
func writeRecord(path string, record any) error {
	text, err := plainJSON(record)
	if err == nil {
		err = MakeFolder(filepath.Dir(path))
	}
	if err == nil {
		err = ReplaceFile(path, append(text, '\n'))
	}
	return err
}

// readRecord reads a file into a record.
func readRecord(path string, record any) error {
	text, err := ReadRegular(path, maxRecord)
	if err == nil {
		err = json.Unmarshal(text, record)
	}
	return err
}
