// main_login_commands.go - the command login, and the server that the argument of a command names.
// SPDX-License-Identifier: 0BSD

package main

import (
	"context"
	"fmt"
	"net/url"
	"strings"
)

// remote returns the server that the argument of a command names. The argument is a URL, which
// needs no configuration, or the name of a server in the configuration that has a URL. Servers with
// a command ask for no login.
func (p *logins) remote(ctx context.Context, command string, args []string) (*Server, error) {
	if len(args) != 1 {
		return nil, usageError("%s takes the URL or the name of a server", command)
	}
	name := args[0]
	read := p.config.read
	if isServerURL(name) {
		read = func(ctx context.Context) error { return p.config.readURL(ctx, name) }
	}
	if err := read(ctx); err != nil {
		return nil, err
	}
	var found []*Server
	for i := range p.config.servers {
		s := &p.config.servers[i]
		isNamed := s.Name == name
		isMeant := isServerURL(name) && isSameURL(s.URL, name)
		if s.URL != "" && (isNamed || isMeant) {
			found = append(found, s)
		}
	}
	if len(found) == 0 {
		return nil, usageError("%s takes the URL of a server, or its name if it is configured "+
			"with a url; %q is neither", command, name)
	}
	if len(found) > 1 {
		var names []string
		for _, s := range found {
			names = append(names, s.Name)
		}
		return nil, usageError("%s is the URL of several servers: give the name of one of them, "+
			"%s", name, OneNames(names))
	}
	return found[0], found[0].Err
}

// isServerURL reports whether the argument of a command is a URL, and not a name.
func isServerURL(text string) bool {
	text = strings.ToLower(text)
	return strings.HasPrefix(text, "https://") || strings.HasPrefix(text, "http://")
}

// isSameURL reports whether two URLs are of the same server, however they are spelled.
func isSameURL(a, b string) bool { return CanonicalResource(a) == CanonicalResource(b) }

// logIn is the command login. The user wants nothing but the login here, so it asks also where
// other commands would not, such as with -q (see isAttended).
func (p *logins) logIn(ctx context.Context, args []string) error {
	s, err := p.remote(ctx, "login", args)
	if err != nil {
		return err
	}
	if err := checkEncrypted(s.URL); err != nil {
		return err
	}
	if err := p.openTrace(ctx); err != nil {
		return err
	}
	defer p.trace.close()
	p.add()
	defer p.close()
	if s.Err != nil {
		return s.Err
	}
	l := p.all[s.Name]
	if l == nil {
		return fmt.Errorf("%s has \"oauth\": false, or a header Authorization: no login is used",
			OneName(s.Name))
	}
	if l.unkept != nil {
		return l.unkept
	}
	if l.oauth.Store == nil {
		return fmt.Errorf("%s has \"dpop\": true, and no privateKey: a login lasts for one run",
			OneName(s.Name))
	}
	if err := l.ask(ctx, nil, ""); err != nil {
		return err
	}
	p.output.note("logged in to %s", s.URL)
	if !p.output.settings.json {
		return nil
	}
	return p.printLogin(s)
}

// printLogin prints the login to a server as JSON, in the form of whoami.
func (p *logins) printLogin(s *Server) error {
	file, err := newLoginFile(s.URL, p.config.oauth[s.Name])
	if err != nil {
		return err
	}
	state, err := file.Load()
	if err != nil {
		return err
	}
	if state.Token == nil {
		return fmt.Errorf("the login to %s has been removed by another program", s.URL)
	}
	return p.output.printJSON(newKeptLogin(savedLogin{file, state}))
}

// openTrace opens the trace of a command that uses no server.
func (p *logins) openTrace(ctx context.Context) error {
	return p.trace.open(ctx, p.config.settings.trace, p.config.hasSeveral())
}

// checkEncrypted returns an error if a token would go to a server without encryption. A login is
// not offered there, as it would end with this error.
func checkEncrypted(address string) error {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" || IsLoopback(u.Hostname()) {
		return nil
	}
	return fmt.Errorf("%s is not encrypted: a login needs https, except on this machine", address)
}
