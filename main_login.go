// main_login.go - logging in to servers: who is asked, what the browser comes back to, and the commands.
// SPDX-License-Identifier: 0BSD

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"html"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const loginTime = 10 * time.Minute // for a person to log in
const pageTime = time.Second       // for a request of the browser, and for the page that answers it

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
			ClientName: "mcpagent", Scopes: c.Scopes, Secret: func(text string) { p.secrets.Add("[secret]", text) }}
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

// listen is OAuth.Listen. Where the port of an earlier run is taken, it listens at another one.
func (l *login) listen(_ context.Context, redirectURI string) (Redirect, error) {
	if failed := l.failed.Load(); failed != nil {
		return nil, *failed
	}
	fixed := l.oauth.Client.RedirectURI // of the configuration
	u, err := url.Parse(cmp.Or(fixed, redirectURI, "http://127.0.0.1:0/callback"))
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:"+u.Port())
	if err != nil && fixed == "" {
		listener, err = net.Listen("tcp", "127.0.0.1:0")
	}
	if err != nil {
		return nil, fmt.Errorf("the browser cannot come back to %s: %w", u, err)
	}
	if fixed == "" {
		u.Host = listener.Addr().String()
	}
	r := &redirect{login: l, uri: u, ended: make(chan struct{})}
	r.page = http.Server{Handler: r, ReadHeaderTimeout: pageTime}
	r.work.Go(func() { _ = r.page.Serve(listener) }) // until Close
	return r, nil
}

// redirect is what the browser comes back to: a server on this machine, for one login.
type redirect struct {
	*login
	uri   *url.URL
	page  http.Server
	work  sync.WaitGroup // of page
	ended chan struct{}  // closed when err is set
	err   error          // of the flow
}

// question is one Ask. There is a second one where the server has forgotten its client.
type question struct {
	*redirect
	text   string // for the person
	state  string // of the authorization request
	since  time.Time
	answer chan url.Values // one slot; nil if the login is given up
}

func (r *redirect) URI() string { return r.uri.String() }

// Ask has a person log in: in a browser of this machine, or in one elsewhere, whose last address is pasted here.
func (r *redirect) Ask(ctx context.Context, address string) (url.Values, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" {
		return nil, errors.New("the address of the login is not one of http or https")
	}
	ctx, cancel := context.WithTimeoutCause(ctx, loginTime, fmt.Errorf("nobody has logged in within %s", loginTime))
	var pasting sync.WaitGroup
	defer pasting.Wait()
	defer cancel()
	text := fmt.Sprintf("%s asks for a login at %s. Open this address", r.name(), u.Host)
	if r.onTerminal() && browse(address) {
		text += ", if a browser does not by itself"
	}
	if text += ":\n" + address; r.terminal.Interactive() {
		text += "\nIf that ends at a page that cannot be shown, paste its address here: " + r.URI() +
			"?…\nCtrl-C gives the login up."
	}
	q := &question{r, text, u.Query().Get("state"), time.Now(), make(chan url.Values, 1)}
	if before := r.asking.Swap(q); before != nil {
		r.asked.Add(int64(q.since.Sub(before.since)))
	}
	if r.screen.Show(Look{}, text); r.terminal.Interactive() && !r.chatting {
		pasting.Go(func() {
			line, err := r.terminal.Prompt(ctx, "address:")
			for ; err == nil && !r.pasted(line); line, err = r.terminal.Prompt(ctx, "address:") {
				r.screen.Show(Look{}, "(that is not where this login ends)")
			}
		})
	}
	select {
	case values := <-q.answer:
		if q.end(values); values == nil { // and the slot stays full: another answer would be for nobody
			return nil, errors.New("it was given up")
		}
		return values, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// giveUpLogins ends the logins that somebody is asked for, and reports whether there were any.
func (p *program) giveUpLogins() (any bool) {
	for _, l := range p.logins {
		if q := l.asking.Load(); q != nil && q.end(nil) {
			any = true
		}
	}
	return any
}

// pasted takes a line that is where a login ends, and reports whether it was one.
func (p *program) pasted(line string) bool {
	u, err := url.Parse(strings.TrimSpace(line))
	for _, l := range p.logins {
		if q := l.asking.Load(); err == nil && q != nil && q.take(u) {
			return true
		}
	}
	return false
}

// take takes the address at which the login ends. Others do not end it: any program on this machine, and any page in
// the browser, can send some.
func (q *question) take(u *url.URL) bool {
	path, values := cmp.Or(q.uri.EscapedPath(), "/"), u.Query()
	if u.EscapedPath() != path || len(values["state"]) != 1 || values.Get("state") != q.state {
		return false
	}
	q.end(values)
	return true
}

// end reports whether there was no answer before.
func (q *question) end(values url.Values) bool {
	select {
	case q.answer <- values:
		return true
	default: // the page was loaded again
		return false
	}
}

const loginPage = `<!DOCTYPE html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<meta name="color-scheme" content="light dark"><title>%[1]s – mcpagent</title>
<h1>%[1]s</h1>
<p>%[2]s</p>
<p>You can close this tab.</p></html>
`

// ServeHTTP answers the browser when the flow has ended.
func (r *redirect) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	status, title := http.StatusBadRequest, "You are not logged in"
	text := "This is not the end of the login that mcpagent waits for. That one goes on."
	if q := r.asking.Load(); request.Method == http.MethodGet && q != nil && q.take(request.URL) {
		if <-r.ended; r.err != nil { // Close is called in any case
			text = r.err.Error()
		} else {
			status, title, text = http.StatusOK, "You are logged in", "mcpagent can now use "+r.oauth.Resource
		}
	}
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Security-Policy",
		"default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	w.Header().Set("Referrer-Policy", "no-referrer")
	w.WriteHeader(status)
	fmt.Fprintf(w, loginPage, title, html.EscapeString(Visible(r.secrets.Mask(text))))
}

// Close tells the browser, and in a chat the person, how the flow has ended.
func (r *redirect) Close(err error) {
	refusal := new(OAuthError)
	if errors.As(err, &refusal); err != nil && refusal.Code != "invalid_client" { // then another one is registered
		r.failed.Store(&err)
	}
	if q := r.asking.Swap(nil); q != nil {
		r.asked.Add(int64(time.Since(q.since)))
	}
	r.err = err
	close(r.ended)
	ctx, cancel := context.WithTimeout(context.Background(), 2*pageTime)
	defer cancel()
	_ = r.page.Shutdown(ctx) // which waits for the page
	_ = r.page.Close()
	r.work.Wait()
	if r.chatting && err == nil {
		r.screen.Show(Look{}, fmt.Sprintf("(logged in to %s)", r.name()))
	} else if r.chatting && !errors.Is(err, context.Canceled) { // else the chat is at its end
		r.screen.Show(Look{}, fmt.Sprintf("the login to %s has failed: %v; /reconnect begins another", r.name(), err))
	}
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
func (p *program) remote(ctx context.Context, command string, args []string) (*Server, *loginFile, error) {
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
	if err = os.Remove(file.path); errors.Is(err, fs.ErrNotExist) {
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
	files, _ := filepath.Glob(filepath.Join(filepath.Dir(file.path), "*.json")) // the pattern is valid
	for _, path := range files {
		l, err := (&loginFile{path: path}).Load()
		if err != nil {
			return err
		}
		if l.Token == nil {
			continue
		}
		if u, err := url.Parse(l.Resource); err == nil {
			p.secrets.AddURL(u)
		}
		scopes, until, refresh := append([]string{}, l.Token.Scopes...), "not known", l.Token.Refresh != ""
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
