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
	"maps"
	"math"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
)

// OAuth is an http.RoundTripper that authorises the requests to one protected server, the resource (MCP 2026-07-28,
// authorization). It sends each with an access token. Where the server refuses that (401, or 403 insufficient_scope),
// it gets another one and sends the request again, which needs the request's GetBody. One flow runs at a time, however
// many requests wait for it; it goes on when they have given up, until Close.
//
// Set the exported fields before the first request.
type OAuth struct {
	Resource string // URL of the protected server; requests to other origins are refused

	// Base makes all requests; nil: http.DefaultTransport. One that wraps another round tripper has a method
	// Rebase(wrap func(http.RoundTripper) http.RoundTripper) http.RoundTripper, which returns the same on top of
	// wrap(that one): so a flow can keep an *http.Transport from dialling private addresses.
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

	once sync.Once // of setUp, which sets the following
	life context.Context
	end  context.CancelFunc
	work sync.WaitGroup // of flows

	mu       sync.Mutex      // guards the following; never held across I/O or a callback
	closed   bool            //
	flow     *oauthFlow      // that is running, or nil
	loaded   bool            // token is from the store, or newer
	token    *OAuthToken     // nil if there is none; never changed
	unproved *OAuthToken     // token, until the resource has accepted it once
	asked    []string        // scopes of the last authorization request
	stepped  map[string]bool // scopes of challenges that there was a flow for already
	failures int             // flows that have failed so far
	failure  error           // of the last one
	local    bool            // the resource is on a private address

	found  *oauthSite // used by flows alone: what the last discovery has found
	reason error      // used by flows alone: why what was kept does not do
}

// Redirect is where the authorization server sends the person's browser back to.
type Redirect interface {
	URI() string // the redirect_uri
	// Ask has the person open the URL, and returns the parameters of the authorization response, or the cause of ctx.
	Ask(ctx context.Context, authorizationURL string) (url.Values, error)
	// Close is called when the flow has ended, with its error: the person's browser still waits to hear of it.
	Close(err error)
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
	Scopes  []string  `json:"scopes,omitempty"`
	Expiry  time.Time `json:"expiry,omitzero"` // zero: not known
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
	if e.Reason != nil {
		return fmt.Sprintf("%s needs a new login: %v", e.Resource, e.Reason)
	}
	return e.Resource + " needs a login"
}

func (e *LoginError) Unwrap() error { return e.Reason }

// OAuthError is an error response of an authorization server (RFC 6749, 4.1.2.1 and 5.2).
type OAuthError struct {
	Endpoint    string // without its query
	Status      int    // of HTTP; 0: it came with the redirect
	Code        string // error
	Description string // error_description, on one line
}

func (e *OAuthError) Error() string {
	text := fmt.Sprintf("%s answers %s", e.Endpoint, e.Code)
	if e.Description != "" {
		text += ": " + e.Description
	}
	return text
}

const (
	oauthRepeats   = 2                // of one request
	oauthEarly     = 30 * time.Second // that a token is refreshed before it expires
	oauthTime      = 30 * time.Second // for discovery, for a registration, and for a token
	oauthRedirects = 3
	maxOAuthBody   = 1 << 20

	offlineAccess = "offline_access" // the scope that asks for a refresh token
)

// 1. The request, and the challenge.

// RoundTrip sends a request with an access token. An error that comes from the flow is an *AuthorizationError.
func (o *OAuth) RoundTrip(r *http.Request) (*http.Response, error) {
	o.once.Do(o.setUp)
	if !sameOAuthOrigin(r.URL, o.Resource) {
		closeBody(r)
		return nil, &AuthorizationError{fmt.Errorf("%s has another origin than %s", shownURL(r.URL.String()), o.Resource)}
	}
	if r.Header.Get("Authorization") != "" {
		return o.Base.RoundTrip(r)
	}
	o.mu.Lock()
	failures := o.failures
	o.mu.Unlock()
	for repeats := 0; ; repeats++ {
		token, err := o.current(r.Context())
		if err != nil {
			closeBody(r)
			return nil, err
		}
		response, err := o.send(r, token, repeats)
		if err != nil {
			return nil, err
		}
		f := &oauthFlow{OAuth: o, depth: toAuthorise, used: token, failures: failures}
		canRepeat := repeats < oauthRepeats && (r.GetBody != nil || r.Body == nil || r.Body == http.NoBody)
		if !canRepeat || !f.readChallenge(response) || !o.wants(f) {
			return response, nil
		}
		_, _ = io.CopyN(io.Discard, response.Body, 4<<10) // so that its connection can be used again
		response.Body.Close()
		if err := o.await(r.Context(), f); err != nil {
			return nil, err
		}
	}
}

// current returns the token to send, which is nil if there is none. It is refreshed first when it is about to expire.
// If that fails the old one is sent: the clock may be wrong, and the server's answer counts.
func (o *OAuth) current(ctx context.Context) (*OAuthToken, error) {
	o.mu.Lock()
	loaded, token := o.loaded, o.token
	o.mu.Unlock()
	if loaded && !token.expiring() {
		return token, nil
	}
	err := o.await(ctx, &oauthFlow{OAuth: o, depth: toRefresh, used: token})
	o.mu.Lock()
	defer o.mu.Unlock()
	if ctx.Err() == nil && o.loaded && !o.closed {
		err = nil
	}
	return o.token, err
}

