package bridge

import "time"

// alarm is something the loop has to look after at a certain time.
type alarm int

const (
	alarmRetry    alarm = iota // dial again
	alarmAge                   // the connection is so old that its end is near, though no goAway came
	alarmDrain                 // the link is replaced now, whoever speaks
	alarmFresh                 // nobody speaks, but the handle is not the newest: no longer waited for
	alarmTrial                 // Gemini has not objected to a change of the configuration
	alarmStall                 // the model should have said something
	alarmStale                 // what was said will not be answered any more
	alarmMic                   // does the microphone still send?
	alarmGap                   // the next thing a person hears or sees who waits
	alarmIdleLink              // nobody has come back: the link costs money
	alarmPark                  // nobody will come back
	alarmLimit                 // the conversation has lasted as long as it may
	alarmFarewell              // the last answer was long enough
	numAlarms
)

// alarms is the loop's clock: a time for each alarm, and one timer for all. Owned by the loop.
type alarms struct {
	timer *time.Timer
	at    [numAlarms]time.Time
}

func newAlarms() *alarms {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return &alarms{timer: t}
}

// set has an alarm go off in d, in place of what was set before.
func (a *alarms) set(which alarm, d time.Duration) {
	a.at[which] = time.Now().Add(d)
	a.arm()
}

func (a *alarms) clear(which ...alarm) {
	for _, w := range which {
		a.at[w] = time.Time{}
	}
	a.arm()
}

func (a *alarms) isSet(which alarm) bool { return !a.at[which].IsZero() }

// arm has the timer fire at the earliest alarm.
func (a *alarms) arm() {
	var first time.Time
	for _, at := range a.at {
		if !at.IsZero() && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	if first.IsZero() {
		a.timer.Stop()
		return
	}
	a.timer.Reset(time.Until(first))
}

// due takes one alarm whose time has come.
func (a *alarms) due() (alarm, bool) {
	now := time.Now()
	for which, at := range a.at {
		if !at.IsZero() && !at.After(now) {
			a.at[which] = time.Time{}
			return alarm(which), true
		}
	}
	a.arm()
	return 0, false
}
