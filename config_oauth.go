// config_oauth.go - how to log in to a server, in a .mcp.json.
// SPDX-License-Identifier: 0BSD

package main

import (
	"encoding/json"
	"net/url"
	"strings"
)

// OAuthConfig is what a configuration says about the login to one server. What it leaves out is
// found by asking.
type OAuthConfig struct {
	Never       bool        // no login is used
	Client      OAuthClient // registered beforehand, if it has an ID
	MetadataURL string      // of a Client ID Metadata Document
	Scopes      []string    // asked for besides those that the server names

	Grant string // client_credentials, jwt_bearer, token_exchange; empty: a person logs in
	DPoP  bool   // tokens are bound to the private key, or to one for this run

	Key, KeyFile             string // the private key of the client, in PEM
	Assertion, AssertionFile string // of jwt_bearer; of a token_exchange the person's ID token

	Provider       string // of a token_exchange: the identity provider's token endpoint
	ProviderClient OAuthClient

	Text string // the whole of it, on one line
}

// oauthFields is the table of all fields that an OAuthConfig may have, and where the value of each
// is stored. The names are without dashes, underscores and capitals, as hosts differ in these.
func oauthFields(o *OAuthConfig) map[string]any {
	return map[string]any{
		"enabled":           &o.Never,
		"clientid":          &o.Client.ID,
		"clientsecret":      &o.Client.Secret,
		"issuer":            &o.Client.Issuer,
		"redirecturi":       &o.Client.RedirectURI,
		"callbackport":      &o.Client.RedirectURI,
		"clientmetadataurl": &o.MetadataURL,
		"scopes":            &o.Scopes,
		"scope":             &o.Scopes,

		"grant":          &o.Grant,
		"dpop":           &o.DPoP,
		"privatekey":     &o.Key,
		"privatekeyfile": &o.KeyFile,
		"assertion":      &o.Assertion,
		"idtoken":        &o.Assertion,
		"assertionfile":  &o.AssertionFile,
		"idtokenfile":    &o.AssertionFile,

		"idptokenendpoint": &o.Provider,
		"idpclientid":      &o.ProviderClient.ID,
		"idpclientsecret":  &o.ProviderClient.Secret,
	}
}

// readOAuth reads an object, or true or false, as Claude Code, Gemini CLI, opencode, VS Code,
// Cursor and FastMCP write it.
func (r *serverReader) readOAuth(field string, value json.RawMessage) {
	o := &OAuthConfig{Text: strings.Join(strings.Fields(string(value)), " ")}
	r.login = o
	fields := oauthFields(o)
	isObject := eachMember(value, func(name string, value json.RawMessage) {
		into := fields[plainName(name)]
		r.store(field+" "+name, value, into)
		text, isText := into.(*string)
		if isText {
			// A text that stands in a file often ends with a newline.
			*text = strings.TrimSpace(*text)
			r.addOAuthSecret(o, name, text)
		}
	})
	if isObject {
		o.Scopes = strings.Fields(strings.Join(o.Scopes, " "))
		r.checkOAuth(field, o)
		return
	}
	// FastMCP writes "oauth" for true.
	if o.Text != `"oauth"` {
		logIn := false
		r.store(field, value, &logIn)
		o.Never = !logIn
	}
}

// addOAuthSecret adds the text of a field to the secrets. The id of a client is none: a person has
// to see it, and compare it with that of the registration. The name of a grant is none either.
func (r *serverReader) addOAuthSecret(o *OAuthConfig, name string, text *string) {
	switch text {
	case &o.Client.ID, &o.ProviderClient.ID, &o.Grant:
	case &o.Assertion:
		r.secrets.AddHeader(name, *text)
	default:
		r.secrets.AddOption(name, *text)
	}
}

// checkOAuth says what is to be written in the place of what cannot work.
func (r *serverReader) checkOAuth(field string, o *OAuthConfig) {
	o.Grant = strings.ReplaceAll(strings.ToLower(o.Grant), "-", "_")
	r.checkRedirectURI(field, o)
	for _, address := range []string{o.Client.Issuer, o.MetadataURL, o.Provider} {
		u, err := url.Parse(address)
		if address != "" && (err != nil || u.Host == "" || !isHTTP(u)) {
			r.problem("%s issuer, clientMetadataUrl or idpTokenEndpoint is not of the form "+
				"https://host/path", field)
		}
	}
	r.checkGrant(field, o)
	hasKey := o.Key+o.KeyFile != ""
	if hasKey && o.Client.ID != "" {
		// The key of a client without an id is for DPoP alone.
		o.Client.AuthMethod = "private_key_jwt"
	}
}

// checkRedirectURI checks the address to which the browser comes back. A port alone becomes the
// address that Claude Code has people register.
func (r *serverReader) checkRedirectURI(field string, o *OAuthConfig) {
	if o.Client.RedirectURI == "" {
		return
	}
	isPort := !strings.Contains(o.Client.RedirectURI, ":")
	if isPort {
		o.Client.RedirectURI = "http://localhost:" + o.Client.RedirectURI + "/callback"
	}
	u, err := url.Parse(o.Client.RedirectURI)
	isHere := err == nil && (u.Hostname() == "localhost" || u.Hostname() == "127.0.0.1")
	if !isHere || u.Scheme != "http" || u.Port() == "" {
		r.problem("%s callbackPort is not a number, or redirectUri is not of the form "+
			"http://localhost:PORT/path", field)
	}
}

// checkGrant checks that what a grant needs is there, and nothing that only another one uses.
func (r *serverReader) checkGrant(field string, o *OAuthConfig) {
	hasKey := o.Key+o.KeyFile != ""
	hasAssertion := o.Assertion+o.AssertionFile != ""
	needsID := o.Client.Secret != "" || hasKey && !o.DPoP
	needsAssertion, needsProvider := false, false
	switch o.Grant {
	case "":
	case "client_credentials":
		needsID = true
	case "jwt_bearer":
		needsAssertion = true
	case "token_exchange":
		needsID, needsAssertion, needsProvider = true, true, true
	default:
		r.problem("%s grant must be client_credentials, jwt_bearer or token_exchange", field)
	}
	if needsID && o.Client.ID == "" {
		r.problem("%s needs a clientId", field)
	}
	if o.Grant == "client_credentials" && o.Client.Secret == "" && !hasKey {
		r.problem("%s grant client_credentials needs a clientSecret, "+
			"or a privateKey or privateKeyFile", field)
	}
	if needsAssertion != hasAssertion || needsProvider != (o.Provider != "") {
		r.problem("%s grant jwt_bearer goes with assertion or assertionFile; "+
			"token_exchange with idpTokenEndpoint and idToken(File)", field)
	}
}
