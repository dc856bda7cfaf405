// main_tokens.go - the logins that are kept from one run to the next: a file for each server.
// SPDX-License-Identifier: 0BSD

package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// loginFile is the OAuthStore of one server: a file that only its owner can read, in a folder of the same kind.
type loginFile struct{ path, resource string }

// newLoginFile returns the file of a server, which may not exist, in a folder that does. A person and each client that
// is configured have files of their own: nobody uses the rights of another one.
func newLoginFile(resource string, c *OAuthConfig) (*loginFile, error) {
	folder, err := os.UserConfigDir()
	folder = filepath.Join(folder, "mcpagent", "logins")
	if err == nil {
		err = os.MkdirAll(folder, 0o700)
	}
	if err != nil { // a machine may have no home
		return nil, fmt.Errorf("logins cannot be kept: %w", err)
	}
	_ = os.Chmod(folder, 0o700) // of one that was made by other means
	identity := resource
	if c != nil && c.Grant+c.Client.ID != "" {
		identity += "\n" + c.Grant + "\n" + c.Client.ID
	}
	name := fmt.Sprintf("%.16x.json", sha256.Sum256([]byte(identity))) // the URL may have secrets
	return &loginFile{filepath.Join(folder, name), resource}, nil
}

// Lock is OAuthStore.Lock.
func (f *loginFile) Lock(ctx context.Context) (unlock func(), err error) {
	unlock, err = LockSession(ctx, f.path)
	if err != nil && !errors.Is(err, ErrSessionBusy) { // then nobody can write here, and Save says why
		return func() {}, nil
	}
	return unlock, err
}

// Load is OAuthStore.Load. It is an error if there is something else than a login, which is not replaced then.
func (f *loginFile) Load() (*OAuthState, error) {
	state := new(OAuthState)
	text, err := os.ReadFile(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return state, nil
	}
	isOurs := func() bool { return state.Resource != "" && (f.resource == "" || f.resource == state.Resource) }
	if err == nil && (json.Unmarshal(text, state) != nil || !isOurs()) {
		err = fmt.Errorf("%s is not a login to this server: look at it, and remove it, to log in anew", f.path)
	}
	return state, err
}

// Save is OAuthStore.Save.
func (f *loginFile) Save(state *OAuthState) error {
	text, err := PlainJSON(state)
	if err != nil {
		return err
	}
	return ReplaceFile(f.path, append(text, '\n'))
}
