// main_login_ask.go - the question to a person to log in, in a browser or by a pasted address.
// SPDX-License-Identifier: 0BSD

package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"runtime"
	"time"
)

// listen is OAuth.Listen. After a failed login it refuses another one until /reconnect: otherwise
// each use of the server would open another page in the browser.
func (l *login) listen(ctx context.Context, redirectURI string) (Redirect, error) {
	failed := l.failed.Load()
	if failed != nil {
		return nil, *failed
	}
	secrets := l.logins.output.screen.Secrets
	r := &loginRedirect{login: l, ended: make(chan struct{})}
	listener := &OAuthListener{
		Name:        "mcpagent",
		Resource:    l.oauth.Resource,
		RedirectURI: l.oauth.Client.RedirectURI,
		Show:        r.show,
		Mask:        func(text string) string { return Visible(secrets.Mask(text)) },
	}
	var err error
	r.Redirect, err = listener.Listen(ctx, redirectURI)
	if err != nil {
		return nil, err
	}
	return r, nil
}

// loginRedirect is the Redirect of an OAuthListener, for one login. It notes for the others what
// the person is asked, for how long, and how that has ended.
type loginRedirect struct {
	Redirect
	login *login
	ended chan struct{} // closed by Close
}

// question is the question to a person. A login has a second question if the authorization server
// has forgotten the client of an earlier run.
type question struct {
	*OAuthQuestion
	text  string // for the person
	since time.Time
	ended chan struct{} // closed when the login has ended
}

// show is OAuthListener.Show. A person can log in with a browser of this machine. With a browser
// elsewhere, the person pastes the last address of the browser here; in a chat, the chat reads it.
func (r *loginRedirect) show(ctx context.Context, asked *OAuthQuestion) {
	l := r.login
	isRead := l.logins.terminal.Interactive()
	host := asked.Address
	if u, err := url.Parse(asked.Address); err == nil {
		host = u.Host
	}
	text := fmt.Sprintf("%s asks for a login at %s. Open this address", l.name(), host)
	if l.logins.isAttended() && browse(asked.Address) {
		text += ", if a browser does not by itself"
	}
	text += ":\n" + asked.Address
	if isRead {
		text += "\nIf that ends at a page that cannot be shown, paste its address here: " +
			asked.RedirectURI + "?…\nCtrl-C gives the login up."
	}
	// A second question of the same login takes the place of the first one, whose time counts, too.
	q := &question{asked, text, time.Now(), r.ended}
	before := l.asking.Swap(q)
	if before != nil {
		l.asked.Add(int64(q.since.Sub(before.since)))
	}
	l.logins.output.screen.Show(Look{}, text)
	// A chat has a prompt of its own, and hands over what is pasted there.
	if !isRead || l.logins.output.inChat {
		return
	}
	for {
		line, err := l.logins.terminal.Prompt(ctx, "address:")
		if err != nil || l.logins.pasted(line) {
			return
		}
		l.logins.output.screen.Show(Look{}, "(that is not where this login ends)")
	}
}

// Close tells the browser, and in a chat the person, how the login has ended.
func (r *loginRedirect) Close(err error) {
	l := r.login
	refusal := new(OAuthError)
	// If the server has forgotten the client, another client is registered, and the login goes on.
	isForgotten := errors.As(err, &refusal) && refusal.Code == "invalid_client"
	if err != nil && !isForgotten {
		l.failed.Store(&err)
	}
	q := l.asking.Swap(nil)
	if q != nil {
		l.asked.Add(int64(time.Since(q.since)))
	}
	// Whoever waits for the login goes on while the browser gets its page.
	close(r.ended)
	r.Redirect.Close(err)
	switch {
	case !l.logins.output.inChat || errors.Is(err, context.Canceled):
		// A login is cancelled at the end of the chat, where nobody reads a message.
	case err == nil:
		l.logins.output.screen.Show(Look{}, fmt.Sprintf("(logged in to %s)", l.name()))
	default:
		l.logins.output.screen.Show(Look{}, fmt.Sprintf(
			"the login to %s has failed: %v; /reconnect begins another", l.name(), err))
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
