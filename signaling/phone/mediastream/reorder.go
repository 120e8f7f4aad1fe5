package mediastream

import (
	"slices"
	"time"
)

const (
	// maxPending limits the later messages that are held back while an earlier one is missing. When more arrive, they
	// are played without it. maxGap limits the silence that is inserted for lost messages.
	maxPending = 2
	maxGap     = 200 * time.Millisecond
	// maxJump is the largest jump of the counter that can be a loss. A larger jump means that the provider has begun a
	// new count.
	maxJump = 100
	// maxIrregular is the number of consecutive irregular messages (late, or after a gap) after which the count is
	// restarted, or the counter is ignored.
	maxIrregular = 3
)

// reorderBuffer puts messages with sound in the order of their counter. It reports gaps, which the caller fills with
// silence. Without that silence, the jump in the signal could be mistaken for speech.
//
// Some providers restart the counter, count all tracks together, count milliseconds, or do not count. So after
// maxIrregular irregular messages, the count is restarted, or the counter is ignored.
type reorderBuffer struct {
	nextChunk       int // the counter expected in the next message; 0 before the first message
	pending         []message
	lateMessages    []message // the newest messages, if they were late
	consecutiveGaps int       // number of consecutive messages that followed a gap
	ignoresCounter  bool      // the counter is ignored from now on
	ready           [][]byte
}

// push adds a message. It returns the sound to play now, which is valid until the next call of push. missing is the
// number of lost messages before that sound.
func (r *reorderBuffer) push(m message) (missing int, ready [][]byte) {
	r.ready = r.ready[:0]
	if m.chunk <= 0 || r.ignoresCounter {
		r.ready = append(r.ready, m.sound)
		return 0, r.ready
	}
	if r.nextChunk == 0 || m.chunk < r.nextChunk-maxJump || m.chunk > r.nextChunk+maxJump {
		r.releasePending(m.chunk)
	}
	if m.chunk < r.nextChunk { // the message is late, a duplicate, or the first of a new count
		if r.lateMessages = append(r.lateMessages, m); len(r.lateMessages) == maxIrregular {
			r.resyncCounter()
		}
		return 0, r.ready
	}
	r.lateMessages = r.lateMessages[:0]
	r.pending = append(r.pending, m)
	slices.SortStableFunc(r.pending, func(a, b message) int { return a.chunk - b.chunk })
	released := 0
	for ; released < len(r.pending) && (r.pending[released].chunk <= r.nextChunk || len(r.pending)-released > maxPending); released++ {
		first := r.pending[released]
		if first.chunk < r.nextChunk { // a duplicate of a message that was played
			continue
		}
		if r.consecutiveGaps++; first.chunk == r.nextChunk {
			r.consecutiveGaps = 0
		}
		missing += first.chunk - r.nextChunk
		r.ready = append(r.ready, first.sound)
		r.nextChunk = first.chunk + 1
	}
	r.pending = slices.Delete(r.pending, 0, released)
	if r.consecutiveGaps >= maxIrregular {
		r.ignoresCounter = true
		r.releasePending(0)
	}
	return missing, r.ready
}

// releasePending moves the held messages to ready, although earlier ones are missing, and sets the counter that is
// expected next.
func (r *reorderBuffer) releasePending(nextChunk int) {
	for _, m := range r.pending {
		r.ready = append(r.ready, m.sound)
	}
	r.nextChunk, r.pending, r.lateMessages, r.consecutiveGaps = nextChunk, r.pending[:0], r.lateMessages[:0], 0
}

// resyncCounter is called after maxIrregular late messages in a row. If their counters are in order, the provider has
// restarted its count, and these messages are the first of the new count. Otherwise the counter is ignored from now on.
// The messages are played in both cases.
func (r *reorderBuffer) resyncCounter() {
	rises := func(a, b message) int { return a.chunk - 1 - b.chunk } // negative for equal counters, too
	r.ignoresCounter = !slices.IsSortedFunc(r.lateMessages, rises)
	batch := r.lateMessages
	r.releasePending(batch[len(batch)-1].chunk + 1)
	for _, m := range batch {
		r.ready = append(r.ready, m.sound)
	}
}
