package main

import (
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

// A certificate that is not accepted is told with what to do about it, whether a server, the model or a login has it.
func TestCertificateAdvice(t *testing.T) {
	if runtime.GOOS == "windows" || runtime.GOOS == "darwin" {
		t.Skip("the system checks certificates there, and has words of its own")
	}
	site := httptest.NewUnstartedServer(http.NotFoundHandler())
	site.Config.ErrorLog = log.New(io.Discard, "", 0)
	site.StartTLS()
	defer site.Close()
	client := func(change func(c *tls.Config)) *http.Client {
		transport := site.Client().Transport.(*http.Transport).Clone()
		t.Cleanup(transport.CloseIdleConnections)
		change(transport.TLSClientConfig)
		return &http.Client{Transport: transport}
	}
	inACentury := func() time.Time { return time.Now().AddDate(100, 0, 0) }
	localhost := strings.Replace(site.URL, "127.0.0.1", "localhost", 1)
	for name, test := range map[string]struct {
		client *http.Client
		url    string
		want   string
	}{
		"unknown authority": {client(func(c *tls.Config) { c.RootCAs = nil }), site.URL,
			"; if a company proxy or your own authority signed it, " +
				"set SSL_CERT_FILE to a PEM file with that authority's certificate"},
		"expired": {client(func(c *tls.Config) { c.Time = inACentury }), site.URL,
			"; check the clock of this machine; if it is right, the server needs a certificate that is valid now"},
		"another name": {client(func(*tls.Config) {}), localhost,
			"; check the name of the host in the URL: the certificate is for another host"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &servers{logins: &logins{config: new(configuration)}}
			server := &Server{Name: "web", URL: test.url, Client: test.client}
			_, ofServer := server.Connect(t.Context(), ClientOptions{})
			model := &Mistral{BaseURL: test.url, Model: "m", Client: test.client}
			_, ofModel := model.Complete(t.Context(), &ChatRequest{}, nil)
			login := &AuthorizationError{Err: errors.Unwrap(ofModel)}
			for _, err := range []error{ofServer, ofModel, login} {
				text := s.explain(err).Error()
				assert.Check(t, is.Contains(text, "certificate"))
				assert.Check(t, strings.HasSuffix(text, test.want), text)
				assert.Check(t, is.Equal(strings.Count(text, "; "), strings.Count(test.want, "; ")), text)
			}
		})
	}
	assert.Equal(t, certificateAdvice(errors.New("x509: of a server's own words")), "")
}
