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

// OAuth is an http.RoundTripper that authorises the requests to one protected server, the resource
// (MCP 2026-07-28, authorization). It sends each request with an access token. Where the server
// refuses that (401, or 403 insufficient_scope), OAuth gets another token and sends the request
// again, which needs the request's GetBody.
//
// Getting a token is a flow. The chapters of this file tell what happens in it, in this order:
//
//  1. The server refuses a request with a challenge.
//  2. A flow begins: a login, in four steps.
//  3. The metadata of the resource names the authorization server.
//  4. The metadata of the authorization server names its endpoints.
//  5. The client is known there, or is registered.
//  6. The person agrees, and the browser brings back a code.
//  7. The token endpoint gives a token for the code. Chapter 1 sends the request with it.
//  8. A token that expires is refreshed, without a person.
//  9. One flow runs at a time, and what it gets is stored.
//  10. A program logs in without a request, logs out, and closes.
//
// Set the exported fields before the first request.
type OAuth struct {
	Resource string            // URL of the protected server; other origins get no token
	Base     http.RoundTripper // makes all requests, as an OAuthGuard; nil: http.DefaultTransport

	Client      OAuthClient // registered beforehand, with its Issuer; empty ID: no such client
	MetadataURL string      // of the Client ID Metadata Document; empty: no such document
	ClientName  string      // for a registration
	ExtraScopes []string    // requested besides those that the server names

	// Grant returns the parameters of a token request that needs no person. Nil: the authorization
	// code flow.
	Grant func(ctx context.Context, as *AuthorizationServer, resource string) (url.Values, error)
	// Assert returns a client assertion for an audience, for clients whose AuthMethod is
	// private_key_jwt.
	Assert func(audience string) (string, error)
	// Listen prepares to ask the person. redirectURI is the redirect URI of the client's
	// registration. If it is empty, Listen chooses one. A nil Listen means that nobody can be
	// asked: a flow that needs a person ends with a *LoginError.
	Listen func(ctx context.Context, redirectURI string) (Redirect, error)
	// Store keeps tokens and registered clients from one run to the next. Nil: in memory.
	Store OAuthStore
	// Secret is told each secret when it comes into being: tokens, codes, verifiers, and the
	// secrets of clients.
	Secret func(text string)

	mu         sync.Mutex  // guards the following; never held across I/O or a callback
	loaded     bool        // the token comes from the store, or is newer
	token      *OAuthToken // nil if there is none; what it points to never changes
	loginToken *OAuthToken // the token of the last login, until the resource accepts it, or nil
	flow       *oauthFlow  // the running flow, or nil
	memory     OAuthStore  // in place of a Store; nil before the first flow
	closed     bool
}

// Redirect receives the person's browser, which the authorization server sends back. A flow calls
// its methods from one goroutine: URI and Ask, perhaps a second time, and Close at the end in any
// case.
type Redirect interface {
	URI() string // the redirect_uri
	// Ask asks the person to open the URL, and returns the parameters of the authorization
	// response. If ctx ends before, it returns the cause of ctx.
	Ask(ctx context.Context, authorizationURL string) (url.Values, error)
	Close(err error) // at the end of the flow, with its error; nil: there is a token
}

// OAuthStore keeps the state of one resource. One goroutine at a time calls its methods. A flow
// that reads the state to change it holds the lock meanwhile. It does so also while it refreshes a
// token, which takes seconds.
type OAuthStore interface {
	// Lock keeps other processes from Load and Save until unlock. It waits for a process that has
	// the lock, until ctx ends.
	Lock(ctx context.Context) (unlock func(), err error)
	Load() (*OAuthState, error) // an empty state if there is none
	Save(*OAuthState) error
}

const (
	oauthEarly    = 30 * time.Second // a token is refreshed so long before it expires
	oauthAttempts = 3                // of one request, each with another token
	offlineAccess = "offline_access" // the scope that requests a refresh token
	accessDenied  = "access_denied"  // the error of a login that the person has denied
)

// 1. The server refuses a request with a challenge.

// RoundTrip sends a request with an access token. An error that comes from a flow is an
// *AuthorizationError.
func (o *OAuth) RoundTrip(r *http.Request) (*http.Response, error) {
	isOther := originOf(r.URL.String()) != originOf(o.Resource)
	if isOther || r.Header.Get("Authorization") != "" {
		return o.base().RoundTrip(r)
	}
	// A body that cannot be read again is gone with the first attempt.
	canRepeat := r.GetBody != nil || r.Body == nil || r.Body == http.NoBody
	f := &oauthFlow{OAuth: o, purpose: toRefresh}
	for attempt := 1; ; attempt++ {
		token, err := o.awaitToken(r.Context(), f)
		if err != nil {
			closeBody(r)
			return nil, err
		}
		response, err := o.send(r, token, attempt > 1)
		if err != nil {
			return nil, err
		}
		if !canRepeat || attempt == oauthAttempts {
			return response, nil
		}
		f = f.afterRefusal(response, token)
		if f == nil {
			return response, nil
		}
		discardBody(response)
	}
}

// base returns the round tripper that makes the requests.
func (o *OAuth) base() http.RoundTripper { return cmp.Or(o.Base, http.DefaultTransport) }

// send sends a copy of a request with a token. If the token is nil, the request is sent without
// one, and a server that needs no token answers it.
func (o *OAuth) send(r *http.Request, token *OAuthToken, isRepeated bool) (*http.Response, error) {
	// A round tripper must not change the request that it is given.
	sent := r.Clone(r.Context())
	if isRepeated && r.GetBody != nil {
		body, err := r.GetBody()
		if err != nil {
			return nil, err
		}
		sent.Body = body
	}
	if token != nil {
		sent.Header.Set("Authorization", token.Type+" "+token.Access)
	}
	return o.base().RoundTrip(sent)
}

