package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"gotest.tools/v3/assert"
)

// linesOf reads all messages of a stream.
func linesOf(t *testing.T, r io.Reader, limit int) (messages []string, err error) {
	t.Helper()
	l := NewLines(r, io.Discard)
	l.MaxMessage = limit
	defer l.Close()
	var kept [][]byte
	for {
		message, err := l.Read()
		if err != nil {
			// Converted only now: a message stays what it was while others are read.
			for _, m := range kept {
				messages = append(messages, string(m))
			}
			return messages, err
		}
		kept = append(kept, message)
	}
}

// checkLines reads a stream, however its reader cuts it: its messages are its lines, and then comes the reader's
// error.
func checkLines(t *testing.T, stream []byte, reader io.Reader, limit int, end error) {
	t.Helper()
	var want []string
	for line := range bytes.SplitSeq(stream, []byte{'\n'}) {
		if limit > 0 && len(line) > limit {
			end = &MessageTooLongError{limit}
			break
		}
		if line = bytes.TrimPrefix(bytes.TrimSpace(line), []byte("\ufeff")); len(line) > 0 {
			want = append(want, string(line))
		}
	}
	got, err := linesOf(t, reader, limit)
	assert.Equal(t, fmt.Sprint(err), fmt.Sprint(end))
	assert.Assert(t, slices.Equal(got, want), "%.1000q: %.1000q, want %.1000q", stream, got, want)
}

