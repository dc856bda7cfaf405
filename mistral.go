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
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	mathrand "math/rand/v2"
	"mime"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
)

// ErrPlainKey says that nothing was sent, because the key would have crossed a network over plain http.
var ErrPlainKey = errors.New("refusing to send the key over plain http: use https, or allow it explicitly")

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
	var b strings.Builder
	fmt.Fprintf(&b, "%d %s", e.Status, http.StatusText(e.Status))
	if e.Message != "" {
		b.WriteString(": " + e.Message)
	}
	if e.Code != "" {
		b.WriteString(" (code " + e.Code + ")")
	}
	if e.CorrelationID != "" {
		b.WriteString(" (correlation id " + e.CorrelationID + ")")
	}
	if e.Hint != "" {
		b.WriteString("; " + e.Hint)
	}
	return b.String()
}

// AnswerTooLargeError says that an answer went on after Limit bytes (Mistral.MaxBody). The rest was not read.
type AnswerTooLargeError struct{ Limit int64 }

func (e *AnswerTooLargeError) Error() string {
	return fmt.Sprintf("the answer is larger than %d bytes", e.Limit)
}

// Mistral talks to one chat-completions server. The zero value with a Model is usable, by several goroutines at
// once; it must not be copied, nor its fields changed, after its first request.
type Mistral struct {
	BaseURL  string        // "" means https://api.mistral.ai/v1
	Key      string        // sent as a bearer token if not empty
	Model    string        // for example "mistral-large-latest"
	Client   *http.Client  // nil means one with bounds (makeClient); its CheckRedirect is not used (chatRedirect)
	Insecure bool          // allow the key over plain http to a host that is not this machine
	Tries    int           // of one request, at most; 0 means 5
	MaxWait  time.Duration // all waits between the tries of one request together; 0 means 2 minutes
	MaxBody  int64         // bytes of one answer; 0 means 64 MiB
	OnRetry  func(Retry)   // if set, called before each wait, by the goroutine that made the request

	once   sync.Once
	client *http.Client // written in once: Client or its default, with chatRedirect
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
	text, _ := new(chatContent).add(json.RawMessage(bytes.TrimSpace(c)))
	return text
}

// MarshalJSON sends no content, and null, as "": beside tool calls the API takes both, older servers only this one.
func (c Content) MarshalJSON() ([]byte, error) {
	if chatNull(json.RawMessage(c)) {
		return []byte(`""`), nil
	}
	return c, nil
}

func (c *Content) UnmarshalJSON(b []byte) error {
	*c = slices.Clone(b)
	return nil
}

// ToolCall is the model's wish to have a function called. Its JSON form is the API's.
type ToolCall struct {
	ID        string
	Name      string
	Arguments string          // meant to be a JSON object, not checked; "{}" where the server sent none
	Extra     json.RawMessage // the member extra_content (Gemini signs calls there): goes back as it came
}

// chatCall is a ToolCall on the wire, whole or a fragment of a stream.
type chatCall struct {
	Index    *int   `json:"index,omitempty"` // in streams only
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string        `json:"name"`
		Arguments chatArguments `json:"arguments"`
	} `json:"function"`
	Extra json.RawMessage `json:"extra_content,omitempty"`
}

func (c ToolCall) MarshalJSON() ([]byte, error) {
	wire := chatCall{ID: c.ID, Type: "function", Extra: c.Extra}
	wire.Function.Name = c.Name
	wire.Function.Arguments = chatArguments(cmp.Or(c.Arguments, "{}"))
	return chatJSON(wire)
}

func (c *ToolCall) UnmarshalJSON(b []byte) error {
	var wire chatCall
	if err := json.Unmarshal(b, &wire); err != nil {
		return err
	}
	*c = ToolCall{}
	c.merge(&wire)
	c.Arguments = cmp.Or(string(wire.Function.Arguments), "{}")
	return nil
}

