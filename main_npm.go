// main_npm.go - the log of npx, which downloads servers and may fail without a word.
// SPDX-License-Identifier: 0BSD

package main

import (
	"cmp"
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
func npmLog(err error, runBegan time.Time, command *Command) (path string) {
	var exit *ServerExitError
	if !errors.As(err, &exit) || len(strings.TrimSpace(exit.Stderr)) >= minLogged {
		return ""
	}
	name := filepath.Base(exit.Command)
	name = strings.ToLower(strings.TrimSuffix(name, filepath.Ext(name)))
	if name != "npx" && name != "npm" {
		return ""
	}
	folder := npmLogs(command)
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

// npmLogs returns the folder where npm writes its logs, as the command of a server. Settings of npm
// stand in variables: the server gets those of its configuration, and none of ours.
func npmLogs(command *Command) string {
	home, _ := os.UserHomeDir()
	cache := filepath.Join(home, ".npm")
	if runtime.GOOS == "windows" {
		cache = filepath.Join(os.Getenv("LOCALAPPDATA"), "npm-cache")
	}
	logs := ""
	for _, variable := range command.Env {
		name, value, _ := strings.Cut(variable, "=")
		// Names in capital letters are the same to npm.
		switch strings.ToLower(name) {
		case "npm_config_cache":
			cache = cmp.Or(value, cache)
		case "npm_config_logs_dir":
			logs = value
		}
	}
	folder := filepath.Join(cache, "_logs")
	if logs != "" {
		folder = logs
	}
	if !filepath.IsAbs(folder) {
		folder = filepath.Join(command.Dir, folder)
	}
	return folder
}
