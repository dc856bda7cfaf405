// main_login.go - logging in to servers: who is asked, what the browser comes back to, and the commands.
// SPDX-License-Identifier: 0BSD

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"time"
)

// login is the authorization at one server.
type login struct {
	*program
	server *Server
	oauth  *OAuth
	asking atomic.Pointer[question] // what a person is asked, until that login has ended; nil if nothing
	asked  atomic.Int64             // for how long before that, in all, in nanoseconds
	failed atomic.Pointer[error]    // why the last login failed: there is no other one before /reconnect
}

// addLogins makes the authorization of each server that may ask for one.
func (p *program) addLogins() {
	p.logins = make(map[string]*login)
	for i := range p.servers {
		s, c := &p.servers[i], cmp.Or(p.oauth[p.servers[i].Name], new(OAuthConfig))
		if s.Err != nil || s.URL == "" || s.Header.Get("Authorization") != "" || c.Never {
			continue
		}
		l := &login{program: p, server: s}
		guard := &OAuthGuard{Resource: s.URL, Base: NewHTTPTransport()}
		l.oauth = &OAuth{Resource: s.URL, Base: guard, Client: c.Client, MetadataURL: c.MetadataURL,
			ClientName: "mcpagent", ExtraScopes: c.Scopes, Secret: func(text string) { p.secrets.Add("[secret]", text) }}
		if file, err := newLoginFile(s.URL, c); err == nil { // a machine may have no home: then it is for this run
			l.oauth.Store = file
		}
		if p.onTerminal() {
			l.oauth.Listen = l.listen
		}
		if s.Err = l.setGrant(c); s.Err == nil {
			p.logins[s.Name], s.Client, s.Waited = l, &http.Client{Transport: l.oauth}, l.waited
		}
	}
}

// setGrant sets what logs in without a person, and keys.
func (l *login) setGrant(c *OAuthConfig) (err error) {
	o, key := l.oauth, []byte(c.Key)
	if c.KeyFile != "" {
		if key, err = os.ReadFile(c.KeyFile); err != nil {
			return fmt.Errorf("oauth privateKeyFile: %w", err)
		}
		l.secrets.AddVariable("privateKey", string(key))
	}
	if len(key) > 0 {
		if o.Assert, err = PrivateKeyJWT(c.Client.ID, key, ""); err != nil {
			err = fmt.Errorf("oauth privateKey: %w", err)
		}
	}
	if c.DPoP {
		bound := &DPoP{Base: o.Base}
		if bound.Key, _ = ECKey(key); bound.Key == nil { // whose error is that of PrivateKeyJWT
			o.Store = nil // a token without its key is of no use to the next run
		}
		o.Base = bound
	}
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
		provider := &IdentityProvider{TokenEndpoint: c.Provider, Client: c.ProviderClient, Subject: read,
			Base: NewHTTPTransport(), Secret: o.Secret} // which the configuration names, and not the server
		o.Grant = provider.Grant
	}
	return err
}

// onTerminal reports whether there is a person, who sees all that is written and wants to.
func (p *program) onTerminal() bool {
	return !p.quiet && p.screen.Answers && p.terminal.Interactive() && IsTerminal(os.Stderr)
}

func (p *program) closeLogins() {
	for _, l := range p.logins {
		_ = l.oauth.Close()
		l.oauth.CloseIdleConnections()
	}
}

