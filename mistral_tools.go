// mistral_tools.go - what a model may call, its calls, and what they give.
// Needs: Go 1.25.
// SPDX-License-Identifier: 0BSD

package main

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// ToolCall is a model's request to call a function. Its JSON form is the API's.
type ToolCall struct {
	ID, Name  string
	Arguments string          // should be a JSON object, is not checked; "" is sent as "{}"
	Extra     json.RawMessage // the member extra_content (Gemini signs calls there), as it came
	ExtraHost string          // the host that sent Extra: only it gets Extra back, because others refuse it
}

func (c ToolCall) MarshalJSON() ([]byte, error) {
	wire := wireCall{ID: looseText(c.ID), Type: "function", Extra: c.Extra, ExtraHost: c.ExtraHost}
	wire.Function.Name, wire.Function.Arguments = c.Name, looseText(cmp.Or(c.Arguments, "{}"))
	return wireJSON(wire)
}

func (c *ToolCall) UnmarshalJSON(b []byte) error {
	var wire wireCall
	err := json.Unmarshal(b, &wire)
	*c = wire.call()
	c.Arguments = string(replaceSurrogates([]byte(c.Arguments)))
	return err
}

// wireCall is a ToolCall on the wire, whole or a fragment of a stream.
type wireCall struct {
	Index    looseText `json:"index,omitempty"` // in streams only
	ID       looseText `json:"id"`
	Type     string    `json:"type"`
	Function struct {
		Name      string    `json:"name"`
		Arguments looseText `json:"arguments"`
	} `json:"function"`
	Extra     json.RawMessage `json:"extra_content,omitempty"`
	ExtraHost string          `json:"extra_host,omitempty"` // in saved histories only
}

func (w *wireCall) call() ToolCall {
	call := ToolCall{string(w.ID), w.Function.Name, string(w.Function.Arguments), w.Extra, w.ExtraHost}
	if call.ID == "null" { // the word: the default that the API documents
		call.ID = ""
	}
	return call
}

// looseText is a string. Some servers send another value, for example a number or an object: it is kept as it stands.
type looseText string

func (t *looseText) UnmarshalJSON(b []byte) error {
	if json.Unmarshal(b, (*string)(t)) != nil {
		*t = looseText(b)
	}
	return nil
}

// Function is a tool as it is offered to the model. It marshals to the API's form of a tool.
type Function struct {
	Name        string          // matches ^[a-zA-Z0-9_-]{1,64}$
	Description string          // may be empty
	Parameters  json.RawMessage // an object's JSON Schema, of draft 7, with type and properties; nil: no parameters
	ReadOnly    bool            // calls change nothing; the API is not told
}

func (f Function) MarshalJSON() ([]byte, error) {
	function := map[string]any{"name": f.Name, "description": f.Description, "parameters": f.Parameters}
	if len(f.Parameters) == 0 || string(f.Parameters) == "null" {
		function["parameters"] = json.RawMessage(`{"properties":{},"type":"object"}`)
	}
	return wireJSON(map[string]any{"type": "function", "function": function})
}

// callID returns id if Mistral takes it as the id of a call, or one that it takes, the same one for the same id.
func callID(id string) string {
	if acceptedID.MatchString(id) {
		return id
	}
	return fmt.Sprintf("%x", sha256.Sum256([]byte(id)))[:9]
}

var acceptedID = regexp.MustCompile(`^[a-zA-Z0-9]{9}$`)

// ToolOutput is the outcome of a call that reached its tool.
type ToolOutput struct {
	Text    string   // what the model reads
	Images  []string // what the model sees, if it can: see ChatMessage
	IsError bool     // the tool itself reports that it failed
	Result  any      // what the Toolbox makes of it, for Observe; the agent does not read it
}

// ParseArguments returns a call's arguments as a JSON object to send on, "{}" if there are none, and a key that is the
// same for objects that differ only in white space and the order of members. Numbers are compared as they are written.
func ParseArguments(text string) (object, key string, err error) {
	if text = strings.TrimSpace(text); text == "" || text == "null" { // the two forms of no arguments
		text = "{}"
	}
	if err := json.Unmarshal([]byte(text), new(json.RawMessage)); err != nil {
		return "{}", "", fmt.Errorf("the arguments are not valid JSON (%w)", err)
	}
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber() // as float64, large numbers that differ would be equal
	var members map[string]any
	if decoder.Decode(&members) != nil {
		return "{}", "", errors.New("the arguments must be a JSON object")
	}
	canonical, err := json.Marshal(members) // sorts them
	return text, string(canonical), err
}

// Clip shortens text to limit bytes, three quarters of them from its head and the rest from its tail, cut between
// characters. A line between them, not counted in the limit, reports what is left out.
func Clip(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	fromHead, fromTail := max(0, limit*3/4), max(0, limit-limit*3/4)
	head := strings.ToValidUTF8(text[:fromHead], "")
	tail := strings.ToValidUTF8(text[len(text)-fromTail:], "")
	return fmt.Sprintf("%s\n[... %d bytes left out ...]\n%s", head, len(text)-len(head)-len(tail), tail)
}
