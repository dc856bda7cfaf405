package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// modelServer stands in for Mistral's chat-completions API, which these tests do not reach. It is built from the public
// documentation, the public message validator and error bodies quoted in public bug reports, and it is stricter than it
// need be where those leave room: what it takes, the real API should take.
//
// A request that breaks the API's rules is refused with the API's status and body. A good one is answered by the next
// reply of the script, as a stream if it asks for one.
//
//	s := newModelServer(t, modelCalls(modelCall("aaaaaaaa1", "search", `{"q":"x"}`)), modelText("done"))
//	m := &Mistral{BaseURL: s.URL, Model: "mistral-test"}
type modelServer struct {
	URL string // for Mistral.BaseURL

	// To be set, if at all, before the first request.
	Key    string     // refuse requests without it
	Gemini bool       // take extra_content on calls, as Gemini's server does and Mistral's does not
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
	Messages   []Message
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

// ServeHTTP refuses or answers one request.
func (s *modelServer) ServeHTTP(w http.ResponseWriter, httpRequest *http.Request) {
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
	f := modelFailure{Status: 429, Body: `{"object":"error","message":"Rate limit exceeded","type":"rate_limited","param":null,"code":"1300"}`}
	if retryAfter != "" {
		f.Header = map[string]string{"Retry-After": retryAfter}
	}
	return f
}

func modelUnavailable(status int) modelReply {
	return modelFailure{Status: status, Body: `{"object":"error","message":"Service unavailable.","type":"internal_server_error","param":null,"code":"1000"}`}
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
		Body: "<html>\r\n<head><title>" + http.StatusText(status) + "</title></head>\r\n<body><center>nginx</center></body></html>"}
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

// modelAnswer is a completion in every form that servers give it.
type modelAnswer struct {
	Content any // string, nil (null) or a list of chunks; a stream sends a string word by word and a list chunk by chunk
	Calls   []ToolCall
	Form    modelForm
	Objects bool   // arguments as objects instead of strings
	Finish  string // "" means stop, or tool_calls
	Usage   Usage  // the zero value means 10, 5, 15
	Cut     int    // break the connection after so many events of a stream, or bytes of a whole answer
}

// modelForm is how a stream sends tool calls.
type modelForm int

const (
	modelWhole            modelForm = iota // each whole, with its index: Mistral
	modelFragments                         // arguments in two pieces, by index
	modelNoIndex                           // each whole, without index: Gemini
	modelFragmentsNoIndex                  // arguments in two pieces, without index
	modelZeroIndex                         // each whole, every index 0
)

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
		return map[string]any{"id": "c0ffee", "object": object, "created": 1, "model": r.Model, "choices": []any{choice}}
	}
	if !r.Stream {
		message := map[string]any{"role": "assistant", "content": a.Content, "tool_calls": nil}
		if len(a.Calls) > 0 {
			var calls []any
			for i, c := range a.Calls {
				calls = append(calls, a.call(i, c, c.Arguments))
			}
			message["tool_calls"] = calls
		}
		whole := envelope("chat.completion", map[string]any{"message": message, "finish_reason": finish})
		whole["usage"] = usage
		body := modelJSON(whole)
		w.Header().Set("Content-Type", "application/json")
		if a.Cut > 0 {
			w.Write(body[:a.Cut])
			http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
		w.Write(body)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	sent := 0
	event := func(data []byte) {
		if a.Cut > 0 && sent == a.Cut {
			panic(http.ErrAbortHandler)
		}
		sent++
		fmt.Fprintf(w, "data: %s\n\n", data)
		http.NewResponseController(w).Flush()
	}
	for _, delta := range a.deltas() {
		event(modelJSON(envelope("chat.completion.chunk", map[string]any{"delta": delta, "finish_reason": nil})))
	}
	last := envelope("chat.completion.chunk", map[string]any{"delta": map[string]any{"content": ""}, "finish_reason": finish})
	last["usage"] = usage
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
		fragments := []map[string]any{a.call(i, c, c.Arguments)}
		if a.Form == modelFragments || a.Form == modelFragmentsNoIndex {
			half := len(c.Arguments) / 2
			fragments = []map[string]any{
				a.call(i, c, c.Arguments[:half]),
				{"index": i, "function": map[string]any{"arguments": c.Arguments[half:]}},
			}
		}
		for _, f := range fragments {
			switch a.Form {
			case modelNoIndex, modelFragmentsNoIndex:
				delete(f, "index")
			case modelZeroIndex:
				f["index"] = 0
			}
			deltas = append(deltas, map[string]any{"tool_calls": []any{f}})
		}
	}
	return deltas
}

