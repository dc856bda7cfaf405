package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"html"
	"image/png"
	"io"
	"io/fs"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
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

// These tests log in at an authorization server that was not written here, oidc-provider, for an MCP server on the
// official Python SDK that it protects: testdata/peers/authorization/server.mjs, testdata/peers/protected_server.py.

// peerProtected are the two servers, which may be one.
type peerProtected struct {
	authorization *peerHTTP // if it is not the server, too, its url is the issuer
	server        *peerHTTP
	upstream      *peerHTTP // where the authorization server sends people to; nil if they stay
}

// startPeerProtected runs both until the end of the test. The variables are those of the authorization server, the
// arguments those of the other one.
func startPeerProtected(t *testing.T, variables []string, args ...string) (p peerProtected) {
	t.Helper()
	p.authorization = startPeerAuthorization(t, "server.mjs", variables)
	p.server = startPeerHTTP(t, peerScript(t, "protected_server.py", append([]string{p.authorization.url}, args...)...))
	return p
}

// startPeerAuthorization runs a server on Node of testdata/peers/authorization.
func startPeerAuthorization(t *testing.T, file string, variables []string) *peerHTTP {
	t.Helper()
	requirePeers(t, "conformance/node_modules")
	requirePeers(t, "authorization/node_modules")
	return startPeerHTTP(t, Command{
		Path: peerFile(t, "conformance/node_modules/.bin/node"),
		Args: []string{peerFile(t, "authorization", file)},
		Env:  variables,
	})
}

// peerPerson is a person who logs in, or declines to, without a browser.
type peerPerson struct {
	t        *testing.T
	client   *http.Client // has the cookies
	declines bool
	pages    []string // the titles of what it saw
	forms    int      // that it was asked to fill in
}

func newPeerPerson(t *testing.T) *peerPerson {
	jar, err := cookiejar.New(nil)
	assert.NilError(t, err)
	connections := new(http.Transport)
	t.Cleanup(connections.CloseIdleConnections)
	return &peerPerson{t: t, client: &http.Client{Jar: jar, Transport: connections, Timeout: time.Minute}}
}

var (
	peerForm      = regexp.MustCompile(`(?s)<form([^>]*)>(.*?)</form>`)
	peerControl   = regexp.MustCompile(`<(input|button)\b([^>]*)>`)
	peerAttribute = regexp.MustCompile(`([\w-]+)="([^"]*)"`)
	peerTitle     = regexp.MustCompile(`(?s)<h1>\s*(.*?)\s*</h1>`)
	peerAbort     = regexp.MustCompile(`<a[^>]* href="([^"]*abort)"`)
)

// visit opens an address, and fills in and sends each form that it gets, until a page has none. It returns that page.
func (p *peerPerson) visit(address string) (page string, answer *http.Response) {
	p.t.Helper()
	answer, err := p.client.Get(address)
	for range 10 {
		assert.NilError(p.t, err)
		text, err := io.ReadAll(answer.Body)
		assert.NilError(p.t, err)
		assert.NilError(p.t, answer.Body.Close())
		if title := peerTitle.FindSubmatch(text); title != nil {
			p.pages = append(p.pages, string(title[1]))
		}
		form := peerForm.FindSubmatch(text)
		if form == nil {
			return string(text), answer
		}
		p.forms++
		abort := peerAbort.FindSubmatch(text)
		if p.declines && abort != nil {
			answer, err = p.client.Get(html.UnescapeString(string(abort[1])))
			continue
		}
		action, bad := answer.Request.URL.Parse(peerAttributes(form[1])["action"])
		assert.NilError(p.t, bad)
		answer, err = p.client.PostForm(action.String(), p.fillIn(form[2]))
	}
	p.t.Fatal("the forms do not end")
	return "", nil
}