// TestLinesRead: small streams, and lines of every size around the buffer's, one after the other.
func TestLinesRead(t *testing.T) {
	checkLeaks(t)
	streams := []string{"", "\n", "a\nb\n", "a\r\nb\r\n", "\n\r\n \t\na\n\n\nb", "last", "last\r", " {\"a\": 1} \n",
		"\ufeffa\nb\n\ufeffc\n", "\ufeff\n\ufeff\r\na\ufeffb\n", "\ufeff", " \ufeff\ufeffa", "\xef\xbba\n"}
	sizes := []int{1 << 20, 5, 3 << 20, 1}
	for _, around := range []int{1, readSize / 2, readSize, 2 * readSize, 4 * readSize} {
		for d := -3; d <= 3; d++ {
			sizes = append(sizes, max(1, around+d))
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 2 {
		random.Shuffle(len(sizes), func(i, j int) { sizes[i], sizes[j] = sizes[j], sizes[i] })
		var stream strings.Builder
		for i, size := range sizes {
			stream.WriteString([]string{"", "\ufeff"}[random.IntN(2)])
			stream.WriteString(strings.Repeat(string(rune('a'+i%26)), size) + []string{"\n", "\r\n", "\n\n"}[random.IntN(3)])
		}
		streams = append(streams, stream.String())
	}
	for _, stream := range streams {
		cuts := []func(io.Reader) io.Reader{iotest.HalfReader, iotest.DataErrReader,
			func(r io.Reader) io.Reader { return r },
			func(io.Reader) io.Reader { return &shredder{text: []byte(stream), sizes: []byte{255, 0, 130, 7}} }}
		if len(stream) < 1000 {
			cuts = append(cuts, iotest.OneByteReader)
		}
		for _, cut := range cuts {
			checkLines(t, []byte(stream), cut(strings.NewReader(stream)), 0, io.EOF)
			broken := io.MultiReader(cut(strings.NewReader(stream)), iotest.ErrReader(io.ErrNoProgress))
			checkLines(t, []byte(stream), broken, 0, io.ErrNoProgress)
		}
	}
}

func TestLinesLimit(t *testing.T) {
	checkLeaks(t)
	const limit = 100_000
	fits := strings.Repeat("x", limit)
	got, err := linesOf(t, strings.NewReader(fits+"\n"+fits), limit)
	assert.Equal(t, err, io.EOF)
	assert.DeepEqual(t, got, []string{fits, fits})

	// A line that goes on for ever is given up when it is over the limit, not when it ends.
	for _, long := range []io.Reader{
		strings.NewReader(fits + "x\nnext\n"),
		strings.NewReader(fits + "x"),
		&shredder{text: []byte("x"), sizes: []byte{200}, repeat: true},
		&shredder{text: []byte(" "), sizes: []byte{200}, repeat: true},
	} {
		got, err = linesOf(t, io.MultiReader(strings.NewReader("first\n"), long), limit)
		var tooLong *MessageTooLongError
		assert.Assert(t, errors.As(err, &tooLong), "%v", err)
		assert.Equal(t, tooLong.Limit, limit)
		assert.Error(t, err, "a message is longer than the limit of 100000 bytes")
		assert.DeepEqual(t, got, []string{"first"})
	}
}

// shredder reads a text in pieces: of 7 times each size in turn, one of size 0 included.
type shredder struct {
	text   []byte
	sizes  []byte
	at     int
	repeat bool // the first byte of the text, for ever
}

func (s *shredder) Read(p []byte) (int, error) {
	n := len(p)
	if len(s.sizes) > 0 {
		n = min(n, 7*int(s.sizes[s.at%len(s.sizes)]))
		s.at++
	}
	if s.repeat {
		return copy(p, bytes.Repeat(s.text[:1], n)), nil
	}
	n = copy(p[:n], s.text)
	if s.text = s.text[n:]; len(s.text) == 0 {
		return n, io.EOF
	}
	return n, nil
}

// FuzzLines: however a stream is cut, its messages are its lines.
func FuzzLines(f *testing.F) {
	f.Add([]byte("a\nb\r\n\n\n c"), []byte{0, 1}, 0)
	f.Add([]byte("\n\n\n"), []byte{}, 1)
	f.Add([]byte("\ufeffa\n\ufeff\n"), []byte{1}, 0)
	f.Add([]byte(strings.Repeat("0123456789", 20)+"\nnext\n"), []byte{1, 2, 3}, 150)
	f.Add([]byte(strings.Repeat("x", readSize)+"\n"+strings.Repeat("y", readSize-1)+"\n"), []byte{255}, 0)
	f.Fuzz(func(t *testing.T, stream, sizes []byte, limit int) {
		if len(sizes) > 0 && bytes.Count(sizes, []byte{0}) == len(sizes) {
			return // a reader that never gives anything
		}
		checkLines(t, stream, &shredder{text: stream, sizes: sizes}, max(0, limit), io.EOF)
	})
}

func TestLinesRefuseNewline(t *testing.T) {
	checkLeaks(t)
	var out bytes.Buffer
	l := NewLines(strings.NewReader(""), &out)
	assert.Error(t, l.Write(t.Context(), outgoing("a\nb")), "a message with a newline cannot be framed")
	assert.NilError(t, l.Write(t.Context(), outgoing("c")))
	assert.NilError(t, l.Close())
	assert.Equal(t, out.String(), "c\n")
	assert.ErrorIs(t, l.Write(t.Context(), outgoing("d")), os.ErrClosed)
}

// TestLinesWriteIsWhole: a Write does not wait for the peer, until too much waits to be written; one that waits then
// has sent nothing if its ctx ends. What is sent goes out whole and in order.
func TestLinesWriteIsWhole(t *testing.T) {
	checkLeaks(t)
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe() // holds nothing, as a pipe that is full
		l := NewLines(r, w)
		write := func(ctx context.Context, message string) <-chan error {
			done := make(chan error, 1)
			go func() { done <- l.Write(ctx, outgoing(message)) }()
			synctest.Wait()
			return done
		}
		reason := errors.New("no longer wanted")
		ctx, cancel := context.WithCancelCause(t.Context())
		assert.NilError(t, <-write(ctx, "begun"))
		half := make([]byte, 3)
		_, err := io.ReadFull(r, half)
		assert.NilError(t, err)
		full := strings.Repeat("x", maxUnwritten)
		assert.NilError(t, <-write(ctx, full))
		withdrawn := write(ctx, "withdrawn")
		var last []<-chan error
		for range 3 {
			last = append(last, write(t.Context(), "last"))
		}
		assert.Equal(t, len(withdrawn)+len(last[0])+len(last[1])+len(last[2]), 0)
		cancel(reason)
		assert.Equal(t, <-withdrawn, reason)
		want := "begun\n" + full + "\nlast\nlast\nlast\n"
		rest := make([]byte, len(want)-len(half))
		_, err = io.ReadFull(r, rest)
		assert.NilError(t, err)
		assert.Assert(t, string(half)+string(rest) == want)
		for _, done := range last {
			assert.NilError(t, <-done)
		}

		// Close frees whoever waits to write.
		assert.NilError(t, <-write(t.Context(), full))
		assert.NilError(t, <-write(t.Context(), full))
		first, second := write(t.Context(), "first"), write(t.Context(), "second")
		assert.NilError(t, l.Close())
		assert.ErrorIs(t, <-first, os.ErrClosed)
		assert.ErrorIs(t, <-second, os.ErrClosed)
	})
}

