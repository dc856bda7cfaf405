package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"gotest.tools/v3/assert"
)

// htRead is one event, and what was the last id when it came.
type htRead struct{ Name, Data, ID string }

// htEvents reads a stream to its end.
func htEvents(e *eventReader, r io.Reader) (events []htRead, err error) {
	e.begin(r)
	for {
		name, data, err := e.next()
		if err != nil {
			return events, err
		}
		events = append(events, htRead{name, string(data), e.lastID})
	}
}

// htReference reads server-sent events as the WHATWG describes it, from the whole text at once.
func htReference(text, lastID string) (events []htRead, id string, retry time.Duration) {
	text = strings.TrimPrefix(text, "\ufeff")
	text = strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\r", "\n")
	lines := strings.Split(text, "\n")
	var name string
	var data []string
	next := lastID
	for _, line := range lines[:len(lines)-1] { // the last one has no end
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case line == "":
			lastID = next
			if data != nil {
				events = append(events, htRead{name, strings.Join(data, "\n"), lastID})
			}
			name, data = "", nil
		case field == "event":
			name = value
		case field == "data":
			data = append(data, value)
		case field == "id" && !strings.Contains(value, "\x00"):
			next = value
		case field == "retry" && value != "" && strings.Trim(value, "0123456789") == "":
			if ms, err := strconv.Atoi(value); err == nil && ms < 1<<31 { // about the longest that a timer should wait
				retry = time.Duration(ms) * time.Millisecond
			}
		}
	}
	return events, lastID, retry
}

// htChunks reads a text in pieces of the sizes given.
type htChunks struct {
	text  []byte
	sizes []byte
	n     int
}

