package telemetry

import (
	"sync"
	"time"

	"voxgate/bridge"
)

// dailyCounter counts the conversations that began on this gateway since midnight (UTC, like budgets), and their cost.
type dailyCounter struct {
	mu            sync.Mutex
	date          string
	sessionsBegun int
	dollars       float64
}

// observe counts an observation. It does not block.
func (t *dailyCounter) observe(o bridge.Observation) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.startNewDay()
	switch o := o.(type) {
	case bridge.SessionStarted:
		t.sessionsBegun++
	case bridge.SpendingReport:
		t.dollars += o.Dollars
	}
}

func (t *dailyCounter) readCounts() (begun int, dollars float64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.startNewDay()
	return t.sessionsBegun, t.dollars
}

// startNewDay resets the counters if the date has changed. Needs mu.
func (t *dailyCounter) startNewDay() {
	if date := time.Now().UTC().Format(time.DateOnly); date != t.date {
		t.date, t.sessionsBegun, t.dollars = date, 0, 0
	}
}
