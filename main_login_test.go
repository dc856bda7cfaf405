package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

// visit opens an address as a browser does, and returns the page that it ends at, below its status; or, with follow
// false, where it is sent to.
func visit(address string, follow bool) (page, location string, err error) {
	client := &http.Client{Timeout: 20 * time.Second, Transport: new(http.Transport)}
	defer client.CloseIdleConnections()
	if !follow {
		client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	}
	response, err := client.Get(address)
	if err != nil {
		return "", "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return response.Status + "\n" + string(text), response.Header.Get("Location"), err
}

// refuseLogin is an oauthServer.Respond.
func refuseLogin(response url.Values) {
	response.Del("code")
	response.Set("error", "access_denied")
	response.Set("error_description", "<b>no</b>")
}

// tokens are the secrets that the server has issued, but for codes: a person may have pasted one.
func (s *oauthServer) tokens() (tokens []string) {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.secrets), func(text string) bool { return strings.HasPrefix(text, "code-") })
}

// loginTo returns the login at a server, of a program without a terminal. What it shows goes to stderr.
func loginTo(t *testing.T, s *Server, c *OAuthConfig) *login {
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("XDG_CONFIG_HOME", filepath.Join(home, "config"))
	t.Setenv("AppData", home)
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	assert.NilError(t, err)
	t.Cleanup(func() { null.Close() })
	screen := NewScreen(null, null)
	p := &logins{
		config:   &configuration{servers: []Server{*s}, oauth: map[string]*OAuthConfig{s.Name: c}},
		output:   &output{settings: new(outputSettings), screen: screen},
		terminal: NewTerminal(null, screen),
	}
	p.add()
	assert.NilError(t, p.config.servers[0].Err)
	t.Cleanup(p.close)
	return p.all[s.Name]
}

// newAttempt returns an attempt to log in that is under way, though its goroutine does nothing.
func newAttempt(t *testing.T, l *login) *loginAttempt {
	a := &loginAttempt{login: l, asked: make(chan struct{}), done: make(chan struct{})}
	a.ctx, a.stop = context.WithCancelCause(t.Context())
	l.attempt = a
	return a
}

// askLogin begins to ask for a login, and returns the redirect and what becomes of it.
func askLogin(t *testing.T, a *loginAttempt, redirectURI string) (Redirect, chan url.Values) {
	r, err := a.listener().Listen(t.Context(), redirectURI)
	assert.NilError(t, err)
	answers := make(chan url.Values, 1)
	go func() {
		values, _ := r.Ask(t.Context(), "https://as.test/authorize?state=right")
		answers <- values
	}()
	<-a.asked
	return r, answers
}

