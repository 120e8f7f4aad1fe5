package bridge

import (
	"sync/atomic"
	"time"

	"voxgate/media"
)

// Latency is how long one answer took, from the end of the question to the first sound on its way to the person.
type Latency struct {
	// Model is from the end of what the person said or typed, as it came here, to the model's first audio.
	Model time.Duration
	// Gateway is from there to the first frame handed to the caller's output.
	Gateway time.Duration
	// RoundTrip is the client's, 0 if it is not known.
	RoundTrip time.Duration
}

// Total is what the person has waited: what was said travels half a round trip here, the answer the other half back.
func (l Latency) Total() time.Duration { return l.Model + l.Gateway + l.RoundTrip }

// RoundTrip notes how long the way to the client and back takes.
func (s *Session) RoundTrip(d time.Duration) { s.roundTrip.Store(int64(d)) }

// more is what there is beside the oldest question without an answer (Session.asked). A model answers in order, or several
// at once. Owned by the loop.
type more struct {
	newest time.Time // when the person ended one more; zero: none
	maybe  bool      // the oldest may have been answered, or not be over: the next question takes its place
}

// timing is the latency of one turn, as it is found out.
type timing struct {
	asked time.Time    // the person had ended
	audio time.Time    // the first audio came
	out   atomic.Int64 // ns from audio to when its first frame was handed over; 0: it was not
}

// wasAsked notes when the person ended a question. A model that was quicker than our own ear has begun to answer it.
func (s *Session) wasAsked(at time.Time) {
	switch t := s.turn.timing; {
	case t != nil && !t.audio.Before(at):
	case s.asked.IsZero() || s.more.maybe:
		s.asked, s.more = at, more{}
	default:
		s.more.newest = at
	}
}

// answered takes the question that an answer which begins now is to, and returns when it ended; zero: none. A second question
// may be answered with it, or get an answer of its own, within the time that answers are waited for.
func (s *Session) answered() time.Time {
	at, newest := s.asked, s.more.newest
	if s.more.maybe && time.Since(at) > s.shelfLife() {
		at = time.Time{}
	}
	s.notAsked()
	if !at.IsZero() && !newest.IsZero() {
		s.asked, s.more = newest, more{maybe: true}
	}
	return at
}

// notTimed notes that an answer begins whose voice nobody will hear, once an answer.
func (s *Session) notTimed() { s.answered() }

// notAsked forgets what was asked: it is not going to be answered.
func (s *Session) notAsked() { s.asked, s.more = time.Time{}, more{} }

// tellLatency tells what was measured of a turn, once.
func (s *Session) tellLatency(t *timing) {
	if t == nil {
		return
	}
	out := time.Duration(t.out.Swap(0))
	if t.asked.IsZero() || out == 0 || t.audio.Before(t.asked) {
		return // nobody asked, nobody heard, or the model did not wait for the end
	}
	l := Latency{Model: t.audio.Sub(t.asked), Gateway: out, RoundTrip: time.Duration(s.roundTrip.Load())}
	s.notify(l)
	if s.host.options.Observe != nil {
		s.host.options.Observe(l)
	}
}

// timed queues the first audio of an answer, and notes when its first frame is out. It takes the end of the question with
// it: what the model says next without being asked is no answer to it.
func (s *Session) timed(pcm []int16) error {
	t := &timing{asked: s.answered(), audio: time.Now()}
	s.turn.timing = t
	first := min(len(pcm), VoiceRate*int(media.FrameDuration/time.Millisecond)/1000)
	if err := s.playout.WritePCM(pcm[:first]); err != nil {
		return err
	}
	s.playout.Mark(func(heard bool) {
		if heard {
			t.out.Store(max(1, int64(time.Since(t.audio))))
		}
	})
	return s.playout.WritePCM(pcm[first:])
}