// afterRefusal returns the flow that gets a token in place of the token that a response refuses. It
// returns nil if the response is no refusal, or if another token is of no use.
//
// A request is sent at most three times: with the token at hand; with a refreshed token; with the
// token of a new login. If a server refuses the token of a new login, another login is of no use,
// to this request and to later ones, unless the server asks for more scopes.
func (f *oauthFlow) afterRefusal(response *http.Response, token *OAuthToken) *oauthFlow {
	next := &oauthFlow{
		OAuth:           f.OAuth,
		purpose:         toReplace,
		refused:         token,
		isSecondRefusal: f.purpose == toReplace,
	}
	isRefusal := next.readChallenge(response)
	if !isRefusal {
		f.OAuth.noteAccepted(response, token)
		return nil
	}
	if f.OAuth.isOfNewLogin(token) && !next.isStepUp {
		return nil
	}
	return next
}

// noteAccepted notes that the resource has accepted a token, unless the response refuses the
// request for another reason.
func (o *OAuth) noteAccepted(response *http.Response, token *OAuthToken) {
	if response.StatusCode/100 != 2 {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if token == o.loginToken {
		o.loginToken = nil
	}
}

// isOfNewLogin reports whether this very token came from the last login, and was never accepted.
// Another request may have begun that login.
func (o *OAuth) isOfNewLogin(token *OAuthToken) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return token != nil && token == o.loginToken
}

// readChallenge reads the demands of a server that refuses a token (RFC 9728, 5.1; RFC 6750, 3),
// and reports whether a flow can meet them.
func (f *oauthFlow) readChallenge(response *http.Response) bool {
	challenges := parseChallenges(response.Header.Values("WWW-Authenticate"))
	// Some servers answer 401 without any challenge, which counts as a challenge of OAuth.
	isOurs := len(challenges) == 0
	code := ""
	for _, c := range challenges {
		if c.scheme == "bearer" || c.scheme == "dpop" {
			isOurs = true
			code = cmp.Or(code, c.params["error"])
			f.metadataURL = cmp.Or(f.metadataURL, c.params["resource_metadata"])
			f.neededScopes = union(f.neededScopes, strings.Fields(c.params["scope"]))
		}
	}
	if code == "insufficient_scope" && f.refused != nil {
		// It is of no use to ask a person for the same scopes again: a server that is never content
		// would cause endless logins.
		f.isStepUp = !containsAll(f.refused.RequestedScopes, f.neededScopes)
	}
	switch response.StatusCode {
	case http.StatusUnauthorized:
		return isOurs
	case http.StatusForbidden:
		return f.isStepUp
	}
	return false
}

// 2. A flow begins: a login, in four steps.

// oauthPurpose says why a flow begins. A flow does more for a later purpose than for an earlier
// one. So its result also serves the requests that wait for a flow with an earlier purpose.
type oauthPurpose int

const (
	toRefresh oauthPurpose = iota // the token at hand, if it is about to expire
	toReplace                     // a token that the resource has refused, or a missing token
	toLogin                       // whatever token is at hand
)

// oauthFlow gets a token for a request, and for all requests that wait with this one. Whoever makes
// a flow sets the first fields, and gives the flow to awaitToken. From then on the fields belong to
// the goroutine of the flow. Others wait until done is closed, and read result and err then.
type oauthFlow struct {
	*OAuth          // its unexported fields are written with its name, such as f.OAuth.token
	oauthDemand     // of the resource
	purpose         oauthPurpose
	refused         *OAuthToken // by the resource; nil if there was no token
	isSecondRefusal bool        // of the same request: another refresh is of no use

	end    context.CancelFunc
	done   chan struct{} // closed at the end
	result *OAuthToken   // set before done is closed, like err
	err    error

	state     *OAuthState    // the content of the store when it was last read
	metadata  *oauthMetadata // nil before readMetadata
	isDynamic bool           // the client is registered dynamically
	obtained  *OAuthToken    // set as soon as there is a token, even if it cannot be stored then
	loggedIn  bool           // the obtained token comes from a login
	reason    error          // why the stored token cannot be used
	secrets   []string       // for strings.NewReplacer: each secret, followed by its mark
}

// oauthDemand is what a resource demands with a challenge.
type oauthDemand struct {
	metadataURL  string // of the protected resource metadata; empty: at a well-known address
	neededScopes []string
	isStepUp     bool // the refused token does not have the needed scopes
}

// oauthMetadata has the metadata of the resource and of its authorization server.
type oauthMetadata struct {
	AuthorizationServer
	resource       string   // the identifier of the resource, as its metadata has it
	resourceScopes []string // the scopes that the resource supports
	isAssumed      bool     // there is no metadata: the endpoints are those of revision 2025-03-26
}

// logIn gets a token from the beginning, by Grant or from a person, and stores it.
func (f *oauthFlow) logIn(ctx context.Context) error {
	if f.metadata == nil {
		err := f.readMetadata(ctx)
		if err != nil {
			return err
		}
	}
	client, err := f.findClient()
	if err != nil {
		return err
	}
	requested := f.scopesToRequest()
	if f.Grant == nil {
		return f.askPerson(ctx, client, requested)
	}
	token, err := f.requestGrant(ctx, client, requested)
	if err != nil {
		return err
	}
	return f.keepLogin(ctx, token, client)
}

// scopesToRequest returns the scopes of an authorization request (MCP 2026-07-28, authorization,
// scope selection strategy and step-up). The challenge says which scopes the request needs. Without
// a challenge, all scopes that the resource supports are requested. A person who has agreed to some
// scopes keeps these when the server wants more.
func (f *oauthFlow) scopesToRequest() []string {
	scopes := f.neededScopes
	if len(scopes) == 0 {
		scopes = f.metadata.resourceScopes
	}
	old := f.state.Token
	if old != nil && isSameIssuer(old.Issuer, f.metadata.Issuer) {
		scopes = union(old.RequestedScopes, old.NeededScopes, scopes)
	}
	scopes = union(f.ExtraScopes, scopes)
	if f.Grant == nil && slices.Contains(f.metadata.ScopesSupported, offlineAccess) {
		scopes = union(scopes, []string{offlineAccess})
	}
	return scopes
}

// 3. The metadata of the resource names the authorization server (RFC 9728).

// protectedResource is the metadata of a resource (RFC 9728, 2), as far as a flow uses it.
type protectedResource struct {
	Resource string   `json:"resource"`
	Issuers  []string `json:"authorization_servers"`
	Scopes   []string `json:"scopes_supported"`
}

