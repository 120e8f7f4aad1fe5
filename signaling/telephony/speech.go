package telephony

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
	// voiceLead is how much voice is sent ahead of real time. On an interruption, the provider drops what it has not played.
	voiceLead = 200 * time.Millisecond
	// maxHeld limits the messages that wait while the provider is paused: 20 s of voice.
	maxHeld = 1000
)

// speech sends the model's voice to the provider. It implements media.Output and is safe for concurrent use.
type speech struct {
	codec  *dialectCodec
	format format
	put    func(signaling.Outgoing) // sends a message; does not block
	log    *slog.Logger

	mu       sync.Mutex
	down     *media.Resampler     // nil if the provider takes the model's own sample rate
	gathered []byte               // encoded sound, less than one message
	paused   bool                 // the provider accepts no sound for now
	over     bool                 // the call has ended
	held     []signaling.Outgoing // messages waiting for the end of the pause
	due      time.Time            // when the sent sound should have been played; zero if none was sent, or it was cleared
	filled   time.Time            // end of the silence sent so far
	marks    int                  // number of marks sent
	echoed   int                  // newest mark reported as played
	turnDue  time.Time            // due at the newest mark, if that ends a turn; otherwise zero
	away     time.Duration        // round-trip time to the provider
	late     time.Duration        // extra playback delay, measured at the newest mark
	echo     chan struct{}        // closed and replaced when a mark is reported
}

func newSpeech(c *dialectCodec, f format, put func(signaling.Outgoing), log *slog.Logger) *speech {
	s := &speech{codec: c, format: f, put: put, log: log, echo: make(chan struct{})}
	if f.rate != bridge.VoiceRate {
		s.down = media.NewResampler(bridge.VoiceRate, f.rate)
	}
	return s
}

// size returns the size of the sound in a message, in bytes.
func (s *speech) size() int { return s.format.frame() * max(1, s.codec.packing.frames) }

// Lead implements media.Output.
func (s *speech) Lead() time.Duration { return voiceLead }

// WriteFrame implements media.Output.
func (s *speech) WriteFrame(f media.Frame) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return nil
	}
	pcm := f.PCM
	if s.down != nil {
		if f.Start {
			s.down.PadStart() // clears what the resampler kept of the previous talkspurt
		}
		pcm = s.down.Resample(pcm)
	}
	if f.Start {
		s.sendRest()
	}
	if now := time.Now(); s.due.Before(now) {
		s.due = now
	}
	s.due = s.due.Add(media.FrameDuration)
	s.gathered = s.format.encode(s.gathered, pcm)
	if len(s.gathered) >= s.size() {
		s.send()
	}
	return nil
}

// fill sends 20 ms of silence while the model does not speak. It is called for each message of sound received. These may come in bursts,
// but the silence is sent in real time.
func (s *speech) fill() {
	if !s.codec.packing.fills {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if s.over || s.due.After(now) || s.filled.After(now) {
		return
	}
	if last := now.Add(-media.FrameDuration); s.filled.Before(last) {
		s.filled = last
	}
	s.filled = s.filled.Add(media.FrameDuration)
	s.gathered = s.format.encode(s.gathered, quiet[:media.Samples(media.FrameDuration, s.format.rate)])
	s.send()
}

// quiet holds 20 ms of silence at the highest rate of a [format].
var quiet = make([]int16, media.Samples(media.FrameDuration, maxRate))

// sendRest sends the remaining sound, padded with silence if the provider requires full messages. The caller must hold mu.
func (s *speech) sendRest() {
	if n := len(s.gathered); s.codec.packing.whole && n > 0 && n < s.size() {
		pause := make([]int16, media.Samples(media.FrameDuration, s.format.rate)*(s.size()-n)/s.format.frame())
		s.gathered = s.format.encode(s.gathered, pause)
		s.due = s.due.Add(media.Duration(len(pause), s.format.rate))
	}
	s.send()
}

// send sends the gathered sound. The caller must hold mu.
func (s *speech) send() {
	if len(s.gathered) > 0 {
		s.post(s.codec.voice(s.gathered))
		s.gathered = s.gathered[:0]
	}
}

// post sends a message, or queues it while the provider is paused. If the queue is full, it is emptied first. The caller must hold mu.
func (s *speech) post(p signaling.Outgoing) {
	if !s.paused {
		s.put(p)
		return
	}
	if len(s.held) == maxHeld {
		s.log.Warn("voice lost: the other side takes none")
		s.held = nil
	}
	s.held = append(s.held, p)
}

// pause stops sending the voice, or resumes it.
func (s *speech) pause(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.paused = on
	if !on {
		for _, p := range s.held {
			s.put(p)
		}
		s.held = nil
	}
}

// reply sends a command without an argument. Unlike order, it locks mu itself.
func (s *speech) reply(c command) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.order(c, "")
}

