package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

// TestTraceOfLogin: a login, a refresh and a logout can be read in the trace, request by request, and no secret of
// them can: not in the trace on stderr, not in that of a file, and nowhere else.
func TestTraceOfLogin(t *testing.T) {
	checkLeaks(t)
	for _, toFile := range []bool{false, true} {
		s := startOAuthServer(t, new(scriptPeer))
		secrets := []string{"planted-query", "planted-metadata", "planted-registration"}
		s.set(func() {
			s.Revokes, s.Query = true, "key=planted-query"
			s.Methods = []string{"client_secret_basic"}
			s.Metadata = func(document map[string]any) {
				document["not_of_oauth"] = map[string]any{"issuer": "shown", "key": "planted-metadata"}
			}
			s.Answer = func(w http.ResponseWriter, r *http.Request, _ int) bool {
				verifier := r.PostFormValue("code_verifier")
				if verifier != "" {
					s.set(func() { secrets = append(secrets, verifier) })
				}
				if r.URL.Path != "/register" {
					return false
				}
				var request struct {
					URIs []string `json:"redirect_uris"`
				}
				body, _ := io.ReadAll(r.Body)
				assert.Check(t, json.Unmarshal(body, &request))
				s.register("registered", "planted-client-secret", "client_secret_basic", request.URIs...)
				writeTestJSON(w, http.StatusCreated, map[string]any{
					"client_id": "registered", "client_secret": "planted-client-secret", "redirect_uris": request.URIs,
					"token_endpoint_auth_method": "client_secret_basic",
					"registration_access_token":  "planted-registration",
				})
				return true
			}
		})
		secrets = append(secrets, "planted-client-secret")
		h := newKeptHome(t)
		file := filepath.Join(h.folder, "trace")
		trace := "1"
		if toFile {
			trace = file
		}
		h.variables = append(h.variables, "MCP_TRACE="+trace)
		all, traced := "", ""
		run := func(what func(...string) (int, string, string), args ...string) {
			status, stdout, stderr := what(args...)
			assert.Assert(t, is.Equal(status, 0), "%s: %s", args, stderr)
			all += stdout + stderr
			text := stderr
			if toFile {
				content, err := os.ReadFile(file)
				assert.NilError(t, err)
				text = string(content)
			}
			traced += text
		}
		run(h.logIn, "login", s.Resource)
		s.expire() // the next run refreshes
		run(h.run, "-server", s.Resource, "tools")
		run(h.run, "logout", s.Resource)

		const at = `http://127\.0\.0\.1:\d+`
		for _, line := range []string{
			`oauth <- 401 Unauthorized WWW-Authenticate: Bearer resource_metadata="` + at + `/\.well-known/[^"]*"`,
			`oauth -> GET ` + at + `/\.well-known/oauth-protected-resource/mcp`,
			`oauth <- 200 OK \{"authorization_servers":\["` + at + `"\],"resource":"` + at + `/mcp"\}`,
			`oauth -> GET ` + at + `/\.well-known/oauth-authorization-server`,
			`oauth <- 200 OK \{.*"not_of_oauth":\{"issuer":"shown","key":"\[secret\]"\}.*"token_endpoint":"` + at +
				`/token\?key=\[secret\]",.*\}`,
			`oauth -> POST ` + at + `/register \{"application_type":"native",.*"redirect_uris":\["` + at + `/callback"\],.*\}`,
			`oauth <- 201 Created \{"client_id":"registered","client_secret":"\[secret\]","redirect_uris":\["` + at +
				`/callback"\],"registration_access_token":"\[secret\]","token_endpoint_auth_method":"client_secret_basic"\}`,
			`oauth -> POST ` + at + `/token\?key=\[secret\] Authorization: Basic \[secret\] client_id=registered&` +
				`code=\[secret\]&code_verifier=\[secret\]&grant_type=authorization_code&redirect_uri=` + at + `/callback&` +
				`resource=` + at + `/mcp`,
			`oauth <- 200 OK \{"access_token":"\[secret\]","expires_in":3600,"refresh_token":"\[secret\]",.*` +
				`"token_type":"bearer"\}`,
			`oauth -> POST ` + at + `/token\?key=\[secret\] Authorization: Basic \[secret\] client_id=registered&` +
				`grant_type=refresh_token&refresh_token=\[secret\]&resource=` + at + `/mcp`,
			`-> \{.*"method":"tools/list".*\}`,
			`oauth -> POST ` + at + `/revoke Authorization: Basic \[secret\] client_id=registered&token=\[secret\]&` +
				`token_type_hint=refresh_token`,
		} {
			assert.Check(t, is.Regexp(`(?m)^\d\d:\d\d:\d\d\.\d{3} `+line+`$`, traced))
		}
		assert.Check(t, !strings.Contains(traced, "-> POST "+s.Resource+" "), "messages are traced as such alone")
		s.mu.Lock()
		secrets = slices.Concat(secrets, s.secrets)
		s.mu.Unlock()
		assert.Check(t, len(secrets) > 10, "%q", secrets)
		// The person opens the address with the state and the challenge, and the browser brings back the code.
		all = regexp.MustCompile(`(?m)^http://\S+/authorize\?\S+$`).ReplaceAllString(all, "")
		for _, secret := range secrets {
			assert.Check(t, !strings.Contains(all+traced, secret), secret)
		}
	}
}

