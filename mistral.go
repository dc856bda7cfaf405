// mistral.go - Chat completions of Mistral, and of servers that speak the same, over raw net/http.
// Needs: Go 1.25.
// SPDX-License-Identifier: 0BSD

package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"mime"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// ErrPlainKey says that nothing was sent, because the key would have crossed a network over plain http.
var ErrPlainKey = errors.New("refusing to send the key over plain http: use https, or no key")

// ErrSilent ends a request whose server has sent nothing for maxSilence.
var ErrSilent = errors.New("the server was silent for 10 minutes")

// maxSilence bounds the wait for the first byte of an answer and for each one after it. It is long, because an answer
// that is not streamed begins only when it is complete.
const maxSilence = 10 * time.Minute

// APIError is an answer of the server that is no completion. Its texts are one line each, and never hold the key.
type APIError struct {
	Status        int           // HTTP status; 200 where the error came inside an answer
	Message       string        // the server's own words, or the beginning of a body that has none
	Type, Code    string        // the server's classification; either may be empty
	CorrelationID string        // what the server's operators find the request by; may be empty
	RetryAfter    time.Duration // how long the server asks to wait; 0 if it does not say
	Hint          string        // what to do about it; may be empty
}

func (e *APIError) Error() string {
	text := fmt.Sprintf("%d %s", e.Status, http.StatusText(e.Status))
	for _, part := range [][2]string{{": %s", e.Message}, {" (code %s)", e.Code}, {" (correlation id %s)", e.CorrelationID}, {"; %s", e.Hint}} {
		if part[1] != "" {
			text += fmt.Sprintf(part[0], part[1])
		}
	}
	return text
}

// TooLong says whether the conversation is longer than the model can take.
func (e *APIError) TooLong() bool {
	return e.Status == 413 || tooLong.MatchString(e.Message)
}

// AnswerTooLargeError says that an answer went on after Limit bytes (Mistral.MaxBody). The rest was not read.
type AnswerTooLargeError struct{ Limit int64 }

func (e *AnswerTooLargeError) Error() string {
	return fmt.Sprintf("the answer is larger than %d bytes", e.Limit)
}

// Mistral talks to one chat-completions server. The zero value with a Model is usable, by several goroutines at once.
type Mistral struct {
	BaseURL  string        // "" means https://api.mistral.ai/v1
	Key      string        // sent as a bearer token if not empty
	Model    string        // for example "mistral-large-latest"
	Client   *http.Client  // nil means one that shares http.DefaultTransport; redirects are not followed in any case
	Insecure bool          // allow the key over plain http to a host that is not this machine
	Tries    int           // of one request, at most; 0 means 5
	MaxWait  time.Duration // all waits between the tries of one request together; 0 means 2 minutes
	MaxBody  int64         // bytes of one answer; 0 means 64 MiB
	OnRetry  func(Retry)   // if set, called before each wait, by the goroutine that made the request
}

// Retry is a try that failed and that another one follows.
type Retry struct {
	Attempt int           // which try it was, from 1
	Wait    time.Duration // until the next one
	Err     error         // why it failed
}

// Message is one entry of a conversation. It marshals to the API's own form and back, so that a history can be saved.
type Message struct {
	Role       string     `json:"role"`                   // system, user, assistant or tool
	Content    Content    `json:"content"`                // of a tool message: always a string
	ToolCalls  []ToolCall `json:"tool_calls,omitempty"`   // of an assistant message only
	ToolCallID string     `json:"tool_call_id,omitempty"` // of a tool message only: the call that it answers
	Name       string     `json:"name,omitempty"`         // of a tool message only: the function's
}

// Content is a message's content as it goes over the wire: a JSON string, or a list of chunks (text, thinking,
// reference, …; reasoning models answer so). It is kept as it came, because it has to be sent back as it came.
type Content json.RawMessage

// Text is the content that is just s.
func Text(s string) Content {
	b, _ := chatJSON(s) // a string has an encoding
	return b
}

