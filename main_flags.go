// main_flags.go - how flags and variables are read.
// SPDX-License-Identifier: 0BSD

package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// parseFlags reads the flags, which may stand anywhere, and returns the other words. What follows
// -- are words, whatever they look like. isQuestion is set if a -- stands before all of them: then
// the first word is no command.
func parseFlags(f *flag.FlagSet, args []string) (words []string, isQuestion bool, err error) {
	for len(args) > 0 {
		err := f.Parse(args)
		if errors.Is(err, flag.ErrHelp) {
			return slices.Concat([]string{"help"}, words, f.Args()), false, nil
		}
		if err != nil {
			return nil, false, unknownFlag(f, err)
		}
		read := len(args) - f.NArg()
		isLiteral := read > 0 && args[read-1] == "--"
		args = f.Args()
		if isLiteral {
			return append(words, args...), len(words) == 0, nil
		}
		// The flag package stops at the first word. The flags behind it are read in the next round.
		if len(args) > 0 {
			words = append(words, args[0])
			args = args[1:]
		}
	}
	return words, false, nil
}

// readVariables reads the variables of the flags that are not given, and returns the names of those
// that are. The flags -server and -config both say which servers there are. If either is given, the
// variables of both are ignored.
func readVariables(f *flag.FlagSet) (given map[string]bool, err error) {
	replaces := map[string]string{
		"m": "model", "model": "m", "server": "config", "config": "server",
	}
	given = make(map[string]bool)
	f.Visit(func(f *flag.Flag) {
		given[f.Name] = true
		if replaced := replaces[f.Name]; replaced != "" {
			given[replaced] = true
		}
	})
	var failed error
	f.VisitAll(func(f *flag.Flag) {
		variable, _, _ := strings.Cut(f.Usage, " ")
		text := os.Getenv(variable)
		if text == "" || given[f.Name] || failed != nil {
			return
		}
		if err := f.Value.Set(text); err != nil {
			failed = usageError("%s: %q: %w", variable, text, err)
		}
	})
	return given, failed
}

// The functions below set a default, and return functions that read the value of a flag. A value
// that is invalid changes nothing.

// oneOf takes one of the known words. The default is "".
func oneOf(into *string, known ...string) func(string) error {
	return func(text string) error {
		if !slices.Contains(known, text) {
			return fmt.Errorf("not one of %s", strings.Join(known, ", "))
		}
		*into = text
		return nil
	}
}

// number takes a bound of at least 1. The default may be 0, which leaves the bound to the code that
// it is for.
func number(into *int, standard int) func(string) error {
	*into = standard
	return func(text string) error {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return errors.New("not a whole number above 0")
		}
		*into = n
		return nil
	}
}

// duration takes 90s, 5m, or a number of seconds.
func duration(into *time.Duration, standard time.Duration) func(string) error {
	*into = standard
	return func(text string) error {
		d, err := time.ParseDuration(text)
		if err != nil {
			d, err = time.ParseDuration(text + "s")
		}
		if err != nil || d <= 0 {
			return errors.New("not a duration such as 90s or 5m")
		}
		*into = d
		return nil
	}
}

// setTemperature reads a temperature. Without one it stays nil, and not 0, because the API has a
// default of its own for each model.
func (m *modelSettings) setTemperature(text string) error {
	t, err := strconv.ParseFloat(text, 64)
	// Both comparisons are false for NaN.
	isInRange := t >= 0 && t <= MaxTemperature
	if err != nil || !isInRange {
		return fmt.Errorf("not a number from 0 to %v", MaxTemperature)
	}
	m.temperature = &t
	return nil
}