// order sends a command ahead of the queued messages. It returns false if the provider lacks this command. The caller must hold mu.
func (s *speech) order(c command, what string) bool {
	p, ok := s.codec.say(c, what)
	if ok {
		s.put(p)
	}
	return ok
}

// press sends DTMF keys to the other side. It returns false if the provider cannot do that.
func (s *speech) press(keys string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.order(pressKeys, keys)
}

// end hangs up. Nothing may be sent afterwards.
func (s *speech) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.over {
		s.order(hangUp, "")
	}
	s.over = true
}

// stop acknowledges that the other side has ended the call. Nothing may be sent afterwards.
func (s *speech) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.order(farewell, "")
	s.over = true
}

// clear discards the voice that was sent but not yet played.
func (s *speech) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gathered, s.held, s.paused, s.due = s.gathered[:0], nil, false, time.Time{}
	s.turnDue = time.Time{} // the sound before marks that are reported from now on was dropped, not played
	s.order(clearVoice, "")
}

// finish sends the remaining sound of a turn and asks for a report when it has been played.
func (s *speech) finish() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mark() {
		s.turnDue = s.due
	}
}

// PlaybackDelay implements [media.DelayedOutput].
func (s *speech) PlaybackDelay() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.late
}

func (s *speech) roundTrip(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away = d
}

// mark sends the remaining sound and a mark after it. It returns false if the provider cannot report playback. The caller must hold mu.
func (s *speech) mark() bool {
	s.sendRest()
	p, ok := s.codec.say(putMark, strconv.Itoa(s.marks+1))
	if ok {
		s.marks++
		s.turnDue = time.Time{}
		s.post(p)
	}
	return ok
}

// played records the report of a mark. An empty name stands for the newest mark; unknown names are ignored.
func (s *speech) played(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, err := s.marks, error(nil)
	if name != "" {
		n, err = strconv.Atoi(name)
	}
	if err != nil || n <= s.echoed || n > s.marks {
		return
	}
	s.echoed = n
	if n == s.marks && !s.turnDue.IsZero() {
		s.late = max(0, time.Since(s.turnDue)-s.away)
	}
	close(s.echo)
	s.echo = make(chan struct{})
}

// left returns the playing time of the sound that was sent but not yet played. It is not positive if none is left.
func (s *speech) left() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Until(s.due)
}

// heard blocks until the sent sound has been played. If the provider reports playback, it waits for the report, at most the time more
// after the sound was due. It also returns when gone or written is closed.
func (s *speech) heard(more time.Duration, gone, written <-chan struct{}) {
	s.mu.Lock()
	if s.due.IsZero() {
		s.mu.Unlock()
		return
	}
	marked := s.mark()
	wanted, left := s.marks, time.Until(s.due)
	s.mu.Unlock()
	if marked {
		left = max(0, left) + more
	}
	timeout := time.NewTimer(left)
	defer timeout.Stop()
	for {
		s.mu.Lock()
		done, echo := marked && s.echoed >= wanted, s.echo
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