// fillIn returns the fields of a form, and of its buttons the one that agrees, which comes first, or that declines.
func (p *peerPerson) fillIn(form []byte) url.Values {
	fields := make(url.Values)
	var button map[string]string
	for _, control := range peerControl.FindAllSubmatch(form, -1) {
		attributes := peerAttributes(control[2])
		isDenial := strings.Contains(attributes["name"]+attributes["value"], "deny")
		switch {
		case string(control[1]) != "button":
			fields.Set(attributes["name"], cmp.Or(attributes["value"], "heron"))
		case button == nil || p.declines && isDenial:
			button = attributes
		}
	}
	if button["name"] != "" {
		fields.Set(button["name"], button["value"])
	}
	return fields
}

// peerAttributes returns the attributes of a tag.
func peerAttributes(tag []byte) map[string]string {
	attributes := make(map[string]string)
	for _, found := range peerAttribute.FindAllSubmatch(tag, -1) {
		attributes[string(found[1])] = html.UnescapeString(string(found[2]))
	}
	return attributes
}

// chromium is a headless Chromium that shows one page. Its DevTools protocol has requests and answers as JSON, each
// with a null byte behind it, and events between them.
type chromium struct {
	t       *testing.T
	to      io.Writer
	from    *bufio.Reader
	id      int
	session string   // of the page
	events  []string // since the last call of load
}

func startChromium(t *testing.T) *chromium {
	t.Helper()
	path, err := exec.LookPath("chromium")
	requirePeer(t, err == nil, "Chromium is not installed (Debian: apt-get install chromium)")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	dir := t.TempDir()
	command := exec.CommandContext(ctx, path, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic",
		"--no-first-run",
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
		"--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", "--window-size=800,600",
		"--user-data-dir="+dir, "--remote-debugging-pipe", "about:blank")
	command.Env = append(safeEnvironment(os.Environ()), "HOME="+dir)
	theirIn, in, err := os.Pipe()
	assert.NilError(t, err)
	out, theirOut, err := os.Pipe()
	assert.NilError(t, err)
	command.ExtraFiles = []*os.File{theirIn, theirOut} // their descriptors are 3 and 4
	var group processGroup
	group.prepare(command)
	assert.NilError(t, command.Start())
	group.add(command.Process)
	_, _ = theirIn.Close(), theirOut.Close()
	ended := make(chan struct{})
	go func() {
		_ = command.Wait()
		close(ended)
	}()
	c := &chromium{t: t, to: in, from: bufio.NewReader(out)}
	t.Cleanup(func() {
		_ = in.Close() // and it ends
		<-ended
		group.kill()
		cancel()
		_ = out.Close()
	})
	var target struct {
		TargetInfos []struct{ TargetID, Type string }
	}
	assert.NilError(t, json.Unmarshal(c.do("Target.getTargets", nil), &target))
	assert.Assert(t, len(target.TargetInfos) > 0)
	var attached struct{ SessionID string }
	page := map[string]any{"targetId": target.TargetInfos[0].TargetID, "flatten": true}
	assert.NilError(t, json.Unmarshal(c.do("Target.attachToTarget", page), &attached))
	c.session = attached.SessionID
	c.do("Page.enable", nil)
	for c.value("document.readyState") != "complete" { // so that no event of the empty page is still to come
		continue
	}
	return c
}

// chromiumMessage is a request, an answer or an event.
type chromiumMessage struct {
	ID        int             `json:"id,omitempty"`
	SessionID string          `json:"sessionId,omitempty"`
	Method    string          `json:"method,omitempty"`
	Params    any             `json:"params,omitempty"`
	Result    json.RawMessage `json:"result,omitempty"`
	Error     json.RawMessage `json:"error,omitempty"`
}

// do sends a request and returns the result.
func (c *chromium) do(method string, params map[string]any) json.RawMessage {
	c.t.Helper()
	m := c.call(method, params)
	assert.Assert(c.t, m.Error == nil, "%s: %s", method, m.Error)
	return m.Result
}

