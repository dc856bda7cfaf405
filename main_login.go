// main_login.go - the logins of a run, one for each server that asks for it.
// SPDX-License-Identifier: 0BSD

package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync"
)

// logins are the authorizations of a run, one for each server that may ask for a login. The
// commands login, logout and whoami are their methods.
//
// No request waits for a person. A request that needs a login fails with a *LoginError: the server
// has not acted on it. Then the user is asked, and the request is made again (see
// servers.withLogins and servers.afterLogin).
type logins struct {
	config   *configuration
	output   *output
	terminal *Terminal
	trace    *trace // of the requests of a login, beside the messages; may be nil

	// rejoin starts a server after the login to it. It returns the server's error if that is still
	// a *LoginError. The command login has no servers, and a nil rejoin.
	rejoin func(ctx context.Context, server string) error

	all  map[string]*login // by the server's name
	life context.Context   // of the attempts
	end  context.CancelFunc
	work sync.WaitGroup // counts the goroutines of the attempts

	ending sync.Mutex // held while an attempt begins, and while life ends
}

// login is the authorization at one server.
type login struct {
	logins *logins
	server *Server
	oauth  *OAuth // authorises the requests to the server, and asks nobody
	unkept error  // why logins are not kept on this machine, or nil

	mu      sync.Mutex    // guards the following; never held across I/O or a callback
	attempt *loginAttempt // is under way, or nil
	failed  error         // why the last attempt failed: only /reconnect begins another
}