// readMetadata reads the metadata of the resource, and then the metadata of the authorization
// server that it names. Both documents are read anew for each flow: after a refusal the resource
// may name another authorization server.
func (f *oauthFlow) readMetadata(ctx context.Context) error {
	err := checkOAuthURL(f.Resource)
	if err != nil {
		return err
	}
	protected, err := f.readResource(ctx)
	if isMissing(err) {
		return f.readMetadataWithout(ctx, err)
	}
	if err != nil {
		return fmt.Errorf("%s does not say where to log in: %w", shownURL(f.Resource), err)
	}
	err = f.checkResource(protected)
	if err != nil {
		return err
	}
	issuer, err := f.chooseIssuer(protected.Issuers)
	if err != nil {
		return err
	}
	server, err := f.readServer(ctx, issuer)
	if isMissing(err) {
		// Servers that check fixed tokens name an issuer as well, often themselves.
		return fmt.Errorf("%w: if the server wants a key, configure a header Authorization", err)
	}
	if err != nil {
		return err
	}
	f.metadata = &oauthMetadata{
		AuthorizationServer: server,
		resource:            protected.Resource,
		resourceScopes:      protected.Scopes,
	}
	return nil
}

// readResource reads the metadata of the resource. A 401 may name its address. Where it does not,
// or names an address where nothing is, the well-known address with the path of the resource is
// tried, then the one of the whole origin (RFC 9728, 3.1).
func (f *oauthFlow) readResource(ctx context.Context) (*protectedResource, error) {
	origin, path := splitURL(f.Resource)
	wellKnown := origin + "/.well-known/oauth-protected-resource"
	urls := []string{wellKnown + path, wellKnown}
	if f.metadataURL != "" {
		urls = slices.Insert(urls, 0, f.metadataURL)
	}
	protected := new(protectedResource)
	err := f.getMetadata(ctx, slices.Compact(urls), protected)
	if err != nil {
		return nil, err
	}
	return protected, nil
}

// checkResource refuses metadata that is not about the resource. The document may be about a folder
// in which the resource is. A document about another resource would make the person give away a
// token for that other resource.
func (f *oauthFlow) checkResource(protected *protectedResource) error {
	origin, path := splitURL(f.Resource)
	itsOrigin, itsPath := splitURL(protected.Resource)
	isOurs := itsOrigin == origin && strings.HasPrefix(path+"/", itsPath+"/") &&
		checkOAuthURL(protected.Resource) == nil
	if isOurs && len(protected.Issuers) > 0 {
		return nil
	}
	advice := ""
	if isSameMachine(protected.Resource, f.Resource) && !isOurs {
		advice = ": use that URL"
	}
	return fmt.Errorf("the protected resource metadata of %s is for %.200q, "+
		"and names %d authorization servers%s",
		shownURL(f.Resource), protected.Resource, len(protected.Issuers), advice)
}

// chooseIssuer returns the authorization server to use of those that the resource names. The choice
// is the client's (RFC 9728, 7.6). An issuer that is configured is the only one that may be used:
// the configuration would be of no use if the resource could name another one.
func (f *oauthFlow) chooseIssuer(issuers []string) (string, error) {
	if f.Client.Issuer == "" {
		return issuers[0], nil
	}
	for _, issuer := range issuers {
		if isSameIssuer(issuer, f.Client.Issuer) {
			return issuer, nil
		}
	}
	return "", f.otherIssuer(f.Client.Issuer, issuers[0])
}

// otherIssuer is the error for a resource that names another authorization server than the one at
// which the client is registered.
func (f *oauthFlow) otherIssuer(ours, named string) error {
	return fmt.Errorf("the client %.200q is registered with %.200q, but the server names %.200q "+
		"now: register a client there, and configure its issuer", f.Client.ID, ours, named)
}

// readMetadataWithout finds the authorization server of a resource that has no metadata, where
// missing is the error of their search. The issuer that is configured takes their place, or the
// issuer of the stored token: perhaps the metadata are missing only now. Without either, the
// resource is taken for a server of revision 2025-03-26: it is its own authorization server, whose
// metadata are at its origin. If they are missing as well, the endpoints are those that this
// revision assumes (MCP 2025-03-26, authorization, 2.3).
func (f *oauthFlow) readMetadataWithout(ctx context.Context, missing error) error {
	origin := originOf(f.Resource)
	issuer := cmp.Or(f.Client.Issuer, origin)
	if f.Client.Issuer == "" && f.state.Token != nil {
		issuer = f.state.Token.Issuer
	}
	server, err := f.readServer(ctx, issuer)
	isItsOwn := isSameIssuer(issuer, origin)
	isAssumed := isMissing(err) && isItsOwn
	if isAssumed {
		err = nil
		server = AuthorizationServer{
			Issuer:                origin,
			AuthorizationEndpoint: origin + "/authorize",
			TokenEndpoint:         origin + "/token",
			RegistrationEndpoint:  origin + "/register",
		}
	}
	if err != nil {
		return fmt.Errorf("%s does not say where to log in (%w), and the metadata of %.200q "+
			"cannot be used: %w", shownURL(f.Resource), missing, issuer, err)
	}
	f.metadata = &oauthMetadata{
		AuthorizationServer: server,
		resource:            f.Resource,
		isAssumed:           isAssumed,
	}
	if isItsOwn {
		// The scopes of such a server are those of the resource. Some refuse a token without them,
		// and do not say which they want.
		f.metadata.resourceScopes = server.ScopesSupported
	}
	return nil
}

// 4. The metadata of the authorization server names its endpoints (RFC 8414, OpenID Connect
// Discovery 1.0).

// readServer reads the metadata of an issuer, and checks the members that the flow relies on.
func (f *oauthFlow) readServer(ctx context.Context, issuer string) (AuthorizationServer, error) {
	var server AuthorizationServer
	origin, path := splitURL(issuer)
	urls := []string{
		origin + "/.well-known/oauth-authorization-server" + path,
		origin + "/.well-known/openid-configuration" + path,
	}
	if path != "" {
		urls = append(urls, origin+path+"/.well-known/openid-configuration")
	}
	err := f.getMetadata(ctx, urls, &server)
	if err == nil {
		err = f.checkServer(&server, issuer)
	}
	if err != nil {
		return AuthorizationServer{}, err
	}
	return server, nil
}

