// main_login_commands.go - the commands login, logout and whoami.
// SPDX-License-Identifier: 0BSD

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// remote returns the server that the argument of a command names, and the file of its login. The
// argument is a URL, which needs no configuration, or the name of a server in the configuration
// that has a URL. Servers with a command ask for no login.
func (p *logins) remote(
	ctx context.Context,
	command string,
	args []string,
) (*Server, *OAuthFile, error) {
	if len(args) != 1 {
		return nil, nil, usageError("%s takes the URL or the name of a server", command)
	}
	name := args[0]
	read := p.config.read
	if strings.HasPrefix(name, "https://") || strings.HasPrefix(name, "http://") {
		read = func(context.Context) error { return p.config.readOnly(name) }
	}
	if err := read(ctx); err != nil {
		return nil, nil, err
	}
	for i := range p.config.servers {
		s := &p.config.servers[i]
		if s.URL == "" || s.Name != name && s.URL != name {
			continue
		}
		if s.Err != nil {
			return nil, nil, s.Err
		}
		file, err := newLoginFile(s.URL, p.config.oauth[s.Name])
		return s, file, err
	}
	return nil, nil, usageError("%s takes the URL of a server, or its name if it is configured "+
		"with a url; %q is neither", command, name)
}

// logIn is the command login. The user wants nothing but the login here, so it asks also where
// other commands would not, such as with -q (see isAttended).
func (p *logins) logIn(ctx context.Context, args []string) error {
	s, _, err := p.remote(ctx, "login", args)
	if err != nil {
		return err
	}
	p.add()
	defer p.close()
	if s.Err != nil {
		return s.Err
	}
	l := p.all[s.Name]
	if l == nil {
		return fmt.Errorf("%s has \"oauth\": false, or a header Authorization: no login is used",
			s.Name)
	}
	if l.oauth.Store == nil {
		return fmt.Errorf("%s has \"dpop\": true, and no privateKey: a login lasts for one run",
			s.Name)
	}
	l.oauth.Listen = l.listen
	if _, err := l.oauth.Login(ctx); err != nil {
		return err
	}
	p.output.note("logged in to %s", s.URL)
	return nil
}

// logOut is the command logout. The authorization server is not told: a token is of use until it
// expires.
func (p *logins) logOut(ctx context.Context, args []string) error {
	_, file, err := p.remote(ctx, "logout", args)
	if err != nil {
		return err
	}
	// Another process may be about to save a refreshed token. It would bring the login back.
	unlock, err := file.Lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	err = os.Remove(file.Path)
	if errors.Is(err, fs.ErrNotExist) {
		p.output.note("there was no login to %s", args[0])
		return nil
	}
	return err
}

// keptLogin describes a saved login without its secrets, as whoami -json prints it.
type keptLogin struct {
	Expiry  time.Time `json:"expiry"` // of the token; zero if it is not known
	Issuer  string    `json:"issuer"`
	Refresh bool      `json:"refresh"` // the token is refreshed when it has expired
	Scopes  []string  `json:"scopes"`  // never null
	Server  string    `json:"server"`
}

// String returns lines for a person.
func (k *keptLogin) String() string {
	until := "not known"
	if !k.Expiry.IsZero() {
		until = k.Expiry.Local().Format(time.DateTime)
	}
	if k.Refresh {
		until += ", then refreshed"
	}
	return fmt.Sprintf("%s\n    issuer  %s\n    scopes  %s\n    until   %s\n",
		k.Server, k.Issuer, strings.Join(k.Scopes, " "), until)
}

// whoAmI is the command whoami. It prints the saved logins without their secrets.
func (p *logins) whoAmI(_ context.Context, args []string) error {
	if len(args) > 0 {
		return usageError("whoami takes no arguments: it shows all logins")
	}
	list, err := p.kept()
	if err != nil {
		return err
	}
	if len(list) == 0 {
		p.output.note("there are no logins")
	}
	if p.output.settings.json {
		return p.output.printJSON(list)
	}
	text := ""
	for _, k := range list {
		text += k.String()
	}
	return p.output.screen.Print(Look{}, text)
}

// kept reads the logins of all files, also those of servers that are in no configuration now.
// Secrets in the URL of a server are not shown.
func (p *logins) kept() ([]keptLogin, error) {
	file, err := newLoginFile("", nil)
	if err != nil {
		return nil, err
	}
	// The pattern is valid, so there is no error.
	files, _ := filepath.Glob(filepath.Join(filepath.Dir(file.Path), "*.json"))
	// The list is printed as [] where there are no logins, and not as null.
	list := []keptLogin{}
	for _, path := range files {
		state, err := (&OAuthFile{Path: path}).Load()
		if err != nil {
			return nil, err
		}
		if state.Token == nil {
			// A client is registered for this server, and nobody is logged in.
			continue
		}
		if u, err := url.Parse(state.Resource); err == nil {
			p.output.screen.Secrets.AddURL(u)
		}
		list = append(list, keptLogin{
			Expiry:  state.Token.Expiry,
			Issuer:  state.Token.Issuer,
			Refresh: state.Token.Refresh != "",
			Scopes:  append([]string{}, state.Token.GrantedScopes...),
			Server:  state.Resource,
		})
	}
	return list, nil
}
