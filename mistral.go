// mistral.go - chat completions of Mistral, and of servers that speak the same, over raw net/http.
// Needs: Go 1.25.
// SPDX-License-Identifier: 0BSD

package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// ErrSilent ends a request whose server has sent nothing for maxSilence, before its answer or in
// the middle of it.
var ErrSilent = errors.New("the server was silent for 10 minutes")

// ErrTooLarge ends a request whose answer is larger than maxAnswer. The rest is not read.
var ErrTooLarge = errors.New("the answer is larger than 64 MiB")

// maxAnswer bounds an answer, in bytes.
const maxAnswer = 64 << 20

// maxRefusal bounds what is read of an answer that is not a completion, in bytes.
const maxRefusal = 64 << 10

// maxSilence is long because an answer that is not streamed begins only when it is complete.
const maxSilence = 10 * time.Minute

// Mistral talks to one chat-completions server. The zero value with a Model is usable, by several
// goroutines at once.
type Mistral struct {
	BaseURL  string        // "" means https://api.mistral.ai/v1
	Key      string        // sent as a bearer token if not empty
	Model    string        // for example "mistral-large-latest"
	Client   *http.Client  // nil: http.DefaultTransport's; redirects are never followed
	Insecure bool          // allow the key over plain http to a host that is not this machine
	Tries    int           // of one request, at most; 0 means 5
	MaxWait  time.Duration // all waits between the tries of one request; 0 means 2 minutes

	// OnRetry, if set, is called after each failed try, before the wait for the next.
	OnRetry func(err error, wait time.Duration)

	// OnThinking, if set, is called for each piece of a streamed answer that is the model's
	// reasoning, before the text.
	OnThinking func()

	streamUsage atomic.Int32 // what is known of the server: one of usageUntried, …
}

// Whether a server takes the member stream_options, which asks for the tokens of a streamed answer.
const (
	usageUntried int32 = iota
	usageTaken
	usageRefused
)

// Complete sends one request and returns the model's answer. If onText is not nil, the answer is
// streamed, and its text is passed to onText as it arrives. An answer cut off at a length limit is
// not an error.
//
// With an error, Complete returns what arrived of the answer, or nil. The error is an *APIError,
// ErrTooLarge, ErrSilent, the cause of ctx's end, or one of the connection.
//
// It tries again where another try may help and cannot do harm: after a refusal that may pass, and
// after a connection that broke before the first byte of the answer. It does not try again after a
// connection that broke later, nor after silence, as the server may be working on the request. It
// waits as long as the server says. If MaxWait leaves less than that, it fails at once.
//
// Mistral counts the tokens of a streamed answer unasked, and refuses the member that asks for it.
// Most other servers have to be asked. One that refuses the request is asked without it, and if it
// takes that, never with it again.
func (m *Mistral) Complete(
	ctx context.Context,
	r *ChatRequest,
	onText func(string),
) (*ChatResponse, error) {
	if onText == nil {
		return m.complete(ctx, r, formWhole, nil)
	}
	if m.isMistral() || m.streamUsage.Load() == usageRefused {
		return m.complete(ctx, r, formStreamed, onText)
	}
	answer, err := m.complete(ctx, r, formStreamedWithUsage, onText)
	var refused *APIError
	isRefused := errors.As(err, &refused) && (refused.Status == 400 || refused.Status == 422)
	switch {
	case err == nil:
		m.streamUsage.Store(usageTaken)
	case isRefused && m.streamUsage.Load() == usageUntried:
		answer, err = m.complete(ctx, r, formStreamed, onText)
		if err == nil {
			m.streamUsage.Store(usageRefused)
		}
	}
	return answer, err
}

// isMistral reports whether requests go to Mistral's own servers.
func (m *Mistral) isMistral() bool {
	target, err := m.Endpoint()
	return err == nil && strings.HasSuffix("."+strings.ToLower(target.Hostname()), ".mistral.ai")
}

// answerForm is how an answer is to come.
type answerForm int

const (
	formWhole answerForm = iota
	formStreamed
	formStreamedWithUsage // the server is asked for the tokens
)

// complete sends one request, and again where that may help.
func (m *Mistral) complete(
	ctx context.Context,
	r *ChatRequest,
	form answerForm,
	onText func(string),
) (*ChatResponse, error) {
	req, err := m.request(r, form)
	if err != nil {
		return nil, fmt.Errorf("chat completion: %w", err)
	}
	answer, err := m.retry(ctx, req, onText)
	if err != nil {
		err = fmt.Errorf("chat completion with %s at %s: %w", m.Model, req.URL.Host, err)
	}
	return answer, err
}

