package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

// oauthServer is an authorization server that verifies what it is given (client authentication, redirect URI, code,
// PKCE verifier, resource), and a resource that it protects. It is an http.RoundTripper as well, which reaches both in
// memory by their names, where synctest's clock rules. Set the exported fields before the first request, or under set.
type oauthServer struct {
	Issuer   string        // https://as.test in memory
	Resource string        // https://mcp.test/mcp in memory
	Methods  []string      // of client authentication; none if there are no others
	Lifetime time.Duration // of access tokens; an hour if 0
	CIMD     bool          // supports Client ID Metadata Documents: any https URL is a client
	NoDCR    bool          // registers nobody
	Revokes  bool          // tokens (RFC 7009)
	NoScopes bool          // knows none of the resource's scopes in a registration
	Keeps    bool          // refresh tokens, instead of giving another one for each

	Needs     string                                                   // scopes that the challenges name
	NeedsMore func(r *http.Request) string                             // scopes that a request needs besides
	Metadata  func(document map[string]any)                            // changes the authorization server's metadata
	Protected func(document map[string]any)                            // changes the protected resource's metadata
	Answer    func(w http.ResponseWriter, r *http.Request, n int) bool // answers the nth request to a path
	Respond   func(response url.Values)                                // changes an authorization response

	Query string                                                            // of the token endpoint's URL
	Grant func(form url.Values, clientID string) (description, code string) // checks other grants
	Proof func(w http.ResponseWriter, r *http.Request, uri, token string) ( // the key that a request proves (DPoP),
		key, description, code string) // or the error; no key: tokens are not bound

	mu       sync.Mutex // guards the following
	clients  map[string]*oauthTestClient
	codes    map[string]*oauthTestGrant // of codes that have not been used
	access   map[string]*oauthTestGrant
	refresh  map[string]*oauthTestGrant // used ones have the value nil
	requests []string                   // method and path
	urls     []string
	bodies   []string        // of the requests that the resource has accepted
	secrets  []string        // all that were issued
	told     map[string]bool // to OAuth.Secret, by all clients
	faults   []string        // what was wrong with tokens and token requests that were refused
	used     map[string]bool // the jti of all assertions and proofs
}

type oauthTestClient struct {
	secret, method string
	redirectURIs   []string
	dynamic        bool
	scope          string           // of a dynamic client: it gets no others, unless NoScopes
	key            *ecdsa.PublicKey // with the method private_key_jwt
}

type oauthTestGrant struct {
	clientID, redirectURI, challenge, scope string
	expiry                                  time.Time
	key                                     string // that the access token is bound to, by its thumbprint
}

// newOAuthServer returns a server in memory.
func newOAuthServer() *oauthServer {
	return &oauthServer{
		Issuer:   "https://as.test",
		Resource: "https://mcp.test/mcp",
		clients:  make(map[string]*oauthTestClient),
		codes:    make(map[string]*oauthTestGrant),
		access:   make(map[string]*oauthTestGrant),
		refresh:  make(map[string]*oauthTestGrant),
		told:     make(map[string]bool),
		used:     make(map[string]bool),
	}
}

// startOAuthServer returns one that is reached over sockets as well. next answers the requests that are authorised;
// nil: with what they hold.
func startOAuthServer(t testing.TB, next http.Handler) *oauthServer {
	s := newOAuthServer()
	as := httptest.NewUnstartedServer(http.HandlerFunc(s.serveIssuer))
	resource := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.serveResource(w, r, next)
	}))
	s.Issuer = "http://" + as.Listener.Addr().String()
	s.Resource = "http://" + resource.Listener.Addr().String() + "/mcp"
	for _, server := range []*httptest.Server{as, resource} { // they know their addresses
		server.Start()
		t.Cleanup(server.Close)
	}
	return s
}

// set changes fields while requests may be under way.
func (s *oauthServer) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// register makes a client known as if by its operator.
func (s *oauthServer) register(id, secret, method string, redirectURIs ...string) {
	s.set(func() { s.clients[id] = &oauthTestClient{secret: secret, method: method, redirectURIs: redirectURIs} })
}

// count counts the requests that begin so: "POST /token".
func (s *oauthServer) count(prefix string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, request := range s.requests {
		if strings.HasPrefix(request, prefix) {
			n++
		}
	}
	return n
}

const protectedPath = "/.well-known/oauth-protected-resource" // before the path of the resource

// RoundTrip reaches both servers in memory, and nothing else.
func (s *oauthServer) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := context.Cause(r.Context()); err != nil {
		return nil, err
	}
	w := httptest.NewRecorder()
	if r.Body == nil {
		r.Body = http.NoBody
	}
	defer r.Body.Close()
	isOfResource := strings.HasSuffix(s.Resource, r.URL.Path) || strings.HasPrefix(r.URL.Path, protectedPath)
	switch origin := r.URL.Scheme + "://" + r.URL.Host; { // both may have one
	case strings.HasPrefix(s.Resource+"/", origin+"/") && isOfResource:
		s.serveResource(w, r, nil)
	case strings.HasPrefix(s.Issuer+"/", origin+"/"):
		s.serveIssuer(w, r)
	case strings.HasPrefix(s.Resource+"/", origin+"/"):
		s.serveResource(w, r, nil)
	default:
		return nil, fmt.Errorf("no server at %s", origin)
	}
	response := w.Result()
	response.Request = r
	return response, nil
}

// note notes a request, and reports whether it was answered.
func (s *oauthServer) note(w http.ResponseWriter, r *http.Request) bool {
	name := r.Method + " " + r.URL.Path
	s.mu.Lock()
	s.requests = append(s.requests, name)
	s.urls = append(s.urls, r.URL.String())
	answer := s.Answer
	s.mu.Unlock()
	return answer != nil && answer(w, r, s.count(name))
}

