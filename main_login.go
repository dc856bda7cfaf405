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
const pageTime = 2 * time.Second   // for a page to reach the browser

// errGivenUp ends a login that its person does not want any more.
var errGivenUp = errors.New("it was given up")

// errInterjected ends a chat's prompt, so that what waits for it is shown.
var errInterjected = errors.New("there is something to show")

// login is the authorization at one server.
type login struct {
	*program
	server *Server
	oauth  *OAuth
	fixed  string                   // the redirect URI of the configuration
	asking atomic.Pointer[redirect] // what a person is asked now; nil if nothing
	asked  atomic.Int64             // for how long a person was asked before that, in all, in nanoseconds
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
		l := &login{program: p, server: s, fixed: c.Client.RedirectURI}
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
	for {
		err := do()
		var r *redirect
		for _, l := range p.logins {
			r = cmp.Or(r, l.asking.Load())
		}
		if r == nil || p.chatting {
			return err
		}
		select {
		case <-r.ended:
			_, _ = host.Tools(ctx, r.login.server.Name)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// waited is Server.Waited.
func (l *login) waited() (total time.Duration, now bool) {
	total = time.Duration(l.asked.Load())
	if r := l.asking.Load(); r != nil {
		return total + time.Since(r.question.Load().since), true
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
	u, err := url.Parse(cmp.Or(l.fixed, redirectURI, "http://127.0.0.1:0/callback"))
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:"+u.Port())
	if err != nil && l.fixed == "" {
		listener, err = net.Listen("tcp", "127.0.0.1:0")
	}
	if err != nil {
		return nil, fmt.Errorf("the browser cannot come back to %s: %w", u, err)
	}
	if l.fixed == "" {
		u.Host = listener.Addr().String()
	}
	return &redirect{login: l, uri: u, listener: listener, ended: make(chan struct{})}, nil
}

// redirect is what the browser comes back to: a server on this machine, for one login.
type redirect struct {
	*login
	uri      *url.URL
	listener net.Listener
	page     http.Server
	unused   sync.Map                      // its connections over which nothing has come yet
	work     sync.WaitGroup                // of page
	question atomic.Pointer[loginQuestion] // the last one
	ended    chan struct{}                 // closed when err is set
	err      error                         // of the flow
}

// loginQuestion is one Ask. There is a second one where the server has forgotten its client.
type loginQuestion struct {
	text   string // for the person
	state  string // of the authorization request
	since  time.Time
	answer chan url.Values // one slot
	giveUp context.CancelCauseFunc
}

func (r *redirect) URI() string { return r.uri.String() }

// Ask has a person log in: in a browser of this machine, or in one elsewhere, whose last address is pasted here.
func (r *redirect) Ask(ctx context.Context, address string) (url.Values, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" {
		return nil, errors.New("the address of the login is not one of http or https")
	}
	ctx, giveUp := context.WithCancelCause(ctx)
	ctx, cancel := context.WithTimeoutCause(ctx, loginTime, fmt.Errorf("nobody has logged in within %s", loginTime))
	var pasting sync.WaitGroup
	defer pasting.Wait()
	defer cancel()
	defer giveUp(nil)
	text := fmt.Sprintf("%s asks for a login at %s. Open this address", r.name(), u.Host)
	if r.onTerminal() && browse(address) {
		text += ", if a browser does not by itself"
	}
	if text += ":\n" + address; r.terminal.Interactive() {
		text += "\nIf that ends at a page that cannot be shown, paste its address here: " + r.URI() + "?…"
		if r.chatting {
			text += "\nCtrl-C gives the login up."
		}
	}
	q := &loginQuestion{text, u.Query().Get("state"), time.Now(), make(chan url.Values, 1), giveUp}
	if r.question.Swap(q) == nil {
		r.page = http.Server{Handler: r, ReadHeaderTimeout: pageTime, ConnState: r.connState}
		r.work.Go(func() { _ = r.page.Serve(r.listener) }) // until Close
	}
	r.asking.Store(r)
	defer func() {
		r.asked.Add(int64(time.Since(q.since)))
		r.asking.Store(nil)
	}()
	if r.interject(text); r.terminal.Interactive() && !r.chatting {
		pasting.Go(func() {
			line, err := r.terminal.Prompt(ctx, "address:")
			for ; err == nil && !r.pasted(line); line, err = r.terminal.Prompt(ctx, "address:") {
				r.screen.Show(Look{}, "(that is not where this login ends)")
			}
		})
	}
	select {
	case values := <-q.answer:
		return values, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// giveUpLogins ends the logins that somebody is asked for, and reports whether there were any.
func (p *program) giveUpLogins() (any bool) {
	for _, l := range p.logins {
		if r := l.asking.Load(); r != nil {
			r.question.Load().giveUp(errGivenUp)
			any = true
		}
	}
	return any
}

// pasted takes a line that is where a login ends, and reports whether it was one.
func (p *program) pasted(line string) bool {
	u, err := url.Parse(strings.TrimSpace(line))
	for _, l := range p.logins {
		r := l.asking.Load()
		if err == nil && r != nil && u.Host == r.uri.Host && pathOf(u) == pathOf(r.uri) && r.take(u.Query()) {
			return true
		}
	}
	return false
}

// take takes the parameters of an authorization response, if they belong to this login. Others do not end it: any
// program on this machine, and any page in the browser, can send some.
func (r *redirect) take(values url.Values) bool {
	q := r.question.Load()
	if len(values["state"]) != 1 || values.Get("state") != q.state {
		return false
	}
	select {
	case q.answer <- values:
	default: // the page was loaded again
	}
	return true
}

func pathOf(u *url.URL) string { return cmp.Or(u.EscapedPath(), "/") } // as a browser sends it

const loginPage = `<!DOCTYPE html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<meta name="color-scheme" content="light dark"><title>%[1]s – mcpagent</title>
<h1>%[1]s</h1>
<p>%[2]s</p>
<p>You can close this tab.</p></html>
`

// ServeHTTP answers the browser when the flow has ended.
func (r *redirect) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	status, title, text := http.StatusBadRequest, "You are not logged in", ""
	switch {
	case pathOf(request.URL) != pathOf(r.uri):
		status, title = http.StatusNotFound, "There is nothing here"
	case request.Method != http.MethodGet:
		status, text = http.StatusMethodNotAllowed, "A login ends with GET."
	case !r.take(request.URL.Query()):
		text = "This is not the end of the login that mcpagent waits for. That one goes on."
	default:
		if <-r.ended; r.err != nil { // Close is called in any case
			text = r.err.Error()
			break
		}
		status, title, text = http.StatusOK, "You are logged in", "mcpagent can now use "+r.oauth.Resource
	}
	for name, value := range map[string]string{
		"Content-Type": "text/html; charset=utf-8", "X-Content-Type-Options": "nosniff", "Cache-Control": "no-store",
		"Content-Security-Policy": "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
		"Referrer-Policy":         "no-referrer", "Allow": "GET",
	} {
		w.Header().Set(name, value)
	}
	w.WriteHeader(status)
	fmt.Fprintf(w, loginPage, title, html.EscapeString(Visible(r.secrets.Mask(text))))
}

// Close tells the browser, and in a chat the person, how the flow has ended.
func (r *redirect) Close(err error) {
	refusal := new(OAuthError)
	if errors.As(err, &refusal); err != nil && refusal.Code != "invalid_client" { // then another one is registered
		r.failed.Store(&err)
	}
	r.err = err
	close(r.ended)
	ctx, cancel := context.WithTimeout(context.Background(), pageTime)
	defer cancel()
	r.unused.Range(func(conn, _ any) bool {
		_ = conn.(net.Conn).Close()
		return true
	})
	_ = r.page.Shutdown(ctx) // which waits for the page
	_, _ = r.page.Close(), r.listener.Close()
	r.work.Wait()
	if r.chatting && err == nil {
		r.interject(fmt.Sprintf("(logged in to %s)", r.name()))
	} else if r.chatting && !errors.Is(err, context.Canceled) { // else the chat is at its end
		r.interject(fmt.Sprintf("the login to %s has failed: %v; /reconnect begins another", r.name(), err))
	}
}

// connState finds the connections that a browser opens in case it needs them: Shutdown would wait for what comes.
func (r *redirect) connState(conn net.Conn, state http.ConnState) {
	if state == http.StateNew {
		r.unused.Store(conn, nil)
	} else {
		r.unused.Delete(conn)
	}
}

// interject shows a text at once, also while a chat waits at its prompt or for a start.
func (p *program) interject(text string) {
	p.screen.Show(Look{}, text)
	if end := p.prompting.Load(); end != nil {
		(*end)(errInterjected)
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
	token, err := l.oauth.Login(ctx)
	if err != nil {
		return err
	}
	return p.showLogins(&OAuthState{Resource: s.URL, Token: token})
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

// whoAmI is the command whoami: of one server, or of all that there is a login to.
func (p *program) whoAmI(ctx context.Context, args []string) error {
	file, err := newLoginFile("", nil)
	if len(args) > 0 {
		_, file, err = p.remote(ctx, "whoami", args)
	}
	if err != nil {
		return err
	}
	files := []string{file.path}
	if len(args) == 0 {
		files, _ = filepath.Glob(filepath.Join(filepath.Dir(file.path), "*.json")) // the pattern is valid
	}
	var logins []*OAuthState
	for _, path := range files {
		state, err := (&loginFile{path: path}).Load()
		if err != nil {
			return err
		}
		if state.Token != nil {
			logins = append(logins, state)
		} else if len(args) > 0 {
			return fmt.Errorf("there is no login to %s; run: mcpagent login %s", args[0], word(args[0]))
		}
	}
	if len(logins) == 0 {
		p.note("there are no logins")
	}
	return p.showLogins(logins...)
}

// showLogins prints what a person may know of logins.
func (p *program) showLogins(logins ...*OAuthState) error {
	text, list := "", []any{}
	for _, l := range logins {
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
	if p.json {
		return p.printJSON(list)
	}
	return p.screen.List(text)
}