// id is the call's id if the server gave it one. The API documents "null", the word, as the default.
func (f *chatCall) id() string {
	if f.ID == "null" {
		return ""
	}
	return f.ID
}

// merge takes over what a fragment says, but for the arguments.
func (c *ToolCall) merge(f *chatCall) {
	c.ID = cmp.Or(c.ID, f.id())
	c.Name = cmp.Or(c.Name, f.Function.Name)
	if !chatNull(f.Extra) {
		c.Extra = f.Extra
	}
}

// chatArguments are a call's arguments: a JSON string on the wire, and from some servers the object itself.
type chatArguments string

func (a *chatArguments) UnmarshalJSON(b []byte) error {
	switch {
	case chatNull(b):
		return nil
	case b[0] == '"':
		return json.Unmarshal(b, (*string)(a))
	}
	*a = chatArguments(b)
	return nil
}

// Function is a tool as the model is offered it.
type Function struct {
	Name        string          // matches ^[a-zA-Z0-9_-]{1,64}$
	Description string          // may be empty
	Parameters  json.RawMessage // a JSON Schema object; nil means no parameters
}

// ChatRequest asks for the next message of a conversation.
type ChatRequest struct {
	Messages          []Message  // the last one is the user's or a tool's
	Tools             []Function // at most 128
	ToolChoice        string     // "auto" (as ""), "none", "required", or the name of the function to call
	Temperature       *float64   // 0 to 1.5; nil leaves it to the server, as do all that follow
	MaxTokens         int
	RandomSeed        *int
	ParallelToolCalls *bool
}

// ChatResponse is the model's answer.
type ChatResponse struct {
	// Message can go into the history as it is. Whether tools are to be called is to be read from its ToolCalls alone:
	// servers say "stop" beside calls and "tool_calls" beside none. Every call has an id, ours if the server sent none.
	Message Message

	// FinishReason is the server's: stop, tool_calls, length, model_length, error, or "". With length and model_length
	// the answer is cut off, and so may the last call's arguments be: not what the model meant, even where they are valid.
	FinishReason string
	Model        string // that answered, as the server names it
	Usage        Usage  // zero if the server does not say
}

// Usage counts tokens.
type Usage struct {
	PromptTokens     int `json:"prompt_tokens"`
	CompletionTokens int `json:"completion_tokens"`
	TotalTokens      int `json:"total_tokens"`
}

// Complete sends one request and returns the model's answer. It tries again after a refusal that may pass (408, 429,
// 500, 502, 503, 504) and after a connection that broke before a byte of the answer; what broke later is not repeated.
// A server that says how long to wait is obeyed, or given up at once where that is longer than MaxWait leaves.
// Errors: *APIError, *AnswerTooLargeError, ErrPlainKey, ctx's, those of the connection.
func (m *Mistral) Complete(ctx context.Context, r *ChatRequest) (*ChatResponse, error) {
	return m.chat(ctx, r, false, func(string) {})
}

// Stream is Complete with the text of the answer handed to onText as it arrives. After an error, text that was handed
// over is the beginning of an answer that never came.
func (m *Mistral) Stream(ctx context.Context, r *ChatRequest, onText func(string)) (*ChatResponse, error) {
	return m.chat(ctx, r, true, onText)
}

func (m *Mistral) chat(ctx context.Context, r *ChatRequest, stream bool, onText func(string)) (*ChatResponse, error) {
	target, err := m.target()
	if err != nil {
		return nil, fmt.Errorf("chat completion: %w", err)
	}
	body, err := m.encode(r, stream)
	if err != nil {
		return nil, fmt.Errorf("chat completion: %w", m.safe(err))
	}
	answer, err := m.retry(ctx, func() (*ChatResponse, bool, error) {
		return m.attempt(ctx, target, body, stream, onText)
	})
	if err != nil {
		return nil, fmt.Errorf("chat completion with %s at %s: %w", m.clean(m.Model), m.clean(target.Host), err)
	}
	return answer, nil
}