// checkServer refuses metadata with which a token or a code could come into other hands. The issuer
// is compared letter for letter (RFC 8414, 3.3), but for a slash at its end: otherwise a server
// could speak for another one.
func (f *oauthFlow) checkServer(server *AuthorizationServer, issuer string) error {
	if !isSameIssuer(server.Issuer, issuer) {
		advice := ""
		if isSameMachine(server.Issuer, issuer) {
			advice = ": use that name in the URL of the server"
		}
		return fmt.Errorf("the metadata of %.200q is of another issuer, %.200q%s",
			issuer, server.Issuer, advice)
	}
	if f.Grant == nil {
		if !slices.Contains(server.ChallengeMethods, "S256") {
			return fmt.Errorf("%.200q does not support PKCE with S256, "+
				"without which codes can be stolen", issuer)
		}
		err := checkOAuthURL(server.AuthorizationEndpoint)
		if err != nil {
			return err
		}
	}
	return checkOAuthURL(server.TokenEndpoint)
}

// 5. The client is known there, or is registered (RFC 7591).

// findClient returns the client for the authorization server: the configured client, or the client
// with a metadata document, or the client that was registered earlier. The zero client stands for a
// client that is to be registered.
func (f *oauthFlow) findClient() (OAuthClient, error) {
	issuer := f.issuerOfClient()
	here := f.metadata.Issuer
	isFixed := f.Client.ID != "" || f.Grant != nil
	switch {
	case isFixed && issuer != "" && !isSameIssuer(issuer, here):
		// The client's secret is for the server that gave the secret, and for no other server.
		return OAuthClient{}, f.otherIssuer(issuer, here)
	case f.Grant != nil && issuer == "":
		// No person sees where the secret goes, and the resource would choose.
		return OAuthClient{}, fmt.Errorf("a login without a person needs the issuer of its client "+
			"(oauth.issuer): the server names %.200q, which may be anybody", here)
	case isFixed:
		return f.Client, nil
	case f.MetadataURL != "" && f.metadata.ClientMetadataSupported:
		return OAuthClient{ID: f.MetadataURL, RedirectURI: f.Client.RedirectURI}, nil
	}
	f.isDynamic = true
	return f.state.Clients[here], nil
}

// issuerOfClient returns the authorization server at which the configured client is registered. A
// client that is configured without its issuer belongs to the authorization server of its first
// login by a person, which keepLogin stores. It returns "" before this login.
func (f *oauthFlow) issuerOfClient() string {
	if f.Client.Issuer != "" || f.Grant != nil {
		return f.Client.Issuer
	}
	for issuer, client := range f.state.Clients {
		if client.ID == f.Client.ID {
			return issuer
		}
	}
	// Earlier versions stored the token alone.
	if f.state.Token != nil {
		return f.state.Token.Issuer
	}
	return ""
}

// forgetClient answers the question: has the authorization server forgotten the client that was
// registered earlier? It reports whether another client is to be registered in its place. err is
// the refusal of a token request or of an authorization request, or nil before the first of them.
//
// An authorization server that keeps its clients in memory has forgotten them when it starts again.
// Its token endpoint then answers invalid_client, or unauthorized_client: the client goes, and with
// it the refresh token, which was issued to it. Its authorization endpoint shows the error to the
// person, and the browser never comes back. The program does not learn of this. So a person is sent
// there with a new client, unless the resource takes a token of the old one and wants more scopes.
// That a refresh token is not valid does not show that the client is known: some servers look for
// the token first, and only then for the client. The old client stays stored until the login with
// another one has succeeded.
func (f *oauthFlow) forgetClient(err error) bool {
	code := refusalOf(err)
	switch {
	case !f.isDynamic:
		return false
	case code == "invalid_client" || code == "unauthorized_client":
		delete(f.state.Clients, f.metadata.Issuer)
		f.forgetRefreshToken()
		return true
	}
	return err == nil && !f.isStepUp
}

// register registers a client whose browser is sent back to redirectURI. The request names the
// scopes that are then requested: some servers grant a client no others. It names none in a second
// attempt, as some servers know only their own scopes here, and not those of the resource.
func (f *oauthFlow) register(
	ctx context.Context,
	redirectURI string,
	requested []string,
) (OAuthClient, error) {
	if f.metadata.RegistrationEndpoint == "" {
		return OAuthClient{}, fmt.Errorf("%.200q registers no clients: %s",
			f.metadata.Issuer, f.howToConfigure())
	}
	client, err := f.registerWith(ctx, redirectURI, requested)
	code := refusalOf(err)
	mayBeOfScopes := code == "invalid_scope" || code == "invalid_client_metadata"
	if mayBeOfScopes && len(requested) > 0 {
		client, err = f.registerWith(ctx, redirectURI, nil)
		client.AnyScope = true
	}
	switch {
	case err != nil && f.metadata.isAssumed:
		return OAuthClient{}, fmt.Errorf("%s does not say where to log in, and is not itself an "+
			"authorization server: %w: if it wants a key, configure a header Authorization",
			shownURL(f.Resource), err)
	case err != nil:
		return OAuthClient{}, fmt.Errorf("the client is not registered: %w: %s",
			err, f.howToConfigure())
	}
	client.Issuer = f.metadata.Issuer
	client.RedirectURI = redirectURI
	client.Scopes = requested
	return client, nil
}

// registerWith sends one registration request (RFC 7591, 3.1).
func (f *oauthFlow) registerWith(
	ctx context.Context,
	redirectURI string,
	scopes []string,
) (OAuthClient, error) {
	// A program on a person's machine cannot keep a secret (RFC 8252, 8.4). So the client is a
	// public client, which has no secret, where the server permits it.
	method := "none"
	if len(f.metadata.TokenAuthMethods) > 0 &&
		!slices.Contains(f.metadata.TokenAuthMethods, method) {
		method = f.authMethod()
	}
	fields := map[string]any{
		"client_name":                f.ClientName,
		"application_type":           "native",
		"redirect_uris":              []string{redirectURI},
		"grant_types":                []string{"authorization_code", "refresh_token"},
		"response_types":             []string{"code"},
		"token_endpoint_auth_method": method,
	}
	if len(scopes) > 0 {
		fields["scope"] = strings.Join(scopes, " ")
	}
	request, err := json.Marshal(fields)
	if err != nil {
		return OAuthClient{}, err
	}
	var client OAuthClient
	header := http.Header{"Content-Type": {"application/json"}}
	err = f.call(ctx, f.metadata.RegistrationEndpoint, header, request, &client)
	if err == nil && client.ID == "" {
		err = errors.New("the answer has no client_id")
	}
	return client, err
}

