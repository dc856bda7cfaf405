// main_models.go - the model that the user has chosen, and those that its API has.
// SPDX-License-Identifier: 0BSD

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// modelInfo describes the chosen model, as far as the list of its API does. The list is read once, and waited for
// once: an API that does not answer must not hold up each question.
func (p *program) modelInfo(ctx context.Context) ModelInfo {
	model := p.mistral()
	known, ok := p.lists.Load(model.BaseURL)
	models, _ := known.([]ModelInfo)
	if !ok && model.Model != offline {
		var err error // what needs only the list does without
		if models, err = ListModels(ctx, model); err == nil || errors.Is(err, context.DeadlineExceeded) {
			p.lists.Store(model.BaseURL, models)
		}
	}
	info, _ := FindModel(models, model.Model)
	return info
}

// chosen is the model that the user has chosen, as an Agent has it. It gets the images of the conversation if it is
// known to take some, and does without them where the API refuses them: one that is damaged must not end all.
type chosen struct{ *program }

func (c chosen) Complete(ctx context.Context, r *ChatRequest, onText func(string)) (*ChatResponse, error) {
	model, request, most, why := c.mistral(), *r, 0, "this model is not known to take images"
	request.Temperature, request.MaxTokens = cmp.Or(r.Temperature, c.temperature), cmp.Or(r.MaxTokens, c.maxTokens)
	hasImages := func(m ChatMessage) bool { return len(m.Images) > 0 }
	if slices.ContainsFunc(r.Messages, hasImages) && c.modelInfo(ctx).Vision {
		most, why = MaxImages, fmt.Sprintf("only the last %d are sent", MaxImages)
	}
	request.Messages = ShowImages(r.Messages, most, why)
	answer, err := model.Complete(ctx, &request, onText)
	var refused *APIError
	if most > 0 && errors.As(err, &refused) && slices.Contains([]int{400, 413, 415, 422}, refused.Status) {
		c.note("%v; asking again without the images", err)
		request.Messages = ShowImages(r.Messages, 0, "the API refused a request with images")
		return model.Complete(ctx, &request, onText)
	}
	return answer, err
}

// chooseModel chooses a model that the API has, or lists them.
func (c *chat) chooseModel(ctx context.Context, name string) error {
	before := c.model
	c.choose(cmp.Or(name, before))
	model := c.mistral()
	if model.Model == offline {
		c.say(offline + ", the built-in stand-in: another model needs MISTRAL_API_KEY, or MISTRAL_BASE_URL; " +
			ollama + "NAME needs neither")
		return nil
	}
	endpoint, err := model.Endpoint()
	if err != nil {
		return err
	}
	models, err := ListModels(ctx, model) // again, as the user may have added one
	if err == nil {
		c.lists.Store(model.BaseURL, models)
	}
	if _, known := FindModel(models, model.Model); name != "" && !known && len(models) > 0 {
		c.choose(before)
		return fmt.Errorf("%s has no model %s; /model lists them", endpoint.Host, model.Model)
	}
	c.say(model.Model + " at " + endpoint.Host)
	if err != nil {
		c.say("(" + err.Error() + ")")
	}
	if name != "" {
		return nil
	}
	var listed []ModelInfo // each once: Mistral lists one under each of its names
	for _, m := range models {
		if _, again := FindModel(listed, m.ID); again || m.Hidden {
			continue
		}
		listed = append(listed, m)
		about := slices.Clone(m.Aliases)
		if m.Context > 0 {
			about = append(about, Plural(m.Context, "token"))
		}
		if m.Vision {
			about = append(about, "takes images")
		}
		c.screen.Show(Look{}, fmt.Sprintf("  %s  %s", m.ID, strings.Join(about, ", ")))
	}
	return nil
}
