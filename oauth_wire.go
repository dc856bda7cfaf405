// oauth_wire.go - what OAuth sends and reads: challenges, requests of a flow, and errors.
// Needs: Go 1.25.
// SPDX-License-Identifier: 0BSD

package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
)

// OAuthClient is a client as an authorization server knows it (RFC 7591, 3.2.1).
type OAuthClient struct {
	Issuer string `json:"issuer"`
	ID     string `json:"client_id"`
	Secret string `json:"client_secret,omitempty"`

	// AuthMethod is the method by which the client authenticates. If it is empty, a client with a
	// secret uses basic or post, as the server supports it, and a client without a secret none.
	AuthMethod string `json:"token_endpoint_auth_method,omitempty"`
	// RedirectURI is the redirect URI of the registration. If it is empty, any URI will do.
	RedirectURI string `json:"redirect_uri,omitempty"`
	// Scopes are those for which the client was registered dynamically. A server that takes no
	// scopes in a registration grants any scope, and then AnyScope is true.
	Scopes   []string `json:"scopes,omitempty"`
	AnyScope bool     `json:"any_scope,omitempty"`
}

// OAuthToken is an access token with its refresh token (RFC 6749, 5.1). Nobody changes a token once
// it is stored or sent: a flow that has to change a token changes a copy.
type OAuthToken struct {
	Issuer  string `json:"issuer"` // of the authorization server
	Type    string `json:"token_type"`
	Access  string `json:"access_token"`
	Refresh string `json:"refresh_token,omitempty"`

	// The next login requests the RequestedScopes of this login again, and the NeededScopes.
	GrantedScopes   []string `json:"scopes,omitempty"`
	RequestedScopes []string `json:"asked,omitempty"`
	NeededScopes    []string `json:"needed,omitempty"` // named by a challenge since then

	Expiry    time.Time `json:"expiry,omitzero"`      // zero: not known
	ExpiresIn int       `json:"expires_in,omitempty"` // seconds of its life; 0: not known
}

// scopeList is a list of scopes: a text with spaces between them (RFC 6749, 3.3), or an array of
// texts, which some servers send.
type scopeList []string

// UnmarshalJSON is json.Unmarshaler.
func (l *scopeList) UnmarshalJSON(raw []byte) error {
	var text string
	err := json.Unmarshal(raw, &text)
	if err == nil {
		*l = strings.Fields(text)
		return nil
	}
	return json.Unmarshal(raw, (*[]string)(l))
}

// OAuthState is kept for a resource from one run to the next. A client outlives its tokens: it is
// used again where the resource demands more scopes.
type OAuthState struct {
	Resource string                 `json:"resource"`
	Clients  map[string]OAuthClient `json:"clients,omitempty"` // by issuer
	Token    *OAuthToken            `json:"token,omitempty"`
}

// AuthorizationServer is the metadata of an authorization server (RFC 8414, 2), as far as a flow
// uses it. OAuth has checked the issuer and the endpoints to which the flow sends requests.
type AuthorizationServer struct {
	Issuer                  string   `json:"issuer"`
	AuthorizationEndpoint   string   `json:"authorization_endpoint"`
	TokenEndpoint           string   `json:"token_endpoint"`
	RegistrationEndpoint    string   `json:"registration_endpoint"`
	RevocationEndpoint      string   `json:"revocation_endpoint"`
	ScopesSupported         []string `json:"scopes_supported"`
	TokenAuthMethods        []string `json:"token_endpoint_auth_methods_supported"`
	ChallengeMethods        []string `json:"code_challenge_methods_supported"`
	ResponseIssSupported    bool     `json:"authorization_response_iss_parameter_supported"`
	ClientMetadataSupported bool     `json:"client_id_metadata_document_supported"`
}

// AuthorizationError is the error of a request that could not be authorised. The server has not
// acted on it: the request can be sent again after a login, whatever it does.
type AuthorizationError struct{ Err error }

func (e *AuthorizationError) Error() string { return "authorization: " + e.Err.Error() }
func (e *AuthorizationError) Unwrap() error { return e.Err }

// Status returns the HTTP status with which the server refused the request.
func (e *AuthorizationError) Status() int { return http.StatusUnauthorized }

// LoginError reports that a person has to log in, and nobody could be asked. A program can tell the
// person how to log in, by OAuth.Login for example, and then send the request again.
type LoginError struct {
	Resource string      // OAuth.Resource
	Reason   error       // why the kept token cannot be used; nil if none was kept
	demand   oauthDemand // for OAuth.Login
}

