// oauth_listen.go - the page on this machine that ends a login in the browser.
// Needs: Go 1.25.
// SPDX-License-Identifier: 0BSD

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"html"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	oauthLoginTime = 10 * time.Minute // for a person to log in
	oauthPageTime  = time.Second      // for a request of the browser, and for its answer
)

// OAuthListener lets a person log in with a browser. Its method Listen is an OAuth.Listen: for each
// login it serves one page on this machine, to which the authorization server sends the browser
// back (RFC 8252, 7.3). Only this machine can reach the page, and only by its own names.
//
// Set the fields before the first login.
type OAuthListener struct {
	Name     string // of the program, for the page
	Resource string // OAuth.Resource, for the page

	// RedirectURI is OAuth.Client.RedirectURI, such as http://localhost:8080/callback: the login
	// ends there and nowhere else. If it is empty, the port is that of an earlier login, or a free
	// one.
	RedirectURI string

	// Show asks the person to open the address of a question. It may go on until ctx ends, for
	// example to read what the person pastes. The login waits for its return.
	Show func(ctx context.Context, q *OAuthQuestion)
	// Mask takes the secrets out of an error that the page shows. Nil shows the error as it is.
	Mask func(text string) string
}

// OAuthQuestion asks a person to open an address in a browser, and to log in there.
type OAuthQuestion struct {
	Address     string // of the authorization server
	RedirectURI string // the last address of the browser begins with it

	redirect   *loopbackRedirect
	state      string          // of the authorization request
	isAnswered atomic.Bool     // set by whoever may send to answer
	answer     chan url.Values // has one slot
}

// Listen listens at the address of an earlier login, or at another address if the earlier is taken.
func (l *OAuthListener) Listen(_ context.Context, redirectURI string) (Redirect, error) {
	uri, err := url.Parse(cmp.Or(l.RedirectURI, redirectURI, "http://127.0.0.1:0/callback"))
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:"+uri.Port())
	if err != nil && l.RedirectURI == "" {
		// Another program has the port of the earlier login.
		listener, err = net.Listen("tcp", "127.0.0.1:0")
	}
	if err != nil {
		return nil, fmt.Errorf("the browser cannot come back to %s: %w", uri, err)
	}
	if l.RedirectURI == "" {
		uri.Host = listener.Addr().String()
	}
	r := &loopbackRedirect{listener: l, uri: uri, ended: make(chan struct{})}
	r.page = http.Server{Handler: r, ReadHeaderTimeout: oauthPageTime}
	r.serving.Go(func() { _ = r.page.Serve(listener) })
	return r, nil
}

// loopbackRedirect is the Redirect of one login. The goroutine of the login calls Ask and at the
// end Close. There is a second Ask where the authorization server has forgotten its client.
// Meanwhile the goroutines of page answer the browser; Close ends them and waits for them.
type loopbackRedirect struct {
	listener *OAuthListener
	uri      *url.URL
	page     http.Server
	serving  sync.WaitGroup                // counts the goroutine that page.Serve runs on
	question atomic.Pointer[OAuthQuestion] // the last one; nil before the first
	ended    chan struct{}                 // closed by Close once err is set
	err      error                         // the outcome of the login
}

func (r *loopbackRedirect) URI() string { return r.uri.String() }

