// main_models.go - the model that the user has chosen, and the models that its API has.
// SPDX-License-Identifier: 0BSD

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	ollama  = "ollama:" // before the name of a model of Ollama, as mcphost writes it
	offline = "offline" // the name of the stand-in

	// Between two requests to a model, tools work or a person types.
	modelIdleTime = 90 * time.Second
)

// modelChoice is the model that the user has chosen: the model of the settings, until the user
// chooses another one in a chat. It is the Model of an Agent, so the agent stays the same when the
// choice changes. Servers may use the model at the same time, from other goroutines.
type modelChoice struct {
	settings *modelSettings
	output   *output
	trace    *trace
	config   *configuration
	lists    sync.Map // the models of each API, as []ModelInfo, by its address
	made     sync.Map // the *Mistral of each modelKey, which remembers what its server takes

	view atomic.Pointer[View] // shows what the model does; nil if nothing does

	mu     sync.Mutex // guards chosen
	chosen string     // in a chat; "" for the model of the settings
}

// name returns the model as the user names it, which may begin with ollama.
func (c *modelChoice) name() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return cmp.Or(c.chosen, c.settings.name)
}

func (c *modelChoice) choose(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.chosen = name
}

// current returns the chosen model, with the API that has it.
func (c *modelChoice) current() *Mistral {
	onRetry := func(err error, wait time.Duration) {
		view := c.view.Load()
		isShown := view != nil && view.Retry(err, wait)
		if !isShown {
			c.output.note("%v; trying again in %s", err, wait.Round(time.Millisecond))
		}
	}
	onThinking := func() {
		if view := c.view.Load(); view != nil {
			view.Thinking()
		}
	}
	m := &Mistral{
		BaseURL: c.settings.baseURL,
		Key:     c.settings.key,
		Model:   c.name(),
		OnRetry: onRetry,

		OnThinking: onThinking,
	}
	// Ollama needs no key, and gets none. Without a key and an address there is no API to ask.
	name, isOllama := strings.CutPrefix(m.Model, ollama)
	switch {
	case isOllama:
		m.BaseURL, m.Key, m.Model = c.settings.ollamaURL, "", name
	case m.Key == "" && m.BaseURL == "":
		m.Client = &http.Client{Transport: Offline{c.rephrase}}
		m.Model = offline
	}
	isTraced := c.trace.isOpen()
	if m.Client == nil {
		// This transport tells the refusal of a proxy from the server's own.
		transport := NewHTTPTransport()
		transport.IdleConnTimeout = modelIdleTime
		m.Client = &http.Client{Transport: transport}
		if isTraced {
			m.Client.Transport = modelTrace{c.trace.write, transport}
		}
	}
	made, _ := c.made.LoadOrStore(modelKey{m.BaseURL, m.Model, isTraced}, m)
	return made.(*Mistral)
}

// rephrase returns what the stand-in searches for a question: the pages of this program have their
// own words, and what another server searches has others.
func (c *modelChoice) rephrase(question string) string {
	if c.config.builtIn {
		return Rephrase(question)
	}
	return question
}

// check returns an error if the model cannot be asked. It costs nothing, and no server has been
// started. The stand-in answers where no model is named, but not in the place of one that is.
func (c *modelChoice) check() error {
	model := c.current()
	if c.settings.baseURL == "" {
		if err := checkProvider(c.settings.name); err != nil {
			return err
		}
	}
	if model.Model == offline && c.settings.isNamed {
		return usageError("%s: no API is set for this model: set MISTRAL_API_KEY, or "+
			"MISTRAL_BASE_URL for another API than Mistral's, or name a model of Ollama, "+
			"-m %sNAME", c.settings.name, ollama)
	}
	_, err := model.Endpoint()
	if err != nil {
		return usageError("MISTRAL_BASE_URL, MISTRAL_API_KEY: %w", err)
	}
	return nil
}

// modelKey tells the models apart that are used in a run. The trace is opened with the servers,
// after the model is looked at for the first time.
type modelKey struct {
	baseURL, model string
	isTraced       bool
}

// info returns the description of the chosen model in the list of its API. Without a list the
// description is empty.
func (c *modelChoice) info(ctx context.Context) ModelInfo { return c.find(c.known(ctx)) }

// listed is info without a request: the description is empty if the list has not been read.
func (c *modelChoice) listed() ModelInfo {
	known, _ := c.lists.Load(c.current().BaseURL)
	models, _ := known.([]ModelInfo)
	return c.find(models)
}

// find returns the description of the chosen model in a list.
func (c *modelChoice) find(models []ModelInfo) ModelInfo {
	info, isListed := FindModel(models, c.current().Model)
	if !isListed && len(models) == 1 {
		// A server of llama.cpp has one model, and takes any name for it.
		return models[0]
	}
	return info
}

// known returns the models of the API of the chosen model. The list is read once. If the API does
// not answer in time, it is not asked again, as it must not hold up each question.
func (c *modelChoice) known(ctx context.Context) []ModelInfo {
	model := c.current()
	if model.Model == offline {
		return nil
	}
	known, isKnown := c.lists.Load(model.BaseURL)
	models, _ := known.([]ModelInfo)
	if !isKnown {
		var err error
		models, err = ListModels(ctx, model)
		isLate := errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil
		if err == nil || isLate {
			c.lists.Store(model.BaseURL, models)
		}
	}
	return models
}

// readList reads the list beside a chat, whose questions do not wait for it. If the API has none,
// nobody is told: the list only adds to what is shown. stop ends the goroutine, and waits for it.
func (c *modelChoice) readList(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var reading sync.WaitGroup
	reading.Go(func() { c.known(ctx) })
	return func() {
		cancel()
		reading.Wait()
	}
}

// Complete asks the chosen model. It sends the images of the conversation if the model is known to
// take images. If the API refuses the request, it asks again without images: one damaged image must
// not end the whole conversation.
func (c *modelChoice) Complete(
	ctx context.Context,
	r *ChatRequest,
	onText func(string),
) (*ChatResponse, error) {
	model := c.current()
	request := *r
	request.Temperature = cmp.Or(r.Temperature, c.settings.temperature)
	request.MaxTokens = cmp.Or(r.MaxTokens, c.settings.maxTokens)
	most, why := 0, "this model is not known to take images"
	hasImages := func(m ChatMessage) bool { return len(m.Images) > 0 }
	if slices.ContainsFunc(r.Messages, hasImages) && c.info(ctx).Vision {
		most, why = MaxImages, fmt.Sprintf("only the last %d are sent", MaxImages)
	}
	request.Messages = ShowImages(r.Messages, most, why)
	answer, err := model.Complete(ctx, &request, onText)
	if most > 0 && isRefused(err) {
		c.output.note("%v; asking again without the images", err)
		request.Messages = ShowImages(r.Messages, 0, "the API refused a request with images")
		return model.Complete(ctx, &request, onText)
	}
	return answer, err
}

// isRefused reports whether the API refused the content of a request, such as an image that it does
// not take.
func isRefused(err error) bool {
	var refused *APIError
	return errors.As(err, &refused) && slices.Contains([]int{400, 413, 415, 422}, refused.Status)
}
