// oauth.go - OAuth 2.1 for HTTP requests to a protected server.
// Needs: Go 1.25.
// SPDX-License-Identifier: 0BSD

package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
)

// OAuth is an http.RoundTripper that authorises the requests to one protected server, the resource (MCP 2026-07-28,
// authorization). It sends each with an access token. Where the server refuses that (401, or 403 insufficient_scope),
// it gets another one and sends the request again, which needs the request's GetBody. One flow runs at a time, however
// many requests wait for it; it goes on when they have given up, until Close.
//
// Set the exported fields before the first request.
type OAuth struct {
	Resource string // URL of the protected server; requests to other origins are refused
	// Base makes all requests; nil: http.DefaultTransport. A flow goes where servers send it, as to private addresses:
	// an OAuthGuard refuses those.
	Base http.RoundTripper

	Client      OAuthClient // registered beforehand; its Issuer says where. No ID: see MetadataURL
	MetadataURL string      // of its Client ID Metadata Document; empty: it has none, and is registered
	ClientName  string      // for a registration
	Scopes      []string    // asked for besides those that the server names

	// Grant returns the parameters of a token request that needs no person. Nil: the authorization code flow.
	Grant func(ctx context.Context, as *AuthorizationServer, resource string) (url.Values, error)
	// Assert returns a client assertion for an audience, for clients whose AuthMethod is private_key_jwt.
	Assert func(audience string) (string, error)
	// Listen prepares to ask the person. redirectURI is the one that the client was registered with, or empty: then
	// any. Nil: nobody can be asked, and a flow that needs a person ends with a *LoginError.
	Listen func(ctx context.Context, redirectURI string) (Redirect, error)
	Store  OAuthStore        // nil: in memory
	Secret func(text string) // told of each secret when it comes into being: tokens, codes, verifiers, client secrets

	once   sync.Once     // sets the following three
	turn   chan struct{} // full while a flow runs
	life   context.Context
	end    context.CancelFunc
	memory OAuthState // the store if there is no other; used by flows alone

	mu       sync.Mutex  // guards the following; never held across I/O or a callback
	loaded   bool        // the token is from the store, or newer
	token    *OAuthToken // nil if there is none; never changed
	failures int         // flows that have failed
	failure  error       // of the last one
}

// Redirect is where the authorization server sends the person's browser back to.
type Redirect interface {
	URI() string // the redirect_uri
	// Ask has the person open the URL, and returns the parameters of the authorization response, or the cause of ctx.
	Ask(ctx context.Context, authorizationURL string) (url.Values, error)
	Close() error
}

// OAuthClient is a client as an authorization server knows it (RFC 7591, 3.2.1).
type OAuthClient struct {
	Issuer      string `json:"issuer"`
	ID          string `json:"client_id"`
	Secret      string `json:"client_secret,omitempty"`
	AuthMethod  string `json:"token_endpoint_auth_method,omitempty"` // empty: basic, post or none, as supported
	RedirectURI string `json:"redirect_uri,omitempty"`               // that it was registered with; empty: any
}

// OAuthToken is an access token, and what refreshes it.
type OAuthToken struct {
	Issuer  string    `json:"issuer"` // of the authorization server
	Type    string    `json:"token_type"`
	Access  string    `json:"access_token"`
	Refresh string    `json:"refresh_token,omitempty"`
	Scopes  []string  `json:"scopes,omitempty"` // granted
	Asked   []string  `json:"asked,omitempty"`  // scopes that were asked for
	Expiry  time.Time `json:"expiry,omitzero"`  // zero: not known
}

// OAuthState is what is kept for a resource from one run to the next.
type OAuthState struct {
	Resource string                 `json:"resource"`
	Clients  map[string]OAuthClient `json:"clients,omitempty"` // dynamically registered ones, by issuer
	Token    *OAuthToken            `json:"token,omitempty"`
}

// OAuthStore keeps the state of one resource. Its methods are called by one goroutine at a time.
type OAuthStore interface {
	// Lock keeps other processes from Load and Save until unlock. It waits for one that has the lock, until ctx ends.
	Lock(ctx context.Context) (unlock func(), err error)
	Load() (*OAuthState, error) // an empty state if there is none
	Save(*OAuthState) error
}

