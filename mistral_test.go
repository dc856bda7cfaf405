package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"gotest.tools/v3/assert"
)

func ExampleMistral() {
	// A server that knows one answer. Without BaseURL, requests go to Mistral.
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Println(regexp.MustCompile(`("tools":\[).*\]`).ReplaceAllString(string(body), "$1…]"))
		io.WriteString(w, `{"model":"mistral-large-2512","choices":[{"finish_reason":"tool_calls","message":{"content":"",
			"tool_calls":[{"id":"D681PevKs","function":{"name":"weather","arguments":"{\"city\":\"Lyon\"}"}}]}}],
			"usage":{"prompt_tokens":63,"completion_tokens":12,"total_tokens":75}}`)
	}))
	defer server.Close()

	m := &Mistral{BaseURL: server.URL, Key: "secret", Model: "mistral-large-latest"}
	answer, err := m.Complete(context.Background(), &ChatRequest{
		Messages: []ChatMessage{{Role: "user", Content: TextContent("Rain in Lyon?")}},
		Tools: []Function{{Name: "weather", Description: "The weather now.",
			Parameters: json.RawMessage(`{"type":"object","properties":{"city":{"type":"string"}}}`)}},
	}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, call := range answer.Message.ToolCalls {
		fmt.Println("call", call.ID, call.Name, call.Arguments)
	}
	fmt.Println(answer.FinishReason, answer.Usage.TotalTokens)

	// Output:
	// {"model":"mistral-large-latest","messages":[{"role":"user","content":"Rain in Lyon?"}],"tools":[…]}
	// call D681PevKs weather {"city":"Lyon"}
	// tool_calls 75
}

// chatHello is the least of requests.
var chatHello = &ChatRequest{Messages: []ChatMessage{{Role: "user", Content: TextContent("hello")}}}

const (
	chatFine  = `{"choices":[{"message":{"role":"assistant","content":"fine"},"finish_reason":"stop"}]}`
	chatToken = `data: {"choices":[{"delta":{"content":"tok"}}]}` + "\n\n"
	chatDone  = `data: {"choices":[{"delta":{},"finish_reason":"stop"}]}` + "\n\ndata: [DONE]\n\n"
	chatJSON  = "application/json"
	chatSSE   = "text/event-stream"
)

// chatReply answers one request without a network, so that time can be synctest's.
type chatReply func(*http.Request) (*http.Response, error)

// chatModel is a Mistral that gets one answer after the other, the last one again and again.
type chatModel struct {
	*Mistral
	at     []time.Duration // of each request, since the start
	waits  []time.Duration // as reported to OnRetry
	failed []error
}

func newChatModel(answers ...chatReply) *chatModel {
	start := time.Now()
	m := &chatModel{Mistral: &Mistral{BaseURL: "https://model.test/v1", Model: "m", Key: "secret"}}
	m.OnRetry = func(err error, wait time.Duration) {
		m.failed, m.waits = append(m.failed, err), append(m.waits, wait)
	}
	m.Client = &http.Client{Transport: chatTransport(func(r *http.Request) (*http.Response, error) {
		m.at = append(m.at, time.Since(start))
		return answers[min(len(m.at), len(answers))-1](r)
	})}
	return m
}

type chatTransport func(*http.Request) (*http.Response, error)

func (f chatTransport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// chatSays answers with a body; header is "Name: value".
func chatSays(status int, kind, body string, header ...string) chatReply {
	return chatBreaks(status, kind, body, io.EOF, header...)
}

// chatBreaks answers with a body after which comes err.
func chatBreaks(status int, kind, body string, err error, header ...string) chatReply {
	return func(*http.Request) (*http.Response, error) {
		in := io.MultiReader(strings.NewReader(body), iotest.ErrReader(err))
		resp := &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {kind}}, Body: io.NopCloser(in)}
		for _, h := range header {
			name, value, _ := strings.Cut(h, ": ")
			resp.Header.Set(name, value)
		}
		return resp, nil
	}
}

func chatStatus(status int, header ...string) chatReply {
	return chatSays(status, chatJSON, `{"message":"no"}`, header...)
}

func TestMistralRequest(t *testing.T) {
	s := newModelServer(t)
	s.Key, s.Gemini, s.Rest = "secret", true, modelText("fine")
	m := &Mistral{BaseURL: s.URL + "/", Key: "secret", Model: "mistral-test"}
	host := strings.TrimSuffix(strings.TrimPrefix(s.URL, "http://"), "/v1")
	zero := 0.0
	schema := json.RawMessage(`{ "type": "object", "properties": {"z": {"$ref": "#/$defs/z"}, ` +
		`"a": {"anyOf": [{"type": "string"}, {"type": "null"}]}}, "$defs": {"z": {"$id": "z"}} }`)
	user := ChatMessage{Role: "user", Content: TextContent("a < b && \"c\" > d\u2028\n\xff")}
	const userSent = `{"role":"user","content":"a < b && \"c\" > d\u2028\n\ufffd"}`
	const function = `{"function":{"description":"","name":"f","parameters":{"properties":{},"type":"object"}},` +
		`"type":"function"}`
	for name, test := range map[string]struct {
		request ChatRequest
		want    string // after the model
	}{
		"least": {ChatRequest{Messages: []ChatMessage{user}}, `"messages":[` + userSent + `]}`},
		"history": {ChatRequest{Messages: []ChatMessage{
			{Role: "system", Content: TextContent("s")},
			{Role: "user", Content: Content(`[ {"type": "text", "text": "<x>"} ]`)},
			{Role: "assistant", Content: Content(`null`), ToolCalls: []ToolCall{
				{ID: "aaaaaaaa1", Name: "f", Arguments: `{"x":"<"}`,
					Extra: json.RawMessage(`{"google": {"sig": "&"}}`), ExtraHost: host},
				{ID: "aaaaaaaa2", Name: "g", Extra: json.RawMessage(`{"google": {"sig": "&"}}`), ExtraHost: "other.test"}}},
			{Role: "tool", Content: TextContent("one"), ToolCallID: "aaaaaaaa1", Name: "f"},
			{Role: "tool", ToolCallID: "aaaaaaaa2", Name: "g"},
			{Role: "assistant", ToolCalls: []ToolCall{{ID: "call_0", Name: "g"}, {ID: "", Name: "g"}}},
			{Role: "tool", Content: TextContent("two"), ToolCallID: "", Name: "g"},
			{Role: "tool", Content: TextContent("three"), ToolCallID: "call_0", Name: "g"},
			{Role: "assistant", Content: Content(`[{"type":"text","text":"so"}]`), ToolCalls: []ToolCall{}},
			user,
		}}, `"messages":[{"role":"system","content":"s"},{"role":"user","content":[{"type":"text","text":"<x>"}]},` +
			`{"role":"assistant","content":"","tool_calls":[{"id":"aaaaaaaa1","type":"function","function":{"name":"f",` +
			`"arguments":"{\"x\":\"<\"}"},"extra_content":{"google":{"sig":"&"}}},` +
			`{"id":"aaaaaaaa2","type":"function","function":{"name":"g","arguments":"{}"}}]},` +
			`{"role":"tool","content":"one","tool_call_id":"aaaaaaaa1","name":"f"},` +
			`{"role":"tool","content":"","tool_call_id":"aaaaaaaa2","name":"g"},` +
			`{"role":"assistant","content":"","tool_calls":[` +
			`{"id":"` + callID("call_0") + `","type":"function","function":{"name":"g","arguments":"{}"}},` +
			`{"id":"` + callID("") + `","type":"function","function":{"name":"g","arguments":"{}"}}]},` +
			`{"role":"tool","content":"two","tool_call_id":"` + callID("") + `","name":"g"},` +
			`{"role":"tool","content":"three","tool_call_id":"` + callID("call_0") + `","name":"g"},` +
			`{"role":"assistant","content":[{"type":"text","text":"so"}]},` + userSent + `]}`},
		"options": {ChatRequest{Messages: []ChatMessage{user}, Temperature: &zero, MaxTokens: 7, ToolChoice: "none",
			Tools: []Function{{Name: "f"}, {Name: "g", Description: "<d>", Parameters: schema},
				{Name: "f", Parameters: json.RawMessage(`null`), ReadOnly: true}}},
			`"messages":[` + userSent + `],"tools":[` + function + `,{"function":{"description":"<d>","name":"g",` +
				`"parameters":{"type":"object","properties":{"z":{"$ref":"#/$defs/z"},` +
				`"a":{"anyOf":[{"type":"string"},{"type":"null"}]}},"$defs":{"z":{"$id":"z"}}}},"type":"function"},` + function +
				`],"tool_choice":"none","temperature":0,"max_tokens":7}`},
		"choice without tools": {ChatRequest{Messages: []ChatMessage{user}, ToolChoice: "none"},
			`"messages":[` + userSent + `]}`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := m.Complete(t.Context(), &test.request, nil)
			assert.NilError(t, err)
			_, err = m.Complete(t.Context(), &test.request, func(string) {})
			assert.NilError(t, err)
			sent := s.Requests()
			whole, stream := sent[len(sent)-2], sent[len(sent)-1]
			want := `{"model":"mistral-test",` + test.want
			assert.Equal(t, string(whole.Body), want)
			assert.Equal(t, string(stream.Body), strings.TrimSuffix(want, "}")+
				`,"stream":true,"stream_options":{"include_usage":true}}`)
			assert.Equal(t, whole.Header.Get("Authorization"), "Bearer secret")
			assert.Equal(t, whole.Header.Get("Accept"), chatJSON)
			assert.Equal(t, stream.Header.Get("Accept"), chatSSE)
		})
	}

	// What cannot be encoded is not sent.
	before := len(s.Requests())
	broken := ChatMessage{Role: "user", Content: Content("no JSON")}
	_, err := m.Complete(t.Context(), &ChatRequest{Messages: []ChatMessage{broken}}, nil)
	assert.ErrorContains(t, err, "invalid character")
	assert.Equal(t, len(s.Requests()), before)

	m.Key = ""
	_, err = m.Complete(t.Context(), chatHello, nil)
	assert.ErrorContains(t, err, "401 Unauthorized")
	_, sent := s.Requests()[before].Header["Authorization"]
	assert.Assert(t, !sent)
}

