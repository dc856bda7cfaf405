// main_ask.go - the agent of the command line: a question, its report, and who decides on its calls.
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
	"time"
)

// ask is a question to the model.
func (p *program) ask(ctx context.Context, question string) error {
	chat := question == "" && p.terminal.Interactive()
	if p.output == "-" || chat && (p.json || p.output != "") {
		return usageError("-o takes a file; it and -json go with a question: give that as an argument or on stdin")
	}
	if !chat && (question == "" || isPiped()) {
		text, err := p.readAll(ctx, os.Stdin)
		if err != nil {
			return err
		}
		if question = strings.TrimSpace(question + "\n\n" + strings.Trim(text, "\r\n")); question == "" {
			return usageError("the question on stdin is empty")
		}
	}
	model := p.mistral()
	if _, err := model.Endpoint(); err != nil { // before the servers are started
		return usageError("MISTRAL_BASE_URL, MISTRAL_API_KEY: %w", err)
	}
	p.chatting = chat
	session, release, err := p.resume(ctx)
	if err != nil {
		return err
	}
	defer release()
	host, done, err := p.host(ctx)
	if err != nil {
		return err
	}
	defer done()
	if !chat {
		if err := p.startServers(ctx, host); err != nil {
			return err
		}
	}
	if model.Model == offline {
		p.note("no MISTRAL_API_KEY: the built-in stand-in answers, which is no language model")
	}
	if chat {
		return p.chat(ctx, host, session)
	}
	view := p.newView(host)
	agent, report := p.newAgent(host, view)
	agent.History, p.report = session.History, report
	if p.screen.Live && p.screen.Answers && !p.json {
		agent.OnText = view.Text
	}
	view.Begin(model.Model)
	answer, err := agent.Chat(ctx, question)
	view.End()
	report.Answer, report.Usage = answer, agent.Usage
	if p.output != "" && p.saved == 0 {
		p.unsaved = exitWith(exitTool, "-o: no result has an image, or other bytes")
	}
	saved := cmp.Or(p.keep(session, agent), p.unsaved)
	if err == nil && p.json {
		return cmp.Or(saved, p.printJSON(report))
	}
	if agent.OnText == nil && answer != "" && !p.json { // else it was printed as it came
		saved = cmp.Or(p.screen.Print(Look{Exact: true}, answer+"\n"), saved)
	}
	if err != nil {
		if slices.Contains([]string{"", "stop", "tool_calls"}, report.FinishReason) { // it is an earlier answer's
			report.FinishReason = "error"
		}
		return errors.Join(p.agentError(err), saved)
	}
	turns, calls := Plural(report.Turns, "turn"), Plural(len(report.Calls), "call")
	if agent.Usage != (Usage{}) { // the server counted them
		calls += ", " + tokens(agent.Usage)
	}
	p.note("%s: %s, %s", report.Model, turns, calls)
	return saved
}

func tokens(u Usage) string {
	return fmt.Sprintf("%d tokens (%d in, %d out)", u.TotalTokens, u.PromptTokens, u.CompletionTokens)
}

// agentError gives an error of Agent.Chat its exit status, if it has none: the servers can have failed, too.
func (p *program) agentError(err error) error {
	if errors.As(err, new(*exitError)) {
		return err
	}
	return &exitError{exitModel, p.explain(err)}
}

// newAgent returns the agent of a conversation, and the report of its calls. view shows them.
func (p *program) newAgent(host *Host, view *View) (*Agent, *report) {
	report := &report{Model: p.mistral().Model, Calls: []callReport{}}
	host.OnProgress = view.Progress
	agent := &Agent{
		Model:      chosen{p},
		Tools:      toolbox{p, host},
		System:     p.systemPrompt(host),
		MaxTurns:   p.maxTurns,
		MaxRepeats: p.maxRepeats,
		MaxResult:  p.maxResult,
		Missing:    func(name string) error { return p.masked(host.Missing(name)) },
		Decide:     func(ctx context.Context, call ToolCall) Decision { return p.decide(ctx, host, call) },
		Observe: func(e Event) {
			report.add(e, host)
			view.Observe(e)
		},
	}
	return agent, report
}

