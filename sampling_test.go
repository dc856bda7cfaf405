package main

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

// sampleRequest decodes the params of a sampling/createMessage.
func sampleRequest(t testing.TB, params string) *SampleRequest {
	t.Helper()
	r := new(SampleRequest)
	assert.NilError(t, json.Unmarshal([]byte(params), r))
	return r
}

// sampleWith answers one request by a model of one reply.
func sampleWith(t *testing.T, reply modelReply, params string) (*SampleResult, *modelRequest, error) {
	t.Helper()
	server := newModelServer(t, reply)
	result, err := SampleWith(&Mistral{BaseURL: server.URL, Model: "mistral-test", Tries: 1})(t.Context(), sampleRequest(t, params))
	if requests := server.Requests(); len(requests) > 0 {
		assert.Equal(t, requests[0].Refusal, "")
		return result, requests[0], err
	}
	return result, nil, err
}

// sampleLines shows a conversation on the wire, a message a line.
func sampleLines(t *testing.T, r *modelRequest) string {
	t.Helper()
	var body struct{ Messages []json.RawMessage }
	assert.NilError(t, json.Unmarshal(r.Body, &body))
	var lines strings.Builder
	for _, message := range body.Messages {
		lines.Write(message)
		lines.WriteByte('\n')
	}
	return lines.String()
}

const sampleWeather = `"tools":[{"name":"get.weather","description":"Weather","inputSchema":{"type":"object","properties":{"city":{"type":"string"}}}}]`