// expiring reports whether a token should be refreshed before it is used.
func (t *OAuthToken) expiring() bool {
	return t != nil && t.Refresh != "" && !t.Expiry.IsZero() && time.Until(t.Expiry) < oauthEarly
}

// send sends a request with a token.
func (o *OAuth) send(r *http.Request, token *OAuthToken, repeats int) (*http.Response, error) {
	copied := r.Clone(o.observe(r.Context()))
	if repeats > 0 && r.GetBody != nil {
		body, err := r.GetBody()
		if err != nil {
			return nil, err
		}
		copied.Body = body
	}
	if token != nil {
		copied.Header.Set("Authorization", token.Type+" "+token.Access)
	}
	response, err := o.Base.RoundTrip(copied)
	if err == nil && response.StatusCode != http.StatusUnauthorized {
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.unproved == token {
			o.unproved = nil
		}
	}
	return response, err
}

// readChallenge reads what a response asks for (RFC 9728, 5.1; RFC 6750, 3). It reports false for a response that asks
// for nothing that a flow can give.
func (f *oauthFlow) readChallenge(response *http.Response) bool {
	challenges := parseChallenges(response.Header.Values("WWW-Authenticate"))
	code, found := "", false
	for _, c := range challenges {
		if c.scheme != "bearer" && c.scheme != "dpop" {
			continue
		}
		found = true
		code = cmp.Or(code, c.params["error"])
		f.metadata = cmp.Or(f.metadata, c.params["resource_metadata"])
		if f.scopes == nil {
			f.scopes = strings.Fields(c.params["scope"])
		}
	}
	f.stepUp = code == "insufficient_scope"
	switch response.StatusCode {
	case http.StatusUnauthorized:
		return found || len(challenges) == 0
	case http.StatusForbidden:
		return f.stepUp
	}
	return false
}

// challenge is one challenge of a WWW-Authenticate header (RFC 9110, 11.6.1).
type challenge struct {
	scheme string            // in lower case
	params map[string]string // by name in lower case, the first of each; a token68 has none
}

// parseChallenges reads all challenges of the header's lines. What comes after a fault in a line is left out.
func parseChallenges(lines []string) (all []challenge) {
	const space = " \t"
	for _, rest := range lines {
		for {
			rest = strings.TrimLeft(rest, space+",")
			scheme, after := cutToken(rest)
			if scheme == "" {
				break
			}
			c := challenge{strings.ToLower(scheme), make(map[string]string)}
			all = append(all, c)
			if rest = strings.TrimLeft(after, space); rest == after {
				continue // no space: no parameters
			}
			if end := strings.IndexAny(rest+",", space+","); isToken68(rest[:end]) {
				if next := strings.TrimLeft(rest[end:], space); next == "" || next[0] == ',' {
					rest = next
					continue
				}
			}
			for {
				name, after := cutToken(strings.TrimLeft(rest, space+","))
				value, isParam := strings.CutPrefix(strings.TrimLeft(after, space), "=")
				if name == "" || !isParam {
					break // the next challenge
				}
				value, rest = cutValue(strings.TrimLeft(value, space))
				if _, known := c.params[strings.ToLower(name)]; !known {
					c.params[strings.ToLower(name)] = value
				}
			}
		}
	}
	return all
}

// cutToken cuts a token (RFC 9110, 5.6.2) from the front of a text.
func cutToken(text string) (token, rest string) {
	end := strings.IndexFunc(text, func(r rune) bool {
		return r <= ' ' || r >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
	})
	if end < 0 {
		end = len(text)
	}
	return text[:end], text[end:]
}

// cutValue cuts a token or a quoted string (RFC 9110, 5.6.4) from the front of a text.
func cutValue(text string) (value, rest string) {
	if !strings.HasPrefix(text, `"`) {
		return cutToken(text)
	}
	var b strings.Builder
	for i := 1; i < len(text); i++ {
		switch {
		case text[i] == '"':
			return b.String(), text[i+1:]
		case text[i] == '\\' && i+1 < len(text):
			i++
		}
		b.WriteByte(text[i])
	}
	return b.String(), ""
}

// isToken68 reports whether a text can be the token68 of a challenge, and not the beginning of a parameter.
func isToken68(text string) bool {
	text = strings.TrimRight(text, "=")
	return text != "" && strings.Trim(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~+/") == ""
}

// 2. The flow, of which there is one at a time.

// How far a flow may go. Each depth includes those before it.
const (
	toRefresh   = iota // the token of the store, refreshed when it is about to expire
	toAuthorise        // the same when the resource has refused it; then another one, which may need a person
	toLogin            // another one in any case
)

// oauthFlow is what a request waits for that needs another token. Its fields are set before it starts.
type oauthFlow struct {
	*OAuth
	depth    int
	used     *OAuthToken // that is about to expire, or that the resource has refused; nil if none was sent
	metadata string      // of the challenge: the URL of the protected resource metadata
	scopes   []string    // of the challenge
	stepUp   bool        // they are more than the token has
	failures int         // of flows, when the request was made

	clients  map[string]OAuthClient // of the store
	previous *OAuthToken            // of the store
	site     *oauthSite             // nil before discovery
	dynamic  bool                   // the client is one that registers dynamically

	done chan struct{} // closed at the end
	err  error         // set before done is closed
}

func (o *OAuth) setUp() {
	o.life, o.end = context.WithCancel(context.Background())
	o.stepped = make(map[string]bool)
	if o.Base == nil {
		o.Base = http.DefaultTransport
	}
	if o.Secret == nil {
		o.Secret = func(string) {}
	}
	if o.Store == nil {
		o.Store = &oauthMemory{}
	}
}

// wants reports whether a flow can be expected to help a request that was refused. It is no use to ask for the same
// scopes again, nor for another token when the last one was new and was refused too.
func (o *OAuth) wants(f *oauthFlow) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.token != f.used {
		return true
	}
	if f.stepUp {
		scopes := slices.Sorted(slices.Values(f.scopes))
		key := strings.Join(scopes, " ")
		done := o.stepped[key]
		o.stepped[key] = true
		return !done
	}
	return f.used == nil || o.unproved != f.used
}

