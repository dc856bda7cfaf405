package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/big"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

const (
	machineResource = "https://api.example/mcp"
	machineIssuer   = "https://as.example"
	machineToken    = machineIssuer + "/token?tenant=a" // a token endpoint may have a query (RFC 6749, 3.2)
	machineIDP      = "https://idp.example/token"
	machineSecret   = "s:cret+%/é" // has to be encoded for Basic (RFC 6749, 2.3.1)
)

// machineServers are an oauthServer for clients that act without a person, and an identity provider, in memory. They
// verify assertions and proofs, and refuse what is wrong.
type machineServers struct {
	*oauthServer
	clientKey *ecdsa.PrivateKey // of the client jwt
	idpKey    *ecdsa.PrivateKey // signs ID tokens, ID-JAGs and the assertions of workloads
	nonceUses int               // proofs need a nonce, which is good for so many of them; 0: they need none
	refuse    bool              // every nonce

	// The mutex of the oauthServer guards the following.
	seen   []string       // the requests: host, grant or method, status
	nonces map[string]int // proofs that each nonce is good for
}

func newMachineServers() *machineServers {
	s := &machineServers{
		oauthServer: newOAuthServer(),
		clientKey:   machineKey(),
		idpKey:      machineKey(),
		nonces:      make(map[string]int),
	}
	s.Issuer, s.Resource, s.Query = machineIssuer, machineResource, "tenant=a"
	s.Methods = []string{"client_secret_basic", "client_secret_post", "private_key_jwt", "none"}
	s.NoDCR = true
	s.Metadata = func(document map[string]any) {
		delete(document, "authorization_endpoint")
		delete(document, "code_challenge_methods_supported")
	}
	s.register("basic", machineSecret, "client_secret_basic")
	s.register("post", machineSecret, "client_secret_post")
	s.register("idp-client", machineSecret, "client_secret_basic")
	s.clients["jwt"] = &oauthTestClient{method: "private_key_jwt", key: &s.clientKey.PublicKey}
	s.Grant = s.checkGrant
	return s
}

func machineKey() *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	return key
}