// call sends a request and returns the answer.
func (c *chromium) call(method string, params map[string]any) chromiumMessage {
	c.t.Helper()
	c.id++
	text, err := json.Marshal(chromiumMessage{ID: c.id, SessionID: c.session, Method: method, Params: params})
	assert.NilError(c.t, err)
	_, err = c.to.Write(append(text, 0))
	assert.NilError(c.t, err)
	for {
		if m := c.read(); m.ID == c.id {
			return m
		}
	}
}

// read reads one message, and keeps events.
func (c *chromium) read() (m chromiumMessage) {
	c.t.Helper()
	text, err := c.from.ReadBytes(0)
	assert.NilError(c.t, err, "Chromium has ended, or a minute has passed")
	assert.NilError(c.t, json.Unmarshal(text[:len(text)-1], &m))
	if m.Method != "" {
		c.events = append(c.events, m.Method)
	}
	return m
}

// load does what leads to another page, and waits for that. The answer may be that the page has gone.
func (c *chromium) load(method string, params map[string]any) {
	c.t.Helper()
	c.events = nil
	c.call(method, params)
	for !strings.Contains(strings.Join(c.events, " "), "Page.loadEventFired") {
		c.read()
	}
}

// value returns the value of an expression on the page.
func (c *chromium) value(expression string) (value string) {
	c.t.Helper()
	var answer struct{ Result struct{ Value any } }
	text := c.do("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true})
	assert.NilError(c.t, json.Unmarshal(text, &answer))
	return fmt.Sprint(answer.Result.Value)
}

// screenshot returns what is seen, as PNG.
func (c *chromium) screenshot() []byte {
	c.t.Helper()
	var picture struct{ Data []byte }
	assert.NilError(c.t, json.Unmarshal(c.do("Page.captureScreenshot", nil), &picture))
	return picture.Data
}

// peerTraffic keeps what an OAuth sends and gets, as docs/mcp.md shows it. Addresses and what is random have names.
type peerTraffic struct {
	peerProtected
	next   http.RoundTripper
	person *peerPerson
	lines  []string
	names  map[string]string // of secrets and other random values
	count  map[string]int    // of names with one prefix
}

// name names a value.
func (l *peerTraffic) name(prefix, value string) {
	if value == "" || l.names[value] != "" {
		return
	}
	l.count[prefix]++
	l.names[value] = fmt.Sprintf("%s-%d", prefix, l.count[prefix])
}

func (l *peerTraffic) add(text string) {
	for _, place := range [][2]string{
		{l.server.url, "https://mcp.example.com/mcp"}, {l.authorization.url, "https://login.example.com"},
	} {
		origin := strings.TrimSuffix(place[0], "/mcp")
		text = strings.ReplaceAll(text, origin, strings.TrimSuffix(place[1], "/mcp"))
		text = strings.ReplaceAll(text, url.QueryEscape(origin), url.QueryEscape(strings.TrimSuffix(place[1], "/mcp")))
	}
	for value, name := range l.names {
		text = strings.ReplaceAll(text, value, name)
	}
	text = peerVarying.ReplaceAllString(text, "${1}N")
	if strings.HasPrefix(text, "<- 200 {") && slices.Contains(l.lines, text) {
		text = "<- 200 (as before)"
	}
	l.lines = append(l.lines, strings.TrimSpace(text))
}

var peerVarying = regexp.MustCompile(`(127\.0\.0\.1(?::|%3A)|"client_id_issued_at":)\d+`)

// value is the value that a name stands for.
func (l *peerTraffic) value(name string) string {
	for value, other := range l.names {
		if other == name {
			return value
		}
	}
	return ""
}

// peerSecrets are the values that are random, with their names.
var peerSecrets = []struct{ member, name string }{
	{"client_id", "CLIENT"}, {"code", "CODE"}, {"state", "STATE"}, {"code_challenge", "CHALLENGE"},
	{"code_verifier", "VERIFIER"},
	{"access_token", "ACCESS"}, {"refresh_token", "REFRESH"}, {"registration_access_token", "REGISTRATION"},
}

// keep keeps a body as it is shown.
func (l *peerTraffic) keep(body []byte) (shown string) {
	members := make(map[string]any)
	if json.Unmarshal(body, &members) == nil && members["jsonrpc"] != nil {
		var message struct {
			Method string
			Params struct{ Name string }
		}
		_ = json.Unmarshal(body, &message)
		return strings.TrimSpace(message.Method + " " + message.Params.Name)
	}
	form, _ := url.ParseQuery(string(body))
	for _, s := range peerSecrets {
		value, _ := members[s.member].(string)
		l.name(s.name, cmp.Or(value, form.Get(s.member)))
	}
	return string(body)
}

// RoundTrip is called by one goroutine at a time.
func (l *peerTraffic) RoundTrip(r *http.Request) (*http.Response, error) {
	sent := "-> " + r.Method + " " + r.URL.String()
	if value := r.Header.Get("Authorization"); value != "" {
		sent += " Authorization: " + value
	}
	if r.Body != nil {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		sent += " " + l.keep(body)
	}
	answer, err := l.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return nil, err
	}
	_ = answer.Body.Close()
	answer.Body = io.NopCloser(bytes.NewReader(body))
	got := fmt.Sprintf("<- %d ", answer.StatusCode)
	if value := answer.Header.Get("WWW-Authenticate"); value != "" {
		got += "WWW-Authenticate: " + value
	} else {
		got += l.keep(body)
	}
	l.add(sent)
	l.add(got)
	return answer, nil
}

