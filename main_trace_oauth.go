// main_trace_oauth.go - the trace of logins: discovery, registration and token requests.
// SPDX-License-Identifier: 0BSD

package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"unicode"
)

const (
	maxTracedBody  = 64 << 10 // bytes that are kept of an answer, to find its members
	maxTracedText  = 4 << 10  // bytes that are shown of a body
	maxTracedValue = 1000     // bytes of a value that is shown

	tracedSecret = "[secret]" // in the place of a value that is not shown
)

// openValue matches the names of the values that the trace of a login shows. Of all others it shows
// nothing: each server has names of its own for what is secret.
var openValue = regexp.MustCompile(`^(application_type|audience|authorization_servers|` +
	`client_id|client_id_issued_at|client_name|client_secret_expires_at|client_uri|` +
	`error|error_description|error_uri|expires_in|grant_types?|iss|issuer|jwks_uri|` +
	`redirect_uris?|resource|resource_name|response_types?|scope|token_type|` +
	`client_assertion_type|issued_token_type|requested_token_type|subject_token_type|` +
	`token_type_hint|\w+_auth_method|\w+_documentation|\w+_endpoint|\w+_required|\w+_supported)$`)

// traced returns a transport for the requests of a login to a server, as OAuth.Base or below it.
// Without a trace it is base itself.
func (p *logins) traced(s *Server, base http.RoundTripper) http.RoundTripper {
	if !p.trace.isOpen() {
		return base
	}
	return &oauthTrace{base, func(text string) { p.trace.server(s, "oauth "+text) }}
}

// oauthTrace is a transport below OAuth. It traces what OAuth itself sends, with the values of
// openValue, and of the server's other requests only a refusal, which may begin a login: these
// requests are messages, and are traced as such.
type oauthTrace struct {
	base http.RoundTripper
	line func(text string)
}

// RoundTrip sends a request. It changes neither the request nor what is read of the answer.
func (t *oauthTrace) RoundTrip(r *http.Request) (*http.Response, error) {
	// A request with a message accepts an event stream, too, or does not say what it accepts.
	isMessage := r.Header.Get("Accept") != "application/json"
	if isMessage {
		response, err := t.base.RoundTrip(r)
		if err == nil && len(response.Header.Values("WWW-Authenticate")) > 0 {
			t.line("<- " + response.Status + shownHeaders(response.Header))
		}
		return response, err
	}
	t.line(joinWords("-> "+r.Method, shownAddress(r.URL)+shownHeaders(r.Header), sentBody(r)))
	response, err := t.base.RoundTrip(r)
	if err != nil {
		t.line("!! " + err.Error())
		return nil, err
	}
	answered := "<- " + response.Status + shownHeaders(response.Header)
	kind := response.Header.Get("Content-Type")
	response.Body = &oauthTraceBody{ReadCloser: response.Body, done: func(text []byte, size int) {
		t.line(joinWords(answered, shownBody(kind, text, size)))
	}}
	return response, nil
}

// CloseIdleConnections closes the idle connections of base; http.Client calls it.
func (t *oauthTrace) CloseIdleConnections() {
	(&http.Client{Transport: t.base}).CloseIdleConnections()
}

// oauthTraceBody keeps the beginning of an answer while it is read. It is for one goroutine.
type oauthTraceBody struct {
	io.ReadCloser
	text []byte                      // not more than maxTracedBody
	size int                         // bytes that were read
	done func(text []byte, size int) // called once, at the end or at Close; nil afterwards
}

func (b *oauthTraceBody) Read(into []byte) (int, error) {
	n, err := b.ReadCloser.Read(into)
	b.size += n
	b.text = append(b.text, into[:min(n, maxTracedBody-len(b.text))]...)
	if err != nil {
		b.end()
	}
	return n, err
}

func (b *oauthTraceBody) Close() error {
	b.end()
	return b.ReadCloser.Close()
}

func (b *oauthTraceBody) end() {
	if b.done != nil {
		b.done(b.text, b.size)
	}
	b.done = nil
}

// sentBody returns the body of a request as it is shown. OAuth has its bodies in memory.
func sentBody(r *http.Request) string {
	if r.Body == nil || r.Body == http.NoBody || r.GetBody == nil {
		return ""
	}
	body, err := r.GetBody()
	if err != nil {
		return ""
	}
	defer body.Close()
	text, _ := io.ReadAll(io.LimitReader(body, maxTracedBody))
	return shownBody(r.Header.Get("Content-Type"), text, int(r.ContentLength))
}

