// secrets.go - what is secret, and texts without it.
// SPDX-License-Identifier: 0BSD

package main

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// minSecret is the length of the shortest secret, in bytes. Local servers are given "none" or "ollama" for a key: to
// mask such a text would take words apart.
const minSecret = 8

// serverSecret stands in the place of a secret of a server.
const serverSecret = "[secret]"

// The rules of what is secret in a variable or a header.
var (
	// publicName matches the names whose values are not secret: to mask them would take sentences apart.
	publicName = regexp.MustCompile(`(?i)(dir|file|home|path)s?$` +
		`|(^|_)(debug|endpoint|env|host|lang|level|mode|model|port|region|root|tz|version)$` +
		`|^(accept(-.*)?|content-type|user-agent|logname|pwd|shell|tmpdir|user)$`)

	// Under a name that secretName does not match, a word without digits is not secret: TEAM=engineering.
	secretName = regexp.MustCompile(`(?i)auth|cookie|cred|key|pass|pwd|secret|session|token`)
	plainWord  = regexp.MustCompile(`^[A-Za-z]+$`)

	// keyInPath matches what may be a key in the path of a URL, as webhooks have it.
	keyInPath = regexp.MustCompile(`[A-Za-z0-9_-]{16}`)
)

// Secrets knows the texts that must not be shown, and takes them out of other texts. The zero value knows none.
// While a method whose name begins with Add runs, no other method may.
type Secrets struct {
	known    []secret // longest first, so that none is taken out of a longer one and leaves the rest of that
	replacer *strings.Replacer
}

type secret struct{ text, mark string }

// Add makes the mark stand for each of the texts from now on, also as they are in URLs, in JSON, and in JSON within
// a string of JSON. Texts of less than eight bytes are too short to be secret.
func (s *Secrets) Add(mark string, texts ...string) {
	for _, text := range texts {
		if len(text) < minSecret {
			continue
		}
		for _, form := range secretForms(text) {
			if !slices.ContainsFunc(s.known, func(known secret) bool { return known.text == form }) {
				s.known = append(s.known, secret{form, mark})
			}
		}
	}
	slices.SortStableFunc(s.known, func(a, b secret) int { return cmp.Compare(len(b.text), len(a.text)) })
	var pairs []string
	for _, known := range s.known {
		pairs = append(pairs, known.text, known.mark)
	}
	s.replacer = strings.NewReplacer(pairs...)
}

// AddVariable adds the lines of a variable's value, unless its name shows that it is not secret. Of a URL it adds what
// AddURL does, and the URL itself only if its path may hold a key.
func (s *Secrets) AddVariable(name, value string) {
	if publicName.MatchString(name) || plainWord.MatchString(value) && !secretName.MatchString(name) {
		return
	}
	for line := range strings.Lines(value) { // logs show a text line by line
		line = strings.TrimSpace(line)
		if u, err := url.Parse(line); err == nil && u.Host != "" {
			s.AddURL(u)
			if !keyInPath.MatchString(u.Path) {
				continue
			}
		}
		s.Add(serverSecret, line)
	}
}

// AddHeader adds a header's value, and what follows its first word: the token of Authorization: Bearer TOKEN.
func (s *Secrets) AddHeader(name, value string) {
	s.AddVariable(name, value)
	if _, token, ok := strings.Cut(value, " "); ok {
		s.AddVariable(name, token)
	}
}

// AddURL adds a URL's password, also in the form that goes into a header, and the parameters that look like keys:
// those with a digit, which words have not.
func (s *Secrets) AddURL(u *url.URL) {
	if password, ok := u.User.Password(); ok {
		s.AddVariable("password", password)
		s.Add(serverSecret, base64.StdEncoding.EncodeToString([]byte(u.User.Username()+":"+password)))
	}
	for name, values := range u.Query() {
		for _, value := range values {
			if strings.ContainsAny(value, "0123456789") {
				s.AddVariable(name, value)
			}
		}
	}
}

// secretForms returns a text as it is, and as URLs and JSON hold it.
func secretForms(text string) []string {
	forms := []string{text, url.QueryEscape(text), url.PathEscape(text)}
	for _, forHTML := range []bool{false, true} {
		once := jsonForm(text, forHTML)
		forms = append(forms, once, jsonForm(once, forHTML))
	}
	return forms
}

func jsonForm(text string, forHTML bool) string {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(forHTML)
	_ = e.Encode(text) // a string always encodes
	return strings.TrimSuffix(strings.TrimPrefix(out.String(), `"`), "\"\n")
}

// Mask returns a text with marks in the place of the secrets.
func (s *Secrets) Mask(text string) string {
	if s.replacer == nil {
		return text
	}
	return s.replacer.Replace(text)
}

// Begun returns the length of the longest end of a text that is the beginning of a secret. What shows a text piece by
// piece keeps back so many bytes.
func (s *Secrets) Begun(text string) (longest int) {
	for _, known := range s.known {
		for n := min(len(known.text)-1, len(text)); n > longest; n-- {
			if strings.HasSuffix(text, known.text[:n]) {
				longest = n
			}
		}
	}
	return longest
}

// Writer returns a writer that passes on to w what is written to it, without the secrets, also those that come in
// several pieces. It keeps back what may be the beginning of a secret until more is written, or until Close, which
// does not close w.
func (s *Secrets) Writer(w io.Writer) *MaskWriter { return &MaskWriter{secrets: s, w: w} }

// MaskWriter is a writer without secrets; see Secrets.Writer. It is for one goroutine.
type MaskWriter struct {
	secrets *Secrets
	w       io.Writer
	kept    string
}

func (m *MaskWriter) Write(piece []byte) (int, error) {
	text := m.secrets.Mask(m.kept + string(piece))
	end := len(text) - m.secrets.Begun(text)
	m.kept = text[end:]
	_, err := io.WriteString(m.w, text[:end])
	return len(piece), err
}

// Close writes what was kept back.
func (m *MaskWriter) Close() error {
	_, err := io.WriteString(m.w, m.kept)
	m.kept = ""
	return err
}
