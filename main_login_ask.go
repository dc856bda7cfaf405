// main_login_ask.go - the question to a person to log in, in a browser or by a pasted address.
// SPDX-License-Identifier: 0BSD

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"runtime"
	"sync/atomic"
)

var errGivenUp = errors.New("it was cancelled")

// loginAttempt is one login by the user, from the first request to the start of the server that
// follows. There is one at a time for a server, however many requests wait for it.
type loginAttempt struct {
	login  *login
	needed *LoginError             // of the request that needs it; nil: nobody has made one
	beside bool                    // a chat: nobody waits for it, so it shows itself how it ends
	ctx    context.Context         // of the login; ends before the server is started
	stop   context.CancelCauseFunc // ends ctx

	asked    chan struct{}                 // closed when there is a question
	question atomic.Pointer[loginQuestion] // the last one, or nil

	done chan struct{} // closed when err is set
	err  error
}

// loginQuestion is what the user is asked. A login has a second question if the authorization
// server has forgotten the client of an earlier run.
type loginQuestion struct {
	*OAuthQuestion
	text string
}

// begin begins an attempt beside a chat, unless one is under way. It does nothing after an attempt
// that has failed: otherwise each use of the server would open another page in the browser.
func (l *login) begin(needed *LoginError) { _, _ = l.beginAttempt(needed, true) }

