// library_http_answer.go - an answer over HTTP: one message as JSON, or several as a stream of events.
// Needs: Go 1.25, json.go, rpc.go.
// SPDX-License-Identifier: 0BSD

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"
)

const (
	writeTime = 30 * time.Second // for the client to take what is written
	quietTime = 15 * time.Second // after which a stream says that it is still there; proxies wait a minute
)

// httpRefusal is an error that is the whole answer, with its status.
type httpRefusal struct {
	status int
	err    error
}

func (e *httpRefusal) Error() string { return e.err.Error() }
func (e *httpRefusal) Unwrap() error { return e.err }

func refuse(status int, format string, args ...any) error {
	return &httpRefusal{status, &Error{Code: CodeInvalidRequest, Message: fmt.Sprintf(format, args...)}}
}

// httpAnswer is the answer to one request: JSON if the response is all there is to say, else a stream of server-sent events.
type httpAnswer struct {
	w         http.ResponseWriter
	control   *http.ResponseController
	id        json.RawMessage // of the JSON-RPC request; nil if there is none, or it is not known yet
	streaming bool

	writing sync.Mutex // held during a write to the stream, which writeTime bounds
	ended   chan struct{}
	alive   sync.WaitGroup // keepAlive
}

func newHTTPAnswer(w http.ResponseWriter) *httpAnswer {
	return &httpAnswer{w: w, control: http.NewResponseController(w), ended: make(chan struct{})}
}

// stream makes the answer a stream.
func (a *httpAnswer) stream() {
	if a.streaming {
		return
	}
	a.streaming = true
	a.w.Header().Set("Content-Type", "text/event-stream")
	a.w.Header().Set("Cache-Control", "no-store")
	a.w.Header().Set("X-Accel-Buffering", "no") // or a proxy keeps what comes until there is more
	a.w.WriteHeader(http.StatusOK)
	a.alive.Go(a.keepAlive)
}

// keepAlive sends comments, lest a proxy take a quiet stream for a dead one. It ends with the answer.
func (a *httpAnswer) keepAlive() {
	tick := time.NewTicker(quietTime)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if a.writing.TryLock() { // else something is being written, which is as good
				_ = a.write(":\n\n") // a failure ends the request's ctx
				a.writing.Unlock()
			}
		case <-a.ended:
			return
		}
	}
}

// event sends a message on the stream.
func (a *httpAnswer) event(message []byte) error {
	a.writing.Lock()
	defer a.writing.Unlock()
	return a.write("data: " + string(message) + "\n\n")
}

func (a *httpAnswer) write(text string) error {
	_ = a.control.SetWriteDeadline(time.Now().Add(writeTime))
	if _, err := io.WriteString(a.w, text); err != nil {
		return err
	}
	return a.control.Flush()
}

// notify sends a notification before the response.
func (a *httpAnswer) notify(_ context.Context, method string, params any) error {
	message, err := appendRequest(0, method, func(b []byte, _ int64) ([]byte, error) { return appendJSON(b, params) })
	if err != nil {
		return err
	}
	a.stream()
	return a.event(message)
}

// respond sends the response. A failure has nobody to be told.
func (a *httpAnswer) respond(status int, message []byte) {
	if a.streaming {
		_ = a.event(message)
		return
	}
	a.w.Header().Set("Content-Type", "application/json")
	a.w.Header().Set("Content-Length", strconv.Itoa(len(message)))
	_ = a.control.SetWriteDeadline(time.Now().Add(writeTime))
	a.w.WriteHeader(status)
	_, _ = a.w.Write(message)
}

// refuse sends an error. One that answers no request has no id, not even null (MCP 2026-07-28, Streamable HTTP).
func (a *httpAnswer) refuse(err error) {
	answer := struct {
		Version string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id,omitempty"`
		Error   *Error          `json:"error"`
	}{"2.0", a.id, &Error{Code: CodeInternalError, Message: err.Error()}}
	errors.As(err, &answer.Error)
	status := http.StatusInternalServerError
	if refusal := (*httpRefusal)(nil); errors.As(err, &refusal) {
		status = refusal.status
	}
	message, _ := json.Marshal(answer)
	a.respond(status, message)
}

// end returns when nobody writes to the answer any more.
func (a *httpAnswer) end() {
	close(a.ended)
	a.alive.Wait()
}
