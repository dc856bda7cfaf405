// config_oauth.go - how to log in to a server, in a .mcp.json.
// SPDX-License-Identifier: 0BSD

package main

import (
	"encoding/json"
	"net/url"
	"strings"
)

// OAuthConfig is what a configuration says about the login to one server. What it leaves out is found by asking.
type OAuthConfig struct {
	Never       bool        // no login is used
	Client      OAuthClient // registered beforehand, if it has an ID
	MetadataURL string      // of a Client ID Metadata Document
	Scopes      []string    // asked for besides those that the server names

	Grant                    string // client_credentials, jwt_bearer, token_exchange; empty: a person logs in
	Key, KeyFile             string // the private key of the client, in PEM
	Assertion, AssertionFile string // of jwt_bearer, or of a person's login for a token_exchange: an ID token
	Provider                 string // of a token_exchange: the identity provider's token endpoint
	ProviderClient           OAuthClient
	DPoP                     bool // tokens are bound to the private key, or to one for this run

	Text string // as it is written
}

// readOAuth reads an object, or true or false, as Claude Code, Gemini CLI, opencode, VS Code, Cursor and FastMCP write
// it.
func (r *serverReader) readOAuth(field string, value json.RawMessage) {
	o := &OAuthConfig{Text: strings.Join(strings.Fields(string(value)), " ")}
	r.login = o
	into := map[string]any{ // the names may have dashes, underscores and capitals
		"grant": &o.Grant, "clientid": &o.Client.ID, "clientsecret": &o.Client.Secret, "issuer": &o.Client.Issuer,
		"clientmetadataurl": &o.MetadataURL, "redirecturi": &o.Client.RedirectURI, "callbackport": &o.Client.RedirectURI,
		"privatekey": &o.Key, "privatekeyfile": &o.KeyFile, "assertion": &o.Assertion, "idtoken": &o.Assertion,
		"assertionfile": &o.AssertionFile, "idtokenfile": &o.AssertionFile, "idptokenendpoint": &o.Provider,
		"idpclientid": &o.ProviderClient.ID, "idpclientsecret": &o.ProviderClient.Secret,
		"scopes": &o.Scopes, "scope": &o.Scopes, "dpop": &o.DPoP, "enabled": &o.Never,
	}
	isObject := eachMember(value, func(name string, value json.RawMessage) {
		to := into[plainName(name)]
		r.store(field+" "+name, value, to)
		text, ok := to.(*string)
		if !ok {
			return
		}
		*text = strings.TrimSpace(*text) // a file's often ends with a newline
		if text == &o.Assertion {
			r.secrets.AddHeader(name, *text)
		} else if text != &o.Client.ID { // which a person has to see
			r.secrets.AddVariable(name, *text)
		}
	})
	if isObject {
		o.Scopes = strings.Fields(strings.Join(o.Scopes, " "))
		r.checkOAuth(field, o)
	} else if o.Text != `"oauth"` {
		logIn := false
		r.store(field, value, &logIn)
		o.Never = !logIn
	}
}

// checkOAuth says what is to be written in the place of what cannot work.
func (r *serverReader) checkOAuth(field string, o *OAuthConfig) {
	wrong := func(is bool, text string) {
		if is {
			r.problem("%s %s", field, text)
		}
	}
	if uri := o.Client.RedirectURI; uri != "" {
		if !strings.Contains(uri, ":") { // a port
			o.Client.RedirectURI = "http://localhost:" + uri + "/callback" // what Claude Code has people register
		}
		u, err := url.Parse(o.Client.RedirectURI)
		isHere := err == nil && (u.Hostname() == "localhost" || u.Hostname() == "127.0.0.1")
		wrong(!isHere || u.Scheme != "http" || u.Port() == "",
			"callbackPort is not a number, or redirectUri is not of the form http://localhost:PORT/path")
	}
	for _, address := range []string{o.Client.Issuer, o.MetadataURL, o.Provider} {
		u, err := url.Parse(address)
		wrong(address != "" && (err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http"),
			"issuer, clientMetadataUrl or idpTokenEndpoint is not of the form https://host/path")
	}
	o.Grant = strings.ReplaceAll(strings.ToLower(o.Grant), "-", "_")
	has := func(grant string) bool { return o.Grant == grant }
	hasKey, hasAssertion := o.Key+o.KeyFile != "", o.Assertion+o.AssertionFile != ""
	wrong(!has("") && !has("client_credentials") && !has("jwt_bearer") && !has("token_exchange"),
		"grant is none of client_credentials, jwt_bearer and token_exchange")
	wrong(o.Client.ID == "" && (has("client_credentials") || has("token_exchange") ||
		o.Client.Secret != "" || hasKey && !o.DPoP), "needs a clientId")
	wrong(has("client_credentials") && o.Client.Secret == "" && !hasKey,
		"grant client_credentials needs a clientSecret, or a privateKey or privateKeyFile")
	wrong((has("jwt_bearer") || has("token_exchange")) != hasAssertion || has("token_exchange") != (o.Provider != ""),
		"grant jwt_bearer goes with assertion or assertionFile; token_exchange with idpTokenEndpoint and idToken(File)")
	if hasKey && o.Client.ID != "" { // else it is for DPoP alone
		o.Client.AuthMethod = "private_key_jwt"
	}
}