// Text is what a reader sees of the content: the string, or its text chunks joined.
func (c Content) Text() string {
	var text string
	if json.Unmarshal(c, &text) == nil {
		return text
	}
	var chunks []struct{ Type, Text string }
	json.Unmarshal(c, &chunks) // a chunk of another form has no text, nor has what is no list
	for _, chunk := range chunks {
		if chunk.Type == "text" {
			text += chunk.Text
		}
	}
	return text
}

// MarshalJSON sends no content, and null, as "": beside tool calls the API takes both, older servers only this one.
func (c Content) MarshalJSON() ([]byte, error) {
	if absent(c) {
		c = Text("")
	}
	return c, nil
}

// UnmarshalJSON refuses what could not be sent back.
func (c *Content) UnmarshalJSON(b []byte) error {
	*c = slices.Clone(b)
	if b[0] == '[' {
		return json.Unmarshal(b, new([]map[string]any))
	}
	return json.Unmarshal(b, new(string))
}

// ToolCall is the model's wish to have a function called. Its JSON form is the API's.
type ToolCall struct {
	ID        string
	Name      string
	Arguments string          // meant to be a JSON object, not checked; "" goes out as "{}"
	Extra     json.RawMessage // the member extra_content (Gemini signs calls there): goes back as it came
}

func (c ToolCall) MarshalJSON() ([]byte, error) {
	wire := wireCall{ID: c.ID, Type: "function", Extra: c.Extra}
	wire.Function.Name = c.Name
	wire.Function.Arguments = json.RawMessage(Text(cmp.Or(c.Arguments, "{}")))
	return chatJSON(wire)
}

func (c *ToolCall) UnmarshalJSON(b []byte) error {
	var wire wireCall
	err := json.Unmarshal(b, &wire)
	*c = wire.call()
	return err
}

// wireCall is a ToolCall on the wire, whole or a fragment of a stream.
type wireCall struct {
	Index    *int   `json:"index,omitempty"` // in streams only
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"` // a string; from some servers the object itself
	} `json:"function"`
	Extra json.RawMessage `json:"extra_content,omitempty"`
}

func (w *wireCall) call() ToolCall {
	call := ToolCall{w.ID, w.Function.Name, string(w.Function.Arguments), w.Extra}
	if call.ID == "null" { // the word: the default that the API documents
		call.ID = ""
	}
	var text string
	if json.Unmarshal(w.Function.Arguments, &text) == nil { // null too, which is no arguments
		call.Arguments = text
	}
	return call
}

// Function is a tool as the model is offered it. It marshals to the API's form of a tool.
type Function struct {
	Name        string          // matches ^[a-zA-Z0-9_-]{1,64}$
	Description string          // may be empty
	Parameters  json.RawMessage // a JSON Schema object; nil means no parameters
}

// MarshalJSON makes the parameters what the API takes: of draft 7, an object with type and properties, without the two
// members that name a dialect and a place. No other member changes.
func (f Function) MarshalJSON() ([]byte, error) {
	schema := map[string]json.RawMessage{}
	if !absent(f.Parameters) {
		if err := json.Unmarshal(draft7(f.Parameters), &schema); err != nil {
			return nil, fmt.Errorf("parameters of function %s: %w", f.Name, err)
		}
	}
	delete(schema, "$schema")
	delete(schema, "$id")
	for name, least := range map[string]string{"type": `"object"`, "properties": "{}"} {
		if absent(schema[name]) {
			schema[name] = json.RawMessage(least)
		}
	}
	function := map[string]any{"name": f.Name, "description": f.Description, "parameters": schema}
	return chatJSON(map[string]any{"type": "function", "function": function})
}

// ChatRequest asks for the next message of a conversation.
type ChatRequest struct {
	Messages          []Message  `json:"messages"`              // the last one is the user's or a tool's
	Tools             []Function `json:"tools,omitempty"`       // at most 128
	ToolChoice        string     `json:"-"`                     // "auto" (as ""), "none", "required", or the function to call
	Temperature       *float64   `json:"temperature,omitempty"` // 0 to 1.5; nil leaves it to the server, as do all that follow
	MaxTokens         int        `json:"max_tokens,omitempty"`
	RandomSeed        *int       `json:"random_seed,omitempty"`
	ParallelToolCalls *bool      `json:"parallel_tool_calls,omitempty"`
}