// TestLinesWriteRewrites: a caller does not write for the others for ever.
func TestLinesWriteRewrites(t *testing.T) {
	checkLeaks(t)
	var out bytes.Buffer
	l, writes := NewLines(strings.NewReader(""), &out), 0
	l.WriteAtOnce = func(p []byte) (int, error) {
		if writes++; writes < 1000 {
			assert.NilError(t, l.Write(t.Context(), outgoing("another"))) // as another goroutine would
		}
		return out.Write(p)
	}
	assert.NilError(t, l.Write(t.Context(), outgoing("first")))
	assert.Equal(t, writes, maxWrites)
	assert.NilError(t, l.Close())
	assert.Equal(t, out.String(), "first\n"+strings.Repeat("another\n", maxWrites))
}

// TestLinesCloseInOrder: what was sent before Close reaches a peer that reads, and Close waits only a moment for one
// that does not.
func TestLinesCloseInOrder(t *testing.T) {
	checkLeaks(t)
	for _, reads := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			r, w := io.Pipe()
			l := NewLines(strings.NewReader(""), w)
			assert.NilError(t, l.Write(t.Context(), outgoing("first")))
			assert.NilError(t, l.Write(t.Context(), outgoing("second")))
			var got []byte
			var peer sync.WaitGroup
			if reads {
				peer.Go(func() {
					time.Sleep(lastTime / 2)
					got, _ = io.ReadAll(r)
				})
			}
			begin := time.Now()
			assert.NilError(t, l.Close())
			peer.Wait()
			if reads {
				assert.Equal(t, string(got), "first\nsecond\n")
				assert.Equal(t, time.Since(begin), lastTime/2)
			} else {
				assert.Equal(t, time.Since(begin), lastTime)
			}
		})
	}
}

// failingWriter takes the time of a slow writer to fail.
type failingWriter struct{ fail <-chan error }

func (w failingWriter) Write([]byte) (int, error) { return 0, <-w.fail }

// TestLinesWriteError: a write that fails may have written half a line, and those that waited with it. Nothing is sent
// after it, and Read ends.
func TestLinesWriteError(t *testing.T) {
	checkLeaks(t)
	synctest.Test(t, func(t *testing.T) {
		fail := make(chan error)
		r, peer := io.Pipe()
		l := NewLines(r, failingWriter{fail})
		full := errors.New("no space left")
		for range 10 {
			assert.NilError(t, l.Write(t.Context(), outgoing("m")))
		}
		fail <- full
		_, err := l.Read()
		assert.Equal(t, err, io.ErrClosedPipe)
		assert.NilError(t, l.Write(t.Context(), outgoing("m"))) // it is lost like those before
		l.Close()
		peer.Close()
	})
}
