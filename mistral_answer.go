// mistral_answer.go - a model's answer, read whole or as a stream of events.
// Needs: Go 1.25.
// SPDX-License-Identifier: 0BSD

package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// byteOrderMark may stand before all that a server says.
const byteOrderMark = "\ufeff"

// wireAnswer is an answer on the wire, whole or one event of a stream.
type wireAnswer struct {
	Error, Message, Detail any // of an error
	Model                  string
	Usage                  Usage
	Choices                []struct {
		Error        any          // of OpenRouter, beside half of an answer
		FinishReason string       `json:"finish_reason"`
		Message      *wireMessage // of a whole answer
		Delta        *wireMessage // of an event
	}
}

// wireMessage has the members of a message that go into the history. The API would refuse others.
type wireMessage struct {
	Content   Content    `json:"content"`
	ToolCalls []wireCall `json:"tool_calls"`

	// What a model thinks, in the words of vLLM and DeepSeek, and of Ollama and OpenRouter.
	// Mistral's has chunks of its own in the content.
	ReasoningContent json.RawMessage `json:"reasoning_content"`
	Reasoning        json.RawMessage `json:"reasoning"`
}

// isThinking reports whether a piece of a message is what the model thinks.
func (m *wireMessage) isThinking() bool {
	for _, text := range []json.RawMessage{m.ReasoningContent, m.Reasoning} {
		var piece string
		if json.Unmarshal(text, &piece) == nil && piece != "" {
			return true
		}
	}
	var chunks []struct{ Type string }
	_ = json.Unmarshal(m.Content, &chunks)
	return len(chunks) > 0 && chunks[0].Type == "thinking"
}

// isError reports whether the server tells of an error inside an answer. Some servers send an empty
// error beside a good answer, and a message or a detail beside choices is not an error.
func (a *wireAnswer) isError() bool {
	if saysSomething(a.Error) || len(a.Choices) > 0 && saysSomething(a.Choices[0].Error) {
		return true
	}
	return len(a.Choices) == 0 && (saysSomething(a.Message) || saysSomething(a.Detail))
}

func saysSomething(v any) bool { return v != nil && v != false && v != "" }

// readAnswer reads the answer to a request. Not every server can do both forms, so the one that
// came counts, whatever was requested.
func (m *Mistral) readAnswer(
	host string,
	resp *http.Response,
	in *bufio.Reader,
	onText func(string),
) (*ChatResponse, error) {
	// A stream may begin with a byte order mark (WHATWG HTML, 9.2.6), and JSON of Windows often
	// does. Where there are no three bytes, the reading below fails.
	beginning, _ := in.Peek(len(byteOrderMark))
	if string(beginning) == byteOrderMark {
		_, _ = in.Discard(len(byteOrderMark))
	}
	parts := &answerParts{host: host, byIndex: make(map[looseText]int)}
	kind := strings.ToLower(resp.Header.Get("Content-Type"))
	if !strings.HasPrefix(kind, "text/event-stream") {
		data, err := io.ReadAll(in)
		if err == nil {
			err = m.addEvent(parts, resp, streamEvent{data: data}, onText)
		}
		if err == nil && parts.Message.Role == "" {
			err = m.refusal(resp, data)
		}
		return parts.end(err)
	}
	for {
		event, err := nextEvent(in)
		if err != nil || string(event.data) == "[DONE]" {
			return parts.end(err)
		}
		err = m.addEvent(parts, resp, event, onText)
		if err != nil {
			return parts.end(err)
		}
	}
}

// addEvent adds an event of a stream, or a whole answer. The error is the server's.
// It comes after what else the event has: some servers send an error behind half of an answer, and
// that half counts as what arrived.
func (m *Mistral) addEvent(
	parts *answerParts,
	resp *http.Response,
	event streamEvent,
	onText func(string),
) error {
	var answer wireAnswer
	if json.Unmarshal(event.data, &answer) != nil {
		return m.refusal(resp, event.data)
	}
	text := parts.add(&answer)
	isPiece := len(answer.Choices) > 0 && answer.Choices[0].Delta != nil
	if isPiece && m.OnThinking != nil && answer.Choices[0].Delta.isThinking() {
		m.OnThinking()
	}
	if text != "" && onText != nil {
		onText(text)
	}
	if event.isError || answer.isError() {
		return m.refusal(resp, event.data)
	}
	return nil
}

// streamEvent is an event of a stream.
type streamEvent struct {
	data    []byte
	isError bool // the server calls it an error, so it is one, whatever its data looks like
}

// nextEvent returns a stream's next event that has data (WHATWG HTML, 9.2.6). Each line of data is
// taken for an event, since some servers omit the empty line after it. A line ends with CR, LF or
// CRLF. The LF of a CRLF counts as an empty line: to look ahead for it could wait for what the
// server sends only later. A line without an end is dropped.
//
// Until late 2025 llama.cpp sent its errors in a field called error, which the standard does not
// have, and then [DONE].
func nextEvent(in *bufio.Reader) (streamEvent, error) {
	var event streamEvent
	var line []byte
	for {
		c, err := in.ReadByte()
		if err != nil {
			return streamEvent{}, err
		}
		if c != '\r' && c != '\n' {
			line = append(line, c)
			continue
		}
		field, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimSpace(value)
		switch string(field) {
		case "event":
			event.isError = string(value) == "error"
		case "data":
			event.data = value
		case "error":
			event = streamEvent{value, true}
		}
		if len(event.data) > 0 {
			return event, nil
		}
		line = nil
	}
}

