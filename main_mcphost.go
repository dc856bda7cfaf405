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
	isMoot   bool // nothing is lost where a file has it
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
		"tls-skip-verify":  {other: "SSL_CERT_FILE, a file of authorities"},
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
		"stream":           {isMoot: true},
		"no-hooks":         {isMoot: true},
		"args":             {}, // --args:NAME VALUE, a variable of a script
	}
}

// noScript says what to do with a script of mcphost: a file that has its servers, and a question.
const noScript = `is not run here: write its servers into a file of JSON, as "mcpServers", and ` +
	"give its text as the question"

// checkMcphostCommand returns an error for words that are a command of mcphost. As a question they
// would cost time and money, and a script that begins with #! would seem to run. Words that only
// begin like one of its commands are a question.
func checkMcphostCommand(words []string) error {
	if len(words) == 0 || len(words) > 3 {
		return nil
	}
	second := ""
	if len(words) > 1 {
		second = words[1]
	}
	instead := ""
	switch words[0] {
	case "script":
		if len(words) == 2 && !strings.Contains(second, " ") {
			instead = ", and a script " + noScript
		}
	case "hooks":
		if slices.Contains([]string{"", "list", "validate", "init"}, second) && len(words) < 3 {
			instead = ", and hooks are not here"
		}
	case "auth":
		if slices.Contains([]string{"login", "logout", "status"}, second) {
			instead = ": here the key of a model is in MISTRAL_API_KEY"
		}
	case "models", "update-models":
		if len(words) < 3 {
			instead = ": here /model in a chat lists the models"
		}
	}
	if instead == "" {
		return nil
	}
	return usageError("%q is a command of mcphost%s; mcpagent -- %[1]s asks it as a question",
		strings.Join(words, " "), instead)
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
func withoutEffect(settings []Setting, run *settings) string {
	var found []string
	hasAddress := run.model.baseURL != "" || strings.HasPrefix(run.model.name, ollama)
	for _, s := range settings {
		hasAddress = hasAddress || s.Name == "provider-url"
	}
	for _, s := range settings {
		known, isKnown := mcphostSettings()[s.Name]
		if !isKnown || known.isMoot {
			continue
		}
		if !known.isGiven(run.given) {
			found = append(found, s.Name+inPlace(known, s.Text))
		}
		provider, _ := splitProvider(s.Text)
		if s.Name == "model" && isElsewhere(provider) && !hasAddress {
			// Without this, the key of that provider would be given, and sent to Mistral.
			found = append(found, "the provider "+provider+" (give MISTRAL_BASE_URL: "+
				"docs/start.md has the addresses)")
		}
	}
	if len(found) == 0 {
		return ""
	}
	return "these settings have no effect here: " + strings.Join(found, ", ")
}

// inPlace says in brackets what to give for a setting of a file, and "" if there is nothing. A
// system prompt may be given there by the name of its file.
func inPlace(known knownSetting, text string) string {
	instead := known.String()
	if known.variable == "MCP_SYSTEM" && namesFile(text) {
		instead = "-system " + word("@"+text)
	}
	if instead == "" {
		return ""
	}
	return " (give " + instead + ")"
}

// namesFile reports whether a text is the name of a file that is there.
func namesFile(text string) bool {
	if text == "" || MayLeaveMachine(text) {
		return false
	}
	info, err := os.Stat(text)
	return err == nil && info.Mode().IsRegular()
}

// splitProvider splits the name of a model that begins with its provider, as mcphost has it.
func splitProvider(model string) (provider, name string) {
	end := strings.IndexAny(model, ":/")
	if end < 0 {
		return "", model
	}
	return model[:end], model[end+1:]
}

// isElsewhere reports whether a provider of mcphost has an API of its own, which is reached by its
// address.
func isElsewhere(provider string) bool {
	return slices.Contains([]string{
		"anthropic", "azure", "bedrock", "gemini", "google", "openai", "openrouter",
	}, provider)
}

// checkProvider returns an error for the name of a model that begins with its provider, as mcphost
// has it. It is for names that Mistral's API would get, which has none of these.
func checkProvider(model string) error {
	provider, name := splitProvider(model)
	switch {
	case provider == "ollama" && !strings.HasPrefix(model, ollama):
		return usageError("%s: this is -m %s%s here", model, ollama, name)
	case provider == "mistral", provider == "mistralai":
		return usageError("%s: this is -m %s here", model, name)
	case isElsewhere(provider):
		return usageError("%s: model names here have no provider: set MISTRAL_BASE_URL to the "+
			"address of its API, MISTRAL_API_KEY to its key, and name the model: -m %s",
			model, name)
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
	flagName, _, _ := strings.Cut(name, ":")
	known, isKnown := mcphostSettings()[flagName]
	switch {
	case isKnown && known.String() == "":
		return usageError("%w: mcphost has this flag, mcpagent does not", err)
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
