// terminal_approve.go - the approval of a call: what the user sees of it, and what they may answer.
// SPDX-License-Identifier: 0BSD

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
)

// ServerTool is a tool of a server, by their names.
type ServerTool struct{ Server, Tool string }

// ApprovalRequest is a call that the user is asked about.
type ApprovalRequest struct {
	ServerTool
	Arguments string // a JSON object

	// ReadOnly are the tools of the server that it marks as read-only, if this is one of them. The
	// mark is the server's word, so what the user allows by it is shown name by name.
	ReadOnly []string

	// Versions tell the tools, by their names, from others that the server may put in their place:
	// of this tool, and of ReadOnly. A tool of another version than was allowed is asked about.
	Versions map[string]string

	// IsChanged says that the user has allowed another version of this tool for later runs.
	IsChanged bool

	// Keep, if set, keeps for later runs that the tool is always allowed.
	Keep func() error

	// Quit, if set, ends the chat, for a user who types /quit here. The call is not made.
	Quit func()
}

// Approve asks whether a call may run, unless the user has allowed it for this run.
//
// An answer that is none of those offered asks again, as does one that has changed the arguments:
// the user sees what will run before they allow it. Whoever does not answer, refuses.
func (t *Terminal) Approve(ctx context.Context, r *ApprovalRequest) Decision {
	ctx, release := t.Take(ctx)
	defer release()
	if ctx.Err() != nil {
		return Decision{Refuse, "nobody has answered"}
	}
	a := approval{Terminal: t, request: r, arguments: r.Arguments}
	if a.isAllowed() {
		return Decision{}
	}
	t.separate(ctx)
	question := a.question()
	for {
		line, err := t.Ask(ctx, question)
		if err != nil {
			return Decision{Refuse, "the user said no"}
		}
		switch key := a.keyFor(line); key {
		case "y":
			return a.approved()
		case "n", "/quit":
			return a.refused(key)
		case "a", "k", "s":
			a.allow(key)
			return a.approved()
		case "e":
			err = a.edit(ctx)
			question = a.question()
		case "p":
			line, err = t.AskText(ctx, "your answer, for the model (nothing goes back):")
			if err == nil && line != "" {
				return Decision{Answer, line}
			}
			question = a.question()
		case "?":
			question = a.keyQuestion()
			question.About = a.meanings()
		default:
			question = a.keyQuestion()
		}
		if err != nil {
			return Decision{Refuse, "the user said no"}
		}
	}
}

// Always returns what the user has allowed for this run, in the order of the names.
func (t *Terminal) Always(ctx context.Context) []ServerTool {
	_, release := t.Take(ctx)
	defer release()
	byName := func(a, b ServerTool) int {
		order := strings.Compare(a.Server, b.Server)
		if order == 0 {
			order = strings.Compare(a.Tool, b.Tool)
		}
		return order
	}
	return slices.SortedFunc(maps.Keys(t.always), byName)
}

// AskAgain takes back that a tool is allowed for this run.
func (t *Terminal) AskAgain(ctx context.Context, tool ServerTool) {
	_, release := t.Take(ctx)
	defer release()
	delete(t.always, tool)
}

// approval is a call that is to be approved, with the changes that the user has made.
type approval struct {
	*Terminal
	request   *ApprovalRequest
	arguments string
	changed   bool   // the arguments are the user's
	draft     string // of other arguments, which are not valid; "" if there is none
}

// isAllowed reports whether the user has allowed the tool for this run, as it is now.
func (a *approval) isAllowed() bool {
	version, isAllowed := a.always[a.request.ServerTool]
	return isAllowed && version == a.request.Versions[a.request.Tool]
}

// isChanged reports whether the user has allowed another version of the tool.
func (a *approval) isChanged() bool {
	version, isAllowed := a.always[a.request.ServerTool]
	return a.request.IsChanged || isAllowed && version != a.request.Versions[a.request.Tool]
}

// approvalKey is an answer to the question whether a call may run.
type approvalKey struct {
	key, word string
	label     string // in the question
	meaning   string // all of what it does
}

// keys returns the answers that this call may have.
func (a *approval) keys() []approvalKey {
	name := a.name()
	keys := []approvalKey{
		{"y", "yes", "[y]es", "make this call"},
		{"n", "no", "[n]o", "do not make it; the model is told"},
		{"a", "always", "[a]lways this tool",
			"make it, and no longer ask about " + name + ", whatever its arguments, in this run"},
	}
	if a.request.Keep != nil {
		keys = append(keys, approvalKey{"k", "keep", "[k]eep for later runs",
			"the same, and in later runs, too"})
	}
	// Where this is the only tool that reads, always says the same.
	if tools := a.readOnly(); len(tools) > 1 {
		label := "[s] all " + fmt.Sprint(len(tools)) + " read-only tools"
		keys = append(keys, approvalKey{"s", "server", label,
			"make it, and in this run no longer ask about the tools that the server says " +
				"only read: " + OneNames(tools)})
	}
	return append(keys,
		approvalKey{"e", "edit", "[e]dit", "change the arguments, then ask again"},
		approvalKey{"p", "place", "answer in its [p]lace",
			"type what the model gets as the result; no call is made"})
}

