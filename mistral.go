// mistral.go - chat completions of Mistral, and of servers that speak the same, over raw net/http.
// Needs: Go 1.25.
// SPDX-License-Identifier: 0BSD

package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ErrSilent ends a request whose server has sent nothing for maxSilence, before its answer or in the middle of it.
var ErrSilent = errors.New("the server was silent for 10 minutes")

// ErrTooLarge ends a request whose answer is larger than maxAnswer. The rest is not read.
var ErrTooLarge = errors.New("the answer is larger than 64 MiB")

const maxAnswer = 64 << 20
const maxSilence = 10 * time.Minute // long, because an answer that is not streamed begins only when it is complete

// APIError is an answer of the server that is not a completion. Its texts are one line each, and never hold the key.
type APIError struct {
	Status        int           // HTTP status; 200 where the error came inside an answer
	Message       string        // the server's own words, or the beginning of a body that has none
	Code          string        // the server's classification; may be empty
	CorrelationID string        // by which the server's operators find the request; may be empty
	RetryAfter    time.Duration // the wait that the server asks for; 0 or below if there is none
}

func (e *APIError) Error() string {
	text := strings.TrimSuffix(fmt.Sprintf("%d %s: %s", e.Status, http.StatusText(e.Status), e.Message), ": ")
	if e.Code != "" {
		text += " (code " + e.Code + ")"
	}
	if e.CorrelationID != "" {
		text += " (correlation id " + e.CorrelationID + ")"
	}
	return text
}

// Mistral talks to one chat-completions server. The zero value with a Model is usable, by several goroutines at once.
type Mistral struct {
	BaseURL  string                              // "" means https://api.mistral.ai/v1
	Key      string                              // sent as a bearer token if not empty
	Model    string                              // for example "mistral-large-latest"
	Client   *http.Client                        // nil: http.DefaultTransport's; redirects are never followed
	Insecure bool                                // allow the key over plain http to a host that is not this machine
	Tries    int                                 // of one request, at most; 0 means 5
	MaxWait  time.Duration                       // all waits between the tries of one request; 0 means 2 minutes
	OnRetry  func(err error, wait time.Duration) // if set, called after each failed try, before the wait for the next
}

// ChatMessage is one entry of a conversation. It marshals to the API's own form and back, so a history can be saved.
type ChatMessage struct {
	Role       string     `json:"role"`                   // system, user, assistant or tool
	Content    Content    `json:"content"`                // of a tool message: always a string
	ToolCalls  []ToolCall `json:"tool_calls,omitempty"`   // of an assistant message only
	ToolCallID string     `json:"tool_call_id,omitempty"` // of a tool message only: the call that it answers
	Name       string     `json:"name,omitempty"`         // of a tool message only: the function's
	Images     []string   `json:"images,omitempty"`       // of a user or tool message: data URLs; not sent as they are
}

// Content is a JSON string, or a list of chunks (text, thinking, reference, …). It has to be sent back as it came.
type Content json.RawMessage

// TextContent returns a content of the string s.
func TextContent(s string) Content {
	b, _ := wireJSON(s) // a string has an encoding
	return b
}

// Text returns what a reader sees of the content: the string, or its text chunks joined.
func (c Content) Text() string {
	var text string
	if json.Unmarshal(c, &text) == nil {
		return text
	}
	var chunks []struct{ Type, Text string }
	json.Unmarshal(c, &chunks) // a chunk of another form has no text, nor has a content of another form
	var b strings.Builder
	for _, chunk := range chunks {
		if chunk.Type == "text" {
			b.WriteString(chunk.Text)
		}
	}
	return b.String()
}

// MarshalJSON sends null, and no content, as "": beside tool calls the API takes both, older servers only "".
func (c Content) MarshalJSON() ([]byte, error) {
	if len(c) == 0 || string(c) == "null" {
		c = TextContent("")
	}
	return c, nil
}

func (c *Content) UnmarshalJSON(b []byte) error {
	*c = replaceSurrogates(b)
	return nil
}

var surrogate = regexp.MustCompile(`\\(?:u[dD][89abAB]..\\u[dD][c-fC-F]..|u[dD][89a-fA-F]..|.)`)

// replaceSurrogates returns a copy of JSON with U+FFFD for each half of a surrogate pair, which servers refuse.
func replaceSurrogates(text []byte) []byte {
	return surrogate.ReplaceAllFunc(text, func(escape []byte) []byte {
		if len(escape) == len(`\ud800`) { // half of a pair: a pair is longer, another escape is shorter
			return []byte(`\ufffd`)
		}
		return escape
	})
}