// retry makes attempts until one succeeds, fails for good, or the bounds are reached.
func (m *Mistral) retry(ctx context.Context, attempt func() (_ *ChatResponse, again bool, _ error)) (*ChatResponse, error) {
	tries, left := cmp.Or(m.Tries, 5), cmp.Or(m.MaxWait, 2*time.Minute)
	for try := 1; ; try++ {
		answer, again, err := attempt()
		if err == nil {
			return answer, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if !again || tries <= 1 {
			return nil, err
		}
		if try >= tries {
			return nil, fmt.Errorf("%w (tried %d times)", err, try)
		}
		wait := chatBackoff(try)
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
			return nil, fmt.Errorf("%w, while waiting to try again after: %w", ctx.Err(), err)
		}
	}
}

// chatBackoff is the wait after a try, as Mistral's own clients choose it: from 500 ms by half more each time up to a
// minute, and up to a second more so that many clients do not come back together.
func chatBackoff(try int) time.Duration {
	wait := 500 * time.Millisecond
	for range try - 1 {
		wait = min(wait*3/2, time.Minute)
	}
	return wait + mathrand.N(time.Second)
}

// target is the URL that requests go to.
func (m *Mistral) target() (*url.URL, error) {
	u, err := url.Parse(cmp.Or(m.BaseURL, "https://api.mistral.ai/v1"))
	if err != nil {
		return nil, fmt.Errorf("base URL: %w", m.safe(chatInner(err)))
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, errors.New("the base URL must begin with http:// or https:// and name a host")
	}
	secret := m.Key != "" || u.User != nil
	if secret && u.Scheme == "http" && !m.Insecure && !chatLoopback(u.Hostname()) {
		return nil, fmt.Errorf("%w (%s)", ErrPlainKey, m.clean(u.Host))
	}
	if strings.ContainsFunc(m.Key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, errors.New("the key holds a space, a line break or another character that no key has")
	}
	return u.JoinPath("chat/completions"), nil
}

// encode is the request's body. The API refuses members that it does not know, so there are no others, and those
// that are not set are left out.
func (m *Mistral) encode(r *ChatRequest, stream bool) ([]byte, error) {
	type function struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		Parameters  json.RawMessage `json:"parameters"`
	}
	type tool struct {
		Type     string   `json:"type"`
		Function function `json:"function"`
	}
	body := struct {
		Model             string    `json:"model"`
		Messages          []Message `json:"messages"`
		Tools             []tool    `json:"tools,omitempty"`
		ToolChoice        any       `json:"tool_choice,omitempty"`
		ParallelToolCalls *bool     `json:"parallel_tool_calls,omitempty"`
		Temperature       *float64  `json:"temperature,omitempty"`
		MaxTokens         int       `json:"max_tokens,omitempty"`
		RandomSeed        *int      `json:"random_seed,omitempty"`
		Stream            bool      `json:"stream,omitempty"`
	}{
		Model: m.Model, Messages: append([]Message{}, r.Messages...), // never null
		Temperature: r.Temperature, MaxTokens: r.MaxTokens, RandomSeed: r.RandomSeed, Stream: stream,
	}
	for _, f := range r.Tools {
		parameters, err := chatParameters(f.Parameters)
		if err != nil {
			return nil, fmt.Errorf("parameters of function %s: %w", f.Name, err)
		}
		body.Tools = append(body.Tools, tool{"function", function{f.Name, f.Description, parameters}})
	}
	if len(r.Tools) > 0 { // neither has a meaning without tools, and some servers say so
		body.ParallelToolCalls = r.ParallelToolCalls
		switch r.ToolChoice {
		case "":
		case "auto", "none", "required":
			body.ToolChoice = r.ToolChoice
		default:
			body.ToolChoice = map[string]any{"type": "function", "function": map[string]string{"name": r.ToolChoice}}
		}
	}
	return chatJSON(body)
}

