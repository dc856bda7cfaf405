// transport_http_request.go - one HTTP request to a server, and what can be wrong with it.
// Needs: Go 1.25, json, rpc.
// SPDX-License-Identifier: 0BSD

package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// HTTPError is the error of a message that was not answered as the protocol requires.
//
// Another one is the refusal of the RoundTripper of HTTP.Client, if its error has a method Status:
// it has sent nothing, so the server has not acted.
type HTTPError struct {
	URL     string      // without its query, which may hold a key
	Status  int         // 0 if there was no whole response; the server may have acted all the same
	Header  http.Header // of the response; nil if there was none
	Err     error       // never io.EOF itself, which would be the end of the transport
	expired bool        // see SessionExpired
}

// Error gives the URL, the status and the reason. For a server that wants a header, it says so.
func (e *HTTPError) Error() string {
	if e.Status == http.StatusUnauthorized && e.Header == nil {
		// The RoundTripper refused, and knows more than its status says.
		return e.Err.Error()
	}
	text := e.URL + ": "
	if e.Status != 0 {
		text = fmt.Sprintf("%s answers %d %s: ", e.URL, e.Status, http.StatusText(e.Status))
	}
	if e.Status == http.StatusProxyAuthRequired {
		text = "a proxy on the way to " + text
	}
	text += e.Err.Error()
	challenge := e.Header.Get("WWW-Authenticate")
	if challenge != "" || e.Status == http.StatusUnauthorized {
		text += fmt.Sprintf(" (a header is missing or wrong, usually Authorization; "+
			"WWW-Authenticate: %q)", challenge)
	}
	return text
}

func (e *HTTPError) Unwrap() error { return e.Err }

// Lost reports whether the message may not have reached the server, or its answer not the client. A
// proxy says so with the statuses 502 to 504.
func (e *HTTPError) Lost() bool {
	if e.Status == 0 {
		// An answer that is too long is not lost: it would be as long the next time. And a proxy
		// that refuses the connection would refuse it again.
		isTooLong := errors.As(e.Err, new(*MessageTooLongError))
		return !isTooLong && !errors.As(e.Err, new(*ProxyError))
	}
	return e.Status >= http.StatusBadGateway && e.Status <= http.StatusGatewayTimeout
}

// SessionExpired reports whether the server does not know the session any more. It has not acted: a
// new initialize begins another session.
func (e *HTTPError) SessionExpired() bool { return e.expired }

// The times that a request, or a part of it, may take. The answer to a call has no limit here, as
// the call has one of its own.
const (
	connectTime = 15 * time.Second      // for TCP, and for TLS
	acceptTime  = 30 * time.Second      // for the response to a message that is not a request
	openTime    = 3 * time.Second       // for the headers of the GET stream
	deleteTime  = 2 * time.Second       // for the end of a session
	tailTime    = 50 * time.Millisecond // for what follows the answer in a response
	idleTimeout = 4 * time.Second       // of a connection without a request
)

const maxHTTPMessage = 64 << 20 // bytes, unless HTTP.MaxMessage is set

// NewHTTPTransport returns the round tripper of an HTTP that has no Client. A Client may have it
// beneath another one.
//
// Connections are closed after four seconds without a request. Servers on Node and Python close
// theirs after five: a POST that meets such an end is lost, and cannot be sent again, as nobody
// knows whether the server has acted.
func NewHTTPTransport() *http.Transport {
	return &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		OnProxyConnectResponse: checkProxy,
		DialContext:            (&net.Dialer{Timeout: connectTime}).DialContext,
		TLSHandshakeTimeout:    connectTime,
		ForceAttemptHTTP2:      true,
		MaxResponseHeaderBytes: 1 << 20,
		MaxIdleConnsPerHost:    100, // each request that is being answered has a connection
		IdleConnTimeout:        idleTimeout,
	}
}

// withDefaults returns a copy for a transport, with a Client and a Header of its own.
func (h HTTP) withDefaults() HTTP {
	client := &http.Client{Transport: NewHTTPTransport()}
	if h.Client != nil {
		*client = *h.Client
	}
	client.CheckRedirect = checkRedirect
	header := make(http.Header)
	maps.Copy(header, h.Header)
	return HTTP{
		URL:    h.URL,
		Header: header,
		Client: client,
		// Readers add a little to the limit, which an int of 32 bits must hold.
		MaxMessage: min(cmp.Or(h.MaxMessage, maxHTTPMessage), math.MaxInt32-1<<10),
		ownClient:  h.Client == nil,
	}
}

// checkRedirect follows a redirect only within one origin. net/http would send the headers on to
// another one, but for those that it knows to hold credentials; ours may hold a key under any name.
func checkRedirect(next *http.Request, via []*http.Request) error {
	first := via[0]
	sameOrigin := next.URL.Scheme == first.URL.Scheme && next.URL.Host == first.URL.Host
	if sameOrigin && next.Method == first.Method && len(via) <= 5 {
		return nil
	}
	to := HTTP{URL: next.URL.String()}
	return fmt.Errorf("it redirects to %s, and no message is sent there: "+
		"if that is the server, give its URL", to)
}

// do makes one HTTP request, with the headers given and those of its session. The caller closes the
// body of the response. The header belongs to the request from now on.
func (h HTTP) do(
	ctx context.Context, method string, s *httpSession, header http.Header, body []byte,
) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, method, h.URL, bytes.NewReader(body))
	if err != nil {
		return nil, h.connectionError(err)
	}
	request.Header = header
	if s != nil {
		maps.Copy(header, s.header)
	}
	// Package net/http sends the field Host in place of the header. Where it is empty, it sends the
	// URL's.
	request.Host = header.Get("Host")
	response, err := h.Client.Do(request)
	if err != nil {
		failure := h.connectionError(err)
		if response != nil {
			// This response was a redirect that checkRedirect refused to follow.
			failure.Status = response.StatusCode
		}
		return nil, failure
	}
	return response, nil
}