// TestTraceOfBodies: whatever is sent and answered, it arrives as it was. What the trace shows of it has no value
// that is not known to be open.
func TestTraceOfBodies(t *testing.T) {
	const form = "application/x-www-form-urlencoded"
	long := strings.Repeat("x", maxTracedValue+1)
	for _, test := range []struct{ kind, body, want string }{
		{"", "", ""},
		{"application/json", `{}`, `{}`},
		{"application/json", `{"scope": "a b", "access_token": "planted"}`, `{"scope":"a b","access_token":"[secret]"}`},
		{"text/plain", ` {"a": 1, "b": true, "c": null, "d": ["planted", {"e": "planted", "iss": "i"}], "expires_in": 60} `,
			`{"a":"[secret]","b":"[secret]","c":"[secret]","d":["[secret]",{"e":"[secret]","iss":"i"}],"expires_in":60}`},
		{"", `{"scopes_supported": ["a", "b"], "x_supported": true, "grant_types": [], "error": {"x": [1, "planted"]}}`,
			`{"scopes_supported":["a","b"],"x_supported":true,"grant_types":[],"error":{"x":["[secret]","[secret]"]}}`},
		{"", `{"issuer": "https://u:planted@h/?planted", "a_endpoint": "https://h/p?planted=planted&scope=a"}`,
			`{"issuer":"https://h/?[secret]","a_endpoint":"https://h/p?planted=[secret]&scope=a"}`},
		{"", `{"error_description": "` + long + `"}`, `{"error_description":"(1001 bytes)"}`},
		{"", `{"error": "a\nb\u001b"}`, `{"error":"a\nb\u001b"}`},
		{"application/json", `["planted"]`, "(11 bytes)"},
		{"application/json", `"planted"`, "(9 bytes)"},
		{"application/json", `{"planted"`, "(10 bytes)"},
		{"text/html", "<p>planted</p>", "(14 bytes)"},
		{form, "grant_type=a+b%26&code=planted&scope=%zz&error=a%0Ab&planted&client_id=https%3A%2F%2Fh%2F%3Fk%3Dplanted",
			"grant_type=a b&&code=[secret]&scope=%zz&error=a%0Ab&[secret]&client_id=https://h/?k=[secret]"},
		{form + ";charset=utf-8", "error=no", "error=no"},
		{form, strings.Repeat("error=no&", maxTracedBody/8), fmt.Sprintf("(%d bytes)", maxTracedBody/8*9)},
		{"", `{"planted": "` + strings.Repeat("planted", maxTracedBody/7) + `"}`,
			fmt.Sprintf("(%d bytes)", maxTracedBody/7*7+15)},
	} {
		var lines []string
		server := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", test.kind)
			_, err := io.Copy(w, r.Body)
			assert.Check(t, err)
		})
		traced := &oauthTrace{roundTripFunc(func(r *http.Request) (*http.Response, error) {
			w := httptest.NewRecorder()
			server.ServeHTTP(w, r)
			return w.Result(), nil
		}), func(line string) { lines = append(lines, line) }}
		request := httptest.NewRequest(http.MethodPost, "https://user:planted@as.test/token?a=planted", nil)
		request.Header.Set("Accept", "application/json")
		request.Header.Set("Content-Type", test.kind)
		request.Body, request.ContentLength = io.NopCloser(strings.NewReader(test.body)), int64(len(test.body))
		request.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(test.body)), nil }
		response, err := traced.RoundTrip(request)
		assert.NilError(t, err)
		assert.Check(t, is.Len(lines, 1), "before anything is read")
		text, err := io.ReadAll(iotest.OneByteReader(response.Body))
		assert.NilError(t, err)
		assert.NilError(t, response.Body.Close())
		assert.Check(t, is.Equal(string(text), test.body))
		want := strings.TrimSpace(" " + test.want)
		assert.DeepEqual(t, lines, []string{
			joinWords("-> POST https://as.test/token?a=[secret]", want), joinWords("<- 200 OK", want),
		})
	}
}

