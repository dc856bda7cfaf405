package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

// tlsAuthority signs certificates, and writes them into a folder.
type tlsAuthority struct {
	t           *testing.T
	folder      string
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// newTLSAuthority makes an authority, whose certificate is in the file ca.pem.
func newTLSAuthority(t *testing.T) *tlsAuthority {
	t.Helper()
	a := &tlsAuthority{t: t, folder: t.TempDir()}
	a.issue("ca")
	return a
}

// issue makes the files NAME.pem and NAME.key, good for a client and for a server on this machine. The first of them is
// the authority itself.
func (a *tlsAuthority) issue(name string) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	assert.NilError(a.t, err)
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(time.Now().UnixNano()),
		Subject:               pkix.Name{CommonName: name},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(time.Hour),
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
		IsCA:                  a.key == nil,
	}
	if a.key == nil {
		a.certificate, a.key = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	assert.NilError(a.t, err)
	keyDER, err := x509.MarshalECPrivateKey(key)
	assert.NilError(a.t, err)
	a.write(name+".pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	a.write(name+".key", pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}))
}

func (a *tlsAuthority) write(name string, text []byte) {
	a.t.Helper()
	assert.NilError(a.t, os.WriteFile(a.path(name), text, 0o600))
}

func (a *tlsAuthority) path(name string) string { return filepath.Join(a.folder, name) }

// server starts a server that wants a certificate of the authority, and returns its origin.
func (a *tlsAuthority) server(handler http.Handler, want tls.ClientAuthType) string {
	a.t.Helper()
	pair, err := tls.LoadX509KeyPair(a.path("server.pem"), a.path("server.key"))
	assert.NilError(a.t, err)
	text, err := os.ReadFile(a.path("ca.pem"))
	assert.NilError(a.t, err)
	pool := x509.NewCertPool()
	assert.Assert(a.t, pool.AppendCertsFromPEM(text))
	s := httptest.NewUnstartedServer(handler)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: pool, ClientAuth: want}
	s.StartTLS()
	a.t.Cleanup(s.Close)
	return s.URL
}

// tools runs the program, which lists the tools of a server with these members in its configuration.
func (a *tlsAuthority) tools(members string) (text string, status int) {
	a.t.Helper()
	home := a.t.TempDir()
	config := fmt.Sprintf(`{"mcpServers": {"notes": {%s}}}`, members)
	assert.NilError(a.t, os.WriteFile(filepath.Join(home, ".mcp.json"), []byte(config), 0o600))
	p := newProgram(a.t, home, programEnvironment(home), "tools")
	assert.NilError(a.t, p.start())
	status = p.end()
	return p.stdout.String() + p.shown(), status
}

func tlsLibrary(t *testing.T) http.Handler {
	t.Helper()
	return NewLibraryHTTP(NewLibrary(fstest.MapFS{"a.md": {Data: []byte("The heron stands in the mill pond.")}}))
}

// A server that wants a certificate of its clients gets the one of "tls", with a login or without one. Without it, or
// with one that the server does not trust, the user learns what to configure.
func TestClientCertificate(t *testing.T) {
	a, other := newTLSAuthority(t), newTLSAuthority(t)
	a.issue("server")
	a.issue("client")
	other.issue("client")
	url := a.server(tlsLibrary(t), tls.RequireAndVerifyClientCert) + "/mcp"
	pair := func(of *tlsAuthority) string {
		return fmt.Sprintf(`, "certFile": %q, "keyFile": %q`, of.path("client.pem"), of.path("client.key"))
	}
	const advice = `"certFile" and "keyFile" of "tls" in the configuration of the server name it`
	for name, test := range map[string]struct{ tls, more, want string }{
		"with it":         {pair(a), "", "search_chunks"},
		"without a login": {pair(a), `, "oauth": false`, "search_chunks"},
		"none": {"", "", "certificate required; " +
			"the server wants a certificate of the client that it trusts: " + advice},
		"of another":         {pair(other), "", advice},
		"none, and no login": {"", `, "oauth": false`, advice},
	} {
		t.Run(name, func(t *testing.T) {
			files := fmt.Sprintf(`"tls": {"caFile": %q%s}`, a.path("ca.pem"), test.tls)
			text, status := a.tools(fmt.Sprintf(`"url": %q, %s%s`, url, files, test.more))
			assert.Check(t, is.Contains(text, test.want))
			assert.Check(t, is.Equal(status == 0, test.want == "search_chunks"), text)
		})
	}
}

