// transport_http_proxy.go - the refusal of a proxy on the way to a server.
// Needs: Go 1.25, json, rpc.
// SPDX-License-Identifier: 0BSD

package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// ProxyError is the refusal of a proxy to connect to a server over https (RFC 9110, 9.3.6). The
// server has not got the request.
type ProxyError struct {
	Proxy  string // its host and port
	Target string // the server's host and port
	Status int
	Reason string // the proxy's words beside the status
	Wants  string // the header Proxy-Authenticate; "" if there was none
}

func (e *ProxyError) Error() string {
	text := fmt.Sprintf("the proxy %s refuses the connection to %s: %d %s",
		e.Proxy, e.Target, e.Status, e.Reason)
	if e.Wants != "" {
		text += fmt.Sprintf(" (Proxy-Authenticate: %q)", e.Wants)
	}
	return text
}

// Lost reports that it is of no use to send the request again: see HTTPError.Lost.
func (e *ProxyError) Lost() bool { return false }

// maxProxyWords bounds what an error repeats of a proxy's words, in bytes.
const maxProxyWords = 200

// checkProxy is for http.Transport.OnProxyConnectResponse. Package net/http makes an error of the
// proxy's words alone, such as "Forbidden", which reads as if the server had said so.
func checkProxy(
	_ context.Context, proxy *url.URL, connect *http.Request, answer *http.Response,
) error {
	if answer.StatusCode == http.StatusOK {
		return nil
	}
	_, reason, _ := strings.Cut(answer.Status, " ")
	wants := strings.Join(answer.Header.Values("Proxy-Authenticate"), ", ")
	return &ProxyError{
		Proxy:  proxy.Host,
		Target: connect.URL.Opaque,
		Status: answer.StatusCode,
		Reason: reason[:min(len(reason), maxProxyWords)],
		Wants:  wants[:min(len(wants), maxProxyWords)],
	}
}
