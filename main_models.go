// main_models.go - the models that an API has, and what they can do.
// SPDX-License-Identifier: 0BSD

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"
)

// modelInfo describes a model, as far as its API does: Mistral's says all of it, others little more than the name.
type modelInfo struct {
	ID      string
	Aliases []string
	Vision  bool // it takes images
	Context int  // tokens; 0 if it is not known
	hidden  bool // deprecated, or not for chats: a name to accept, not to offer
}

// modelList is what an API said of its models.
type modelList struct {
	models []modelInfo
	err    error
}

const (
	maxModels     = 1 << 20 // bytes of a list
	modelsTimeout = 10 * time.Second
)

// models returns the models of the API that has the chosen one, by name. The stand-in's has none. A list is read once,
// unless that failed.
func (p *program) models(ctx context.Context) ([]modelInfo, error) {
	list := p.modelList(ctx, p.mistral(), true)
	return list.models, list.err
}

// modelInfo describes a model of the API that has the chosen one, and reports whether its list names the model. A list
// that failed is not asked for again: what needs only this does without.
func (p *program) modelInfo(ctx context.Context, name string) (modelInfo, bool) {
	return p.modelList(ctx, p.mistral(), false).find(strings.TrimPrefix(name, ollama))
}

// find finds a model by its name, or another name that it has. Ollama adds :latest to a name without a tag.
func (l modelList) find(name string) (modelInfo, bool) {
	for _, m := range l.models {
		if m.ID == name || m.ID == name+":latest" {
			return m, true
		}
	}
	at := slices.IndexFunc(l.models, func(m modelInfo) bool { return slices.Contains(m.Aliases, name) })
	if at < 0 {
		return modelInfo{}, false
	}
	return l.models[at], true
}

// modelList returns the list of the API that m talks to, from the cache if it is there; again asks once more for one
// that failed.
func (p *program) modelList(ctx context.Context, m *Mistral, again bool) modelList {
	endpoint, err := m.Endpoint()
	if err != nil || m.Model == offline {
		return modelList{nil, err}
	}
	address := endpoint.JoinPath("../../models")
	if known, ok := p.lists.Load(address.String()); ok && (known.(modelList).err == nil || !again) {
		return known.(modelList)
	}
	soon, cancel := context.WithTimeout(ctx, modelsTimeout)
	defer cancel()
	r := &http.Request{Method: http.MethodGet, URL: address, Header: http.Header{"Accept": {"application/json"}}}
	if m.Key != "" {
		r.Header.Set("Authorization", "Bearer "+m.Key)
	}
	var list modelList
	if list.models, err = readModels(r.WithContext(soon)); err != nil {
		list.err = fmt.Errorf("list the models at %s: %w", address.Host, err)
	}
	if ctx.Err() == nil { // else the user has lost patience, which says nothing of the API
		p.lists.Store(address.String(), list)
	}
	return list
}

// readModels sends a request for a list of models, with no redirect followed, as the key is meant for one address.
func readModels(r *http.Request) ([]modelInfo, error) {
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(r)
	if err != nil {
		return nil, errors.Unwrap(err) // the *url.Error around it shows the URL, which can hold credentials
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxModels+1))
	var list struct {
		Data []struct {
			ID           string
			Aliases      []string
			Deprecation  any
			Capabilities struct {
				Vision bool
				Chat   *bool `json:"completion_chat"`
			}
			MaxContextLength int `json:"max_context_length"`
			MaxModelLen      int `json:"max_model_len"` // vLLM's
		}
	}
	switch {
	case err != nil:
		return nil, err
	case resp.StatusCode != http.StatusOK:
		return nil, &APIError{Status: resp.StatusCode, Message: Clip(strings.Join(strings.Fields(string(text)), " "), 200)}
	case len(text) > maxModels:
		return nil, errors.New("the list is larger than 1 MiB")
	}
	_ = json.Unmarshal(text, &list) // a member of another type says nothing, and spoils nothing
	if list.Data == nil {
		return nil, errors.New("the answer is not a list of models")
	}
	var models []modelInfo
	for _, m := range list.Data {
		hidden := m.Deprecation != nil || m.Capabilities.Chat != nil && !*m.Capabilities.Chat
		size := cmp.Or(m.MaxContextLength, m.MaxModelLen)
		models = append(models, modelInfo{m.ID, m.Aliases, m.Capabilities.Vision, size, hidden})
	}
	slices.SortFunc(models, func(a, b modelInfo) int { return strings.Compare(a.ID, b.ID) })
	return models, nil
}

// chosen is the model that the user has chosen, as an Agent has it. It gets the images of the conversation if it is
// known to take some, and does without them where the API refuses them: one that is damaged must not end all.
type chosen struct{ *program }

func (c chosen) Complete(ctx context.Context, r *ChatRequest, onText func(string)) (*ChatResponse, error) {
	model, request, images := c.mistral(), *r, 0
	request.Messages, images = ShowImages(r.Messages, 0, "this model is not known to take images")
	var info modelInfo
	if images > 0 {
		info, _ = c.modelInfo(ctx, model.Model)
	}
	if !info.Vision {
		return model.Complete(ctx, &request, onText)
	}
	request.Messages, _ = ShowImages(r.Messages, MaxImages, fmt.Sprintf("only the last %d are sent", MaxImages))
	answer, err := model.Complete(ctx, &request, onText)
	var refused *APIError
	if errors.As(err, &refused) && slices.Contains([]int{400, 413, 415, 422}, refused.Status) {
		c.note("%v; asking again without the images", err)
		request.Messages, _ = ShowImages(r.Messages, 0, "the API refused a request with images")
		return model.Complete(ctx, &request, onText)
	}
	return answer, err
}
