// mistral_models.go - the models that a server of chat completions has.
// Needs: Go 1.25.
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

const (
	maxModels     = 1 << 20 // bytes of a list
	modelsTimeout = 10 * time.Second
)

// ModelInfo describes a model as far as its server does: Mistral's says all of it, others little more than the name.
type ModelInfo struct {
	ID      string
	Aliases []string
	Vision  bool // it takes images
	Context int  // tokens; 0 if it is not known
	Hidden  bool // deprecated, or not for chats: a name to accept, not to offer
}

// ListModels asks the server of m for its models, and returns them by name. The key goes where that of a completion
// goes, and no redirect is followed. An answer other than 200 is an *APIError.
func ListModels(ctx context.Context, m *Mistral) (models []ModelInfo, err error) {
	address, err := m.Endpoint()
	if err != nil {
		return nil, err
	}
	address = address.JoinPath("../../models")
	defer func() {
		if err != nil {
			err = fmt.Errorf("list the models at %s: %w", address.Host, err)
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, modelsTimeout)
	defer cancel()
	r := &http.Request{Method: http.MethodGet, URL: address, Header: http.Header{"Accept": {"application/json"}}}
	if m.Key != "" {
		r.Header.Set("Authorization", "Bearer "+m.Key)
	}
	client := *cmp.Or(m.Client, &http.Client{})
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	resp, err := client.Do(r.WithContext(ctx))
	if err != nil {
		return nil, errors.Unwrap(err) // the *url.Error around it shows the URL, which can hold credentials
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxModels+1))
	switch {
	case err != nil:
		return nil, err
	case resp.StatusCode != http.StatusOK:
		line := strings.Join(strings.Fields(string(text)), " ")
		return nil, &APIError{Status: resp.StatusCode, Message: fmt.Sprintf("%.200s", line)}
	case len(text) > maxModels:
		return nil, errors.New("the list is larger than 1 MiB")
	}
	return parseModels(text)
}

// parseModels reads a list. A member that is not of the type that Mistral documents says nothing, and spoils nothing.
func parseModels(text []byte) (models []ModelInfo, err error) {
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
	if _ = json.Unmarshal(text, &list); list.Data == nil {
		return nil, errors.New("the answer is not a list of models")
	}
	for _, m := range list.Data {
		hidden := m.Deprecation != nil || m.Capabilities.Chat != nil && !*m.Capabilities.Chat
		size := cmp.Or(m.MaxContextLength, m.MaxModelLen)
		models = append(models, ModelInfo{m.ID, m.Aliases, m.Capabilities.Vision, size, hidden})
	}
	slices.SortFunc(models, func(a, b ModelInfo) int { return strings.Compare(a.ID, b.ID) })
	return models, nil
}

// FindModel finds a model by its name, else by another name that it has. Ollama adds :latest to a name without a tag.
func FindModel(models []ModelInfo, name string) (ModelInfo, bool) {
	at := slices.IndexFunc(models, func(m ModelInfo) bool { return m.ID == name || m.ID == name+":latest" })
	if at < 0 {
		at = slices.IndexFunc(models, func(m ModelInfo) bool { return slices.Contains(m.Aliases, name) })
	}
	if at < 0 {
		return ModelInfo{}, false
	}
	return models[at], true
}