func machinePEM(t *testing.T, key any) []byte {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	assert.NilError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

// client is a client of the resource through o, which gets the servers as its Base if it has none.
func (s *machineServers) client(t *testing.T, o *OAuth) *http.Client {
	o.Resource = machineResource
	if o.Base == nil {
		o.Base = htMemory{s}
	}
	t.Cleanup(func() { assert.Check(t, o.Close()) })
	return &http.Client{Transport: o}
}

// call makes a request, and returns its status.
func machineCall(client *http.Client) (int, error) {
	response, err := client.Post(machineResource+"?q=1#f", "application/json", strings.NewReader(`{"id":1}`))
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	return response.StatusCode, err
}

// problems returns the faults since the last call.
func (s *machineServers) problems() (faults []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	faults, s.faults = s.faults, nil
	return faults
}

// requests returns the requests since the last call, without those for metadata.
func (s *machineServers) requests() (seen []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen, s.seen = s.seen, nil
	return seen
}

// machineRecorder notes the status of an answer.
type machineRecorder struct {
	http.ResponseWriter
	status int
}

func (w *machineRecorder) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

func (s *machineServers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	recorder := &machineRecorder{w, http.StatusOK}
	switch r.Host {
	case "api.example":
		s.serveResource(recorder, r, nil)
	case "as.example":
		s.serveIssuer(recorder, r)
	case "idp.example":
		s.serveProvider(recorder, r)
	}
	if strings.Contains(r.URL.Path, "/.well-known/") {
		return
	}
	what := r.Method
	if grant := r.PostForm.Get("grant_type"); grant != "" {
		what = grant[strings.LastIndex(grant, ":")+1:]
	}
	s.set(func() { s.seen = append(s.seen, fmt.Sprintf("%s %s %d", r.Host, what, recorder.status)) })
}

// bind binds tokens to the key that a token request proves.
func (s *machineServers) bind() { s.Proof = s.proof }

// proof verifies the proof of a request, and its nonce, and returns the thumbprint of its key. It is oauthServer.Proof.
func (s *machineServers) proof(w http.ResponseWriter, r *http.Request, uri, token string) (
	key, description, code string) {
	key, nonce, err := s.verifyProof(r, uri, token)
	if err != nil {
		return "", err.Error(), "invalid_dpop_proof"
	}
	if s.nonceUses > 0 && !s.takeNonce(r.Host, nonce) {
		w.Header().Set("DPoP-Nonce", s.newNonce(r.Host))
		return "", "nonce", "use_dpop_nonce"
	}
	return key, "", ""
}

func (s *machineServers) newNonce(host string) string {
	nonce := host + rand.Text()
	s.nonces[nonce] = s.nonceUses
	return nonce
}

// takeNonce reports whether a nonce is good, which it is for one proof less then.
func (s *machineServers) takeNonce(host, nonce string) bool {
	if s.nonces[nonce] == 0 || !strings.HasPrefix(nonce, host) || s.refuse {
		return false
	}
	s.nonces[nonce]--
	return true
}

// verifyProof verifies the proof of a request (RFC 9449, 4.3), and returns the thumbprint of its key and its nonce.
func (s *machineServers) verifyProof(r *http.Request, uri, token string) (thumbprint, nonce string, err error) {
	proofs := r.Header.Values("DPoP")
	if len(proofs) != 1 {
		return "", "", fmt.Errorf("%d proofs", len(proofs))
	}
	header, claims, err := machineVerify(proofs[0], nil)
	if err != nil {
		return "", "", err
	}
	jti, _ := claims["jti"].(string)
	issued, _ := claims["iat"].(float64)
	want := map[string]any{"htm": r.Method, "htu": uri, "jti": claims["jti"], "iat": claims["iat"]}
	if token != "" {
		hash := sha256.Sum256([]byte(token))
		want["ath"] = base64.RawURLEncoding.EncodeToString(hash[:])
	}
	nonce, hasNonce := claims["nonce"].(string)
	if hasNonce {
		want["nonce"] = nonce
	}
	switch {
	case header["typ"] != "dpop+jwt":
		return "", "", errors.New("typ of the proof")
	case fmt.Sprint(want) != fmt.Sprint(claims):
		return "", "", fmt.Errorf("claims of the proof: %v, not %v", claims, want)
	case len(jti) < 16 || s.used[jti]:
		return "", "", errors.New("jti of the proof")
	case time.Since(time.Unix(int64(issued), 0)).Abs() > time.Minute:
		return "", "", errors.New("iat of the proof")
	}
	s.used[jti] = true
	return machineThumbprint(header["jwk"].(map[string]any)), nonce, nil
}

// machineThumbprint is that of a key (RFC 7638, 3).
func machineThumbprint(jwk map[string]any) string {
	text := fmt.Sprintf(`{"crv":%q,"kty":%q,"x":%q,"y":%q}`, jwk["crv"], jwk["kty"], jwk["x"], jwk["y"])
	hash := sha256.Sum256([]byte(text))
	return base64.RawURLEncoding.EncodeToString(hash[:])
}

// machineVerify verifies the signature of a JWT, with the key in its header if there is no other.
func machineVerify(text string, key *ecdsa.PublicKey) (header, claims map[string]any, err error) {
	parts := strings.Split(text, ".")
	if len(parts) != 3 {
		return nil, nil, errors.New("not a JWT")
	}
	var decoded [3][]byte
	for i, part := range parts {
		if decoded[i], err = base64.RawURLEncoding.DecodeString(part); err != nil {
			return nil, nil, err
		}
	}
	err = errors.Join(json.Unmarshal(decoded[0], &header), json.Unmarshal(decoded[1], &claims))
	if err != nil {
		return nil, nil, err
	}
	if key == nil {
		jwk, _ := header["jwk"].(map[string]any)
		x, _ := jwk["x"].(string)
		y, _ := jwk["y"].(string)
		left, _ := base64.RawURLEncoding.DecodeString(x)
		right, _ := base64.RawURLEncoding.DecodeString(y)
		key, err = ecdsa.ParseUncompressedPublicKey(elliptic.P256(), slices.Concat([]byte{4}, left, right))
		if err != nil || len(jwk) != 4 || jwk["kty"] != "EC" || jwk["crv"] != "P-256" { // and no private key
			return nil, nil, errors.New("jwk of the proof")
		}
	}
	hash := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
	if header["alg"] != "ES256" || len(decoded[2]) != 64 ||
		!ecdsa.Verify(key, hash[:], new(big.Int).SetBytes(decoded[2][:32]), new(big.Int).SetBytes(decoded[2][32:])) {
		return nil, nil, errors.New("signature")
	}
	return header, claims, nil
}

// verifyAssertion verifies a JWT that is made for an audience, and used once (RFC 7523, 3).
func (s *oauthServer) verifyAssertion(text string, key *ecdsa.PublicKey, audience string) (
	header, claims map[string]any, err error) {
	header, claims, err = machineVerify(text, key)
	if err != nil {
		return nil, nil, err
	}
	jti, _ := claims["jti"].(string)
	expiry, _ := claims["exp"].(float64)
	left := time.Until(time.Unix(int64(expiry), 0))
	switch {
	case claims["aud"] != audience:
		return nil, nil, fmt.Errorf("audience %v", claims["aud"])
	case left <= 0 || left > 10*time.Minute:
		return nil, nil, fmt.Errorf("an assertion that is good for %s", left)
	case jti == "" || s.used[jti]:
		return nil, nil, errors.New("jti of the assertion")
	}
	s.used[jti] = true
	return header, claims, nil
}

// authenticateByKey returns the client of a token request with a client assertion (RFC 7523, 2.2).
func (s *oauthServer) authenticateByKey(form url.Values) (string, error) {
	const kind = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
	id := form.Get("client_id")
	client := s.clients[id]
	if client == nil || client.method != "private_key_jwt" {
		return "", errors.New("unknown client")
	}
	header, claims, err := s.verifyAssertion(form.Get("client_assertion"), client.key, s.Issuer)
	if err != nil {
		return "", err
	}
	if claims["iss"] != id || claims["sub"] != id || form.Has("client_secret") || header["kid"] != "key-1" ||
		form.Get("client_assertion_type") != kind {
		return "", fmt.Errorf("client assertion: %v %v %v", header, claims, form)
	}
	return id, nil
}

// checkGrant checks the token requests without a person. It is oauthServer.Grant.
func (s *machineServers) checkGrant(form url.Values, client string) (description, code string) {
	switch form.Get("grant_type") {
	case "client_credentials":
		if client == "" {
			return "no client", "unauthorized_client"
		}
	case "urn:ietf:params:oauth:grant-type:jwt-bearer":
		_, claims, err := s.verifyAssertion(form.Get("assertion"), &s.idpKey.PublicKey, machineIssuer)
		if err != nil {
			return err.Error(), "invalid_grant"
		}
		id, isForClient := claims["client_id"]
		if isForClient && (id != client || claims["resource"] != machineResource) {
			return "the grant is for another client or resource", "invalid_grant"
		}
	default:
		return "grant", "unsupported_grant_type"
	}
	return "", ""
}

const machineURN = "urn:ietf:params:oauth:"

// serveProvider is the identity provider, which exchanges an ID token for an ID-JAG.
func (s *machineServers) serveProvider(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := r.ParseForm()
	form := r.PostForm
	var client string
	if err == nil {
		client, err = s.authenticate(r)
	}
	if err == nil {
		_, _, err = s.verifyAssertion(form.Get("subject_token"), &s.idpKey.PublicKey, "idp-client")
	}
	for name, want := range map[string]string{
		"grant_type":           machineURN + "grant-type:token-exchange",
		"requested_token_type": machineURN + "token-type:id-jag",
		"subject_token_type":   machineURN + "token-type:id_token",
		"audience":             machineIssuer,
		"resource":             machineResource,
		"scope":                "read write",
	} {
		if err == nil && (client != "idp-client" || !slices.Equal(form[name], []string{want})) {
			err = fmt.Errorf("exchange: %v", form)
		}
	}
	if err != nil {
		s.noteFault(err.Error(), "invalid_grant")
		answer := map[string]any{"error": "invalid_grant", "error_description": err.Error()}
		writeTestJSON(w, http.StatusBadRequest, answer)
		return
	}
	writeTestJSON(w, http.StatusOK, map[string]any{
		"token_type":        "N_A",
		"issued_token_type": machineURN + "token-type:id-jag",
		"access_token": s.sign(map[string]any{
			"aud":       machineIssuer,
			"resource":  machineResource,
			"client_id": "basic",
			"jti":       rand.Text(),
		}),
	})
}

// sign signs a JWT as the identity provider, which is good for a minute.
func (s *machineServers) sign(claims map[string]any) string {
	claims["exp"] = time.Now().Add(time.Minute).Unix()
	text, err := signJWT(s.idpKey, map[string]any{"alg": "ES256"}, claims)
	if err != nil {
		panic(err)
	}
	return text
}

// Each client without a person gets tokens as it is configured, and a new one when the last has expired.
func TestMachineGrants(t *testing.T) {
	for _, row := range []struct {
		name      string
		configure func(s *machineServers, o *OAuth)
		exchange  bool   // there is a token exchange first
		grant     string // the end of the grant type
	}{
		{"client credentials, basic", func(s *machineServers, o *OAuth) {
			o.Client, o.Grant = OAuthClient{ID: "basic", Secret: machineSecret}, ClientCredentials
		}, false, "client_credentials"},
		{"client credentials, post", func(s *machineServers, o *OAuth) {
			o.Client = OAuthClient{ID: "post", Secret: machineSecret, AuthMethod: "client_secret_post"}
			o.Grant = ClientCredentials
		}, false, "client_credentials"},
		{"client credentials, private key", func(s *machineServers, o *OAuth) {
			o.Client, o.Grant = OAuthClient{ID: "jwt", AuthMethod: "private_key_jwt"}, ClientCredentials
			var err error
			o.Assert, err = PrivateKeyJWT("jwt", machinePEM(t, s.clientKey), "key-1")
			assert.NilError(t, err)
		}, false, "client_credentials"},
		{"workload", func(s *machineServers, o *OAuth) {
			o.Grant = JWTBearer(func(context.Context) (string, error) {
				return s.sign(map[string]any{"aud": machineIssuer, "jti": rand.Text()}), nil
			})
		}, false, "jwt-bearer"},
		{"enterprise", func(s *machineServers, o *OAuth) {
			o.Client = OAuthClient{ID: "basic", Secret: machineSecret}
			o.Grant = s.provider().Grant
		}, true, "jwt-bearer"},
	} {
		for _, proof := range []string{"", " and DPoP", " and DPoP with nonces"} {
			t.Run(row.name+proof, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s, o := newMachineServers(), &OAuth{}
					var told []string
					o.Secret = func(text string) { told = append(told, text) }
					row.configure(s, o)
					o.Client.Issuer = machineIssuer
					if proof != "" {
						s.bind()
						o.Base = &DPoP{Base: htMemory{s}}
					}
					if strings.Contains(proof, "nonces") {
						s.nonceUses = 100
					}
					client, want := s.client(t, o), []string(nil)
					for round := range 2 {
						refused := round == 0 && s.nonceUses > 0
						want = append(want, "api.example POST 401")
						if row.exchange {
							want = append(want, "idp.example token-exchange 200")
						}
						if refused {
							want = append(want, "as.example "+row.grant+" 400")
						}
						want = append(want, "as.example "+row.grant+" 200")
						if refused {
							want = append(want, "api.example POST 401")
						}
						want = append(want, "api.example POST 200", "api.example POST 200")
						for range 2 {
							status, err := machineCall(client)
							assert.NilError(t, err)
							assert.Equal(t, status, http.StatusOK)
						}
						time.Sleep(time.Hour)
					}
					assert.DeepEqual(t, s.requests(), want)
					assert.DeepEqual(t, s.problems(), []string{"unknown token"}) // which has expired
					for _, secret := range s.secrets {
						assert.Check(t, slices.Contains(told, secret), "%s was not told", secret)
					}
				})
			})
		}
	}
}