// The end of a login is one address of this machine, which only GET reaches, and only with the state of this login.
// The page waits for the end of the flow, says what it was, shows no secret, and is nothing but text.
func TestLoginPage(t *testing.T) {
	checkLeaks(t)
	l := loginTo(t, &Server{Name: "web", URL: "https://mcp.test/mcp"}, nil)
	for _, failure := range []error{nil, errors.New("planted-token <script>alert(1)</script> \x1b[31m&c")} {
		l.logins.output.screen.Secrets.Add("[secret]", "planted-token")
		a := newAttempt(t, l)
		r, answers := askLogin(t, a, "")
		assert.Check(t, is.Regexp(`^http://127\.0\.0\.1:\d+/callback$`, r.URI()))
		origin, _, _ := strings.Cut(r.URI(), "/callback")
		for _, test := range []struct{ method, path string }{
			{"GET", "/"}, {"GET", "/callback/"}, {"GET", "/%63allback?state=right&code=c"}, {"GET", "/callback"},
			{"GET", "/callback?state=wrong&code=c"}, {"GET", "/callback?state=right&state=right&code=c"},
			{"GET", "/favicon.ico"}, {"POST", "/callback?state=right&code=c"}, {"HEAD", "/callback?state=right&code=c"},
		} {
			request, err := http.NewRequest(test.method, origin+test.path, nil)
			assert.NilError(t, err)
			response, err := new(http.Transport).RoundTrip(request)
			assert.NilError(t, err)
			assert.Check(t, is.Equal(response.StatusCode, http.StatusBadRequest), test.path)
			response.Body.Close()
		}
		assert.Equal(t, len(answers), 0)

		var work sync.WaitGroup
		work.Go(func() {
			response, err := new(http.Transport).RoundTrip(getRequest(r.URI() + "?state=right&code=c&iss=i"))
			if !assert.Check(t, err == nil) {
				return
			}
			defer response.Body.Close()
			text, _ := io.ReadAll(response.Body)
			page, header := string(text), response.Header
			assert.Check(t, is.Equal(header.Get("Cache-Control"), "no-store"))
			assert.Check(t, is.Equal(header.Get("Referrer-Policy"), "no-referrer"))
			assert.Check(t, is.Contains(header.Get("Content-Security-Policy"), "default-src 'none'"))
			assert.Check(t, !regexp.MustCompile(`(?i)<script|planted|\x1b|href|src=|right`).MatchString(page), page)
			assert.Check(t, is.Contains(page, "You can close this tab."))
			if failure == nil {
				assert.Check(t, is.Contains(page, "<h1>You are logged in</h1>"))
				assert.Check(t, is.Contains(page, "https://mcp.test/mcp"))
				assert.Check(t, !strings.Contains(page, "Go back"), page)
			} else {
				assert.Check(t, is.Contains(page, "Go back to mcpagent to log in again."))
				assert.Check(t, is.Contains(page, "<h1>You are not logged in</h1>"))
				assert.Check(t, is.Contains(page, "[secret] &lt;script&gt;alert(1)&lt;/script&gt; \uFFFD[31m&amp;c"))
			}
		})
		values := <-answers
		assert.DeepEqual(t, values, url.Values{"state": {"right"}, "code": {"c"}, "iss": {"i"}})
		for range 3 {
			assert.Check(t, a.question.Load().Answer(r.URI()+"?state=right"), "the page is loaded again")
		}
		r.Close(failure)
		work.Wait()
		_, err := net.Dial("tcp", strings.TrimPrefix(origin, "http://"))
		assert.Check(t, err != nil, "it still listens")
	}
}

func getRequest(address string) *http.Request {
	request, _ := http.NewRequest(http.MethodGet, address, nil)
	return request
}

// A port of the configuration is the only one; that of an earlier run may be another one now.
func TestLoginPort(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	assert.NilError(t, err)
	defer taken.Close()
	_, port, _ := net.SplitHostPort(taken.Addr().String())
	fixed := "http://localhost:" + port + "/back"

	l := loginTo(t, &Server{Name: "web", URL: "https://mcp.test/mcp"}, nil)
	a := newAttempt(t, l)
	other, err := a.listener().Listen(t.Context(), fixed)
	assert.NilError(t, err)
	assert.Check(t, other.URI() != fixed)
	assert.Check(t, is.Regexp(`^http://127\.0\.0\.1:\d+/back$`, other.URI()))
	other.Close(nil)

	l.oauth.Client.RedirectURI = fixed
	_, err = a.listener().Listen(t.Context(), fixed)
	assert.ErrorContains(t, err, "the browser cannot come back to "+fixed)
	taken.Close()
	same, err := a.listener().Listen(t.Context(), "") // of a client that is not registered yet
	assert.NilError(t, err)
	assert.Equal(t, same.URI(), fixed)
	for _, address := range []string{"file:///etc/passwd", "javascript:alert(1)", "-x", "", "https://%", "ftp://a/"} {
		_, err := same.Ask(t.Context(), address)
		assert.Check(t, is.ErrorContains(err, "not one of http or https"), address)
	}
	same.Close(nil)
}

