package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/golden"
)

// sampleLines returns the lines of testdata/sampling.txt, which is a list of cases. A line is a word and a text:
//
//	#       the case's name
//	server  the params of a sampling/createMessage
//	answer  what the model's API answers, if not "fine" and nothing else
//	model   each message that the model is sent
//	with    the rest of the request
//	result  what the server gets
//	error   or why it gets none
func sampleLines(t testing.TB) (lines [][2]string) {
	file, err := os.Open("testdata/sampling.txt")
	assert.NilError(t, err)
	defer file.Close()
	scanner := bufio.NewScanner(file)
	for scanner.Scan() {
		word, text, _ := strings.Cut(scanner.Text(), " ")
		lines = append(lines, [2]string{word, text})
	}
	assert.NilError(t, scanner.Err())
	return lines
}

const sampleFine = `{"choices":[{"message":{"role":"assistant","content":"fine"},"finish_reason":"stop"}]}`

// sampleCase answers one request of a server, by a model that gives one answer, and says what came of it.
func sampleCase(t *testing.T, params, answer string) string {
	var out strings.Builder
	r := new(SampleRequest)
	assert.NilError(t, json.Unmarshal([]byte(params), r))
	server := newModelServer(t, modelFailure{Status: 200, Body: answer})
	result, err := SampleWith(&Mistral{BaseURL: server.URL, Model: "mistral-test", Tries: 1})(t.Context(), r)
	for _, request := range server.Requests() {
		assert.Equal(t, request.Refusal, "")
		var messages struct{ Messages []json.RawMessage }
		assert.NilError(t, json.Unmarshal(request.Body, &messages))
		for _, message := range messages.Messages {
			fmt.Fprintf(&out, "model %s\n", message)
		}
		var rest map[string]json.RawMessage
		assert.NilError(t, json.Unmarshal(request.Body, &rest))
		delete(rest, "messages")
		text, err := json.Marshal(rest)
		assert.NilError(t, err)
		fmt.Fprintf(&out, "with %s\n", text)
	}
	var refusal *Error
	switch {
	case err == nil:
		text, err := json.Marshal(result)
		assert.NilError(t, err)
		fmt.Fprintf(&out, "result %s\n", text)
	case errors.As(err, &refusal): // what the protocol does not allow costs nobody a token
		assert.Equal(t, len(server.Requests()), 0)
		fmt.Fprintf(&out, "error %d %s\n", refusal.Code, refusal.Message)
	default:
		host := regexp.MustCompile(`127\.0\.0\.1:\d+`)
		fmt.Fprintf(&out, "error %s\n", host.ReplaceAllString(err.Error(), "model.test"))
	}
	return out.String()
}

// TestSample: what a server may send becomes what the API takes, and the model's answer what the server may have.
// (-update writes the outcomes.)
func TestSample(t *testing.T) {
	var out strings.Builder
	lines := append(sampleLines(t), [2]string{"#", ""})
	for i, line := range lines[:len(lines)-1] {
		switch line[0] {
		case "#":
			fmt.Fprintf(&out, "# %s\n", line[1])
		case "server":
			fmt.Fprintf(&out, "server %s\n", line[1])
			answer := sampleFine
			if next := lines[i+1]; next[0] == "answer" {
				answer = next[1]
				fmt.Fprintf(&out, "answer %s\n", answer)
			}
			fmt.Fprintf(&out, "%s\n", sampleCase(t, line[1], answer))
		}
	}
	golden.Assert(t, strings.TrimSuffix(out.String(), "\n"), "sampling.txt")
}

// TestSampleFails: a request with too many tools costs nobody a token, and the server is told why the model failed.
func TestSampleFails(t *testing.T) {
	server := newModelServer(t, modelUnauthorized())
	sample := SampleWith(&Mistral{BaseURL: server.URL, Model: "mistral-test", Tries: 1})
	_, err := sample(t.Context(), &SampleRequest{Tools: make([]Tool, 129)})
	var refusal *Error
	assert.Assert(t, errors.As(err, &refusal) && refusal.Code == CodeInvalidParams)
	assert.Equal(t, refusal.Message, "129 tools are more than the 128 that a model can be offered")
	_, err = sample(t.Context(), &SampleRequest{})
	var failure *APIError
	assert.Assert(t, errors.As(err, &failure) && failure.Status == 401)
}

// FuzzSample: a request either is refused or keeps to all rules of the API.
func FuzzSample(f *testing.F) {
	for _, line := range sampleLines(f) {
		if line[0] == "server" {
			f.Add([]byte(line[1]))
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
		request, err := (&Mistral{Model: "m"}).request(&s.chat, false)
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