// chatParameters is a JSON Schema as the API takes it: an object with type and properties, without the two members
// that name a dialect and a place. What is inside the others stays as it is.
func chatParameters(schema json.RawMessage) (json.RawMessage, error) {
	members := map[string]json.RawMessage{}
	if !chatNull(schema) {
		if err := json.Unmarshal(schema, &members); err != nil {
			return nil, err
		}
	}
	delete(members, "$schema")
	delete(members, "$id")
	if chatNull(members["type"]) {
		members["type"] = json.RawMessage(`"object"`)
	}
	if chatNull(members["properties"]) {
		members["properties"] = json.RawMessage(`{}`)
	}
	return chatJSON(members)
}

// attempt sends the request once. With an error, again says whether another try may help and cannot do harm.
func (m *Mistral) attempt(ctx context.Context, target *url.URL, body []byte, stream bool, onText func(string)) (_ *ChatResponse, again bool, _ error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, target.String(), bytes.NewReader(body))
	if err != nil {
		return nil, false, m.safe(chatInner(err))
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	if stream {
		req.Header.Set("Accept", "text/event-stream")
	}
	if m.Key != "" {
		req.Header.Set("Authorization", "Bearer "+m.Key)
	}
	m.once.Do(m.makeClient)
	resp, err := m.client.Do(req)
	if err != nil {
		var untrusted *tls.CertificateVerificationError
		again = !errors.As(err, &untrusted)
		return nil, again, m.safe(fmt.Errorf("no answer: %w; check the base URL, and that the server can be reached", chatInner(err)))
	}
	defer func() {
		cancel() // first: Close of an HTTP/2 body can wait for the server otherwise
		resp.Body.Close()
	}()
	limit := cmp.Or(m.MaxBody, 64<<20)
	in := &chatBody{in: resp.Body, limit: limit, left: limit}
	if resp.StatusCode != http.StatusOK {
		const enough = 64 << 10
		raw, err := io.ReadAll(io.LimitReader(in, enough))
		if err != nil || len(raw) == enough { // cut in a word, which could be the key
			raw = raw[:bytes.LastIndexAny(raw, " \t\r\n")+1]
		}
		refused := m.refusal(resp, raw)
		again = slices.Contains([]int{408, 429, 500, 502, 503, 504}, refused.Status)
		return nil, again, refused
	}
	var answer *ChatResponse
	if kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); kind == "text/event-stream" {
		answer, err = m.readStream(resp, in, onText)
	} else { // also where a stream was asked for: not every server has one
		answer, err = m.readWhole(resp, in, onText)
	}
	if err != nil {
		return nil, in.left == limit, err
	}
	answer.Message = chatReplayable(answer.Message)
	return answer, false, nil
}

// chatReplayable is a message that the API takes back: without what servers add, with an id for every call.
func chatReplayable(m Message) Message {
	for i := range m.ToolCalls {
		if call := &m.ToolCalls[i]; call.ID == "" {
			call.ID = rand.Text()[:9] // the only form that Mistral takes: nine letters and digits
		}
	}
	return Message{Role: "assistant", Content: m.Content, ToolCalls: m.ToolCalls}
}

// makeClient has no bound on the length of an answer in time: ctx has.
func (m *Mistral) makeClient() {
	client := http.Client{Transport: &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: 15 * time.Second}).DialContext,
		TLSHandshakeTimeout:   15 * time.Second,
		ResponseHeaderTimeout: 10 * time.Minute, // an answer that is not streamed begins when it is complete
		IdleConnTimeout:       90 * time.Second,
		ForceAttemptHTTP2:     true,
	}}
	if m.Client != nil {
		client = *m.Client
	}
	client.CheckRedirect = chatRedirect
	m.client = &client
}

