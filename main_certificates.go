// main_certificates.go - advice about the certificate of a server, of the model or of a login.
// SPDX-License-Identifier: 0BSD

package main

import (
	"crypto/x509"
	"errors"
	"runtime"
)

// certificateAdvice returns what the user can do about a certificate that is not accepted. It
// returns "" for any other error. Many companies have a proxy that takes connections apart, and
// signs certificates of its own: they are of an unknown authority for Go, which reads
// SSL_CERT_FILE on Unix alone, and elsewhere asks the system.
func certificateAdvice(err error) string {
	var invalid x509.CertificateInvalidError
	isInvalid := errors.As(err, &invalid)
	switch {
	case isInvalid && invalid.Reason == x509.Expired:
		return "check the clock of this machine; if it is right, the server needs a certificate " +
			"that is valid now"
	case errors.As(err, new(x509.HostnameError)):
		return "check the name of the host in the URL: the certificate is for another host"
	case !errors.As(err, new(x509.UnknownAuthorityError)):
		return ""
	case runtime.GOOS == "windows" || runtime.GOOS == "darwin":
		return "if a company proxy or your own authority signed it, add that authority's " +
			"certificate to those that the system trusts"
	}
	return "if a company proxy or your own authority signed it, set SSL_CERT_FILE to a PEM file " +
		"with that authority's certificate"
}