// call is a tool call on the wire.
func (a modelAnswer) call(index int, c ToolCall, arguments string) map[string]any {
	function := map[string]any{"name": c.Name, "arguments": arguments}
	if a.Objects {
		function["arguments"] = json.RawMessage(arguments)
	}
	call := map[string]any{"id": c.ID, "type": "function", "function": function, "index": index}
	if c.Extra != nil {
		call["extra_content"] = c.Extra
	}
	return call
}

// modelError is a refusal in Mistral's documented form.
func modelError(status int, kind, code string, message any) modelFailure {
	body := map[string]any{"object": "error", "message": message, "type": kind, "param": nil, "code": nil, "raw_status_code": status}
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

// refuse fills r from its body, and is the API's refusal, or nil if there is nothing to refuse.
func (s *modelServer) refuse(r *modelRequest, httpRequest *http.Request) modelReply {
	refuse := func(f modelFailure) modelReply {
		r.Refusal = f.Body
		return f
	}
	if httpRequest.Method != http.MethodPost || httpRequest.URL.Path != "/v1/chat/completions" {
		return refuse(modelFailure{Status: 404, Body: `{"message":"no Route matched with those values","request_id":"f00d"}`})
	}
	if s.Key != "" && r.Header.Get("Authorization") != "Bearer "+s.Key {
		return refuse(modelFailure{Status: 401, Body: `{"detail":"Unauthorized"}`})
	}
	c := &modelCheck{gemini: s.Gemini}
	var body any
	if r.Header.Get("Content-Type") != "application/json" || json.Unmarshal(r.Body, &body) != nil {
		c.bad("json_invalid", "JSON decode error", nil, "body", 0)
	} else {
		c.request(body)
	}
	if len(c.details) > 0 {
		return refuse(modelError(422, "invalid_request_error", "", map[string]any{"detail": c.details}))
	}
	var known struct {
		Model    string
		Messages []Message
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
	switch choice := known.Choice.(type) {
	case string:
		r.ToolChoice = choice
	case map[string]any:
		r.ToolChoice = choice["function"].(map[string]any)["name"].(string)
	}
	if f := modelRules(body.(map[string]any)); f != nil {
		return refuse(*f)
	}
	return nil
}

// modelCheck collects what is wrong with the form of a request: a 422 of the API's framework.
type modelCheck struct {
	gemini  bool
	details []map[string]any
}

func (c *modelCheck) bad(kind, msg string, input any, loc ...any) {
	c.details = append(c.details, map[string]any{"type": kind, "loc": loc, "msg": msg, "input": input})
}

// object checks that v is an object with the required members and no others than the optional ones beside them.
func (c *modelCheck) object(v any, required, optional string, loc ...any) map[string]any {
	object, ok := v.(map[string]any)
	if !ok {
		c.bad("model_attributes_type", "Input should be a valid dictionary or object to extract fields from", v, loc...)
		return nil
	}
	allowed := strings.Fields(required + " " + optional)
	for _, name := range slices.Sorted(maps.Keys(object)) {
		if !slices.Contains(allowed, name) {
			c.bad("extra_forbidden", "Extra inputs are not permitted", object[name], modelLoc(loc, name)...)
		}
	}
	for _, name := range strings.Fields(required) {
		if _, ok := object[name]; !ok {
			c.bad("missing", "Field required", object, modelLoc(loc, name)...)
		}
	}
	return object
}

// member checks the type of a member if it is there; null is no type.
func (c *modelCheck) member(object map[string]any, name, types string, loc ...any) any {
	v, ok := object[name]
	if !ok {
		return nil
	}
	kind := fmt.Sprintf("%T", v)
	for _, want := range strings.Fields(types) {
		if kind == map[string]string{"string": "string", "number": "float64", "bool": "bool", "list": "[]interface {}",
			"object": "map[string]interface {}", "null": "<nil>"}[want] {
			return v
		}
	}
	first, _, _ := strings.Cut(types, " ")
	c.bad(first+"_type", "Input should be a valid "+first, v, modelLoc(loc, name)...)
	return nil
}

func (c *modelCheck) literal(object map[string]any, name, values string, loc ...any) {
	if v, ok := object[name]; ok && !slices.Contains(strings.Fields(values), fmt.Sprint(v)) {
		c.bad("literal_error", "Input should be one of: "+values, v, modelLoc(loc, name)...)
	}
}

func (c *modelCheck) request(v any) {
	body := c.object(v, "model messages", "temperature top_p max_tokens stream stop random_seed metadata response_format tools tool_choice"+
		" presence_penalty frequency_penalty n prediction parallel_tool_calls prompt_mode reasoning_effort guardrails safe_prompt", "body")
	c.member(body, "model", "string", "body")
	c.member(body, "stream", "bool", "body")
	c.member(body, "parallel_tool_calls", "bool", "body")
	c.member(body, "random_seed", "number null", "body")
	c.member(body, "max_tokens", "number null", "body")
	if t, ok := c.member(body, "temperature", "number null", "body").(float64); ok && (t < 0 || t > 1.5) {
		c.bad("less_than_equal", "Input should be less than or equal to 1.5", t, "body", "temperature")
	}
	messages, _ := c.member(body, "messages", "list", "body").([]any)
	for i, m := range messages {
		c.message(m, "body", "messages", i)
	}
	tools, _ := c.member(body, "tools", "list null", "body").([]any)
	if len(tools) > 128 {
		c.bad("too_long", fmt.Sprintf("List should have at most 128 items after validation, not %d", len(tools)), nil, "body", "tools")
	}
	for i, t := range tools {
		tool := c.object(t, "function", "type", "body", "tools", i)
		c.literal(tool, "type", "function", "body", "tools", i)
		function := c.object(tool["function"], "name parameters", "description strict", "body", "tools", i, "function")
		c.member(function, "name", "string", "body", "tools", i, "function")
		c.member(function, "description", "string", "body", "tools", i, "function")
		c.member(function, "parameters", "object", "body", "tools", i, "function")
	}
	switch choice := body["tool_choice"].(type) {
	case map[string]any:
		c.object(choice, "function", "type", "body", "tool_choice")
		c.literal(choice, "type", "function", "body", "tool_choice")
		function := c.object(choice["function"], "name", "", "body", "tool_choice", "function")
		c.member(function, "name", "string", "body", "tool_choice", "function")
	default:
		c.literal(body, "tool_choice", "auto none any required", "body")
	}
}

func (c *modelCheck) message(v any, loc ...any) {
	message, _ := v.(map[string]any)
	role, _ := message["role"].(string)
	loc = modelLoc(loc, role)
	switch role {
	case "system", "user":
		c.object(message, "role content", "", loc...)
		c.member(message, "content", "string list", loc...)
	case "tool":
		c.object(message, "role content", "tool_call_id name", loc...)
		c.member(message, "content", "string", loc...) // the API takes lists; other servers lose the id then
		c.member(message, "tool_call_id", "string", loc...)
		c.member(message, "name", "string", loc...)
	case "assistant":
		c.object(message, "role", "content tool_calls prefix", loc...)
		c.member(message, "content", "string list null", loc...)
		c.member(message, "prefix", "bool", loc...)
		calls, _ := c.member(message, "tool_calls", "list", loc...).([]any)
		if calls != nil && len(calls) == 0 {
			c.bad("too_short", "List should have at least 1 item after validation, not 0", calls, modelLoc(loc, "tool_calls")...)
		}
		for i, v := range calls {
			loc := modelLoc(loc, "tool_calls", i)
			optional := "type index"
			if c.gemini {
				optional += " extra_content"
			}
			call := c.object(v, "id function", optional, loc...)
			c.member(call, "id", "string", loc...)
			c.member(call, "index", "number", loc...)
			c.literal(call, "type", "function", loc...)
			function := c.object(call["function"], "name arguments", "", modelLoc(loc, "function")...)
			c.member(function, "name", "string", modelLoc(loc, "function")...)
			c.member(function, "arguments", "string object", modelLoc(loc, "function")...)
		}
	default:
		c.bad("union_tag_invalid", fmt.Sprintf("Input tag '%s' found using 'role' does not match any of the expected tags: "+
			"'assistant', 'system', 'tool', 'user'", role), v, loc...)
	}
}

func modelLoc(loc []any, more ...any) []any { return slices.Concat(loc, more) }

var (
	modelName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)
	modelID   = regexp.MustCompile(`^[a-zA-Z0-9]{9}$`)
)

// modelRules checks a well-formed request against the rules of a conversation: a 400.
func modelRules(body map[string]any) *modelFailure {
	no := func(kind, code, format string, arguments ...any) *modelFailure {
		f := modelError(400, kind, code, fmt.Sprintf(format, arguments...))
		return &f
	}
	order := func(format string, arguments ...any) *modelFailure {
		return no("invalid_request_message_order", "3230", format, arguments...)
	}
	const badName = "Function name was %s but must be a-z, A-Z, 0-9, or contain underscores and dashes, with a maximum length of 64."
	const badID = "Tool call id was %s but must be a-z, A-Z, 0-9, with a length of 9."

	if body["model"] == "" {
		return no("invalid_model", "1500", "Invalid model: ")
	}
	tools, _ := body["tools"].([]any)
	for _, t := range tools {
		function := t.(map[string]any)["function"].(map[string]any)
		if name := function["name"].(string); !modelName.MatchString(name) {
			return no("invalid_request_error", "", badName, name)
		}
		schema := function["parameters"].(map[string]any)
		fault := modelSchema(schema)
		if fault == "" && (schema["type"] != "object" || schema["properties"] == nil) {
			fault = "an object with properties is needed"
		}
		if fault != "" {
			return no("invalid_request_error", "", "Invalid tool schema: %s", fault)
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
				return no("invalid_request_error", "", "Tool call id has to be defined.")
			}
			if !modelID.MatchString(id) {
				return no("invalid_function_call", "3280", badID, id)
			}
			if name, ok := message["name"].(string); ok && !modelName.MatchString(name) {
				return no("invalid_function_call", "3280", badName, name)
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
		calls, _ := message["tool_calls"].([]any)
		if empty := slices.Contains([]string{`""`, "null", "[]"}, string(modelJSON(message["content"]))); empty && len(calls) == 0 {
			return no("invalid_request_assistant_message", "3240", "Assistant message must have either content or tool_calls, but not none.")
		}
		for _, c := range calls {
			call := c.(map[string]any)
			function := call["function"].(map[string]any)
			id, name := call["id"].(string), function["name"].(string)
			if !modelID.MatchString(id) {
				return no("invalid_function_call", "3280", badID, id)
			}
			if !modelName.MatchString(name) {
				return no("invalid_function_call", "3280", badName, name)
			}
			if _, known := open[id]; known {
				return order("Duplicate tool call id %s in assistant message", id)
			}
			open[id] = true
			// Mistral's own server looks at this later or not at all; others fail every turn that follows.
			if arguments, ok := function["arguments"].(string); ok && !json.Valid([]byte(arguments)) {
				return &modelFailure{Status: 400, Body: `{"error":{"message":"invalid tool call arguments","type":"invalid_request_error","param":null,"code":null}}`}
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

// modelSchema finds what JSON Schema draft 7 does not allow in the keywords that tools use; "" if nothing.
func modelSchema(v any) string {
	if _, ok := v.(bool); ok {
		return ""
	}
	schema, ok := v.(map[string]any)
	if !ok {
		return fmt.Sprintf("%v is not of type 'object', 'boolean'", v)
	}
	for _, name := range slices.Sorted(maps.Keys(schema)) {
		fault, value := "", schema[name]
		switch name {
		case "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength", "minItems", "maxItems":
			if _, ok := value.(float64); !ok {
				fault = fmt.Sprintf("%v is not of type 'number'", value)
			}
		case "title", "description", "pattern", "format", "$ref", "$id", "$schema":
			if _, ok := value.(string); !ok {
				fault = fmt.Sprintf("%v is not of type 'string'", value)
			}
		case "type":
			types, list := value.([]any)
			if !list {
				types = []any{value}
			}
			for _, t := range types {
				if !slices.Contains([]any{"array", "boolean", "integer", "null", "number", "object", "string"}, t) {
					fault = fmt.Sprintf("%v is not valid under any of the given schemas", t)
				}
			}
		case "required", "enum", "examples":
			if _, ok := value.([]any); !ok {
				fault = fmt.Sprintf("%v is not of type 'array'", value)
			}
		case "properties", "patternProperties", "$defs", "definitions":
			members, ok := value.(map[string]any)
			if !ok {
				fault = fmt.Sprintf("%v is not of type 'object'", value)
			}
			for _, member := range slices.Sorted(maps.Keys(members)) {
				if fault == "" {
					fault = modelSchema(members[member])
				}
			}
		case "anyOf", "oneOf", "allOf", "items", "additionalProperties", "not":
			list, ok := value.([]any)
			if !ok {
				list = []any{value}
			}
			for _, entry := range list {
				if fault == "" {
					fault = modelSchema(entry)
				}
			}
		}
		if fault != "" {
			return fault
		}
	}
	return ""
}

func TestModelServerRefuses(t *testing.T) {
	const (
		user  = `{"role":"user","content":"hi"}`
		calls = `{"role":"assistant","content":"","tool_calls":[{"id":"aaaaaaaa1","type":"function","function":{"name":"f","arguments":"{}"}}]}`
		done  = `{"role":"tool","tool_call_id":"aaaaaaaa1","name":"f","content":"ok"}`
	)
	messages := func(list ...string) string {
		return `{"model":"m","messages":[` + strings.Join(list, ",") + `]}`
	}
	with := func(member string) string {
		return `{"model":"m","messages":[` + user + `],` + member + `}`
	}
	function := func(inside string) string {
		return with(`"tools":[{"type":"function","function":{` + inside + `}}]`)
	}
	schema := func(parameters string) string { return function(`"name":"f","parameters":` + parameters) }
	call := func(inside string) string {
		return messages(user, `{"role":"assistant","content":"","tool_calls":[{`+inside+`}]}`, done)
	}
	tools := func(n int) string {
		return with(`"tools":[` + strings.TrimSuffix(strings.Repeat(`{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{}}}},`, n), ",") + `]`)
	}
	for _, test := range []struct {
		name, body string
		want       string // status and part of the body; "" if the request is good
	}{
		{"plain", messages(user), ""},
		{"everything", with(`"temperature":0,"max_tokens":5,"random_seed":0,"parallel_tool_calls":false,"tool_choice":"any",
			"tools":[{"type":"function","function":{"name":"a-B_9","description":"","parameters":{"type":"object","properties":{"x":{"anyOf":[{"type":"string"},{"type":"null"}]}},"$defs":{"y":true}}}}]`), ""},
		{"calls answered", messages(`{"role":"system","content":"s"}`, user, calls, done, `{"role":"assistant","content":"ok"}`, user), ""},
		{"null beside calls", messages(user, strings.Replace(calls, `""`, "null", 1), done), ""},
		{"chunks", messages(user, `{"role":"assistant","content":[{"type":"text","text":"x"}]}`, user), ""},
		{"128 tools", tools(128), ""},
		{"one named function", with(`"tool_choice":{"type":"function","function":{"name":"f"}}`), ""},

		{"no JSON", `{`, "422 json_invalid"},
		{"no object", `[]`, "422 model_attributes_type"},
		{"no model", `{"messages":[]}`, `422 ["body","model"],"msg":"Field required"`},
		{"empty model", `{"model":"","messages":[` + user + `]}`, "400 1500"},
		{"no messages", `{"model":"m"}`, `422 ["body","messages"]`},
		{"messages null", `{"model":"m","messages":null}`, `422 ["body","messages"]`},
		{"empty messages", messages(), "400 at least one message"},
		{"max_completion_tokens", with(`"max_completion_tokens":1`), `422 ["body","max_completion_tokens"],"msg":"Extra inputs are not permitted"`},
		{"seed", with(`"seed":1`), `422 ["body","seed"]`},
		{"stream_options", with(`"stream_options":{}`), `422 ["body","stream_options"]`},
		{"user", with(`"user":"x"`), `422 ["body","user"]`},
		{"stream null", with(`"stream":null`), `422 ["body","stream"]`},
		{"parallel null", with(`"parallel_tool_calls":null`), `422 ["body","parallel_tool_calls"]`},
		{"model number", `{"model":1,"messages":[` + user + `]}`, `422 ["body","model"]`},
		{"stream word", with(`"stream":"true"`), `422 ["body","stream"]`},
		{"max_tokens word", with(`"max_tokens":"1"`), `422 ["body","max_tokens"]`},
		{"random_seed word", with(`"random_seed":"1"`), `422 ["body","random_seed"]`},
		{"tools object", with(`"tools":{}`), `422 ["body","tools"]`},
		{"cold", with(`"temperature":-1`), `422 ["body","temperature"]`},
		{"hot", with(`"temperature":1.6`), `422 ["body","temperature"]`},

		{"129 tools", tools(129), "422 at most 128"},
		{"tool_choice word", with(`"tool_choice":"maybe"`), `422 ["body","tool_choice"]`},
		{"tool_choice null", with(`"tool_choice":null`), `422 ["body","tool_choice"]`},
		{"tool_choice object", with(`"tool_choice":{"type":"function","name":"f"}`), `422 ["body","tool_choice","function"]`},
		{"tool_choice name", with(`"tool_choice":{"type":"function","function":{"name":1}}`), `422 ["body","tool_choice","function","name"]`},
		{"tool_choice type", with(`"tool_choice":{"type":"tool","function":{"name":"f"}}`), `422 ["body","tool_choice","type"]`},
		{"tool word", with(`"tools":["f"]`), `422 ["body","tools",0]`},
		{"tool type", with(`"tools":[{"type":"tool","function":{"name":"f","parameters":{"type":"object","properties":{}}}}]`), `422 ["body","tools",0,"type"]`},
		{"tool without function", with(`"tools":[{"type":"function"}]`), `422 ["body","tools",0,"function"]`},
		{"name number", function(`"name":1,"parameters":{"type":"object","properties":{}}`), `422 ["body","tools",0,"function","name"]`},
		{"member of tool", with(`"tools":[{"type":"function","strict":true,"function":{"name":"f","parameters":{"type":"object","properties":{}}}}]`), `422 ["body","tools",0,"strict"]`},
		{"member of function", function(`"name":"f","parameters":{"type":"object","properties":{}},"required":[]`), `422 ["body","tools",0,"function","required"]`},
		{"description null", function(`"name":"f","description":null,"parameters":{"type":"object","properties":{}}`), `422 ["body","tools",0,"function","description"]`},
		{"no parameters", function(`"name":"f"`), `422 ["body","tools",0,"function","parameters"]`},
		{"parameters null", schema(`null`), `422 ["body","tools",0,"function","parameters"]`},
		{"no type", schema(`{"properties":{}}`), "400 Invalid tool schema"},
		{"no properties", schema(`{"type":"object"}`), "400 Invalid tool schema"},
		{"exclusiveMinimum", schema(`{"type":"object","properties":{"n":{"anyOf":[{"type":"integer","minimum":0,"exclusiveMinimum":true}]}}}`), "400 true is not of type 'number'"},
		{"type unknown", schema(`{"type":"object","properties":{"n":{"type":"int"}}}`), "400 Invalid tool schema"},
		{"properties list", schema(`{"type":"object","properties":[]}`), "400 Invalid tool schema"},
		{"required word", schema(`{"type":"object","properties":{},"required":"n"}`), "400 Invalid tool schema"},
		{"property word", schema(`{"type":"object","properties":{"n":"string"}}`), "400 Invalid tool schema"},
		{"items word", schema(`{"type":"object","properties":{"n":{"type":"array","items":"string"}}}`), "400 Invalid tool schema"},
		{"description number", schema(`{"type":"object","properties":{"n":{"description":1}}}`), "400 Invalid tool schema"},
		{"function name", function(`"name":"a.b","parameters":{"type":"object","properties":{}}`), "400 Function name was a.b"},
		{"function name long", function(`"name":"` + strings.Repeat("x", 65) + `","parameters":{"type":"object","properties":{}}`), "400 maximum length of 64"},

		{"role", messages(`{"role":"developer","content":"x"}`), "422 union_tag_invalid"},
		{"message word", messages(`"hi"`), "422 union_tag_invalid"},
		{"user number", messages(`{"role":"user","content":1}`), `422 ["body","messages",0,"user","content"]`},
		{"user without content", messages(`{"role":"user"}`), `422 ["body","messages",0,"user","content"]`},
		{"prefix word", messages(user, `{"role":"assistant","content":"x","prefix":"x"}`, user), `422 ["body","messages",1,"assistant","prefix"]`},
		{"assistant number", messages(user, `{"role":"assistant","content":1}`, user), `422 ["body","messages",1,"assistant","content"]`},
		{"call word", messages(user, `{"role":"assistant","content":"","tool_calls":["f"]}`, user), `422 ["body","messages",1,"assistant","tool_calls",0]`},
		{"call id number", call(`"id":1,"function":{"name":"f","arguments":"{}"}`), `422 "tool_calls",0,"id"`},
		{"call index word", call(`"id":"aaaaaaaa1","index":"0","function":{"name":"f","arguments":"{}"}`), `422 "tool_calls",0,"index"`},
		{"call without function", call(`"id":"aaaaaaaa1"`), `422 "tool_calls",0,"function"`},
		{"call name number", call(`"id":"aaaaaaaa1","function":{"name":1,"arguments":"{}"}`), `422 "tool_calls",0,"function","name"`},
		{"tool id number", messages(user, calls, strings.Replace(done, `"aaaaaaaa1"`, `1`, 1)), `422 ["body","messages",2,"tool","tool_call_id"]`},
		{"tool name number", messages(user, calls, strings.Replace(done, `"f"`, `1`, 1)), `422 ["body","messages",2,"tool","name"]`},
		{"user name", messages(`{"role":"user","content":"x","name":"n"}`), `422 ["body","messages",0,"user","name"]`},
		{"user null", messages(`{"role":"user","content":null}`), `422 ["body","messages",0,"user","content"]`},
		{"system null", messages(`{"role":"system","content":null}`, user), `422 ["body","messages",0,"system","content"]`},
		{"assistant member", messages(user, `{"role":"assistant","content":"x","reasoning_content":"y"}`, user), `422 ["body","messages",1,"assistant","reasoning_content"]`},
		{"assistant nothing", messages(user, `{"role":"assistant","content":""}`, user), "400 3240"},
		{"tool_calls empty", messages(user, `{"role":"assistant","content":"x","tool_calls":[]}`, user), `422 ["body","messages",1,"assistant","tool_calls"]`},
		{"tool_calls null", messages(user, `{"role":"assistant","content":"x","tool_calls":null}`, user), `422 ["body","messages",1,"assistant","tool_calls"]`},
		{"tool member", messages(user, calls, strings.Replace(done, `"name"`, `"is_error":true,"name"`, 1)), `422 ["body","messages",2,"tool","is_error"]`},
		{"tool null", messages(user, calls, strings.Replace(done, `"ok"`, `null`, 1)), `422 ["body","messages",2,"tool","content"]`},
		{"tool list", messages(user, calls, strings.Replace(done, `"ok"`, `[]`, 1)), `422 ["body","messages",2,"tool","content"]`},
		{"call member", call(`"id":"aaaaaaaa1","extra_content":{},"function":{"name":"f","arguments":"{}"}`), `422 "tool_calls",0,"extra_content"`},
		{"call id missing", call(`"function":{"name":"f","arguments":"{}"}`), `422 "tool_calls",0,"id"`},
		{"call type", call(`"id":"aaaaaaaa1","type":"tool","function":{"name":"f","arguments":"{}"}`), `422 "tool_calls",0,"type"`},
		{"call function member", call(`"id":"aaaaaaaa1","function":{"name":"f","arguments":"{}","x":1}`), `422 "tool_calls",0,"function","x"`},
		{"call arguments null", call(`"id":"aaaaaaaa1","function":{"name":"f","arguments":null}`), `422 "tool_calls",0,"function","arguments"`},
		{"call arguments broken", call(`"id":"aaaaaaaa1","function":{"name":"f","arguments":"{"}`), "400 invalid tool call arguments"},
		{"call id form", call(`"id":"call_1","function":{"name":"f","arguments":"{}"}`), "400 3280"},
		{"call name", call(`"id":"aaaaaaaa1","function":{"name":"a b","arguments":"{}"}`), "400 Function name was a b"},
		{"calls with one id", call(`"id":"aaaaaaaa1","function":{"name":"f","arguments":"{}"}},{"id":"aaaaaaaa1","function":{"name":"f","arguments":"{}"}`), "400 Duplicate tool call id"},

		{"first assistant", messages(`{"role":"assistant","content":"x"}`, user), "400 must start with a user message"},
		{"last assistant", messages(user, `{"role":"assistant","content":"x"}`), "400 Expected last role User or Tool"},
		{"last system", messages(user, `{"role":"system","content":"x"}`), "400 Expected last role User or Tool"},
		{"system after assistant", messages(user, `{"role":"assistant","content":"x"}`, `{"role":"system","content":"x"}`, user), "400 Unexpected role 'system' after role 'assistant'"},
		{"system after tool", messages(user, calls, done, `{"role":"system","content":"x"}`, user), "400 Unexpected role 'system' after role 'tool'"},
		{"user after tool", messages(user, calls, done, user), "400 Unexpected role 'user' after role 'tool'"},
		{"tool after user", messages(user, done), "400 Unexpected role 'tool' after role 'user'"},
		{"unanswered at the end", messages(user, calls), "400 Not the same number of function calls and responses"},
		{"unanswered before user", messages(user, calls, user), "400 Not the same number of function calls and responses"},
		{"unanswered before assistant", messages(user, calls, `{"role":"assistant","content":"x"}`, user), "400 3230"},
		{"answered twice", messages(user, calls, done, done), "400 Duplicate tool call id"},
		{"answer to nothing", messages(user, `{"role":"assistant","content":"x"}`, done), "400 Unexpected tool call id"},
		{"answer without id", messages(user, calls, `{"role":"tool","content":"x"}`), "400 Tool call id has to be defined"},
		{"answer with bad id", messages(user, calls, strings.Replace(done, "aaaaaaaa1", "1", 1)), "400 3280"},
		{"answer with bad name", messages(user, calls, strings.Replace(done, `"f"`, `"a/b"`, 1)), "400 Function name was a/b"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newModelServer(t)
			if test.want == "" {
				s.Rest = modelText("fine")
			}
			resp, err := http.Post(s.URL+"/chat/completions", "application/json", strings.NewReader(test.body))
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			var got bytes.Buffer
			io.Copy(&got, resp.Body)
			status, part, _ := strings.Cut(test.want, " ")
			if test.want == "" {
				status, part = "200", "fine"
			}
			if fmt.Sprint(resp.StatusCode) != status || !strings.Contains(got.String(), part) {
				t.Errorf("%s\nanswered %d %s\nwant     %s", test.body, resp.StatusCode, got.Bytes(), test.want)
			}
			if refused := s.Requests()[0].Refusal != ""; refused != (test.want != "") {
				t.Errorf("recorded as refused: %v", refused)
			}
		})
	}
}

func TestModelServerRefusesStrangers(t *testing.T) {
	const body = `{"model":"m","messages":[{"role":"user","content":"hi"}]}`
	s := newModelServer(t)
	s.Key, s.Rest = "secret", modelText("fine")
	for _, test := range []struct {
		method, path, key, kind string
		want                    int
	}{
		{"POST", "/chat/completions", "Bearer secret", "application/json", 200},
		{"POST", "/chat/completions", "Bearer other", "application/json", 401},
		{"POST", "/chat/completions", "", "application/json", 401},
		{"GET", "/chat/completions", "Bearer secret", "application/json", 404},
		{"POST", "/completions", "Bearer secret", "application/json", 404},
		{"POST", "/chat/completions", "Bearer secret", "text/plain", 422},
	} {
		r, err := http.NewRequest(test.method, s.URL+test.path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", test.key)
		r.Header.Set("Content-Type", test.kind)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != test.want {
			t.Errorf("%+v: %d", test, resp.StatusCode)
		}
	}
}