// provider is the identity provider as a client has it that the person has logged in to.
func (s *machineServers) provider() *IdentityProvider {
	return &IdentityProvider{
		TokenEndpoint: machineIDP,
		Client:        OAuthClient{ID: "idp-client", Secret: machineSecret},
		Subject: func(context.Context) (string, error) {
			return s.sign(map[string]any{"aud": "idp-client", "jti": rand.Text()}), nil
		},
		Scopes: []string{"read", "write"},
		Base:   htMemory{s},
	}
}

// A grant that is refused is neither repeated nor replaced by another, and the error says why without a secret.
func TestMachineGrantsRefused(t *testing.T) {
	for _, row := range []struct {
		name, code, request string
		configure           func(s *machineServers, o *OAuth)
	}{
		{"wrong secret", "invalid_client", "as.example client_credentials 401", func(s *machineServers, o *OAuth) {
			o.Client, o.Grant = OAuthClient{ID: "basic", Secret: "planted-secret"}, ClientCredentials
		}},
		{"another key", "invalid_client", "as.example client_credentials 401", func(s *machineServers, o *OAuth) {
			o.Client, o.Grant = OAuthClient{ID: "jwt", AuthMethod: "private_key_jwt"}, ClientCredentials
			o.Assert, _ = PrivateKeyJWT("jwt", machinePEM(t, machineKey()), "key-1")
		}},
		{"assertion for another", "invalid_grant", "as.example jwt-bearer 400", func(s *machineServers, o *OAuth) {
			o.Grant = JWTBearer(func(context.Context) (string, error) {
				return s.sign(map[string]any{"aud": "https://another.example", "jti": rand.Text()}), nil
			})
		}},
		{"identity provider", "invalid_grant", "idp.example token-exchange 400", func(s *machineServers, o *OAuth) {
			p := s.provider()
			p.Subject = func(context.Context) (string, error) { return "planted-secret", nil }
			o.Client, o.Grant = OAuthClient{ID: "basic", Secret: machineSecret}, p.Grant
		}},
		{"no assertion", "", "", func(s *machineServers, o *OAuth) {
			o.Grant = JWTBearer(AssertionFile(filepath.Join(t.TempDir(), "none")))
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			s, o := newMachineServers(), &OAuth{}
			row.configure(s, o)
			o.Client.Issuer = machineIssuer
			_, err := machineCall(s.client(t, o))
			assert.Assert(t, errors.As(err, new(*AuthorizationError)), "%v", err)
			want := []string{"api.example POST 401"}
			if row.code == "" {
				assert.Assert(t, errors.Is(err, os.ErrNotExist), "%v", err)
			} else {
				var refusal *OAuthError
				assert.Assert(t, errors.As(err, &refusal), "%v", err)
				assert.Equal(t, refusal.Code, row.code)
				want = append(want, row.request)
			}
			assert.DeepEqual(t, s.requests(), want)
			assert.Assert(t, !strings.Contains(err.Error(), "planted-secret"), "%v", err)
		})
	}
}