// peerRedirect is where the authorization server sends the person back to.
type peerRedirect struct {
	*httptest.Server
	traffic *peerTraffic
	answer  chan url.Values // has room for one
}

func (l *peerTraffic) redirect(t *testing.T) *peerRedirect {
	r := &peerRedirect{traffic: l, answer: make(chan url.Values, 1)}
	r.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, request *http.Request) {
		r.answer <- request.URL.Query()
	}))
	t.Cleanup(r.Server.Close)
	return r
}

func (r *peerRedirect) URI() string { return r.URL + "/callback" }

func (r *peerRedirect) Ask(_ context.Context, address string) (url.Values, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	r.traffic.keep([]byte(u.RawQuery))
	r.traffic.add("=> GET " + address)
	r.traffic.person.visit(address)
	answer := <-r.answer
	r.traffic.keep([]byte(answer.Encode()))
	r.traffic.add("<= GET " + r.URI() + "?" + answer.Encode())
	return answer, nil
}

func (r *peerRedirect) Close(error) {}

// TestPeersAuthorization: a session at a server that is protected by a real authorization server, from the first
// refusal to more scopes. docs/mcp.md shows lines of it; go test -run TestPeersAuthorization . -update writes it.
func TestPeersAuthorization(t *testing.T) {
	checkLeaks(t)
	p := startPeerProtected(t, nil)
	person := newPeerPerson(t)
	traffic := &peerTraffic{peerProtected: p, next: new(http.Transport), person: person,
		names: make(map[string]string), count: make(map[string]int)}
	t.Cleanup(traffic.next.(*http.Transport).CloseIdleConnections)
	redirect := traffic.redirect(t)
	o := &OAuth{Resource: p.server.url, Base: traffic, ClientName: "mcpagent",
		Listen: func(context.Context, string) (Redirect, error) { return redirect, nil }}
	defer o.Close()
	server := &HTTP{URL: p.server.url, Client: &http.Client{Transport: o}}
	client, err := Connect(t.Context(), server.Start, &ClientOptions{Protocol: statelessRevision})
	assert.NilError(t, err)
	defer client.Close()
	call := func(tool, arguments string) string {
		result, err := client.CallTool(t.Context(), tool, json.RawMessage(arguments), nil)
		assert.NilError(t, err)
		return result.Content[0].Text
	}
	assert.Equal(t, call("who", `{}`), "heron: notes:read (Bearer)")
	p.end(t, traffic.value("ACCESS-1"))
	assert.Equal(t, call("list_notes", `{}`), "A heron stands in shallow water.")
	assert.Equal(t, call("add_note", `{"text":"It waits."}`), "2 notes")
	assert.Equal(t, call("who", `{}`), "heron: notes:read notes:write (Bearer)")
	assert.DeepEqual(t, person.pages, []string{"Sign-in", "Authorize", "Authorize"})
	golden.Assert(t, strings.Join(traffic.lines, "\n")+"\n", "authorization.txt")
}

