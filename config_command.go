// config_command.go - a command line, taken apart as a shell does.
// SPDX-License-Identifier: 0BSD

package main

import (
	"errors"
	"regexp"
	"slices"
	"strings"
)

// The parts of a command line.
var (
	assignment  = regexp.MustCompile(`^[^=/\\.-]+=`)
	commandWord = regexp.MustCompile(`(?s:[^ \t\n"'\\]|\\.|"(?:[^"\\]|\\.)*"|'[^']*')+`)
	quoted      = regexp.MustCompile(`(?s)'[^']*'|"(?:[^"\\]|\\.)*"|\\.`)
	escaped     = regexp.MustCompile(`\\([ "'\\])`)
)

// ParseCommand reads a command line: words apart by spaces, with quotes as in a shell and nothing
// expanded. A backslash takes a space, a quote or another backslash as it is; any other one stays,
// as it does in C:\server.exe. Leading words of the form NAME=VALUE set the server's environment.
func ParseCommand(line string) (Command, error) {
	words, err := SplitWords(line)
	if err != nil {
		return Command{}, err
	}
	i := slices.IndexFunc(words, func(word string) bool { return !assignment.MatchString(word) })
	if i < 0 || words[i] == "" {
		return Command{}, errors.New("the command line has no command")
	}
	return Command{
		Path: words[i],
		Args: words[i+1:],
		Env:  append([]string(nil), words[:i]...),
	}, nil
}

// SplitWords splits a command line into its words, without their quotes.
func SplitWords(line string) ([]string, error) {
	outside := commandWord.ReplaceAllLiteralString(line, "")
	if strings.ContainsAny(outside, `"'\`) {
		return nil, errors.New("the command line ends inside quotes or after a backslash")
	}
	var words []string
	for _, word := range commandWord.FindAllString(line, -1) {
		words = append(words, quoted.ReplaceAllStringFunc(word, withoutQuotes))
	}
	return words, nil
}

// withoutQuotes returns what a part in quotes, or a character after a backslash, stands for. In
// single quotes a backslash is like any other character.
func withoutQuotes(part string) string {
	switch part[0] {
	case '\'':
		return part[1 : len(part)-1]
	case '"':
		part = part[1 : len(part)-1]
	}
	return escaped.ReplaceAllString(part, "$1")
}
