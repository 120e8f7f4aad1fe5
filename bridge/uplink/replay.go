package uplink

import (
	"slices"
	"time"
)

// replayBuffer is what was sent and may have to be sent again, oldest first: the turn that the model has not answered,
// and the newest prefix, with which the next speech begins. Guarded by Uplink.mu.
type replayBuffer struct {
	open  bool // there is a turn without an answer
	items []Item
	held  time.Duration // of the audio in items
	lost  time.Duration // of speech that was too long to be kept

	// How many items at the front the model has acted on by calling a tool, and whether the newest handle knows of that.
	acted int
	known bool
	told  bool // such items were not sent again, because the session knows them; it has not answered yet

	settled []Item // typed text that is taken for answered

	sent    int64 // the index of the last message of this link
	covered int64 // the index of the last message that the newest handle covers; 0: it does not say
	strange bool  // the server's indices are not ours
}

// known is the index of what the newest handle covers, and an earlier link has sent.
const known = -1

// number notes the index of the last message that was sent, which is the newest item's.
func (b *replayBuffer) number(sent int64) {
	b.sent = sent
	if n := len(b.items); n > 0 && b.items[n-1].index == 0 {
		b.items[n-1].index = sent
	}
}

// add takes an item that is sent.
func (b *replayBuffer) add(it Item) {
	switch {
	case it.typed():
		b.open = true
	case it.PCM != nil || it.hint():
	case !b.open: // a mark
		return
	}
	it.index = 0
	b.items = append(b.items, it)
	b.held += it.duration()
	quiet, run := len(b.items), time.Duration(0)
	for quiet > 0 && b.silent(b.items[quiet-1]) {
		quiet--
		run += b.items[quiet].duration()
	}
	for run > prefix {
		run -= b.items[quiet].duration()
		b.cut(quiet, quiet+1)
	}
	for b.held > maxReplay || len(b.items) > int(maxReplay/Chunk)+maxUrgent {
		if b.open && b.items[0].speech > 0 {
			b.lost += b.items[0].duration()
		}
		b.cut(0, 1)
	}
}

// silent reports whether audio belongs to no speech that wants an answer.
func (b *replayBuffer) silent(it Item) bool { return it.PCM != nil && (it.speech == 0 || !b.open) }

// cut removes items.
func (b *replayBuffer) cut(from, to int) {
	for _, it := range b.items[from:to] {
		b.held -= it.duration()
	}
	b.items = slices.Delete(b.items, from, to)
	if from < b.acted {
		b.acted = max(from, b.acted-(to-from))
	}
}

// onset makes the newest prefix a part of the speech that has just begun. Some of it may wait elsewhere.
func (b *replayBuffer) onset(speech int, left time.Duration) {
	b.open = true
	for i := len(b.items) - 1; i >= 0 && left > 0 && b.items[i].PCM != nil && b.items[i].speech == 0; i-- {
		b.items[i].speech = speech
		left -= b.items[i].duration()
	}
}

// start is where a speech begins; 0 is none, which begins at the end.
func (b *replayBuffer) start(speech int) int {
	if speech == 0 {
		return len(b.items)
	}
	if i := slices.IndexFunc(b.items, func(it Item) bool { return it.speech == speech }); i >= 0 {
		return i
	}
	return len(b.items)
}

// answered empties the buffer but for a speech that is not over.
func (b *replayBuffer) answered(unfinished int) {
	end := b.start(unfinished)
	for left := prefix; unfinished == 0 && end > 0 && left > 0 && b.items[end-1].PCM != nil; left -= b.items[end].duration() {
		end--
	}
	b.settled = slices.DeleteFunc(slices.Clone(b.items), func(it Item) bool { return !it.typed() })
	b.cut(0, end)
	b.items = slices.DeleteFunc(b.items, Item.typed) // that was answered, too
	b.open = unfinished > 0
	b.acted, b.known, b.told, b.lost = 0, false, false, 0
}

// unsettle marks typed text as unanswered again: the answer was to something else.
func (b *replayBuffer) unsettle() {
	b.items = append(b.items, b.settled...)
	b.open = b.open || len(b.settled) > 0
	b.settled = nil
}

// actedOn notes that the model has called a tool because of what was said.
func (b *replayBuffer) actedOn(unfinished int) { b.acted, b.known = b.start(unfinished), false }

// handled notes a new handle, and the index of the last message that it covers.
func (b *replayBuffer) handled(covered int64) {
	const onTheirWay = 10 // the messages of an item that is being sent are not counted yet
	b.known = b.acted > 0
	b.strange = b.strange || covered > b.sent+onTheirWay
	if b.covered = covered; b.strange {
		b.covered = 0
	}
	for i := len(b.items) - 1; i >= 0; i-- {
		if it := b.items[i]; it.hint() && (b.covered == 0 || it.index == known || it.index > 0 && it.index <= b.covered) { // the session has it
			b.cut(i, i+1)
		}
	}
}

// owed reports whether a session that is resumed is to be told something again: not what the model has acted on by calling a tool, if the
// handle knows of that.
func (b *replayBuffer) owed() bool {
	return b.open && (!b.known || slices.ContainsFunc(b.items[b.acted:], func(it Item) bool { return it.speech > 0 || it.typed() }))
}

// take empties the buffer, which stays open. It returns what to say again to a resumed session, or to a fresh one. In the
// middle of a speech that is only what the handle does not cover. The rest is kept for a session that knows nothing, and for
// this one, should it not answer: nobody says whether a session answers what it has heard when it is resumed after the
// question, so that is repeated.
func (b *replayBuffer) take(fresh, speaking bool) (again []Item, lost time.Duration) {
	skip, open := 0, b.open
	if b.known && !fresh {
		skip, open = b.acted, b.owed()
	}
	again, lost = b.items[skip:], b.lost
	if !open {
		again = slices.DeleteFunc(slices.Clone(again), func(it Item) bool { return !it.hint() })
	}
	left := replayBuffer{open: open, told: !fresh && (skip > 0 || b.told), strange: b.strange}
	if speaking && !fresh {
		var unknown []Item
		for _, it := range again {
			if it.index != known && (it.index == 0 || it.index > b.covered) {
				unknown = append(unknown, it)
				continue
			}
			it.index = known
			left.items = append(left.items, it)
			left.held += it.duration()
		}
		again = unknown
		if len(left.items) > 0 { // what was cut is older, and the session has it, too
			left.lost, lost = lost, 0
		}
	}
	*b = left
	return again, lost
}