// Servers other than Mistral's are asked for the tokens of a stream: once where they refuse that, and always where they
// have taken it. What is refused for another reason is refused again.
func TestMistralStreamUsage(t *testing.T) {
	const asking = `"stream":true,"stream_options":{"include_usage":true}}`
	m := newChatModel()
	var sent []string
	answer := func(takes, refusesUsage int) {
		m.Client = &http.Client{Transport: chatTransport(func(r *http.Request) (*http.Response, error) {
			body, err := io.ReadAll(r.Body)
			assert.NilError(t, err)
			_, options, _ := strings.Cut(string(body), `}],`)
			sent = append(sent, options)
			if strings.Contains(options, "stream_options") && refusesUsage > 0 {
				return chatStatus(refusesUsage)(r)
			}
			return chatSays(takes, cmp.Or(map[int]string{200: chatSSE}[takes], chatJSON), chatToken+chatDone)(r)
		})}
	}
	ask := func(want ...string) error {
		t.Helper()
		sent = nil
		_, err := m.Complete(t.Context(), chatHello, func(string) {})
		assert.DeepEqual(t, sent, want)
		return err
	}
	const plain = `"stream":true}`

	for _, base := range []string{"", "https://api.mistral.ai/v1", "https://CODESTRAL.mistral.ai/v1"} {
		m.Mistral = &Mistral{BaseURL: base, Model: "m"}
		answer(200, 422)
		assert.NilError(t, ask(plain))
	}
	for _, status := range []int{400, 422} {
		m.Mistral = &Mistral{BaseURL: "https://notmistral.ai/v1", Model: "m"}
		answer(400, 0) // for another reason
		assert.ErrorContains(t, ask(asking, plain), "400")
		answer(200, status)
		assert.NilError(t, ask(asking, plain))
		assert.NilError(t, ask(plain))
		answer(400, 0)
		assert.ErrorContains(t, ask(plain), "400")
	}
	m.Mistral = &Mistral{BaseURL: "https://model.test/v1", Model: "m"}
	answer(401, 0)
	assert.ErrorContains(t, ask(asking), "401")
	answer(200, 0)
	assert.NilError(t, ask(asking))
	answer(400, 0)
	assert.ErrorContains(t, ask(asking), "400")
}

func TestCallID(t *testing.T) {
	assert.Equal(t, callID("aB3aB3aB3"), "aB3aB3aB3")
	made := map[string]bool{}
	for _, id := range []string{"", "call_1", "call_2", "aaaaaaaa", "aaaaaaaaaa"} {
		assert.Assert(t, modelID.MatchString(callID(id)) && callID(id) == callID(id), id)
		made[callID(id)] = true
	}
	assert.Equal(t, len(made), 5)
}

func TestMessageRoundTrip(t *testing.T) {
	for history, want := range map[string]string{
		`[{"role":"user","content":[{"type":"text","text":"t"},{"type":"image_url","image_url":"data:"}]}]`:              "",
		`[{"role":"assistant","content":[{"type":"thinking","thinking":[],"closed":true},{"type":"text","text":"so"}]}]`: "",
		`[{"role":"assistant","content":"","tool_calls":[{"id":"aaaaaaaa1","type":"function",` +
			`"function":{"name":"f","arguments":"{ \"x\" : 1 }"},"extra_content":{"b":1,"a":2},"extra_host":"a.test"}]}]`: "",
		`[{"role":"tool","content":"ok","tool_call_id":"aaaaaaaa1","name":"f"}]`: "",
		`[{"role":"assistant","content":null,"tool_calls":[{"function":{"name":"f","arguments":{"x":1}}},` +
			`{"id":7,"function":{"name":"g","arguments":"{\"x\":\"\\ud800\"}"}},` +
			`{"id":"null","function":{"name":"g"}}]}]`: `[{"role":"assistant","content":"","tool_calls":[` +
			`{"id":"","type":"function","function":{"name":"f","arguments":"{\"x\":1}"}},` +
			`{"id":"7","type":"function","function":{"name":"g","arguments":"{\"x\":\"\\ufffd\"}"}},` +
			`{"id":"","type":"function","function":{"name":"g","arguments":"{}"}}]}]`,
	} {
		var messages []ChatMessage
		saved := []byte(history)
		assert.NilError(t, json.Unmarshal(saved, &messages))
		clear(saved) // nothing may point into it
		again, err := json.Marshal(messages)
		assert.NilError(t, err)
		assert.Equal(t, string(again), cmp.Or(want, history))
	}
	for content, want := range map[string]string{
		"": "", `null`: "", ` "a\nb" `: "a\nb", `{"x":1}`: "", `7`: "",
		`[{"type":"thinking","thinking":[{"type":"text"}]},{"type":"text","text":"a"},{"type":"text","text":"b"}]`: "ab",
	} {
		assert.Equal(t, Content(content).Text(), want, "%s", content)
	}
	const odd = "<&>\u2028\"\\\x00é\U0001F600"
	assert.Equal(t, TextContent(odd).Text(), odd)
}

// chatForm says what became of one case of testdata/mistral.txt. A made id is shown as "made".
func chatForm(t *testing.T, reply chatReply, body string) (outcome []string) {
	note := func(format string, args ...any) { outcome = append(outcome, "= "+fmt.Sprintf(format, args...)) }
	var text strings.Builder
	m := newChatModel(reply)
	m.Tries = 1
	m.streamUsage.Store(usageTaken) // else a refusal would be asked for twice
	answer, err := m.Complete(t.Context(), chatHello, func(piece string) {
		assert.Assert(t, piece != "")
		text.WriteString(piece)
	})
	again, errAgain := m.Complete(t.Context(), chatHello, nil) // the form of an answer is the server's choice
	assert.Equal(t, fmt.Sprint(errAgain), fmt.Sprint(err))
	assert.Equal(t, len(m.at), 2)
	if err != nil {
		assert.Assert(t, !strings.Contains(err.Error(), "\n"))
		ended := errors.Is(err, io.ErrUnexpectedEOF) || strings.Contains(err.Error(), "finish_reason")
		assert.Assert(t, errors.As(err, new(*APIError)) || ended)
		if answer != nil {
			assert.Equal(t, text.String(), answer.Message.Content.Text())
			note("so far %s with %d calls, %q", answer.Message.Content, len(answer.Message.ToolCalls), answer.FinishReason)
		}
		note("error %v", err)
		return outcome
	}
	assert.Equal(t, answer.Message.Role, "assistant")
	assert.Equal(t, text.String(), answer.Message.Content.Text())
	assert.Equal(t, string(again.Message.Content), string(answer.Message.Content))
	note("content %s", answer.Message.Content)
	ids := map[string]bool{}
	for _, call := range answer.Message.ToolCalls {
		assert.Assert(t, !ids[call.ID], "id %s twice", call.ID)
		ids[call.ID] = true
		if !strings.Contains(body, `"`+call.ID+`"`) && !strings.Contains(body, `"id":`+call.ID+`,`) {
			assert.Assert(t, modelID.MatchString(call.ID), "made id %s", call.ID)
			call.ID = "made"
		}
		assert.Equal(t, call.ExtraHost == "model.test", call.Extra != nil, "%q", call.ExtraHost)
		line := fmt.Sprintf("call %s %s %q %s", call.ID, call.Name, call.Arguments, call.Extra)
		note("%s", strings.TrimSpace(line))
	}
	note("end %q %v %q %v", answer.FinishReason, answer.CutOff(), answer.Model, answer.Usage)
	return outcome
}

// TestMistralForms plays testdata/mistral.txt: every form in which servers answer, whole, in a stream or with an error,
// and what it becomes.
func TestMistralForms(t *testing.T) {
	playCases(t, "testdata/mistral.txt", func(t *testing.T, _ string, given []string) [][]string {
		status, kind, body := 200, chatSSE, ""
		for _, line := range given {
			text := strings.TrimPrefix(line, "<- ")
			if strings.HasPrefix(text, "data: ") || strings.HasPrefix(text, "error: ") {
				body += text + "\n\n"
			} else if strings.HasPrefix(text, "event: ") {
				body += text + "\n"
			} else if number, err := strconv.Atoi(text); err == nil && kind == chatSSE {
				status, kind = number, chatJSON
			} else {
				body = text
			}
		}
		reply := chatSays(status, kind, body, "Mistral-Correlation-Id: c-1", "Location: /elsewhere")
		outcomes := make([][]string, len(given))
		outcomes[len(given)-1] = chatForm(t, reply, body)
		return outcomes
	})
	// Mistral's gateway names the request in the body.
	m := newChatModel(chatSays(401, chatJSON, `{"message":"no","request_id":"r-1"}`))
	_, err := m.Complete(t.Context(), chatHello, nil)
	assert.ErrorContains(t, err, "(correlation id r-1)")
}

// Lines end with CR, LF or CRLF and have any length; what is not data is passed over.
func TestMistralLines(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	stream := `data: {"choices":[{"delta":{"content":"` + long + `"}}]}` + "\n\n" + chatDone
	for name, stream := range map[string]string{
		"CRLF":                      strings.ReplaceAll(stream, "\n", "\r\n"),
		"CR":                        strings.ReplaceAll(stream, "\n", "\r"),
		"comments and other fields": ": hello\n\nevent: message\nid: 1\nretry: 5\ndata\n\ndata: \n\n" + stream,
		"no empty lines":            strings.ReplaceAll(stream, "\n\n", "\n"),
		"a byte order mark":         "\ufeff" + stream,
	} {
		m := newChatModel(chatSays(200, "text/event-stream; charset=utf-8", stream))
		answer, err := m.Complete(t.Context(), chatHello, nil)
		assert.NilError(t, err, name)
		assert.Equal(t, answer.Message.Content.Text(), long)
	}
	whole := newChatModel(chatSays(200, chatJSON, "\ufeff"+chatFine))
	answer, err := whole.Complete(t.Context(), chatHello, nil)
	assert.NilError(t, err)
	assert.Equal(t, answer.Message.Content.Text(), "fine")
}

