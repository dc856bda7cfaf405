package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/golden"
)

// These tests log in at the authorization servers that people have: those of the SDKs, of frameworks, of libraries. The
// table of servers and steps is data, which TestLogins runs cell by cell, and which docs/support.md shows.

// loginPeer is a row of the table: a protected server, with the authorization server that it has.
type loginPeer struct {
	name  string // as the table has it
	start func(t *testing.T, variables ...string) peerProtected
	// without has the steps that there are not at this server, with the reason.
	without map[string]string
	// partly has the steps that end otherwise at this server than at the others, with what is different.
	partly map[string]string
}

// loginStep is a column of the table.
type loginStep struct {
	name, title string
	run         func(c *loginCell)
}

func loginSteps() []loginStep {
	return []loginStep{
		{"login", "first login", (*loginCell).logIn},
		{"use", "use", (*loginCell).use},
		{"second run", "second run", (*loginCell).runAgain},
		{"refresh", "refresh", (*loginCell).refresh},
		{"two programs", "two programs at once", (*loginCell).runTwo},
		{"logout", "logout", (*loginCell).logOut},
		{"revocation", "tokens revoked", (*loginCell).revoked},
		{"denial", "denial", (*loginCell).deny},
		{"judge", "FastMCP's client", (*loginCell).judge},
		// These two end the tokens of all others.
		{"expiry", "expired token", (*loginCell).expire},
		{"forgotten", "forgotten clients", (*loginCell).forget},
	}
}

func loginPeers() []loginPeer {
	// one is a process that is both servers.
	one := func(file string, always ...string) func(*testing.T, ...string) peerProtected {
		return func(t *testing.T, variables ...string) peerProtected {
			command := peerScript(t, "authorization/"+file)
			command.Env = slices.Concat(always, variables)
			server := startPeerHTTP(t, command)
			return peerProtected{authorization: server, server: server}
		}
	}
	asksNobody := map[string]string{"denial": "It has no page that asks a person, so nobody can decline."}
	endsRefresh := map[string]string{
		"expiry": "If an expired token is sent, its refresh token ends as well, so a login is asked for.",
	}
	return []loginPeer{
		{name: "Python SDK 2.x, its own routes", start: one("sdk2_server.py")},
		{name: "Python SDK 1.x, its own routes", start: one("sdk1_server.py")},
		{
			name:  "Python SDK 1.x, without resource metadata",
			start: one("sdk1_server.py", "LEGACY=1"),
		},
		{
			name:    "FastMCP 4, in memory",
			start:   one("fastmcp_server.py"),
			without: asksNobody,
			partly:  endsRefresh,
		},
		{
			name:    "FastMCP 4, in memory, without default scopes",
			start:   one("fastmcp_server.py", "DEFAULT_SCOPES=no"),
			without: asksNobody,
			partly:  endsRefresh,
		},
		{
			name: "FastMCP 4, OAuthProxy in front of oidc-provider",
			start: func(t *testing.T, variables ...string) peerProtected {
				upstream := startPeerAuthorization(t, "server.mjs", variables)
				servers := one("fastmcp_server.py", "UPSTREAM="+upstream.url)(t)
				servers.upstream = upstream
				return servers
			},
		},
		{name: "Authlib", start: one("authlib_server.py")},
		{
			name: "better-auth, its MCP plugin",
			start: func(t *testing.T, variables ...string) peerProtected {
				server := startPeerAuthorization(t, "better_auth_server.mjs", variables)
				return peerProtected{authorization: server, server: server}
			},
			partly: map[string]string{
				"revocation": "The refresh token is revoked; the access tokens are JWTs, which are valid until they expire.",
			},
		},
		{
			name: "oidc-provider",
			start: func(t *testing.T, variables ...string) peerProtected {
				return startPeerProtected(t, variables)
			},
			partly: map[string]string{
				"judge": "FastMCP's client gets no login: it registers with the scopes of the MCP server, " +
					"which oidc-provider refuses.",
			},
		},
	}
}