// ChatResponse is the model's answer.
type ChatResponse struct {
	// Message can go into the history as it is. Whether tools are to be called is to be read from its ToolCalls alone:
	// servers say "stop" beside calls and "tool_calls" beside none. Every call has an id, ours if the server sent none,
	// and arguments, "{}" if it sent none.
	Message Message

	FinishReason string // the server's: stop, tool_calls, length, model_length, error, or ""
	Model        string // that answered, as the server names it
	Usage        Usage  // zero if the server does not say
}

// CutOff says whether the answer ended at a length limit. The arguments of its last call may then be cut off too: they
// are not what the model meant, even where they are valid.
func (r *ChatResponse) CutOff() bool {
	return r.FinishReason == "length" || r.FinishReason == "model_length"
}

// Usage counts tokens.
type Usage struct {
	PromptTokens     int `json:"prompt_tokens"`
	CompletionTokens int `json:"completion_tokens"`
	TotalTokens      int `json:"total_tokens"`
}

// wireAnswer is an answer on the wire, whole or one event of a stream.
type wireAnswer struct {
	Object  string `json:"object"`
	Error   any    `json:"error"`
	Model   string `json:"model"`
	Usage   Usage  `json:"usage"`
	Choices []struct {
		FinishReason string  `json:"finish_reason"`
		Message      Message `json:"message"`
		Delta        struct {
			Content   Content    `json:"content"`
			ToolCalls []wireCall `json:"tool_calls"`
		} `json:"delta"`
	} `json:"choices"`
}

// Complete sends one request and returns the model's answer. It tries again after a refusal that may pass (408, 429,
// 500, 502, 503, 504) and after a connection that broke before a byte of the answer; what broke later is not
// repeated, nor is what a silent server may be at work on.
// A server that says how long to wait is obeyed, or given up at once where that is longer than MaxWait leaves.
// Errors: *APIError, *AnswerTooLargeError, ErrPlainKey, ErrSilent, the cause of ctx's end, those of the connection.
func (m *Mistral) Complete(ctx context.Context, r *ChatRequest) (*ChatResponse, error) {
	return m.chat(ctx, r, false, func(string) {})
}

// Stream is Complete with the text of the answer handed to onText as it arrives. After an error, text that was handed
// over is the beginning of an answer that never came.
func (m *Mistral) Stream(ctx context.Context, r *ChatRequest, onText func(string)) (*ChatResponse, error) {
	return m.chat(ctx, r, true, onText)
}

func (m *Mistral) chat(ctx context.Context, r *ChatRequest, stream bool, onText func(string)) (*ChatResponse, error) {
	req, err := m.request(ctx, r, stream)
	if err != nil {
		return nil, fmt.Errorf("chat completion: %w", err)
	}
	answer, err := m.retry(req, onText)
	if err != nil {
		return nil, fmt.Errorf("chat completion with %s at %s: %w", m.Model, req.URL.Host, err)
	}
	return answer, nil
}

// retry makes attempts until one succeeds, fails for good, or the bounds are reached.
func (m *Mistral) retry(req *http.Request, onText func(string)) (*ChatResponse, error) {
	ctx, tries, left := req.Context(), cmp.Or(m.Tries, 5), cmp.Or(m.MaxWait, 2*time.Minute)
	backoff := 500 * time.Millisecond // it grows, and chance adds to it, as in Mistral's own clients
	for try := 1; ; try++ {
		answer, again, err := m.attempt(req, onText)
		switch {
		case err == nil:
			return answer, nil
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case !again:
			return nil, err
		case try >= tries:
			return nil, fmt.Errorf("%w (try %d of %d)", err, try, tries)
		}
		wait := backoff + mathrand.N(time.Second)
		backoff = min(backoff*3/2, time.Minute)
		var refused *APIError
		if errors.As(err, &refused) && refused.RetryAfter > 0 {
			wait = refused.RetryAfter
		}
		if left -= wait; left < 0 {
			return nil, fmt.Errorf("%w (try %d; to wait %v more would be too long)", err, try, wait.Round(time.Second))
		}
		if m.OnRetry != nil {
			m.OnRetry(Retry{Attempt: try, Wait: wait, Err: err})
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, fmt.Errorf("%w, while waiting to try again after: %w", context.Cause(ctx), err)
		}
	}
}