// Time grows as the answer does, in however small pieces it comes: 100,000 of them, which copied each time would be
// a million million bytes.
func TestMistralSmallPieces(t *testing.T) {
	pieces, size := 100_000, 200
	if raceEnabled { // there is nothing to race with
		pieces /= 100
	}
	for delta, length := range map[string]int{
		`{"content":"$"}`:                                           size * pieces,
		`{"content":[{"type":"text","text":"$"}]}`:                  size * pieces,
		`{"tool_calls":[{"index":0,"function":{"arguments":"$"}}]}`: 0,
	} {
		delta = strings.ReplaceAll(delta, "$", strings.Repeat("x", size))
		event := `data: {"choices":[{"delta":` + delta + "}]}\n"
		m := newChatModel(chatSays(200, chatSSE, strings.Repeat(event, pieces)+chatDone))
		var text int
		answer, err := m.Complete(t.Context(), chatHello, func(s string) { text += len(s) })
		assert.NilError(t, err)
		assert.Equal(t, text, length)
		assert.Equal(t, len(answer.Message.Content.Text()), length)
		if length == 0 {
			assert.Equal(t, len(answer.Message.ToolCalls[0].Arguments), size*pieces)
		}
	}
}

func TestMistralRetries(t *testing.T) {
	date := func(d time.Duration) string { return time.Now().Add(d).UTC().Format(http.TimeFormat) }
	for _, test := range []struct {
		status  int
		after   string // Retry-After
		tries   int    // of the Mistral
		maxWait time.Duration
		want    int           // tries that were made
		wait    time.Duration // before the second; 0 for half a second and up to a second by chance
		line    string        // of the error
	}{
		{408, "", 2, 0, 2, 0, "(gave up at try 2 of 2, before "}, {500, "", 2, 0, 2, 0, ""}, {502, "", 2, 0, 2, 0, ""},
		{503, "", 2, 0, 2, 0, ""}, {504, "", 2, 0, 2, 0, ""}, {301, "", 2, 0, 1, 0, ""}, {307, "", 2, 0, 1, 0, ""},
		{400, "", 2, 0, 1, 0, ""}, {401, "", 2, 0, 1, 0, ""}, {404, "", 2, 0, 1, 0, ""}, {501, "", 2, 0, 1, 0, ""},
		{429, "7", 2, 0, 2, 7 * time.Second, ""}, {429, "date 42s", 2, 0, 2, 42 * time.Second, ""},
		{429, "0", 2, 0, 2, 0, ""}, {429, "-5", 2, 0, 2, 0, ""}, {429, "soon", 2, 0, 2, 0, ""}, {429, "date -1h", 2, 0, 2,
			0, ""},
		{429, "99999999999999999999", 2, 0, 2, 0, ""},
		{429, "50", 0, 0, 3, 50 * time.Second, "(gave up at try 3 of 5, before a wait of 50s)"}, // two minutes in all
		{429, "121", 0, 0, 1, 0, "(gave up at try 1 of 5, before a wait of 2m1s)"},
		{429, "120", 0, 0, 2, 120 * time.Second, ""}, // exactly as long as is allowed
		{429, "50", 0, time.Hour, 5, 50 * time.Second, "(gave up at try 5 of 5"},
		{429, "50", 9, time.Hour, 9, 50 * time.Second, "(gave up at try 9 of 9"},
		{429, "1", 9, time.Second, 2, time.Second, ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			after := test.after
			if offset, ok := strings.CutPrefix(after, "date "); ok {
				d, err := time.ParseDuration(offset)
				assert.NilError(t, err)
				after = date(d)
			}
			m := newChatModel(chatStatus(test.status, "Retry-After: "+after, "Location: https://elsewhere.test"))
			m.Tries, m.MaxWait = test.tries, test.maxWait
			_, err := m.Complete(t.Context(), chatHello, nil)
			assert.ErrorContains(t, err, test.line)
			assert.Assert(t, errors.As(err, new(*APIError)))
			assert.Equal(t, len(m.at), test.want, "%+v", test)
			assert.Equal(t, len(m.waits), test.want-1)
			if test.want > 1 && test.wait > 0 {
				assert.Equal(t, m.at[1], test.wait)
			} else if test.want > 1 {
				assert.Assert(t, m.at[1] >= 500*time.Millisecond && m.at[1] < 1500*time.Millisecond, "%v", m.at)
			}
		})
	}
}

// Half a second, half more each time up to a minute, and up to a second by chance.
func TestMistralBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newChatModel(chatStatus(503))
		m.Tries, m.MaxWait = 100, 100*time.Hour
		_, err := m.Complete(t.Context(), chatHello, nil)
		assert.ErrorContains(t, err, "503 Service Unavailable: no (gave up at try 100 of 100")
		least, different := 500*time.Millisecond, map[time.Duration]bool{}
		for i, wait := range m.waits {
			assert.Equal(t, wait, m.at[i+1]-m.at[i])
			assert.ErrorContains(t, m.failed[i], "503")
			assert.Assert(t, wait >= least && wait < least+time.Second, "wait %d: %v", i, wait)
			different[wait-least] = true
			least = min(least*3/2, time.Minute)
		}
		assert.Assert(t, len(different) > 50, "%d different waits", len(different))
	})
}

// The cause of a context's end is the error at once, in a request and in a wait, and no failure to report or to
// repeat.
func TestMistralContext(t *testing.T) {
	for _, status := range []int{0, 429} {
		synctest.Test(t, func(t *testing.T) {
			m := newChatModel(func(r *http.Request) (*http.Response, error) {
				if status > 0 {
					return chatStatus(status, "Retry-After: 100")(r)
				}
				<-r.Context().Done()
				return nil, context.Cause(r.Context())
			})
			cause := errors.New("a cause")
			ctx, cancel := context.WithTimeoutCause(t.Context(), 3*time.Second, cause)
			defer cancel()
			start := time.Now()
			_, err := m.Complete(ctx, chatHello, nil)
			assert.Equal(t, time.Since(start), 3*time.Second)
			assert.ErrorIs(t, err, cause)
			assert.Equal(t, strings.Contains(err.Error(), "while waiting to try again after: 429"), status > 0)
			assert.Equal(t, len(m.at), 1)
			assert.Equal(t, len(m.waits), min(status, 1))
		})
	}
}

// A connection that breaks is tried again as long as no byte of an answer has come, and never after.
func TestMistralBrokenConnection(t *testing.T) {
	reset := errors.New("connection reset")
	for name, test := range map[string]struct {
		answer chatReply
		tries  int
		text   string
		is     error
	}{
		"no connection":           {func(*http.Request) (*http.Response, error) { return nil, reset }, 2, "fine", nil},
		"before a byte":           {chatBreaks(200, chatJSON, "", reset), 2, "fine", nil},
		"before a byte of events": {chatBreaks(200, chatSSE, "", reset), 2, "fine", nil},
		"empty":                   {chatBreaks(200, chatSSE, "", io.EOF), 2, "fine", nil},
		"in an answer":            {chatBreaks(200, chatJSON, "{", reset), 1, "", reset},
		"before the first token":  {chatBreaks(200, chatSSE, ": hello\n\n", reset), 1, "", reset},
		"after the first token":   {chatBreaks(200, chatSSE, chatToken, reset), 1, "tok", reset},
		"in a line": {chatSays(200, chatSSE, chatToken+`data: {"choices":[{"de`), 1, "tok",
			io.ErrUnexpectedEOF},
		"between events": {chatSays(200, chatSSE, chatToken), 1, "tok", io.ErrUnexpectedEOF},
		"in an error":    {chatBreaks(503, chatJSON, `{"mess`, reset), 2, "fine", nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newChatModel(test.answer, chatSays(200, chatJSON, chatFine))
				var text string
				_, err := m.Complete(t.Context(), chatHello, func(s string) { text += s })
				assert.Equal(t, len(m.at), test.tries, "%v", err)
				assert.Equal(t, text, test.text)
				assert.ErrorIs(t, err, test.is)
			})
		})
	}

	// The same over real connections.
	m := &Mistral{BaseURL: newModelServer(t, modelHangUp{}).URL, Model: "m", Tries: 1}
	_, err := m.Complete(t.Context(), chatHello, nil)
	assert.ErrorIs(t, err, io.EOF)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	assert.NilError(t, err)
	l.Close()
	m.BaseURL = "http://" + l.Addr().String()
	_, err = m.Complete(t.Context(), chatHello, nil)
	assert.ErrorContains(t, err, "refused; nothing listens at "+l.Addr().String()+": is the model's server running?")
}

