package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

// rewriteTranscripts: go test -run Transcript -rewrite takes the client's lines as they are now.
var rewriteTranscripts = flag.Bool("rewrite", false, "rewrite the client's lines in testdata/transcripts")

// endOfSession stands for the end of the client's stream.
const endOfSession = "(end)"

// playTranscript is the server of a transcript: it sends the lines marked <-, and requires those marked ->, byte
// for byte. It returns the transcript with the lines that came, and what was the first to be wrong.
func playTranscript(transcript []byte, peer *Lines) (played []byte, err error) {
	defer peer.Close()
	for i, line := range strings.Split(strings.TrimSuffix(string(transcript), "\n"), "\n") {
		switch direction, text, _ := strings.Cut(line, " "); direction {
		case "#", "":
		case "<-":
			if e := peer.Write(context.Background(), []byte(text)); e != nil {
				err = errors.Join(err, fmt.Errorf("line %d: %w", i+1, e))
			}
		case "->":
			got, e := peer.Read()
			if e == io.EOF {
				got = []byte(endOfSession)
			}
			if string(got) != text && err == nil {
				err = fmt.Errorf("line %d:\nwant %s\ngot  %s", i+1, text, got)
			}
			line = "-> " + string(got)
		default:
			return transcript, fmt.Errorf("line %d begins with none of <- -> #", i+1)
		}
		played = append(append(played, line...), '\n')
		if err != nil && !*rewriteTranscripts {
			return played, err
		}
	}
	return played, err
}

// replay runs a client against a transcript.
func replay(t *testing.T, path string, client func(sessionT, Transport)) {
	transcript, err := os.ReadFile(path)
	assert.NilError(t, err)
	left, right := memoryPair()
	var played []byte
	var wg sync.WaitGroup
	wg.Go(func() { played, err = playTranscript(transcript, right) })
	client(t, left)
	wg.Wait()
	if *rewriteTranscripts {
		assert.NilError(t, os.WriteFile(path, played, 0o644))
		return
	}
	assert.NilError(t, err, path)
}

// sessionT is what a session needs of a test: it goes on after a failure, to its end.
type sessionT interface {
	assert.TestingT
	Context() context.Context
}

// failingT is a test that may fail.
type failingT struct{ ctx context.Context }

func (failingT) FailNow()                   { panic("a session goes on") }
func (failingT) Fail()                      {}
func (failingT) Log(...any)                 {}
func (t failingT) Context() context.Context { return t.ctx }

// onlyText is the text of a result that is one text.
func onlyText(r *ToolResult) string {
	if r == nil || len(r.Content) != 1 || r.Content[0].Type != "text" {
		return fmt.Sprintf("not one text: %+v", r)
	}
	return r.Content[0].Text
}

// transcriptClient is the client of a session, and what it was told and asked.
type transcriptClient struct {
	*Client
	t       sessionT
	logs    []LogMessage // told on the reader, so before any answer that came later
	strays  chan string  // why messages were skipped
	changes chan Change  // what Listen told of
	mu      sync.Mutex   // guards asked
	asked   []string     // what the server asked, in its order
}

