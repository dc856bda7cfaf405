package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"
	"unicode"
	"unicode/utf8"

	"gotest.tools/v3/assert"
)

func ExampleMistral() {
	// A server that knows one answer. Without BaseURL, requests go to Mistral.
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(os.Stdout, r.Body)
		io.WriteString(w, `{"model":"mistral-large-2512","choices":[{"finish_reason":"tool_calls","message":{"role":"assistant","content":"",
			"tool_calls":[{"id":"D681PevKs","function":{"name":"weather","arguments":"{\"city\":\"Lyon\"}"}}]}}],
			"usage":{"prompt_tokens":63,"completion_tokens":12,"total_tokens":75}}`)
	}))
	defer server.Close()

	m := &Mistral{BaseURL: server.URL, Key: "secret", Model: "mistral-large-latest"}
	answer, err := m.Complete(context.Background(), &ChatRequest{
		Messages: []Message{{Role: "user", Content: Text("Rain in Lyon?")}},
		Tools: []Function{{Name: "weather", Description: "The weather now.",
			Parameters: json.RawMessage(`{"type":"object","properties":{"city":{"type":"string"}}}`)}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println()
	for _, call := range answer.Message.ToolCalls {
		fmt.Println("call", call.ID, call.Name, call.Arguments)
	}
	fmt.Println(answer.FinishReason, answer.Usage.TotalTokens)

	// Output:
	// {"model":"mistral-large-latest","messages":[{"role":"user","content":"Rain in Lyon?"}],"tools":[{"function":{"description":"The weather now.","name":"weather","parameters":{"properties":{"city":{"type":"string"}},"type":"object"}},"type":"function"}]}
	// call D681PevKs weather {"city":"Lyon"}
	// tool_calls 75
}

func ExampleMistral_Stream() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, `data: {"choices":[{"delta":{"content":"It "}}]}`+"\n\n")
		io.WriteString(w, `data: {"choices":[{"delta":{"content":"rains."},"finish_reason":"stop"}]}`+"\n\n")
		io.WriteString(w, "data: [DONE]\n\n")
	}))
	defer server.Close()

	m := &Mistral{BaseURL: server.URL, Model: "mistral-large-latest"}
	question := []Message{{Role: "user", Content: Text("Rain in Lyon?")}}
	answer, err := m.Stream(context.Background(), &ChatRequest{Messages: question}, func(text string) { fmt.Printf("%q\n", text) })
	if err != nil {
		fmt.Println(err)
		return
	}
	history, _ := json.Marshal(append(question, answer.Message))
	fmt.Println(string(history))

	// Output:
	// "It "
	// "rains."
	// [{"role":"user","content":"Rain in Lyon?"},{"role":"assistant","content":"It rains."}]
}

// chatHello is the least of requests.
var chatHello = &ChatRequest{Messages: []Message{{Role: "user", Content: Text("hello")}}}

// chatServer answers every request with the same headers and body.
func chatServer(t *testing.T, status int, kind, body string) *Mistral {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", kind)
		w.WriteHeader(status)
		io.WriteString(w, body)
	}))
	t.Cleanup(server.Close)
	return &Mistral{BaseURL: server.URL, Model: "m", Tries: 1}
}

// chatTransport answers without a network, so that time can be synctest's.
type chatTransport func(*http.Request) (*http.Response, error)

func (f chatTransport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func chatResponse(status int, header map[string]string, body io.Reader) *http.Response {
	resp := &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(body)}
	for name, value := range header {
		resp.Header.Set(name, value)
	}
	return resp
}

const chatFine = `{"choices":[{"message":{"role":"assistant","content":"fine"},"finish_reason":"stop"}]}`