// await runs a flow, or waits for the one that is running; and returns when there is another token than the used one.
func (o *OAuth) await(ctx context.Context, want *oauthFlow) error {
	for {
		f, err := o.join(want)
		if f == nil {
			return err
		}
		select {
		case <-f.done:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if f == want || f.depth >= want.depth && f.err != nil {
			return f.err
		}
	}
}

// join returns the flow to wait for, or nil if there is no need.
func (o *OAuth) join(want *oauthFlow) (*oauthFlow, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.closed:
		return nil, &AuthorizationError{net.ErrClosed}
	case want.depth != toLogin && o.loaded && o.token != want.used:
		return nil, nil
	case o.flow != nil:
		return o.flow, nil
	case want.depth == toAuthorise && o.failures != want.failures:
		return nil, o.failure
	}
	want.done = make(chan struct{})
	o.flow = want
	o.work.Add(1)
	go want.run()
	return want, nil
}

// run is the goroutine of a flow.
func (f *oauthFlow) run() {
	defer f.work.Done()
	token, err := f.obtain(f.life)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.flow = nil
	if err == nil || token != nil {
		f.loaded = true
		if f.depth != toRefresh && err == nil {
			f.unproved = token
		}
		f.token = token
	}
	if err != nil {
		f.err = &AuthorizationError{err}
		if f.depth != toRefresh {
			f.failures++
			f.failure = f.err
		}
	}
	close(f.done)
}

// obtain returns a token that can be expected to do what the used one did not.
func (f *oauthFlow) obtain(ctx context.Context) (*OAuthToken, error) {
	token, err := f.keep(ctx)
	if token != nil || err != nil || f.depth == toRefresh {
		return token, err
	}
	if f.Grant == nil && f.Listen == nil {
		return nil, &LoginError{f.Resource, f.reason}
	}
	if f.site == nil {
		if err = f.discover(ctx); err != nil {
			return nil, err
		}
	}
	if token, err = f.getToken(ctx); f.isForgotten(err) {
		if err = f.forget(ctx); err == nil {
			token, err = f.getToken(ctx)
		}
	}
	if err != nil {
		return nil, err
	}
	return token, f.update(ctx, func(state *OAuthState) (bool, error) {
		state.Token = token
		return true, nil
	})
}

// update reads the state of the store, lets change change it, and writes it if change returns true.
func (f *oauthFlow) update(ctx context.Context, change func(*OAuthState) (bool, error)) error {
	unlock, err := f.Store.Lock(ctx)
	if err != nil {
		return fmt.Errorf("the stored tokens: %w", err)
	}
	defer unlock()
	state, err := f.Store.Load()
	if err != nil {
		return fmt.Errorf("the stored tokens: %w", err)
	}
	if state.Resource != f.Resource { // then nothing in it is for this one
		state = &OAuthState{Resource: f.Resource}
	}
	f.tell(state.Token)
	for _, client := range state.Clients {
		f.Secret(client.Secret)
	}
	save, err := change(state)
	if save {
		if failed := f.Store.Save(state); failed != nil {
			err = errors.Join(err, fmt.Errorf("the tokens cannot be stored: %w", failed))
		}
	}
	return err
}

func (f *oauthFlow) tell(token *OAuthToken) {
	if token != nil {
		f.Secret(token.Access)
		f.Secret(token.Refresh)
	}
}

// oauthMemory is the store of an OAuth without one.
type oauthMemory struct{ state OAuthState }

func (m *oauthMemory) Lock(context.Context) (func(), error) { return func() {}, nil }

func (m *oauthMemory) Load() (*OAuthState, error) {
	state := m.state
	state.Clients = maps.Clone(state.Clients)
	return &state, nil
}

func (m *oauthMemory) Save(state *OAuthState) error {
	m.state = *state
	return nil
}

// 3. Who protects the resource (RFC 9728).

// oauthSite is what discovery has found.
type oauthSite struct {
	AuthorizationServer
	resource string   // the identifier of the resource, as its metadata has it
	scopes   []string // that it supports
}

