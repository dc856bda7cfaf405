// oauth_machine.go - OAuth without a person: client credentials, JWT assertions, token exchange, and DPoP.
// Needs: Go 1.25.
// SPDX-License-Identifier: 0BSD

package main

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

var errNotP256 = errors.New("the private key is not an EC key of P-256, which ES256 needs")

const (
	assertionLife = 5 * time.Minute // of a client assertion
	maxNonce      = 4 << 10         // bytes of a DPoP nonce; a longer one is not used
	nonceAttempts = 3               // of one request, of which all but the last may end with a new nonce
)

// ClientCredentials is the OAuth.Grant of a client that acts for itself (RFC 6749, 4.4).
func ClientCredentials(context.Context, *AuthorizationServer, string) (url.Values, error) {
	return url.Values{"grant_type": {"client_credentials"}}, nil
}

// JWTBearer returns the OAuth.Grant of a client that has got an assertion from somebody whom the authorization server
// trusts (RFC 7523, 2.1), such as the platform on which it runs as a workload. read returns the assertion that is
// valid now; it is called for each token.
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

func jwtBearer(assertion string) url.Values {
	return url.Values{"grant_type": {"urn:ietf:params:oauth:grant-type:jwt-bearer"}, "assertion": {assertion}}
}

// AssertionFile returns a func for JWTBearer and IdentityProvider that reads a file each time: platforms renew what is
// in it. White space around the assertion is left out.
func AssertionFile(path string) func(context.Context) (string, error) {
	return func(context.Context) (string, error) {
		text, err := os.ReadFile(path)
		assertion := strings.TrimSpace(string(text))
		if err == nil && assertion == "" {
			err = fmt.Errorf("%s is empty", path)
		}
		return assertion, err
	}
}

// IdentityProvider is where the people of an enterprise log in, once for all servers. Its Grant turns what a person's
// login gave into an assertion for the authorization server of one of them (token exchange, RFC 8693; MCP extension
// enterprise-managed authorization). Set the fields before the first request.
type IdentityProvider struct {
	TokenEndpoint string
	Client        OAuthClient                           // as the identity provider knows it
	Assert        func(audience string) (string, error) // if its AuthMethod is private_key_jwt

	Subject     func(context.Context) (string, error) // what the login gave; it is read for each token
	SubjectType string                                // empty: an ID token of OpenID Connect
	Scopes      []string                              // empty: the identity provider decides

	Base   http.RoundTripper // makes the request; nil: http.DefaultTransport
	Secret func(text string) // as OAuth.Secret
}

// Grant is an OAuth.Grant.
func (p *IdentityProvider) Grant(ctx context.Context, as *AuthorizationServer, resource string) (url.Values, error) {
	const types = "urn:ietf:params:oauth:token-type:"
	subject, err := p.Subject(ctx)
	if err != nil {
		return nil, fmt.Errorf("what the identity provider gave at the login: %w", err)
	}
	form := url.Values{
		"grant_type":           {"urn:ietf:params:oauth:grant-type:token-exchange"},
		"requested_token_type": {types + "id-jag"},
		"audience":             {as.Issuer},
		"resource":             {resource},
		"subject_token":        {subject},
		"subject_token_type":   {cmp.Or(p.SubjectType, types+"id_token")},
	}
	if len(p.Scopes) > 0 {
		form.Set("scope", strings.Join(p.Scopes, " "))
	}
	idp := AuthorizationServer{Issuer: cmp.Or(p.Client.Issuer, p.TokenEndpoint), TokenEndpoint: p.TokenEndpoint}
	f := &oauthFlow{OAuth: &OAuth{Base: p.Base, Assert: p.Assert, Secret: p.Secret},
		metadata: &oauthMetadata{AuthorizationServer: idp, resource: resource}}
	var answer struct {
		Assertion string `json:"access_token"`
		Type      string `json:"issued_token_type"`
	}
	if err = f.post(ctx, p.Client, form, &answer); err != nil {
		return nil, err
	}
	if answer.Assertion == "" || answer.Type != types+"id-jag" {
		return nil, fmt.Errorf("the answer of %s to a token exchange is not of the type id-jag, or has no access_token",
			shownURL(p.TokenEndpoint))
	}
	f.tellSecrets(answer.Assertion)
	return jwtBearer(answer.Assertion), nil
}

