package mediastream

import (
	"slices"
	"time"
)

const (
	// maxPending is the number of out-of-order messages that wait for a missing one. maxGap limits the silence inserted for lost messages.
	maxPending = 2
	maxGap     = 200 * time.Millisecond
	// maxJump is the largest plausible jump of the counter. After a larger one, counting restarts.
	maxJump = 100
	// maxIrregular is the number of consecutive messages that may be late or follow a gap. After that many, the count restarts or the counter
	// is ignored.
	maxIrregular = 3
)

// reorderBuffer reorders sound by its message counter. It reports gaps to fill with silence: a jump in the signal could
// be taken for speech.
//
// Some providers restart the counter, count all tracks together, count milliseconds, or do not count. After several
// irregular messages, counting restarts, or the counter is ignored.
type reorderBuffer struct {
	nextChunk       int // next expected number; 0 before the first message
	pending         []message
	lateMessages    []message // consecutive late messages
	consecutiveGaps int       // consecutive messages that followed a gap
	ignoresCounter  bool      // the counter is ignored
	ready           [][]byte
}

// push adds a message. It returns the sound to play now, valid until the next call. missing is the number of missing
// messages before that sound.
func (r *reorderBuffer) push(m message) (missing int, ready [][]byte) {
	r.ready = r.ready[:0]
	if m.chunk <= 0 || r.ignoresCounter {
		r.ready = append(r.ready, m.sound)
		return 0, r.ready
	}
	if r.nextChunk == 0 || m.chunk < r.nextChunk-maxJump || m.chunk > r.nextChunk+maxJump {
		r.releasePending(m.chunk)
	}
	if m.chunk < r.nextChunk { // late, a duplicate, or the first message of a new count
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
		if first.chunk < r.nextChunk { // duplicate
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

// releasePending releases the waiting messages and restarts the count at next.
func (r *reorderBuffer) releasePending(next int) {
	for _, m := range r.pending {
		r.ready = append(r.ready, m.sound)
	}
	r.nextChunk, r.pending, r.lateMessages, r.consecutiveGaps = next, r.pending[:0], r.lateMessages[:0], 0
}

// resyncCounter handles a series of late messages. If they are in order, they begin a new count; otherwise the counter is ignored from now
// on.
func (r *reorderBuffer) resyncCounter() {
	r.ignoresCounter = !slices.IsSortedFunc(r.lateMessages, func(a, b message) int { return a.chunk + 1 - b.chunk })
	batch := r.lateMessages
	r.releasePending(batch[len(batch)-1].chunk + 1)
	for _, m := range batch {
		r.ready = append(r.ready, m.sound)
	}
}