// serveResource is the protected resource.
func (s *oauthServer) serveResource(w http.ResponseWriter, r *http.Request, next http.Handler) {
	if s.note(w, r) {
		return
	}
	u, _ := url.Parse(s.Resource)
	metadata := protectedPath + u.Path
	if r.URL.Path == metadata {
		document := map[string]any{"resource": s.Resource, "authorization_servers": []string{s.Issuer}}
		s.mu.Lock()
		if s.Protected != nil {
			s.Protected(document)
		}
		s.mu.Unlock()
		writeTestJSON(w, http.StatusOK, document)
		return
	}
	if strings.HasPrefix(r.URL.Path, "/.well-known/") {
		http.NotFound(w, r)
		return
	}
	s.mu.Lock()
	more := s.NeedsMore
	grant, code := s.checkToken(w, r)
	challenge := fmt.Sprintf(`Bearer resource_metadata="%s://%s%s"`, u.Scheme, u.Host, metadata)
	if s.Proof != nil {
		challenge = strings.Replace(challenge, "Bearer", "DPoP", 1)
	}
	if s.Needs != "" {
		challenge += fmt.Sprintf(`, scope="%s"`, s.Needs)
	}
	s.mu.Unlock()
	if grant == nil {
		if code != "" {
			challenge += `, error="` + code + `"`
		}
		w.Header().Set("WWW-Authenticate", challenge)
		writeTestJSON(w, http.StatusUnauthorized, map[string]any{"error": "invalid_token"})
		return
	}
	if more != nil {
		for _, scope := range strings.Fields(more(r)) {
			if !slices.Contains(strings.Fields(grant.scope), scope) {
				w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer scope="%s", resource_metadata="%s://%s%s", `+
					`error="insufficient_scope"`, more(r), u.Scheme, u.Host, metadata))
				w.WriteHeader(http.StatusForbidden)
				return
			}
		}
	}
	if next != nil {
		next.ServeHTTP(w, r)
		return
	}
	body, _ := io.ReadAll(r.Body)
	s.set(func() { s.bodies = append(s.bodies, string(body)) })
	w.Write(body)
}

// checkToken returns the grant of a request's token, or the error code, which is "" if there is no token.
func (s *oauthServer) checkToken(w http.ResponseWriter, r *http.Request) (grant *oauthTestGrant, code string) {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	grant = s.access[token]
	description := ""
	switch {
	case token == "":
		return nil, ""
	case grant == nil || !time.Now().Before(grant.expiry):
		description, code = "unknown token", "invalid_token"
	case (grant.key == "") != (scheme == "Bearer"):
		description, code = "wrong scheme", "invalid_token"
	case grant.key != "":
		var key string
		key, description, code = s.Proof(w, r, s.Resource, token)
		if code == "" && key != grant.key {
			description, code = "the token is bound to another key", "invalid_token"
		}
	}
	if code != "" {
		s.noteFault(description, code)
		return nil, code
	}
	return grant, ""
}

// noteFault notes a refusal. A client that is told a nonce has made no fault.
func (s *oauthServer) noteFault(description, code string) {
	if code != "use_dpop_nonce" {
		s.faults = append(s.faults, description)
	}
}

// serveIssuer is the authorization server.
func (s *oauthServer) serveIssuer(w http.ResponseWriter, r *http.Request) {
	if s.note(w, r) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	u, _ := url.Parse(s.Issuer)
	switch r.URL.Path {
	case "/.well-known/oauth-authorization-server" + u.Path:
		document := map[string]any{
			"issuer":                           s.Issuer,
			"authorization_endpoint":           s.Issuer + "/authorize",
			"token_endpoint":                   s.tokenEndpoint(),
			"code_challenge_methods_supported": []string{"S256"},
			"authorization_response_iss_parameter_supported": true,
			"token_endpoint_auth_methods_supported":          s.methods(),
			"client_id_metadata_document_supported":          s.CIMD,
		}
		if s.Revokes {
			document["revocation_endpoint"] = s.Issuer + "/revoke"
		}
		if !s.NoDCR {
			document["registration_endpoint"] = s.Issuer + "/register"
		}
		if s.Metadata != nil {
			s.Metadata(document)
		}
		writeTestJSON(w, http.StatusOK, document)
	case u.Path + "/register":
		s.serveRegister(w, r)
	case u.Path + "/revoke":
		s.serveRevoke(w, r)
	case u.Path + "/authorize":
		s.serveAuthorize(w, r)
	case u.Path + "/token":
		description, code := s.serveToken(w, r)
		if code != "" {
			s.noteFault(description, code)
			status := http.StatusBadRequest
			if code == "invalid_client" {
				status = http.StatusUnauthorized
			}
			writeTestJSON(w, status, map[string]any{"error": code, "error_description": description})
		}
	default:
		http.NotFound(w, r)
	}
}

func (s *oauthServer) tokenEndpoint() string {
	if s.Query == "" {
		return s.Issuer + "/token"
	}
	return s.Issuer + "/token?" + s.Query
}

func (s *oauthServer) methods() []string {
	if len(s.Methods) == 0 {
		return []string{"none"}
	}
	return s.Methods
}

// issue makes a secret.
func (s *oauthServer) issue(kind string) string {
	text := kind + "-" + rand.Text()
	s.secrets = append(s.secrets, text)
	return text
}

func (s *oauthServer) serveRegister(w http.ResponseWriter, r *http.Request) {
	var request struct {
		URIs   []string `json:"redirect_uris"`
		Type   string   `json:"application_type"`
		Method string   `json:"token_endpoint_auth_method"`
		Scope  string   `json:"scope"`
	}
	err := json.NewDecoder(r.Body).Decode(&request)
	if err != nil || len(request.URIs) == 0 || request.Type != "native" ||
		s.NoScopes && request.Scope != "" ||
		!slices.Contains(s.methods(), request.Method) {
		writeTestJSON(w, http.StatusBadRequest, map[string]any{"error": "invalid_client_metadata"})
		return
	}
	client := &oauthTestClient{method: request.Method, redirectURIs: request.URIs, dynamic: true, scope: request.Scope}
	answer := map[string]any{"client_id": "client-" + rand.Text(), "redirect_uris": request.URIs,
		"token_endpoint_auth_method": request.Method}
	if request.Method != "none" {
		client.secret = s.issue("secret")
		answer["client_secret"] = client.secret
	}
	s.clients[answer["client_id"].(string)] = client
	writeTestJSON(w, http.StatusCreated, answer)
}

func (s *oauthServer) serveAuthorize(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	client, redirect := s.clients[query.Get("client_id")], query.Get("redirect_uri")
	known := client != nil && slices.Contains(client.redirectURIs, redirect) ||
		s.CIMD && strings.HasPrefix(query.Get("client_id"), "https://")
	if !known { // no redirect to where nobody said
		http.Error(w, "unknown client or redirect_uri", http.StatusBadRequest)
		return
	}
	response := url.Values{"state": query["state"], "iss": {s.Issuer}}
	switch {
	case strings.Contains(query.Get("scope"), offlineAccess) && query.Get("prompt") != "consent":
		response.Set("error", "invalid_scope")
	case known && client != nil && client.dynamic && !s.NoScopes &&
		!containsAll(strings.Fields(client.scope), strings.Fields(query.Get("scope"))):
		response.Set("error", "invalid_scope")
		response.Set("error_description", "not a scope of this client")
	case query.Get("response_type") != "code", len(query.Get("code_challenge")) != 43, query.Get("state") == "",
		query.Get("code_challenge_method") != "S256":
		response.Set("error", "invalid_request")
	case !s.isResource(query.Get("resource")):
		response.Set("error", "invalid_target")
	default:
		code := s.issue("code")
		s.codes[code] = &oauthTestGrant{
			clientID:    query.Get("client_id"),
			redirectURI: redirect,
			challenge:   query.Get("code_challenge"),
			scope:       query.Get("scope"),
			expiry:      time.Now().Add(time.Minute),
		}
		response.Set("code", code)
	}
	if s.Respond != nil {
		s.Respond(response)
		s.told[s.secrets[len(s.secrets)-1]] = true // a response may be refused
	}
	http.Redirect(w, r, redirect+"?"+response.Encode(), http.StatusFound)
}

// isResource reports whether a resource parameter is what the metadata of the resource says.
func (s *oauthServer) isResource(resource string) bool {
	document := map[string]any{"resource": s.Resource}
	if s.Protected != nil {
		s.Protected(document)
	}
	return resource == document["resource"]
}

// serveToken answers with a token; else it returns an error with its description.
func (s *oauthServer) serveToken(w http.ResponseWriter, r *http.Request) (description, code string) {
	if r.Method != http.MethodPost || r.Header.Get("Content-Type") != "application/x-www-form-urlencoded" ||
		r.URL.RawQuery != s.Query || r.ParseForm() != nil {
		return "not a form", "invalid_request"
	}
	form := r.PostForm
	for name, values := range form {
		if len(values) != 1 || values[0] == "" {
			return "parameter " + name, "invalid_request"
		}
	}
	id, err := s.authenticate(r)
	if err != nil {
		return err.Error(), "invalid_client"
	}
	key := ""
	if s.Proof != nil {
		uri, _, _ := strings.Cut(s.tokenEndpoint(), "?")
		key, description, code = s.Proof(w, r, uri, "")
		if code != "" {
			return description, code
		}
	}
	if !s.isResource(form.Get("resource")) {
		return "wrong resource", "invalid_target"
	}
	grant, description, code := s.takeGrant(form, id)
	if code != "" {
		return description, code
	}
	s.writeToken(w, form.Get("grant_type"), grant, key)
	return "", ""
}

// serveRevoke revokes a token of the client that asks.
func (s *oauthServer) serveRevoke(w http.ResponseWriter, r *http.Request) {
	if r.ParseForm() != nil {
		http.Error(w, "not a form", http.StatusBadRequest)
		return
	}
	id, err := s.authenticate(r)
	if err != nil {
		writeTestJSON(w, http.StatusUnauthorized, map[string]any{"error": "invalid_client"})
		return
	}
	token := r.PostForm.Get("token")
	for _, tokens := range []map[string]*oauthTestGrant{s.refresh, s.access} {
		if tokens[token] != nil && tokens[token].clientID == id {
			delete(tokens, token)
		}
	}
	// Its answer has no content, and is the same for a token that is not known (RFC 7009, 2.2).
}

// authenticate returns the ID of the client that sends a token request. It is "" for a workload that has an
// assertion alone.
func (s *oauthServer) authenticate(r *http.Request) (id string, err error) {
	form := r.PostForm
	id, secret, isBasic := r.BasicAuth()
	method := "none"
	switch {
	case form.Has("client_assertion"):
		return s.authenticateByKey(form)
	case isBasic:
		method = "client_secret_basic"
		var errs [2]error // RFC 6749, 2.3.1
		id, errs[0] = url.QueryUnescape(id)
		secret, errs[1] = url.QueryUnescape(secret)
		if err := errors.Join(errs[:]...); err != nil || form.Get("client_secret") != "" {
			return "", errors.New("two authentications, or one that is not encoded")
		}
		if form.Get("client_id") != id { // as the official Python SDK does
			return "", errors.New("Missing client_id")
		}
	default:
		id, secret = form.Get("client_id"), form.Get("client_secret")
		if secret != "" {
			method = "client_secret_post"
		}
	}
	isDocument := s.CIMD && strings.HasPrefix(id, "https://")
	isWorkload := id == "" && form.Has("assertion")
	client := s.clients[id]
	switch {
	case method == "none" && (isDocument || isWorkload):
	case client == nil || client.method != method || client.secret != secret:
		return "", errors.New("unknown client, or wrong authentication")
	}
	return id, nil
}

// takeGrant checks what a token is requested for, and returns what the token allows.
func (s *oauthServer) takeGrant(form url.Values, id string) (grant *oauthTestGrant, description, code string) {
	switch form.Get("grant_type") {
	case "authorization_code":
		grant = s.codes[form.Get("code")]
		delete(s.codes, form.Get("code"))
		s.secrets = append(s.secrets, form.Get("code_verifier"))
		hash := sha256.Sum256([]byte(form.Get("code_verifier")))
		if grant == nil || grant.clientID != id || grant.redirectURI != form.Get("redirect_uri") ||
			grant.challenge != base64.RawURLEncoding.EncodeToString(hash[:]) || time.Now().After(grant.expiry) {
			// Real servers are as careless.
			return nil, "the code " + form.Get("code") + " is not valid", "invalid_grant"
		}
		return grant, "", ""
	case "refresh_token":
		grant, issued := s.refresh[form.Get("refresh_token")]
		if grant == nil || grant.clientID != id {
			text := "the refresh token %s is not valid (used: %v)"
			return nil, fmt.Sprintf(text, form.Get("refresh_token"), issued), "invalid_grant"
		}
		if !s.Keeps {
			s.refresh[form.Get("refresh_token")] = nil
		}
		return grant, "", ""
	}
	if s.Grant == nil {
		return nil, "", "unsupported_grant_type"
	}
	description, code = s.Grant(form, id)
	return &oauthTestGrant{clientID: id}, description, code
}

// writeToken issues an access token, and a refresh token where the grant is of a person.
func (s *oauthServer) writeToken(w http.ResponseWriter, kind string, grant *oauthTestGrant, key string) {
	lifetime := cmp.Or(s.Lifetime, time.Hour)
	next := &oauthTestGrant{
		clientID: grant.clientID,
		scope:    grant.scope,
		expiry:   time.Now().Add(lifetime),
		key:      key,
	}
	access := s.issue("access")
	s.access[access] = next
	answer := map[string]any{"access_token": access, "token_type": "bearer", "expires_in": lifetime.Seconds()}
	if key != "" {
		answer["token_type"] = "DPoP"
	}
	if kind == "authorization_code" || kind == "refresh_token" && !s.Keeps {
		refresh := s.issue("refresh")
		s.refresh[refresh] = next
		answer["refresh_token"] = refresh
	}
	if grant.scope != "" {
		answer["scope"] = grant.scope
	}
	writeTestJSON(w, http.StatusOK, answer)
}

func writeTestJSON(w http.ResponseWriter, status int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(value)
}

// oauthPerson is a person who consents to all: the Redirect of tests.
type oauthPerson struct {
	uri     string
	browser http.RoundTripper
	asked   chan string // if it is not nil: gets each URL, before it is opened
	ended   func(error)
}

// listenOAuth is an OAuth.Listen for a person whose browser is base.
func listenOAuth(base http.RoundTripper) func(context.Context, string) (Redirect, error) {
	return listenPerson(oauthPerson{browser: base})
}

func listenPerson(p oauthPerson) func(context.Context, string) (Redirect, error) {
	return func(_ context.Context, redirectURI string) (Redirect, error) {
		p.uri = cmp.Or(redirectURI, "http://127.0.0.1:7777/callback")
		return &p, nil
	}
}

func (p *oauthPerson) URI() string { return p.uri }

func (p *oauthPerson) Close(err error) {
	if p.ended != nil {
		p.ended(err)
	}
}

func (p *oauthPerson) Ask(ctx context.Context, authorizationURL string) (url.Values, error) {
	if p.asked != nil {
		select {
		case p.asked <- authorizationURL:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, authorizationURL, nil)
	if err != nil {
		return nil, err
	}
	response, err := p.browser.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	to, err := response.Location()
	if err != nil || !strings.HasPrefix(to.String(), p.uri+"?") {
		text, _ := io.ReadAll(response.Body)
		return nil, errors.Join(err, fmt.Errorf("the browser shows %d: %s", response.StatusCode, text))
	}
	return to.Query(), nil
}

// newOAuth returns an OAuth for a server, with a person. At the end it checks that all secrets that the server issued
// were told, and that none was in a URL.
func newOAuth(t testing.TB, s *oauthServer) *OAuth {
	o := &OAuth{Resource: s.Resource, Base: s, Listen: listenOAuth(s)}
	o.Secret = func(text string) { s.set(func() { s.told[text] = true }) }
	t.Cleanup(func() {
		assert.Check(t, o.Close())
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, secret := range s.secrets {
			assert.Check(t, s.told[secret], "%s was not told", secret)
		}
		for _, text := range s.urls {
			for secret := range s.told {
				assert.Check(t, !strings.Contains(text, secret), "%s has the secret %s", text, secret)
			}
		}
	})
	return o
}

// failOAuth sends a request that must fail in the flow, without a secret in the error.
func failOAuth(t testing.TB, s *oauthServer, o *OAuth, want string) error {
	t.Helper()
	status, err := postOAuth(t.Context(), o, "body")
	assert.Assert(t, is.ErrorType(err, new(AuthorizationError)), "status %d", status)
	assert.Check(t, is.ErrorContains(err, want))
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, secret := range s.secrets {
		assert.Check(t, !strings.Contains(err.Error(), secret), "%s is in: %v", secret, err)
	}
	assert.Check(t, !strings.Contains(err.Error(), "\n") && len(err.Error()) < 1000, err.Error())
	return err
}

// goodOAuth sends a request that must succeed.
func goodOAuth(t testing.TB, o *OAuth) {
	t.Helper()
	status, err := postOAuth(t.Context(), o, "body")
	assert.NilError(t, err)
	assert.Equal(t, status, http.StatusOK)
}

// postOAuth sends a request with a body, and returns the status.
func postOAuth(ctx context.Context, o *OAuth, body string) (int, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, o.Resource, strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	response, err := o.RoundTrip(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode == http.StatusOK && string(text) != body {
		err = fmt.Errorf("the server got %q", text)
	}
	return response.StatusCode, err
}

// TestOAuth: the whole flow against a server that verifies everything, in memory and over sockets, for each way in
// which a client can be known and can authenticate.
func TestOAuth(t *testing.T) {
	for _, method := range []string{"none", "client_secret_basic", "client_secret_post"} {
		for _, kind := range []string{"dynamic", "registered", "document"} {
			if kind == "document" && method != "none" {
				continue
			}
			t.Run(kind+" "+method, func(t *testing.T) {
				s := startOAuthServer(t, nil)
				s.Methods, s.NoDCR, s.CIMD = []string{method}, kind != "dynamic", kind == "document"
				base := &http.Transport{}
				defer base.CloseIdleConnections()
				o := newOAuth(t, s)
				o.Base, o.Listen = base, listenOAuth(base)
				switch kind {
				case "registered":
					o.Client = OAuthClient{Issuer: s.Issuer, ID: "a client: ä", RedirectURI: "http://127.0.0.1:1/"}
					if method != "none" {
						o.Client.Secret = "a+secret: %"
					}
					s.register(o.Client.ID, o.Client.Secret, method, o.Client.RedirectURI)
				case "document":
					o.MetadataURL = "https://client.test/client.json"
				}
				for _, body := range []string{"one", "two"} {
					status, err := postOAuth(t.Context(), o, body)
					assert.NilError(t, err)
					assert.Equal(t, status, http.StatusOK)
				}
				assert.Check(t, is.Equal(s.count("GET /authorize"), 1))
				assert.Check(t, is.Equal(s.count("POST /mcp"), 3))
			})
		}
	}
}

// oauthTestStore is a store for several processes.
type oauthTestStore struct {
	turn  chan struct{} // has one element while it is locked
	text  []byte
	saves int
	fail  error // of Save
}

func newOAuthTestStore() *oauthTestStore { return &oauthTestStore{turn: make(chan struct{}, 1)} }

func (s *oauthTestStore) Lock(ctx context.Context) (func(), error) {
	select {
	case s.turn <- struct{}{}:
		return func() { <-s.turn }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (s *oauthTestStore) Load() (*OAuthState, error) {
	state := new(OAuthState)
	if s.text == nil {
		return state, nil
	}
	return state, json.Unmarshal(s.text, state)
}

func (s *oauthTestStore) Save(state *OAuthState) (err error) {
	if s.fail != nil {
		return s.fail
	}
	s.saves++
	s.text, err = json.Marshal(state)
	return err
}

// edit changes what is stored.
func (s *oauthTestStore) edit(t testing.TB, change func(*OAuthState)) {
	state, err := s.Load()
	assert.NilError(t, err)
	change(state)
	assert.NilError(t, s.Save(state))
}

// expire makes the resource refuse all access tokens, which their clients take for valid.
func (s *oauthServer) expire() { s.set(func() { clear(s.access) }) }

// TestOAuthExpiry: a token is refreshed half a minute before it expires, and one that the server refuses earlier when
// it is refused; the person is asked once. Some servers give another refresh token each time, some do not.
func TestOAuthExpiry(t *testing.T) {
	for _, keeps := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) { testOAuthExpiry(t, keeps) })
	}
}

func testOAuthExpiry(t *testing.T, keeps bool) {
	s := newOAuthServer()
	s.Lifetime, s.Keeps = 5*time.Minute, keeps
	o := newOAuth(t, s)
	for i, wait := range []time.Duration{0, 4 * time.Minute, 31 * time.Second, 5 * time.Minute, time.Hour} {
		time.Sleep(wait)
		goodOAuth(t, o)
		assert.Check(t, is.Equal(s.count("POST /token"), []int{1, 1, 2, 3, 4}[i]))
		assert.Check(t, is.Equal(s.count("POST /mcp"), i+2), "a refused request besides the first one")
	}
	s.expire()
	goodOAuth(t, o)
	assert.Check(t, is.Equal(s.count("POST /token"), 5))
	assert.Check(t, is.Equal(s.count("GET /authorize"), 1))
}

// TestOAuthRefreshRefused: a refresh token that the server does not take leads to the person, once, or to a LoginError
// that says why; with a careless server, which repeats the token in its error.
func TestOAuthRefreshRefused(t *testing.T) {
	s := newOAuthServer()
	o := newOAuth(t, s)
	goodOAuth(t, o)
	s.expire()
	s.set(func() { clear(s.refresh) })
	goodOAuth(t, o)
	assert.Check(t, is.Equal(s.count("GET /authorize"), 2))
	assert.Check(t, is.Equal(s.count("POST /token"), 3))
	assert.Check(t, is.Equal(s.count("POST /register"), 2))

	s.expire()
	s.set(func() { clear(s.refresh) })
	o.Listen = nil
	err := failOAuth(t, s, o, "https://mcp.test/mcp needs a new login: https://as.test/token answers invalid_grant: "+
		"the refresh token [secret] is not valid")
	assert.Check(t, is.ErrorType(err, new(LoginError)) != nil || errors.As(err, new(*LoginError)))
	err = failOAuth(t, s, o, "needs a new login: the token was refused")
	assert.Check(t, errors.As(err, new(*LoginError)))
	assert.Check(t, is.Equal(s.count("POST /token"), 4), "a spent refresh token is not used again")
}

// TestOAuthRefreshFails: when the authorization server cannot be reached, or is in trouble, the refresh token is kept
// for the next time, and nobody is asked.
func TestOAuthRefreshFails(t *testing.T) {
	s := newOAuthServer()
	o := newOAuth(t, s)
	goodOAuth(t, o)
	s.expire()
	for _, status := range []int{
		http.StatusInternalServerError, http.StatusServiceUnavailable, http.StatusTooManyRequests,
	} {
		s.set(func() {
			s.Answer = func(w http.ResponseWriter, r *http.Request, _ int) bool {
				if r.URL.Path != "/token" {
					return false
				}
				http.Error(w, r.PostFormValue("refresh_token"), status)
				return true
			}
		})
		failOAuth(t, s, o, fmt.Sprintf("https://as.test/token answers %d", status))
	}
	// What is no answer of OAuth may be a proxy's: a login helps if it stays so, and the token is kept.
	s.set(func() {
		s.Answer = func(w http.ResponseWriter, r *http.Request, _ int) bool {
			if r.URL.Path == "/token" {
				http.NotFound(w, r)
			}
			return r.URL.Path == "/token"
		}
	})
	o.Listen = nil
	err := failOAuth(t, s, o, "needs a new login: https://as.test/token answers 404")
	assert.Check(t, errors.As(err, new(*LoginError)))
	s.set(func() { s.Answer = nil })
	goodOAuth(t, o)
	assert.Check(t, is.Equal(s.count("GET /authorize"), 1))
}

// TestOAuthTwoProcesses: of two that refresh at once the second one finds the token of the first. A refresh token that
// is used twice would end both.
func TestOAuthTwoProcesses(t *testing.T) {
	for _, early := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			s, store := newOAuthServer(), newOAuthTestStore()
			first, second := newOAuth(t, s), newOAuth(t, s)
			first.Store, second.Store = store, store
			goodOAuth(t, first)
			goodOAuth(t, second)
			assert.Check(t, is.Equal(s.count("GET /authorize"), 1), "the second one has what the first one stored")
			for range 3 {
				if early {
					time.Sleep(time.Hour - 10*time.Second)
				} else {
					s.expire()
				}
				before := s.count("POST /token")
				var work sync.WaitGroup
				for _, o := range []*OAuth{first, second, first, second} {
					work.Go(func() { goodOAuth(t, o) })
				}
				work.Wait()
				assert.Check(t, is.Equal(s.count("POST /token"), before+1))
			}
			assert.Check(t, is.Equal(s.count("GET /authorize"), 1))
			assert.Check(t, is.Equal(store.saves, 5), "before the login, after it, and after each refresh")
		})
	}
}

// TestOAuthManyRequests: they wait for one flow, whether it succeeds or fails.
func TestOAuthManyRequests(t *testing.T) {
	for _, denied := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := newOAuthServer()
			if denied {
				s.Respond = func(response url.Values) {
					response.Del("code")
					response.Set("error", "access_denied")
				}
			}
			o := newOAuth(t, s)
			asked := make(chan string)
			o.Listen = listenPerson(oauthPerson{browser: s, asked: asked})
			var work sync.WaitGroup
			for range 50 {
				work.Go(func() {
					if denied {
						failOAuth(t, s, o, "the login was denied at https://as.test/authorize")
					} else {
						goodOAuth(t, o)
					}
				})
			}
			synctest.Wait() // for all of them
			<-asked
			work.Wait()
			assert.Check(t, is.Equal(s.count("GET /authorize"), 1))
			assert.Check(t, is.Equal(s.count("POST /register"), 1))
		})
	}
}

// TestOAuthGivesUp: a request that waits for a person ends with its ctx. The login goes on, and is for the next one.
// Close ends it.
func TestOAuthGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newOAuthServer()
		o := newOAuth(t, s)
		asked, ended := make(chan string), make(chan error, 2)
		o.Listen = listenPerson(oauthPerson{browser: s, asked: asked, ended: func(err error) { ended <- err }})
		cause := errors.New("no time")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, cause)
		defer cancel()
		_, err := postOAuth(ctx, o, "body")
		assert.Check(t, is.ErrorIs(err, cause))
		<-asked
		assert.NilError(t, <-ended)
		goodOAuth(t, o)
		assert.Check(t, is.Equal(s.count("GET /authorize"), 1))

		done := make(chan error)
		go func() {
			_, err := o.Login(t.Context(), nil)
			done <- err
		}()
		synctest.Wait() // the person is asked
		assert.NilError(t, o.Close())
		assert.Check(t, is.Equal(len(ended), 1), "Close did not wait")
		assert.Check(t, is.ErrorIs(<-done, context.Canceled))
		assert.Check(t, is.ErrorIs(<-ended, context.Canceled))
		_, err = o.Login(t.Context(), nil)
		assert.Check(t, is.ErrorIs(err, net.ErrClosed))
	})
}

// TestOAuthClockSkew: a token that seems to have expired is sent all the same if it cannot be refreshed; the server
// decides. A refresh that fails early does no harm.
func TestOAuthClockSkew(t *testing.T) {
	s, store := newOAuthServer(), newOAuthTestStore()
	o := newOAuth(t, s)
	o.Store = store
	goodOAuth(t, o)
	store.edit(t, func(state *OAuthState) { state.Token.Expiry, state.Token.Refresh = time.Unix(1, 0), "" })
	o = newOAuth(t, s)
	o.Store, o.Listen = store, nil
	goodOAuth(t, o)

	s.Answer = func(w http.ResponseWriter, r *http.Request, _ int) bool {
		if r.URL.Path == "/token" {
			http.Error(w, "no", http.StatusBadGateway)
		}
		return r.URL.Path == "/token"
	}
	store.edit(t, func(state *OAuthState) { state.Token.Expiry, state.Token.Refresh = time.Unix(1, 0), "refresh" })
	o = newOAuth(t, s)
	o.Store, o.Listen = store, nil
	goodOAuth(t, o)
	assert.Check(t, is.Equal(s.count("POST /token"), 2))
}

// TestOAuthHostileMetadata: each of these ends the flow before anything is registered, asked or sent.
func TestOAuthHostileMetadata(t *testing.T) {
	const prm, server = "/.well-known/oauth-protected-resource/mcp", "/.well-known/oauth-authorization-server"
	redirect := func(path, to string) func(s *oauthServer) {
		return answerOAuth(path, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, to, http.StatusFound) })
	}
	text := func(path, text string) func(s *oauthServer) {
		return answerOAuth(path, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) })
	}
	protected := func(name string, value any) func(s *oauthServer) {
		return func(s *oauthServer) { s.Protected = func(document map[string]any) { document[name] = value } }
	}
	metadata := func(name string, value any) func(s *oauthServer) {
		return func(s *oauthServer) { s.Metadata = func(document map[string]any) { document[name] = value } }
	}
	long := strings.Repeat("long ", 2<<20) // 10 MiB
	for _, row := range []struct {
		name, want string
		server     func(s *oauthServer)
	}{
		{"loop", server + " answers 302", redirect(server, server)},
		{"downgrade", server + " answers 302", redirect(server, "http://as.test"+server)},
		{"10 MiB", "the answer has 1048576 bytes or more", text(prm, `{"a":"`+long)},
		{"10 MiB", "the answer has 1048576 bytes or more", text(server, `{"a":"`+long)},
		{"cut off", server + " answers 200: the answer is not JSON", text(server, `{"issuer":`)},
		{"nothing", "names 0 authorization servers", text(prm, "null")},
		{"list", "answers with a JSON array where an object should be", text(prm, "[]")},
		{"text", "answers with a JSON string where an object should be", text(server, `"x"`)},
		{"type", "a JSON string where authorization_servers should be",
			protected("authorization_servers", "https://as.test")},
		{"type", "a JSON number where authorization_servers should be", protected("authorization_servers", []any{1})},
		{"type", "a JSON object where resource should be", protected("resource", map[string]any{})},
		{"type", "a JSON number where issuer should be", metadata("issuer", 1)},
		{"type", "a JSON bool where code_challenge_methods_supported should be",
			metadata("code_challenge_methods_supported", true)},
		{"no servers", "names 0 authorization servers", protected("authorization_servers", []string{})},
		{"no resource", `is for ""`, protected("resource", "")},
		{"resource", `is for "https://evil.example/mcp"`, protected("resource", "https://evil.example/mcp")},
		{"resource", `is for "https://mcp.test/mc"`, protected("resource", "https://mcp.test/mc")},
		{"resource", `is for "https://mcp.test/mcp/more"`, protected("resource", "https://mcp.test/mcp/more")},
		{"resource", `is for "http://mcp.test/mcp"`, protected("resource", "http://mcp.test/mcp")},
		{"resource", `is for "https://mcp.test@evil.example/mcp"`,
			protected("resource", "https://mcp.test@evil.example/mcp")},
		{"resource", `is for "https://mcp.test/mcp#a"`, protected("resource", "https://mcp.test/mcp#a")}, // RFC 8707, 2
		{"resource", `is for "https://me@mcp.test/mcp"`, protected("resource", "https://me@mcp.test/mcp")},
		{"issuer", `"https://as.test" is of another issuer, "https://evil.example"`,
			metadata("issuer", "https://evil.example")},
		{"issuer", `is of another issuer, "https://as.test//"`, metadata("issuer", "https://as.test//")},
		{"issuer", `is of another issuer, ""`, metadata("issuer", "")},
		{"issuer", "http://evil.example/.well-known/oauth-authorization-server is not encrypted: https is needed",
			protected("authorization_servers", []string{"http://evil.example"})},
		{"issuer", "is not the URL of an endpoint", protected("authorization_servers", []string{long[:1<<19]})},
		{"issuer", "is not the URL of an endpoint", protected("authorization_servers", []string{"\x1b[2J"})},
		{"S256", `"https://as.test" does not support PKCE with S256`, metadata("code_challenge_methods_supported", nil)},
		{"S256", "does not support PKCE with S256", metadata("code_challenge_methods_supported", []string{"plain"})},
		{"endpoint", "is not the URL of an endpoint", metadata("token_endpoint", nil)},
		{"endpoint", "is not the URL of an endpoint", metadata("authorization_endpoint", "")},
		{"endpoint", "http://as.test/token is not encrypted", metadata("token_endpoint", "http://as.test/token")},
		{"endpoint", "is not encrypted", metadata("authorization_endpoint", "http://as.test/authorize")},
		{"endpoint", "is not the URL", metadata("authorization_endpoint", "file:///bin/sh")},
		{"endpoint", "is not the URL", metadata("authorization_endpoint", "javascript:alert(1)")},
		{"endpoint", "is not the URL", metadata("token_endpoint", "https://user:password@as.test/token")},
		{"scheme", "is not encrypted", metadata("authorization_endpoint", "calculator://as.test/authorize")},
		{"trouble", prm + " answers 500",
			answerOAuth(prm, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) })},
		{"nothing", server + " answers 404", answerOAuth(server, http.NotFound)},
	} {
		t.Run(row.name+" "+row.want, func(t *testing.T) {
			s := newOAuthServer()
			row.server(s)
			o := newOAuth(t, s)
			failOAuth(t, s, o, row.want)
			assert.Check(t, is.Equal(s.count("POST /register")+s.count("GET /authorize")+s.count("POST /token"), 0))
			assert.Check(t, s.count("GET /.well-known/") <= 6) // a document, three redirects, another place
		})
	}
}

// answerOAuth has the server answer the requests to a path in another way.
func answerOAuth(path string, answer http.HandlerFunc) func(s *oauthServer) {
	return func(s *oauthServer) {
		s.Answer = func(w http.ResponseWriter, r *http.Request, _ int) bool {
			if r.URL.Path == path {
				answer(w, r)
			}
			return r.URL.Path == path
		}
	}
}

// TestOAuthSilence: a server that does not answer ends the flow in time.
func TestOAuthSilence(t *testing.T) {
	for _, path := range []string{"/.well-known/oauth-protected-resource/mcp", "/register", "/token"} {
		synctest.Test(t, func(t *testing.T) {
			s := newOAuthServer()
			o := newOAuth(t, s)
			o.Base = roundTripFunc(func(r *http.Request) (*http.Response, error) {
				if r.URL.Path == path {
					<-r.Context().Done()
					return nil, context.Cause(r.Context())
				}
				return s.RoundTrip(r)
			})
			start := time.Now()
			failOAuth(t, s, o, path+": no answer within 15s")
			assert.Check(t, is.Equal(time.Since(start), oauthTime))
		})
	}
}

type roundTripFunc func(*http.Request) (*http.Response, error)

func (f roundTripFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestOAuthResponse: an authorization response that is not to this request, or not of this server, is not used, and
// nothing of it is shown.
func TestOAuthResponse(t *testing.T) {
	set := func(pairs ...string) func(url.Values) {
		return func(response url.Values) {
			for i := 0; i < len(pairs); i += 2 {
				if response.Del(pairs[i]); pairs[i+1] != "" {
					response.Set(pairs[i], pairs[i+1])
				}
			}
		}
	}
	const shown = "is shown"
	for _, row := range []struct {
		want    string
		respond func(url.Values)
	}{
		{"has another state: it is not to this login", set("state", "")},
		{"has another state", set("state", "x")},
		{"has another state", func(response url.Values) { response.Add("state", "x") }},
		{"has another state", set("state", "x", "error", "access_denied", "error_description", shown)},
		{"has another iss", set("iss", "https://evil.example")},
		{"has another iss", set("iss", "https://as.test/")},
		{"has another iss", set("iss", "HTTPS://as.test")},
		{"has another iss", func(response url.Values) { response.Add("iss", "https://evil.example") }},
		{"has another iss",
			set("iss", "https://evil.example", "code", "", "error", "access_denied", "error_description", shown)},
		{"has no iss, which its metadata promises", set("iss", "")},
		{"has no iss", set("iss", "", "code", "", "error", "server_error", "error_description", shown)},
		// A denial gives nothing away, but what is said of it may be anybody's.
		{"the login was denied at https://as.test/authorize",
			set("iss", "", "code", "", "error", "access_denied", "error_description", shown)},
		{"has no code", set("code", "")},
		{"the login was denied at https://as.test/authorize: why not",
			set("error", "access_denied", "error_description", "why\n not")},
	} {
		s := newOAuthServer()
		s.Respond = row.respond
		o := newOAuth(t, s)
		err := failOAuth(t, s, o, row.want)
		assert.Check(t, !strings.Contains(err.Error(), shown), err)
		assert.Check(t, is.Equal(s.count("POST /token"), 0))
	}

	// iss is compared although the server does not promise it, and may be left out then.
	for _, iss := range []string{"", "https://as.test", "https://evil.example"} {
		s := newOAuthServer()
		s.Metadata = func(document map[string]any) {
			delete(document, "authorization_response_iss_parameter_supported")
		}
		s.Respond = set("iss", iss)
		o := newOAuth(t, s)
		if iss == "https://evil.example" {
			failOAuth(t, s, o, "has another iss")
		} else {
			goodOAuth(t, o)
		}
	}
}

// TestOAuthOtherOrigin: a redirect to another origin gets no token, and no flow; neither does a request to one.
func TestOAuthOtherOrigin(t *testing.T) {
	s := newOAuthServer()
	o := newOAuth(t, s)
	goodOAuth(t, o)
	var seen []string
	o.Base = roundTripFunc(func(r *http.Request) (*http.Response, error) {
		if r.URL.Host+r.URL.Scheme == "mcp.testhttps" {
			return s.RoundTrip(r)
		}
		seen = append(seen, fmt.Sprint(r.URL, r.Header["Authorization"]))
		return &http.Response{StatusCode: http.StatusUnauthorized, Body: http.NoBody, Request: r}, nil
	})
	client := &http.Client{Transport: o}
	for _, to := range []string{"https://other.test/", "http://mcp.test/", "https://mcp.test:8443/"} {
		s.set(func() {
			s.Answer = func(w http.ResponseWriter, r *http.Request, _ int) bool {
				assert.Check(t, r.Header.Get("Authorization") != "")
				http.Redirect(w, r, to, http.StatusTemporaryRedirect)
				return true
			}
		})
		response, err := client.Post(o.Resource, "text/plain", strings.NewReader("body"))
		assert.NilError(t, err)
		assert.Check(t, is.Equal(response.StatusCode, http.StatusUnauthorized))
	}
	want := []string{"https://other.test/ []", "http://mcp.test/ []", "https://mcp.test:8443/ []"}
	assert.Check(t, is.DeepEqual(seen, want))
	assert.Check(t, is.Equal(s.count("GET /authorize"), 1))
}

// TestOAuthLeavesAlone: a request with an Authorization header of its own, one whose body cannot be sent again, and
// the challenges of other schemes.
func TestOAuthLeavesAlone(t *testing.T) {
	s := newOAuthServer()
	o := newOAuth(t, s)
	request, err := http.NewRequest(http.MethodPost, o.Resource, strings.NewReader("body"))
	assert.NilError(t, err)
	request.Header.Set("Authorization", "Bearer mine")
	once := request.Clone(t.Context())
	once.Header.Del("Authorization")
	once.GetBody = nil
	for _, r := range []*http.Request{request, once} {
		response, err := o.RoundTrip(r)
		assert.NilError(t, err)
		assert.Check(t, is.Equal(response.StatusCode, http.StatusUnauthorized))
	}
	answerOAuth("/mcp", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
		w.WriteHeader(http.StatusUnauthorized)
	})(s)
	status, err := postOAuth(t.Context(), o, "body")
	assert.Check(t, err == nil && status == http.StatusUnauthorized)
	assert.Check(t, is.Equal(s.count("GET /"), 0))
}

// TestOAuthStepUp: a challenge for more scopes is answered with another token that has the earlier ones, too. What was
// asked for before is not asked for again; the server's answer is the caller's, then.
func TestOAuthStepUp(t *testing.T) {
	s := newOAuthServer()
	s.Needs = "read"
	var last string
	s.NeedsMore = func(r *http.Request) string { return r.Header.Get("Scope") }
	o := newOAuth(t, s)
	o.ExtraScopes = []string{"mine"}
	send := func(scope string) int {
		request, err := http.NewRequest(http.MethodGet, o.Resource, nil)
		assert.NilError(t, err)
		request.Header.Set("Scope", scope)
		response, err := o.RoundTrip(request)
		assert.NilError(t, err)
		last = strings.Join(o.token.RequestedScopes, " ")
		return response.StatusCode
	}
	assert.Check(t, send("read") == http.StatusOK && last == "mine read", last)
	assert.Check(t, send("write") == http.StatusOK && last == "mine read write", last)
	assert.Check(t, send("read") == http.StatusOK && send("write") == http.StatusOK)
	assert.Check(t, is.Equal(s.count("GET /authorize"), 2))

	s.set(func() { // no token will ever do
		clear(s.access)
		s.NeedsMore = func(*http.Request) string { return "admin" }
		s.Answer = func(w http.ResponseWriter, r *http.Request, _ int) bool {
			if r.URL.Path != "/mcp" || r.Header.Get("Authorization") == "" {
				return false
			}
			w.Header().Set("WWW-Authenticate", `Bearer error="insufficient_scope", scope="admin"`)
			w.WriteHeader(http.StatusForbidden)
			return true
		}
	})
	for range 5 {
		assert.Check(t, send("") == http.StatusForbidden && last == "mine read write admin", last)
	}
	assert.Check(t, is.Equal(s.count("GET /authorize"), 3))
}

// refuseTokens is an oauthServer.Answer: the resource refuses every token.
func refuseTokens(w http.ResponseWriter, r *http.Request, _ int) bool {
	if r.URL.Path != "/mcp" || r.Header.Get("Authorization") == "" {
		return false
	}
	w.WriteHeader(http.StatusUnauthorized)
	return true
}

// TestOAuthRefusesAll: a server that no token satisfies gets few of them, and the answer is the caller's. The person
// is asked once, whatever requests follow; for other scopes again, but twice a request at most.
func TestOAuthRefusesAll(t *testing.T) {
	s := newOAuthServer()
	o := newOAuth(t, s)
	s.Answer = refuseTokens
	for i, want := range []string{"requests 2, tokens 1, questions 1", "requests 3, tokens 1, questions 1"} {
		status, err := postOAuth(t.Context(), o, "body")
		assert.Check(t, err == nil && status == http.StatusUnauthorized, i)
		seen := fmt.Sprintf("requests %d, tokens %d, questions %d",
			s.count("POST /mcp"), s.count("POST /token"), s.count("GET /authorize"))
		assert.Check(t, is.Equal(seen, want))
	}
	s.Answer = func(w http.ResponseWriter, r *http.Request, n int) bool {
		if r.URL.Path == "/mcp" {
			w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer error="insufficient_scope", scope="scope%d"`, n))
			w.WriteHeader(http.StatusForbidden)
		}
		return r.URL.Path == "/mcp"
	}
	status, err := postOAuth(t.Context(), o, "body")
	assert.Check(t, err == nil && status == http.StatusForbidden)
	assert.Check(t, is.Equal(s.count("POST /mcp"), 6))
	assert.Check(t, is.Equal(s.count("GET /authorize"), 3))
}

// TestOAuthRefusesNewLogin: if the refresh token is dead, the person is asked at once. If the resource refuses the
// token of that login too, the person is not asked again.
func TestOAuthRefusesNewLogin(t *testing.T) {
	s := newOAuthServer()
	o := newOAuth(t, s)
	goodOAuth(t, o)
	s.set(func() {
		clear(s.refresh)
		s.Answer = refuseTokens
	})
	status, err := postOAuth(t.Context(), o, "body")
	assert.NilError(t, err)
	assert.Check(t, is.Equal(status, http.StatusUnauthorized))
	assert.Check(t, is.Equal(s.count("GET /authorize"), 2), "one question before, and one for this request")
}

// TestOAuthStepUpElsewhere: where nobody can be asked, the scopes are kept for whoever logs in.
func TestOAuthStepUpElsewhere(t *testing.T) {
	s, store := newOAuthServer(), newOAuthTestStore()
	o := newOAuth(t, s)
	o.Store = store
	goodOAuth(t, o)
	s.set(func() { s.NeedsMore = func(*http.Request) string { return "write" } })
	var pipe *OAuth
	for range 2 { // two processes
		pipe = newOAuth(t, s)
		pipe.Store, pipe.Listen = store, nil
		err := failOAuth(t, s, pipe, `needs a new login: the scopes "write" are needed`)
		assert.Check(t, errors.As(err, new(*LoginError)))
	}
	terminal := newOAuth(t, s)
	terminal.Store = store
	token, err := terminal.Login(t.Context(), nil)
	assert.NilError(t, err)
	assert.Check(t, is.DeepEqual(token.GrantedScopes, []string{"write"}))
	goodOAuth(t, pipe)
}

// TestOAuthMigration: at another authorization server the client is another one, and nothing of the old one is sent.
func TestOAuthMigration(t *testing.T) {
	for _, refresh := range []bool{true, false} {
		testOAuthMigration(t, refresh)
	}
}

func testOAuthMigration(t *testing.T, refresh bool) {
	s, store := newOAuthServer(), newOAuthTestStore()
	s.Needs = "old"
	o := newOAuth(t, s)
	o.Store = store
	goodOAuth(t, o)
	if !refresh {
		store.edit(t, func(state *OAuthState) { state.Token.Refresh = "" })
		o = newOAuth(t, s)
		o.Store = store
	}
	s.set(func() {
		old := slices.Clone(s.secrets)
		for id := range s.clients {
			old = append(old, id)
		}
		s.Issuer, s.Needs = "https://as2.test", "new"
		clear(s.clients)
		clear(s.access)
		clear(s.refresh)
		s.Answer = func(w http.ResponseWriter, r *http.Request, _ int) bool {
			if r.Host != "as2.test" {
				return false
			}
			body, err := io.ReadAll(r.Body)
			assert.NilError(t, err)
			r.Body = io.NopCloser(bytes.NewReader(body))
			for _, text := range old {
				assert.Check(t, !strings.Contains(fmt.Sprint(r.URL, r.Header, string(body)), text))
			}
			return false
		}
	})
	goodOAuth(t, o)
	assert.Check(t, is.Equal(o.token.Issuer, "https://as2.test"))
	assert.Check(t, is.DeepEqual(o.token.GrantedScopes, []string{"new"}))
	assert.Check(t, is.Equal(s.count("POST /register"), 2))
	assert.Check(t, is.Equal(s.count("POST /token"), 2))
}

// TestOAuthRegistration: what a client can do where it is not registered, or not any more.
func TestOAuthRegistration(t *testing.T) {
	t.Run("refused", func(t *testing.T) {
		s := newOAuthServer()
		answerOAuth("/register", func(w http.ResponseWriter, _ *http.Request) {
			writeTestJSON(w, http.StatusBadRequest, map[string]any{
				"error": "invalid_redirect_uri", "error_description": "http is\tnot allowed"})
		})(s)
		failOAuth(t, s, newOAuth(t, s), "the client is not registered: https://as.test/register answers "+
			"invalid_redirect_uri: http is not allowed: register a client there, and configure its ID (oauth.clientId)")
	})
	t.Run("nameless", func(t *testing.T) {
		s := newOAuthServer()
		answerOAuth("/register", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "{}") })(s)
		failOAuth(t, s, newOAuth(t, s), "the answer has no client_id")
	})
	t.Run("no endpoint", func(t *testing.T) {
		s := newOAuthServer()
		s.NoDCR = true
		failOAuth(t, s, newOAuth(t, s), `"https://as.test" registers no clients: `+
			`register a client there, and configure its ID (oauth.clientId)`)
		s.CIMD = true
		failOAuth(t, s, newOAuth(t, s), `(oauth.clientId), `+
			`or the address of a Client ID Metadata Document (oauth.clientMetadataUrl)`)
	})
	t.Run("another issuer", func(t *testing.T) {
		s := newOAuthServer()
		o := newOAuth(t, s)
		o.Client = OAuthClient{Issuer: "https://old.test", ID: "mine", Secret: "its secret"}
		failOAuth(t, s, o, `"mine" is registered with "https://old.test", but the server names "https://as.test" now`)
		assert.Check(t, is.Equal(s.count("POST /")-s.count("POST /mcp"), 0))
	})
	t.Run("moved", func(t *testing.T) { // the client did not say where it is registered
		s := newOAuthServer()
		o := newOAuth(t, s)
		o.Client = OAuthClient{ID: "mine", RedirectURI: "http://127.0.0.1:1/"}
		s.register("mine", "", "none", o.Client.RedirectURI)
		goodOAuth(t, o)
		s.expire()
		s.set(func() { s.Issuer = "https://as2.test" })
		failOAuth(t, s, o, `"mine" is registered with "https://as.test", but the server names "https://as2.test" now`)
		assert.Check(t, is.Equal(s.count("POST /token"), 1))
	})
	t.Run("nobody to ask", func(t *testing.T) {
		s := newOAuthServer()
		o := newOAuth(t, s)
		o.Listen = nil
		err := failOAuth(t, s, o, "https://mcp.test/mcp needs a login")
		assert.Check(t, errors.As(err, new(*LoginError)))
		assert.Check(t, is.Equal(len(s.requests), 1))
	})
}

// TestOAuthForgotten: a server that does not know its dynamically registered client any more gets another one, when a
// token is to be refreshed, and when a code is to be exchanged.
func TestOAuthForgotten(t *testing.T) {
	for _, code := range []string{"invalid_client", "unauthorized_client"} {
		testOAuthForgotten(t, code)
	}
}

func testOAuthForgotten(t *testing.T, code string) {
	s, store := newOAuthServer(), newOAuthTestStore()
	s.Needs, s.NoScopes = "read", true // each registration takes two attempts
	o := newOAuth(t, s)
	o.Store = store
	goodOAuth(t, o)
	s.expire()
	s.set(func() { clear(s.clients) })
	goodOAuth(t, o)
	assert.Check(t, is.Equal(s.count("POST /register"), 4))

	s.set(func() { // a resource that takes the token shows that the client is known; then it is forgotten
		s.NeedsMore = func(*http.Request) string { return "write" }
		s.Answer = func(w http.ResponseWriter, r *http.Request, n int) bool {
			if r.URL.Path == "/token" && n == 4 { // after two logins and a refresh
				writeTestJSON(w, http.StatusUnauthorized, map[string]any{"error": code})
				return true
			}
			return false
		}
	})
	goodOAuth(t, o)
	assert.Check(t, is.Equal(s.count("POST /register"), 6))
	assert.Check(t, is.Equal(s.count("GET /authorize"), 4))

	state, err := store.Load()
	assert.NilError(t, err)
	for id := range s.clients {
		if id == state.Clients[s.Issuer].ID {
			return
		}
	}
	t.Error("the new client is not stored")
}

// TestOAuthLogin: a login by command asks the server for its challenge first, and always asks the person.
func TestOAuthLogin(t *testing.T) {
	s := newOAuthServer()
	s.Needs = "read"
	s.Answer = func(w http.ResponseWriter, r *http.Request, _ int) bool { // metadata at a place of its own
		switch r.URL.Path {
		case "/.well-known/oauth-protected-resource/mcp", "/.well-known/oauth-protected-resource":
			http.NotFound(w, r)
			return true
		case "/elsewhere":
			writeTestJSON(w, http.StatusOK, map[string]any{"resource": s.Resource, "authorization_servers": []string{s.Issuer}})
			return true
		case "/mcp":
			w.Header().Set("WWW-Authenticate", `Bearer scope="read", resource_metadata="https://mcp.test/elsewhere"`)
			w.WriteHeader(http.StatusUnauthorized)
			return true
		}
		return false
	}
	o := newOAuth(t, s)
	for range 2 {
		token, err := o.Login(t.Context(), nil)
		assert.NilError(t, err)
		assert.Check(t, is.DeepEqual(token.GrantedScopes, []string{"read"}))
	}
	assert.Check(t, is.Equal(s.count("GET /authorize"), 2))
}

// TestOAuthAuthorizationQuery: the parameters of a request replace those of the same name that the metadata has put
// into the URL of the endpoint, and those of other names stay (RFC 6749, 3.1).
func TestOAuthAuthorizationQuery(t *testing.T) {
	s := newOAuthServer()
	s.Metadata = func(document map[string]any) {
		document["authorization_endpoint"] = s.Issuer + "/authorize?tenant=a&state=planted&redirect_uri=https://evil.test/"
	}
	asked := make(chan string, 1)
	o := newOAuth(t, s)
	o.Listen = listenPerson(oauthPerson{browser: s, asked: asked})
	goodOAuth(t, o)
	u, err := url.Parse(<-asked)
	assert.NilError(t, err)
	assert.Check(t, is.Equal(u.Query().Get("tenant"), "a"))
	assert.Check(t, is.Len(u.Query()["state"], 1))
}

// TestOAuthShown: however many secrets are in a text, and in the mark for them, the text does not grow with each.
func TestOAuthShown(t *testing.T) {
	f := &oauthFlow{OAuth: new(OAuth)}
	f.tellSecrets("e", "e", "s", "e")
	assert.Check(t, is.Equal(f.shown("he says"), "h[secret] [secret]ay[secret]"))
}

// TestOAuthEchoes: what a hostile server puts into its metadata, or into a redirect, brings no secrets into errors.
func TestOAuthEchoes(t *testing.T) {
	s := newOAuthServer()
	answerOAuth("/token", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", "https://%zz/?"+r.PostFormValue("code"))
		w.WriteHeader(http.StatusFound)
	})(s)
	failOAuth(t, s, newOAuth(t, s), "[secret]")

	s = newOAuthServer()
	answerOAuth("/token", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/other", http.StatusTemporaryRedirect)
	})(s)
	failOAuth(t, s, newOAuth(t, s), "https://as.test/token answers 307")
	assert.Check(t, is.Equal(s.count("POST /other"), 0), "a code was sent elsewhere")

	s = newOAuthServer()
	o := newOAuth(t, s)
	goodOAuth(t, o)
	s.expire()
	s.set(func() {
		s.Protected = func(document map[string]any) { document["resource"] = "https://evil.example/" + o.token.Access }
	})
	failOAuth(t, s, o, `is for "https://evil.example/[secret]"`)
	s.set(func() {
		s.Protected = nil
		s.Answer = func(w http.ResponseWriter, r *http.Request, _ int) bool {
			if r.URL.Path == "/token" {
				writeTestJSON(w, http.StatusBadRequest, map[string]any{"error": r.PostFormValue("refresh_token")})
			}
			return r.URL.Path == "/token"
		}
	})
	o.Listen = nil
	failOAuth(t, s, o, "needs a new login: https://as.test/token answers [secret]")
}

// TestOAuthStore: what cannot be loaded or stored is an error, and no login is asked for because of it.
func TestOAuthStore(t *testing.T) {
	s, store := newOAuthServer(), newOAuthTestStore()
	o := newOAuth(t, s)
	o.Store = store
	store.text = []byte("{")
	failOAuth(t, s, o, "the stored tokens: unexpected end of JSON input")
	assert.Check(t, is.Equal(len(s.requests), 0))
	store.text, store.fail = nil, errors.New("no space left")
	failOAuth(t, s, o, "no space left")
	assert.Check(t, is.Equal(s.count("GET /authorize"), 0), "a person logs in for nothing")
	store.fail = nil
	var ended error
	asked := make(chan string, 1)
	o.Listen = listenPerson(oauthPerson{browser: s, asked: asked, ended: func(err error) { ended = err }})
	s.set(func() {
		s.Answer = func(_ http.ResponseWriter, r *http.Request, _ int) bool {
			if r.URL.Path == "/token" {
				store.fail = errors.New("no space left")
			}
			return false
		}
	})
	failOAuth(t, s, o, "no space left")
	assert.Check(t, is.ErrorContains(ended, "no space left"), "the page must not say that all is well")
}

// TestOAuthTokenResponse: which answers of a token endpoint are tokens.
func TestOAuthTokenResponse(t *testing.T) {
	for _, row := range []struct{ answer, want string }{
		{`{"access_token":"planted","token_type":"BEARER"}`, ""},
		{`{"access_token":"planted"}`, ""},
		{`{"access_token":"planted","expires_in":"3600","scope":""}`, ""},
		{`{"access_token":"planted","expires_in":1e99,"refresh_token":null}`, ""},
		{`{"access_token":"planted","expires_in":-1}`, ""},
		{`{"access_token":"planted","token_type":"mac"}`, "answers without a token of a known type"},
		{`{"access_token":"","token_type":"bearer"}`, "answers without a token"},
		{`{}`, "answers without a token"},
		{`planted`, "answers 200: the answer is not JSON"},
		{`["planted"]`, "a JSON array where an object should be"},
		{`{"access_token":["planted"]}`, "a JSON array where access_token should be"},
		{`{"access_token":1234567890}`, "a JSON number where access_token should be"},
	} {
		s := newOAuthServer()
		answerOAuth("/token", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, row.answer) })(s)
		s.access["planted"] = &oauthTestGrant{expiry: time.Now().Add(time.Hour)}
		o := newOAuth(t, s)
		if row.want == "" {
			goodOAuth(t, o)
			continue
		}
		err := failOAuth(t, s, o, row.want)
		assert.Check(t, !strings.Contains(err.Error(), "planted") && !strings.Contains(err.Error(), "1234567890"), err)
	}
}

// TestChallenges: every form that RFC 9110, 11.6.1 allows, and what is made of others.
func TestChallenges(t *testing.T) {
	for _, row := range []struct{ lines, want string }{
		{`Bearer`, `bearer{}`},
		{`Bearer realm=x`, `bearer{realm:x}`},
		{`bearer REALM="x"`, `bearer{realm:x}`},
		{"Bearer   realm\t=\t \"x\" ,\terror = y", `bearer{error:y realm:x}`},
		{`Bearer realm="a, b=c, Basic d=\"e"`, `bearer{realm:a, b=c, Basic d="e}`},
		{`Bearer realm="\\\"\a",error=""`, `bearer{error: realm:\"a}`},
		{`Bearer realm=""`, `bearer{realm:}`},
		{`Basic realm="x", Bearer scope="a b", error=c`, `basic{realm:x} bearer{error:c scope:a b}`},
		{`Basic, Bearer`, `basic{} bearer{}`},
		{`Basic,Bearer a=b,DPoP,Digest c=d`, `basic{} bearer{a:b} dpop{} digest{c:d}`},
		{`, ,Basic ,, realm=x ,,,Bearer a=b,, c=d ,`, `basic{realm:x} bearer{a:b c:d}`},
		{`Negotiate YWJj==, Bearer a=b`, `negotiate{} bearer{a:b}`},
		{`Negotiate a-b._~+/c=`, `negotiate{}`},
		{`Negotiate YWJj , Bearer a=b`, `negotiate{} bearer{a:b}`},
		{"Basic realm=x\nBearer a=b", `basic{realm:x} bearer{a:b}`},
		{"Negotiate\nBearer a=b\n", `negotiate{} bearer{a:b}`},
		{`DPoP algs="ES256 PS256", error="use_dpop_nonce"`, `dpop{algs:ES256 PS256 error:use_dpop_nonce}`},
		{`Bearer x="https://h/.well-known/x?a=b&c=d"`, `bearer{x:https://h/.well-known/x?a=b&c=d}`},
		{`!#$%&'*+-.^_|~ a=b`, `!#$%&'*+-.^_|~{a:b}`},
		{``, ``},
		{`"`, ``},
		{`=`, ``},
		{`a=b`, ``},
		{"Bearer a=b\nc=d", `bearer{a:b}`},
		{`Bearer a=b c=d`, `bearer{a:b c:d}`},
		{`Bearer a="b`, `bearer{} a{}`},
		{`Bearer a=b, c=@, d=e`, `bearer{a:b} c{}`},
		{`Bearer é=x`, `bearer{}`},
	} {
		assert.Check(t, is.Equal(showChallenges(parseChallenges(strings.Split(row.lines, "\n"))), row.want), "%q", row.lines)
	}
}

// TestManyScopes: thousands of scopes are neither asked for nor compared with themselves.
func TestManyScopes(t *testing.T) {
	var scopes []string
	for i := range maxChallengeLine / 6 {
		scopes = append(scopes, strconv.Itoa(i))
	}
	s := newOAuthServer()
	s.Needs = strings.Join(scopes, " ")
	o := newOAuth(t, s)
	goodOAuth(t, o)
	assert.Check(t, is.DeepEqual(o.token.GrantedScopes, scopes[:maxScopes]))
}

func showChallenges(all []challenge) string {
	var texts []string
	for _, c := range all {
		params := strings.NewReplacer("map[", "{", "]", "}").Replace(fmt.Sprint(c.params))
		texts = append(texts, c.scheme+params)
	}
	return strings.Join(texts, " ")
}

// TestChallengesBounded: of a header of megabytes the beginning is read.
func TestChallengesBounded(t *testing.T) {
	long := strings.Repeat("a,", maxChallengeLine)
	all := parseChallenges(slices.Repeat([]string{`Bearer error="x", ` + long}, 2*maxChallengeLines))
	assert.Check(t, is.Equal(all[0].params["error"], "x"))
	assert.Check(t, len(all) < maxChallengeLines*maxChallengeLine/2, len(all))
}

// FuzzChallenge: any header is read in a time that grows with its length, and what is made of what was read is read as
// the same again.
func FuzzChallenge(f *testing.F) {
	f.Add("Basic realm=\"x\", Bearer scope=\"a b\", error=c\nNegotiate YWJj==")
	f.Add(`Bearer realm="\\\"", a = b,,`)
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > maxChallengeLine/4 {
			t.Skip("it may be longer than a line when it is written again")
		}
		all := parseChallenges(strings.Split(text, "\n"))
		var lines []string
		for _, c := range all {
			line := c.scheme
			separator := " "
			for name, value := range c.params {
				assert.Assert(t, name != "" && name == strings.ToLower(name))
				line += separator + name + ` = "` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(value) + `"`
				separator = ", "
			}
			lines = append(lines, line)
		}
		again := parseChallenges([]string{strings.Join(lines, " , ")})
		assert.DeepEqual(t, showChallenges(again), showChallenges(all))
	})
}

// guardConn is a connection to an address that is not really there.
type guardConn struct {
	net.Conn
	address net.Addr
}

func (c guardConn) RemoteAddr() net.Addr { return c.address }

// TestOAuthGuard: from a public server nothing leads to a private address, by whatever name; from a private one
// anything does. Proxies may be where they are.
func TestOAuthGuard(t *testing.T) {
	const public = "93.184.215.14"
	for _, row := range []struct {
		name     string
		resource string // address of mcp.test
		host     string // to go to
		address  string // of it
		refused  bool
	}{
		{"public", public, "as.test", "93.184.215.15", false},
		{"public", public, "as.test", "2606:4700::1111", false},
		{"public behind NAT64", public, "as.test", "64:ff9b::5db8:d70e", false},
		{"loopback", public, "as.test", "127.0.0.1", true},
		{"loopback", public, "as.test", "127.1.2.3", true},
		{"loopback", public, "as.test", "::1", true},
		{"private", public, "as.test", "10.0.0.1", true},
		{"private", public, "as.test", "172.31.0.1", true},
		{"private", public, "as.test", "192.168.1.1", true},
		{"private", public, "as.test", "fd00::1", true},
		{"mapped", public, "as.test", "::ffff:10.0.0.1", true},
		{"private behind NAT64", public, "as.test", "64:ff9b::a00:1", true},
		{"link-local", public, "as.test", "169.254.169.254", true},
		{"link-local", public, "as.test", "fe80::1", true},
		{"shared", public, "as.test", "100.64.0.1", true},
		{"unspecified", public, "as.test", "0.0.0.0", true},
		{"this network", public, "as.test", "0.1.2.3", true},
		{"protocol assignments", public, "as.test", "192.0.0.170", true},
		{"protocol assignments, neighbour", public, "as.test", "192.0.1.1", false},
		{"benchmarks", public, "as.test", "198.18.0.1", true},
		{"benchmarks", public, "as.test", "198.19.255.254", true},
		{"benchmarks, neighbour", public, "as.test", "198.20.0.1", false},
		{"reserved", public, "as.test", "240.0.0.1", true},
		{"reserved", public, "as.test", "255.255.255.254", true},
		{"mapped reserved", public, "as.test", "::ffff:240.0.0.1", true},
		{"reserved behind NAT64", public, "as.test", "64:ff9b::f000:1", true},
		{"local NAT64", public, "as.test", "64:ff9b:1::a00:1", true},
		{"local NAT64", public, "as.test", "64:ff9b:1:ffff::5db8:d70e", true},
		{"6to4, private", public, "as.test", "2002:a00:1::1", true},
		{"6to4, public", public, "as.test", "2002:5db8:d70e::1", true},
		{"6to4, neighbour", public, "as.test", "2003::1", false},
		{"site-local", public, "as.test", "fec0::1", true},
		{"name", public, "localhost", "127.0.0.1", true},
		{"name", public, "api.localhost", "127.0.0.1", true},
		{"literal", public, "127.0.0.1", "127.0.0.1", true},
		{"literal", public, "[::1]", "::1", true},
		{"literal", public, "[::ffff:7f00:1]", "127.0.0.1", true},
		{"literal", public, "0x7f.1", "127.0.0.1", true},
		{"the same host", public, "mcp.test", public, false},
		{"private from private", "10.0.0.1", "as.test", "10.0.0.2", false},
		{"literal from private", "10.0.0.1", "10.0.0.2", "10.0.0.2", false},
		{"rebound", public + " 10.0.0.1", "as.test", "10.0.0.2", true},
		{"rebound", "10.0.0.1 " + public, "as.test", "10.0.0.2", true},
	} {
		t.Run(fmt.Sprint(row.name, " ", row.host, " ", row.address), func(t *testing.T) {
			resources, sent := strings.Fields(row.resource), 0
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { sent++ }))
			defer server.Close()
			dial := func(ctx context.Context, network, address string) (net.Conn, error) {
				conn, err := new(net.Dialer).DialContext(ctx, network, server.Listener.Addr().String())
				at := row.address
				if strings.HasPrefix(address, "mcp.test:") {
					at, resources = resources[0], append(resources[1:], resources[0])
				}
				return guardConn{conn, &net.TCPAddr{IP: net.ParseIP(at), Port: 80}}, err
			}
			g := &OAuthGuard{Resource: "http://mcp.test/mcp", Base: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
			client := &http.Client{Transport: g}
			for range len(resources) {
				response, err := client.Get("http://mcp.test/mcp")
				assert.NilError(t, err)
				response.Body.Close()
			}
			before := sent
			response, err := client.Get("http://" + row.host + "/")
			if err == nil {
				response.Body.Close()
			}
			if row.refused {
				assert.Check(t, is.ErrorContains(err, "is at a private address, to which the public server http://mcp.test/mcp"))
				assert.Check(t, is.Equal(sent, before), "a request was sent")
			} else {
				assert.Check(t, err)
			}
		})
	}
}

