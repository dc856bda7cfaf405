package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"
	"unicode/utf8"
)

// agentAdder is a toolbox of one tool.
type agentAdder struct{}

func (agentAdder) Functions(context.Context) ([]Function, error) {
	return []Function{{
		Name:        "add",
		Description: "Adds two numbers.",
		Parameters:  json.RawMessage(`{"type":"object","properties":{"a":{"type":"number"},"b":{"type":"number"}},"required":["a","b"]}`),
	}}, nil
}

func (agentAdder) Call(_ context.Context, call ToolCall) (ToolOutput, error) {
	var in struct{ A, B float64 }
	if err := json.Unmarshal([]byte(call.Arguments), &in); err != nil {
		return ToolOutput{}, err
	}
	return ToolOutput{Text: fmt.Sprint(in.A + in.B)}, nil
}

// A question that the model answers with the help of a tool. This model is a server that always says the same two things.
func ExampleAgent() {
	says := []string{
		`{"choices": [{"message": {"role": "assistant", "content": "", "tool_calls": [
			{"id": "a1B2c3D4e", "type": "function", "function": {"name": "add", "arguments": "{\"a\": 19, \"b\": 23}"}}
		]}, "finish_reason": "tool_calls"}], "usage": {"prompt_tokens": 60, "completion_tokens": 20, "total_tokens": 80}}`,
		`{"choices": [{"message": {"role": "assistant", "content": "That makes 42."},
		 "finish_reason": "stop"}], "usage": {"prompt_tokens": 90, "completion_tokens": 5, "total_tokens": 95}}`,
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, says[0])
		says = says[1:]
	}))
	defer server.Close()

	agent := &Agent{
		Model:  &Mistral{BaseURL: server.URL, Model: "mistral-large-latest"},
		Tools:  agentAdder{},
		System: "Use the tools to calculate.",
		Observe: func(e Event) {
			switch e.Kind {
			case CallStarted:
				fmt.Printf("> %s %s\n", e.Call.Name, e.Call.Arguments)
			case CallEnded:
				fmt.Printf("< %s, %d bytes, error: %v\n", e.Call.Name, e.Bytes, e.Err)
			}
		},
	}
	answer, err := agent.Chat(context.Background(), "What is 19 and 23?")
	fmt.Println(answer, err)
	fmt.Println(agent.Usage.TotalTokens, "tokens; the history:")
	for _, message := range agent.History {
		fmt.Printf("%s %q %d\n", message.Role, message.Content.Text(), len(message.ToolCalls))
	}

	// Output:
	// > add {"a": 19, "b": 23}
	// < add, 2 bytes, error: <nil>
	// That makes 42. <nil>
	// 175 tokens; the history:
	// user "What is 19 and 23?" 0
	// assistant "" 1
	// tool "42" 0
	// assistant "That makes 42." 0
}

// agentTools is a toolbox of functions by name.
type agentTools map[string]func(ctx context.Context, arguments string) (ToolOutput, error)

func (t agentTools) Functions(context.Context) (functions []Function, _ error) {
	for _, name := range slices.Sorted(maps.Keys(t)) {
		functions = append(functions, Function{Name: name})
	}
	return functions, nil
}

func (t agentTools) Call(ctx context.Context, call ToolCall) (ToolOutput, error) {
	return t[call.Name](ctx, call.Arguments)
}

// agentEcho answers with the arguments.
func agentEcho(_ context.Context, arguments string) (ToolOutput, error) {
	return ToolOutput{Text: arguments}, nil
}

// agentHang waits for ctx.
func agentHang(ctx context.Context, _ string) (ToolOutput, error) {
	<-ctx.Done()
	return ToolOutput{}, ctx.Err()
}

// agentWire carries requests to a model server in memory, where synctest's clock rules. A body breaks off when ctx ends.
type agentWire struct{ server *modelServer }

func (w agentWire) RoundTrip(r *http.Request) (resp *http.Response, err error) {
	defer func() {
		if value := recover(); value == http.ErrAbortHandler {
			resp, err = nil, io.ErrUnexpectedEOF
		} else if value != nil {
			panic(value)
		}
	}()
	recorder := httptest.NewRecorder()
	if r.Context().Err() == nil {
		w.server.ServeHTTP(recorder, r)
	}
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	resp = recorder.Result()
	resp.Body = agentBody{iotest.OneByteReader(recorder.Body), r.Context()}
	return resp, nil
}

type agentBody struct {
	io.Reader
	ctx context.Context
}

func (b agentBody) Read(p []byte) (int, error) {
	if b.ctx.Err() != nil {
		return 0, b.ctx.Err()
	}
	return b.Reader.Read(p)
}

func (agentBody) Close() error { return nil }

// newAgentTest is an agent whose model follows the script, strictly.
func newAgentTest(t *testing.T, tools Toolbox, script ...modelReply) (*Agent, *modelServer) {
	server := &modelServer{t: t, script: script}
	model := &Mistral{BaseURL: "http://model.test/v1", Model: "mistral-test", Client: &http.Client{Transport: agentWire{server}}}
	return &Agent{Model: model, Tools: tools, System: "Be strict."}, server
}