// systemPrompt is the system prompt with what the servers that have been started say of themselves.
func (p *program) systemPrompt(host *Host) string {
	return strings.TrimSpace(p.system + "\n\n" + host.Instructions())
}

const sessionWait = 5 * time.Minute // for a session that another process has locked

// resume locks and returns the conversation of -session, an empty one if there is no such file yet. It waits for
// another program that has locked it.
func (p *program) resume(ctx context.Context) (session *Session, release func(), err error) {
	if p.session == "" {
		return new(Session), func() {}, nil
	}
	note := time.AfterFunc(moment, func() {
		p.note("waiting for another mcpagent, which has the session %s open", p.session)
	})
	defer note.Stop()
	waiting, cancel := context.WithTimeout(ctx, sessionWait)
	defer cancel()
	if release, err = LockSession(waiting, p.session); err != nil {
		return nil, nil, cmp.Or(context.Cause(ctx), fmt.Errorf("-session: %w", err))
	}
	session, err = LoadSession(p.session)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return new(Session), release, nil
	case err != nil:
		release()
		return nil, nil, fmt.Errorf("-session: %w", err)
	}
	return session, release, nil
}

// keep puts the agent's conversation into the session, and that into -session, unless the file has it already.
func (p *program) keep(session *Session, agent *Agent) error {
	same := func(a, b ChatMessage) bool { return string(a.Content) == string(b.Content) }
	unchanged := p.session == "" || slices.EqualFunc(session.History, agent.History, same)
	session.Model, session.History = p.mistral().Model, agent.History
	session.Usage.Add(agent.Usage)
	if unchanged {
		return nil
	}
	if err := SaveSession(p.session, session); err != nil {
		return fmt.Errorf("-session: %w", err)
	}
	return nil
}

// report is what ask -json prints.
type report struct {
	Answer       string       `json:"answer"`
	FinishReason string       `json:"finish_reason"` // of the answer, as the API gave it; error if it gave none
	Calls        []callReport `json:"calls"`         // in the order in which they ended
	Turns        int          `json:"turns"`
	Usage        Usage        `json:"usage"`
	Model        string       `json:"model"`

	context int // tokens of the last request and its answer
}

type callReport struct {
	Name      string          `json:"name"`             // as the model knows it
	Server    string          `json:"server,omitempty"` // none if there is no such tool
	Arguments json.RawMessage `json:"arguments"`
	Bytes     int             `json:"bytes"` // of the result
	Seconds   float64         `json:"seconds"`
	Error     string          `json:"error,omitempty"`
}

// failed is what -json prints of an error, with the report of the question if there was one.
type failed struct {
	Error string `json:"error"`
	*report
}

// add adds what happened.
func (r *report) add(e Event, host *Host) {
	switch e.Kind {
	case TurnEnded:
		r.Turns++
		r.context = e.Response.Usage.TotalTokens
		r.Model, r.FinishReason = cmp.Or(e.Response.Model, r.Model), e.Response.FinishReason
	case CallEnded:
		tool, _ := host.Tool(e.Call.Name)
		call := callReport{Name: e.Call.Name, Server: tool.Server, Arguments: json.RawMessage(e.Call.Arguments),
			Bytes: len(e.Output.Text), Seconds: e.Took.Seconds()}
		if e.Err != nil {
			call.Error = e.Err.Error()
		}
		r.Calls = append(r.Calls, call)
	}
}

// toolbox is the host as the agent sees it: logins are waited for, the state of the servers is told,
// and errors are explained and without secrets.
type toolbox struct {
	*program
	host *Host
}

func (t toolbox) Functions(ctx context.Context) ([]Function, error) {
	var functions []Function
	err := t.withLogins(ctx, t.host, func() (err error) { functions, err = t.host.Functions(ctx); return err })
	if err != nil {
		return nil, &exitError{exitStart, t.explain(err)} // the servers have failed, not the model
	}
	t.tell(t.host.Status())
	return functions, nil
}