// TestSampleConversation: what a server may send becomes what the API takes.
func TestSampleConversation(t *testing.T) {
	for _, test := range []struct {
		name, params string
		want         string // the messages, a line each
	}{
		{"text, with a system prompt", `{"systemPrompt":"Be brief.","messages":[{"role":"user","content":{"type":"text","text":"a < b"}}],"maxTokens":10}`, `
{"role":"system","content":"Be brief."}
{"role":"user","content":"a < b"}
`},
		{"image, audio and the unknown", `{"messages":[{"role":"user","content":[{"type":"text","text":"what?"},{"type":"image","data":"AAEC","mimeType":"image/png"},
			{"type":"audio","data":"AAEC","mimeType":"audio/wav"},{"type":"smell","of":"roses"}]}]}`, `
{"role":"user","content":[{"text":"what?","type":"text"},{"image_url":{"url":"data:image/png;base64,AAEC"},"type":"image_url"},{"text":"[audio: audio/wav, 3 bytes]","type":"text"},{"text":"[smell: {\"type\":\"smell\",\"of\":\"roses\"}]","type":"text"}]}
`},
		{"several texts", `{"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}]}`, `
{"role":"user","content":"a\nb"}
`},
		{"calls and results, with ids that stay and ids that do not", `{"messages":[{"role":"user","content":{"type":"text","text":"weather?"}},
			{"role":"assistant","content":[{"type":"text","text":"I look."},{"type":"tool_use","id":"call_1","name":"get.weather","input":{"city":"Paris"}},
				{"type":"tool_use","id":"abcDEF123","name":"gone","input":{}}]},
			{"role":"user","content":[{"type":"tool_result","toolUseId":"abcDEF123","content":[{"type":"text","text":"no such"}],"isError":true},
				{"type":"tool_result","toolUseId":"call_1","content":[{"type":"text","text":"18"},{"type":"image","data":"AAEC","mimeType":"image/png"}]}]}],` + sampleWeather + `}`, `
{"role":"user","content":"weather?"}
{"role":"assistant","content":"I look.","tool_calls":[{"id":"OQMW7ZZOJ","type":"function","function":{"name":"get_weather","arguments":"{\"city\":\"Paris\"}"}},{"id":"abcDEF123","type":"function","function":{"name":"gone","arguments":"{}"}}]}
{"role":"tool","content":"Error: no such","tool_call_id":"abcDEF123","name":"gone"}
{"role":"tool","content":"18\n[image: image/png, 3 bytes]","tool_call_id":"OQMW7ZZOJ","name":"get_weather"}
`},
		{"only structured results", `{"messages":[{"role":"user","content":{"type":"text","text":"?"}},{"role":"assistant","content":{"type":"tool_use","id":"abcDEF123","name":"f","input":{}}},
			{"role":"user","content":{"type":"tool_result","toolUseId":"abcDEF123","content":[],"structuredContent":{"n":1}}}]}`, `
{"role":"user","content":"?"}
{"role":"assistant","content":"","tool_calls":[{"id":"abcDEF123","type":"function","function":{"name":"f","arguments":"{}"}}]}
{"role":"tool","content":"{\"n\":1}","tool_call_id":"abcDEF123","name":"f"}
`},
		{"a user's message after results", `{"messages":[{"role":"user","content":{"type":"text","text":"?"}},{"role":"assistant","content":{"type":"tool_use","id":"abcDEF123","name":"f","input":{}}},
			{"role":"user","content":{"type":"tool_result","toolUseId":"abcDEF123","content":[]}},{"role":"user","content":{"type":"text","text":"and now?"}}]}`, `
{"role":"user","content":"?"}
{"role":"assistant","content":"","tool_calls":[{"id":"abcDEF123","type":"function","function":{"name":"f","arguments":"{}"}}]}
{"role":"tool","content":"","tool_call_id":"abcDEF123","name":"f"}
{"role":"assistant","content":"(The results are there.)"}
{"role":"user","content":"and now?"}
`},
		{"the assistant begins and ends", `{"messages":[{"role":"assistant","content":{"type":"text","text":"Hello."}}]}`, `
{"role":"user","content":"(The assistant begins.)"}
{"role":"assistant","content":"Hello."}
{"role":"user","content":"(Go on.)"}
`},
		{"the assistant begins after the system prompt", `{"systemPrompt":"s","messages":[{"role":"assistant","content":{"type":"text","text":"Hello."}},{"role":"user","content":{"type":"text","text":"Hi."}}]}`, `
{"role":"system","content":"s"}
{"role":"user","content":"(The assistant begins.)"}
{"role":"assistant","content":"Hello."}
{"role":"user","content":"Hi."}
`},
		{"one after the other", `{"messages":[{"role":"user","content":{"type":"text","text":"a"}},{"role":"user","content":{"type":"text","text":"b"}},
			{"role":"assistant","content":{"type":"text","text":"c"}},{"role":"assistant","content":{"type":"text","text":"d"}},{"role":"user","content":{"type":"text","text":"e"}}]}`, `
{"role":"user","content":"a"}
{"role":"user","content":"b"}
{"role":"assistant","content":"c"}
{"role":"assistant","content":"d"}
{"role":"user","content":"e"}
`},
		{"messages that say nothing", `{"messages":[{"role":"user","content":{"type":"text","text":"a"}},{"role":"assistant","content":[]},{"role":"user","content":{"type":"text","text":""}}]}`, `
{"role":"user","content":"a"}
`},
		{"no message", `{"messages":[]}`, `
{"role":"user","content":"(Go on.)"}
`},
	} {
		t.Run(test.name, func(t *testing.T) {
			result, request, err := sampleWith(t, modelText("fine"), test.params)
			assert.NilError(t, err)
			assert.Equal(t, "\n"+sampleLines(t, request), test.want)
			text, err := json.Marshal(result)
			assert.NilError(t, err)
			assert.Equal(t, string(text), `{"role":"assistant","content":{"type":"text","text":"fine"},"model":"mistral-test","stopReason":"endTurn"}`)
		})
	}
}