// connectTranscript begins a session with a client that offers everything. It returns nil after a failure.
func connectTranscript(t sessionT, transport Transport) *transcriptClient {
	c := &transcriptClient{t: t, strays: make(chan string, 100), changes: make(chan Change, 100)}
	ask := func(what string) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.asked = append(c.asked, what)
	}
	var err error
	c.Client, err = Connect(t.Context(), transport, &ClientOptions{
		Info: Implementation{Name: "transcript", Version: "1"},
		Roots: func(context.Context) ([]Root, error) {
			ask("roots")
			return []Root{{URI: "file:///library", Name: "Library"}}, nil
		},
		Elicit: func(_ context.Context, r *ElicitRequest) (*ElicitResult, error) {
			ask("elicitation: " + r.Message)
			if r.Mode == "url" {
				return &ElicitResult{Action: "decline"}, nil
			}
			return &ElicitResult{Action: "accept", Content: map[string]any{"edition": "1901"}}, nil
		},
		Sample: func(_ context.Context, r *SampleRequest) (*SampleResult, error) {
			for _, message := range r.Messages {
				for _, block := range message.Content {
					ask("sampling: " + block.Text)
				}
			}
			return &SampleResult{Role: "assistant", Content: SampleContent{{Type: "text", Text: "Realism."}}, Model: "small", StopReason: "endTurn"}, nil
		},
		Log:   func(m LogMessage) { c.logs = append(c.logs, m) },
		Stray: func(_ []byte, reason error) { c.strays <- reason.Error() },
	})
	if !assert.Check(t, err) {
		return nil
	}
	return c
}

// awaited is the next of what comes on the connection, or nothing after its end.
func awaited[T any](c *transcriptClient, from <-chan T) (what T) {
	select {
	case what = <-from:
	case <-c.conn.life.Done():
	}
	return what
}

// listTools checks the list of the sessions' server.
func (c *transcriptClient) listTools() {
	tools, err := c.ListTools(c.t.Context())
	assert.Check(c.t, err)
	if assert.Check(c.t, is.Len(tools, 2)) {
		assert.Check(c.t, is.Equal(tools[0].Name, "search_chunks"))
		assert.Check(c.t, is.Equal(tools[1].Name, "parse_pdf"))
		assert.Check(c.t, is.Equal(string(tools[1].InputSchema), `{"type":"object", "properties":{"pdf_path":{"type":"string"}}, "required":["pdf_path"]}`))
	}
}

// wholeSession is what the client does in the transcripts of the revisions.
func wholeSession(revision string) func(sessionT, Transport) {
	return func(t sessionT, transport Transport) {
		c := connectTranscript(t, transport)
		if c == nil {
			return
		}
		defer c.Close()
		assert.Check(t, is.Equal(c.Server.ProtocolVersion, revision))
		c.tools()
		c.resources()
		c.prompts()
		c.subscriptions()
		if revision != statelessRevision {
			assert.Check(t, c.Ping(t.Context()))
		}
		for _, m := range c.logs {
			assert.Check(t, is.Equal(m.Logger+string(m.Data), `search{"took":3}`))
		}
		asked := map[string][]string{
			"2024-11-05": {"roots", "sampling: Which school?"},
			"2025-03-26": {"roots", "sampling: Which school?"},
			"2025-06-18": {"roots", "sampling: Which school?", "elicitation: Which edition?"},
			"2025-11-25": {"roots", "sampling: Which", "sampling: school?", "elicitation: Which edition?", "elicitation: Log in."},
			"2026-07-28": {"elicitation: Which edition?", "roots", "sampling: Which school?"},
		}
		c.mu.Lock()
		assert.Check(t, is.DeepEqual(c.asked, asked[revision]))
		c.mu.Unlock()
	}
}

// tools calls them, after each of two lists.
func (c *transcriptClient) tools() {
	t, ctx := c.t, c.t.Context()
	c.listTools()
	c.listTools() // from the cache

	var progress []Progress
	r, err := c.CallTool(ctx, "search_chunks", json.RawMessage(`{"query":"réalisme","limit":1}`), func(p Progress) { progress = append(progress, p) })
	assert.Check(t, err)
	assert.Check(t, is.Equal(onlyText(r), `{"results":[{"text":"The question of universals…","similarity":0.8}],"total_count":1,"query":"réalisme"}`))
	assert.Check(t, is.DeepEqual(progress, []Progress{{1, 2, ""}, {2, 2, "ranking"}}))

	r, err = c.CallTool(ctx, "parse_pdf", json.RawMessage(`{"pdf_path":"/nope.pdf"}`), nil)
	assert.Check(t, err)
	assert.Check(t, is.Equal(onlyText(r), "file not found: /nope.pdf"))
	assert.Check(t, r != nil && r.IsError)

	_, err = c.CallTool(ctx, "no_such_tool", nil, nil)
	assert.Check(t, is.Error(err, "tools/call no_such_tool: Unknown tool: no_such_tool (error -32602)"))
	c.listTools() // asked for again, as the error may come of an old list

	cancelling, cancel := context.WithCancelCause(ctx)
	_, err = c.CallTool(cancelling, "parse_pdf", json.RawMessage(`{"pdf_path":"/long.pdf"}`), func(Progress) { cancel(errors.New("interrupted")) })
	assert.Check(t, is.Error(err, "tools/call parse_pdf: interrupted"))
	assert.Check(t, is.Contains(awaited(c, c.strays), "nobody waits for a response")) // the answer that comes all the same
}

