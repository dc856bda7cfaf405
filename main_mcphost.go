// main_mcphost.go - what users of mcphost know by another name.
// SPDX-License-Identifier: 0BSD

package main

import (
	"cmp"
	"flag"
	"maps"
	"os"
	"slices"
	"strings"
)

// knownSetting is what takes the place of a setting of mcphost: a flag, a variable, or something
// else in words. What has none of them is not here.
type knownSetting struct {
	flag     string // with what follows it
	variable string
	other    string
}

// mcphostSettings is the table of mcphost's flags. Each may also stand in its file, beside the
// servers. In the place of several of its flags there is one here.
func mcphostSettings() map[string]knownSetting {
	question := knownSetting{other: `the question as the last argument, mcpagent "…"`}
	session := knownSetting{flag: "-session FILE"}
	return map[string]knownSetting{
		"p":                question,
		"prompt":           question,
		"quiet":            {flag: "-q"},
		"no-exit":          {other: "a chat, mcpagent alone on a terminal"},
		"model":            {flag: "-m NAME", variable: "MISTRAL_MODEL"},
		"provider-url":     {variable: "MISTRAL_BASE_URL"},
		"provider-api-key": {variable: "MISTRAL_API_KEY"},
		"tls-skip-verify":  {variable: "SSL_CERT_FILE"},
		"system-prompt":    {flag: "-system TEXT, -system @FILE", variable: "MCP_SYSTEM"},
		"max-steps":        {flag: "-max-turns N", variable: "MCP_MAX_TURNS"},
		"max-tokens":       {flag: "-max-tokens N", variable: "MISTRAL_MAX_TOKENS"},
		"temperature":      {flag: "-temperature N", variable: "MISTRAL_TEMPERATURE"},
		"debug":            {flag: "-trace 1", variable: "MCP_TRACE"},
		"compact":          {flag: "-raw"},
		"s":                session,
		"save-session":     session,
		"load-session":     session,
		"top-p":            {},
		"top-k":            {},
		"stop-sequences":   {},
		"num-gpu-layers":   {},
		"main-gpu":         {},
	}
}

// String says what to write here, or is "".
func (k knownSetting) String() string {
	if k.flag != "" && k.variable != "" {
		return k.flag + " or " + k.variable
	}
	return cmp.Or(k.flag, k.variable, k.other)
}

// isGiven reports whether this run has the flag, which is among given, or the variable.
func (k knownSetting) isGiven(given map[string]bool) bool {
	name, _, _ := strings.Cut(strings.TrimPrefix(k.flag, "-"), " ")
	return given[name] || k.variable != "" && os.Getenv(k.variable) != ""
}

// withoutEffect says which settings of a file have no effect, and what takes their place: the file
// may be one of mcphost, which reads the model there. It returns "" if there are none, and leaves
// out those that are given in another way.
func withoutEffect(settings []string, given map[string]bool) string {
	var found []string
	for _, name := range settings {
		known, isKnown := mcphostSettings()[name]
		if !isKnown || known.isGiven(given) {
			continue
		}
		if instead := known.String(); instead != "" {
			name += " (give " + instead + ")"
		}
		found = append(found, name)
	}
	if len(found) == 0 {
		return ""
	}
	return "these settings have no effect here: " + strings.Join(found, ", ")
}

// checkProvider returns an error for the name of a model that begins with its provider, as mcphost
// has it. It is for names that Mistral's API would get, which has none of these.
func checkProvider(model string) error {
	end := strings.IndexAny(model, ":/")
	if end < 0 {
		return nil
	}
	provider, name := model[:end], model[end+1:]
	switch provider {
	case "ollama":
		if model[end] == '/' {
			return usageError("%s: this is -m %s%s here", model, ollama, name)
		}
	case "mistral", "mistralai":
		return usageError("%s: this is -m %s here", model, name)
	case "anthropic", "azure", "bedrock", "gemini", "google", "openai", "openrouter":
		return usageError("%s: the provider is no part of the name here: MISTRAL_BASE_URL is the "+
			"address of its API, MISTRAL_API_KEY its key, and -m %s the model", model, name)
	}
	return nil
}

// unknownFlag adds to the error of a flag that is not defined what takes its place, or the flag
// that it may be a typing error of. Other errors stay as they are.
func unknownFlag(f *flag.FlagSet, err error) error {
	_, name, isUnknown := strings.Cut(err.Error(), "not defined: -")
	if !isUnknown {
		return usageError("%w", err)
	}
	name = strings.TrimPrefix(name, "-")
	known, isKnown := mcphostSettings()[name]
	switch {
	case isKnown && known.String() == "":
		return usageError("%w, which mcphost has, and this program has not", err)
	case isKnown:
		return usageError("%w, which mcphost has: here it is %s", err, known)
	}
	names := make(map[string]bool)
	f.VisitAll(func(f *flag.Flag) { names[f.Name] = true })
	near, isNear := nearest(name, slices.Sorted(maps.Keys(names)))
	if isNear {
		return usageError("%w: did you mean -%s?", err, near)
	}
	return usageError("%w", err)
}