// ChatRequest asks for the next message of a conversation.
type ChatRequest struct {
	Messages    []ChatMessage `json:"messages"`              // the last one is the user's or a tool's
	Tools       []Function    `json:"tools,omitempty"`       // at most 128
	ToolChoice  string        `json:"tool_choice,omitempty"` // "auto" (as ""), "none" or "required"; needs tools
	Temperature *float64      `json:"temperature,omitempty"` // 0 to 1.5; nil leaves it to the server
	MaxTokens   int           `json:"max_tokens,omitempty"`  // of the answer; 0 leaves it to the server
}

// ChatResponse is the model's answer. Its ToolCalls alone say whether tools are to be called: servers say "stop"
// beside calls and "tool_calls" beside none. Each call has an id of its own, if necessary made here.
type ChatResponse struct {
	Message      ChatMessage // can go into the history as it is
	FinishReason string      // the server's: stop, tool_calls, length, model_length, error, …, or ""
	Model        string      // that answered, as the server names it
	Usage        Usage       // zero if the server does not say
}

// CutOff reports whether the answer ended at a length limit. Its last call may then be cut off too, even if valid.
func (r *ChatResponse) CutOff() bool {
	return r.FinishReason == "length" || r.FinishReason == "model_length"
}

// Usage counts tokens.
type Usage struct {
	PromptTokens     int `json:"prompt_tokens"`
	CompletionTokens int `json:"completion_tokens"`
	TotalTokens      int `json:"total_tokens"`
}

// UnmarshalJSON takes counts in the forms 12, 12.0 and "12". Any other is 0: it does not make an answer invalid.
func (u *Usage) UnmarshalJSON(b []byte) error {
	var members map[string]any
	_ = json.Unmarshal(b, &members)
	count := func(name string) int {
		f, _ := strconv.ParseFloat(fmt.Sprint(members[name]), 64)
		return int(f)
	}
	*u = Usage{count("prompt_tokens"), count("completion_tokens"), count("total_tokens")}
	return nil
}

// Add adds v to u.
func (u *Usage) Add(v Usage) {
	u.PromptTokens += v.PromptTokens
	u.CompletionTokens += v.CompletionTokens
	u.TotalTokens += v.TotalTokens
}

// wireAnswer is an answer on the wire, whole or one event of a stream.
type wireAnswer struct {
	Error, Message, Detail any // of an error
	Model                  string
	Usage                  Usage
	Choices                []struct {
		FinishReason string       `json:"finish_reason"`
		Message      *wireMessage // of a whole answer
		Delta        *wireMessage // of an event
	}
}

// wireMessage has the members of a message that go into the history: the API would refuse others.
type wireMessage struct {
	Content   Content    `json:"content"`
	ToolCalls []wireCall `json:"tool_calls"`
}

// Complete sends one request and returns the model's answer. If onText is not nil, the answer is streamed and its text
// passed to onText as it arrives. With an error (*APIError, ErrTooLarge, ErrSilent, the cause of ctx's end, one of the
// connection), it returns what arrived of the answer, or nil. An answer cut off at a length limit is not an error.
// It tries again after a refusal that may pass, and a connection that broke before a byte of the answer; but not what
// broke later, or may be worked on in silence. It waits as the server says, or fails at once if MaxWait leaves less.
func (m *Mistral) Complete(ctx context.Context, r *ChatRequest, onText func(string)) (*ChatResponse, error) {
	req, err := m.request(r, onText != nil)
	if err != nil {
		return nil, fmt.Errorf("chat completion: %w", err)
	}
	answer, err := m.retry(ctx, req, onText)
	if err != nil {
		err = fmt.Errorf("chat completion with %s at %s: %w", m.Model, req.URL.Host, err)
	}
	return answer, err
}

// retry makes attempts until one succeeds, fails for good, or the bounds are reached.
func (m *Mistral) retry(ctx context.Context, req *http.Request, onText func(string)) (*ChatResponse, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(maxSilence, func() { cancel(ErrSilent) }) // runs while the server is waited for
	most, left := cmp.Or(m.Tries, 5), cmp.Or(m.MaxWait, 2*time.Minute)
	backoff := 500 * time.Millisecond // grows, with a random part on top, as in Mistral's own clients
	for try := 1; ; try++ {
		answer, again, err := m.attempt(req.WithContext(ctx), silence, onText)
		switch { // the cause of ctx's end first: the transport's error need not say it
		case err != nil && ctx.Err() != nil:
			return answer, context.Cause(ctx)
		case !again:
			return answer, err
		}
		wait := backoff + rand.N(time.Second)
		backoff = min(backoff*3/2, time.Minute)
		var refused *APIError
		if errors.As(err, &refused) && refused.RetryAfter > 0 {
			wait = refused.RetryAfter
		}
		if left -= wait; try >= most || left < 0 {
			return nil, fmt.Errorf("%w (gave up at try %d of %d, before a wait of %v)", err, try, most, wait.Round(time.Second))
		}
		if m.OnRetry != nil {
			m.OnRetry(err, wait)
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, fmt.Errorf("%w, while waiting to try again after: %w", context.Cause(ctx), err)
		}
	}
}