func (c *transcriptClient) resources() {
	t, ctx := c.t, c.t.Context()
	resources, err := c.ListResources(ctx)
	assert.Check(t, err)
	assert.Check(t, is.DeepEqual(resources, []Resource{{URI: "library://plato", Name: "plato", MIMEType: "text/plain", Size: 9}}))
	templates, err := c.ListResourceTemplates(ctx)
	assert.Check(t, err)
	assert.Check(t, is.DeepEqual(templates, []ResourceTemplate{{URITemplate: "library://{author}", Name: "author"}}))
	contents, err := c.ReadResource(ctx, "library://plato")
	assert.Check(t, err)
	assert.Check(t, is.DeepEqual(contents, []ResourceContents{
		{URI: "library://plato", MIMEType: "text/plain", Text: "The Forms"},
		{URI: "library://plato/bust.png", MIMEType: "image/png", Blob: []byte{1, 2, 3}},
	}))
	_, err = c.ReadResource(ctx, "library://nobody")
	var e *Error
	if assert.Check(t, errors.As(err, &e)) {
		code := map[bool]int64{true: CodeInvalidParams, false: CodeResourceNotFound}[c.stateless()]
		assert.Check(t, is.Equal(e.Code, code))
	}
}

func (c *transcriptClient) prompts() {
	t, ctx := c.t, c.t.Context()
	prompts, err := c.ListPrompts(ctx)
	assert.Check(t, err)
	assert.Check(t, is.DeepEqual(prompts, []Prompt{{Name: "cite", Arguments: []PromptArgument{{Name: "style", Required: true}}}}))
	prompt, err := c.GetPrompt(ctx, "cite", map[string]string{"style": "short"})
	assert.Check(t, err)
	assert.Check(t, prompt != nil && len(prompt.Messages) == 1 && prompt.Messages[0].Content.Text == "Cite in short.")
	completion, err := c.CompletePrompt(ctx, "cite", "style", "s", map[string]string{"language": "en"})
	assert.Check(t, err)
	assert.Check(t, is.DeepEqual(completion, &Completion{Values: []string{"short", "safe"}, Total: 2}))
	completion, err = c.CompleteResource(ctx, "library://{author}", "author", "pl", nil)
	assert.Check(t, err)
	assert.Check(t, is.DeepEqual(completion, &Completion{Values: []string{"plato"}, HasMore: true}))
}

// subscriptions are ended by the client and, in the stateless era, by the server.
func (c *transcriptClient) subscriptions() {
	t := c.t
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := make(chan error, 1)
	s := Subscription{Tools: true, URIs: []string{"library://plato"}}
	go func() { ended <- c.Listen(ctx, s, func(change Change) { c.changes <- change }) }()
	assert.Check(t, is.Equal(awaited(c, c.changes), Change{List: "tools"}))
	assert.Check(t, is.Equal(awaited(c, c.changes), Change{URI: "library://plato"}))
	c.listTools()
	enough := errors.New("seen enough")
	cancel(enough)
	err := <-ended
	assert.Check(t, is.ErrorIs(err, enough))
	if c.stateless() {
		assert.Check(t, is.Contains(awaited(c, c.strays), "nobody waits for a response"))
		assert.Check(t, c.Listen(t.Context(), Subscription{Prompts: true, Resources: true}, func(change Change) { c.changes <- change }))
		assert.Check(t, is.Equal(awaited(c, c.changes), Change{List: "resources"}))
	}
}