// shownBody returns a body as it is shown, if it is a form or a JSON object, and otherwise its
// size. text is its beginning.
func shownBody(kind string, text []byte, size int) string {
	isForm := strings.HasPrefix(kind, "application/x-www-form-urlencoded")
	shown := ""
	switch {
	case size == 0:
		return ""
	case len(text) < size:
		// A part of a value could not be told from a whole one, nor a part of a secret.
	case isForm:
		shown = shownForm(string(text))
	default:
		shown = shownJSON(text)
	}
	if shown == "" {
		return fmt.Sprintf("(%d bytes)", size)
	}
	return shown
}

// shownAddress returns a URL without its user, and with the values of its query that are shown.
func shownAddress(u *url.URL) string {
	shown := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath}
	text := shown.String()
	if u.RawQuery != "" {
		text += "?" + shownForm(u.RawQuery)
	}
	return text
}

// shownHeaders returns the headers of a login. Of what authorises a request, the scheme is shown.
func shownHeaders(header http.Header) string {
	text := ""
	if value := header.Get("Authorization"); value != "" {
		scheme, _, hasScheme := strings.Cut(value, " ")
		if !hasScheme {
			scheme = ""
		}
		text += " Authorization: " + joinWords(scheme, tracedSecret)
	}
	if header.Get("DPoP") != "" {
		text += " DPoP: " + tracedSecret
	}
	for _, value := range header.Values("WWW-Authenticate") {
		if len(value) <= maxTracedValue {
			text += " WWW-Authenticate: " + value
		}
	}
	if u, err := url.Parse(header.Get("Location")); err == nil && u.Path+u.Host != "" {
		text += " Location: " + shownAddress(u)
	}
	return text
}

// shownForm returns the members of a form or a query, decoded, with the values that are shown.
func shownForm(form string) string {
	var members []string
	size := 0
	for member := range strings.SplitSeq(form, "&") {
		member = shownMember(member)
		size += len(member) + len("&")
		if size > maxTracedText {
			members = append(members, "…")
			break
		}
		members = append(members, member)
	}
	return strings.Join(members, "&")
}

// shownMember returns one member of a form.
func shownMember(member string) string {
	name, value, hasValue := strings.Cut(member, "=")
	decoded, err := url.QueryUnescape(value)
	if err != nil || strings.ContainsFunc(decoded, unicode.IsControl) {
		decoded = value
	}
	if !hasValue {
		// This is a value without a name.
		return tracedSecret
	}
	return name + "=" + shownValue(name, decoded)
}

// shownValue returns the value of a member as it is shown. An address in it may have secrets of its
// own.
func shownValue(name, value string) string {
	if !openValue.MatchString(name) {
		return tracedSecret
	}
	if len(value) > maxTracedValue {
		return fmt.Sprintf("(%d bytes)", len(value))
	}
	u, err := url.Parse(value)
	if err == nil && u.Host != "" && (u.User != nil || u.RawQuery != "") {
		return shownAddress(u)
	}
	return value
}

// shownJSON returns a JSON object with the values that are shown, or "" for any other text.
func shownJSON(text []byte) string {
	s := &scanner{text: bytes.TrimSpace(text)}
	if s.peek() != '{' || !validJSON(s.text) {
		return ""
	}
	shown := string(appendShown(nil, s, ""))
	if len(shown) > maxTracedText {
		shown += " …"
	}
	return shown
}

// appendShown appends the next value of s, which is the value of the member of this name. In an
// object each member is judged by its own name, however deep it is. Beyond maxTracedText, no
// further members are appended: a value is shown as a whole or not at all, as its secrets are
// masked by what they are, and half a secret would not be found.
func appendShown(b []byte, s *scanner, name string) []byte {
	switch s.peek() {
	case '{':
		b = append(b, '{')
		s.object(func(key []byte) {
			member := string(key)
			if len(b) > maxTracedText {
				s.value()
				return
			}
			b = appendKey(b, member)
			b = appendShown(b, s, member)
		})
		return append(b, '}')
	case '[':
		b = append(b, '[')
		s.array(func() {
			if len(b) > maxTracedText {
				s.value()
				return
			}
			if b[len(b)-1] != '[' {
				b = append(b, ',')
			}
			b = appendShown(b, s, name)
		})
		return append(b, ']')
	case '"':
		return appendString(b, shownValue(name, s.string()))
	}
	word := string(s.value())
	if openValue.MatchString(name) {
		return append(b, word...)
	}
	return appendString(b, tracedSecret)
}

// joinWords joins the texts that are not empty.
func joinWords(texts ...string) string {
	text := strings.Join(texts, " ")
	return strings.TrimSpace(text)
}
