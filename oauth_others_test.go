package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

// These tests are about what authorization servers do that were not written here, each as it was found at one of them.
// Those servers themselves are in testdata/peers/authorization.

// TestOAuthRegistersScopes: a client is registered for the scopes that it then asks for, as some servers grant it no
// others. Where the server refuses them in a registration, it is registered without.
func TestOAuthRegistersScopes(t *testing.T) {
	for _, isRefused := range []bool{false, true} {
		s := newOAuthServer()
		s.Needs, s.NoScopes = "read list", isRefused
		o := newOAuth(t, s)
		goodOAuth(t, o)
		assert.Check(t, is.DeepEqual(o.token.GrantedScopes, []string{"read", "list"}))
		assert.Check(t, is.Equal(s.count("POST /register"), map[bool]int{false: 1, true: 2}[isRefused]))
	}
}

// TestOAuthRegistersMoreScopes: a client that was registered for other scopes cannot get these. Another one is
// registered for them, but not where the server takes no scopes in a registration.
func TestOAuthRegistersMoreScopes(t *testing.T) {
	for _, isFree := range []bool{false, true} {
		s := newOAuthServer()
		s.Needs, s.NoScopes = "read", isFree
		o := newOAuth(t, s)
		goodOAuth(t, o)
		s.set(func() { s.NeedsMore = func(*http.Request) string { return "write" } })
		goodOAuth(t, o)
		assert.Check(t, is.DeepEqual(o.token.GrantedScopes, []string{"read", "write"}))
		assert.Check(t, is.Equal(s.count("POST /register"), 2)) // a second client, or a second attempt
		assert.Check(t, is.Equal(s.count("GET /authorize"), 2))
	}
}

// TestOAuthRefusals: whatever the reason for which a server refuses a refresh, the person is asked, and where nobody
// can be asked, the error says that a login is needed. A client that the server has forgotten is registered again: the
// token endpoints of the two lines of the official Python SDK say that in different words.
func TestOAuthRefusals(t *testing.T) {
	for code, registrations := range map[string]int{
		"invalid_grant":          2, // which shows nothing of the client
		"invalid_client":         2,
		"unauthorized_client":    2,
		"invalid_request":        2,
		"unsupported_grant_type": 2,
		"invalid_scope":          2,
		"its_own":                2,
	} {
		s := newOAuthServer()
		o := newOAuth(t, s)
		goodOAuth(t, o)
		refuseRefresh(s, code)
		goodOAuth(t, o)
		assert.Check(t, is.Equal(s.count("GET /authorize"), 2), code)
		assert.Check(t, is.Equal(s.count("POST /register"), registrations), code)

		s = newOAuthServer()
		o = newOAuth(t, s)
		goodOAuth(t, o)
		refuseRefresh(s, code)
		listen := o.Listen
		o.Listen = nil
		err := failOAuth(t, s, o, "https://mcp.test/mcp needs a new login: https://as.test/token answers "+code)
		assert.Check(t, errors.As(err, new(*LoginError)), code)
		o.Listen = listen
		goodOAuth(t, o)
		// The flow that asks the person has not seen the refusal, and does not trust the client.
		assert.Check(t, is.Equal(s.count("POST /register"), 2), code)
	}
}

// refuseRefresh makes the server refuse the next refresh, which is its second token request.
func refuseRefresh(s *oauthServer, code string) {
	s.expire()
	s.set(func() {
		s.Answer = func(w http.ResponseWriter, r *http.Request, n int) bool {
			isRefresh := r.URL.Path == "/token" && n == 2
			if isRefresh {
				writeTestJSON(w, http.StatusBadRequest, map[string]any{"error": code})
			}
			return isRefresh
		}
	})
}

// TestOAuthForgottenWithoutRefresh: without a refresh token nothing shows whether the server still knows the client,
// and its page would never send the browser back. So the person goes there with a new one.
func TestOAuthForgottenWithoutRefresh(t *testing.T) {
	s, store := newOAuthServer(), newOAuthTestStore()
	o := newOAuth(t, s)
	o.Store = store
	goodOAuth(t, o)
	store.edit(t, func(state *OAuthState) { state.Token.Refresh = "" })
	s.expire()
	s.set(func() { clear(s.clients) })
	o = newOAuth(t, s)
	o.Store = store
	goodOAuth(t, o)
	assert.Check(t, is.Equal(s.count("GET /authorize"), 2))
	assert.Check(t, is.Equal(s.count("POST /register"), 2))
}