func (e *LoginError) Error() string {
	if e.Reason != nil {
		return fmt.Sprintf("%s needs a new login: %v", shownURL(e.Resource), e.Reason)
	}
	return shownURL(e.Resource) + " needs a login"
}

func (e *LoginError) Unwrap() error { return e.Reason }

// IsStepUp reports whether a login was made, and the resource demands more scopes than it has.
func (e *LoginError) IsStepUp() bool { return e.demand.isStepUp }

// OAuthError is a refusal by an authorization server (RFC 6749, 4.1.2.1 and 5.2), or by the server
// of metadata.
type OAuthError struct {
	Endpoint    string // without its query
	Status      int    // of HTTP; 0: it came with the redirect
	Code        string // error; empty if the answer is not in the form of OAuth
	Description string // error_description, on one line
}

func (e *OAuthError) Error() string {
	code := e.Code
	if code == "" {
		code = fmt.Sprint(e.Status)
	}
	text := e.Endpoint + " answers " + code
	if code == accessDenied {
		text = "the login was denied at " + e.Endpoint
	}
	if e.Description != "" {
		text += ": " + e.Description
	}
	return text
}

// refusalOf returns the code of an OAuthError, and "" for any other error or none. How a flow goes
// on depends on it: invalid_grant ends a refresh token, invalid_client a client.
func refusalOf(err error) string {
	if refusal := new(OAuthError); errors.As(err, &refusal) {
		return refusal.Code
	}
	return ""
}

// isOfTrouble reports whether the same request may succeed later: the server is in trouble, or has
// too many requests.
func (e *OAuthError) isOfTrouble() bool {
	return e.Status >= 500 || e.Status == http.StatusRequestTimeout ||
		e.Status == http.StatusTooManyRequests
}

// isRefusedForGood reports whether an authorization server refuses a request in such a way that the
// same request can never succeed.
func isRefusedForGood(err error) bool {
	refusal := new(OAuthError)
	return errors.As(err, &refusal) && refusal.Status/100 == 4 && !refusal.isOfTrouble()
}

// isMissing reports whether a server answers that it has no such document, in one way or another: a
// page of HTML is no metadata. A server in trouble does not say that.
func isMissing(err error) bool {
	refusal := new(OAuthError)
	return errors.As(err, &refusal) && !refusal.isOfTrouble()
}

const (
	oauthTime      = 15 * time.Second // for one answer in a flow
	oauthRedirects = 3                // of one request for metadata
	maxOAuthBody   = 1 << 20          // bytes of an answer in a flow
	maxScopes      = 100              // of which a token is requested

	maxChallengeLine  = 16 << 10 // bytes that are read of a WWW-Authenticate header
	maxChallengeLines = 16
)

// A header may have several challenges, and each several parameters, all of them separated by
// commas: WWW-Authenticate: Basic realm="a", Bearer error="b", scope="c d".

// challenge is one challenge of a WWW-Authenticate header (RFC 9110, 11.6.1), with its names in
// lower case.
type challenge struct {
	scheme string
	params map[string]string // empty if it has a token68 instead
}

var (
	// challengePart is a scheme or a parameter. A parameter has the second group, and its value is
	// in the third group if it is quoted, otherwise in the fourth.
	challengePart = regexp.MustCompile("^[ \t,]*([!#$%&'*+.^_`|~0-9A-Za-z-]+)" +
		"([ \t]*=[ \t]*(?:\"((?:[^\"\\\\]|\\\\.)*)\"|([!#$%&'*+.^_`|~0-9A-Za-z-]+)))?")
	// token68 follows a scheme that has no parameters (RFC 9110, 11.2).
	token68    = regexp.MustCompile("^[ \t]+[0-9A-Za-z._~+/-]+=*[ \t]*(,|$)")
	quotedPair = regexp.MustCompile(`\\(.)`)
)

// parseChallenges reads the challenges of all lines of the header, within bounds.
func parseChallenges(lines []string) (challenges []challenge) {
	for _, line := range lines[:min(len(lines), maxChallengeLines)] {
		line = line[:min(len(line), maxChallengeLine)]
		challenges = append(challenges, parseChallengeLine(line)...)
	}
	return challenges
}