// TestOAuthGuardCase: the name of the resource's host may be written in capital letters.
func TestOAuthGuardCase(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	u, err := url.Parse(server.URL)
	assert.NilError(t, err)
	g := &OAuthGuard{Resource: "http://LocalHost:" + u.Port() + "/mcp"}
	defer g.CloseIdleConnections()
	for _, at := range []string{g.Resource, server.URL} { // the second one: from a private resource
		response, err := g.RoundTrip(getRequest(at))
		assert.NilError(t, err)
		response.Body.Close()
	}
}

// TestOAuthGuardProxy: the address of a proxy is not looked at, but a private address is not asked of it.
func TestOAuthGuardProxy(t *testing.T) {
	var seen []string
	proxy := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		seen = append(seen, r.URL.String())
	}))
	defer proxy.Close()
	at, err := url.Parse(proxy.URL)
	assert.NilError(t, err)
	base := &http.Transport{Proxy: http.ProxyURL(at)}
	g := &OAuthGuard{Resource: "http://mcp.test/mcp", Base: base}
	defer g.CloseIdleConnections()
	client := &http.Client{Transport: g}
	for _, to := range []string{"http://mcp.test/mcp", "http://as.test/"} {
		response, err := client.Get(to)
		assert.NilError(t, err)
		response.Body.Close()
	}
	_, err = client.Get("http://10.0.0.1/")
	assert.Check(t, is.ErrorContains(err, "is at a private address"))
	_, err = client.Get(proxy.URL) // the name of the proxy
	assert.Check(t, is.ErrorContains(err, "is at a private address"))
	assert.Check(t, is.DeepEqual(seen, []string{"http://mcp.test/mcp", "http://as.test/"}))
}