// end ends an access token at the authorization server, which leaves the refresh token as it is.
func (p peerProtected) end(t *testing.T, token string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, p.authorization.url+"/"+token, nil)
	assert.NilError(t, err)
	request.Close = true
	answer, err := http.DefaultClient.Do(request)
	assert.NilError(t, err)
	assert.NilError(t, answer.Body.Close())
	assert.Equal(t, answer.StatusCode, http.StatusOK)
}

// peerUser is a user of the program: with a home of its own, and a server called notes in its configuration.
type peerUser struct {
	peerProtected
	t      *testing.T
	home   string
	person *peerPerson
	tokens map[string]bool // all that were ever in the file
}

func newPeerUser(t *testing.T, p peerProtected, settings string) *peerUser {
	u := &peerUser{peerProtected: p, t: t, home: t.TempDir(), person: newPeerPerson(t), tokens: make(map[string]bool)}
	config := fmt.Sprintf(`{"mcpServers":{"notes":{"url":%q%s}}}`, p.server.url, settings)
	assert.NilError(t, os.WriteFile(filepath.Join(u.home, ".mcp.json"), []byte(config), 0o600))
	return u
}

func (u *peerUser) start(args ...string) *programRun {
	u.t.Helper()
	p := newProgram(u.t, u.home, programEnvironment(u.home), args...)
	assert.NilError(u.t, p.start())
	return p
}

// startOnTerminal runs the program where a person watches it, on a terminal so wide that no address is folded.
func (u *peerUser) startOnTerminal(args ...string) *programRun {
	u.t.Helper()
	p := newProgram(u.t, u.home, programEnvironment(u.home), args...)
	terminal, ok := any(p).(interface{ openTerminal(columns uint16) error })
	if !ok {
		u.t.Skip("a terminal for the program is made on Linux alone")
	}
	assert.NilError(u.t, terminal.openTerminal(4000))
	assert.NilError(u.t, p.start())
	return p
}

// finish waits for the end of a run, and returns what it has printed. No token is in that, nor in any file but the one
// where the login is kept.
func (u *peerUser) finish(p *programRun, status int) (stdout string) {
	u.t.Helper()
	ended := p.end()
	places := map[string]string{"stdout": p.stdout.String(), "stderr": p.log.String()}
	assert.Equal(u.t, ended, status, "%v", places)
	u.state()
	assert.NilError(u.t, fs.WalkDir(os.DirFS(u.home), ".", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && !strings.HasPrefix(path, peerLogins) {
			places[path] = readText(u.t, filepath.Join(u.home, path))
		}
		return err
	}))
	for token := range u.tokens {
		for place, text := range places {
			assert.Assert(u.t, !strings.Contains(text, token), "a token is in %s", place)
		}
	}
	return places["stdout"]
}

const peerLogins = ".config/mcpagent/logins/" // below the home

func (u *peerUser) run(status int, args ...string) (stdout, stderr string) {
	u.t.Helper()
	p := u.start(args...)
	return u.finish(p, status), p.log.String()
}

// logIn runs the command login, with a person who does what it asks for.
func (u *peerUser) logIn() (page string) {
	u.t.Helper()
	p := u.start("login", "notes")
	page = u.visit(p)
	u.finish(p, 0)
	return page
}

// visit has the person open the address that a run shows, and returns the page that this ends at.
func (u *peerUser) visit(p *programRun) (page string) {
	u.t.Helper()
	address, err := p.expect(peerLoginAddress)
	assert.NilError(u.t, err)
	page, _ = u.person.visit(address[0])
	return page
}

