package emulator

import (
	"slices"
	"time"
)

// agenda is what the loop of a session does later.
type agenda struct {
	timer   *time.Timer // fires when the first entry is due
	entries []entry     // in order of time
}

type entry struct {
	at time.Time
	do func() error
}

func newAgenda() *agenda {
	a := &agenda{timer: time.NewTimer(time.Hour)}
	a.timer.Stop()
	return a
}

// add has do called in d, after what is already there for the same time.
func (a *agenda) add(d time.Duration, do func() error) {
	at := time.Now().Add(d)
	i, _ := slices.BinarySearchFunc(a.entries, at, func(e entry, at time.Time) int {
		if e.at.After(at) {
			return 1
		}
		return -1
	})
	a.entries = slices.Insert(a.entries, i, entry{at, do})
	a.arm()
}

// run does what is due. The first error ends the session.
func (a *agenda) run() error {
	for len(a.entries) > 0 && !time.Now().Before(a.entries[0].at) {
		do := a.entries[0].do
		a.entries = a.entries[1:]
		if err := do(); err != nil {
			return err
		}
	}
	a.arm()
	return nil
}

func (a *agenda) arm() {
	if len(a.entries) > 0 {
		a.timer.Reset(time.Until(a.entries[0].at))
	}
}
