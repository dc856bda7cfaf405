// main_login_kept.go - the commands whoami and logout: the logins that are kept.
// SPDX-License-Identifier: 0BSD

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"strings"
	"time"
)

// keptLogin describes a saved login without its secrets, as whoami -json prints it.
type keptLogin struct {
	Server string `json:"server"`
	Issuer string `json:"issuer"`
	// Client is the ID of the client at the issuer, and Grant its grant. Two logins to a server
	// differ in one of them. Client is "" if it is not known, and Grant if a person logs in.
	Client  string     `json:"client"`
	Grant   string     `json:"grant"`
	Scopes  []string   `json:"scopes"`  // never null
	Expiry  time.Time  `json:"expiry"`  // of the token; zero if it is not known
	Refresh bool       `json:"refresh"` // the token is refreshed when it has expired
	State   loginState `json:"state"`
}

// loginState says of what use a login is now, as far as its file tells.
type loginState string

const (
	loginValid   loginState = "valid"
	loginExpired loginState = "expired" // the next use of the server gets another token
	loginDead    loginState = "dead"    // a person has to log in again
)

// newKeptLogin describes a login.
func newKeptLogin(saved savedLogin) keptLogin {
	token := saved.state.Token
	k := keptLogin{
		Server:  saved.file.Resource,
		Issuer:  token.Issuer,
		Client:  saved.client(),
		Grant:   saved.file.Grant,
		Scopes:  append([]string{}, token.GrantedScopes...),
		Expiry:  token.Expiry,
		Refresh: token.Refresh != "",
		State:   loginValid,
	}
	isExpired := !token.Expiry.IsZero() && !time.Now().Before(token.Expiry)
	switch {
	case isExpired && (k.Refresh || k.Grant != ""):
		k.State = loginExpired
	case isExpired:
		k.State = loginDead
	}
	return k
}

// String returns lines for a person.
func (k *keptLogin) String() string {
	until := "not known"
	if !k.Expiry.IsZero() {
		until = k.Expiry.Local().Format(time.DateTime)
	}
	switch {
	case k.State == loginDead:
		until += ", expired: run mcpagent login " + word(k.Server)
	case k.State == loginExpired:
		until += ", expired: refreshed at the next use"
	case k.Refresh:
		until += ", then refreshed"
	}
	text := k.Server + "\n"
	for _, line := range []struct{ name, value string }{
		{"issuer", k.Issuer},
		{"client", k.Client},
		{"grant", k.Grant},
		{"scopes", strings.Join(k.Scopes, " ")},
		{"until", until},
	} {
		if line.value != "" {
			text += fmt.Sprintf("    %-6s  %s\n", line.name, line.value)
		}
	}
	return text
}

// whoAmI is the command whoami. It prints the saved logins without their secrets, and then names
// the files that are no logins.
func (p *logins) whoAmI(_ context.Context, args []string) error {
	if len(args) > 0 {
		return usageError("whoami takes no arguments: it shows all logins")
	}
	saved, failed := savedLogins()
	// The list is printed as [] where there are no logins, and not as null.
	list := []keptLogin{}
	text := ""
	for _, s := range saved {
		p.addURLSecrets(s.file.Resource)
		k := newKeptLogin(s)
		list = append(list, k)
		text += k.String()
	}
	if len(list) == 0 && failed == nil {
		p.output.note("there are no logins")
	}
	if p.output.settings.json {
		return errors.Join(p.output.printJSON(list), failed)
	}
	return errors.Join(p.output.screen.Print(Look{}, text), failed)
}

// addURLSecrets adds the secrets in the URL of a server, which may be in no configuration now.
func (p *logins) addURLSecrets(address string) {
	u, err := url.Parse(address)
	if err == nil {
		p.output.screen.Secrets.AddURL(u)
	}
}

// logoutTime bounds how long logout waits for other programs and for authorization servers.
const logoutTime = 10 * time.Second

// endedLogin describes a login that logout has removed.
type endedLogin struct {
	Issuer  string `json:"issuer"`
	Client  string `json:"client"`
	Grant   string `json:"grant"`
	Revoked bool   `json:"revoked"` // nobody can get another token now
	Reason  string `json:"reason"`  // why not all tokens were revoked; "" if all were
}

// endedLogins is what logout -json prints.
type endedLogins struct {
	Server string       `json:"server"`
	Logins []endedLogin `json:"logins"` // never null
}

// logOut is the command logout. A name stands for the login of that server's configuration. A URL
// stands for all logins to it: by a person and by each client.
func (p *logins) logOut(ctx context.Context, args []string) error {
	files, address, err := p.loginFiles(ctx, args)
	if err != nil {
		return err
	}
	if err := p.openTrace(ctx); err != nil {
		return err
	}
	defer p.trace.close()
	late := fmt.Errorf("there was no answer within %v", logoutTime)
	ctx, cancel := context.WithTimeoutCause(ctx, logoutTime, late)
	defer cancel()
	result := endedLogins{address, []endedLogin{}}
	for _, file := range files {
		ended, err := p.endLogin(ctx, file)
		if err != nil {
			return err
		}
		if ended != nil {
			result.Logins = append(result.Logins, *ended)
		}
	}
	switch {
	case len(result.Logins) > 1:
		p.output.note("%d logins were removed", len(result.Logins))
	case len(result.Logins) == 0 && isServerURL(args[0]):
		p.output.note("no login to %s is saved", args[0])
	case len(result.Logins) == 0:
		p.output.note("no login to %s is saved; mcpagent whoami lists the saved logins",
			args[0])
	}
	if p.output.settings.json {
		return p.output.printJSON(result)
	}
	return nil
}

