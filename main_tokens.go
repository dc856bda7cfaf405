// main_tokens.go - the files that keep the logins from one run to the next.
// SPDX-License-Identifier: 0BSD

package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// newLoginFile returns the file for the login to a server. It makes the folder, but not the file. A
// person, and each client that is configured, has a file of its own: nobody uses the rights of
// somebody else.
func newLoginFile(resource string, c *OAuthConfig) (*OAuthFile, error) {
	folder, err := os.UserConfigDir()
	folder = filepath.Join(folder, "mcpagent", "logins")
	if err == nil {
		err = os.MkdirAll(folder, 0o700)
	}
	if err != nil {
		// The machine may have no home.
		return nil, fmt.Errorf("logins cannot be kept: %w", err)
	}
	// Somebody else may have made the folder, with other rights.
	_ = os.Chmod(folder, 0o700)
	identity := resource
	if c != nil && c.Grant+c.Client.ID != "" {
		identity += "\n" + c.Grant + "\n" + c.Client.ID
	}
	// The name is a hash, as the URL may have secrets.
	name := fmt.Sprintf("%.16x.json", sha256.Sum256([]byte(identity)))
	return &OAuthFile{
		Path:     filepath.Join(folder, name),
		Resource: resource,
		LockFile: lockLogin,
	}, nil
}

// lockLogin is OAuthFile.LockFile. Where nobody can make the lock, nobody can write the login
// either: Save says why.
func lockLogin(ctx context.Context, path string) (unlock func(), err error) {
	unlock, err = LockSession(ctx, path)
	if err != nil && !errors.Is(err, ErrSessionBusy) {
		return func() {}, nil
	}
	return unlock, err
}
