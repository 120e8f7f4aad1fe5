package bridge

import (
	"context"
	"errors"

	"voxgate/bridge/turns"
	"voxgate/bridge/uplink"
	"voxgate/internal/crash"
)

// serveCaller serves c until c leaves or is replaced, or the conversation ends. opensSession means that c opens the
// conversation and does not continue it. serveCaller calls onRegistered as soon as another caller can replace c.
func (s *Session) serveCaller(ctx context.Context, c Caller, o SessionRequest, opensSession bool, onRegistered func()) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	v := &callerConn{
		caller: c, request: o, isFirst: opensSession, cancel: cancel,
		ready: make(chan struct{}), served: make(chan struct{}), parked: make(chan struct{}),
	}
	old := s.setCurrent(v)
	onRegistered()
	if old != nil {
		old.cancel(ErrReplaced)
		<-old.served
	}
	select {
	case s.callerConns <- v:
	case <-s.done:
		close(v.served)
		if !opensSession {
			return errEnded
		}
		return s.endReason
	}
	<-v.ready
	var err error
	crash.Run(s.log, "caller", func(e error) { err = e; s.Crash(e) }, func() { err = c.Serve(ctx, s) })
	s.voice.SetHold(true) // first, so that AttachOutput(nil) does not discard the queued voice
	s.voice.AttachOutput(nil)
	close(v.served)
	select {
	case s.callerConns <- v:
	case <-s.done:
	}
	if errors.Is(context.Cause(ctx), ErrReplaced) {
		return ErrReplaced
	}
	select {
	case <-v.parked:
	case <-s.done:
		if !errors.Is(s.endReason, ErrLeft) && !errors.Is(s.endReason, ErrMoved) {
			return s.endReason
		}
	}
	return err
}

// onArrival sends an arriving caller the state of the conversation and the events that it has missed.
func (s *Session) onArrival(ctx context.Context, v *callerConn) {
	defer close(v.ready)
	v.hasArrived = true
	s.cluster.markChanged()
	s.voice.roundTrip.Store(0) // the old value was measured on another connection
	s.loss.resetCounters()     // the old counts are those of another connection
	s.clock.Clear(alarmPark)
	if v.isFirst {
		s.startEvents(v)
		s.reportConfigWarnings(*s.keeper.Config())
		s.recording.announceState(s.keeper.Config().Options.Record)
	} else {
		s.resumeCaller(v)
	}
	s.output.announcedThinking.Store(false) // only the previous connection was informed that an answer is due
	was := s.status.state
	if s.isParked {
		s.request.Account.UnparkSession()
	}
	s.isParked = false
	if v.isFirst {
		s.keeper.Start(ctx, v.request.DeferDial)
	} else {
		s.setHold(ctx, Pause{}) // the previous caller had requested the hold
		s.keeper.Unpark(ctx)
	}
	if s.status.setState(s.currentState()); !v.isFirst && s.status.state == was {
		s.status.notify()
	}
}

// resumeCaller starts sending events to a returning caller. The first is a SetupComplete. If the model was never
// connected, a second SetupComplete follows once it is.
func (s *Session) resumeCaller(v *callerConn) {
	s.log.Info("caller returned")
	done := s.buildSetupComplete()
	done.Resumed, done.ReceivedIDs = true, s.receivedIDs.newestIDs()
	if s.isResumable() {
		done.ResumeToken = s.host.tokens.issueToken(s.id, v.request.ResumeToken)
	}
	playing := 0
	if v.request.LastEvent == 0 { // otherwise the missed events contain [Speaking]
		playing = s.output.playingTurn()
	}
	s.subscribers.resumeEvents(v, done, !s.isParked, s.calls.IsOpen, playing)
}

// onDeparture parks the conversation of a caller that has left, or ends it.
func (s *Session) onDeparture(ctx context.Context, v *callerConn) {
	if !s.subscribers.removeCaller(v, s.calls.IsOpen) {
		close(v.parked)
		return // replaced by a new caller
	}
	if s.endReason != nil || !s.isResumable() || !s.keeper.EverConnected() || !s.request.Account.ParkSession() {
		s.endWith(ErrLeft)
		return
	}
	if s.releaseIfMoving() {
		return
	}
	s.log.Info("caller lost, conversation parked", "for", s.lostCallerWait())
	s.output.interrupt(ByClient, false) // a returning caller does not want an answer that was not heard
	s.setHold(ctx, Pause{})
	if s.keeper.Config().Options.Manual && s.user.isSpeaking {
		s.endSpeechOfLostCaller()
	}
	s.isParked = true
	s.status.setState(s.currentState())
	close(v.parked)
	s.keeper.KeepForReturn(ctx)
	s.clock.Set(alarmPark, s.lostCallerWait())
}

// endSpeechOfLostCaller ends the speech that the lost caller has started. It ignores the error of QueueMark, which
// fails only if the queue is full of marks.
func (s *Session) endSpeechOfLostCaller() {
	if s.keeper.Config().Options.Turns.By == turns.ByGateway {
		_ = s.uplink.QueueMark(uplink.MarkPause)
		return
	}
	_ = s.uplink.QueueMark(uplink.MarkEnd)
}
