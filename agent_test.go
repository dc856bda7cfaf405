package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"gotest.tools/v3/assert"
)

// agentTools is a toolbox of functions by name.
type agentTools map[string]func(ctx context.Context, arguments string) (ToolOutput, error)

func (t agentTools) Functions(context.Context) (functions []Function, _ error) {
	for _, name := range slices.Sorted(maps.Keys(t)) {
		functions = append(functions, Function{Name: name, ReadOnly: name == "look" || name == "poll"})
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

func agentGives(output ToolOutput, err error) func(context.Context, string) (ToolOutput, error) {
	return func(context.Context, string) (ToolOutput, error) { return output, err }
}

// agentWire carries requests to a model server in memory, where synctest's clock rules. A body breaks off when ctx
// ends.
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

// newAgentTest returns an agent whose model follows the script, strictly.
func newAgentTest(t *testing.T, tools Toolbox, script ...modelReply) (*Agent, *modelServer) {
	server := &modelServer{t: t, script: script}
	client := &http.Client{Transport: agentWire{server}}
	model := &Mistral{BaseURL: "http://model.test/v1", Model: "mistral-test", Client: client}
	return &Agent{Model: model, Tools: tools, System: "Be strict."}, server
}

// agentEyes is a model that sees.
type agentEyes struct{ *Mistral }

func (e agentEyes) Complete(ctx context.Context, r *ChatRequest, onText func(string)) (*ChatResponse, error) {
	request := *r
	request.Messages = ShowImages(r.Messages, MaxImages, "others are shown")
	return e.Mistral.Complete(ctx, &request, onText)
}

// agentHistory checks that the strict server accepts the history with any question after it, also if each tool had an
// image for a model that sees, and returns it as lines.
func agentHistory(t *testing.T, a *Agent) string {
	t.Helper()
	next, server := newAgentTest(t, a.Tools, modelText("fine"))
	next.History = slices.Clone(a.History)
	if answer, err := next.Chat(t.Context(), "And now?"); answer != "fine" || err != nil {
		t.Errorf("the next question: %q, %v\nof the request %s", answer, err, server.Requests()[0].Body)
	}
	sees, server := newAgentTest(t, a.Tools, modelText("fine"))
	sees.Model = agentEyes{sees.Model.(*Mistral)}
	sees.History = slices.Clone(a.History)
	for i := range sees.History {
		if m := &sees.History[i]; m.Role == "tool" {
			m.Images = []string{"data:image/png;base64," + scriptPNG}
		}
	}
	if answer, err := sees.Chat(t.Context(), "And there?", "data:image/gif;base64,"+scriptGIF); err != nil {
		t.Errorf("the next question, with images: %q, %v\nof the request %s", answer, err, server.Requests()[0].Body)
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
	answer, err := a.Chat(t.Context(), "Why?")
	assert.NilError(t, err)
	assert.Equal(t, answer, want)
}

// agentCall is a call with an id of its own for each n.
func agentCall(name string, n int) ToolCall {
	return modelCall(fmt.Sprintf("aaaaaa%03d", n), name, fmt.Sprintf(`{"n":%d}`, n))
}

func TestAgentKeepsTheConversation(t *testing.T) {
	thinking := map[string]any{"type": "thinking", "thinking": []any{map[string]any{"type": "text", "text": "hm"}}}
	for _, stream := range []bool{false, true} {
		a, server := newAgentTest(t, agentTools{"echo": agentEcho},
			modelAnswer{Content: "Let me look. ", Calls: []ToolCall{agentCall("echo", 1), agentCall("echo", 2)}},
			modelAnswer{Content: []any{thinking, map[string]any{"type": "text", "text": "It is."}}},
			modelText("You are welcome."))
		var streamed strings.Builder
		if stream {
			a.OnText = func(text string) { streamed.WriteString(text) }
		}
		agentAsk(t, a, "It is.")
		assert.Equal(t, a.Usage, Usage{20, 10, 30})
		agentAsk(t, a, "You are welcome.")
		assert.Equal(t, a.Usage, Usage{10, 5, 15}, "of the second question")
		assert.Equal(t, agentHistory(t, a), `user: Why?
assistant: Let me look. <echo {"n":1}><echo {"n":2}>
tool: {"n":1}
tool: {"n":2}
assistant: It is.
user: Why?
assistant: You are welcome.`)
		if stream {
			assert.Equal(t, streamed.String(), "Let me look. It is.You are welcome.")
		}
		for _, r := range server.Requests() {
			assert.Equal(t, r.Messages[0].Role+r.Messages[0].Content.Text()+r.Messages[1].Role, "systemBe strict.user")
			assert.Equal(t, r.ToolChoice, "")
			assert.Equal(t, len(r.Tools), 1)
		}
		assert.Assert(t, bytes.Contains(server.Requests()[2].Body, []byte(`"thinking"`)), "goes back as it came")
	}
}

// What can happen to a call is told to the model, all in one turn here, and the loop goes on.
func TestAgentTellsTheModel(t *testing.T) {
	long := strings.Repeat("long/", 20)
	tools := agentTools{
		"echo":   agentEcho,
		"silent": agentGives(ToolOutput{}, nil),
		"fails":  agentGives(ToolOutput{Text: "no such file", IsError: true}, nil),
		"mute":   agentGives(ToolOutput{IsError: true}, nil),
		"dead":   agentGives(ToolOutput{}, errors.New("server gone: exit status 1")),
		"binary": agentGives(ToolOutput{Text: "a\xff\xfez"}, nil),
		"long":   agentGives(ToolOutput{Text: strings.Repeat("é", 1000)}, nil),
		"wrong":  agentGives(ToolOutput{}, errors.New(strings.Repeat("é", 1000))),
	}
	const others = "; the tools are: binary, dead, echo, fails, long, mute, silent, wrong"
	const edited = "(The user changed the arguments of this call to "
	tests := []struct {
		name, arguments string
		want            string // its beginning for those that end with …
	}{
		{"echo", `{"a": [1, {"b": "<&>"}]}`, `{"a": [1, {"b": "<&>"}]}`},
		{"echo", ``, `{}`},
		{"echo", ` null `, `{}`},
		{"silent", `{}`, "(The tool returned no text.)"},
		{"fails", `{}`, "Error: no such file"},
		{"mute", `{}`, "Error: the tool reported an error without a text"},
		{"dead", `{}`, "Error: server gone: exit status 1"},
		{"binary", `{}`, "a\uFFFDz"},
		{"ecco", `{}`, `Error: there is no tool "ecco"` + others},
		{"lib.echo", `{`, `Error: there is no tool "lib.echo"` + others},
		{"", `{}`, `Error: there is no tool ""` + others},
		{long, `{}`, `Error: there is no tool "` + long + `"` + others},
		{"echo", `{"a":`, `Error: the arguments are not valid JSON (unexpected end of JSON input); they were: {"a":`},
		{"echo", `{} {}`, `Error: the arguments are not valid JSON (invalid character '{' after top-level value)…`},
		{"echo", `[1]`, `Error: the arguments must be a JSON object; they were: [1]`},
		{"echo", `"x"`, `Error: the arguments must be a JSON object; they were: "x"`},
		{"echo", `{"refuse":"not today"}`, "Error: the call was refused: not today"},
		{"echo", `{"refuse":""}`, "Error: the call was refused: no reason was given"},
		{"echo", `{"answer":"as told"}`, "as told"},
		// A call that the user has changed runs as they want it; the history keeps what the model wanted.
		{"echo", `{"edit":" {\"q\": 1}"}`, edited + "{\"q\": 1}.)\n{\"q\": 1}"},
		{"echo", `{"edit":""}`, edited + "{}.)\n{}"},
		{"dead", `{"edit":"{\"q\":2}"}`, edited + "{\"q\":2}.)\nError: server gone: exit status 1"},
		{"echo", `{"edit":"{"}`, "Error: the call was refused: the user changed the arguments, but the arguments are not…"},
		{"echo", `{"edit":"[1]"}`, "Error: the call was refused: the user changed the arguments, but the arguments must…"},
		{"long", `{"edit":"{}"}`, edited + "{}.)\né…"},
		{"long", `{}`, strings.Repeat("é", 187) + "\n[... 1502 bytes left out ...]\n" + strings.Repeat("é", 62)},
		{"wrong", `{}`, "Error: éé…"},
	}
	var calls []ToolCall
	for i, test := range tests {
		calls = append(calls, modelCall(fmt.Sprintf("aaaaaaa%02d", i), test.name, test.arguments))
	}
	a, server := newAgentTest(t, tools, modelCalls(calls...), modelText("I see."))
	a.MaxResult = 500
	a.Decide = func(_ context.Context, call ToolCall) Decision {
		var in struct{ Refuse, Answer, Edit *string }
		_ = json.Unmarshal([]byte(call.Arguments), &in)
		switch {
		case in.Refuse != nil:
			return Decision{Refuse, *in.Refuse}
		case in.Answer != nil:
			return Decision{Answer, *in.Answer}
		case in.Edit != nil:
			return Decision{Edit, *in.Edit}
		}
		return Decision{}
	}
	ended := make(map[string]Event)
	var response *ChatResponse
	a.Observe = func(e Event) {
		switch {
		case e.Kind == CallEnded:
			ended[e.Call.ID] = e
		case response == nil:
			response = e.Response
		}
	}
	agentAsk(t, a, "I see.")
	agentHistory(t, a)
	assert.DeepEqual(t, response.Message.ToolCalls, calls) // as they came, whatever the history needs
	for i, test := range tests {
		message, sent := a.History[2+i], server.Requests()[1].Messages[2].ToolCalls[i]
		assert.Equal(t, message.ToolCallID, calls[i].ID)
		got, e := message.Content.Text(), ended[calls[i].ID]
		if want, cut := strings.CutSuffix(test.want, "…"); cut {
			assert.Assert(t, strings.HasPrefix(got, want) && len(got) < 550, "%s: %s", test.name, got)
		} else {
			assert.Equal(t, got, want)
		}
		assert.Assert(t, message.Name == sent.Name && len(sent.Name) <= 64, sent.Name)
		assert.Assert(t, json.Valid([]byte(sent.Arguments)), sent.Arguments)
		assert.Equal(t, e.Err != nil, strings.Contains(test.want, "Error: "), "%s: %v", test.name, e.Err)
		assert.Equal(t, errors.Is(e.Err, ErrRefused), strings.HasPrefix(test.want, "Error: the call was refused"))
		if strings.HasPrefix(test.want, edited+`{"q"`) {
			assert.Assert(t, strings.Contains(e.Call.Arguments, `{"q"`), e.Call.Arguments)
			assert.Equal(t, sent.Arguments, test.arguments)
		}
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
		return modelCalls(agentCall("echo", n))
	}
}

func TestAgentTurnLimit(t *testing.T) {
	both := modelAnswer{Content: "So far so good.", Calls: []ToolCall{agentCall("echo", 900)}}
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
			var limit *LimitError
			assert.Equal(t, answer, test.answer)
			assert.Equal(t, answer == "", errors.Is(err, ErrNoAnswer) && errors.As(err, &limit), "%v", err)
			requests := server.Requests()
			assert.Equal(t, len(requests), test.want)
			for i, r := range requests {
				assert.Equal(t, r.ToolChoice == "none", i == len(requests)-1)
				assert.Equal(t, len(r.Tools), 1)
			}
			assert.Equal(t, len(last), 1)
			assert.Assert(t, errors.As(last[0].Err, &limit) && (limit.Max == test.want-1 || test.max < 0))
			agentHistory(t, a)
		})
	}
}