// ask asks the user to log in, and returns when the server can be used. needed is the error of the
// request that waits for that, or nil, and what describes it, or is "". The end of ctx ends the
// login. After an attempt that has failed, its error comes at once.
func (l *login) ask(ctx context.Context, needed *LoginError, what string) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	a, err := l.beginAttempt(needed, false)
	if err != nil {
		return err
	}
	if what != "" {
		l.logins.output.say("(%s needs a login to %s)", what, OneName(l.name()))
	}
	defer context.AfterFunc(ctx, func() { a.stop(errGivenUp) })()
	a.readAddress()
	select {
	case <-a.done:
		return a.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// beginAttempt returns the attempt that is under way, or begins one.
func (l *login) beginAttempt(needed *LoginError, beside bool) (*loginAttempt, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.logins
	p.ending.Lock()
	defer p.ending.Unlock()
	switch {
	case l.failed != nil:
		return nil, l.failed
	case l.attempt != nil:
		return l.attempt, nil
	case p.life.Err() != nil:
		return nil, context.Cause(p.life)
	}
	a := &loginAttempt{
		login:  l,
		needed: needed,
		beside: beside,
		asked:  make(chan struct{}),
		done:   make(chan struct{}),
	}
	a.ctx, a.stop = context.WithCancelCause(p.life)
	l.attempt = a
	p.work.Go(a.run)
	return a, nil
}

// isAsking reports whether the user has yet to log in.
func (a *loginAttempt) isAsking() bool { return a.ctx.Err() == nil }

// run is the goroutine of an attempt. It ends soon after stop or logins.stopAsking.
func (a *loginAttempt) run() {
	defer close(a.done)
	l, p := a.login, a.login.logins
	err := a.logIn()
	a.stop(nil)
	if err == nil && p.rejoin != nil {
		p.output.screen.Show(Look{}, fmt.Sprintf("(logged in to %s)", OneName(l.name())))
		err = p.rejoin(p.life, l.server.Name)
	}
	a.err = l.endAttempt(err)
	// At the end of the program nobody reads a message.
	if a.err != nil && a.beside && p.life.Err() == nil {
		p.output.screen.Show(Look{}, a.err.Error())
	}
}

// logIn is the login. It runs on an OAuth of its own, with the configuration and the store of the
// other one, which asks nobody. That one finds the new token in the store when the server refuses
// its next request.
func (a *loginAttempt) logIn() error {
	asking := a.login.oauth.WithListen(a.listener().Listen)
	_, err := asking.Login(a.ctx, a.needed)
	// A login that was stopped is still ending.
	_ = asking.Close()
	return err
}

// listener returns what serves the last page of the login.
func (a *loginAttempt) listener() *OAuthListener {
	o, secrets := a.login.oauth, a.login.logins.output.screen.Secrets
	return &OAuthListener{
		Name:        "mcpagent",
		Resource:    o.Resource,
		RedirectURI: o.Client.RedirectURI,
		Show:        a.show,
		Mask:        func(text string) string { return Visible(secrets.Mask(text)) },
	}
}

// endAttempt ends the attempt that is under way, and returns why it has failed.
func (l *login) endAttempt(err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.attempt = nil
	l.failed = l.failure(err)
	return l.failed
}

// refuse notes that a request failed although the user had logged in for it. Nobody is asked again:
// a server that is never content would cause endless logins.
func (l *login) refuse(err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failed = l.failure(err)
	return l.failed
}

// failure returns why a login has failed, for the user. It returns nil if err is nil.
func (l *login) failure(err error) error {
	if err == nil {
		return nil
	}
	var authorization *AuthorizationError
	if errors.As(err, &authorization) {
		err = authorization.Err
	}
	var needed *LoginError
	if errors.As(err, &needed) {
		err = fmt.Errorf("the server refuses the new token: %w", cmp.Or(needed.Reason, err))
	}
	if l.logins.output.inChat {
		return fmt.Errorf("the login to %s has failed: %w; /reconnect %s begins another",
			OneName(l.name()), err, word(l.server.Name))
	}
	return fmt.Errorf("the login to %s has failed: %w", OneName(l.name()), err)
}

// show is OAuthListener.Show. A person can log in with a browser of this machine. With a browser
// elsewhere, the person pastes the last address of the browser here: readAddress reads it, or the
// prompt of a chat.
func (a *loginAttempt) show(_ context.Context, asked *OAuthQuestion) {
	l := a.login
	host := asked.Address
	if u, err := url.Parse(asked.Address); err == nil {
		host = u.Host
	}
	text := fmt.Sprintf("%s asks for a login at %s. Open this address", OneName(l.name()), host)
	if l.logins.isAttended() && browse(asked.Address) {
		text += ", if a browser does not by itself"
	}
	text += ":\n" + asked.Address
	if l.logins.terminal.Interactive() {
		text += "\nIf that ends at a page that cannot be shown, paste its address here: " +
			asked.RedirectURI + "?…\nCtrl-C cancels the login."
	}
	o := l.oauth
	if o.Client.ID+o.MetadataURL != "" {
		text += "\nIf the page knows no such client, look at clientId or clientMetadataUrl of " +
			"\"oauth\" in the configuration."
	}
	before := a.question.Swap(&loginQuestion{asked, text})
	l.logins.output.screen.Show(Look{}, text)
	if before == nil {
		close(a.asked)
	}
}

// readAddress reads the address that the browser ended at, which the user may paste. It returns
// when nobody is asked any more.
func (a *loginAttempt) readAddress() {
	select {
	case <-a.asked:
	case <-a.ctx.Done():
		return
	}
	p := a.login.logins
	if !p.terminal.Interactive() {
		return
	}
	for {
		line, err := p.terminal.Prompt(a.ctx, "address:")
		if err != nil {
			return
		}
		// The address may be that of another login, for which somebody else waits.
		switch p.pasted(line) {
		case a:
			return
		case nil:
			p.output.screen.Show(Look{}, "(this is not the address that the login redirects to)")
		}
	}
}

// browse opens an address, which is one of http or https, in the user's browser, and reports
// whether it could. Over ssh, and without a display, the browser would be another machine's.
func browse(address string) bool {
	// A Ctrl-C on the terminal is not for the browser.
	words := []string{"sh", "-c", `trap "" INT HUP; exec xdg-open "$0"`}
	switch runtime.GOOS {
	case "windows":
		words = []string{"rundll32", "url.dll,FileProtocolHandler"}
	case "darwin":
		words = []string{"open"}
	}
	noDisplay := os.Getenv("DISPLAY")+os.Getenv("WAYLAND_DISPLAY") == ""
	if noDisplay && (words[0] == "sh" || os.Getenv("SSH_CONNECTION") != "") {
		return false
	}
	command := exec.Command(words[0], append(words[1:], address)...)
	if command.Start() != nil {
		return false
	}
	// This goroutine ends with the browser, or with the program.
	go func() { _ = command.Wait() }()
	return true
}