func (t toolbox) Call(ctx context.Context, call ToolCall) (ToolOutput, error) {
	output, err := t.host.Call(ctx, call)
	return output, t.masked(t.explain(err))
}

// masked returns an error without secrets, as the model reads it. (A tool's own text goes to the model as it is: what
// the model reads it may write back.)
func (p *program) masked(err error) error {
	if err == nil {
		return nil
	}
	return errors.New(p.secrets.Mask(err.Error()))
}

// decide lets the user decide on a call. The built-in library only reads what is public.
func (p *program) decide(ctx context.Context, host *Host, call ToolCall) Decision {
	tool, _ := host.Tool(call.Name)
	switch {
	case p.builtIn || p.approve == "always":
		return Decision{}
	case p.approve == "never":
		return Decision{Refuse, "the user allows no calls"}
	case slices.ContainsFunc(p.servers, func(s Server) bool {
		return s.Name == tool.Server && s.Approves(tool.Tool.Name)
	}):
		return Decision{}
	case !p.terminal.Interactive():
		p.approval.Do(func() {
			p.screen.Show(Look{}, "calls are refused, as without a terminal there is no user to ask; "+
				"MCP_APPROVE=always allows them")
		})
		return Decision{Refuse, "there is no user to allow it"}
	}
	return p.terminal.Approve(ctx, tool.Server, tool.Tool.Name, call)
}

// elicit lets the user answer a question of a server.
func (p *program) elicit(ctx context.Context, s *Server, r *ElicitRequest) (*ElicitResult, error) {
	if !p.terminal.Interactive() {
		p.note("%s asks %q: declined, as without a terminal there is no user to ask", p.theServer(s), r.Message)
		return &ElicitResult{Action: "decline"}, nil
	}
	return p.terminal.Elicit(ctx, p.theServer(s), r)
}

// sample lets a server use the model, if the user allows it. Where no user can, the client does not offer sampling.
func (p *program) sample(ctx context.Context, s *Server, r *SampleRequest) (*SampleResult, error) {
	count := int(p.samples.Add(1))
	what := fmt.Sprintf("%s asks the model (%d of %d)", p.theServer(s), count, p.maxSamples)
	switch {
	case count > p.maxSamples:
		if count == p.maxSamples+1 { // the server may go on asking
			p.note("%s: refused (MCP_MAX_SAMPLES)", what)
		}
		limit := &LimitError{p.maxSamples, "sampling requests per question"}
		return nil, &Error{Code: -1, Message: limit.Error()}
	case p.approve == "always":
		p.note("%s", what)
	case !p.terminal.Confirm(ctx, what, strings.Join(r.Parts(), "\n"), "let it?"):
		// The code: MCP 2025-11-25, client, sampling, error handling.
		return nil, &Error{Code: -1, Message: "the user said no"}
	}
	return SampleWith(p.mistral())(ctx, r)
}

// theServer names a server in a sentence.
func (p *program) theServer(s *Server) string {
	if len(p.servers) == 1 {
		return "the server"
	}
	return "the server " + s.Name
}

const (
	ollama  = "ollama:" // before the name of a model of Ollama, as mcphost writes it
	offline = "offline" // the name of the stand-in
)

// mistral returns the chosen model, with the server that has it.
func (p *program) mistral() *Mistral {
	p.mu.Lock()
	defer p.mu.Unlock()
	m := &Mistral{BaseURL: p.baseURL, Key: p.key, Model: p.model, OnRetry: func(err error, wait time.Duration) {
		p.note("%v; trying again in %s", err, wait.Round(time.Millisecond))
	}}
	if name, ok := strings.CutPrefix(p.model, ollama); ok {
		m.BaseURL, m.Key, m.Model = p.ollamaURL, "", name
	} else if p.key == "" && p.baseURL == "" {
		m.Client, m.Model = &http.Client{Transport: Offline{}}, offline
	}
	if p.tracer != nil && m.Client == nil {
		m.Client = &http.Client{Transport: modelTrace(p.tracer)}
	}
	return m
}

// choose chooses another model.
func (p *program) choose(model string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.model = model
}
