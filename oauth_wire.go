// oauth_wire.go - what OAuth sends and reads: challenges, requests to authorization servers, and their errors.
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
	Issuer      string `json:"issuer"`
	ID          string `json:"client_id"`
	Secret      string `json:"client_secret,omitempty"`
	AuthMethod  string `json:"token_endpoint_auth_method,omitempty"` // empty: basic, post or none, as supported
	RedirectURI string `json:"redirect_uri,omitempty"`               // that it was registered with; empty: any
}

// OAuthToken is an access token, and what refreshes it.
type OAuthToken struct {
	Issuer  string `json:"issuer"` // of the authorization server
	Type    string `json:"token_type"`
	Access  string `json:"access_token"`
	Refresh string `json:"refresh_token,omitempty"`

	GrantedScopes   []string `json:"scopes,omitempty"`
	RequestedScopes []string `json:"asked,omitempty"` // at the login, or by a challenge since then

	Expiry time.Time `json:"expiry,omitzero"` // zero: not known
}

// OAuthState is what is kept for a resource from one run to the next.
type OAuthState struct {
	Resource string                 `json:"resource"`
	Clients  map[string]OAuthClient `json:"clients,omitempty"` // dynamically registered ones, by issuer
	Token    *OAuthToken            `json:"token,omitempty"`
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
	Resource string // OAuth.Resource
	Reason   error  // why what was kept does not do; nil if nothing was
}

func (e *LoginError) Error() string {
	if e.Reason != nil {
		return fmt.Sprintf("%s needs a new login: %v", shownURL(e.Resource), e.Reason)
	}
	return shownURL(e.Resource) + " needs a login"
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

// refusalOf returns the code of an OAuthError.
func refusalOf(err error) string {
	if refusal := new(OAuthError); errors.As(err, &refusal) {
		return refusal.Code
	}
	return ""
}

const (
	oauthTime      = 15 * time.Second // for one answer in a flow
	oauthRedirects = 3
	maxOAuthBody   = 1 << 20
	maxScopes      = 100

	maxChallengeLine  = 16 << 10 // bytes that are read of a WWW-Authenticate header
	maxChallengeLines = 16
)

// challenge is one challenge of a WWW-Authenticate header (RFC 9110, 11.6.1), with its names in lower case.
type challenge struct {
	scheme string
	params map[string]string // empty if it has a token68 instead
}

var (
	// challengePart is a scheme, or a parameter: then it has its second group, and its value is in the third or fourth.
	challengePart = regexp.MustCompile("^[ \t,]*([!#$%&'*+.^_`|~0-9A-Za-z-]+)" +
		"([ \t]*=[ \t]*(?:\"((?:[^\"\\\\]|\\\\.)*)\"|([!#$%&'*+.^_`|~0-9A-Za-z-]+)))?")
	token68    = regexp.MustCompile("^[ \t]+[0-9A-Za-z._~+/-]+=*[ \t]*(,|$)")
	quotedPair = regexp.MustCompile(`\\(.)`)
)

// parseChallenges reads the challenges of all lines of the header, within bounds. What comes after a fault in a line
// is left out.
func parseChallenges(lines []string) (all []challenge) {
	for _, rest := range lines[:min(len(lines), maxChallengeLines)] {
		rest, first := rest[:min(len(rest), maxChallengeLine)], len(all)
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

// getMetadata reads a JSON object from the first URL that has one. If none has, the error is that of the first.
func (f *oauthFlow) getMetadata(ctx context.Context, urls []string, value any) (first error) {
	for _, at := range urls {
		missing := new(OAuthError)
		err := f.call(ctx, at, make(http.Header), nil, value)
		if !errors.As(err, &missing) || missing.Status >= 500 {
			return err
		}
		first = cmp.Or(first, err)
	}
	return first
}

// post sends a form of a client to the token endpoint, and decodes the answer. A DPoP below keeps the nonce of a
// refusal for the second request, which has another client assertion, too: each is used once.
func (f *oauthFlow) post(ctx context.Context, client OAuthClient, form url.Values, answer any) (err error) {
	if client.AuthMethod == "" && client.Secret != "" {
		client.AuthMethod = f.authMethod()
	}
	header := http.Header{"Content-Type": {"application/x-www-form-urlencoded"}}
	for range 2 {
		form.Set("client_id", client.ID)
		switch client.AuthMethod {
		case "client_secret_basic":
			form.Del("client_id")
			login := []byte(url.QueryEscape(client.ID) + ":" + url.QueryEscape(client.Secret))
			header.Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString(login))
			f.tellSecrets(base64.StdEncoding.EncodeToString(login))
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
		case "", "none":
			if client.ID == "" {
				form.Del("client_id")
			}
		default:
			return fmt.Errorf("a client cannot authenticate with %.200q here", client.AuthMethod)
		}
		f.tellSecrets(client.Secret)
		for _, name := range strings.Fields("assertion client_assertion code refresh_token subject_token") {
			f.tellSecrets(form.Get(name))
		}
		err = f.call(ctx, f.metadata.TokenEndpoint, header, []byte(form.Encode()), answer)
		if refusalOf(err) != "use_dpop_nonce" {
			break
		}
	}
	return err
}

// authMethod chooses how a client with a secret authenticates (RFC 8414, 2).
func (f *oauthFlow) authMethod() string {
	for _, method := range []string{"client_secret_basic", "client_secret_post", "none"} {
		if slices.Contains(f.metadata.TokenAuthMethods, method) {
			return method
		}
	}
	return "client_secret_basic"
}

// call sends a request of a flow, and decodes the JSON object that answers it. Without a body it is a GET. A refusal
// is an *OAuthError. No error holds what is secret, or a whole URL.
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
			return http.ErrUseLastResponse // which is a refusal
		}
		return nil
	}}
	response, err := client.Do(request)
	if err != nil {
		err = cmp.Or(context.Cause(ctx), errors.Unwrap(err)) // without the *url.Error, which has the whole URL
		return fmt.Errorf("%s: %w", shownURL(to), err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxOAuthBody))
	if len(text) == maxOAuthBody {
		err = fmt.Errorf("the answer has %d bytes or more", maxOAuthBody)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", shownURL(to), cmp.Or(context.Cause(ctx), err))
	}
	return f.decode(&OAuthError{Endpoint: shownURL(to), Status: response.StatusCode}, text, answer)
}

