// secrets.go - what is secret, and texts without it.
// SPDX-License-Identifier: 0BSD

package main

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
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
//   - The password of a URL is always secret. A short one is masked in its place there alone.
//   - The value of a header is secret unless publicName matches the header's name.
//   - The value of a variable is secret if secretName matches its name, and also if neither
//     settingName matches its name nor publicValue the value, which is no URL. If publicName
//     matches the name, the value is not secret.
//   - The value of a flag, or of a query, is secret if secretName matches its name, and publicName
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

	// settingName matches other names of variables that are settings, in which a key is rare.
	settingName = regexp.MustCompile(`(^|_)(account|address|app|backend|branch|browser|bucket|` +
		`channel|charset|cluster|collection|country|currency|database|domain|driver|email|` +
		`encoding|engine|environment|format|image|index|interval|label|language|location|` +
		`namespace|network|org|organization|owner|platform|profile|project|protocol|provider|` +
		`registry|repo|repository|role|schema|scope|server|service|stage|table|team|tenant|theme|` +
		`timezone|toolset|topic|transport|workspace|` +
		`(account|app|channel|client|org|page|project|team|tenant|user|workspace)_?id)s?$`)

	secretName = regexp.MustCompile(`(^|_)(` +
		`[a-z0-9]*(auth|cred|key|pass|passcode|passphrase|passw(or)?d|pwd?|secret|token)|` +
		`authorization|bearer|conn(ection)?_?str(ing)?|cookie|credential|dsn|(gh|gl)?pat|header|` +
		`jwt|mnemonic|otp|pin|salt|seed_?phrase|session(_?id)?|sig|signature` +
		`)s?[0-9]*(_|$)`)

	// publicValue matches a number, also with the signs of dates, times and addresses; a path from
	// the root, the home, or this folder; and the lines around a key in a file.
	publicValue = regexp.MustCompile(`^([0-9.,:+-]+|(~|\.{1,2})?[/\\].*|[A-Za-z]:[/\\].*|` +
		`-----(BEGIN|END).*)$`)

	// variableName matches the names that NAME=VALUE has where it sets a variable.
	variableName = regexp.MustCompile(`^[A-Z_][A-Z0-9_]*$`)

	// pairInValue matches a part of a connection string: password=… between blanks or semicolons.
	pairInValue = regexp.MustCompile(`([A-Za-z_]+) *= *([^\s;]+)`)

	// A key is a long run of letters and digits in a word. Words and dates have shorter runs.
	keyWord = regexp.MustCompile(`[A-Za-z0-9_.~+-]*[A-Za-z0-9]{20}[A-Za-z0-9_.~+-]*`)
	keyRun  = regexp.MustCompile(`[A-Za-z0-9]{20,}`)

	urlInText = regexp.MustCompile(`[A-Za-z][A-Za-z0-9+.-]*://[^\s"'<>]+`)
	// wildPassword matches a URL whose password has characters that should be escaped there: the
	// host that url.Parse finds, if any, is then a part of what stands before the @.
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
	marks map[string]string // what stands in the place of a secret, by each of its folded forms
	table *secretTable      // of all marks; nil until the next text is masked
}

// Add makes the mark stand for each of the texts from now on, also in upper or lower case, where a
// URL, JSON or HTML holds the text, and as base64 or hex. Texts of less than eight bytes are too
// short to be secret.
func (s *Secrets) Add(mark string, texts ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, text := range texts {
		if len(text) < minSecret {
			continue
		}
		for _, form := range secretForms(text) {
			if len(form) >= minSecret {
				s.addForm(mark, form)
			}
		}
	}
}

// addInPlace masks a secret, however short, where it stands between two texts that show what it is.
func (s *Secrets) addInPlace(before, secret, after string) {
	if secret == "" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	text, mark := before+secret+after, before+serverSecret+after
	s.addForm(mark, text)
	s.addForm(mark, withoutEscapes(text))
}