// discover reads the metadata of the resource and of its authorization server.
func (f *oauthFlow) discover(ctx context.Context) error {
	ctx, cancel := withOAuthTime(ctx)
	defer cancel()
	if err := f.checkURL(f.Resource); err != nil {
		return err
	}
	resource, _ := url.Parse(f.Resource)
	metadata := []string{f.metadata}
	if f.metadata == "" {
		metadata = wellKnown(f.Resource, "oauth-protected-resource")
		if root := wellKnown(resource.Scheme+"://"+resource.Host, "oauth-protected-resource"); root[0] != metadata[0] {
			metadata = append(metadata, root...)
		}
	}
	var protected struct {
		Resource string   `json:"resource"`
		Servers  []string `json:"authorization_servers"`
		Scopes   []string `json:"scopes_supported"`
	}
	at, err := f.getMetadata(ctx, metadata, &protected)
	if err != nil {
		return fmt.Errorf("no protected resource metadata of %s: %w", shownURL(f.Resource), err)
	}
	if !covers(protected.Resource, f.Resource) {
		return fmt.Errorf("%s is the metadata of another resource: %q", shownURL(at), shownLine(protected.Resource))
	}
	if len(protected.Servers) == 0 {
		return fmt.Errorf("%s names no authorization server", shownURL(at))
	}
	issuer := protected.Servers[0]
	for _, known := range []string{f.Client.Issuer, f.previous.issuer()} {
		if slices.Contains(protected.Servers, known) {
			issuer = known
			break
		}
	}
	site := &oauthSite{resource: protected.Resource, scopes: protected.Scopes}
	if err := f.readServer(ctx, issuer, &site.AuthorizationServer); err != nil {
		return err
	}
	f.site, f.found = site, site
	return nil
}

// wellKnown returns the URLs at which the metadata of an identifier is (RFC 9728, 3.1; RFC 8414, 3.1).
func wellKnown(identifier string, suffixes ...string) (all []string) {
	u, err := url.Parse(identifier)
	if err != nil {
		return nil
	}
	path := strings.TrimSuffix(u.EscapedPath(), "/")
	for _, suffix := range suffixes {
		all = append(all, u.Scheme+"://"+u.Host+"/.well-known/"+suffix+path)
	}
	return all
}

// covers reports whether the identifier of a resource is that of the server at a URL, or of a part of its site with
// that server in it.
func covers(identifier, server string) bool {
	id, err := url.Parse(identifier)
	at, _ := url.Parse(server)
	if err != nil || !sameOAuthOrigin(id, server) || id.User != nil || id.Fragment != "" ||
		id.RawQuery != "" && id.RawQuery != at.RawQuery {
		return false
	}
	prefix, path := strings.TrimSuffix(id.EscapedPath(), "/"), at.EscapedPath()
	return path == prefix || path == prefix+"/" || strings.HasPrefix(path, prefix+"/")
}

// 4. The authorization server (RFC 8414, OpenID Connect Discovery 1.0).

func (f *oauthFlow) readServer(ctx context.Context, issuer string, as *AuthorizationServer) error {
	u, err := url.Parse(issuer)
	if err != nil || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		return fmt.Errorf("the issuer %q is not a URL without user, query and fragment", shownLine(issuer))
	}
	urls := wellKnown(issuer, "oauth-authorization-server", "openid-configuration")
	if root := strings.TrimSuffix(issuer, "/"); strings.Trim(u.Path, "/") != "" {
		urls = append(urls, root+"/.well-known/openid-configuration")
	}
	at, err := f.getMetadata(ctx, urls, as)
	if err != nil {
		return fmt.Errorf("no metadata of the authorization server %s: %w", shownURL(issuer), err)
	}
	if as.Issuer != issuer {
		return fmt.Errorf("%s is the metadata of another issuer, %q: it is not used", shownURL(at), shownLine(as.Issuer))
	}
	if as.TokenEndpoint == "" {
		return fmt.Errorf("%s names no token_endpoint", shownURL(at))
	}
	if f.Grant != nil {
		return nil
	}
	if as.AuthorizationEndpoint == "" {
		return fmt.Errorf("%s names no authorization_endpoint", shownURL(at))
	}
	if !slices.Contains(as.ChallengeMethods, "S256") {
		return fmt.Errorf("%s: %s does not support PKCE with S256, which protects the code", shownURL(at), as.Issuer)
	}
	return f.checkURL(as.AuthorizationEndpoint)
}

// 5. The client: registered beforehand, by its metadata document, or dynamically (RFC 7591).

// chooseClient returns the client for the authorization server, without an ID if it is to be registered.
func (f *oauthFlow) chooseClient() (OAuthClient, error) {
	as := f.site
	switch at := cmp.Or(f.Client.Issuer, f.previous.issuer(), as.Issuer); {
	case f.Client.ID != "" && at != as.Issuer:
		return OAuthClient{}, fmt.Errorf("the client %s is registered with %s, but the server now names %s: "+
			"register a client there", shownLine(f.Client.ID), shownURL(at), shownURL(as.Issuer))
	case f.Client.ID != "":
		return f.Client, nil
	case f.MetadataURL != "" && as.ClientMetadataSupported:
		return OAuthClient{Issuer: as.Issuer, ID: f.MetadataURL, AuthMethod: "none", RedirectURI: f.Client.RedirectURI}, nil
	case f.Grant != nil:
		return OAuthClient{Issuer: as.Issuer, AuthMethod: "none"}, nil
	case as.RegistrationEndpoint == "":
		return OAuthClient{}, fmt.Errorf("%s registers no clients by itself: register one there, and configure its ID",
			shownURL(as.Issuer))
	}
	f.dynamic = true
	return f.clients[as.Issuer], nil
}