// Ask waits for the answer to a question: from a browser on this machine, which comes to the page,
// or from one elsewhere, whose last address the person hands to OAuthQuestion.Answer.
func (r *loopbackRedirect) Ask(ctx context.Context, address string) (url.Values, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" {
		return nil, errors.New("the address of the login is not one of http or https")
	}
	late := fmt.Errorf("nobody has logged in within %s", oauthLoginTime)
	ctx, cancel := context.WithTimeoutCause(ctx, oauthLoginTime, late)
	q := &OAuthQuestion{
		Address:     address,
		RedirectURI: r.URI(),
		redirect:    r,
		state:       u.Query().Get("state"),
		answer:      make(chan url.Values, 1),
	}
	r.question.Store(q)
	var showing sync.WaitGroup
	defer showing.Wait()
	defer cancel()
	showing.Go(func() { r.listener.Show(ctx, q) })
	select {
	case values := <-q.answer:
		return values, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Answer ends the login with the address that a browser ended at, which the person has pasted. It
// reports whether this is an address of this login.
func (q *OAuthQuestion) Answer(address string) bool {
	u, err := url.Parse(strings.TrimSpace(address))
	return err == nil && q.take(u)
}

// take ends the login with the address that the browser ended at. Any program on this machine, and
// any page in the browser, can send a request to the listener. Only the address with the state of
// this login ends it.
func (q *OAuthQuestion) take(u *url.URL) bool {
	// The redirect URI may have no path; the browser sends one all the same.
	path := cmp.Or(q.redirect.uri.EscapedPath(), "/")
	values := u.Query()
	if u.EscapedPath() != path || len(values["state"]) != 1 || values.Get("state") != q.state {
		return false
	}
	q.end(values)
	return true
}

// end hands over the first answer, and reports whether this is the first answer. There are more
// answers if the page is loaded again.
func (q *OAuthQuestion) end(values url.Values) bool {
	if !q.isAnswered.CompareAndSwap(false, true) {
		return false
	}
	q.answer <- values
	return true
}

const oauthPage = `<!DOCTYPE html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<meta name="color-scheme" content="light dark"><title>%[1]s – %[3]s</title>
<h1>%[1]s</h1>
<p>%[2]s</p>
<p>You can close this tab.%[4]s</p></html>
`

// ServeHTTP answers the browser. The answer to the right request is the outcome of the login, so
// it waits for Close, which is called in any case.
func (r *loopbackRedirect) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	if !r.isOwnHost(request.Host) {
		http.Error(w, "this page has another address", http.StatusForbidden)
		return
	}
	name := r.listener.Name
	status, title := http.StatusBadRequest, "You are not logged in"
	text := "This is not the end of the login that " + name + " waits for. That one goes on."
	next := " Go back to " + name + ": it shows the address of the login."
	q := r.question.Load()
	if request.Method == http.MethodGet && q != nil && q.take(request.URL) {
		<-r.ended
		if r.err != nil {
			text = r.err.Error()
			next = " Go back to " + name + " to log in again."
		} else {
			status, title = http.StatusOK, "You are logged in"
			text = name + " can now use " + r.listener.Resource
			next = ""
		}
	}
	if r.listener.Mask != nil {
		text = r.listener.Mask(text)
	}
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Security-Policy",
		"default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	w.Header().Set("Referrer-Policy", "no-referrer")
	w.WriteHeader(status)
	fmt.Fprintf(w, oauthPage, title, html.EscapeString(text), html.EscapeString(name),
		html.EscapeString(next))
}

// isOwnHost reports whether a header Host is what the browser sends for the redirect URI, or for
// this machine by another of its names. A page of another site could make the name of its own host
// lead to this machine (DNS rebinding), and would read what the listener answers: the browser takes
// both for one site. But it sends the name, and nobody sends that name here for a good reason.
func (r *loopbackRedirect) isOwnHost(host string) bool {
	at := url.URL{Host: strings.ToLower(host)}
	isOwnName := at.Hostname() == strings.ToLower(r.uri.Hostname()) ||
		at.Hostname() == "localhost" || at.Hostname() == "127.0.0.1"
	// A browser leaves out the port that http has by itself.
	return isOwnName && cmp.Or(at.Port(), "80") == cmp.Or(r.uri.Port(), "80")
}

// Close tells the browser how the login has ended, and stops listening.
func (r *loopbackRedirect) Close(err error) {
	r.err = err
	close(r.ended)
	ctx, cancel := context.WithTimeout(context.Background(), 2*oauthPageTime)
	defer cancel()
	// Shutdown waits until the browser has the page.
	_ = r.page.Shutdown(ctx)
	_ = r.page.Close()
	r.serving.Wait()
}