// A connection that cannot come about is not tried again, and the error says what to do.
func TestMistralNoConnection(t *testing.T) {
	refused := func(ip string, number syscall.Errno) error {
		return &net.OpError{Op: "dial", Addr: &net.TCPAddr{IP: net.ParseIP(ip)}, Err: os.NewSyscallError("connect", number)}
	}
	const check = "; check the base URL, and that the server can be reached"
	for name, test := range map[string]struct {
		err   error
		tries int
		end   string
	}{
		"another machine refuses": {refused("10.0.0.1", syscall.ECONNREFUSED), 2, check + " (gave up"},
		"this machine refuses": {refused("::1", syscall.ECONNREFUSED), 1,
			"; nothing listens at localhost:11434: is Ollama running?"},
		"Windows refuses":          {refused("127.0.0.1", 10061), 1, "is Ollama running?"},
		"this machine resets":      {refused("127.0.0.1", syscall.ECONNRESET), 2, check + " (gave up"},
		"no such name":             {&net.DNSError{Err: "no such host", IsNotFound: true}, 1, check},
		"no answer about the name": {&net.DNSError{Err: "server misbehaving", IsTemporary: true}, 2, check + " (gave up"},
		"no trust":                 {&tls.CertificateVerificationError{Err: errors.New("unknown authority")}, 1, "authority"},
		"a proxy refuses": {&ProxyError{Proxy: "p:1", Target: "t:443", Status: 403, Reason: "Forbidden"}, 1,
			"t:443: 403 Forbidden"},
		"lost on the way": {errLost{}, 2, "lost (gave up"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newChatModel(func(*http.Request) (*http.Response, error) { return nil, test.err })
				m.BaseURL, m.Tries = "http://localhost:11434/v1", 2
				_, err := m.Complete(t.Context(), chatHello, nil)
				assert.ErrorContains(t, err, test.end)
				assert.ErrorIs(t, err, test.err)
				assert.Equal(t, len(m.at), test.tries)
				if test.tries == 1 {
					assert.Assert(t, strings.HasSuffix(err.Error(), test.end), "%v", err)
				}
			})
		})
	}
}

// chatErrorTree returns err and everything that it wraps.
func chatErrorTree(err error) []error {
	all := []error{err}
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		if inner := e.Unwrap(); inner != nil {
			all = append(all, chatErrorTree(inner)...)
		}
	case interface{ Unwrap() []error }:
		for _, inner := range e.Unwrap() {
			all = append(all, chatErrorTree(inner)...)
		}
	}
	return all
}

// chatNoKey checks that neither an error nor anything that it wraps shows one of the parts.
func chatNoKey(t *testing.T, err error, parts ...string) {
	t.Helper()
	assert.Assert(t, err != nil)
	for _, err := range chatErrorTree(err) {
		shown := fmt.Sprintf("%v %+v", err, err)
		if refused, ok := err.(*APIError); ok {
			shown += fmt.Sprintf("%+v", *refused)
		}
		for _, part := range parts {
			assert.Assert(t, !strings.Contains(shown, part), "%T shows the key: %s", err, shown)
		}
	}
}

// Whatever fails, and whatever the server says, no error and nothing that it wraps holds the key.
func TestMistralKeyNeverShown(t *testing.T) {
	const key = "sk/Very+Secret=="
	for _, body := range []string{
		`{"message":"wrong key ` + key + `","type":"` + key + `","code":"` + key + `","request_id":"` + key + `"}`,
		`{"message":{"detail":[{"loc":["` + key + `"],"msg":"` + key + `"}]}}`,
		`{"unknown":"sk\/Very\u002bSecret=="}`,
		`{"` + key + `":1}`,
		`<html><title>` + key + `</title>`,
		`Authorization: Bearer ` + key,
		strings.Repeat("x", 495) + key,
		"data: " + key + "\n\n",
		`data: {"error":{"message":"` + key + "\"}}\n\n",
	} {
		for _, status := range []int{200, 302, 401, 503} {
			for _, kind := range []string{chatJSON, chatSSE} {
				m := newChatModel(chatSays(status, kind, body, "Mistral-Correlation-Id: id "+key, "Location: http://e.test/"+key))
				m.Key, m.Tries = key, 1
				_, err := m.Complete(t.Context(), chatHello, nil)
				chatNoKey(t, err, "sk/V", `sk\/V`)
			}
		}
	}
	// The key in the URL as well, as some services want it, in every way that a URL can fail.
	for _, base := range []string{"http://127.0.0.1:1/v1?key=", "https://user:", "https://host/%zz",
		"https://host:port", "", "\x00"} {
		m := &Mistral{BaseURL: base + key, Key: key, Model: "m", Tries: 1}
		_, err := m.Complete(t.Context(), chatHello, nil)
		chatNoKey(t, err, "sk/V", "Secret")
	}
	// Other credentials that a URL can hold.
	m := &Mistral{BaseURL: "http://user:hidden@127.0.0.1:1/v1?token=hidden", Tries: 1}
	_, err := m.Complete(t.Context(), chatHello, nil)
	chatNoKey(t, err, "hidden")
	// An error of the transport that quotes the request.
	synctest.Test(t, func(t *testing.T) {
		m := newChatModel(func(r *http.Request) (*http.Response, error) {
			return nil, fmt.Errorf("cannot send %v",
				r.Header)
		})
		m.Key = key
		_, err := m.Complete(t.Context(), chatHello, nil)
		chatNoKey(t, err, "sk/V")
		chatNoKey(t, m.failed[0], "sk/V")
	})
}

func TestMistralEndpoint(t *testing.T) {
	for _, test := range []struct {
		base, key string
		insecure  bool
		want      string // the URL's host, or the error
	}{
		{"", "k", false, "api.mistral.ai"},
		{"http://model.test/v1", "k", false, "use https, or no key (model.test)"},
		{"http://model.test/v1", "k", true, "model.test"},
		{"https://model.test/v1", "k", false, "model.test"},
		{"http://user:pass@model.test/v1", "", false, "use https, or no key (model.test)"},
		{"http://10.0.0.1/v1", "k", false, "use https, or no key (10.0.0.1)"},
		{"http://127.0.0.1.evil.test/v1", "k", false, "use https, or no key (127.0.0.1.evil.test)"},
		{"http://localhost:11434/v1", "k", false, "localhost:11434"},
		{"http://LocalHost:11434/v1", "k", false, "LocalHost:11434"},
		{"http://127.0.0.9:8080", "k", false, "127.0.0.9:8080"},
		{"http://[::1]:8080/v1", "k", false, "[::1]:8080"},
		{"localhost:11434/v1", "", false, "the base URL must begin with http:// or https:// and name a host"},
		{"unix:///x", "", false, "the base URL must begin with http:// or https:// and name a host"},
		{"https://model.test", "k\n", false, "the key holds a space"},
		{"https://model.test", "é", false, "the key holds a space"},
	} {
		m := newChatModel(chatSays(200, chatJSON, chatFine))
		m.BaseURL, m.Key, m.Insecure = test.base, test.key, test.insecure
		_, err := m.Complete(t.Context(), chatHello, nil)
		assert.Equal(t, len(m.at) == 1, err == nil, "%+v: %v", test, err)
		if u, err := m.Endpoint(); err != nil {
			assert.ErrorContains(t, err, test.want)
		} else {
			assert.Equal(t, u.Host, test.want)
		}
	}
}

func TestMistralMaxAnswer(t *testing.T) {
	if raceEnabled {
		t.Skip("it reads 128 MiB, and there is nothing to race with")
	}
	stream := strings.TrimSuffix(chatDone, "data: [DONE]\n\n")
	for kind, body := range map[string]string{chatJSON: chatFine, chatSSE: stream} {
		padding := strings.Repeat(" ", maxAnswer-len(body)-1) + "\n"
		_, err := newChatModel(chatSays(200, kind, padding+body)).Complete(t.Context(), chatHello, nil)
		assert.NilError(t, err)
		_, err = newChatModel(chatSays(200, kind, " "+padding+body)).Complete(t.Context(), chatHello, nil)
		assert.ErrorIs(t, err, ErrTooLarge)

		// An error of any length is shown by its beginning.
		_, err = newChatModel(chatSays(400, kind, strings.Repeat("x", 1<<20))).Complete(t.Context(), chatHello, nil)
		assert.Assert(t, err != nil && len(err.Error()) < 1000)
	}
}

// A line is not kept waiting for the byte after its CR, and a cancelled stream ends at once, its connection too.
func TestMistralStreamIsLive(t *testing.T) {
	gone := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", chatSSE)
		io.WriteString(w, strings.ReplaceAll(chatToken, "\n", "\r"))
		http.NewResponseController(w).Flush()
		<-r.Context().Done()
		close(gone)
	}))
	defer server.Close()
	ctx, cancel := context.WithCancel(t.Context())
	_, err := (&Mistral{BaseURL: server.URL}).Complete(ctx, chatHello, func(text string) {
		assert.Equal(t, text, "tok")
		cancel()
	})
	assert.ErrorIs(t, err, context.Canceled)
	<-gone
}

// A server that keeps its stream open after the end does not keep us, over either version of HTTP.
func TestMistralStreamLeftOpen(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			assert.Check(t, (r.ProtoMajor == 2) == http2, r.Proto)
			w.Header().Set("Content-Type", chatSSE)
			io.WriteString(w, chatToken+chatDone)
			http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}))
		server.EnableHTTP2 = http2
		server.StartTLS()
		defer server.Close()
		m := &Mistral{BaseURL: server.URL, Client: server.Client()}
		answer, err := m.Complete(t.Context(), chatHello, func(string) {})
		assert.NilError(t, err)
		assert.Equal(t, answer.Message.Content.Text(), "tok")
	}
}

// A server that says nothing for ten minutes, before its answer or in the middle of it, is given up, and not asked
// again. The error is the same where the transport gives no cause, as over HTTP/2.
func TestMistralSilence(t *testing.T) {
	for _, test := range []struct {
		status     int // 0 for no answer
		kind, body string
	}{
		{0, "", ""}, {200, chatJSON, ""}, {200, chatJSON, "{"}, {200, chatSSE, chatToken}, {503, chatJSON, `{"message":`},
	} {
		synctest.Test(t, func(t *testing.T) {
			m := newChatModel(func(r *http.Request) (*http.Response, error) {
				if test.status == 0 {
					<-r.Context().Done()
					return nil, r.Context().Err()
				}
				in, out := io.Pipe()
				context.AfterFunc(r.Context(), func() { out.CloseWithError(r.Context().Err()) })
				resp, err := chatSays(test.status, test.kind, "")(r)
				resp.Body = io.NopCloser(io.MultiReader(strings.NewReader(test.body), in))
				return resp, err
			})
			start := time.Now()
			_, err := m.Complete(t.Context(), chatHello, func(string) {})
			assert.ErrorIs(t, err, ErrSilent)
			assert.Equal(t, time.Since(start), 10*time.Minute)
			assert.DeepEqual(t, m.at, []time.Duration{0})
		})
	}
}

