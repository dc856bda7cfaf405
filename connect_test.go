package main

import (
	"crypto/tls"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

// TestConnectAdvice: where TLS is what is wrong, the error says what to do about it.
func TestConnectAdvice(t *testing.T) {
	checkLeaks(t)
	nothing := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	plain := httptest.NewServer(nothing)
	defer plain.Close()
	secure := httptest.NewUnstartedServer(nothing)
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	secure.StartTLS()
	defer secure.Close()
	for _, test := range []struct{ url, advice string }{
		{secure.URL, "; if it is to be trusted, add its authority to the system's, or name a file of certificates in SSL_CERT_FILE"},
		{strings.Replace(secure.URL, "https:", "http:", 1), "; it speaks TLS there: try https:// in the URL"},
		{strings.Replace(plain.URL, "http:", "https:", 1), "; it does not speak TLS there: try http:// in the URL"},
		{plain.URL, "418 I'm a teapot: nothing more"},
	} {
		s := Server{URL: test.url}
		_, err := s.Connect(t.Context(), ClientOptions{Timeout: 10 * time.Second})
		assert.Assert(t, err != nil && strings.HasSuffix(err.Error(), test.advice), "%s: %v", test.url, err)
	}
}