// agentHistory checks that the strict server accepts the history with any question after it, and returns it as "role: text" lines.
func agentHistory(t *testing.T, a *Agent) string {
	t.Helper()
	next, server := newAgentTest(t, a.Tools, modelText("fine"))
	next.History = slices.Clone(a.History)
	if answer, err := next.Chat(t.Context(), "And now?"); answer != "fine" || err != nil {
		t.Errorf("the next question: %q, %v\nof the request %s", answer, err, server.Requests()[0].Body)
	}
	var lines []string
	for _, m := range a.History {
		line := m.Role + ": " + m.Content.Text()
		for _, call := range m.ToolCalls {
			line += fmt.Sprintf("<%s %s>", call.Name, call.Arguments)
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

// agentAsk asks and requires the answer.
func agentAsk(t *testing.T, a *Agent, want string) {
	t.Helper()
	if answer, err := a.Chat(t.Context(), "Why?"); answer != want || err != nil {
		t.Fatalf("answer %q, error %v, want %q", answer, err, want)
	}
}

// agentSame compares texts.
func agentSame(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s:\n%s\nwant:\n%s", what, got, want)
	}
}

func TestAgentKeepsTheConversation(t *testing.T) {
	for _, stream := range []bool{false, true} {
		t.Run(fmt.Sprintf("stream=%v", stream), func(t *testing.T) {
			a, server := newAgentTest(t, agentTools{"echo": agentEcho},
				modelAnswer{Content: "Let me look. ", Calls: []ToolCall{modelCall("aaaaaaaa1", "echo", `{"n":1}`), modelCall("aaaaaaaa2", "echo", `{"n":2}`)}},
				modelAnswer{Content: []any{map[string]any{"type": "thinking", "thinking": []any{map[string]any{"type": "text", "text": "hm"}}}, map[string]any{"type": "text", "text": "It is."}}},
				modelText("You are welcome."))
			var streamed strings.Builder
			if stream {
				a.OnText = func(text string) { streamed.WriteString(text) }
			}
			agentAsk(t, a, "It is.")
			if want := (Usage{20, 10, 30}); a.Usage != want {
				t.Errorf("usage %+v, want %+v", a.Usage, want)
			}
			agentAsk(t, a, "You are welcome.")
			if want := (Usage{10, 5, 15}); a.Usage != want {
				t.Errorf("usage of the second question %+v, want %+v", a.Usage, want)
			}
			agentSame(t, "history", agentHistory(t, a), strings.Join([]string{
				"user: Why?",
				`assistant: Let me look. <echo {"n":1}><echo {"n":2}>`,
				`tool: {"n":1}`,
				`tool: {"n":2}`,
				"assistant: It is.",
				"user: Why?",
				"assistant: You are welcome.",
			}, "\n"))
			if stream {
				agentSame(t, "streamed", streamed.String(), "Let me look. It is.You are welcome.")
			}
			for _, r := range server.Requests() {
				if first := r.Messages[0]; first.Role != "system" || first.Content.Text() != "Be strict." || r.Messages[1].Role != "user" {
					t.Errorf("the request begins with %+v", r.Messages[:2])
				}
				if r.ToolChoice != "" || len(r.Tools) != 1 {
					t.Errorf("tool_choice %q, tools %v", r.ToolChoice, r.Tools)
				}
			}
			// Thinking goes back as it came.
			if last := server.Requests()[2]; !bytes.Contains(last.Body, []byte(`"thinking"`)) {
				t.Errorf("thinking is lost in %s", last.Body)
			}
		})
	}
}

func TestAgentWithoutTools(t *testing.T) {
	a, _ := newAgentTest(t, nil, modelCalls(modelCall("aaaaaaaa1", "echo", `{}`)), modelText("No tool, no problem."))
	a.System = ""
	agentAsk(t, a, "No tool, no problem.")
	agentSame(t, "history", agentHistory(t, a), "user: Why?\nassistant: <echo {}>\ntool: Error: there is no tool \"echo\"\nassistant: No tool, no problem.")
}

// What can happen to a call is told to the model, all in one turn here, and the loop goes on.
func TestAgentTellsTheModel(t *testing.T) {
	tools := agentTools{
		"echo":   agentEcho,
		"silent": func(context.Context, string) (ToolOutput, error) { return ToolOutput{}, nil },
		"fails": func(context.Context, string) (ToolOutput, error) {
			return ToolOutput{Text: "no such file", IsError: true}, nil
		},
		"mute": func(context.Context, string) (ToolOutput, error) { return ToolOutput{IsError: true}, nil },
		"dead": func(context.Context, string) (ToolOutput, error) {
			return ToolOutput{}, errors.New("server gone: exit status 1")
		},
		"slow":   func(context.Context, string) (ToolOutput, error) { return ToolOutput{}, context.DeadlineExceeded },
		"panics": func(context.Context, string) (ToolOutput, error) { panic("oh") },
		"exits":  func(context.Context, string) (ToolOutput, error) { runtime.Goexit(); return ToolOutput{}, nil },
		"binary": func(context.Context, string) (ToolOutput, error) { return ToolOutput{Text: "a\xff\xfez"}, nil },
	}
	tests := []struct{ name, arguments, want string }{
		{"echo", `{"a": [1, {"b": "<&>"}]}`, `{"a": [1, {"b": "<&>"}]}`},
		{"echo", ``, `{}`},
		{"echo", ` null `, `{}`},
		{"silent", `{}`, "(The tool returned no text.)"},
		{"fails", `{}`, "Error: no such file"},
		{"mute", `{}`, "Error: the tool reported an error without a text"},
		{"dead", `{}`, "Error: server gone: exit status 1"},
		{"slow", `{}`, "Error: context deadline exceeded"},
		{"panics", `{}`, "Error: the tool panicked: oh"},
		{"exits", `{}`, "Error: the tool ended without a result"},
		{"binary", `{}`, "a\uFFFDz"},
		{"ecco", `{}`, `Error: there is no tool "ecco"; the nearest are: echo`},
		{"lib.echo", `{`, `Error: there is no tool "lib.echo"; the nearest are: echo`},
		{"", `{}`, `Error: there is no tool ""`},
		{strings.Repeat("long/", 20), `{}`, `Error: there is no tool "` + strings.Repeat("long/", 20) + `"`},
		{"echo", `{"a":`, `Error: the arguments are not valid JSON (unexpected end of JSON input); they were: {"a":`},
		{"echo", `{} {}`, `Error: the arguments are not valid JSON (invalid character '{' after top-level value); they were: {} {}`},
		{"echo", `[1]`, `Error: the arguments must be a JSON object; they were: [1]`},
		{"echo", `"x"`, `Error: the arguments must be a JSON object; they were: "x"`},
		{"echo", `{"refuse":1}`, "Error: the call was refused: not today"},
		{"echo", `{"refuse":0}`, "Error: the call was refused: no reason was given"},
		{"echo", `{"answer":1}`, "as told"},
	}
	var calls []ToolCall
	for i, test := range tests {
		calls = append(calls, modelCall(fmt.Sprintf("aaaaaaa%02d", i), test.name, test.arguments))
	}
	a, server := newAgentTest(t, tools, modelCalls(calls...), modelText("I see."))
	a.Decide = func(_ context.Context, call ToolCall) Decision {
		switch call.Arguments {
		case `{"refuse":1}`:
			return Decision{Refuse, "not today"}
		case `{"refuse":0}`:
			return Decision{Action: Refuse}
		case `{"answer":1}`:
			return Decision{Answer, "as told"}
		}
		return Decision{}
	}
	errs := make(map[string]error)
	a.Observe = func(e Event) {
		if e.Kind == CallEnded {
			errs[e.Call.ID] = e.Err
		}
	}
	agentAsk(t, a, "I see.")
	agentHistory(t, a)
	for i, test := range tests {
		id := calls[i].ID
		if m := a.History[2+i]; m.ToolCallID != id || m.Content.Text() != test.want {
			t.Errorf("%s %s: answer %s %q, want %s %q", test.name, test.arguments, m.ToolCallID, m.Content.Text(), id, test.want)
		}
		if name := a.History[2+i].Name; name != server.Requests()[1].Messages[2].ToolCalls[i].Name || len(name) > 64 {
			t.Errorf("%s: sent back as %q", test.name, name)
		}
		if wrong := strings.HasPrefix(test.want, "Error: "); wrong != (errs[id] != nil) {
			t.Errorf("%s %s: observed error %v", test.name, test.arguments, errs[id])
		}
		if sent := server.Requests()[1].Messages[2].ToolCalls[i]; !json.Valid([]byte(sent.Arguments)) {
			t.Errorf("%s: arguments sent back: %s", test.name, sent.Arguments)
		}
	}
	if crash := (*PanicError)(nil); !errors.As(errs["aaaaaaa08"], &crash) || !bytes.Contains(crash.Stack, []byte("agent_test.go")) {
		t.Errorf("the panic's error %v has no stack that leads to it", errs["aaaaaaa08"])
	}
	if !errors.Is(errs["aaaaaaa19"], ErrRefused) {
		t.Errorf("a refusal's error is %v", errs["aaaaaaa19"])
	}
}

// A call that the user has changed runs as they want it; the history keeps what the model wanted, and the model is told.
func TestAgentEdit(t *testing.T) {
	fail := func(context.Context, string) (ToolOutput, error) { return ToolOutput{}, errors.New("no such bird") }
	long := func(context.Context, string) (ToolOutput, error) {
		return ToolOutput{Text: strings.Repeat("x", 10_000)}, nil
	}
	tests := []struct{ name, edit, ran, want string }{
		{"echo", ` {"q": "heron"}`, `{"q": "heron"}`, "(The user changed the arguments of this call to {\"q\": \"heron\"}.)\n{\"q\": \"heron\"}"},
		{"echo", "", "{}", "(The user changed the arguments of this call to {}.)\n{}"},
		{"fail", `{"q":1}`, `{"q":1}`, "(The user changed the arguments of this call to {\"q\":1}.)\nError: no such bird"},
		{"echo", `{"q":`, `{"x":3}`, "Error: the call was refused: the user changed the arguments, but the arguments are not valid JSON (unexpected end of JSON input)"},
		{"echo", `[1]`, `{"x":4}`, "Error: the call was refused: the user changed the arguments, but the arguments must be a JSON object"},
		{"long", `{}`, `{}`, "(The user changed the arguments of this call to {}.)\nxxx"},
	}
	var calls []ToolCall
	edits := make(map[string]string)
	for i, test := range tests {
		call := modelCall(fmt.Sprintf("aaaaaaaa%d", i), test.name, fmt.Sprintf(`{"x":%d}`, i))
		calls, edits[call.ID] = append(calls, call), test.edit
	}
	a, server := newAgentTest(t, agentTools{"echo": agentEcho, "fail": fail, "long": long}, modelCalls(calls...), modelText("I see."))
	a.MaxResult = 1000
	a.Decide = func(_ context.Context, call ToolCall) Decision { return Decision{Edit, edits[call.ID]} }
	ran, started := make(map[string]string), 0
	a.Observe = func(e Event) {
		switch e.Kind {
		case CallStarted:
			started++
		case CallEnded:
			ran[e.Call.ID] = e.Call.Arguments
		}
	}
	agentAsk(t, a, "I see.")
	agentHistory(t, a)
	for i, test := range tests {
		agentSame(t, "ran", ran[calls[i].ID], test.ran)
		agentSame(t, "history", server.Requests()[1].Messages[2].ToolCalls[i].Arguments, calls[i].Arguments)
		if got := a.History[2+i].Content.Text(); got != test.want && !(test.name == "long" && strings.HasPrefix(got, test.want)) {
			t.Errorf("the model is told %q, want %q", got, test.want)
		}
	}
	if started != 4 {
		t.Errorf("%d calls were started", started)
	}
}

// agentLoose is a model server that takes everything.
type agentLoose []string

func (s *agentLoose) RoundTrip(*http.Request) (*http.Response, error) {
	body := `{"choices":[{"message":` + (*s)[0] + `}]}`
	*s = (*s)[1:]
	return &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader(body))}, nil
}