// parseChallengeLine reads the challenges of one line. What comes after a fault is left out. The
// comma separates challenges as well as parameters, so only the form of a part tells a scheme from
// a parameter.
func parseChallengeLine(rest string) (challenges []challenge) {
	for {
		part := challengePart.FindStringSubmatch(rest)
		if part == nil {
			return challenges
		}
		rest = rest[len(part[0]):]
		name, isParameter := strings.ToLower(part[1]), part[2] != ""
		switch {
		case !isParameter:
			challenges = append(challenges, challenge{name, make(map[string]string)})
			rest = rest[len(token68.FindString(rest)):]
		case len(challenges) > 0:
			last := challenges[len(challenges)-1]
			last.params[name] = quotedPair.ReplaceAllString(part[3], "$1") + part[4]
		}
	}
}

// getMetadata reads a JSON object from the first URL that has one. If no URL has an object, it
// returns the error of the first URL. A server in trouble ends the search: its answer does not say
// that nothing is there.
func (f *oauthFlow) getMetadata(ctx context.Context, urls []string, value any) error {
	var first error
	for _, at := range urls {
		err := f.call(ctx, at, make(http.Header), nil, value)
		if !isMissing(err) {
			return err
		}
		first = cmp.Or(first, err)
	}
	return first
}

// post sends a form of a client to the token endpoint or another endpoint, and decodes the answer.
// Where DPoP is used, the server may refuse the form for a nonce. The DPoP below keeps the nonce,
// and the form is sent again from here: it needs another client assertion as well, since each is
// used once.
func (f *oauthFlow) post(
	ctx context.Context,
	endpoint string,
	client OAuthClient,
	form url.Values,
	answer any,
) error {
	err := f.postOnce(ctx, endpoint, client, form, answer)
	if refusalOf(err) == "use_dpop_nonce" {
		err = f.postOnce(ctx, endpoint, client, form, answer)
	}
	return err
}

func (f *oauthFlow) postOnce(
	ctx context.Context,
	endpoint string,
	client OAuthClient,
	form url.Values,
	answer any,
) error {
	header := http.Header{"Content-Type": {"application/x-www-form-urlencoded"}}
	err := f.authenticate(client, header, form)
	if err != nil {
		return err
	}
	for _, name := range []string{
		"assertion", "client_assertion", "code", "refresh_token", "subject_token", "token",
	} {
		f.tellSecrets(form.Get(name))
	}
	return f.call(ctx, endpoint, header, []byte(form.Encode()), answer)
}

// authenticate puts the client's ID and credentials into a token request (RFC 6749, 2.3; RFC 7523,
// 2.2). With basic authentication ID and secret are encoded like a form first: some servers issue
// secrets with a colon or a percent sign (RFC 6749, 2.3.1). The form has the ID as well: the
// official Python SDK looks for it there.
func (f *oauthFlow) authenticate(client OAuthClient, header http.Header, form url.Values) error {
	method := client.AuthMethod
	if method == "" && client.Secret != "" {
		method = f.authMethod()
	}
	f.tellSecrets(client.Secret)
	form.Set("client_id", client.ID)
	switch method {
	case "", "none":
		// A workload that has an assertion alone is no client.
		if client.ID == "" {
			form.Del("client_id")
		}
	case "client_secret_basic":
		login := url.QueryEscape(client.ID) + ":" + url.QueryEscape(client.Secret)
		encoded := base64.StdEncoding.EncodeToString([]byte(login))
		f.tellSecrets(encoded)
		header.Set("Authorization", "Basic "+encoded)
	case "client_secret_post":
		form.Set("client_secret", client.Secret)
	case "private_key_jwt":
		if f.Assert == nil {
			return errors.New("private_key_jwt needs a private key")
		}
		assertion, err := f.Assert(f.metadata.Issuer)
		if err != nil {
			return err
		}
		form.Set("client_assertion_type", "urn:ietf:params:oauth:client-assertion-type:jwt-bearer")
		form.Set("client_assertion", assertion)
	default:
		return fmt.Errorf("a client cannot authenticate with %.200q here", method)
	}
	return nil
}

// authMethod returns the method by which a client with a secret authenticates (RFC 8414, 2).
func (f *oauthFlow) authMethod() string {
	for _, method := range []string{"client_secret_basic", "client_secret_post", "none"} {
		if slices.Contains(f.metadata.TokenAuthMethods, method) {
			return method
		}
	}
	return "client_secret_basic"
}

