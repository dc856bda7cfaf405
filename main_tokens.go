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
	"slices"
)

// loginFolder returns the folder of the files, and makes it.
func loginFolder() (string, error) {
	folder, err := os.UserConfigDir()
	folder = filepath.Join(folder, "mcpagent", "logins")
	if err == nil {
		err = MakeFolder(folder)
	}
	if err != nil {
		// The machine may have no home.
		return "", fmt.Errorf("logins cannot be kept: %w", err)
	}
	// Somebody else may have made the folder, with other rights.
	_ = os.Chmod(folder, 0o700)
	return folder, nil
}

// newLoginFile returns the file for the login to a server, which it does not make. However the
// server's URL is spelled, it is the same file. A person, and each client that is configured, has a
// file of its own: nobody uses the rights of somebody else.
func newLoginFile(resource string, c *OAuthConfig) (*OAuthFile, error) {
	folder, err := loginFolder()
	if err != nil {
		return nil, err
	}
	file := &OAuthFile{Resource: resource, LockFile: lockLogin}
	identity := CanonicalResource(resource)
	if c != nil && c.Grant+c.Client.ID != "" {
		identity += "\n" + c.Grant + "\n" + c.Client.ID
		file.Grant = c.Grant
	}
	// The name is a hash, as the URL may have secrets.
	name := fmt.Sprintf("%.16x.json", sha256.Sum256([]byte(identity)))
	file.Path = filepath.Join(folder, name)
	return file, nil
}

// savedLogin is a login in a file.
type savedLogin struct {
	file  *OAuthFile
	state *OAuthState // its Token is not nil
}

// savedLogins reads the logins of all files, also those of servers that are in no configuration
// now. A file that is no login is named in the error. It does not keep the others from the list.
func savedLogins() (list []savedLogin, failed error) {
	folder, err := loginFolder()
	if err != nil {
		return nil, err
	}
	// The pattern is valid, so there is no error.
	paths, _ := filepath.Glob(filepath.Join(folder, "*.json"))
	for _, path := range paths {
		file := &OAuthFile{Path: path, LockFile: lockLogin}
		state, err := file.Load()
		switch {
		case err != nil && failed != nil:
			failed = fmt.Errorf("%w; %w", failed, err)
		case err != nil:
			failed = err
		case state.Token != nil:
			list = append(list, savedLogin{file, state})
		default:
			// A client is registered for this server, and nobody is logged in.
		}
	}
	slices.SortFunc(list, func(a, b savedLogin) int {
		return slices.Compare(a.identity(), b.identity())
	})
	return list, failed
}

// identity tells a login from all others.
func (s *savedLogin) identity() []string {
	return []string{s.file.Resource, s.client(), s.file.Grant}
}

// client returns the ID of the client to which the token was issued, or "" if that is not known.
func (s *savedLogin) client() string { return s.state.Clients[s.state.Token.Issuer].ID }

// lockLogin is OAuthFile.LockFile. Where nobody can make the lock, nobody can write the login
// either: Save says why.
func lockLogin(ctx context.Context, path string) (unlock func(), err error) {
	unlock, err = LockSession(ctx, path)
	if err != nil && !errors.Is(err, ErrSessionBusy) {
		return func() {}, nil
	}
	return unlock, err
}