// TestTraceIsBounded: of a long answer the first members are shown, each as a whole.
func TestTraceIsBounded(t *testing.T) {
	body := `{"scope": "first"`
	for i := range 300 {
		body += fmt.Sprintf(`, "a%d_endpoint": "https://as.test/%d"`, i, i)
	}
	body += `, "scopes_supported": ["` + strings.Repeat(`s", "`, 3000) + `"]}`
	shown := shownJSON([]byte(body))
	assert.Check(t, strings.HasPrefix(shown, `{"scope":"first","a0_endpoint":"https://as.test/0",`))
	assert.Check(t, strings.HasSuffix(shown, `"} …`), shown[len(shown)-100:])
	assert.Check(t, len(shown) < maxTracedText+200)
	shown = shownForm("scope=a" + strings.Repeat("&error=no", 3000))
	assert.Check(t, strings.HasPrefix(shown, "scope=a&error=no&") && strings.HasSuffix(shown, "&error=no&…"))
	assert.Check(t, len(shown) < maxTracedText+200)
}

// TestTraceOfOthers: what is not of a login is left as it is: a message, whatever its transport, and a stream. Only the
// refusal of one is told. What fails is told, too.
func TestTraceOfOthers(t *testing.T) {
	var lines []string
	body := io.NopCloser(strings.NewReader("planted"))
	header := make(http.Header)
	var fail error
	traced := &oauthTrace{roundTripFunc(func(*http.Request) (*http.Response, error) {
		if fail != nil {
			return nil, fail
		}
		return &http.Response{Status: "401 Unauthorized", Header: header, Body: body}, nil
	}), func(line string) { lines = append(lines, line) }}
	for _, accept := range []string{"", "text/event-stream", "application/json, text/event-stream"} {
		for _, method := range []string{"GET", "POST", "DELETE"} {
			request := httptest.NewRequest(method, "https://mcp.test/mcp", strings.NewReader("planted"))
			if accept != "" {
				request.Header.Set("Accept", accept)
			}
			response, err := traced.RoundTrip(request)
			assert.NilError(t, err)
			assert.Check(t, response.Body == body, "it is another body")
		}
	}
	assert.Check(t, is.Len(lines, 0))
	header["Www-Authenticate"] = []string{`Bearer error="no"`, "Basic"}
	response, err := traced.RoundTrip(httptest.NewRequest("POST", "https://mcp.test/mcp", nil))
	assert.NilError(t, err)
	assert.Check(t, response.Body == body)
	fail = io.ErrNoProgress
	request := httptest.NewRequest("GET", "https://as.test/x", nil)
	request.Header = http.Header{
		"Accept": {"application/json"}, "Dpop": {"planted"}, "Authorization": {"planted"}, "Location": {"/a?b=planted"},
	}
	_, err = traced.RoundTrip(request)
	assert.Equal(t, err, fail)
	assert.DeepEqual(t, lines, []string{
		`<- 401 Unauthorized WWW-Authenticate: Bearer error="no" WWW-Authenticate: Basic`,
		"-> GET https://as.test/x Authorization: [secret] DPoP: [secret] Location: /a?b=[secret]",
		"!! " + io.ErrNoProgress.Error(),
	})

	// Nothing is between OAuth and its transport if nobody traces.
	for _, p := range []*logins{{}, {trace: new(trace)}} {
		assert.Check(t, p.traced(nil, http.DefaultTransport) == http.DefaultTransport)
	}
}