// Ids go back as they came, whatever their form, but for those that would not be unique in their turn.
func TestAgentIDs(t *testing.T) {
	a := &Agent{Tools: agentTools{"echo": agentEcho}, Model: &Mistral{BaseURL: "http://model.test", Client: &http.Client{Transport: &agentLoose{
		`{"tool_calls":[
			{"id":"call_0","function":{"name":"echo","arguments":"{\"n\":0}"}},
			{"id":"call_0","function":{"name":"echo","arguments":"{\"n\":1}"}},
			{"id":"","function":{"name":"echo","arguments":"{\"n\":2}"}},
			{"id":"call_0","function":{"name":"echo","arguments":"{\"n\":3}"}},
			{"id":"call_x4f0a9b2","function":{"name":"echo","arguments":"{\"n\":4}"}}]}`,
		`{"tool_calls":[{"id":"call_0","function":{"name":"echo","arguments":"{\"n\":5}"}}]}`,
		`{"content":"done"}`,
	}}}}
	agentAsk(t, a, "done")
	calls, answers := a.History[1].ToolCalls, a.History[2:7]
	seen := make(map[string]bool)
	for i, call := range calls {
		want := map[int]string{0: "call_0", 4: "call_x4f0a9b2"}[i]
		if want != "" && call.ID != want || want == "" && !modelID.MatchString(call.ID) || seen[call.ID] {
			t.Errorf("call %d has id %q", i, call.ID)
		}
		seen[call.ID] = true
		if answers[i].ToolCallID != call.ID || answers[i].Content.Text() != fmt.Sprintf(`{"n":%d}`, i) {
			t.Errorf("call %q is answered by %+v", call.ID, answers[i])
		}
	}
	if a.History[7].ToolCalls[0].ID != "call_0" || a.History[8].ToolCallID != "call_0" {
		t.Errorf("the next turn: %+v, %+v", a.History[7], a.History[8])
	}
}