func TestMistralRequest(t *testing.T) {
	s := newModelServer(t)
	s.Key, s.Gemini, s.Rest = "secret", true, modelText("fine")
	m := &Mistral{BaseURL: s.URL + "/", Key: "secret", Model: "mistral-test"}
	zero, seed, no := 0.0, 0, false
	schema := json.RawMessage(`{ "$schema": "https://json-schema.org/draft-07/schema#", "$id": "x", "type": "object",
		"properties": {"z": {"$ref": "#/$defs/z"}, "a": {"anyOf": [{"type": "string"}, {"type": "null"}]}}, "required": ["z"], "$defs": {"z": {"$id": "z"}} }`)
	user := Message{Role: "user", Content: Text("a < b && \"c\" > d\u2028\n\xff")}
	for _, test := range []struct {
		name    string
		request ChatRequest
		want    string
	}{
		{"least", ChatRequest{Messages: []Message{user}},
			`{"model":"mistral-test","messages":[{"role":"user","content":"a < b && \"c\" > d\u2028\n\ufffd"}]}`},
		{"history", ChatRequest{Messages: []Message{
			{Role: "system", Content: Text("s")},
			{Role: "user", Content: Content(`[ {"type": "text", "text": "<x>"} ]`)},
			{Role: "assistant", Content: Content(`null`), ToolCalls: []ToolCall{{ID: "aaaaaaaa1", Name: "f", Arguments: `{"x":"<"}`, Extra: json.RawMessage(`{"google": {"sig": "&"}}`)}, {ID: "aaaaaaaa2", Name: "g"}}},
			{Role: "tool", Content: Text("one"), ToolCallID: "aaaaaaaa1", Name: "f"},
			{Role: "tool", ToolCallID: "aaaaaaaa2", Name: "g"},
			{Role: "assistant", Content: Content(`[{"type":"thinking","thinking":[{"type":"text","text":"hm"}]},{"type":"text","text":"so"}]`), ToolCalls: []ToolCall{}},
			{Role: "user", Content: Text("u")},
		}}, `{"model":"mistral-test","messages":[{"role":"system","content":"s"},` +
			`{"role":"user","content":[{"type":"text","text":"<x>"}]},` +
			`{"role":"assistant","content":"","tool_calls":[{"id":"aaaaaaaa1","type":"function","function":{"name":"f","arguments":"{\"x\":\"<\"}"},"extra_content":{"google":{"sig":"&"}}},` +
			`{"id":"aaaaaaaa2","type":"function","function":{"name":"g","arguments":"{}"}}]},` +
			`{"role":"tool","content":"one","tool_call_id":"aaaaaaaa1","name":"f"},` +
			`{"role":"tool","content":"","tool_call_id":"aaaaaaaa2","name":"g"},` +
			`{"role":"assistant","content":[{"type":"thinking","thinking":[{"type":"text","text":"hm"}]},{"type":"text","text":"so"}]},` +
			`{"role":"user","content":"u"}]}`},
		{"options", ChatRequest{Messages: []Message{user}, Temperature: &zero, MaxTokens: 7, RandomSeed: &seed, ParallelToolCalls: &no, ToolChoice: "none",
			Tools: []Function{{Name: "f"}, {Name: "g", Description: "<d>", Parameters: schema}, {Name: "h", Parameters: json.RawMessage(`{"type":"object","properties":null}`)}}},
			`{"model":"mistral-test","messages":[{"role":"user","content":"a < b && \"c\" > d\u2028\n\ufffd"}],"tools":[` +
				`{"function":{"description":"","name":"f","parameters":{"properties":{},"type":"object"}},"type":"function"},` +
				`{"function":{"description":"<d>","name":"g","parameters":{"$defs":{"z":{"$id":"z"}},"properties":{"z":{"$ref":"#/$defs/z"},"a":{"anyOf":[{"type":"string"},{"type":"null"}]}},"required":["z"],"type":"object"}},"type":"function"},` +
				`{"function":{"description":"","name":"h","parameters":{"properties":{},"type":"object"}},"type":"function"}],` +
				`"temperature":0,"max_tokens":7,"random_seed":0,"parallel_tool_calls":false,"tool_choice":"none"}`},
		{"one function", ChatRequest{Messages: []Message{{Role: "user", Content: Text("u")}}, ToolChoice: "f", Tools: []Function{{Name: "f"}}},
			`{"model":"mistral-test","messages":[{"role":"user","content":"u"}],"tools":[{"function":{"description":"","name":"f","parameters":{"properties":{},"type":"object"}},"type":"function"}],` +
				`"tool_choice":{"function":{"name":"f"},"type":"function"}}`},
		{"choice without tools", ChatRequest{Messages: []Message{{Role: "user", Content: Text("u")}}, ToolChoice: "none", ParallelToolCalls: &no},
			`{"model":"mistral-test","messages":[{"role":"user","content":"u"}]}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := m.Complete(t.Context(), &test.request)
			assert.NilError(t, err)
			_, err = m.Stream(t.Context(), &test.request, func(string) {})
			assert.NilError(t, err)
			sent := s.Requests()
			whole, stream := sent[len(sent)-2], sent[len(sent)-1]
			assert.Equal(t, string(whole.Body), test.want)
			assert.Equal(t, string(stream.Body), strings.TrimSuffix(test.want, "}")+`,"stream":true}`)
			assert.Equal(t, whole.Header.Get("Authorization"), "Bearer secret")
			assert.Equal(t, whole.Header.Get("Accept"), "application/json")
			assert.Equal(t, stream.Header.Get("Accept"), "text/event-stream")
		})
	}

	// What cannot be sent is not sent, and says which function it is of.
	before := len(s.Requests())
	_, err := m.Complete(t.Context(), &ChatRequest{Messages: []Message{user}, Tools: []Function{{Name: "f", Parameters: json.RawMessage(`[]`)}}})
	assert.ErrorContains(t, err, "parameters of function f")
	_, err = m.Complete(t.Context(), &ChatRequest{Messages: []Message{{Role: "user", Content: Content("no JSON")}}})
	assert.ErrorContains(t, err, "invalid character")
	assert.Equal(t, len(s.Requests()), before)

	// Without a key there is no header; without messages there is a list.
	_, err = (&Mistral{BaseURL: s.URL, Model: "m"}).Complete(t.Context(), &ChatRequest{})
	assert.ErrorContains(t, err, "401 Unauthorized")
	last := s.Requests()[before]
	assert.Equal(t, last.Header.Get("Authorization"), "")
	assert.Equal(t, string(last.Body), `{"model":"m","messages":[]}`)
}

// Bounds in the form of draft 4, at any depth, come out in that of draft 7; what has none comes out as it was.
func TestFunctionSchema(t *testing.T) {
	for schema, want := range map[string]string{
		`{"minimum":0,"exclusiveMinimum":true}`:                                                              `{"exclusiveMinimum":0}`,
		`{"maximum":1.50,"exclusiveMaximum":true}`:                                                           `{"exclusiveMaximum":1.50}`,
		`{"minimum":0,"exclusiveMinimum":false}`:                                                             `{"minimum":0}`,
		`{"exclusiveMaximum":true,"minimum":1,"exclusiveMinimum" : true}`:                                    `{"exclusiveMinimum":1}`,
		`{"minimum":1e400,"exclusiveMinimum":true}`:                                                          `{"exclusiveMinimum":1e400}`,
		`{"z":{"b":1,"a":2},"items":[{"maximum":9,"exclusiveMaximum":true,"type":["integer","null"]},true]}`: `{"items":[{"exclusiveMaximum":9,"type":["integer","null"]},true],"z":{"b":1,"a":2}}`,
		`{"anyOf":[{"not":{"minimum":12345678901234567890,"exclusiveMinimum":true}},{"b":1,"a":2}]}`:         `{"anyOf":[{"not":{"exclusiveMinimum":12345678901234567890}},{"b":1,"a":2}]}`,
		// As it was:
		`{"minimum":0,"exclusiveMinimum":-1,"maximum":5}`:                             ``,
		`{"type":"object","properties":{"exclusiveMinimum":{"type":"boolean"}}}`:      ``,
		`{"b":"\"exclusiveMinimum\": true","a":{"d":1,"c":"<&>"},"enum":[true,null]}`: ``,
	} {
		tool, err := json.Marshal(Function{Name: "f", Parameters: json.RawMessage(`{"type":"object","properties":{"n":` + schema + `}}`)})
		assert.NilError(t, err)
		b, _ := chatJSON(json.RawMessage(tool))
		if want == "" {
			want = schema
		}
		want = strings.NewReplacer("<", `\u003c`, ">", `\u003e`, "&", `\u0026`).Replace(want) // json.Marshal's doing, not ours
		assert.Equal(t, string(b), `{"function":{"description":"","name":"f","parameters":{"properties":{"n":`+want+`},"type":"object"}},"type":"function"}`)
	}
}

func TestMessageRoundTrip(t *testing.T) {
	for _, history := range []string{
		`[{"role":"system","content":"s"},{"role":"user","content":[{"type":"text","text":"t"},{"type":"image_url","image_url":"data:"}]}]`,
		`[{"role":"assistant","content":[{"type":"thinking","thinking":[{"type":"text","text":"hm"}],"closed":true},{"type":"text","text":"so"}]}]`,
		`[{"role":"assistant","content":"","tool_calls":[{"id":"aaaaaaaa1","type":"function","function":{"name":"f","arguments":"{ \"x\" : 1 }"},"extra_content":{"b":1,"a":2}}]}]`,
		`[{"role":"tool","content":"ok","tool_call_id":"aaaaaaaa1","name":"f"}]`,
	} {
		var messages []Message
		saved := []byte(history)
		assert.NilError(t, json.Unmarshal(saved, &messages))
		clear(saved) // nothing may point into it
		again, err := json.Marshal(messages)
		assert.NilError(t, err)
		assert.Equal(t, string(again), history)
	}

	var m Message
	assert.NilError(t, json.Unmarshal([]byte(`{"role":"assistant","content":null,"tool_calls":[{"function":{"name":"f","arguments":{"x":1}}},{"id":"null","function":{"name":"g"}}]}`), &m))
	again, err := json.Marshal(m)
	assert.NilError(t, err)
	assert.Equal(t, string(again), `{"role":"assistant","content":"","tool_calls":[{"id":"","type":"function","function":{"name":"f","arguments":"{\"x\":1}"}},`+
		`{"id":"","type":"function","function":{"name":"g","arguments":"{}"}}]}`)
}

func TestContentText(t *testing.T) {
	for content, want := range map[string]string{
		"":         "",
		`null`:     "",
		` "a\nb" `: "a\nb",
		`{"x":1}`:  "",
		`7`:        "",
		`[{"type":"thinking","thinking":[{"type":"text","text":"no"}]},{"type":"text","text":"a"},{"type":"reference","reference_ids":[1]},{"type":"text","text":"b"}]`: "ab",
	} {
		assert.Equal(t, Content(content).Text(), want, "%s", content)
	}
	const odd = "<&>\u2028\"\\\x00é\U0001F600"
	assert.Equal(t, Text(odd).Text(), odd)
}

// Every form in which servers send an answer, whole.
func TestMistralAnswers(t *testing.T) {
	for _, test := range []struct {
		name, body string
		want       ChatResponse // with ID "*" where one has to be made
	}{
		{"text", `{"model":"m-1","choices":[{"message":{"role":"assistant","content":"hi","tool_calls":null},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3}}`,
			ChatResponse{Message{Role: "assistant", Content: Text("hi")}, "stop", "m-1", Usage{1, 2, 3}}},
		{"chunks as they came", `{"choices":[{"message":{"content":[{"z":1,"type":"text","text":"a"},{"type":"text","text":"b"}]},"finish_reason":null}],"usage":null}`,
			ChatResponse{Message: Message{Role: "assistant", Content: Content(`[{"z":1,"type":"text","text":"a"},{"type":"text","text":"b"}]`)}}},
		{"what must not come back", `{"choices":[{"message":{"role":"model","name":"n","tool_call_id":"x","refusal":null,"reasoning_content":"hm","content":"a"}}]}`,
			ChatResponse{Message: Message{Role: "assistant", Content: Text("a")}}},
		{"arguments", `{"choices":[{"message":{"content":null,"tool_calls":[
				{"id":"aaaaaaaa1","function":{"name":"f","arguments":"{\"x\":1}"}},
				{"id":"call_abc","function":{"name":"f","arguments":{"x": 1}}},
				{"id":"aaaaaaaa3","function":{"name":"f","arguments":""}},
				{"id":"aaaaaaaa4","function":{"name":"f","arguments":null}},
				{"id":"aaaaaaaa5","function":{"name":"f"}},
				{"id":"","function":{"name":"f","arguments":"{broken"}},
				{"id":"null","function":{"name":"f","arguments":"[]"},"extra_content":{"s":"x"}}]},"finish_reason":"length"}]}`,
			ChatResponse{FinishReason: "length", Message: Message{Role: "assistant", Content: Content("null"), ToolCalls: []ToolCall{
				{ID: "aaaaaaaa1", Name: "f", Arguments: `{"x":1}`}, {ID: "call_abc", Name: "f", Arguments: `{"x": 1}`},
				{ID: "aaaaaaaa3", Name: "f", Arguments: `{}`}, {ID: "aaaaaaaa4", Name: "f", Arguments: `{}`}, {ID: "aaaaaaaa5", Name: "f", Arguments: `{}`},
				{ID: "*", Name: "f", Arguments: `{broken`}, {ID: "*", Name: "f", Arguments: `[]`, Extra: json.RawMessage(`{"s":"x"}`)}}}}},
		{"stop beside calls", `{"choices":[{"message":{"tool_calls":[{"id":"aaaaaaaa1","function":{"name":"f","arguments":"{}"}}]},"finish_reason":"stop"}]}`,
			ChatResponse{FinishReason: "stop", Message: Message{Role: "assistant", ToolCalls: []ToolCall{{ID: "aaaaaaaa1", Name: "f", Arguments: "{}"}}}}},
		{"no room for more", `{"choices":[{"message":{"content":"a"},"finish_reason":"model_length"}]}`,
			ChatResponse{FinishReason: "model_length", Message: Message{Role: "assistant", Content: Text("a")}}},
		{"tool_calls beside none", `{"choices":[{"message":{"content":"a","tool_calls":[]},"finish_reason":"tool_calls"}]}`,
			ChatResponse{FinishReason: "tool_calls", Message: Message{Role: "assistant", Content: Text("a"), ToolCalls: []ToolCall{}}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := chatServer(t, 200, "application/json", test.body)
			answer, err := m.Complete(t.Context(), chatHello)
			assert.NilError(t, err)
			chatSameAnswer(t, answer, test.want)
			assert.Equal(t, answer.CutOff(), strings.HasSuffix(test.want.FinishReason, "length"))

			// A server that cannot stream answers so to Stream too.
			var text string
			answer, err = m.Stream(t.Context(), chatHello, func(s string) { text += s })
			assert.NilError(t, err)
			chatSameAnswer(t, answer, test.want)
			assert.Equal(t, text, test.want.Message.Content.Text())
		})
	}
}

// chatSameAnswer compares, taking any good id for "*" and no two calls with the same id.
func chatSameAnswer(t *testing.T, got *ChatResponse, want ChatResponse) {
	t.Helper()
	ids := map[string]bool{}
	for i, call := range got.Message.ToolCalls {
		if ids[call.ID] {
			t.Errorf("id %s twice", call.ID)
		}
		ids[call.ID] = true
		if i < len(want.Message.ToolCalls) && want.Message.ToolCalls[i].ID == "*" {
			assert.Assert(t, regexp.MustCompile(`^[a-zA-Z0-9]{9}$`).MatchString(call.ID), "made id %s", call.ID)
			got.Message.ToolCalls[i].ID = "*"
		}
	}
	assert.Equal(t, string(got.Message.Content), string(want.Message.Content))
	rest := *got
	rest.Message.Content, want.Message.Content = nil, nil
	assert.DeepEqual(t, rest, want)
}

// Every form in which servers stream an answer.
func TestMistralStreams(t *testing.T) {
	two := []ToolCall{{ID: "aaaaaaaa1", Name: "f", Arguments: `{"x":"long enough"}`}, {ID: "aaaaaaaa2", Name: "g", Arguments: `{"y":2}`}}
	calls := func(fragments ...string) string {
		var b strings.Builder
		for _, f := range fragments {
			fmt.Fprintf(&b, "data: {\"choices\":[{\"delta\":{\"tool_calls\":[%s]}}]}\n\n", f)
		}
		return b.String() + "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"tool_calls\"}]}\n\ndata: [DONE]\n\n"
	}
	texts := func(pieces ...string) string {
		var b strings.Builder
		for _, p := range pieces {
			fmt.Fprintf(&b, "data: {\"choices\":[{\"delta\":{\"content\":%s}}]}\n\n", p)
		}
		return b.String() + "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n"
	}
	for _, test := range []struct {
		name, stream string
		content      string // as JSON
		calls        []ToolCall
	}{
		{"text", texts(`"a "`, `"b"`, `""`, `null`), `"a b"`, nil},
		{"nothing", texts(), `""`, nil},
		{"thinking", texts(`[{"type":"thinking","thinking":[{"type":"text","text":"h"}]}]`, `[{"type":"thinking","thinking":[{"type":"text","text":"m"}],"closed":true}]`, `"so "`, `null`, `"now "`, `[{"type":"text","text":"be"},{"type":"reference","reference_ids":[1]}]`, `[{"type":"reference","reference_ids":[2]}]`, `" it"`),
			`[{"type":"thinking","thinking":[{"type":"text","text":"h"}]},{"type":"thinking","thinking":[{"type":"text","text":"m"}],"closed":true},{"text":"so now ","type":"text"},{"type":"text","text":"be"},{"type":"reference","reference_ids":[1]},{"type":"reference","reference_ids":[2]},{"text":" it","type":"text"}]`, nil},
		{"unknown chunks", texts(`[{"type":"new","x":1},{"y":2}]`), `[{"type":"new","x":1},{"y":2}]`, nil},

		{"whole calls", calls(`{"index":0,"id":"aaaaaaaa1","function":{"name":"f","arguments":"{\"x\":\"long enough\"}"}}`, `{"index":1,"id":"aaaaaaaa2","function":{"name":"g","arguments":{"y":2}}}`), `""`, two},
		{"fragments", calls(`{"index":0,"id":"aaaaaaaa1","type":"function","function":{"name":"f","arguments":""}}`, `{"index":0,"function":{"arguments":"{\"x\":\"long"}}`, `{"index":0,"id":null,"function":{"name":null,"arguments":" enough\"}"}}`, `{"index":1,"id":"aaaaaaaa2","function":{"name":"g"}}`, `{"index":1,"function":{"arguments":"{\"y\":2}"}}`), `""`, two},
		{"fragments in turn", calls(`{"index":0,"id":"aaaaaaaa1","function":{"name":"f"}},{"index":1,"id":"aaaaaaaa2","function":{"name":"g"}}`, `{"index":1,"function":{"arguments":"{\"y\""}}`, `{"index":0,"function":{"arguments":"{\"x\":\"long enough\"}"}}`, `{"index":1,"function":{"arguments":":2}"}}`), `""`, two},
		{"id on every fragment", calls(`{"index":0,"id":"aaaaaaaa1","function":{"name":"f","arguments":"{\"x\":\"long"}}`, `{"index":0,"id":"aaaaaaaa1","function":{"name":"f","arguments":" enough\"}"}}`, `{"index":1,"id":"aaaaaaaa2","function":{"name":"g","arguments":"{\"y\":2}"}}`), `""`, two},
		{"no index", calls(`{"id":"aaaaaaaa1","function":{"name":"f","arguments":"{\"x\":\"long enough\"}"}},{"id":"aaaaaaaa2","function":{"name":"g","arguments":"{\"y\":2}"}}`), `""`, two},
		{"fragments, no index", calls(`{"id":"aaaaaaaa1","function":{"name":"f","arguments":"{\"x\":\"long"}}`, `{"function":{"arguments":" enough"}}`, `{"id":"aaaaaaaa1","function":{"arguments":"\"}"}}`, `{"id":"aaaaaaaa2","function":{"name":"g","arguments":"{\"y\":2}"}}`), `""`, two},
		{"every index 0", calls(`{"index":0,"id":"aaaaaaaa1","function":{"name":"f","arguments":"{\"x\":\"long enough\"}"}}`, `{"index":0,"id":"aaaaaaaa2","function":{"name":"g","arguments":"{\"y\":"}}`, `{"index":0,"function":{"arguments":"2}"}}`), `""`, two},
		{"no id, no index", calls(`{"function":{"name":"f","arguments":"{}"}},{"function":{"name":"f"}}`), `""`, []ToolCall{{ID: "*", Name: "f", Arguments: "{}"}, {ID: "*", Name: "f", Arguments: "{}"}}},
		{"id null, no index", calls(`{"id":"null","function":{"name":"f","arguments":"{}"}},{"id":"null","function":{"name":"f"}}`), `""`, []ToolCall{{ID: "*", Name: "f", Arguments: "{}"}, {ID: "*", Name: "f", Arguments: "{}"}}},
		{"signed", calls(`{"id":"aaaaaaaa1","extra_content":{"google":{"thought_signature":"x"}},"function":{"name":"f","arguments":"{}"}}`), `""`, []ToolCall{{ID: "aaaaaaaa1", Name: "f", Arguments: "{}", Extra: json.RawMessage(`{"google":{"thought_signature":"x"}}`)}}},
		{"cut off", calls(`{"index":0,"id":"aaaaaaaa1","function":{"name":"f","arguments":"{\"x\":"}}`), `""`, []ToolCall{{ID: "aaaaaaaa1", Name: "f", Arguments: `{"x":`}}},

		{"CRLF", strings.ReplaceAll(texts(`"a"`), "\n", "\r\n"), `"a"`, nil},
		{"CR", strings.ReplaceAll(texts(`"a"`), "\n", "\r"), `"a"`, nil},
		{"no space after the colon", strings.ReplaceAll(texts(`"a"`), "data: ", "data:"), `"a"`, nil},
		{"comments and other fields", ": hello\n\nevent: message\nid: 1\nretry: 5\ndata\n\ndata: \n\n" + texts(`"a"`), `"a"`, nil},
		{"no empty lines", strings.ReplaceAll(texts(`"a "`, `"b"`), "\n\n", "\n"), `"a b"`, nil},
		{"a line separator is no line", texts("\"\u2028\u0085\"", `"\u000b\f"`), "\"\\u2028\u0085\\u000b\\f\"", nil},
		{"a line of a megabyte", texts(`"` + strings.Repeat("x", 1<<20) + `"`), `"` + strings.Repeat("x", 1<<20) + `"`, nil},
		{"usage alone at the end", strings.Replace(texts(`"a"`), "data: [DONE]", "data: {\"choices\":[],\"usage\":{}}\n\ndata: [DONE]", 1), `"a"`, nil},
		{"no DONE", strings.TrimSuffix(texts(`"a"`), "data: [DONE]\n\n"), `"a"`, nil},
		{"no empty line at the end", strings.TrimSuffix(texts(`"a"`), "\n"), `"a"`, nil},
		{"after DONE", texts(`"a"`) + "data: garbage\n\n", `"a"`, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := chatServer(t, 200, "text/event-stream; charset=utf-8", test.stream)
			want := ChatResponse{Message: Message{Role: "assistant", Content: Content(test.content), ToolCalls: test.calls}, FinishReason: "stop"}
			if test.calls != nil {
				want.FinishReason = "tool_calls"
			}
			var text strings.Builder
			answer, err := m.Stream(t.Context(), chatHello, func(s string) {
				assert.Assert(t, s != "")
				text.WriteString(s)
			})
			assert.NilError(t, err)
			chatSameAnswer(t, answer, want)
			assert.Equal(t, text.String(), answer.Message.Content.Text())

			answer, err = m.Complete(t.Context(), chatHello) // from a server that streams unasked
			assert.NilError(t, err)
			chatSameAnswer(t, answer, want)
		})
	}
}

// The forms of the model server, both ways, replayed to it: it refuses what the API would.
func TestMistralConversation(t *testing.T) {
	contents := map[string]any{"text": "let me see", "null": nil, "empty": "", "chunks": []any{
		map[string]any{"type": "thinking", "thinking": []any{map[string]any{"type": "text", "text": "hm"}}}, map[string]any{"type": "text", "text": "let me see"}}}
	for name, content := range contents {
		for form := modelWhole; form <= modelZeroIndex; form++ {
			for _, objects := range []bool{false, true} {
				if objects && (form == modelFragments || form == modelFragmentsNoIndex) {
					continue // half an object is not JSON
				}
				for _, stream := range []bool{false, true} {
					answer := modelAnswer{Content: content, Form: form, Objects: objects, Finish: "length", Usage: Usage{3, 4, 7},
						Calls: []ToolCall{modelCall("aaaaaaaa1", "f", `{"x":"y z"}`), modelCall("aaaaaaaa2", "g", `{}`)}}
					s := newModelServer(t, answer, modelText("done"))
					m := &Mistral{BaseURL: s.URL, Model: "m"}
					ask := m.Complete
					if stream {
						ask = func(ctx context.Context, r *ChatRequest) (*ChatResponse, error) {
							return m.Stream(ctx, r, func(string) {})
						}
					}
					history := slices.Clone(chatHello.Messages)
					first, err := ask(t.Context(), &ChatRequest{Messages: history})
					assert.NilError(t, err)
					assert.DeepEqual(t, first.Message.ToolCalls, answer.Calls)
					assert.Equal(t, first.FinishReason, "length")
					assert.Equal(t, first.Usage, Usage{3, 4, 7})
					assert.Equal(t, first.Model, "m")
					history = append(history, first.Message)
					for _, call := range first.Message.ToolCalls {
						history = append(history, Message{Role: "tool", Content: Text("ok"), ToolCallID: call.ID, Name: call.Name})
					}
					second, err := ask(t.Context(), &ChatRequest{Messages: history})
					assert.NilError(t, err, "%s, form %d, stream %v", name, form, stream)
					assert.Equal(t, second.Message.Content.Text(), "done")
				}
			}
		}
	}
}

// Every form of error, and the line that the user reads.
func TestMistralErrors(t *testing.T) {
	for _, test := range []struct {
		name   string
		status int
		body   string
		want   APIError
		line   string
	}{
		{"documented", 400, `{"object":"error","message":"no","type":"invalid_request_error","param":null,"code":null}`,
			APIError{Message: "no", Type: "invalid_request_error"}, "400 Bad Request: no (correlation id c-1)"},
		{"code a number", 400, `{"object":"error","message":"Bad","type":"t","code":1234}`, APIError{Message: "Bad", Type: "t", Code: "1234"},
			"400 Bad Request: Bad (code 1234) (correlation id c-1)"},
		{"401 detail", 401, `{"detail":"Unauthorized"}`, APIError{Message: "Unauthorized", Hint: "check the API key"},
			"401 Unauthorized: Unauthorized (correlation id c-1); check the API key"},
		{"401 message", 401, `{"message":"Unauthorized","request_id":"r-1"}`, APIError{Message: "Unauthorized", Hint: "check the API key"},
			"401 Unauthorized: Unauthorized (correlation id c-1); check the API key"},
		{"422 in message", 422, `{"object":"error","message":{"detail":[{"type":"extra_forbidden","loc":["body","messages",1,"assistant","name"],"msg":"Extra inputs are not permitted","input":"x"},{"type":"missing","loc":["body","model"],"msg":"Field required","input":{}}]},"type":"invalid_request_error","param":null,"code":null}`,
			APIError{Message: "body.messages.1.assistant.name: Extra inputs are not permitted; body.model: Field required", Type: "invalid_request_error", Hint: "the server does not take a message, a tool or an option in this form"}, ""},
		{"422 on top", 422, `{"detail":[{"type":"missing","loc":["body","model"],"msg":"Field required"}]}`,
			APIError{Message: "body.model: Field required", Hint: "the server does not take a message, a tool or an option in this form"}, ""},
		{"422 list in message", 422, `{"object":"Error","message":[{"loc":["body","tools"],"msg":"Extra inputs are not permitted"}],"code":3001}`,
			APIError{Message: "body.tools: Extra inputs are not permitted", Code: "3001", Hint: "the server does not take a message, a tool or an option in this form"}, ""},
		{"429", 429, `{"object":"error","message":"Rate limit exceeded","type":"rate_limited","code":"1300"}`,
			APIError{Message: "Rate limit exceeded", Type: "rate_limited", Code: "1300"}, ""},
		{"429 bare", 429, `{"message":"Requests rate limit exceeded"}`, APIError{Message: "Requests rate limit exceeded"}, ""},
		{"model", 400, `{"object":"error","message":"Invalid model: mistral-huge","type":"invalid_model","param":null,"code":"1500"}`,
			APIError{Message: "Invalid model: mistral-huge", Type: "invalid_model", Code: "1500", Hint: "check the model's name"},
			"400 Bad Request: Invalid model: mistral-huge (code 1500) (correlation id c-1); check the model's name"},
		{"model, Ollama", 404, `{"error":{"message":"model \"x\" not found, try pulling it first","type":"api_error","param":null,"code":null}}`,
			APIError{Message: `model "x" not found, try pulling it first`, Type: "api_error", Hint: "check the model's name"}, ""},
		{"context", 400, `{"object":"error","message":"Prompt contains 160907 tokens and 0 draft tokens, too large for model with 131072 maximum context length","type":"invalid_request_invalid_args","code":"3051"}`,
			APIError{Message: "Prompt contains 160907 tokens and 0 draft tokens, too large for model with 131072 maximum context length", Type: "invalid_request_invalid_args", Code: "3051",
				Hint: "the conversation is too long for this model: shorten it or begin a new one"}, ""},
		{"context, other words", 400, `{"error":{"message":"prompt is too long","code":400}}`,
			APIError{Message: "prompt is too long", Code: "400", Hint: "the conversation is too long for this model: shorten it or begin a new one"}, ""},
		{"Gemini", 400, `[{"error":{"code":400,"message":"API key not valid.","status":"INVALID_ARGUMENT"}}]`, APIError{Message: "API key not valid.", Code: "400"}, ""},
		{"error a word", 500, `{"error":"out of memory"}`, APIError{Message: "out of memory"}, ""},
		{"route", 404, `{"message":"no Route matched with those values"}`, APIError{Message: "no Route matched with those values", Hint: "check the base URL: most end in /v1"}, ""},
		{"page", 403, "<html>\r\n<head><title>Blocked\r\nby proxy</title></head>", APIError{Message: "a web page: Blocked by proxy", Hint: "this is no chat-completions API: check the base URL, and any proxy on the way"},
			"403 Forbidden: a web page: Blocked by proxy (correlation id c-1); this is no chat-completions API: check the base URL, and any proxy on the way"},
		{"page, 502", 502, "<html><title>502 Bad Gateway</title>", APIError{Message: "a web page: 502 Bad Gateway"}, ""},
		{"no form", 418, "short\x1b[31m and\r\n\tstout\u202e\u2028\xff", APIError{Message: "short [31m and stout \ufffd"}, ""},
		{"unknown form", 400, `{"x":{"y":"<z>"}}`, APIError{Message: `{"x":{"y":"<z>"}}`}, ""},
		{"nothing", 400, "", APIError{}, "400 Bad Request (correlation id c-1)"},
		{"long", 400, `{"message":"` + strings.Repeat("é", 1000) + `"}`, APIError{Message: strings.Repeat("é", 250) + "…"}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("mistral-correlation-id", "c-1")
				w.Header().Set("Location", "/elsewhere") // means something with 3xx only
				w.WriteHeader(test.status)
				io.WriteString(w, test.body)
			}))
			defer server.Close()
			_, err := (&Mistral{BaseURL: server.URL, Model: "m", Tries: 1}).Complete(t.Context(), chatHello)
			var got *APIError
			assert.Assert(t, errors.As(err, &got), "%v", err)
			test.want.Status, test.want.CorrelationID = test.status, "c-1"
			assert.DeepEqual(t, *got, test.want)
			if test.line != "" {
				assert.Equal(t, err.Error(), "chat completion with m at "+strings.TrimPrefix(server.URL, "http://")+": "+test.line)
			}
			assert.Assert(t, !strings.ContainsFunc(err.Error(), unicode.IsControl))
		})
	}

	// Mistral's gateway names the request in the body.
	_, err := chatServer(t, 401, "application/json", `{"message":"Unauthorized","request_id":"r-1"}`).Complete(t.Context(), chatHello)
	var refused *APIError
	assert.Assert(t, errors.As(err, &refused))
	assert.Equal(t, refused.CorrelationID, "r-1")
}

// Answers with status 200 that are none.
func TestMistralNoCompletion(t *testing.T) {
	for _, test := range []struct{ kind, body, want string }{
		{"text/html", "<title>Log in</title>", "200 OK: a web page: Log in; this is no chat-completions API"},
		{"application/json", `{"error":{"message":"overloaded","code":503}}`, "200 OK: overloaded (code 503)"},
		{"application/json", `{"choices":[]}`, `no complete answer: 200 OK: {"choices":[]}`},
		{"application/json", `{"choices":[{"message":{"content":7}}]}`, "no complete answer"},
		{"application/json", `[]`, `no complete answer: 200 OK: []`},
		{"application/json", `{"choices":[{"message":{"tool_calls":7}}]}`, "no complete answer"},
		{"text/event-stream", "data: {\"object\":\"error\",\"message\":\"overloaded\"}\n\n", "no complete answer: 200 OK: overloaded"},
		{"text/event-stream", "data: [{\"error\":{\"message\":\"overloaded\"}}]\n\n", "no complete answer: 200 OK: overloaded"},
		{"text/event-stream", "data: no JSON\n\n", "no complete answer: 200 OK: no JSON"},
		{"text/event-stream", "data: {\"choices\":[{\"delta\":{\"content\":7}}]}\n\n", "no complete answer: 200 OK"},
		{"text/event-stream", "data: {\"choices\":[{\"delta\":{\"content\":[7]}}]}\n\n", "no complete answer: 200 OK"},
		{"text/event-stream", "\n", "no complete answer: unexpected EOF"},
		{"text/event-stream", "data: [DONE]\n\n", "no complete answer: unexpected EOF"},
		{"text/event-stream", "data: {\"choices\":[],\"usage\":{\"total_tokens\":1}}\n\ndata: [DONE]\n\n", "no complete answer: unexpected EOF"},
	} {
		_, err := chatServer(t, 200, test.kind, test.body).Stream(t.Context(), chatHello, func(string) {})
		assert.ErrorContains(t, err, test.want)
	}
}

// chatScript makes a Mistral that gets one prepared answer after the other, without a network, and notes when.
func chatScript(answers ...func() (*http.Response, error)) (m *Mistral, at *[]time.Duration, retries *[]Retry) {
	at, retries = new([]time.Duration), new([]Retry)
	start := time.Now()
	m = &Mistral{BaseURL: "https://model.test/v1", Model: "m", Key: "secret"}
	m.OnRetry = func(r Retry) { *retries = append(*retries, r) }
	m.Client = &http.Client{Transport: chatTransport(func(*http.Request) (*http.Response, error) {
		*at = append(*at, time.Since(start))
		next := answers[min(len(*at), len(answers))-1] // the last one for ever
		return next()
	})}
	return m, at, retries
}

func chatStatus(status int, header map[string]string) func() (*http.Response, error) {
	return func() (*http.Response, error) {
		return chatResponse(status, header, strings.NewReader(`{"message":"no"}`)), nil
	}
}

func chatOK() (*http.Response, error) {
	return chatResponse(200, nil, strings.NewReader(chatFine)), nil
}

func TestMistralRetries(t *testing.T) {
	for status, want := range map[int]int{408: 2, 429: 2, 500: 2, 502: 2, 503: 2, 504: 2, 301: 1, 400: 1, 401: 1, 403: 1, 404: 1, 409: 1, 413: 1, 422: 1, 501: 1} {
		synctest.Test(t, func(t *testing.T) {
			m, at, retries := chatScript(chatStatus(status, nil), chatOK)
			_, err := m.Complete(t.Context(), chatHello)
			assert.Equal(t, err == nil, want == 2, "%d: %v", status, err)
			assert.Equal(t, len(*at), want, "%d", status)
			assert.Equal(t, len(*retries), want-1)
		})
	}
}

// Half a second, half more each time, and up to a second by chance; five tries.
func TestMistralBackoff(t *testing.T) {
	different := map[time.Duration]bool{}
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			m, at, retries := chatScript(chatStatus(503, nil))
			_, err := m.Complete(t.Context(), chatHello)
			assert.ErrorContains(t, err, "503 Service Unavailable: no (try 5 of 5)")
			assert.Equal(t, len(*at), 5)
			assert.Equal(t, len(*retries), 4)
			least := 500 * time.Millisecond
			for i, retry := range *retries {
				assert.Equal(t, retry.Attempt, i+1)
				assert.Equal(t, retry.Wait, (*at)[i+1]-(*at)[i])
				assert.ErrorContains(t, retry.Err, "503")
				assert.Assert(t, retry.Wait >= least && retry.Wait < least+time.Second, "wait %d: %v", i, retry.Wait)
				different[retry.Wait-least] = true
				least = least * 3 / 2
			}
		})
	}
	assert.Assert(t, len(different) > 100, "%d different waits", len(different))
	synctest.Test(t, func(t *testing.T) { // a minute is the most
		m, _, retries := chatScript(chatStatus(503, nil))
		m.Tries, m.MaxWait = 100, 100*time.Hour
		_, err := m.Complete(t.Context(), chatHello)
		assert.ErrorContains(t, err, "(try 100 of 100)")
		assert.Assert(t, (*retries)[98].Wait >= time.Minute && (*retries)[98].Wait < 61*time.Second)
	})
}

func TestMistralRetryAfter(t *testing.T) {
	for value, want := range map[string]time.Duration{"7": 7 * time.Second, "90": 90 * time.Second, "date": 42 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			if value == "date" {
				value = time.Now().Add(want).UTC().Format(http.TimeFormat)
			}
			m, at, _ := chatScript(chatStatus(429, map[string]string{"Retry-After": value}), chatOK)
			_, err := m.Complete(t.Context(), chatHello)
			assert.NilError(t, err)
			assert.DeepEqual(t, *at, []time.Duration{0, want})
		})
	}
	for _, useless := range []string{"", "0", "-5", "soon", "99999999999999999999", "Sat, 01 Jan 2000 00:00:00 GMT"} {
		synctest.Test(t, func(t *testing.T) {
			m, at, _ := chatScript(chatStatus(429, map[string]string{"Retry-After": useless}), chatOK)
			_, err := m.Complete(t.Context(), chatHello)
			assert.NilError(t, err)
			assert.Assert(t, (*at)[1] >= 500*time.Millisecond && (*at)[1] < 1500*time.Millisecond, "%s: %v", useless, *at)
		})
	}
}

func TestMistralBounds(t *testing.T) {
	for _, test := range []struct {
		tries   int
		maxWait time.Duration
		after   string
		want    int // tries that were made
		line    string
	}{
		{0, 0, "50", 3, "(try 3; to wait 50s more would be too long)"}, // two minutes in all
		{0, 0, "121", 1, "(try 1; to wait 2m1s more would be too long)"},
		{0, 0, "120", 2, ""}, // exactly as long as is allowed
		{0, time.Hour, "50", 5, "(try 5 of 5)"},
		{9, time.Hour, "50", 9, "(try 9 of 9)"},
		{1, time.Hour, "50", 1, ""},
		{9, time.Second, "1", 2, ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			m, at, retries := chatScript(chatStatus(429, map[string]string{"Retry-After": test.after}))
			m.Tries, m.MaxWait = test.tries, test.maxWait
			_, err := m.Complete(t.Context(), chatHello)
			assert.ErrorContains(t, err, test.line)
			var refused *APIError
			assert.Assert(t, errors.As(err, &refused))
			assert.Assert(t, refused.RetryAfter > 0)
			assert.Equal(t, len(*at), test.want, "%+v", test)
			assert.Equal(t, len(*retries), test.want-1)
		})
	}
}

// The cause of a context's end is the error, and no failure to report and to try again.
func TestMistralContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, at, retries := chatScript(nil)
		cause := errors.New("a cause")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, cause)
		defer cancel()
		m.Client.Transport = chatTransport(func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, context.Cause(r.Context())
		})
		_, err := m.Complete(ctx, chatHello)
		assert.ErrorIs(t, err, cause)
		assert.Equal(t, len(*at)+len(*retries), 0)
	})
}

func TestMistralWaitEndsWithContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, at, _ := chatScript(chatStatus(429, map[string]string{"Retry-After": "100"}))
		cause := errors.New("a cause")
		ctx, cancel := context.WithTimeoutCause(t.Context(), 3*time.Second, cause)
		defer cancel()
		start := time.Now()
		_, err := m.Complete(ctx, chatHello)
		assert.Equal(t, time.Since(start), 3*time.Second)
		assert.ErrorIs(t, err, cause)
		assert.ErrorContains(t, err, "while waiting to try again after: 429")
		assert.Equal(t, len(*at), 1)
	})
}

// A connection that breaks is tried again as long as no byte of an answer has come, and never after.
func TestMistralBrokenConnection(t *testing.T) {
	reset := errors.New("connection reset")
	header := map[string]string{"Content-Type": "text/event-stream"}
	event := "data: {\"choices\":[{\"delta\":{\"content\":\"tok\"}}]}\n\n"
	broken := func(status int, header map[string]string, before string, after error) func() (*http.Response, error) {
		return func() (*http.Response, error) {
			return chatResponse(status, header, io.MultiReader(strings.NewReader(before), iotest.ErrReader(after))), nil
		}
	}
	for _, test := range []struct {
		name   string
		answer func() (*http.Response, error)
		tries  int
		text   string
		is     error
	}{
		{"no connection", func() (*http.Response, error) { return nil, reset }, 2, "fine", nil},
		{"before a byte", broken(200, nil, "", reset), 2, "fine", nil},
		{"before a byte of a stream", broken(200, header, "", reset), 2, "fine", nil},
		{"empty", broken(200, header, "", io.EOF), 2, "fine", nil},
		{"in an answer", broken(200, nil, "{", reset), 1, "", reset},
		{"before the first token", broken(200, header, ": hello\n\n", reset), 1, "", reset},
		{"after the first token", broken(200, header, event, reset), 1, "tok", reset},
		{"in a line", broken(200, header, event+`data: {"choices":[{"delta":{"content":"to`, io.EOF), 1, "tok", io.ErrUnexpectedEOF},
		{"between events", broken(200, header, event, io.EOF), 1, "tok", io.ErrUnexpectedEOF},
		{"in an error", broken(503, nil, `{"mess`, reset), 2, "fine", nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, at, _ := chatScript(test.answer, chatOK)
				var text string
				_, err := m.Stream(t.Context(), chatHello, func(s string) { text += s })
				assert.Equal(t, len(*at), test.tries, "%v", err)
				assert.Equal(t, text, test.text)
				if test.is == nil {
					assert.NilError(t, err)
				} else {
					assert.ErrorIs(t, err, test.is)
				}
			})
		})
	}
}

// The same over a real connection, broken after each event of an answer and each byte of another.
func TestMistralCut(t *testing.T) {
	for cut := 1; cut <= 5; cut++ {
		s := newModelServer(t, modelAnswer{Content: "one two three", Cut: cut})
		var text string
		_, err := (&Mistral{BaseURL: s.URL, Model: "m"}).Stream(t.Context(), chatHello, func(s string) { text += s })
		if cut < 5 { // the fifth event says why the answer ends: nothing is missing then but [DONE]
			assert.ErrorIs(t, err, io.ErrUnexpectedEOF)
		}
		assert.Equal(t, text, strings.Join([]string{"", "one ", "two ", "three"}[:min(cut, 4)], ""))
		assert.Equal(t, len(s.Requests()), 1)
	}
	for cut := 1; cut < 100; cut += 7 {
		s := newModelServer(t, modelAnswer{Content: strings.Repeat("x", 100), Cut: cut})
		_, err := (&Mistral{BaseURL: s.URL, Model: "m"}).Complete(t.Context(), chatHello)
		assert.ErrorIs(t, err, io.ErrUnexpectedEOF)
		assert.Equal(t, len(s.Requests()), 1)
	}
	// Hung up on, it wants to try again; the test does not wait for that.
	s := newModelServer(t, modelHangUp{})
	ctx, cancel := context.WithCancel(t.Context())
	retries := 0
	m := &Mistral{BaseURL: s.URL, Model: "m", OnRetry: func(r Retry) { retries++; cancel() }}
	_, err := m.Complete(ctx, chatHello)
	assert.ErrorIs(t, err, context.Canceled)
	assert.ErrorIs(t, err, io.EOF)
	assert.Equal(t, retries, 1)
}

// chatErrorTree is err and everything that it wraps.
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
		`{"message":"a` + "\x00" + `"}`,
	} {
		for _, status := range []int{200, 302, 401, 503} {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Mistral-Correlation-Id", "id "+key)
				w.Header().Set("Location", "http://elsewhere.test/"+key)
				w.WriteHeader(status)
				io.WriteString(w, body)
			}))
			m := &Mistral{BaseURL: server.URL, Key: key, Model: "m", Tries: 1}
			_, err := m.Complete(t.Context(), chatHello)
			chatNoKey(t, err, "sk/V", `sk\/V`)
			server.Close()
		}
	}
	for _, stream := range []string{"data: " + key + "\n\n", "data: {\"error\":{\"message\":\"" + key + "\"}}\n\n"} {
		m := chatServer(t, 200, "text/event-stream", stream)
		m.Key = key
		_, err := m.Stream(t.Context(), chatHello, func(string) {})
		chatNoKey(t, err, "sk/V")
	}
	// The key in the URL as well, as some services want it, in every way that a URL can fail.
	for _, base := range []string{"http://127.0.0.1:1/v1?key=", "https://user:", "https://host/%zz", "https://host:port", "ftp://host/", "", "\x00"} {
		m := &Mistral{BaseURL: base + key, Key: key, Model: "m", Tries: 1}
		_, err := m.Complete(t.Context(), chatHello)
		chatNoKey(t, err, "sk/V", "Secret")
	}
	// Other credentials that a URL can hold.
	_, err := (&Mistral{BaseURL: "http://user:hidden@127.0.0.1:1/v1?token=hidden", Tries: 1}).Complete(t.Context(), chatHello)
	chatNoKey(t, err, "hidden")

	// An error of the transport that quotes the request.
	synctest.Test(t, func(t *testing.T) {
		m, _, retries := chatScript(nil)
		m.Key = key
		m.Client.Transport = chatTransport(func(r *http.Request) (*http.Response, error) {
			return nil, fmt.Errorf("cannot send %v\nat all", r.Header)
		})
		_, err := m.Complete(t.Context(), chatHello)
		chatNoKey(t, err, "sk/V")
		assert.Equal(t, len(*retries), 4)
		chatNoKey(t, (*retries)[0].Err, "sk/V")
	})

	for _, bad := range []string{key + "\n", "a b", "é"} {
		_, err := (&Mistral{BaseURL: "https://model.test", Key: bad, Model: "m"}).Complete(t.Context(), chatHello)
		assert.ErrorContains(t, err, "the key holds a space")
	}
}