// A person is asked twice where the server has forgotten its client: each answer is to its own question, and the pages
// of both say how it ended.
func TestLoginTwice(t *testing.T) {
	checkLeaks(t)
	l := loginTo(t, &Server{Name: "web", URL: "https://mcp.test/mcp"}, nil)
	a := newAttempt(t, l)
	r, answers := askLogin(t, a, "")
	var work sync.WaitGroup
	read := func(state string) {
		page, _, err := visit(r.URI()+"?state="+state, true)
		assert.Check(t, err)
		assert.Check(t, is.Contains(page, "You are logged in"))
	}
	first := a.question.Load()
	work.Go(func() { read("right") })
	assert.DeepEqual(t, <-answers, url.Values{"state": {"right"}})
	work.Go(func() {
		for a.question.Load() == first {
			runtime.Gosched()
		}
		page, _, err := visit(r.URI()+"?state=right", true)
		assert.Check(t, err)
		assert.Check(t, is.Contains(page, "400"))
		read("second")
	})
	values, err := r.Ask(t.Context(), "https://as.test/authorize?state=second")
	assert.NilError(t, err)
	assert.DeepEqual(t, values, url.Values{"state": {"second"}})
	r.Close(nil)
	work.Wait()
}

// A redirect URI of the configuration may have no path; the browser sends one.
func TestLoginWithoutPath(t *testing.T) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	assert.NilError(t, err)
	_, port, _ := net.SplitHostPort(free.Addr().String())
	free.Close()
	l := loginTo(t, &Server{Name: "web", URL: "https://mcp.test/mcp"}, nil)
	l.oauth.Client.RedirectURI = "http://localhost:" + port
	r, answers := askLogin(t, newAttempt(t, l), l.oauth.Client.RedirectURI)
	assert.Equal(t, r.URI(), l.oauth.Client.RedirectURI)
	page, _, err := visit("http://127.0.0.1:"+port+"/?state=wrong", true)
	assert.NilError(t, err)
	assert.Check(t, is.Contains(page, "400"))
	assert.Assert(t, l.logins.pasted("http://localhost:"+port+"/?state=right") != nil)
	assert.DeepEqual(t, <-answers, url.Values{"state": {"right"}})
	r.Close(nil)
}

// Nobody is waited for longer than ten minutes.
func TestLoginTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		listener := &OAuthListener{Show: func(context.Context, *OAuthQuestion) {}}
		r := &loopbackRedirect{listener: listener, uri: &url.URL{}, ended: make(chan struct{})}
		begun := time.Now()
		_, err := r.Ask(context.Background(), "https://as.test/")
		assert.Error(t, err, "nobody has logged in within 10m0s")
		assert.Equal(t, time.Since(begun), oauthLoginTime)
	})
}

// A login is a file that only its owner can read, in such a folder. Another process waits for its lock. What is not a
// login to this server stays as it is.
func TestLoginFile(t *testing.T) {
	l := loginTo(t, &Server{Name: "web", URL: "https://mcp.test/mcp?key=planted-key"}, nil)
	f := l.oauth.Store.(*OAuthFile)
	assert.Check(t, !strings.Contains(f.Path, "planted"))
	state, err := f.Load()
	assert.NilError(t, err)
	assert.DeepEqual(t, state, &OAuthState{})
	paths := map[string]bool{f.Path: true}
	for _, c := range []*OAuthConfig{{Client: OAuthClient{ID: "c"}}, {Grant: "jwt_bearer"}, {Grant: "client_credentials",
		Client: OAuthClient{ID: "c"}}} {
		other, err := newLoginFile(f.Resource, c)
		assert.NilError(t, err)
		assert.Check(t, !paths[other.Path], "a person and clients of the configuration share a login")
		paths[other.Path] = true
	}
	folder := filepath.Dir(f.Path)
	assert.NilError(t, os.Chmod(folder, 0o755)) // as somebody else may have made it
	f, err = newLoginFile(f.Resource, nil)
	assert.NilError(t, err)
	unlock, err := f.Lock(t.Context())
	assert.NilError(t, err)
	saved := &OAuthState{Resource: f.Resource, Token: &OAuthToken{Issuer: "i", Type: "Bearer", Access: "a&b"}}
	assert.NilError(t, f.Save(saved))
	state, err = f.Load()
	assert.NilError(t, err)
	assert.DeepEqual(t, state, saved)
	if runtime.GOOS != "windows" {
		for path, mode := range map[string]os.FileMode{folder: 0o700, f.Path: 0o600} {
			info, err := os.Stat(path)
			assert.NilError(t, err)
			assert.Equal(t, info.Mode().Perm(), mode)
		}
	}

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = f.Lock(ended)
	assert.ErrorIs(t, err, ErrSessionBusy)
	next := make(chan error)
	go func() {
		unlock, err := f.Lock(t.Context())
		if err == nil {
			unlock()
		}
		next <- err
	}()
	unlock()
	assert.NilError(t, <-next)

	for _, text := range []string{"", "{}", "null", "[1]", `{"resource":"https://other.test/mcp"}`, `{"resource":1}`} {
		assert.NilError(t, os.WriteFile(f.Path, []byte(text), 0o600))
		_, err := f.Load()
		assert.ErrorContains(t, err, "is not a login to this server")
		_, err = l.oauth.Login(t.Context(), nil)
		assert.ErrorContains(t, err, "is not a login to this server")
		kept, _ := os.ReadFile(f.Path)
		assert.Equal(t, string(kept), text)
	}
	assert.NilError(t, os.Remove(f.Path))
	assert.NilError(t, os.Mkdir(f.Path, 0o700))
	_, err = f.Load()
	assert.Check(t, err != nil)
}

