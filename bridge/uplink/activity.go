package uplink

import (
	"time"

	"voxgate/media/vad"
)

const (
	// leadIn is the length of the audio before the first loud 20 ms that belongs to a speech. Words begin softly.
	leadIn = 300 * time.Millisecond

	// onsetTime is how long voice must last to begin a speech. hangoverTime is how long silence must last to end it.
	// Gemini ends a turn after 500 ms or more, so the gateway detects the end first.
	onsetTime    = 60 * time.Millisecond
	hangoverTime = 240 * time.Millisecond

	// trailingSilence is how much silence after a speech is replayed with it: enough for Gemini to detect its end.
	trailingSilence = time.Second

	// maxReplay limits the audio kept for a replay: a long sentence. Three seconds would lose the beginning of a
	// sentence of seven seconds.
	maxReplay = 10 * time.Second

	// MicPause is the longest time that a microphone may send nothing while the model needs audio. Google asks to be
	// told of pauses of more than a second (https://ai.google.dev/gemini-api/docs/live-guide, audioStreamEnd).
	MicPause = time.Second
)

// speechActivity tracks whether the person speaks: by voice activity detection, or by the client's marks. Guarded by
// Uplink.mu.
type speechActivity struct {
	vad         vad.Detector
	speaking    bool
	speeches    int       // number of speeches that have begun
	startedAt   time.Time // begin of the last speech
	endedAt     time.Time // end of the last speech, unless speaking
	lastAudioAt time.Time // arrival of the last audio
	lastLoudAt  time.Time // arrival of the last loud audio, or the marked end
	isSettled   bool      // enough silence after the last speech was sent or received
	isVoid      bool      // the last speech was aborted: it gets no answer

	received, speechFrom, speechTo time.Duration // length of all audio received, and positions in it where the last speech begins and ends

	manual          bool // the client or the gateway marks speech
	preRoll         time.Duration
	preSpeech       []Item // if manual: newest audio since the last mark, at most preRoll
	preSpeechLength time.Duration
	nextSpeech      []Item // if manual: audio kept by MarkKeep for the next speech; nil means that the speech starts with preSpeech
}

func newActivity() speechActivity {
	return speechActivity{vad: vad.Detector{Onset: onsetTime, Hangover: hangoverTime}}
}

// detectSpeech processes a chunk of audio, and reports whether a speech has started or ended with it.
func (a *speechActivity) detectSpeech(pcm []int16, rate int) (started, ended bool) {
	a.lastAudioAt = time.Now()
	if a.manual {
		return false, false
	}
	now := a.vad.ProcessFrame(pcm, rate)
	if a.vad.SilenceDuration() == 0 {
		a.lastLoudAt = a.lastAudioAt
	}
	started, ended = now && !a.speaking, !now && a.speaking
	if started {
		a.speaking, a.startedAt, a.isVoid, a.speechFrom, a.isSettled = true, a.lastAudioAt, false, a.received, false
		a.speeches++
	}
	if ended {
		a.speaking, a.endedAt, a.speechTo = false, a.lastAudioAt, a.received
	}
	return started, ended
}

// currentSpeech returns the number of the speech that the latest chunk belongs to; 0 for silence.
func (a *speechActivity) currentSpeech() int {
	if a.speaking || a.speeches > 0 && a.lastAudioAt.Sub(a.endedAt) <= trailingSilence {
		return a.speeches
	}
	return 0
}

// voicedDuration returns how much of the current or last speech was loud. A speech that the client marks counts as a
// whole.
func (a *speechActivity) voicedDuration() time.Duration {
	switch {
	case a.isVoid:
		return 0
	case !a.manual:
		return a.vad.VoicedDuration()
	case a.speaking:
		return time.Since(a.startedAt)
	}
	return a.endedAt.Sub(a.startedAt)
}

// beginSpeech starts a speech, and returns the audio from before its mark that belongs to the speech.
func (a *speechActivity) beginSpeech() (before []Item) {
	a.speaking, a.startedAt, a.isVoid, a.speechFrom = true, time.Now(), false, a.received
	a.speeches++
	if a.nextSpeech == nil {
		a.settlePreSpeech(MarkKeep)
	} else {
		for _, it := range a.nextSpeech {
			a.startedAt = a.startedAt.Add(-it.duration())
		}
	}
	before, a.nextSpeech = a.nextSpeech, nil
	return before
}

// settlePreSpeech keeps the audio from before the next speech for a MarkKeep, and drops it for a MarkDrop.
func (a *speechActivity) settlePreSpeech(how Mark) {
	if how == MarkKeep {
		length := a.preSpeechLength
		for _, it := range a.nextSpeech {
			length += it.duration()
		}
		a.nextSpeech, _ = trimOldest(append(a.nextSpeech, a.preSpeech...), length, a.preRoll)
	}
	a.preSpeech, a.preSpeechLength = nil, 0
}

// trimOldest drops the oldest items until their length is at most limit, and returns the rest with its length.
func trimOldest(items []Item, length, limit time.Duration) ([]Item, time.Duration) {
	for len(items) > 0 && length > limit {
		length -= items[0].duration()
		items[0] = Item{}
		items = items[1:] // only resliced, because there may be too many items to move
	}
	return items, length
}

// endSpeech ends the speech, and reports whether there was one.
func (a *speechActivity) endSpeech() bool {
	was := a.speaking
	if was {
		a.speaking, a.endedAt, a.speechTo = false, time.Now(), a.received
		if a.manual {
			a.lastLoudAt = a.endedAt
		}
		a.vad.EndSpeech()
	}
	return was
}

// keepPreSpeech keeps a chunk for the next beginSpeech, and drops chunks that are too old for it.
func (a *speechActivity) keepPreSpeech(it Item) {
	a.preSpeech, a.preSpeechLength = trimOldest(append(a.preSpeech, it), a.preSpeechLength+it.duration(), a.preRoll)
}
