package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"gotest.tools/v3/assert"
)

// The tests of the protocol have one server: a transcript, on a pipe or over HTTP, or the test itself, line by line
// (rawPeer). testdata/transcripts/README.md says how a transcript is read.

// rewriteTranscripts: go test -run Transcripts -rewrite writes the lines -> = ! as they are now, also those that are
// missing.
var rewriteTranscripts = flag.Bool("rewrite", false, "rewrite what the client does in testdata/transcripts")

const endOfSession = "(end)"

// session is one session of a transcript.
type session struct {
	revision string        // for "both"
	noProbe  string        // Server.NoProbe
	client   *Client       // nil before it is connected
	conn     *Conn         // of the client; or alone, of * Conn
	server   *Lines        // nil over HTTP
	read     chan struct{} // closed when the server has read all; nil before the first start
	hangUp   func()        // ends the server's side
	last     *sentByUs     // of the lines ->
	status   string        // of a line <- whose body may follow
	answers  chan string   // of the lines * answer
	ended    bool          // the client was closed
	work     sync.WaitGroup

	mu     sync.Mutex // guards the following
	sent   []*sentByUs
	events []string
	calls  map[string]*sessionCall
}

// sentByUs is a message of the client.
type sentByUs struct {
	text   string
	header http.Header            // over HTTP
	answer chan<- *answerOverHTTP // over HTTP
	wireRequest
}

type answerOverHTTP struct {
	*http.Response
	err error
}

// sessionCall is a call of a method.
type sessionCall struct {
	cancel  context.CancelCauseFunc
	outcome string // empty before it has returned
}

// scripted is an error that a transcript makes: of the user, or why a ctx ends.
type scripted string

func (e scripted) Error() string { return string(e) }

// sessionOptions are those of * Connect.
type sessionOptions struct {
	Info                Implementation
	Protocol            string
	Timeout, MaxTimeout string
	Answers             []string // methods
	Log                 *string  // the level
	HTTP                bool
	Capabilities        json.RawMessage // of * Connected
	Trace               bool
	Tasks               bool
	NoProbe             bool // the file Server.NoProbe exists
	MaxQuestions        int
}

