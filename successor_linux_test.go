package main

import (
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

// The article's own way is a chat: the answers are streamed, and the second question is part of the same conversation.
func TestSuccessorChat(t *testing.T) {
	checkLeaks(t)
	s := newSuccessor(t, successorConfig, append(slices.Clip(successorScript), successorTurn{text: "Two things."})...)
	program := newProgram(t, s.variables(), "-m", "ollama:mistral-small")
	s.settle(program)
	p := program.onTerminal()
	p.types("\n> ", "What am I to buy?\n", "Buy milk and bread!\n\n> ", "How many things is that?\n")
	status, screen := p.answer("Two things.\n\n> ", "\x04")
	assert.Equal(t, status, 0, screen)
	assert.Equal(t, s.model.transcript(), successorSteps+"1 user: How many things is that?\n2 Two things.\n")
	screen = s.steady(screen)
	assert.Check(t, strings.HasPrefix(screen, successorBroken), screen)
	assert.Check(t, is.Contains(screen, "\n> What am I to buy?\n"+successorCalls+"Buy milk and bread!\n\n> How many things is that?\nTwo things.\n"))
}