// TestOAuthWithoutMetadata: a resource that does not say where to log in is its own authorization server, as in
// revision 2025-03-26, with metadata or without. A configured issuer takes the place of what the resource does not say.
// The address of metadata in a challenge may be wrong.
func TestOAuthWithoutMetadata(t *testing.T) {
	missing := func(prefixes ...string) func(http.ResponseWriter, *http.Request, int) bool {
		return func(w http.ResponseWriter, r *http.Request, _ int) bool {
			for _, prefix := range prefixes {
				if strings.HasPrefix(r.URL.Path, prefix) {
					http.NotFound(w, r)
					return true
				}
			}
			return false
		}
	}
	for _, row := range []struct {
		name, issuer string
		missing      []string
		configure    func(o *OAuth)
		tried        int      // metadata
		scopes       []string // that are requested: a server that is its own knows which
	}{
		{"its own", "https://mcp.test", []string{protectedPath}, nil, 3, []string{"notes"}},
		{"assumed", "https://mcp.test", []string{"/.well-known/"}, nil, 4, nil},
		{"configured", "https://as.test", []string{protectedPath},
			func(o *OAuth) { o.Client.Issuer = "https://as.test/" }, 3, nil},
		{"wrong address", "https://as.test", []string{"/elsewhere"}, nil, 2, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := newOAuthServer()
			s.Issuer = row.issuer
			s.Answer = missing(row.missing...)
			s.Metadata = func(document map[string]any) { document["scopes_supported"] = []string{"notes"} }
			o := newOAuth(t, s)
			if row.configure != nil {
				row.configure(o)
			}
			if row.name == "wrong address" {
				inner := s.Answer
				s.Answer = func(w http.ResponseWriter, r *http.Request, n int) bool {
					if r.URL.Path == "/mcp" && r.Header.Get("Authorization") == "" {
						w.Header().Set("WWW-Authenticate", `Bearer resource_metadata="https://mcp.test/elsewhere"`)
						w.WriteHeader(http.StatusUnauthorized)
						return true
					}
					return inner(w, r, n)
				}
			}
			goodOAuth(t, o)
			assert.Check(t, is.Equal(s.count("GET /.well-known/"), row.tried))
			assert.Check(t, is.Equal(o.token.Issuer, row.issuer))
			assert.Check(t, is.DeepEqual(o.token.RequestedScopes, row.scopes))
		})
	}
	t.Run("no authorization server", func(t *testing.T) {
		s := newOAuthServer()
		s.Answer = missing("/.well-known/", "/register")
		failOAuth(t, s, newOAuth(t, s), "https://mcp.test/mcp does not say where to log in, and is not itself an "+
			"authorization server: https://mcp.test/register answers 404: if it wants a key, configure a header Authorization")
	})
	t.Run("the one that is named has none", func(t *testing.T) {
		s := newOAuthServer()
		s.Answer = missing("/.well-known/oauth-authorization-server", "/.well-known/openid-configuration")
		failOAuth(t, s, newOAuth(t, s), "https://as.test/.well-known/oauth-authorization-server answers 404: "+
			"if the server wants a key, configure a header Authorization")
	})
	t.Run("the configured one has none", func(t *testing.T) {
		s := newOAuthServer()
		s.Answer = missing("/.well-known/")
		o := newOAuth(t, s)
		o.Client.Issuer = s.Issuer
		failOAuth(t, s, o, "https://mcp.test/mcp does not say where to log in "+
			"(https://mcp.test/.well-known/oauth-protected-resource/mcp answers 404), and the metadata of "+
			`"https://as.test" cannot be used: https://as.test/.well-known/oauth-authorization-server answers 404`)
		assert.Check(t, is.Equal(s.count("POST /register"), 0))
	})
	t.Run("another is named", func(t *testing.T) {
		s := newOAuthServer()
		o := newOAuth(t, s)
		o.Client.Issuer = "https://ours.test"
		failOAuth(t, s, o, `is registered with "https://ours.test", but the server names "https://as.test" now`)
		assert.Check(t, is.Equal(s.count("POST /register"), 0))
	})
}