// loginFiles returns the files of the logins that the argument of logout stands for, and the URL of
// their server. A file need not exist. One that cannot be read as a login is found by its name.
func (p *logins) loginFiles(ctx context.Context, args []string) ([]*OAuthFile, string, error) {
	if len(args) != 1 || !isServerURL(args[0]) {
		s, err := p.remote(ctx, "logout", args)
		if err != nil {
			return nil, "", err
		}
		file, err := newLoginFile(s.URL, p.config.oauth[s.Name])
		return []*OAuthFile{file}, s.URL, err
	}
	address := args[0]
	if _, err := ParseServerURL(address, p.output.screen.Secrets); err != nil {
		return nil, "", usageError("logout: %w", err)
	}
	file, err := newLoginFile(address, nil)
	if err != nil {
		return nil, "", err
	}
	files := []*OAuthFile{file}
	// A file that is no login is for whoami to name.
	saved, _ := savedLogins()
	for _, s := range saved {
		if s.file.Path != file.Path && isSameURL(s.file.Resource, address) {
			files = append(files, s.file)
		}
	}
	return files, address, nil
}

// endLogin revokes the tokens of a login, and removes its file, whether they were revoked or not.
// It returns nil if there was no login.
func (p *logins) endLogin(ctx context.Context, file *OAuthFile) (*endedLogin, error) {
	// Another process may be about to save a refreshed token. It would bring the login back.
	unlock, err := file.Lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	state, loadErr := file.Load()
	var ended *endedLogin
	if loadErr == nil && state.Token != nil {
		ended = p.revoke(ctx, savedLogin{file, state})
	}
	err = os.Remove(file.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case loadErr != nil:
		p.output.note("removed %s, which was not a login", file.Path)
	case ended != nil:
		p.output.note("logged out of %s%s", file.Resource, ended)
	}
	return ended, nil
}

// String tells a login from the others to the same server, and what became of its tokens.
func (e *endedLogin) String() string {
	text := ""
	if e.Client != "" {
		text += ", client " + e.Client
	}
	if e.Grant != "" {
		text += ", grant " + e.Grant
	}
	switch {
	case !e.Revoked:
		return text + "; the token was not revoked: " + e.Reason
	case e.Reason != "":
		return text + "; the refresh token was revoked, and the access token lives until it expires"
	}
	return text + "; the token was revoked"
}

// revoke asks the authorization server to revoke the tokens of a login, whose file is locked.
func (p *logins) revoke(ctx context.Context, saved savedLogin) *endedLogin {
	ended := &endedLogin{
		Issuer: saved.state.Token.Issuer,
		Client: saved.client(),
		Grant:  saved.file.Grant,
	}
	config := p.configOf(ctx, saved)
	kept := newKeptLogin(saved)
	switch {
	case kept.State != loginValid && !kept.Refresh:
		ended.Reason = "it had expired"
		return ended
	case config.oauth == nil && ended.Grant != "":
		ended.Reason = "the configuration here does not have its client"
		return ended
	}
	authorised, err := p.oauthOf(saved, config)
	if err == nil {
		defer authorised.CloseIdleConnections()
		ended.Revoked, err = authorised.Revoke(ctx)
	}
	switch {
	case err != nil:
		ended.Reason = err.Error()
	case !ended.Revoked:
		ended.Reason = "the server revokes no tokens"
	}
	return ended
}

// configOf returns what the configuration says about a login.
func (p *logins) configOf(ctx context.Context, saved savedLogin) loginConfig {
	all := p.config.loginsAt(ctx, saved.file.Resource)
	for _, s := range p.config.servers {
		if s.URL != "" && isSameURL(s.URL, saved.file.Resource) {
			all = append(all, loginConfig{p.config.oauth[s.Name], p.config.tls[s.Name]})
		}
	}
	for _, c := range all {
		file, err := newLoginFile(saved.file.Resource, c.oauth)
		if err == nil && file.Path == saved.file.Path {
			return c
		}
	}
	return loginConfig{}
}

// oauthOf returns the authorization of a login that is to end. Its requests go to the authorization
// server alone, to which somebody has logged in. So this server, and not the resource, says whether
// they may go to private addresses. It gets the certificate for the resource if both are one.
func (p *logins) oauthOf(saved savedLogin, config loginConfig) (*OAuth, error) {
	issuer := saved.state.Token.Issuer
	guard := &OAuthGuard{Resource: issuer, Base: NewHTTPTransport()}
	if isSameOrigin(issuer, saved.file.Resource) {
		own, err := loadTLS(config.tls, p.output.screen.Secrets)
		if err != nil {
			return nil, err
		}
		guard.TLS = own
	}
	server := &Server{Name: saved.file.Resource, URL: saved.file.Resource}
	o := &OAuth{
		Resource: saved.file.Resource,
		Base:     p.traced(server, guard),
		// The file is locked by now.
		Store:  &OAuthFile{Path: saved.file.Path, Resource: saved.file.Resource},
		Secret: func(text string) { p.output.screen.Secrets.Add("[secret]", text) },
	}
	if config.oauth == nil {
		return o, nil
	}
	o.Client, o.MetadataURL = config.oauth.Client, config.oauth.MetadataURL
	l := &login{logins: p, server: server, oauth: o}
	return o, l.setGrant(config.oauth)
}

// isSameOrigin reports whether two URLs lead to one server.
func isSameOrigin(a, b string) bool {
	first, firstErr := url.Parse(CanonicalResource(a))
	second, secondErr := url.Parse(CanonicalResource(b))
	return firstErr == nil && secondErr == nil &&
		first.Scheme == second.Scheme && first.Host == second.Host
}