// attempt sends the request once. With an error, again says whether another try may help and cannot do harm.
func (m *Mistral) attempt(req *http.Request, onText func(string)) (_ *ChatResponse, again bool, _ error) {
	ctx, cancel := context.WithCancelCause(req.Context())
	defer cancel(nil)
	defer func() { again = again && context.Cause(ctx) != ErrSilent }() // the server may be at work on it
	req = req.Clone(ctx)
	req.Body, _ = req.GetBody() // from memory: this does not fail
	client := *cmp.Or(m.Client, &http.Client{})
	client.CheckRedirect = func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse // the key and the conversation are meant for this URL alone
	}
	silence := time.AfterFunc(maxSilence, func() { cancel(ErrSilent) })
	resp, err := client.Do(req)
	silence.Stop()
	if err != nil {
		err = cmp.Or(context.Cause(ctx), err) // HTTP/2 gives no cause
		return nil, true, fmt.Errorf("no answer: %w; check the base URL, and that the server can be reached", m.safe(err))
	}
	resp.Body = patient{resp.Body, ctx, silence}
	defer resp.Body.Close()
	defer cancel(nil) // before Close, which over HTTP/2 can wait for the server
	if resp.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10)) // or what there is before it breaks off
		return nil, slices.Contains([]int{408, 429, 500, 502, 503, 504}, resp.StatusCode), m.refusal(resp, body)
	}
	in := bufio.NewReader(http.MaxBytesReader(nil, resp.Body, cmp.Or(m.MaxBody, 64<<20)))
	if _, err := in.Peek(1); err != nil {
		return nil, true, fmt.Errorf("no answer: %w", err)
	}
	read := m.readWhole // also where a stream was asked for: not every server has one
	if kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); kind == "text/event-stream" {
		read = m.readStream
	}
	answer, err := read(resp, in, onText)
	var large *http.MaxBytesError
	if errors.As(err, &large) {
		err = &AnswerTooLargeError{large.Limit}
	}
	if err != nil {
		return nil, false, fmt.Errorf("no complete answer: %w", err)
	}
	calls := answer.Message.ToolCalls
	for i := range calls {
		calls[i].ID = cmp.Or(calls[i].ID, rand.Text()[:9]) // the only form that Mistral takes: nine letters and digits
		calls[i].Arguments = cmp.Or(calls[i].Arguments, "{}")
	}
	// Without what else servers put into a message: the API would not take it back.
	answer.Message = Message{Role: "assistant", Content: answer.Message.Content, ToolCalls: calls}
	return answer, false, nil
}

// patient is the body of an answer. A Read that gets nothing for maxSilence ends with ErrSilent.
type patient struct {
	io.ReadCloser
	ctx     context.Context // the attempt's, which silence ends
	silence *time.Timer
}

func (p patient) Read(b []byte) (int, error) {
	p.silence.Reset(maxSilence)
	defer p.silence.Stop() // what the caller does between two reads is not the server's silence
	n, err := p.ReadCloser.Read(b)
	if err != nil && err != io.EOF {
		err = cmp.Or(context.Cause(p.ctx), err)
	}
	return n, err
}

func (m *Mistral) readWhole(resp *http.Response, in *bufio.Reader, onText func(string)) (*ChatResponse, error) {
	body, err := io.ReadAll(in)
	if err != nil {
		return nil, err
	}
	var whole wireAnswer
	if err := json.Unmarshal(body, &whole); err != nil || len(whole.Choices) == 0 {
		return nil, m.refusal(resp, body)
	}
	first := whole.Choices[0]
	if text := first.Message.Content.Text(); text != "" {
		onText(text)
	}
	return &ChatResponse{first.Message, first.FinishReason, whole.Model, whole.Usage}, nil
}