// TestSampleRefuses: what the protocol does not allow costs nobody a token.
func TestSampleRefuses(t *testing.T) {
	const (
		user   = `{"role":"user","content":{"type":"text","text":"?"}}`
		use    = `{"type":"tool_use","id":"1","name":"f","input":{}}`
		call   = `{"role":"assistant","content":` + use + `}`
		result = `{"type":"tool_result","toolUseId":"1","content":[]}`
	)
	messages := func(list ...string) string { return `{"messages":[` + strings.Join(list, ",") + `]}` }
	says := func(role, content string) string { return `{"role":"` + role + `","content":` + content + `}` }
	for _, test := range []struct{ name, params, want string }{
		{"role", messages(says("system", `{"type":"text","text":"x"}`)), `messages[0]: the role "system" is not known`},
		{"call without result at the end", messages(user, call), "the last tool_use has no tool_result"},
		{"call without result", messages(user, call, user), "messages[2]: not every tool_use of the message before has its tool_result here"},
		{"call after call", messages(user, call, strings.Replace(call, `"1"`, `"2"`, 1)), "messages[2]: not every tool_use"},
		{"one result of two", messages(user, says("assistant", `[`+use+`,{"type":"tool_use","id":"2","name":"f","input":{}}]`), says("user", result), user), "messages[2]: not every tool_use"},
		{"result beside text", messages(user, call, says("user", `[{"type":"text","text":"x"},`+result+`]`)), "messages[2]: beside a tool_result nothing else is allowed"},
		{"result of nothing", messages(says("user", result)), `messages[0]: the tool_result for "1" belongs to no tool_use`},
		{"result twice", messages(user, call, says("user", `[`+result+`,`+result+`]`)), `messages[2]: the tool_result for "1" belongs to no tool_use`},
		{"result of the assistant", messages(user, call, says("assistant", result)), "messages[2]: a tool_result is not the assistant's"},
		{"call of the user", messages(says("user", use)), "messages[0]: a tool_use is not the user's"},
		{"id twice", messages(user, says("assistant", `[`+use+`,`+use+`]`)), `messages[1]: the id "1" is there twice`},
		{"input", messages(user, says("assistant", `{"type":"tool_use","id":"1","name":"f","input":[]}`)), "messages[1]: the input of f is no object"},
		{"no input", messages(user, says("assistant", `{"type":"tool_use","id":"1","name":"f"}`)), "messages[1]: the input of f is no object"},
		{"id number", messages(user, says("assistant", `{"type":"tool_use","id":1,"name":"f","input":{}}`)), "messages[1]: tool_use: json: cannot unmarshal number"},
		{"result's id number", messages(user, call, says("user", `{"type":"tool_result","toolUseId":1}`)), "messages[2]: tool_result: json: cannot unmarshal number"},
		{"choice", `{"messages":[` + user + `],"toolChoice":{"mode":"get_weather"},` + sampleWeather + `}`, `the toolChoice "get_weather" is not known`},
		{"129 tools", `{"messages":[` + user + `],"tools":[` + strings.Repeat(`{"name":"f","inputSchema":{}},`, 128) + `{"name":"f","inputSchema":{}}]}`, "129 tools are more than the 128"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, request, err := sampleWith(t, modelText("fine"), test.params)
			assert.ErrorContains(t, err, test.want)
			var e *Error
			assert.Assert(t, errors.As(err, &e) && e.Code == CodeInvalidParams)
			assert.Assert(t, request == nil)
		})
	}
}

func TestSampleParameters(t *testing.T) {
	const messages = `"messages":[{"role":"user","content":{"type":"text","text":"?"}}]`
	for _, test := range []struct{ params, want string }{
		{`"maxTokens":100`, `{"max_tokens":100}`},
		{`"maxTokens":0`, `{"max_tokens":1}`},
		{`"maxTokens":-5`, `{"max_tokens":1}`},
		{`"maxTokens":1000000`, `{"max_tokens":8192}`},
		{`"maxTokens":1,"temperature":2`, `{"max_tokens":1,"temperature":1.5}`},
		{`"maxTokens":1,"temperature":-1`, `{"max_tokens":1,"temperature":0}`},
		{`"maxTokens":1,"temperature":0.7`, `{"max_tokens":1,"temperature":0.7}`},
		{`"maxTokens":1,"toolChoice":{"mode":"required"}`, `{"max_tokens":1}`}, // of no tools
		{`"maxTokens":1,"toolChoice":{"mode":"required"},` + sampleWeather, `{"max_tokens":1,"tool_choice":"required"}`},
		{`"maxTokens":1,"toolChoice":{},` + sampleWeather, `{"max_tokens":1}`},
		{`"maxTokens":1,"modelPreferences":{"hints":[{"name":"x"}]},"includeContext":"allServers","metadata":{"seed":1},"stopSequences":["x"]`, `{"max_tokens":1}`},
	} {
		t.Run(test.params, func(t *testing.T) {
			_, request, err := sampleWith(t, modelText("fine"), `{`+messages+`,`+test.params+`}`)
			assert.NilError(t, err)
			var body map[string]any
			assert.NilError(t, json.Unmarshal(request.Body, &body))
			assert.Equal(t, body["model"], "mistral-test")
			for _, other := range []string{"model", "messages", "tools"} {
				delete(body, other)
			}
			got, err := json.Marshal(body)
			assert.NilError(t, err)
			assert.Equal(t, string(got), test.want)
		})
	}
}