// withLogins does what needs servers, and does it again after each login that somebody was asked for meanwhile, when
// the server has its tools. A chat goes on without.
func (p *program) withLogins(ctx context.Context, host *Host, do func() error) error {
	err := do()
	for _, l := range p.logins {
		if q := l.asking.Load(); q != nil && !p.chatting {
			select {
			case <-q.ended:
				_, _ = host.Tools(ctx, l.server.Name)
				return p.withLogins(ctx, host, do)
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	}
	return err
}

// waited is Server.Waited.
func (l *login) waited() (total time.Duration, now bool) {
	total = time.Duration(l.asked.Load())
	if q := l.asking.Load(); q != nil {
		return total + time.Since(q.since), true
	}
	return total, false
}

// name is what the user calls the server.
func (l *login) name() string { return cmp.Or(l.program.server, l.server.Name) }

// listen is OAuth.Listen. After a login that has failed there is no other one before /reconnect.
func (l *login) listen(ctx context.Context, redirectURI string) (Redirect, error) {
	failed := l.failed.Load()
	if failed != nil {
		return nil, *failed
	}
	r := &loginRedirect{login: l, ended: make(chan struct{})}
	listener := &OAuthListener{
		Name:        "mcpagent",
		Resource:    l.oauth.Resource,
		RedirectURI: l.oauth.Client.RedirectURI,
		Show:        r.show,
		Mask:        func(text string) string { return Visible(l.secrets.Mask(text)) },
	}
	var err error
	r.Redirect, err = listener.Listen(ctx, redirectURI)
	if err != nil {
		return nil, err
	}
	return r, nil
}

// loginRedirect is the Redirect of an OAuthListener, for one login.
type loginRedirect struct {
	Redirect
	login *login
	ended chan struct{} // closed by Close
}

// question is what a person is asked.
type question struct {
	*OAuthQuestion
	text  string // for the person
	since time.Time
	ended chan struct{} // closed when the login has ended
}

// show is OAuthListener.Show. A person can log in with a browser of this machine, or with one
// elsewhere, whose last address is pasted here. In a chat the chat reads it.
func (r *loginRedirect) show(ctx context.Context, asked *OAuthQuestion) {
	l := r.login
	isRead := l.terminal.Interactive()
	host := asked.Address
	if u, err := url.Parse(asked.Address); err == nil {
		host = u.Host
	}
	text := fmt.Sprintf("%s asks for a login at %s. Open this address", l.name(), host)
	if l.onTerminal() && browse(asked.Address) {
		text += ", if a browser does not by itself"
	}
	text += ":\n" + asked.Address
	if isRead {
		text += "\nIf that ends at a page that cannot be shown, paste its address here: " +
			asked.RedirectURI + "?…\nCtrl-C gives the login up."
	}
	q := &question{asked, text, time.Now(), r.ended}
	before := l.asking.Swap(q)
	if before != nil {
		l.asked.Add(int64(q.since.Sub(before.since)))
	}
	l.screen.Show(Look{}, text)
	if !isRead || l.chatting {
		return
	}
	for {
		line, err := l.terminal.Prompt(ctx, "address:")
		if err != nil || l.pasted(line) {
			return
		}
		l.screen.Show(Look{}, "(that is not where this login ends)")
	}
}

// Close tells the browser, and in a chat the person, how the login has ended.
func (r *loginRedirect) Close(err error) {
	l := r.login
	refusal := new(OAuthError)
	// For a client that the server has forgotten another one is registered.
	isForgotten := errors.As(err, &refusal) && refusal.Code == "invalid_client"
	if err != nil && !isForgotten {
		l.failed.Store(&err)
	}
	q := l.asking.Swap(nil)
	if q != nil {
		l.asked.Add(int64(time.Since(q.since)))
	}
	close(r.ended)
	r.Redirect.Close(err)
	switch {
	case !l.chatting || errors.Is(err, context.Canceled):
		// The chat is at its end where the login is cancelled.
	case err == nil:
		l.screen.Show(Look{}, fmt.Sprintf("(logged in to %s)", l.name()))
	default:
		l.screen.Show(Look{}, fmt.Sprintf(
			"the login to %s has failed: %v; /reconnect begins another", l.name(), err))
	}
}

// giveUpLogins ends the logins that somebody is asked for, and reports whether there were any.
func (p *program) giveUpLogins() (any bool) {
	for _, l := range p.logins {
		q := l.asking.Load()
		if q != nil && q.GiveUp() {
			any = true
		}
	}
	return any
}

// pasted takes a line that is where a login ends, and reports whether it was one.
func (p *program) pasted(line string) bool {
	for _, l := range p.logins {
		q := l.asking.Load()
		if q != nil && q.Answer(line) {
			return true
		}
	}
	return false
}

// browse opens an address, which is one of http or https, in the user's browser, and reports whether it could: not
// where that would be another machine's.
func browse(address string) bool {
	words := []string{"sh", "-c", `trap "" INT HUP; exec xdg-open "$0"`} // Ctrl-C is not for the browser
	switch runtime.GOOS {
	case "windows":
		words = []string{"rundll32", "url.dll,FileProtocolHandler"}
	case "darwin":
		words = []string{"open"}
	}
	noDisplay := os.Getenv("DISPLAY")+os.Getenv("WAYLAND_DISPLAY") == ""
	if noDisplay && (words[0] == "sh" || os.Getenv("SSH_CONNECTION") != "") {
		return false
	}
	command := exec.Command(words[0], append(words[1:], address)...)
	if command.Start() != nil {
		return false
	}
	go func() { _ = command.Wait() }() // until the browser or the program ends
	return true
}

// remote returns the server that the argument of a command names, by its URL or by its name in the configuration; and
// the file of its login.
func (p *program) remote(ctx context.Context, command string, args []string) (*Server, *OAuthFile, error) {
	if len(args) != 1 {
		return nil, nil, usageError("%s takes the URL or the name of a server", command)
	}
	if strings.HasPrefix(args[0], "https://") || strings.HasPrefix(args[0], "http://") {
		p.server = args[0]
	}
	if err := p.configure(ctx); err != nil {
		return nil, nil, err
	}
	for i := range p.servers {
		if s := &p.servers[i]; s.URL != "" && (s.Name == args[0] || s.URL == args[0]) {
			file, err := newLoginFile(s.URL, p.oauth[s.Name])
			return s, file, cmp.Or(s.Err, err)
		}
	}
	return nil, nil, usageError("%s takes the URL of a server, or its name if it is configured with a url; %q is neither",
		command, args[0])
}

// logIn is the command login.
func (p *program) logIn(ctx context.Context, args []string) error {
	s, _, err := p.remote(ctx, "login", args)
	if err != nil {
		return err
	}
	p.addLogins()
	defer p.closeLogins()
	l := p.logins[s.Name]
	if l == nil {
		return cmp.Or(s.Err, fmt.Errorf("%s has \"oauth\": false, or a header Authorization: no login is used", s.Name))
	} else if l.oauth.Store == nil {
		return fmt.Errorf("%s has \"dpop\": true, and no privateKey: a login lasts for one run", s.Name)
	}
	l.oauth.Listen = l.listen
	if _, err = l.oauth.Login(ctx); err == nil {
		p.note("logged in to %s", s.URL)
	}
	return err
}

// logOut is the command logout. The authorization server is not told: a token is of use until it expires.
func (p *program) logOut(ctx context.Context, args []string) error {
	_, file, err := p.remote(ctx, "logout", args)
	if err != nil {
		return err
	}
	unlock, err := file.Lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if err = os.Remove(file.Path); errors.Is(err, fs.ErrNotExist) {
		p.note("there was no login to %s", args[0])
		return nil
	}
	return err
}

// whoAmI is the command whoami. It prints what a person may know of the logins.
func (p *program) whoAmI(_ context.Context, args []string) error {
	if len(args) > 0 {
		return usageError("whoami takes no arguments: it shows all logins")
	}
	file, err := newLoginFile("", nil)
	if err != nil {
		return err
	}
	text, list := "", []any{}
	files, _ := filepath.Glob(filepath.Join(filepath.Dir(file.Path), "*.json")) // the pattern is valid
	for _, path := range files {
		l, err := (&OAuthFile{Path: path}).Load()
		if err != nil {
			return err
		}
		if l.Token == nil {
			continue
		}
		if u, err := url.Parse(l.Resource); err == nil {
			p.secrets.AddURL(u)
		}
		scopes, until, refresh := append([]string{}, l.Token.GrantedScopes...), "not known", l.Token.Refresh != ""
		list = append(list, map[string]any{"server": l.Resource, "issuer": l.Token.Issuer, "scopes": scopes,
			"expiry": l.Token.Expiry, "refresh": refresh})
		if !l.Token.Expiry.IsZero() {
			until = l.Token.Expiry.Local().Format(time.DateTime)
		}
		if refresh {
			until += ", then refreshed"
		}
		text += fmt.Sprintf("%s\n    issuer  %s\n    scopes  %s\n    until   %s\n", l.Resource, l.Token.Issuer,
			strings.Join(scopes, " "), until)
	}
	if len(list) == 0 {
		p.note("there are no logins")
	}
	if p.json {
		return p.printJSON(list)
	}
	return p.screen.Print(Look{}, text)
}