func (m *Mistral) readStream(resp *http.Response, in *bufio.Reader, onText func(string)) (*ChatResponse, error) {
	var answer ChatResponse
	var pieces []Content
	calls := callStream{byIndex: map[int]int{}}
	for {
		data, err := nextData(in)
		switch {
		case string(data) == "[DONE]" && len(pieces) > 0, err == io.EOF && answer.FinishReason != "":
			// Not every server sends [DONE], but every one sends a finish_reason.
			answer.Message = Message{Content: joinContent(pieces), ToolCalls: calls.calls}
			return &answer, nil
		case string(data) == "[DONE]", err == io.EOF:
			return nil, io.ErrUnexpectedEOF
		case err != nil:
			return nil, err
		}
		var event wireAnswer
		if err := json.Unmarshal(data, &event); err != nil || event.Error != nil || event.Object == "error" {
			return nil, m.refusal(resp, data)
		}
		answer.Model = cmp.Or(event.Model, answer.Model)
		answer.Usage = cmp.Or(event.Usage, answer.Usage)
		if len(event.Choices) == 0 { // usage alone, as some servers end
			continue
		}
		first := event.Choices[0]
		answer.FinishReason = cmp.Or(first.FinishReason, answer.FinishReason)
		if text := first.Delta.Content.Text(); text != "" {
			onText(text)
		}
		pieces = append(pieces, first.Delta.Content)
		for _, fragment := range first.Delta.ToolCalls {
			calls.add(fragment)
		}
	}
}

// nextData is the data of a stream's next event that has some (WHATWG HTML, 9.2.6). Every server sends it as one line,
// and some forget the empty line after it, so a line is taken for an event. A line ends with CR, LF or CRLF. The LF of
// a CRLF is read as one more, empty line: looking ahead for it could block. A last line without an end is dropped,
// because the connection broke inside it.
func nextData(in *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		c, err := in.ReadByte()
		if err != nil {
			return nil, err
		}
		if c != '\r' && c != '\n' {
			line = append(line, c)
			continue
		}
		data, ok := bytes.CutPrefix(line, []byte("data:"))
		if data = bytes.TrimSpace(data); ok && len(data) > 0 {
			return data, nil
		}
		line = nil
	}
}

// joinContent makes one content of the pieces of a stream: of strings a string, else a list of the chunks as they came,
// with what came as strings in text chunks between them.
func joinContent(pieces []Content) Content {
	var list []json.RawMessage
	var text strings.Builder
	flush := func() {
		if text.Len() > 0 {
			chunk, _ := chatJSON(map[string]string{"type": "text", "text": text.String()})
			list = append(list, chunk)
			text.Reset()
		}
	}
	for _, piece := range pieces {
		var chunks []json.RawMessage
		if json.Unmarshal(piece, &chunks) != nil {
			text.WriteString(piece.Text())
			continue
		}
		if len(chunks) > 0 {
			flush()
		}
		list = append(list, chunks...)
	}
	if list == nil {
		return Text(text.String())
	}
	flush()
	content, _ := chatJSON(list) // of valid chunks
	return content
}

// callStream joins the fragments of tool calls. Mistral sends each call whole; other servers send the arguments in pieces,
// most with the call's index, some without, and some say index 0 of every call.
type callStream struct {
	calls   []ToolCall
	byIndex map[int]int // where in calls the last one of an index is
}

func (s *callStream) add(wire wireCall) {
	fragment, index := wire.call(), -1 // -1 is all that have none
	if wire.Index != nil {
		index = *wire.Index
	}
	at, known := s.byIndex[index]
	begins := wire.Index == nil && fragment.ID == "" && fragment.Name != ""
	if !known || begins || fragment.ID != "" && s.calls[at].ID != "" && fragment.ID != s.calls[at].ID {
		at = len(s.calls)
		s.calls = append(s.calls, ToolCall{})
		s.byIndex[index] = at
	}
	call := &s.calls[at]
	call.ID = cmp.Or(call.ID, fragment.ID)
	call.Name = cmp.Or(call.Name, fragment.Name)
	call.Arguments += fragment.Arguments
	if fragment.Extra != nil {
		call.Extra = fragment.Extra
	}
}