// A server that is named by its URL gets the certificate that the configuration has for that URL.
func TestClientCertificateOfURL(t *testing.T) {
	a := newTLSAuthority(t)
	a.issue("server")
	a.issue("client")
	url := a.server(tlsLibrary(t), tls.RequireAndVerifyClientCert) + "/mcp"
	h := newKeptHome(t)
	config := fmt.Sprintf(`{"mcpServers": {"notes": {"url": %q,
		"tls": {"caFile": %q, "certFile": %q, "keyFile": %q}}}}`,
		url, a.path("ca.pem"), a.path("client.pem"), a.path("client.key"))
	assert.NilError(t, os.WriteFile(filepath.Join(h.folder, ".mcp.json"), []byte(config), 0o600))
	h.variables = append(h.variables, "MCP_SERVER="+url)
	status, stdout, stderr := h.run("tools")
	assert.Equal(t, status, 0, stderr)
	assert.Check(t, is.Contains(stdout, "search_chunks"))
}

// The certificate is for the server's own origin: where it leads to another one for a login, that gets none.
func TestClientCertificateOrigin(t *testing.T) {
	a := newTLSAuthority(t)
	a.issue("server")
	a.issue("client")
	var shown, visits atomic.Int64
	elsewhere := a.server(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		visits.Add(1)
		shown.Add(int64(len(r.TLS.PeerCertificates)))
		http.NotFound(w, r)
	}), tls.RequestClientCert)
	var own string
	var atOwn atomic.Int64
	own = a.server(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/.well-known/oauth-protected-resource") {
			atOwn.Add(int64(len(r.TLS.PeerCertificates)))
			_ = json.NewEncoder(w).Encode(map[string]any{
				"resource": own + "/mcp", "authorization_servers": []string{elsewhere}})
			return
		}
		w.Header().Set("WWW-Authenticate", "Bearer")
		http.Error(w, "no", http.StatusUnauthorized)
	}), tls.RequireAndVerifyClientCert)
	files := &TLSFiles{CertFile: a.path("client.pem"), KeyFile: a.path("client.key"), CAFile: a.path("ca.pem")}
	config, err := loadTLS(files, new(Secrets))
	assert.NilError(t, err)
	base := NewHTTPTransport()
	// The authorization server is of the same authority, so that it is reached.
	base.TLSClientConfig = &tls.Config{RootCAs: config.RootCAs}
	o := &OAuth{
		Resource: own + "/mcp",
		Base:     &OAuthGuard{Resource: own + "/mcp", Base: base, TLS: config},
		Client:   OAuthClient{ID: "c", Secret: "s", Issuer: elsewhere},
		Grant:    ClientCredentials,
	}
	defer o.CloseIdleConnections()
	server := &Server{URL: own + "/mcp", Client: &http.Client{Transport: o}}
	_, err = server.Connect(t.Context(), ClientOptions{})
	assert.Check(t, err != nil)
	assert.Check(t, atOwn.Load() > 0, "%v", err)
	assert.Check(t, visits.Load() > 0, "%v", err)
	assert.Check(t, is.Equal(shown.Load(), int64(0)))
}