// TestOAuthFirstIssuer: a client that is configured without its issuer belongs to the one of its first login, even
// when there is no token any more, so that its secret goes nowhere else.
func TestOAuthFirstIssuer(t *testing.T) {
	s, store := newOAuthServer(), newOAuthTestStore()
	client := OAuthClient{ID: "mine", Secret: "its secret", RedirectURI: "http://127.0.0.1:1/"}
	s.Methods = []string{"client_secret_post"}
	s.register("mine", "its secret", "client_secret_post", client.RedirectURI)
	o := newOAuth(t, s)
	o.Store, o.Client = store, client
	goodOAuth(t, o)
	assert.Check(t, !strings.Contains(string(store.text), "its secret"))
	store.edit(t, func(state *OAuthState) { state.Token = nil })
	s.set(func() { s.Issuer = "https://as2.test" })
	o = newOAuth(t, s)
	o.Store, o.Client = store, client
	failOAuth(t, s, o, `"mine" is registered with "https://as.test", but the server names "https://as2.test" now`)
	assert.Check(t, is.Equal(s.count("GET /authorize"), 1))
}

// TestOAuthTokenOfOther: a stored token of another authorization server than the configured one is not sent, and not
// lost.
func TestOAuthTokenOfOther(t *testing.T) {
	s, store := newOAuthServer(), newOAuthTestStore()
	o := newOAuth(t, s)
	o.Store = store
	goodOAuth(t, o)
	o = newOAuth(t, s)
	o.Store = store
	o.Client.Issuer = "https://ours.test"
	failOAuth(t, s, o, `but the server names "https://as.test" now`)
	for _, issuer := range []string{"https://as.test/", "https://as.test"} { // the same, but for a slash
		o = newOAuth(t, s)
		o.Store = store
		o.Client.Issuer = issuer
		goodOAuth(t, o)
	}
	assert.Check(t, is.Equal(s.count("GET /authorize"), 1))
}

// TestOAuthIssuerSlash: issuers with a slash at the end are the same as without, but for the iss of a response.
func TestOAuthIssuerSlash(t *testing.T) {
	s := newOAuthServer()
	s.Metadata = func(document map[string]any) { document["issuer"] = s.Issuer + "/" }
	s.Respond = func(response url.Values) { response.Set("iss", s.Issuer+"/") }
	o := newOAuth(t, s)
	goodOAuth(t, o)
	s.expire()
	goodOAuth(t, o)
	assert.Check(t, is.Equal(s.count("GET /authorize"), 1))
}

// TestOAuthLoopbackNames: a server on this machine may call itself by another name of the machine.
func TestOAuthLoopbackNames(t *testing.T) {
	s := newOAuthServer()
	s.Resource = "http://127.0.0.1:8000/mcp"
	s.Protected = func(document map[string]any) { document["resource"] = "http://localhost:8000/mcp" }
	failOAuth(t, s, newOAuth(t, s), `the protected resource metadata of http://127.0.0.1:8000/mcp is for `+
		`"http://localhost:8000/mcp", and names 1 authorization servers: use that URL`)
	s = newOAuthServer()
	s.Issuer = "http://127.0.0.1:8001"
	s.Metadata = func(document map[string]any) { document["issuer"] = "http://localhost:8001" }
	failOAuth(t, s, newOAuth(t, s), `of another issuer, "http://localhost:8001": use that name in the URL of the server`)
}

// TestOAuthShortLife: a token with a short life is sent for half of it.
func TestOAuthShortLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newOAuthServer()
		s.Lifetime = 10 * time.Second
		o := newOAuth(t, s)
		for i, wait := range []time.Duration{0, 4 * time.Second, 2 * time.Second, 4 * time.Second, 2 * time.Second} {
			time.Sleep(wait)
			goodOAuth(t, o)
			assert.Check(t, is.Equal(s.count("POST /token"), []int{1, 1, 2, 2, 3}[i]), i)
		}
	})
}

// TestOAuthScopeList: the scopes of a token are a text, or an array of texts.
func TestOAuthScopeList(t *testing.T) {
	for text, want := range map[string][]string{
		`"a  b"`:    {"a", "b"},
		`["a","b"]`: {"a", "b"},
		`""`:        {},
		`[]`:        {},
		`null`:      {},
	} {
		var list scopeList
		assert.NilError(t, json.Unmarshal([]byte(text), &list))
		assert.Check(t, is.DeepEqual(append([]string{}, list...), want), text)
	}
	var list scopeList
	assert.Check(t, is.ErrorContains(json.Unmarshal([]byte(`[1]`), &list), "number"))
}

