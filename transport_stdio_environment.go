// transport_stdio_environment.go - which of our variables the process of a server gets.
// Needs: Go 1.25, json, rpc, lines.
// SPDX-License-Identifier: 0BSD

package main

import (
	"os"
	"runtime"
	"slices"
	"strings"
)

// Our environment may hold keys and passwords that are not meant for a server. So its process gets
// only these variables beside what Command.Env has: those that a program needs to run at all, and
// those without which it does not reach the network. The latter hold one secret, if any: the
// password of a proxy, which all programs behind it have to know.
const (
	// The variables of the locale, whose names begin with LC_, are safe on Unix, too.
	unixVariables = "HOME LANG LOGNAME PATH SHELL TERM TMPDIR USER"

	// Windows does not distinguish upper and lower case in names.
	windowsVariables = `APPDATA COMSPEC HOMEDRIVE HOMEPATH LOCALAPPDATA PATH PATHEXT
		PROCESSOR_ARCHITECTURE PROGRAMDATA PROGRAMFILES SYSTEMDRIVE SYSTEMROOT TEMP TMP USERNAME
		USERPROFILE WINDIR`

	// Behind a proxy that has a certificate of its own, uvx and npx cannot download a server
	// without these. Each reads others: OpenSSL and uv, Node.js, Python's requests. Node.js uses a
	// proxy only where NODE_USE_ENV_PROXY says so.
	networkVariables = `SSL_CERT_FILE SSL_CERT_DIR NODE_EXTRA_CA_CERTS REQUESTS_CA_BUNDLE
		CURL_CA_BUNDLE NODE_USE_ENV_PROXY HTTP_PROXY HTTPS_PROXY ALL_PROXY NO_PROXY
		http_proxy https_proxy all_proxy no_proxy`
)

// Environment returns the variables that the process of the server gets, as NAME=value.
func (c *Command) Environment() []string {
	return append(safeEnvironment(os.Environ()), c.Env...)
}

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
	safe := strings.Fields(unixVariables + " " + networkVariables)
	if system == "windows" {
		safe = strings.Fields(windowsVariables + " " + networkVariables)
		name = strings.ToUpper(name)
	}
	isLocale := system != "windows" && strings.HasPrefix(name, "LC_")
	return isLocale || slices.Contains(safe, name)
}