// openStream opens the GET stream of a session, or resumes the stream whose last event had that id
// (MCP 2025-11-25, transports, resumability).
func (h HTTP) openStream(
	ctx context.Context, s *httpSession, lastID string,
) (*http.Response, error) {
	header := maps.Clone(h.Header)
	header.Set("Accept", "text/event-stream")
	if lastID != "" {
		header.Set("Last-Event-ID", lastID)
	}
	response, err := h.do(ctx, http.MethodGet, s, header, nil)
	if err != nil {
		return nil, err
	}
	isStream := contentType(response) == "text/event-stream"
	if response.StatusCode == http.StatusOK && isStream {
		return response, nil
	}
	defer response.Body.Close()
	// Of a body that breaks off, the beginning is enough for the error.
	body, _ := readBody(response, h.MaxMessage)
	refusal, _ := h.refusal(s, response, body)
	return nil, refusal
}

// connectionError is the error for a request without a whole response. An error of net/http names
// the whole URL, in which a key may be, so only its reason is kept.
func (h HTTP) connectionError(err error) *HTTPError {
	var known *HTTPError
	if errors.As(err, &known) {
		return known
	}
	var ofURL *url.Error
	if errors.As(err, &ofURL) {
		err = ofURL.Err
	}
	var refused interface{ Status() int }
	if errors.As(err, &refused) {
		return &HTTPError{URL: h.String(), Status: refused.Status(), Err: err}
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return &HTTPError{URL: h.String(), Err: err}
}

// statusError is the error for a response without a JSON-RPC message. It quotes the title of a
// page.
func (h HTTP) statusError(response *http.Response, body []byte) *HTTPError {
	text := cmp.Or(oneLine(body), "nothing more")
	_, title, isPage := strings.Cut(text, "<title>")
	if isPage {
		text, _, _ = strings.Cut(title, "</title>")
	}
	if response.StatusCode/100 == 2 {
		kind := response.Header.Get("Content-Type")
		text = fmt.Sprintf("no message, but %q: %s", kind, text)
	}
	return &HTTPError{
		URL:    h.String(),
		Status: response.StatusCode,
		Header: response.Header,
		Err:    errors.New(text),
	}
}

// refusal is the error for a response with a status other than 2xx, to a message of the session s.
// m is the JSON-RPC message in the response; it is the zero value if there is none. The refusal
// wraps the JSON-RPC error of m, if m has one.
func (h HTTP) refusal(
	s *httpSession, response *http.Response, body []byte,
) (refusal *HTTPError, m Incoming) {
	refusal = h.statusError(response, body)
	invalid := m.Parse(body)
	var e Error
	isError := json.Unmarshal(m.Error, &e) == nil
	if isError && invalid == nil {
		e.Message = oneLine([]byte(e.Message))
		refusal.Err = &e
	}
	// An error about the session may stand in what is not quite a JSON-RPC message.
	inSession := s != nil && s.id != ""
	refusal.expired = inSession && isExpired(response.StatusCode, &m, &e)
	if invalid != nil {
		m = Incoming{}
	}
	return refusal, m
}

// isExpired reports whether the refusal of a message says that its session is over; e is the error
// in m. The status for that is 404 (MCP 2025-11-25, transports, session management). But it can
// also mean an unknown method.
//
// The examples of the official SDKs answer 400, with a JSON-RPC error about the session that has no
// id. An error without an id is never the answer to a request that the server could read (JSON-RPC
// 2.0, 5), so nothing that a tool says is mistaken for it.
func isExpired(status int, m *Incoming, e *Error) bool {
	if status != http.StatusBadRequest {
		return status == http.StatusNotFound && e.Code != CodeMethodNotFound
	}
	text := strings.ToLower(e.Message)
	says := func(words string) bool { return strings.Contains(text, words) }
	reasons := []string{
		"expired", "invalid", "missing", "no such", "no valid", "not found", "terminated",
		"unknown",
	}
	return isErrorWithoutID(m) && says("session") && slices.ContainsFunc(reasons, says)
}

// contentType returns the media type of a response in lower case, without its parameters.
func contentType(response *http.Response) string {
	kind, _, _ := strings.Cut(response.Header.Get("Content-Type"), ";")
	return strings.ToLower(strings.TrimSpace(kind))
}

// readBody reads a response that is not a stream, without a byte order mark. A length that the
// server declares is the size of the buffer from the beginning, so that an answer of megabytes is
// not copied as the buffer grows.
func readBody(response *http.Response, limit int) ([]byte, error) {
	// It is -1 if it is not known.
	declared := response.ContentLength
	if declared > int64(limit) {
		return nil, &MessageTooLongError{limit}
	}
	size := bytes.MinRead
	if declared > 0 {
		size = int(declared)
	}
	body := make([]byte, 0, size)
	for {
		n, err := response.Body.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		if len(body) > limit {
			return nil, &MessageTooLongError{limit}
		}
		if err == io.EOF {
			return withoutBOM(body), nil
		}
		if err != nil {
			return nil, err
		}
		body = slices.Grow(body, 1)
	}
}

// readTail reads a response to its end if that comes within tailTime, so that its connection can be
// used again. Otherwise it ends the request with cancel. Closing the body would not do: of a
// compressed one, net/http holds a lock while it is read.
func readTail(response *http.Response, cancel context.CancelFunc) {
	late := time.AfterFunc(tailTime, cancel)
	defer late.Stop()
	_, _ = io.Copy(io.Discard, response.Body)
}