// TestOAuthTokenCharacters: a token with which no request could be sent is refused when it comes.
func TestOAuthTokenCharacters(t *testing.T) {
	for _, token := range []string{`a\r\nX-Planted: 1`, `a\n`, `a b`, `ä`, `a\u0000`} {
		s := newOAuthServer()
		answerOAuth("/token", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = fmt.Fprintf(w, `{"access_token":"%s"}`, token)
		})(s)
		failOAuth(t, s, newOAuth(t, s), "https://as.test/token answers with a token that cannot be sent in a header")
	}
}

// TestOAuthRevoke: at a logout the server revokes both tokens, where it can.
func TestOAuthRevoke(t *testing.T) {
	for _, method := range []string{"none", "client_secret_basic"} {
		s, store := newOAuthServer(), newOAuthTestStore()
		s.Methods, s.Revokes = []string{method}, true
		o := newOAuth(t, s)
		o.Store = store
		isRevoked, err := o.Revoke(t.Context())
		assert.Check(t, err == nil && !isRevoked, "nobody is logged in")
		goodOAuth(t, o)
		isRevoked, err = o.Revoke(t.Context())
		assert.NilError(t, err)
		assert.Check(t, isRevoked)
		assert.Check(t, is.Len(s.access, 0))
		assert.Check(t, is.Len(s.refresh, 0))
	}
}

// TestOAuthRevokeAtPythonSDK: the official SDK for Python wants a client_secret in the form, even an empty one.
func TestOAuthRevokeAtPythonSDK(t *testing.T) {
	for _, method := range []string{"none", "client_secret_basic", "client_secret_post"} {
		s := newOAuthServer()
		s.Methods, s.Revokes = []string{method}, true
		s.Answer = func(w http.ResponseWriter, r *http.Request, _ int) bool {
			isRefused := r.URL.Path == "/revoke" && r.ParseForm() == nil && !r.PostForm.Has("client_secret")
			if isRefused {
				writeTestJSON(w, http.StatusBadRequest, map[string]any{"error": "invalid_request"})
			}
			return isRefused
		}
		o := newOAuth(t, s)
		goodOAuth(t, o)
		isRevoked, err := o.Revoke(t.Context())
		assert.NilError(t, err)
		assert.Check(t, isRevoked)
		assert.Check(t, is.Len(s.access, 0))
		assert.Check(t, is.Len(s.refresh, 0))
	}
}

// TestOAuthNotRevoked: a server that revokes nothing, that refuses, or that is gone.
func TestOAuthNotRevoked(t *testing.T) {
	s := newOAuthServer()
	o := newOAuth(t, s)
	goodOAuth(t, o)
	isRevoked, err := o.Revoke(t.Context())
	assert.Check(t, err == nil && !isRevoked)

	s.set(func() {
		s.Revokes = true
		s.Answer = func(w http.ResponseWriter, r *http.Request, _ int) bool {
			if r.URL.Path == "/revoke" {
				_ = r.ParseForm()
				writeTestJSON(w, http.StatusBadRequest,
					map[string]any{"error": "unsupported_token_type", "error_description": r.PostForm.Get("token")})
			}
			return r.URL.Path == "/revoke"
		}
	})
	isRevoked, err = o.Revoke(t.Context())
	assert.Check(t, !isRevoked)
	assert.Check(t, is.ErrorContains(err, "https://as.test/revoke answers unsupported_token_type: [secret]"))

	s.set(func() { // some servers revoke refresh tokens alone
		s.Answer = func(w http.ResponseWriter, r *http.Request, _ int) bool {
			isAccess := r.FormValue("token_type_hint") == "access_token"
			if isAccess {
				writeTestJSON(w, http.StatusBadRequest, map[string]any{"error": "unsupported_token_type"})
			}
			return isAccess
		}
	})
	isRevoked, err = o.Revoke(t.Context())
	assert.Check(t, isRevoked)
	assert.Check(t, is.ErrorContains(err, "https://as.test/revoke answers unsupported_token_type"))
	assert.Check(t, is.Len(s.refresh, 0))

	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("time is up"))
	_, err = o.Revoke(ctx)
	assert.Check(t, is.ErrorContains(err, "time is up"))
}

