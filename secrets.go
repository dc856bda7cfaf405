// secrets.go - what is secret, and texts without it.
// SPDX-License-Identifier: 0BSD

package main

import (
	"bytes"
	"encoding/base64"
	"io"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// minSecret is the length of the shortest secret, in bytes. Local servers are given "none" or "ollama" for a key: to
// mask such a text would take words apart.
const minSecret = 8

// serverSecret stands in the place of a secret of a server.
const serverSecret = "[secret]"

// The rules of what is secret. The password of a URL always is, and so is what is given as a header or under a name
// that secretName matches, unless publicName matches that name. Elsewhere a text is secret that looks like a key.
// testdata/secrets.txt has cases on both sides of each rule.
var (
	// publicName matches the names whose values are not secret: to mask them would take sentences apart.
	publicName = regexp.MustCompile(`(dir|file|home|path)s?$|(^|_)(date|debug|enabled|endpoint|env|expiry|folder|host|` +
		`hostname|lang|length|level|limit|locale|mode|model|name|origin|port|region|root|size|sock|timeout|type|tz|user|` +
		`username|version|zone)$|^(accept(_.*)?|content_type|user_agent|logname|(old)?pwd|shell|tmpdir)$`)

	secretName = regexp.MustCompile(`(^|_)([a-z0-9]*(auth|key|passphrase|passw(or)?d|pwd|secret|token)|authorization|` +
		`bearer|cookie|cred|credential|dsn|header|jwt|pass|pat|session)s?[0-9]*(_|$)`)

	// A key is a long run of letters and digits in a word: words and dates have shorter ones.
	keyWord = regexp.MustCompile(`[A-Za-z0-9_.~+-]*[A-Za-z0-9]{20}[A-Za-z0-9_.~+-]*`)
	keyRun  = regexp.MustCompile(`[A-Za-z0-9]{20,}`)

	urlInText = regexp.MustCompile(`[A-Za-z][A-Za-z0-9+.-]*://[^\s"'<>]+`)
	// wildPassword matches a URL whose password has characters that should be escaped there.
	wildPassword = regexp.MustCompile(`://[^/?#:@]*:(.+)@`)

	humps = regexp.MustCompile(`([a-z0-9])([A-Z])`)
)

// wordsOf returns a name in lower case, with one underscore between its words.
func wordsOf(name string) string {
	name = humps.ReplaceAllString(name, "${1}_$2")
	return strings.ToLower(strings.NewReplacer("-", "_", ".", "_").Replace(name))
}

// Secrets knows the texts that must not be shown, and takes them out of other texts. The zero value knows none. All
// methods may be called from any goroutine.
type Secrets struct {
	mu    sync.Mutex        // guards the following
	marks map[string]string // by text, in each of its forms
	table *secretTable      // of these texts, which nothing changes; nil if there are none, or others since
}

// Add makes the mark stand for each of the texts from now on, also where URLs, JSON or base64 hold them. Texts of less
// than eight bytes are too short to be secret.
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
			if _, known := s.marks[form]; !known && len(form) >= minSecret {
				s.marks[form], s.table = mark, nil
			}
		}
	}
}

// current returns the table of all texts that are known now, nil if there are none.
func (s *Secrets) current() *secretTable {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.table == nil && s.marks != nil {
		s.table = newSecretTable(s.marks)
	}
	return s.table
}

// AddVariable adds what is secret of a variable's value: its lines if the name says so, and by their looks the
// passwords and keys in it.
func (s *Secrets) AddVariable(name, value string) {
	s.addValue(name, value, secretName.MatchString(wordsOf(name)))
}

// AddHeader adds a header's value, unless its name shows that it is not secret.
func (s *Secrets) AddHeader(name, value string) { s.addValue(name, value, true) }

