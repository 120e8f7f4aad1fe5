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

// asked is when the questions without an answer ended. A model answers in order, or several at once.
type asked struct {
	oldest time.Time // zero: none
	newest time.Time // of one more; zero: none
	open   bool      // the oldest may have been answered, or not be over: the next question takes its place
}

// timing is the latency of one turn, as it is found out.
type timing struct {
	asked time.Time    // the person had ended
	audio time.Time    // the first audio came
	out   atomic.Int64 // ns from audio to when its first frame was handed over; 0: it was not
}

// ask notes when the person ended a question. A model that was quicker than our own detector has begun to answer it.
func (s *Session) ask(at time.Time) {
	switch t, q := s.answer.timing, &s.asked; {
	case t != nil && !t.audio.Before(at):
	case q.oldest.IsZero() || q.open:
		*q = asked{oldest: at}
	default:
		q.newest = at
	}
}

// answered takes the question that an answer which begins now is to, and returns when it ended; zero: none. A second question
// may be answered with it, or get an answer of its own, within the time that answers are waited for.
func (s *Session) answered() time.Time {
	q := s.asked
	if q.open && time.Since(q.oldest) > s.keeper.ShelfLife() {
		q.oldest = time.Time{}
	}
	s.forgetAsked()
	if !q.oldest.IsZero() && !q.newest.IsZero() {
		s.asked = asked{oldest: q.newest, open: true}
	}
	return q.oldest
}

// forgetAsked forgets what was asked: it is not going to be answered.
func (s *Session) forgetAsked() { s.asked = asked{} }

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
	s.answer.timing = t
	first := min(len(pcm), VoiceRate*int(media.FrameDuration/time.Millisecond)/1000)
	if err := s.playout.WritePCM(pcm[:first]); err != nil {
		return err
	}
	s.whenHeard(func() { t.out.Store(max(1, int64(time.Since(t.audio)))) })
	return s.playout.WritePCM(pcm[first:])
}