// Several runs at once refresh one after the other: none uses what another one has used up, and nobody is asked.
func TestLoginRefreshAtOnce(t *testing.T) {
	checkLeaks(t)
	s := startOAuthServer(t, new(scriptPeer))
	home := t.TempDir()
	variables := append(programEnvironment(home), "MCP_TRACE=1")
	first := newProgram(t, home, variables, "login", s.Resource)
	assert.NilError(t, first.start())
	match, err := first.expect(regexp.MustCompile(`(?m)^(http://\S+/authorize\?\S+)$`))
	assert.NilError(t, err)
	page, _, err := visit(match[1], true)
	assert.NilError(t, err)
	assert.Check(t, is.Contains(page, "You are logged in"))
	assert.Equal(t, first.end(), 0, first.shown())

	s.expire()
	var inFlight atomic.Int64
	all := make(chan struct{})
	haveAsked := sync.OnceFunc(func() { close(all) })
	t.Cleanup(haveAsked)
	s.set(func() {
		s.Answer = func(_ http.ResponseWriter, r *http.Request, n int) bool {
			if r.Method+r.URL.Path == "POST/token" {
				assert.Check(t, inFlight.Add(1) == 1, "two processes refresh at once")
				if n == 2 { // the others try meanwhile
					<-all
				}
				inFlight.Add(-1)
			}
			return false
		}
	})
	var runs []*programRun
	for range 4 {
		run := newProgram(t, home, variables, "-server", s.Resource, "tools")
		assert.NilError(t, run.start())
		runs = append(runs, run)
	}
	for _, run := range runs { // each has a request to send, for which it needs a token
		_, err := run.expect(regexp.MustCompile(`(?m)^\S+ -> \{`))
		assert.NilError(t, err)
	}
	haveAsked()
	for _, run := range runs {
		err := run.command.Wait()
		assert.NilError(t, err, "%s", run.log.String())
	}
	assert.Equal(t, s.count("GET /authorize"), 1)
	assert.Equal(t, s.count("POST /token"), 2, "one refresh does for all")
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, run := range append(runs, first) {
		for _, secret := range s.secrets { // the codes, too
			assert.Check(t, !strings.Contains(run.log.String()+run.stdout.String(), secret))
		}
	}
}

// A server for whose login the user is asked, or that lists its tools after that, is not one that is not running.
func TestAbsent(t *testing.T) {
	l := loginTo(t, &Server{Name: "web", URL: "https://mcp.test/mcp"}, nil)
	s := &servers{config: l.logins.config, logins: l.logins, output: l.logins.output}
	needed := &LoginError{Resource: "https://mcp.test/mcp"}
	for _, err := range []error{nil, ErrStarting, ErrListing} {
		assert.Check(t, s.noneRunning([]HostStatus{{Name: "web", Err: err}}))
	}
	for _, err := range []error{ErrClosed, needed} {
		assert.ErrorContains(t, s.noneRunning([]HostStatus{{Name: "web", Err: err}}), "server web: ")
	}
	newAttempt(t, l)
	assert.Check(t, s.noneRunning([]HostStatus{{Name: "web", Err: needed}}))
}

