package uplink

import (
	"time"

	"voxgate/media/vad"
)

const (
	// prefix is how much audio from before the first loud 20 ms belongs to a sentence: words begin softly.
	prefix = 300 * time.Millisecond

	// onset and hangover are what it takes to begin and to end a speech. The hangover is shorter than any silence by which
	// Gemini ends a turn (500 ms and more), so that our speech has ended when the answer begins.
	onset    = 60 * time.Millisecond
	hangover = 240 * time.Millisecond

	// suffix is how much silence behind a speech is said again with it: enough for Gemini to find its end.
	suffix = time.Second

	// maxReplay bounds what is kept to be said again: a long sentence. Three seconds would lose the beginning of a
	// sentence of seven.
	maxReplay = 10 * time.Second

	// MicPause is how long a microphone may send nothing in the middle of a speech, or before the silence behind it was long
	// enough. Google wants to know of pauses of more than a second (https://ai.google.dev/gemini-api/docs/live-guide, audioStreamEnd).
	MicPause = time.Second
)

// activity is whether the person speaks: found by voice activity detection, or marked by the client.
// Guarded by Uplink.mu.
type activity struct {
	vad       vad.Detector
	speaking  bool
	speeches  int       // that have begun
	began     time.Time // when the last speech did
	ended     time.Time // when the last one did, unless speaking
	last      time.Time // when audio last came
	loud      time.Time // when loud audio last came, or the end was marked
	isSettled bool      // the silence behind the last speech was sent, or has come
	void      bool      // the last speech was not said to its end: it gets no answer

	came, from, to time.Duration // of sound: all that has come, and where in it the last speech began and ended

	manual  bool // the client marks speech itself
	preRoll time.Duration
	before  []Item // manual: what was said since the last mark, the newest preRoll
	kept    time.Duration
	whole   []Item // manual: what is to be all of the next speech; nil: what was said just before is
}

func newActivity() activity { return activity{vad: vad.Detector{Onset: onset, Hangover: hangover}} }

// hear takes a chunk of audio.
func (a *activity) hear(pcm []int16, rate int) (began, ended bool) {
	a.last = time.Now()
	if a.manual {
		return false, false
	}
	now := a.vad.ProcessFrame(pcm, rate)
	if a.vad.SilenceDuration() == 0 {
		a.loud = a.last
	}
	began, ended = now && !a.speaking, !now && a.speaking
	if began {
		a.speaking, a.began, a.void, a.from, a.isSettled = true, a.last, false, a.came, false
		a.speeches++
	}
	if ended {
		a.speaking, a.ended, a.to = false, a.last, a.came
	}
	return began, ended
}

// speech is the number of the speech to which the latest chunk belongs; 0: it is silence.
func (a *activity) speech() int {
	if a.speaking || a.speeches > 0 && a.last.Sub(a.ended) <= suffix {
		return a.speeches
	}
	return 0
}

// voiced is how much of the present or last speech was loud. A client that marks speech by hand means it.
func (a *activity) voiced() time.Duration {
	switch {
	case a.void:
		return 0
	case !a.manual:
		return a.vad.VoicedDuration()
	case a.speaking:
		return time.Since(a.began)
	}
	return a.ended.Sub(a.began)
}

// begin begins a speech, and returns what is of it already.
func (a *activity) begin() (before []Item) {
	a.speaking, a.began, a.void, a.from = true, time.Now(), false, a.came
	a.speeches++
	if a.whole == nil {
		a.forget(Keep)
	} else {
		for _, it := range a.whole {
			a.began = a.began.Add(-it.duration())
		}
	}
	before, a.whole = a.whole, nil
	return before
}

// forget says what becomes of what was said before the next speech.
func (a *activity) forget(how Mark) {
	if how == Keep {
		length := a.kept
		for _, it := range a.whole {
			length += it.duration()
		}
		a.whole, _ = newest(append(a.whole, a.before...), length, a.preRoll)
	}
	a.before, a.kept = nil, 0
}

// newest drops the oldest of items until they are no longer than most, and returns how long they are.
func newest(items []Item, length, most time.Duration) ([]Item, time.Duration) {
	for len(items) > 0 && length > most {
		length -= items[0].duration()
		items[0] = Item{}
		items = items[1:] // many may wait: what is left is not moved
	}
	return items, length
}

// end ends the speech, and reports whether there was one.
func (a *activity) end() bool {
	was := a.speaking
	if was {
		a.speaking, a.ended, a.to = false, time.Now(), a.came
		if a.manual {
			a.loud = a.ended
		}
		a.vad.EndSpeech()
	}
	return was
}

// keep keeps a chunk for the next begin, and drops those that are too old for it.
func (a *activity) keep(it Item) {
	a.before, a.kept = newest(append(a.before, it), a.kept+it.duration(), a.preRoll)
}
