package uplink

import (
	"slices"
	"time"

	"voxgate/media/vad"
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

	// MicPause is how long a microphone may send nothing in the middle of a speech. Google wants to be told of pauses of
	// more than a second (https://ai.google.dev/gemini-api/docs/live-guide, audioStreamEnd).
	MicPause = time.Second
)

// ear finds out whether the person speaks, or is told so. Guarded by uplink.mu.
type ear struct {
	vad      vad.Detector
	speaking bool
	speeches int       // that have begun
	began    time.Time // when the last speech did
	ended    time.Time // when the last one did, unless speaking
	last     time.Time // when audio last came
	loud     time.Time // when loud audio last came, or the end was marked
	void     bool      // the last speech was not said to its end: nobody answers it

	manual  bool // the client marks speech itself
	preRoll time.Duration
	before  []Item // manual: what was said since the last mark, the newest preRoll
	kept    time.Duration
	old     []Item // what was cut off last
}

func newEar() ear { return ear{vad: vad.Detector{Onset: onset, Hangover: hangover}} }

// hear takes a chunk of audio.
func (e *ear) hear(pcm []int16, rate int) (began, ended bool) {
	e.last = time.Now()
	if e.manual {
		return false, false
	}
	now := e.vad.Hear(pcm, rate)
	if e.vad.Quiet() == 0 {
		e.loud = e.last
	}
	began, ended = now && !e.speaking, !now && e.speaking
	if began {
		e.speaking, e.began, e.void = true, e.last, false
		e.speeches++
	}
	if ended {
		e.speaking, e.ended = false, e.last
	}
	return began, ended
}

// speech is the number of the speech that a chunk belongs to which has just been heard; 0: it is silence.
func (e *ear) speech() int {
	if e.speaking || e.speeches > 0 && e.last.Sub(e.ended) <= trail {
		return e.speeches
	}
	return 0
}

// voiced is how much of the present or last speech was loud. Who marks speech by hand means it.
func (e *ear) voiced() time.Duration {
	switch {
	case e.void:
		return 0
	case !e.manual:
		return e.vad.Voiced()
	case e.speaking:
		return time.Since(e.began)
	}
	return e.ended.Sub(e.began)
}

// begin is told of speech, and returns what was said just before.
func (e *ear) begin() []Item {
	before := e.before
	e.before, e.kept = nil, 0
	e.speaking, e.began, e.void = true, time.Now(), false
	e.speeches++
	return before
}

// end is told that the speech is over, and reports whether there was one.
func (e *ear) end() bool {
	was := e.speaking
	if was {
		e.speaking, e.ended = false, time.Now()
		if e.manual {
			e.loud = e.ended
		}
		e.vad.End()
	}
	return was
}

// keep keeps a chunk for the next begin, and returns those that are too old now.
func (e *ear) keep(it Item) []Item {
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
