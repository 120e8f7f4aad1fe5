package bridge

import (
	"context"
	"time"

	"voxgate/bridge/alarm"
	"voxgate/bridge/gemini/setup"
	"voxgate/bridge/gemini/wire"
	"voxgate/bridge/keeper"
	"voxgate/bridge/toolcalls"
	"voxgate/bridge/uplink"
	"voxgate/media/playout"
	"voxgate/tools"
)

func newSession(h *Host, id string, config setup.Config, o Open, scope setup.Scope, own []tools.Tool, probe bool) *Session {
	log := h.options.Logger.With("call", id)
	if o.Account == nil {
		o.Account = Unlimited
	}
	s := &Session{
		id: id, host: h, log: log, open: o, scope: scope,
		playout: playout.NewPacer(h.ticker, wire.OutputRate), up: uplink.New(), transcript: &transcript{},
		requests: make(chan request), visits: make(chan *visit),
		played: make(chan struct{}, 1), over: make(chan struct{}),
		clock: alarm.New(numAlarms), state: StateDialing, dialogue: dialogue{answer: answers{number: 1}},
	}
	s.steering.raw = o.Config
	s.transcript.begin(entriesOf(config.Options.History))
	s.keeper = keeper.New(keeper.Options{
		Client: h.options.Client, Breaker: &h.breaker, Probe: probe, Stall: h.options.Stall, Uplink: s.up, Logger: log,
		Tell: s.onKeeper, Idle: s.idle, Calling: func() bool { return s.calls.Calling() }, History: s.history,
	}, config)
	s.calls = toolcalls.New(toolcalls.Options{
		Client: toolClient{s}, Model: toolModel{s}, Uplink: s.up, Tools: own,
		Env:         tools.Env{Session: id, Door: o.Origin.Door, Caller: o.Origin.Identity, Grant: o.Origin.Grant},
		SignPicture: h.options.SignPicture, Observe: s.observeCall, Logger: log,
	})
	return s
}

// entriesOf is what was said before the conversation, as the transcript keeps it.
func entriesOf(history []setup.Said) (entries []Entry) {
	for _, h := range history {
		entries = append(entries, Entry{Role: h.Role, Content: h.Content})
	}
	return entries
}

// loop owns the session from its first dial to its end.
func (s *Session) loop(parent context.Context) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(parent)) // the last answers go up after a shutdown, too
	config := s.keeper.Config()
	if s.started.IsZero() {
		s.started = time.Now()
	}
	s.log.Info("conversation started", "model", config.Model, "resumable", s.resumable())
	if tell := s.host.options.Observe; tell != nil {
		tell(s.id, Begun{s.describe()})
	}
	s.playout.Hold(true)
	s.configured()
	s.record()
	if s.move.from != nil {
		s.catchUp()
	}
	for s.ended == nil {
		select {
		case <-parent.Done():
			s.ended = context.Cause(parent)
		case v := <-s.visits:
			if v.seen {
				s.onDeparture(ctx, v)
			} else {
				s.onArrival(ctx, v)
			}
		case f := <-s.keeper.Work():
			f(ctx)
		case <-s.keeper.Alarms():
			s.keeper.OnAlarm(ctx)
		case r := <-s.requests:
			r.answer <- s.carryOut(ctx, r.command)
		case f := <-s.calls.Work():
			f()
			s.move.unsaved = true
		case <-s.up.Turned:
			s.onSpeech(ctx)
			s.move.unsaved = true
		case <-s.played: // onPlayed looks below, as after everything else
			s.move.unsaved = true
		case <-s.recording.failed:
			s.onRecordingFailed()
		case <-s.clock.C:
			s.onAlarm(ctx)
		}
		if s.ended == nil {
			s.onPlayed()
			s.keeper.Settle(ctx)
			s.updateState()
			s.updateThinking()
			s.askToMove()
			s.save()
		}
	}
	last := s.lastSnapshot()
	s.calls.Finish(s.keeper.Connected() && !s.goesOn())
	s.clock.Stop()
	cancel()
	s.keeper.Close()
	s.calls.Wait()
	s.observeEnd()
	s.playout.Close()
	s.closeRecording()
	s.open.Account.Spend(s.uncounted()) // of an answer that was not over
	s.open.Account.End()                // before anybody is told: who comes back at once finds room
	s.host.nodes.end(s, last)
	s.finish()
}

func (s *Session) onAlarm(ctx context.Context) {
	for s.ended == nil {
		which, ok := s.clock.Due()
		if !ok {
			return
		}
		switch which {
		case alarmMicrophone:
			s.watchMicrophone()
		case alarmPark:
			s.end(ErrLeft)
		case alarmLimit:
			s.endAfterSpeaking(ErrTimeLimit)
		case alarmFarewell:
			s.end(s.leaving)
		case alarmLastWord:
			s.lastWord = false
			if what, _ := s.keeper.Expects(); what == keeper.ForTool {
				s.keeper.ExpectNothing(ctx)
			}
			s.onPlayed()
		case alarmMove:
			s.move.asked = false
		}
	}
}

// finish tells everybody that the session is over.
func (s *Session) finish() {
	s.audience.mu.Lock()
	current := s.audience.visit
	s.audience.listener = nil
	s.audience.mu.Unlock()
	close(s.over)
	if current != nil {
		current.cancel(s.ended)
	}
	c := s.counts()
	s.log.Info("conversation ended", "reason", s.ended, "duration", time.Since(s.started).Round(time.Millisecond),
		"chunks_up", c.Up.Sent, "chunks_dropped", c.Up.Dropped, "speech_dropped", c.Up.Speech, "chunks_gated", c.Up.Gated,
		"chunks_replayed", c.Up.Replayed,
		"frames_down", c.Voice.Frames, "underruns", c.Voice.Underruns, "flushes", c.Voice.Flushes,
		"turns", s.answer.number-1, "tokens", c.Tokens.Total, "tokens_in", c.Tokens.Prompt, "tokens_in_by", c.Tokens.PromptBy,
		"tokens_out", c.Tokens.Response, "tokens_out_by", c.Tokens.ResponseBy,
		"dials", c.Links.Dials, "resumed", c.Links.Resumed, "reseeded", c.Links.Reseeded,
		"stalls", []int{c.Links.Nudges, c.Links.Resumes, c.Links.Restarts}, "longest_wait", c.Links.LongestWait.Round(time.Millisecond))
}