// chatRedirect follows a redirect only if it repeats the request (307, 308) at the very origin that the key and the
// conversation were meant for. Every other redirect is the answer, and so an APIError.
func chatRedirect(req *http.Request, via []*http.Request) error {
	from := via[0]
	if req.Method == from.Method && req.URL.Scheme == from.URL.Scheme && req.URL.Host == from.URL.Host && len(via) < 5 {
		return nil
	}
	return http.ErrUseLastResponse
}

// chatBody is a response body that ends with an AnswerTooLargeError after limit bytes.
type chatBody struct {
	in          io.Reader
	limit, left int64
}

func (b *chatBody) Read(p []byte) (int, error) {
	if b.left < 0 {
		return 0, &AnswerTooLargeError{b.limit}
	}
	if int64(len(p))-1 > b.left { // one byte more than is left shows that there are more
		p = p[:b.left+1]
	}
	n, err := b.in.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return n - 1, &AnswerTooLargeError{b.limit}
	}
	return n, err
}

// chatAnswer is an answer on the wire, whole or one event of a stream.
type chatAnswer struct {
	Object  string          `json:"object"`
	Error   json.RawMessage `json:"error"`
	Model   string          `json:"model"`
	Usage   *Usage          `json:"usage"`
	Choices []struct {
		Message      Message `json:"message"`
		FinishReason string  `json:"finish_reason"`
		Delta        struct {
			Content   json.RawMessage `json:"content"`
			ToolCalls []chatCall      `json:"tool_calls"`
		} `json:"delta"`
	} `json:"choices"`
}

func (a *chatAnswer) isError() bool {
	return len(a.Choices) == 0 && (!chatNull(a.Error) || strings.EqualFold(a.Object, "error"))
}

// head takes over what an event, or the whole answer, says beside the message.
func (r *ChatResponse) head(a *chatAnswer) {
	r.Model = cmp.Or(a.Model, r.Model)
	if a.Usage != nil {
		r.Usage = *a.Usage
	}
	if len(a.Choices) > 0 {
		r.FinishReason = cmp.Or(a.Choices[0].FinishReason, r.FinishReason)
	}
}

func (m *Mistral) readWhole(resp *http.Response, in io.Reader, onText func(string)) (*ChatResponse, error) {
	raw, err := io.ReadAll(in)
	if err == nil && len(raw) == 0 {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, m.safe(fmt.Errorf("the answer broke off: %w", err))
	}
	var whole chatAnswer
	if err := json.Unmarshal(raw, &whole); err != nil || len(whole.Choices) == 0 {
		return nil, fmt.Errorf("the answer is no completion: %w", m.refusal(resp, raw))
	}
	answer := &ChatResponse{Message: whole.Choices[0].Message}
	answer.head(&whole)
	if text := answer.Message.Content.Text(); text != "" {
		onText(text)
	}
	return answer, nil
}

func (m *Mistral) readStream(resp *http.Response, in io.Reader, onText func(string)) (*ChatResponse, error) {
	var (
		answer  ChatResponse
		content chatContent
		calls   chatCalls
		events  = chatEvents{in: bufio.NewReader(in)}
	)
	for {
		data, err := events.next()
		if err == io.EOF && answer.FinishReason == "" { // some servers say no [DONE], but all say why they end
			err = io.ErrUnexpectedEOF
		}
		if err != nil && err != io.EOF {
			return nil, m.safe(fmt.Errorf("the answer broke off: %w", err))
		}
		if err == io.EOF || string(data) == "[DONE]" {
			answer.Message.Content = content.content()
			answer.Message.ToolCalls = calls.whole()
			return &answer, nil
		}
		if len(data) == 0 { // a sign of life
			continue
		}
		var event chatAnswer
		if err := json.Unmarshal(data, &event); err != nil || event.isError() {
			return nil, fmt.Errorf("the answer broke off: %w", m.refusal(resp, data))
		}
		answer.head(&event)
		if len(event.Choices) == 0 { // usage alone, as some servers end
			continue
		}
		delta := &event.Choices[0].Delta
		text, err := content.add(delta.Content)
		if err != nil {
			return nil, fmt.Errorf("the answer broke off: %w", m.refusal(resp, data))
		}
		if text != "" {
			onText(text)
		}
		for i := range delta.ToolCalls {
			calls.add(&delta.ToolCalls[i])
		}
	}
}

