// main_completion.go - completion in a shell: a script for each, and the words that it asks for.
// SPDX-License-Identifier: 0BSD

package main

import (
	"context"
	"flag"
	"slices"
	"strings"
	"time"
)

// shellScripts are by the name of the shell. Each gives the command line up to the cursor to the
// command completion, and shows the words that this prints, or else files. Bash replaces only what
// follows the last = or : of a word.
func shellScripts() map[string]string {
	return map[string]string{
		"bash": `# In ~/.bashrc:  eval "$(mcpagent completion bash)"
_mcpagent() {
	local IFS=$'\n' line=${COMP_LINE:0:COMP_POINT}
	local word=${line##*[[:space:]]}
	local before=${word%"${word##*[=:]}"}
	COMPREPLY=($("$1" completion bash "$line" </dev/null 2>/dev/null))
	[[ ${COMPREPLY[0]-} != *[=:] ]] || compopt -o nospace 2>/dev/null
	COMPREPLY=("${COMPREPLY[@]#"$before"}")
}
complete -o default -F _mcpagent mcpagent
`,
		"zsh": `# In ~/.zshrc, after compinit:  source <(mcpagent completion zsh)
_mcpagent() {
	local -a found
	found=("${(@f)$($words[1] completion zsh "${(j: :)words[1,CURRENT]}" </dev/null 2>/dev/null)}")
	found=(${found:#})
	if (( ! $#found )); then
		_files
		return
	fi
	compadd -S '' -- ${(M)found:#*[=:]}
	compadd -- ${found:#*[=:]}
}
compdef _mcpagent mcpagent
`,
		"fish": `# mcpagent completion fish >~/.config/fish/completions/mcpagent.fish
function __mcpagent_words
	set -l line (commandline -cp | string collect)
	set -l found (mcpagent completion fish "$line" </dev/null 2>/dev/null)
	if test (count $found) -gt 0
		printf '%s\n' $found
	else
		__fish_complete_path (commandline -ct)
	end
end
complete -c mcpagent -f -a '(__mcpagent_words)'
`,
	}
}

// completionTime is how long a person who has pressed Tab waits for servers to start.
const completionTime = 3 * time.Second

// completion prints the script of a shell, or what the last word of a command line may become.
func (p *program) completion(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return usageError("completion takes a shell: bash, zsh or fish")
	}
	script := shellScripts()[args[0]]
	switch {
	case script == "":
		return usageError("there is no completion for %s: it is for bash, zsh and fish", args[0])
	case len(args) == 1:
		return p.output.print(script)
	}
	ctx, cancel := context.WithTimeout(ctx, completionTime)
	defer cancel()
	text := ""
	for _, word := range p.completed(ctx, args[1]) {
		// A shell would take any other name apart.
		isPlain := OneName(word) == word && !strings.ContainsAny(word, "'$&;<>|*?[]{}!`#~")
		if isPlain {
			text += word + "\n"
		}
	}
	return p.output.print(text)
}

// completed returns what the last word of a command line may become: nothing where that is not
// known, and the shell shows files. The flags before it count, as they say which servers there are.
func (p *program) completed(ctx context.Context, line string) []string {
	begin := strings.LastIndexAny(line, " \t\n") + 1
	words, err := SplitWords(line[:begin])
	if err != nil || len(words) == 0 {
		return nil
	}
	word := line[begin:]
	flags := p.settings.flags()
	operands, pending := readTyped(flags, words[1:])
	var all []string
	switch {
	case pending == "approve":
		all = []string{"ask", "always", "never"}
	case pending == "protocol":
		all = append(Revisions(), "auto")
	case pending != "":
		return nil
	case strings.HasPrefix(word, "-"):
		flags.VisitAll(func(f *flag.Flag) { all = append(all, "-"+f.Name) })
	case len(operands) == 0 || len(operands) == 1 && operands[0] == "help":
		for _, c := range p.commands() {
			all = append(all, c.name)
		}
	case operands[0] == "completion" && len(operands) == 1:
		all = []string{"bash", "zsh", "fish"}
	default:
		all = p.ofServers(ctx, flags, operands, word)
	}
	return slices.DeleteFunc(all, func(w string) bool { return !strings.HasPrefix(w, word) })
}

// readTyped reads the flags of a command line that is not whole yet, and returns the other words.
// pending is the flag that waits for its value, or "".
func readTyped(flags *flag.FlagSet, words []string) (operands []string, pending string) {
	for _, word := range words {
		name, value, hasValue := strings.Cut(strings.TrimLeft(word, "-"), "=")
		f := flags.Lookup(name)
		switch {
		case pending != "":
			_ = flags.Set(pending, word)
			pending = ""
		case !strings.HasPrefix(word, "-") || f == nil:
			operands = append(operands, word)
		case hasValue:
			_ = flags.Set(name, value)
		default:
			isBool, ok := f.Value.(interface{ IsBoolFlag() bool })
			if !ok || !isBool.IsBoolFlag() {
				pending = name
			}
		}
	}
	return operands, pending
}

// ofServers returns what a command may take of what the servers have. It starts them for that,
// where they may be started without a question to the user. It starts no command that stands in the
// line: that line has not been entered.
func (p *program) ofServers(
	ctx context.Context,
	flags *flag.FlagSet,
	operands []string,
	word string,
) []string {
	if p.settings.servers.only != "" && !strings.Contains(p.settings.servers.only, "://") {
		return nil
	}
	if p.settings.finish(ctx, flags, p.input, p.output.screen.Secrets) != nil {
		return nil
	}
	p.settings.servers.trace = ""
	closeServers, err := p.servers.open(ctx)
	if err != nil {
		return nil
	}
	defer closeServers()
	return p.serverCommands.catalog.candidates(ctx, operands[0], operands[1:], word)
}