// AddArguments adds what is secret of a command's arguments, where --name=value, --name value and NAME=value are as a
// variable, and --header "NAME: VALUE" and -H are as a header.
func (s *Secrets) AddArguments(arguments []string) {
	add := func(name, value string) {
		name = strings.TrimLeft(name, "-")
		if header, text, ok := strings.Cut(value, ":"); ok && (name == "header" || name == "H") {
			s.AddHeader(header, strings.TrimSpace(text))
		} else {
			s.AddVariable(name, value)
		}
	}
	before := "" // the flag before the argument
	for _, text := range arguments {
		name, value, isPair := strings.Cut(text, "=")
		isFlag := strings.HasPrefix(text, "-")
		if isPair {
			add(name, value)
		}
		if !isFlag {
			add(before, text)
		}
		if before = ""; isFlag && !isPair {
			before = text
		}
	}
}

// AddURL adds a URL's password, also in the form that goes into a header, and the keys in it.
func (s *Secrets) AddURL(u *url.URL) {
	s.addKeys(u.User.Username() + " " + u.Path)
	if password, ok := u.User.Password(); ok {
		s.Add(serverSecret, password, base64.StdEncoding.EncodeToString([]byte(u.User.Username()+":"+password)))
	}
	for name, values := range u.Query() {
		for _, value := range values {
			s.AddVariable(name, value)
		}
	}
}

// addValue adds the lines of a value if it is secret, each also without its first word, which may be Bearer or Basic.
// Of any value it adds the keys, unless the name is public. Those in URLs it always adds: HOOK_ENDPOINT may have some.
func (s *Secrets) addValue(name, value string, secret bool) {
	public := publicName.MatchString(wordsOf(name))
	for line := range strings.Lines(value) { // logs show a text line by line
		line = strings.TrimSpace(line)
		address := ""
		for _, address = range urlInText.FindAllString(line, -1) {
			if u, err := url.Parse(address); err == nil {
				s.AddURL(u)
			} else if match := wildPassword.FindStringSubmatch(address); match != nil {
				s.Add(serverSecret, match[1])
			}
		}
		if public {
			continue
		}
		s.addKeys(line)
		if secret && address != line {
			_, token, _ := strings.Cut(line, " ")
			s.Add(serverSecret, line, token)
		}
	}
}

// addKeys adds the words of a text that look like keys.
func (s *Secrets) addKeys(text string) {
	for _, word := range keyWord.FindAllString(text, -1) {
		if slices.ContainsFunc(keyRun.FindAllString(word, -1), func(run string) bool {
			return strings.ContainsAny(run, "0123456789") && strings.Trim(run, "0123456789") != ""
		}) {
			s.Add(serverSecret, word)
		}
	}
}

// secretForms returns a text as it is, without its escapes, and as base64 in both alphabets: by itself, and within
// another text, where the characters at its two ends depend on that, too.
func secretForms(text string) []string {
	forms := []string{text, withoutEscapes(text)}
	for _, encoding := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		forms = append(forms, encoding.EncodeToString([]byte(text)))
		for before := range 3 {
			form := encoding.EncodeToString([]byte("\x00\x00"[:before] + text))
			forms = append(forms, form[(before*8+5)/6:(before+len(text))*8/6])
		}
	}
	return forms
}

// withoutEscapes is a text as an unescaper reads it.
func withoutEscapes(text string) string {
	var out []byte
	var u unescaper
	for i := range len(text) {
		u.next(char{text[i], i, i + 1}, func(c char) { out = append(out, c.b) })
	}
	return string(append(out, u.pending...))
}

// Mask returns a text with marks in the place of the secrets.
func (s *Secrets) Mask(text string) string {
	if s.current() == nil {
		return text
	}
	var out strings.Builder
	w := s.Writer(&out)
	for piece := range slices.Chunk([]byte(text), 64<<10) { // of a long text little is held twice
		_, _ = w.Write(piece) // a Builder never fails
	}
	_ = w.Close()
	return out.String()
}