func chatNoKey(t *testing.T, err error, parts ...string) {
	t.Helper()
	assert.Assert(t, err != nil)
	for _, e := range chatErrorTree(err) {
		shown := fmt.Sprintf("%v %+v", e, e)
		if refused, ok := e.(*APIError); ok {
			shown += fmt.Sprintf("%+v", *refused)
		}
		for _, part := range parts {
			if strings.Contains(shown, part) {
				t.Errorf("%T shows the key: %s", e, shown)
			}
		}
	}
	if strings.ContainsFunc(err.Error(), unicode.IsControl) {
		t.Errorf("not one line: %q", err)
	}
}

func TestMistralPlainHTTP(t *testing.T) {
	sent := 0
	client := &http.Client{Transport: chatTransport(func(*http.Request) (*http.Response, error) {
		sent++
		return chatOK()
	})}
	for _, test := range []struct {
		base, key string
		insecure  bool
		ok        bool
	}{
		{"http://model.test/v1", "k", false, false},
		{"http://model.test/v1", "k", true, true},
		{"http://model.test/v1", "", false, true},
		{"https://model.test/v1", "k", false, true},
		{"http://user:pass@model.test/v1", "", false, false},
		{"http://10.0.0.1/v1", "k", false, false},
		{"http://0.0.0.0/v1", "k", false, false},
		{"http://localhost.evil.test/v1", "k", false, false},
		{"http://127.0.0.1.evil.test/v1", "k", false, false},
		{"http://localhost:11434/v1", "k", false, true},
		{"http://127.0.0.9:8080", "k", false, true},
		{"http://[::1]:8080/v1", "k", false, true},
		{"", "k", false, true},
	} {
		sent = 0
		_, err := (&Mistral{BaseURL: test.base, Key: test.key, Insecure: test.insecure, Client: client}).Complete(t.Context(), chatHello)
		assert.Equal(t, errors.Is(err, ErrPlainKey), !test.ok, "%+v: %v", test, err)
		if !test.ok {
			assert.ErrorContains(t, err, ": use https, or no key (")
		}
		assert.Equal(t, sent == 1, test.ok, "%+v", test)
	}
	for _, base := range []string{"localhost:11434/v1", "model.test", "https://", "unix:///x"} {
		_, err := (&Mistral{BaseURL: base, Client: client}).Complete(t.Context(), chatHello)
		assert.ErrorContains(t, err, "the base URL must begin with http:// or https:// and name a host")
	}
}