// An answer may take as long as it likes, and so may what is done with its text: only silence ends it.
func TestMistralSlowAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, out := io.Pipe()
		go func() {
			defer out.Close()
			for _, event := range []string{chatToken, chatToken, chatDone} {
				time.Sleep(9 * time.Minute)
				io.WriteString(out, event)
			}
		}()
		m := newChatModel(func(r *http.Request) (*http.Response, error) {
			context.AfterFunc(r.Context(), func() { in.CloseWithError(context.Cause(r.Context())) })
			resp, err := chatSays(200, chatSSE, "")(r)
			resp.Body = in
			return resp, err
		})
		answer, err := m.Complete(t.Context(), chatHello, func(string) { time.Sleep(time.Hour) })
		assert.NilError(t, err)
		assert.Equal(t, answer.Message.Content.Text(), "toktok")
	})
}

// FuzzModelStream compares the event reader with the rules said otherwise, and checks that an answer is either one
// that can go back, or an error that can be shown.
func FuzzModelStream(f *testing.F) {
	for _, seed := range []string{
		"data: a\n\ndata: b\r\n\r\ndata:c\r\rdata: d\n", "data: a\r\ndata: b\n\r\n: x\nevent: e\n\ndata\n\n", chatToken +
			chatDone,
		`data: {"choices":[{"delta":{"content":[{"type":"thinking"},{"type":"text","text":"x"},null,{}]}}]}` + "\n\n" +
			chatDone,
		`data: {"choices":[{"delta":{"tool_calls":[{"index":-1,"function":{"arguments":{}}},null]}}]}` + "\n\n" + chatDone,
		chatFine, `{"detail":[{"loc":["body",0],"msg":"m"}]}`, `[{"error":{"message":"m","code":1e300}}]`,
		`[[[{"error":{"error":"secret"}}]]]`, `<title>secret</title>`, "\xff\u2028secret",
		`{"choices":[{"message":{"content":[{"type":"text"}],"tool_calls":[{"function":{"arguments":{"a":1}}}]}}]}`,
	} {
		f.Add(200, []byte(seed))
		f.Add(400, []byte(seed))
	}
	f.Fuzz(func(t *testing.T, status int, body []byte) {
		var want []string
		lines := regexp.MustCompile(`\r\n|\r|\n`).Split(string(body), -1)
		for _, line := range lines[:len(lines)-1] { // the last one has no end
			field, data, _ := strings.Cut(line, ":")
			data = string(bytes.TrimSpace([]byte(data)))
			if (field == "data" || field == "error") && data != "" {
				want = append(want, data)
			}
		}
		var got []string
		reader := bufio.NewReader(iotest.DataErrReader(bytes.NewReader(body)))
		event, err := nextEvent(reader)
		for ; err == nil; event, err = nextEvent(reader) {
			got = append(got, string(event.data))
		}
		assert.Equal(t, err, io.EOF)
		assert.DeepEqual(t, got, want)
		for _, kind := range []string{chatJSON, chatSSE} {
			m := newChatModel(chatSays(status, kind, string(body)))
			m.Tries = 1
			var text string
			answer, err := m.Complete(t.Context(), chatHello, func(s string) { text += s })
			if err != nil {
				shown := err.Error()
				fit := utf8.ValidString(shown) && len(shown) < 3000 && !strings.ContainsAny(shown, "\r\n\u2028")
				assert.Assert(t, fit && !strings.Contains(shown, "secret"), "not fit to be shown: %q", shown)
				continue
			}
			saved, err := json.Marshal(answer.Message)
			assert.NilError(t, err)
			var again ChatMessage
			assert.NilError(t, json.Unmarshal(saved, &again))
			assert.Equal(t, again.Content.Text(), answer.Message.Content.Text())
			assert.Equal(t, text, answer.Message.Content.Text())
			assert.Equal(t, len(again.ToolCalls), len(answer.Message.ToolCalls))
			for i, call := range answer.Message.ToolCalls {
				assert.Assert(t, call.ID != "" && again.ToolCalls[i].ID == call.ID)
			}
		}
	})
}

// modelServer stands in for Mistral's chat-completions API, which these tests do not reach. It is built from the
// documentation, the message validator and error bodies in bug reports. Where those leave room it is strict: what it
// takes, the real API should take.
//
// A request that breaks the API's rules is refused with the API's status and body. Another one is answered by the next
// reply of the script, as a stream if it asks for one.
//
//	s := newModelServer(t, modelCalls(modelCall("aaaaaaaa1", "search", `{"q":"x"}`)), modelText("done"))
//	m := &Mistral{BaseURL: s.URL, Model: "mistral-test"}
type modelServer struct {
	URL string // for Mistral.BaseURL

	// To be set, if at all, before the first request.
	Key    string     // refuse requests without it
	Models string     // the list of models; without one there is no such address, as at some other servers
	Gemini bool       // take extra_content on calls, as Gemini's server does and Mistral's does not
	Strict bool       // refuse stream_options, as Mistral's does and most others do not
	Rest   modelReply // answers when the script is at its end; nil fails the test instead

	t        testing.TB
	mu       sync.Mutex // guards the following; not held while a reply runs
	script   []modelReply
	requests []*modelRequest
}

// modelRequest is a request as the server got it.
type modelRequest struct {
	Header     http.Header
	Body       []byte
	Model      string
	Messages   []ChatMessage
	Tools      []Function
	ToolChoice string // the word, or the function's name
	Stream     bool
	Refusal    string // why the server refused it; "" if the script answered it
}

// Last is the last message's text.
func (r *modelRequest) Last() string {
	return r.Messages[len(r.Messages)-1].Content.Text()
}

// modelReply answers one request.
type modelReply interface {
	reply(w http.ResponseWriter, r *modelRequest)
}

// newModelServer starts a server that ends with the test.
func newModelServer(t testing.TB, script ...modelReply) *modelServer {
	s := &modelServer{t: t, script: script}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	s.URL = server.URL + "/v1"
	return s
}

// Requests are all requests so far, refused ones too.
func (s *modelServer) Requests() []*modelRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

func (s *modelServer) models() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Models
}

// ServeHTTP refuses or answers one request. The list of models is not of the script, and is not kept in Requests.
func (s *modelServer) ServeHTTP(w http.ResponseWriter, httpRequest *http.Request) {
	if httpRequest.Method == http.MethodGet && httpRequest.URL.Path == "/v1/models" &&
		(s.Key == "" || httpRequest.Header.Get("Authorization") == "Bearer "+s.Key) {
		list := modelFailure{Status: 200, Body: s.models()}
		if list.Body == "" {
			list = modelFailure{Status: 404}
		}
		list.reply(w, nil)
		return
	}
	body, err := io.ReadAll(httpRequest.Body)
	if err != nil {
		return // the client is gone
	}
	r := &modelRequest{Header: httpRequest.Header.Clone(), Body: body}
	reply := s.refuse(r, httpRequest)
	s.mu.Lock()
	s.requests = append(s.requests, r)
	w.Header().Set("Mistral-Correlation-Id", fmt.Sprintf("correlation-%d", len(s.requests)))
	if reply == nil && len(s.script) > 0 {
		reply, s.script = s.script[0], s.script[1:]
	}
	s.mu.Unlock()
	if reply == nil {
		reply = s.Rest
	}
	if reply == nil {
		s.t.Errorf("model server: the script has no reply to %s", body)
		reply = modelFailure{Status: 400, Body: `{"message":"the script is at its end"}`}
	}
	reply.reply(w, r)
}

// modelFunc makes the reply when the request is there.
type modelFunc func(r *modelRequest) modelReply

func (f modelFunc) reply(w http.ResponseWriter, r *modelRequest) { f(r).reply(w, r) }

// modelFailure is any answer that is no completion.
type modelFailure struct {
	Status int
	Header map[string]string // Content-Type is application/json unless set
	Body   string
}

func (f modelFailure) reply(w http.ResponseWriter, _ *modelRequest) {
	w.Header().Set("Content-Type", "application/json")
	for name, value := range f.Header {
		w.Header().Set(name, value)
	}
	w.WriteHeader(f.Status)
	io.WriteString(w, f.Body)
}

// modelRateLimited is Mistral's 429; retryAfter is the header's value, "" for none.
func modelRateLimited(retryAfter string) modelReply {
	f := modelError(429, "rate_limited", "1300", "Rate limit exceeded")
	if retryAfter != "" {
		f.Header = map[string]string{"Retry-After": retryAfter}
	}
	return f
}

func modelUnauthorized() modelReply {
	return modelFailure{Status: 401, Body: `{"detail":"Unauthorized"}`}
}

func modelContextTooLong() modelReply {
	return modelError(400, "invalid_request_invalid_args", "3051",
		"Prompt contains 160907 tokens and 0 draft tokens, too large for model with 131072 maximum context length")
}

func modelUnknown(model string) modelReply {
	return modelError(400, "invalid_model", "1500", "Invalid model: "+model)
}

// modelPage is a proxy's HTML.
func modelPage(status int) modelReply {
	return modelFailure{Status: status, Header: map[string]string{"Content-Type": "text/html"},
		Body: "<html>\r\n<head><title>" + http.StatusText(status) + "</title></head>\r\n<body>nginx</body></html>"}
}

// modelHangUp ends the connection without an answer.
type modelHangUp struct{}

func (modelHangUp) reply(http.ResponseWriter, *modelRequest) { panic(http.ErrAbortHandler) }

// modelText is an answer of text.
func modelText(s string) modelAnswer { return modelAnswer{Content: s} }

// modelCalls is an answer of tool calls.
func modelCalls(calls ...ToolCall) modelAnswer { return modelAnswer{Content: "", Calls: calls} }

func modelCall(id, name, arguments string) ToolCall {
	return ToolCall{ID: id, Name: name, Arguments: arguments}
}

