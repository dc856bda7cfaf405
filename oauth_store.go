// oauth_store.go - a login that is kept from one run to the next, in a file.
// Needs: Go 1.25.
// SPDX-License-Identifier: 0BSD

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// OAuthFile is an OAuthStore: a file that only its owner can read, for the login to one resource.
type OAuthFile struct {
	Path     string // in a folder that exists
	Resource string // OAuth.Resource; empty: Load takes the login to any resource

	// LockFile keeps other processes from the file until unlock, as OAuthStore.Lock does. If it is
	// nil, nothing keeps them. Two processes may then refresh a token at the same time. Where a
	// refresh token is good for one use, the process that comes second has to log in again.
	LockFile func(ctx context.Context, path string) (unlock func(), err error)
}

// Lock is OAuthStore.Lock.
func (f *OAuthFile) Lock(ctx context.Context) (unlock func(), err error) {
	if f.LockFile == nil {
		return func() {}, nil
	}
	return f.LockFile(ctx, f.Path)
}

// Load is OAuthStore.Load. A file that is no login to this resource is an error, so that it is not
// replaced.
func (f *OAuthFile) Load() (*OAuthState, error) {
	state := new(OAuthState)
	text, err := os.ReadFile(f.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return state, nil
	}
	if err != nil {
		return nil, err
	}
	err = json.Unmarshal(text, state)
	isOurs := state.Resource != "" && (f.Resource == "" || f.Resource == state.Resource)
	if err != nil || !isOurs {
		return nil, fmt.Errorf("%s is not a login to this server: "+
			"look at it, and remove it, to log in anew", f.Path)
	}
	return state, nil
}

// Save is OAuthStore.Save. If it fails, the file is as it was before. If the path is a link, the
// file at the end of the link is replaced, and the link stays.
func (f *OAuthFile) Save(state *OAuthState) error {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	// The file is no HTML: the & of a URL stays what it is.
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(state)
	if err != nil {
		return err
	}
	path, err := filepath.EvalSymlinks(f.Path)
	if err != nil {
		path = f.Path
	}
	// CreateTemp makes a file that only its owner can read.
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	// After the renaming there is nothing to remove.
	defer os.Remove(file.Name())
	_, err = file.Write(text.Bytes())
	if err == nil {
		// A crash after the renaming could leave an empty file otherwise.
		err = file.Sync()
	}
	err = errors.Join(err, file.Close())
	if err != nil {
		return err
	}
	return os.Rename(file.Name(), path)
}