// request is what each attempt sends a copy of. The API refuses members that it does not know, so there are no others,
// and those that are not set are left out.
func (m *Mistral) request(ctx context.Context, r *ChatRequest, stream bool) (*http.Request, error) {
	target, err := m.target()
	if err != nil {
		return nil, err
	}
	wire := struct {
		Model string `json:"model"`
		ChatRequest
		Choice any  `json:"tool_choice,omitempty"`
		Stream bool `json:"stream,omitempty"`
	}{Model: m.Model, ChatRequest: *r, Stream: stream}
	wire.Messages = append([]Message{}, r.Messages...) // never null
	switch {
	case len(r.Tools) == 0: // neither has a meaning without tools, and some servers say so
		wire.ParallelToolCalls = nil
	case slices.Contains([]string{"auto", "none", "required"}, r.ToolChoice):
		wire.Choice = r.ToolChoice
	case r.ToolChoice != "":
		wire.Choice = map[string]any{"type": "function", "function": map[string]string{"name": r.ToolChoice}}
	}
	body, err := chatJSON(wire)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, target.String(), bytes.NewReader(body))
	if err != nil {
		return nil, m.safe(err)
	}
	req.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json"}}
	if stream {
		req.Header.Set("Accept", "text/event-stream")
	}
	if m.Key != "" {
		req.Header.Set("Authorization", "Bearer "+m.Key)
	}
	return req, nil
}

// target is the URL that requests go to.
func (m *Mistral) target() (*url.URL, error) {
	u, err := url.Parse(cmp.Or(m.BaseURL, "https://api.mistral.ai/v1"))
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" { // err would quote what can be a secret
		return nil, errors.New("the base URL must begin with http:// or https:// and name a host")
	}
	ip := net.ParseIP(u.Hostname())
	local := u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
	if u.Scheme == "http" && (m.Key != "" || u.User != nil) && !local && !m.Insecure {
		return nil, fmt.Errorf("%w (%s)", ErrPlainKey, u.Host)
	}
	if strings.ContainsFunc(m.Key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, errors.New("the key holds a space, a line break or another character that no key has")
	}
	return u.JoinPath("chat/completions"), nil
}

// maxFunctionName is how many characters the API takes in the name of a function.
const maxFunctionName = 64

// functionName is name with _ for each character that the API does not take in the name of a function. It can still be
// empty or too long.
func functionName(name string) string {
	return strings.Map(func(r rune) rune {
		if 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '_' || r == '-' {
			return r
		}
		return '_'
	}, name)
}

// booleanBound is in every schema that draft7 has to change.
var booleanBound = regexp.MustCompile(`"exclusiveM(in|ax)imum"\s*:\s*(true|false)`)

// draft7 is a schema, or a list of them, without the booleans by which draft 4 says whether the minimum or maximum beside
// them is itself excluded. Later drafts say so by the number, in place of the bound; the API refuses a boolean, and
// with it the whole request. What has none in it stays as it came.
func draft7(schema json.RawMessage) json.RawMessage {
	var list []json.RawMessage
	var members map[string]json.RawMessage
	switch {
	case !booleanBound.Match(schema):
	case json.Unmarshal(schema, &list) == nil:
		for i := range list {
			list[i] = draft7(list[i])
		}
		schema, _ = chatJSON(list)
	case json.Unmarshal(schema, &members) == nil:
		for name := range members {
			members[name] = draft7(members[name])
		}
		for exclusive, bound := range map[string]string{"exclusiveMinimum": "minimum", "exclusiveMaximum": "maximum"} {
			was := string(members[exclusive])
			if was == "true" || was == "false" {
				delete(members, exclusive)
			}
			if number, ok := members[bound]; ok && was == "true" {
				members[exclusive] = number
				delete(members, bound)
			}
		}
		schema, _ = chatJSON(members)
	}
	return schema
}

// tooLong is in what servers say of a conversation that does not fit the model.
var tooLong = regexp.MustCompile(`(?i)context (length|window|size)|too (large|long)`)

