package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

// keptHome is a home with saved logins.
type keptHome struct {
	t         *testing.T
	folder    string
	variables []string
}

// newKeptHome returns a home without logins. This process takes it for its home, too, so that newLoginFile is of it.
func newKeptHome(t *testing.T) *keptHome {
	h := &keptHome{t: t, folder: t.TempDir()}
	h.variables = programEnvironment(h.folder)
	t.Setenv("HOME", h.folder)
	t.Setenv("XDG_CONFIG_HOME", "")
	t.Setenv("AppData", h.folder)
	h.variables = append(h.variables, "AppData="+h.folder)
	return h
}

// logins is the folder of the files.
func (h *keptHome) logins() string {
	folder, err := os.UserConfigDir()
	assert.NilError(h.t, err)
	return filepath.Join(folder, "mcpagent", "logins")
}

// save writes the file of a login, and returns its path.
func (h *keptHome) save(resource string, c *OAuthConfig, token *OAuthToken) string {
	h.t.Helper()
	file, err := newLoginFile(resource, c)
	assert.NilError(h.t, err)
	id := "client-of-mcpagent"
	if c != nil {
		id = c.Client.ID
	}
	client := OAuthClient{Issuer: token.Issuer, ID: id}
	assert.NilError(h.t, file.Save(&OAuthState{
		Resource: resource,
		Clients:  map[string]OAuthClient{token.Issuer: client},
		Token:    token,
	}))
	return file.Path
}

// tokensOf counts the tokens that are good at a server.
func tokensOf(s *oauthServer) (access, refresh int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.access), len(s.refresh)
}

// files counts the files of logins.
func (h *keptHome) files() int {
	paths, _ := filepath.Glob(filepath.Join(h.logins(), "*.json"))
	return len(paths)
}

// run runs the program to its end.
func (h *keptHome) run(args ...string) (status int, stdout, stderr string) {
	h.t.Helper()
	p := newProgram(h.t, h.folder, h.variables, args...)
	assert.NilError(h.t, p.start())
	status = p.end()
	return status, p.stdout.String(), p.shown()
}

// logIn runs the program, which asks for a login, and visits the address that it shows.
func (h *keptHome) logIn(args ...string) (status int, stdout, stderr string) {
	h.t.Helper()
	p := newProgram(h.t, h.folder, h.variables, args...)
	assert.NilError(h.t, p.start())
	match, err := p.expect(regexp.MustCompile(`(?m)^(http://\S+/authorize\?\S+)$`))
	assert.NilError(h.t, err)
	page, _, err := visit(match[1], true)
	assert.NilError(h.t, err)
	assert.Check(h.t, is.Contains(page, "You are logged in"))
	status = p.end()
	return status, p.stdout.String(), p.shown()
}

func keptToken(access string, expiry time.Time, refresh string) *OAuthToken {
	return &OAuthToken{
		Issuer: "https://as.test", Type: "Bearer", Access: access, Refresh: refresh, Expiry: expiry,
		GrantedScopes: []string{"a", "b"},
	}
}

