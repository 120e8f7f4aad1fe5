package bridge

import (
	"context"
	"slices"
	"time"

	"voxgate/bridge/alarm"
	"voxgate/bridge/cluster"
	"voxgate/bridge/gemini"
	"voxgate/bridge/gemini/liveconfig"
	"voxgate/bridge/gemini/wire"
	"voxgate/bridge/toolcalls"
	"voxgate/bridge/transcript"
	"voxgate/bridge/uplink"
	"voxgate/bridge/upstream"
	"voxgate/internal/crash"
	"voxgate/media/playout"
	"voxgate/tools"
)

func newSession(
	h *Host, id string, config liveconfig.Config, o SessionRequest, gatewayTools []tools.Tool, isProbe bool,
) *Session {
	log := h.options.Logger.With("call", id)
	s := &Session{
		subscribers: &subscribers{}, observer: observer{id, h.options.Observe},
		id: id, host: &h.hostState, log: log, request: o, gatewayTools: gatewayTools,
		streams:    streams{voice: &voice{Pacer: playout.NewPacer(h.ticker, wire.OutputRate), playedSignal: make(chan struct{}, 1)}},
		transcript: &transcript.Transcript{},
		commands:   make(chan commandRequest), callerConns: make(chan *callerConn), done: make(chan struct{}), crashes: make(chan error, 1),
	}
	s.uplink = uplink.New(s.voice.playback)
	s.voice.OnCrash, s.voice.Logger = s.Crash, log
	s.clock, s.steering, s.agentName = alarm.New(numAlarms), *newSteering(o), o.Origin.Agent
	s.transcript.LoadHistory(historyEntries(config.Options.History))
	s.keeper = upstream.New(upstream.Options{
		Dial: s.dialModel, Breakers: &h.breakers, Caller: o.callerID(), IsProbe: isProbe,
		StallTimeout: h.options.Stall, Uplink: s.uplink, Logger: log, OnCrash: s.Crash,
		Notify:       s.onKeeperEvent,
		IsIdle:       func() bool { return s.output.isIdle() && !s.user.isSpeaking && !s.calls.HasRunningCall() },
		WaitsForTool: func() bool { return s.calls.HasRunningCall() },
		History:      func(fresh bool, limit int) []wire.Content { return s.output.buildHistory(fresh, limit) },
	}, config)
	s.calls = toolcalls.New(toolcalls.Options{
		Notify: s.onToolEvent, Functions: functionList{s}, Handles: s.keeper, CanShowCanvas: s.canShowCanvas, Uplink: s.uplink,
		Tools: append(slices.Clone(gatewayTools), newStepTool(s.Do)),
		Env: tools.Env{
			SessionInfo: tools.SessionInfo{
				Session: id, Protocol: o.Origin.Protocol, Caller: o.Origin.Identity, Grant: o.Origin.Grant, Attributes: o.Origin.Attributes,
			},
			PauseRecording: func(on bool) error { return s.Do(PauseRecording{on}) },
		},
		SignPicture: h.options.SignPicture, Logger: log, OnCrash: s.Crash,
	})
	s.status = &callerStatus{subscribers: s.subscribers, log: log, state: StateDialing}
	s.costs = newCostMeter(s.host, o, s.subscribers, s.voice, s.observer, log, s.uplink)
	s.recording = &recording{
		subscribers: s.subscribers, observer: s.observer, log: log, playout: s.voice.Pacer, writing: &h.writing,
		id: id, folder: h.options.Recordings, recordAll: h.options.RecordAll,
	}
	s.output = &modelOutput{turnNumber: 1, outputOptions: outputOptions{
		subscribers: s.subscribers, observer: s.observer, log: log, voice: s.voice, transcript: s.transcript,
		uplink: s.uplink, keeper: s.keeper, calls: s.calls, noCues: o.NoCues, status: s.status, loop: &s.loopState,
	}}
	if o.Origin.HasScreen {
		s.output.suggestionsPage = h.options.SuggestionsPage
	}
	return s
}

