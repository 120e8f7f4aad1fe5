package bridge

import (
	"context"
	"slices"
	"time"

	"voxgate/bridge/alarm"
	"voxgate/bridge/fleet"
	"voxgate/bridge/gemini"
	"voxgate/bridge/gemini/api"
	"voxgate/bridge/gemini/setup"
	"voxgate/bridge/gemini/wire"
	"voxgate/bridge/gemini/writer"
	"voxgate/bridge/keeper"
	"voxgate/bridge/toolcalls"
	"voxgate/bridge/transcript"
	"voxgate/bridge/uplink"
	"voxgate/crash"
	"voxgate/media/playout"
	"voxgate/tools"
)

func newSession(
	h *Host, id string, config setup.Config, o Open, own []tools.Tool, probe bool,
) *Session {
	log := h.options.Logger.With("call", id)
	s := &Session{
		audience: &audience{}, observer: observer{id, h.options.Observe},
		id: id, host: &h.shared, log: log, open: o, own: own,
		streams: streams{voice: &voice{Pacer: playout.NewPacer(h.ticker, wire.OutputRate), played: make(chan struct{}, 1)}, up: uplink.New()},
		writer:  writer.New(o.Generate), transcript: &transcript.Transcript{},
		requests: make(chan request), visits: make(chan *visit), over: make(chan struct{}), crashed: make(chan error, 1),
	}
	s.voice.OnCrash, s.voice.Logger = s.Crash, log
	s.clock, s.steering, s.answers = alarm.New(numAlarms), *begun(o), o.Origin.Agent
	s.transcript.LoadHistory(entriesOf(config.Options.History))
	s.keeper = keeper.New(keeper.Options{
		Dial: dialer(h.options.Client, s.writer), Breakers: &h.breakers, Caller: o.caller(), IsProbe: probe,
		StallTimeout: h.options.Stall, Uplink: s.up, Logger: log, OnCrash: s.Crash,
		Notify:       s.onKeeper,
		IsIdle:       func() bool { return s.answer.idle() && !s.person.speaking && !s.calls.HasRunningCall() },
		WaitsForTool: func() bool { return s.calls.HasRunningCall() },
		History:      func(fresh bool, limit int) []wire.Content { return s.answer.history(fresh, limit) },
	}, config)
	s.calls = toolcalls.New(toolcalls.Options{
		Client: toolClient{s}, Model: toolModel{s.keeper, s}, Uplink: s.up, Tools: append(slices.Clone(own), stepTool(s.Do)),
		Env: tools.Env{
			Who: tools.Who{
				Session: id, Door: o.Origin.Door, Caller: o.Origin.Identity, Grant: o.Origin.Grant, Attributes: o.Origin.Attributes,
			},
			PauseRecording: func(on bool) error { return s.Do(PauseRecording{on}) },
		},
		SignPicture: h.options.SignPicture, ObserveEnd: func(e toolcalls.CallEnd) { s.answer.observeCall(e) }, Logger: log, OnCrash: s.Crash,
	})
	s.status = &status{audience: s.audience, log: log, state: StateDialing}
	s.spending = newSpending(s.host, o, s.audience, s.voice, s.observer, log, s.up)
	s.recording = &recording{
		audience: s.audience, observer: s.observer, log: log, playout: s.voice.Pacer, writing: &h.writing,
		id: id, folder: h.options.Recordings, all: h.options.RecordAll,
	}
	s.answer = &answer{number: 1, answerOptions: answerOptions{
		audience: s.audience, observer: s.observer, log: log, voice: s.voice, transcript: s.transcript,
		up: s.up, keeper: s.keeper, calls: s.calls, quiet: o.Quiet, speaking: func() bool { return s.person.speaking }, unheard: s.unheard,
		begun: func() {
			s.lastWord = false
			s.status.apologise(false)
		},
	}}
	if o.Origin.Screen {
		s.answer.chips = h.options.Chips
	}
	return s
}

// dialer opens connections to the model, wherever it is.
func dialer(client *api.Client, w *writer.Writer) func(context.Context, gemini.Setup) (keeper.Conn, error) {
	return func(ctx context.Context, o gemini.Setup) (keeper.Conn, error) {
		if o.Writes {
			return w.Dial(o)
		}
		c, err := gemini.Dial(ctx, client, o)
		if err != nil {
			return nil, err // not a nil of another type
		}
		return c, nil
	}
}

// entriesOf is what was said before the conversation, as the transcript keeps it.
func entriesOf(history []setup.Said) (entries []Entry) {
	for _, h := range history {
		entries = append(entries, Entry{Role: h.Role, Content: h.Content})
	}
	return entries
}