// call sends a request of a flow, and decodes the JSON object of the answer, or ignores the content
// if answer is nil. Without a body the request is a GET. A refusal is an *OAuthError. No error
// holds a secret, or a whole URL.
func (f *oauthFlow) call(
	ctx context.Context,
	to string,
	header http.Header,
	body []byte,
	answer any,
) error {
	err := checkOAuthURL(to)
	if err != nil {
		return err
	}
	late := fmt.Errorf("no answer within %v", oauthTime)
	ctx, cancel := context.WithTimeoutCause(ctx, oauthTime, late)
	defer cancel()
	method := http.MethodGet
	if body != nil {
		method = http.MethodPost
	}
	request, err := http.NewRequestWithContext(ctx, method, to, bytes.NewReader(body))
	if err != nil {
		return err
	}
	header.Set("Accept", "application/json")
	request.Header = header
	response, err := f.httpClient(request).Do(request)
	if err != nil {
		// The *url.Error around the cause has the whole URL.
		return failedCall(ctx, to, errors.Unwrap(err))
	}
	defer response.Body.Close()
	// A document without an end must not fill the memory.
	text, err := io.ReadAll(io.LimitReader(response.Body, maxOAuthBody))
	if len(text) == maxOAuthBody {
		err = fmt.Errorf("the answer has %d bytes or more", maxOAuthBody)
	}
	if err != nil {
		return failedCall(ctx, to, err)
	}
	refusal := &OAuthError{Endpoint: shownURL(to), Status: response.StatusCode}
	return f.decode(refusal, text, answer)
}

// failedCall returns the error of a request that got no answer. If ctx has ended, its cause says
// more than the error of the transport.
func failedCall(ctx context.Context, to string, err error) error {
	cause := context.Cause(ctx)
	if cause == nil {
		cause = err
	}
	return fmt.Errorf("%s: %w", shownURL(to), cause)
}

// httpClient returns the client for one request. It follows redirects of metadata within an origin.
// A form has secrets, which are for the token endpoint alone. A redirect that is not followed is
// the response, and its status makes it a refusal.
func (f *oauthFlow) httpClient(request *http.Request) *http.Client {
	origin := originOf(request.URL.String())
	checkRedirect := func(next *http.Request, via []*http.Request) error {
		isOther := originOf(next.URL.String()) != origin
		if isOther || request.Method != http.MethodGet || len(via) > oauthRedirects {
			return http.ErrUseLastResponse
		}
		return nil
	}
	return &http.Client{Transport: f.Base, CheckRedirect: checkRedirect}
}

// decode decodes an answer. If the answer is a refusal, decode copies the code and the description
// into refusal, and returns refusal.
func (f *oauthFlow) decode(refusal *OAuthError, text []byte, answer any) error {
	var fields struct {
		Code        string `json:"error"`
		Description string `json:"error_description"`
	}
	// A member of another type than expected is no reason to doubt that the answer is JSON.
	err := json.Unmarshal(text, &fields)
	wrongType := new(json.UnmarshalTypeError)
	isJSON := err == nil || errors.As(err, &wrongType)
	if refusal.Status/100 != 2 {
		refusal.Code = f.shown(fields.Code)
		refusal.Description = f.shown(fields.Description)
		return refusal
	}
	if answer == nil {
		return nil
	}
	if !isJSON {
		refusal.Description = "the answer is not JSON"
		return refusal
	}
	err = json.Unmarshal(text, answer)
	if errors.As(err, &wrongType) {
		return fmt.Errorf("%s answers with a JSON %.20s where %s should be",
			refusal.Endpoint, wrongType.Value, cmp.Or(wrongType.Field, "an object"))
	}
	return nil
}

// checkOAuthURL refuses a URL to which nothing secret may be sent: a URL without https, except on
// this machine (OAuth 2.1, 1.5), and a URL with a user name, which can look like the name of a
// host.
func checkOAuthURL(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.User != nil || u.Fragment != "" {
		return fmt.Errorf("%.200q is not the URL of an endpoint", text)
	}
	isEncrypted := u.Scheme == "https"
	isLocal := u.Scheme == "http" && IsLoopback(u.Hostname())
	if !isEncrypted && !isLocal {
		return fmt.Errorf("%s is not encrypted: https is needed", shownURL(text))
	}
	return nil
}