func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/transcripts/*.txt")
	assert.NilError(t, err)
	assert.Assert(t, len(files) > 10)
	for _, path := range files {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			checkLeaks(t)
			var played []string
			for _, lines := range sessionsOf(t, path) {
				name, _ := strings.CutPrefix(lines[0], "== ")
				t.Run(name, func(t *testing.T) {
					now, err := playSession(t, lines)
					played = append(played, now...)
					assert.NilError(t, err, path)
				})
			}
			if *rewriteTranscripts {
				assert.NilError(t, os.WriteFile(path, []byte(strings.Join(played, "\n")+"\n"), 0o644))
			}
		})
	}
}

// TestTranscriptsDiffer: a transcript with another byte in any line about the client does not pass, nor one without
// the line.
func TestTranscriptsDiffer(t *testing.T) {
	if *rewriteTranscripts {
		t.Skip("nothing differs while rewriting")
	}
	checkLeaks(t)
	for _, name := range []string{"2025-11-25", statelessRevision, "http", "time"} {
		sessions := sessionsOf(t, "testdata/transcripts/"+name+".txt")
		lines := sessions[min(1, len(sessions)-1)]
		for i, line := range lines {
			mark, rest, _ := strings.Cut(line, " ")
			if mark == "" || strings.Contains("#<*", mark[:1]) || mark == "==" {
				continue
			}
			differs := slices.Clone(lines)
			if differs[i] = mark + "  " + rest; mark == "@" {
				differs[i] = "@ 1m" + rest
			}
			_, err := playSession(t, differs)
			assert.ErrorContains(t, err, "\n"+differs[i]+"\n", "%s", name)
			differs[i] = "#"
			_, err = playSession(t, differs)
			optional := rest == endOfSession || strings.HasPrefix(rest, "POST ")
			assert.Assert(t, err != nil || optional, "%s without %s", name, line)
		}
	}
}

// sessionsOf returns the lines of each session of a file, the first of which may be only a comment.
func sessionsOf(t testing.TB, path string) (sessions [][]string) {
	t.Helper()
	text, err := os.ReadFile(path)
	assert.NilError(t, err)
	sessions = [][]string{nil}
	for line := range strings.SplitSeq(strings.TrimSuffix(string(text), "\n"), "\n") {
		if strings.HasPrefix(line, "== ") {
			sessions = append(sessions, nil)
		}
		last := &sessions[len(sessions)-1]
		*last = append(*last, line)
	}
	return sessions
}

// playSession plays a session. It returns the lines as they are, with those that are missing if they are being
// rewritten, and which was the first to be wrong.
func playSession(t *testing.T, lines []string) (played []string, err error) {
	revisions := []string{""}
	if strings.Contains(strings.Join(lines, "\n"), "\n* Connected both") {
		revisions = bothEras()
	}
	for _, revision := range revisions {
		synctest.Test(t, func(t *testing.T) {
			s := &session{revision: revision, noProbe: filepath.Join(t.TempDir(), "file"), hangUp: func() {},
				answers: make(chan string)}
			s.calls = make(map[string]*sessionCall)
			defer s.end()
			played = nil
			for _, line := range lines {
				if *rewriteTranscripts && s.status != "" && line != "" && !strings.Contains("<#", line[:1]) {
					s.answer("")
				}
				if *rewriteTranscripts && (line == "-> (end)" || line != "" && strings.Contains("<*@", line[:1])) {
					synctest.Wait()
					played = insert(played, s.unexpected())
				}
				written := line
				for _, step := range s.expanded(line) {
					got, wrong := s.step(t.Context(), step)
					if wrong != nil && err == nil {
						err = fmt.Errorf("%s\n%s\n%w", revision, step, wrong)
					}
					if err != nil && !*rewriteTranscripts {
						return
					}
					if step == line {
						written = got
					}
				}
				played = append(played, written)
			}
			s.finish()
			left := s.unexpected()
			if played = insert(played, left); len(left) > 0 && err == nil && !*rewriteTranscripts {
				err = fmt.Errorf("%s\nwhat the session does not expect:\n%s", revision, strings.Join(left, "\n"))
			}
		})
	}
	return played, err
}

// expanded returns the lines that a line stands for.
func (s *session) expanded(line string) []string {
	options, ok := strings.CutPrefix(line, "* Connected ")
	if !ok {
		return []string{line}
	}
	revision, options, _ := strings.Cut(options, " ")
	if revision == "both" {
		revision = s.revision
	}
	o := sessionOptions{Capabilities: json.RawMessage(
		`{"tools":{},"resources":{"subscribe":true},"prompts":{},"completions":{}}`)}
	_ = json.Unmarshal([]byte(options), &o)
	connect := fmt.Sprintf(`* Connect {"protocol":%q,%s`, revision, strings.TrimPrefix(cmp.Or(options, "{}"), "{"))
	connect = strings.Replace(connect, ",}", "}", 1)
	if revision == statelessRevision {
		return []string{connect, "-> server/discover", "<= " + discovery(string(o.Capabilities)), "= …"}
	}
	result := introduced(revision, string(o.Capabilities))
	return []string{connect, "-> initialize", "<= " + result, "-> notifications/initialized", "= …"}
}

// step does what a line says, and returns it as it is.
func (s *session) step(ctx context.Context, line string) (string, error) {
	mark, text, _ := strings.Cut(line, " ")
	if mark == "" || mark[0] == '#' || mark == "==" {
		return line, nil
	}
	if s.status != "" && mark[0] != '<' {
		s.answer("")
	}
	synctest.Wait()
	name := mark[1:]
	switch {
	case s.last == nil && (mark == "<=" || mark == "<-" && s.server == nil):
		return line, errors.New("there is nothing to answer")
	case mark == "->" && strings.HasPrefix(text, "POST "):
		return line, s.expectHeader(text)
	case mark == "->":
		return s.expectMessage(line, text)
	case mark == "<-" && s.server == nil && len(text) > 2 && '1' <= text[0] && text[0] <= '5':
		s.status = text
		return line, nil
	case mark == "<-" && text == endOfSession:
		s.hangUp()
		return line, nil
	case mark == "<-":
		return line, s.send(text)
	case mark == "<=":
		member := `"result":` + text
		if failure, ok := strings.CutPrefix(text, "error "); ok {
			member = `"error":` + failure
		}
		return line, s.send(`{"jsonrpc":"2.0","id":` + string(s.last.ID) + `,` + member + `}`)
	case mark == "@":
		return line, s.sleep(text)
	case mark[0] == '*':
		return line, s.begin(ctx, name, text)
	case mark[0] == '=':
		return s.expectOutcome(line, name, text)
	case mark[0] == '!':
		return s.expectEvent(line, text)
	}
	return line, errors.New("a line with an unknown mark")
}

// matches reports whether a text is as it is expected, where … is any text.
func matches(pattern, text string) bool {
	parts := strings.Split(pattern, "…")
	rest, ok := strings.CutPrefix(text, parts[0])
	for _, part := range parts[1:] {
		i := strings.Index(rest, part)
		if part == parts[len(parts)-1] {
			i = strings.LastIndex(rest, part)
		}
		if ok = ok && i >= 0; ok {
			rest = rest[i+len(part):]
		}
	}
	return ok && rest == ""
}

// expected is the line if it holds, else what is there instead, and an error.
func expected(line, mark, got string, ok bool) (string, error) {
	switch {
	case ok:
		return line, nil
	case got == "":
		return line, errors.New("there is nothing")
	}
	return mark + " " + got, errors.New("but it is: " + got)
}

func (s *session) expectHeader(text string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.sent) == 0 {
		return errors.New("there is nothing")
	}
	name, value, _ := strings.Cut(strings.TrimPrefix(text, "POST "), ":")
	if got := s.sent[0].header.Get(name); got != strings.TrimPrefix(value, " ") {
		return fmt.Errorf("but it is: %q", got)
	}
	return nil
}

func (s *session) expectMessage(line, text string) (string, error) {
	if text == endOfSession && len(s.sent) == 0 {
		s.close()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.sent) == 0 {
		return expected(line, "->", "", false)
	}
	s.last, s.sent = s.sent[0], s.sent[1:]
	return expected(line, "->", s.last.text, s.last.Method != "" && s.last.Method == text || matches(text, s.last.text))
}

func (s *session) expectOutcome(line, name, text string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.calls[name]
	if c == nil || c.outcome == "" {
		return expected(line, "="+name, "", false)
	}
	delete(s.calls, name)
	return expected(line, "="+name, c.outcome, matches(text, c.outcome))
}

func (s *session) expectEvent(line, text string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.events) == 0 {
		return expected(line, "!", "", false)
	}
	got := s.events[0]
	s.events = s.events[1:]
	mark, rest, _ := strings.Cut(got, " ")
	return expected(line, mark, rest, strings.HasPrefix(line, mark+" ") && matches(text, rest))
}

// unexpected takes what is there and returns the lines for it.
func (s *session) unexpected() (lines []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for ; len(s.sent) > 0 && (s.sent[0].text != endOfSession || s.ended); s.sent = s.sent[1:] {
		s.last = s.sent[0]
		meta := strings.TrimSuffix(strings.TrimPrefix(statelessMeta, `"_meta":{`), "}")
		lines = append(lines, "-> "+strings.Replace(s.last.text, meta, "…", 1))
	}
	lines, s.events = append(lines, s.events...), nil
	for name, c := range s.calls {
		if c.outcome != "" {
			lines = append(lines, "="+name+" "+c.outcome)
			delete(s.calls, name)
		}
	}
	return lines
}

// insert adds lines before the comment that is to be the next lines'.
func insert(played, lines []string) []string {
	at := len(played)
	for at > 0 && (played[at-1] == "" || played[at-1][0] == '#') {
		at--
	}
	return slices.Insert(played, at, lines...)
}

// sleep lets a time pass, until the end of which nothing may happen.
func (s *session) sleep(text string) error {
	d, err := time.ParseDuration(text)
	if err != nil {
		return err
	}
	time.Sleep(d - 1)
	synctest.Wait()
	if early := s.unexpected(); len(early) > 0 {
		return fmt.Errorf("before it is over:\n%s", strings.Join(early, "\n"))
	}
	time.Sleep(1)
	synctest.Wait()
	return nil
}

// send sends the client a line, or the answer to the last of its messages.
func (s *session) send(text string) error {
	if s.server != nil {
		return s.server.Write(context.Background(), Outgoing{Text: []byte(text)})
	}
	if s.status == "" {
		s.status = "200"
	}
	s.answer(text)
	return nil
}

func (s *session) answer(body string) {
	status, header, _ := strings.Cut(s.status, " ")
	s.status = ""
	answer := s.last.answer
	s.last = nil
	if body == "(lost)" {
		answer <- &answerOverHTTP{err: errors.New("the connection breaks off")}
		return
	}
	r := &http.Response{Header: http.Header{"Content-Type": {"application/json"}}}
	r.Body = io.NopCloser(strings.NewReader(body))
	r.StatusCode, _ = strconv.Atoi(status)
	if name, value, ok := strings.Cut(header, ": "); ok {
		r.Header.Set(name, value)
	}
	answer <- &answerOverHTTP{Response: r}
}

// RoundTrip is the server over HTTP. It has no stream for GET.
func (s *session) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodPost {
		status := map[string]int{http.MethodGet: 405, http.MethodDelete: 200}[r.Method]
		return &http.Response{StatusCode: status, Body: http.NoBody}, nil
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	answer := make(chan *answerOverHTTP, 1)
	s.receive(&sentByUs{text: string(body), header: r.Header, answer: answer})
	select {
	case a := <-answer:
		return a.Response, a.err
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

func (s *session) receive(m *sentByUs) {
	_ = json.Unmarshal([]byte(m.text), &m.wireRequest)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent = append(s.sent, m)
}

// start is the client's way to the server.
func (s *session) start(context.Context) (Transport, error) {
	if s.read != nil {
		<-s.read // its (end) comes before what is sent to this one
	}
	ours, theirs := memoryPair()
	read := make(chan struct{})
	s.read = read
	var gone atomic.Bool // what the client does then is not seen
	hangUp := sync.OnceFunc(func() { gone.Store(true); theirs.Close() })
	s.server, s.hangUp = theirs, hangUp
	s.work.Go(func() {
		defer close(read)
		for {
			line, err := theirs.Read()
			if gone.Load() {
				return
			}
			if err != nil {
				line = []byte(endOfSession)
			}
			if s.receive(&sentByUs{text: string(line)}); err != nil {
				hangUp() // the client may start another
				return
			}
		}
	})
	return ours, nil
}

func (s *session) event(name, what string, v any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := "!" + name + " " + what
	if plain, ok := v.(string); ok {
		text += " " + plain
	} else if v != nil {
		text += " " + unescapedJSON(v)
	}
	s.events = append(s.events, text)
}

func (s *session) taskEvent(_ context.Context, e TaskEvent) {
	state := map[bool]string{false: "begun", true: "ended"}[e.Ended]
	s.event("", "task", fmt.Sprintf("%s %s of %s %s", state, e.ID, e.Tool, e.Arguments))
}

func (s *session) trace(sent bool, text []byte) {
	s.event("", "trace", fmt.Sprint(sent, " ", string(text)))
}

func unescapedJSON(v any) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err.Error()
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// begin calls a method in the background, or does what another line * says.
func (s *session) begin(ctx context.Context, name, text string) error {
	method, arguments, _ := strings.Cut(text, " ")
	s.mu.Lock()
	c := s.calls[name]
	s.mu.Unlock()
	switch {
	case method == "answer":
		s.answers <- arguments
	case method == "cancel" && c != nil:
		c.cancel(scripted(arguments))
	case c != nil || method == "cancel":
		return errors.New("there is a call, or there is none")
	default:
		ctx, cancel := context.WithCancelCause(ctx)
		c := &sessionCall{cancel: cancel}
		s.mu.Lock()
		s.calls[name] = c
		s.mu.Unlock()
		s.work.Go(func() {
			outcome := outcomeOf(s.call(ctx, name, method, arguments))
			s.mu.Lock()
			defer s.mu.Unlock()
			c.outcome = outcome
		})
	}
	return nil
}

// call calls a method. Its arguments are words, which may be in quotes.
func (s *session) call(ctx context.Context, name, method, arguments string) (any, error) {
	c := s.client
	word, rest := cutWord(arguments)
	progress := func(p Progress) { s.event(name, "progress", p) }
	switch method {
	case "Connect":
		return s.connect(ctx, arguments)
	case "CallTool":
		return c.CallTool(ctx, word, json.RawMessage(unquoted(rest)), progress)
	case "CallQuietly":
		return c.CallTool(ctx, word, json.RawMessage(unquoted(rest)), nil)
	case "Task":
		return c.Task(ctx, word, progress)
	case "GetTask":
		return c.GetTask(ctx, word)
	case "CancelTask":
		return nil, c.CancelTask(ctx, word)
	case "ListTasks":
		return c.ListTasks(ctx)
	case "CallRepeatable":
		return c.CallTool(Repeatable(ctx), word, nil, nil)
	case "ListTools":
		return c.ListTools(ctx)
	case "ListResources":
		return c.ListResources(ctx)
	case "ListResourceTemplates":
		return c.ListResourceTemplates(ctx)
	case "ListPrompts":
		return c.ListPrompts(ctx)
	case "ReadResource":
		return c.ReadResource(ctx, word)
	case "GetPrompt":
		var known map[string]string
		_ = json.Unmarshal([]byte(rest), &known)
		return c.GetPrompt(ctx, word, known)
	case "Complete": // reference, name, value, known
		var r Reference
		var known map[string]string
		_ = json.Unmarshal([]byte(word), &r)
		argument, rest := cutWord(rest)
		value, rest := cutWord(rest)
		_ = json.Unmarshal([]byte(rest), &known)
		return c.Complete(ctx, r, argument, value, known)
	case "Listen":
		var wanted Subscription
		_ = json.Unmarshal([]byte(arguments), &wanted)
		return nil, c.Listen(ctx, wanted, func(change Change) { s.event(name, "change", change) })
	case "Ping":
		return nil, c.Ping(ctx)
	case "ForgetLists":
		c.ForgetLists(word)
		return nil, nil
	}
	return s.callConn(ctx, method, word, rest)
}

// callConn calls a method of Conn.
func (s *session) callConn(ctx context.Context, method, word, rest string) (raw json.RawMessage, err error) {
	params := json.RawMessage(unquoted(rest))
	if rest == "" {
		params = nil
	}
	switch method {
	case "Conn":
		return nil, s.newConn(ctx, word)
	case "Call":
		return raw, s.conn.Call(ctx, word, params, &raw)
	case "Do": // with its id as params
		m := Outgoing{ID: s.conn.NextID(), Method: word}
		m.Text = append(AppendRequest(nil, m.ID, m.Method), fmt.Sprintf(`,"params":[%d]}`, m.ID)...)
		return s.conn.Do(ctx, m)
	case "Notify":
		return nil, s.conn.Notify(ctx, word, params)
	case "Cancel":
		id, _ := strconv.ParseInt(word, 10, 64)
		s.conn.Cancel(id, scripted(rest))
		return nil, nil
	case "Wait":
		return nil, s.conn.Wait()
	case "Close":
		return nil, s.conn.Close()
	}
	return nil, errors.New("an unknown method")
}

// newConn begins a connection without a client. Its peer's requests are asked of the user, and cancelled by the
// notification "cancel".
func (s *session) newConn(ctx context.Context, options string) error {
	var o sessionOptions
	_ = json.Unmarshal([]byte(options), &o)
	h := Handler{
		Request: func(ctx context.Context, c *Conn, method string, params json.RawMessage) (any, error) {
			var result json.RawMessage
			s.event("", "id", requestID(c, ctx))
			return result, s.ask(ctx, method, params, &result)
		},
		Notification: func(c *Conn, method string, params json.RawMessage) {
			if s.event("", "told "+method, params); method == "cancel" {
				c.CancelRequest(params)
			}
		},
		Skipped: func(message []byte, reason error) { s.event("", "stray", fmt.Sprintf("%.20s: %v", message, reason)) },
		Abandoned: func(_ context.Context, _ *Conn, id int64, method string, cause error) {
			s.event("", "abandoned", fmt.Sprint(id, " ", method, ": ", cause))
		},
	}
	if o.Trace {
		h.Trace = s.trace
	}
	transport, err := s.start(ctx)
	s.conn = NewConn(transport, h)
	return err
}

func cutWord(text string) (word, rest string) {
	word, rest, _ = strings.Cut(text, " ")
	return unquoted(word), rest
}

func unquoted(word string) string {
	var text string
	if strings.HasPrefix(word, `"`) && json.Unmarshal([]byte(word), &text) == nil {
		return text
	}
	return word
}

// outcomeOf is what a call has returned, as a line.
func outcomeOf(value any, err error) string {
	if err == nil {
		return unescapedJSON(value)
	}
	var kinds []string
	kind := func(name string, is bool) {
		if is {
			kinds = append(kinds, name)
		}
	}
	kind("ErrClosed", errors.Is(err, ErrClosed))
	kind("ErrUnexpectedEOF", errors.Is(err, io.ErrUnexpectedEOF))
	kind("Error", errors.As(err, new(*Error)))
	kind("HTTPError", errors.As(err, new(*HTTPError)))
	kind("ProtocolError", errors.As(err, new(*ProtocolError)))
	kind("TimeoutError", errors.As(err, new(*TimeoutError)) && errors.Is(err, context.DeadlineExceeded))
	kind("NotDeclaredError", errors.As(err, new(*NotDeclaredError)))
	var task *TaskError
	if errors.As(err, &task) {
		kind("TaskError", !task.Open)
		kind("open TaskError", task.Open)
	}
	kind("ErrTaskForgotten", errors.Is(err, ErrTaskForgotten))
	kind("ErrTaskCancelled", errors.Is(err, ErrTaskCancelled))
	kind("ErrTaskExpired", errors.Is(err, ErrTaskExpired))
	kind("ours", errors.As(err, new(scripted)))
	text := cmp.Or(strings.Join(kinds, "+"), "error") + ": " + strings.ReplaceAll(err.Error(), "\n", `\n`)
	if list := unescapedJSON(value); strings.HasPrefix(list, "[") {
		text += "; but " + list
	}
	return text
}

func (s *session) connect(ctx context.Context, arguments string) (any, error) {
	var o sessionOptions
	if err := json.Unmarshal([]byte(cmp.Or(arguments, "{}")), &o); err != nil {
		return nil, err
	}
	options := &ClientOptions{
		Info: o.Info, Protocol: o.Protocol,
		Skipped: func(_ []byte, reason error) { s.event("", "stray", reason.Error()) },
		Warn:    func(text string) { s.event("", "warn", text) },
		Answers: make(map[string]Responder),
		Tasks:   o.Tasks, MaxQuestions: o.MaxQuestions,
		OnTask: s.taskEvent,
	}
	options.Timeout, _ = time.ParseDuration(o.Timeout)
	options.MaxTimeout, _ = time.ParseDuration(o.MaxTimeout)
	if o.Trace {
		options.Trace = s.trace
	}
	if o.Log != nil {
		options.LogLevel = *o.Log
		options.Log = func(m LogMessage) { s.event("", "log", m) }
	}
	for _, method := range o.Answers {
		switch method {
		case "roots/list":
			options.Answers[method] = RootsAnswer(func(ctx context.Context) (roots []Root, err error) {
				err = s.ask(ctx, method, nil, &roots)
				return roots, err
			})
		case "elicitation/create":
			options.Answers[method] = ElicitAnswer(func(ctx context.Context, r *ElicitRequest) (*ElicitResult, error) {
				result := new(ElicitResult)
				return result, s.ask(ctx, method, r, result)
			})
		case "sampling/createMessage":
			options.Answers[method] = SampleAnswer(func(ctx context.Context, r *SampleRequest) (*SampleResult, error) {
				result := new(SampleResult)
				return result, s.ask(ctx, method, r, result)
			})
		default: // what a program may add
			reply := func(ctx context.Context, params json.RawMessage) (any, error) {
				var result json.RawMessage
				return result, s.ask(ctx, method, params, &result)
			}
			options.Answers[method] = Responder{Capability: "x/" + method, Reply: reply}
		}
	}
	start := s.start
	if o.HTTP {
		start = (&HTTP{URL: "http://peer/", Client: &http.Client{Transport: s}}).Start
	}
	server := Server{Start: start, NoProbe: s.noProbe}
	if o.NoProbe {
		server.rememberNoProbe()
	}
	client, err := server.Connect(ctx, *options)
	if _, missing := os.Stat(s.noProbe); (missing == nil) != o.NoProbe {
		s.event("", "noProbe", missing == nil)
	}
	if err != nil {
		return nil, err
	}
	s.client, s.conn = client, client.conn
	return client.Server, nil
}

// ask waits for the user's answer, a line * answer.
func (s *session) ask(ctx context.Context, method string, question, answer any) error {
	s.event("", "asked "+method, question)
	select {
	case text := <-s.answers:
		failure, failed := strings.CutPrefix(text, "error ")
		e := new(Error)
		switch {
		case failed && json.Unmarshal([]byte(failure), e) == nil:
			return e
		case failed:
			return scripted(failure)
		}
		return json.Unmarshal([]byte(text), answer)
	case <-ctx.Done():
		s.event("", "cause", context.Cause(ctx).Error())
		return context.Cause(ctx)
	}
}

// close closes the client, if there is one.
func (s *session) close() {
	if s.conn == nil || s.ended {
		return
	}
	if s.ended = true; s.client != nil {
		s.client.Close()
	}
	s.conn.Close()
	synctest.Wait()
}

// finish closes the client and forgets that it did: what else is there was not expected.
func (s *session) finish() {
	if s.status != "" {
		s.answer("")
	}
	synctest.Wait()
	if s.close(); len(s.sent) > 0 && s.sent[len(s.sent)-1].text == endOfSession {
		s.sent = s.sent[:len(s.sent)-1]
	}
	for name, c := range s.calls {
		if c.outcome == "" {
			s.events = append(s.events, "="+name+" (nothing yet)")
		}
	}
	c := s.client
	if c != nil && atWork(c) > 0 || s.conn != nil && waiting(s.conn) > 0 {
		s.events = append(s.events, "! the client has not forgotten what is over")
	}
}

// atWork counts the requests, Listens and questions of the server that have no end yet.
func atWork(c *Client) int {
	c.inFlight.mu.Lock()
	defer c.inFlight.mu.Unlock()
	return len(c.inFlight.requests) + len(c.listeners.all()) + c.inFlight.questions
}

// end ends whatever is left.
func (s *session) end() {
	for _, c := range s.calls {
		c.cancel(scripted("the session is over"))
	}
	synctest.Wait()
	s.hangUp()
	s.close()
	s.work.Wait()
}

// discovery is the result of server/discover, introduced that of initialize.
func discovery(capabilities string) string {
	return `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":` + capabilities +
		`,"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"fake","version":"1"}}}`
}

func introduced(revision, capabilities string) string {
	return `{"protocolVersion":"` + revision + `","capabilities":` + capabilities +
		`,"serverInfo":{"name":"fake","version":"1"}}`
}

// memoryPair is a transport in memory and its other end.
func memoryPair() (*Lines, *Lines) {
	ar, bw := io.Pipe()
	br, aw := io.Pipe()
	return NewLines(ar, aw), NewLines(br, bw)
}

// rawPeer is the other end of a connection, played by the test line by line.
type rawPeer struct {
	t *testing.T
	*Lines
	hangUp func()
}

// newRawPeer returns a connection and its peer.
func newRawPeer(t *testing.T, h Handler) (*Conn, rawPeer) {
	left, right := memoryPair()
	c := NewConn(left, h)
	peer := rawPeer{t, right, sync.OnceFunc(func() { right.Close() })}
	t.Cleanup(func() { c.Close(); peer.hangUp() })
	return c, peer
}

func (p rawPeer) expect(want string) {
	p.t.Helper()
	got, err := p.Read()
	assert.NilError(p.t, err)
	assert.Equal(p.t, string(got), want)
}

func (p rawPeer) send(lines ...string) {
	p.t.Helper()
	for _, line := range lines {
		assert.NilError(p.t, p.Write(context.Background(), outgoing(line)))
	}
}

// wireRequest is a request of the client.
type wireRequest struct {
	ID     json.RawMessage
	Method string
	Params json.RawMessage
}

// connectOver is Connect over a transport that has been started already, and cannot be started a second time.
func connectOver(ctx context.Context, t Transport, o *ClientOptions) (*Client, error) {
	return Connect(ctx, func(context.Context) (Transport, error) {
		if t == nil {
			return nil, errors.New("started a second time")
		}
		defer func() { t = nil }()
		return t, nil
	}, o)
}

// outgoing is a message as the client sends it, with what it knows of it.
func outgoing(text string) Outgoing {
	var m struct {
		ID     json.RawMessage
		Method string
		Params struct {
			Name, URI string
			Meta      struct {
				Revision string `json:"io.modelcontextprotocol/protocolVersion"`
			} `json:"_meta"`
		}
	}
	_ = json.Unmarshal([]byte(text), &m)
	o := Outgoing{Text: []byte(text), Method: m.Method, Revision: m.Params.Meta.Revision}
	if m.Method != "" {
		o.ID, _ = IDNumber(m.ID)
	}
	switch m.Method {
	case "tools/call", "prompts/get":
		o.Name = m.Params.Name
	case "resources/read":
		o.Name = m.Params.URI
	}
	return o
}

// called is what CallTool returned.
type called struct {
	result *ToolResult
	err    error
}

func (c *Client) goCall(ctx context.Context, name string, report func(Progress)) <-chan called {
	done := make(chan called, 1)
	go func() {
		r, err := c.CallTool(ctx, name, nil, report)
		done <- called{r, err}
	}()
	return done
}

// inBackground runs f and returns where its value will be; an error fails the test.
func inBackground[T any](t *testing.T, f func() (T, error)) <-chan T {
	done := make(chan T, 1)
	go func() {
		value, err := f()
		assert.Check(t, err)
		done <- value
	}()
	return done
}

// requestID returns the id of the peer's request whose handler has that ctx.
func requestID(c *Conn, ctx context.Context) json.RawMessage {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.requests.unanswered {
		if s.ctx == ctx {
			return s.ID
		}
	}
	return nil
}

// startStdio starts a server as a child process.
func startStdio(c Command) (*Stdio, error) {
	transport, err := c.Start(context.Background())
	stdio, _ := transport.(*Stdio)
	return stdio, err
}