// retry makes attempts until one succeeds, fails for good, or the bounds are reached. After a 429,
// a server's failure or a lost connection (see attempt) it waits as long as the server asks for in
// Retry-After, else half a second, which grows by half with each attempt up to a minute, plus up to
// a second at random.
//
// The timer of silence runs only while the server is waited for, which attempt and patient see to.
// When it fires, it ends the ctx of the request.
func (m *Mistral) retry(
	ctx context.Context,
	req *http.Request,
	onText func(string),
) (*ChatResponse, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(maxSilence, func() { cancel(ErrSilent) })
	tries := cmp.Or(m.Tries, 5)
	left := cmp.Or(m.MaxWait, 2*time.Minute)
	// The first wait, and how it grows, are those of Mistral's own clients.
	backoff := 500 * time.Millisecond
	for try := 1; ; try++ {
		answer, mayTryAgain, err := m.attempt(req.WithContext(ctx), silence, onText)
		if err != nil && ctx.Err() != nil {
			// The transport's error need not say why ctx has ended.
			return answer, context.Cause(ctx)
		}
		if !mayTryAgain {
			return answer, err
		}
		wait := retryWait(err, backoff)
		backoff = min(backoff*3/2, time.Minute)
		left -= wait
		if try >= tries || left < 0 {
			return nil, fmt.Errorf("%w (gave up at try %d of %d, before a wait of %v)",
				err, try, tries, wait.Round(time.Second))
		}
		if m.OnRetry != nil {
			m.OnRetry(err, wait)
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, fmt.Errorf("%w, while waiting to try again after: %w",
				context.Cause(ctx), err)
		}
	}
}

// retryWait returns how long to wait after a failed attempt: as long as the server asks for, else
// the backoff with a random part on top. That part keeps clients that failed at the same moment
// from coming back at the same moment.
func retryWait(err error, backoff time.Duration) time.Duration {
	var refused *APIError
	if errors.As(err, &refused) && refused.RetryAfter > 0 {
		return refused.RetryAfter
	}
	return backoff + rand.N(time.Second)
}

// attempt sends the request once. It reports whether it failed in such a way that another try may
// help and cannot do harm.
func (m *Mistral) attempt(
	req *http.Request,
	silence *time.Timer,
	onText func(string),
) (answer *ChatResponse, mayTryAgain bool, err error) {
	silence.Reset(maxSilence)
	defer silence.Stop()
	ctx, cancel := context.WithCancel(req.Context())
	defer cancel()
	req = req.WithContext(ctx)
	req.Body, _ = req.GetBody()
	resp, err := m.send(req)
	if err != nil {
		return nil, mayReconnect(err), fmt.Errorf("no answer: %w%s", err, advice(req.URL, err))
	}
	defer resp.Body.Close()
	// This runs before Close, which over HTTP/2 can wait for the server.
	defer cancel()
	body := patient{resp.Body, silence}
	if resp.StatusCode != http.StatusOK {
		// If the body breaks off, its beginning says enough.
		text, _ := io.ReadAll(io.LimitReader(body, maxRefusal))
		return nil, mayPass(resp.StatusCode), m.refusal(resp, text)
	}
	in := bufio.NewReader(http.MaxBytesReader(nil, body, maxAnswer))
	if _, err := in.Peek(1); err != nil {
		return nil, true, fmt.Errorf("no answer: %w", err)
	}
	answer, err = m.readAnswer(req.URL.Host, resp, in, onText)
	return answer, false, err
}

// mayReconnect reports whether a connection that did not come about may do so at another try. Not
// where the name does not exist, the certificate is not trusted, nothing listens on this machine,
// or the transport itself says that nothing was lost on the way, but refused, as by a proxy.
func mayReconnect(err error) bool {
	var lost interface{ Lost() bool }
	var name *net.DNSError
	switch {
	case errors.As(err, &lost):
		return lost.Lost()
	case errors.As(err, &name):
		return !name.IsNotFound
	}
	return !isRefusedHere(err) && !errors.As(err, new(*tls.CertificateVerificationError))
}

// advice returns what the user can do about a connection to a URL that did not come about.
func advice(target *url.URL, err error) string {
	var lost interface{ Lost() bool }
	switch {
	case errors.As(err, &lost), errors.As(err, new(*tls.CertificateVerificationError)):
		// The error says what is wrong: the server was reached.
		return ""
	case isRefusedHere(err) && target.Port() == "11434":
		return "; nothing listens at " + target.Host + ": is Ollama running?"
	case isRefusedHere(err):
		return "; nothing listens at " + target.Host + ": is the model's server running?"
	}
	return "; check the base URL, and that the server can be reached"
}

