// main_agent.go - the agent of a run: the chosen model, with the tools of the servers.
// SPDX-License-Identifier: 0BSD

package main

import (
	"context"
	"errors"
	"fmt"
)

// agents makes the agent of a question or a chat from the parts of the run.
type agents struct {
	settings *settings
	output   *output
	model    *modelChoice
	servers  *servers
	approver *approver
}

// newAgent returns the agent of a conversation that is kept, and the report of its calls. view
// shows them.
func (a *agents) newAgent(view *View, kept *keptSession) (*Agent, *report) {
	report := new(report)
	secrets := a.output.screen.Secrets
	host := a.servers.host
	host.OnProgress = view.Progress
	a.model.view.Store(view)
	settings := &a.settings.asking
	finder := &Finder{
		Tools:    &toolbox{a.servers, secrets},
		MaxBytes: settings.maxTools,
		Sources:  func() []ToolSource { return toolSources(host) },
		Warn:     func(text string) { a.output.note("%s", text) },
	}
	agent := new(Agent)
	save := func() error {
		kept.note(agent.History)
		return kept.saveAsked()
	}
	*agent = Agent{
		Model:      &savingModel{a.model, save},
		Tools:      finder,
		System:     a.settings.model.system,
		MaxTurns:   settings.maxTurns,
		MaxRepeats: settings.maxRepeats,
		MaxResult:  settings.maxResult,
		Instructions: func() string {
			text := finder.Instructions()
			if text == "" {
				text = host.Instructions()
			}
			return text
		},
		Missing: func(name string) error {
			err := finder.Missing(name)
			if err == nil {
				err = host.Missing(name)
			}
			return maskedError(secrets, err)
		},
		Decide: func(ctx context.Context, call ToolCall) Decision {
			if finder.IsOwn(call.Name) {
				// It reaches no server, so there is nothing to allow.
				return Decision{}
			}
			return a.approver.decide(ctx, call)
		},
		Observe: func(e Event) {
			if e.Kind == CallStarted || e.Kind == CallEnded {
				kept.note(agent.History)
			}
			report.observe(e, host)
			view.Observe(e)
		},
	}
	finder.History = func() []ChatMessage { return agent.History }
	return agent, report
}

// toolSources returns the servers as a Finder describes them to a model.
func toolSources(host *Host) []ToolSource {
	var sources []ToolSource
	for _, s := range host.Status() {
		sources = append(sources, ToolSource{s.Name, s.Prefix, s.Instructions()})
	}
	return sources
}

// newView returns the view that shows an agent at work, until ctx ends.
func (a *agents) newView(ctx context.Context) *View {
	return a.output.newView(ctx, a.servers.host, a.settings.asking.maxResult)
}

// agentError gives an error of Agent.Chat the exit status of a model that has failed. If the
// servers have failed instead, the error has its status already.
func (a *agents) agentError(err error) error {
	if errors.As(err, new(*exitError)) {
		return err
	}
	return &exitError{exitModel, a.servers.explain(err)}
}

// toolbox is the host as the agent of a run sees it. It asks the user to log in where a server
// wants that, tells the user the state of the servers, and adds to errors what to do about them.
type toolbox struct {
	servers *servers
	secrets *Secrets
}

func (t *toolbox) Functions(ctx context.Context) ([]Function, error) {
	host := t.servers.host
	var functions []Function
	err := t.servers.withLogins(ctx, func() (err error) {
		functions, err = host.Functions(ctx)
		return err
	})
	if err != nil {
		failed := t.servers.explain(err)
		if ctx.Err() == nil && neededLogin(err) == nil {
			status := host.Status()
			failed = fmt.Errorf("%w%s", failed, t.servers.triedAgain(len(status)))
			t.servers.areTold(status)
		}
		return nil, &exitError{exitStart, failed}
	}
	t.servers.tell(host.Status())
	return functions, nil
}

func (t *toolbox) Call(ctx context.Context, call ToolCall) (ToolOutput, error) {
	host := t.servers.host
	// The agent calls only what is in the lists.
	tool, _ := host.Tool(call.Name)
	var output ToolOutput
	name := OneName(tool.Server) + ":" + OneName(tool.Tool.Name)
	logged := t.servers.logSize(tool.Server)
	err := t.servers.afterLogin(ctx, tool.Server, name, func() (err error) {
		output, err = host.Call(context.WithValue(ctx, callKey{}, call.ID), call)
		return err
	})
	wrote := t.servers.wroteSince(tool.Server, logged)
	if output.IsError && wrote != "" {
		// The place is the same for each failure, and is named once.
		t.servers.logs[tool.Server].named.Do(func() {
			t.servers.output.note("%s reported an error; %s", name, wrote)
		})
	}
	return output, maskedError(t.secrets, t.servers.explain(err))
}

// maskedError returns an error without secrets, as the model reads it. A tool's own text goes to
// the model as it is, for the model may write it back into a file.
func maskedError(secrets *Secrets, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrCancelled):
		// Its text has no secret, and the view shows it in another way than a failure.
		return ErrCancelled
	}
	return errors.New(secrets.Mask(err.Error()))
}