// TestWhoAmI: each login says whose it is and of what use it is now. A file that is no login keeps nobody from seeing
// the others, and is named.
func TestWhoAmI(t *testing.T) {
	h := newKeptHome(t)
	future, past := time.Now().Add(time.Hour), time.Now().Add(-time.Hour)
	h.save("https://a.test/mcp", nil, keptToken("planted-1", future, "planted-2"))
	h.save("https://a.test/mcp", &OAuthConfig{Client: OAuthClient{ID: "corp"}}, keptToken("planted-3", past, "planted-4"))
	h.save("https://a.test/mcp", &OAuthConfig{Client: OAuthClient{ID: "corp"}, Grant: "client_credentials"},
		keptToken("planted-5", past, ""))
	h.save("https://b.test/mcp?key=planted-key", nil, keptToken("planted-6", past, ""))
	h.save("https://c.test/mcp", nil, keptToken("planted-7", time.Time{}, ""))

	status, stdout, stderr := h.run("whoami")
	assert.Equal(t, status, 0, stderr)
	date := regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\d`)
	assert.Check(t, is.Equal(date.ReplaceAllString(stdout, "DATE"), `https://a.test/mcp
    issuer  https://as.test
    client  client-of-mcpagent
    scopes  a b
    until   DATE, then refreshed
https://a.test/mcp
    issuer  https://as.test
    client  corp
    scopes  a b
    until   DATE, expired: refreshed at the next use
https://a.test/mcp
    issuer  https://as.test
    client  corp
    grant   client_credentials
    scopes  a b
    until   DATE, expired: refreshed at the next use
https://b.test/mcp?key=[secret]
    issuer  https://as.test
    client  client-of-mcpagent
    scopes  a b
    until   DATE, expired: run mcpagent login "https://b.test/mcp?key=[secret]"
https://c.test/mcp
    issuer  https://as.test
    client  client-of-mcpagent
    scopes  a b
    until   not known
`))

	paths := []string{filepath.Join(h.logins(), "broken.json"), filepath.Join(h.logins(), "other.json")}
	assert.NilError(t, os.WriteFile(paths[0], []byte(`{"resource": "https://a.t`), 0o600))
	assert.NilError(t, os.WriteFile(paths[1], []byte(`{"servers": []}`), 0o600))
	status, all, stderr := h.run("whoami")
	assert.Equal(t, status, exitStart)
	assert.Check(t, is.Equal(all, stdout))
	for _, path := range paths {
		assert.Check(t, is.Contains(stderr, path+" is not a login: look at it, and remove it"))
	}
	assert.Check(t, is.Equal(strings.Count(stderr, "\n"), 1), stderr)

	status, stdout, stderr = h.run("-json", "whoami")
	assert.Equal(t, status, exitStart)
	assert.Check(t, is.Contains(stderr, paths[0]))
	var list []map[string]any
	assert.NilError(t, json.Unmarshal([]byte(stdout), &list), stdout)
	var states []string
	for _, k := range list {
		assert.Check(t, is.Len(k, 8))
		states = append(states, fmt.Sprintf("%s %s %s %v", k["client"], k["grant"], k["state"], k["refresh"]))
	}
	assert.DeepEqual(t, states, []string{
		"client-of-mcpagent  valid true",
		"corp  expired true",
		"corp client_credentials expired false",
		"client-of-mcpagent  dead false",
		"client-of-mcpagent  valid false",
	})
	assert.Check(t, !strings.Contains(all+stdout+stderr, "planted"))
}

// TestLogoutURL: a URL stands for all logins to it, however it is spelled; a name for the login of its configuration.
func TestLogoutURL(t *testing.T) {
	h := newKeptHome(t)
	assert.NilError(t, os.WriteFile(filepath.Join(h.folder, ".mcp.json"), []byte(`{"mcpServers": {
		"corp": {"url": "http://localhost:1/mcp", "oauth": {"clientId": "corp"}},
		"web": {"url": "http://localhost:1/mcp"}
	}}`), 0o600))
	corp := &OAuthConfig{Client: OAuthClient{ID: "corp"}}
	past := time.Now().Add(-time.Hour) // of these nothing is left to revoke
	saveAll := func() {
		h.save("http://localhost:1/mcp", nil, keptToken("planted-1", past, ""))
		h.save("http://LOCALHOST:1/mcp/", corp, keptToken("planted-2", past, ""))
		h.save("http://localhost:1/mcp", &OAuthConfig{Grant: "jwt_bearer"}, keptToken("planted-3", past, ""))
		h.save("http://localhost:2/mcp", nil, keptToken("planted-4", past, ""))
	}
	saveAll()
	assert.Equal(t, h.files(), 4)
	status, stdout, stderr := h.run("logout", "HTTP://LocalHost:1/mcp/")
	assert.Equal(t, status, 0, stderr)
	assert.Check(t, is.Equal(stdout, ""))
	for _, part := range []string{
		"logged out of HTTP://LocalHost:1/mcp/, client client-of-mcpagent",
		"logged out of http://LOCALHOST:1/mcp/, client corp",
		"logged out of http://localhost:1/mcp, grant jwt_bearer", "3 logins were removed",
	} {
		assert.Check(t, is.Contains(stderr, part))
	}
	assert.Equal(t, h.files(), 1)
	status, _, stderr = h.run("logout", "http://localhost:1/mcp")
	assert.Equal(t, status, 0, stderr)
	assert.Check(t, is.Contains(stderr, "no login to http://localhost:1/mcp is saved"))

	saveAll()
	status, _, stderr = h.run("logout", "corp")
	assert.Equal(t, status, 0, stderr)
	assert.Check(t, is.Contains(stderr, "logged out of http://localhost:1/mcp, client corp"))
	assert.Equal(t, h.files(), 3)
	status, stdout, stderr = h.run("-json", "logout", "corp")
	assert.Equal(t, status, 0, stderr)
	assert.Check(t, is.Contains(stderr, "no login to corp is saved; mcpagent whoami lists the saved logins"))
	var ended struct {
		Server string
		Logins []map[string]any
	}
	assert.NilError(t, json.Unmarshal([]byte(stdout), &ended), stdout)
	assert.Check(t, is.Equal(ended.Server, "http://localhost:1/mcp"))
	assert.Check(t, ended.Logins != nil && len(ended.Logins) == 0, stdout)
	status, stdout, stderr = h.run("-json", "logout", "http://localhost:1/mcp")
	assert.Equal(t, status, 0, stderr)
	assert.NilError(t, json.Unmarshal([]byte(stdout), &ended), stdout)
	assert.Check(t, is.Len(ended.Logins, 2))
	assert.Equal(t, h.files(), 1)

	// What is in the place of a login, and is none, goes as well.
	path := h.save("http://localhost:1/mcp", nil, keptToken("planted-5", past, ""))
	assert.NilError(t, os.WriteFile(path, []byte("{"), 0o600))
	status, _, stderr = h.run("logout", "http://localhost:1/mcp")
	assert.Equal(t, status, 0, stderr)
	assert.Check(t, is.Contains(stderr, "removed "+path+", which was not a login"))
	assert.Equal(t, h.files(), 1)
}

// TestLogoutRevokes: the tokens of a login are of no use to anybody after logout, and it says so; whatever the server
// answers, the login is gone.
func TestLogoutRevokes(t *testing.T) {
	checkLeaks(t)
	s := startOAuthServer(t, new(scriptPeer))
	s.set(func() { s.Revokes = true })
	h := newKeptHome(t)
	ends := func(want string, revoked bool, reason string) {
		t.Helper()
		status, stdout, stderr := h.run("-json", "logout", s.Resource)
		assert.Equal(t, status, 0, stderr)
		assert.Check(t, is.Regexp("^logged out of "+s.Resource+", client client-[A-Z0-9]+; "+want+"\n$", stderr))
		var ended endedLogins
		assert.NilError(t, json.Unmarshal([]byte(stdout), &ended), stdout)
		assert.Assert(t, is.Len(ended.Logins, 1))
		assert.Check(t, is.Equal(ended.Logins[0].Revoked, revoked))
		assert.Check(t, is.Regexp("^"+reason+"$", ended.Logins[0].Reason))
		assert.Equal(t, h.files(), 0)
		for _, secret := range s.tokens() {
			assert.Check(t, !strings.Contains(stdout+stderr, secret))
		}
	}
	status, _, stderr := h.logIn("login", s.Resource)
	assert.Equal(t, status, 0, stderr)
	access, refresh := tokensOf(s)
	assert.Check(t, access == 1 && refresh == 1)
	ends("the token was revoked", true, "")
	access, refresh = tokensOf(s)
	assert.Check(t, access == 0 && refresh == 0)

	s.set(func() { s.Revokes = false })
	_, _, _ = h.logIn("login", s.Resource)
	ends("the token was not revoked: the server revokes no tokens", false, "the server revokes no tokens")

	s.set(func() {
		s.Revokes = true
		s.Answer = func(w http.ResponseWriter, r *http.Request, _ int) bool {
			if r.URL.Path == "/revoke" {
				writeTestJSON(w, http.StatusBadRequest, map[string]any{
					"error": "unsupported_token_type", "error_description": r.PostFormValue("token"),
				})
			}
			return r.URL.Path == "/revoke"
		}
	})
	_, _, _ = h.logIn("login", s.Resource)
	refusal := regexp.QuoteMeta(s.Issuer + "/revoke answers unsupported_token_type: [secret]")
	ends("the token was not revoked: "+refusal, false, refusal)

	// Nobody is asked whose token has expired for good.
	s.set(func() { s.requests = nil })
	token := keptToken("planted-1", time.Now().Add(-time.Hour), "")
	token.Issuer = s.Issuer
	h.save(s.Resource, nil, token)
	status, _, stderr = h.run("logout", s.Resource)
	assert.Equal(t, status, 0, stderr)
	assert.Check(t, is.Contains(stderr, "; the token was not revoked: it had expired"))
	assert.Check(t, is.Equal(s.count(""), 0))
}

// TestLogoutOfConfigured: the client of the configuration authenticates when its token is revoked, also where the URL
// is given. Without the configuration it cannot.
func TestLogoutOfConfigured(t *testing.T) {
	checkLeaks(t)
	s := startOAuthServer(t, new(scriptPeer))
	s.Methods, s.Revokes, s.NoDCR = []string{"client_secret_basic"}, true, true
	s.Grant = func(form url.Values, _ string) (string, string) {
		if form.Get("grant_type") != "client_credentials" {
			return "another grant", "invalid_grant"
		}
		return "", ""
	}
	s.register("corp", "planted-secret", "client_secret_basic")
	h := newKeptHome(t)
	configFile := filepath.Join(h.folder, ".mcp.json")
	text := fmt.Appendf(nil, `{"mcpServers": {"corp": {"url": "%s", "oauth": {"grant": "client_credentials",
		"clientId": "corp", "clientSecret": "planted-secret", "issuer": "%s"}}}}`, s.Resource, s.Issuer)
	assert.NilError(t, os.WriteFile(configFile, text, 0o600))
	for _, argument := range []string{"corp", s.Resource} {
		status, _, stderr := h.run("tools", "corp")
		assert.Equal(t, status, 0, stderr)
		access, _ := tokensOf(s)
		assert.Check(t, is.Equal(access, 1))
		status, _, stderr = h.run("logout", argument)
		assert.Equal(t, status, 0, stderr)
		assert.Check(t, is.Contains(stderr, "client corp, grant client_credentials; the token was revoked"), argument)
		access, _ = tokensOf(s)
		assert.Check(t, is.Equal(access, 0), argument)
		assert.Equal(t, h.files(), 0)
	}
	status, _, stderr := h.run("tools", "corp")
	assert.Equal(t, status, 0, stderr)
	assert.NilError(t, os.Remove(configFile))
	status, _, stderr = h.run("logout", s.Resource)
	assert.Equal(t, status, 0, stderr)
	assert.Check(t, is.Contains(stderr, "the token was not revoked: the configuration here does not have its client"))
	assert.Equal(t, h.files(), 0)
}

// TestLogoutIsBounded: an authorization server that does not answer keeps nobody from the end of a login.
func TestLogoutIsBounded(t *testing.T) {
	checkLeaks(t)
	asked := make(chan struct{})
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(asked)
		<-r.Context().Done()
	}))
	defer silent.Close()
	p := loginTo(t, &Server{Name: "web", URL: "https://mcp.test/mcp"}, nil).logins
	p.config.settings, p.config.output = new(serverSettings), p.output
	file, err := newLoginFile("https://mcp.test/mcp", nil)
	assert.NilError(t, err)
	token := keptToken("planted-access", time.Time{}, "planted-refresh")
	token.Issuer = silent.URL
	assert.NilError(t, file.Save(&OAuthState{Resource: file.Resource, Token: token}))
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		<-asked
		cancel(io.ErrNoProgress)
	}()
	ended, err := p.endLogin(ctx, file)
	assert.NilError(t, err)
	assert.Check(t, is.Contains(ended.Reason, io.ErrNoProgress.Error()))
	assert.Check(t, !ended.Revoked)
	_, err = os.Stat(file.Path)
	assert.ErrorIs(t, err, os.ErrNotExist)
}