// Writer returns a writer that passes on to w what is written to it, without the secrets: what Mask makes of it,
// whatever the pieces. It keeps back what may be the beginning of a secret until more is written, or until Close,
// which does not close w.
func (s *Secrets) Writer(w io.Writer) *MaskWriter {
	return &MaskWriter{secrets: s, w: w}
}

// MaskWriter is a writer without secrets; see Secrets.Writer. It is for one goroutine. One that was added since, it
// takes out after a place where no other one may have begun.
//
// Secrets that overlap become one stretch, so that no end of one is left. It gets the mark of the secret that begins
// first.
type MaskWriter struct {
	secrets *Secrets
	table   *secretTable // nil if there are no secrets
	w       io.Writer
	read    int       // bytes so far
	kept    []byte    // the last of them
	found   []stretch // of secrets, in order; no two overlap. The first may have begun before kept

	asIs, unescaped reading
	escapes         unescaper // before unescaped
}

// stretch is a part of the text.
type stretch struct {
	start, end int    // counted from the beginning of the text
	mark       string // "" when it has been written
}

func (m *MaskWriter) Write(piece []byte) (int, error) {
	if table := m.secrets.current(); table != m.table && len(m.kept) == 0 {
		*m = MaskWriter{secrets: m.secrets, table: table, w: m.w}
	}
	if m.table == nil {
		return m.w.Write(piece)
	}
	m.kept = append(m.kept, piece...)
	unescaped := func(c char) { m.unescaped.next(m, c) }
	for _, b := range piece {
		c := char{b, m.read, m.read + 1}
		m.read++
		m.asIs.next(m, c)
		m.escapes.next(c, unescaped)
	}
	return len(piece), m.flush(min(m.asIs.begun(m), m.unescaped.begun(m), m.read-len(m.escapes.pending)))
}

// Close writes what was kept back. What is written after it is another text.
func (m *MaskWriter) Close() error {
	err := m.flush(m.read)
	*m = MaskWriter{secrets: m.secrets, w: m.w}
	return err
}

// add adds a secret that was found, which may overlap the last ones.
func (m *MaskWriter) add(s stretch) {
	for n := len(m.found); n > 0 && m.found[n-1].end > s.start; n = len(m.found) {
		last := m.found[n-1]
		s.end = max(s.end, last.end)
		if last.start < s.start {
			s.start, s.mark = last.start, last.mark
		}
		m.found = m.found[:n-1]
	}
	m.found = append(m.found, s)
}

// flush writes the text before end. All secrets that begin there have been found.
func (m *MaskWriter) flush(end int) error {
	var out []byte
	first := m.read - len(m.kept)
	at := first
	for len(m.found) > 0 && m.found[0].start < end {
		s := &m.found[0]
		out = append(append(out, m.kept[at-first:max(at, s.start)-first]...), s.mark...)
		s.mark = ""
		if at = min(s.end, end); s.end > end { // another secret may begin in its rest
			break
		}
		m.found = m.found[1:]
	}
	out = append(out, m.kept[at-first:end-first]...)
	m.kept = m.kept[end-first:]
	if len(out) == 0 {
		return nil
	}
	_, err := m.w.Write(out)
	return err
}

// char is a byte, and where in the text it stands for what.
type char struct {
	b          byte
	start, end int
}

// reading looks for secrets in a text, which is read as it is or without its escapes.
type reading struct {
	node   int   // of the secretTable: the longest end of the text so far with which a secret may begin
	starts []int // where its bytes begin
}

func (r *reading) next(m *MaskWriter, c char) {
	if r.node == 0 && !m.table.first[c.b] {
		return
	}
	r.node = m.table.next(r.node, c.b)
	n := &m.table.nodes[r.node]
	r.starts = append(r.starts, c.start)
	r.starts = r.starts[len(r.starts)-n.depth:]
	if n.secret > 0 {
		m.add(stretch{r.starts[n.depth-n.secret], c.end, n.mark})
	}
}