// attempt sends the request once. It reports whether it failed so that another try may help and cannot do harm.
func (m *Mistral) attempt(req *http.Request, silence *time.Timer, onText func(string)) (*ChatResponse, bool, error) {
	silence.Reset(maxSilence)
	defer silence.Stop()
	ctx, cancel := context.WithCancel(req.Context())
	defer cancel()
	req = req.WithContext(ctx)
	req.Body, _ = req.GetBody()
	client := *cmp.Or(m.Client, &http.Client{}) // the key and the conversation are meant for this URL alone
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	resp, err := client.Do(req)
	if err != nil {
		err = errors.Unwrap(err) // the *url.Error around it shows the URL, which can hold credentials
		if text := m.clean(err.Error()); text != err.Error() {
			err = errors.New(text) // a plain one: what the error wraps would still show the key
		}
		return nil, true, fmt.Errorf("no answer: %w; check the base URL, and that the server can be reached", err)
	}
	defer resp.Body.Close()
	defer cancel() // before Close, which over HTTP/2 can wait for the server
	body := patient{resp.Body, silence}
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(body, 64<<10)) // or what there is before it breaks off
		return nil, slices.Contains([]int{408, 429, 500, 502, 503, 504}, resp.StatusCode), m.refusal(resp, text)
	}
	in := bufio.NewReader(http.MaxBytesReader(nil, body, maxAnswer))
	if _, err := in.Peek(1); err != nil {
		return nil, true, fmt.Errorf("no answer: %w", err)
	}
	answer, err := m.read(req.URL.Host, resp, in, onText)
	return answer, false, err
}

// patient is the body of an answer: each Read has the time of silence anew.
type patient struct {
	io.ReadCloser
	silence *time.Timer
}

func (p patient) Read(b []byte) (int, error) {
	p.silence.Reset(maxSilence)
	defer p.silence.Stop() // what the caller does between two reads is not the server's silence
	return p.ReadCloser.Read(b)
}

// read joins the events of a stream. A whole answer is a stream of one event.
func (m *Mistral) read(host string, r *http.Response, in *bufio.Reader, onText func(string)) (*ChatResponse, error) {
	next, whole := nextData, !strings.HasPrefix(strings.ToLower(r.Header.Get("Content-Type")), "text/event-stream")
	if whole { // whatever was requested: not every server can do both
		next = func(in *bufio.Reader) ([]byte, error) { return io.ReadAll(in) }
	}
	parts := &answerParts{host: host, byIndex: make(map[looseText]int)}
	for {
		data, err := next(in)
		if err != nil || string(data) == "[DONE]" {
			return parts.end(err)
		}
		var event wireAnswer
		if json.Unmarshal(data, &event) != nil {
			return parts.end(m.refusal(r, data))
		}
		if text := parts.add(&event); text != "" && onText != nil {
			onText(text)
		}
		given := func(v any) bool { return v != nil && v != false && v != "" } // some servers send an empty error
		failed := given(event.Error) || len(event.Choices) == 0 && (given(event.Message) || given(event.Detail))
		switch {
		case failed, whole && parts.Message.Role == "":
			return parts.end(m.refusal(r, data))
		case whole:
			return parts.end(nil)
		}
	}
}

// nextData returns a stream's next data (WHATWG HTML, 9.2.6). Each line is an event, since some servers omit the empty
// one after it. The LF of a CRLF is an empty line: looking ahead for it could block. A line without an end is dropped.
func nextData(in *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		switch c, err := in.ReadByte(); {
		case err != nil:
			return nil, err
		case c != '\r' && c != '\n':
			line = append(line, c)
		default:
			data, ok := bytes.CutPrefix(line, []byte("data:"))
			if data = bytes.TrimSpace(data); ok && len(data) > 0 {
				return data, nil
			}
			line = nil
		}
	}
}

// answerParts is an answer that is being read.
type answerParts struct {
	ChatResponse                   // without the content, and the calls' arguments; with a role if a message has arrived
	host         string            // of the server
	byIndex      map[looseText]int // where in the message's calls the last one of an index is; "" stands for no index
	arguments    [][]byte          // of the message's calls
	chunks       []any             // of the content
	text         []byte            // of strings after the chunks
}

