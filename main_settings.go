// main_settings.go - the flags and the environment of a run, as plain values.
// SPDX-License-Identifier: 0BSD

package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"
)

const defaultSystem = "You answer questions with the help of tools. Call a tool when it can know " +
	"what you do not; say which source an answer comes from; say so when the tools do not have it."

const defaultModel = "mistral-large-latest"

// settings are the values of the flags and the environment of a run. They are read first, and
// nothing changes them afterwards: the model that a user chooses in a chat is kept by modelChoice.
type settings struct {
	model       modelSettings
	servers     serverSettings
	asking      askingSettings
	output      outputSettings
	serve       serveSettings
	showVersion bool            // -version
	cancelTask  bool            // -cancel
	given       map[string]bool // the flags that are given, by name
}

// modelSettings say which model answers, and how.
type modelSettings struct {
	name        string
	isNamed     bool     // the user has named it
	key         string   // never shown
	baseURL     string   // of the API; empty for Mistral's
	ollamaURL   string   // of models whose names begin with ollama
	system      string   // the system prompt
	temperature *float64 // nil leaves it to the API
	maxTokens   int      // 0 leaves it to the API
}

// serverSettings say which servers there are, and how long they may take.
type serverSettings struct {
	config       string      // the file that -config names
	configBy     string      // -config or MCP_CONFIG, whichever named the file
	trust        bool        // the folder's configuration is trusted without a question
	only         string      // the only server, if not empty: a command line, or a URL
	headers      http.Header // for the URL
	protocol     string      // a revision, or auto
	timeout      time.Duration
	startTimeout time.Duration // 0 leaves it to each server
	maxQuestions int           // of a server, during a request to it
	trace        string        // a file, 1 for stderr, or empty or 0 for none
}

// askingSettings are about a question and its calls.
type askingSettings struct {
	session    string // the file that -session names
	goOn       bool   // -c
	noHistory  bool   // nothing of a chat is kept
	approve    string // ask, always, never, or empty for ask
	maxTurns   int
	maxRepeats int
	maxResult  int // in bytes
	maxTools   int // in bytes
	maxSamples int
}

// outputSettings say what becomes of results.
type outputSettings struct {
	file  string // the file that -o names, or - for stdout
	find  string // the words of -find
	json  bool
	quiet bool // nothing but the answer
	raw   bool // markdown is not laid out
}

// serveSettings are those of the command serve.
type serveSettings struct {
	address string // where it listens; empty for stdio
	maxFile int    // MiB of a file that it reads; 0 for the library's limit
}

