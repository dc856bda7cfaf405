// oauth_guard.go - requests that a public server cannot lead to a private address.
// Needs: Go 1.25.
// SPDX-License-Identifier: 0BSD

package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
)

// OAuthGuard is an http.RoundTripper for OAuth.Base, or below it. A server tells OAuth where to go:
// to its metadata, to an authorization server, to the endpoints of this server. So a server on the
// Internet could make its client send requests to this machine, or to its neighbours (MCP
// 2026-07-28, security best practices, SSRF). OAuthGuard connects to private addresses only if the
// resource itself is at one.
//
// It is not enough to look at the URLs: a name may lead to a private address, and to another one at
// each look-up. So OAuthGuard checks the address of each connection, before anything is sent over
// it. The address of a proxy is not checked, as the user has configured it.
//
// Set the exported fields before the first request. Any number of requests can be under way at
// once.
type OAuthGuard struct {
	Resource string          // OAuth.Resource
	Base     *http.Transport // its copy makes the requests; nil: http.DefaultTransport

	// TLS, if set, is for requests to the origin of Resource, in the place of Base's. With it a
	// client certificate goes to the resource alone, and to no server to which the resource leads.
	TLS *tls.Config

	once    sync.Once
	guarded *http.Transport // the copy of Base, set by once
	own     *http.Transport // for the origin of Resource, set by once
	origin  url.URL         // of Resource, set by once
	host    string          // of Resource, set by once
	proxies sync.Map        // the hosts of the proxies, as keys

	isPublic  atomic.Bool // the resource was found at a public address
	isPrivate atomic.Bool // the resource was found at a private address
}

// RoundTrip sends a request. It refuses a private address in the URL itself at once: a proxy would
// be asked for this address otherwise, and OAuthGuard would see only the address of the proxy.
func (g *OAuthGuard) RoundTrip(r *http.Request) (*http.Response, error) {
	g.once.Do(g.setUp)
	host := strings.ToLower(r.URL.Hostname())
	if isPrivateHost(host) && !g.allows(host) {
		closeBody(r)
		return nil, g.refusal(host)
	}
	if r.URL.Scheme == g.origin.Scheme && strings.EqualFold(r.URL.Host, g.origin.Host) {
		return g.own.RoundTrip(r)
	}
	return g.guarded.RoundTrip(r)
}

// CloseIdleConnections closes the idle connections of the copies of Base; http.Client calls it.
func (g *OAuthGuard) CloseIdleConnections() {
	g.once.Do(g.setUp)
	g.guarded.CloseIdleConnections()
	g.own.CloseIdleConnections()
}

// setUp copies Base, and makes the copy note each proxy and check each connection.
func (g *OAuthGuard) setUp() {
	u, err := url.Parse(g.Resource)
	if err == nil {
		g.host = strings.ToLower(u.Hostname())
		g.origin = url.URL{Scheme: u.Scheme, Host: u.Host}
	}
	base := g.Base
	if base == nil {
		base, _ = http.DefaultTransport.(*http.Transport)
	}
	g.guarded = base.Clone()
	if base.Proxy != nil {
		g.guarded.Proxy = func(r *http.Request) (*url.URL, error) {
			proxy, err := base.Proxy(r)
			if proxy != nil {
				g.proxies.Store(strings.ToLower(proxy.Hostname()), true)
			}
			return proxy, err
		}
	}
	dial := base.DialContext
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	g.guarded.DialContext = g.guard(dial)
	if base.DialTLSContext != nil {
		g.guarded.DialTLSContext = g.guard(base.DialTLSContext)
	}
	g.own = g.guarded
	if g.TLS != nil {
		g.own = g.guarded.Clone()
		g.own.TLSClientConfig = g.TLS
	}
}

type dialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

// guard returns a dialFunc that checks each connection of dial, and closes a connection that it
// refuses.
func (g *OAuthGuard) guard(dial dialFunc) dialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		host, _, _ := net.SplitHostPort(strings.ToLower(address))
		_, isProxy := g.proxies.Load(host)
		if isProxy {
			return conn, nil
		}
		tcp, isTCP := conn.RemoteAddr().(*net.TCPAddr)
		isPrivate := isTCP && isPrivateAddress(tcp.AddrPort().Addr())
		if host == g.host && isPrivate {
			g.isPrivate.Store(true)
		}
		if host == g.host && !isPrivate {
			g.isPublic.Store(true)
		}
		if isPrivate && !g.allows(host) {
			conn.Close()
			return nil, g.refusal(host)
		}
		return conn, nil
	}
}

// allows reports whether a host may be at a private address: the resource itself, and all others if
// the resource is at a private address. A name of the resource that is now at a public address, now
// at a private one, proves nothing.
func (g *OAuthGuard) allows(host string) bool {
	return host == g.host || g.isPrivate.Load() && !g.isPublic.Load()
}

func (g *OAuthGuard) refusal(host string) error {
	return fmt.Errorf("%.200q is at a private address, to which the public server %s may not lead",
		host, shownURL(g.Resource))
}

// isPrivateHost reports whether the name of a host alone says that its address is private.
func isPrivateHost(host string) bool {
	address, err := netip.ParseAddr(host)
	if err == nil {
		return isPrivateAddress(address)
	}
	return host == "localhost" || strings.HasSuffix(host, ".localhost")
}

// isPrivateAddress reports whether an address cannot be reached from the whole Internet.
func isPrivateAddress(address netip.Addr) bool {
	address = address.Unmap()
	// NAT64 has an IPv4 address in the last four bytes (RFC 6052).
	if netip.MustParsePrefix("64:ff9b::/96").Contains(address) {
		last := address.As16()
		address = netip.AddrFrom4([4]byte(last[12:]))
	}
	return !address.IsGlobalUnicast() || address.IsPrivate() || isSpecialAddress(address)
}

// isSpecialAddress reports whether an address is of a range that net/netip takes for public, and
// that is for other purposes (RFC 6890, and the IANA special-purpose address registries).
//
// Two ranges have IPv4 addresses in them, and are refused as a whole. In 6to4 a public IPv4 address
// would do no harm, but no server has had a reason to be there since RFC 7526 gave 6to4 up. Where
// an operator puts the IPv4 address into a local NAT64 address is not known here.
func isSpecialAddress(address netip.Addr) bool {
	for _, special := range []string{
		"0.0.0.0/8",      // this network (RFC 791)
		"100.64.0.0/10",  // of a provider, shared among its customers (RFC 6598)
		"192.0.0.0/24",   // protocol assignments (RFC 6890)
		"198.18.0.0/15",  // benchmarks within a network (RFC 2544)
		"240.0.0.0/4",    // reserved (RFC 1112)
		"64:ff9b:1::/48", // local NAT64 (RFC 8215)
		"2002::/16",      // 6to4 (RFC 3056)
		"fec0::/10",      // site-local (RFC 3879)
	} {
		if netip.MustParsePrefix(special).Contains(address) {
			return true
		}
	}
	return false
}