// Neither the key nor the conversation goes to another origin, and an answer does not come from there.
func TestMistralRedirects(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		t.Errorf("%s %s arrived elsewhere: %v", r.Method, r.URL, r.Header)
	}))
	defer elsewhere.Close()
	mux := http.NewServeMux()
	mux.HandleFunc("/away/", func(w http.ResponseWriter, r *http.Request) {
		var status int
		fmt.Sscanf(r.URL.Path, "/away/%d", &status)
		http.Redirect(w, r, elsewhere.URL+"/v1", status)
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	for _, status := range []int{301, 302, 303, 307, 308} {
		_, err := (&Mistral{BaseURL: fmt.Sprintf("%s/away/%d", server.URL, status), Key: "k", Model: "m"}).Complete(t.Context(), chatHello)
		assert.ErrorContains(t, err, "; the server redirects elsewhere: check the base URL")
	}
}

func TestMistralMaxBody(t *testing.T) {
	stream := "data: {\"choices\":[{\"delta\":{\"content\":\"x\"},\"finish_reason\":\"stop\"}]}\n\n"
	for _, test := range []struct{ kind, body string }{{"application/json", chatFine}, {"text/event-stream", stream}} {
		m := chatServer(t, 200, test.kind, test.body)
		m.MaxBody = int64(len(test.body))
		_, err := m.Complete(t.Context(), chatHello)
		assert.NilError(t, err)
		m.MaxBody--
		_, err = m.Complete(t.Context(), chatHello)
		var large *AnswerTooLargeError
		assert.Assert(t, errors.As(err, &large), "%v", err)
		assert.Equal(t, large.Limit, m.MaxBody)
		assert.ErrorContains(t, err, fmt.Sprintf("larger than %d bytes", m.MaxBody))
	}

	// Bodies without an end, of an answer, of a line of a stream, and of an error.
	for _, status := range []int{200, 400} {
		for _, kind := range []string{"application/json", "text/event-stream"} {
			endless := chatTransport(func(*http.Request) (*http.Response, error) {
				return chatResponse(status, map[string]string{"Content-Type": kind}, chatEndless{}), nil
			})
			m := &Mistral{BaseURL: "https://model.test", MaxBody: 1 << 20, Client: &http.Client{Transport: endless}}
			_, err := m.Complete(t.Context(), chatHello)
			var large *AnswerTooLargeError
			assert.Equal(t, errors.As(err, &large), status == 200, "%v", err)
			assert.Assert(t, len(err.Error()) < 1000)
		}
	}
}

type chatEndless struct{}

func (chatEndless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

// A line is not kept waiting for the byte after its CR, and a cancelled stream ends at once, its connection too.
func TestMistralStreamIsLive(t *testing.T) {
	gone := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, "data: {\"choices\":[{\"delta\":{\"content\":\"tok\"}}]}\r\r")
		http.NewResponseController(w).Flush()
		<-r.Context().Done()
		close(gone)
	}))
	defer server.Close()
	ctx, cancel := context.WithCancel(t.Context())
	m := &Mistral{BaseURL: server.URL, Model: "m"}
	_, err := m.Stream(ctx, chatHello, func(text string) {
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
			w.Header().Set("Content-Type", "text/event-stream")
			io.WriteString(w, "data: "+strings.Replace(chatFine, "message", "delta", 1)+"\n\ndata: [DONE]\n\n")
			http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}))
		server.EnableHTTP2 = http2
		server.StartTLS()
		defer server.Close()
		answer, err := (&Mistral{BaseURL: server.URL, Model: "m", Client: server.Client()}).Stream(t.Context(), chatHello, func(string) {})
		assert.NilError(t, err)
		assert.Equal(t, answer.Message.Content.Text(), "fine")
	}
}