// howToConfigure says what helps where a client cannot be registered dynamically.
func (f *oauthFlow) howToConfigure() string {
	text := "register a client there, and configure its ID (oauth.clientId)"
	if f.metadata.ClientMetadataSupported {
		text += ", or the address of a Client ID Metadata Document (oauth.clientMetadataUrl)"
	}
	return text
}

// 6. The person agrees, and the browser brings back a code (RFC 6749, 4.1; RFC 7636; RFC 8707;
// RFC 9207).

// askPerson asks the person to agree, and keeps the token. It registers a client where there is
// none that can be used for this login. If the server turns out to have forgotten a client that was
// registered earlier, the person is asked once more, with a new client.
func (f *oauthFlow) askPerson(
	ctx context.Context,
	client OAuthClient,
	requested []string,
) (err error) {
	err = f.tryStore(ctx)
	if err != nil {
		return err
	}
	if f.forgetClient(nil) {
		client = OAuthClient{}
	}
	redirect, err := f.Listen(ctx, client.RedirectURI)
	if err != nil {
		return err
	}
	// The browser learns how the login has ended when the token is stored.
	defer func() { redirect.Close(f.withoutSecrets(err)) }()
	for {
		mustRegister := f.isDynamic && !client.isFor(redirect.URI(), requested)
		if mustRegister {
			client, err = f.register(ctx, redirect.URI(), requested)
			if err != nil {
				return err
			}
		}
		token, err := f.authorize(ctx, client, redirect, requested)
		if err == nil {
			return f.keepLogin(ctx, token, client)
		}
		isForgotten := !mustRegister && f.forgetClient(err)
		if !isForgotten {
			return err
		}
		client = OAuthClient{}
	}
}

// isFor reports whether a client that was registered earlier can be used for a login: it may ask
// for the scopes, and the port of its redirect URI could be had.
func (c *OAuthClient) isFor(redirectURI string, requested []string) bool {
	mayAsk := c.AnyScope || containsAll(c.Scopes, requested)
	return c.RedirectURI == redirectURI && mayAsk
}

// authorize sends the person to the authorization server, and gets a token for the code that the
// browser brings back. The authorization request has the hash of a verifier, and only the token
// request has the verifier itself: whoever steals the code cannot use it (RFC 7636).
func (f *oauthFlow) authorize(
	ctx context.Context,
	client OAuthClient,
	redirect Redirect,
	requested []string,
) (*OAuthToken, error) {
	verifier := rand.Text() + rand.Text()
	f.tellSecrets(verifier)
	hash := sha256.Sum256([]byte(verifier))
	state := rand.Text()
	address, err := f.authorizationURL(url.Values{
		"response_type":         {"code"},
		"client_id":             {client.ID},
		"redirect_uri":          {redirect.URI()},
		"state":                 {state},
		"code_challenge":        {base64.RawURLEncoding.EncodeToString(hash[:])},
		"code_challenge_method": {"S256"},
		"resource":              {f.metadata.resource},
	}, requested)
	if err != nil {
		return nil, err
	}
	response, err := redirect.Ask(ctx, address)
	if err != nil {
		return nil, err
	}
	err = f.checkResponse(response, state)
	if err != nil {
		return nil, err
	}
	return f.requestToken(ctx, client, requested, url.Values{
		"grant_type":    {"authorization_code"},
		"code":          {response.Get("code")},
		"code_verifier": {verifier},
		"redirect_uri":  {redirect.URI()},
	})
}

// authorizationURL returns the authorization endpoint with the parameters of a request.
func (f *oauthFlow) authorizationURL(parameters url.Values, requested []string) (string, error) {
	if len(requested) > 0 {
		parameters.Set("scope", strings.Join(requested, " "))
	}
	if slices.Contains(requested, offlineAccess) {
		// Without a prompt this scope is ignored (OpenID Connect Core 1.0, 11).
		parameters.Set("prompt", "consent")
	}
	u, err := url.Parse(f.metadata.AuthorizationEndpoint)
	if err != nil {
		return "", err
	}
	// The endpoint may have a query of its own. No parameter may be there twice (RFC 6749, 3.1).
	query := u.Query()
	maps.Copy(query, parameters)
	u.RawQuery = query.Encode()
	return u.String(), nil
}

// checkResponse checks that an authorization response is to this request, and that this
// authorization server has sent it, before anything of it is used or shown.
func (f *oauthFlow) checkResponse(response url.Values, state string) error {
	at, iss := shownURL(f.metadata.AuthorizationEndpoint), response["iss"]
	switch {
	case !slices.Equal(response["state"], []string{state}):
		return fmt.Errorf("the response of %s has another state: it is not to this login", at)
	case len(iss) > 0 && !slices.Equal(iss, []string{f.metadata.Issuer}):
		return fmt.Errorf("the response of %s has another iss: it comes from another issuer", at)
	case len(iss) == 0 && f.metadata.ResponseIssSupported && response.Get("error") == accessDenied:
		// Some servers leave the iss out of a denial. If the denial comes from somebody else, this
		// login fails, as it would without it.
		return &OAuthError{Endpoint: at, Code: accessDenied}
	case len(iss) == 0 && f.metadata.ResponseIssSupported:
		return fmt.Errorf("the response of %s has no iss, which its metadata promises", at)
	case response.Has("error"):
		return &OAuthError{
			Endpoint:    at,
			Code:        f.shown(response.Get("error")),
			Description: f.shown(response.Get("error_description")),
		}
	case response.Get("code") == "":
		return fmt.Errorf("the response of %s has no code", at)
	}
	return nil
}

