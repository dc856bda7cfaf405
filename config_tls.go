// config_tls.go - the certificates for one server, in a .mcp.json.
// SPDX-License-Identifier: 0BSD

package main

import (
	"encoding/json"
	"strings"
)

// TLSFiles names the files, in PEM, of the connections to one server. They are for requests to the
// server's own origin alone: an authorization server elsewhere gets no certificate of them.
type TLSFiles struct {
	CertFile, KeyFile string // the client's certificate, with its chain, and its private key
	CAFile            string // the authorities of the server, in the place of the system's

	Text string // the whole of it, on one line
}

// readTLS reads an object. The hosts have no common form of it: the names are those that Go
// programs and Kubernetes use.
func (r *serverReader) readTLS(field string, value json.RawMessage) {
	files := &TLSFiles{Text: strings.Join(strings.Fields(string(value)), " ")}
	r.tls = files
	fields := map[string]any{
		"certfile": &files.CertFile,
		"keyfile":  &files.KeyFile,
		"cafile":   &files.CAFile,
	}
	isObject := eachMember(value, func(name string, value json.RawMessage) {
		r.store(field+" "+name, value, fields[plainName(name)])
	})
	if !isObject {
		r.problem("%s is not an object with certFile, keyFile or caFile", field)
	}
	if (files.CertFile == "") != (files.KeyFile == "") {
		r.problem("%s certFile and keyFile go together: the certificate of the client and its "+
			"private key, each in PEM; both may be in one file", field)
	}
}

// checkTLS leaves out files that are not used, and warns of it.
func (r *serverReader) checkTLS() {
	isHTTPS := strings.HasPrefix(strings.ToLower(r.server.URL), "https:")
	if r.tls != nil && !isHTTPS {
		r.warn("tls has no effect: it goes with a url of https")
		r.tls = nil
	}
}
