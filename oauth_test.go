package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
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

	Needs     string                                                       // scopes that the challenges name
	NeedsMore func(r *http.Request) string                                 // scopes that a request needs besides
	Metadata  func(document map[string]any)                                // changes the authorization server's metadata
	Protected func(document map[string]any)                                // changes the protected resource's metadata
	Answer    func(w http.ResponseWriter, r *http.Request, n int) bool     // answers the nth request to a path
	Respond   func(response url.Values)                                    // changes an authorization response
	Grant     func(form url.Values, clientID string) (scope, error string) // other grants

	mu       sync.Mutex // guards the following
	clients  map[string]*oauthTestClient
	codes    map[string]*oauthTestGrant // of codes that have not been used
	access   map[string]*oauthTestGrant
	refresh  map[string]*oauthTestGrant // used ones have the value nil
	requests []string                   // method and path
	bodies   []string                   // of the requests that the resource has accepted
	secrets  []string                   // all that were issued
}

type oauthTestClient struct {
	secret, method string
	redirectURIs   []string
	dynamic        bool
}

type oauthTestGrant struct {
	clientID, redirectURI, challenge, scope string
	expiry                                  time.Time
	revoked                                 *bool
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
	s.set(func() { s.clients[id] = &oauthTestClient{secret, method, redirectURIs, false} })
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
	switch origin := r.URL.Scheme + "://" + r.URL.Host; {
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
	metadata := "/.well-known/oauth-protected-resource" + u.Path
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
	challenge := fmt.Sprintf(`Bearer resource_metadata="%s://%s%s"`, u.Scheme, u.Host, metadata)
	s.mu.Lock()
	needs, more := s.Needs, s.NeedsMore
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	grant := s.access[token]
	valid := grant != nil && !*grant.revoked && time.Now().Before(grant.expiry)
	s.mu.Unlock()
	if needs != "" {
		challenge += fmt.Sprintf(`, scope="%s"`, needs)
	}
	if !valid {
		if token != "" {
			challenge += `, error="invalid_token"`
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
			"token_endpoint":                   s.Issuer + "/token",
			"code_challenge_methods_supported": []string{"S256"},
			"authorization_response_iss_parameter_supported": true,
			"token_endpoint_auth_methods_supported":          s.methods(),
			"client_id_metadata_document_supported":          s.CIMD,
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
	case u.Path + "/authorize":
		s.serveAuthorize(w, r)
	case u.Path + "/token":
		scope, code := s.serveToken(w, r)
		if code != "" {
			status := http.StatusBadRequest
			if code == "invalid_client" {
				status = http.StatusUnauthorized
			}
			writeTestJSON(w, status, map[string]any{"error": code, "error_description": scope})
		}
	default:
		http.NotFound(w, r)
	}
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
		Scope  string   `json:"scope"` // those of a resource are none of the server's
	}
	err := json.NewDecoder(r.Body).Decode(&request)
	if err != nil || len(request.URIs) == 0 || request.Type != "native" || request.Scope != "" ||
		!slices.Contains(s.methods(), request.Method) {
		writeTestJSON(w, http.StatusBadRequest, map[string]any{"error": "invalid_client_metadata"})
		return
	}
	client := &oauthTestClient{method: request.Method, redirectURIs: request.URIs, dynamic: true}
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
	case query.Get("response_type") != "code", len(query.Get("code_challenge")) != 43, query.Get("state") == "",
		query.Get("code_challenge_method") != "S256":
		response.Set("error", "invalid_request")
	case !s.isResource(query.Get("resource")):
		response.Set("error", "invalid_target")
	default:
		code := s.issue("code")
		s.codes[code] = &oauthTestGrant{query.Get("client_id"), redirect, query.Get("code_challenge"), query.Get("scope"),
			time.Now().Add(time.Minute), new(bool)}
		response.Set("code", code)
	}
	if s.Respond != nil {
		s.Respond(response)
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
		r.URL.RawQuery != "" || r.ParseForm() != nil {
		return "not a form", "invalid_request"
	}
	form := r.PostForm
	id, secret, basic := r.BasicAuth()
	method := "client_secret_basic"
	if basic { // RFC 6749, 2.3.1
		id, _ = url.QueryUnescape(id)
		secret, _ = url.QueryUnescape(secret)
	} else {
		id, secret, method = form.Get("client_id"), form.Get("client_secret"), "client_secret_post"
		if secret == "" {
			method = "none"
		}
	}
	client := s.clients[id]
	switch {
	case client == nil && s.CIMD && strings.HasPrefix(id, "https://") && method == "none":
	case client == nil, basic && form.Has("client_secret"), client.method != method, client.secret != secret:
		return "unknown client, or wrong authentication", "invalid_client"
	}
	if !s.isResource(form.Get("resource")) {
		return "wrong resource", "invalid_target"
	}
	var grant *oauthTestGrant
	revoked := new(bool)
	switch form.Get("grant_type") {
	case "authorization_code":
		grant = s.codes[form.Get("code")]
		delete(s.codes, form.Get("code"))
		hash := sha256.Sum256([]byte(form.Get("code_verifier")))
		if grant == nil || grant.clientID != id || grant.redirectURI != form.Get("redirect_uri") ||
			grant.challenge != base64.RawURLEncoding.EncodeToString(hash[:]) || time.Now().After(grant.expiry) {
			return "the code " + form.Get("code") + " is not valid", "invalid_grant" // as careless as servers are
		}
	case "refresh_token":
		var issued bool
		grant, issued = s.refresh[form.Get("refresh_token")]
		if grant == nil || grant.clientID != id || *grant.revoked {
			text := "the refresh token %s is not valid (used: %v)"
			return fmt.Sprintf(text, form.Get("refresh_token"), issued), "invalid_grant"
		}
		s.refresh[form.Get("refresh_token")] = nil
		revoked = grant.revoked
	default:
		if s.Grant == nil {
			return "", "unsupported_grant_type"
		}
		scope, failure := s.Grant(form, id)
		if failure != "" {
			return "", failure
		}
		grant = &oauthTestGrant{clientID: id, scope: scope}
	}
	lifetime := cmp.Or(s.Lifetime, time.Hour)
	next := &oauthTestGrant{grant.clientID, "", "", grant.scope, time.Now().Add(lifetime), revoked}
	access := s.issue("access")
	s.access[access] = next
	answer := map[string]any{"access_token": access, "token_type": "bearer", "expires_in": lifetime.Seconds()}
	if form.Get("grant_type") == "authorization_code" || form.Get("grant_type") == "refresh_token" {
		refresh := s.issue("refresh")
		s.refresh[refresh] = next
		answer["refresh_token"] = refresh
	}
	if grant.scope != "" {
		answer["scope"] = grant.scope
	}
	writeTestJSON(w, http.StatusOK, answer)
	return "", ""
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
}

// listenOAuth is an OAuth.Listen for a person whose browser is base.
func listenOAuth(base http.RoundTripper) func(context.Context, string) (Redirect, error) {
	return func(_ context.Context, redirectURI string) (Redirect, error) {
		return &oauthPerson{uri: cmp.Or(redirectURI, "http://127.0.0.1:7777/callback"), browser: base}, nil
	}
}

func (p *oauthPerson) URI() string { return p.uri }
func (p *oauthPerson) Close(error) {}

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

// newOAuth returns an OAuth for a server in memory, with a person.
func newOAuth(t testing.TB, s *oauthServer) *OAuth {
	o := &OAuth{Resource: s.Resource, Base: s, Listen: listenOAuth(s)}
	t.Cleanup(func() { o.Close() })
	return o
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