// 200 calls at once: 16 run at a time, 100 in all, and every one has its answer in its place.
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
			return ToolOutput{Text: arguments, Result: arguments}, nil
		}}
		var calls []ToolCall
		for i := range 200 {
			calls = append(calls, agentCall("work", i))
		}
		a, server := newAgentTest(t, tools, modelCalls(calls...), modelText("Enough."))
		ended := make(map[string]Event)
		a.Observe = func(e Event) {
			ended[e.Call.ID] = e // the last one
		}
		began := time.Now()
		agentAsk(t, a, "Enough.")
		assert.Equal(t, time.Since(began), 7*time.Second)
		assert.Equal(t, fmt.Sprint(most.Load(), runs.Load()), "16 100")
		for i, call := range calls {
			want, e := call.Arguments, ended[call.ID]
			if i < 100 {
				assert.NilError(t, e.Err)
				assert.Equal(t, e.Took, time.Second)
				assert.DeepEqual(t, e.Output, ToolOutput{Text: call.Arguments, Result: call.Arguments})
			} else {
				want = "Error: not run: limit of 100 calls per question reached"
				assert.Assert(t, errors.As(e.Err, new(*LimitError)) && e.Took == 0, "%+v", e)
			}
			assert.Equal(t, a.History[2+i].ToolCallID, call.ID)
			assert.Equal(t, a.History[2+i].Content.Text(), want)
		}
		assert.Equal(t, server.Requests()[1].ToolChoice, "none", "no calls are left")
		agentHistory(t, a)
	})
}