// modelAnswer is a completion.
type modelAnswer struct {
	Content any // string, nil (null) or a list of chunks; a stream sends a string word by word and a list chunk by chunk
	Calls   []ToolCall
	Finish  string // "" means stop, or tool_calls; null that the server does not say it
	Usage   Usage  // the zero value means 10, 5, 15
	NoUsage bool   // the server does not count tokens
}

func (a modelAnswer) reply(w http.ResponseWriter, r *modelRequest) {
	finish, usage := a.Finish, a.Usage
	if finish == "" {
		finish = "stop"
		if len(a.Calls) > 0 {
			finish = "tool_calls"
		}
	}
	if usage == (Usage{}) {
		usage = Usage{PromptTokens: 10, CompletionTokens: 5, TotalTokens: 15}
	}
	envelope := func(object string, choice map[string]any) map[string]any {
		choice["index"] = 0
		if choice["finish_reason"] == "null" {
			choice["finish_reason"] = nil
		}
		return map[string]any{"id": "c0ffee", "object": object, "created": 1, "model": r.Model, "choices": []any{choice}}
	}
	if !r.Stream {
		message := map[string]any{"role": "assistant", "content": a.Content, "tool_calls": nil}
		if len(a.Calls) > 0 {
			var calls []any
			for i, c := range a.Calls {
				calls = append(calls, modelWireCall(i, c))
			}
			message["tool_calls"] = calls
		}
		whole := envelope("chat.completion", map[string]any{"message": message, "finish_reason": finish})
		if !a.NoUsage {
			whole["usage"] = usage
		}
		body := modelJSON(whole)
		w.Header().Set("Content-Type", "application/json")
		w.Write(body)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	event := func(data []byte) {
		fmt.Fprintf(w, "data: %s\n\n", data)
		http.NewResponseController(w).Flush()
	}
	for _, delta := range a.deltas() {
		event(modelJSON(envelope("chat.completion.chunk", map[string]any{"delta": delta, "finish_reason": nil})))
	}
	end := map[string]any{"delta": map[string]any{"content": ""}, "finish_reason": finish}
	last := envelope("chat.completion.chunk", end)
	if !a.NoUsage {
		last["usage"] = usage
	}
	event(modelJSON(last))
	event([]byte("[DONE]"))
}

// deltas are the pieces of a streamed message.
func (a modelAnswer) deltas() []map[string]any {
	deltas := []map[string]any{{"role": "assistant", "content": ""}}
	switch content := a.Content.(type) {
	case string:
		for _, word := range strings.SplitAfter(content, " ") {
			deltas = append(deltas, map[string]any{"content": word})
		}
	case []any:
		for _, chunk := range content {
			deltas = append(deltas, map[string]any{"content": []any{chunk}})
		}
	}
	for i, c := range a.Calls {
		deltas = append(deltas, map[string]any{"tool_calls": []any{modelWireCall(i, c)}})
	}
	return deltas
}

func modelWireCall(index int, c ToolCall) map[string]any {
	function := map[string]any{"name": c.Name, "arguments": c.Arguments}
	return map[string]any{"id": c.ID, "type": "function", "function": function, "index": index}
}

// modelError is a refusal in Mistral's documented form.
func modelError(status int, kind, code string, message any) modelFailure {
	body := map[string]any{"object": "error", "message": message, "type": kind, "param": nil, "code": nil}
	if code != "" {
		body["code"] = code
	}
	return modelFailure{Status: status, Body: string(modelJSON(body))}
}

func modelJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // of a reply that a test has written
	}
	return b
}

// refuse fills r from its body, and returns the API's refusal, or nil if there is nothing to refuse.
func (s *modelServer) refuse(r *modelRequest, httpRequest *http.Request) modelReply {
	refuse := func(f modelFailure) modelReply {
		r.Refusal = f.Body
		return f
	}
	if httpRequest.Method != http.MethodPost || httpRequest.URL.Path != "/v1/chat/completions" {
		return refuse(modelFailure{Status: 404, Body: `{"message":"no Route matched with those values"}`})
	}
	if s.Key != "" && r.Header.Get("Authorization") != "Bearer "+s.Key {
		return refuse(modelFailure{Status: 401, Body: `{"detail":"Unauthorized"}`})
	}
	check := &modelCheck{gemini: s.Gemini}
	var body any
	if r.Header.Get("Content-Type") != "application/json" || json.Unmarshal(r.Body, &body) != nil {
		check.bad("JSON decode error", nil, "body", 0)
	} else {
		check.value(body, "request", "body")
	}
	if s.Strict && strings.Contains(string(r.Body), `"stream_options":`) {
		check.bad("Extra inputs are not permitted", nil, "body", "stream_options")
	}
	if len(check.details) > 0 {
		return refuse(modelError(422, "invalid_request_error", "", map[string]any{"detail": check.details}))
	}
	var known struct {
		Model    string
		Messages []ChatMessage
		Tools    []struct{ Function Function }
		Choice   any `json:"tool_choice"`
		Stream   bool
	}
	if err := json.Unmarshal(r.Body, &known); err != nil {
		s.t.Errorf("model server: took a request that does not decode: %v: %s", err, r.Body)
	}
	r.Model, r.Messages, r.Stream = known.Model, known.Messages, known.Stream
	for _, tool := range known.Tools {
		r.Tools = append(r.Tools, tool.Function)
	}
	r.ToolChoice, _ = known.Choice.(string)
	f := modelRules(body.(map[string]any))
	if f == nil {
		f = s.images(r)
	}
	if f != nil {
		return refuse(*f)
	}
	return nil
}

// images checks the images of a request as the documentation bounds them: eight, of 10 MB, of four types, and for a
// model that takes them, if there is a list of models.
func (s *modelServer) images(r *modelRequest) *modelFailure {
	no := func(format string, arguments ...any) *modelFailure {
		f := modelError(400, "invalid_request_invalid_args", "3051", fmt.Sprintf(format, arguments...))
		return &f
	}
	count := 0
	for _, m := range r.Messages {
		var chunks []struct {
			URL json.RawMessage `json:"image_url"`
		}
		_ = json.Unmarshal(m.Content, &chunks)
		for _, chunk := range chunks {
			var url struct{ URL string }
			if chunk.URL == nil {
				continue
			}
			if json.Unmarshal(chunk.URL, &url) != nil {
				_ = json.Unmarshal(chunk.URL, &url.URL)
			}
			kind, text, ok := strings.Cut(url.URL, ";base64,")
			data, err := base64.StdEncoding.DecodeString(text)
			if !ok || err != nil || kind != "data:"+http.DetectContentType(data) ||
				!slices.Contains([]string{"image/png", "image/jpeg", "image/webp", "image/gif"}, kind[5:]) {
				return no("Image, '%.50s', could not be loaded as base64", url.URL)
			}
			if len(data) > 10_000_000 {
				return no("Image is too large")
			}
			count++
		}
	}
	var list struct {
		Data []struct {
			ID           string
			Capabilities struct{ Vision bool }
		}
	}
	_ = json.Unmarshal([]byte(s.models()), &list)
	for _, model := range list.Data {
		if model.ID == r.Model && !model.Capabilities.Vision && count > 0 {
			return no("Image input is not enabled for this model")
		}
	}
	if count > 8 {
		return no("Too many images in request, max is 8")
	}
	return nil
}

// modelForms has the members of each kind of object in a request: optional ones with ?, each with the types that it
// may have, which are those of JSON, the name of a form or of a set of words, *type for a list, and :type for an
// object of members that are not named here. An object with … may have other members too.
var modelForms = map[string]string{
	"request": "model=string messages=*message temperature?=number|null max_tokens?=number|null stream?=boolean " +
		"stream_options?=streaming " + // which Mistral refuses, and others take: see TestMistralStreamUsage
		"random_seed?=number|null tools?=*tool|null tool_choice?=choices|choice parallel_tool_calls?=boolean " +
		"top_p?=any stop?=any metadata?=any response_format?=any presence_penalty?=any frequency_penalty?=any n?=any " +
		"prediction?=any prompt_mode?=any reasoning_effort?=any guardrails?=any safe_prompt?=any",
	"streaming": "include_usage=boolean",
	"tool":      "function=function type?=functions",
	"function":  "name=string parameters=object description?=string strict?=any",
	"choice":    "function=chosen type?=functions",
	"chosen":    "name=string",

	"message system": "role=any content=string|array",
	"message user":   "role=any content=string|*chunk",
	// The API takes a list as the content of a tool message; other servers lose the id then.
	"message tool":      "role=any content=string tool_call_id?=string name?=string",
	"message assistant": "role=any content?=string|array|null tool_calls?=*call prefix?=boolean",
	"call":              "id=string function=called type?=functions index?=number",
	"called":            "name=string arguments=string|object",
	"chunk text":        "type=any text=string",
	"chunk image_url":   "type=any image_url=string|image",
	"image":             "url=string detail?=string|null",

	// JSON Schema, draft 7: the keywords that tools use.
	"schema": "… minimum?=number maximum?=number exclusiveMinimum?=number exclusiveMaximum?=number multipleOf?=factor " +
		"minLength?=count maxLength?=count minItems?=count maxItems?=count minProperties?=count maxProperties?=count " +
		"title?=string description?=string $comment?=string contentEncoding?=string contentMediaType?=string " +
		"pattern?=pattern format?=string $ref?=string $id?=string $schema?=string type?=types|typeList " +
		"required?=distinct enum?=array examples?=array properties?=:schema|:boolean patternProperties?=:schema " +
		"$defs?=:schema definitions?=:schema dependencies?=:dependency readOnly?=boolean uniqueItems?=boolean " +
		"anyOf?=*schema oneOf?=*schema allOf?=*schema items?=schema|*schema not?=schema additionalProperties?=schema",
}

var modelWords = map[string]string{
	"choices":   "auto none any required",
	"functions": "function",
	"types":     "array boolean integer null number object string",
}