// TestMachineIssuer: an assertion, and the secret of a client, are credentials. They go only to the authorization
// server that the configuration names, and nowhere if it names none: the resource may name anybody.
func TestMachineIssuer(t *testing.T) {
	for issuer, want := range map[string]string{
		"https://another.example": `the client "basic" is registered with "https://another.example", but`,
		"": `a login without a person needs the issuer of its client (oauth.issuer): ` +
			`the server names "https://as.example"`,
	} {
		for _, grant := range []func(context.Context, *AuthorizationServer, string) (url.Values, error){
			ClientCredentials,
			JWTBearer(func(context.Context) (string, error) { return "", errors.New("the assertion was read") }),
		} {
			s, o := newMachineServers(), &OAuth{Grant: grant}
			o.Client = OAuthClient{Issuer: issuer, ID: "basic", Secret: machineSecret}
			_, err := machineCall(s.client(t, o))
			assert.Check(t, is.ErrorContains(err, want))
			assert.DeepEqual(t, s.requests(), []string{"api.example POST 401"})
		}
	}
}

// An identity provider gives nothing else than what was asked for, and is not asked over plain http.
func TestIdentityProviderRefuses(t *testing.T) {
	const ok = `{"access_token":"planted-token","token_type":"N_A",` +
		`"issued_token_type":"urn:ietf:params:oauth:token-type:id-jag"}`
	as := &AuthorizationServer{Issuer: machineIssuer}
	for answer, want := range map[string]string{
		ok: "",
		strings.Replace(ok, "id-jag", "access_token", 1): "id-jag",
		strings.Replace(ok, "planted-token", "", 1):      "access_token",
		`{"access_token":1}`:                             "access_token",
		strings.Repeat(" ", 2<<20):                       "1048576",
		"<html>":                                         "JSON",
	} {
		handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, answer) })
		p := &IdentityProvider{TokenEndpoint: machineIDP, Base: htMemory{handler},
			Subject: func(context.Context) (string, error) { return "planted-subject", nil }}
		told := make(map[string]bool)
		p.Secret = func(text string) { told[text] = true }
		form, err := p.Grant(t.Context(), as, machineResource)
		if want == "" {
			assert.NilError(t, err)
			assert.Equal(t, form.Get("assertion"), "planted-token")
			assert.Assert(t, told["planted-subject"] && told["planted-token"], told)
			continue
		}
		assert.ErrorContains(t, err, want)
		assert.Assert(t, !strings.Contains(err.Error(), "planted-token"), "%v", err)
	}
	p := &IdentityProvider{TokenEndpoint: "http://idp.example/token", Base: htMemory{http.NotFoundHandler()},
		Subject: func(context.Context) (string, error) { return "subject", nil }}
	_, err := p.Grant(t.Context(), as, machineResource)
	assert.ErrorContains(t, err, "https")
}