// Of a flood of calls in one message the history keeps those that may run and 100 more, each with its answer, and the
// model is told how many more it made.
func TestAgentCallFlood(t *testing.T) {
	for max, allowed := range map[int]int{0: 100, 5: 5, -1: 0} {
		var runs atomic.Int32
		tools := agentTools{"work": func(context.Context, string) (ToolOutput, error) {
			runs.Add(1)
			return ToolOutput{Text: "done"}, nil
		}}
		var calls []ToolCall
		for i := range 2000 {
			calls = append(calls, agentCall("work", i))
		}
		a, server := newAgentTest(t, tools, modelCalls(calls...), modelText("Enough."))
		a.MaxCalls = max
		ended := 0
		a.Observe = func(e Event) {
			if e.Kind == CallEnded {
				ended++
			}
		}
		agentAsk(t, a, "Enough.")
		kept := allowed + 100
		assert.Equal(t, int(runs.Load()), allowed)
		assert.Equal(t, ended, kept)
		assert.Equal(t, len(a.History), 3+kept)
		assert.Equal(t, len(a.History[1].ToolCalls), kept)
		assert.Equal(t, server.Requests()[1].ToolChoice, "none")
		limit := fmt.Sprintf("Error: not run: limit of %d calls per question reached", allowed)
		assert.Equal(t, a.History[kept].Content.Text(), limit)
		assert.Equal(t, a.History[1+kept].Content.Text(),
			fmt.Sprintf("%s; the %d calls after this one were left out", limit, 2000-kept))
		agentHistory(t, a)
	}
}