// register registers a client that is sent back to redirectURI.
func (f *oauthFlow) register(ctx context.Context, redirectURI string) (OAuthClient, error) {
	client := OAuthClient{Issuer: f.site.Issuer, RedirectURI: redirectURI}
	method := "none" // a program that everybody can read keeps no secret (RFC 8252, 8.4)
	if supported := f.site.TokenAuthMethods; len(supported) > 0 && !slices.Contains(supported, method) {
		method = cmp.Or(authMethod(OAuthClient{Secret: "-"}, supported), method)
	}
	request, err := json.Marshal(struct {
		Name     string   `json:"client_name,omitempty"`
		Type     string   `json:"application_type"`
		URIs     []string `json:"redirect_uris"`
		Grants   []string `json:"grant_types"`
		Response []string `json:"response_types"`
		Method   string   `json:"token_endpoint_auth_method"`
	}{f.ClientName, "native", []string{redirectURI}, []string{"authorization_code", "refresh_token"}, []string{"code"},
		method}) // no scope: some servers know only their own here, and not those of the resource
	if err != nil {
		return client, err
	}
	ctx, cancel := withOAuthTime(ctx)
	defer cancel()
	header := http.Header{"Content-Type": {"application/json"}}
	status, body, err := f.call(ctx, http.MethodPost, f.site.RegistrationEndpoint, header, request)
	if err != nil {
		return client, err
	}
	if status/100 != 2 {
		err = readOAuthError(f.site.RegistrationEndpoint, status, body, nil)
		return client, fmt.Errorf("the client is not registered: %w: register one there, and configure its client ID", err)
	}
	if err := decodeObject(body, &client); err != nil || client.ID == "" {
		err = cmp.Or(err, errors.New("no client_id"))
		return client, fmt.Errorf("the registration at %s: %w", shownURL(f.site.RegistrationEndpoint), err)
	}
	client.Issuer, client.RedirectURI = f.site.Issuer, redirectURI
	f.Secret(client.Secret)
	return client, f.update(ctx, func(state *OAuthState) (bool, error) {
		if state.Clients == nil {
			state.Clients = make(map[string]OAuthClient)
		}
		state.Clients[client.Issuer] = client
		return true, nil
	})
}

// isForgotten reports whether an error says that the authorization server does not know the client any more, which it
// has registered by itself.
func (f *oauthFlow) isForgotten(err error) bool {
	var refusal *OAuthError
	return f.dynamic && errors.As(err, &refusal) && refusal.Code == "invalid_client"
}

// forget removes such a client.
func (f *oauthFlow) forget(ctx context.Context) error {
	return f.update(ctx, func(state *OAuthState) (bool, error) {
		delete(state.Clients, f.site.Issuer)
		f.clients = nil
		return true, nil
	})
}

// 6. The authorization request, and the response (RFC 6749, 4.1; RFC 7636; RFC 8707; RFC 9207).

// getToken asks for a token with a grant of its own, or asks the person.
func (f *oauthFlow) getToken(ctx context.Context) (token *OAuthToken, err error) {
	client, err := f.chooseClient()
	if err != nil {
		return nil, err
	}
	scopes := f.chooseScopes()
	if f.Grant != nil {
		grant, err := f.Grant(ctx, &f.site.AuthorizationServer, f.site.resource)
		if err != nil {
			return nil, err
		}
		if len(scopes) > 0 && !grant.Has("scope") {
			grant.Set("scope", strings.Join(scopes, " "))
		}
		return f.requestToken(ctx, client, grant, scopes)
	}
	redirect, err := f.Listen(ctx, client.RedirectURI)
	if err != nil {
		return nil, err
	}
	defer func() { redirect.Close(err) }()
	if f.dynamic && client.RedirectURI != redirect.URI() {
		if client, err = f.register(ctx, redirect.URI()); err != nil {
			return nil, err
		}
	}
	verifier, state := rand.Text()+rand.Text(), rand.Text() // a verifier has at least 43 characters
	f.Secret(verifier)
	hash := sha256.Sum256([]byte(verifier))
	u, err := url.Parse(f.site.AuthorizationEndpoint)
	if err != nil {
		return nil, err
	}
	query := u.Query()
	query.Set("response_type", "code")
	query.Set("client_id", client.ID)
	query.Set("redirect_uri", redirect.URI())
	query.Set("state", state)
	query.Set("code_challenge", base64.RawURLEncoding.EncodeToString(hash[:]))
	query.Set("code_challenge_method", "S256")
	query.Set("resource", f.site.resource)
	if len(scopes) > 0 {
		query.Set("scope", strings.Join(scopes, " "))
	}
	if slices.Contains(scopes, offlineAccess) {
		query.Set("prompt", "consent") // without it this scope is ignored (OpenID Connect Core 1.0, 11)
	}
	u.RawQuery = query.Encode()
	response, err := redirect.Ask(ctx, u.String())
	if err != nil {
		return nil, err
	}
	code, err := f.readResponse(response, state)
	if err != nil {
		return nil, err
	}
	return f.requestToken(ctx, client, url.Values{
		"grant_type":    {"authorization_code"},
		"code":          {code},
		"code_verifier": {verifier},
		"redirect_uri":  {redirect.URI()},
	}, scopes)
}

