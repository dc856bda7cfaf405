// oauth.go - OAuth 2.1 for HTTP requests to a protected server (MCP 2026-07-28, authorization).
// Needs: Go 1.25.
// SPDX-License-Identifier: 0BSD

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"
)

// OAuth is an http.RoundTripper that authorises the requests to one protected server, the resource. It sends each with
// an access token. Where the server refuses that (401, or 403 insufficient_scope), it gets another one and sends the
// request again, which needs the request's GetBody. One flow runs at a time, however many requests wait for it; it
// goes on when they have given up, until Close.
//
// Set the exported fields before the first request.
type OAuth struct {
	Resource string            // URL of the protected server; requests to other origins are refused
	Base     http.RoundTripper // makes all requests; nil: http.DefaultTransport

	Client      OAuthClient // registered beforehand; its Issuer says where. No ID: see MetadataURL
	MetadataURL string      // of this client's Client ID Metadata Document; empty: it has none, and is registered dynamically
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
	AuthMethod  string `json:"token_endpoint_auth_method,omitempty"` // empty: what the server supports, basic before post before none
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

// RoundTrip sends a request with an access token. An error that comes from the flow is an *AuthorizationError.
func (o *OAuth) RoundTrip(r *http.Request) (*http.Response, error) { return nil, errors.ErrUnsupported }

// Login runs a flow now, whatever token there is: with a person, or with Grant.
func (o *OAuth) Login(ctx context.Context) (*OAuthToken, error) { return nil, errors.ErrUnsupported }

// Close ends a flow that is running, and waits for its end.
func (o *OAuth) Close() error { return nil }

// CloseIdleConnections is for http.Client.
func (o *OAuth) CloseIdleConnections() {}

// AuthorizationError is the error of a request that could not be authorised. The server has not acted on it.
type AuthorizationError struct{ Err error }

func (e *AuthorizationError) Error() string { return "authorization: " + e.Err.Error() }
func (e *AuthorizationError) Unwrap() error { return e.Err }

// Status is the HTTP status that the server refused the request with.
func (e *AuthorizationError) Status() int { return http.StatusUnauthorized }