// TestOAuthListenAndStore: with the listener and the file of this family a program has nothing to write but what it
// shows. The second run finds the login of the first one.
func TestOAuthListenAndStore(t *testing.T) {
	s := startOAuthServer(t, nil)
	pages := make(chan string, 1)
	file := &OAuthFile{Path: filepath.Join(t.TempDir(), "login.json"), Resource: s.Resource}
	for range 2 {
		listener := &OAuthListener{Name: "a program", Resource: s.Resource}
		listener.Show = func(_ context.Context, q *OAuthQuestion) {
			go func() {
				page, _, _ := visit(q.Address, true)
				pages <- page
			}()
		}
		base := new(http.Transport)
		o := newOAuth(t, s)
		o.Base, o.Listen, o.Store = base, listener.Listen, file
		goodOAuth(t, o)
		base.CloseIdleConnections()
	}
	assert.Check(t, is.Contains(<-pages, "a program can now use "+s.Resource))
	assert.Check(t, is.Equal(s.count("GET /authorize"), 1))
}

// TestOAuthFileMode: a file that others can read is narrowed when it is read, and another file stays as it is.
func TestOAuthFileMode(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("there are no such modes")
	}
	path := filepath.Join(t.TempDir(), "login.json")
	modeAfter := func(resource string, mode os.FileMode) os.FileMode {
		assert.NilError(t, os.WriteFile(path, []byte(`{"resource":"https://mcp.test/mcp"}`), 0o600))
		assert.NilError(t, os.Chmod(path, mode))
		_, err := (&OAuthFile{Path: path, Resource: resource}).Load()
		assert.Check(t, is.Equal(err == nil, resource != "https://other.test/"))
		info, err := os.Stat(path)
		assert.NilError(t, err)
		return info.Mode().Perm()
	}
	assert.Check(t, is.Equal(modeAfter("https://mcp.test/mcp", 0o644), os.FileMode(0o600)))
	assert.Check(t, is.Equal(modeAfter("", 0o666), os.FileMode(0o600)))
	assert.Check(t, is.Equal(modeAfter("https://mcp.test/mcp", 0o400), os.FileMode(0o400)))
	assert.Check(t, is.Equal(modeAfter("https://other.test/", 0o644), os.FileMode(0o644)))
}