// add adds an event and returns its text.
func (p *answerParts) add(event *wireAnswer) string {
	p.Model = cmp.Or(event.Model, p.Model)
	p.Usage = cmp.Or(event.Usage, p.Usage)
	if len(event.Choices) == 0 { // usage alone, as some servers end
		return ""
	}
	first := event.Choices[0]
	p.Message.Role, p.FinishReason = "assistant", cmp.Or(first.FinishReason, p.FinishReason)
	message := cmp.Or(first.Message, first.Delta, &wireMessage{})
	for _, call := range message.ToolCalls {
		p.addCall(&call, first.Message != nil)
	}
	text := message.Content.Text()
	var chunks []json.RawMessage
	if json.Unmarshal(message.Content, &chunks) != nil { // a string, or none
		p.text = append(p.text, text...)
	}
	for _, chunk := range chunks {
		p.chunks = append(p.allChunks(), chunk)
	}
	return text
}

// allChunks are the chunks with the text after them as one more.
func (p *answerParts) allChunks() []any {
	if len(p.text) > 0 {
		p.chunks = append(p.chunks, map[string]string{"type": "text", "text": string(p.text)})
		p.text = nil
	}
	return p.chunks
}

// addCall adds a tool call or a fragment of one. Mistral sends each call whole. Other servers send the arguments in
// pieces: most with the call's index, some without, and some with index 0 for every call.
func (p *answerParts) addCall(wire *wireCall, whole bool) {
	fragment, calls := wire.call(), p.Message.ToolCalls
	at, known := p.byIndex[wire.Index]
	begins := wire.Index == "" && fragment.ID == "" && fragment.Name != ""
	if whole || !known || begins || fragment.ID != "" && calls[at].ID != "" && fragment.ID != calls[at].ID {
		p.byIndex[wire.Index] = len(calls)
		p.Message.ToolCalls = append(calls, fragment)
		p.arguments = append(p.arguments, []byte(fragment.Arguments))
		return
	}
	call := &calls[at]
	call.ID = cmp.Or(call.ID, fragment.ID)
	call.Name = cmp.Or(call.Name, fragment.Name)
	p.arguments[at] = append(p.arguments[at], fragment.Arguments...)
}

// end returns the answer so far, nil if it has not begun, and err or the error that its finish_reason reports.
func (p *answerParts) end(err error) (*ChatResponse, error) {
	switch {
	case errors.As(err, new(*http.MaxBytesError)):
		err = ErrTooLarge
	case err == nil && p.Message.Role == "", err == io.EOF && p.FinishReason == "":
		err = io.ErrUnexpectedEOF
	case err == io.EOF: // not every server sends [DONE], but every one sends a finish_reason
		err = nil
	}
	if err == nil && (p.FinishReason == "error" || p.FinishReason == "content_filter") {
		err = fmt.Errorf("the server ended it with finish_reason %q", p.FinishReason)
	}
	if err != nil {
		err = fmt.Errorf("no complete answer: %w", err)
	}
	if p.Message.Role == "" {
		return nil, err
	}
	calls, taken := p.Message.ToolCalls, map[string]bool{"": true}
	for i := range calls {
		calls[i].Arguments = string(replaceSurrogates(p.arguments[i]))
		if calls[i].ExtraHost = ""; calls[i].Extra != nil {
			calls[i].ExtraHost = p.host
		}
		for taken[calls[i].ID] { // the results could not be told apart
			calls[i].ID = fmt.Sprintf("%09d", rand.N(1_000_000_000)) // as Mistral takes it
		}
		taken[calls[i].ID] = true
	}
	if p.chunks == nil {
		p.Message.Content = TextContent(string(p.text))
	} else {
		p.Message.Content, _ = wireJSON(p.allChunks()) // they were decoded
	}
	return &p.ChatResponse, err
}

// request makes the request of which each attempt sends a copy. The API refuses members that it does not know.
func (m *Mistral) request(r *ChatRequest, stream bool) (*http.Request, error) {
	target, err := m.Endpoint()
	if err != nil {
		return nil, err
	}
	wire := struct {
		Model string `json:"model"`
		ChatRequest
		Stream bool `json:"stream,omitempty"`
	}{m.Model, *r, stream}
	wire.Messages = onWire(r.Messages, target.Host)
	if len(r.Tools) == 0 { // some servers refuse a choice where there is none
		wire.ToolChoice = ""
	}
	body, err := wireJSON(wire)
	if err != nil {
		return nil, err
	}
	req := &http.Request{Method: http.MethodPost, URL: target, ContentLength: int64(len(body))}
	req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	accept := map[bool]string{false: "application/json", true: "text/event-stream"}[stream]
	req.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {accept}}
	if m.Key != "" {
		req.Header.Set("Authorization", "Bearer "+m.Key)
	}
	return req, nil
}

