package bridge

import (
	"time"

	"voxgate/bridge/gemini/liveconfig"
)

// setSilenceAlarm runs the timer of the person's silence while it is the person's turn to speak. The loop calls it
// after every event.
func (s *Session) setSilenceAlarm() {
	o := s.keeper.Config().Options.Silence
	_, expected := s.keeper.ExpectedReply()
	busy := s.output.turn.isActive() || expected || s.voice.QueuedDuration() > 0 || !s.calls.IsIdle()
	if o.After == 0 || busy || s.user.isSpeaking || s.isUnheard() || s.pendingReason != nil || s.output.turnNumber == 1 {
		if s.clock.IsSet(alarmSilence) {
			s.clock.Clear(alarmSilence)
		}
		return
	}
	if !s.clock.IsSet(alarmSilence) {
		s.clock.Set(alarmSilence, o.After)
	}
}

// onSilence makes the model ask whether the person is still there. After several such questions it makes the model say
// goodbye.
func (s *Session) onSilence() {
	o := s.keeper.Config().Options.Silence
	if o.Times > 0 && s.user.promptCount >= o.Times {
		s.endAfterSpeaking(ErrSilence)
		return
	}
	s.user.promptCount++
	s.notify(SilenceDetected{})
	_ = s.promptModel(o.Say) // an error means that the queue is full; the next silence tries again
}

// slowToolTime is how long a tool may run before the person is informed, and also the pause between two waiting tones.
const slowToolTime = 2 * time.Second

// setToolAlarm runs the timer of a slow tool while nobody speaks and a caller is connected. The session's loop calls it
// after every event.
func (s *Session) setToolAlarm() {
	if s.keeper.Config().Options.Waiting == (liveconfig.Waiting{}) {
		return
	}
	running, set := s.calls.HasRunningCall(), s.clock.IsSet(alarmTool)
	s.user.toldSlowTool = s.user.toldSlowTool && running
	isSpeaking := s.user.isSpeaking || s.output.turn.state == turnSpeaking
	switch {
	case !running || isSpeaking || s.isUnheard() || s.pendingReason != nil:
		if set {
			s.clock.Clear(alarmTool)
		}
	case !set && s.voice.QueuedDuration() == 0:
		s.clock.Set(alarmTool, slowToolTime)
	}
}

// onSlowTool informs the person that a tool takes long. The model says so once, if it can speak meanwhile. Otherwise a
// soft tone is played.
func (s *Session) onSlowTool() {
	w := s.keeper.Config().Options.Waiting
	switch {
	case w.Say != "" && !s.user.toldSlowTool && !s.calls.IsBlocking():
		s.user.toldSlowTool = true
		_ = s.promptModel(w.Say) // an error means that the queue is full; the prompt is then skipped
	case w.Sound:
		pcm := waitingTone()
		s.output.playCue(pcm)
		s.clock.Set(alarmTool, voiceDuration(pcm)+slowToolTime)
	}
}