// TestLogins runs every cell of the table.
func TestLogins(t *testing.T) {
	checkLeaks(t)
	for _, peer := range loginPeers() {
		t.Run(peer.name, func(t *testing.T) {
			t.Parallel()
			servers := peer.start(t)
			c := &loginCell{loginPeer: peer, servers: servers}
			c.user = newPeerUser(t, servers, "")
			for _, step := range loginSteps() {
				if peer.without[step.name] != "" {
					continue
				}
				t.Run(step.name, func(t *testing.T) {
					c.t = t
					c.user.t, c.user.person.t = t, t
					step.run(c)
				})
			}
		})
	}
}

// loginCell is where a server and a step meet. The steps of one server come one after the other. The first seven are of
// one user, the others begin with other ones.
type loginCell struct {
	loginPeer
	t         *testing.T // of the step
	servers   peerProtected
	user      *peerUser
	loggedOut OAuthState // what was kept before the logout
}

const (
	loggedIn    = "You are logged in"
	notLoggedIn = "You are not logged in"
	loginNote   = "A heron stands in shallow water."
	needsLogin  = "mcpagent login notes"
)

// loggedIn is a new user who has logged in.
func (c *loginCell) loggedIn(servers peerProtected) *peerUser {
	c.t.Helper()
	u := newPeerUser(c.t, servers, "")
	assert.Assert(c.t, is.Contains(u.logIn(), loggedIn))
	return u
}

// works checks that a user needs no browser for a call.
func (c *loginCell) works(u *peerUser) {
	c.t.Helper()
	stdout, _ := u.run(0, "call", "list_notes")
	assert.Equal(c.t, stdout, loginNote+"\n")
}

// logIn: the command login ends with a page that says so, and whoami knows of it.
func (c *loginCell) logIn() {
	_, stderr := c.user.run(1, "tools")
	assert.Assert(c.t, is.Contains(stderr, needsLogin))
	assert.Assert(c.t, is.Contains(c.user.logIn(), loggedIn))
	assert.Equal(c.t, c.user.person.forms == 0, c.without["denial"] != "")
	stdout, _ := c.user.run(0, "whoami")
	assert.Assert(c.t, is.Contains(stdout, c.servers.server.url))
	assert.Assert(c.t, is.Contains(stdout, "notes:read"))
}

func (c *loginCell) use() {
	stdout, _ := c.user.run(0, "tools")
	assert.Assert(c.t, is.Contains(stdout, "list_notes"))
	c.works(c.user)
}

// runAgain: another run sends the token that was kept, and needs no other one.
func (c *loginCell) runAgain() {
	before := c.user.state()
	c.works(c.user)
	assert.DeepEqual(c.t, c.user.state(), before)
}

// refresh: a token whose time is over is refreshed before it is sent.
func (c *loginCell) refresh() {
	before := c.kept().Access
	c.user.change(func(token *OAuthToken) { token.Expiry = time.Now().Add(-time.Hour) })
	c.works(c.user)
	assert.Assert(c.t, c.kept().Access != before)
	c.runAgain()
}

// runTwo: of two programs that find an expired token at the same time, one refreshes it, and both go on with it.
func (c *loginCell) runTwo() {
	before := c.kept().Access
	c.user.change(func(token *OAuthToken) { token.Expiry = time.Now().Add(-time.Hour) })
	first, second := c.user.start("call", "list_notes"), c.user.start("call", "list_notes")
	assert.Equal(c.t, c.user.finish(first, 0), loginNote+"\n")
	assert.Equal(c.t, c.user.finish(second, 0), loginNote+"\n")
	assert.Assert(c.t, c.kept().Access != before)
	c.runAgain()
}

// kept is the token of the user who has logged in first.
func (c *loginCell) kept() *OAuthToken {
	c.t.Helper()
	token := c.user.state().Token
	assert.Assert(c.t, token != nil, "the first login has failed")
	return token
}

// logOut: nothing is kept of the login.
func (c *loginCell) logOut() {
	c.kept()
	c.loggedOut = c.user.state()
	_, stderr := c.user.run(0, "logout", "notes")
	assert.Assert(c.t, is.Contains(stderr, "token was revoked"))
	assert.Assert(c.t, c.user.state().Token == nil)
	_, stderr = c.user.run(0, "whoami")
	assert.Assert(c.t, is.Contains(stderr, "there are no logins"))
	_, stderr = c.user.run(1, "call", "list_notes")
	assert.Assert(c.t, is.Contains(stderr, needsLogin))
	hasEndpoint := c.authorizationServer(c.loggedOut.Token.Issuer).RevocationEndpoint != ""
	assert.Equal(c.t, hasEndpoint, c.without["revocation"] == "")
}