// isRefusedHere reports whether this machine itself refused a connection, at once: no program
// listens at that port. Windows has a number of its own for that, WSAECONNREFUSED.
func isRefusedHere(err error) bool {
	isRefused := errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.Errno(10061))
	var operation *net.OpError
	if !isRefused || !errors.As(err, &operation) || operation.Op != "dial" {
		return false
	}
	address, isTCP := operation.Addr.(*net.TCPAddr)
	return isTCP && address.IP.IsLoopback()
}

// mayPass reports whether an HTTP status stands for a trouble of the moment.
func mayPass(status int) bool {
	return slices.Contains([]int{408, 429, 500, 502, 503, 504}, status)
}

// send sends a request to its URL, and nowhere else: the key and the conversation are not for
// another address that the server may name. Its errors do not show the key.
func (m *Mistral) send(req *http.Request) (*http.Response, error) {
	var client http.Client
	if m.Client != nil {
		client = *m.Client
	}
	client.CheckRedirect = func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}
	resp, err := client.Do(req)
	if err == nil {
		return resp, nil
	}
	// The *url.Error around the reason shows the URL, which can hold credentials.
	err = errors.Unwrap(err)
	if text := m.clean(err.Error()); text != err.Error() {
		// A new error, because what this one wraps would still show the key.
		err = errors.New(text)
	}
	return nil, err
}

// patient is the body of an answer: each Read has the time of silence anew. Between two reads the
// caller works, which is not the server's silence.
type patient struct {
	io.ReadCloser
	silence *time.Timer
}

func (p patient) Read(b []byte) (int, error) {
	p.silence.Reset(maxSilence)
	defer p.silence.Stop()
	return p.ReadCloser.Read(b)
}

// request makes the request of which each attempt sends a copy. The API refuses members that it
// does not know, so the request has no others.
func (m *Mistral) request(r *ChatRequest, form answerForm) (*http.Request, error) {
	target, err := m.Endpoint()
	if err != nil {
		return nil, err
	}
	wire := struct {
		Model string `json:"model"`
		ChatRequest
		Stream        bool            `json:"stream,omitempty"`
		StreamOptions map[string]bool `json:"stream_options,omitempty"`
	}{Model: m.Model, ChatRequest: *r, Stream: form != formWhole}
	if form == formStreamedWithUsage {
		wire.StreamOptions = map[string]bool{"include_usage": true}
	}
	wire.Messages = messagesFor(target.Host, r.Messages)
	if len(r.Tools) == 0 {
		// Some servers refuse a choice where there is nothing to choose.
		wire.ToolChoice = ""
	}
	body, err := wireJSON(wire)
	if err != nil {
		return nil, err
	}
	header := m.header("application/json")
	if wire.Stream {
		header = m.header("text/event-stream")
	}
	header.Set("Content-Type", "application/json")
	return &http.Request{
		Method:        http.MethodPost,
		URL:           target,
		Header:        header,
		ContentLength: int64(len(body)),
		GetBody: func() (io.ReadCloser, error) {
			return io.NopCloser(bytes.NewReader(body)), nil
		},
	}, nil
}

// header returns the header of a request whose answer is to be of the given type.
func (m *Mistral) header(accept string) http.Header {
	header := http.Header{"Accept": {accept}}
	if m.Key != "" {
		header.Set("Authorization", "Bearer "+m.Key)
	}
	return header
}

// Endpoint returns the URL that requests go to, or why none can be sent.
func (m *Mistral) Endpoint() (*url.URL, error) {
	u, err := url.Parse(cmp.Or(m.BaseURL, "https://api.mistral.ai/v1"))
	isHTTP := err == nil && (u.Scheme == "http" || u.Scheme == "https")
	if !isHTTP || u.Host == "" {
		// The error of url.Parse would quote the URL, which can hold a secret.
		return nil, errors.New("the base URL must begin with http:// or https:// and name a host")
	}
	hasSecret := m.Key != "" || u.User != nil
	if u.Scheme == "http" && hasSecret && !isOwnMachine(u.Hostname()) && !m.Insecure {
		return nil, fmt.Errorf("refusing to send the key over plain http: "+
			"use https, or no key (%s)", u.Host)
	}
	if strings.ContainsFunc(m.Key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, errors.New(
			"the key holds a space, a line break or another character that keys do not have")
	}
	// Without a path, JoinPath would make a relative one.
	u.Path = cmp.Or(u.Path, "/")
	return u.JoinPath("chat/completions"), nil
}

// isOwnMachine is oauth_wire.go's IsLoopback, which this family does without: it needs no other, so
// that it can be copied alone.
func isOwnMachine(host string) bool {
	return strings.EqualFold(host, "localhost") || net.ParseIP(host).IsLoopback()
}