// The call that an answer ends in when it is cut off is not run, not even with arguments that look whole.
func TestAgentCutOff(t *testing.T) {
	for _, arguments := range []string{`{"n":`, ``, `{"n":2}`} {
		for _, finish := range []string{"length", "model_length"} {
			a, _ := newAgentTest(t, agentTools{"echo": agentEcho},
				modelAnswer{Content: "", Calls: []ToolCall{modelCall("aaaaaaaa1", "echo", `{"n":1}`), modelCall("aaaaaaaa2", "echo", arguments)}, Finish: finish},
				modelText("Sorry."))
			var observed error
			a.Observe = func(e Event) {
				if e.Kind == CallEnded && e.Call.ID == "aaaaaaaa2" {
					observed = e.Err
				}
			}
			agentAsk(t, a, "Sorry.")
			agentHistory(t, a)
			agentSame(t, "first", a.History[2].Content.Text(), `{"n":1}`)
			if got := a.History[3].Content.Text(); !strings.Contains(got, "cut off at its length limit") || observed != errCut {
				t.Errorf("%s: the model reads %q, the user %v", arguments, got, observed)
			}
		}
	}
	a, _ := newAgentTest(t, nil, modelAnswer{Content: "Once upon a", Finish: "length"})
	cut := false
	a.Observe = func(e Event) { cut = e.Response.CutOff() }
	agentAsk(t, a, "Once upon a")
	if !cut {
		t.Error("the caller is not told that the text was cut off")
	}
}

// agentAlways is a model that calls a tool for ever, as the given answer to tool_choice none allows.
func agentAlways(atLast modelReply) modelFunc {
	n := 0
	return func(r *modelRequest) modelReply {
		n++
		if r.ToolChoice == "none" && atLast != nil {
			return atLast
		}
		return modelCalls(modelCall(fmt.Sprintf("aaaa%05d", n), "echo", fmt.Sprintf(`{"n":%d}`, n)))
	}
}

func TestAgentTurnLimit(t *testing.T) {
	both := modelAnswer{Content: "So far so good.", Calls: []ToolCall{modelCall("aaaaaaaa1", "echo", `{}`)}}
	for _, test := range []struct {
		name      string
		max, want int // limit and model requests
		atLast    modelReply
		answer    string
	}{
		{"default", 0, 21, modelText("As far as I got: 42."), "As far as I got: 42."},
		{"two", 2, 3, modelText("Well."), "Well."},
		{"none", -1, 1, modelText("Well."), "Well."},
		{"calls beside the answer", 2, 3, both, "So far so good."},
		{"calls all the same", 2, 3, nil, ""},
		{"empty", 2, 3, modelText(" \n"), ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			a, server := newAgentTest(t, agentTools{"echo": agentEcho})
			server.Rest = agentAlways(test.atLast)
			a.MaxTurns = test.max
			var last []Event
			a.Observe = func(e Event) {
				if e.Kind == LastTurn {
					last = append(last, e)
				}
			}
			answer, err := a.Chat(t.Context(), "Why?")
			limit := (*LimitError)(nil)
			if answer != test.answer || (answer == "") != (errors.Is(err, ErrNoAnswer) && errors.As(err, &limit)) {
				t.Errorf("answer %q, error %v", answer, err)
			}
			requests := server.Requests()
			if len(requests) != test.want {
				t.Fatalf("%d requests, want %d", len(requests), test.want)
			}
			for i, r := range requests {
				if isLast := i == len(requests)-1; (r.ToolChoice == "none") != isLast || len(r.Tools) != 1 {
					t.Errorf("request %d has tool_choice %q, tools %v", i, r.ToolChoice, r.Tools)
				}
			}
			if len(last) != 1 || last[0].Turn != test.want || !errors.As(last[0].Err, &limit) || limit.Max != test.want-1 && test.max > 0 {
				t.Errorf("observed %+v", last)
			}
			agentHistory(t, a)
		})
	}
}

