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

// logins are the authorizations of a run, one for each server that may ask for one; and the
// commands about them.
type logins struct {
	config     *configuration
	output     *output
	terminal   *Terminal
	besideChat bool // a chat goes on while somebody logs in, and reads the address at the end

	all map[string]*login // by the server's name
}

// login is the authorization at one server.
type login struct {
	logins *logins
	server *Server
	oauth  *OAuth
	asking atomic.Pointer[question] // what a person is asked, until that login has ended; nil if nothing
	asked  atomic.Int64             // for how long before that, in all, in nanoseconds
	failed atomic.Pointer[error]    // why the last login failed: there is no other one before /reconnect
}

// add makes the authorization of each server that may ask for one. Where there is no home, a login
// lasts for this run.
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

// setGrant sets keys, and what logs in without a person.
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
		bound.Key, _ = ECKey(key) // fails only without a key, as PrivateKeyJWT did not
		if bound.Key == nil {
			// The key is made for this run, and a token without its key is of no use to the next.
			o.Store = nil
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

// isAttended reports whether there is a person, who sees all that is written and wants to.
func (p *logins) isAttended() bool {
	if p.output.settings.quiet || !p.output.screen.Answers {
		return false
	}
	return p.terminal.Interactive() && IsTerminal(os.Stderr)
}

func (p *logins) close() {
	for _, l := range p.all {
		_ = l.oauth.Close()
		l.oauth.CloseIdleConnections()
	}
}

// retry does what needs servers, and does it again after each login that somebody was asked for
// meanwhile, when the server has its tools. In a chat the user goes on without the server.
func (p *logins) retry(ctx context.Context, host *Host, do func() error) error {
	err := do()
	if p.besideChat {
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

// askAgain shows once more what a person is asked for the login to a server, and reports whether
// there is such a question. Without one, the server may ask for a login again after one has failed.
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

// waited is Server.Waited.
func (l *login) waited() (total time.Duration, now bool) {
	total = time.Duration(l.asked.Load())
	if q := l.asking.Load(); q != nil {
		return total + time.Since(q.since), true
	}
	return total, false
}

// name is what the user calls the server.
func (l *login) name() string { return cmp.Or(l.logins.config.only, l.server.Name) }

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
		Mask:        func(text string) string { return Visible(l.logins.output.screen.Secrets.Mask(text)) },
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
	isRead := l.logins.terminal.Interactive()
	host := asked.Address
	if u, err := url.Parse(asked.Address); err == nil {
		host = u.Host
	}
	text := fmt.Sprintf("%s asks for a login at %s. Open this address", l.name(), host)
	if l.logins.isAttended() && browse(asked.Address) {
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
	l.logins.output.screen.Show(Look{}, text)
	if !isRead || l.logins.besideChat {
		return
	}
	for {
		line, err := l.logins.terminal.Prompt(ctx, "address:")
		if err != nil || l.logins.pasted(line) {
			return
		}
		l.logins.output.screen.Show(Look{}, "(that is not where this login ends)")
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
	case !l.logins.besideChat || errors.Is(err, context.Canceled):
		// The chat is at its end where the login is cancelled.
	case err == nil:
		l.logins.output.screen.Show(Look{}, fmt.Sprintf("(logged in to %s)", l.name()))
	default:
		l.logins.output.screen.Show(Look{}, fmt.Sprintf(
			"the login to %s has failed: %v; /reconnect begins another", l.name(), err))
	}
}

// giveUp ends the logins that somebody is asked for, and reports whether there were any.
func (p *logins) giveUp() (any bool) {
	for _, l := range p.all {
		q := l.asking.Load()
		if q != nil && q.GiveUp() {
			any = true
		}
	}
	return any
}

// pasted takes a line that is where a login ends, and reports whether it was one.
func (p *logins) pasted(line string) bool {
	for _, l := range p.all {
		q := l.asking.Load()
		if q != nil && q.Answer(line) {
			return true
		}
	}
	return false
}

// browse opens an address, which is one of http or https, in the user's browser, and reports
// whether it could: not where that would be another machine's.
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

// remote returns the server that the argument of a command names, by its URL or by its name in the
// configuration; and the file of its login.
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
	return nil, nil, usageError("%s takes the URL of a server, or its name if it is configured with a "+
		"url; %q is neither", command, name)
}

// logIn is the command login.
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
		return fmt.Errorf("%s has \"dpop\": true, and no privateKey: a login lasts for one run", s.Name)
	}
	l.oauth.Listen = l.listen
	if _, err = l.oauth.Login(ctx); err == nil {
		p.output.note("logged in to %s", s.URL)
	}
	return err
}

// logOut is the command logout. The authorization server is not told: a token is of use until it
// expires.
func (p *logins) logOut(ctx context.Context, args []string) error {
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
		p.output.note("there was no login to %s", args[0])
		return nil
	}
	return err
}

// whoAmI is the command whoami. It prints what a person may know of the logins.
func (p *logins) whoAmI(_ context.Context, args []string) error {
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
			p.output.screen.Secrets.AddURL(u)
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
		p.output.note("there are no logins")
	}
	if p.output.settings.json {
		return p.output.printJSON(list)
	}
	return p.output.screen.Print(Look{}, text)
}