// 7. The token endpoint gives a token for the code (RFC 6749, 5), or for the parameters that Grant
// returns.

// requestGrant gets a token without a person.
func (f *oauthFlow) requestGrant(ctx context.Context, client OAuthClient, requested []string) (
	*OAuthToken, error) {
	form, err := f.Grant(ctx, &f.metadata.AuthorizationServer, f.metadata.resource)
	if err != nil {
		return nil, err
	}
	if len(requested) > 0 {
		form.Set("scope", strings.Join(requested, " "))
	}
	return f.requestToken(ctx, client, requested, form)
}

// requestToken sends a token request. All requested scopes are granted unless the answer names the
// granted scopes (RFC 6749, 5.1).
func (f *oauthFlow) requestToken(
	ctx context.Context,
	client OAuthClient,
	requested []string,
	form url.Values,
) (*OAuthToken, error) {
	var answer struct {
		Type      string      `json:"token_type"`
		Access    string      `json:"access_token"`
		Refresh   string      `json:"refresh_token"`
		ExpiresIn json.Number `json:"expires_in"` // seconds
		Scope     scopeList   `json:"scope"`
	}
	// The token is for this resource, so it cannot be used at another resource (RFC 8707, 2.2).
	form.Set("resource", f.metadata.resource)
	err := f.post(ctx, f.metadata.TokenEndpoint, client, form, &answer)
	if err != nil {
		return nil, err
	}
	f.tellSecrets(answer.Access, answer.Refresh)
	schemes := map[string]string{"": "Bearer", "bearer": "Bearer", "dpop": "DPoP"}
	scheme := schemes[strings.ToLower(answer.Type)]
	if answer.Access == "" || scheme == "" {
		return nil, fmt.Errorf("%s answers without a token of a known type",
			shownURL(f.metadata.TokenEndpoint))
	}
	if !isHeaderWord(answer.Access) {
		return nil, fmt.Errorf("%s answers with a token that cannot be sent in a header",
			shownURL(f.metadata.TokenEndpoint))
	}
	token := &OAuthToken{
		Issuer:          f.metadata.Issuer,
		Type:            scheme,
		Access:          answer.Access,
		Refresh:         answer.Refresh,
		RequestedScopes: requested,
		GrantedScopes:   requested,
	}
	if len(answer.Scope) > 0 {
		token.GrantedScopes = answer.Scope
	}
	// Some servers send the seconds as a text or with a fraction. A life of centuries does not fit
	// into a time.Duration.
	seconds, _ := answer.ExpiresIn.Float64()
	if seconds > 0 {
		token.ExpiresIn = int(min(max(seconds, 1), math.MaxInt32))
		token.Expiry = time.Now().Add(time.Duration(token.ExpiresIn) * time.Second)
	}
	return token, nil
}

// keepLogin stores the token of a login, and the client that it was issued to. Of a configured
// client only its ID is stored, with the issuer to which it belongs from now on.
func (f *oauthFlow) keepLogin(ctx context.Context, token *OAuthToken, client OAuthClient) error {
	f.obtained = token
	f.loggedIn = true
	return f.updateStore(ctx, func() error {
		f.state.Token = token
		if f.state.Clients == nil {
			f.state.Clients = make(map[string]OAuthClient)
		}
		if !f.isDynamic {
			client = OAuthClient{Issuer: token.Issuer, ID: client.ID}
		}
		f.state.Clients[client.Issuer] = client
		return nil
	})
}

// 8. A token that expires is refreshed, without a person (RFC 6749, 6).
//
// A token with a refresh token is refreshed when a request is to be sent shortly before the token
// expires, and when the resource has refused the token for the first time. The
// second of two requests that need a refreshed token at once waits for the flow of the first
// request, and gets its token. If the requests are of two processes, the flow of the second waits
// for the lock of the store, and then finds the refreshed token there.

// errOtherIssuer reports that a token cannot be refreshed, because the resource now names another
// authorization server than the one that issued the token.
var errOtherIssuer = errors.New("the resource names another authorization server")

// isExpiring reports whether a token is to be refreshed before it is sent. A request may take some
// time to reach the server, and the clocks of client and server may differ. So a token is refreshed
// half a minute early; a token with a short life when half of that is over.
func (t *OAuthToken) isExpiring() bool {
	if t == nil || t.Refresh == "" || t.Expiry.IsZero() {
		return false
	}
	early := oauthEarly
	if t.ExpiresIn > 0 {
		early = min(early, time.Duration(t.ExpiresIn)*time.Second/2)
	}
	return time.Until(t.Expiry) < early
}

// useStored tries to do without a login. Afterwards
//
//   - f.obtained is the token to send: that of the store, or a refreshed one.
//   - f.obtained is nil: a login is needed. f.reason says why, if there was a token.
//   - an error ends the flow: the token could not be refreshed, and may still be good.
func (f *oauthFlow) useStored(ctx context.Context) error {
	old := f.state.Token
	if old == nil || f.purpose == toLogin {
		return nil
	}
	// Another process may have stored a newer token since the refused token was read.
	isRefused := f.purpose == toReplace && f.refused != nil && old.Access == f.refused.Access
	isElsewhere := f.Client.Issuer != "" && !isSameIssuer(old.Issuer, f.Client.Issuer)
	switch {
	case isElsewhere:
		// The token stays stored: it is the configuration that may be wrong.
		f.reason = fmt.Errorf("the token is of %.200q, and %.200q is configured",
			old.Issuer, f.Client.Issuer)
		return nil
	case !isRefused && !old.isExpiring():
		f.obtained = old
		return nil
	case isRefused && f.isStepUp:
		// The next login requests these scopes, too, also if another process begins it.
		changed := *old
		changed.NeededScopes = union(old.NeededScopes, f.neededScopes)
		f.state.Token = &changed
		f.reason = fmt.Errorf("the scopes %.200q are needed", strings.Join(f.neededScopes, " "))
		return nil
	case old.Refresh == "" || f.isSecondRefusal:
		f.reason = errors.New("the token was refused")
		return nil
	}
	return f.refreshStored(ctx, old)
}