// add makes the authorization of each server that may ask for a login. A server for which the user
// has set a header Authorization gets that header, and no login. On a machine without a home a
// login lasts for this run.
func (p *logins) add() {
	p.all = make(map[string]*login)
	p.life, p.end = context.WithCancel(context.Background())
	addSecret := func(text string) { p.output.screen.Secrets.Add("[secret]", text) }
	for i := range p.config.servers {
		s := &p.config.servers[i]
		c := cmp.Or(p.config.oauth[s.Name], new(OAuthConfig))
		isAuthorized := s.Header.Get("Authorization") != ""
		if s.Err != nil || s.URL == "" {
			continue
		}
		var own *tls.Config
		own, s.Err = loadTLS(p.config.tls[s.Name], p.output.screen.Secrets)
		if s.Err != nil {
			continue
		}
		if isAuthorized || c.Never {
			s.Client = clientWith(own)
			continue
		}
		l := &login{logins: p, server: s}
		guard := &OAuthGuard{Resource: s.URL, Base: NewHTTPTransport(), TLS: own}
		l.oauth = &OAuth{
			Resource:    s.URL,
			Base:        p.traced(s, guard),
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
		l.unkept = err
		s.Err = l.setGrant(c)
		if s.Err == nil {
			p.all[s.Name] = l
			s.Client = &http.Client{Transport: l.oauth}
		}
	}
}

// maxKeyFile bounds the file of a private key, in bytes.
const maxKeyFile = 1 << 20

// setGrant sets the grant that logs in without a person, and the keys of the client. One key serves
// both: it signs the assertions that say who the client is, and the proofs of DPoP.
func (l *login) setGrant(c *OAuthConfig) error {
	o := l.oauth
	key := []byte(c.Key)
	if c.KeyFile != "" {
		var err error
		key, err = ReadRegular(c.KeyFile, maxKeyFile)
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
			Base:          l.logins.traced(l.server, NewHTTPTransport()),
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

// stopAsking ends the attempts that are under way, and returns when they have ended. No attempt
// may begin from then on.
func (p *logins) stopAsking() {
	p.ending.Lock()
	p.end()
	p.ending.Unlock()
	p.work.Wait()
}

// close ends the logins, and their connections.
func (p *logins) close() {
	p.stopAsking()
	for _, l := range p.all {
		_ = l.oauth.Close()
		l.oauth.CloseIdleConnections()
	}
}

// neededLogin returns the error in err that says that a person has to log in, or nil.
func neededLogin(err error) *LoginError {
	var needed *LoginError
	errors.As(err, &needed)
	return needed
}

// attended returns the login to a server if the user can be asked for it, else nil.
func (p *logins) attended(server string) *login {
	if !p.isAttended() {
		return nil
	}
	return p.all[server]
}

// explain returns the error of a request in words that say what to do, if somebody has to log in.
// Any other error stays as it is.
func (p *logins) explain(err error) error {
	var needed *LoginError
	if !errors.As(err, &needed) {
		return err
	}
	for _, s := range p.config.servers {
		if l := p.all[s.Name]; l != nil && s.URL == needed.Resource {
			return fmt.Errorf("server %s: %w", OneName(l.name()), l.explain(err))
		}
	}
	return err
}

// name is what the user calls the server.
func (l *login) name() string { return cmp.Or(l.logins.config.only, l.server.Name) }

// explain is logins.explain for an error of this server, whose name it does not repeat. Nor does it
// repeat the method of the request, which has not come to the server. l may be nil.
func (l *login) explain(err error) error {
	var authorization *AuthorizationError
	if l == nil || !errors.As(err, &authorization) {
		return err
	}
	var needed *LoginError
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case !errors.As(authorization, &needed):
		return authorization
	case l.failed != nil:
		return l.failed
	case l.attempt == nil:
		// It is explained now, and is not to be explained again: so it is no LoginError any more.
		return fmt.Errorf("%v; run: mcpagent login %s%s",
			needed, word(l.name()), l.orHeader(needed))
	case l.attempt.isAsking():
		return fmt.Errorf("it is waiting for a login; finish it, and ask again; "+
			"/reconnect %s shows its address", word(l.server.Name))
	}
	return errors.New("a login to it has just ended")
}

// orHeader returns what helps in place of a login, "" if a login was made before. Many a server
// refuses a request without its fixed token in the same way as one that wants a login.
func (l *login) orHeader(needed *LoginError) string {
	if needed.Reason != nil || needed.IsStepUp() {
		return ""
	}
	setting := `"headers" in the configuration`
	if l.logins.config.only != "" {
		setting = "MCP_HEADERS"
	}
	return "; or, if it takes a fixed token or key, set its header with " + setting
}

// asking returns the attempt for which the user is asked now, or nil.
func (l *login) asking() *loginAttempt {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.attempt == nil || !l.attempt.isAsking() {
		return nil
	}
	return l.attempt
}

// hasAttempt reports whether a login to a server is under way, or the start after it.
func (p *logins) hasAttempt(server string) bool {
	l := p.all[server]
	if l == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.attempt != nil
}

// askAgain shows once more the question for the login to a server, and reports whether the user is
// asked now. If not, a new attempt may begin, also after one that has failed.
func (p *logins) askAgain(server string) bool {
	l := p.all[server]
	if l == nil {
		return false
	}
	a := l.asking()
	if a == nil {
		l.forgetFailure()
		return false
	}
	q := a.question.Load()
	if q != nil {
		p.output.screen.Show(Look{}, q.text)
	}
	return true
}

// forgetFailure lets a new attempt begin: the user wants it, or a request has succeeded since.
func (l *login) forgetFailure() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failed = nil
}

// giveUp is for Ctrl-C in a chat, which ends what is under way and not the chat. It ends the logins
// that the user is asked for, and reports whether there were any.
func (p *logins) giveUp() (any bool) {
	for _, l := range p.all {
		a := l.asking()
		if a != nil {
			a.stop(errGivenUp)
			any = true
		}
	}
	return any
}

// pasted takes a line that is the address at which a login ends, and returns the attempt at this
// login, or nil if there is none. The address has the state of its login, so it cannot end the
// login to another server.
func (p *logins) pasted(line string) *loginAttempt {
	for _, l := range p.all {
		a := l.asking()
		if a == nil {
			continue
		}
		q := a.question.Load()
		if q != nil && q.Answer(line) {
			return a
		}
	}
	return nil
}