// What a configuration says about a login, in the form of each host; and what has to be written in the place of what
// cannot work.
func TestConfigOAuth(t *testing.T) {
	for _, test := range []struct{ oauth, want string }{
		{`"oauth": {"clientId": "c", "callbackPort": 8080}`, "c  [] http://localhost:8080/callback"}, // Claude Code
		{`"oauth": {"clientId": "${API_KEY}", "scopes": "a  b"}`, "planted-key-1  [a b] "},
		{`"oauth": {"Enabled": true, "clientId": "c", "clientSecret": "s", "scopes": ["a", "b"],
			"redirectUri": "http://localhost:7777/oauth/callback"}`, // Gemini CLI
			"c s [a b] http://localhost:7777/oauth/callback"},
		{`"oauth": {"clientId": "${PORT}", "clientSecret": "${GITHUB_TOKEN}", "scope": "a b"}`,
			"8080 planted-token-22 [a b] "}, // opencode
		{`"auth": {"CLIENT_ID": "c", "CLIENT_SECRET": "${FROM_FILE}", "scopes": ["a"]}`, // Cursor
			"c planted-from-file [a] "},
		{`"auth": "oauth"`, "  [] "}, // FastMCP
		{`"oauth": {}`, "  [] "}, {`"oauth": true`, "  [] "}, {`"oauth": {"clientId": null}`, "  [] "},
		{`"oauth": false`, "never"}, {`"oauth": {"enabled": false}`, "never"},
		{`"oauth": {"client-id": "c", "other": 1}`,
			`c  [] warnings: server "x": oauth other is not known here and has no effect`},
		{`"oauth": {}, "headers": {"Authorization": "Bearer planted-7"}`, `  [] warnings: server "x": ` +
			`oauth has no effect: it goes with a url, and without a header Authorization`},
		{`"oauth": {"grant": "client-credentials", "clientId": "c", "clientSecret": "s"}`, "c s [] client_credentials"},

		{`"oauth": 7`, "error: oauth is neither true nor false"},
		{`"oauth": {"callbackPort": "x"}`, "error: oauth callbackPort is not a number, or redirectUri is not of the form " +
			"http://localhost:PORT/path"},
		{`"oauth": {"redirectUri": "https://example.com/"}`, "error: oauth callbackPort is not a number, or redirectUri " +
			"is not of the form http://localhost:PORT/path"},
		{`"oauth": {"clientId": "c", "issuer": "as.test"}`,
			"error: oauth issuer, clientMetadataUrl or idpTokenEndpoint is not of the form https://host/path"},
		{`"oauth": {"clientSecret": "planted-9"}`, "error: oauth needs a clientId"},
		{`"oauth": {"grant": "password"}`,
			"error: oauth grant must be client_credentials, jwt_bearer or token_exchange"},
		{`"oauth": {"grant": "client_credentials", "clientId": "c"}`,
			"error: oauth grant client_credentials needs a clientSecret, or a privateKey or privateKeyFile"},
		{`"oauth": {"grant": "jwt_bearer"}`, "error: oauth grant jwt_bearer goes with assertion or assertionFile; " +
			"token_exchange with idpTokenEndpoint and idToken(File)"},
		{`"oauth": {"grant": "token_exchange", "clientId": "c", "idToken": "planted-t"}`,
			"error: oauth grant jwt_bearer goes with assertion or assertionFile; token_exchange with idpTokenEndpoint and " +
				"idToken(File)"},
		{`"oauth": {"clientId": "${NOWHERE}"}`, "error: oauth clientId: variable NOWHERE is not set"},
		{`"oauth": {"clientId": ["c"], "scopes": {}}`, "error: oauth clientId is not a text; oauth scopes is not a text"},
	} {
		secrets := new(Secrets)
		text := `{"mcpServers": {"x": {"url": "https://h/mcp", ` + test.oauth + `}}}`
		c, err := ParseConfig([]byte(text), configLookup, ReadRegular, secrets)
		assert.NilError(t, err)
		o := c.OAuth["x"]
		got := fmt.Sprintf("%s %s %v %s%s", o.Client.ID, o.Client.Secret, o.Scopes, o.Client.RedirectURI, o.Grant)
		switch {
		case c.Servers[0].Err != nil:
			got = "error: " + c.Servers[0].Err.Error()
		case o.Never:
			got = "never"
		case c.Warnings != nil:
			got += "warnings: " + strings.Join(c.Warnings, "; ")
		}
		assert.Check(t, is.Equal(got, test.want), test.oauth)
		shown := secrets.Mask(describe(&c.Servers[0], o, nil))
		assert.Check(t, !strings.Contains(shown, "planted") || strings.Contains(shown, "planted-t"), shown)
	}
}

