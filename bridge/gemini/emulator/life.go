package emulator

import (
	"context"
	"fmt"
	"maps"
	"time"

	"voxgate/bridge/gemini/emulator/live"
)

const (
	// firstHandle is when the handle for resumption comes after setupComplete, measured on gemini-3.8-live.
	firstHandle = 100 * time.Millisecond

	// handleTTL is how long a handle is good: https://ai.google.dev/gemini-api/docs/live-session.
	handleTTL = 2 * time.Hour

	// onItsWay is how long a resumed session waits for its last connection to end: a client that closed it and dials at
	// once has done nothing wrong, and its close may still be on its way through a busy machine.
	onItsWay = 200 * time.Millisecond
)

// resume continues the session of a handle.
func (s *session) resume(ctx context.Context, handle string) error {
	saved, ok := s.e.memory.find(handle)
	switch {
	case !ok:
		return live.NewClosing(live.ClosePolicy, "BidiGenerateContent session not found")
	case saved.model != s.setup.Model:
		return live.NewClosing(live.CloseInvalid, "") // the model cannot change
	}
	late := time.NewTimer(onItsWay)
	defer late.Stop()
	for {
		busy := s.e.memory.enter(saved.conversation, s)
		if busy == nil {
			break
		}
		select {
		case <-busy:
		case <-late.C:
			return live.NewClosing(live.CloseInternal, "")
		case <-ctx.Done():
			return goingAway()
		}
	}
	s.conversation, s.history = saved.conversation, saved.history
	s.asked = time.Now() // who resumes with an open call may not know yet that it waits
	maps.Copy(s.calls, saved.calls)
	return nil
}

// live begins what lasts as long as the connection: its age, and handles.
func (s *session) live() {
	sc := &s.e.scenario
	if age := sc.ConnectionAge; age > 0 {
		if sc.GoAwayLead > 0 {
			lead := min(sc.GoAwayLead, age)
			s.later(age-lead, func() error { return s.goAway(lead) })
		}
		s.later(age, s.expire)
	}
	// gemini-3.8-live gives the first handle whether it was asked for one or not.
	if s.handles() == HandlesPrompt {
		s.later(firstHandle, s.giveHandle)
	}
}

// goAway announces the end of the connection. Google's durations have fractions.
func (s *session) goAway(left time.Duration) error {
	return s.conn.send(live.Object{"goAway": live.Object{"timeLeft": seconds(left - time.Millisecond)}})
}

// expire ends the connection because of its age. A server that hangs does not do that either.
func (s *session) expire() error {
	if s.conn.silent {
		return nil
	}
	return live.NewClosing(live.ClosePolicy, "")
}

// depart takes the session off the books, before its client can learn of its end: it may dial again at once.
func (s *session) depart() {
	if s.departed {
		return
	}
	s.departed = true
	if s.conversation == nil {
		return
	}
	switch {
	case s.talking:
		s.unended, s.unendedRate = s.manual, s.rate
	case s.vad.speaking:
		s.unended, s.unendedRate = s.vad.heard, s.vad.rate
	}
	s.e.memory.leave(s.conversation)
}

// seconds writes a duration as proto3 JSON does.
func seconds(d time.Duration) string { return fmt.Sprintf("%.3fs", d.Seconds()) }
