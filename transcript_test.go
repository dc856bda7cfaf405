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

// wholeSession is what the client does in the transcripts of the revisions.
func wholeSession(revision string) func(sessionT, Transport) {
	return func(t sessionT, transport Transport) {
		ctx := t.Context()
		changed := 0
		late := make(chan struct{})
		answered := sync.OnceFunc(func() { close(late) })
		c, err := Connect(ctx, transport, &ClientOptions{
			Info:         Implementation{Name: "transcript", Version: "1"},
			ToolsChanged: func() { changed++ },
			Stray:        func([]byte, error) { answered() },
		})
		if !assert.Check(t, err) {
			return
		}
		defer c.Close()
		assert.Check(t, is.Equal(c.Server.ProtocolVersion, revision))

		tools, err := c.ListTools(ctx)
		assert.Check(t, err)
		if assert.Check(t, is.Len(tools, 2)) {
			assert.Check(t, is.Equal(tools[0].Name, "search_chunks"))
			assert.Check(t, is.Equal(tools[1].Name, "parse_pdf"))
			assert.Check(t, is.Equal(string(tools[1].InputSchema), `{"type":"object", "properties":{"pdf_path":{"type":"string"}}, "required":["pdf_path"]}`))
		}

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

		cancelling, cancel := context.WithCancelCause(ctx)
		_, err = c.CallTool(cancelling, "parse_pdf", json.RawMessage(`{"pdf_path":"/long.pdf"}`), func(Progress) { cancel(errors.New("interrupted")) })
		assert.Check(t, is.Error(err, "tools/call parse_pdf: interrupted"))
		select {
		case <-late: // the answer that comes all the same
		case <-c.conn.life.Done():
		}

		assert.Check(t, c.Ping(ctx))
		assert.Check(t, is.Equal(changed, 2))
	}
}

// unusualSession is what the client does with a server that does everything in its own way.
func unusualSession(t sessionT, transport Transport) {
	ctx := t.Context()
	var strays []string
	changed := 0
	c, err := Connect(ctx, transport, &ClientOptions{
		Info:         Implementation{Name: "transcript", Version: "1"},
		ToolsChanged: func() { changed++ },
		Stray:        func(_ []byte, reason error) { strays = append(strays, reason.Error()) },
	})
	if !assert.Check(t, err) {
		return
	}
	defer c.Close()
	assert.Check(t, is.Equal(c.Server.ProtocolVersion, "2025-03-26"))
	assert.Check(t, is.Equal(changed, 3))

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
		"not a JSON object",
		"not a JSON object",
		"not a JSON object",
		"the answer has the id null, which no request had",
		"nobody waits for an answer with the id 2",
		"nobody waits for an answer with the id 99",
		"not a JSON object",
	}))
}

func transcriptSessions() map[string]func(sessionT, Transport) {
	sessions := map[string]func(sessionT, Transport){"unusual-server": unusualSession}
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
	transcript, err := os.ReadFile("testdata/transcripts/2025-11-25.txt")
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
		wg.Go(func() { wholeSession("2025-11-25")(failingT{t.Context()}, left) })
		wg.Wait()
		assert.ErrorContains(t, played, fmt.Sprintf("line %d:\nwant ", i+1))
	}
}