// revoked: after a logout the tokens are of no use to who has them.
func (c *loginCell) revoked() {
	token := c.loggedOut.Token
	assert.Assert(c.t, token != nil, "nobody was logged in")
	client := c.loggedOut.Clients[token.Issuer]
	isRefused := c.isRefused(c.servers.server.url, token.Access)
	assert.Equal(c.t, isRefused, c.partly["revocation"] == "")
	form := url.Values{"grant_type": {"refresh_token"}, "refresh_token": {token.Refresh}, "client_id": {client.ID}}
	if client.AuthMethod == "client_secret_post" {
		form.Set("client_secret", client.Secret)
	}
	endpoint := c.authorizationServer(token.Issuer).TokenEndpoint
	request, err := http.NewRequestWithContext(c.t.Context(), http.MethodPost, endpoint, strings.NewReader(form.Encode()))
	assert.NilError(c.t, err)
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if client.AuthMethod == "client_secret_basic" {
		request.SetBasicAuth(client.ID, client.Secret)
	}
	status, answer := c.send(request)
	assert.Equal(c.t, status/100, 4, answer)
	assert.Assert(c.t, is.Contains(answer, "invalid_grant"))
}

// expire: a token that has expired is refreshed also where only the server knows that it has.
func (c *loginCell) expire() {
	u := c.loggedIn(c.servers)
	old := u.state().Token.Access
	assert.Assert(c.t, !c.isRefused(c.servers.server.url, old))
	c.servers.authorization.putForward(2 * time.Hour)
	if c.servers.upstream != nil {
		c.servers.upstream.putForward(2 * time.Hour)
	}
	if c.partly["expiry"] != "" {
		_, stderr := u.run(1, "call", "list_notes")
		assert.Assert(c.t, is.Contains(stderr, needsLogin))
		return
	}
	c.works(u)
	assert.Assert(c.t, u.state().Token.Access != old)
}

// deny: a person who declines is told so, and nothing is kept.
func (c *loginCell) deny() {
	u := newPeerUser(c.t, c.servers, "")
	u.person.declines = true
	p := u.start("login", "notes")
	assert.Assert(c.t, is.Contains(u.visit(p), notLoggedIn))
	u.finish(p, 1)
	assert.Assert(c.t, is.Contains(p.log.String(), "the login was denied"))
	assert.Assert(c.t, u.state().Token == nil)
	_, stderr := u.run(0, "whoami")
	assert.Assert(c.t, is.Contains(stderr, "there are no logins"))
}

// forget: after a server has forgotten its clients and tokens, a user of a terminal is asked for a login in the next
// run, and gets in; with a refresh token and without one. Where nobody can be asked, the next run names the command.
func (c *loginCell) forget() {
	refreshed, bare, script := c.loggedIn(c.servers), c.loggedIn(c.servers), c.loggedIn(c.servers)
	bare.change(func(token *OAuthToken) { token.Refresh = "" })
	c.servers.authorization.restart()
	for _, u := range []*peerUser{refreshed, bare} {
		p := u.startOnTerminal("call", "list_notes")
		assert.Assert(c.t, is.Contains(u.visit(p), loggedIn))
		u.finish(p, 0)
		assert.Assert(c.t, is.Contains(p.log.String(), loginNote))
		c.works(u)
	}
	_, stderr := script.run(1, "call", "list_notes")
	assert.Assert(c.t, is.Contains(stderr, needsLogin))
	assert.Assert(c.t, is.Contains(script.logIn(), loggedIn))
	c.works(script)
}

// judge: FastMCP's own client gets in, too. Where it did, and this program did not, the program would be wrong.
func (c *loginCell) judge() {
	requirePeers(c.t, "venv-fastmcp")
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Minute)
	defer cancel()
	script := peerFile(c.t, "authorization/judge_login.py")
	command := exec.CommandContext(ctx, peerFile(c.t, "venv-fastmcp/bin/python"), script, c.servers.server.url)
	command.Env = append(safeEnvironment(os.Environ()), "HOME="+c.t.TempDir())
	output, err := command.CombinedOutput()
	if c.partly["judge"] != "" {
		assert.Assert(c.t, is.Contains(string(output), "Registration failed: 400"))
		return
	}
	assert.NilError(c.t, err, "%s", output)
	assert.Assert(c.t, is.Contains(string(output), loginNote))
}

