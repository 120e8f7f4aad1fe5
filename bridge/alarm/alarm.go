// Package alarm is a clock with several alarms and one timer, for a goroutine that waits for many things at once.
package alarm

import "time"

// Clock has one time for each of a few alarms, which are the numbers below the one it was made with. It belongs to one
// goroutine, which selects on C and then asks Due until nothing is.
type Clock[K ~int] struct {
	C     <-chan time.Time // receives when an alarm may be due
	timer *time.Timer
	at    []time.Time // zero: not set
}

// New returns a clock for the alarms 0 to count-1. Stop releases it.
func New[K ~int](count K) *Clock[K] {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return &Clock[K]{C: t.C, timer: t, at: make([]time.Time, count)}
}

// Set has an alarm go off in d. It replaces what was set before.
func (c *Clock[K]) Set(which K, d time.Duration) {
	c.at[which] = time.Now().Add(d)
	c.arm()
}

// Clear takes alarms back.
func (c *Clock[K]) Clear(which ...K) {
	for _, w := range which {
		c.at[w] = time.Time{}
	}
	c.arm()
}

// IsSet tells whether an alarm is to go off.
func (c *Clock[K]) IsSet(which K) bool { return !c.at[which].IsZero() }

// Due takes one alarm whose time has come; ok is false when there is none.
func (c *Clock[K]) Due() (which K, ok bool) {
	now := time.Now()
	for i, at := range c.at {
		if !at.IsZero() && !at.After(now) {
			c.at[i] = time.Time{}
			return K(i), true
		}
	}
	c.arm()
	return 0, false
}

// Stop releases the timer.
func (c *Clock[K]) Stop() { c.timer.Stop() }

// arm has the timer fire at the earliest alarm.
func (c *Clock[K]) arm() {
	var first time.Time
	for _, at := range c.at {
		if !at.IsZero() && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	if first.IsZero() {
		c.timer.Stop()
		return
	}
	c.timer.Reset(time.Until(first))
}