// The configuration of a folder says where a login goes and what is sent there, before the user allows it.
func TestDescribeOAuth(t *testing.T) {
	c, err := ParseConfig([]byte(`{"mcpServers": {"x": {"url": "https://h/mcp", "oauth": {"clientId": "c",
		"clientSecret": "${GITHUB_TOKEN}", "issuer": "https://evil.example", "privateKeyFile": ""}}}}`),
		configLookup, ReadRegular, new(Secrets))
	assert.NilError(t, err)
	text := describe(&c.Servers[0], c.OAuth["x"], c.TLS["x"])
	for _, part := range []string{"with oauth", "clientSecret", "${GITHUB_TOKEN}", "https://evil.example"} {
		assert.Check(t, is.Contains(text, part))
	}
}

// Secrets that come into being while others are looked for are found in what is written from then on.
func TestSecretsLater(t *testing.T) {
	var secrets Secrets
	var out strings.Builder
	w := secrets.Writer(&out)
	_, _ = w.Write([]byte("one planted-later two "))
	var work sync.WaitGroup
	for i := range 10 {
		work.Go(func() {
			secrets.Add("[secret]", "planted-later", fmt.Sprint("planted-other-", i))
			assert.Check(t, is.Equal(secrets.Mask("planted-later"), "[secret]"))
		})
	}
	work.Wait()
	_, _ = w.Write([]byte("planted-la"))
	_, _ = w.Write([]byte("ter three planted-other-7"))
	secrets.Add("[secret]", "planted-last")
	_, _ = w.Write([]byte(" planted-last"))
	assert.NilError(t, w.Close())
	assert.Equal(t, out.String(), "one planted-later two [secret] three [secret] [secret]")
}

// What is said of a server that needs a login: what to do, in each state of the login.
func TestLoginExplain(t *testing.T) {
	l := loginTo(t, &Server{Name: "web", URL: "https://mcp.test/mcp"}, nil)
	s := &servers{config: l.logins.config, logins: l.logins, output: l.logins.output}
	needed := &LoginError{Resource: "https://mcp.test/mcp"}
	request := fmt.Errorf("server web: server/discover: %w", &AuthorizationError{needed})
	said := func(want string) {
		t.Helper()
		state := HostStatus{Name: "web", Err: request}
		assert.Check(t, is.Equal(s.describe(state), want))
		assert.Check(t, is.Error(s.explain(request), "server web: "+want))
		assert.Check(t, is.Error(s.explain(l.explain(request)), want))
	}
	said("https://mcp.test/mcp needs a login; run: mcpagent login web; " +
		`or, if it takes a fixed token or key, set its header with "headers" in the configuration`)
	refresh := fmt.Errorf("server/discover: %w", &AuthorizationError{errors.New("https://as.test/token answers 500")})
	assert.Check(t, is.Error(l.explain(refresh), "authorization: https://as.test/token answers 500"))
	a := newAttempt(t, l)
	said("it is waiting for a login; finish it, and ask again; /reconnect web shows its address")
	a.stop(nil)
	said("a login to it has just ended")
	_ = l.endAttempt(&AuthorizationError{&OAuthError{Endpoint: "https://as.test/authorize", Code: "access_denied"}})
	said("the login to web has failed: the login was denied at https://as.test/authorize")
	l.logins.output.inChat = true
	again := &LoginError{Resource: "https://mcp.test/mcp", Reason: errors.New("the token was refused")}
	_ = l.refuse(&AuthorizationError{again})
	said("the login to web has failed: the server refuses the new token: the token was refused; " +
		"/reconnect web begins another")
	assert.Check(t, is.ErrorContains(l.ask(t.Context(), nil, ""), "the new token"), "nobody is asked again")
	assert.Check(t, !l.logins.askAgain("web"))
	said("https://mcp.test/mcp needs a login; run: mcpagent login web; " +
		`or, if it takes a fixed token or key, set its header with "headers" in the configuration`)
}

