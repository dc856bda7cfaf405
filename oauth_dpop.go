// oauth_dpop.go - tokens that are bound to a key: DPoP, RFC 9449.
// Needs: Go 1.25.
// SPDX-License-Identifier: 0BSD

package main

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

const (
	maxNonce      = 4 << 10 // bytes of a DPoP nonce; a longer one is not used
	nonceAttempts = 3       // of one request: a nonce may expire between two of them
)

// DPoP is an http.RoundTripper that binds tokens to a key (RFC 9449): whoever steals a token has no
// use for it. It stands below OAuth, as its Base.
//
// Each token request, which is any POST of a form, and each request with a token of the type DPoP
// gets a proof: a JSON Web Token for this request alone, signed with the key. A token that is not
// bound, of the type Bearer, is not sent.
//
// A server may want a nonce of its own in the proof. It refuses a proof without it, and gives the
// nonce with the refusal. A request to the resource is then sent again from here, which needs its
// GetBody. A token request is left to OAuth, as it may need another client assertion.
//
// Set the exported fields before the first request. Any number of requests can be under way at
// once.
type DPoP struct {
	Base http.RoundTripper // nil: http.DefaultTransport
	Key  *ecdsa.PrivateKey // of P-256, for tokens that outlive the run; nil: a new one

	mu     sync.Mutex        // guards the following; never held across I/O
	key    *ecdsa.PrivateKey // Key, or the new one; nil before the first proof
	nonces map[string]string // the last nonce of each origin
}

// RoundTrip sends a request, with a proof if it needs one.
func (d *DPoP) RoundTrip(r *http.Request) (*http.Response, error) {
	base := cmp.Or(d.Base, http.DefaultTransport)
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	isBound := strings.EqualFold(scheme, "DPoP")
	contentType := r.Header.Get("Content-Type")
	isForm := r.Method == http.MethodPost && contentType == "application/x-www-form-urlencoded"
	switch {
	case strings.EqualFold(scheme, "Bearer"):
		// Whoever stole this token could use it, against what the configuration promises.
		closeBody(r)
		return nil, errors.New("the token is of the type Bearer, and DPoP is configured: " +
			"log in again, or without DPoP")
	case isBound:
		return d.sendBound(base, r, strings.TrimSpace(token))
	case isForm:
		response, _, err := d.send(base, r, "")
		return response, err
	}
	return base.RoundTrip(r)
}

// sendBound sends a request with a token that is bound to the key, and sends it again where its
// proof needs another nonce.
func (d *DPoP) sendBound(base http.RoundTripper, r *http.Request, token string) (
	*http.Response, error) {
	canRepeat := r.Body == nil || r.Body == http.NoBody || r.GetBody != nil
	for attempt := 1; ; attempt++ {
		response, isNewNonce, err := d.send(base, r, token)
		if err != nil {
			return nil, err
		}
		isRefused := isNewNonce && wantsNonce(response)
		if !isRefused || !canRepeat || attempt == nonceAttempts {
			return response, nil
		}
		discardBody(response)
		r = r.Clone(r.Context())
		if r.GetBody != nil {
			r.Body, err = r.GetBody()
			if err != nil {
				return nil, err
			}
		}
	}
}

// send sends a copy of a request with a proof, keeps the nonce of the response, and reports whether
// the response has a nonce. The token is empty for a token request.
func (d *DPoP) send(base http.RoundTripper, r *http.Request, token string) (
	response *http.Response, hasNonce bool, err error) {
	proof, err := d.proof(r, token)
	if err != nil {
		closeBody(r)
		return nil, false, err
	}
	// A round tripper must not change the request that it is given.
	proved := r.Clone(r.Context())
	proved.Header.Set("DPoP", proof)
	response, err = base.RoundTrip(proved)
	if err != nil {
		return nil, false, err
	}
	return response, d.keepNonce(r.URL, response), nil
}

// CloseIdleConnections closes the idle connections of Base; http.Client calls it.
func (d *DPoP) CloseIdleConnections() { (&http.Client{Transport: d.Base}).CloseIdleConnections() }

// proof returns the proof for a request (RFC 9449, 4.2). A server accepts it once. It has the hash
// of the token, so that nobody can send another token with it.
func (d *DPoP) proof(r *http.Request, token string) (string, error) {
	key, nonce, err := d.keyAndNonce(originOf(r.URL.String()))
	if err != nil {
		return "", err
	}
	// The encoded point is the byte 4, then x and y of 32 bytes each (SEC 1, 2.3.3).
	point, err := key.PublicKey.Bytes()
	if err != nil {
		return "", err
	}
	encode := base64.RawURLEncoding.EncodeToString
	header := map[string]any{
		"typ": "dpop+jwt",
		"alg": "ES256",
		"jwk": map[string]string{
			"kty": "EC",
			"crv": "P-256",
			"x":   encode(point[1:33]),
			"y":   encode(point[33:]),
		},
	}
	// The URL of a proof has no query and no fragment.
	address := r.URL.Scheme + "://" + cmp.Or(r.Host, r.URL.Host)
	if path := r.URL.EscapedPath(); path != "" {
		address += path
	} else {
		address += "/"
	}
	// The proof is good for one method, at one URL, once and soon.
	claims := map[string]any{
		"jti": rand.Text(),
		"iat": time.Now().Unix(),
		"htm": r.Method,
		"htu": address,
	}
	if token != "" {
		hash := sha256.Sum256([]byte(token))
		claims["ath"] = encode(hash[:])
	}
	if nonce != "" {
		claims["nonce"] = nonce
	}
	return signJWT(key, header, claims)
}

// keyAndNonce returns what a proof for an origin needs. The first proof makes the key, if there is
// none.
func (d *DPoP) keyAndNonce(origin string) (*ecdsa.PrivateKey, string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.key == nil {
		key := d.Key
		if key == nil {
			var err error
			key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
			if err != nil {
				return nil, "", err
			}
		}
		if key.Curve != elliptic.P256() {
			return nil, "", errNotP256
		}
		d.key = key
	}
	return d.key, d.nonces[origin], nil
}

// keepNonce keeps the nonce of a response, whatever its status, for the next request to the same
// origin (RFC 9449, 8.2 and 9), and reports whether the response has one.
func (d *DPoP) keepNonce(u *url.URL, response *http.Response) bool {
	// The nonce goes into the header of each request, so a long one would be a burden.
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

// wantsNonce reports whether the resource refuses a request for the nonce in its proof (RFC 9449,
// 9).
func wantsNonce(response *http.Response) bool {
	if response.StatusCode != http.StatusUnauthorized {
		return false
	}
	for _, c := range parseChallenges(response.Header.Values("WWW-Authenticate")) {
		if c.scheme == "dpop" && c.params["error"] == "use_dpop_nonce" {
			return true
		}
	}
	return false
}