func (c *htChunks) Read(b []byte) (int, error) {
	size := 1
	if len(c.sizes) > 0 {
		size += int(c.sizes[c.n%len(c.sizes)])
		c.n++
	}
	n := copy(b, c.text[:min(size, len(c.text))])
	if c.text = c.text[n:]; n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

// FuzzEvents: whatever the pieces in which it comes, a stream is read as by a simple reader of whole texts.
func FuzzEvents(f *testing.F) {
	for _, text := range []string{
		"", "data", "data\n", "data\n\n", "data:\n\n", "data: \n\n", "data:  x\n\n", "data:x\ndata: y\n\n", "\n\n\ndata: x\n\n",
		"data: x\r\n\r\ndata: y\r\n\r\n", "data: x\r\rdata: y\r\r", "data: x\r\n\ndata: y\n\r\n", "data: a\rdata: b\ndata: c\r\n\r", "data: x\n\r", "\r\n\r", "\n\r\n",
		"\ufeffdata: x\n\n", "\ufeff\ufeffdata: x\n\n\ufeffdata: y\n\n", "data: x\n\n\ufeffdata: y\n\n", "\ufeff\n\ndata: x\n\n",
		": comment\n:\n::\ndata: x\n\n", "event: a\n\ndata: x\n\n", "event: a\nevent: b\ndata: x\n\n", "event\ndata: x\n\n", "foo: bar\ndata : x\ndata: y\n\n",
		"id: 1\ndata: x\n\ndata: y\n\nid\ndata: z\n\n", "id: 1\n\nid: 2\n", "id: a\x00b\ndata: x\n\n", "id: 1\nid: 2\nid: \n\n", "id: 1\ndata: x\n",
		"retry: 50\n", "retry: 5s\nretry: -1\nretry:\nretry: +5\nretry: 0x5\n", "retry: 007\n\n", "retry: 99999999999999999999\nretry: 2147483648\nretry: 2147483647\n", "retry: 1_0\n",
		"data: {\"a\":\ndata: 1}\n\n", "data: \x00\xff\n\n", "Data: x\n\n", " data: x\n\n", "data:\tx\n\n",
	} {
		f.Add([]byte(text), []byte{0})
		f.Add([]byte(text), []byte{255})
		f.Add([]byte(text), []byte{0, 5, 2, 100})
	}
	f.Fuzz(func(t *testing.T, text, sizes []byte) {
		e := &eventReader{limit: 1 << 20, lastID: "before"}
		got, err := htEvents(e, &htChunks{text: text, sizes: sizes})
		want, id, retry := htReference(string(text), "before")
		assert.DeepEqual(t, got, want)
		assert.Equal(t, err, io.ErrUnexpectedEOF)
		assert.Equal(t, e.lastID, id)
		assert.Equal(t, e.retry, retry)
	})
}

// TestEventsAtOnce: an event is there as soon as its end is, and is not waited on for more; in particular not for the second half of CRLF.
func TestEventsAtOnce(t *testing.T) {
	checkLeaks(t)
	for _, end := range []string{"\n", "\r\n", "\r"} {
		for _, size := range []int{1, 7, 1000, 100_000} {
			r, w := io.Pipe()
			e := &eventReader{limit: 1 << 20}
			e.begin(r)
			data := strings.Repeat("x", size)
			for range 3 {
				go io.WriteString(w, ": c"+end+"event: e"+end+"data: "+data+end+"data:"+end+end)
				name, got, err := e.next()
				assert.NilError(t, err)
				assert.Equal(t, name, "e")
				assert.Equal(t, string(got), data+"\n")
			}
			w.Close()
			_, _, err := e.next()
			assert.Equal(t, err, io.ErrUnexpectedEOF)
		}
	}
}

// TestEventsKept: an event stays what it was while others are read.
func TestEventsKept(t *testing.T) {
	e := &eventReader{limit: 1 << 20}
	e.begin(strings.NewReader(strings.Repeat("data: first\n\n", 1000) + strings.Repeat("data: other\n\n", 10_000)))
	var kept [][]byte
	for range 1000 {
		_, data, err := e.next()
		assert.NilError(t, err)
		kept = append(kept, data)
	}
	for range 10_000 {
		_, _, err := e.next()
		assert.NilError(t, err)
	}
	for _, data := range kept {
		assert.Equal(t, string(data), "first")
	}
}

// TestEventsLimit: the data of an event may be as long as the limit, in one line or in several; a line of any other kind is bounded as well.
func TestEventsLimit(t *testing.T) {
	const limit = 5000
	line := func(n int) string { return "data: " + strings.Repeat("x", n) + "\r\n" }
	for _, c := range []struct {
		text string
		ok   bool
	}{
		{line(limit) + "\r\n", true},
		{line(limit+1) + "\r\n", false},
		{line(limit/2) + line(limit/2-1) + "\n", true},
		{strings.Repeat(line(limit/4), 5) + "\n", false},
		{strings.Repeat("data\n", limit) + "\n", true},
		{strings.Repeat("data\n", limit+2) + "\n", false},
		{":" + strings.Repeat("x", limit) + "\n" + line(1) + "\n", true},
		{":" + strings.Repeat("x", limit+100) + "\n" + line(1) + "\n", false},
		{":" + strings.Repeat("x", 2*limit) + "\n" + line(1) + "\n", false},
		{"event:" + strings.Repeat("x", 2*limit), false},
		{strings.Repeat("x", 2*limit), false},
		{strings.Repeat(": x\n", limit) + line(1) + "\n", true},
	} {
		e := &eventReader{limit: limit}
		e.begin(strings.NewReader(c.text))
		_, data, err := e.next()
		if c.ok {
			assert.NilError(t, err, "%.20q", c.text)
			assert.Assert(t, len(data) <= limit)
			continue
		}
		var long *BodyTooLongError
		assert.Assert(t, errors.As(err, &long), "%.20q: %v", c.text, err)
		assert.Equal(t, long.Limit, limit)
	}
	// Some breaks are neither the limit nor the end.
	e := &eventReader{limit: limit}
	e.begin(io.MultiReader(strings.NewReader("data: x\n"), errReader{io.ErrNoProgress}))
	_, _, err := e.next()
	assert.Equal(t, err, io.ErrNoProgress)
}

type errReader struct{ err error }

func (r errReader) Read([]byte) (int, error) { return 0, r.err }

// TestEventsConnections: what one connection left unfinished is not finished by the next; the last id and the time stay.
func TestEventsConnections(t *testing.T) {
	e := &eventReader{limit: 1000}
	events, _ := htEvents(e, strings.NewReader("id: 1\nretry: 5\ndata: x\n\nid: 2\nevent: e\ndata: half\r"))
	assert.DeepEqual(t, events, []htRead{{"", "x", "1"}})
	events, _ = htEvents(e, strings.NewReader("\n\ufeff\n\ndata: y\n\n"))
	assert.DeepEqual(t, events, []htRead{{"", "y", "1"}})
	assert.Equal(t, e.retry, 5*time.Millisecond)
}

// FuzzOutline: the members of an object are found as encoding/json finds them; no text makes it panic.
func FuzzOutline(f *testing.F) {
	for _, text := range []string{
		``, `{`, `}`, `[`, `]`, `,`, `:`, `"`, `{}`, `[]`, `null`, `5`, `"a"`, `{"a`, `{"a"`, `{"a":`, `{"a":1`, `{"a":1,`, `}{`, `]]`, `{]`, `{"a":"\`, `{"a":"\"`,
		`{"a":1}`, ` { "a" : 1 , "b" : [ 1 , { "c" : "}" } ] } `, `{"a":"\\","b":"\"","c":"\\\"","d":"\\\\"}`, `{"a":{"a":{"a":[]}},"b":[[],[{}]]}`,
		`{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"a"}]}}`, `{"a":"x:y,z","b:":",","{":"}"}`, "{\"a\"\t:\r\n-1.5e3\n}", `{"a":tru}`, `{"a":1}}`, `[{"a":1},{"b":2}]`,
		`{"a":true,"b":false,"c":null,"d":"","e":{},"f":[]}`, `{"a":1,"a":2}`, `{"A":1,"a":2}`, `{"é":"é"}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		before := bytes.Clone(text)
		got := outline(text)
		assert.DeepEqual(t, text, before)
		var want map[string]json.RawMessage
		trimmed := bytes.TrimSpace(text)
		switch {
		case !json.Valid(text) || !utf8.Valid(text):
			return
		case trimmed[0] == '[':
			assert.Assert(t, got != nil && len(got) == 0)
			return
		case trimmed[0] != '{':
			assert.Assert(t, got == nil)
			return
		}
		assert.NilError(t, json.Unmarshal(text, &want))
		// Those whose keys are written otherwise than they read, or come twice, are looked for by nobody.
		decoder := json.NewDecoder(bytes.NewReader(text))
		_, _ = decoder.Token()
		for n := 0; decoder.More(); n++ {
			start := decoder.InputOffset()
			key, _ := decoder.Token()
			written := strings.TrimLeft(string(text[start:decoder.InputOffset()]), ", \t\r\n")
			if written != fmt.Sprintf(`"%s"`, key) || key != strings.Trim(key.(string), "\" \t\r\n") || key == "" || n >= len(want) {
				return
			}
			var value json.RawMessage
			assert.NilError(t, decoder.Decode(&value))
		}
		assert.Equal(t, len(got), len(want))
		for key, value := range want {
			assert.Equal(t, string(got.get(key)), string(value), "%s of %s", key, text)
		}
	})
}

// TestOutlineParts: what is found is part of the text, and it costs no more than the text is long.
func TestOutlineParts(t *testing.T) {
	text := []byte(`{"a":"` + strings.Repeat(`\"`, 1<<20) + strings.Repeat(`\\`, 1<<20) + `","b":` + strings.Repeat("[", 1<<20) + strings.Repeat("]", 1<<20) + `}`)
	m := outline(text)
	assert.Equal(t, len(m), 2)
	assert.Equal(t, &m.get("a")[0], &text[5])
	assert.Equal(t, len(m.get("b")), 2<<20)
}