func TestSampleResult(t *testing.T) {
	length := func(a modelAnswer) modelAnswer { a.Finish = "length"; return a }
	call := modelCall("abcDEF123", "get_weather", ` {"city":"Paris"}`)
	both := modelAnswer{Content: "I look. END", Calls: []ToolCall{call}}
	for _, test := range []struct {
		name, params string
		answer       modelAnswer
		want         string
	}{
		{"cut off", ``, length(modelText("begin")), `{"type":"text","text":"begin"} maxTokens`},
		{"context full", ``, modelAnswer{Content: "begin", Finish: "model_length"}, `{"type":"text","text":"begin"} maxTokens`},
		{"first of the stop sequences", `"stopSequences":["","x","c","bc","d"]`, modelText("abcd"), `{"type":"text","text":"a"} stopSequence`},
		{"stop sequence at the end", `"stopSequences":["d"]`, modelText("abcd"), `{"type":"text","text":"abc"} stopSequence`},
		{"no stop sequence", `"stopSequences":["x"]`, modelText("abcd"), `{"type":"text","text":"abcd"} endTurn`},
		{"call", sampleWeather, modelCalls(call), `{"type":"tool_use","id":"abcDEF123","name":"get.weather","input":{"city":"Paris"}} toolUse`},
		{"text and call", sampleWeather, both, `[{"type":"text","text":"I look. END"},{"type":"tool_use","id":"abcDEF123","name":"get.weather","input":{"city":"Paris"}}] toolUse`},
		{"stop sequence before a call", sampleWeather + `,"stopSequences":[" END"]`, both, `{"type":"text","text":"I look."} stopSequence`},
		{"call cut off", sampleWeather, length(modelCalls(call)), `{"type":"text","text":""} maxTokens`},
		{"call that says stop", sampleWeather, modelAnswer{Calls: []ToolCall{call}, Finish: "stop"}, `{"type":"tool_use","id":"abcDEF123","name":"get.weather","input":{"city":"Paris"}} toolUse`},
		{"call against the choice", sampleWeather + `,"toolChoice":{"mode":"none"}`, both, `{"type":"text","text":"I look. END"} endTurn`},
		{"nothing", ``, modelText(""), `{"type":"text","text":""} endTurn`},
		{"reasoning", ``, modelAnswer{Content: []any{map[string]any{"type": "thinking", "thinking": []any{}}, map[string]any{"type": "text", "text": "so"}}}, `{"type":"text","text":"so"} endTurn`},

		{"call of what was not offered", ``, modelCalls(call), `error: the model calls "get_weather", which it was not offered`},
		{"arguments that are no object", sampleWeather, modelCalls(modelCall("abcDEF123", "get_weather", `[]`)), "error: arguments that are no JSON object"},
		{"blank arguments", sampleWeather, modelCalls(modelCall("abcDEF123", "get_weather", ` `)), "error: arguments that are no JSON object"},
		{"broken arguments", sampleWeather, modelCalls(modelCall("abcDEF123", "get_weather", `{"city":`)), "error: arguments that are no JSON object"},
		{"failure", ``, modelAnswer{Content: "begin", Finish: "error"}, "error: the model failed"},
	} {
		t.Run(test.name, func(t *testing.T) {
			params := `{"messages":[{"role":"user","content":{"type":"text","text":"?"}}],"maxTokens":9`
			if test.params != "" {
				params += "," + test.params
			}
			result, _, err := sampleWith(t, test.answer, params+"}")
			if want, ok := strings.CutPrefix(test.want, "error: "); ok {
				assert.ErrorContains(t, err, want)
				return
			}
			assert.NilError(t, err)
			text, err := json.Marshal(result.Content)
			assert.NilError(t, err)
			assert.Equal(t, string(text)+" "+result.StopReason, test.want)
		})
	}
}

