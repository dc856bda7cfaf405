package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"gotest.tools/v3/assert"
)

// modelList3 is a list as Mistral documents it, with a model under two names, one that is
// deprecated, and one that cannot chat.
const modelList3 = `{"object":"list","data":[
{"id":"small-2603","object":"model","created":1,"owned_by":"mistralai","capabilities":{"completion_chat":true,
"completion_fim":false,"function_calling":true,"fine_tuning":false,"vision":false,"classification":false},
"name":null,"description":null,"max_context_length":32768,"aliases":["small-latest"],"deprecation":null,
"deprecation_replacement_model":null,"default_model_temperature":0.3,"type":"base"},
{"id":"large-latest","object":"model","capabilities":{"completion_chat":true,"vision":true},
"max_context_length":262144,"aliases":["large-2512"],"deprecation":null},
{"id":"large-2512","object":"model","capabilities":{"completion_chat":true,"vision":true},
"max_context_length":262144,"aliases":["large-latest"],"deprecation":null},
{"id":"old-large","capabilities":{"completion_chat":true,"vision":true},"deprecation":"2026-08-31T12:00:00Z"},
{"id":"embed","capabilities":{"completion_chat":false}}]}`

// A list is read in the form of each API, with the key; what it does not say is not known.
func TestModels(t *testing.T) {
	var mu sync.Mutex // guards these two: a connection that is closed without an answer tells the race detector nothing
	var asked []string
	answer := http.HandlerFunc(nil)
	answers := func(h http.HandlerFunc) {
		mu.Lock()
		defer mu.Unlock()
		asked, answer = nil, h
	}
	requests := func() []string {
		mu.Lock()
		defer mu.Unlock()
		return asked
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		asked = append(asked, r.Method+" "+r.URL.String()+" "+r.Header.Get("Authorization"))
		h := answer
		mu.Unlock()
		h(w, r)
	}))
	defer server.Close()
	server.Config.SetKeepAlivesEnabled(false) // net/http sends a GET again on a connection that was kept and is closed
	text := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status); _, _ = w.Write([]byte(body)) }
	}
	small := ModelInfo{"small-2603", []string{"small-latest"}, false, 32768, false}
	large := ModelInfo{"large-latest", []string{"large-2512"}, true, 262144, false}
	for _, c := range []struct {
		answer http.HandlerFunc
		name   string
		want   ModelInfo // "" if there is none
		err    string
	}{
		{text(200, modelList3), "small-latest", small, ""},
		{text(200, modelList3), "small-2603", small, ""},
		{text(200, modelList3), "large-latest", large, ""},
		{text(200, modelList3), "old-large", ModelInfo{"old-large", nil, true, 0, true}, ""},
		{text(200, modelList3), "embed", ModelInfo{ID: "embed", Hidden: true}, ""},
		{text(200, modelList3), "large", ModelInfo{}, ""},
		{text(200, `{"object":"list","data":[{"id":"small:latest","object":"model","created":1,"owned_by":"library"}]}`),
			"small", ModelInfo{ID: "small:latest"}, ""},
		{text(200, `{"object":"list","data":[{"id":"/m","max_model_len":4096,"root":"/m","permission":[{}]}]}`),
			"/m", ModelInfo{ID: "/m", Context: 4096}, ""},
		{text(200, `{"data":[{"id":"a/b","context_length":8192},{"id":"c","context_window":131072}]}`),
			"a/b", ModelInfo{ID: "a/b", Context: 8192}, ""},
		{text(200, `{"data":[{"id":"a/b","context_length":8192},{"id":"c","context_window":131072}]}`),
			"c", ModelInfo{ID: "c", Context: 131072}, ""},
		{text(200, `{"object":"list","data":[{"id":"m.gguf","object":"model","created":1,"owned_by":"llamacpp",`+
			`"meta":{"vocab_type":2,"n_vocab":32000,"n_ctx_train":131072,"n_ctx":4096,"n_embd":64}}]}`),
			"m.gguf", ModelInfo{ID: "m.gguf", Context: 4096}, ""},
		{text(200, `{"data":[{"id":"x","capabilities":["completion"],"aliases":"x","max_context_length":"8k"}]}`),
			"x", ModelInfo{ID: "x"}, ""},
		{text(200, `{"data":[]}`), "x", ModelInfo{}, ""},
		{text(200, "\ufeff"+`{"data":[{"id":"x"}]}`), "x", ModelInfo{ID: "x"}, ""},
		{text(200, `{"models":[]}`), "x", ModelInfo{}, "the answer is not a list of models"},
		{text(200, `<html>`), "x", ModelInfo{}, "the answer is not a list of models"},
		{text(401, `{"detail": "Unauthorized"}`), "x", ModelInfo{}, `401 Unauthorized: Unauthorized`},
		{text(404, ``), "x", ModelInfo{}, `404 Not Found`},
		{text(200, strings.Repeat(" ", 1<<20)+"{}"), "x", ModelInfo{}, "the list is larger than 1 MiB"},
		{func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/elsewhere", http.StatusFound) },
			"x", ModelInfo{}, "302 Found"},
		{func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "x", ModelInfo{}, "EOF"},
	} {
		answers(c.answer)
		models, err := ListModels(t.Context(), &Mistral{BaseURL: server.URL + "/v1", Key: "k", Model: "chosen"})
		assert.DeepEqual(t, requests(), []string{"GET /v1/models Bearer k"})
		got, ok := FindModel(models, c.name)
		assert.DeepEqual(t, got, c.want)
		assert.Equal(t, ok, c.want.ID != "", "%+v", got)
		if c.err == "" {
			assert.NilError(t, err)
		} else {
			assert.ErrorContains(t, err, "list the models at "+strings.TrimPrefix(server.URL, "http://")+": ")
			assert.ErrorContains(t, err, c.err)
		}
	}

	// The program reads a list once, unless that fails.
	choice := &modelChoice{settings: &modelSettings{baseURL: server.URL + "/v1", key: "k", name: "large-latest"}}
	answers(text(404, ""))
	assert.DeepEqual(t, choice.info(t.Context()), ModelInfo{})
	answers(text(200, modelList3))
	for range 2 {
		assert.DeepEqual(t, choice.info(t.Context()), large)
	}
	assert.Equal(t, len(requests()), 1)
	answers(text(200, `{"data":[{"id":"m.gguf","meta":{"n_ctx":4096}}]}`))
	only := &modelChoice{settings: &modelSettings{baseURL: server.URL + "/v1", name: "any"}}
	assert.DeepEqual(t, only.info(t.Context()), ModelInfo{ID: "m.gguf", Context: 4096})
	stand := &modelChoice{settings: &modelSettings{name: "chosen"}}
	assert.DeepEqual(t, stand.info(t.Context()), ModelInfo{})
	plain := &modelChoice{settings: &modelSettings{baseURL: "http://api.test/v1", key: "k", name: "chosen"}}
	_, err := ListModels(t.Context(), plain.current())
	assert.ErrorContains(t, err, "refusing to send the key over plain http")
}