// readOnly returns the tools that one answer may allow. One that has changed since the user allowed
// it is left out: they are told of that when it is called.
func (a *approval) readOnly() []string {
	var tools []string
	for _, tool := range a.request.ReadOnly {
		version, isAllowed := a.always[ServerTool{a.request.Server, tool}]
		isChanged := isAllowed && version != a.request.Versions[tool]
		if tool == a.request.Tool || !isChanged {
			tools = append(tools, tool)
		}
	}
	return tools
}

// IsQuit reports whether a word, without its slash, ends a chat, here or in other programs.
func IsQuit(word string) bool {
	return slices.Contains([]string{"bye", "exit", "q", "quit"}, word)
}

// keyFor returns the key of an answer, "" if it is none. Besides the keys there are ? and, where it
// ends something, /quit.
func (a *approval) keyFor(answer string) string {
	word, hasSlash := strings.CutPrefix(answer, "/")
	switch {
	case answer == "?":
		return answer
	case hasSlash && IsQuit(word) && a.request.Quit != nil:
		return "/quit"
	}
	for _, k := range a.keys() {
		if strings.EqualFold(answer, k.key) || strings.EqualFold(answer, k.word) {
			return k.key
		}
	}
	return ""
}

// allow notes what the user has allowed beyond this call. What is kept for later runs needs no note
// for this one, unless it could not be kept.
func (a *approval) allow(key string) {
	tools := []string{a.request.Tool}
	switch key {
	case "s":
		tools = a.readOnly()
	case "k":
		err := a.request.Keep()
		if err == nil {
			return
		}
		a.screen.Tell(Look{Style: Red}, "it is allowed in this run alone: "+err.Error())
	}
	for _, tool := range tools {
		a.always[ServerTool{a.request.Server, tool}] = a.request.Versions[tool]
	}
}

// keyQuestion asks again, by the keys alone: the call stands above.
func (a *approval) keyQuestion() Question {
	var letters []string
	for _, k := range a.keys() {
		letters = append(letters, k.key)
	}
	return Question{
		Text: a.name() + "? " + strings.Join(letters, "/") + ", or ? to explain them:",
	}
}

// meanings says what each key does.
func (a *approval) meanings() []Paragraph {
	about := []Paragraph{{Look{Style: Bold}, "The answers are"}}
	for _, k := range a.keys() {
		about = append(about, Paragraph{Look{Frame: "  " + k.key + "  "}, k.meaning})
	}
	if a.request.Quit != nil {
		about = append(about, Paragraph{Look{Frame: "  /quit  "}, "refuse it, and end the chat"})
	}
	return about
}

// refused makes no call, and ends the chat if that is the answer.
func (a *approval) refused(key string) Decision {
	if key == "/quit" {
		a.request.Quit()
	}
	return Decision{Refuse, "the user said no"}
}

// approved lets the call run, as it is now. The model is told if it is not the call that it wanted.
func (a *approval) approved() Decision {
	if a.changed {
		return Decision{Edit, a.arguments}
	}
	return Decision{}
}

// edit has the user change the arguments. What is not valid stays, to be mended at the next try.
func (a *approval) edit(ctx context.Context) error {
	text := a.draft
	if text == "" {
		text = a.laidOut()
	}
	changed, err := a.changeText(ctx, text)
	if changed == "" {
		// Nothing was changed, or nothing came back: what was typed before stays.
		return err
	}
	object, _, bad := ParseArguments(changed)
	if bad != nil {
		a.draft = changed
		a.screen.Tell(Look{Style: Red}, bad.Error()+"; [e]dit goes on with what you typed")
		return err
	}
	a.arguments, a.changed, a.draft = object, true, ""
	return err
}

// changeText returns the arguments as the user changes them: in their editor if they have named
// one, else in the line. It is "" if they do not. An editor that fails is reported, and the
// question is asked again.
func (a *approval) changeText(ctx context.Context, arguments string) (string, error) {
	command := a.EditorCommand()
	if command == "" {
		changed, err := a.EditText(ctx, "the arguments, a JSON object", arguments)
		return unlessSame(changed, arguments), err
	}
	changed, err := a.inEditor(ctx, command, strings.TrimSpace(arguments)+"\n")
	if err != nil && ctx.Err() == nil {
		a.screen.Tell(Look{Style: Red}, err.Error())
	}
	return unlessSame(changed, arguments), context.Cause(ctx)
}

