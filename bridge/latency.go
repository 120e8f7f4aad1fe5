package bridge

import (
	"time"

	"voxgate/media"
)

// RoundTrip notes how long the way to the client and back takes.
func (s *Session) RoundTrip(d time.Duration) { s.roundTrip.Store(int64(d)) }

// ask notes when the person ended a question. A model that was quicker than our own detector has begun to answer it.
func (s *Session) ask(at time.Time) {
	s.calls.Asked()
	s.answer.said = false
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

// tellLatency tells what was measured of a turn, once, and returns it.
func (s *Session) tellLatency(t *timing) (l Latency) {
	if t == nil {
		return l
	}
	out := time.Duration(t.out.Swap(0))
	if t.asked.IsZero() || out == 0 || t.audio.Before(t.asked) {
		return l // nobody asked, nobody heard, or the model did not wait for the end
	}
	l = Latency{Model: t.audio.Sub(t.asked), Gateway: out, RoundTrip: time.Duration(s.roundTrip.Load())}
	s.notify(l)
	return l
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