// PrivateKeyJWT returns the OAuth.Assert of a client that is registered with the public key of an EC key of P-256
// (RFC 7523, 2.2 and 3): it signs with ES256. The key is PEM, as ECKey reads it; keyID may be empty.
func PrivateKeyJWT(clientID string, key []byte, keyID string) (func(audience string) (string, error), error) {
	private, err := ECKey(key)
	if err != nil {
		return nil, err
	}
	header := map[string]any{"alg": "ES256", "typ": "JWT"}
	if keyID != "" {
		header["kid"] = keyID
	}
	return func(audience string) (string, error) {
		now := time.Now()
		return signJWT(private, header, map[string]any{"iss": clientID, "sub": clientID, "aud": audience,
			"iat": now.Unix(), "exp": now.Add(assertionLife).Unix(), "jti": rand.Text()})
	}, nil
}

// ECKey reads a private key of P-256 from PEM: PKCS #8 ("PRIVATE KEY") or SEC 1 ("EC PRIVATE KEY"), not encrypted.
func ECKey(text []byte) (*ecdsa.PrivateKey, error) {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		var key any
		var err error
		switch block.Type {
		case "PRIVATE KEY":
			key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
		case "EC PRIVATE KEY":
			key, err = x509.ParseECPrivateKey(block.Bytes)
		default: // such as EC PARAMETERS, which openssl writes before the key
			continue
		}
		private, ok := key.(*ecdsa.PrivateKey)
		switch {
		case err != nil:
			return nil, fmt.Errorf("the private key cannot be read: %w", err)
		case !ok || private.Curve != elliptic.P256():
			return nil, errNotP256
		}
		return private, nil
	}
	return nil, errors.New("the text is not a private key in PEM (PRIVATE KEY or EC PRIVATE KEY, not encrypted)")
}

// signJWT returns a JSON Web Token, signed with ES256: r and s, 32 bytes each (RFC 7515, 3.1; RFC 7518, 3.4).
func signJWT(key *ecdsa.PrivateKey, header, claims map[string]any) (string, error) {
	encode := base64.RawURLEncoding.EncodeToString
	head, err := json.Marshal(header)
	body, bodyErr := json.Marshal(claims)
	if err = cmp.Or(err, bodyErr); err != nil {
		return "", err
	}
	text := encode(head) + "." + encode(body)
	hash := sha256.Sum256([]byte(text))
	r, s, err := ecdsa.Sign(rand.Reader, key, hash[:])
	if err != nil {
		return "", err
	}
	signature := make([]byte, 64)
	r.FillBytes(signature[:32])
	s.FillBytes(signature[32:])
	return text + "." + encode(signature), nil
}

// DPoP is an http.RoundTripper that binds tokens to a key (RFC 9449): who steals one has nothing. It stands below
// OAuth, as its Base. Each token request, which is any POST of a form, and each request with a token of the type
// DPoP gets a proof, signed with the key. Where the resource wants its nonce in the proof and has refused one
// without, the request is sent again, which needs its GetBody; a token request is left to OAuth, as it may need
// another client assertion. A token that is not bound, of the type Bearer, is not sent.
//
// Set the exported fields before the first request.
type DPoP struct {
	Base http.RoundTripper // nil: http.DefaultTransport
	Key  *ecdsa.PrivateKey // of P-256, for tokens that are kept from one run to the next; nil: a new one

	mu     sync.Mutex        // guards the following; never held across I/O
	key    *ecdsa.PrivateKey // Key, or the new one
	nonces map[string]string // the last one of each origin
}