// authorizationServer reads the metadata of the authorization server that has issued a token.
func (c *loginCell) authorizationServer(issuer string) (metadata struct {
	TokenEndpoint      string `json:"token_endpoint"`
	RevocationEndpoint string `json:"revocation_endpoint"`
}) {
	c.t.Helper()
	origin, path := splitURL(issuer)
	address := origin + "/.well-known/oauth-authorization-server" + path
	request, err := http.NewRequestWithContext(c.t.Context(), http.MethodGet, address, nil)
	assert.NilError(c.t, err)
	_, text := c.send(request)
	assert.NilError(c.t, json.Unmarshal([]byte(text), &metadata))
	return metadata
}

// isRefused reports whether a server takes a token for none of its own. What it is sent with it is no message.
func (c *loginCell) isRefused(server, token string) bool {
	c.t.Helper()
	request, err := http.NewRequestWithContext(c.t.Context(), http.MethodPost, server, strings.NewReader("{}"))
	assert.NilError(c.t, err)
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json, text/event-stream")
	request.Header.Set("Authorization", "Bearer "+token)
	status, _ := c.send(request)
	return status == http.StatusUnauthorized
}

// putForward puts the clock of a server in testdata/peers/authorization forward.
func (p *peerHTTP) putForward(d time.Duration) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), time.Minute)
	defer cancel()
	p.stderr.mark()
	_, err := fmt.Fprintf(p.stdin, "%.0f\n", d.Seconds())
	assert.NilError(p.t, err)
	assert.NilError(p.t, p.stderr.await(ctx, 1, "the clock is ", "", nil))
}

func (c *loginCell) send(request *http.Request) (status int, body string) {
	c.t.Helper()
	request.Close = true
	answer, err := http.DefaultClient.Do(request)
	assert.NilError(c.t, err)
	text, err := io.ReadAll(answer.Body)
	assert.NilError(c.t, err)
	assert.NilError(c.t, answer.Body.Close())
	return answer.StatusCode, string(text)
}

// The table in docs/support.md.

// loginTable is the table as the page has it.
func loginTable() string {
	var table strings.Builder
	titles, rules := []string{"authorization server"}, []string{"---"}
	for _, step := range loginSteps() {
		titles, rules = append(titles, step.title), append(rules, "---")
	}
	row := func(cells []string) { fmt.Fprintf(&table, "| %s |\n", strings.Join(cells, " | ")) }
	row(titles)
	fmt.Fprintf(&table, "|%s|\n", strings.Join(rules, "|"))
	var notes []string
	for _, peer := range loginPeers() {
		cells := []string{peer.name}
		for _, step := range loginSteps() {
			mark := "yes"
			switch {
			case peer.without[step.name] != "":
				mark = "–"
			case step.name == "judge" && peer.partly["judge"] != "":
				mark = "no"
			}
			note := cmp.Or(peer.without[step.name], peer.partly[step.name])
			if note != "" && !slices.Contains(notes, note) {
				notes = append(notes, note)
			}
			if note != "" {
				mark += fmt.Sprintf(" (%d)", slices.Index(notes, note)+1)
			}
			cells = append(cells, mark)
		}
		row(cells)
	}
	table.WriteString("\n")
	for i, note := range notes {
		fmt.Fprintf(&table, "%d. %s\n", i+1, note)
	}
	return table.String()
}

var loginTableOnPage = regexp.MustCompile(`(?s)\| authorization server \|.*?\n\n(?:\d+\. .*?\n)*`)

// TestLoginTable: the page says at which servers which steps were run, and nothing more.
// go test -run TestLoginTable . -update writes it.
func TestLoginTable(t *testing.T) {
	page := filepath.Join("docs", "support.md")
	text := readText(t, page)
	shown := loginTableOnPage.FindString(text)
	if golden.FlagUpdate() && shown != loginTable() {
		assert.NilError(t, os.WriteFile(page, []byte(strings.Replace(text, shown, loginTable(), 1)), 0o644))
		return
	}
	assert.Equal(t, shown, loginTable())
}