// TestLoginRemovedMeanwhile: another program may log out before the login is printed.
func TestLoginRemovedMeanwhile(t *testing.T) {
	s := &Server{Name: "web", URL: "https://mcp.test/mcp"}
	p := loginTo(t, s, nil).logins
	assert.ErrorContains(t, p.printLogin(s), "the login to https://mcp.test/mcp has been removed")
}

// TestCanonicalResource: all spellings of a URL are of one login, and nothing else is.
func TestCanonicalResource(t *testing.T) {
	for _, same := range [][]string{
		{"http://host/mcp", "http://host/mcp/", "http://HOST/mcp", "HTTP://host:80/mcp", "http://host/mcp#part"},
		{"https://host", "https://host/", "https://host:443", "https://host:443/"},
		{"http://host:443/mcp"},
		{"http://host/mcp/%2F", "http://host/mcp/%2F/"},
		{"http://host/MCP"},
		{"http://host/mcp?a=1", "http://host/mcp/?a=1"},
		{"http://host/mcp?a=2"},
		{"http://user:pw@host/mcp"},
		{"http://[::1]:80/", "http://[::1]"},
		{"http://%", "http://%"},
	} {
		for _, address := range same {
			assert.Check(t, is.Equal(CanonicalResource(address), CanonicalResource(same[0])))
			assert.Check(t, is.Equal(CanonicalResource(CanonicalResource(address)), CanonicalResource(address)))
		}
	}
	distinct := make(map[string]string)
	for _, address := range []string{
		"http://host/mcp", "https://host/mcp", "http://host/", "http://host:443/mcp", "http://host/mcp/%2F",
		"http://host/mcp//", "http://host/MCP", "http://host/mcp?a=1", "http://host/mcp?a=2", "http://user:pw@host/mcp",
		"http://host:8080/mcp",
	} {
		canonical := CanonicalResource(address)
		assert.Check(t, distinct[canonical] == "", "%s and %s", distinct[canonical], address)
		distinct[canonical] = address
	}

	h := newKeptHome(t)
	path := h.save("http://HOST:80/mcp/", nil, keptToken("planted-1", time.Time{}, ""))
	file, err := newLoginFile("http://host/mcp", nil)
	assert.NilError(t, err)
	assert.Check(t, is.Equal(file.Path, path))
	state, err := file.Load()
	assert.NilError(t, err)
	assert.Check(t, state.Token != nil)
}

