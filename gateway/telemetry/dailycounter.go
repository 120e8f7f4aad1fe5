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
func (d *dailyCounter) observe(o bridge.Observation) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.startNewDay()
	switch o := o.(type) {
	case bridge.SessionStarted:
		d.sessionsBegun++
	case bridge.SpendingReport:
		d.dollars += o.Dollars
	}
}

func (d *dailyCounter) readCounts() (sessionsBegun int, dollars float64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.startNewDay()
	return d.sessionsBegun, d.dollars
}

// startNewDay resets the counters if the date has changed. Needs mu.
func (d *dailyCounter) startNewDay() {
	if date := time.Now().UTC().Format(time.DateOnly); date != d.date {
		d.date, d.sessionsBegun, d.dollars = date, 0, 0
	}
}
