// main_ask.go - the agent of the command line: a question, what is told of it, and who decides on its calls.
// Needs: Go 1.25, json.go, rpc.go, transport_stdio.go, transport_stdio_unix.go, transport_stdio_windows.go, transport_http_events.go, transport_http.go, transport_http_params.go, transport_sse.go, mcp_types.go, elicitation.go, mcp.go, mcp_input.go, mcp_lists.go, mcp_handshake.go, mcp_repair.go, mistral.go, mcp_model.go, sampling.go, agent.go, connect.go, host_server.go, host.go, config.go, mask.go, search.go, corpus.go, library_tools.go, library.go, library_http_answer.go, library_http.go, offline.go, terminal_unix.go, terminal_other.go, terminal_screen.go, terminal.go, terminal_view.go, session.go, main.go, main_host.go, main_log.go, main_chat.go, main_commands.go, main_server.go.
// SPDX-License-Identifier: 0BSD

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"slices"
	"strings"
)

// ask is a question to the model.
func (p *program) ask(ctx context.Context, question string) error {
	chat := question == "" && isTerminal(os.Stdin)
	if chat && p.json {
		return usageError("-json goes with a question: give it as an argument or on stdin")
	}
	if question == "" && !chat {
		text, err := readAll(ctx, os.Stdin)
		if err != nil {
			return err
		}
		if question = strings.TrimSpace(text); question == "" {
			return usageError("the question on stdin is empty")
		}
	}
	if _, err := p.mistral().target(); err != nil { // rather than after the servers' start
		return usageError("MISTRAL_BASE_URL, MISTRAL_API_KEY: %w", err)
	}
	session, err := p.resume()
	if err != nil {
		return err
	}
	host, done, err := p.host(ctx)
	if err != nil {
		return err
	}
	defer done()
	if p.key == "" && p.baseURL == "" {
		p.note("no MISTRAL_API_KEY: the built-in stand-in answers, which is no language model")
	}
	if chat {
		return p.chat(ctx, host)
	}
	view := p.newView(host)
	agent, report := p.newAgent(host, view)
	agent.History, p.report = session.History, report
	if p.screen.Live && isTerminal(os.Stdout) && !p.json {
		agent.OnText = view.Text
	}
	view.Begin(agent.Model.Model)
	answer, err := agent.Chat(ctx, question)
	view.End()
	report.Usage = agent.Usage
	saved := p.keep(session, agent)
	if err != nil {
		return errors.Join(p.modelError(err), saved)
	}
	if report.Answer = answer; p.json {
		return cmp.Or(saved, p.print(report))
	}
	if agent.OnText == nil { // else it is there already
		err = p.show(answer)
	}
	tokens := ""
	if u := agent.Usage; u != (Usage{}) {
		tokens = fmt.Sprintf(", %d tokens (%d in, %d out)", u.TotalTokens, u.PromptTokens, u.CompletionTokens)
	}
	p.note("%s: %s, %s%s", report.Model, plural(report.Turns, "turn"), plural(len(report.Calls), "call"), tokens)
	return cmp.Or(err, saved)
}

// modelError gives an error of Agent.Chat its exit status.
func (p *program) modelError(err error) error {
	var api *APIError
	var failed *exitError
	switch {
	case errors.As(err, &failed):
		return err
	case errors.As(err, &api) && (api.Status == 401 || api.Status == 403) && p.key == "":
		return &exitError{exitModel, fmt.Errorf("%w: set MISTRAL_API_KEY", err)}
	}
	return &exitError{exitModel, err}
}

// newAgent is the agent of a conversation, and what it will have done. view shows that.
func (p *program) newAgent(host *Host, view *View) (*Agent, *report) {
	model := p.mistral()
	report := &report{Model: model.Model, Calls: []callReport{}}
	agent := &Agent{
		Model:    model,
		Tools:    toolbox{p, host, view},
		System:   p.system,
		MaxTurns: p.maxTurns,
		Decide:   func(ctx context.Context, call ToolCall) Decision { return p.decide(ctx, host, call) },
		Observe: func(e Event) {
			report.add(e, host, p.redact)
			view.Observe(e)
		},
	}
	if instructions := host.Instructions(); instructions != "" {
		agent.System += "\n\n" + instructions
	}
	return agent, report
}

// resume is the conversation that -session continues: an empty one if there is no such file yet.
func (p *program) resume() (*Session, error) {
	if p.session == "" {
		return new(Session), nil
	}
	session, err := LoadSession(p.session)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return new(Session), nil
	case err != nil:
		return nil, fmt.Errorf("-session: %w", err)
	}
	return session, nil
}

// keep writes the agent's conversation to -session, if it is another than that had.
func (p *program) keep(session *Session, agent *Agent) error {
	if p.session == "" || slices.EqualFunc(session.History, agent.History, func(a, b Message) bool { return string(a.Content) == string(b.Content) }) {
		return nil
	}
	session.Model, session.History, session.Redact = agent.Model.Model, agent.History, p.redact
	session.Usage.PromptTokens += agent.Usage.PromptTokens
	session.Usage.CompletionTokens += agent.Usage.CompletionTokens
	session.Usage.TotalTokens += agent.Usage.TotalTokens
	if err := SaveSession(p.session, session); err != nil {
		return fmt.Errorf("-session: %w", err)
	}
	return nil
}

