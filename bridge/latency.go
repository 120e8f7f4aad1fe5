package bridge

import (
	"sync/atomic"
	"time"
)

// questionEnds records when each unanswered question of the person ended. A model answers questions in order, or
// several together.
type questionEnds struct {
	nextEnd    time.Time // end of the question that is answered next; zero means none
	laterEnd   time.Time // end of the question after that; zero means none
	isDoubtful bool      // nextEnd may have been answered, or may not be final, so another question replaces it
}

func (q *questionEnds) addEnd(at time.Time) {
	if q.nextEnd.IsZero() || q.isDoubtful {
		*q = questionEnds{nextEnd: at}
		return
	}
	q.laterEnd = at
}

// replaceAll replaces all questions by the person's answer in a form, which was sent at the given time. It is doubtful
// whether this counts as a question, because the model need not reply to it.
func (q *questionEnds) replaceAll(at time.Time) { *q = questionEnds{nextEnd: at, isDoubtful: true} }

// takeNext removes the question that is answered by the answer beginning now. It returns when that question ended, or
// zero. The answer may also cover the question after it, so that question counts as answered after shelfLife.
func (q *questionEnds) takeNext(shelfLife time.Duration) time.Time {
	was := *q
	if was.isDoubtful && time.Since(was.nextEnd) > shelfLife {
		was.nextEnd = time.Time{}
	}
	*q = questionEnds{}
	if !was.nextEnd.IsZero() && !was.laterEnd.IsZero() {
		*q = questionEnds{nextEnd: was.laterEnd, isDoubtful: true}
	}
	return was.nextEnd
}

// turnTiming measures the latency of one turn.
type turnTiming struct {
	questionEnd     time.Time    // end of the question; zero means that there was none
	firstAudio      time.Time    // arrival of the first audio
	firstFrameDelay atomic.Int64 // ns from firstAudio until its first frame was delivered; 0 means not delivered, or already reported
}

// takeLatency returns the measured latency, but only once. ok is false if nothing was measured, or if the latency was
// taken before. t may be nil.
func (t *turnTiming) takeLatency(roundTrip time.Duration) (l Latency, ok bool) {
	if t == nil {
		return l, false
	}
	out := time.Duration(t.firstFrameDelay.Swap(0))
	if t.questionEnd.IsZero() || out == 0 || t.firstAudio.Before(t.questionEnd) {
		return l, false // no question, not played, or the model did not wait for the end of the question
	}
	return Latency{Model: t.firstAudio.Sub(t.questionEnd), Gateway: out, RoundTrip: roundTrip}, true
}