// A list that does not come in time is not waited for again, until the user asks for it. One that was given up, or
// failed at once, is asked for again.
func TestModelsHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		hangs := roundTripFunc(func(r *http.Request) (*http.Response, error) {
			asked++
			<-r.Context().Done()
			return nil, r.Context().Err()
		})
		const api = "https://api.test/v1"
		choice := &modelChoice{settings: &modelSettings{baseURL: api, name: "m"}}
		choice.made.Store(modelKey{baseURL: api, model: "m"},
			&Mistral{BaseURL: api, Model: "m", Client: &http.Client{Transport: hangs}})
		brief, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		choice.info(brief)
		choice.info(t.Context())
		assert.Equal(t, asked, 2)
		choice.info(t.Context())
		assert.Equal(t, asked, 2)
	})
}

// A user who asks for the models is answered, also if they could not be listed before.
func TestModelsAsked(t *testing.T) {
	c, model, _ := chatOf(t)
	stopped, stop := context.WithCancel(t.Context())
	stop()
	knows := func(ctx context.Context) bool { return c.model.info(ctx).ID != "" }
	assert.Check(t, !knows(stopped))
	assert.Check(t, knows(t.Context()))
	c.model.settings.baseURL = strings.Replace(model.URL, "127.0.0.1", "localhost", 1)
	c.model.lists.Store(c.model.settings.baseURL, []ModelInfo(nil))
	assert.Check(t, !knows(t.Context()))
	assert.NilError(t, c.chooseModel(t.Context(), ""))
	assert.Check(t, knows(t.Context()))
}

// TestModelsKeyNeverShown: what a server makes of the key, in an error or as the name of a model,
// does not show it.
func TestModelsKeyNeverShown(t *testing.T) {
	const key = "sk/Very+Secret=="
	for _, status := range []int{302, 401, 503, 200} {
		for _, body := range []string{
			`{"message":"wrong key ` + key + `","code":"` + key + `","request_id":"` + key + `"}`,
			`{"unknown":"sk\/Very\u002bSecret=="}`,
			strings.Repeat("x", 190) + key,
			`{"data":[{"id":"of ` + key + `","aliases":["sk\/Very\u002bSecret=="]}]}`,
		} {
			m := newChatModel(chatSays(status, chatJSON, body))
			m.Key = key
			models, err := ListModels(t.Context(), m.Mistral)
			if err != nil {
				chatNoKey(t, err, "sk/V", `sk\/V`)
			}
			for _, model := range models {
				assert.Equal(t, model.ID, "of [key]")
				assert.DeepEqual(t, model.Aliases, []string{"[key]"})
			}
		}
	}
	m := newChatModel(func(r *http.Request) (*http.Response, error) {
		return nil, fmt.Errorf("cannot send %v", r.Header)
	})
	m.Key = key
	_, err := ListModels(t.Context(), m.Mistral)
	chatNoKey(t, err, "sk/V")
}