// onWire returns messages with ids of calls that Mistral accepts, and without what a server other than host has added.
func onWire(messages []ChatMessage, host string) []ChatMessage {
	messages = slices.Clone(messages)
	for i, m := range messages {
		if m.Role == "tool" {
			messages[i].ToolCallID = callID(m.ToolCallID)
		}
		messages[i].Images, messages[i].ToolCalls = nil, slices.Clone(m.ToolCalls)
		for j, call := range m.ToolCalls {
			if call.ExtraHost != host {
				call.Extra = nil
			}
			call.ID, call.ExtraHost = callID(call.ID), ""
			messages[i].ToolCalls[j] = call
		}
	}
	return messages
}

// Endpoint returns the URL that requests go to, or why none can be sent.
func (m *Mistral) Endpoint() (*url.URL, error) {
	u, err := url.Parse(cmp.Or(m.BaseURL, "https://api.mistral.ai/v1"))
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" { // err would quote what can be a secret
		return nil, errors.New("the base URL must begin with http:// or https:// and name a host")
	}
	local := u.Hostname() == "localhost" || net.ParseIP(u.Hostname()).IsLoopback()
	if u.Scheme == "http" && (m.Key != "" || u.User != nil) && !local && !m.Insecure {
		return nil, fmt.Errorf("refusing to send the key over plain http: use https, or no key (%s)", u.Host)
	}
	if strings.ContainsFunc(m.Key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, errors.New("the key holds a space, a line break or another character that keys do not have")
	}
	u.Path = cmp.Or(u.Path, "/") // or JoinPath would make a relative one
	return u.JoinPath("chat/completions"), nil
}

// refusal makes an APIError of an object with a message, detail or error, a list of that, a proxy's page, any text.
func (m *Mistral) refusal(resp *http.Response, body []byte) *APIError {
	var parsed any
	if json.Unmarshal(body, &parsed) == nil {
		body, _ = wireJSON(parsed) // without escapes, which could hide the key
	}
	list, _ := parsed.([]any)
	object, _ := append(list, parsed)[0].(map[string]any) // or the first in a list
	if inner, ok := object["error"].(map[string]any); ok {
		object = inner
	}
	e := &APIError{
		Status:        resp.StatusCode,
		Message:       m.clean(cmp.Or(errorText(object), string(body))),
		Code:          m.clean(errorText(object["code"])),
		CorrelationID: m.clean(cmp.Or(resp.Header.Get("Mistral-Correlation-Id"), errorText(object["request_id"]))),
	}
	after := resp.Header.Get("Retry-After") // seconds, or a date (RFC 9110, 10.2.3)
	e.RetryAfter, _ = time.ParseDuration(after + "s")
	if date, err := http.ParseTime(after); err == nil {
		e.RetryAfter = time.Until(date)
	}
	if strings.HasPrefix(e.Message, "<") {
		e.Message = "a web page: check the base URL, and any proxy on the way"
	}
	return e
}

// errorText returns the text of an error: a text, a number, a list of errors, or an object that holds one.
func errorText(v any) string {
	switch v := v.(type) {
	case string, float64:
		return fmt.Sprint(v)
	case []any:
		texts := make([]string, len(v))
		for i := range v {
			texts[i] = errorText(v[i])
		}
		return strings.Join(texts, "; ")
	case map[string]any:
		if place, ok := v["loc"].([]any); ok {
			return strings.ReplaceAll(errorText(place), "; ", ".") + ": " + errorText(v["msg"])
		}
		return cmp.Or(errorText(v["message"]), errorText(v["detail"]), errorText(v["error"]))
	}
	return ""
}

// clean makes a server's text fit for an error. The key is taken out first, so that no cut can leave a part of it.
func (m *Mistral) clean(text string) string {
	if m.Key != "" {
		text = strings.ReplaceAll(text, m.Key, "[key]")
	}
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text, "\uFFFD")), " ")
	if len(text) > 500 {
		text = strings.ToValidUTF8(text[:500], "") + "…"
	}
	return text
}

// wireJSON is json.Marshal without the escapes for <, > and &. The kit in json.go has the same as
// PlainJSON: this family needs no other, so that it can be copied alone.
func wireJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}