// modelCheck collects what is wrong with the form of a request: a 422 of the API's framework.
type modelCheck struct {
	gemini  bool
	details []map[string]any
}

func (c *modelCheck) bad(msg string, input any, loc ...any) {
	c.details = append(c.details, map[string]any{"type": "invalid", "loc": loc, "msg": msg, "input": input})
}

// value checks that v has one of the types.
func (c *modelCheck) value(v any, types string, loc ...any) {
	at := func(more any) []any { return append(slices.Clone(loc), more) }
	object, isObject := v.(map[string]any)
	list, isList := v.([]any)
	kind := map[string]string{"string": "string", "float64": "number", "bool": "boolean", "[]interface {}": "array",
		"map[string]interface {}": "object", "<nil>": "null"}[fmt.Sprintf("%T", v)]
	for want := range strings.SplitSeq(types, "|") {
		element, ofList := strings.CutPrefix(want, "*")
		member, ofObject := strings.CutPrefix(want, ":")
		word, isWord := v.(string)
		switch {
		case want == "any", want == kind, want == "schema" && kind == "boolean", modelJudges(want, v):
		case want == "dependency":
			c.value(v, "schema|distinct", loc...)
		case isWord && slices.Contains(strings.Fields(modelWords[want]), word):
		case ofList && isList:
			for i := range list {
				c.value(list[i], element, at(i)...)
			}
		case ofObject && isObject:
			for _, name := range slices.Sorted(maps.Keys(object)) {
				c.value(object[name], member, at(name)...)
			}
		case (want == "message" || want == "chunk") && isObject:
			by := map[string]string{"message": "role", "chunk": "type"}[want]
			tag := fmt.Sprint(object[by])
			if form := modelForms[want+" "+tag]; form != "" {
				c.object(object, form, at(tag)...)
			} else {
				c.bad("Input tag '"+tag+"' found using '"+by+"' does not match any of the expected tags", v, loc...)
			}
		case modelForms[want] != "" && isObject:
			form := modelForms[want]
			if want == "call" && c.gemini {
				form += " extra_content?=any"
			}
			c.object(object, form, loc...)
		default:
			continue
		}
		return
	}
	c.bad("Input should be a valid "+types, v, loc...)
}

// modelJudges reports whether draft 7 allows a value: of a count, multipleOf, a pattern as Python has them, required,
// or type.
func modelJudges(want string, v any) bool {
	number, isNumber := v.(float64)
	text, isText := v.(string)
	list, isList := v.([]any)
	switch want {
	case "count":
		return isNumber && number >= 0 && number == float64(int(number))
	case "factor":
		return isNumber && number > 0
	case "pattern":
		_, err := regexp.Compile(strings.NewReplacer("(?=", "(?:", "(?!", "(?:").Replace(text))
		return isText && err == nil && !strings.Contains(text, `\p`) && !strings.Contains(text, `(?<`)
	case "distinct", "typeList":
		seen := make(map[any]bool)
		for _, v := range list {
			word, isText := v.(string)
			if seen[word] || !isText || want == "typeList" && !slices.Contains(strings.Fields(modelWords["types"]), word) {
				return false
			}
			seen[word] = true
		}
		return isList && (want == "distinct" || len(list) > 0)
	}
	return false
}

// object checks that an object has the members of the form, and no others.
func (c *modelCheck) object(object map[string]any, form string, loc ...any) {
	open := strings.HasPrefix(form, "… ")
	known := make(map[string]bool)
	for field := range strings.FieldsSeq(strings.TrimPrefix(form, "… ")) {
		name, types, _ := strings.Cut(field, "=")
		name, optional := strings.CutSuffix(name, "?")
		known[name] = true
		if v, ok := object[name]; ok {
			c.value(v, types, append(slices.Clone(loc), name)...)
		} else if !optional {
			c.bad("Field required", object, append(slices.Clone(loc), name)...)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(object)) {
		if !known[name] && !open {
			c.bad("Extra inputs are not permitted", object[name], append(slices.Clone(loc), name)...)
		}
	}
}

var (
	modelName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)
	modelID   = regexp.MustCompile(`^[a-zA-Z0-9]{9}$`)
)

// modelRules checks a well-formed request against the rules of a conversation: a 400.
func modelRules(body map[string]any) *modelFailure {
	no := func(status int, kind, code, format string, arguments ...any) *modelFailure {
		f := modelError(status, kind, code, fmt.Sprintf(format, arguments...))
		return &f
	}
	order := func(format string, arguments ...any) *modelFailure {
		return no(400, "invalid_request_message_order", "3230", format, arguments...)
	}
	checkName := func(name, kind, code string) *modelFailure {
		if modelName.MatchString(name) {
			return nil
		}
		return no(400, kind, code, "Function name was %s but must be a-z, A-Z, 0-9, or contain underscores and dashes, "+
			"with a maximum length of 64.", name)
	}
	checkCall := func(id, name string) *modelFailure {
		if !modelID.MatchString(id) {
			return no(400, "invalid_function_call", "3280", "Tool call id was %s but must be a-z, A-Z, 0-9, "+
				"with a length of 9.", id)
		}
		return checkName(name, "invalid_function_call", "3280")
	}

	if body["model"] == "" {
		return no(400, "invalid_model", "1500", "Invalid model: ")
	}
	if t, _ := body["temperature"].(float64); t < 0 || t > 1.5 {
		return no(422, "less_than_equal", "", "temperature: Input should be from 0 to 1.5")
	}
	tools, _ := body["tools"].([]any)
	if len(tools) > 128 {
		return no(422, "too_long", "", "tools: List should have at most 128 items after validation")
	}
	for _, t := range tools {
		function := t.(map[string]any)["function"].(map[string]any)
		if f := checkName(function["name"].(string), "invalid_request_error", ""); f != nil {
			return f
		}
		schema := function["parameters"].(map[string]any)
		check := new(modelCheck)
		check.value(schema, "schema")
		if len(check.details) > 0 || schema["type"] != "object" || schema["properties"] == nil {
			return no(400, "invalid_request_error", "", "Invalid tool schema: %s", modelJSON(check.details))
		}
	}

	messages := body["messages"].([]any)
	if len(messages) == 0 {
		return order("Conversation must have at least one message")
	}
	after := map[string]string{
		"":          "system user",
		"system":    "system user assistant",
		"user":      "system user assistant",
		"assistant": "user assistant tool",
		"tool":      "assistant tool",
	}
	previous := ""
	open := map[string]bool{} // ids of calls: true until they are answered
	for _, m := range messages {
		message := m.(map[string]any)
		role := message["role"].(string)
		if !slices.Contains(strings.Fields(after[previous]), role) {
			if previous == "" {
				return order("Conversation must start with a user message or system message")
			}
			return order("Unexpected role '%s' after role '%s'", role, previous)
		}
		previous = role
		if role == "tool" {
			id, ok := message["tool_call_id"].(string)
			if !ok {
				return no(400, "invalid_request_error", "", "Tool call id has to be defined.")
			}
			name, ok := message["name"].(string)
			if !ok {
				name = "none"
			}
			if f := checkCall(id, name); f != nil {
				return f
			}
			if waiting, known := open[id]; !known {
				return order("Unexpected tool call id %s in tool results", id)
			} else if !waiting {
				return order("Duplicate tool call id %s in tool results", id)
			}
			open[id] = false
			continue
		}
		if slices.Contains(slices.Collect(maps.Values(open)), true) {
			return order("Not the same number of function calls and responses")
		}
		clear(open)
		if role != "assistant" {
			continue
		}
		calls, listed := message["tool_calls"].([]any)
		if listed && len(calls) == 0 {
			return no(422, "too_short", "", "tool_calls: List should have at least 1 item after validation")
		}
		empty := slices.Contains([]string{`""`, "null", "[]"}, string(modelJSON(message["content"])))
		if empty && len(calls) == 0 {
			return no(400, "invalid_request_assistant_message", "3240",
				"Assistant message must have either content or tool_calls, but not none.")
		}
		for _, c := range calls {
			call := c.(map[string]any)
			function := call["function"].(map[string]any)
			id, name := call["id"].(string), function["name"].(string)
			if f := checkCall(id, name); f != nil {
				return f
			}
			if _, known := open[id]; known {
				return order("Duplicate tool call id %s in assistant message", id)
			}
			open[id] = true
			// Mistral's own server looks at this later or not at all; others fail every turn that follows.
			if arguments, ok := function["arguments"].(string); ok && !json.Valid([]byte(arguments)) {
				return &modelFailure{Status: 400, Body: `{"error":{"message":"invalid tool call arguments"}}`}
			}
		}
	}
	if slices.Contains(slices.Collect(maps.Values(open)), true) {
		return order("Not the same number of function calls and responses")
	}
	if previous != "user" && previous != "tool" {
		return order("Expected last role User or Tool (or Assistant with prefix True) for serving but got %s", previous)
	}
	return nil
}

