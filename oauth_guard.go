// oauth_guard.go - a round tripper that a public server's metadata cannot lead to a private address.
// Needs: Go 1.25.
// SPDX-License-Identifier: 0BSD

package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
)

// OAuthGuard is an http.RoundTripper for OAuth.Base, or below it. A server tells OAuth where to go: to its metadata,
// to an authorization server, to the endpoints of that. So a server on the Internet could have its client send
// requests to this machine, or to its neighbours (MCP 2026-07-28, security best practices, SSRF). OAuthGuard connects
// to private addresses only if the resource itself is at one. It looks at the addresses that are dialled, save those
// of proxies.
//
// Set the exported fields before the first request.
type OAuthGuard struct {
	Resource string          // OAuth.Resource
	Base     *http.Transport // a copy of it makes the requests; nil: http.DefaultTransport

	once    sync.Once
	guarded *http.Transport // set by once
	host    string          // of Resource, set by once
	proxies sync.Map        // their hosts
	public  atomic.Bool     // the resource was found at a public address
	private atomic.Bool     // the resource was found at a private address
}

// RoundTrip sends a request.
func (g *OAuthGuard) RoundTrip(r *http.Request) (*http.Response, error) {
	g.once.Do(g.setUp)
	host := strings.ToLower(r.URL.Hostname())
	address, err := netip.ParseAddr(host)
	isPrivate := err == nil && isPrivateAddress(address) || host == "localhost" || strings.HasSuffix(host, ".localhost")
	if isPrivate && !g.allows(host) { // a proxy would be asked for it, too
		closeBody(r)
		return nil, g.refusal(host)
	}
	return g.guarded.RoundTrip(r)
}

// CloseIdleConnections is for http.Client.
func (g *OAuthGuard) CloseIdleConnections() {
	g.once.Do(g.setUp)
	g.guarded.CloseIdleConnections()
}

func (g *OAuthGuard) setUp() {
	if u, err := url.Parse(g.Resource); err == nil {
		g.host = strings.ToLower(u.Hostname())
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
}

type dialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

// guard lets a connection pass before anything is sent over it.
func (g *OAuthGuard) guard(dial dialFunc) dialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		tcp, ok := conn.RemoteAddr().(*net.TCPAddr)
		isPrivate := ok && isPrivateAddress(tcp.AddrPort().Addr())
		host, _, _ := net.SplitHostPort(strings.ToLower(address))
		_, isProxy := g.proxies.Load(host)
		if host == g.host && !isProxy {
			g.public.CompareAndSwap(false, !isPrivate)
			g.private.CompareAndSwap(false, isPrivate)
		}
		if isPrivate && !isProxy && !g.allows(host) {
			conn.Close()
			return nil, g.refusal(host)
		}
		return conn, nil
	}
}

// allows reports whether a host may be at a private address. A name of the resource that is now at a public address,
// now at a private one, proves nothing.
func (g *OAuthGuard) allows(host string) bool {
	return host == g.host || g.private.Load() && !g.public.Load()
}

func (g *OAuthGuard) refusal(host string) error {
	at := shownURL(g.Resource)
	return fmt.Errorf("%.200q is at a private address, to which the public server %s may not lead", host, at)
}

// isPrivateAddress reports whether an address is not one of the Internet.
func isPrivateAddress(address netip.Addr) bool {
	address = address.Unmap()
	if netip.MustParsePrefix("64:ff9b::/96").Contains(address) { // NAT64, RFC 6052
		last := address.As16()
		address = netip.AddrFrom4([4]byte(last[12:]))
	}
	shared := netip.MustParsePrefix("100.64.0.0/10") // RFC 6598
	return !address.IsGlobalUnicast() || address.IsPrivate() || shared.Contains(address)
}