// TestSampleRound: a call that the model was shown to want comes back under the id and the name that it had.
func TestSampleRound(t *testing.T) {
	const question = `{"role":"user","content":{"type":"text","text":"?"}}`
	result, first, err := sampleWith(t, modelCalls(modelCall("abcDEF123", "get_weather", `{}`)), `{"messages":[`+question+`],`+sampleWeather+`}`)
	assert.NilError(t, err)
	message, err := json.Marshal(SampleMessage{result.Role, result.Content})
	assert.NilError(t, err)
	_, second, err := sampleWith(t, modelText("18"), `{"messages":[`+question+`,`+string(message)+
		`,{"role":"user","content":{"type":"tool_result","toolUseId":"abcDEF123","content":[{"type":"text","text":"18"}]}}],`+sampleWeather+`}`)
	assert.NilError(t, err)
	assert.Equal(t, first.Tools[0].Name, "get_weather")
	assert.DeepEqual(t, second.Messages[1].ToolCalls, []ToolCall{modelCall("abcDEF123", "get_weather", `{}`)})
	assert.Equal(t, second.Messages[2].ToolCallID, "abcDEF123")
}

// TestSampleModel: the model that answered is named, or else the one that was asked.
func TestSampleModel(t *testing.T) {
	for model, want := range map[string]string{`"model":"mistral-test-2611",`: "mistral-test-2611", ``: "mistral-test"} {
		body := `{` + model + `"choices":[{"message":{"role":"assistant","content":"x"},"finish_reason":"stop"}]}`
		result, _, err := sampleWith(t, modelFailure{Status: 200, Body: body}, `{"messages":[{"role":"user","content":{"type":"text","text":"?"}}]}`)
		assert.NilError(t, err)
		assert.Equal(t, result.Model, want)
	}
}

// TestSampleModelFails: the server is told why.
func TestSampleModelFails(t *testing.T) {
	_, _, err := sampleWith(t, modelUnauthorized(), `{"messages":[{"role":"user","content":{"type":"text","text":"?"}}]}`)
	var e *APIError
	assert.Assert(t, errors.As(err, &e) && e.Status == 401)
}

func TestSampleCallID(t *testing.T) {
	for id, want := range map[string]string{"abcDEF123": "abcDEF123", "call_1": "OQMW7ZZOJ", "": "", "abcDEF123\n": "", "äbcDEF12": ""} {
		got := callID(id)
		assert.Assert(t, apiCallID.MatchString(got), "%q: %q", id, got)
		assert.Equal(t, got, callID(id))
		if want != "" {
			assert.Equal(t, got, want)
		}
	}
}

// FuzzSample: a request either is refused or keeps to all rules of the API.
func FuzzSample(f *testing.F) {
	const use = `{"role":"assistant","content":[{"type":"tool_use","id":"1","name":"a/b","input":{}},{"type":"text","text":"x"}]}`
	for _, messages := range []string{
		``,
		`{"role":"user","content":{"type":"text","text":"?"}}`,
		`{"role":"assistant","content":{"type":"text","text":"?"}}`,
		use + `,{"role":"user","content":[{"type":"tool_result","toolUseId":"1","content":[{"type":"text","text":"x"}]}]},{"role":"user","content":{"type":"image","data":"AAEC","mimeType":"image/png"}}`,
		use + `,` + use,
		`{"role":"user","content":[]},{"role":"user","content":null}`,
	} {
		f.Add([]byte(`{"messages":[` + messages + `],"systemPrompt":"s","maxTokens":1,"temperature":2,` + sampleWeather + `}`))
		f.Add([]byte(`{"messages":[` + messages + `],"toolChoice":{"mode":"none"}}`))
	}
	f.Fuzz(func(t *testing.T, params []byte) {
		r := new(SampleRequest)
		if json.Unmarshal(params, r) != nil {
			return
		}
		r.Tools = nil // their schemas are the server's, and the API's to refuse
		s, err := newSampling(r)
		if err != nil {
			return
		}
		request, err := (&Mistral{Model: "m"}).request(t.Context(), &s.chat, false)
		assert.NilError(t, err)
		var body map[string]any
		assert.NilError(t, json.NewDecoder(request.Body).Decode(&body))
		c := new(modelCheck)
		c.request(body)
		assert.Equal(t, len(c.details), 0, "%v", c.details)
		if refusal := modelRules(body); refusal != nil {
			t.Errorf("%s\nbecame %v\nrefused with %s", params, body, refusal.Body)
		}
	})
}