// chooseScopes returns what to ask for: what the server asks for, and what was asked for before (MCP 2026-07-28,
// authorization, scope selection strategy and step-up).
func (f *oauthFlow) chooseScopes() (scopes []string) {
	add := func(more []string) {
		for _, scope := range more {
			if !slices.Contains(scopes, scope) {
				scopes = append(scopes, scope)
			}
		}
	}
	add(f.Scopes)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.previous.issuer() == f.site.Issuer {
		add(f.asked)
		add(f.previous.Scopes)
	}
	if add(f.scopes); len(f.scopes) == 0 {
		add(f.site.scopes)
	}
	f.asked = scopes
	if f.Grant == nil && slices.Contains(f.site.ScopesSupported, offlineAccess) {
		add([]string{offlineAccess})
	}
	return scopes
}

// readResponse returns the code of an authorization response. Nothing of a response to another request is used or
// shown, nor of a response that another authorization server has sent.
func (f *oauthFlow) readResponse(response url.Values, state string) (code string, err error) {
	from := shownURL(f.site.AuthorizationEndpoint)
	for _, name := range []string{"code", "error", "iss", "state"} {
		if len(response[name]) > 1 {
			return "", fmt.Errorf("the response from %s has more than one %s", from, name)
		}
	}
	iss := response.Get("iss")
	switch {
	case response.Get("state") != state:
		return "", fmt.Errorf("the response from %s is not to this login: the state is another one", from)
	case response.Has("iss") && iss != f.site.Issuer:
		return "", fmt.Errorf("the response from %s is of another issuer than %s", from, f.site.Issuer)
	case !response.Has("iss") && f.site.ResponseIssSupported:
		return "", fmt.Errorf("the response from %s has no iss, which %s says it sends", from, f.site.Issuer)
	case response.Has("error"):
		return "", &OAuthError{from, 0, shownLine(response.Get("error")), shownLine(response.Get("error_description"))}
	case response.Get("code") == "":
		return "", fmt.Errorf("the response from %s has no code", from)
	}
	f.Secret(response.Get("code"))
	return response.Get("code"), nil
}

// 7. The token (RFC 6749, 5), and another one for it (6).

// requestToken asks the token endpoint for a token.
func (f *oauthFlow) requestToken(ctx context.Context, client OAuthClient, form url.Values, scopes []string) (
	*OAuthToken, error) {
	body, err := f.postToken(ctx, client, form)
	if err != nil {
		return nil, err
	}
	var answer struct {
		Type      string      `json:"token_type"`
		Access    string      `json:"access_token"`
		Refresh   string      `json:"refresh_token"`
		ExpiresIn json.Number `json:"expires_in"` // seconds
		Scope     string      `json:"scope"`
	}
	if err := decodeObject(body, &answer); err != nil {
		return nil, fmt.Errorf("the token from %s: %w", shownURL(f.site.TokenEndpoint), err)
	}
	token := &OAuthToken{Issuer: f.site.Issuer, Type: answer.Type, Access: answer.Access, Refresh: answer.Refresh,
		Scopes: scopes}
	f.tell(token)
	switch strings.ToLower(token.Type) {
	case "bearer", "":
		token.Type = "Bearer"
	case "dpop":
		token.Type = "DPoP"
	default:
		at := shownURL(f.site.TokenEndpoint)
		return nil, fmt.Errorf("the token from %s is of the unknown type %q", at, shownLine(token.Type))
	}
	if token.Access == "" {
		return nil, fmt.Errorf("the answer of %s has no access_token", shownURL(f.site.TokenEndpoint))
	}
	if seconds, _ := answer.ExpiresIn.Float64(); seconds > 0 {
		token.Expiry = time.Now().Add(time.Duration(min(seconds, math.MaxInt32)) * time.Second)
	}
	if granted := strings.Fields(answer.Scope); len(granted) > 0 {
		token.Scopes = granted
	}
	return token, nil
}

// postToken sends a form to the token endpoint, for a client, and returns the answer. A DPoP below keeps the nonce of
// a refusal; the second request, which has it, has another client assertion, too: each is used once.
func (f *oauthFlow) postToken(ctx context.Context, client OAuthClient, form url.Values) ([]byte, error) {
	body, err := f.tryToken(ctx, client, form)
	if refusal := new(OAuthError); errors.As(err, &refusal) && refusal.Code == "use_dpop_nonce" {
		return f.tryToken(ctx, client, form)
	}
	return body, err
}

func (f *oauthFlow) tryToken(ctx context.Context, client OAuthClient, form url.Values) ([]byte, error) {
	ctx, cancel := withOAuthTime(ctx)
	defer cancel()
	form.Set("resource", f.site.resource)
	header := http.Header{"Content-Type": {"application/x-www-form-urlencoded"}}
	method := cmp.Or(client.AuthMethod, authMethod(client, f.site.TokenAuthMethods))
	switch method {
	case "client_secret_basic":
		credentials := url.QueryEscape(client.ID) + ":" + url.QueryEscape(client.Secret)
		encoded := base64.StdEncoding.EncodeToString([]byte(credentials))
		f.Secret(encoded)
		header.Set("Authorization", "Basic "+encoded)
	case "client_secret_post":
		form.Set("client_id", client.ID)
		form.Set("client_secret", client.Secret)
	case "private_key_jwt":
		if f.Assert == nil {
			return nil, errors.New("private_key_jwt needs a private key")
		}
		assertion, err := f.Assert(f.site.Issuer)
		if err != nil {
			return nil, err
		}
		f.Secret(assertion)
		form.Set("client_id", client.ID)
		form.Set("client_assertion_type", "urn:ietf:params:oauth:client-assertion-type:jwt-bearer")
		form.Set("client_assertion", assertion)
	case "none":
		if client.ID != "" {
			form.Set("client_id", client.ID)
		}
	default:
		return nil, fmt.Errorf("the client is to authenticate with %s, which is not supported", shownLine(method))
	}
	status, body, err := f.call(ctx, http.MethodPost, f.site.TokenEndpoint, header, []byte(form.Encode()))
	if err != nil {
		return nil, err
	}
	if status != http.StatusOK {
		return nil, readOAuthError(f.site.TokenEndpoint, status, body, form)
	}
	return body, nil
}

