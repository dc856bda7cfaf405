// transport_stdio_environment.go - which of our variables the process of a server gets.
// Needs: Go 1.25, json, rpc, lines.
// SPDX-License-Identifier: 0BSD

package main

import (
	"runtime"
	"slices"
	"strings"
)

// Our environment may hold keys and passwords that are not meant for a server. So its process gets
// only these variables, which a program needs to run at all, and which carry no secrets, beside
// what Command.Env has.
const (
	// The variables of the locale, whose names begin with LC_, are safe on Unix, too.
	unixVariables = "HOME LANG LOGNAME PATH SHELL TERM TMPDIR USER"

	// Windows does not distinguish upper and lower case in names.
	windowsVariables = `APPDATA COMSPEC HOMEDRIVE HOMEPATH LOCALAPPDATA PATH PATHEXT
		PROCESSOR_ARCHITECTURE PROGRAMDATA PROGRAMFILES SYSTEMDRIVE SYSTEMROOT TEMP TMP USERNAME
		USERPROFILE WINDIR`
)

// safeEnvironment picks the safe variables of an environment, which it may change. A value that
// begins with () is a shell function, which a shell would run.
func safeEnvironment(environ []string) []string {
	return slices.DeleteFunc(environ, func(variable string) bool {
		name, value, _ := strings.Cut(variable, "=")
		return !isSafeVariable(runtime.GOOS, name) || strings.HasPrefix(value, "()")
	})
}

// isSafeVariable reports whether the variable with that name is safe on an operating system, which
// is named as in runtime.GOOS.
func isSafeVariable(system, name string) bool {
	if system == "windows" {
		return slices.Contains(strings.Fields(windowsVariables), strings.ToUpper(name))
	}
	return slices.Contains(strings.Fields(unixVariables), name) || strings.HasPrefix(name, "LC_")
}
