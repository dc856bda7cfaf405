// mistral_models.go - the models that a server of chat completions has.
// Needs: Go 1.25.
// SPDX-License-Identifier: 0BSD

package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// maxModels bounds a list, in bytes.
const maxModels = 1 << 20

// modelsTimeout is short, because a person waits for the list, who can do without it.
const modelsTimeout = 10 * time.Second

// ModelInfo describes a model as far as its server does: Mistral's says all of it, others little
// more than the name.
type ModelInfo struct {
	ID      string
	Aliases []string // its other names, under which Mistral lists it again
	Vision  bool     // it takes images
	Context int      // tokens; 0 if it is not known
	Hidden  bool     // deprecated, or not for chats: a name to accept, not to offer
}

// ListModels asks the server of m for its models, and returns them by name. The key goes where that
// of a completion goes, and no redirect is followed. An answer other than 200 is an *APIError. As
// in all that a server says, the key does not stand in the errors, nor in the names.
func ListModels(ctx context.Context, m *Mistral) ([]ModelInfo, error) {
	address, err := m.Endpoint()
	if err != nil {
		return nil, err
	}
	// The models stand beside chat/completions, whatever is before that.
	address = address.JoinPath("../../models")
	models, err := m.listModels(ctx, address)
	if err != nil {
		return nil, fmt.Errorf("list the models at %s: %w", address.Host, err)
	}
	return models, nil
}

// listModels gets the list, in one try: nothing depends on it.
func (m *Mistral) listModels(ctx context.Context, address *url.URL) ([]ModelInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, modelsTimeout)
	defer cancel()
	req := &http.Request{
		Method: http.MethodGet,
		URL:    address,
		Header: m.header("application/json"),
	}
	resp, err := m.send(req.WithContext(ctx))
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxModels+1))
	switch {
	case err != nil:
		return nil, err
	case resp.StatusCode != http.StatusOK:
		return nil, m.refusal(resp, text)
	case len(text) > maxModels:
		return nil, errors.New("the list is larger than 1 MiB")
	}
	return m.parseModels(text)
}

// parseModels reads a list. Servers have different members, some of the same name and another type:
// what cannot be decoded counts as absent, and the rest counts.
func (m *Mistral) parseModels(text []byte) ([]ModelInfo, error) {
	var list struct {
		Data []struct {
			ID           string
			Aliases      []string
			Deprecation  any
			Capabilities struct {
				Vision bool
				Chat   *bool `json:"completion_chat"`
			}
			// How many tokens the model takes, in Mistral's words and in those of vLLM and SGLang,
			// OpenRouter and Together, Groq, and llama.cpp.
			MaxContextLength int `json:"max_context_length"`
			MaxModelLen      int `json:"max_model_len"`
			ContextLength    int `json:"context_length"`
			ContextWindow    int `json:"context_window"`
			Meta             struct {
				NCtx int `json:"n_ctx"`
			}
		}
	}
	_ = json.Unmarshal(bytes.TrimPrefix(text, []byte(byteOrderMark)), &list)
	if list.Data == nil {
		return nil, errors.New("the answer is not a list of models")
	}
	var models []ModelInfo
	for _, entry := range list.Data {
		for i, alias := range entry.Aliases {
			entry.Aliases[i] = m.withoutKey(alias)
		}
		chat := entry.Capabilities.Chat
		models = append(models, ModelInfo{
			ID:      m.withoutKey(entry.ID),
			Aliases: entry.Aliases,
			Vision:  entry.Capabilities.Vision,
			Context: cmp.Or(entry.MaxContextLength, entry.MaxModelLen, entry.ContextLength,
				entry.ContextWindow, entry.Meta.NCtx),
			Hidden: entry.Deprecation != nil || chat != nil && !*chat,
		})
	}
	slices.SortFunc(models, func(a, b ModelInfo) int { return strings.Compare(a.ID, b.ID) })
	return models, nil
}

// FindModel finds a model by its name, else by another name that it has. Ollama adds :latest to a
// name without a tag.
func FindModel(models []ModelInfo, name string) (ModelInfo, bool) {
	for _, m := range models {
		if m.ID == name || m.ID == name+":latest" {
			return m, true
		}
	}
	for _, m := range models {
		if slices.Contains(m.Aliases, name) {
			return m, true
		}
	}
	return ModelInfo{}, false
}