// IsLoopback reports whether a host, as url.URL.Hostname returns it, is this machine. RFC 6761, 6.3
// keeps the name localhost for that.
func IsLoopback(host string) bool {
	return strings.EqualFold(host, "localhost") || net.ParseIP(host).IsLoopback()
}

// isSameMachine reports whether two URLs name the same port of this machine, by different names: a
// server on 127.0.0.1 may call itself localhost.
func isSameMachine(a, b string) bool {
	first, err := url.Parse(a)
	if err != nil {
		return false
	}
	second, err := url.Parse(b)
	if err != nil {
		return false
	}
	return IsLoopback(first.Hostname()) && IsLoopback(second.Hostname()) &&
		first.Port() == second.Port()
}

// isSameIssuer reports whether two issuers are the same, with or without a slash at the end: many
// configurations and some libraries add one.
func isSameIssuer(a, b string) bool {
	return strings.TrimSuffix(a, "/") == strings.TrimSuffix(b, "/")
}

// isHeaderWord reports whether a text can be one word of a header. A token with the end of a line
// in it could not be sent, and would fail every request.
func isHeaderWord(text string) bool {
	isOther := func(r rune) bool { return r <= ' ' || r > '~' }
	return !strings.ContainsFunc(text, isOther)
}

// splitURL returns the origin of a URL in its shortest form, and its path without a slash at the
// end.
func splitURL(text string) (origin, path string) {
	u, err := url.Parse(text)
	if err != nil {
		return "an invalid URL", ""
	}
	return u.Scheme + "://" + shortHost(u), strings.TrimSuffix(u.EscapedPath(), "/")
}

// shortHost returns the host of a URL in lower case, and its port unless that is the default port.
// Parse has put the scheme into lower case.
func shortHost(u *url.URL) string {
	defaultPort := map[string]string{"http": ":80", "https": ":443"}[u.Scheme]
	return strings.TrimSuffix(strings.ToLower(u.Host), defaultPort)
}

// originOf returns the origin of a URL. A token, a nonce and a redirect are good for one origin.
func originOf(text string) string {
	origin, _ := splitURL(text)
	return origin
}

// shownURL returns a URL without its secrets: without user, password and query.
func shownURL(text string) string {
	origin, path := splitURL(text)
	return brief(origin + path)
}

// brief returns a text on one line, and not more than 300 bytes of it.
func brief(text string) string {
	isGap := func(r rune) bool { return r == ' ' || !unicode.IsGraphic(r) }
	text = strings.Join(strings.FieldsFunc(text, isGap), " ")
	return strings.ToValidUTF8(text[:min(len(text), 300)], "")
}

// union returns the texts of all lists, each once, and not more than maxScopes.
func union(lists ...[]string) (texts []string) {
	for _, text := range slices.Concat(lists...) {
		if !slices.Contains(texts, text) && len(texts) < maxScopes {
			texts = append(texts, text)
		}
	}
	return texts
}

// containsAll reports whether a list has all texts of another list.
func containsAll(list, texts []string) bool {
	return len(union(list, texts)) == len(union(list))
}

// tellSecrets notes secrets before they are used, and hands each to OAuth.Secret.
func (f *oauthFlow) tellSecrets(secrets ...string) {
	for _, secret := range secrets {
		if secret == "" {
			continue
		}
		f.secrets = append(f.secrets, secret, "[secret]")
		if f.Secret != nil {
			f.Secret(secret)
		}
	}
}

// shown returns a text of a server as it can be shown. In an error, a careless server repeats
// secrets that it was sent, such as a refresh token.
func (f *oauthFlow) shown(text string) string {
	return brief(strings.NewReplacer(f.secrets...).Replace(text))
}

// withoutSecrets returns an error that can be shown. It returns err itself if err has no secret.
// Otherwise it returns an error without the type of err, as a wrapped err would still hold the
// secret.
func (f *oauthFlow) withoutSecrets(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	if strings.NewReplacer(f.secrets...).Replace(text) == text {
		return err
	}
	return errors.New(f.shown(text))
}

// discardBody reads and closes a body of which nothing is needed, so that its connection can be
// used again.
func discardBody(response *http.Response) {
	_, _ = io.CopyN(io.Discard, response.Body, 4<<10)
	_ = response.Body.Close()
}

// closeBody closes the body of a request that is not sent, as every http.RoundTripper has to.
func closeBody(r *http.Request) {
	if r.Body != nil {
		r.Body.Close()
	}
}