// loop owns the session from its first dial to its end. A panic in it ends this conversation alone.
func (s *Session) loop(parent context.Context) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(parent)) // the last answers are sent even after a shutdown
	s.containPanic(func() { s.begun(); s.run(ctx, parent) })
	s.close(cancel)
}

// containPanic runs a part of the loop; a panic in it is why the conversation ends.
func (s *Session) containPanic(f func()) {
	crash.Run(s.log, "session", func(err error) { s.ended = err }, f)
}

// begun reports that the conversation has begun.
func (s *Session) begun() {
	if s.started.IsZero() {
		s.started = time.Now()
	}
	s.log.Info("conversation started", "model", s.keeper.Config().Model, "resumable", s.resumable())
	s.observer.report(Begun{s.describe()})
	s.voice.SetHold(true)
	s.configured()
	s.recording.follow(s.keeper.Config().Options.Record)
	if s.handover.from != nil {
		s.catchUp()
	}
}

// run does what the conversation is given to do, until it has ended.
func (s *Session) run(ctx, parent context.Context) {
	for s.ended == nil {
		select {
		case <-parent.Done():
			s.ended = context.Cause(parent)
		case s.ended = <-s.crashed:
		case v := <-s.visits:
			if v.arrived {
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
			s.handover.changed()
		case <-s.up.SpeechChanged:
			s.onSpeech(ctx)
			s.handover.changed()
		case <-s.voice.played: // endIfSaid looks below, as after everything else
			s.handover.changed()
		case <-s.recording.failed:
			s.recording.onFailed(s.keeper.Config().Options.Record)
		case <-s.clock.C:
			s.onAlarm(ctx)
		}
		if s.ended == nil {
			s.settle(ctx)
		}
	}
}

// settle follows whatever has happened.
func (s *Session) settle(ctx context.Context) {
	s.endOverBudget(s.spending.watch(s.answer.turn.voice))
	s.endIfSaid()
	s.watchSilence()
	s.watchTools()
	s.watchTurn()
	s.keeper.ReplaceIfIdle(ctx)
	s.status.set(s.stateNow())
	if s.voice.QueuedDuration() == 0 { // else the caller learns it when that is heard
		s.answer.announceThinking(s.due())
	}
	s.askToMove()
	s.handover.save(s.movable(), s.snapshot)
}

// close ends all that the conversation has. Each part is contained by itself, or one that panics would keep the others open.
func (s *Session) close(cancel context.CancelFunc) {
	var last fleet.Snapshot // nil: no gateway goes on with it, or one does already
	elsewhere := s.ended == ErrMoved || s.ended == ErrReplaced
	for _, part := range []func(){
		func() {
			if s.ended == ErrMoved {
				n := s.snapshot()
				n.Released, last = true, n
			}
		},
		func() { s.calls.Finish(s.keeper.Connected() && !elsewhere) },
		s.clock.Stop,
		cancel,
		s.keeper.Close,
		s.calls.Wait,
		s.answer.close,
		s.recording.close,
		func() {
			if owed := s.writer.Owed(); owed.Total > 0 {
				s.spending.settle()
				s.spending.add(owed)
			}
		},
		s.spending.close, // before the end is reported: a caller that comes back at once finds room
		func() { s.handover.record.End(last) },
		s.finish,
	} {
		s.containPanic(part)
	}
}

func (s *Session) onAlarm(ctx context.Context) {
	for s.ended == nil {
		which, ok := s.clock.Due()
		if !ok {
			return
		}
		switch which {
		case alarmAnswers:
			s.holdAnswers(false)
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
			if what, _ := s.keeper.ExpectedReply(); what == keeper.ForTool {
				s.keeper.DiscardReply(ctx)
			}
			s.endIfSaid()
		case alarmMove:
			s.handover.asked = false
		case alarmSilence:
			s.onSilence()
		case alarmTool:
			s.onSlowTool()
		case alarmTurn:
			s.onTurnOverdue()
		}
	}
}

// endIfSaid ends a session that only waits until an answer was heard, if it was.
func (s *Session) endIfSaid() {
	_, expected := s.keeper.ExpectedReply()
	if s.leaving == nil || s.lastWord || s.answer.turn.wanted() || expected || s.voice.QueuedDuration() > 0 {
		return
	}
	if say := s.farewell; say != "" {
		s.farewell = ""
		s.clock.Set(alarmFarewell, farewellTime)
		if s.respond(say) == nil {
			return
		}
	}
	s.end(s.leaving)
}

// finish informs everybody that the session is over.
func (s *Session) finish() {
	current := s.audience.close()
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
		"stalls", []int{c.Links.Nudges, c.Links.Resumes, c.Links.Restarts}, "asked_again", c.Links.Repeats,
		"longest_wait", c.Links.LongestWait.Round(time.Millisecond))
}