// AuthorizationServer is the metadata of an authorization server (RFC 8414, 2).
type AuthorizationServer struct {
	Issuer                  string   `json:"issuer"`
	AuthorizationEndpoint   string   `json:"authorization_endpoint"`
	TokenEndpoint           string   `json:"token_endpoint"`
	RegistrationEndpoint    string   `json:"registration_endpoint"`
	ScopesSupported         []string `json:"scopes_supported"`
	TokenAuthMethods        []string `json:"token_endpoint_auth_methods_supported"`
	ChallengeMethods        []string `json:"code_challenge_methods_supported"`
	ResponseIssSupported    bool     `json:"authorization_response_iss_parameter_supported"`
	ClientMetadataSupported bool     `json:"client_id_metadata_document_supported"`
}

// AuthorizationError is the error of a request that could not be authorised. The server has not acted on it.
type AuthorizationError struct{ Err error }

func (e *AuthorizationError) Error() string { return "authorization: " + e.Err.Error() }
func (e *AuthorizationError) Unwrap() error { return e.Err }

// Status is the HTTP status that the server refused the request with.
func (e *AuthorizationError) Status() int { return http.StatusUnauthorized }

// LoginError reports that a person has to log in, and nobody could be asked.
type LoginError struct {
	Resource string
	Reason   error // why what was kept does not do; nil if nothing was
}

func (e *LoginError) Error() string {
	return fmt.Sprintf("%s needs a login: %v", e.Resource, cmp.Or(e.Reason, errors.New("there is no token yet")))
}

func (e *LoginError) Unwrap() error { return e.Reason }

// OAuthError is a refusal by an authorization server (RFC 6749, 4.1.2.1 and 5.2), or by the server of metadata.
type OAuthError struct {
	Endpoint    string // without its query
	Status      int    // of HTTP; 0: it came with the redirect
	Code        string // error; empty if the answer is not one of OAuth
	Description string // error_description, on one line
}

func (e *OAuthError) Error() string {
	text := e.Endpoint + " answers " + cmp.Or(e.Code, fmt.Sprint(e.Status))
	if e.Description != "" {
		text += ": " + e.Description
	}
	return text
}

const (
	oauthRepeats   = 2                // of one request
	oauthEarly     = 30 * time.Second // that a token is refreshed before it expires
	oauthTime      = 30 * time.Second // for an answer, and for all of discovery
	oauthRedirects = 3
	maxOAuthBody   = 1 << 20
	maxScopes      = 200
)

// 1. The server refuses a request, with a challenge.

// RoundTrip sends a request with an access token. An error that comes from the flow is an *AuthorizationError.
func (o *OAuth) RoundTrip(r *http.Request) (*http.Response, error) {
	base := cmp.Or(o.Base, http.DefaultTransport)
	if originOf(r.URL.String()) != originOf(o.Resource) {
		closeBody(r)
		return nil, &AuthorizationError{fmt.Errorf("%s has another origin than %s", shownURL(r.URL.String()), o.Resource)}
	}
	if r.Header.Get("Authorization") != "" {
		return base.RoundTrip(r)
	}
	f := o.newFlow(toRefresh)
	for repeats := 0; ; repeats++ {
		token, err := f.await(r.Context())
		if err != nil {
			closeBody(r)
			return nil, err
		}
		sent := r.Clone(r.Context())
		if repeats > 0 && r.GetBody != nil {
			if sent.Body, err = r.GetBody(); err != nil {
				return nil, err
			}
		}
		if token != nil {
			sent.Header.Set("Authorization", token.Type+" "+token.Access)
		}
		response, err := base.RoundTrip(sent)
		if err != nil {
			return nil, err
		}
		canRepeat := repeats < oauthRepeats && (r.GetBody != nil || r.Body == nil || r.Body == http.NoBody)
		if !canRepeat || !f.readChallenge(response, token) {
			return response, nil
		}
		_, _ = io.CopyN(io.Discard, response.Body, 4<<10) // so that the connection can be used again
		response.Body.Close()
	}
}

// readChallenge reads what the server asks for that has refused a token (RFC 9728, 5.1; RFC 6750, 3), and reports
// whether a flow can give it. It is no use to ask for the same scopes again.
func (f *oauthFlow) readChallenge(response *http.Response, token *OAuthToken) bool {
	all := parseChallenges(response.Header.Values("WWW-Authenticate"))
	isOurs, code := len(all) == 0, ""
	f.depth, f.used, f.metadata, f.scopes = toReplace, token, "", nil
	for _, c := range all {
		if c.scheme == "bearer" || c.scheme == "dpop" {
			isOurs = true
			code = cmp.Or(code, c.params["error"])
			f.metadata = cmp.Or(f.metadata, c.params["resource_metadata"])
			f.scopes = union(f.scopes, strings.Fields(c.params["scope"]))
		}
	}
	f.stepUp = token != nil && code == "insufficient_scope"
	switch response.StatusCode {
	case http.StatusUnauthorized:
		return isOurs
	case http.StatusForbidden:
		return f.stepUp && len(union(token.Asked, f.scopes)) > len(token.Asked)
	}
	return false
}

