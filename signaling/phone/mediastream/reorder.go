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

// reorderBuffer reorders sound by its message counter. It reports gaps so that silence can fill them: without the
// silence, the jump in the signal could be taken for speech. Some providers restart the counter from 1, count all
// tracks together, count milliseconds, or do not count. After several messages whose numbers are not in order, counting
// restarts, or the counter is ignored.
type reorderBuffer struct {
	nextChunk       int // next expected number; 0 before the first message
	pending         []message
	lateMessages    []message // consecutive late messages
	consecutiveGaps int       // consecutive messages that followed a gap
	ignoresCounter  bool      // the counter is ignored
	ready           [][]byte
}

// push adds a message. It returns the sound to play now, valid until the next call, and the number of missing messages before it.
func (o *reorderBuffer) push(m message) (missing int, ready [][]byte) {
	o.ready = o.ready[:0]
	if m.chunk <= 0 || o.ignoresCounter {
		o.ready = append(o.ready, m.sound)
		return 0, o.ready
	}
	if o.nextChunk == 0 || m.chunk < o.nextChunk-maxJump || m.chunk > o.nextChunk+maxJump {
		o.releasePending(m.chunk)
	}
	if m.chunk < o.nextChunk { // late, a duplicate, or the first message of a new count
		if o.lateMessages = append(o.lateMessages, m); len(o.lateMessages) == maxIrregular {
			o.resyncCounter()
		}
		return 0, o.ready
	}
	o.lateMessages = o.lateMessages[:0]
	o.pending = append(o.pending, m)
	slices.SortStableFunc(o.pending, func(a, b message) int { return a.chunk - b.chunk })
	released := 0
	for ; released < len(o.pending) && (o.pending[released].chunk <= o.nextChunk || len(o.pending)-released > maxPending); released++ {
		first := o.pending[released]
		if first.chunk < o.nextChunk { // duplicate
			continue
		}
		if o.consecutiveGaps++; first.chunk == o.nextChunk {
			o.consecutiveGaps = 0
		}
		missing += first.chunk - o.nextChunk
		o.ready = append(o.ready, first.sound)
		o.nextChunk = first.chunk + 1
	}
	o.pending = slices.Delete(o.pending, 0, released)
	if o.consecutiveGaps >= maxIrregular {
		o.ignoresCounter = true
		o.releasePending(0)
	}
	return missing, o.ready
}

// releasePending releases the waiting messages and restarts the count at next.
func (o *reorderBuffer) releasePending(next int) {
	for _, m := range o.pending {
		o.ready = append(o.ready, m.sound)
	}
	o.nextChunk, o.pending, o.lateMessages, o.consecutiveGaps = next, o.pending[:0], o.lateMessages[:0], 0
}

// resyncCounter handles a series of late messages. If they are in order, they begin a new count; otherwise the counter is ignored from now
// on.
func (o *reorderBuffer) resyncCounter() {
	o.ignoresCounter = !slices.IsSortedFunc(o.lateMessages, func(a, b message) int { return a.chunk + 1 - b.chunk })
	batch := o.lateMessages
	o.releasePending(batch[len(batch)-1].chunk + 1)
	for _, m := range batch {
		o.ready = append(o.ready, m.sound)
	}
}
