package bridge

import (
	"voxgate/bridge/turns"
	"voxgate/bridge/uplink"
	"voxgate/media/playout"
	"voxgate/media/prosody"
)

// This file carries out the actions of the turn-taking machine in the uplink. They occur only if the gateway decides
// about turns. The code runs in the session's loop.

// TurnJudge judges by the sound of a voice whether a person who pauses has finished.
type TurnJudge interface {
	// Ask judges 16 kHz audio that ends 200 ms after the last sound. It does not block. It calls answer once, in any
	// goroutine. finished is the probability that the person has finished. ok is false if the time did not suffice.
	Ask(pcm []int16, answer func(finished float64, ok bool))
}

// judgedAudio is the length of the audio that a judge gets.
const judgedAudio = prosody.MaxLength

// doTurnActions carries out actions of the turn-taking machine, in order.
func (s *Session) doTurnActions(actions []turns.Action) {
	for _, a := range actions {
		switch a.Kind {
		case turns.AskJudge:
			s.judgePause(a.Pause)
		case turns.Duck:
			s.voice.Duck(turns.DuckDecibels)
		case turns.Unduck:
			s.voice.Duck(0)
		case turns.Hold:
			if s.isAnswerHeld, _ = s.voice.playback(); s.isAnswerHeld { // otherwise no answer sounds yet, and the next answer waits
				s.reportTurnChange(TurnHeld)
				s.notify(InterruptionPending{true})
			}
			if a.AtOnce {
				s.voice.Suspend(0)
			} else {
				s.voice.Suspend(playout.DipSearch)
			}
		case turns.GoOn:
			s.voice.Resume()
			if s.isAnswerHeld {
				s.reportTurnChange(TurnResumed)
				s.notify(InterruptionPending{false})
			}
			s.isAnswerHeld = false
		case turns.Cut:
			s.reportTurnChange(TurnCut)
			s.output.interrupt(ByVoice, false)
			s.endAnswerHold()
		case turns.Retract:
			s.reportTurnChange(TurnRetracted)
			s.output.retractQuestion()
			s.endAnswerHold()
		case turns.End:
			s.reportTurnChange(TurnEnded)
		}
	}
}

// endAnswerHold ends the hold after the held answer was dropped. It also resumes the playout, which may have been
// suspended before any answer came.
func (s *Session) endAnswerHold() {
	s.voice.Resume()
	s.isAnswerHeld = false
}

// judgePause asks whether the person has finished speaking. pause is the number of the pause. Package prosody answers
// at once, and the judge, if there is one, a little later.
func (s *Session) judgePause(pause uint32) {
	pcm := s.uplink.RecentAudio(judgedAudio, prosody.Rate)
	judge := s.host.options.TurnJudge
	p := float64(prosody.Predict(pcm))
	s.uplink.RecordVerdict(pause, p, judge == nil)
	if judge != nil {
		judge.Ask(pcm, func(finished float64, ok bool) {
			if !ok {
				finished = p
			}
			s.uplink.RecordVerdict(pause, finished, true)
		})
	}
}

// tickTurns tells the turn-taking machine the current time. If the machine needs another call, it schedules that.
func (s *Session) tickTurns() {
	if s.uplink.Tick() {
		s.clock.Set(alarmTurnTaking, uplink.TickTime)
	}
}

func (s *Session) reportTurnChange(change TurnChange) { s.observer.report(TurnTaking{change}) }