func TestMistralConnectionRefused(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	assert.NilError(t, err)
	l.Close()
	_, err = (&Mistral{BaseURL: "http://" + l.Addr().String(), Model: "m", Tries: 1}).Complete(t.Context(), chatHello)
	assert.ErrorContains(t, err, "refused")
	assert.ErrorContains(t, err, "; check the base URL, and that the server can be reached")

}

// A server that says nothing for ten minutes, before its answer or in the middle of it, is given up, and not asked again.
func TestMistralSilence(t *testing.T) {
	// after is an answer that begins with body and then stalls until the request ends.
	after := func(status int, kind, body string, err func(context.Context) error) chatTransport {
		return func(r *http.Request) (*http.Response, error) {
			stall := chatStall{r.Context(), err}
			return chatResponse(status, map[string]string{"Content-Type": kind}, io.MultiReader(strings.NewReader(body), stall)), nil
		}
	}
	const event = "data: {\"choices\":[{\"delta\":{\"content\":\"tok\"}}]}\n\n"
	for _, test := range []struct {
		what      string
		transport chatTransport
		want      string
		silent    bool
	}{
		{"no answer", func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, context.Cause(r.Context())
		}, "no answer: the server was silent for 10 minutes; check the base URL", true},
		{"no answer, over HTTP/2", func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		}, "no answer: the server was silent for 10 minutes; check the base URL", true},
		{"headers alone", after(200, "application/json", "", context.Cause), "no answer: the server was silent", true},
		{"half an answer", after(200, "application/json", "{", context.Cause), "no complete answer: the server was silent", true},
		{"a stream that stops", after(200, "text/event-stream", event, context.Cause), "no complete answer: the server was silent", true},
		{"the same, over HTTP/2", after(200, "text/event-stream", event, context.Context.Err), "no complete answer: the server was silent", true},
		{"half an error", after(503, "application/json", `{"message":`, context.Cause), `503 Service Unavailable: {"message":`, false},
	} {
		t.Run(test.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				asked := 0
				m := &Mistral{BaseURL: "https://model.test", Model: "m", Client: &http.Client{Transport: chatTransport(func(r *http.Request) (*http.Response, error) {
					asked++
					return test.transport(r)
				})}}
				start := time.Now()
				_, err := m.Stream(t.Context(), chatHello, func(string) {})
				assert.ErrorContains(t, err, test.want)
				assert.Equal(t, errors.Is(err, ErrSilent), test.silent)
				assert.Equal(t, time.Since(start), 10*time.Minute)
				assert.Equal(t, asked, 1)
			})
		})
	}
}