// RoundTrip sends a request, with a proof if it needs one.
func (d *DPoP) RoundTrip(r *http.Request) (*http.Response, error) {
	base := cmp.Or(d.Base, http.DefaultTransport)
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	bound := strings.EqualFold(scheme, "DPoP")
	form := r.Method == http.MethodPost && r.Header.Get("Content-Type") == "application/x-www-form-urlencoded"
	switch {
	case strings.EqualFold(scheme, "Bearer"):
		closeBody(r)
		return nil, errors.New("the token is of the type Bearer, and DPoP is configured: log in again, or without DPoP")
	case !bound && !form:
		return base.RoundTrip(r)
	}
	for attempt := 1; ; attempt++ {
		proof, err := d.proof(r, strings.TrimSpace(token), bound)
		if err != nil {
			closeBody(r)
			return nil, err
		}
		proved := r.Clone(r.Context())
		proved.Header.Set("DPoP", proof)
		response, err := base.RoundTrip(proved)
		if err != nil {
			return nil, err
		}
		again := d.keepNonce(r.URL, response) && bound && wantsNonce(response)
		if !again || attempt == nonceAttempts || r.Body != nil && r.Body != http.NoBody && r.GetBody == nil {
			return response, nil
		}
		_, _ = io.CopyN(io.Discard, response.Body, 4<<10) // so that its connection can be used again
		_ = response.Body.Close()
		if r = r.Clone(r.Context()); r.GetBody != nil {
			if r.Body, err = r.GetBody(); err != nil {
				return nil, err
			}
		}
	}
}

// CloseIdleConnections is for http.Client.
func (d *DPoP) CloseIdleConnections() { (&http.Client{Transport: d.Base}).CloseIdleConnections() }

// proof returns the proof for a request (RFC 9449, 4.2), which is used once.
func (d *DPoP) proof(r *http.Request, token string, bound bool) (string, error) {
	key, nonce, err := d.keyAndNonce(originOf(r.URL.String()))
	if err != nil {
		return "", err
	}
	point, err := key.PublicKey.Bytes() // 4, x, y
	if err != nil {
		return "", err
	}
	encode := base64.RawURLEncoding.EncodeToString
	header := map[string]any{"typ": "dpop+jwt", "alg": "ES256", "jwk": map[string]string{
		"kty": "EC", "crv": "P-256", "x": encode(point[1:33]), "y": encode(point[33:])}}
	claims := map[string]any{"jti": rand.Text(), "iat": time.Now().Unix(), "htm": r.Method, // htu: no query, no fragment
		"htu": r.URL.Scheme + "://" + cmp.Or(r.Host, r.URL.Host) + cmp.Or(r.URL.EscapedPath(), "/")}
	if bound {
		hash := sha256.Sum256([]byte(token))
		claims["ath"] = encode(hash[:])
	}
	if nonce != "" {
		claims["nonce"] = nonce
	}
	return signJWT(key, header, claims)
}

func (d *DPoP) keyAndNonce(origin string) (key *ecdsa.PrivateKey, nonce string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.key != nil:
	case d.Key == nil:
		d.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case d.Key.Curve != elliptic.P256():
		err = errNotP256
	default:
		d.key = d.Key
	}
	return d.key, d.nonces[origin], err
}

// keepNonce keeps the nonce of a response, whatever its status, for the next request to the same origin (RFC 9449, 8.2
// and 9), and reports whether it has one.
func (d *DPoP) keepNonce(u *url.URL, response *http.Response) bool {
	nonce := response.Header.Get("DPoP-Nonce")
	if nonce == "" || len(nonce) > maxNonce {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.nonces == nil {
		d.nonces = make(map[string]string)
	}
	d.nonces[originOf(u.String())] = nonce
	return true
}

// wantsNonce reports whether the resource refuses a request for the nonce in its proof (RFC 9449, 9).
func wantsNonce(response *http.Response) bool {
	challenges := parseChallenges(response.Header.Values("WWW-Authenticate"))
	return response.StatusCode == http.StatusUnauthorized && slices.ContainsFunc(challenges, func(c challenge) bool {
		return c.scheme == "dpop" && c.params["error"] == "use_dpop_nonce"
	})
}