// TestOAuthNeverContent: a server that answers insufficient_scope to every token asks the person once, however many
// requests follow.
func TestOAuthNeverContent(t *testing.T) {
	for _, status := range []int{http.StatusForbidden, http.StatusUnauthorized} {
		s := newOAuthServer()
		s.Needs = "all"
		s.Answer = func(w http.ResponseWriter, r *http.Request, _ int) bool {
			if r.URL.Path != "/mcp" || r.Header.Get("Authorization") == "" {
				return false
			}
			w.Header().Set("WWW-Authenticate", `Bearer error="insufficient_scope", scope="all"`)
			w.WriteHeader(status)
			return true
		}
		o := newOAuth(t, s)
		for range 4 {
			got, err := postOAuth(t.Context(), o, "body")
			assert.NilError(t, err)
			assert.Check(t, is.Equal(got, status))
		}
		assert.Check(t, is.Equal(s.count("GET /authorize"), 1), status)
	}
}

// TestOAuthOffersNoLogin: a login that would be refused is not offered where nobody can be asked.
func TestOAuthOffersNoLogin(t *testing.T) {
	s := newOAuthServer()
	s.Resource = "http://mcp.test/mcp"
	o := newOAuth(t, s)
	o.Listen = nil
	err := failOAuth(t, s, o, "http://mcp.test/mcp is not encrypted: https is needed")
	assert.Check(t, !errors.As(err, new(*LoginError)))
}

// TestOAuthMetadataGone: when the metadata cannot be had for a time, a refresh goes to the server that has issued the
// token, and nothing is lost: no answer of the resource, or of somebody in its place, is a refusal of the token.
func TestOAuthMetadataGone(t *testing.T) {
	for _, prefix := range []string{protectedPath, "/.well-known/oauth-authorization-server", "/.well-known/"} {
		for _, status := range []int{http.StatusNotFound, http.StatusForbidden, http.StatusTooManyRequests, 503} {
			s, store := newOAuthServer(), newOAuthTestStore()
			o := newOAuth(t, s)
			o.Store = store
			goodOAuth(t, o)
			s.expire()
			s.set(func() {
				s.Answer = func(w http.ResponseWriter, r *http.Request, _ int) bool {
					isGone := strings.HasPrefix(r.URL.Path, prefix)
					if isGone {
						writeTestJSON(w, status, map[string]any{"error": "Not Found"})
					}
					return isGone
				}
			})
			_, err := postOAuth(t.Context(), o, "body")
			s.set(func() { s.Answer = nil })
			goodOAuth(t, o)
			assert.Check(t, is.Equal(s.count("GET /authorize"), 1), "%s %d: %v", prefix, status, err)
		}
	}
}

// TestOAuthLoginDemand: a login for a request knows what the resource has demanded of that request, though the
// resource answers no GET, and demands it of no other request.
func TestOAuthLoginDemand(t *testing.T) {
	s, store := newOAuthServer(), newOAuthTestStore()
	s.Answer = func(w http.ResponseWriter, r *http.Request, _ int) bool {
		switch {
		case r.URL.Path == "/elsewhere":
			writeTestJSON(w, http.StatusOK, map[string]any{"resource": s.Resource, "authorization_servers": []string{s.Issuer}})
		case strings.HasPrefix(r.URL.Path, protectedPath):
			http.NotFound(w, r)
		case r.Method+r.URL.Path == "GET/mcp":
			w.WriteHeader(http.StatusMethodNotAllowed)
		case r.URL.Path == "/mcp" && r.Header.Get("Authorization") == "":
			w.Header().Set("WWW-Authenticate", `Bearer scope="special", resource_metadata="https://mcp.test/elsewhere"`)
			w.WriteHeader(http.StatusUnauthorized)
		default:
			return false
		}
		return true
	}
	o := newOAuth(t, s)
	listen := o.Listen
	o.Listen, o.Store = nil, store
	err := failOAuth(t, s, o, "https://mcp.test/mcp needs a login")
	var needed *LoginError
	assert.Assert(t, errors.As(err, &needed))
	assert.Check(t, !needed.IsStepUp())
	asking := o.WithListen(listen)
	defer asking.Close()
	token, err := asking.Login(t.Context(), needed)
	assert.NilError(t, err)
	assert.Check(t, is.DeepEqual(token.GrantedScopes, []string{"special"}))
	goodOAuth(t, o)

	s.set(func() {
		s.Answer = nil
		s.NeedsMore = func(*http.Request) string { return "more" }
	})
	err = failOAuth(t, s, o, `needs a new login: the scopes "more" are needed`)
	assert.Assert(t, errors.As(err, &needed))
	assert.Check(t, needed.IsStepUp())
}