// unusualSession is what the client does with a server that does everything in its own way.
func unusualSession(t sessionT, transport Transport) {
	ctx := t.Context()
	var strays []string
	c, err := Connect(ctx, transport, &ClientOptions{
		Info:  Implementation{Name: "transcript", Version: "1"},
		Stray: func(_ []byte, reason error) { strays = append(strays, reason.Error()) },
	})
	if !assert.Check(t, err) {
		return
	}
	defer c.Close()
	assert.Check(t, is.Equal(c.Server.ProtocolVersion, "2025-03-26"))

	// Three calls at once, one after the other, as the server has got them.
	results := make([]<-chan called, 3)
	for i := range results {
		begun := make(chan struct{})
		results[i] = c.goCall(ctx, fmt.Sprintf("tool_%d", i), func(Progress) { close(begun) })
		select {
		case <-begun:
		case <-c.conn.life.Done():
		}
	}
	for i, result := range results {
		got := <-result
		assert.Check(t, got.err)
		assert.Check(t, is.Equal(onlyText(got.result), fmt.Sprintf("answer %d", i)))
	}
	assert.Check(t, c.Ping(ctx))
	assert.Check(t, is.DeepEqual(strays, []string{
		"not a JSON-RPC object",
		"not a JSON-RPC object",
		"not a JSON-RPC object",
		"a response with the id null, which no request had",
		"nobody waits for a response with the id 3",
		"nobody waits for a response with the id 99",
		"not a JSON-RPC object",
	}))
}

// beginning is a session of a beginning alone: revision is what is spoken then, unless failure says what Connect fails with.
func beginning(forced, revision, failure string, wraps error) func(sessionT, Transport) {
	return func(t sessionT, transport Transport) {
		c, err := Connect(t.Context(), transport, &ClientOptions{Info: Implementation{Name: "transcript", Version: "1"}, Protocol: forced})
		if failure != "" {
			assert.Check(t, is.ErrorContains(err, failure))
			if wraps != nil {
				assert.Check(t, is.ErrorIs(err, wraps))
			}
			return
		}
		if !assert.Check(t, err) {
			return
		}
		defer c.Close()
		assert.Check(t, is.Equal(c.Server.ProtocolVersion, revision))
		tools, err := c.ListTools(t.Context())
		assert.Check(t, err)
		assert.Check(t, is.Len(tools, 1))
	}
}

// judgedSession answers a server's questions with as little as there can be.
func judgedSession(t sessionT, transport Transport) {
	texts := SampleContent{{Type: "text", Text: "Realism."}, {Type: "text", Text: ""}}
	c, err := Connect(t.Context(), transport, &ClientOptions{
		Info:     Implementation{Name: "transcript", Version: "1"},
		Protocol: "2025-11-25",
		Roots:    func(context.Context) ([]Root, error) { return nil, nil },
		Elicit: func(context.Context, *ElicitRequest) (*ElicitResult, error) {
			return &ElicitResult{Action: "accept", Content: map[string]any{}}, nil
		},
		Sample: func(context.Context, *SampleRequest) (*SampleResult, error) {
			content := texts
			texts = nil
			return &SampleResult{Role: "assistant", Content: content, Model: "small"}, nil
		},
	})
	if !assert.Check(t, err) {
		return
	}
	defer c.Close()
	result, err := c.CallTool(t.Context(), "ask", nil, nil)
	assert.Check(t, err)
	assert.Check(t, is.Equal(onlyText(result), "thanks"))
}