var peerLoginAddress = regexp.MustCompile(`http://127\.0\.0\.1:\d+/\S+[?&]code_challenge=\S+`)

// state is what the program keeps of the login.
func (u *peerUser) state() (state OAuthState) {
	u.t.Helper()
	files, err := filepath.Glob(filepath.Join(u.home, peerLogins+"*.json"))
	assert.NilError(u.t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		assert.NilError(u.t, err)
		assert.NilError(u.t, json.Unmarshal(text, &state))
		if state.Token != nil {
			u.tokens[state.Token.Access], u.tokens[state.Token.Refresh] = true, true
		}
	}
	delete(u.tokens, "")
	return state
}

// change changes the token that is kept.
func (u *peerUser) change(change func(token *OAuthToken)) {
	u.t.Helper()
	file, err := filepath.Glob(filepath.Join(u.home, peerLogins+"*.json"))
	assert.NilError(u.t, err)
	assert.Equal(u.t, len(file), 1)
	kept := &OAuthFile{Path: file[0]}
	state, err := kept.Load()
	assert.NilError(u.t, err)
	change(state.Token)
	assert.NilError(u.t, kept.Save(state))
}

// TestPeersLogin: a user of the program logs in, and is logged in from then on, though tokens end: the next run gets
// another one, and each refresh token works once.
func TestPeersLogin(t *testing.T) {
	checkLeaks(t)
	u := newPeerUser(t, startPeerProtected(t, nil), "")
	_, stderr := u.run(1, "tools")
	assert.Assert(t, is.Contains(stderr, "mcpagent login notes"))
	_, stderr = u.run(1, "-server", u.server.url+"/", "tools") // which the server redirects
	assert.Assert(t, is.Contains(stderr, "mcpagent login "+u.server.url+"/; or, "))
	assert.Assert(t, is.Contains(u.logIn(), "You are logged in"))
	assert.DeepEqual(t, u.person.pages, []string{"Sign-in", "Authorize", "You are logged in"})
	stdout, _ := u.run(0, "whoami")
	assert.Assert(t, is.Contains(stdout, u.authorization.url))
	assert.Assert(t, is.Contains(stdout, "notes:read"))

	grants := u.authorization.stderr
	for range 2 {
		grants.mark()
		u.end(t, u.state().Token.Access)
		stdout, stderr = u.run(0, "-trace", "1", "call", "who")
		assert.Equal(t, stdout, "heron: notes:read (Bearer)\n")
		assert.Assert(t, is.Contains(stderr, "tools/call"))
		assert.Equal(t, len(grants.with("granted refresh_token", "")), 1)
	}

	// Several at once: the second use of a refresh token would end the login of all.
	u.end(t, u.state().Token.Access)
	var runs []*programRun
	for range 4 {
		runs = append(runs, u.start("call", "list_notes"))
	}
	for _, run := range runs {
		assert.Equal(t, u.finish(run, 0), "A heron stands in shallow water.\n")
	}
	stdout, _ = u.run(0, "call", "who")
	assert.Equal(t, stdout, "heron: notes:read (Bearer)\n")
	assert.Equal(t, len(grants.with("refused ", "")), 0, grants.String())

	// The scope that the server has asked for is part of the next login.
	_, stderr = u.run(3, "call", "add_note", `{"text":"It waits."}`)
	assert.Assert(t, is.Contains(stderr, "notes:write"))
	assert.Assert(t, is.Contains(stderr, "mcpagent login notes"))
	u.logIn()
	stdout, _ = u.run(0, "call", "add_note", `{"text":"It waits."}`)
	assert.Equal(t, stdout, "2 notes\n")

	// A server that has forgotten all: the client is registered anew.
	u.authorization.restart()
	_, stderr = u.run(1, "call", "who")
	assert.Assert(t, is.Contains(stderr, "mcpagent login notes"))
	assert.Assert(t, is.Contains(u.logIn(), "You are logged in"))
	u.authorization.restart()
	assert.Assert(t, is.Contains(u.logIn(), "You are logged in"))
	stdout, _ = u.run(0, "call", "who")
	assert.Equal(t, stdout, "heron: notes:read notes:write (Bearer)\n")

	u.run(0, "logout", "notes")
	_, stderr = u.run(1, "call", "who")
	assert.Assert(t, is.Contains(stderr, "mcpagent login notes"))
	_, stderr = u.run(0, "whoami")
	assert.Assert(t, is.Contains(stderr, "there are no logins"))
}