func TestECKey(t *testing.T) {
	key := machineKey()
	sec1, err := x509.MarshalECPrivateKey(key)
	assert.NilError(t, err)
	block := func(kind string, der []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	for _, text := range []string{
		string(machinePEM(t, key)),
		block("EC PRIVATE KEY", sec1),
		block("EC PARAMETERS", []byte{6, 8, 42, 134, 72, 206, 61, 3, 1, 7}) + block("EC PRIVATE KEY", sec1),
		"a line before it\n" + string(machinePEM(t, key)),
	} {
		read, err := ECKey([]byte(text))
		assert.NilError(t, err, text)
		assert.Assert(t, read.Equal(key))
	}
	other, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	assert.NilError(t, err)
	short, err := rsa.GenerateKey(rand.Reader, 2048)
	assert.NilError(t, err)
	for text, want := range map[string]string{
		"":                           "not a private key in PEM",
		"planted-secret":             "not a private key in PEM",
		string(machinePEM(t, other)): "P-256",
		string(machinePEM(t, short)): "P-256",
		block("PRIVATE KEY", []byte("planted-secret")):    "cannot be read",
		block("EC PRIVATE KEY", []byte("planted-secret")): "cannot be read",
		block("ENCRYPTED PRIVATE KEY", sec1):              "not encrypted",
	} {
		_, err := ECKey([]byte(text))
		assert.ErrorContains(t, err, want)
		_, err = PrivateKeyJWT("a", []byte(text), "")
		assert.ErrorContains(t, err, want)
		assert.Assert(t, !strings.Contains(err.Error(), "planted"), "%v", err)
	}
	d := &DPoP{Base: htMemory{newMachineServers()}, Key: other}
	_, err = d.RoundTrip(machineTokenRequest(t))
	assert.ErrorIs(t, err, errNotP256)
}

// What a platform renews in a file is read anew.
func TestAssertionFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	read := AssertionFile(path)
	_, err := read(t.Context())
	assert.ErrorIs(t, err, os.ErrNotExist)
	for text, want := range map[string]string{
		"a.b.c\n": "a.b.c",
		" d.e.f":  "d.e.f",
		" \n":     "",
	} {
		assert.NilError(t, os.WriteFile(path, []byte(text), 0o600))
		got, err := read(t.Context())
		assert.Equal(t, got, want)
		assert.Equal(t, err == nil, want != "", "%v", err)
	}
}