// 200 calls at once: 16 run at a time, 100 in all, and everyone has its answer in its place.
func TestAgentCallLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running, most, runs atomic.Int32
		tools := agentTools{"work": func(_ context.Context, arguments string) (ToolOutput, error) {
			runs.Add(1)
			if n := running.Add(1); n > most.Load() {
				most.Store(n)
			}
			time.Sleep(time.Second)
			running.Add(-1)
			return ToolOutput{Text: arguments}, nil
		}}
		var calls []ToolCall
		for i := range 200 {
			calls = append(calls, modelCall(fmt.Sprintf("aaaaaa%03d", i), "work", fmt.Sprintf(`{"n":%d}`, i)))
		}
		a, server := newAgentTest(t, tools, modelCalls(calls...), modelText("Enough."))
		ended := make(map[string]Event)
		a.Observe = func(e Event) {
			if e.Kind == CallEnded {
				ended[e.Call.ID] = e
			}
		}
		began := time.Now()
		agentAsk(t, a, "Enough.")
		if took := time.Since(began); took != 7*time.Second || most.Load() != 16 || runs.Load() != 100 {
			t.Errorf("%d calls, %d at once, in %v, want 100, 16, in 7 s", runs.Load(), most.Load(), took)
		}
		for i, call := range calls {
			want, e := call.Arguments, ended[call.ID]
			if i < 100 && (e.Err != nil || e.Took != time.Second || e.Bytes != len(call.Arguments)) {
				t.Errorf("observed %+v", e)
			}
			if i >= 100 {
				want = "Error: not run: limit of 100 calls per question reached"
				if limit := (*LimitError)(nil); !errors.As(e.Err, &limit) || e.Took != 0 {
					t.Errorf("observed %+v", e)
				}
			}
			if m := a.History[2+i]; m.ToolCallID != call.ID || m.Content.Text() != want {
				t.Fatalf("answer %d is %s %q", i, m.ToolCallID, m.Content.Text())
			}
		}
		if last := server.Requests()[1]; last.ToolChoice != "none" {
			t.Errorf("a model without calls left is asked with tool_choice %q", last.ToolChoice)
		}
		agentHistory(t, a)
	})
}

func TestAgentRepeats(t *testing.T) {
	same := []string{`{"a":1,"b":{"c":2,"d":3}}`, `{"b":{"d":3,"c":2},"a":1}`, `{ "a" : 1, "b":{"c":2,"d":3}}`, `{"b":{"c":2,"d":3},"a":1}`}
	other := []string{`{"a":100000000000000001}`, `{"a":100000000000000002}`, `{"a":100000000000000003}`, `{"a":100000000000000004}`}
	var script []modelReply
	for i := range 4 {
		script = append(script, modelCalls(modelCall("aaaaaaaa1", "echo", same[i]), modelCall("aaaaaaaa2", "echo", other[i]), modelCall("aaaaaaaa3", "other", same[i])))
	}
	script = append(script, modelText("Yes, yes."), modelCalls(modelCall("aaaaaaaa1", "echo", same[0])), modelText("Again."))
	a, server := newAgentTest(t, agentTools{"echo": agentEcho, "other": agentEcho}, script...)
	agentAsk(t, a, "Yes, yes.")
	const refused = "Error: not run, use the results that you have: limit of 3 equal calls per question reached"
	last := a.History[len(a.History)-4:]
	agentSame(t, "fourth of the same", last[0].Content.Text(), refused)
	agentSame(t, "fourth of others", last[1].Content.Text(), other[3])
	agentSame(t, "fourth of another tool", last[2].Content.Text(), refused)
	agentSame(t, "third", a.History[10].Content.Text(), same[2])
	agentAsk(t, a, "Again.") // the count is the question's
	agentSame(t, "next question", a.History[len(a.History)-2].Content.Text(), same[0])
	for _, r := range server.Requests() {
		if r.ToolChoice != "" {
			t.Error("a repeated call has ended the tools' turns")
		}
	}
	agentHistory(t, a)
}

// A call that was refused counts as well: who has said no three times is not asked again.
func TestAgentRepeatsRefused(t *testing.T) {
	call := modelCalls(modelCall("aaaaaaaa1", "echo", `{}`))
	a, _ := newAgentTest(t, agentTools{"echo": agentEcho}, call, call, call, call, modelText("I give up."))
	asked := 0
	a.Decide = func(context.Context, ToolCall) Decision {
		asked++
		return Decision{Action: Refuse}
	}
	agentAsk(t, a, "I give up.")
	if asked != 3 {
		t.Errorf("asked %d times", asked)
	}
	agentHistory(t, a)
}

func TestAgentEmptyAnswer(t *testing.T) {
	a, server := newAgentTest(t, agentTools{"echo": agentEcho},
		modelCalls(modelCall("aaaaaaaa1", "echo", `{}`)), modelText(""), modelText("Oh, yes."))
	agentAsk(t, a, "Oh, yes.")
	if last := server.Requests()[2]; last.ToolChoice != "none" {
		t.Errorf("asked again with tool_choice %q", last.ToolChoice)
	}
	agentHistory(t, a)

	thinking := []any{map[string]any{"type": "thinking", "thinking": []any{map[string]any{"type": "text", "text": "hm"}}}}
	a, _ = newAgentTest(t, agentTools{"echo": agentEcho}, modelAnswer{Content: thinking}, modelAnswer{Content: nil})
	if answer, err := a.Chat(t.Context(), "Why?"); answer != "" || !errors.Is(err, ErrNoAnswer) {
		t.Errorf("answer %q, error %v", answer, err)
	}
	agentSame(t, "history", agentHistory(t, a), "")
}

// Every way in which a model request can fail, at the first turn and after calls.
func TestAgentModelError(t *testing.T) {
	for name, failure := range map[string]modelReply{
		"401": modelUnauthorized(), "too long": modelContextTooLong(), "page": modelPage(502), "hang up": modelHangUp{}, "429": modelRateLimited("1"),
		"nonsense": modelFailure{Status: 200, Body: "{}"},
	} {
		for _, stream := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s stream=%v", name, stream), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					a, server := newAgentTest(t, agentTools{"echo": agentEcho}, modelText("Hello."))
					if stream {
						a.OnText = func(string) {}
					}
					agentAsk(t, a, "Hello.")
					server.Rest = failure
					if _, err := a.Chat(t.Context(), "Lost?"); err == nil {
						t.Error("no error")
					}
					agentSame(t, "a question of which nothing came", agentHistory(t, a), "user: Why?\nassistant: Hello.")

					server.script = []modelReply{modelCalls(modelCall("aaaaaaaa1", "echo", `{}`))}
					if _, err := a.Chat(t.Context(), "Kept?"); err == nil {
						t.Error("no error")
					}
					agentSame(t, "history", agentHistory(t, a), "user: Why?\nassistant: Hello.\nuser: Kept?\nassistant: <echo {}>\ntool: {}\nassistant: "+cutOff)
				})
			})
		}
	}
}