// TestLoginByURL: a login by the URL of a server that is configured is the login of its name, and good for its URL. A
// configuration that has nothing to do with the URL is of no matter, whatever is in it.
func TestLoginByURL(t *testing.T) {
	checkLeaks(t)
	s := startOAuthServer(t, new(scriptPeer))
	s.set(func() { s.NoDCR = true })
	s.Methods = []string{"client_secret_basic"}
	h := newKeptHome(t)
	configFile := filepath.Join(h.folder, ".mcp.json")
	free, err := net.Listen("tcp", "127.0.0.1:0")
	assert.NilError(t, err)
	_, port, _ := net.SplitHostPort(free.Addr().String())
	assert.NilError(t, free.Close())
	s.register("corp", "planted-secret", "client_secret_basic", "http://localhost:"+port+"/callback")
	write := func(format string, args ...any) {
		assert.NilError(t, os.WriteFile(configFile, fmt.Appendf(nil, format, args...), 0o600))
	}
	server := fmt.Sprintf(`{"url": "%s/", "oauth": {"clientId": "corp", "clientSecret": "planted-secret", "issuer": "%s",
		"callbackPort": %s}}`, s.Resource, s.Issuer, port)
	write(`{"mcpServers": {"corp": %s}}`, server)

	status, stdout, stderr := h.logIn("-json", "login", s.Resource)
	assert.Equal(t, status, 0, stderr)
	var login map[string]any
	assert.NilError(t, json.Unmarshal([]byte(stdout), &login), stdout)
	assert.Check(t, is.Equal(login["server"], s.Resource+"/"))
	assert.Check(t, is.Equal(login["issuer"], s.Issuer))
	assert.Check(t, is.Equal(login["state"], "valid"))
	assert.Check(t, is.Equal(login["refresh"], true))
	assert.Equal(t, h.files(), 1)
	for _, args := range [][]string{{"tools", "corp"}, {"-server", s.Resource, "tools"}} {
		status, stdout, stderr = h.run(args...)
		assert.Check(t, is.Equal(status, 0), "%s: %s", args, stderr)
		assert.Check(t, is.Contains(stdout, "echo"))
	}
	assert.Equal(t, s.count("GET /authorize"), 1)

	// Two logins to one URL need a name.
	write(`{"mcpServers": {"corp": %s, "other": {"url": %q}}}`, server, s.Resource)
	status, _, stderr = h.run("login", s.Resource)
	assert.Equal(t, status, exitUsage)
	assert.Check(t, is.Contains(stderr, "is the URL of several servers: give the name of one of them, corp, other"))

	// A folder of somebody else is asked about, and only if it has the URL.
	elsewhere := filepath.Join(h.folder, "elsewhere")
	assert.NilError(t, os.Mkdir(elsewhere, 0o700))
	assert.NilError(t, os.Rename(configFile, filepath.Join(elsewhere, ".mcp.json")))
	configFile = filepath.Join(elsewhere, ".mcp.json")
	runElsewhere := func(args ...string) (int, string) {
		p := newProgram(t, h.folder, h.variables, args...)
		p.command.Dir = elsewhere
		assert.NilError(t, p.start())
		return p.end(), p.shown()
	}
	status, stderr = runElsewhere("login", s.Resource)
	assert.Equal(t, status, exitStart, stderr)
	assert.Check(t, is.Contains(stderr, "was found in this folder; its servers (corp, other) are not started."))
	status, stderr = runElsewhere("-server", s.Resource, "tools")
	assert.Equal(t, status, exitStart)
	assert.Check(t, is.Contains(stderr, "needs a login"))
	for _, text := range []string{`{"mcpServers": {"x": {"url": "https://other.test/mcp"}}}`, `{"mcpServers": `} {
		write("%s", text)
		status, stderr = runElsewhere("login", s.Resource)
		assert.Equal(t, status, exitStart)
		assert.Check(t, is.Contains(stderr, "registers no clients"), "it is a URL without a configuration")
		assert.Check(t, is.Equal(strings.Contains(stderr, "this configuration is not used: .mcp.json"), len(text) < 20))
	}
	for _, secret := range s.tokens() {
		assert.Check(t, !strings.Contains(stdout+stderr, secret))
	}
}

