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
	// voiceLead limits how far the voice is sent ahead of real time. On an interruption, the provider drops what it has not played.
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

func newVoiceSender(c *dialectCodec, f format, put func(signaling.Outgoing), log *slog.Logger) *voiceSender {
	s := &voiceSender{dialectCodec: c, format: f, enqueue: put, log: log, markPlayed: make(chan struct{})}
	if f.rate != bridge.VoiceRate {
		s.resampler = media.NewResampler(bridge.VoiceRate, f.rate)
	}
	return s
}

// messageSize returns the size of the sound in a message, in bytes.
func (s *voiceSender) messageSize() int {
	return s.format.frameSize() * max(1, s.dialectCodec.packing.framesPerMessage)
}

// Lead implements media.Output.
func (s *voiceSender) Lead() time.Duration { return voiceLead }

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
			s.resampler.PadStart() // separates the new talkspurt from the previous one in the resampler
		}
		pcm = s.resampler.Resample(pcm)
	}
	if f.Start {
		s.sendRemainder()
	}
	if now := time.Now(); s.playoutEnd.Before(now) {
		s.playoutEnd = now
	}
	s.playoutEnd = s.playoutEnd.Add(media.FrameDuration)
	s.pendingSound = s.format.encodeSound(s.pendingSound, pcm)
	if len(s.pendingSound) >= s.messageSize() {
		s.sendSound()
	}
	return nil
}

// sendSilence sends 20 ms of silence while the model does not speak, if the provider needs it. It is called for each
// received message. These come in bursts, so sendSilence limits the silence to real time.
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
	s.sendSound()
}

// silentFrame holds 20 ms of silence at the highest rate of a [format].
var silentFrame = make([]int16, media.Samples(media.FrameDuration, maxRate))

// sendRemainder sends the sound that does not fill a message. It is padded with silence if the provider requires full
// messages. The caller must hold mu.
func (s *voiceSender) sendRemainder() {
	if n := len(s.pendingSound); s.dialectCodec.packing.padsLast && n > 0 && n < s.messageSize() {
		pause := make([]int16, media.Samples(media.FrameDuration, s.format.rate)*(s.messageSize()-n)/s.format.frameSize())
		s.pendingSound = s.format.encodeSound(s.pendingSound, pause)
		s.playoutEnd = s.playoutEnd.Add(media.Duration(len(pause), s.format.rate))
	}
	s.sendSound()
}

// sendSound sends pendingSound as one message. The caller must hold mu.
func (s *voiceSender) sendSound() {
	if len(s.pendingSound) > 0 {
		s.sendOrHold(s.dialectCodec.encodeVoice(s.pendingSound))
		s.pendingSound = s.pendingSound[:0]
	}
}

// sendOrHold sends a message. While the provider is paused, it queues the message instead; if the queue is full, the queued messages
// are dropped. The caller must hold mu.
func (s *voiceSender) sendOrHold(p signaling.Outgoing) {
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
func (s *voiceSender) setPaused(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.isPaused = on
	if !on {
		for _, p := range s.heldMessages {
			s.enqueue(p)
		}
		s.heldMessages = nil
	}
}

// sendCommand sends a command without an argument. Unlike sendCommandLocked, it locks mu itself.
func (s *voiceSender) sendCommand(c command) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sendCommandLocked(c, "")
}

// sendCommandLocked sends a command with the argument `what` immediately, before the queued messages. It returns false if the provider
// does not support the command. The caller must hold mu.
func (s *voiceSender) sendCommandLocked(c command, what string) bool {
	p, ok := s.dialectCodec.buildCommand(c, what)
	if ok {
		s.enqueue(p)
	}
	return ok
}

// sendKeys sends DTMF keys to the other side. It returns false if the provider cannot do that.
func (s *voiceSender) sendKeys(keys string) bool {
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

// confirmEnd acknowledges that the other side has ended the call. Nothing may be sent afterwards.
func (s *voiceSender) confirmEnd() {
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

// finishTurn sends the remaining sound of a turn and asks for a report when it has been played.
func (s *voiceSender) finishTurn() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sendMark() {
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

// sendMark sends the remaining sound and then a mark. It returns false if the provider cannot report playback. The
// caller must hold mu.
func (s *voiceSender) sendMark() bool {
	s.sendRemainder()
	p, ok := s.dialectCodec.buildCommand(putMark, strconv.Itoa(s.sentMarks+1))
	if ok {
		s.sentMarks++
		s.turnPlayoutEnd = time.Time{}
		s.sendOrHold(p)
	}
	return ok
}

// handlePlayed records the report of a mark. An empty name stands for the newest mark; unknown names are ignored.
func (s *voiceSender) handlePlayed(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, err := s.sentMarks, error(nil)
	if name != "" {
		n, err = strconv.Atoi(name)
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

// remainingPlayout returns how long the sent sound should still play. It is zero or negative if all sound should have
// been played.
func (s *voiceSender) remainingPlayout() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Until(s.playoutEnd)
}

// waitUntilPlayed blocks until the sent sound has been played, or one of the channels gone and written is closed. extra
// is the additional time to wait for the provider's playback report.
func (s *voiceSender) waitUntilPlayed(extra time.Duration, gone, written <-chan struct{}) {
	s.mu.Lock()
	if s.playoutEnd.IsZero() {
		s.mu.Unlock()
		return
	}
	marked := s.sendMark()
	awaitedMark, remaining := s.sentMarks, time.Until(s.playoutEnd)
	s.mu.Unlock()
	if marked {
		remaining = max(0, remaining) + extra
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
		case <-written: // the connection can no longer send
			return
		}
	}
}