// decode decodes an answer, or completes the refusal that it is.
func (f *oauthFlow) decode(refusal *OAuthError, text []byte, answer any) error {
	var fields struct {
		Code        string `json:"error"`
		Description string `json:"error_description"`
	}
	wrong := new(json.UnmarshalTypeError)
	switch err := json.Unmarshal(text, &fields); {
	case refusal.Status/100 != 2:
		refusal.Code, refusal.Description = f.shown(fields.Code), f.shown(fields.Description)
		return refusal
	case err != nil && !errors.As(err, &wrong):
		refusal.Description = "the answer is not JSON"
		return refusal
	}
	if err := json.Unmarshal(text, answer); errors.As(err, &wrong) {
		return fmt.Errorf("%s answers with a JSON %.20s where %s should be", refusal.Endpoint, wrong.Value,
			cmp.Or(wrong.Field, "an object"))
	}
	return nil
}

// checkOAuthURL refuses a URL to which nothing secret may be sent.
func checkOAuthURL(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.User != nil || u.Fragment != "" {
		return fmt.Errorf("%.200q is not the URL of an endpoint", text)
	}
	if isHTTP := u.Scheme == "http"; u.Scheme != "https" && !isHTTP || isHTTP && !IsLoopback(u.Hostname()) {
		return fmt.Errorf("%s is not encrypted: https is needed", shownURL(text))
	}
	return nil
}

// IsLoopback reports whether a host, as url.URL.Hostname returns it, is this machine. RFC 6761, 6.3
// keeps the name localhost for that.
func IsLoopback(host string) bool {
	return strings.EqualFold(host, "localhost") || net.ParseIP(host).IsLoopback()
}

// splitURL returns the origin of a URL in its shortest form, and its path without a slash at the end.
func splitURL(text string) (origin, path string) {
	u, err := url.Parse(text)
	if err != nil {
		return "an invalid URL", ""
	}
	scheme := strings.ToLower(u.Scheme)
	port := map[string]string{"http": ":80", "https": ":443"}[scheme]
	return scheme + "://" + strings.TrimSuffix(strings.ToLower(u.Host), port), strings.TrimSuffix(u.EscapedPath(), "/")
}

func originOf(text string) string {
	origin, _ := splitURL(text)
	return origin
}

// shownURL returns what is not secret of a URL.
func shownURL(text string) string {
	origin, path := splitURL(text)
	return brief(origin + path)
}

// brief returns a text on one line, and not more than 300 bytes of it.
func brief(text string) string {
	words := strings.FieldsFunc(text, func(r rune) bool { return r == ' ' || !unicode.IsGraphic(r) })
	text = strings.Join(words, " ")
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

// tellSecrets tells of secrets, before they are used.
func (f *oauthFlow) tellSecrets(secrets ...string) {
	for _, secret := range secrets {
		if secret != "" {
			f.secrets = append(f.secrets, secret, "[secret]")
			if f.Secret != nil {
				f.Secret(secret)
			}
		}
	}
}

// shown returns a text of a server, which may send back what it got, as it can be shown.
func (f *oauthFlow) shown(text string) string {
	return brief(strings.NewReplacer(f.secrets...).Replace(text))
}

// withoutSecrets returns an error that can be shown, which is err in all but hostile cases.
func (f *oauthFlow) withoutSecrets(err error) error {
	if err == nil || strings.NewReplacer(f.secrets...).Replace(err.Error()) == err.Error() {
		return err
	}
	return errors.New(f.shown(err.Error()))
}

// discardBody reads and closes a body of which nothing is needed, so that its connection can be used
// again.
func discardBody(response *http.Response) {
	_, _ = io.CopyN(io.Discard, response.Body, 4<<10)
	_ = response.Body.Close()
}

func closeBody(r *http.Request) {
	if r.Body != nil {
		r.Body.Close()
	}
}
