package bridge

import (
	"slices"
	"time"

	"voxgate/media"
)

const (
	// lead is how much audio from before the first loud 20 ms belongs to a sentence: words begin softly.
	lead = 300 * time.Millisecond

	// onset and hangover are what it takes to begin and to end a speech. The hangover is shorter than any silence by which
	// Gemini ends a turn (500 ms and more), so that our person has ended when its answer begins.
	onset    = 60 * time.Millisecond
	hangover = 240 * time.Millisecond

	// trail is how much silence behind a speech is said again with it: enough for Gemini to find its end.
	trail = time.Second

	// maxRing bounds what is said again: a long sentence. Three seconds would lose the beginning of one of seven.
	maxRing = 10 * time.Second

	// micPause is how long a microphone may send nothing in the middle of a speech. Google wants to be told of pauses of
	// more than a second (https://ai.google.dev/gemini-api/docs/live-guide, audioStreamEnd).
	micPause = time.Second
)

// ear finds out whether the person speaks, or is told so. Guarded by uplink.mu.
type ear struct {
	vad      media.VAD
	speaking bool
	since    time.Time // when speaking last changed
	began    time.Time // when it last began
	speeches int       // that have begun
	last     time.Time // when audio last came

	manual  bool // the client marks speech itself
	preRoll time.Duration
	before  []item // manual: what was said since the last mark, the newest preRoll
	kept    time.Duration
	old     []item // what was cut off last
}

func newEar() ear { return ear{vad: media.VAD{Onset: onset, Hangover: hangover}} }

// hear takes a chunk of audio.
func (e *ear) hear(pcm []int16, rate int) (began, ended bool) {
	e.last = time.Now()
	if e.manual {
		return false, false
	}
	now := e.vad.Hear(pcm, rate)
	began, ended = now && !e.speaking, !now && e.speaking
	if began || ended {
		e.speaking, e.since = now, e.last
	}
	if began {
		e.began = e.last
		e.speeches++
	}
	return began, ended
}

// voiced is how much of the present or last speech was loud. Who marks speech by hand means it.
func (e *ear) voiced() time.Duration {
	if e.manual {
		return time.Since(e.since)
	}
	return e.vad.Voiced()
}

// begin is told of speech, and returns what was said just before.
func (e *ear) begin() []item {
	before := e.before
	e.before, e.kept = nil, 0
	e.speaking, e.since, e.began = true, time.Now(), time.Now()
	e.speeches++
	return before
}

// end is told that the speech is over, and reports whether there was one.
func (e *ear) end() bool {
	was := e.speaking
	if was {
		e.speaking, e.since = false, time.Now()
		e.vad.End()
	}
	return was
}

// keep keeps a chunk for the next begin, and returns those that are too old now.
func (e *ear) keep(it item) []item {
	e.old = e.old[:0]
	e.before = append(e.before, it)
	e.kept += it.duration()
	for len(e.before) > 0 && e.kept > e.preRoll {
		e.old = append(e.old, e.before[0])
		e.kept -= e.before[0].duration()
		e.before = slices.Delete(e.before, 0, 1)
	}
	return e.old
}

// ring is what was sent of the turn that the model has not answered, oldest first; without such a turn the newest lead,
// with which the next one begins. Guarded by uplink.mu.
type ring struct {
	open  bool
	items []item
	held  time.Duration // of the audio in items
	known int           // items at the front that the model has acted on, by calling a tool
	old   []item        // what was cut off last
}

// add takes an item that was sent, and returns what need not be kept.
func (r *ring) add(it item, e *ear) (old []item) {
	switch {
	case it.typed():
		r.open = true
	case it.message != nil:
		if !r.open {
			return nil
		}
	case r.open && !it.keep && (it.at.Before(e.began.Add(-lead)) || it.at.After(e.began)):
		r.old = append(r.old[:0], it)
		return r.old
	}
	r.items = append(r.items, it)
	r.held += it.duration()
	if !r.open {
		return r.trim(lead)
	}
	return r.trim(maxRing)
}

// trim cuts off the oldest until it is no more than limit, nor than so many items as typing can make. What it returns is
// good until the next call.
func (r *ring) trim(limit time.Duration) (old []item) {
	n, held := 0, r.held
	for ; held > limit || len(r.items)-n > int(maxRing/chunk)+maxUrgent; n++ {
		held -= r.items[n].duration()
	}
	r.old = append(r.old[:0], r.items[:n]...)
	r.items = slices.Delete(r.items, 0, n)
	r.held = held
	r.known = max(0, r.known-n)
	return r.old
}

// forget drops what the model has acted on, once there is a handle that knows it.
func (r *ring) forget(e *ear) (old []item) {
	for _, it := range r.items[:r.known] {
		r.held -= it.duration()
	}
	r.old = append(r.old[:0], r.items[:r.known]...)
	r.items = slices.Delete(r.items, 0, r.known)
	r.known = 0
	r.open = r.open && (e.speaking || slices.ContainsFunc(r.items, func(it item) bool { return it.keep || it.typed() }))
	return r.old
}

// answered empties the ring but for what is being said.
func (r *ring) answered(e *ear) (old []item) {
	keep := lead
	if r.open = e.speaking; r.open {
		keep += time.Since(e.since)
	}
	old = r.trim(keep)
	open := r.open
	r.items = slices.DeleteFunc(r.items, func(it item) bool { return it.typed() || it.message != nil && !open })
	r.known = 0
	return old
}

// take empties the ring of a turn without an answer.
func (r *ring) take() (again []item, speech time.Duration) {
	if !r.open {
		return nil, 0
	}
	again, speech = r.items, r.held
	for i := range again {
		again[i].keep = true
	}
	r.items, r.held, r.known = nil, 0, 0
	return again, speech
}