// TestPeersClients: the program logs in as a client that was registered beforehand, or that has a metadata document. It
// is not registered then, and a client of another authorization server is not shown to this one.
func TestPeersClients(t *testing.T) {
	checkLeaks(t)
	p := startPeerProtected(t, nil)
	registered := `, "oauth": {"clientId": "registered", "clientSecret": "registered-secret-0123456789", "issuer": %q}`
	for _, settings := range []string{
		fmt.Sprintf(registered, p.authorization.url),
		`, "oauth": {"clientMetadataUrl": "https://client.example.com/mcpagent.json"}`,
	} {
		u := newPeerUser(t, p, settings)
		u.logIn()
		p.end(t, u.state().Token.Access)
		stdout, _ := u.run(0, "call", "who")
		assert.Equal(t, stdout, "heron: notes:read (Bearer)\n")
	}
	log := p.authorization.stderr
	assert.Equal(t, len(log.with("granted refresh_token", "")), 2)
	log.mark()
	u := newPeerUser(t, p, fmt.Sprintf(registered, "https://login.example.com"))
	_, stderr := u.run(1, "login", "notes")
	assert.Assert(t, is.Contains(stderr, "https://login.example.com"))
	assert.Assert(t, is.Contains(stderr, p.authorization.url))
	elsewhere := p.server.url + "/elsewhere" // which is none that asks for a login
	_, stderr = u.run(1, "login", elsewhere)
	assert.Assert(t, is.Contains(stderr,
		elsewhere+" does not say where to log in, and is not itself an authorization server"))
	assert.Equal(t, len(log.with("", "")), 0)
	assert.Equal(t, strings.Count(log.String(), "registered a client"), 0)
}

// TestLoginInChromium: a browser that runs no script goes through a whole login, and what it shows at the end says so.
// The same is seen of a login that the person declines.
func TestLoginInChromium(t *testing.T) {
	checkLeaks(t)
	c := startChromium(t)
	c.do("Emulation.setScriptExecutionDisabled", map[string]any{"value": true})
	p := startPeerProtected(t, nil)
	for _, test := range []struct {
		button, title, text string
		status              int
	}{
		{"[type=submit]", "You are logged in", "mcpagent can now use " + p.server.url, 0},
		{"a[href$=abort]", "You are not logged in", "End-User aborted interaction", 1},
	} {
		u := newPeerUser(t, p, "")
		program := u.start("login", "notes")
		address, err := program.expect(peerLoginAddress)
		assert.NilError(t, err)
		c.load("Page.navigate", map[string]any{"url": address[0]})
		if c.value("document.forms[0].login ? 1 : 0") == "1" { // later logins know the browser by its cookie
			c.value(`document.querySelectorAll("input:not([type=hidden])").forEach(input => input.value = "heron")`)
			c.click("[type=submit]")
		}
		assert.Equal(t, c.value("document.querySelector('h1').innerText"), "Authorize")
		c.click(test.button)

		assert.Check(t, strings.HasPrefix(c.value("location.href"), "http://127.0.0.1:"))
		assert.Check(t, is.Equal(c.value("document.querySelector('h1').innerText"), test.title))
		assert.Check(t, is.Contains(c.value("document.title"), test.title))
		assert.Check(t, is.Contains(c.value("document.body.innerText"), test.text))
		assert.Check(t, is.Equal(c.value("document.scripts.length"), "0"))
		assert.Check(t, is.Equal(c.value("performance.getEntriesByType('resource').length"), "0"), "it loads something else")
		shown, err := png.Decode(bytes.NewReader(c.screenshot()))
		assert.NilError(t, err)
		assert.Check(t, is.Equal(shown.Bounds().Dx(), 800))
		u.finish(program, test.status)
	}
}