// dialModel opens a connection to the model. For a text model it uses the request's Dial. Otherwise it connects to the
// Live API.
func (s *Session) dialModel(ctx context.Context, o gemini.Setup) (upstream.Conn, error) {
	if o.IsTextModel {
		o.OnLateTokens = func(t wire.Tokens) { s.lateTokens = s.lateTokens.Plus(t) }
		return s.request.Dial(ctx, o)
	}
	c, err := gemini.Dial(ctx, s.host.options.Client, o)
	if err != nil {
		return nil, err // returning c would make a non-nil interface that holds a nil pointer
	}
	return c, nil
}

// historyEntries converts the history from before the conversation to transcript entries.
func historyEntries(history []liveconfig.HistoryTurn) (entries []Entry) {
	for _, h := range history {
		entries = append(entries, Entry{Role: h.Role, Content: h.Content})
	}
	return entries
}

// runLoop runs the session from its first dial to its end. If it panics, only this conversation ends.
func (s *Session) runLoop(parent context.Context) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(parent)) // outlives parent: the last answers are sent even after a shutdown
	s.containPanic(func() { s.onStarted(); s.processEvents(ctx, parent) })
	s.close(cancel)
}

// containPanic runs a part of the loop. If that part panics, the conversation ends.
func (s *Session) containPanic(f func()) {
	crash.Run(s.log, "session", func(err error) { s.endReason = err }, f)
}

// onStarted reports the start of the conversation, and applies its first configuration.
func (s *Session) onStarted() {
	if s.started.IsZero() {
		s.started = time.Now()
	}
	s.log.Info("conversation started", "model", s.keeper.Config().Model, "resumable", s.isResumable())
	s.observer.report(SessionStarted{s.buildInfo()})
	s.voice.SetHold(true)
	s.applyConfig()
	s.recording.applyConfig(s.keeper.Config().Options.Record)
	if s.cluster.restoredFrom != nil {
		s.catchUpRestored()
	}
}

// processEvents processes events until the conversation has ended.
func (s *Session) processEvents(ctx, parent context.Context) {
	for s.endReason == nil {
		select {
		case <-parent.Done():
			s.endReason = context.Cause(parent)
		case s.endReason = <-s.crashes:
		case v := <-s.callerConns:
			if v.hasArrived {
				s.onDeparture(ctx, v)
			} else {
				s.onArrival(ctx, v)
			}
		case f := <-s.keeper.Work():
			f(ctx)
		case <-s.keeper.Alarms():
			s.keeper.OnAlarm(ctx)
		case r := <-s.commands:
			r.answer <- s.runCommand(ctx, r.command)
		case f := <-s.calls.Work():
			f()
			s.cluster.markChanged()
		case <-s.uplink.SpeechChanged:
			s.onSpeechChange(ctx)
			s.cluster.markChanged()
		case <-s.voice.playedSignal: // afterEvent calls endIfPlayed
			s.cluster.markChanged()
		case <-s.recording.failed:
			s.recording.onFailed(s.keeper.Config().Options.Record)
		case <-s.clock.C:
			s.onAlarm(ctx)
		}
		if s.endReason == nil {
			s.afterEvent(ctx)
		}
	}
}

// afterEvent is called after each event and updates the state that is derived from other state.
func (s *Session) afterEvent(ctx context.Context) {
	s.endOverBudget(s.costs.extendReserve(s.output.turn.voiceLength))
	s.endIfPlayed()
	s.updateSilenceAlarm()
	s.updateToolAlarm()
	s.setTurnAlarm()
	s.keeper.ReplaceIfIdle(ctx)
	s.status.setState(s.currentState())
	if s.voice.QueuedDuration() == 0 { // otherwise the caller is informed when the queued voice was played
		s.output.announceThinking(s.isReplyDue())
	}
	s.askToMoveIfQuiet()
	s.cluster.queueSnapshotIfChanged(s.isMovable(), s.buildSnapshot)
}