// ctx ends wherever Chat can be.
func TestAgentInterrupted(t *testing.T) {
	const interrupted = "tool: Error: the question was interrupted before this call had a result"
	call := func(n int) ToolCall {
		return modelCall(fmt.Sprintf("aaaaaaaa%d", n), "echo", fmt.Sprintf(`{"n":%d}`, n))
	}
	hang := modelCall("aaaaaaaa9", "hang", `{}`)
	for _, test := range []struct {
		name  string
		reply func(cancel func()) []modelReply
		setup func(a *Agent, cancel func())
		want  string
	}{
		{
			name:  "before",
			setup: func(_ *Agent, cancel func()) { cancel() },
		}, {
			name: "in the first model request",
			reply: func(cancel func()) []modelReply {
				return []modelReply{modelFunc(func(*modelRequest) modelReply { cancel(); return modelText("late") })}
			},
		}, {
			name: "in the second model request",
			reply: func(cancel func()) []modelReply {
				return []modelReply{modelCalls(call(1)), modelFunc(func(*modelRequest) modelReply { cancel(); return modelText("late") })}
			},
			want: "user: Why?\nassistant: <echo {\"n\":1}>\ntool: {\"n\":1}\nassistant: " + cutOff,
		}, {
			name:  "in a stream",
			reply: func(func()) []modelReply { return []modelReply{modelText("one two three")} },
			setup: func(a *Agent, cancel func()) {
				a.OnText = func(text string) {
					if text == "two " {
						cancel()
					}
				}
			},
			want: "user: Why?\nassistant: one two \n\n" + cutOff,
		}, {
			name: "waiting to try again",
			reply: func(func()) []modelReply {
				return []modelReply{modelCalls(call(1)), modelRateLimited("60")}
			},
			setup: func(a *Agent, cancel func()) { a.Model.OnRetry = func(Retry) { cancel() } },
			want:  "user: Why?\nassistant: <echo {\"n\":1}>\ntool: {\"n\":1}\nassistant: " + cutOff,
		}, {
			name:  "while tools run, one of which is done",
			reply: func(func()) []modelReply { return []modelReply{modelCalls(hang, call(1))} },
			setup: func(a *Agent, cancel func()) {
				a.Observe = func(e Event) {
					if e.Kind == CallEnded && e.Call.Name == "echo" {
						cancel()
					}
				}
			},
			want: "user: Why?\nassistant: <hang {}><echo {\"n\":1}>\ntool: Error: context canceled\ntool: {\"n\":1}\nassistant: " + cutOff,
		}, {
			name:  "before the second tool starts",
			reply: func(func()) []modelReply { return []modelReply{modelCalls(hang, call(1))} },
			setup: func(a *Agent, cancel func()) {
				a.Observe = func(e Event) {
					if e.Kind == CallStarted {
						cancel()
					}
				}
			},
			want: "user: Why?\nassistant: <hang {}><echo {\"n\":1}>\ntool: Error: context canceled\n" + interrupted + "\nassistant: " + cutOff,
		}, {
			name: "while somebody is asked about the second call",
			reply: func(func()) []modelReply {
				return []modelReply{modelCalls(call(1), call(2), call(3), modelCall("aaaaaaaa4", "nix", `{}`))}
			},
			setup: func(a *Agent, cancel func()) {
				a.Decide = func(ctx context.Context, call ToolCall) Decision {
					if ctx.Err() != nil {
						panic("asked after the end")
					}
					if strings.Contains(call.Arguments, "2") {
						cancel()
						return Decision{Refuse, "nobody is there"}
					}
					return Decision{}
				}
			},
			want: "user: Why?\nassistant: <echo {\"n\":1}><echo {\"n\":2}><echo {\"n\":3}><nix {}>\n" + interrupted + "\n" + interrupted + "\n" + interrupted +
				"\ntool: Error: there is no tool \"nix\"\nassistant: " + cutOff,
		}, {
			name: "in a tool after streamed text",
			reply: func(func()) []modelReply {
				return []modelReply{modelAnswer{Content: "Let me see.", Calls: []ToolCall{hang}}}
			},
			setup: func(a *Agent, cancel func()) {
				a.OnText = func(string) {}
				a.Observe = func(e Event) {
					if e.Kind == CallStarted {
						cancel()
					}
				}
			},
			want: "user: Why?\nassistant: Let me see.<hang {}>\ntool: Error: context canceled\nassistant: " + cutOff,
		}, {
			name:  "with 40 calls of which 16 run",
			reply: func(func()) []modelReply { return []modelReply{modelCalls(slices.Repeat([]ToolCall{hang}, 40)...)} },
			setup: func(a *Agent, cancel func()) {
				a.MaxRepeats = 40
				started := 0
				a.Observe = func(e Event) {
					if e.Kind == CallStarted {
						if started++; started == maxParallel {
							cancel()
						}
					}
				}
			},
			want: "user: Why?\nassistant: " + strings.Repeat("<hang {}>", 40) + strings.Repeat("\ntool: Error: context canceled", 16) +
				strings.Repeat("\n"+interrupted, 24) + "\nassistant: " + cutOff,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var script []modelReply
				if test.reply != nil {
					script = test.reply(cancel)
				}
				a, _ := newAgentTest(t, agentTools{"echo": agentEcho, "hang": agentHang}, script...)
				if test.setup != nil {
					test.setup(a, cancel)
				}
				began := time.Now()
				if answer, err := a.Chat(ctx, "Why?"); answer != "" || !errors.Is(err, context.Canceled) {
					t.Errorf("answer %q, error %v", answer, err)
				}
				if took := time.Since(began); took != 0 {
					t.Errorf("returned %v after ctx", took)
				}
				agentSame(t, "history", agentHistory(t, a), test.want)
			})
		})
	}
}

// An answer that is there when ctx ends is an answer.
func TestAgentAnswersLate(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	a, _ := newAgentTest(t, nil, modelText("Just in time."))
	a.Observe = func(Event) { cancel() }
	if answer, err := a.Chat(ctx, "Why?"); answer != "Just in time." || err != nil {
		t.Errorf("answer %q, error %v", answer, err)
	}
}

