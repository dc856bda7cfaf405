// main_login.go - the logins of a run, one for each server that asks for it.
// SPDX-License-Identifier: 0BSD

package main

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"os"
	"sync/atomic"
	"time"
)

// logins are the authorizations of a run, one for each server that may ask for a login. The
// commands login, logout and whoami are their methods.
type logins struct {
	config   *configuration
	output   *output
	terminal *Terminal

	all map[string]*login // by the server's name
}

// login is the authorization at one server. The goroutine of the login asks a person. The chat and
// the commands read the question meanwhile. The host reads how long the person was asked, because a
// server has not failed while it waits for a person.
type login struct {
	logins *logins
	server *Server
	oauth  *OAuth
	asking atomic.Pointer[question] // the question, until its login has ended; nil if there is none
	asked  atomic.Int64             // how long earlier questions took in all, in nanoseconds
	failed atomic.Pointer[error]    // why the last login failed: only /reconnect begins another
}

// add makes the authorization of each server that may ask for a login. A server for which the user
// has set a header Authorization gets that header, and no login. On a machine without a home a
// login lasts for this run.
func (p *logins) add() {
	p.all = make(map[string]*login)
	addSecret := func(text string) { p.output.screen.Secrets.Add("[secret]", text) }
	for i := range p.config.servers {
		s := &p.config.servers[i]
		c := cmp.Or(p.config.oauth[s.Name], new(OAuthConfig))
		isAuthorized := s.Header.Get("Authorization") != ""
		if s.Err != nil || s.URL == "" || isAuthorized || c.Never {
			continue
		}
		l := &login{logins: p, server: s}
		l.oauth = &OAuth{
			Resource:    s.URL,
			Base:        &OAuthGuard{Resource: s.URL, Base: NewHTTPTransport()},
			Client:      c.Client,
			MetadataURL: c.MetadataURL,
			ClientName:  "mcpagent",
			ExtraScopes: c.Scopes,
			Secret:      addSecret,
		}
		// Without a file the tokens are kept in memory.
		file, err := newLoginFile(s.URL, c)
		if err == nil {
			l.oauth.Store = file
		}
		if p.isAttended() {
			l.oauth.Listen = l.listen
		}
		s.Err = l.setGrant(c)
		if s.Err == nil {
			p.all[s.Name] = l
			s.Client = &http.Client{Transport: l.oauth}
			s.Waited = l.waited
		}
	}
}

// setGrant sets the grant that logs in without a person, and the keys of the client. One key serves
// both: it signs the assertions that say who the client is, and the proofs of DPoP.
func (l *login) setGrant(c *OAuthConfig) error {
	o := l.oauth
	key := []byte(c.Key)
	if c.KeyFile != "" {
		var err error
		key, err = os.ReadFile(c.KeyFile)
		if err != nil {
			return fmt.Errorf("oauth privateKeyFile: %w", err)
		}
		l.logins.output.screen.Secrets.AddVariable("privateKey", string(key))
	}
	if len(key) > 0 {
		assert, err := PrivateKeyJWT(c.Client.ID, key, "")
		if err != nil {
			return fmt.Errorf("oauth privateKey: %w", err)
		}
		o.Assert = assert
	}
	if c.DPoP {
		bound := &DPoP{Base: o.Base}
		// ECKey fails if there is no key. An invalid key was refused above.
		bound.Key, _ = ECKey(key)
		if bound.Key == nil {
			// The key is made for this run, and a token without its key is of no use to the next.
			o.Store = nil
		}
		o.Base = bound
	}
	// The platform renews the file, so it is read for each token.
	read := AssertionFile(c.AssertionFile)
	if c.Assertion != "" {
		read = func(context.Context) (string, error) { return c.Assertion, nil }
	}
	switch c.Grant {
	case "client_credentials":
		o.Grant = ClientCredentials
	case "jwt_bearer":
		o.Grant = JWTBearer(read)
	case "token_exchange":
		// The configuration names the provider, and not the server: it needs no guard.
		provider := &IdentityProvider{
			TokenEndpoint: c.Provider,
			Client:        c.ProviderClient,
			Subject:       read,
			Base:          NewHTTPTransport(),
			Secret:        o.Secret,
		}
		o.Grant = provider.Grant
	}
	return nil
}

// isAttended reports whether a person watches the run, who can be asked to log in. In a script,
// with -q, and where the answer goes into a file, nobody would see the question. There the login
// fails, and its error says which command to run.
func (p *logins) isAttended() bool {
	if p.output.settings.quiet || !p.output.screen.Answers {
		return false
	}
	return p.terminal.Interactive() && IsTerminal(os.Stderr)
}

// close ends the logins that are under way, and their connections.
func (p *logins) close() {
	for _, l := range p.all {
		_ = l.oauth.Close()
		l.oauth.CloseIdleConnections()
	}
}

// retry calls do, which needs servers. If a person was asked for a login meanwhile, retry waits for
// the end of the login and for the tools of its server, and calls do again. In a chat it calls do
// once: the user goes on without the server.
func (p *logins) retry(ctx context.Context, host *Host, do func() error) error {
	err := do()
	if p.output.inChat {
		return err
	}
	for _, l := range p.all {
		q := l.asking.Load()
		if q == nil {
			continue
		}
		select {
		case <-q.ended:
			_, _ = host.Tools(ctx, l.server.Name)
			return p.retry(ctx, host, do)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return err
}

// nameOf returns what the user calls the server of a resource, or "" if it has no login.
func (p *logins) nameOf(resource string) string {
	for _, l := range p.all {
		if l.server.URL == resource {
			return l.name()
		}
	}
	return ""
}

// askAgain shows once more the question for the login to a server, and reports whether there is
// such a question. If there is none, the server may ask for a login again after a failed one.
func (p *logins) askAgain(server string) bool {
	l := p.all[server]
	if l == nil {
		return false
	}
	q := l.asking.Load()
	if q != nil {
		p.output.screen.Show(Look{}, q.text)
		return true
	}
	l.failed.Store(nil)
	return false
}

// waited is Server.Waited: how long a person was asked in all, and whether somebody is asked now.
// The host does not count that time as the server's.
func (l *login) waited() (total time.Duration, now bool) {
	total = time.Duration(l.asked.Load())
	if q := l.asking.Load(); q != nil {
		return total + time.Since(q.since), true
	}
	return total, false
}

// name is what the user calls the server.
func (l *login) name() string { return cmp.Or(l.logins.config.only, l.server.Name) }

// giveUp is for Ctrl-C in a chat, which ends what is under way and not the chat. It ends the logins
// that somebody is asked for, and reports whether there were any.
func (p *logins) giveUp() (any bool) {
	for _, l := range p.all {
		q := l.asking.Load()
		if q != nil && q.GiveUp() {
			any = true
		}
	}
	return any
}

// pasted takes a line that is the address at which a login ends, and reports whether it was one.
// The address has the state of its login, so it cannot end the login to another server.
func (p *logins) pasted(line string) bool {
	for _, l := range p.all {
		q := l.asking.Load()
		if q != nil && q.Answer(line) {
			return true
		}
	}
	return false
}