// refusal makes an APIError of an answer that is none, whatever its form: Mistral's, {"detail": …} of its framework,
// {"error": …} of others, a list of that, or a proxy's page.
func (m *Mistral) refusal(resp *http.Response, body []byte) *APIError {
	var parsed any
	if json.Unmarshal(body, &parsed) == nil {
		body, _ = chatJSON(parsed) // without escapes, behind which the key would not be found
	}
	if list, ok := parsed.([]any); ok && len(list) > 0 {
		parsed = list[0]
	}
	object, _ := parsed.(map[string]any)
	if inner, ok := object["error"].(map[string]any); ok {
		object = inner
	}
	e := &APIError{
		Status:        resp.StatusCode,
		Message:       m.clean(cmp.Or(errorText(object), string(body))),
		Type:          m.clean(errorText(object["type"])),
		Code:          m.clean(errorText(object["code"])),
		CorrelationID: m.clean(cmp.Or(resp.Header.Get("Mistral-Correlation-Id"), errorText(object["request_id"]))),
	}
	after := resp.Header.Get("Retry-After") // seconds, or a date (RFC 9110, 10.2.3)
	if date, err := http.ParseTime(after); err == nil {
		e.RetryAfter = max(0, time.Until(date))
	} else if seconds, err := strconv.ParseUint(after, 10, 32); err == nil { // 32 bits of seconds fit a Duration
		e.RetryAfter = time.Duration(seconds) * time.Second
	}
	page := strings.HasPrefix(e.Message, "<")
	if page {
		_, title, _ := strings.Cut(string(body), "<title>")
		title, _, _ = strings.Cut(title, "</title>")
		e.Message = m.clean("a web page: " + title)
	}
	switch {
	case e.Status/100 == 3:
		e.Hint = "the server redirects elsewhere: check the base URL"
	case page && e.Status < 500:
		e.Hint = "this is no chat-completions API: check the base URL, and any proxy on the way"
	case e.Status == 401 || e.Status == 403:
		e.Hint = "check the API key"
	case e.TooLong():
		e.Hint = "the conversation is too long for this model: shorten it or begin a new one"
	case e.Code == "1500" || e.Status == 404 && strings.Contains(e.Message, "model"):
		e.Hint = "check the model's name"
	case e.Status == 404:
		e.Hint = "check the base URL: most end in /v1"
	case e.Status == 422:
		e.Hint = "the server does not take a message, a tool or an option in this form"
	}
	return e
}

// errorText is what an error says: a text or number itself, of a list every entry, of an object the member that
// speaks, after the place that a validation error names.
func errorText(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
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

// clean makes a peer's text fit to be shown: without the key, on one line, without what steers a terminal, and not too
// long. The key is taken out first, so that no part of it can be left where the text is cut off.
func (m *Mistral) clean(text string) string {
	if m.Key != "" {
		text = strings.ReplaceAll(text, m.Key, "[key]")
	}
	blank := func(r rune) bool { return unicode.IsSpace(r) || steers(r) }
	text = strings.Join(strings.FieldsFunc(strings.ToValidUTF8(text, "\uFFFD"), blank), " ")
	if len(text) > 500 {
		text = strings.ToValidUTF8(text[:500], "") + "…"
	}
	return text
}

// steers tells a character that a terminal does not show but obeys: a control character, a line or paragraph separator,
// or a mark that reorders the text around it.
func steers(r rune) bool {
	return unicode.In(r, unicode.Cc, unicode.Zl, unicode.Zp, unicode.Bidi_Control)
}

// safe is err without a URL, which can hold credentials. If its text is not clean, it is a bare error with the clean
// one: what err wraps would still hold the rest.
func (m *Mistral) safe(err error) error {
	var e *url.Error
	if errors.As(err, &e) {
		err = e.Err
	}
	if text := m.clean(err.Error()); text != err.Error() {
		return errors.New(text)
	}
	return err
}

// absent tells a member that is not there, or null.
func absent(raw []byte) bool { return len(raw) == 0 || string(raw) == "null" }

// chatJSON is json.Marshal that leaves <, > and & alone: models read them, and escapes cost them tokens.
func chatJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}