// Calls are equal whatever the order of their members, and their numbers as they are written. They are counted as long
// as their results are equal and nothing ran that may have changed something, and for each question anew.
func TestAgentRepeats(t *testing.T) {
	many := func(n int, calls ...string) []string { return slices.Repeat(calls, n) }
	for _, test := range []struct {
		name    string
		calls   []string // one in each turn
		max     int
		refused []int // which of them
	}{
		{"edit and test", many(20, "edit {}", "test {}"), 0, nil},
		{"the same result", many(12, "test {}"), 0, []int{10, 11}},
		{"as many as are allowed", many(5, "test {}"), 3, []int{3, 4}},
		{"none", many(1, "test {}"), -1, []int{0}},
		{"polling", many(40, "poll {}"), 0, nil},
		{"readers in between", many(6, "look {}", `look {"at":1}`), 4, []int{8, 9, 10, 11}},
		{"a reader that sees no change", many(6, "look {}", "edit {}"), 4, []int{9, 11}},
		{"a reader that sees changes", many(15, "edit {}", "poll {}", "edit {}"), 5, nil},
		{"a change in between", append(many(4, "test {}"), "edit {}", "test {}"), 3, []int{3}},
		{"calls that do not run", many(4, "test {}", "edit [", "nix {}"), 2, []int{6, 9}},
		{"members in any order", []string{`test {"a":1,"b":{"c":2,"d":3}}`, `test { "b":{"d":3,"c":2},"a" : 1}`,
			`look {"a":1,"b":{"c":2,"d":3}}`}, 1, []int{1}},
		{"large numbers", []string{`look {"a":100000000000000001}`, `look {"a":100000000000000002}`}, 1, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			n, polled := 0, 0
			tools := agentTools{"edit": agentEcho, "test": agentEcho, "look": agentEcho,
				"poll": func(context.Context, string) (ToolOutput, error) {
					polled++
					return ToolOutput{Text: fmt.Sprint(polled / 2)}, nil // each result twice
				}}
			a, server := newAgentTest(t, tools)
			server.Rest = modelFunc(func(*modelRequest) modelReply {
				if n++; n > len(test.calls) {
					n = 0
					return modelText("Enough.")
				}
				name, arguments, _ := strings.Cut(test.calls[n-1], " ")
				return modelCalls(modelCall(fmt.Sprintf("aaaaaa%03d", n), name, arguments))
			})
			a.MaxTurns, a.MaxRepeats = 50, test.max
			for range 2 {
				a.History = nil
				agentAsk(t, a, "Enough.")
				var refused []int
				for i := range test.calls {
					if text := a.History[2+2*i].Content.Text(); strings.Contains(text, "equal calls with equal results") {
						assert.Equal(t, text, fmt.Sprintf("Error: not run: limit of %d equal calls with equal results reached; "+
							"use the result that you have, or change something first", cmp.Or(test.max, 10)))
						refused = append(refused, i)
					}
				}
				assert.DeepEqual(t, refused, test.refused)
			}
			agentHistory(t, a)
		})
	}
}

// A function whose server comes back while the model is told that it is away: Missing is asked once for each call.
func TestAgentMissing(t *testing.T) {
	a, _ := newAgentTest(t, agentTools{"echo": agentEcho},
		modelCalls(agentCall("away", 1), agentCall("nix", 2)), modelText("Well."))
	away := errors.New("the server is not running")
	a.Missing = func(name string) (err error) {
		if name == "away" {
			err, away = away, nil
		}
		return err
	}
	agentAsk(t, a, "Well.")
	assert.Equal(t, a.History[2].Content.Text(), "Error: the server is not running")
	assert.Equal(t, a.History[3].Content.Text(), `Error: there is no tool "nix"; the tools are: echo`)
	agentHistory(t, a)
}

// Who has said no to a call three times is not asked about it again in this question.
func TestAgentRefusals(t *testing.T) {
	a, server := newAgentTest(t, agentTools{"echo": agentEcho, "other": agentEcho})
	n, asked := 0, 0
	server.Rest = modelFunc(func(*modelRequest) modelReply {
		if n++; n%6 == 0 {
			return modelText("Well.")
		}
		return modelCalls(modelCall("aaaaaaaa1", "echo", "{}"), modelCall("aaaaaaaa2", "other", "{}"))
	})
	a.Decide = func(_ context.Context, call ToolCall) Decision {
		if call.Name == "other" {
			return Decision{}
		}
		asked++
		return Decision{Refuse, "no"}
	}
	agentAsk(t, a, "Well.")
	assert.Equal(t, asked, 3)
	assert.Equal(t, a.History[len(a.History)-3].Content.Text(), "Error: the call was refused 3 times: do without it")
	agentAsk(t, a, "Well.")
	assert.Equal(t, asked, 6)
	agentHistory(t, a)
}