// chatStall gives nothing until ctx ends, and then err's error.
type chatStall struct {
	ctx context.Context
	err func(context.Context) error
}

func (s chatStall) Read([]byte) (int, error) {
	<-s.ctx.Done()
	return 0, s.err(s.ctx)
}

// An answer may take as long as it likes, and so may what is done with its text: only silence ends it.
func TestMistralSlowAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, out := io.Pipe()
		go func() {
			defer out.Close()
			for range 3 {
				time.Sleep(9 * time.Minute)
				io.WriteString(out, "data: {\"choices\":[{\"delta\":{\"content\":\"tok\"},\"finish_reason\":\"stop\"}]}\n\n")
			}
		}()
		m := &Mistral{BaseURL: "https://model.test", Model: "m", Client: &http.Client{Transport: chatTransport(func(r *http.Request) (*http.Response, error) {
			context.AfterFunc(r.Context(), func() { in.CloseWithError(context.Cause(r.Context())) })
			return chatResponse(200, map[string]string{"Content-Type": "text/event-stream"}, in), nil
		})}}
		answer, err := m.Stream(t.Context(), chatHello, func(string) { time.Sleep(time.Hour) })
		assert.NilError(t, err)
		assert.Equal(t, answer.Message.Content.Text(), "toktoktok")
	})
}

