package mediastream

import (
	"log/slog"
	"strconv"
	"sync"
	"time"

	"voxgate/bridge"
	"voxgate/media"
	"voxgate/signaling"
)

const (
	// voiceLead limits how far the voice is sent ahead of real time. On an interruption, the provider drops the voice
	// that it has not played yet.
	voiceLead = 200 * time.Millisecond
	// maxHeldMessages limits the messages that wait while the provider is paused: 20 s of voice.
	maxHeldMessages = 1000
)

// voiceSender sends the model's voice to the provider. It implements media.Output and is safe for concurrent use.
type voiceSender struct {
	dialectCodec *dialectCodec
	format       format
	enqueue      func(signaling.Outgoing) // sends a message; does not block
	log          *slog.Logger

	mu             sync.Mutex
	resampler      *media.Resampler     // nil if the provider takes the model's own sample rate
	pendingSound   []byte               // encoded sound that does not fill a message yet
	isPaused       bool                 // the provider accepts no sound for now
	isEnded        bool                 // the call has ended
	heldMessages   []signaling.Outgoing // messages waiting for the end of the pause
	playoutEnd     time.Time            // when all sent sound should have been played; zero if no sound was sent, or if it was discarded
	silenceEnd     time.Time            // end of the silence sent so far
	sentMarks      int                  // number of marks sent
	playedMark     int                  // number of the newest mark that was reported as played
	turnPlayoutEnd time.Time            // when the turn that the newest mark ends should have been played; zero if the mark ends no turn
	roundTripTime  time.Duration        // round-trip time to the provider
	playbackDelay  time.Duration        // delay between expected and reported playback, measured at the newest mark that ended a turn
	markPlayed     chan struct{}        // closed and replaced when a mark is reported
}

func newVoiceSender(c *dialectCodec, f format, send func(signaling.Outgoing), log *slog.Logger) *voiceSender {
	s := &voiceSender{dialectCodec: c, format: f, enqueue: send, log: log, markPlayed: make(chan struct{})}
	if f.rate != bridge.VoiceRate {
		s.resampler = media.NewResampler(bridge.VoiceRate, f.rate)
	}
	return s
}

// messageSize returns the size of the sound in a message, in bytes.
func (s *voiceSender) messageSize() int {
	return s.format.frameSize() * max(1, s.dialectCodec.packing.framesPerMessage)
}

// MaxLead implements media.Output.
func (s *voiceSender) MaxLead() time.Duration { return voiceLead }

// WriteFrame implements media.Output.
func (s *voiceSender) WriteFrame(f media.Frame) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isEnded {
		return nil
	}
	pcm := f.PCM
	if s.resampler != nil {
		if f.Start {
			s.resampler.RestartWithSilence() // separates the new talkspurt from the previous one in the resampler
		}
		pcm = s.resampler.Resample(pcm)
	}
	if f.Start {
		s.finishMessage()
	}
	if now := time.Now(); s.playoutEnd.Before(now) {
		s.playoutEnd = now
	}
	s.playoutEnd = s.playoutEnd.Add(media.FrameDuration)
	s.pendingSound = s.format.encodeSound(s.pendingSound, pcm)
	if len(s.pendingSound) >= s.messageSize() {
		s.sendAsOneMessage()
	}
	return nil
}

// sendSilence sends 20 ms of silence while the model does not speak, if the provider needs it. It is called for each
// received message. Messages arrive in bursts, so sendSilence never sends more silence than real time has passed.
func (s *voiceSender) sendSilence() {
	if !s.dialectCodec.packing.sendsSilence {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if s.isEnded || s.playoutEnd.After(now) || s.silenceEnd.After(now) {
		return
	}
	if last := now.Add(-media.FrameDuration); s.silenceEnd.Before(last) {
		s.silenceEnd = last
	}
	s.silenceEnd = s.silenceEnd.Add(media.FrameDuration)
	s.pendingSound = s.format.encodeSound(s.pendingSound, silentFrame[:media.Samples(media.FrameDuration, s.format.rate)])
	s.sendAsOneMessage()
}

// silentFrame holds 20 ms of silence at the highest rate of a [format].
var silentFrame = make([]int16, media.Samples(media.FrameDuration, maxRate))

// finishMessage sends the rest of the sound, which is less than a full message. If the provider requires full messages,
// it pads the message with silence. The caller must hold mu.
func (s *voiceSender) finishMessage() {
	if n := len(s.pendingSound); s.dialectCodec.packing.padsLast && n > 0 && n < s.messageSize() {
		pause := make([]int16, media.Samples(media.FrameDuration, s.format.rate)*(s.messageSize()-n)/s.format.frameSize())
		s.pendingSound = s.format.encodeSound(s.pendingSound, pause)
		s.playoutEnd = s.playoutEnd.Add(media.Duration(len(pause), s.format.rate))
	}
	s.sendAsOneMessage()
}

// sendAsOneMessage sends pendingSound as one message. The caller must hold mu.
func (s *voiceSender) sendAsOneMessage() {
	if len(s.pendingSound) > 0 {
		s.sendOrQueue(s.dialectCodec.encodeVoice(s.pendingSound))
		s.pendingSound = s.pendingSound[:0]
	}
}

// sendOrQueue sends a message, or queues it while the provider is paused. If the queue is full, it drops the queued
// messages. The caller must hold mu.
func (s *voiceSender) sendOrQueue(p signaling.Outgoing) {
	if !s.isPaused {
		s.enqueue(p)
		return
	}
	if len(s.heldMessages) == maxHeldMessages {
		s.log.Warn("voice dropped: the provider has paused for too long")
		s.heldMessages = nil
	}
	s.heldMessages = append(s.heldMessages, p)
}

// setPaused stops sending the voice, or resumes it.
func (s *voiceSender) setPaused(isPaused bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.isPaused = isPaused
	if !isPaused {
		for _, p := range s.heldMessages {
			s.enqueue(p)
		}
		s.heldMessages = nil
	}
}

// sendCommand sends a command without an argument. It locks mu, and then calls sendCommandLocked.
func (s *voiceSender) sendCommand(c command) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sendCommandLocked(c, "")
}