// A mistake in "tls" is told with the server, the member and the file, and shows nothing of a key.
func TestTLSFiles(t *testing.T) {
	a := newTLSAuthority(t)
	a.issue("client")
	a.issue("another")
	key, err := os.ReadFile(a.path("client.key"))
	assert.NilError(t, err)
	a.write("locked.key", []byte("-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n"))
	a.write("text.pem", []byte("planted words"))
	certificate, err := os.ReadFile(a.path("client.pem"))
	assert.NilError(t, err)
	a.write("both.pem", slices.Concat(key, certificate))
	a.write("large.pem", make([]byte, maxKeyFile+1))
	for _, test := range []struct{ members, want string }{
		{`"certFile": "$/client.pem"`, "tls certFile and keyFile go together"},
		{`"keyFile": "$/client.key"`, "tls certFile and keyFile go together"},
		{`"certFile": "$/none.pem", "keyFile": "$/client.key"`, "tls certFile: open $/none.pem: no such file"},
		{`"certFile": "$/client.pem", "keyFile": "$/none.key"`, "tls keyFile: open $/none.key: no such file"},
		{`"certFile": "$/client.pem", "keyFile": "$/another.key"`, "tls keyFile: $/another.key cannot be used with " +
			"the certificate in certFile $/client.pem: tls: private key does not match public key; name the key"},
		{`"certFile": "$/client.key", "keyFile": "$/client.pem"`, "tls certFile: $/client.key has no CERTIFICATE in PEM"},
		{`"certFile": "$/client.pem", "keyFile": "$/text.pem"`, "tls keyFile: $/text.pem has no PRIVATE KEY in PEM"},
		{`"certFile": "$/client.pem", "keyFile": "$/locked.key"`, "tls keyFile: the key in $/locked.key has a password"},
		{`"caFile": "$/text.pem"`, "tls caFile: $/text.pem has no CERTIFICATE in PEM"},
		{`"caFile": "$/large.pem"`, "tls caFile: $/large.pem has more than 1 MiB"},
		{`"caFile": "/dev/zero"`, "tls caFile: /dev/zero is not a regular file"},
		{`"caFile": "${NONE_SUCH}/ca.pem"`, "tls caFile: variable NONE_SUCH is not set"},
		{`"caFile": ["x"]`, "tls caFile is not a text"},
		{`"verify": false, "certFile": "$/both.pem", "keyFile": "$/both.pem"`,
			`server "notes": tls verify is not known here and has no effect`},
	} {
		members := strings.ReplaceAll(test.members, "$/", a.folder+"/")
		text, _ := a.tools(`"url": "https://127.0.0.1:1/mcp", "tls": {` + members + `}`)
		assert.Check(t, is.Contains(text, strings.ReplaceAll(test.want, "$/", a.folder+"/")))
		assert.Check(t, is.Contains(text, "notes"))
		assert.Check(t, !strings.Contains(text, "planted"), text)
		assert.Check(t, !strings.Contains(text, strings.Split(string(key), "\n")[1]), text)
	}
	text, _ := a.tools(`"url": "https://127.0.0.1:1/mcp", "tls": true`)
	assert.Check(t, is.Contains(text, "tls is not an object with certFile, keyFile or caFile"))
	text, _ = a.tools(`"url": "http://127.0.0.1:1/mcp", "tls": {"caFile": "x"}`)
	assert.Check(t, is.Contains(text, "tls has no effect: it goes with a url of https"))
	assert.Check(t, !strings.Contains(text, "no such file"), text)
}

// A folder's file says which files it has the program read, before the user allows it.
func TestDescribeTLS(t *testing.T) {
	text := []byte(`{"mcpServers": {"x": {"url": "https://h/mcp", "tls": {"keyFile": "${API_KEY}/k", "certFile": "c"}}}}`)
	c, err := ParseConfig(text, configLookup, ReadRegular, new(Secrets))
	assert.NilError(t, err)
	assert.Equal(t, describeAll(text, c, configLookup), "\n  x: https://h/mcp with tls "+
		`"{\"keyFile\": \"${API_KEY}/k\", \"certFile\": \"c\"}"`)
}

// nginx lets any client through the handshake, and answers 400 to one without a certificate, or with a wrong one.
func TestClientCertificateNginx(t *testing.T) {
	requireNginx(t)
	a, other := newTLSAuthority(t), newTLSAuthority(t)
	a.issue("server")
	a.issue("client")
	other.issue("client")
	library := httptest.NewServer(tlsLibrary(t))
	defer library.Close()
	options := fmt.Sprintf(" ssl; ssl_certificate %s; ssl_certificate_key %s; "+
		"ssl_client_certificate %s; ssl_verify_client on",
		a.path("server.pem"), a.path("server.key"), a.path("ca.pem"))
	address := startNginx(openPeer(t, Command{}), options, "", library.Listener.Addr().String())
	for name, test := range map[string]struct {
		of   *tlsAuthority
		want string
	}{
		"with it":    {a, "search_chunks"},
		"of another": {other, `the server wants a certificate of the client that it trusts: "certFile"`},
		"none":       {nil, `the server wants a certificate of the client that it trusts: "certFile"`},
	} {
		t.Run(name, func(t *testing.T) {
			members := fmt.Sprintf(`"caFile": %q`, a.path("ca.pem"))
			if test.of != nil {
				members += fmt.Sprintf(`, "certFile": %q, "keyFile": %q`, test.of.path("client.pem"), test.of.path("client.key"))
			}
			text, _ := a.tools(fmt.Sprintf(`"url": "https://%s/mcp", "tls": {%s}`, address, members))
			assert.Check(t, is.Contains(text, test.want))
		})
	}
}