// What a peer says must not steer a terminal: not the line that it is on, nor the order of the words around it.
func TestSteers(t *testing.T) {
	const hostile = "\x00\a\b\n\r\t\x1b\x7f\u0085\u009b\u061c\u200e\u200f\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
	for _, r := range hostile {
		assert.Assert(t, steers(r), "%U", r)
		assert.Equal(t, new(Mistral).clean("a"+string(r)+"b"), "a b")
		if r != '\n' && r != '\t' {
			assert.Equal(t, visible("a"+string(r)+"b"), "a\uFFFDb")
		}
	}
	const harmless = "a é\u0301 読\u00a0\u202f\u200d\U0001F600\uFFFD" // with spaces that are not broken, and what joins
	assert.Assert(t, !strings.ContainsFunc(harmless, steers))
	assert.Equal(t, visible(harmless+"\n\t\r\n"), harmless+"\n\t\n")
}

func TestMistralConcurrently(t *testing.T) {
	s := newModelServer(t)
	s.Rest = modelFunc(func(r *modelRequest) modelReply { return modelText("re: " + r.Last()) })
	m := &Mistral{BaseURL: s.URL, Model: "m"}
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			question := fmt.Sprint("question ", i)
			answer, err := m.Stream(t.Context(), &ChatRequest{Messages: []Message{{Role: "user", Content: Text(question)}}}, func(string) {})
			if err != nil || answer.Message.Content.Text() != "re: "+question {
				t.Errorf("%v, %v", answer, err)
			}
		})
	}
	all.Wait()
}