// report is what ask -json prints.
type report struct {
	Answer string       `json:"answer"`
	Calls  []callReport `json:"calls"` // in the order in which they ended
	Turns  int          `json:"turns"`
	Usage  Usage        `json:"usage"`
	Model  string       `json:"model"`
}

type callReport struct {
	Name      string          `json:"name"`             // as the model knows it
	Server    string          `json:"server,omitempty"` // none if there is no such tool
	Arguments json.RawMessage `json:"arguments"`
	Bytes     int             `json:"bytes"` // of the result
	Seconds   float64         `json:"seconds"`
	Error     string          `json:"error,omitempty"`
}

// failed is what -json prints of an error: also what had been done until then, if it was a question.
type failed struct {
	Error string `json:"error"`
	*report
}

// add takes down what happened.
func (r *report) add(e Event, host *Host, redact func(string) string) {
	switch e.Kind {
	case TurnEnded:
		r.Turns++
		r.Model = cmp.Or(e.Response.Model, r.Model)
	case CallEnded:
		call := callReport{Name: e.Call.Name, Arguments: json.RawMessage(e.Call.Arguments), Bytes: e.Bytes, Seconds: e.Took.Seconds()}
		if tool, ok := host.Tool(call.Name); ok {
			call.Server = tool.Server
		}
		if e.Err != nil {
			call.Error = redact(e.Err.Error())
		}
		r.Calls = append(r.Calls, call)
	}
}

// toolbox is the host as the agent sees it.
type toolbox struct {
	*program
	host *Host
	view *View
}

func (t toolbox) Functions(ctx context.Context) ([]Function, error) {
	functions, err := t.host.Functions(ctx)
	if err != nil {
		return nil, &exitError{exitStart, err} // the servers have failed, not the model
	}
	t.tellAbsent(t.host.Status())
	return functions, nil
}

func (t toolbox) Call(ctx context.Context, call ToolCall) (ToolOutput, error) {
	result, err := t.host.CallTool(ctx, call.Name, json.RawMessage(call.Arguments), t.view.Progress(call))
	if err != nil {
		return ToolOutput{}, err
	}
	t.view.Result(call, result)
	return ToolOutput{Text: ModelText(result), IsError: result.IsError}, nil
}

// decide lets the user decide on a call. The built-in library only reads what everybody may.
func (p *program) decide(ctx context.Context, host *Host, call ToolCall) Decision {
	tool, _ := host.Tool(call.Name)
	switch {
	case p.builtIn || p.approve == "always":
		return Decision{}
	case p.approve == "never":
		return Decision{Refuse, "the user allows no calls"}
	case slices.ContainsFunc(p.servers, func(s ServerConfig) bool { return s.Name == tool.Server && s.Approves(tool.Tool.Name) }):
		return Decision{}
	case !p.terminal.Interactive():
		p.approval.Do(func() {
			fmt.Fprintln(p.stderr, "calls are refused, as nobody can be asked without a terminal; MCP_APPROVE=always allows them")
		})
		return Decision{Refuse, "nobody is there to allow it"}
	}
	return p.terminal.Approve(ctx, tool.Server, tool.Tool.Name, call)
}

// elicit lets the user answer a question of a server.
func (p *program) elicit(ctx context.Context, s *ServerConfig, r *ElicitRequest) (*ElicitResult, error) {
	if !p.terminal.Interactive() {
		p.note("%s asks %q: declined, as nobody can be asked without a terminal", p.theServer(s), cut(r.Message, 160))
		return &ElicitResult{Action: "decline"}, nil
	}
	return p.terminal.Elicit(ctx, p.theServer(s), r)
}

// sample lets a server use the model, if the user allows it. It is not offered where nobody can.
func (p *program) sample(ctx context.Context, s *ServerConfig, r *SampleRequest) (*SampleResult, error) {
	switch {
	case p.approve == "always":
		p.note("%s asks the model", p.theServer(s))
	case !p.terminal.ApproveSample(ctx, p.theServer(s), r):
		return nil, &Error{Code: -1, Message: "the user said no"} // the code: MCP 2025-11-25, client, sampling, error handling
	}
	return SampleWith(p.mistral())(ctx, r)
}

// theServer is how a server is spoken of.
func (p *program) theServer(s *ServerConfig) string {
	if len(p.servers) > 1 {
		return "the server " + s.Name
	}
	return "the server"
}

// mistral is the model that was chosen.
func (p *program) mistral() *Mistral {
	m := &Mistral{BaseURL: p.baseURL, Key: p.key, Model: p.model, OnRetry: func(r Retry) {
		p.note("%v; trying again in %s", r.Err, round(r.Wait))
	}}
	if p.key == "" && p.baseURL == "" {
		m.Client, m.Model = &http.Client{Transport: Offline{}}, "offline"
	}
	return m
}
