// main_npm.go - the log of npx, which downloads servers and may fail without a word.
// SPDX-License-Identifier: 0BSD

package main

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// npmLog returns the newest log of npm if a server that npx should have started has ended with
// nothing on stderr, or little. npx is silent where its settings want it, and writes a log all the
// same. A log that is older than this run is of something else. uvx writes no log.
func npmLog(err error, runBegan time.Time) (path string) {
	var exit *ServerExitError
	if !errors.As(err, &exit) || len(strings.TrimSpace(exit.Stderr)) >= minLogged {
		return ""
	}
	name := filepath.Base(exit.Command)
	name = strings.ToLower(strings.TrimSuffix(name, filepath.Ext(name)))
	if name != "npx" && name != "npm" {
		return ""
	}
	home, _ := os.UserHomeDir()
	folder := filepath.Join(home, ".npm", "_logs")
	if runtime.GOOS == "windows" {
		folder = filepath.Join(os.Getenv("LOCALAPPDATA"), "npm-cache", "_logs")
	}
	files, _ := os.ReadDir(folder)
	// File systems round times.
	newest := runBegan.Truncate(time.Second)
	for _, file := range files {
		info, err := file.Info()
		if err == nil && !info.ModTime().Before(newest) {
			newest = info.ModTime()
			path = filepath.Join(folder, file.Name())
		}
	}
	return path
}