// challenge is one challenge of a WWW-Authenticate header (RFC 9110, 11.6.1), with its names in lower case.
type challenge struct {
	scheme string
	params map[string]string // the last of each name
}

var (
	// challengePart is a scheme, or a parameter: then it has its second group, and its value is in the third or fourth.
	challengePart = regexp.MustCompile("^[ \t,]*([!#$%&'*+.^_`|~0-9A-Za-z-]+)" +
		"([ \t]*=[ \t]*(?:\"((?:[^\"\\\\]|\\\\.)*)\"|([!#$%&'*+.^_`|~0-9A-Za-z-]+)))?")
	token68    = regexp.MustCompile("^[ \t]+[0-9A-Za-z._~+/-]+=*[ \t]*(,|$)")
	quotedPair = regexp.MustCompile(`\\(.)`)
)

// parseChallenges reads the challenges of all lines of the header. What comes after a fault in a line is left out.
func parseChallenges(lines []string) (all []challenge) {
	for _, rest := range lines {
		first := len(all)
		for {
			part := challengePart.FindStringSubmatch(rest)
			if part == nil {
				break
			}
			rest = rest[len(part[0]):]
			if name := strings.ToLower(part[1]); part[2] == "" {
				all = append(all, challenge{name, make(map[string]string)})
				rest = rest[len(token68.FindString(rest)):]
			} else if len(all) > first {
				all[len(all)-1].params[name] = quotedPair.ReplaceAllString(part[3], "$1") + part[4]
			}
		}
	}
	return all
}

// 2. A flow gets another token. One runs at a time.

// How far a flow may go if what comes before does not give a token.
const (
	toRefresh = iota // refresh the token that is about to expire
	toReplace        // refresh the one that the resource has refused, or get another one
	toLogin          // get another one in any case
)

// oauthFlow is what a request needs for a token.
type oauthFlow struct {
	*OAuth
	depth    int
	failures int         // of flows, when the request was made
	used     *OAuthToken // that was refused; nil if there was none
	metadata string      // of the challenge: the URL of the protected resource metadata
	scopes   []string    // of the challenge
	stepUp   bool        // the token does not have them

	state   *OAuthState // of the store
	site    *oauthSite  // nil before discovery
	again   bool        // the token has been refreshed already, or its client is forgotten
	reason  error       // why the token of the store does not do
	secrets []string    // that must not be shown
}

func (o *OAuth) newFlow(depth int) *oauthFlow {
	o.once.Do(func() {
		o.turn = make(chan struct{}, 1)
		o.life, o.end = context.WithCancel(context.Background())
	})
	o.mu.Lock()
	defer o.mu.Unlock()
	return &oauthFlow{OAuth: o, depth: depth, failures: o.failures}
}

