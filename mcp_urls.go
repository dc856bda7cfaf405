// mcp_urls.go - a request that the server refuses until the user has been to a URL.
// Needs: Go 1.25, json, rpc.
// SPDX-License-Identifier: 0BSD

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
)

// A server may need something that the user gives it in a browser, past the client: a login at a
// third party, a payment. In revision 2025-11-25 it may refuse a request for that reason, with an
// error that has the URLs (MCP 2025-11-25, client, elicitation, URL elicitation required error).
// The request has not been begun, so it is sent once more when the user has been there:
//
//	client                                   server
//	tools/call                           ->
//	                                     <-  error -32042, with a URL and its elicitationId
//	the user is asked to open the URL,
//	and then whether it is done there
//	                                     <-  notifications/elicitation/complete (if it likes)
//	tools/call                           ->
//	                                     <-  the result
//
// The notification answers the questions that are open. Both go to the Responder to
// elicitation/create. Without one, or if the user declines, the error has the URLs. In the
// stateless era input_required has taken the place of all this.

// maxShownURLs is how many URLs an error shows.
const maxShownURLs = 3

// URLRequiredError reports that a server refuses a request until the user has done something in a
// browser. It wraps the server's *Error.
type URLRequiredError struct {
	URLs    []string
	refusal *Error
	visits  []urlVisit
}

// urlVisit is what a server wants the user to do at one URL.
type urlVisit struct {
	id     string          // names it in notifications/elicitation/complete
	params json.RawMessage // those of the elicitation/create that asks for it
}

// Error gives the server's words, the URLs, and what to do.
func (e *URLRequiredError) Error() string {
	shown := strings.Join(e.URLs[:min(len(e.URLs), maxShownURLs)], " and ")
	if len(e.URLs) > maxShownURLs {
		shown += fmt.Sprintf(" and %d more", len(e.URLs)-maxShownURLs)
	}
	return fmt.Sprintf("%v: once the user has opened %s in a browser, and is done there, "+
		"it can be tried again", e.refusal, shown)
}

func (e *URLRequiredError) Unwrap() error { return e.refusal }

// asURLRequired returns the error of a request as a *URLRequiredError, nil if it is another one.
func asURLRequired(err error) *URLRequiredError {
	var refusal *Error
	if !errors.As(err, &refusal) || refusal.Code != CodeURLRequired {
		return nil
	}
	var data struct{ Elicitations []json.RawMessage }
	_ = json.Unmarshal(refusal.Data, &data)
	e := &URLRequiredError{refusal: refusal}
	for _, params := range data.Elicitations {
		var elicitation struct{ ElicitationID, URL string }
		_ = json.Unmarshal(params, &elicitation)
		e.URLs = append(e.URLs, elicitation.URL)
		e.visits = append(e.visits, urlVisit{elicitation.ElicitationID, params})
	}
	if len(e.visits) == 0 {
		return nil
	}
	return e
}

// sendWithURLs is send. If the server refuses the request until the user has been to a URL, it asks
// the user, and sends the request once more. Another refusal of that kind ends it.
func (c *Client) sendWithURLs(ctx context.Context, r *request) (json.RawMessage, error) {
	raw, err := c.send(ctx, r)
	if err == nil {
		return raw, nil
	}
	required := asURLRequired(err)
	if required == nil {
		return nil, err
	}
	isDone, err := c.visitAll(ctx, r, required.visits)
	if err != nil {
		return nil, err
	}
	if !isDone {
		return nil, required
	}
	raw, err = c.send(ctx, r)
	required = asURLRequired(err)
	if required != nil {
		return nil, required
	}
	return raw, err
}

// visitAll has the user go to each URL, one after the other, and reports whether all is done.
// Nobody is asked for a request that only lists: it may be one of the program's own.
func (c *Client) visitAll(ctx context.Context, r *request, visits []urlVisit) (bool, error) {
	_, hasUser := c.options.Answers["elicitation/create"]
	if !hasUser || !r.mayAsk {
		return false, nil
	}
	err := c.countQuestions(r, len(visits))
	if err != nil {
		return false, err
	}
	for _, v := range visits {
		isDone, err := c.visit(ctx, v)
		if err != nil || !isDone {
			return false, err
		}
	}
	return true, nil
}

// askIfDone has the params of an elicitation/create: a form without fields, which is a question of
// yes or no.
const askIfDone = `{"message":"Is it done in the browser? Then the request is sent again.",` +
	`"requestedSchema":{"type":"object","properties":{}}}`

// errVisited is the cause with which the questions about a URL end when the server tells that it
// has what it needs.
var errVisited = errors.New("the server has what it needs")

// visit asks the user to open a URL, and then whether it is done there: to agree to open it does
// not mean that. It reports whether it is done.
func (c *Client) visit(ctx context.Context, v urlVisit) (isDone bool, err error) {
	ctx, forget := c.visits.begin(ctx, v.id)
	defer forget()
	isDone, err = c.isAccepted(ctx, v.params)
	if isDone {
		isDone, err = c.isAccepted(ctx, json.RawMessage(askIfDone))
	}
	if context.Cause(ctx) == errVisited {
		return true, nil
	}
	return isDone, err
}

// isAccepted asks the user a question of the server, and reports whether the user accepts.
func (c *Client) isAccepted(ctx context.Context, params json.RawMessage) (bool, error) {
	const method = "elicitation/create"
	reply, err := c.answerQuestion(ctx, method, params)
	if err != nil {
		return false, fmt.Errorf("the server asks for %s: %w", method, asOurError(err))
	}
	text, err := json.Marshal(reply)
	if err != nil {
		return false, err
	}
	var result struct{ Action string }
	err = json.Unmarshal(text, &result)
	return result.Action == "accept", err
}

// visits are the URLs that the user is being asked about.
type visits struct {
	mu   sync.Mutex // guards the following
	byID map[string]context.CancelCauseFunc
}

// begin returns a ctx that also ends when the server tells that it has what it needs. The caller
// calls forget. If a server uses an id twice at the same time, it can tell of one of the two.
func (v *visits) begin(ctx context.Context, id string) (_ context.Context, forget func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	v.mu.Lock()
	defer v.mu.Unlock()
	v.byID[id] = cancel
	return ctx, func() {
		cancel(nil)
		v.mu.Lock()
		defer v.mu.Unlock()
		delete(v.byID, id)
	}
}

// complete takes the server's word that it has what it needs. An id that nobody waits for means
// nothing (MCP 2025-11-25, client, elicitation, completion notifications).
func (v *visits) complete(id string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	cancel := v.byID[id]
	if cancel != nil {
		cancel(errVisited)
	}
}