// authMethod chooses how a client authenticates to a token endpoint.
func authMethod(client OAuthClient, supported []string) string {
	if client.Secret == "" {
		return "none"
	}
	if len(supported) == 0 {
		return "client_secret_basic" // RFC 8414, 2
	}
	for _, method := range []string{"client_secret_basic", "client_secret_post"} {
		if slices.Contains(supported, method) {
			return method
		}
	}
	return "none"
}

// keep returns the token of the store, if it can be expected to do; or else the one that it is refreshed to. Another
// process that wants to do the same waits, and finds the new one.
func (f *oauthFlow) keep(ctx context.Context) (token *OAuthToken, err error) {
	err = f.update(ctx, func(state *OAuthState) (save bool, err error) {
		f.clients, f.previous = state.Clients, state.Token
		if f.depth == toLogin || state.Token == nil {
			return false, nil
		}
		refused := f.depth == toAuthorise && f.used != nil && state.Token.Access == f.used.Access
		if !refused && !state.Token.expiring() {
			token = state.Token
			return false, nil
		}
		if refused && f.stepUp {
			f.reason = fmt.Errorf("the scopes %q are needed", shownLine(strings.Join(f.scopes, " ")))
			return false, nil
		}
		if !refused {
			token = state.Token
		}
		if state.Token.Refresh == "" {
			f.reason = cmp.Or(f.reason, errors.New("the access token was refused"))
			return false, nil
		}
		fresh, err := f.refresh(ctx, state)
		if fresh != nil {
			token = fresh
		}
		return state.Token != f.previous, err
	})
	return token, err
}

// refresh refreshes the token of a state. It returns nil without an error if the authorization server refuses that.
func (f *oauthFlow) refresh(ctx context.Context, state *OAuthState) (*OAuthToken, error) {
	old := state.Token
	if f.site = f.found; f.site == nil || f.depth == toAuthorise {
		if err := f.discover(ctx); err != nil {
			return nil, err
		}
	}
	if old.Issuer != f.site.Issuer {
		f.reason = fmt.Errorf("it has another authorization server now, %s", shownURL(f.site.Issuer))
		state.Token = nil
		return nil, nil
	}
	client, err := f.chooseClient()
	if err != nil {
		return nil, err
	}
	fresh, err := f.requestToken(ctx, client, url.Values{
		"grant_type":    {"refresh_token"},
		"refresh_token": {old.Refresh},
	}, old.Scopes)
	if err == nil {
		fresh.Refresh = cmp.Or(fresh.Refresh, old.Refresh)
		state.Token = fresh
		return fresh, nil
	}
	var refusal *OAuthError
	if !errors.As(err, &refusal) || refusal.Status != http.StatusBadRequest && refusal.Status != http.StatusUnauthorized {
		return nil, err
	}
	if f.isForgotten(err) {
		delete(state.Clients, f.site.Issuer)
	}
	spent := *old
	spent.Refresh = ""
	state.Token = &spent
	f.reason = err
	return nil, nil
}

// Login runs a flow now, whatever token there is: with a person, or with Grant.
func (o *OAuth) Login(ctx context.Context) (*OAuthToken, error) {
	o.once.Do(o.setUp)
	o.mu.Lock()
	used := o.token
	clear(o.stepped)
	o.mu.Unlock()
	if err := o.await(ctx, &oauthFlow{OAuth: o, depth: toLogin, used: used}); err != nil {
		return nil, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	token := *o.token
	return &token, nil
}

// Close ends a flow that is running, and waits for its end.
func (o *OAuth) Close() error {
	o.once.Do(o.setUp)
	o.mu.Lock()
	o.closed = true
	o.mu.Unlock()
	o.end()
	o.work.Wait()
	return nil
}

// CloseIdleConnections is for http.Client.
func (o *OAuth) CloseIdleConnections() {
	o.once.Do(o.setUp)
	if base, ok := o.Base.(interface{ CloseIdleConnections() }); ok {
		base.CloseIdleConnections()
	}
}

// 8. What all of this goes through.

func withOAuthTime(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, oauthTime, fmt.Errorf("no answer within %v", oauthTime))
}