// A file of logins or assertions has a bound, and what is not a regular file is not read: it might have no end.
func TestOAuthFileBound(t *testing.T) {
	folder := t.TempDir()
	large := filepath.Join(folder, "large")
	assert.NilError(t, os.WriteFile(large, bytes.Repeat([]byte("a"), maxOAuthBody), 0o600))
	_, err := AssertionFile(large)(t.Context())
	assert.NilError(t, err)
	assert.NilError(t, os.WriteFile(large, bytes.Repeat([]byte("a"), maxOAuthBody+1), 0o600))
	for path, want := range map[string]string{large: "has more than 1048576 bytes", folder: "is not a regular file"} {
		_, err := AssertionFile(path)(t.Context())
		assert.Check(t, is.ErrorContains(err, want))
		_, err = (&OAuthFile{Path: path}).Load()
		assert.Check(t, is.ErrorContains(err, want))
	}
}

// machineTokenRequest is a request for a token, which the servers fulfil.
func machineTokenRequest(t *testing.T) *http.Request {
	t.Helper()
	form := url.Values{"grant_type": {"client_credentials"}, "resource": {machineResource}, "client_id": {"post"},
		"client_secret": {machineSecret}}.Encode()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, machineToken, strings.NewReader(form))
	assert.NilError(t, err)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return r
}

// machineSend sends a request, and returns the status and the body of the answer.
func machineSend(t *testing.T, through http.RoundTripper, r *http.Request) (int, string) {
	t.Helper()
	response, err := through.RoundTrip(r)
	assert.NilError(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	assert.NilError(t, err)
	return response.StatusCode, string(text)
}

// machineGetToken gets a token through a DPoP, and returns a request with it.
func machineGetToken(t *testing.T, d *DPoP) (token string) {
	t.Helper()
	status, text := machineSend(t, d, machineTokenRequest(t))
	assert.Equal(t, status, http.StatusOK, text)
	var answer struct {
		Access string `json:"access_token"`
	}
	assert.NilError(t, json.Unmarshal([]byte(text), &answer))
	return answer.Access
}

// machineRequest is a request with a token to the resource.
func machineRequest(t *testing.T, token string) *http.Request {
	t.Helper()
	body := strings.NewReader(`{"id":1}`)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, machineResource+"?q=1#f", body)
	assert.NilError(t, err)
	r.Header.Set("Authorization", "DPoP "+token)
	return r
}

