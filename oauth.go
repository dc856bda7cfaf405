// oauth.go - OAuth 2.1 for HTTP requests to a protected server.
// Needs: Go 1.25.
// SPDX-License-Identifier: 0BSD

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
	"maps"
	"math"
	"net"
	"net/http"
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
	Resource string            // URL of the protected server; requests to other origins get no token
	Base     http.RoundTripper // makes all requests, as an OAuthGuard does safely; nil: http.DefaultTransport

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

	memory OAuthState // in place of a Store; used by flows alone

	mu     sync.Mutex  // guards the following; never held across I/O or a callback
	loaded bool        // the token is from the store, or newer
	token  *OAuthToken // nil if there is none; never changed
	flow   *oauthFlow  // that is running, or nil
	closed bool
}

// Redirect is where the authorization server sends the person's browser back to.
type Redirect interface {
	URI() string // the redirect_uri
	// Ask has the person open the URL, and returns the parameters of the authorization response, or the cause of ctx.
	Ask(ctx context.Context, authorizationURL string) (url.Values, error)
	Close(err error) // at the end of the flow, with its error; nil: there is a token
}

// OAuthStore keeps the state of one resource. Its methods are called by one goroutine at a time.
type OAuthStore interface {
	// Lock keeps other processes from Load and Save until unlock. It waits for one that has the lock, until ctx ends.
	Lock(ctx context.Context) (unlock func(), err error)
	Load() (*OAuthState, error) // an empty state if there is none
	Save(*OAuthState) error
}

const (
	oauthEarly    = 30 * time.Second // that a token is refreshed before it expires
	offlineAccess = "offline_access" // the scope that asks for a refresh token
)

// 1. The server refuses a request, with a challenge.

// RoundTrip sends a request with an access token. An error that comes from the flow is an *AuthorizationError.
func (o *OAuth) RoundTrip(r *http.Request) (*http.Response, error) {
	base := cmp.Or(o.Base, http.DefaultTransport)
	if r.Header.Get("Authorization") != "" || originOf(r.URL.String()) != originOf(o.Resource) {
		return base.RoundTrip(r)
	}
	f := &oauthFlow{OAuth: o, depth: toRefresh}
	for repeats := 0; ; repeats++ {
		token, err := o.await(r.Context(), f)
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
		canRepeat := r.GetBody != nil || r.Body == nil || r.Body == http.NoBody
		if err != nil || !canRepeat || repeats == 2 {
			return response, err
		}
		refused := f.used
		f = &oauthFlow{OAuth: o, depth: toReplace, used: token, again: repeats > 0}
		if !f.readChallenge(response) || f.again && !f.stepUp && (refused == nil || refused.Refresh == "") {
			return response, nil // also when a token was refused that was new
		}
		_, _ = io.CopyN(io.Discard, response.Body, 4<<10) // so that the connection can be used again
		response.Body.Close()
	}
}

// readChallenge reads what the server asks for that has refused a token (RFC 9728, 5.1; RFC 6750, 3), and reports
// whether a flow can give it. It is no use to ask a person for the same scopes again.
func (f *oauthFlow) readChallenge(response *http.Response) bool {
	all := parseChallenges(response.Header.Values("WWW-Authenticate"))
	isOurs, code := len(all) == 0, ""
	for _, c := range all {
		if c.scheme == "bearer" || c.scheme == "dpop" {
			isOurs = true
			code = cmp.Or(code, c.params["error"])
			f.metadata = cmp.Or(f.metadata, c.params["resource_metadata"])
			f.scopes = union(f.scopes, strings.Fields(c.params["scope"]))
		}
	}
	nobody := f.Grant == nil && f.Listen == nil // whoever logs in then has to know of the scopes
	f.stepUp = code == "insufficient_scope" && f.used != nil &&
		(nobody || len(union(f.used.Asked, f.scopes)) > len(f.used.Asked))
	return response.StatusCode == http.StatusUnauthorized && isOurs ||
		response.StatusCode == http.StatusForbidden && f.stepUp
}

// 2. A flow gets another token. One runs at a time.

// How far a flow goes while nothing before has given a token.
const (
	toRefresh = iota // refresh the token that is about to expire
	toReplace        // refresh the one that the resource has refused, or get another one
	toLogin          // get another one in any case
)

