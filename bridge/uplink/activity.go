package uplink

import (
	"errors"
	"time"

	"voxgate/media/vad"
)

// Reasons for rejecting a mark: Gemini would close the session because of it, or too many marks are queued.
var (
	ErrManualActivity    = errors.New("a pause cannot be marked while the client marks the speech itself")
	ErrGatewayActivity   = errors.New("speech cannot be marked while the gateway decides about turns")
	ErrAutomaticActivity = errors.New("speech cannot be marked while Gemini detects it")
	ErrTooManyMarks      = errors.New("too many marks are queued")
)

const (
	// leadIn is the length of the audio that is added to a speech from before its first 20 ms of voice, because words
	// begin softly.
	leadIn = 300 * time.Millisecond

	// onsetTime is the length of voice that begins a speech. hangoverTime is the length of silence that ends it. Gemini
	// ends a turn only after 500 ms or more, so the gateway detects the end first.
	onsetTime    = 60 * time.Millisecond
	hangoverTime = 240 * time.Millisecond

	// trailingSilence is the length of the silence that is replayed after a speech. Gemini needs it to detect the end
	// of the speech.
	trailingSilence = time.Second

	// maxReplay limits the length of the audio that is kept for a replay. 10 s hold a long sentence. With three
	// seconds, the beginning of a sentence of seven seconds would be lost.
	maxReplay = 10 * time.Second

	// MicPause is the longest time for which a microphone may send nothing while the model needs audio. Google asks
	// clients to report pauses of more than a second (https://ai.google.dev/gemini-api/docs/live-guide,
	// audioStreamEnd).
	MicPause = time.Second
)

// speechActivity tracks whether the person speaks. It uses voice activity detection or the client's marks. Uplink.mu
// guards it.
type speechActivity struct {
	vad         vad.Detector
	speaking    bool
	speeches    int       // number of speeches that have begun
	startedAt   time.Time // start of the last speech
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
func (a *speechActivity) detectSpeech(pcm []int16, rate int) (hasStarted, hasEnded bool) {
	a.lastAudioAt = time.Now()
	if a.manual {
		return false, false
	}
	now := a.vad.ProcessFrame(pcm, rate)
	if a.vad.SilenceDuration() == 0 {
		a.lastLoudAt = a.lastAudioAt
	}
	hasStarted, hasEnded = now && !a.speaking, !now && a.speaking
	if hasStarted {
		a.speaking, a.startedAt, a.isVoid, a.speechFrom, a.isSettled = true, a.lastAudioAt, false, a.received, false
		a.speeches++
	}
	if hasEnded {
		a.speaking, a.endedAt, a.speechTo = false, a.lastAudioAt, a.received
	}
	return hasStarted, hasEnded
}

// currentSpeechNumber returns the number of the speech to which the latest chunk belongs, or 0 if the chunk is silence.
func (a *speechActivity) currentSpeechNumber() int {
	if a.speaking || a.speeches > 0 && a.lastAudioAt.Sub(a.endedAt) <= trailingSilence {
		return a.speeches
	}
	return 0
}

// voicedDuration returns how much of the current or last speech was loud. If the client marks speech, all of the speech
// counts.
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

// beginSpeech starts a speech. It returns the audio from before the start mark that also belongs to the speech.
func (a *speechActivity) beginSpeech() (before []Item) {
	a.speaking, a.startedAt, a.isVoid, a.speechFrom = true, time.Now(), false, a.received
	a.speeches++
	if a.nextSpeech == nil {
		a.keepOrDropPreSpeech(MarkKeep)
	} else {
		for _, it := range a.nextSpeech {
			a.startedAt = a.startedAt.Add(-it.duration())
		}
	}
	before, a.nextSpeech = a.nextSpeech, nil
	return before
}

// keepOrDropPreSpeech handles MarkKeep, which keeps the audio so far for the next speech, and MarkDrop, which drops it.
func (a *speechActivity) keepOrDropPreSpeech(mark Mark) {
	if mark == MarkKeep {
		length := a.preSpeechLength
		for _, it := range a.nextSpeech {
			length += it.duration()
		}
		a.nextSpeech, _ = trimOldest(append(a.nextSpeech, a.preSpeech...), length, a.preRoll)
	}
	a.preSpeech, a.preSpeechLength = nil, 0
}

// trimOldest drops the oldest items until the length of the rest is at most limit. It returns the rest and its length.
func trimOldest(items []Item, length, limit time.Duration) ([]Item, time.Duration) {
	for len(items) > 0 && length > limit {
		length -= items[0].duration()
		items[0] = Item{}
		items = items[1:] // only resliced, because there may be too many items to move
	}
	return items, length
}

// endSpeech ends the current speech. wasSpeaking reports whether there was one.
func (a *speechActivity) endSpeech() (wasSpeaking bool) {
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

// keepPreSpeech keeps a chunk in case a speech begins soon, and drops chunks that are too old for that.
func (a *speechActivity) keepPreSpeech(it Item) {
	a.preSpeech, a.preSpeechLength = trimOldest(append(a.preSpeech, it), a.preSpeechLength+it.duration(), a.preRoll)
}