// An answer that is not whole is an error. What came of it is returned and stays in the history, but no call beside it
// runs: the arguments may be what was left of others.
func TestAgentAnswerNotWhole(t *testing.T) {
	echo := []ToolCall{agentCall("echo", 1), agentCall("echo", 2)}
	broken := func(body string) modelReply {
		return modelFailure{Status: 200, Header: map[string]string{"Content-Type": chatSSE}, Body: chatToken + body}
	}
	for _, test := range []struct {
		name   string
		reply  modelReply
		text   string
		finish string
		err    string
	}{
		{"length", modelAnswer{Content: "So far", Finish: "length"}, "So far", "length", ErrCutOff.Error()},
		{"model length", modelAnswer{Content: "So far", Finish: "model_length"}, "So far", "model_length", ErrCutOff.Error()},
		{"nothing but length", modelAnswer{Content: "", Finish: "length"}, "", "length", ErrCutOff.Error()},
		{"error", modelAnswer{Content: "So far", Calls: echo, Finish: "error"}, "So far", "error", `finish_reason "error"`},
		{"calls alone", modelAnswer{Content: "", Calls: echo, Finish: "error"}, "", "error", `finish_reason "error"`},
		{"event", broken(`data: {"message":"overloaded"}` + "\n\ndata: [DONE]\n\n"), "tok", "", "200 OK: overloaded"},
		{"break", broken(""), "tok", "", "unexpected EOF"},
	} {
		for _, stream := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s stream=%v", test.name, stream), func(t *testing.T) {
				a, _ := newAgentTest(t, agentTools{"echo": agentEcho}, test.reply)
				streamed := ""
				if stream {
					a.OnText = func(text string) { streamed += text }
				}
				var ended []Event
				a.Observe = func(e Event) { ended = append(ended, e) }
				answer, err := a.Chat(t.Context(), "Why?")
				assert.ErrorContains(t, err, test.err)
				assert.Equal(t, answer, test.text)
				if stream {
					assert.Equal(t, streamed, test.text)
				}
				assert.Equal(t, len(ended), 1)
				assert.Equal(t, ended[0].Response.FinishReason, test.finish)
				assert.Equal(t, ended[0].Err, err)
				want := "user: Why?\nassistant: " + test.text + "\n\n" + cutOff
				if test.text == "" {
					want = ""
				}
				assert.Equal(t, agentHistory(t, a), want)
			})
		}
	}
}

// Every way in which a model request can fail, at the first turn and after calls.
func TestAgentModelError(t *testing.T) {
	for name, failure := range map[string]modelReply{
		"401": modelUnauthorized(), "too long": modelContextTooLong(), "page": modelPage(502), "hang up": modelHangUp{},
		"429": modelRateLimited("1"), "nonsense": modelFailure{Status: 200, Body: "{}"},
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
					_, err := a.Chat(t.Context(), "Lost?")
					assert.Assert(t, err != nil)
					assert.Equal(t, agentHistory(t, a), "user: Why?\nassistant: Hello.", "nothing came of the question")

					server.script = []modelReply{modelCalls(agentCall("echo", 1))}
					_, err = a.Chat(t.Context(), "Kept?")
					assert.Assert(t, err != nil)
					assert.Equal(t, agentHistory(t, a), "user: Why?\nassistant: Hello.\nuser: Kept?\n"+
						"assistant: <echo {\"n\":1}>\ntool: {\"n\":1}\nassistant: "+cutOff)
				})
			})
		}
	}
}