// Each request has a proof of its own, which the servers verify; a token does not work with another key.
func TestDPoP(t *testing.T) {
	s := newMachineServers()
	s.bind()
	d := &DPoP{Base: htMemory{s}, Key: machineKey()}
	token := machineGetToken(t, d)
	var work sync.WaitGroup
	for range 8 {
		work.Go(func() {
			response, err := d.RoundTrip(machineRequest(t, token))
			if assert.Check(t, err) {
				assert.Check(t, is.Equal(response.StatusCode, http.StatusOK))
				assert.Check(t, response.Body.Close())
			}
		})
	}
	work.Wait()
	assert.DeepEqual(t, s.problems(), []string(nil))
	assert.Equal(t, len(s.used), 9)
	next := &DPoP{Base: htMemory{s}, Key: d.Key} // in the next run
	status, _ := machineSend(t, next, machineRequest(t, token))
	assert.Equal(t, status, http.StatusOK)
	status, _ = machineSend(t, &DPoP{Base: htMemory{s}}, machineRequest(t, token))
	assert.Equal(t, status, http.StatusUnauthorized)
	assert.DeepEqual(t, s.problems(), []string{"the token is bound to another key"})
}

// Requests that are neither for a token nor with one that is bound go on as they are; one with a token that is not
// bound goes nowhere.
func TestDPoPOthers(t *testing.T) {
	sent := 0
	d := &DPoP{Base: chatTransport(func(r *http.Request) (*http.Response, error) {
		sent++
		assert.Check(t, is.Equal(len(r.Header.Values("DPoP")), 0))
		header := http.Header{"Dpop-Nonce": {"a"}}
		return &http.Response{StatusCode: http.StatusUnauthorized, Header: header, Body: http.NoBody}, nil
	})}
	for _, authorization := range []string{"", "Basic YTpi", "Dpopp a"} {
		r := machineRequest(t, "")
		r.Header.Set("Authorization", authorization)
		status, _ := machineSend(t, d, r)
		assert.Equal(t, status, http.StatusUnauthorized)
	}
	assert.Equal(t, sent, 3)
	r := machineRequest(t, "")
	r.Header.Set("Authorization", "bearer planted-token")
	closed := &machineBody{Reader: strings.NewReader("")}
	r.Body = closed
	_, err := d.RoundTrip(r)
	assert.ErrorContains(t, err, "of the type Bearer")
	assert.Assert(t, closed.closed && !strings.Contains(err.Error(), "planted-token"), "%v", err)
	assert.Equal(t, sent, 3)
}

type machineBody struct {
	io.Reader
	closed bool
}

func (b *machineBody) Close() error { b.closed = true; return nil }

// A server may want its nonce in proofs, and another one later. It gets it, the token endpoint and the resource each
// its own; the request is sent again with a new proof. One that is never content is not asked for ever.
func TestDPoPNonces(t *testing.T) {
	s := newMachineServers()
	s.bind()
	s.nonceUses = 2
	d := &DPoP{Base: htMemory{s}}
	status, text := machineSend(t, d, machineTokenRequest(t))
	assert.Equal(t, status, http.StatusBadRequest)
	assert.Assert(t, is.Contains(text, `{"error":"use_dpop_nonce"`)) // which is left to OAuth
	token := machineGetToken(t, d)
	const refused, ok = "api.example POST 401", "api.example POST 200"
	for range 5 {
		status, _ := machineSend(t, d, machineRequest(t, token))
		assert.Equal(t, status, http.StatusOK)
	}
	assert.DeepEqual(t, s.requests(), []string{"as.example client_credentials 400", "as.example client_credentials 200",
		refused, ok, ok, refused, ok, ok, refused, ok})
	s.refuse = true
	status, _ = machineSend(t, d, machineRequest(t, token))
	assert.Equal(t, status, http.StatusUnauthorized)
	assert.DeepEqual(t, s.requests(), []string{refused, refused, refused})
	s.refuse = false
	clear(s.nonces)
	again := machineRequest(t, token)
	before := again.Header.Clone()
	status, _ = machineSend(t, d, again)
	assert.Equal(t, status, http.StatusOK)
	assert.DeepEqual(t, again.Header, before) // it is the caller's
	assert.DeepEqual(t, s.requests(), []string{refused, ok})
	clear(s.nonces)
	once := machineRequest(t, token)
	once.GetBody = nil // the body cannot be sent again
	status, _ = machineSend(t, d, once)
	assert.Equal(t, status, http.StatusUnauthorized)
	status, _ = machineSend(t, d, machineRequest(t, token))
	assert.Equal(t, status, http.StatusOK)
	assert.DeepEqual(t, s.requests(), []string{refused, ok}) // with the nonce of the refusal
	assert.Equal(t, len(s.problems()), 0)
}