// begun returns where a secret may have begun of which the end was not read yet, or else the end of the text.
func (r *reading) begun(m *MaskWriter) int {
	for node := r.node; node != 0; node = m.table.nodes[node].fail {
		if n := &m.table.nodes[node]; n.isOpen {
			return r.starts[len(r.starts)-n.depth]
		}
	}
	return m.read
}

// unescaper decodes what JSON and URLs make of a text, however often: \" and \\" are read as ", \u002B and %2b as +,
// and so is a space, for which + stands in a query.
type unescaper struct{ pending []byte } // the beginning of an escape

func (u *unescaper) next(c char, unescaped func(char)) {
	if len(u.pending) == 0 && c.b != '\\' && c.b != '%' && c.b != ' ' {
		unescaped(c)
		return
	}
	text := append(u.pending, c.b)
	for len(text) > 0 {
		decoded, size := unescape(text)
		if size == 0 {
			break
		}
		start := c.end - len(text)
		for i := range len(decoded) {
			unescaped(char{decoded[i], start, start + size})
		}
		text = text[size:]
	}
	u.pending = append(u.pending[:0], text...)
}

// unescape decodes the beginning of a text, and returns how many bytes that was: 0 if it may go on.
func unescape(text []byte) (decoded string, size int) {
	prefix := min(8, len(text)-len(bytes.TrimLeft(text, `\`)))
	digits := 4
	switch {
	case text[0] == ' ':
		return "+", 1
	case text[0] == '%':
		digits = 2
	case prefix == len(text):
		return "", 0
	case prefix == 0 || text[prefix] != 'u':
		return string(text[prefix : prefix+1]), prefix + 1
	}
	first := prefix + 1
	hex := text[first:min(first+digits, len(text))]
	code, err := strconv.ParseUint(string(hex), 16, 16)
	switch {
	case len(hex) > 0 && err != nil:
		return string(text[prefix:first]), first
	case len(hex) < digits:
		return "", 0
	case digits == 2:
		return string([]byte{byte(code)}), first + digits
	}
	return string(rune(code)), first + digits
}

// secretTable finds all secrets in one pass over a text (Aho and Corasick, 1975). Each of its nodes is the beginning
// of a secret; the first is the empty one.
type secretTable struct {
	nodes  []secretNode
	longer map[[2]int]int // by a node and a byte: the node with this byte more
	first  [256]bool      // the bytes with which secrets begin: most texts have few of them
}

type secretNode struct {
	depth  int    // the length of the beginning
	isOpen bool   // whether it is the beginning of a longer one
	fail   int    // the longest other node that this one ends with
	secret int    // the length of the longest secret that this one ends with, 0 for none
	mark   string // of that
}

func newSecretTable(marks map[string]string) *secretTable {
	t := &secretTable{nodes: make([]secretNode, 1), longer: make(map[[2]int]int)}
	at := make(map[string]int) // the nodes of the beginnings of all texts that are longer
	for text := range marks {
		at[text], t.first[text[0]] = 0, true
	}
	for depth := 1; len(at) > 0; depth++ { // the shorter nodes first: those that longer ones end with
		for text, node := range at {
			step := [2]int{node, int(text[depth-1])}
			next := t.longer[step]
			if next == 0 {
				next = len(t.nodes)
				added := secretNode{depth: depth}
				if node != 0 {
					added.fail = t.next(t.nodes[node].fail, text[depth-1])
					added.secret, added.mark = t.nodes[added.fail].secret, t.nodes[added.fail].mark
				}
				t.nodes[node].isOpen, t.longer[step] = true, next
				t.nodes = append(t.nodes, added)
			}
			if at[text] = next; depth == len(text) {
				t.nodes[next].secret, t.nodes[next].mark = depth, marks[text]
				delete(at, text)
			}
		}
	}
	return t
}

// next returns the longest node that a node with one more byte ends with.
func (t *secretTable) next(node int, b byte) int {
	for {
		if next := t.longer[[2]int{node, int(b)}]; next != 0 || node == 0 {
			return next
		}
		node = t.nodes[node].fail
	}
}
