package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

// modelList3 is a list as Mistral documents it, with a model under two names, one that is deprecated, and one that
// cannot chat.
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

// A list is read in the form of each API, once, with the key; what it does not say is not known; a failure is told to
// whoever asks for the list, and asked about again only then.
func TestModels(t *testing.T) {
	var asked []string
	answer := http.HandlerFunc(nil)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Method+" "+r.URL.String()+" "+r.Header.Get("Authorization"))
		answer(w, r)
	}))
	defer server.Close()
	server.Config.SetKeepAlivesEnabled(false) // net/http sends a GET again on a connection that was kept and is closed
	text := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status); _, _ = w.Write([]byte(body)) }
	}
	small := modelInfo{"small-2603", []string{"small-latest"}, false, 32768, false}
	large := modelInfo{"large-latest", []string{"large-2512"}, true, 262144, false}
	for _, c := range []struct {
		answer http.HandlerFunc
		name   string
		want   modelInfo // "" if there is none
		err    string
	}{
		{text(200, modelList3), "small-latest", small, ""},
		{text(200, modelList3), "small-2603", small, ""},
		{text(200, modelList3), "large-latest", large, ""},
		{text(200, modelList3), "old-large", modelInfo{"old-large", nil, true, 0, true}, ""},
		{text(200, modelList3), "embed", modelInfo{ID: "embed", hidden: true}, ""},
		{text(200, modelList3), "large", modelInfo{}, ""},
		{text(200, `{"object":"list","data":[{"id":"small:latest","object":"model","created":1,"owned_by":"library"}]}`),
			"ollama:small", modelInfo{ID: "small:latest"}, ""},
		{text(200, `{"object":"list","data":[{"id":"/m","max_model_len":4096,"root":"/m","permission":[{}]}]}`),
			"/m", modelInfo{ID: "/m", Context: 4096}, ""},
		{text(200, `{"data":[{"id":"x","capabilities":["completion"],"aliases":"x","max_context_length":"8k"}]}`),
			"x", modelInfo{ID: "x"}, ""},
		{text(200, `{"data":[]}`), "x", modelInfo{}, ""},
		{text(200, `{"models":[]}`), "x", modelInfo{}, "the answer is not a list of models"},
		{text(200, `<html>`), "x", modelInfo{}, "the answer is not a list of models"},
		{text(401, `{"detail": "Unauthorized"}`), "x", modelInfo{}, `401 Unauthorized: {"detail": "Unauthorized"}`},
		{text(404, ``), "x", modelInfo{}, `404 Not Found`},
		{text(200, strings.Repeat(" ", 1<<20)+"{}"), "x", modelInfo{}, "the list is larger than 1 MiB"},
		{func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/elsewhere", http.StatusFound) },
			"x", modelInfo{}, "302 Found"},
		{func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "x", modelInfo{}, "EOF"},
	} {
		p := &program{secrets: new(Secrets), baseURL: server.URL + "/v1", key: "k", model: "chosen"}
		asked, answer = nil, c.answer
		for range 2 {
			got, ok := p.modelInfo(t.Context(), c.name)
			assert.DeepEqual(t, got.ID, c.want.ID)
			assert.Equal(t, ok, c.want.ID != "", "%+v", got)
			assert.DeepEqual(t, got.Aliases, c.want.Aliases)
			assert.Equal(t, got.Vision == c.want.Vision && got.Context == c.want.Context && got.hidden == c.want.hidden, true,
				"%+v", got)
		}
		assert.DeepEqual(t, asked, []string{"GET /v1/models Bearer k"})
		models, err := p.models(t.Context())
		if c.err == "" {
			assert.NilError(t, err)
			assert.Equal(t, len(asked), 1)
			continue
		}
		assert.ErrorContains(t, err, "list the models at "+strings.TrimPrefix(server.URL, "http://")+": ")
		assert.ErrorContains(t, err, c.err)
		assert.Equal(t, len(models), 0)
		assert.Equal(t, len(asked), 2)
	}

	stand := &program{secrets: new(Secrets), model: "chosen"}
	models, err := stand.models(t.Context())
	assert.NilError(t, err)
	assert.Equal(t, len(models), 0)
	plain := &program{secrets: new(Secrets), baseURL: "http://api.test/v1", key: "k", model: "chosen"}
	_, err = plain.models(t.Context())
	assert.ErrorContains(t, err, "refusing to send the key over plain http")
}
