package main

import (
	_ "embed"
	"slices"
	"sync"
	"time"

	"voxgate/media"
	"voxgate/media/opus"
)

// Sample rates in Hz.
const (
	micRate   = 48000 // of a caller's microphone, like a browser's
	voiceRate = 24000 // of the model's voice, and of a caller's playback
	modelRate = 16000 // of the model's input
)

// wav is a copy of web/test/speech.wav: 0.9 s of a voice at 16 kHz, almost without pauses.
//
//go:embed speech.wav
var wav []byte

// reference is the speech that is sent repeatedly over bad networks. It contains the same clip at four pitches, so that
// a late piece cannot be mistaken for the next repetition of the clip.
type reference struct {
	pcm   []int16 // at modelRate; a whole number of frames
	mic   []int16 // the same at micRate
	voice []int16 // the same at voiceRate
	clips []int   // first frame of each clip, and the end
}

// must panics on errors that only a bug of this program can cause, such as those of codecs and filters with constant rates.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// speech returns the reference, which is built once.
var speech = sync.OnceValue(func() *reference {
	const header = 44
	clip := media.AppendSamples(nil, wav[header:])
	s, whole := &reference{}, media.Samples(frame, modelRate)
	for _, rate := range []int{16000, 14500, 17500, 15200} { // two semitones up and down
		s.clips = append(s.clips, s.frameCount())
		voice := must(media.Resample(clip, rate, modelRate))
		const pause = 5 // frames, in addition to the rest of the clip's last one
		s.pcm = slices.Concat(s.pcm, voice, make([]int16, (pause+1)*whole-len(voice)%whole))
	}
	s.clips = append(s.clips, s.frameCount())
	s.mic = must(media.Resample(s.pcm, modelRate, micRate))
	s.voice = must(media.Resample(s.pcm, modelRate, voiceRate))
	return s
})

// frameCount returns the length in frames of 20 ms.
func (r *reference) frameCount() int { return len(r.pcm) / media.Samples(frame, modelRate) }

// micFrame returns frame i at micRate. The speech repeats after its end.
func (r *reference) micFrame(i int) []int16 {
	n := media.Samples(frame, micRate)
	i %= r.frameCount()
	return r.mic[i*n : (i+1)*n]
}

// voiceFrames returns the sound at voiceRate of the frames with the numbers `from` to `to`. The frame `to` is excluded.
func (r *reference) voiceFrames(from, to int) []int16 {
	n := media.Samples(frame, voiceRate)
	return r.voice[from*n : to*n]
}

// clipFrames returns the number of the first frame of clip i, and the number after its last frame. After the last clip,
// it counts from the first clip again.
func (r *reference) clipFrames(i int) (from, to int) {
	i %= len(r.clips) - 1
	return r.clips[i], r.clips[i+1]
}

// talker encodes a caller's audio.
type talker struct {
	*opus.Encoder
	buf []byte
}

// newLowDelayTalker returns the encoder with the least delay: its look-ahead is 2.5 ms.
func newLowDelayTalker() *talker { return &talker{must(opus.NewEncoder(micRate)), make([]byte, 1500)} }

// newBrowserTalker returns an encoder like that of a browser: VOIP at 32 kb/s, with FEC.
func newBrowserTalker() *talker {
	e := must(opus.NewRobustEncoder(micRate))
	return must(&talker{e, make([]byte, 1500)}, e.SetExpectedLoss(10)) // percent of loss: enough for FEC in every packet
}

// encodeFrame returns the packet for 20 ms at micRate. It is valid until the next call.
func (t *talker) encodeFrame(pcm []int16) []byte { return t.buf[:must(t.Encode(pcm, t.buf))] }

// listener decodes received audio.
type listener struct {
	media.Decoder
	pcm []int16
}

func newListener(rate int) *listener {
	return &listener{must(opus.NewDecoder(rate, "")), make([]int16, media.Samples(media.MaxPacketDuration, rate))}
}

// decodePacket returns the audio of a packet, valid until the next call. It is nil if the packet is empty, as in a pause, or invalid.
func (l *listener) decodePacket(packet []byte) []int16 {
	if len(packet) == 0 {
		return nil
	}
	n, err := l.Decode(packet, l.pcm)
	if err != nil {
		return nil
	}
	return l.pcm[:n]
}

// isLoud reports whether a frame is louder than a codec's output for silence: -36 dBov, the same limit as in the emulator.
func isLoud(pcm []int16) bool { return media.RMS(pcm) >= 500 }

// recording stores received audio at modelRate, with the arrival time of each piece. It implements media.Sink.
type recording struct {
	mu     sync.Mutex
	pieces []piece
}

type piece struct {
	at  time.Time
	pcm []int16
}

// Rate returns modelRate.
func (*recording) Rate() int { return modelRate }

// WritePCM stores a piece with the current time.
func (r *recording) WritePCM(pcm []int16) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pieces = append(r.pieces, piece{time.Now(), slices.Clone(pcm)})
	return nil
}

// snapshot returns the pieces until now.
func (r *recording) snapshot() []piece {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.pieces)
}