// refreshStored refreshes the token of the store. A login follows if the authorization server
// refuses that, or if the resource names another authorization server. The refresh token is kept
// for the next time unless the refusal is one of OAuth: the server may be in trouble, or a proxy
// may answer in its place.
func (f *oauthFlow) refreshStored(ctx context.Context, old *OAuthToken) error {
	token, err := f.refresh(ctx, old)
	switch {
	case err == nil:
		f.obtained = token
		f.state.Token = token
	case err == errOtherIssuer:
		// The resource no longer accepts a token of the earlier authorization server.
		f.state.Token = nil
		f.reason = fmt.Errorf("the authorization server is %.200q now", f.metadata.Issuer)
	case f.purpose == toRefresh:
		// The old token is sent all the same: the clock may be wrong, and the resource decides.
		f.obtained = old
	case f.metadata != nil && isRefusedForGood(err):
		// There are metadata, so it is the token endpoint that refuses.
		f.reason = err
		if refusalOf(err) != "" {
			f.forgetRefreshToken()
			f.forgetClient(err)
		}
	default:
		return err
	}
	return nil
}

// refresh returns a refreshed token. It returns errOtherIssuer if the resource now names another
// authorization server than the issuer of the old token.
func (f *oauthFlow) refresh(ctx context.Context, old *OAuthToken) (*OAuthToken, error) {
	err := f.readMetadata(ctx)
	if err != nil {
		return nil, err
	}
	client, err := f.findClient()
	if err != nil {
		return nil, err
	}
	if !isSameIssuer(old.Issuer, f.metadata.Issuer) {
		return nil, errOtherIssuer
	}
	form := url.Values{"grant_type": {"refresh_token"}, "refresh_token": {old.Refresh}}
	token, err := f.requestToken(ctx, client, old.GrantedScopes, form)
	if err != nil {
		return nil, err
	}
	token.RequestedScopes = old.RequestedScopes
	token.NeededScopes = old.NeededScopes
	// Some servers give another refresh token each time. At other servers the first refresh token
	// stays valid.
	if token.Refresh == "" {
		token.Refresh = old.Refresh
	}
	return token, nil
}

// forgetRefreshToken leaves the stored token without its refresh token, which is not used again.
func (f *oauthFlow) forgetRefreshToken() {
	if f.state.Token != nil {
		changed := *f.state.Token
		changed.Refresh = ""
		f.state.Token = &changed
	}
}

// 9. One flow runs at a time, and what it gets is stored.