// addForm makes a mark stand for one form of a secret. The caller holds mu.
func (s *Secrets) addForm(mark, form string) {
	form = foldText(form)
	if _, isKnown := s.marks[form]; isKnown {
		return
	}
	if s.marks == nil {
		s.marks = make(map[string]string)
	}
	s.marks[form] = mark
	s.table = nil
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

// AddVariable adds the secrets in the value of an environment variable: most values are secret.
// Where the value is a JSON object, its members are variables, too.
func (s *Secrets) AddVariable(name, value string) {
	words := wordsOf(name)
	isSecret, isSetting := secretName.MatchString(words), settingName.MatchString(words)
	s.addValue(name, value, func(line string) bool {
		isURL := strings.TrimPrefix(line, "jdbc:") == urlInText.FindString(line)
		return isSecret || !isSetting && !isURL && !publicValue.MatchString(line)
	})
	var members map[string]any
	if json.Unmarshal([]byte(value), &members) == nil {
		for name, member := range members {
			text, _ := member.(string)
			s.AddVariable(name, text)
		}
	}
}

// AddHeader adds a header's value, unless the header's name shows that the value is not secret.
func (s *Secrets) AddHeader(name, value string) {
	s.addValue(name, value, func(string) bool { return true })
}

// AddOption adds the secrets in a value that is secret only if its name says so: that of a flag, or
// of a query.
func (s *Secrets) AddOption(name, value string) {
	isSecret := secretName.MatchString(wordsOf(name))
	s.addValue(name, value, func(string) bool { return isSecret })
}

// AddArguments adds the secrets in a command's arguments. It reads --name=value and --name value as
// a flag, NAME=VALUE as a variable, also after a flag such as -e, and --header "NAME: VALUE" and
// -H "NAME: VALUE" as a header.
func (s *Secrets) AddArguments(arguments []string) {
	// flag is the argument before text, if the argument before is a flag without a value.
	flag := ""
	for _, text := range arguments {
		name, value, isPair := strings.Cut(text, "=")
		isFlag := strings.HasPrefix(text, "-")
		switch {
		case !isFlag:
			s.addFlag(flag, text)
		case isPair:
			s.addFlag(name, value)
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
	header, text, isPair := strings.Cut(value, ":")
	isHeader := isPair && (name == "header" || name == "H")
	if isHeader {
		s.AddHeader(header, strings.TrimSpace(text))
		return
	}
	s.AddOption(name, value)
	variable, text, isPair := strings.Cut(value, "=")
	switch {
	case isPair && variableName.MatchString(variable):
		s.AddVariable(variable, text)
	case isPair:
		s.AddOption(variable, text)
	}
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
		s.addInPlace(":", password, "@")
	}
	for name, values := range u.Query() {
		for _, value := range values {
			s.AddOption(name, value)
			if secretName.MatchString(wordsOf(name)) {
				s.addInPlace(name+"=", value, "")
			}
		}
	}
}

// addValue adds the secrets in a value. Logs show a text line by line, so each line is added by
// itself. The secrets in a URL are added whatever the name is: HOOK_ENDPOINT may have a key. If the
// name is public, nothing else is added. Otherwise the keys of a line are added, and what its parts
// name=value call a secret. If the line is secret, all of it is added, too, unless it is a URL, and
// the line without its first word, which may be Bearer or Basic.
func (s *Secrets) addValue(name, value string, isSecret func(line string) bool) {
	isPublic := publicName.MatchString(wordsOf(name))
	for line := range strings.Lines(value) {
		line = strings.TrimSpace(line)
		lastURL := s.addURLs(line)
		if isPublic {
			continue
		}
		s.addKeys(line)
		s.addPairs(line)
		isURL := lastURL == line
		if isSecret(line) && !isURL {
			_, token, _ := strings.Cut(line, " ")
			s.Add(serverSecret, line, token)
		}
	}
}

// addPairs adds what the parts of a connection string call a secret.
func (s *Secrets) addPairs(line string) {
	for _, pair := range pairInValue.FindAllStringSubmatch(line, -1) {
		name, value := pair[1], pair[2]
		if secretName.MatchString(wordsOf(name)) {
			s.Add(serverSecret, value)
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
		}
		isWhole := err == nil && (u.User != nil || strings.HasPrefix(u.Scheme, "http"))
		if isWhole {
			continue
		}
		match := wildPassword.FindStringSubmatch(address)
		if match != nil {
			s.Add(serverSecret, match[1])
			s.addInPlace(":", match[1], "@")
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

// secretForms returns the forms in which a text may appear: as it is, without its escapes, in upper
// and lower case, which are not folded beyond ASCII, as hex, and as base64 in both alphabets.
//
// Where the text is a part of a longer one that was encoded, it begins in one of three positions,
// as base64 makes four characters of three bytes. The first and last characters of the code then
// also depend on the neighbours, and are left out of the form.
func secretForms(text string) []string {
	var forms []string
	for _, form := range []string{text, strings.ToUpper(text), strings.ToLower(text)} {
		forms = append(forms, form)
		// HTML leaves the %41 of a text as it is, which is decoded together with the HTML.
		for range maxEncodings {
			form = withoutEscapes(form)
			forms = append(forms, form)
		}
	}
	forms = append(forms, hex.EncodeToString([]byte(text)))
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
