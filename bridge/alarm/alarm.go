// Package alarm provides a clock with several alarms that share one timer, for a goroutine that waits for many
// deadlines at once.
package alarm

import "time"

// Clock holds the times of a few alarms, numbered from 0. It belongs to one goroutine, which receives from C, and then
// calls TakeDue until ok is false.
type Clock[K ~int] struct {
	C     <-chan time.Time // receives when an alarm may be due
	timer *time.Timer
	at    []time.Time // time of each alarm; zero means not set
}

// New returns a clock for the alarms 0 to count-1. Stop releases it.
func New[K ~int](count K) *Clock[K] {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return &Clock[K]{C: t.C, timer: t, at: make([]time.Time, count)}
}

// Set makes an alarm due after d, and replaces its earlier setting.
func (c *Clock[K]) Set(which K, d time.Duration) {
	c.at[which] = time.Now().Add(d)
	c.armTimer()
}

// Clear cancels alarms.
func (c *Clock[K]) Clear(which ...K) {
	for _, w := range which {
		c.at[w] = time.Time{}
	}
	c.armTimer()
}

// IsSet reports whether an alarm is set.
func (c *Clock[K]) IsSet(which K) bool { return !c.at[which].IsZero() }

// TakeDue removes and returns one alarm whose time has come; ok is false if none is due.
func (c *Clock[K]) TakeDue() (which K, ok bool) {
	now := time.Now()
	for i, at := range c.at {
		if !at.IsZero() && !at.After(now) {
			c.at[i] = time.Time{}
			return K(i), true
		}
	}
	c.armTimer()
	return 0, false
}

// Stop releases the timer.
func (c *Clock[K]) Stop() { c.timer.Stop() }

// armTimer sets the timer to fire at the earliest alarm.
func (c *Clock[K]) armTimer() {
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