// TestOAuthListenerHost: a page of another site that leads to this machine by a name of its own (DNS rebinding) gets
// nothing, and ends no login.
func TestOAuthListenerHost(t *testing.T) {
	for _, path := range []string{"/callback", ""} {
		free, err := net.Listen("tcp", "127.0.0.1:0")
		assert.NilError(t, err)
		_, port, _ := net.SplitHostPort(free.Addr().String())
		free.Close()
		listener := &OAuthListener{
			Name:        "a program",
			RedirectURI: "http://mine.localhost:" + port + path,
			Show:        func(context.Context, *OAuthQuestion) {},
		}
		r, err := listener.Listen(t.Context(), "")
		assert.NilError(t, err)
		answers := make(chan url.Values, 1)
		go func() {
			values, _ := r.Ask(t.Context(), "https://as.test/authorize?state=right")
			answers <- values
		}()
		for r.(*loopbackRedirect).question.Load() == nil {
			runtime.Gosched()
		}
		get := func(host, query string) (*http.Response, string) {
			request := getRequest("http://127.0.0.1:" + port + path + query)
			request.Host = host
			response, err := new(http.Transport).RoundTrip(request)
			assert.NilError(t, err)
			defer response.Body.Close()
			text, err := io.ReadAll(response.Body)
			assert.NilError(t, err)
			return response, string(text)
		}
		for _, host := range []string{
			"evil.test", "evil.test:" + port, "127.0.0.1", "localhost", "127.0.0.1:1", "127.0.0.1.evil.test:" + port,
			"localhost:" + port + "0", "10.0.0.1:" + port, "mine.localhost", "[::1]:" + port,
		} {
			for _, query := range []string{"?state=wrong", "?state=right&code=c"} {
				response, page := get(host, query)
				assert.Assert(t, is.Equal(response.StatusCode, http.StatusForbidden), host)
				assert.Check(t, !strings.Contains(page, "a program"), page)
			}
		}
		for _, host := range []string{"127.0.0.1", "localhost", "LocalHost", "mine.localhost", "MINE.localhost"} {
			response, page := get(host+":"+port, "?state=wrong")
			assert.Check(t, is.Equal(response.StatusCode, http.StatusBadRequest), host)
			assert.Check(t, is.Contains(page, "That one goes on."), host)
		}
		assert.Equal(t, len(answers), 0)
		var work sync.WaitGroup
		work.Go(func() {
			response, err := new(http.Transport).RoundTrip(getRequest(
				"http://localhost:" + port + path + "?state=right&code=c"))
			if assert.Check(t, err) {
				assert.Check(t, is.Equal(response.StatusCode, http.StatusOK))
				response.Body.Close()
			}
		})
		assert.DeepEqual(t, <-answers, url.Values{"state": {"right"}, "code": {"c"}})
		r.Close(nil)
		work.Wait()
	}
}

// TestIsLoopback: the name of this machine is one in any case.
func TestIsLoopback(t *testing.T) {
	for _, host := range []string{"localhost", "LocalHost", "127.0.0.1", "127.9.9.9", "::1"} {
		assert.Check(t, IsLoopback(host), host)
	}
	for _, host := range []string{"", "localhost.example.com", "10.0.0.1", "example.com", "[::1]"} {
		assert.Check(t, !IsLoopback(host), host)
	}
}