// close releases everything that the conversation holds. If closing one part panics, the other parts are closed
// nevertheless.
func (s *Session) close(cancel context.CancelFunc) {
	var last cluster.Snapshot // snapshot for a gateway that will continue the conversation; otherwise nil
	elsewhere := s.endReason == ErrMoved || s.endReason == ErrReplaced
	for _, part := range []func(){
		func() {
			if s.endReason == ErrMoved {
				n := s.buildSnapshot()
				n.Released, last = true, n
			}
		},
		func() { s.calls.Finish(s.keeper.Connected() && !elsewhere) },
		s.clock.Stop,
		cancel,
		s.keeper.Close,
		s.calls.Wait,
		s.output.close,
		s.recording.close,
		func() {
			if s.lateTokens.Total > 0 {
				s.costs.settleTurn()
				s.costs.addUsage(s.lateTokens)
			}
		},
		s.costs.close, // before the end is reported, so that a returning caller finds room in the quota
		func() { s.cluster.entry.End(last) },
		s.finishSession,
	} {
		s.containPanic(part)
	}
}

func (s *Session) onAlarm(ctx context.Context) {
	for s.endReason == nil {
		which, ok := s.clock.TakeDue()
		if !ok {
			return
		}
		switch which {
		case alarmToolResponses:
			s.holdToolResponses(false)
		case alarmMicrophone:
			s.watchMicrophone()
		case alarmPark:
			s.endWith(ErrLeft)
		case alarmLimit:
			s.endAfterSpeaking(ErrTimeLimit)
		case alarmFarewell:
			s.endWith(s.pendingReason)
		case alarmGoodbye:
			s.awaitsGoodbye = false
			if what, _ := s.keeper.ExpectedReply(); what == upstream.ForTool {
				s.keeper.DiscardReply(ctx)
			}
			s.endIfPlayed()
		case alarmMove:
			s.cluster.callerAsked = false
		case alarmSilence:
			s.onSilence()
		case alarmTool:
			s.onSlowTool()
		case alarmTurn:
			s.onTurnOverdue()
		case alarmTurnTaking:
			s.tickTurns()
		}
	}
}

// endIfPlayed ends a session that has a pendingReason once its voice has been played: the current answer and then, if
// there is one, the model's goodbye.
func (s *Session) endIfPlayed() {
	_, expected := s.keeper.ExpectedReply()
	if s.pendingReason == nil || s.awaitsGoodbye || s.output.turn.isActive() || expected || s.voice.QueuedDuration() > 0 {
		return
	}
	if say := s.farewellPrompt; say != "" {
		s.farewellPrompt = ""
		s.clock.Set(alarmFarewell, farewellTime)
		if s.promptModel(say) == nil {
			return
		}
	}
	s.endWith(s.pendingReason)
}

// finishSession stops the events, closes done, cancels the caller's context and logs the statistics of the session.
func (s *Session) finishSession() {
	current := s.subscribers.close()
	close(s.done)
	if current != nil {
		current.cancel(s.endReason)
	}
	c := s.collectCounts()
	s.log.Info("conversation ended", "reason", s.endReason, "duration", time.Since(s.started).Round(time.Millisecond),
		"chunks_up", c.Up.Sent, "chunks_dropped", c.Up.Dropped, "speech_dropped", c.Up.Speech, "chunks_gated", c.Up.Gated,
		"chunks_replayed", c.Up.Replayed,
		"frames_down", c.Voice.Frames, "underruns", c.Voice.Underruns, "flushes", c.Voice.Flushes,
		"turns", s.output.turnNumber-1, "tokens", c.Tokens.Total, "tokens_in", c.Tokens.Prompt, "tokens_in_by", c.Tokens.PromptBy,
		"tokens_out", c.Tokens.Response, "tokens_out_by", c.Tokens.ResponseBy,
		"dials", c.Connections.Dials, "resumed", c.Connections.Resumed, "reseeded", c.Connections.Reseeded,
		"stalls", []int{c.Connections.Nudges, c.Connections.Resumes, c.Connections.Restarts}, "asked_again", c.Connections.Repeats,
		"longest_wait", c.Connections.LongestWait.Round(time.Millisecond))
}