// getMetadata reads a JSON object from the first URL that has one, and returns that URL.
func (f *oauthFlow) getMetadata(ctx context.Context, urls []string, value any) (at string, err error) {
	var failures []error
	for _, at = range urls {
		status, body, err := f.call(ctx, http.MethodGet, at, make(http.Header), nil)
		switch {
		case err != nil:
			return at, err
		case status == http.StatusOK && bytes.HasPrefix(bytes.TrimSpace(body), []byte("{")):
			if err := decodeObject(body, value); err != nil {
				return at, fmt.Errorf("%s: %w", shownURL(at), err)
			}
			return at, nil
		case status == http.StatusOK: // a page for whatever is asked for
			failures = append(failures, fmt.Errorf("%s answers with something else than a JSON object", shownURL(at)))
		case status/100 == 4:
			failures = append(failures, fmt.Errorf("%s answers %d", shownURL(at), status))
		default:
			return at, fmt.Errorf("%s answers %d", shownURL(at), status)
		}
	}
	return at, errors.Join(failures...)
}

// call sends a request of the flow, and returns the answer to it.
func (f *oauthFlow) call(ctx context.Context, method, to string, header http.Header, body []byte) (
	status int, answer []byte, err error) {
	defer func() {
		var of *url.Error
		if errors.As(err, &of) { // it has the whole URL
			err = of.Err
		}
		if err != nil {
			err = fmt.Errorf("%s %s: %w", method, shownURL(to), err)
		}
	}()
	if err := f.checkURL(to); err != nil {
		return 0, nil, err
	}
	request, err := http.NewRequestWithContext(f.observe(ctx), method, to, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	request.Header = header
	header.Set("Accept", "application/json")
	client := &http.Client{Transport: f.Base, CheckRedirect: func(next *http.Request, via []*http.Request) error {
		if method != http.MethodGet || len(via) > oauthRedirects || !sameOAuthOrigin(next.URL, to) {
			return fmt.Errorf("it redirects to %s, which is not followed", shownURL(next.URL.String()))
		}
		return nil
	}}
	response, err := client.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	answer, err = io.ReadAll(io.LimitReader(response.Body, maxOAuthBody+1))
	if err == nil && len(answer) > maxOAuthBody {
		err = fmt.Errorf("the answer is longer than %d bytes", maxOAuthBody)
	}
	return response.StatusCode, answer, err
}

// checkURL refuses a URL that no secret may go to.
func (f *oauthFlow) checkURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return fmt.Errorf("%q is not a URL of http or https", shownLine(text))
	case u.Scheme == "http" && !isLoopbackName(u.Hostname()):
		return fmt.Errorf("%s is not encrypted: https is needed", shownURL(text))
	}
	return nil
}

// decodeObject decodes a JSON object. The error holds no value of it.
func decodeObject(text []byte, value any) error {
	var wrong *json.UnmarshalTypeError
	if err := json.Unmarshal(text, value); errors.As(err, &wrong) {
		return fmt.Errorf("%s is a JSON %s", cmp.Or(wrong.Field, "the answer"), strings.Fields(wrong.Value)[0])
	} else if err != nil {
		return errors.New("the answer is not valid JSON")
	}
	return nil
}

// readOAuthError reads an error response. What was sent in secret is not shown if it comes back.
func readOAuthError(endpoint string, status int, body []byte, sent url.Values) error {
	var answer struct {
		Code        string `json:"error"`
		Description string `json:"error_description"`
	}
	if err := json.Unmarshal(body, &answer); err != nil || answer.Code == "" {
		return fmt.Errorf("%s answers %d %s", shownURL(endpoint), status, http.StatusText(status))
	}
	for _, name := range []string{"assertion", "client_assertion", "client_secret", "code", "code_verifier",
		"refresh_token", "subject_token"} {
		if secret := sent.Get(name); secret != "" {
			answer.Code = strings.ReplaceAll(answer.Code, secret, "[secret]")
			answer.Description = strings.ReplaceAll(answer.Description, secret, "[secret]")
		}
	}
	return &OAuthError{shownURL(endpoint), status, shownLine(answer.Code), shownLine(answer.Description)}
}

// observe learns from the connection of a request whether the resource is on a private address.
func (o *OAuth) observe(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{})
}

// sameOAuthOrigin reports whether two URLs have the same scheme, host and port.
func sameOAuthOrigin(u *url.URL, text string) bool {
	other, err := url.Parse(text)
	return err == nil && originOf(u) == originOf(other)
}

// originOf returns the origin of a URL.
func originOf(u *url.URL) string {
	scheme, port := strings.ToLower(u.Scheme), u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[scheme]
	}
	return scheme + "://" + net.JoinHostPort(strings.ToLower(u.Hostname()), port)
}

// isLoopbackName reports whether a host is this machine in any case.
func isLoopbackName(host string) bool {
	address, err := netip.ParseAddr(host)
	return strings.EqualFold(host, "localhost") || err == nil && address.Unmap().IsLoopback()
}

// shownURL returns a URL without its user, query and fragment, which may be secret.
func shownURL(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return "an invalid URL"
	}
	return shownLine(u.Scheme + "://" + u.Host + u.EscapedPath())
}

// shownLine returns a text of a server as one line of at most 300 bytes.
func shownLine(text string) string {
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text, "")), " ")
	if len(text) > 300 {
		text = strings.ToValidUTF8(text[:297], "") + "…"
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 {
			return -1
		}
		return r
	}, text)
}

func (t *OAuthToken) issuer() string {
	if t == nil {
		return ""
	}
	return t.Issuer
}

func closeBody(r *http.Request) {
	if r.Body != nil {
		r.Body.Close()
	}
}
