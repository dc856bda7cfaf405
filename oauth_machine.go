// oauth_machine.go - tokens without a person: credentials, assertions, token exchange.
// Needs: Go 1.25.
// SPDX-License-Identifier: 0BSD

package main

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// ClientCredentials is the OAuth.Grant of a client that acts for itself (RFC 6749, 4.4). The client
// authenticates with its secret, or with a key (PrivateKeyJWT): the request needs nothing else.
func ClientCredentials(context.Context, *AuthorizationServer, string) (url.Values, error) {
	return url.Values{"grant_type": {"client_credentials"}}, nil
}

// JWTBearer returns the OAuth.Grant of a client that has got an assertion from somebody whom the
// authorization server trusts (RFC 7523, 2.1), such as the platform on which it runs as a workload.
// read returns the assertion that is valid now; each token request calls read.
func JWTBearer(
	read func(context.Context) (assertion string, err error),
) func(context.Context, *AuthorizationServer, string) (url.Values, error) {
	return func(ctx context.Context, _ *AuthorizationServer, _ string) (url.Values, error) {
		assertion, err := read(ctx)
		if err != nil {
			return nil, fmt.Errorf("the assertion: %w", err)
		}
		return jwtBearer(assertion), nil
	}
}

// jwtBearer returns the token request for an assertion (RFC 7523, 2.1).
func jwtBearer(assertion string) url.Values {
	return url.Values{
		"grant_type": {"urn:ietf:params:oauth:grant-type:jwt-bearer"},
		"assertion":  {assertion},
	}
}

// AssertionFile returns a func for JWTBearer and IdentityProvider. The func reads the file at each
// call, as platforms renew the assertion in it. It has to be a regular file of at most 1 MiB. White
// space around the assertion is left out.
func AssertionFile(path string) func(context.Context) (string, error) {
	return func(context.Context) (string, error) {
		text, err := readOAuthFile(path)
		if err != nil {
			return "", err
		}
		assertion := strings.TrimSpace(string(text))
		if assertion == "" {
			return "", fmt.Errorf("%s is empty", path)
		}
		return assertion, nil
	}
}

// IdentityProvider is the server at which the people of an enterprise log in, once for all servers
// of MCP. Its Grant exchanges the token of a person's login for an assertion, which the
// authorization server of one of these servers accepts (token exchange, RFC 8693; MCP extension
// enterprise-managed authorization).
//
// Set the fields before the first request.
type IdentityProvider struct {
	TokenEndpoint string
	Client        OAuthClient                           // registered at the identity provider
	Assert        func(audience string) (string, error) // if its AuthMethod is private_key_jwt

	Subject     func(context.Context) (string, error) // the login's token; each Grant calls it
	SubjectType string                                // empty: an ID token of OpenID Connect
	Scopes      []string                              // empty: the identity provider decides

	Base   http.RoundTripper // makes the request; nil: http.DefaultTransport
	Secret func(text string) // does what OAuth.Secret does
}

const tokenTypes = "urn:ietf:params:oauth:token-type:"

// Grant is an OAuth.Grant. The assertion of the identity provider is an ID-JAG: it names a person,
// a client, an authorization server and a resource, and is good for these alone.
func (p *IdentityProvider) Grant(
	ctx context.Context,
	as *AuthorizationServer,
	resource string,
) (url.Values, error) {
	subject, err := p.Subject(ctx)
	if err != nil {
		return nil, fmt.Errorf("what the identity provider gave at the login: %w", err)
	}
	form := url.Values{
		"grant_type":           {"urn:ietf:params:oauth:grant-type:token-exchange"},
		"requested_token_type": {tokenTypes + "id-jag"},
		"audience":             {as.Issuer},
		"resource":             {resource},
		"subject_token":        {subject},
		"subject_token_type":   {cmp.Or(p.SubjectType, tokenTypes+"id_token")},
	}
	if len(p.Scopes) > 0 {
		form.Set("scope", strings.Join(p.Scopes, " "))
	}
	assertion, err := p.exchange(ctx, form)
	if err != nil {
		return nil, err
	}
	return jwtBearer(assertion), nil
}

// exchange sends a token exchange, and returns the assertion of the answer. The identity provider
// is an authorization server, and the exchange is a token request: it is sent like the token
// request of a flow.
func (p *IdentityProvider) exchange(ctx context.Context, form url.Values) (string, error) {
	f := &oauthFlow{
		OAuth: &OAuth{Base: p.Base, Assert: p.Assert, Secret: p.Secret},
		metadata: &oauthMetadata{AuthorizationServer: AuthorizationServer{
			Issuer:        cmp.Or(p.Client.Issuer, p.TokenEndpoint),
			TokenEndpoint: p.TokenEndpoint,
		}},
	}
	var answer struct {
		Assertion string `json:"access_token"`
		Type      string `json:"issued_token_type"`
	}
	err := f.post(ctx, p.TokenEndpoint, p.Client, form, &answer)
	if err != nil {
		return "", err
	}
	if answer.Assertion == "" || answer.Type != tokenTypes+"id-jag" {
		return "", fmt.Errorf("the answer of %s to a token exchange is not of the type id-jag, "+
			"or has no access_token", shownURL(p.TokenEndpoint))
	}
	f.tellSecrets(answer.Assertion)
	return answer.Assertion, nil
}
