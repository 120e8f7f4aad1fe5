package bridge

import (
	"fmt"
	"time"

	"voxgate/bridge/cluster"
	"voxgate/bridge/gemini/wire"
	"voxgate/bridge/uplink"
	"voxgate/bridge/upstream"
)

const (
	// moveRetry is the time after which a caller that was asked to move, but has not moved, is asked again. The other
	// gateway may have been unreachable.
	moveRetry = 5 * time.Second
	// handleWait limits how long a move waits until there is a resumption handle that covers the last turn. After that,
	// the caller moves without such a handle.
	handleWait = 10 * time.Second
	// drainParkTime limits how long a stopping gateway waits for a lost caller that can return only to this gateway. A
	// web page returns within 1 s.
	drainParkTime = 5 * time.Second
)

// buildSnapshot returns the state of the conversation. Only the session's loop calls it.
func (s *Session) buildSnapshot() *snapshot {
	n := &snapshot{SnapshotHeader: cluster.SnapshotHeader{Node: s.host.options.Node}}
	if !s.isMovable() {
		return n
	}
	n.TokenHashes, n.Moving = s.host.tokens.tokenHashes(s.id), s.cluster.moveWanted
	n.Origin, n.Grant, n.NoCues = s.request.Origin, s.request.Grant, s.request.NoCues
	n.Origin.Agent = s.agentName
	n.OperatorAgent, n.WebhookAgent, n.AgentLocked, n.AgentNamed, n.FarewellPrompt = s.request.Agent, s.request.Override,
		s.request.AgentLocked, s.request.AgentNamed, s.request.FarewellPrompt
	n.Config, n.BackendAgent, n.BackendFunctions = s.steering.callerConfig, s.steering.agent, s.steering.functions
	n.Step = s.steering.flow.State
	n.Handle, n.Started, n.Received = s.keeper.ResumptionHandle(), s.started, s.receivedIDs.newestIDs()
	n.UsedTokens, n.Dollars, n.ContextTokens = s.costs.meter.Total(), s.costs.totalDollars(), s.costs.estimate.context
	n.Pauses = s.recording.pauses
	if s.costs.isMoneyLimited {
		n.PricedModel = s.costs.model
	}
	n.NextTurn, n.CoveredTurn, n.SpeakingTurn = s.output.turnNumber, s.output.coveredTurn, s.output.playingTurn()
	if t := &s.output.turn; n.SpeakingTurn == 0 && t.state == turnSpeaking {
		n.SpeakingTurn = t.number
	}
	if s.uplink.HasUnanswered() && !s.user.isSpeaking {
		n.OpenQuestion, n.ActedOn = s.transcript.UserText(s.output.questionTurn()), !s.uplink.NeedsReplay()
	}
	n.Transcript, n.Calls = s.transcript.NewestEntries(upstream.HistoryLimit), s.calls.Snapshot()
	n.LastEvent, n.VoiceGeneration = s.lastEventNumber(), s.voice.Generation()
	return n
}

// isMovable reports whether another gateway could continue the conversation. It cannot if an endpoint or a tool keeps
// state in this gateway's memory.
func (s *Session) isMovable() bool {
	return s.isResumable() && s.request.EndpointState == nil && s.request.Tools == nil
}

// catchUpRestored continues a conversation that began at another gateway, for example with its open question and tool
// calls. The loop calls it just before the caller arrives.
func (s *Session) catchUpRestored() {
	n := s.cluster.restoredFrom
	s.cluster.restoredFrom = nil
	if n.SpeakingTurn > 0 {
		kept := s.transcript.MarkInterrupted(n.SpeakingTurn, -1)
		s.notify(Interrupted{
			Turn: n.SpeakingTurn, By: ByConnectionLoss, Generation: s.voice.Generation(), PlayedText: kept.Content, Played: kept.Played,
		})
		if s.output.turnNumber == n.SpeakingTurn {
			s.output.advanceTurn()
		}
	}
	s.calls.RestoreCalls(n.Calls)
	if n.OpenQuestion == "" {
		return
	}
	question := uplink.Turn{Parts: wire.TextPart(n.OpenQuestion).JSON(), Complete: true}
	if n.ActedOn { // a repeated question would repeat the tool call, which may already have had an effect
		s.uplink.RestoreTurn(question)
	} else if s.uplink.QueueTurn(question) {
		s.expectTextReply(ByText)
	}
}

// onDrain asks the caller to move to another gateway, if possible. stopsIn is the time until this gateway stops. 0
// means that this gateway keeps running.
func (s *Session) onDrain(stopsIn time.Duration) {
	if stopsIn > 0 {
		s.notify(Log{
			Level: "warn", Message: fmt.Sprintf("The gateway stops in %v; this conversation has until then.", stopsIn),
			Details: map[string]any{"stopsInMs": stopsIn.Milliseconds()},
		})
	}
	if s.isMovable() && s.cluster.requestMove() && s.isParked && s.releaseIfMoving() {
		return
	}
	if s.cluster.isStopping = stopsIn > 0; s.cluster.isStopping && s.isParked {
		s.endWith(ErrShutdown) // the caller could not come back to this gateway
	}
}

// lostCallerWait returns how long to wait for a lost caller to return. If this gateway is about to stop, the wait is at
// most drainParkTime.
func (s *Session) lostCallerWait() time.Duration {
	if s.cluster.isStopping {
		return min(s.host.options.Park, drainParkTime)
	}
	return s.host.options.Park
}

// askToMoveIfQuiet asks the caller to move to another gateway. It does so only at a moment when the move interrupts nothing.
func (s *Session) askToMoveIfQuiet() {
	m := &s.cluster
	quiet := m.moveWanted && !m.callerAsked && s.status.state == StateLive && s.voice.QueuedDuration() == 0
	if !quiet || !s.keeper.IsQuiet(time.Since(m.wantedSince) < handleWait) {
		return
	}
	m.callerAsked = true
	s.clock.Set(alarmMove, moveRetry)
	if s.host.cluster.IsAlone() {
		return
	}
	s.log.Info("caller asked to move to another gateway")
	s.notify(Move{})
}

// releaseIfMoving ends the conversation at this gateway if its caller should move and another gateway can continue the
// conversation. isReleased reports whether it has ended the conversation.
func (s *Session) releaseIfMoving() (isReleased bool) {
	if !s.cluster.moveWanted || !s.isMovable() || s.host.cluster.IsAlone() {
		return false
	}
	s.endWith(ErrMoved)
	return true
}
