package bridge

import (
	"fmt"
	"time"

	"voxgate/bridge/fleet"
	"voxgate/bridge/gemini/wire"
	"voxgate/bridge/keeper"
	"voxgate/bridge/uplink"
)

const (
	// moveAgain is when a caller that was asked to go, and has not, is asked again: the other gateway may have been out of
	// reach.
	moveAgain = 5 * time.Second
	// knownTime is how long to wait for a handle that knows the last turn before asking a caller to go without one.
	knownTime = 10 * time.Second
	// stoppingPark is how long a gateway that stops waits for a lost caller, who can come back to this one alone: a page is back within 1 s.
	stoppingPark = 5 * time.Second
)

// snapshot is where the conversation stands. Only the loop calls it.
func (s *Session) snapshot() *snapshot {
	n := &snapshot{SnapshotHeader: fleet.SnapshotHeader{Node: s.host.options.Node}}
	if !s.movable() {
		return n
	}
	n.Tokens, n.Moving = s.host.tokens.of(s.id), s.handover.wanted
	n.Origin, n.Grant, n.Quiet = s.open.Origin, s.open.Grant, s.open.Quiet
	n.Origin.Agent = s.answers
	n.Door, n.Hook, n.Locked, n.Named, n.Farewell = s.open.Agent, s.open.Override, s.open.Locked, s.open.Named, s.open.Farewell
	n.Config, n.Agent, n.Steered = s.steering.raw, s.steering.agent, s.steering.functions
	n.Step = s.steering.flow.State
	n.Handle, n.Started, n.Received = s.keeper.Handle(), s.started, s.received.list()
	n.Tokened, n.Dollars, n.Context = s.spending.meter.Total(), s.spending.dollars(), s.spending.next.context
	n.Pauses = s.recording.pauses
	if s.spending.money {
		n.Priced = s.spending.model
	}
	n.Turn, n.Known, n.Speaking = s.answer.number, s.answer.known, s.answer.playing()
	if t := &s.answer.turn; n.Speaking == 0 && t.state == turnSpeaking {
		n.Speaking = t.number
	}
	if s.up.HasUnanswered() && !s.person.speaking {
		n.Asked, n.Acted = s.transcript.UserText(s.answer.question()), !s.up.NeedsReplay()
	}
	n.Said, n.Calls = s.transcript.NewestEntries(keeper.HistoryLimit), s.calls.Snapshot()
	n.Event, n.Voice = s.newest(), s.voice.Generation()
	return n
}

// movable reports whether another gateway could go on with the conversation. It could not have what a door or a tool
// keeps in memory.
func (s *Session) movable() bool {
	return s.resumable() && s.open.Own == nil && s.open.Tools == nil
}

// catchUp reports what became of the work under way at the previous gateway, and repeats the open question to the
// model unless it has acted on that. The loop calls it before anything else; the caller is about to come in.
func (s *Session) catchUp() {
	n := s.handover.from
	s.handover.from = nil
	if n.Speaking > 0 {
		kept := s.transcript.MarkInterrupted(n.Speaking, -1)
		s.notify(Interrupted{
			Turn: n.Speaking, By: ByLink, Generation: s.voice.Generation(), Heard: kept.Content, Played: kept.Played,
		})
		if s.answer.number == n.Speaking {
			s.answer.nextTurn()
		}
	}
	s.calls.RestoreCalls(n.Calls)
	if n.Asked == "" {
		return
	}
	question := uplink.Turn{Parts: wire.TextPart(n.Asked).JSON(), Complete: true}
	if n.Acted { // asked again, the model would call the tool again, which may have done its work
		s.up.RestoreTurn(question)
	} else if s.up.QueueTurn(question) {
		s.asked(ByText)
	}
}

// goElsewhere asks the caller to go to another gateway, if it can and there is one.
func (s *Session) goElsewhere(stops time.Duration) {
	if stops > 0 {
		s.notify(Log{
			Level: "warn", Message: fmt.Sprintf("The gateway stops in %v; this conversation has until then.", stops),
			Details: map[string]any{"stopsInMs": stops.Milliseconds()},
		})
	}
	if s.movable() && s.handover.want() && s.parked && s.release() {
		return
	}
	if s.handover.stops = stops > 0; s.handover.stops && s.parked {
		s.end(ErrShutdown) // its caller could come back to nobody
	}
}

// parkTime returns how long a lost caller is waited for. A gateway that stops waits only for one whose connection broke.
func (s *Session) parkTime() time.Duration {
	if s.handover.stops {
		return min(s.host.options.Park, stoppingPark)
	}
	return s.host.options.Park
}

// askToMove asks the caller to go, at a moment when that cuts nothing off.
func (s *Session) askToMove() {
	m := &s.handover
	quiet := m.wanted && !m.asked && s.status.state == StateLive && s.voice.QueuedDuration() == 0
	if !quiet || !s.keeper.IsQuiet(time.Since(m.since) < knownTime) {
		return
	}
	m.asked = true
	s.clock.Set(alarmMove, moveAgain)
	if s.host.fleet.IsAlone() {
		return
	}
	s.log.Info("caller asked to go to another gateway")
	s.notify(Move{})
}

// release ends the conversation here if its caller has gone to another gateway, or will come back to one.
func (s *Session) release() bool {
	if !s.handover.wanted || !s.movable() || s.host.fleet.IsAlone() {
		return false
	}
	s.end(ErrMoved)
	return true
}