// Whole questions with what they leave in the history, wherever ctx ends.
func TestAgentHistory(t *testing.T) {
	const (
		asked       = "user: Why?\n"
		cutLine     = "assistant: " + cutOff
		interrupted = "tool: Error: the question was interrupted before this call had a result\n"
		canceled    = "tool: Error: context canceled\n"
		cutCall     = "tool: Error: not run: the message was cut off at its length limit; make fewer or shorter calls\n"
	)
	echo := func(n int) ToolCall { return agentCall("echo", n) }
	thinking := []any{map[string]any{"type": "thinking", "thinking": []any{}}}
	var cancel context.CancelFunc // of the question that is asked
	late := modelFunc(func(*modelRequest) modelReply { cancel(); return modelText("late") })
	forced := modelFunc(func(r *modelRequest) modelReply {
		return modelText(map[string]string{"none": "Oh, yes."}[r.ToolChoice])
	})
	cutCalls := func(finish string, calls ...ToolCall) modelReply {
		return modelAnswer{Content: "", Calls: calls, Finish: finish}
	}
	var hangs []ToolCall
	for i := range 40 {
		hangs = append(hangs, modelCall(fmt.Sprintf("aaaaaaa%02d", i), "hang", `{}`))
	}
	// on cancels at the events that are so.
	on := func(is func(Event) bool) func(*Agent) {
		return func(a *Agent) {
			a.Observe = func(e Event) {
				if is(e) {
					cancel()
				}
			}
		}
	}
	started := func(e Event) bool { return e.Kind == CallStarted }
	for _, test := range []struct {
		name   string
		script []modelReply
		setup  func(*Agent)
		answer string
		err    error
		want   string
	}{
		{"no tools", []modelReply{modelCalls(echo(1)), modelText("No problem.")},
			func(a *Agent) { a.Tools, a.System = nil, "" }, "No problem.", nil,
			asked + "assistant: <echo {\"n\":1}>\ntool: Error: there is no tool \"echo\"; the tools are: none\n" +
				"assistant: No problem."},
		{"cut off in whole arguments", []modelReply{cutCalls("length", echo(1), echo(2)), modelText("Sorry.")},
			nil, "Sorry.", nil,
			asked + "assistant: <echo {\"n\":1}><echo {\"n\":2}>\n" + cutCall + cutCall + "assistant: Sorry."},
		{"cut off in arguments",
			[]modelReply{cutCalls("model_length", modelCall("aaaaaaaa1", "echo", `{"n":`)), modelText("Sorry.")},
			nil, "Sorry.", nil, asked + "assistant: <echo {}>\n" + cutCall + "assistant: Sorry."},
		{"empty once", []modelReply{modelCalls(echo(1)), modelText(""), forced}, nil, "Oh, yes.", nil,
			asked + "assistant: <echo {\"n\":1}>\ntool: {\"n\":1}\nassistant: Oh, yes."},
		{"empty twice", []modelReply{modelAnswer{Content: thinking}, modelAnswer{Content: nil}}, nil, "", ErrNoAnswer, ""},
		{"ended with the answer there", []modelReply{modelText("Just in time.")},
			on(func(e Event) bool { return e.Kind == TurnEnded }), "Just in time.", nil, asked + "assistant: Just in time."},

		{"ended before", nil, func(*Agent) { cancel() }, "", context.Canceled, ""},
		{"in the first model request", []modelReply{late}, nil, "", context.Canceled, ""},
		{"in the second model request", []modelReply{modelCalls(echo(1)), late}, nil, "", context.Canceled,
			asked + "assistant: <echo {\"n\":1}>\ntool: {\"n\":1}\n" + cutLine},
		{"in a stream", []modelReply{modelText("one two three")}, func(a *Agent) {
			a.OnText = func(text string) {
				if text == "two " {
					cancel()
				}
			}
		}, "one two ", context.Canceled, asked + "assistant: one two \n\n" + cutOff},
		{"waiting to try again", []modelReply{modelCalls(echo(1)), modelRateLimited("60")},
			func(a *Agent) { a.Model.(*Mistral).OnRetry = func(error, time.Duration) { cancel() } }, "", context.Canceled,
			asked + "assistant: <echo {\"n\":1}>\ntool: {\"n\":1}\n" + cutLine},
		{"while tools run, one of which has ended", []modelReply{modelCalls(hangs[0], echo(1))},
			on(func(e Event) bool { return e.Kind == CallEnded && e.Call.Name == "echo" }), "", context.Canceled,
			asked + "assistant: <hang {}><echo {\"n\":1}>\n" + canceled + "tool: {\"n\":1}\n" + cutLine},
		{"before the second tool starts", []modelReply{modelCalls(hangs[0], echo(1))}, on(started), "", context.Canceled,
			asked + "assistant: <hang {}><echo {\"n\":1}>\n" + canceled + interrupted + cutLine},
		{"at the question about the second call",
			[]modelReply{modelCalls(echo(1), echo(2), echo(3), modelCall("aaaaaaaa4", "nix", `{}`))},
			func(a *Agent) {
				a.Decide = func(ctx context.Context, call ToolCall) Decision {
					if assert.Check(t, ctx.Err() == nil, "asked after the end"); call.ID == "aaaaaa002" {
						cancel()
					}
					return Decision{}
				}
			}, "", context.Canceled,
			asked + "assistant: <echo {\"n\":1}><echo {\"n\":2}><echo {\"n\":3}><nix {}>\n" + strings.Repeat(interrupted, 3) +
				"tool: Error: there is no tool \"nix\"; the tools are: echo, hang\n" + cutLine},
		{"in a tool after streamed text", []modelReply{modelAnswer{Content: "Let me see.", Calls: hangs[:1]}},
			func(a *Agent) { a.OnText = func(string) {}; on(started)(a) }, "", context.Canceled,
			asked + "assistant: Let me see.<hang {}>\n" + canceled + cutLine},
		{"with 40 calls of which 16 run", []modelReply{modelCalls(hangs...)}, func(a *Agent) {
			a.MaxRepeats = 40
			running := 0
			on(func(e Event) bool {
				running += map[EventKind]int{CallStarted: 1}[e.Kind]
				return running == maxParallel
			})(a)
		}, "", context.Canceled, asked + "assistant: " + strings.Repeat("<hang {}>", 40) + "\n" +
			strings.Repeat(canceled, 16) + strings.Repeat(interrupted, 24) + cutLine},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var ctx context.Context
				ctx, cancel = context.WithCancel(t.Context())
				defer cancel()
				a, _ := newAgentTest(t, agentTools{"echo": agentEcho, "hang": agentHang}, test.script...)
				if test.setup != nil {
					test.setup(a)
				}
				began := time.Now()
				answer, err := a.Chat(ctx, "Why?")
				assert.Equal(t, time.Since(began), time.Duration(0))
				assert.Equal(t, answer, test.answer)
				assert.ErrorIs(t, err, test.err)
				assert.Equal(t, agentHistory(t, a), test.want)
			})
		})
	}
}