// A callback's panic is its owner's; what Chat leaves behind is a valid history and no goroutine (synctest looks for those).
func TestAgentCallbackPanics(t *testing.T) {
	for _, at := range []string{"decide", "start", "end", "turn", "text"} {
		t.Run(at, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var left atomic.Int32
				hang := func(ctx context.Context, arguments string) (ToolOutput, error) {
					left.Add(1)
					defer left.Add(-1)
					return agentHang(ctx, arguments)
				}
				a, _ := newAgentTest(t, agentTools{"echo": agentEcho, "hang": hang}, modelAnswer{Content: "Let me see.", Calls: []ToolCall{
					modelCall("aaaaaaaa1", "hang", `{}`), modelCall("aaaaaaaa2", "echo", `{"n":2}`), modelCall("aaaaaaaa3", "hang", `{"n":3}`)}})
				fail := func(when bool) {
					if when {
						panic("a callback's")
					}
				}
				a.Decide = func(context.Context, ToolCall) Decision { fail(at == "decide"); return Decision{} }
				a.OnText = func(string) { fail(at == "text") }
				a.Observe = func(e Event) {
					fail(at == "turn" && e.Kind == TurnEnded || at == "end" && e.Kind == CallEnded)
					fail(at == "start" && e.Kind == CallStarted && e.Call.ID == "aaaaaaaa2")
				}
				func() {
					defer func() {
						if value := recover(); value != "a callback's" {
							t.Errorf("recovered %v", value)
						}
					}()
					a.Chat(t.Context(), "Why?")
				}()
				if n := left.Load(); n != 0 {
					t.Errorf("%d calls still run", n)
				}
				agentHistory(t, a)
			})
		})
	}
}

// agentFlaky is a toolbox whose list fails at the given turns, and is longer by a function each time.
type agentFlaky struct {
	agentTools
	fail  []bool
	names []Function
}

func (f *agentFlaky) Functions(context.Context) ([]Function, error) {
	fail := f.fail[0]
	f.fail = f.fail[1:]
	f.names = append(f.names, Function{Name: fmt.Sprintf("f%d", len(f.names)+1)})
	if fail {
		return nil, errors.New("no list")
	}
	return slices.Clone(f.names), nil
}

func TestAgentFunctionsFail(t *testing.T) {
	tools := &agentFlaky{agentTools: agentTools{"f1": agentEcho, "f3": agentEcho}, fail: []bool{true, false, true, false, false}}
	a, server := newAgentTest(t, tools,
		modelCalls(modelCall("aaaaaaaa1", "f1", `{}`)), modelCalls(modelCall("aaaaaaaa2", "f1", `{}`)), modelText("Good."))
	if _, err := a.Chat(t.Context(), "Why?"); err == nil || err.Error() != "list tools: no list" || len(a.History) != 0 {
		t.Errorf("error %v, history %v", err, a.History)
	}
	var kinds []EventKind
	a.Observe = func(e Event) {
		if e.Kind == ToolsFailed {
			kinds = append(kinds, e.Kind)
		}
	}
	agentAsk(t, a, "Good.")
	var offered []int
	for _, r := range server.Requests() {
		offered = append(offered, len(r.Tools))
	}
	if want := []int{2, 2, 4}; !slices.Equal(offered, want) || len(kinds) != 1 {
		t.Errorf("tools offered: %v, want %v; observed %v", offered, want, kinds)
	}
	a.Tools = agentTools{}
	agentHistory(t, a)
}

// The caller is asked in call order, one call at a time, before anything runs, and told in the order in which things happen.
func TestAgentEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		after := func(d time.Duration) func(context.Context, string) (ToolOutput, error) {
			return func(context.Context, string) (ToolOutput, error) {
				time.Sleep(d)
				return ToolOutput{Text: d.String()}, nil
			}
		}
		tools := agentTools{"one": after(time.Second), "two": after(2 * time.Second)}
		a, _ := newAgentTest(t, tools,
			modelFunc(func(*modelRequest) modelReply {
				time.Sleep(3 * time.Second)
				return modelCalls(modelCall("aaaaaaaa1", "two", `{}`), modelCall("aaaaaaaa2", "no", `{}`), modelCall("aaaaaaaa3", "one", `{}`), modelCall("aaaaaaaa4", "one", `{"x":1}`))
			}), modelRateLimited("1"), modelText("There."))
		var log []string // appended to without a lock: the race detector sees it if two callbacks ever run at once
		a.Decide = func(_ context.Context, call ToolCall) Decision {
			log = append(log, "decide "+call.ID)
			if call.ID == "aaaaaaaa4" {
				return Decision{Answer, "my own"}
			}
			return Decision{}
		}
		a.Model.OnRetry = func(r Retry) { log = append(log, fmt.Sprint("retry after ", r.Wait)) }
		a.Observe = func(e Event) {
			line := fmt.Sprintf("%d: ", e.Turn)
			switch e.Kind {
			case TurnEnded:
				line += fmt.Sprintf("model %v %s %d calls, %d tokens", e.Took, e.Response.FinishReason, len(e.Response.Message.ToolCalls), e.Response.Usage.TotalTokens)
			case CallStarted:
				line += "start " + e.Call.ID
			case CallEnded:
				line += fmt.Sprintf("end %s %v %d bytes %v", e.Call.ID, e.Took, e.Bytes, e.Err)
			}
			log = append(log, line)
		}
		agentAsk(t, a, "There.")
		agentSame(t, "events", strings.Join(log, "\n"), strings.Join([]string{
			"1: model 3s tool_calls 4 calls, 15 tokens",
			"decide aaaaaaaa1",
			`1: end aaaaaaaa2 0s 0 bytes there is no tool "no"`,
			"decide aaaaaaaa3",
			"decide aaaaaaaa4",
			"1: end aaaaaaaa4 0s 6 bytes <nil>",
			"1: start aaaaaaaa1",
			"1: start aaaaaaaa3",
			"1: end aaaaaaaa3 1s 2 bytes <nil>",
			"1: end aaaaaaaa1 2s 2 bytes <nil>",
			"retry after 1s",
			"2: model 1s stop 0 calls, 15 tokens",
		}, "\n"))
		agentHistory(t, a)
	})
}