// click clicks on what leads to another page.
func (c *chromium) click(selector string) {
	c.t.Helper()
	c.load("Runtime.evaluate", map[string]any{"expression": fmt.Sprintf("document.querySelector(%q).click()", selector)})
}

// TestPeersLoginBound: the tokens of a person are bound to a key, with which each run can use and refresh them.
func TestPeersLoginBound(t *testing.T) {
	checkLeaks(t)
	file, _ := newPeerKey(t)
	p := startPeerProtected(t, nil, "dpop")
	u := newPeerUser(t, p, fmt.Sprintf(`, "oauth": {"dpop": true, "privateKeyFile": %q}`, file))
	u.logIn()
	for range 2 {
		p.end(t, u.state().Token.Access)
		stdout, _ := u.run(0, "call", "who")
		assert.Equal(t, stdout, "heron: notes:read (DPoP)\n")
	}
	assert.Equal(t, len(p.authorization.stderr.with("granted authorization_code", "")), 1)
	assert.Assert(t, len(p.authorization.stderr.with("granted refresh_token", "")) > 1)
}

// newPeerKey returns the file of a private key, and its public key as a variable of the authorization server.
func newPeerKey(t *testing.T) (file, variable string) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	assert.NilError(t, err)
	encoded, err := x509.MarshalPKCS8PrivateKey(key)
	assert.NilError(t, err)
	file = filepath.Join(t.TempDir(), "key.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded})
	assert.NilError(t, os.WriteFile(file, text, 0o600))
	point, err := key.PublicKey.Bytes() // 4, x, y
	assert.NilError(t, err)
	encode := base64.RawURLEncoding.EncodeToString
	return filepath.ToSlash(file),
		fmt.Sprintf(`MACHINE_KEY={"kty":"EC","crv":"P-256","x":%q,"y":%q}`, encode(point[1:33]), encode(point[33:]))
}

// TestPeersMachine: a program without a person gets in with a secret or a key of its own, and with tokens that are
// bound to a key.
func TestPeersMachine(t *testing.T) {
	checkLeaks(t)
	file, jwk := newPeerKey(t)
	bearer, bound := startPeerProtected(t, []string{jwk}), startPeerProtected(t, []string{jwk}, "dpop")
	const secret = `"clientId": "machine", "clientSecret": "machine-secret-0123456789"`
	private := fmt.Sprintf(`"clientId": "machine-key", "privateKeyFile": %q`, file)
	for _, test := range []struct {
		peerProtected
		settings, want   string
		granted, refused int // in two runs: a token is kept if its key is, and the first proof of a run has no nonce
	}{
		{bearer, secret, "machine: notes:read (Bearer)\n", 1, 0},
		{bearer, private, "machine-key: notes:read (Bearer)\n", 1, 0},
		{bound, secret + `, "dpop": true`, "machine: notes:read (DPoP)\n", 2, 2},
		{bound, private + `, "dpop": true`, "machine-key: notes:read (DPoP)\n", 1, 1},
	} {
		issuer := fmt.Sprintf(`, "issuer": %q}`, test.authorization.url)
		u := newPeerUser(t, test.peerProtected, `, "oauth": {"grant": "client_credentials", `+test.settings+issuer)
		for range 2 {
			stdout, _ := u.run(0, "call", "who")
			assert.Equal(t, stdout, test.want)
		}
		log := test.authorization.stderr
		assert.Equal(t, len(log.with("granted ", "")), test.granted)
		assert.Equal(t, len(log.with("refused ", "")), test.refused)
		log.mark()
	}
}
