package main

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

const sampleMark = "<- sampling/createMessage "

const sampleFine = `{"choices":[{"message":{"role":"assistant","content":"fine"},"finish_reason":"stop"}]}`

// sampleCase answers one request of a server, by a model that gives one answer, and says what came of it.
func sampleCase(t *testing.T, params, answer string) (outcome []string) {
	r := new(SampleRequest)
	assert.NilError(t, json.Unmarshal([]byte(params), r))
	server := newModelServer(t, modelFailure{Status: 200, Body: answer})
	result, err := SampleWith(&Mistral{BaseURL: server.URL, Model: "mistral-test", Tries: 1})(t.Context(), r)
	for _, request := range server.Requests() {
		assert.Equal(t, request.Refusal, "")
		var messages struct{ Messages []json.RawMessage }
		assert.NilError(t, json.Unmarshal(request.Body, &messages))
		for _, message := range messages.Messages {
			outcome = append(outcome, "-> model "+string(message))
		}
		var rest map[string]json.RawMessage
		assert.NilError(t, json.Unmarshal(request.Body, &rest))
		delete(rest, "messages")
		text, err := json.Marshal(rest)
		assert.NilError(t, err)
		outcome = append(outcome, "-> with "+string(text))
	}
	var refusal *Error
	if err == nil {
		text, err := json.Marshal(result)
		assert.NilError(t, err)
		return append(outcome, "= "+string(text))
	}
	if errors.As(err, &refusal) { // what the protocol does not allow costs nobody a token
		assert.Equal(t, len(server.Requests()), 0)
		return append(outcome, fmt.Sprintf("= error %d %s", refusal.Code, refusal.Message))
	}
	host := regexp.MustCompile(`127\.0\.0\.1:\d+`)
	return append(outcome, "= error "+host.ReplaceAllString(err.Error(), "model.test"))
}

// TestSample plays testdata/sampling.txt: what a server may send becomes what the API takes, and the model's answer
// what the server may have.
func TestSample(t *testing.T) {
	playCases(t, "testdata/sampling.txt", func(t *testing.T, _ string, given []string) [][]string {
		outcomes := make([][]string, len(given))
		for i, line := range given {
			params, isRequest := strings.CutPrefix(line, sampleMark)
			if !isRequest {
				continue
			}
			last, answer := i, sampleFine
			if i+1 < len(given) && strings.HasPrefix(given[i+1], "<- answer ") {
				last, answer = i+1, strings.TrimPrefix(given[i+1], "<- answer ")
			}
			outcomes[last] = sampleCase(t, params, answer)
		}
		return outcomes
	})
}

// TestSampleFails: a request with too many or nameless tools costs nobody a token, and the server is told why the model
// failed.
func TestSampleFails(t *testing.T) {
	server := newModelServer(t, modelUnauthorized())
	sample := SampleWith(&Mistral{BaseURL: server.URL, Model: "mistral-test", Tries: 1})
	_, err := sample(t.Context(), &SampleRequest{Tools: make([]Tool, 129)})
	var refusal *Error
	assert.Assert(t, errors.As(err, &refusal) && refusal.Code == CodeInvalidParams)
	assert.Equal(t, refusal.Message, "129 tools are more than the 128 that a model can be offered")
	large := Tool{Name: "t", Description: strings.Repeat("x", MaxOffer)}
	_, err = sample(t.Context(), &SampleRequest{Tools: []Tool{large}})
	assert.Assert(t, errors.As(err, &refusal) && refusal.Code == CodeInvalidParams)
	assert.Equal(t, refusal.Message, "the tools have more than the 262144 bytes that a model can be offered")
	_, err = sample(t.Context(), &SampleRequest{Tools: []Tool{{Description: "Adds."}}})
	assert.Assert(t, errors.As(err, &refusal) && refusal.Code == CodeInvalidParams)
	assert.Equal(t, refusal.Message, `tool "": it has no name, but the description "Adds."`)
	_, err = sample(t.Context(), &SampleRequest{})
	var failure *APIError
	assert.Assert(t, errors.As(err, &failure) && failure.Status == 401)
}

// TestSampleImages: of many images the model gets the last, as the newest screenshot is what a server asks about.
func TestSampleImages(t *testing.T) {
	image := func(n int) ContentBlock {
		return ContentBlock{Type: "image", MIMEType: "image/gif", Data: fmt.Append([]byte("GIF89a"), n)}
	}
	r := new(SampleRequest)
	for i := range 6 {
		r.Messages = append(r.Messages,
			SampleMessage{"user", SampleContent{image(2 * i), {Type: "text", Text: "and"}, image(2*i + 1)}},
			SampleMessage{"assistant", SampleContent{image(99)}})
	}
	s, err := newSampling(r)
	assert.NilError(t, err)
	sent, err := json.Marshal(s.chat.Messages)
	assert.NilError(t, err)
	assert.Equal(t, strings.Count(string(sent), "image_url\":{"), MaxImages)
	const left = "[image: image/gif, 7 bytes] (left out: only the last 8 images are sent)"
	assert.Equal(t, s.chat.Messages[0].Content.Text(), left+"\nand\n"+left)
	for i := range 12 {
		url := base64.StdEncoding.EncodeToString(image(i).Data)
		assert.Equal(t, strings.Contains(string(sent), "base64,"+url), i >= 4, i)
	}
}

// FuzzSample: a request either is refused or keeps to all rules of the API.
func FuzzSample(f *testing.F) {
	for line := range strings.Lines(readText(f, "testdata/sampling.txt")) {
		if params, ok := strings.CutPrefix(line, sampleMark); ok {
			f.Add([]byte(params))
		}
	}
	f.Fuzz(func(t *testing.T, params []byte) {
		r := new(SampleRequest)
		if json.Unmarshal(params, r) != nil {
			return
		}
		r.Tools = nil // their schemas are the server's, and the API's to refuse
		s, err := newSampling(r)
		if err != nil {
			return
		}
		request, err := (&Mistral{Model: "m"}).request(&s.chat, formWhole)
		assert.NilError(t, err)
		sent, err := request.GetBody()
		assert.NilError(t, err)
		var body map[string]any
		assert.NilError(t, json.NewDecoder(sent).Decode(&body))
		c := new(modelCheck)
		c.value(body, "request", "body")
		assert.Equal(t, len(c.details), 0, "%v", c.details)
		if refusal := modelRules(body); refusal != nil {
			t.Errorf("%s\nbecame %v\nrefused with %s", params, body, refusal.Body)
		}
	})
}
