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
	// bridgeLead is how far ahead of its time the voice is sent to a provider that can drop what waits.
	bridgeLead = 200 * time.Millisecond
	// maxHeld is how many messages wait for a provider that can take none: 20 s of the voice.
	maxHeld = 1000
)

// speech is what the model says, on its way to the other side. It implements media.Output. Any goroutine may call it.
type speech struct {
	codec   codec
	format  format
	packing packing
	lead    time.Duration
	put     func(signaling.Outgoing) // does not block
	log     *slog.Logger

	mu       sync.Mutex
	down     *media.Resampler     // nil: the voice goes out at its own rate
	gathered []byte               // encoded, less than a message
	paused   bool                 // the other side can take nothing
	over     bool                 // the call was hung up
	held     []signaling.Outgoing // until it can
	due      time.Time            // when what was sent will have been played, as far as is known; zero: nothing was sent
	filled   time.Time            // until when silence was sent
	marks    int                  // sent
	echoed   int                  // the newest that has come back
	turnDue  time.Time            // when the newest was, if it ends a turn; zero: it does not
	away     time.Duration        // to the other side and back
	late     time.Duration        // of what is played there, by the newest mark
	echo     chan struct{}        // closed and replaced when one does
}

func newSpeech(c codec, f format, p packing, lead time.Duration, put func(signaling.Outgoing), log *slog.Logger) *speech {
	s := &speech{codec: c, format: f, packing: p, lead: lead, put: put, log: log, echo: make(chan struct{})}
	if f.rate != bridge.VoiceRate {
		s.down = media.NewResampler(bridge.VoiceRate, f.rate)
	}
	return s
}

// size is that of a message's sound, in bytes.
func (s *speech) size() int { return s.format.frame() * max(1, s.packing.frames) }

// Lead implements media.Output.
func (s *speech) Lead() time.Duration { return s.lead }

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
			s.down.PadStart() // forgets the end of the talkspurt before
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

// fill sends 20 ms of silence if nothing is said. It is called when sound comes in, which may be in bursts; what goes out keeps to the
// clock.
func (s *speech) fill() {
	if !s.packing.fills {
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

// quiet is 20 ms at the highest rate of a [format].
var quiet = make([]int16, media.Samples(media.FrameDuration, maxRate))

// sendRest sends what is less than a message, with silence behind it where no message may have less. Needs mu.
func (s *speech) sendRest() {
	if n := len(s.gathered); s.packing.whole && n > 0 && n < s.size() {
		pause := make([]int16, media.Samples(media.FrameDuration, s.format.rate)*(s.size()-n)/s.format.frame())
		s.gathered = s.format.encode(s.gathered, pause)
		s.due = s.due.Add(media.Duration(len(pause), s.format.rate))
	}
	s.send()
}

// send sends what is gathered. Needs mu.
func (s *speech) send() {
	if len(s.gathered) > 0 {
		s.post(s.codec.voice(s.gathered))
		s.gathered = s.gathered[:0]
	}
}

// post sends a message, or keeps it until the other side can take it. Needs mu.
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

// pause has the voice wait, or go on.
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

// reply is order for any goroutine.
func (s *speech) reply(c command) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.order(c, "")
}

// order sends a command ahead of all that waits; false: there is no such command. Needs mu.
func (s *speech) order(c command, what string) bool {
	p, ok := s.codec.say(c, what)
	if ok {
		s.put(p)
	}
	return ok
}

// press has the other side press keys; false: it cannot.
func (s *speech) press(keys string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.order(pressKeys, keys)
}

// end hangs up. Nothing may follow it.
func (s *speech) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.over {
		s.order(hangUp, "")
	}
	s.over = true
}

// stop answers the other side's end of the call, after which it takes nothing any more.
func (s *speech) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.order(farewell, "")
	s.over = true
}

// clear drops what was sent and not heard.
func (s *speech) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gathered, s.held, s.paused, s.due = s.gathered[:0], nil, false, time.Time{}
	s.turnDue = time.Time{} // what comes back now was dropped, not played
	s.order(clearVoice, "")
}

// finish sends the end of what was said, less than a message, and asks for a report when it was played.
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

// mark is finish; false: the other side cannot report that. Needs mu.
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

// played takes the name of a mark that has come back; empty: it is the newest. What is none of ours says nothing.
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

// left is how long what was sent is still to be heard.
func (s *speech) left() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Until(s.due)
}

// heard waits until the other side has played what was sent: until it says so, or else for more after it was due. It
// ends with gone and with written, too.
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
		case <-written: // nothing can be sent any more
			return
		}
	}
}