// flags returns all flags. The usage of a flag begins with the variable that also sets it, or with
// a blank if there is no variable. The help shows both.
func (s *settings) flags() *flag.FlagSet {
	f := flag.NewFlagSet("mcpagent", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	s.model.addFlags(f)
	s.servers.addFlags(f)
	s.asking.addFlags(f)
	s.output.addFlags(f)
	s.serve.addFlags(f)
	f.BoolVar(&s.cancelTask, "cancel", false, " with tasks ID: end the task")
	f.BoolVar(&s.showVersion, "version", false, " the same as the command version")
	f.BoolVar(&s.showVersion, "V", false, " the same as -version")
	return f
}

// addFlags adds the flags of the model. In this and the other addFlags, the usage has the default
// in brackets. If the default is left to the API, to a server or to the library, the value stays 0.
func (m *modelSettings) addFlags(f *flag.FlagSet) {
	f.StringVar(&m.name, "model", "", "MISTRAL_MODEL "+defaultModel+", ollama:NAME, …")
	f.StringVar(&m.name, "m", m.name, " the same as -model")
	f.StringVar(&m.system, "system", defaultSystem,
		"MCP_SYSTEM the system prompt; @FILE reads it from a file")
	f.Func("temperature",
		fmt.Sprintf("MISTRAL_TEMPERATURE from 0, for the likeliest words, to %v (the API's)",
			MaxTemperature),
		m.setTemperature)
	f.Func("max-tokens",
		"MISTRAL_MAX_TOKENS tokens of each message of the model (the API's)",
		number(&m.maxTokens, 0))
}

func (s *serverSettings) addFlags(f *flag.FlagSet) {
	f.StringVar(&s.config, "config", "",
		"MCP_CONFIG a file of mcpServers (./.mcp.json, ~/.mcp.json, ~/.mcphost.json)")
	f.BoolVar(&s.trust, "trust", false,
		"MCP_TRUST 1: start the servers of ./.mcp.json without asking")
	f.StringVar(&s.only, "server", "",
		"MCP_SERVER one server instead: its URL, or [NAME=VALUE ...] COMMAND [ARG ...]")
	f.Func("protocol",
		"MCP_PROTOCOL MCP revision to offer (auto)",
		oneOf(&s.protocol, append([]string{"auto"}, Revisions()...)...))
	f.Func("max-questions",
		"MCP_MAX_QUESTIONS questions a server may ask during one request (50)",
		number(&s.maxQuestions, 50))
	f.Func("timeout",
		"MCP_TIMEOUT time of a request without progress (30m)",
		duration(&s.timeout, 30*time.Minute))
	f.Func("start-timeout",
		"MCP_START_TIMEOUT time for a server to start (30s; 5m for npx, docker, …)",
		duration(&s.startTimeout, 0))
	f.StringVar(&s.trace, "trace", "",
		"MCP_TRACE print all messages, including the model's: 1 for stderr, or a file")
}

func (a *askingSettings) addFlags(f *flag.FlagSet) {
	f.Func("approve",
		"MCP_APPROVE whether the model's calls need approval: ask, always, never",
		oneOf(&a.approve, "ask", "always", "never"))
	f.Func("max-turns",
		"MCP_MAX_TURNS model turns per question (20)",
		number(&a.maxTurns, 20))
	f.Func("max-repeats",
		"MCP_MAX_REPEATS equal calls with equal results (10)",
		number(&a.maxRepeats, 10))
	f.Func("max-result",
		"MCP_MAX_RESULT bytes of a result that the model gets (65536)",
		number(&a.maxResult, 65536))
	f.Func("max-tools",
		"MCP_MAX_TOOLS bytes of tools that the model is offered at once (262144)",
		number(&a.maxTools, MaxOffer))
	f.Func("max-samples",
		"MCP_MAX_SAMPLES servers' requests to the model per question (20)",
		number(&a.maxSamples, 20))
	f.StringVar(&a.session, "session", "",
		" a file: continue the conversation in it, and save it there")
	f.BoolVar(&a.goOn, "c", false, " continue the last chat of this folder")
	f.BoolVar(&a.noHistory, "no-history", false,
		"MCP_NO_HISTORY 1: keep neither the chat nor what is typed in it")
}

func (o *outputSettings) addFlags(f *flag.FlagSet) {
	f.StringVar(&o.file, "o", "",
		" the file for a result's images and other bytes, or else its text; - for stdout")
	f.StringVar(&o.find, "find", "",
		" search words: tools lists only those that match them best")
	f.BoolVar(&o.json, "json", false, " machine-readable output")
	f.BoolVar(&o.quiet, "q", false, " print only the answer")
	f.BoolVar(&o.raw, "raw", false,
		" show answers on a terminal as they come, without laying out markdown")
}

func (s *serveSettings) addFlags(f *flag.FlagSet) {
	f.Func("http",
		" where serve listens: HOST:PORT, or :PORT for this machine alone (stdio)",
		s.setAddress)
	f.Func("max-file",
		" largest file that serve reads, in MiB; all files together 128 times as much (2)",
		number(&s.maxFile, 0))
}

// readKey reads the key of the model's API, and its address. The key has no flag, as every user of
// a machine can read the arguments of its processes. It is read first of all: an error in a flag
// may repeat the key, and from now on nothing shows it.
func (m *modelSettings) readKey(secrets *Secrets) {
	m.key = os.Getenv("MISTRAL_API_KEY")
	secrets.Add("[key]", m.key)
	m.baseURL = os.Getenv("MISTRAL_BASE_URL")
	secrets.AddVariable("MISTRAL_BASE_URL", m.baseURL)
}

// addProxies adds the passwords of proxies to the secrets: servers get these variables, too, and a
// message may repeat one. A proxy is often given without a scheme.
func addProxies(secrets *Secrets) {
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"} {
		for _, name := range []string{name, strings.ToLower(name)} {
			proxy := os.Getenv(name)
			if proxy != "" && !strings.Contains(proxy, "://") {
				proxy = "http://" + proxy
			}
			secrets.AddVariable(name, proxy)
		}
	}
}

