// main_tls.go - the certificates of the connections to a server.
// SPDX-License-Identifier: 0BSD

package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
)

// loadTLS reads the files of a server's "tls". It returns nil if there are none. An error names
// the member and the file, and shows nothing of what is in the file.
func loadTLS(files *TLSFiles, secrets *Secrets) (*tls.Config, error) {
	if files == nil {
		return nil, nil
	}
	config := new(tls.Config)
	if files.CertFile != "" {
		pair, err := loadClientCertificate(files, secrets)
		if err != nil {
			return nil, err
		}
		// Config.Certificates would be held back from a server that asks for other authorities, and
		// the server would say that there is none. This one is sent in any case, so that the server
		// says what is wrong with it.
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return pair, nil
		}
	}
	if files.CAFile != "" {
		text, err := readPEM("caFile", files.CAFile, "CERTIFICATE")
		if err != nil {
			return nil, err
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("tls caFile: no certificate in %s can be read; "+
				"write the file anew", files.CAFile)
		}
	}
	return config, nil
}

func loadClientCertificate(files *TLSFiles, secrets *Secrets) (*tls.Certificate, error) {
	certificate, err := readPEM("certFile", files.CertFile, "CERTIFICATE")
	if err != nil {
		return nil, err
	}
	key, err := readPEM("keyFile", files.KeyFile, "PRIVATE KEY")
	if err != nil {
		return nil, err
	}
	secrets.AddVariable("privateKey", string(key))
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, fmt.Errorf("tls keyFile: %s cannot be used with the certificate in certFile "+
			"%s: %w; name the key for which that certificate was made",
			files.KeyFile, files.CertFile, err)
	}
	return &pair, nil
}

// readPEM reads the file of a member of "tls", in which there has to be a block whose type ends
// with kind, such as EC PRIVATE KEY.
func readPEM(member, path, kind string) ([]byte, error) {
	text, err := ReadRegular(path, maxKeyFile)
	if err != nil {
		return nil, fmt.Errorf("tls %s: %w; name a file in PEM", member, err)
	}
	rest := text
	for {
		var block *pem.Block
		block, rest = pem.Decode(rest)
		switch {
		case block == nil:
			return nil, fmt.Errorf("tls %s: %s has no %s in PEM; check that it is the right file, "+
				"and convert another format by openssl", member, path, kind)
		case !strings.HasSuffix(block.Type, kind):
		case block.Type == "ENCRYPTED PRIVATE KEY" || block.Headers["DEK-Info"] != "":
			return nil, fmt.Errorf("tls %s: the key in %s has a password, which cannot be given "+
				"here; openssl pkey -in FILE -out NEW writes it without one", member, path)
		default:
			return text, nil
		}
	}
}

// clientCertificateAdvice returns what the user can do about a server that wants a certificate of
// the client, or another one than it got. It returns "" for any other error. Most servers refuse
// the handshake; nginx answers 400 with a page that says so.
func clientCertificateAdvice(err error) string {
	var server *HTTPError
	if !errors.As(err, &server) {
		return ""
	}
	var alert *net.OpError
	isRefused := errors.As(err, &alert) && alert.Op == "remote error" &&
		strings.Contains(alert.Err.Error(), "certificate")
	isNginx := server.Status == http.StatusBadRequest &&
		strings.Contains(server.Error(), "SSL certificate")
	if !isRefused && !isNginx {
		return ""
	}
	return `the server wants a certificate of the client that it trusts: "certFile" and ` +
		`"keyFile" of "tls" in the configuration of the server name it`
}

// clientWith returns a client for a server without a login, or nil if it needs none of its own. It
// follows redirects within the server's origin alone; see HTTP.Client.
func clientWith(own *tls.Config) *http.Client {
	if own == nil {
		return nil
	}
	transport := NewHTTPTransport()
	transport.TLSClientConfig = own
	return &http.Client{Transport: transport}
}