// An answer that gives a nonce and refuses for another reason is the answer; so is one with a nonce that is too long.
func TestDPoPOtherRefusals(t *testing.T) {
	for _, row := range []struct {
		status    int
		challenge string
		nonce     string
		sent      int
	}{
		{401, `DPoP error="invalid_token"`, "a", 1},
		{401, `Bearer error="use_dpop_nonce"`, "a", 1},
		{401, `Bearer realm="a", dpop algs="ES256", error="use_dpop_nonce"`, "a", 3},
		{401, `DPoP error="use_dpop_nonce"`, "", 1},
		{401, `DPoP error="use_dpop_nonce"`, strings.Repeat("a", maxNonce), 3},
		{401, `DPoP error="use_dpop_nonce"`, strings.Repeat("a", maxNonce+1), 1},
		{403, `DPoP error="use_dpop_nonce"`, "a", 1},
	} {
		sent := 0
		d := &DPoP{Base: htMemory{http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			sent++
			w.Header().Set("DPoP-Nonce", row.nonce)
			w.Header().Set("WWW-Authenticate", row.challenge)
			w.WriteHeader(row.status)
			_, _ = io.WriteString(w, "the body")
		})}}
		status, text := machineSend(t, d, machineRequest(t, "a"))
		assert.Equal(t, status, row.status)
		assert.Equal(t, text, "the body")
		assert.Equal(t, sent, row.sent, row.challenge)
	}
}

// The servers of these tests refuse every proof and assertion with something wrong.
func TestMachineServersRefuse(t *testing.T) {
	s := newMachineServers()
	s.bind()
	token := machineGetToken(t, &DPoP{Base: htMemory{s}, Key: s.clientKey})
	for _, row := range []struct {
		want   string
		change func(header, claims map[string]any)
	}{
		{"", func(_, _ map[string]any) {}},
		{"typ", func(header, _ map[string]any) { header["typ"] = "JWT" }},
		{"signature", func(header, _ map[string]any) { header["alg"] = "ES384" }},
		{"jwk", func(header, _ map[string]any) { delete(header, "jwk") }},
		{"jwk", func(header, _ map[string]any) { header["jwk"].(map[string]any)["d"] = "a" }},
		{"signature", func(header, _ map[string]any) { header["jwk"] = machineJWK(t, machineKey()) }},
		{"claims", func(_, claims map[string]any) { claims["htm"] = "GET" }},
		{"claims", func(_, claims map[string]any) { claims["htu"] = machineResource + "?q=1" }},
		{"claims", func(_, claims map[string]any) { delete(claims, "ath") }},
		{"claims", func(_, claims map[string]any) { claims["ath"] = "a" }},
		{"jti", func(_, claims map[string]any) { delete(claims, "jti") }},
		{"jti", func(_, claims map[string]any) { claims["jti"] = slices.Collect(maps.Keys(s.used))[0] }},
		{"iat", func(_, claims map[string]any) { claims["iat"] = time.Now().Unix() - 100 }},
		{"iat", func(_, claims map[string]any) { delete(claims, "iat") }},
	} {
		hash := sha256.Sum256([]byte(token))
		header := map[string]any{"typ": "dpop+jwt", "alg": "ES256", "jwk": machineJWK(t, s.clientKey)}
		claims := map[string]any{"htm": "POST", "htu": machineResource, "jti": rand.Text(), "iat": time.Now().Unix(),
			"ath": base64.RawURLEncoding.EncodeToString(hash[:])}
		row.change(header, claims)
		proof, err := signJWT(s.clientKey, header, claims)
		assert.NilError(t, err)
		r := machineRequest(t, token)
		r.Header.Set("DPoP", proof)
		status, _ := machineSend(t, htMemory{s}, r)
		assert.Equal(t, status == http.StatusOK, row.want == "")
		assert.Assert(t, is.Contains(strings.Join(s.problems(), "\n"), row.want))
	}
	status, _ := machineSend(t, htMemory{s}, machineRequest(t, token))
	assert.Equal(t, status, http.StatusUnauthorized)
	assert.DeepEqual(t, s.problems(), []string{"0 proofs"})
}

func machineJWK(t *testing.T, key *ecdsa.PrivateKey) map[string]any {
	point, err := key.PublicKey.Bytes()
	assert.NilError(t, err)
	encode := base64.RawURLEncoding.EncodeToString
	return map[string]any{"kty": "EC", "crv": "P-256", "x": encode(point[1:33]), "y": encode(point[33:])}
}

// A signature has 64 bytes, also when one of its two numbers is small, as one in 256 is.
func TestSignJWT(t *testing.T) {
	key := machineKey()
	for range 2000 {
		text, err := signJWT(key, map[string]any{"alg": "ES256"}, map[string]any{"a": 1})
		assert.NilError(t, err)
		_, _, err = machineVerify(text, &key.PublicKey)
		assert.NilError(t, err)
	}
}
