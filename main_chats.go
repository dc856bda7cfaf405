// main_chats.go - the chats that are kept from one run to the next, each in a file.
// SPDX-License-Identifier: 0BSD

package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// maxChats is how many chats are kept, of all folders together. Of more, the oldest are removed.
const maxChats = 100

// chatName matches the names of the files: a hash of the folder, when the chat was begun, and what
// tells it from others of the same second. Nothing else in the folder is ever removed.
var chatName = regexp.MustCompile(`^[0-9a-f]{32}-\d{8}-\d{6}-[A-Z2-7]{6}\.json$`)

// chatFolder returns the folder of the files, or an error if there is no home.
func chatFolder() (string, error) {
	state := StateFolder()
	if !filepath.IsAbs(state) {
		return "", errors.New("there is no folder for it: neither XDG_STATE_HOME nor a home is set")
	}
	return filepath.Join(state, "mcpagent", "chats"), nil
}

// chatPrefix returns how the names of this folder's chats begin: with a hash of its path, so that
// no file has to be read to find them.
func chatPrefix() (string, error) {
	folder, err := os.Getwd()
	if err == nil {
		folder, err = filepath.EvalSymlinks(folder)
	}
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%.16x-", sha256.Sum256([]byte(folder))), nil
}

// newChat makes and locks the name of a chat that begins in this folder. The file itself is made
// when the chat is saved. Old chats make room for it.
func newChat() (path string, unlock func(), err error) {
	folder, err := chatFolder()
	if err == nil {
		err = MakeFolder(folder)
	}
	prefix, prefixErr := chatPrefix()
	err = cmp.Or(err, prefixErr)
	if err != nil {
		return "", func() {}, err
	}
	for _, old := range oldChats(folder, maxChats-1) {
		_ = os.Remove(old)
	}
	now := time.Now().UTC().Format("20060102-150405")
	path = filepath.Join(folder, prefix+now+"-"+rand.Text()[:6]+".json")
	soon, cancel := context.WithTimeout(context.Background(), moment)
	defer cancel()
	unlock, err = LockSession(soon, path)
	if err != nil {
		return "", func() {}, err
	}
	return path, unlock, nil
}

// lastChat returns the file of the chat of this folder that was saved last.
func lastChat() (string, error) {
	folder, err := chatFolder()
	if err != nil {
		return "", err
	}
	prefix, err := chatPrefix()
	if err != nil {
		return "", err
	}
	chats := chatFiles(folder, prefix)
	if len(chats) == 0 {
		return "", errors.New("no chat of this folder is kept: mcpagent alone, on a terminal, " +
			"begins one; -session FILE keeps what a script asks")
	}
	return chats[0], nil
}

// oldChats returns the files of all chats but the newest ones, of which so many stay, and the locks
// that processes that were killed have left beside them.
func oldChats(folder string, stay int) []string {
	chats := chatFiles(folder, "")
	if len(chats) <= stay {
		return nil
	}
	old := chats[stay:]
	for _, path := range old {
		lock := filepath.Join(folder, "."+filepath.Base(path)+".lock")
		old = append(old, lock)
	}
	return old
}

// chatFiles returns the files whose names begin so, the one that was saved last first.
func chatFiles(folder, prefix string) []string {
	type chatFile struct {
		path  string
		saved time.Time
	}
	var files []chatFile
	// A folder that is not there, or cannot be read, has no chats.
	entries, _ := os.ReadDir(folder)
	for _, entry := range entries {
		isChat := strings.HasPrefix(entry.Name(), prefix) && chatName.MatchString(entry.Name())
		info, err := entry.Info()
		if isChat && err == nil && info.Mode().IsRegular() {
			files = append(files, chatFile{filepath.Join(folder, entry.Name()), info.ModTime()})
		}
	}
	slices.SortFunc(files, func(a, b chatFile) int {
		order := b.saved.Compare(a.saved)
		if order == 0 {
			order = cmp.Compare(b.path, a.path)
		}
		return order
	})
	var paths []string
	for _, f := range files {
		paths = append(paths, f.path)
	}
	return paths
}