// awaitToken returns the token to send next. It returns nil if there is no token and the resource
// has not asked for one. Where a flow is needed, awaitToken starts f, or waits for the running
// flow. A flow goes on when ctx ends: other requests may wait for the flow, and a person who is
// asked may still log in, for the next request.
func (o *OAuth) awaitToken(ctx context.Context, f *oauthFlow) (*OAuthToken, error) {
	for {
		running, token, err := o.startFlow(f)
		if running == nil {
			return token, err
		}
		select {
		case <-running.done:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		if running.purpose >= f.purpose {
			return running.result, running.err
		}
	}
}

// startFlow returns the flow to wait for, which may be f. It returns nil, and the token, if no flow
// is needed.
func (o *OAuth) startFlow(f *oauthFlow) (*oauthFlow, *OAuthToken, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	// The token at hand may do for a request that has not been sent yet. It may also do after a
	// refusal, if another request has got a new token meanwhile.
	tokenMayDo := f.purpose == toRefresh || f.purpose == toReplace && o.token != f.refused
	switch {
	case o.closed:
		return nil, nil, &AuthorizationError{net.ErrClosed}
	case tokenMayDo && o.loaded && !o.token.isExpiring():
		return nil, o.token, nil
	case o.flow == nil:
		ctx, cancel := context.WithCancel(context.Background())
		f.end = cancel
		f.done = make(chan struct{})
		o.flow = f
		go f.run(ctx)
	}
	return o.flow, nil, nil
}

// run runs a flow, on a goroutine of its own. It returns when the flow has a token or an error, or
// soon after Close, which waits for its return.
func (f *oauthFlow) run(ctx context.Context) {
	defer close(f.done)
	defer f.end()
	err := f.obtain(ctx)
	o := f.OAuth
	o.mu.Lock()
	defer o.mu.Unlock()
	o.flow = nil
	if f.obtained != nil || err == nil {
		o.loaded = true
		o.token = f.obtained
	}
	if f.loggedIn {
		o.loginToken = f.obtained
	}
	f.result = o.token
	// A request whose token could not be refreshed early is sent with the token at hand.
	isHarmless := f.purpose == toRefresh && o.loaded
	if err != nil && !isHarmless {
		f.err = &AuthorizationError{f.withoutSecrets(err)}
	}
}

// obtain takes the stored token, or refreshes the stored token, or logs in. The store is locked
// while a token is refreshed, and not while a person is asked.
func (f *oauthFlow) obtain(ctx context.Context) error {
	err := f.updateStore(ctx, func() error { return f.useStored(ctx) })
	if err != nil || f.obtained != nil || f.purpose == toRefresh {
		return err
	}
	// A login that cannot be made is not offered.
	err = checkOAuthURL(f.Resource)
	if err != nil {
		return err
	}
	if f.Grant == nil && f.Listen == nil {
		return &LoginError{f.Resource, f.reason, f.oauthDemand}
	}
	return f.logIn(ctx)
}

// updateStore locks the store, reads its state, calls change, and saves the state if change has put
// another token into it.
func (f *oauthFlow) updateStore(ctx context.Context, change func() error) error {
	store := f.OAuth.store()
	unlock, err := store.Lock(ctx)
	if err != nil {
		return fmt.Errorf("the stored tokens: %w", err)
	}
	defer unlock()
	f.state, err = store.Load()
	if err != nil {
		return fmt.Errorf("the stored tokens: %w", err)
	}
	old := f.state.Token
	if old != nil {
		f.tellSecrets(old.Access, old.Refresh)
	}
	err = change()
	if f.state.Token == old {
		return err
	}
	// A refreshed token is saved before it is used: the old refresh token may be dead by now.
	f.state.Resource = f.Resource
	saveErr := store.Save(f.state)
	if saveErr != nil {
		return saveErr
	}
	return err
}

// store returns where the state is kept.
func (o *OAuth) store() OAuthStore {
	if o.Store != nil {
		return o.Store
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.memory == nil {
		o.memory = newOAuthMemory()
	}
	return o.memory
}

// oauthMemory is the OAuthStore of a program that sets none, for one run.
type oauthMemory struct {
	turn  chan struct{} // one slot, taken by Lock
	state OAuthState    // whoever has the turn may use it
}

func newOAuthMemory() *oauthMemory { return &oauthMemory{turn: make(chan struct{}, 1)} }

// Lock is OAuthStore.Lock.
func (m *oauthMemory) Lock(ctx context.Context) (unlock func(), err error) {
	select {
	case m.turn <- struct{}{}:
		return func() { <-m.turn }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Load is OAuthStore.Load. Its caller changes what it gets, and goes on to read it after unlock.
func (m *oauthMemory) Load() (*OAuthState, error) {
	copied := m.state
	copied.Clients = maps.Clone(m.state.Clients)
	return &copied, nil
}

// Save is OAuthStore.Save.
func (m *oauthMemory) Save(state *OAuthState) error {
	m.state = *state
	m.state.Clients = maps.Clone(state.Clients)
	return nil
}

// tryStore saves the state as it is: a person should not log in for a token that cannot be stored.
func (f *oauthFlow) tryStore(ctx context.Context) error {
	return f.updateStore(ctx, func() error {
		f.state.Resource = f.Resource
		return f.OAuth.store().Save(f.state)
	})
}

// 10. A program logs in without a request, logs out, and closes.

// WithListen returns an OAuth for logins beside o, with the exported fields of o but for Listen. It
// has the store of o, where o finds the token of a login when the resource refuses its next
// request. So a program can log in outside of its requests.
func (o *OAuth) WithListen(listen func(context.Context, string) (Redirect, error)) *OAuth {
	return &OAuth{
		Resource:    o.Resource,
		Base:        o.Base,
		Client:      o.Client,
		MetadataURL: o.MetadataURL,
		ClientName:  o.ClientName,
		ExtraScopes: o.ExtraScopes,
		Grant:       o.Grant,
		Assert:      o.Assert,
		Listen:      listen,
		Store:       o.store(),
		Secret:      o.Secret,
	}
}

// Login runs a flow now, whatever token there is: with a person, or with Grant. needed is the error
// of the request that needs the login, and knows what the resource demands. If it is nil, Login
// asks the resource.
func (o *OAuth) Login(ctx context.Context, needed *LoginError) (*OAuthToken, error) {
	f := &oauthFlow{OAuth: o, purpose: toLogin}
	if needed != nil {
		f.oauthDemand = needed.demand
	} else {
		f.requestChallenge(ctx)
	}
	token, err := o.awaitToken(ctx, f)
	if err != nil {
		return nil, err
	}
	// The caller may change the token that it gets.
	copied := *token
	return &copied, nil
}

// requestChallenge sends a request without a token, and reads the challenge of the refusal. If the
// server does not refuse the request, the flow looks for the metadata at a well-known address.
func (f *oauthFlow) requestChallenge(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, oauthTime)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, f.Resource, nil)
	if err != nil {
		return
	}
	r.Header.Set("Accept", "application/json, text/event-stream")
	response, err := f.base().RoundTrip(r)
	if err != nil {
		return
	}
	f.readChallenge(response)
	response.Body.Close()
}

// Revoke makes the authorization server revoke the stored token with its refresh token (RFC 7009).
// It reports false if there is no token, or if the server revokes none. It returns true and an
// error if the server has revoked the refresh token alone: the access token then lives until it
// expires. Both stay in the store, from which the program removes them afterwards, whatever Revoke
// returns.
func (o *OAuth) Revoke(ctx context.Context) (bool, error) {
	f := &oauthFlow{OAuth: o}
	isRevoked := false
	err := f.updateStore(ctx, func() (err error) {
		isRevoked, err = f.revoke(ctx)
		return err
	})
	return isRevoked, f.withoutSecrets(err)
}

// revoke asks the server that has issued the stored token, whatever the resource names now. The
// refresh token goes first: with it the server revokes the access tokens as well, if it can.
func (f *oauthFlow) revoke(ctx context.Context) (bool, error) {
	token := f.state.Token
	if token == nil {
		return false, nil
	}
	server, err := f.readServer(ctx, token.Issuer)
	if err != nil || server.RevocationEndpoint == "" {
		return false, err
	}
	f.metadata = &oauthMetadata{AuthorizationServer: server}
	client, err := f.findClient()
	if err != nil {
		return false, err
	}
	if token.Refresh != "" {
		err = f.revokeToken(ctx, client, token.Refresh, "refresh_token")
		if err != nil {
			return false, err
		}
	}
	err = f.revokeToken(ctx, client, token.Access, "access_token")
	return err == nil || token.Refresh != "", err
}

// revokeToken asks for the revocation of one token. The official SDK for Python refuses a form
// without client_secret, also of a client that has no secret or sends it in a header. An empty one
// says no more than a missing one (RFC 6749, 2.3.1), so the form is sent again with that.
func (f *oauthFlow) revokeToken(
	ctx context.Context,
	client OAuthClient,
	token string,
	kind string,
) error {
	form := url.Values{"token": {token}, "token_type_hint": {kind}}
	err := f.post(ctx, f.metadata.RevocationEndpoint, client, form, nil)
	if refusalOf(err) == "invalid_request" && !form.Has("client_secret") {
		form.Set("client_secret", "")
		err = f.post(ctx, f.metadata.RevocationEndpoint, client, form, nil)
	}
	return err
}

// Close ends a flow that is running, and waits for its end.
func (o *OAuth) Close() error {
	o.mu.Lock()
	// No flow begins from here on.
	o.closed = true
	f := o.flow
	o.mu.Unlock()
	if f != nil {
		f.end()
		<-f.done
	}
	return nil
}

// CloseIdleConnections closes the idle connections of Base; http.Client calls it.
func (o *OAuth) CloseIdleConnections() {
	(&http.Client{Transport: o.Base}).CloseIdleConnections()
}
