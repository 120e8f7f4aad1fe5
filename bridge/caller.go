package bridge

import (
	"context"
	"errors"
	"time"

	"voxgate/bridge/uplink"
)

// serve lets c carry the conversation until it leaves, is replaced, or the conversation ends.
func (s *Session) serve(ctx context.Context, c Caller, o Open, first bool) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	v := &visit{
		caller: c, open: o, first: first, cancel: cancel,
		told: make(chan struct{}), left: make(chan struct{}), parked: make(chan struct{}),
	}
	s.audience.mu.Lock()
	old := s.audience.visit
	s.audience.visit = v
	s.audience.mu.Unlock()
	if old != nil {
		old.cancel(ErrReplaced)
		<-old.left
	}
	select {
	case s.visits <- v:
	case <-s.over:
		close(v.left)
		if !first {
			return errOver
		}
		return s.ended
	}
	<-v.told
	err := c.Serve(ctx, s)
	s.playout.Hold(true) // before Attach: what waits to be played is kept for the next caller
	s.playout.Attach(nil)
	close(v.left)
	select {
	case s.visits <- v:
	case <-s.over:
	}
	if errors.Is(context.Cause(ctx), ErrReplaced) {
		return ErrReplaced
	}
	select {
	case <-v.parked:
	case <-s.over:
		if !errors.Is(s.ended, ErrLeft) && !errors.Is(s.ended, ErrMoved) {
			return s.ended
		}
	}
	return err
}

// onArrival tells a caller where things stand and what it has missed.
func (s *Session) onArrival(ctx context.Context, v *visit) {
	defer close(v.told)
	v.seen = true
	s.move.unsaved = true
	s.roundTrip.Store(0) // was that of another connection
	s.clock.Clear(alarmPark)
	s.welcome(v)
	s.answer.thinking.Store(false) // that it is due was told another connection
	was := s.state
	if s.parked {
		s.open.Account.Unpark()
	}
	s.parked = false
	if v.first {
		s.keeper.Start(ctx, v.open.Later)
	} else {
		s.setPaused(ctx, false) // was the other caller's wish
		s.keeper.Return(ctx)
	}
	if s.updateState(); !v.first && s.state == was {
		s.notifyState()
	}
}

// welcome makes a caller the one who is told. SetupComplete of the first one follows when there is a session.
func (s *Session) welcome(v *visit) {
	a := &s.audience
	if v.first {
		a.mu.Lock()
		a.listener, a.keep = v.caller, s.resumable()
		a.mu.Unlock()
		for _, w := range s.keeper.Config().Warnings {
			s.warn(w)
		}
		s.tellRecording()
		return
	}
	s.log.Info("caller is back")
	done := s.setupComplete()
	done.Resumed, done.Received = true, s.received.list()
	if s.resumable() {
		done.ResumeToken = s.host.newToken(s, v.open.ResumeToken)
	}
	speaking := 0
	if v.open.LastEvent == 0 { // else that is among what it has missed
		speaking = s.playing()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ring.forget(!s.parked, s.calls.IsOpen)
	missed := a.ring.missed(v.open.LastEvent, s.calls.IsOpen)
	a.listener = v.caller
	a.listener.Notify(Event{Time: time.Now(), Body: done})
	for _, e := range missed {
		a.listener.Notify(e)
	}
	if speaking > 0 {
		a.listener.Notify(a.ring.add(Speaking{speaking}, false))
	}
}

// onDeparture parks the conversation, or ends it.
func (s *Session) onDeparture(ctx context.Context, v *visit) {
	a := &s.audience
	a.mu.Lock()
	current := a.visit == v
	if current {
		a.visit, a.listener = nil, nil
		a.ring.forget(true, s.calls.IsOpen)
	}
	a.mu.Unlock()
	if !current {
		close(v.parked)
		return // replaced: the newcomer is at the door
	}
	if s.ended != nil || !s.resumable() || !s.keeper.Begun() || !s.open.Account.Park() {
		s.end(ErrLeft)
		return
	}
	if s.letGo() {
		return
	}
	s.log.Info("caller lost, conversation parked", "for", s.host.options.Park)
	s.interrupt(ByClient, false) // who comes back does not want to hear what was said to nobody
	s.setPaused(ctx, false)
	if s.keeper.Config().Options.Manual && s.person.speaking {
		_ = s.up.Mark(uplink.End) // it has ended, for all we know; if there is no room, others are before it
	}
	s.parked = true
	s.updateState()
	close(v.parked)
	s.keeper.Park(ctx)
	s.clock.Set(alarmPark, s.host.options.Park)
}