// Many that need a login wait for one; the server is started once after it. Whoever leaves ends it.
func TestLoginAttempts(t *testing.T) {
	checkLeaks(t)
	oauth := startOAuthServer(t, nil)
	l := loginTo(t, &Server{Name: "web", URL: oauth.Resource}, nil)
	joined := 0
	l.logins.rejoin = func(context.Context, string) error { joined++; return nil }
	post := func() error {
		_, err := postOAuth(t.Context(), l.oauth, "body")
		return err
	}
	assert.Check(t, neededLogin(post()) != nil)

	ctx, cancel := context.WithCancelCause(t.Context())
	left := make(chan error)
	go func() { left <- l.ask(ctx, nil, "") }()
	for l.asking() == nil {
		runtime.Gosched()
	}
	<-l.asking().asked
	cancel(io.ErrNoProgress)
	assert.ErrorIs(t, <-left, io.ErrNoProgress)
	assert.ErrorContains(t, l.ask(t.Context(), nil, ""), "it was cancelled")
	assert.Check(t, !l.logins.askAgain("web"))

	ended := make(chan error)
	for range 4 {
		go func() { ended <- l.ask(t.Context(), nil, "") }()
	}
	for l.asking() == nil {
		runtime.Gosched()
	}
	a := l.asking()
	<-a.asked
	page, _, err := visit(a.question.Load().Address, true)
	assert.NilError(t, err)
	assert.Check(t, is.Contains(page, "You are logged in"))
	for range 4 {
		assert.NilError(t, <-ended)
	}
	assert.Equal(t, joined, 1)
	assert.NilError(t, post())
	assert.Equal(t, oauth.count("GET /authorize"), 1)

	// The end of the program ends the last one.
	oauth.set(func() { clear(oauth.access); clear(oauth.refresh) })
	assert.Check(t, neededLogin(post()) != nil)
	l.begin(nil)
	l.logins.stopAsking()
	assert.Check(t, l.asking() == nil)
	l.failed = nil
	assert.ErrorIs(t, l.ask(t.Context(), nil, ""), context.Canceled)
}

// A login without a file lasts for the run: the requests find what the attempt has got.
func TestLoginInMemory(t *testing.T) {
	store := newOAuthMemory()
	unlock, err := store.Lock(t.Context())
	assert.NilError(t, err)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = store.Lock(ended)
	assert.ErrorIs(t, err, context.Canceled)
	unlock()
	saved, err := store.Load()
	assert.NilError(t, err)
	saved.Clients = map[string]OAuthClient{"i": {ID: "c"}}
	saved.Token = &OAuthToken{Access: "a"}
	assert.NilError(t, store.Save(saved))
	delete(saved.Clients, "i") // as a flow does that finds that the server has forgotten the client
	for range 2 {
		loaded, _ := store.Load()
		assert.DeepEqual(t, loaded, &OAuthState{Clients: map[string]OAuthClient{"i": {ID: "c"}}, Token: saved.Token})
		delete(loaded.Clients, "i")
	}

	oauth := startOAuthServer(t, nil)
	oauth.Proof = (&machineServers{oauthServer: oauth}).proof
	l := loginTo(t, &Server{Name: "web", URL: oauth.Resource}, &OAuthConfig{DPoP: true})
	_, err = postOAuth(t.Context(), l.oauth, "body")
	assert.Check(t, neededLogin(err) != nil)
	l.begin(nil)
	a := l.asking()
	<-a.asked
	_, _, err = visit(a.question.Load().Address, true)
	assert.NilError(t, err)
	<-a.done
	assert.NilError(t, a.err)
	status, err := postOAuth(t.Context(), l.oauth, "body")
	assert.Check(t, err == nil && status == http.StatusOK, "%d %v", status, err)
	files, err := filepath.Glob(filepath.Join(os.Getenv("XDG_CONFIG_HOME"), "mcpagent", "logins", "*.json"))
	assert.Check(t, err == nil && files == nil, "the token is bound to a key that is nowhere")
}
