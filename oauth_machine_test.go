package main

import (
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
	"strconv"
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

// machineServers are a resource, its authorization server and an identity provider, in memory. They verify all that a
// client sends which acts without a person, and refuse what is wrong.
type machineServers struct {
	clientKey *ecdsa.PrivateKey // of the client jwt
	idpKey    *ecdsa.PrivateKey // signs ID tokens, ID-JAGs and the assertions of workloads
	bound     bool              // tokens are bound to a key
	unbound   bool              // although a proof came
	nonceUses int               // proofs need a nonce, which is good for so many of them; 0: they need none
	refuse    bool              // every nonce
	life      int               // of an access token, in seconds

	mu     sync.Mutex // guards the following
	seen   []string   // the requests: host, grant or method, status
	faults []string
	used   map[string]bool   // jti of proofs and assertions
	bindTo map[string]string // thumbprint by access token; "" is not bound
	expiry map[string]time.Time
	nonces map[string]int // proofs that each nonce is good for
	count  int
}

func newMachineServers() *machineServers {
	return &machineServers{clientKey: machineKey(), idpKey: machineKey(), life: 3600, used: make(map[string]bool),
		bindTo: make(map[string]string), expiry: make(map[string]time.Time), nonces: make(map[string]int)}
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

// machineAnswer is an answer: members of its JSON and of its header.
type machineAnswer struct {
	status int
	body   map[string]any
	header map[string]string
}

func (s *machineServers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	answer := s.answer(r)
	for name, value := range answer.header {
		w.Header().Set(name, value)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(answer.status)
	_ = json.NewEncoder(w).Encode(answer.body)
}

func (s *machineServers) answer(r *http.Request) (answer machineAnswer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	what := r.Host + " " + r.Method
	switch r.Host + r.URL.Path {
	case "api.example/.well-known/oauth-protected-resource/mcp":
		answer.body = map[string]any{"resource": machineResource, "authorization_servers": []string{machineIssuer}}
	case "as.example/.well-known/oauth-authorization-server":
		answer.body = map[string]any{"issuer": machineIssuer, "token_endpoint": machineToken,
			"token_endpoint_auth_methods_supported": []string{"client_secret_basic", "client_secret_post",
				"private_key_jwt", "none"}}
	case "api.example/mcp":
		answer = s.resource(r)
	case "as.example/token", "idp.example/token":
		what = r.Host + " " + r.PostFormValue("grant_type")[strings.LastIndex(r.PostFormValue("grant_type"), ":")+1:]
		answer = s.token(r)
	default:
		answer.status = http.StatusNotFound
	}
	if answer.status == 0 {
		answer.status = http.StatusOK
	}
	if !strings.Contains(r.URL.Path, "/.well-known/") {
		s.seen = append(s.seen, fmt.Sprintf("%s %d", what, answer.status))
	}
	return answer
}

// resource answers a request to the resource.
func (s *machineServers) resource(r *http.Request) machineAnswer {
	refusal := func(code string, err error) machineAnswer {
		s.faults = append(s.faults, err.Error())
		challenge := "Bearer "
		if s.bound {
			challenge = "DPoP "
		}
		challenge += fmt.Sprintf(`resource_metadata="https://api.example/.well-known/oauth-protected-resource/mcp"`)
		if code != "" {
			challenge += `, error="` + code + `"`
		}
		return machineAnswer{status: http.StatusUnauthorized, header: map[string]string{"WWW-Authenticate": challenge}}
	}
	scheme, token, found := strings.Cut(r.Header.Get("Authorization"), " ")
	key, known := s.bindTo[token]
	switch {
	case !found:
		answer := refusal("", errors.New(""))
		s.faults = s.faults[:len(s.faults)-1] // every client begins so
		return answer
	case !known || !time.Now().Before(s.expiry[token]):
		return refusal("invalid_token", errors.New("unknown token"))
	case (key == "") != (scheme == "Bearer"):
		return refusal("invalid_token", errors.New("wrong scheme"))
	case key == "":
		return machineAnswer{}
	}
	thumbprint, nonce, err := s.proof(r, machineResource, token)
	switch {
	case err != nil:
		return refusal("invalid_dpop_proof", err)
	case thumbprint != key:
		return refusal("invalid_token", errors.New("the token is bound to another key"))
	case s.nonceUses > 0 && !s.takeNonce(r.Host, nonce):
		answer := refusal("use_dpop_nonce", errors.New("nonce"))
		s.faults = s.faults[:len(s.faults)-1]
		answer.header["DPoP-Nonce"] = s.newNonce(r.Host)
		return answer
	}
	return machineAnswer{}
}

func (s *machineServers) newNonce(host string) string {
	s.count++
	nonce := host + strconv.Itoa(s.count)
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

// proof verifies the proof of a request (RFC 9449, 4.3), and returns the thumbprint of its key and its nonce.
func (s *machineServers) proof(r *http.Request, uri, token string) (thumbprint, nonce string, err error) {
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

// assertion verifies a JWT that is made for an audience, and used once (RFC 7523, 3).
func (s *machineServers) assertion(text string, key *ecdsa.PublicKey, audience string) (map[string]any, error) {
	header, claims, err := machineVerify(text, key)
	if err != nil {
		return nil, err
	}
	jti, _ := claims["jti"].(string)
	expiry, _ := claims["exp"].(float64)
	left := time.Until(time.Unix(int64(expiry), 0))
	switch {
	case claims["aud"] != audience:
		return nil, fmt.Errorf("audience %v", claims["aud"])
	case left <= 0 || left > 10*time.Minute:
		return nil, fmt.Errorf("an assertion that is good for %s", left)
	case jti == "" || s.used[jti]:
		return nil, errors.New("jti of the assertion")
	case key == &s.clientKey.PublicKey && header["kid"] != "key-1":
		return nil, errors.New("kid of the assertion")
	}
	s.used[jti] = true
	return claims, nil
}

// token answers a token request to the authorization server or the identity provider.
func (s *machineServers) token(r *http.Request) machineAnswer {
	refusal := func(status int, code string, err error) machineAnswer {
		s.faults = append(s.faults, err.Error())
		return machineAnswer{status: status, body: map[string]any{"error": code, "error_description": err.Error()}}
	}
	form := r.PostForm
	for name, values := range form {
		if len(values) != 1 || values[0] == "" {
			return refusal(400, "invalid_request", errors.New("parameter "+name))
		}
	}
	client, err := s.authenticate(r)
	if err != nil {
		return refusal(401, "invalid_client", err)
	}
	thumbprint, nonce := "", ""
	if s.bound && r.Host == "as.example" {
		if thumbprint, nonce, err = s.proof(r, strings.TrimSuffix(machineToken, "?tenant=a"), ""); err != nil {
			return refusal(400, "invalid_dpop_proof", err)
		}
		if s.nonceUses > 0 && !s.takeNonce(r.Host, nonce) {
			answer := refusal(400, "use_dpop_nonce", errors.New("nonce"))
			s.faults = s.faults[:len(s.faults)-1]
			answer.header = map[string]string{"DPoP-Nonce": s.newNonce(r.Host)}
			return answer
		}
	}
	if form.Get("resource") != machineResource {
		return refusal(400, "invalid_target", errors.New("resource"))
	}
	const urn = "urn:ietf:params:oauth:"
	answer := map[string]any{"token_type": "Bearer", "expires_in": s.life}
	switch grant := form.Get("grant_type"); r.Host + " " + grant {
	case "as.example client_credentials":
		if client == "" {
			return refusal(400, "unauthorized_client", errors.New("no client"))
		}
	case "as.example " + urn + "grant-type:jwt-bearer":
		claims, err := s.assertion(form.Get("assertion"), &s.idpKey.PublicKey, machineIssuer)
		if err != nil {
			return refusal(400, "invalid_grant", err)
		}
		if id, is := claims["client_id"]; is && (id != client || claims["resource"] != machineResource) {
			return refusal(400, "invalid_grant", errors.New("the grant is for another client or resource"))
		}
	case "idp.example " + urn + "grant-type:token-exchange":
		_, err := s.assertion(form.Get("subject_token"), &s.idpKey.PublicKey, "idp-client")
		switch {
		case err != nil:
			return refusal(400, "invalid_grant", err)
		case client != "idp-client" || form.Get("audience") != machineIssuer || form.Get("scope") != "read write" ||
			form.Get("requested_token_type") != urn+"token-type:id-jag" ||
			form.Get("subject_token_type") != urn+"token-type:id_token":
			return refusal(400, "invalid_request", fmt.Errorf("exchange: %v", form))
		}
		s.count++
		answer["access_token"] = s.sign(map[string]any{"aud": machineIssuer, "resource": form.Get("resource"),
			"client_id": "basic", "jti": "jag" + strconv.Itoa(s.count)})
		answer["token_type"], answer["issued_token_type"] = "N_A", urn+"token-type:id-jag"
		return machineAnswer{body: answer}
	default:
		return refusal(400, "unsupported_grant_type", errors.New("grant "+grant))
	}
	s.count++
	token := "planted-token-" + strconv.Itoa(s.count)
	if s.unbound {
		thumbprint = ""
	}
	s.bindTo[token], s.expiry[token] = thumbprint, time.Now().Add(time.Duration(s.life)*time.Second)
	if answer["access_token"] = token; thumbprint != "" {
		answer["token_type"] = "DPoP"
	}
	return machineAnswer{body: answer}
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

// authenticate returns the client of a token request, which is "" for a workload.
func (s *machineServers) authenticate(r *http.Request) (string, error) {
	form := r.PostForm
	id, secret, basic := r.BasicAuth()
	if basic {
		var errs [2]error
		id, errs[0] = url.QueryUnescape(id)
		secret, errs[1] = url.QueryUnescape(secret)
		if err := errors.Join(errs[:]...); err != nil || form.Has("client_secret") {
			return "", errors.New("two authentications")
		}
		if id != "basic" && id != "idp-client" || secret != machineSecret {
			return "", errors.New("wrong secret")
		}
		return id, nil
	}
	switch id := form.Get("client_id"); {
	case form.Has("client_assertion"):
		claims, err := s.assertion(form.Get("client_assertion"), &s.clientKey.PublicKey, machineIssuer)
		if err != nil {
			return "", err
		}
		if claims["iss"] != "jwt" || claims["sub"] != "jwt" || id != "" && id != "jwt" || form.Has("client_secret") ||
			form.Get("client_assertion_type") != "urn:ietf:params:oauth:client-assertion-type:jwt-bearer" {
			return "", fmt.Errorf("client assertion: %v %v", claims, form)
		}
		return "jwt", nil
	case id == "post" && form.Get("client_secret") == machineSecret:
		return "post", nil
	case id == "" && !form.Has("client_secret"):
		return "", nil
	}
	return "", errors.New("unknown client")
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
					if s.bound = proof != ""; s.bound {
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
						time.Sleep(time.Duration(s.life) * time.Second)
					}
					assert.DeepEqual(t, s.requests(), want)
					assert.DeepEqual(t, s.problems(), []string{"unknown token"}) // which has expired
					assert.Assert(t, slices.Contains(told, "planted-token-"+strconv.Itoa(s.count)))
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

// An assertion is a credential: it goes only to the authorization server that the configuration names, and where it
// names none, to the one that has taken it before.
func TestMachineIssuer(t *testing.T) {
	for _, token := range []*OAuthToken{nil, {Issuer: "https://another.example", Access: "old", Type: "Bearer"}} {
		s, o := newMachineServers(), &OAuth{}
		o.Grant = JWTBearer(func(context.Context) (string, error) {
			return "", errors.New("the assertion was read")
		})
		if o.memory.Token = token; token == nil {
			o.Client.Issuer = "https://another.example"
		}
		_, err := machineCall(s.client(t, o))
		assert.Check(t, is.ErrorContains(err, `the client "" is registered with "https://another.example", but`))
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
	s.bound = true
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
	s.bound, s.nonceUses = true, 2
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
	s.bound = true
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