// answerParts is an answer that is being read. What arrives in small pieces is collected as bytes
// and becomes a part of the answer at its end: to join strings for each piece would take time that
// grows with the square of the answer.
type answerParts struct {
	// The answer so far, without the content and the calls' arguments. Its message has a role if
	// anything of the message has arrived.
	ChatResponse

	host      string            // of the server
	byIndex   map[looseText]int // the place in ToolCalls of each index's last call; "" is no index
	arguments [][]byte          // of the message's calls
	chunks    []any             // of the content
	text      []byte            // of strings after the chunks
}

// add adds an event, or a whole answer, and returns its text.
func (p *answerParts) add(answer *wireAnswer) string {
	p.Model = cmp.Or(answer.Model, p.Model)
	p.Usage = cmp.Or(answer.Usage, p.Usage)
	if len(answer.Choices) == 0 {
		// Some servers end with an event of usage alone.
		return ""
	}
	first := answer.Choices[0]
	p.Message.Role = "assistant"
	p.FinishReason = cmp.Or(first.FinishReason, p.FinishReason)
	message := cmp.Or(first.Message, first.Delta, &wireMessage{})
	for _, call := range message.ToolCalls {
		p.addCall(&call, first.Message != nil)
	}
	text := message.Content.Text()
	var chunks []json.RawMessage
	if json.Unmarshal(message.Content, &chunks) != nil {
		// The content is a string, or there is none.
		p.text = append(p.text, text...)
		return text
	}
	for _, chunk := range chunks {
		p.endText()
		p.chunks = append(p.chunks, chunk)
	}
	return text
}

// endText makes the strings after the last chunk one more chunk.
func (p *answerParts) endText() {
	if len(p.text) > 0 {
		p.chunks = append(p.chunks, map[string]string{"type": "text", "text": string(p.text)})
		p.text = nil
	}
}

// addCall adds a tool call, or a fragment of one to its call. Mistral sends each call whole. Other
// servers send the arguments in pieces: most with the call's index, some without, and some with
// index 0 for every call.
func (p *answerParts) addCall(wire *wireCall, isWhole bool) {
	fragment := wire.call()
	at, isKnown := p.byIndex[wire.Index]
	if isWhole || !isKnown || p.beginsCall(wire.Index, fragment, p.Message.ToolCalls[at]) {
		p.byIndex[wire.Index] = len(p.Message.ToolCalls)
		p.Message.ToolCalls = append(p.Message.ToolCalls, fragment)
		p.arguments = append(p.arguments, []byte(fragment.Arguments))
		return
	}
	// The id and the name may come with any of the fragments.
	call := &p.Message.ToolCalls[at]
	call.ID = cmp.Or(call.ID, fragment.ID)
	call.Name = cmp.Or(call.Name, fragment.Name)
	p.arguments[at] = append(p.arguments[at], fragment.Arguments...)
}

// beginsCall reports whether a fragment begins a new call, although there is a last one of its
// index. Another id shows that, and where there is neither index nor id, a name does.
func (p *answerParts) beginsCall(index looseText, fragment, last ToolCall) bool {
	if index == "" && fragment.ID == "" {
		return fragment.Name != ""
	}
	return fragment.ID != "" && last.ID != "" && fragment.ID != last.ID
}

// end returns the answer so far, nil if it has not begun, and the error that it has ended with. err
// is what the reading ended with.
func (p *answerParts) end(err error) (*ChatResponse, error) {
	err = p.endError(err)
	if err != nil {
		err = fmt.Errorf("no complete answer: %w", err)
	}
	if p.Message.Role == "" {
		return nil, err
	}
	p.endCalls()
	if p.chunks == nil {
		p.Message.Content = TextContent(string(p.text))
	} else {
		p.endText()
		// The chunks were decoded, so that they can be encoded.
		p.Message.Content, _ = wireJSON(p.chunks)
	}
	return &p.ChatResponse, err
}

// endError returns why the answer is not complete, nil if it is, or if nobody can know. A stream
// that ends with neither a finish_reason nor [DONE] was cut off on its way. With one of the two it
// counts as complete: not every server sends [DONE], and after [DONE] the server itself has ended
// the answer. The finish_reason can be an error.
func (p *answerParts) endError(err error) error {
	switch {
	case errors.As(err, new(*http.MaxBytesError)):
		return ErrTooLarge
	case err == nil && p.Message.Role == "", err == io.EOF && p.FinishReason == "":
		return io.ErrUnexpectedEOF
	case err != nil && err != io.EOF:
		return err
	case endingOf(p.FinishReason) == endFailed:
		return fmt.Errorf("the server ended it with finish_reason %q", p.FinishReason)
	}
	return nil
}

// endCalls completes the calls: each gets its arguments and an id of its own.
func (p *answerParts) endCalls() {
	calls := p.Message.ToolCalls
	for i := range calls {
		call := &calls[i]
		call.Arguments = string(replaceSurrogates(p.arguments[i]))
		call.ExtraHost = ""
		if call.Extra != nil {
			call.ExtraHost = p.host
		}
	}
	GiveIDs(calls)
}