// transcriptSessions are the sessions of the transcripts, by file name.
func transcriptSessions() map[string]func(sessionT, Transport) {
	const newest, stateless = "2025-11-25", statelessRevision
	sessions := map[string]func(sessionT, Transport){
		"unusual-server":             unusualSession,
		"judged-answers":             judgedSession,
		"probe-both-eras":            beginning("", stateless, "", nil),
		"probe-method-not-found":     beginning("", newest, "", nil),
		"probe-invalid-params":       beginning("", newest, "", nil),
		"probe-server-error":         beginning("", newest, "", nil),
		"probe-empty-result":         beginning("", newest, "", nil),
		"probe-other-result":         beginning("", "2025-06-18", "", nil),
		"probe-silence":              beginning("", "2024-11-05", "", nil),
		"probe-garbage":              beginning("", newest, "", nil),
		"probe-death":                beginning("", "", "server/discover: connection closed", ErrProbe),
		"probe-refused-once":         beginning("", stateless, "", nil),
		"probe-refused-twice":        beginning("", "", "server/discover: unsupported (error -32022)", nil),
		"probe-unknown-revisions":    beginning("", "", "server/discover: the server speaks 2027-01-01; this client speaks 2026-07-28, 2025-11-25", nil),
		"probe-handshake-revisions":  beginning("", "2025-06-18", "", nil),
		"probe-listed-handshake":     beginning("", newest, "", nil),
		"probe-header-mismatch":      beginning("", "", "server/discover: mismatch (error -32020)", nil),
		"probe-missing-capability":   beginning("", "", "server/discover: sampling is needed (error -32021)", nil),
		"forced-handshake":           beginning("2025-03-26", "2025-03-26", "", nil),
		"forced-stateless":           beginning(stateless, stateless, "", nil),
		"forced-stateless-not-known": beginning(stateless, "", "the server does not speak 2026-07-28: server/discover: method not found (error -32601)", nil),
		"forced-stateless-death":     beginning(stateless, "", "the server does not speak 2026-07-28: server/discover: connection closed", ErrClosed),
	}
	for _, revision := range Revisions() {
		sessions[revision] = wholeSession(revision)
	}
	return sessions
}

func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/transcripts/*.txt")
	assert.NilError(t, err)
	sessions := transcriptSessions()
	assert.Equal(t, len(files), len(sessions))
	for _, path := range files {
		name := strings.TrimSuffix(filepath.Base(path), ".txt")
		session := sessions[name]
		assert.Assert(t, session != nil, path)
		t.Run(name, func(t *testing.T) {
			checkLeaks(t)
			if name == "probe-silence" { // three seconds of it
				synctest.Test(t, func(t *testing.T) { replay(t, path, session) })
				return
			}
			replay(t, path, session)
		})
	}
}

// TestTranscriptsDiffer: a transcript with another byte in any of the client's lines does not pass.
func TestTranscriptsDiffer(t *testing.T) {
	if *rewriteTranscripts {
		t.Skip("nothing differs while rewriting")
	}
	checkLeaks(t)
	for _, revision := range []string{"2025-11-25", statelessRevision} {
		transcript, err := os.ReadFile("testdata/transcripts/" + revision + ".txt")
		assert.NilError(t, err)
		lines := bytes.SplitAfter(transcript, []byte("\n"))
		for i, line := range lines {
			if !bytes.HasPrefix(line, []byte("-> ")) {
				continue
			}
			changed := slices.Clone(lines)
			changed[i] = bytes.Replace(line, []byte("-> "), []byte("->  "), 1)
			left, right := memoryPair()
			var played error
			var wg sync.WaitGroup
			wg.Go(func() { _, played = playTranscript(bytes.Join(changed, nil), right) })
			wg.Go(func() { wholeSession(revision)(failingT{t.Context()}, left) })
			wg.Wait()
			assert.ErrorContains(t, played, fmt.Sprintf("line %d:\nwant ", i+1))
		}
	}
}
