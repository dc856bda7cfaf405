// offline_words.go - what people say, in the words of this program's pages.
// SPDX-License-Identifier: 0BSD

package main

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
)

// Rephrase puts the words of this program's pages in the place of those that people have for the
// same: who asks for a thing often has none of the words of its author. It is for questions to a
// SourceLibrary: in other texts the words may mean other things, and who searches code means the
// very word. Unlike Alternatives it takes the first words away, as they would lead elsewhere.
func Rephrase(question string) string {
	ofPages := make(map[string]string)
	for line := range strings.Lines(peoplesWords) {
		page, words, _ := strings.Cut(strings.TrimSpace(line), ": ")
		for word := range strings.SplitSeq(words, ", ") {
			ofPages[word] = page
		}
	}
	var words []string
	for word := range ofPages {
		words = append(words, regexp.QuoteMeta(word))
	}
	// Of two that begin alike, the longer one says more.
	slices.SortFunc(words, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	phrase := regexp.MustCompile(`(?i)\b(?:` + strings.Join(words, "|") + `)\b`)
	return phrase.ReplaceAllStringFunc(question, func(word string) string {
		return ofPages[strings.ToLower(word)]
	})
}

// peoplesWords has on each line words of the pages, and what people say for them of any such
// program.
const peoplesWords = `approval: confirmation prompts, confirmations, confirmation, popup, popups
approval: permission prompts, ask me, asks me, asking me, without asking, stop asking, keeps asking
block a tool: keep the model from using, forbid, prevent the model, disallow, blacklist
chat: in a row, follow-up, follow up, back and forth, interactively
change the model: switch the model, switch models, another model, different model
colours: ansi, escape codes
configuration file: config file, example config, config example, settings file, my settings
continue a conversation: remember, remembers, forgets, resume, keep a conversation going, pick up
cost: pay, paying, price, pricing, subscription, bill, money, expensive
data sent: privacy, confidential, leak, leaks, telemetry, tracking, gdpr
delete my files: change my files, damage, overwrite my files, dangerous, harm
dies: crash, crashes, crashed
error code: error number
exit status: exit code, exit codes, return code, error level, return to the shell
get started: where do i begin, where to begin, example, tutorial, quick start, quickstart, beginner
hangs: stuck, freezes, frozen, hanging, blocks forever, unresponsive
history: past chats, old chats
keys edit a question: keyboard shortcuts, shortcuts, hotkeys, key bindings
large results: huge results, huge result, large output, truncate, truncates, truncated
-json print: json output, output json, output as json
licence: commercial use, commercially, commercial, closed source, proprietary, copyright
local model: model on my own machine, model running on my own machine, model on my machine
log in: sign in, authenticate, login page, browser login
memory: ram
messages that are sent: debug, debugging, verbose, troubleshoot, diagnose, raw json, raw messages
messages that are sent: traffic, over the wire, sniff, packets
official SDK: go sdk, reinvent the wheel, from scratch
Ollama: lm studio, llama.cpp, vllm, self-hosted
OpenAI: chatgpt, gpt
proxy: firewall, corporate network, office network
read the files on my disk: access to a folder, access my files, access to files, local files
revision of the protocol: version of the mcp specification, version of the mcp spec, mcp version
revision of the protocol: protocol version, spec version
remote server: hosted server, server on the internet, cloud server
script: shell script, automation, automate
secret: credentials
server does not start: startup timeout, start timeout, before it's ready
set up a server: add a server, add another, add my own, configure a server, connect my own
set up a server: hook up, hook it up, connect it to my
stand on stdout: print statements, print() statements, prints to stdout
start a server: launch, spawn
timeout: time limit, take too long, takes too long
tokens: quota
turns of the model: max steps, number of steps, rounds, iterations
update: upgrade, newer version
update or remove: uninstall, get rid of it
vendor: as a library, embed it, import it, import the client
what can this program do: features, capable of, its purpose
where should I begin to read: start reading, understand the code, understand how the code works
why use MCP: why do we need a protocol, should i care, point of mcp
why use MCP: benefit, benefits, advantage, advantages
who are you: hello, hi, hey
write a server: create a server, build a server, make a server, develop a server
`