// TestLoginNeedsHTTPS: where a login would go over the network without encryption, none is offered and none begun.
func TestLoginNeedsHTTPS(t *testing.T) {
	var requests atomic.Int64
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		requests.Add(1)
		w.Header().Set("WWW-Authenticate", "Bearer")
		w.WriteHeader(http.StatusUnauthorized)
	}))
	defer proxy.Close()
	h := newKeptHome(t)
	h.variables = append(h.variables, "HTTP_PROXY="+proxy.URL)
	for _, address := range []string{"http://mcp.invalid/mcp", "http://10.0.0.1/mcp", "HTTP://mcp.invalid"} {
		status, _, stderr := h.run("login", address)
		assert.Check(t, is.Equal(status, exitStart))
		assert.Check(t, is.Contains(stderr, "is not encrypted: a login needs https, except on this machine"))
	}
	assert.Check(t, is.Equal(requests.Load(), int64(0)))
	status, _, stderr := h.run("-server", "http://mcp.invalid/mcp", "tools")
	assert.Check(t, is.Equal(status, exitStart))
	assert.Check(t, is.Contains(stderr, "http://mcp.invalid/mcp is not encrypted"))
	assert.Check(t, !strings.Contains(stderr, "mcpagent login"), stderr)
	assert.Check(t, requests.Load() > 0)
}

