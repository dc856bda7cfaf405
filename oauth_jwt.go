// oauth_jwt.go - private keys, and what they sign: JSON Web Tokens with ES256.
// Needs: Go 1.25.
// SPDX-License-Identifier: 0BSD

package main

import (
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
	"time"
)

var errNotP256 = errors.New("the private key is not an EC key of P-256, which ES256 needs")

const assertionLife = 5 * time.Minute // of a client assertion

// PrivateKeyJWT returns the OAuth.Assert of a client that proves who it is with a private key, in
// place of a secret that the authorization server would know, too (RFC 7523, 2.2 and 3). The server
// has the public key from the registration. The key is PEM, as ECKey reads it. keyID names the key
// to a server that has several keys of this client; it may be empty.
//
// An assertion is for one audience, is valid for a few minutes, and has an ID of its own: a server
// accepts it once.
func PrivateKeyJWT(clientID string, key []byte, keyID string) (
	func(audience string) (string, error), error) {
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
		return signJWT(private, header, map[string]any{
			"iss": clientID,
			"sub": clientID,
			"aud": audience,
			"iat": now.Unix(),
			"exp": now.Add(assertionLife).Unix(),
			"jti": rand.Text(),
		})
	}, nil
}

// ECKey reads the first private key of a text in PEM: PKCS #8 ("PRIVATE KEY") or SEC 1 ("EC PRIVATE
// KEY"), not encrypted. It must be of P-256. Other blocks are passed over: openssl writes EC
// PARAMETERS before the key.
func ECKey(text []byte) (*ecdsa.PrivateKey, error) {
	for {
		block, rest := pem.Decode(text)
		if block == nil {
			return nil, errors.New("the text is not a private key in PEM " +
				"(PRIVATE KEY or EC PRIVATE KEY, not encrypted)")
		}
		var key any
		var err error
		switch block.Type {
		case "PRIVATE KEY":
			key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
		case "EC PRIVATE KEY":
			key, err = x509.ParseECPrivateKey(block.Bytes)
		default:
			text = rest
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("the private key cannot be read: %w", err)
		}
		private, ok := key.(*ecdsa.PrivateKey)
		if !ok || private.Curve != elliptic.P256() {
			return nil, errNotP256
		}
		return private, nil
	}
}

// signJWT returns a JSON Web Token, signed with ES256. The signature is r and s, of 32 bytes each
// (RFC 7515, 3.1; RFC 7518, 3.4).
func signJWT(key *ecdsa.PrivateKey, header, claims map[string]any) (string, error) {
	headerText, err := json.Marshal(header)
	if err != nil {
		return "", err
	}
	claimsText, err := json.Marshal(claims)
	if err != nil {
		return "", err
	}
	encode := base64.RawURLEncoding.EncodeToString
	text := encode(headerText) + "." + encode(claimsText)
	// ES256 is ECDSA with P-256 and SHA-256.
	hash := sha256.Sum256([]byte(text))
	r, s, err := ecdsa.Sign(rand.Reader, key, hash[:])
	if err != nil {
		return "", err
	}
	// Leading zeros stay: both numbers have the same place in every signature.
	signature := make([]byte, 64)
	r.FillBytes(signature[:32])
	s.FillBytes(signature[32:])
	return text + "." + encode(signature), nil
}
