package bridge

import (
	"time"

	"voxgate/bridge/gemini/liveconfig"
)

// updateSilenceAlarm measures how long the person is silent while it is the person's turn to speak. The loop calls it
// after every event.
func (s *Session) updateSilenceAlarm() {
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

// onSilence makes the model ask whether the person is still there. If the model has asked several times already, it
// says goodbye instead.
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

// slowToolTime limits how long a tool may run before the person is told that it takes a while. It is also the pause
// between two waiting tones.
const slowToolTime = 2 * time.Second

// updateToolAlarm measures how long a tool runs while neither side speaks and a caller is connected. The session's loop
// calls it after every event.
func (s *Session) updateToolAlarm() {
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

// onSlowTool tells the person that a tool takes long. The model says so once, if it can speak while the tool runs.
// Otherwise a soft tone is played.
func (s *Session) onSlowTool() {
	w := s.keeper.Config().Options.Waiting
	switch {
	case w.Say != "" && !s.user.toldSlowTool && !s.calls.IsModelBlocked():
		s.user.toldSlowTool = true
		_ = s.promptModel(w.Say) // an error means that the queue is full; the prompt is then skipped
	case w.Sound:
		pcm := waitingTone()
		s.output.playCue(pcm)
		s.clock.Set(alarmTool, voiceDuration(pcm)+slowToolTime)
	}
}