// ownModel is a Model that gives one answer after the other, as its author wrote them.
type ownModel []*ChatResponse

func (m *ownModel) Complete(context.Context, *ChatRequest, func(string)) (*ChatResponse, error) {
	answer := (*m)[0]
	*m = (*m)[1:]
	return answer, nil
}

// A Model of one's own may leave out the role and the ids of calls, or use an id twice. Its answers are not changed.
func TestAgentOwnModel(t *testing.T) {
	three := agentCall("echo", 3)
	calls := []ToolCall{{Name: "echo"}, {Name: "echo", Arguments: `{"n":2}`}, three, three}
	called := &ChatResponse{Message: ChatMessage{ToolCalls: calls}}
	said := &ChatResponse{Message: ChatMessage{Role: "model", Content: TextContent("Fine.")}}
	a := &Agent{Model: &ownModel{called, said}, Tools: agentTools{"echo": agentEcho}}
	agentAsk(t, a, "Fine.")
	made, answered := make(map[string]bool), make(map[string]bool)
	for _, m := range a.History {
		for _, call := range m.ToolCalls {
			made[call.ID] = true
		}
		if m.Role == "tool" {
			answered[m.ToolCallID] = true
		}
	}
	assert.Equal(t, len(made), 4)
	assert.Assert(t, !made[""])
	assert.DeepEqual(t, answered, made)
	assert.Equal(t, agentHistory(t, a), "user: Why?\n"+
		"assistant: <echo {}><echo {\"n\":2}><echo {\"n\":3}><echo {\"n\":3}>\n"+
		"tool: {}\ntool: {\"n\":2}\ntool: {\"n\":3}\ntool: {\"n\":3}\nassistant: Fine.")
	assert.Equal(t, calls[0].ID+called.Message.Role, "")
}

// What a Model of one's own gets wrong is an error that says so, and the question is taken out.
func TestAgentOwnModelWrong(t *testing.T) {
	for want, answer := range map[string]*ChatResponse{
		"the model returned neither an answer nor an error": nil,
		"the Content of the model's message is not JSON: make it of a text with TextContent": {
			Message: ChatMessage{Content: Content("Fine."), ToolCalls: []ToolCall{agentCall("echo", 1)}}},
	} {
		a := &Agent{Model: &ownModel{answer}, Tools: agentTools{"echo": agentEcho}}
		_, err := a.Chat(t.Context(), "Why?")
		assert.Error(t, err, want)
		assert.Equal(t, len(a.History), 0)
	}
}

