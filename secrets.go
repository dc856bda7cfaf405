// secrets.go - what is secret, and texts without it.
// SPDX-License-Identifier: 0BSD

package main

import (
	"encoding/base64"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// minSecret is the length of the shortest secret, in bytes. Local servers are given "none" or
// "ollama" for a key. To mask such a text would take words apart.
const minSecret = 8

// serverSecret stands in the place of a secret of a server.
const serverSecret = "[secret]"

// The rules of what is secret:
//
//   - The password of a URL is always secret.
//   - The value of a header is secret unless publicName matches the header's name.
//   - The value of a variable or a flag is secret if secretName matches its name, and publicName
//     does not.
//   - In other values, a word that looks like a key is secret; keyWord and keyRun find it.
//
// testdata/secrets.txt has cases on both sides of each rule.
var (
	// publicName matches the names whose values are not secret. To mask these values would take
	// sentences apart: a host's name, or the word "debug", stands in many texts.
	publicName = regexp.MustCompile(`(dir|file|home|path)s?$|` +
		`(^|_)(date|debug|enabled|endpoint|env|expiry|folder|host|hostname|lang|length|level|` +
		`limit|locale|mode|model|name|origin|port|region|root|size|sock|timeout|type|tz|user|` +
		`username|version|zone)$|` +
		`^(accept(_.*)?|content_type|user_agent|logname|(old)?pwd|shell|tmpdir)$`)

	secretName = regexp.MustCompile(`(^|_)(` +
		`[a-z0-9]*(auth|key|passphrase|passw(or)?d|pwd|secret|token)|` +
		`authorization|bearer|cookie|cred|credential|dsn|header|jwt|pass|pat|session` +
		`)s?[0-9]*(_|$)`)

	// A key is a long run of letters and digits in a word. Words and dates have shorter runs.
	keyWord = regexp.MustCompile(`[A-Za-z0-9_.~+-]*[A-Za-z0-9]{20}[A-Za-z0-9_.~+-]*`)
	keyRun  = regexp.MustCompile(`[A-Za-z0-9]{20,}`)

	urlInText = regexp.MustCompile(`[A-Za-z][A-Za-z0-9+.-]*://[^\s"'<>]+`)
	// wildPassword matches a URL whose password has characters that should be escaped there.
	wildPassword = regexp.MustCompile(`://[^/?#:@]*:(.+)@`)

	// humps matches where a word begins inside a name such as apiKey.
	humps = regexp.MustCompile(`([a-z0-9])([A-Z])`)
)

// wordsOf returns a name in lower case, with one underscore between its words.
func wordsOf(name string) string {
	name = humps.ReplaceAllString(name, "${1}_$2")
	return strings.ToLower(strings.NewReplacer("-", "_", ".", "_").Replace(name))
}

// Secrets knows the texts that must not be shown, and takes them out of other texts. The zero value
// knows none.
//
// All methods may be called from any goroutine. A text that is masked while another goroutine adds
// a secret may be masked without it.
type Secrets struct {
	mu    sync.Mutex        // guards the following; never held while a text is masked
	marks map[string]string // the text in the place of a secret, by each form of the secret
	table *secretTable      // of all marks; nil until the next text is masked
}

// Add makes the mark stand for each of the texts from now on, also where a URL, JSON or base64
// holds the text. Texts of less than eight bytes are too short to be secret.
func (s *Secrets) Add(mark string, texts ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, text := range texts {
		if len(text) < minSecret {
			continue
		}
		if s.marks == nil {
			s.marks = make(map[string]string)
		}
		for _, form := range secretForms(text) {
			_, isKnown := s.marks[form]
			if !isKnown && len(form) >= minSecret {
				s.marks[form] = mark
				s.table = nil
			}
		}
	}
}

// currentTable returns the table of all secrets that are known now, nil if there are none. Many
// secrets are added before the first text is masked, so the table is made here and not in Add.
func (s *Secrets) currentTable() *secretTable {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.table == nil && s.marks != nil {
		s.table = newSecretTable(s.marks)
	}
	return s.table
}

// AddVariable adds the secrets in a variable's value: all its lines if the name says that the value
// is secret, and otherwise the passwords of URLs and the words that look like keys.
func (s *Secrets) AddVariable(name, value string) {
	s.addValue(name, value, secretName.MatchString(wordsOf(name)))
}

// AddHeader adds a header's value, unless the header's name shows that the value is not secret.
func (s *Secrets) AddHeader(name, value string) { s.addValue(name, value, true) }

// AddArguments adds the secrets in a command's arguments. It reads --name=value, --name value and
// NAME=value as a variable, and --header "NAME: VALUE" and -H "NAME: VALUE" as a header.
func (s *Secrets) AddArguments(arguments []string) {
	// flag is the argument before text, if the argument before is a flag without a value.
	flag := ""
	for _, text := range arguments {
		name, value, isPair := strings.Cut(text, "=")
		isFlag := strings.HasPrefix(text, "-")
		if isPair {
			s.addFlag(name, value)
		}
		if !isFlag {
			s.addFlag(flag, text)
		}
		flag = ""
		if isFlag && !isPair {
			flag = text
		}
	}
}

// addFlag adds the secrets in the value of a flag. The name is empty for an argument that follows
// no flag.
func (s *Secrets) addFlag(name, value string) {
	name = strings.TrimLeft(name, "-")
	if name == "header" || name == "H" {
		header, text, isHeader := strings.Cut(value, ":")
		if isHeader {
			s.AddHeader(header, strings.TrimSpace(text))
			return
		}
	}
	s.AddVariable(name, value)
}

// AddURL adds a URL's password, also in the form that goes into a header (RFC 7617), and the keys
// in the URL: a user's name, a part of the path and each value of the query can be a key.
func (s *Secrets) AddURL(u *url.URL) {
	user := u.User.Username()
	s.addKeys(user + " " + u.Path)
	password, hasPassword := u.User.Password()
	if hasPassword {
		basic := base64.StdEncoding.EncodeToString([]byte(user + ":" + password))
		s.Add(serverSecret, password, basic)
	}
	for name, values := range u.Query() {
		for _, value := range values {
			s.AddVariable(name, value)
		}
	}
}

// addValue adds the secrets in a value. Logs show a text line by line, so each line is added by
// itself. The secrets in a URL are added whatever the name is: HOOK_ENDPOINT may have a key. If the
// name is public, nothing else is added. Otherwise the keys of a line are added. If the value is
// secret, the whole line is added, too, and the line without its first word, which may be Bearer or
// Basic.
func (s *Secrets) addValue(name, value string, isSecret bool) {
	isPublic := publicName.MatchString(wordsOf(name))
	for line := range strings.Lines(value) {
		line = strings.TrimSpace(line)
		lastURL := s.addURLs(line)
		if isPublic {
			continue
		}
		s.addKeys(line)
		isURL := lastURL == line
		if isSecret && !isURL {
			_, token, _ := strings.Cut(line, " ")
			s.Add(serverSecret, line, token)
		}
	}
}

// addURLs adds the secrets in the URLs of a line, and returns the last URL, if there is one.
func (s *Secrets) addURLs(line string) (last string) {
	for _, address := range urlInText.FindAllString(line, -1) {
		last = address
		u, err := url.Parse(address)
		if err == nil {
			s.AddURL(u)
			continue
		}
		match := wildPassword.FindStringSubmatch(address)
		if match != nil {
			s.Add(serverSecret, match[1])
		}
	}
	return last
}

// addKeys adds the words of a text that look like keys.
func (s *Secrets) addKeys(text string) {
	for _, word := range keyWord.FindAllString(text, -1) {
		if slices.ContainsFunc(keyRun.FindAllString(word, -1), isMixed) {
			s.Add(serverSecret, word)
		}
	}
}

// isMixed reports whether a run has both letters and digits. A long number is no key, nor is a long
// name.
func isMixed(run string) bool {
	const digits = "0123456789"
	return strings.ContainsAny(run, digits) && strings.Trim(run, digits) != ""
}

// secretForms returns the forms in which a text may appear: as it is, without its escapes, and as
// base64 in both alphabets.
//
// Where the text is a part of a longer one that was encoded, it begins in one of three positions,
// as base64 makes four characters of three bytes. The first and last characters of the code then
// also depend on the neighbours, and are left out of the form.
func secretForms(text string) []string {
	forms := []string{text, withoutEscapes(text)}
	for _, encoding := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		forms = append(forms, encoding.EncodeToString([]byte(text)))
		for before := range 3 {
			encoded := encoding.EncodeToString([]byte("\x00\x00"[:before] + text))
			firstOwn, endOfOwn := (before*8+5)/6, (before+len(text))*8/6
			forms = append(forms, encoded[firstOwn:endOfOwn])
		}
	}
	return forms
}
