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
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
)

// OAuthFile is an OAuthStore: a file that only its owner can read, for the login to one resource.
type OAuthFile struct {
	Path string // in a folder that exists

	// Resource is OAuth.Resource. If it is empty, the first Load takes the login to any resource,
	// and sets Resource and Grant to those of the file.
	Resource string
	// Grant says how the login is made, for a program that lists its files. It is the program's own
	// word, and empty where a person logs in.
	Grant string

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

// oauthFileText is what stands in a file.
type oauthFileText struct {
	*OAuthState
	Grant string `json:"grant,omitempty"`
}

// Load is OAuthStore.Load. A file that is no login to this resource is an error, so that it is not
// replaced. A login that others can read, such as one from a backup, is from now on its owner's
// alone.
func (f *OAuthFile) Load() (*OAuthState, error) {
	state := new(OAuthState)
	text, err := readOAuthFile(f.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return state, nil
	}
	if err != nil {
		return nil, err
	}
	content := oauthFileText{OAuthState: state}
	err = json.Unmarshal(text, &content)
	isLogin := err == nil && state.Resource != ""
	isAny := f.Resource == ""
	isOurs := isAny || CanonicalResource(f.Resource) == CanonicalResource(state.Resource)
	switch {
	case !isLogin && isAny:
		return nil, fmt.Errorf("%s is not a login: look at it, and remove it", f.Path)
	case !isLogin || !isOurs:
		return nil, fmt.Errorf("%s is not a login to this server: "+
			"look at it, and remove it, to log in anew", f.Path)
	case isAny:
		f.Resource, f.Grant = state.Resource, content.Grant
	}
	f.narrow()
	return state, nil
}

// readOAuthFile reads a regular file of at most maxOAuthBody bytes. A pipe or a device might have
// no end, and nobody could end the wait for it.
func readOAuthFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxOAuthBody+1))
	if len(text) > maxOAuthBody {
		return nil, fmt.Errorf("%s has more than %d bytes", path, maxOAuthBody)
	}
	return text, err
}

// narrow takes the file from all but its owner. If it cannot, the file belongs to somebody else,
// who reads it anyway.
func (f *OAuthFile) narrow() {
	info, err := os.Stat(f.Path)
	if err == nil && info.Mode().Perm()&0o077 != 0 {
		_ = os.Chmod(f.Path, info.Mode().Perm()&0o700)
	}
}

// Save is OAuthStore.Save. If it fails, the file is as it was before. If the path is a link, the
// file at the end of the link is replaced, and the link stays.
func (f *OAuthFile) Save(state *OAuthState) error {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	// The file is no HTML: the & of a URL stays what it is.
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(oauthFileText{state, f.Grant})
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

// CanonicalResource returns the URL of a resource in the form that is the same for all spellings of
// the URL: without the default port, a slash at the end and capital letters in the host (MCP
// 2026-07-28, authorization, canonical server URI). Two URLs with different queries or users are of
// two resources. What is not a URL stays as it is.
func CanonicalResource(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return address
	}
	u.Host = shortHost(u)
	// In a path, %2F is no slash. It is one in u.Path.
	if strings.HasSuffix(u.EscapedPath(), "/") {
		u.Path = strings.TrimSuffix(u.Path, "/")
		u.RawPath = strings.TrimSuffix(u.RawPath, "/")
	}
	u.Fragment, u.RawFragment = "", ""
	return u.String()
}