// oauthFlow gets a token for a request, and for those that wait with it.
type oauthFlow struct {
	*OAuth
	depth    int
	used     *OAuthToken // that was refused; nil if there was none
	again    bool        // it was refreshed for this request already
	metadata string      // of the challenge: the URL of the protected resource metadata
	scopes   []string    // of the challenge
	stepUp   bool        // the token does not have them

	end     context.CancelFunc
	done    chan struct{} // closed at the end
	result  *OAuthToken   // set before that, like the following
	err     error
	state   *OAuthState // as the store had it last
	site    *oauthSite  // nil before discovery
	dynamic bool        // the client is one that is registered dynamically
	reason  error       // why the token of the store does not do
	secrets []string    // that must not be shown, each before what stands for it
}

// await returns the token to send next, or nil if there is none and the resource has not asked for one. Where that
// needs a flow, it starts f, or waits for the one that is running, which goes on when ctx ends.
func (o *OAuth) await(ctx context.Context, f *oauthFlow) (*OAuthToken, error) {
	for {
		running, token, err := o.start(f)
		if running == nil {
			return token, err
		}
		select {
		case <-running.done:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		if running.depth >= f.depth {
			return running.result, running.err
		}
	}
}

// start returns the flow to wait for, which may be f; or nil, and the token that makes it needless.
func (o *OAuth) start(f *oauthFlow) (*oauthFlow, *OAuthToken, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	isNew := f.depth == toRefresh || f.depth == toReplace && o.token != f.used
	switch {
	case o.closed:
		return nil, nil, &AuthorizationError{net.ErrClosed}
	case isNew && o.loaded && !o.token.isExpiring():
		return nil, o.token, nil
	case o.flow == nil:
		var ctx context.Context
		ctx, f.end = context.WithCancel(context.Background())
		f.done = make(chan struct{})
		o.flow = f
		go f.run(ctx)
	}
	return o.flow, nil, nil
}

func (t *OAuthToken) isExpiring() bool {
	return t != nil && t.Refresh != "" && !t.Expiry.IsZero() && time.Until(t.Expiry) < oauthEarly
}

// run is the goroutine of a flow, for whose end Close waits. A token that could not be refreshed before it expires is
// sent all the same: the clock may be wrong, and the server decides.
func (f *oauthFlow) run(ctx context.Context) {
	defer close(f.done)
	defer f.end()
	token, err := f.obtain(ctx)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.flow = nil; token != nil || err == nil {
		f.loaded, f.token = true, token
	}
	if f.result = f.token; err != nil && (f.depth != toRefresh || !f.loaded) {
		f.err = &AuthorizationError{f.withoutSecrets(err)}
	}
}

// obtain goes through all that can give a token. The store is locked while a token is refreshed: of two processes that
// do this at once one finds the token of the other.
func (f *oauthFlow) obtain(ctx context.Context) (token *OAuthToken, err error) {
	err = f.update(ctx, func() (err error) {
		token, err = f.keep(ctx)
		return err
	})
	if token != nil || err != nil || f.depth == toRefresh {
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
	return f.authorise(ctx)
}

// update locks the store, has its state changed, and stores it if it has got another token.
func (f *oauthFlow) update(ctx context.Context, change func() error) error {
	f.state = &f.memory
	if f.Store != nil {
		unlock, err := f.Store.Lock(ctx)
		if err != nil {
			return fmt.Errorf("the stored tokens: %w", err)
		}
		defer unlock()
		if f.state, err = f.Store.Load(); err != nil {
			return fmt.Errorf("the stored tokens: %w", err)
		}
	}
	old := f.state.Token
	if old != nil {
		f.tell(old.Access, old.Refresh)
	}
	err := change()
	if f.Store != nil && f.state.Token != old {
		f.state.Resource = f.Resource
		err = cmp.Or(f.Store.Save(f.state), err)
	}
	return err
}

// 3. The metadata of the resource names its authorization servers (RFC 9728).

// oauthSite is what discovery finds.
type oauthSite struct {
	AuthorizationServer
	resource string   // its identifier, as its metadata has it
	scopes   []string // that it supports
}

func (f *oauthFlow) discover(ctx context.Context) error {
	if err := checkOAuthURL(f.Resource); err != nil {
		return err
	}
	origin, path := splitURL(f.Resource)
	root := origin + "/.well-known/oauth-protected-resource"
	at := slices.Compact([]string{root + path, root})
	if f.metadata != "" {
		at = []string{f.metadata}
	}
	var protected struct {
		Resource string   `json:"resource"`
		Issuers  []string `json:"authorization_servers"`
		Scopes   []string `json:"scopes_supported"`
	}
	if err := f.getMetadata(ctx, at, &protected); err != nil {
		return fmt.Errorf("%s does not say where to log in: %w", shownURL(f.Resource), err)
	}
	thisOrigin, prefix := splitURL(protected.Resource)
	isOurs := thisOrigin == origin && strings.HasPrefix(path+"/", prefix+"/") && checkOAuthURL(protected.Resource) == nil
	if !isOurs || len(protected.Issuers) == 0 {
		return fmt.Errorf("the protected resource metadata of %s is for %.200q, and names %d authorization servers",
			shownURL(f.Resource), protected.Resource, len(protected.Issuers))
	}
	issuer := protected.Issuers[0]
	if slices.Contains(protected.Issuers, f.Client.Issuer) {
		issuer = f.Client.Issuer
	}
	f.site = &oauthSite{resource: protected.Resource, scopes: protected.Scopes}
	return f.readServer(ctx, issuer, &f.site.AuthorizationServer)
}

// 4. The metadata of the authorization server (RFC 8414, OpenID Connect Discovery 1.0).

func (f *oauthFlow) readServer(ctx context.Context, issuer string, as *AuthorizationServer) error {
	origin, path := splitURL(issuer)
	at := []string{origin + "/.well-known/oauth-authorization-server" + path,
		origin + "/.well-known/openid-configuration" + path}
	if path != "" {
		at = append(at, origin+path+"/.well-known/openid-configuration")
	}
	if err := f.getMetadata(ctx, at, as); err != nil {
		return err
	}
	if as.Issuer != issuer {
		return fmt.Errorf("the metadata of %.200q is of another issuer, %.200q", issuer, as.Issuer)
	}
	if f.Grant != nil {
		return checkOAuthURL(as.TokenEndpoint)
	}
	if !slices.Contains(as.ChallengeMethods, "S256") {
		return fmt.Errorf("%.200q does not support PKCE with S256, without which codes can be stolen", issuer)
	}
	return cmp.Or(checkOAuthURL(as.AuthorizationEndpoint), checkOAuthURL(as.TokenEndpoint))
}

// 5. The client was registered beforehand, or has a metadata document, or is registered now (RFC 7591).

// client returns the client for the authorization server. It has no ID if it has to be registered.
func (f *oauthFlow) client() (client OAuthClient, err error) {
	issuer := f.Client.Issuer
	if f.state.Token != nil {
		issuer = cmp.Or(issuer, f.state.Token.Issuer)
	}
	isFixed := f.Client.ID != "" || f.Grant != nil
	switch as := f.site; {
	case isFixed && issuer != "" && issuer != as.Issuer:
		return client, fmt.Errorf("the client %.200q is registered with %.200q, but the server names %.200q now: "+
			"register a client there, and configure its issuer", f.Client.ID, issuer, as.Issuer)
	case isFixed:
		return f.Client, nil
	case f.MetadataURL != "" && as.ClientMetadataSupported:
		return OAuthClient{ID: f.MetadataURL, RedirectURI: f.Client.RedirectURI}, nil
	case as.RegistrationEndpoint == "":
		return client, fmt.Errorf("%.200q registers no clients: register one there, and configure its ID", as.Issuer)
	}
	if f.dynamic = true; f.depth != toLogin { // which also helps where the server has forgotten the client
		client = f.state.Clients[f.site.Issuer]
	}
	return client, nil
}

// register registers a client that is sent back to redirectURI. It names no scopes: some servers know only their own
// here, and not those of the resource.
func (f *oauthFlow) register(ctx context.Context, redirectURI string) (client OAuthClient, err error) {
	method := "none" // what a program on a person's machine holds is no secret (RFC 8252, 8.4)
	if len(f.site.TokenAuthMethods) > 0 && !slices.Contains(f.site.TokenAuthMethods, method) {
		method = f.authMethod()
	}
	request, err := json.Marshal(map[string]any{
		"client_name":                f.ClientName,
		"application_type":           "native",
		"redirect_uris":              []string{redirectURI},
		"grant_types":                []string{"authorization_code", "refresh_token"},
		"response_types":             []string{"code"},
		"token_endpoint_auth_method": method,
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

// authorise gets a token by Grant, or of a person, and stores it.
func (f *oauthFlow) authorise(ctx context.Context) (token *OAuthToken, err error) {
	client, err := f.client()
	if err != nil {
		return nil, err
	}
	scopes := f.scopesToAsk()
	if f.Grant != nil {
		form, failed := f.Grant(ctx, &f.site.AuthorizationServer, f.site.resource)
		if failed != nil {
			return nil, failed
		}
		if len(scopes) > 0 {
			form.Set("scope", strings.Join(scopes, " "))
		}
		token, err = f.requestToken(ctx, client, form, scopes)
	} else {
		redirect, failed := f.Listen(ctx, client.RedirectURI)
		if failed != nil {
			return nil, failed
		}
		defer func() { redirect.Close(f.withoutSecrets(err)) }()
		token, err = f.ask(ctx, &client, redirect, scopes)
	}
	if err != nil {
		return nil, err
	}
	return token, f.update(ctx, func() error {
		if f.state.Token = token; f.dynamic {
			if f.state.Clients == nil {
				f.state.Clients = make(map[string]OAuthClient)
			}
			f.state.Clients[client.Issuer] = client
		}
		return nil
	})
}

// ask has the person agree, and gets a token for the code. A client that the server does not know, or not any more, is
// registered.
func (f *oauthFlow) ask(ctx context.Context, client *OAuthClient, redirect Redirect, scopes []string) (
	token *OAuthToken, err error) {
	isNew := f.dynamic && client.RedirectURI != redirect.URI()
	if isNew {
		if *client, err = f.register(ctx, redirect.URI()); err != nil {
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
	if slices.Contains(scopes, offlineAccess) {
		query.Set("prompt", "consent") // without it this scope is ignored (OpenID Connect Core 1.0, 11)
	}
	u, err := url.Parse(f.site.AuthorizationEndpoint)
	if err != nil {
		return nil, err
	}
	all := u.Query()
	maps.Copy(all, query) // each parameter is there once (RFC 6749, 3.1)
	u.RawQuery = all.Encode()
	response, err := redirect.Ask(ctx, u.String())
	if err == nil {
		err = f.checkResponse(response, state)
	}
	if err != nil {
		return nil, err
	}
	token, err = f.requestToken(ctx, *client, url.Values{
		"grant_type":    {"authorization_code"},
		"code":          {response.Get("code")},
		"code_verifier": {verifier},
		"redirect_uri":  {redirect.URI()},
	}, scopes)
	if f.dynamic && !isNew && refusalOf(err) == "invalid_client" {
		*client = OAuthClient{} // the server has forgotten it
		return f.ask(ctx, client, redirect, scopes)
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
	if t := f.state.Token; t != nil && t.Issuer == f.site.Issuer {
		scopes = union(t.Asked, scopes)
	}
	scopes = union(f.Scopes, scopes)
	if f.Grant == nil && slices.Contains(f.site.ScopesSupported, offlineAccess) {
		scopes = union(scopes, []string{offlineAccess})
	}
	return scopes
}

// checkResponse checks that an authorization response is to this request, and that this authorization server has sent
// it, before anything of it is used or shown.
func (f *oauthFlow) checkResponse(response url.Values, state string) error {
	at, iss := shownURL(f.site.AuthorizationEndpoint), response["iss"]
	switch {
	case !slices.Equal(response["state"], []string{state}):
		return fmt.Errorf("the response of %s has another state: it is not to this login", at)
	case len(iss) > 0 && !slices.Equal(iss, []string{f.site.Issuer}):
		return fmt.Errorf("the response of %s has another iss: it comes from another issuer", at)
	case len(iss) == 0 && f.site.ResponseIssSupported:
		return fmt.Errorf("the response of %s has no iss, which its metadata promises", at)
	case response.Has("error"):
		return &OAuthError{at, 0, f.shown(response.Get("error")), f.shown(response.Get("error_description"))}
	case response.Get("code") == "":
		return fmt.Errorf("the response of %s has no code", at)
	}
	return nil
}

// 7. The token (RFC 6749, 5), and what refreshes it (6).

// requestToken gets a token for which these scopes were asked.
func (f *oauthFlow) requestToken(ctx context.Context, client OAuthClient, form url.Values, asked []string) (
	*OAuthToken, error) {
	var answer struct {
		Type      string      `json:"token_type"`
		Access    string      `json:"access_token"`
		Refresh   string      `json:"refresh_token"`
		ExpiresIn json.Number `json:"expires_in"` // seconds
		Scope     string      `json:"scope"`
	}
	form.Set("resource", f.site.resource)
	if err := f.post(ctx, client, form, &answer); err != nil {
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

// keep returns the token of the store if it can be expected to do, or the one that it is refreshed to, or nil.
func (f *oauthFlow) keep(ctx context.Context) (*OAuthToken, error) {
	old := f.state.Token
	if old == nil || f.depth == toLogin {
		return nil, nil
	}
	refused := f.depth == toReplace && f.used != nil && old.Access == f.used.Access
	changed := *old
	switch {
	case !refused && !old.isExpiring():
		return old, nil
	case refused && f.stepUp: // a login by another process is to ask for these, too
		changed.Asked = union(old.Asked, f.scopes)
		f.state.Token, f.reason = &changed, fmt.Errorf("the scopes %.200q are needed", strings.Join(f.scopes, " "))
		return nil, nil
	case old.Refresh == "" || f.again:
		f.reason = errors.New("the token was refused")
		return nil, nil
	}
	token, err := f.refresh(ctx, old)
	switch code := refusalOf(err); {
	case err == nil:
		f.state.Token = token
	case f.depth == toRefresh:
		return old, err
	case code == "invalid_grant", code == "invalid_client":
		changed.Refresh = ""
		f.state.Token, f.reason, err = &changed, err, nil
		if code == "invalid_client" {
			delete(f.state.Clients, old.Issuer) // the server has forgotten it
		}
	}
	return token, err
}

// refresh refreshes a token. There is none for a token of another authorization server than the resource has now.
func (f *oauthFlow) refresh(ctx context.Context, old *OAuthToken) (*OAuthToken, error) {
	if err := f.discover(ctx); err != nil {
		return nil, err
	}
	client, err := f.client()
	if err != nil {
		return nil, err
	}
	if old.Issuer != f.site.Issuer {
		f.reason = fmt.Errorf("the authorization server is %.200q now", f.site.Issuer)
		return nil, nil
	}
	form := url.Values{"grant_type": {"refresh_token"}, "refresh_token": {old.Refresh}}
	token, err := f.requestToken(ctx, client, form, old.Scopes)
	if err != nil {
		return nil, err
	}
	token.Asked, token.Refresh = old.Asked, cmp.Or(token.Refresh, old.Refresh)
	return token, nil
}

// 8. What can be done without a request.

// Login runs a flow now, whatever token there is: with a person, or with Grant.
func (o *OAuth) Login(ctx context.Context) (*OAuthToken, error) {
	f := &oauthFlow{OAuth: o, depth: toLogin}
	probe, cancel := context.WithTimeout(ctx, oauthTime)
	defer cancel()
	if r, err := http.NewRequestWithContext(probe, http.MethodGet, o.Resource, nil); err == nil {
		if response, err := cmp.Or(o.Base, http.DefaultTransport).RoundTrip(r); err == nil {
			f.readChallenge(response)
			response.Body.Close()
		}
	}
	token, err := o.await(ctx, f)
	if err != nil {
		return nil, err
	}
	copied := *token
	return &copied, nil
}

// Close ends a flow that is running, and waits for its end.
func (o *OAuth) Close() error {
	o.mu.Lock()
	o.closed = true
	f := o.flow
	o.mu.Unlock()
	if f != nil {
		f.end()
		<-f.done
	}
	return nil
}

// CloseIdleConnections is for http.Client.
func (o *OAuth) CloseIdleConnections() { (&http.Client{Transport: o.Base}).CloseIdleConnections() }