// chatEvents reads server-sent events (WHATWG HTML, 9.2.6) as far as chat completions use them: the data alone.
type chatEvents struct {
	in      *bufio.Reader
	afterCR bool // a line ended with CR: an LF that follows belongs to it
}

// next is the data of the next event. An event whose empty line is missing at the end still counts; half a line
// there does not: it is what a broken connection leaves.
func (r *chatEvents) next() (data []byte, _ error) {
	for {
		line, err := r.line()
		if err != nil && (err != io.EOF || data == nil) {
			return nil, err
		}
		if err == io.EOF || len(line) == 0 && data != nil {
			return bytes.TrimSpace(data), nil
		}
		if name, value, _ := bytes.Cut(line, []byte(":")); string(name) == "data" {
			data = append(append(data, bytes.TrimPrefix(value, []byte(" "))...), '\n')
		}
	}
}

// line is the next line without its end, which is CR, LF or both. It does not wait for the byte after a CR: a
// server that ends lines so may send nothing more for a while.
func (r *chatEvents) line() (line []byte, _ error) {
	for {
		c, err := r.in.ReadByte()
		if err != nil {
			return nil, err
		}
		second := r.afterCR && c == '\n'
		r.afterCR = c == '\r'
		switch {
		case second:
		case c == '\r' || c == '\n':
			return line, nil
		default:
			line = append(line, c)
		}
	}
}

// chatContent joins the pieces of a streamed content into what the server would have sent whole: pieces of text
// and of thinking become one chunk each as long as nothing comes between.
type chatContent struct {
	chunks []*chatChunk
	listed bool // a piece was a list, so the whole is one; else it is a string
}

type chatChunk struct {
	kind     string
	members  map[string]json.RawMessage // of the wire; the last piece wins
	text     strings.Builder            // of kind text, in place of the member
	thinking chatContent                // of kind thinking, likewise
}

// add takes the next piece, a string, null or a list, and returns the text in it.
func (c *chatContent) add(piece json.RawMessage) (text string, err error) {
	if chatNull(piece) {
		return "", nil
	}
	if piece[0] != '[' {
		if err := json.Unmarshal(piece, &text); err != nil {
			return "", err
		}
		c.chunk("text").text.WriteString(text)
		return text, nil
	}
	c.listed = true
	var list []map[string]json.RawMessage
	if err := json.Unmarshal(piece, &list); err != nil {
		return "", err
	}
	for _, members := range list {
		var kind, more string
		json.Unmarshal(members["type"], &kind) // a chunk of no known kind is kept as it is
		chunk := c.chunk(kind)
		maps.Copy(chunk.members, members)
		switch kind {
		case "text":
			err = json.Unmarshal(members["text"], &more)
			chunk.text.WriteString(more)
			text += more
		case "thinking":
			_, err = chunk.thinking.add(members["thinking"])
		}
		if err != nil {
			return "", err
		}
	}
	return text, nil
}

// chunk is the last chunk if it is of a kind that goes on, else a new one.
func (c *chatContent) chunk(kind string) *chatChunk {
	if n := len(c.chunks); n > 0 && c.chunks[n-1].kind == kind && (kind == "text" || kind == "thinking") {
		return c.chunks[n-1]
	}
	chunk := &chatChunk{kind: kind, members: map[string]json.RawMessage{}}
	c.chunks = append(c.chunks, chunk)
	return chunk
}