// A callback's panic is its owner's; Chat leaves a valid history behind and no goroutine (synctest looks for those).
func TestAgentCallbackPanics(t *testing.T) {
	for _, at := range []string{"decide", "start", "end", "turn", "text"} {
		synctest.Test(t, func(t *testing.T) {
			a, _ := newAgentTest(t, agentTools{"echo": agentEcho, "hang": agentHang}, modelAnswer{Content: "Let me see.",
				Calls: []ToolCall{agentCall("hang", 1), agentCall("echo", 2), agentCall("hang", 3)}})
			fail := func(when bool) {
				if when {
					panic(at)
				}
			}
			a.Decide = func(context.Context, ToolCall) Decision { fail(at == "decide"); return Decision{} }
			a.OnText = func(string) { fail(at == "text") }
			a.Observe = func(e Event) {
				fail(at == "turn" && e.Kind == TurnEnded || at == "end" && e.Kind == CallEnded)
				fail(at == "start" && e.Kind == CallStarted && e.Call.Name == "echo")
			}
			func() {
				defer func() { assert.Equal(t, recover(), at) }()
				_, _ = a.Chat(t.Context(), "Why?")
			}()
			agentHistory(t, a)
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
	tools := &agentFlaky{agentTools: agentTools{"f1": agentEcho}, fail: []bool{true, false, true, false, false}}
	one, two := modelCalls(agentCall("f1", 1)), modelCalls(agentCall("f1", 2))
	a, server := newAgentTest(t, tools, one, two, modelText("Good."))
	_, err := a.Chat(t.Context(), "Why?")
	assert.Error(t, err, "list tools: no list")
	assert.Equal(t, len(a.History), 0)
	failed := 0
	a.Observe = func(e Event) {
		if e.Kind == ToolsFailed {
			failed++
		}
	}
	agentAsk(t, a, "Good.")
	assert.Equal(t, failed, 1)
	var offered []int
	for _, r := range server.Requests() {
		offered = append(offered, len(r.Tools))
	}
	assert.DeepEqual(t, offered, []int{2, 2, 4})
	a.Tools = agentTools{}
	agentHistory(t, a)
}

// The caller is asked in call order, one call at a time, before anything runs, and told in the order of what happens.
func TestAgentEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		after := func(d time.Duration) func(context.Context, string) (ToolOutput, error) {
			return func(context.Context, string) (ToolOutput, error) {
				time.Sleep(d)
				return ToolOutput{Text: d.String()}, nil
			}
		}
		tools := agentTools{"one": after(time.Second), "two": after(2 * time.Second)}
		calls := modelCalls(agentCall("two", 1), agentCall("no", 2), agentCall("one", 3), agentCall("one", 4))
		a, _ := newAgentTest(t, tools, calls, modelRateLimited("1"), modelText("There."))
		var log []string // appended to without a lock: the race detector sees it if two callbacks ever run at once
		a.Decide = func(_ context.Context, call ToolCall) Decision {
			log = append(log, "decide "+call.Arguments)
			if call.Arguments == `{"n":4}` {
				return Decision{Answer, "my own"}
			}
			return Decision{}
		}
		a.Model.(*Mistral).OnRetry = func(_ error, wait time.Duration) { log = append(log, fmt.Sprint("retry after ", wait)) }
		a.Observe = func(e Event) {
			line := ""
			switch r := e.Response; e.Kind {
			case TurnEnded:
				line = fmt.Sprintf("model %s %d calls", r.FinishReason, len(r.Message.ToolCalls))
			case CallStarted:
				line = "start " + e.Call.Arguments
			case CallEnded:
				line = fmt.Sprintf("end %s %v %q %v", e.Call.Arguments, e.Took, e.Output.Text, e.Err)
			}
			log = append(log, line)
		}
		agentAsk(t, a, "There.")
		assert.Equal(t, strings.Join(log, "\n"), `model tool_calls 4 calls
decide {"n":1}
end {"n":2} 0s "" there is no tool "no"; the tools are: one, two
decide {"n":3}
decide {"n":4}
end {"n":4} 0s "my own" <nil>
start {"n":1}
start {"n":3}
end {"n":3} 1s "1s" <nil>
end {"n":1} 2s "2s" <nil>
retry after 1s
model stop 0 calls`)
		agentHistory(t, a)
	})
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
		assert.Equal(t, Clip(test.text, test.limit), test.want)
	}
}

func FuzzParseArguments(f *testing.F) {
	for _, seed := range []string{
		``, `null`, `{}`, `{"b":1e400,"a":{"d":[],"c":"<\ud800>"}}`, `{} {}`, `[1]`, `{"a":1,"a":2}`, "\xff",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		object, key, err := ParseArguments(text)
		if err != nil {
			assert.Equal(t, object, "")
			return
		}
		assert.Assert(t, json.Valid([]byte(object)) && strings.HasPrefix(object, "{"), "%q", object)
		again, sameKey, err := ParseArguments(key)
		assert.NilError(t, err)
		assert.Equal(t, again, key)
		assert.Equal(t, sameKey, key)
	})
}

// The images of a question and of its calls stay in the history, which can be saved and read, and leave it with a
// question of which nothing came.
func TestAgentImages(t *testing.T) {
	png, gif := "data:image/png;base64,"+scriptPNG, "data:image/gif;base64,"+scriptGIF
	tools := agentTools{"echo": func(_ context.Context, arguments string) (ToolOutput, error) {
		return ToolOutput{Text: "[image 1]", Images: []string{gif}, IsError: arguments == `{"n":2}`}, nil
	}}
	a, server := newAgentTest(t, tools, modelCalls(agentCall("echo", 1), agentCall("echo", 2)), modelText("A dot."),
		modelUnauthorized())
	a.Model = agentEyes{a.Model.(*Mistral)}
	answer, err := a.Chat(t.Context(), "What is it?", png)
	assert.NilError(t, err)
	assert.Equal(t, answer, "A dot.")
	assert.Equal(t, strings.Count(string(server.Requests()[1].Body), "image_url\":{"), 3)
	agentHistory(t, a)
	text, err := json.Marshal(a.History)
	assert.NilError(t, err)
	var read []ChatMessage
	assert.NilError(t, json.Unmarshal(text, &read))
	assert.DeepEqual(t, read, a.History)
	assert.DeepEqual(t, [][]string{read[0].Images, read[1].Images, read[2].Images, read[3].Images, read[4].Images},
		[][]string{{png}, nil, {gif}, {gif}, nil})
	_, err = a.Chat(t.Context(), "And now?", gif)
	assert.ErrorContains(t, err, "401")
	assert.DeepEqual(t, a.History, read)
}