// FuzzModelStream compares the event reader with the rules said otherwise, and looks for what a stream can break.
func FuzzModelStream(f *testing.F) {
	for _, seed := range []string{
		"data: a\n\ndata: b\r\n\r\ndata:c\r\rdata: d\n",
		"data: a\r\ndata: b\n\r\n: x\nevent: e\n\ndata\n\n",
		"data: {\"choices\":[{\"delta\":{\"content\":\"x\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n",
		"data: {\"choices\":[{\"delta\":{\"content\":[{\"type\":\"thinking\",\"thinking\":\"x\"},{\"type\":\"text\",\"text\":\"x\"},null,{}]}}]}\n\ndata: [DONE]\n\n",
		"data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":-1,\"function\":{\"arguments\":{}}},{\"id\":\"null\"},null]}}]}\n\ndata: [DONE]\n\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, stream []byte) {
		var want []string
		lines := regexp.MustCompile(`\r\n|\r|\n`).Split(string(stream), -1)
		for _, line := range lines[:len(lines)-1] { // the last one has no end
			data, ok := strings.CutPrefix(line, "data:")
			if data = string(bytes.TrimSpace([]byte(data))); ok && data != "" {
				want = append(want, data)
			}
		}
		for _, in := range []io.Reader{bytes.NewReader(stream), iotest.OneByteReader(bytes.NewReader(stream)), iotest.DataErrReader(bytes.NewReader(stream))} {
			lines := bufio.NewReader(in)
			var got []string
			for {
				data, err := nextData(lines)
				if err != nil {
					assert.Equal(t, err, io.EOF)
					break
				}
				got = append(got, string(data))
			}
			assert.DeepEqual(t, got, want)
		}
		chatFuzzAnswer(t, 200, "text/event-stream", stream)
	})
}

// FuzzModelError gives any body with any status to the decoders of answers and errors.
func FuzzModelError(f *testing.F) {
	for _, seed := range []string{
		chatFine, `{"detail":[{"loc":["body",0],"msg":"m"}]}`, `[{"error":{"message":"m","code":1e300}}]`, `[[[{"error":{"error":"secret"}}]]]`, `<title>secret</title>`,
		`{"choices":[{"message":{"content":[{"type":"text","text":"a"}],"tool_calls":[{"function":{"arguments":{"a":1}}}]}}]}`, "\x1b\xff\u202esecret",
	} {
		f.Add(200, []byte(seed))
		f.Add(400, []byte(seed))
	}
	f.Fuzz(func(t *testing.T, status int, body []byte) {
		chatFuzzAnswer(t, status, "application/json", body)
	})
}

// chatHostile is what a terminal must not get.
var chatHostile = regexp.MustCompile(`[\p{Cc}\x{061C}\x{200E}\x{200F}\x{2028}-\x{202E}\x{2066}-\x{2069}]`)

// chatFuzzAnswer checks that an answer is either one that can go back, or an error that can be shown.
func chatFuzzAnswer(t *testing.T, status int, kind string, body []byte) {
	const key = "secret"
	m := &Mistral{BaseURL: "https://model.test", Key: key, Tries: 1}
	m.Client = &http.Client{Transport: chatTransport(func(*http.Request) (*http.Response, error) {
		return chatResponse(status, map[string]string{"Content-Type": kind, "Location": string(body)}, bytes.NewReader(body)), nil
	})}
	var text strings.Builder
	answer, err := m.Stream(t.Context(), chatHello, func(s string) { text.WriteString(s) })
	if err != nil {
		shown := err.Error()
		if strings.Contains(shown, key) || !utf8.ValidString(shown) || len(shown) > 3000 || chatHostile.MatchString(shown) {
			t.Errorf("not fit to be shown: %q", shown)
		}
		return
	}
	saved, err := json.Marshal(answer.Message)
	assert.NilError(t, err)
	var again Message
	assert.NilError(t, json.Unmarshal(saved, &again))
	assert.Equal(t, again.Content.Text(), answer.Message.Content.Text())
	assert.Equal(t, text.String(), answer.Message.Content.Text())
	assert.Equal(t, len(again.ToolCalls), len(answer.Message.ToolCalls))
	for i, call := range answer.Message.ToolCalls {
		assert.Assert(t, call.ID != "" && call.Arguments != "")
		assert.Equal(t, again.ToolCalls[i].ID, call.ID)
	}
}