// Every rule is broken once, in a request that is good before.
func TestModelServerRefuses(t *testing.T) {
	const good = `{"model":"m","temperature":0,"max_tokens":5,"stream":false,"tool_choice":"any",` +
		`"tools":[{"type":"function","function":{"name":"a-B_9","description":"","parameters":{"type":"object",` +
		`"properties":{"x":{"anyOf":[{"type":["string","null"]},{"type":"null"}]}},"$defs":{"y":true}}}}],` +
		`"messages":[{"role":"system","content":"s"},{"role":"user","content":"u"},{"role":"assistant","content":"",` +
		`"tool_calls":[{"id":"aaaaaaaa1","type":"function","index":0,"function":{"name":"f","arguments":"{}"}}]},` +
		`{"role":"tool","tool_call_id":"aaaaaaaa1","name":"f","content":"ok"},` +
		`{"role":"assistant","content":[{"type":"text"}]},{"role":"user","content":"v"}]}`
	const user, answer = `{"role":"user","content":"v"}`, `{"role":"assistant","content":[{"type":"text"}]}`
	const result = `{"role":"tool","tool_call_id":"aaaaaaaa1","name":"f","content":"ok"}`
	const call = `{"id":"aaaaaaaa1","type":"function","index":0,"function":{"name":"f","arguments":"{}"}}`
	const tools = `"tools":[{"type":"function",`
	const picture = `{"type":"image_url","image_url":{"url":"data:image/png;base64,` + scriptPNG + `"}}`
	_, tool, _ := strings.Cut(good, `"tools":[`)
	tool, _, _ = strings.Cut(tool, `],"messages"`)
	for _, test := range []struct {
		old, new string // in the request
		want     string // status and part of the body; "" if the request is good
	}{
		{"", "", ""},
		{`"content":""`, `"content":null`, ""},
		{`"any"`, `{"type":"function","function":{"name":"f"}}`, ""},
		{tool, tool + strings.Repeat(","+tool, 127), ""},
		{`"max_tokens":5`, `"max_tokens":null,"random_seed":0,"parallel_tool_calls":false`, ""},

		{good, `{`, "422 JSON decode error"},
		{`"model":"m",`, ``, `422 ["body","model"],"msg":"Field required"`},
		{`"m"`, `""`, "400 1500"},
		{good, `{"model":"m"}`, `422 ["body","messages"]`},
		{good, `{"model":"m","messages":[]}`, "400 at least one message"},
		{`"max_tokens"`, `"max_completion_tokens"`, `422 max_completion_tokens"],"msg":"Extra inputs are not permitted"`},
		{`"max_tokens":5`, `"stream_options":{}`, `422 ["body","stream_options"`},
		{`"max_tokens":5`, `"max_tokens":"5"`, `422 ["body","max_tokens"]`},
		{`"temperature":0`, `"temperature":1.6`, `422 temperature`},

		{tool, tool + strings.Repeat(","+tool, 128), "422 at most 128"},
		{`"any"`, `"maybe"`, `422 ["body","tool_choice"]`},
		{tools, `"tools":[{"type":"tool",`, `422 ["body","tools",0,"type"]`},
		{tools, tools + `"strict":true,`, `422 ["body","tools",0,"strict"]`},
		{`"description":""`, `"required":[]`, `422 ["body","tools",0,"function","required"]`},
		{`"description":""`, `"description":null`, `422 ["body","tools",0,"function","description"]`},
		{`{"type":"object","properties"`, `{"properties"`, "400 Invalid tool schema"},
		{`"properties":{`, `"properties":[],"x":{`, "400 Invalid tool schema"},
		{`{"anyOf"`, `{"minimum":0,"exclusiveMinimum":true,"anyOf"`, `400 Input should be a valid number`},
		{`"null"`, `"int"`, "400 Invalid tool schema"},
		{`"y":true`, `"y":"string"`, "400 Invalid tool schema"},
		{`a-B_9`, `a.b`, "400 Function name was a.b"},
		{`a-B_9`, strings.Repeat("x", 65), "400 maximum length of 64"},

		{`"system"`, `"developer"`, "422 Input tag 'developer' found using 'role'"},
		{user, `{"role":"user","content":null}`, `422 ["body","messages",5,"user","content"]`},
		{answer, `{"role":"assistant","content":"x","reasoning_content":"y"}`, `422 "assistant","reasoning_content"]`},
		{answer, `{"role":"assistant","content":""}`, "400 3240"},
		{answer, `{"role":"assistant","content":"x","tool_calls":[]}`, `422 tool_calls`},
		{`"tool_call_id":`, `"is_error":true,"tool_call_id":`, `422 ["body","messages",3,"tool","is_error"]`},
		{`"ok"`, `null`, `422 ["body","messages",3,"tool","content"]`},
		{`"index":0`, `"extra_content":{}`, `422 "tool_calls",0,"extra_content"]`},
		{`"id":"aaaaaaaa1",`, ``, `422 "tool_calls",0,"id"]`},
		{`"arguments":"{}"`, `"arguments":null`, `422 "tool_calls",0,"function","arguments"]`},
		{`"arguments":"{}"`, `"arguments":"{"`, "400 invalid tool call arguments"},
		{`"id":"aaaaaaaa1"`, `"id":"call_1"`, "400 3280"},
		{call, call + "," + call, "400 Duplicate tool call id"},

		{`{"role":"system","content":"s"},{"role":"user","content":"u"},`, ``, "400 must start with a user message"},
		{`,` + user, ``, "400 Expected last role User or Tool"},
		{user, `{"role":"system","content":"v"}`, "400 Unexpected role 'system' after role 'assistant'"},
		{answer, user, "400 Unexpected role 'user' after role 'tool'"},
		{answer, answer + "," + result, "400 Unexpected tool call id"},
		{result + "," + answer + "," + user, user + "," + result, "400 Not the same number of function calls and responses"},
		{"," + result + "," + answer + "," + user, ``, "400 Not the same number of function calls and responses"},
		{result, result + "," + result, "400 Duplicate tool call id"},
		{`"tool_call_id":"aaaaaaaa1",`, ``, "400 Tool call id has to be defined"},
		{`"tool_call_id":"aaaaaaaa1"`, `"tool_call_id":"1"`, "400 3280"},
		{`"content":"v"`, `"content":[{"type":"text","text":"v"},` + picture + `]`, ""},
		{`"content":"v"`, `"content":[` + strings.Repeat(picture+",", 7) + picture + `]`, ""},
		{`"content":"v"`, `"content":[` + strings.Repeat(picture+",", 8) + picture + `]`, "400 max is 8"},
		{`"content":"v"`, `"content":[` + strings.Replace(picture, "png", "gif", 1) + `]`, "400 could not be loaded"},
		{`"content":"v"`, `"content":[` + strings.Replace(picture, ";base64", "", 1) + `]`, "400 could not be loaded"},
		{`"content":"v"`, `"content":[{"type":"image_url","image_url":"data:application/pdf;base64,JVBERi0="}]`,
			"400 could not be loaded"},
		{`"content":"v"`, `"content":[{"type":"image_url","image_url":{"uri":"x"}}]`, `422 "image_url","url"]`},
		{`"content":"v"`, `"content":[{"type":"image","data":"x"}]`, "422 Input tag 'image'"},
		{`"content":"v"`, `"content":[{"type":"text","text":"v","cache":1}]`, "422 cache"},
		{`"tool_call_id":"aaaaaaaa1","name":"f"`, `"tool_call_id":"aaaaaaaa1","name":"a/b"`, "400 Function name was a/b"},
	} {
		t.Run(test.new, func(t *testing.T) {
			if !strings.Contains(good, test.old) {
				t.Fatalf("the request has no %s", test.old)
			}
			s := newModelServer(t)
			if test.want == "" {
				s.Rest = modelText("fine")
			}
			body := strings.Replace(good, test.old, test.new, 1)
			status, got := modelPost(t, s.URL+"/chat/completions", "", "application/json", body)
			want, part, _ := strings.Cut(cmp.Or(test.want, "200 fine"), " ")
			if fmt.Sprint(status) != want || !strings.Contains(got, part) {
				t.Errorf("%s\nanswered %d %s\nwant     %s", body, status, got, test.want)
			}
			if refused := s.Requests()[0].Refusal != ""; refused != (test.want != "") {
				t.Errorf("recorded as refused: %v", refused)
			}
		})
	}
}

func modelPost(t *testing.T, url, authorization, kind, body string) (status int, answer string) {
	r, err := http.NewRequest("POST", url, strings.NewReader(body))
	assert.NilError(t, err)
	r.Header.Set("Authorization", authorization)
	r.Header.Set("Content-Type", kind)
	resp, err := http.DefaultClient.Do(r)
	assert.NilError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	assert.NilError(t, err)
	return resp.StatusCode, string(text)
}

func TestModelServerRefusesStrangers(t *testing.T) {
	const body = `{"model":"m","messages":[{"role":"user","content":"hi"}]}`
	s := newModelServer(t)
	s.Key, s.Rest = "secret", modelText("fine")
	for _, test := range []struct {
		path, key, kind string
		want            int
	}{
		{"/chat/completions", "Bearer secret", "application/json", 200},
		{"/chat/completions", "Bearer other", "application/json", 401},
		{"/chat/completions", "", "application/json", 401},
		{"/completions", "Bearer secret", "application/json", 404},
		{"/chat/completions", "Bearer secret", "text/plain", 422},
	} {
		status, _ := modelPost(t, s.URL+test.path, test.key, test.kind, body)
		assert.Equal(t, status, test.want, "%+v", test)
	}
}

// What a model thinks before it answers is told piece by piece, in the words of each kind of server, and is no text.
func TestThinkingIsTold(t *testing.T) {
	for _, test := range []struct {
		delta string
		count int
	}{
		{`{"reasoning_content":"hm"}`, 1},
		{`{"reasoning":"hm","content":""}`, 1},
		{`{"content":[{"type":"thinking","thinking":[{"type":"text","text":"hm"}]}]}`, 1},
		{`{"reasoning_content":null,"content":"a"}`, 0},
		{`{"reasoning_content":"","reasoning":{"x":1},"content":[{"type":"text","text":"a"}]}`, 0},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = fmt.Fprintf(w, "data: {\"choices\":[{\"delta\":%s}]}\n\n"+
				"data: {\"choices\":[{\"delta\":{\"content\":\"yes\"},\"finish_reason\":\"stop\"}]}\n\n", test.delta)
		}))
		count, text := 0, ""
		m := &Mistral{BaseURL: server.URL, Model: "m", OnThinking: func() { count++ }}
		_, err := m.Complete(t.Context(), &ChatRequest{}, func(piece string) { text += piece })
		server.Close()
		assert.NilError(t, err)
		assert.Equal(t, count, test.count, test.delta)
		assert.Equal(t, strings.TrimPrefix(text, "a"), "yes")
	}
}
