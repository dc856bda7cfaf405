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
	"math/rand/v2"
	"regexp"
	"strings"
)

// ToolCall is a model's request to call a function. Its JSON form is the API's.
type ToolCall struct {
	ID, Name  string
	Arguments string // should be a JSON object, is not checked; "" is sent as "{}"

	// Extra is the member extra_content as it came, in which Gemini signs calls. Only the host that
	// sent it, ExtraHost, gets it back, because others refuse it.
	Extra     json.RawMessage
	ExtraHost string
}

// MarshalJSON writes the form that Mistral has for a call.
func (c ToolCall) MarshalJSON() ([]byte, error) {
	wire := wireCall{
		ID:        looseText(c.ID),
		Type:      "function",
		Extra:     c.Extra,
		ExtraHost: c.ExtraHost,
	}
	wire.Function.Name = c.Name
	wire.Function.Arguments = looseText(cmp.Or(c.Arguments, "{}"))
	return wireJSON(wire)
}

// UnmarshalJSON takes the forms that servers have for the parts of a call; see looseText.
func (c *ToolCall) UnmarshalJSON(b []byte) error {
	var wire wireCall
	err := json.Unmarshal(b, &wire)
	if err != nil {
		return err
	}
	*c = wire.call()
	c.Arguments = string(replaceSurrogates([]byte(c.Arguments)))
	return nil
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

// call returns the call. The API documents the word null as the default of its id, which stands for
// no id.
func (w *wireCall) call() ToolCall {
	id := string(w.ID)
	if id == "null" {
		id = ""
	}
	return ToolCall{
		ID:        id,
		Name:      w.Function.Name,
		Arguments: string(w.Function.Arguments),
		Extra:     w.Extra,
		ExtraHost: w.ExtraHost,
	}
}

// looseText is a string. Some servers send another value in its place, for example a number or an
// object. That is kept as it stands.
type looseText string

func (t *looseText) UnmarshalJSON(b []byte) error {
	if json.Unmarshal(b, (*string)(t)) != nil {
		*t = looseText(b)
	}
	return nil
}

// Function is a tool as it is offered to the model. It marshals to the API's form of a tool.
type Function struct {
	Name        string // matches ^[a-zA-Z0-9_-]{1,64}$
	Description string // may be empty

	// Parameters is a JSON Schema of draft 7, of an object, with type and properties. Nil means
	// that there are no parameters.
	Parameters json.RawMessage

	// The API is not told the following.
	Title    string // for people; may be empty
	ReadOnly bool   // calls change nothing
	Pinned   bool   // it is to be offered also where many functions are not
}

// MaxFunctions is the number of functions that the API takes with one request.
const MaxFunctions = 128

// MaxOffer is how many bytes a model is offered of functions, by OfferSize. That is about half of
// what a model takes with a context of 128,000 tokens, and each request has it.
const MaxOffer = 256 << 10

// OfferSize returns the bytes of functions: their names, descriptions and parameters together.
func OfferSize(functions ...Function) int {
	size := 0
	for _, f := range functions {
		size += len(f.Name) + len(f.Description) + len(f.Parameters)
	}
	return size
}

// MarshalJSON writes the API's form of a tool. It wants parameters also of a function without any.
func (f Function) MarshalJSON() ([]byte, error) {
	function := map[string]any{
		"name":        f.Name,
		"description": f.Description,
		"parameters":  f.Parameters,
	}
	if len(f.Parameters) == 0 || string(f.Parameters) == "null" {
		function["parameters"] = json.RawMessage(`{"properties":{},"type":"object"}`)
	}
	return wireJSON(map[string]any{"type": "function", "function": function})
}

// GiveIDs gives another id to each call of a message that has none, or that of a call before it:
// the results could not be told apart.
func GiveIDs(calls []ToolCall) {
	taken := map[string]bool{"": true}
	for i := range calls {
		call := &calls[i]
		for taken[call.ID] {
			// Mistral takes an id of nine digits.
			call.ID = fmt.Sprintf("%09d", rand.N(1_000_000_000))
		}
		taken[call.ID] = true
	}
}

// callID returns id if Mistral takes it as the id of a call. Otherwise it returns one that Mistral
// takes, always the same for the same id: a call and its result have to match, in every request.
func callID(id string) string {
	if acceptedID.MatchString(id) {
		return id
	}
	return fmt.Sprintf("%x", sha256.Sum256([]byte(id)))[:9]
}

// acceptedID matches what Mistral takes as the id of a call.
var acceptedID = regexp.MustCompile(`^[a-zA-Z0-9]{9}$`)

// ToolOutput is the outcome of a call that reached its tool.
type ToolOutput struct {
	Text    string   // what the model reads
	Images  []string // what the model sees, if it can: see ChatMessage
	IsError bool     // the tool itself reports that it failed
	Result  any      // what the Toolbox makes of it, for Observe; the agent does not read it
}

// ParseArguments returns a call's arguments as a JSON object to send on, and a key that is the same
// for objects that differ only in white space and the order of members. Numbers are compared as
// they are written. Models write no arguments as "" or null, which are {}.
func ParseArguments(text string) (object, key string, err error) {
	text = strings.TrimSpace(text)
	if text == "" || text == "null" {
		text = "{}"
	}
	if err := json.Unmarshal([]byte(text), new(json.RawMessage)); err != nil {
		return "", "", fmt.Errorf("the arguments are not valid JSON (%w)", err)
	}
	decoder := json.NewDecoder(strings.NewReader(text))
	// As float64, large numbers that differ would be equal.
	decoder.UseNumber()
	var members map[string]any
	if decoder.Decode(&members) != nil {
		return "", "", errors.New("the arguments must be a JSON object")
	}
	sorted, err := json.Marshal(members)
	if err != nil {
		return "", "", err
	}
	return text, string(sorted), nil
}

// Clip leaves out the middle of a text that is longer than limit bytes. Three quarters of what
// stays are its head, the rest its tail, both cut between characters. A line between them, not
// counted in the limit, reports how much is left out.
func Clip(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	limit = max(0, limit)
	fromHead := limit * 3 / 4
	fromTail := limit - fromHead
	head := strings.ToValidUTF8(text[:fromHead], "")
	tail := strings.ToValidUTF8(text[len(text)-fromTail:], "")
	leftOut := len(text) - len(head) - len(tail)
	return fmt.Sprintf("%s\n[... %d bytes left out ...]\n%s", head, leftOut, tail)
}
