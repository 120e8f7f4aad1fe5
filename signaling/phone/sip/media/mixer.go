package media

import (
	"math"
	"sync"
	"time"

	"voxgate/media"
)

// Mixer mixes both sides of a conversation in real time. It implements [voxgate/bridge.Listener].
type Mixer struct {
	mu            sync.Mutex
	caller, model voice
}

// WriteCaller implements [voxgate/bridge.Listener].
func (m *Mixer) WriteCaller(pcm []int16, rate int, _ time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.caller.addPCM(pcm, rate)
}

// WriteModel implements [voxgate/bridge.Listener].
func (m *Mixer) WriteModel(pcm []int16, _ time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.model.addPCM(pcm, VoiceRate)
}

// TruncateModel implements [voxgate/bridge.Listener]. It does nothing, because the mixer plays in real time: the audio
// to discard has already been played.
func (*Mixer) TruncateModel(time.Time) {}

// AddGapMark implements [voxgate/bridge.Listener].
func (*Mixer) AddGapMark(time.Time) {}

// MixInto adds the next audio of both sides to frame.
func (m *Mixer) MixInto(frame []int16) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.caller.mixInto(frame)
	m.model.mixInto(frame)
}

const (
	// voicePrebuffer is the amount of audio that is buffered before playout, because audio arrives unevenly.
	voicePrebuffer = 60 * time.Millisecond
	// maxVoiceBuffer limits the buffered audio of a side. Older audio is dropped, so that the delay does not grow.
	maxVoiceBuffer = 300 * time.Millisecond
)

// voice is one side of a mixer.
type voice struct {
	pcm       []int16 // buffered samples at PlaybackRate
	rate      int     // input rate of resampler, in Hz
	resampler *media.Resampler
	isPlaying bool
}

func (v *voice) addPCM(pcm []int16, rate int) {
	if rate != v.rate {
		v.rate, v.resampler = rate, media.NewResampler(rate, PlaybackRate)
	}
	v.pcm = append(v.pcm, v.resampler.Resample(pcm)...)
	if over := len(v.pcm) - media.Samples(maxVoiceBuffer, PlaybackRate); over > 0 {
		v.pcm = v.pcm[:copy(v.pcm, v.pcm[over:])]
	}
}

func (v *voice) mixInto(frame []int16) {
	need := len(frame)
	if !v.isPlaying {
		need = media.Samples(voicePrebuffer, PlaybackRate)
	}
	if v.isPlaying = len(v.pcm) >= need; !v.isPlaying {
		return
	}
	for i := range frame {
		frame[i] = int16(min(max(int(frame[i])+int(v.pcm[i]), math.MinInt16), math.MaxInt16))
	}
	v.pcm = v.pcm[:copy(v.pcm, v.pcm[len(frame):])]
}
