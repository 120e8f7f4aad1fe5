package uplink

import (
	"slices"
	"time"
)

// ring is what was sent and may have to be sent again, oldest first: the turn that the model has not answered, and the
// newest lead, with which the next speech begins. Guarded by uplink.mu.
type ring struct {
	open  bool // there is a turn without an answer
	items []Item
	held  time.Duration // of the audio in items
	lost  time.Duration // of speech that was too long to be kept

	// Items at the front that the model has acted on by calling a tool, and whether the newest handle knows of that.
	acted   int
	covered bool

	old     []Item // what was cut off last
	settled []Item // what was typed and is taken for answered
}

// add takes an item that is sent. What it returns need not be kept; it is good until the next call.
func (r *ring) add(it Item) []Item {
	r.old = r.old[:0]
	switch {
	case it.typed():
		r.open = true
	case it.PCM != nil || it.hint():
	case !r.open: // a mark
		return nil
	}
	r.items = append(r.items, it)
	r.held += it.duration()
	quiet, run := len(r.items), time.Duration(0)
	for quiet > 0 && r.silent(r.items[quiet-1]) {
		quiet--
		run += r.items[quiet].duration()
	}
	for ; run > lead; run -= r.old[len(r.old)-1].duration() {
		r.cut(quiet, quiet+1)
	}
	for r.held > maxRing || len(r.items) > int(maxRing/Chunk)+maxUrgent {
		if r.open && r.items[0].speech > 0 {
			r.lost += r.items[0].duration()
		}
		r.cut(0, 1)
	}
	return r.old
}

// silent tells whether audio is of no speech that wants an answer.
func (r *ring) silent(it Item) bool { return it.PCM != nil && (it.speech == 0 || !r.open) }

// cut removes items.
func (r *ring) cut(from, to int) {
	for _, it := range r.items[from:to] {
		r.held -= it.duration()
	}
	r.old = append(r.old, r.items[from:to]...)
	r.items = slices.Delete(r.items, from, to)
	if from < r.acted {
		r.acted = max(from, r.acted-(to-from))
	}
}

// onset makes the newest lead a part of the speech that has just begun. Some of it may wait elsewhere.
func (r *ring) onset(speech int, left time.Duration) {
	r.open = true
	for i := len(r.items) - 1; i >= 0 && left > 0 && r.items[i].PCM != nil && r.items[i].speech == 0; i-- {
		r.items[i].speech = speech
		left -= r.items[i].duration()
	}
}

// start is where a speech begins; 0 is none, which begins at the end.
func (r *ring) start(speech int) int {
	if speech == 0 {
		return len(r.items)
	}
	if i := slices.IndexFunc(r.items, func(it Item) bool { return it.speech == speech }); i >= 0 {
		return i
	}
	return len(r.items)
}

// answered empties the ring but for a speech that is not over.
func (r *ring) answered(unfinished int) []Item {
	r.old = r.old[:0]
	end := r.start(unfinished)
	for left := lead; unfinished == 0 && end > 0 && left > 0 && r.items[end-1].PCM != nil; left -= r.items[end].duration() {
		end--
	}
	r.cut(0, end)
	r.settled = slices.DeleteFunc(append(slices.Clone(r.old), r.items...), func(it Item) bool { return !it.typed() })
	r.items = slices.DeleteFunc(r.items, Item.typed) // that was answered, too
	r.open = unfinished > 0
	r.acted, r.covered, r.lost = 0, false, 0
	return r.old
}

// unsettle takes back what was typed: what has been answered was something else.
func (r *ring) unsettle() {
	r.items = append(r.items, r.settled...)
	r.open = r.open || len(r.settled) > 0
	r.settled = nil
}

// actedOn notes that the model has called a tool because of what was said.
func (r *ring) actedOn(unfinished int) { r.acted, r.covered = r.start(unfinished), false }

// handled notes that there is a new handle.
func (r *ring) handled() {
	r.covered = r.acted > 0
	for i := len(r.items) - 1; i >= 0; i-- {
		if r.items[i].hint() { // the session has it
			r.cut(i, i+1)
		}
	}
}

// take empties the ring, which stays open. It returns what is to be said again to a session that goes on, or to a fresh one.
func (r *ring) take(fresh bool) (again []Item, lost time.Duration) {
	known := 0
	if r.covered && !fresh {
		known = r.acted
	}
	again, lost = r.items[known:], r.lost
	open := r.open && (known == 0 || slices.ContainsFunc(again, func(it Item) bool { return it.speech > 0 || it.typed() }))
	if !open {
		again = slices.DeleteFunc(slices.Clone(again), func(it Item) bool { return !it.hint() })
	}
	*r = ring{open: open, old: r.old}
	return again, lost
}