func (c *chatContent) content() Content {
	if !c.listed {
		return Text(c.chunk("text").text.String()) // strings alone have made one chunk, or none
	}
	list := []map[string]json.RawMessage{}
	for _, chunk := range c.chunks {
		switch chunk.kind {
		case "text":
			chunk.members["type"] = json.RawMessage(`"text"`)
			chunk.members["text"] = json.RawMessage(Text(chunk.text.String()))
		case "thinking":
			chunk.members["thinking"] = json.RawMessage(chunk.thinking.content())
		}
		list = append(list, chunk.members)
	}
	b, _ := chatJSON(list) // of valid pieces
	return b
}

// chatCalls joins the fragments of streamed tool calls. Mistral sends each call whole; other servers send the
// arguments in pieces, most with the call's index, some without.
type chatCalls struct {
	calls   []*chatPartial
	byIndex map[int]*chatPartial
}

type chatPartial struct {
	call      ToolCall
	arguments strings.Builder
}

func (c *chatCalls) add(f *chatCall) {
	call := c.find(f)
	if call == nil {
		call = &chatPartial{}
		c.calls = append(c.calls, call)
		if f.Index != nil {
			if c.byIndex == nil {
				c.byIndex = map[int]*chatPartial{}
			}
			c.byIndex[*f.Index] = call
		}
	}
	call.call.merge(f)
	call.arguments.WriteString(string(f.Function.Arguments))
}

// find is the call that a fragment goes on with, nil if it begins one.
func (c *chatCalls) find(f *chatCall) *chatPartial {
	var last *chatPartial
	if f.Index != nil {
		last = c.byIndex[*f.Index]
	} else if len(c.calls) > 0 && (f.id() != "" || f.Function.Name == "") {
		last = c.calls[len(c.calls)-1]
	}
	if last != nil && f.id() != "" && last.call.ID != "" && f.id() != last.call.ID {
		return nil // another id at the same index: a server that counts every call as 0
	}
	return last
}

func (c *chatCalls) whole() (calls []ToolCall) {
	for _, p := range c.calls {
		p.call.Arguments = cmp.Or(p.arguments.String(), "{}")
		calls = append(calls, p.call)
	}
	return calls
}

// refusal makes an APIError of an answer that is none, whatever its form: Mistral's, {"detail": …} of its framework,
// {"error": …} of others, a list of that, or a proxy's page.
func (m *Mistral) refusal(resp *http.Response, body []byte) *APIError {
	e := &APIError{Status: resp.StatusCode, RetryAfter: chatRetryAfter(resp.Header.Get("Retry-After"))}
	var parsed any
	if json.Unmarshal(body, &parsed) == nil {
		body, _ = chatJSON(parsed) // without escapes, behind which the key would not be found
	}
	object := chatErrorObject(parsed)
	e.Message = m.clean(cmp.Or(chatErrorText(object), string(body)))
	e.Type = m.clean(chatErrorText(object["type"]))
	e.Code = m.clean(chatErrorText(object["code"]))
	e.CorrelationID = m.clean(cmp.Or(resp.Header.Get("Mistral-Correlation-Id"), chatErrorText(object["request_id"])))
	e.Hint = e.advice()
	if to, err := resp.Location(); err == nil && e.Status/100 == 3 {
		e.Hint = m.clean(fmt.Sprintf("the server redirects to %s://%s: check the base URL", to.Scheme, to.Host))
	}
	if page := string(bytes.TrimSpace(body)); strings.HasPrefix(page, "<") {
		_, title, _ := strings.Cut(page, "<title>")
		title, _, _ = strings.Cut(title, "</title>")
		e.Message = m.clean("a web page: " + title)
		if e.Status < 500 {
			e.Hint = "this is no chat-completions API: check the base URL, and any proxy on the way"
		}
	}
	return e
}