// sendCommandLocked sends a command with an argument immediately, ahead of the queued messages. ok is false if the
// provider does not support the command. The caller must hold mu.
func (s *voiceSender) sendCommandLocked(c command, argument string) (ok bool) {
	p, ok := s.dialectCodec.buildCommand(c, argument)
	if ok {
		s.enqueue(p)
	}
	return ok
}

// sendKeys sends DTMF keys to the other side. ok is false if the provider cannot do that.
func (s *voiceSender) sendKeys(keys string) (ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sendCommandLocked(pressKeys, keys)
}

// hangUpCall hangs up. Nothing may be sent afterwards.
func (s *voiceSender) hangUpCall() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.isEnded {
		s.sendCommandLocked(hangUp, "")
	}
	s.isEnded = true
}

// confirmPeerHangUp acknowledges that the other side has ended the call. Nothing may be sent afterwards.
func (s *voiceSender) confirmPeerHangUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sendCommandLocked(confirmHangUp, "")
	s.isEnded = true
}

// discardVoice discards the voice that was sent but not yet played.
func (s *voiceSender) discardVoice() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pendingSound, s.heldMessages, s.isPaused, s.playoutEnd = s.pendingSound[:0], nil, false, time.Time{}
	s.turnPlayoutEnd = time.Time{} // no delay is measured at the newest mark, because the sound before it was dropped
	s.sendCommandLocked(clearVoice, "")
}

// finishTurn sends the remaining sound of a turn, and then asks the provider to report when all of it has been played.
func (s *voiceSender) finishTurn() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sendRestAndMark() {
		s.turnPlayoutEnd = s.playoutEnd
	}
}

// PlaybackDelay implements [media.DelayedOutput].
func (s *voiceSender) PlaybackDelay() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.playbackDelay
}

func (s *voiceSender) setRoundTrip(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.roundTripTime = d
}

// sendRestAndMark sends the remaining sound and then a mark. hasMark is false if the provider cannot report when a
// mark is played. The caller must hold mu.
func (s *voiceSender) sendRestAndMark() (hasMark bool) {
	s.finishMessage()
	p, ok := s.dialectCodec.buildCommand(putMark, strconv.Itoa(s.sentMarks+1))
	if ok {
		s.sentMarks++
		s.turnPlayoutEnd = time.Time{}
		s.sendOrQueue(p)
	}
	return ok
}

// recordPlayedMark records the provider's report that a mark was played. An empty name stands for the newest mark.
// Unknown names are ignored.
func (s *voiceSender) recordPlayedMark(mark string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, err := s.sentMarks, error(nil)
	if mark != "" {
		n, err = strconv.Atoi(mark)
	}
	if err != nil || n <= s.playedMark || n > s.sentMarks {
		return
	}
	s.playedMark = n
	if n == s.sentMarks && !s.turnPlayoutEnd.IsZero() {
		s.playbackDelay = max(0, time.Since(s.turnPlayoutEnd)-s.roundTripTime)
	}
	close(s.markPlayed)
	s.markPlayed = make(chan struct{})
}

// remainingPlayout returns how long the sound sent so far should still play. It is zero or negative if all sound should
// have been played.
func (s *voiceSender) remainingPlayout() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Until(s.playoutEnd)
}

// waitUntilPlayed blocks until the sound sent so far has been played, or until gone or writerDone is closed. extraWait
// is how long to wait for the provider's report after the sound should have ended.
func (s *voiceSender) waitUntilPlayed(extraWait time.Duration, gone, writerDone <-chan struct{}) {
	s.mu.Lock()
	if s.playoutEnd.IsZero() {
		s.mu.Unlock()
		return
	}
	marked := s.sendRestAndMark()
	awaitedMark, remaining := s.sentMarks, time.Until(s.playoutEnd)
	s.mu.Unlock()
	if marked {
		remaining = max(0, remaining) + extraWait
	}
	timeout := time.NewTimer(remaining)
	defer timeout.Stop()
	for {
		s.mu.Lock()
		done, echo := marked && s.playedMark >= awaitedMark, s.markPlayed
		s.mu.Unlock()
		if done {
			return
		}
		select {
		case <-echo:
		case <-timeout.C:
			return
		case <-gone:
			return
		case <-writerDone: // the connection can no longer send
			return
		}
	}
}
