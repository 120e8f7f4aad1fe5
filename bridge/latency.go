package bridge

import (
	"sync/atomic"
	"time"
)

// questions are the ends of the person's unanswered questions. A model answers in order, or several at once.
type questions struct {
	next     time.Time // the one that is answered next; zero: none
	later    time.Time // one more; zero: none
	doubtful bool      // next may have been answered, or may not be over: another question takes its place
}

func (q *questions) add(at time.Time) {
	if q.next.IsZero() || q.doubtful {
		*q = questions{next: at}
		return
	}
	q.later = at
}

// answered returns the end of the question to which an answer begins now; zero: none. The next question may be answered
// with it, or get an answer of its own within shelfLife.
func (q *questions) answered(shelfLife time.Duration) time.Time {
	was := *q
	if was.doubtful && time.Since(was.next) > shelfLife {
		was.next = time.Time{}
	}
	*q = questions{}
	if !was.next.IsZero() && !was.later.IsZero() {
		*q = questions{next: was.later, doubtful: true}
	}
	return was.next
}

// timing is the latency of one turn, as it becomes known.
type timing struct {
	asked time.Time    // the end of the question; zero: nobody has asked
	audio time.Time    // the first audio came
	out   atomic.Int64 // ns from audio to when its first frame was handed over; 0: it was not, or was reported
}

// latency is what was measured, once: ok is false if there is nothing to report, or it was reported. t may be nil.
func (t *timing) latency(roundTrip time.Duration) (l Latency, ok bool) {
	if t == nil {
		return l, false
	}
	out := time.Duration(t.out.Swap(0))
	if t.asked.IsZero() || out == 0 || t.audio.Before(t.asked) {
		return l, false // nobody asked, the answer was not heard, or the model did not wait for the end of the question
	}
	return Latency{Model: t.audio.Sub(t.asked), Gateway: out, RoundTrip: roundTrip}, true
}
