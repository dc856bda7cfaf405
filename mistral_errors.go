// mistral_errors.go - what a server of chat completions says when it does not answer.
// Needs: Go 1.25.
// SPDX-License-Identifier: 0BSD

package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// APIError is an answer of the server that is not a completion. Its texts are one line each, and
// never hold the key.
type APIError struct {
	Status        int           // HTTP status; 200 where the error came inside an answer
	Message       string        // the server's own words, or the beginning of a body without any
	Code          string        // the server's classification; may be empty
	CorrelationID string        // by which the server's operators find the request; may be empty
	RetryAfter    time.Duration // the wait that the server asks for; 0 or below if there is none
}

func (e *APIError) Error() string {
	text := fmt.Sprintf("%d %s", e.Status, http.StatusText(e.Status))
	if e.Status == http.StatusProxyAuthRequired {
		text = "a proxy on the way: " + text
	}
	if e.Message != "" {
		text += ": " + e.Message
	}
	if e.Code != "" {
		text += " (code " + e.Code + ")"
	}
	if e.CorrelationID != "" {
		text += " (correlation id " + e.CorrelationID + ")"
	}
	return text
}

// refusal makes an APIError of an answer. Servers have no common form: the body is an object with a
// message, a detail or an error, or a list of such objects, or the page of a proxy, or any text.
func (m *Mistral) refusal(resp *http.Response, body []byte) *APIError {
	var parsed any
	if json.Unmarshal(body, &parsed) == nil {
		// Encoded anew it is without escapes, which could hide the key from clean.
		body, _ = wireJSON(parsed)
	}
	if list, ok := parsed.([]any); ok && len(list) > 0 {
		parsed = list[0]
	}
	// OpenAI's form has the message in an object called error.
	object, _ := parsed.(map[string]any)
	if inner, ok := object["error"].(map[string]any); ok {
		object = inner
	}
	message := errorText(object)
	if message == "" {
		message = string(body)
	}
	// Mistral's API names the request in a header, its gateway in the body.
	id := resp.Header.Get("Mistral-Correlation-Id")
	if id == "" {
		id = errorText(object["request_id"])
	}
	e := &APIError{
		Status:        resp.StatusCode,
		Message:       m.clean(message),
		Code:          m.clean(errorText(object["code"])),
		CorrelationID: m.clean(id),
		RetryAfter:    retryAfter(resp.Header.Get("Retry-After")),
	}
	// Nobody wants to read the source of a page in an error.
	if strings.HasPrefix(e.Message, "<") {
		e.Message = "a web page: check the base URL, and any proxy on the way"
	}
	return e
}

// retryAfter reads the header Retry-After: a number of seconds, or a date (RFC 9110, 10.2.3).
func retryAfter(value string) time.Duration {
	if date, err := http.ParseTime(value); err == nil {
		return time.Until(date)
	}
	wait, err := time.ParseDuration(value + "s")
	if err != nil {
		return 0
	}
	return wait
}

// errorText returns the text of an error: a text, a number, a list of errors, or an object that
// holds one.
func errorText(v any) string {
	switch v := v.(type) {
	case string, float64:
		return fmt.Sprint(v)
	case []any:
		texts := make([]string, len(v))
		for i := range v {
			texts[i] = errorText(v[i])
		}
		return strings.Join(texts, "; ")
	case map[string]any:
		// FastAPI's form, which Mistral uses for a request that is not valid: where, and what.
		if place, ok := v["loc"].([]any); ok {
			where := strings.ReplaceAll(errorText(place), "; ", ".")
			return where + ": " + errorText(v["msg"])
		}
		for _, name := range []string{"message", "detail", "error"} {
			if text := errorText(v[name]); text != "" {
				return text
			}
		}
	}
	return ""
}

// clean makes a server's text fit for an error: one line, not too long, and without the key. The
// key is taken out first, so that no cut can leave a part of it.
func (m *Mistral) clean(text string) string {
	text = m.withoutKey(text)
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text, "\uFFFD")), " ")
	if len(text) > 500 {
		text = strings.ToValidUTF8(text[:500], "") + "…"
	}
	return text
}

// withoutKey returns a server's text without the key, which some servers quote.
func (m *Mistral) withoutKey(text string) string {
	if m.Key == "" {
		return text
	}
	return strings.ReplaceAll(text, m.Key, "[key]")
}
