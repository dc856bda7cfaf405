package main

import (
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// visit opens an address as a browser does, and returns the page that it ends at, below its status; or, with follow
// false, where it is sent to.
func visit(address string, follow bool) (page, location string, err error) {
	client := &http.Client{Timeout: 20 * time.Second, Transport: new(http.Transport)}
	defer client.CloseIdleConnections()
	if !follow {
		client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	}
	response, err := client.Get(address)
	if err != nil {
		return "", "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return response.Status + "\n" + string(text), response.Header.Get("Location"), err
}

// refuseLogin is an oauthServer.Respond.
func refuseLogin(response url.Values) {
	response.Del("code")
	response.Set("error", "access_denied")
	response.Set("error_description", "<b>no</b>")
}

// tokens are the secrets that the server has issued, but for codes: a person may have pasted one.
func (s *oauthServer) tokens() (tokens []string) {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.secrets), func(text string) bool { return strings.HasPrefix(text, "code-") })
}