// checkCommand reports flags that do not go with a command; "" stands for a question.
func (s *settings) checkCommand(name string) error {
	isQuestion := name == ""
	switch {
	case s.serve != (serveSettings{}) && name != "serve":
		return usageError("-http and -max-file go with serve")
	case s.output.file != "" && !isQuestion && name != "call" && name != "read":
		return usageError("-o goes with call, read, or a question")
	case s.output.find != "" && name != "tools":
		return usageError("-find goes with tools")
	case s.cancelTask && name != "tasks":
		return usageError("-cancel goes with tasks")
	case !isQuestion:
		return s.asking.checkNoQuestion()
	case s.asking.goOn && s.asking.session != "":
		return usageError("-c and -session both choose a conversation: give only one")
	}
	return nil
}

// checkNoQuestion reports flags that go with a question alone.
func (a *askingSettings) checkNoQuestion() error {
	switch {
	case a.session != "":
		return usageError("-session goes with a question")
	case a.goOn:
		return usageError("-c goes with a question or a chat")
	}
	return nil
}

// finish makes the settings whole, when the flags have been parsed. It reads the variables of the
// flags that are not given, and the files that the settings refer to, and reports mistakes. The
// commands help, version and serve do not need it.
func (s *settings) finish(
	ctx context.Context,
	f *flag.FlagSet,
	in *textInput,
	secrets *Secrets,
) error {
	given, err := readVariables(f)
	if err != nil {
		return err
	}
	s.given = given
	if s.asking.goOn && s.asking.noHistory {
		return usageError("-c needs a saved chat, and -no-history or MCP_NO_HISTORY saves none: " +
			"use -session FILE")
	}
	m := &s.model
	m.isNamed = m.name != ""
	m.name = cmp.Or(m.name, defaultModel)
	m.ollamaURL = "http://localhost:11434/v1"
	if strings.HasPrefix(m.name, ollama) && m.baseURL != "" {
		// The address is that of an Ollama elsewhere, which must not get the key of Mistral.
		m.ollamaURL, m.key = m.baseURL, ""
	}
	s.servers.configBy = givenBy(given, "config", "MCP_CONFIG")
	if s.servers.config != "" && s.servers.only != "" {
		return usageError("MCP_CONFIG and MCP_SERVER both choose the servers: give only one")
	}
	if err := s.servers.readHeaders(os.Getenv("MCP_HEADERS"), secrets); err != nil {
		return err
	}
	system, err := in.argument(ctx, m.system)
	if err != nil {
		return fmt.Errorf("%s: %w", givenBy(given, "system", "MCP_SYSTEM"), err)
	}
	m.system = system
	return nil
}

// givenBy names the flag if it is given, or else the variable.
func givenBy(given map[string]bool, flag, variable string) string {
	if given[flag] {
		return "-" + flag
	}
	return variable
}

// readHeaders reads MCP_HEADERS, whose lines may be indented, as in a script.
func (s *serverSettings) readHeaders(text string, secrets *Secrets) error {
	s.headers = make(http.Header)
	isLineEnd := func(r rune) bool { return r == '\r' || r == '\n' }
	for _, line := range strings.FieldsFunc(text, isLineEnd) {
		if strings.TrimSpace(line) == "" {
			continue
		}
		if err := AddHeader(s.headers, line, secrets); err != nil {
			return usageError("MCP_HEADERS: %w", err)
		}
	}
	return nil
}

// setAddress reads the address of -http. For an address without a host, Go would listen on all
// networks. This program listens on this machine alone, so that nobody serves their files to others
// unawares.
func (s *serveSettings) setAddress(text string) error {
	host, port, err := net.SplitHostPort(text)
	if err != nil || port == "" {
		return errors.New("not an address such as :8080 or 127.0.0.1:8080")
	}
	s.address = net.JoinHostPort(cmp.Or(host, "127.0.0.1"), port)
	return nil
}
