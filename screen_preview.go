// screen_preview.go - the beginning of a text, and all of it when the user asks for that.
// SPDX-License-Identifier: 0BSD

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
)

const (
	maxPreview  = 4       // lines of a text of which only the beginning is shown
	maxKept     = 20      // texts that Preview has cut
	maxKeptText = 4 << 20 // bytes of each
)

// keptTexts are the last texts that were cut, without their secrets. They are numbered from 1 on.
type keptTexts struct {
	mu    sync.Mutex // guards the following; never held during a write
	count int        // how many there were
	texts [maxKept]keptText
}

// keptText is a text, and what it is of.
type keptText struct{ about, text string }

// Preview shows the first lines of a text, each cut to look.Max or, if that is 0, to the window.
// With Keep, a text of which that is not all gets a number, for PageKept.
func (s *Screen) Preview(look Look, about, text string) { s.PreviewOf(look, about, text, text) }

// PreviewOf is Preview of a text that PageKept shows in another form.
func (s *Screen) PreviewOf(look Look, about, text, whole string) {
	if look.Max == 0 {
		look.Max = s.Columns()
	}
	text = strings.TrimSpace(s.Secrets.Mask(text))
	if text == "" {
		return
	}
	lines := strings.Split(text, "\n")
	isCut := func(line string) bool { return Width(line) > look.Max-4 }
	// One more line is shown: to say instead that there is one would be no gain.
	more := len(lines) - maxPreview
	if more > 1 {
		rest := fmt.Sprintf("… %d more lines", more) + s.KeepText(about, whole)
		lines = append(slices.Clone(lines[:maxPreview]), rest)
	} else if s.Keep && slices.ContainsFunc(lines, isCut) {
		lines = append(lines, "… more"+s.KeepText(about, whole))
	}
	for _, line := range lines {
		s.showLines(s.stderr, s.layOut(look, "    "+line)+"\n")
	}
}

// KeepText keeps a text for PageKept, and returns how the user asks for it: "" without Keep. Its
// secrets are taken out before it is cut: half a secret would not be found.
func (s *Screen) KeepText(about, text string) string {
	if !s.Keep {
		return ""
	}
	number := s.kept.add(keptText{s.Secrets.Mask(about), Clip(s.Secrets.Mask(text), maxKeptText)})
	return fmt.Sprintf(": /show %d", number)
}

// add keeps a text in the place of the oldest, and returns its number.
func (k *keptTexts) add(text keptText) (number int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.count++
	k.texts[k.count%maxKept] = text
	return k.count
}

// find returns a text by its number or, if that is "", the last one.
func (k *keptTexts) find(number string) (keptText, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	n := k.count
	var err error
	if number != "" {
		n, err = strconv.Atoi(number)
	}
	if k.count == 0 {
		return keptText{}, errors.New("nothing has been cut on the screen in this run")
	}
	isKept := n >= 1 && n <= k.count && n > k.count-maxKept
	if err != nil || !isKept {
		return keptText{}, fmt.Errorf(
			"there is no such text: the last number is %d, and up to %d are kept", k.count, maxKept)
	}
	return k.texts[n%maxKept], nil
}

// PageKept shows a text that was cut, by its number or, if that is "", the last one: as much of it
// at once as the window has room for. Its secrets were taken out when it was kept.
func (p *Prompter) PageKept(ctx context.Context, number string) error {
	kept, err := p.screen.kept.find(number)
	if err != nil {
		return err
	}
	ctx, release := p.Take(ctx)
	defer release()
	about := p.screen.layOut(Look{Style: Bold, Max: maxNote}, kept.about)
	text := p.screen.layOut(Look{Frame: LineMark, Exact: true}, kept.text)
	rows := strings.Split(string(about+"\n"+text), "\n")
	size := max(p.screen.Rows()-1, 1)
	for ; len(rows) > size; rows = rows[size:] {
		more := "(" + Plural(len(rows)-size, "more row") + ": Enter, or q)"
		line, err := p.askOnce(ctx, above(rows[:size], rendered(more)), false)
		hasSeenEnough := err == ErrDeclined || err == io.EOF || line == "q"
		isForPrompt := err == nil && line != "" && !hasSeenEnough
		if isForPrompt {
			// It is a question, or a command: at the prompt, Up brings it back.
			hasSeenEnough = true
			_ = p.Remember(line, false)
		}
		if hasSeenEnough {
			return nil
		}
		if err != nil {
			return err
		}
	}
	p.screen.showLines(p.screen.user, above(rows, ""))
	return nil
}
