// mask.go - texts without the secrets in them.
// Needs: Go 1.25.
// SPDX-License-Identifier: 0BSD

package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"io"
	"net/url"
	"slices"
	"strings"
)

// minMask is the length of the shortest secret that is taken out, in bytes. What local servers are given for a key ("none",
// "ollama") is no secret, and taking it out would take words apart.
const minMask = 8

// Mask takes secrets out of texts. The zero value knows none. Add is not to be called while others use it.
type Mask struct {
	secrets  []masked // longest first, so that none is taken out of a longer one and leaves the rest of that
	replacer *strings.Replacer
}

type masked struct{ secret, mark string }

// Add makes a mark stand for each of the secrets from now on, also as URLs have them, and JSON, and JSON in a text of JSON.
func (m *Mask) Add(mark string, secrets ...string) {
	for _, secret := range secrets {
		if len(secret) < minMask {
			continue
		}
		for _, form := range formsOf(secret) {
			if !slices.ContainsFunc(m.secrets, func(known masked) bool { return known.secret == form }) {
				m.secrets = append(m.secrets, masked{form, mark})
			}
		}
	}
	slices.SortStableFunc(m.secrets, func(a, b masked) int { return cmp.Compare(len(b.secret), len(a.secret)) })
	var pairs []string
	for _, s := range m.secrets {
		pairs = append(pairs, s.secret, s.mark)
	}
	m.replacer = strings.NewReplacer(pairs...)
}

func formsOf(secret string) []string {
	forms := []string{secret, url.QueryEscape(secret), url.PathEscape(secret)}
	for _, forHTML := range []bool{false, true} {
		once := jsonForm(secret, forHTML)
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

// Text returns a text with marks in the place of the secrets.
func (m *Mask) Text(text string) string {
	if m.replacer == nil {
		return text
	}
	return m.replacer.Replace(text)
}

// Writer returns a writer that passes on to w what is written to it, without the secrets, be they in several pieces. It keeps
// back what may be the beginning of a secret until there is more, or until Close, which does not close w.
func (m *Mask) Writer(w io.Writer) *MaskWriter { return &MaskWriter{mask: m, w: w} }

// MaskWriter is a writer without secrets; see Mask.Writer. It is for one goroutine.
type MaskWriter struct {
	mask *Mask
	w    io.Writer
	kept string
}

func (m *MaskWriter) Write(piece []byte) (int, error) {
	text := m.mask.Text(m.kept + string(piece))
	end := len(text) - m.mask.begun(text)
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

// begun is the length of the longest end of a text with which a secret begins.
func (m *Mask) begun(text string) (longest int) {
	for _, s := range m.secrets {
		for n := min(len(s.secret)-1, len(text)); n > longest; n-- {
			if strings.HasSuffix(text, s.secret[:n]) {
				longest = n
			}
		}
	}
	return longest
}