// unlessSame returns a changed text, "" if it is the same as before.
func unlessSame(changed, before string) string {
	if strings.TrimSpace(changed) == strings.TrimSpace(before) {
		return ""
	}
	return changed
}

// inEditor returns a text as the user leaves it in an editor.
func (t *Terminal) inEditor(ctx context.Context, command, text string) (string, error) {
	path, err := SaveFile([]byte(text), "application/json")
	if err != nil {
		return "", err
	}
	defer os.Remove(path)
	if err = t.EditFile(ctx, command, path); err != nil {
		return "", err
	}
	changed, err := ReadNamed(ctx, path)
	return string(changed), err
}

// question is what the user sees of the call, all of it, and the question whether it may run.
//
// What stands above the question is the peer's, which might have written a question of its own
// there. So the question names the tool and its server again, in quotes that they cannot end.
func (a *approval) question() Question {
	about := []Paragraph{{Look{Style: Bold}, "The model wants to call"}}
	if a.request.Server != "" {
		about = append(about, Paragraph{Look{Frame: "  server     "}, OneName(a.request.Server)})
	}
	about = append(about, Paragraph{Look{Frame: "  tool       "}, OneName(a.request.Tool)})
	// Arguments stand on one line if it has room for them, and else have a line for each value.
	shown, texts := a.texts(readableJSON(a.arguments, false))
	if Width("  arguments  "+shown) > a.screen.Columns() {
		shown, texts = a.texts("\n" + readableJSON(a.arguments, true))
	}
	about = append(about, Paragraph{Look{Frame: "  arguments  "}, shown})
	about = append(about, texts...)
	if a.isChanged() {
		about = append(about, Paragraph{Look{Style: Bold}, a.name() + " has changed since you " +
			"allowed it: the server describes it, or its arguments, in another way"})
	}
	var labels []string
	for _, k := range a.keys() {
		labels = append(labels, k.label)
	}
	return Question{
		About: about,
		Text:  "Call " + a.name() + "? " + strings.Join(labels, " / ") + ":",
	}
}

// name returns the tool and its server, in quotes.
func (a *approval) name() string {
	name := a.quote(a.request.Tool)
	if a.request.Server != "" {
		name += " of " + a.quote(a.request.Server)
	}
	return name
}

// laidOut returns the arguments to be changed: in the line, if it has room for them, on one line.
func (a *approval) laidOut() string {
	text := readableJSON(a.arguments, false)
	isInEditor := a.EditorCommand() != ""
	if isInEditor || Width(text)+2 > a.screen.Columns() {
		text = readableJSON(a.arguments, true)
	}
	return text
}

// quote returns a name in quotes. No quote in it can end it, and the line does not break in it.
func (a *approval) quote(name string) string {
	name = a.screen.Name(name, min(a.screen.Columns()/3, 40))
	return `"` + strings.NewReplacer(`"`, "'", " ", "␣").Replace(name) + `"`
}

// texts returns JSON with a mark, which is not JSON, in place of each string that has several lines
// or does not fit one; and those strings, each below its mark. Tabs and carriage returns have a
// sign there.
func (a *approval) texts(arguments string) (shown string, texts []Paragraph) {
	signs := strings.NewReplacer("\t", "→ ", "\r", "␍")
	shown = jsonString.ReplaceAllStringFunc(arguments, func(quoted string) string {
		var text string
		if json.Unmarshal([]byte(quoted), &text) != nil {
			return quoted
		}
		hasLines := strings.Contains(strings.TrimRight(text, "\n"), "\n")
		if !hasLines && Width(quoted) <= a.screen.Columns() {
			return quoted
		}
		mark := fmt.Sprintf("text %d", len(texts)+1)
		frame := fmt.Sprintf("  %-9s  ", mark)
		texts = append(texts, Paragraph{Look{Frame: frame}, "\n" + signs.Replace(text)})
		return "(" + mark + ")"
	})
	return shown, texts
}

var jsonString = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)

// readableJSON returns JSON of the same meaning, with a line for each value if long: letters stand
// for themselves, and escapes for what cannot be seen.
func readableJSON(text string, long bool) string {
	var b bytes.Buffer
	if json.Compact(&b, []byte(text)) != nil {
		return EscapeUnseen(text)
	}
	if long {
		compact := bytes.Clone(b.Bytes())
		b.Reset()
		_ = json.Indent(&b, compact, "", "  ")
	}
	return jsonString.ReplaceAllStringFunc(b.String(), func(quoted string) string {
		var s string
		if json.Unmarshal([]byte(quoted), &s) != nil {
			return EscapeUnseen(quoted)
		}
		return EscapeUnseen(string(TextContent(s)))
	})
}