// await returns a token that is not the used one, or nil where the resource has not been asked without one. If that
// needs a flow, and ctx ends, the flow goes on.
func (f *oauthFlow) await(ctx context.Context) (*OAuthToken, error) {
	if token, settled := f.settled(); settled {
		return token, nil
	}
	select {
	case f.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	done := make(chan error, 1)
	go func() {
		done <- f.run()
		<-f.turn
	}()
	select {
	case err := <-done:
		token, _ := f.settled()
		return token, err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// settled returns the token, and reports whether there is no need for a flow.
func (f *oauthFlow) settled() (*OAuthToken, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	token := f.token
	return token, f.loaded && !token.isExpiring() && (f.depth == toRefresh || f.depth == toReplace && token != f.used)
}

func (t *OAuthToken) isExpiring() bool {
	return t != nil && t.Refresh != "" && !t.Expiry.IsZero() && time.Until(t.Expiry) < oauthEarly
}

// run is the goroutine of a flow. A token that cannot be refreshed in time is sent all the same: the clock may be
// wrong, and the server decides.
func (f *oauthFlow) run() error {
	if _, settled := f.settled(); settled {
		return nil
	}
	f.mu.Lock()
	failed := f.failures != f.OAuth.failures // while this one was waiting for its turn
	err := f.failure
	f.mu.Unlock()
	var token *OAuthToken
	if !failed {
		token, err = f.obtain(f.life)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if token != nil || err == nil {
		f.loaded, f.token = true, token
	}
	if err != nil && !failed {
		err = &AuthorizationError{err}
		f.OAuth.failures, f.failure = f.failures+1, err
	}
	if f.depth == toRefresh && f.loaded {
		return nil
	}
	return err
}

// obtain goes through all that can give a token, until it has one.
func (f *oauthFlow) obtain(ctx context.Context) (token *OAuthToken, err error) {
	changed, failed := false, error(nil)
	err = f.update(ctx, func() bool {
		token, changed, failed = f.keep(ctx)
		return changed
	})
	if err = cmp.Or(failed, err); token != nil || err != nil || f.depth == toRefresh {
		return token, err
	}
	if f.Grant == nil && f.Listen == nil {
		return nil, &LoginError{f.Resource, f.reason}
	}
	if f.site == nil {
		if err := f.discover(ctx); err != nil {
			return nil, err
		}
	}
	client, err := f.client()
	if err != nil {
		return nil, err
	}
	if token, err = f.authorise(ctx, &client); err != nil {
		return nil, err
	}
	return token, f.update(ctx, func() bool {
		f.state.Token = token
		if f.isDynamic(client) {
			f.state.Clients[client.Issuer] = client
		}
		return true
	})
}

// update locks the store, has its state changed, and keeps what has changed.
func (f *oauthFlow) update(ctx context.Context, change func() (changed bool)) error {
	f.state = &f.memory
	if f.Store != nil {
		unlock, err := f.Store.Lock(ctx)
		if err != nil {
			return err
		}
		defer unlock()
		if f.state, err = f.Store.Load(); err != nil {
			return err
		}
	}
	if f.state.Resource != f.Resource { // what is kept of another one is not for this one
		*f.state = OAuthState{Resource: f.Resource}
	}
	if f.state.Clients == nil {
		f.state.Clients = make(map[string]OAuthClient)
	}
	if t := f.state.Token; t != nil {
		f.tell(t.Access, t.Refresh)
	}
	if !change() || f.Store == nil {
		return nil
	}
	return f.Store.Save(f.state)
}

// tell tells of secrets before they are used.
func (f *oauthFlow) tell(secrets ...string) {
	for _, secret := range secrets {
		if secret != "" {
			f.secrets = append(f.secrets, secret)
			if f.Secret != nil {
				f.Secret(secret)
			}
		}
	}
}

// 3. The metadata of the resource names its authorization servers (RFC 9728).

// oauthSite is what discovery finds.
type oauthSite struct {
	AuthorizationServer
	resource string   // its identifier, as its metadata has it
	scopes   []string // that it supports
}

func (f *oauthFlow) discover(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, oauthTime, fmt.Errorf("no metadata within %v", oauthTime))
	defer cancel()
	root := originOf(f.Resource) + "/.well-known/oauth-protected-resource"
	at := []string{root + pathOf(f.Resource), root}
	if f.metadata != "" {
		at = []string{f.metadata}
	}
	var protected struct {
		Resource string   `json:"resource"`
		Issuers  []string `json:"authorization_servers"`
		Scopes   []string `json:"scopes_supported"`
	}
	if err := cmp.Or(checkOAuthURL(f.Resource), f.getMetadata(ctx, at, &protected)); err != nil {
		return err
	}
	isOurs := originOf(protected.Resource) == originOf(f.Resource) &&
		strings.HasPrefix(pathOf(f.Resource)+"/", pathOf(protected.Resource)+"/")
	if !isOurs || len(protected.Issuers) == 0 {
		return fmt.Errorf("the protected resource metadata of %s is of %.200q, with %d authorization servers",
			f.Resource, protected.Resource, len(protected.Issuers))
	}
	issuer := protected.Issuers[0]
	if slices.Contains(protected.Issuers, f.Client.Issuer) {
		issuer = f.Client.Issuer
	}
	f.site = &oauthSite{resource: protected.Resource, scopes: protected.Scopes}
	return f.readServer(ctx, issuer)
}

// getMetadata reads a JSON object from the first URL that has one.
func (f *oauthFlow) getMetadata(ctx context.Context, urls []string, value any) (err error) {
	for _, at := range urls {
		missing := new(OAuthError)
		if err = f.call(ctx, at, make(http.Header), nil, value); !errors.As(err, &missing) || missing.Status >= 500 {
			return err
		}
	}
	return err
}

// 4. The metadata of the authorization server (RFC 8414, OpenID Connect Discovery 1.0).

func (f *oauthFlow) readServer(ctx context.Context, issuer string) error {
	root, path := originOf(issuer)+"/.well-known/", pathOf(issuer)
	at := []string{root + "oauth-authorization-server" + path, root + "openid-configuration" + path}
	if path != "" {
		at = append(at, originOf(issuer)+path+"/.well-known/openid-configuration")
	}
	as := &f.site.AuthorizationServer
	if err := f.getMetadata(ctx, at, as); err != nil {
		return err
	}
	switch {
	case as.Issuer != issuer:
		return fmt.Errorf("the metadata of %.200q is of another issuer, %.200q", issuer, as.Issuer)
	case f.Grant == nil && !slices.Contains(as.ChallengeMethods, "S256"):
		return fmt.Errorf("%s does not support PKCE with S256, without which codes can be stolen", issuer)
	case f.Grant == nil:
		return cmp.Or(checkOAuthURL(as.AuthorizationEndpoint), checkOAuthURL(as.TokenEndpoint))
	}
	return checkOAuthURL(as.TokenEndpoint)
}

// 5. The client was registered beforehand, or has a metadata document, or is registered now (RFC 7591).

// client returns the client for the authorization server. It has no ID if it has to be registered.
func (f *oauthFlow) client() (client OAuthClient, err error) {
	issuer := f.Client.Issuer
	if t := f.state.Token; t != nil {
		issuer = cmp.Or(issuer, t.Issuer)
	}
	switch as := f.site; {
	case f.Client.ID != "" && issuer != "" && issuer != as.Issuer:
		return client, fmt.Errorf("the client %.200q is registered with %s, but the server names %s now: "+
			"register a client there", f.Client.ID, issuer, as.Issuer)
	case f.Client.ID != "":
		return f.Client, nil
	case f.MetadataURL != "" && as.ClientMetadataSupported:
		return OAuthClient{ID: f.MetadataURL, AuthMethod: "none", RedirectURI: f.Client.RedirectURI}, nil
	case f.Grant != nil:
		return OAuthClient{AuthMethod: "none"}, nil
	case as.RegistrationEndpoint == "":
		return client, fmt.Errorf("%s registers no clients: register one there, and configure its ID", as.Issuer)
	case f.again || f.depth == toLogin: // the server may have forgotten the one that is stored
		return client, nil
	}
	return f.state.Clients[f.site.Issuer], nil
}

// isDynamic reports whether a client of this flow is, or has to be, registered dynamically.
func (f *oauthFlow) isDynamic(client OAuthClient) bool {
	return f.Grant == nil && f.Client.ID == "" && (client.ID == "" || client.ID != f.MetadataURL)
}

// register registers a client that is sent back to redirectURI.
func (f *oauthFlow) register(ctx context.Context, redirectURI string, scopes []string) (client OAuthClient, err error) {
	method := "none" // what a program on a person's machine holds is no secret (RFC 8252, 8.4)
	if supported := f.site.TokenAuthMethods; len(supported) > 0 && !slices.Contains(supported, method) {
		method = authMethod(supported)
	}
	request, err := json.Marshal(map[string]any{
		"client_name":                f.ClientName,
		"application_type":           "native",
		"redirect_uris":              []string{redirectURI},
		"grant_types":                []string{"authorization_code", "refresh_token"},
		"response_types":             []string{"code"},
		"token_endpoint_auth_method": method,
		"scope":                      strings.Join(scopes, " "),
	})
	if err == nil {
		header := http.Header{"Content-Type": {"application/json"}}
		err = f.call(ctx, f.site.RegistrationEndpoint, header, request, &client)
	}
	if err == nil && client.ID == "" {
		err = errors.New("the answer has no client_id")
	}
	if err != nil {
		return client, fmt.Errorf("the client is not registered: %w: register one there, and configure its ID", err)
	}
	client.Issuer, client.RedirectURI = f.site.Issuer, redirectURI
	return client, nil
}

// 6. The authorization request, and the response (RFC 6749, 4.1; RFC 7636; RFC 8707; RFC 9207).

// authorise gets a token by Grant, or by asking the person. It registers the client if need be.
func (f *oauthFlow) authorise(ctx context.Context, client *OAuthClient) (*OAuthToken, error) {
	scopes := f.scopesToAsk()
	if f.Grant != nil {
		form, err := f.Grant(ctx, &f.site.AuthorizationServer, f.site.resource)
		if err == nil && len(scopes) > 0 && !form.Has("scope") {
			form.Set("scope", strings.Join(scopes, " "))
		}
		if err != nil {
			return nil, err
		}
		return f.requestToken(ctx, *client, form, scopes)
	}
	redirect, err := f.Listen(ctx, client.RedirectURI)
	if err != nil {
		return nil, err
	}
	defer redirect.Close()
	isNew := f.isDynamic(*client) && client.RedirectURI != redirect.URI()
	if isNew {
		if *client, err = f.register(ctx, redirect.URI(), scopes); err != nil {
			return nil, err
		}
	}
	verifier, state := rand.Text()+rand.Text(), rand.Text()
	f.tell(verifier)
	hash := sha256.Sum256([]byte(verifier))
	query := url.Values{
		"response_type":         {"code"},
		"client_id":             {client.ID},
		"redirect_uri":          {redirect.URI()},
		"state":                 {state},
		"code_challenge":        {base64.RawURLEncoding.EncodeToString(hash[:])},
		"code_challenge_method": {"S256"},
		"resource":              {f.site.resource},
	}
	if len(scopes) > 0 {
		query.Set("scope", strings.Join(scopes, " "))
	}
	separator := "?"
	if strings.Contains(f.site.AuthorizationEndpoint, "?") {
		separator = "&"
	}
	response, err := redirect.Ask(ctx, f.site.AuthorizationEndpoint+separator+query.Encode())
	if err == nil {
		err = f.checkResponse(response, state)
	}
	if err != nil {
		return nil, err
	}
	token, err := f.requestToken(ctx, *client, url.Values{
		"grant_type":    {"authorization_code"},
		"code":          {response.Get("code")},
		"code_verifier": {verifier},
		"redirect_uri":  {redirect.URI()},
	}, scopes)
	if isInvalidClient(err) && f.isDynamic(*client) && !isNew {
		*client = OAuthClient{} // the server has forgotten it
		return f.authorise(ctx, client)
	}
	return token, err
}

// scopesToAsk returns the scopes that the server asks for, and those that were asked for before (MCP 2026-07-28,
// authorization, scope selection strategy and step-up).
func (f *oauthFlow) scopesToAsk() []string {
	scopes := f.scopes
	if len(scopes) == 0 {
		scopes = f.site.scopes
	}
	if t := f.state.Token; t != nil && t.Issuer == f.site.Issuer && f.depth != toLogin {
		scopes = union(t.Asked, scopes)
	}
	if f.Grant == nil && slices.Contains(f.site.ScopesSupported, "offline_access") {
		scopes = union(scopes, []string{"offline_access"}) // for a refresh token
	}
	return union(f.Scopes, scopes)
}

// checkResponse checks that an authorization response answers this request, and that this authorization server has
// sent it, before anything of it is used or shown.
func (f *oauthFlow) checkResponse(response url.Values, state string) error {
	at, iss := shownURL(f.site.AuthorizationEndpoint), response["iss"]
	switch {
	case !slices.Equal(response["state"], []string{state}):
		return fmt.Errorf("the response of %s has another state: it is not to this login", at)
	case len(iss) > 0 && !slices.Equal(iss, []string{f.site.Issuer}):
		return fmt.Errorf("the response of %s has another iss: it is of another server", at)
	case len(iss) == 0 && f.site.ResponseIssSupported:
		return fmt.Errorf("the response of %s has no iss, which its metadata promises", at)
	case response.Has("error"):
		return &OAuthError{at, 0, brief(response.Get("error")), brief(response.Get("error_description"))}
	case response.Get("code") == "":
		return fmt.Errorf("the response of %s has no code", at)
	}
	return nil
}

// 7. The token (RFC 6749, 5), and what refreshes it (6).

// requestToken gets a token from the token endpoint for which these scopes were asked.
func (f *oauthFlow) requestToken(ctx context.Context, client OAuthClient, form url.Values, asked []string) (
	*OAuthToken, error) {
	header := http.Header{"Content-Type": {"application/x-www-form-urlencoded"}}
	form.Set("resource", f.site.resource)
	if client.ID != "" {
		form.Set("client_id", client.ID)
	}
	method := client.AuthMethod
	if method == "" && client.Secret != "" {
		method = authMethod(f.site.TokenAuthMethods)
	}
	switch method {
	case "client_secret_basic":
		form.Del("client_id")
		login := base64.StdEncoding.EncodeToString([]byte(url.QueryEscape(client.ID) + ":" + url.QueryEscape(client.Secret)))
		f.tell(client.Secret, login)
		header.Set("Authorization", "Basic "+login)
	case "client_secret_post":
		form.Set("client_secret", client.Secret)
	case "private_key_jwt":
		assertion, err := f.Assert(f.site.Issuer)
		if err != nil {
			return nil, err
		}
		form.Set("client_assertion_type", "urn:ietf:params:oauth:client-assertion-type:jwt-bearer")
		form.Set("client_assertion", assertion)
	}
	for _, name := range strings.Fields(
		"assertion client_assertion client_secret code code_verifier refresh_token subject_token") {
		f.tell(form.Get(name))
	}
	var answer struct {
		Type      string      `json:"token_type"`
		Access    string      `json:"access_token"`
		Refresh   string      `json:"refresh_token"`
		ExpiresIn json.Number `json:"expires_in"` // seconds
		Scope     string      `json:"scope"`
	}
	if err := f.call(ctx, f.site.TokenEndpoint, header, []byte(form.Encode()), &answer); err != nil {
		return nil, err
	}
	f.tell(answer.Access, answer.Refresh)
	kind := map[string]string{"": "Bearer", "bearer": "Bearer", "dpop": "DPoP"}[strings.ToLower(answer.Type)]
	if answer.Access == "" || kind == "" {
		return nil, fmt.Errorf("%s answers without a token of a known type", shownURL(f.site.TokenEndpoint))
	}
	token := &OAuthToken{Issuer: f.site.Issuer, Type: kind, Access: answer.Access, Refresh: answer.Refresh,
		Asked: asked, Scopes: strings.Fields(cmp.Or(answer.Scope, strings.Join(asked, " ")))}
	if seconds, _ := answer.ExpiresIn.Float64(); seconds > 0 {
		token.Expiry = time.Now().Add(time.Duration(min(seconds, math.MaxInt32)) * time.Second)
	}
	return token, nil
}

// keep returns the token of the store if it can be expected to do, or the one that it is refreshed to, or nil. So one
// of two processes that do this at once finds the token of the other.
func (f *oauthFlow) keep(ctx context.Context) (token *OAuthToken, changed bool, err error) {
	old := f.state.Token
	if old == nil || f.depth == toLogin {
		return nil, false, nil
	}
	refused := f.depth == toReplace && f.used != nil && old.Access == f.used.Access
	switch {
	case !refused && !old.isExpiring():
		return old, false, nil
	case refused && f.stepUp:
		f.reason = fmt.Errorf("the scopes %.200q are needed", f.scopes)
		return nil, false, nil
	case old.Refresh == "" || f.again:
		f.reason = cmp.Or(f.reason, errors.New("the token was refused"))
		return nil, false, nil
	}
	if err = f.discover(ctx); err == nil {
		var client OAuthClient
		if client, err = f.client(); err == nil && old.Issuer != f.site.Issuer {
			f.reason = fmt.Errorf("its authorization server is %s now", f.site.Issuer)
			return nil, false, nil
		}
		if err == nil {
			form := url.Values{"grant_type": {"refresh_token"}, "refresh_token": {old.Refresh}}
			token, err = f.requestToken(ctx, client, form, old.Asked)
		}
	}
	f.again = f.depth == toReplace
	var refusal *OAuthError
	switch {
	case err == nil:
		token.Refresh = cmp.Or(token.Refresh, old.Refresh)
		f.state.Token = token
		return token, true, nil
	case errors.As(err, &refusal) && (refusal.Code == "invalid_grant" || isInvalidClient(err)):
		spent := *old
		spent.Refresh = ""
		f.state.Token, f.reason = &spent, err
		if f.depth == toRefresh {
			token = &spent
		}
		return token, true, nil
	case f.depth == toRefresh:
		token = old
	}
	return token, false, err
}

func isInvalidClient(err error) bool {
	var refusal *OAuthError
	return errors.As(err, &refusal) && refusal.Code == "invalid_client"
}

// authMethod chooses how a client with a secret authenticates (RFC 8414, 2).
func authMethod(supported []string) string {
	for _, method := range []string{"client_secret_basic", "client_secret_post", "none"} {
		if slices.Contains(supported, method) {
			return method
		}
	}
	return "client_secret_basic"
}

// Login runs a flow now, whatever token there is: with a person, or with Grant.
func (o *OAuth) Login(ctx context.Context) (*OAuthToken, error) {
	token, err := o.newFlow(toLogin).await(ctx)
	if err != nil {
		return nil, err
	}
	copied := *token
	return &copied, nil
}

// Close ends a flow that is running, and waits for its end.
func (o *OAuth) Close() error {
	o.newFlow(toLogin).end()
	o.turn <- struct{}{}
	<-o.turn
	return nil
}

// CloseIdleConnections is for http.Client.
func (o *OAuth) CloseIdleConnections() {
	(&http.Client{Transport: o.Base}).CloseIdleConnections()
}

// 8. What all of this goes through.

// call sends a request of the flow, and decodes the JSON object that answers it. Without a body it is a GET. A refusal
// is an *OAuthError.
func (f *oauthFlow) call(ctx context.Context, to string, header http.Header, body []byte, answer any) error {
	if err := checkOAuthURL(to); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, oauthTime, fmt.Errorf("no answer within %v", oauthTime))
	defer cancel()
	method := http.MethodGet
	if body != nil {
		method = http.MethodPost
	}
	request, err := http.NewRequestWithContext(ctx, method, to, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header = header
	header.Set("Accept", "application/json")
	client := &http.Client{Transport: f.Base, CheckRedirect: func(next *http.Request, via []*http.Request) error {
		if body != nil || len(via) > oauthRedirects || originOf(next.URL.String()) != originOf(to) {
			return http.ErrUseLastResponse // which is a refusal, then
		}
		return nil
	}}
	response, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("%s: %w", shownURL(to), errors.Unwrap(err)) // a *url.Error has the whole URL
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxOAuthBody))
	if len(text) == maxOAuthBody {
		err = fmt.Errorf("the answer has %d bytes or more", maxOAuthBody)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", shownURL(to), err)
	}
	if response.StatusCode/100 != 2 {
		return f.readRefusal(shownURL(to), response.StatusCode, text)
	}
	wrong := new(json.UnmarshalTypeError)
	if err = json.Unmarshal(text, answer); errors.As(err, &wrong) {
		return fmt.Errorf("%s answers with a JSON %.20s for %s", shownURL(to), wrong.Value, cmp.Or(wrong.Field, "the object"))
	}
	if err != nil {
		return &OAuthError{shownURL(to), response.StatusCode, "", "that is not JSON"}
	}
	return nil
}

// readRefusal reads an error response, and takes out what a server may have sent back.
func (f *oauthFlow) readRefusal(endpoint string, status int, text []byte) error {
	var refusal struct {
		Code        string `json:"error"`
		Description string `json:"error_description"`
	}
	_ = json.Unmarshal(text, &refusal)
	for _, secret := range f.secrets {
		refusal.Description = strings.ReplaceAll(refusal.Description, secret, "[secret]")
	}
	return &OAuthError{endpoint, status, brief(refusal.Code), brief(refusal.Description)}
}

// checkOAuthURL refuses a URL to which no secret may be sent.
func checkOAuthURL(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.User != nil || u.Fragment != "" {
		return fmt.Errorf("%.200q is not a URL of a server", text)
	}
	address := net.ParseIP(u.Hostname())
	if u.Scheme != "https" && (u.Scheme != "http" || u.Hostname() != "localhost" && !address.IsLoopback()) {
		return fmt.Errorf("%s is not encrypted: https is needed", shownURL(text))
	}
	return nil
}

// originOf returns the origin of a URL, or what is the origin of no other URL.
func originOf(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return text
	}
	scheme, host := strings.ToLower(u.Scheme), strings.ToLower(u.Host)
	port := map[string]string{"http": ":80", "https": ":443"}[scheme]
	return scheme + "://" + strings.TrimSuffix(host, port)
}

// pathOf returns the path of a URL without a slash at its end.
func pathOf(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(u.EscapedPath(), "/")
}

// shownURL returns a URL without what may be secret in it.
func shownURL(text string) string { return brief(originOf(text) + pathOf(text)) }

// brief returns a text on one line, and not more than 300 bytes of it.
func brief(text string) string {
	text = strings.Join(strings.FieldsFunc(text, func(r rune) bool { return !unicode.IsGraphic(r) || r == ' ' }), " ")
	return strings.ToValidUTF8(text[:min(len(text), 300)], "")
}

// union returns the texts of all lists, each once.
func union(lists ...[]string) (all []string) {
	for _, text := range slices.Concat(lists...) {
		if !slices.Contains(all, text) && len(all) < maxScopes {
			all = append(all, text)
		}
	}
	return all
}

func closeBody(r *http.Request) {
	if r.Body != nil {
		r.Body.Close()
	}
}