// TestLoginFileModeOfOthers: whoami narrows the files that it reads.
func TestLoginFileModeOfOthers(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("there are no such modes")
	}
	h := newKeptHome(t)
	path := h.save("https://a.test/mcp", nil, keptToken("planted-1", time.Time{}, ""))
	assert.NilError(t, os.Chmod(path, 0o644))
	status, _, stderr := h.run("whoami")
	assert.Equal(t, status, 0)
	assert.Check(t, is.Equal(stderr, ""))
	info, err := os.Stat(path)
	assert.NilError(t, err)
	assert.Check(t, is.Equal(info.Mode().Perm(), os.FileMode(0o600)))
}

// TestLogoutWithCertificate: an authorization server that is one with a server of "tls" gets the certificate of the
// configuration at logout as well, by its name and by its URL. Another server gets none.
func TestLogoutWithCertificate(t *testing.T) {
	a := newTLSAuthority(t)
	a.issue("server")
	a.issue("client")
	var revoked, certificates atomic.Int64
	start := func(want tls.ClientAuthType) (origin string) {
		origin = a.server(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			certificates.Add(int64(len(r.TLS.PeerCertificates)))
			switch r.URL.Path {
			case "/revoke":
				revoked.Add(1)
			case "/.well-known/oauth-authorization-server":
				writeTestJSON(w, http.StatusOK, map[string]any{
					"issuer": origin, "revocation_endpoint": origin + "/revoke", "token_endpoint": origin + "/token",
					"authorization_endpoint": origin + "/authorize", "response_types_supported": []string{"code"},
					"code_challenge_methods_supported": []string{"S256"},
				})
			default:
				http.NotFound(w, r)
			}
		}), want)
		return origin
	}
	own, other := start(tls.RequireAndVerifyClientCert), start(tls.RequestClientCert)
	h := newKeptHome(t)
	resource := own + "/mcp"
	config := fmt.Sprintf(`{"mcpServers": {"notes": {"url": %q,
		"tls": {"caFile": %q, "certFile": %q, "keyFile": %q}}}}`,
		resource, a.path("ca.pem"), a.path("client.pem"), a.path("client.key"))
	assert.NilError(t, os.WriteFile(filepath.Join(h.folder, ".mcp.json"), []byte(config), 0o600))
	h.variables = append(h.variables, "SSL_CERT_FILE="+a.path("ca.pem"))
	for _, argument := range []string{"notes", resource} {
		for _, issuer := range []string{own, other} {
			revoked.Store(0)
			certificates.Store(0)
			token := keptToken("planted-1", time.Now().Add(time.Hour), "")
			token.Issuer = issuer
			h.save(resource, nil, token)
			status, _, stderr := h.run("logout", argument)
			assert.Equal(t, status, 0, stderr)
			assert.Check(t, is.Contains(stderr, "; the token was revoked"), "%s %s", argument, issuer)
			assert.Check(t, is.Equal(revoked.Load(), int64(1)))
			assert.Check(t, is.Equal(certificates.Load() > 0, issuer == own), "%s %s", argument, issuer)
		}
	}

	// A certificate that cannot be read does not keep the login.
	assert.NilError(t, os.Remove(a.path("client.key")))
	token := keptToken("planted-1", time.Now().Add(time.Hour), "")
	token.Issuer = own
	h.save(resource, nil, token)
	status, _, stderr := h.run("logout", resource)
	assert.Equal(t, status, 0, stderr)
	assert.Check(t, is.Contains(stderr, "the token was not revoked: tls keyFile: "))
	assert.Equal(t, h.files(), 0)
}