// advice is what to do about a refusal, as far as it can be told.
func (e *APIError) advice() string {
	text := strings.ToLower(e.Message)
	says := func(phrases ...string) bool {
		return slices.ContainsFunc(phrases, func(p string) bool { return strings.Contains(text, p) })
	}
	switch {
	case e.Status == 401 || e.Status == 403 || says("api key"):
		return "check the API key"
	case e.Status == 413 || says("context length", "context window", "context size", "too large", "too long"):
		return "the conversation is too long for this model: shorten it or begin a new one"
	case e.Code == "1500" || says("invalid model", "model not found") || e.Status == 404 && says("model"):
		return "check the model's name"
	case e.Status == 404 || e.Status == 405:
		return "check the base URL: most end in /v1"
	case e.Status == 422:
		return "the server does not take a message, a tool or an option in this form"
	case e.Status == 429:
		return "too many requests or tokens: wait, or check the plan"
	case e.Status >= 500:
		return "the server, or one on the way to it, is in trouble: try again later"
	}
	return ""
}

// chatErrorObject is the object in which an error says what it is.
func chatErrorObject(v any) map[string]any {
	for {
		switch w := v.(type) {
		case []any:
			if len(w) == 0 {
				return nil
			}
			v = w[0]
		case map[string]any:
			inner, ok := w["error"].(map[string]any)
			if !ok {
				return w
			}
			v = inner
		default:
			return nil
		}
	}
}

// chatErrorText is what an error says, in one line: a text or number itself, of a list every entry, of an object the
// member that speaks, with the place that a validation error names.
func chatErrorText(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	case []any:
		var all []string
		for _, entry := range v {
			if s := chatErrorText(entry); s != "" {
				all = append(all, s)
			}
		}
		return strings.Join(all, "; ")
	case map[string]any:
		if msg := chatErrorText(v["msg"]); msg != "" {
			place := strings.ReplaceAll(chatErrorText(v["loc"]), "; ", ".")
			return strings.TrimPrefix(place+": "+msg, ": ")
		}
		for _, name := range []string{"message", "detail", "error"} {
			if s := chatErrorText(v[name]); s != "" {
				return s
			}
		}
	}
	return ""
}

// chatRetryAfter reads a Retry-After header: seconds, or a date (RFC 9110, 10.2.3). 0 means that it says nothing
// of use.
func chatRetryAfter(value string) time.Duration {
	if seconds, err := strconv.ParseUint(value, 10, 32); err == nil { // 32 bits of seconds fit a Duration
		return time.Duration(seconds) * time.Second
	}
	if date, err := http.ParseTime(value); err == nil {
		return max(0, time.Until(date))
	}
	return 0
}

// clean makes a peer's text fit to be shown: without the key, on one line, without what a terminal would obey, and
// not too long. The key goes first, so that nothing can be cut off of it.
func (m *Mistral) clean(text string) string {
	if m.Key != "" {
		text = strings.NewReplacer(m.Key, "[key]", url.QueryEscape(m.Key), "[key]", url.PathEscape(m.Key), "[key]").Replace(text)
	}
	text = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text)
	text = strings.Join(strings.Fields(text), " ")
	const max = 500
	if len(text) > max {
		text = strings.ToValidUTF8(text[:max], "") + "…"
	}
	return text
}

// safe is err if its text is clean, else a bare error with the clean text: what it wraps would still hold the rest.
func (m *Mistral) safe(err error) error {
	if text := m.clean(err.Error()); text != err.Error() {
		return errors.New(text)
	}
	return err
}

// chatInner strips the URL off an error, as it can hold credentials.
func chatInner(err error) error {
	var e *url.Error
	if errors.As(err, &e) {
		return e.Err
	}
	return err
}

func chatLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || ip != nil && ip.IsLoopback()
}

// chatNull tells a member that is absent or null.
func chatNull(raw []byte) bool {
	return len(raw) == 0 || string(raw) == "null"
}

// chatJSON is json.Marshal that leaves <, > and & alone: models read them, and escapes cost them tokens.
func chatJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}