// The response that Observe is handed stays as it came, whatever the history needs.
func TestAgentLeavesTheResponse(t *testing.T) {
	came := []ToolCall{modelCall("aaaaaaaa1", "echo", `{`), modelCall("aaaaaaaa1", "a.b", `{}`)}
	a, _ := newAgentTest(t, agentTools{"echo": agentEcho}, modelCalls(came...), modelText("Oh."))
	var first *ChatResponse
	a.Observe = func(e Event) {
		if e.Kind == TurnEnded && first == nil {
			first = e.Response
		}
	}
	agentAsk(t, a, "Oh.")
	if got := first.Message.ToolCalls; !reflect.DeepEqual(got, came) {
		t.Errorf("the response's calls have become %+v", got)
	}
	agentHistory(t, a)
}

func TestAgentClipsResults(t *testing.T) {
	long := strings.Repeat("é", 100<<10)
	a, _ := newAgentTest(t, agentTools{
		"long":  func(context.Context, string) (ToolOutput, error) { return ToolOutput{Text: long}, nil },
		"wrong": func(context.Context, string) (ToolOutput, error) { return ToolOutput{}, errors.New(long) },
	}, modelCalls(modelCall("aaaaaaaa1", "long", `{}`), modelCall("aaaaaaaa2", "wrong", `{}`)), modelText("Long."))
	var bytes []int
	a.Observe = func(e Event) {
		if e.Kind == CallEnded {
			bytes = append(bytes, e.Bytes)
		}
	}
	agentAsk(t, a, "Long.")
	want := strings.Repeat("é", 24<<10) + "\n[... 139264 bytes left out ...]\n" + strings.Repeat("é", 8<<10)
	if got := a.History[2].Content.Text(); got != want {
		t.Errorf("result of %d bytes, want %d: …%q…", len(got), len(want), got[48<<10-8:48<<10+40])
	}
	if got := a.History[3].Content.Text(); len(got) > 64<<10+40 || !strings.HasPrefix(got, "Error: éé") {
		t.Errorf("error of %d bytes: %.40q", len(got), got)
	}
	if slices.Sort(bytes); !slices.Equal(bytes, []int{0, len(long)}) {
		t.Errorf("observed sizes %v", bytes)
	}
}

func TestClip(t *testing.T) {
	for _, test := range []struct {
		text  string
		limit int
		want  string
	}{
		{"", 0, ""},
		{"12345678", 8, "12345678"},
		{"123456789", 8, "123456\n[... 1 bytes left out ...]\n89"},
		{"ééééé", 8, "ééé\n[... 2 bytes left out ...]\né"},
		{"ééééé", 7, "éé\n[... 4 bytes left out ...]\né"},
		{"€€€", 1, "\n[... 9 bytes left out ...]\n"},
		{"12345678", -1, "\n[... 8 bytes left out ...]\n"},
	} {
		agentSame(t, fmt.Sprintf("%q in %d", test.text, test.limit), clip(test.text, test.limit), test.want)
	}
}

func FuzzClip(f *testing.F) {
	f.Add("ééééé", 7)
	f.Add("a€😀b", 3)
	f.Fuzz(func(t *testing.T, text string, limit int) {
		got := clip(text, limit)
		if len(text) <= limit {
			agentSame(t, "short", got, text)
			return
		}
		if utf8.ValidString(text) && !utf8.ValidString(got) {
			t.Errorf("%q in %d: %q", text, limit, got)
		}
		if marker := len(fmt.Sprintf("\n[... %d bytes left out ...]\n", len(text))); len(got) > max(limit, 0)+marker {
			t.Errorf("%d bytes for a limit of %d", len(got), limit)
		}
	})
}

func FuzzParseArguments(f *testing.F) {
	for _, seed := range []string{``, `null`, `{}`, `{"b":1e400,"a":{"d":[],"c":"<\ud800>"}}`, `{} {}`, `[1]`, `{"a":1,"a":2}`, "\xff"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		object, key, err := parseArguments(text)
		var members map[string]any
		if json.Unmarshal([]byte(object), &members); members == nil {
			// 1e400 is JSON, though no float64.
			if !json.Valid([]byte(object)) || !strings.HasPrefix(object, "{") {
				t.Errorf("%q: %q is no object", text, object)
			}
		}
		if err == nil {
			if again, sameKey, err := parseArguments(key); again != key || sameKey != key || err != nil {
				t.Errorf("%q: the key %q has the key %q, error %v", text, key, sameKey, err)
			}
		} else if object != "{}" {
			t.Errorf("%q: error %v, but %q", text, err, object)
		}
	})
}

func TestClosest(t *testing.T) {
	names := []string{"library__search_chunks", "library__list_documents", "files__read_file", "files__write_file", "files__list_directory", "add"}
	for _, test := range []struct {
		name string
		want string
	}{
		{"search_chunks", "library__search_chunks"},
		{"mcp__library__search_chunks_tool", "library__search_chunks"},
		{"Library__Search_Chunk", "library__search_chunks"},
		{"files__raed_file", "files__read_file files__write_file"},
		{"files", "files__read_file files__write_file files__list_directory"},
		{"ad", "add"},
		{"sub", ""},
		{"weather", ""},
		{"", ""},
		{strings.Repeat("x", 64) + "add", ""}, // what is longer than any name is cut first, as the time it takes grows with it
	} {
		agentSame(t, fmt.Sprintf("%.40q", test.name), strings.Join(closest(test.name, names), " "), test.want)
	}
	for _, test := range []struct {
		a, b string
		want int
	}{{"", "abc", 3}, {"abc", "", 3}, {"kitten", "sitting", 3}, {"flaw", "lawn", 2}, {"abc", "xyz", 3}, {"a", "ab", 0}} {
		if got := distance(test.a, test.b); got != test.want {
			t.Errorf("distance of %q and %q is %d, want %d", test.a, test.b, got, test.want)
		}
	}
}
