// screen_code.go - the colors of code in markdown: a few rules for most languages.
// SPDX-License-Identifier: 0BSD

package main

import (
	"regexp"
	"strings"
)

// lexer colors code line by line. It knows strings, numbers, comments and keywords, by rules that
// most languages share. Where it is wrong, a word has another color: the text stays as it is.
type lexer struct {
	comment string // begins one that goes on to the end of the line
	colors  bool   // the language is known
	until   string // ends the string or the comment that the text begins in; "" if it is in none
	style   Style  // of that
}

// newLexer returns the colors of a language, by its name behind a fence. Code in another language
// has one color.
func newLexer(language string) lexer {
	languages := map[string]string{
		"//": " c cc cpp c++ cs c# csharp css dart go golang java javascript js jsx kotlin kt php" +
			" proto rs rust scala swift ts tsx typescript zig ",
		"#": " bash conf console dockerfile elixir fish hcl ini jl julia make makefile nix perl" +
			" pl powershell ps1 py python r rb ruby sh shell tcl terraform tf toml yaml yml zsh ",
		"--": " elm haskell hs lua sql ",
		"\n": " json jsonc ", // no comment begins so
	}
	for comment, names := range languages {
		isKnown := strings.Contains(names, " "+strings.ToLower(language)+" ")
		if isKnown {
			return lexer{comment: comment, colors: true}
		}
	}
	return lexer{}
}

var (
	// A string, a number, a word, or any other character.
	lexeme = regexp.MustCompile(`^(?s:("(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')|` +
		`(\d[\w.]*)|([\pL_]\w*)|.)`)

	keyword = regexp.MustCompile(`^(?:` +
		`and|as|async|await|break|case|catch|class|const|continue|def|default|defer|do|` +
		`done|elif|else|enum|esac|except|export|extends|[Ff]alse|fi|finally|fn|` +
		`for|from|func|function|go|if|impl|import|in|interface|is|lambda|let|local|match|nil|` +
		`[Nn]one|not|null|or|package|private|pub|public|raise|return|static|struct|switch|then|` +
		`throw|trait|[Tt]rue|try|type|use|var|void|while|with|yield|` +
		`SELECT|INSERT|INTO|UPDATE|DELETE|CREATE|TABLE|FROM|WHERE|AND|OR|NOT|NULL|JOIN|ON|AS|` +
		`GROUP|ORDER|BY|LIMIT|VALUES|SET)$`)
)

// next returns the size of what a text begins with, and its style. before is the text before it in
// the line.
func (l *lexer) next(text, before string) (size int, style Style) {
	if !l.colors {
		return len(text), Cyan
	}
	size = 0
	if l.until == "" {
		size = l.open(text, before)
	}
	if l.until != "" {
		end := strings.Index(text[size:], l.until)
		if end < 0 {
			return len(text), l.style
		}
		size += end + len(l.until)
		l.until = ""
		return size, l.style
	}
	found := lexeme.FindStringSubmatch(text)
	isWord := found[3] != "" && !strings.HasSuffix(before, ".")
	switch {
	case found[1] != "" || found[2] != "":
		style = Purple
	case isWord && keyword.MatchString(found[3]):
		style = Cyan + Bold
	default:
		style = Cyan
	}
	return len(found[0]), style
}

// open begins a comment, or a string that may have several lines, and returns the size of what
// begins it: 0 if there is none. No comment begins in the middle of a word, as of an address.
func (l *lexer) open(text, before string) (size int) {
	mayBegin := before == "" || strings.ContainsAny(before[len(before)-1:], " ;,(){}[]")
	for _, pair := range [...]struct {
		begin, end string
		applies    bool
		style      Style
	}{
		{l.comment, "\n", mayBegin, Cyan + Faint},
		{"/*", "*/", l.comment == "//", Cyan + Faint},
		{"`", "`", l.comment == "//", Purple},
		{`"""`, `"""`, true, Purple},
		{"'''", "'''", true, Purple},
	} {
		if pair.applies && strings.HasPrefix(text, pair.begin) {
			l.until = pair.end
			l.style = pair.style
			return len(pair.begin)
		}
	}
	return 0
}

// endLine ends the comment that goes on to the end of the line.
func (l *lexer) endLine() {
	if l.until == "\n" {
		l.until = ""
	}
}

// readCode lays out a line of code once it is whole, and one that is longer than maxSpan in pieces
// of that. It reports whether it could.
//
// The terminal breaks a line that is longer than the window: so it is copied as it was written, but
// for tabs. Without styles code is indented, as nothing else would show that it is code.
func (m *markdown) readCode(more bool) bool {
	line, _, ended := strings.Cut(m.rest[:min(len(m.rest), maxSpan+1)], "\n")
	text := strings.TrimRight(line, " ")
	if len(line) > maxSpan {
		line = line[:wholeCharacters([]byte(line[:maxSpan]))]
		text = line
	} else if more && !ended {
		return false
	}
	m.rest = m.rest[len(line):]
	m.goOn()
	isFirst := m.column == m.hung
	if isFirst && text != "" && !m.styled {
		m.lead("  ", false)
	}
	var last Style
	for at := 0; at < len(text); {
		size, style := m.fence.lexer.next(text[at:], text[:at])
		if m.styled && style != last {
			m.out.WriteString(string(plain + style))
			last = style
		}
		m.out.WriteString(text[at : at+size])
		at += size
	}
	if last != "" {
		m.out.WriteString(string(plain))
	}
	m.column += Width(text)
	if ended {
		m.fence.lexer.endLine()
	}
	return true
}
