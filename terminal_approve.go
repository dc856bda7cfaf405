// terminal_approve.go - the approval of a call: what the user sees of it, and what they may answer.
// SPDX-License-Identifier: 0BSD

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
)

// Approve asks whether a call may run, unless the user has allowed it for good.
//
// An answer that is none of those offered asks again, as does one that has changed the arguments:
// the user sees what will run before they allow it. Whoever does not answer, refuses.
func (t *Terminal) Approve(ctx context.Context, server, tool string, call ToolCall) Decision {
	ctx, release := t.Take(ctx)
	defer release()
	if ctx.Err() != nil {
		return Decision{Refuse, "nobody has answered"}
	}
	pair := [2]string{server, tool}
	if t.always[server] || t.always[pair] {
		return Decision{}
	}
	t.separate(ctx)
	a := approval{Terminal: t, server: server, tool: tool, arguments: call.Arguments}
	for {
		line, err := t.Ask(ctx, a.question())
		if err != nil {
			return Decision{Refuse, "the user said no"}
		}
		switch strings.ToLower(line) {
		case "y", "yes":
			return a.approved()
		case "n", "no":
			return Decision{Refuse, "the user said no"}
		case "a", "always":
			t.always[pair] = true
			return a.approved()
		case "s", "server":
			t.always[server] = true
			return a.approved()
		case "e", "edit":
			err = a.edit(ctx)
		case "p", "place":
			line, err = t.AskText(ctx, "your answer, for the model (nothing goes back):")
			if err == nil && line != "" {
				return Decision{Answer, line}
			}
		}
		if err != nil {
			return Decision{Refuse, "the user said no"}
		}
	}
}

// approval is a call that is to be approved, with the changes that the user has made.
type approval struct {
	*Terminal
	server, tool string
	arguments    string
	changed      bool   // the arguments are the user's
	draft        string // of other arguments, which are not valid; "" if there is none
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
		text = readableJSON(a.arguments, true)
	}
	draft, err := a.changeText(ctx, text)
	a.draft = draft
	object, _, bad := ParseArguments(draft)
	if bad != nil {
		a.screen.Tell(Look{Style: Red}, bad.Error())
	} else if draft != "" {
		a.arguments, a.changed, a.draft = object, true, ""
	}
	return err
}

// changeText returns the arguments as the user changes them, in their editor if they have named
// one; "" if they do not. An editor that fails is reported, and the question is asked again.
func (a *approval) changeText(ctx context.Context, arguments string) (string, error) {
	command := a.EditorCommand()
	if command == "" {
		return a.AskText(ctx, "the arguments, a JSON object (an empty line keeps them):")
	}
	changed, err := a.inEditor(ctx, command, strings.TrimSpace(arguments)+"\n")
	if err != nil && ctx.Err() == nil {
		a.screen.Tell(Look{Style: Red}, err.Error())
	} else if strings.TrimSpace(changed) == strings.TrimSpace(arguments) {
		changed = ""
	}
	return changed, context.Cause(ctx)
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
	text := "Call " + a.quote(a.tool)
	if a.server != "" {
		about = append(about, Paragraph{Look{Frame: "  server     "}, OneName(a.server)})
		text += " of " + a.quote(a.server)
	}
	about = append(about, Paragraph{Look{Frame: "  tool       "}, OneName(a.tool)})
	// Arguments stand on one line if it has room for them, and else have a line for each value.
	shown, texts := a.texts(readableJSON(a.arguments, false))
	if Width("  arguments  "+shown) > a.screen.Columns() {
		shown, texts = a.texts("\n" + readableJSON(a.arguments, true))
	}
	about = append(about, Paragraph{Look{Frame: "  arguments  "}, shown})
	return Question{
		About: append(about, texts...),
		Text: text + "? [y]es / [n]o / [a]lways this tool / always this [s]erver / " +
			"[e]dit arguments / answer in its [p]lace:",
	}
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
