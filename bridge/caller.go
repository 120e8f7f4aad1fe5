package bridge

import (
	"context"
	"errors"

	"voxgate/bridge/uplink"
	"voxgate/crash"
)

// serve lets c carry the conversation until it leaves, is replaced, or the conversation ends. It calls admitted when whoever is served from
// then on replaces c.
func (s *Session) serve(ctx context.Context, c Caller, o Open, first bool, admitted func()) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	v := &visit{
		caller: c, open: o, first: first, cancel: cancel,
		ready: make(chan struct{}), left: make(chan struct{}), parked: make(chan struct{}),
	}
	old := s.admit(v)
	admitted()
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
	<-v.ready
	var err error
	crash.Run(s.log, "caller", func(e error) { err = e; s.Crash(e) }, func() { err = c.Serve(ctx, s) })
	s.voice.SetHold(true) // before Attach: what waits to be played is kept for the next caller
	s.voice.AttachOutput(nil)
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

// onArrival sends a caller the state of the conversation and what it has missed.
func (s *Session) onArrival(ctx context.Context, v *visit) {
	defer close(v.ready)
	v.arrived = true
	s.handover.changed()
	s.voice.roundTrip.Store(0) // was that of another connection
	s.loss.reset()             // likewise
	s.clock.Clear(alarmPark)
	if v.first {
		s.begin(v)
		s.warnOfConfig(*s.keeper.Config())
		s.recording.announce(s.keeper.Config().Options.Record)
	} else {
		s.welcomeBack(v)
	}
	s.answer.thinking.Store(false) // another connection learned that it is due
	was := s.status.state
	if s.parked {
		s.open.Account.Unpark()
	}
	s.parked = false
	if v.first {
		s.keeper.Start(ctx, v.open.Later)
	} else {
		s.setPaused(ctx, Pause{}) // was the other caller's wish
		s.keeper.Unpark(ctx)
	}
	if s.status.set(s.stateNow()); !v.first && s.status.state == was {
		s.status.notify()
	}
}

// welcomeBack starts sending events to a caller that is back. The first SetupComplete follows when there is a session.
func (s *Session) welcomeBack(v *visit) {
	s.log.Info("caller is back")
	done := s.setupComplete()
	done.Resumed, done.Received = true, s.received.list()
	if s.resumable() {
		done.ResumeToken = s.host.tokens.next(s.id, v.open.ResumeToken)
	}
	playing := 0
	if v.open.LastEvent == 0 { // else that is among what it has missed
		playing = s.answer.playing()
	}
	s.audience.resume(v, done, !s.parked, s.calls.IsOpen, playing)
}

// onDeparture parks the conversation, or ends it.
func (s *Session) onDeparture(ctx context.Context, v *visit) {
	if !s.audience.leave(v, s.calls.IsOpen) {
		close(v.parked)
		return // replaced: the newcomer is at the door
	}
	if s.ended != nil || !s.resumable() || !s.keeper.EverConnected() || !s.open.Account.Park() {
		s.end(ErrLeft)
		return
	}
	if s.release() {
		return
	}
	s.log.Info("caller lost, conversation parked", "for", s.parkTime())
	s.answer.interrupt(ByClient, false) // a caller that comes back does not want an answer that nobody heard
	s.setPaused(ctx, Pause{})
	if s.keeper.Config().Options.Manual && s.person.speaking {
		_ = s.up.QueueMark(uplink.MarkEnd) // as far as we know it has ended; if there is no room, other marks are queued
	}
	s.parked = true
	s.status.set(s.stateNow())
	close(v.parked)
	s.keeper.Park(ctx)
	s.clock.Set(alarmPark, s.parkTime())
}
