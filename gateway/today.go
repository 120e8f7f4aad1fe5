package main

import (
	"sync"
	"time"

	"voxgate/bridge"
)

// today counts the conversations that have begun here since midnight, and what Gemini has cost. Days are those of budgets: UTC's.
type today struct {
	mu      sync.Mutex
	date    string
	begun   int
	dollars float64
}

// observe counts what happens in conversations. It does not block.
func (t *today) observe(o bridge.Observation) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.turn()
	switch o := o.(type) {
	case bridge.SessionStarted:
		t.begun++
	case bridge.SpendingReport:
		t.dollars += o.Dollars
	}
}

func (t *today) read() (begun int, dollars float64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.turn()
	return t.begun, t.dollars
}

// turn begins another day. Needs mu.
func (t *today) turn() {
	if date := time.Now().UTC().Format(time.DateOnly); date != t.date {
		t.date, t.begun, t.dollars = date, 0, 0
	}
}
